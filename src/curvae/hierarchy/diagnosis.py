"""Is there a hierarchy in a table, in distances, in a graph? The answer in one sentence, with its figures: surrogates
without one, Gromov's δ, and a test for groups within groups.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.cluster.hierarchy import cophenet, linkage, to_tree
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree, shortest_path
from scipy.spatial.distance import squareform
from scipy.special import bdtrik, ndtri

from ..data.files import count
from ..data.graph_data import Edges, Graph, link_matrix
from ..errors import CurvaeError
from ..maps.faithfulness import largest_component
from ..maps.statistics import (
    LEVEL,
    ROUNDING,
    Array,
    Index,
    Metric,
    Rows,
    check_distances,
    check_squares,
    gram_of_distances,
)

__all__ = [
    "FEWEST",
    "SAMPLE",
    "SURROGATES",
    "Delta",
    "Diagnosis",
    "Nesting",
    "Outcome",
    "PairDistances",
    "Score",
    "Spectrum",
    "Surrogate",
    "Verdict",
    "check_points",
    "compare_to_surrogates",
    "cophenetic_correlation",
    "diagnose",
    "diagnose_distances",
    "diagnose_graph",
    "diagnose_rows",
    "distances_of_gram",
    "estimate_delta",
    "exact_delta",
    "examine_links",
    "examine_points",
    "flipped",
    "four_point_parts",
    "four_point_ratio",
    "four_point_score",
    "four_sums",
    "narrowest_gap",
    "off_the_path",
    "permuted",
    "quadruples",
    "rotated",
    "some_quadruples",
    "swap_ends",
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

PairDistances = Callable[[Index, Index], Array]


def quadruples(size: int, count: int, random: np.random.Generator) -> Index:
    """Draw sets of four different numbers below `size`, independent and equally likely, (count, 4).

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
    """Return the three sums of opposite distances of each quadruple, ascending, (3, count)."""
    i, j, k, m = chosen.T
    sums = [distance(i, j) + distance(k, m), distance(i, k) + distance(j, m), distance(i, m) + distance(j, k)]
    return np.sort(sums, axis=0)


def exact_delta(distances: ArrayLike) -> float:
    """Compute δ of a distance matrix, exactly: the max–min product of Gromov products from every base point.

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
        """Compute 2·value/diameter: 0 in a tree, at most 1."""
        return 2 * value / self.diameter if self.diameter else 0.0


def estimate_delta(
    distance: PairDistances,
    size: int,
    count: int = 50_000,
    seed: int = 0,
    exact_up_to: int = 150,
    swept: int = 1_000_000,
) -> Delta:
    """Estimate mean, upper quantile and largest δ of quadruples, from quadruples drawn independently of each other.

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

    random = np.random.default_rng(seed)
    chosen = quadruples(size, count, random)
    block = 1 << 16  # quadruples whose distances are held at once
    sums = np.concatenate([four_sums(distance, chosen[k : k + block]) for k in range(0, count, block)], 1)
    if not np.isfinite(sums).all():
        raise CurvaeError("some distances are not finite numbers; fix them, or use one component of the graph")
    level = 0.95
    values = np.sort((sums[2] - sums[1]) / 2)
    mean, half = float(values.mean()), float(ndtri((1 + level) / 2) * values.std() / math.sqrt(count))
    low, high = np.ceil(bdtrik(((1 - level) / 2, (1 + level) / 2), count, 0.95))
    exact = size <= exact_up_to
    if exact:
        places = np.arange(size)
        table = np.stack([distance(np.full(size, i), places) for i in places])
        largest, diameter, exceeding = exact_delta(table), float(table.max()), 0.0
    else:
        largest, exceeding = float(values[-1]), 1 - (1 - level) ** (1 / count)
        diameter = max(_diameter(distance, size, swept, random), float(sums.max()) / 2)
    return Delta(
        mean,
        (max(0.0, mean - half), mean + half),
        float(values[math.ceil(0.95 * count) - 1]),
        (float(values[max(0, int(low) - 1)]), float(values[min(count - 1, int(high))])),
        largest,
        exact,
        exceeding,
        diameter,
        count,
    )


def _diameter(distance: PairDistances, size: int, most: int, random: np.random.Generator) -> float:
    """Return the largest of all distances where there are no more than `most`.

    Otherwise the largest met on walks from farthest point to farthest point, among `most` points.
    """
    if size * (size - 1) // 2 <= most:
        return float(distance(*np.triu_indices(size, 1)).max())
    points = random.permutation(size)[:most]
    found = 0.0
    for place in points[:4]:
        for _ in range(3):
            row = distance(np.full(len(points), place), points)
            place = points[row.argmax()]
            found = max(found, float(row.max()))
    return found


# Data without a hierarchy that have the covariance spectrum of given data.
#
# Everything is done on the Gram matrix of the centred points, G = −½·J·D²·J with J = 1 − 11ᵀ/n, which any distances D
# have. Its eigenvectors U and eigenvalues Λ are the principal scores; eigenvalues below 0 belong to distances that no
# Euclidean space has, and are kept. Three kinds of surrogates keep Λ:
#
# - **rotated**: U becomes a random frame. For normal rows, whatever their covariance, G and its rotation have the same
#   distribution, so a test against rotations is exact.
# - **flipped**: every score gets a random sign. The distribution stays the same for clouds that are symmetric about
#   their axes: spheres, boxes, grids, heavy tails.
# - **permuted**: scores of one axis are dealt to other rows. The distribution stays the same where axes are
#   independent.
#
# A table has columns as well. Its surrogates of a fourth kind keep the distribution of every column, which says much
# where values are sparse or skewed, and how rows differ in their means:
#
# - **dealt**: values of every column are dealt among rows of about the same mean.
#
# Data are compared with them by scores of a hierarchy, which take distances or inner products of all pairs of a few
# hundred points.

_COUNT = 79  # surrogates of a kind: the smallest p-value is 1/80
_CLEAR = 6  # as many surrogates that look more like a hierarchy than the data decide about their kind


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
        """Decompose Gram matrices, which are centred here."""
        found = []
        for gram in grams:
            centred = gram - gram.mean(0)
            centred -= centred.mean(1, keepdims=True)
            values, vectors = np.linalg.eigh((centred + centred.T) / 2)
            kept = np.abs(values) > 1e-9 * np.abs(values).max(initial=0.0)  # others are rounding
            found.append((vectors[:, kept], np.sqrt(np.abs(values[None, kept])), np.sign(values[None, kept])))

        def stack(arrays: Sequence[Array]) -> Array:
            shape = np.max([array.shape for array in arrays], axis=0)
            return np.stack(
                [np.pad(a, [(0, most - n) for most, n in zip(shape, a.shape, strict=True)]) for a in arrays]
            )

        axes, scale, sign = map(stack, zip(*found, strict=True))
        return cls(axes, scale, sign, stack([np.ones((len(gram), 1)) for gram in grams]))

    def grams(self, axes: Array | None = None) -> Array:
        """Return the Gram matrices, (sets, points, points), with these axes in place of their own."""
        scores = (self.axes if axes is None else axes) * self.scale
        return (scores * self.sign) @ scores.swapaxes(1, 2)


def rotated(spectrum: Spectrum, random: np.random.Generator) -> Array:
    """Draw Gram matrices of the same spectrum whose axes are a random frame of the centred space."""
    frame = random.standard_normal(spectrum.axes.shape) * spectrum.real
    frame -= spectrum.real * (frame.sum(1, keepdims=True) / spectrum.real.sum(1, keepdims=True))
    # Axes beyond those of a set have no length, whatever the decomposition makes of them.
    return spectrum.grams(np.linalg.qr(frame)[0])


def flipped(spectrum: Spectrum, random: np.random.Generator) -> Array:
    """Draw Gram matrices from the same scores, each with a random sign."""
    return spectrum.grams(np.where(random.random(spectrum.axes.shape) < 0.5, spectrum.axes, -spectrum.axes))


def permuted(spectrum: Spectrum, random: np.random.Generator) -> Array:
    """Draw Gram matrices from the same scores, those of every axis dealt to other points."""
    order = np.argsort(random.random(spectrum.axes.shape) + 1 - spectrum.real, axis=1)  # what fills up stays last
    return spectrum.grams(np.take_along_axis(spectrum.axes, order, 1))


def dealt(values: Array, blocks: NDArray[np.intp], random: np.random.Generator) -> Array:
    """Deal the columns of a table, each for itself, among rows of about the same mean.

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
    turn = np.arange(rows) // 10  # so many have about the same mean
    turn[turn == turn[-1]] = max(0, turn[-1] - (rows % 10 > 0))  # a rest joins those before it
    # Blocks share some of 256 ways of dealing, which are drawn anew each time.
    count = int(blocks[-1]) + 1
    ways = np.argsort(random.random((rows, min(count, 256))) + turn[:, None], axis=0)
    chosen = random.integers(256, size=count) if count > 256 else np.arange(count)
    return np.take_along_axis(values[np.argsort(values.mean(1))], ways[:, chosen[blocks]], 0)


Surrogate = Callable[[Spectrum, np.random.Generator], Array]
SURROGATES: Sequence[Surrogate] = (rotated, flipped, permuted)


def compare_to_surrogates(observed: float, kinds: Sequence[Callable[[], float]], margin: float = 0.0) -> float:
    """Compute the p-value of a statistic, small where there is a hierarchy: the largest over kinds of surrogates.

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
        while drawn < _COUNT and below < _CLEAR:
            below += bool((1 - margin) * draw() <= observed)
            drawn += 1
        found = max(found, below / drawn if below == _CLEAR else (below + 1) / (drawn + 1))
        if found > 0.1:  # one kind of surrogates decides
            break
    return found


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
    """Choose all quadruples where there are no more than `most`, otherwise so many at random."""
    if math.comb(size, 4) <= most:
        return np.array(list(combinations(range(size), 4)), dtype=np.intp).reshape(-1, 4)
    return quadruples(size, most, random)


def distances_of_gram(gram: Array) -> Array:
    """Compute distances of points from their inner products; where no Euclidean space has them, 0."""
    square = np.diag(gram)
    return np.sqrt(np.maximum(square[:, None] + square - 2 * gram, 0.0))


def four_point_parts(gram: Array, chosen: Index, place: Index | int = 0) -> tuple[float, float]:
    """Return sums over quadruples of S − M and of S − L, of squared distances; see `four_point_score`.

    Arguments:
        gram: inner products of several sets of points, (sets, points, points).
        chosen: quadruples, (count, 4).
        place: set of each quadruple.
    """
    size = gram.shape[-1]
    i, j, k, m = np.ascontiguousarray(chosen.T)
    to_i, to_j, to_k = ((place * size + one) * size for one in (i, j, k))  # where the products with i, j and k begin
    # Squares of lengths are the same in all three sums, so inner products do.
    pairs = ((to_i + j, to_k + m), (to_i + k, to_j + m), (to_i + m, to_j + k))
    sums = np.stack([gram.take(one) + gram.take(other) for one, other in pairs])
    low, high = sums.min(0), sums.max(0)
    middle = sums.sum(0) - low - high
    return 2 * float((middle - low).sum()), 2 * float((high - low).sum())


def four_point_ratio(parts: Sequence[Any]) -> float:
    """Divide the total of S − M by that of S − L, of sets of quadruples as of `four_point_parts`."""
    gap, reach = np.sum(parts, axis=0)
    return float(gap / reach) if reach > 0 else 1.0


def four_point_score(gram: Array, chosen: Index) -> float:
    """Compute Σ(S − M)/Σ(S − L) over quadruples, where S ≥ M ≥ L are the sums of opposite squared distances.

    Squares, since the steps of a process that branches are independent, and squares of independent steps add: squared
    distances are those of a tree when distances are not. 0 where every quadruple is split two against two without
    contradiction, 1/2 where the three sums differ by symmetric noise alone, as in a star of any radii; 1 where no
    quadruple is split at all.

    Example:
        >>> tree = np.array([[3.0, 2, 0, 0], [2, 3, 0, 0], [0, 0, 3, 1], [0, 0, 1, 3]])
        >>> four_point_score(tree, np.array([[0, 1, 2, 3]]))
        0.0
    """
    return four_point_ratio([four_point_parts(gram[None], chosen)])


def ultrametric_score(distances: Array, chosen: Index) -> float:
    """Compute Σ(a − b)/Σ(a − c) over triples, where a ≥ b ≥ c are the distances of the first three of each quadruple.

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
    """Correlate the distances with those in the dendrogram of their average linkage; 1 for an ultrametric.

    Example:
        >>> round(cophenetic_correlation(np.array([[0.0, 1, 3], [1, 0, 3], [3, 3, 0]])), 12)
        1.0
    """
    pairs = squareform(distances, checks=False)
    merged = cophenet(linkage(pairs, "average"))
    scale = float(pairs.std() * merged.std())
    return float(((pairs - pairs.mean()) * (merged - merged.mean())).mean()) / scale if scale > 0 else 0.0


def narrowest_gap(distances: Array) -> float:
    """Measure how dense groups are against the widest gap between two of them; small where groups lie apart.

    Single linkage of the distances, none taken for less than those to the fourth neighbours of its two points, as the
    sparse edges of a cloud would otherwise count as gaps. Of merges between groups, which hold at least five points and
    a fiftieth of all, the highest: the median distance of a fourth neighbour over its height.
    """
    size = len(distances)
    core = np.partition(distances, 4, axis=1)[:, 4]
    reach = np.maximum(distances, np.maximum(core[:, None], core))
    np.fill_diagonal(reach, 0.0)
    merges = linkage(squareform(reach, checks=False), "single")
    members = np.concatenate([np.ones(size), merges[:, 3]])
    smaller = members[merges[:, :2].astype(np.intp)].min(1)
    heights = merges[smaller >= max(5, size // 50), 2]
    typical, widest = float(np.median(core)), float(heights.max(initial=0.0))
    return typical / widest if widest > 0 and typical > 0 else 1.0


def off_the_path(distances: Array) -> float:
    """Compute the share of points off the longest path of the minimum spanning tree: 0 for points along a curve.

    Example:
        >>> line = np.array([0.0, 1.0, 2.5, 3.0])
        >>> off_the_path(np.abs(np.subtract.outer(line, line)))
        0.0
    """
    tree = minimum_spanning_tree(np.maximum(distances, 1e-300))  # 0 would be no edge
    return 1 - (float(shortest_path(tree, directed=False, unweighted=True).max()) + 1) / len(distances)


# The test.
#
# A mixture of k groups without nesting is one whose groups have no structure inside and whose centres are placed
# without structure. The data are called tree-like when such a mixture is refused for every k: for few groups because
# there is structure inside them, for many because their centres are a hierarchy themselves. Groups are those of Ward's
# method.
#
# - Structure **inside** k groups: the four-point score of quadruples that share a group, against surrogates that keep
#   the spectrum of every group. Structure inside k groups refuses mixtures of k and of fewer.
# - Structure **of the centres**: the four-point score of the centres, against centres rotated at random, which keeps
#   their spectrum. It refuses mixtures of just k groups, so it is asked for every k that structure inside did not
#   refuse.
#
# Either test may refuse a given mixture, so both p-values count twice.
#
# The test has little power with few groups: it looks inside seven at least, and where structure shows inside fewer than
# ten it finds about half of the nested mixtures. If it finds no nesting there, it has too few groups to tell.
#
# In a table structure inside few groups must show against dealt columns too, and again when columns are turned into
# normal scores by their ranks: what logarithms would do away with, as the arms of a cloud whose columns span decades,
# is none.

Outcome = Literal["tree-like", "clustered", "flat"]
Verdict = Literal["found", "not found", "too few groups to tell"]

FEWEST = 16  # points

_RUNGS = (7, 10, 14, 20, 29)  # numbers of groups to look inside
_INSIDE = 4  # points that a group has on average on the highest rung, and that it needs to hold a quadruple
_APART = 0.05


@dataclass(frozen=True)
class Nesting:
    """The result of the test.

    Arguments:
        outcome: "tree-like", "clustered" (groups, no nesting found) or "flat".
        p_groups: of there being no groups.
        p_nesting: of there being groups without nesting, or none; 1 where the question did not arise.
        curve: whether the points follow a curve that nothing branches off.
        groups: largest number of groups with structure inside them, 0 where it is less than seven.
        forest: whether it is a graph without a circle.
        few_groups: whether the groups are too few for the test of nesting.
    """

    outcome: Outcome
    p_groups: float
    p_nesting: float
    curve: bool
    groups: int
    forest: bool = False
    few_groups: bool = False

    @property
    def verdict(self) -> Verdict:
        """Whether there are groups of groups."""
        return "found" if self.outcome == "tree-like" else "too few groups to tell" if self.few_groups else "not found"


class _Points:
    """Points with their groups, and the tests on them."""

    def __init__(self, distances: Array, random: np.random.Generator) -> None:
        self.distances = distances
        self.random = random
        self.size = len(distances)
        self.gram = gram_of_distances(distances)
        self._merges = linkage(squareform(distances, checks=False), "ward")
        self._branches = to_tree(self._merges, rd=True)[1]

    def members(self, groups: int) -> list[Index]:
        """Return the points of every group."""
        last = 2 * self.size - groups  # the first merge that is undone
        tops = np.setdiff1d(np.arange(last), self._merges[: last - self.size, :2])
        return [np.array(self._branches[top].pre_order(), dtype=np.intp) for top in tops]

    def inside(self, groups: int, rows: Rows | None = None) -> float:
        """Compute the p-value of no structure inside so many groups.

        With `rows` of a table it must differ from that of dealt columns too.
        """
        most = 160 if groups == 1 else 40
        held = [self.random.permutation(place)[:most] for place in self.members(groups) if len(place) >= _INSIDE]
        found = [(place, self.gram[np.ix_(place, place)]) for place in held]
        # Groups count by their points, not by their width; points of one place have no quadruples to speak of.
        found = [(place, gram / _width(gram)) for place, gram in found if _width(gram) > 0]
        if not found:
            return 1.0
        p_value = self._p_value([gram for _, gram in found], SURROGATES, _APART)
        if rows is None or p_value > LEVEL:
            return p_value
        return max(p_value, self._p_value_of_columns(rows, [place for place, _ in found]))

    def _p_value_of_columns(self, rows: Rows, held: Sequence[Index]) -> float:
        """Compute the p-value of no more structure in groups of rows than when columns are dealt among them."""
        width_of_block = rows.blocks or (1,) * rows.x.shape[1]
        block = np.repeat(np.arange(len(width_of_block)), width_of_block)
        columns = np.flatnonzero(np.isin(block, self.random.permutation(len(width_of_block))[:1000]))
        _, block = np.unique(block[columns], return_inverse=True)
        tables = [rows.x[np.ix_(place, columns)] for place in held]
        whole = [rows.gram(table) for table in tables]
        width = [_width(gram) for gram in whole]
        chosen = self._some_quadruples(whole)

        def score(grams: Sequence[Array]) -> float:
            return four_point_ratio(
                [
                    np.array(four_point_parts(gram[None], part)) / wide
                    for gram, part, wide in zip(grams, chosen, width, strict=True)
                    if wide > 0
                ]
            )

        def draw() -> float:
            return score([rows.gram(dealt(table, block, self.random)) for table in tables])

        return compare_to_surrogates(score(whole), [draw], _APART)

    def _some_quadruples(self, grams: Sequence[Array]) -> list[Index]:
        """Choose quadruples of each set, in proportion to its points."""
        total = sum(map(len, grams))
        return [some_quadruples(len(g), max(1, 3000 * len(g) // total), self.random) for g in grams]

    def _p_value(self, grams: Sequence[Array], kinds: Sequence[Surrogate], margin: float = 0.0) -> float:
        """Compute the p-value of no more structure in these sets of points than in surrogates."""
        parts, alikes = [], dict[int, list[int]]()  # places of sets of about the same size, which are stacked
        for number, gram in enumerate(grams):
            alikes.setdefault(len(gram).bit_length(), []).append(number)
        share = self._some_quadruples(grams)
        for alike in alikes.values():
            chosen = [share[place] for place in alike]
            place = np.repeat(np.arange(len(alike)), list(map(len, chosen)))
            parts.append((Spectrum.of_grams([grams[k] for k in alike]), np.concatenate(chosen), place))

        def score(kind: Surrogate | None = None) -> float:
            return four_point_ratio(
                [
                    four_point_parts(s.grams() if kind is None else kind(s, self.random), chosen, place)
                    for s, chosen, place in parts
                ]
            )

        return compare_to_surrogates(score(), [partial(score, kind) for kind in kinds], margin)

    def centres(self, groups: int) -> Array:
        """Compute inner products of the centres of so many groups."""
        mean = np.stack([np.bincount(place, minlength=self.size) / len(place) for place in self.members(groups)])
        return mean @ self.gram @ mean.T

    def among(self, groups: int) -> float:
        """Compute the p-value of centres placed without structure."""
        return self._p_value([self.centres(groups)], (rotated,))

    def apart(self, curve: bool) -> float:
        """Compute the p-value of no gap between groups; points along a curve are compared with even ones."""
        some = self.random.permutation(self.size)[:240]
        distances = self.distances[np.ix_(some, some)]
        spectrum = Spectrum.of_grams([gram_of_distances(distances)])

        def even() -> float:
            place = self.random.random(len(some))
            return narrowest_gap(np.abs(np.subtract.outer(place, place)))

        def like(kind: Surrogate) -> float:
            return narrowest_gap(distances_of_gram(kind(spectrum, self.random)[0]))

        kinds = [even] if curve else [partial(like, kind) for kind in SURROGATES]
        return compare_to_surrogates(narrowest_gap(distances), kinds, _APART)


def _width(gram: Array) -> float:
    """Compute the mean squared distance from the centre."""
    return float(np.trace(gram)) / len(gram) - float(gram.mean())


def check_points(distances: Array) -> None:
    """Raise where there is nothing to test."""
    if len(distances) < FEWEST:
        raise CurvaeError(f"{len(distances)} points are too few to test for a hierarchy; give at least {FEWEST}")
    if not distances.any():
        raise CurvaeError("all points are the same, so there is nothing to test; give points that differ")


def examine_points(distances: Array, random: np.random.Generator, rows: Rows | None = None) -> Nesting:
    """Test a few hundred points, given by their distances, for groups and for groups within groups.

    Arguments:
        distances: of all pairs, symmetric with zeros on the diagonal.
        random: source of the surrogates.
        rows: the points as rows of a table, dense, where they are that.

    Example:
        >>> points = np.random.default_rng(0).normal(size=(60, 5))
        >>> examine_points(np.linalg.norm(points[:, None] - points, axis=-1), np.random.default_rng(1)).outcome
        'flat'
    """
    check_points(distances)
    points = _Points(distances, random)
    off = [off_the_path(distances_of_gram(points.centres(k))) for k in (12, 17, 24, 34) if k <= points.size // 3]
    curve = bool(off) and float(np.mean(off)) < 0.15  # whether the centres of groups lie along a path
    whole, first = _few_groups(points, rows)
    p_groups = 1.0 if curve else min(1.0, 3 * min(whole, first))
    if p_groups > LEVEL:
        p_groups = min(p_groups, 3 * points.apart(curve))
    if p_groups > LEVEL:
        return Nesting("flat", p_groups, 1.0, curve, 0)
    p_nesting, groups = (1.0, 0) if curve else _climb(points, max(whole, 2 * first))
    outcome: Outcome = "tree-like" if p_nesting <= LEVEL else "clustered"
    return Nesting(outcome, p_groups, p_nesting, curve, groups, few_groups=2 * first > LEVEL or 0 < groups < 10)


def _few_groups(points: _Points, rows: Rows | None) -> tuple[float, float]:
    """Compute p-values of no structure inside one group, and inside the fewest that are looked into."""
    views = [(points, rows)]
    if rows is not None and rows.measures_lengths:
        scores = rows.normal_scores()
        views.append((_Points(scores.table(), points.random), scores))

    def p_value(groups: int) -> float:
        found = 0.0
        for view, own in views:
            found = max(found, view.inside(groups, own)) if found <= LEVEL else found
        return found

    return p_value(1), p_value(_RUNGS[0])


def _climb(points: _Points, p_value: float) -> tuple[float, int]:
    """Compute the p-value of every mixture without nesting, and the largest number of groups with structure inside."""
    if p_value > LEVEL:
        return min(1.0, p_value), 0
    groups = _RUNGS[0]
    for below, rung in pairwise(_RUNGS):
        if points.size < _INSIDE * rung or (inside := 2 * points.inside(rung)) > LEVEL:
            groups = below
            break
        p_value, groups = max(p_value, inside), rung
    k = groups + 1
    while k <= points.size // 4 and p_value <= LEVEL:
        p_value = max(p_value, 2 * points.among(k))
        k = max(k + 1, int(1.25 * k))
    return min(1.0, p_value), groups


# Is a graph like a tree, beyond what the degrees of its nodes explain?
#
# The surrogates are graphs with the same degrees, made by swapping ends of links. A graph is called tree-like when it
# has fewer links that close a circle than its surrogates, or when the mean δ of its paths, in units of their mean
# length, is smaller; in both cases by a quarter at least. It is called clustered when more neighbours of a node are
# linked to each other than in its surrogates. These are three tests, so each p-value counts three times.
#
# A graph without a circle is a tree, or several, whatever its surrogates are: it is called tree-like where something
# branches, and flat where its parts are stars and paths.

_MARGIN = 0.25  # paths on a grid or between near points are a little more like a tree than random ones


def swap_ends(edges: Edges, nodes: int, random: np.random.Generator, sweeps: int = 10) -> Edges:
    """Draw a random graph with the same degrees, without loops and double links.

    In every sweep all links are paired at random and each pair {a, b}, {c, d} proposes {a, d}, {c, b}. A pair is left
    alone when it would make a loop, or when any of its old or new links is an old or new link of another pair too.
    That rule reads the same backwards, so all graphs with these degrees are equally likely in the long run.

    Arguments:
        edges: pairs i < j of nodes, each once.
        nodes: their number.
        random: source of the swaps.
        sweeps: how often every link gets the chance.

    Example:
        >>> ring = np.array([[0, 1], [1, 2], [2, 3], [3, 4], [0, 4]])
        >>> np.bincount(swap_ends(ring, 5, np.random.default_rng(0)).ravel()).tolist()
        [2, 2, 2, 2, 2]
    """
    links, half = edges.copy(), len(edges) // 2
    for _ in range(sweeps):
        order = random.permutation(len(links))
        first, second = links[order[:half]], links[order[half : 2 * half]]
        turned = np.where(random.random((half, 1)) < 0.5, second, second[:, ::-1])
        new = np.sort(np.stack([np.stack([first[:, 0], turned[:, 1]], 1), np.stack([turned[:, 0], first[:, 1]], 1)]))
        loops = (new[..., 0] == new[..., 1]).any(0)
        # Of an odd number one link is without a pair.
        every = np.concatenate([first, second, *new, links[order[2 * half :]]])
        keys = every[:, 0] * nodes + every[:, 1]
        values, counts = np.unique(keys, return_counts=True)
        shared = (counts[np.searchsorted(values, keys[: 4 * half])] > 1).reshape(4, half).any(0)
        swapped = np.flatnonzero(~(loops | shared))
        links[order[swapped]], links[order[half + swapped]] = new[0][swapped], new[1][swapped]
    return links[np.lexsort(links.T[::-1])]


def path_lengths(adjacency: csr_array, place: Index) -> Array:
    """Return links on the shortest way between all of these nodes, of a symmetric matrix of links; weights do not
    count.
    """
    return shortest_path(adjacency, directed=False, unweighted=True, indices=place)[:, place]


def _delta(adjacency: csr_array, random: np.random.Generator) -> float:
    """Mean δ of paths over their mean length, among some nodes of the largest component."""
    _, component = connected_components(adjacency, directed=False)
    inside = np.flatnonzero(component == np.bincount(component).argmax())
    if len(inside) < 4:
        return 0.0
    place = random.permutation(inside)[:80]
    d = path_lengths(adjacency, place)
    sums = four_sums(lambda i, j: d[i, j], quadruples(len(place), 3000, random))
    return float((sums[2] - sums[1]).mean() / 2 / d[np.triu_indices(len(d), 1)].mean())


def _circles(adjacency: csr_array) -> float:
    links, nodes = adjacency.nnz / 2, adjacency.shape[0]
    parts, _ = connected_components(adjacency, directed=False)
    return float(links - nodes + parts) / links if links else 0.0


def _transitivity(adjacency: csr_array) -> float:
    degree = np.diff(adjacency.indptr).astype(np.float64)
    pairs = float((degree * (degree - 1)).sum())
    return float((adjacency @ adjacency).multiply(adjacency).sum()) / pairs if pairs else 0.0


def examine_links(graph: Graph, random: np.random.Generator) -> tuple[Nesting, list[Score]]:
    """Test a graph against graphs with the same degrees.

    Arguments:
        graph: its weights do not count.
        random: source of the surrogates.

    Example:
        >>> tree = Graph(np.arange(63).astype(str), np.array([[(i - 1) // 2, i] for i in range(1, 63)]))
        >>> examine_links(tree, np.random.default_rng(0))[0].outcome
        'tree-like'
    """
    links = graph.edges

    def surrogate() -> csr_array:
        nonlocal links
        links = swap_ends(links, graph.n_nodes, random)
        return link_matrix(links, graph.n_nodes)

    own = link_matrix(graph.edges, graph.n_nodes)
    p_values, scores = [], []
    for name, measure, sign, margin, meaning in (
        ("mean δ over mean path", partial(_delta, random=random), 1, _MARGIN, "0 in a tree"),
        ("links that close a circle", _circles, 1, _MARGIN, "share of all links; 0 in a tree"),
        ("transitivity", _transitivity, -1, 0.0, "share of pairs of neighbours that are linked; high in groups"),
    ):
        drawn: list[float] = []

        def draw(
            measure: Callable[[csr_array], float] = measure, sign: int = sign, drawn: list[float] = drawn
        ) -> float:
            drawn.append(measure(surrogate()))
            return sign * drawn[-1]

        value = measure(own)
        p_values.append(min(1.0, 3 * compare_to_surrogates(sign * value, [draw], margin)))
        scores.append(Score(name, value, tuple(drawn), meaning))
    p_tree = min(p_values[:2])
    outcome: Outcome = "tree-like" if p_tree <= LEVEL else "clustered" if p_values[2] <= LEVEL else "flat"
    forest = _circles(own) == 0
    if forest:  # it branches where some part is neither a star nor a path
        _, component = connected_components(own, directed=False)
        degree = np.diff(own.indptr)
        branches = np.bincount(component, degree > 1)[component[degree > 2]] > 1
        outcome = "tree-like" if branches.any() else "flat"
    return Nesting(outcome, min(p_values), p_tree, False, graph.n_nodes // 2, forest), scores


SAMPLE = 400  # points that are tested
_MOST = 50_000  # quadruples that are drawn for δ
_DRAWN = 39  # surrogates beside a score

# Things, what surrogates keep, what was found.
_WORDS = {
    "table": ("rows", "beyond what the covariance alone explains", "form groups within groups"),
    "distances": ("points", "beyond what the spectrum alone explains", "form groups within groups"),
    "graph": ("nodes", "beyond what the degrees alone explain", "hang together as in a tree"),
}


@dataclass(frozen=True)
class Diagnosis:
    """What was found.

    Arguments:
        kind: "table", "distances" or "graph".
        size: number of points.
        nesting: outcome and p-values of the test.
        delta: Gromov's δ.
        scores: each beside its surrogates.
        sample: places of the points that were tested.
        merges: average linkage of these points, as scipy gives it.
        notes: what was left out, one sentence each.
    """

    kind: Literal["table", "distances", "graph"]
    size: int
    nesting: Nesting
    delta: Delta
    scores: tuple[Score, ...]
    sample: Index
    merges: Array
    notes: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        return self.nesting.outcome

    @property
    def p_value(self) -> float:
        """Of there being no hierarchy: neither groups, nor groups within groups."""
        return max(self.nesting.p_groups, self.nesting.p_nesting)

    @property
    def suggested(self) -> tuple[float, ...]:
        """Values of c·σ0² to try in two latent dimensions.

        The prior lies around the radius ρ = c·σ0², in units of the curvature, on a circle of length 2π·sinh ρ. With two
        units of it for each of K groups, sinh ρ = K/π. That value, and a third of it.
        """
        if self.outcome == "flat":
            return (0.0,)
        room = math.asinh(2 * max(4, self.nesting.groups) / math.pi)
        return float(f"{room / 3:.1g}"), float(f"{room:.2g}")

    @property
    def sentence(self) -> str:
        """The answer."""
        p_groups, p_nesting = f"{self.nesting.p_groups:.2g}", f"{self.nesting.p_nesting:.2g}"
        things, beyond, found = _WORDS[self.kind]
        advice = f"try c·σ0² = {' and '.join(f'{value:g}' for value in self.suggested)}"
        if self.kind != "distances":
            advice += " with curvae compare"
        if self.nesting.forest and self.outcome == "flat":
            return (
                "Flat: the graph has no circle, but no part of it is more than a star or a path, so nothing branches; "
                "use c·σ0² = 0, the ordinary VAE."
            )
        if self.nesting.forest and self.nesting.p_nesting > LEVEL:
            return (
                "Tree-like: the graph has no circle, so it is a tree or several; graphs of the same degrees are "
                f"much the same (p = {p_nesting}); {advice}."
            )
        if self.outcome == "tree-like":
            return f"Tree-like (p = {self.p_value:.2g}): {things} {found}, {beyond}; {advice}."
        if self.nesting.verdict == "too few groups to tell":
            cophenetic = self.scores[-1]
            return (
                f"Clustered, too few groups to tell whether they are nested (p = {p_groups} for groups): {things} form "
                f"groups, {beyond}; their {cophenetic.name} is {cophenetic.value:.2f}, that of surrogates "
                f"{cophenetic.surrogate:.2f}; {advice}."
            )
        if self.outcome == "clustered":
            return (
                f"Clustered, nesting not found (p = {p_groups} for groups, {p_nesting} for nesting): {things} form "
                f"groups, {beyond}, and no groups of groups were found; {advice}."
            )
        why = f"the {things} follow a curve and nothing branches off" if self.nesting.curve else f"nothing {beyond}"
        return f"Flat (p = {p_groups}): {why}; use c·σ0² = 0, the ordinary VAE."

    def to_json(self) -> dict[str, Any]:
        """Every figure, as JSON values."""
        return {
            "outcome": self.outcome,
            "nesting": self.nesting.verdict,
            "sentence": self.sentence,
            "p_value": self.p_value,
            "p_groups": self.nesting.p_groups,
            "p_nesting": self.nesting.p_nesting,
            "curve": self.nesting.curve,
            "forest": self.nesting.forest,
            "suggested_c_sigma0_squared": list(self.suggested),
            "kind": self.kind,
            "size": self.size,
            "tested": len(self.sample),
            "scores": {score.name: {"value": score.value, "surrogates": score.surrogate} for score in self.scores},
            "delta": {
                **{name: list(x) if isinstance(x, tuple) else x for name, x in vars(self.delta).items()},
                "relative_mean": self.delta.relative(self.delta.mean),
                "relative_largest": self.delta.relative(self.delta.largest),
            },
            "notes": list(self.notes),
        }


def diagnose(data: Any, metric: Metric = "euclidean", seed: int = 0) -> Diagnosis:
    """Diagnose a table of rows, dense or sparse, or a `curvae.data.Graph`; distances go to `diagnose_distances`.

    Columns should be in comparable units: `curvae diagnose` brings them to unit variance first, as training does.

    Example:
        >>> diagnose(np.random.default_rng(0).normal(size=(80, 5))).outcome
        'flat'
    """
    return diagnose_graph(data, seed) if isinstance(data, Graph) else diagnose_rows(Rows(data, metric), seed)


def diagnose_rows(rows: Rows, seed: int = 0, progress: Callable[[str], None] = lambda step: None) -> Diagnosis:
    """Diagnose a table: the test on 400 rows drawn at random, δ on quadruples of all rows.

    Arguments:
        rows: with their metric.
        seed: of all draws.
        progress: called with the name of each step as it starts.
    """
    if np.ndim(rows.scale) == 0:
        check_squares(max(abs(float(rows.x.min())), abs(float(rows.x.max()))), "the values")
    random = np.random.default_rng(seed)
    sample = np.sort(random.permutation(len(rows))[:SAMPLE])
    most = int(4e7 / max(1, rows.x.shape[1]))  # δ and the diameter look at so many values
    drawn = rows.sample(sample)
    table = drawn.table()
    pairs = rows.pairs if len(rows) > SAMPLE else lambda i, j: table[i, j]
    return _diagnose("table", "row", table, sample, pairs, len(rows), most, random, progress, drawn)


def diagnose_distances(distances: Any, seed: int = 0, progress: Callable[[str], None] = lambda step: None) -> Diagnosis:
    """Diagnose points given by their distances.

    Arguments:
        distances: of all pairs, symmetric with zeros on the diagonal.
        seed: of all draws.
        progress: called with the name of each step as it starts.

    Example:
        >>> place = np.random.default_rng(0).normal(size=(80, 3))
        >>> diagnose_distances(np.linalg.norm(place[:, None] - place, axis=-1)).outcome
        'flat'
    """
    d = check_distances(distances)
    random = np.random.default_rng(seed)
    sample = np.sort(random.permutation(len(d))[:SAMPLE])
    table = d[np.ix_(sample, sample)]
    found = _diagnose("distances", "point", table, sample, lambda i, j: d[i, j], len(d), _MOST, random, progress)
    i, j, k, _ = quadruples(len(d), _MOST, np.random.default_rng(seed)).T
    low, middle, high = np.sort(np.stack([d[i, j], d[i, k], d[j, k]]), axis=0)
    if broken := int((high - low - middle > ROUNDING * float(d.max())).sum()):
        note = (
            f"{100 * broken / _MOST:.3g} % of {_MOST:,} triples drawn violate the triangle inequality: these are "
            "dissimilarities, and the relative δ may exceed 1."
        )
        found = replace(found, notes=(*found.notes, note))
    return found


def _diagnose(
    kind: Literal["table", "distances"],
    thing: str,
    table: Array,
    sample: Index,
    pairs: PairDistances,
    size: int,
    most: int,
    random: np.random.Generator,
    progress: Callable[[str], None],
    rows: Rows | None = None,
) -> Diagnosis:
    check_points(table)  # before the first step is reported
    progress("test")
    nesting = examine_points(table, random, rows)
    progress("scores")
    scores = tuple(_scores(table, random))
    progress("δ")
    delta = estimate_delta(pairs, size, min(max(most, 2000), _MOST), int(random.integers(2**32)), swept=max(most, 1000))
    merges = linkage(squareform(table, checks=False), "average")
    drawn = f"{len(sample):,} of {count(size, thing)} were drawn at random for the test and the scores."
    return Diagnosis(kind, size, nesting, delta, scores, sample, merges, (drawn,) if size > len(sample) else ())


def _scores(table: Array, random: np.random.Generator) -> Iterator[Score]:
    chosen = some_quadruples(len(table), 10_000, random)
    spectrum = Spectrum.of_grams([gram_of_distances(table)])

    def scores(gram: Array, distances: Array) -> tuple[float, float, float]:
        return (
            four_point_score(gram, chosen),
            ultrametric_score(distances, chosen),
            cophenetic_correlation(distances),
        )

    made = [scores(spectrum.grams()[0], table)]
    for _ in range(_DRAWN):
        gram = rotated(spectrum, random)[0]
        made.append(scores(gram, distances_of_gram(gram)))
    meanings = {
        "four-point score": "0 in a tree, 0.5 in noise",
        "ultrametric score": "0 in a dendrogram, about 0.5 in noise",
        "cophenetic correlation": "1 in a dendrogram",
    }
    for (value, *drawn), (name, meaning) in zip(zip(*made, strict=True), meanings.items(), strict=True):
        yield Score(name, value, tuple(drawn), meaning)


def diagnose_graph(graph: Graph, seed: int = 0, progress: Callable[[str], None] = lambda step: None) -> Diagnosis:
    """Diagnose a graph: the test against graphs with the same degrees, δ of paths in the largest component.

    Arguments:
        graph: its weights do not count.
        seed: of all draws.
        progress: called with the name of each step as it starts.
    """
    random = np.random.default_rng(seed)
    if graph.directed:
        raise CurvaeError(
            "a graph is tested for a hierarchy by paths in either direction; load it without `directed=True`"
        )
    if graph.n_nodes < FEWEST:
        raise CurvaeError(f"{graph.n_nodes} nodes are too few to test for a hierarchy; give at least {FEWEST}")
    if not graph.n_edges:
        raise CurvaeError("a graph without edges has no hierarchy; give one with edges")
    inside, notes = largest_component(graph), []
    if len(inside) < 4:
        raise CurvaeError(f"the largest component has {count(len(inside), 'node')}, and δ needs four; give more edges")
    if len(inside) < graph.n_nodes:
        notes.append(f"δ is that of the largest component, {len(inside):,} of {count(graph.n_nodes, 'node')}.")
    progress("test")
    nesting, scores = examine_links(graph, random)
    nodes = np.sort(random.permutation(inside)[:1000])
    if len(nodes) < len(inside):
        notes.append(f"δ is that of {len(nodes):,} nodes drawn at random from {len(inside):,}.")
    progress("δ")
    paths = path_lengths(graph.adjacency(), nodes)
    delta = estimate_delta(lambda i, j: paths[i, j], len(nodes), _MOST, int(random.integers(2**32)))
    chosen = np.sort(random.permutation(len(nodes))[:SAMPLE])
    merges = linkage(squareform(paths[np.ix_(chosen, chosen)], checks=False), "average")
    return Diagnosis("graph", graph.n_nodes, nesting, delta, tuple(scores), nodes[chosen], merges, tuple(notes))
