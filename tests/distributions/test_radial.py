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
from scipy import stats

from combining import every_pair
from curvae import Euclidean, HyperbolicRadius, Lorentz, PoincareBall, RiemannianNormal, SphericalUniform, WrappedNormal
from oracles import (
    CELLS,
    CURVATURES,
    DIMS,
    SCALES,
    at_radius,
    dot,
    integrated_log_normaliser,
    integrated_log_normaliser_slope,
    key,
    log_area,
    log_normaliser,
    log_normaliser_slope,
    log_riemannian,
    log_wrapped,
    mpf,
    random_directions,
    relative,
    stored_normalisers,
    vector,
    worst,
)
from paths import DATA

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


def separation(chart: type, centre, point, direction):
    """The paper's distance of centre + t·direction from a point as a function of t and c, from products of vectors."""
    C, P, D = vector(centre), vector(point), vector(direction)
    cc, cd, dd, cp, dp, pp = dot(C, C), dot(C, D), dot(D, D), dot(C, P), dot(D, P), dot(P, P)

    def distance(t, c):
        xx, xy, yy = cc + 2 * t * cd + t * t * dd, cp + t * dp, pp
        if chart is Lorentz:  # to the ball
            a, b = 1 + mp.sqrt(1 + c * xx), 1 + mp.sqrt(1 + c * yy)
            xx, xy, yy = xx / a**2, xy / (a * b), yy / b**2
        gap = xx - 2 * xy + yy
        if c == 0:
            return 2 * mp.sqrt(gap)
        return mp.acosh(1 + 2 * c * gap / ((1 - c * xx) * (1 - c * yy))) / mp.sqrt(c)

    return distance


def exact_gradients(chart: type, centre, point, direction, s, c, dim: int):
    """For both laws, in loc along a direction, in scale and in c: distances by high-precision differences, the rest by
    the chain rule from the density's definition and the derivative of its normalising integral."""
    with mp.workdps(60):
        k, sigma = mpf(c), mpf(s)
        distance = separation(chart, centre, point, direction)
        r = distance(mp.mpf(0), k)
        moved_by_loc = mp.diff(lambda t: distance(t, k), 0)
        # At c = 0 a one-sided difference: the distance is only defined for c ≥ 0.
        moved_by_c = mp.diff(lambda u: distance(mp.mpf(0), u), k if k else mp.mpf("1e-22"))
        by_scale = r * r / sigma**3 - dim / sigma
        slopes = {law: by_radius(law, r, sigma, k, dim) for law in (WrappedNormal, RiemannianNormal)}
    x = mp.sqrt(k) * r
    shrink = (1 - x * mp.coth(x)) / (2 * k) if x > 1e-8 else -r * r / 6
    tilted = log_normaliser_slope(k * sigma**2, dim)
    by_normaliser = {
        WrappedNormal: (0, (dim - 1) * shrink),
        RiemannianNormal: (-2 * k * sigma * tilted, -(sigma**2) * tilted),
    }
    return {
        law: (slope * moved_by_loc, by_scale + by_normaliser[law][0], slope * moved_by_c + by_normaliser[law][1])
        for law, slope in slopes.items()
    }


def placed(chart: type, dim: int, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A centre and a point for every cell, as numbers that float32 holds."""
    c, _ = grid(torch.float32)
    centre = torch.stack(
        [at_radius(a, 0.5 / math.sqrt(max(ci, 1.0)), float(k)) for (ci, _), k in zip(CELLS, c, strict=True)]
    )
    radii = [typical_radius(dim, float(k), si) for (_, si), k in zip(CELLS, c, strict=True)]
    if chart is PoincareBall:
        radii = [min(r, 6 / math.sqrt(ci)) if ci else r for (ci, _), r in zip(CELLS, radii, strict=True)]
    point = Lorentz(dim, c).expmap(centre, torch.tensor(radii)[:, None] * b)
    if chart is Lorentz:
        return centre, point
    return PoincareBall(dim, c).from_lorentz(centre), PoincareBall(dim, c).from_lorentz(point)


@pytest.mark.parametrize("chart", [Lorentz, PoincareBall])
@pytest.mark.parametrize("dim", DIMS)
def test_gradients_of_the_log_density(dim, chart):
    """In loc, scale and c, for both laws and both dtypes."""
    a, b = random_directions(2, dim, dim).float()
    c, s = grid(torch.float32)
    (centre, point), direction = placed(chart, dim, a, b), b + a
    exact = [
        exact_gradients(chart, *cell, dim)
        for cell in zip(centre, point, direction.expand_as(centre), s, c, strict=True)
    ]
    for law, dtype in itertools.product((WrappedNormal, RiemannianNormal), TOLERANCE):
        leaves = [x.to(dtype).clone().requires_grad_() for x in (centre, s, c)]
        q = law(leaves[0], leaves[1][:, None], chart(dim, leaves[2]), validate_args=False)
        g_loc, g_s, g_c = torch.autograd.grad(q.log_prob(point.to(dtype)).sum(), leaves)
        for i, cell in enumerate(CELLS):
            got = (g_loc[i].double() @ direction.double(), g_s[i], g_c[i])
            errors = [relative(g, e) for g, e in zip(got, exact[i][law], strict=True)]
            assert worst(errors) < GRADIENT[dtype], (law.__name__, cell, dtype, errors)


def test_the_stored_integrals_are_those_of_the_definition():
    for (dim, name), (value, slope) in list(stored_normalisers().items())[::55]:
        q = mp.mpf(name)
        assert abs(mp.mpf(value) - integrated_log_normaliser(q, dim)) < mp.mpf("1e-22") * max(1, abs(mp.mpf(value)))
        assert abs(mp.mpf(slope) - integrated_log_normaliser_slope(q, dim)) < mp.mpf("1e-20") * max(
            1, abs(mp.mpf(slope))
        )


ORACLE: dict[int, dict[str, list[tuple[float, str, str]]]] = {}


for _dim, _x, _q, _t, _w in json.loads((DATA / "radius_quantiles.json").read_text()):
    ORACLE.setdefault(_dim, {}).setdefault(_q, []).append((_x, _t, _w))


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 3e-6), (torch.float64, 1e-9)])
def test_radius_and_its_gradients(dim, dtype, tolerance):
    """A draw has the quantile of its noise, and moves with scale and c as the quantile does (see make_oracles.py)."""
    c, s = grid(dtype)
    shapes = [mpf(ci) * mpf(si) ** 2 for ci, si in zip(c, s, strict=True)]
    cases = [ORACLE[dim][key(q)] for q in shapes]
    noise = torch.zeros(len(CELLS), len(cases[0]), dim, dtype=dtype)
    noise[..., 0] = torch.tensor([[x for x, _, _ in cell] for cell in cases])
    # A scale and a curvature for every draw, for gradients one by one.
    sigma, k = (v[:, None].repeat(1, noise.shape[1]).requires_grad_() for v in (s, c))
    r = HyperbolicRadius(dim, sigma, k, validate_args=False).transform(noise)
    found = (r, *torch.autograd.grad(r.sum(), (sigma, k)))
    for i, (cell, q) in enumerate(zip(CELLS, shapes, strict=True)):
        size = mpf(s[i])
        for j, (_, t, w) in enumerate(cases[i]):
            t, w = mp.mpf(t), mp.mpf(w)
            value, g_s, g_c = (tensor.detach()[i, j] for tensor in found)
            assert relative(value, size * t, floor=0) < tolerance, cell
            assert relative(g_s, t + 2 * q * w) < GRADIENT[dtype], cell
            assert relative(g_c, size**3 * w) < GRADIENT[dtype], cell


@pytest.mark.parametrize(
    ("dim", "law", "chart"), every_pair(DIMS, [WrappedNormal, RiemannianNormal], [Lorentz, PoincareBall])
)
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


# --- draws against exact distributions: Kolmogorov-Smirnov and two moments, able to see 1 % of the scale -------------


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
    """In a fifth of the cells, with every curvature and every scale: in units of s the law depends on c·s² alone."""
    noise = torch.randn(count(dim), dim)
    for (i, c), (j, s) in itertools.product(enumerate(CURVATURES), enumerate(SCALES)):
        if (i + j + dim) % 5 == 0:
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
