"""Graphs from files, other libraries and by name; splits that hold out edges."""

from .graph_data import Graph
from .sources import load_graph
from .splits import EdgeSplit, split_edges

__all__ = ["EdgeSplit", "Graph", "load_graph", "split_edges"]
