"""The paper's figures: all are drawn, hyperplanes are where units are zero, samplers of the appendix are right."""

from __future__ import annotations

import io
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from curvae import HyperbolicRadius
from curvae.geometry import PoincareBall
from curvae.nn import Layers
from curvae.paper.figures import FIGURES, acceptance_rates, hyperplanes
from curvae.plotting import density
from curvae.training import fit
from experiments import TINY, X
from paths import ROOT

sys.path.insert(0, str(ROOT))

from benchmarks.rejection import SAMPLERS, GammaProposal, PiecewiseExponential, TruncatedNormal

SETTINGS = [(2, 1.0, 1.0), (2, 0.1, 1.0), (2, 1.4, 0.3), (3, 1.0, 2.0), (5, 0.7, 0.5), (10, 1.0, 0.4)]


@pytest.mark.parametrize(
    ("name", "dim", "c", "s"),  # each sampler with every other of the settings
    [(name, *own) for i, name in enumerate(SAMPLERS) for own in SETTINGS[i % 2 :: 2]],
)
def test_law_bound_and_rate(name, dim, c, s):
    sampler = SAMPLERS[name](dim, torch.tensor([s, 0.5 * s]), c)
    r, log_accept = sampler.propose(20_000)
    assert log_accept.max() < 1e-9, "the envelope is under the density"
    rate = log_accept.exp().mean(0)
    torch.testing.assert_close(rate, sampler.acceptance, rtol=0.1, atol=0.01)
    if sampler.acceptance.min() < 2e-3:
        return
    r = sampler.sample(4000)
    for i, scale in enumerate((s, 0.5 * s)):
        law = HyperbolicRadius(dim, torch.tensor(scale, dtype=torch.float64), c)
        assert stats.kstest(law.cdf(r[:, i]).numpy(), "uniform").pvalue > 1e-4
        torch.testing.assert_close(sampler.mean[i], law.mean, rtol=1e-5, atol=0)
        torch.testing.assert_close(sampler.deviation[i], law.stddev, rtol=1e-4, atol=0)


def test_rates_behave_as_the_paper_observes():
    """The tangent envelope keeps its rate over dimension and scale, the other two do not."""
    rates = acceptance_rates((2, 5, 10, 20), torch.tensor([0.1, 0.5, 1.0, 2.0]))
    assert rates["piecewise exponential"].min() > 0.85
    assert rates["truncated normal"][3, 0] < 1e-5
    assert rates["Gamma(2, σ)"][3, 3] < 1e-3


def test_printed_gamma_bound_is_violated():
    """At c = 0.1, σ = 1, d = 2 the bound as printed, c^{(d−1)/2} for the power of √c, is below the largest ratio."""
    sampler = GammaProposal(2, torch.tensor([1.0]), 0.1)
    r = torch.linspace(1e-3, 8, 20_000, dtype=torch.float64)[:, None]
    log_ratio = sampler.log_density(r)[:, 0] - sampler.log_z - (r.log() - r / 1.0)[:, 0]
    printed = -sampler.log_z + 0.5 * torch.tensor(0.1).log() + (0.1**0.5 + 1) ** 2 / 2
    valid = sampler.log_bound - sampler.log_z
    assert log_ratio.max() > printed.item() and log_ratio.max() < valid.item()


def test_errors():
    with pytest.raises(ValueError, match="c > 0"):
        PiecewiseExponential(2, torch.ones(1), 0.0)
    with pytest.raises(ValueError, match="dim ≥ 2"):
        GammaProposal(1, torch.ones(1), 1.0)


@pytest.mark.parametrize("sampler", [TruncatedNormal, GammaProposal])
def test_a_rate_that_would_take_for_ever_is_refused(sampler):
    with pytest.raises(
        ValueError, match=r"accepts a fraction .* of its proposals.*; draw with curvae.HyperbolicRadius"
    ):
        sampler(5, torch.tensor([1.0]), 1e-24).sample(3)


# --- drawings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("draw", FIGURES.values(), ids=FIGURES)
def test_all_figures(draw, monkeypatch):
    grid = density.__globals__["grid"]
    monkeypatch.setitem(density.__globals__, "grid", lambda ball, size: grid(ball, 40))  # coarsely
    file = io.BytesIO()
    draw().savefig(file, dpi=110)
    assert file.tell() > 5000


# --- hyperplanes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("c", "decoder"), [(0.8, "gyroplane"), (0.8, "gyroplane_scalar"), (0.0, "gyroplane"), (0.0, "log_mlp")]
)
def test_hyperplanes_are_where_units_are_zero(c, decoder):
    fitted = fit(replace(TINY, curvature=c, decoder=decoder), X)
    p, a = hyperplanes(fitted)
    ball = PoincareBall(2, c)
    first = Layers(fitted.model.decoder[0].double())

    def layer(S):
        return first(S, torch.tensor(c).double())

    np.testing.assert_allclose(layer(ball.to_lorentz(p)).diagonal().detach(), 0, atol=1e-6)
    # A step along the normal is on the positive side.
    ahead = ball.expmap(p, 0.1 * a / a.norm(dim=1, keepdim=True))
    assert (layer(ball.to_lorentz(ahead)).diagonal() > 0).all()
