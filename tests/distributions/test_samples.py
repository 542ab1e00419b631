"""Draws against exact laws on the whole grid: Kolmogorov–Smirnov and two moments, able to see 1 % of σ.

The radius law and its cdf are those checked against high precision in test_grid; here draws made by the table are held
against them, and against scipy where the law is a textbook one.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from scipy import stats

from combining import every_pair
from curvae import Euclidean, HyperbolicRadius, Lorentz, PoincareBall, RiemannianNormal, SphericalUniform, WrappedNormal
from oracles import CURVATURES, DIMS, SCALES

LEVEL = 1e-5  # of a test; there are a few thousand


def count(dim: int) -> int:
    """Draws that make a change of 1 % in the mean six standard errors: σ/mean is about 1/√(2d)."""
    return max(20_000, 220_000 // dim)


def deviation(r: torch.Tensor, law: HyperbolicRadius, most: int = 1000) -> float:
    """The Kolmogorov–Smirnov statistic of radii, looked at in some of them: at most, and nearly, that of all."""
    n = r.numel()
    places = torch.linspace(0, n - 1, min(n, most), dtype=torch.float64).round().long()
    u, rank = law.cdf(r.sort().values[places]), places.double()
    return float(torch.maximum((rank + 1) / n - u, u - rank / n).max())


def looks_like(r: torch.Tensor, law: HyperbolicRadius) -> bool:
    """Whether radii pass a KS test, and agree in mean and mean square with the law."""
    r = r.double()
    n = r.numel()
    ks = stats.kstwo.sf(deviation(r, law), n)
    z1 = (r.mean() - law.mean) / (law.stddev / math.sqrt(n))
    square = law.variance + law.mean**2
    z2 = (r.square().mean() - square) / (r.square().std() / math.sqrt(n))
    bound = stats.norm.isf(LEVEL / 2)
    return bool(ks > LEVEL and abs(z1) < bound and abs(z2) < bound)


def test_the_statistic_is_nearly_that_of_scipy():
    law = HyperbolicRadius(3, torch.tensor(0.7, dtype=torch.float64), 1.0)
    r = HyperbolicRadius(3, 0.7, 1.1).sample((20_000,)).double()
    whole = stats.kstest(law.cdf(r).numpy(), "uniform").statistic
    assert deviation(r, law, 20_000) == pytest.approx(whole, rel=1e-9)
    assert whole - 2e-3 < deviation(r, law) <= whole


@pytest.mark.slow
@pytest.mark.parametrize("dim", DIMS)
def test_riemannian_radii_on_the_grid(dim):
    """In a third of the cells, with every curvature and every scale: in units of s the law depends on c·s² alone."""
    noise = torch.randn(count(dim), dim)
    for (i, c), (j, s) in itertools.product(enumerate(CURVATURES), enumerate(SCALES)):
        if (i + j + dim) % 3 == 0:
            r = HyperbolicRadius(dim, s, c).transform(noise)
            law = HyperbolicRadius(dim, torch.tensor(s, dtype=torch.float64), c)
            assert looks_like(r, law), (c, s)


@pytest.mark.parametrize(("dim", "factor"), list(zip(DIMS[::2], (0.99, 1.01) * 2, strict=True)))
def test_the_test_sees_one_percent(dim, factor):
    """The check above fails when σ is off by 1 %, for a small, a middling and a large q."""
    noise = torch.randn(count(dim), dim)
    for c, s in ((0.0, 1.0), (1.0, 0.5), (1.0, 2.0)):
        r = HyperbolicRadius(dim, s * factor, c).transform(noise)
        assert not looks_like(r, HyperbolicRadius(dim, torch.tensor(s, dtype=torch.float64), c))


@pytest.mark.parametrize("dim", DIMS)
def test_flat_radius_is_chi(dim):
    law = HyperbolicRadius(dim, torch.tensor(1.7, dtype=torch.float64), 0.0)
    reference = stats.chi(dim, scale=1.7)
    x = torch.linspace(0.1, 4 * math.sqrt(dim), 40, dtype=torch.float64)
    p = torch.linspace(1e-6, 1 - 1e-6, 21, dtype=torch.float64)
    for ours, exact in (
        (law.cdf(x), reference.cdf(x)),
        (law.log_prob(x).exp(), reference.pdf(x)),
        (law.icdf(p), reference.ppf(p)),
        (law.mean, reference.mean()),
        (law.variance, reference.var()),
        (law.entropy(), reference.entropy()),
    ):
        torch.testing.assert_close(ours, torch.as_tensor(exact, dtype=torch.float64), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("chart", "law", "cell"),
    every_pair(
        [Lorentz, PoincareBall],
        [WrappedNormal, RiemannianNormal],
        [(0.0, 1.0), (0.1, 2.0), (1.0, 0.3), (1.4, 1.0), (10.0, 0.2)],
    ),
)
def test_points_lie_at_the_right_distance_in_every_direction(chart, law, cell):
    """Distance from loc follows the radius law; the direction is uniform in the frame and independent of it."""
    dim, n, (c, s) = 3, 40_000, cell
    space = chart(dim, c)
    loc = space.expmap0(torch.tensor([0.3, -0.2, 0.1]))
    z = law(loc, s, space).sample((n,))
    r = space.dist(loc.double().expand(n, dim), z.double())
    q = c if law is RiemannianNormal else 0.0
    assert looks_like(r, HyperbolicRadius(dim, torch.tensor(s, dtype=torch.float64), q))
    v = space.logmap(loc.double().expand(n, dim), z.double())
    u = v / v.norm(dim=-1, keepdim=True)
    for i in range(dim):
        # A coordinate of a uniform direction in three dimensions is uniform on [−1, 1].
        assert stats.kstest(u[:, i].numpy(), stats.uniform(-1, 2).cdf).pvalue > LEVEL
        assert abs(stats.spearmanr(u[:, i], r).statistic) < 5 / math.sqrt(n)


def test_anisotropic_wrapped_normal_has_its_covariance_in_the_frame():
    tril = torch.tensor([[0.5, 0.0], [0.3, 0.2]], dtype=torch.float64)
    for chart in (Lorentz, PoincareBall, lambda d, _: Euclidean(d)):
        space = chart(2, 1.3)
        loc = space.expmap0(torch.tensor([0.4, -0.6], dtype=torch.float64))
        n = 100_000
        for q, cov in (
            (WrappedNormal(loc, manifold=space, scale_tril=tril), tril @ tril.T),
            (
                WrappedNormal(loc, torch.tensor([0.5, 0.1], dtype=torch.float64), space),
                torch.diag(torch.tensor([0.25, 0.01], dtype=torch.float64)),
            ),
        ):
            z = q.sample((n,))
            v = space.lambda_x(loc) * space.logmap(loc.expand(n, 2), z)
            assert ((v.T @ v / n - cov).abs() < 6 * math.sqrt(2 / n) * cov.diagonal().max()).all()


def test_spherical_uniform():
    u = SphericalUniform(5).sample((20_000,))
    assert SphericalUniform(5).support.check(u).all()
    # A squared coordinate is Beta(1/2, (d−1)/2).
    assert stats.kstest(u[:, 2].square().double().numpy(), stats.beta(0.5, 2.0).cdf).pvalue > LEVEL


def test_extreme_noise_is_continued():
    """Past the table, at noise that no generator makes, draws stay finite, positive and increasing."""
    for dim in (2, 3, 20):
        x = torch.cat([torch.logspace(-30, 1, 200), torch.linspace(11, 60, 50)]).double()
        for c in (0.0, 0.01, 1.0, 100.0, 1e4):
            r = HyperbolicRadius(dim, 1.0, c).transform(torch.nn.functional.pad(x[:, None], (0, dim - 1)).float())
            assert r.isfinite().all() and (r.diff() >= 0).all() and (r > 0).all()


def test_reproducible_with_a_seed():
    space = PoincareBall(2, 1.0)
    for law in (WrappedNormal, RiemannianNormal):
        torch.manual_seed(3)
        a = law(torch.zeros(2), 1.0, space).sample((5,))
        torch.manual_seed(3)
        b = law(torch.zeros(2), 1.0, space).sample((5,))
        assert torch.equal(a, b)
