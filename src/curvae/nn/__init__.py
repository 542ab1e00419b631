"""Curvature, layers and networks as modules."""

from .curvature import Curvature
from .graph import GraphConv, GraphEncoder, normalised_adjacency, undirected
from .layers import ExpMap0, Gyroplane, LogMap0, MobiusLinear
from .networks import NETWORKS, Conditioned, Decoder, Network, decoder, mlp

__all__ = [
    "NETWORKS",
    "Conditioned",
    "Curvature",
    "Decoder",
    "ExpMap0",
    "GraphConv",
    "GraphEncoder",
    "Gyroplane",
    "LogMap0",
    "MobiusLinear",
    "Network",
    "decoder",
    "mlp",
    "normalised_adjacency",
    "undirected",
]
