"""Training: of one model, or of a whole list of them at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ..data import Arrays
from ..data.missing import column_means
from ..errors import CurvaeError
from ..models import VAE
from .build import build
from .captured import Captured
from .checkpoints import begun
from .config import Config
from .device import choose_device
from .effects import Effects
from .engine import BatchEngine
from .fitted import Fitted, Record
from .pace import Clock, Estimate
from .problems import Listener, Member
from .rows import Scaling
from .sources import Pool
from .splits import Split
from .stacks import train_stack
from .tasks import Data, Task, fingerprinted, plan_tasks
from .workers import seen_by_workers, spread

__all__ = ["RowsProblem", "fit", "fit_many", "planned"]

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
    estimate: Callable[[Estimate], None] = lambda estimate: None,
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
        estimate: told how long the training will take, once, when a second of steps has shown it.

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
    listener = Listener(lambda place, record: progress(record, epochs), Clock([epochs], estimate).reached)
    (fitted,) = train_stack(RowsProblem(sources, device, dtype), tasks, listener, folder=folder, resume=resume)
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
    estimate: Callable[[Estimate], None] = lambda estimate: None,
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
        estimate: told how long all of it will take, once, when a second of steps has shown it.

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
    work = partial(train_stack, RowsProblem(sources, device, dtype), folder=folder, resume=resume)
    return spread(
        tasks,
        work,
        jobs=jobs,
        scheduler=scheduler,
        begun=known,
        progress=progress,
        warn=warn,
        estimate=estimate,
    )


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


def _start(arrays: Arrays) -> tuple[NDArray[np.float64], Effects | None]:
    """Column means and effects of the covariates, from which a model starts; of counts, for a unit of exposure."""
    unit = np.ones(1) if arrays.size is None else arrays.size.mean(keepdims=True)
    effects = None if arrays.context is None else Effects.of(arrays.x, arrays.context).scaled(unit)
    return column_means(arrays.x) / unit, effects


@dataclass(frozen=True)
class RowsProblem:
    """Models of rows: what `train_stack` asks of them."""

    sources: Sequence[Arrays]
    """the distinct data of all tasks"""
    asked: torch.device | str = "cpu"
    """the device, or "auto"."""
    dtype: torch.dtype = torch.float32

    remedy = "lower hidden or batch_size"

    @property
    def device(self) -> torch.device:
        return choose_device(str(self.asked))

    def models(self, tasks: Sequence[Task]) -> list[VAE]:
        starts: dict[tuple[int, int], tuple[NDArray[np.float64], Effects | None]] = {}
        made = []
        for task in tasks:
            rows = task.source, id(task.split)
            if rows not in starts:
                starts[rows] = _start(self.sources[task.source].take(task.split.train))
            mean, effects = starts[rows]
            effects = None if effects is None else effects.scaled(task.scaling.scale)
            model = build(task.config, task.layout, mean=task.scaling.apply(mean), effects=effects)
            made.append(model.to(self.device, self.dtype))
        return made

    def engine(self, tasks: Sequence[Task], models: Sequence[VAE]) -> BatchEngine:
        configs, cuda = [task.config for task in tasks], self.device.type == "cuda"
        pool = Pool.of(
            [(self.sources[task.source], task.scaling) for task in tasks], self.device, self.dtype, whole=True
        )
        train, validation = (
            pool.part(torch.from_numpy(np.stack([getattr(task.split, part) for task in tasks])))
            for part in ("train", "validation")
        )
        steps = (configs[0].epochs or 0) * -(-len(train) // configs[0].batch_size)
        captured = cuda and (steps >= _CAPTURE or pool.device.type == "cpu")
        return (Captured if captured else BatchEngine)(models, configs, train, validation)

    def result(self, task: Task, member: Member) -> Fitted:
        return Fitted(
            task.config,
            member.model,
            task.scaling,
            task.reason,
            task.split,
            member.history,
            member.failure,
            task.layout,
        )
