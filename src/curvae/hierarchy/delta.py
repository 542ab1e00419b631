"""Gromov's δ: how far distances are from those in a tree.

For four points let S ≥ M ≥ L be the sums d(x, y) + d(z, w), d(x, z) + d(y, w), d(x, w) + d(y, z). In a tree S = M.
The δ of the four is **half the difference of the two largest sums**, (S − M)/2, and the δ of a space the largest of all
four points. It lies between 0 and half the diameter, so 2δ/diameter, the relative δ, lies between 0 and 1.

With the Gromov product (x|y)_w = (d(x, w) + d(y, w) − d(x, y))/2 the same number is the largest
min{(x|y)_w, (y|z)_w} − (x|z)_w. Over all base points w that is δ; for one w alone it may be as small as δ/2, and is not
used here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import CurvaeError

__all__ = ["Array", "Delta", "Index", "PairDistances", "estimate_delta", "exact_delta", "four_sums", "quadruples"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]
PairDistances = Callable[[Index, Index], Array]

_LEVEL = 0.95
_QUANTILE = 0.95
_STARTS, _SWEEPS = 4, 3
_BLOCK = 1 << 16  # quadruples whose distances are held at once


def quadruples(size: int, count: int, random: np.random.Generator) -> Index:
    """Sets of four different numbers below `size`, independent and equally likely, (count, 4).

    Example:
        >>> chosen = quadruples(4, 3, np.random.default_rng(0))
        >>> np.sort(chosen).tolist()
        [[0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3]]
    """
    chosen = np.zeros((0, 4), dtype=np.intp)
    while len(chosen) < count:
        more = random.integers(size, size=(2 * (count - len(chosen)) + 16, 4))
        ordered = np.sort(more)
        chosen = np.concatenate([chosen, more[(ordered[:, 1:] > ordered[:, :-1]).all(1)]])
    return chosen[:count]


def four_sums(distance: PairDistances, chosen: Index) -> Array:
    """The three sums of opposite distances of each quadruple, ascending, (3, count)."""
    i, j, k, m = chosen.T
    sums = [distance(i, j) + distance(k, m), distance(i, k) + distance(j, m), distance(i, m) + distance(j, k)]
    return np.sort(np.stack(sums), axis=0)


def exact_delta(distances: ArrayLike) -> float:
    """δ of a distance matrix, exactly: the max–min product of Gromov products from every base point.

    It takes about n⁴/4 steps: a second for 200 points.

    Example:
        >>> ring = np.array([[0, 1, 2, 1], [1, 0, 1, 2], [2, 1, 0, 1], [1, 2, 1, 0]])
        >>> exact_delta(ring)
        1.0
    """
    d = np.asarray(distances, dtype=np.float64)
    found = 0.0
    for base in range(len(d) - 3):
        # Each quadruple is met once, from its first point.
        radius, rest = d[base, base + 1 :], d[base + 1 :, base + 1 :]
        product = (radius[:, None] + radius - rest) / 2
        best = np.full_like(product, -np.inf)
        for row in product:
            np.maximum(best, np.minimum(row[:, None], row), out=best)
        found = max(found, float((best - product).max()))
    return found


@dataclass(frozen=True)
class Delta:
    """What quadruples drawn at random say about δ.

    Arguments:
        mean: of the δ of all quadruples.
        interval: holds that mean with 95 % confidence.
        quantile: that 95 % of all quadruples do not exceed.
        quantile_interval: holds that quantile with 95 % confidence, whatever the distances.
        largest: δ of the space where `exact`, otherwise the largest seen, which δ is not below.
        exact: whether every quadruple was looked at for `largest`.
        exceeding: with 95 % confidence no larger share of all quadruples is above `largest`.
        diameter: largest distance, or with many points the largest found.
        count: quadruples drawn.
    """

    mean: float
    interval: tuple[float, float]
    quantile: float
    quantile_interval: tuple[float, float]
    largest: float
    exact: bool
    exceeding: float
    diameter: float
    count: int

    def relative(self, value: float) -> float:
        """2·value/diameter: 0 in a tree, at most 1."""
        return 2 * value / self.diameter if self.diameter else 0.0


def estimate_delta(
    distance: PairDistances,
    size: int,
    count: int = 50_000,
    seed: int = 0,
    exact_up_to: int = 150,
    swept: int = 1_000_000,
) -> Delta:
    """Mean, upper quantile and largest δ of quadruples, from quadruples drawn independently of each other.

    The interval of the mean is the normal one. That of the quantile lies between two order statistics. About the
    largest nothing two-sided can be said: rare quadruples may be far above it. With N quadruples drawn, a share of more
    than 1 − 0.05^(1/N) ≈ 3/N above the largest would have been noticed with 95 % confidence.

    Arguments:
        distance: takes two arrays of places and gives the distances of the pairs.
        size: number of points.
        count: quadruples to draw.
        seed: of the draws.
        exact_up_to: with at most so many points `largest` is computed exactly.
        swept: the diameter is exact with at most so many pairs; otherwise so many points are looked at.

    Example:
        >>> line = np.linspace(0, 1, 300)
        >>> found = estimate_delta(lambda i, j: abs(line[i] - line[j]), 300, 1000)
        >>> abs(round(found.mean, 12)), round(found.diameter, 12)
        (0.0, 1.0)
    """
    if size < 4:
        raise CurvaeError(f"δ needs four points, got {size}; give more")
    from scipy import stats  # takes long to import

    random = np.random.default_rng(seed)
    chosen = quadruples(size, count, random)
    sums = np.concatenate([four_sums(distance, chosen[k : k + _BLOCK]) for k in range(0, count, _BLOCK)], 1)
    if not np.isfinite(sums).all():
        raise CurvaeError("some distances are not finite numbers; fix them, or use one component of the graph")
    values = np.sort((sums[2] - sums[1]) / 2)
    mean, half = float(values.mean()), float(stats.norm.isf((1 - _LEVEL) / 2) * values.std() / math.sqrt(count))
    low, high = stats.binom.ppf(((1 - _LEVEL) / 2, (1 + _LEVEL) / 2), count, _QUANTILE)
    exact = size <= exact_up_to
    if exact:
        places = np.arange(size)
        table = np.stack([distance(np.full(size, i), places) for i in places])
        largest, diameter, exceeding = exact_delta(table), float(table.max()), 0.0
    else:
        largest, exceeding = float(values[-1]), 1 - (1 - _LEVEL) ** (1 / count)
        diameter = max(_diameter(distance, size, swept, random), float(sums.max()) / 2)
    return Delta(
        mean,
        (max(0.0, mean - half), mean + half),
        float(values[math.ceil(_QUANTILE * count) - 1]),
        (float(values[max(0, int(low) - 1)]), float(values[min(count - 1, int(high))])),
        largest,
        exact,
        exceeding,
        diameter,
        count,
    )


def _diameter(distance: PairDistances, size: int, most: int, random: np.random.Generator) -> float:
    """The largest of all distances where there are no more than `most`.

    Otherwise the largest met on walks from farthest point to farthest point, among `most` points.
    """
    if size * (size - 1) // 2 <= most:
        return float(distance(*np.triu_indices(size, 1)).max())
    points = random.permutation(size)[:most]
    found = 0.0
    for place in points[:_STARTS]:
        for _ in range(_SWEEPS):
            row = distance(np.full(len(points), place), points)
            place = points[row.argmax()]
            found = max(found, float(row.max()))
    return found
