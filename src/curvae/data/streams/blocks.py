"""Files that are read a block of rows at a time: what they have in common, and arrays on disk."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...errors import CurvaeError
from ..dataset import as_matrix, feature_names
from ..matrices import map_npy
from ..raw import RawData
from ..schema import Column, Kind, Schema

__all__ = ["Blocks", "Counter", "NpyBlocks", "block_rows", "block_starts"]

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
        names: of the columns that are features.
        sizes: rows of each block, (blocks,).
    """

    kind: Kind
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
        return hashlib.sha256(json.dumps([files, list(self.names), self._told]).encode()).hexdigest()

    @property
    def _told(self) -> Any:
        """What else decides how the columns are read."""
        return None

    @contextmanager
    def unchanged(self, file: Path) -> Iterator[None]:
        """Raise if a file is not the one that was opened, before what is done with it, after it, or where it fails."""
        self._require_unchanged(file)
        try:
            yield
        except Exception:
            self._require_unchanged(file)
            raise
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


def block_starts(rows: int, columns: int, memory: int) -> NDArray[np.int64]:
    """The first row of every block of a matrix, (blocks,).

    Arguments:
        rows, columns: of the matrix.
        memory: bytes that rows may take at a time, of which a block takes little.
    """
    return np.arange(0, rows, block_rows(columns, memory))


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
        self._columns = tuple(Column(name) for name in self.names)
        self._starts = block_starts(self.shape[0], self.shape[1], memory)
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
        yield RawData(self.path.name, self.kind, x, self._columns)
