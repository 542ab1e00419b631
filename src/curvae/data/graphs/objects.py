"""Graphs from objects: of networkx and torch-geometric, sparse matrices of scipy, frames and pairs of edges."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, triu

from ...errors import CurvaeError
from .. import memory
from ..column_values import texts_of
from ..dataset import feature_names
from .edgelist import end_columns, name_nodes, weight_column
from .raw_graph import RawGraph

__all__ = ["from_frame", "from_geometric", "from_matrix", "from_networkx", "from_pairs", "is_geometric", "is_networkx"]

_FORMS = "a file, a networkx graph, a scipy sparse matrix, torch-geometric data, a frame of edges or pairs of nodes"


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


def from_matrix(source: str, matrix: Any, weighted: bool, first: int = 0) -> RawGraph:
    """Take a graph from a sparse adjacency matrix: an edge for each value that is not 0.

    Arguments:
        source: name of the matrix in messages.
        matrix: a matrix of scipy.sparse in any format, (nodes, nodes).
        weighted: whether its values are weights.
        first: number of the first node.
    """
    rows, columns = matrix.shape
    if rows != columns:
        raise CurvaeError(
            f"{source} is {rows:,} × {columns:,}; give a square matrix, with one row and one column per node"
        )
    if matrix.dtype.kind not in "biuf":
        raise CurvaeError(f"{source} holds {matrix.dtype}, not real numbers; convert it to float")
    memory.require(100 * rows, f"{source} ({rows:,} nodes)", fix="give a smaller graph")
    matrix = csr_array(matrix, dtype=np.float64, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if not np.isfinite(matrix.data).all():
        raise CurvaeError(f"{source} holds missing or infinite values; replace them")
    known = matrix if weighted else matrix.astype(bool)
    symmetric = (known != known.T).nnz == 0
    entries = coo_array(triu(matrix) if symmetric else matrix)
    links = np.stack([axis.astype(np.int64) for axis in entries.coords], axis=1)
    raw = RawGraph(source, np.arange(first, rows + first).astype(np.str_), links, directed=not symmetric)
    raw.set_weights(entries.data if weighted or (entries.data != 1).any() else None, weighted)
    return raw


def from_frame(frame: pd.DataFrame, weighted: bool) -> RawGraph:
    """Take a graph from a frame with one edge per row; columns are found as in a text file with a header."""
    source = "the frame of edges"
    header = [str(name) for name in frame.columns]
    if len(header) < 2:
        raise CurvaeError(f"{source} has one column or none; give two that name nodes")
    left, right = (pd.Series(texts_of(frame.iloc[:, column], strip=True)) for column in end_columns(header))
    _check_names(source, left, right)
    raw = RawGraph(source, *name_nodes(left, right))
    if weighted or len(header) > 2:
        weights = frame.iloc[:, weight_column(source, header, len(header))]
        raw.set_weights(weights, weighted, lambda row: f"row {row + 1}")
    return raw


def from_pairs(source: Any, weighted: bool) -> RawGraph:
    """Take a graph from anything that numpy converts to an array of whole numbers or texts, (edges, 2)."""
    what = f"the graph of type {type(source).__name__}"
    try:
        pairs = np.asarray(source)
    except Exception as error:  # other libraries may raise anything
        raise CurvaeError(f"{what} cannot be read; give {_FORMS}") from error
    if pairs.ndim and not pairs.size:
        raise CurvaeError(f"{what} has no edges; give at least one")
    if pairs.ndim == 2 and pairs.shape[0] == pairs.shape[1] > 2:
        raise CurvaeError(f"{what} has shape {pairs.shape}; convert an adjacency matrix to a scipy.sparse.csr_array")
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise CurvaeError(f"{what} has shape {pairs.shape}; give {_FORMS}")
    if weighted:
        raise CurvaeError(f"{what} has no weights; give a frame with a column 'weight', or leave out weighted=True")
    if pairs.dtype.kind == "f" and bool((pairs % 1 == 0).all()):
        pairs = pairs.astype(np.int64)
    if pairs.dtype.kind in "iu":
        numbers, place = np.unique(pairs, return_inverse=True)
        return RawGraph(what, numbers.astype(np.str_), place.reshape(pairs.shape).astype(np.int64))
    if pairs.dtype.kind not in "UO":
        raise CurvaeError(f"{what} holds {pairs.dtype}; give whole numbers or texts")
    left, right = (pd.Series(texts_of(pd.Series(column, dtype=object), strip=True)) for column in pairs.T)
    _check_names(what, left, right)
    return RawGraph(what, *name_nodes(left, right))


def _check_names(source: str, left: Any, right: Any) -> None:
    if (empty := ((left == "") | (right == "")).to_numpy(bool)).any():
        raise CurvaeError(f"{source}: row {int(np.argmax(empty)) + 1} names only one node; give two")
