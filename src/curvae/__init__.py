"""Variational auto-encoders with a curved latent space."""

from .distributions import HyperbolicRadius, RiemannianNormal, SphericalUniform, WrappedNormal
from .geometry import Euclidean, Lorentz, PoincareBall

__all__ = [
    "Euclidean",
    "HyperbolicRadius",
    "Lorentz",
    "PoincareBall",
    "RiemannianNormal",
    "SphericalUniform",
    "WrappedNormal",
]
__version__ = "0.1.0"
