"""A trained model of a graph with what is needed to use it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ...data import EdgeSplit, Graph
from ...data.scaling import Scaling
from ...models import GraphVAE
from ..config import GraphConfig
from ..fitted import FittedModel, Record, RunFiles, Stored, restored_model
from .build import build_graph_model
from .engine import Observed
from .features import feature_arrays, restored_features

__all__ = ["FittedGraph", "graph_facts", "tolerance"]


def tolerance(split: EdgeSplit | None) -> float:
    """What a single validation edge can change in their AUC: a difference below that does not tell which of two steps
    is better, and the later one has learned more."""
    return 0.0 if split is None else 1.0 / max(1, len(split.validation))


_SPLIT = ("train", "validation", "test", "validation_absent", "test_absent")


@dataclass
class FittedGraph(FittedModel):
    """A trained model of a graph with what is needed to use it.

    Arguments:
        config, model: what was trained.
        scaling: of the features, where there are any.
        split: which edges it was trained on; all of them without one.
        history: a record of every epoch.
        failure: why the training ended early; the weights are those of the last good epoch.
    """

    kind = "graph"
    units = False
    settings = GraphConfig

    config: GraphConfig
    model: GraphVAE
    scaling: Scaling | None
    split: EdgeSplit | None
    history: list[Record]
    failure: str | None = None

    @property
    def tolerance(self) -> float:
        return tolerance(self.split)

    def seen(self, graph: Graph) -> Observed:
        """What the model was trained on."""
        kept = None if self.split is None else self.split.train
        return Observed.of(graph, kept, self.scaling, self.model.device, self.model.dtype)

    def stored(self, data: Graph) -> Stored:
        """The graph too: edges, (2, E), and as JSON in bytes the names and labels of the nodes."""
        arrays: dict[str, NDArray[Any]] = {"edges": np.ascontiguousarray(data.edges.T), "names": _packed(data.names)}
        if data.weights is not None:
            arrays["weights"] = data.weights
        if data.labels is not None:
            arrays["labels"] = _packed(data.labels)
        if data.features is not None and self.scaling is not None:
            arrays |= {**feature_arrays(data.features), **self.scaling.to_arrays()}
        split = {}
        if self.split is not None:
            split = {f"split.{name}": np.ascontiguousarray(getattr(self.split, name).T) for name in _SPLIT}
        return Stored(arrays, split, {"data": graph_facts(data)})

    @classmethod
    def restore(cls, files: RunFiles) -> tuple[FittedGraph, Graph]:
        description, tensors, places, history = files
        config, graph = GraphConfig.from_json(description["config"]), _graph(description["data"], tensors)
        nodes, features = graph.n_nodes, None if graph.features is None else graph.features.shape[1]
        hidden = config.layers if config.encoder == "convolutions" else config.layers[-1:]
        sizes = nodes if features is None else features, *hidden, config.dim
        model = restored_model(tensors, sizes, lambda: build_graph_model(config, nodes, features))
        scaling = None if features is None else Scaling.from_tensors(tensors)
        split = None
        if "split.train" in places:
            split = EdgeSplit(*(_columns(places[f"split.{name}"]) for name in _SPLIT))
        factors = len(config.factors)
        sigma = (nodes,) if factors == 1 else (nodes, factors)
        if places["space"].shape != (nodes, config.dim) or places["sigma"].shape != sigma:
            raise ValueError("its embedding has another number of nodes or dimensions")
        return cls(config, model, scaling, split, history), graph


def graph_facts(graph: Graph) -> dict[str, Any]:
    """What `config.json` says of a graph."""
    return {
        "fingerprint": graph.fingerprint,
        "nodes": graph.n_nodes,
        "edges": graph.n_edges,
        "components": int(graph.components.max()) + 1,
        "weighted": graph.weights is not None,
        "directed": graph.directed,
        "features": list(graph.feature_names),
        "label": graph.label_name,
        "notes": list(graph.notes),
        "warnings": list(graph.warnings),
    }


def _graph(facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Graph:
    names = _unpacked(tensors["names"])
    graph = Graph(
        names=names,
        edges=_columns(tensors["edges"]),
        weights=tensors["weights"].numpy() if "weights" in tensors else None,
        features=restored_features(tensors, len(names), len(facts["features"])),
        feature_names=tuple(facts["features"]),
        labels=_unpacked(tensors["labels"]) if "labels" in tensors else None,
        label_name=facts["label"],
        notes=tuple(facts["notes"]),
        warnings=tuple(facts["warnings"]),
        directed=facts["directed"],
    )
    if graph.fingerprint != facts["fingerprint"]:
        raise ValueError("its graph is not the one that was trained on")
    return graph


def _packed(texts: NDArray[np.str_]) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(texts.tolist()).encode(), np.uint8).copy()


def _unpacked(texts: Tensor) -> NDArray[np.str_]:
    return np.array(json.loads(texts.numpy().tobytes()), dtype=np.str_)


def _columns(edges: Tensor) -> NDArray[np.int64]:
    return np.ascontiguousarray(edges.numpy().T)
