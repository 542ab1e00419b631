"""Is there a hierarchy among points? A test that tells groups within groups from groups alone, and both from neither.

A mixture of k groups without nesting is one whose groups have no structure inside and whose centres are placed without
structure. The data are called tree-like when such a mixture is refused for every k: for few groups because there is
structure inside them, for many because their centres are a hierarchy themselves. Groups are those of Ward's method.

- Structure **inside** k groups: the four-point score of quadruples that share a group, against surrogates that keep the
  spectrum of every group. Structure inside k groups refuses mixtures of k and of fewer.
- Structure **of the centres**: the four-point score of the centres, against centres rotated at random, which keeps
  their spectrum. It refuses mixtures of just k groups, so it is asked for every k that structure inside did not refuse.

Either test may refuse a given mixture, so both p-values count twice.

The test has little power with few groups: it looks inside seven at least, and where structure shows inside fewer than
ten it finds about half of the nested mixtures. If it finds no nesting there, it has too few groups to tell.

In a table structure inside few groups must show against dealt columns too, and again when columns are turned into
normal scores by their ranks: what logarithms would do away with, as the arms of a cloud whose columns span decades, is
none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from ..errors import CurvaeError
from ..maps.distances import Rows, gram_of_distances
from .surrogates import (
    SURROGATES,
    Array,
    Index,
    Spectrum,
    Surrogate,
    compare_to_surrogates,
    dealt,
    distances_of_gram,
    four_point_parts,
    narrowest_gap,
    off_the_path,
    rotated,
    some_quadruples,
)

__all__ = ["FEWEST", "LEVEL", "Nesting", "Outcome", "Verdict", "check_points", "examine_points"]

Random = np.random.Generator
Outcome = Literal["tree-like", "clustered", "flat"]
Verdict = Literal["found", "not found", "too few groups to tell"]

LEVEL = 0.05
FEWEST = 16  # points

_RUNGS = (7, 10, 14, 20, 29)  # numbers of groups to look inside
_ENOUGH = 10  # groups with structure inside, from which on missing nesting is news
_INSIDE = 4  # points that a group has on average on the highest rung, and that it needs to hold a quadruple
_MOST = 160  # points that structure is looked for in; of one of several groups a quarter of that
_APART = 240  # points that gaps are looked for in
_CURVE = (12, 17, 24, 34)  # numbers of centres that lie along a curve or not
_OFF_CURVE = 0.15
_COLUMNS = 1000  # that are dealt
_MARGIN = 0.05
_QUADRUPLES = 3000


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
        if self.outcome == "tree-like":
            return "found"
        return "too few groups to tell" if self.few_groups else "not found"


class _Points:
    """Points with their groups, and the tests on them."""

    def __init__(self, distances: Array, random: Random, rows: Rows | None = None) -> None:
        """With `rows` of a table structure inside groups must differ from dealt columns too."""
        self.distances, self.random, self.size, self._rows = distances, random, len(distances), rows
        self.gram = gram_of_distances(distances)
        merges = linkage(squareform(distances, checks=False), "ward")
        # In the order of the leaves the points of every merge lie side by side, those of its first part first.
        pairs = merges[:, :2].astype(np.intp)
        self._order = leaves_list(merges)
        self._length = np.concatenate([np.ones(self.size, dtype=np.intp), merges[:, 3].astype(np.intp)])
        self._start = np.zeros_like(self._length)
        self._parent = np.full_like(self._length, 2 * self.size)
        for parent, (left, right) in reversed(list(enumerate(pairs, self.size))):
            self._start[left], self._start[right] = self._start[parent], self._start[parent] + self._length[left]
            self._parent[[left, right]] = parent

    def members(self, groups: int) -> list[Index]:
        """Points of every group."""
        last = 2 * self.size - groups  # the first merge that is undone
        kept = np.flatnonzero((np.arange(len(self._parent)) < last) & (self._parent >= last))
        return [self._order[self._start[node] : self._start[node] + self._length[node]] for node in kept]

    def inside(self, groups: int) -> float:
        """p-value of no structure inside so many groups."""
        most = _MOST if groups == 1 else _MOST // 4
        held = [self.random.permutation(place)[:most] for place in self.members(groups) if len(place) >= _INSIDE]
        # Groups count by their points, not by their width; points of one place have no quadruples to speak of.
        width = [_width(self.gram[np.ix_(place, place)]) for place in held]
        held, width = [p for p, w in zip(held, width, strict=True) if w > 0], [w for w in width if w > 0]
        if not held:
            return 1.0
        blocks = [self.gram[np.ix_(place, place)] / wide for place, wide in zip(held, width, strict=True)]
        found = self._p_value(blocks, SURROGATES, _MARGIN)
        if self._rows is None or found > LEVEL:
            return found
        return max(found, self._p_value_of_columns(self._rows, held))

    def _p_value_of_columns(self, rows: Rows, held: Sequence[Index]) -> float:
        """Of no more structure in groups of rows than when values of a column are dealt among them."""
        width_of_block = rows.blocks or (1,) * rows.x.shape[1]
        block = np.repeat(np.arange(len(width_of_block)), width_of_block)
        columns = np.flatnonzero(np.isin(block, self.random.permutation(len(width_of_block))[:_COLUMNS]))
        _, block = np.unique(block[columns], return_inverse=True)
        tables = [rows.x[np.ix_(place, columns)] for place in held]
        whole = [rows.gram(table) for table in tables]
        width = [_width(gram) for gram in whole]
        chosen = self._some_quadruples(whole)

        def score(grams: Sequence[Array]) -> float:
            return _ratio(
                [
                    np.array(four_point_parts(gram[None], part)) / wide
                    for gram, part, wide in zip(grams, chosen, width, strict=True)
                    if wide > 0
                ]
            )

        def draw() -> float:
            return score([rows.gram(dealt(table, block, self.random)) for table in tables])

        return compare_to_surrogates(score(whole), [draw], _MARGIN)

    def _some_quadruples(self, grams: Sequence[Array]) -> list[Index]:
        """Of each set, in proportion to its points."""
        total = sum(map(len, grams))
        return [some_quadruples(len(g), max(1, _QUADRUPLES * len(g) // total), self.random) for g in grams]

    def _p_value(self, grams: Sequence[Array], kinds: Sequence[Surrogate], margin: float = 0.0) -> float:
        """Of no more structure in these sets of points than in surrogates."""
        parts = []
        share = self._some_quadruples(grams)
        for alike in _by_size(grams):
            chosen = [share[place] for place in alike]
            place = np.repeat(np.arange(len(alike)), list(map(len, chosen)))
            parts.append((Spectrum.of_grams([grams[k] for k in alike]), np.concatenate(chosen), place))

        def score(kind: Surrogate | None = None) -> float:
            return _ratio(
                [
                    four_point_parts(s.grams() if kind is None else kind(s, self.random), chosen, place)
                    for s, chosen, place in parts
                ]
            )

        return compare_to_surrogates(score(), [partial(score, kind) for kind in kinds], margin)

    def centres(self, groups: int) -> Array:
        """Inner products of the centres of so many groups."""
        mean = np.stack([np.bincount(place, minlength=self.size) / len(place) for place in self.members(groups)])
        return mean @ self.gram @ mean.T

    def among(self, groups: int) -> float:
        """p-value of centres placed without structure."""
        return self._p_value([self.centres(groups)], (rotated,))

    def apart(self, curve: bool) -> float:
        """p-value of no gap between groups; points along a curve are compared with even ones."""
        some = self.random.permutation(self.size)[:_APART]
        distances = self.distances[np.ix_(some, some)]
        spectrum = Spectrum.of_grams([gram_of_distances(distances)])

        def even() -> float:
            place = self.random.random(len(some))
            return narrowest_gap(np.abs(np.subtract.outer(place, place)))

        def like(kind: Surrogate) -> float:
            return narrowest_gap(distances_of_gram(kind(spectrum, self.random)[0]))

        kinds = [even] if curve else [partial(like, kind) for kind in SURROGATES]
        return compare_to_surrogates(narrowest_gap(distances), kinds, _MARGIN)

    def along_a_curve(self) -> bool:
        """Whether the centres of groups lie along a path."""
        shares = [off_the_path(distances_of_gram(self.centres(k))) for k in _CURVE if k <= self.size // 3]
        return bool(shares) and float(np.mean(shares)) < _OFF_CURVE


def _width(gram: Array) -> float:
    """Mean squared distance from the centre."""
    return float(np.trace(gram)) / len(gram) - float(gram.mean())


def _ratio(sums: Sequence[Any]) -> float:
    gap, reach = np.sum(sums, axis=0)
    return float(gap / reach) if reach > 0 else 1.0


def _by_size(grams: Sequence[Array]) -> list[list[int]]:
    """Places of sets of about the same size, to be stacked."""
    found: dict[int, list[int]] = {}
    for place, gram in enumerate(grams):
        found.setdefault(len(gram).bit_length(), []).append(place)
    return list(found.values())


def check_points(distances: Array) -> None:
    """Raise where there is nothing to test."""
    if len(distances) < FEWEST:
        raise CurvaeError(f"{len(distances)} points are too few to test for a hierarchy; give at least {FEWEST}")
    if not distances.any():
        raise CurvaeError("all points are the same, so there is nothing to test; give points that differ")


def examine_points(distances: Array, random: Random, rows: Rows | None = None) -> Nesting:
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
    curve = points.along_a_curve()
    whole, first = _few_groups(distances, random, rows)
    p_groups = 1.0 if curve else min(1.0, 3 * min(whole, first))
    if p_groups > LEVEL:
        p_groups = min(p_groups, 3 * points.apart(curve))
    if p_groups > LEVEL:
        return Nesting("flat", p_groups, 1.0, curve, 0)
    p_nesting, groups = (1.0, 0) if curve else _climb(points, max(whole, 2 * first))
    outcome: Outcome = "tree-like" if p_nesting <= LEVEL else "clustered"
    few_groups = 2 * first > LEVEL or 0 < groups < _ENOUGH
    return Nesting(outcome, p_groups, p_nesting, curve, groups, few_groups=few_groups)


def _few_groups(distances: Array, random: Random, rows: Rows | None) -> tuple[float, float]:
    """p-values of no structure inside one group, and inside the fewest that are looked into."""
    views = [_Points(distances, random, rows)]
    if rows is not None and rows.measures_lengths:
        scores = rows.normal_scores()
        views.append(_Points(scores.table(), random, scores))
    found = []
    for groups in (1, _RUNGS[0]):
        p_value = 0.0
        for view in views:
            p_value = max(p_value, view.inside(groups)) if p_value <= LEVEL else p_value
        found.append(p_value)
    return found[0], found[1]


def _climb(points: _Points, p_value: float) -> tuple[float, int]:
    """p-value of every mixture without nesting, and the largest number of groups with structure inside."""
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
