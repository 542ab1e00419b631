"""Distances between rows of a table, along the links of a graph, and on a map."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from scipy.sparse.csgraph import shortest_path
from scipy.spatial.distance import cdist
from scipy.special import ndtri

from ..data import Graph
from ..errors import CurvaeError
from ..geometry import PoincareBall
from .embedding import Embedding
from .statistics import Array

__all__ = [
    "ROUNDING",
    "Index",
    "MapDistance",
    "Metric",
    "Places",
    "Rows",
    "check_distances",
    "check_squares",
    "euclidean",
    "gram_of_distances",
    "largest_component",
    "path_lengths",
    "places_of",
]


# Distances of any map, and of the rows that it shows.

Index = NDArray[np.intp]
MapDistance: TypeAlias = Literal["euclidean", "poincare", "lorentz"] | Callable[[Array, Array], Array]

_WIDE = 32  # columns from which on distances come from inner products
_SAME = 2.0**-40  # of squares, below which rounded inner products cannot tell rows apart
_EXPONENT = 500  # of two, of the largest coordinate of a hyperbolic map: beyond it squares overflow or vanish
_TIME = 1e-3  # relative error with which a first coordinate may be the time of a point on the hyperboloid


def euclidean(a: Array, b: Array) -> Array:
    """Distances of rows to rows, (rows of a, rows of b). Of many columns from inner products, so centre them before.

    Example:
        >>> euclidean(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0], [0.0, 0.0]]))
        array([[5., 0.]])
    """
    if a.shape[1] <= _WIDE:
        return cdist(a, b)
    sizes = np.einsum("ij,ij->i", a, a)[:, None] + np.einsum("ij,ij->i", b, b)
    square = sizes - 2 * (a @ b.T)
    square[square < _SAME * sizes] = 0.0
    return np.sqrt(square)


class Places:
    """Where rows lie on a map, with its distances.

    Arguments:
        coordinates: (rows, d), or an `Embedding`.
        measure: from two of such to the table of their distances.
    """

    def __init__(self, coordinates: Any, measure: Callable[[Any, Any], Array]) -> None:
        self.coordinates, self._measure = coordinates, measure

    def __len__(self) -> int:
        return len(self.coordinates)

    @property
    def dim(self) -> int:
        given = self.coordinates
        return int(given.dim if isinstance(given, Embedding) else given.shape[1])

    def table(self, rows: Index, columns: Index) -> Array:
        """Distances of these rows to those."""
        given = self.coordinates
        both = (given.take(part) if isinstance(given, Embedding) else given[part] for part in (rows, columns))
        found = self._measure(*both)
        if found.shape != (len(rows), len(columns)) or not np.isfinite(found).all():
            raise CurvaeError("distance must give a finite number for every pair, as an array (rows, other rows)")
        return np.asarray(found, np.float64)


def places_of(places: Any, distance: MapDistance = "euclidean") -> Places:
    """Return a map with its distances.

    Arguments:
        places: coordinates (rows, d), or an `Embedding`, whose own distances are used.
        distance: "euclidean"; "poincare" for points of the unit ball, of curvature −1; "lorentz" for points of the
            hyperboloid of curvature −1, their space parts, or all coordinates with the time first; or a function from
            coordinates (n, d) and (m, d) to distances (n, m).

    Example:
        >>> ball = places_of([[0.0, 0.0], [0.5, 0.0]], "poincare")
        >>> round(float(ball.table(np.array([0]), np.array([1]))[0, 0]), 6)  # 2·artanh(1/2)
        1.098612
    """
    if isinstance(places, Embedding):
        places.require_finite()
        return Places(places, lambda a, b: a.distances(b))
    points = np.asarray(places, dtype=np.float64)
    if points.ndim != 2 or not points.shape[1]:
        raise CurvaeError(f"a map of shape {points.shape} has no coordinates; give (rows, dimensions)")
    if not (finite := np.isfinite(points).all(1)).all():
        raise CurvaeError(f"row {int(np.argmin(finite)) + 1} of the map has no finite coordinates; leave it out")
    if callable(distance):
        return Places(points, distance)
    # Units of a power of two close to the largest coordinate: exact, and squares neither overflow nor vanish.
    exponent = int(np.frexp(np.abs(points).max(initial=0.0))[1])
    if distance == "euclidean":
        scaled = np.ldexp(points, -exponent)
        return Places(scaled - scaled.mean(0), euclidean)
    if abs(exponent) > _EXPONENT:
        raise CurvaeError(
            f"the largest coordinate of the map is {np.abs(points).max():.2g}, too large or too small for distances on "
            'the hyperboloid; use distance="euclidean"'
        )
    if distance == "poincare":
        if not (inside := (points**2).sum(1) < 1).all():
            raise CurvaeError(
                f"row {int(np.argmin(inside)) + 1} of the map is outside the unit ball; scale the ball to radius 1, or "
                'use distance="euclidean" or distance="lorentz"'
            )
        space = PoincareBall(points.shape[1]).to_lorentz(torch.from_numpy(points)).numpy()
    elif distance == "lorentz":
        space = _space_part(points)
    else:
        raise CurvaeError(f"distance is {distance!r}; use one of {', '.join(get_args(get_args(MapDistance)[0]))}")
    return places_of(Embedding(space, np.zeros(len(space)), 1.0))


def _space_part(points: Array) -> Array:
    """Coordinates on the hyperboloid without their time, if the first is the time."""
    time, space = points[:, 0], points[:, 1:]
    expected = np.sqrt(1 + (space**2).sum(1))
    return space if space.shape[1] and np.allclose(time, expected, rtol=_TIME, atol=0) else points


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
        """Return these rows, dense, with columns shifted and scaled."""
        rows = self.x[place]
        dense = np.asarray(rows.toarray() if issparse(rows) else rows, dtype=np.float64)
        return (dense - self.shift) / self.scale

    def sample(self, place: Index) -> Rows:
        """Return these rows alone, dense and scaled."""
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
        differences = (self.take(first[part]) - self.take(second[part]) for part in parts)
        if self.metric == "manhattan":
            return np.concatenate([np.abs(d).sum(1) for d in differences])
        return np.concatenate([np.sqrt(np.einsum("ij,ij->i", d, d)) for d in differences])

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
    """Make a distance matrix exactly symmetric; raise where it is none."""
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
