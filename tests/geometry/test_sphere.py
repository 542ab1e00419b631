"""Spheres against the formulas in high precision: near, far, at the antipode, in both precisions."""

from __future__ import annotations

import math
import warnings

import mpmath as mp
import pytest
import torch

from curvae import Lorentz, Sphere
from curvae.geometry import functions
from oracles import dot, mpf, relative, vector, worst

F64 = torch.float64
CURVATURES = (0.1, 1.0, 10.0)
ANGLES = (0.0, 1e-7, 1e-3, 0.6, math.pi / 2, 2.5, math.pi - 1e-3, math.pi - 1e-6)


def pairs(dim: int, k: float, dtype=F64) -> tuple[Sphere, torch.Tensor, torch.Tensor]:
    """Points at given angles from others, rounded to `dtype`."""
    torch.manual_seed(dim)
    space = Sphere(dim, -k)
    x = space.random(len(ANGLES), dtype=F64, scale=2 / math.sqrt(k))
    u = space.egrad2rgrad(x, torch.randn(len(ANGLES), dim + 1, dtype=F64))
    steps = torch.tensor(ANGLES, dtype=F64) / space.norm(x, u) / math.sqrt(k)
    return space, x.to(dtype), space.expmap(x, steps[:, None] * u).to(dtype)


def unit(X: torch.Tensor, k: float) -> list:
    """(√k·S, ξ) as a unit vector of numbers with many digits."""
    x = vector(X)
    x = [mp.sqrt(mpf(k)) * a for a in x[:-1]] + x[-1:]
    return [a / mp.sqrt(dot(x, x)) for a in x]


def angle(x: list, y: list):
    gap, both = [a - b for a, b in zip(x, y, strict=True)], [a + b for a, b in zip(x, y, strict=True)]
    return 2 * mp.atan2(mp.sqrt(dot(gap, gap)), mp.sqrt(dot(both, both)))


def plus(x: list, y: list, a=1) -> list:
    return [p + a * q for p, q in zip(x, y, strict=True)]


@pytest.mark.parametrize("name", ["cos_sqrt", "sinc", "asinc", "logsinc"])
def test_functions_and_their_derivatives(name):
    exact = {
        "cos_sqrt": lambda y: mp.cos(mp.sqrt(-y)),
        "sinc": lambda y: mp.sin(mp.sqrt(-y)) / mp.sqrt(-y),
        "asinc": lambda y: mp.asin(mp.sqrt(-y)) / mp.sqrt(-y),
        "logsinc": lambda y: mp.log(mp.sin(mp.sqrt(-y)) / mp.sqrt(-y)),
    }[name]
    values = [-1e-9, -1e-3, -0.019, -0.021, -0.4] + ([] if name == "asinc" else [-2.0, -9.0])
    y = torch.tensor(values, dtype=F64, requires_grad=True)
    found = [getattr(functions, name)(y)]
    for _ in range(2):
        found.append(torch.autograd.grad(found[-1].sum(), y, create_graph=True)[0])
    for order, result in enumerate(found):
        with mp.workdps(60):
            errors = [relative(v, mp.diff(exact, mpf(t), order)) for v, t in zip(result.detach(), values, strict=True)]
        assert worst(errors) < (1e-15 if order == 0 else 2e-12)


@pytest.mark.parametrize("k", CURVATURES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (F64, 1e-15)])
def test_distances_of_rounded_points(k, dtype, tolerance):
    """Relative to the angle, and to what it lacks to π: no digit is lost near a point, nor near its antipode."""
    for dim in (1, 2, 5):
        space, x, y = pairs(dim, k, dtype)
        x, y = x[1:], y[1:]
        for a, b, d in zip(x, y, space.dist(x.double(), y.double()), strict=True):
            exact = angle(unit(a, k), unit(b, k)) / mp.sqrt(mpf(k))
            assert relative(d, exact, floor=0) < 2e-15 + 1e-15 / float(exact * math.sqrt(k))
        found = space.dist(x, y)
        assert found.dtype == dtype
        assert ((found - space.dist(x.double(), y.double())).abs() * math.sqrt(k) < 4 * tolerance).all()


@pytest.mark.parametrize(("dim", "k"), [(1, 1.0), (2, 0.1), (2, 10.0), (5, 1.0), (5, 10.0)])
def test_maps_follow_the_formulas(dim, k):
    space, x, y = pairs(dim, k)
    p = space.random(len(ANGLES), dtype=F64)
    w = space.egrad2rgrad(x, torch.randn(x.shape, dtype=F64))
    a = space.egrad2rgrad(p, torch.randn(x.shape, dtype=F64))
    space.check(x, w)
    given = x, y, p, w, a
    found = space.logmap(x, y), space.transp(x, y, w), space.dist2plane(x, p, a), space.expmap(x, w), space.dist0(x)
    back = space.expmap(x, found[0])
    for (X, Y, P, W, A), (log, moved, height, shot, far), again in zip(
        zip(*given, strict=True), zip(*found, strict=True), back, strict=True
    ):
        root = mp.sqrt(mpf(k))
        u, v, q, normal = unit(X, k), unit(Y, k), unit(P, k), vector(A)
        theta, across = angle(u, v), plus(v, u, -dot(u, v))
        size = mp.sqrt(dot(across, across))
        exact = [theta / size / root * c for c in across] if size else [mp.mpf(0)] * len(u)
        # Near the antipode the direction is that of what rounding leaves of sin θ.
        assert worst([relative(*t) for t in zip(log, exact, strict=True)]) * float(root) < 4e-15 / (
            1 if theta < 2 else float(size)
        )
        torch.testing.assert_close(again, Y, rtol=0, atol=4e-15)
        turned = plus(vector(W), plus(u, v), -dot(v, vector(W)) / (1 + dot(u, v)))
        assert worst([relative(*t) for t in zip(moved, turned, strict=True)]) < 1e-8
        normal = plus(normal, q, -dot(normal, q))
        sine = dot(u, normal) / mp.sqrt(dot(normal, normal))
        assert relative(height, mp.asin(sine) / root) < 1e-14
        length = mp.sqrt(dot(vector(W), vector(W))) * root
        end = [mp.cos(length) * b + root * mp.sin(length) / length * c for b, c in zip(u, vector(W), strict=True)]
        end = [c / root for c in end[:-1]] + end[-1:]
        assert worst([relative(*t) for t in zip(shot, end, strict=True)]) < 4e-15
        assert relative(far, angle(u, [mp.mpf(0)] * dim + [mp.mpf(1)]) / root) < 1e-15
    torch.testing.assert_close(space.norm(y, found[1]), space.norm(x, w))
    torch.testing.assert_close(space.inner(x, w, w), space.norm(x, w) ** 2)


def test_at_the_origin_vectors_have_as_many_numbers_as_dimensions():
    space = Sphere(3, -0.5)
    u, y = torch.randn(6, 3, dtype=F64), space.random(6, dtype=F64)
    x = space.expmap0(u)
    assert space.width == x.shape[-1] == 4 and Lorentz(3).width == 3
    origin = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=F64).expand(6, 4)
    ambient = torch.nn.functional.pad(u, (0, 1))
    torch.testing.assert_close(x, space.expmap(origin, ambient))
    torch.testing.assert_close(space.logmap0(x), u)
    torch.testing.assert_close(space.transp0(y, u), space.transp(origin, y, ambient))
    torch.testing.assert_close(space.lambda_x(x), torch.ones(6, dtype=F64))


def test_geoopt_agrees_where_it_is_accurate():
    """Its sphere has curvature 1, and projects where vectors would be transported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # geoopt is built on torch.jit.script
        geoopt = pytest.importorskip("geoopt")
    ours, theirs = Sphere(3), geoopt.Sphere()
    x, y = (ours.random(20, dtype=F64) for _ in range(2))
    u = torch.randn(20, 4, dtype=F64)
    v = ours.egrad2rgrad(x, 0.3 * u)
    for name, args in {
        "dist": (x, y),
        "expmap": (x, v),
        "logmap": (x, y),
        "egrad2rgrad": (x, u),
        "inner": (x, v, v),
    }.items():
        found, expected = getattr(ours, name)(*args), getattr(theirs, name)(*args)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10, msg=name)


def test_as_the_curvature_vanishes_it_is_flat():
    space, u = Sphere(2, -1e-12), torch.randn(5, 2, dtype=F64)
    torch.testing.assert_close(space.expmap0(u)[:, :2], u, rtol=1e-10, atol=0)
    torch.testing.assert_close(space.dist0(space.expmap0(u)), u.norm(dim=-1), rtol=1e-6, atol=0)


def test_geodesics_and_means():
    space, x, y = pairs(2, 0.3)
    middle = space.geodesic(0.25, x, y)
    torch.testing.assert_close(space.dist(x, middle), 0.25 * space.dist(x, y))
    some = slice(0, 6)
    weights = torch.tensor([0.75, 0.25], dtype=F64)
    both = torch.stack([x, y], -2)[some]
    mean = space.frechet_mean(both, weights)
    torch.testing.assert_close(mean, middle[some])
    assert torch.autograd.gradcheck(lambda t: space.frechet_mean(t, weights), both[1:].clone().requires_grad_())
    # All around: the mean is open, but a point.
    assert space.contains(space.frechet_mean(torch.stack([x, space.expmap(x, space.logmap(x, -x))], -2))).all()


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_antipodes_and_points_that_coincide_have_finite_gradients(dtype):
    space = Sphere(2, -2.0)
    x = space.random(4, dtype=dtype)
    for y in (x.clone(), -x, x.flip(-1) * x.new_tensor([1.0, 1.0, 1.0])):
        x.requires_grad_(), y.requires_grad_()
        results = space.dist(x, y), space.logmap(x, y), space.transp(x, y, x.flip(-1)), space.dist2plane(x, y, x)
        for result in results:
            assert result.isfinite().all()
            for grad in torch.autograd.grad(result.sum(), (x, y), retain_graph=True, allow_unused=True):
                assert grad is None or grad.isfinite().all()
        x, y = x.detach(), y.detach()
    opposite = space.logmap(x, -x)
    torch.testing.assert_close(space.norm(x, opposite), space.dist(x, -x))
    space.check(x, opposite)


def test_gradients_are_those_of_differences():
    space, x, y = pairs(2, 1.0)
    x, y = x[2:7], y[2:7]
    w, c = space.egrad2rgrad(x, torch.randn(x.shape, dtype=F64)), torch.tensor(-0.7, dtype=F64)

    def results(x, y, w, c):
        space = Sphere(2, c)
        return (
            space.dist(x, y),
            space.logmap(x, y),
            space.expmap(x, w),
            space.transp(x, y, w),
            space.dist2plane(x, y, w),
        )

    leaves = [t.clone().requires_grad_() for t in (x, y, w, c)]
    assert torch.autograd.gradcheck(results, leaves, atol=1e-6)
    few = [t[1:3].detach().requires_grad_() if t.dim() else t for t in leaves]
    assert torch.autograd.gradgradcheck(lambda *t: results(*t)[1:3], few, atol=1e-5)
    each = torch.func.vmap(space.logmap)(x, y)
    torch.testing.assert_close(each, space.logmap(x, y))


def test_one_curvature_a_point():
    c = torch.tensor([-0.1, -1.0, -10.0], dtype=F64)
    u, v = torch.randn(2, 3, 2, dtype=F64).unbind()
    space = Sphere(2, c)
    x, y = space.expmap0(u), space.expmap0(v)
    alone = [Sphere(2, float(k)).dist(*pair) for k, pair in zip(c, zip(x, y, strict=True), strict=True)]
    torch.testing.assert_close(space.dist(x, y), torch.stack(alone))
    assert space.contains(space.frechet_mean(torch.stack([x, y], -2))).all()


def test_what_is_wrong_is_said():
    for c in (1.0, 0.0, math.inf, torch.tensor(0.5)):
        with pytest.raises(ValueError, match=r"c must be a finite number < 0: .* sphere is −c, 1 for c = -1, got c = "):
            Sphere(2, c)
    with pytest.raises(ValueError, match="c must be a finite number ≥ 0"):
        Lorentz(2, -1.0)
    space = Sphere(2)
    x = space.random(3)
    space.check(x), space.check(x, 0 * x)
    off = x.clone()
    off[1] *= 1.001
    with pytest.raises(
        ValueError, match=r"the point \[.*\] at index \(1,\) is not in Sphere\(2, c=-1.0\): ξ² − c·\|S\|²"
    ):
        space.check(off)
    with pytest.raises(ValueError, match=r"the vector \[.*\] at index \(0,\) is not tangent to Sphere.*orthogonal"):
        space.check(x, 0.01 * x)
    with pytest.raises(ValueError, match=r"u must have shape \(…, 2\) for Sphere"):
        space.expmap0(x)
    with pytest.raises(ValueError, match=r"x must have shape \(…, 3\) for Sphere"):
        space.dist(x[:, :2], x)
