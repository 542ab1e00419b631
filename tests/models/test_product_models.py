"""Models on products of spaces, against bare torch, brute force, quadrature and finite differences."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import mpmath as mp
import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn import functional as F

from combining import every_pair
from curvae.data import memory
from curvae.distributions import ProductNormal
from curvae.errors import CurvaeError
from curvae.models import (
    VAE,
    Bernoulli,
    FermiDirac,
    Gaussian,
    GeodesicEdges,
    GraphBatch,
    GraphVAE,
    Pairs,
    Posterior,
    Stack,
    marginal_likelihood,
)
from curvae.nn import GraphEncoder, Gyroplane, HyperbolicFactor, Layers, Space, decoder, mlp, normalised_adjacency
from curvae.training import Config, GraphConfig, build
from curvae.training.graph_problem import require_buildable_graph
from oracles import ball_dist, lorentz_to_ball, mpf, relative, vector
from products import FEATURES, PRODUCTS, vae
from stacking import assert_as_alone

F64 = torch.float64
DECODERS = ["gyroplane", "gyroplane_scalar", "log_mlp", "mlp", "mobius"]
KINDS = pytest.mark.parametrize("kind", DECODERS)
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
    model = vae("e2,e3", kind, Gaussian(FEATURES, learned=False), distribution=distribution, prior_scale=1.5)
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


@KINDS
@DISTRIBUTIONS
def test_a_factor_that_says_nothing_changes_nothing(kind, distribution):
    """The decoder does not look at it, and its posterior is its prior."""
    single = vae("h2:0.8", kind, distribution=distribution, prior_scale=1.25)
    double = vae("h2:0.8,h2:0.8", kind, distribution=distribution, prior_scale=1.25)
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
@KINDS
def test_decoders_take_the_factors_one_by_one(space, kind):
    """The first layer is the sum of the factors' layers, each with its own curvature."""
    model = vae(space, kind)
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
    model, x = vae(space, kind, distribution=distribution), rows()
    noise = torch.randn(2, 5, model.dim, dtype=F64)
    assert_slopes(model, lambda: model.elbo(x, noise=noise).sum())
    noise = noise.float()  # for the fused step of the Riemannian normal, exact to single precision
    fused, exact = (
        torch.autograd.grad(model.elbo(x, noise=own).sum(), list(model.parameters())) for own in (noise, noise.double())
    )
    torch.testing.assert_close(fused, exact, rtol=1e-4, atol=1e-4)


def test_the_entropy_may_be_taken_in_closed_form():
    model, x = vae("h2,e1", distribution="wrapped"), rows(2)
    noise = model.noise(2, 20_000)
    with torch.no_grad():
        sampled, closed = model.terms(x, noise), model.terms(x, noise, entropy=True)
    torch.testing.assert_close(closed.reconstruction, sampled.reconstruction, rtol=1e-5, atol=1e-5)
    difference = sampled.kl - closed.kl
    assert bool((difference.mean(0).abs() < 4.5 * difference.std(0) / math.sqrt(20_000)).all())


@SPACES
def test_saved_weights_fit_again(space):
    model, other = vae(space), vae(space, seed=1)
    other.load_state_dict(model.state_dict())
    x, noise = rows(), torch.randn(1, 5, model.dim)
    torch.testing.assert_close(other.terms(x, noise), model.terms(x, noise), rtol=0, atol=0)
    names = [name for name in model.state_dict() if "curvature" in name or "scale" in name]
    assert len(names) == 2 * len(model.space) and all(name.startswith("posterior.space.factors.") for name in names)


def test_samples():
    model = vae("h2,e1,h1")
    assert model.sample(7).shape == (7, FEATURES) and model.iwae(rows(), k=5).shape == (5,)
    assert isinstance(model.encode(rows()), ProductNormal)


def test_one_of_curvature_and_scale_is_learned_in_each_factor():
    own = [HyperbolicFactor(2, learn_curvature=True), HyperbolicFactor(2, learn_prior_scale=True)]
    assert vae(Space(own)).space.learned
    with pytest.raises(ValueError, match="not both"):
        vae(Space([own[0], HyperbolicFactor(2, learn_curvature=True, learn_prior_scale=True)]))


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
    models = [vae("h2,e2", seed=seed) for seed in range(2)]
    x = torch.randn(2, 4, FEATURES, dtype=F64)
    alone = [
        marginal_likelihood(m, own, 50, torch.Generator().manual_seed(0)) for m, own in zip(models, x, strict=True)
    ]
    found = marginal_likelihood(Stack(models), x, 50, torch.Generator().manual_seed(0))
    torch.testing.assert_close(found.log_prob, torch.stack([one.log_prob for one in alone]), rtol=1e-9, atol=1e-9)


# --- graphs ---------------------------------------------------------------------------------------------------------

EDGES, NODES = torch.tensor([[0, 1, 2, 0, 3], [1, 2, 3, 3, 4]]), 6


def graph_model(space, edges=None, seed=0, distribution="wrapped", **options):
    torch.manual_seed(seed)
    space = Space(space, distribution=distribution, **options)
    return GraphVAE(GraphEncoder(NODES, (8,)), Posterior(8, space), edges or GeodesicEdges()).double()


def adjacency():
    return normalised_adjacency(EDGES, NODES).double()


def brute_force(S, space, edges):
    """Σ_{i<j} log p(A_ij | d) with d² the sum of the squares of the factors' distances."""
    joined, total = {frozenset(pair) for pair in EDGES.T.tolist()}, mp.mpf(0)
    places = [
        ([lorentz_to_ball(vector(row), mpf(figures.c)) for row in part], mpf(figures.c))
        for part, figures in zip(space.split(S), space.figures(), strict=True)
    ]
    for i, j in combinations(range(len(S)), 2):
        d = mp.sqrt(sum(ball_dist(ball[i], ball[j], c) ** 2 for ball, c in places))
        if isinstance(edges, GeodesicEdges):
            p = 1 - mp.tanh(d)
        else:
            radius, temperature = (mpf(t.detach()) for t in edges.numbers())
            p = 1 / (1 + mp.exp((d - radius) / temperature))
        total += mp.log(p if frozenset((i, j)) in joined else 1 - p)
    return total


@SPACES
@pytest.mark.parametrize("edges", [GeodesicEdges(), FermiDirac(1.3, 0.4)], ids=["geodesic", "fermi"])
def test_a_graph_by_brute_force(space, edges):
    model = graph_model(space, edges)
    S = 0.8 * torch.randn(NODES, model.space.width, dtype=F64)
    with torch.no_grad():
        found = model.log_likelihood(S, EDGES)
        assert relative(found, brute_force(S, model.space, edges)) < 1e-10
        every = torch.triu_indices(NODES, NODES, 1)
        joined = {tuple(pair) for pair in EDGES.T.tolist()}
        present = torch.tensor([float(tuple(pair) in joined) for pair in every.T.tolist()])
        listed = model.log_likelihood(S, Pairs(every, present, torch.ones(len(present), dtype=F64)))
    assert float(listed) == pytest.approx(float(found), rel=1e-9)


@SPACES
@DISTRIBUTIONS
def test_gradients_of_a_graph(space, distribution):
    model = graph_model(space, FermiDirac(1.3, 0.4), distribution=distribution)
    noise = torch.randn(2, NODES, model.dim, dtype=F64)
    assert_slopes(model, lambda: model.elbo(adjacency(), EDGES, noise=noise))


def test_nodes_at_one_place_have_a_gradient():
    model = graph_model("h2,e1")
    S = torch.zeros(NODES, 3, dtype=F64, requires_grad=True)
    (slope,) = torch.autograd.grad(model.log_likelihood(S, EDGES), S)
    assert bool(slope.isfinite().all())


@SPACES
def test_a_stack_of_graphs(space):
    models = [graph_model(space, FermiDirac(), seed=seed) for seed in range(3)]
    noise = torch.randn(3, 2, NODES, models[0].dim, dtype=F64)
    alone = [model.terms(GraphBatch(adjacency(), EDGES), own) for model, own in zip(models, noise, strict=True)]
    slopes = [
        torch.autograd.grad((terms.reconstruction.sum() - terms.kl.sum()), list(model.parameters()))
        for model, terms in zip(models, alone, strict=True)
    ]
    stack = Stack(models)
    terms = stack.terms(GraphBatch(adjacency().expand(3, -1, -1), EDGES.expand(3, -1, -1)), noise)
    found = torch.autograd.grad(terms.reconstruction.sum() - terms.kl.sum(), list(stack.leaves.values()))
    for i in range(3):
        torch.testing.assert_close([t[i] for t in terms], list(alone[i]), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close([t[i] for t in found], list(slopes[i]), rtol=1e-8, atol=1e-9)


def test_distances_and_samples_of_a_graph():
    model = graph_model("h2,e1")
    edges = model.sample(20)
    assert edges.shape[0] == 2 and bool((edges[0] < edges[1]).all())
    q = model.encode(adjacency())
    pairs = torch.tensor([[0, 3], [1, 5]])
    each = [factor.manifold.dist(factor.loc[pairs[0]], factor.loc[pairs[1]]) for factor in q.factors]
    expected = (each[0] ** 2 + each[1] ** 2).sqrt()
    torch.testing.assert_close(model.distances(adjacency(), pairs), expected, rtol=1e-9, atol=1e-9)


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
