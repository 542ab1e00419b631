"""Training and evaluation of models of graphs."""

from .compare import GraphComparison, compare_graph
from .config import GraphConfig
from .evaluate import Links, Neighbourhood, embed_graph, link_figures, neighbourhood
from .fitting import START, FittedGraph, build_graph_model, fit_graph, fit_graphs

__all__ = [
    "START",
    "FittedGraph",
    "GraphComparison",
    "GraphConfig",
    "Links",
    "Neighbourhood",
    "build_graph_model",
    "compare_graph",
    "embed_graph",
    "fit_graph",
    "fit_graphs",
    "link_figures",
    "neighbourhood",
]
