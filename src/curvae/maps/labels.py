"""Labels of a reference for other rows of the same map, from the posteriors of neighbours."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import CurvaeError
from .cells import geodesic_neighbours
from .embedding import Embedding
from .statistics import Array

__all__ = ["log_overlap", "transfer_labels"]


def log_overlap(embedding: Embedding, pairs: NDArray[np.int64]) -> Array:
    """Return by how much the posteriors of pairs of rows overlap, (·, 2): the logarithm of ∫√(p·q).

    It is that of normals in flat space with their distance and standard deviations.

    Example:
        >>> place = Embedding(np.array([[0.0], [2.0]]), np.ones(2), 0.0)
        >>> log_overlap(place, np.array([[0, 0], [0, 1]]))
        array([ 0. , -0.5])
    """
    total = np.zeros(len(pairs))
    for part in embedding.parts:
        sigma = part.sigma[pairs]
        squares = (sigma**2).sum(1)
        total += part.dim / 2 * np.log(2 * sigma.prod(1) / squares) - part.distances_of(pairs) ** 2 / (4 * squares)
    return total


def transfer_labels(
    query: Embedding, reference: Embedding, labels: NDArray[np.str_], k: int = 15
) -> tuple[NDArray[np.str_], Array]:
    """Return the likeliest label of every row of a query, and its probability.

    The probability of a label is its share among the k nearest rows of the reference, weighted by the overlap of their
    posteriors with that of the row.

    Arguments:
        query, reference: places in the same space.
        labels: of the rows of the reference.
        k: how many neighbours.
    """
    if not 1 <= k <= len(reference):
        raise CurvaeError(f"`k` must lie between 1 and {len(reference):,}, the cells of the reference; got {k}")
    names, codes = np.unique(labels, return_inverse=True)
    near, _ = geodesic_neighbours(query, k, reference)
    own = np.repeat(len(reference) + np.arange(len(query)), k)
    logs = log_overlap(reference.joined(query), np.stack([own, near.ravel()], 1)).reshape(near.shape)
    weights = np.exp(logs - logs.max(1, keepdims=True))
    shares = np.zeros((len(query), len(names)))
    np.add.at(shares, (np.arange(len(query))[:, None], codes[near]), weights / weights.sum(1, keepdims=True))
    best = shares.argmax(1)
    return names[best], np.minimum(shares[np.arange(len(query)), best], 1.0)  # but for rounding
