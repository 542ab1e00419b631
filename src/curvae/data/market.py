"""Matrix Market files.

Read here, since scipy's reader runs past the end of a file that was cut off and takes the interpreter with it.
Format: Boisvert, Pozo, Remington (1996), The Matrix Market exchange formats.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from ..errors import CurvaeError
from . import memory
from .files import open_file
from .reading import EXACT

__all__ = ["read_coordinates"]

_FIELDS = {"real": 3, "double": 3, "integer": 3, "pattern": 2}  # and the numbers in a line
_MIRRORED = {"symmetric": 1.0, "skew-symmetric": -1.0}


def read_coordinates(path: Path) -> csr_array:
    """The matrix of a Matrix Market file, sparse whatever its format; an error says what is wrong with the file."""
    with open_file(path, "rt", encoding="utf-8") as stream:
        banner = stream.readline(1024).lower().split()
        if len(banner) != 5 or banner[:2] != ["%%matrixmarket", "matrix"]:
            raise ValueError("its first line is no Matrix Market banner")
        layout, field, symmetry = banner[2:]
        if field not in _FIELDS or symmetry not in ("general", *_MIRRORED):
            raise CurvaeError(f"{path.name} holds {field} {symmetry} numbers; give real ones")
        sizes = _sizes(stream)
        if symmetry in _MIRRORED and len(sizes) > 1 and sizes[0] != sizes[1]:
            raise CurvaeError(
                f"{path.name} is {symmetry} and {sizes[0]:,} × {sizes[1]:,}, which is not square; correct its sizes"
            )
        if layout == "coordinate" and len(sizes) == 3:
            rows, columns, entries = sizes
            width = _FIELDS[field]
        elif layout == "array" and len(sizes) == 2:
            rows, columns, width = *sizes, 1
            # A half with the diagonal, a half without it, or all.
            halves = {"symmetric": rows * (rows + 1) // 2, "skew-symmetric": rows * (rows - 1) // 2}
            entries = halves.get(symmetry, rows * columns)
        else:
            raise ValueError(f"{layout} {symmetry} with sizes {sizes} is unknown")
        memory.require(8 * rows + 24 * entries * width, f"{path.name} ({rows:,} × {columns:,}, {entries:,} entries)")
        body = _body(stream, entries, width)
    if layout == "array" and symmetry == "general":
        return csr_array(body.reshape(columns, rows).T)
    if layout == "array":
        # Column by column below the diagonal, which is row by row above it.
        j, i = np.triu_indices(rows, int(symmetry == "skew-symmetric"))
        body = np.column_stack([i + 1, j + 1, body[:, 0]])
    return _assemble(body, (rows, columns), _MIRRORED.get(symmetry))


def _sizes(stream: IO[str]) -> tuple[int, ...]:
    for line in stream:
        if line.strip() and not line.startswith("%"):
            sizes = tuple(int(size) for size in line.split())
            if min(sizes) < 0:
                raise ValueError(f"sizes {sizes} are negative")
            return sizes
    raise ValueError("it has no sizes")


def _body(stream: IO[str], entries: int, width: int) -> NDArray[np.float64]:
    if not entries:
        return np.empty((0, width))
    # Numbers only: "nan" is one, an empty place is none.
    frame = pd.read_csv(
        stream, sep=r"\s+", header=None, dtype=np.float64, keep_default_na=False, na_values=["nan", "NaN"], **EXACT
    )
    if frame.shape != (entries, width):
        raise ValueError(
            f"it promises {entries} lines of {width} numbers and holds {frame.shape[0]} of {frame.shape[1]}"
        )
    return frame.to_numpy()


def _assemble(body: NDArray[np.float64], shape: tuple[int, int], mirror: float | None) -> csr_array:
    places = body[:, :2] - 1
    if not (bool((places >= 0).all()) and bool((places < shape).all()) and bool((places % 1 == 0).all())):
        raise ValueError(f"an entry lies outside of {shape[0]} × {shape[1]}")
    i, j = places.astype(np.int64).T
    values = body[:, 2] if body.shape[1] == 3 else np.ones(len(body))
    if mirror is not None:
        off = i != j
        values = np.concatenate([values, mirror * values[off]])
        i, j = np.concatenate([i, j[off]]), np.concatenate([j, i[off]])
    return csr_array(coo_array((values, (i, j)), shape=shape))
