"""Kullback–Leibler divergences: closed forms where they exist, quadrature where it is exact."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.distributions import kl_divergence, register_kl

from ..geometry import Euclidean
from ..geometry import hyperboloid as h
from ..geometry.functions import asinhc, logsinhc
from . import radial
from .normal import HyperbolicNormal, RiemannianNormal, WrappedNormal
from .radius import HyperbolicRadius

__all__ = ["kl_divergence", "kl_quadrature"]


def _same_curvature(c: Tensor | float, k: Tensor | float) -> bool:
    if isinstance(c, Tensor) or isinstance(k, Tensor):
        return c is k or bool((torch.as_tensor(c) == torch.as_tensor(k)).all())
    return c == k


@register_kl(HyperbolicRadius, HyperbolicRadius)
def _kl_radius(p: HyperbolicRadius, q: HyperbolicRadius) -> Tensor:
    if p.dim != q.dim or not _same_curvature(p.c, q.c):
        raise NotImplementedError("KL(HyperbolicRadius ‖ HyperbolicRadius) needs equal dim and c")
    s, t = p._sigma, q._sigma
    log_ratio = radial.log_normaliser(q._q, p.dim) - radial.log_normaliser(p._q, p.dim)
    log_ratio = log_ratio + p.dim * (t.log() - s.log())
    square = radial.mean_power(p._q, p.dim, 2)
    return (log_ratio + square * ((s / t) ** 2 - 1) / 2).to(torch.promote_types(p.scale.dtype, q.scale.dtype))


@register_kl(HyperbolicNormal, HyperbolicNormal)
def _kl_normal(p: HyperbolicNormal, q: HyperbolicNormal) -> Tensor:
    if not (isinstance(p.manifold, Euclidean) and isinstance(q.manifold, Euclidean)):
        raise NotImplementedError(
            f"no closed form for KL({type(p).__name__} ‖ {type(q).__name__}) on {p.manifold}: use "
            "curvae.distributions.kl_quadrature for isotropic distributions and a prior centred at the origin, or "
            "average log_prob over rsample_and_log_prob"
        )
    # Both laws are Gaussian here.
    m, s = p._loc, _factor(p)
    n, t = q._loc, _factor(q)
    inner = torch.linalg.solve_triangular(t, s, upper=False)
    shift = torch.linalg.solve_triangular(t, (m - n).unsqueeze(-1), upper=False)
    value = (inner.square().sum((-2, -1)) + shift.square().sum((-2, -1)) - p.manifold.dim) / 2
    value = value + q._log_det() - p._log_det()
    return value.to(torch.promote_types(p._dtype, q._dtype))


def _factor(p: HyperbolicNormal) -> Tensor:
    """Cholesky factor of the covariance."""
    if p.scale_tril is not None:
        return p._spread
    return torch.diag_embed(p._spread.expand(*p.scale.shape[:-1], p.manifold.dim))


def kl_quadrature(q: HyperbolicNormal, p: HyperbolicNormal) -> Tensor:
    """KL(q ‖ p) for isotropic q anywhere and isotropic p centred at the origin, to quadrature precision.

    log p depends on the draw only through its distance R from the origin, so the divergence is an integral over the
    radius r around q's centre and the angle θ between the displacement and the outward direction, whose density is
    ∝ sin^{d−2} θ. Each of q and p may be wrapped or Riemannian; differentiable in all parameters and c.

    Example:
        >>> from curvae import Lorentz
        >>> space = Lorentz(3, c=0.5)
        >>> p = RiemannianNormal(torch.zeros(3), 1.0, space)
        >>> q = RiemannianNormal(torch.tensor([0.3, 0.0, 0.0]), 0.2, space)
        >>> round(float(kl_quadrature(q, p)), 4)
        3.9352
    """
    d = q.manifold.dim
    if p.manifold.dim != d or not _same_curvature(q.manifold.c, p.manifold.c):
        raise ValueError(f"both distributions must live on the same space, got {q.manifold} and {p.manifold}")
    for role, dist in (("first", q), ("second", p)):
        if dist.scale_tril is not None or (dist.scale.shape[-1] != 1 and d > 1):
            raise ValueError(f"kl_quadrature needs isotropic distributions, the {role} is not")
    if bool((p.loc != 0).any()):
        raise ValueError(f"the second distribution must be centred at the origin, its loc is {p.loc.tolist()}")

    c = torch.as_tensor(q._c, dtype=torch.float64, device=q.loc.device)
    sigma = q._spread[..., 0]
    shape = c * sigma**2 if isinstance(q, RiemannianNormal) else torch.zeros_like(c * sigma**2)
    t, weights = radial.bulk(shape, d)
    r = (sigma.unsqueeze(-1) * t)[..., :, None]
    r0 = h.dist0(q.manifold._read(q._loc), c)[..., None, None]
    half, angle_weights = _angles(d, c.device)

    square = _third_side_squared(r, r0, half, c[..., None, None])
    penalty = square / (2 * p._spread[..., 0, None, None] ** 2)
    if isinstance(p, WrappedNormal):
        penalty = penalty + (d - 1) * logsinhc(c[..., None, None] * square)
        constant = d / 2 * math.log(2 * math.pi) + torch.zeros_like(c)
    else:
        constant = p._log_measure(c)
    cross = (weights * (penalty * angle_weights).sum(-1)).sum(-1) + p._log_det() + constant
    return (cross - q.entropy().double()).to(torch.promote_types(q._dtype, p._dtype))


def _angles(dim: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """log cos²(θ/2) at nodes in the angle, and their weights for the density ∝ sin^{d−2} θ.

    Towards θ = π the distance from the origin has a near-singularity of width e^{−r}: a double-exponential rule in
    log tan²(θ/2) follows it.
    """
    if dim == 1:
        far = torch.tensor([0.0, -math.inf], dtype=torch.float64, device=device)
        return far, torch.full_like(far, 0.5)
    s = torch.linspace(-3.6, 3.6, 289, dtype=torch.float64, device=device)
    x = math.pi * torch.sinh(s)  # log tan²(θ/2)
    log_cos, log_sin = -torch.nn.functional.softplus(x), -torch.nn.functional.softplus(-x)
    # dθ ∝ sin θ dx, and sin²θ = 4·cos²·sin²
    log_weight = (dim - 1) / 2 * (log_cos + log_sin) + torch.cosh(s).log()
    return log_cos, torch.softmax(log_weight, -1)


def _third_side_squared(r: Tensor, r0: Tensor, log_cos: Tensor, c: Tensor) -> Tensor:
    """R² for a triangle with sides r and r0 from the origin, by the law of cosines in log space.

    sinh²(√cR/2) = sinh²(√c(r − r0)/2) + sinh(√cr)·sinh(√cr0)·cos²(θ/2).
    """
    tiny = 1e-300
    apart = ((r - r0) / 2) ** 2
    log_h = torch.logaddexp(
        (apart + tiny).log() + 2 * logsinhc(c * apart),
        (r * r0 + tiny).log() + logsinhc(c * r * r) + logsinhc(c * r0 * r0) + log_cos,
    )
    far = log_h + (c + tiny).log() > 60.0
    k = torch.where(far, c, 1.0)
    beyond = (math.log(4) + k.log() + log_h) ** 2 / k
    near = torch.where(far, 0.0, log_h).exp()
    return torch.where(far, beyond, 4 * near * asinhc(torch.where(far, 0.0, c) * near) ** 2)
