"""Latent spaces, layers and networks as modules."""

from .graph_layers import (
    Adjacency,
    AdjacencyMaker,
    Arcs,
    FreeVectors,
    GraphConv,
    GraphEncoder,
    Popularity,
    normalised_adjacency,
    undirected,
)
from .layers import Curvature, ExpMap0, Gyroplane, Layers, LogMap0, MobiusLinear
from .networks import NETWORKS, Conditioned, Decoder, Network, decoder, mlp
from .space import Factor, HyperbolicFactor, Space, SphericalFactor

__all__ = [
    "NETWORKS",
    "Adjacency",
    "AdjacencyMaker",
    "Arcs",
    "Conditioned",
    "Curvature",
    "Decoder",
    "ExpMap0",
    "Factor",
    "FreeVectors",
    "GraphConv",
    "GraphEncoder",
    "Gyroplane",
    "HyperbolicFactor",
    "Layers",
    "LogMap0",
    "MobiusLinear",
    "Network",
    "Popularity",
    "Space",
    "SphericalFactor",
    "decoder",
    "mlp",
    "normalised_adjacency",
    "undirected",
]
__dir__ = __all__.copy  # completion lists public names only
