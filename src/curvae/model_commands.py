"""Commands that take a trained model further: into other programs, and back to the columns it was trained on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .console import Answer, Later, command
from .options import FILE, option

if TYPE_CHECKING:
    from . import runs
    from .runs import Reporter
else:
    runs = Later("curvae.runs")

__all__ = ["export"]


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
