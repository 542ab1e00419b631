"""The kind of a column, as the data room and the mixed likelihood must both see it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["find_binary"]


def find_binary(x: Any) -> NDArray[np.bool_]:
    """Find the columns that hold 0 and 1, both of them and nothing else; NaN is ignored.

    Arguments:
        x: numbers, (rows, columns), dense or sparse.

    Returns:
        One boolean a column.

    Example:
        >>> find_binary(np.array([[0, 0, 1.0], [1, 2, 1], [np.nan, 1, 1]])).tolist()
        [True, False, False]
    """
    if not sparse.issparse(x):
        found = (np.fmin.reduce(x, 0, initial=1) == 0) & (np.fmax.reduce(x, 0, initial=0) == 1)
        values = x[:, found]
        found[found] = ((values == 0) | (values == 1) | np.isnan(values)).all(0)
        return found
    x = sparse.csr_array(x)
    stored = x.data[x.data != 0], x.indices[x.data != 0]
    ones, others = (np.bincount(stored[1][where], minlength=x.shape[1]) for where in (stored[0] == 1, stored[0] != 1))
    return (ones > 0) & (ones < x.shape[0]) & (others == 0)
