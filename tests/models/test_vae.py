"""The model of rows: what it computes in one space and in a product, how it is saved, and what it refuses."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy import stats
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional as F

from combining import every_pair
from curvae.data import memory
from curvae.distributions import ProductNormal
from curvae.errors import CurvaeError
from curvae.models import VAE, Bernoulli, Gaussian, GeodesicEdges, GraphVAE, Posterior, Stack, marginal_likelihood
from curvae.nn import (
    Curvature,
    GraphEncoder,
    Gyroplane,
    HyperbolicFactor,
    Layers,
    LogMap0,
    MobiusLinear,
    Space,
    decoder,
    mlp,
)
from curvae.training import Config, GraphConfig, build
from curvae.training.fitted import restored_model
from curvae.training.graph_problem import require_buildable_graph
from products import FEATURES, PRODUCTS, vae as product_vae
from stacking import assert_as_alone

LAWS = pytest.mark.parametrize("law", ["wrapped", "riemannian"])


KINDS = ("gyroplane", "gyroplane_scalar", "log_mlp", "mlp", "mobius")


def vae(law="wrapped", c=1.0, kind="gyroplane", dim=2, features=5, learn=None, scale=1.0, likelihood=None) -> VAE:
    both = learn == "both"
    space = Space([HyperbolicFactor(dim, c, both or learn == "curvature", law, False, scale, both or learn == "scale")])
    networks = mlp(features, 8), decoder(kind, space, (8,), features)
    return VAE(*networks, Posterior(8, space), likelihood or Gaussian(features))


def gradients(model: nn.Module, value: torch.Tensor) -> dict[str, torch.Tensor]:
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(value, parameters), strict=True))


# --- the model ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("kind", ["gyroplane", "log_mlp"])
def test_curvature_zero_is_the_ordinary_vae(double, diagonal, kind):
    """Written in bare torch, with the same weights and noise: terms and gradients."""
    space = Space("e2", distribution="wrapped", diagonal=diagonal, prior_scale=1.3)
    model = VAE(mlp(5, 8), decoder(kind, space, (8,), 5), Posterior(8, space), Gaussian(5, learned=False))
    dtype = torch.float64 if double else torch.float32
    model = model.to(dtype)
    x, noise = torch.randn(7, 5, dtype=dtype), torch.randn(3, 7, 2)
    terms = model.terms(x, noise)

    head = model.posterior.head(model.encoder[1](x).relu())
    mu, sigma = 2 * head[:, :2], F.softplus(head[:, 2:])
    z = mu + sigma * noise
    first, _, last = model.decoder
    if kind == "gyroplane":
        weight, bias = 2 * first.weight, -4 * (first.weight * first.offset).sum(-1)
    else:
        weight, bias = first.weight, first.bias
    normal = torch.distributions.Normal
    reconstruction = normal(last((z @ weight.T + bias).relu()), 1.0).log_prob(x).sum(-1)
    kl = (normal(mu, sigma).log_prob(z) - normal(0.0, 1.3).log_prob(z)).sum(-1)

    assert terms.reconstruction.dtype == dtype and terms.kl.dtype == torch.float64
    rough = {"rtol": 1e-7, "atol": 1e-7} if double else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(terms.reconstruction, reconstruction, **rough)
    torch.testing.assert_close(terms.kl.to(dtype), kl, **rough)
    ours = gradients(model, (terms.reconstruction - terms.kl).mean())
    plain = gradients(model, (reconstruction - kl).mean())
    for name in plain:
        torch.testing.assert_close(ours[name], plain[name], **rough)


@LAWS
@pytest.mark.parametrize("kind", ["gyroplane", "gyroplane_scalar", "mlp", "mobius"])
def test_a_model_of_curvature_zero_is_the_limit_of_curved_ones(law, kind):
    """In its parameters too, so that it trains as they do and what differs is the curvature."""
    flat, curved = (
        build(Config(curvature=c, decoder=kind, posterior=law, likelihood="unit_gaussian", seed=2), 5).double()
        for c in (0.0, 1e-12)
    )
    x, noise = torch.randn(7, 5).double(), torch.randn(3, 7, 2)
    found = []
    for model in (flat, curved):
        terms = model.terms(x, noise)
        found.append({**gradients(model, (terms.reconstruction - terms.kl).mean()), "kl": terms.kl})
    assert found[0].keys() == found[1].keys()
    for name, value in found[0].items():
        torch.testing.assert_close(value, found[1][name], rtol=1e-6, atol=1e-8)
    assert all(torch.equal(a, b) for a, b in zip(flat.parameters(), curved.parameters(), strict=True))


@LAWS
@pytest.mark.parametrize("kind", ["log_mlp", "gyroplane"])
def test_only_the_product_of_curvature_and_variance_matters(law, kind):
    """Stretching the space by k, with c/k², kσ0, kμ, kσ and a decoder that shrinks it back, changes no term."""
    k, x, noise = 1.7, torch.randn(6, 5).double(), torch.randn(4, 6, 2).double()
    small = vae(law, 1.2, kind, scale=0.9).double()
    large = vae(law, 1.2 / k**2, kind, scale=0.9 * k).double()
    state = small.state_dict()
    state = {name: large.state_dict()[name] if name.endswith("fixed") else t.clone() for name, t in state.items()}
    head, bias = state["posterior.head.weight"], state["posterior.head.bias"]
    # Constant deviations, for softplus does not scale.
    head[2] = 0.0
    small.load_state_dict({name: t if "head" in name else small.state_dict()[name] for name, t in state.items()})
    head[:2] *= k
    bias[:2] *= k
    bias[2] = (k * F.softplus(bias[2])).expm1().log()
    if kind == "log_mlp":
        state["decoder.1.weight"] /= k
    else:
        state["decoder.0.weight"] /= k
        state["decoder.0.offset"] *= k
    large.load_state_dict(state)
    assert float(large.space.curvatures()[0]) < float(small.space.curvatures()[0]) / 2
    for a, b in zip(small.terms(x, noise), large.terms(x, noise), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        small.space.factors[0].identifiable(), large.space.factors[0].identifiable(), rtol=1e-6, atol=0
    )


@LAWS
@pytest.mark.parametrize("learn", ["curvature", "scale"])
@pytest.mark.parametrize("kind", ["gyroplane", "mobius"])
def test_learned_geometry_has_the_gradient_of_the_elbo(law, learn, kind):
    model = vae(law, 0.8, kind, learn=learn).double()
    x, noise = torch.randn(6, 5).double(), torch.randn(3, 6, 2).double()
    (factor,) = model.space
    parameter = factor.curvature.log_c if learn == "curvature" else factor.scale.log_scale
    slope = gradients(model, model.elbo(x, noise=noise).sum())
    (name,) = (n for n, p in model.named_parameters() if p is parameter)
    with torch.no_grad():
        values = []
        for shift in (1e-4, -2e-4):
            parameter += shift
            values.append(model.elbo(x, noise=noise).sum())
    difference = (values[0] - values[1]) / 2e-4
    assert abs(slope[name] - difference) < 1e-5 * (1 + abs(difference)) and abs(difference) > 1e-3
    product = 0.8 * math.exp((2 if learn == "scale" else 1) * -1e-4)
    assert abs(float(factor.identifiable().detach()) - product) < 1e-6


def test_refusals():
    with pytest.raises(ValueError, match="not both: only c·σ0²"):
        vae("wrapped", 0.8, "gyroplane", learn="both")
    for scale in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="positive number"):
            HyperbolicFactor(2, prior_scale=scale)
    with pytest.raises(ValueError, match="riemannian, wrapped, or a class; got 'gaussian'"):
        HyperbolicFactor(2, distribution="gaussian")
    with pytest.raises(ValueError, match='distribution="wrapped"'):
        HyperbolicFactor(2, diagonal=True)
    with pytest.raises(ValueError, match="gyroplane, gyroplane_scalar, log_mlp, mlp, mobius; got 'linear'"):
        decoder("linear", Space("h2"), (3,), 4)
    with pytest.raises(ValueError, match="at least one hidden layer"):
        decoder("mlp", Space("h2"), (), 4)


@LAWS
def test_many_models_at_once(law):
    """Stacked parameters, each model with its own curvature: values and gradients equal those of the models alone."""
    models = [vae(law, c, likelihood=Gaussian(5)) for c in (0.3, 1.0, 2.0)]
    x, noise = torch.randn(3, 6, 5), torch.randn(3, 2, 6, 2)
    parameters, buffers = stack_module_state(models)

    def loss(parameters, buffers, x, noise):
        terms = functional_call(Terms(models[0]), (prefixed(parameters), prefixed(buffers)), (x, noise), **untied)
        return (terms.kl - terms.reconstruction).mean()

    class Terms(nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, x, noise):
            return self.model.terms(x, noise)

    def prefixed(tensors):
        return {f"model.{name}": t for name, t in tensors.items()}

    untied = {"tie_weights": False}
    before = {name: t.clone() for name, t in models[0].state_dict().items()}
    slopes, values = vmap(lambda *args: (grad(loss)(*args), loss(*args)))(parameters, buffers, x, noise)
    assert all(torch.equal(t, before[name]) for name, t in models[0].state_dict().items())
    for i, model in enumerate(models):
        value = -model.elbo(x[i], noise=noise[i]).mean()
        torch.testing.assert_close(values[i], value, rtol=1e-5, atol=1e-5)
        for name, slope in gradients(model, value).items():
            torch.testing.assert_close(slopes[name][i], slope, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("c", [0.0, 1.0])
def test_decoders(kind, c):
    """Finite outputs and gradients at the origin, near it and as far as float32 goes, and beyond."""
    model = vae(c=c, kind=kind)
    unit = torch.tensor([0.6, -0.8], dtype=torch.float64)
    S = torch.stack([0 * unit, 1e-30 * unit, unit, 1e6 * unit, 1e30 * unit, 1e60 * unit]).requires_grad_()
    out = model.decode(S)
    assert out.shape == (6, 5) and out.dtype == torch.float32
    slopes = torch.autograd.grad(out[:3].sum(), [S, *model.decoder.parameters()])
    assert out.isfinite().all() and all(g.isfinite().all() for g in slopes)
    assert model.decode(S.reshape(3, 2, 2)).shape == (3, 2, 5)
    assert not torch.equal(out[0], out[2])
    double = model.double().decode(S)
    assert double.dtype == torch.float64
    torch.testing.assert_close(double[:3].float(), out[:3], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("c", [0.0, 0.6])
def test_plain_decoders_see_the_coordinates_they_name(c):
    """log_0 in metric units and ball coordinates, by their definitions; gyroplanes and Möbius layers: test_nn."""
    S = torch.randn(4, 2)
    size, root = S.norm(dim=-1, keepdim=True), math.sqrt(c)
    seen = {
        "log_mlp": S * (root * size).asinh() / (root * size) if c else S,
        "mlp": S / (1 + (1 + c * size**2).sqrt()),
    }
    for kind, coordinates in seen.items():
        network = decoder(kind, Space(f"h2:{c}"), (8,), 5)
        first, _, last = list(network)[-3:]
        torch.testing.assert_close(network(S, torch.tensor(c)), last(first(coordinates).relu()), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@LAWS
def test_every_parameter_learns(kind, law):
    model = vae(law, kind=kind)
    x = torch.randn(30, 5)
    for name, slope in gradients(model, model.elbo(x, k=2).mean()).items():
        assert slope.isfinite().all() and slope.any(), name


@LAWS
def test_samples_and_encodings(law):
    model = vae(law, scale=0.7, likelihood=Bernoulli(5))
    draws, means = (model.sample(40, torch.Generator().manual_seed(1), mean=mean) for mean in (False, True))
    assert draws.shape == means.shape == (40, 5) and not draws.requires_grad
    assert ((draws == 0) | (draws == 1)).all() and ((means > 0) & (means < 1)).all()
    torch.testing.assert_close(means, model.sample(40, torch.Generator().manual_seed(1), mean=True))
    x = torch.rand(9, 5)
    q = model.encode(x)
    head = model.posterior.head(model.encoder(x)).double()
    torch.testing.assert_close(q.manifold.dist0(q.loc), 2 * head[:, :2].norm(dim=-1))
    torch.testing.assert_close(q.scale, F.softplus(head[:, 2:]), rtol=1e-6, atol=1e-7)
    assert model.noise(4, 3).shape == (3, 4, 2) and model.dim == 2
    # The draw inside is that of the distribution.
    noise = torch.randn(2, 9, 2)
    z, kl = model.posterior.draw(model.encoder(x), noise)
    assert z.dtype == torch.float32
    torch.testing.assert_close(z.double(), q.transform(noise), rtol=1e-5, atol=1e-6)
    again = q.log_prob(z) - model.prior().log_prob(z)
    torch.testing.assert_close(kl, again, rtol=1e-5, atol=1e-5)


def test_images_pass_through_networks_that_know_their_shape():
    """Rows of any shape: the likelihood sees them flattened."""
    space = Space("h2")
    decoding = Layers(*decoder("gyroplane", space, (8,), 12), nn.Unflatten(1, (3, 4)))
    model = VAE(mlp(12, 8), decoding, Posterior(8, space), Bernoulli(12))
    x, noise = torch.rand(5, 3, 4), torch.randn(2, 5, 2)
    torch.testing.assert_close(model.elbo(x, noise=noise), model.elbo(x.flatten(1), noise=noise))


# --- building from a configuration ----------------------------------------------------------------------------------


def test_build():
    config = Config(hidden=(7, 6), likelihood="bernoulli", decoder="log_mlp", dim=3, seed=4)
    mean = np.array([0.1, 0.5, 0.9, 0.0])
    model, twin = (build(config, 4, mean=mean) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))
    other = build(Config(hidden=(7, 6), likelihood="bernoulli", decoder="log_mlp", dim=3, seed=5), 4)
    assert not torch.equal(other.posterior.head.weight, model.posterior.head.weight)
    sizes = [tuple(layer.weight.shape) for layer in model.modules() if isinstance(layer, nn.Linear)]
    assert sizes == [(7, 4), (6, 7), (6, 3), (7, 6), (4, 7), (4, 6)]
    expected = torch.tensor([0.1, 0.5, 0.9, 0.001])
    torch.testing.assert_close(model.decoder[-1].bias.sigmoid().detach(), expected, rtol=1e-4, atol=1e-6)
    kinds = {"gaussian": True, "unit_gaussian": False}
    for name, learned in kinds.items():
        assert build(Config(likelihood=name), 4).likelihood.learned == learned
    assert build(Config(likelihood="categorical"), 4, (1, 3)).likelihood.blocks == [1, 3]
    with pytest.raises(ValueError, match='"auto" needs the data'):
        build(Config(), 4)


# --- products of spaces ----------------------------------------------------------------------------------------------


F64 = torch.float64


DECODERS = ["gyroplane", "gyroplane_scalar", "log_mlp", "mlp", "mobius"]


PRODUCT_KINDS = pytest.mark.parametrize("kind", DECODERS)


SPACES = pytest.mark.parametrize("space", PRODUCTS)


DISTRIBUTIONS = pytest.mark.parametrize("distribution", ["wrapped", "riemannian"])


def rows(count=5):
    return torch.randn(count, FEATURES, dtype=F64)


def slope_along(model, value, direction, step=1e-5):
    """The difference quotient of value() along a direction of the parameters."""
    figures = []
    with torch.no_grad():
        for shift in (step, -2 * step, step):
            for parameter, by in zip(model.parameters(), direction, strict=True):
                parameter += shift * by
            figures.append(float(value()))
    return (figures[0] - figures[1]) / (2 * step)


def assert_slopes(model, value, rtol=1e-5, step=1e-5):
    """Gradients against difference quotients: along random directions, and in every learned curvature alone."""
    parameters = dict(model.named_parameters())
    gradients = torch.autograd.grad(value(), list(parameters.values()))
    ways = [[torch.randn_like(p) for p in parameters.values()] for _ in range(3)]
    curvatures = [name for name in parameters if name.endswith("log_c")]
    ways += [[torch.full_like(p, float(name == own)) for name, p in parameters.items()] for own in curvatures]
    for way in ways:
        expected = sum(float((g * by).sum()) for g, by in zip(gradients, way, strict=True))
        assert slope_along(model, value, way, step) == pytest.approx(expected, rel=rtol, abs=rtol)


# --- one model ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gyroplane", "log_mlp"])
@DISTRIBUTIONS
def test_a_flat_product_is_an_ordinary_vae(kind, distribution):
    """In bare torch, with a standard deviation for each factor."""
    model = product_vae("e2,e3", kind, Gaussian(FEATURES, learned=False), distribution=distribution, prior_scale=1.5)
    x, noise = rows(), torch.randn(3, 5, 5, dtype=F64)
    out = model.posterior.head(model.encoder(x))
    u = 2 * torch.cat([out[:, :2], out[:, 3:6]], -1)
    sigma = torch.cat([F.softplus(out[:, 2:3]).expand(-1, 2), F.softplus(out[:, 6:]).expand(-1, 3)], -1) + 1e-8
    z = u + sigma * noise
    normal = torch.distributions.Normal
    kl = (normal(u, sigma).log_prob(z) - normal(torch.zeros((), dtype=F64), 1.5).log_prob(z)).sum(-1)
    hidden = 0.0
    for own, part in zip(model.decoder[0].factors, (z[..., :2], z[..., 2:]), strict=True):
        if kind == "log_mlp":
            hidden = hidden + F.linear(part, own[0].weight, own[0].bias)
        else:  # 4⟨a′, z/2 − p′⟩
            weight, offset = own[0].weight, own[0].offset
            hidden = hidden + F.linear(part, 2 * weight, -4 * (weight * offset).sum(-1))
    y = model.decoder[2](hidden.relu())
    reconstruction = normal(y, 1.0).log_prob(x).sum(-1)
    torch.testing.assert_close(model.terms(x, noise), (reconstruction, kl), rtol=1e-9, atol=1e-9)
    found, expected = (
        torch.autograd.grad((a - b).mean(), list(model.parameters()))
        for a, b in (model.terms(x, noise), (reconstruction, kl))
    )
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-8)


@PRODUCT_KINDS
@DISTRIBUTIONS
def test_a_factor_that_says_nothing_changes_nothing(kind, distribution):
    """The decoder does not look at it, and its posterior is its prior."""
    single = product_vae("h2:0.8", kind, distribution=distribution, prior_scale=1.25)
    double = product_vae("h2:0.8,h2:0.8", kind, distribution=distribution, prior_scale=1.25)
    with torch.no_grad():
        head = double.posterior.head
        for own, other in ((head.weight, single.posterior.head.weight), (head.bias, single.posterior.head.bias)):
            own.zero_()
            own[:3] = other
        head.bias[5] = math.log(math.expm1(1.25 - 1e-8))
        double.encoder.load_state_dict(single.encoder.state_dict())
        first, second = double.decoder[0].factors
        first.load_state_dict(dict(zip(first.state_dict(), list(single.decoder.state_dict().values()), strict=False)))
        for parameter in second.parameters():
            parameter.zero_()
        double.decoder[2].load_state_dict(single.decoder[-1].state_dict())
        double.likelihood.load_state_dict(single.likelihood.state_dict())
    x, noise = rows(), torch.randn(3, 5, 4, dtype=F64)
    found, expected = double.terms(x, noise), single.terms(x, noise[..., :2])
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@SPACES
@PRODUCT_KINDS
def test_decoders_take_the_factors_one_by_one(space, kind):
    """The first layer is the sum of the factors' layers, each with its own curvature."""
    model = product_vae(space, kind)
    space = model.space
    z = 0.7 * torch.randn(6, space.width, dtype=F64)
    parts = zip(model.decoder[0].factors, space.split(z), space.curvatures(), strict=True)
    hidden = sum(layers(part, c) for layers, part, c in parts)
    torch.testing.assert_close(model.decode(z), model.decoder[2](hidden.relu()), rtol=1e-9, atol=1e-9)


def test_a_decoder_needs_a_curvature_for_each_factor():
    network = decoder("gyroplane", Space("h2,h2"), (6,), 4)
    for c in (None, torch.tensor(1.0)):
        with pytest.raises(ValueError, match="curvatures of 2 factors"):
            network(torch.zeros(3, 4), c)
    with pytest.raises(ValueError, match="4"):
        network(torch.zeros(3, 5), (torch.tensor(1.0),) * 2)


@pytest.mark.parametrize(
    ("space", "distribution", "kind"),
    every_pair(PRODUCTS, ["wrapped", "riemannian"], ["gyroplane", "log_mlp", "mobius"]),
)
def test_gradients_of_the_elbo(space, distribution, kind):
    model, x = product_vae(space, kind, distribution=distribution), rows()
    noise = torch.randn(2, 5, model.dim, dtype=F64)
    assert_slopes(model, lambda: model.elbo(x, noise=noise).sum())
    noise = noise.float()  # for the fused step of the Riemannian normal, exact to single precision
    fused, exact = (
        torch.autograd.grad(model.elbo(x, noise=own).sum(), list(model.parameters())) for own in (noise, noise.double())
    )
    torch.testing.assert_close(fused, exact, rtol=1e-4, atol=1e-4)


def test_the_entropy_may_be_taken_in_closed_form():
    model, x = product_vae("h2,e1", distribution="wrapped"), rows(2)
    noise = model.noise(2, 20_000)
    with torch.no_grad():
        sampled, closed = model.terms(x, noise), model.terms(x, noise, entropy=True)
    torch.testing.assert_close(closed.reconstruction, sampled.reconstruction, rtol=1e-5, atol=1e-5)
    difference = sampled.kl - closed.kl
    assert bool((difference.mean(0).abs() < 4.5 * difference.std(0) / math.sqrt(20_000)).all())


@SPACES
def test_saved_weights_fit_again(space):
    model, other = product_vae(space), product_vae(space, seed=1)
    other.load_state_dict(model.state_dict())
    x, noise = rows(), torch.randn(1, 5, model.dim)
    torch.testing.assert_close(other.terms(x, noise), model.terms(x, noise), rtol=0, atol=0)
    names = [name for name in model.state_dict() if "curvature" in name or "scale" in name]
    assert len(names) == 2 * len(model.space) and all(name.startswith("posterior.space.factors.") for name in names)


def test_samples():
    model = product_vae("h2,e1,h1")
    assert model.sample(7).shape == (7, FEATURES) and model.iwae(rows(), k=5).shape == (5,)
    assert isinstance(model.encode(rows()), ProductNormal)


def test_one_of_curvature_and_scale_is_learned_in_each_factor():
    own = [HyperbolicFactor(2, learn_curvature=True), HyperbolicFactor(2, learn_prior_scale=True)]
    assert product_vae(Space(own)).space.learned
    with pytest.raises(ValueError, match="not both"):
        product_vae(Space([own[0], HyperbolicFactor(2, learn_curvature=True, learn_prior_scale=True)]))


# --- many models ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "kind", "settings"),
    every_pair(
        PRODUCTS,
        DECODERS,
        [{"posterior": "riemannian"}, {"posterior": "wrapped"}, {"posterior": "wrapped", "diagonal": True}],
    ),
)
def test_a_stack_computes_what_each_model_computes_alone(space, kind, settings):
    base = Config(space=space, decoder=kind, hidden=(6,), likelihood="gaussian", **settings)
    each = zip((0.2, 1.0, 2.5), (1.6, 1.0, 0.7), range(3), strict=True)
    configs = [replace(base.with_curvature(c), prior_scale=s, seed=seed) for c, s, seed in each]
    assert len({config.architecture for config in configs}) == 1
    models = [build(config, FEATURES).double() for config in configs]
    x = torch.randn(3, 5, FEATURES, dtype=F64)
    assert_as_alone(models, x, torch.randn(3, 2, 5, base.dim))


def test_a_stack_in_single_precision():
    configs = [Config(space="h2,e3", hidden=(6,), likelihood="gaussian", seed=seed) for seed in range(3)]
    models = [build(config, FEATURES) for config in configs]
    assert_as_alone(models, torch.randn(3, 5, FEATURES), torch.randn(3, 2, 5, 5), 2e-5)


def test_products_of_other_factors_are_not_stacked():
    kinds = [Config(space=space) for space in ("h2,e3", "e2,h3", "h2,h3", "e2,e3", "h2:learn,e3", "h3,e2", "h5")]
    assert len({config.architecture for config in kinds}) == len(kinds)
    assert Config(space="h2:0.3,e3").architecture == Config(space="h2,e3").architecture


# --- marginal likelihoods -------------------------------------------------------------------------------------------

LOADINGS = torch.tensor([[0.9, -0.4, 0.3], [0.3, 0.8, -0.6], [-0.5, 0.6, 0.7]], dtype=F64)


X = torch.tensor([[0.4, -0.3, 0.8], [1.5, 0.2, -0.9], [0.0, 1.9, 0.7], [-1.2, -1.1, 0.1]], dtype=F64)


SCALE = 0.9


class LinearInLog(Layers):
    """The loadings times log_0 of the factors, from its definition."""

    def __init__(self, widths):
        super().__init__()
        self.widths = widths
        self.register_buffer("loadings", LOADINGS)

    def forward(self, S, c=None):
        logs = []
        for part, own in zip(S.split(self.widths, -1), c, strict=True):
            x = own.sqrt() * part.norm(dim=-1, keepdim=True)
            logs.append(part * (x.asinh() / x if float(own) else 1.0))
        return torch.cat(logs, -1) @ self.loadings.T


def linear(space, distribution):
    """x = A·log_0(z) + unit noise, and a wide posterior near that of the flat model."""
    space = Space(space, distribution=distribution, prior_scale=SCALE)
    posterior = Posterior(3, space)
    precision = torch.eye(3, dtype=F64) / SCALE**2 + LOADINGS.T @ LOADINGS
    centre = 0.5 * torch.linalg.solve(precision, LOADINGS.T)
    with torch.no_grad():
        posterior.head.weight.zero_()
        posterior.head.bias.fill_(math.log(math.expm1(0.8)))
        row = start = 0
        for factor in space:
            posterior.head.weight[row : row + factor.dim] = centre[start : start + factor.dim]
            posterior.head.bias[row : row + factor.dim] = 0.0
            row, start = row + factor.outputs, start + factor.dim
    model = VAE(nn.Identity(), LinearInLog([f.width for f in space]), posterior, Gaussian(3, learned=False))
    return model.double()


def riemannian_plane_and_line(x, c):
    """∫ p(x | v) p(v) over the plane in polar coordinates, the line being integrated out by hand."""
    plane, line = LOADINGS[:, :2].numpy(), LOADINGS[:, 2:].numpy()
    nodes, weights = np.polynomial.legendre.leggauss(200)
    r, angles = 6 * (nodes + 1), np.linspace(0, 2 * np.pi, 200, endpoint=False)
    density = weights * np.exp(-(r**2) / (2 * SCALE**2)) * np.sinh(math.sqrt(c) * r)
    v = r[:, None, None] * np.stack([np.cos(angles), np.sin(angles)], -1)
    likelihood = stats.multivariate_normal(x, np.eye(3) + SCALE**2 * line @ line.T).pdf(v @ plane.T)
    return math.log(density @ likelihood.mean(1) / density.sum())


@pytest.mark.parametrize("space", ["e2,e1", "h2:0.7,e1", "h1,h2:1.6", "h1:0.4,e1,h1:2.0"])
def test_the_marginal_likelihood_of_a_linear_model(space):
    """log_0 of a wrapped prior is Gaussian in every factor, so p(x) is a normal density whatever the curvatures."""
    found = marginal_likelihood(linear(space, "wrapped"), X, samples=40_000)
    covariance = np.eye(3) + SCALE**2 * (LOADINGS @ LOADINGS.T).numpy()
    expected = torch.from_numpy(stats.multivariate_normal(np.zeros(3), covariance).logpdf(X.numpy()))
    assert bool(((found.log_prob - expected).abs() < 4.5 * found.error).all()) and float(found.error.max()) < 0.03


def test_the_marginal_likelihood_by_quadrature():
    found = marginal_likelihood(linear("h2:0.7,e1", "riemannian"), X[:2], samples=100_000)
    expected = torch.tensor([riemannian_plane_and_line(x, 0.7) for x in X[:2].numpy()], dtype=F64)
    assert bool(((found.log_prob - expected).abs() < 4.5 * found.error).all()) and float(found.error.max()) < 0.02


def test_the_marginal_likelihood_of_a_stack():
    models = [product_vae("h2,e2", seed=seed) for seed in range(2)]
    x = torch.randn(2, 4, FEATURES, dtype=F64)
    alone = [
        marginal_likelihood(m, own, 50, torch.Generator().manual_seed(0)) for m, own in zip(models, x, strict=True)
    ]
    found = marginal_likelihood(Stack(models), x, 50, torch.Generator().manual_seed(0))
    torch.testing.assert_close(found.log_prob, torch.stack([one.log_prob for one in alone]), rtol=1e-9, atol=1e-9)


def test_networks_and_posterior_must_agree_on_the_space():
    space, rows = Space("h2,e3"), torch.rand(4, 20)
    single = Layers(Gyroplane(5, 8), nn.ReLU(), nn.Linear(8, 20))
    with pytest.raises(ValueError, match="Gyroplane has one curvature, and the space 2"):
        VAE(mlp(20, 8), single, Posterior(8, space), Bernoulli(20)).elbo(rows)
    for other in ("h3,e2", "e2,h3", "h2,h3"):
        made = decoder("gyroplane", Space(other), (8,), 20)
        with pytest.raises(ValueError, match="made with the same space"):
            VAE(mlp(20, 8), made, Posterior(8, space), Bernoulli(20))
    nested = Layers(decoder("gyroplane", space, (8,), 20), nn.Identity())
    assert VAE(mlp(20, 8), nested, Posterior(8, space), Bernoulli(20)).elbo(rows).isfinite().all()
    with pytest.raises(ValueError, match="at least one factor"):
        Space([])


def test_weights_of_a_curved_factor_are_refused_by_a_flat_one():
    curved, flat = (build(Config(space=text, likelihood="bernoulli"), 20) for text in ("h2,h2:learn", "h2,e2"))
    with pytest.raises(CurvaeError, match="other flat factors"):
        flat.load_state_dict(curved.state_dict())


def test_another_space_of_a_configuration():
    config = Config(space="h2,e3", seed=4)
    assert config.with_space("h4:0.5") == Config(dim=4, curvature=0.5, seed=4)
    assert config.with_space("h2,h2").dim == 4 and config.with_curvature(np.float64(0.3)).space == "h2:0.3,e3"


def test_a_product_of_all_pairs_is_refused_where_memory_is_short(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 2e9)
    require_buildable_graph(GraphConfig(samples=10), 2000)
    with pytest.raises(CurvaeError, match="memory"):
        require_buildable_graph(GraphConfig(space="h2,e2", samples=10, pairs="all"), 2000)


# --- safetensors: one name a tensor, fixed and learned curvatures in each other's place ------------------------------


LEARNED = pytest.mark.parametrize("learned", [False, True], ids=["fixed", "learned"])


def saved_vae(learned, kind="mobius", c=0.7):
    space = Space([HyperbolicFactor(2, c, learned)])
    return VAE(mlp(5, 8), decoder(kind, space, (8,), 5), Posterior(8, space), Gaussian(5))


def shared(learned, c=0.7):
    """A model with layers that own the curvature of the space."""
    curvature = Curvature(c, learnable=learned)
    layers = MobiusLinear(2, 8, curvature), LogMap0(curvature), torch.nn.ReLU(), torch.nn.Linear(8, 5)
    return VAE(mlp(5, 8), Layers(*layers), Posterior(8, Space([HyperbolicFactor(2, curvature)])), Gaussian(5))


def graph(learned, c=0.7):
    return GraphVAE(GraphEncoder(7), Posterior(32, Space([HyperbolicFactor(2, c, learned)])), GeodesicEdges())


MAKERS = pytest.mark.parametrize(
    "make",
    [saved_vae, graph, shared],
)


def with_aliases(model):
    """Return the state with every shared tensor under all of its names."""
    names = (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False))
    return {name: t.detach().clone() for tensors in names for name, t in tensors}


@MAKERS
@LEARNED
def test_plain_safetensors(make, learned, tmp_path):
    model = make(learned, c=0.3)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    state = load_file(tmp_path / "model.safetensors")
    assert sum("curvature" in name for name in state) == 1
    for copy in (make(learned), deepcopy(make(learned))):
        copy.load_state_dict(state)
        for (name, t), (_, other) in zip(with_aliases(copy).items(), with_aliases(model).items(), strict=True):
            assert torch.equal(t, other), name
    torch.nn.Sequential(make(learned)).load_state_dict({f"0.{name}": t for name, t in state.items()})
    del state[next(name for name in state if "curvature" in name)]
    with pytest.raises(RuntimeError, match="Missing key"):
        make(learned).load_state_dict(state)


@MAKERS
@LEARNED
def test_states_with_all_names_still_load(make, learned):
    old, model = make(learned, c=0.3), make(learned)
    model.load_state_dict(with_aliases(old))
    for name, t in with_aliases(model).items():
        assert torch.equal(t, with_aliases(old)[name]), name


@MAKERS
@LEARNED
@pytest.mark.parametrize("state", [torch.nn.Module.state_dict, with_aliases], ids=["one name", "all names"])
def test_fixed_and_learned_curvature_load_into_each_other(make, learned, state):
    old, model = make(learned, c=0.3), make(not learned)
    model.load_state_dict(state(old))
    (curvature,) = {part for part in model.modules() if isinstance(part, Curvature)}
    assert curvature.learnable is not learned
    torch.testing.assert_close(curvature().detach(), torch.tensor(0.3))


def test_prior_scale_likewise_and_a_flat_space_cannot_be_learned():
    for learned in (False, True):
        factor = HyperbolicFactor(2, 0.7, learn_prior_scale=not learned)
        factor.load_state_dict(HyperbolicFactor(2, 0.7, prior_scale=1.5, learn_prior_scale=learned).state_dict())
        torch.testing.assert_close(factor.scale().detach(), torch.tensor(1.5))
    with pytest.raises(RuntimeError, match="a learned curvature must start above 0"):
        Curvature(1.0, learnable=True).load_state_dict(Curvature(0.0).state_dict())


def test_run_folders_load_with_a_learned_curvature():
    """The tensors of a run with a fixed curvature, and the configuration of one that learns it."""
    fixed = build(Config(curvature=0.3, likelihood="unit_gaussian"), 5)
    config = Config(curvature=1.0, learn_curvature=True, likelihood="unit_gaussian")
    for state in (fixed.state_dict(), with_aliases(fixed)):
        tensors = {f"model.{name}": t for name, t in state.items()}
        model = restored_model(tensors, (5, *config.layers), lambda: build(config, 5))
        torch.testing.assert_close(model.space.curvatures()[0].detach(), torch.tensor(0.3))
        x, noise = torch.randn(4, 5), torch.randn(2, 4, 2)
        torch.testing.assert_close(model.elbo(x, noise=noise), fixed.elbo(x, noise=noise), rtol=1e-5, atol=1e-5)
