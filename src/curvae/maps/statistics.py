"""Distances between rows, graphs of neighbours, principal axes, rank correlation and intervals of means."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array, issparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, eigsh
from scipy.spatial.distance import cdist
from scipy.special import ndtri, stdtrit

from ..errors import CurvaeError

__all__ = [
    "LEVEL",
    "ROUNDING",
    "Array",
    "Bridge",
    "Index",
    "Metric",
    "Principal",
    "Rows",
    "bridged",
    "check_distances",
    "check_squares",
    "euclidean",
    "gram_of_distances",
    "graph_of_table",
    "mean_interval",
    "neighbour_graph",
    "principal_axes",
    "rank_correlation",
    "ranks",
]

Array = NDArray[np.float64]
Index = NDArray[np.intp]

LEVEL = 0.05  # of tests and intervals
_DENSE = 1000  # rows or columns up to which their products are computed


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
        """Return coordinates of rows, (rows, count)."""
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
    if dense and 50 * count > size:  # with fewer axes among so many, iteration is faster
        square = x.T @ x
        vectors = eigh(square, subset_by_index=[size - count, size - 1])[1]
        # Of many equal eigenvalues, as those of the identity, LAPACK finds no subset.
        return (vectors if vectors.shape[1] == count else eigh(square)[1][:, -count:])[:, ::-1]
    if not x.any():
        return np.eye(size, count)
    products = x.T @ x if dense else LinearOperator((size, size), lambda v: x.T @ (x @ v), dtype=np.float64)
    values, vectors = eigsh(products, count, v0=np.random.default_rng(0).standard_normal(size), tol=1e-10)
    return vectors[:, np.argsort(-values)]


def ranks(x: Array) -> Array:
    """Rank numbers from 1 on, those of each column apart; equal ones share the mean of their ranks."""
    return pd.DataFrame(x).rank().to_numpy().reshape(x.shape)  # scipy.stats takes long to import


def rank_correlation(truth: Array, latent: Array) -> float:
    """Compute Spearman's correlation: NaN where the truth is the same everywhere, 0 where only the latent figures are.

    Example:
        >>> round(rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([1.0, 8.0, 9.0])), 12)
        1.0
    """
    if not np.ptp(truth):
        return math.nan
    return float(np.corrcoef(ranks(truth), ranks(latent))[0, 1]) if np.ptp(latent) else 0.0


def mean_interval(figures: Sequence[float]) -> tuple[float, float]:
    """Compute the mean, and half-width of its 95 % interval over repeats."""
    half = stdtrit(len(figures) - 1, 1 - LEVEL / 2) * np.std(figures, ddof=1) / math.sqrt(len(figures))
    return float(np.mean(figures)), float(half)


# Graphs of nearest neighbours: rows are linked if one is among the nearest of the other.

# From a mask of some rows to the shortest link of one of them to another row: the two ends and its length.
Bridge = Callable[[NDArray[np.bool_]], tuple[int, int, float]]


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
    """Compute `neighbour_graph` with bridges, given the distances between all rows, (rows, rows).

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


# Distances between the rows of a table.

Metric = Literal["euclidean", "cosine", "correlation", "manhattan"]

ROUNDING = 1e-8  # relative error of distances that are rounded


@dataclass(frozen=True)
class Rows:
    """Rows of a table with a metric. Cosine and correlation are the Euclidean distances of rows brought to unit length.

    Arguments:
        x: (rows, features), dense or sparse.
        metric: "euclidean", "cosine", "correlation" (cosine of rows less their means) or "manhattan".
        shift, scale: every column is used as (x − shift)/scale.
        blocks: widths of features that belong together, as those of one categorical column; all of width 1 by default.

    Example:
        >>> rows = Rows(np.array([[3.0, 0.0], [0.0, 4.0]]))
        >>> rows.pairs(np.array([0]), np.array([1])), rows.table(np.array([0, 1]))[0, 1]
        (array([5.]), np.float64(5.0))
    """

    x: Any
    metric: Metric = "euclidean"
    shift: Array | float = 0.0
    scale: Array | float = 1.0
    blocks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.metric not in get_args(Metric):
            raise CurvaeError(f"metric is {self.metric!r}; use one of {', '.join(get_args(Metric))}")

    def __len__(self) -> int:
        return int(self.x.shape[0])

    def scaled(self, place: Index) -> Array:
        """Return these rows, dense, with columns shifted and scaled."""
        rows = self.x[place]
        return (np.asarray(rows.toarray() if issparse(rows) else rows, dtype=np.float64) - self.shift) / self.scale

    def sample(self, place: Index) -> Rows:
        """Return these rows alone, dense and scaled."""
        return Rows(self.scaled(place), self.metric, blocks=self.blocks)

    @property
    def measures_lengths(self) -> bool:
        """Whether the metric depends on the lengths of rows, not on their directions alone."""
        return self.metric in ("euclidean", "manhattan")

    def normal_scores(self) -> Rows:
        """With every column turned into quantiles of a normal distribution by its ranks; equal values stay equal."""
        return Rows(ndtri((ranks(self.x) - 0.5) / len(self)), self.metric, blocks=self.blocks)

    def take(self, place: Index) -> Array:
        """Return these rows as the metric sees them."""
        rows, length = self._directed(self.scaled(place))
        if (length == 0).any():
            row = int(place[int(np.argmin(length))]) + 1
            raise CurvaeError(f"row {row} has no direction, which {self.metric} needs; remove it or use euclidean")
        return rows

    def _directed(self, rows: Array) -> tuple[Array, Array]:
        """Rows brought to unit length where the metric asks for it, and their lengths before."""
        if self.metric == "correlation":
            rows = rows - rows.mean(1, keepdims=True)
        if self.measures_lengths:
            return rows, np.ones(len(rows))
        length = np.linalg.norm(rows, axis=1)
        return rows / np.where(length > 0, length, 1.0)[:, None], length

    def gram(self, scaled: Array) -> Array:
        """Compute inner products of centred points at the distances of these rows, which `scaled` gives."""
        rows, _ = self._directed(scaled)
        if self.metric == "manhattan":
            return gram_of_distances(cdist(rows, rows, "cityblock"))
        centred = rows - rows.mean(0)
        return centred @ centred.T

    def pairs(self, first: Index, second: Index) -> Array:
        """Return distances of the first to the second, one by one."""
        step = max(1, (1 << 22) // max(1, self.x.shape[1]))  # so many values are held at once
        parts = [slice(start, start + step) for start in range(0, len(first), step)]
        differences = (self.take(first[part]) - self.take(second[part]) for part in parts)
        if self.metric == "manhattan":
            return np.concatenate([np.abs(d).sum(1) for d in differences])
        return np.concatenate([np.sqrt(np.einsum("ij,ij->i", d, d)) for d in differences])

    def table(self, place: Index | None = None) -> Array:
        """Return distances between all of these rows, by default all there are."""
        rows = self.take(np.arange(len(self)) if place is None else place)
        return cdist(rows, rows, "cityblock" if self.metric == "manhattan" else "euclidean")


def check_squares(largest: float, things: str) -> None:
    """Raise where squares of values are too large or too small for a number."""
    if largest and not 1e-140 < largest < 1e140:
        raise CurvaeError(
            f"the largest of {things} is {largest:.2g}, and squares of such values are too large or too small for a "
            "computer's numbers; give them in other units"
        )


def check_distances(matrix: Any, name: str = "the matrix") -> Array:
    """Make a distance matrix exactly symmetric; raise where it is none."""
    d = np.asarray(matrix.toarray() if issparse(matrix) else matrix, dtype=np.float64)
    if d.ndim != 2 or d.shape[0] != d.shape[1]:
        raise CurvaeError(f"{name} has shape {' × '.join(map(str, d.shape))}; distances need as many rows as columns")
    if not np.isfinite(d).all():
        raise CurvaeError(f"{name} has distances that are missing or infinite; fill them in")
    largest = float(np.abs(d).max(initial=0.0))
    check_squares(largest, "the distances")
    lowest = float(d.min(initial=0.0))
    for excess, what in (
        (-lowest, f"has a negative distance, {lowest:.4g}; give distances, not similarities"),
        (np.abs(np.diag(d)).max(initial=0.0), "has a diagonal that is not 0; give distances, not similarities"),
        (np.abs(d - d.T).max(initial=0.0), "is not symmetric; give the same distance both ways"),
    ):
        if excess > ROUNDING * max(1.0, largest):
            raise CurvaeError(f"{name} {what}")
    d = np.maximum((d + d.T) / 2, 0.0)
    np.fill_diagonal(d, 0.0)
    return d


def gram_of_distances(distances: Array) -> Array:
    """Compute inner products of the centred points that have these distances."""
    square = distances**2
    square = square - square.mean(0)
    return -0.5 * (square - square.mean(1, keepdims=True))


def euclidean(a: Array, b: Array) -> Array:
    """Compute distances of rows to rows, (rows of a, rows of b). Centre many columns before: inner products give these.

    Example:
        >>> euclidean(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0], [0.0, 0.0]]))
        array([[5., 0.]])
    """
    if a.shape[1] <= 32:
        return cdist(a, b)
    sizes = np.einsum("ij,ij->i", a, a)[:, None] + np.einsum("ij,ij->i", b, b)
    square = sizes - 2 * (a @ b.T)
    square[square < 2.0**-40 * sizes] = 0.0  # rounded inner products cannot tell such rows apart
    return np.sqrt(square)
