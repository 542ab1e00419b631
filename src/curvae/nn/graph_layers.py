"""Graph convolutions and the matrix that they multiply with."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..geometry.checks import real, tensor
from ..geometry.functions import full_precision

__all__ = [
    "Adjacency",
    "AdjacencyMaker",
    "Arcs",
    "FreeVectors",
    "GraphConv",
    "GraphEncoder",
    "Popularity",
    "normalised_adjacency",
    "undirected",
]


class Arcs(NamedTuple):
    """The matrices of a directed graph, in place of one that is symmetric.

    Attributes:
        out: D^{−1/2}(A + I)D'^{−1/2}, shape (…, n, n), A_ij the weight of the edge from i to j, D and D' the diagonals
            of the row and column sums of A + I: what nodes hear of those that they have an edge to.
        into: its transpose: what they hear of those that have an edge to them.
        degrees: these row and column sums, shape (…, 2, n).
    """

    out: Tensor
    into: Tensor
    degrees: Tensor

    @property
    def shape(self) -> torch.Size:
        return self.out.shape


Adjacency = Tensor | Arcs
"""the normalised adjacency matrix, or those of a directed graph"""


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
    weights = torch.ones(edges.shape[1], device=edges.device) if weights is None else real("weights", weights)
    low, high = edges.long().aminmax(dim=0)
    proper = low < high
    key, order = (high * n_nodes + low)[proper].sort()
    if bool((key[1:] != key[:-1]).all()):  # each is listed once
        return torch.stack([key % n_nodes, key // n_nodes]), weights[proper][order]
    key, place = torch.unique((high * n_nodes + low)[proper], return_inverse=True)
    totals = torch.zeros(2, len(key), dtype=weights.dtype, device=weights.device)
    totals.index_add_(1, place, torch.stack([weights[proper], torch.ones_like(weights[proper])]))
    return torch.stack([key % n_nodes, key // n_nodes]), totals[0] / totals[1]


def normalised_adjacency(edges: Tensor, n_nodes: int, weights: Tensor | None = None, dense: bool = True) -> Tensor:
    """Compute Â = D^{−1/2}(A + I)D^{−1/2}, A the symmetric adjacency matrix and D the diagonal of the row sums of A +
    I.

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
    found = AdjacencyMaker(edges, n_nodes, weights, dense)()
    assert isinstance(found, Tensor)  # of a graph that is not directed
    return found


class AdjacencyMaker:
    """Makes `normalised_adjacency` of some of the edges again and again; all that they have in common is made once.

    Arguments:
        edges, n_nodes, weights, dense: as of `normalised_adjacency`.
        directed: makes `Arcs`, of edges from the first to the second node; each is listed once.

    Attributes:
        edges: each edge once, as of `undirected` or as given, shape (2, E).

    Example:
        >>> maker = AdjacencyMaker(torch.tensor([[0, 1], [1, 2]]), 3)
        >>> torch.equal(maker(torch.tensor([1.0, 0.0])), normalised_adjacency(torch.tensor([[0], [1]]), 3))
        True
    """

    def __init__(
        self,
        edges: Tensor,
        n_nodes: int,
        weights: Tensor | None = None,
        dense: bool = True,
        directed: bool = False,
    ) -> None:
        if directed:
            weights = torch.ones(edges.shape[1], device=edges.device) if weights is None else weights
            self.edges = edges
        else:
            self.edges, weights = undirected(edges, n_nodes, weights)
        if not bool((weights >= 0).all()):
            raise ValueError("weights of edges must not be negative")
        self.n_nodes, self.dense, self.directed, self._weights = n_nodes, dense, directed, weights
        diagonal, (i, j) = torch.arange(n_nodes, device=edges.device), self.edges
        # The number of the edge that an entry belongs to; of the diagonal, one after the last.
        number, own = torch.arange(len(i), device=edges.device), torch.full_like(diagonal, len(i))
        ways = [(i, j)] if directed else [(i, j), (j, i)]
        rows, columns = (torch.cat([*ends, diagonal]) for ends in zip(*ways, strict=True))
        number = torch.cat([*[number] * len(ways), own])
        order = (rows * n_nodes + columns).argsort()
        kind = torch.int32 if not dense and len(order) < 2**31 else torch.int64
        self._rows, self._columns, self._number = (one[order].to(kind) for one in (rows, columns, number))
        # Where the entries of every row begin, and after the last where they end, shape (n + 1,); if the graph is
        # directed, also in the transpose.
        sides = (self._rows, self._columns) if directed else (self._rows,)
        counts = [torch.bincount(side, minlength=n_nodes) for side in sides]
        self._starts, *turned = (torch.cat([each.new_zeros(1), each.cumsum(0)]).to(kind) for each in counts)
        if directed:
            self._turned = (
                (columns * n_nodes + rows)[order].argsort().to(kind)
            )  # places of the entries in the transpose
            (self._turned_starts,), self._turned_columns = turned, self._rows[self._turned]

    def __call__(self, factor: Tensor | None = None) -> Adjacency:
        """Â with the weights of the edges multiplied by `factor`, shape (E,), where it is given; 0 leaves one out."""
        weights = self._weights if factor is None else self._weights * factor
        values = torch.cat([weights, weights.new_ones(1)]).index_select(0, self._number)
        rows, columns, starts = self._rows, self._columns, self._starts
        if factor is not None and not self.dense and not self.directed:  # edges that are left out are not looked at
            starts, rows, columns, values = _thinned(starts, rows, columns, values)
        degree = weights.new_zeros(self.n_nodes).index_add(0, rows, values)
        to = weights.new_zeros(self.n_nodes).index_add(0, columns, values) if self.directed else degree
        values = values * (degree.index_select(0, rows) * to.index_select(0, columns)).rsqrt()
        if self.dense:
            matrix = values.new_zeros(self.n_nodes, self.n_nodes).index_put((rows, columns), values)
            return Arcs(matrix, matrix.mT, torch.stack([degree, to])) if self.directed else matrix
        if not self.directed:
            return self._sparse(starts, columns, values)
        both = (starts, columns, values), (self._turned_starts, self._turned_columns, values[self._turned])
        out, into = (self._sparse(*(side if factor is None else _thinned(*side))) for side in both)
        return Arcs(out, into, torch.stack([degree, to]))

    def _sparse(self, starts: Tensor, columns: Tensor, values: Tensor) -> Tensor:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse (CSR tensor support is in beta|invariant checks)")
            return torch.sparse_csr_tensor(starts, columns, values, (self.n_nodes,) * 2, check_invariants=False)


def _thinned(starts: Tensor, *entries: Tensor) -> tuple[Tensor, ...]:
    """Where rows begin, and the entries, without those of which the last part, the value, is 0."""
    kept = entries[-1].nonzero().squeeze(1)
    before = torch.cat([kept.new_zeros(1), (entries[-1] != 0).cumsum(0)])
    return before[starts].to(starts.dtype), *(part.index_select(0, kept) for part in entries)


def _log_degrees(adjacency: Adjacency) -> Tensor:
    """log(1 + degree) of every node, shape (…, n): the diagonal of Â is 1/(1 + degree). Of a directed graph those of
    edges from and to nodes, shape (…, 2, n)."""
    if isinstance(adjacency, Arcs):
        return adjacency.degrees.log()
    if adjacency.layout == torch.strided:
        return -adjacency.diagonal(dim1=-2, dim2=-1).log()
    starts, columns = adjacency.crow_indices(), adjacency.col_indices()
    rows = torch.arange(len(adjacency), device=adjacency.device).repeat_interleave(starts.diff())
    return -adjacency.values()[rows == columns].log()


def _times(adjacency: Tensor, x: Tensor) -> Tensor:
    """Â x for a sparse Â. On a CPU a reduction does it in half the time of a product."""
    return torch.sparse.mm(adjacency, x, "sum") if x.device.type == "cpu" else adjacency @ x


class _SparseProduct(torch.autograd.Function):
    """Â x for a sparse Â, whose transpose is at hand for the gradient: itself where it is symmetric."""

    @staticmethod
    def forward(ctx: Any, adjacency: Tensor, transpose: Tensor, x: Tensor) -> Tensor:
        ctx.transpose = transpose
        return _times(adjacency, x)

    @staticmethod
    @full_precision
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor]:
        return None, None, _times(ctx.transpose, grad.contiguous())


def _product(adjacency: Tensor, transpose: Tensor, x: Tensor) -> Tensor:
    if adjacency.layout == torch.strided:
        return adjacency @ x
    # Autocast has no products with sparse matrices.
    return full_precision(_SparseProduct.apply)(adjacency, transpose, x.to(adjacency.dtype))


def _propagate(adjacency: Adjacency, x: Tensor, again: bool = False) -> Tensor:
    """Â x. In a directed graph the first half of the columns hears along edges from, the other along edges to every
    node, at the cost of one product.

    What such a product made may be propagated `again`: then a half of each half goes either way, and all paths of two
    edges are heard of, those that turn round among them.
    """
    if not isinstance(adjacency, Arcs):
        return _product(adjacency, adjacency, x)
    out, into, _ = adjacency
    sent, received = _halves(x)
    if again:
        sent, received = (torch.cat(both, -1) for both in zip(_halves(sent), _halves(received), strict=True))
    return torch.cat([_product(out, into, sent), _product(into, out, received)], -1)


def _halves(x: Tensor) -> tuple[Tensor, ...]:
    half = (x.shape[-1] + 1) // 2
    return x.split([half, x.shape[-1] - half], -1)


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

    def forward(self, adjacency: Adjacency, x: Tensor | None = None) -> Tensor:
        mixed: Tensor = self.weight
        if x is not None:
            mixed = x @ mixed if x.layout == torch.strided else full_precision(torch.sparse.mm)(x, mixed.to(x.dtype))
        product = _propagate(adjacency, mixed)
        return product if self.bias is None else product + self.bias

    def extra_repr(self) -> str:
        return "{}, {}, bias={}".format(*self.weight.shape, self.bias is not None)


class GraphEncoder(nn.Module):
    """Graph convolutions with ReLU, then Â once more: what a linear head makes of it is a last convolution,
    (Â h)W = Â(hW). With one hidden layer and a `curvae.models.Posterior` the two-layer encoder of Kipf and Welling.

    In a directed graph half of what a layer gives to a node comes from nodes that it has an edge to, the other half
    from those that have one to it.

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

    def forward(self, adjacency: Adjacency, x: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = layer(adjacency, x).relu()
        assert x is not None  # there is a layer
        return _propagate(adjacency, x, again=True)


class FreeVectors(nn.Module):
    """A learned vector for every node, in place of an encoder: it fits a graph most closely, and knows its nodes only.

    Arguments:
        n_nodes: number of nodes.
        width: of the vectors.

    Example:
        >>> adjacency = normalised_adjacency(torch.tensor([[0, 1], [1, 2]]), 3)
        >>> FreeVectors(3, 32)(adjacency).shape
        torch.Size([3, 32])
    """

    def __init__(self, n_nodes: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.1 * torch.randn(n_nodes, width))

    def forward(self, adjacency: Adjacency, x: Tensor | None = None) -> Tensor:
        return self.weight

    def extra_repr(self) -> str:
        return "{}, {}".format(*self.weight.shape)


_SIDE = 0.1  # weights of sides at first: at 0 they would have no gradient


class Popularity(nn.Module):
    """How far each node reaches, b_i = w·h_i + a·log(1 + degree_i), and on which side it is, s_i = v·h_i, from what an
    encoder makes of it and its degree.

    Nodes that were not there in the training have both too. At first b_i is a·log(1 + degree_i) with a = ½. Two nodes
    avoid each other where their sides have the same sign, as those of one side of a bipartite graph do, and the more
    the larger these are; in other graphs sides stay small.

    In a directed graph every node has two, as a sender and as a receiver of edges, each with a w of its own, an a for
    the number of edges from the node and one for that of edges to it; at first ½ for its own kind, 0 for the other.

    Arguments:
        in_features: width of h.
        directed: whether there are two popularities; there is one side all the same.

    Example:
        >>> adjacency = normalised_adjacency(torch.tensor([[0, 1], [1, 2]]), 3)
        >>> Popularity(32)(torch.zeros(3, 32), adjacency).detach()
        tensor([[0.3466, 0.5493, 0.3466],
                [0.0000, 0.0000, 0.0000]])
    """

    def __init__(self, in_features: int, directed: bool = False) -> None:
        super().__init__()
        self.directed = directed
        kinds = 2 if directed else 1
        self.weight = nn.Parameter(torch.cat([torch.zeros(kinds, in_features), _SIDE * torch.randn(1, in_features)]))
        self.slope = nn.Parameter(0.5 * torch.eye(kinds))

    def forward(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        """Popularity and side of every node, shape (…, 2, n), from h of shape (…, n, in_features) and Â; of a directed
        graph popularity as sender, popularity as receiver and side, shape (…, 3, n)."""
        degrees = _log_degrees(adjacency)
        degrees = degrees if self.directed else degrees.unsqueeze(-2)
        return self.weight @ h.mT + F.pad(self.slope @ degrees, (0, 0, 0, 1))
