"""Matrices without column names: .npy, scipy sparse .npz, Matrix Market. Nothing is ever unpickled.

Of Matrix Market files (Boisvert, Pozo, Remington, 1996, The Matrix Market exchange formats) scipy parses the header and
pandas the numbers: `scipy.io.mmread` crashes the interpreter on a number that is cut off at the end of the file or
contains a NUL byte, and accepts a line with too many numbers.
"""

from __future__ import annotations

import zipfile
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.io import mminfo
from scipy.sparse import coo_array, csr_array, issparse, load_npz

from ..errors import CurvaeError
from . import memory
from .dataset import as_matrix, feature_names
from .files import open_file
from .images import raw_images
from .messages import one_line
from .raw import RawData
from .schema import Column
from .text import EXACT

__all__ = ["raw_matrix", "read_npy", "read_sparse", "read_sparse_matrix"]

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
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a broken file can make the reader raise anything
        raise _unreadable(path, "a .npy array of numbers", error) from error
    if array.ndim not in (2, 3):
        raise CurvaeError(
            f"{path.name} has shape {array.shape}; give rows × features, or rows × height × width for grey images"
        )
    memory.require(array.size * 8 + array.nbytes, f"{path.name} ({' × '.join(f'{n:,}' for n in array.shape)})")
    array = np.array(array)  # read it now, since the file may change
    return raw_matrix(path.name, array) if array.ndim == 2 else raw_images(path.name, array)


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
        raise _unreadable(path, dense if packed else "Matrix Market", error) from error


def _load_npz(path: Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        memory.require(2 * sum(member.file_size for member in archive.infolist()), path.name)
    matrix = load_npz(path)
    if matrix.format in ("csr", "csc", "bsr"):
        # scipy does not check indices, and an index out of range would read foreign memory.
        matrix.check_format(full_check=True)
    return matrix


def _unreadable(path: Path, what: str, error: Exception) -> CurvaeError:
    return CurvaeError(f"{path.name} cannot be read as {what}: {one_line(error)}; save it again")


_MIRRORED = {"symmetric": 1.0, "skew-symmetric": -1.0}  # sign of the entries above the diagonal, which are not stored


def read_matrix_market(path: Path) -> csr_array:
    """Read a Matrix Market file, dense or sparse, as a sparse matrix."""
    with open_file(path, "rt", encoding="utf-8") as stream:
        rows, columns, entries, layout, field, symmetry = mminfo(_header(stream))
        if field == "complex" or symmetry == "hermitian":
            raise CurvaeError(f"{path.name} holds {field} {symmetry} numbers; give real ones")
        if symmetry in _MIRRORED and rows != columns:
            raise CurvaeError(
                f"{path.name} is {symmetry} and {rows:,} × {columns:,}, which is not square; correct its sizes"
            )
        dense, width = layout == "array", {"array": 1, "coordinate": 2 if field == "pattern" else 3}[layout]
        if dense and symmetry in _MIRRORED:  # the half below the diagonal, which is zero if skew-symmetric
            entries = rows * (rows + (1 if symmetry == "symmetric" else -1)) // 2
        memory.require(8 * rows + 24 * entries * width, f"{path.name} ({rows:,} × {columns:,}, {entries:,} entries)")
        body = _read_numbers(stream, entries, width)
    if dense and symmetry == "general":
        return csr_array(body.reshape(columns, rows).T)
    if dense:
        # Column by column below the diagonal is row by row above it.
        j, i = np.triu_indices(rows, int(symmetry == "skew-symmetric"))
        body = np.column_stack([i + 1, j + 1, body[:, 0]])
    return _assemble(body, (rows, columns), _MIRRORED.get(symmetry))


def _header(stream: IO[str]) -> BytesIO:
    """Take the banner, the comments and the line of sizes off a stream."""
    header = BytesIO()
    for line in stream:
        header.write(line.encode())
        if line.strip() and not line.startswith("%"):
            break
    header.seek(0)
    return header


def _read_numbers(stream: IO[str], entries: int, width: int) -> NDArray[np.float64]:
    """Read the lines below the header, (entries, width)."""
    if not entries:
        return np.empty((0, width))
    # An empty field is an error, "nan" is a number.
    frame = pd.read_csv(
        stream, sep=r"\s+", header=None, dtype=np.float64, keep_default_na=False, na_values=["nan", "NaN"], **EXACT
    )
    if frame.shape != (entries, width):
        raise ValueError(
            f"the header announces {entries} lines of {width} numbers, the file has {frame.shape[0]} of "
            f"{frame.shape[1]}"
        )
    return frame.to_numpy()


def _assemble(body: NDArray[np.float64], shape: tuple[int, int], mirror: float | None) -> csr_array:
    """Build the matrix from lines of row, column and value; a pattern has no values, and its entries are 1."""
    places = body[:, :2] - 1
    if not bool(((places >= 0) & (places < shape) & (places % 1 == 0)).all()):
        raise ValueError(f"an entry lies outside of {shape[0]} × {shape[1]}")
    i, j = places.astype(np.int64).T
    values = body[:, 2] if body.shape[1] == 3 else np.ones(len(body))
    if mirror is not None:
        off = i != j
        values = np.concatenate([values, mirror * values[off]])
        i, j = np.concatenate([i, j[off]]), np.concatenate([j, i[off]])
    return csr_array(coo_array((values, (i, j)), shape=shape))
