"""A distribution of one's own: a subclass without a fused step, written against the documented hooks alone."""

from __future__ import annotations

import math
from copy import deepcopy

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch.distributions import kl_divergence

from another_distribution import HeavyTailed
from curvae import Lorentz, PoincareBall, WrappedNormal
from curvae.distributions import HyperbolicNormal
from curvae.distributions.step import draw_and_divergence
from curvae.models import VAE, Gaussian, Posterior, Stack, marginal_likelihood
from curvae.nn import Space, decoder, mlp
from distribution_checks import DistributionChecks

DIM = 3
F64 = torch.float64


class TestHeavyTailed(DistributionChecks):
    def make(self, dtype=F64, loc=None, scale=None, **changes):
        space = PoincareBall(DIM, 0.7)
        loc = space.expmap0(torch.tensor([0.3, -0.2, 0.1], dtype=F64)).expand(3, DIM) if loc is None else loc
        scale = torch.tensor([[0.3], [0.6], [0.9]], dtype=F64) if scale is None else scale
        return HeavyTailed(loc.to(dtype), scale.to(dtype), space, **changes)

    def parameters(self):
        return {"loc": self.make().loc, "scale": self.make().scale}


def distribution(scale=0.6, c=0.7, manifold=Lorentz, shift=0.4):
    space = manifold(DIM, torch.tensor(c, dtype=F64))
    loc = space.expmap0(torch.tensor([shift, -0.2, 0.1], dtype=F64))
    return HeavyTailed(loc, torch.tensor([scale], dtype=F64), space)


@pytest.mark.parametrize("manifold", [Lorentz, PoincareBall])
@pytest.mark.parametrize("c", [0.0, 0.7])
def test_draws_follow_the_density(manifold, c):
    """The distances of draws from their centre, by Kolmogorov and Smirnov, against the integral of the density."""
    q = distribution(c=c, manifold=manifold)
    r = q.manifold.dist(q.loc, q.sample((4000,))).numpy()

    grid = np.linspace(1e-9, 30.0, 1201)
    frame = torch.zeros(len(grid), DIM, dtype=F64)
    frame[:, 0] = torch.from_numpy(grid) / float(q.manifold.lambda_x(torch.zeros(DIM, dtype=F64)))
    here = HeavyTailed(torch.zeros(DIM, dtype=F64), q.scale, q.manifold)
    sinh = np.sinh(math.sqrt(c) * grid) / math.sqrt(c) if c else grid
    density = here.log_prob(q.manifold.expmap0(frame)).exp().numpy() * 4 * math.pi * sinh**2
    cdf = integrate.cumulative_simpson(density, x=grid, initial=0)
    assert cdf[-1] == pytest.approx(1, abs=1e-4)
    assert stats.kstest(r, lambda x: np.interp(x, grid, cdf)).pvalue > 1e-3


@pytest.mark.parametrize("noise", [torch.float32, torch.float64])
def test_a_step_is_made_of_its_own_methods(noise):
    u, scale = torch.randn(5, DIM, dtype=F64), torch.rand(5, 1, dtype=F64) + 0.2
    c, s = torch.tensor(0.7, dtype=F64), torch.tensor(0.9, dtype=F64)
    noise = torch.randn(2, 5, DIM, dtype=noise)
    z, kl = draw_and_divergence(u, scale, noise, c, s, HeavyTailed)
    space = Lorentz(DIM, c)
    q, p = HeavyTailed(space.expmap0(u), scale, space), HeavyTailed(torch.zeros(DIM, dtype=F64), s, space)
    torch.testing.assert_close(z, q.transform(noise), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(kl, q.log_prob(z) - p.log_prob(z), rtol=1e-9, atol=1e-9)
    leaves = [t.requires_grad_() for t in (u, scale, c, s)]
    assert torch.autograd.gradcheck(
        lambda u, scale, c, s: draw_and_divergence(u, scale, noise.double(), c, s, HeavyTailed), leaves, atol=1e-6
    )


def test_a_subclass_of_a_fused_distribution_is_not_taken_for_it():
    class Narrow(WrappedNormal):
        def bend(self, noise, exact):
            return noise / 2

    u, scale = torch.zeros(4, DIM, dtype=F64), torch.ones(4, 1, dtype=F64)
    rest = torch.randn(2, 4, DIM), *torch.tensor([0.7, 1.0], dtype=F64)
    half, _ = draw_and_divergence(u, scale, *rest, Narrow)
    whole, _ = draw_and_divergence(u, scale / 2, *rest, WrappedNormal)
    torch.testing.assert_close(half, whole)


def test_a_model_with_it_trains_alone_and_in_a_stack():
    """The whole of a VAE, whose latent space is handed the class."""

    def model(seed):
        torch.manual_seed(seed)
        space = Space("h2", distribution=HeavyTailed)
        return VAE(mlp(4, 8), decoder("gyroplane", space, (8,), 4), Posterior(8, space), Gaussian(4)).double()

    x = torch.randn(64, 1, dtype=F64) * torch.tensor([1.0, -2.0, 0.5, 1.5]) + 0.1 * torch.randn(64, 4)
    models = [model(seed) for seed in range(2)]
    assert type(models[0].encode(x)) is type(models[0].prior()) is HeavyTailed
    noise = torch.randn(2, 1, 64, 2)
    alone = [one.terms(x, own) for one, own in zip(deepcopy(models), noise, strict=True)]
    stack = Stack(models)
    for found, expected in zip(stack.terms(x.expand(2, -1, -1), noise), zip(*alone, strict=True), strict=True):
        torch.testing.assert_close(found, torch.stack(expected), rtol=1e-9, atol=1e-9)
    optimiser, losses = torch.optim.Adam(stack.leaves.values(), 0.02), []
    for _ in range(80):
        optimiser.zero_grad()
        reconstruction, kl = stack.terms(x.expand(2, -1, -1), torch.randn_like(noise))
        loss = (kl - reconstruction).mean((1, 2))
        loss.sum().backward()
        optimiser.step()
        losses.append(loss.detach())
    assert bool((losses[-1] < losses[0] - 1.0).all())
    assert marginal_likelihood(models[0], x[:5], samples=100).log_prob.isfinite().all()


def test_entropy_and_divergence():
    """Against means over draws; a normal on the other side too, and where the space is flat."""
    torch.manual_seed(3)
    for c in (0.0, 0.7):
        q, p = distribution(c=c), distribution(1.1, c, shift=0.1)
        z, log_q = q.rsample_and_log_prob((100_000,))
        others = (p, WrappedNormal(p.loc, 1.1, p.manifold))
        estimates = [-log_q, *(log_q - other.log_prob(z) for other in others)]
        for estimate, exact in zip(estimates, [q.entropy(), *(kl_divergence(q, o) for o in others)], strict=True):
            assert abs(float(exact) - float(estimate.mean())) < 4.5 * float(estimate.std()) / math.sqrt(len(estimate))


def test_without_nodes_mean_values_are_refused():
    class Bare(HeavyTailed):
        radius_nodes = HyperbolicNormal.radius_nodes

    q = Bare(torch.zeros(DIM), 1.0, Lorentz(DIM))
    assert q.sample((4,)).shape == (4, DIM)
    for ask in (q.entropy, lambda: kl_divergence(q, q)):
        with pytest.raises(NotImplementedError, match="Bare has no radius_nodes"):
            ask()
