"""Scaling of columns to mean 0 and variance 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from .missing import column_means, extremes, has_missing, missing_counts

__all__ = ["Scaling"]

_SMALL = 1e-140  # squares of smaller numbers lose digits, and those of numbers beyond 1/_SMALL are infinite


@dataclass(frozen=True)
class Scaling:
    """x ↦ (x − shift)/scale, column by column."""

    shift: NDArray[np.float64]
    scale: NDArray[np.float64]
    constant: NDArray[np.bool_] | None = None
    """columns of which only one value is known, to which `invert` leads back whatever a model says; None: there are
    none"""

    @classmethod
    def identity(cls, features: int) -> Scaling:
        return cls(np.zeros(features), np.ones(features))

    @classmethod
    def standard(cls, x: Any) -> Scaling:
        """To mean 0 and variance 1 of the values that are there; a constant column becomes 0."""
        if (unit := _units(x)) is not None:
            found = cls.standard(sparse.csr_array(x.multiply(1 / unit)) if sparse.issparse(x) else x / unit)
            scale = np.where(False if found.constant is None else found.constant, 1.0, found.scale * unit)
            return cls(found.shift * unit, scale, found.constant)
        if sparse.issparse(x):
            mean, deviation = _sparse_moments(sparse.csr_array(x))
        elif has_missing(x):
            mean, deviation = _present_moments(x)
        else:
            mean = x.mean(0, dtype=np.float64)
            deviation = x.std(0, dtype=np.float64)

        def values() -> NDArray[Any]:
            first = x[[0]].toarray()[0] if sparse.issparse(x) else x[0]
            return np.nan_to_num(extremes(x)[0]) if np.isnan(first).any() else first

        return cls.from_moments(mean, deviation, values)

    @classmethod
    def from_moments(
        cls, mean: NDArray[np.float64], deviation: NDArray[np.float64], values: Callable[[], NDArray[Any]]
    ) -> Scaling:
        """To mean 0 and variance 1; of a constant column, one of the `values` becomes 0: its mean may be off by a
        rounding."""
        constant = deviation <= 1e-10 * np.maximum(np.abs(mean), 1e-290)
        if not constant.any():
            return cls(mean, deviation)
        return cls(np.where(constant, values(), mean), np.where(constant, 1.0, deviation), constant)

    def only(self, features: NDArray[np.bool_]) -> Scaling:
        """This scaling of some features; the others are left as they are."""
        if features.all():
            return self
        constant = None if self.constant is None else self.constant & features
        return Scaling(np.where(features, self.shift, 0.0), np.where(features, self.scale, 1.0), constant)

    @property
    def log_jacobian(self) -> float:
        """What to add to a log-density of scaled rows to have that of the original ones."""
        return float(-np.log(self.scale).sum())

    def log_jacobians(self, x: Any) -> NDArray[np.float64]:
        """The same for each of these rows, of which only the values that are there count."""
        logs = np.log(self.scale)
        if sparse.issparse(x):
            lacking = sparse.csr_array((np.isnan(x.data).astype(np.float64), x.indices, x.indptr), x.shape)
        else:
            lacking = np.isnan(x)
        return lacking @ logs - logs.sum()

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """What `from_tensors` makes a scaling of, by name."""
        return {f"scaling.{name}": values for name, values in vars(self).items() if values is not None}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Scaling:
        """The scaling whose arrays are among these tensors."""
        names = [f"scaling.{field.name}" for field in fields(cls)]
        return cls(*(tensors[name].numpy() for name in names if name in tensors))

    def apply(self, x: NDArray[Any]) -> NDArray[np.float64]:
        return (x - self.shift) / self.scale

    def invert(self, x: NDArray[Any]) -> NDArray[np.float64]:
        original = x * self.scale + self.shift
        return original if self.constant is None else np.where(self.constant, self.shift, original)


def _units(x: Any) -> NDArray[np.float64] | None:
    """Powers of two that bring columns to values whose squares are numbers; None where all are."""
    largest = np.abs(np.asarray(extremes(x), np.float64)).max(0)
    far = (largest > 0) & ~((largest > _SMALL) & (largest < 1 / _SMALL))
    return np.where(far, np.ldexp(1.0, np.clip(np.frexp(largest)[1], -1000, 1000)), 1.0) if far.any() else None


def _sparse_moments(x: sparse.csr_array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of the columns, in two passes: E[x²] − E[x]² would cancel."""
    if not x.has_canonical_format:
        x = x.copy()
        x.sum_duplicates()
    rows, features = x.shape
    mean = column_means(x)
    zeros = rows - np.bincount(x.indices, minlength=features)
    squares = (x.data - mean[x.indices]) ** 2
    square = np.bincount(x.indices, np.where(np.isnan(squares), 0.0, squares), features) + zeros * mean**2
    return mean, np.sqrt(square / np.maximum(rows - missing_counts(x), 1))


def _present_moments(x: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of the values of each column that are there; 0 where there are none."""
    mean = column_means(x)
    square = np.sum((x - mean) ** 2, axis=0, where=np.isfinite(x))
    return mean, np.sqrt(square / np.maximum(len(x) - missing_counts(x), 1))
