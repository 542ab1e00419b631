"""Nearness and distance of rows in a graph of neighbours."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import dijkstra

__all__ = ["forest", "landmark_paths", "walk_ends"]

_WALKERS = 1 << 24  # random walks at once


def forest(graph: sparse.csr_array) -> NDArray[np.float32]:
    """(I + L)⁻¹ of the graph whose edges all count 1: the relative forest accessibilities, (rows, rows).

    Entry ij is the probability that a random walk from i, which at every node stops with the chance 1/(1 + degree),
    ends in j.
    """
    links = (graph > 0).toarray().astype(np.float64)
    return np.linalg.inv(np.diag(1.0 + links.sum(1)) - links).astype(np.float32)


def walk_ends(graph: sparse.csr_array, count: int, seed: int = 0) -> NDArray[np.int32]:
    """Where `count` random walks from every row end, (rows, count): draws from the rows of `forest`."""
    starts, links = graph.indptr.astype(np.int64), graph.indices.astype(np.int32)
    degree = np.diff(starts).astype(np.int32)
    draw, rows = np.random.default_rng(seed), graph.shape[0]
    ends = np.empty((rows, count), np.int32)
    size = max(1, _WALKERS // count)
    for first in range(0, rows, size):
        last = min(rows, first + size)
        place = np.repeat(np.arange(first, last, dtype=np.int32), count)
        going = np.arange(len(place))
        while len(going):
            at = place[going]
            # One of 1 + degree ways on: to stay for good, or to one of the neighbours.
            way = (draw.random(len(at), np.float32) * (degree[at] + 1)).astype(np.int32)
            moves = way < degree[at]
            going, at, way = going[moves], at[moves], way[moves]
            place[going] = links[starts[at] + way]
        ends[first:last] = place.reshape(-1, count)
    return ends


def landmark_paths(graph: sparse.csr_array, count: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Landmarks, each as far as can be from those before it, and the lengths of shortest paths from every row to each
    of them, (rows, landmarks), in units of their mean.

    The graph is connected. If `count` is the number of rows, all of them are landmarks, in their order.
    """
    rows = graph.shape[0]
    if count >= rows:
        marks, paths = np.arange(rows), dijkstra(graph)
        return marks, (paths / max(paths.mean(), np.finfo(np.float64).tiny)).astype(np.float32)
    paths = np.empty((rows, count), np.float32)
    marks = np.zeros(count, np.int64)
    nearest = dijkstra(graph, indices=0)
    for i in range(count):
        marks[i] = nearest.argmax()
        own = dijkstra(graph, indices=marks[i])
        paths[:, i] = own
        nearest = np.minimum(nearest, own) if i else own
    return marks, paths / max(float(paths.mean(dtype=np.float64)), np.finfo(np.float32).tiny)
