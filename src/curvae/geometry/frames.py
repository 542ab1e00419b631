"""Frames, from which a map is seen, and the best isometry between two maps of the same points.

Points are space parts S of the hyperboloid, float64. An isometry of the space of curvature −c is a translation of some
point to the origin and then a rotation or reflection about it; a `Frame` is that point and the axes that become those
of the coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from . import hyperboloid as h
from .manifolds import Lorentz

__all__ = ["Frame", "Motion", "align", "picture_frame"]

_UNDECIDED = 1e-9  # correlation below which data say nothing about a direction


@dataclass(frozen=True, eq=False)
class Frame:
    """A centre and orthonormal axes there.

    Seen from a frame with d axes, points keep their distances. With fewer, they are projected in the tangent space at
    the centre.

    Arguments:
        centre: the point that is moved to the origin, (d,).
        axes: vectors at the centre, as columns, which become the axes of the coordinates, (d, k). With k > d, rows
            are orthonormal, and the space lies within that of k dimensions.
        c: minus the curvature.

    Example:
        >>> frame = Frame(torch.tensor([1.0, 0.0]).double(), torch.eye(2).double(), 1.0)
        >>> frame.apply(torch.tensor([[1.0, 0.0]]).double())
        tensor([[0., 0.]], dtype=torch.float64)
    """

    centre: Tensor
    axes: Tensor
    c: float

    def coordinates(self, S: Tensor) -> Tensor:
        """Compute log at the centre of points (…, d), along the axes, (…, k)."""
        return h.logmap0(h.displacement(self.centre, S, self.c), self.c) @ self.axes

    def apply(self, S: Tensor) -> Tensor:
        """Return points (…, d) as they are seen from the frame, (…, k)."""
        if self.axes.shape[1] < self.axes.shape[0]:
            return h.expmap0(self.coordinates(S), self.c)
        return h.displacement(self.centre, S, self.c) @ self.axes


def picture_frame(S: Tensor, c: float, scores: Tensor, centre: Tensor | None = None) -> Frame:
    """Choose the frame of two axes from which points are drawn, so that maps of the same data look alike.

    Of more than two dimensions, the two principal directions in the tangent space at the centre are shown. There the
    map is turned, or mirrored, so that its points lie nearest to the scores (Kabsch). The principal axes of the map
    itself would decide less: a prior makes maps round, and another seed gives them other axes.

    Arguments:
        S: points, (N, d).
        c: minus the curvature.
        scores: what is known of the points besides, (N, 2): the first grows to the right, the second upwards. Where
            they leave an axis open, it is that of the largest variance, and points to where the third moment is
            positive.
        centre: the point in the middle, (d,); the Fréchet mean by default.
    """
    centre = Lorentz(S.shape[1], c).frechet_mean(S) if centre is None else centre
    vectors = h.logmap0(h.displacement(centre, S, c), c)
    plane = torch.eye(S.shape[1], dtype=S.dtype)
    if S.shape[1] > 2:
        plane = torch.linalg.eigh(vectors.T @ vectors)[1].flip(1)[:, :2]  # the two directions of the largest variance
    axes = plane @ _turn(vectors @ plane, scores)
    return Frame(centre, torch.nn.functional.pad(axes, (0, 2 - axes.shape[1])), c)


def _turn(vectors: Tensor, scores: Tensor) -> Tensor:
    """Return the rotation or reflection that brings vectors, (N, k), nearest to the first k scores."""
    vectors, scores = (x - x.mean(0) for x in (vectors, scores[:, : vectors.shape[1]]))
    own, strength, other = torch.linalg.svd(vectors.T @ scores)
    open_ = strength <= _UNDECIDED * vectors.norm() * scores.norm()
    if bool(open_[0]):
        own, other = torch.linalg.eigh(vectors.T @ vectors)[1].flip(1), torch.eye(len(own), dtype=own.dtype)
    skewed = (vectors @ own).pow(3).sum(0) < 0
    return torch.where(open_ & skewed, -own, own) @ other


class Motion(NamedTuple):
    """An isometry in three steps, none of which loses the digits of points far from the origin.

    It moves the point `start` to the origin, shows what lies there from a frame of d axes, and moves the origin to the
    point `place`.
    """

    start: Tensor
    frame: Frame
    place: Tensor

    def apply(self, S: Tensor) -> Tensor:
        """Return points (…, d), moved."""
        c = self.frame.c
        return h.translate(self.place, self.frame.apply(h.displacement(self.start, S, c)), c)


def align(S: Tensor, T: Tensor, c: float) -> Motion:
    """Find the isometry that brings the points S, (N, d), nearest to the points T in the mean of squared distances.

    It begins with the best rotation or reflection in the tangent spaces at the means (Kabsch) and is refined by L-BFGS,
    since lengths across a tangent space are shorter than those of the space. The minimum that is found is a local one.
    """
    d = S.shape[1]
    start, place = (Lorentz(d, c).frechet_mean(points) for points in (S, T))
    own, target = h.displacement(start, S, c), h.displacement(place, T, c)
    left, _, right = torch.linalg.svd(h.logmap0(own, c).T @ h.logmap0(target, c))
    turn = left @ right  # the nearest orthogonal matrix
    shift, skew = S.new_zeros(d, requires_grad=True), S.new_zeros(d, d, requires_grad=True)

    def frame() -> Frame:
        return Frame(h.expmap0(shift, c), turn @ torch.matrix_exp(skew.triu(1) - skew.triu(1).T), c)

    def cost() -> Tensor:
        apart = h.logmap0(h.displacement(frame().apply(own), target, c), c)
        return h.dot(apart, apart).mean()

    with torch.no_grad():
        before = float(cost())
    optimiser = torch.optim.LBFGS(
        [shift, skew],
        max_iter=60,
        tolerance_grad=1e-10,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def closure() -> float:
        optimiser.zero_grad()
        found = cost()
        found.backward()
        return float(found.detach())

    optimiser.step(closure)
    with torch.no_grad():
        if not float(cost()) < before:  # also where it is not a number
            shift.zero_()
            skew.zero_()
        return Motion(start, frame(), place)
