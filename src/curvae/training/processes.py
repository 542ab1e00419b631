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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from multiprocessing import get_all_start_methods, get_context, parent_process
from pathlib import Path
from typing import Any

import torch

from ..errors import CurvaeError
from .fitted import Config, few_threads
from .rows import SHARDS, BatchShard, ProcessGroup
from .stacks import Checkpoint, FittedT, Listener, Problem, TaskT, train_stack

__all__ = [
    "is_worker",
    "launched",
    "process_count",
    "require_shareable",
    "run_worker",
    "train_distributed",
]

distributed: Any = torch.distributed
_POLL = 0.02  # seconds between two looks at whether the others are there
_TIMEOUT = timedelta(minutes=30)  # of a process that is alive and does not answer


class _LostError(Exception):
    """The first process of a training has ended: nobody is left to report to."""


def launched() -> BatchShard | None:
    """Return which process this is and of how many, where `torchrun`, or something like it, started them; else None."""
    names = "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"
    if not all(name in os.environ for name in names) or int(os.environ["WORLD_SIZE"]) == 1:
        return None
    return BatchShard(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))


def process_count(asked: int | None) -> int:
    """Return how many processes train a model: as many as are asked for, or as `torchrun` has started."""
    started = launched()
    if started is None:
        return 1 if asked is None else asked
    if asked not in (None, started.size):
        raise CurvaeError(f"torchrun started {started.size} processes, not {asked}; leave out `processes=…`")
    return started.size


def is_worker(count: int) -> bool:
    """Return whether another process leads the training: this one and as many in all were started by `torchrun`."""
    started = launched()
    return count > 1 and process_count(count) > 1 and started is not None and started.rank > 0


def require_shareable(count: int, config: Config, device: torch.device | str = "cpu") -> None:
    """Raise unless so many processes can train a model of this configuration together."""
    if count < 1 or SHARDS % count:
        raise CurvaeError(f"`processes` must be one of 1, 2, 4, 8, 16, 32 and {SHARDS}, got {count}")
    if count == 1:
        return
    found = torch.cuda.device_count()
    for wrong, message in (
        (
            not distributed.is_available(),
            "this PyTorch was built without torch.distributed, which `processes=…` needs; install another",
        ),
        (
            config.uses_neighbours,
            f'`neighbours="{config.neighbours}"` needs all rows of a batch in one process, to compare them; use '
            '`neighbours="off"`, or drop `processes=…`',
        ),
        (
            config.batch_size < SHARDS,
            f"batches of {config.batch_size} rows are too small for several processes; use "
            f"`batch_size={SHARDS}` or more",
        ),
        (
            torch.device(device).type == "cuda" and launched() is None and count > found,
            f"{count} processes need {count} GPUs, and there are {found}; use fewer, or device cpu",
        ),
    ):
        if wrong:
            raise CurvaeError(message)


# --- the first process ------------------------------------------------------------------------------------------------


def train_distributed(
    count: int,
    problem: Problem[TaskT, FittedT],
    tasks: Sequence[TaskT],
    listener: Listener,
    folder: Path | None,
    resume: bool,
) -> list[FittedT]:
    """Train a model in so many processes, of which this is the first; arguments as of `train_stack`."""
    checkpoint = None
    if folder is not None and resume:
        path = Checkpoint(folder, resume, [task.place for task in tasks]).path
        checkpoint = path.read_bytes() if path.exists() else None
    with _launch(count, problem.device) as group:
        _broadcast(group, (problem, tasks, checkpoint))
        return _train(group, problem, tasks, listener, folder, resume)


@contextmanager
def _launch(count: int, device: torch.device) -> Iterator[ProcessGroup]:
    """Start the other processes, unless `torchrun` has; those that were started here end with the context."""
    if distributed.is_initialized():
        raise CurvaeError("this process is part of a process group of torch.distributed already; end that before")
    workers: list[Any] = []
    threads = torch.get_num_threads()
    if launched() is None:
        threads = max(1, threads // count)
        store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=_TIMEOUT)
        context: Any = get_context("forkserver" if "forkserver" in get_all_start_methods() else "spawn")
        context.set_forkserver_preload(["__main__", __name__])  # so that what is slow to import is imported once
        for rank in range(1, count):
            given = store.port, rank, count, threads
            workers.append(context.Process(target=_worker, args=given, daemon=True, name=f"curvae {rank}"))
            workers[-1].start()
    else:
        store = _torchrun_store()
    lost = partial(_explain_loss, store, workers)
    try:
        while not store.check([f"joined {rank}" for rank in range(1, count)]):
            if any(worker.exitcode for worker in workers):
                raise lost()
            time.sleep(_POLL)
        store.set("device", device.type)
        _join_unless_lost(store, BatchShard(0, count), device, workers)
        if not distributed.is_initialized():
            raise lost()
        with few_threads(threads):
            yield ProcessGroup(BatchShard(0, count), lost)
        for worker in workers:
            worker.join(10.0)
    finally:
        with suppress(RuntimeError, AssertionError, ValueError):  # there may be no group yet
            distributed.destroy_process_group()
        for worker in workers:
            worker.kill()
            worker.join()


def _join_unless_lost(store: Any, share: BatchShard, device: torch.device, workers: Sequence[Any]) -> None:
    """Join the process group, or give up where another process has ended before it has joined."""

    def join() -> None:
        with suppress(RuntimeError):  # there is no group then
            _join(store, share, device)

    joining = threading.Thread(target=join, daemon=True)
    joining.start()
    while joining.is_alive() and not any(worker.exitcode for worker in workers):
        joining.join(_POLL)


def _explain_loss(store: Any, workers: Sequence[Any]) -> CurvaeError:
    """Make the error about a process that has ended: its own, or how it ended."""
    until = time.monotonic() + 1.0
    while workers and not any(worker.exitcode for worker in workers) and time.monotonic() < until:
        time.sleep(_POLL)
    with suppress(RuntimeError):
        if store.check(["failed"]):
            return CurvaeError(store.get("failed").decode())
    # One that was ended by a signal, a negative code, comes before those that ended because of it.
    code, rank = min(
        ((worker.exitcode, rank) for rank, worker in enumerate(workers, 2) if worker.exitcode), default=(0, 0)
    )
    if not code:
        return CurvaeError("a process of the training was lost; go on with `resume=True`")
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return CurvaeError(f"process {rank} of {len(workers) + 1} {how}; go on with `resume=True`")


# --- the others -------------------------------------------------------------------------------------------------------


def run_worker() -> Any:
    """Train with the first process, as one of the others that `torchrun` started; returns the same model."""
    started = launched()
    assert started is not None
    try:
        return _follow(_torchrun_store(), started)[0]
    except _LostError:
        sys.exit(1)


def _worker(port: int, rank: int, count: int, threads: int) -> None:
    """Train with the first process, which started this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # which the first process receives too, and ends this one
    threading.Thread(target=_end_with_first, daemon=True).start()
    torch.set_num_threads(threads)
    os.environ["LOCAL_RANK"] = str(rank)
    try:
        _follow(distributed.TCPStore("127.0.0.1", port, is_master=False, timeout=_TIMEOUT), BatchShard(rank, count))
    except (CurvaeError, _LostError):
        sys.exit(1)


def _end_with_first() -> None:
    first = parent_process()
    if first is not None:
        first.join()
        os._exit(1)


def _follow(store: Any, share: BatchShard) -> list[Any]:
    group = ProcessGroup(share, _LostError)
    try:
        try:
            store.set(f"joined {share.rank}", "")
            while not store.check(["device"]):  # the first process may read data for long
                time.sleep(_POLL)
            _join(store, share, torch.device(store.get("device").decode()))
        except RuntimeError as error:
            raise _LostError from error
        problem, tasks, checkpoint = _broadcast(group, None)
        with tempfile.TemporaryDirectory(prefix="curvae-") as made:
            folder = Path(made)
            if checkpoint is not None:
                path = Checkpoint(folder, True, [task.place for task in tasks]).path
                path.parent.mkdir()
                path.write_bytes(checkpoint)
            return _train(group, problem, tasks, Listener(), folder, True)
    except CurvaeError as error:
        with suppress(RuntimeError):
            store.set("failed", str(error))
        raise
    finally:
        with suppress(RuntimeError, AssertionError, ValueError):  # there may be no group yet
            distributed.destroy_process_group()


# --- both -------------------------------------------------------------------------------------------------------------


def _torchrun_store() -> Any:
    """Return the store in which processes that `torchrun` started find each other."""
    store, _, _ = next(distributed.rendezvous("env://", timeout=timedelta(days=7)))
    return distributed.PrefixStore("curvae", store)


def _join(store: Any, share: BatchShard, device: torch.device) -> None:
    """Join the process group; processes of one machine talk within it, whatever its name leads to."""
    interface = "GLOO_SOCKET_IFNAME"
    names = [name for _, name in socket.if_nameindex() if name.startswith("lo")] if os.name == "posix" else []
    local = launched() is None and bool(names) and interface not in os.environ
    if local:
        os.environ[interface] = names[0]
    try:
        distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=distributed.PrefixStore("group", store),
            rank=share.rank,
            world_size=share.size,
            timeout=_TIMEOUT,
        )
    finally:
        if local:
            del os.environ[interface]


def _broadcast(group: ProcessGroup, sent: Any) -> Any:
    """Return what the first process sends to all."""
    box = [sent]
    try:
        distributed.broadcast_object_list(box, src=0, device=torch.device("cpu"))
    except RuntimeError as error:
        raise group.lost() from error
    return box[0]


def _train(
    group: ProcessGroup,
    problem: Problem[TaskT, FittedT],
    tasks: Sequence[TaskT],
    listener: Listener,
    folder: Path | None,
    resume: bool,
) -> list[FittedT]:
    """Train on this process's share of every batch, on CUDA with a GPU of its own, and wait until all have ended."""
    own = replace(
        problem,
        group=group,
        asked=f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if problem.device.type == "cuda" else "cpu",
    )
    fitted = train_stack(own, tasks, listener, folder=folder, resume=resume)
    group.sum(torch.zeros(1, device=own.device))
    return fitted
