"""Settings of the paper's experiments: named in full, and those of the stored results."""

from __future__ import annotations

import ast
import json
from dataclasses import fields
from pathlib import Path

import pytest

import curvae.paper
from curvae.paper import presets
from curvae.paper.command import EXPERIMENTS
from curvae.paper.experiment import Plan
from curvae.training import Config, GraphConfig
from paths import ROOT

RESULTS = ROOT / "results" / "paper"


@pytest.mark.parametrize(
    ("preset", "kind"),
    [(presets.BRANCHING_DIFFUSION, Config), (presets.MNIST, Config), (presets.GRAPHS, GraphConfig)],
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
