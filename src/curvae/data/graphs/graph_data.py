"""Graphs to embed: nodes with names, edges without direction."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from ...errors import CurvaeError
from ..messages import count, quoted

__all__ = ["Graph"]


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected graph without loops, with everything known about its nodes.

    Arguments:
        names: one a node, unique.
        edges: places of the two nodes of each edge, (edges, 2), int64: each edge once, i < j, sorted by i, then j.
        weights: one an edge, positive, or None.
        features: one row a node, float64, finite, or None.
        feature_names: of the features.
        labels: one a node, or None.
        label_name: what the labels are.
        notes: what was done to the data, one sentence each.
        warnings: what looks wrong, with the fix, one sentence each.

    Example:
        >>> graph = Graph(np.array(["a", "b", "c", "d"]), np.array([[0, 1], [1, 2]]))
        >>> graph.n_nodes, graph.n_edges, graph.components.tolist()
        (4, 2, [0, 0, 0, 1])
    """

    names: NDArray[np.str_]
    edges: NDArray[np.int64]
    weights: NDArray[np.float64] | None = None
    features: NDArray[np.float64] | None = None
    feature_names: tuple[str, ...] = ()
    labels: NDArray[np.str_] | None = None
    label_name: str | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.names.ndim != 1 or self.names.dtype.kind != "U":
            raise CurvaeError("names of nodes must be an array of texts, one a node")
        unique, counts = np.unique(self.names, return_counts=True)
        if (twice := unique[counts > 1]).size:
            raise CurvaeError(f"nodes of the same name: {quoted(twice)}; make names unique")
        self._check_edges()
        width = len(self.feature_names)
        if self.features is None and width:
            raise CurvaeError(f"{count(width, 'feature name')} without features; give both")
        if self.features is not None:
            if self.features.shape != (self.n_nodes, width):
                raise CurvaeError(
                    f"features of shape {self.features.shape} for {count(self.n_nodes, 'node')} and "
                    f"{count(width, 'feature name')}; give one row a node and one name a column"
                )
            if not np.isfinite(self.features).all():
                raise CurvaeError("features hold missing or infinite values; replace them")
        if self.labels is not None and self.labels.shape != self.names.shape:
            raise CurvaeError(f"{count(self.n_nodes, 'node')} but labels of shape {self.labels.shape}; give one a node")

    def _check_edges(self) -> None:
        edges, weights = self.edges, self.weights
        if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype != np.int64:
            raise CurvaeError(f"edges of shape {edges.shape} and type {edges.dtype}; give int64 of shape (edges, 2)")
        if edges.size and (edges.min() < 0 or edges.max() >= self.n_nodes):
            raise CurvaeError(f"an edge leads to a node that is not among the {self.n_nodes:,}; count nodes from 0")
        keys = edges[:, 0] * self.n_nodes + edges[:, 1]
        if bool((edges[:, 0] >= edges[:, 1]).any()) or bool((np.diff(keys) <= 0).any()):
            raise CurvaeError("edges must be sorted pairs i < j, each once; curvae.data.load_graph makes them so")
        if weights is not None:
            if weights.shape != (len(edges),):
                raise CurvaeError(f"{count(len(edges), 'edge')} but weights of shape {weights.shape}; give one an edge")
            if not bool((np.isfinite(weights) & (weights > 0)).all()):
                raise CurvaeError("weights must be positive and finite")

    @property
    def n_nodes(self) -> int:
        return len(self.names)

    @property
    def n_edges(self) -> int:
        return len(self.edges)

    def adjacency(self) -> csr_array:
        """The symmetric matrix of weights, or of ones where the graph has none, (nodes, nodes)."""
        values = np.ones(self.n_edges) if self.weights is None else self.weights
        # The algorithms of csgraph want small indices.
        i, j = self.edges.T.astype(np.int32 if self.n_nodes < 2**31 else np.int64)
        places = np.concatenate([i, j]), np.concatenate([j, i])
        return csr_array(coo_array((np.concatenate([values, values]), places), shape=(self.n_nodes, self.n_nodes)))

    @cached_property
    def components(self) -> NDArray[np.int64]:
        """Number of the connected component of each node, from 0."""
        return connected_components(self.adjacency(), directed=False)[1].astype(np.int64)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of names, edges, weights, features with their names, and labels."""
        digest = hashlib.sha256()
        labels = None if self.labels is None else self.labels.tolist()
        for text in (self.names.tolist(), self.feature_names, labels):
            digest.update(json.dumps(text).encode() + b"\n")
        for array, dtype in ((self.edges, "<i8"), (self.weights, "<f8"), (self.features, "<f8")):
            digest.update(json.dumps(None if array is None else array.shape).encode() + b"\n")
            if array is not None:
                digest.update(array.astype(dtype).tobytes())
        return digest.hexdigest()
