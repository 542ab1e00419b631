"""Divergences against independent integrals."""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import pytest
import torch
from scipy import integrate
from torch.distributions import kl_divergence

from curvae import Euclidean, HyperbolicRadius, Lorentz, PoincareBall, RiemannianNormal, WrappedNormal
from curvae.distributions import kl_quadrature
from oracles import ball_dist, log_riemannian, log_wrapped, lorentz_to_ball, mpf, vector

LAWS = {"wrapped": WrappedNormal, "riemannian": RiemannianNormal}


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
