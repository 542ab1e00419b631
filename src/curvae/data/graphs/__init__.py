"""Graphs from files, other libraries and by name; splits that hold out edges."""

from .graph_data import EdgeSplit, Graph, split_edges
from .reading import load_graph

__all__ = ["EdgeSplit", "Graph", "load_graph", "split_edges"]
