"""Distances of any map, and of the rows that it shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from ..errors import CurvaeError
from ..geometry import PoincareBall
from ..training.embedding import Embedding

__all__ = ["MapDistance", "Places", "euclidean", "places_of"]

Array = NDArray[np.float64]
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
    """A map with its distances.

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
