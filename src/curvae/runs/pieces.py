"""Streams in runs: a sample for figures and pictures, and the table of a map a piece at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from ..data import Dataset, Stream
from ..data.messages import count
from ..geometry.frames import Frame
from ..training import Fitted, Split
from ..training.evaluate import embed
from ..training.splits import HeldOut
from ..training.stream_problem import HELD_OUT
from .folders import embedding_table
from .progress import Reporter

__all__ = ["embedded_tables", "sampled"]


def sampled(stream: Stream, held_out: HeldOut, seed: int) -> tuple[Dataset, Split]:
    """The rows that are held out and at most 10,000 others, chosen at random; and which of these are which."""
    random = np.random.default_rng([seed, 11])
    others = random.choice(len(stream), min(HELD_OUT, len(stream)), replace=False, shuffle=False).astype(np.int64)
    rows = np.union1d(held_out.validation, others)
    data = stream.take(rows)
    held = np.isin(rows, held_out.validation)
    if len(rows) < len(stream):
        note = f"pictures and figures are of a sample: {len(rows):,} of {count(len(stream), 'row')}, chosen at random."
        data = replace(data, notes=(*data.notes, note))
    return data, Split(np.flatnonzero(~held), np.flatnonzero(held))


def embedded_tables(
    fitted: Fitted,
    stream: Stream,
    frames: Sequence[Frame] | None,
    reporter: Reporter,
    held_out: HeldOut | None = None,
) -> Iterator[pd.DataFrame]:
    """The rows of `embedding.csv` of a stream, in input order, a piece at a time.

    Arguments:
        fitted: the model.
        stream: the rows.
        frames: from which the factors of the map are drawn.
        reporter: told how far it is.
        held_out: the validation rows, if the model was trained on the others; all rows are new by default.
    """
    fitted, advance = fitted.double(), reporter.counter("embedding", len(stream))
    start = 0
    for block in range(len(stream.blocks.sizes)):
        for data in stream.datasets(block):
            rows = np.arange(start, start + len(data))
            split = "new" if held_out is None else held_out.names(rows)
            yield embedding_table(embed(fitted, data), data.ids, data.labels, split, frames=frames)
            start += len(data)
            advance(len(data))
