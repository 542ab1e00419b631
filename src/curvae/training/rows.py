"""Rows as the networks see them: scaled, split, in batches, and shared among processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from torch import Generator, Tensor, distributed

from ..data.dataset import Arrays, Dataset, Scaling
from ..data.disk import in_memory, text_codes
from ..errors import CurvaeError
from ..models import Batch, Layout
from ..models.likelihoods.base import Matrix

if TYPE_CHECKING:
    from .neighbourhoods import Neighbourhoods

__all__ = [
    "EVERY",
    "HELD_OUT",
    "SHARDS",
    "SINGLE",
    "BatchShard",
    "Data",
    "DiskRows",
    "ModelRows",
    "ProcessGroup",
    "RowPool",
    "Rows",
    "Split",
    "StackedRows",
    "assemble",
    "judged_rows",
    "layout_of",
    "random_split",
    "shard_order",
]

Data = Arrays | Dataset | Matrix

_BLOCK = 4096


def layout_of(arrays: Arrays) -> Layout:
    """Return what a model must know about the data to be built for them."""
    return Layout(
        arrays.features,
        arrays.blocks,
        arrays.shape,
        0 if arrays.context is None else arrays.context.shape[1],
        arrays.missing,
        arrays.size is not None,
        arrays.total,
        arrays.batch,
        arrays.counts,
    )


def assemble(parts: dict[str, Any], missing: bool) -> Batch:
    """Make a batch of the given parts; where entries may be missing they are NaN, and `observed` tells which."""
    if missing:
        observed = ~parts["x"].isnan()
        parts = {**parts, "x": parts["x"].where(observed, 0.0), "observed": observed.to(parts["x"].dtype)}
    return Batch(**parts)


class Rows:
    """Rows of data, ready for batches; those that are sparse or on disk are made dense batch by batch.

    Arguments:
        data: the rows, in original units.
        scaling: of the columns.
        device: where batches are.
        dtype: of batches.
        whole: whether all rows are held as dense ones.

    Attributes:
        parts: what is held on the device, by name.
        on_disk: whether rows are read when a batch is made.
    """

    def __init__(
        self,
        data: Arrays | Matrix,
        scaling: Scaling,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        whole: bool = False,
    ) -> None:
        self.arrays = arrays = Arrays.of(data)
        self.layout = layout_of(arrays)
        self.device, self.dtype = torch.empty(0, device=device).device, dtype  # "cuda" as the "cuda:0" that it is
        self._scaling, self.on_disk = scaling, arrays.on_disk and not whole
        per_row = {name: csr_array(part) if issparse(part) else part for name, part in arrays.per_row.items()}
        self._lazy = {} if whole else {name: part for name, part in per_row.items() if not isinstance(part, np.ndarray)}
        self.parts = {name: self._convert(name, part) for name, part in per_row.items() if name not in self._lazy}

    def __len__(self) -> int:
        return len(self.arrays)

    @property
    def resident(self) -> bool:
        """Whether all rows are held on the device as the models see them."""
        return not self._lazy

    def _convert(self, name: str, values: Any) -> Tensor:
        """Convert numbers to a tensor, those of x scaled."""
        if name != "x":
            return torch.tensor(in_memory(values), device=self.device, dtype=self.dtype)
        values, scaled = in_memory(values), torch.empty(values.shape, dtype=self.dtype)
        # A block at a time: the arithmetic is float64, the result need not be.
        for start in range(0, values.shape[0], _BLOCK):
            part = values[start : start + _BLOCK]
            part = part if isinstance(part, np.ndarray) else part.toarray()
            with np.errstate(over="ignore"):  # what no float32 can hold is infinite, and named by who finds it so
                scaled.numpy()[start : start + _BLOCK] = self._scaling.apply(part)
        return scaled.to(self.device)

    def read(self, index: Tensor) -> dict[str, Tensor]:
        """Return the parts of rows by index; missing values are NaN."""
        return {
            **{name: self._convert(name, part[index.cpu().numpy()]) for name, part in self._lazy.items()},
            **{name: part[index] for name, part in self.parts.items()},
        }

    def batch(self, index: Tensor) -> Batch:
        """Make a batch of rows by index."""
        return assemble(self.read(index), self.layout.missing)


# Which rows are for what.


def judged_rows(names: NDArray[np.str_]) -> NDArray[np.bool_]:
    """Tell which rows to judge a model on, by what they were for: test rows, or else validation rows.

    Example:
        >>> judged_rows(np.array(["train", "validation", "test"])).tolist()
        [False, False, True]
        >>> judged_rows(np.array(["train", "validation", "train"])).tolist()
        [False, True, False]
    """
    tested = names == "test"
    return tested if tested.any() else names == "validation"


HELD_OUT = 10_000
"""rows that are held out of a training for validation, and for the report, at most"""


@dataclass(frozen=True, eq=False)
class Split:
    """Which rows are for training, for validation, and for neither: their numbers, of 32 or 64 bits."""

    train: NDArray[Any]
    validation: NDArray[Any]
    test: NDArray[Any] = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def parts(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Rows for training, for validation, and for neither."""
        return self.train, self.validation, self.test

    @property
    def counts(self) -> tuple[int, int]:
        """Rows for training and for validation."""
        return len(self.train), len(self.validation)

    def names(self, rows: int, start: int = 0) -> NDArray[np.str_]:
        """Return "train", "validation" or "test" for each of so many rows, by default from the first one on."""
        names = np.full(rows, "train", dtype="<U10")
        for name in ("validation", "test"):
            part = getattr(self, name)
            names[part[(part >= start) & (part < start + rows)] - start] = name
        return names

    def sample(self, most: int, seed: int) -> NDArray[np.int64]:
        """Choose at most so many rows of every part at random; return all of them in ascending order."""
        random = np.random.default_rng([seed, 11])
        chosen = [p if len(p) <= most else random.choice(p, most, replace=False, shuffle=False) for p in self.parts]
        return np.sort(np.concatenate(chosen))

    def within(self, rows: NDArray[np.int64]) -> Split:
        """Return the positions of each part among some rows, which are in ascending order."""
        return Split(*(np.flatnonzero(np.isin(rows, part)) for part in self.parts))


def random_split(
    rows: int,
    validation: float,
    test: float = 0.0,
    seed: int = 0,
    groups: Any = None,
    most: int | None = None,
) -> Split:
    """Split rows at random; rows of one group stay together.

    Arguments:
        rows: how many there are.
        validation, test: shares of them; met as nearly as whole groups allow.
        seed: the split depends on it.
        groups: group of each row, or None.
        most: rows for validation, and for test, at most, but for the last group.
    """
    bound = 1.0 if most is None else most / max(1, rows)
    validation, test = min(validation, bound), min(test, bound)
    keys = None if groups is None else text_codes(groups)
    sizes = None if keys is None else np.bincount(keys)
    units = rows if sizes is None else len(sizes)
    order = np.random.default_rng([seed, 7]).permutation(units)
    wanted = (round(rows * share) for share in (validation, validation + test))
    if sizes is None:
        ends = list(wanted)
    else:
        sums = np.concatenate([[0], np.cumsum(sizes[order])])
        ends = [int(np.abs(sums - count).argmin()) for count in wanted]
    part = np.zeros(units, np.int8)
    part[order[ends[0] : ends[1]]] = 2
    part[order[: ends[0]]] = 1
    del order
    part = part if keys is None else part[keys]
    # Of rows on disk there may be many times as many as fit in memory.
    numbers = np.int32 if rows < 1 << 31 else np.int64
    split = Split(*(np.flatnonzero(part == number).astype(numbers) for number in range(3)))
    if len(split.train) == 0:
        raise CurvaeError(f"no rows are left for training: {rows} rows in {units} groups; hold out a smaller share")
    return split


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
        """Count how many places before each of these are its own."""
        width = SHARDS // self.size
        rounds, shards = np.divmod(places, SHARDS)
        return rounds * width + np.clip(shards - self.rank * width, 0, width)

    def owns(self, places: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell which of these places are its own."""
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


@dataclass(frozen=True)
class ProcessGroup:
    """The processes that train a model together, seen from one of them. By default there are no others.

    Arguments:
        share: of this process.
        lost: what to raise when another process does not answer any more.
    """

    share: BatchShard = BatchShard()
    lost: Callable[[], Exception] = RuntimeError

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


# Rows on disk: in which order they are read, and by which threads.
#
# A pass visits the blocks of a file in a random order and takes some of them at a time into memory, a *round*. The
# rows of a round lie in 64 shards of equal length, one after the other. Each shard is shuffled, and the order of the
# round takes one row of every shard in turn: position p of a round is row p // 64 of shard p % 64. A batch is a
# stretch of that order, so it has an equal share of every shard.
#
# So the order follows from (seed, pass), the blocks and the length of a round alone. Processes whose number divides
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
    order = np.full((rows // SHARDS + 1, SHARDS), -1, np.int64)
    for shard, own in enumerate(np.array_split(np.arange(rows), SHARDS)):
        order[: len(own), shard] = random.permutation(own)
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
        drawn = None if self.seed is None else np.random.default_rng([self.seed, 1 + number])
        return np.arange(rows) if drawn is None else shard_order(rows, drawn)


class DiskRows:
    """Rows of a single model on disk, as `StackedRows` in memory. A thread reads the next round while one is in use.

    Arguments:
        rows: of all data.
        index: which of them, in ascending order.
        neighbours: what is known about their neighbours.
        share: what this process has of every batch; the `index` of a batch tells its positions in the whole one.
        threads: that read blocks.
    """

    started = False  # batches do not say where rows start

    def __init__(
        self,
        rows: Rows,
        index: Tensor,
        neighbours: Neighbourhoods | None = None,
        share: BatchShard = SINGLE.share,
        threads: int = 1,
    ) -> None:
        self.rows, self.index, self.device = rows, index, rows.device
        self._neighbours, self._share = neighbours, share
        x = rows.arrays.x
        bounds = np.array([*range(0, len(rows), x.block_rows), len(rows)], index.numpy().dtype)
        self._firsts = np.searchsorted(index.numpy(), bounds)
        self._counts = np.diff(self._firsts)
        layout = rows.layout
        row = rows.dtype.itemsize * (layout.features + layout.covariates + layout.size)
        self._most = max(int(self._counts.max()), min(_ROUND, x.memory // _SHARE) // row)
        self._thread, self._readers = ThreadPoolExecutor(1), ThreadPoolExecutor(threads)
        self._coming: dict[tuple[int | None, int], Future[dict[str, Tensor]]] = {}
        self._next: dict[tuple[int | None, int], Future[NDArray[np.int64]]] = {}

    def __len__(self) -> int:
        return len(self.index)

    def keep(self, places: Sequence[int]) -> Self:
        return self

    def batches(self, generators: Sequence[Generator] | None, size: int, own: slice = EVERY) -> Iterator[Batch]:
        seed = None
        if generators is not None:
            (one,) = generators
            seed = int(torch.randint(1 << 62, (), generator=one, device=one.device))
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
        stacked = {name: part.unsqueeze(0) for name, part in parts.items()}
        positions = stacked.pop("positions")
        batch = assemble(stacked, self.rows.layout.missing)
        if self._neighbours is None:
            return batch

        def rows(positions: Tensor) -> Batch:
            return self.rows.batch(self.index[positions[0]]).map(lambda part: part.unsqueeze(0))

        return self._neighbours.join(batch, positions, rows)

    def _take(self, parts: dict[str, Tensor], start: int, stop: int, filled: int) -> dict[str, Tensor]:
        """Take the rows between two positions of a round, for a batch that has `filled` rows already."""
        if self._share.whole:
            return {name: part[start:stop] for name, part in parts.items()}
        own = self._share.positions(start, stop)
        begin, end = self._share.count_before(np.array([start, stop])).tolist()
        taken = {name: part[begin:end] for name, part in parts.items()}
        return {**taken, "index": torch.from_numpy(own - start + filled)}

    def _round(self, plan: _Plan, number: int) -> dict[str, Tensor]:
        """Return the rows of a round by the name of a part, in the order of the epoch; start to read the next one."""
        coming: dict[tuple[int | None, int], Future[dict[str, Tensor]]] = {}
        for other in range(number, min(number + 2, len(plan.rounds))):
            key = plan.seed, other
            coming[key] = self._coming.get(key) or self._thread.submit(self._read, plan, other)
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
        mine, target = self._share.owns(positions), self._share.count_before(positions)
        # Room from NumPy: what torch allocated, it may keep for itself when it is released.
        parts = {
            name: np.empty((int(mine.sum()), *part.shape[1:]), part.numpy().dtype)
            for name, part in {**self.rows.read(self.index[:0]), "positions": torch.from_numpy(order[:0])}.items()
        }

        def place(block: int, first: int) -> None:
            """Bring the rows of a block to their positions; the first of them is this one of the round."""
            start, stop = self._firsts[block : block + 2].tolist()
            rows = np.flatnonzero(mine[first : first + stop - start])
            if len(rows):
                index = torch.from_numpy(start + rows)
                for name, part in {**self.rows.read(self.index[index]), "positions": index}.items():
                    parts[name][target[first + rows]] = part.numpy()  # faster than torch for rows in any order

        blocks = plan.rounds[number]
        firsts = np.cumsum(self._counts[blocks]) - self._counts[blocks]
        list(self._readers.map(place, blocks.tolist(), firsts.tolist()))  # waits for all, and raises what one raises
        return {name: torch.from_numpy(part) for name, part in parts.items()}


class StackedRows:
    """Rows of every model of a stack, in memory; parts of a batch have the models as first dimension.

    Where rows lie on the device as the models see them, a batch of all models is one gather.

    Arguments:
        pool: rows of all models.
        models: which of the models of the pool these are.
        index: rows of each of them by their places in the pool, (models, rows).
        neighbours: what is known about the neighbours of these rows.
        share: what this process has of every batch.
    """

    def __init__(
        self,
        pool: RowPool,
        models: Sequence[int],
        index: Tensor,
        neighbours: Neighbourhoods | None = None,
        share: BatchShard = SINGLE.share,
    ) -> None:
        self.device, self.resident = pool.device, pool.resident
        self._pool, self._models, self._index = pool, list(models), index
        self._neighbours, self._share = neighbours, share

    def __len__(self) -> int:
        return self._index.shape[1]

    def keep(self, places: Sequence[int]) -> Self:
        """Return the rows of some of the models."""
        neighbours = None if self._neighbours is None else self._neighbours.keep(places)
        index = self._index[list(places)]
        return type(self)(self._pool, [self._models[i] for i in places], index, neighbours, self._share)

    @property
    def started(self) -> bool:
        """Whether batches say where rows start."""
        return self._neighbours is not None and self._neighbours.start is not None

    def order(self, generators: Sequence[Generator] | None) -> Tensor:
        """Return the positions of the rows, (models, rows), in the order of an epoch; `gather` takes them."""
        if generators is None:
            return torch.arange(len(self), device=self.device).expand(len(self._models), -1)
        orders = {one: torch.randperm(len(self), generator=one, device=one.device) for one in dict.fromkeys(generators)}
        return torch.stack([orders[one] for one in generators]).to(self.device)

    def gather(self, positions: Tensor, kept: Tensor | None = None) -> Batch:
        """Return the rows in these positions; `kept` is 1 for those that count and 0 for what fills up the batch."""

        def rows(positions: Tensor) -> Batch:
            return self._pool.gather(self._index.gather(1, positions), self._models)

        batch = rows(positions)
        return batch if self._neighbours is None else self._neighbours.join(batch, positions, rows, kept)

    def batches(self, generators: Sequence[Generator] | None, size: int, own: slice = EVERY) -> Iterator[Batch]:
        """Iterate over every row once, in batches of `size` rows; the last may be smaller.

        Arguments:
            generators: of (seed, pass) of every model, which alone decide on the order; models that share one see the
                same order. They also make the noise of the epoch: what the order needs is taken from them before this
                returns, and nothing later. Without them, the order of the data.
            size: rows of a batch.
            own: which of the rows, by their place in that order.
        """
        order = self.order(generators)
        if self._share.whole:
            return map(self.gather, order[:, own].split(size, 1))
        return (
            self.gather(order[:, places]).joined(index=index.expand(len(order), -1))
            for places, index in self._share.batches(own, len(self), size)
        )


ModelRows = StackedRows | DiskRows
"""the rows of every model of a stack"""


class RowPool:
    """Rows of many models: distinct data once, and for every model which are its own.

    Attributes:
        resident: whether all rows lie on the device as the models see them.

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
        starts = dict.fromkeys(map(id, held), 0)
        if self.resident:
            self.parts = {
                name: part if len(held) == 1 else torch.cat([other.parts[name] for other in held])
                for name, part in held[0].parts.items()
            }
            starts = dict(zip(starts, np.cumsum([0, *map(len, held)]).tolist(), strict=False))
        self._starts = torch.tensor([[starts[id(part)]] for part in rows], device=self.device)

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
            keys.append((*map(id, arrays.per_row.values()), scaling.shift.tobytes(), scaling.scale.tobytes()))
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

    def gather(self, places: Tensor, models: Sequence[int]) -> Batch:
        """Make a batch of rows of some of the models by their places in the pool, (models, n)."""
        if self.resident:
            parts = {name: part[places] for name, part in self.parts.items()}
        else:
            each = [self.rows[model].read(own) for model, own in zip(models, places, strict=True)]
            parts = {name: torch.stack([one[name] for one in each]) for name in each[0]}
        return assemble(parts, self.rows[0].layout.missing)

    def part(
        self,
        index: Tensor | None = None,
        neighbours: Neighbourhoods | None = None,
        share: BatchShard = SINGLE.share,
    ) -> ModelRows:
        """Return rows of every model by index, (models, rows), by default all; and what is known of their neighbours.

        Of a `share`, batches have only the rows of one process, with their places in the whole batch as `index`.
        """
        if index is None:
            index = torch.arange(len(self.rows[0])).expand(len(self.rows), -1)
        index = index.to(self.device)
        if self.rows[0].on_disk and len(self.rows) == 1:
            return DiskRows(self.rows[0], index[0], neighbours, share, self._threads)
        return StackedRows(self, range(len(self.rows)), index + self._starts, neighbours, share)
