"""Draws of the radius by rejection, as the paper's appendix makes them: references for tests and measurements of speed.

Radii are proposed from g and accepted with probability ρ/(M·g); `curvae.paper.figures` has the proposals.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from curvae.paper import figures

__all__ = ["SAMPLERS", "GammaProposal", "PiecewiseExponential", "RadiusSampler", "TruncatedNormal"]


class RadiusSampler(ABC):
    """Draws of the radius, for a class of proposals beside which it is inherited."""

    c: float
    dim: int
    acceptance: Tensor

    @abstractmethod
    def propose(self, count: int) -> tuple[Tensor, Tensor]:
        """Propose radii of shape (count, B), with the logarithms of their acceptance probabilities."""

    def sample(self, count: int) -> Tensor:
        """Draw radii of shape (count, B)."""
        # Draws take the inverse of the rate in rounds, which for the lowest seem never to end.
        if (rate := float(self.acceptance.min())) < 1e-5:
            raise ValueError(
                f"{type(self).__name__} accepts a fraction {rate:.2g} of its proposals at c = {self.c:g} in {self.dim} "
                "dimensions, which would take too long; draw with curvae.HyperbolicRadius, which rejects nothing"
            )
        r, log_accept = self.propose(count)
        waiting = torch.rand_like(r).log() >= log_accept
        while waiting.any():
            again, log_accept = self.propose(count)
            accepted = waiting & (torch.rand_like(r).log() < log_accept)
            r = torch.where(accepted, again, r)
            waiting = waiting & ~accepted
        return r


class PiecewiseExponential(RadiusSampler, figures.PiecewiseExponential):
    def propose(self, count: int) -> tuple[Tensor, Tensor]:
        piece = torch.distributions.Categorical(logits=self.log_pieces.T).sample((count,))
        u = torch.rand(count, len(self.scale), dtype=torch.float64)
        slope = self.slope.gather(0, piece)
        step = torch.log1p(u * self.rise.gather(0, piece)) / slope
        r = self.start.gather(0, piece) + step
        return r, self.log_density(r) - (self.at_start.gather(0, piece) + slope * step)


class TruncatedNormal(RadiusSampler, figures.TruncatedNormal):
    def propose(self, count: int) -> tuple[Tensor, Tensor]:
        low = torch.special.ndtr(-self.shift)
        u = torch.rand(count, len(self.scale), dtype=torch.float64)
        t = torch.special.ndtri((low + u * (1 - low)).clamp(1e-300, 1 - 2**-53))
        r = (self.scale * (self.shift + t)).clamp_min(1e-300)
        return r, (self.dim - 1) * torch.log1p(-torch.exp(-2 * math.sqrt(self.c) * r))


class GammaProposal(RadiusSampler, figures.GammaProposal):
    def propose(self, count: int) -> tuple[Tensor, Tensor]:
        u = torch.rand(2, count, len(self.scale), dtype=torch.float64)
        r = (-u.log().sum(0) * self.scale).clamp_min(1e-300)
        return r, self.log_density(r) - (r.log() - r / self.scale) - self.log_bound


SAMPLERS = {
    "piecewise exponential": PiecewiseExponential,
    "truncated normal": TruncatedNormal,
    "Gamma(2, σ)": GammaProposal,
}
