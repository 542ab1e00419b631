"""What the server of test processes does once, so that none of them has to: all imports, and a first training.

With one thread, for whatever it forks must not wait for others.
"""

from __future__ import annotations

from dataclasses import replace

import torch

import curvae.plotting
import curvae.report
import curvae.runs
import test_many
import test_resume
import test_resume_runs
from curvae.training import fit, fit_many

torch.set_num_threads(1)
fit(replace(test_resume.CONFIG, epochs=1, patience=None), test_resume.X)
fit_many([replace(config, epochs=1) for config in test_many.MANY], test_many.DATA)

__all__ = ["curvae", "test_resume_runs"]
