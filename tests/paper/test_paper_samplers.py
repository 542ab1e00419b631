"""The samplers of the appendix: each draws the right law, its bound holds, its rate is what is observed."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

from curvae import HyperbolicRadius
from curvae.paper.figures import SAMPLERS, GammaProposal, PiecewiseExponential, TruncatedNormal, acceptance_rates

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
    valid = sampler._log_bound - sampler.log_z
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
