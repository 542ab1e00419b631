"""Graphs of networkx and torch-geometric."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...errors import CurvaeError
from ..column_values import texts_of
from ..dataset import feature_names
from .raw_graph import RawGraph

__all__ = ["from_geometric", "from_networkx", "is_geometric", "is_networkx"]


def is_networkx(source: object) -> bool:
    """Whether an object is a graph of networkx, without importing it."""
    networkx = sys.modules.get("networkx")
    return networkx is not None and isinstance(source, networkx.Graph)


def is_geometric(source: object) -> bool:
    """Whether an object looks like a `Data` of torch-geometric."""
    return getattr(source, "edge_index", None) is not None


def from_networkx(graph: Any, weighted: bool, source: str = "the networkx graph") -> RawGraph:
    """Take a graph of networkx, of any class.

    Nodes are named as they print, and their data become attributes. The weight of an edge is its attribute "weight".
    """
    names = np.array([str(node) for node in graph], dtype=np.str_)
    if np.unique(names).size < names.size:
        raise CurvaeError(f"{source} has different nodes that print alike; relabel them")
    place = {node: i for i, node in enumerate(graph)}
    links = np.array([(place[a], place[b]) for a, b in graph.edges()], dtype=np.int64).reshape(-1, 2)
    raw = RawGraph(source, names, links, directed=graph.is_directed())
    raw.attributes = pd.DataFrame([data for _, data in graph.nodes(data=True)], index=range(len(names)))
    raw.attributes.columns = pd.Index([str(name) for name in raw.attributes.columns])
    found = [weight for *_, weight in graph.edges(data="weight")]
    raw.set_weights(found if weighted or any(weight is not None for weight in found) else None, weighted)
    return raw


def from_geometric(data: Any, weighted: bool) -> RawGraph:
    """Take a graph from a `Data` of torch-geometric: features from x, labels from y; nodes are named by their numbers.

    Weights are those of edge_weight, or of edge_attr if it has one number per edge.
    """
    source = "the torch-geometric graph"
    nodes = int(data.num_nodes)
    links = _array(data.edge_index).T.astype(np.int64)
    if links.size and (links.min() < 0 or links.max() >= nodes):
        raise CurvaeError(f"{source} has {nodes:,} nodes and an edge to node {links.max():,}; set num_nodes")
    raw = RawGraph(source, np.arange(nodes).astype(np.str_), links)
    weights = next((w for w in (data.edge_weight, data.edge_attr) if w is not None and w.numel() == len(links)), None)
    if weighted and weights is None:
        raise CurvaeError(f"{source} has no edge_weight; set it, or leave out weighted=True")
    raw.set_weights(None if weights is None else _array(weights).reshape(-1), weighted)
    if data.x is not None:
        raw.features = _array(data.x).reshape(nodes, -1).astype(np.float64)
        raw.feature_names = feature_names(raw.features.shape[1])
    if data.y is not None and data.y.numel() == nodes:
        raw.labels, raw.label_name = texts_of(pd.Series(_array(data.y).reshape(-1))), "y"
    elif data.y is not None:
        raw.messages.note("y was left out because it does not have one label per node.")
    return raw


def _array(values: Any) -> NDArray[Any]:
    return np.asarray(values.detach().cpu())
