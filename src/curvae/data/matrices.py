"""Matrices without column names: .npy, scipy sparse .npz, Matrix Market. Nothing is ever unpickled.

Matrix Market files (Boisvert, Pozo, Remington, 1996, The Matrix Market exchange formats) are read by `scipy.io.mmread`.
Lines are checked before, for it ignores whatever follows a number (1,5 and 1.5D3 would be 1 and 1.5), and crashes the
interpreter on NUL bytes and on a number that is cut off at the end of the file.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
from scipy.sparse import csr_array, issparse, load_npz

from ..errors import CurvaeError
from . import memory
from .dataset import as_matrix, feature_names
from .files import open_file
from .images import raw_images
from .messages import one_line
from .raw import RawData
from .schema import Column
from .text import NUMBER

__all__ = ["map_npy", "raw_matrix", "read_npy", "read_sparse", "read_sparse_matrix", "unreadable"]

_COLUMN = 500  # bytes for the name and the mean of a column


def raw_matrix(source: str, x: Any) -> RawData:
    """Take a matrix, (rows, features); its columns are named x1, x2, …"""
    if issparse(x):  # the shape of a sparse matrix may be huge although it stores little
        rows, columns = x.shape
        memory.require(8 * rows + _COLUMN * columns, f"{source} ({rows:,} × {columns:,})")
    matrix = as_matrix(x, source)
    return RawData(source, "matrix", matrix, tuple(Column(name) for name in feature_names(matrix.shape[1])))


def read_npy(path: Path) -> RawData:
    """Read a .npy array, (rows, features), or (rows, height, width) for images."""
    array = map_npy(path)
    memory.require(array.size * 8 + array.nbytes, f"{path.name} ({' × '.join(f'{n:,}' for n in array.shape)})")
    array = np.array(array)  # read it now, since the file may change
    return raw_matrix(path.name, array) if array.ndim == 2 else raw_images(path.name, array)


def map_npy(path: Path) -> Any:
    """A .npy array of two or three dimensions, mapped into memory."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a broken file can make the reader raise anything
        raise unreadable(path, "a .npy array of numbers", error) from error
    if array.ndim not in (2, 3):
        raise CurvaeError(
            f"{path.name} has shape {array.shape}; give rows × features, or rows × height × width for grey images"
        )
    return array


def read_sparse_matrix(path: Path) -> RawData:
    """Read a sparse matrix from a file, (rows, features)."""
    return raw_matrix(path.name, read_sparse(path))


def read_sparse(path: Path) -> Any:
    """Read a matrix from a file of `scipy.sparse.save_npz` or a Matrix Market file."""
    packed = path.suffix.lower() == ".npz"
    try:
        return _load_npz(path) if packed else read_matrix_market(path)
    except CurvaeError:
        raise
    except Exception as error:  # a broken file can make the reader raise anything
        dense = "a matrix of scipy.sparse.save_npz (for a dense one use numpy.save)"
        raise unreadable(path, dense if packed else "Matrix Market", error) from error


def _load_npz(path: Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        memory.require(2 * sum(member.file_size for member in archive.infolist()), path.name)
    matrix = load_npz(path)
    if matrix.format in ("csr", "csc", "bsr"):
        # scipy does not check indices, and an index out of range would read foreign memory.
        matrix.check_format(full_check=True)
    return matrix


def unreadable(path: Path, what: str, error: Exception) -> CurvaeError:
    """What to say of a file that cannot be read as what it should be."""
    return CurvaeError(f"{path.name} cannot be read as {what}: {one_line(error)}; save it again")


def read_matrix_market(path: Path) -> csr_array:
    """Read a Matrix Market file, dense or sparse, as a sparse matrix."""
    from scipy.io import mminfo, mmread  # takes long to import

    with open_file(path) as stream:
        header = _header(stream)
        rows, columns, entries, layout, field, symmetry = mminfo(BytesIO(header))
        if field == "complex" or symmetry == "hermitian":
            raise CurvaeError(f"{path.name} holds {field} {symmetry} numbers; give real ones")
        if symmetry != "general" and rows != columns:
            raise CurvaeError(
                f"{path.name} is {symmetry} and {rows:,} × {columns:,}, which is not square; correct its sizes"
            )
        if layout == "array" and symmetry != "general":  # one half and, unless it is zero, the diagonal
            entries = rows * (rows + (1 if symmetry == "symmetric" else -1)) // 2
        size = 24 * rows * columns if layout == "array" else 8 * rows + 72 * entries
        memory.require(size, f"{path.name} ({rows:,} × {columns:,}, {entries:,} entries)")
        matrix = csr_array(mmread(_Stream(header, stream, _line(layout, field))))
    if symmetry == "skew-symmetric" and matrix.diagonal().any():
        raise ValueError("the diagonal of a skew-symmetric matrix must be 0")
    return matrix


def _header(stream: IO[bytes]) -> bytes:
    """Take the banner, the comments and the line of sizes off a stream."""
    lines = []
    for line in stream:
        lines.append(line)
        if line.strip() and not line.startswith(b"%"):
            break
    return b"".join(lines)


def _line(layout: str, field: str) -> str:
    """The pattern of a line with one entry."""
    value = r"-?\d+" if "integer" in field else rf"{NUMBER}|-?[nN]a[nN]"
    fields = [*([r"\d+"] * 2 if layout == "coordinate" else []), *([] if field == "pattern" else [f"(?:{value})"])]
    return r"[ \t]+".join(fields)


class _Stream:
    """The stream that scipy reads: the header, then lines that match a pattern, each with its end."""

    def __init__(self, header: bytes, body: IO[bytes], line: str) -> None:
        self._pieces = chain([header], self._checked(body, line))

    def read(self, size: int) -> bytes:
        """The next bytes, more than `size` if lines are longer."""
        return next(self._pieces, b"")

    @staticmethod
    def _checked(body: IO[bytes], line: str) -> Iterator[bytes]:
        pattern = re.compile(rf"(?>[ \t]*(?:{line})?[ \t\r]*\n)*+".encode())
        while piece := b"".join(body.readlines(2**16)):
            piece = piece if piece.endswith(b"\n") else piece + b"\n"
            matched = pattern.match(piece)
            if matched is not None and matched.end() < len(piece):
                wrong = piece[matched.end() :].split(b"\n", 1)[0].decode(errors="replace")
                raise ValueError(f"{wrong[:40]!r} is not a line of this format")
            yield piece
