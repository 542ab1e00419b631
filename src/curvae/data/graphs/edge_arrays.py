"""Graphs from arrays, lists and frames of edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ...errors import CurvaeError
from ..column_values import texts_of
from .edge_columns import end_columns, name_nodes, weight_column
from .raw_graph import RawGraph

__all__ = ["from_frame", "from_pairs"]

_FORMS = "a file, a networkx graph, a scipy sparse matrix, torch-geometric data, a frame of edges or pairs of nodes"


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
    empty = ((left == "") | (right == "")).to_numpy(bool)
    if empty.any():
        raise CurvaeError(f"{source}: row {int(np.argmax(empty)) + 1} names only one node; give two")
