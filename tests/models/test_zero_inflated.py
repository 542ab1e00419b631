"""The zero-inflated negative binomial against mpmath and scipy."""

from __future__ import annotations

import itertools

import mpmath
import numpy as np
import pytest
import torch

from curvae.data import Arrays
from curvae.models import Batch, Layout, ZeroInflated
from curvae.models.likelihoods.zero_inflated import _Entries
from curvae.training import Config, fit
from curvae.training.evaluate import likelihoods


def exact(n, logit, x):
    """log p(x) and its derivatives by n and by the logit, to 50 digits; n is the log-density without dropouts."""
    with mpmath.workdps(50):
        p, lost = mpmath.exp(mpmath.mpf(n)), 1 / (1 + mpmath.exp(-mpmath.mpf(logit)))
        whole = (1 - lost) * p + (lost if x == 0 else 0)
        by_logit = lost * (1 - lost) * ((1 if x == 0 else 0) - p) / whole
        return [float(one) for one in (mpmath.log(whole), (1 - lost) * p / whole, by_logit)]


def test_values_and_slopes_are_those_of_mpmath():
    every = itertools.product([0.0, -1e-6, -0.1, -3.0, -40.0, -1e3, -7e5], [-60.0, -9, -1, 0, 0.5, 12, 30], [0, 2])
    n, logits, x = (torch.tensor(column, dtype=torch.float32)[None] for column in zip(*every, strict=True))
    expected = np.array([exact(*map(float, one)) for one in zip(n[0], logits[0], x[0], strict=True)])
    n.requires_grad_(), logits.requires_grad_()
    values = _Entries.call(n, logits, x)
    found = values, *torch.autograd.grad(values.sum(), (n, logits))
    for got, wanted in zip(found, expected.T, strict=True):
        np.testing.assert_allclose(got[0].detach().double(), wanted, rtol=1e-6, atol=1e-6)


def test_slopes_are_finite_differences():
    likelihood = ZeroInflated(3, dispersion="gene-cell").double()
    outputs = torch.randn(2, 4, 9).double().requires_grad_()
    x = torch.tensor([[0.0, 3.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 7.0], [50.0, 0.0, 0.0]]).double()
    assert torch.autograd.gradcheck(lambda given: likelihood.log_prob(given, Batch(x)), (outputs,))


def test_draws_are_lost_as_often_as_is_said():
    likelihood = ZeroInflated(2, total=True)
    likelihood.unit.fill_(1e4)
    with torch.no_grad():
        likelihood.log_dispersion.fill_(5.0)
    outputs = torch.tensor([0.0, 0.0, -1.0, 1.0]).expand(20_000, -1)
    draws = likelihood.sample(outputs, generator=torch.Generator().manual_seed(0))
    lost = torch.tensor([-1.0, 1.0]).sigmoid()
    torch.testing.assert_close((draws == 0).float().mean(0), lost, rtol=0, atol=0.02)
    torch.testing.assert_close(likelihood.mean(outputs)[0], 5e3 * (1 - lost))


@pytest.mark.slow
def test_dropouts_are_worth_telling_apart():
    """Counts of which a third is lost are more probable with inflated zeros, and others not."""
    random = np.random.default_rng(0)
    share = random.dirichlet(np.full(25, 2.0), 2)[random.integers(2, size=1000)]
    whole = random.poisson(400 * share * random.gamma(5.0, 1 / 5.0, share.shape)).astype(float)
    gained = {}
    for name, x in (("lost", whole * (random.random(whole.shape) > 0.3)), ("whole", whole)):
        data, found = Arrays(x, size=x.sum(1), total=True), []
        for likelihood in ("nb", "zinb"):
            config = Config(
                likelihood=likelihood, hidden=(16,), neighbours="off", steps=250, dropout=0.0, learning_rate=4e-3
            )
            fitted = fit(config, data)
            found.append(likelihoods(fitted, data.take(fitted.split.validation), samples=20).mean)
        gained[name] = found[1] - found[0]
    assert gained["lost"] > 3.0
    assert abs(gained["whole"]) < 2.0


def test_layouts_say_what_there_is():
    layout = Layout(3, size=True, total=True, batch=(0, 2), covariates=2)
    made = ZeroInflated.of(layout, Config(likelihood="zinb", dispersion="gene-batch"))
    assert (made.outputs, made.total, made.log_dispersion.shape) == (6, True, (2, 3))
