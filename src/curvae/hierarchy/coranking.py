"""How many neighbours two tables of distances have in common, for every number of neighbours at once.

Rank every row's distances to the others, once in the data and once on the map. A pair is among the K nearest in both
exactly if the larger of its two ranks is at most K, so one histogram of that larger rank holds Q_NX(K), the share of
the K nearest neighbours that the map keeps, for all K (Lee and Verleysen, 2009).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["Agreement", "Curve", "neighbour_ranks"]

_GROUPS = 10  # of rows, over which figures vary

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Ranks = NDArray[np.int32]


def neighbour_ranks(distances: Array, own: Index | None = None) -> Ranks:
    """Rank of every candidate among those of its row, 1 for the nearest; equal distances by the order of columns.

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


@dataclass(frozen=True)
class Curve:
    """Q_NX(K), the share of the K nearest neighbours in the data that are among the K nearest on the map, K = 1, 2, …

    Attributes:
        k_max: where the curve is highest above K/candidates, which a random map reaches: the border of near and far.

    References:
        Lee and Verleysen (2009), Quality assessment of dimensionality reduction: rank-based criteria.

    Example:
        >>> curve = Curve(np.array([0.5, 0.9, 0.9, 1.0]))
        >>> curve.k_max, round(curve.local, 12), round(curve.far, 12)
        (2, 0.7, 0.95)
    """

    shares: Array

    @property
    def k_max(self) -> int:
        size = len(self.shares)
        return int(np.argmax(self.shares - np.arange(1, size + 1) / size)) + 1

    @property
    def local(self) -> float:
        """Qlocal: the mean for K up to `k_max`."""
        return float(self.shares[: self.k_max].mean())

    @property
    def far(self) -> float:
        """Qglobal: the mean for K beyond; 1 where there are none, for all candidates are neighbours then."""
        beyond = self.shares[self.k_max :]
        return float(beyond.mean()) if len(beyond) else 1.0


@dataclass
class Agreement:
    """Counts of neighbours in common, gathered block by block of rows.

    Arguments:
        candidates: among which each row has its neighbours, itself not counted.
        neighbours: of trustworthiness and continuity.

    Attributes:
        larger: histogram of the larger of the two ranks of a pair, for each of ten groups of rows in turn.
    """

    candidates: int
    neighbours: int
    rows: int = 0
    strangers: float = 0.0
    lost: float = 0.0
    larger: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.larger = np.zeros((_GROUPS, self.candidates + 1), np.int64)

    def add(self, data: Ranks, placed: Ranks) -> None:
        """Count some rows, given their ranks in the data and on the map."""
        groups = (self.rows + np.arange(len(data))) % _GROUPS
        places = np.maximum(data, placed) + self.larger.shape[1] * groups[:, None]
        self.larger += np.bincount(places.ravel(), minlength=self.larger.size).reshape(self.larger.shape)
        self.rows += len(data)
        k = self.neighbours
        for ranks, others, name in ((placed, data, "strangers"), (data, placed, "lost")):
            near = others[(ranks >= 1) & (ranks <= k)]
            setattr(self, name, getattr(self, name) + float(np.maximum(near - k, 0).sum()))

    @property
    def curve(self) -> Curve:
        """Q_NX."""
        common = np.cumsum(self.larger.sum(0)[1:])
        return Curve(common / (self.rows * np.arange(1, self.candidates + 1)))

    @property
    def kept_by_group(self) -> Array:
        """Qlocal and Qglobal of each group of rows, (groups, 2), with the border of near and far of all rows."""
        counts = (self.rows + np.arange(_GROUPS)[::-1]) // _GROUPS
        common = np.cumsum(self.larger[counts > 0, 1:], axis=1)
        shares = common / (counts[counts > 0, None] * np.arange(1, self.candidates + 1))
        border = self.curve.k_max
        beyond = shares[:, border:].mean(1) if border < self.candidates else np.ones(len(shares))
        return np.stack([shares[:, :border].mean(1), beyond], 1)

    @property
    def trustworthiness(self) -> float:
        """1 less what neighbours on the map that are none in the data cost, by how far they are there."""
        return 1 - self.strangers / self._worst

    @property
    def continuity(self) -> float:
        """1 less what neighbours in the data that are none on the map cost, by how far they are there."""
        return 1 - self.lost / self._worst

    @property
    def _worst(self) -> float:
        """What a map costs that puts the farthest in place of the nearest; Venna and Kaski (2001)."""
        k = self.neighbours
        return self.rows * k * (2 * self.candidates - 3 * k + 1) / 2
