"""Geometry of constant curvature −c: stable functions, the hyperboloid, the sphere, and manifolds as objects."""

from .manifolds import Euclidean, Lorentz, Manifold, PoincareBall
from .sphere import Sphere

__all__ = ["Euclidean", "Lorentz", "Manifold", "PoincareBall", "Sphere"]
__dir__ = __all__.copy  # completion lists public names only
