"""The nearest neighbours of some rows, and bridges between those that are far from each other."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...data.neighbours import Bridge

__all__ = ["Points", "bridge_between", "nearest"]

Points = NDArray[np.float32]

# Rows to which all pairs are looked at on a CPU: by blocks, for whose sake no library is imported; and if there is one
# that need not.
_FEW, _EXACT = 10_000, 50_000
_BLOCK = {"cpu": 1 << 22, "cuda": 1 << 28}  # numbers in a block of distances
_BRIDGED, _REST = 512, 20_000  # rows of a component, and of the others, between which a bridge is looked for


def nearest(x: Points, k: int, device: torch.device) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The k nearest other rows of every row, and their distances, each (rows, k); in no particular order."""
    if device.type == "cuda":
        return _by_blocks(torch.from_numpy(x).to(device), k)
    if len(x) <= _FEW:
        return _by_blocks(torch.from_numpy(x).double(), k)
    if len(x) > _EXACT and (found := _approximate(x, k)) is not None:
        return found
    from sklearn.neighbors import NearestNeighbors  # takes long to import

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
    square, size = (x * x).sum(1), max(1, _BLOCK[x.device.type] // len(x))
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


def bridge_between(x: Points) -> Bridge:
    """Finds bridges between components; in large tables, their ends among some of the rows."""
    draw, count = np.random.default_rng(0), len(x)
    some = np.arange(count) if count <= _REST else np.sort(draw.choice(count, _REST, replace=False))
    sampled = some, _with_squares(x[some])

    def bridge(inside: NDArray[np.bool_]) -> tuple[int, int, float]:
        own = np.flatnonzero(inside)
        few = count > _REST >= count - len(own)  # of the others: each of them is looked at
        own = own if len(own) <= _BRIDGED else draw.choice(own, _BRIDGED, replace=False)
        rest, points = (outside := np.flatnonzero(~inside), _with_squares(x[outside])) if few else sampled
        rows = _with_squares(x[own])
        size = rows[:, -1].copy()
        rows *= -2.0
        rows[:, -1] = 1.0
        far = rows @ points.T  # |b|² − 2a·b: what is left of |a − b|², in one product
        far[:, inside[rest]] = np.inf
        nearest_of = far.argmin(1)
        best = int((far[np.arange(len(own)), nearest_of] + size).argmin())
        ends = int(own[best]), int(rest[nearest_of[best]])
        return *ends, float(np.linalg.norm(x[ends[0]].astype(np.float64) - x[ends[1]]))

    return bridge


def _with_squares(rows: Points) -> NDArray[np.float64]:
    """Rows in double precision, and their squared lengths as a further column."""
    exact = rows.astype(np.float64)
    return np.column_stack([exact, np.einsum("ij,ij->i", exact, exact)])
