"""The neighbourhoods of some rows, as the encoder of a model sees them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...data.neighbours import bridged, neighbour_graph
from ...data.principal import principal_axes
from ...errors import CurvaeError
from ...models import VAE, Likelihood
from ...settings import NeighbourKind
from ..rows import Rows
from .kernels import affinities, draws, landmark_paths
from .nearest import Points, bridge_between, nearest

__all__ = ["COMPONENTS", "Neighbourhood", "encoder_inputs", "neighbourhood"]

# Rows to which all pairs are held in memory; neighbours drawn for each row.
_ALL_PAIRS, _DRAWS = 2048, 64
_WIDER = 3  # times as many rows are looked at as count for neighbours, which come closer to all of their chances
_LANDMARKS, _PATHS = 300, 30_000_000  # landmarks, and lengths of paths, at most
# Principal components to which more columns are reduced, and numbers from which these are found.
COMPONENTS, _SEEN = 50, 200_000_000
_DENSE = 1000  # rows or columns up to which these are found from all products of them
_BLOCK = 4096
_LARGEST = 1e15  # value whose square may be summed in float32


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """Who is near whom among some rows, and how far apart they are.

    Arguments:
        near: with which probability a row chooses another, (rows, rows); None if not asked for, or of too many rows.
        drawn: positions of rows that are drawn with these probabilities, (rows, draws); None if not asked for.
        far: distances from every landmark, (rows, landmarks). None if not asked for.
        landmarks: their positions; None if all rows are landmarks, in their order.
    """

    near: NDArray[np.float32] | None
    drawn: NDArray[np.int32] | None
    far: NDArray[np.float32] | None
    landmarks: NDArray[np.int64] | None


def neighbourhood(rows: Rows, index: NDArray[np.int64], model: VAE, kind: NeighbourKind, k: int) -> Neighbourhood:
    """The neighbourhoods of some rows of the data.

    Arguments:
        rows: the data.
        index: which rows.
        model: whose encoder sees them.
        kind: what is asked for.
        k: nearest neighbours of a row, if there are so many others.
    """
    with np.errstate(over="ignore"):
        x = encoder_inputs(rows, torch.from_numpy(index).to(rows.device), model.likelihood)
    if not bool(np.abs(x).max() < _LARGEST):
        raise CurvaeError(
            f"values beyond {_LARGEST:g} are too large to tell which rows are near each other; scale them, leave "
            'standardise on, or use neighbours="off"'
        )
    count = len(x)
    k = min(k, count - 1)
    index_of, distances = nearest(x, min(_WIDER * k, count - 1) if kind != "far" else k, model.device)
    near = drawn = far = marks = None
    if kind in ("near", "both"):
        chances = affinities(index_of, distances, k)
        near, drawn = chances.toarray().astype(np.float32) if count <= _ALL_PAIRS else None, draws(chances, _DRAWS)
    if kind in ("far", "both"):
        most = count if count <= _ALL_PAIRS else min(_LANDMARKS, max(1, _PATHS // count))
        closest = np.argpartition(distances, k - 1, axis=1)[:, :k]
        graph = neighbour_graph(np.take_along_axis(index_of, closest, 1), np.take_along_axis(distances, closest, 1))
        marks, far = landmark_paths(bridged(graph, bridge_between(x)), most)
    return Neighbourhood(near, drawn, far, None if count <= _ALL_PAIRS else marks)


def encoder_inputs(rows: Rows, index: Tensor, likelihood: Likelihood) -> Points:
    """Some rows as the encoder sees them, missing entries filled in; of more than 50 columns, 50 principal components,
    which leave out much of the noise that hides who is near whom."""

    def seen(part: Tensor) -> Points:
        return likelihood.inputs(rows.batch(part)).flatten(1).float().cpu().numpy()

    width = seen(index[:1]).shape[1]
    blocks = index.split(_BLOCK)
    if width <= COMPONENTS:
        return np.concatenate([seen(block) for block in blocks])
    draw = np.random.default_rng(0).permutation(len(index))[: max(_BLOCK, _SEEN // width)]
    some = index[torch.from_numpy(np.sort(draw)).to(index.device)].split(_BLOCK)
    known = np.concatenate([seen(block) for block in some])
    place = _components(known)
    return np.concatenate([place(seen(block)).astype(np.float32) for block in blocks])


def _components(x: Points) -> Callable[[Points], NDArray[Any]]:
    """From rows to their principal components, found from some of them."""
    count = min(COMPONENTS, len(x))
    if min(x.shape) <= _DENSE:
        axes = principal_axes(x.astype(np.float64), count)
        return lambda rows: axes.place(rows.astype(np.float64))
    from sklearn.decomposition import PCA  # takes long to import

    return PCA(count, random_state=0).fit(x).transform
