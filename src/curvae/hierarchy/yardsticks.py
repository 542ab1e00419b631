"""Does curvature make maps more faithful, or recover a known tree better? Yardsticks of a comparison of models.

Rows that a model has not seen are placed by its encoder, and judged by where they lie among its training rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from ..data.principal import rank_correlation
from ..errors import CurvaeError
from ..training.comparison import Comparison
from ..training.splits import Split
from ..training.yardsticks import Repeat, Yardstick
from .coranking import Agreement, Array, Index, Ranks, neighbour_ranks
from .distances import Rows
from .map_distances import Places, euclidean, places_of

__all__ = ["faithfulness_yardstick", "recovery_yardstick", "require_recoverable"]

_ASKED, _AMONG = 500, 2000  # rows that are placed, and rows among which, at most
_FEWEST = 3  # nodes of a tree among them

# From the maps of one split to a score each, given rows to be placed and rows among which they are.
_Score = Callable[[Sequence[Places], Index, Index], list[float]]


def faithfulness_yardstick(data: Rows, found: Comparison, splits: Mapping[int, Split]) -> Yardstick:
    """Whether curved models place held-out rows more faithfully: (Qlocal + Qglobal)/2 by Euclidean distances.

    Arguments:
        data: the rows that were compared on, with columns scaled as they are to count.
        found: the comparison by likelihood, with its maps.
        splits: of every repeat, by seed.
    """

    def score(maps: Sequence[Places], asked: Index, among: Index) -> list[float]:
        rows = data.scaled(np.concatenate([asked, among]))
        rows -= rows.mean(0)
        truth = neighbour_ranks(euclidean(rows[: len(asked)], rows[len(asked) :]))
        return [_kept(truth, places.table(asked, among)) for places in maps]

    def linear(asked: Index, among: Index, dim: int) -> float | None:
        train = data.scaled(among)
        if dim > min(train.shape) or not np.ptp(train, axis=0).any():
            return None
        from sklearn.decomposition import PCA  # takes long to import

        fitted, places = PCA(dim, random_state=0).fit(train), np.zeros((len(data), dim))
        places[among], places[asked] = fitted.transform(train), fitted.transform(data.scaled(asked))
        return score([places_of(places)], asked, among)[0]

    meaning = "the share of neighbours that held-out rows keep on the map"
    purpose = "for a map that keeps neighbours"
    return _yardstick("faithfulness", meaning, purpose, score, found, splits, np.arange(len(data)), linear)


def _kept(truth: Ranks, distances: Array) -> float:
    found = Agreement(distances.shape[1], 1)
    found.add(truth, neighbour_ranks(distances))
    curve = found.curve
    return (curve.local + curve.far) / 2


def recovery_yardstick(
    distances: Callable[[Index, Index], Array], node: Index, found: Comparison, splits: Mapping[int, Split]
) -> Yardstick:
    """Judge how well models recover a tree, by the rank correlation of its distances with those of held-out rows.

    Arguments:
        distances: between nodes of the tree, given two arrays of their numbers; `NamedTree.distances`.
        node: number of the node of each row, −1 where it has none.
        found, splits: see `faithfulness_yardstick`.
    """

    def score(maps: Sequence[Places], asked: Index, among: Index) -> list[float]:
        first, second = np.repeat(asked, len(among)), np.tile(among, len(asked))
        truth = distances(node[first], node[second])
        return [rank_correlation(truth, places.table(asked, among).ravel()) for places in maps]

    require_recoverable(node, splits.values())
    known = np.flatnonzero(node >= 0)
    meaning = "the rank correlation of held-out rows' distances with those in the tree"
    return _yardstick("recovery", meaning, "to read off the tree", score, found, splits, known)


def require_recoverable(node: Index, splits: Iterable[Split]) -> None:
    """Raise an error if too few rows have a node of a tree to compare models by how well they recover it."""
    known = np.flatnonzero(node >= 0)
    if len(np.unique(node[known])) < _FEWEST:
        raise CurvaeError("rows of at least three nodes are needed to compare maps with a tree; match more")
    for split in splits:
        parts = split.train, split.validation, split.test
        _require_judges("recovery", *(np.intersect1d(part, known) for part in parts))


def _require_judges(name: str, among: Index, *asked: Index) -> None:
    if not (len(among) > 1 and all(map(len, asked))):
        raise CurvaeError(f"a split has no held-out rows to judge by {name}; use more rows")


def _yardstick(
    name: str,
    meaning: str,
    purpose: str,
    score: _Score,
    found: Comparison,
    splits: Mapping[int, Split],
    usable: Index,
    linear: Callable[[Index, Index, int], float | None] = lambda asked, among, dim: None,
) -> Yardstick:
    """Score the maps of every repeat on its validation and its test rows, as far as they are `usable`."""
    repeats = []
    for place, one in enumerate(found.repeats):
        split = splits[one.seed]
        maps = [places_of(each[place]) for each in found.maps.values()]
        random = np.random.default_rng(one.seed)
        among = random.permutation(np.intersect1d(split.train, usable))[:_AMONG]
        held_out = split.validation, split.test
        asked = [random.permutation(np.intersect1d(part, usable))[:_ASKED] for part in held_out]
        _require_judges(name, among, *asked)
        validation, test = (dict(zip(found.maps, score(maps, part, among), strict=True)) for part in asked)
        repeats.append(Repeat(one.seed, validation, test, linear(asked[1], among, maps[0].dim)))
    return Yardstick(name, meaning, purpose, repeats, found.ratio)
