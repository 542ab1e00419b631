"""What large graphs need: choices of edges and nodes that stand for all, and steps between nodes."""

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import dijkstra

from curvae.data import Graph, load_graph, split_edges
from curvae.data.graphs import graph_data as centrality
from curvae.errors import CurvaeError
from curvae.models import PairSampler
from curvae.models.graph_vae import joined_nodes
from curvae.nn import AdjacencyMaker, GraphConv
from curvae.nn.graph_layers import undirected
from curvae.training import graph_evaluate as evaluate
from curvae.training import graph_fitting as fitting
from curvae.training.config import GraphConfig
from curvae.training.graph_evaluate import neighbourhood
from curvae.training.graph_fitting import plan_graphs


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
    assert np.array_equal(centrality.steps_between(links, nodes), expected)


def test_closeness_of_a_very_large_graph_is_measured_from_fewer_nodes(monkeypatch):
    graph = load_graph(nx.barabasi_albert_graph(100, 4, seed=0))
    monkeypatch.setattr(centrality, "_ALL", 50)
    monkeypatch.setattr(centrality, "_SAMPLED", 60)
    monkeypatch.setattr(centrality, "_WORK", graph.n_edges * 2 * 40)
    asked = []
    steps = centrality.steps_between
    monkeypatch.setattr(centrality, "steps_between", lambda links, nodes: asked.extend(nodes) or steps(links, nodes))
    found = centrality.closeness(graph)
    assert len(asked) == 40
    between = dijkstra(graph.adjacency(), directed=False, unweighted=True, indices=asked)
    inverse = np.divide(1.0, between, out=np.zeros_like(between), where=between > 0)
    np.testing.assert_allclose(found, inverse.sum(0) / (40 - np.isin(np.arange(100), asked)))


def test_neighbourhoods_of_a_very_large_graph_are_asked_of_fewer_nodes(monkeypatch):
    graph = load_graph(nx.barabasi_albert_graph(300, 3, seed=0))
    monkeypatch.setattr(evaluate, "_DISTANCES", 150 * 300)
    fitted = fitting.fit_graph(GraphConfig(epochs=1), graph)
    found = neighbourhood(evaluate.embed_graph(fitted, graph), graph)
    assert (found.asked, found.sampled) == (150, True)


def test_joined_nodes_against_unique():
    edges = torch.tensor([[1, 5, 7, 1], [5, 2, 1, 9]])
    among, places = edges.unique(return_inverse=True)
    found = joined_nodes(edges, 12)
    assert torch.equal(found[0], among)
    assert torch.equal(found[1], places)


@pytest.mark.parametrize("count", [10, 7, 160])
def test_few_edges_are_drawn_uniformly(monkeypatch, count):
    monkeypatch.setattr(torch, "randperm", None)  # an order of all is not made
    edges = torch.stack([torch.arange(330), torch.arange(1, 331)])
    sampler, random = PairSampler(edges, 331), torch.Generator().manual_seed(0)
    counts = np.zeros(330)
    for _ in range(2000):
        drawn = sampler.draw(1, count, random)
        counts += np.bincount(drawn.nodes[0, :count], minlength=330)
        assert torch.equal(drawn.nodes[1, :count], drawn.nodes[0, :count] + 1)
    assert float(drawn.weight[:count].sum()) == pytest.approx(330)
    # Each is drawn with the chance count/330, at most once but for those at the ends of two parts.
    expected, chance = 2000 * count / 330, count / 330
    chi2 = ((counts - expected) ** 2 / (expected * (1 - chance))).sum()
    assert abs(chi2 - 330) < 5 * np.sqrt(2 * 330)


def test_more_edges_are_drawn_without_repeats():
    edges = torch.stack([torch.arange(100), torch.arange(1, 101)])
    drawn = PairSampler(edges, 101).draw(1, 60, torch.Generator().manual_seed(0))
    assert len(drawn.nodes[0, :-1].unique()) == 60


@pytest.mark.parametrize("directed", [False, True])
def test_sparse_matrices_have_small_indices_and_the_products_of_dense_ones(directed):
    random = np.random.default_rng(0)
    edges = np.unique(np.sort(random.integers(0, 40, (90, 2)), axis=1), axis=0)
    ends = torch.from_numpy(edges[edges[:, 0] < edges[:, 1]].T.copy())
    weights = torch.rand(ends.shape[1], dtype=torch.float64)
    sparse, dense = (AdjacencyMaker(ends, 40, weights, dense, directed) for dense in (False, True))
    layer, factor = GraphConv(40, 6).double(), (torch.rand(ends.shape[1]) > 0.5).double() * 2
    for given in (None, factor):
        found, expected = sparse(given), dense(given)
        matrix = found.out if directed else found
        assert matrix.crow_indices().dtype == matrix.col_indices().dtype == torch.int32
        torch.testing.assert_close(matrix.to_dense(), expected.out if directed else expected)
        torch.testing.assert_close(layer(found), layer(expected))


def test_edges_that_are_listed_once_or_several_times():
    once = torch.tensor([[3, 0, 2], [1, 1, 0]])
    weights = torch.tensor([1.0, 2.0, 4.0])
    found = undirected(once, 4, weights)
    twice = undirected(torch.cat([once, once.flip(0)], 1), 4, torch.cat([weights, weights]))
    assert torch.equal(found[0], torch.tensor([[0, 0, 1], [1, 2, 3]]))
    assert torch.equal(found[1], torch.tensor([2.0, 4.0, 1.0]))
    assert all(torch.equal(a, b) for a, b in zip(found, twice, strict=True))


def test_of_many_validation_edges_some_are_watched(monkeypatch):
    graph = load_graph(nx.barabasi_albert_graph(400, 5, seed=0))
    split = split_edges(graph, 0.2, 0.1)
    for most in (1 << 16, 50):
        monkeypatch.setattr(fitting, "_WATCHED", most)
        problem, tasks = plan_graphs([GraphConfig()], graph, [split], asked="cpu")
        watched = problem.engine(tasks, problem.models(tasks)).watched[0].T.numpy()
        half = len(watched) // 2
        assert half == min(len(split.validation), most) or 25 <= half <= 50
        present = {tuple(edge) for edge in graph.edges.tolist()}
        assert all(tuple(pair) in present for pair in watched[:half].tolist())
        assert not any(tuple(pair) in present for pair in watched[half:].tolist())


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
