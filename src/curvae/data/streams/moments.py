"""How columns and covariates vary together, from sums over rows that come in pieces."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dataset import Arrays
from ..missing import has_missing

__all__ = ["Moments"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """Sums over rows of their features x and covariates c, of which the covariance of both follows.

    All are of differences from fixed origins, so that digits are not lost where the mean is large. A missing feature
    counts as the mean of its column: it adds nothing to the covariance.

    Arguments:
        rows: how many.
        told: Σ c, (covariates,).
        squares: Σ c·cᵀ, (covariates, covariates).
        present: rows in which each feature is there, (features,).
        sums: Σ x over these, (features,).
        products: Σ c·xᵀ over these, (covariates, features).
        beside: Σ c over these, (covariates, features).
        origin: of the features, (features,).

    Example:
        >>> batch = np.eye(2)[[0, 0, 1, 1]]
        >>> found = Moments.of(Arrays(np.array([[1.0], [3.0], [5.0], [7.0]]), context=batch), np.zeros(1))
        >>> found.centre.tolist(), found.covariance.tolist()
        ([0.5, 0.5], [[-4.0], [4.0]])
    """

    rows: Any
    told: Array
    squares: Array
    present: Array
    sums: Array
    products: Array
    beside: Array
    origin: Array

    @classmethod
    def of(cls, arrays: Arrays, origin: Array) -> Moments:
        """Of some rows, whose covariates are coded: those are near 0."""
        c: Any = arrays.context
        x = arrays.x - origin
        told = c.sum(0)
        if has_missing(x):
            there = np.isfinite(x)
            x = np.where(there, x, 0.0)
            present, beside = there.sum(0).astype(np.float64), c.T @ there.astype(np.float64)
        else:
            present = np.full(x.shape[1], float(len(x)))
            beside = np.broadcast_to(told[:, np.newaxis], (len(told), x.shape[1]))
        return cls(len(x), told, c.T @ c, present, x.sum(0), c.T @ x, beside, origin)

    def plus(self, more: Moments, sign: float = 1.0) -> Moments:
        """Of the rows of both; or with sign −1 of these without others that are among them."""
        names = [field.name for field in fields(self) if field.name != "origin"]
        parts = {name: getattr(self, name) + sign * getattr(more, name) for name in names}
        return Moments(**parts, origin=self.origin)

    @property
    def centre(self) -> Array:
        """Mean of the covariates, (covariates,)."""
        return self.told / self.rows

    @property
    def spread(self) -> Array:
        """Σ (c − mean)·(c − mean)ᵀ, (covariates, covariates)."""
        return self.squares - np.outer(self.told, self.told) / self.rows

    @property
    def covariance(self) -> Array:
        """Σ (c − mean)·(x − mean)ᵀ, (covariates, features)."""
        return self.products - self.beside * (self.sums / np.maximum(self.present, 1))
