"""A trained model of a graph on disk, with the graph; see `curvae.training.storage`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...data import EdgeSplit, Graph
from ..evaluate import Embedding
from ..files import read_records
from ..fitted import METRICS
from ..storage import (
    read_model,
    require_figures,
    restore,
    restore_embedding,
    restore_scaling,
    scaling_arrays,
    whole_run,
    write_model,
)
from .config import GraphConfig
from .fitting import FittedGraph, build_graph_model

__all__ = ["load_fitted_graph", "save_fitted_graph"]

_SPLIT = ("train", "validation", "test", "validation_absent", "test_absent")


def save_fitted_graph(
    folder: Path, fitted: FittedGraph, graph: Graph, embedding: Embedding, description: Mapping[str, Any]
) -> None:
    """Write a model, its graph and the embedding of the nodes.

    `model.safetensors` holds the edges as `edges`, (2, E), and names and labels of the nodes as JSON in bytes;
    `description` is what else `config.json` shall hold. What it says of the graph under `data` is completed here.
    """
    arrays: dict[str, NDArray[Any]] = {"edges": np.ascontiguousarray(graph.edges.T), "names": _packed(graph.names)}
    if graph.weights is not None:
        arrays["weights"] = graph.weights
    if graph.labels is not None:
        arrays["labels"] = _packed(graph.labels)
    if graph.features is not None and fitted.scaling is not None:
        arrays |= {"features": graph.features, **scaling_arrays(fitted.scaling)}
    split: dict[str, NDArray[Any]] = {}
    if fitted.split is not None:
        split = {f"split.{name}": np.ascontiguousarray(getattr(fitted.split, name).T) for name in _SPLIT}
    data = {**description.get("data", {}), **graph_facts(graph)}
    write_model(folder, fitted, embedding, arrays, split, "graph", {**description, "data": data})


def graph_facts(graph: Graph) -> dict[str, Any]:
    """What `config.json` says of a graph."""
    return {
        "fingerprint": graph.fingerprint,
        "nodes": graph.n_nodes,
        "edges": graph.n_edges,
        "components": int(graph.components.max()) + 1,
        "weighted": graph.weights is not None,
        "features": list(graph.feature_names),
        "label": graph.label_name,
        "notes": list(graph.notes),
        "warnings": list(graph.warnings),
    }


def load_fitted_graph(
    folder: Path, device: torch.device | str = "cpu"
) -> tuple[FittedGraph, Graph, Embedding, dict[str, Any]]:
    """A model written by `save_fitted_graph`, its graph, the embedding of the nodes, and the whole of `config.json`."""
    description, tensors, places = read_model(folder, "graph")
    with whole_run(folder):
        config, data = GraphConfig.from_json(description["config"]), description["data"]
        graph = Graph(
            names=_unpacked(tensors["names"]),
            edges=_columns(tensors["edges"]),
            weights=tensors["weights"].numpy() if "weights" in tensors else None,
            features=tensors["features"].numpy() if "features" in tensors else None,
            feature_names=tuple(data["features"]),
            labels=_unpacked(tensors["labels"]) if "labels" in tensors else None,
            label_name=data["label"],
            notes=tuple(data["notes"]),
            warnings=tuple(data["warnings"]),
        )
        if graph.fingerprint != data["fingerprint"]:
            raise ValueError("its graph is not the one that was trained on")
        features = None if graph.features is None else graph.features.shape[1]
        inputs = graph.n_nodes if features is None else features
        model = restore(tensors, inputs, config, lambda: build_graph_model(config, graph.n_nodes, features))
        scaling = None if features is None else restore_scaling(tensors)
        split = None
        if "split.train" in places:
            split = EdgeSplit(*(_columns(places[f"split.{name}"]) for name in _SPLIT))
        fitted = FittedGraph(config, model, scaling, split, read_records(folder / METRICS))
        require_figures(fitted.last)
        embedding = restore_embedding(places, fitted.double().model.space, units=False)
        if embedding.space.shape != (graph.n_nodes, config.dim) or embedding.sigma.shape != (graph.n_nodes,):
            raise ValueError("its embedding has another number of nodes or dimensions")
    fitted.model.to(device)
    return fitted, graph, embedding, description


def _packed(texts: NDArray[np.str_]) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(texts.tolist()).encode(), np.uint8).copy()


def _unpacked(texts: Tensor) -> NDArray[np.str_]:
    return np.array(json.loads(texts.numpy().tobytes()), dtype=np.str_)


def _columns(edges: Tensor) -> NDArray[np.int64]:
    return np.ascontiguousarray(edges.numpy().T)
