"""Gromov's δ, and data without a hierarchy that have the covariance spectrum of given data.

Everything is done on the Gram matrix of the centred points, G = −½·J·D²·J with J = 1 − 11ᵀ/n, which any distances D
have. Its eigenvectors U and eigenvalues Λ are the principal scores; eigenvalues below 0 belong to distances that no
Euclidean space has, and are kept. Three kinds of surrogates keep Λ:

- **rotated**: U becomes a random frame. For normal rows, whatever their covariance, G and its rotation have the
  same distribution, so a test against rotations is exact.
- **flipped**: every score gets a random sign. The distribution stays the same for clouds that are symmetric about their
  axes: spheres, boxes, grids, heavy tails.
- **permuted**: scores of one axis are dealt to other rows. The distribution stays the same where axes are independent.

A table has columns as well. Its surrogates of a fourth kind keep the distribution of every column, which says much
where values are sparse or skewed, and how rows differ in their means:

- **dealt**: values of every column are dealt among rows of about the same mean.

Data are compared with them by scores of a hierarchy, which take distances or inner products of all pairs of a few
hundred points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.cluster.hierarchy import cophenet, linkage
from scipy.sparse.csgraph import minimum_spanning_tree, shortest_path
from scipy.spatial.distance import squareform

from ..errors import CurvaeError

__all__ = [
    "SURROGATES",
    "Array",
    "Delta",
    "Index",
    "PairDistances",
    "Score",
    "Spectrum",
    "Surrogate",
    "compare_to_surrogates",
    "cophenetic_correlation",
    "distances_of_gram",
    "estimate_delta",
    "exact_delta",
    "flipped",
    "four_point_parts",
    "four_point_score",
    "four_sums",
    "narrowest_gap",
    "off_the_path",
    "permuted",
    "quadruples",
    "rotated",
    "some_quadruples",
    "ultrametric_score",
]


# Gromov's δ: how far distances are from those in a tree.
#
# For four points let S ≥ M ≥ L be the sums d(x, y) + d(z, w), d(x, z) + d(y, w), d(x, w) + d(y, z). In a tree S = M.
# The δ of the four is **half the difference of the two largest sums**, (S − M)/2, and the δ of a space the largest of
# all four points. It lies between 0 and half the diameter, so 2δ/diameter, the relative δ, lies between 0 and 1.
#
# With the Gromov product (x|y)_w = (d(x, w) + d(y, w) − d(x, y))/2 the same number is the largest min{(x|y)_w, (y|z)_w}
# − (x|z)_w. Over all base points w that is δ; for one w alone it may be as small as δ/2, and is not used here.

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


_COUNT = 79  # surrogates of a kind: the smallest p-value is 1/80
_ENOUGH = 6  # as many surrogates that look more like a hierarchy than the data settle that kind
_SETTLED = 0.1  # a p-value above this is settled by one kind of surrogates
_ALIKE = 10  # rows of about the same mean
_WAYS = 256
_FLAT = 1e-9  # eigenvalues of this share of the largest are rounding


@dataclass(frozen=True)
class Spectrum:
    """Principal axes of several sets of points, stacked; the smaller sets and those of fewer axes are filled up with 0.

    Arguments:
        axes: eigenvectors of the Gram matrices, (sets, points, axes).
        scale: roots of the absolute eigenvalues, (sets, 1, axes).
        sign: of the eigenvalues, likewise.
        real: 1 for points, 0 for what fills up, (sets, points, 1).
    """

    axes: Array
    scale: Array
    sign: Array
    real: Array

    @classmethod
    def of_grams(cls, grams: Sequence[Array]) -> Spectrum:
        """Of Gram matrices, which are centred here."""
        found = [_eigen(gram) for gram in grams]
        points, axes = max(map(len, grams)), max(len(values) for values, _ in found)
        made = cls(
            np.zeros((len(grams), points, axes)),
            np.zeros((len(grams), 1, axes)),
            np.zeros((len(grams), 1, axes)),
            np.zeros((len(grams), points, 1)),
        )
        for place, (values, vectors) in enumerate(found):
            size, count = vectors.shape
            made.axes[place, :size, :count] = vectors
            made.scale[place, 0, :count] = np.sqrt(np.abs(values))
            made.sign[place, 0, :count] = np.sign(values)
            made.real[place, :size] = 1
        return made

    def grams(self, axes: Array | None = None) -> Array:
        """The Gram matrices, (sets, points, points), with these axes in place of their own."""
        scores = (self.axes if axes is None else axes) * self.scale
        return (scores * self.sign) @ scores.swapaxes(1, 2)


def _eigen(gram: Array) -> tuple[Array, Array]:
    centred = gram - gram.mean(0)
    centred -= centred.mean(1, keepdims=True)
    values, axes = np.linalg.eigh((centred + centred.T) / 2)
    kept = np.abs(values) > _FLAT * np.abs(values).max(initial=0.0)
    return values[kept], axes[:, kept]


def rotated(spectrum: Spectrum, random: np.random.Generator) -> Array:
    """Gram matrices of the same spectrum whose axes are a random frame of the centred space."""
    frame = random.standard_normal(spectrum.axes.shape) * spectrum.real
    frame -= spectrum.real * (frame.sum(1, keepdims=True) / spectrum.real.sum(1, keepdims=True))
    # Axes beyond those of a set have no length, whatever the decomposition makes of them.
    return spectrum.grams(np.linalg.qr(frame)[0])


def flipped(spectrum: Spectrum, random: np.random.Generator) -> Array:
    """Gram matrices from the same scores, each with a random sign."""
    return spectrum.grams(np.where(random.random(spectrum.axes.shape) < 0.5, spectrum.axes, -spectrum.axes))


def permuted(spectrum: Spectrum, random: np.random.Generator) -> Array:
    """Gram matrices from the same scores, those of every axis dealt to other points."""
    order = np.argsort(random.random(spectrum.axes.shape) + 1 - spectrum.real, axis=1)  # what fills up stays last
    return spectrum.grams(np.take_along_axis(spectrum.axes, order, 1))


def dealt(values: Array, blocks: NDArray[np.intp], random: np.random.Generator) -> Array:
    """A table whose columns are dealt, each for itself, among rows of about the same mean.

    Arguments:
        values: (rows, columns).
        blocks: number of the block of each column; columns of one block are dealt together.
        random: source of the draws.

    Example:
        >>> table = np.arange(12.0).reshape(6, 2)
        >>> np.sort(dealt(table, np.array([0, 1]), np.random.default_rng(0)), axis=0).tolist() == table.tolist()
        True
    """
    rows = len(values)
    turn = np.arange(rows) // _ALIKE
    turn[turn == turn[-1]] = max(0, turn[-1] - (rows % _ALIKE > 0))  # a rest joins those before it
    # Blocks share some of many ways of dealing, which are drawn anew each time.
    count = int(blocks[-1]) + 1
    ways = np.argsort(random.random((rows, min(count, _WAYS))) + turn[:, None], axis=0)
    chosen = random.integers(_WAYS, size=count) if count > _WAYS else np.arange(count)
    return np.take_along_axis(values[np.argsort(values.mean(1))], ways[:, chosen[blocks]], 0)


Surrogate = Callable[[Spectrum, np.random.Generator], Array]
SURROGATES: Sequence[Surrogate] = (rotated, flipped, permuted)


def compare_to_surrogates(observed: float, kinds: Sequence[Callable[[], float]], margin: float = 0.0) -> float:
    """p-value of a statistic that is small where there is a hierarchy: the largest over kinds of surrogates.

    With b of N surrogates at or below the data it is (b + 1)/(N + 1). Surrogates are drawn only until so many lie there
    that the answer is clear (Besag and Clifford, 1991): the p-value is then b/N with the N drawn so far.

    Arguments:
        observed: the statistic of the data.
        kinds: for every kind of surrogates a function that draws one and gives its statistic.
        margin: what the data must fall short by, as a share: data that follow none of the distributions which
            surrogates stand for differ from them a little, and with many rows a little would be found significant.

    Example:
        >>> compare_to_surrogates(0.5, [lambda: 0.9]) == 1 / 80, compare_to_surrogates(0.5, [lambda: 0.51], margin=0.1)
        (True, 1.0)
    """
    found = 0.0
    for draw in kinds:
        below = drawn = 0
        while drawn < _COUNT and below < _ENOUGH:
            below += bool((1 - margin) * draw() <= observed)
            drawn += 1
        found = max(found, below / drawn if below == _ENOUGH else (below + 1) / (drawn + 1))
        if found > _SETTLED:
            break
    return found


_NEIGHBOUR = 4  # whose distance measures how dense the points lie
_GROUP = 5  # points that make a group, or a fiftieth of all where that is more


@dataclass(frozen=True)
class Score:
    """A score of data beside those of surrogates, and what it means in a few words."""

    name: str
    value: float
    surrogates: tuple[float, ...]
    meaning: str

    @property
    def surrogate(self) -> float:
        """Mean over surrogates."""
        return float(np.mean(self.surrogates))


def some_quadruples(size: int, most: int, random: np.random.Generator) -> Index:
    """All quadruples where there are no more than `most`, otherwise so many at random."""
    if comb(size, 4) <= most:
        return np.array(list(combinations(range(size), 4)), dtype=np.intp).reshape(-1, 4)
    return quadruples(size, most, random)


def distances_of_gram(gram: Array) -> Array:
    """Distances of points from their inner products; where no Euclidean space has them, 0."""
    square = np.diag(gram)
    return np.sqrt(np.maximum(square[:, None] + square - 2 * gram, 0.0))


def four_point_parts(gram: Array, chosen: Index, place: Index | int = 0) -> tuple[float, float]:
    """Sums over quadruples of S − M and of S − L, of squared distances; see `four_point_score`.

    Arguments:
        gram: inner products of several sets of points, (sets, points, points).
        chosen: quadruples, (count, 4).
        place: set of each quadruple.
    """
    i, j, k, m = chosen.T
    # Squares of lengths are the same in all three sums, so inner products do.
    pairs = ((i, j, k, m), (i, k, j, m), (i, m, j, k))
    sums = np.stack([gram[place, a, b] + gram[place, c, d] for a, b, c, d in pairs])
    low, high = sums.min(0), sums.max(0)
    middle = sums.sum(0) - low - high
    return 2 * float((middle - low).sum()), 2 * float((high - low).sum())


def four_point_score(gram: Array, chosen: Index) -> float:
    """Σ(S − M)/Σ(S − L) over quadruples, where S ≥ M ≥ L are the sums of opposite squared distances.

    Squares, since the steps of a process that branches are independent, and squares of independent steps add: squared
    distances are those of a tree when distances are not. 0 where every quadruple is split two against two without
    contradiction, 1/2 where the three sums differ by symmetric noise alone, as in a star of any radii; 1 where no
    quadruple is split at all.

    Example:
        >>> tree = np.array([[3.0, 2, 0, 0], [2, 3, 0, 0], [0, 0, 3, 1], [0, 0, 1, 3]])
        >>> four_point_score(tree, np.array([[0, 1, 2, 3]]))
        0.0
    """
    gap, reach = four_point_parts(gram[None], chosen)
    return gap / reach if reach > 0 else 1.0


def ultrametric_score(distances: Array, chosen: Index) -> float:
    """Σ(a − b)/Σ(a − c) over triples, where a ≥ b ≥ c are the distances of the first three of each quadruple.

    0 where the two largest distances of every triple are equal, as in a dendrogram; about 1/2 in a normal cloud.

    Example:
        >>> line = np.abs(np.subtract.outer([0.0, 1.0, 2.0], [0.0, 1.0, 2.0]))
        >>> ultrametric_score(line, np.array([[0, 1, 2]]))
        1.0
    """
    i, j, k = chosen.T[:3]
    sides = np.sort(np.stack([distances[i, j], distances[i, k], distances[j, k]]), axis=0)
    reach = float((sides[2] - sides[0]).sum())
    return float((sides[2] - sides[1]).sum()) / reach if reach > 0 else 0.0


def cophenetic_correlation(distances: Array) -> float:
    """Correlation of the distances with those in the dendrogram of their average linkage; 1 for an ultrametric.

    Example:
        >>> round(cophenetic_correlation(np.array([[0.0, 1, 3], [1, 0, 3], [3, 3, 0]])), 12)
        1.0
    """
    pairs = squareform(distances, checks=False)
    merged = cophenet(linkage(pairs, "average"))
    spread = float(pairs.std() * merged.std())
    return float(((pairs - pairs.mean()) * (merged - merged.mean())).mean()) / spread if spread > 0 else 0.0


def narrowest_gap(distances: Array) -> float:
    """How dense groups are against the widest gap between two of them; small where groups lie apart.

    Single linkage of the distances, none taken for less than those to the fourth neighbours of its two points, as the
    sparse edges of a cloud would otherwise count as gaps. Of merges between groups, which hold at least five points and
    a fiftieth of all, the highest: the median distance of a fourth neighbour over its height.
    """
    size = len(distances)
    core = np.partition(distances, _NEIGHBOUR, axis=1)[:, _NEIGHBOUR]
    reach = np.maximum(distances, np.maximum(core[:, None], core))
    np.fill_diagonal(reach, 0.0)
    merges = linkage(squareform(reach, checks=False), "single")
    members = np.concatenate([np.ones(size), merges[:, 3]])
    smaller = members[merges[:, :2].astype(np.intp)].min(1)
    heights = merges[smaller >= max(_GROUP, size // 50), 2]
    typical, widest = float(np.median(core)), float(heights.max(initial=0.0))
    return typical / widest if widest > 0 and typical > 0 else 1.0


def off_the_path(distances: Array) -> float:
    """Share of points that are not on the longest path of the minimum spanning tree: 0 for points along a curve.

    Example:
        >>> line = np.array([0.0, 1.0, 2.5, 3.0])
        >>> off_the_path(np.abs(np.subtract.outer(line, line)))
        0.0
    """
    tree = minimum_spanning_tree(np.maximum(distances, 1e-300))  # 0 would be no edge
    steps = shortest_path(tree, directed=False, unweighted=True)
    return 1 - (float(steps.max()) + 1) / len(distances)
