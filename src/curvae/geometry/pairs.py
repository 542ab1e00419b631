"""Distances of many pairs of points of one set: of a list of pairs, or summed up over all pairs.

Notation: S a point, s = |S| its length, u = S/s its direction, ξ its time, r its distance from the origin,
p = e^{√c·r/2}, q = 1/p and E = (p − 1)/√c. The chord D = (2/√c)·sinh(√c·d/2) between two points is

    D² = R² + s_x·s_y·C,    R = (2/√c)·sinh(√c(r_x − r_y)/2) = (E_x − E_y)(q_x + q_y),    C = |u_x − u_y|²,

a sum of non-negative terms, accurate for near and far pairs at every radius, and made of numbers that belong to one
point: the only transcendental function of a pair is d = (2/√c)·asinh(√c·D/2). Its derivatives are

    ∂D²/∂S_x = 2s_y·(u_x − u_y)_⊥ + u_x·(s_y·C + R(p_x·q_y + q_x·p_y)/ξ_x),    ∂D²/∂c = −(τ_x − τ_y)²/(ξ_x·ξ_y),

with ⊥ the part across u_x and τ = s²/(1 + ξ).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from . import hyperboloid as h
from .checks import broadcast_shapes
from .functions import REACH, Primitive, arsinh_and_slope, arsinh_by_c, asinhc, sinhc_slope

__all__ = ["Summand", "distance_table", "distances", "distances_within", "sum_over_pairs"]

# A function of distances and of numbers that broadcast against them: its value and its derivatives in the distance and
# in each of the numbers.
Summand = Callable[..., tuple[Tensor, ...]]

# (D/2)² below which two points count as one: D has no gradient there, and beside rounded differences of the points one
# over D would be noise.
_SAME = 1e-20

# Rows of one block of the matrix of pairs: small blocks leave out more of its lower half, large ones cost less time
# around the work. And numbers in one block, which bound the memory.
_ROWS = 160
_NUMBERS_CPU, _NUMBERS = 1 << 22, 1 << 26
_TABLE = 1 << 17  # entries of a table of distances that are computed at once


class _Polar(NamedTuple):
    """Numbers of every point, each of shape (…, n), except u, (…, n, d)."""

    u: Tensor
    s: Tensor
    xi: Tensor
    E: Tensor
    p: Tensor
    q: Tensor
    tau: Tensor


def _polar(S: Tensor, c: Tensor) -> _Polar:
    square = h.dot(S, S)
    s, xi = square.sqrt(), (1.0 + c * square).sqrt()
    r = s * asinhc(c * square)
    x = 0.5 * c.sqrt() * r + 1e-300  # the offset turns 0/0 into 1
    u = S / (square + 1e-300).sqrt().unsqueeze(-1)
    return _Polar(u, s, xi, 0.5 * r * x.expm1() / x, x.exp(), (-x).exp(), square / (1.0 + xi))


def _half_chord(square: Tensor, dtype: torch.dtype) -> Tensor:
    return square.clamp(max=torch.finfo(dtype).max / 10.0).to(dtype).mul(0.25).sqrt()


def _by_square(slope: Tensor, half: Tensor) -> Tensor:
    """∂d/∂D², given ∂d/∂(D/2); 0 at D = 0."""
    return slope * 0.125 / (half + _SAME / half)


def _gather(points: Tensor, index: Tensor) -> Tensor:
    """Rows of (…, n, m) with the numbers (…, P)."""
    if index.dim() == 1:
        return points.index_select(-2, index)
    batch = broadcast_shapes(points.shape[:-2], index.shape[:-1])
    index = index.unsqueeze(-1).expand(*batch, -1, points.shape[-1])
    return points.expand(*batch, -1, -1).gather(-2, index)


class _End(NamedTuple):
    """Numbers of one point of every pair, as of `_Polar`, each of shape (…, P), except u, (…, d, P): operations go
    through them in the order of memory."""

    u: Tensor
    s: Tensor
    xi: Tensor
    E: Tensor
    q: Tensor

    @classmethod
    def of(cls, rows: Tensor) -> _End:
        dim = rows.shape[-2] - len(cls._fields) + 1
        return cls(rows[..., :dim, :], *rows[..., dim:, :].unbind(-2))


def _ends(S: Tensor, pairs: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers of the first and of the second points of pairs, each (…, d + 4, P), for `_End`."""
    count = pairs.shape[-1]
    few = 2 * count < S.shape[-2]  # most points are in no pair
    x = _polar(_gather(S, pairs.flatten(-2)) if few else S, c)
    columns = torch.cat([x.u, torch.stack([x.s, x.xi, x.E, x.q], -1)], -1)
    if few:
        first, second = columns[..., :count, :], columns[..., count:, :]
    else:
        first, second = (_gather(columns, pairs[..., side, :]) for side in (0, 1))
    return first.mT.contiguous(), second.mT.contiguous()


class _Distances(Primitive):
    """`distances`, with its derivative in closed form."""

    events = (2, 2)
    results = 1

    @classmethod
    def traced(cls, S: Tensor, pairs: Tensor, c: Tensor) -> tuple[Tensor]:
        x, y = (_gather(S, pairs[..., side, :]) for side in (0, 1))
        return (h.dist(x, y, c.unsqueeze(-1)),)

    @staticmethod
    def forward(S: Tensor, pairs: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        c = c.unsqueeze(-1)
        x, y = _ends(S, pairs, c)
        one, two = _End.of(x), _End.of(y)
        R, turn = (one.E - two.E) * (one.q + two.q), one.u - two.u
        half = _half_chord(R * R + one.s * two.s * (turn * turn).sum(-2), torch.float64)
        value, slope = arsinh_and_slope(half, c, 2.0 * torch.ones_like(c))
        return value, slope, half, x, y, R

    @staticmethod
    def gradients(inputs: Any, kept: Any, needed: Any, grad: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        (S, pairs, c), (value, slope, half, x, y, R) = inputs, kept
        one, two = _End.of(x), _End.of(y)
        turn, push = one.u - two.u, grad * _by_square(slope, half)
        C, bend = (turn * turn).sum(-2), R * (two.q / one.q + one.q / two.q)
        total = torch.zeros(*push.shape[:-1], S.shape[-1], S.shape[-2], dtype=S.dtype, device=S.device)
        for side, a, b, sign in ((0, one, two, 1.0), (1, two, one, -1.0)):
            v = sign * turn
            across = v - a.u * (a.u * v).sum(-2, keepdim=True)
            along = push * (b.s * C + sign * bend / a.xi)
            slope_S = (2.0 * push * b.s).unsqueeze(-2) * across + a.u * along.unsqueeze(-2)
            total = total.scatter_add(-1, pairs[..., side, :].unsqueeze(-2).expand_as(slope_S), slope_S)
        grad_c = None
        if needed[2]:
            wide = c.unsqueeze(-1)
            rise = one.s * one.s / (1.0 + one.xi) - two.s * two.s / (1.0 + two.xi)
            by_c = grad * arsinh_by_c(half, wide, 2.0 * torch.ones_like(wide), value, slope)
            grad_c = (by_c - push * rise * rise / (one.xi * two.xi)).sum(-1)
        return total.mT, None, grad_c


def distances(S: Tensor, pairs: Tensor, c: Tensor) -> Tensor:
    """Return distances of listed pairs, shape (…, P); float64.

    Arguments:
        S: points, shape (…, n, d), float64.
        pairs: numbers of the two points of every pair, shape (…, 2, P).
        c: curvature, shape (…), float64.

    Example:
        >>> S = torch.tensor([[0.0, 0.0], [3.0, 4.0]], dtype=torch.float64)
        >>> distances(S, torch.tensor([[0], [1]]), torch.zeros((), dtype=torch.float64))
        tensor([5.], dtype=torch.float64)
    """
    return _Distances.call(S, pairs, c)[0]


def distance_table(x: Tensor, y: Tensor, c: Tensor) -> Tensor:
    """Return distances of all points x to all points y, (n, m); float64, without gradients, a block of rows at a time.

    Arguments:
        x, y: points, (n, d) and (m, d), float64.
        c: curvature, a scalar, float64.

    Example:
        >>> x = torch.tensor([[0.0, 0.0], [3.0, 4.0]], dtype=torch.float64)
        >>> distance_table(x, x[:1], torch.zeros((), dtype=torch.float64)).flatten()
        tensor([0., 5.], dtype=torch.float64)
    """
    with torch.no_grad():
        one, two = _polar(x, c), _polar(y, c)
        gain = 2.0 * torch.ones_like(c)
        step = max(1, _TABLE // max(1, len(y)))
        squares = (_chords(one, slice(a, a + step), two, slice(None))[2] for a in range(0, max(1, len(x)), step))
        return torch.cat([arsinh_and_slope(_half_chord(square, torch.float64), c, gain)[0] for square in squares])


class _SumOverPairs(Primitive):
    """`sum_over_pairs`. The gradient of a sum is a few numbers a point, so it is gathered in the forward pass, block by
    block of rows of the matrix of pairs, and no matrix is kept."""

    events = (2,)
    results = 1

    @classmethod
    def traced(
        cls, S: Tensor, c: Tensor, summand: Summand, dtype: torch.dtype, by_c: bool | None, *numbers: Tensor
    ) -> tuple[Tensor]:
        d = h.dist(S.unsqueeze(-2), S.unsqueeze(-3), c[..., None, None]).to(dtype)
        return (_sum_above(summand(d, *(t[..., None, None] for t in numbers))[0]),)

    @staticmethod
    def forward(
        S: Tensor, c: Tensor, summand: Summand, dtype: torch.dtype, by_c: bool | None, *numbers: Tensor
    ) -> tuple[Tensor | None, ...]:
        x = _polar(S, c.unsqueeze(-1))
        c, *numbers = (t[..., None, None].to(dtype) for t in (c, *numbers))  # type: ignore[assignment]
        parts = [
            _block(a, b, x, S, c, summand, numbers, dtype, by_c)
            for a, b in _blocks(S.shape[-2], x.s.numel() // S.shape[-2], S.device)
        ]
        total, *rest = (reduce(torch.add, column) for column in zip(*parts, strict=True))
        if by_c is None:
            return total, *(None for _ in range(2 + len(numbers)))
        across, bends, turns, *rest = rest
        # Twice, for what rounding leaves along u is large beside the radial part of a far point.
        for _ in range(2):
            across = across - x.u * h.dot(x.u, across).unsqueeze(-1)
        along = turns[..., 0] + (x.p * bends[..., 0] + x.q * bends[..., 1]) / x.xi
        return total, x.u * along.unsqueeze(-1) - 2.0 * across, rest.pop() if by_c else None, *rest

    @staticmethod
    def gradients(inputs: Any, kept: Any, needed: Any, grad: Tensor) -> Any:  # type: ignore[override]
        _, by_points, by_c, *slopes = kept
        if needed[1] and by_c is None:
            return _SumOverPairs.retraced(inputs, needed, [grad])
        grad_c = None if by_c is None else grad * by_c
        others = [(grad * t).sum_to_size(x.shape).to(x.dtype) for t, x in zip(slopes, inputs[5:], strict=True)]
        return grad[..., None, None] * by_points, grad_c, None, None, None, *others


def _chords(x: _Polar, rows: slice, y: _Polar, columns: slice) -> tuple[Tensor, Tensor, Tensor]:
    """R, C and D² of some of the points x, as rows, with some of the points y, as columns."""

    def outer(operation: Callable[[Tensor, Tensor], Tensor], t: Tensor, to: Tensor) -> Tensor:
        return operation(t[..., rows, None], to[..., None, columns])

    R = outer(torch.sub, x.E, y.E) * outer(torch.add, x.q, y.q)
    directions = zip(x.u.mT.contiguous().unbind(-2), y.u.mT.contiguous().unbind(-2), strict=True)
    turns = (outer(torch.sub, u, to) for u, to in directions)
    first = next(turns)
    C = reduce(lambda C, turn: torch.addcmul(C, turn, turn), turns, first * first)
    return R, C, torch.addcmul(R * R, C * y.s[..., None, columns], x.s[..., rows, None])


def _blocks(n: int, batch: int, device: torch.device) -> list[tuple[int, int]]:
    """Return the first row of every block, and the first after it."""
    numbers = _NUMBERS_CPU if device.type == "cpu" else _NUMBERS
    rows = max(1, min(_ROWS, numbers // (batch * n)))
    count = -(-n // rows)
    return list(pairwise(n * i // count for i in range(count + 1)))


def _block(
    a: int,
    b: int,
    x: _Polar,
    S: Tensor,
    c: Tensor,
    summand: Summand,
    numbers: Sequence[Tensor],
    dtype: torch.dtype,
    by_c: bool | None,
) -> list[Tensor]:
    """Return what the pairs of the points a to b, as rows, with all later points, as columns, add to the sum; to the
    sums over y of F·S_y, F·R·(q_y, p_y) and F·C·s_y with the force F = f′·∂d/∂D²; and to the derivatives in numbers
    and c."""
    R, C, square = _chords(x, slice(a, b), x, slice(a, None))
    half = _half_chord(square, dtype)
    gain = 2.0 * torch.ones_like(c)
    d, slope = arsinh_and_slope(half, c, gain)
    value, push, *pulls = summand(d, *numbers)
    parts = [_sum_above(value)]
    if by_c is None:
        return parts

    force = (push * _by_square(slope, half)).triu(1).double()
    # The matrix is symmetric in all but R: what a row gains from a column, the column gains from the row.
    for weights, t, sign in (
        (force, S, 1.0),
        (force * R, torch.stack([x.q, x.p], -1), -1.0),
        (force * C, x.s.unsqueeze(-1), 1.0),
    ):
        rows, columns = weights @ t[..., a:, :], weights.mT @ t[..., a:b, :]
        parts.append(F.pad(rows, (0, 0, a, S.shape[-2] - b)) + F.pad(sign * columns, (0, 0, a, 0)))
    parts += [_sum_above(pull) for pull in pulls]
    if by_c:
        rise, times = x.tau[..., a:b, None] - x.tau[..., None, a:], x.xi[..., a:b, None] * x.xi[..., None, a:]
        by_chord = _sum_above(push * arsinh_by_c(half, c, gain, d, slope))
        parts.append(by_chord - (force * rise * rise / times).sum((-2, -1)))
    return parts


def _sum_above(matrix: Tensor) -> Tensor:
    """Return the sum of the entries above the diagonal."""
    return matrix.triu(1).sum((-2, -1), dtype=torch.float64)


def sum_over_pairs(
    S: Tensor, c: Tensor, summand: Summand, *numbers: Tensor, dtype: torch.dtype = torch.float64, learned: bool = False
) -> Tensor:
    """Compute Σ_{i<j} f(d(S_i, S_j)), of shape (…), float64, in memory that grows like n.

    Arguments:
        S: points, shape (…, n, d), float64.
        c: curvature, shape (…), float64.
        summand: f, elementwise: from distances and numbers to the value and its derivatives in the distance and in
            every number. The value itself must be differentiable by autograd, for second derivatives.
        numbers: what f depends on besides, each of shape (…).
        dtype: of the distances that f is given. Chords are float64 in any case; single precision after them saves 40 %
            of the time, leaves seven digits of every term and ends at √c·distance 85, where terms stay constant.
        learned: whether a gradient in c will be wanted. Without this hint it is right, but slow and costs n² memory.

    Example:
        >>> S = torch.tensor([[0.0, 0.0], [3.0, 4.0], [3.0, 0.0]], dtype=torch.float64)
        >>> sum_over_pairs(S, torch.zeros((), dtype=torch.float64), lambda d: (d, torch.ones_like(d)))
        tensor(12., dtype=torch.float64)
    """
    by_c = learned if torch.is_grad_enabled() else None
    return _SumOverPairs.call(S, c, summand, dtype, by_c, *numbers)[0]


# Distances of some points from all of a set, as a matrix. Notation and formulas as in `pairs`.
#
# The points are exp_0(U): a tangent vector gives r and u at once, and with x = √c·r/2, p = e^x and k = 1/√c
# E = k·(p − 1), s = E(1 + q)(p + q)/2 and ξ = (p² + q²)/2. Along u a point moves by ξ for every unit of r, across it by
# s/r for every unit of U.

_SMALLEST = 1e-150  # of a length, so that quotients are defined at the origin and at c = 0


class _TangentPolar(NamedTuple):
    """Numbers of every point, each of shape (…, m), except u, (…, m, d)."""

    u: Tensor
    r: Tensor
    E: Tensor
    s: Tensor
    p: Tensor
    q: Tensor


def _tangent_polar(U: Tensor, c: Tensor) -> _TangentPolar:
    r = h.dot(U, U).sqrt_().clamp_(min=_SMALLEST)
    x = ((0.5 * c.sqrt()).unsqueeze(-1) * r).clamp_(_SMALLEST, REACH / 2.0)
    e = x.expm1()
    p = e + 1.0
    q = p.reciprocal()
    E = e.mul_(r / x).mul_(0.5)
    return _TangentPolar(U / r.unsqueeze(-1), r, E, E * (q + 1.0) * (p + q) * 0.5, p, q)


class _Within(Primitive):
    """`distances_within`, with its derivative in closed form: of the matrix, only products with numbers of the points
    are needed."""

    events = (2,)
    results = 1

    @classmethod
    def traced(cls, U: Tensor, c: Tensor, count: int, dtype: torch.dtype) -> tuple[Tensor]:
        S = h.expmap0(U, c[..., None])
        return (h.dist(S[..., :count, None, :], S.unsqueeze(-3), c[..., None, None]).to(dtype),)

    @staticmethod
    def forward(U: Tensor, c: Tensor, count: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
        y = _tangent_polar(U, c)
        E, s, q = (t[..., :count].unsqueeze(-1) for t in (y.E, y.s, y.q))
        R = (E - y.E.unsqueeze(-2)).mul_(q + y.q.unsqueeze(-2))
        turns = y.u.mT.unsqueeze(-2)
        turns = turns.mT[..., :count, :] - turns
        C = turns.mul_(turns).sum(-3)
        half = _half_chord(torch.addcmul(R * R, C * s, y.s.unsqueeze(-2)), dtype)
        c = c[..., None, None].to(dtype)
        value, slope = arsinh_and_slope(half, c, torch.full_like(c, 2.0))
        return value, slope, half, R, C, *y

    @staticmethod
    def gradients(inputs: Any, kept: Any, needed: Any, grad: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        (_, c, count, dtype), (value, slope, half, R, C, *numbers) = inputs, kept
        y = _TangentPolar(*numbers)
        force = (grad * _by_square(slope, half)).double()
        across, turn, by_q, by_p = _sums(y, force, R, C)
        xi = torch.addcmul(y.q * y.q, y.p, y.p).mul_(0.5)
        along = torch.addcmul(xi * turn, y.p, by_q).addcmul_(y.q, by_p)
        # Twice, for what rounding leaves along u is large beside the radial part of a far point.
        for _turn in range(2):
            across = torch.addcmul(across, y.u, (y.u * across).sum(-1, keepdim=True), value=-1.0)
        grad_U = torch.addcmul(y.u * along.unsqueeze(-1), across, (y.s / y.r).unsqueeze(-1), value=-2.0)
        grad_c = None
        if needed[1]:
            tau = y.s * y.s / (1.0 + xi)
            rise = tau[..., :count].unsqueeze(-1) - tau.unsqueeze(-2)
            wide = c[..., None, None].to(dtype)
            by_chord = (grad * arsinh_by_c(half, wide, torch.full_like(wide, 2.0), value, slope)).double()
            by_chord -= force * rise * rise / (xi[..., :count].unsqueeze(-1) * xi.unsqueeze(-2))
            # The points are not fixed: ∂s/∂c = r³·sinhc′(c·r²).
            cube, bend = y.r**3, c.unsqueeze(-1) * y.r * y.r
            by_points = along / xi * cube * sinhc_slope(bend, xi, y.s / y.r)
            grad_c = by_chord.sum((-2, -1)) + by_points.sum(-1)
        return grad_U, grad_c


def _sums(y: _TangentPolar, force: Tensor, R: Tensor, C: Tensor) -> tuple[Tensor, ...]:
    """Return what all points exert on each, F @ S, (F·C) @ s, (F·R) @ q and (F·R) @ p, for both orders of a pair."""
    count, d = force.shape[-2], y.u.shape[-1]
    columns = torch.cat([y.u * y.s.unsqueeze(-1), torch.stack([y.s, y.q, y.p], -1)], -1).unsqueeze(-3)
    matrices = torch.stack([force, force * C, force * R], -3)
    totals = matrices.mT @ columns[..., :count, :]
    totals[..., 2, :, :].neg_()  # R changes its sign with the order of a pair
    totals[..., :count, :].add_(matrices @ columns)
    straight, turn, bend = totals.unbind(-3)
    return straight[..., :d], turn[..., d], bend[..., d + 1], bend[..., d + 2]


def distances_within(U: Tensor, c: Tensor, count: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return distances of the first `count` of the points exp_0(U), U of shape (…, m, d), from all of them: (…, count,
    m).

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
