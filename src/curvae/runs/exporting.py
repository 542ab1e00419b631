"""`curvae export`: the networks of a run for programs that do not have Curvae."""

from __future__ import annotations

from pathlib import Path

from ..errors import CurvaeError
from ..training.files import write_bytes, write_json
from ..training.portable import export_part, onnx_bytes, require_onnx, torch_bytes
from ..training.storage import versions
from .folders import output_file
from .kinds import open_run
from .progress import Reporter

__all__ = ["INTERFACE", "export_run"]

INTERFACE = "interface.json"
_SILENT = Reporter()


def export_run(
    run: Path,
    output: Path | None = None,
    *,
    onnx: bool = False,
    torch: bool = False,
    force: bool = False,
    reporter: Reporter = _SILENT,
) -> list[Path]:
    """Write the encoder and the decoder of a trained run to a folder, as ONNX files or programs of `torch.export`.

    Both work in original units: columns are scaled, and missing values handled, inside the graphs. Names and order of
    the columns, and the categories that one-hot columns stand for, are in `interface.json` beside them.

    Arguments:
        run: its folder.
        output: folder to write to; by default `<run>-export` in the working directory.
        onnx: write `encoder.onnx` and `decoder.onnx`.
        torch: write `encoder.pt2` and `decoder.pt2`, for `torch.export.load`.
        force: overwrite files that are there.
        reporter: of the progress.
    """
    if not (onnx or torch):
        raise CurvaeError("choose what to write with onnx=True, torch=True or both")
    if onnx:
        require_onnx()
    parts, interface = open_run(run).portable()
    folder = Path(f"{run.resolve().name}-export") if output is None else output
    if folder.exists() and not folder.is_dir():
        raise CurvaeError(f"{folder} is a file; give a folder with output=…")
    names = [f"{part.name}{ending}" for ending, asked in ((".onnx", onnx), (".pt2", torch)) if asked for part in parts]
    paths = [output_file(folder / name, Path(name), force) for name in (*names, INTERFACE)]
    advance = reporter.counter("exporting", len(parts))
    for part in parts:
        program = export_part(part)
        if torch:
            write_bytes(folder / f"{part.name}.pt2", torch_bytes(program))
        if onnx:
            write_bytes(folder / f"{part.name}.onnx", onnx_bytes(part, program))
        advance(1)
    graphs = {part.name: {"inputs": part.inputs, "outputs": part.outputs} for part in parts}
    about = {"run": run.resolve().name, "versions": versions(), "numbers": "float64, (rows, width) or (rows,)"}
    write_json(paths[-1], {**about, "graphs": graphs, **interface})
    return paths
