"""Graphs as adjacency matrices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array, triu

from ...errors import CurvaeError
from .. import memory
from ..matrices import read_sparse
from .raw_graph import RawGraph

__all__ = ["from_matrix", "read_adjacency"]


def read_adjacency(path: Path, weighted: bool) -> RawGraph:
    """Read a graph from a sparse matrix in a file; nodes are numbered from 1 in Matrix Market files, from 0 in .npz."""
    return from_matrix(path.name, read_sparse(path), weighted, first=0 if path.suffix.lower() == ".npz" else 1)


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
