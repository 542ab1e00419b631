"""How well a map shows a known tree, in three figures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from ..data import Tree

__all__ = ["MEASURES", "average_distortion", "depth_correlation", "distance_correlation", "recovery"]

MEASURES = ("distortion", "distance_correlation", "depth_correlation")

Array = NDArray[np.float64]
Rows = NDArray[np.intp]


def average_distortion(latent: Array, tree: Array) -> float:
    """The mean of |s·latent − tree|/tree over pairs, with the scale s that makes it least.

    Example:
        >>> average_distortion(np.array([2.0, 4.0]), np.array([1.0, 2.0]))
        0.0
    """
    ratio = latent / tree
    # Σ|s·ratio − 1| is least where s is the median of 1/ratio with weights ratio.
    order = np.argsort(-ratio)
    weight = np.cumsum(ratio[order])
    chosen = ratio[order[np.searchsorted(weight, weight[-1] / 2)]]
    return float(np.abs(ratio / chosen - 1).mean()) if chosen else 1.0


def distance_correlation(latent: Array, tree: Array) -> float:
    """Spearman's correlation of distances on the map and in the tree."""
    return float(spearmanr(latent, tree).statistic) if np.ptp(latent) else 0.0


def depth_correlation(radius: Array, depth: Array) -> float:
    """Spearman's correlation of the distance from the origin and the depth in the tree."""
    return float(spearmanr(radius, depth).statistic) if np.ptp(radius) else 0.0


def recovery(tree: Tree, distance: Callable[[Rows, Rows], Array], radius: Array) -> dict[str, float]:
    """The three figures of a map of a tree's observations.

    Pairs are those of different nodes in the same turn: first observations with first ones, and so on.

    Arguments:
        tree: the truth; every node has equally many observations.
        distance: on the map, between rows and other rows.
        radius: distance of every row from the origin of the map.
    """
    nodes = len(tree.parent)
    turns = np.argsort(tree.node, kind="stable").reshape(nodes, -1).T
    a, b = np.triu_indices(nodes, 1)
    latent = distance(turns[:, a].ravel(), turns[:, b].ravel())
    hops = np.tile(tree.distances()[a, b], len(turns)).astype(np.float64)
    return {
        "distortion": average_distortion(latent, hops),
        "distance_correlation": distance_correlation(latent, hops),
        "depth_correlation": depth_correlation(radius, tree.depth[tree.node].astype(np.float64)),
    }
