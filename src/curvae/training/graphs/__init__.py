"""Training and evaluation of models of graphs."""

from .config import GraphConfig
from .fitting import FittedGraph, build_graph_model, fit_graph, fit_graphs

__all__ = ["FittedGraph", "GraphConfig", "build_graph_model", "fit_graph", "fit_graphs"]
