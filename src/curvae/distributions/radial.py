"""The radius of the Riemannian normal, as a distribution: integrals, moments and quantiles, to double precision.

Notation (appendix "Maximum entropy hyperbolic normal" of Mathieu et al. 2019): d the dimension, n = d − 1, t = r/σ the
scaled radius and q = cσ². The density of t is ρ(t) = exp(−t²/2)·(sinh(√q·t)/√q)^n / I(q), so for given d there is one
shape parameter, and everything is analytic in q at q = 0, where it is the χ distribution. On a sphere q is negative:
the density is exp(−t²/2)·(sin(√|q|·t)/√|q|)^n on [0, π/√|q|], and that of a uniform point as q → −∞.

The paper's closed form of I(q), a signed sum of error functions, loses about n·log10(1/√q) digits. Here integrals are
Gauss–Legendre sums over a window around the mode; because −(log ρ)″ ≥ 1 a window of fixed width is always wide enough.
On a sphere it is at least 1 + n|q|, and windows are narrower by the root of that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..geometry.functions import Primitive, constant, logsinc, logsinhc

__all__ = [
    "Kernel",
    "SphericalKernel",
    "Undifferentiated",
    "bulk",
    "bulk_in_panels",
    "chi_log_cdfs",
    "log_area",
    "log_cdfs",
    "log_normaliser",
    "mean_power",
    "mean_tilt",
    "quantile",
    "quantile_slopes",
    "with_slopes",
]

# Half-width of the window around the mode, and width of the window beside a quantile: exp(−w²/2) is below rounding.
_WINDOW = 8.5
_TAIL_WINDOW = 9.5
_NODES = 64
_TAIL_NODES = 40


@constant
def _legendre(count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Nodes and log-weights of the Gauss–Legendre rule on [0, 1]."""
    key = (count, device)
    if key not in _RULES:
        nodes, weights = np.polynomial.legendre.leggauss(count)
        _RULES[key] = (
            torch.from_numpy((nodes + 1) / 2).to(device),
            torch.from_numpy(np.log(weights / 2)).to(device),
        )
    return _RULES[key]


_RULES: dict[tuple[int, torch.device], tuple[Tensor, Tensor]] = {}


def log_area(dim: int) -> float:
    """Return the logarithm of the area of the unit sphere in ℝ^d."""
    return math.log(2) + dim / 2 * math.log(math.pi) - math.lgamma(dim / 2)


class Kernel:
    """I·ρ on a space of curvature −c ≤ 0 of dimension `dim`, as functions of t and q.

    A radius has a place τ = log t on the line: there the tails of ρ are log-concave, and their logs nearly straight far
    out.
    """

    spherical = False

    def __init__(self, dim: int) -> None:
        self.dim, self.n = dim, dim - 1

    def log(self, t: Tensor, q: Tensor) -> Tensor:
        """Compute log(I·ρ(t)) = −t²/2 + n·log(sinh(√q·t)/√q)."""
        if self.dim == 1:
            return -t * t / 2 + 0 * q  # also at t = 0
        return -t * t / 2 + self.n * (t.log() + self.log_volume(q * t * t))

    log_volume = staticmethod(logsinhc)

    def log_ratio(self, t: Tensor, m: Tensor, q: Tensor) -> Tensor:
        """Compute log(ρ(t)/ρ(m)), with a rounding error of the size of t, not of its square.

        Far from 0 both kernels are of order (n·√q)², and their difference would keep few digits. There sinh(x) is
        eˣ·(1 − e^{−2x})/2, so that the large terms combine to (t − m)·(n·√q − (t + m)/2).
        """
        n = self.n
        if n == 0:
            return (m - t) * (m + t) / 2 + 0 * q
        t, m, q = torch.broadcast_tensors(t, m, q)
        far = q * torch.minimum(t, m) ** 2 > 4.0
        near_q, far_q = torch.where(far, 0.0, q), torch.where(far, q, 1.0)
        root, far_t, far_m = far_q.sqrt(), torch.where(far, t, 1.0), torch.where(far, m, 1.0)
        rest = torch.log1p(-torch.exp(-2 * root * far_t)) - torch.log1p(-torch.exp(-2 * root * far_m))
        by_exponentials = (far_t - far_m) * (n * root - (far_t + far_m) / 2) + n * rest
        rise = (t / m).log() + logsinhc(near_q * t * t) - logsinhc(near_q * m * m)
        return torch.where(far, by_exponentials, (m - t) * (m + t) / 2 + n * rise)

    def mode(self, q: Tensor) -> Tensor:
        """Near the mode of ρ (within a tenth of its width): for small q that of t^n·exp(−t²/2), for large q n·√q."""
        n = self.n
        m = ((n * n * q + (n**4 * q * q + 4 * n * n).sqrt()) / 2).sqrt()
        for _ in range(2 if n else 0):
            # Newton on m − n·√q·coth(√q·m), whose derivative is at least 1.
            x = q.sqrt() * m
            small = x < 1e-4
            x = torch.where(small, 1.0, x)
            cothc = torch.where(small, 1.0, x / x.tanh())
            slope = 1 + n / m**2 * torch.where(small, 1.0, (x / x.sinh()) ** 2)
            m = m - (m - n / m * cothc) / slope
        return m

    def middle(self, mode: Tensor, q: Tensor) -> Tensor:
        """Return a positive radius between the two tails; that it is not the exact median does not matter."""
        return mode.clamp_min(0.5)

    def bend(self, q: Tensor) -> Tensor | float:
        """Return a lower bound of −(log ρ)″."""
        return 1.0

    def around(self, t: Tensor, q: Tensor, reach: float) -> tuple[Tensor, Tensor]:
        """Return the ends of a window so many standard deviations to both sides of t; without gradient in t."""
        return (t - reach).clamp_min(0.0).detach(), (t + reach).detach()

    def hold(self, t: Tensor, q: Tensor) -> Tensor:
        """Return t, held where integrals beyond it are defined; what is lost is beyond all digits."""
        return t.clamp(1e-300, 1e100)

    def follow(self, q: Tensor, end: Tensor) -> Tensor | None:
        """Return the factor, 1 with a gradient in q, by which nodes of a window move; None for 1."""
        return None

    def limit(self, t: Tensor, mode: Tensor, q: Tensor, upper_tail: Tensor) -> Tensor:
        """Return a radius above a quantile, given one that is above it where no radius is too large."""
        return t

    def edge(self, q: Tensor) -> Tensor | None:
        """Return the part of ∂_q I that is due to a moving end of the radii, where ρ is not 0; None for 0."""
        return None

    def place(self, t: Tensor, q: Tensor) -> Tensor:
        """Return the place τ of a radius."""
        return t.log()

    def radius(self, place: Tensor, q: Tensor) -> Tensor:
        """Invert `place`."""
        return place.exp()

    def log_rate(self, t: Tensor, place: Tensor, q: Tensor) -> Tensor:
        """Compute log(dt/dτ)."""
        return place

    def force(self, t: Tensor, q: Tensor, tilt: Tensor) -> Tensor:
        """Compute the derivative in τ of log(ρ·dt/dτ), given g(t)."""
        return 1 + (self.n + 2 * q * tilt - t * t)

    def tilt(self, t: Tensor, q: Tensor) -> Tensor:
        """Compute g(t) = ∂_q log(I·ρ(t)) = n·t²·(log sinhc)′(q·t²)."""
        return self.n * t * t * self.log_volume(q * t * t, 1)


class SphericalKernel(Kernel):
    """I·ρ on a sphere, q < 0; the place of a radius is τ = log((2/√|q|)·tan(√|q|·t/2))."""

    spherical = True
    log_volume = staticmethod(logsinc)

    def size(self, q: Tensor) -> Tensor:
        """Return |q|, and no less than what is flat to every digit."""
        return (-q).clamp_min(1e-30)

    def end(self, q: Tensor) -> Tensor:
        """Return the largest radius, that of the antipode, and a rounding more."""
        return (math.pi * (1 + 4e-15)) / self.size(q).sqrt()

    def log_ratio(self, t: Tensor, m: Tensor, q: Tensor) -> Tensor:
        return self.log(t, q) - self.log(m, q)

    def mode(self, q: Tensor) -> Tensor:
        if self.n == 0:
            return torch.zeros_like(q)
        p = self.size(q)
        x = (self.n * p / (1 + self.n * p * (4 / math.pi**2))).sqrt()
        for _ in range(3):  # Newton on n·p·cos x − x·sin x
            x = x + (self.n * p * x.cos() - x * x.sin()) / ((self.n * p + 1) * x.sin() + x * x.cos())
        return x / p.sqrt()

    def middle(self, mode: Tensor, q: Tensor) -> Tensor:
        return mode if self.n else (self.end(q) / 2).clamp(max=0.5)

    def bend(self, q: Tensor) -> Tensor:
        return 1 + self.n * self.size(q)

    def around(self, t: Tensor, q: Tensor, reach: float) -> tuple[Tensor, Tensor]:
        half = reach / self.bend(q).sqrt()
        return (t - half).clamp_min(0.0).detach(), torch.minimum((t + half).detach(), self.end(q))

    def hold(self, t: Tensor, q: Tensor) -> Tensor:
        return torch.minimum(t.clamp_min(1e-300), (math.pi / self.size(q).sqrt()).detach())

    def follow(self, q: Tensor, end: Tensor) -> Tensor:
        return torch.where(end < self.end(q), 1.0, (q.detach() / q).sqrt())

    def limit(self, t: Tensor, mode: Tensor, q: Tensor, upper_tail: Tensor) -> Tensor:
        # Beyond the mode ρ falls, and at the end like the power n.
        end = self.end(q)
        return torch.minimum(t, end - (end - mode) * (upper_tail / self.dim).exp() / 4)

    def edge(self, q: Tensor) -> Tensor | None:
        p = (-q).clamp_min(1e-6)  # below, the end is beyond all mass
        return None if self.n else (math.pi / 2) * p**-1.5 * (-(math.pi**2) / (2 * p)).exp()

    def place(self, t: Tensor, q: Tensor) -> Tensor:
        half = self.size(q).sqrt() / 2
        return ((half * t).tan() / half).log()

    def radius(self, place: Tensor, q: Tensor) -> Tensor:
        half = self.size(q).sqrt() / 2
        return (half * place.exp()).atan() / half

    def log_rate(self, t: Tensor, place: Tensor, q: Tensor) -> Tensor:
        return t.log() + logsinc(q * t * t)

    def force(self, t: Tensor, q: Tensor, tilt: Tensor) -> Tensor:
        angle = self.size(q).sqrt() * t
        return self.dim * angle.cos() - t * angle.sin() / self.size(q).sqrt()


def _window_nodes(q: Tensor, kernel: Kernel) -> tuple[Tensor, Tensor, Tensor]:
    """Nodes over the bulk of ρ along a new last axis, the logs of their weights, and the mode."""
    with torch.no_grad():
        mode = kernel.mode(q.detach())
        start, end = kernel.around(mode, q.detach(), _WINDOW)
        width = end - start
        nodes, log_weights = _legendre(_NODES, q.device)
        # A window that starts at 0 is graded towards it, for the sake of log t.
        graded = (start == 0).unsqueeze(-1)
        t = start.unsqueeze(-1) + width.unsqueeze(-1) * torch.where(graded, nodes * nodes, nodes)
        log_weights = log_weights + torch.where(graded, (2 * nodes).log(), 0.0) + width.unsqueeze(-1).log()
    if (move := kernel.follow(q, end)) is not None:
        t, log_weights = t * move.unsqueeze(-1), log_weights + move.log().unsqueeze(-1)
    return t, log_weights, mode


def log_normaliser(q: Tensor, kernel: Kernel) -> Tensor:
    """Compute log I(q), so that Z_r = σ^d·I(cσ²) is the paper's normalising constant of the radius (float64)."""
    t, log_weights, _ = _window_nodes(q, kernel)
    return torch.logsumexp(kernel.log(t, q.unsqueeze(-1)) + log_weights, -1)


def bulk(q: Tensor, kernel: Kernel) -> tuple[Tensor, Tensor]:
    """Return nodes t along a new last axis, and weights with which Σ w·f(t) is E[f(t)] (float64)."""
    t, log_weights, _ = _window_nodes(q, kernel)
    return t, torch.softmax(kernel.log(t, q.unsqueeze(-1)) + log_weights, -1)


def bulk_in_panels(q: Tensor, kernel: Kernel, kink: Tensor) -> tuple[Tensor, Tensor]:
    """Return `bulk` in two panels, which meet at the radius `kink` where it lies within."""
    start, end = (x.expand_as(kink + q) for x in kernel.around(kernel.mode(q.detach()), q, _WINDOW))
    kink = torch.minimum(torch.maximum(kink, start), end)
    nodes, log_weights = _legendre(_NODES, q.device)
    widths = torch.stack([kink - start, end - kink], -1).clamp_min(1e-300)
    t = torch.stack([start, kink], -1).unsqueeze(-1) + widths.unsqueeze(-1) * nodes
    t, log_weights = t.flatten(-2), (log_weights + widths.unsqueeze(-1).log()).flatten(-2)
    return t, torch.softmax(kernel.log(t.clamp_min(1e-300), q.unsqueeze(-1)) + log_weights, -1)


def mean_power(q: Tensor, kernel: Kernel, power: int) -> Tensor:
    """Compute E[t^power] under ρ (float64)."""
    t, weights = bulk(q, kernel)
    return (weights * t**power).sum(-1)


def _side_nodes(t: Tensor, q: Tensor, lower: Tensor, kernel: Kernel) -> tuple[Tensor, Tensor]:
    """Nodes below t where `lower`, above t elsewhere, and the logs of their weights; differentiable in t."""
    lowest, highest = kernel.around(t, q, _TAIL_WINDOW)
    start, end = torch.where(lower, lowest, t), torch.where(lower, t, highest)
    nodes, log_weights = _legendre(_TAIL_NODES, t.device)
    width = (end - start).unsqueeze(-1)
    return start.unsqueeze(-1) + width * nodes, log_weights + width.log()


def log_cdfs(t: Tensor, q: Tensor, kernel: Kernel) -> tuple[Tensor, Tensor]:
    """Compute log F(t) and log(1 − F(t)) for t > 0, each to full relative accuracy of the smaller one (float64)."""
    return _log_tails(t, q, kernel, lambda u, middle: kernel.log_ratio(u, middle, q.unsqueeze(-1)))


def chi_log_cdfs(t: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Compute `log_cdfs` at q = 0, where ρ is the density of the χ distribution."""

    def log_ratio(u: Tensor, middle: Tensor) -> Tensor:
        return (middle - u) * (middle + u) / 2 + (dim - 1) * (u / middle).log()

    return _log_tails(t, t.new_zeros(()), Kernel(dim), log_ratio)


def _log_tails(
    t: Tensor, q: Tensor, kernel: Kernel, log_ratio: Callable[[Tensor, Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    nodes, log_weights, mode = _window_nodes(q, kernel)
    middle = kernel.middle(mode, q.detach())
    lower = (t < middle).detach()
    side_nodes, side_log_weights = _side_nodes(t, q, lower, kernel)
    # Both integrals are relative to ρ(middle): the logs of their absolute values are large where the mode is far out.
    middle = middle.unsqueeze(-1)
    mass = torch.logsumexp(log_ratio(nodes, middle) + log_weights, -1)
    tail = torch.logsumexp(log_ratio(side_nodes, middle) + side_log_weights, -1) - mass
    # The tail is at most a half, so the other side loses nothing; the clamp only guards the last bit.
    rest = torch.log1p(-tail.exp().clamp(max=1 - 2**-53))
    return torch.where(lower, tail, rest), torch.where(lower, rest, tail)


def mean_tilt(q: Tensor, kernel: Kernel) -> Tensor:
    """Compute ∂_q log I = E[g], and what a moving end adds."""
    t, weights = bulk(q, kernel)
    mean, edge = (weights * kernel.tilt(t, q.unsqueeze(-1))).sum(-1), kernel.edge(q)
    return mean if edge is None else mean + edge * (-log_normaliser(q, kernel)).exp()


def quantile_slopes(
    t: Tensor, q: Tensor, lower_tail: Tensor, upper_tail: Tensor, kernel: Kernel
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute ∂t/∂q, ∂t/∂log F and ∂t/∂log(1−F) at the quantile t, the latter two 0 on the side that is not the
    smaller.
    """
    lower, log_i = lower_tail < upper_tail, log_normaliser(q, kernel)
    u, log_weights = _side_nodes(t, q, lower, kernel)
    weights = torch.softmax(kernel.log(u, q.unsqueeze(-1)) + log_weights, -1)
    # ∂_q log ρ(u) = g(u) − E[g]; the smaller tail's share of it, over ρ, moves the quantile.
    excess = (weights * kernel.tilt(u, q.unsqueeze(-1))).sum(-1) - mean_tilt(q, kernel)
    if (edge := kernel.edge(q)) is not None:
        excess = excess + torch.where(lower, 0.0, edge * (-log_i - upper_tail).exp())
    log_rho = kernel.log(t, q) - log_i
    reach = (torch.where(lower, lower_tail, upper_tail) - log_rho).exp()
    return (
        torch.where(lower, -reach, reach) * excess,
        torch.where(lower, reach, 0.0),
        torch.where(lower, 0.0, -reach),
    )


def with_slopes(value: Tensor, inputs: Sequence[Tensor], slopes: Sequence[Tensor]) -> Tensor:
    """Return `value`, with the given first derivatives in `inputs`."""
    for x, slope in zip(inputs, slopes, strict=True):
        value = value + slope * (x - x.detach())
    return value


class Undifferentiated(Primitive):
    """The derivative of a draw, which has none itself: a subclass gives `forward`."""

    differentiable = True

    @staticmethod
    def gradients(inputs: Any, kept: Any, needed: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        raise NotImplementedError(
            "a second derivative of a draw is not available: the derivative of a quantile is tabulated, not "
            "differentiated; use first derivatives of draws, or differentiate log_prob, entropy or kl_quadrature, "
            "which have all orders"
        )


class _Slopes(Undifferentiated):
    """`quantile_slopes`, as the derivative of `_Quantile`."""

    forward = staticmethod(quantile_slopes)


class _Quantile(Primitive):
    results, differentiable = 1, True

    @staticmethod
    def forward(
        lower_tail: Tensor, upper_tail: Tensor, q: Tensor, start: Tensor, kernel: Kernel, steps: int
    ) -> tuple[Tensor]:
        lower = lower_tail < upper_tail
        target = torch.where(lower, lower_tail, upper_tail) + log_normaliser(q, kernel)
        place = kernel.place(start, q)
        for _ in range(steps):
            # Newton on the log of the tail in the place. Both tails are log-concave, so steps cannot run away; the
            # clamp bounds the first ones, from a poor start.
            t = kernel.radius(place, q)
            u, log_weights = _side_nodes(t, q, lower, kernel)
            tail = torch.logsumexp(kernel.log(u, q.unsqueeze(-1)) + log_weights, -1)
            slope = torch.where(lower, 1.0, -1.0) * (kernel.log(t, q) + kernel.log_rate(t, place, q) - tail).exp()
            place = place + ((target - tail) / slope).clamp(-2.0, 2.0)
        return (kernel.radius(place, q),)

    @classmethod
    def traced(
        cls, lower_tail: Tensor, upper_tail: Tensor, q: Tensor, start: Tensor, kernel: Kernel, steps: int
    ) -> tuple[Tensor]:
        with torch.no_grad():
            lower, upper, shape = lower_tail.detach(), upper_tail.detach(), q.detach()
            (t,) = cls.forward(lower, upper, shape, start.detach(), kernel, steps)
            slopes = quantile_slopes(t, shape, lower, upper, kernel)
        return (with_slopes(t, (q, lower_tail, upper_tail), slopes),)

    @staticmethod
    def gradients(inputs: Any, kept: Any, needed: Any, grad: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        lower_tail, upper_tail, q, _, kernel, _ = inputs
        by_q, by_lower, by_upper = _Slopes.call(*kept, q, lower_tail, upper_tail, kernel)
        return grad * by_lower, grad * by_upper, grad * by_q


def _guess(lower_tail: Tensor, upper_tail: Tensor, q: Tensor, kernel: Kernel) -> Tensor:
    """Return a start from which Newton's method on the log of the tail approaches the quantile from outside.

    log ρ is concave with second derivative at most −b, so F(m − δ) ≤ exp(−b·δ²/2) and likewise above the mode m; for
    small t, where that bound is empty, F(t) ≈ t^d/(d·I).
    """
    with torch.no_grad():
        mode, bend = kernel.mode(q), kernel.bend(q)
        small = ((lower_tail + math.log(kernel.dim) + log_normaliser(q, kernel)) / kernel.dim).exp()
        small = torch.minimum(small, kernel.middle(mode, q) / 2)
        below = torch.maximum(mode - (-2 * lower_tail / bend).sqrt(), small)
        above = kernel.limit(mode + (-2 * upper_tail / bend).sqrt(), mode, q, upper_tail)
        return torch.where(lower_tail < upper_tail, below, above).clamp_min(1e-300)


def quantile(
    lower_tail: Tensor, upper_tail: Tensor, q: Tensor, kernel: Kernel, start: Tensor | None = None, steps: int = 12
) -> Tensor:
    """Return the t with F(t) = exp(lower_tail) = 1 − exp(upper_tail) (float64).

    Differentiable once in both tails and q, which broadcast. `start` is a first guess, from which `steps` Newton steps
    are taken.
    """
    if start is None:
        start = _guess(lower_tail.detach(), upper_tail.detach(), q.detach(), kernel)
    return _Quantile.call(lower_tail, upper_tail, q, start, kernel, steps)[0]
