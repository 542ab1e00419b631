"""Convolutions on graphs and their adjacency matrices, against numpy and the formulas."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from curvae.data import Graph, load_graph
from curvae.models import GeodesicEdges, GraphVAE, Posterior
from curvae.nn import AdjacencyMaker, GraphConv, GraphEncoder, HyperbolicFactor, Space, normalised_adjacency, undirected
from curvae.training.graph_problem import feature_scaling, feature_tensor

FLOOR = 1e-3


# A square with a tail and a node of its own.
EDGES = torch.tensor([[0, 1, 2, 0, 3], [1, 2, 3, 3, 4]])


NODES = 6


def model(c=1.0, law="wrapped", edges=None, nodes=NODES, learn=False, diagonal=False, weight=2.0, features=None, dim=3):
    posterior = Posterior(8, Space([HyperbolicFactor(dim, c, learn, law, diagonal)]))
    return GraphVAE(GraphEncoder(features or nodes, (8,)), posterior, edges or GeodesicEdges(FLOOR), weight)


# --- convolutions ---------------------------------------------------------------------------------------------------


def dense_adjacency(edges: np.ndarray, n: int, weights: np.ndarray) -> np.ndarray:
    a = np.eye(n)
    for (i, j), w in zip(edges.T, weights, strict=True):
        a[i, j] = a[j, i] = w
    root = np.diag(a.sum(1) ** -0.5)
    return root @ a @ root


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_convolutions_equal_the_formula(dense, weighted):
    weights = torch.tensor([0.3, 2.0, 1.5, 0.0, 1.0], dtype=torch.float64) if weighted else None
    adjacency = normalised_adjacency(EDGES, NODES, weights, dense)
    plain = dense_adjacency(EDGES.numpy(), NODES, np.ones(5) if weights is None else weights.numpy())
    assert adjacency.is_sparse_csr != dense and adjacency.dtype == (torch.float64 if weighted else torch.float32)
    np.testing.assert_allclose(adjacency.to_dense(), plain, rtol=1e-6)
    x = torch.randn(NODES, 4, dtype=adjacency.dtype)
    for layer, features in ((GraphConv(NODES, 3), None), (GraphConv(4, 3), x)):
        layer = layer.to(adjacency.dtype)
        layer.bias.data.normal_()
        w, b = layer.weight.detach().numpy(), layer.bias.detach().numpy()
        expected = plain @ (np.eye(NODES) if features is None else x.numpy()) @ w + b
        np.testing.assert_allclose(layer(adjacency, features).detach(), expected, rtol=1e-4, atol=1e-6)
    slope = torch.autograd.grad(layer(adjacency, x).sum(), layer.weight)[0]
    np.testing.assert_allclose(slope, np.outer(x.numpy().T @ plain.sum(0), np.ones(3)), rtol=1e-4, atol=1e-6)
    assert GraphConv(4, 3, bias=False)(adjacency.float(), x.float()).shape == (NODES, 3)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_the_posterior_is_a_second_convolution():
    adjacency, network = normalised_adjacency(EDGES, NODES), model()
    a, (layer,), head = adjacency.numpy(), network.encoder.layers, network.posterior.head
    w, v, b = (t.detach().numpy() for t in (layer.weight, head.weight, head.bias))
    hidden = a @ (np.maximum(a @ w, 0) @ v.T) + b
    q = network.encode(adjacency)
    np.testing.assert_allclose(q.scale.detach(), np.logaddexp(0, hidden[:, 3:]), rtol=1e-5)
    np.testing.assert_allclose(q.manifold.logmap0(q.loc).detach(), 2 * hidden[:, :3], rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_convolutions_equal_torch_geometric():
    convolution = pytest.importorskip("torch_geometric.nn").GCNConv(4, 3)
    layer, x = GraphConv(4, 3), torch.randn(NODES, 4)
    with torch.no_grad():
        convolution.lin.weight.copy_(layer.weight.T)
        both = torch.cat([EDGES, EDGES.flip(0)], 1)
        torch.testing.assert_close(layer(normalised_adjacency(EDGES, NODES), x), convolution(x, both))


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_undirected_edges():
    edges, weights = torch.tensor([[3, 1, 0, 2, 2, 1], [1, 3, 2, 0, 2, 0]]), torch.tensor([1.0, 3, 5, 5, 9, 7])
    simple, means = undirected(edges, 4, weights)
    assert simple.tolist() == [[0, 0, 1], [1, 2, 3]] and means.tolist() == [7, 5, 2]
    assert torch.equal(normalised_adjacency(edges, 4), normalised_adjacency(simple, 4))
    assert torch.equal(normalised_adjacency(torch.empty(2, 0, dtype=torch.long), 3), torch.eye(3))
    with pytest.raises(ValueError, match=r"shape \(2, E\).*got \(5, 2\)"):
        undirected(EDGES.T, NODES)
    with pytest.raises(ValueError, match="nodes 0 to 3, got 0 to 4"):
        undirected(EDGES, 4)
    with pytest.raises(ValueError, match="must not be negative"):
        normalised_adjacency(EDGES, NODES, -torch.ones(5))
    with pytest.raises(ValueError, match=r"hidden=\(32,\)"):
        GraphEncoder(NODES, ())


# --- matrices of some of the edges -----------------------------------------------------------------------------------


def expected(edges: np.ndarray, nodes: int, weights: np.ndarray) -> np.ndarray:
    a = np.eye(nodes)
    a[edges[0], edges[1]] += weights
    a[edges[1], edges[0]] += weights
    root = 1 / np.sqrt(a.sum(1))
    return root[:, None] * a * root


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sparse_matrices_of_some_edges(dtype: torch.dtype) -> None:
    graph = nx.barabasi_albert_graph(60, 3, seed=0)
    graph.add_nodes_from([60, 61])
    maker = AdjacencyMaker(torch.tensor(list(graph.edges)).T, 62, torch.ones(len(graph.edges), dtype=dtype), False)
    random = np.random.default_rng(0)
    for share in (0.0, 0.5, 1.0):
        factor = (random.random(maker.edges.shape[1]) < share) * 2.0
        found = maker(torch.tensor(factor, dtype=dtype))
        matrix = expected(maker.edges.numpy(), 62, factor)
        np.testing.assert_allclose(found.to_dense().numpy(), matrix, atol=1e-6)
        assert len(found.values()) == 62 + 2 * int((factor > 0).sum())
        layer, x = GraphConv(5, 4).to(dtype), torch.randn(62, 5, dtype=dtype, requires_grad=True)
        layer(found, x).square().sum().backward()
        weight, rows = layer.weight.detach().numpy(), x.detach().numpy()
        product = matrix @ rows @ weight  # the bias is 0 at first
        np.testing.assert_allclose(layer(found, x).detach().numpy(), product, atol=1e-5)
        assert x.grad is not None and layer.weight.grad is not None
        np.testing.assert_allclose(x.grad.numpy(), matrix.T @ (2 * product) @ weight.T, atol=1e-4)
        np.testing.assert_allclose(layer.weight.grad.numpy(), (matrix @ rows).T @ (2 * product), rtol=1e-4, atol=1e-4)


# --- large graphs ----------------------------------------------------------------------------------------------------


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


# --- sparse features -------------------------------------------------------------------------------------------------


def groups(seed: int = 0, size: int = 20, number: int = 4) -> tuple[nx.Graph, csr_array]:
    """Groups that are dense inside, and words that nodes of a group share."""
    random = np.random.default_rng(seed)
    graph = nx.planted_partition_graph(number, size, 0.4, 0.01, seed=seed)
    chance = np.where(np.arange(40) // 10 == (np.arange(number * size) // size)[:, None], 0.4, 0.03)
    return graph, csr_array((random.random(chance.shape) < chance).astype(float))


@pytest.fixture(scope="module")
def data() -> Graph:
    graph, words = groups()
    return load_graph(graph, features_file=words)


def test_sparse_products_are_dense_ones(data: Graph) -> None:
    assert isinstance(data.features, csr_array)
    scaling = feature_scaling(data.features)
    x = feature_tensor(data.features, scaling, "cpu", torch.float64)
    assert x.is_sparse
    np.testing.assert_allclose((x.to_dense() ** 2).sum(1).mean(), 1.0)
    np.testing.assert_allclose(x.to_dense(), data.features.toarray() / scaling.scale)
    layer = GraphConv(40, 5).double()
    adjacency = normalised_adjacency(torch.from_numpy(data.edges.T.copy()), data.n_nodes).double()
    outputs = [layer(adjacency, features) for features in (x, x.to_dense())]
    torch.testing.assert_close(*outputs)
    gradients = [torch.autograd.grad((out**2).sum(), layer.weight)[0] for out in outputs]
    torch.testing.assert_close(*gradients)
