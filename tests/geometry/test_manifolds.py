"""Manifolds against the paper's formulas in high precision, in float32 and float64, near, far and at c = 0."""

from __future__ import annotations

import math
import random
import warnings
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from itertools import cycle
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import torch

from curvae import Euclidean, Lorentz, PoincareBall
from curvae.geometry import hyperboloid as h
from operation_cases import OPERATIONS, Case, call, cases, difference, weights as random_weights
from oracles import (
    CURVATURES,
    Vector,
    at_radius,
    ball_dist,
    ball_exp,
    ball_log,
    lorentz_to_ball,
    mobius_add,
    mpf,
    random_directions,
    relative,
    vector,
    worst,
)

POSITIVE = [c for c in CURVATURES if c]


def points(c: float, radius: float, dim: int = 3, count: int = 8, seed: int = 0) -> torch.Tensor:
    """Float32 space parts near a given √c·radius (near the radius itself where c = 0)."""
    return at_radius(random_directions(count, dim, seed), radius / math.sqrt(c) if c else radius, c)


def distance(S: torch.Tensor, T: torch.Tensor, c: float):
    with mp.workdps(120):
        k = mpf(c)
        return ball_dist(lorentz_to_ball(vector(S), k), lorentz_to_ball(vector(T), k), k)


@pytest.mark.parametrize("c", CURVATURES)
def test_float32_distance_from_origin_and_maps_there(c):
    space = Lorentz(3, c)
    for radius in (1e-6, 0.01, 0.5, 2.0, 8.0, 15.0, 30.0, 60.0, 80.0):
        S = points(c, radius)
        k = mpf(c)
        true = [distance(s, torch.zeros(3), c) for s in S]
        assert worst([relative(r, t, floor=0) for r, t in zip(space.dist0(S), true, strict=True)]) < 1e-6
        v = space.logmap0(S)
        assert worst([relative(x.double().norm(), t, floor=0) for x, t in zip(v, true, strict=True)]) < 1e-6
        back = space.expmap0(v)
        for s, x in zip(back, v, strict=True):
            length = mp.sqrt(mp.fdot(vector(x), vector(x)))
            exact = mp.sinh(mp.sqrt(k) * length) / mp.sqrt(k) if c else length
            assert relative(s.double().norm(), exact, floor=0) < 1e-6 * max(1, radius / 30)
            s, x = s.double(), x.double()
            torch.testing.assert_close(s / s.norm(), x / x.norm(), rtol=0, atol=3e-7)


@pytest.mark.parametrize("c", POSITIVE)
def test_float32_distance_of_points_one_apart(c):
    space = Lorentz(3, c)
    root = math.sqrt(c)
    for radius in (0.1, 1.0, 5.0, 8.0):
        S = points(c, radius, count=40)
        step = random_directions(40, 3, 1).float() / root
        T = space.expmap(S, step)
        errors = [relative(d, distance(s, t, c), floor=0) for d, s, t in zip(space.dist(S, T), S, T, strict=True)]
        assert worst(errors) < 1e-5


@pytest.mark.parametrize("c", POSITIVE)
@pytest.mark.parametrize("radius", [0.5, 3.0, 8.0, 12.0, 20.0, 40.0, 80.0])
def test_round_trip_within_conditioning(c, radius):
    """log(exp(v)) is off by what rounding the coordinates of the point itself costs: about ε·cosh(radius)."""
    for dtype in (torch.float32, torch.float64):
        space = Lorentz(3, c)
        S = points(c, radius, count=40).to(dtype)
        v = (random_directions(40, 3, 2) / math.sqrt(c)).to(dtype)
        T = space.expmap(S, v)
        back = space.logmap(S, T)
        assert back.isfinite().all()
        bound = 8 * torch.finfo(dtype).eps * math.cosh(radius + 1)
        if bound < 0.5:
            assert ((back - v).norm(dim=-1) * math.sqrt(c)).max() < bound


@pytest.mark.parametrize("c", POSITIVE)
def test_float64_logmap_far_out_against_high_precision(c):
    """The polar form keeps the accuracy of the coordinates where (−x) ⊕ y loses twice as many digits."""
    space = PoincareBall(2, c)
    lorentz = Lorentz(2, c)
    for radius in (2.0, 10.0, 17.0):
        S = points(c, radius, dim=2).double()
        T = lorentz.expmap(S, random_directions(8, 2, 3) / math.sqrt(c))
        for s, t, v in zip(S, T, lorentz.logmap(S, T), strict=True):
            with mp.workdps(80):
                k = mpf(c)
                x, y = lorentz_to_ball(vector(s), k), lorentz_to_ball(vector(t), k)
                lam = 2 / (1 - k * mp.fdot(x, x))
                exact = [lam * a for a in ball_log(x, y, k)]
                gap = mp.sqrt(mp.fsum((a - mpf(b)) ** 2 for a, b in zip(exact, v, strict=True)))
            assert float(gap) * math.sqrt(c) < 20 * 2.3e-16 * math.cosh(radius)
    assert space.dim == 2


@pytest.mark.parametrize("c", CURVATURES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.float64, 1e-13)])
def test_ball_follows_the_paper(c, dtype, tolerance):
    ball = PoincareBall(3, c)
    x = ball.random(6, scale=0.8 / math.sqrt(max(c, 0.5)), dtype=dtype)
    y = ball.random(6, scale=0.8 / math.sqrt(max(c, 0.5)), dtype=dtype)
    u = 0.2 * torch.randn(6, 3, dtype=dtype)
    k = mpf(c)
    for i in range(6):
        X, Y, U = vector(x[i]), vector(y[i]), vector(u[i])

        def close(ours, exact):
            assert worst([relative(a, b) for a, b in zip(ours, exact, strict=True)]) < tolerance

        close([ball.dist(x[i], y[i])], [ball_dist(X, Y, k)])
        close(ball.mobius_add(x[i], y[i]), mobius_add(X, Y, k))
        close(ball.expmap(x[i], u[i]), ball_exp(X, U, k))
        close(ball.logmap(x[i], y[i]), ball_log(X, Y, k))
        close(ball.expmap0(u[i]), ball_exp([mp.mpf(0)] * 3, U, k))
        close(ball.logmap0(y[i]), ball_log([mp.mpf(0)] * 3, Y, k))
        close(
            ball.mobius_scalar_mul(0.3, x[i]),
            ball_exp([mp.mpf(0)] * 3, [mpf(0.3) * a for a in ball_log([mp.mpf(0)] * 3, X, k)], k),
        )
        middle = vector(ball.geodesic(0.25, x[i], y[i]))
        total = ball_dist(X, Y, k)
        close([float(ball_dist(X, middle, k)), float(ball_dist(middle, Y, k))], [total / 4, 3 * total / 4])


@pytest.mark.parametrize("c", POSITIVE)
def test_float32_ball_to_its_edge(c):
    """Radii to 15 survive; beyond, a point stays inside, and everything computed from it is finite."""
    ball, root = PoincareBall(4, c), math.sqrt(c)
    directions = random_directions(50, 4, 5).float()
    for radius in (1.0, 5.0, 10.0, 15.0, 20.0, 80.0):
        z = ball.expmap0(directions * (radius / root / 2))
        assert ball.contains(z).all()
        with mp.workdps(60):
            k = mpf(c)
            exact = [ball_dist(vector(p), [mp.mpf(0)] * 4, k) for p in z]
        assert worst([relative(r, t, floor=0) for r, t in zip(ball.dist0(z), exact, strict=True)]) < 1e-6
        if radius <= 15:
            slack = 8 * torch.finfo(torch.float32).eps * math.cosh(radius / 2) ** 2 / radius
            assert abs(float(ball.dist0(z).median()) * root / radius - 1) < max(1e-6, slack)
        for value in (
            ball.dist(z, -z),
            ball.dist(z, z.roll(1, 0)),
            ball.logmap(z, z.roll(1, 0)),
            ball.mobius_add(z, z),
            ball.transp(z, -z, z),
        ):
            assert value.isfinite().all()
        assert ball.contains(ball.mobius_add(z, z)).all()


@pytest.mark.parametrize("make", [lambda c: Lorentz(3, c), lambda c: PoincareBall(3, c)], ids=["lorentz", "ball"])
@pytest.mark.parametrize("c", CURVATURES)
def test_values_and_gradients_are_finite_at_coincidence_and_origin(make, c):
    k = torch.tensor(c, dtype=torch.float64, requires_grad=True)
    space = make(k)
    zero = torch.zeros(3, requires_grad=True)
    x = space.expmap0(torch.tensor([0.3, -0.2, 0.1])).detach().requires_grad_()
    for out in (
        space.dist(x, x),
        space.dist(zero, zero),
        space.dist(zero, x),
        space.dist0(zero),
        space.logmap(x, x),
        space.logmap(zero, x),
        space.logmap0(zero),
        space.expmap(x, zero),
        space.expmap0(zero),
        space.transp(x, x, zero),
        space.geodesic(0.5, x, x),
        space.dist2plane(x, x, zero),
        space.dist2plane(zero, x, zero),
        space.norm(x, zero),
    ):
        grads = torch.autograd.grad(out.sum(), (zero, x, k), allow_unused=True)
        assert out.isfinite().all()
        assert all(g.isfinite().all() for g in grads if g is not None)


def test_gradients_of_distance_against_differences():
    for c in (0.0, 1e-6, 0.1, 1.0, 10.0):
        k = torch.tensor(c, dtype=torch.float64, requires_grad=True)
        for radius in (0.0, 1e-9, 0.3, 0.999, 1.001, 5.0, 15.0):
            for other in (0.2, 3.0, 15.0):
                x = points(c, radius, dim=2, count=1).double()[0].requires_grad_()
                y = points(c, other, dim=2, count=1, seed=7).double()[0]
                value = Lorentz(2, k).dist(x, y)
                gx, gk = torch.autograd.grad(value, (x, k))
                step = random_directions(1, 2, 9)[0]
                with mp.workdps(120):
                    X, Y, D = vector(x.detach()), vector(y), vector(step)

                    def f(t, u, X=X, Y=Y, D=D):
                        P = [a + t * b for a, b in zip(X, D, strict=True)]
                        return ball_dist(lorentz_to_ball(P, u), lorentz_to_ball(Y, u), u)

                    along = mp.diff(lambda t, c=c: f(t, mpf(c)), 0)
                    curved = mp.diff(lambda u: f(0, u), c) if c else mp.diff(lambda u: f(0, u), mp.mpf("1e-25"))
                assert relative(gx @ step, along) < 1e-8 * max(
                    1, 1e-7 * math.cosh(2 * max(radius, 1)) if radius < 15 else 1
                )
                assert relative(gk, curved) < 1e-8


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_curvature_zero_is_euclidean(dtype):
    x, y, u = (torch.randn(5, 3, dtype=dtype) for _ in range(3))
    flat, eps = Euclidean(3), 4 * torch.finfo(dtype).eps
    for space in (flat, Lorentz(3, 0.0), Lorentz(3, torch.tensor(0.0))):
        torch.testing.assert_close(space.dist(x, y), (x - y).norm(dim=-1), rtol=eps, atol=0)
        torch.testing.assert_close(space.expmap(x, u), x + u, rtol=eps, atol=eps)
        torch.testing.assert_close(space.logmap(x, y), y - x, rtol=eps, atol=eps)
        torch.testing.assert_close(space.transp(x, y, u), u, rtol=eps, atol=eps)
        torch.testing.assert_close(space.geodesic(0.25, x, y), x + 0.25 * (y - x), rtol=eps, atol=eps)
        torch.testing.assert_close(space.frechet_mean(x), x.mean(0), rtol=2 * eps, atol=eps)
        torch.testing.assert_close(
            space.dist2plane(x, y, u), ((x - y) * u).sum(-1) / u.norm(dim=-1), rtol=4 * eps, atol=2 * eps
        )
    ball = PoincareBall(3, 0.0)
    torch.testing.assert_close(ball.dist(x, y), 2 * (x - y).norm(dim=-1), rtol=eps, atol=0)
    torch.testing.assert_close(ball.mobius_add(x, y), x + y, rtol=eps, atol=eps)
    torch.testing.assert_close(ball.to_lorentz(x), 2 * x, rtol=0, atol=0)


def test_small_curvature_is_continuous():
    x, y = torch.randn(2, 9, 3, dtype=torch.float64)
    for c in (1e-12, 1e-9, 1e-6):
        for value, limit in (
            (Lorentz(3, c).dist(x, y), (x - y).norm(dim=-1)),
            (Lorentz(3, c).expmap(x, y), x + y),
            (PoincareBall(3, c).mobius_add(x, y), x + y),
        ):
            assert (value - limit).abs().max() < 200 * c + 1e-14


@pytest.mark.parametrize("c", POSITIVE)
def test_isometries(c):
    """Distances do not change under Möbius translation and rotation; transport keeps lengths and angles."""
    ball = PoincareBall(3, c)
    x, y, a = (ball.random(20, scale=1 / math.sqrt(c), dtype=torch.float64) for _ in range(3))
    torch.testing.assert_close(
        ball.dist(ball.mobius_add(a, x), ball.mobius_add(a, y)), ball.dist(x, y), rtol=1e-10, atol=1e-12
    )
    rotation = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))[0]
    torch.testing.assert_close(ball.dist(x @ rotation, y @ rotation), ball.dist(x, y), rtol=1e-11, atol=0)
    torch.testing.assert_close(ball.mobius_add(-x, x), torch.zeros_like(x), rtol=0, atol=1e-13 / c**0.5 + 1e-12)
    u, v = torch.randn(2, 20, 3, dtype=torch.float64)
    for space, p, q in ((ball, x, y), (Lorentz(3, c), ball.to_lorentz(x), ball.to_lorentz(y))):
        torch.testing.assert_close(
            space.inner(q, space.transp(p, q, u), space.transp(p, q, v)), space.inner(p, u, v), rtol=1e-9, atol=1e-9
        )
        torch.testing.assert_close(space.transp(q, p, space.transp(p, q, u)), u, rtol=1e-10, atol=1e-10)
        # Geodesics carry their own velocity along.
        w = space.logmap(p, q)
        torch.testing.assert_close(space.transp(p, q, w), -space.logmap(q, p), rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(space.norm(p, w), space.dist(p, q), rtol=1e-11, atol=0)
        torch.testing.assert_close(space.transp0(q, u), space.transp(torch.zeros_like(q), q, u), rtol=1e-11, atol=1e-12)


def test_charts_agree():
    for c in CURVATURES:
        ball, lorentz = PoincareBall(3, c), Lorentz(3, c)
        z, y = (ball.random(10, dtype=torch.float64, scale=0.7) for _ in range(2))
        S, T = ball.to_lorentz(z), ball.to_lorentz(y)
        torch.testing.assert_close(ball.from_lorentz(S), z, rtol=1e-14, atol=0)
        torch.testing.assert_close(lorentz.dist(S, T), ball.dist(z, y), rtol=1e-14, atol=0)
        torch.testing.assert_close(lorentz.time(S) ** 2, 1 + c * (S * S).sum(-1))
        u = torch.randn(10, 3, dtype=torch.float64)
        torch.testing.assert_close(ball.expmap0(u), ball.from_lorentz(lorentz.expmap0(2 * u)), rtol=1e-14, atol=0)
        # λ_x relates ball coordinates to the frame.
        torch.testing.assert_close(
            ball.lambda_x(z)[:, None] * ball.logmap(z, y), lorentz.logmap(S, T), rtol=1e-12, atol=1e-13
        )
        torch.testing.assert_close(ball.dist2plane(z, y, u), lorentz.dist2plane(S, T, u), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("make", [lambda c: Lorentz(2, c), lambda c: PoincareBall(2, c)], ids=["lorentz", "ball"])
def test_riemannian_gradient_is_the_steepest_direction(make):
    """⟨grad f, u⟩_x is the derivative of f along exp_x(t·u)."""
    for c in (0.0, 0.3, 2.0):
        space = make(c)
        x = space.random(dtype=torch.float64).requires_grad_()
        f = lambda z: (z[..., 0] * 3 + z[..., 1] ** 2).sum()  # noqa: E731
        (egrad,) = torch.autograd.grad(f(x), x)
        u = torch.randn(2, dtype=torch.float64)
        step = 1e-6
        slope = (f(space.expmap(x, step * u)) - f(space.expmap(x, -step * u))) / (2 * step)
        torch.testing.assert_close(
            space.inner(x, space.egrad2rgrad(x, egrad), u).detach(), slope.detach(), rtol=1e-8, atol=1e-8
        )


@pytest.mark.parametrize(("chart", "c"), list(zip(cycle([Lorentz, PoincareBall]), CURVATURES, strict=False)))
def test_frechet_mean_minimises_and_differentiates(chart, c):
    k = torch.tensor(c, dtype=torch.float64, requires_grad=True)
    space = chart(3, k)
    x = chart(3, c).random(2, 7, scale=1.5 / math.sqrt(max(c, 0.3)), dtype=torch.float64).requires_grad_()
    w = torch.rand(2, 7, dtype=torch.float64)
    mean = space.frechet_mean(x, w)
    pull = (w.unsqueeze(-1) * space.logmap(mean.unsqueeze(-2).expand_as(x), x)).sum(-2)
    assert pull.abs().max() < 1e-11 * w.sum()
    if c:
        few = x.detach()[0, :4].requires_grad_()
        of_few = partial(space.frechet_mean, w=w[0, :4])
        assert torch.autograd.gradcheck(of_few, (few,), eps=1e-5, atol=1e-6, fast_mode=c != 1.0)


def test_frechet_mean_of_far_points():
    space = Lorentz(2, 1.0)
    for radius, weights in ((20.0, torch.ones(6)), (12.0, torch.tensor([1.0, 1e-3, 0.0, 0.0, 0.2, 5.0]))):
        x = space.expmap0(radius * random_directions(6, 2, 3))
        w = weights.double()
        mean = space.frechet_mean(x, w)
        pull = (w[:, None] * space.logmap(mean.expand_as(x), x)).sum(0) / w.sum()
        assert pull.norm() < 1e-6


def test_saturation_is_at_the_edge_and_keeps_the_direction():
    for c in POSITIVE:
        for dtype, reach in ((torch.float32, 80.0), (torch.float64, 170.0)):
            space = Lorentz(3, c)
            v = random_directions(5, 3, 4).to(dtype) / math.sqrt(c)
            far = space.expmap0(v * 1e4)
            assert far.isfinite().all() and space.contains(far).all()
            assert (space.dist0(far) * math.sqrt(c) > reach).all()
            assert torch.cosine_similarity(far.double(), v.double()).min() > 1 - 1e-12
            held = space.expmap0(v * reach)
            torch.testing.assert_close(
                space.dist0(held) * math.sqrt(c), torch.full((5,), reach, dtype=dtype), rtol=1e-6, atol=0
            )


def test_every_finite_float32_point_is_safe():
    space = Lorentz(2, 1.0)
    sizes = torch.logspace(-37, 37, 75)
    x = sizes[:, None] * torch.tensor([0.6, 0.8])
    y = sizes.flip(0)[:, None] * torch.tensor([-1.0, 0.01])
    x.requires_grad_()
    for value in (
        space.dist(x, y),
        space.dist0(x),
        space.logmap(x, y),
        space.expmap(x, 0.1 * torch.ones(75, 2)),
        space.time(x),
        space.transp(x, y, torch.ones(75, 2)),
    ):
        assert value.isfinite().all()
        (grad,) = torch.autograd.grad(value.sum(), x, retain_graph=True)
        assert grad.isfinite().all()


def test_broadcasting_and_batched_curvature():
    c = torch.tensor([0.0, 0.5, 2.0])
    space = Lorentz(2, c)
    x, y = torch.randn(4, 1, 2), torch.randn(3, 2)
    assert space.dist(x, y).shape == (4, 3)
    for i, k in enumerate(c.tolist()):
        torch.testing.assert_close(space.dist(x, y)[:, i], Lorentz(2, k).dist(x[:, 0], y[i]))
        torch.testing.assert_close(space.expmap(x, y)[:, i], Lorentz(2, k).expmap(x[:, 0], y[i]))
    t = torch.linspace(0, 1, 5)
    assert Lorentz(2, 1.0).geodesic(t, x[0, 0], y[0]).shape == (5, 2)


def test_membership_and_errors():
    ball = PoincareBall(2, 4.0)
    assert ball.contains(torch.tensor([[0.3, 0.3], [0.4, 0.4], [math.nan, 0.0]])).tolist() == [True, False, False]
    assert not Lorentz(2, 1.0).contains(torch.tensor([math.inf, 0.0]))
    with pytest.raises(ValueError, match=r"\[0.5, 0.5\] at index \(1,\)"):
        ball.check(torch.tensor([[0.1, 0.1], [0.5, 0.5]]))
    with pytest.raises(ValueError, match=r"x must have shape \(…, 2\)"):
        ball.check(torch.zeros(3))
    with pytest.raises(ValueError, match="curvature of the space is −c"):
        PoincareBall(2, -1.0)
    for bad in ("1", b"1", None, [1.0]):
        with pytest.raises(TypeError, match=f"c must be a number or a tensor, got {type(bad).__name__}"):
            PoincareBall(2, bad)
    assert PoincareBall(2, np.float32(2)).c == PoincareBall(2, 2).c == 2.0
    with pytest.raises(ValueError, match="dim"):
        Lorentz(0)
    says = r"x and y must have batch shapes that broadcast, got x of shape \(5, 2\) and y of shape \(3, 2\)"
    for method in (ball.dist, ball.logmap, Lorentz(2, torch.ones(5)).dist):
        with pytest.raises(ValueError, match=says):
            method(torch.zeros(5, 2), torch.zeros(3, 2))
    assert repr(PoincareBall(2, 0.5)) == "PoincareBall(2, c=0.5)" and repr(Euclidean(3)) == "Euclidean(3)"


def test_gradgradcheck_of_the_closed_form_derivatives():
    S, v = (torch.randn(3, 2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    for c in (torch.tensor(0.7, dtype=torch.float64), torch.tensor([0.1, 1.0, 3.0], dtype=torch.float64)):
        c.requires_grad_()
        for f in (h.expmap, h.translate, h.chord):
            assert torch.autograd.gradcheck(f, (S, v, c))
            assert torch.autograd.gradgradcheck(f, (S, v, c), fast_mode=True)
        for f in (h.expmap0, h.logmap0, h.lift):
            assert torch.autograd.gradcheck(f, (S, c)) and torch.autograd.gradgradcheck(f, (S, c))


@pytest.mark.parametrize("c", [1e-6, 1.0, 7.0])
def test_gradients_in_torch_func_near_and_far(c):
    """They are taken another way, through operations that can be differentiated again."""
    space, root = Lorentz(3, c), math.sqrt(c)
    directions = random_directions(8, 3, 6)
    radii = torch.tensor([0.0, 1e-5, 0.5, 8.0, 30.0], dtype=torch.float64)
    first, second = torch.cartesian_prod(radii, radii)[..., None, None].unbind(1)
    x, y = (h.expmap0(u * (r / root), c) for u, r in ((directions[0].expand(7, 3), first), (directions[1:], second)))
    v = directions[:7] / root
    for f in (
        lambda x, y: space.dist(x, y).sum(),
        lambda x, y: space.logmap(x, y).sum(),
        lambda x, y: space.expmap(x, v).sum() + 0 * y.sum(),
        lambda x, y: space.transp(x, y, v).sum(),
    ):
        a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
        for one, other in zip(
            torch.autograd.grad(f(a, b), (a, b)), torch.func.grad(f, argnums=(0, 1))(x, y), strict=True
        ):
            scale = one.norm(dim=-1, keepdim=True).amax(1, keepdim=True) + 1e-300  # of each pair of radii
            torch.testing.assert_close(other / scale, one / scale, rtol=0, atol=1e-9)


def test_geoopt_agrees_where_it_is_accurate():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # geoopt is built on torch.jit.script
        geoopt = pytest.importorskip("geoopt")
    for c in (0.3, 1.0, 2.5):
        ours, theirs = PoincareBall(3, c), geoopt.PoincareBall(torch.tensor(c, dtype=torch.float64))
        x, y = (ours.random(20, scale=0.8 / math.sqrt(c), dtype=torch.float64) for _ in range(2))
        u = torch.randn(20, 3, dtype=torch.float64)
        t = torch.tensor(0.3, dtype=torch.float64)
        for name, args in {
            "dist": (x, y),
            "dist0": (x,),
            "expmap": (x, 0.1 * u),
            "logmap": (x, y),
            "expmap0": (0.1 * u,),
            "logmap0": (x,),
            "transp": (x, y, u),
            "transp0": (y, u),
            "mobius_add": (x, y),
            "mobius_scalar_mul": (t, x),
            "egrad2rgrad": (x, u),
            "geodesic": (t, x, y),
            "norm": (x, u),
            "lambda_x": (x,),
            "mobius_matvec": (torch.randn(2, 3, dtype=torch.float64), x),
        }.items():
            torch.testing.assert_close(
                getattr(ours, name)(*args), getattr(theirs, name)(*args), rtol=1e-9, atol=1e-10, msg=name
            )
        torch.testing.assert_close(
            ours.dist2plane(x, y, u), theirs.dist2plane(x, y, u, signed=True), rtol=1e-9, atol=1e-10
        )


# --- every operation near the origin and as far out as it reaches, against stored results of mpmath ------------------


ALLOWED, ALLOWED_GRADIENT = 32, 320


EVERY = pytest.mark.parametrize(("chart", "name"), OPERATIONS, ids=lambda value: getattr(value, "__name__", value))


def excess(found: torch.Tensor, exact: Vector, unit: float, sensitivities: Iterator[Any], floor: float) -> float:
    """The error over `unit` times the sum of sensitivities, of which as many are asked for as make it at most 1."""
    if not found.isfinite().all():
        return math.inf
    error = math.hypot(*(float(a - b) for a, b in zip(found.double().reshape(-1).tolist(), exact, strict=True)))
    allowed = floor
    for size in sensitivities:
        allowed += unit * float(size)
        if error <= allowed:
            break
    return error / allowed if error else 0.0


def check(cases: list[Case]) -> dict[tuple[Any, ...], dict[str, float]]:
    """Values and gradients of one call for cases of one dimension and dtype; returns what is too far off."""
    learned = cases[0].learned
    c = torch.tensor([case.curvature for case in cases], dtype=torch.float64, requires_grad=learned)
    given = [torch.stack(rows).requires_grad_() for rows in zip(*(case.arguments for case in cases), strict=True)]
    found = call(cases, c, given)
    epsilon, found = torch.finfo(found.dtype).eps, found.reshape(len(cases), -1)
    leaves = [*given, c] if learned else given
    gradients = torch.autograd.grad((found.double() @ random_weights(found.shape[1])).sum(), leaves, allow_unused=True)
    gradients = [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, gradients, strict=True)]
    wrong = {}
    for row, case in enumerate(cases):
        reference = case.stored() or case.computed()
        with mp.workdps(reference.digits):
            errors = {"value": excess(found[row], reference.value, ALLOWED * epsilon, reference.sensitivities(), 0)}
            floor = 1000 * float(difference(reference.digits))
            for i, gradient in enumerate(gradients):
                unit, sensitivities = ALLOWED_GRADIENT * epsilon, reference.gradient_sensitivities(i)
                errors[f"gradient {i}"] = excess(gradient[row], reference.gradient(i), unit, sensitivities, floor)
        if bad := {part: error for part, error in errors.items() if not error <= 1}:
            wrong[case.label] = bad
    return wrong


@EVERY
def test_every_operation_near_and_far(chart, name):
    alike = defaultdict(list)
    for case in cases(chart, name):
        # A mean is found by iteration, and alone: among others it is rounded in another way.
        alone = case.label if name == "frechet_mean" else None
        alike[case.dim, case.arguments[0].dtype, alone].append(case)
    assert not [wrong for group in alike.values() if (wrong := check(group))]


@EVERY
def test_stored_results_are_those_of_the_formulas(chart, name):
    """A random case of each operation; where this fails, run `python tests/make_oracles.py`."""
    small = [case for case in cases(chart, name) if case.dim < 4]
    case = random.Random(f"{chart.__name__}.{name}").choice(small)
    stored = case.stored()
    assert stored is not None
    np.testing.assert_allclose(stored.row, case.row(), rtol=1e-15, atol=1e-25)  # differences of what is 0 are not quite
