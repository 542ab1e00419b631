"""The one projection of a latent space of many dimensions to the disc, with what it loses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from torch import Tensor

from ..errors import CurvaeError
from ..geometry import PoincareBall
from .disc import Points, as_number, tensor

__all__ = ["Projection", "project_to_disc"]

_PAIRS = 2000
_ALL_PAIRS = 300  # up to so many points all pairs are compared
_MEAN_OF = 5000  # the Fréchet mean of more points costs memory and moves nothing that can be seen


@dataclass(frozen=True)
class Projection:
    """Points brought to the disc.

    Arguments:
        points: what was projected, shape (N, 2), ball coordinates.
        kept: Spearman's rank correlation between the distances before and after.
        sentence: what was done and what it kept, for the reader of the picture.
        c: minus the curvature.
        centre: the point that was moved to 0, shape (d,).
        axes: the two directions kept, as columns, shape (d, 2).
    """

    points: Tensor
    kept: float
    sentence: str
    c: float
    centre: Tensor
    axes: Tensor

    def apply(self, points: Points) -> Tensor:
        """Further points, of shape (…, d), projected the same way."""
        z = _checked(points, self.c)
        d = len(self.centre)
        if z.shape[-1] != d:
            raise CurvaeError(f"the projection was made for {d} dimensions, got points of shape {tuple(z.shape)}")
        # One or two dimensions are shown as they are: the radius means something.
        return (
            z @ self.axes if d <= 2 else PoincareBall(2, self.c).expmap0(_tangent(z, self.centre, self.c) @ self.axes)
        )


def project_to_disc(points: Points, c: Tensor | float) -> Projection:
    """Bring ball points of any dimension to the disc of the same curvature.

    Two dimensions stay untouched and one becomes the horizontal axis. With more, the Fréchet mean is moved to 0, the
    points go to the tangent space there by log_0, are turned to their two principal directions, and return by exp_0.

    Arguments:
        points: ball coordinates, shape (N, d).
        c: minus the curvature.

    Example:
        >>> ball = PoincareBall(5, 1.0)
        >>> x = ball.random(200, generator=torch.Generator().manual_seed(0))
        >>> projection = project_to_disc(x, 1.0)
        >>> projection.points.shape, round(projection.kept, 2)
        (torch.Size([200, 2]), 0.65)
    """
    c = as_number(c)
    z = _checked(points, c)
    if z.dim() != 2 or not z.numel():
        raise CurvaeError(f"points to project must have shape (N, d) with N and d at least 1, got {tuple(z.shape)}")
    n, d = z.shape
    if d <= 2:
        axes = torch.eye(d, 2, dtype=z.dtype)
        sentence = (
            "the two latent dimensions as they are" if d == 2 else "the one latent dimension, on the horizontal axis"
        )
        return Projection(z @ axes, 1.0, sentence, c, z.new_zeros(d), axes)
    some = z if n <= _MEAN_OF else z[np.random.default_rng(0).choice(n, _MEAN_OF, replace=False)]
    centre = PoincareBall(d, c).frechet_mean(some)
    v = _tangent(z, centre, c)
    variance, directions = torch.linalg.eigh(v.T @ v / n)
    axes = directions[:, [-1, -2]]
    # The sign of an eigenvector is arbitrary; its largest entry is made positive.
    axes = axes * torch.take_along_dim(axes, axes.abs().argmax(0, keepdim=True), 0).sign()
    projected = PoincareBall(2, c).expmap0(v @ axes)
    share = float(variance[-2:].sum() / variance.sum()) if variance.sum() > 0 else 1.0
    kept = _rank_correlation(z, projected, c)
    sentence = (
        f"projected from {d} dimensions: {100 * share:.0f} % of the variance at the origin kept, "
        f"rank correlation of distances {kept:.2f}"
    )
    return Projection(projected, kept, sentence, c, centre, axes)


def _checked(points: Points, c: float) -> Tensor:
    z = tensor(points)
    if z.dim() and z.numel() and not bool(PoincareBall(z.shape[-1], c).contains(z).all()):
        raise CurvaeError(
            f"some points are not finite or lie outside the ball c·|z|² < 1 with c = {c:g}; give ball coordinates"
        )
    return z


def _tangent(z: Tensor, centre: Tensor, c: float) -> Tensor:
    """log_0 of the points after the centre was moved to 0: log at the centre, transported from there."""
    ball = PoincareBall(len(centre), c)
    return ball.logmap(centre, z) * ball.lambda_x(centre) / 2  # λ_0 = 2


def _rank_correlation(before: Tensor, after: Tensor, c: float) -> float:
    n = len(before)
    i, j = np.triu_indices(n, 1) if n <= _ALL_PAIRS else _random_pairs(n)
    x, y = (PoincareBall(z.shape[-1], c).dist(z[i], z[j]).numpy() for z in (before, after))
    if not len(x) or np.ptp(x) == 0 or np.ptp(y) == 0:
        # Ranks that are all equal have no correlation: either nothing was lost or everything.
        return float(np.allclose(x, y))
    return float(spearmanr(x, y).statistic)


def _random_pairs(n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    i = np.random.default_rng(0).integers(0, n, _PAIRS)
    return i, (i + np.random.default_rng(1).integers(1, n, _PAIRS)) % n
