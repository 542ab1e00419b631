"""Categories as blocks of zeros and ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import memory
from .schema import Column

__all__ = ["one_hot"]


def one_hot(x: Any, columns: Sequence[Column], source: str) -> NDArray[np.float64]:
    """Every categorical column in place of its codes as a block of zeros and ones, or of NaN where it has none."""
    widths = [len(column.features) for column in columns]
    memory.require(8 * len(x) * sum(widths), f"{source} with one column a category ({len(x):,} × {sum(widths):,})")
    features = np.zeros((len(x), sum(widths)))
    rows = np.arange(len(x))
    for j, (column, start) in enumerate(zip(columns, np.cumsum([0, *widths[:-1]]), strict=True)):
        if column.categories is None:
            features[:, start] = x[:, j]
        else:
            known = np.isfinite(x[:, j])
            features[rows[known], start + x[known, j].astype(np.intp)] = 1.0
            features[~known, start : start + len(column.features)] = np.nan
    return features
