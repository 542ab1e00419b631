"""Kullback–Leibler divergences: closed forms where they exist, quadrature where it is exact."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.distributions import kl_divergence, register_kl

from ..geometry import Manifold, Sphere, hyperboloid as h
from ..geometry.checks import broadcast_shapes, holds
from ..geometry.functions import asinhc, differentiated, logsinhc
from ..geometry.manifolds import SpaceParts
from . import radial
from .normal import HyperbolicNormal, ProductNormal, Radius, RiemannianNormal, SphericalUniform, nodes_first

__all__ = ["kl_divergence", "kl_quadrature"]


def _same_space(a: Manifold | Radius, b: Manifold | Radius) -> bool:
    """Whether both have one dimension and curvature, in whichever coordinates."""
    if a.dim != b.dim or a.c is b.c:
        return a.dim == b.dim
    return holds(torch.as_tensor(a.c) == torch.as_tensor(b.c, device=getattr(a.c, "device", None)))


@register_kl(SphericalUniform, SphericalUniform)
def _kl_sphere(p: SphericalUniform, q: SphericalUniform) -> Tensor:
    if p.dim != q.dim:
        raise NotImplementedError(f"KL of uniform distributions on spheres needs equal dim, got {p.dim} and {q.dim}")
    return torch.zeros(broadcast_shapes(p.batch_shape, q.batch_shape), dtype=p.dtype, device=p.device)


@register_kl(Radius, Radius)
def _kl_radius(p: Radius, q: Radius) -> Tensor:
    if not _same_space(p, q):
        raise NotImplementedError(f"KL({type(p).__name__} ‖ {type(q).__name__}) needs equal dim and c")
    s, t = p._sigma, q._sigma
    log_ratio = radial.log_normaliser(q._q, q._kernel) - radial.log_normaliser(p._q, p._kernel)
    log_ratio = log_ratio + p.dim * (t.log() - s.log())
    return _result(log_ratio + radial.mean_power(p._q, p._kernel, 2) * ((s / t) ** 2 - 1) / 2, p, q)


def _result(value: Tensor, p: HyperbolicNormal | Radius, q: HyperbolicNormal | Radius | SphericalUniform) -> Tensor:
    return value.expand(broadcast_shapes(p.batch_shape, q.batch_shape)).to(torch.promote_types(p.dtype, q.dtype))


@register_kl(HyperbolicNormal, HyperbolicNormal)
def _kl_normal(p: HyperbolicNormal, q: HyperbolicNormal) -> Tensor:
    if not _same_space(p.manifold, q.manifold):
        raise NotImplementedError(
            f"KL({type(p).__name__} ‖ {type(q).__name__}) needs both on the same space, got {p.manifold} and "
            f"{q.manifold}"
        )
    if p.gaussian_if_flat and q.gaussian_if_flat:
        c = p.manifold.c  # 0 is taken for flat only where no gradient in c is wanted
        flat = not differentiated(c) and holds(c == 0) if isinstance(c, Tensor) else c == 0
        if flat or (p.manifold.dim == 1 and not isinstance(p.manifold, Sphere)):
            return _result(_kl_gaussian(p, q), p, q)
    if not (p.isotropic and q.isotropic):
        raise NotImplementedError(
            f"no closed form for KL({type(p).__name__} ‖ {type(q).__name__}) on {p.manifold} with a diagonal or full "
            "covariance: estimate it by z, log_p = p.rsample_and_log_prob((1000,)); (log_p - q.log_prob(z)).mean(0)"
        )
    return kl_quadrature(p, q)


@register_kl(RiemannianNormal, SphericalUniform)
def _kl_uniform(p: RiemannianNormal, q: SphericalUniform) -> Tensor:
    space = p.manifold
    if not isinstance(space, Sphere) or space.width != q.dim or not holds(torch.as_tensor(space.c) == -1.0):
        raise NotImplementedError(
            f"KL(RiemannianNormal ‖ SphericalUniform({q.dim})) needs a normal on Sphere({q.dim - 1}), got {space}"
        )
    return _result(radial.log_area(q.dim) - p.raw_entropy(), p, q)


@register_kl(ProductNormal, ProductNormal)
def _kl_product(p: ProductNormal, q: ProductNormal) -> Tensor:
    if len(p.factors) != len(q.factors):
        raise NotImplementedError(
            f"KL of two products needs the same factors, got {len(p.factors)} and {len(q.factors)} of them"
        )
    return torch.stack([kl_divergence(a, b) for a, b in zip(p.factors, q.factors, strict=True)]).sum(0)


def _kl_gaussian(p: HyperbolicNormal, q: HyperbolicNormal) -> Tensor:
    """Where the space is flat, or a line, both normals are Gaussian in the vector from loc to the point."""
    scale, other = _factor(p), _factor(q)
    inner = torch.linalg.solve_triangular(other, scale, upper=False)
    shift = torch.linalg.solve_triangular(other, _between(p, q).unsqueeze(-1), upper=False)
    value = (inner.square().sum((-2, -1)) + shift.square().sum((-2, -1)) - p.manifold.dim) / 2
    return value + q.log_det() - p.log_det()


def _between(p: HyperbolicNormal, q: HyperbolicNormal) -> Tensor:
    """Frame vector to the centre of p from that of q, which may be given in other coordinates."""
    here, there = q.manifold._coordinates, p.manifold._coordinates
    if type(here) is type(there):
        return here.vector(q._loc, p._loc)
    assert isinstance(here, SpaceParts) and isinstance(there, SpaceParts)
    return h.logmap0(h.displacement(here.space_part(q._loc), there.space_part(p._loc), q.c), q.c)


def _factor(p: HyperbolicNormal) -> Tensor:
    """Cholesky factor of the covariance."""
    if p.scale_tril is not None:
        return p._deviations
    return torch.diag_embed(p._deviations.expand(*p._deviations.shape[:-1], p.manifold.dim))


def kl_quadrature(q: HyperbolicNormal, p: HyperbolicNormal) -> Tensor:
    """Compute KL(q ‖ p) of isotropic distributions on one space, to quadrature precision.

    Seen from the centre of p, log p depends on the draw only through its distance R, so the divergence is an integral
    over the radius r around q's centre and the angle θ between the displacement and the direction away from p's centre,
    whose density is ∝ sin^{d−2} θ. q and p may be of different classes; differentiable in all parameters and c.
    `torch.distributions.kl_divergence` takes it where there is no closed form.

    Example:
        >>> from curvae import Lorentz, RiemannianNormal
        >>> space = Lorentz(3, c=0.5)
        >>> p = RiemannianNormal(torch.zeros(3), 1.0, space)
        >>> q = RiemannianNormal(torch.tensor([0.3, 0.0, 0.0]), 0.2, space)
        >>> round(float(kl_quadrature(q, p)), 4)
        3.9352
    """
    if not _same_space(q.manifold, p.manifold):
        raise ValueError(f"both distributions must live on the same space, got {q.manifold} and {p.manifold}")
    for role, dist in (("first", q), ("second", p)):
        if not dist.isotropic:
            raise ValueError(f"kl_quadrature needs isotropic distributions, the {role} is not")

    c = torch.as_tensor(q.c, dtype=torch.float64, device=q.loc.device)
    rank = len(broadcast_shapes(q.batch_shape, p.batch_shape))
    r0 = h.norm(_between(q, p))
    spherical = isinstance(q.manifold, Sphere)
    t, weights = (nodes_first(part, rank) for part in (_two_panels(q, r0) if spherical else q.radius_nodes()))
    half, angle_weights = (part.view(-1, *(rank + 1) * (1,)) for part in _angles(q.manifold.dim, c.device))
    # In one dimension the scale may be given as a matrix.
    sigma, other = (x._deviations[..., 0] if x.scale_tril is None else x._deviations[..., 0, 0] for x in (q, p))
    third_side = _third_side_on_sphere if spherical else _third_side_squared
    square = third_side(sigma * t, r0, half, c)
    cross = -(weights * (angle_weights * p.log_density(square / other**2, square)).sum(0)).sum(0)
    return _result(cross - q.raw_entropy(), q, p)


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


def _two_panels(q: HyperbolicNormal, r0: Tensor) -> tuple[Tensor, Tensor]:
    """Return `radius_nodes` of a normal on a sphere in two panels, which meet where the antipode of another centre is,
    at the distance r0: there the distance from that centre has a kink."""
    assert isinstance(q, RiemannianNormal)
    kink = (math.pi / torch.as_tensor(-q.c).sqrt() - r0) / q._deviations[..., 0]
    return radial.bulk_in_panels(q._q, q._kernel, kink)


def _third_side_on_sphere(r: Tensor, r0: Tensor, log_cos: Tensor, c: Tensor) -> Tensor:
    """R² for a triangle on a sphere, k = −c:

    sin²(√kR/2) = sin²(√k(r − r0)/2) + sin(√kr)·sin(√kr0)·cos²(θ/2), and the cosine alike, with r + r0 and sin²(θ/2).
    """
    root = (-c).sqrt()
    x, x0 = root * r, root * r0
    both, share = x.sin() * x0.sin(), log_cos.exp()
    sine = ((x - x0) / 2).sin() ** 2 + both * share
    cosine = ((x + x0) / 2).cos() ** 2 + both * (1.0 - share)
    return (2 * torch.atan2(sine.clamp_min(1e-300).sqrt(), cosine.clamp_min(1e-300).sqrt()) / root) ** 2
