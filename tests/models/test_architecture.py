"""Which models can be stacked: one notion of architecture for all who ask, and parameters of their own."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch

from curvae.data import Arrays
from curvae.errors import CurvaeError
from curvae.models import Stack
from curvae.models.stack import architecture
from curvae.nn import Curvature, mlp
from curvae.training import Config, Scaling, build, random_split
from curvae.training.evaluate import _alike, likelihoods, likelihoods_many
from curvae.training.fitted import Fitted
from stacking import FEATURES, custom, normed

BASE = Config(hidden=(4,), likelihood="unit_gaussian", prior_scale=1.0)


def fitted(**changes):
    config = replace(BASE, **changes)
    model = build(config, FEATURES, (1, 3) if config.likelihood == "categorical" else ())
    return Fitted(config, model, Scaling.identity(FEATURES), "", random_split(20, 0.1), [])


# --- parameters of their own ----------------------------------------------------------------------------------------


def refused(given, says):
    before = [{name: t.clone() for name, t in model.state_dict().items()} for model in given]
    places = [[p.data_ptr() for p in model.parameters()] for model in given]
    with pytest.raises(CurvaeError, match=says) as caught:
        Stack(given)
    assert "\n" not in str(caught.value) and "deepcopy" in str(caught.value)
    assert places == [[p.data_ptr() for p in model.parameters()] for model in given]
    for model, state in zip(given, before, strict=True):
        assert all(torch.equal(t, state[name]) for name, t in model.state_dict().items())


def test_a_model_is_in_a_stack_once():
    model, other = build(BASE, FEATURES), build(replace(BASE, seed=1), FEATURES)
    refused([model, model], "models 1 and 2 of a stack share the parameter encoder")
    refused([other, model, model], "models 2 and 3 of a stack share")
    refused([model, other, model], "models 1 and 3 of a stack share")
    assert len(Stack([model, deepcopy(model)])) == 2


def test_learned_curvatures_are_not_shared():
    curvature = Curvature(0.6, learnable=True)
    given = [custom(lambda: mlp(FEATURES, 6), curvature, seed) for seed in range(2)]
    refused(given, r"share the parameter \S*log_c")
    fixed = Curvature(0.6)
    assert len(Stack([custom(lambda: mlp(FEATURES, 6), fixed, seed) for seed in range(2)])) == 2


def test_no_layer_is_shared():
    encoder = mlp(FEATURES, 6)
    refused([custom(lambda: encoder, seed=seed) for seed in range(2)], "share the parameter encoder")
    # A single tensor of a layer, under other names.
    a, b = (custom(normed(lambda: torch.nn.LayerNorm(6)), seed=seed) for seed in range(2))
    b.encoder[2].bias = a.encoder[2].bias
    refused([a, b], "share the parameter encoder.2.bias")


# --- one notion of architecture -------------------------------------------------------------------------------------

# Of equal shapes, or of other ones; none can be stacked with another.
KINDS = (
    {},
    {"likelihood": "bernoulli"},
    {"likelihood": "categorical"},
    {"likelihood": "gaussian"},
    {"decoder": "mlp"},
    {"decoder": "log_mlp"},
    {"decoder": "mobius"},
    {"posterior": "wrapped"},
    {"hidden": (5,)},
    {"decoder": "log_mlp", "curvature": 0.0},
)


def test_what_has_one_architecture_can_be_stacked_and_nothing_else():
    models = [build(replace(BASE, **change), FEATURES) for change in KINDS]
    for i, a in enumerate(models):
        for j, b in enumerate(models):
            assert (architecture(a) == architecture(b)) == (i == j)
            if i != j:
                with pytest.raises(CurvaeError, match="only models of one architecture"):
                    Stack([a, b])
        alike = build(replace(BASE, **KINDS[i], seed=3, prior_scale=2.0), FEATURES)
        assert architecture(a) == architecture(alike) and len(Stack([deepcopy(a), alike])) == 2


def test_shapes_of_buffers_and_dtypes_are_part_of_it():
    plain = custom(lambda: mlp(FEATURES, 6))
    a, b = deepcopy(plain), deepcopy(plain)
    a.encoder.register_buffer("mask", torch.ones(2))
    b.encoder.register_buffer("mask", torch.ones(3))
    assert architecture(a) != architecture(b) and architecture(a) != architecture(plain)
    assert architecture(plain) != architecture(deepcopy(plain).float())


def test_likelihoods_are_grouped_by_what_can_be_stacked():
    """As on CUDA, where a group is evaluated as a stack."""
    given = [fitted(**change, seed=seed) for seed in range(2) for change in KINDS]
    x = [Arrays(np.zeros((6, FEATURES)))] * len(given)
    found = _alike(given, x)
    assert found == [[i, i + len(KINDS)] for i in range(len(KINDS))]
    for places in found:
        assert len(Stack([given[i].model for i in places])) == 2
    # Curvatures and prior scales may differ, numbers of rows may not.
    mixed = [fitted(curvature=c, prior_scale=s) for c, s in ((0.5, 1.0), (2.0, 0.7), (0.5, 1.0), (0.0, 1.0))]
    sizes = [Arrays(np.zeros((n, FEATURES))) for n in (6, 6, 7, 6)]
    assert _alike(mixed, sizes) == [[0, 1, 3], [2]]
    assert _alike([], []) == []


def test_likelihoods_of_a_mixed_list_are_those_of_each():
    given = [fitted(), fitted(likelihood="bernoulli"), fitted(decoder="mlp"), fitted()]
    x = [np.random.default_rng(i).integers(2, size=(5, FEATURES)).astype(float) for i in range(4)]
    for one, rows, found in zip(given, x, likelihoods_many(given, x, 20), strict=True):
        assert np.array_equal(found.log_prob, likelihoods(one, rows, 20).log_prob)
