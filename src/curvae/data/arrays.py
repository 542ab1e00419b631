"""The arrays that describe some rows of data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

if TYPE_CHECKING:
    from .dataset import Dataset

__all__ = ["Arrays", "Matrix"]

Matrix: TypeAlias = NDArray[np.float32] | NDArray[np.float64] | csr_array


@dataclass(frozen=True, eq=False)
class Arrays:
    """The inputs of a model for some rows, in original units.

    Arguments:
        x: the values, (rows, features), dense or sparse.
        context: covariates as numbers, (rows, covariates), or None.
        size: exposure of each row, such as the library size of a cell, (rows,), or None.
        blocks: number of one-hot features that each column of the source became: 0 for a column of numbers, 1 for a
            column of yes and no, otherwise its number of categories; () if all columns are numbers.
        shape: shape of one row: (height, width) for images, () for a plain row.
        missing: whether entries of x may be NaN, which the model then handles.

    Example:
        >>> Arrays(np.eye(3), size=np.arange(3.0)).take([2, 0]).size.tolist()
        [2.0, 0.0]
    """

    x: Any
    context: NDArray[np.float64] | None = None
    size: NDArray[np.float64] | None = None
    blocks: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    missing: bool = False

    @classmethod
    def of(cls, data: Arrays | Dataset | Matrix, blocks: tuple[int, ...] = ()) -> Arrays:
        """Make arrays from a matrix and its blocks, or take those of a data set."""
        if isinstance(data, Arrays):
            return data
        known = getattr(data, "arrays", None)
        return known if isinstance(known, Arrays) else cls(data, blocks=blocks)

    def __len__(self) -> int:
        return int(self.x.shape[0])

    @property
    def features(self) -> int:
        return int(self.x.shape[1])

    @property
    def per_row(self) -> dict[str, Any]:
        """The arrays with one entry per row that are not None, by name."""
        named = {"x": self.x, "context": self.context, "size": self.size}
        return {name: array for name, array in named.items() if array is not None}

    def take(self, index: Any) -> Arrays:
        """Select rows by an index, a mask or a slice."""
        return replace(self, **{name: array[index] for name, array in self.per_row.items()})
