"""Independent normals on a product of spaces, against densities and integrals in arbitrary precision."""

from __future__ import annotations

import math

import mpmath as mp
import pytest
import torch
from scipy import stats
from torch.distributions import kl_divergence

from curvae import Euclidean, Lorentz, PoincareBall, RiemannianNormal, WrappedNormal
from curvae.distributions import ProductNormal
from oracles import ball_dist, log_riemannian, log_wrapped, lorentz_to_ball, mpf, relative, vector

F64 = torch.float64
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
