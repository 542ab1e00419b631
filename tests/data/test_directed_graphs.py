"""Graphs whose edges have a direction: reading, non-edges, and rules that predict edges without a model."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from curvae.data import Graph, load_graph, split_edges
from curvae.data.graphs import graph_data as baselines
from curvae.data.graphs.graph_data import absent_pairs, matched_pairs, neighbourhood_map
from curvae.errors import CurvaeError
from curvae.hierarchy import diagnose_graph


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
        with pytest.raises(CurvaeError, match="have no direction; leave out directed=True"):
            load_graph(source, directed=True)
    both = load_graph([("a", "b"), ("b", "a")], directed=True)
    assert both.warnings == ("every edge runs both ways, and no direction can be learned; leave out directed=True.",)
    with pytest.raises(CurvaeError, match="sorted pairs i ≠ j"):
        Graph(np.array(["a", "b"]), np.array([[1, 1]]), directed=True)
    with pytest.raises(CurvaeError, match="load it without directed=True"):
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
