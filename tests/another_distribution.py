"""A distribution of one's own: a subclass without a fused step, written against the documented hooks alone."""

from __future__ import annotations

import math

import torch

from curvae.distributions import HyperbolicNormal
from curvae.distributions.radial import Kernel, bulk
from curvae.geometry.functions import logsinhc

__all__ = ["HeavyTailed"]

POWER = 1.4


class HeavyTailed(HyperbolicNormal):
    """The vector from loc to the point has the direction of a normal one and its length to a power."""

    def bend(self, noise, exact):
        return noise * noise.norm(dim=-1, keepdim=True) ** (POWER - 1)

    def log_density(self, ww, vv):
        d = self.manifold.dim
        log_length = ww.log() / 2 / POWER  # of the noise
        log_density = -(2 * log_length).exp() / 2 - d / 2 * math.log(2 * math.pi)
        log_density = log_density + d * (log_length - ww.log() / 2) - math.log(POWER)
        return log_density - self.log_det() - (d - 1) * logsinhc(self.c * vv)

    def radius_nodes(self):
        lengths, weights = bulk(self.loc.new_zeros((), dtype=torch.float64), Kernel(self.manifold.dim))
        return lengths**POWER, weights
