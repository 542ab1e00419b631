"""Data: tables, matrices, images, MNIST and synthetic trees are read as a `Dataset`, graphs as a `Graph`."""

from .dataset import Arrays, Column, Dataset, Schema, from_arrays
from .graph_data import EdgeSplit, Graph, split_edges
from .graph_reading import load_graph
from .loading import load
from .matrices import mnist
from .synthetic import Tree, branching_counts, branching_diffusion, flat

__all__ = [
    "Arrays",
    "Column",
    "Dataset",
    "EdgeSplit",
    "Graph",
    "Schema",
    "Tree",
    "branching_counts",
    "branching_diffusion",
    "flat",
    "from_arrays",
    "load",
    "load_graph",
    "mnist",
    "split_edges",
]
__dir__ = __all__.copy  # completion lists public names only
