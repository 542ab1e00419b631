"""The experiments by name; one module each."""

from __future__ import annotations

from . import ablation, better, gallery, table1, table2, table3, table4
from .experiment import Experiment

__all__ = ["EXPERIMENTS"]

_MODULES = (table1, table2, table3, table4, ablation, gallery, better)

EXPERIMENTS: dict[str, Experiment] = {module.EXPERIMENT.name: module.EXPERIMENT for module in _MODULES}
