"""Distributions on spaces of constant curvature, as `torch.distributions`."""

from .divergence import kl_divergence, kl_quadrature
from .normal import (
    HyperbolicNormal,
    HyperbolicRadius,
    ProductNormal,
    RiemannianNormal,
    SphericalRadius,
    SphericalUniform,
    WrappedNormal,
)
from .pyro import to_pyro
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
