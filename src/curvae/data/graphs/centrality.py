"""How central the nodes of a graph are, and how far they are from one node."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from .graph_data import Graph

__all__ = ["closeness", "steps_between", "steps_from", "steps_to_some"]

_ALL = 2000  # a graph of at most so many nodes is measured from every node
_SAMPLED = 300  # nodes from which a larger graph is measured, and at least so many of a very large one:
_FEWEST = 30
_WORK = 6 * 10**8  # links that are followed from all of them
_PIVOTS = 30  # nodes from which the places of all others are told
_BLOCK = 1 << 22  # distances held at once


def steps_between(links: csr_array, nodes: NDArray[np.integer]) -> NDArray[np.float64]:
    """Number of edges on shortest paths from some nodes to all, (len(nodes), all); infinite where there is none.

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
    """Number of edges on the shortest path from a node to each node, (nodes,); infinite if there is none.

    Example:
        >>> steps_from(Graph(np.array(list("abcd")), np.array([[0, 1], [1, 2]])), 0)
        array([ 0.,  1.,  2., inf])
    """
    return steps_between(graph.adjacency(), np.array([node]))[0]


def steps_to_some(graph: Graph) -> NDArray[np.float64]:
    """Steps from every node to at most 30 nodes, chosen at random with a fixed seed, (nodes, ·).

    They tell roughly where a node is. Where no path leads they are twice the largest number.

    Example:
        >>> steps_to_some(Graph(np.array(list("abcd")), np.array([[0, 1], [1, 2]])))
        array([[0., 1., 2., 4.],
               [1., 0., 1., 4.],
               [2., 1., 0., 4.],
               [4., 4., 4., 0.]])
    """
    chosen = np.sort(np.random.default_rng(0).permutation(graph.n_nodes)[:_PIVOTS])
    steps = steps_between(graph.adjacency(), chosen)
    return np.where(np.isfinite(steps), steps, 2 * steps[np.isfinite(steps)].max()).T


def closeness(graph: Graph, seed: int = 0) -> NDArray[np.float64]:
    """Harmonic closeness of every node, (nodes,): the mean of 1/steps over all other nodes, 0 for unreachable ones.

    In a graph of more than 2,000 nodes the mean is over 300 random ones, in one of more than a million edges over
    fewer, down to 30, to save time.

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
        asked = min(_SAMPLED, max(_FEWEST, _WORK // max(1, adjacency.nnz)))
        sampled = np.sort(np.random.default_rng(seed).choice(nodes, asked, replace=False))
    total = np.zeros(nodes)
    for part in np.array_split(sampled, -(-len(sampled) * nodes // _BLOCK)):
        steps = steps_between(adjacency, part)
        steps[np.arange(len(part)), part] = np.inf
        total += (1.0 / steps).sum(0)
    others = np.full(nodes, len(sampled))
    others[sampled] -= 1
    return total / np.maximum(others, 1)
