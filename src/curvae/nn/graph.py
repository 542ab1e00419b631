"""Graph convolutions and the matrix that they multiply with."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ..geometry.checks import real, tensor
from ..geometry.primitive import full_precision

__all__ = ["GraphConv", "GraphEncoder", "normalised_adjacency", "undirected"]


def undirected(edges: Tensor, n_nodes: int, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Each edge once, as i < j in order of (j, i), and its weight.

    Direction does not count, loops are left out, and an edge that is listed several times has the mean of its weights.

    Arguments:
        edges: numbers of nodes, shape (2, E).
        n_nodes: number of nodes.
        weights: shape (E,); 1 if not given.

    Example:
        >>> undirected(torch.tensor([[0, 2, 1, 3], [1, 1, 0, 3]]), 4)[0]
        tensor([[0, 1],
                [1, 2]])
    """
    edges = tensor("edges", edges)
    if edges.dim() != 2 or edges.shape[0] != 2:
        raise ValueError(f"edges must have the shape (2, E): the two ends of every edge; got {tuple(edges.shape)}")
    if edges.numel() and (int(edges.min()) < 0 or int(edges.max()) >= n_nodes):
        raise ValueError(f"edges must join nodes 0 to {n_nodes - 1}, got {int(edges.min())} to {int(edges.max())}")
    if weights is None:
        weights = torch.ones(edges.shape[1], device=edges.device)
    weights = real("weights", weights)
    low, high = edges.long().aminmax(dim=0)
    proper = low < high
    key, place = torch.unique((high * n_nodes + low)[proper], return_inverse=True)
    totals = torch.zeros(2, len(key), dtype=weights.dtype, device=weights.device)
    totals.index_add_(1, place, torch.stack([weights[proper], torch.ones_like(weights[proper])]))
    return torch.stack([key % n_nodes, key // n_nodes]), totals[0] / totals[1]


def normalised_adjacency(edges: Tensor, n_nodes: int, weights: Tensor | None = None, dense: bool = True) -> Tensor:
    """Â = D^{−1/2}(A + I)D^{−1/2}, A the symmetric adjacency matrix and D the diagonal of the row sums of A + I.

    Arguments:
        edges, n_nodes, weights: as for `undirected`; weights must not be negative.
        dense: a matrix, or a sparse one in CSR format, for graphs of which n² numbers are too many. vmap, and so many
            models at once, needs a dense one.

    Example:
        >>> normalised_adjacency(torch.tensor([[0], [1]]), 3)
        tensor([[0.5000, 0.5000, 0.0000],
                [0.5000, 0.5000, 0.0000],
                [0.0000, 0.0000, 1.0000]])
    """
    (i, j), weights = undirected(edges, n_nodes, weights)
    if not bool((weights >= 0).all()):
        raise ValueError("weights of edges must not be negative")
    diagonal = torch.arange(n_nodes, device=edges.device)
    rows, columns = torch.cat([i, j, diagonal]), torch.cat([j, i, diagonal])
    values = torch.cat([weights, weights, weights.new_ones(n_nodes)])
    degree = weights.new_zeros(n_nodes).index_add(0, rows, values)
    values = values * (degree[rows] * degree[columns]).rsqrt()
    if dense:
        return values.new_zeros(n_nodes, n_nodes).index_put((rows, columns), values)
    places, shape = torch.stack([rows, columns]), (n_nodes, n_nodes)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        return torch.sparse_coo_tensor(places, values, shape, check_invariants=False).to_sparse_csr()


class _SparseProduct(torch.autograd.Function):
    """Â x for a sparse Â, which is symmetric, so that its own transpose need not be made for the gradient."""

    @staticmethod
    def forward(ctx: Any, adjacency: Tensor, x: Tensor) -> Tensor:
        ctx.adjacency = adjacency
        return adjacency @ x

    @staticmethod
    @full_precision
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, ctx.adjacency @ grad.contiguous()


def _propagate(adjacency: Tensor, x: Tensor) -> Tensor:
    if adjacency.layout == torch.strided:
        return adjacency @ x
    # Autocast has no products with sparse matrices.
    return full_precision(_SparseProduct.apply)(adjacency, x.to(adjacency.dtype))


def _mixed(x: Tensor, weight: Tensor) -> Tensor:
    """x W, x dense or sparse."""
    return x @ weight if x.layout == torch.strided else full_precision(torch.sparse.mm)(x, weight.to(x.dtype))


class GraphConv(nn.Module):
    """Â x W + b: features of a node and its neighbours, mixed.

    Arguments:
        in_features: features of a node; the number of nodes if they have none, for x is then the identity matrix and
            the layer Â W + b.
        out_features: outputs a node.
        bias: whether there is a b; it starts at 0.

    References:
        Kipf and Welling (2017), Semi-supervised classification with graph convolutional networks.

    Example:
        >>> adjacency = normalised_adjacency(torch.tensor([[0, 1], [1, 2]]), 3)
        >>> GraphConv(3, 32)(adjacency).shape
        torch.Size([3, 32])
        >>> GraphConv(5, 32)(adjacency, torch.randn(3, 5)).shape
        torch.Size([3, 32])
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        bound = math.sqrt(6 / (in_features + out_features))
        self.weight = nn.Parameter(torch.empty(in_features, out_features).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None

    def forward(self, adjacency: Tensor, x: Tensor | None = None) -> Tensor:
        product = _propagate(adjacency, self.weight if x is None else _mixed(x, self.weight))
        return product if self.bias is None else product + self.bias

    def extra_repr(self) -> str:
        rows, columns = self.weight.shape
        return f"{rows}, {columns}, bias={self.bias is not None}"


class GraphEncoder(nn.Module):
    """Graph convolutions with ReLU, then Â once more: what a linear head makes of it is a last convolution,
    (Â h)W = Â(hW). With one hidden layer and a `curvae.models.Posterior` the two-layer encoder of Kipf and Welling.

    Arguments:
        in_features: features of a node; the number of nodes if they have none.
        hidden: widths of the hidden layers.

    References:
        Kipf and Welling (2016), Variational graph auto-encoders.

    Example:
        >>> adjacency = normalised_adjacency(torch.tensor([[0, 1], [1, 2]]), 3)
        >>> GraphEncoder(3)(adjacency).shape
        torch.Size([3, 32])
    """

    def __init__(self, in_features: int, hidden: Sequence[int] = (32,)) -> None:
        super().__init__()
        if not hidden:
            raise ValueError("an encoder needs at least one hidden layer, for example hidden=(32,)")
        self.layers = nn.ModuleList(GraphConv(*sizes) for sizes in pairwise((in_features, *hidden)))

    def forward(self, adjacency: Tensor, x: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = layer(adjacency, x).relu()
        assert x is not None  # there is a layer
        return _propagate(adjacency, x)
