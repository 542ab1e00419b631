"""Rows on disk as a data set that is never in memory as a whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse, vstack

from ...errors import CurvaeError
from .. import memory as machine
from ..column_values import texts_of
from ..dataset import Arrays, Dataset
from ..matrices import map_npy
from ..missing import Missing
from ..raw import RawData
from ..schema import Schema
from ..tables import TABLES, Roles
from .blocks import Blocks, NpyBlocks
from .described import described
from .moments import Moments
from .parquet import ParquetBlocks
from .sparse import CsrBlocks, is_csr
from .summary import Summary
from .survey import remembered, surveyed
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
        summary: figures of the features; None where a model was trained on others and needs none of these.
        notes, warnings: as of `Dataset`.
        mean_exposure: of all rows, where there are exposures.
        groups: rows of each group, where there are groups.
        moments: how features and covariates vary together, where there are covariates.

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
    mean_exposure: float | None = None
    groups: Mapping[str, int] | None = None
    moments: Moments | None = None

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
        schema, x = self.schema, self.known.examples
        start = 0
        for column in schema.columns if schema.categorical else ():
            if column.categories is not None:
                x[:, start : start + len(column.features)] = 0.0
                x[:, start] = 1.0
            start += len(column.features)
        return Arrays(
            x,
            np.zeros((len(x), len(schema.context_names))) if schema.covariates else None,
            None if self.mean_exposure is None else np.full(len(x), self.mean_exposure),
            blocks=schema.blocks,
            shape=schema.shape if len(schema.shape) > 1 else (),
            missing=self.missing == "model",
        )

    @property
    def fingerprint(self) -> str:
        """SHA-256 of values and names."""
        return self.fingerprint_of(self.known.digest)

    def fingerprint_of(self, digest: str) -> str:
        """What `fingerprint` is if values have this digest."""
        return hashlib.sha256(json.dumps([digest, self.schema.to_json()]).encode()).hexdigest()

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
            named = raw.ids is not None
            raw.ids = raw.ids if named else np.arange(start, start + rows).astype(np.str_)
            start += rows
            found = raw.finish(self.schema, self.missing)[0]
            id_name = found.id_name if named else None
            yield replace(found, notes=self.notes, warnings=self.warnings, id_name=id_name)

    def _read(self, block: int, named: bool) -> Iterator[RawData]:
        rows = 0
        for raw in self.blocks.read(block, self.schema, named):
            rows += raw.x.shape[0]
            raw.choices = ("model", "mean")
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
        return _joined(found)

    def rows_of(self, groups: Collection[str]) -> NDArray[np.int64]:
        """The rows of some groups, by their numbers in ascending order."""
        blocks, name = self.blocks, self.schema.group
        assert isinstance(blocks, ParquetBlocks) and name is not None
        wanted, found = list(groups), [np.empty(0, np.int64)]
        for block, start in enumerate(self.starts[:-1].tolist()):
            for _, frame, _ in blocks.frames(block, [name]):
                own = np.isin(texts_of(frame[name], strip=True), wanted)
                found.append(start + np.flatnonzero(own))
                start += len(frame)
        return np.concatenate(found)


def _joined(parts: Sequence[Dataset]) -> Dataset:
    """Rows of the same columns, one part after the other."""
    each: dict[str, Any] = {}
    for name in ("ids", "labels", "groups", "exposure", "context"):
        values = [getattr(part, name) for part in parts]
        each[name] = None if values[0] is None else np.concatenate(values)
    rows: Any = [part.x for part in parts]
    x: Any = vstack(rows, "csr") if issparse(rows[0]) else np.concatenate(rows)
    return replace(parts[0], x=x, **each)


def find_blocks(
    source: str | Path, memory: int, roles: Roles | None = None, schema: Schema | None = None
) -> Blocks | TextTable | None:
    """The blocks of a file or folder that can be read in pieces; None for any other. Call `opened` before their use.

    Arguments:
        source: a .npy array of rows × features, a CSR matrix in a .npz file, a text table, a .parquet file, or a
            folder of these.
        memory: bytes that rows may take at a time.
        roles: columns that the caller gives a role.
        schema: of the data that a model was trained on; then the roles are those of these.
    """
    path, columns = Path(source), None
    roles = roles or Roles()
    if schema is not None and schema.kind == "table":
        roles, columns = Roles.of(schema), tuple(schema.column_names)
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
    group: str | None = None,
    categorical: Sequence[str] = (),
    exposure: str | None = None,
    covariates: Sequence[str] = (),
    missing: Missing = "error",
    advance: Callable[[int], None] = lambda rows: None,
) -> Stream:
    """Open data that are read in pieces: a .npy array, a CSR matrix in a .npz file that is not compressed, a text
    table, which is converted to Parquet in the user's cache, a Parquet file, or a folder of Parquet files.

    All rows are read once, for means, standard deviations and extremes of the columns and for their categories; and
    with covariates once more, for what these explain. This is remembered, in the user's cache, until a file changes.

    Arguments:
        source: the file or folder, or its blocks.
        schema: schema of the data that a model was trained on; then nothing is read yet.
        memory: bytes that rows may take at a time, as a number or a text such as "2GB"; by default a quarter of the
            memory of the machine.
        label, id, group, categorical, exposure, covariates: as of `curvae.data.load`; those of blocks are their own.
        missing: as of `curvae.data.load`, but for "drop".
        advance: told how many more rows were read.
    """
    if missing == "drop":
        raise CurvaeError('missing="drop" needs all rows in memory; use missing="mean" or missing="model"')
    bound = machine.bound(memory)
    roles = Roles(label, id, group, tuple(categorical), exposure, tuple(covariates))
    blocks = source if isinstance(source, Blocks) else _blocks(source, bound, schema, roles)
    if schema is not None:
        _require_columns(blocks, schema)
        return Stream(blocks, schema, bound, missing)
    found = surveyed(blocks, advance, missing)
    known = described(blocks, found, missing, bound)
    group, exposure = known.schema.group, known.schema.exposure
    stream = Stream(
        blocks,
        known.schema,
        bound,
        missing,
        known.summary,
        known.notes,
        known.warnings,
        None if exposure is None else float(found.numbers.mean[-1]),
        None if group is None else found.tallies[group].texts,
    )
    return replace(stream, moments=_moments(stream, advance)) if known.schema.covariates else stream


def _moments(stream: Stream, advance: Callable[[int], None]) -> Moments:
    """How features and covariates vary together, from another pass over all rows or as it is remembered."""

    def made() -> Moments:
        origin, found = stream.known.mean, None
        for block in range(len(stream.blocks.sizes)):
            for arrays in stream.arrays(block):
                own = Moments.of(arrays, origin)
                found = own if found is None else found.plus(own)
                advance(len(arrays))
        assert found is not None
        return found

    parts = [stream.blocks.mark, stream.fingerprint, stream.missing]
    mark = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    return remembered("moments", mark, lambda values: Moments(**values), made, vars)


def _blocks(source: str | Path, memory: int, schema: Schema | None, roles: Roles) -> Blocks:
    if (found := find_blocks(source, memory, roles, schema)) is None:
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
