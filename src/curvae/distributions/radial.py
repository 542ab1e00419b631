"""The radius of the Riemannian normal, as a distribution: integrals, moments and quantiles, to double precision.

Notation (appendix "Maximum entropy hyperbolic normal" of Mathieu et al. 2019): d the dimension, n = d − 1, t = r/σ the
scaled radius and q = cσ². The density of t is ρ(t) = exp(−t²/2)·(sinh(√q·t)/√q)^n / I(q), so for given d there is one
shape parameter, and everything is analytic in q at q = 0, where it is the χ distribution.

The paper's closed form of I(q), a signed sum of error functions, loses about n·log10(1/√q) digits. Here integrals are
Gauss–Legendre sums over a window around the mode; because −(log ρ)″ ≥ 1 a window of fixed width is always wide enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..geometry.functions import logsinhc
from ..geometry.primitive import Primitive, constant

__all__ = [
    "Undifferentiated",
    "bulk",
    "chi_log_cdfs",
    "log_area",
    "log_cdfs",
    "log_kernel",
    "log_normaliser",
    "mean_power",
    "mean_tilt",
    "quantile",
    "quantile_slopes",
    "tilt",
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


def log_kernel(t: Tensor, q: Tensor, dim: int) -> Tensor:
    """Compute log(I·ρ(t)) = −t²/2 + n·log(sinh(√q·t)/√q)."""
    if dim == 1:
        return -t * t / 2 + 0 * q  # also at t = 0
    return -t * t / 2 + (dim - 1) * (t.log() + logsinhc(q * t * t))


def _mode(q: Tensor, dim: int) -> Tensor:
    """Near the mode of ρ (within a tenth of its width): for small q that of t^n·exp(−t²/2), for large q n·√q."""
    n = dim - 1
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


def _log_ratio(t: Tensor, m: Tensor, q: Tensor, dim: int) -> Tensor:
    """log(ρ(t)/ρ(m)), with a rounding error of the size of t, not of its square.

    Far from 0 both kernels are of order (n·√q)², and their difference would keep few digits. There sinh(x) is
    eˣ·(1 − e^{−2x})/2, so that the large terms combine to (t − m)·(n·√q − (t + m)/2).
    """
    n = dim - 1
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


def _window_nodes(q: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Nodes over the bulk of ρ along a new last axis, the logs of their weights, and the mode."""
    with torch.no_grad():
        mode = _mode(q.detach(), dim)
        start = (mode - _WINDOW).clamp_min(0.0)
        width = mode + _WINDOW - start
        nodes, log_weights = _legendre(_NODES, q.device)
        # A window that starts at 0 is graded towards it, for the sake of log t.
        graded = (start == 0).unsqueeze(-1)
        t = start.unsqueeze(-1) + width.unsqueeze(-1) * torch.where(graded, nodes * nodes, nodes)
        log_weights = log_weights + torch.where(graded, (2 * nodes).log(), 0.0) + width.unsqueeze(-1).log()
    return t, log_weights, mode


def log_normaliser(q: Tensor, dim: int) -> Tensor:
    """Compute log I(q), so that Z_r = σ^d·I(cσ²) is the paper's normalising constant of the radius (float64)."""
    t, log_weights, _ = _window_nodes(q, dim)
    return torch.logsumexp(log_kernel(t, q.unsqueeze(-1), dim) + log_weights, -1)


def bulk(q: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return nodes t along a new last axis, and weights with which Σ w·f(t) is E[f(t)] (float64)."""
    t, log_weights, _ = _window_nodes(q, dim)
    return t, torch.softmax(log_kernel(t, q.unsqueeze(-1), dim) + log_weights, -1)


def mean_power(q: Tensor, dim: int, power: int) -> Tensor:
    """Compute E[t^power] under ρ (float64)."""
    t, weights = bulk(q, dim)
    return (weights * t**power).sum(-1)


def _side_nodes(t: Tensor, lower: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes below t where `lower`, above t elsewhere, and the logs of their weights; differentiable in t."""
    start = torch.where(lower, (t - _TAIL_WINDOW).clamp_min(0.0).detach(), t)
    end = torch.where(lower, t, (t + _TAIL_WINDOW).detach())
    nodes, log_weights = _legendre(_TAIL_NODES, t.device)
    width = (end - start).unsqueeze(-1)
    return start.unsqueeze(-1) + width * nodes, log_weights + width.log()


def log_cdfs(t: Tensor, q: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Compute log F(t) and log(1 − F(t)) for t > 0, each to full relative accuracy of the smaller one (float64)."""
    return _log_tails(t, q, dim, lambda u, middle: _log_ratio(u, middle, q.unsqueeze(-1), dim))


def chi_log_cdfs(t: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Compute `log_cdfs` at q = 0, where ρ is the density of the χ distribution."""

    def log_ratio(u: Tensor, middle: Tensor) -> Tensor:
        return (middle - u) * (middle + u) / 2 + (dim - 1) * (u / middle).log()

    return _log_tails(t, t.new_zeros(()), dim, log_ratio)


def _log_tails(t: Tensor, q: Tensor, dim: int, log_ratio: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    nodes, log_weights, mode = _window_nodes(q, dim)
    middle = mode.clamp_min(0.5)  # between the two tails, positive; that it is not the exact median does not matter
    lower = (t < middle).detach()
    side_nodes, side_log_weights = _side_nodes(t, lower)
    # Both integrals are relative to ρ(middle): the logs of their absolute values are large where the mode is far out.
    middle = middle.unsqueeze(-1)
    mass = torch.logsumexp(log_ratio(nodes, middle) + log_weights, -1)
    tail = torch.logsumexp(log_ratio(side_nodes, middle) + side_log_weights, -1) - mass
    # The tail is at most a half, so the other side loses nothing; the clamp only guards the last bit.
    rest = torch.log1p(-tail.exp().clamp(max=1 - 2**-53))
    return torch.where(lower, tail, rest), torch.where(lower, rest, tail)


def tilt(t: Tensor, q: Tensor, dim: int) -> Tensor:
    """Compute g(t) = ∂_q log(I·ρ(t)) = n·t²·(log sinhc)′(q·t²)."""
    return (dim - 1) * t * t * logsinhc(q * t * t, 1)


def mean_tilt(q: Tensor, dim: int) -> Tensor:
    """Compute E[g] = ∂_q log I."""
    t, weights = bulk(q, dim)
    return (weights * tilt(t, q.unsqueeze(-1), dim)).sum(-1)


def quantile_slopes(
    t: Tensor, q: Tensor, lower_tail: Tensor, upper_tail: Tensor, dim: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute ∂t/∂q, ∂t/∂log F and ∂t/∂log(1−F) at the quantile t, the latter two 0 on the side that is not the
    smaller.
    """
    lower = lower_tail < upper_tail
    u, log_weights = _side_nodes(t, lower)
    weights = torch.softmax(log_kernel(u, q.unsqueeze(-1), dim) + log_weights, -1)
    # ∂_q log ρ(u) = g(u) − E[g]; the smaller tail's share of it, over ρ, moves the quantile.
    excess = (weights * tilt(u, q.unsqueeze(-1), dim)).sum(-1) - mean_tilt(q, dim)
    log_rho = log_kernel(t, q, dim) - log_normaliser(q, dim)
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
        lower_tail: Tensor, upper_tail: Tensor, q: Tensor, start: Tensor, dim: int, steps: int
    ) -> tuple[Tensor]:
        lower = lower_tail < upper_tail
        target = torch.where(lower, lower_tail, upper_tail) + log_normaliser(q, dim)
        log_t = start.log()
        for _ in range(steps):
            # Newton on the log of the tail in log t. Both tails are log-concave, so steps cannot run away; the
            # clamp bounds the first ones, from a poor start.
            t = log_t.exp()
            u, log_weights = _side_nodes(t, lower)
            tail = torch.logsumexp(log_kernel(u, q.unsqueeze(-1), dim) + log_weights, -1)
            slope = torch.where(lower, 1.0, -1.0) * (log_kernel(t, q, dim) + log_t - tail).exp()
            log_t = log_t + ((target - tail) / slope).clamp(-2.0, 2.0)
        return (log_t.exp(),)

    @classmethod
    def traced(
        cls, lower_tail: Tensor, upper_tail: Tensor, q: Tensor, start: Tensor, dim: int, steps: int
    ) -> tuple[Tensor]:
        with torch.no_grad():
            lower, upper, shape = lower_tail.detach(), upper_tail.detach(), q.detach()
            (t,) = cls.forward(lower, upper, shape, start.detach(), dim, steps)
            slopes = quantile_slopes(t, shape, lower, upper, dim)
        return (with_slopes(t, (q, lower_tail, upper_tail), slopes),)

    @staticmethod
    def gradients(inputs: Any, kept: Any, needed: Any, grad: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        lower_tail, upper_tail, q, _, dim, _ = inputs
        by_q, by_lower, by_upper = _Slopes.call(*kept, q, lower_tail, upper_tail, dim)
        return grad * by_lower, grad * by_upper, grad * by_q


def _guess(lower_tail: Tensor, upper_tail: Tensor, q: Tensor, dim: int) -> Tensor:
    """Return a start from which Newton's method on the log of the tail approaches the quantile from outside.

    log ρ is concave with second derivative at most −1, so F(m − δ) ≤ exp(−δ²/2) and likewise above the mode m; for
    small t, where that bound is empty, F(t) ≈ t^d/(d·I).
    """
    with torch.no_grad():
        mode = _mode(q, dim)
        small = ((lower_tail + math.log(dim) + log_normaliser(q, dim)) / dim).exp()
        below = torch.maximum(mode - (-2 * lower_tail).sqrt(), torch.minimum(small, mode.clamp_min(0.5) / 2))
        above = mode + (-2 * upper_tail).sqrt()
        return torch.where(lower_tail < upper_tail, below, above).clamp_min(1e-300)


def quantile(
    lower_tail: Tensor, upper_tail: Tensor, q: Tensor, dim: int, start: Tensor | None = None, steps: int = 12
) -> Tensor:
    """Return the t with F(t) = exp(lower_tail) = 1 − exp(upper_tail) (float64).

    Differentiable once in both tails and q, which broadcast. `start` is a first guess, from which `steps` Newton steps
    are taken.
    """
    if start is None:
        start = _guess(lower_tail.detach(), upper_tail.detach(), q.detach(), dim)
    return _Quantile.call(lower_tail, upper_tail, q, start, dim, steps)[0]
