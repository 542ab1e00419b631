"""Processes that train one model together: which rows of a batch each of them has, and sums over all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed

from ..errors import CurvaeError

__all__ = ["ALONE", "SHARDS", "Crew", "Share"]

SHARDS = 64
"""parts of the rows of which every batch has an equal share"""


@dataclass(frozen=True)
class Share:
    """What a process has of every batch: the rows of some shards, the same number for every process.

    Place p of the order of an epoch, or of one of its rounds, belongs to shard p % 64. So the batches of all processes
    together are those of a single one, and so is the noise of a row, which belongs to its place.

    Arguments:
        rank: of the process, from 0.
        size: processes in all, a divisor of 64.

    Example:
        >>> share = Share(1, 4)
        >>> share.places(0, 100).tolist() == [*range(16, 32), *range(80, 96)], share.before(np.array([20, 40])).tolist()
        (True, [4, 16])
    """

    rank: int = 0
    size: int = 1

    @property
    def whole(self) -> bool:
        """Whether these are all rows."""
        return self.size == 1

    def before(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many places before each of these are its own."""
        if self.whole:
            return places
        width = SHARDS // self.size
        rounds, shards = np.divmod(places, SHARDS)
        return rounds * width + np.clip(shards - self.rank * width, 0, width)

    def has(self, places: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these places are its own."""
        if self.whole:
            return np.ones(places.shape, np.bool_)
        return places % SHARDS // (SHARDS // self.size) == self.rank

    def places(self, start: int, stop: int) -> NDArray[np.int64]:
        """Its own places from `start` to `stop`."""
        places = np.arange(start, stop)
        return places[self.has(places)]

    def batches(self, own: slice, rows: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Its own places of every batch: in the order of all `rows`, of which `own` are visited, and in the batch."""
        start, stop, _ = own.indices(rows)
        for begin in range(start, stop, size):
            places = torch.from_numpy(self.places(begin, min(begin + size, stop)))
            yield places, places - begin


def _unexpected() -> CurvaeError:
    return CurvaeError("a process of the training was lost; go on with resume=True")


@dataclass(frozen=True)
class Crew:
    """The processes that train a model together, seen from one of them. By default there are no others.

    Arguments:
        share: of this process.
        lost: what to raise when another process does not answer any more.
    """

    share: Share = Share()
    lost: Callable[[], Exception] = field(default=_unexpected, compare=False)

    @property
    def leads(self) -> bool:
        """Whether this process writes files and speaks."""
        return self.share.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes, in place; each has the same bits then."""
        if not self.share.whole:
            try:
                distributed.all_reduce(tensor)
            except RuntimeError as error:
                raise self.lost() from error
        return tensor


ALONE = Crew()
"""a process that trains by itself"""
