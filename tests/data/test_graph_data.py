"""Graphs: their parts, the pairs that are drawn of them, centrality, and rules that predict edges without a model."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from functools import partial
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra
from scipy.spatial.distance import cdist
from scipy.stats import chisquare
from sklearn.metrics import average_precision_score, roc_auc_score

from curvae.data import (
    EdgeSplit,
    Graph,
    graph_data,
    graph_data as baselines,
    graph_data as ranking,
    load_graph,
    split_edges,
)
from curvae.data.graph_data import (
    absent_pairs,
    link_matrix,
    matched_pairs,
    neighbourhood_map,
    neighbourhood_ranks,
)
from curvae.errors import CurvaeError
from curvae.hierarchy import diagnose_graph

# --- Graph ------------------------------------------------------------------------------------------------------------

NAMES = np.array(["a", "b", "c", "d"])


EDGES = np.array([[0, 1], [1, 2]], dtype=np.int64)


def test_graph() -> None:
    graph = Graph(NAMES, EDGES, weights=np.array([1.0, 2.5]))
    assert (graph.n_nodes, graph.n_edges) == (4, 2)
    adjacency = graph.adjacency()
    assert isinstance(adjacency, sp.csr_array)
    np.testing.assert_array_equal(adjacency.toarray(), [[0, 1, 0, 0], [1, 0, 2.5, 0], [0, 2.5, 0, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(replace(graph, weights=None).adjacency().toarray(), adjacency.toarray() > 0)
    assert graph.components.tolist() == [0, 0, 0, 1] and graph.components.dtype == np.int64


def test_components_and_adjacency_against_networkx() -> None:
    oracle = nx.gnm_random_graph(60, 45, seed=1)
    graph = load_graph(oracle)
    np.testing.assert_array_equal(graph.adjacency().toarray(), nx.to_numpy_array(oracle))
    parts = {frozenset(np.flatnonzero(graph.components == part)) for part in np.unique(graph.components)}
    assert parts == {frozenset(part) for part in nx.connected_components(oracle)}
    assert len(parts) > 5


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"names": np.array([["a"]])}, "array of texts"),
        ({"names": np.arange(4)}, "array of texts"),
        ({"names": np.array(["a", "b", "c", "a"])}, "same name: 'a'"),
        ({"edges": np.zeros((2, 3), dtype=np.int64)}, "(2, 3)"),
        ({"edges": EDGES.astype(float)}, "float64"),
        ({"edges": EDGES + 2}, "not among the 4"),
        ({"edges": EDGES - 1}, "not among the 4"),
        ({"edges": EDGES[::-1]}, "sorted pairs"),
        ({"edges": EDGES[:, ::-1]}, "sorted pairs"),
        ({"edges": np.array([[1, 1]])}, "sorted pairs"),
        ({"edges": np.array([[0, 1], [0, 1]])}, "sorted pairs"),
        ({"weights": np.ones(3)}, "2 edges but weights of shape (3,)"),
        ({"weights": np.array([1.0, 0.0])}, "positive"),
        ({"weights": np.array([1.0, np.nan])}, "positive"),
        ({"features": np.zeros((4, 2))}, "0 feature names"),
        ({"features": np.zeros((3, 1)), "feature_names": ("x",)}, "(3, 1)"),
        ({"features": np.full((4, 1), np.inf), "feature_names": ("x",)}, "infinite"),
        ({"feature_names": ("x",)}, "without features"),
        ({"labels": np.array(["u"])}, "labels of shape (1,)"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_graph_refuses(changes: dict[str, Any], part: str) -> None:
    with pytest.raises(CurvaeError, match=re.escape(part)):
        Graph(**{"names": NAMES, "edges": EDGES, **changes})


def test_fingerprint_sees_every_part() -> None:
    base = Graph(NAMES, EDGES)
    labels, features = np.array(list("uuvv")), np.arange(8.0).reshape(4, 2)
    others = [
        Graph(NAMES[::-1].copy(), EDGES),
        Graph(NAMES, np.array([[0, 1], [1, 3]])),
        Graph(NAMES, EDGES[:1]),
        Graph(NAMES, EDGES, weights=np.ones(2)),
        Graph(NAMES, EDGES, weights=np.array([1.0, 2.0])),
        Graph(NAMES, EDGES, labels=labels),
        Graph(NAMES, EDGES, labels=labels[::-1].copy()),
        Graph(NAMES, EDGES, features=features, feature_names=("p", "q")),
        Graph(NAMES, EDGES, features=features, feature_names=("p", "r")),
        Graph(NAMES, EDGES, features=features[::-1].copy(), feature_names=("p", "q")),
    ]
    assert len({base.fingerprint, *(other.fingerprint for other in others)}) == len(others) + 1
    assert re.fullmatch(r"[0-9a-f]{64}", base.fingerprint)
    assert replace(base, notes=("x",)).fingerprint == base.fingerprint  # what was said is not content


# --- edges with a direction ------------------------------------------------------------------------------------------


def arcs(graph: Graph) -> set[tuple[str, str]]:
    return {(str(graph.names[i]), str(graph.names[j])) for i, j in graph.edges}


def example(nodes: int = 60, seed: int = 0) -> tuple[nx.DiGraph, Graph]:
    """With hubs that receive, some edges both ways, and a node without an edge."""
    oracle = nx.DiGraph(nx.scale_free_graph(nodes, seed=seed))
    oracle.remove_edges_from(list(nx.selfloop_edges(oracle)))
    oracle.add_edges_from([(b, a) for a, b in list(oracle.edges())[:5]])
    oracle.add_node(nodes)
    return oracle, load_graph(oracle, directed=True)


# --- reading --------------------------------------------------------------------------------------------------------


def test_arcs_are_kept_and_repeated_ones_merged(tmp_path: Path) -> None:
    path = tmp_path / "needs.csv"
    path.write_text("target,source,weight\na,b,2\nb,a,5\na,b,1\na,c,1\nd,d,9\n")
    graph = load_graph(path, directed=True, weighted=True)
    known = dict(zip(map(tuple, graph.names[graph.edges].tolist()), graph.weights.tolist(), strict=True))
    assert graph.directed and known == {("b", "a"): 3.0, ("a", "b"): 5.0, ("c", "a"): 1.0}
    assert "edges lead from 'source' to 'target'." in graph.notes
    assert "merged: 1 repeated edge, weights summed." in graph.notes
    assert "1 pair of nodes with an edge in both directions." in graph.notes
    plain = load_graph(path, weighted=True)
    assert not plain.directed and plain.n_edges == 2 and plain.fingerprint != graph.fingerprint
    np.testing.assert_array_equal(graph.adjacency().toarray(), plain.adjacency().toarray())
    assert graph.links().toarray()[graph.edges[:, 0], graph.edges[:, 1]].tolist() == graph.weights.tolist()


def test_objects_of_other_libraries() -> None:
    links = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "c")]
    expected = set(links)
    assert arcs(load_graph(nx.DiGraph(links), directed=True)) == expected
    assert arcs(load_graph(links, directed=True)) == expected
    assert arcs(load_graph(pd.DataFrame(links, columns=["from", "to"]), directed=True)) == expected
    dense = nx.to_numpy_array(nx.DiGraph(links), nodelist=["a", "b", "c", "d"])
    found = load_graph(csr_array(dense), directed=True)
    assert {("abcd"[int(a)], "abcd"[int(b)]) for a, b in arcs(found)} == expected


def test_graphs_without_directions_are_refused_or_warned_of() -> None:
    for source in (nx.path_graph(4), csr_array(nx.to_numpy_array(nx.path_graph(4)))):
        with pytest.raises(CurvaeError, match="have no direction; leave out `directed=True`"):
            load_graph(source, directed=True)
    both = load_graph([("a", "b"), ("b", "a")], directed=True)
    assert both.warnings == ("every edge runs both ways, and no direction can be learned; leave out `directed=True`.",)
    with pytest.raises(CurvaeError, match="sorted pairs i ≠ j"):
        Graph(np.array(["a", "b"]), np.array([[1, 1]]), directed=True)
    with pytest.raises(CurvaeError, match="load it without `directed=True`"):
        diagnose_graph(example()[1])
    assert Graph(np.array(["a", "b"]), np.array([[0, 1], [1, 0]]), directed=True).components.tolist() == [0, 0]


# --- pairs without an edge ------------------------------------------------------------------------------------------


def test_all_ordered_pairs_without_an_edge_are_drawn() -> None:
    _, graph = example(12)
    absent = set(permutations(range(13), 2)) - {tuple(edge) for edge in graph.edges.tolist()}
    drawn = absent_pairs(graph, len(absent), np.random.default_rng(0), "")
    assert {tuple(pair) for pair in drawn.tolist()} == absent
    with pytest.raises(CurvaeError, match="too dense"):
        absent_pairs(graph, len(absent) + 1, np.random.default_rng(0), "use fewer")
    split = split_edges(graph, 0.1, 0.2)
    assert {tuple(pair) for pair in split.test_absent.tolist()} <= absent


def test_matched_pairs_have_the_degrees_of_both_ends() -> None:
    _, graph = example(150)
    degree = np.stack([np.bincount(ends, minlength=graph.n_nodes) for ends in graph.edges.T])
    edges, found = matched_pairs(graph, graph.edges, degree)
    assert len(found) > 100
    joined = {tuple(edge) for edge in graph.edges.tolist()}
    assert joined.isdisjoint(map(tuple, found.tolist())) and (found[:, 0] != found[:, 1]).all()
    for side in (0, 1):
        have, want = degree[side][found[:, side]], degree[side][edges[:, side]]
        assert (np.maximum(have, want) <= 1.25 * np.minimum(have, want)).all()
    product = baselines.rules(graph.edges, graph.n_nodes, 2, directed=True)["degree product"]
    assert abs(np.sign(product(edges)[:, None] - product(found)).mean()) < 0.1  # popularity tells nothing


# --- rules ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dense", [400, 0])
def test_rules_against_matrices(dense: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "_DENSE", dense)
    oracle, graph = example()
    a = nx.to_numpy_array(oracle)
    pairs = np.array(list(permutations(range(61), 2)))
    i, j = pairs.T
    found = baselines.rules(graph.edges, 61, 3, directed=True)
    np.testing.assert_array_equal(found["degree product"](pairs), a.sum(1)[i] * a.sum(0)[j])
    np.testing.assert_array_equal(found["common neighbours"](pairs), (a @ a)[i, j])
    assert (a @ a)[i, j].max() > 1
    u, s, vt = np.linalg.svd(a)
    np.testing.assert_allclose(found["singular vectors"](pairs), ((u[:, :3] * s[:3]) @ vt[:3])[i, j], atol=1e-3)


def test_neighbours_are_those_that_edges_lead_to() -> None:
    graph = Graph(np.array(list("abc")), np.array([[0, 1], [2, 0]]), directed=True)
    distances = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 3.0], [1.0, 2.0, 0.0]])
    assert neighbourhood_map(graph, distances) == 1.0
    assert neighbourhood_map(graph, distances[:, [0, 2, 1]]) == 0.5


# --- rules that predict edges without a model ------------------------------------------------------------------------


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


# --- hiding edges, and ranking neighbours ----------------------------------------------------------------------------


def random_graph(nodes: int, edges: int, seed: int = 0) -> Graph:
    return load_graph(nx.gnm_random_graph(nodes, edges, seed=seed))


def as_set(pairs: NDArray[np.int64]) -> set[tuple[int, int]]:
    return {(int(i), int(j)) for i, j in pairs}


# --- split ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "edges"), [(344, 343), (60, 400), (1025, 1043), (12, 40)])
@pytest.mark.parametrize("seed", [0, 1])
def test_split(nodes: int, edges: int, seed: int) -> None:
    graph = random_graph(nodes, edges)
    split = split_edges(graph, seed=seed)
    held, tested = edges // 20, edges // 10
    sizes = [len(getattr(split, field.name)) for field in fields(EdgeSplit)]
    assert sizes == [edges - held - tested, held, tested, held, tested]
    for field in fields(EdgeSplit):
        pairs = getattr(split, field.name)
        assert pairs.dtype == np.int64 and pairs.shape[1] == 2
        assert (pairs[:, 0] < pairs[:, 1]).all() and pairs.min() >= 0 and pairs.max() < nodes
        assert len(as_set(pairs)) == len(pairs)
    present = [as_set(part) for part in (split.train, split.validation, split.test)]
    absent = [as_set(part) for part in (split.validation_absent, split.test_absent)]
    assert set.union(*present) == as_set(graph.edges) and sum(map(len, present)) == edges
    assert not set.union(*absent) & set.union(*present) and not absent[0] & absent[1]
    replace(graph, edges=split.train)  # sorted as a graph wants them


def test_split_depends_on_the_seed_alone() -> None:
    graph = random_graph(100, 200)
    first, again, other = (split_edges(graph, seed=seed) for seed in (5, 5, 6))
    for field in fields(EdgeSplit):
        np.testing.assert_array_equal(getattr(first, field.name), getattr(again, field.name))
        assert not np.array_equal(getattr(first, field.name), getattr(other, field.name))


def test_every_edge_and_every_pair_without_one_is_drawn_alike() -> None:
    graph = random_graph(9, 20)  # 16 pairs without an edge
    names = ("validation", "test", "validation_absent", "test_absent")
    counts = {name: np.zeros((9, 9)) for name in names}
    for seed in range(2000):
        split = split_edges(graph, 0.1, 0.2, seed)
        for name in names:
            np.add.at(counts[name], tuple(getattr(split, name).T), 1)
    linked = np.triu(graph.adjacency().toarray(), 1) > 0
    for name, count in counts.items():
        possible = np.triu(~linked, 1) if "absent" in name else linked
        assert (count[~possible] == 0).all()
        assert chisquare(count[possible]).pvalue > 1e-4


def test_split_takes_all_pairs_where_it_must() -> None:
    nodes = 8
    whole = nx.complete_graph(nodes)
    whole.remove_edges_from([(0, 7), (2, 3), (6, 7)])
    graph = load_graph(whole)
    split = split_edges(graph, 1 / 25, 2 / 25)
    assert as_set(split.validation_absent) | as_set(split.test_absent) == {(0, 7), (2, 3), (6, 7)}
    with pytest.raises(CurvaeError, match="too dense: 3 pairs of nodes without an edge where 4 are needed"):
        split_edges(graph, 2 / 25, 2 / 25)


def test_shares() -> None:
    graph = random_graph(50, 100)
    assert len(split_edges(graph, 0.29, 0.57).validation) == 29
    none = split_edges(graph, 0, 0)
    assert none.test.shape == none.validation_absent.shape == (0, 2) and none.train.shape == (100, 2)
    for validation, test in ((0.5, 0.5), (-0.1, 0.1), (0.1, float("nan")), (0, 1)):
        with pytest.raises(CurvaeError, match="shares of"):
            split_edges(graph, validation, test)
    with pytest.raises(
        CurvaeError, match="a share of 0.05 of 19 edges rounds down to no edge for validation; .* 20 edges"
    ):
        split_edges(random_graph(20, 19))
    with pytest.raises(CurvaeError, match="a share of 0.01 of 20 edges rounds down to no edge for test"):
        split_edges(random_graph(20, 20), test=0.01)
    assert len(split_edges(random_graph(20, 20)).validation) == 1


def test_split_of_many_nodes() -> None:
    pairs = np.random.default_rng(0).integers(0, 100_000, (200_000, 2))
    graph = load_graph(pairs)
    split = split_edges(graph)
    keys = [
        part[:, 0] * graph.n_nodes + part[:, 1] for part in (graph.edges, split.validation_absent, split.test_absent)
    ]
    assert np.unique(np.concatenate(keys)).size == sum(map(len, keys))
    assert abs(split.test_absent.mean() / graph.n_nodes - 0.5) < 0.01


def oracle(graph: Graph, distances: NDArray[np.float64]) -> float:
    adjacency = graph.adjacency().toarray() > 0
    others = ~np.eye(graph.n_nodes, dtype=bool)
    scores = [
        average_precision_score(adjacency[i][others[i]], -distances[i][others[i]])
        for i in range(graph.n_nodes)
        if adjacency[i].any()
    ]
    return float(np.mean(scores))


@pytest.mark.parametrize("block", [1, 130, 1 << 22])
@pytest.mark.parametrize("digits", [0, 1, 12], ids=lambda digits: f"{digits} digits")
def test_neighbourhood_map_against_scikit_learn(monkeypatch: pytest.MonkeyPatch, block: int, digits: int) -> None:
    monkeypatch.setattr(ranking, "_BLOCK", block)
    graph = random_graph(40, 60, seed=2)
    assert (np.bincount(graph.edges.ravel(), minlength=40) == 0).any()
    points = np.random.default_rng(0).normal(size=(40, 3)).round(digits)  # fewer digits, more ties
    distances = cdist(points, points)
    expected = oracle(graph, distances)
    assert neighbourhood_map(graph, distances) == pytest.approx(expected, abs=1e-12)
    asked: list[tuple[int, int]] = []

    def rows(start: int, stop: int) -> NDArray[np.float64]:
        asked.append((start, stop))
        return cdist(points[start:stop], points)

    assert neighbourhood_map(graph, rows) == pytest.approx(expected, abs=1e-12)
    step = max(1, block // 40)
    assert asked == [(i, min(i + step, 40)) for i in range(0, 40, step)]


@pytest.mark.parametrize("digits", [0, 12], ids=lambda digits: f"{digits} digits")
def test_mean_ranks_against_brute_force(digits: int) -> None:
    graph = random_graph(40, 60, seed=2)
    points = np.random.default_rng(0).normal(size=(40, 3)).round(digits)
    distances, adjacency = cdist(points, points), graph.adjacency().toarray() > 0
    ranks = []
    for i, j in zip(*np.nonzero(adjacency), strict=True):
        nearer = [k for k in range(40) if k != i and not adjacency[i, k] and distances[i, k] < distances[i, j]]
        ranks.append(1 + len(nearer))
    precision, rank = neighbourhood_ranks(graph, distances)
    assert rank == pytest.approx(np.mean(ranks)) and precision == neighbourhood_map(graph, distances)


def test_neighbourhood_map_of_plain_cases() -> None:
    path = load_graph(nx.path_graph(6))
    places = np.arange(6.0)
    assert neighbourhood_map(path, abs(places[:, None] - places)) == 1
    assert neighbourhood_map(path, 9 - abs(places[:, None] - places)) < 0.5
    star = load_graph(nx.star_graph(4))
    assert neighbourhood_map(star, np.zeros((5, 5))) == pytest.approx((1 + 4 * 0.25) / 5)  # all is one tie
    far = np.full((5, 5), 1.0)
    np.fill_diagonal(far, 7.0)  # a node's distance to itself does not matter
    assert neighbourhood_map(star, far) == pytest.approx((1 + 4 * 0.25) / 5)


def test_neighbourhood_map_refuses() -> None:
    graph = load_graph(nx.path_graph(3))
    with pytest.raises(CurvaeError, match=r"shape \(3, 2\)"):
        neighbourhood_map(graph, np.zeros((3, 2)))
    with pytest.raises(CurvaeError, match="not numbers"):
        neighbourhood_map(graph, np.full((3, 3), np.nan))
    with pytest.raises(CurvaeError, match="without edges"):
        neighbourhood_map(replace(graph, edges=graph.edges[:0]), np.zeros((3, 3)))


# --- large graphs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "made",
    [
        nx.path_graph(40),
        nx.balanced_tree(3, 3),
        nx.barabasi_albert_graph(80, 3, seed=1),
        nx.gnp_random_graph(60, 0.03, seed=2),  # of several components
    ],
)
def test_steps_against_shortest_paths(made):
    links = load_graph(made).adjacency()
    nodes = np.arange(links.shape[0])[::3]
    expected = dijkstra(links, directed=False, unweighted=True, indices=nodes)
    assert np.array_equal(graph_data.steps_between(links, nodes), expected)


def test_closeness_of_a_very_large_graph_is_measured_from_fewer_nodes(monkeypatch):
    graph = load_graph(nx.barabasi_albert_graph(100, 4, seed=0))
    monkeypatch.setattr(graph_data, "_ALL", 50)
    monkeypatch.setattr(graph_data, "_SAMPLED", 60)
    monkeypatch.setattr(graph_data, "_WORK", graph.n_edges * 2 * 40)
    asked = []
    steps = graph_data.steps_between
    monkeypatch.setattr(graph_data, "steps_between", lambda links, nodes: asked.extend(nodes) or steps(links, nodes))
    found = graph_data.closeness(graph)
    assert len(asked) == 40
    between = dijkstra(graph.adjacency(), directed=False, unweighted=True, indices=asked)
    inverse = np.divide(1.0, between, out=np.zeros_like(between), where=between > 0)
    np.testing.assert_allclose(found, inverse.sum(0) / (40 - np.isin(np.arange(100), asked)))


@pytest.mark.parametrize("repeated", [False, True])
def test_names_that_are_the_same_are_found(repeated):
    names = np.array([f"node {i}" for i in range(50)])
    names[7] = names[9] if repeated else names[7]
    edges = np.array(list(pairwise(range(50))))
    if repeated:
        with pytest.raises(CurvaeError, match="nodes of the same name: 'node 9'"):
            Graph(names, edges)
    else:
        assert Graph(names, edges).n_nodes == 50
