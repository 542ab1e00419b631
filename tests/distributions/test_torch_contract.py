"""The checks that torch.distributions holds its own classes to, for every class, curvature and dimension.

Charts alternate, such that each meets every curvature and every dimension.

A check is a function of one case; each test runs one check over all cases of a class and lists those that fail.
"""

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
from torch.distributions import Distribution, Independent, MixtureSameFamily, constraints, kl_divergence

from curvae import HyperbolicRadius, Lorentz, PoincareBall, RiemannianNormal, SphericalUniform, WrappedNormal

CURVATURES = (0.0, 1.3)
DIMENSIONS = (1, 2, 10)
CHARTS = (Lorentz, PoincareBall)


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
    for (i, c), (j, d) in itertools.product(enumerate(CURVATURES), enumerate(DIMENSIONS)):
        kinds = ["isotropic", ("number", "scalar")[j % 2]]
        kinds += [("diagonal", "full")[j % 2]] if cls is WrappedNormal else []
        chart = CHARTS[(i + j) % 2]
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
    for c, d in itertools.product(CURVATURES, DIMENSIONS):
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
