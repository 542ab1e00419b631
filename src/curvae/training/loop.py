"""Training: of one model, or of a whole list of them at once."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..data import Dataset
from ..data.missing import column_means
from ..errors import CurvaeError
from .build import build
from .captured import Captured
from .config import Config
from .engine import Engine
from .fitted import METRICS, Fitted, Record
from .rows import Matrix, Pool, Scaling, choose_likelihood
from .splits import Split, random_split
from .stacks import Checkpoint, Member, train

__all__ = ["fit", "fit_many", "resolve", "scaling_for"]

# Steps from which on capturing a CUDA graph pays.
_CAPTURE = 200


def resolve(config: Config, x: Matrix, split: Split, blocks: tuple[int, ...] = ()) -> tuple[Config, str]:
    """The configuration with its "auto" choices made for the data, and the reason for the likelihood."""
    if config.patience is not None and not len(split.validation):
        raise CurvaeError(
            f"early stopping needs validation rows, and a share of {config.validation:g} of {x.shape[0]} rows holds "
            "none; hold out a larger share, or drop patience"
        )
    likelihood, reason = choose_likelihood(x, config.likelihood, blocks)
    return replace(config, likelihood=likelihood, epochs=config.epochs_for(len(split.train))), reason


def scaling_for(config: Config, x: Matrix, split: Split) -> Scaling:
    """How columns are scaled, from all rows that are not test rows."""
    if not config.scales:
        return Scaling.identity(x.shape[1])
    seen = np.setdiff1d(np.arange(x.shape[0]), split.test) if len(split.test) else slice(None)
    return Scaling.standard(x[seen])


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
    blocks: tuple[int, ...]

    @property
    def architecture(self) -> Any:
        """What the models of one stack have in common."""
        config = self.config
        flat = not config.learn_curvature and config.curvature == 0
        alike = replace(config, seed=0, curvature=0.0 if flat else 1.0, prior_scale=1.0, learning_rate=1.0, beta=1.0)
        return alike, self.blocks, len(self.scaling.shift), len(self.split.train), len(self.split.validation)


def fit(
    config: Config,
    x: Matrix | Dataset,
    *,
    blocks: tuple[int, ...] = (),
    split: Split | None = None,
    scaling: Scaling | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    folder: Path | None = None,
    resume: bool = False,
    progress: Callable[[Record, int], None] = lambda record, epochs: None,
) -> Fitted:
    """Train a model.

    The order of rows and all noise of an epoch come from (seed, epoch) alone, so that a run that was interrupted and
    resumed from its checkpoint ends with the same weights as one that was not.

    Arguments:
        config: what to train; "auto" choices are resolved in the result.
        x: numpy array or scipy CSR matrix of rows, in original units.
        blocks: widths of one-hot blocks, for the categorical likelihood.
        split: rows for training and validation; by default at random from the configuration.
        scaling: how to scale columns; by default from all rows that are not test rows.
        device: where to train.
        dtype: of the networks; the latent space is always float64.
        folder: keeps `metrics.jsonl` and `checkpoint/`; without it nothing is written.
        resume: go on from the checkpoint in `folder`, if there is one.
        progress: called after each epoch with its record and the number of epochs.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(40, 3))
        >>> fitted = fit(Config(epochs=2, hidden=(8,)), x)
        >>> sorted(fitted.history[0])[:5]
        ['c', 'elbo', 'epoch', 'kl', 'prior_scale']
    """
    (fitted,) = fit_many(
        [config],
        x,
        blocks=blocks,
        splits=None if split is None else [split],
        scalings=None if scaling is None else [scaling],
        device=device,
        dtype=dtype,
        folder=folder,
        resume=resume,
        progress=lambda place, record, epochs: progress(record, epochs),
    )
    if fitted.failure is not None:
        raise CurvaeError(fitted.failure)
    return fitted


def fit_many(
    configs: Sequence[Config],
    data: Matrix | Dataset | Sequence[Matrix | Dataset],
    *,
    blocks: tuple[int, ...] = (),
    splits: Sequence[Split] | None = None,
    scalings: Sequence[Scaling] | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    folder: Path | None = None,
    resume: bool = False,
    progress: Callable[[int, Record, int], None] = lambda place, record, epochs: None,
    warn: Callable[[str], None] = lambda text: None,
) -> list[Fitted]:
    """Train many models at once, each as `fit` would train it alone.

    Models of one architecture are stacked: one step of the stack costs little more than one of a single model. Seeds,
    curvatures above 0, prior scales, learning rates and β may differ within a stack, and so may the rows; other
    differences make a further stack. A model whose loss is not a number ends there, keeps the weights of its last good
    epoch and has `failure` set; the others go on.

    Arguments:
        configs: what to train.
        data: rows for all of them, or a list with the rows of each.
        blocks, device, dtype: as of `fit`.
        splits, scalings: of each.
        folder: keeps `checkpoint/`, and `metrics.jsonl` of the first model.
        resume: go on from the checkpoints in `folder`, where there are any.
        progress: called after each epoch of each model with its place in `configs`, its record and the number of
            epochs.
        warn: told in one line of every model that failed.

    Example:
        Twenty seeds by five curvatures, a hundred models, on rows that they all share:

        >>> from itertools import product
        >>> x = np.random.default_rng(0).normal(size=(40, 3))
        >>> settings = product(range(20), (0.1, 0.3, 0.8, 1.0, 1.2))
        >>> configs = [Config(seed=seed, curvature=c, epochs=1, hidden=(8,)) for seed, c in settings]
        >>> fitted = fit_many(configs, x)
        >>> len(fitted), fitted[7].config.seed, fitted[7].config.curvature
        (100, 1, 0.8)
    """
    tasks, sources = plan_tasks(configs, data, blocks, splits, scalings)
    found: dict[int, Fitted] = {}
    for stack in stacks(tasks):
        for task, fitted in zip(stack, run(stack, sources, device, dtype, folder, resume, progress, warn), strict=True):
            found[task.place] = fitted
    return [found[task.place] for task in tasks]


def plan_tasks(
    configs: Sequence[Config],
    data: Matrix | Dataset | Sequence[Matrix | Dataset],
    blocks: tuple[int, ...] = (),
    splits: Sequence[Split] | None = None,
    scalings: Sequence[Scaling] | None = None,
) -> tuple[list[Task], list[Matrix]]:
    """Configurations with their "auto" choices made, and the distinct data that they share."""
    if not configs:
        raise CurvaeError("there is nothing to train: give one or more configurations")
    each: Sequence[Any] = data if isinstance(data, list | tuple) else [data] * len(configs)
    for name, entries in (("data", each), ("splits", splits), ("scalings", scalings)):
        if entries is not None and len(entries) != len(configs):
            raise CurvaeError(f"{name} must hold one entry a configuration: {len(configs)}, got {len(entries)}")
    sources: list[Matrix] = []
    places: dict[int, int] = {}
    tasks = []
    for i, config in enumerate(configs):
        given = each[i]
        x, own = (given.x, given.blocks) if isinstance(given, Dataset) else (given, blocks)
        if id(given) not in places:
            places[id(given)] = len(sources)
            sources.append(x)
        split = random_split(x.shape[0], config.validation, seed=config.seed) if splits is None else splits[i]
        config, reason = resolve(config, x, split, own)
        scaling = scaling_for(config, x, split) if scalings is None else scalings[i]
        name = f"model {i + 1} of {len(configs)} (seed {config.seed}, c = {config.curvature:g})"
        tasks.append(Task(i, name, config, reason, places[id(given)], split, scaling, own))
    return tasks, sources


def stacks(tasks: Sequence[Task], shares: int = 1) -> list[list[Task]]:
    """Tasks of one architecture together, in about so many pieces of like size; equal learning rates lie together."""
    groups: dict[Any, list[Task]] = {}
    for task in tasks:
        groups.setdefault(task.architecture, []).append(task)
    found = []
    for group in groups.values():
        group.sort(key=lambda task: task.config.learning_rate)
        pieces = min(len(group), max(1, round(shares * len(group) / len(tasks))))
        ends = [len(group) * i // pieces for i in range(pieces + 1)]
        found += [group[a:b] for a, b in pairwise(ends)]
    return found


def run(
    tasks: Sequence[Task],
    sources: Sequence[Matrix],
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    folder: Path | None = None,
    resume: bool = False,
    progress: Callable[[int, Record, int], None] = lambda place, record, epochs: None,
    warn: Callable[[str], None] = lambda text: None,
) -> list[Fitted]:
    """Train one stack. Where it does not fit into the memory of the device, one half after the other."""
    try:
        return _run(tasks, sources, device, dtype, folder, resume, progress, warn)
    except torch.OutOfMemoryError as error:
        if len(tasks) == 1:
            raise CurvaeError(
                f"{tasks[0].name} does not fit into the memory of {device}; lower hidden or batch_size, or use the CPU"
            ) from error
    _release()
    half = len(tasks) // 2
    warn(f"{len(tasks)} models do not fit into the memory of {device} at once; trying {len(tasks) - half} and {half}")
    return [
        fitted
        for part in (tasks[: len(tasks) - half], tasks[len(tasks) - half :])
        for fitted in run(part, sources, device, dtype, folder, resume, progress, warn)
    ]


def _run(
    tasks: Sequence[Task],
    sources: Sequence[Matrix],
    device: torch.device | str,
    dtype: torch.dtype,
    folder: Path | None,
    resume: bool,
    progress: Callable[[int, Record, int], None],
    warn: Callable[[str], None],
) -> list[Fitted]:
    members = []
    for task in tasks:
        x, scaling = sources[task.source], task.scaling
        mean = (column_means(x[task.split.train]) - scaling.shift) / scaling.scale
        model = build(task.config, x.shape[1], task.blocks, mean).to(device, dtype)
        members.append(Member(task.name, task.config, task.split, model))
    places = {id(member): i for i, member in enumerate(members)}
    rows = Pool.of([(sources[task.source], task.scaling) for task in tasks], device, dtype, whole=True)

    def engine(active: Sequence[Member]) -> Engine:
        train, validation = (
            torch.from_numpy(np.stack([getattr(member.split, part) for member in active])).to(device)
            for part in ("train", "validation")
        )
        own = rows.keep([places[id(member)] for member in active])
        steps = (tasks[0].config.epochs or 0) * -(-train.shape[1] // tasks[0].config.batch_size)
        kind = Captured if rows.device.type == "cuda" and not rows.sparse and steps >= _CAPTURE else Engine
        return kind([member.model for member in active], [member.config for member in active], own, train, validation)

    train(
        members,
        engine,
        None if folder is None else _checkpoint(tasks, folder, resume),
        lambda member, record: progress(tasks[places[id(member)]].place, record, member.config.epochs or 0),
        warn,
    )
    _release()
    fitted = []
    for task, member in zip(tasks, members, strict=True):
        member.model.eval()
        fitted.append(
            Fitted(task.config, member.model, task.scaling, task.reason, task.split, member.history, member.failure)
        )
    return fitted


def _release() -> None:
    """Give back the memory of captured graphs, which are held in circles."""
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()


def _checkpoint(tasks: Sequence[Task], folder: Path, resume: bool) -> Checkpoint:
    first = tasks[0].place
    alone = first == 0 and len(tasks) == 1
    name = "state.safetensors" if alone else f"state-{first}-{len(tasks)}.safetensors"
    return Checkpoint(folder / "checkpoint" / name, folder / METRICS if first == 0 else None, resume)
