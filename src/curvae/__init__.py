"""Variational auto-encoders with a curved latent space."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import CurvaeError

if TYPE_CHECKING:
    from .distributions import HyperbolicRadius, RiemannianNormal, SphericalUniform, WrappedNormal
    from .estimators import PoincareGraphVAE, PoincareVAE
    from .geometry import Euclidean, Lorentz, PoincareBall

__all__ = [
    "CurvaeError",
    "Euclidean",
    "HyperbolicRadius",
    "Lorentz",
    "PoincareBall",
    "PoincareGraphVAE",
    "PoincareVAE",
    "RiemannianNormal",
    "SphericalUniform",
    "WrappedNormal",
]
__version__ = "0.1.0"

# Imported when first used: torch and scikit-learn take seconds, which `curvae --help` need not wait for.
_ROOMS = {
    "distributions": ("HyperbolicRadius", "RiemannianNormal", "SphericalUniform", "WrappedNormal"),
    "estimators": ("PoincareGraphVAE", "PoincareVAE"),
    "geometry": ("Euclidean", "Lorentz", "PoincareBall"),
}


def __getattr__(name: str) -> Any:
    for room, names in _ROOMS.items():
        if name in names:
            return getattr(import_module(f".{room}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
