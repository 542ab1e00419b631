"""How faithful is a map: which neighbours and distances of the data does it keep, and are they more than PCA keeps?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self, TypeAlias, get_args

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array
from scipy.sparse.csgraph import dijkstra
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from ..data import Graph, memory
from ..data.graph_data import link_matrix, steps_between
from ..errors import CurvaeError
from ..geometry import PoincareBall
from .embedding import Embedding
from .statistics import (
    Array,
    Index,
    Rows,
    check_squares,
    euclidean,
    graph_of_table,
    mean_interval,
    principal_axes,
    rank_correlation,
)

__all__ = [
    "FEWEST",
    "Agreement",
    "Faithfulness",
    "Figures",
    "GraphFaithfulness",
    "GraphFigures",
    "Kept",
    "MapDistance",
    "Places",
    "Ranks",
    "compare_kept",
    "faithfulness",
    "figures_of_maps",
    "graph_faithfulness",
    "label_accuracy",
    "largest_component",
    "neighbour_ranks",
    "places_of",
]


# Distances on any map.

MapDistance: TypeAlias = Literal["euclidean", "poincare", "lorentz"] | Callable[[Array, Array], Array]


@dataclass(frozen=True)
class Places:
    """Where rows lie on a map, with its distances.

    Arguments:
        size: number of rows.
        dim: of the map.
        measure: from numbers of rows and of others to the table of their distances.
    """

    size: int
    dim: int
    measure: Callable[[Index, Index], Array]

    def table(self, rows: Index, columns: Index) -> Array:
        """Return the distances of these rows to those."""
        found = self.measure(rows, columns)
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
        return Places(len(places), places.dim, lambda rows, others: places.take(rows).distances(places.take(others)))
    points = np.asarray(places, dtype=np.float64)
    if points.ndim != 2 or not points.shape[1]:
        raise CurvaeError(f"a map of shape {points.shape} has no coordinates; give (rows, dimensions)")
    if not (finite := np.isfinite(points).all(1)).all():
        raise CurvaeError(f"row {int(np.argmin(finite)) + 1} of the map has no finite coordinates; leave it out")
    if callable(distance):
        return Places(len(points), points.shape[1], lambda rows, others: distance(points[rows], points[others]))
    # Units of a power of two close to the largest coordinate: exact, and squares neither overflow nor vanish.
    exponent = int(np.frexp(np.abs(points).max(initial=0.0))[1])
    if distance == "euclidean":
        scaled = np.ldexp(points, -exponent)
        scaled -= scaled.mean(0)
        return Places(len(points), points.shape[1], lambda rows, others: euclidean(scaled[rows], scaled[others]))
    if abs(exponent) > 500:  # beyond it squares overflow or vanish
        raise CurvaeError(
            f"the largest coordinate of the map is {np.abs(points).max():.2g}, too large or too small for distances on "
            'the hyperboloid; use `distance="euclidean"`'
        )
    if distance == "poincare":
        if not (inside := (points**2).sum(1) < 1).all():
            raise CurvaeError(
                f"row {int(np.argmin(inside)) + 1} of the map is outside the unit ball; scale the ball to radius 1, or "
                'use `distance="euclidean"` or `distance="lorentz"`'
            )
        space = PoincareBall(points.shape[1]).to_lorentz(torch.from_numpy(points)).numpy()
    elif distance == "lorentz":
        time, space = points[:, 0], points[:, 1:]
        has_time = space.shape[1] and np.allclose(time, np.sqrt(1 + (space**2).sum(1)), rtol=1e-3, atol=0)
        space = space if has_time else points
    else:
        raise CurvaeError(f"distance is {distance!r}; use one of {', '.join(get_args(get_args(MapDistance)[0]))}")
    return places_of(Embedding(space, np.zeros(len(space)), 1.0))


# How many neighbours two tables of distances have in common, for every number of neighbours at once.
#
# Rank every row's distances to the others, once in the data and once on the map. A pair is among the K nearest in both
# exactly if the larger of its two ranks is at most K, so one histogram of that larger rank holds Q_NX(K), the share of
# the K nearest neighbours that the map keeps, for all K (Lee and Verleysen, 2009).

Ranks = NDArray[np.int32]


def neighbour_ranks(distances: Array, own: Index | None = None) -> Ranks:
    """Rank every candidate among those of its row, 1 for the nearest; equal distances by the order of columns.

    Arguments:
        distances: of some rows to the candidates, (rows, candidates).
        own: column of each row itself, if it is among the candidates; its rank is 0.

    Example:
        >>> neighbour_ranks(np.array([[0.0, 0.7, 0.2], [0.7, 0.0, 0.1]]), own=np.array([0, 1]))
        array([[0, 2, 1],
               [2, 0, 1]], dtype=int32)
    """
    rows, size = distances.shape
    # Distances as whole numbers with the column in the last digits: sorting these is faster than sorting indirectly.
    bits = size.bit_length()
    widest = distances.max(1, keepdims=True, initial=0.0)
    steps = np.rint(distances * (2.0 ** (61 - bits) / np.where(widest > 0, widest, 1.0))).astype(np.int64)
    if own is not None:
        steps[np.arange(rows), own] = -1
    keys = (steps << bits) | np.arange(size)
    keys.sort(1)
    ranks = np.empty((rows, size), np.int32)
    first = 1 if own is None else 0
    np.put_along_axis(ranks, keys & ((1 << bits) - 1), np.arange(first, first + size, dtype=np.int32)[None], 1)
    return ranks


class Agreement:
    """How many neighbours two tables of distances have in common, counted block by block of rows.

    Arguments:
        candidates: among which each row has its neighbours, itself not counted.
        neighbours: of trustworthiness and continuity.

    Attributes:
        larger: histogram of the larger of the two ranks of a pair, for each of ten groups of rows in turn.
        costs: by how far neighbours on the map are none in the data, and neighbours in the data are none on the map.

    References:
        Lee and Verleysen (2009), Quality assessment of dimensionality reduction: rank-based criteria.

    Example:
        >>> counts = Agreement(3, 1)
        >>> counts.add(np.array([[1, 2, 3], [3, 1, 2]]), np.array([[2, 1, 3], [3, 1, 2]]))
        >>> counts.shares.tolist(), counts.k_max, counts.kept.round(6).tolist()
        ([0.5, 1.0, 1.0], 2, [0.75, 1.0])
    """

    def __init__(self, candidates: int, neighbours: int) -> None:
        self.candidates = candidates
        self.neighbours = neighbours
        self.rows = 0
        self.larger = np.zeros((10, candidates + 1), np.int64)
        self.costs = np.zeros(2)

    def add(self, data: Ranks, placed: Ranks) -> None:
        """Count some rows, given their ranks in the data and on the map."""
        groups = (self.rows + np.arange(len(data))) % len(self.larger)
        places = np.maximum(data, placed) + self.larger.shape[1] * groups[:, None]
        self.larger += np.bincount(places.ravel(), minlength=self.larger.size).reshape(self.larger.shape)
        self.rows += len(data)
        for number, (ranks, others) in enumerate(((placed, data), (data, placed))):
            near = others[(ranks >= 1) & (ranks <= self.neighbours)]
            self.costs[number] += np.maximum(near - self.neighbours, 0).sum()

    @property
    def shares(self) -> Array:
        """Q_NX(K), the share of the K nearest neighbours in the data that are among the K nearest on the map, from
        K = 1."""
        return np.cumsum(self.larger.sum(0)[1:]) / (self.rows * np.arange(1, self.candidates + 1))

    @property
    def k_max(self) -> int:
        """The border of near and far: where shares are highest above K/candidates, which a random map reaches."""
        return int(np.argmax(self.shares - np.arange(1, self.candidates + 1) / self.candidates)) + 1

    @property
    def kept(self) -> Array:
        """Qlocal and Qglobal: means of shares up to `k_max` and beyond."""
        return _near_and_far(self.shares, self.k_max)

    @property
    def kept_by_group(self) -> Array:
        """`kept` of each group of rows, (groups, 2), with the border of near and far of all rows."""
        counts = (self.rows + np.arange(len(self.larger))[::-1]) // len(self.larger)
        common = np.cumsum(self.larger[counts > 0, 1:], axis=1)
        return _near_and_far(common / (counts[counts > 0, None] * np.arange(1, self.candidates + 1)), self.k_max)

    @property
    def trust(self) -> list[float]:
        """Trustworthiness and continuity: 1 less the costs, beside those of a map that puts the farthest in place of
        the nearest (Venna and Kaski, 2001)."""
        k = self.neighbours
        return (1 - self.costs / (self.rows * k * (2 * self.candidates - 3 * k + 1) / 2)).tolist()


def _near_and_far(shares: Array, border: int) -> Array:
    """Average shares up to a border and beyond it; 1 where there is nothing beyond, as all are neighbours then."""
    beyond = shares[..., border:].mean(-1) if border < shares.shape[-1] else np.ones(shares.shape[:-1])
    return np.stack([shares[..., :border].mean(-1), beyond], -1)


# What a map keeps of near and far neighbours beside another map, in words.

_WORDS = {1: ("more", "than"), 0: ("as many", "as"), -1: ("fewer", "than")}


@dataclass(frozen=True)
class Kept:
    """Shares of near and far neighbours that a map keeps; 1 is all.

    Arguments:
        qlocal, qglobal: shares of near and far neighbours kept.
        kept_by_group: the same of groups of rows, (groups, 2), by which maps are compared.
        intervals: half-widths of 95 % intervals, where figures are means over random subsets of the rows.
    """

    qlocal: float
    qglobal: float
    kept_by_group: Array = field(repr=False, compare=False, kw_only=True)
    intervals: Mapping[str, float] = field(default_factory=dict, kw_only=True)

    def to_json(self) -> dict[str, Any]:
        """Return every figure, as JSON values."""
        return {
            **{name: value for name, value in vars(self).items() if name not in ("kept_by_group", "intervals")},
            "intervals": dict(self.intervals),
        }

    @classmethod
    def mean(cls, each: Sequence[Self | None], counted: str = "rows", sampled: bool = True) -> Self | None:
        """Average over parts of the rows; None where no part has figures.

        Arguments:
            each: figures of every part.
            counted: names the number of rows, of which the mean has the sum.
            sampled: whether the parts are random subsets of one size, whose means have intervals.
        """
        found = [one for one in each if one is not None]
        if len(found) < 2:
            return found[0] if found else None
        means: dict[str, Any] = {counted: sum(getattr(one, counted) for one in found)}
        halves: dict[str, float] = {}
        for name in [name for name in found[0].to_json() if name not in (counted, "intervals")]:
            known = [one for one in found if getattr(one, name) is not None]
            values = [getattr(one, name) for one in known]
            means[name] = values[0] if values else None
            if len(values) > 1 and sampled:
                means[name], halves[name] = mean_interval(values)
            elif len(values) > 1:
                means[name] = float(np.average(values, weights=[getattr(one, counted) for one in known]))
        return cls(**means, kept_by_group=np.array([[one.qlocal, one.qglobal] for one in found]), intervals=halves)

    def margins(self, other: Kept) -> list[float]:
        """Return half-widths of the 95 % intervals of the differences in near and far neighbours."""
        return [mean_interval(each)[1] for each in (self.kept_by_group - other.kept_by_group).T.tolist()]


def compare_kept(ours: Kept, other: Kept) -> dict[str, int]:
    """Say for "near" and "far" neighbours whether a map keeps more (1), as many (0) or fewer (−1) than another.

    They are as many if the 95 % interval of the difference, paired over groups of rows, holds 0, or if the difference
    is less than a point in a hundred.
    """
    differences = ours.qlocal - other.qlocal, ours.qglobal - other.qglobal
    return {
        name: int(np.sign(by)) if abs(by) > max(margin, 0.01) else 0
        for name, by, margin in zip(("near", "far"), differences, ours.margins(other), strict=True)
    }


def describe_kept(ours: Kept, other: Kept, name: str, dim: int, things: str = "neighbours") -> str:
    """Compare two maps in one sentence.

    Arguments:
        ours, other: what they keep.
        name: of the other map.
        dim: of both maps.
        things: that are near or far.
    """
    compared = compare_kept(ours, other)
    (near, than), (far, _) = _WORDS[compared["near"]], _WORDS[compared["far"]]
    dimensions = "1 dimension" if dim == 1 else f"{dim} dimensions"
    shares = []
    for own, its, margin in zip(
        (ours.qlocal, ours.qglobal), (other.qlocal, other.qglobal), ours.margins(other), strict=True
    ):
        more = f", a difference within its interval of ± {100 * margin:.0f}" if 0.02 <= abs(own - its) <= margin else ""
        shares.append(f"({100 * own:.0f} % against {100 * its:.0f} %{more})")
    return (
        f"The map keeps {near} near {things} {than} {name} in {dimensions} {shares[0]} and {far} far ones {shares[1]}."
    )


FEWEST = 10  # rows that a map must show to be judged
_FOLDS = 5  # of the label accuracy
_PAIRS = 200_000  # of the rank correlation, in all subsets
_BLOCK = 1 << 20  # distances ranked at once


@dataclass(frozen=True)
class Figures(Kept):
    """What one map keeps of the rows that it shows; 1 is all, for every figure.

    Arguments:
        qlocal, qglobal: shares of near and far neighbours kept, by Euclidean distances of the scaled columns.
        qlocal_paths, qglobal_paths: the same by path lengths in the graph of the 20 nearest neighbours.
        trustworthiness: of the 15 nearest neighbours on the map.
        continuity: of the 15 nearest neighbours in the data.
        rank_correlation: Spearman's, of distances in the data and on the map.
        accuracy: 5-NN accuracy of labels on the map, in five folds; None without labels.
        rows: whose neighbours were looked up.
        kept_by_group, intervals: as of `Kept`.
    """

    qlocal_paths: float
    qglobal_paths: float
    trustworthiness: float
    continuity: float
    rank_correlation: float
    accuracy: float | None
    rows: int

    @property
    def score(self) -> float:
        """The mean of `qlocal` and `qglobal`, by which maps are compared."""
        return (self.qlocal + self.qglobal) / 2


@dataclass(frozen=True)
class BesideBaseline(ABC):
    """A map beside another of the same dimension that needs no training.

    Attributes:
        baseline: name of the field with the figures of the other.
    """

    baseline: ClassVar[str]

    map: Any

    @property
    @abstractmethod
    def verdict(self) -> str:
        """The answer in plain words."""

    @property
    def behind(self) -> tuple[str, ...]:
        """Which of "near" and "far" neighbours the map keeps fewer of than the other."""
        return tuple(name for name, sign in compare_kept(self.map, getattr(self, self.baseline)).items() if sign < 0)

    def to_json(self) -> dict[str, Any]:
        """Return every figure, as JSON values."""
        return {
            "verdict": self.verdict,
            **{name: one.to_json() if isinstance(one, Kept) else one for name, one in vars(self).items()},
        }


@dataclass(frozen=True)
class Faithfulness(BesideBaseline):
    """The result of `faithfulness`.

    Arguments:
        map, pca: figures of the map, and of PCA of the same dimension, over all rows.
        held_out, pca_held_out: of rows that training never saw, with their neighbours looked up among the others; None
            if none were named.
        dim: of the map.
        rows: that the map shows.
        subset: rows of each of five random subsets, over which figures are averaged; None if they are exact.
    """

    baseline = "pca"

    map: Figures
    pca: Figures
    held_out: Figures | None
    pca_held_out: Figures | None
    dim: int
    rows: int
    subset: int | None = None

    @property
    def verdict(self) -> str:
        """The answer in plain words: labels first, then neighbours by Euclidean distances, which no training sees."""
        kept = describe_kept(self.map, self.pca, "PCA", self.dim)
        if self.map.accuracy is None:
            return kept
        assert self.pca.accuracy is not None
        return (
            f"The 5-NN accuracy of the labels is {100 * self.map.accuracy:.0f} % on the map and "
            f"{100 * self.pca.accuracy:.0f} % with PCA. {kept}"
        )


def faithfulness(
    x: Any,
    places: Any,
    *,
    distance: MapDistance = "euclidean",
    labels: Any = None,
    held_out: Any = None,
    groups: Any = None,
    seed: int = 0,
    rows: int = 5000,
) -> Faithfulness:
    """Measure how much of the neighbours and distances in data a map keeps, compared with PCA of the same dimension.

    Qlocal and Qglobal are means of Q_NX(K), the share of the K nearest neighbours in the data that are among the K
    nearest on the map, for K up to and beyond the K at which it is highest above that of a random map. Neighbours in
    the data are those by Euclidean distances, and by path lengths in the graph of the 20 nearest neighbours, whose
    components are joined by their shortest bridges. Equal distances are ordered at random, in the same way everywhere.

    Arguments:
        x: the data, (n, p), with columns scaled as they are to count: dense, sparse, or `Rows`, whose `scaled` columns
            are used.
        places: coordinates on the map, (n, d), or an `Embedding`, whose own distances are used.
        distance: of coordinates: "euclidean"; "poincare", the unit ball of curvature −1; "lorentz", the hyperboloid of
            curvature −1, with space parts or all coordinates, the time first; or a function from coordinates (n, d)
            and (m, d) to distances (n, m).
        labels: of each row, (n,); "" where there is none. Accuracy is that of five folds, or for held-out rows that of
            the labels of all others.
        held_out: index or mask of rows that took no part in training. All of their neighbours are looked up among the
            other rows, as those of a row that joins the map later; PCA is fitted to the other rows alone.
        groups: of each row, such as its batch, (n,). Neighbours and distances are then those among rows of one group,
            PCA is fitted to each group, and figures are means over the groups by their sizes.
        seed: of folds, subsets and the order of equal distances.
        rows: up to so many, figures are exact. Of more, they are means over five random subsets, each with 2/5 as many
            rows, and have intervals; near neighbours are then farther apart than they are among all rows.

    Memory is that of two tables of distances between the rows judged at once: 400 MB for 5,000.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(60, 3))
        >>> found = faithfulness(x, x @ np.linalg.qr(np.ones((3, 3)) + np.eye(3))[0])
        >>> round(found.map.qlocal, 6), round(found.map.trustworthiness, 6)
        (1.0, 1.0)
    """
    data = x if isinstance(x, Rows) else Rows(x)
    shown = places_of(places, distance)
    held, names = _checked(data, shown, labels, held_out)
    random = np.random.default_rng(seed)
    order = random.permutation(len(data))
    subset = None if len(data) <= rows else max(FEWEST, int(0.4 * rows))
    if groups is not None:
        codes = pd.factorize(np.asarray(groups)[order])[0]
        every = [order[codes == code] for code in range(codes.max() + 1)]
        parts = [part[:subset] for part in every if len(part) >= FEWEST] or [order[:subset]]
    elif subset is None:
        parts = [order]
    else:
        parts = [random.permutation(len(data))[:subset] for _ in range(5)]
    judged = [_judge(data, shown, names, held, part, random, _PAIRS // len(parts)) for part in parts]
    own, linear, held_out, linear_held_out = (
        Figures.mean(each, sampled=groups is None) for each in zip(*judged, strict=True)
    )
    assert own is not None and linear is not None
    return Faithfulness(own, linear, held_out, linear_held_out, shown.dim, len(data), subset)


def figures_of_maps(x: Any, maps: Sequence[Any], labels: Any = None, held_out: Any = None) -> tuple[Figures, ...]:
    """Compute exact figures of several maps of the same rows, whose neighbours in the data are found only once.

    Arguments:
        x, labels: as of `faithfulness`.
        maps: coordinates (n, d) with Euclidean distances, or an `Embedding`, of each map.
        held_out: as of `faithfulness`; figures are then those of these rows among the others.
    """
    data, shown, random = Rows(x), [places_of(places) for places in maps], np.random.default_rng(0)
    (held, names), *_ = [_checked(data, places, labels, held_out) for places in shown]
    order = random.permutation(len(data))
    _, table, graph = _measured(data, order)
    return tuple(
        _figures(
            table,
            graph,
            [(one, order) for one in shown],
            None if names is None else names[order],
            np.flatnonzero(held[order]) if held.any() else np.arange(len(data)),
            np.flatnonzero(~held[order]) if held.any() else None,
            random,
            _PAIRS,
        )
    )


def _checked(data: Rows, shown: Places, labels: Any, held_out: Any) -> tuple[NDArray[np.bool_], Index | None]:
    """Return a mask of the held-out rows, and the labels; raise for what cannot be judged."""
    size = len(data)
    if shown.size != size:
        raise CurvaeError(f"the data have {size:,} rows and the map {shown.size:,}; give a place for every row")
    if size < FEWEST:
        raise CurvaeError(f"{size} rows are too few to judge a map; at least {FEWEST} are needed")
    held = np.zeros(size, bool)
    if held_out is not None:
        held[np.asarray(held_out)] = True
    return held, None if labels is None else _codes(np.asarray(labels).astype(np.str_), size)


def _codes(labels: NDArray[np.str_], size: int) -> Index | None:
    """Return labels as numbers, −1 where there is none; None if there are not two different ones."""
    if labels.shape != (size,):
        raise CurvaeError(
            f"labels have shape {labels.shape}; give one for each of {size:,} rows, '' where there is none"
        )
    codes, names = pd.factorize(pd.Series(labels).replace("", None))
    return codes if len(names) > 1 else None


class _Tally:
    """What is counted of one map, block by block of rows.

    Arguments:
        candidates: among which each row has its neighbours, itself not counted.
        tables: number of tables of distances in the data.
    """

    def __init__(self, candidates: int, tables: int) -> None:
        self.agreements = [Agreement(candidates, min(15, max(1, candidates // 2))) for _ in range(tables)]
        self.pairs: list[tuple[Array, Array]] = []
        self.recognised: list[NDArray[np.bool_]] = []

    def rank_correlation(self) -> float:
        """Return that of distances in the data and on the map."""
        return rank_correlation(*(np.concatenate(part) for part in zip(*self.pairs, strict=True)))


def _judge(
    data: Rows,
    shown: Places,
    labels: Index | None,
    held: NDArray[np.bool_],
    chosen: Index,
    random: np.random.Generator,
    pairs: int,
) -> list[Figures | None]:
    """Return figures of some rows: of the map and PCA, of all and of held-out rows among the others."""
    points, table, graph = _measured(data, chosen)
    apart, size = held[chosen], len(chosen)
    used = points[~apart] if (~apart).sum() > 1 else points
    axes = principal_axes(used, shown.dim).place(points) if np.ptp(used, axis=0).any() else np.zeros((size, 1))
    maps = [(shown, chosen), (places_of(axes), np.arange(size))]
    known = None if labels is None else labels[chosen]
    every = _figures(table, graph, maps, known, np.arange(size), None, random, pairs)
    unseen, seen = np.flatnonzero(apart), np.flatnonzero(~apart)
    if not len(unseen) or len(seen) < FEWEST:
        return [*every, None, None]
    return [*every, *_figures(table, graph, maps, known, unseen, seen, random, pairs)]


def _measured(data: Rows, chosen: Index) -> tuple[Array, Array, csr_array]:
    """Return some rows, centred, with the table of their distances and the graph of their neighbours."""
    size = len(chosen)
    memory.require(
        8.0 * (2 * size * size + 3 * size * int(data.x.shape[1]) + 8 * _BLOCK), f"judging a map of {size:,} rows"
    )
    points = data.scaled(chosen)
    if not np.isfinite(points).all():
        raise CurvaeError("distances need all values, and some are missing or infinite; fill them in before")
    check_squares(float(np.abs(points).max(initial=0.0)), "the values")
    points -= points.mean(0)
    table = euclidean(points, points)
    return points, table, graph_of_table(table, 20)


def _figures(
    table: Array,
    graph: csr_array,
    maps: Sequence[tuple[Places, Index]],
    labels: Index | None,
    asked: Index,
    among: Index | None,
    random: np.random.Generator,
    pairs: int,
) -> list[Figures]:
    """Return figures of maps; arguments as of `_count`."""

    def measure(rows: Index, others: Index, own: Index | None) -> tuple[Array, DataRanks]:
        straight, along = table[np.ix_(rows, others)], dijkstra(graph, indices=rows)[:, others]
        ranks = [neighbour_ranks(distances, own) for distances in (straight, along)]
        return straight, lambda placed: ranks

    folds = random.permutation(len(table)) % _FOLDS if among is None else None
    found = []
    for tally in _count(maps, measure, 2, asked, among, random, pairs, labels, folds):
        near, paths = tally.agreements
        recognised = np.concatenate(tally.recognised) if labels is not None else np.zeros(0)
        accuracy = float(recognised.mean()) if len(recognised) else None
        kept = *near.kept.tolist(), *paths.kept.tolist(), *near.trust
        figures = *kept, tally.rank_correlation(), accuracy, near.rows
        found.append(Figures(*figures, kept_by_group=near.kept_by_group))
    return found


# From ranks on a map to those in the data, by each kind of distances.
DataRanks = Callable[[Ranks], list[Ranks]]


def _count(
    maps: Sequence[tuple[Places, Index]],
    measure: Callable[[Index, Index, Index | None], tuple[Array, DataRanks]],
    kinds: int,
    asked: Index,
    among: Index | None,
    random: np.random.Generator,
    pairs: int,
    labels: Index | None = None,
    folds: Index | None = None,
) -> list[_Tally]:
    """Count what maps keep of the neighbours that rows have among others, block by block of rows.

    Arguments:
        maps: each with the numbers that the rows have in it.
        measure: from some rows, the others and the column of each row among these, if it is there, to their distances
            in the data.
        kinds: of distances in the data.
        asked: rows whose neighbours are looked up.
        among: the others; None for all rows, with those asked.
        random: source of the pairs.
        pairs: number of the rank correlation.
        labels: of all rows.
        folds: of all rows; those of a row's own fold do not vote for its label.
    """
    others = np.arange(len(maps[0][1])) if among is None else among
    tallies = [_Tally(len(others) - (among is None), kinds) for _ in maps]
    for rows in np.array_split(asked, -(-len(asked) * len(others) // _BLOCK)):
        own = rows if among is None else None
        table, ranks = measure(rows, others, own)
        some = _some_pairs(table.shape, own, len(asked), random, pairs)
        for tally, (places, number) in zip(tallies, maps, strict=True):
            drawn = places.table(number[rows], number[others])
            placed = neighbour_ranks(drawn, own)
            for agreement, data in zip(tally.agreements, ranks(placed), strict=True):
                agreement.add(data, placed)
            tally.pairs.append((table[some], drawn[some]))
            if labels is not None:
                same = None if folds is None else folds[rows, None] == folds
                tally.recognised.append(_recognise(drawn, labels[rows], labels[others], same))
    return tallies


def _some_pairs(shape: tuple[int, ...], own: Index | None, rows: int, random: np.random.Generator, most: int) -> Any:
    """Choose entries of a block for the rank correlation: each pair once, or about `most` at random."""
    size, among = shape
    if rows * among <= 2 * most:
        return np.nonzero(np.ones(shape, bool) if own is None else np.arange(among) > own[:, None])
    first = np.repeat(np.arange(size), max(1, most // rows))
    if own is None:
        return first, random.integers(among, size=len(first))
    return first, (own[first] + random.integers(1, among, size=len(first))) % among


def _recognise(distances: Array, truth: Index, labels: Index, same: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
    """Tell whether the most frequent label of the nearest rows is the right one; of equally frequent ones the nearest.

    Arguments:
        distances: (rows, others).
        truth, labels: of the rows and the others.
        same: others that have no vote, as those of a row's own fold.
    """
    apart = np.where(labels < 0, np.inf, distances)
    if same is not None:
        apart[same] = np.inf
    k = min(5, apart.shape[1])
    nearest = np.argpartition(apart, k - 1, axis=1)[:, :k]
    lengths = np.take_along_axis(apart, nearest, 1)
    nearest = np.take_along_axis(nearest, np.argsort(lengths, axis=1, kind="stable"), 1)
    voters, votes = labels[nearest], np.isfinite(np.sort(lengths, axis=1))
    counts = ((voters[:, :, None] == voters[:, None, :]) & votes[:, None, :]).sum(2) * votes
    return (voters[np.arange(len(voters)), counts.argmax(1)] == truth)[truth >= 0]


def label_accuracy(
    places: Any, labels: Any, *, distance: MapDistance = "euclidean", seed: int = 0, rows: int = 2000
) -> float | None:
    """Compute the 5-NN accuracy of labels on a map, in five folds, of at most so many `rows` at random.

    None for fewer than 10 rows, or where there are not two different labels. Other arguments are those of
    `faithfulness`.

    Example:
        >>> label_accuracy(np.repeat([[0.0], [9.0]], 10, axis=0), np.repeat(["a", "b"], 10))
        1.0
    """
    shown = places_of(places, distance)
    codes = _codes(np.asarray(labels).astype(np.str_), shown.size)
    if codes is None or shown.size < FEWEST:
        return None
    random, everyone = np.random.default_rng(seed), np.arange(shown.size)
    folds = random.permutation(shown.size) % _FOLDS
    asked = random.permutation(np.flatnonzero(codes >= 0))[:rows]
    recognised = [
        _recognise(shown.table(part, everyone), codes[part], codes, folds[part, None] == folds)
        for part in np.array_split(asked, -(-len(asked) * shown.size // _BLOCK))
    ]
    return float(np.concatenate(recognised).mean())


# How faithful is the map of a graph: are nodes near on it that are few steps apart, more than on a spectral map?

_DENSE = 400  # nodes up to which all eigenvectors are computed
_SOLVED = 100_000  # nodes up to which equations of any graph are solved


@dataclass(frozen=True)
class GraphFigures(Kept):
    """What a map keeps of a graph; 1 is all, for every figure.

    Arguments:
        qlocal, qglobal: shares of near and far nodes kept, by steps along edges.
        rank_correlation: Spearman's, of steps and distances on the map.
        nodes: whose neighbours were looked up.
        kept_by_group, intervals: as of `Kept`, of groups of nodes.
    """

    rank_correlation: float
    nodes: int


@dataclass(frozen=True)
class GraphFaithfulness(BesideBaseline):
    """The result of `graph_faithfulness`.

    Arguments:
        map, spectral: figures of the map, and of a spectral embedding of the same dimension.
        dim: of the map.
        nodes: of the largest component, among which neighbours are looked up.
    """

    baseline = "spectral"

    map: GraphFigures
    spectral: GraphFigures
    dim: int
    nodes: int

    @property
    def verdict(self) -> str:
        """The answer in one sentence."""
        return describe_kept(self.map, self.spectral, "a spectral embedding", self.dim, "nodes")

    @property
    def warnings(self) -> list[str]:
        """A map that keeps fewer nodes than a spectral embedding."""
        found = f"the map keeps fewer {' and '.join(self.behind)} nodes than a spectral embedding"
        return [found] if self.behind else []


def graph_faithfulness(
    graph: Graph, places: Any, *, distance: MapDistance = "euclidean", seed: int = 0, nodes: int = 2000
) -> GraphFaithfulness | None:
    """Measure what a map keeps of the steps between nodes, compared with a spectral embedding of the same dimension.

    Qlocal and Qglobal are those of `faithfulness`, with steps along edges as distances in the data. Many nodes are
    equally many steps away; these may come in any order on the map. Nodes outside of the largest component, to which no
    path leads, are left out.

    Arguments:
        graph: the graph; weights and directions of edges do not count.
        places: coordinates on the map, (nodes, d), or an `Embedding`, whose own distances are used, without popularity.
        distance: of coordinates, as of `faithfulness`.
        seed: of the choice of nodes.
        nodes: up to so many, figures are exact. Of more, the neighbours of 250 random ones are looked up among all, and
            figures have intervals over five groups of these.

    Returns:
        None where the largest component has fewer than 10 nodes, or no spectral embedding is found of a large graph.

    Example:
        >>> path = Graph(np.arange(12).astype(str), np.stack([np.arange(11), np.arange(1, 12)], 1))
        >>> found = graph_faithfulness(path, np.arange(12.0)[:, None])
        >>> found.map.qlocal, round(found.map.rank_correlation, 6)
        (1.0, 1.0)
    """
    shown = places_of(places, distance)
    if shown.size != graph.n_nodes:
        raise CurvaeError(
            f"the graph has {graph.n_nodes:,} nodes and the map {shown.size:,}; give a place for every node"
        )
    inside = largest_component(graph)
    if len(inside) < FEWEST:
        return None
    links = csr_array(link_matrix(graph.edges, graph.n_nodes)[inside][:, inside])
    random = np.random.default_rng(seed)
    count = len(inside)
    groups = [np.arange(count)] if count <= nodes else np.split(random.permutation(count)[:250], 5)
    spectral = spectral_places(links, shown.dim)
    if spectral is None:
        return None

    def measure(rows: Index, others: Index, own: Index | None) -> tuple[Array, DataRanks]:
        steps = steps_between(links, rows)
        # Of nodes that are equally many steps away, those come first that do on the map.
        return steps, lambda placed: [neighbour_ranks(steps * count + placed, own)]

    maps = [(shown, inside), (places_of(spectral), np.arange(count))]
    judged = []
    for group in groups:
        for tally in _count(maps, measure, 1, group, None, random, _PAIRS):
            (near,) = tally.agreements
            figures = *near.kept.tolist(), tally.rank_correlation(), near.rows
            judged.append(GraphFigures(*figures, kept_by_group=near.kept_by_group))
    own, other = (GraphFigures.mean(judged[number::2], "nodes") for number in (0, 1))
    assert own is not None and other is not None
    return GraphFaithfulness(own, other, shown.dim, count)


def largest_component(graph: Graph) -> Index:
    """Return the nodes of the component with the most of them."""
    return np.flatnonzero(graph.components == np.bincount(graph.components).argmax())


def spectral_places(links: csr_array, dim: int) -> Array | None:
    """Compute Laplacian eigenmaps of a connected graph, (nodes, dim): vectors of the random walk but the constant one.
    None if they are not found, and the graph is too large to solve equations.

    References:
        Belkin and Niyogi (2003), Laplacian eigenmaps for dimensionality reduction and data representation.
    """
    count = links.shape[0]
    root = 1 / np.sqrt(links.sum(1))
    walk = csr_array(diags_array(root) @ links @ diags_array(root))
    dim = min(dim, count - 1)
    if count <= max(_DENSE, 2 * dim + 2):
        vectors = np.linalg.eigh(walk.toarray())[1]
    else:
        how = {
            "k": dim + 1,
            "tol": 0.0 if count <= _SOLVED else 1e-4,
            "v0": np.random.default_rng(0).standard_normal(count),
        }
        try:
            values, vectors = eigsh(walk, which="LA", maxiter=300, **how)
        except ArpackNoConvergence:
            # Walks that mix slowly are those on trees and grids, whose equations are quickly solved.
            if count > _SOLVED and walk.nnz > 8 * count:
                return None
            values, vectors = eigsh(walk, sigma=1.001, **how)
        vectors = vectors[:, np.argsort(values)]
    return vectors[:, -2 : -2 - dim : -1] * root[:, None]
