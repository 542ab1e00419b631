"""The scikit-learn face."""

from .poincare_graph_vae import PoincareGraphVAE
from .poincare_vae import PoincareVAE

__all__ = ["PoincareGraphVAE", "PoincareVAE"]
