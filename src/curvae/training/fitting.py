"""Training: of one model, or of a whole list of them at once."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch

from ..data.dataset import Scaling
from ..errors import CurvaeError
from .config import Config, choose_device
from .fitted import Fitted, Record
from .processes import is_worker, require_shareable, run_worker, train_distributed
from .rows import Data, Split
from .rows_problem import plan_rows
from .stacks import FittedT, Listener, Problem, TaskT, Warn, existing_checkpoints, train_stack

__all__ = ["default_jobs", "fit", "fit_many", "stacks", "train_many", "train_one"]


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
    processes: int = 1,
    progress: Callable[[Record, int], None] = lambda record, epochs: None,
) -> Fitted:
    """Train a model.

    By default the weights are those of the epoch that was best on validation rows. Without progress on them, training
    goes back to the best weights, lets the learning rate fall and ends. Without such rows, or with `patience=None`, the
    last weights are kept.

    The order of rows and all noise of an epoch come from (seed, epoch) alone, so that a run that was interrupted and
    resumed from its checkpoint ends with the same weights as one that was not.

    Arguments:
        config: what to train; "auto" choices are resolved in the result.
        x: rows in original units: a numpy array, a scipy CSR matrix, a `Dataset`, whose rows may lie on disk, or
            `curvae.data.Arrays`.
        blocks: of a plain matrix, for each column the number of its categories, which are one-hot columns; 0 for a
            column of numbers, 1 for a binary one.
        split: rows for training and validation; by default at random from the configuration, with at most 10,000 rows
            for validation.
        scaling: how to scale columns; by default from all rows that are not test rows.
        device: where to train.
        dtype: of the networks; the latent space is always float64.
        folder: keeps `metrics.jsonl` and `checkpoint/`; without it nothing is written.
        resume: go on from the checkpoint in `folder`, if there is one; otherwise it is removed. Settings and data must
            be those of the start, but for more epochs, for which a learning rate that has fallen rises again.
        processes: that train the model together, each on a share of every batch, with the losses of a single one: a
            divisor of 64. On CUDA each has a GPU. The script that asks for several must be importable
            (`if __name__ == "__main__":`), or is started by `torchrun` with as many.
        progress: called after each epoch with its record and the number of epochs.

    Example:
        >>> import numpy as np
        >>> x = np.random.default_rng(0).normal(size=(40, 3))
        >>> fitted = fit(Config(epochs=2, hidden=(8,)), x)
        >>> sorted(fitted.history[0])[:5]
        ['c', 'elbo', 'epoch', 'kl', 'neighbours']
    """
    require_shareable(processes, config, device)
    if processes > 1 and config.neighbours == "auto":
        config = replace(config, neighbours="off")
    splits, scalings = None if split is None else [split], None if scaling is None else [scaling]
    problem, tasks = plan_rows([config], x, blocks, splits, scalings, asked=device, dtype=dtype)
    return train_one(problem, tasks, folder, resume, progress, processes)


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
    jobs: int | None = None,
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
        jobs: processes that train stacks at the same time, with one thread each. By default all are trained in this
            process, or by the workers that `joblib.parallel_config` around the call names, as of a Dask cluster. On a
            CPU give as many as there are cores; the script that asks for several must be importable
            (`if __name__ == "__main__":`).
        progress: called with the epochs done and to do, counted over all models.
        warn: called with one line for every model that failed.

    Example:
        Twenty seeds by five curvatures, a hundred models, on rows that they all share:

        >>> from itertools import product
        >>> import numpy as np
        >>> x = np.random.default_rng(0).normal(size=(40, 3))
        >>> settings = product(range(20), (0.1, 0.3, 0.8, 1.0, 1.2))
        >>> configs = [Config(seed=seed, curvature=c, epochs=1, hidden=(8,)) for seed, c in settings]
        >>> fitted = fit_many(configs, x)
        >>> len(fitted), fitted[7].config.seed, fitted[7].config.curvature
        (100, 1, 0.8)
    """
    problem, tasks = plan_rows(configs, data, blocks, splits, scalings, asked=device, dtype=dtype)
    return train_many(
        problem,
        tasks,
        folder=folder,
        resume=resume,
        jobs=jobs,
        progress=progress,
        warn=warn,
    )


def train_one(
    problem: Problem[TaskT, FittedT],
    tasks: Sequence[TaskT],
    folder: Path | None = None,
    resume: bool = False,
    progress: Callable[[Record, int], None] = lambda record, epochs: None,
    processes: int = 1,
) -> FittedT:
    """Train the model of a single task; arguments as of `fit`."""
    if is_worker(processes):
        return run_worker()
    tasks, _ = _resumed(problem, tasks, folder, resume)
    epochs = tasks[0].config.epochs or 0
    listener = Listener(lambda place, record: progress(record, epochs))
    if processes == 1:
        (fitted,) = train_stack(problem, tasks, listener, folder=folder, resume=resume)
    else:
        (fitted,) = train_distributed(processes, problem, tasks, listener, folder, resume)
    if fitted.failure is not None:
        raise CurvaeError(fitted.failure)
    return fitted


def train_many(
    problem: Problem[TaskT, Any],
    tasks: Sequence[TaskT],
    *,
    folder: Path | None = None,
    resume: bool = False,
    jobs: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    warn: Warn = lambda text: None,
    work: Callable[..., list[Any]] = train_stack,
) -> list[Any]:
    """Train the models of all tasks; arguments as of `fit_many`.

    `work` trains a stack and makes of it what is returned, where it is trained: only that travels.
    """
    jobs = jobs or joblib.effective_n_jobs(None)
    if folder is not None and jobs != 1:
        folder = folder.absolute()  # for workers that were started earlier, in another directory
    tasks, known = _resumed(problem, tasks, folder, resume)
    train = partial(work, problem, folder=folder, resume=resume)
    total = sum(task.config.epochs or 0 for task in tasks)
    pieces = stacks(tasks, jobs, known)
    found: dict[int, Any] = {}
    if jobs == 1:
        counts = np.zeros(len(tasks), np.int64)

        def tick(place: int, record: Record) -> None:
            # No fewer than before: halves of a stack start again.
            counts[place] = max(counts[place], record["epoch"])
            progress(int(counts.sum()), total)

        for stack in pieces:
            found |= zip((task.place for task in stack), train(stack, Listener(tick, warn)), strict=True)
    else:
        with _counters(len(tasks), lambda done: progress(done, total)) as path:
            calls = (joblib.delayed(_apart)(train, stack, path, os.getpid()) for stack in pieces)
            for stack, (results, warnings) in zip(pieces, joblib.Parallel(n_jobs=jobs)(calls), strict=True):
                found |= zip((task.place for task in stack), results, strict=True)
                for text in warnings:
                    warn(text)
    progress(total, total)
    return [found[task.place] for task in tasks]


def _resumed(
    problem: Problem[TaskT, Any], tasks: Sequence[TaskT], folder: Path | None, resume: bool
) -> tuple[Sequence[TaskT], list[list[int]]]:
    """Return the tasks as checkpoints describe them, and which of them are in checkpoints of the folder."""
    if folder is None:
        return tasks, []
    return problem.fingerprinted(tasks), existing_checkpoints(folder, resume, len(tasks))


# Stacks that are trained at the same time, in processes of this machine or by workers of a cluster that joblib knows.

_LOOK_EVERY = 0.2  # seconds between two looks at what the processes have done


def stacks(tasks: Sequence[TaskT], shares: int = 1, resumed: Sequence[Sequence[int]] = ()) -> list[list[TaskT]]:
    """Group tasks of one architecture, in about as many pieces as `shares`, of similar size.

    Equal learning rates lie together. Stacks that have checkpoints, given by the places of their tasks, stay as they
    are.
    """
    groups: dict[Any, list[TaskT]] = {}
    for task in tasks:
        groups.setdefault(task.architecture, []).append(task)
    known = {task.place: task for task in tasks}
    found = [[known.pop(place) for place in places] for places in resumed]
    for group in groups.values():
        group.sort(key=lambda task: task.config.learning_rate)
        pieces = min(len(group), max(1, round(shares * len(group) / len(tasks))))
        ends = [len(group) * i // pieces for i in range(pieces + 1)]
        # The others stay together as they would have been, if the shares are those of before.
        left = ([task for task in group[a:b] if task.place in known] for a, b in pairwise(ends))
        found += [piece for piece in left if piece]
    return found


def default_jobs(device: torch.device | str) -> int:
    """Return how many processes a command uses: one a core, and a single one on CUDA, unless joblib is configured."""
    if (jobs := joblib.effective_n_jobs(None)) > 1:
        return int(jobs)
    return 1 if choose_device(str(device)).type == "cuda" else int(joblib.cpu_count())


def _apart(
    work: Callable[..., list[Any]], stack: Sequence[TaskT], path: str, owner: int
) -> tuple[list[Any], list[str]]:
    """Return the results and warnings of a stack, in a process that ends with the `owner` if that is its parent."""
    torch.set_num_threads(1)
    owned = os.getppid() == owner
    warnings: list[str] = []
    # A worker on another machine does not see the file and does not count.
    counts = np.memmap(path, np.int64, "r+") if Path(path).exists() else None

    def tick(place: int, record: Record) -> None:
        if owned and os.getppid() != owner:
            os._exit(1)  # it was killed, and nobody waits for the result
        if counts is not None:  # no fewer than before: another worker may start again
            counts[place] = max(counts[place], record["epoch"])

    return work(stack, Listener(tick, warnings.append)), warnings


@contextmanager
def _counters(tasks: int, report: Callable[[int], None]) -> Iterator[str]:
    """Make a file in which processes count epochs, and report their sum every now and then.

    Windows does not remove a file that is still mapped; it is left to those who clear temporary files.
    """
    with tempfile.TemporaryDirectory(prefix="curvae-", ignore_cleanup_errors=True) as folder:
        path = str(Path(folder) / "epochs")
        counts: Any = np.memmap(path, np.int64, "w+", shape=(tasks,))
        ended = threading.Event()

        def read() -> None:
            while not ended.wait(_LOOK_EVERY):
                if done := int(np.sum(counts)):
                    report(done)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            yield path
        finally:
            ended.set()
            reader.join()
