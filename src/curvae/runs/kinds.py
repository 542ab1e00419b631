"""The kinds of data that runs are made of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..training.config import Config, Settings
from ..training.storage import kind_of, load_fitted
from .graph_run import GraphRun
from .progress import Reporter
from .rows_run import RowsRun
from .run import Run, TrainedRun
from .sources import DataSource, Source, streamed_blocks
from .stream_run import SampledRun, StreamRun

__all__ = ["RUNS", "comparison_run", "open_run", "run_of", "training_run"]

RUNS: Mapping[str, type[Run]] = {run.fitted.kind: run for run in (RowsRun, GraphRun)}
"""what runs of a kind do, by its name in `config.json`"""


def training_run(
    source: DataSource, config: Settings, repeats: int | None, reporter: Reporter, before: Mapping[str, Any]
) -> Run:
    """The run that trains on some data; it reads rows in pieces where they are larger than the memory they may take.

    `before` describes the run that is resumed, if one is.
    """
    if isinstance(source, Source) and isinstance(config, Config):
        needed = {
            "repeats": repeats not in (None, 1),
            "neighbours": config.uses_neighbours,
            "init": config.init == "pca",
        }
        if (blocks := streamed_blocks(source, reporter.counter, others=needed)) is not None:
            return StreamRun(source, config, blocks, reporter, before)
    return RUNS[source.kind](source, config)


def comparison_run(source: DataSource, config: Settings, reporter: Reporter) -> Run:
    """The run that compares models on some data, or on a sample of rows that are larger than memory."""
    if isinstance(source, Source) and isinstance(config, Config):
        return SampledRun(source, config, reporter)
    return RUNS[source.kind](source, config)


def run_of(description: Mapping[str, Any]) -> type[Run]:
    """What runs of the kind do that `config.json` names; those without a name are on rows."""
    return RUNS.get(str(description.get("kind")), RowsRun)


def open_run(folder: Path, device: torch.device | str = "cpu") -> TrainedRun:
    """The trained model in a run folder, of whatever kind."""
    run = RUNS[kind_of(folder)]
    return run.trained(folder, load_fitted(folder, run.fitted, device))
