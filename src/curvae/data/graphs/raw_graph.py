"""From the links that a reader found to a graph: the steps that all kinds of sources share."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...errors import CurvaeError
from ..messages import Messages, count, quoted
from ..text import NUMBER
from .graph_data import Graph

__all__ = ["RawGraph"]


@dataclass
class RawGraph:
    """A graph as a reader found it: links may have a direction, repeat, or lead from a node to itself.

    Arguments:
        source: name of the graph in messages.
        names: name of each node, (nodes,).
        links: positions of the two nodes of each link, (links, 2).
        weights: weight of each link, (links,), or None.
        directed: whether the source says that its links have a direction; None if it does not say.
        attributes: what the source says about its nodes, one row per node.
        features, feature_names, labels, label_name: as in `Graph`.
        messages: notes and warnings so far.
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
    messages: Messages = field(default_factory=Messages)

    def set_weights(self, weights: Any, wanted: bool, where: Callable[[int], str] | None = None) -> None:
        """Set the weights of the links, or note that they are left out; raise unless all are positive and finite.

        Arguments:
            weights: numbers or texts, (links,), or None for a graph without weights.
            wanted: whether to set them.
            where: says where the link with a given number is found; by default the two nodes are named.
        """
        if weights is None:
            return
        if not wanted:
            self.messages.note("weights were left out; use weighted=True to read them.")
            return
        values = np.asarray(weights)
        numeric = values.dtype.kind in "biuf"
        numbers = values.astype(np.float64) if numeric else np.array([_number(value) for value in values.tolist()])
        if (wrong := ~(np.isfinite(numbers) & (numbers > 0))).any():
            link = int(np.argmax(wrong))
            place = f"the edge of {quoted(self.names[self.links[link]])}" if where is None else where(link)
            weight, number = values.tolist()[link], numbers[link]
            said = "no weight" if weight is None else f"weight {weight!r}" if np.isnan(number) else f"weight {number:g}"
            raise CurvaeError(f"{self.source}: {place} has {said}; give positive numbers, or leave out weighted=True")
        self.weights = numbers

    def finish(self) -> Graph:
        """Make the graph, with notes about what was done to it."""
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
        return replace(graph, notes=tuple(self.messages.notes), warnings=tuple(self.messages.warnings))

    def _without_loops(self) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
        keep = self.links[:, 0] != self.links[:, 1]
        if loops := int((~keep).sum()):
            self.messages.note(f"left out: {count(loops, 'self loop')}.")
        return self.links[keep], None if self.weights is None else self.weights[keep]

    def _merge(
        self, links: NDArray[np.int64], weights: NDArray[np.float64] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
        """Keep each edge once.

        Weights of repeated links are summed. The two directions of an edge are summed too, unless the weights agree for
        all edges: then the source is a symmetric matrix or a list that gives every edge twice.
        """
        nodes = len(self.names)
        if self.directed is False:
            links = np.sort(links, axis=1)
        arcs, place = np.unique(links[:, 0] * nodes + links[:, 1], return_inverse=True)
        summed = None if weights is None else _sums(place, weights)
        tail, head = np.divmod(arcs, nodes)
        back = np.searchsorted(arcs, head * nodes + tail).clip(max=len(arcs) - 1)
        both = arcs[back] == head * nodes + tail
        symmetric = bool(both.all()) and (summed is None or np.allclose(summed, summed[back], rtol=1e-9, atol=0))
        self._tell(len(links) - len(arcs), len(arcs), int(both.sum()) // 2, symmetric)
        if symmetric:
            upper = tail < head
            return np.stack([tail, head], axis=1)[upper], None if summed is None else summed[upper]
        keys, place = np.unique(np.minimum(tail, head) * nodes + np.maximum(tail, head), return_inverse=True)
        return np.stack(np.divmod(keys, nodes), axis=1), None if summed is None else _sums(place, summed)

    def _tell(self, repeated: int, arcs: int, pairs: int, symmetric: bool) -> None:
        summed = ", weights summed" if self.weights is not None else ""
        if repeated:
            self.messages.note(f"merged: {count(repeated, 'repeated edge')}{summed}.")
        if self.directed:
            ways = f"; {count(pairs, 'pair')} ran both ways{'' if symmetric else summed}" if pairs else ""
            self.messages.note(
                f"directions were left out: {count(arcs, 'arc')} became {count(arcs - pairs, 'edge')}{ways}."
            )
        elif symmetric:
            self.messages.note("every edge was given in both directions; each is kept once.")
        elif pairs:
            self.messages.note(f"given in both directions and merged: {count(pairs, 'edge')}{summed}.")

    def _judge(self, graph: Graph) -> None:
        alone = np.ones(graph.n_nodes, dtype=bool)
        alone[graph.edges] = False
        if alone.any():
            self.messages.note(
                f"kept without an edge: {count(int(alone.sum()), 'node')}: {quoted(graph.names[alone])}."
            )
        if len(sizes := np.bincount(graph.components)) > 1:
            self.messages.note(
                f"the graph has {len(sizes):,} components, the largest of {count(int(sizes.max()), 'node')}."
            )


def _sums(place: NDArray[np.intp], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.bincount(place, weights).astype(np.float64)


def _number(value: Any) -> float:
    """Convert a value to a number, or to NaN if it is none."""
    try:
        return float(value) if not isinstance(value, str) or re.fullmatch(NUMBER, value.strip()) else np.nan
    except (TypeError, ValueError):
        return np.nan
