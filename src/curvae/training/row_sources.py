"""Where the batches of a training come from, and which part of a batch each process computes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, distributed
from torch.utils._pytree import tree_map

from ..data import Arrays
from ..data.dataset import Scaling
from ..errors import CurvaeError
from ..models import Batch, Layout
from ..models.likelihoods.base import Matrix
from .neighbourhoods import Neighbourhoods
from .rows import Rows, assemble

__all__ = ["ALONE", "EVERY", "SHARDS", "Crew", "Gathered", "Part", "Pool", "RowSource", "Share", "Stacked", "Zipped"]


# Processes that train one model together: which rows of a batch each of them has, and sums over all of them.

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

EVERY = slice(None)
"""all rows"""

EVERYTHING = Share()
"""that of a process that trains by itself"""


class RowSource(Protocol):
    """Rows that one model is trained on. What a file that is read in pieces must offer."""

    @property
    def layout(self) -> Layout:
        """Of a row."""

    @property
    def device(self) -> torch.device:
        """Where batches are."""

    def __len__(self) -> int: ...

    def batches(self, generator: Generator | None, size: int, own: slice = EVERY) -> Iterator[Batch]:
        """Every row once, in batches of `size` rows; the last may be smaller.

        Arguments:
            generator: of (seed, epoch), which alone decides on the order. It also makes the noise of the epoch: take
                from it what the order needs before returning, and nothing later. Without one, the order of the data.
            size: rows of a batch.
            own: which of the rows, by their place in that order.
        """


class Part:
    """Some rows of those in memory, dense or sparse.

    Example:
        >>> part = Part(Rows(np.eye(3), Scaling.identity(3)), torch.tensor([2, 0]))
        >>> [batch.x.tolist() for batch in part.batches(None, 1)]
        [[[0.0, 0.0, 1.0]], [[1.0, 0.0, 0.0]]]
    """

    def __init__(
        self, rows: Rows, index: Tensor, neighbours: Neighbourhoods | None = None, share: Share = EVERYTHING
    ) -> None:
        self.rows, self.index, self.neighbours, self._share = rows, index, neighbours, share

    @property
    def layout(self) -> Layout:
        return self.rows.layout

    @property
    def device(self) -> torch.device:
        return self.rows.device

    def __len__(self) -> int:
        return len(self.index)

    def batches(self, generator: Generator | None, size: int, own: slice = EVERY) -> Iterator[Batch]:
        generators = None if generator is None else [generator]
        (order,) = _orders(len(self), generators, self.index.device, 1)
        if self._share.whole:
            return map(self._batch, order[own].split(size))
        shares = self._share.batches(own, len(self), size)
        return (self._batch(order[places]).joined(index=index) for places, index in shares)

    def _batch(self, positions: Tensor) -> Batch:
        batch = self.rows.batch(self.index[positions])
        if self.neighbours is None:
            return batch

        def stacked(batch: Batch) -> Batch:
            return batch.map(lambda part: part.unsqueeze(0))

        joined = self.neighbours.join(
            stacked(batch), positions.unsqueeze(0), lambda others: stacked(self.rows.batch(self.index[others[0]]))
        )
        return joined.map(lambda part: part[0])


def _orders(count: int, generators: Sequence[Generator] | None, device: torch.device, models: int) -> Tensor:
    """The order of the rows of every model in an epoch, (models, count)."""
    if generators is None:
        return torch.arange(count, device=device).expand(models, -1)
    orders = {one: torch.randperm(count, generator=one, device=one.device) for one in dict.fromkeys(generators)}
    return torch.stack([orders[one] for one in generators]).to(device)


class Stacked(ABC):
    """The rows of every model of a stack; parts of a batch have the models as first dimension.

    Attributes:
        device: where batches are.
    """

    device: torch.device

    @abstractmethod
    def __len__(self) -> int:
        """Rows of each model."""

    @abstractmethod
    def batches(self, generators: Sequence[Generator] | None, size: int, own: slice = EVERY) -> Iterator[Batch]:
        """As of `RowSource`, with the generator of each model. Models that share one see the same order."""

    @abstractmethod
    def keep(self, places: Sequence[int]) -> Self:
        """For some of the models."""


class Gathered(Stacked):
    """Rows that lie on one device, from where a batch of all models is one gather."""

    def __init__(
        self,
        pool: Pool,
        index: Tensor,
        starts: Tensor,
        neighbours: Neighbourhoods | None = None,
        share: Share = EVERYTHING,
    ) -> None:
        self.device, self._pool, self._neighbours, self._share = pool.device, pool, neighbours, share
        self._index, self._starts, self._places = index, starts, index + starts

    def __len__(self) -> int:
        return self._places.shape[1]

    def keep(self, places: Sequence[int]) -> Self:
        neighbours = None if self._neighbours is None else self._neighbours.keep(places)
        own = list(places)
        return type(self)(self._pool, self._index[own], self._starts[own], neighbours, self._share)

    def order(self, generators: Sequence[Generator] | None) -> Tensor:
        """Numbers of the rows, (models, rows), in the order of an epoch; `gather` takes them."""
        return _orders(len(self), generators, self.device, len(self._places))

    def gather(self, positions: Tensor, kept: Tensor | None = None) -> Batch:
        """The rows of these numbers; `kept` is 1 for those that count and 0 for what fills up the batch."""
        batch = self._pool.gather(self._places.gather(1, positions))
        if self._neighbours is None:
            return batch
        return self._neighbours.join(
            batch, positions, lambda others: self._pool.gather(self._places.gather(1, others)), kept
        )

    def batches(self, generators: Sequence[Generator] | None, size: int, own: slice = EVERY) -> Iterator[Batch]:
        order = self.order(generators)
        if self._share.whole:
            return map(self.gather, order[:, own].split(size, 1))
        shares = self._share.batches(own, len(self), size)
        models = len(order)
        return (self.gather(order[:, places]).joined(index=index.expand(models, -1)) for places, index in shares)


class Zipped(Stacked):
    """A source of its own for each model."""

    def __init__(self, sources: Sequence[RowSource]) -> None:
        self.sources, self.device = list(sources), sources[0].device

    def __len__(self) -> int:
        return len(self.sources[0])

    def keep(self, places: Sequence[int]) -> Self:
        return type(self)([self.sources[i] for i in places])

    def batches(self, generators: Sequence[Generator] | None, size: int, own: slice = EVERY) -> Iterator[Batch]:
        apart = [None] * len(self.sources) if generators is None else _apart(generators)
        each = [source.batches(one, size, own) for source, one in zip(self.sources, apart, strict=True)]
        return (tree_map(lambda *parts: torch.stack(parts), *batches) for batches in zip(*each, strict=True))


def _apart(generators: Sequence[Generator]) -> list[Generator]:
    """The generators, with a copy of its state for every further use of one."""
    states = {one: one.get_state() for one in dict.fromkeys(generators)}
    own: list[Generator] = []
    for one in generators:
        own.append(one if one not in own else Generator(one.device).set_state(states[one]))
    return own


class Pool:
    """Rows of many models: distinct data once, and for every model which are its own.

    Example:
        >>> few = Rows(np.eye(3), Scaling.identity(3))
        >>> part = Pool([few, few]).part(torch.tensor([[0, 1], [2, 2]]))
        >>> list(part.batches(None, 2))
        [Batch(x: (2, 2, 3))]
    """

    def __init__(self, rows: Sequence[Rows]) -> None:
        self.rows, self.device = list(rows), rows[0].device
        held = list({id(part): part for part in rows}.values())
        self.resident = not any(part.sparse for part in held)
        """whether all rows lie on the device as the models see them"""
        if self.resident:
            self.parts = {
                name: part if len(held) == 1 else torch.cat([other.parts[name] for other in held])
                for name, part in held[0].parts.items()
            }
            starts = dict(zip(map(id, held), np.cumsum([0, *map(len, held)]), strict=False))
            self._starts = torch.tensor([[int(starts[id(part)])] for part in rows], device=self.device)

    @classmethod
    def of(
        cls,
        sources: Sequence[tuple[Arrays | Matrix, Scaling]],
        device: torch.device | str,
        dtype: torch.dtype,
        whole: bool = False,
    ) -> Pool:
        """From data and scaling of every model; what is the same is held once.

        With `whole`, rows lie on a CUDA device as the models see them, sparse ones spread out, where all of them fit
        there; where they do not, they stay in the memory of the host.
        """
        keys, distinct = [], {}
        for data, scaling in sources:
            arrays = Arrays.of(data)
            held = tuple(id(part) for part in arrays.per_row.values())
            keys.append((held, scaling.shift.tobytes(), scaling.scale.tobytes()))
            distinct[keys[-1]] = arrays, scaling
        device = torch.device(device)
        spread = False
        if whole and device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(device)
            spread = (
                sum(2 * arrays.x.shape[0] * arrays.features for arrays, _ in distinct.values()) * dtype.itemsize < free
            )
            device = device if spread else torch.device("cpu")
        made = {key: Rows(arrays, scaling, device, dtype, spread) for key, (arrays, scaling) in distinct.items()}
        return cls([made[key] for key in keys])

    def gather(self, places: Tensor) -> Batch:
        """Rows by their places in `parts`, (models, n)."""
        return assemble({name: part[places] for name, part in self.parts.items()}, self.rows[0].layout.missing)

    def part(
        self,
        index: Tensor | None = None,
        neighbours: Neighbourhoods | None = None,
        share: Share = EVERYTHING,
    ) -> Stacked:
        """Rows of every model by index, (models, rows), by default all; and what is known of their neighbours.

        Of a `share`, batches have only the rows of one process, with their places in the whole batch as `index`.
        """
        if index is None:
            index = torch.arange(len(self.rows[0])).expand(len(self.rows), -1)
        index = index.to(self.device)
        if self.resident:
            return Gathered(self, index, self._starts, neighbours, share)
        return Zipped(
            [
                Part(rows, own, None if neighbours is None else neighbours.keep([place]), share)
                for place, (rows, own) in enumerate(zip(self.rows, index, strict=True))
            ]
        )
