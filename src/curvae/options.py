"""Arguments and options that commands share, called as the library calls them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from .errors import CurvaeError
from .flags import SettingOption
from .settings import RowSettings

__all__ = [
    "CATEGORICAL",
    "COVARIATE",
    "DATA",
    "DEVICE",
    "DEVICES",
    "EDGES",
    "EXPOSURE",
    "FEATURES",
    "FORCE",
    "GROUP",
    "HELP",
    "ID",
    "ISOLATED",
    "JOBS",
    "JSON",
    "LABEL",
    "MISSING",
    "MISSING_AS_RUN",
    "NODES",
    "QUIET",
    "RESUME",
    "RUN",
    "RUN_FOLDER",
    "SEED",
    "WEIGHTED",
    "Argument",
    "missing",
    "option",
    "output",
    "refuse",
    "switch",
]


class Argument(click.Argument):
    """An argument with a line of help."""

    panel = "Arguments"

    def __init__(self, name: str, text: str, **more: Any) -> None:
        super().__init__([name], **more)
        self.text = text

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        return self.human_readable_name, self.text


def option(*names: str, text: str, **more: Any) -> click.Option:
    """An option with a line of help; one without a type takes text."""
    return click.Option(names, help=text, **more)


def switch(*names: str, text: str) -> click.Option:
    """An option that is on when it is there."""
    return option(*names, text=text, is_flag=True)


def output(text: str, **more: Any) -> click.Option:
    """Where to write."""
    return option("-o", "--output", text=text, type=click.Path(path_type=Path), **more)


def missing(text: str, *choices: str, default: str | None = "error") -> click.Option:
    """What to do about values that are missing."""
    return option("--missing", text=text, type=click.Choice(choices), metavar="NAME", default=default)


def refuse(when: str, names: Iterable[str]) -> None:
    """Raise if one of these options was given."""
    context = click.get_current_context()
    for one in context.command.params:
        source = context.get_parameter_source(one.name or "")
        if one.name in names and source is not None and source.name != "DEFAULT":
            raise CurvaeError(f"{one.opts[0]} has no meaning {when}; leave it out")


def _show_help(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
    if asked:
        print(context.get_help())
        context.exit()


QUIET = click.Option(["--quiet", "-q"], is_flag=True, help="Print nothing but errors.")
JSON = click.Option(["--json", "as_json"], is_flag=True, help="Print the result as JSON and nothing else.")
HELP = click.Option(
    ["-h", "--help"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_help,
    help="Show this message and exit.",
)

SEED = SettingOption([RowSettings], "seed", default=0)
SEED.panel = "Options"
DEVICE = option("--device", text="auto, cpu or cuda (auto).", default="auto")
DEVICES = option("--device", text="auto, cpu or cuda, where the trainings run (auto).", default="auto")
FORCE = switch("--force", text="Overwrite what is there.")
RESUME = switch("--resume", text="Continue the run in -o.")
JOBS = option("--jobs", text="Processes (one per core, one on CUDA).", type=click.IntRange(min=1))

RUN = Argument("run", "Run folder of curvae fit or curvae graph.", type=click.Path(path_type=Path))
DATA = Argument(
    "data",
    "Table (.csv, .tsv, .parquet), matrix (.npy, .npz, .mtx), images (.npy or a folder), mnist, branching-diffusion "
    "or flat.",
)
EDGES = Argument(
    "data",
    "List of edges (any text file), matrix (.mtx, .npz), GraphML, phylogenetic, csphd or diseases.",
    metavar="EDGES",
)
RUN_FOLDER = output("Run folder (runs/<name>-<n>).")

LABEL = option("--label", text="Column to colour the map by.")
ID = option("--id", text="Column that names the rows.")
GROUP = option("--group", text="Column whose rows stay together in splits.")
CATEGORICAL = option("--categorical", text="Text column to encode; repeatable.", multiple=True)
COVARIATE = option(
    "--covariate",
    "covariates",
    text="Column of the circumstances, such as the batch, told to the decoder; repeatable.",
    multiple=True,
)
EXPOSURE = option("--exposure", text="Column with the exposure of each row, for counts (poisson).")
MISSING = missing(
    "Rows that lack values: error, drop, fill in the mean, or leave gaps to the model (error).",
    *("error", "drop", "mean", "model"),
)
MISSING_AS_RUN = missing(
    "Rows that lack values: error, drop, mean or model (as the run did).",
    *("error", "drop", "mean", "model"),
    default=None,
)
NODES = option("--nodes", text="Table of nodes: names, labels, features.")
FEATURES = option("--features", text="Column of numbers of the nodes; repeatable.", multiple=True)
WEIGHTED = switch("--weighted", text="Read weights of edges.")
ISOLATED = switch("--isolated", text="Add nodes that only the table names, without edges.")
