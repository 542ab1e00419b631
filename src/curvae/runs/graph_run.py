"""Runs on graphs: what `curvae graph`, `compare --graph` and `diagnose --graph` do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..data import EdgeSplit, Graph, split_edges
from ..data.files import count as counted
from ..data.graph_data import closeness, steps_from, steps_to_some
from ..errors import CurvaeError
from ..geometry.frames import Frame
from ..hierarchy import Diagnosis, Metric, diagnose_graph, graph_faithfulness
from ..maps.embedding import seen_radius
from ..maps.faithfulness import label_accuracy
from ..report import Section
from ..settings import require_count
from ..training import Embedding
from ..training.comparison import curved_values
from ..training.evaluate import embed_graph, judge_split, map_health, missing_links, neighbourhood
from ..training.graph_problem import (
    FittedGraph,
    GraphComparison,
    compare_graph,
    fit_graph,
    fit_graphs,
    graph_facts,
    require_buildable_graph,
)
from . import pages
from .folders import embedding_table, write_map
from .run import (
    CurvaturePlan,
    GraphSource,
    Reporter,
    Request,
    Result,
    RunContext,
    Step,
    TrainingPlan,
    comparable,
    curvature_chosen,
    figures_of_factors,
    given,
    orientation_of,
    require_root,
)

__all__ = [
    "GraphComparisonPlan",
    "GraphTrainingPlan",
    "diagnose_edges",
    "plan_graph_comparison",
    "plan_graph_training",
]

_SPLITS = 5  # by default
_FAITHFUL = 0.3  # mean average precision of neighbourhoods below which a map is warned of


def plan_graph_training(request: Request, count: int | None, processes: int, root: str | None) -> GraphTrainingPlan:
    """Split the edges for a training; raise for what cannot be trained.

    Arguments:
        request: data and settings.
        count: of splits; 5 by default, and none of a tree or forest.
        processes: that share a training, which is one.
        root: name of the node at the centre of the map, if it was given.
    """
    graph, config, remarks = request.data, request.config, []
    if count:
        require_count("splits", count)
    features = None if graph.features is None else len(graph.feature_names)
    if count is None and graph.is_forest and features is None:  # features may tell which nodes an edge joined
        config, count = replace(config, encoder="free"), 0
    count = _SPLITS if count is None else count
    require_buildable_graph(config, graph.n_nodes, features)
    root = require_root(request, root, graph.names, "node")
    splits: list[EdgeSplit] = []
    try:
        splits = [split_edges(graph, seed=config.seed + i) for i in range(count)]
    except CurvaeError as error:
        remarks.append(f"no edges are hidden to be predicted: {error}")
    text = f"{graph.n_nodes:,} nodes, {graph.n_edges:,} edges"
    text += f", {counted(features, 'feature')}" if features else ""
    if splits:
        text += f"; {len(splits)} splits of 85, 5 and 10 % of the edges"
    elif graph.is_forest and config.encoder == "free":
        text += f". {pages.drawn_sentence(graph)} Use splits=5 to hide edges all the same."
    facts = {"splits": count, "data": graph_facts(graph), "root": root}
    asked = vars(request) | {"config": config}
    return GraphTrainingPlan(**asked, root=root, facts=facts, text=text, remarks=remarks, splits=splits)


@dataclass(frozen=True)
class MappedGraph:
    """The map of a graph, from the model of all edges: where nodes lie, how they are seen, as a table and pictures."""

    embedding: Embedding
    frames: tuple[Frame, ...]
    centre: pages.Centre
    table: pd.DataFrame
    section: Section


@dataclass(frozen=True, kw_only=True)
class GraphTrainingPlan(TrainingPlan):
    """A training on a graph, judged by how well edges that were hidden in `splits` are found again."""

    splits: Sequence[EdgeSplit]

    def train(
        self, run: RunContext, reporter: Reporter, progress: Callable[[dict[str, Any], int], None]
    ) -> tuple[FittedGraph, MappedGraph, list[FittedGraph]]:
        """Train a model of all edges, whose map is written at once, and for each split one that predicts hidden edges.

        Returns the model, its map, and the models that predict.
        """
        config, graph, splits = self.config, self.data, self.splits
        where: dict[str, Any] = {"device": run.device, "resume": run.resume}
        fitted = fit_graph(config, graph, folder=run.folder, **where, progress=progress)
        drawn = self._map(fitted, reporter.command(run.view_step))
        if not splits:
            return fitted, drawn, []
        write_map(run.folder, [drawn.table], graph.n_nodes, drawn.section.named_pictures)
        reporter.say(f"the map is in {run.folder}; models that predict hidden edges follow")
        predicting = fit_graphs(
            [replace(config, seed=config.seed + i) for i in range(len(splits))],
            graph,
            splits=splits,
            folder=run.folder / "splits",
            **where,
            jobs=min(run.jobs, len(splits)),
            progress=lambda done, total: reporter.progress("link prediction", done, total, f"{len(splits)} models"),
            warn=reporter.warn,
        )
        return fitted, drawn, predicting

    def _map(self, fitted: FittedGraph, view_command: str) -> MappedGraph:
        """Draw the map as it is seen."""
        graph, embedding = self.data, embed_graph(fitted, self.data)
        orientation = orientation_of(steps_to_some(graph), graph.names, self.root, "node")
        frames = orientation.frames(embedding)
        centre = _centre(graph, embedding, frames, self.config.seed)
        table = embedding_table(embedding, graph.names, graph.labels, "train", "node", frames)
        section = pages.graph_map_section(graph, embedding, frames, centre, orientation.sentence, view_command)
        return MappedGraph(embedding, frames, centre, table, section)

    def judge(
        self,
        trained: tuple[FittedGraph, MappedGraph, list[FittedGraph]],
        run: RunContext,
        seconds: float,
        reporter: Reporter,
    ) -> Result:
        graph, config, source, (fitted, drawn, predicting) = self.data, self.config, self.source, trained
        embedding, frames, centre, last = drawn.embedding, drawn.frames, drawn.centre, fitted.last
        good = [(one, one.split) for one in predicting if one.failure is None and one.split is not None]
        links = pages.LinkFigures(
            [
                {"seed": one.config.seed, **judge_split(one, graph, split), **pages.disconnected(graph, split)}
                for one, split in good
            ]
        )
        near = neighbourhood(embedding, graph, seed=config.seed)
        faithful = graph_faithfulness(graph, embedding, seed=config.seed)
        accuracy = None if graph.labels is None else label_accuracy(embedding, graph.labels, seed=config.seed)
        warnings = map_health(embedding, last["kl"], [one.prior_scale for one in fitted.figures])
        if near.map < _FAITHFUL:
            remedy = "a larger dimension or more epochs"
            if config.pairs == "all":
                remedy = "a larger dimension, more epochs or a larger weight"
            elif config.encoder != "free":
                remedy = 'a larger dimension, more epochs or a vector for each node, encoder="free"'
            warnings.append(
                f"the map shows few of the edges (mean average precision of neighbourhoods {near.map:.2f}); "
                f"try {remedy}"
            )
        warnings += [] if faithful is None else faithful.warnings
        factors = figures_of_factors(fitted)
        summary = {
            **links.to_json(),
            "neighbourhood_map": near.map,
            "neighbourhood_rank": near.rank,
            "neighbourhood_nodes": near.asked,
            "faithfulness": None if faithful is None else faithful.to_json(),
            "label_accuracy": accuracy,
            "centre": str(graph.names[centre.nearest[0]]),
            "centre_radius": float(seen_radius(embedding, frames)[centre.nearest[0]]),
            "graph_centre": str(graph.names[centre.closest]),
            "reconstruction": last["reconstruction"],
            "kl": last["kl"],
            "c": factors["c"],
            "prior_scale": factors["prior_scale"],
            "seconds": round(seconds, 2),
        }
        files = {}
        if run.links is not None:
            advance = reporter.counter("missing edges", graph.n_nodes)
            pairs, probability = missing_links(fitted, graph, run.links, embedding=embedding, progress=advance)
            first, second = graph.names[pairs].T
            files[pages.LINKS] = pd.DataFrame({"source": first, "target": second, "probability": probability})
        # Where hidden edges are to be found, only the encoder can place the nodes that lost theirs.
        known = comparable(given(replace(config, encoder="convolutions")))
        settings = {name: value for name, value in known.items() if name in self.typed}
        compare = reporter.command(source.shown.step("compare", **settings))
        sections = [
            drawn.section,
            pages.graph_faithful_section(faithful),
            pages.links_section(graph, links, near, compare, config.popular),
            pages.graph_training_section(fitted, embedding),
            *(pages.missing_section(table, graph.directed) for table in files.values()),
            pages.graph_data_section(graph, config),
        ]
        verdict = pages.verdict(links, near, faithful, accuracy)
        following = Step("evaluate", (str(run.folder), source.path), why="which of the edges does it find?")
        if self.remarks or (graph.is_forest and config.encoder == "free"):
            following = Step("view", (str(run.folder),), why="the interactive map")
        elif not curvature_chosen(self):
            following = source.step("compare", "is curvature worth it for this graph?", **settings)
        return Result(
            fitted,
            embedding,
            frames,
            [drawn.table],
            summary,
            verdict,
            sections,
            warnings,
            [verdict, pages.details(graph, embedding, links, near), centre.sentence(graph)],
            following,
            good=not links.splits or links.standing > 0,
            files=files,
        )


def _centre(graph: Graph, embedding: Embedding, frames: Sequence[Frame], seed: int) -> pages.Centre:
    """Find the middle of a map and of the graph."""
    closest = int(np.argmax(closeness(graph, seed)))
    nearest = np.argsort(seen_radius(embedding, frames), kind="stable")[:6]
    return pages.Centre(nearest, closest, steps_from(graph, closest))


def plan_graph_comparison(
    request: Request, curvatures: Sequence[float], repeats: int, tree: Path | None
) -> GraphComparisonPlan:
    """Plan a comparison on a graph, which takes no `tree`; raise for what cannot be compared."""
    graph, config = request.data, request.config
    if tree is not None:
        raise CurvaeError("a comparison on a graph takes no tree; leave out tree=…")
    split_edges(graph, seed=config.seed)
    trainings = repeats * len(curved_values(curvatures, repeats, config))
    facts = {"fingerprint": graph.fingerprint, "nodes": graph.n_nodes, "edges": graph.n_edges}
    return GraphComparisonPlan(
        **vars(request),
        facts={"curvatures": curvatures, "repeats": repeats, "data": facts},
        text=f"{graph.n_nodes:,} nodes, {graph.n_edges:,} edges; {trainings} trainings",
        remarks=[],
    )


@dataclass(frozen=True, kw_only=True)
class GraphComparisonPlan(CurvaturePlan):
    """A comparison on a graph."""

    def compare(self, **where: Any) -> GraphComparison:
        return compare_graph(self.config, self.data, self.facts["curvatures"], self.facts["repeats"], **where)

    def report(self, found: GraphComparison) -> tuple[list[str], list[str], list[Section]]:
        graph, drawn = self.data, []
        orientation = orientation_of(steps_to_some(graph), graph.names, None, "node")
        for embedding in (found.embeddings[c] for c in (0.0, found.best)):
            frames = orientation.frames(embedding)
            centre = _centre(graph, embedding, frames, self.config.seed)
            drawn += pages.graph_pictures(graph, embedding, frames, centre)
        said = [
            "From the models of the first split, which have seen 85 % of the edges; all edges are drawn.",
            orientation.sentence,
        ]
        rules, warned = pages.beside_comparison(graph, found)
        parts = [
            Section("The maps", said, drawn),
            pages.graph_comparison_section(found),
            Section("Rules without a model", (), (), [rules]),
            pages.graph_data_section(graph, self.config),
        ]
        return list(graph.notes), [*pages.comparison_warnings(graph), *warned], parts


def diagnose_edges(
    source: GraphSource, metric: Metric, distances: bool, seed: int, reporter: Reporter, step: Callable[[str], None]
) -> tuple[Diagnosis, NDArray[np.str_] | None, Section, tuple[str, ...]]:
    """Test a graph for a hierarchy as `diagnose_table` tests rows; it has distances of its own."""
    graph = source.load()
    reporter.tell((), graph.warnings)
    found = diagnose_graph(graph, seed, step)
    size = f"{counted(graph.n_nodes, 'node')}, {counted(graph.n_edges, 'edge')}."
    section = Section("What was done to the data", [size, *graph.notes, *found.notes])
    return found, graph.labels, section, graph.warnings
