"""A tree read off an embedding, and the distances of embedded points.

Two geodesics from the origin keep together and then part; the Gromov product (x|y)_0 = (r_x + r_y − d(x, y))/2 is, up
to a constant of the space, how far they keep together: the depth of the lowest common ancestor. Points are joined by
average linkage of these depths, deepest first, and a joint lies at the mean depth of the pairs that it joins.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage

from ..errors import CurvaeError
from ..geometry import PoincareBall
from ..training.embedding import Embedding
from .trees import Array, Index, NamedTree

__all__ = ["Embedded", "joined", "tree_of_embedding"]

_BLOCK = 1 << 20  # pairs measured at once
_MOST = 10_000  # points that are joined to a tree


class Embedded(Embedding):
    """Points of a latent space, for which a tree may be known.

    Arguments:
        ball: coordinates in the Poincaré ball, (points, d), float64.
        c: minus the curvature.

    Example:
        >>> points = Embedded(np.array([[0.5, 0.0], [0.0, 0.5]]), 1.0)
        >>> points.pairs(np.array([0]), np.array([1])).round(4).tolist()
        [1.6807]
    """

    def __init__(self, ball: Array, c: float) -> None:
        manifold, points = PoincareBall(ball.shape[1], c), torch.tensor(ball)
        manifold.check(points)
        super().__init__(manifold.to_lorentz(points).numpy(), np.zeros(len(ball)), c)


def joined(points: Embedding) -> tuple[Array, Array]:
    """Points joined by the depth of their lowest common ancestors: merges as scipy gives them, and their depths."""
    size = len(points)
    product = np.empty(size * (size - 1) // 2)
    start = 0
    for rows in np.array_split(np.arange(size - 1), max(1, len(product) // _BLOCK)):
        first = np.repeat(rows, size - 1 - rows)
        second = np.concatenate([np.arange(row + 1, size) for row in rows])
        stop = start + len(first)
        product[start:stop] = (points.radius[first] + points.radius[second] - points.pairs(first, second)) / 2
        start = stop
    top = float(product.max())
    merges = linkage(top - product, "average")
    return merges, top - merges[:, 2]


def tree_of_embedding(points: Embedding, names: NDArray[np.str_], seed: int = 0, most: int = _MOST) -> NamedTree:
    """A tree whose leaves are the points; edges have lengths in units of the space.

    With more than `most` points a tree is made of so many drawn at random, and every other point hangs beside the
    nearest of them.

    Arguments:
        points: embedded.
        names: of the points.
        seed: of the draw.
        most: points that are joined.

    Example:
        >>> places = Embedded(np.array([[0.9, 0.1], [0.9, -0.1], [-0.5, 0.0]]), 1.0)
        >>> tree = tree_of_embedding(places, np.array(["a", "b", "c"]))
        >>> tree.names.tolist(), tree.parent.tolist()
        (['', 'c', '', 'a', 'b'], [-1, 0, 0, 2, 2])
    """
    if len(points) < 2:
        raise CurvaeError("a tree needs at least two points; give more rows")
    chosen = np.sort(np.random.default_rng(seed).permutation(len(points))[:most])
    merges, depth = joined(points.take(chosen))
    size = len(chosen)
    parent = np.full(2 * size - 1, -1, dtype=np.intp)
    parent[merges[:, :2].astype(np.intp)] = np.arange(size, 2 * size - 1)[:, None]
    below = np.concatenate([points.radius[chosen], depth])
    # A mean over pairs may lie a little deeper than one of its points.
    length = np.where(parent < 0, 0.0, np.maximum(below - below[parent], 0.0))
    labels = np.concatenate([names[chosen], np.full(size - 1, "")])
    if len(rest := np.setdiff1d(np.arange(len(points)), chosen)):
        parent, length, labels = _hang(points, names, rest, chosen, parent, length, labels)
    return NamedTree.ordered(labels, parent, length)


def _hang(
    points: Embedding,
    names: NDArray[np.str_],
    rest: Index,
    chosen: Index,
    parent: Index,
    length: Array,
    labels: NDArray[np.str_],
) -> tuple[Index, Array, NDArray[np.str_]]:
    """Hang the rest beside the nearest of the chosen, whose leaf makes room for a joint above both."""
    step = max(1, _BLOCK // len(chosen))
    nearest, gap = np.empty(len(rest), dtype=np.intp), np.empty(len(rest))
    for start in range(0, len(rest), step):
        part = rest[start : start + step]
        table = points.pairs(np.repeat(part, len(chosen)), np.tile(chosen, len(part))).reshape(len(part), -1)
        nearest[start : start + step], gap[start : start + step] = table.argmin(1), table.min(1)
    hosts, code = np.unique(nearest, return_inverse=True)
    joints = len(parent) + np.arange(len(hosts))
    # The joint takes the place of the leaf, which hangs from it at no distance.
    moved = np.concatenate([parent, parent[hosts], joints[code]])
    lengths = np.concatenate([length, length[hosts], gap])
    moved[hosts], lengths[hosts] = joints, 0.0
    return moved, lengths, np.concatenate([labels, np.full(len(hosts), ""), names[rest]])
