"""Normal distributions: checks that all distributions inherit, what is special to each, and one of the user's own."""

from __future__ import annotations

import itertools
import math
import re
from copy import deepcopy
from typing import ClassVar

import mpmath as mp
import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch.distributions import kl_divergence

from another_distribution import HeavyTailed
from combining import every_pair
from curvae import Euclidean, HyperbolicRadius, Lorentz, PoincareBall, RiemannianNormal, SphericalUniform, WrappedNormal
from curvae.distributions import HyperbolicNormal, ProductNormal, kl_quadrature
from curvae.distributions.step import draw_and_divergence
from curvae.models import VAE, Gaussian, Posterior, Stack, marginal_likelihood
from curvae.nn import Space, decoder, mlp
from distribution_checks import DistributionChecks
from oracles import ball_dist, log_riemannian, log_wrapped, lorentz_to_ball, mpf, relative, vector

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


# --- a subclass without a fused step, written against the documented hooks alone -------------------------------------


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
    optimiser, losses = torch.optim.Adam(stack.leaves.values(), 0.04), []
    for _ in range(40):
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


# --- products of distributions ---------------------------------------------------------------------------------------


DENSITIES = {WrappedNormal: log_wrapped, RiemannianNormal: log_riemannian}


# dimension, curvature, standard deviation
SPACES = [(2, 1.2, 0.7), (3, 0.0, 1.3), (1, 0.4, 0.5)]


KINDS = pytest.mark.parametrize("kind", [WrappedNormal, RiemannianNormal])


def factors(kind, batch=(), seed=0, scale=1.0, dtype=F64):
    generator = torch.Generator().manual_seed(seed)
    made = []
    for dim, c, sigma in SPACES:
        space = Lorentz(dim, torch.tensor(c, dtype=F64))
        loc = space.expmap0(0.6 * torch.randn(*batch, dim, generator=generator, dtype=F64)).to(dtype)
        made.append(kind(loc, torch.full((*batch, 1), scale * sigma, dtype=dtype), space))
    return made


@KINDS
def test_the_log_density_is_the_sum_of_those_of_the_factors(kind):
    q = ProductNormal(factors(kind))
    for z in q.sample((5,)):
        total, start = mp.mpf(0), 0
        for factor, (dim, c, sigma) in zip(q.factors, SPACES, strict=True):
            both = (lorentz_to_ball(vector(x), mpf(c)) for x in (factor.loc, z[start : start + dim]))
            total += DENSITIES[kind](ball_dist(*both, mpf(c)), mpf(sigma), mpf(c), dim)
            start += dim
        assert relative(q.log_prob(z), total) < 1e-12


def test_a_flat_product_is_the_normal_of_scipy():
    loc, scales = torch.tensor([0.3, -1.0, 2.0, 0.1], dtype=F64), (0.5, 2.0)
    parts = zip(loc.split(2), scales, (Euclidean(2), Lorentz(2, 0.0)), strict=True)
    q = ProductNormal([WrappedNormal(part, torch.tensor([s], dtype=F64), space) for part, s, space in parts])
    normal = stats.multivariate_normal(loc.numpy(), [0.25, 0.25, 4.0, 4.0])
    z = q.sample((20,))
    torch.testing.assert_close(q.log_prob(z), torch.from_numpy(normal.logpdf(z.numpy())))
    assert float(q.entropy()) == pytest.approx(normal.entropy(), rel=1e-12)
    torch.testing.assert_close(q.mean, loc)
    noise = torch.randn(6, 4, dtype=F64)
    torch.testing.assert_close(q.transform(noise), loc + noise * torch.tensor([0.5, 0.5, 2.0, 2.0], dtype=F64))


@KINDS
def test_draws_have_the_density_that_is_given_with_them(kind):
    q = ProductNormal(factors(kind, (3,)))
    assert q.batch_shape == (3,) and q.event_shape == (6,) and q.has_rsample
    z, log_q = q.rsample_and_log_prob((50,))
    assert z.shape == (50, 3, 6) and bool(q.support.check(z).all())
    torch.testing.assert_close(log_q, q.log_prob(z), rtol=1e-9, atol=1e-9)
    noise = torch.randn(4, 3, 6, dtype=F64)
    alone = [factor.transform(part) for factor, part in zip(q.factors, noise.split([2, 3, 1], -1), strict=True)]
    torch.testing.assert_close(q.transform(noise), torch.cat(alone, -1), rtol=0, atol=0)
    torch.testing.assert_close(q.mean, torch.cat([factor.loc for factor in q.factors], -1))


@KINDS
def test_entropy_and_divergence_are_those_of_many_draws(kind):
    q, p = ProductNormal(factors(kind)), ProductNormal(factors(kind, seed=1, scale=1.2))
    z, log_q = q.rsample_and_log_prob((20_000,))
    for figure, draws in ((q.entropy(), -log_q), (kl_divergence(q, p), log_q - p.log_prob(z))):
        assert abs(float(figure) - float(draws.mean())) < 4.5 * float(draws.std()) / math.sqrt(len(draws))
    torch.testing.assert_close(kl_divergence(q, q), torch.zeros((), dtype=F64), rtol=0, atol=1e-9)
    with pytest.raises(NotImplementedError, match="same factors, got 3 and 2"):
        kl_divergence(q, ProductNormal(p.factors[:2]))
    with pytest.raises(NotImplementedError, match="same space"):
        kl_divergence(q, ProductNormal(p.factors[::-1]))


@KINDS
def test_gradients(kind):
    u = [torch.randn(dim, dtype=F64, requires_grad=True) for dim, _, _ in SPACES]
    scales = [torch.tensor([s], dtype=F64, requires_grad=True) for _, _, s in SPACES]
    curvatures = [torch.tensor(c, dtype=F64, requires_grad=True) for _, c, _ in SPACES[::2]]
    noise, at = torch.randn(2, 6, dtype=F64), 0.3 * torch.randn(6, dtype=F64)

    def figures(*leaves):
        u, scales, (first, last) = leaves[:3], leaves[3:6], leaves[6:]
        spaces = [Lorentz(2, first), Euclidean(3), Lorentz(1, last)]
        q = ProductNormal([kind(m.expmap0(v), s, m) for v, s, m in zip(u, scales, spaces, strict=True)])
        return *q.transform_and_log_prob(noise), q.log_prob(at), q.entropy()

    assert torch.autograd.gradcheck(figures, [*u, *scales, *curvatures], atol=1e-6)


def test_expanding_keeps_the_class_and_the_figures():
    class Named(ProductNormal):
        pass

    q = Named(factors(WrappedNormal))
    wide = q.expand((4, 3))
    assert type(wide) is Named and wide.batch_shape == (4, 3) and wide.sample((2,)).shape == (2, 4, 3, 6)
    z = wide.sample()
    torch.testing.assert_close(wide.log_prob(z), q.log_prob(z))
    torch.testing.assert_close(wide.entropy(), q.entropy().expand(4, 3))
    with pytest.raises(RuntimeError):
        wide.expand((5,))


def test_points_outside_are_found_in_every_factor():
    ball = PoincareBall(2, 1.0)
    q = ProductNormal([WrappedNormal(torch.zeros(2), 1.0, space) for space in (ball, Euclidean(2), ball)])
    inside = torch.tensor([[0.1, 0.2, 9.0, -9.0, 0.3, 0.0]])
    wrong = inside.repeat(3, 1)
    wrong[0, 0], wrong[1, 5], wrong[2, 2] = 1.5, -1.0, math.inf
    assert q.support.check(inside).tolist() == [True] and q.support.check(inside[0]).item()
    assert q.support.check(wrong).tolist() == [False, False, False]
    assert "InsideProduct" in repr(q.support) and q.support.event_dim == 1 and not q.support.is_discrete
    assert math.isfinite(q.log_prob(inside))
    for row in wrong:
        with pytest.raises(ValueError, match="support"):
            q.log_prob(row)


def test_arguments():
    q = ProductNormal(factors(WrappedNormal))
    for value in (torch.zeros(5), torch.zeros(())):
        with pytest.raises(ValueError, match=r"shape \(…, 6\), got"):
            q.log_prob(value)
    with pytest.raises(ValueError, match=r"noise must have shape \(…, 6\), got \(4, 5\)"):
        q.transform(torch.zeros(4, 5))
    with pytest.raises(ValueError, match=r"one batch shape, got \(\), \(2,\)"):
        ProductNormal([factors(WrappedNormal)[0], factors(WrappedNormal, (2,))[1]])
    with pytest.raises(ValueError, match="no factor"):
        ProductNormal([])
    for bad, name in ((None, "NoneType"), (factors(WrappedNormal)[0], "WrappedNormal"), ([None], "NoneType")):
        with pytest.raises(TypeError, match=rf"factors must be a list of normal distributions, got .*{name}"):
            ProductNormal(bad)


def test_factors_may_differ_in_dtype():
    q = ProductNormal([factors(WrappedNormal, dtype=torch.float32)[0], factors(WrappedNormal)[1]])
    z, log_q = q.rsample_and_log_prob((3,))
    assert z.dtype == log_q.dtype == F64
