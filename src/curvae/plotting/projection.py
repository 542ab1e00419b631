"""The one projection of a latent space of many dimensions to the disc, with what it loses."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..errors import CurvaeError
from ..geometry import Lorentz, PoincareBall
from ..geometry import hyperboloid as h
from ..geometry.frames import Frame, seen_from
from .disc import Points, as_number, tensor

__all__ = ["Projection", "project_from", "project_to_disc"]

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
        space: the points as space parts on the hyperboloid, which tell those near the rim apart, shape (N, 2).
    """

    points: Tensor
    kept: float
    sentence: str
    c: float
    centre: Tensor
    axes: Tensor
    space: Tensor

    def apply(self, points: Points) -> Tensor:
        """Further points, of shape (…, d), projected the same way."""
        z = _checked(points, self.c)
        d = len(self.centre)
        if z.shape[-1] != d:
            raise CurvaeError(f"the projection was made for {d} dimensions, got points of shape {tuple(z.shape)}")
        if d <= 2 and not self.centre.any():
            return z @ self.axes  # to the last digit
        frame = Frame(h.from_ball(self.centre, self.c), self.axes, self.c)
        return PoincareBall(2, self.c).from_lorentz(frame.apply(h.from_ball(z, self.c)))


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
        return Projection(z @ axes, 1.0, sentence, c, z.new_zeros(d), axes, h.from_ball(z @ axes, c))
    some = z if n <= _MEAN_OF else z[np.random.default_rng(0).choice(n, _MEAN_OF, replace=False)]
    centre = PoincareBall(d, c).frechet_mean(some)
    frame = Frame(h.from_ball(centre, c), torch.eye(d, dtype=z.dtype), c)
    v = frame.coordinates(h.from_ball(z, c))
    axes = torch.linalg.eigh(v.T @ v / n)[1][:, [-1, -2]]
    # The sign of an eigenvector is arbitrary; its largest entry is made positive.
    axes = axes * torch.take_along_dim(axes, axes.abs().argmax(0, keepdim=True), 0).sign()
    return project_from(replace(frame, axes=axes), h.from_ball(z, c))


def project_from(frame: Frame, S: Tensor) -> Projection:
    """Points as they are seen from a frame of two axes.

    Arguments:
        frame: the point in the middle of the disc and what is drawn to the right and upwards; one that `picture_frame`
            chose, say.
        S: space parts of points on the hyperboloid, (N, d).
    """
    space = frame.apply(S)
    kept, sentence = _describe_loss(S, space, frame) if len(frame.centre) > 2 else (1.0, "all latent dimensions")
    points = PoincareBall(2, frame.c).from_lorentz(space)
    return Projection(points, kept, sentence, frame.c, h.ball(frame.centre, frame.c), frame.axes, space)


def _describe_loss(S: Tensor, space: Tensor, frame: Frame) -> tuple[float, str]:
    """Return the rank correlation of distances between points and their projection, and what was lost in words."""
    before, after = (float(h.dist0(x, frame.c).square().sum()) for x in (seen_from(frame.centre, S, frame.c), space))
    share = after / before if before > 0 else 1.0
    kept = _rank_correlation(S, space, frame.c)
    sentence = (
        f"projected from {S.shape[1]} dimensions: {100 * share:.0f} % of the variance at the origin kept, "
        f"rank correlation of distances {kept:.2f}"
    )
    return kept, sentence


def _checked(points: Points, c: float) -> Tensor:
    z = tensor(points)
    if z.dim() and z.numel() and not bool(PoincareBall(z.shape[-1], c).contains(z).all()):
        raise CurvaeError(
            f"some points are not finite or lie outside the ball c·|z|² < 1 with c = {c:g}; give ball coordinates"
        )
    return z


def _rank_correlation(before: Tensor, after: Tensor, c: float) -> float:
    n = len(before)
    if n <= _ALL_PAIRS:
        i, j = np.triu_indices(n, 1)
    else:  # pairs of two different points at random
        i = np.random.default_rng(0).integers(0, n, _PAIRS)
        j = (i + np.random.default_rng(1).integers(1, n, _PAIRS)) % n
    x, y = (Lorentz(S.shape[-1], c).dist(S[i], S[j]).numpy() for S in (before, after))
    if not len(x) or np.ptp(x) == 0 or np.ptp(y) == 0:
        # Ranks that are all equal have no correlation: either nothing was lost or everything.
        return float(np.allclose(x, y))
    from scipy.stats import spearmanr  # takes long to import

    return float(spearmanr(x, y).statistic)
