"""Training and evaluation of models of graphs."""

from ..config import GraphConfig
from .evaluate import Links, Neighbourhood, embed_graph, link_baselines, link_figures, missing_links, neighbourhood
from .fitted import START, FittedGraph, build_graph_model
from .fitting import GraphComparison, compare_graph, fit_graph, fit_graphs

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
    "link_baselines",
    "link_figures",
    "missing_links",
    "neighbourhood",
]
