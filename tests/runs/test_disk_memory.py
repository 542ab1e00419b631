"""The peak memory of rows on disk: that of a file does not depend on the number of its rows."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from curvae.data import load, memory
from curvae.runs import Reporter
from curvae.runs.training import embedding_tables
from curvae.training import Config, fit
from curvae.training.storage import write_tables
from processes import child

COLUMNS, FEW, MANY = 400, 5_000, 30_000
STATUS = Path("/proc/self/status")
ARENA_MAX = -8  # the name of a setting in glibc's malloc.h


def taken():
    """Megabytes that the process holds now, without the pages of files, which the system takes back when it likes."""
    lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
    return int(lines["RssAnon"].split()[0]) / 1e3


def peak(name):
    """Train on a file and write its map; megabytes of further memory that were taken at most meanwhile."""
    # Rows that are looked at after an epoch, up to some thousands, are held in memory.
    config = Config(
        epochs=1,
        batch_size=512,
        hidden=(8,),
        posterior="wrapped",
        likelihood="gaussian",
        validation=0.02,
        neighbours="off",
    )
    gc.collect()
    memory.return_freed()
    seen, ended = [taken()], threading.Event()

    def watch():
        while not ended.wait(0.01):
            seen.append(taken())

    watcher = threading.Thread(target=watch)
    watcher.start()
    data, _ = load(name, memory="16MB")
    fitted = fit(config, data)
    write_tables(Path(name + ".map.parquet"), embedding_tables(fitted, data, None, Reporter()))
    ended.set()
    watcher.join()
    return max(seen) - seen[0]


def write_more(bound):
    """How much more memory many rows take than few, the least of at most three times; the first file loads libraries
    as well. Allocators take more now and then; what is held is held each time."""
    os.environ["XDG_CACHE_HOME"] = "cache"
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(ARENA_MAX, 1)  # by default glibc keeps buffers for each thread
    _, few = peak(f"{FEW}.npy"), peak(f"{FEW}.npy")
    more = [peak(f"{MANY}.npy") - few]
    while len(more) < 3 and more[-1] >= bound:
        more.append(peak(f"{MANY}.npy") - few)
    Path("more.json").write_text(json.dumps(min(more)))


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.exists(), reason="no peak memory is told")
def test_many_times_the_rows_take_no_more_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=(MANY, COLUMNS)).astype(np.float32)
    for rows in (FEW, MANY):
        np.save(f"{rows}.npy", x[:rows])
    monkeypatch.setattr(memory, "_RETURNED", 1 << 18)  # smaller arrays too go back to the system when they are freed
    monkeypatch.setattr(memory, "_SPARE", 1 << 20)
    bound = (MANY - FEW) * COLUMNS * x.itemsize / 2e6  # half of what the further rows would take
    process = child(lambda: write_more(bound))  # a process of its own, with nothing of other tests
    process.join(120)
    assert process.exitcode == 0
    assert json.loads(Path("more.json").read_text()) < bound
