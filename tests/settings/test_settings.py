"""Settings: one place for names, defaults, help and checks, and what is made of it elsewhere."""

from __future__ import annotations

import ast
import inspect
import json
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from curvae import PoincareGraphVAE, PoincareVAE
from curvae.cli.commands import app
from curvae.cli.options import in_flags, shell_command
from curvae.errors import CurvaeError
from curvae.runs import Step
from curvae.settings import (
    ADDED,
    GraphSettings,
    LikelihoodSettings,
    RowSettings,
    SpaceSettings,
    TrainingSettings,
    described,
)
from curvae.training import Config, GraphConfig, storage
from curvae.training.storage import description_of, read_description, read_json, write_json
from make_fixtures import FOLDERS, GRAPHS
from paths import ROOT
from running import SMALL, config, curvae, refused, settings, write_table

KINDS = pytest.mark.parametrize("kind", [Config, GraphConfig])


# --- parts ----------------------------------------------------------------------------------------------------------


@KINDS
def test_every_setting_is_in_one_part(kind):
    nested = kind().to_json()
    names = [name for part in nested.values() for name in part]
    assert sorted(names) == sorted(field.name for field in fields(kind)) == sorted(kind().flat())
    assert list(nested) == list(kind.parts)
    assert {name: value for part in nested.values() for name, value in part.items()} == kind().flat()


@KINDS
def test_settings_survive_files_nested_and_flat(kind):
    config = kind(dim=3, hidden=(5, 6), beta=0.5, seed=7, posterior="wrapped", diagonal=True)
    for values in (config.to_json(), config.flat(), {**config.flat(), "space": config.to_json()["space"]}):
        assert kind.from_json(json.loads(json.dumps(values))) == config


def test_a_part_checks_itself():
    assert SpaceSettings(dim=3).dim == 3
    for make, says in (
        (lambda: SpaceSettings(curvature=-1), "curvature must be c ≥ 0"),
        (lambda: SpaceSettings(diagonal=True), 'needs posterior="wrapped"'),
        (lambda: TrainingSettings(patience=3, validation=0), "early stopping needs validation rows"),
        (lambda: TrainingSettings(epochs=10**7), "at most 1,000,000"),
        (lambda: LikelihoodSettings(likelihood="weibull"), "likelihood must be one of auto, bernoulli"),
        (lambda: Config(network="cnn"), "network must be one of mlp, conv; got 'cnn'"),
        (lambda: GraphConfig(epochs=None), "epochs must be a whole number"),
    ):
        with pytest.raises(CurvaeError, match=re.escape(says)):
            make()


def test_defaults_of_graphs_are_their_own():
    rows, graph = Config(), GraphConfig()
    differ = {name for name in vars(graph).keys() & vars(rows).keys() if vars(graph)[name] != vars(rows)[name]}
    steps = {"epochs", "learning_rate", "adam_beta2", "cooldown", "beta", "patience"}
    assert differ == {"posterior", "hidden", "prior_scale", *steps} and graph.prior_scale == 1.0
    assert (graph.posterior, graph.hidden, graph.epochs, graph.learning_rate) == ("wrapped", (32,), 400, 0.01)


def test_the_divergence_of_a_graph_weighs_by_the_dimension():
    weights = [GraphConfig(dim=dim).divergence_weight for dim in (1, 2, 5, 10, 16)]
    assert weights == [0.1, 0.05, 0.02, 0.01, 0.01]
    assert GraphConfig(space="h2,e3").divergence_weight == 0.02
    assert {GraphConfig(encoder="free").divergence_weight, GraphConfig(pairs="all").divergence_weight} == {0.01}
    assert (GraphConfig(beta=0.5).divergence_weight, Config(beta=2.0).divergence_weight) == (0.5, 2.0)
    with pytest.raises(CurvaeError, match="beta must be a number or auto; got 'heavy'"):
        GraphConfig(beta="heavy")
    with pytest.raises(CurvaeError, match="beta must be a number ≥ 0, got 'auto'"):
        Config(beta="auto")


@pytest.mark.parametrize(("estimator", "kind"), [(PoincareVAE, RowSettings), (PoincareGraphVAE, GraphSettings)])
def test_estimators_have_the_same_defaults(estimator, kind):
    known = {name: setting.default for name, setting in described(kind).items()} | {"n_components": kind().dim}
    for name, parameter in inspect.signature(estimator).parameters.items():
        if name in known:
            assert parameter.default == known[name], name


ADVANCED = pytest.mark.parametrize(
    ("estimator", "command", "count"), [(PoincareVAE, "fit", 24), (PoincareGraphVAE, "graph", 20)]
)


@ADVANCED
def test_every_setting_of_an_estimator_is_a_parameter_or_advanced(estimator, command, count):
    shown, further = list(inspect.signature(estimator).parameters), estimator._advanced_names()
    assert len(shown) <= count and not set(shown) & set(further)
    known = set(described(estimator._kind.settings)) - {"dim", "seed"}
    assert known <= {*shown, *further} and set(further) - known == set(estimator._own_settings)


@ADVANCED
def test_the_page_of_advanced_settings_lists_them_all(estimator, command, count):
    """Those that are not options, and below them those of the estimator alone."""
    page = (ROOT / "docs" / "settings-advanced.md").read_text(encoding="utf-8")
    (table,) = re.findall(rf"^## `curvae {command}`.*?^(\|.*?)\n\n", page, re.DOTALL | re.MULTILINE)
    known = described(estimator._kind.settings)
    rows = [
        f"| `{name}` | {known[name].text} | {'`advanced`' if name in estimator._advanced_names() else 'parameter'} |"
        for name in options(command)["advanced"].options
        if name in known
    ]
    assert table.splitlines()[2:] == rows, "\n".join(rows)
    assert all(f"`{name}`" in page for name in (*options(command)["advanced"].options, *estimator._own_settings))


@KINDS
def test_help_is_in_the_docstring(kind):
    for name, setting in described(kind).items():
        assert f"{name}: {setting.text}" in kind.__doc__


def test_settings_need_nothing_heavy():
    code = "import sys, curvae.settings, curvae.cli.options; print({'torch', 'numpy', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


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
    assert len(shown) - 1 <= most  # --help aside
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
        with pytest.raises(CurvaeError, match="curvature must be a number or learn; got 'flat'"):
            kind(curvature="flat")
    monkeypatch.chdir(tmp_path)
    write_table(Path("t.csv"))
    found = curvae("fit", "t.csv", "-o", "run", "--curvature", "learn", *SMALL)
    assert settings()["learn_curvature"] and settings()["curvature"] == 1.0
    assert curvae("fit", "t.csv", "-o", "run", "--resume", "--curvature", "learn").code == 0, found.err
    refused("fit", "t.csv", "-o", "run", "--resume", "--curvature", "0.5", says=["started with --curvature 1.0"])
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


def test_widths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_table(Path("t.csv"))
    refused("fit", "t.csv", "--hidden", "20;10", says=["--hidden: '20;10' is no list of widths such as 200 or 400,200"])
    refused("fit", "t.csv", "--hidden", "0", says=["--hidden must hold one or more positive widths"])


# --- messages -------------------------------------------------------------------------------------------------------

KNOWN = {
    "missing": ("--missing", None),
    "categorical": ("--categorical", None),
    "id": ("--id", None),
    "standardise": ("--standardise", "--no-standardise"),
    "tf32": ("--set tf32=", None),
    "cooldown": ("--set cooldown=", None),
    "batch_size": ("--batch-size", None),
    "output": ("-o", None),
    "hidden": ("--hidden", None),
    "samples": ("--samples", None),
    "device": ("--device", None),
}


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ('use missing="drop" or missing="mean"', "use --missing drop or --missing mean"),
        (
            'use categorical=["a b", "c"], or id="it\'s"',
            "use --categorical 'a b' --categorical c, or --id 'it'\"'\"'s'",
        ),
        ('id="a\\"b"; done', "--id 'a\"b'; done"),
        ("use standardise=False; or standardise=True", "use --no-standardise; or --standardise"),
        ("use tf32=False, tf32=True or cooldown=0.3", "use --set tf32=no, --set tf32=yes or --set cooldown=0.3"),
        ("cooldown must be 1; lower cooldown", "--set cooldown must be 1; lower --set cooldown"),
        ("lower batch_size=1e3, or 2", "lower --batch-size 1000.0, or 2"),
        ("choose another with output=…, say", "choose another with -o, say"),
        ("train longer, or widen hidden", "train longer, or widen --hidden"),
        ("lower hidden or samples; use device cpu", "lower --hidden or --samples; use --device cpu"),
        ("raise batch_size, or use hidden=3", "raise --batch-size, or use --hidden 3"),
        ("device must be auto; two hidden layers of samples", "--device must be auto; two hidden layers of samples"),
        ("'batch_size' of batch_size.csv in runs/batch_size-1", "'batch_size' of batch_size.csv in runs/batch_size-1"),
        # What is none of this command's parameters, or a part of other words.
        ('law="wrapped", n=3', 'law="wrapped", n=3'),
        ("column 'id=red', my.id=3, missing=red, valid=1", "column 'id=red', my.id=3, missing=red, valid=1"),
        ("missing=[not json]", "missing=[not json]"),
    ],
)
def test_messages_in_flags(message, shown):
    assert in_flags(message, KNOWN) == shown


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
    refused("fit", "n.csv", "-o", "run", says=["overwrite it with --force"])


def test_the_library_names_no_flags():
    """But in a command of `pip`."""
    for path in (ROOT / "src" / "curvae").rglob("*.py"):
        if path.parent.name in ("cli", "paper", "settings"):
            continue
        for line in re.findall(r"raise CurvaeError\((.*?)\)\n", path.read_text(encoding="utf-8"), re.DOTALL):
            said = re.sub(r"pip install[^;]*", "", line)
            assert not re.search(r"--[a-z]| -[no]\b", said), f"{path.name}: {line}"


def test_runs_know_no_options():
    """What to do next is data, which the command line turns into a command."""
    for path in (ROOT / "src" / "curvae" / "runs").glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
                assert not re.search(r"(^|[\s(])(--[a-z]|-[a-z]\b)", node.value), f"{path.name}: {node.value}"


# --- files of earlier versions --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("description", "added", "given"),
    [
        ({"kind": "vae"}, {"network": "conv", "jitter": 0.2}, {"jitter": 0.3}),
        ({"kind": "graph"}, {"pairs": "all", "hide": 0.1, "jitter": 0.2}, {"pairs": "balanced"}),
        ({"kind": "comparison", "source": {"name": "t.csv", "id": None}}, {"network": "conv", "pairs": "all"}, {}),
        ({"kind": "comparison", "source": {"name": "t.csv", "nodes": None}}, {"network": "conv", "pairs": "all"}, {}),
    ],
)
def test_settings_introduced_after_a_run_was_written_get_their_value_of_that_time(
    description, added, given, tmp_path, monkeypatch
):
    monkeypatch.setattr(storage, "ADDED", added)
    kind = GraphConfig if "graph" in description.values() or "nodes" in description.get("source", ()) else Config
    stored = kind(**given).to_json()
    for part in stored.values():
        for name in added.keys() - given.keys():
            part.pop(name, None)
    write_json(tmp_path / "config.json", {"format": 3, **description, "config": stored})
    found = kind.from_json(read_description(tmp_path)["config"])
    own = {name: value for name, value in added.items() if name in described(kind)}
    assert found == kind(**{**own, **given}) != kind(**given)


def test_a_run_that_names_all_settings_is_read_as_it_is(tmp_path):
    for kind, given in (("vae", Config(dim=3, jitter=0.1)), ("graph", GraphConfig(hide=0.1))):
        write_json(tmp_path / "config.json", description_of(given, kind))
        assert read_description(tmp_path, kind)["config"] == given.to_json()


@pytest.mark.parametrize(("folder", "kind"), [(FOLDERS[0], Config), (GRAPHS[0], GraphConfig)], ids=["rows", "graph"])
def test_a_new_setting_is_declared_for_runs_written_before_it(folder, kind):
    """A setting without an entry would take today's default when an old run is read or resumed."""
    stored = read_json(folder / "config.json")["config"]
    assert set(described(kind)) - {name for part in stored.values() for name in part} <= set(ADDED)
    assert set(ADDED) <= {*described(Config), *described(GraphConfig)}
