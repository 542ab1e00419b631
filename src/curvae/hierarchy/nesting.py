"""Is there a hierarchy among points? A test that tells groups within groups from groups alone, and both from neither.

A mixture of k groups without nesting is one whose groups have no structure inside and whose centres are placed without
structure. The data are called tree-like when such a mixture is refused for every k: for few groups because there is
structure inside them, for many because their centres are a hierarchy themselves. Groups are those of Ward's method.

- Structure **inside** k groups: the four-point score of quadruples that share a group, against surrogates that keep the
  spectrum of every group. Structure inside k groups refuses mixtures of k and of fewer.
- Structure **of the centres**: the four-point score of the centres, against centres rotated at random, which keeps
  their spectrum. It refuses mixtures of just k groups, so it is asked for every k that structure inside did not refuse.

Either test may refuse a given mixture, so both p-values count twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from ..errors import CurvaeError
from .scores import (
    distances_of_gram,
    four_point_parts,
    narrowest_gap,
    off_the_path,
    some_quadruples,
)
from .surrogates import SURROGATES, Spectrum, Surrogate, compare_to_surrogates, gram_of_distances, rotated

__all__ = ["LEVEL", "Nesting", "Outcome", "examine_points"]

Array = NDArray[np.float64]
Random = np.random.Generator
Outcome = Literal["tree-like", "clustered", "flat"]

LEVEL = 0.05
FEWEST = 16  # points

_RUNGS = (7, 10, 14, 20, 28, 40)  # numbers of groups to look inside
_INSIDE = 4  # points that a group has on average on the highest rung, and that it needs to hold a quadruple
_MOST = 200  # points of a group that are looked at
_CURVE = (12, 17, 24, 34)  # numbers of centres that lie along a curve or not
_OFF_CURVE = 0.15
_MARGIN = 0.05
_QUADRUPLES = 3000


@dataclass(frozen=True)
class Nesting:
    """What the test found.

    Arguments:
        outcome: "tree-like", "clustered" (nesting not shown) or "flat".
        p_groups: of there being no groups.
        p_nesting: of there being groups without nesting, or none; 1 where the question did not arise.
        curve: whether the points follow a curve that nothing branches off.
        groups: largest number of groups with structure inside them, 0 where it is less than seven.
    """

    outcome: Outcome
    p_groups: float
    p_nesting: float
    curve: bool
    groups: int


class _Points:
    """Points with their groups, and the tests on them."""

    def __init__(self, distances: Array, random: Random) -> None:
        self.distances, self.random, self.size = distances, random, len(distances)
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

    def members(self, groups: int) -> list[NDArray[np.intp]]:
        """Points of every group."""
        last = 2 * self.size - groups  # the first merge that is undone
        kept = np.flatnonzero((np.arange(len(self._parent)) < last) & (self._parent >= last))
        return [self._order[self._start[node] : self._start[node] + self._length[node]] for node in kept]

    def inside(self, groups: int) -> float:
        """p-value of no structure inside so many groups."""
        held = [self.random.permutation(place)[:_MOST] for place in self.members(groups) if len(place) >= _INSIDE]
        blocks = [self.gram[np.ix_(place, place)] for place in held]
        # Groups count by their points, not by their width; points of one place have no quadruples to speak of.
        width = [float(np.trace(block)) / len(block) - float(block.mean()) for block in blocks]
        blocks = [block / wide for block, wide in zip(blocks, width, strict=True) if wide > 0]
        return self._p_value(blocks, SURROGATES, _MARGIN) if blocks else 1.0

    def _p_value(self, grams: Sequence[Array], kinds: Sequence[Surrogate], margin: float = 0.0) -> float:
        """Of no more structure in these sets of points than in surrogates."""
        total = sum(map(len, grams))
        parts = []
        for alike in _by_size(grams):
            chosen = [some_quadruples(len(g), max(1, _QUADRUPLES * len(g) // total), self.random) for g in alike]
            place = np.repeat(np.arange(len(alike)), list(map(len, chosen)))
            parts.append((Spectrum.of_grams(alike), np.concatenate(chosen), place))

        def score(kind: Surrogate | None = None) -> float:
            sums = [
                four_point_parts(s.grams() if kind is None else kind(s, self.random), chosen, place)
                for s, chosen, place in parts
            ]
            gap, reach = np.sum(sums, axis=0)
            return float(gap / reach) if reach > 0 else 1.0

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
        spectrum = Spectrum.of_grams([self.gram])

        def even() -> float:
            place = self.random.random(self.size)
            return narrowest_gap(np.abs(np.subtract.outer(place, place)))

        def like(kind: Surrogate) -> float:
            return narrowest_gap(distances_of_gram(kind(spectrum, self.random)[0]))

        kinds = [even] if curve else [partial(like, kind) for kind in SURROGATES]
        return compare_to_surrogates(narrowest_gap(self.distances), kinds, _MARGIN)

    def along_a_curve(self) -> bool:
        """Whether the centres of groups lie along a path."""
        shares = [off_the_path(distances_of_gram(self.centres(k))) for k in _CURVE if k <= self.size // 3]
        return bool(shares) and float(np.mean(shares)) < _OFF_CURVE


def _by_size(grams: Sequence[Array]) -> list[list[Array]]:
    """Sets of points of about the same size, to be stacked."""
    found: dict[int, list[Array]] = {}
    for gram in grams:
        found.setdefault(len(gram).bit_length(), []).append(gram)
    return list(found.values())


def examine_points(distances: Array, random: Random) -> Nesting:
    """Test a few hundred points, given by their distances, for groups and for groups within groups.

    Arguments:
        distances: of all pairs, symmetric with zeros on the diagonal.
        random: source of the surrogates.

    Example:
        >>> points = np.random.default_rng(0).normal(size=(60, 5))
        >>> examine_points(np.linalg.norm(points[:, None] - points, axis=-1), np.random.default_rng(1)).outcome
        'flat'
    """
    if len(distances) < FEWEST:
        raise CurvaeError(f"{len(distances)} points are too few to test for a hierarchy; give at least {FEWEST}")
    if not distances.any():
        raise CurvaeError("all points are the same, so there is nothing to test; give points that differ")
    points = _Points(distances, random)
    curve = points.along_a_curve()
    whole = points.inside(1)
    first = points.inside(_RUNGS[0])
    p_groups = min(1.0, 3 * min(whole, first))
    if curve or p_groups > LEVEL:
        p_groups = min(1.0, 3 * points.apart(curve)) if curve else min(p_groups, 3 * points.apart(curve))
    if p_groups > LEVEL:
        return Nesting("flat", p_groups, 1.0, curve, 0)
    p_nesting, groups = (1.0, 0) if curve else _climb(points, max(whole, 2 * first))
    return Nesting("tree-like" if p_nesting <= LEVEL else "clustered", p_groups, p_nesting, curve, groups)


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
