"""Trainings of models on products of spaces: alone, together, interrupted; rows and graphs."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch

from curvae import Lorentz, PoincareBall
from curvae.data import load_graph
from curvae.maps.embedding import Embedding, PlacedFactor
from curvae.models import graph_vae as pairs
from curvae.training import fit, fit_many
from curvae.training import graph_fitting as fitting
from curvae.training.config import GraphConfig
from curvae.training.evaluate import embed, likelihoods
from curvae.training.graph_evaluate import embed_graph
from curvae.training.graph_fitting import fit_graph, fit_graphs
from curvae.training.graph_problem import GraphEngine, Observed
from trainings import SMALL, assert_same, interrupted, rows, state

PRODUCT = replace(SMALL, space="h2:0.7,e1,h2:learn")
GRAPH = GraphConfig(space="h2:0.7,e1,h1:learn", epochs=6, hidden=(8,))


@pytest.fixture(scope="module")
def fitted():
    return fit(replace(PRODUCT, epochs=8), rows())


@pytest.fixture(scope="module")
def graph():
    return load_graph(nx.random_labeled_tree(30, seed=1))


def assert_close(found, expected, tolerance):
    for (name, a), b in zip(found.model.state_dict().items(), expected.model.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, msg=name)


# --- trainings ------------------------------------------------------------------------------------------------------


def test_records_name_the_numbers_of_every_factor(fitted):
    first, last = fitted.history[0], fitted.history[-1]
    assert {"c_1", "c_2", "c_3", "prior_scale_1", "prior_scale_2", "prior_scale_3"} <= set(first)
    assert first["c_1"] == last["c_1"] == pytest.approx(0.7) and first["c_2"] == last["c_2"] == 0
    assert last["c_3"] != first["c_3"] and last["c_3"] == pytest.approx(fitted.model.space.figures()[2].c)
    assert last["elbo"] > first["elbo"]


@pytest.mark.parametrize("posterior", ["wrapped", "riemannian"])
def test_a_stack_trains_each_model_as_if_alone(posterior):
    base = replace(PRODUCT, posterior=posterior)
    each = enumerate([(0.7, 1.0), (2.0, 0.8)])
    configs = [replace(base.with_curvature(c), seed=i, prior_scale=s) for i, (c, s) in each]
    many = fit_many([*configs, replace(SMALL, space="h2,e1")], rows(), dtype=torch.float64)
    for config, found in zip(configs, many, strict=False):
        assert_close(found, fit(config, rows(), dtype=torch.float64), 1e-9)
    assert many[2].config.dim == 3 and many[2].failure is None


@pytest.mark.usefixtures("often")
def test_an_interrupted_training_goes_on_exactly(tmp_path):
    configs = [PRODUCT, replace(SMALL, space="h2,e3")]
    whole = fit_many(configs, rows())
    for at in (1, 2, 4):
        folder = tmp_path / str(at)
        interrupted(at, configs, rows(), folder=folder)
        for found, expected in zip(fit_many(configs, rows(), folder=folder, resume=True), whole, strict=True):
            assert_same(state(found), state(expected))


def test_likelihoods_and_reconstructions(fitted):
    x = rows()
    found, place = likelihoods(fitted, x, samples=50), embed(fitted, x)
    assert found.log_prob.shape == (40,) and np.isfinite(found.log_prob).all()
    again = fitted.reconstruct(place.space)
    assert again.shape == x.shape
    with torch.no_grad():
        outputs = fitted.model.decode(torch.from_numpy(place.space))
        expected = fitted.scaling.invert(fitted.model.likelihood.mean(outputs).double().numpy())
    np.testing.assert_allclose(again, expected, rtol=1e-6, atol=1e-6)


# --- embeddings -----------------------------------------------------------------------------------------------------


def test_where_rows_lie(fitted):
    """Charts and distances from those of the factors, in units of the prior scales."""
    place, model = embed(fitted, rows()), fitted.double().model
    with torch.no_grad():
        q = model.encode(fitted.double().rows(rows()).batch(torch.arange(40)))
    np.testing.assert_allclose(place.space, q.loc, rtol=1e-9, atol=1e-12)
    assert place.sigma.shape == (40, 3) and place.dim == 5
    assert [(f.name, f.dim, f.unit) for f in place.placed] == [("h1", 2, 1.0), ("e2", 1, 1.0), ("h3", 2, 1.0)]
    with pytest.raises(ValueError, match="a curvature for each factor"):
        _ = place.c
    manifolds = [Lorentz(f.dim, f.c) for f in place.placed]
    parts = torch.from_numpy(place.space).split([2, 1, 2], -1)
    each = [m.dist(p.unsqueeze(1), p) for m, p in zip(manifolds, parts, strict=True)]
    expected = torch.stack(each).square().sum(0).sqrt()
    np.testing.assert_allclose(place.distances(), expected, atol=1e-9)
    listed = np.array([[0, 3], [5, 2]])
    np.testing.assert_allclose(place.distances_of(listed), expected[listed[:, 0], listed[:, 1]], atol=1e-9)
    np.testing.assert_allclose(place.take([3, 4]).distances(place), expected[[3, 4]], atol=1e-9)
    logs = [m.logmap0(p) for m, p in zip(manifolds, parts, strict=True)]
    np.testing.assert_allclose(place.tangent, torch.cat(logs, -1), atol=1e-9)
    np.testing.assert_allclose(place.radius, torch.cat(logs, -1).norm(dim=-1), atol=1e-9)
    balls = [PoincareBall(f.dim, f.c).from_lorentz(p) for f, p in zip(place.placed, parts, strict=True)]
    np.testing.assert_allclose(place.ball, torch.cat(balls, -1), atol=1e-12)
    assert [part.placed[0].name for part in place.parts] == ["h1", "e2", "h3"]
    for part, own, c in zip(place.parts, parts, model.space.curvatures(), strict=True):
        np.testing.assert_array_equal(part.space, own)
        assert part.c == c.item() and part.sigma.shape == (40,)


def test_distances_are_in_units_of_the_prior_scales():
    factors = PlacedFactor("h1", 1, 0.5, 2.0), PlacedFactor("e2", 1, 0.0, 0.5)
    u = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, -1.0]])
    space = np.column_stack([np.sinh(np.sqrt(0.5) * u[:, 0]) / np.sqrt(0.5), u[:, 1]])
    place = Embedding(space, np.ones((4, 2)), factors)
    np.testing.assert_allclose(place.distances()[0], [0, 0.5, 2.0, np.hypot(0.5, 2.0)], atol=1e-12)
    np.testing.assert_allclose(place.tangent, u / [2.0, 0.5], atol=1e-12)
    np.testing.assert_allclose(place.radius, place.distances()[0], atol=1e-12)
    wide = fit(replace(SMALL, space="h2,e1", prior_scale=1.5, epochs=1), rows())
    assert [f.unit for f in embed(wide, rows()).placed] == [1.5, 1.5]


# --- graphs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("posterior", ["wrapped", "riemannian"])
def test_graphs_alone_and_together(graph, posterior):
    configs = [replace(GRAPH.with_curvature(c), seed=i, posterior=posterior) for i, c in enumerate((0.7, 2.0))]
    for config, found in zip(configs, fit_graphs(configs, graph, dtype=torch.float64), strict=True):
        assert found.failure is None and {"c_1", "c_2", "c_3"} <= set(found.history[0])
        assert_close(found, fit_graph(config, graph, dtype=torch.float64), 1e-8)
    place = embed_graph(found, graph)
    assert place.sigma.shape == (30, 3) and [f.unit for f in place.placed] == [1.0, 1.0, 1.0]


@pytest.mark.usefixtures("often")
def test_an_interrupted_graph_goes_on_exactly(tmp_path, graph):
    whole, calls = fit_graph(GRAPH, graph), 0

    def tick(done, total):
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_graph(GRAPH, graph, folder=tmp_path, progress=tick)
    assert_same(state(fit_graph(GRAPH, graph, folder=tmp_path, resume=True)), state(whole))


def test_products_see_a_sample_of_the_pairs_of_smaller_graphs(monkeypatch, graph):
    """All pairs of a product are listed, which takes memory for each of them."""
    assert pairs.exact(8192) and not pairs.exact(8193)
    assert pairs.exact(2048, listed=True) and not pairs.exact(2049, listed=True)
    monkeypatch.setattr(pairs, "_EXACT_LISTED", 29)
    seen, found = Observed.of(graph), {}
    product = replace(GRAPH, pairs="all", popularity="off")
    for config in (product, product.with_space("h2")):
        model = fit_graph(replace(config, epochs=2), graph).model
        found[len(model.space)] = GraphEngine([model], [config], [seen])._samplers
    assert not found[1] and found[3]
    monkeypatch.setattr(fitting, "_TOGETHER", 29)  # models are trained one at a time
    both = fit_graphs([replace(product, seed=i) for i in range(2)], graph)
    assert all(one.failure is None for one in both)
    assert_same(state(both[1]), state(fit_graph(replace(product, seed=1), graph)))
