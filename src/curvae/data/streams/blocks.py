"""Files that are read a block of rows at a time: what they have in common, and arrays on disk."""

from __future__ import annotations

import hashlib
import json
import os
import re
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ...errors import CurvaeError, require
from ..columns import RawData
from ..dataset import Kind, NumberColumns, Schema, as_matrix, feature_names
from ..files import Messages, is_packed, one_line, places, quoted
from ..matrices import map_npy, unreadable
from ..tables import Roles, check_roles, opened_parquet, sorted_columns
from ..text_tables import MISSING, UNNAMED, Head, has_decimal_commas, read_head, scan

__all__ = [
    "Blocks",
    "Counter",
    "CsrBlocks",
    "NpyBlocks",
    "ParquetBlocks",
    "TextTable",
    "block_rows",
    "is_csr",
]

_BYTES = 1 << 23  # of a block of an array, in float64
_SHARE = 64  # blocks that would fit in memory, at least
_ROW = 400  # bytes that a row takes in memory besides its values: its id, and its line in the table of the map


Counter: TypeAlias = Callable[[str, int], Callable[[int], None]]
"""takes the name of a task and its rows, and returns what is told how many more of them are done"""


class Blocks(ABC):
    """A file, or a folder of files, in blocks of rows that are read one at a time.

    Which rows are in which block depends on the files alone, so a block can be named by its number.

    Arguments:
        path: the file or folder.
        files: that are read, in order.

    Attributes:
        kind: of the data, "matrix" or "table".
        roles: columns of a table with a role.
        names: of the columns that are features.
        sizes: rows of each block, (blocks,).
    """

    kind: Kind
    roles = Roles()
    names: Sequence[str]
    sizes: NDArray[np.int64]

    def __init__(self, path: Path, files: Sequence[Path]) -> None:
        self.path, self.files = path, tuple(files)
        self._stats = [self._stat(file) for file in self.files]

    def __len__(self) -> int:
        """Rows in all."""
        return int(self.sizes.sum())

    @property
    @abstractmethod
    def footprint(self) -> int:
        """Bytes that all rows would take in memory, about."""

    @property
    def whole(self) -> str:
        """Why the rows can only be read as a whole, and what to do about it; empty for all but a few files."""
        return ""

    def opened(self, counter: Counter) -> Blocks:
        """These blocks; what has to be converted first tells the counter how far it is."""
        return self

    @abstractmethod
    def read(self, block: int, schema: Schema | None = None, named: bool = False) -> Iterator[RawData]:
        """The rows of a block, in one piece or in several.

        Arguments:
            block: its number.
            schema: what the columns of a table become; a matrix needs none.
            named: whether ids, labels and groups are wanted.
        """

    @property
    def mark(self) -> str:
        """SHA-256 of the places, sizes and times of the files: another one when a file is changed or moved."""
        files = [[str(file.resolve()), *stat] for file, stat in zip(self.files, self._stats, strict=True)]
        return hashlib.sha256(json.dumps([files, list(self.names), astuple(self.roles)]).encode()).hexdigest()

    @contextmanager
    def unchanged(self, file: Path) -> Iterator[None]:
        """Raise if a file is not the one that was opened, before what is done with it, after it, or where it fails."""
        self._require_unchanged(file)
        try:
            yield
        finally:
            self._require_unchanged(file)

    def _require_unchanged(self, file: Path) -> None:
        if self._stat(file) != self._stats[self.files.index(file)]:
            raise CurvaeError(f"{file.name} was changed while it was being read; restore it and resume, or start again")

    @staticmethod
    def _stat(file: Path) -> tuple[int, int]:
        try:
            found = file.stat()
        except OSError as error:
            raise CurvaeError(f"{file.name} cannot be read: {error.strerror}; restore it and resume") from error
        return found.st_size, found.st_mtime_ns


def block_rows(columns: int, memory: int) -> int:
    """Rows of a block of so many columns; `memory` are the bytes that rows may take at a time."""
    return max(1, min(_BYTES, memory // _SHARE) // (8 * columns))


class NpyBlocks(Blocks):
    """A .npy array of two dimensions, of which a block at a time is mapped into memory and copied.

    Arguments:
        path: the file.
        memory: bytes that rows may take at a time, of which a block takes little.
    """

    kind = "matrix"

    def __init__(self, path: Path, memory: int) -> None:
        super().__init__(path, [path])
        array = map_npy(path)
        if array.ndim != 2:
            raise CurvaeError(f"{path.name} has shape {array.shape}; only rows × features can be read in pieces")
        self.shape, self.dtype = array.shape, array.dtype
        self.names = feature_names(self.shape[1])
        self._starts = np.arange(0, self.shape[0], block_rows(self.shape[1], memory))
        self.sizes = np.diff([*self._starts, self.shape[0]])

    @property
    def footprint(self) -> int:
        rows, columns = self.shape
        return int(rows * (columns * (8 + self.dtype.itemsize) + _ROW))

    def read(self, block: int, schema: Schema | None = None, named: bool = False) -> Iterator[RawData]:
        start = int(self._starts[block])
        with self.unchanged(self.path):
            array = map_npy(self.path)  # a map of its own: what was read of it is released with it
            x = as_matrix(np.array(array[start : start + int(self.sizes[block])]), self.path.name)
            del array
        yield RawData(self.path.name, self.kind, x, NumberColumns(self.names))


# Parquet files and folders of them: a row group is a block, of which only the columns needed are decoded.

_CELLS = 1 << 18  # decoded at once
_BUFFER = 1 << 16  # bytes of a column that are read at once
_VALUE, _TEXT, _TABLE_ROW = 16, 100, 400  # bytes in memory of a value, of a text, and of a row besides these
_INDEX = re.compile(r"__index_level_\d+__")  # of pandas, where it has no name
_EMPTY = "null"  # the type of a column without a single value


class ParquetBlocks(Blocks):
    """A Parquet file, or all those of a folder in the order of their names.

    Arguments:
        path: the file or folder.
        roles: columns with a role; all others are features.
        columns: names of the features, if a model is to be given these, and then ids, labels, groups and covariates may
            be absent; by default all that have no other role.

    Attributes:
        kinds: what the columns hold: "numbers", or the name of another type.
    """

    kind = "table"

    def __init__(self, path: Path, roles: Roles, columns: tuple[str, ...] | None = None) -> None:
        files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        if not files:
            raise CurvaeError(f"{path} contains no .parquet files; give another folder")
        super().__init__(path, files)
        self.kinds: dict[str, str] = {}
        self._places: list[tuple[Path, int, int]] = []
        self._footer: tuple[Path | None, Any] = None, None  # of the file that was read last: a long one takes a while
        sizes = []
        for file in files:
            with opened_parquet(file) as opened:
                own = {field.name: _kind(field.type) for field in opened.schema_arrow}
                if not self.kinds:
                    roles = self.roles = _roles(file, roles, list(own), columns is not None)
                    self.names = self._features(file, own, columns)
                    self.kinds = {name: own[name] for name in (*self.names, *roles.asked)}
                self._require_alike(file, own)
                counts = [opened.metadata.row_group(i).num_rows for i in range(opened.metadata.num_row_groups)]
            firsts = np.cumsum([0, *counts]).tolist()
            self._places += [(file, i, firsts[i]) for i, count in enumerate(counts) if count]
            sizes += [count for count in counts if count]
        self.sizes = np.array(sizes, np.int64)

    def _features(self, file: Path, present: dict[str, str], columns: tuple[str, ...] | None) -> tuple[str, ...]:
        if columns is None:
            roles = self.roles
            taken = {roles.label, roles.id, roles.group, roles.exposure, *roles.covariates}
            return tuple(name for name in present if name not in taken and not _INDEX.fullmatch(name))
        if absent := [name for name in columns if name not in present]:
            raise CurvaeError(f"{file.name} has no columns {quoted(absent)}, which the model was trained on; add them")
        return columns

    def _require_alike(self, file: Path, own: dict[str, str]) -> None:
        """Raise unless a file has the columns of the first, with values of the same kind."""
        first = self.files[0]
        for name, kind in self.kinds.items():
            if name not in own:
                raise CurvaeError(
                    f"{file.name} has no column {name!r}, which {first.name} has; add it, or remove the file"
                )
            if kind == _EMPTY:
                self.kinds[name] = own[name]
            elif own[name] not in (kind, _EMPTY):
                raise CurvaeError(
                    f"column {name!r} holds {own[name]} in {file.name} and {kind} in {first.name}; write both alike"
                )

    @property
    def footprint(self) -> int:
        texts = len(self.roles.categorical)
        return len(self) * (_VALUE * (len(self.names) + len(self.roles.covariates)) + _TEXT * texts + _TABLE_ROW)

    def columns(self, named: bool = True) -> list[str]:
        """Columns that are features or have a role; without those that only name rows, if these are not wanted."""
        roles = self.roles
        names = (roles.label, roles.id, roles.group) if named else ()
        wanted = (*self.names, *roles.covariates, roles.exposure, *names)
        return [name for name in dict.fromkeys(wanted) if name is not None]

    def frames(self, block: int, columns: Sequence[str], width: int = 0) -> Iterator[tuple[Path, pd.DataFrame, int]]:
        """Some columns of a block, a piece at a time: with its file, and how many rows of this come before.

        The pieces are so small that as many rows of `width` values take little memory.
        """
        file, group, first = self._places[block]
        known, footer = self._footer
        metadata = footer if known == file else None
        with self.unchanged(file), opened_parquet(file, buffer_size=_BUFFER, metadata=metadata) as opened:
            self._footer = file, opened.metadata
            rows = max(1, _CELLS // max(len(columns), width))
            for batch in opened.iter_batches(rows, row_groups=[group], columns=list(columns), use_threads=False):
                yield file, batch.to_pandas(ignore_metadata=True), first
                first += len(batch)

    def read(self, block: int, schema: Schema | None = None, named: bool = False) -> Iterator[RawData]:
        assert schema is not None
        width = len(schema.names) + len(schema.context_names)
        for file, frame, first in self.frames(block, self.columns(named), width):
            yield sorted_columns(file, frame, Roles(), schema, Messages(), first)


def _roles(file: Path, roles: Roles, present: Sequence[str], known: bool) -> Roles:
    """The roles whose columns are there; raises for others, unless they are `known` from other data."""
    if known:
        held = {role: name if (name := getattr(roles, role)) in present else None for role in ("label", "id", "group")}
        categorical = tuple(name for name in roles.categorical if name in present)
        covariates = roles.covariates if set(roles.covariates) <= set(present) else ()
        if roles.exposure is not None and roles.exposure not in present:
            raise CurvaeError(
                f"{file.name} has no column {roles.exposure!r}, the exposure that the model was trained with; add it"
            )
        return replace(roles, **held, categorical=categorical, covariates=covariates)
    check_roles(file, roles, present)
    return roles


def _kind(type_: Any) -> str:
    """What values of a type of Arrow are: numbers, or their type as it is written."""
    from pyarrow import types

    if types.is_dictionary(type_) and _kind(type_.value_type) == "string":
        return "string"
    if types.is_string(type_) or types.is_large_string(type_):
        return "string"
    numbers = types.is_integer, types.is_floating, types.is_boolean, types.is_decimal
    return "numbers" if any(test(type_) for test in numbers) else str(type_)


# CSR matrices in files of `scipy.sparse.save_npz`, of which the rows of a block are read where they lie in the file.
#
# Such a file is a zip archive of the arrays of a CSR matrix. Where these were not compressed, each lies in the file as
# it is, and any part of it can be read alone.

_PARTS = ("data", "indices", "indptr")
_LOCAL = 30  # bytes of a header of a member in the archive, before its name


class _Part(NamedTuple):
    """An array in a file: where it begins, in bytes, and what it holds."""

    start: int
    dtype: np.dtype[Any]
    length: int


def is_csr(path: Path) -> bool:
    """Whether a file holds a CSR matrix."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return bytes(arrays["format"].item()) == b"csr"
    except Exception:  # whoever reads all of it says what is wrong
        return False


class CsrBlocks(Blocks):
    """A CSR matrix in a file of `scipy.sparse.save_npz(…, compressed=False)`.

    Arguments:
        path: the file.
        memory: bytes that rows may take at a time, of which a block takes little when it is spread out.

    Attributes:
        packed: whether the file is compressed: then it can only be read as a whole.
    """

    kind = "matrix"

    def __init__(self, path: Path, memory: int) -> None:
        super().__init__(path, [path])
        try:
            with np.load(path, allow_pickle=False) as arrays, path.open("rb") as file:
                rows, columns = map(int, arrays["shape"])
                self.shape = rows, columns
                members = [arrays.zip.getinfo(f"{name}.npy") for name in _PARTS]
                self.packed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
                self._bytes = sum(member.file_size for member in members)
                if not self.packed:
                    self._parts = dict(zip(_PARTS, (_placed(file, member) for member in members), strict=True))
        except CurvaeError:
            raise
        except Exception as error:  # a broken file can make the reader raise anything
            raise unreadable(path, "a matrix of scipy.sparse.save_npz", error) from error
        self.names = feature_names(self.shape[1])
        self._starts = np.arange(0, rows, block_rows(columns, memory))
        self.sizes = np.diff([*self._starts, self.shape[0]])

    @property
    def footprint(self) -> int:
        return int(2 * self._bytes + self.shape[0] * _ROW)

    @property
    def whole(self) -> str:
        if not self.packed:
            return ""
        return f"{self.path.name} is compressed; write it with scipy.sparse.save_npz(…, compressed=False)"

    def read(self, block: int, schema: Schema | None = None, named: bool = False) -> Iterator[RawData]:
        if self.whole:
            raise CurvaeError(f"{self.whole}, or give it more memory: it can only be read as a whole")
        with self.unchanged(self.path):
            x = self._rows(block)
        yield RawData(self.path.name, self.kind, x, NumberColumns(self.names))

    def _rows(self, block: int) -> Any:
        start, rows = int(self._starts[block]), int(self.sizes[block])
        bounds = self._slice("indptr", start, rows + 1).astype(np.int64)
        if bounds[0] < 0 or (np.diff(bounds) < 0).any() or bounds[-1] > self._parts["data"].length:
            raise self._broken("its row pointers are out of order")
        count = int(bounds[-1] - bounds[0])
        values, columns = (self._slice(name, int(bounds[0]), count) for name in ("data", "indices"))
        if count and not 0 <= columns.min() <= columns.max() < self.shape[1]:
            raise self._broken("a column index is out of range")
        return as_matrix(csr_array((values, columns, bounds - bounds[0]), (rows, self.shape[1])), self.path.name)

    def _slice(self, name: str, start: int, count: int) -> NDArray[Any]:
        """A part of one of the arrays."""
        part = self._parts[name]
        found = np.fromfile(self.path, part.dtype, count, offset=part.start + start * part.dtype.itemsize)
        if len(found) != count:
            raise self._broken(f"the file ends within {name}")
        return found

    def _broken(self, why: str) -> CurvaeError:
        return unreadable(self.path, "a matrix of scipy.sparse.save_npz", ValueError(why))


def _placed(file: Any, member: zipfile.ZipInfo) -> _Part:
    """Where an array of an archive lies that is not compressed."""
    file.seek(member.header_offset)
    header = file.read(_LOCAL)
    name, extra = (int.from_bytes(header[place : place + 2], "little") for place in (26, 28))
    file.seek(member.header_offset + _LOCAL + name + extra)
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    (count,), _, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("it holds objects")
    return _Part(file.tell(), dtype, count)


# Text tables that are larger than memory: converted to Parquet once, in the user's cache, and read from there.

_FOOTPRINT = 4  # bytes in memory for each of the file
_PACKED = 4  # bytes of text for each of a gzipped file
_READ = 1 << 24  # bytes of text that are parsed at once; the first of them decide on the types of columns


class TextTable:
    """A text table that is not read yet.

    Arguments:
        path: the file.
        memory: bytes that rows may take at a time.
        roles: the columns with ids and labels.
        columns: names of the features, if a model is to be given these.
    """

    whole = ""

    def __init__(self, path: Path, memory: int, roles: Roles, columns: tuple[str, ...] | None) -> None:
        self.path, self._memory, self._roles, self._columns = path, memory, roles, columns

    @property
    def footprint(self) -> int:
        """Bytes that all rows would take in memory, about."""
        return _FOOTPRINT * self.path.stat().st_size * (_PACKED if is_packed(self.path) else 1)

    def opened(self, counter: Counter) -> ParquetBlocks:
        """The blocks of the table, which is converted where the cache does not hold it."""
        stat, texts = self.path.stat(), self._roles.texts
        parts = [str(self.path.resolve()), stat.st_size, stat.st_mtime_ns, texts, self._memory]
        mark = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
        folder = places("tables")[-1]
        target = folder / f"{self.path.name.split('.')[0]}-{mark}.parquet"
        if not target.exists():
            part = target.with_suffix(f".{os.getpid()}.part")
            try:
                folder.mkdir(parents=True, exist_ok=True)
                self._convert(part, counter)
                part.replace(target)
            except OSError as error:
                why = error.strerror or one_line(error)
                raise CurvaeError(
                    f"{self.path.name} cannot be converted to Parquet in {folder}: {why}; make room there, or set "
                    "XDG_CACHE_HOME to another folder"
                ) from error
            finally:
                part.unlink(missing_ok=True)
        found = ParquetBlocks(target, self._roles, self._columns)
        found.path = self.path
        return found

    def _convert(self, target: Path, counter: Counter) -> None:
        needed = f"{self.path.name} needs pyarrow to be read in pieces"
        arrow = require("pyarrow", needed, "csv", "parquet", otherwise="raise memory=…")
        text = arrow.csv
        file, known = scan(self.path), {*self._roles.asked, *(self._columns or ())}
        head = read_head(file, known, Messages())
        if nameless := [place for place, name in enumerate(head.names, 1) if name.startswith(UNNAMED)]:
            raise CurvaeError(f"column {nameless[0]} of {self.path.name} has no name; give it one in the header")
        if len(head.separator) > 1:
            raise CurvaeError(f"{self.path.name} has columns apart by blanks; separate them by commas or tabs")
        how: dict[str, Any] = {
            "read_options": text.ReadOptions(
                block_size=_READ, column_names=head.names, skip_rows=int(head.headed), encoding=file.encoding
            ),
            "parse_options": text.ParseOptions(delimiter=head.separator, newlines_in_values=True),
        }
        fixed = {name: arrow.string() for name in head.names if name in self._roles.texts}
        convert = {"null_values": sorted(MISSING), "decimal_point": "," if _has_commas(head) else "."}
        rows, advance = block_rows(len(head.names), self._memory), counter("converting", file.lines)
        try:
            options = text.ConvertOptions(column_types=fixed, **convert)
            with text.open_csv(self.path, convert_options=options, **how) as one:
                types = {field.name: _type(arrow, field.type) for field in one.schema}
            options = text.ConvertOptions(column_types=types, **convert)
            with (
                text.open_csv(self.path, convert_options=options, **how) as reader,
                arrow.parquet.ParquetWriter(target, arrow.schema(list(types.items()))) as writer,
            ):
                for batch in reader:
                    writer.write_batch(batch, row_group_size=rows)
                    advance(len(batch))
        except arrow.ArrowInvalid as error:
            raise CurvaeError(
                f"{self.path.name} cannot be converted to Parquet: {one_line(error)}; correct it: a column holds "
                f"values of one kind, missing ones are empty or {quoted(['NA'])}"
            ) from error


def _type(arrow: Any, found: Any) -> Any:
    """The type of a column of which the first rows are of a type: whole numbers may be followed by others."""
    numbers = arrow.types.is_integer(found) or arrow.types.is_null(found)
    if numbers or arrow.types.is_floating(found):
        return arrow.float64()
    return found if arrow.types.is_boolean(found) else arrow.string()


def _has_commas(head: Head) -> bool:
    rows = head.records[int(head.headed) :]
    columns = zip(*(row for row in rows if len(row) == len(head.names)), strict=True)
    return any(has_decimal_commas(pd.Series(cells, dtype=str), head.separator) for cells in columns)
