"""Processes that do a piece of work and may be killed at any moment.

They are forked from a server that has one thread. A fork of the process of the tests, which has more, could wait
forever for a lock that another thread held at that moment.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, get_all_start_methods, get_context
from pathlib import Path
from typing import Any
from unittest import mock

import cloudpickle
import joblib
import pytest

from curvae.training import stacks

__all__ = ["child", "kill", "start_server", "wait", "writer"]

_SETTINGS = ("_CHECKPOINT_EVERY", "_CHECKPOINT_SHARE")


def start_server(*modules: str) -> None:
    """Start the server, unless it runs, with what it imports besides what it needs for trainings and commands."""
    get_context("forkserver").set_forkserver_preload(["warm", *modules])
    # It looks for modules by the environment alone, and goes on silently without what it does not find.
    with mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path))):
        forkserver.ensure_running()


def child(work: Callable[[], Any]) -> Any:
    """Start a process that does some work in this directory, with as many checkpoints and cores as are set here."""
    if "forkserver" not in get_all_start_methods():
        pytest.skip("needs to fork")
    start_server()
    settings = {name: getattr(stacks, name) for name in _SETTINGS}
    place = str(Path.cwd()), joblib.cpu_count()
    process = get_context("forkserver").Process(target=_do, args=(cloudpickle.dumps(work), settings, *place))
    process.start()
    return process


def _do(work: bytes, settings: dict[str, float], folder: str, cores: int) -> None:
    os.chdir(folder)
    joblib.cpu_count = lambda: cores
    for name, value in settings.items():
        setattr(stacks, name, value)
    cloudpickle.loads(work)()


def kill(process: Any) -> None:
    """Kill it, if it is not done."""
    process.kill()


def wait(process: Any) -> bool:
    """Whether the process was killed, rather than done before."""
    process.join(120)
    assert process.exitcode is not None, "the process does not end"
    assert process.exitcode in (0, -signal.SIGKILL), f"the process ended with {process.exitcode}"
    return process.exitcode != 0


_WRITER = """
import sys
from filelock import FileLock
with FileLock(sys.argv[1]):
    print("locked", flush=True)
    sys.stdin.read()
"""


@contextmanager
def writer(path: str | Path) -> Iterator[None]:
    """Another process that holds the lock of a folder or file, until it is killed."""
    path = Path(path)
    lock = path / ".lock" if path.is_dir() else path.with_name(f".{path.name}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "locked\n"
        try:
            yield
        finally:
            process.kill()
