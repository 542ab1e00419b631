"""Matrix Market files (Boisvert, Pozo, Remington, 1996, The Matrix Market exchange formats).

scipy parses the header and pandas the numbers: `scipy.io.mmread` crashes the interpreter on a number that is cut off
at the end of the file or contains a NUL byte, and accepts a line with too many numbers.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import IO

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.io import mminfo
from scipy.sparse import coo_array, csr_array

from ..errors import CurvaeError
from . import memory
from .files import open_file
from .text import EXACT

__all__ = ["read_matrix_market"]

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
