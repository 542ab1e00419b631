"""The peak memory of reading in pieces: that of a file does not depend on the number of its rows."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from curvae.data import open_stream
from curvae.runs import Reporter
from curvae.runs.folders import write_tables
from curvae.runs.pieces import embedded_tables
from curvae.training import Config, fit
from processes import child

COLUMNS, FEW, MANY = 400, 5_000, 30_000
STATUS = Path("/proc/self/status")


def write_peaks(*names):
    """Train on each file and write its map; megabytes of memory that were taken at most until then."""
    os.environ["XDG_CACHE_HOME"] = "cache"
    config = Config(epochs=1, batch_size=512, hidden=(8,), posterior="wrapped", likelihood="gaussian")
    peaks = []
    for name in names:
        stream = open_stream(name, memory="16MB")
        fitted = fit(config, stream)
        write_tables(Path(name + ".map.parquet"), embedded_tables(fitted, stream, None, Reporter()))
        lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
        peaks.append(int(lines["VmHWM"].split()[0]) / 1e3)
    Path("peaks.json").write_text(json.dumps(peaks))


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.exists(), reason="no peak memory is told")
def test_six_times_the_rows_take_no_more_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=(MANY, COLUMNS)).astype(np.float32)
    for rows in (FEW, MANY):
        np.save(f"{rows}.npy", x[:rows])
    # A process of its own, for a peak counts from its start; the first file loads libraries as well.
    process = child(lambda: write_peaks(f"{FEW}.npy", f"{FEW}.npy", f"{MANY}.npy"))
    process.join(120)
    assert process.exitcode == 0
    _, few, many = json.loads(Path("peaks.json").read_text())
    assert many - few < x.nbytes / 1e6 / 2  # megabytes: half of what a copy of the rows would take
