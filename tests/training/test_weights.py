"""Weights of rows: twice the weight is the row twice, no weight is no row; against sums in numpy and finite steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from curvae import PoincareVAE
from curvae.data import Arrays
from curvae.errors import CurvaeError
from curvae.models import Batch
from curvae.training import Config, Split, build, fit
from curvae.training.engine import losses
from trainings import rows, state

X = rows(40)
WHOLE = Config(hidden=(8,), epochs=3, batch_size=1000, cooldown=0.0, patience=None, likelihood="unit_gaussian", seed=3)


@torch.no_grad()
@pytest.mark.parametrize("objective", ["elbo", "iwae"])
def test_the_loss_is_a_weighted_mean(objective):
    config = replace(WHOLE, objective=objective, samples=3, beta=0.7 if objective == "elbo" else 1.0)
    model, weight = build(config, 3), np.array([2.0, 0.0, 1.0, 1.0])
    noise = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0))
    terms = model.terms(Batch(torch.from_numpy(X[:4]).float()), noise)
    a, b = (term.detach().double().numpy() for term in terms)
    each = (0.7 * b - a).mean(0) if objective == "elbo" else -np.log(np.exp(a - b).mean(0))
    found = losses(terms, config, config.beta, torch.from_numpy(weight))
    assert float(found) == pytest.approx((weight * each).sum() / weight.sum(), rel=1e-5)
    # Row 0 twice and row 1 not at all.
    twice = [0, 0, 2, 3]
    found = losses(model.terms(Batch(torch.from_numpy(X[twice]).float()), noise[:, twice]), config, config.beta)
    assert float(found) == pytest.approx((weight * each).sum() / weight.sum(), rel=1e-5)
    # What fills up a batch does not count, whatever its weight.
    kept = torch.tensor([1.0, 1.0, 1.0, 0.0], dtype=torch.float64)
    found = losses(terms, config, config.beta, torch.from_numpy(weight), kept=kept)
    assert float(found) == pytest.approx((weight * each)[:3].sum() / 3, rel=1e-5)


def test_only_ratios_matter_and_equal_weights_change_nothing():
    def trained(weight):
        return state(fit(WHOLE, Arrays(X, weight=weight), device="cpu"))

    plain = state(fit(WHOLE, X, device="cpu"))
    for weight in (np.ones(40), np.full(40, 5.0)):
        for name, t in trained(weight)[0].items():
            torch.testing.assert_close(t, plain[0][name], rtol=1e-4, atol=1e-5)
    uneven = np.linspace(0.0, 2.0, 40)
    (one, figures), (other, same) = trained(uneven), trained(8.0 * uneven)
    assert all(torch.allclose(t, other[name], rtol=1e-4, atol=1e-5) for name, t in one.items())
    assert figures[-1]["elbo"] == pytest.approx(same[-1]["elbo"], rel=1e-4)
    assert any(not torch.allclose(t, plain[0][name], rtol=1e-3, atol=1e-4) for name, t in one.items())


@pytest.mark.parametrize("batch_size", [1000, 8])
def test_rows_without_weight_leave_no_trace(batch_size):
    """They share batches with others, but whatever their values are, the model is the same."""
    weight = np.where(np.arange(40) < 25, 1.0, 0.0)
    config, split = replace(WHOLE, batch_size=batch_size, standardise=False), Split(*map(np.arange, (40, 0, 0)))
    changed = np.where(weight[:, None] > 0, X, X + 1.5)
    # The decoder starts at the means of all rows, so these are the same.
    changed[-1] += (X - changed).sum(0)
    found = [state(fit(config, Arrays(x, weight=weight), split=split, device="cpu"))[0] for x in (X, changed)]
    for name, t in found[0].items():
        torch.testing.assert_close(t, found[1][name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("wrong", [np.ones(3), np.full(40, -1.0), np.zeros(40), np.full(40, np.nan)])
def test_weights_that_are_none(wrong):
    with pytest.raises(CurvaeError, match="weight must be a number of at least 0 for every row"):
        fit(WHOLE, Arrays(X, weight=wrong))


def test_an_estimator_leaves_out_rows_of_weight_0():
    weight = np.where(np.arange(40) % 4 == 0, 0.0, 1.0)
    settings = {"hidden": (8,), "epochs": 3, "random_state": 0, "device": "cpu"}
    some = PoincareVAE(**settings).fit(X[weight > 0])
    all_rows = PoincareVAE(**settings).fit(X, sample_weight=weight)
    np.testing.assert_allclose(all_rows.transform(X), some.transform(X), rtol=1e-5, atol=1e-6)
    assert all_rows.embedding_.shape == (40, 2)
    np.testing.assert_allclose(
        PoincareVAE(**settings).fit_transform(X, sample_weight=weight), all_rows.transform(X), rtol=1e-9
    )
    with pytest.raises(CurvaeError, match="positive for at least 2 rows"):
        PoincareVAE(**settings).fit(X, sample_weight=np.eye(40)[0])


def test_heavy_rows_are_described_better():
    random = np.random.default_rng(0)
    x = np.concatenate([random.normal(size=(40, 4)), random.normal(size=(40, 4)) @ random.normal(size=(4, 4)) + 5.0])
    settings = {"hidden": (16,), "epochs": 40, "random_state": 0, "device": "cpu", "validation": 0.0}
    weights = np.where(np.arange(80) < 40, 20.0, 1.0)
    first, second = (PoincareVAE(**settings).fit(x, sample_weight=w) for w in (weights, weights[::-1].copy()))
    gain = first.score_samples(x) - second.score_samples(x)
    assert gain[:40].mean() > 0.5 and gain[40:].mean() < -0.5
