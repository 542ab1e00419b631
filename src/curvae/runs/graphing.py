"""`curvae graph`: train on a graph, draw its map, hide edges and find them again, report."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..data import EdgeSplit, Graph, split_edges
from ..data.graphs.centrality import closeness, steps_from
from ..errors import CurvaeError
from ..training.config import require_count
from ..training.evaluate import Embedding, map_health
from ..training.files import write_bytes, write_json
from ..training.graphs import FittedGraph, GraphConfig, fit_graph, fit_graphs
from ..training.graphs.evaluate import Neighbourhood, embed_graph, link_figures, neighbourhood
from ..training.graphs.fitting import require_buildable_graph
from ..training.graphs.storage import graph_facts, save_fitted_graph
from ..training.storage import CONFIG, description_of
from ..training.workers import processes
from . import graph_pages as pages
from .folder import (
    GraphSource,
    Voice,
    command_line,
    embedding_table,
    new_folder,
    without_folder,
    write_report,
    write_table,
)
from .resuming import given, resume_run
from .timing import Forecast
from .training import comparable, figures

__all__ = ["SPLITS", "GraphRequest", "GraphResult", "centre_of", "graph_run"]

SPLITS = 5  # by default
_FAITHFUL = 0.3  # mean average precision of neighbourhoods below which a map is warned of


@dataclass(frozen=True)
class GraphRequest:
    """What `curvae graph` was asked to do."""

    source: GraphSource
    settings: Mapping[str, Any] = field(default_factory=dict)
    """of `GraphConfig`, those that were given"""
    output: Path | None = None
    splits: int | None = None
    """how often to hide edges, 5 by default"""
    resume: bool = False
    force: bool = False
    device: torch.device | str = "cpu"
    jobs: int | None = None


@dataclass(frozen=True)
class GraphResult:
    """What came of it."""

    folder: Path
    source: GraphSource
    fitted: FittedGraph
    graph: Graph
    embedding: Embedding
    summary: dict[str, Any]
    following: str
    """the next command to type, and why"""


def graph_run(request: GraphRequest, voice: Voice = Voice()) -> GraphResult:  # noqa: B008 - frozen
    """Train a model of a graph and write its run folder."""
    with ExitStack() as held:
        return _graph_run(request, voice, held)


def _graph_run(request: GraphRequest, voice: Voice, held: ExitStack) -> GraphResult:
    source, settings, count = request.source, dict(request.settings), request.splits
    if count is not None and count != 0:
        require_count("splits", count)
    known = None
    if request.resume:
        known = held.enter_context(
            resume_run("graph EDGES", "graph", request.output, source, GraphConfig, settings, splits=count)
        )
        source, settings, count = known.source, given(known.config), known.more["splits"]
        if (table := known.description["source"]["nodes"]) is not None and source.nodes is None:
            raise CurvaeError(f'{known.folder} was started with a table of nodes; give it again with nodes="{table}"')
    count = SPLITS if count is None else count
    config = GraphConfig(**settings)
    graph = source.load()
    features = None if graph.features is None else len(graph.feature_names)
    require_buildable_graph(config, graph.n_nodes, features)  # before anything is written
    if known is None:
        folder = held.enter_context(new_folder(request.output, source.name, request.force))
        description = _describe(source, config, count, graph)
        write_json(folder / CONFIG, description)
    else:
        known.require_same(graph.fingerprint)
        folder, description = known.folder, known.description
    for text in graph.notes:
        voice.say(text)
    for text in graph.warnings:
        voice.warn(text)
    splits, left_out = _hide(graph, config.seed, count)
    for text in left_out:
        voice.warn(text)
    voice.say(_size(graph) + (f"; {len(splits)} splits of 85, 5 and 10 % of the edges" if splits else ""))
    jobs = min(request.jobs or processes(request.device), max(1, len(splits)))
    voice.say(f"run folder {folder}")
    forecast = Forecast(voice, "training")
    later = config.epochs * -(-len(splits) // jobs)  # epochs of the models that predict hidden edges

    began = time.perf_counter()
    where: dict[str, Any] = {"device": request.device, "resume": request.resume}
    fitted = fit_graph(
        config,
        graph,
        folder=folder,
        **where,
        progress=figures(voice),
        estimate=lambda made: forecast(made.left + later * made.epoch),
    )
    found: list[FittedGraph] = []
    if splits:
        found = fit_graphs(
            [replace(config, seed=config.seed + i) for i in range(len(splits))],
            graph,
            splits=splits,
            folder=folder / "splits",
            **where,
            jobs=jobs,
            progress=lambda done, total: voice.progress("link prediction", done, total, f"{len(splits)} models"),
            warn=voice.warn,
            estimate=lambda made: forecast(made.left),
        )
    return _finish(folder, source, fitted, found, graph, description, left_out, voice, time.perf_counter() - began)


def _describe(source: GraphSource, config: GraphConfig, splits: int, graph: Graph) -> dict[str, Any]:
    return {
        **description_of(config, "graph"),
        "command": command_line(),
        "source": source.to_json(),
        "splits": splits,
        "data": graph_facts(graph),
    }


def _size(graph: Graph) -> str:
    features = f", {len(graph.feature_names)} features" if graph.feature_names else ""
    return f"{graph.n_nodes:,} nodes, {graph.n_edges:,} edges{features}"


def _hide(graph: Graph, seed: int, count: int) -> tuple[list[EdgeSplit], list[str]]:
    """Splits of the edges, or why there are none."""
    try:
        return [split_edges(graph, seed=seed + i) for i in range(count)], []
    except CurvaeError as error:
        return [], [f"no edges are hidden to be predicted: {error}"]


def _link_summary(found: Sequence[FittedGraph], graph: Graph) -> list[dict[str, Any]]:
    """Figures of every split whose training ended well."""
    rows = []
    for one in found:
        if one.failure is None and one.split is not None:
            parts = {name: vars(links) for name, links in link_figures(one, graph).items()}
            rows.append({"seed": one.config.seed, **parts, **pages.severed(graph, one.split)})
    return rows


def _finish(
    folder: Path,
    source: GraphSource,
    fitted: FittedGraph,
    found: Sequence[FittedGraph],
    graph: Graph,
    description: dict[str, Any],
    left_out: Sequence[str],
    voice: Voice,
    seconds: float,
) -> GraphResult:
    config, last, embedding = fitted.config, fitted.last, embed_graph(fitted, graph)
    links = pages.LinkFigures(_link_summary(found, graph))
    near: Neighbourhood = neighbourhood(embedding, graph, seed=config.seed)
    centre = centre_of(graph, embedding, config.seed)
    unhealthy = map_health(embedding, last["kl"], last["prior_scale"])
    if near.map < _FAITHFUL:
        unhealthy.append(
            f"the map shows few of the edges (mean average precision of neighbourhoods {near.map:.2f}); try a larger "
            "dimension, more epochs or a larger weight"
        )
    warnings = [*graph.warnings, *left_out, *unhealthy]
    summary = {
        **links.to_json(),
        "neighbourhood_map": near.map,
        "neighbourhood_nodes": near.asked,
        "centre": str(graph.names[centre.nearest[0]]),
        "centre_radius": float(embedding.radius[centre.nearest[0]]),
        "graph_centre": str(graph.names[centre.closest]),
        "reconstruction": last["reconstruction"],
        "kl": last["kl"],
        "c": last["c"],
        "prior_scale": last["prior_scale"],
        "seconds": round(seconds, 2),
        "warnings": warnings,
    }
    write_table(folder / "embedding.csv", embedding_table(embedding, graph.names, graph.labels, "train", "node"))
    name = description["source"]["name"]
    again = replace(source, path=name, nodes=description["source"]["nodes"])
    compare = _compare(again, config)
    sections = [
        pages.map_section(graph, embedding, centre, shlex.join(["curvae", "view", without_folder(str(folder))])),
        pages.links_section(graph, links, near, compare),
        pages.training_section(fitted, embedding),
        pages.data_section(graph),
    ]
    for file, section in (("map", sections[0]), ("curves", sections[2])):
        write_bytes(folder / f"{file}.png", section.pictures[0].png)
    verdict = pages.verdict(graph, embedding, links, near)
    write_report(folder, f"Map of the graph {name}", verdict, warnings, sections, description)
    extra = {key: description[key] for key in ("command", "source", "splits")}
    save_fitted_graph(folder, fitted, graph, embedding, {**extra, "summary": summary})
    voice.say(verdict)
    voice.say(centre.sentence(graph))
    for text in unhealthy:
        voice.warn(text)
    if left_out:
        following = shlex.join(["curvae", "view", str(folder)]) + "    the map as a page to move about in"
    elif config.curvature:
        following = f"{_compare(source, config)}    is curvature worth it for this graph?"
    else:
        following = (
            shlex.join(["curvae", "evaluate", str(folder), source.path]) + "    which of the edges does it find?"
        )
    return GraphResult(folder, source, fitted, graph, embedding, summary, following)


def _compare(source: GraphSource, config: GraphConfig) -> str:
    return source.command("compare", settings={"graph": True, **comparable(given(config))})


def centre_of(graph: Graph, embedding: Embedding, seed: int) -> pages.Centre:
    """The middle of the map and of the graph."""
    closest = int(np.argmax(closeness(graph, seed)))
    return pages.Centre(np.argsort(embedding.radius, kind="stable")[:6], closest, steps_from(graph, closest))
