"""The one geometry: pure functions of (S, c), smooth through c = 0.

A point of the space of curvature −c is its space part S ∈ ℝ^d on the hyperboloid ξ² − c|S|² = 1; as c → 0, S is the
tangent vector at the origin. A tangent vector at any point is given by its coordinates in the orthonormal frame that
parallel transport brings there from the origin, so its Euclidean norm is its length.

Notation: S, T points; xi their time parts; v tangent vectors; c ≥ 0 a number or a tensor of the batch shape (…).
Everything here is float64; `curvae.geometry.manifolds` converts at the door.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .functions import (
    REACH,
    Primitive,
    arsinh,
    arsinh_and_slope,
    arsinh_by_c,
    asinhc,
    cosh_sinhc,
    cosh_sqrt,
    rsqrt1p,
    sinhc,
    sinhc_slope,
)

__all__ = [
    "ball",
    "chord",
    "chord_length",
    "direction",
    "displacement",
    "dist",
    "dist0",
    "dot",
    "expmap",
    "expmap0",
    "from_ball",
    "geodesic_shares",
    "gyrate",
    "gyroplanes",
    "lift",
    "limit",
    "logmap0",
    "norm",
    "plane",
    "rotate",
    "saturate",
    "shrinkage",
    "time",
    "translate",
]

Curvature = Tensor | float

_TINY, _SMALL = 1e-300, 1e-150  # turn 0/0 into 0 and sinh(0)/0 into 1
_MANY = 1024  # numbers from which on it is not calls that take the time


def dot(u: Tensor, v: Tensor) -> Tensor:
    product = u * v
    return product[..., 0] + product[..., 1] if _many_pairs(product) else product.sum(-1)


def _many_pairs(v: Tensor) -> bool:
    """Whether v has many rows of two numbers, where a sum along them takes seven times as long as one of columns."""
    return v.shape[-1] == 2 and not torch.compiler.is_compiling() and v.numel() >= _MANY


def norm(v: Tensor) -> Tensor:
    """Euclidean norm with gradient 0 at 0."""
    return _sqrt(dot(v, v))


def _sqrt(square: Tensor) -> Tensor:
    """Square root with gradient 0 at 0."""
    zero = square == 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, square).sqrt())


def _col(a: Tensor) -> Tensor:
    return a.unsqueeze(-1)


def _plus(u: Tensor, v: Tensor, a: Tensor) -> Tensor:
    """u + a·v for scalars a of the batch."""
    return torch.addcmul(u, v, a.unsqueeze(-1))


def time(S: Tensor, c: Curvature) -> Tensor:
    """Compute ξ = √(1 + c|S|²)."""
    return (1.0 + c * dot(S, S)).sqrt()


def limit(dtype: torch.dtype, dim: int, c: Curvature) -> Curvature:
    """Largest |S_i| that a point of this dtype may have, so that lengths and times stay finite."""
    root = c.detach().sqrt() if isinstance(c, Tensor) else math.sqrt(c)
    if dtype == torch.float64:
        return 1e75 / (root + 1e-25)
    return torch.finfo(dtype).max / (math.sqrt(dim) * (1.0 + root))


def shrinkage(S: Tensor, c: Curvature, dtype: torch.dtype, room: float = 1.0) -> Tensor:
    """Return the factor, shape (…, 1), that draws S back to what `dtype` can hold, or to 1/room of it; without
    gradient."""
    bound = limit(dtype, S.shape[-1], c) * ((1.0 - 1e-6) / room)  # a margin for rounding
    size = S.detach().abs()
    size = torch.maximum(size[..., 0], size[..., 1]) if _many_pairs(size) else size.amax(-1)
    return _col((bound / size.clamp_min(1.0)).clamp(max=1.0))


def saturate(S: Tensor, c: Curvature, dtype: torch.dtype, room: float = 1.0) -> Tensor:
    """Return S in `dtype`, drawn back along its ray to the largest radius that the dtype can hold, or to 1/room of it.

    The factor carries no gradient, so that an optimiser can still bring the point back.
    """
    return (S * shrinkage(S, c, dtype, room)).to(dtype)


class _Radial(Primitive):
    """x·f(c|x|²), with its derivative in closed form: eager graphs of tiny tensors cost by the node. It needs the slope
    of |x|·f(c|x|²) in |x|, a function of c|x|² too."""

    events = (1,)
    differentiable = True

    @staticmethod
    def forward(x: Tensor, c: Curvature, f: Callable[..., Tensor], slope: Callable[[Tensor], Tensor]) -> Tensor:
        return x * _col(f(c * dot(x, x)))

    @staticmethod
    def gradients(inputs: Any, kept: Any, needed: Any, grad: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        x, c, f, radial_slope = inputs
        square, along = dot(x, x), dot(x, grad)
        y = c * square
        if torch.is_grad_enabled():
            slope = f(y, 1) * along
            return _plus(grad * _col(f(y)), x, 2.0 * c * slope), square * slope if needed[1] else None
        value = f(y)
        rest = (radial_slope(y) - value) * along
        grad_x = _plus(grad * _col(value), x, rest / (square + _TINY))
        if not needed[1]:
            return (grad_x,)
        near = y < 1.0
        return grad_x, torch.where(near, square * f(y, 1) * along, 0.5 * rest / torch.where(near, 1.0, c))


def expmap0(v: Tensor, c: Curvature) -> Tensor:
    """Compute exp_0: the point at distance |v| from the origin in the direction of v."""
    return _Radial.call(v, c, sinhc, cosh_sqrt)


def logmap0(S: Tensor, c: Curvature) -> Tensor:
    """Compute log_0, the inverse of `expmap0`."""
    return _Radial.call(S, c, asinhc, rsqrt1p)


def dist0(S: Tensor, c: Curvature) -> Tensor:
    """Distance from the origin."""
    return norm(S) * asinhc(c * dot(S, S))


class _Pair(NamedTuple):
    """Numbers of two points S and T, from which all that concerns both follows without cancellation.

    With s and t their lengths, ξ and τ their times, u and w their directions, M the larger length and r the distance
    from the origin: `rise` = t − s, K = t·ξ − s·τ = sinh(√c(r_T − r_S))/√c, N = M·(w − u) and
    Q = s·t·|w − u|²/2 = s·t − ⟨S, T⟩.
    """

    u: Tensor
    w: Tensor
    s: Tensor
    t: Tensor
    xi: Tensor
    tau: Tensor
    rise: Tensor
    K: Tensor
    N: Tensor
    Q: Tensor
    M: Tensor

    def displacement(self, S: Tensor, c: Curvature) -> Tensor:
        """Return the space part of T seen from S."""
        return _plus(_plus(self.N * _col(self.t / self.M), self.u, self.K), S, -c * self.Q / (1.0 + self.xi))

    def gap(self, c: Curvature) -> Tensor:
        """Return 1 − c·s·t/((1 + ξ)(1 + τ))."""
        return 2.0 * (self.xi + self.tau) / ((1.0 + self.xi) * (1.0 + self.tau) + c * self.s * self.t)


def _pair(S: Tensor, T: Tensor, c: Curvature) -> _Pair:
    delta, ss, tt = T - S, dot(S, S), dot(T, T)
    s, t = ss.sqrt(), tt.sqrt()
    xi, tau = (1.0 + c * ss).sqrt(), (1.0 + c * tt).sqrt()
    u, w = S / _col(s + _TINY), T / _col(t + _TINY)
    rise = dot(delta, S + T) / (s + t + _TINY)
    first = s < t
    M = torch.where(first, t, s) + _TINY
    # The longer of the two, less the shorter one stretched to its length: all terms are of the size of delta.
    N = delta - torch.where(_col(first), u, w) * _col(rise)
    # It is orthogonal to u + w. What rounding leaves along it would be large beside the other parts along u.
    both = u + w
    square = dot(both, both)
    clear = square > 2.0  # not where a point is the origin, or nearly opposite to the other
    N = _plus(N, both, torch.where(clear, -dot(N, both) / torch.where(clear, square, 1.0), 0.0))
    K = rise * ((s + t) / (s * tau + t * xi + _TINY))
    Q = 0.5 * dot(N, N) * (torch.where(first, s, t) / M)
    return _Pair(u, w, s, t, xi, tau, rise, K, N, Q, M)


def _far_pair(S: Tensor, T: Tensor, c: Curvature) -> tuple[Tensor, Tensor, _Pair]:
    """Whether both points lie beyond √c·radius 1, shape (…, 1), S there, and the numbers of the pair; for autograd.

    Directions have no derivative at the origin, and are not needed unless both points lie far from it. There some
    other points stand for S and T.
    """
    far = _col((c * dot(S, S) > 1.0) & (c * dot(T, T) > 1.0))
    S, T = torch.where(far, S, 1.0), torch.where(far, T, 2.0)
    return far, S, _pair(S, T, c)


class _Displacement(Primitive):
    """`displacement`, with its derivative in closed form."""

    events = (1, 1)

    @classmethod
    def traced(cls, S: Tensor, T: Tensor, c: Curvature) -> Tensor:
        S, T = torch.broadcast_tensors(S, T)
        ss, tt = dot(S, S), dot(T, T)
        a = c * (tt / (1.0 + (1.0 + c * tt).sqrt()) - dot(S, T) / (1.0 + (1.0 + c * ss).sqrt()))
        far, x, pair = _far_pair(S, T, c)
        return torch.where(far, pair.displacement(x, c), _plus(T - S, S, -a))

    @staticmethod
    def forward(S: Tensor, T: Tensor, c: Curvature) -> Tensor:
        return _pair(S, T, c).displacement(S, c)

    @staticmethod
    def gradients(inputs: Any, kept: Any, needed: Any, grad: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        S, T, c = inputs
        return _displacement_slopes(S, T, c, grad, needed[2])


def _displacement_slopes(S: Tensor, T: Tensor, c: Curvature, grad: Tensor, by_c: bool) -> tuple[Tensor, Tensor, Any]:
    """Gradients of `displacement` in S, T and, if it is asked for, c, of the full batch shape."""
    u, _, s, t, xi, tau, _, K, N, Q, M = _pair(S, T, c)
    # The result is T − a·S with a = τ − c⟨S, T⟩/(1 + ξ), which is positive; along u it is K − ξ·Q/s.
    along, turn = dot(grad, u), N / _col(M)
    across, turned = _plus(grad, u, -along), _plus(turn, u, -dot(turn, u))
    cosh, bend = (1.0 + c * K * K).sqrt(), c * along * s * t
    k = c / (1.0 + xi)
    a = (1.0 + 2.0 * k * t * t) / (tau + k * s * t) + k * Q
    grad_S = _plus(across * _col(-a), turned, bend / (1.0 + xi))
    grad_S = _plus(grad_S, u, -along * (cosh + c * Q) / xi)
    grad_T = _plus(_plus(across, turn, -bend / tau), u, along * cosh / tau)
    return grad_S, grad_T, -0.5 * along * s * (t * K / tau + Q) / xi if by_c else None


def displacement(S: Tensor, T: Tensor, c: Curvature) -> Tensor:
    """Space part of T seen from S, that is (−S) ⊕ T."""
    return _Displacement.call(S, T, c)


def translate(S: Tensor, T: Tensor, c: Curvature) -> Tensor:
    """Translate T along the geodesic from 0 to S: Möbius addition S ⊕ T seen on the hyperboloid."""
    return displacement(-S, T, c)


class _Exp(Primitive):
    """`translate(S, expmap0(v))`: cheaper, for many vectors at a few points."""

    events = (1, 1)

    @classmethod
    def traced(cls, S: Tensor, v: Tensor, c: Curvature) -> Tensor:
        return translate(S, expmap0(v, c), c)

    @staticmethod
    def forward(S: Tensor, v: Tensor, c: Curvature) -> Tensor:
        def length(a: Tensor) -> Tensor:
            return dot(a, a).sqrt_() if _many_pairs(a) else torch.linalg.vector_norm(a, dim=-1)

        # With u and w the directions of S and v, and T = exp_0(v) of length t, the result is
        # t·(u + w) + u·(sinh(√c(r − |v|))/√c + (ξ − 1)·t·(1 + ⟨u, w⟩)), and this sinh/√c is s·e^{−√c|v|} − t·e^{−√c·r}.
        root = c.sqrt() if isinstance(c, Tensor) else math.sqrt(c)
        s, size = (length(a).clamp(min=_SMALL) for a in (S, v))
        xi = (1.0 + (root * s) ** 2).sqrt()
        x = (root * size).clamp(_SMALL, REACH)
        grown = x.expm1()
        back = (grown + 1.0).reciprocal_()  # e^{−x}
        t = torch.addcmul(grown, grown, back).div_(x).mul_(0.5 * size)
        u = S / _col(s)
        both = torch.addcmul(u, v, _col(size.reciprocal_()))
        bend = torch.addcmul(-1.0 / (xi + root * s), 0.5 * c * s * s / (1.0 + xi), length(both) ** 2)
        return _plus(both * _col(t), u, torch.addcmul(back * s, bend, t))

    @staticmethod
    def gradients(inputs: Any, kept: Any, needed: Any, grad: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        S, v, c = inputs
        square = dot(v, v)
        cosh, ratio = cosh_sinhc(c * square)
        grad_S, grad_T, grad_c = _displacement_slopes(-S, v * _col(ratio), c, grad, needed[2])
        along = dot(grad_T, v)
        grad_v = _plus(grad_T * _col(ratio), v, (cosh - ratio) * along / (square + _TINY))
        if needed[2]:
            grad_c = grad_c + square * sinhc_slope(c * square, cosh, ratio) * along
        return -grad_S, grad_v, grad_c


def expmap(S: Tensor, v: Tensor, c: Curvature) -> Tensor:
    """Compute exp_S: the point reached from S by the frame vector v."""
    return _Exp.call(S, v, c)


class _Chord(Primitive):
    """`chord`, with its derivative in closed form."""

    events = (1, 1)

    @classmethod
    def traced(cls, S: Tensor, T: Tensor, c: Curvature) -> tuple[Tensor, Tensor]:
        W = _Displacement.traced(S, T, c)
        square = dot(W, W)  # (sinh(√c·d)/√c)²
        square = 2.0 * square / (1.0 + (1.0 + c * square).sqrt())
        return square, c * square

    @staticmethod
    def forward(S: Tensor, T: Tensor, c: Curvature) -> tuple[Tensor, Tensor]:
        x = _pair(S, T, c)
        square = 2.0 * (x.rise * x.rise / (1.0 + x.xi * x.tau + c * x.s * x.t) + x.Q)
        return square, c * square

    @staticmethod
    def gradients(  # type: ignore[override]
        inputs: Any, kept: Any, needed: Any, grad: Tensor, grad_bent: Tensor
    ) -> tuple[Any, ...]:
        S, T, c = inputs
        x = _pair(S, T, c)
        turn, push = x.N / _col(x.M), 2.0 * (grad + c * grad_bent)
        half = 0.5 * dot(turn, turn)
        slopes = []
        for e, sign, other, xi in ((x.u, -1.0, x.t, x.xi), (x.w, 1.0, x.s, x.tau)):
            across = _plus(turn, e, -dot(turn, e)) * _col(sign * other)
            slopes.append(_plus(across, e, other * half + sign * x.K / xi) * _col(push))
        if needed[2]:
            fall = x.rise * (x.s + x.t) / (x.xi + x.tau)  # (τ − ξ)/c
            slopes.append(grad_bent * (x.K * x.K / (x.xi * x.tau) + 2.0 * x.Q) - grad * fall * fall / (x.xi * x.tau))
        return tuple(slopes)


def chord(S: Tensor, T: Tensor, c: Curvature) -> tuple[Tensor, Tensor]:
    """Compute D² and c·D² for the chord D = (2/√c)·sinh(√c·d/2) between two points, a sum of non-negative terms:
    D² = 2(t − s)²/(1 + ξτ + c·s·t) + s·t·|w − u|². Smooth where the distance d is not, at S = T."""
    return _Chord.call(S, T, c)


def chord_length(square: Tensor, c: Curvature) -> Tensor:
    """Return the distance of two points whose chord has this square; its gradient at 0, which does not exist, is 0."""
    return arsinh(0.5 * _sqrt(square), c, 2.0)


def dist(S: Tensor, T: Tensor, c: Curvature) -> Tensor:
    """Geodesic distance."""
    return chord_length(chord(S, T, c)[0], c)


def geodesic_shares(time: Tensor, bent: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute (sinh((1 − time)·x), sinh(time·x))/sinh x with x = √c·d, given c·D² of the chord of two points, and half
    of what their sum lacks to 1. The shares of S and T make up the point at that time on the geodesic from S, at time
    0, to T, at time 1: without a logarithm, and exact at both.
    """
    square = 0.25 * bent  # sinh²(x/2)
    near = square < 0.25
    small, large = torch.where(near, square, 0.0), torch.where(near, 1.0, square)
    y = 4.0 * small * asinhc(small) ** 2  # x²
    base = (large.sqrt() + (1.0 + large).sqrt()) ** 2  # e^x
    x = base.log()
    with torch.no_grad():  # as far as numbers reach: the point stays on the geodesic
        reach = torch.where(near, REACH / y.sqrt(), 2.0 * REACH / x) / time.abs().clamp_min(1.0)
    first = time * reach.clamp(max=1.0)

    def share(t: Tensor) -> Tensor:
        close = t * sinhc(t * t * y) / sinhc(y)
        return torch.where(near, close, base ** (t - 1.0) * torch.expm1(-2.0 * t * x) / torch.expm1(-2.0 * x))

    # sinh((1 − t)·x/2)·sinh(t·x/2)/cosh(x/2)
    second = 1.0 - first
    close = first * second * y * sinhc(first * first * y / 4.0) * sinhc(second * second * y / 4.0) / 4.0
    close = close / cosh_sqrt(y / 4.0)
    lack = torch.where(near, close, 0.5 * torch.expm1(-first * x) * torch.expm1(-second * x) / (1.0 + 1.0 / base))
    return share(second), share(first), lack


def rotate(v: Tensor, a: Tensor, b: Tensor, cosine: Tensor, size: Tensor) -> Tensor:
    """Return v turned by the square of the rotor cosine + a∧b, of the squared length `size`."""

    def turn(w: Tensor) -> Tensor:
        return _col(dot(b, w)) * a - _col(dot(a, w)) * b

    once = turn(v)
    return v + _col(2.0 / size) * (_col(cosine) * once + turn(once))


class _Gyration(Primitive):
    """`gyrate`. Its derivative follows from that of the rotor q = 1 − k·T·S, a geometric product: R changes by the
    rotation 2⟨dq·q̃⟩₂/|q|²."""

    events = (1, 1, 1)

    @staticmethod
    def forward(S: Tensor, T: Tensor, v: Tensor, c: Curvature) -> Tensor:
        S, T = torch.broadcast_tensors(S, T)
        far, _, x = _far_pair(S, T, c)
        S = torch.where(far, 0.0, S)
        ss, tt, st = dot(S, S), dot(T, T), dot(S, T)
        k = c / ((1.0 + (1.0 + c * ss).sqrt()) * (1.0 + (1.0 + c * tt).sqrt()))
        near = rotate(v, S * _col(k), T, 1.0 - k * st, 1.0 - 2.0 * k * st + k * k * ss * tt)
        # With both points far out, k·s·t is nearly 1, and S∧T = s·t·u∧(w − u).
        gap, turn = x.gap(c), x.N / _col(x.M)
        half = 0.5 * dot(turn, turn)
        beyond = rotate(v, x.u * _col(1.0 - gap), turn, gap + (1.0 - gap) * half, gap * gap + 2.0 * (1.0 - gap) * half)
        return torch.where(far, beyond, near)

    @staticmethod
    def gradients(inputs: Any, kept: Any, needed: Any, grad: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        S, T, v, c = inputs
        back = _Gyration.forward(T, S, grad, c)
        grad_T, grad_c = _turning(S, T, _Gyration.forward(S, T, v, c), grad, c)
        return _turning(T, S, back, v, c)[0], grad_T, back, grad_c if needed[3] else None


def _turning(S: Tensor, T: Tensor, r: Tensor, grad: Tensor, c: Curvature) -> tuple[Tensor, Tensor]:
    """Gradients of ⟨grad, gyrate(S, T, v)⟩ in T and c, given r = gyrate(S, T, v)."""
    S, T = torch.broadcast_tensors(S, T)
    x = _pair(S, T, c)
    ss, st = x.s * x.s, dot(S, T)
    k = c / ((1.0 + x.xi) * (1.0 + x.tau))
    # By S and T: (2k/|q|²)·(r⟨S − k|S|²T, grad⟩ − grad⟨S − k|S|²T, r⟩), and by k.
    size, arm = 1.0 - 2.0 * k * st + k * k * ss * x.t * x.t, _plus(S, T, -k * ss)
    near = (r * _col(dot(arm, grad)) - grad * _col(dot(arm, r))) * _col(2.0 * k / size)
    by_k = (dot(T, r) * dot(S, grad) - dot(S, r) * dot(T, grad)) * 2.0 / size
    # Far out by directions, in parts along w, along e, which is that of w − u, and across both; for what changes the
    # plane of rotation has a factor 1/|w − u|.
    gap, turn = x.gap(c), x.N / _col(x.M)
    half, e = 0.5 * dot(turn, turn), _plus(turn, x.w, -dot(turn, x.w))
    angle = norm(e)
    e = e / _col(angle + _TINY)
    (r_w, r_e, r_x, r_o), (g_w, g_e, g_x, g_o) = (_in_parts(y, x.w, e) for y in (r, grad))
    size = gap * gap + 2.0 * (1.0 - gap) * half
    bent = g_w * r_e - r_w * g_e
    far = (r_x * _col(g_w) - g_x * _col(r_w)) * _col(gap - half) + (g_o * _col(r_e) - r_o * _col(g_e)) * _col(angle)
    far = far * _col(2.0 * k * x.s / size)
    both = (c * ss > 1.0) & (c * x.t * x.t > 1.0)
    by_k = torch.where(both, 2.0 * angle * bent / size * x.s * x.t, by_k)
    grad_T = torch.where(_col(both), far, near)
    along = torch.where(both, k * by_k / (x.t * x.tau + _TINY), -c * k * by_k * x.t / (x.tau * (1.0 + x.tau)))
    by_c = 0.5 * by_k * (1.0 / x.xi + 1.0 / x.tau) / ((1.0 + x.xi) * (1.0 + x.tau))
    return _plus(grad_T, x.w, along), by_c


def _in_parts(y: Tensor, w: Tensor, e: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """⟨y, w⟩, ⟨y, e⟩, and y less its part along w, and less both parts; for what rounding leaves, taken off twice."""
    along, beside = dot(y, w), dot(y, e)
    across = _plus(y, w, -along)
    outside = across
    for part in (e, w, e):
        outside = _plus(outside, part, -dot(outside, part))
    return along, beside, across, outside


def gyrate(S: Tensor, T: Tensor, v: Tensor, c: Curvature) -> Tensor:
    """Frame coordinates at T of the vector v at S transported along the geodesic from S to T.

    It is the rotation by the area of the triangle 0, S, T in the plane of S and T: that of the rotor
    1 − k⟨S, T⟩ + k·S∧T with k = c/((1 + ξ)(1 + τ)).
    """
    return _Gyration.call(S, T, v, c)


def ball(S: Tensor, c: Curvature) -> Tensor:
    """Return the point in the Poincaré ball, z = S/(1 + ξ)."""
    return S / _col(1.0 + time(S, c))


def from_ball(z: Tensor, c: Curvature) -> Tensor:
    """Return the point S = 2z/(1 − c|z|²) of the ball point z."""
    return 2.0 * z / _col(1 - c * dot(z, z))


def direction(v: Tensor) -> tuple[Tensor, Tensor]:
    """Compute v = length·unit. At v = 0 the length is given as 1 and the unit as 0, so that length·f(unit), for an odd
    f, has there the value 0 and the gradient of its linear part.
    """
    square = dot(v, v)
    length = torch.where(square == 0.0, 1.0, square).sqrt()
    return v / _col(length), length


def plane(S: Tensor, unit: Tensor, c: Curvature) -> tuple[Tensor, Tensor]:
    """Return the hyperplane through S normal to a unit frame vector, as (n, β): with y = ⟨n, T⟩ − β·ξ_T the point T
    lies at the signed distance asinh(√c·y)/√c."""
    offset = dot(S, unit)
    return _plus(unit, S, c * offset / (1.0 + time(S, c))), offset


def lift(S: Tensor, c: Curvature) -> Tensor:
    """Compute (S, ξ): the point on the hyperboloid, with its time last."""
    return torch.cat([S, _col(time(S, c))], -1)


class _Gyroplanes(Primitive):
    """`gyroplanes` of a list of points, shape (…, points, d), with its derivative in closed form; planes (…, k, d) and
    curvatures (…) may differ along the leading dimensions.

    With w = 2p′, s = sinhc(c|w|²), ξ = cosh(√c|w|), e = c·s²/(1+ξ), p = ⟨a, w⟩ and L = |a|: n = (a + e·p·w)/L and
    β = s·p/L.
    """

    events = (2, 2, 2)
    results = 1

    @classmethod
    def traced(cls, S: Tensor, a: Tensor, offset: Tensor, c: Tensor) -> tuple[Tensor]:
        c = _col(c)
        wide = c.double()
        unit, length = direction(a.double())
        normal, shift = plane(expmap0(2.0 * offset.double(), wide), unit, wide)
        rows = torch.cat([normal, -_col(shift)], -1).to(S.dtype)
        y = lift(S.double(), wide).to(S.dtype) @ rows.mT
        return (arsinh(y, _col(c), (2.0 * length).to(S.dtype).unsqueeze(-2)),)

    @staticmethod
    def forward(S: Tensor, a: Tensor, offset: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        c = _col(c)
        wide = c.double()
        a, w = a.double(), 2.0 * offset.double()
        square, p, length = dot(w, w), dot(a, w), dot(a, a)
        length = torch.where(length == 0.0, 1.0, length).sqrt()
        xi, s = cosh_sinhc(wide * square)
        e = wide * s * s / (1.0 + xi)
        rows = (torch.cat([_plus(a, w, e * p), _col(-s * p)], -1) / _col(length)).to(S.dtype)
        gain = (2.0 * length).to(S.dtype)
        lifted = lift(S.double(), wide).to(S.dtype)
        value, slope = arsinh_and_slope(lifted @ rows.mT, _col(c), gain.unsqueeze(-2))
        return value, slope, lifted, rows, gain, w, square, p, length, xi, s, e

    @staticmethod
    def gradients(inputs: Any, kept: Any, needed: Any, grad: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        S, a, c = inputs[0], inputs[1].double(), _col(inputs[3].double())
        value, slope, lifted, rows, gain, w, square, p, length, xi, s, e = kept

        # The activation and the matrix product.
        grad_y = grad * slope
        grad_gain = (grad * value).sum(-2) / gain
        grad_lifted = (grad_y @ rows).double()
        grad_rows = grad_y.mT @ lifted

        # The time of a point.
        wide = S.double()
        grad_S = _plus(grad_lifted[..., :-1], wide, c * grad_lifted[..., -1] / lifted[..., -1])

        # The rows. They do not depend on the length of a: what of their gradient points along a is taken off.
        along = (2.0 * grad_gain - dot(grad_rows, rows) / length) / length
        grad_rows = grad_rows.double() / _col(length)
        grad_n, grad_b = grad_rows[..., :-1], grad_rows[..., -1]
        q = dot(grad_n, w)
        grad_p = e * q - s * grad_b
        grad_a = _plus(_plus(grad_n, w, grad_p), a, along)
        grad_w = _plus(grad_n * _col(e * p), a, grad_p)
        # s and e depend on |w|² = y/c: 2c·s′ = (ξ − s)/|w|² and 2c·e′ = (c·s − 2e)/|w|².
        grad_w = _plus(grad_w, w, p * (q * (c * s - 2.0 * e) - grad_b * (xi - s)) / (square + 1e-300))
        grads = grad_S.to(S.dtype), grad_a.to(inputs[1].dtype), (2.0 * grad_w).to(inputs[2].dtype)
        if not needed[3]:
            return grads

        # ∂e/∂c = s/2, ∂s/∂c = |w|²·s′ and ∂ξ/∂c = |S|²/2ξ.
        by_value = grad * arsinh_by_c(lifted @ rows.mT, _col(inputs[3]).unsqueeze(-1), gain.unsqueeze(-2), value, slope)
        by_time = grad_lifted[..., -1] * dot(wide, wide) / (2.0 * lifted[..., -1])
        by_rows = p * (q * s / 2.0 - grad_b * square * sinhc_slope(c * square, xi, s))
        grad_c = by_value.sum((-2, -1)) + by_time.sum(-1) + by_rows.sum(-1)
        return *grads, grad_c.sum_to_size(inputs[3].shape).to(inputs[3].dtype)


def gyroplanes(S: Tensor, a: Tensor, offset: Tensor, c: Tensor) -> Tensor:
    """Signed distances of the points S, shape (…, d), from k hyperplanes, scaled by ‖a‖_p; in the dtype of S, or that
    of `a` where it is wider.

    Plane i goes through exp_0(p′_i) and is normal to a′_i transported there; `a` and `offset` hold a′ and p′ as rows of
    shape (k, d), in ball coordinates.
    """
    S = S.to(torch.promote_types(S.dtype, a.dtype))
    return _Gyroplanes.call(S.reshape(-1, S.shape[-1]), a, offset, c)[0].reshape(*S.shape[:-1], len(a))
