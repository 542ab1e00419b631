"""Matrices and texts on disk, of which only the rows that are needed are read.

A row is read with plain file operations: pages of a mapped file would count as memory of the process.
"""

from __future__ import annotations

import math
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse, vstack

from ..errors import CurvaeError, check
from .files import one_line, reading

__all__ = [
    "CsrFile",
    "DenseFile",
    "DiskMatrix",
    "DiskTexts",
    "RowFile",
    "StoredTexts",
    "Texts",
    "count_empty",
    "csr_rows",
    "csr_size",
    "in_memory",
    "repeated_texts",
    "text_blocks",
    "text_codes",
]

_GAP = 1 << 16  # bytes between two rows up to which they are read together
_SHARE = 64  # blocks that would fit in memory, at least
_BYTES = 1 << 23  # of a block, in float64
_TEXTS = 1 << 16  # texts of a block


class RowFile(ABC):
    """A file whose rows can be read by their numbers.

    Arguments:
        path: the file.
        name: what messages call it; the name of the file by default.
        owner: what must not be deleted while the file is in use.

    Attributes:
        rows: how many rows it has.
        row_bytes: how long a row is on average, in float64.
        sparse: whether rows are read as a CSR matrix.
    """

    rows: int
    row_bytes: float
    sparse: bool = False

    def __init__(self, path: Path, name: str | None = None, owner: Any = None) -> None:
        self.path, self.name, self._owner = path, name or path.name, owner
        self._stat = self._current_stat()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_owner": None}  # it stays with this process

    def read(self, start: int, stop: int) -> Any:
        """Read the rows from `start` to `stop`; raise if the file is no longer the one that was opened."""
        self._require_unchanged()
        try:
            return self._read(start, stop)
        finally:
            self._require_unchanged()

    @abstractmethod
    def _read(self, start: int, stop: int) -> Any:
        """Read the rows from `start` to `stop` of the file as it is."""

    def _require_unchanged(self) -> None:
        check(
            self._current_stat() == self._stat,
            f"{self.name} was changed while it was being read; restore it and resume, or start again",
        )

    def _current_stat(self) -> tuple[int, int]:
        try:
            found = self.path.stat()
        except OSError as error:
            raise CurvaeError(f"{self.name} cannot be read: {error.strerror}; restore it and resume") from error
        return found.st_size, found.st_mtime_ns

    def _array(self, dtype: np.dtype[Any], count: int, offset: int) -> NDArray[Any]:
        """Read an array that lies in the file as it is."""
        try:
            values = np.fromfile(self.path, dtype, count, offset=offset)
        except OSError as error:
            raise CurvaeError(f"{self.name} cannot be read: {one_line(error)}; restore it and resume") from error
        check(len(values) == count, f"{self.name} ends too early; write it again")
        return values


class DenseFile(RowFile):
    """A dense matrix that lies in a file row by row, such as a `.npy` file.

    Arguments:
        path, name, owner: see `RowFile`.
        shape: (rows, columns).
        dtype: of the values.
        offset: bytes before the first row.
        single: whether rows are read as float32, not as float64.
    """

    def __init__(
        self,
        path: Path,
        shape: tuple[int, int],
        dtype: np.dtype[Any],
        offset: int = 0,
        *,
        single: bool = False,
        name: str | None = None,
        owner: Any = None,
    ) -> None:
        super().__init__(path, name, owner)
        self.rows, self.columns = shape
        self.row_bytes = 8.0 * self.columns
        self._dtype, self._offset = dtype, offset
        self._values = np.float32 if single else np.float64

    @classmethod
    def open_npy(cls, path: Path) -> DenseFile | None:
        """Open a `.npy` file with a matrix of numbers; return None if its rows do not lie one after the other."""
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except Exception:  # a broken file can make numpy raise anything; whoever reads all of it says what is wrong
            return None
        if array.ndim != 2 or array.dtype.kind not in "biuf" or not array.flags.c_contiguous:
            return None
        return cls(path, array.shape, array.dtype, array.offset, single=array.dtype in (np.float16, np.float32))

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        size = self.columns * self._dtype.itemsize
        values = self._array(self._dtype, (stop - start) * self.columns, self._offset + start * size)
        return values.reshape(stop - start, self.columns).astype(self._values, copy=False)


_PARTS, _SAVED = ("data", "indices", "indptr"), "a matrix of scipy.sparse.save_npz"


def csr_rows(
    read: Callable[[str, int, int], NDArray[Any]], start: int, stop: int, columns: int, stored: int
) -> csr_array:
    """Read rows of a CSR matrix, and raise `IndexError` where its arrays contradict one another.

    Arguments:
        read: reads a part of the array with this name.
        start, stop: the rows.
        columns, stored: how many columns and values the matrix has.
    """
    ends = read("indptr", start, stop + 1).astype(np.int64)
    if ends[0] < 0 or (np.diff(ends) < 0).any() or ends[-1] > stored:
        raise IndexError("its row pointers are out of order")
    data, indices = (read(name, int(ends[0]), int(ends[-1])) for name in ("data", "indices"))
    if len(indices) and not 0 <= indices.min() <= indices.max() < columns:
        raise IndexError("a column index is out of range")
    dtype = np.float32 if data.dtype in (np.float16, np.float32) else np.float64
    rows = csr_array((data.astype(dtype, copy=False), indices, ends - ends[0]), (stop - start, columns))
    rows.sum_duplicates()
    return rows


def csr_size(path: Path) -> int:
    """Return how many bytes the CSR matrix in a `.npz` file takes in memory; 0 if the file holds none."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            stored = arrays.zip.infolist() if bytes(arrays["format"].item()) == b"csr" else ()
            return 2 * sum(member.file_size for member in stored)
    except Exception:  # whoever reads all of it says what is wrong
        return 0


class CsrFile(RowFile):
    """A CSR matrix in a file of `scipy.sparse.save_npz(…, compressed=False)`.

    Such a file is a zip archive of the three arrays of the matrix, each of which lies in it as it is.

    Arguments:
        path, name, owner: see `RowFile`.
    """

    sparse = True

    def __init__(self, path: Path, name: str | None = None, owner: Any = None) -> None:
        super().__init__(path, name, owner)
        with (
            reading(self.name, _SAVED, Exception),  # a broken file can make the reader raise anything
            np.load(path, allow_pickle=False) as arrays,
            path.open("rb") as file,
        ):
            self.rows, self.columns = map(int, arrays["shape"])
            self._parts = {name: _locate(file, arrays.zip.getinfo(f"{name}.npy")) for name in _PARTS}
        self.values = self._parts["data"][2]
        self.row_bytes = 8.0 * max(1.0, self.values / max(1, self.rows))

    def _read(self, start: int, stop: int) -> csr_array:
        with reading(self.name, _SAVED, IndexError):
            return csr_rows(self._slice, start, stop, self.columns, self.values)

    def _slice(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Read a part of one of the arrays."""
        begin, dtype, _ = self._parts[name]
        return self._array(dtype, stop - start, begin + start * dtype.itemsize)


def _locate(file: Any, member: zipfile.ZipInfo) -> tuple[int, np.dtype[Any], int]:
    """Find where an array of an archive lies that is not compressed: its first byte, its type and its length."""
    file.seek(member.header_offset)
    header = file.read(30)  # then come the name and extra fields of the member
    name, extra = (int.from_bytes(header[place : place + 2], "little") for place in (26, 28))
    file.seek(name + extra, 1)
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    (count,), _, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("it holds objects")
    return file.tell(), dtype, count


class StoredTexts(RowFile):
    """Texts, one a row: a file with their UTF-8 bytes, and one with the place where each ends.

    Arguments:
        path: the file with the bytes; the other has its name and the ending `.ends`.
        name, owner: see `RowFile`.
    """

    def __init__(self, path: Path, name: str | None = None, owner: Any = None) -> None:
        super().__init__(path, name, owner)
        self._ends = path.with_suffix(".ends")
        self.rows = self._ends.stat().st_size // 8
        self.row_bytes = path.stat().st_size / max(1, self.rows)

    def _read(self, start: int, stop: int) -> NDArray[np.str_]:
        first = max(0, start - 1)
        ends = np.fromfile(self._ends, np.int64, stop - first, offset=8 * first)
        ends = ends if start else np.concatenate([[0], ends])
        text = self._array(np.dtype(np.uint8), int(ends[-1] - ends[0]), int(ends[0])).tobytes()
        return np.array([text[a:b].decode() for a, b in pairwise((ends - ends[0]).tolist())], np.str_)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Some rows of a file. Indexing chooses among them and reads nothing.

    Arguments:
        file: where the rows lie.
        index: numbers of the rows in the file.
        steps: functions that are applied to rows when they were read, such as a choice of columns.
    """

    file: Any
    index: range | NDArray[np.int64]
    steps: tuple[Callable[[Any], Any], ...] = field(default=(), kw_only=True)

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, chosen: Any) -> Self:
        return replace(self, index=_chosen(self.index, chosen))

    def load(self) -> Any:
        """Read the rows."""
        # Rows as they lie may be much larger than after the steps.
        count = max(1, math.ceil(len(self) * self.file.row_bytes / _BYTES)) if self.steps else 1
        if isinstance(self.index, range):
            ends = np.linspace(self.index.start, self.index.stop, count + 1).astype(np.int64).tolist()
            return _join([self._apply_steps(self.file.read(a, b)) for a, b in pairwise(ends)])
        if not len(self.index):
            return self._apply_steps(self.file.read(0, 0))
        order = np.argsort(self.index, kind="stable")
        values = _join([self._apply_steps(self._gather(some)) for some in np.array_split(self.index[order], count)])
        return values if bool((order[1:] > order[:-1]).all()) else values[np.argsort(order)]

    def _apply_steps(self, x: Any) -> Any:
        for step in self.steps:
            x = step(x)
        return x

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        x = self.load()
        return np.asarray(x.toarray() if issparse(x) else x, dtype)

    def _gather(self, rows: NDArray[np.int64]) -> Any:
        """Read rows in their order in the file."""
        block = max(1, int(_BYTES / self.file.row_bytes))
        apart = (np.diff(rows) * self.file.row_bytes > _GAP) | (np.diff(rows // block) > 0)
        return _join([self._read_run(run) for run in np.split(rows, np.flatnonzero(apart) + 1)])

    def _read_run(self, rows: NDArray[np.int64]) -> Any:
        """Read rows that lie close together."""
        first, last = int(rows[0]), int(rows[-1])
        values = self.file.read(first, last + 1)
        return values if bool((np.diff(rows) == 1).all()) else values[rows - first]


def _join(parts: list[Any]) -> Any:
    """Put rows under each other."""
    if len(parts) == 1:
        return parts[0]
    return vstack(parts, "csr") if issparse(parts[0]) else np.concatenate(parts)


def _chosen(index: range | NDArray[np.int64], chosen: Any) -> range | NDArray[np.int64]:
    """Choose among numbers of rows by a slice, a mask or an index."""
    if isinstance(chosen, slice):
        part = index[chosen]
        return part if not isinstance(part, range) or part.step == 1 else np.asarray(part)
    places = np.asarray(chosen)
    places = np.flatnonzero(places) if places.dtype == bool else places.astype(np.int64, copy=False)
    if not isinstance(index, range):
        return index[places]
    places = np.where(places < 0, places + len(index), places)
    if places.size and not 0 <= places.min() <= places.max() < len(index):
        raise IndexError(f"there are {len(index):,} rows")
    return places + index.start


@dataclass(frozen=True, eq=False)
class DiskMatrix(_Rows):
    """A matrix on disk, or some of its rows. Indexing chooses rows; `load` reads them.

    Arguments:
        file: where the rows lie.
        index: numbers of the rows in the file.
        width: columns; None for a vector, of which each row is one number.
        memory: bytes that rows of it may take in memory at a time.
        steps: functions that are applied to rows when they were read, such as a choice of columns.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/x.npy", np.arange(12.0).reshape(6, 2))
        ...     x = DiskMatrix.of(DenseFile.open_npy(Path(f"{folder}/x.npy")), 2, memory=10**6)
        ...     x.shape, x[[4, 1]].load().tolist()
        ((6, 2), [[8.0, 9.0], [2.0, 3.0]])
    """

    width: int | None
    memory: int
    known: dict[str, Any] = field(default_factory=dict, init=False)
    """figures of these rows that took a pass over them, by name"""

    @classmethod
    def of(cls, file: RowFile, width: int, memory: int) -> DiskMatrix:
        """Make a matrix of all rows of a file."""
        return cls(file, range(file.rows), width, memory)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self),) if self.width is None else (len(self), self.width)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self[:0].load().dtype

    @property
    def sparse(self) -> bool:
        """Whether rows are read as a CSR matrix."""
        return bool(self.file.sparse)

    def __getitem__(self, chosen: Any) -> DiskMatrix:
        if not isinstance(chosen, tuple):
            return super().__getitem__(chosen)
        rows, columns = chosen
        width = np.empty((0, self.width or 0))[:, columns].shape[1:]
        return self[rows].apply(itemgetter((slice(None), columns)), *(width or [None]))

    def apply(self, function: Callable[[Any], Any], width: int | None) -> DiskMatrix:
        """Apply a function to rows when they are read; `width` is the number of columns that it returns."""
        return replace(self, steps=(*self.steps, function), width=width)

    def toarray(self) -> NDArray[Any]:
        """Read the rows as a dense array."""
        return np.asarray(self)

    @property
    def row_length(self) -> float:
        """How many numbers of a row are read on average."""
        stored = self.file.row_bytes / 8
        return stored if self.sparse else max(stored, self.width or 1)

    @property
    def block_rows(self) -> int:
        """Rows of a block, of which many fit in memory at a time, also as dense rows."""
        return max(1, int(min(_BYTES, self.memory // _SHARE) / (8 * max(self.row_length, self.width or 1))))


@dataclass(frozen=True, eq=False)
class DiskTexts(_Rows):
    """Texts on disk, one a row, or the numbers of rows as texts. Indexing chooses rows; `load` reads them.

    Arguments:
        file: where the texts lie; None for the numbers of the rows.
        index: numbers of the rows in the file.
        steps: functions that are applied to texts when they were read.

    Example:
        >>> DiskTexts.numbers(5)[[3, 1]].load().tolist()
        ['3', '1']
    """

    @classmethod
    def of(cls, file: StoredTexts, strip: bool = False) -> DiskTexts:
        """Make texts of all rows of a file, without the blanks around each if `strip`."""
        return cls(file, range(file.rows), steps=(np.char.strip,) if strip else ())

    @classmethod
    def numbers(cls, rows: int) -> DiskTexts:
        """Make the names of rows that have none: their numbers."""
        return cls(None, range(rows))

    @property
    def shape(self) -> tuple[int]:
        return (len(self),)

    def load(self) -> Any:
        return np.asarray(self.index).astype(np.str_) if self.file is None else super().load()


def in_memory(values: Any) -> Any:
    """Return an array whose rows are in memory; one on disk is read."""
    return values.load() if isinstance(values, _Rows) else values


Texts: TypeAlias = Any
"""texts, one a row: an array of numpy, or `DiskTexts`"""


def text_blocks(texts: Texts) -> Iterator[NDArray[np.str_]]:
    """Yield texts, in memory or on disk, some at a time."""
    for start in range(0, len(texts), _TEXTS):
        yield in_memory(texts[start : start + _TEXTS])


def count_empty(texts: Texts) -> int:
    """Count the texts that are empty."""
    return sum(int((block == "").sum()) for block in text_blocks(texts))


def text_codes(texts: Any) -> NDArray[np.int64]:
    """Return the position of each text among the different ones in ascending order."""
    different = np.unique(np.concatenate([np.unique(block) for block in text_blocks(texts)]))
    return np.concatenate([np.searchsorted(different, block) for block in text_blocks(texts)])


def repeated_texts(texts: Texts) -> NDArray[np.str_]:
    """Find the texts that occur more than once."""
    if isinstance(texts, DiskTexts):
        if texts.file is None:
            return np.empty(0, np.str_)
        # Only texts with equal hashes can be equal.
        codes = np.concatenate([pd.util.hash_array(block.astype(object)) for block in text_blocks(texts)])
        ordered = np.sort(codes)
        texts = texts[np.isin(codes, ordered[1:][ordered[1:] == ordered[:-1]])].load()
    unique, counts = np.unique(texts, return_counts=True)
    return unique[counts > 1]
