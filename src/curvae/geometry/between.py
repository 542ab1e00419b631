"""Distances of all points of one set from all points of another, as a matrix. Notation and formulas as in `pairs`."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from . import hyperboloid as h
from .checks import broadcast_shapes
from .functions import arsinh_and_slope, arsinh_by_c
from .pairs import _by_square, _half_chord, _Polar, _polar
from .primitive import Primitive

__all__ = ["distances_between"]


def _outer(operation: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor) -> Tensor:
    return operation(a.unsqueeze(-1), b.unsqueeze(-2))


def _narrow(c: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """c as it goes with a matrix, and the gain of `arsinh` for half a chord."""
    c = c[..., None, None].to(dtype)
    return c, 2.0 * torch.ones_like(c)


def _both(S: Tensor, T: Tensor, c: Tensor) -> tuple[_Polar, _Polar]:
    """Numbers of the points of both sets, at once."""
    sizes = S.shape[-2], T.shape[-2]
    if S.shape[:-2] != T.shape[:-2]:
        batch = broadcast_shapes(S.shape[:-2], T.shape[:-2])
        S, T = (points.expand(*batch, -1, -1) for points in (S, T))
    u, *rest = _polar(torch.cat([S, T], -2), c.unsqueeze(-1))
    first, second = zip(u.split(sizes, -2), *(t.split(sizes, -1) for t in rest), strict=True)
    return _Polar(*first), _Polar(*second)


class _Between(Primitive):
    """`distances_between`, with its derivative in closed form: of the matrix, only products with numbers of the points
    are needed."""

    events = (2, 2)
    results = 1

    @classmethod
    def traced(cls, S: Tensor, T: Tensor, c: Tensor, dtype: torch.dtype) -> tuple[Tensor]:
        x, y, wide = S.unsqueeze(-2), T.unsqueeze(-3), c[..., None, None]
        return (h.dist0(h.displacement(x, y, h.ball_difference(x, y, wide), wide), wide).to(dtype),)

    @staticmethod
    def forward(S: Tensor, T: Tensor, c: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
        x, y = _both(S, T, c)
        R = _outer(torch.sub, x.E, y.E) * _outer(torch.add, x.q, y.q)
        turns = (_outer(torch.sub, u, v) for u, v in zip(x.u.unbind(-1), y.u.unbind(-1), strict=True))
        C = reduce(torch.add, (turn * turn for turn in turns))
        half = _half_chord(torch.addcmul(R * R, C * y.s.unsqueeze(-2), x.s.unsqueeze(-1)), dtype)
        value, slope = arsinh_and_slope(half, *_narrow(c, dtype))
        return value, slope, half, R, C, *x, *y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        *tensors, ctx.dtype = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*tensors, *output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        S, T, c, value, slope, half, R, C, *numbers = ctx.saved_tensors
        if torch.is_grad_enabled():

            def traced(S: Tensor, T: Tensor, c: Tensor) -> Tensor:
                return _Between.traced(S, T, c, ctx.dtype)[0]

            return *torch.func.vjp(traced, S, T, c)[1](grad), None
        x, y = _Polar(*numbers[: len(numbers) // 2]), _Polar(*numbers[len(numbers) // 2 :])
        force = (grad * _by_square(slope, half)).double()
        bend, turn = force * R, force * C
        grad_S = _gathered(x, y, T, force, bend, turn)
        grad_T = _gathered(y, x, S, force.mT, -bend.mT, turn.mT)
        grad_c = None
        if ctx.needs_input_grad[2]:
            rise = _outer(torch.sub, x.tau, y.tau)
            by_c = (grad * arsinh_by_c(half, *_narrow(c, ctx.dtype), value, slope)).double()
            grad_c = (by_c - force * rise * rise / _outer(torch.mul, x.xi, y.xi)).sum((-2, -1)).sum_to_size(c.shape)
        return grad_S.sum_to_size(S.shape), grad_T.sum_to_size(T.shape), grad_c, None


def _gathered(x: _Polar, y: _Polar, T: Tensor, force: Tensor, bend: Tensor, turn: Tensor) -> Tensor:
    """The gradient in every point x of what all points y, at T, exert on it."""
    across = force @ T
    # Twice, for what rounding leaves along u is large beside the radial part of a far point.
    for _ in range(2):
        across = across - x.u * h.dot(x.u, across).unsqueeze(-1)
    bends = bend @ torch.stack([y.q, y.p], -1)
    along = (turn @ y.s.unsqueeze(-1)).squeeze(-1) + (x.p * bends[..., 0] + x.q * bends[..., 1]) / x.xi
    return x.u * along.unsqueeze(-1) - 2.0 * across


def distances_between(S: Tensor, T: Tensor, c: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """Distances of all points S, shape (…, n, d), from all points T, (…, m, d), as a matrix (…, n, m).

    Points that coincide have the distance 0 and no gradient.

    Arguments:
        S, T: points, float64.
        c: curvature, shape (…), float64.
        dtype: of the distances. Chords are float64 in any case.

    Example:
        >>> S = torch.tensor([[0.0, 0.0], [3.0, 4.0]], dtype=torch.float64)
        >>> distances_between(S, S, torch.zeros((), dtype=torch.float64))
        tensor([[0., 5.],
                [5., 0.]], dtype=torch.float64)
    """
    return _Between.call(S, T, c, dtype)[0]
