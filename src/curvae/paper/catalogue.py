"""The experiments by name; one module each."""

from __future__ import annotations

from . import ablation, gallery, table1, table2, table3, table4, tuned
from .experiment import Experiment

__all__ = ["EXPERIMENTS"]

_MODULES = (table1, table2, table3, table4, ablation, gallery, tuned)

EXPERIMENTS: dict[str, Experiment] = {module.EXPERIMENT.name: module.EXPERIMENT for module in _MODULES}
