"""Distances of some points from all of a set, as a matrix. Notation and formulas as in `pairs`.

The points are exp_0(U): a tangent vector gives r and u at once, and with x = √c·r/2, p = e^x and k = 1/√c
E = k·(p − 1), s = E(1 + q)(p + q)/2 and ξ = (p² + q²)/2. Along u a point moves by ξ for every unit of r, across it by
s/r for every unit of U.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import hyperboloid as h
from .functions import REACH, arsinh_and_slope, arsinh_by_c, sinhc_slope
from .pairs import _by_square, _half_chord
from .primitive import Primitive

__all__ = ["distances_within"]

_SMALLEST = 1e-150  # of a length, so that quotients are defined at the origin and at c = 0


class _Polar(NamedTuple):
    """Numbers of every point, each of shape (…, m), except u, (…, m, d)."""

    u: Tensor
    r: Tensor
    E: Tensor
    s: Tensor
    p: Tensor
    q: Tensor


def _polar(U: Tensor, c: Tensor) -> _Polar:
    r = h.dot(U, U).sqrt_().clamp_(min=_SMALLEST)
    x = ((0.5 * c.sqrt()).unsqueeze(-1) * r).clamp_(_SMALLEST, REACH / 2.0)
    e = x.expm1()
    p = e + 1.0
    q = p.reciprocal()
    E = e.mul_(r / x).mul_(0.5)
    return _Polar(U / r.unsqueeze(-1), r, E, E * (q + 1.0) * (p + q) * 0.5, p, q)


def _matrix(c: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """c as it goes with a matrix, and the gain of `arsinh` for half a chord."""
    c = c[..., None, None].to(dtype)
    return c, torch.full_like(c, 2.0)


class _Within(Primitive):
    """`distances_within`, with its derivative in closed form: of the matrix, only products with numbers of the points
    are needed."""

    events = (2,)
    results = 1

    @classmethod
    def traced(cls, U: Tensor, c: Tensor, count: int, dtype: torch.dtype) -> tuple[Tensor]:
        S, wide = h.expmap0(U, c[..., None]), c[..., None, None]
        x, y = S[..., :count, None, :], S.unsqueeze(-3)
        return (h.dist(x, y, wide).to(dtype),)

    @staticmethod
    def forward(U: Tensor, c: Tensor, count: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
        y = _polar(U, c)
        E, s, q = (t[..., :count].unsqueeze(-1) for t in (y.E, y.s, y.q))
        R = (E - y.E.unsqueeze(-2)).mul_(q + y.q.unsqueeze(-2))
        turns = y.u.mT.unsqueeze(-2)
        turns = turns.mT[..., :count, :] - turns
        C = turns.mul_(turns).sum(-3)
        half = _half_chord(torch.addcmul(R * R, C * s, y.s.unsqueeze(-2)), dtype)
        value, slope = arsinh_and_slope(half, *_matrix(c, dtype))
        return value, slope, half, R, C, *y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        *tensors, ctx.count, ctx.dtype = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*tensors, *output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        U, c, value, slope, half, R, C, *numbers = ctx.saved_tensors
        count, dtype = ctx.count, ctx.dtype
        if torch.is_grad_enabled():
            traced = torch.func.vjp(lambda U, c: _Within.traced(U, c, count, dtype)[0], U, c)[1]
            return *traced(grad), None, None
        y = _Polar(*numbers)
        force = (grad * _by_square(slope, half)).double()
        across, turn, by_q, by_p = _sums(y, force, R, C)
        xi = torch.addcmul(y.q * y.q, y.p, y.p).mul_(0.5)
        along = torch.addcmul(xi * turn, y.p, by_q).addcmul_(y.q, by_p)
        # Twice, for what rounding leaves along u is large beside the radial part of a far point.
        for _turn in range(2):
            across = torch.addcmul(across, y.u, (y.u * across).sum(-1, keepdim=True), value=-1.0)
        grad_U = torch.addcmul(y.u * along.unsqueeze(-1), across, (y.s / y.r).unsqueeze(-1), value=-2.0)
        grad_c = None
        if ctx.needs_input_grad[1]:
            tau = y.s * y.s / (1.0 + xi)
            rise = tau[..., :count].unsqueeze(-1) - tau.unsqueeze(-2)
            by_chord = (grad * arsinh_by_c(half, *_matrix(c, dtype), value, slope)).double()
            by_chord -= force * rise * rise / (xi[..., :count].unsqueeze(-1) * xi.unsqueeze(-2))
            # The points are not fixed: ∂s/∂c = r³·sinhc′(c·r²).
            cube, bend = y.r**3, c.unsqueeze(-1) * y.r * y.r
            by_points = along / xi * cube * sinhc_slope(bend, xi, y.s / y.r, rough=False)
            grad_c = (by_chord.sum((-2, -1)) + by_points.sum(-1)).sum_to_size(c.shape)
        return grad_U.sum_to_size(U.shape), grad_c, None, None


def _sums(y: _Polar, force: Tensor, R: Tensor, C: Tensor) -> tuple[Tensor, ...]:
    """What all points exert on each: F @ S, (F·C) @ s, (F·R) @ q and (F·R) @ p, of pairs (x, y) and (y, x) alike."""
    count, d = force.shape[-2], y.u.shape[-1]
    columns = torch.cat([y.u * y.s.unsqueeze(-1), torch.stack([y.s, y.q, y.p], -1)], -1).unsqueeze(-3)
    matrices = torch.stack([force, force * C, force * R], -3)
    totals = matrices.mT @ columns[..., :count, :]
    totals[..., 2, :, :].neg_()  # R changes its sign with the order of a pair
    totals[..., :count, :].add_(matrices @ columns)
    straight, turn, bend = totals.unbind(-3)
    return straight[..., :d], turn[..., d], bend[..., d + 1], bend[..., d + 2]


def distances_within(U: Tensor, c: Tensor, count: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Distances of the first `count` of the points exp_0(U), U of shape (…, m, d), from all of them: (…, count, m).

    Points that coincide have the distance 0 and no gradient.

    Arguments:
        U: tangent vectors at the origin, float64.
        c: curvature, shape (…), float64.
        count: of rows of the matrix.
        dtype: of the distances. Chords are float64 in any case.

    Example:
        >>> U = torch.tensor([[0.0, 0.0], [3.0, 4.0]], dtype=torch.float64)
        >>> distances_within(U, torch.zeros((), dtype=torch.float64), 1)
        tensor([[0., 5.]], dtype=torch.float64)
    """
    return _Within.call(U, c, count, dtype)[0]
