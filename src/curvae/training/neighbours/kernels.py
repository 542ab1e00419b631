"""Nearness and distance of rows in a graph of neighbours."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import dijkstra
from scipy.special import xlogy

__all__ = ["affinities", "draws", "landmark_paths"]

_SEARCH = 40  # halvings of the interval in which a scale is looked for
_AT_ONCE = 10_000_000  # lengths of paths in double precision


def affinities(index: NDArray[np.int64], distances: NDArray[np.float64], perplexity: float) -> sparse.csr_array:
    """Probabilities with which rows choose others as neighbours, (rows, rows), sparse.

    Row i chooses j among its nearest with a chance that falls as exp(−d²/2σ_i²), σ_i such that the choice is as
    uncertain as one among `perplexity` equal rows; entry ij is the mean of the chances that i chooses j and j chooses i
    (van der Maaten and Hinton, 2008, Visualizing data using t-SNE).

    Arguments:
        index, distances: of the nearest rows of every row, (rows, k).
        perplexity: less than k.
    """
    rows, k = index.shape
    squares = distances**2
    squares -= squares.min(1, keepdims=True)
    squares /= np.maximum(squares.mean(1, keepdims=True), np.finfo(np.float64).tiny)
    wanted = np.log(min(perplexity, k))
    low, high = np.full((rows, 1), -50.0), np.full((rows, 1), 50.0)  # of the logarithm of 1/2σ²
    for _ in range(_SEARCH):
        middle = (low + high) / 2
        chances = np.exp(-np.exp(middle) * squares)
        chances /= chances.sum(1, keepdims=True)
        entropy = -xlogy(chances, chances).sum(1, keepdims=True)
        low, high = np.where(entropy > wanted, middle, low), np.where(entropy > wanted, high, middle)
    one_way = sparse.csr_array((chances.ravel(), index.ravel(), np.arange(0, rows * k + 1, k)), (rows, rows))
    return sparse.csr_array((one_way + one_way.T) / 2)


def draws(chances: sparse.csr_array, count: int, seed: int = 0) -> NDArray[np.int32]:
    """`count` columns for every row, (rows, count), each drawn with a chance in proportion to its entry."""
    rows = chances.shape[0]
    ends = np.cumsum(chances.data)
    bounds = np.concatenate([[0.0], ends])[chances.indptr]
    draw, found = np.random.default_rng(seed), np.empty((rows, count), np.int32)
    for i in range(count):
        places = np.searchsorted(ends, bounds[:-1] + draw.random(rows) * np.diff(bounds), side="right")
        found[:, i] = chances.indices[np.clip(places, chances.indptr[:-1], chances.indptr[1:] - 1)]
    return found


def landmark_paths(graph: sparse.csr_array, count: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Landmarks, drawn at random, and the lengths of shortest paths from every row to each of them, (rows, landmarks),
    in units of their mean.

    The graph is connected. If `count` is the number of rows, all of them are landmarks, in their order. Landmarks that
    lie as far apart as can be would be the outliers of the data, and the map would be made for these.
    """
    rows = graph.shape[0]
    marks = np.sort(np.random.default_rng(0).permutation(rows)[:count])
    paths = np.empty((rows, len(marks)), np.float32)
    for some in np.array_split(np.arange(len(marks)), math.ceil(rows * len(marks) / _AT_ONCE)):
        paths[:, some] = dijkstra(graph, indices=marks[some]).T
    return marks, paths / max(float(paths.mean(dtype=np.float64)), np.finfo(np.float32).tiny)
