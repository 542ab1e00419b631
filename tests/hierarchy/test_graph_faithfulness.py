"""How faithful maps of graphs are, against counts by brute force."""

import sys

import numpy as np
import pytest
from scipy.stats import spearmanr

from curvae.data import Graph
from curvae.errors import CurvaeError
from curvae.hierarchy import GraphFaithfulness, GraphFigures, graph_faithfulness
from curvae.maps.embedding import Embedding


def random_graph(nodes=30, seed=0):
    """A tree with a few edges more, and beside it two nodes of their own."""
    draw = np.random.default_rng(seed)
    tree = [(int(draw.integers(i)), i) for i in range(1, nodes)]
    more = [tuple(sorted(draw.choice(nodes, 2, replace=False))) for _ in range(6)]
    edges = np.unique(np.array([*tree, *more, (nodes, nodes + 1)]), axis=0)
    return Graph(np.arange(nodes + 2).astype(str), edges)


def all_steps(graph):
    steps = np.full((graph.n_nodes,) * 2, np.inf)
    np.fill_diagonal(steps, 0)
    for a, b in graph.edges:
        steps[a, b] = steps[b, a] = 1
    for k in range(graph.n_nodes):
        steps = np.minimum(steps, steps[:, k, None] + steps[k])
    return steps


def brute_force(steps, apart):
    """Qlocal and Qglobal: for every node and K the most of the K nearest on the map that K nearest by steps can be."""
    n = len(steps)
    shares = np.zeros(n - 1)
    for i in range(n):
        others = np.delete(np.arange(n), i)
        on_map = others[np.argsort(apart[i, others], kind="stable")]
        lengths = np.sort(steps[i, others])
        for k in range(1, n):
            near, last = set(on_map[:k]), lengths[k - 1]
            below = {j for j in others if steps[i, j] < last}
            ties = {j for j in others if steps[i, j] == last}
            shares[k - 1] += (len(near & below) + min(k - len(below), len(near & ties))) / (k * n)
    best = int(np.argmax(shares - np.arange(1, n) / (n - 1))) + 1
    return shares[:best].mean(), shares[best:].mean() if best < n - 1 else 1.0


@pytest.mark.parametrize("seed", [0, 1])
def test_against_brute_force(seed):
    graph = random_graph(seed=seed)
    places = np.random.default_rng(seed).normal(size=(32, 2))
    steps = all_steps(graph)[:30, :30]
    apart = np.linalg.norm(places[:30, None] - places[:30], axis=2)
    found = graph_faithfulness(graph, places)
    assert found.nodes == found.map.nodes == 30
    np.testing.assert_allclose((found.map.qlocal, found.map.qglobal), brute_force(steps, apart), rtol=1e-12)
    upper = np.triu_indices(30, 1)
    np.testing.assert_allclose(found.map.rank_correlation, spearmanr(steps[upper], apart[upper]).statistic, rtol=1e-9)


def test_a_perfect_map_keeps_everything():
    star = Graph(np.arange(12).astype(str), np.array([(0, i) for i in range(1, 12)]))
    angle = np.linspace(0, 2 * np.pi, 11, endpoint=False)
    places = np.concatenate([[[0.0, 0.0]], np.stack([np.cos(angle), np.sin(angle)], 1)])
    steps = all_steps(star)

    def along_rays(a, b):
        numbers = [np.linalg.norm(places - part[:, None], axis=2).argmin(1) for part in (a, b)]
        return steps[np.ix_(*numbers)]

    found = graph_faithfulness(star, places, distance=along_rays)
    assert (found.map.qlocal, found.map.qglobal, found.map.rank_correlation) == (1.0, 1.0, 1.0)


def test_an_embedding_is_measured_by_its_own_distances():
    graph = random_graph()
    space = np.random.default_rng(0).normal(size=(32, 2))
    curved = graph_faithfulness(graph, Embedding(space, np.ones(32), 1.0))
    assert curved.map == graph_faithfulness(graph, space, distance="lorentz").map
    assert curved.map != graph_faithfulness(graph, space).map


def test_the_spectral_map_is_the_same_however_it_is_computed(monkeypatch):
    draw = np.random.default_rng(0)
    ring = [(i, (i + 1) % 60) for i in range(60)]
    edges = np.unique(np.sort([*ring, *(draw.choice(60, 2, replace=False) for _ in range(40))], axis=1), axis=0)
    graph = Graph(np.arange(60).astype(str), edges)
    places = draw.normal(size=(60, 3))
    dense = graph_faithfulness(graph, places).spectral
    degree = np.bincount(edges.ravel())
    walk = np.zeros((60, 60))
    walk[edges[:, 0], edges[:, 1]] = walk[edges[:, 1], edges[:, 0]] = 1.0
    vectors = np.linalg.eigh(walk / np.sqrt(np.outer(degree, degree)))[1][:, -4:-1] / np.sqrt(degree)[:, None]
    assert graph_faithfulness(graph, vectors).map == dense
    monkeypatch.setattr(sys.modules[graph_faithfulness.__module__], "_DENSE", 0)
    sparse = graph_faithfulness(graph, places).spectral
    np.testing.assert_allclose((sparse.qlocal, sparse.qglobal), (dense.qlocal, dense.qglobal), atol=0.01)


def test_walks_that_mix_slowly():
    path = Graph(np.arange(900).astype(str), np.stack([np.arange(899), np.arange(1, 900)], 1))
    found = graph_faithfulness(path, np.cos(np.pi * np.arange(900.0) / 899)[:, None])  # the second vector of a walk
    assert found.map.qlocal > 0.99
    for name in ("qlocal", "qglobal", "rank_correlation"):
        np.testing.assert_allclose(getattr(found.spectral, name), getattr(found.map, name), atol=2e-3)


def test_large_graphs_are_sampled_with_intervals():
    graph = random_graph(nodes=400)
    places = np.random.default_rng(3).normal(size=(402, 2))
    whole, some = graph_faithfulness(graph, places), graph_faithfulness(graph, places, nodes=300)
    assert (some.map.nodes, some.nodes, whole.map.nodes, whole.map.intervals) == (250, 400, 400, {})
    for name in ("qlocal", "qglobal", "rank_correlation"):
        half = some.map.intervals[name]
        assert 0 < half < 0.1
        assert abs(getattr(whole.map, name) - getattr(some.map, name)) < 3 * half + 0.02


def test_what_cannot_be_judged():
    graph = random_graph()
    with pytest.raises(CurvaeError, match="32 nodes and the map 5; give a place for every node"):
        graph_faithfulness(graph, np.zeros((5, 2)))
    small = Graph(np.arange(9).astype(str), np.stack([np.arange(8), np.arange(1, 9)], 1))
    assert graph_faithfulness(small, np.zeros((9, 2))) is None


@pytest.mark.parametrize(
    ("near", "far", "said", "warned"),
    [
        (0.6, 0.9, "more near nodes than a spectral embedding in 2 dimensions (60 % against 50 %) and more far", None),
        (0.4, 0.9, "fewer near nodes than", "fewer near nodes than a spectral embedding"),
        (0.4, 0.6, "and fewer far ones (60 % against 70 %).", "fewer near and far nodes than a spectral embedding"),
        (0.505, 0.7, "as many near nodes as", None),
    ],
)
def test_verdicts(near, far, said, warned):
    ours, other = (GraphFigures(*kept, 0.5, 20, np.tile(kept, (5, 1))) for kept in ((near, far), (0.5, 0.7)))
    found = GraphFaithfulness(ours, other, 2, 20)
    assert said in found.verdict
    assert [text.endswith(warned) for text in found.warnings] == ([] if warned is None else [True])
    assert found.to_json()["verdict"] == found.verdict
