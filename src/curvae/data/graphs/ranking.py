"""How well distances tell who is near whom."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import CurvaeError
from .graph_data import Graph

__all__ = ["average_precision", "neighbourhood_map"]

Array = NDArray[np.float64]
Distances = Callable[[int, int], ArrayLike]

_BLOCK = 1 << 22  # distances held at once


def neighbourhood_map(graph: Graph, distances: Distances | ArrayLike, nodes: NDArray[np.int64] | None = None) -> float:
    """Mean average precision with which the nearest nodes of a node are its neighbours in the graph.

    For each neighbour the precision is the share of neighbours among the nodes that lie no farther; it is averaged over
    the neighbours of a node, then over nodes that have any. 1 means that all neighbours come first.

    References:
        Sala et al. (2018), Representation tradeoffs for hyperbolic embeddings, section 2.

    Arguments:
        graph: whose edges are to be found again.
        distances: from the nodes asked about to all nodes, or a function that takes the first and the last but one of
            these rows and gives them, so that not all must be held at once.
        nodes: places of the nodes to ask about, all by default; the mean is over those of them that have neighbours.

    Example:
        >>> path = Graph(np.array(["a", "b", "c"]), np.array([[0, 1], [1, 2]]))
        >>> places = np.array([0.0, 1.0, 2.0])
        >>> neighbourhood_map(path, lambda start, stop: abs(places[start:stop, None] - places))
        1.0
    """
    if not graph.n_edges:
        raise CurvaeError("a graph without edges has no neighbourhoods; give one with edges")
    asked = np.arange(graph.n_nodes) if nodes is None else nodes
    adjacency = graph.adjacency()
    if not np.diff(adjacency.indptr)[asked].any():
        raise CurvaeError("none of the nodes asked about has a neighbour; choose nodes with edges")
    rows: Distances = distances if callable(distances) else _rows(distances)
    step = max(1, _BLOCK // graph.n_nodes)
    precisions = []
    for start in range(0, len(asked), step):
        stop = min(start + step, len(asked))
        block = np.asarray(rows(start, stop))
        if block.shape != (stop - start, graph.n_nodes):
            raise CurvaeError(f"distances of shape {block.shape} for rows {start} to {stop}; give every node a column")
        if np.isnan(block).any():
            raise CurvaeError("distances are not numbers; the model has diverged: lower the learning rate")
        for node, row in zip(asked[start:stop], block, strict=True):
            neighbours = adjacency.indices[adjacency.indptr[node] : adjacency.indptr[node + 1]]
            if len(neighbours):
                precisions.append(average_precision(row, node, neighbours))
    return float(np.mean(precisions))


def _rows(distances: ArrayLike) -> Distances:
    table = np.asarray(distances)
    return lambda start, stop: table[start:stop]


def average_precision(row: Array, node: int, neighbours: NDArray[np.integer]) -> float:
    """Precision with which the points nearest to one of them are its neighbours.

    Arguments:
        row: distances of the point to all.
        node: its place among them.
        neighbours: places of the neighbours.

    Example:
        >>> average_precision(np.array([0.0, 1.0, 2.0, 3.0]), 0, np.array([1, 3]))
        0.8333333333333333
    """
    near = np.sort(row[neighbours])
    # How many nodes lie no farther than each neighbour: without those beyond the last, and without the node itself.
    place = np.searchsorted(near, row[row <= near[-1]])
    seen = np.cumsum(np.bincount(place, minlength=len(near))) - (row[node] <= near)
    found = np.searchsorted(near, near, side="right")
    return float(np.mean(found / seen))
