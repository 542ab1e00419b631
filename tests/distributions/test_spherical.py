"""Riemannian normals and their radius on spheres, against high precision, scipy and draws."""

from __future__ import annotations

import itertools
import math
from functools import cache

import mpmath as mp
import pytest
import torch
from scipy import stats
from torch.distributions import kl_divergence

from curvae import RiemannianNormal, Sphere, SphericalRadius, SphericalUniform, WrappedNormal
from curvae.distributions import kl_quadrature, radial
from distribution_checks import DistributionChecks
from oracles import log_area, mpf, relative

F64 = torch.float64
DIMS = (1, 2, 3, 5, 10, 50)
CELLS = [(1.0, 1e-3), (0.1, 1.0), (1.0, 1.0), (0.1, 10.0), (10.0, 10.0)]
SCALES = torch.tensor([[0.3], [1.0], [4.0]])


class Exact:
    """The density of t = r/σ by Gauss–Legendre sums over many panels, in 30 digits."""

    def __init__(self, q: float, dim: int) -> None:
        self.p, self.n = mpf(-q), dim - 1
        self.kernel = cache(self.kernel)  # the nodes are those of all moments
        end, half = mp.pi / mp.sqrt(self.p), 12 / mp.sqrt(1 + self.n * self.p)
        grid = torch.linspace(0.0, float(min(end, mp.sqrt(self.n) + 9)), 1001)[1:-1].tolist()
        mode = max(grid, key=lambda t: -t * t / 2 + self.n * math.log(math.sin(math.sqrt(-q) * t)))
        self.edges = mp.linspace(max(0, mode - half), min(end, mode + half), 25)
        self.mass = self.integral(lambda t: 1, self.edges)

    def kernel(self, t):
        return mp.exp(-t * t / 2) * (mp.sin(mp.sqrt(self.p) * t) / mp.sqrt(self.p)) ** self.n

    def integral(self, f, edges):
        return mp.quad(lambda t: f(t) * self.kernel(t), edges, method="gauss-legendre", maxdegree=4)

    def mean(self, f):
        return self.integral(f, self.edges) / self.mass

    def cdf(self, t):
        return self.integral(lambda t: 1, mp.linspace(self.edges[0], t, 25)) / self.mass


@pytest.mark.parametrize("dim", DIMS)
def test_densities_moments_and_quantiles(dim):
    p = torch.tensor([1e-6, 0.9], dtype=F64)
    for k, s in CELLS[dim % 2 :: 2]:
        exact = Exact(-k * s * s, dim)
        sigma, c = torch.tensor(s, dtype=F64), torch.tensor(-k, dtype=F64)
        law = SphericalRadius(dim, sigma, c)
        assert relative(radial.log_normaliser(sigma**2 * c, law._kernel), mp.log(exact.mass)) < 1e-13
        mean = exact.mean(lambda t: t)
        assert relative(law.mean, s * mean, floor=0) < 1e-12
        variance = exact.mean(lambda t, m=mean: (t - m) ** 2)
        assert relative(law.variance, mpf(s) ** 2 * variance, floor=0) < 1e-11
        r = law.icdf(p)
        for probability, radius, log_p in zip(p, r, law.log_prob(r), strict=True):
            assert relative(probability, exact.cdf(mpf(radius) / mpf(s)), floor=0) < 1e-10
            t = mpf(radius) / mpf(s)
            assert relative(log_p, mp.log(exact.kernel(t) / exact.mass / mpf(s))) < 1e-12
        torch.testing.assert_close(law.cdf(r), p, rtol=1e-10, atol=0)
        normal = RiemannianNormal(Sphere(dim, c).expmap0(torch.zeros(dim, dtype=F64)), s, Sphere(dim, c))
        entropy = log_area(dim) + dim * mp.log(mpf(s)) + mp.log(exact.mass) + exact.mean(lambda t: t * t) / 2
        assert relative(normal.entropy(), entropy) < 1e-12


@pytest.mark.parametrize("dim", DIMS)
def test_single_precision_draws(dim):
    """Those of the table follow the exact ones, over all of σ√−c from nearly flat to uniform."""
    torch.manual_seed(0)
    noise = torch.randn(2000, dim)
    for s in (1e-4, 1e-3, 0.1, 0.4, 0.55, 0.7, 1.0, 1.7, 3.0, 30.0, 1e4):
        found = SphericalRadius(dim, s).transform(noise)
        exact = SphericalRadius(dim, torch.tensor(s, dtype=F64)).transform(noise[::4].double())  # take long
        assert ((found[::4].double() - exact).abs() / exact).max() < 2e-6
        if s in (0.1, 1.7):
            law = SphericalRadius(dim, torch.tensor(s, dtype=F64))
            assert (
                stats.kstest(found.double().numpy(), lambda r, law=law: law.cdf(torch.tensor(r)).numpy()).pvalue > 1e-3
            )


def test_known_distributions():
    """On a circle, a truncated normal; for small scales, von Mises and Fisher's; for large ones, uniform."""
    r = torch.linspace(0.05, 3.1, 30, dtype=F64)
    for s in (0.6, 1.0, 5.0):
        known = stats.truncnorm(0, math.pi / s, scale=s)
        law = SphericalRadius(1, torch.tensor(s, dtype=F64))
        torch.testing.assert_close(law.log_prob(r), torch.from_numpy(known.logpdf(r)), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(law.icdf(law.cdf(r)), r, rtol=1e-9, atol=0)
        assert float(law.variance) == pytest.approx(known.var(), rel=1e-9)
    space, s = Sphere(2), 1e-3
    centre = torch.tensor([0.0, 0.6, 0.8], dtype=F64)
    z = RiemannianNormal(centre, s, space).sample((5,))
    known = stats.vonmises_fisher(centre.numpy(), kappa=1 / s**2).logpdf(z.numpy())
    torch.testing.assert_close(
        RiemannianNormal(centre, s, space).log_prob(z), torch.from_numpy(known), rtol=0, atol=1e-4
    )
    flat = RiemannianNormal(centre, 1e4, space)
    torch.testing.assert_close(
        flat.log_prob(-centre), torch.tensor(-math.log(4 * math.pi), dtype=F64), rtol=1e-6, atol=0
    )


class TestSphericalRadius(DistributionChecks):
    def make(self, dtype=F64, scale=SCALES[:, 0], c=-1.3, **changes):
        return SphericalRadius(3, scale.to(dtype), c, **changes)

    def parameters(self):
        return {"scale": SCALES[:, 0].double(), "c": torch.tensor([-0.7, -1.0, -2.0], dtype=F64)}

    def outside(self, z):
        return z + math.pi


@pytest.mark.parametrize("dim", [1, 2, 3])
class TestRiemannianNormal(DistributionChecks):
    """On spheres of three radii."""

    @pytest.fixture(autouse=True)
    def of_dim(self, dim):
        self.of = dim

    def make(self, dtype=F64, scale=SCALES, c=-0.8, u=None, **changes):
        space = Sphere(self.of, c)
        u = torch.linspace(-1, 2, 3 * self.of, dtype=F64).view(3, -1) if u is None else u
        return RiemannianNormal(space.expmap0(u.to(dtype)), scale.to(dtype), space, **changes)

    def test_float32_agrees_with_float64(self):
        """Points are rounded, and off the sphere of double precision."""
        single, double = self.make(torch.float32), self.make(validate_args=False)
        z = single.rsample((20,))
        torch.testing.assert_close(single.log_prob(z).double(), double.log_prob(z.double()), rtol=2e-5, atol=2e-5)

    def parameters(self):
        scale, c = SCALES.double(), torch.tensor([-0.7, -1.0, -2.0], dtype=F64)
        return {"scale": scale, "c": c, "u": torch.linspace(-1, 1, 3 * self.of, dtype=F64).view(3, -1)}


@pytest.mark.parametrize("dim", [1, 3])
def test_densities_and_entropies_have_second_derivatives(dim):
    scale, u = torch.tensor([0.05, 0.9, 6.0], dtype=F64), torch.full((3, dim), 0.2, dtype=F64)
    c, target = torch.tensor(-0.9, dtype=F64), torch.full((3, dim), -0.3, dtype=F64)

    def figures(scale, u, c):
        space = Sphere(dim, c)
        p = RiemannianNormal(space.expmap0(u), scale[:, None], space, validate_args=False)
        return p.log_prob(space.expmap0(target)), p.entropy()

    leaves = [t.requires_grad_() for t in (scale, u, c)]
    assert torch.autograd.gradcheck(figures, leaves, atol=1e-5)
    assert torch.autograd.gradgradcheck(figures, leaves, atol=1e-4, rtol=1e-4, fast_mode=True)


@pytest.mark.parametrize("dim", [1, 3])
def test_divergences_are_mean_differences_of_log_densities(dim):
    torch.manual_seed(1)
    for (s, other, apart), k in zip(((0.3, 0.5, 0.7), (2.0, 1.0, 3.1), (0.8, 3.0, 2.0)), (0.3, 1.0, 4.0), strict=True):
        space = Sphere(dim, -k)
        ends = [space.expmap0(torch.eye(1, dim, dtype=F64)[0] * r / math.sqrt(k)) for r in (0.0, apart)]
        p, q = (RiemannianNormal(at, a / math.sqrt(k), space) for at, a in zip(ends, (s, other), strict=True))
        z, log_p = p.rsample_and_log_prob((20_000,))
        found = [(kl_divergence(p, q), log_p - q.log_prob(z))]
        if k == 1.0:
            uniform = SphericalUniform(dim + 1, dtype=F64)
            found.append((kl_divergence(p, uniform), log_p - uniform.log_prob(z)))
        for exact, differences in found:
            assert abs(differences.mean() - exact) < 4 * differences.std() / math.sqrt(20_000)
    own = kl_quadrature(p, RiemannianNormal(p.loc, 0.9, space))
    radii = [SphericalRadius(dim, one.scale[0], -k) for one in (p, RiemannianNormal(p.loc, 0.9, space))]
    torch.testing.assert_close(own, kl_divergence(*radii), rtol=1e-9, atol=1e-10)
    scales = [torch.tensor(x, dtype=F64, requires_grad=True) for x in (0.7, 1.2)]
    assert torch.autograd.gradcheck(
        lambda a, b: kl_divergence(*(RiemannianNormal(at, s, space) for at, s in zip(ends, (a, b), strict=True))),
        scales,
    )


def test_no_figure_is_lost_from_nearly_flat_to_uniform():
    for dim, dtype in itertools.product((1, 2, 10), (torch.float32, F64)):
        scale = torch.logspace(-4, 4, 17, dtype=dtype).requires_grad_()
        p = RiemannianNormal(Sphere(dim).expmap0(torch.ones(17, dim, dtype=dtype)), scale[:, None], Sphere(dim))
        z, log_p = p.rsample_and_log_prob((20,))
        for result in (z, log_p, p.entropy(), p.log_prob(-p.loc)):
            assert result.isfinite().all()
            assert torch.autograd.grad(result.sum(), scale, retain_graph=True)[0].isfinite().all()


def test_what_is_refused():
    space, loc = Sphere(2), torch.tensor([0.0, 0.0, 1.0])
    with pytest.raises(ValueError, match=r"not offered on a sphere: .* infinite opposite to loc; use RiemannianNormal"):
        WrappedNormal(loc, 1.0, space)
    with pytest.raises(
        ValueError, match=r"loc must lie in Sphere\(2, c=-1.0\), got \[.*\]: ξ² − c·\|S\|² is 1 on a sphere"
    ):
        RiemannianNormal(2 * loc, 1.0, space)
    with pytest.raises(ValueError, match="c must be a finite number < 0"):
        SphericalRadius(2, 1.0, 1.0)
    with pytest.raises(NotImplementedError, match=r"needs a normal on Sphere\(2\)"):
        kl_divergence(RiemannianNormal(loc, 1.0, Sphere(2, -2.0)), SphericalUniform(3))
    with pytest.raises(NotImplementedError, match="no bijection leads"):
        torch.distributions.biject_to(RiemannianNormal(loc, 1.0, space).support)
