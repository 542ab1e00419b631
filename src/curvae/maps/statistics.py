"""Principal axes, graphs of neighbours, rank correlation and intervals of means."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, eigsh
from scipy.special import stdtrit

__all__ = [
    "LEVEL",
    "Array",
    "Bridge",
    "Principal",
    "bridged",
    "graph_of_table",
    "mean_interval",
    "neighbour_graph",
    "principal_axes",
    "rank_correlation",
]

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
    """Compute the first principal axes of rows, (rows, columns); at most as many as there are rows or columns.

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
        square = x.T @ x
        vectors = eigh(square, subset_by_index=[size - count, size - 1])[1]
        # Of many equal eigenvalues, as those of the identity, LAPACK finds no subset.
        return (vectors if vectors.shape[1] == count else eigh(square)[1][:, -count:])[:, ::-1]
    if not x.any():
        return np.eye(size, count)
    products = x.T @ x if dense else LinearOperator((size, size), lambda v: x.T @ (x @ v), dtype=np.float64)
    values, vectors = eigsh(products, count, v0=np.random.default_rng(0).standard_normal(size), tol=1e-10)
    return vectors[:, np.argsort(-values)]


def rank_correlation(truth: Array, latent: Array) -> float:
    """Spearman's correlation: NaN where the truth is the same everywhere, 0 where only the latent figures are.

    Example:
        >>> round(rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([1.0, 8.0, 9.0])), 12)
        1.0
    """
    from scipy.stats import rankdata  # takes long to import

    if not np.ptp(truth):
        return math.nan
    return float(np.corrcoef(rankdata(truth), rankdata(latent))[0, 1]) if np.ptp(latent) else 0.0


def mean_interval(figures: Sequence[float]) -> tuple[float, float]:
    """Mean, and half-width of its 95 % interval over repeats."""
    half = stdtrit(len(figures) - 1, 1 - LEVEL / 2) * np.std(figures, ddof=1) / math.sqrt(len(figures))
    return float(np.mean(figures)), float(half)


# Graphs of nearest neighbours: rows are linked if one is among the nearest of the other.

Bridge = Callable[[NDArray[np.bool_]], tuple[int, int, float]]
"""From a mask of some rows to the shortest link of one of them to another row: the two ends and its length."""


def neighbour_graph(index: NDArray[Any], distances: NDArray[Any]) -> csr_array:
    """Symmetric graph in which rows are linked if one is among the nearest of the other, with distances as lengths.

    Rows that are equal get the smallest positive length, since a length of 0 would be no link.

    Arguments:
        index: the nearest other rows of every row, (rows, k).
        distances: to them, likewise.
    """
    rows, k = index.shape
    lengths = np.maximum(distances, np.finfo(np.float64).tiny)
    graph = csr_array((lengths.ravel(), index.ravel(), np.arange(0, rows * k + 1, k)), (rows, rows))
    return csr_array(graph.maximum(graph.T))


def bridged(graph: csr_array, bridge: Bridge) -> csr_array:
    """Build bridges between the components of a graph: of each to the rest, until all are one.

    The shortest bridge of a component belongs to the shortest tree that joins all of them, and so these are the bridges
    of that tree.
    """
    while (found := connected_components(graph, directed=False))[0] > 1:
        count, component = found
        largest = np.bincount(component).argmax()
        first, second, lengths = zip(*(bridge(component == one) for one in range(count) if one != largest), strict=True)
        added = np.maximum(lengths, np.finfo(np.float64).tiny)
        bridges = csr_array((added, (np.array(first), np.array(second))), graph.shape)
        graph = csr_array(graph.maximum(bridges).maximum(bridges.T))
    return graph


def graph_of_table(distances: NDArray[np.float64], neighbours: int) -> csr_array:
    """`neighbour_graph` with bridges, given the distances between all rows, (rows, rows).

    Example:
        >>> places = np.array([0.0, 1.0, 5.0, 7.0])
        >>> graph_of_table(abs(places - places[:, None]), 1).toarray()
        array([[0., 1., 0., 0.],
               [1., 0., 4., 0.],
               [0., 4., 0., 2.],
               [0., 0., 2., 0.]])
    """
    apart = distances.copy()
    np.fill_diagonal(apart, np.inf)
    k = min(neighbours, len(apart) - 1)
    index = np.argpartition(apart, k - 1, axis=1)[:, :k]

    def bridge(inside: NDArray[np.bool_]) -> tuple[int, int, float]:
        between = apart[np.ix_(inside, ~inside)]
        a, b = np.unravel_index(int(between.argmin()), between.shape)
        return np.flatnonzero(inside)[a], np.flatnonzero(~inside)[b], between[a, b]

    return bridged(neighbour_graph(index, np.take_along_axis(apart, index, 1)), bridge)
