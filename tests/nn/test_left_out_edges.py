"""Adjacency matrices of some of the edges: those that are left out are not stored, and products are those of numpy."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch

from curvae.nn import AdjacencyMaker, GraphConv


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
