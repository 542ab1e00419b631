"""Training: of one model, or of a whole list of them at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..data import Arrays
from ..data.missing import column_means
from ..errors import CurvaeError
from ..models import VAE
from .batches import BatchEngine
from .build import build
from .captured import Captured
from .checkpoints import begun, seen
from .config import Config
from .course import Tick, Warn, train_tasks
from .effects import Effects
from .fitted import Fitted, Record
from .rows import Pool, Scaling
from .splits import Split
from .stacks import Member
from .tasks import Data, Task, fingerprinted, plan_tasks
from .workers import seen_by_workers, spread

__all__ = ["fit", "fit_many", "planned", "run"]

# Steps from which on capturing a CUDA graph pays.
_CAPTURE = 200


def fit(
    config: Config,
    x: Data,
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
        x: rows in original units: a numpy array, a scipy CSR matrix, a `Dataset` or `curvae.data.Arrays`.
        blocks: of a plain matrix, for each column the number of its categories, which are one-hot columns; 0 for a
            column of numbers, 1 for one of yes and no.
        split: rows for training and validation; by default at random from the configuration.
        scaling: how to scale columns; by default from all rows that are not test rows.
        device: where to train.
        dtype: of the networks; the latent space is always float64.
        folder: keeps `metrics.jsonl` and `checkpoint/`; without it nothing is written.
        resume: go on from the checkpoint in `folder`, if there is one; otherwise it is removed. Settings and data must
            be those of the start, but for more epochs.
        progress: called after each epoch with its record and the number of epochs.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(40, 3))
        >>> fitted = fit(Config(epochs=2, hidden=(8,)), x)
        >>> sorted(fitted.history[0])[:5]
        ['c', 'elbo', 'epoch', 'kl', 'prior_scale']
    """
    tasks, sources, _ = planned(
        [config], x, blocks, None if split is None else [split], None if scaling is None else [scaling], folder, resume
    )
    epochs = tasks[0].config.epochs or 0
    (fitted,) = run(tasks, sources, device, dtype, folder, resume, lambda place, record: progress(record, epochs))
    if fitted.failure is not None:
        raise CurvaeError(fitted.failure)
    return fitted


def fit_many(
    configs: Sequence[Config],
    data: Data | Sequence[Data],
    *,
    blocks: tuple[int, ...] = (),
    splits: Sequence[Split] | None = None,
    scalings: Sequence[Scaling] | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    folder: Path | None = None,
    resume: bool = False,
    jobs: int = 1,
    scheduler: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
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
        folder: keeps `checkpoint/`, and `metrics.jsonl` of the first model. Workers of a cluster must see it too.
        resume: go on from the checkpoints in `folder`, where there are any, in the stacks that they hold; otherwise
            they are removed. Settings and data must be those of the start, but for more epochs or a list that goes on
            after its end; `jobs` may be another.
        jobs: processes to spread the stacks over, with one thread each. On a CPU, as many as there are cores; the
            script that asks for several must be importable (`if __name__ == "__main__":`).
        scheduler: address of a Dask cluster to spread them over instead, a stack a worker.
        progress: told the epochs done and to do, counted over all models.
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
    folder = seen_by_workers(folder, jobs, scheduler)
    tasks, sources, known = planned(configs, data, blocks, splits, scalings, folder, resume)
    work = partial(_fitted, device=device, dtype=dtype, folder=folder, resume=resume)
    return spread(tasks, sources, work, jobs=jobs, scheduler=scheduler, begun=known, progress=progress, warn=warn)


def planned(
    configs: Sequence[Config],
    data: Data | Sequence[Data],
    blocks: tuple[int, ...],
    splits: Sequence[Split] | None,
    scalings: Sequence[Scaling] | None,
    folder: Path | None,
    resume: bool,
) -> tuple[list[Task], list[Arrays], list[list[int]]]:
    """Tasks with their data (`plan_tasks`), and which of them are in checkpoints of the folder (`begun`)."""
    tasks, sources = plan_tasks(configs, data, blocks, splits, scalings)
    if folder is None:
        return tasks, sources, []
    return fingerprinted(tasks, sources), sources, begun(folder, resume, len(tasks))


def _fitted(
    tasks: Sequence[Task], sources: Sequence[Arrays], tick: Tick, warn: Warn, folder: Path | None, **settings: Any
) -> list[Fitted]:
    return run(tasks, sources, **settings, folder=seen(folder, warn), progress=tick, warn=warn)


def run(
    tasks: Sequence[Task],
    sources: Sequence[Arrays],
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    folder: Path | None = None,
    resume: bool = False,
    progress: Tick = lambda place, record: None,
    warn: Warn = lambda text: None,
) -> list[Fitted]:
    """Train one stack. Where it does not fit into the memory of the device, one half after the other."""
    prepare = partial(_prepare, sources=sources, device=device, dtype=dtype)
    members = train_tasks(tasks, prepare, device=device, folder=folder, resume=resume, progress=progress, warn=warn)
    return [
        Fitted(
            task.config,
            member.model,
            task.scaling,
            task.reason,
            task.split,
            member.history,
            member.failure,
            task.layout,
        )
        for task, member in zip(tasks, members, strict=True)
    ]


def _unit(arrays: Arrays) -> NDArray[np.float64]:
    """The mean exposure, in whose units counts start; 1 where there is none."""
    return np.ones(1) if arrays.size is None else arrays.size.mean(keepdims=True)


def _prepare(
    tasks: Sequence[Task], sources: Sequence[Arrays], device: torch.device | str, dtype: torch.dtype
) -> tuple[list[Member], Callable[[list[VAE], list[int]], BatchEngine]]:
    members = []
    starts: dict[Any, tuple[Any, Effects | None]] = {}
    for task in tasks:
        rows = task.source, id(task.split)
        if rows not in starts:
            known = sources[task.source].take(task.split.train)
            effects = None if known.context is None else Effects.of(known.x, known.context).scaled(_unit(known))
            starts[rows] = column_means(known.x) / _unit(known), effects
        mean, effects = starts[rows]
        effects = None if effects is None else effects.scaled(task.scaling.scale)
        model = build(task.config, task.layout, mean=task.scaling.apply(mean), effects=effects).to(device, dtype)
        members.append(Member(task.name, task.config, model, task.config.patience, task.data))
    pool = Pool.of([(sources[task.source], task.scaling) for task in tasks], device, dtype, whole=True)

    def engine(models: list[VAE], places: list[int]) -> BatchEngine:
        own = [tasks[place] for place in places]
        train, validation = (
            torch.from_numpy(np.stack([getattr(task.split, part) for task in own])).to(device)
            for part in ("train", "validation")
        )
        steps = (own[0].config.epochs or 0) * -(-train.shape[1] // own[0].config.batch_size)
        kind = Captured if pool.device.type == "cuda" and not pool.sparse and steps >= _CAPTURE else BatchEngine
        return kind(models, [task.config for task in own], pool.keep(places), train, validation)

    return members, engine
