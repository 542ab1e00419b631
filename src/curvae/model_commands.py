"""Commands that take a trained model further: into other programs, and back to the columns it was trained on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .console import Answer, Later, command
from .options import FILE, option

if TYPE_CHECKING:
    from . import runs
    from .runs import Reporter
else:
    runs = Later("curvae.runs")

__all__ = ["explain", "export"]


@command(
    "run",
    option("-o", "--output", type=FILE, help="Folder (<run>-export)."),
    option("--onnx", is_flag=True, help="ONNX files, which onnxruntime and many other programs run."),
    option("--torch", is_flag=True, help="Programs of torch.export, which need PyTorch alone."),
    "force",
    example="export runs/cells-1 --onnx",
)
def export(reporter: Reporter, run: Path, **asked: Any) -> Answer:
    """Write encoder and decoder of a run for other programs, from and to values in original units."""
    paths = [str(path) for path in runs.export_run(run, reporter=reporter, **asked)]
    return Answer({"files": paths}, [f"wrote: {path}" for path in paths], runs.Step("view", (str(run),)))


@command(
    "run",
    option("--from", "start", help="Row, by its id, or label to start from (the centre of the map).", metavar="ID"),
    option("--to", "end", help="Row, by its id, or label to go to (each label in turn).", metavar="ID"),
    option("-n", "--count", help="How many columns to show (10).", type=click.IntRange(min=1), default=10),
    option("-o", "--output", type=FILE, help="CSV file for the values along the way."),
    "force",
    "seed",
    "device",
    example="explain runs/cells-1 --from cell17 --to cell4",
)
def explain(run: Path, **asked: Any) -> Answer:
    """Which columns change on the way across the map of a run, from a row or label to another?"""
    found = runs.explain_run(run, **asked)
    files = [] if found.path is None else [f"values: {found.path}"]
    return Answer(found.to_json(), [*runs.driver_lines(found), *files], runs.Step("view", (str(run),)))
