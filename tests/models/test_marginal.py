"""Objectives and marginal likelihoods against quadrature, on models of one and two latent dimensions.

The quadrature is written from the definitions in docs/mathematics.md: around a centre, frame vectors v in one
dimension on a line and in two in polar coordinates with the area element sinh(√c·r)/√c dr dθ; the point reached is the
Möbius sum in the disc, as complex numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import multivariate_normal
from torch import nn

from curvae.models import VAE, Bernoulli, Gaussian, Posterior, marginal, marginal_likelihood
from curvae.nn import HyperbolicFactor, Space, decoder, mlp

PRIOR_SCALE = 0.9
LOADINGS = np.array([[0.9, -0.4], [0.3, 0.8], [-0.5, 0.6]])
ROWS = np.array([[0.4, -0.3, 0.8], [1.5, 0.2, -0.9], [0.0, 1.9, 0.7], [-1.2, -1.1, 0.1]])


@dataclass(frozen=True)
class Toy:
    """x = A·log_0(z) + unit noise, and a posterior that is a linear function of x with constant deviations."""

    dim: int
    c: float
    law: str
    prior_law: str
    deviations: tuple[float, ...]

    @property
    def loadings(self):
        return LOADINGS[:, : self.dim]

    @property
    def slope(self):
        """log_0 μ = slope·x: the posterior of the flat model, a little off."""
        precision = np.eye(self.dim) / PRIOR_SCALE**2 + self.loadings.T @ self.loadings
        return 0.95 * np.linalg.solve(precision, self.loadings.T)

    def centres(self, x):
        return x @ self.slope.T

    def model(self) -> VAE:
        diagonal = len(self.deviations) > 1
        factor = HyperbolicFactor(self.dim, self.c, False, self.law, diagonal, PRIOR_SCALE, prior=self.prior_law)
        posterior = Posterior(3, Space([factor]))
        with torch.no_grad():
            posterior.head.weight.zero_()
            posterior.head.weight[: self.dim] = torch.from_numpy(self.slope / 2)
            posterior.head.bias.zero_()
            posterior.head.bias[self.dim :] = torch.tensor(self.deviations).expm1().log()
        return VAE(nn.Identity(), LinearInLog(self.loadings, self.c), posterior, Gaussian(3, learned=False))


class LinearInLog(nn.Module):
    def __init__(self, loadings, c: float) -> None:
        super().__init__()
        self.c = c
        self.register_buffer("loadings", torch.from_numpy(loadings).float())

    def forward(self, S):
        size = S.norm(dim=-1, keepdim=True)
        root = math.sqrt(self.c)
        v = S * (root * size).asinh() / (root * size) if self.c else S
        return v @ self.loadings.T


def case(dim: int, c: float, law: str, prior_law: str | None = None, deviations: tuple[float, ...] = (0.8,)):
    # Wider than the true posterior, so that the importance weights are bounded and their variance is seen.
    name = f"{dim}-{c}-{law}-{prior_law or 'same'}-{len(deviations)}"
    return pytest.param(Toy(dim, c, law, prior_law or law, deviations), id=name)


SAME_LAW = [case(dim, c, law) for dim in (1, 2) for c in (0.0, 0.5, 1.4) for law in ("wrapped", "riemannian")]
OTHERS = [
    case(2, 1.4, "wrapped", "riemannian"),
    case(2, 0.5, "riemannian", "wrapped"),
    case(2, 1.4, "wrapped", deviations=(0.95, 0.75)),
]


# --- the oracle -----------------------------------------------------------------------------------------------------


@cache
def nodes(dim: int, c: float, reach: float = 11.0):
    """Frame vectors (n, dim), and their weights for the Riemannian measure."""
    t, weights = np.polynomial.legendre.leggauss(240)
    if dim == 1:
        return reach * t[:, None], reach * weights
    r = reach * (t + 1) / 2
    angle = 2 * np.pi * np.arange(256) / 256
    area = np.sinh(math.sqrt(c) * r) / math.sqrt(c) if c else r
    v = r[:, None, None] * np.stack([np.cos(angle), np.sin(angle)], -1)
    return v.reshape(-1, 2), np.repeat(reach / 2 * weights * area * 2 * np.pi / 256, 256)


def log_density(law: str, v, deviations, c: float):
    """With respect to the Riemannian measure, at the frame vector v from the centre."""
    dim, r = v.shape[-1], np.linalg.norm(v, axis=-1)
    sigma = np.broadcast_to(deviations, dim)
    s = math.sqrt(c) * r
    if law == "wrapped":
        bend = np.log(np.where(s > 0, np.sinh(s) / np.where(s > 0, s, 1.0), 1.0))
        return -((v / sigma) ** 2).sum(-1) / 2 - np.log(sigma).sum() - dim / 2 * np.log(2 * np.pi) - (dim - 1) * bend
    if dim == 1:
        total = sigma[0] * math.sqrt(2 * np.pi)
    else:
        area = (lambda r: math.sinh(math.sqrt(c) * r) / math.sqrt(c)) if c else (lambda r: r)
        total = 2 * np.pi * quad(lambda r: math.exp(-r * r / 2 / sigma[0] ** 2) * area(r), 0, 12, epsabs=1e-13)[0]
    return -(r**2) / 2 / sigma[0] ** 2 - np.log(total)


def reached(centre, v, c: float):
    """log_0 of exp_μ(v) for a centre given by log_0 μ."""

    def disc(u):
        r = np.linalg.norm(u, axis=-1)
        shrink = np.tanh(math.sqrt(c) * r / 2) / (math.sqrt(c) * np.where(r > 0, r, 1.0)) if c else 0.5
        return (u[..., 0] + (1j * u[..., 1] if u.shape[-1] > 1 else 0)) * shrink

    a, w = disc(np.asarray(centre)), disc(v)
    z = (a + w) / (1 + c * np.conj(a) * w)
    size = np.abs(z)
    z = z * (2 * np.arctanh(math.sqrt(c) * size) / (math.sqrt(c) * size) if c else 2.0)
    return np.stack([z.real, z.imag], -1)[..., : v.shape[-1]]


@dataclass(frozen=True)
class Truth:
    log_prob: float
    reconstruction: float
    kl: float

    @property
    def elbo(self) -> float:
        return self.reconstruction - self.kl


@cache
def truths(toy: Toy) -> list[Truth]:
    v, weights = nodes(toy.dim, toy.c)

    def log_likelihood(x, tangent):
        return -((x - tangent @ toy.loadings.T) ** 2).sum(-1) / 2 - 1.5 * np.log(2 * np.pi)

    p = np.exp(log_density(toy.prior_law, v, PRIOR_SCALE, toy.c)) * weights
    log_q = log_density(toy.law, v, toy.deviations, toy.c)
    q = np.exp(log_q) * weights
    assert abs(p.sum() - 1) < 1e-9 and abs(q.sum() - 1) < 1e-9
    result = []
    for x in ROWS:
        z = reached(toy.centres(x), v, toy.c)
        log_prob = np.log(p @ np.exp(log_likelihood(x, v)))
        kl = q @ (log_q - log_density(toy.prior_law, z, PRIOR_SCALE, toy.c))
        result.append(Truth(float(log_prob), float(q @ log_likelihood(x, z)), float(kl)))
    return result


def column(toy: Toy, name: str) -> torch.Tensor:
    return torch.tensor([getattr(truth, name) for truth in truths(toy)], dtype=torch.float64)


def rows(repeats: int = 1) -> torch.Tensor:
    return torch.from_numpy(ROWS).float().repeat(repeats, 1)


# --- the tests ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("toy", SAME_LAW)
def test_quadrature_agrees_with_factor_analysis(toy):
    """x is normal when log_0(z) is: in one dimension, at c = 0, and for the wrapped prior."""
    covariance = np.eye(3) + PRIOR_SCALE**2 * toy.loadings @ toy.loadings.T
    gaussian = multivariate_normal(np.zeros(3), covariance).logpdf(ROWS)
    difference = np.abs(column(toy, "log_prob").numpy() - gaussian).max()
    if toy.dim == 1 or toy.c == 0 or toy.law == "wrapped":
        assert difference < 1e-9
    else:
        assert difference > 1e-2
    if toy.dim == 1 or toy.c == 0:
        sigma, m = toy.deviations[0], toy.centres(ROWS)
        kl = (m**2).sum(-1) / 2 / PRIOR_SCALE**2 + toy.dim * (
            sigma**2 / 2 / PRIOR_SCALE**2 - 0.5 - math.log(sigma / PRIOR_SCALE)
        )
        np.testing.assert_allclose(column(toy, "kl"), kl, atol=1e-9)


def agrees(draws: torch.Tensor, truth: torch.Tensor) -> None:
    """The mean of the draws within 4 standard errors of the truth, for every row, and not trivially so."""
    error = draws.double().std(0) / math.sqrt(len(draws))
    assert error.max() < 0.05
    assert ((draws.double().mean(0) - truth).abs() < 4 * error + 1e-5).all()


@pytest.mark.parametrize("toy", (SAME_LAW + OTHERS)[::2])
def test_elbo_and_its_terms(toy):
    model, x = toy.model(), rows()
    noise = model.noise(len(x), 10_000)
    with torch.no_grad():
        terms = model.terms(x, noise)
        closed = model.terms(x, noise, entropy=True)
        agrees(terms.reconstruction, column(toy, "reconstruction"))
        agrees(terms.kl, column(toy, "kl"))
        agrees(closed.kl, column(toy, "kl"))
        agrees(terms.reconstruction - terms.kl, column(toy, "elbo"))
        torch.testing.assert_close(closed.reconstruction, terms.reconstruction, rtol=1e-5, atol=1e-5)
        for beta in (1.0, 0.3):
            value = model.elbo(x, beta=beta, noise=noise)
            torch.testing.assert_close(value, (terms.reconstruction - beta * terms.kl).mean(0))
        agrees(torch.stack([model.elbo(x, k=50) for _ in range(40)]), column(toy, "elbo"))


@pytest.mark.parametrize("toy", SAME_LAW[1::4] + SAME_LAW[::4] + OTHERS)
def test_marginal_likelihood_and_its_standard_error(toy):
    model, truth = toy.model(), column(toy, "log_prob")
    generator = torch.Generator().manual_seed(1)
    result = marginal_likelihood(model, rows(), samples=5000, generator=generator)
    assert ((result.log_prob - truth).abs() < 4 * result.error).all() and result.error.max() < 0.05
    assert ((result.ess > 1) & (result.ess < 5000)).all()
    # The reported error is the deviation of the estimate.
    repeats = 100
    many = marginal_likelihood(model, rows(repeats), samples=1000, generator=generator)
    z = ((many.log_prob - truth.repeat(repeats)) / many.error).view(repeats, -1)
    assert z.mean().abs() < 4 / math.sqrt(z.numel())
    assert 0.75 < z.var() < 1.35


@pytest.mark.parametrize("toy", SAME_LAW[::3] + OTHERS[:1])
def test_iwae_grows_towards_the_marginal_likelihood(toy):
    """The same draws in groups of k: by Jensen's inequality larger groups give more, draw for draw."""
    model, truth, repeats = toy.model(), column(toy, "log_prob"), 200
    noise = model.noise(4 * repeats, 64)
    bounds = {}
    for k in (1, 4, 16, 64):
        grouped = noise.unflatten(0, (-1, k)).transpose(0, 1).flatten(1, 2)
        with torch.no_grad():
            values = model.iwae(rows(repeats * 64 // k), noise=grouped).view(64 // k, repeats, 4)
        bounds[k] = values.double().mean(0)
    agrees(bounds[1], column(toy, "elbo"))
    for less, more in ((1, 4), (4, 16), (16, 64)):
        gain = bounds[more] - bounds[less]
        assert (gain > -1e-5).all() and (gain.mean(0) > 1e-4).all()
    assert (bounds[4].mean(0) < truth).all()
    gap, error = truth - bounds[64].mean(0), bounds[64].std(0) / math.sqrt(repeats)
    assert (gap > -4 * error).all() and (gap < 4 * error + 0.02).all()


@pytest.mark.parametrize("law", ["wrapped", "riemannian"])
def test_the_exact_posterior_leaves_nothing_to_chance(law):
    """Factor analysis with orthogonal loadings: every weight is p(x), the error 0 and every bound tight."""
    a, s, x = 1.3, PRIOR_SCALE, rows()
    loadings = a * np.linalg.qr(LOADINGS)[0]
    posterior = Posterior(3, Space("e2", distribution=law, prior_scale=s))
    variance = 1 / (1 / s**2 + a**2)
    with torch.no_grad():
        posterior.head.weight.zero_()
        posterior.head.weight[:2] = torch.from_numpy(variance * loadings.T / 2)
        posterior.head.bias.copy_(torch.tensor([0.0, 0.0, math.log(math.expm1(math.sqrt(variance)))]))
    model = VAE(
        nn.Identity(),
        LinearInLog(loadings, 0.0),
        posterior,
        Gaussian(3, learned=False),
    )
    truth = torch.from_numpy(multivariate_normal(np.zeros(3), np.eye(3) + s**2 * loadings @ loadings.T).logpdf(ROWS))
    result = marginal_likelihood(model, x, samples=300)
    torch.testing.assert_close(result.log_prob, truth, rtol=0, atol=1e-5)
    torch.testing.assert_close(result.ess, torch.full((4,), 300.0, dtype=torch.float64), rtol=1e-6, atol=0)
    assert result.error.max() < 1e-4
    for value in (model.elbo(x), model.elbo(x, k=3), model.iwae(x, k=3)):
        torch.testing.assert_close(value, truth, rtol=0, atol=1e-5)


# --- streaming ------------------------------------------------------------------------------------------------------


def small(features: int, dim: int = 3) -> VAE:
    space = Space(f"h{dim}")
    parts = mlp(features, 6), decoder("gyroplane", space, (6,), features)
    return VAE(*parts, Posterior(6, space), Bernoulli(features))


def test_streaming_equals_one_sum():
    model, x = small(4), torch.rand(3, 4)
    result = marginal_likelihood(model, x, samples=1100, generator=torch.Generator().manual_seed(5))
    generator = torch.Generator().manual_seed(5)
    noise = torch.cat([model.noise(3, k, generator) for k in (367, 367, 366)])
    with torch.no_grad():
        reconstruction, kl = model.terms(x, noise)
    weights = (reconstruction - kl).double().exp().numpy()
    np.testing.assert_allclose(result.log_prob, np.log(weights.mean(0)), rtol=1e-6)
    np.testing.assert_allclose(result.ess, weights.sum(0) ** 2 / (weights**2).sum(0), rtol=1e-5)
    relative = weights.std(0) / weights.mean(0) / math.sqrt(1100)
    np.testing.assert_allclose(result.error, relative, rtol=1e-4)


@pytest.mark.parametrize("samples", [100, 3000])
def test_memory_does_not_grow_with_the_samples(samples, monkeypatch):
    monkeypatch.setitem(marginal._CHUNK, "cpu", 4000)
    model, sizes, done = small(5), [], []
    decode = model._decode
    monkeypatch.setattr(model, "_decode", lambda S, *told: sizes.append(S[..., 0].numel() * 5) or decode(S, *told))
    result = marginal_likelihood(model, torch.rand(11, 5), samples, advance=done.append)
    assert max(sizes) <= 4000 and sum(sizes) == 11 * samples * 5
    assert sum(done) == 11 and result.log_prob.isfinite().all()


@pytest.mark.parametrize("seed", [None, 0])
def test_a_shared_figure_depends_on_nothing_but_the_row(seed, monkeypatch):
    """Also when there are so many rows that they are decoded in several pieces."""
    monkeypatch.setitem(marginal._CHUNK, "cpu", 1 << 14)
    model, x = small(5), torch.rand(60, 5)

    def score(rows):
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        torch.manual_seed(0)
        return marginal_likelihood(model, rows, 700, generator, shared=True).log_prob

    everything = score(x)
    for count in (1, 2, 7, 50):
        torch.testing.assert_close(score(x[:count]), everything[:count], rtol=0, atol=1e-5)
    torch.testing.assert_close(score(x.flip(0)).flip(0), everything, rtol=0, atol=1e-5)
    again = score(torch.cat([x[:1]] * 40))
    torch.testing.assert_close(again, everything[:1].expand(40), rtol=0, atol=1e-5)


def test_edges():
    model = small(4)
    assert marginal_likelihood(model, torch.rand(0, 4), 10).log_prob.shape == (0,)
    one = marginal_likelihood(model, torch.rand(2, 4), 1)
    assert (one.ess == 1).all() and (one.error == 0).all()
    assert one.log_prob.dtype == torch.float64 and not one.log_prob.requires_grad
    with pytest.raises(ValueError, match="at least 1, got 0"):
        marginal_likelihood(model, torch.rand(2, 4), 0)
