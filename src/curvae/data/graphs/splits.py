"""Hold out edges, as Kipf and Welling (2016), Variational graph auto-encoders, section 2."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import CurvaeError
from ..messages import count
from .graph_data import Graph

__all__ = ["EdgeSplit", "absent_pairs", "matched_pairs", "split_edges"]

Edges = NDArray[np.int64]

_ROUNDS = 100  # draws for an edge before it is left out
_ALIKE = 8  # nodes of about equal degree that are enough to draw from
_NEAR = 1.25  # how many times larger the degree of a node of about equal degree may be


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
    if not (validation >= 0 and test >= 0 and validation + test < 1):
        raise CurvaeError(f"shares of {validation} and {test} leave nothing to train on; give shares that sum below 1")
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
    cuts = np.cumsum(sizes)
    held, tested, kept = (graph.edges[np.sort(part)] for part in np.split(order, cuts))
    return EdgeSplit(kept, held, tested, *(part[np.lexsort(part.T[::-1])] for part in np.split(drawn, cuts[:1])))


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
    if absent < number:
        raise CurvaeError(
            f"the graph is too dense: {count(absent, 'pair')} of nodes without an edge where {number:,} are "
            f"needed; {fix}"
        )
    ranks = random.choice(absent, number, replace=False)
    # The rank among pairs without an edge skips the edges before it.
    present = starts[i] + (j - (j > i) if graph.directed else j - i - 1)
    pairs = ranks + np.searchsorted(present - np.arange(graph.n_edges), ranks, side="right")
    row = np.searchsorted(starts, pairs, side="right") - 1
    place = pairs - starts[row]
    return np.stack([row, place + (place >= row) if graph.directed else place + row + 1], axis=1)


def matched_pairs(graph: Graph, edges: Edges, degree: NDArray[np.integer], seed: int = 0) -> tuple[Edges, Edges]:
    """For each edge a pair without one whose ends have as many neighbours, so that popularity alone tells nothing.

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
    for _ in range(_ROUNDS):
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
    """Which nodes have about the same degree: a number for each, (nodes,), from 0 for the highest.

    A degree that few ends of edges have is joined with the next lower ones, as long as these are not much lower.
    """
    values, counts = np.unique(degree[np.unique(edges)], return_counts=True)
    number, size, lowest, kinds = -1, 0, np.inf, []
    for value, nodes in zip(values.tolist()[::-1], counts.tolist()[::-1], strict=True):
        if size >= _ALIKE or value < lowest:
            number, size, lowest = number + 1, 0, value / _NEAR
        size += nodes
        kinds.append(number)
    return np.array(kinds[::-1])[np.searchsorted(values, degree).clip(max=len(values) - 1)]
