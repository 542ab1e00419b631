"""What is said of a trained model: its map, its units and its likelihood."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from scipy import stats

from curvae.maps.embedding import Embedding
from curvae.training import Config, fit
from curvae.training.fitted import embed, health, likelihoods

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


# --- the health of a map --------------------------------------------------------------------------------------------


def fitted(dim=2, kl=3.0, prior_scale=1.0, **more):
    record = {"epoch": 1, "kl": kl, "prior_scale": prior_scale, "c": 1.0, **more}
    figures = [mock.Mock(prior_scale=prior_scale)]
    return mock.Mock(config=Config(dim=dim), history=[record], last=record, figures=figures)


def points(tangent, c=1.0):
    """Points at tangent vectors: their radius is the length."""
    radius = np.linalg.norm(tangent, axis=1, keepdims=True)
    space = np.sinh(np.sqrt(c) * radius) / np.sqrt(c) * tangent / radius if c else tangent
    return Embedding(space, np.ones(len(tangent)), c)


def test_a_good_map_has_no_warnings():
    assert health(fitted(), points(np.random.default_rng(0).normal(size=(50, 2)))) == []


def test_an_empty_map():
    spread = points(np.random.default_rng(0).normal(size=(50, 2)))
    (warning,) = health(fitted(kl=0.09), spread)
    assert "empty" in warning and "0.09 nat" in warning and "lower `beta`" in warning
    # Rows that were held out know better.
    assert "divergence of validation rows from the prior is 0.05" in health(fitted(validation_kl=0.05), spread)[0]
    assert health(fitted(kl=0.05, validation_kl=2.0), spread) == []


def test_unused_dimensions():
    tangent = np.random.default_rng(0).normal(size=(200, 3)) * [1.0, 1.0, 0.02]
    (warning,) = health(fitted(dim=3), points(tangent))
    assert "only 2 of 3" in warning and "dimension 2 is enough" in warning
    (warning,) = health(fitted(dim=3), points(tangent / 1000))
    assert "all points lie together" in warning and "is enough" not in warning
    # In units of the prior.
    assert health(fitted(dim=3, prior_scale=0.02), points(tangent * 0.02 * [1, 1, 50])) == []


def test_points_at_the_rim():
    far = np.random.default_rng(0).normal(size=(50, 2))
    far *= 9 / np.linalg.norm(far, axis=1, keepdims=True)
    (warning,) = health(fitted(), points(far))
    assert "100% of the points sit at the rim" in warning and "lower the prior's scale" in warning
    assert health(fitted(), points(far, c=0.0)) == []
    assert health(fitted(), points(far, c=0.1)) == []  # √c·r is what fills the disc
    few = np.where(np.arange(50)[:, None] < 20, far, far / 9)
    assert health(fitted(), points(few)) == []


def test_noise_gives_an_empty_map():
    x = np.random.default_rng(0).normal(size=(200, 6))
    config = replace(SMALL, beta=10.0, epochs=20, learning_rate=0.04, batch_size=100)
    found = fit(config, x)
    assert any("empty" in text for text in health(found, embed(found, x)))


def test_original_units_by_hand():
    """A model that ignores z has a normal density, of which everything is known."""
    x = rows(30, 1) * 40.0 + 1000.0
    found = fit(replace(SMALL, epochs=1), x).double()
    with torch.no_grad():
        for p in (found.model.posterior.head.weight, found.model.posterior.head.bias, found.model.decoder[-1].weight):
            p.zero_()
        found.model.posterior.head.bias[-1] = np.log(np.expm1(1.0 - 1e-8))  # q = p: every weight is 1
        mean = float(found.model.decoder[-1].bias)
        deviation = float(found.model.likelihood.scale())
    result = likelihoods(found, x, 50)
    scale, shift = found.scaling.scale[0], found.scaling.shift[0]
    expected = stats.norm.logpdf(x[:, 0], shift + mean * scale, deviation * scale)
    np.testing.assert_allclose(result.log_prob + result.log_jacobian, expected, rtol=1e-6)
    np.testing.assert_allclose(result.ess, 50, rtol=1e-6)
    np.testing.assert_allclose(found.reconstruct(np.zeros((1, 2))), shift + mean * scale)


def test_units_change_the_score_by_the_jacobian_alone():
    x = rows()
    factors = np.array([10.0, 0.01, 3.0])
    a, b = (fit(SMALL, data) for data in (x, x * factors + 5.0))
    scores = [likelihoods(f, data, 200) for f, data in ((a, x), (b, x * factors + 5.0))]
    np.testing.assert_allclose(scores[0].log_prob, scores[1].log_prob, atol=1e-3)
    assert scores[1].log_jacobian - scores[0].log_jacobian == pytest.approx(-np.log(factors).sum())


def test_overfitting_is_told():
    fitted = fit(Config(epochs=2, hidden=(8,), patience=None), np.random.default_rng(0).normal(size=(60, 4)))
    place = embed(fitted, np.zeros((3, 4)))
    record = {**fitted.history[-1], "validation_kl": 1.0, "kl": 1.0}
    history = [{**record, "epoch": k + 1, "validation_elbo": -10.0 - abs(k - 4)} for k in range(12)]
    told = [text for text in health(replace(fitted, history=history), place) if "overfitted" in text]
    assert len(told) == 1 and "since epoch 5 " in told[0] and "7.0 nats" in told[0] and "patience" in told[0]
    steady = [{**entry, "validation_elbo": -10.0} for entry in history]
    assert not [text for text in health(replace(fitted, history=steady), place) if "overfitted" in text]
