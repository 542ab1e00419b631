"""Distributions on spaces of constant curvature, as `torch.distributions`."""

from .divergence import kl_divergence, kl_quadrature
from .normal import HyperbolicNormal, ProductNormal, RiemannianNormal, WrappedNormal
from .pyro import to_pyro
from .radius import HyperbolicRadius, SphericalRadius, SphericalUniform
from .validation import ExpMap0Transform, NormalizeTransform

__all__ = [
    "ExpMap0Transform",
    "HyperbolicNormal",
    "HyperbolicRadius",
    "NormalizeTransform",
    "ProductNormal",
    "RiemannianNormal",
    "SphericalRadius",
    "SphericalUniform",
    "WrappedNormal",
    "kl_divergence",
    "kl_quadrature",
    "to_pyro",
]
__dir__ = __all__.copy  # completion lists public names only
