"""One-hot coding of categories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import memory
from .schema import Column

__all__ = ["one_hot"]


def one_hot(x: Any, columns: Sequence[Column], source: str) -> NDArray[np.float64]:
    """Replace each column of category codes by one column per category.

    Arguments:
        x: numbers, (rows, columns); in a categorical column the position of the category, or NaN.
        columns: descriptions of the columns of x.
        source: name of the data in messages.

    Returns:
        Features, (rows, features); all categories of a missing value are NaN.
    """
    widths = [len(column.features) for column in columns]
    memory.require(8 * len(x) * sum(widths), f"{source} with one column a category ({len(x):,} × {sum(widths):,})")
    features = np.zeros((len(x), sum(widths)))
    for j, (column, start) in enumerate(zip(columns, np.cumsum([0, *widths[:-1]]), strict=True)):
        if column.categories is None:
            features[:, start] = x[:, j]
        else:
            known = np.isfinite(x[:, j])
            features[known.nonzero()[0], start + x[known, j].astype(np.intp)] = 1.0
            features[~known, start : start + len(column.features)] = np.nan
    return features
