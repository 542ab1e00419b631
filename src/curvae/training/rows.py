"""Rows of data as the networks see them: scaled, float32, densified a batch at a time when sparse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from ..data import Arrays, Dataset
from ..data.missing import column_means, extremes, has_missing, missing_counts
from ..models import Batch, Layout
from ..models.likelihoods.base import Matrix

__all__ = ["Data", "Matrix", "Rows", "Scaling", "assemble", "layout_of"]

Data = Arrays | Dataset | Matrix

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
    def standard(cls, x: Matrix) -> Scaling:
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

    def log_jacobians(self, x: Matrix) -> NDArray[np.float64]:
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


def _units(x: Matrix) -> NDArray[np.float64] | None:
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


_BLOCK = 4096


def layout_of(arrays: Arrays) -> Layout:
    """What a model must know about the data to be built for them."""
    covariates = 0 if arrays.context is None else arrays.context.shape[1]
    return Layout(arrays.features, arrays.blocks, arrays.shape, covariates, arrays.missing, arrays.size is not None)


def assemble(parts: dict[str, Any], missing: bool) -> Batch:
    """A batch of the given parts; where entries may be missing they are NaN, and `observed` tells which."""
    if missing:
        observed = ~parts["x"].isnan()
        parts = {**parts, "x": parts["x"].where(observed, 0.0), "observed": observed.to(parts["x"].dtype)}
    return Batch(**parts)


class Rows:
    """Rows of data in memory, ready for batches; with `whole`, a sparse matrix is spread out."""

    def __init__(
        self,
        data: Arrays | Matrix,
        scaling: Scaling,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        whole: bool = False,
    ) -> None:
        arrays = Arrays.of(data)
        x = arrays.x
        self.shape, self.layout = x.shape, layout_of(arrays)
        self.device, self._dtype = torch.empty(0, device=device).device, dtype  # "cuda" as the "cuda:0" that it is
        self._scaling = scaling
        self.sparse = sparse.issparse(x) and not whole
        self._x = sparse.csr_array(x) if sparse.issparse(x) else None
        others = {name: part for name, part in arrays.per_row.items() if name != "x"}
        self.parts = {name: torch.tensor(part, device=self.device, dtype=dtype) for name, part in others.items()}
        """what is resident on the device, by name; all but sparse x"""
        if not self.sparse:
            self.parts = {"x": self._scaled(x if self._x is None else self._x), **self.parts}

    def __len__(self) -> int:
        return int(self.shape[0])

    def _scaled(self, x: Matrix) -> Tensor:
        scaled = torch.empty(x.shape, dtype=self._dtype)
        # A block at a time: the arithmetic is float64, the result need not be.
        for start in range(0, x.shape[0], _BLOCK):
            part = x[start : start + _BLOCK]
            part = part.toarray() if sparse.issparse(part) else part
            scaled[start : start + _BLOCK] = torch.from_numpy(self._scaling.apply(part))
        return scaled.to(self.device)

    def batch(self, index: Tensor) -> Batch:
        """Rows by index."""
        parts = {name: part[index] for name, part in self.parts.items()}
        if self.sparse and self._x is not None:
            parts = {"x": self._scaled(self._x[index.cpu().numpy()]), **parts}
        return assemble(parts, self.layout.missing)
