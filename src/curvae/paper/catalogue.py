"""The experiments by name; one module each."""

from __future__ import annotations

from . import table1, table2, table4
from .experiment import Experiment

__all__ = ["EXPERIMENTS"]

EXPERIMENTS: dict[str, Experiment] = {module.EXPERIMENT.name: module.EXPERIMENT for module in (table1, table2, table4)}
