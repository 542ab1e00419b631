"""How maps are turned to be drawn, and where several trainings place the same rows.

The coordinates of a model stay as they are; a map is only seen from a `Frame`. Its likelihood does not change with an
isometry of the latent space, so a seed decides how a map is turned, and a rule must.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from ..data.dataset import Scaling
from ..geometry.frames import Frame
from ..models.likelihoods.base import Matrix
from .embedding import Embedding, PlacedFactor, by_factor
from .statistics import Array, principal_axes

__all__ = [
    "AlignedMaps",
    "align_maps",
    "frames_from_json",
    "frames_to_json",
    "orient",
    "principal_scores",
    "sampled_rows",
    "seen_radius",
]

_ROWS = 5000  # by which maps are turned; more move nothing that can be seen


def sampled_rows(count: int) -> NDArray[np.intp]:
    """Those of `count` rows by which maps are turned, the same for every seed."""
    return np.sort(np.random.default_rng(0).permutation(count)[:_ROWS])


def principal_scores(x: Matrix) -> Array:
    """Return the first two principal components of rows, (rows, 2), from columns of unit variance; 0 where there are
    fewer.

    Missing values count as the mean of their column.
    """
    scaling = Scaling.standard(x)
    if sparse.issparse(x) and min(x.shape) > 3:
        from sklearn.decomposition import PCA  # takes long to import

        scaled = sparse.csr_array(x.multiply(1 / scaling.scale))
        found = PCA(2, svd_solver="arpack", random_state=0).fit_transform(scaled)
    else:
        scaled = np.nan_to_num(scaling.apply(x.toarray() if sparse.issparse(x) else x))
        found = principal_axes(scaled, 2).place(scaled)
    return np.pad(found, ((0, 0), (0, 2 - found.shape[1])))


def orient(embedding: Embedding, rows: NDArray[np.intp], scores: Array, root: int | None = None) -> tuple[Frame, ...]:
    """Return the frames from which the factors of a map are drawn; see `picture_frame`.

    Arguments:
        embedding: the map.
        rows: which of its rows have scores.
        scores: of these, (·, 2), `principal_scores` for example.
        root: the row in the middle; the Fréchet mean by default.
    """
    frames = []
    for part in embedding.parts:
        centre = None if root is None else part.points[root].clone()
        frames.append(part.chart.frame(part.points[torch.from_numpy(rows)], torch.from_numpy(scores), centre))
    return tuple(frames)


def seen_radius(embedding: Embedding, frames: Sequence[Frame]) -> Array:
    """Distances of rows from the centres of the frames, (rows,); of a product in the units of its factors."""
    centres = np.concatenate([frame.centre.numpy() for frame in frames])[None]
    centre = Embedding(centres, np.ones((1, len(frames)) if len(frames) > 1 else 1), embedding.placed)
    return embedding.distances(centre)[:, 0]


def frames_to_json(frames: Sequence[Frame]) -> list[dict[str, Any]]:
    """Return what `frames_from_json` reads."""
    return [{"centre": one.centre.tolist(), "axes": one.axes.tolist()} for one in frames]


def frames_from_json(stored: Sequence[Mapping[str, Any]], factors: Sequence[PlacedFactor]) -> tuple[Frame, ...]:
    """Return the frames of the factors; raise ValueError if they have other dimensions."""
    frames = []
    for one, factor in zip(stored, factors, strict=True):
        centre, axes = (torch.tensor(one[name], dtype=torch.float64) for name in ("centre", "axes"))
        if centre.shape != (width := factor.chart.width,) or axes.shape != (width, 2):
            raise ValueError("its orientation has other dimensions than the map")
        frames.append(Frame(centre, axes, factor.c))
    return tuple(frames)


@dataclass(frozen=True)
class AlignedMaps:
    """Maps of the same rows, brought onto the first by the best isometry of every factor.

    Arguments:
        copies: the places of every row in the coordinates of the first map, (maps, rows, d).
        spread: root mean square of the distances of the places of a row from their Fréchet mean, (rows,).
        first: the map onto which the others were brought.
    """

    copies: Array
    spread: Array
    first: Embedding

    @property
    def parts(self) -> list[Array]:
        """The copies in every factor."""
        return by_factor(self.copies, self.first.placed)


def align_maps(maps: Sequence[Embedding]) -> AlignedMaps | None:
    """Bring maps of the same rows onto the first; None if no other has its curvatures, since no isometry leads there.

    Example:
        >>> place = np.random.default_rng(0).normal(size=(20, 2))
        >>> found = align_maps([Embedding(place, np.ones(20), 1.0), Embedding(-place, np.ones(20), 1.0)])
        >>> bool(found.spread.max() < 1e-9)
        True
    """
    first = maps[0]
    curvatures = [factor.c for factor in first.placed]
    others = [one for one in maps[1:] if [factor.c for factor in one.placed] == curvatures]
    if not others:
        return None
    rows = torch.from_numpy(sampled_rows(len(first)))
    copies, squares = [], np.zeros(len(first))
    for place, factor in enumerate(first.placed):
        own, *spaces = (one.parts[place].points for one in (first, *others))
        copies.append(torch.stack([own, *(factor.chart.align(one, own, rows) for one in spaces)]))
        unit = factor.unit if len(first.placed) > 1 else 1.0
        squares += factor.chart.mean_squares(copies[-1]).numpy() / unit**2
    return AlignedMaps(torch.cat(copies, 2).numpy(), np.sqrt(squares), first)
