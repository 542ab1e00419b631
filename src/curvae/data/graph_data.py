"""Graphs of named nodes: splits that hide edges, distances in steps, and baselines that rank pairs of nodes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array, csr_array, issparse, vstack
from scipy.sparse.csgraph import breadth_first_order, connected_components
from scipy.sparse.linalg import ArpackNoConvergence, eigsh, svds

from ..errors import CurvaeError, check
from .dataset import has_missing
from .files import count, quoted

__all__ = [
    "BASELINES",
    "EdgeSplit",
    "Edges",
    "Graph",
    "Rule",
    "absent_pairs",
    "average_precision",
    "closeness",
    "common_neighbours",
    "degree_product",
    "link_matrix",
    "matched_pairs",
    "neighbourhood_map",
    "neighbourhood_ranks",
    "rules",
    "singular_vectors",
    "split_edges",
    "steps_between",
    "steps_from",
    "steps_to_some",
]


def link_matrix(
    edges: NDArray[np.int64], nodes: int, weights: NDArray[np.float64] | None = None, directed: bool = False
) -> csr_array:
    """Make the matrix of weights of edges, or of ones, (nodes, nodes): symmetric, unless they are directed."""
    values = np.ones(len(edges)) if weights is None else weights
    # The algorithms of csgraph need 32-bit indices.
    i, j = edges.T.astype(np.int32 if nodes < 2**31 else np.int64)
    if not directed:
        i, j, values = np.concatenate([i, j]), np.concatenate([j, i]), np.concatenate([values, values])
    return csr_array(coo_array((values, (i, j)), shape=(nodes, nodes)))


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph without loops, with labels and features of its nodes.

    Arguments:
        names: unique name of each node, (nodes,).
        edges: positions of the two nodes of each edge, (edges, 2), int64: each edge once, i < j, sorted by i, then j;
            if directed, from i to j.
        weights: positive weight of each edge, (edges,), or None.
        features: finite features of each node, (nodes, features), float64, dense or sparse, or None.
        feature_names: names of the features.
        labels: label of each node, (nodes,), or None.
        label_name: name of the labels.
        notes: what was done to the data, one sentence each.
        warnings: what looks wrong and how to fix it, one sentence each.
        directed: whether edges have a direction; there may be one from i to j and another back.

    Example:
        >>> graph = Graph(np.array(["a", "b", "c", "d"]), np.array([[0, 1], [1, 2]]))
        >>> graph.n_nodes, graph.n_edges, graph.components.tolist()
        (4, 2, [0, 0, 0, 1])
    """

    names: NDArray[np.str_]
    edges: NDArray[np.int64]
    weights: NDArray[np.float64] | None = None
    features: NDArray[np.float64] | csr_array | None = None
    feature_names: tuple[str, ...] = ()
    labels: NDArray[np.str_] | None = None
    label_name: str | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    directed: bool = False

    def __post_init__(self) -> None:
        check(self.names.ndim == 1 and self.names.dtype.kind == "U", "names must be an array of texts, one per node")
        repeated = pd.Series(self.names, dtype=object).duplicated().to_numpy()
        if repeated.any():
            raise CurvaeError(f"nodes of the same name: {quoted(np.unique(self.names[repeated]))}; make names unique")
        edges, weights, width = self.edges, self.weights, len(self.feature_names)
        check(
            edges.ndim == 2 and edges.shape[1] == 2 and edges.dtype == np.int64,
            f"edges of shape {edges.shape} and type {edges.dtype}; give int64 of shape (edges, 2)",
        )
        check(
            not edges.size or 0 <= edges.min() <= edges.max() < self.n_nodes,
            f"an edge leads to a node that is not among the {self.n_nodes:,}; number nodes from 0",
        )
        right = edges[:, 0] != edges[:, 1] if self.directed else edges[:, 0] < edges[:, 1]
        check(
            right.all() and (np.diff(edges @ [self.n_nodes, 1]) > 0).all(),
            f"edges must be sorted pairs {'i ≠ j' if self.directed else 'i < j'}, each once; curvae.data.load_graph "
            "makes them so",
        )
        if weights is not None:
            check(
                weights.shape == (len(edges),),
                f"{count(len(edges), 'edge')} but weights of shape {weights.shape}; give one per edge",
            )
            check((np.isfinite(weights) & (weights > 0)).all(), "weights must be positive and finite")
        if self.features is None:
            check(not width, f"{count(width, 'feature name')} without features; give both")
        else:
            check(
                self.features.shape == (self.n_nodes, width),
                f"features of shape {self.features.shape} for {count(self.n_nodes, 'node')} and "
                f"{count(width, 'feature name')}; give one row per node and one name per column",
            )
            check(not has_missing(self.features), "features contain missing or infinite values; replace them")
        if self.labels is not None and self.labels.shape != self.names.shape:
            raise CurvaeError(
                f"{count(self.n_nodes, 'node')} but labels of shape {self.labels.shape}; give one per node"
            )

    @property
    def n_nodes(self) -> int:
        return len(self.names)

    @property
    def n_edges(self) -> int:
        return len(self.edges)

    def adjacency(self) -> csr_array:
        """Make the symmetric matrix of weights, or of ones if the graph has none, (nodes, nodes).

        Of edges in both directions it has the sum.
        """
        return link_matrix(self.edges, self.n_nodes, self.weights)

    def links(self) -> csr_array:
        """Make the matrix of edges: `adjacency`, of a directed graph the matrix from rows to columns."""
        return link_matrix(self.edges, self.n_nodes, self.weights, self.directed)

    @cached_property
    def components(self) -> NDArray[np.int64]:
        """Number of the connected component of each node, from 0, (nodes,)."""
        links = link_matrix(self.edges, self.n_nodes, directed=True)  # either way counts, so one is enough
        return connected_components(links, directed=False)[1].astype(np.int64)

    @property
    def is_forest(self) -> bool:
        """Whether the graph has no circle: without any of its edges, the two nodes of that edge are not connected.

        Example:
            >>> Graph(np.array(["a", "b", "c"]), np.array([[0, 1], [1, 2]])).is_forest
            True
        """
        return self.n_nodes > 0 and self.n_edges == self.n_nodes - 1 - int(self.components.max())

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of names, edges with their direction, weights, features with their names, and labels."""
        digest = hashlib.sha256()
        for text in (self.names.tolist(), self.feature_names, None if self.labels is None else self.labels.tolist()):
            digest.update(json.dumps(text).encode() + b"\n")
        x: Any = self.features
        parts = [(x.indptr, "<i8"), (x.indices, "<i8"), (x.data, "<f8")] if issparse(x) else [(x, "<f8")]
        for array, dtype in ((self.edges, "<i8"), (self.weights, "<f8"), *parts):
            digest.update(json.dumps(None if array is None else array.shape).encode() + b"\n")
            if array is not None:
                digest.update(np.ascontiguousarray(array, dtype).data)
        if self.directed:
            digest.update(b"directed")
        return digest.hexdigest()


# Hold out edges, as Kipf and Welling (2016), Variational graph auto-encoders, section 2.

Edges = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class EdgeSplit:
    """Edges to train on, edges to predict, and as many pairs of nodes without an edge.

    Arguments:
        train, validation, test: edges of the graph, (edges, 2), each edge in one of them.
        validation_absent, test_absent: different pairs i < j without an edge, as many as the edges of that part; of a
            directed graph ordered pairs, without an edge from the first to the second.
    """

    train: Edges
    validation: Edges
    test: Edges
    validation_absent: Edges
    test_absent: Edges


def split_edges(graph: Graph, validation: float = 0.05, test: float = 0.1, seed: int = 0) -> EdgeSplit:
    """Split the edges of a graph at random; pairs without an edge are drawn uniformly.

    Arguments:
        graph: the graph to split.
        validation, test: shares of its edges, rounded down to whole edges.
        seed: seed of the random split.

    Example:
        >>> graph = Graph(np.array(list("abcde")), np.array([[0, 1], [0, 2], [1, 2], [2, 3], [3, 4]]))
        >>> split = split_edges(graph, validation=0.2, test=0.4)
        >>> [len(part) for part in (split.train, split.validation, split.test, split.test_absent)]
        [2, 1, 2, 2]
    """
    check(
        validation >= 0 and test >= 0 and validation + test < 1,
        f"shares of {validation} and {test} leave nothing to train on; give shares that sum below 1",
    )
    sizes = [int(share * graph.n_edges + 1e-9) for share in (validation, test)]  # 0.29 · 100 is 28.999…
    for name, share, size in zip(("validation", "test"), (validation, test), sizes, strict=True):
        if share > 0 and size == 0:
            raise CurvaeError(
                f"a share of {share:g} of {count(graph.n_edges, 'edge')} rounds down to no edge for {name}; "
                f"use a graph of {int(np.ceil(1 / share)):,} edges or more"
            )
    random = np.random.default_rng(seed)
    order = random.permutation(graph.n_edges)
    drawn = absent_pairs(graph, sum(sizes), random, fix="use a sparser graph")
    held, tested, kept = (graph.edges[np.sort(part)] for part in np.split(order, np.cumsum(sizes)))
    return EdgeSplit(kept, held, tested, *(part[np.lexsort(part.T[::-1])] for part in np.split(drawn, sizes[:1])))


def absent_pairs(graph: Graph, number: int, random: np.random.Generator, fix: str) -> Edges:
    """Draw different pairs without an edge uniformly, (number, 2); `fix` says what to do if there are too few.

    They are i < j, or of a directed graph ordered, with no edge from the first to the second.

    Example:
        >>> path = Graph(np.array(list("abc")), np.array([[0, 1], [1, 2]]))
        >>> absent_pairs(path, 1, np.random.default_rng(0), "").tolist()
        [[0, 2]]
    """
    # Pairs are numbered row by row; those of row i start at starts[i].
    nodes, (i, j) = np.arange(graph.n_nodes, dtype=np.int64), graph.edges.T
    starts = nodes * (graph.n_nodes - 1) if graph.directed else nodes * (2 * graph.n_nodes - nodes - 1) // 2
    absent = graph.n_nodes * (graph.n_nodes - 1) // (1 if graph.directed else 2) - graph.n_edges
    check(
        number <= absent,
        f"the graph is too dense: {count(absent, 'pair')} of nodes without an edge where {number:,} are needed; {fix}",
    )
    ranks = random.choice(absent, number, replace=False)
    # The rank among pairs without an edge skips the edges before it.
    present = starts[i] + (j - (j > i) if graph.directed else j - i - 1)
    pairs = ranks + np.searchsorted(present - np.arange(graph.n_edges), ranks, side="right")
    row = np.searchsorted(starts, pairs, side="right") - 1
    place = pairs - starts[row]
    return np.stack([row, place + (place >= row) if graph.directed else place + row + 1], axis=1)


def matched_pairs(graph: Graph, edges: Edges, degree: NDArray[np.integer], seed: int = 0) -> tuple[Edges, Edges]:
    """Draw for each edge a pair without one whose ends have as many neighbours, so that popularity alone tells nothing.

    The ends of a pair are ends of the given edges, drawn at random: for each end of an edge one of about the same
    degree, so that degrees, and how they meet, are those of the edges. Pairs may repeat.

    References:
        Aiyappa et al. (2024), Implicit degree bias in the link prediction task, draw pairs in proportion to degrees.

    Arguments:
        graph: whose edges are no such pairs.
        edges: edges to match, (edges, 2).
        degree: number of neighbours of each node, (nodes,), as a model may know it; of a directed graph the numbers of
            edges from and to each, (2, nodes), of which those of the first and of the second end are matched.
        seed: of the draws.

    Returns:
        The edges that have a match, which the others lack because their ends are joined to all alike, and the matches.

    Example:
        >>> ring = Graph(np.array(list("abcd")), np.array([[0, 1], [0, 3], [1, 2], [2, 3]]))
        >>> matched_pairs(ring, ring.edges[:1], np.full(4, 2))
        (array([], shape=(0, 2), dtype=int64), array([], shape=(0, 2), dtype=int64))
        >>> matched_pairs(ring, ring.edges, np.full(4, 2))[1].shape
        (4, 2)
    """
    random = np.random.default_rng(seed)
    apart = np.array([0, graph.n_nodes * graph.directed])  # first and second ends are then two kinds of nodes
    if graph.directed:
        first, second = (_kinds(edges[:, [side]], degree[side]) for side in (0, 1))
        kind = np.concatenate([first, second + first.max() + 1])
    else:
        kind = _kinds(edges, degree)
    edges = edges + apart
    ends = edges.ravel()
    pool = ends[np.argsort(kind[ends], kind="stable")]
    sizes = np.bincount(kind[ends])
    starts = np.cumsum(sizes) - sizes
    present = graph.edges @ [graph.n_nodes, 1]  # sorted, as edges are
    drawn = np.full_like(edges, -1)
    lacking = np.arange(len(edges))
    for _ in range(100):  # then an edge without a match is left out
        if not len(lacking):
            break
        kinds = kind[edges[lacking]]
        pairs = pool[starts[kinds] + (random.random(kinds.shape) * sizes[kinds]).astype(np.int64)] - apart
        pairs = pairs if graph.directed else np.sort(pairs, axis=1)
        keys = pairs @ [graph.n_nodes, 1]
        joined = present[np.searchsorted(present, keys).clip(max=len(present) - 1)] == keys
        good = (pairs[:, 0] != pairs[:, 1]) & ~joined
        drawn[lacking[good]] = pairs[good]
        lacking = lacking[~good]
    matched = drawn[:, 0] >= 0
    return edges[matched] - apart, drawn[matched]


def _kinds(edges: Edges, degree: NDArray[np.integer]) -> NDArray[np.intp]:
    """Find nodes of about the same degree: give them the same number, (nodes,), from 0 for the highest.

    A degree that few ends of edges have is joined with the next lower ones, as long as these are not much lower.
    """
    values, counts = np.unique(degree[np.unique(edges)], return_counts=True)
    number, size, lowest, kinds = -1, 0, np.inf, []
    # Eight nodes are enough to draw from, and a degree is about the same if it is at most 1.25 times smaller.
    for value, nodes in zip(values.tolist()[::-1], counts.tolist()[::-1], strict=True):
        if size >= 8 or value < lowest:
            number, size, lowest = number + 1, 0, value / 1.25
        size += nodes
        kinds.append(number)
    return np.array(kinds[::-1])[np.searchsorted(values, degree).clip(max=len(values) - 1)]


# How central the nodes of a graph are, and how far they are from one node.

_ALL = 2000  # a graph of at most so many nodes is measured from every node
_SAMPLED = 300  # nodes from which a larger graph is measured, and at least 30 of a very large one
_WORK = 6 * 10**8  # links that are followed from all of them
_BLOCK = 1 << 22  # distances held at once


def steps_between(links: csr_array, nodes: NDArray[np.integer]) -> NDArray[np.float64]:
    """Count the edges on shortest paths from some nodes to all, (len(nodes), all); infinite where there is none.

    Arguments:
        links: a symmetric matrix; what its values are does not matter.
        nodes: where the paths start.
    """
    steps = np.full((len(nodes), links.shape[0]), np.inf)
    place = np.empty(links.shape[0], dtype=np.int64)
    for row, node in zip(steps, nodes, strict=True):
        order, before = breadth_first_order(links, node)
        place[order] = np.arange(len(order))
        up = np.zeros(len(order), dtype=np.int64)  # the place from which each is reached
        up[1:] = place[before[order[1:]]]
        depth = np.ones(len(order))
        depth[0] = 0.0
        while up.any():  # twice as far up each time
            depth += depth[up]
            up = up[up]
        row[order] = depth
    return steps


def steps_from(graph: Graph, node: int) -> NDArray[np.float64]:
    """Count the edges on the shortest path from a node to each node, (nodes,); infinite if there is none.

    Example:
        >>> steps_from(Graph(np.array(list("abcd")), np.array([[0, 1], [1, 2]])), 0)
        array([ 0.,  1.,  2., inf])
    """
    return steps_between(graph.adjacency(), np.array([node]))[0]


def steps_to_some(graph: Graph) -> NDArray[np.float64]:
    """Count the steps from every node to at most 30 nodes, chosen at random with a fixed seed, (nodes, ·).

    They tell roughly where a node is. Where no path leads they are twice the largest number.

    Example:
        >>> steps_to_some(Graph(np.array(list("abcd")), np.array([[0, 1], [1, 2]])))
        array([[0., 1., 2., 4.],
               [1., 0., 1., 4.],
               [2., 1., 0., 4.],
               [4., 4., 4., 0.]])
    """
    steps = steps_between(graph.adjacency(), np.sort(np.random.default_rng(0).permutation(graph.n_nodes)[:30]))
    return np.where(np.isfinite(steps), steps, 2 * steps[np.isfinite(steps)].max()).T


def closeness(graph: Graph, seed: int = 0) -> NDArray[np.float64]:
    """Compute the harmonic closeness of every node, (nodes,).

    It is the mean of 1/steps over all other nodes, 0 for those that cannot be reached. In a graph of more than 2,000
    nodes the mean is over 300 random ones, in one of more than a million edges over fewer, down to 30, to save time.

    Arguments:
        graph: its edges count as steps, whatever their weights.
        seed: seed of the random choice.

    Example:
        >>> closeness(Graph(np.array(list("abcd")), np.array([[0, 1], [1, 2]]))).round(2)
        array([0.5 , 0.67, 0.5 , 0.  ])
    """
    nodes, adjacency = graph.n_nodes, graph.adjacency()
    sampled = np.arange(nodes)
    if nodes > _ALL:
        asked = min(_SAMPLED, max(30, _WORK // max(1, adjacency.nnz)))
        sampled = np.sort(np.random.default_rng(seed).choice(nodes, asked, replace=False))
    total = np.zeros(nodes)
    for part in np.array_split(sampled, -(-len(sampled) * nodes // _BLOCK)):
        steps = steps_between(adjacency, part)
        steps[np.arange(len(part)), part] = np.inf
        total += (1.0 / steps).sum(0)
    others = np.full(nodes, len(sampled))
    others[sampled] -= 1
    return total / np.maximum(others, 1)


# Rules that predict edges without a model: what any model of a graph has to beat.

Rule = Callable[[Edges], NDArray[np.float64]]

BASELINES = ("degree product", "common neighbours", "singular vectors")
"""names of the rules"""

_DENSE = 400  # nodes up to which all eigenvectors are computed


def rules(edges: Edges, nodes: int, dim: int, directed: bool = False) -> dict[str, Rule]:
    """Make functions from pairs of nodes, (pairs, 2), to scores, (pairs,), higher where an edge is expected.

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
    return {
        "degree product": degree_product(adjacency, directed),
        "common neighbours": common_neighbours(adjacency, directed),
        "singular vectors": singular_vectors(adjacency, dim, directed),
    }


def degree_product(adjacency: csr_array, directed: bool = False) -> Rule:
    """Make a rule of the product of the numbers of neighbours: popular nodes are joined.

    Of a directed pair it is the number of edges from the first times that of edges to the second.
    """
    sending = np.diff(adjacency.indptr).astype(np.float64)
    receiving = np.bincount(adjacency.indices, minlength=len(sending)).astype(np.float64) if directed else sending
    return lambda pairs: sending[pairs[:, 0]] * receiving[pairs[:, 1]]


def common_neighbours(adjacency: csr_array, directed: bool = False) -> Rule:
    """Make a rule of the number of neighbours that two nodes share, counted for the pairs that are asked for.

    Of a directed pair it is the number of nodes between: with an edge from the first and one to the second.
    """
    apart = np.array([0, adjacency.shape[0] * directed])
    if directed:  # after the rows of edges from nodes come those of edges to them
        adjacency = csr_array(vstack([adjacency, adjacency.T], format="csr"))
        adjacency.sort_indices()
    degree = np.diff(adjacency.indptr).astype(np.int64)

    def count(pairs: Edges) -> NDArray[np.float64]:
        # Neighbours of the end that has fewer are looked up among those of the other.
        pairs = pairs + apart
        few, many = np.where((degree[pairs[:, 0]] > degree[pairs[:, 1]])[:, None], pairs[:, ::-1], pairs).T
        steps = np.cumsum(degree[few])
        found = np.zeros(len(pairs))
        for block in np.split(np.arange(len(pairs)), np.flatnonzero(np.diff(steps // _BLOCK)) + 1):
            row, neighbour = adjacency[few[block]].nonzero()
            shared = np.asarray(adjacency[many[block][row], neighbour] != 0).ravel()
            found[block] = np.bincount(row, shared, minlength=len(block))
        return found

    return count


def singular_vectors(adjacency: csr_array, dim: int, directed: bool = False) -> Rule:
    """Make a rule of the entries of the best approximation of rank `dim` of the adjacency matrix."""
    nodes = adjacency.shape[0]
    start = np.random.default_rng(0).standard_normal(nodes)
    few = nodes <= max(_DENSE, 2 * dim)
    if directed:
        left, values, right = np.linalg.svd(adjacency.toarray()) if few else svds(adjacency, dim, v0=start, tol=1e-4)
        scaled, vectors = left[:, :dim] * values[:dim], right[:dim].T
    else:  # eigenvalues of largest magnitude: singular values and vectors of a symmetric matrix
        try:
            values, vectors = (
                np.linalg.eigh(adjacency.toarray()) if few else eigsh(adjacency, dim, which="LM", v0=start, tol=1e-4)
            )
        except ArpackNoConvergence as error:  # equal values: those that were found are as good as others
            values, vectors = error.eigenvalues, error.eigenvectors
        chosen = np.argsort(-abs(values), kind="stable")[:dim] if few else slice(None)
        vectors = vectors[:, chosen]
        scaled = vectors * values[chosen]

    def entries(pairs: Edges) -> NDArray[np.float64]:
        found = np.empty(len(pairs))
        step = max(1, _BLOCK // max(1, vectors.shape[1]))
        for i in range(0, len(pairs), step):
            a, b = pairs[i : i + step].T
            found[i : i + step] = np.einsum("pk,pk->p", scaled[a], vectors[b])
        return found

    return entries


# How well distances rank the neighbours of a node first.

Distances = Callable[[int, int], ArrayLike]


def neighbourhood_map(graph: Graph, distances: Distances | ArrayLike, nodes: NDArray[np.int64] | None = None) -> float:
    """Compute the mean average precision with which the nearest nodes of a node are its neighbours in the graph.

    For each neighbour, the precision is the share of neighbours among the nodes that are at most as far away. It is
    averaged over the neighbours of a node, then over the nodes that have any. 1 means that all neighbours come first.
    The neighbours of a node in a directed graph are those that it has an edge to.

    References:
        Sala et al. (2018), Representation tradeoffs for hyperbolic embeddings, section 2.

    Arguments:
        graph: the graph whose edges should be found.
        distances: distances from `nodes` to all nodes, (len(nodes), nodes), or a function that takes start and stop
            and returns these rows, so that not all must be in memory at once.
        nodes: positions of the nodes to average over, all by default; those without neighbours are left out.

    Example:
        >>> path = Graph(np.array(["a", "b", "c"]), np.array([[0, 1], [1, 2]]))
        >>> places = np.array([0.0, 1.0, 2.0])
        >>> neighbourhood_map(path, lambda start, stop: abs(places[start:stop, None] - places))
        1.0
    """
    return neighbourhood_ranks(graph, distances, nodes)[0]


def neighbourhood_ranks(
    graph: Graph, distances: Distances | ArrayLike, nodes: NDArray[np.int64] | None = None
) -> tuple[float, float]:
    """Compute `neighbourhood_map`, and the mean rank of a neighbour among nodes that are none.

    The rank is 1 if none of these is nearer. The mean is over all neighbours of all nodes; arguments as there.

    References:
        Nickel and Kiela (2017), Poincaré embeddings for learning hierarchical representations, section 4.

    Example:
        >>> path = Graph(np.array(["a", "b", "c"]), np.array([[0, 1]]))
        >>> neighbourhood_ranks(path, np.array([[0.0, 2.0, 1.0], [2.0, 0.0, 1.0], [1.0, 1.0, 0.0]]))
        (0.5, 2.0)
    """
    check(graph.n_edges, "a graph without edges has no neighbourhoods; give one with edges")
    chosen = np.arange(graph.n_nodes) if nodes is None else nodes
    adjacency = graph.links()
    check(np.diff(adjacency.indptr)[chosen].any(), "none of the chosen nodes has a neighbour; choose nodes with edges")
    given: Any = distances if callable(distances) else np.asarray(distances)
    step = max(1, _BLOCK // graph.n_nodes)
    precisions, ranks = [], []
    for start in range(0, len(chosen), step):
        stop = min(start + step, len(chosen))
        block = np.asarray(given(start, stop) if callable(distances) else given[start:stop])
        check(
            block.shape == (stop - start, graph.n_nodes),
            f"distances of shape {block.shape} for rows {start} to {stop}; give one column per node",
        )
        check(not np.isnan(block).any(), "distances are not numbers; the model has diverged: lower the learning rate")
        for node, row in zip(chosen[start:stop], block, strict=True):
            neighbours = adjacency.indices[adjacency.indptr[node] : adjacency.indptr[node + 1]]
            if len(neighbours):
                precisions.append(average_precision(row, node, neighbours))
                others = np.ones(len(row), dtype=bool)
                others[neighbours] = others[node] = False
                ranks.append(1 + np.searchsorted(np.sort(row[others]), row[neighbours]))
    return float(np.mean(precisions)), float(np.concatenate(ranks).mean())


def average_precision(row: NDArray[np.float64], node: int, neighbours: NDArray[np.integer]) -> float:
    """Compute the precision with which the points nearest to one of them are its neighbours.

    Arguments:
        row: distances of the point to all points, (points,).
        node: position of the point.
        neighbours: positions of its neighbours.

    Example:
        >>> average_precision(np.array([0.0, 1.0, 2.0, 3.0]), 0, np.array([1, 3]))
        0.8333333333333333
    """
    near = np.sort(row[neighbours])
    # Count the nodes at most as far as each neighbour, without the node itself; those beyond the last do not matter.
    place = np.searchsorted(near, row[row <= near[-1]])
    seen = np.cumsum(np.bincount(place, minlength=len(near))) - (row[node] <= near)
    return float(np.mean(np.searchsorted(near, near, side="right") / seen))
