"""Units that are left out in training: how many, when, in which layers, and by default."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from curvae.models import Batch, Layout
from curvae.nn import Conditioned, mlp
from curvae.nn.networks import DroppingReLU, drop_units
from curvae.settings import resolve_defaults
from curvae.training import Config, build
from curvae.training.captured import Captured
from curvae.training.engine import BatchEngine
from curvae.training.rows_problem import plan_rows

X = np.random.default_rng(0).normal(size=(60, 5))


@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_a_share_of_the_units_is_left_out_and_the_mean_is_kept(rate):
    x = torch.rand(400, 300, dtype=torch.float64) + 1.0
    kept = DroppingReLU(rate, 1)(x)
    left_out = kept == 0
    assert stats.binomtest(int(left_out.sum()), x.numel(), rate).pvalue > 1e-3
    torch.testing.assert_close(kept[~left_out], x[~left_out] / (1 - rate))
    # As many in every row and in every unit, but for chance.
    for axis in (0, 1):
        counts, of = left_out.sum(axis).numpy(), x.shape[axis]
        assert stats.kstest((counts - of * rate) / np.sqrt(of * rate * (1 - rate)), "norm").statistic < 0.15


def test_masks_belong_to_places_and_layers():
    x = torch.ones(1100, 7)
    one, other = DroppingReLU(0.4, 1)(x), DroppingReLU(0.4, 3)(x)
    assert torch.equal(one, DroppingReLU(0.4, 1)(x)) and not torch.equal(one, other)
    assert torch.equal(one[:20], DroppingReLU(0.4, 1)(x[:20]))
    assert torch.equal(one[:512], one[512:1024]) and len(torch.unique(one[:512], dim=0)) > 64


def test_nothing_is_left_out_of_what_is_told():
    layer = DroppingReLU(0.9, 1).eval()
    x = torch.randn(30, 8)
    assert torch.equal(layer(x), torch.relu(x))
    with torch.inference_mode():
        layer.train()(x.double())
    x = x.double().requires_grad_()
    layer(x).sum().backward()  # the masks of an inference serve for gradients too
    assert torch.equal(x.grad != 0, layer(x.detach()) != 0)


def test_dense_hidden_layers_alone_drop_units():
    plain, dropping = (build(Config(likelihood="gaussian", hidden=(8, 6), dropout=rate), 5) for rate in (0.0, 0.2))
    kinds = [type(layer) for layer in plain.encoder]
    assert kinds == [nn.Flatten, nn.Linear, nn.ReLU, nn.Linear, nn.ReLU]
    assert [type(layer) for layer in dropping.encoder] == [DroppingReLU if kind is nn.ReLU else kind for kind in kinds]
    assert not any(isinstance(layer, DroppingReLU) for layer in dropping.decoder.modules())
    assert list(plain.state_dict()) == list(dropping.state_dict())
    images = Config(likelihood="bernoulli", network="conv", hidden=(6,), dropout=0.2)
    encoder = build(images, Layout(72, shape=(8, 9))).encoder
    assert [isinstance(encoder[place], DroppingReLU) for place in range(len(encoder))][-1]
    assert sum(isinstance(layer, DroppingReLU) for layer in encoder) == 1


def test_with_a_context():
    network = Conditioned(drop_units(mlp(5, 8), 0.5), 2, {1: 8})
    x, context = torch.randn(40, 5), torch.randn(40, 2)
    dropped, whole = network(x, context), network.eval()(x, context)
    assert ((dropped == 0) | (whole > 0)).all() and (dropped == 0).sum() > (whole == 0).sum()


def test_rows_are_told_the_same_whoever_fills_up_the_batch():
    model = build(Config(likelihood="gaussian", dropout=0.3), 5).double()
    x, others = torch.randn(9, 5, dtype=torch.float64), Batch.of(torch.randn(4, 5, dtype=torch.float64))
    whole, part = (model._outputs_with(Batch.of(rows), others) for rows in (x, x[:6]))
    torch.testing.assert_close(whole[:6], part[:6])
    torch.testing.assert_close(whole[9:], part[6:])


@pytest.mark.usefixtures("quick_tracing")
@pytest.mark.parametrize("kind", [BatchEngine, Captured])
def test_what_is_watched_leaves_nothing_out(kind):
    """Before and after the first epoch, however that is computed."""
    found = []
    for rate in (0.0, 0.6):
        problem, tasks = plan_rows([Config(likelihood="gaussian", hidden=(8,), dropout=rate, patience=None)], X)
        models = problem.models(tasks)
        made = problem.engine(tasks, models)
        own = kind(models, made.configs, made.train, made.validation)
        found.append([own.validate(), own.epoch(0).means, own.validate()])
        for model in models:
            model.train()
        torch.testing.assert_close(own.validate(), found[-1][-1])
    (before, learned, after), (same, other, later) = found
    assert torch.equal(before, same) and not torch.equal(learned, other) and not torch.equal(after, later)


@pytest.mark.parametrize(
    ("settings", "rows", "hidden", "dropout", "jitter"),
    [
        ({}, 999, (200,), 0.0, 0.0),
        ({}, 5000, (200, 200), 0.0, 0.0),
        ({"neighbours": "both"}, 399, (200,), 0.0, 0.0),
        ({"neighbours": "both"}, 400, (200, 200, 200, 200), 0.03, 0.0),
        ({"neighbours": "both"}, 999, (200, 200, 200, 200), 0.03, 0.0),
        ({"neighbours": "far"}, 1000, (200, 200, 200, 200), 0.03, 0.0),
        ({"neighbours": "far"}, 2000, (200, 200, 200, 200), 0.05, 0.0),
        ({"neighbours": "near"}, 1999, (200, 200, 200, 200), 0.03, 0.0),
        ({"neighbours": "near"}, 2000, (200, 200, 200, 200), 0.05, 0.5),
        ({"neighbours": "near", "network": "conv"}, 5000, (200, 200), 0.0, 0.0),
        ({"neighbours": "near", "hidden": (9,), "dropout": 0.0, "jitter": 0.0}, 5000, (9,), 0.0, 0.0),
        ({"dropout": 0.3, "hidden": (9,), "jitter": 0.2}, 10, (9,), 0.3, 0.2),
    ],
)
def test_by_default_where_neighbours_count_in_large_tables(settings, rows, hidden, dropout, jitter):
    config = resolve_defaults(Config(**{"neighbours": "off", **settings}), (rows, 0), Layout(4))
    assert (config.hidden, config.dropout, config.jitter) == (hidden, dropout, jitter)


@pytest.mark.parametrize(
    ("settings", "rows", "decay"),
    [
        ({}, 2000, 1.0),
        ({"neighbours": "both"}, 399, 1.0),
        ({"neighbours": "both"}, 400, 0.3),
        ({"neighbours": "both"}, 80 * 128, 0.15),  # 80 batches
        ({"neighbours": "both", "network": "conv"}, 1000, 1.0),
        ({"neighbours": "both", "weight_decay": 2.0}, 1000, 2.0),
    ],
)
def test_there_weight_decay_is_less(settings, rows, decay):
    config = resolve_defaults(Config(**{"neighbours": "off", **settings}), (rows, 100), Layout(4))
    assert config.weight_decay == pytest.approx(decay)
    assert resolve_defaults(config, (rows, 100), Layout(4)) == config
