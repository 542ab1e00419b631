"""Variational auto-encoders with a curved latent space."""

from typing import TYPE_CHECKING, Any

from .distributions import HyperbolicRadius, RiemannianNormal, SphericalUniform, WrappedNormal
from .errors import CurvaeError
from .geometry import Euclidean, Lorentz, PoincareBall

if TYPE_CHECKING:
    from .estimators import PoincareVAE

__all__ = [
    "CurvaeError",
    "Euclidean",
    "HyperbolicRadius",
    "Lorentz",
    "PoincareBall",
    "PoincareVAE",
    "RiemannianNormal",
    "SphericalUniform",
    "WrappedNormal",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Estimators bring scikit-learn and pandas along, which take as long to import as all the rest.
    if name == "PoincareVAE":
        from .estimators import PoincareVAE

        return PoincareVAE
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
