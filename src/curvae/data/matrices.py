"""Matrices without column names: .npy, scipy sparse .npz, Matrix Market. Nothing is ever unpickled."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import issparse, load_npz

from ..errors import CurvaeError
from . import memory
from .dataset import as_matrix, feature_names
from .images import raw_images
from .matrix_market import read_matrix_market
from .messages import one_line
from .raw import RawData
from .schema import Column

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
