"""`curvae embed`, `impute`, `sample` and `evaluate`: a trained run put to use."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..data.missing import Missing
from ..errors import CurvaeError
from .folders import output_file, table_ending, write_tables
from .kinds import open_run
from .progress import Reporter
from .run import Imputed, Sampled, ScoreFile
from .sources import Step

__all__ = ["embed_run", "evaluate_run", "impute_run", "sample_run"]

_SILENT = Reporter()


def embed_run(
    run: Path,
    path: str,
    output: Path | None = None,
    *,
    missing: Missing | None = None,
    force: bool = False,
    device: torch.device | str = "cpu",
    nodes: str | None = None,
    features_file: str | None = None,
    memory: str | None = None,
    reporter: Reporter = _SILENT,
) -> tuple[Path, Step]:
    """Embed data with a trained run; returns the file, whose columns are those of `embedding.csv`, and what to do next.

    It is a CSV file, or a Parquet file if that is asked for or there are a million rows. `nodes` is a table of nodes
    and `features_file` has their features, where the run is one of a graph. Rows that would take more than so much
    `memory` are read in pieces.
    """
    found = open_run(run, device).embed(path, nodes, features_file, missing, reporter, memory)
    name = f"{Path(path).name.split('.')[0]}-embedding{table_ending(found.rows)}"
    target = output_file(output, Path(name), force, (".csv", ".parquet"))
    write_tables(target, found.tables)
    return target, found.following


def impute_run(
    run: Path,
    path: str,
    output: Path | None = None,
    *,
    samples: int = 1000,
    seed: int = 0,
    memory: str | None = None,
    force: bool = False,
    device: torch.device | str = "cpu",
    reporter: Reporter = _SILENT,
) -> Imputed:
    """Fill the gaps of data with what a trained run expects there, from so many importance samples a row; rows that
    take more than so much memory a piece at a time."""
    return open_run(run, device).impute(path, output, samples, seed, force, reporter, memory)


def sample_run(
    run: Path,
    count: int,
    output: Path | None = None,
    *,
    covariates: Mapping[str, str] | None = None,
    seed: int = 0,
    force: bool = False,
    device: torch.device | str = "cpu",
) -> Sampled:
    """Draw new rows, or graphs, from a trained run; `covariates` has a value for each that the model is told."""
    if count < 1:
        raise CurvaeError(f"the number of samples must be at least 1, got {count}")
    return open_run(run, device).sample(count, output, covariates, seed, force)


def evaluate_run(
    run: Path,
    path: str,
    samples: int | None = None,
    *,
    seed: int = 0,
    missing: Missing | None = None,
    output: Path | None = None,
    training: str | None = None,
    force: bool = False,
    device: torch.device | str = "cpu",
    reporter: Reporter = _SILENT,
) -> dict[str, Any]:
    """How well a trained run describes data, for each part of the data that the run knows apart.

    Of rows the marginal log-likelihood, with so many importance samples; of a graph, how well its edges are told from
    other pairs. `output` is a file for the log-likelihood of every row and its rank among the rows of `training`, the
    data that the run was trained on; by default the file of that name beside the data or in the working directory.
    """
    scores = None
    if output is not None:
        scores = ScoreFile(output_file(output, Path("scores.csv"), force, (".csv", ".parquet")), training)
    return open_run(run, device).evaluate(path, samples, missing, seed, reporter, scores)
