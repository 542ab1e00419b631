"""Options that commands share, and how parameters of the library are named on the command line."""

from __future__ import annotations

import os
import re
import shlex
import sys
from ast import literal_eval
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_origin

import click

from ..errors import CurvaeError
from ..settings import RowSettings, Setting, Settings, described

if TYPE_CHECKING:
    from ..runs import Step

__all__ = [
    "DATA",
    "FILE",
    "OPTIONS",
    "READING",
    "SHARED",
    "SetOption",
    "SettingOption",
    "command_line",
    "completed_command",
    "error_text",
    "in_flags",
    "option",
    "option_words",
    "options_of",
    "printed",
    "refuse",
    "setting_options",
    "shell_command",
    "typed_options",
]


# Options generated from the settings; commands, and messages of the library, as they are typed on the command line.

# Settings that are options of a command; all others are given with `--set`.
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "fit": (
        *("space", "dim", "curvature", "prior_scale", "hidden", "network", "likelihood", "neighbours"),
        *("epochs", "batch_size", "patience", "seed"),
    ),
    "graph": ("space", "dim", "curvature", "directed", "epochs", "seed"),
    "compare": ("space", "dim", "prior_scale", "hidden", "network", "likelihood", "epochs", "batch_size", "seed"),
}

# Parameters of a command besides the settings that are given with `--set`: how to read a graph.
READING: Mapping[str, tuple[str, ...]] = {
    "graph": ("missing", "no_features", "isolated", "header"),
    "compare": ("no_features", "isolated", "header"),
}


class _ValueOrWord(click.ParamType):  # type: ignore[type-arg]
    """A type of values, or one of some words in place of a value."""

    def __init__(self, values: Any, words: Collection[str]) -> None:
        self._values, self._words = click.types.convert_type(values), words
        self.name, self.choices = self._values.name, getattr(self._values, "choices", ())

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value in self._words else self._values.convert(value, param, ctx)


class SettingOption(click.Option):
    """The option of a setting, None unless given; of several kinds of models, with the help of each.

    Arguments:
        kinds: of models, one or more of which have the setting.
        name: of the setting.
        more: what is different for an option of a command: its default, say.
    """

    def __init__(self, kinds: Iterable[type[Settings]], name: str, **more: Any) -> None:
        known = [described(kind)[name] for kind in kinds if name in described(kind)]
        first = self._setting = known[0]
        flag = name.replace("_", "-")
        flag = f"--{flag}/--no-{flag}" if first.default is True else f"--{flag}"
        text, *others = dict.fromkeys(one.text for one in known)
        text += "".join(f" For a graph: {other[0].lower()}{other[1:]}" for other in others)
        super().__init__(
            [flag, *first.flags, name],
            help=text,
            **{"default": None, "callback": self._check, **_type_arguments(first), **more},
        )

    def _check(self, context: click.Context, parameter: click.Option, value: Any) -> Any:
        if value is None:
            return None
        try:
            if get_origin(self._setting.type) is tuple:
                value = tuple(int(width) for width in value.split(","))
            self._setting.require(value)
        except CurvaeError as error:
            raise click.UsageError(error_text(error, {self._setting.name: parameter}), context) from error
        except ValueError as error:
            raise click.BadParameter(
                f"{value!r} is no list of widths such as 200 or 400,200", context, parameter
            ) from error
        return value


def _type_arguments(known: Setting) -> dict[str, Any]:
    """Return type and placeholder of the option of a setting."""
    if known.type is bool:
        return {"is_flag": True}
    if known.choices:
        return {"type": click.Choice(known.choices), "metavar": "NAME"}
    if known.words:
        return {"type": _ValueOrWord(known.type, known.words)}
    return {"metavar": "WIDTHS"} if get_origin(known.type) is tuple else {"type": known.type}


class SetOption(click.Option):
    """`--set name=value`, repeatable: parameters of a command that have no option of their own.

    Arguments:
        options: of these parameters, to read and check values; the command itself does not have them.

    Attributes:
        options: by name, with `--set name=` as the flag.
    """

    def __init__(self, options: Iterable[click.Option]) -> None:
        self.options = {one.name or "": copy(one) for one in options}
        for name, one in self.options.items():
            one.opts, one.secondary_opts = [f"--set {name}="], []
        super().__init__(
            ["--set", "advanced"],
            multiple=True,
            is_eager=True,
            metavar="NAME=VALUE",
            callback=self._read,
            shell_complete=lambda context, parameter, typed: [f"{n}=" for n in self.options if n.startswith(typed)],
            help="Any other setting, such as cooldown=0.3; repeatable. --set list shows them all.",
        )

    def _read(self, context: click.Context, parameter: click.Parameter, entries: Sequence[str]) -> dict[str, Any]:
        if "list" in entries:
            print("\n".join(f"{name}: {one.help}" for name, one in self.options.items()))
            context.exit()
        return dict(self._entry(context, *entry.partition("=")) for entry in entries)

    def _entry(self, context: click.Context, name: str, equals: str, text: str) -> tuple[str, Any]:
        name = name.strip().replace("-", "_")
        for own in context.command.params:
            if own.name == name:
                raise click.UsageError(f"{name} has an option of its own, {own.opts[0]}", context)
        if name not in self.options:
            raise click.NoSuchOption(name, f"there is no setting {name}", list(self.options), context)
        if not equals:
            raise click.UsageError(f"--set takes NAME=VALUE, such as {name}=…; got {name}", context)
        return name, self.options[name].process_value(context, text.strip())


# --- commands -------------------------------------------------------------------------------------------------------


def options_of(command: click.Command) -> dict[str, click.Option]:
    """Return the options of a command by name, and parameters that are given with `--set`."""
    found: dict[str, click.Option] = {}
    for one in command.params:
        if isinstance(one, click.Option):
            found |= one.options if isinstance(one, SetOption) else {one.name or "": one}
    return found


def option_words(given: click.Option, value: Any) -> list[str]:
    """Return the words that give an option a value: none for None, and for several values the option as often.

    Example:
        >>> option_words(option("--covariate"), ("batch", "donor")), option_words(option("--hidden"), (64, 32))
        (['--covariate', 'batch', '--covariate', 'donor'], ['--hidden', '64,32'])
    """
    flag = given.opts[0]
    prefix = flag.removeprefix("--set ") if flag.endswith("=") else ""
    if isinstance(value, bool):
        if not prefix:
            return [flag] if value else given.secondary_opts[:1]
        value = "yes" if value else "no"
    elif isinstance(value, tuple | list) and value and isinstance(value[0], int):  # widths of layers
        value = ",".join(map(str, value))
    entries = value if isinstance(value, tuple | list) else [] if value is None else [value]
    texts = [f"{entry:g}" if isinstance(entry, float) else str(entry) for entry in entries]
    return [word for text in texts for word in ("--set" if prefix else flag, prefix + text)]


def typed_options(values: Mapping[str, Any], action: str) -> list[str]:
    """Return the words that give the options of a command these values."""
    from .commands import app

    options = options_of(app.commands[action])
    return [word for name, value in values.items() if name in options for word in option_words(options[name], value)]


def shell_command(step: Step) -> str:
    """Return a step as a command of the program, with the reason for it as a comment of the shell.

    Example:
        >>> from curvae.runs import Step
        >>> shell_command(Step("compare", ("my cells.csv",), {"label": "type", "prior_scale": 1.7, "diagonal": True}))
        "curvae compare 'my cells.csv' --label type --prior-scale 1.7 --set diagonal=yes"
        >>> settings = {"hidden": (64, 32), "covariates": ("batch", "donor"), "tf32": False, "exposure": None}
        >>> shell_command(Step("fit", ("cells.csv",), settings))
        'curvae fit cells.csv --hidden 64,32 --covariate batch --covariate donor --set tf32=no'
    """
    typed = ["curvae", step.action, *step.arguments, *typed_options(step.options, step.action)]
    return _typed_line(typed) + (f"  # {step.why}" if step.why else "")


def command_line() -> str:
    """Return the command as it was typed, without folders of files outside the working directory."""
    words = ["curvae"]
    for word in sys.argv[1:]:
        # A path may be glued to its option: --output=/a/b, -o/a/b.
        start = word.find("=") + 1 if word.startswith("--") else 2 * word.startswith("-o")
        path = Path(word[start:])
        words.append(word[:start] + path.name if path.is_absolute() else word)
    return _typed_line(words)


def completed_command(options: list[str], single: Collection[str] = ()) -> str:
    """Return the command as it was typed, with further options; those of `single` that it had are replaced."""
    typed = sys.argv[1:]
    replaced = {word for word in options if word in single}
    typed = [word for before, word in zip(["", *typed], typed, strict=False) if not {before, word} & replaced]
    end = typed.index("--") if "--" in typed else len(typed)  # what follows is no option
    return _typed_line(["curvae", *typed[:end], *options, *typed[end:]])


def _typed_line(words: list[str]) -> str:
    """Words as the shell takes them: both of Windows know double quotes alone."""
    if os.name == "nt":
        from subprocess import list2cmdline

        return list2cmdline(words)
    return shlex.join(words)


# --- messages -------------------------------------------------------------------------------------------------------

_PARAMETER = re.compile("`([a-z][a-z0-9_]*)(?:=([^`]+))?`")


def in_flags(message: str, options: Mapping[str, click.Option]) -> str:
    """Return a message of the library with parameters as they are typed on the command line.

    Arguments:
        message: names parameters in backquotes, as in `missing`, `missing="drop"` or, of any value, `nodes=…`.
        options: of parameters by name; what is not among them stays as it is.

    Example:
        >>> known = {name: option(f"--{name}") for name in ("missing", "label")} | {"weighted": option("--weighted")}
        >>> in_flags('`missing` must be a word; use `missing="drop"`, `weighted=True` or `label=…`', known)
        '--missing must be a word; use --missing drop, --weighted or --label'
    """

    def typed(found: re.Match[str]) -> str:
        name, value = found.groups()
        if name not in options:
            return found[0].strip("`")
        flag = options[name].opts[0]
        if value in (None, "…"):
            return flag.removesuffix("=")
        try:
            return _typed_line(option_words(options[name], literal_eval(value))) or f"no {flag}"
        except (SyntaxError, ValueError):
            return found[0].strip("`")

    return _PARAMETER.sub(typed, message)


def error_text(error: CurvaeError, options: Mapping[str, click.Option]) -> str:
    """Return the message of an error by `in_flags`, with the option that it is about behind it if it names none.

    Example:
        >>> print(error_text(CurvaeError("there are gaps", parameter="missing"), {"missing": option("--missing")}))
        there are gaps (--missing)
    """
    text = in_flags(str(error), options)
    unnamed = text == str(error) and error.parameter in options
    return f"{text} {in_flags(f'(`{error.parameter}`)', options)}" if unnamed else text


FILE = click.Path(path_type=Path)
DATA = click.Path(readable=False)  # the library says what is wrong with a file


def option(*names: str, choices: Sequence[str] = (), **more: Any) -> click.Option:
    """Make an option, given its names and help; `choices` are named in the help, and others are refused."""
    chosen: dict[str, Any] = {"type": click.Choice(choices), "metavar": "NAME"} if choices else {}
    return click.Option(names, **chosen, **more)


def refuse(when: str, names: Collection[str]) -> None:
    """Raise if one of these options was given."""
    context = click.get_current_context()
    for name in options_of(context.command):
        source = context.get_parameter_source(name)
        given = source is not None and source.name != "DEFAULT"
        if name in names and (given or name in context.params.get("advanced", ())):
            raise CurvaeError(f"`{name}` has no meaning {when}; leave it out")


def printed(text: Callable[[click.Context], str]) -> dict[str, Any]:
    """Return arguments of an option that prints a text and does nothing else."""

    def callback(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
        if asked:
            print(text(context))
            context.exit()

    return {"is_flag": True, "is_eager": True, "expose_value": False, "callback": callback}


_ROWS = "Missing values: error, drop the rows, fill in the mean, or let the model handle them"
# Parameters that several commands have, called as the library calls them where it has them.
SHARED: dict[str, click.Parameter] = {
    "run": click.Argument(["run"], type=FILE, help="Run folder of curvae fit or curvae graph."),
    "data": click.Argument(
        ["data"],
        type=DATA,
        help="Table (.csv, .tsv, .parquet), cells (.h5ad, .h5 or a folder of 10x), matrix (.npy, .npz, .mtx), images "
        "(.npy or a folder), mnist, branching-diffusion or flat.",
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
    "exposure": option(
        "--exposure",
        help="Column with the exposure of each row, for counts (poisson, nb, zinb; of cells, the total of each).",
    ),
    "batch_key": option(
        "--batch-key", metavar="COLUMN", help="Covariate that is the batch; its values are categories."
    ),
    "layer": option("--layer", metavar="NAME", help="Layer of a cell file that holds the counts (its matrix X)."),
    "genes": option(
        "--genes",
        type=click.IntRange(min=1),
        help="Genes of a cell file to use, those that vary most (the highly variable ones; 2000 of 4000 or more).",
    ),
    "missing": option(
        "--missing", choices=("error", "drop", "mean", "model"), default="error", help=f"{_ROWS} (error)."
    ),
    "missing_as_run": option(
        "--missing", choices=("error", "drop", "mean", "model"), help=f"{_ROWS} (as the run did)."
    ),
    "missing_filled": option(
        "--missing",
        # "model" is refused later, with a command that works
        type=_ValueOrWord(click.Choice(("error", "drop", "mean")), ("model",)),
        metavar="NAME",
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
        help="Memory for data, such as 2GB; larger data stay on disk (a quarter of all memory).",
    ),
    "cache": option(
        "--cache", metavar="FOLDER", help="Folder to keep the copies of data that stay on disk in (they are removed)."
    ),
    "memory_of_sample": option(
        "--memory",
        metavar="SIZE",
        help="Memory for data, such as 2GB; of larger data a sample is used (a quarter of all memory).",
    ),
    "nodes": option("--nodes", type=DATA, help="Table of nodes: names, labels, features."),
    "features": option(
        "--features", multiple=True, help="Numeric column of --nodes to use as a feature; repeatable (all of them)."
    ),
    "no_features": option("--no-features", is_flag=True, help="Use no column of --nodes as a feature."),
    "features_file": option(
        "--features-file",
        type=DATA,
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


def setting_options(action: str, *kinds: type[Settings]) -> list[click.Option]:
    """Return the options of a command for the settings of some kinds of models, and `--set` for all others.

    Arguments:
        action: name of the command. A comparison has no settings that it chooses itself.
        kinds: whose settings; those of several are joined.
    """
    known = {name: one for kind in reversed(kinds) for name, one in described(kind).items()}
    rest = [
        SettingOption(kinds, name)
        for name, one in known.items()
        if name not in OPTIONS[action] and (one.compared or action != "compare")
    ]
    shared: Mapping[str, Any] = {**SHARED, "missing": SHARED["missing_features"]}
    reading = [shared[name] for name in READING.get(action, ())]
    return [*(SettingOption(kinds, name) for name in OPTIONS[action]), SetOption([*rest, *reading])]
