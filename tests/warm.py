"""What the server of test processes does once, so that none of them has to: imports, first trainings and a command.

With one thread, for whatever it forks must not wait for others.
"""

from __future__ import annotations

import tempfile
from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import torch

import curvae.plotting
import curvae.report
import curvae.runs
import running
from curvae.training import fit, fit_many
from trainings import CONFIG, DATA, MANY, X

torch.set_num_threads(1)
fit(replace(CONFIG, epochs=1, patience=None), X)
fit_many([replace(config, epochs=1) for config in MANY], DATA)
with tempfile.TemporaryDirectory() as folder, chdir(folder):
    running.write_table(Path("t.csv"))
    running.curvae("compare", "t.csv", "-q", "--repeats", "3", "--jobs", "1", *running.SMALL)
    running.curvae("fit", "t.csv", "-q", *running.SMALL)

__all__ = ["curvae", "running"]
