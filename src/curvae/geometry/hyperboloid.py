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
from typing import Any

import torch
from torch import Tensor

from .functions import arsinh, arsinh_and_slope, arsinh_by_c, asinhc, cosh_sinhc, sinhc, sinhc_slope
from .primitive import Primitive

__all__ = [
    "ball",
    "ball_difference",
    "direction",
    "displacement",
    "dist0",
    "dot",
    "expmap",
    "expmap0",
    "from_ball",
    "gyrate",
    "gyroplanes",
    "lift",
    "limit",
    "logmap0",
    "norm",
    "plane",
    "saturate",
    "shrinkage",
    "time",
    "translate",
]

Curvature = Tensor | float

_MANY = 1024  # numbers from which on it is not calls that take the time


def dot(u: Tensor, v: Tensor) -> Tensor:
    product = u * v
    if product.shape[-1] == 2 and not torch.compiler.is_compiling() and product.numel() >= _MANY:
        # A sum takes seven times as long.
        return product[..., 0] + product[..., 1]
    return product.sum(-1)


def norm(v: Tensor) -> Tensor:
    """Euclidean norm with gradient 0 at 0."""
    square = dot(v, v)
    zero = square == 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, square).sqrt())


def _col(a: Tensor) -> Tensor:
    return a.unsqueeze(-1)


def _plus(u: Tensor, v: Tensor, a: Tensor) -> Tensor:
    """u + a·v for scalars a of the batch."""
    return torch.addcmul(u, v, a.unsqueeze(-1))


def time(S: Tensor, c: Curvature) -> Tensor:
    """ξ = √(1 + c|S|²)."""
    return (1.0 + c * dot(S, S)).sqrt()


def limit(dtype: torch.dtype, dim: int, c: Curvature) -> Curvature:
    """Largest |S_i| that a point of this dtype may have, so that lengths and times stay finite."""
    root = c.detach().sqrt() if isinstance(c, Tensor) else math.sqrt(c)
    if dtype == torch.float64:
        return 1e75 / (root + 1e-25)
    return torch.finfo(dtype).max / (math.sqrt(dim) * (1.0 + root))


def shrinkage(S: Tensor, c: Curvature, dtype: torch.dtype, room: float = 1.0) -> Tensor:
    """The factor, shape (…, 1), that draws S back to what `dtype` can hold, or to 1/room of it; without gradient."""
    bound = limit(dtype, S.shape[-1], c) * ((1.0 - 1e-6) / room)  # a margin for rounding
    return _col((bound / S.detach().abs().amax(-1).clamp_min(1.0)).clamp(max=1.0))


def saturate(S: Tensor, c: Curvature, dtype: torch.dtype, room: float = 1.0) -> Tensor:
    """S in `dtype`, drawn back along its ray to the largest radius that the dtype can hold, or to 1/room of it.

    The factor carries no gradient, so that an optimiser can still bring the point back.
    """
    return (S * shrinkage(S, c, dtype, room)).to(dtype)


class _Radial(Primitive):
    """x·f(c|x|²), with its derivative in closed form: eager graphs of tiny tensors cost by the node."""

    events = (1,)

    @staticmethod
    def forward(x: Tensor, c: Curvature, f: Callable[..., Tensor]) -> Tensor:
        return x * _col(f(c * dot(x, x)))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        x, c, ctx.f = inputs
        _save(ctx, c, x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        c, x = _saved(ctx)
        square, along = dot(x, x), dot(x, grad)
        slope = ctx.f(c * square, 1) * along
        grad_x = _plus(grad * _col(ctx.f(c * square)), x, 2.0 * c * slope)
        grad_c = (square * slope).sum_to_size(c.shape) if ctx.needs_input_grad[1] else None
        return grad_x.sum_to_size(x.shape), grad_c, None


def _save(ctx: Any, c: Curvature, *tensors: Tensor) -> None:
    ctx.c = None if isinstance(c, Tensor) else c
    ctx.save_for_backward(*tensors, *([c] if isinstance(c, Tensor) else []))


def _saved(ctx: Any) -> list[Any]:
    """c, then the other saved tensors."""
    saved = list(ctx.saved_tensors)
    return [saved.pop() if ctx.c is None else ctx.c, *saved]


def expmap0(v: Tensor, c: Curvature) -> Tensor:
    """exp_0: the point at distance |v| from the origin in the direction of v."""
    return _Radial.call(v, c, sinhc)


def logmap0(S: Tensor, c: Curvature) -> Tensor:
    """log_0, the inverse of `expmap0`."""
    return _Radial.call(S, c, asinhc)


def dist0(S: Tensor, c: Curvature) -> Tensor:
    """Distance from the origin."""
    return norm(S) * asinhc(c * dot(S, S))


def translate(S: Tensor, T: Tensor, c: Curvature) -> Tensor:
    """The translation along the geodesic from 0 to S, applied to T: Möbius addition S ⊕ T seen on the hyperboloid."""
    return _plus(T, S, time(T, c) + c * dot(S, T) / (1.0 + time(S, c)))


class _Exp(Primitive):
    """`translate(S, expmap0(v))` with its derivative in closed form."""

    events = (1, 1)

    @staticmethod
    def forward(S: Tensor, v: Tensor, c: Curvature) -> Tensor:
        cosh, s = cosh_sinhc(c * dot(v, v))
        T = v * _col(s)
        return _plus(T, S, cosh + c * dot(S, T) / (1.0 + time(S, c)))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        S, v, c = inputs
        _save(ctx, c, S, v)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        c, S, v = _saved(ctx)
        square = dot(v, v)
        cosh, s = cosh_sinhc(c * square)
        T, xi = v * _col(s), time(S, c)
        # The result is T + a·S with a = cosh + k·b, k = c/(1 + ξ), b = ⟨S, T⟩.
        k, b, grad_a = c / (1.0 + xi), dot(S, T), dot(grad, S)
        kb = grad_a * k
        grad_T = _plus(grad, S, kb)
        grad_S = _plus(_plus(grad * _col(cosh + k * b), T, kb), S, -kb * b * k / xi)
        slope = sinhc_slope(c * square, cosh, s, not ctx.needs_input_grad[2])
        slope = slope * dot(grad_T, v) + grad_a * s / 2.0
        grad_v = _plus(grad_T * _col(s), v, 2.0 * c * slope)
        grad_c = None
        if ctx.needs_input_grad[2]:
            grad_c = square * slope + grad_a * b * (1 - k * dot(S, S) / (2.0 * xi)) / (1.0 + xi)
            grad_c = grad_c.sum_to_size(c.shape)
        return grad_S.sum_to_size(S.shape), grad_v.sum_to_size(v.shape), grad_c


def expmap(S: Tensor, v: Tensor, c: Curvature) -> Tensor:
    """exp_S: the point reached from S by the frame vector v."""
    return _Exp.call(S, v, c)


def ball_difference(S: Tensor, T: Tensor, c: Curvature) -> Tensor:
    """`ball(T) − ball(S)` with all terms proportional to T − S."""
    xi, tau = time(S, c), time(T, c)
    delta = T - S
    rise = c * dot(delta, S + T) / (xi + tau)  # τ − ξ
    return (delta - S * _col(rise / (1.0 + xi))) / _col(1.0 + tau)


def displacement(S: Tensor, T: Tensor, delta: Tensor, c: Curvature) -> Tensor:
    """Space part of T seen from S, that is (−S) ⊕ T, given also the difference `delta` of their ball points.

    Without the cancellation of Möbius addition: with one of the points within √c·radius 1 of the origin, in terms of
    delta; with both beyond, in polar form: the length |T|·|u_T − u_S| across and the difference of the radii along.
    """
    S, T = torch.broadcast_tensors(S, T)
    SS, TT = c * dot(S, S), c * dot(T, T)
    plain = _plus(delta, S, -0.5 * c * dot(delta, delta)) * _col(1.0 + (1.0 + TT).sqrt())

    far = (SS > 1.0) & (TT > 1.0)
    one = torch.ones((), dtype=S.dtype, device=S.device)
    root = torch.where(far, c, one).sqrt()
    S, T = torch.where(_col(far), S, one), torch.where(_col(far), T, one)
    s, t = norm(S), norm(T)
    u = S / _col(s)
    turn = T / _col(t) - u
    along = torch.sinh((root * t).asinh() - (root * s).asinh()) / root
    along = along - (torch.hypot(one, root * s) - 1.0) * t * dot(turn, turn) / 2.0
    return torch.where(_col(far), _col(t) * turn + u * _col(along), plain)


def gyrate(S: Tensor, T: Tensor, v: Tensor, c: Curvature) -> Tensor:
    """Frame coordinates at T of the vector v at S transported along the geodesic from S to T.

    It is the rotation by the area of the triangle 0, S, T in the plane of S and T, written with the ball points a, b:
    the rotor α + a∧b, α = 1 − c⟨a, b⟩.
    """
    a, b = ball(S, c), ball(T, c)
    alpha, ab = 1 - c * dot(a, b), dot(a, b)
    scale = alpha * alpha + c * c * (dot(a, a) * dot(b, b) - ab * ab)

    def turn(w: Tensor) -> Tensor:
        return _col(c * dot(b, w)) * a - _col(c * dot(a, w)) * b

    once = turn(v)
    return v + _col(2 / scale) * (_col(alpha) * once + turn(once))


def ball(S: Tensor, c: Curvature) -> Tensor:
    """The point in the Poincaré ball, z = S/(1 + ξ)."""
    return S / _col(1.0 + time(S, c))


def from_ball(z: Tensor, c: Curvature) -> Tensor:
    """The point S = 2z/(1 − c|z|²) of the ball point z."""
    return 2.0 * z / _col(1 - c * dot(z, z))


def direction(v: Tensor) -> tuple[Tensor, Tensor]:
    """v = length·unit. At v = 0 the length is given as 1 and the unit as 0, so that length·f(unit), for an odd f, has
    there the value 0 and the gradient of its linear part."""
    length = _length(dot(v, v))
    return v / _col(length), length


def plane(S: Tensor, unit: Tensor, c: Curvature) -> tuple[Tensor, Tensor]:
    """The hyperplane through S normal to a unit frame vector, as (n, β): with y = ⟨n, T⟩ − β·ξ_T the point T lies at
    the signed distance asinh(√c·y)/√c."""
    offset = dot(S, unit)
    return _plus(unit, S, c * offset / (1.0 + time(S, c))), offset


def _length(square: Tensor) -> Tensor:
    return torch.where(square == 0.0, 1.0, square).sqrt()


def lift(S: Tensor, c: Curvature) -> Tensor:
    """(S, ξ): the point on the hyperboloid, with its time last."""
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
        square, p, length = dot(w, w), dot(a, w), _length(dot(a, a))
        xi, s = cosh_sinhc(wide * square)
        e = wide * s * s / (1.0 + xi)
        rows = (torch.cat([_plus(a, w, e * p), _col(-s * p)], -1) / _col(length)).to(S.dtype)
        gain = (2.0 * length).to(S.dtype)
        lifted = lift(S.double(), wide).to(S.dtype)
        value, slope = arsinh_and_slope(lifted @ rows.mT, _col(c), gain.unsqueeze(-2))
        return value, slope, lifted, rows, gain, w, square, p, length, xi, s, e

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs, *output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        inputs, kept = ctx.saved_tensors[:4], ctx.saved_tensors[4:]
        if torch.is_grad_enabled():
            return torch.func.vjp(_Gyroplanes.traced, *inputs)[1]((grad,))
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
        if not ctx.needs_input_grad[3]:
            return *grads, None

        # ∂e/∂c = s/2, ∂s/∂c = |w|²·s′ and ∂ξ/∂c = |S|²/2ξ.
        by_value = grad * arsinh_by_c(lifted @ rows.mT, _col(inputs[3]).unsqueeze(-1), gain.unsqueeze(-2), value, slope)
        by_time = grad_lifted[..., -1] * dot(wide, wide) / (2.0 * lifted[..., -1])
        by_rows = p * (q * s / 2.0 - grad_b * square * sinhc_slope(c * square, xi, s, rough=False))
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
