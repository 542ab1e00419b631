"""Models of rows that are read in pieces: what is chosen for them from one pass over the data, and what trains them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data import Arrays, Stream
from ..data.scaling import Scaling
from ..data.streams.moments import Moments
from ..errors import CurvaeError
from ..models import VAE
from .captured import Captured
from .config import Config
from .effects import Effects
from .engine import BatchEngine
from .fitted import Fitted
from .problems import Judged, ModelInTraining, Task
from .rows_problem import (
    RowsProblem,
    RowsTask,
    chosen_likelihood,
    digest,
    resolve_defaults,
    scaling_digest,
    unexplained,
    watched_rows,
)
from .shared import SharedEngine
from .sources import Pool, Zipped
from .splits import HeldOut, Split, hold_out, hold_out_groups, random_split
from .streamed import StreamedRows

__all__ = ["HELD_OUT", "IN_PIECES", "StreamProblem", "held_out_rows", "plan_stream", "sample_rows"]

IN_PIECES = "the rows are read in pieces, and it needs all of them"
"""why the map of a stream is not held to the neighbourhoods of the data"""

HELD_OUT = 10_000
"""validation rows of a stream at most: they are in memory while a model is trained"""

_SHARE = 8  # times that they would fit in memory
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
    most, share = min(HELD_OUT, stream.memory // (_SHARE * 8 * stream.features)), config.validation + test
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
        config = resolve_defaults(config, likelihood, held, layout, IN_PIECES)
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
