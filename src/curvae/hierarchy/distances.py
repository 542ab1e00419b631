"""Distances: between rows of a table, from a matrix, along the links of a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from scipy.sparse import issparse
from scipy.sparse.csgraph import shortest_path
from scipy.spatial.distance import cdist
from scipy.special import ndtri

from ..data import Graph
from ..errors import CurvaeError
from .map_distances import Array, Index

__all__ = [
    "ROUNDING",
    "Metric",
    "Rows",
    "check_distances",
    "check_squares",
    "gram_of_distances",
    "largest_component",
    "path_lengths",
]

Metric = Literal["euclidean", "cosine", "correlation", "manhattan"]

_BLOCK = 1 << 22  # values held at once
ROUNDING = 1e-8
_SMALL = 1e-140


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
        """These rows, dense, with columns shifted and scaled."""
        rows = self.x[place]
        dense = np.asarray(rows.toarray() if issparse(rows) else rows, dtype=np.float64)
        return (dense - self.shift) / self.scale

    def sample(self, place: Index) -> Rows:
        """These rows alone, dense and scaled."""
        return Rows(self.scaled(place), self.metric, blocks=self.blocks)

    @property
    def measures_lengths(self) -> bool:
        """Whether the metric depends on the lengths of rows, not on their directions alone."""
        return self.metric in ("euclidean", "manhattan")

    def normal_scores(self) -> Rows:
        """With every column turned into quantiles of a normal distribution by its ranks; equal values stay equal."""
        from scipy.stats import rankdata  # takes long to import

        return Rows(ndtri((rankdata(self.x, axis=0) - 0.5) / len(self)), self.metric, blocks=self.blocks)

    def take(self, place: Index) -> Array:
        """These rows as the metric sees them."""
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
        """Inner products of centred points at the distances of these rows, which `scaled` gives."""
        rows, _ = self._directed(scaled)
        if self.metric == "manhattan":
            return gram_of_distances(cdist(rows, rows, "cityblock"))
        centred = rows - rows.mean(0)
        return centred @ centred.T

    def pairs(self, first: Index, second: Index) -> Array:
        """Distances of the first to the second, one by one."""
        step = max(1, _BLOCK // max(1, self.x.shape[1]))
        parts = [slice(start, start + step) for start in range(0, len(first), step)]
        return np.concatenate([self._lengths(self.take(first[part]) - self.take(second[part])) for part in parts])

    def _lengths(self, difference: Array) -> Array:
        if self.metric == "manhattan":
            return np.abs(difference).sum(1)
        return np.sqrt(np.einsum("ij,ij->i", difference, difference))

    def table(self, place: Index | None = None) -> Array:
        """Distances between all of these rows, by default all there are."""
        rows = self.take(np.arange(len(self)) if place is None else place)
        return cdist(rows, rows, "cityblock" if self.metric == "manhattan" else "euclidean")


def check_squares(largest: float, things: str) -> None:
    """Raise where squares of values are too large or too small for a number."""
    if largest and not _SMALL < largest < 1 / _SMALL:
        raise CurvaeError(
            f"the largest of {things} is {largest:.2g}, and squares of such values are too large or too small for a "
            "computer's numbers; give them in other units"
        )


def check_distances(matrix: Any, name: str = "the matrix") -> Array:
    """A distance matrix made exactly symmetric; raises where it is none."""
    d = np.asarray(matrix.toarray() if issparse(matrix) else matrix, dtype=np.float64)
    if d.ndim != 2 or d.shape[0] != d.shape[1]:
        raise CurvaeError(f"{name} has shape {' × '.join(map(str, d.shape))}; distances need as many rows as columns")
    if not np.isfinite(d).all():
        raise CurvaeError(f"{name} has distances that are missing or infinite; fill them in")
    largest = float(np.abs(d).max(initial=0.0))
    check_squares(largest, "the distances")
    slack = ROUNDING * max(1.0, largest)
    lowest = float(d.min(initial=0.0))
    for excess, what in (
        (-lowest, f"has a negative distance, {lowest:.4g}; give distances, not similarities"),
        (np.abs(np.diag(d)).max(initial=0.0), "has a diagonal that is not 0; give distances, not similarities"),
        (np.abs(d - d.T).max(initial=0.0), "is not symmetric; give the same distance both ways"),
    ):
        if excess > slack:
            raise CurvaeError(f"{name} {what}")
    d = np.maximum((d + d.T) / 2, 0.0)
    np.fill_diagonal(d, 0.0)
    return d


def largest_component(graph: Graph) -> Index:
    """Nodes of the component with the most of them."""
    return np.flatnonzero(graph.components == np.bincount(graph.components).argmax())


def path_lengths(adjacency: Any, place: Index) -> Array:
    """Links on the shortest way between all of these nodes, of a symmetric matrix of links; weights do not count."""
    return shortest_path(adjacency, directed=False, unweighted=True, indices=place)[:, place]


def gram_of_distances(distances: Array) -> Array:
    """Inner products of the centred points that have these distances."""
    square = distances**2
    square = square - square.mean(0)
    return -0.5 * (square - square.mean(1, keepdims=True))
