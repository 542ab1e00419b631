"""Rows on disk as a data set that is never in memory as a whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse, vstack

from ...errors import CurvaeError
from .. import memory as machine
from ..dataset import Arrays, Dataset
from ..files import places
from ..matrices import map_npy
from ..messages import Messages, count, listing
from ..missing import Missing, MissingValuesError
from ..raw import RawData
from ..schema import Column, Schema
from ..tables import TABLES, Roles
from .blocks import Blocks, NpyBlocks
from .parquet import ParquetBlocks
from .sparse import CsrBlocks, is_csr
from .summary import Summary, summarise
from .text import TextTable

__all__ = ["Stream", "find_blocks", "open_stream"]

_TEXTS = tuple(ending for ending, reader in TABLES.items() if reader is None)


@dataclass(frozen=True, eq=False)
class Stream:
    """Rows that are read a block at a time, in original units.

    Arguments:
        blocks: the files.
        schema: what their columns become.
        memory: bytes that rows may take at a time.
        missing: what to do about missing values.
        summary: figures of the columns; None where a model was trained on others and needs none of these.
        notes, warnings: as of `Dataset`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/x.npy", np.arange(12.0).reshape(6, 2))
        ...     stream = open_stream(f"{folder}/x.npy", memory="1GB")
        ...     len(stream), stream.summary.mean.tolist(), stream.take(np.array([1, 4])).ids.tolist()
        (6, [5.0, 6.0], ['1', '4'])
    """

    blocks: Blocks
    schema: Schema
    memory: int
    missing: Missing = "error"
    summary: Summary | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.blocks)

    @property
    def features(self) -> int:
        return len(self.schema.names)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Number of the first row of each block, and of all rows, (blocks + 1,)."""
        return np.concatenate([[0], np.cumsum(self.blocks.sizes)])

    @property
    def known(self) -> Summary:
        """Figures of the columns; raises where there are none."""
        if self.summary is None:
            raise CurvaeError("the stream was opened with the schema of a model; open it without one to train on it")
        return self.summary

    @property
    def examples(self) -> Arrays:
        """Four rows that have what all rows have, from which a likelihood can be chosen; see `Summary`."""
        blocks, shape = self.schema.blocks, self.schema.shape if len(self.schema.shape) > 1 else ()
        return Arrays(self.known.examples, blocks=blocks, shape=shape, missing=self.missing == "model")

    @property
    def fingerprint(self) -> str:
        """SHA-256 of values and names."""
        parts = [self.known.digest, self.schema.to_json()]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    @property
    def identity(self) -> str:
        """Of the rows and of their order in a training, on which the memory decides."""
        return f"{self.fingerprint} {self.memory}"

    def arrays(self, block: int) -> Iterator[Arrays]:
        """The inputs of a model for the rows of a block, in one piece or in several."""
        for raw in self._read(block, False):
            yield raw.arrays(self.schema, self.missing)

    def datasets(self, block: int) -> Iterator[Dataset]:
        """The rows of a block with their ids and labels, in one piece or in several."""
        start = int(self.starts[block])
        for raw in self._read(block, True):
            rows = raw.x.shape[0]
            raw.ids = np.arange(start, start + rows).astype(np.str_) if raw.ids is None else raw.ids
            start += rows
            yield replace(raw.finish(self.schema, self.missing)[0], notes=self.notes, warnings=self.warnings)

    def _read(self, block: int, named: bool) -> Iterator[RawData]:
        rows = 0
        for raw in self.blocks.read(block, named):
            rows += raw.x.shape[0]
            yield raw
        if rows != self.blocks.sizes[block]:
            raise CurvaeError(f"{self.blocks.path.name} has lost rows since it was opened; restore it and resume")

    def held(self, rows: NDArray[np.int64]) -> Arrays:
        """Rows that are held out, by their numbers in ascending order."""
        return self.take(rows).arrays

    def take(self, rows: NDArray[np.int64]) -> Dataset:
        """Some rows, by their numbers in ascending order."""
        found: list[Dataset] = []
        for block, (start, stop) in enumerate(zip(self.starts, self.starts[1:], strict=False)):
            own = rows[np.searchsorted(rows, start) : np.searchsorted(rows, stop)]
            if not len(own):
                continue
            for piece in self.datasets(block):
                end = start + len(piece)
                inside = own[np.searchsorted(own, start) : np.searchsorted(own, end)]
                if len(inside):
                    found.append(piece.take(inside - start))
                start = end
        first = found[0]
        labels = (
            None if first.labels is None else np.concatenate([part.labels for part in found if part.labels is not None])
        )
        return replace(
            first,
            x=vstack([part.x for part in found], "csr")
            if issparse(first.x)
            else np.concatenate([part.x for part in found]),
            ids=np.concatenate([part.ids for part in found]),
            labels=labels,
        )


def find_blocks(
    source: str | Path, memory: int, roles: Roles | None = None, columns: tuple[str, ...] | None = None
) -> Blocks | TextTable | None:
    """The blocks of a file or folder that can be read in pieces; None for any other. Call `opened` before their use.

    Arguments:
        source: a .npy array of rows × features, a CSR matrix in a .npz file, a text table, a .parquet file, or a
            folder of these.
        memory: bytes that rows may take at a time.
        roles: columns that the caller gives a role.
        columns: names of the columns that a model was trained on.
    """
    path, roles = Path(source), roles or Roles()
    try:
        folder, ending = path.is_dir(), path.suffix.lower() if path.is_file() else ""
    except OSError:  # whoever reads all of it says why it cannot be read
        return None
    if ending == ".parquet" or (folder and any(path.glob("*.parquet"))):
        return ParquetBlocks(path, roles, columns)
    if path.name.lower().endswith(_TEXTS) and path.is_file():
        return TextTable(path, memory, roles, columns)
    if roles.asked:  # only tables have names of columns
        return None
    if ending == ".npy" and map_npy(path).ndim == 2:
        return NpyBlocks(path, memory)
    return CsrBlocks(path, memory) if ending == ".npz" and is_csr(path) else None


def open_stream(
    source: str | Path | Blocks,
    *,
    schema: Schema | None = None,
    memory: str | int | None = None,
    label: str | None = None,
    id: str | None = None,  # noqa: A002 - the word that users know, as in --id
    missing: Missing = "error",
    advance: Callable[[int], None] = lambda rows: None,
) -> Stream:
    """Open data that are read in pieces: a .npy array, a CSR matrix in a .npz file that is not compressed, a text
    table, which is converted to Parquet in the user's cache, a Parquet file, or a folder of Parquet files.

    All rows are read once, for means, standard deviations and extremes of the columns. These are remembered, in the
    user's cache, until a file changes.

    Arguments:
        source: the file or folder, or its blocks.
        schema: schema of the data that a model was trained on; then nothing is read yet.
        memory: bytes that rows may take at a time, as a number or a text such as "2GB"; by default a quarter of the
            memory of the machine.
        label, id: as of `curvae.data.load`.
        missing: as of `curvae.data.load`, but for "drop".
        advance: told how many more rows were read.
    """
    if missing == "drop":
        raise CurvaeError('missing="drop" needs all rows in memory; use missing="mean" or missing="model"')
    bound = machine.bound(memory)
    blocks = source if isinstance(source, Blocks) else _blocks(source, bound, schema, Roles(label, id))
    if schema is not None:
        _require_columns(blocks, schema)
        return Stream(blocks, schema, bound, missing)
    summary = _remembered(blocks, advance)
    messages = Messages()
    raw = RawData(
        blocks.path.name,
        blocks.kind,
        summary.examples,
        tuple(Column(name) for name in blocks.names),
        roles={} if blocks.kind == "matrix" else {"label": label, "id": id},
        messages=messages,
    )
    schema = raw.fit(missing, summary.mean)
    gaps = summary.rows - summary.present
    if gaps.any():
        _resolve_gaps(blocks.names, gaps, missing, messages)
        if missing == "mean":  # which is neither 0 nor 1
            columns = (replace(c, binary=c.binary and not n) for c, n in zip(schema.columns, gaps, strict=True))
            schema = replace(schema, columns=tuple(columns))
    raw.judge(summary.examples, summary.rows)
    messages.note(f"{count(summary.rows, 'row')} are read in pieces, in {machine.size_text(bound)} of memory.")
    return Stream(blocks, schema, bound, missing, summary, tuple(messages.notes), tuple(messages.warnings))


def _resolve_gaps(names: Sequence[str], gaps: NDArray[np.float64], missing: Missing, messages: Messages) -> None:
    """Refuse missing values, or say what becomes of them; `gaps` counts those of each column."""
    where = listing(f"{name!r} ({int(n):,})" for name, n in zip(names, gaps, strict=True) if n)
    if missing == "error":
        raise MissingValuesError(f"missing or infinite values, counted by column: {where}")
    did = "left to the model" if missing == "model" else "replaced by the column's mean"
    messages.note(f"missing values were {did}: {where}.")


def _blocks(source: str | Path, memory: int, schema: Schema | None, roles: Roles) -> Blocks:
    columns = None
    if schema is not None and schema.kind == "table":
        columns = tuple(schema.column_names)
        roles = Roles(schema.label, schema.id)
    if (found := find_blocks(source, memory, roles, columns)) is None:
        raise CurvaeError(
            f"{source} cannot be read in pieces; give a table, a .npy array of rows × features or a CSR matrix (.npz)"
        )
    if found.whole:
        raise CurvaeError(f"{found.whole}, or load it as a whole")
    return found.opened(lambda task, rows: lambda more: None)


def _require_columns(blocks: Blocks, schema: Schema) -> None:
    """Raise unless rows have the columns of a schema."""
    if blocks.kind != schema.kind or len(blocks.names) != len(schema.columns):
        raise CurvaeError(
            f"{blocks.path.name} is a {blocks.kind} of {len(blocks.names)} columns and the model was trained on a "
            f"{schema.kind} of {len(schema.columns)}; give the same"
        )


def _remembered(blocks: Blocks, advance: Callable[[int], None]) -> Summary:
    """The summary from the user's cache, or made and kept there."""
    path = places("summaries")[-1] / f"{blocks.mark}.npz"
    with suppress(OSError, ValueError, KeyError, TypeError):
        with np.load(path, allow_pickle=False) as stored:
            values: dict[str, Any] = {name: stored[name] for name in stored.files}
        return Summary(**values | {"rows": int(values["rows"]), "digest": str(values["digest"])})
    found = summarise(blocks, advance)
    with suppress(OSError):  # where nothing can be kept, it is read again
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part.npz")
        np.savez(part, **vars(found))
        part.replace(path)
    return found
