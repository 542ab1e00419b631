"""Training, evaluation and the run folder."""

from ..data.scaling import Scaling
from .build import build
from .comparison import Comparison, compare
from .config import Config
from .evaluate import Embedding, embed
from .fitted import Fitted
from .fitting import fit, fit_many
from .graphs import (
    FittedGraph,
    GraphConfig,
    compare_graph,
    embed_graph,
    fit_graph,
    fit_graphs,
    link_baselines,
    link_figures,
    missing_links,
    neighbourhood,
)
from .imputation import impute
from .rows import Rows
from .splits import HeldOut, Split, hold_out, random_split

__all__ = [
    "Comparison",
    "Config",
    "Embedding",
    "Fitted",
    "FittedGraph",
    "GraphConfig",
    "HeldOut",
    "Rows",
    "Scaling",
    "Split",
    "build",
    "compare",
    "compare_graph",
    "embed",
    "embed_graph",
    "fit",
    "fit_graph",
    "fit_graphs",
    "fit_many",
    "hold_out",
    "impute",
    "link_baselines",
    "link_figures",
    "missing_links",
    "neighbourhood",
    "random_split",
]
__dir__ = __all__.copy  # completion lists public names only
