"""Likelihoods, the model and its configuration; the objectives themselves are checked in test_marginal."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional as F

from curvae.errors import CurvaeError
from curvae.models import VAE, Bernoulli, Categorical, Gaussian, Layout, Posterior
from curvae.nn import Curvature, Gyroplane, HyperbolicFactor, Layers, Space, decoder, mlp
from curvae.settings import resolve_defaults
from curvae.training import Config, build

LAWS = pytest.mark.parametrize("law", ["wrapped", "riemannian"])
KINDS = ("gyroplane", "gyroplane_scalar", "log_mlp", "mlp", "mobius")
HALF_LOG_2PI = math.log(2 * math.pi) / 2


def vae(law="wrapped", c=1.0, kind="gyroplane", dim=2, features=5, learn=None, scale=1.0, likelihood=None) -> VAE:
    both = learn == "both"
    space = Space([HyperbolicFactor(dim, c, both or learn == "curvature", law, False, scale, both or learn == "scale")])
    networks = mlp(features, 8), decoder(kind, space, (8,), features)
    return VAE(*networks, Posterior(8, space), likelihood or Gaussian(features))


def gradients(model: nn.Module, value: torch.Tensor) -> dict[str, torch.Tensor]:
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(value, parameters), strict=True))


# --- likelihoods ----------------------------------------------------------------------------------------------------


def outputs(features: int) -> torch.Tensor:
    """Of every size, some of them absurd."""
    return torch.randn(6, 30, features) * 10.0 ** torch.arange(-3, 3)[:, None, None]


def test_likelihoods_equal_scipy():
    eta, x = outputs(4)[:4].double(), torch.rand(30, 4).double()
    unit, learned = Gaussian(4, learned=False), Gaussian(4).double()
    learned.spread.data.normal_()
    for likelihood in (unit, learned):
        deviation = 1.0 if likelihood is unit else 0.01 + np.logaddexp(0, learned.spread.detach().numpy())
        expected = stats.norm(eta.numpy(), deviation).logpdf(x.numpy()).sum(-1)
        np.testing.assert_allclose(likelihood.log_prob(eta, x).detach(), expected, rtol=1e-10)
    p = 1 / (1 + np.exp(-eta.numpy()))
    whole = (x > 0.5).double()
    np.testing.assert_allclose(
        Bernoulli(4).log_prob(eta, whole), stats.bernoulli(p).logpmf(whole.numpy()).sum(-1), rtol=1e-8
    )
    grey = x.numpy() * np.log(p) + (1 - x.numpy()) * np.log1p(-p)
    np.testing.assert_allclose(Bernoulli(4).log_prob(eta, x), grey.sum(-1), rtol=1e-6)
    one_hot = torch.cat([torch.eye(3)[torch.randint(3, (30,))], torch.eye(1).expand(30, 1)], -1).double()
    share = np.exp(eta.numpy()[..., :3])
    expected = np.log((share / share.sum(-1, keepdims=True) * one_hot.numpy()[:, :3]).sum(-1))
    np.testing.assert_allclose(Categorical(4, [3, 1]).log_prob(eta, one_hot), expected, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("floor", [0.01, 0.2])
def test_no_likelihood_beyond_its_bound(floor):
    eta = outputs(50)
    x = eta[3] + torch.randn(30, 50) * 10.0 ** torch.arange(-8, 2).repeat(3)[:, None]
    unit = Gaussian(50, learned=False)
    assert unit.log_prob(eta, x).max() <= -25 * math.log(2 * math.pi) + 1e-4
    torch.testing.assert_close(unit.log_prob(x, x), torch.full((30,), -25 * math.log(2 * math.pi)))
    learned = Gaussian(50, floor=floor)
    with torch.no_grad():
        learned.spread.fill_(-1e4)
    bound = 50 * (-math.log(floor) - HALF_LOG_2PI)
    assert learned.log_prob(eta, x).max() <= bound + 1e-3
    torch.testing.assert_close(learned.log_prob(x, x).detach(), torch.full((30,), bound))
    assert (Gaussian(50).scale() - 1).abs().max() < 1e-6
    grey, shares = torch.rand(30, 50), torch.rand(30, 50).softmax(-1)
    for target in (grey, grey.round()):
        assert Bernoulli(50).log_prob(eta, target).max() <= 0
        assert Bernoulli(50).log_prob(1e4 * (2 * grey.round() - 1), grey.round()).max() <= 0
    for likelihood in (Categorical(50), Categorical(50, [10, 25, 15])):
        assert likelihood.log_prob(eta, shares).max() <= 0


@LAWS
def test_no_objective_beyond_the_bound(law):
    """A perfect decoder of 50 features that a model knows by heart."""
    model = vae(law, features=50, likelihood=Gaussian(50, learned=False))
    x = model.decoder[-1].bias.detach().expand(200, 50)
    with torch.no_grad():
        model.decoder[-1].weight.zero_()
        assert model.elbo(x, k=50).mean() <= -25 * math.log(2 * math.pi)
        assert model.iwae(x, k=50).mean() <= -25 * math.log(2 * math.pi) + 0.05


LIKELIHOODS = [Bernoulli(4), Gaussian(4, learned=False), Gaussian(4), Categorical(4), Categorical(4, [1, 3])]


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=str)
def test_means_samples_and_starts(likelihood):
    eta, count = torch.tensor([0.3, -1.0, 2.0, 0.5]), 20_000
    draws = likelihood.sample(eta.expand(count, 4), generator=torch.Generator().manual_seed(0))
    mean = likelihood.mean(eta)
    error = draws.std(0) / math.sqrt(count)
    assert ((draws.mean(0) - mean).abs() <= 4 * error + 1e-6).all()
    again = likelihood.sample(eta.expand(count, 4), generator=torch.Generator().manual_seed(0))
    assert torch.equal(draws, again) and likelihood.sample(eta.expand(2, 3, 4)).shape == (2, 3, 4)
    if isinstance(likelihood, Gaussian):
        assert (draws.std(0) - 1).abs().max() < 0.03
    else:
        assert ((draws == 0) | (draws == 1)).all()
    if isinstance(likelihood, Categorical):
        for part in draws.split(likelihood.blocks, -1):
            assert (part.sum(-1) == 1).all()
    torch.testing.assert_close(likelihood.mean(likelihood.start(mean)), mean, rtol=1e-5, atol=1e-6)
    # Columns that are constant, or never seen.
    assert likelihood.start(torch.tensor([0.0, 1.0, 0.0, 0.0])).isfinite().all()


def test_blocks_must_add_up():
    with pytest.raises(ValueError, match=r"\[2, 3\] columns do not add up to 4"):
        Categorical(4, [2, 3])


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


def test_config_round_trip():
    config = Config(
        dim=5, curvature=0.3, posterior="wrapped", diagonal=True, hidden=(30, 20), epochs=7, patience=3, beta=0.5
    )
    text = json.dumps(config.to_json())
    assert Config.from_json(json.loads(text)) == config
    assert Config.from_json({}) == Config() and Config(hidden=[9]).hidden == (9,)
    assert resolve_defaults(Config(epochs=3), (9, 1), Layout(4)).epochs == 3
    assert resolve_defaults(Config(), (640, 64), Layout(4)).epochs == 300
    large = resolve_defaults(Config(), (10**7, 10**6), Layout(4))  # 10,000 steps, an eighth of a pass
    assert (large.epochs, large.epoch_steps) == (100, 100)


BAD = {
    "space": ["h0", "", "2", "s2", "h2:-1", "h2:x", "e2:1", "h2,", 3],
    "dim": [0, -1, 2.0, True, "2", None],
    "curvature": [-1.0, math.nan, math.inf, "1", True, None],
    "learn_curvature": ["yes", 1, None],
    "posterior": ["normal", None, 3],
    "diagonal": ["no", 0],
    "prior_scale": [0, -1.0, math.nan, math.inf, "1", False],
    "learn_prior_scale": ["yes", 1],
    "network": ["cnn", None],
    "decoder": ["linear", None],
    "encode_covariates": ["yes", 1, None],
    "dropout": [-0.1, 1.0, math.nan, "0.1", None],
    "hidden": [(), 200, "200", (0,), (2.5,), (True,), (30, -1), ["a"], {}],
    "likelihood": ["weibull", None],
    "standardise": ["no", 0, None],
    "objective": ["vae", None],
    "samples": [0, 1.5, None],
    "beta": [-0.1, math.nan, "1"],
    "neighbours": ["some", None, 3],
    "neighbours_weight": [0, -1.0, math.nan, "1"],
    "n_neighbours": [0, 1.5, None],
    "jitter": [-0.1, 1.0, math.nan, "0.1", None],
    "init": ["spectral", None, 1],
    "epochs": [0, 2.5, "7", False],
    "adam_beta2": [-0.1, 1.0, "0.9", None],
    "cooldown": [-0.1, 1.5, "1", None],
    "steps": [0, 2.5, "many", True],
    "epoch_steps": [0, 2.5, "7"],
    "batch_size": [0, 64.0, None],
    "weight_decay": [-0.1, math.nan, "1", None],
    "noise_rate": [0, -1.0, math.inf, "1", None],
    "learning_rate": [0, -1e-3, math.inf, None],
    "validation": [-0.1, 1.0, math.nan, "0.1"],
    "patience": [0, 1.5, True, "long"],
    "tf32": ["yes", 1, None],
    "seed": [-1, 2**32, 1.0, None, True],
}


def test_every_field_has_bad_values():
    assert set(BAD) == set(Config().flat())


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_config_refuses(name, value):
    for make in (lambda: Config(**{name: value}), lambda: Config.from_json({name: value})):
        with pytest.raises(CurvaeError) as error:
            make()
        message = str(error.value)
        assert "\n" not in message and name in message and (repr(value) in message or isinstance(value, list))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"learn_curvature": True, "learn_prior_scale": True}, 'curvature="learn" and learn_prior_scale'),
        ({"learn_curvature": True, "curvature": 0}, "curvature must start above 0"),
        ({"diagonal": True}, 'posterior="wrapped"'),
        ({"patience": 3, "validation": 0}, "validation to 0.1, say, or drop patience"),
        ({"curvatures": 1.0, "dims": 2}, "unknown settings: curvatures, dims; did you mean curvature, dim?"),
        ({"space": {"dim": 3, "epochs": 3}}, "unknown settings: space.epochs; did you mean epochs?"),
        ({"space": "h2,e3", "dim": 4}, 'dim=4 contradicts space="h2,e3"'),
        ({"space": "h2:0.5", "curvature": 2.0}, 'curvature=2.0 contradicts space="h2:0.5"'),
        ({"space": "h2,h2:learn", "learn_prior_scale": True}, "only c·σ0² is identifiable"),
    ],
)
def test_config_refuses_combinations(settings, words):
    with pytest.raises(CurvaeError, match=re.escape(words)) as error:
        Config.from_json(settings)
    assert "\n" not in str(error.value)


def test_mistakes_are_named():
    other = Layers(Gyroplane(2, 5, Curvature(2.0)))
    with pytest.raises(ValueError, match="must share that of the latent space"):
        VAE(mlp(5, 8), other, Posterior(8, Space("h2")), Bernoulli(5))
    with pytest.raises(ValueError, match="at least 1, got 0"):
        vae("wrapped").iwae(torch.rand(3, 5), 0)
