"""Stacks spread over processes of this machine, or over a Dask cluster; joblib does the work."""

from __future__ import annotations

import gc
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
from numpy.typing import NDArray

from ..errors import CurvaeError
from .device import choose_device
from .problems import Listener, Warn
from .problems import Task as AnyTask

__all__ = ["processes", "seen_by_workers", "spread", "stacks"]

Task = TypeVar("Task", bound=AnyTask)
Result = TypeVar("Result")
Work = Callable[[Sequence[Task], Listener], list[Result]]

_LOOK_EVERY = 0.2  # seconds between two looks at what the processes have done


def spread(
    tasks: Sequence[Task],
    work: Work[Task, Result],
    *,
    jobs: int = 1,
    scheduler: str | None = None,
    begun: Sequence[Sequence[int]] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
    warn: Warn = lambda text: None,
) -> list[Result]:
    """What `work` makes of every stack, in the order of the tasks.

    Arguments:
        tasks: what to train.
        work: called with the tasks of a stack and who is to be told how it goes.
        jobs: processes on this machine, with one thread each; 1 is this process.
        scheduler: address of a Dask cluster to use instead, one stack a worker; work whose worker dies is done again.
        begun: places of the tasks of stacks that have checkpoints, and go on as they are.
        progress: told the epochs done and to do, counted over all models; an epoch that is done again counts once.
        warn: told what stacks have to say.
    """
    total = sum(task.config.epochs or 0 for task in tasks)
    found: dict[int, Result] = {}
    if jobs == 1 and scheduler is None:
        counts = np.zeros(len(tasks), np.int64)

        def reached(places: Sequence[int], epochs: int) -> None:
            _count(counts, places, epochs)
            progress(int(counts.sum()), total)

        listener = Listener(reached=reached, warn=warn)
        for stack in stacks(tasks, begun=begun):
            found |= zip((task.place for task in stack), work(stack, listener), strict=True)
    else:

        def look(counts: NDArray[np.int64]) -> None:
            if counts.any():
                progress(int(counts.sum()), total)

        with _workers(scheduler, jobs) as (parallel, shares), _counters(len(tasks), look) as path:
            pieces = stacks(tasks, shares, begun)
            owner = os.getpid() if scheduler is None else None
            calls = (joblib.delayed(_apart)(work, stack, path, owner) for stack in pieces)
            for stack, (results, warnings) in zip(pieces, parallel(calls), strict=True):
                found |= zip((task.place for task in stack), results, strict=True)
                for text in warnings:
                    warn(text)
    progress(total, total)
    return [found[task.place] for task in tasks]


def stacks(tasks: Sequence[Task], shares: int = 1, begun: Sequence[Sequence[int]] = ()) -> list[list[Task]]:
    """Tasks of one architecture together, in about as many pieces as `shares`, of similar size.

    Equal learning rates lie together. Stacks that have begun, given by the places of their tasks, stay as they are.
    """
    groups: dict[Any, list[Task]] = {}
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


def seen_by_workers(folder: Path | None, jobs: int | None, scheduler: str | None) -> Path | None:
    """A folder as those find it who do the work: processes that were started earlier may be in another directory."""
    return folder if folder is None or (jobs == 1 and scheduler is None) else folder.absolute()


def processes(device: torch.device | str) -> int:
    """How many to use by default: one a core, a single one on CUDA."""
    return 1 if choose_device(str(device)).type == "cuda" else int(joblib.cpu_count())


def _count(counts: Any, places: Sequence[int], epochs: int) -> None:
    """Store the epochs of models: no fewer than before, for halves of a stack, or another worker, may start again."""
    counts[places] = np.maximum(counts[places], epochs)


def _apart(
    work: Work[Task, Result], stack: Sequence[Task], path: str, owner: int | None
) -> tuple[list[Result], list[str]]:
    """In a process of its own: the results, and what there was to warn of; ends with the process that owns it."""
    torch.set_num_threads(1)
    warnings: list[str] = []
    # A worker on another machine does not see the file and does not count.
    counts = np.memmap(path, np.int64, "r+") if Path(path).exists() else None

    def reached(places: Sequence[int], epochs: int) -> None:
        if owner is not None and os.getppid() != owner:
            os._exit(1)  # it was killed, and nobody waits for the result
        if counts is not None:
            _count(counts, places, epochs)

    return work(stack, Listener(reached=reached, warn=warnings.append)), warnings


@contextmanager
def _workers(scheduler: str | None, jobs: int) -> Iterator[tuple[joblib.Parallel, int]]:
    """Something that runs calls elsewhere, and how many at once."""
    if scheduler is None:
        yield joblib.Parallel(n_jobs=jobs), jobs
        return
    try:
        from distributed import Client
    except ImportError:
        raise CurvaeError('a Dask cluster needs dask: pip install "dask[distributed]"') from None
    # A client that did not connect may still wait to be collected. While another starts, that would be a deadlock: both
    # take the same lock.
    gc.collect()
    try:
        client = Client(scheduler, timeout=10)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CurvaeError(f"no Dask cluster answers at {scheduler} ({reason}); start one, or leave it out") from error
    with client:
        workers = len(client.scheduler_info()["workers"])
        if workers == 0:
            raise CurvaeError(f"the Dask cluster at {scheduler} has no workers; start some with: dask worker ADDRESS")
        with joblib.parallel_config("dask", client=client):
            yield joblib.Parallel(n_jobs=workers), workers


@contextmanager
def _counters(tasks: int, look: Callable[[NDArray[np.int64]], None]) -> Iterator[str]:
    """A file in which processes count epochs, and someone who reads it.

    Windows does not remove a file that is still mapped; it is left to those who clear temporary files.
    """
    with tempfile.TemporaryDirectory(prefix="curvae-", ignore_cleanup_errors=True) as folder:
        path = str(Path(folder) / "epochs")
        counts: Any = np.memmap(path, np.int64, "w+", shape=(tasks,))
        ended = threading.Event()

        def read() -> None:
            while not ended.wait(_LOOK_EVERY):
                look(np.array(counts))

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            yield path
        finally:
            ended.set()
            reader.join()
