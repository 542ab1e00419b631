"""Scores of a hierarchy, from distances or inner products of all pairs of a few hundred points."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from scipy.cluster.hierarchy import cophenet, linkage
from scipy.sparse.csgraph import minimum_spanning_tree, shortest_path
from scipy.spatial.distance import squareform

from .delta import Array, Index, quadruples

__all__ = [
    "Score",
    "cophenetic_correlation",
    "distances_of_gram",
    "four_point_parts",
    "four_point_score",
    "narrowest_gap",
    "off_the_path",
    "some_quadruples",
    "ultrametric_score",
]

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
