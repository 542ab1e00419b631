"""Pages on which spheres are drawn: a circle as a ring, and a sphere as two hemispheres side by side.

The azimuthal projection of Lambert takes the hemisphere around a point to a disc, and keeps areas: what lies at the
angle θ from the middle is drawn at √2·sin(θ/2) from it, in units of the radius of the disc.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from ..geometry import Sphere

__all__ = ["Hemispheres", "Ring", "SpherePage"]


class SpherePage(ABC):
    """A page (…, 2) on which a sphere lies, with the distances and geodesics of the sphere."""

    dim: ClassVar[int]

    @abstractmethod
    def lift(self, z: Tensor) -> Tensor:
        """Return unit vectors of places on the page."""

    @abstractmethod
    def lay(self, x: Tensor) -> Tensor:
        """Return places on the page of vectors, by their directions."""

    def contains(self, z: Tensor) -> Tensor:
        """Return whether places belong to the sphere."""
        return ((self.lay(self.lift(z)) - z).abs() < 1e-6).all(-1)

    def dist(self, z: Tensor, w: Tensor) -> Tensor:
        """Return distances on the sphere."""
        return Sphere(self.dim).dist(self.lift(z), self.lift(w))

    def geodesic(self, t: Tensor, z: Tensor, w: Tensor) -> Tensor:
        """Return places at times t of the geodesics from z to w."""
        return self.lay(Sphere(self.dim).geodesic(t, self.lift(z), self.lift(w)))

    def frechet_mean(self, z: Tensor) -> Tensor:
        """Return the Fréchet means on the sphere of places (…, N, 2)."""
        return self.lay(Sphere(self.dim).frechet_mean(self.lift(z)))

    def to_lorentz(self, z: Tensor) -> Tensor:
        """Return what `Projection.space` has of places."""
        return 2.0 * z


class Ring(SpherePage):
    """The circle as it is, with room outside of it."""

    dim = 1
    extent: ClassVar[float] = 1.4

    def lift(self, z: Tensor) -> Tensor:
        return torch.nn.functional.normalize(z, dim=-1)

    def lay(self, x: Tensor) -> Tensor:
        return self.lift(x)

    def density(self, z: Tensor) -> Tensor:
        """Return a closed curve outside of the ring, the farther from it the more points are near."""
        angles = torch.linspace(-math.pi, math.pi, 361, dtype=z.dtype)
        turn = torch.stack([angles.cos(), angles.sin()], -1)
        # A von Mises kernel, whose width falls with the number of points as that of normal kernels does.
        sharp = 4.0 * len(z) ** 0.4
        height = torch.stack([(sharp * (self.lift(z) @ way - 1.0)).exp().sum() for way in turn])
        return turn * (1.06 + (self.extent - 1.06) * height / height.max()).unsqueeze(-1)


class Hemispheres(SpherePage):
    """Two discs of radius 1 side by side, as maps of the world.

    On the left is the hemisphere around the third axis, on the right the other, seen from its own side: what meets
    between the discs is near on the sphere.
    """

    dim = 2
    middles: ClassVar[tuple[float, float]] = (-1.04, 1.04)

    def lift(self, z: Tensor) -> Tensor:
        side = torch.where(z[..., :1] < 0.0, 1.0, -1.0).to(z.dtype)
        x, y = (z[..., :1] - self._middle(side)) * side, z[..., 1:]
        height = 1.0 - (x * x + y * y).clamp_max(1.0)
        # sin θ = √2·sin(θ/2)·√(1 + cos θ)
        return torch.cat([torch.cat([x, y], -1) * (1.0 + height).sqrt(), side * height], -1)

    def lay(self, x: Tensor) -> Tensor:
        x = torch.nn.functional.normalize(x, dim=-1)
        height = x[..., 2:]
        side = torch.where(height >= 0.0, 1.0, -1.0).to(x.dtype)
        at = x[..., :2] / (1.0 + height.abs()).sqrt()
        return torch.cat([self._middle(side) + side * at[..., :1], at[..., 1:]], -1)

    def geodesic(self, t: Tensor, z: Tensor, w: Tensor) -> Tensor:
        """Return places at times t, the first dimension; NaN where a geodesic has just left one disc for the other."""
        found = super().geodesic(t, z, w)
        left = found[..., :1] < 0.0
        return torch.cat([found[:1], torch.where(left[1:] != left[:-1], math.nan, found[1:])])

    def _middle(self, side: Tensor) -> Tensor:
        return self.middles[1] * -side
