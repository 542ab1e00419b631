"""Distributions on spaces of constant curvature, as `torch.distributions`."""

from .divergence import kl_divergence, kl_quadrature
from .normal import HyperbolicNormal, RiemannianNormal, WrappedNormal
from .radius import HyperbolicRadius, SphericalUniform

__all__ = [
    "HyperbolicNormal",
    "HyperbolicRadius",
    "RiemannianNormal",
    "SphericalUniform",
    "WrappedNormal",
    "kl_divergence",
    "kl_quadrature",
]
