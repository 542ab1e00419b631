"""Variational auto-encoders with a curved latent space."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import CurvaeError

if TYPE_CHECKING:
    from . import data, distributions, geometry, hierarchy, models, nn, plotting, training, viewer
    from .distributions import HyperbolicRadius, RiemannianNormal, SphericalRadius, SphericalUniform, WrappedNormal
    from .estimators import CellVAE, PoincareGraphVAE, PoincareVAE
    from .geometry import Euclidean, Lorentz, PoincareBall, Sphere
    from .hierarchy import diagnose
    from .training import compare, embed

__all__ = [
    "CellVAE",
    "CurvaeError",
    "Euclidean",
    "HyperbolicRadius",
    "Lorentz",
    "PoincareBall",
    "PoincareGraphVAE",
    "PoincareVAE",
    "RiemannianNormal",
    "Sphere",
    "SphericalRadius",
    "SphericalUniform",
    "WrappedNormal",
    "compare",
    "data",
    "diagnose",
    "distributions",
    "embed",
    "geometry",
    "hierarchy",
    "models",
    "nn",
    "plotting",
    "training",
    "viewer",
]
__version__ = "0.1.0"
_YEAR = 2026  # of this version, for citations

# Imported when first used: torch and scikit-learn take seconds, which `curvae --help` need not wait for.
_SUBMODULES = ("data", "distributions", "geometry", "hierarchy", "models", "nn", "plotting", "training", "viewer")
_NAMES = {
    "distributions": ("HyperbolicRadius", "RiemannianNormal", "SphericalRadius", "SphericalUniform", "WrappedNormal"),
    "estimators": ("CellVAE", "PoincareGraphVAE", "PoincareVAE"),
    "geometry": ("Euclidean", "Lorentz", "PoincareBall", "Sphere"),
    "hierarchy": ("diagnose",),
    "training": ("compare", "embed"),
}

# A type checker sees the imports above; shown this function, it would accept any name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _SUBMODULES:
            return import_module(f".{name}", __name__)
        for module, names in _NAMES.items():
            if name in names:
                return getattr(import_module(f".{module}", __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
