"""What is to be trained: configurations with their data, and which of them can be stacked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..data import Arrays, Dataset, memory
from ..data.dataset import hash_rows
from ..errors import CurvaeError
from ..models import LIKELIHOODS, Layout
from ..models.likelihoods import choose_likelihood
from .config import Config
from .effects import Effects
from .problems import Planned
from .rows import Matrix, Scaling, layout_of
from .splits import Split, random_split

__all__ = ["Data", "Task", "fingerprinted", "plan_tasks", "resolve", "scaling_for", "stacks"]

Kind = TypeVar("Kind", bound=Planned)
Data = Arrays | Dataset | Matrix

_EXPLAINED = 1e-4  # share of the variance below which covariates leave nothing of a column


@dataclass(frozen=True)
class Task:
    """A model to be trained: everything but the rows, which many tasks may share."""

    place: int
    """in the list that was asked for"""
    name: str
    config: Config
    reason: str
    source: int
    """which of the data"""
    split: Split
    scaling: Scaling
    layout: Layout
    data: Mapping[str, str] = field(default_factory=dict)
    """fingerprints, by name, that a checkpoint keeps; see `fingerprinted`"""

    @property
    def architecture(self) -> Any:
        """What the models of one stack have in common."""
        return self.config.architecture, self.layout, (len(self.split.train), len(self.split.validation))


def resolve(config: Config, data: Arrays | Dataset | Matrix, split: Split) -> tuple[Config, Layout, str]:
    """The configuration with its "auto" choices made for the data, their layout, and why this likelihood."""
    likelihood, layout, reason = _chosen(Arrays.of(data), config.likelihood)
    return _settled(config, likelihood, split, layout.features), layout, reason


def _chosen(arrays: Arrays, asked: str) -> tuple[str, Layout, str]:
    """The likelihood for the data, their layout as it takes them, and why this likelihood."""
    layout = layout_of(arrays)
    name, reason = choose_likelihood(arrays.x, asked, layout)
    family, size = LIKELIHOODS[name], arrays.size
    if size is not None:
        if not family.uses_size:
            able = " or ".join(f'"{other}"' for other, known in LIKELIHOODS.items() if known.uses_size)
            raise CurvaeError(f"an exposure needs likelihood={able}, not {name}; ask for it, or leave out exposure=…")
        if size.shape != (len(arrays),) or not bool((np.isfinite(size) & (size > 0)).all()):
            raise CurvaeError("exposure must be a positive, finite number for every row; correct it")
    return name, family.layout(arrays.x, layout), reason


def _settled(config: Config, likelihood: str, split: Split, features: int) -> Config:
    train = len(split.train)
    rows = min(config.batch_size, train)
    # The outputs of a step with their gradients, or its noise: far from all that it takes.
    memory.require(
        8.0 * config.samples * rows * max(features, config.dim),
        f"a training with batches of {rows:,} rows and {config.samples:,} draws of each",
        fix="lower batch_size or samples",
    )
    if config.patience is not None and not len(split.validation):
        rows = len(split.train) + len(split.test)
        raise CurvaeError(
            f"early stopping needs validation rows, and a share of {config.validation:g} of {rows} rows holds "
            "none; hold out a larger share, or drop patience"
        )
    return replace(config, likelihood=likelihood, epochs=config.epochs_for(train))


def scaling_for(config: Config, layout: Layout, data: Arrays, split: Split) -> Scaling:
    """How columns are scaled, from all rows that are not test rows: to the variance that covariates leave."""
    features = config.scaled(layout)
    if not features.any():
        return Scaling.identity(data.features)
    seen = data.take(np.setdiff1d(np.arange(len(data)), split.test) if len(split.test) else slice(None))
    scaling = Scaling.standard(seen.x)
    if seen.context is None:
        return scaling.only(features)
    left = 1 - Effects.of(seen.x, seen.context).variance(seen.context) / scaling.scale**2
    left = np.where(left > _EXPLAINED, left, 1.0)
    return replace(scaling, scale=scaling.scale * np.sqrt(left)).only(features)


def plan_tasks(
    configs: Sequence[Config],
    data: Data | Sequence[Data],
    blocks: tuple[int, ...] = (),
    splits: Sequence[Split] | None = None,
    scalings: Sequence[Scaling] | None = None,
) -> tuple[list[Task], list[Arrays]]:
    """Configurations with their "auto" choices made, and the distinct data that they share."""
    if not configs:
        raise CurvaeError("there is nothing to train: give one or more configurations")
    each: Sequence[Any] = data if isinstance(data, list | tuple) else [data] * len(configs)
    for name, entries in (("data", each), ("splits", splits), ("scalings", scalings)):
        if entries is not None and len(entries) != len(configs):
            raise CurvaeError(f"{name} must hold one entry a configuration: {len(configs)}, got {len(entries)}")
    sources: list[Arrays] = []
    places: dict[int, int] = {}
    known: dict[Any, Any] = {}

    def once(make: Callable[[], Any], *key: Any) -> Any:
        """What many configurations share is looked for once: a look at the data can take longer than an epoch."""
        if key not in known:
            known[key] = make()
        return known[key]

    tasks = []
    for i, config in enumerate(configs):
        given = each[i]
        if id(given) not in places:
            places[id(given)] = len(sources)
            sources.append(Arrays.of(given, blocks))
        source = places[id(given)]
        arrays = sources[source]
        x, rows = arrays.x, len(arrays)
        share, seed = config.validation, config.seed
        split = once(partial(random_split, rows, share, seed=seed), rows, share, seed) if splits is None else splits[i]
        likelihood, layout, reason = once(partial(_chosen, arrays, config.likelihood), source, config.likelihood)
        config = _settled(config, likelihood, split, x.shape[1])
        scaling = (
            once(
                partial(scaling_for, config, layout, sources[source], split),
                source,
                config.scaled(layout).tobytes(),
                split.test.tobytes(),
            )
            if scalings is None
            else scalings[i]
        )
        name = f"model {i + 1} of {len(configs)} (seed {config.seed}, c = {config.curvature:g})"
        tasks.append(Task(i, name, config, reason, source, split, scaling, layout))
    return tasks, sources


def fingerprinted(tasks: Sequence[Task], sources: Sequence[Arrays]) -> list[Task]:
    """The same tasks with what a checkpoint is to know of their data: a digest of rows, split and scaling."""
    made: dict[Any, str] = {}

    def rows(task: Task) -> str:
        key = task.source, task.layout, task.config.likelihood
        if key not in made:
            arrays, blocks = sources[task.source], task.layout.blocks
            # Where the likelihood treats all features alike, blocks count only if all columns are categorical: so it
            # is in checkpoints of before columns of several kinds were told apart.
            if LIKELIHOODS[task.config.likelihood].columns is None and min(blocks, default=0) < 2:
                blocks = ()
            digest = hashlib.sha256(
                json.dumps([arrays.x.shape, blocks, *(["missing"] if arrays.missing else [])]).encode()
            )
            for part in arrays.per_row.values():
                hash_rows(part.reshape(len(arrays), -1), digest)
            made[key] = digest.hexdigest()
        return made[key]

    def split(task: Task) -> str:
        parts = (task.split.train, task.split.validation, task.split.test)
        return _digest(*(part.astype("<i8") for part in parts))

    def scaling(task: Task) -> str:
        # To six digits: other machines round the last ones of a mean otherwise.
        shift, scale = task.scaling.shift, task.scaling.scale
        with np.errstate(all="ignore"):
            figures = np.stack([shift / scale, np.log(scale)])
        return _digest(np.round(figures, 6).astype("<f8") + 0.0)

    return [replace(task, data={"rows": rows(task), "split": split(task), "scaling": scaling(task)}) for task in tasks]


def _digest(*arrays: NDArray[Any]) -> str:
    return hashlib.sha256(b"\n".join(array.tobytes() for array in arrays)).hexdigest()


def stacks(tasks: Sequence[Kind], shares: int = 1, begun: Sequence[Sequence[int]] = ()) -> list[list[Kind]]:
    """Tasks of one architecture together, in about so many pieces of like size; equal learning rates lie together.

    Stacks that have begun, given by the places of their tasks, stay as they are.
    """
    groups: dict[Any, list[Kind]] = {}
    for task in tasks:
        groups.setdefault(task.architecture, []).append(task)
    known = {task.place: task for task in tasks}
    found = [[known.pop(place) for place in places] for places in begun]
    for group in groups.values():
        group.sort(key=lambda task: task.config.learning_rate)
        pieces = min(len(group), max(1, round(shares * len(group) / len(tasks))))
        ends = [len(group) * i // pieces for i in range(pieces + 1)]
        # What has not begun stays together as it would have been, if the shares are those of before.
        left = ([task for task in group[a:b] if task.place in known] for a, b in pairwise(ends))
        found += [piece for piece in left if piece]
    return found
