"""Layers and models under autocast, forward and backward: close to what they give in float32."""

from __future__ import annotations

import warnings

import pytest
import torch

from combining import every_pair
from curvae import Lorentz, PoincareBall, RiemannianNormal, WrappedNormal
from curvae.models import VAE, Bernoulli, FermiDirac, GeodesicEdges, GraphVAE, Posterior, Stack
from curvae.nn import (
    Curvature,
    ExpMap0,
    GraphEncoder,
    Gyroplane,
    HyperbolicFactor,
    LogMap0,
    MobiusLinear,
    Space,
    decoder,
    mlp,
    normalised_adjacency,
)

LOW = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
LEARNED = pytest.mark.parametrize("learned", [False, True], ids=["fixed", "learned"])


def compare(module, value, dtype, tolerance):
    """Output and gradient under autocast against those without it, with the backward pass outside and inside.

    A unit that half precision takes across the kink of a ReLU changes its own gradient altogether, so gradients are
    compared as one vector.
    """

    def gradient(loss):
        module.zero_grad()
        loss.backward()
        return torch.cat([p.grad.double().flatten() for p in module.parameters()])

    exact = value().double()
    exact_grad = gradient(exact.sum())
    with torch.autocast("cpu", dtype=dtype):
        low = value().double()
        inside = gradient(value().double().sum())
    for ours, true in ((low, exact), (gradient(low.sum()), exact_grad), (inside, exact_grad)):
        assert ours.isfinite().all()
        assert (ours - true).norm() <= tolerance * true.norm()


LAYERS = {
    "exp": lambda c: ExpMap0(c),
    "log": lambda c: LogMap0(c),
    "gyroplane": lambda c: Gyroplane(3, 7, c),
    "gyroplane_scalar": lambda c: Gyroplane(3, 7, c, "scalar"),
    "mobius": lambda c: MobiusLinear(3, 4, c),
}


@pytest.mark.parametrize(
    ("name", "dtype", "learned", "before"),  # before: points of low precision
    every_pair(list(LAYERS), [torch.bfloat16, torch.float16], [False, True], [False, True]),
)
def test_layers(name, dtype, learned, before):
    first = torch.nn.Linear(5, 3)
    layer = LAYERS[name](Curvature(0.7, learnable=learned))
    x = torch.randn(6, 5)
    module = torch.nn.ModuleList([first, layer])
    compare(module, lambda: layer(first(x) if before else first(x).float()), dtype, 0.02)


def test_geometry_of_far_points_stays_in_full_precision():
    """At radius 12 coordinates in half precision would be off by thousands; here they are not rounded at all."""
    for learned in (False, True):
        layer = Gyroplane(3, 7, Curvature(1.0, learnable=learned))
        S = Lorentz(3).expmap0(torch.tensor([[12.0, 0.1, -0.3], [-3.0, 9.0, 8.0]]))
        exact = layer(S)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            low = layer(S)
        assert low.dtype == torch.float32
        torch.testing.assert_close(low, exact, rtol=1e-6, atol=1e-6)
    u = torch.tensor([4.0, 3.0], dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = PoincareBall(2).expmap0(u)
    assert z.dtype == torch.float32
    torch.testing.assert_close(PoincareBall(2).dist0(z), torch.tensor(10.0), rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("kind", "law", "dtype", "learned"),
    every_pair(
        ["gyroplane", "gyroplane_scalar", "log_mlp", "mlp", "mobius"],
        [("wrapped", False), ("wrapped", True), ("riemannian", False)],  # diagonal or not
        [torch.bfloat16, torch.float16],
        [False, True],
    ),
)
def test_vae(dtype, learned, law, kind):
    space = Space([HyperbolicFactor(2, 0.7, learned, *law)])
    model = VAE(mlp(20, 16), decoder(kind, space, (16,), 20), Posterior(16, space), Bernoulli(20))
    x, noise = torch.rand(8, 20), torch.randn(2, 8, 2)
    compare(model, lambda: model.elbo(x, noise=noise), dtype, 0.1)


@LOW
@pytest.mark.parametrize("space", ["h2:0.5,e3", "h2:learn,e1,h2"])
@pytest.mark.parametrize("law", ["wrapped", "riemannian"])
def test_products(dtype, space, law):
    space = Space(space, distribution=law)
    x, noise = torch.rand(8, 20), torch.randn(2, 8, space.dim)
    model = VAE(mlp(20, 16), decoder("gyroplane", space, (16,), 20), Posterior(16, space), Bernoulli(20))
    compare(model, lambda: model.elbo(x, noise=noise), dtype, 0.1)
    graph = GraphVAE(GraphEncoder(7), Posterior(32, space), FermiDirac())
    edges, noise = torch.tensor([[0, 0, 1, 1, 2, 2], [1, 2, 3, 4, 5, 6]]), torch.randn(3, 7, space.dim)
    adjacency = normalised_adjacency(edges, 7)
    compare(graph, lambda: graph.elbo(adjacency, edges, noise=noise), dtype, 0.1)


@pytest.mark.parametrize(
    ("dtype", "learned", "law", "edge_model", "dense"),
    every_pair(
        [torch.bfloat16, torch.float16],
        [False, True],
        ["wrapped", "riemannian"],
        [GeodesicEdges, FermiDirac],
        [True, False],
    ),
)
def test_graph_vae(dtype, learned, law, edge_model, dense):
    edges = torch.tensor([[0, 0, 1, 1, 2, 2], [1, 2, 3, 4, 5, 6]])
    model = GraphVAE(GraphEncoder(7), Posterior(32, Space([HyperbolicFactor(2, 0.7, learned, law)])), edge_model())
    noise = torch.randn(3, 7, 2)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        adjacency = normalised_adjacency(edges, 7, dense=dense)
    compare(model, lambda: model.elbo(adjacency, edges, noise=noise), dtype, 0.1)


@LEARNED
@pytest.mark.parametrize("law", ["wrapped", "riemannian"])
def test_stack_agrees_with_its_models(learned, law):
    def make():
        space = Space([HyperbolicFactor(2, 0.7, learned, law)])
        return VAE(mlp(20, 16), decoder("gyroplane", space, (16,), 20), Posterior(16, space), Bernoulli(20))

    models = [make(), make()]
    x, noise = torch.rand(2, 8, 20), torch.randn(2, 3, 8, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        alone = [model.terms(*args) for model, *args in zip(models, x, noise, strict=True)]
    sum(terms.reconstruction.sum() + terms.kl.sum() for terms in alone).backward()
    grads = [{name: p.grad for name, p in model.named_parameters()} for model in models]
    stack = Stack(models)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        terms = stack.terms(x, noise)
    (terms.reconstruction.sum() + terms.kl.sum()).backward()
    for i in range(2):
        torch.testing.assert_close(terms.reconstruction[i], alone[i].reconstruction, rtol=0.02, atol=0.05)
        torch.testing.assert_close(terms.kl[i], alone[i].kl, rtol=0.02, atol=0.02)
        for name, leaf in stack.leaves.items():
            assert (leaf.grad[i] - grads[i][name]).norm() <= 0.05 * grads[i][name].norm() + 1e-3, name


@LOW
@pytest.mark.parametrize("law", [WrappedNormal, RiemannianNormal])
@pytest.mark.parametrize("space", [Lorentz, PoincareBall])
def test_distributions_of_outputs_of_a_network(dtype, law, space):
    net = torch.nn.Linear(4, 3)
    x = torch.randn(5, 4)
    with torch.autocast("cpu", dtype=dtype):
        out = 0.2 * net(x)
        q = law(out[:, :2], torch.nn.functional.softplus(out[:, 2:]), space(2, 0.5))
        z, log_q = q.rsample_and_log_prob((3,))
    (z.double().sum() + log_q.double().sum()).backward()
    assert z.isfinite().all() and log_q.isfinite().all() and net.weight.grad.isfinite().all()
