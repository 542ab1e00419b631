"""Training on directed and weighted graphs: together, alone, resumed, stored; and what is learned."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch

from curvae.data import Graph, load_graph, split_edges
from curvae.errors import CurvaeError
from curvae.training import FittedGraph, GraphConfig, embed_graph, fit_graph, fit_graphs, neighbourhood, stacks
from curvae.training.graph_evaluate import judge_split
from curvae.training.graph_problem import Observed
from curvae.training.storage import load_fitted, save_fitted
from graph_trainings import assert_same_weights, fitted_after_interruption

SMALL = GraphConfig(epochs=5, hidden=(6,), learning_rate=0.03, directed=True)


def graph(nodes: int = 30, weighted: bool = False, seed: int = 0) -> Graph:
    """Every node depends on some of those before it, on the first ones most."""
    random = np.random.default_rng(seed)
    links = {(k, int(k * random.random() ** 2)) for k in range(1, nodes) for _ in range(3)}
    made = nx.DiGraph(sorted(links))
    nx.set_edge_attributes(made, {edge: 1.0 + random.random() for edge in made.edges()}, "weight")
    return load_graph(made, directed=True, weighted=weighted)


@pytest.mark.parametrize("settings", [{}, {"pairs": "all", "encoder": "free"}])
def test_a_stack_trains_each_model_as_if_alone(settings):
    data = graph(weighted=True)
    configs = [replace(SMALL, seed=i, curvature=c, **settings) for i, c in enumerate((1.0, 0.3))]
    splits = [split_edges(data, seed=i) for i in range(2)]
    together = fit_graphs(configs, data, splits=splits, dtype=torch.float64)
    for config, split, one in zip(configs, splits, together, strict=True):
        alone = fit_graph(config, data, split=split, dtype=torch.float64)
        assert_same_weights(one, alone, rtol=1e-9)
        assert one.last["validation_auc"] == pytest.approx(alone.last["validation_auc"], abs=1e-12)


def test_resume_is_exact(tmp_path, monkeypatch):
    monkeypatch.setattr(stacks, "_CHECKPOINT_EVERY", 0.0)
    data = graph(weighted=True)
    configs, splits = [replace(SMALL, seed=i) for i in range(2)], [split_edges(data, seed=i) for i in range(2)]
    expected = fit_graphs(configs, data, splits=splits)
    found = fitted_after_interruption(configs, data, splits, tmp_path, after=3)
    for a, b in zip(found, expected, strict=True):
        assert_same_weights(a, b)


def test_saved_and_loaded(tmp_path):
    data = graph()
    fitted = fit_graph(SMALL, data, split=split_edges(data))
    embedding = embed_graph(fitted, data)
    assert embedding.popularity.shape == (30, 2)
    save_fitted(tmp_path, fitted, embedding, {}, data)
    loaded = load_fitted(tmp_path, FittedGraph)
    assert loaded.fitted.config == SMALL and loaded.data.directed and loaded.data.fingerprint == data.fingerprint
    np.testing.assert_array_equal(loaded.embedding.popularity, embedding.popularity)
    i, j = data.edges.T
    b, s = embedding.popularity, embedding.side
    expected = b[i, 0] + b[j, 1] - s[i] * s[j] - embedding.distances()[i, j]
    np.testing.assert_allclose(loaded.embedding.nearness_of(data.edges), expected, atol=1e-9)
    near = neighbourhood(embedding, data)
    assert near.asked == len(np.unique(i))


def test_nodes_that_were_not_there_have_both_popularities():
    """With features a node is placed by its edges, and by which way they run."""
    data = graph()
    features = np.random.default_rng(0).normal(size=(30, 2))
    fitted = fit_graph(replace(SMALL, epochs=30), replace(data, features=features, feature_names=("x", "y")))
    names = np.append(data.names, "new")
    placed = []
    for arc in ([30, 0], [0, 30]):
        edges = np.concatenate([data.edges, [arc]])
        edges = edges[np.lexsort(edges.T[::-1])]
        more = Graph(names, edges, None, np.append(features, [[0.1, 0.2]], axis=0), ("x", "y"), directed=True)
        placed.append(embed_graph(fitted, more).popularity[30])
    (sends, _), (_, receives) = placed
    assert np.isfinite(placed).all() and sends > placed[1][0] and receives > placed[0][1]


def test_graph_and_settings_must_agree():
    data = graph()
    with pytest.raises(CurvaeError, match="edges of the graph have a direction; set directed=True"):
        fit_graph(replace(SMALL, directed=False), data)
    with pytest.raises(CurvaeError, match="edges of the graph have no direction; set directed=False"):
        fit_graph(SMALL, load_graph([(0, 1), (1, 2)]))
    for settings in ({"popularity": "off"}, {"edges": "geodesic"}):
        with pytest.raises(CurvaeError, match='directed=True needs popularity="learned"'):
            GraphConfig(directed=True, **settings)


def test_directions_are_learned():
    """Of three groups the first depends on the second, and that on the third."""
    random = np.random.default_rng(0)
    links = {(15 * k + i, 15 * (k + 1) + int(j)) for k in (0, 1) for i in range(15) for j in random.integers(0, 15, 4)}
    data = load_graph(sorted(links), directed=True)
    split = split_edges(data, 0.05, 0.2)
    fitted = fit_graph(replace(SMALL, epochs=60), data, split=split)
    found = judge_split(fitted, data, split)["test"]
    assert found["direction"] > 0.85
    nearness = embed_graph(fitted, data).nearness_of
    gains = nearness(split.test) - nearness(split.test[:, ::-1])
    assert found["direction"] == np.mean(gains > 0)
    assert set(found["baselines"]["degree product"]) == {"auc", "ap", "auc_matched", "ap_matched", "direction"}


# --- weights as intensities -----------------------------------------------------------------------------------------


def test_heavier_edges_end_up_nearer():
    """Where only the likelihood knows the weights: vectors are free, and all nodes have the same total weight."""
    heavy = np.array([[k, (k + 1) % 24] for k in range(24)])
    light = np.array([[k, (k + 9) % 24] for k in range(24)])
    edges = np.sort(np.concatenate([heavy, light]), axis=1)
    order = np.lexsort(edges.T[::-1])
    config = GraphConfig(epochs=120, encoder="free", hidden=(8,), learning_rate=0.03)
    ratios = []
    for weight in (1.0, 8.0):
        weights = np.repeat([weight, 1.0], 24)[order]
        data = Graph(np.arange(24).astype(str), edges[order], weights)
        distances = embed_graph(fit_graph(config, data), data).distances()
        ratios.append(distances[tuple(heavy.T)].mean() / distances[tuple(light.T)].mean())
    assert ratios[1] < 0.6 * ratios[0]


def test_units_of_weights_do_not_matter_to_the_likelihood():
    data = graph(weighted=True)
    one, other = (Observed.of(replace(data, weights=unit * data.weights)) for unit in (1.0, 1000.0))
    weights = one.all_pairs(balanced=True).weight
    torch.testing.assert_close(weights, other.all_pairs(balanced=True).weight)
    assert float(weights.mean()) == pytest.approx(1.0)
    drawn = one.sampler(balanced=True).balanced()
    torch.testing.assert_close(drawn.times[: data.n_edges], weights)
    assert (drawn.times[data.n_edges :] == 1).all()
    # The model of the paper is one of edges, whatever their weights.
    assert torch.equal(one.all_pairs(balanced=False), one.edges)
    assert (one.sampler(balanced=False).draw(5).weight[: data.n_edges] == 1).all()
