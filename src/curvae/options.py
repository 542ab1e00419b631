"""Arguments and options that commands share, called as the library calls them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from .errors import CurvaeError
from .flags import SettingOption
from .settings import RowSettings

__all__ = ["FILE", "SHARED", "files", "option", "printed", "refuse"]

FILE = click.Path(path_type=Path)


def option(*names: str, choices: Sequence[str] = (), **more: Any) -> click.Option:
    """An option, given its names and help; `choices` are named in the help, and others are refused."""
    chosen: dict[str, Any] = {"type": click.Choice(choices), "metavar": "NAME"} if choices else {}
    return click.Option(names, **chosen, **more)


def files(context: click.Context, parameter: click.Parameter, typed: str) -> list[Any]:
    """What a shell completes where a file is meant: names of files."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(typed, type="file")]


def refuse(when: str, names: Iterable[str]) -> None:
    """Raise if one of these options was given."""
    context = click.get_current_context()
    for one in context.command.params:
        source = context.get_parameter_source(one.name or "")
        if one.name in names and source is not None and source.name != "DEFAULT":
            raise CurvaeError(f"{one.opts[0]} has no meaning {when}; leave it out")


def printed(text: Callable[[click.Context], str]) -> dict[str, Any]:
    """Of an option: print a text and do nothing else."""

    def callback(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
        if asked:
            print(text(context))
            context.exit()

    return {"is_flag": True, "is_eager": True, "expose_value": False, "callback": callback}


_ROWS = "Missing values: error, drop the rows, fill in the mean, or let the model handle them"
SHARED: dict[str, click.Parameter] = {
    "run": click.Argument(["run"], type=FILE, help="Run folder of curvae fit or curvae graph."),
    "data": click.Argument(
        ["data"],
        shell_complete=files,
        help="Table (.csv, .tsv, .parquet), matrix (.npy, .npz, .mtx), images (.npy or a folder), mnist, "
        "branching-diffusion or flat.",
    ),
    "folder": option("-o", "--output", type=FILE, help="Run folder (runs/<name>-<n>)."),
    "label": option("--label", help="Column to colour the map by."),
    "id": option("--id", help="Column that names the rows."),
    "group": option("--group", help="Column whose rows stay together in splits."),
    "categorical": option("--categorical", multiple=True, help="Text column to encode; repeatable."),
    "covariates": option(
        "--covariate",
        "covariates",
        multiple=True,
        help="Covariate such as the batch: a column given to the decoder; repeatable.",
    ),
    "covariates_left_out": option(
        "--covariate",
        "covariates",
        multiple=True,
        help="Covariate such as the batch: a column left out of the distances; repeatable.",
    ),
    "exposure": option("--exposure", help="Column with the exposure of each row, for counts (poisson)."),
    "missing": option(
        "--missing", choices=("error", "drop", "mean", "model"), default="error", help=f"{_ROWS} (error)."
    ),
    "missing_as_run": option(
        "--missing", choices=("error", "drop", "mean", "model"), help=f"{_ROWS} (as the run did)."
    ),
    "missing_filled": option(
        "--missing",
        choices=("error", "drop", "mean"),
        default="error",
        help="Missing values: error, drop the rows, or fill in the mean (error).",
    ),
    "missing_features": option(
        "--missing",
        choices=("error", "mean"),
        default="error",
        help="Missing features of nodes: error, or fill in the mean (error).",
    ),
    "memory": option(
        "--memory",
        metavar="SIZE",
        help="Memory for data, such as 2GB; larger data are read in pieces (a quarter of all memory).",
    ),
    "memory_of_sample": option(
        "--memory",
        metavar="SIZE",
        help="Memory for data, such as 2GB; of larger data a sample is used (a quarter of all memory).",
    ),
    "nodes": option("--nodes", shell_complete=files, help="Table of nodes: names, labels, features."),
    "features": option(
        "--features", multiple=True, help="Numeric column of --nodes to use as a feature; repeatable (all of them)."
    ),
    "no_features": option("--no-features", is_flag=True, help="Use no column of --nodes as a feature."),
    "features_file": option(
        "--features-file",
        shell_complete=files,
        help="Features of nodes: matrix (.npz, .npy, .mtx) or table (.csv, .parquet).",
    ),
    "source_column": option(
        "--source",
        "source_column",
        metavar="COLUMN",
        help="Column with the first node of an edge; without a header its number, from 1 (detected).",
    ),
    "target_column": option("--target", "target_column", metavar="COLUMN", help="Column with the second (detected)."),
    "header": option(
        "--header/--no-header",
        default=None,
        help="Whether the first line of the edge list holds column names (detected).",
    ),
    "weighted": option("--weighted", is_flag=True, help="Read edge weights: an edge of weight 2 counts as two edges."),
    "isolated": option("--isolated", is_flag=True, help="Also add nodes of the table that have no edges."),
    "seed": SettingOption([RowSettings], "seed", default=0),
    "device": option("--device", default="auto", help="auto, cpu or cuda (auto)."),
    "jobs": option("--jobs", type=click.IntRange(min=1), help="Processes (one per core, one on CUDA)."),
    "root": option("--root", metavar="ID", help="Row, or node, at the centre of the map (the mean of all)."),
    "resume": option("--resume", is_flag=True, help="Continue the run in -o."),
    "force": option("--force", is_flag=True, help="Overwrite what is there."),
    "quiet": option("--quiet", "-q", is_flag=True, help="Print nothing but errors."),
    "as_json": option("--json", "as_json", is_flag=True, help="Print the result as JSON and nothing else."),
    "help": option("-h", "--help", **printed(click.Context.get_help), help="Show this message and exit."),
}
"""parameters that several commands have, called as the library calls them where it has them"""
