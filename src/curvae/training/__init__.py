"""Training, evaluation and the run folder."""

from .build import build
from .config import Config
from .loop import Fitted, Split, fit, random_split
from .rows import Rows, Scaling

__all__ = ["Config", "Fitted", "Rows", "Scaling", "Split", "build", "fit", "random_split"]
