"""The kinds of data that runs are made of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..training.storage import kind_of, load_fitted
from .graph_run import GraphRun
from .rows_run import RowsRun
from .run import Run, TrainedRun

__all__ = ["RUNS", "open_run", "run_of"]

RUNS: Mapping[str, type[Run]] = {run.fitted.kind: run for run in (RowsRun, GraphRun)}
"""what runs of a kind do, by its name in `config.json`"""


def run_of(description: Mapping[str, Any]) -> type[Run]:
    """What runs of the kind do that `config.json` names; those without a name are on rows."""
    return RUNS.get(str(description.get("kind")), RowsRun)


def open_run(folder: Path, device: torch.device | str = "cpu") -> TrainedRun:
    """The trained model in a run folder, of whatever kind."""
    run = RUNS[kind_of(folder)]
    return run.trained(folder, load_fitted(folder, run.fitted, device))
