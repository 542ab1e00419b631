"""Where the batches of a training come from, and which part of a batch each process computes."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate
from threading import Lock
from typing import Any, Protocol, Self

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

__all__ = [
    "EVERY",
    "SHARDS",
    "SINGLE",
    "BatchShard",
    "DiskRows",
    "ModelRows",
    "PerModelRows",
    "ProcessGroup",
    "RowPool",
    "RowSource",
    "RowSubset",
    "StackedRows",
    "shard_order",
]


# Processes that train one model together: which rows of a batch each of them has, and sums over all of them.

SHARDS = 64
"""parts of the rows of which every batch has an equal share"""


@dataclass(frozen=True)
class BatchShard:
    """What a process has of every batch: the rows of some shards, the same number for every process.

    Place p of the order of an epoch, or of one of its rounds, belongs to shard p % 64. So the batches of all processes
    together are those of a single one, and so is the noise of a row, which belongs to its place.

    Arguments:
        rank: of the process, from 0.
        size: processes in all, a divisor of 64.

    Example:
        >>> share = BatchShard(1, 4)
        >>> share.positions(0, 100).tolist() == [*range(16, 32), *range(80, 96)]
        True
        >>> share.count_before(np.array([20, 40])).tolist()
        [4, 16]
    """

    rank: int = 0
    size: int = 1

    @property
    def whole(self) -> bool:
        """Whether these are all rows."""
        return self.size == 1

    def count_before(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many places before each of these are its own."""
        if self.whole:
            return places
        width = SHARDS // self.size
        rounds, shards = np.divmod(places, SHARDS)
        return rounds * width + np.clip(shards - self.rank * width, 0, width)

    def owns(self, places: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these places are its own."""
        if self.whole:
            return np.ones(places.shape, np.bool_)
        return places % SHARDS // (SHARDS // self.size) == self.rank

    def positions(self, start: int, stop: int) -> NDArray[np.int64]:
        """Its own places from `start` to `stop`."""
        places = np.arange(start, stop)
        return places[self.owns(places)]

    def batches(self, own: slice, rows: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Its own places of every batch: in the order of all `rows`, of which `own` are visited, and in the batch."""
        start, stop, _ = own.indices(rows)
        for begin in range(start, stop, size):
            places = torch.from_numpy(self.positions(begin, min(begin + size, stop)))
            yield places, places - begin


def _unexpected() -> CurvaeError:
    return CurvaeError("a process of the training was lost; go on with resume=True")


@dataclass(frozen=True)
class ProcessGroup:
    """The processes that train a model together, seen from one of them. By default there are no others.

    Arguments:
        share: of this process.
        lost: what to raise when another process does not answer any more.
    """

    share: BatchShard = BatchShard()
    lost: Callable[[], Exception] = field(default=_unexpected, compare=False)

    @property
    def is_main(self) -> bool:
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


SINGLE = ProcessGroup()
"""a process that trains by itself"""

EVERY = slice(None)
"""all rows"""

EVERYTHING = BatchShard()
"""that of a process that trains by itself"""


class RowSource(Protocol):
    """Rows that one model is trained on."""

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


class RowSubset:
    """Some rows of those in memory, dense or sparse.

    Example:
        >>> part = RowSubset(Rows(np.eye(3), Scaling.identity(3)), torch.tensor([2, 0]))
        >>> [batch.x.tolist() for batch in part.batches(None, 1)]
        [[[0.0, 0.0, 1.0]], [[1.0, 0.0, 0.0]]]
    """

    def __init__(
        self, rows: Rows, index: Tensor, neighbours: Neighbourhoods | None = None, share: BatchShard = EVERYTHING
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
        return _join_neighbours(
            self.rows.batch(self.index[positions]), positions, self.rows, self.index, self.neighbours
        )


def _join_neighbours(
    batch: Batch, positions: Tensor, rows: Rows, index: Tensor, neighbours: Neighbourhoods | None
) -> Batch:
    """Join a batch of one model with what is known about the neighbours of its rows.

    Arguments:
        batch: the rows.
        positions: of its rows in the index.
        rows: of all data.
        index: the rows that have neighbourhoods.
        neighbours: these.
    """
    if neighbours is None:
        return batch

    def stacked(batch: Batch) -> Batch:
        return batch.map(lambda part: part.unsqueeze(0))

    joined = neighbours.join(
        stacked(batch), positions.unsqueeze(0), lambda others: stacked(rows.batch(index[others[0]]))
    )
    return joined.map(lambda part: part[0])


def _orders(count: int, generators: Sequence[Generator] | None, device: torch.device, models: int) -> Tensor:
    """The order of the rows of every model in an epoch, (models, count)."""
    if generators is None:
        return torch.arange(count, device=device).expand(models, -1)
    orders = {one: torch.randperm(count, generator=one, device=one.device) for one in dict.fromkeys(generators)}
    return torch.stack([orders[one] for one in generators]).to(device)


# Rows on disk: in which order they are read, and by which threads.
#
# An epoch visits the blocks of a file in a random order and takes some of them at a time into memory, a *round*. The
# rows of a round lie in 64 shards of equal length, one after the other. Each shard is shuffled, and the order of the
# round takes one row of every shard in turn: position p of a round is row p // 64 of shard p % 64. A batch is a
# stretch of that order, so it has an equal share of every shard.
#
# So the order follows from (seed, epoch), the blocks and the length of a round alone. Processes whose number divides
# 64 each read the blocks of their own shards: together they make the same batches as one process.

_ROUND = 1 << 28  # bytes of a round at most: more shuffle no better
_READERS = 8  # threads that read for a GPU; on a CPU they would take time from the training
_SHARE = 4  # rounds that would fit in memory: one in use, one that is read, and what reading them takes


def shard_order(rows: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Draw the order of the rows of a round, (rows,).

    Example:
        >>> order = shard_order(200, np.random.default_rng(0))
        >>> sorted(order.tolist()) == list(range(200)), (order[:8] // 4).tolist()
        (True, [0, 1, 2, 3, 4, 5, 6, 7])
    """
    length, longer = divmod(rows, SHARDS)
    order = np.full((length + 1, SHARDS), -1, np.int64)
    start = 0
    for shard in range(SHARDS):
        own = length + (shard < longer)
        order[:own, shard] = start + random.permutation(own)
        start += own
    return order[order >= 0]


@dataclass(frozen=True)
class _Plan:
    """The order of an epoch.

    Arguments:
        seed: of the order; None for that of the data.
        rounds: the blocks of every round.
        starts: number of the first row of every round, and of all rows.
    """

    seed: int | None
    rounds: Sequence[NDArray[np.int64]]
    starts: Sequence[int]

    def order(self, number: int) -> NDArray[np.int64]:
        """Draw the order of the rows of a round."""
        rows = self.starts[number + 1] - self.starts[number]
        if self.seed is None:
            return np.arange(rows)
        return shard_order(rows, np.random.default_rng([self.seed, 1 + number]))


class DiskRows:
    """Rows on disk as a `RowSource`. A thread reads the next round while one is in use.

    Arguments:
        rows: of all data.
        index: which of them, in ascending order.
        neighbours: what is known about their neighbours.
        share: what this process has of every batch; the `index` of a batch tells its positions in the whole one.
        threads: that read blocks.
    """

    def __init__(
        self,
        rows: Rows,
        index: Tensor,
        neighbours: Neighbourhoods | None = None,
        share: BatchShard = EVERYTHING,
        threads: int = 1,
    ) -> None:
        self.rows, self.index, self.device = rows, index, rows.device
        self._neighbours, self._share = neighbours, share
        x = rows.arrays.x
        self._firsts = np.searchsorted(index.numpy(), [*range(0, len(rows), x.block_rows), len(rows)])
        self._counts = np.diff(self._firsts)
        layout = rows.layout
        row = rows.dtype.itemsize * (layout.features + layout.covariates + layout.size)
        self._most = max(int(self._counts.max()), min(_ROUND, x.memory // _SHARE) // row)
        self._thread, self._readers = ThreadPoolExecutor(1), ThreadPoolExecutor(threads)
        self._coming: dict[tuple[int | None, int], Future[dict[str, Tensor]]] = {}
        self._next: dict[tuple[int | None, int], Future[NDArray[np.int64]]] = {}

    @property
    def layout(self) -> Layout:
        return self.rows.layout

    def __len__(self) -> int:
        return len(self.index)

    def batches(self, generator: Generator | None, size: int, own: slice = EVERY) -> Iterator[Batch]:
        seed = None
        if generator is not None:
            seed = int(torch.randint(1 << 62, (), generator=generator, device=generator.device))
        start, stop, _ = own.indices(len(self))
        return self._batches(self._plan(seed), size, start, stop)

    def _plan(self, seed: int | None) -> _Plan:
        order = np.flatnonzero(self._counts)
        if seed is not None:
            order = np.random.default_rng([seed, 0]).permutation(order)
        rounds: list[list[int]] = []
        rows = self._most
        for block in order.tolist():
            count = int(self._counts[block])
            if rows + count > self._most:
                rounds.append([])
                rows = 0
            rounds[-1].append(block)
            rows += count
        sizes = [int(self._counts[blocks].sum()) for blocks in rounds]
        return _Plan(seed, [np.array(blocks) for blocks in rounds], list(accumulate(sizes, initial=0)))

    def _batches(self, plan: _Plan, size: int, start: int, stop: int) -> Iterator[Batch]:
        rest: dict[str, Tensor] = {}
        filled = 0  # rows of the batch so far, of all processes
        number = int(np.searchsorted(plan.starts, start, "right")) - 1
        while start < stop:
            parts = self._round(plan, number)
            first = plan.starts[number]
            end = min(stop, plan.starts[number + 1])
            while start < end:
                until = min(end, start + size - filled)
                taken = self._take(parts, start - first, until - first, filled)
                filled, start = filled + until - start, until
                # Copies: whoever has a batch would hold all of its round, beside the two that are in memory.
                rest = {name: torch.cat([rest[name], part]) if rest else part.clone() for name, part in taken.items()}
                if filled == size or start == stop:
                    yield self._assemble(rest)
                    rest, filled = {}, 0
            del parts, taken  # so that the round is released before the one after the next is read
            number += 1

    def _assemble(self, parts: dict[str, Tensor]) -> Batch:
        """Make a batch, with what is known about the neighbours of its rows."""
        positions = parts.pop("positions")
        batch = assemble(parts, self.layout.missing)
        return _join_neighbours(batch, positions, self.rows, self.index, self._neighbours)

    def _take(self, parts: dict[str, Tensor], start: int, stop: int, filled: int) -> dict[str, Tensor]:
        """Take the rows between two positions of a round, for a batch that has `filled` rows already."""
        if self._share.whole:
            return {name: part[start:stop] for name, part in parts.items()}
        own = self._share.positions(start, stop)
        begin, end = self._share.count_before(np.array([start, stop])).tolist()
        index = torch.from_numpy(own - start + filled)
        return {**{name: part[begin:end] for name, part in parts.items()}, "index": index}

    def _round(self, plan: _Plan, number: int) -> dict[str, Tensor]:
        """Return the rows of a round by the name of a part, in the order of the epoch; start to read the next one."""
        coming: dict[tuple[int | None, int], Future[dict[str, Tensor]]] = {}
        for other in (number, number + 1):
            if other < len(plan.rounds):
                key = plan.seed, other
                known = self._coming.get(key)
                coming[key] = self._thread.submit(self._read, plan, other) if known is None else known
        self._coming = coming  # the round in use as well: the next part of the epoch may go on with it
        try:
            return coming[plan.seed, number].result()
        except BaseException:
            self._coming = {}
            raise

    def _order(self, plan: _Plan, number: int) -> NDArray[np.int64]:
        """Return the order of a round; start to draw that of the next one."""
        known = self._next.get((plan.seed, number))
        self._next = {}
        if number + 1 < len(plan.rounds):
            self._next[plan.seed, number + 1] = self._readers.submit(plan.order, number + 1)
        return plan.order(number) if known is None else known.result()

    def _read(self, plan: _Plan, number: int) -> dict[str, Tensor]:
        order = self._order(plan, number)
        positions = np.empty_like(order)
        positions[order] = np.arange(len(order))
        made = _Round(self._share.owns(positions), torch.from_numpy(self._share.count_before(positions)))
        blocks = plan.rounds[number].tolist()
        firsts = (np.cumsum(self._counts[blocks]) - self._counts[blocks]).tolist()
        wanted = [
            (block, first)
            for block, first in zip(blocks, firsts, strict=True)
            if made.mine[first : first + self._counts[block]].any()
        ]
        tasks = wanted or [(blocks[-1], firsts[-1])]  # without a row, for the parts that a batch has
        for _ in self._readers.map(lambda task: self._place(made, *task), tasks):
            pass
        return made.parts

    def _place(self, made: _Round, block: int, first: int) -> None:
        """Read the rows of a block and bring them to their positions; the first of them is this one of the round."""
        start, stop = self._firsts[block : block + 2].tolist()
        own = slice(first, first + stop - start)
        positions = torch.from_numpy(start + np.flatnonzero(made.mine[own]))
        parts = {**self.rows.read(self.index[positions]), "positions": positions}
        made.put(parts, made.target[own][positions - start])


@dataclass(frozen=True)
class _Round:
    """Rows of a round, which threads bring to their positions in the order of the epoch.

    Arguments:
        mine: which rows are those of this process, (rows,).
        target: their positions among these, (rows,).
    """

    mine: NDArray[np.bool_]
    target: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)
    _lock: Any = field(default_factory=Lock)

    def put(self, parts: dict[str, Tensor], target: Tensor) -> None:
        """Put rows in their positions."""
        with self._lock:
            for name, part in parts.items():
                if name not in self.parts:
                    self.parts[name] = _allocate(int(self.mine.sum()), part)
        for name, part in parts.items():
            self.parts[name][target] = part


def _allocate(rows: int, like: Tensor) -> Tensor:
    """Allocate room for rows with NumPy: what torch allocated, it may keep for itself when it is released."""
    return torch.from_numpy(np.empty((rows, *like.shape[1:]), like.numpy().dtype))


class ModelRows(ABC):
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


class StackedRows(ModelRows):
    """Rows that lie on one device, from where a batch of all models is one gather."""

    def __init__(
        self,
        pool: RowPool,
        index: Tensor,
        starts: Tensor,
        neighbours: Neighbourhoods | None = None,
        share: BatchShard = EVERYTHING,
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


class PerModelRows(ModelRows):
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


class RowPool:
    """Rows of many models: distinct data once, and for every model which are its own.

    Example:
        >>> few = Rows(np.eye(3), Scaling.identity(3))
        >>> part = RowPool([few, few]).part(torch.tensor([[0, 1], [2, 2]]))
        >>> list(part.batches(None, 2))
        [Batch(x: (2, 2, 3))]
    """

    def __init__(self, rows: Sequence[Rows], threads: int = 1) -> None:
        self.rows, self.device, self._threads = list(rows), rows[0].device, threads
        held = list({id(part): part for part in rows}.values())
        self.resident = all(part.resident for part in held)
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
    ) -> RowPool:
        """From data and scaling of every model; what is the same is held once.

        With `whole`, rows lie on a CUDA device as the models see them, sparse ones as dense ones, if all of them fit
        there; otherwise they stay in the memory of the host, or on disk.
        """
        keys, distinct = [], {}
        for data, scaling in sources:
            arrays = Arrays.of(data)
            held = tuple(id(part) for part in arrays.per_row.values())
            keys.append((held, scaling.shift.tobytes(), scaling.scale.tobytes()))
            distinct[keys[-1]] = arrays, scaling
        device = torch.device(device)
        threads = min(_READERS, os.cpu_count() or 1) if device.type == "cuda" else 1
        resident = False
        if whole and device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(device)
            size = sum(2 * len(arrays) * arrays.features for arrays, _ in distinct.values()) * dtype.itemsize
            resident = size < free and not any(arrays.on_disk for arrays, _ in distinct.values())
            device = device if resident else torch.device("cpu")
        made = {key: Rows(arrays, scaling, device, dtype, resident) for key, (arrays, scaling) in distinct.items()}
        return cls([made[key] for key in keys], threads)

    def gather(self, places: Tensor) -> Batch:
        """Make a batch of rows by their places in `parts`, (models, n)."""
        return assemble({name: part[places] for name, part in self.parts.items()}, self.rows[0].layout.missing)

    def part(
        self,
        index: Tensor | None = None,
        neighbours: Neighbourhoods | None = None,
        share: BatchShard = EVERYTHING,
    ) -> ModelRows:
        """Rows of every model by index, (models, rows), by default all; and what is known of their neighbours.

        Of a `share`, batches have only the rows of one process, with their places in the whole batch as `index`.
        """
        if index is None:
            index = torch.arange(len(self.rows[0])).expand(len(self.rows), -1)
        index = index.to(self.device)
        if self.resident:
            return StackedRows(self, index, self._starts, neighbours, share)
        sources: list[RowSource] = []
        for place, (rows, own) in enumerate(zip(self.rows, index, strict=True)):
            near = None if neighbours is None else neighbours.keep([place])
            if rows.on_disk:
                sources.append(DiskRows(rows, own, near, share, self._threads))
            else:
                sources.append(RowSubset(rows, own, near, share))
        return PerModelRows(sources)
