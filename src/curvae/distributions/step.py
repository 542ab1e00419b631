"""A draw of a posterior and its divergence from the prior, in one operation: the inner step of a variational model.

Notation: the posterior is a distribution around M = exp_0(u) with standard deviation σ, the prior one of the same kind
around the origin with standard deviation σ0; ε noise, w = κ·ε the bent noise (κ = 1 for the wrapped normal), v = σ·w,
T = exp_0(v), and z = T + a·M with a = ξ_v + k·b, k = c/(1 + ξ_M), b = ⟨M, T⟩.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..geometry import Lorentz, Sphere, hyperboloid as h
from ..geometry.functions import Primitive, asinhc, cosh_sinhc, sinhc_slope
from .normal import HyperbolicNormal, RiemannianNormal, WrappedNormal
from .radial import SphericalKernel, log_area
from .table import lookup, lookup_on_sphere

__all__ = ["draw_and_divergence", "draw_on_sphere"]


def _composed(
    u: Tensor,
    scale: Tensor,
    noise: Tensor,
    c: Tensor,
    prior_scale: Tensor,
    distribution: type[HyperbolicNormal],
    dtype: torch.dtype = torch.float64,
    room: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """`draw_and_divergence` of any distribution, by its own methods, with gradients in everything."""
    manifold = Lorentz._unchecked(u.shape[-1], c)
    q = distribution(h.expmap0(u, manifold._c), scale, manifold, validate_args=False)
    z, log_q = q.transform_and_log_prob(noise)
    kl = log_q - distribution.centred(prior_scale, manifold).log_prob(z)
    return h.saturate(z, c, dtype, room), kl


# The distributions that `_Step` knows, and whether it takes their radius from the table, to single precision. Others,
# among them subclasses of these, go through their own methods.
_FUSED: dict[type[HyperbolicNormal], bool] = {WrappedNormal: False, RiemannianNormal: True}


class _Step(Primitive):
    """The closed form for an isotropic posterior: eager graphs of tiny tensors cost by the node.

    The radius of the Riemannian normal comes from the table.
    """

    events = (1, 1, 1)
    results = 2

    traced = staticmethod(_composed)

    @staticmethod
    def forward(
        u: Tensor,
        scale: Tensor,
        noise: Tensor,
        c: Tensor,
        prior_scale: Tensor,
        distribution: Any,
        dtype: Any,
        room: float,
    ) -> Any:
        d = u.shape[-1]
        sigma, w = scale[..., 0], noise.double()
        bent = log_measure = by_q = rise = prior_rise = None
        if _FUSED[distribution] and d > 1:
            q, prior_q = c * sigma * sigma, c * prior_scale * prior_scale
            kappa, by_q, log_measure, rise, prior_rise = lookup(h.dot(w, w), q, prior_q, d)  # ∂w/∂q = w·by_q
            bent = w = w * kappa.unsqueeze(-1)
        xi_m, s_m = cosh_sinhc(c * h.dot(u, u))
        ww = h.dot(w, w)
        y = c * sigma * sigma * ww
        xi_v, s_v = cosh_sinhc(y)
        M, T = u * s_m.unsqueeze(-1), w * (sigma * s_v).unsqueeze(-1)
        k, b = c / (1.0 + xi_m), h.dot(M, T)
        a = xi_v + k * b
        z = torch.addcmul(T, M, a.unsqueeze(-1))
        zz = h.dot(z, z)
        g = asinhc(c * zz)  # distance from the origin over |z|
        kl = zz * g * g / (2.0 * prior_scale * prior_scale) - ww / 2.0 - d * (sigma / prior_scale).log()
        # Where no table gives it, the posterior's log sinhc is log s_v, the prior's at z is log(|z|/distance).
        kl = kl - ((d - 1.0) * (s_v * g).log() if log_measure is None else log_measure)
        factor = h.shrinkage(z, c, dtype, room)
        held = (z * factor).to(dtype)
        return held, kl, z, factor, bent, M, T, xi_m, s_m, xi_v, s_v, k, b, a, zz, g, y, by_q, rise, prior_rise

    @staticmethod
    def gradients(  # type: ignore[override]
        inputs: Any, kept: Any, needed: Any, grad_z: Tensor, grad_kl: Tensor
    ) -> Any:
        if needed[2]:
            return _Step.retraced(inputs, needed, (grad_z, grad_kl))
        u, scale, noise, c, prior_scale = inputs[:5]
        z, factor, w, M, T, xi_m, s_m, xi_v, s_v, k, b, a, zz, g, y, by_q, rise, prior_rise = kept[2:]
        d, sigma = u.shape[-1], scale[..., 0]
        if rise is None:
            w, prior_rise = noise.double(), 0.0

        # Each quotient below is 0/0 at the origin, where its numerator is exactly 0 and the term vanishes.
        xi_z, precision = (1.0 + c * zz).sqrt(), 1.0 / (prior_scale * prior_scale)
        pull = g * precision / xi_z
        if rise is None:
            pull = pull + (d - 1.0) * (1.0 - 1.0 / (g * xi_z)) / (zz + 1e-300)
        grad_z = torch.addcmul(grad_z * factor, z, (grad_kl * pull).unsqueeze(-1))

        # z = T + a·M
        grad_a = h.dot(grad_z, M)
        ka = grad_a * k
        grad_T = torch.addcmul(grad_z, M, ka.unsqueeze(-1))
        grad_M = torch.addcmul(grad_z * a.unsqueeze(-1), T, ka.unsqueeze(-1))
        grad_M = torch.addcmul(grad_M, M, (-ka * k * b / xi_m).unsqueeze(-1))

        # T = s_v·v and ξ_v depend on v = σ·w; only the change along w matters, for w is fixed up to its length.
        along = h.dot(grad_T, w) * sigma  # ⟨grad_T, v⟩
        # v·∂s_v/∂v = ξ_v − s_v and v·∂ξ_v/∂v = y·s_v
        stretch = along * xi_v + grad_a * y * s_v
        ww, bend = h.dot(w, w), None
        if rise is None:
            # v·∂ log s_v/∂v = ξ_v/s_v − 1
            grad_sigma = (stretch - grad_kl * ((d - 1.0) * (xi_v / s_v - 1.0) + d)) / sigma
        else:
            bend = by_q * (stretch - grad_kl * ww) - grad_kl * rise  # by q = cσ²
            grad_sigma = (stretch - grad_kl * d) / sigma + 2.0 * c * sigma * bend

        # M = s_m·u
        grad_M = grad_M.sum_to_size(u.shape)
        uu, along_u = h.dot(u, u), h.dot(u, grad_M)
        slope = (xi_m - s_m) / (uu + 1e-300)
        grad_u = torch.addcmul(grad_M * s_m.unsqueeze(-1), u, (slope * along_u).unsqueeze(-1))

        grad_c = grad_prior = None
        if needed[3]:
            # ∂s/∂c = |·|²·s′ for M and T, ∂ξ_v/∂c = |v|²·s_v/2, ∂k/∂c = 1/(2ξ_m) for given M, ∂g/∂c = |z|²·g′.
            by_s, by_g, by_c = along, grad_kl * zz * g * precision, grad_a * b / (2.0 * xi_m)
            if bend is None:
                by_s, by_g = by_s - grad_kl * (d - 1.0) / s_v, by_g - grad_kl * (d - 1.0) / g
            else:
                by_c = by_c + sigma * sigma * bend + grad_kl * prior_rise / precision
            by_s = by_s * sinhc_slope(y, xi_v, s_v) + grad_a * s_v / 2.0
            by_c = by_c + by_s * sigma * sigma * ww + by_g * (zz * asinhc(c * zz, 1))  # zz² may overflow
            by_u = along_u * uu * sinhc_slope(c * uu, xi_m, s_m)
            grad_c = by_c.sum_to_size(c.shape) + by_u.sum_to_size(c.shape)
        if needed[4]:
            grad_prior = grad_kl * ((d - zz * g * g * precision) / prior_scale + 2.0 * c * prior_scale * prior_rise)
        return grad_u, grad_sigma.unsqueeze(-1), None, grad_c, grad_prior


def draw_and_divergence(
    u: Tensor,
    scale: Tensor,
    noise: Tensor,
    c: Tensor,
    prior_scale: Tensor,
    distribution: type[HyperbolicNormal],
    dtype: torch.dtype = torch.float64,
    room: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Return a draw z, as a space part S, of a distribution around exp_0(u), and log q(z) − log p(z).

    p is the distribution of the same class around the origin. Arguments are float64, except that float32 noise allows
    what is exact to single precision.

    Arguments:
        u: metric tangent vectors at the origin, shape (…, d).
        scale: standard deviations, shape (…, 1), or (…, d) for a diagonal wrapped normal.
        noise: standard normal, shape (k, …, d).
        c: curvature, a tensor.
        prior_scale: standard deviation of the prior, a tensor.
        distribution: the class of both distributions.
        dtype, room: z is saturated to them, as in `hyperboloid.saturate`.
    """
    tabulated, exact = _FUSED.get(distribution), noise.dtype == torch.float64
    if scale.shape[-1] > 1 or tabulated is None or (tabulated and exact):
        return _composed(u, scale, noise, c, prior_scale, distribution, dtype, room)
    z, kl, *_ = _Step.call(u, scale, noise, c, prior_scale, distribution, dtype, room)
    return z, kl


# The same on the unit sphere, with a uniform prior. Notation: a the centre, not normalised, m = a/|a|, e the part of
# the noise that is tangent at m, u = e/|e|, t = κ·|e| and r = σ·t; z = cos r·m + sin r·u.


class _SphereStep(Primitive):
    events = (1, 1, 1)
    results = 2

    @staticmethod
    def traced(a: Tensor, scale: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        m = a / a.norm(dim=-1, keepdim=True)
        q = RiemannianNormal(m, scale, Sphere(a.shape[-1] - 1), validate_args=False)
        z, log_q = q.transform_and_log_prob(noise)
        return z.double(), log_q + log_area(a.shape[-1])

    @staticmethod
    def forward(a: Tensor, scale: Tensor, noise: Tensor) -> tuple[Tensor, ...]:
        d, sigma = a.shape[-1] - 1, scale[..., 0]
        size = a.norm(dim=-1, keepdim=True)
        m = a / size
        noise = noise.double()
        along = h.dot(noise, m)
        e = torch.addcmul(noise, m, along.unsqueeze(-1), value=-1.0)
        square = h.dot(e, e)
        kappa, by_square, by_q, log_normaliser, rise = lookup_on_sphere(square, -sigma * sigma, SphericalKernel(d))
        x = (square + 1e-300).sqrt()
        t, u = kappa * x, e / x.unsqueeze(-1)
        r = sigma * t
        sin, cos = r.sin(), r.cos()
        z = torch.addcmul(m * cos.unsqueeze(-1), u, sin.unsqueeze(-1))
        flat = (d / 2 - 1) * math.log(2) + math.lgamma(d / 2)  # log I(0)
        kl = log_area(d + 1) - log_area(d) - flat - t * t / 2 - d * sigma.log() - log_normaliser
        return z, kl, size, m, u, x, t, sin, cos, along, kappa + 2.0 * square * by_square, by_q * x, rise

    @staticmethod
    def gradients(  # type: ignore[override]
        inputs: Any, kept: Any, needed: Any, grad_z: Tensor, grad_kl: Tensor
    ) -> Any:
        if needed[2]:
            return _SphereStep.retraced(inputs, needed, (grad_z, grad_kl))
        (a, scale, noise), (size, m, u, x, t, sin, cos, along, by_x, by_q, rise) = inputs, kept[2:]
        sigma = scale[..., 0]
        by_r = cos * h.dot(grad_z, u) - sin * h.dot(grad_z, m)
        by_t = sigma * by_r - grad_kl * t
        grad_sigma = by_r * t - grad_kl * (a.shape[-1] - 1) / sigma - 2.0 * sigma * (by_t * by_q - grad_kl * rise)
        grad_u = grad_z * sin.unsqueeze(-1)
        across = torch.addcmul(grad_u, u, h.dot(grad_u, u).unsqueeze(-1), value=-1.0)
        grad_e = torch.addcmul(across / x.unsqueeze(-1), u, (by_t * by_x).unsqueeze(-1))
        # e = ε − ⟨ε, m⟩·m
        grad_m = torch.addcmul(grad_z * cos.unsqueeze(-1), grad_e, along.unsqueeze(-1), value=-1.0)
        grad_m = torch.addcmul(grad_m, noise.double(), h.dot(grad_e, m).unsqueeze(-1), value=-1.0)
        grad_m = grad_m.sum_to_size(a.shape)
        grad_a = torch.addcmul(grad_m, m, h.dot(grad_m, m).unsqueeze(-1), value=-1.0) / size
        return grad_a, grad_sigma.unsqueeze(-1), None


def draw_on_sphere(centre: Tensor, scale: Tensor, noise: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return a draw z, in `dtype`, of a Riemannian normal on the unit sphere, and log q(z) − log p(z) for a uniform p.

    Arguments:
        centre: vectors (…, d + 1), to be normalised, float64.
        scale: standard deviations, shape (…, 1), float64.
        noise: standard normal, shape (k, …, d + 1); what is exact to single precision is enough.
        dtype: of the draw.
    """
    z, kl, *_ = _SphereStep.call(centre, scale, noise)
    return z.to(dtype), kl
