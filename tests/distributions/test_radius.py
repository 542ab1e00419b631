"""Radii and directions: quantiles, moments and constraints."""

from __future__ import annotations

import math
from functools import cache

import mpmath as mp
import pytest
import torch

from curvae import HyperbolicRadius, SphericalUniform
from distribution_checks import DistributionChecks
from oracles import relative

# --- what every distribution inherits ---------------------------------------------------------------------------------


SCALE = torch.tensor([0.3, 1.0, 2.0], dtype=torch.float64)


class TestHyperbolicRadius(DistributionChecks):
    def make(self, dtype=torch.float64, scale=SCALE, c=0.8, **changes):
        return HyperbolicRadius(4, scale.to(dtype), c, **changes)

    def parameters(self):
        return {"scale": SCALE, "c": torch.tensor(0.8, dtype=torch.float64)}


class TestSphericalUniform(DistributionChecks):
    def make(self, dtype=torch.float64):
        return SphericalUniform(3, dtype=dtype).expand((3,))

    def outside(self, z):
        return 2 * z

    def test_float32_agrees_with_float64(self):
        """A constant; a unit vector of float32 is none of float64."""
        z = self.make(torch.float32).sample()
        torch.testing.assert_close(
            self.make(torch.float32).log_prob(z), self.make().log_prob(self.make().sample()).float()
        )


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_radius_cdf_and_icdf(dim):
    s = torch.tensor(0.8, dtype=torch.float64, requires_grad=True)
    c = torch.tensor(1.2, dtype=torch.float64, requires_grad=True)
    p = torch.tensor([1e-12, 1e-4, 0.2, 0.5, 0.9, 1 - 1e-9], dtype=torch.float64)
    law = HyperbolicRadius(dim, s, c)
    torch.testing.assert_close(law.cdf(law.icdf(p)), p, rtol=1e-10, atol=0)
    assert (
        law.icdf(torch.tensor(0.0)) == 0 and law.icdf(torch.tensor(1.0)) == math.inf and law.cdf(torch.tensor(0.0)) == 0
    )
    assert torch.autograd.gradcheck(lambda s, c: HyperbolicRadius(dim, s, c).icdf(p[1:5]), (s, c), atol=1e-7)
    r = torch.tensor([0.1, 1.0, 3.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda r, s, c: HyperbolicRadius(dim, s, c).cdf(r), (r, s, c), atol=1e-7)
    (density,) = torch.autograd.grad(law.cdf(r).sum(), r)
    torch.testing.assert_close(density, law.log_prob(r).exp(), rtol=1e-10, atol=0)


@pytest.mark.parametrize(("dim", "s", "c"), [(49, 1.0, 28.0), (50, 2.0, 7.5), (100, 5.0, 10.0), (20, 3.0, 5.0)])
def test_derivatives_of_the_cdf_where_the_radius_is_large(dim, s, c):
    """∂F/∂σ and ∂F/∂c are the covariances of the score with the event, by 30 digits of quadrature."""
    with mp.workdps(30):
        n, sigma, root = dim - 1, mp.mpf(s), mp.sqrt(c)
        mode = n * root * sigma**2

        def log_kernel(r):
            return -(r**2) / (2 * sigma**2) + n * mp.log(mp.sinh(root * r) / root)

        top = log_kernel(mode)
        kernel = cache(lambda r: mp.exp(log_kernel(r) - top))  # the nodes are those of all scores
        scores = (
            lambda r: 1,
            lambda r: r * r / sigma**3,
            lambda r: n * (r * mp.coth(root * r) / root - 1 / mp.mpf(c)) / 2,
        )

        def integral(score, end):
            points = mp.linspace(max(mp.mpf(0), mode - 14 * sigma), end, 5)
            return mp.quad(lambda r: score(r) * kernel(r), points, method="gauss-legendre")

        means = [integral(score, mode + 14 * sigma) for score in scores]
        for z in (-3.0, -0.2, 2.0):
            r = float(mode + z * sigma)
            below = [integral(score, mp.mpf(r)) for score in scores]
            exact = [(part - mean / means[0] * below[0]) / means[0] for part, mean in zip(below, means, strict=True)]
            parameters = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (s, c)]
            cdf = HyperbolicRadius(dim, *parameters).cdf(torch.tensor(r, dtype=torch.float64))
            assert relative(cdf.detach(), below[0] / means[0]) < 1e-11
            for slope, value in zip(torch.autograd.grad(cdf, parameters), exact[1:], strict=True):
                assert relative(slope, value) < 1e-10


def test_radius_moments_follow_the_paper():
    """E[r] as printed in the appendix, at a precision where its signed sum is exact."""
    for dim, c, s in ((2, 1.0, 1.0), (3, 0.5, 2.0), (6, 1.4, 0.7)):
        with mp.workdps(60):
            sigma, root, n = mp.mpf(s), mp.sqrt(c), dim - 1
            z = m = mp.mpf(0)
            for k in range(dim):
                a = n - 2 * k
                weight = (-1) ** k * mp.binomial(n, k)
                e = mp.exp(a**2 * c * sigma**2 / 2) * (1 + mp.erf(a * root * sigma / mp.sqrt(2)))
                z += weight * e
                m += weight * (e * a * root * sigma**2 + sigma * mp.sqrt(2 / mp.pi))
            exact = m / z
        assert relative(HyperbolicRadius(dim, torch.tensor(s, dtype=torch.float64), c).mean, exact) < 1e-12
