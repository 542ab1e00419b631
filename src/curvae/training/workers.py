"""Train stacks at the same time in processes of this machine, or on the workers of a cluster that joblib knows."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import joblib
import numpy as np
import torch

from .config import choose_device
from .fitted import Record
from .problems import Listener, Warn
from .problems import Task as AnyTask

__all__ = ["default_jobs", "run_parallel", "stacks"]

Task = TypeVar("Task", bound=AnyTask)
Result = TypeVar("Result")
Work = Callable[[Sequence[Task], Listener], list[Result]]

_LOOK_EVERY = 0.2  # seconds between two looks at what the processes have done


def run_parallel(
    tasks: Sequence[Task],
    work: Work[Task, Result],
    *,
    jobs: int = 1,
    resumed: Sequence[Sequence[int]] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
    warn: Warn = lambda text: None,
) -> list[Result]:
    """Apply `work` to every stack and return its results in the order of the tasks.

    Arguments:
        tasks: what to train.
        work: called with the tasks of a stack and a listener for its progress.
        jobs: processes with one thread each, on this machine or of the backend that `joblib.parallel_config` around
            the call names; 1 is this process.
        resumed: places of the tasks of stacks that have checkpoints, and go on as they are.
        progress: called with the epochs done and to do, counted over all models; an epoch that is done again counts
            once.
        warn: called with each warning of a stack.
    """
    total = sum(task.config.epochs or 0 for task in tasks)
    pieces = stacks(tasks, jobs, resumed)
    found: dict[int, Result] = {}
    if jobs == 1:
        counts = np.zeros(len(tasks), np.int64)

        def tick(place: int, record: Record) -> None:
            # No fewer than before: halves of a stack start again.
            counts[place] = max(counts[place], record["epoch"])
            progress(int(counts.sum()), total)

        for stack in pieces:
            found |= zip((task.place for task in stack), work(stack, Listener(tick, warn)), strict=True)
    else:
        with _counters(len(tasks), lambda done: progress(done, total)) as path:
            calls = (joblib.delayed(_apart)(work, stack, path, os.getpid()) for stack in pieces)
            for stack, (results, warnings) in zip(pieces, joblib.Parallel(n_jobs=jobs)(calls), strict=True):
                found |= zip((task.place for task in stack), results, strict=True)
                for text in warnings:
                    warn(text)
    progress(total, total)
    return [found[task.place] for task in tasks]


def stacks(tasks: Sequence[Task], shares: int = 1, resumed: Sequence[Sequence[int]] = ()) -> list[list[Task]]:
    """Group tasks of one architecture, in about as many pieces as `shares`, of similar size.

    Equal learning rates lie together. Stacks that have checkpoints, given by the places of their tasks, stay as they
    are.
    """
    groups: dict[Any, list[Task]] = {}
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


def _apart(work: Work[Task, Result], stack: Sequence[Task], path: str, owner: int) -> tuple[list[Result], list[str]]:
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
