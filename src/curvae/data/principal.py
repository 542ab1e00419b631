"""Principal axes, rank correlation and intervals of means, without the seconds that larger libraries take to import."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse.linalg import LinearOperator, eigsh
from scipy.special import stdtrit

__all__ = ["LEVEL", "Principal", "average_ranks", "mean_interval", "principal_axes", "rank_correlation"]

Array = NDArray[np.float64]

LEVEL = 0.05  # of tests and intervals
_DENSE = 1000  # rows or columns up to which their products are computed
_FEW = 50  # times as many rows or columns as axes from which on these are found by iteration


@dataclass(frozen=True)
class Principal:
    """Axes along which some rows vary most.

    Arguments:
        mean: of the rows, (columns,).
        axes: orthonormal, the first with the largest variance, (columns, count); the largest entry of each is positive.
    """

    mean: Array
    axes: Array

    def place(self, x: Array) -> Array:
        """Coordinates of rows, (rows, count)."""
        return (x - self.mean) @ self.axes


def principal_axes(x: Array, count: int) -> Principal:
    """The first principal axes of rows, (rows, columns); at most as many as there are rows or columns.

    Example:
        >>> found = principal_axes(np.array([[0.0, 0.0], [1.0, 2.0], [2.0, 4.0]]), 1)
        >>> (found.axes * 5**0.5).round(6).T.tolist(), found.place(np.array([[1.0, 2.0]])).tolist()
        ([[1.0, 2.0]], [[0.0]])
    """
    mean = x.mean(0)
    centred = x - mean
    wide = x.shape[1] > x.shape[0]
    vectors = _largest(centred.T if wide else centred, min(count, *x.shape))
    if wide:
        vectors = centred.T @ vectors
        lengths = np.linalg.norm(vectors, axis=0)
        vectors /= np.where(lengths > 0, lengths, 1.0)
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(0)[None], 0)
    return Principal(mean, vectors * np.where(largest < 0, -1.0, 1.0))


def _largest(x: Array, count: int) -> Array:
    """Eigenvectors of xᵀx with the largest values, which come first, (columns, count)."""
    size = x.shape[1]
    dense = size <= _DENSE or 10 * count > size
    if dense and _FEW * count > size:
        return eigh(x.T @ x, subset_by_index=[size - count, size - 1])[1][:, ::-1]
    if not x.any():
        return np.eye(size, count)
    products = x.T @ x if dense else LinearOperator((size, size), lambda v: x.T @ (x @ v), dtype=np.float64)
    values, vectors = eigsh(products, count, v0=np.random.default_rng(0).standard_normal(size), tol=1e-10)
    return vectors[:, np.argsort(-values)]


def average_ranks(x: Array) -> Array:
    """Ranks of numbers from 1, equal ones with the mean of theirs.

    Example:
        >>> average_ranks(np.array([2.0, 7.0, 2.0]))
        array([1.5, 3. , 1.5])
    """
    order = np.argsort(x)
    ordered = x[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    counts = np.diff(np.append(starts, len(x)))
    ranks = np.empty(len(x))
    ranks[order] = np.repeat(starts + (counts + 1) / 2, counts)
    return ranks


def rank_correlation(truth: Array, latent: Array) -> float:
    """Spearman's correlation: NaN where the truth is the same everywhere, 0 where only the latent figures are.

    Example:
        >>> round(rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([1.0, 8.0, 9.0])), 12)
        1.0
    """
    if not np.ptp(truth):
        return math.nan
    return float(np.corrcoef(average_ranks(truth), average_ranks(latent))[0, 1]) if np.ptp(latent) else 0.0


def mean_interval(figures: Sequence[float]) -> tuple[float, float]:
    """Mean, and half-width of its 95 % interval over repeats."""
    half = stdtrit(len(figures) - 1, 1 - LEVEL / 2) * np.std(figures, ddof=1) / math.sqrt(len(figures))
    return float(np.mean(figures)), float(half)
