"""The scikit-learn face."""

from .vae import PoincareVAE

__all__ = ["PoincareVAE"]
