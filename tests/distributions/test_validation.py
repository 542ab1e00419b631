"""From unconstrained vectors to the supports: Jacobians, inverses, changes of variables."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.distributions import (
    Distribution,
    Independent,
    MixtureSameFamily,
    Normal,
    TransformedDistribution,
    biject_to,
    constraints,
    kl_divergence,
    transform_to,
)
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


# --- the checks that torch.distributions holds its own classes to ----------------------------------------------------


CONTRACT_CURVATURES = (0.0, 1.3)


DIMENSIONS = (1, 2, 10)


CONTRACT_CHARTS = (Lorentz, PoincareBall)


@dataclass(frozen=True)
class Case:
    """How to build a distribution, and from what."""

    name: str
    cls: type[Distribution]
    params: dict[str, Any]
    bad: tuple[dict[str, Any], ...]
    """changes of the parameters, each of which must be refused"""
    event_dim: int = 1

    def build(self, cls: type | None = None, **changes: Any) -> Distribution:
        return (cls or self.cls)(**{**self.params, **changes})

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        return {k: v for k, v in self.params.items() if isinstance(v, torch.Tensor)}


def spreads(d: int) -> dict[str, dict[str, Any]]:
    """Ways to give the scale of a normal with the batch shape (3, 2)."""
    values = torch.linspace(0.2, 0.7, 6, dtype=torch.float64).reshape(3, 2, 1)
    tril = torch.eye(d, dtype=torch.float64) * 0.4 + 0.1 * torch.ones(d, d, dtype=torch.float64).tril(-1)
    return {
        "number": {"scale": 0.5},
        "scalar": {"scale": torch.tensor(0.5, dtype=torch.float64)},
        "isotropic": {"scale": values},
        "diagonal": {"scale": values * torch.linspace(1.0, 0.5, d, dtype=torch.float64)},
        "full": {"scale_tril": tril * values.unsqueeze(-1)},
    }


def normals(cls: type[Distribution]) -> Iterator[Case]:
    """Isotropic scales everywhere, and other kinds in turn, such that each meets every curvature and both charts."""
    for (i, c), (j, d) in itertools.product(enumerate(CONTRACT_CURVATURES), enumerate(DIMENSIONS)):
        kinds = ["isotropic", ("number", "scalar")[j % 2]]
        kinds += [("diagonal", "full")[j % 2]] if cls is WrappedNormal else []
        chart = CONTRACT_CHARTS[(i + j) % 2]
        space = chart(d, c)
        loc = space.expmap0(torch.linspace(-0.4, 0.5, 6 * d, dtype=torch.float64).reshape(3, 2, d) / math.sqrt(d))
        for kind in kinds:
            spread = spreads(d)[kind]
            (key, value), *_ = spread.items()
            wrong = [{key: value * factor} for factor in (-1.0, 0.0, math.nan)]
            wrong += [{"loc": torch.full_like(loc, x)} for x in (math.nan, math.inf)]
            wrong += [{"loc": torch.zeros(d + 1)}, {"loc": torch.tensor(0.0)}]
            if chart is PoincareBall and c:
                wrong.append({"loc": torch.full_like(loc, 1.01 / math.sqrt(c))})
            name = f"{cls.__name__}-{chart.__name__}-c{c}-d{d}-{kind}"
            yield Case(name, cls, {"loc": loc, **spread, "manifold": space}, tuple(wrong))


def radii() -> Iterator[Case]:
    scale = torch.linspace(0.2, 1.5, 6, dtype=torch.float64).reshape(3, 2)
    wrong = tuple({"scale": x} for x in (0.0, -1.0, math.nan, math.inf)) + tuple(
        {"c": x} for x in (-0.1, math.nan, math.inf)
    )
    for c, d in itertools.product(CONTRACT_CURVATURES, DIMENSIONS):
        for kind, k in (("number", c), ("tensor", torch.full((2,), c, dtype=torch.float64))):
            yield Case(
                f"HyperbolicRadius-c{c}-d{d}-{kind}", HyperbolicRadius, {"dim": d, "scale": scale, "c": k}, wrong, 0
            )


def directions() -> Iterator[Case]:
    for d in DIMENSIONS:
        params = {"dim": d, "dtype": torch.float64, "batch_shape": torch.Size([3, 2])}
        yield Case(f"SphericalUniform-d{d}", SphericalUniform, params, ({"dim": 0}, {"dim": 1.5}))


CASES = {
    "wrapped": list(normals(WrappedNormal)),
    "riemannian": list(normals(RiemannianNormal)),
    "radius": list(radii()),
    "direction": list(directions()),
}


CHECKS: dict[str, Callable[[Case], None]] = {}


def check(function: Callable[[Case], None]) -> Callable[[Case], None]:
    CHECKS[function.__name__] = function
    return function


# --- declarations ---------------------------------------------------------------------------------------------------


@check
def support_is_declared_by_the_class(case: Case) -> None:
    p = case.build()
    for support in (case.cls.support, p.support):
        assert isinstance(support, constraints.Constraint)
        assert support.event_dim == len(p.event_shape) == case.event_dim
        assert support.is_discrete is False


@check
def arguments_are_declared_by_the_class_and_kept(case: Case) -> None:
    p = case.build()
    assert isinstance(case.cls.arg_constraints, dict)
    assert set(p.arg_constraints) <= set(case.cls.arg_constraints)
    for name, constraint in p.arg_constraints.items():
        value = getattr(p, name)
        assert constraint.event_dim == case.cls.arg_constraints[name].event_dim <= value.dim()
        torch.broadcast_shapes(p.batch_shape, value.shape[: value.dim() - constraint.event_dim])
        assert constraint.check(value).all(), name
    assert {name for name in case.params if name in case.cls.arg_constraints} <= set(p.arg_constraints)


@check
def repr_copy_and_pickle(case: Case) -> None:
    p = case.build()
    assert repr(p).startswith(case.cls.__name__ + "(")
    value = p.sample()
    for q in (copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert type(q) is case.cls and torch.equal(q.log_prob(value), p.log_prob(value))


@check
def nothing_to_enumerate(case: Case) -> None:
    p = case.build()
    assert p.has_rsample and not p.has_enumerate_support
    with pytest.raises(NotImplementedError):
        p.enumerate_support()
    torch.testing.assert_close(p.perplexity(), p.entropy().exp())


# --- draws ----------------------------------------------------------------------------------------------------------


@check
def shapes_of_draws_and_densities(case: Case) -> None:
    p = case.build()
    assert p.batch_shape == (3, 2)
    for shape in ((), (1,), (4, 5), (0,)):
        value = p.sample(shape)
        assert value.shape == torch.Size(shape) + p.batch_shape + p.event_shape and value.dtype == torch.float64
        assert p.log_prob(value).shape == torch.Size(shape) + p.batch_shape
    one = p.sample()[0, 0]
    assert p.log_prob(one).shape == p.batch_shape
    torch.testing.assert_close(p.log_prob(one)[0, 0], p.log_prob(one.expand(3, 2, *p.event_shape))[0, 0])
    assert p.entropy().shape == p.batch_shape
    assert p.mean.shape == p.batch_shape + p.event_shape
    for statistic in ("variance", "stddev", "mode"):
        try:
            value = getattr(p, statistic)
        except NotImplementedError:
            continue
        assert value.shape == p.batch_shape + p.event_shape


@check
def draws_lie_in_the_support(case: Case) -> None:
    p = case.build()
    valid = p.support.check(p.sample())
    assert valid.shape == p.batch_shape and valid.all()


@check
def draws_follow_the_seed(case: Case) -> None:
    p = case.build()
    draws = []
    for _ in range(2):
        torch.manual_seed(3)
        draws.append(p.sample((2,)))
    assert torch.equal(*draws)


@check
def gradients_of_draws_and_densities(case: Case) -> None:
    leaves = {k: v.clone().requires_grad_() for k, v in case.tensors.items()}
    changes: dict[str, Any] = dict(leaves)
    if "manifold" in case.params:
        space = case.params["manifold"]
        leaves["c"] = torch.tensor(space.c, dtype=torch.float64, requires_grad=True)
        changes["manifold"] = type(space)(space.dim, leaves["c"])
    p = case.build(**changes)
    assert not p.sample().requires_grad
    if not leaves:
        return
    assert p.rsample().requires_grad
    # Several backward passes through one object.
    value = p.sample()
    for result in (p.rsample(), p.log_prob(value), p.entropy(), p.log_prob(value)):
        result.sum().backward()
    for name, leaf in leaves.items():
        assert leaf.grad is not None and leaf.grad.isfinite().all(), name


# --- expand ---------------------------------------------------------------------------------------------------------


@check
def expand_keeps_everything(case: Case) -> None:
    for validate in (True, False):
        p = case.build(validate_args=validate)
        for shape in ((3, 2), (4, 3, 2), (0, 3, 2)) if validate else ((4, 3, 2),):
            q = p.expand(shape)
            assert type(q) is case.cls and q.batch_shape == shape and q.event_shape == p.event_shape
            assert q._validate_args is validate
            for name, constraint in q.arg_constraints.items():
                value = getattr(q, name)
                assert value.shape[: value.dim() - constraint.event_dim] == torch.Size(shape), name
            value = q.sample()
            assert value.shape == torch.Size(shape) + p.event_shape
            torch.testing.assert_close(q.log_prob(value), p.log_prob(value))
            torch.testing.assert_close(q.mean, p.mean.expand(q.mean.shape))
            torch.testing.assert_close(q.entropy(), p.entropy().expand(shape))
        with pytest.raises(RuntimeError):
            p.expand((4, 2)).log_prob(p.sample())


@check
def expand_of_a_subclass(case: Case) -> None:
    subclass = type("Subclass", (case.cls,), {})
    p = case.build(cls=subclass)
    assert type(p.expand((4, 3, 2))) is subclass


@check
def independent_and_mixture(case: Case) -> None:
    p = case.build()
    value = p.sample()
    torch.testing.assert_close(Independent(p, 1).log_prob(value), p.log_prob(value).sum(-1))
    weights = torch.tensor([0.3, 0.7], dtype=torch.float64)
    mixture = MixtureSameFamily(torch.distributions.Categorical(weights).expand((3,)), p)
    value = mixture.sample()
    expected = (p.log_prob(value.unsqueeze(1)) + weights.log()).logsumexp(-1)
    torch.testing.assert_close(mixture.log_prob(value), expected)


# --- validation -----------------------------------------------------------------------------------------------------


@check
def bad_arguments_are_refused(case: Case) -> None:
    case.build(validate_args=True)
    for change in case.bad:
        with pytest.raises(ValueError, match=next(iter(change))):
            case.build(**change, validate_args=True)


@check
def bad_values_are_refused(case: Case) -> None:
    p, loose = case.build(validate_args=True), case.build(validate_args=False)
    good = p.sample()
    bad = [torch.full_like(good, math.nan)]
    bad += [-good - 1] if case.cls is HyperbolicRadius else [2 * good] if case.cls is SphericalUniform else []
    one = good.clone()
    one.view(-1)[-1] = math.nan
    for value in (*bad, one):
        with pytest.raises(
            ValueError, match=r"Expected value argument .* to be within the support .* of the distribut"
        ):
            p.log_prob(value)
        loose.log_prob(value)
    wrong_shapes = [good[0, :1].expand(5, *good.shape[2:])]
    wrong_shapes += [torch.zeros(p.event_shape[0] + 1), torch.tensor(0.0)] if p.event_shape else []
    for value in wrong_shapes:
        with pytest.raises(ValueError, match="value"):
            p.log_prob(value)


@check
def validation_under_vmap(case: Case) -> None:
    p = case.build()
    value = p.sample()
    nan = torch.full_like(value, math.nan)
    outside = torch.vmap(p.log_prob)  # of an object from outside
    torch.testing.assert_close(outside(value.expand(2, *value.shape))[1], p.log_prob(value))
    with pytest.raises(ValueError, match="within the support"):
        outside(nan.expand(2, *nan.shape))

    names = [name for name, tensor in case.tensors.items() if tensor.shape[:2] == (3, 2)]
    if not names:
        return
    tensors = [case.tensors[name] for name in names]

    def build(*parts: torch.Tensor) -> Distribution:
        return case.build(**dict(zip(names, parts, strict=True)), validate_args=True)

    mapped = torch.vmap(lambda value, *parts: build(*parts).log_prob(value))
    torch.testing.assert_close(mapped(value, *tensors), p.log_prob(value))
    with pytest.raises(ValueError, match="within the support"):
        mapped(nan, *tensors)
    with pytest.raises(ValueError, match=names[0]):
        mapped(value, torch.full_like(tensors[0], math.nan), *tensors[1:])
    draws = torch.vmap(lambda *parts: build(*parts).sample(), randomness="different")(*tensors)
    assert draws.shape == value.shape


@check
def validation_follows_the_global_default(case: Case) -> None:
    before = Distribution._validate_args
    try:
        for default in (False, True):
            Distribution.set_default_validate_args(default)
            p = case.build()
            assert p._validate_args is default
            nan = torch.full_like(p.sample(), math.nan)
            if default:
                with pytest.raises(ValueError, match="support"):
                    p.log_prob(nan)
            else:
                p.log_prob(nan)
    finally:
        Distribution.set_default_validate_args(before)


# --- distribution functions -----------------------------------------------------------------------------------------


@check
def cdf_and_icdf_are_inverse_and_match_the_density(case: Case) -> None:
    p = case.build()
    if case.cls is not HyperbolicRadius:
        for method in (p.cdf, p.icdf):
            with pytest.raises(NotImplementedError):
                method(p.sample())
        return
    value = p.sample().requires_grad_()
    torch.testing.assert_close(p.icdf(p.cdf(value)), value, rtol=1e-8, atol=1e-10)
    (slope,) = torch.autograd.grad(p.cdf(value).sum(), value)
    torch.testing.assert_close(slope, p.log_prob(value).exp(), rtol=1e-9, atol=1e-12)
    ends = torch.tensor([0.0, math.inf], dtype=torch.float64)[:, None, None]
    assert torch.equal(p.cdf(ends), torch.tensor([0.0, 1.0]).double()[:, None, None].expand(2, 3, 2))
    assert torch.equal(p.icdf(torch.tensor([0.0, 1.0]).double()[:, None, None]), ends.expand(2, 3, 2))
    assert (p.log_prob(torch.tensor(math.inf)) == -math.inf).all()
    for method in (p.cdf, p.log_prob, p.icdf):
        for bad in (-1.0, math.nan):
            with pytest.raises(ValueError, match="value"):
                method(torch.tensor(bad))
    loose = case.build(validate_args=False)
    assert (loose.cdf(torch.tensor(-1.0)) == 0).all() and (loose.log_prob(torch.tensor(-1.0)) == -math.inf).all()
    assert loose.cdf(torch.tensor(math.nan)).isnan().all()


# --- divergences ----------------------------------------------------------------------------------------------------


def has_divergence(case: Case) -> bool:
    d = case.params["manifold"].dim if "manifold" in case.params else 2
    flat = "manifold" in case.params and case.params["manifold"].c == 0
    return d == 1 or flat or not case.name.endswith(("diagonal", "full"))


@check
def divergence_from_itself_is_zero(case: Case) -> None:
    p = case.build()
    if not has_divergence(case):
        with pytest.raises(NotImplementedError, match="rsample_and_log_prob"):
            kl_divergence(p, p)
        return
    q = case.build()
    torch.testing.assert_close(kl_divergence(p, q), torch.zeros(3, 2, dtype=torch.float64), rtol=0, atol=1e-11)


@check
def divergence_matches_draws(case: Case) -> None:
    p = case.build()
    if not has_divergence(case):
        return
    if case.cls is SphericalUniform:
        q = p
    elif case.cls is HyperbolicRadius:
        q = case.build(scale=case.params["scale"].flip(0) * 1.3)
    else:
        key = next(k for k in ("scale", "scale_tril") if k in case.params)
        q = case.build(loc=case.params["loc"].flip(0), **{key: case.params[key] * 1.4})
    exact = kl_divergence(p, q)
    assert exact.shape == (3, 2) and exact.dtype == torch.float64 and (exact >= 0).all()
    n = 400
    value = p.sample((n,))
    ratio = p.log_prob(value) - q.log_prob(value)
    assert ((ratio.mean(0) - exact).abs() <= 6 * ratio.std(0) / math.sqrt(n) + 1e-9).all()
    # Batch shapes broadcast.
    assert kl_divergence(p.expand((4, 3, 2)), q).shape == (4, 3, 2)


@check
def moments_match_draws(case: Case) -> None:
    p = case.build()
    n = 400
    value = p.sample((n,))
    log_p = p.log_prob(value)
    gap = (log_p.mean(0) + p.entropy()).abs()
    assert (gap <= 6 * log_p.std(0) / math.sqrt(n) + 1e-9).all()
    if case.cls in (HyperbolicRadius, SphericalUniform):
        assert ((value.mean(0) - p.mean).abs() <= 6 * value.std(0) / math.sqrt(n)).all()
        square = (value - p.mean) ** 2
        assert ((square.mean(0) - p.variance).abs() <= 6 * square.std(0) / math.sqrt(n) + 1e-9).all()


# --- all of them ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("name", CHECKS)
def test_contract(kind: str, name: str) -> None:
    torch.manual_seed(0)
    failures = []
    for case in CASES[kind]:
        try:
            CHECKS[name](case)
        except (Exception, pytest.fail.Exception) as error:  # every case is tried, and all that fail are shown
            failures.append(f"{case.name}: {type(error).__name__}: {str(error)[:200]}")
    assert not failures, f"{len(failures)} of {len(CASES[kind])} cases fail:\n" + "\n".join(failures[:5])
