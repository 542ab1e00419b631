"""Streams in runs: samples for figures and pictures and for what needs rows in memory, and the table of a map a piece
at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..data import Dataset, Schema, Stream, memory, open_stream
from ..data.messages import count
from ..data.streams import Blocks
from ..geometry.frames import Frame
from ..training import Fitted, Split
from ..training.evaluate import embed
from ..training.splits import HeldOut
from ..training.stream_problem import sample_rows
from .folders import embedding_table
from .progress import Reporter
from .sources import Source, streamed_blocks

__all__ = ["InMemory", "embedded_tables", "loaded", "opened", "sampled"]

_VALUE = 16  # bytes in memory of a value
_LEAST = 1000  # rows of a sample, where there are so many, however little memory there is


def sampled(stream: Stream, held_out: HeldOut, seed: int) -> tuple[Dataset, Split]:
    """The rows that are held out and at most 10,000 others, chosen at random; and which of these are which."""
    rows, split = sample_rows(stream, held_out, seed)
    data = stream.take(rows)
    if len(rows) < len(stream):
        note = f"pictures and figures are of a sample: {len(rows):,} of {count(len(stream), 'row')}, chosen at random."
        data = replace(data, notes=(*data.notes, note))
    return data, split


def opened(source: Source, blocks: Blocks, bound: int | str, reporter: Reporter) -> Stream:
    """The rows of a source to be read in pieces, with the roles of its columns, within so much memory."""
    passes = 2 if source.covariates else 1
    advance = reporter.counter("reading", passes * len(blocks))
    return open_stream(blocks, memory=bound, missing=source.missing, advance=advance)


class InMemory(NamedTuple):
    """Rows for what needs them in memory.

    Arguments:
        data: all rows, or a sample.
        schema: of all rows.
        memory: how much was taken for a sample; None of all rows.
        chosen: numbers of the rows of a sample in ascending order; None of all rows.
        rows: how many there are in all.
    """

    data: Dataset
    schema: Schema
    memory: str | None
    chosen: NDArray[np.int64] | None
    rows: int


def loaded(source: Source, seed: int, reporter: Reporter) -> InMemory:
    """The rows for what needs them in memory: of data that are larger than they may be as many as fit, chosen at random
    from the seed.
    """
    if (blocks := streamed_blocks(source, reporter.counter)) is None:
        data, schema = source.load()
        return InMemory(data, schema, None, None, len(data))
    bound = memory.bound(source.memory)
    stream = opened(source, blocks, bound, reporter)
    row = blocks.footprint // len(stream) + _VALUE * (stream.features - len(blocks.names))
    count = min(len(stream), max(_LEAST, bound // row))
    # What takes memory for every row of the stream takes less than the rows that are chosen.
    chosen = np.random.default_rng([seed, 13]).choice(len(stream), count, replace=False, shuffle=False)
    chosen = np.sort(chosen).astype(np.int64)
    data = stream.take(chosen)
    if count < len(stream):
        note = f"a sample is looked at: {count:,} of {len(stream):,} rows, chosen at random with seed {seed}."
        reporter.say(note)
        data = replace(data, notes=(*data.notes, note))
    return InMemory(data, stream.schema, memory.size_text(bound), chosen, len(stream))


def embedded_tables(
    fitted: Fitted,
    stream: Stream,
    frames: Sequence[Frame] | None,
    reporter: Reporter,
    held_out: HeldOut | None = None,
    checked: Callable[[Dataset], Dataset] = lambda data: data,
) -> Iterator[pd.DataFrame]:
    """The rows of `embedding.csv` of a stream, in input order, a piece at a time.

    Arguments:
        fitted: the model.
        stream: the rows.
        frames: from which the factors of the map are drawn.
        reporter: told how far it is.
        held_out: validation and test rows, if the model was trained on the others; all rows are new by default.
        checked: returns the rows of a piece, or raises where they do not fit the model.
    """
    fitted, advance = fitted.double(), reporter.counter("embedding", len(stream))
    start = 0
    for block in range(len(stream.blocks.sizes)):
        for data in stream.datasets(block):
            rows = np.arange(start, start + len(data))
            split = "new" if held_out is None else held_out.names(rows)
            yield embedding_table(embed(fitted, checked(data)), data.ids, data.labels, split, frames=frames)
            start += len(data)
            advance(len(data))
