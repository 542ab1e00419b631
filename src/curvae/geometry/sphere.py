"""The sphere of curvature −c, c < 0: unit vectors, and angles by atan2, exact for near and for opposite points.

Notation: k = −c; a point X = (S, ξ) obeys ξ² + k|S|² = 1, so that it becomes (S, 1) as k → 0; x = (√k·S, ξ) is a unit
vector, and θ = √k·d an angle. Tangent vectors are metric vectors of the space around the sphere of radius 1/√k, which
are orthogonal to x.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from . import checks, hyperboloid as h
from .functions import asinc, cos_sqrt, logsinc, sinc
from .manifolds import Coordinates, Manifold, converged, first_outside

__all__ = ["Sphere"]

_STEPS = 64  # of gradient descent for means
_ROUNDING = 16  # roundings a coordinate by which a point may be off the sphere


def _length(v: Tensor) -> Tensor:
    return h.norm(v).unsqueeze(-1)


def _along(u: Tensor, x: Tensor) -> Tensor:
    """⟨u, x⟩·x for unit x."""
    return h.dot(u, x).unsqueeze(-1) * x


class SpherePoints(Coordinates):
    """Points X = (S, ξ), with the origin (0, …, 0, 1); frame vectors are tangent vectors."""

    lambda0, outside = 1.0, "ξ² − c·|S|² is 1 on a sphere"
    log_volume = staticmethod(logsinc)

    def root(self) -> Tensor | float:
        """Return √k, a number or of shape (…, 1)."""
        return (-self.c).sqrt().unsqueeze(-1) if isinstance(self.c, Tensor) else math.sqrt(-self.c)

    def unit(self, X: Tensor) -> Tensor:
        """Return x = (√k·S, ξ), without what rounding X leaves of its length."""
        x = self._stretched(X, self.root())
        return x / x.norm(dim=-1, keepdim=True)

    def point(self, x: Tensor) -> Tensor:
        """Return X = (S, ξ) for a unit vector x."""
        return self._stretched(x, 1.0 / self.root())

    def _stretched(self, x: Tensor, stretch: Tensor | float) -> Tensor:
        S = x[..., :-1] * stretch
        return torch.cat([S, x[..., -1:].expand(*S.shape[:-1], 1)], -1)

    def origin(self, like: Tensor) -> Tensor:
        return torch.cat([like.new_zeros(*like.shape, self.dim), like.new_ones(*like.shape, 1)], -1)

    def frame_noise(self, x: Tensor, noise: Tensor) -> Tensor:
        return noise - _along(noise, self.unit(x))

    def vector(self, x: Tensor, y: Tensor) -> Tensor:
        x, y = torch.broadcast_tensors(self.unit(x), self.unit(y))
        # Sums and differences of unit vectors are exact where angles, or what they lack to π, are small.
        gap, total = y - x, y + x
        near, far = (h.dot(a, a).unsqueeze(-1) / 4.0 for a in (gap, total))  # sin²(θ/2) and cos²(θ/2)
        close = near < far
        near, far = torch.where(close, near, 0.5), torch.where(close, 0.5, far)
        within = (gap + 2.0 * near * x) * (asinc(-near) / (1.0 - near).sqrt())
        across = total - 2.0 * far * x  # of length sin θ
        size = h.dot(across, across).unsqueeze(-1)
        opposite = size == 0.0
        # From the antipode all directions lead back; one is chosen.
        axis = torch.nn.functional.one_hot(x.detach().abs().argmin(-1), x.shape[-1]).to(x.dtype)
        across = torch.where(opposite, axis - _along(axis, x), across)
        size = torch.where(opposite, h.dot(across, across).unsqueeze(-1), size).sqrt()
        beyond = across * ((math.pi - 2.0 * far.clamp_min(1e-300).sqrt() * asinc(-far)) / size)
        return torch.where(close, within, beyond) / self.root()

    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        x, y = self.unit(x), self.unit(y)
        return (2.0 * torch.atan2(_length(y - x), _length(y + x)) / self.root()).squeeze(-1)

    def dist0(self, x: Tensor) -> Tensor:
        return self.dist(self.origin(x[..., 0]), x)

    def height(self, x: Tensor, p: Tensor, a: Tensor) -> Tensor:
        x, p = self.unit(x), self.unit(p)
        normal = h.direction(a - _along(a, p))[0]
        sine = h.dot(x, normal).unsqueeze(-1)
        return (torch.atan2(sine, _length(x - sine * normal)) / self.root()).squeeze(-1)

    def shoot(self, x: Tensor, u: Tensor, framed: bool = False) -> Tensor:
        x = self.unit(x)
        u = u - _along(u, x)
        y = self.c * h.dot(u, u)
        return self.point(x * cos_sqrt(y).unsqueeze(-1) + u * (self.root() * sinc(y).unsqueeze(-1)))

    def exp0(self, v: Tensor) -> Tensor:
        return self.shoot(self.origin(v[..., 0]), torch.nn.functional.pad(v, (0, 1)))

    def log0(self, x: Tensor) -> Tensor:
        return self.vector(self.origin(x[..., 0]), x)[..., :-1]

    def between(self, t: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self.shoot(x, t.unsqueeze(-1) * self.vector(x, y))

    def transport(self, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
        x, y = self.unit(x), self.unit(y)
        v, both = v - _along(v, x), x + y
        square = h.dot(both, both).unsqueeze(-1)
        return v - both * (2.0 * h.dot(both, v).unsqueeze(-1) / square.clamp_min(1e-300))

    def transport0(self, x: Tensor, v: Tensor) -> Tensor:
        return self.transport(self.origin(v[..., 0]), x, torch.nn.functional.pad(v, (0, 1)))

    def start_mean(self, x: Tensor, w: Tensor) -> Tensor:
        """Descend from the sum of the points, scaled back to the sphere; no second derivative of d²/2 exceeds 1, so
        that a whole step never leads up. The minimum that is found is a local one."""
        each = self.widen(1)
        unit = each.unit(x)
        total = (w.unsqueeze(-1) * unit).sum(-2)
        mean = self.point(
            torch.nn.functional.normalize(torch.where(_length(total) > 1e-8, total, unit[..., 0, :]), dim=-1)
        )
        for _ in range(_STEPS):
            v = each.vector(mean.unsqueeze(-2), x)
            step = (w.unsqueeze(-1) * v).sum(-2)
            mean = self.shoot(mean, step)
            if converged(step, (w * h.dot(v, v)).sum(-1, keepdim=True)):
                break
        return mean

    def across(self, x: Tensor) -> Tensor:
        x = self.unit(x)
        return super().across(x) - x.unsqueeze(-1) * x.unsqueeze(-2)

    def newton_step(self, mean: Tensor, x: Tensor, w: Tensor) -> Tensor:
        # Points all around leave the mean open, and the step without a bound.
        step = super().newton_step(mean, x, w)
        return step / (10.0 * self.root() * h.norm(step).unsqueeze(-1)).detach().clamp_min(1.0)

    def round(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        return x.to(dtype)

    def holds(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        return x.isfinite().all(-1)

    def inside(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        return (self._stretched(x, self.root()).norm(dim=-1) - 1.0).abs() <= self.rounding(dtype)

    def tangent(self, x: Tensor, u: Tensor, dtype: torch.dtype) -> Tensor:
        """Return whether u is orthogonal to x, up to rounding in `dtype`."""
        return h.dot(self.unit(x), u).abs() <= self.rounding(dtype) * h.norm(u)

    def rounding(self, dtype: torch.dtype) -> float:
        return _ROUNDING * torch.finfo(dtype).eps * (self.dim + 1)


class Sphere(Manifold):
    """The sphere of curvature −c, c < 0: points X = (S, ξ) with ξ² − c|S|² = 1, and the origin (0, …, 0, 1).

    At c = −1 these are the unit vectors of ℝ^{d+1}. Tangent vectors are metric, vectors of ℝ^{d+1} orthogonal to
    (√−c·S, ξ), at the origin written with d numbers. The part of a vector that is not tangent has no effect; `check`
    refuses it.

    Arguments:
        dim: dimension d; 1 is a circle.
        c: minus the curvature, < 0; the radius is 1/√−c.

    Example:
        >>> space = Sphere(2)
        >>> x = space.expmap0(torch.tensor([torch.pi / 2, 0.0]))
        >>> round(float(space.dist(x, torch.tensor([0.0, 1.0, 0.0]))), 4)
        1.5708
    """

    _coordinate_type = SpherePoints
    _coordinates: SpherePoints
    _check_curvature = staticmethod(partial(checks.check_curvature, sphere=True))

    def __init__(self, dim: int, c: Tensor | float = -1.0) -> None:
        super().__init__(dim, c)

    @property
    def width(self) -> int:
        return self.dim + 1

    def egrad2rgrad(self, x: Tensor, grad: Tensor) -> Tensor:
        dtype, (x, g) = self._points(x=x, grad=grad)
        x, root = self._coordinates.unit(x), self._coordinates.root()
        g = torch.cat([g[..., :-1].expand_as(x[..., :-1]), g[..., -1:] * root], -1)
        return (g - _along(g, x)).to(dtype)

    def check(self, x: Tensor, u: Tensor | None = None) -> None:
        """Raise ValueError, with the first offender, unless points are on the sphere, and vectors u tangent there."""
        super().check(x)
        if u is not None:
            dtype, (X, v) = self._points(x=x, u=u)
            if not checks.holds(inside := self._coordinates.tangent(X, v, dtype)):
                vector, where = first_outside(v, inside)
                raise ValueError(
                    f"the vector {vector.tolist()}{where} is not tangent to {self}: it must be orthogonal to "
                    "x = (√−c·S, ξ), as u − ⟨u, x⟩·x is"
                )
