"""What `curvae embed`, `sample` and `evaluate` do with a run on a graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ..data import Graph, memory
from ..data.graphs.splits import absent_pairs
from ..data.messages import count, quoted
from ..errors import CurvaeError
from ..training.graphs.evaluate import embed_graph, neighbourhood
from ..training.graphs.storage import load_fitted_graph
from ..training.links import link_scores
from .folder import GraphSource, Voice, embedding_table, missing_as_run

__all__ = ["drawn", "embedded", "judged"]

_LARGEST = 4000  # nodes of a graph that is drawn from the model: all pairs are asked


def embedded(
    run: Path, path: str, nodes: str | None, missing: Any, device: torch.device | str, voice: Voice
) -> pd.DataFrame:
    """The nodes of a graph with other edges, placed by the model of a run.

    A model with features places any nodes that have them. One without knows its nodes by their places in the graph, so
    the nodes must be the same.
    """
    fitted, own, _, description = load_fitted_graph(run, device)
    graph = GraphSource(
        path,
        nodes,
        features=own.feature_names,
        weighted=own.weights is not None,
        isolated=nodes is not None,
        missing=missing_as_run(missing, description),
    ).load()
    for text in graph.notes:
        voice.say(text)
    for text in graph.warnings:
        voice.warn(text)
    if own.features is None:
        graph = _same_nodes(run, path, own, graph)
    labels = None
    if own.labels is not None:
        places = _places(own, graph)
        labels = np.where(places < 0, "", own.labels[places])
    return embedding_table(embed_graph(fitted, graph), graph.names, labels, "new", "node")


def _places(own: Graph, graph: Graph) -> NDArray[np.intp]:
    """Where the nodes of a graph are among those of the run, −1 where they are not."""
    return pd.Index(own.names).get_indexer(pd.Index(graph.names))


def _same_nodes(run: Path, path: str, own: Graph, graph: Graph) -> Graph:
    """The graph with its nodes in the order of the run's."""
    places = _places(own, graph)
    lacking, unknown = np.setdiff1d(own.names, graph.names), graph.names[places < 0]
    if len(lacking) or len(unknown):
        sides = [
            f"{name} {count(len(side), 'node')} ({quoted(side)})"
            for name, side in (("lacks", lacking), ("adds", unknown))
            if len(side)
        ]
        raise CurvaeError(
            f"the model of {run} has no features and knows its own {own.n_nodes:,} nodes only; {Path(path).name} "
            f"{' and '.join(sides)}: name the same nodes (those without edges with nodes=…), or train with features=…"
        )
    edges, order = _moved(graph, places)
    return Graph(own.names, edges, None if graph.weights is None else graph.weights[order])


def _moved(graph: Graph, places: NDArray[np.intp]) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """Edges between nodes that have a place, in terms of these, and which edges they are."""
    ends = np.sort(places[graph.edges].astype(np.int64), axis=1)
    known = np.flatnonzero(ends[:, 0] >= 0)
    order = known[np.lexsort((ends[known, 1], ends[known, 0]))]
    return ends[order], order


def drawn(run: Path, number: int, seed: int, device: torch.device | str) -> pd.DataFrame:
    """Edges of new graphs from the model of a run, nodes counted from 1."""
    fitted, own, _, _ = load_fitted_graph(run, device)
    if own.n_nodes > _LARGEST:
        raise CurvaeError(
            f"the graph of {run} has {own.n_nodes:,} nodes, and graphs are drawn pair by pair, up to {_LARGEST:,}; "
            "train on a smaller graph to draw from it"
        )
    memory.require(100.0 * number * own.n_edges, f"a table of {number:,} graphs", fix="draw fewer with -n")
    model, generator = fitted.model, torch.Generator(fitted.model.device).manual_seed(seed)
    tables = []
    for i in range(number):
        a, b = (model.sample(own.n_nodes, generator) + 1).cpu().numpy()
        tables.append(pd.DataFrame({"sample": i + 1, "a": a, "b": b}))
    return pd.concat(tables, ignore_index=True)


def judged(run: Path, path: str, seed: int, voice: Voice) -> dict[str, Any]:
    """How well the edges of a file between nodes of a run are told from random pairs that are edges neither in the file
    nor in the run's graph; those that the run was trained on apart from new ones."""
    _, own, embedding, _ = load_fitted_graph(run)
    graph = GraphSource(path).load()
    for text in graph.notes:
        voice.say(text)
    for text in graph.warnings:
        voice.warn(text)
    places = _places(own, graph)
    edges, _ = _moved(graph, places)
    unknown = graph.names[places < 0]
    if not len(edges):
        raise CurvaeError(
            f"no edge of {Path(path).name} joins two nodes of {run}; it names {quoted(graph.names[:2])}, the run "
            f"{quoted(own.names[:2])}: call nodes alike"
        )
    if len(unknown):
        left = graph.n_edges - len(edges)
        voice.warn(
            f"{count(len(unknown), 'node')} not in the run ({quoted(unknown)}); {count(left, 'edge')} of "
            f"{graph.n_edges:,} left out."
        )
    every = np.unique(np.concatenate([own.edges, edges]), axis=0)
    known = np.isin(_keys(edges, own), _keys(own.edges, own))
    parts = {}
    for name, part in (("train", edges[known]), ("new", edges[~known])):
        if len(part):
            random = np.random.default_rng(seed)
            absent = absent_pairs(Graph(own.names, every), len(part), random, fix="give fewer edges")
            auc, ap = link_scores(*(-embedding.distances_of(pairs) for pairs in (part, absent)))
            parts[name] = {"edges": len(part), "auc": auc, "ap": ap}
    near = neighbourhood(embedding, Graph(own.names, edges), seed=seed)
    return {
        "run": run.resolve().name,
        "data": Path(path).name,
        "seed": seed,
        "parts": parts,
        "unknown_nodes": len(unknown),
        "neighbourhood_map": near.map,
        "neighbourhood_nodes": near.asked,
    }


def _keys(edges: NDArray[np.int64], graph: Graph) -> NDArray[np.int64]:
    return edges[:, 0] * graph.n_nodes + edges[:, 1]
