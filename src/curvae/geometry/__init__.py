"""Geometry of constant curvature −c: stable functions, the hyperboloid, and manifolds in three coordinates."""

from .manifolds import Euclidean, Lorentz, Manifold, PoincareBall

__all__ = ["Euclidean", "Lorentz", "Manifold", "PoincareBall"]
__dir__ = __all__.copy  # completion lists public names only
