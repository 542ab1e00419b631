"""The scikit-learn face, and that for users of scvi-tools."""

from .cells import CellVAE
from .poincare_graph_vae import PoincareGraphVAE
from .poincare_vae import PoincareVAE

__all__ = ["CellVAE", "PoincareGraphVAE", "PoincareVAE"]
