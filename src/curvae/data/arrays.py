"""What is known about rows, as arrays."""

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
    """Everything a model may be told about some rows, in original units.

    Arguments:
        x: the values, (rows, features), dense or sparse.
        context: covariates as numbers, (rows, covariates), or None.
        size: exposure of each row, such as the library size of a cell, or None.
        blocks: for each column of the source the number of its categories, which are one-hot features: 0 for a column
            of numbers, 1 for one of yes and no; () where all columns are numbers of one kind.
        shape: of one row; (height, width) for images, () for a plain row.
        missing: whether entries of x may be NaN, which are then left to the model.

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
        """A matrix alone, with its blocks; or what a data set, or these arrays, already say."""
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
        """The arrays that are there, by name."""
        named = {"x": self.x, "context": self.context, "size": self.size}
        return {name: array for name, array in named.items() if array is not None}

    def take(self, index: Any) -> Arrays:
        """The rows given by an index, a mask or a slice."""
        return replace(self, **{name: array[index] for name, array in self.per_row.items()})
