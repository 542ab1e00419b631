"""Shared settings: one thread a worker, since tests run side by side, and fixed seeds."""

from __future__ import annotations

import math
import os
import shutil
from contextlib import suppress
from pathlib import Path
from unittest import mock

# Read when numpy, scipy and torch are first imported, here and in processes that tests start.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
os.environ["MIMALLOC_PURGE_DELAY"] = "-1"  # memory is kept, not given back and asked for again

import pytest

# Tests replace thousands of small files, each of which a disk would have to wait for: they are in memory if there is
# room.
with suppress(OSError):
    if shutil.disk_usage("/dev/shm").free > 4 << 30:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")

# What is slow to import is imported where it is used: the process that only hands out tests to others does without.
pytest.register_assert_rewrite("distribution_checks", "likelihood_checks", "stacking", "trainings")


@pytest.fixture(scope="session", autouse=True)
def _alone() -> None:
    import joblib
    import torch

    torch.set_num_threads(1)
    # Commands train in one process a core; their start takes longer than all trainings here. Tests that want some say
    # so.
    joblib.cpu_count = lambda: 1


@pytest.fixture(autouse=True)
def _fresh() -> None:
    import torch

    torch.default_generator.manual_seed(0)  # torch.manual_seed also keeps a traceback for every kind of device
    # torch.compile switches validation off for the whole process when it meets a distribution.
    torch.distributions.Distribution.set_default_validate_args(True)


@pytest.fixture
def often(monkeypatch):
    """A checkpoint after every epoch."""
    from curvae.training import stacks

    monkeypatch.setattr(stacks, "_CHECKPOINT_EVERY", -1.0)
    monkeypatch.setattr(stacks, "_CHECKPOINT_SHARE", math.inf)


@pytest.fixture
def quick_tracing():
    """`make_fx` without its descriptions of all values, which nobody reads: half of its time."""
    from torch.fx.experimental import proxy_tensor

    with mock.patch.object(proxy_tensor, "set_meta", lambda proxy, value: proxy):
        yield


@pytest.fixture
def table():
    """A table of numbers with a label, in the current directory."""
    from running import write_table

    return write_table(Path("t.csv"), kind=list("xy") * 20)
