"""How columns depend on covariates, by least squares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.messages import Messages
from ..data.missing import column_means, resolve
from ..data.streams.moments import Moments

__all__ = ["Effects"]

_DISTINCT_SQUARES = 1e-12  # the same of sums of squares, of which half the digits are lost
_DISTINCT = 1e-9  # of the largest singular value; all categories of a column add up to 1, so one is always less
_SMALL = 1e-6  # of the largest effect, below which one is none


@dataclass(frozen=True)
class Effects:
    """x ≈ mean + (context − centre)·slopes.

    Example:
        >>> batch = np.eye(2)[[0, 0, 1, 1]]
        >>> found = Effects.of(np.array([[1.0], [3.0], [5.0], [7.0]]), batch)
        >>> found.slopes.round(6).tolist(), found.removed(np.array([[5.0]]), batch[2:3]).round(6).tolist()
        ([[-2.0], [2.0]], [[3.0]])
    """

    centre: NDArray[np.float64]
    """mean of the context, (covariates,)"""
    slopes: NDArray[np.float64]
    """(covariates, features)"""

    @classmethod
    def of(cls, x: Any, context: NDArray[np.float64]) -> Effects:
        """Those of a matrix, dense or sparse; missing values count as the mean of their column."""
        centre = context.mean(0)
        x, _ = resolve(x, [""] * x.shape[1], column_means(x), "mean", Messages())
        return cls(centre, np.asarray(np.linalg.pinv(context - centre, rcond=_DISTINCT) @ x))

    @classmethod
    def of_moments(cls, moments: Moments) -> Effects:
        """Those of rows of which only sums are known, by the normal equations; see `of`."""
        return cls(moments.centre, np.linalg.pinv(moments.spread, _DISTINCT_SQUARES, True) @ moments.covariance)

    @property
    def directions(self) -> NDArray[np.float64]:
        """Orthonormal directions in which covariates move rows, (directions, features)."""
        _, sizes, directions = np.linalg.svd(self.slopes, full_matrices=False)
        return directions[sizes > _SMALL * sizes.max()]

    def scaled(self, scale: NDArray[np.float64]) -> Effects:
        """Those of columns that are divided by a scale."""
        return Effects(self.centre, self.slopes / scale)

    def variance(self, context: NDArray[np.float64]) -> NDArray[np.float64]:
        """How much of the variance of each column they make with such contexts."""
        return ((context - self.centre) @ self.slopes).var(0)

    def variance_of_moments(self, moments: Moments) -> NDArray[np.float64]:
        """The same of rows of which only sums are known."""
        return ((moments.spread @ self.slopes) * self.slopes).sum(0) / moments.rows

    def removed(self, x: NDArray[Any], context: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rows as they would be with the mean context."""
        return x - (context - self.centre) @ self.slopes
