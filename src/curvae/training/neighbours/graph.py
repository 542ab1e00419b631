"""The graph of nearest neighbours of some rows."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

__all__ = ["bridged", "nearest", "neighbour_graph"]

Points = NDArray[np.float32]

_EXACT = 50_000  # rows to which all pairs are looked at on a CPU, if there is a library that need not
_BLOCK = 1 << 28  # numbers in a block of distances on CUDA
_BRIDGED, _REST = 512, 20_000  # rows of a component, and of the others, between which a bridge is looked for


def nearest(x: Points, k: int, device: torch.device) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The k nearest other rows of every row, and their distances, each (rows, k); in no particular order."""
    if device.type == "cuda":
        return _by_blocks(torch.from_numpy(x).to(device), k)
    if len(x) > _EXACT and (found := _approximate(x, k)) is not None:
        return found
    distances, index = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(x).kneighbors()
    return index.astype(np.int64), distances.astype(np.float64)


def _approximate(x: Points, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]] | None:
    try:
        from pynndescent import NNDescent  # type: ignore[import-not-found]
    except ImportError:
        return None
    index, distances = NNDescent(x, n_neighbors=k + 1, random_state=0).neighbor_graph
    # A row is not always found as the first of its own neighbours.
    own = index == np.arange(len(x))[:, None]
    own[~own.any(1), -1] = True
    return index[~own].reshape(len(x), k).astype(np.int64), distances[~own].reshape(len(x), k).astype(np.float64)


def _by_blocks(x: Tensor, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    square, size = (x * x).sum(1), max(1, _BLOCK // len(x))
    index, distances = [], []
    for start in range(0, len(x), size):
        block = x[start : start + size]
        far = torch.addmm(square, block, x.T, alpha=-2.0)
        places = torch.arange(len(block), device=x.device)
        far[places, places + start] = torch.inf
        found = far.topk(k, 1, largest=False).indices
        index.append(found.cpu())
        distances.append((x[found] - block[:, None]).double().norm(dim=2).cpu())
    return torch.cat(index).numpy(), torch.cat(distances).numpy()


def neighbour_graph(index: NDArray[np.int64], distances: NDArray[np.float64]) -> sparse.csr_array:
    """The symmetric graph in which rows are joined if one is among the nearest of the other, with distances as lengths.

    Rows that are equal have the smallest positive length, since a length of 0 would be no edge.
    """
    rows, k = index.shape
    lengths = np.maximum(distances, np.finfo(np.float64).tiny)
    graph = sparse.csr_array((lengths.ravel(), index.ravel(), np.arange(0, rows * k + 1, k)), (rows, rows))
    return sparse.csr_array(graph.maximum(graph.T))


def bridged(graph: sparse.csr_array, x: Points) -> sparse.csr_array:
    """The graph with bridges between parts that are not connected: of each to its nearest, until all are one.

    In large parts the ends of a bridge are looked for among some of the rows.
    """
    draw = np.random.default_rng(0)
    while (found := connected_components(graph, directed=False))[0] > 1:
        count, part = found
        largest = np.bincount(part).argmax()
        ends = [_bridge(x, part == one, draw) for one in range(count) if one != largest]
        a, b, lengths = (np.concatenate(values) for values in zip(*ends, strict=True))
        bridges = sparse.csr_array((lengths, (a, b)), graph.shape)
        graph = sparse.csr_array(graph.maximum(bridges).maximum(bridges.T))
    return graph


def _bridge(x: Points, inside: NDArray[np.bool_], draw: np.random.Generator) -> tuple[NDArray[np.generic], ...]:
    own, rest = (
        one if len(one) <= most else draw.choice(one, most, replace=False)
        for one, most in ((np.flatnonzero(inside), _BRIDGED), (np.flatnonzero(~inside), _REST))
    )
    distances, index = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(x[rest]).kneighbors(x[own])
    best = distances[:, 0].argmin()
    length = max(float(distances[best, 0]), np.finfo(np.float64).tiny)
    return own[[best]], rest[index[best]], np.array([length])
