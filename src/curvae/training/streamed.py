"""Rows that are read in pieces, as batches: in which order, and by which thread.

An epoch visits the blocks of a stream in a random order and takes some of them at a time into memory, a *round*. The
rows of a round lie in 64 shards of equal length, one after the other. Each shard is shuffled, and the order of the
round takes one row of every shard in turn: place p of a round is row p // 64 of shard p % 64. A batch is a stretch of
that order, so it has an equal share of every shard.

So the order follows from (seed, epoch), the blocks and the length of a round alone. Processes whose number divides 64
each read the blocks of their own shards: together they make the same batches as one process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import accumulate
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from ..data import Arrays, Stream
from ..data.dataset import Scaling
from ..data.memory import size_text
from ..data.streams.stream import Moments
from ..errors import CurvaeError
from ..models import VAE, Batch, Layout
from ..settings import resolve_defaults
from .build import Effects
from .captured import Captured, SharedEngine
from .config import Config
from .engine import BatchEngine
from .fitted import Fitted
from .problems import Judged, ModelInTraining, Task
from .row_sources import EVERY, EVERYTHING, SHARDS, Pool, Share, Zipped
from .rows import HeldOut, Rows, Split, assemble, hold_out, hold_out_groups, random_split
from .rows_problem import (
    RowsProblem,
    RowsTask,
    chosen_likelihood,
    digest,
    require_batch_memory,
    scaling_digest,
    unexplained,
    watched_rows,
)

__all__ = [
    "HELD_OUT",
    "IN_PIECES",
    "SHARDS",
    "StreamProblem",
    "StreamedRows",
    "held_out_rows",
    "plan_stream",
    "sample_rows",
    "shard_order",
]

_ROUND = 1 << 28  # bytes of a round at most: more shuffle no better
_SHARE = 4  # rounds that would fit in memory: one in use, one that is read, and what reading them takes


def shard_order(rows: int, random: np.random.Generator) -> NDArray[np.int64]:
    """The order of the rows of a round, (rows,).

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
    """An epoch: the blocks of every round, and where the rounds start among its rows, with the number of all."""

    seed: int | None
    rounds: Sequence[NDArray[np.int64]]
    starts: Sequence[int]

    def order(self, place: int) -> NDArray[np.int64]:
        """Rows of a round in the order of the epoch."""
        rows = self.starts[place + 1] - self.starts[place]
        if self.seed is None:
            return np.arange(rows)
        return shard_order(rows, np.random.default_rng([self.seed, 1 + place]))


class StreamedRows:
    """The training rows of a stream, as a `RowSource`. A thread reads the next round while one is in use.

    Arguments:
        stream: the rows.
        scaling: of the columns.
        held_out: which rows are left out.
        layout: of a row, as the model takes it.
        dtype: of batches.
        share: what this process has of every batch; `index` of these tells the places of its rows in the whole batch.
        threads: that read blocks; fewer where blocks are so large that memory would not hold theirs.

    Attributes:
        device: where batches are.
    """

    device = torch.device("cpu")

    def __init__(
        self,
        stream: Stream,
        scaling: Scaling,
        held_out: HeldOut,
        layout: Layout,
        dtype: torch.dtype = torch.float32,
        share: Share = EVERYTHING,
        threads: int = 1,
    ) -> None:
        self.layout, self._stream, self._scaling, self._dtype = layout, stream, scaling, dtype
        self._share = share
        self._held = held_out.all
        self._counts = np.diff(stream.starts - np.searchsorted(self._held, stream.starts))
        row = dtype.itemsize * (layout.features + layout.covariates + layout.size)
        bound = stream.memory // _SHARE
        if (largest := int(self._counts.max()) * row) > bound:
            raise CurvaeError(
                f"a block of {stream.blocks.path.name} has {int(self._counts.max()):,} rows, which need "
                f"{size_text(_SHARE * largest)}; raise memory=…, or write the file with smaller row groups"
            )
        self._most = min(_ROUND, bound) // row
        self._thread = ThreadPoolExecutor(1)
        self._readers = ThreadPoolExecutor(max(1, min(threads, bound // max(largest, 1))))
        self._coming: dict[tuple[int | None, int], Future[dict[str, Tensor]]] = {}
        self._next: dict[tuple[int | None, int], Future[NDArray[np.int64]]] = {}

    def __len__(self) -> int:
        return int(self._counts.sum())

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
        place = int(np.searchsorted(plan.starts, start, "right")) - 1
        while start < stop:
            parts = self._round(plan, place)
            first = plan.starts[place]
            end = min(stop, plan.starts[place + 1])
            while start < end:
                until = min(end, start + size - filled)
                taken = self._taken(parts, start - first, until - first, filled)
                filled, start = filled + until - start, until
                # Copies: whoever has a batch would hold all of its round, beside the two that are in memory.
                rest = {name: torch.cat([rest[name], part]) if rest else part.clone() for name, part in taken.items()}
                if filled == size or start == stop:
                    yield assemble(rest, self.layout.missing)
                    rest, filled = {}, 0
            del parts, taken  # so that the round is released before the one after the next is read
            place += 1

    def _taken(self, parts: dict[str, Tensor], start: int, stop: int, filled: int) -> dict[str, Tensor]:
        """The rows between two places of a round, for a batch that has so many already."""
        if self._share.whole:
            return {name: part[start:stop] for name, part in parts.items()}
        own, (begin, end) = self._share.places(start, stop), self._share.before(np.array([start, stop])).tolist()
        index = torch.from_numpy(own - start + filled)
        return {**{name: part[begin:end] for name, part in parts.items()}, "index": index}

    def _round(self, plan: _Plan, place: int) -> dict[str, Tensor]:
        """The rows of a round by the name of a part, in the order of the epoch; the next one is begun to be read."""
        coming: dict[tuple[int | None, int], Future[dict[str, Tensor]]] = {}
        for other in (place, place + 1):
            if other < len(plan.rounds):
                key = plan.seed, other
                known = self._coming.get(key)
                coming[key] = self._thread.submit(self._read, plan, other) if known is None else known
        self._coming = coming  # the round in use as well: the next part of the epoch may go on with it
        try:
            return coming[plan.seed, place].result()
        except BaseException:
            self._coming = {}
            raise

    def _ordered(self, plan: _Plan, place: int) -> NDArray[np.int64]:
        """The order of a round; that of the next one is begun to be made."""
        known = self._next.get((plan.seed, place))
        self._next = {}
        if place + 1 < len(plan.rounds):
            self._next[plan.seed, place + 1] = self._readers.submit(plan.order, place + 1)
        return plan.order(place) if known is None else known.result()

    def _read(self, plan: _Plan, place: int) -> dict[str, Tensor]:
        order = self._ordered(plan, place)
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        made = _Round(self._share.has(places), torch.from_numpy(self._share.before(places)))
        blocks = plan.rounds[place].tolist()
        firsts = (np.cumsum(self._counts[blocks]) - self._counts[blocks]).tolist()
        wanted = [
            (block, first)
            for block, first in zip(blocks, firsts, strict=True)
            if made.mine[first : first + self._counts[block]].any()
        ]
        tasks = wanted or [(blocks[-1], firsts[-1])]  # without a row, for the parts that a batch has
        for _ in self._readers.map(lambda task: self._bring(made, *task), tasks):
            pass
        return made.parts

    def _bring(self, made: _Round, block: int, first: int) -> None:
        """Bring the rows of a block to their places; the first of them has this number in the round."""
        start = int(self._stream.starts[block])
        for arrays in self._stream.arrays(block):
            held = self._held[np.searchsorted(self._held, start) : np.searchsorted(self._held, start + len(arrays))]
            kept: Any = np.delete(np.arange(len(arrays)), held - start) if len(held) else slice(None)
            stop = first + len(arrays) - len(held)
            start += len(arrays)
            if not self._share.whole:
                kept = np.arange(len(arrays))[kept][made.mine[first:stop]]
            made.put(slice(first, stop), Rows(arrays.take(kept), self._scaling, dtype=self._dtype, whole=True))
            first = stop


@dataclass(frozen=True)
class _Round:
    """Rows of a round, which threads bring to their places in the order of the epoch.

    Arguments:
        mine: which rows are those of this process, (rows,).
        target: their places among these, (rows,).
    """

    mine: NDArray[np.bool_]
    target: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)
    _lock: Any = field(default_factory=Lock)

    def put(self, own: slice, rows: Rows) -> None:
        """Place a stretch of the round."""
        mine = self.mine[own]
        target = self.target[own] if mine.all() else self.target[own][torch.from_numpy(mine)]
        with self._lock:
            for name, part in rows.parts.items():
                if name not in self.parts:
                    self.parts[name] = _room(int(self.mine.sum()), part)
        for name, part in rows.parts.items():
            self.parts[name][target] = part


def _room(rows: int, like: Tensor) -> Tensor:
    """Place for so many rows, from NumPy: what torch allocated, it may keep for itself when it is released."""
    return torch.from_numpy(np.empty((rows, *like.shape[1:]), like.numpy().dtype))


# Models of rows that are read in pieces: what is chosen for them from one pass over the data, and what trains them.

IN_PIECES = "the rows are read in pieces, and it needs all of them"
"""why the map of a stream is not held to the neighbourhoods of the data"""

HELD_OUT = 10_000
"""validation rows of a stream at most: they are in memory while a model is trained"""

_HELD_SHARE = 8  # times that they would fit in memory
_READERS = 8  # threads that read for a GPU; on a CPU they would take time from the training


@dataclass(frozen=True, eq=False)
class StreamTask(RowsTask):
    """A model to be trained on a stream, alone: others would read other blocks at the same time.

    Its `split` is a `HeldOut`.
    """

    split: Any

    @property
    def architecture(self) -> Any:
        return self.config.architecture, self.layout, self.place


def held_out_rows(config: Config, stream: Stream, test: float = 0.0) -> HeldOut:
    """The validation rows of a stream, and test rows where a share of these is given: shares of it, but at most 10,000
    and what an eighth of the memory holds. Where there are groups, they are all rows of some."""
    most, share = min(HELD_OUT, stream.memory // (_HELD_SHARE * 8 * stream.features)), config.validation + test
    if stream.groups is None:
        held = hold_out(len(stream), share, most, config.seed).validation
        group = np.arange(len(held))
    else:
        chosen = hold_out_groups(stream.groups, share, most, config.seed)
        held = np.concatenate([np.empty(0, np.int64), *(stream.rows_of([name]) for name in chosen)])
        group = np.repeat(np.arange(len(chosen)), [stream.groups[name] for name in chosen])
    if not test or len(held) < 2:
        return HeldOut(len(stream), np.sort(held))
    parts = random_split(len(held), test / share, seed=config.seed, groups=group)
    return HeldOut(len(stream), np.sort(held[parts.train]), np.sort(held[parts.validation]))


def sample_rows(stream: Stream, held_out: HeldOut, seed: int) -> tuple[NDArray[np.int64], Split]:
    """The rows that are held out and at most 10,000 others, chosen at random, in ascending order; and which of these
    are which."""
    random = np.random.default_rng([seed, 11])
    others = random.choice(len(stream), min(HELD_OUT, len(stream)), replace=False, shuffle=False).astype(np.int64)
    rows = np.union1d(held_out.all, others)
    names = held_out.names(rows)
    train, validation, test = (np.flatnonzero(names == name) for name in ("train", "validation", "test"))
    return rows, Split(train, validation, test)


def plan_stream(
    configs: Sequence[Config],
    stream: Stream,
    split: HeldOut | None = None,
    scaling: Scaling | None = None,
    **problem: Any,
) -> tuple[StreamProblem, list[StreamTask]]:
    """A task for every configuration, with its "auto" choices made, and the problem that they belong to.

    Arguments:
        configs: what to train.
        stream: the rows of all of them.
        split: rows to hold out; by default at random from the configuration.
        scaling: how to scale columns; by default from all rows.
        problem: further arguments of `StreamProblem`.
    """
    tasks = []
    for place, config in enumerate(configs):
        if config.uses_neighbours:
            raise CurvaeError(
                f'neighbours="{config.neighbours}" needs all rows in memory to know who is near whom; '
                'use neighbours="off", or train on a sample of the rows'
            )
        if config.init == "pca":
            raise CurvaeError(
                'init="pca" needs all rows in memory; use init="random", or train on a sample of the rows'
            )
        held = held_out_rows(config, stream) if split is None else split
        likelihood, layout, reason = chosen_likelihood(stream.examples, config.likelihood)
        require_batch_memory(config, held.counts[0], layout.features)
        config = resolve_defaults(replace(config, likelihood=likelihood), held.counts, layout, IN_PIECES)
        own = _scaling(config.scaled(layout), stream) if scaling is None else scaling
        name = Task.label(place, len(configs), config)
        tasks.append(StreamTask(place, name, config, 0, held, own, layout, reason))
    return StreamProblem([stream], **problem), tasks


def _scaling(features: NDArray[np.bool_], stream: Stream) -> Scaling:
    known = stream.known
    if not features.any():
        return Scaling.identity(stream.features)
    scaling = Scaling.from_moments(known.mean, known.deviation, lambda: known.low)
    if stream.moments is not None:
        scaling = unexplained(scaling, Effects.of_moments(stream.moments).variance_of_moments(stream.moments))
    return scaling.only(features)


def _mean_exposure(stream: Stream, held: Arrays | None) -> float:
    """Mean exposure of the rows that are not held out; 1 without exposures."""
    if stream.mean_exposure is None or held is None or held.size is None:
        return stream.mean_exposure or 1.0
    return (stream.mean_exposure * len(stream) - float(held.size.sum())) / (len(stream) - len(held))


@dataclass(frozen=True)
class StreamProblem(RowsProblem):
    """Models of rows that are read in pieces; `sources` are a single `Stream`."""

    @property
    def stream(self) -> Stream:
        """The rows."""
        return self.sources[0]

    def fingerprints(self, task: RowsTask, known: dict[Any, str]) -> dict[str, str]:
        held = digest(*(part.astype("<i8") for part in (task.split.validation, task.split.test) if len(part)))
        return {"rows": self.stream.identity, "split": held, "scaling": scaling_digest(task.scaling)}

    def _start(self, task: RowsTask) -> tuple[NDArray[np.float64], Effects | None]:
        split: Any = task.split
        stream, apart = self.stream, split.all
        mean, held = stream.known.mean, None
        if len(apart):
            held = stream.held(apart)
            mean = stream.known.mean_without(held.x)
        unit = np.array([_mean_exposure(stream, held)])
        moments = stream.moments
        if moments is not None and held is not None:
            moments = moments.plus(Moments.of(held, moments.origin), -1.0)
        return mean / unit, None if moments is None else Effects.of_moments(moments).scaled(unit)

    def engine(self, tasks: Sequence[RowsTask], models: Sequence[VAE]) -> BatchEngine:
        (task,) = tasks
        held_out: Any = task.split
        threads = min(_READERS, os.cpu_count() or 1) if self.device.type == "cuda" else 1
        rows = StreamedRows(self.stream, task.scaling, held_out, task.layout, self.dtype, self.crew.share, threads)
        watched = watched_rows(task)
        validation = None
        if len(watched):
            held = self.stream.held(watched)
            validation = Pool.of([(held, task.scaling)], self.device, self.dtype, whole=True).part(
                share=self.crew.share
            )
        if not self.crew.share.whole:
            return SharedEngine(models, [task.config], Zipped([rows]), validation, self.crew)
        kind = Captured if self.device.type == "cuda" else BatchEngine
        return kind(models, [task.config], Zipped([rows]), validation)

    def result(self, task: RowsTask, trained: ModelInTraining) -> Fitted:
        alone = Split(np.empty(0, np.int64), task.split.validation, task.split.test)  # others would fill the memory
        return super().result(replace(task, split=alone), trained)

    def judge(self, tasks: Sequence[RowsTask], fitted: Sequence[Fitted]) -> list[Judged]:
        raise CurvaeError("a comparison needs all rows in memory; give a sample of them")
