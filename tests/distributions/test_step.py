"""The fused draw and divergence: against the distributions, arbitrary precision, differences, and under transforms."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
import torch
from torch.func import functional_call, grad, stack_module_state, vmap

from combining import every_pair
from curvae import RiemannianNormal, WrappedNormal
from curvae.distributions import step
from curvae.distributions.step import _composed, draw_and_divergence
from curvae.distributions.table import lookup
from curvae.models import Posterior
from curvae.nn import Curvature, HyperbolicFactor, Space
from oracles import (
    ball_dist,
    ball_exp,
    log_riemannian,
    log_wrapped,
    lorentz_to_ball,
    mpf,
    random_directions,
    stored_normalisers,
    vector,
)

# torch.compile instantiates Function classes, which torch.autograd warns about.
pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")

NORMALS = [WrappedNormal, RiemannianNormal]
LAWS = pytest.mark.parametrize("law", NORMALS)
DIMS = [1, 2, 5, 20]
CURVATURES = [0.0, 1e-6, 0.1, 1.0, 5.0]
PRIOR_SCALE = 0.8
TOLERANCE = {WrappedNormal: 1e-8, RiemannianNormal: 1e-5}


def tensor(value: float, **options) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64, **options)


def grid(dim: int, lengths=(0.0, 1e-8, 1.0, 5.0), scales=(1e-4, 0.5, 2.0)):
    """One row for each |u| and σ."""
    u = torch.cat([length * random_directions(len(scales), dim, 3) for length in lengths])
    return u, tensor(scales).repeat(len(lengths)).unsqueeze(-1)


def backward(function, u, scale, noise, c, s, law, learned=False):
    """Values, and gradients of a random combination of them in u and scale, and where `learned` in c and s."""
    leaves = [t.clone().requires_grad_() for t in ((u, scale, c, s) if learned else (u, scale))]
    u, scale, c, s = leaves + [c, s][: 4 - len(leaves)]
    z, kl = function(u, scale, noise, c, s, law)
    mix = torch.Generator().manual_seed(5)
    weights = [torch.randn(t.shape, generator=mix, dtype=torch.float64) for t in (z, kl)]
    # Coordinates grow as e^{√c·r}; in proportion to them all rows count alike.
    size = 1 + z.detach().norm(dim=-1, keepdim=True)
    total = (weights[0] * z / size).sum() + (weights[1] * kl).sum()
    return z, kl, *torch.autograd.grad(total, leaves)


@pytest.mark.parametrize(("law", "dim", "c", "learned"), every_pair(NORMALS, DIMS, CURVATURES, [False, True]))
def test_fused_equals_composed(law, dim, c, learned):
    u, scale = grid(dim)
    noise = torch.randn(6, len(u), dim)
    rest = tensor(c), tensor(PRIOR_SCALE), law, learned
    assert all(t.isfinite().all() for t in backward(draw_and_divergence, u, scale, noise, *rest))
    manifold = Curvature(c).lorentz(dim)
    radius = u.norm(dim=-1) + manifold.dist0(law(torch.zeros_like(u), scale, manifold).transform(noise)).amax(0)
    near, tolerance = math.sqrt(c) * radius < 165, TOLERANCE[law]
    assert near.sum() >= 8
    u, scale, noise = u[near], scale[near], noise[:, near]
    fused, composed = (backward(f, u, scale, noise, *rest) for f in (draw_and_divergence, _composed))
    for name, a, b in zip(("z", "kl", "u", "scale", "c", "s"), fused, composed, strict=False):
        size = b.norm(dim=-1, keepdim=True) if name in ("z", "u") else b.abs()
        assert ((a - b).abs() <= tolerance * (1 + size)).all(), name


@LAWS
@pytest.mark.parametrize("c", [1e-3, 0.5, 5.0])
def test_gradients_obey_the_change_of_units(law, c):
    """In other units of length u, σ, σ0 and z are multiplied by k, c by 1/k², and the divergence stays the same."""
    u, scale = grid(4, lengths=(0.0, 1.0, 3.0), scales=(0.1, 0.8))
    leaves = [t.requires_grad_() for t in (u, scale, tensor(c), tensor(PRIOR_SCALE))]
    z, kl = draw_and_divergence(*leaves[:2], torch.randn(3, len(u), 4), *leaves[2:], law)
    weight = torch.randn_like(z) / (1 + z.detach().norm(dim=-1, keepdim=True))
    slopes = torch.autograd.grad((weight * z).sum() + kl.sum(), leaves)
    by_u, by_scale, by_c, by_prior = ((a * b).sum() for a, b in zip(leaves, slopes, strict=True))
    along = by_u + by_scale + by_prior
    assert abs(along - 2 * by_c - (weight * z).sum()) < 1e-10 * (1 + abs(along))


@pytest.mark.parametrize(("law", "dim", "c"), every_pair(NORMALS, [1, 2, 5], [0.0, 0.1, 1.0, 5.0]))
def test_against_arbitrary_precision(law, dim, c):
    """z is exp_μ(v) by the formulas of the ball, and the divergence a difference of the paper's densities."""
    u, scale = grid(dim, lengths=(0.0, 0.7, 2.0), scales=(0.3, 1.1))
    noise = torch.randn(len(u), dim)
    z, kl = draw_and_divergence(u, scale, noise, tensor(c), tensor(PRIOR_SCALE), law)
    density = log_wrapped if law is WrappedNormal else log_riemannian
    origin = [mp.mpf(0)] * dim
    with mp.workdps(30):
        for i in range(len(u)):
            centre = ball_exp(origin, vector(u[i] / 2), mpf(c))
            point, sigma = lorentz_to_ball(vector(z[i]), mpf(c)), mpf(scale[i, 0])
            r, far = ball_dist(centre, point, mpf(c)), ball_dist(origin, point, mpf(c))
            truth = density(r, sigma, mpf(c), dim) - density(far, mpf(PRIOR_SCALE), mpf(c), dim)
            assert abs(mpf(kl[i]) - truth) < TOLERANCE[law] * (1 + abs(truth))
            if law is WrappedNormal:
                # v, transported from the origin to μ, has the length of v and in the ball the same direction.
                factor = 1 - mpf(c) * mp.fdot(centre, centre)
                v = [factor / 2 * sigma * e for e in vector(noise[i])]
                exact = ball_exp(centre, v, mpf(c))
                assert max(abs(a - b) for a, b in zip(exact, point, strict=True)) < 1e-12


@pytest.mark.parametrize(("law", "dim", "c", "scale"), every_pair(NORMALS, DIMS, CURVATURES, [0.1, 1.0, 1.5]))
def test_a_posterior_equal_to_its_prior(law, dim, c, scale):
    """Not only in mean: log q and log p are the same function, and so the divergence of every draw is 0."""
    noise = torch.randn(200, 1, dim)
    if law is RiemannianNormal and c * scale**2 * (dim - 1) > 160:
        return  # beyond the reach of float64 coordinates; `Prior` refuses it
    arguments = torch.zeros(1, dim, dtype=torch.float64), tensor([[scale]])
    for draws in (noise, noise[:20].double()):
        _, kl = draw_and_divergence(*arguments, draws, tensor(c), tensor(scale), law)
        # The normaliser of the posterior comes from a table, to single precision.
        assert kl.abs().max() < (1e-10 if law is WrappedNormal or draws.dtype == torch.float64 else 1e-6)


@LAWS
@pytest.mark.parametrize("other", [False, True])
def test_divergence_from_oneself_is_zero_in_mean(law, other):
    """With the entropy in closed form single draws differ from 0; with another law for the prior the mean does too."""
    dim, count = 3, 40_000
    name, its = ("wrapped", "riemannian") if law is WrappedNormal else ("riemannian", "wrapped")
    factor = HyperbolicFactor(dim, 0.7, distribution=its if other else name, prior_scale=1.2)
    q, p = law.centred(tensor(1.2), factor.curvature.lorentz(dim)), factor.prior()
    kl = -q.entropy() - p.log_prob(q.transform(torch.randn(count, dim)))
    error = kl.std() / math.sqrt(count)
    assert kl.std() > 0.1
    assert kl.mean() > 4 * error if other else kl.mean().abs() < 4 * error


@LAWS
@pytest.mark.parametrize(("dim", "c", "scale"), [(20, 5.0, 2.0), (100, 1.0, 2.0)])
def test_a_prior_beyond_the_reach_of_coordinates_is_refused(law, dim, c, scale):
    name = "wrapped" if law is WrappedNormal else "riemannian"
    if law is WrappedNormal:
        assert HyperbolicFactor(dim, c, distribution=name, prior_scale=scale).identifiable() == c * scale**2
        scale *= 10
    with pytest.raises(ValueError, match=f"in {dim} dimensions.*lower the curvature or the prior's scale") as error:
        HyperbolicFactor(dim, c, distribution=name, prior_scale=scale)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("law", "dim", "c"), every_pair(NORMALS, [1, 2, 10], [0.0, 1e-6, 0.5, 3.0]))
def test_gradients_in_curvature_and_prior(law, dim, c):
    """Against differences of draws that are exact to double precision; at c = 0 one-sided ones."""
    u, scale = grid(dim, lengths=(0.0, 1.0), scales=(0.3, 1.1))
    noise = torch.randn(3, len(u), dim)
    leaves = [tensor(c, requires_grad=True), tensor(PRIOR_SCALE, requires_grad=True)]
    size = 1 + draw_and_divergence(u, scale, noise, *leaves, law)[0].detach().norm(dim=-1, keepdim=True)

    def total(c, s, noise):
        z, kl = draw_and_divergence(u, scale, noise, c, s, law)
        return kl.sum() + (z / size * torch.linspace(-1, 1, z.numel(), dtype=torch.float64).view(z.shape)).sum()

    found = torch.autograd.grad(total(*leaves, noise), leaves)
    with torch.no_grad():
        for i, (leaf, slope) in enumerate(zip(leaves, found, strict=True)):
            width = min(float(leaf) / 2, 1e-5) or 1e-5
            stencil = {-1: -0.5, 1: 0.5} if leaf > 0 else {0: -1.5, 1: 2.0, 2: -0.5}
            shifted = {k: [x + k * width * (i == j) for j, x in enumerate(leaves)] for k in stencil}
            difference = sum(share * total(*shifted[k], noise.double()) for k, share in stencil.items()) / width
            assert abs(slope - difference) < (1e-6 if law is WrappedNormal else 1e-4) * (1 + abs(difference))


@pytest.mark.parametrize("dim", [2, 3, 5, 20, 100])
def test_normalisers_of_the_table(dim):
    """And their derivatives, within the table and past it, against stored integrals to 25 digits."""
    stored = [(float(q), *map(float, rest)) for (known, q), rest in stored_normalisers().items() if known == dim]
    q, value, slope = (tensor(column) for column in zip(*stored, strict=True))
    for prior in (0, len(q) // 2, len(q) - 1):
        _, _, drop, rise, prior_rise = lookup(torch.ones_like(q), q, q[prior], dim)
        torch.testing.assert_close(drop, value - value[prior], rtol=1e-8, atol=1e-6)
        torch.testing.assert_close(rise, slope, rtol=1e-7, atol=0)
        torch.testing.assert_close(prior_rise, slope[prior], rtol=1e-7, atol=0)


@pytest.mark.parametrize("dim", [1, 2, 5])
@pytest.mark.parametrize("c", [0.0, 0.5, 3.0])
def test_wrapped_gradients_equal_differences(dim, c):
    u, scale = grid(dim, lengths=(1.5,), scales=(0.3, 1.1))
    leaves = u.requires_grad_(), scale.requires_grad_(), tensor(c, requires_grad=c > 0), tensor(PRIOR_SCALE)
    leaves[3].requires_grad_()
    noise = torch.randn(2, len(u), dim, dtype=torch.float64)

    def drawn(u, scale, c, s):
        return draw_and_divergence(u, scale, noise, c, s, WrappedNormal)

    assert torch.autograd.gradcheck(drawn, leaves, atol=1e-7, rtol=1e-6)
    # Second derivatives take the road of the distributions.
    if dim == 2:
        assert torch.autograd.gradgradcheck(drawn, leaves, atol=1e-5, fast_mode=True)


def test_float64_noise_is_exact(monkeypatch):
    """To double precision for the Riemannian law, which then does without its table of normalisers."""
    u, scale = grid(4, lengths=(0.0, 1.0), scales=(0.3, 1.1))
    noise = torch.randn(3, len(u), 4)
    rest = tensor(0.9), tensor(PRIOR_SCALE), RiemannianNormal
    exact, rough = draw_and_divergence(u, scale, noise.double(), *rest), draw_and_divergence(u, scale, noise, *rest)
    for a, b, c in zip(exact, rough, _composed(u, scale, noise.double(), *rest), strict=True):
        assert torch.equal(a, c)
        assert 0 < (a - b).abs().max() < 1e-4
    monkeypatch.setattr(step, "lookup", None)
    draw_and_divergence(u, scale, noise.double(), *rest)
    with pytest.raises(TypeError):
        draw_and_divergence(u, scale, noise, *rest)


def test_diagonal_deviations():
    u, scale = torch.randn(5, 3, dtype=torch.float64), torch.rand(5, 3, dtype=torch.float64) + 0.2
    noise, rest = torch.randn(2, 5, 3), (tensor(0.9), tensor(PRIOR_SCALE), WrappedNormal)
    same = draw_and_divergence(u, scale[:, :1].expand(5, 3), noise, *rest)
    for a, b in zip(same, draw_and_divergence(u, scale[:, :1], noise, *rest), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
    z, kl = draw_and_divergence(u, scale, noise, *rest)
    assert z.shape == (2, 5, 3) and kl.shape == (2, 5) and not torch.allclose(kl, same[1])


# --- shapes and transforms ------------------------------------------------------------------------------------------


def loss(u, scale, noise, c, s, law):
    z, kl = draw_and_divergence(u, scale, noise, c, s, law)
    return kl.sum() + z.square().sum()


def arguments(count: int | None = None, dim: int = 3):
    shape = () if count is None else (count,)
    u = torch.randn(*shape, 4, dim, dtype=torch.float64)
    scale = torch.rand(*shape, 4, 1, dtype=torch.float64) + 0.2
    noise = torch.randn(*shape, 2, 4, dim)
    return u, scale, noise, *(torch.rand(shape, dtype=torch.float64) + 0.3 for _ in range(2))


@LAWS
@pytest.mark.parametrize("dim", [1, 3])
def test_noise_broadcasts_against_rows(law, dim):
    u, scale = grid(dim, lengths=(0.3, 1.0), scales=(0.3, 1.1, 1.5))
    noise, rest = torch.randn(4, 1, dim), (tensor(0.9), tensor(PRIOR_SCALE), law)
    shared = backward(draw_and_divergence, u, scale, noise, *rest)
    each = backward(draw_and_divergence, u, scale, noise.expand(4, len(u), dim).contiguous(), *rest)
    assert shared[0].shape == (4, 6, dim) and shared[1].shape == (4, 6)
    for a, b in zip(shared, each, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@LAWS
@pytest.mark.parametrize("dim", [1, 3])
def test_functional_gradients_and_vmap(law, dim):
    """Over models, that is over all arguments, and over c alone."""
    batch = arguments(3, dim)

    def f(*tensors):
        return loss(*tensors, law)

    slopes = grad(f, argnums=(0, 1, 3, 4))
    together, values = vmap(slopes)(*batch), vmap(f)(*batch)
    encoder_only = vmap(grad(f, argnums=(0, 1)))(*batch)
    for i in range(3):
        single = [a[i].clone() for a in batch]
        leaves = [single[j].requires_grad_() for j in (0, 1, 3, 4)]
        value = f(*single)
        # Inside torch.func the derivatives come from the distributions, otherwise from the table.
        torch.testing.assert_close(values[i], value, rtol=1e-8, atol=1e-8)
        plain = torch.autograd.grad(value, leaves)
        for a, b, d in zip(together, plain, slopes(*single), strict=True):
            torch.testing.assert_close(a[i], d, rtol=1e-8, atol=1e-8)
            torch.testing.assert_close(d, b, rtol=1e-6, atol=1e-6)
        for a, b in zip(encoder_only, plain[:2], strict=True):
            torch.testing.assert_close(a[i], b, rtol=1e-5, atol=1e-5)
    one = [a[0] for a in batch[:3]]
    over_c = vmap(lambda c: f(*one, c, batch[4][0]))(batch[3])
    expected = torch.stack([f(*one, c, batch[4][0]) for c in batch[3]])
    torch.testing.assert_close(over_c, expected, rtol=1e-10, atol=1e-10)


@LAWS
def test_stacked_modules(law):
    """vmap over the parameters of posteriors, each with its own curvature."""
    name = "wrapped" if law is WrappedNormal else "riemannian"

    class Drawn(torch.nn.Module):
        def __init__(self, c):
            super().__init__()
            self.posterior = Posterior(5, Space([HyperbolicFactor(2, c, distribution=name)]))

        def forward(self, features, noise):
            return self.posterior.draw(features, noise)

    models = [Drawn(c) for c in (0.0, 0.4, 1.3)]
    features, noise = torch.randn(4, 5), torch.randn(2, 4, 2)
    z, kl = vmap(lambda *state: functional_call(models[0], state, (features, noise), tie_weights=False))(
        *stack_module_state(models)
    )
    for i, model in enumerate(models):
        alone = model(features, noise)
        torch.testing.assert_close(z[i], alone[0], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(kl[i], alone[1], rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.compiled
@LAWS
def test_compiles_whole(law):
    args = arguments()
    torch._dynamo.reset()
    # That the graph is whole shows without the next stage, which test_transforms takes for a draw.
    compiled = torch.compile(lambda *tensors: loss(*tensors, law), fullgraph=True, backend="eager")
    results = []
    for f in (compiled, lambda *tensors: loss(*tensors, law)):
        leaves = [a.clone().requires_grad_(i < 2) for i, a in enumerate(args)]
        value = f(*leaves)
        results.append([value, *torch.autograd.grad(value, leaves[:2])])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@LAWS
def test_far_out_stays_finite(law):
    """Centres and draws beyond √c·radius 172, where coordinates saturate: finite values and gradients."""
    u, scale = grid(5, lengths=(100.0, 1e3), scales=(1e-4, 1.0, 30.0))
    rest = torch.randn(3, len(u), 5), tensor(5.0), tensor(1.0), law
    for part in backward(draw_and_divergence, u, scale, *rest, learned=True):
        assert part.isfinite().all()


def test_numpy_normal_at_curvature_zero():
    """At c = 0 both laws give z = u + σε and the difference of two normal densities."""
    u, scale = grid(3, lengths=(0.0, 1.0), scales=(0.3, 1.1))
    noise = torch.randn(2, len(u), 3)
    m, s, e = (t.double().numpy() for t in (u, scale, noise))
    z = m + s * e
    log_q = -(e**2).sum(-1) / 2 - 3 * np.log(s[:, 0])
    log_p = -(z**2).sum(-1) / 2 / PRIOR_SCALE**2 - 3 * math.log(PRIOR_SCALE)
    for law in (WrappedNormal, RiemannianNormal):
        drawn, kl = draw_and_divergence(u, scale, noise, tensor(0.0), tensor(PRIOR_SCALE), law)
        rough = TOLERANCE[law]
        np.testing.assert_allclose(drawn, z, rtol=rough, atol=rough)
        np.testing.assert_allclose(kl, log_q - log_p, rtol=rough, atol=rough)
