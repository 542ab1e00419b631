"""How faithful is a map: which neighbours and distances of the data does it keep, and are they more than PCA keeps?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from ..data import memory
from ..data.neighbours import graph_of_table
from ..data.principal import mean_interval, principal_axes, rank_correlation
from ..errors import CurvaeError
from .coranking import Agreement, Array, Index, neighbour_ranks
from .distances import Rows, check_squares
from .map_distances import MapDistance, Places, euclidean, places_of
from .verdicts import compare_kept, describe_kept

__all__ = ["FEWEST", "Faithfulness", "Figures", "faithfulness", "figures_of_maps", "label_accuracy", "some_pairs"]

FEWEST = 10
"""rows that a map must show to be judged"""

_NEIGHBOURS = 15  # of trustworthiness and continuity
_LINKS = 20  # neighbours of each row in the graph of path lengths
_VOTERS, _FOLDS = 5, 5  # of the label accuracy
_SUBSETS, _SHARE = 5, 0.4  # of too many rows, and their size as a share of the rows that are judged exactly
_PAIRS = 200_000  # of the rank correlation, in all subsets
_BLOCK = 1 << 20  # distances ranked at once


@dataclass(frozen=True)
class Figures:
    """What one map keeps of the rows that it shows; 1 is all, for every figure.

    Arguments:
        qlocal, qglobal: shares of near and far neighbours kept, by Euclidean distances of the scaled columns.
        qlocal_paths, qglobal_paths: the same by path lengths in the graph of the 20 nearest neighbours.
        trustworthiness: of the 15 nearest neighbours on the map.
        continuity: of the 15 nearest neighbours in the data.
        rank_correlation: Spearman's, of distances in the data and on the map.
        accuracy: 5-NN accuracy of labels on the map, in five folds; None without labels.
        rows: whose neighbours were looked up.
        intervals: half-widths of 95 % intervals, where figures are means over random subsets of the rows.
        kept_by_group: `qlocal` and `qglobal` of groups of rows, (groups, 2), by which maps are compared.
    """

    qlocal: float
    qglobal: float
    qlocal_paths: float
    qglobal_paths: float
    trustworthiness: float
    continuity: float
    rank_correlation: float
    accuracy: float | None
    rows: int
    kept_by_group: Array = field(repr=False, compare=False)
    intervals: Mapping[str, float] = field(default_factory=dict)

    @property
    def score(self) -> float:
        """The mean of `qlocal` and `qglobal`, by which maps are compared."""
        return (self.qlocal + self.qglobal) / 2

    def to_json(self) -> dict[str, Any]:
        """Every figure, as JSON values."""
        return {name: getattr(self, name) for name in (*_NUMBERS, "rows")} | {"intervals": dict(self.intervals)}


_NUMBERS = tuple(f.name for f in fields(Figures) if f.name not in ("rows", "kept_by_group", "intervals"))


@dataclass(frozen=True)
class Faithfulness:
    """The result of `faithfulness`.

    Arguments:
        map, pca: figures of the map, and of PCA of the same dimension, over all rows.
        held_out, pca_held_out: of rows that training never saw, with their neighbours looked up among the others; None
            if none were named.
        dim: of the map.
        rows: that the map shows.
        subset: rows of each of five random subsets, over which figures are averaged; None if they are exact.
    """

    map: Figures
    pca: Figures
    held_out: Figures | None
    pca_held_out: Figures | None
    dim: int
    rows: int
    subset: int | None = None

    @cached_property
    def behind(self) -> tuple[str, ...]:
        """Which of "near" and "far" neighbours the map keeps fewer of than PCA."""
        return tuple(name for name, sign in compare_kept(self.map, self.pca).items() if sign < 0)

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

    def to_json(self) -> dict[str, Any]:
        """Every figure, as JSON values."""
        parts = {name: getattr(self, name) for name in ("map", "pca", "held_out", "pca_held_out")}
        return {
            "verdict": self.verdict,
            **{name: None if part is None else part.to_json() for name, part in parts.items()},
            "dim": self.dim,
            "rows": self.rows,
            "subset": self.subset,
        }


def faithfulness(
    x: Any,
    places: Any,
    *,
    distance: MapDistance = "euclidean",
    labels: Any = None,
    held_out: Any = None,
    seed: int = 0,
    rows: int = 5000,
) -> Faithfulness:
    """How much of the neighbours and distances in data a map keeps, compared with PCA of the same dimension.

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
    if len(data) <= rows:
        parts, subset = [order], None
    else:
        subset = max(FEWEST, int(_SHARE * rows))
        parts = [random.permutation(len(data))[:subset] for _ in range(_SUBSETS)]
    judged = [_judge(data, shown, names, held, part, random, _PAIRS // len(parts)) for part in parts]
    found = [_mean([one[place] for one in judged]) for place in range(4)]
    assert found[0] is not None and found[1] is not None
    return Faithfulness(found[0], found[1], found[2], found[3], shown.dim, len(data), subset)


def figures_of_maps(x: Any, maps: Sequence[Any], labels: Any = None, held_out: Any = None) -> tuple[Figures, ...]:
    """Exact figures of several maps of the same rows, whose neighbours in the data are found only once.

    Arguments:
        x, labels: as of `faithfulness`.
        maps: coordinates (n, d) with Euclidean distances, or an `Embedding`, of each map.
        held_out: as of `faithfulness`; figures are then those of these rows among the others.
    """
    data, shown, random = Rows(x), [places_of(places) for places in maps], np.random.default_rng(0)
    (held, names), *_ = [_checked(data, places, labels, held_out) for places in shown]
    order = random.permutation(len(data))
    _, table, graph = _measured(data, order)
    asked = among = np.arange(len(data))
    if held.any():
        asked, among = np.flatnonzero(held[order]), np.flatnonzero(~held[order])
    known = None if names is None else names[order]
    return _figures(table, graph, [(places, order) for places in shown], known, asked, among, random, _PAIRS)


def _checked(data: Rows, shown: Places, labels: Any, held_out: Any) -> tuple[NDArray[np.bool_], Index | None]:
    """A mask of the held-out rows, and the labels; raises for what cannot be judged."""
    size = len(data)
    if len(shown) != size:
        raise CurvaeError(f"the data have {size:,} rows and the map {len(shown):,}; give a place for every row")
    if size < FEWEST:
        raise CurvaeError(f"{size} rows are too few to judge a map; at least {FEWEST} are needed")
    held = np.zeros(size, bool)
    if held_out is not None:
        held[np.asarray(held_out)] = True
    return held, None if labels is None else _codes(np.asarray(labels).astype(np.str_), size)


def _codes(labels: NDArray[np.str_], size: int) -> Index | None:
    """Labels as numbers, −1 where there is none; None if there are not two to be told apart."""
    if labels.shape != (size,):
        raise CurvaeError(
            f"labels have shape {labels.shape}; give one for each of {size:,} rows, '' where there is none"
        )
    known = labels != ""
    found, codes = np.unique(labels[known], return_inverse=True)
    numbers = np.full(size, -1)
    numbers[known] = codes
    return numbers if len(found) > 1 else None


class _Tally:
    """What is counted of one map, block by block of rows.

    Arguments:
        candidates: among which each row has its neighbours, itself not counted.
    """

    def __init__(self, candidates: int) -> None:
        k = min(_NEIGHBOURS, max(1, candidates // 2))
        self.near, self.paths = Agreement(candidates, k), Agreement(candidates, k)
        self.pairs: list[tuple[Array, Array]] = []
        self.told: list[NDArray[np.bool_]] = []

    def figures(self) -> Figures:
        near, paths = self.near.curve, self.paths.curve
        told = np.concatenate(self.told) if self.told else np.zeros(0, bool)
        return Figures(
            near.local,
            near.far,
            paths.local,
            paths.far,
            self.near.trustworthiness,
            self.near.continuity,
            rank_correlation(*(np.concatenate(part) for part in zip(*self.pairs, strict=True))),
            float(told.mean()) if len(told) else None,
            self.near.rows,
            self.near.kept_by_group,
        )


def _judge(
    data: Rows,
    shown: Places,
    labels: Index | None,
    held: NDArray[np.bool_],
    chosen: Index,
    random: np.random.Generator,
    pairs: int,
) -> tuple[Figures, Figures, Figures | None, Figures | None]:
    """Figures of some rows: of the map and PCA, of all and of held-out rows among the others."""
    points, table, graph = _measured(data, chosen)
    apart, size = held[chosen], len(chosen)
    linear = places_of(_principal(points, ~apart, shown.dim))
    maps = [(shown, chosen), (linear, np.arange(size))]
    known = None if labels is None else labels[chosen]
    everyone = np.arange(size)
    every = _figures(table, graph, maps, known, everyone, everyone, random, pairs)
    unseen, seen = np.flatnonzero(apart), np.flatnonzero(~apart)
    if not len(unseen) or len(seen) < FEWEST:
        return every[0], every[1], None, None
    later = _figures(table, graph, maps, known, unseen, seen, random, pairs)
    return every[0], every[1], later[0], later[1]


def _measured(data: Rows, chosen: Index) -> tuple[Array, Array, csr_array]:
    """Some rows, centred, with the table of their distances and the graph of their neighbours."""
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
    graph = graph_of_table(table, _LINKS)
    return points, table, graph


def _principal(points: Array, train: NDArray[np.bool_], dim: int) -> Array:
    """Places of all rows by PCA of some."""
    used = points[train] if train.sum() > 1 else points
    if not np.ptp(used, axis=0).any():
        return np.zeros((len(points), 1))
    return principal_axes(used, dim).place(points)


def _figures(
    table: Array,
    graph: csr_array,
    maps: Sequence[tuple[Places, Index]],
    labels: Index | None,
    asked: Index,
    among: Index,
    random: np.random.Generator,
    pairs: int,
) -> tuple[Figures, ...]:
    """Figures of maps, for the neighbours that the rows `asked` have `among` others or among themselves."""
    together = asked is among
    tallies = [_Tally(len(among) - together) for _ in maps]
    folds = random.permutation(len(among)) % _FOLDS if together else None
    step = max(1, _BLOCK // len(among))
    for start in range(0, len(asked), step):
        part = slice(start, start + step)
        rows = asked[part]
        own = np.arange(len(among))[part] if together else None
        straight = table[np.ix_(rows, among)]
        along = dijkstra(graph, indices=rows)[:, among]
        ranks = [neighbour_ranks(d, own) for d in (straight, along)]
        some = some_pairs(straight.shape, own, len(asked), random, pairs)
        for tally, (places, number) in zip(tallies, maps, strict=True):
            drawn = places.table(number[rows], number[among])
            placed = neighbour_ranks(drawn, own)
            tally.near.add(ranks[0], placed)
            tally.paths.add(ranks[1], placed)
            tally.pairs.append((straight[some], drawn[some]))
            if labels is not None:
                same = None if folds is None else folds[part, None] == folds
                tally.told.append(_told(drawn, labels[rows], labels[among], same))
    return tuple(tally.figures() for tally in tallies)


def some_pairs(
    shape: tuple[int, int], own: Index | None, rows: int, random: np.random.Generator, most: int = _PAIRS
) -> Any:
    """Which entries of a block take part in the rank correlation: each pair once, or about `most` at random."""
    size, among = shape
    if rows * among <= 2 * most:
        pairs = np.ones(shape, bool) if own is None else np.arange(among) > own[:, None]
        return np.nonzero(pairs)
    each = max(1, most // rows)
    first = np.repeat(np.arange(size), each)
    if own is None:
        return first, random.integers(among, size=len(first))
    return first, (own[first] + random.integers(1, among, size=len(first))) % among


def _told(distances: Array, truth: Index, labels: Index, same: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
    """Whether the most frequent label of the nearest rows is the right one; of equally frequent ones the nearest.

    Arguments:
        distances: (rows, others).
        truth, labels: of the rows and the others.
        same: others that may not tell, as those of a row's own fold.
    """
    apart = np.where(labels < 0, np.inf, distances)
    if same is not None:
        apart[same] = np.inf
    k = min(_VOTERS, apart.shape[1])
    nearest = np.argpartition(apart, k - 1, axis=1)[:, :k]
    lengths = np.take_along_axis(apart, nearest, 1)
    nearest = np.take_along_axis(nearest, np.argsort(lengths, axis=1, kind="stable"), 1)
    voters, votes = labels[nearest], np.isfinite(np.sort(lengths, axis=1))
    counts = ((voters[:, :, None] == voters[:, None, :]) & votes[:, None, :]).sum(2) * votes
    winner = np.take_along_axis(voters, counts.argmax(1)[:, None], 1)[:, 0]
    return (winner == truth)[truth >= 0]


def label_accuracy(
    places: Any, labels: Any, *, distance: MapDistance = "euclidean", seed: int = 0, rows: int = 2000
) -> float | None:
    """5-NN accuracy of labels on a map, in five folds, of at most so many `rows` at random.

    None for fewer than 10 rows, or where there are not two labels to be told apart. Other arguments are those of
    `faithfulness`.

    Example:
        >>> label_accuracy(np.repeat([[0.0], [9.0]], 10, axis=0), np.repeat(["a", "b"], 10))
        1.0
    """
    shown = places_of(places, distance)
    codes = _codes(np.asarray(labels).astype(np.str_), len(shown))
    if codes is None or len(shown) < FEWEST:
        return None
    random, everyone = np.random.default_rng(seed), np.arange(len(shown))
    folds = random.permutation(len(shown)) % _FOLDS
    asked = random.permutation(np.flatnonzero(codes >= 0))[:rows]
    told = [
        _told(shown.table(part, everyone), codes[part], codes, folds[part, None] == folds)
        for part in np.array_split(asked, -(-len(asked) * len(shown) // _BLOCK))
    ]
    return float(np.concatenate(told).mean())


def _mean(each: Sequence[Figures | None]) -> Figures | None:
    """Figures averaged over subsets, with intervals; None where no subset has any."""
    found = [one for one in each if one is not None]
    if len(found) < 2:
        return found[0] if found else None
    means: dict[str, Any] = {}
    halves: dict[str, float] = {}
    for name in _NUMBERS:
        values = [value for one in found if (value := getattr(one, name)) is not None]
        means[name] = values[0] if values else None
        if len(values) > 1:
            means[name], halves[name] = mean_interval(values)
    groups = np.array([[one.qlocal, one.qglobal] for one in found])
    return Figures(**means, rows=sum(one.rows for one in found), kept_by_group=groups, intervals=halves)
