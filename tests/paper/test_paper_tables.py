"""The paper's tables: settings as printed."""

from __future__ import annotations

import ast
import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import curvae.paper
from curvae.paper import EXPERIMENTS, paper_tables
from curvae.paper.experiment import Plan
from curvae.paper.figures import GALLERY
from curvae.paper.paper_tables import ABLATION, SEARCHED, TABLE1, TABLE2, TABLE3
from curvae.training import Config, GraphConfig
from experiments import TINY, configs_of
from paths import ROOT

# --- the paper's settings -------------------------------------------------------------------------------------------


def test_table_1_is_the_paper_s():
    shards = TABLE1.shards(Plan())
    found = configs_of(shards)
    kinds = ("flat", "limit", "wrapped", "riemannian")
    assert [s.name for s in shards] == [*(f"{kind}-{block}" for block in (1, 2, 3) for kind in kinds), "baselines"]
    assert len(found) == len(set(found)) == 60 * 2 * (2 + 2 * 5)
    assert {c.curvature for c in found} == {0.0, 0.1, 0.3, 0.8, 1.0, 1.2} and {c.prior_scale for c in found} == {
        1.0,
        1.7,
    }
    for config in found:
        assert (config.dim, config.hidden, config.likelihood) == (2, (200,), "unit_gaussian")
        assert (config.epochs, config.batch_size, config.learning_rate, config.samples) == (1000, 64, 1e-3, 1)
        assert (config.objective, config.beta, config.validation, config.patience) == ("elbo", 1.0, 0.0, None)
        assert not config.diagonal
    for i, shard in enumerate(shards[:-1]):
        own = configs_of([shard])
        assert {c.decoder for c in own} == {"log_mlp" if shard.name.startswith("flat") else "gyroplane"}
        assert {c.seed for c in own} == set(range(20 * (i // 4), 20 * (i // 4) + 20)) and shard.settings[
            "samples"
        ] == 5000
    own = paper_tables.tree_data(3)
    assert own.x.shape == (635, 50) and len(own.split.test) == 190 and len(own.split.train) == 445
    scaled = (own.x - own.scaling.shift) / own.scaling.scale
    np.testing.assert_allclose([np.abs(scaled.mean(0)).max(), np.abs(scaled.std(0) - 1).max()], 0, atol=1e-9)
    assert list(paper_tables.TREE_PRINTED[1.0].values()) == [57.1, 57.1, 57.2, 56.9, 56.7, 56.6]
    assert list(paper_tables.TREE_PRINTED[1.7].values()) == [57.0, 56.8, 56.6, 55.9, 55.7, 55.6]


def test_table_2_is_the_paper_s():
    found = configs_of(TABLE2.shards(Plan()))
    assert len(found) == len(set(found)) == 360 + 40
    cells = {(c.posterior if c.curvature else c.decoder, c.curvature, c.dim) for c in found}
    laws = {("log_mlp", 0.0), ("gyroplane", 0.0)} | {
        (law, c) for law in ("wrapped", "riemannian") for c in (0.1, 0.2, 0.7, 1.4)
    }
    assert cells == {(*law, d) for law in laws for d in (2, 5, 10, 20)}
    for config in found:
        assert (config.hidden, config.likelihood, config.prior_scale) == ((600,), "bernoulli", 1.0)
        assert (config.epochs, config.batch_size, config.learning_rate, config.samples) == (80, 128, 5e-4, 1)
        assert (config.objective, config.beta, config.validation, config.patience) == ("elbo", 1.0, 0.0, None)
    for shard in TABLE2.shards(Plan()):
        assert shard.settings["samples"] == 5000
        assert shard.settings["data"] == {"name": "MNIST", "train": 60000, "test": 10000}
    printed = """144.5 114.7 100.2 97.6  143.9 115.5 100.2 97.2  144.2 115.3 100.0 97.1  143.8 115.1 100.2 97.5
        144.0 114.7 100.7 98.0  143.7 115.2 99.9 97.0  143.8 114.7 99.7 97.4  143.1 114.1 101.2 *  142.5 115.5 * *"""
    rows = [cell for row in paper_tables.DIGIT_PRINTED.values() for cell in row]
    assert ["*" if c is None else f"{c[0]:.1f}" for c in rows] == printed.split()
    halves = "4111 5311 5311 6311 6111 6211 4311 422* 43**"
    assert "".join("*" if c is None else f"{10 * c[1]:.0f}" for c in rows) == halves.replace(" ", "")


def test_table_3_and_the_ablation_are_the_paper_s():
    two = [c for c in configs_of(TABLE2.shards(Plan())) if c.dim == 2]
    assert configs_of(TABLE3.shards(Plan())) == two, "the same models, so that their cache serves"
    assert paper_tables.CLASSIFIER == {"trainings": 5, "epochs": 5, "batch_size": 64, "learning_rate": 1e-3}
    assert np.mean(paper_tables.ACCURACY_PRINTED["N-VAE"]) == pytest.approx(73.6) and np.mean(
        paper_tables.ACCURACY_PRINTED["P-VAE"]
    ) == pytest.approx(75.6)
    found = configs_of(ABLATION.shards(Plan()))
    assert {(c.decoder, c.dim) for c in found} == {
        (name, d) for name in ("mlp", "log_mlp", "gyroplane", "mobius") for d in (2, 5, 10, 20)
    }
    assert {(c.posterior, c.curvature, c.prior_scale, c.epochs) for c in found} == {("wrapped", 1.0, 1.0, 80)}
    assert {c.curvature for c in configs_of(GALLERY.shards(Plan())[1:2])} == {1.2, 0.3, 0.1, 1.0, 0.0}


def test_both_families_of_the_search_get_as_much():
    found = {shard.name: [Config.from_json(c) for c in shard.settings["tried"]] for shard in SEARCHED.shards(Plan())}
    assert list(found) == [f"{data}-{one}" for data in ("tree", "d2", "d5", "d10", "d20") for one in ("flat", "curved")]
    for name, tried in found.items():
        tree = name.startswith("tree")
        assert len(set(tried)) == 18
        assert {(c.hidden, c.epochs) for c in tried} == {((200,), 1000) if tree else ((600,), 80)}
        assert all((c.curvature == 0) == name.endswith("flat") for c in tried)


def test_effects_are_those_of_the_settings_that_they_name():
    """Scores made of known effects, from the settings themselves."""
    cells = []
    for name, tried in (
        ("N-VAE", paper_tables.flat_settings(TINY)),
        ("P-VAE", paper_tables.curved_settings(TINY, (0.3, 1.0), 0.5)),
    ):
        scores = [
            100 * c.learning_rate
            + 2 * (c.objective == "iwae")
            + 3 * (c.decoder == "gyroplane_scalar")
            + 5 * (c.posterior == "wrapped")
            + 7 * c.learn_curvature
            + 11 * (c.curvature == 1.0)
            + 13 * (c.decoder == "gyroplane")
            for c in tried
        ]
        cells.append({"data": "d2", "model": name, "tried": [{"validation_nll": score} for score in scores]})
    found = {name: float(text.replace("−", "-")) for name, text in paper_tables.search_effects(cells).rows}
    assert found == {
        "N-VAE: gyroplanes in place of an MLP": 13.0,
        "N-VAE: scalar offsets in place of an MLP": 3.0,
        "N-VAE: IWAE in place of the ELBO": 2.0,
        "N-VAE: rate 0.002 in place of rate 0.001": 0.1,
        "N-VAE: rate 0.004 in place of rate 0.001": 0.3,
        "P-VAE: Riemannian with scalar offsets in place of Riemannian": -10.0,
        "P-VAE: wrapped, diagonal, scalar offsets in place of Riemannian": -5.0,
        "P-VAE: rate 0.002 in place of rate 0.001": 0.1,
        "P-VAE: the larger c in place of the smaller c": 11.0,
        "P-VAE: a learned c in place of the smaller c": 7.0,
    }


def test_data_of_the_search_leave_the_test_rows_alone():
    trial, whole = paper_tables.tree_trial(4), paper_tables.tree_data(4)
    rows = np.concatenate([trial.split.train, trial.split.test])
    assert sorted(rows) == sorted(whole.split.train) and len(trial.split.test) == 89
    np.testing.assert_array_equal(trial.test, whole.x[trial.split.test])


# --- settings of the tables ------------------------------------------------------------------------------------------


RESULTS = ROOT / "results" / "paper"


@pytest.mark.parametrize(
    ("preset", "kind"),
    [
        (paper_tables.BRANCHING_DIFFUSION, Config),
        (paper_tables.MNIST, Config),
        (paper_tables.LINK_SETTINGS, GraphConfig),
    ],
)
def test_a_preset_names_every_setting(preset, kind):
    assert list(preset) == [field.name for field in fields(kind)], "name the new setting, with the value it had"
    assert kind.from_json(preset).flat() == preset


def test_no_experiment_builds_settings_of_its_own():
    """A call of Config that leaves something out would take it from the defaults."""
    for path in Path(curvae.paper.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in ("Config", "GraphConfig"), f"{path.name}:{node.lineno}"


def includes(found, stored):
    """Whether all that is stored is found; new settings may be found besides."""
    if isinstance(stored, dict):
        return stored.keys() <= found.keys() and all(includes(found[key], value) for key, value in stored.items())
    if isinstance(stored, list):
        return len(found) == len(stored) and all(map(includes, found, stored))
    return found == stored


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_stored_results_have_these_settings(name):
    stored = json.loads((RESULTS / f"{name}.json").read_text())["shards"]
    found = {shard.name: json.loads(json.dumps(shard.settings)) for shard in EXPERIMENTS[name].shards(Plan())}
    assert found.keys() == stored.keys()
    for shard, settings in found.items():
        assert includes(settings, stored[shard]["settings"]), shard
