"""The peak memory of reading in pieces: that of a file does not depend on the number of its rows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

COLUMNS, FEW, MANY = 1_600, 1_250, 5_000

PROGRAM = """
import json, sys
from pathlib import Path
import torch
from curvae.data import open_stream
from curvae.runs import Reporter
from curvae.runs.folders import write_tables
from curvae.runs.pieces import embedded_tables
from curvae.training import Config, fit

torch.set_num_threads(1)
config = Config(epochs=1, batch_size=512, hidden=(8,), posterior="wrapped", likelihood="gaussian")
peaks = []
for path in sys.argv[1:]:
    stream = open_stream(path, memory="16MB")
    fitted = fit(config, stream)
    write_tables(Path(path + ".map.parquet"), embedded_tables(fitted, stream, None, Reporter()))
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    peaks.append(int(lines["VmHWM"].split()[0]) / 1e3)
print(json.dumps(peaks))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no peak memory is told")
def test_four_times_the_rows_take_no_more_memory(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    x = np.random.default_rng(0).normal(size=(MANY, COLUMNS)).astype(np.float32)
    for rows in (FEW, MANY):
        np.save(tmp_path / f"{rows}.npy", x[:rows])
    paths = [str(tmp_path / f"{rows}.npy") for rows in (FEW, FEW, MANY)]  # the first loads libraries as well
    found = subprocess.run([sys.executable, "-c", PROGRAM, *paths], check=True, capture_output=True, text=True).stdout
    _, few, many = json.loads(found.splitlines()[-1])
    assert many - few < x.nbytes / 1e6 / 2  # megabytes: half of what a copy of the rows would take
