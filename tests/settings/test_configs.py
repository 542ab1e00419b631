"""Settings: one place for names, defaults, help and checks, and what is made of them."""

from __future__ import annotations

import inspect
import json
import math
import re
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from curvae import PoincareGraphVAE, PoincareVAE
from curvae.cli.commands import app
from curvae.errors import CurvaeError
from curvae.estimators.poincare_vae import advanced_names
from curvae.models import VAE, Bernoulli, Gaussian, Layout, Posterior
from curvae.nn import Curvature, Gyroplane, HyperbolicFactor, Layers, Space, decoder, mlp
from curvae.settings import (
    ADDED,
    GraphSettings,
    RowSettings,
    described,
    resolve_defaults,
)
from curvae.training import Config, GraphConfig, fit, storage
from curvae.training.storage import description_of, read_description, read_json, write_json
from make_fixtures import FOLDERS, GRAPHS
from paths import ROOT
from running import refused, write_table

KINDS = pytest.mark.parametrize("kind", [Config, GraphConfig])


# --- parts ----------------------------------------------------------------------------------------------------------


@KINDS
def test_every_setting_is_in_one_part(kind):
    nested = kind().to_json()
    names = [name for part in nested.values() for name in part]
    assert sorted(names) == sorted(field.name for field in fields(kind)) == sorted(kind().flat())
    assert {part: list(values) for part, values in nested.items()} == kind.parts()
    assert {name: value for part in nested.values() for name, value in part.items()} == kind().flat()


@KINDS
def test_settings_survive_files_nested_and_flat(kind):
    config = kind(dim=3, hidden=(5, 6), beta=0.5, seed=7, posterior="wrapped", diagonal=True)
    for values in (config.to_json(), config.flat(), {**config.flat(), "space": config.to_json()["space"]}):
        assert kind.from_json(json.loads(json.dumps(values))) == config


def test_settings_check_themselves():
    assert Config(dim=3).dim == 3
    for make, says in (
        (lambda: Config(curvature=-1), "`curvature` must be c ≥ 0"),
        (lambda: Config(diagonal=True), 'needs `posterior="wrapped"`'),
        (lambda: Config(patience=3, validation=0), "early stopping needs validation rows"),
        (lambda: Config(epochs=10**7), "at most 1,000,000"),
        (lambda: Config(likelihood="weibull"), "`likelihood` must be one of auto, bernoulli"),
        (
            lambda: Config(likelihood="poisson", dispersion="gene-cell"),
            '`dispersion="gene-cell"` needs `likelihood="nb"` or "zinb", not poisson; drop it',
        ),
        (lambda: Config(network="cnn"), "`network` must be one of mlp, conv; got 'cnn'"),
        (lambda: GraphConfig(epochs=None), "`epochs` must be a whole number"),
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
    with pytest.raises(CurvaeError, match="`beta` must be a number or auto; got 'heavy'"):
        GraphConfig(beta="heavy")
    with pytest.raises(CurvaeError, match="`beta` must be a number ≥ 0, got 'auto'"):
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
    shown, further = list(inspect.signature(estimator).parameters), advanced_names(estimator)
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
        f"| `{name}` | {known[name].text} | {'`advanced`' if name in advanced_names(estimator) else 'parameter'} |"
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


def test_widths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_table(Path("t.csv"))
    refused("fit", "t.csv", "--hidden", "20;10", says=["--hidden: '20;10' is no list of widths such as 200 or 400,200"])
    refused("fit", "t.csv", "--hidden", "0", says=["--hidden must hold one or more positive widths"])


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


# --- values that are refused -----------------------------------------------------------------------------------------


def vae(law="wrapped", c=1.0, kind="gyroplane", dim=2, features=5, learn=None, scale=1.0, likelihood=None) -> VAE:
    both = learn == "both"
    space = Space([HyperbolicFactor(dim, c, both or learn == "curvature", law, False, scale, both or learn == "scale")])
    networks = mlp(features, 8), decoder(kind, space, (8,), features)
    return VAE(*networks, Posterior(8, space), likelihood or Gaussian(features))


def test_config_round_trip():
    config = Config(
        dim=5, curvature=0.3, posterior="wrapped", diagonal=True, hidden=(30, 20), epochs=7, patience=3, beta=0.5
    )
    text = json.dumps(config.to_json())
    assert Config.from_json(json.loads(text)) == config
    assert Config.from_json({}) == Config() and Config(hidden=[9]).hidden == (9,)
    assert resolve_defaults(Config(epochs=3), (9, 1), Layout(4)).epochs == 3
    assert resolve_defaults(Config(), (640, 64), Layout(4)).epochs == 300
    large = resolve_defaults(Config(), (10**7, 10**6), Layout(4))  # 10,000 steps, an eighth of a pass
    assert (large.epochs, large.epoch_steps) == (100, 100)


BAD = {
    "space": ["h0", "", "2", "x2", "h2:-1", "h2:x", "e2:1", "h2,", 3],
    "dim": [0, -1, 2.0, True, "2", None],
    "curvature": [-1.0, math.nan, math.inf, "1", True, None],
    "learn_curvature": ["yes", 1, None],
    "posterior": ["normal", None, 3],
    "diagonal": ["no", 0],
    "prior_scale": [0, -1.0, math.nan, math.inf, "1", False],
    "learn_prior_scale": ["yes", 1],
    "network": ["cnn", None],
    "decoder": ["linear", None],
    "encode_covariates": ["yes", 1, None],
    "dropout": [-0.1, 1.0, math.nan, "0.1", None],
    "hidden": [(), 200, "200", (0,), (2.5,), (True,), (30, -1), ["a"], {}],
    "likelihood": ["weibull", None],
    "dispersion": ["cell", None, 1],
    "learn_sizes": ["yes", None, 1],
    "standardise": ["no", 0, None],
    "objective": ["vae", None],
    "samples": [0, 1.5, None],
    "beta": [-0.1, math.nan, "1"],
    "neighbours": ["some", None, 3],
    "neighbours_weight": [0, -1.0, math.nan, "1"],
    "n_neighbours": [0, 1.5, None],
    "jitter": [-0.1, 1.0, math.nan, "0.1", None],
    "init": ["spectral", None, 1],
    "epochs": [0, 2.5, "7", False],
    "adam_beta2": [-0.1, 1.0, "0.9", None],
    "cooldown": [-0.1, 1.5, "1", None],
    "steps": [0, 2.5, "many", True],
    "epoch_steps": [0, 2.5, "7"],
    "batch_size": [0, 64.0, None],
    "weight_decay": [-0.1, math.nan, "1", None],
    "noise_rate": [0, -1.0, math.inf, "1", None],
    "learning_rate": [0, -1e-3, math.inf, None],
    "validation": [-0.1, 1.0, math.nan, "0.1"],
    "patience": [0, 1.5, True, "long"],
    "tf32": ["yes", 1, None],
    "seed": [-1, 2**32, 1.0, None, True],
}


def test_every_field_has_bad_values():
    assert set(BAD) == set(Config().flat())


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_config_refuses(name, value):
    for make in (lambda: Config(**{name: value}), lambda: Config.from_json({name: value})):
        with pytest.raises(CurvaeError) as error:
            make()
        message = str(error.value)
        assert "\n" not in message and name in message and (repr(value) in message or isinstance(value, list))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"learn_curvature": True, "learn_prior_scale": True}, '`curvature="learn"` and `learn_prior_scale`'),
        ({"learn_curvature": True, "curvature": 0}, "curvature must start above 0"),
        ({"diagonal": True}, 'posterior="wrapped"'),
        ({"patience": 3, "validation": 0}, "`validation` to 0.1, say, or drop `patience`"),
        ({"curvatures": 1.0, "dims": 2}, "unknown settings: curvatures, dims; did you mean curvature, dim?"),
        ({"space": {"dim": 3, "epochs": 3}}, "unknown settings: space.epochs; did you mean epochs?"),
        ({"space": "h2,e3", "dim": 4}, '`dim=4` contradicts `space="h2,e3"`'),
        ({"space": "h2:0.5", "curvature": 2.0}, '`curvature=2.0` contradicts `space="h2:0.5"`'),
        ({"space": "h2,h2:learn", "learn_prior_scale": True}, "only c·σ0² is identifiable"),
    ],
)
def test_config_refuses_combinations(settings, words):
    with pytest.raises(CurvaeError, match=re.escape(words)) as error:
        Config.from_json(settings)
    assert "\n" not in str(error.value)


def test_mistakes_are_named():
    other = Layers(Gyroplane(2, 5, Curvature(2.0)))
    with pytest.raises(ValueError, match="must share that of the latent space"):
        VAE(mlp(5, 8), other, Posterior(8, Space("h2")), Bernoulli(5))
    with pytest.raises(ValueError, match="at least 1, got 0"):
        vae("wrapped").iwae(torch.rand(3, 5), 0)


# --- defaults that depend on the data --------------------------------------------------------------------------------


SMALL = Config(
    hidden=(8,),
    epochs=4,
    batch_size=16,
    cooldown=0.0,
    noise_rate=1.0,
    weight_decay=0.0,
    patience=None,
    neighbours="off",
)


def rows(n=40, columns=3, seed=0):
    """Points around a line, so that there is something to learn."""
    random = np.random.default_rng(seed)
    return random.normal(size=(n, 1)) * np.arange(1, columns + 1) + 0.3 * random.normal(size=(n, columns))


def resolved(config, rows, validation):
    """Without neighbours, which have other defaults."""
    return resolve_defaults(replace(config, neighbours="off"), (rows, validation), Layout(4))


def test_epochs_follow_from_the_rows():
    sizes = 10, 1280, 128 * 100, 128 * 1000, 10**6, 10**9
    found = [resolved(Config(), n, 1) for n in sizes]
    # 1,500 steps; from 300 steps a pass on five passes; at most 10,000 steps.
    assert [one.epochs for one in found] == [1000, 150, 15, 50, 102, 100]
    assert [one.epoch_steps for one in found] == [None, None, None, 100, 100, 100]
    assert [one.patience for one in found] == [400, 40, 5, 50, 102, 100]
    # Asked for, they are passes.
    assert [resolved(Config(epochs=7), n, 1).epochs for n in sizes] == [7] * 6
    assert resolved(Config(epochs=7), 10**6, 1).epoch_steps is None
    assert resolved(Config(epochs=7, epoch_steps=50), 10**6, 1).epoch_steps == 50
    assert resolved(Config(steps=200), 1280, 1).epochs == 20
    # Files of before there were steps.
    before = Config(steps=None, batch_size=64)
    assert [resolved(before, n, 1).epochs for n in (10, 640, 64 * 125, 64 * 8000, 10**9)] == [1000, 800, 64, 20, 20]


def test_weight_decay_follows_from_the_rows():
    """Beyond 40 steps a pass, weights shrink as much in a pass as with 40."""
    for rows, decay in ((10, 1.0), (40 * 128, 1.0), (80 * 128, 0.5), (400 * 128, 0.1)):
        assert resolved(Config(), rows, 1).encoder_decay == pytest.approx(decay)
        assert resolved(Config(weight_decay=0.3), rows, 1).encoder_decay == 0.3
    assert resolved(Config(batch_size=64), 80 * 64, 1).encoder_decay == 0.5
    with pytest.raises(ValueError, match='"auto" needs the number of rows'):
        Config().encoder_decay  # noqa: B018


def test_maps_start_at_principal_components_where_neighbours_count():
    x = rows()
    kinds = {"off": "random", "near": "pca", "auto": "pca"}
    for settings, start in (
        *(({"neighbours": kind}, start) for kind, start in kinds.items()),
        ({"init": "pca"}, "pca"),
    ):
        assert fit(replace(SMALL, **settings), x).config.init == start
    assert fit(replace(SMALL, neighbours="near", init="random"), x).config.init == "random"


def test_patience_follows_from_the_rows():
    assert resolved(Config(), 640, 0).patience is None
    assert resolved(Config(patience=3), 640, 70).patience == 3
    for never in (None, "never"):
        assert Config(patience=never).patience is resolved(Config(patience=never), 640, 70).patience is None
    with pytest.raises(CurvaeError, match="`patience` must be a number or auto or never; got 'often'"):
        Config(patience="often")


def test_a_configuration_survives_json():
    config = Config(hidden=(5, 6), posterior="wrapped", diagonal=True, patience=3, curvature=0.25)
    assert Config.from_json(json.loads(json.dumps(config.to_json()))) == config
    with pytest.raises(CurvaeError, match="unknown settings: depth, width"):
        Config.from_json({"width": 3, "depth": 4})
