"""The rejection samplers of the appendix, as references independent of the library's own draws.

Each draws the hyperbolic radius r, of density ρ(r) ∝ exp(−r²/2σ²)·(sinh(√c·r)/√c)^(d−1), from a proposal g and accepts
with probability ρ/(M·g); its acceptance rate is 1/M. Where the printed formulas cannot be meant literally they are read
as `docs/mathematics.md` explains. Moments and normalisers come from sums over a fine grid, not from
`curvae.distributions`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["GammaProposal", "PiecewiseExponential", "RadiusSampler", "TruncatedNormal", "acceptance_rates"]


# Draws take the inverse of the acceptance rate in rounds; below this one they seem never to end.
_LOWEST_RATE = 1e-5


class RadiusSampler(ABC):
    """Draws of the radius for every scale of a vector, float64.

    Arguments:
        dim: dimension d of the space.
        scale: dispersions σ, shape (B,).
        c: minus the curvature, > 0.
    """

    def __init__(self, dim: int, scale: Tensor, c: float) -> None:
        if c <= 0:
            raise ValueError(f"the samplers of the appendix need c > 0, got {c}")
        self.dim, self.scale, self.c = dim, scale.double(), c
        # A grid fine and wide enough for sums to be integrals: ±10σ around the mode, which lies below this bound.
        far = (dim - 1) * math.sqrt(c) * self.scale**2 + math.sqrt(dim) * self.scale
        start = (far - (math.sqrt(dim) + 10) * self.scale).clamp_min(0.0)
        u = (torch.arange(4000, dtype=torch.float64)[:, None] + 0.5) / 4000
        grid = start + (far + 10 * self.scale - start) * u
        log_rho = self.log_density(grid)
        self.log_z = log_rho.logsumexp(0) + (grid[1] - grid[0]).log()
        weights = log_rho.softmax(0)
        self.mean = (weights * grid).sum(0)
        self.deviation = (weights * (grid - self.mean) ** 2).sum(0).sqrt()

    def log_density(self, r: Tensor) -> Tensor:
        """log ρ without its normaliser, for r of shape (…, B)."""
        x = math.sqrt(self.c) * r
        log_sinh = x + torch.log1p(-torch.exp(-2 * x)) - math.log(2 * math.sqrt(self.c))
        return -(r**2) / (2 * self.scale**2) + (self.dim - 1) * log_sinh

    @abstractmethod
    def propose(self, count: int) -> tuple[Tensor, Tensor]:
        """Radii of shape (count, B) and the logarithms of their acceptance probabilities."""

    @property
    @abstractmethod
    def acceptance(self) -> Tensor:
        """The acceptance rate for every scale."""

    def sample(self, count: int) -> Tensor:
        """Draws of shape (count, B)."""
        if (rate := float(self.acceptance.min())) < _LOWEST_RATE:
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


class PiecewiseExponential(RadiusSampler):
    """The envelope of tangents to the concave log ρ at points around its mean, which the paper uses.

    The points are x_k = m + η_k·min(s, 0.95·m/η_max), m and s mean and standard deviation of r, with
    η = (−linspace(η_max, η_min, K/2), linspace(η_min, η_max, K/2)).
    """

    def __init__(
        self, dim: int, scale: Tensor, c: float, points: int = 20, eta_min: float = 0.1, eta_max: float = 3.0
    ) -> None:
        super().__init__(dim, scale, c)
        above = torch.linspace(eta_min, eta_max, points // 2, dtype=torch.float64)
        eta = torch.cat([-above.flip(0), above])[:, None]
        x = self.mean + eta * torch.minimum(self.deviation, 0.95 * self.mean / eta_max)
        height = self.log_density(x)
        root = math.sqrt(c)
        slope = -x / self.scale**2 + (dim - 1) * root / torch.tanh(root * x)
        # Neighbouring tangents meet at z_k; the first piece starts at 0, the last has no end.
        z = x[:-1] + (height.diff(dim=0) - slope[1:] * x.diff(dim=0)) / (slope[:-1] - slope[1:])
        edge = torch.zeros_like(z[:1])
        start, end = torch.cat([edge, z]), torch.cat([z, edge + math.inf])
        self.slope, self.start, self.at_start = slope, start, height + slope * (start - x)
        # ∫ exp(slope·(r − start)) over the piece is expm1(reach)/slope, for slopes of either sign.
        self.rise = torch.expm1((slope * (end - start)).clamp(max=700.0))
        self.log_mass = self.at_start + (self.rise / slope).log()

    def propose(self, count: int) -> tuple[Tensor, Tensor]:
        piece = torch.distributions.Categorical(logits=self.log_mass.T).sample((count,))
        u = torch.rand(count, len(self.scale), dtype=torch.float64)
        slope = self.slope.gather(0, piece)
        step = torch.log1p(u * self.rise.gather(0, piece)) / slope
        r = self.start.gather(0, piece) + step
        return r, self.log_density(r) - (self.at_start.gather(0, piece) + slope * step)

    @property
    def acceptance(self) -> Tensor:
        return (self.log_z - self.log_mass.logsumexp(0)).exp()


class TruncatedNormal(RadiusSampler):
    """The leading term of the expanded density: a normal of mean (d−1)√c·σ² and standard deviation σ, cut at 0."""

    def propose(self, count: int) -> tuple[Tensor, Tensor]:
        shift = (self.dim - 1) * math.sqrt(self.c) * self.scale
        low = torch.special.ndtr(-shift)
        u = torch.rand(count, len(self.scale), dtype=torch.float64)
        t = torch.special.ndtri((low + u * (1 - low)).clamp(1e-300, 1 - 2**-53))
        r = (self.scale * (shift + t)).clamp_min(1e-300)
        return r, (self.dim - 1) * torch.log1p(-torch.exp(-2 * math.sqrt(self.c) * r))

    @property
    def acceptance(self) -> Tensor:
        n, root = self.dim - 1, math.sqrt(self.c)
        shift = n * root * self.scale
        log_g = 0.5 * math.log(2 * math.pi) + self.scale.log() + torch.special.log_ndtr(shift)
        return (self.log_z - log_g + n * math.log(2 * root) - shift**2 / 2).exp()


class GammaProposal(RadiusSampler):
    """Gamma(2, σ), with the bound M = (Z_g/Z_r)·(2√c)^{−(d−2)}·exp(((d−1)√c·σ + 1)²/2), valid for d ≥ 2."""

    def __init__(self, dim: int, scale: Tensor, c: float) -> None:
        if dim < 2:
            raise ValueError("the Gamma proposal needs dim ≥ 2: for dim 1 its density is too small near 0")
        super().__init__(dim, scale, c)

    @property
    def _log_bound(self) -> Tensor:
        """log of M·Z_r/Z_g."""
        n, root = self.dim - 1, math.sqrt(self.c)
        return -(n - 1) * math.log(2 * root) + (n * root * self.scale + 1) ** 2 / 2

    def propose(self, count: int) -> tuple[Tensor, Tensor]:
        u = torch.rand(2, count, len(self.scale), dtype=torch.float64)
        r = (-u.log().sum(0) * self.scale).clamp_min(1e-300)
        return r, self.log_density(r) - (r.log() - r / self.scale) - self._log_bound

    @property
    def acceptance(self) -> Tensor:
        return (self.log_z - 2 * self.scale.log() - self._log_bound).exp()


SAMPLERS: dict[str, type[RadiusSampler]] = {
    "piecewise exponential": PiecewiseExponential,
    "truncated normal": TruncatedNormal,
    "Gamma(2, σ)": GammaProposal,
}


def acceptance_rates(dims: Sequence[int], scale: Tensor, c: float = 1.0) -> dict[str, Tensor]:
    """Acceptance rates of shape (dims, scales) by sampler."""
    return {name: torch.stack([make(d, scale, c).acceptance for d in dims]) for name, make in SAMPLERS.items()}
