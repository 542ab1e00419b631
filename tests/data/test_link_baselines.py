"""Rules that predict edges without a model, and pairs of equal degrees."""

from __future__ import annotations

from functools import partial

import networkx as nx
import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from curvae.data import Graph, load_graph, split_edges
from curvae.data.graphs import graph_data as baselines
from curvae.data.graphs.graph_data import link_matrix, matched_pairs


def asked(nodes: int, number: int = 300) -> np.ndarray:
    pairs = np.random.default_rng(1).integers(0, nodes, (number, 2))
    return pairs[pairs[:, 0] != pairs[:, 1]]


def auc(score: baselines.Rule, edges: np.ndarray, absent: np.ndarray) -> float:
    truth = np.repeat([1, 0], [len(edges), len(absent)])
    return float(roc_auc_score(truth, np.concatenate([score(edges), score(absent)])))


@pytest.mark.parametrize("block", [1 << 22, 7])
def test_rules_against_networkx(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "_BLOCK", block)
    oracle = nx.barabasi_albert_graph(60, 3, seed=0)
    oracle.add_node(60)  # without an edge
    edges, pairs = np.array(oracle.edges()), asked(61)
    found = baselines.rules(edges, 61, 3)
    assert tuple(found) == baselines.BASELINES
    attachment = [p for *_, p in nx.preferential_attachment(oracle, [(a, b) for a, b in pairs.tolist()])]
    np.testing.assert_array_equal(found["degree product"](pairs), attachment)
    shared = [len(list(nx.common_neighbors(oracle, a, b))) for a, b in pairs.tolist()]
    np.testing.assert_array_equal(found["common neighbours"](pairs), shared)
    assert max(shared) > 1


@pytest.mark.parametrize("dense", [400, 0])
def test_singular_vectors_against_numpy(dense: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "_DENSE", dense)
    oracle = nx.barabasi_albert_graph(80, 4, seed=1)
    u, s, vt = np.linalg.svd(nx.to_numpy_array(oracle))
    best = (u[:, :5] * s[:5]) @ vt[:5]
    pairs = asked(80)
    found = baselines.singular_vectors(link_matrix(np.array(oracle.edges()), 80), 5)(pairs)
    np.testing.assert_allclose(found, best[pairs[:, 0], pairs[:, 1]], atol=1e-3)


def test_a_graph_without_edges_has_scores() -> None:
    for rule in baselines.rules(np.empty((0, 2), dtype=np.int64), 5, 2).values():
        np.testing.assert_array_equal(rule(np.array([[0, 1], [2, 4]])), [0, 0])
        assert rule(np.empty((0, 2), dtype=np.int64)).shape == (0,)


def gap(degree: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    return abs(degree[pairs[:, 0]] - degree[pairs[:, 1]])


# --- pairs of equal degrees -------------------------------------------------------------------------------------------

HUBS = {
    "attachment": nx.barabasi_albert_graph(3000, 3, seed=0),
    "power law": nx.expected_degree_graph((100 * np.arange(1, 2001) ** -0.6).tolist(), seed=0, selfloops=False),
    "tree": nx.barabasi_albert_graph(3000, 1, seed=0),
}


@pytest.mark.parametrize("kind", HUBS)
def test_popularity_alone_scores_half_at_equal_degrees(kind: str) -> None:
    graph = load_graph(HUBS[kind])
    plain, matched, other = [], [], []
    for seed in range(3):
        split = split_edges(graph, seed=seed)
        degree = np.bincount(split.train.ravel(), minlength=graph.n_nodes)
        edges, absent = matched_pairs(graph, split.test, degree, seed)
        rule = baselines.rules(split.train, graph.n_nodes, 2)["degree product"]
        plain.append(auc(rule, split.test, split.test_absent))
        matched.append(auc(rule, edges, absent))
        other.append(auc(partial(gap, degree), edges, absent))
        assert len(edges) > 0.9 * len(split.test)
    assert abs(np.mean(plain) - 0.5) > 0.1
    assert abs(np.mean(matched) - 0.5) < 0.03 and abs(np.mean(other) - 0.5) < 0.05


def test_edges_of_a_hub_that_is_joined_to_all_have_no_match() -> None:
    """A closure: the root is joined to all nodes, so no pair without an edge has a node as popular."""
    below = nx.DiGraph((i, (i - 1) // 2) for i in range(1, 511))
    graph = load_graph([(a, b) for a in below for b in nx.descendants(below, a)])
    degree = np.bincount(graph.edges.ravel(), minlength=graph.n_nodes)
    edges, absent = matched_pairs(graph, graph.edges, degree)
    root = int(degree.argmax())
    assert degree[root] == graph.n_nodes - 1 and not (edges == root).any() and len(edges) > 0.5 * graph.n_edges
    rule = baselines.rules(graph.edges, graph.n_nodes, 2)["degree product"]
    assert abs(auc(rule, edges, absent) - 0.5) < 0.03


def test_matched_pairs() -> None:
    graph = load_graph(HUBS["attachment"])
    degree = np.bincount(graph.edges.ravel(), minlength=graph.n_nodes)
    edges, absent = matched_pairs(graph, graph.edges[::10], degree)
    assert (absent[:, 0] < absent[:, 1]).all()
    oracle = {tuple(pair) for pair in graph.edges.tolist()}
    assert not oracle & {tuple(pair) for pair in absent.tolist()}
    np.testing.assert_array_equal(absent, matched_pairs(graph, graph.edges[::10], degree)[1])
    assert (absent != matched_pairs(graph, graph.edges[::10], degree, seed=1)[1]).any()
    low = np.sort(degree[edges], axis=1)[:, 0] == 3, np.sort(degree[absent], axis=1)[:, 0] == 3
    assert low[0].sum() == low[1].sum() > 50  # degrees of many nodes are matched exactly


def test_edges_whose_like_are_all_joined_have_no_match() -> None:
    whole = Graph(np.arange(6).astype(str), np.array([(i, j) for i in range(6) for j in range(i + 1, 6)]))
    edges, absent = matched_pairs(whole, whole.edges[:3], np.full(6, 5))
    assert len(edges) == len(absent) == 0
