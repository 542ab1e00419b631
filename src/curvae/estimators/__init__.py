"""The scikit-learn face."""

from .graph import PoincareGraphVAE
from .vae import PoincareVAE

__all__ = ["PoincareGraphVAE", "PoincareVAE"]
