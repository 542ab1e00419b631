"""Graphs that networkx and torch-geometric hold in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...errors import CurvaeError
from ..cells import texts_of
from ..dataset import feature_names
from .links import WEIGHTS_LEFT_OUT, GraphDraft

__all__ = ["from_geometric", "from_networkx", "is_geometric", "is_networkx", "weight_numbers"]


def is_networkx(source: object) -> bool:
    """Whether something is a graph of networkx, which is loaded then."""
    networkx = sys.modules.get("networkx")
    return networkx is not None and isinstance(source, networkx.Graph)


def is_geometric(source: object) -> bool:
    """Whether something is built like a `Data` of torch-geometric."""
    return getattr(source, "edge_index", None) is not None


def weight_numbers(source: str, weights: Iterable[Any]) -> NDArray[np.float64]:
    """Weights as numbers, whatever they were."""
    numbers = []
    for weight in weights:
        try:
            numbers.append(float(weight))
        except (TypeError, ValueError):
            said = "an edge without a weight" if weight is None else f"weight {weight!r}"
            raise CurvaeError(f"{source} has {said}; give positive numbers, or leave out weighted=True") from None
    return np.array(numbers, dtype=np.float64)


def from_networkx(graph: Any, weighted: bool) -> GraphDraft:
    """A graph of networkx: any of its kinds, nodes called as they print, weights in the attribute "weight"."""
    source = "the networkx graph"
    names = np.array([str(node) for node in graph], dtype=np.str_)
    if np.unique(names).size < names.size:
        raise CurvaeError(f"{source} has different nodes that print alike; relabel them")
    place = {node: i for i, node in enumerate(graph)}
    links = np.array([(place[a], place[b]) for a, b in graph.edges()], dtype=np.int64).reshape(-1, 2)
    draft = GraphDraft(source, names, links, directed=graph.is_directed())
    draft.attributes = pd.DataFrame([data for _, data in graph.nodes(data=True)], index=range(len(names)))
    draft.attributes.columns = pd.Index([str(name) for name in draft.attributes.columns])
    found = [weight for *_, weight in graph.edges(data="weight")]
    if weighted:
        draft.weights = weight_numbers(source, found)
        draft.check_weights()
    elif any(weight is not None for weight in found):
        draft.remarks.note(WEIGHTS_LEFT_OUT)
    return draft


def from_geometric(data: Any, weighted: bool) -> GraphDraft:
    """A `Data` of torch-geometric: nodes called by their numbers, features from x, labels from y.

    Weights are those of edge_weight, or of edge_attr where it holds one number an edge.
    """
    source = "the torch-geometric graph"
    nodes = int(data.num_nodes)
    links = _array(data.edge_index).T.astype(np.int64)
    if links.size and (links.min() < 0 or links.max() >= nodes):
        raise CurvaeError(f"{source} has {nodes:,} nodes and an edge to node {links.max():,}; set num_nodes")
    draft = GraphDraft(source, np.arange(nodes).astype(np.str_), links)
    weights = next((w for w in (data.edge_weight, data.edge_attr) if w is not None and w.numel() == len(links)), None)
    if weighted:
        if weights is None:
            raise CurvaeError(f"{source} has no edge_weight; set it, or leave out weighted=True")
        draft.weights = _array(weights).reshape(-1).astype(np.float64)
        draft.check_weights()
    elif weights is not None:
        draft.remarks.note(WEIGHTS_LEFT_OUT)
    if data.x is not None:
        draft.features = _array(data.x).reshape(nodes, -1).astype(np.float64)
        draft.feature_names = feature_names(draft.features.shape[1])
    if data.y is not None and data.y.numel() == nodes:
        draft.labels, draft.label_name = texts_of(pd.Series(_array(data.y).reshape(-1))), "y"
    elif data.y is not None:
        draft.remarks.note("y was left out: it is not one label a node.")
    return draft


def _array(values: Any) -> NDArray[Any]:
    return np.asarray(values.detach().cpu())
