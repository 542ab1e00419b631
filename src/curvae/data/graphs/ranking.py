"""How well distances rank the neighbours of a node first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import CurvaeError
from .graph_data import Graph

__all__ = ["average_precision", "neighbourhood_map", "neighbourhood_ranks"]

Array = NDArray[np.float64]
Distances = Callable[[int, int], ArrayLike]

_BLOCK = 1 << 22  # distances held at once


def neighbourhood_map(graph: Graph, distances: Distances | ArrayLike, nodes: NDArray[np.int64] | None = None) -> float:
    """Mean average precision with which the nearest nodes of a node are its neighbours in the graph.

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
    """`neighbourhood_map`, and the mean rank of a neighbour among nodes that are none: 1 if none of these is nearer.

    The mean is over all neighbours of all nodes; arguments as there.

    References:
        Nickel and Kiela (2017), Poincaré embeddings for learning hierarchical representations, section 4.

    Example:
        >>> path = Graph(np.array(["a", "b", "c"]), np.array([[0, 1]]))
        >>> neighbourhood_ranks(path, np.array([[0.0, 2.0, 1.0], [2.0, 0.0, 1.0], [1.0, 1.0, 0.0]]))
        (0.5, 2.0)
    """
    if not graph.n_edges:
        raise CurvaeError("a graph without edges has no neighbourhoods; give one with edges")
    chosen = np.arange(graph.n_nodes) if nodes is None else nodes
    adjacency = graph.links()
    if not np.diff(adjacency.indptr)[chosen].any():
        raise CurvaeError("none of the chosen nodes has a neighbour; choose nodes with edges")
    given: Any = distances if callable(distances) else np.asarray(distances)
    step = max(1, _BLOCK // graph.n_nodes)
    precisions, ranks = [], []
    for start in range(0, len(chosen), step):
        stop = min(start + step, len(chosen))
        block = np.asarray(given(start, stop) if callable(distances) else given[start:stop])
        if block.shape != (stop - start, graph.n_nodes):
            raise CurvaeError(f"distances of shape {block.shape} for rows {start} to {stop}; give one column per node")
        if np.isnan(block).any():
            raise CurvaeError("distances are not numbers; the model has diverged: lower the learning rate")
        for node, row in zip(chosen[start:stop], block, strict=True):
            neighbours = adjacency.indices[adjacency.indptr[node] : adjacency.indptr[node + 1]]
            if len(neighbours):
                precisions.append(average_precision(row, node, neighbours))
                ranks.append(_ranks(row, node, neighbours))
    return float(np.mean(precisions)), float(np.concatenate(ranks).mean())


def _ranks(row: Array, node: int, neighbours: NDArray[np.integer]) -> NDArray[np.int64]:
    """Rank of every neighbour among the points that are none, from 1."""
    others = np.ones(len(row), dtype=bool)
    others[neighbours] = others[node] = False
    return 1 + np.searchsorted(np.sort(row[others]), row[neighbours])


def average_precision(row: Array, node: int, neighbours: NDArray[np.integer]) -> float:
    """Precision with which the points nearest to one of them are its neighbours.

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
