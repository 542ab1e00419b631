"""What the server of test processes does once, so that none of them has to: all imports, and a first training.

With one thread, for whatever it forks must not wait for others.
"""

from __future__ import annotations

from dataclasses import replace

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

__all__ = ["curvae", "running"]
