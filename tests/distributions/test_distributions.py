"""The checks that every distribution inherits, and what is special to each."""

from __future__ import annotations

import itertools
import math
import re
from functools import cache
from typing import ClassVar

import mpmath as mp
import numpy as np
import pytest
import torch
from scipy import integrate
from torch.distributions import kl_divergence

from combining import every_pair
from curvae import Euclidean, HyperbolicRadius, Lorentz, PoincareBall, RiemannianNormal, SphericalUniform, WrappedNormal
from curvae.distributions import kl_quadrature
from distribution_checks import DistributionChecks
from oracles import (
    ball_dist,
    log_riemannian,
    log_wrapped,
    lorentz_to_ball,
    mpf,
    relative,
    vector,
)

CHARTS = {
    "lorentz": lambda d, c: Lorentz(d, c),
    "ball": lambda d, c: PoincareBall(d, c),
    "euclidean": lambda d, _: Euclidean(d),
}
LAWS = {"wrapped": WrappedNormal, "riemannian": RiemannianNormal}
PAIRS = list(itertools.product(CHARTS, LAWS))
NORMALS = pytest.mark.parametrize(
    ("chart", "law"), [(CHARTS[c], LAWS[n]) for c, n in PAIRS], ids=["-".join(p) for p in PAIRS]
)


def off_centre(space, dtype=torch.float64) -> torch.Tensor:
    v = torch.linspace(-0.5, 0.7, space.dim, dtype=dtype)
    return space.expmap0(v)


# --- what every distribution inherits ---------------------------------------------------------------------------------


SCALE = torch.tensor([0.3, 1.0, 2.0], dtype=torch.float64)


class NormalChecks(DistributionChecks):
    """Of a normal distribution in every chart, off the origin."""

    law = WrappedNormal
    spread: ClassVar[dict[str, torch.Tensor]] = {"scale": SCALE[:, None]}

    @pytest.fixture(params=CHARTS, autouse=True)
    def chart(self, request):
        self.space = CHARTS[request.param]

    def make(self, dtype=torch.float64, **changes):
        space = self.space(2, 0.8)
        given = {"loc": off_centre(space).expand(3, 2), **self.spread, **changes}
        cast = {name: v.to(dtype) if isinstance(v, torch.Tensor) else v for name, v in given.items()}
        return self.law(manifold=space, **cast)

    def parameters(self):
        return {"loc": off_centre(self.space(2, 0.8)).expand(3, 2), **self.spread}


class TestWrappedNormal(NormalChecks):
    pass


class TestDiagonalWrappedNormal(NormalChecks):
    spread: ClassVar = {"scale": torch.stack([SCALE, SCALE.flip(0)], -1)}


class TestFullWrappedNormal(NormalChecks):
    spread: ClassVar = {
        "scale_tril": torch.tensor([[1.0, 0.0], [0.4, 0.5]], dtype=torch.float64) * SCALE[:, None, None]
    }

    def parameters(self):
        # Numbers above the diagonal, which differences would move, are not part of it.
        return {name: value for name, value in super().parameters().items() if name != "scale_tril"}


class TestRiemannianNormal(NormalChecks):
    law = RiemannianNormal


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


# --- densities ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("law", "cell", "dim"),
    every_pair(list(LAWS.values()), [(0.0, 0.7), (0.1, 1.0), (1.0, 0.5), (1.4, 1.3), (10.0, 0.3)], [2, 3]),
)
def test_densities_integrate_to_one_over_the_ball(law, cell, dim):
    """∫ p(z)·λ_z^d dz over the ball around an off-centre mean, and E[d(0, z)²] against draws of the definition."""
    c, s = cell
    ball = PoincareBall(dim, c)
    loc = off_centre(ball) if not c else off_centre(ball) * 0.7
    q = law(loc, s, ball)
    # Polar coordinates around the origin: radius, and the angle to loc; densities are symmetric about that axis.
    reach = 2 * float(ball.dist0(loc)) + 9 * s + (dim - 1) * math.sqrt(c) * s * s * 1.2
    axis = loc / loc.norm()
    other = torch.zeros(dim, dtype=torch.float64)
    other[int(axis.abs().argmin())] = 1.0
    other = other - (other @ axis) * axis
    other = other / other.norm()

    def panels(count, order, a, b):
        x, w = map(torch.from_numpy, np.polynomial.legendre.leggauss(order))
        h = (b - a) / count
        edges = a + h * torch.arange(count, dtype=torch.float64)[:, None]
        return (edges + h * (x + 1) / 2).flatten(), (w * h / 2).repeat(count)

    r, wr = panels(24, 12, 0.0, reach)
    theta, wt = panels(10, 12, 0.0, math.pi)
    direction = theta.cos()[:, None] * axis + theta.sin()[:, None] * other
    z = ball.expmap0(r[:, None, None] / 2 * direction)
    size = r if c == 0 else torch.sinh(math.sqrt(c) * r) / math.sqrt(c)
    measure = (wr * size ** (dim - 1))[:, None] * (2 * wt if dim == 2 else 2 * math.pi * wt * theta.sin())
    density = q.log_prob(z).exp() * measure
    assert abs(float(density.sum()) - 1) < 1e-6
    mean_square = float((density * r[:, None] ** 2).sum())
    draws = ball.dist0(law(loc.float(), s, ball).sample((200_000,)).double()).square()
    assert abs(mean_square - draws.mean()) < 5 * draws.std() / math.sqrt(200_000)


@pytest.mark.parametrize("chart", [Lorentz, PoincareBall])
@pytest.mark.parametrize("law", list(LAWS.values()))
@pytest.mark.parametrize("c", [1e-6, 0.3, 2.0])
def test_density_is_invariant_under_isometries(chart, law, c):
    """Rotate and translate loc and z together: nothing changes."""
    ball = PoincareBall(3, c)
    loc, z, a = (ball.random(20, scale=0.7 / math.sqrt(c), dtype=torch.float64) for _ in range(3))
    rotation = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))[0]
    space = chart(3, c)
    same = (lambda x: x) if chart is PoincareBall else ball.to_lorentz
    move = lambda x: same(ball.mobius_add(a, x) @ rotation)  # noqa: E731
    before = law(same(loc), 0.5 / math.sqrt(c), space).log_prob(same(z))
    after = law(move(loc), 0.5 / math.sqrt(c), space).log_prob(move(z))
    torch.testing.assert_close(after, before, rtol=1e-8, atol=1e-8)


@NORMALS
def test_draw_and_density_agree(chart, law):
    space = chart(3, 0.9)
    q = law(off_centre(space), 0.8, space)
    noise = torch.randn(50, 3, dtype=torch.float64)
    z, log_q = q.transform_and_log_prob(noise)
    torch.testing.assert_close(q.transform(noise), z)
    torch.testing.assert_close(q.log_prob(z), log_q, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_curvature_zero_is_the_euclidean_normal(dtype):
    loc, z = torch.randn(2, 6, 3, dtype=dtype)
    noise = torch.randn(6, 3, dtype=dtype)
    gauss = torch.distributions.Independent(torch.distributions.Normal(loc, torch.tensor(0.7, dtype=dtype)), 1)
    eps = 8 * torch.finfo(dtype).eps
    for law in LAWS.values():
        for space in (Euclidean(3), Lorentz(3, 0.0)):
            q = law(loc, 0.7, space)
            torch.testing.assert_close(q.log_prob(z), gauss.log_prob(z), rtol=eps, atol=eps)
            torch.testing.assert_close(q.transform(noise), loc + 0.7 * noise, rtol=eps, atol=eps)
            torch.testing.assert_close(q.entropy().expand(6), gauss.entropy(), rtol=eps, atol=eps)
        tiny = law(loc.double(), 0.7, Lorentz(3, 1e-12))
        torch.testing.assert_close(tiny.log_prob(z.double()), gauss.log_prob(z).double(), rtol=2e-6, atol=2e-6)


@NORMALS
@pytest.mark.parametrize("c", [0.0, 1e-6, 1.0])
def test_finite_at_the_degenerate_points(chart, law, c):
    """loc = 0, z = loc, noise = 0, tiny σ: values and gradients."""
    k = torch.tensor(c, requires_grad=True)
    space = chart(3, k)
    zero = torch.zeros(3, requires_grad=True)
    for s in (1e-4, 1.0):
        scale = torch.tensor(s, requires_grad=True)
        q = law(zero, scale, space)
        noise = torch.zeros(3, requires_grad=True)
        z, log_q = q.transform_and_log_prob(noise)
        for out in (q.log_prob(zero), q.log_prob(zero.detach() + 0.5 * s), z.sum(), log_q, q.entropy()):
            grads = torch.autograd.grad(out, (zero, scale, k, noise), retain_graph=True, allow_unused=True)
            assert out.isfinite() and all(g.isfinite().all() for g in grads if g is not None)


def test_riemannian_score_at_the_mode_is_zero_and_the_wrapped_one_too():
    for law in LAWS.values():
        loc = torch.tensor([0.2, 0.1], requires_grad=True)
        (g,) = torch.autograd.grad(law(loc, 0.5, PoincareBall(2)).log_prob(loc.detach()), loc)
        assert g.abs().max() < 1e-6


# --- gradients ------------------------------------------------------------------------------------------------------


@NORMALS
def test_gradcheck_in_every_parameter(chart, law):
    c = torch.tensor(0.8, dtype=torch.float64, requires_grad=True)
    loc = off_centre(chart(2, 0.8)).requires_grad_()
    s = torch.tensor(0.6, dtype=torch.float64, requires_grad=True)
    noise = torch.randn(2, dtype=torch.float64)
    point = chart(2, 0.8).random(dtype=torch.float64)

    def q(loc, s, c):
        return law(loc, s, chart(2, c), validate_args=False)

    for f in (
        lambda *p: q(*p).transform(noise),
        lambda *p: q(*p).transform_and_log_prob(noise)[1],
        lambda *p: q(*p).log_prob(point),
        lambda *p: q(*p).entropy(),
        lambda *p: kl_quadrature(q(*p), law(torch.zeros(2, dtype=torch.float64), 1.3, chart(2, p[2]))),
    ):
        assert torch.autograd.gradcheck(f, (loc, s, c), atol=1e-7)
    # Densities have every order.
    assert torch.autograd.gradgradcheck(lambda *p: q(*p).log_prob(point), (loc, s, c), atol=1e-6)
    assert torch.autograd.gradgradcheck(lambda *p: q(*p).entropy(), (loc, s, c), atol=1e-6)


def test_draws_differentiate_in_the_noise():
    for dtype, eps, atol in ((torch.float64, 1e-6, 1e-7), (torch.float32, 1e-2, 3e-3)):
        q = RiemannianNormal(torch.zeros(3, dtype=dtype), 0.9, Lorentz(3, 1.0))
        noise = torch.randn(3, dtype=dtype, requires_grad=True)
        (g,) = torch.autograd.grad(q.transform(noise)[0], noise)
        for i in range(3):
            step = torch.zeros(3, dtype=dtype)
            step[i] = eps
            slope = (q.transform(noise + step)[0] - q.transform(noise - step)[0]) / (2 * eps)
            assert abs(float((slope - g[i]).detach())) < atol


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_second_derivative_of_a_draw_raises(dtype):
    s = torch.tensor(0.5, dtype=dtype, requires_grad=True)
    z = RiemannianNormal(torch.zeros(2, dtype=dtype), s, PoincareBall(2)).rsample((4,))
    (g,) = torch.autograd.grad(z.square().sum(), s, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivative of a draw"):
        torch.autograd.grad(g, s)
    r = HyperbolicRadius(3, s, 1.0)
    (g,) = torch.autograd.grad(r.icdf(torch.tensor(0.3, dtype=dtype)), s, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivative of a draw"):
        torch.autograd.grad(g, s)


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
    """∂F/∂σ and ∂F/∂c are the covariances of the score with the event, by 40 digits of quadrature."""
    with mp.workdps(40):
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


# --- Kullback–Leibler -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second"), list(itertools.product(LAWS.values(), repeat=2)))
@pytest.mark.parametrize(
    ("dim", "c", "s", "s0", "radius"),
    [(1, 1.0, 0.4, 1.0, 0.8), (2, 1.0, 0.3, 1.2, 1.5), (2, 0.2, 1.0, 1.0, 4.0), (3, 1.4, 0.8, 1.7, 6.0)],
)
def test_kl_quadrature_against_an_independent_integral(first, second, dim, c, s, s0, radius):
    """Over the tangent space at loc in Cartesian or polar form with scipy, densities from the paper's formulas."""
    space = Lorentz(dim, c)
    loc = space.expmap0(torch.nn.functional.one_hot(torch.tensor(0), dim).double() * radius)
    q, p = first(loc, s, space), second(torch.zeros(dim, dtype=torch.float64), s0, space)
    names = {WrappedNormal: log_wrapped, RiemannianNormal: log_riemannian}
    root = math.sqrt(c)
    constant = {(f, x): float(f(mp.mpf(0), mpf(x), mpf(c), dim)) for f, x in ((names[first], s), (names[second], s0))}

    def log_density(f, r, sigma):
        bend = 0.0 if f is log_riemannian or r == 0 else (dim - 1) * math.log(root * r / math.sinh(root * r))
        return constant[f, sigma] - r * r / (2 * sigma**2) + bend

    def integrand(theta, r):
        cosh = math.cosh(root * r) * math.cosh(root * radius) + math.sinh(root * r) * math.sinh(
            root * radius
        ) * math.cos(theta)
        log_q = log_density(names[first], r, s)
        log_p = log_density(names[second], math.acosh(max(cosh, 1.0)) / root, s0)
        measure = (math.sinh(root * r) / root) ** (dim - 1)
        return math.exp(log_q) * measure * (log_q - log_p)

    end = 12 * s + (dim - 1) * root * s * s * 1.5
    if dim == 1:
        exact = sum(integrate.quad(lambda r, t=t: integrand(t, r), 0, end, limit=200)[0] for t in (0.0, math.pi))
    else:
        weight = (lambda t: 2.0) if dim == 2 else (lambda t: 2 * math.pi * math.sin(t))
        exact = integrate.dblquad(
            lambda t, r: integrand(t, r) * weight(t), 0, end, 0, math.pi, epsabs=1e-9, epsrel=1e-9
        )[0]
    assert abs(float(kl_quadrature(q, p)) - exact) < 2e-7 * max(1, exact)


def test_kl_quadrature_at_any_dimension_and_far_out():
    for dim, c, s0 in ((20, 1.4, 1.0), (100, 10.0, 10.0), (50, 0.0, 1.0)):
        for law in LAWS.values():
            space = Lorentz(dim, c)
            loc = space.expmap0(torch.ones(1, dim, dtype=torch.float64))
            p = law(torch.zeros(dim, dtype=torch.float64), s0, space)
            q = law(loc, torch.tensor([[0.4]], dtype=torch.float64), space)
            value = kl_quadrature(q, p)
            z, log_q = q.rsample_and_log_prob((4000,))
            sample = log_q - p.log_prob(z)
            assert value.isfinite().all()
            assert abs(float(sample.mean() - value)) < 6 * float(sample.std()) / math.sqrt(4000)
            assert abs(float(kl_quadrature(p, p))) < 1e-6 * max(1, abs(float(p.entropy())))


@pytest.mark.parametrize(("first", "second"), list(itertools.product(LAWS.values(), repeat=2)))
def test_divergence_depends_on_the_distance_of_the_centres_alone(first, second):
    """Moved by an isometry of the ball, and given in either chart, so that the second centre is the origin or not."""
    ball, lorentz = PoincareBall(3, 0.7), Lorentz(3, 0.7)
    loc, move = ball.random(2, 5, scale=0.8, dtype=torch.float64)
    s, s0 = torch.rand(2, 5, 1, dtype=torch.float64) + 0.3
    at_origin = kl_quadrature(first(loc, s, ball), second(torch.zeros_like(loc), s0, ball))
    moved = first(ball.mobius_add(move, loc), s, ball), second(move, s0, ball)
    torch.testing.assert_close(kl_divergence(*moved), at_origin, rtol=1e-9, atol=1e-10)
    mixed = first(ball.to_lorentz(moved[0].loc), s, lorentz)
    torch.testing.assert_close(kl_divergence(mixed, moved[1]), at_origin, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(("first", "second"), list(itertools.product(LAWS.values(), repeat=2)))
@pytest.mark.parametrize(("chart", "far"), [(Lorentz, 30.0), (Lorentz, 60.0), (Lorentz, 150.0), (PoincareBall, 30.0)])
def test_divergence_of_distributions_near_and_far(first, second, chart, far):
    """Their distance, and with it the divergence, as mpmath has it; not the same in both orders of far and near."""
    space = chart(2, 1.0)
    size = math.tanh(far / 2) if chart is PoincareBall else math.sinh(far)
    x = size * torch.tensor([math.cos(0.3), math.sin(0.3)], dtype=torch.float64)
    for y in (torch.tensor([0.1, 0.2], dtype=torch.float64), -x, size * torch.tensor([0.0, 1.0], dtype=torch.float64)):
        with mp.workdps(200):
            a, b = (vector(z) if chart is PoincareBall else lorentz_to_ball(vector(z), mp.mpf(1)) for z in (x, y))
            apart = float(ball_dist(a, b, mp.mpf(1)))
        line, zero = Lorentz(2, 1.0), torch.zeros(2, dtype=torch.float64)
        moved = line.expmap0(torch.tensor([apart / 2, 0.0], dtype=torch.float64))
        expected = kl_quadrature(first(moved, 0.7, line), second(-moved, 1.1, line))
        for one, other in ((x, y), (y, x)):
            found = kl_divergence(first(one, 0.7, space), second(other, 1.1, space))
            torch.testing.assert_close(found, expected, rtol=2e-13 if chart is Lorentz else 1e-4, atol=0)
            assert found.isfinite() and expected > 0.4 * apart**2
        assert kl_divergence(first(zero, 0.7, line), second(zero, 1.1, line)) < 1


@pytest.mark.parametrize("chart", [Lorentz, PoincareBall])
def test_divergence_on_a_line_is_that_of_gaussians(chart):
    """At d = 1 every curvature is a line, on which both distributions are Gaussian."""
    space = chart(1, 2.0)
    x, y = torch.tensor([[0.3], [-1.1]], dtype=torch.float64)
    a, b = (space.expmap0(v / space.lambda_x(torch.zeros(1, dtype=torch.float64))) for v in (x, y))
    p, q = WrappedNormal(a, 0.4, space), RiemannianNormal(b, 0.9, space)
    normal = torch.distributions.Normal
    exact = kl_divergence(normal(x[0], 0.4), normal(y[0], 0.9))
    torch.testing.assert_close(kl_divergence(p, q), exact, rtol=1e-12, atol=0)
    torch.testing.assert_close(kl_quadrature(p, q), exact, rtol=1e-10, atol=0)
    full = WrappedNormal(a, manifold=space, scale_tril=torch.tensor([[0.4]], dtype=torch.float64))
    torch.testing.assert_close(kl_divergence(full, q), exact, rtol=1e-12, atol=0)


def test_divergence_where_the_curvature_is_a_tensor():
    loc, zero = torch.full((4, 2), 0.3, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    c = torch.tensor([1e-3, 0.5, 1.0, 2.0], dtype=torch.float64, requires_grad=True)
    space = Lorentz(2, c)

    def kl(c):
        space = Lorentz(2, c)
        return kl_divergence(WrappedNormal(loc, 0.5, space), WrappedNormal(zero.expand(4, 2), 1.0, space))

    assert torch.autograd.gradcheck(kl, (c,), atol=1e-6)
    assert kl(c).shape == (4,)
    with pytest.raises(NotImplementedError, match="same space"):
        kl_divergence(WrappedNormal(loc, 0.5, space), WrappedNormal(loc, 1.0, Lorentz(2, c + 1)))


def test_registered_divergences():
    p, q = (
        HyperbolicRadius(3, torch.tensor(0.5, dtype=torch.float64), 1.0),
        HyperbolicRadius(3, torch.tensor(0.9, dtype=torch.float64), 1.0),
    )
    exact = integrate.quad(
        lambda r: float(
            p.log_prob(torch.tensor(r, dtype=torch.float64)).exp()
            * (p.log_prob(torch.tensor(r, dtype=torch.float64)) - q.log_prob(torch.tensor(r, dtype=torch.float64)))
        ),
        1e-9,
        12,
    )[0]
    assert abs(float(kl_divergence(p, q)) - exact) < 1e-8
    with pytest.raises(NotImplementedError, match="equal dim and c"):
        kl_divergence(p, HyperbolicRadius(3, 1.0, 2.0))
    flat = Euclidean(2)
    tril = torch.tensor([[0.8, 0.0], [0.3, 0.6]])
    a = WrappedNormal(torch.tensor([0.3, -1.0]), manifold=flat, scale_tril=tril)
    b = WrappedNormal(torch.zeros(2), torch.tensor([0.5, 1.5]), flat)
    exact = kl_divergence(
        torch.distributions.MultivariateNormal(a.loc, scale_tril=tril),
        torch.distributions.MultivariateNormal(b.loc, scale_tril=torch.diag(b.scale)),
    )
    torch.testing.assert_close(kl_divergence(a, b), exact)
    for wide in (
        WrappedNormal(torch.zeros(2), torch.ones(2), PoincareBall(2)),
        WrappedNormal(torch.zeros(2), manifold=PoincareBall(2), scale_tril=tril),
    ):
        with pytest.raises(NotImplementedError, match=r"rsample_and_log_prob"):
            kl_divergence(wide, RiemannianNormal(torch.zeros(2), 1.0, PoincareBall(2)))
    with pytest.raises(NotImplementedError, match="same space"):
        kl_divergence(WrappedNormal(torch.zeros(2), 1.0, PoincareBall(2)), WrappedNormal(torch.zeros(2), 1.0, flat))
    with pytest.raises(ValueError, match="isotropic"):
        kl_quadrature(
            WrappedNormal(torch.zeros(2), torch.ones(2), PoincareBall(2)),
            WrappedNormal(torch.zeros(2), 1.0, PoincareBall(2)),
        )
    with pytest.raises(ValueError, match="same space"):
        kl_quadrature(
            WrappedNormal(torch.zeros(2), 1.0, PoincareBall(2)),
            WrappedNormal(torch.zeros(2), 1.0, PoincareBall(2, 0.5)),
        )


# --- arguments ------------------------------------------------------------------------------------------------------


def test_argument_errors_name_parameter_and_value():
    ball = PoincareBall(2)
    with pytest.raises(ValueError, match=r"scale must be positive and finite, got -1.0"):
        WrappedNormal(torch.zeros(2), -1.0, ball)
    with pytest.raises(ValueError, match=r"\[2.0, 0.0\].*c·\|z\|² < 1"):
        RiemannianNormal(torch.tensor([2.0, 0.0]), 1.0, ball)
    with pytest.raises(ValueError, match=r"loc must have shape \(…, 2\)"):
        WrappedNormal(torch.zeros(3), 1.0, ball)
    with pytest.raises(ValueError, match=r"as many dimensions as loc, 2, the last of size 1 or 2; got scale"):
        WrappedNormal(torch.zeros(4, 2), torch.ones(2), ball)
    with pytest.raises(ValueError, match=r"the last of size 1; got scale of shape \(4, 2\)"):
        RiemannianNormal(torch.zeros(4, 2), torch.ones(4, 2), ball)
    with pytest.raises(ValueError, match="scale_tril must be lower triangular"):
        WrappedNormal(torch.zeros(2), manifold=ball, scale_tril=-torch.eye(2))
    with pytest.raises(ValueError, match=r"scale_tril must have shape \(…, 2, 2\)"):
        WrappedNormal(torch.zeros(2), manifold=ball, scale_tril=torch.eye(3))
    with pytest.raises(TypeError, match="either scale or scale_tril, got neither"):
        WrappedNormal(torch.zeros(2), manifold=ball)
    with pytest.raises(TypeError, match="either scale or scale_tril, got both"):
        WrappedNormal(torch.zeros(2), 1.0, ball, scale_tril=torch.eye(2))
    with pytest.raises(TypeError, match="scale must be a number or a tensor, got NoneType"):
        RiemannianNormal(torch.zeros(2), None, ball)
    for kind in (WrappedNormal, RiemannianNormal):
        with pytest.raises(TypeError, match="manifold must be a manifold such as .*, got NoneType"):
            kind(torch.zeros(2), 1.0)
        for bad, name in ((None, "NoneType"), ("ball", "str"), (PoincareBall, "ABCMeta")):
            with pytest.raises(TypeError, match=rf"manifold must be a manifold such as .*, got {name}"):
                kind(torch.zeros(2), 1.0, bad)
    with pytest.raises(ValueError, match="scale"):
        HyperbolicRadius(2, 0.0)
    with pytest.raises(ValueError, match="curvature of the space is −c, got c = -1"):
        HyperbolicRadius(2, 1.0, -1.0)
    with pytest.raises(ValueError, match="between 0 and 1, got 1.5"):
        HyperbolicRadius(2, 1.0).icdf(torch.tensor(1.5))
    with pytest.raises(ValueError, match=r"within the support .GreaterThanEq.lower_bound=0.*got -1.0"):
        HyperbolicRadius(2, 1.0).log_prob(torch.tensor(-1.0))
    for bad in (0, 2.0):
        with pytest.raises(ValueError, match="positive integer"):
            HyperbolicRadius(bad, 1.0)
        with pytest.raises(ValueError, match="positive integer"):
            SphericalUniform(bad)


@pytest.mark.parametrize("value", [1e300, 10**400])
def test_numbers_beyond_the_dtype_are_refused(value):
    says = pytest.raises(
        ValueError, match=r"scale must be a number that torch.float32 can hold, at most 3.4e.38, got 1"
    )
    for kind in (WrappedNormal, RiemannianNormal):
        for validate in (None, False):
            with says:
                kind(torch.zeros(2), value, PoincareBall(2), validate_args=validate)
    with says:
        HyperbolicRadius(2, value)
    with pytest.raises(ValueError, match="c must be a number that torch.float32 can hold"):
        HyperbolicRadius(2, 1.0, value)
    with pytest.raises(ValueError, match="scale must be positive and finite, got inf"):
        WrappedNormal(torch.zeros(2), math.inf, PoincareBall(2))
    assert float(WrappedNormal(torch.zeros(2, dtype=torch.float64), 1e149, PoincareBall(2)).scale) == 1e149


def test_numbers_too_small_for_the_dtype_are_refused():
    with pytest.raises(
        ValueError, match="scale is too small for torch.float32: it must be at least 1.4e-45, got 1e-300"
    ):
        WrappedNormal(torch.zeros(2), 1e-300, PoincareBall(2))
    assert float(WrappedNormal(torch.zeros(2, dtype=torch.float64), 1e-300, PoincareBall(2)).scale) == 1e-300


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("chart", [PoincareBall, Lorentz])
@pytest.mark.parametrize(
    ("kind", "dim", "c", "largest"),
    [
        (RiemannianNormal, 2, 1.0, 1e6),
        (RiemannianNormal, 5, 4.0, 1.25e5),
        (RiemannianNormal, 2, 0.0, 1e150),
        (RiemannianNormal, 1, 1.0, 5e149),
        (WrappedNormal, 2, 1.0, 5e149),
    ],
)
def test_a_scale_is_refused_or_gives_finite_values(kind, dim, c, largest, chart, dtype):
    loc, space = torch.zeros(dim, dtype=dtype), chart(dim, c)
    below, above = (torch.tensor([share * largest], dtype=dtype) for share in (0.999, 1.001))
    if above.isfinite():
        with pytest.raises(ValueError, match=re.escape(f"scale must be at most {largest:.3g} for this")):
            kind(loc, above, space)
    below = below.clamp(max=1e37)  # float32
    p = kind(loc, below, space)
    z, log_p = p.rsample_and_log_prob((20,))
    assert space.contains(z).all() and log_p.isfinite().all()
    assert p.log_prob(loc).isfinite() and p.entropy().isfinite()


def test_the_largest_scale_depends_on_each_curvature():
    space, zeros = Lorentz(3, torch.tensor([0.0, 1.0, 100.0])), torch.zeros(3, 3)
    with pytest.raises(ValueError, match=r"scale must be at most 5e\+04 for this distribution and c, got 60000.0"):
        RiemannianNormal(zeros, 6e4, space)
    with pytest.raises(ValueError, match=r"scale must be at most 5e\+05 for this distribution and c, got 1000000.0"):
        HyperbolicRadius(3, 1e6)
    one = torch.vmap(lambda s: RiemannianNormal(torch.zeros(3), s, Lorentz(3)).log_prob(torch.zeros(3)))
    with pytest.raises(ValueError, match=r"scale must be smaller for this distribution and c, got 1000000.0"):
        one(torch.tensor([[1.0], [1e6]]))
    tril = torch.tensor([[1.0, 0.0], [1e160, 1.0]], dtype=torch.float64)
    with pytest.raises(ValueError, match=r"each row of scale_tril must be at most 5e\+149"):
        WrappedNormal(torch.zeros(2), manifold=PoincareBall(2), scale_tril=tril)


def test_parameters_that_do_not_broadcast_are_refused():
    loc, ball = torch.zeros(3, 2), PoincareBall(2)
    says = r"loc and scale must have batch shapes that broadcast, got loc of shape \(3, 2\) and scale of shape \(4, 1\)"
    for kind in (WrappedNormal, RiemannianNormal):
        with pytest.raises(ValueError, match=says):
            kind(loc, torch.ones(4, 1), ball)
    with pytest.raises(ValueError, match=r"got loc of shape \(3, 2\) and scale_tril of shape \(4, 2, 2\)"):
        WrappedNormal(loc, manifold=ball, scale_tril=torch.eye(2).expand(4, 2, 2))
    with pytest.raises(ValueError, match=r"got scale of shape \(3,\) and c of shape \(4,\)"):
        HyperbolicRadius(2, torch.ones(3), torch.ones(4))


def test_noise_of_another_shape_is_refused():
    ball = PoincareBall(2)
    normals = [WrappedNormal(torch.zeros(3, 2), 1.0, ball), RiemannianNormal(torch.zeros(3, 2), 1.0, ball)]
    for p in (*normals, HyperbolicRadius(2, torch.ones(3)), SphericalUniform(2).expand((3,))):
        assert p.transform(torch.randn(5, 3, 2)).shape[:2] == (5, 3)
        for shape in ((3, 1), (3, 3), (4, 2), (2, 4, 2), ()):
            with pytest.raises(ValueError, match=r"noise must have shape \(…, 3, 2\), got"):
                p.transform(torch.randn(shape))


def test_lists_and_arrays_are_refused_by_name():
    ball = PoincareBall(2)
    for bad in ([0.1, 0.2], np.array([0.1, 0.2]), "half", None):
        with pytest.raises(TypeError, match="loc must be a tensor"):
            WrappedNormal(bad, 1.0, ball)
        with pytest.raises(TypeError, match="value must be a tensor"):
            RiemannianNormal(torch.zeros(2), 1.0, ball).log_prob(bad)
        with pytest.raises(TypeError, match="noise must be a tensor"):
            RiemannianNormal(torch.zeros(2), 1.0, ball).transform(bad)
        with pytest.raises(TypeError, match="scale must be a number or a tensor, got"):
            HyperbolicRadius(2, bad)
    with pytest.raises(TypeError, match="value must hold real numbers"):
        HyperbolicRadius(2, 1.0).log_prob(torch.tensor(1j))
    assert RiemannianNormal(torch.zeros(2, dtype=torch.int64), 1, ball).log_prob(torch.zeros(2)).dtype == torch.float32


def test_curvatures_of_another_batch_shape_are_refused():
    with pytest.raises(ValueError, match=r"c of shape \(3, 1\) does not broadcast against the batch shape \(3,\)"):
        WrappedNormal(torch.zeros(3, 2), 1.0, Lorentz(2, torch.ones(3, 1)))
    assert WrappedNormal(torch.zeros(3, 2), 1.0, Lorentz(2, torch.ones(3))).batch_shape == (3,)


def test_a_draw_beyond_the_coordinates_saturates_or_raises():
    """The density from the draw stays right; validate_args=True raises instead."""
    far = {"ball": (PoincareBall(20, 1.4), 1.0), "lorentz": (Lorentz(100, 10.0), 10.0)}
    for space, s in far.values():
        loc = torch.zeros(space.dim)
        q = RiemannianNormal(loc, s, space)
        noise = torch.randn(10, space.dim)
        z, log_q = q.transform_and_log_prob(noise)
        assert space.contains(z).all() and z.isfinite().all()
        exact = RiemannianNormal(loc.double(), s, space).transform_and_log_prob(noise.double())[1]
        torch.testing.assert_close(log_q, exact.float(), rtol=1e-5, atol=0)
        lorentz = "Lorentz coordinates or " if isinstance(space, PoincareBall) else ""
        for dtype, float64 in ((torch.float32, "float64 or "), (torch.float64, "")):
            says = rf"farther out than {dtype} can hold .*; use {lorentz}{float64}a smaller scale: .*, got \d+"
            with pytest.raises(ValueError, match=says):
                RiemannianNormal(loc.to(dtype), 40 * s, space, validate_args=True).rsample((10,))


def test_constraints_are_declared():
    q = WrappedNormal(torch.zeros(2), 1.0, PoincareBall(2))
    assert set(q.arg_constraints) == {"loc", "scale"} and q.support.event_dim == 1
    assert set(WrappedNormal(torch.zeros(2), manifold=PoincareBall(2), scale_tril=torch.eye(2)).arg_constraints) == {
        "loc",
        "scale_tril",
    }
    assert q.has_rsample and "Inside(PoincareBall(2, c=1.0))" in repr(q.support)
    torch.testing.assert_close(q.mode, q.mean)
