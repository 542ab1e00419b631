"""Stacks spread over processes of this machine, or over a Dask cluster; joblib does the work."""

from __future__ import annotations

import gc
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import joblib
import numpy as np
import torch

from ..errors import CurvaeError
from .course import Planned, Tick, Warn
from .device import choose_device
from .fitted import Record
from .tasks import stacks

__all__ = ["processes", "seen_by_workers", "spread"]

Task = TypeVar("Task", bound=Planned)
Source = TypeVar("Source")
Result = TypeVar("Result")
Work = Callable[[Sequence[Task], Sequence[Source], Tick, Warn], list[Result]]

_LOOK_EVERY = 0.2  # seconds between two looks at what the processes have done


def spread(
    tasks: Sequence[Task],
    sources: Sequence[Source],
    work: Work[Task, Source, Result],
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
        sources: the data that they name.
        work: called with the tasks of a stack, the data, and two functions: one to tell of every epoch, one to warn.
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

        def tick(place: int, record: Record) -> None:
            _count(counts, place, record)
            progress(int(counts.sum()), total)

        for stack in stacks(tasks, begun=begun):
            found |= zip((task.place for task in stack), work(stack, sources, tick, warn), strict=True)
    else:
        with _workers(scheduler, jobs) as (parallel, shares), _counters(len(tasks), total, progress) as path:
            pieces = stacks(tasks, shares, begun)
            owner = os.getpid() if scheduler is None else None
            calls = (joblib.delayed(_apart)(work, stack, sources, path, owner) for stack in pieces)
            for stack, (results, warnings) in zip(pieces, parallel(calls), strict=True):
                found |= zip((task.place for task in stack), results, strict=True)
                for text in warnings:
                    warn(text)
    progress(total, total)
    return [found[task.place] for task in tasks]


def seen_by_workers(folder: Path | None, jobs: int | None, scheduler: str | None) -> Path | None:
    """A folder as those find it who do the work: processes that were started earlier may be in another directory."""
    return folder if folder is None or (jobs == 1 and scheduler is None) else folder.absolute()


def processes(device: torch.device | str) -> int:
    """How many to use by default: one a core, a single one on CUDA."""
    return 1 if choose_device(str(device)).type == "cuda" else int(joblib.cpu_count())


def _count(counts: Any, place: int, record: Record) -> None:
    """Note how far a model is: no less than before, for halves of a stack, or another worker, may begin again."""
    counts[place] = max(counts[place], record["epoch"])


def _apart(
    work: Work[Task, Source, Result], stack: Sequence[Task], sources: Sequence[Source], path: str, owner: int | None
) -> tuple[list[Result], list[str]]:
    """In a process of its own: the results, and what there was to warn of; ends with the process that owns it."""
    torch.set_num_threads(1)
    warnings: list[str] = []
    # A worker on another machine does not see the file and does not count.
    counts = np.memmap(path, np.int64, "r+") if Path(path).exists() else None

    def tick(place: int, record: Record) -> None:
        if owner is not None and os.getppid() != owner:
            os._exit(1)  # it was killed, and nobody waits for the result
        if counts is not None:
            _count(counts, place, record)

    return work(stack, sources, tick, warnings.append), warnings


@contextmanager
def _workers(scheduler: str | None, jobs: int) -> Iterator[tuple[joblib.Parallel, int]]:
    """Something that runs calls elsewhere, and how many at once."""
    if scheduler is None:
        yield joblib.Parallel(n_jobs=jobs), jobs
        return
    try:
        from distributed import Client
    except ImportError:
        raise CurvaeError('a Dask cluster needs dask: pip install "curvae[cluster]"') from None
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
def _counters(tasks: int, total: int, progress: Callable[[int, int], None]) -> Iterator[str]:
    """A file in which processes count epochs, and someone who reads it."""
    with tempfile.TemporaryDirectory(prefix="curvae-") as folder:
        path = str(Path(folder) / "epochs")
        counts: Any = np.memmap(path, np.int64, "w+", shape=(tasks,))
        ended = threading.Event()

        def look() -> None:
            while not ended.wait(_LOOK_EVERY):
                progress(int(counts.sum()), total)

        reader = threading.Thread(target=look, daemon=True)
        reader.start()
        try:
            yield path
        finally:
            ended.set()
            reader.join()
