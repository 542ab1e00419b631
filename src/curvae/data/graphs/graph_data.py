"""The graph to embed: named nodes and edges, with or without a direction."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, issparse
from scipy.sparse.csgraph import connected_components

from ...errors import CurvaeError
from ..messages import count, quoted
from ..missing import has_missing

__all__ = ["Graph", "link_matrix"]


def link_matrix(
    edges: NDArray[np.int64], nodes: int, weights: NDArray[np.float64] | None = None, directed: bool = False
) -> csr_array:
    """The matrix of weights of edges, or of ones, (nodes, nodes): symmetric, or from rows to columns if directed."""
    values = np.ones(len(edges)) if weights is None else weights
    # The algorithms of csgraph need 32-bit indices.
    i, j = edges.T.astype(np.int32 if nodes < 2**31 else np.int64)
    if not directed:
        i, j, values = np.concatenate([i, j]), np.concatenate([j, i]), np.concatenate([values, values])
    return csr_array(coo_array((values, (i, j)), shape=(nodes, nodes)))


def _differ(names: NDArray[np.str_]) -> bool:
    """Whether no two names are the same. Different sums of their letters, with random factors, tell so quickly."""
    if not names.size or not names.dtype.itemsize:
        return names.size < 2
    letters = np.ascontiguousarray(names).view(np.uint32).reshape(len(names), -1)
    factors = np.random.default_rng(0).integers(1, 2**63, letters.shape[1], dtype=np.uint64)
    sums = np.sort(letters @ factors)
    return bool((sums[1:] != sums[:-1]).all()) or len(np.unique(names)) == len(names)


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph without loops, with labels and features of its nodes.

    Arguments:
        names: unique name of each node, (nodes,).
        edges: positions of the two nodes of each edge, (edges, 2), int64: each edge once, i < j, sorted by i, then j;
            if directed, from i to j.
        weights: positive weight of each edge, (edges,), or None.
        features: finite features of each node, (nodes, features), float64, dense or sparse, or None.
        feature_names: names of the features.
        labels: label of each node, (nodes,), or None.
        label_name: name of the labels.
        notes: what was done to the data, one sentence each.
        warnings: what looks wrong and how to fix it, one sentence each.
        directed: whether edges have a direction; there may be one from i to j and another back.

    Example:
        >>> graph = Graph(np.array(["a", "b", "c", "d"]), np.array([[0, 1], [1, 2]]))
        >>> graph.n_nodes, graph.n_edges, graph.components.tolist()
        (4, 2, [0, 0, 0, 1])
    """

    names: NDArray[np.str_]
    edges: NDArray[np.int64]
    weights: NDArray[np.float64] | None = None
    features: NDArray[np.float64] | csr_array | None = None
    feature_names: tuple[str, ...] = ()
    labels: NDArray[np.str_] | None = None
    label_name: str | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    directed: bool = False

    def __post_init__(self) -> None:
        if self.names.ndim != 1 or self.names.dtype.kind != "U":
            raise CurvaeError("names must be an array of texts, one per node")
        if not _differ(self.names):
            unique, counts = np.unique(self.names, return_counts=True)
            twice = unique[counts > 1]
            raise CurvaeError(f"nodes of the same name: {quoted(twice)}; make names unique")
        self._check_edges()
        width = len(self.feature_names)
        if self.features is None and width:
            raise CurvaeError(f"{count(width, 'feature name')} without features; give both")
        if self.features is not None:
            if self.features.shape != (self.n_nodes, width):
                raise CurvaeError(
                    f"features of shape {self.features.shape} for {count(self.n_nodes, 'node')} and "
                    f"{count(width, 'feature name')}; give one row per node and one name per column"
                )
            if has_missing(self.features):
                raise CurvaeError("features contain missing or infinite values; replace them")
        if self.labels is not None and self.labels.shape != self.names.shape:
            raise CurvaeError(
                f"{count(self.n_nodes, 'node')} but labels of shape {self.labels.shape}; give one per node"
            )

    def _check_edges(self) -> None:
        edges, weights = self.edges, self.weights
        if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype != np.int64:
            raise CurvaeError(f"edges of shape {edges.shape} and type {edges.dtype}; give int64 of shape (edges, 2)")
        if edges.size and (edges.min() < 0 or edges.max() >= self.n_nodes):
            raise CurvaeError(f"an edge leads to a node that is not among the {self.n_nodes:,}; number nodes from 0")
        wrong = edges[:, 0] == edges[:, 1] if self.directed else edges[:, 0] >= edges[:, 1]
        if wrong.any() or (np.diff(edges @ [self.n_nodes, 1]) <= 0).any():
            kind = "i ≠ j" if self.directed else "i < j"
            raise CurvaeError(f"edges must be sorted pairs {kind}, each once; curvae.data.load_graph makes them so")
        if weights is not None:
            if weights.shape != (len(edges),):
                raise CurvaeError(
                    f"{count(len(edges), 'edge')} but weights of shape {weights.shape}; give one per edge"
                )
            if not bool((np.isfinite(weights) & (weights > 0)).all()):
                raise CurvaeError("weights must be positive and finite")

    @property
    def n_nodes(self) -> int:
        return len(self.names)

    @property
    def n_edges(self) -> int:
        return len(self.edges)

    def adjacency(self) -> csr_array:
        """The symmetric matrix of weights, or of ones if the graph has none, (nodes, nodes).

        Of edges in both directions it has the sum.
        """
        return link_matrix(self.edges, self.n_nodes, self.weights)

    def links(self) -> csr_array:
        """Who has an edge to whom: `adjacency`, of a directed graph the matrix from rows to columns."""
        return link_matrix(self.edges, self.n_nodes, self.weights, self.directed)

    @cached_property
    def components(self) -> NDArray[np.int64]:
        """Number of the connected component of each node, from 0, (nodes,)."""
        links = link_matrix(self.edges, self.n_nodes, directed=True)  # either way counts, so one is enough
        return connected_components(links, directed=False)[1].astype(np.int64)

    @property
    def is_forest(self) -> bool:
        """Whether the graph has no circle: without any of its edges, the two nodes of that edge are not connected.

        Example:
            >>> Graph(np.array(["a", "b", "c"]), np.array([[0, 1], [1, 2]])).is_forest
            True
        """
        return self.n_nodes > 0 and self.n_edges == self.n_nodes - 1 - int(self.components.max())

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of names, edges with their direction, weights, features with their names, and labels."""
        digest = hashlib.sha256()
        for text in (self.names.tolist(), self.feature_names, None if self.labels is None else self.labels.tolist()):
            digest.update(json.dumps(text).encode() + b"\n")
        x: Any = self.features
        parts = [(x.indptr, "<i8"), (x.indices, "<i8"), (x.data, "<f8")] if issparse(x) else [(x, "<f8")]
        for array, dtype in ((self.edges, "<i8"), (self.weights, "<f8"), *parts):
            digest.update(json.dumps(None if array is None else array.shape).encode() + b"\n")
            if array is not None:
                digest.update(np.ascontiguousarray(array, dtype).data)
        if self.directed:
            digest.update(b"directed")
        return digest.hexdigest()
