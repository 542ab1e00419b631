"""From unconstrained vectors to the supports: Jacobians, inverses, changes of variables."""

from __future__ import annotations

import math
import pickle

import pytest
import torch
from torch.distributions import Independent, Normal, TransformedDistribution, biject_to, transform_to
from torch.func import vmap

from curvae import Euclidean, HyperbolicRadius, Lorentz, PoincareBall, RiemannianNormal, SphericalUniform, WrappedNormal
from curvae.distributions import ExpMap0Transform, NormalizeTransform

F64 = torch.float64
CURVATURES = (0.0, 0.3, 1.0, 5.0)
CHARTS = {"ball": PoincareBall, "lorentz": Lorentz, "euclidean": lambda dim, c: Euclidean(dim)}
SPACES = [
    (chart, c, dim) for chart in CHARTS for c in CURVATURES for dim in (1, 2, 3) if chart != "euclidean" or c == 0
]
spaces = pytest.mark.parametrize(("chart", "c", "dim"), SPACES)


def to_points(chart: str, c: float | torch.Tensor, dim: int) -> ExpMap0Transform:
    """The bijection for the support of a distribution on the space."""
    manifold = CHARTS[chart](dim, c)
    prior = RiemannianNormal(torch.zeros(dim, dtype=F64), 1.0, manifold)
    found = biject_to(prior.support)
    assert isinstance(found, ExpMap0Transform) and found.manifold is manifold
    assert transform_to(prior.support) == found
    return found


def vectors(dim: int, c: float, count: int = 8) -> torch.Tensor:
    """Of lengths up to 6/√c, 0 among them."""
    v = torch.randn(count, dim, dtype=F64)
    radii = torch.linspace(0, 6 / math.sqrt(max(c, 1)), count, dtype=F64)
    return v / v.norm(dim=-1, keepdim=True) * radii.unsqueeze(-1)


def volume(chart: str, c: float, y: torch.Tensor) -> torch.Tensor:
    """√det g of the chart at y, by hand."""
    square = (y * y).sum(-1)
    if chart == "ball":
        return (2 / (1 - c * square)) ** y.shape[-1]
    return (1 + c * square).rsqrt()


def radius(chart: str, c: float, y: torch.Tensor) -> torch.Tensor:
    """Distance from the origin, by hand."""
    length, root = y.norm(dim=-1), math.sqrt(c)
    if chart == "ball":
        return 2 * (torch.atanh(root * length) / root if c else length)
    return torch.asinh(root * length) / root if c else length


# --- points of a manifold -------------------------------------------------------------------------------------------


@spaces
def test_the_jacobian_is_that_of_the_riemannian_measure(chart, c, dim):
    t, v = to_points(chart, c, dim), vectors(dim, c)
    jacobian = torch.stack([torch.autograd.functional.jacobian(t, row) for row in v])
    y = t(v)
    expected = jacobian.det().abs().log() + volume(chart, c, y).log()
    assert torch.allclose(t.log_abs_det_jacobian(v, y), expected, rtol=1e-9, atol=1e-9)
    assert torch.equal(t.inv.log_abs_det_jacobian(y, v), -t.log_abs_det_jacobian(v, y))


@spaces
def test_round_trip(chart, c, dim):
    t, v = to_points(chart, c, dim), vectors(dim, c)
    y = t(v)
    assert bool(t.domain.check(v).all()) and bool(t.codomain.check(y).all())
    assert torch.allclose(t.inv(y), v, rtol=1e-9, atol=1e-12)
    assert torch.allclose(radius(chart, c, y), v.norm(dim=-1), rtol=1e-9, atol=1e-12)
    assert torch.allclose((y * v).sum(-1), y.norm(dim=-1) * v.norm(dim=-1), rtol=1e-12, atol=1e-15)


@spaces
def test_a_normal_becomes_the_wrapped_normal(chart, c, dim):
    t = to_points(chart, c, dim)
    scale = torch.linspace(0.5, 0.9, dim, dtype=F64)
    base = Independent(Normal(torch.zeros(dim, dtype=F64), scale), 1)
    pushed = TransformedDistribution(base, [t])
    wrapped = WrappedNormal(torch.zeros(dim, dtype=F64), scale, t.manifold)
    y = wrapped.sample((20,))
    assert torch.allclose(pushed.log_prob(y), wrapped.log_prob(y), rtol=1e-9)
    assert pushed.event_shape == (dim,) and pushed.rsample((4,)).shape == (4, dim)


@spaces
def test_densities_pulled_back_integrate_to_one(chart, c, dim):
    t = to_points(chart, c, dim)
    loc = t(torch.full((dim,), 0.3, dtype=F64))
    for p in (RiemannianNormal(loc, 0.5, t.manifold), WrappedNormal(loc, 0.5, t.manifold)):
        pulled = TransformedDistribution(p, [t.inv])
        # The support in v: the Riemannian normal lies farther out by (d − 1)·√c·σ², at most 1.1 here.
        axis = torch.linspace(-5.5, 5.5, 35, dtype=F64)  # sums over a smooth function: exact to 1e-6 at h = 0.65·σ
        grid = torch.cartesian_prod(*[axis] * dim).view(-1, dim)
        mass = pulled.log_prob(grid).exp().sum() * (axis[1] - axis[0]) ** dim
        assert float(mass) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("chart", ["ball", "lorentz"])
def test_gradients_in_the_vector_and_in_the_curvature(chart):
    v = vectors(2, 1.0, 3).requires_grad_()
    c = torch.tensor([0.3, 5.0, 0.0], dtype=F64)

    def moved(v, c):
        t = ExpMap0Transform(CHARTS[chart](2, c))
        y = t(v)
        return y, t.log_abs_det_jacobian(v, y), t.inv(y)

    # c = 0 is the end of its range, where no central difference exists.
    assert torch.autograd.gradcheck(moved, (v, c[:2].mean().requires_grad_()))
    assert torch.autograd.gradcheck(moved, (v, (c + 0.1).requires_grad_()))
    gradient = torch.autograd.functional.jacobian(lambda c: moved(v, c)[1], c)
    # log sinhc(y) = y/6 + …
    assert gradient[2, 2].item() == pytest.approx((v[2] ** 2).sum().item() / 6, rel=1e-12)


@pytest.mark.parametrize("chart", ["ball", "lorentz"])
def test_batches_of_curvatures(chart):
    c = torch.tensor(CURVATURES, dtype=F64)
    v = vectors(3, 5.0, 4)
    t = to_points(chart, c, 3)
    y = t(v)
    for i, k in enumerate(CURVATURES):
        one = ExpMap0Transform(CHARTS[chart](3, k))
        assert torch.allclose(y[i], one(v[i]), rtol=1e-12) and torch.allclose(t.inv(y)[i], v[i], rtol=1e-9)
        assert torch.allclose(t.log_abs_det_jacobian(v, y)[i], one.log_abs_det_jacobian(v[i], y[i]), rtol=1e-12)
    alone = v[3]
    assert t.forward_shape(alone.shape) == t(alone).shape == (4, 3) == t.inverse_shape(torch.Size([3]))
    assert t.log_abs_det_jacobian(alone, t(alone)).shape == (4,)

    def moved(v, c):
        t = ExpMap0Transform(CHARTS[chart](3, c), cache_size=1)
        y = t(v)
        return y, t.inv(y), t.log_abs_det_jacobian(v, y)

    for found, expected in zip(vmap(moved)(v, c), (y, v, t.log_abs_det_jacobian(v, y)), strict=True):
        assert torch.allclose(found, expected, rtol=1e-9)


def test_single_precision():
    t = biject_to(WrappedNormal(torch.zeros(2), 1.0, PoincareBall(2)).support)
    v = vectors(2, 1.0).float()
    y = t(v)
    assert y.dtype == t.inv(y).dtype == t.log_abs_det_jacobian(v, y).dtype == torch.float32
    assert torch.allclose(t.inv(y), v, rtol=1e-4)


def test_the_cache_keeps_the_pair():
    t = to_points("ball", 1.0, 2)
    cached = t.with_cache()
    v = vectors(2, 1.0)
    y = cached(v)
    assert cached.inv(y) is v and cached(v) is y and torch.equal(y, t(v))
    assert cached.with_cache() is cached and t.with_cache(0) is t and cached == t


def test_equality():
    c = torch.tensor([1.0, 2.0])
    alike = [PoincareBall(2), PoincareBall(2, torch.tensor(1.0)), PoincareBall(2, 1.0)]
    assert all(ExpMap0Transform(a) == ExpMap0Transform(b) for a in alike for b in alike)
    assert ExpMap0Transform(Lorentz(2, c)) == ExpMap0Transform(Lorentz(2, c.clone()))
    for other in (Lorentz(2), PoincareBall(3), PoincareBall(2, 2.0), PoincareBall(2, torch.ones(2))):
        assert ExpMap0Transform(PoincareBall(2)) != ExpMap0Transform(other)
    assert ExpMap0Transform(PoincareBall(2)) != NormalizeTransform(2) != NormalizeTransform(3)
    assert NormalizeTransform(2) == NormalizeTransform(2) != ExpMap0Transform(PoincareBall(2))
    assert repr(ExpMap0Transform(PoincareBall(2))) == "ExpMap0Transform(PoincareBall(2, c=1.0))"
    assert pickle.loads(pickle.dumps(ExpMap0Transform(PoincareBall(2), 1))) == ExpMap0Transform(PoincareBall(2))


def test_several_points_as_one_event():
    p = Independent(RiemannianNormal(torch.zeros(4, 3, 2, dtype=F64), 1.0, Lorentz(2)), 1)
    t, v = biject_to(p.support), torch.randn(4, 3, 2, dtype=F64)
    single = to_points("lorentz", 1.0, 2)
    assert torch.equal(t(v), single(v))
    assert torch.allclose(t.log_abs_det_jacobian(v, t(v)), single.log_abs_det_jacobian(v, v).sum(-1))
    assert TransformedDistribution(p, [t.inv]).log_prob(v).shape == (4,)


# --- directions and radii -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_directions(dtype):
    support = SphericalUniform(3, dtype).support
    t = transform_to(support)
    tiny, huge = torch.finfo(dtype).tiny, torch.finfo(dtype).max
    x = torch.tensor([[3, 0, 4], [0, 0, 0], [tiny, 0, 0], [huge, huge, 0], [-1, 2, 2]], dtype=dtype, requires_grad=True)
    y = t(x)
    expected = [[0.6, 0, 0.8], [1, 0, 0], [1, 0, 0], [0.5**0.5, 0.5**0.5, 0], [-1 / 3, 2 / 3, 2 / 3]]
    assert torch.allclose(y, torch.tensor(expected, dtype=dtype)) and bool(support.check(y).all())
    y.sum().backward()
    assert bool(x.grad.isfinite().all())
    assert torch.allclose(t(t.inv(y)), y) and t.with_cache()(x).shape == (5, 3)
    inner = x.detach()[[0, 4]].double().requires_grad_()
    assert torch.autograd.gradcheck(t, (inner,))
    with pytest.raises(NotImplementedError, match="no bijection leads .* to a sphere"):
        biject_to(support)


def test_radii():
    law = HyperbolicRadius(3, torch.tensor(0.8, dtype=F64), 1.0)
    pulled = TransformedDistribution(law, [biject_to(law.support).inv])
    x = torch.linspace(-25, 3, 4001, dtype=F64)
    assert float(pulled.log_prob(x).exp().sum() * (x[1] - x[0])) == pytest.approx(1.0, abs=1e-9)
