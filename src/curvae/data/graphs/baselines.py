"""Rules that predict edges without a model: what any model of a graph has to beat."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack
from scipy.sparse.linalg import ArpackNoConvergence, eigsh, svds

from .graph_data import link_matrix

__all__ = ["BASELINES", "Edges", "Rule", "common_neighbours", "degree_product", "rules", "singular_vectors"]

Edges = NDArray[np.int64]
Rule = Callable[[Edges], NDArray[np.float64]]

BASELINES = ("degree product", "common neighbours", "singular vectors")
"""names of the rules"""

_BLOCK = 1 << 22  # numbers held at once
_DENSE = 400  # nodes up to which all eigenvectors are computed


def rules(edges: Edges, nodes: int, dim: int, directed: bool = False) -> dict[str, Rule]:
    """Functions from pairs of nodes, (pairs, 2), to scores, (pairs,), higher where an edge is expected.

    Arguments:
        edges: those that may be seen, (edges, 2), each once.
        nodes: number of nodes.
        dim: number of singular vectors, as a model of that dimension has numbers for a node.
        directed: whether edges lead from the first to the second node, and pairs ask for such an edge.

    Example:
        >>> path = np.array([[0, 1], [1, 2], [2, 3]])
        >>> {name: score(np.array([[0, 1], [1, 2]])).round(1).tolist() for name, score in rules(path, 4, 2).items()}
        {'degree product': [2.0, 4.0], 'common neighbours': [0.0, 0.0], 'singular vectors': [0.7, 1.2]}
    """
    adjacency = link_matrix(edges, nodes, directed=directed)
    made = (
        degree_product(adjacency, directed),
        common_neighbours(adjacency, directed),
        singular_vectors(adjacency, dim, directed),
    )
    return dict(zip(BASELINES, made, strict=True))


def degree_product(adjacency: csr_array, directed: bool = False) -> Rule:
    """The product of the numbers of neighbours: popular nodes are joined. Of a directed pair, the number of edges from
    the first times that of edges to the second."""
    sending = np.diff(adjacency.indptr).astype(np.float64)
    receiving = np.bincount(adjacency.indices, minlength=len(sending)).astype(np.float64) if directed else sending
    return lambda pairs: sending[pairs[:, 0]] * receiving[pairs[:, 1]]


def common_neighbours(adjacency: csr_array, directed: bool = False) -> Rule:
    """The number of neighbours that two nodes share, counted for the pairs that are asked for. Of a directed pair, the
    number of nodes between: with an edge from the first and one to the second."""
    nodes = adjacency.shape[0]
    apart = np.array([0, nodes * directed])
    if directed:  # after the rows of edges from nodes come those of edges to them
        adjacency = csr_array(vstack([adjacency, adjacency.T], format="csr"))
        adjacency.sort_indices()
    starts, degree = adjacency.indptr.astype(np.int64), np.diff(adjacency.indptr).astype(np.int64)
    keys = np.repeat(np.arange(len(degree), dtype=np.int64), degree) * nodes + adjacency.indices  # of all links, sorted

    def count(pairs: Edges) -> NDArray[np.float64]:
        # Neighbours of the end that has fewer are looked up among those of the other.
        pairs = pairs + apart
        swap = degree[pairs[:, 0]] > degree[pairs[:, 1]]
        few, many = np.where(swap[:, None], pairs[:, ::-1], pairs).T
        steps = np.cumsum(degree[few])
        found = np.zeros(len(pairs))
        for block in np.split(np.arange(len(pairs)), np.flatnonzero(np.diff(steps // _BLOCK)) + 1):
            size = degree[few[block]]
            row = np.repeat(np.arange(len(block)), size)
            within = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
            asked = many[block][row] * nodes + adjacency.indices[starts[few[block]][row] + within]
            place = np.searchsorted(keys, asked).clip(max=max(len(keys) - 1, 0))
            found[block] = np.bincount(row, keys[place] == asked, minlength=len(block)) if len(row) else 0.0
        return found

    return count


def singular_vectors(adjacency: csr_array, dim: int, directed: bool = False) -> Rule:
    """The entries of the best approximation of rank `dim` of the adjacency matrix."""
    if directed:
        scaled, vectors = _largest_directed(adjacency, dim)
    else:
        values, vectors = _largest(adjacency, dim)
        scaled = vectors * values

    def entries(pairs: Edges) -> NDArray[np.float64]:
        found = np.empty(len(pairs))
        step = max(1, _BLOCK // max(1, vectors.shape[1]))
        for i in range(0, len(pairs), step):
            a, b = pairs[i : i + step].T
            found[i : i + step] = np.einsum("pk,pk->p", scaled[a], vectors[b])
        return found

    return entries


def _largest_directed(adjacency: csr_array, dim: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Left singular vectors of the largest singular values, times these, and right ones."""
    nodes = adjacency.shape[0]
    if nodes <= max(_DENSE, 2 * dim):
        left, values, right = np.linalg.svd(adjacency.toarray())
    else:
        left, values, right = svds(adjacency, dim, v0=np.random.default_rng(0).standard_normal(nodes), tol=1e-4)
    return left[:, :dim] * values[:dim], right[:dim].T


def _largest(adjacency: csr_array, dim: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Eigenvalues of largest magnitude and their vectors: singular values and vectors of a symmetric matrix."""
    nodes = adjacency.shape[0]
    if nodes <= max(_DENSE, 2 * dim):
        values, vectors = np.linalg.eigh(adjacency.toarray())
        chosen = np.argsort(-abs(values), kind="stable")[:dim]
        return values[chosen], vectors[:, chosen]
    start = np.random.default_rng(0).standard_normal(nodes)
    try:
        values, vectors = eigsh(adjacency, dim, which="LM", v0=start, tol=1e-4)
    except ArpackNoConvergence as error:  # equal values: those that were found are as good as others
        values, vectors = error.eigenvalues, error.eigenvectors
    return values, vectors
