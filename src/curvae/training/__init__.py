"""Training, evaluation and the run folder."""

from ..data.dataset import Scaling
from .comparison import Comparison, CurvatureSet, compare, faithfulness_criterion, recovery_criterion
from .fitted import Config, Embedding, Fitted, GraphConfig, build, embed, impute
from .fitting import fit, fit_many
from .graph_problem import (
    FittedGraph,
    compare_graph,
    embed_graph,
    fit_graph,
    fit_graphs,
    link_baselines,
    link_figures,
    missing_links,
    neighbourhood,
)
from .rows import Rows, Split, random_split

__all__ = [
    "Comparison",
    "Config",
    "CurvatureSet",
    "Embedding",
    "Fitted",
    "FittedGraph",
    "GraphConfig",
    "Rows",
    "Scaling",
    "Split",
    "build",
    "compare",
    "compare_graph",
    "embed",
    "embed_graph",
    "faithfulness_criterion",
    "fit",
    "fit_graph",
    "fit_graphs",
    "fit_many",
    "impute",
    "link_baselines",
    "link_figures",
    "missing_links",
    "neighbourhood",
    "random_split",
    "recovery_criterion",
]
__dir__ = __all__.copy  # completion lists public names only
