"""From the links that a reader found to a graph: the steps that all sources share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...errors import CurvaeError
from ..remarks import Remarks, count, quoted
from .graph import Graph

__all__ = ["WEIGHTS_LEFT_OUT", "GraphDraft"]

WEIGHTS_LEFT_OUT = "weights were left out; use weighted=True to read them."


@dataclass
class GraphDraft:
    """A graph as it was read: links in either direction, repeated, from a node to itself.

    Arguments:
        source: what to call it in messages.
        names: one a node.
        links: places of the two nodes of each link, (links, 2).
        weights: one a link, if they are asked for.
        directed: whether the source says that its links have a direction; None where it does not say.
        attributes: that the source itself has of its nodes, one row each.
        features, feature_names, labels, label_name: of the nodes.
        remarks: gathered so far.
    """

    source: str
    names: NDArray[np.str_]
    links: NDArray[np.int64]
    weights: NDArray[np.float64] | None = None
    directed: bool | None = None
    attributes: pd.DataFrame | None = None
    features: NDArray[np.float64] | None = None
    feature_names: tuple[str, ...] = ()
    labels: NDArray[np.str_] | None = None
    label_name: str | None = None
    remarks: Remarks = field(default_factory=Remarks)

    def check_weights(self, where: Callable[[int], str] | None = None) -> None:
        """Raise unless all weights are positive and finite.

        Arguments:
            where: says where the link of a number is found; by default between which nodes.
        """
        if self.weights is None:
            return
        wrong = ~(np.isfinite(self.weights) & (self.weights > 0))
        if wrong.any():
            link = int(np.argmax(wrong))
            place = f"the edge of {quoted(self.names[self.links[link]])}" if where is None else where(link)
            raise CurvaeError(
                f"{self.source}: {place} has weight {self.weights[link]:g}; "
                "give positive numbers, or leave out weighted=True"
            )

    def finish(self) -> Graph:
        """The graph, with what was done to it."""
        links, weights = self._without_loops()
        if not len(links):
            others = " between different nodes" if len(self.links) else ""
            raise CurvaeError(f"{self.source} has no edges{others}; give at least one")
        edges, weights = self._merge(links, weights)
        graph = Graph(
            names=self.names,
            edges=edges,
            weights=weights,
            features=self.features,
            feature_names=self.feature_names,
            labels=self.labels,
            label_name=self.label_name if self.labels is not None else None,
        )
        self._judge(graph)
        return replace(graph, notes=tuple(self.remarks.notes), warnings=tuple(self.remarks.warnings))

    def _without_loops(self) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
        keep = self.links[:, 0] != self.links[:, 1]
        if loops := int((~keep).sum()):
            self.remarks.note(f"left out: {count(loops, 'self loop')}.")
        return self.links[keep], None if self.weights is None else self.weights[keep]

    def _merge(
        self, links: NDArray[np.int64], weights: NDArray[np.float64] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
        """Each edge once.

        Weights of one direction are summed. The two directions are summed too, unless all of them agree: then the
        source is a symmetric matrix or a list that gives every edge twice.
        """
        nodes = len(self.names)
        if self.directed is False:
            links = np.sort(links, axis=1)
        arcs, place = np.unique(links[:, 0] * nodes + links[:, 1], return_inverse=True)
        summed = None if weights is None else _sums(place, weights)
        tail, head = arcs // nodes, arcs % nodes
        back = np.searchsorted(arcs, head * nodes + tail).clip(max=len(arcs) - 1)
        both = arcs[back] == head * nodes + tail
        symmetric = bool(both.all()) and (summed is None or np.allclose(summed, summed[back], rtol=1e-9, atol=0))
        self._tell(len(links) - len(arcs), len(arcs), int(both.sum()) // 2, symmetric)
        if symmetric:
            upper = tail < head
            return np.stack([tail, head], axis=1)[upper], None if summed is None else summed[upper]
        keys, place = np.unique(np.minimum(tail, head) * nodes + np.maximum(tail, head), return_inverse=True)
        edges = np.stack([keys // nodes, keys % nodes], axis=1)
        return edges, None if summed is None else _sums(place, summed)

    def _tell(self, repeated: int, arcs: int, pairs: int, symmetric: bool) -> None:
        summed = ", weights summed" if self.weights is not None else ""
        if repeated:
            self.remarks.note(f"merged: {count(repeated, 'repeated edge')}{summed}.")
        if self.directed:
            ways = f"; {count(pairs, 'pair')} ran both ways{'' if symmetric else summed}" if pairs else ""
            self.remarks.note(
                f"directions were left out: {count(arcs, 'arc')} became {count(arcs - pairs, 'edge')}{ways}."
            )
        elif symmetric:
            self.remarks.note("every edge was given in both directions; each is kept once.")
        elif pairs:
            self.remarks.note(f"given in both directions and merged: {count(pairs, 'edge')}{summed}.")

    def _judge(self, graph: Graph) -> None:
        alone = np.ones(graph.n_nodes, dtype=bool)
        alone[graph.edges] = False
        if alone.any():
            self.remarks.note(f"kept without an edge: {count(int(alone.sum()), 'node')}: {quoted(graph.names[alone])}.")
        sizes = np.bincount(graph.components)
        if len(sizes) > 1:
            self.remarks.note(
                f"the graph has {len(sizes):,} components, the largest of {count(int(sizes.max()), 'node')}."
            )


def _sums(place: NDArray[np.intp], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.bincount(place, weights).astype(np.float64)
