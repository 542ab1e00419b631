"""The whole grid of dimensions, curvatures and scales against high precision: no failing cell.

Oracles are evaluated at the float-rounded inputs.
"""

from __future__ import annotations

import itertools
import json
import math

import mpmath as mp
import pytest
import torch

from curvae import HyperbolicRadius, Lorentz, PoincareBall, RiemannianNormal, WrappedNormal
from oracles import (
    CURVATURES,
    DIMS,
    SCALES,
    at_radius,
    ball_dist,
    log_area,
    log_normaliser,
    log_normaliser_slope,
    log_riemannian,
    log_wrapped,
    lorentz_to_ball,
    mpf,
    random_directions,
    relative,
    vector,
    worst,
)
from paths import DATA

CELLS = [(c, s) for c in CURVATURES for s in SCALES]
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-11}
GRADIENT = {torch.float32: 1e-4, torch.float64: 1e-8}


def grid(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """All pairs of curvature and scale, as numbers that float32 holds."""
    c, s = torch.tensor(CELLS, dtype=torch.float32).to(dtype).unbind(-1)
    return c, s


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_normaliser(dim, dtype):
    c, s = grid(dtype)
    p = RiemannianNormal(torch.zeros(len(CELLS), dim, dtype=dtype), s[:, None], Lorentz(dim, c))
    log_z = -p.log_prob(torch.zeros(len(CELLS), dim, dtype=dtype))
    assert log_z.dtype == dtype
    errors = []
    for value, ci, si in zip(log_z, c, s, strict=True):
        sigma = mpf(si)
        exact = log_area(dim) + dim * mp.log(sigma) + log_normaliser(mpf(ci) * sigma**2, dim)
        errors.append(relative(value, exact))
    assert worst(errors) < TOLERANCE[dtype]


def typical_radius(dim: int, c: float, s: float) -> float:
    """A radius in the bulk of both laws, or the farthest that float32 coordinates hold with margin."""
    n = dim - 1
    bulk = max(math.sqrt(dim) * s, n * math.sqrt(c) * s * s)
    return min(bulk, 40 / math.sqrt(c)) if c else bulk


def by_radius(law: type, r, sigma, k, dim: int):
    """∂/∂r of the log-density."""
    gaussian = -r / sigma**2
    if law is RiemannianNormal or dim == 1 or k == 0:
        return gaussian
    x = mp.sqrt(k) * r
    return gaussian + (dim - 1) * (1 / r - mp.sqrt(k) * mp.coth(x))


def exact_gradients(law: type, chart: type, centre, point, direction, s, c, dim: int):
    """In loc along a direction, in scale and in c: distances by high-precision differences, the rest by the chain rule
    from the density's definition and the derivative of its normalising integral."""
    with mp.workdps(50):
        C, P, D = vector(centre), vector(point), vector(direction)
        k, sigma = mpf(c), mpf(s)

        def distance(t, u):
            moved = [x + t * y for x, y in zip(C, D, strict=True)]
            if chart is Lorentz:
                return ball_dist(lorentz_to_ball(moved, u), lorentz_to_ball(P, u), u)
            return ball_dist(moved, P, u)

        r = distance(mp.mpf(0), k)
        slope = by_radius(law, r, sigma, k, dim)
        by_loc = slope * mp.diff(lambda t: distance(t, k), 0)
        # At c = 0 a one-sided difference: the distance is only defined for c ≥ 0.
        moved_by_c = mp.diff(lambda u: distance(mp.mpf(0), u), k if k else mp.mpf("1e-22"))
        by_scale, by_c = r * r / sigma**3 - dim / sigma, slope * moved_by_c
    if law is RiemannianNormal:
        tilted = log_normaliser_slope(k * sigma**2, dim)
        return by_loc, by_scale - 2 * k * sigma * tilted, by_c - sigma**2 * tilted
    x = mp.sqrt(k) * r
    shrink = (1 - x * mp.coth(x)) / (2 * k) if x > 1e-8 else -r * r / 6
    return by_loc, by_scale, by_c + (dim - 1) * shrink


@pytest.mark.parametrize("dim", DIMS)
def test_gradients_of_the_log_density(dim):
    """In loc, scale and c, for both laws, both charts and both dtypes."""
    a, b = random_directions(2, dim, dim).float()
    for (ci, si), chart in itertools.product(CELLS, (Lorentz, PoincareBall)):
        c, s = (torch.tensor(v, dtype=torch.float32) for v in (ci, si))
        centre = at_radius(a, 0.5 / math.sqrt(max(ci, 1.0)), float(c))
        radius = typical_radius(dim, float(c), si)
        if chart is PoincareBall and ci:
            radius = min(radius, 6 / math.sqrt(ci))
        point = Lorentz(dim, c).expmap(centre, b * radius)
        if chart is PoincareBall:
            centre, point = (PoincareBall(dim, c).from_lorentz(x) for x in (centre, point))
        direction = b + a
        for law in (WrappedNormal, RiemannianNormal):
            exact = exact_gradients(law, chart, centre, point, direction, s, c, dim)
            for dtype in (torch.float32, torch.float64):
                leaves = [x.to(dtype).clone().requires_grad_() for x in (centre, s, c)]
                q = law(leaves[0], leaves[1], chart(dim, leaves[2]), validate_args=False)
                g_loc, g_s, g_c = torch.autograd.grad(q.log_prob(point.to(dtype)), leaves)
                got = (g_loc.double() @ direction.double(), g_s, g_c)
                errors = [relative(g, e) for g, e in zip(got, exact, strict=True)]
                assert worst(errors) < GRADIENT[dtype], (law.__name__, chart.__name__, ci, si, dtype, errors)


ORACLE: dict[int, dict[str, list[tuple[float, str, str]]]] = {}
for _dim, _x, _q, _t, _w in json.loads((DATA / "radius_quantiles.json").read_text()):
    ORACLE.setdefault(_dim, {}).setdefault(_q, []).append((_x, _t, _w))


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 3e-6), (torch.float64, 1e-9)])
def test_radius_and_its_gradients(dim, dtype, tolerance):
    """A draw has the quantile of its noise, and moves with scale and c as the quantile does (see make_oracles.py)."""
    for ci, si in CELLS:
        sigma, k = (torch.tensor(v, dtype=torch.float32).to(dtype).requires_grad_() for v in (ci, si)[::-1])
        s, q = mpf(sigma.detach()), mpf(k.detach()) * mpf(sigma.detach()) ** 2
        cases = ORACLE[dim][mp.nstr(q, 30)]
        noise = torch.zeros(len(cases), dim, dtype=dtype)
        noise[:, 0] = torch.tensor([x for x, _, _ in cases])
        r = HyperbolicRadius(dim, sigma, k, validate_args=False).transform(noise)
        for value, (_, t, w) in zip(r, cases, strict=True):
            g_s, g_c = torch.autograd.grad(value, (sigma, k), retain_graph=True)
            t, w = mp.mpf(t), mp.mpf(w)
            assert relative(value.detach(), s * t, floor=0) < tolerance, (ci, si)
            assert relative(g_s, t + 2 * q * w) < GRADIENT[dtype], (ci, si)
            assert relative(g_c, s**3 * w) < GRADIENT[dtype], (ci, si)


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("law", [WrappedNormal, RiemannianNormal])
@pytest.mark.parametrize("chart", [Lorentz, PoincareBall])
def test_draws_are_finite_inside_and_know_their_density(dim, law, chart):
    """On the whole grid: points saturate rather than leave, the density from the draw is right, gradients finite."""
    c, s = grid(torch.float32)
    c, s = c.clone().requires_grad_(), s[:, None].clone().requires_grad_()
    space = chart(dim, c)
    loc = space.expmap0(0.1 * random_directions(len(CELLS), dim, 1).float()).detach().requires_grad_()
    q = law(loc, s, space)
    noise = torch.randn(3, len(CELLS), dim)
    noise[2, :, :] = 0.0
    z, log_q = q.transform_and_log_prob(noise)
    assert z.isfinite().all() and log_q.isfinite().all() and space.contains(z).all()
    for out in (z.abs().clamp(max=1e3).sum(), log_q.sum()):
        for g in torch.autograd.grad(out, (loc, s, c), retain_graph=True, allow_unused=True):
            assert g is None or g.isfinite().all()
    # The density of the draw, from the radius it was drawn at.
    radius = HyperbolicRadius(dim, s[:, 0].double(), c.double()) if law is RiemannianNormal else None
    for i in range(0, len(CELLS), 5):
        sigma, k = mpf(s[i, 0].detach()), mpf(c[i].detach())
        length = noise[0, i].double().norm()
        if radius is not None:
            t = (
                mpf(
                    HyperbolicRadius(dim, s[i, 0].detach().double(), c[i].detach().double()).transform(
                        noise[0, i].double()
                    )
                )
                / sigma
            )
            exact = log_riemannian(sigma * t, sigma, k, dim)
        else:
            exact = log_wrapped(sigma * mpf(length), sigma, k, dim)
        assert relative(log_q[0, i].detach(), exact) < 2e-5
