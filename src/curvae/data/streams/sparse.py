"""CSR matrices in files of `scipy.sparse.save_npz`, of which the rows of a block are read where they lie in the file.

Such a file is a zip archive of the arrays of a CSR matrix. Where these were not compressed, each lies in the file as it
is, and any part of it can be read alone.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ...errors import CurvaeError
from ..dataset import as_matrix, feature_names
from ..matrices import unreadable
from ..raw import RawData
from ..schema import NumberColumns, Schema
from .blocks import Blocks, block_starts

__all__ = ["CsrBlocks", "is_csr"]

_PARTS = ("data", "indices", "indptr")
_LOCAL = 30  # bytes of a header of a member in the archive, before its name
_ROW = 400  # bytes that a row takes in memory besides its values


class _Part(NamedTuple):
    """An array in a file: where it begins, in bytes, and what it holds."""

    start: int
    dtype: np.dtype[Any]
    length: int


def is_csr(path: Path) -> bool:
    """Whether a file holds a CSR matrix."""
    try:
        with zipfile.ZipFile(path) as archive:
            return bytes(_array(archive, "format").item()) == b"csr"
    except Exception:  # whoever reads all of it says what is wrong
        return False


def _array(archive: zipfile.ZipFile, name: str) -> Any:
    with archive.open(f"{name}.npy") as member:
        return np.lib.format.read_array(member, allow_pickle=False)


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
            with zipfile.ZipFile(path) as archive, path.open("rb") as file:
                rows, columns = map(int, _array(archive, "shape"))
                self.shape = rows, columns
                members = [archive.getinfo(f"{name}.npy") for name in _PARTS]
                self.packed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
                self._bytes = sum(member.file_size for member in members)
                if not self.packed:
                    self._parts = dict(zip(_PARTS, (_placed(file, member) for member in members), strict=True))
        except CurvaeError:
            raise
        except Exception as error:  # a broken file can make the reader raise anything
            raise unreadable(path, "a matrix of scipy.sparse.save_npz", error) from error
        self.names = feature_names(self.shape[1])
        self._starts = block_starts(*self.shape, memory)
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
