"""Options and help: every setting is an option, help fits 80 columns, shells complete words, messages name flags."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from pathlib import Path
from unittest import mock

import pytest

from curvae import __version__
from curvae.cli import options as flags
from curvae.cli.commands import app
from curvae.cli.options import SetOption, error_text, in_flags, option, shell_command
from curvae.errors import CurvaeError
from curvae.runs import Step
from curvae.settings import GraphSettings, RowSettings, described
from curvae.training import Config, GraphConfig
from paths import ROOT
from running import SMALL, config, curvae, refused, settings, write_table

COMMANDS = [(), *((name,) for name in app.commands)]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words) or "curvae")
def test_every_help_has_an_example_and_fits_80_columns(words):
    found = curvae(*words, "--help")
    assert found.code == 0 and max(map(len, found.out.splitlines())) <= 80
    example = re.search(rf"Example: curvae {' '.join(words)}.*", found.out)
    assert example and not found.out.endswith("...\n")
    assert "\x1b" not in found.out


def test_examples_name_options_that_exist():
    for name, command in app.commands.items():
        typed = command.epilog.partition("Example: ")[2].split()
        known = {flag for one in command.params for flag in (*one.opts, *one.secondary_opts)}
        assert typed[:2] == ["curvae", name] and {word for word in typed if word.startswith("-")} <= known


def test_examples_with_a_trained_run_work_as_printed():
    with_gap = [None, *range(39)]
    write_table(Path("cells.csv"), type=["B", "T"] * 20, barcode=[f"cell{i}" for i in range(40)], d=with_gap)
    write_table(Path("new-cells.csv"), 5, seed=1, barcode=list("vwxyz"), d=20)
    fit = ("fit", "cells.csv", "--label", "type", "--id", "barcode", "--missing", "model", "-o", "runs/cells-1")
    assert curvae(*fit, *SMALL).code == 0
    for name in ("embed", "view", "evaluate", "sample", "explain", "impute"):
        typed = app.commands[name].epilog.partition("Example: curvae ")[2].split()
        found = curvae(*typed, *(("--samples", "5") if name in ("evaluate", "impute") else ()))
        assert found.code == 0, found.err


def test_the_version():
    assert curvae("--version").out == f"{__version__}\n"


def completed(monkeypatch, *words):
    """Words that bash is offered in place of the last of these."""
    monkeypatch.setenv("_CURVAE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", " ".join(("curvae", *words)))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    found = curvae()
    assert found.code == 0 and not found.err
    return [tuple(line.split(",")) for line in found.out.splitlines()]


def test_a_shell_completes_commands_options_values_and_files(monkeypatch):
    assert completed(monkeypatch, "ex") == [("plain", "explain"), ("plain", "export")]
    assert ("plain", "--likelihood") in completed(monkeypatch, "fit", "--li")
    assert completed(monkeypatch, "fit", "--likelihood", "ga") == [("plain", "gaussian")]
    assert completed(monkeypatch, "fit", "ce") == [("file", "ce")]
    assert completed(monkeypatch, "embed", "ru") == [("file", "ru")]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_what_a_shell_must_be_told(shell):
    found = curvae("--completion", shell)
    assert found.code == 0 and f"_CURVAE_COMPLETE={shell}_complete" in found.out
    if shell == "bash":
        Path("script").write_text(found.out)
        assert subprocess.run(["bash", "-n", "script"], check=False).returncode == 0
    refused("--completion", "bsh", says=["--completion", "did you mean bash?"])


def test_commands_are_quoted_as_windows_takes_them():
    with mock.patch.object(flags.os, "name", "nt"):
        assert flags._typed_line(["curvae", "fit", "my cells.csv"]) == 'curvae fit "my cells.csv"'
    assert flags._typed_line(["curvae", "fit", "my cells.csv"]) == "curvae fit 'my cells.csv'"


# --- settings as options ---------------------------------------------------------------------------------------------


# --- options --------------------------------------------------------------------------------------------------------


def options(command):
    params = app.commands[command].params
    return {param.name: param for param in params if param.param_type_name == "option"}


@pytest.mark.parametrize(
    ("command", "kinds", "without", "most"),
    [
        ("fit", [RowSettings], set(), 30),
        ("graph", [GraphSettings], set(), 26),
        (
            "compare",
            [RowSettings, GraphSettings],
            {"curvature", "learn_curvature", "learn_prior_scale", "validation"},
            36,
        ),
    ],
)
def test_every_setting_is_an_option_or_set(command, kinds, without, most):
    shown = options(command)
    about_data = {"cache", "batch_key", "layer", "genes"}
    assert len(shown.keys() - {"help", *about_data}) <= most  # of what is asked of a model
    further = shown["advanced"].options
    assert not shown.keys() & further.keys()
    found = shown | further
    known = {name: setting for kind in reversed(kinds) for name, setting in described(kind).items()}
    assert known.keys() - found.keys() == without
    for name in known.keys() - without:
        setting, option = known[name], found[name]
        own = [f"--{name.replace('_', '-')}", *setting.flags]
        assert option.opts == (own if name in shown else [f"--set {name}="]) and option.default is None
        assert option.help.startswith(setting.help.split(",")[0].split(" of ")[0].removesuffix(".")), option.help
        assert setting.default_text in option.help
        assert bool(option.secondary_opts) == (setting.default is True and name in shown)


def test_set_gives_what_has_no_option(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words, says in (
        (("--cooldown", "0.3"), "there is no option --cooldown; use --set cooldown=…\n"),
        (("--no-tf32",), "there is no option --no-tf32; use --set tf32=…\n"),
        (("--set", "coldown=0.3"), "there is no setting coldown; did you mean cooldown?\n"),
        (("--set", "nothing=1"), "there is no setting nothing; curvae fit --help"),
        (("--set", "cooldown"), "--set takes NAME=VALUE, such as cooldown=…; got cooldown"),
        (("--set", "cooldown=x"), "--set cooldown: 'x' is not a valid float"),
        (("--set", "cooldown=2"), "--set cooldown must be a share of the steps, from 0 to 1; got 2"),
        (("--set", "objective=elbow"), "--set objective: 'elbow' is not one of 'elbo', 'iwae'"),
        (("--set", "diagonal=perhaps"), "--set diagonal: 'perhaps' is not a valid boolean"),
        (("--set", "epochs=3"), "epochs has an option of its own, --epochs"),
    ):
        assert f"curvae: {says}" in refused("fit", "t.csv", *words)
    listed = curvae("graph", "--set", "list").out.splitlines()
    assert [line.partition(":")[0] for line in listed] == list(options("graph")["advanced"].options)


def test_a_graph_is_read_as_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("g.csv").write_text("a,b\nb,c\nc,d\nd,a\n", encoding="utf-8")
    Path("n.csv").write_text("node,age\na,1\nb,\nc,3\nd,4\n", encoding="utf-8")
    words = ("graph", "g.csv", "--nodes", "n.csv")
    refused(*words, "--features", "age", says=["--set missing=mean"])
    quick = ("--splits", "0", "--epochs", "1", "-o", "run", "--set", "hidden=4,3", "--set", "missing=mean")
    found = curvae(*words, *quick, "--set", "header=no")
    assert found.code == 0, found.err
    stored = config()
    assert stored["source"]["missing"] == "mean" and stored["source"]["header"] is False
    assert settings()["hidden"] == [4, 3] and stored["asked"] == ["nodes", "missing", "header", "epochs", "hidden"]
    step = Step("graph", ("g.csv",), {"missing": "mean", "header": False, "hidden": (4, 3), "weighted": True})
    assert shell_command(step) == ("curvae graph g.csv --set missing=mean --set header=no --set hidden=4,3 --weighted")
    refused("compare", "t.csv", "--set", "isolated=yes", says=["--set isolated has no meaning without --graph"])


def test_a_curvature_to_learn(tmp_path, monkeypatch):
    for kind in (Config, GraphConfig):
        assert kind(curvature="learn") == kind(learn_curvature=True) == kind(space="h2:learn")
        with pytest.raises(CurvaeError, match="`curvature` must be a number or learn; got 'flat'"):
            kind(curvature="flat")
    monkeypatch.chdir(tmp_path)
    write_table(Path("t.csv"))
    found = curvae("fit", "t.csv", "-o", "run", "--curvature", "learn", *SMALL)
    assert settings()["learn_curvature"] and settings()["curvature"] == 1.0
    assert curvae("fit", "t.csv", "-o", "run", "--resume", "--curvature", "learn").code == 0, found.err
    refused("fit", "t.csv", "-o", "run", "--resume", "--curvature", "0.5", says=["started with --curvature 1, not"])
    write_table(Path("u.csv"))
    assert curvae("fit", "u.csv", "-o", "fixed", "-q", *SMALL).code == 0
    refused("fit", "u.csv", "-o", "fixed", "--resume", "--curvature", "learn", says=["learn_curvature"])


def test_help_is_readable_in_80_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for command in ("fit", "graph", "compare"):
        shown = curvae(command, "--help").out
        assert max(map(len, shown.splitlines())) <= 80
        assert "Example: curvae" in shown and shown.count("\nOptions:\n") == 1
        written = [name for option in app.commands[command].params for name in (*option.opts, *option.secondary_opts)]
        assert set(written) <= set(re.findall(r"[\w-]+", shown) + ["data"])


def test_what_had_no_option_reaches_the_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_table(Path("t.csv"))
    words = (
        "--set",
        "objective=iwae",
        "--set",
        "samples=3",
        "--set",
        "standardise=no",
        "--network",
        "mlp",
        "--seed",
        "9",
    )
    found = curvae("fit", "t.csv", "-o", "run", *words, *SMALL)
    assert found.code == 0, found.err
    stored = settings()
    assert (stored["objective"], stored["samples"], stored["standardise"], stored["seed"]) == ("iwae", 3, False, 9)
    # The next command takes them too.
    (line,) = [line for line in found.out.splitlines() if line.startswith("next: ")]
    following = shlex.split(line, comments=True)[1:]
    assert {"objective=iwae", "samples=3", "standardise=no"} <= set(following)
    assert {word for word in following if word.startswith("--")} <= {
        name for option in options("compare").values() for name in (*option.opts, *option.secondary_opts)
    }


# --- messages -------------------------------------------------------------------------------------------------------

KNOWN = {
    one.name: one
    for one in (
        *(
            option(f"--{name}")
            for name in ("missing", "categorical", "id", "batch-size", "hidden", "samples", "device")
        ),
        option("--standardise/--no-standardise"),
        option("--weighted", is_flag=True),
        option("-o", "--output"),
        *SetOption([option("--tf32", is_flag=True), option("--cooldown")]).options.values(),
    )
}


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ('use `missing="drop"` or `missing="mean"`', "use --missing drop or --missing mean"),
        (
            'use `categorical=["a b", "c"]`, or `id="it\'s"`',
            "use --categorical 'a b' --categorical c, or --id 'it'\"'\"'s'",
        ),
        ('`id="a\\"b"`; done', "--id 'a\"b'; done"),
        ("use `standardise=False`; or `standardise=True`", "use --no-standardise; or --standardise"),
        ("use `tf32=False`, `tf32=True` or `cooldown=0.3`", "use --set tf32=no, --set tf32=yes or --set cooldown=0.3"),
        ("`cooldown` must be 1; lower `cooldown`", "--set cooldown must be 1; lower --set cooldown"),
        ("lower `batch_size=1e3`, or 2", "lower --batch-size 1000, or 2"),
        ("choose another with `output=…`, say", "choose another with -o, say"),
        ("`missing` must be a word, not `id`; `hidden` layers", "--missing must be a word, not --id; --hidden layers"),
        (
            'use `missing="drop"`, `tf32=False`, `weighted=True` or `output=…`',
            "use --missing drop, --set tf32=no, --weighted or -o",
        ),
        (
            "leave out `weighted=False`; `hidden=(64, 32)`, `cooldown`",
            "leave out no --weighted; --hidden 64,32, --set cooldown",
        ),
        ('run/config.json: `categorical=["a b", "c"]` is', "run/config.json: --categorical 'a b' --categorical c is"),
        ("as in `fit`; `id=x y`; `my {1}.csv`", "as in fit; id=x y; `my {1}.csv`"),
        # What is not in backquotes is no parameter.
        ("'batch_size' of batch_size.csv in runs/batch_size-1", "'batch_size' of batch_size.csv in runs/batch_size-1"),
        ('missing="drop" in two hidden layers of samples', 'missing="drop" in two hidden layers of samples'),
        # Nor is what this command does not have.
        ('`law="wrapped"`, `n=3`', 'law="wrapped", n=3'),
    ],
)
def test_messages_in_flags(message, shown):
    assert in_flags(message, KNOWN) == shown


@pytest.mark.parametrize(
    ("message", "parameter", "shown"),
    [
        ("there are gaps; fill them in", "missing", "there are gaps; fill them in (--missing)"),
        ("it is too far", "cooldown", "it is too far (--set cooldown)"),
        ("there are gaps", None, "there are gaps"),
        ("there are gaps", "n_init", "there are gaps"),  # no option of this command
        ('use `missing="drop"`', "missing", "use --missing drop"),
        ('use `missing="drop"`', "id", "use --missing drop"),
        ("as in `fit`", "id", "as in fit"),
    ],
)
def test_an_error_that_names_no_parameter_is_shown_with_its_option(message, parameter, shown):
    assert error_text(CurvaeError(message, parameter=parameter), KNOWN) == shown


def test_commands_show_the_option_of_an_error(monkeypatch):
    def cite():
        raise CurvaeError("nothing can be cited", parameter="bibtex")

    monkeypatch.setattr("curvae.report.citation", cite)
    assert refused("cite") == "curvae: nothing can be cited (--bibtex)\n"


def test_usage_errors_say_what_is_wrong_and_what_is_near(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words, says in (
        (("fit", "t.csv", "--epoch", "3"), "curvae: there is no option --epoch; did you mean --epochs?\n"),
        (("fti", "t.csv"), "curvae: No such command 'fti'; did you mean fit?\n"),
        (("fit", "t.csv", "--epochs", "x"), "curvae: --epochs: 'x' is not a valid integer; curvae fit --help"),
        (("sample", "run", "--seed", "-1"), "curvae: --seed must be a whole number from 0 to 2³²−1, got -1; "),
        (("graph", "t.csv", "--splits", "-1"), "curvae: --splits: -1 is not in the range x>=0; "),
    ):
        assert says in refused(*words)
    assert "--hidden must hold one or more positive widths, such as 200; got" in refused("fit", "t", "--hidden", "-3")


def test_errors_and_warnings_name_flags(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("a,b,two words\n1,,x\n2,3,y\n2,4,z\n", encoding="utf-8")
    refused("fit", "t.csv", says=["\ncurvae fit t.csv --id 'two words' --missing model\n"])
    says = [
        "run this, or with --missing mean or --missing drop:\ncurvae fit t.csv --label 'two words' --missing model\n"
    ]
    refused("fit", "t.csv", "--label", "two words", says=says)
    refused("fit", "t.csv", "--label", "c", says=["no column 'c' for --label"])
    refused("fit", "t.csv", "--set", "diagonal=yes", says=["needs --set posterior=wrapped"])
    # An option that only other commands have.
    Path("g.graphml").write_text("<graphml/>", encoding="utf-8")
    refused("fit", "g.graphml", says=["curvae graph", "--graph with curvae compare"])
    write_table(Path("n.csv"), nr=range(40))
    found = curvae("fit", "n.csv", "-o", "run", *SMALL)
    assert "looks like an identifier" in found.err and "use --id nr if it is one" in found.err
    assert "use --id nr if it is one" in Path("run/report.html").read_text(encoding="utf-8")
    refused("fit", "n.csv", "-o", "run", says=["overwrite it with --force"])
    Path("e.edges").write_text("a b 1\nb c 2\nc d 1\nd a 3\n", encoding="utf-8")
    assert curvae("graph", "e.edges", "--splits=0", "--epochs=1", "--set=hidden=4", "-o", "g", "-q").code == 0
    assert "use --weighted to read weights" in Path("g/report.html").read_text(encoding="utf-8")


def test_the_library_names_no_flags():
    """But in a command of `pip`."""
    for path in (ROOT / "src" / "curvae").rglob("*.py"):
        if path.parent.name in ("cli", "paper", "settings"):
            continue
        for line in re.findall(r"raise CurvaeError\((.*?)\)\n", path.read_text(encoding="utf-8"), re.DOTALL):
            said = re.sub(r"pip install[^;]*", "", line)
            assert not re.search(r"--[a-z]| -[no]\b", said), f"{path.name}: {line}"


def texts(path):
    """The texts in a module, without docstrings."""
    prose = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):  # what holds a text comes before it
        if isinstance(node, ast.Expr):
            prose.add(id(node.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value


def test_messages_have_parameters_in_backquotes():
    """Those with a value: the command line shows only what is in backquotes as it is typed."""
    options = {one.name for command in app.commands.values() for one in command.params}
    names = "|".join(sorted(options | {*described(RowSettings), *described(GraphSettings)}))
    bare = re.compile(rf"""(?<![\w"'./`-])(?<!, )(?:{names})=(?:"|…|True|False|\d)""")
    for path in (ROOT / "src" / "curvae").rglob("*.py"):
        for text in texts(path):
            assert path.parent.name == "cli" or "=" not in text or not bare.search(text), f"{path.name}: {text}"


def test_runs_know_no_options():
    """What to do next is data, which the command line turns into a command."""
    for path in (ROOT / "src" / "curvae" / "runs").glob("*.py"):
        for text in texts(path):
            assert not re.search(r"(^|[\s(])(--[a-z]|-[a-z]\b)", text), f"{path.name}: {text}"
