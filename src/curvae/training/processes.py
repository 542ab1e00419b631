"""One model trained by several processes: how they are started, find each other, and end.

The first process has the data, writes all files and says how it goes. The others receive from it what is to be trained
and the checkpoint to go on from, take the same steps with their share of the rows, and are silent. They are started
here, or by `torchrun`, which starts the same command several times.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from multiprocessing import get_all_start_methods, get_context, parent_process
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

from ..errors import CurvaeError
from .config import Config, few_threads
from .fitted import FittedModel
from .problems import Listener, Problem
from .problems import Task as AnyTask
from .row_sources import SHARDS, Crew, Share
from .stacks import Checkpoint, train_stack

__all__ = ["Launched", "assist", "follows", "launched", "process_count", "require_shareable", "train_together"]

distributed: Any = torch.distributed
Task = TypeVar("Task", bound=AnyTask)
Result = TypeVar("Result", bound=FittedModel)

_INTERFACE = "GLOO_SOCKET_IFNAME"  # names the one through which processes talk
_LOOK_EVERY = 0.02  # seconds between two looks at whether the others are there
_WAIT = timedelta(days=7)  # for the first process, which may read data for long
_ANSWER = timedelta(minutes=30)  # for one that is alive and does not answer
_END = 10.0  # seconds that a process may take to end


class _LostError(Exception):
    """The first process of a training is not there any more: nobody is left to be told."""


class Launched(NamedTuple):
    """Place of this process among those that `torchrun` started."""

    rank: int
    size: int


def launched() -> Launched | None:
    """Whether `torchrun`, or something like it, has started this process together with others."""
    names = "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"
    if not all(name in os.environ for name in names) or int(os.environ["WORLD_SIZE"]) == 1:
        return None
    return Launched(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))


def process_count(asked: int | None) -> int:
    """How many processes train a model: as many as are asked for, or as `torchrun` has started."""
    started = launched()
    if started is None:
        return 1 if asked is None else asked
    if asked not in (None, started.size):
        raise CurvaeError(f"torchrun started {started.size} processes, not {asked}; leave out processes=…")
    return started.size


def follows(count: int) -> bool:
    """Whether another process leads the training: this one and as many in all were started by `torchrun`."""
    started = launched()
    return count > 1 and process_count(count) > 1 and started is not None and started.rank > 0


def require_shareable(count: int, config: Config, device: torch.device | str = "cpu") -> None:
    """Raise unless so many processes can train a model of this configuration together."""
    if count < 1 or SHARDS % count:
        raise CurvaeError(f"processes must be one of 1, 2, 4, 8, 16, 32 and {SHARDS}, got {count}")
    if count == 1:
        return
    if not distributed.is_available():
        raise CurvaeError("this PyTorch was built without torch.distributed, which processes=… needs; install another")
    if config.uses_neighbours:
        raise CurvaeError(
            f'neighbours="{config.neighbours}" needs all rows of a batch in one process, to compare them; use '
            'neighbours="off", or drop processes=…'
        )
    if config.batch_size < SHARDS:
        raise CurvaeError(
            f"batches of {config.batch_size} rows are too small for several processes; use batch_size={SHARDS} or more"
        )
    found = torch.cuda.device_count()
    if torch.device(device).type == "cuda" and launched() is None and count > found:
        raise CurvaeError(f"{count} processes need {count} GPUs, and there are {found}; use fewer, or device cpu")


# --- the first process ------------------------------------------------------------------------------------------------


def train_together(
    count: int,
    problem: Problem[Task, Result],
    tasks: Sequence[Task],
    listener: Listener,
    folder: Path | None,
    resume: bool,
) -> list[Result]:
    """Train a model in so many processes, of which this is the first; arguments as of `train_stack`."""
    with _led(count, problem.device) as crew:
        sent = problem, tasks, _checkpoint(folder, resume, tasks)
        _broadcast(crew, sent)
        own = replace(problem, crew=crew, asked=_device(problem.device))
        found = train_stack(own, tasks, listener, folder=folder, resume=resume)
        crew.sum(torch.zeros(1, device=own.device))  # all have ended
    return found


def _checkpoint(folder: Path | None, resume: bool, tasks: Sequence[AnyTask]) -> bytes | None:
    """The file that the training goes on from."""
    if folder is None or not resume:
        return None
    path = Checkpoint(folder, resume, [task.place for task in tasks]).path
    return path.read_bytes() if path.exists() else None


@contextmanager
def _led(count: int, device: torch.device) -> Iterator[Crew]:
    """The processes, seen from the first; those that were started here end with the context."""
    if distributed.is_initialized():
        raise CurvaeError("this process is part of a process group of torch.distributed already; end that before")
    workers: list[Any] = []
    threads = torch.get_num_threads()
    if launched() is None:
        threads = max(1, threads // count)
        store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=_ANSWER)
        context: Any = get_context("forkserver" if "forkserver" in get_all_start_methods() else "spawn")
        context.set_forkserver_preload(["__main__", __name__])  # so that what is slow to import is imported once
        for rank in range(1, count):
            told = store.port, rank, count, threads
            workers.append(context.Process(target=_worker, args=told, daemon=True, name=f"curvae {rank}"))
            workers[-1].start()
    else:
        store = _rendezvous()
    lost = partial(_loss, store, workers)
    try:
        while not store.check([f"joined {rank}" for rank in range(1, count)]):
            if _ended(workers):
                raise lost()
            time.sleep(_LOOK_EVERY)
        store.set("begun", device.type)
        _watched(partial(_join, store, Share(0, count), device), lambda: bool(_ended(workers)), lost)
        with few_threads(threads):
            yield Crew(Share(0, count), lost)
        for worker in workers:
            worker.join(_END)
    finally:
        _leave()
        for worker in workers:
            worker.kill()
            worker.join()


def _ended(workers: Sequence[Any]) -> list[int]:
    """Processes that are not there any more, by their rank: those first that did not end by themselves."""
    found = [(worker.exitcode, rank) for rank, worker in enumerate(workers, 1) if worker.exitcode not in (None, 0)]
    return [rank for _, rank in sorted(found)]


def _loss(store: Any, workers: Sequence[Any]) -> CurvaeError:
    """Why the processes do not go on."""
    until = time.monotonic() + 1.0
    while workers and not _ended(workers) and time.monotonic() < until:
        time.sleep(_LOOK_EVERY)
    with suppress(RuntimeError):
        if store.check(["failed"]):
            return CurvaeError(store.get("failed").decode())
    total, ended = len(workers) + 1, _ended(workers)
    if not ended:
        return CurvaeError("a process of the training was lost; go on with resume=True")
    code = workers[ended[0] - 1].exitcode
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return CurvaeError(f"process {ended[0] + 1} of {total} {how}; go on with resume=True")


def _watched(work: Callable[[], None], ended: Callable[[], bool], lost: Callable[[], Exception]) -> None:
    """Do what waits for others, unless one of them is not there any more."""
    failed: list[Exception] = []

    def do() -> None:
        try:
            work()
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=do, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_LOOK_EVERY)
        if ended():
            raise lost()
    if failed:
        raise lost() from failed[0]


# --- the others -------------------------------------------------------------------------------------------------------


def assist() -> Any:
    """Train with the first process, as one of the others that `torchrun` started; returns the same model."""
    started = launched()
    assert started is not None
    try:
        (found,) = _follow(_rendezvous(), Share(*started))
        return found
    except _LostError:
        sys.exit(1)


def _worker(port: int, rank: int, count: int, threads: int) -> None:
    """What a process does that was started here."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # which the first process receives too, and ends this one
    threading.Thread(target=_end_with_first, daemon=True).start()
    torch.set_num_threads(threads)
    os.environ["LOCAL_RANK"] = str(rank)
    try:
        _follow(distributed.TCPStore("127.0.0.1", port, is_master=False, timeout=_ANSWER), Share(rank, count))
    except (CurvaeError, _LostError):
        sys.exit(1)


def _end_with_first() -> None:
    first = parent_process()
    if first is not None:
        first.join()
        os._exit(1)


def _follow(store: Any, share: Share) -> list[Any]:
    with _unless_lost():
        store.set(f"joined {share.rank}", "")
        while not store.check(["begun"]):
            time.sleep(_LOOK_EVERY)
    crew = Crew(share, _LostError)
    try:
        with _unless_lost():
            _join(store, share, torch.device(store.get("begun").decode()))
        problem, tasks, checkpoint = _broadcast(crew, None)
        with tempfile.TemporaryDirectory(prefix="curvae-") as made:
            folder = Path(made)
            if checkpoint is not None:
                path = Checkpoint(folder, True, [task.place for task in tasks]).path
                path.parent.mkdir()
                path.write_bytes(checkpoint)
            own = replace(problem, crew=crew, asked=_device(problem.device))
            found = train_stack(own, tasks, Listener(), folder=folder, resume=True)
        crew.sum(torch.zeros(1, device=own.device))
    except CurvaeError as error:
        with suppress(RuntimeError):
            store.set("failed", str(error))
        raise
    finally:
        _leave()
    return found


@contextmanager
def _unless_lost() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise _LostError from error


# --- both -------------------------------------------------------------------------------------------------------------


def _rendezvous() -> Any:
    """Where processes that `torchrun` started find each other."""
    store, _, _ = next(distributed.rendezvous("env://", timeout=_WAIT))
    return distributed.PrefixStore("curvae", store)


def _device(device: torch.device) -> str:
    """Of this process: each has a GPU of its own."""
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if device.type == "cuda" else "cpu"


def _join(store: Any, share: Share, device: torch.device) -> None:
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    with _loopback():
        distributed.init_process_group(
            backend,
            store=distributed.PrefixStore("group", store),
            rank=share.rank,
            world_size=share.size,
            timeout=_ANSWER,
        )


@contextmanager
def _loopback() -> Iterator[None]:
    """Let processes of one machine talk within it, whatever its name leads to."""
    names = [name for _, name in socket.if_nameindex() if name.startswith("lo")] if os.name == "posix" else []
    if launched() is not None or not names or _INTERFACE in os.environ:
        yield
        return
    os.environ[_INTERFACE] = names[0]
    try:
        yield
    finally:
        del os.environ[_INTERFACE]


def _broadcast(crew: Crew, sent: Any) -> Any:
    """What the first process sends to all."""
    box = [sent]
    try:
        distributed.broadcast_object_list(box, src=0, device=torch.device("cpu"))
    except RuntimeError as error:
        raise crew.lost() from error
    return box[0]


def _leave() -> None:
    with suppress(RuntimeError, AssertionError, ValueError):
        if distributed.is_initialized():
            distributed.destroy_process_group()
