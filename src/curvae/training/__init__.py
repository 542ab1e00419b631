"""Training, evaluation and the run folder."""

from .build import build
from .config import Config
from .fitted import Fitted
from .loop import fit, fit_many
from .rows import Rows, Scaling
from .splits import Split, random_split

__all__ = ["Config", "Fitted", "Rows", "Scaling", "Split", "build", "fit", "fit_many", "random_split"]
