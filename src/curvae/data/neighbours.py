"""Graphs of nearest neighbours: rows are linked if one is among the nearest of the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

__all__ = ["Bridge", "bridged", "graph_of_table", "neighbour_graph"]

Bridge = Callable[[NDArray[np.bool_]], tuple[int, int, float]]
"""From a mask of some rows to the shortest link of one of them to another row: the two ends and its length."""


def neighbour_graph(index: NDArray[Any], distances: NDArray[Any]) -> csr_array:
    """Symmetric graph in which rows are linked if one is among the nearest of the other, with distances as lengths.

    Rows that are equal get the smallest positive length, since a length of 0 would be no link.

    Arguments:
        index: the nearest other rows of every row, (rows, k).
        distances: to them, likewise.
    """
    rows, k = index.shape
    lengths = np.maximum(distances, np.finfo(np.float64).tiny)
    graph = csr_array((lengths.ravel(), index.ravel(), np.arange(0, rows * k + 1, k)), (rows, rows))
    return csr_array(graph.maximum(graph.T))


def bridged(graph: csr_array, bridge: Bridge) -> csr_array:
    """The graph with bridges between its components: of each to the rest, until all are one.

    The shortest bridge of a component belongs to the shortest tree that joins all of them, and so these are the bridges
    of that tree.
    """
    while (found := connected_components(graph, directed=False))[0] > 1:
        count, component = found
        largest = np.bincount(component).argmax()
        first, second, lengths = zip(*(bridge(component == one) for one in range(count) if one != largest), strict=True)
        added = np.maximum(lengths, np.finfo(np.float64).tiny)
        bridges = csr_array((added, (np.array(first), np.array(second))), graph.shape)
        graph = csr_array(graph.maximum(bridges).maximum(bridges.T))
    return graph


def graph_of_table(distances: NDArray[np.float64], neighbours: int) -> csr_array:
    """`neighbour_graph` with bridges, given the distances between all rows, (rows, rows).

    Example:
        >>> places = np.array([0.0, 1.0, 5.0, 7.0])
        >>> graph_of_table(abs(places - places[:, None]), 1).toarray()
        array([[0., 1., 0., 0.],
               [1., 0., 4., 0.],
               [0., 4., 0., 2.],
               [0., 0., 2., 0.]])
    """
    apart = distances.copy()
    np.fill_diagonal(apart, np.inf)
    k = min(neighbours, len(apart) - 1)
    index = np.argpartition(apart, k - 1, axis=1)[:, :k]

    def bridge(inside: NDArray[np.bool_]) -> tuple[int, int, float]:
        between = apart[np.ix_(inside, ~inside)]
        a, b = np.unravel_index(int(between.argmin()), between.shape)
        return np.flatnonzero(inside)[a], np.flatnonzero(~inside)[b], between[a, b]

    return bridged(neighbour_graph(index, np.take_along_axis(apart, index, 1)), bridge)
