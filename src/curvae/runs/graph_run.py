"""Runs on graphs: what `curvae graph` and `compare --graph` do."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from ..data import EdgeSplit, Graph, split_edges
from ..data.files import count
from ..data.graph_data import closeness, steps_from, steps_to_some
from ..errors import CurvaeError
from ..geometry.frames import Frame
from ..hierarchy import graph_faithfulness
from ..maps.embedding import seen_radius
from ..maps.faithfulness import label_accuracy
from ..report import Section
from ..settings import require_count
from ..training import Comparison, Embedding, GraphConfig
from ..training.comparison import Curvatures, cost_text, curved_values
from ..training.evaluate import embed_graph, health, judge_split, missing_links, neighbourhood
from ..training.graph_problem import (
    FittedGraph,
    compare_graph,
    fit_graph,
    fit_graphs,
    graph_facts,
    require_buildable_graph,
)
from ..training.storage import embedding_table
from . import pages
from .run import (
    GraphSource,
    Reporter,
    Result,
    Step,
    comparable,
    curvature_chosen,
    given,
    orientation_of,
    require_root,
    view_step,
    write_map,
)

__all__ = [
    "GraphComparisonPlan",
    "GraphTrainingPlan",
]

_SPLITS = 5  # by default
_FAITHFUL = 0.3  # mean average precision of neighbourhoods below which a map is warned of


class GraphTrainingPlan:
    """A training on a graph to be done, judged by how well edges that were hidden are found again.

    Arguments:
        source, data: the graph that was read, and how.
        config: settings.
        typed: settings that were typed.
        before: description of the run that is resumed, or nothing.
        splits: how often edges are hidden; 5 by default, and none of a tree or forest.
        links: how many of the likeliest missing edges to write to a file.
        root: name of the node at the centre of the map, if it was given.

    Attributes:
        config, typed, facts, text, remarks: as of `RowsTrainingPlan`.
    """

    def __init__(
        self,
        source: GraphSource,
        data: Graph,
        config: GraphConfig,
        typed: dict[str, Any],
        before: Mapping[str, Any],
        splits: int | None,
        links: int | None,
        root: str | None,
    ) -> None:
        """Split the edges; raise for what cannot be trained."""
        if splits:
            require_count("splits", splits)
        features = None if data.features is None else len(data.feature_names)
        if splits is None and data.is_forest and features is None:  # features may tell which nodes an edge joined
            config, splits = replace(config, encoder="free"), 0
        splits = _SPLITS if splits is None else splits
        require_buildable_graph(config, data.n_nodes, features)
        self._links, self._root = links, require_root(root, before, data.names, "node")
        self._splits: list[EdgeSplit] = []
        self.remarks: list[str] = []
        try:
            self._splits = [split_edges(data, seed=config.seed + i) for i in range(splits)]
        except CurvaeError as error:
            self.remarks.append(f"no edges are hidden to be predicted: {error}")
        self.text = f"{data.n_nodes:,} nodes, {data.n_edges:,} edges"
        self.text += f", {count(features, 'feature')}" if features else ""
        if self._splits:
            self.text += f"; {len(self._splits)} splits of 85, 5 and 10 % of the edges"
        elif data.is_forest and config.encoder == "free":
            self.text += f". {pages.drawn_sentence(data)} Use `splits=5` to hide edges all the same."
        self.facts = {"splits": splits, "data": graph_facts(data), "root": self._root}
        self.source, self.data, self.config, self.typed = source, data, config, typed

    def train(
        self,
        folder: Path,
        reporter: Reporter,
        progress: Callable[[dict[str, Any], int], None],
        *,
        resume: bool,
        jobs: int,
        device: torch.device | str,
    ) -> Result:
        """Train a model of all edges, whose map is written at once, and for each split one that predicts hidden edges.

        Arguments:
            folder: of the run.
            reporter: receives messages and progress.
            progress: called with every record of the first model and the number of epochs in all.
            resume, jobs, device: as of `train_run`.
        """
        graph, config, source, splits = self.data, self.config, self.source, self._splits
        where: dict[str, Any] = {"device": device, "resume": resume}
        began = time.perf_counter()
        fitted = fit_graph(config, graph, folder=folder, **where, progress=progress)
        embedding, last = embed_graph(fitted, graph), fitted.last
        frames_of, turned = orientation_of(steps_to_some(graph), graph.names, self._root, "node")
        frames = frames_of(embedding)
        centre = _centre(graph, embedding, frames, config.seed)
        table = embedding_table(embedding, graph.names, graph.labels, "train", "node", frames)
        map_section = pages.graph_map_section(
            graph, embedding, frames, centre, turned, reporter.command(view_step(folder))
        )
        predicting: list[FittedGraph] = []
        if splits:
            write_map(folder, [table], graph.n_nodes, map_section.named_pictures)
            reporter.say(f"the map is in {folder}; models that predict hidden edges follow")
            predicting = fit_graphs(
                [replace(config, seed=config.seed + i) for i in range(len(splits))],
                graph,
                splits=splits,
                folder=folder / "splits",
                **where,
                jobs=min(jobs, len(splits)),
                progress=lambda done, total: reporter.progress("link prediction", done, total, f"{len(splits)} models"),
                warn=reporter.warn,
            )
        seconds = time.perf_counter() - began
        good = [(one, one.split) for one in predicting if one.failure is None and one.split is not None]
        found = pages.LinkFigures(
            [
                {"seed": one.config.seed, **judge_split(one, graph, split), **pages.disconnected(graph, split)}
                for one, split in good
            ]
        )
        near = neighbourhood(embedding, graph, seed=config.seed)
        faithful = graph_faithfulness(graph, embedding, seed=config.seed)
        accuracy = None if graph.labels is None else label_accuracy(embedding, graph.labels, seed=config.seed)
        warnings = health(fitted, embedding)
        if near.map < _FAITHFUL:
            remedy = "a larger dimension or more epochs"
            if config.pairs == "all":
                remedy = "a larger dimension, more epochs or a larger weight"
            elif config.encoder != "free":
                remedy = 'a larger dimension, more epochs or a vector for each node, `encoder="free"`'
            warnings.append(
                f"the map shows few of the edges (mean average precision of neighbourhoods {near.map:.2f}); "
                f"try {remedy}"
            )
        warnings += [] if faithful is None else faithful.warnings
        factors = fitted.factor_figures
        summary = {
            **found.to_json(),
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
        if self._links is not None:
            advance = reporter.counter("missing edges", graph.n_nodes)
            pairs, probability = missing_links(fitted, graph, self._links, embedding=embedding, progress=advance)
            first, second = graph.names[pairs].T
            files[pages.LINKS] = pd.DataFrame({"source": first, "target": second, "probability": probability})
        # Where hidden edges are to be found, only the encoder can place the nodes that lost theirs.
        known = comparable(given(replace(config, encoder="convolutions")))
        settings = {name: value for name, value in known.items() if name in self.typed}
        compare = reporter.command(source.shown.step("compare", **settings))
        sections = [
            map_section,
            pages.faithful_section(faithful, things="nodes"),
            pages.links_section(graph, found, near, compare, config.popular),
            pages.graph_training_section(fitted, embedding),
            *(pages.missing_section(table, graph.directed) for table in files.values()),
            pages.graph_data_section(graph, config),
        ]
        verdict = pages.verdict(found, near, faithful, accuracy)
        following = Step("evaluate", (str(folder), source.path), why="which of the edges does it find?")
        if self.remarks or (graph.is_forest and config.encoder == "free"):
            following = Step("view", (str(folder),), why="the interactive map")
        elif not curvature_chosen(config, self.typed):
            following = source.step("compare", "is curvature worth it for this graph?", **settings)
        return Result(
            fitted,
            embedding,
            frames,
            [table],
            summary,
            verdict,
            sections,
            warnings,
            [verdict, pages.details(graph, embedding, found, near), centre.sentence(graph)],
            following,
            good=not found.splits or found.standing > 0,
            files=files,
        )


def _centre(graph: Graph, embedding: Embedding, frames: Sequence[Frame], seed: int) -> pages.Centre:
    """Find the middle of a map and of the graph."""
    closest = int(np.argmax(closeness(graph, seed)))
    nearest = np.argsort(seen_radius(embedding, frames), kind="stable")[:6]
    return pages.Centre(nearest, closest, steps_from(graph, closest))


class GraphComparisonPlan:
    """A comparison of curvatures on a graph to be done.

    Arguments:
        source, data, config, typed, before, curvatures, repeats: as of `RowsComparisonPlan`.
        tree: must be None.

    Attributes:
        config, typed, facts, text, remarks: as of `RowsTrainingPlan`.
    """

    def __init__(
        self,
        source: GraphSource,
        data: Graph,
        config: GraphConfig,
        typed: dict[str, Any],
        before: Mapping[str, Any],
        curvatures: Curvatures,
        repeats: int,
        tree: Path | None,
    ) -> None:
        """Raise for what cannot be compared."""
        if tree is not None:
            raise CurvaeError("a comparison on a graph takes no tree; leave out `tree=…`")
        split_edges(data, seed=config.seed)
        cost = cost_text(curvatures, curved_values(curvatures, repeats, config), repeats)
        facts = {"fingerprint": data.fingerprint, "nodes": data.n_nodes, "edges": data.n_edges}
        self.facts = {"curvatures": curvatures, "repeats": repeats, "data": facts}
        self.text = f"{data.n_nodes:,} nodes, {data.n_edges:,} edges; {cost}"
        self.data, self.config, self.typed, self.remarks = data, config, typed, list[str]()
        self._curvatures, self._repeats = curvatures, repeats

    def compare(self, **where: Any) -> tuple[Comparison, list[str], list[str], list[Section]]:
        """Train and compare, as `RowsComparisonPlan.compare` does."""
        graph, drawn = self.data, []
        found = compare_graph(self.config, graph, self._curvatures, self._repeats, **where)
        frames_of, turned = orientation_of(steps_to_some(graph), graph.names, None, "node")
        for embedding in (found.embeddings[c] for c in (0.0, found.best)):
            frames = frames_of(embedding)
            drawn += pages.graph_pictures(graph, embedding, frames, _centre(graph, embedding, frames, self.config.seed))
        rules, warned = pages.beside_comparison(graph, found)
        which = "From the models of the first split, which have seen 85 % of the edges; all edges are drawn."
        sections = [
            Section("The maps", [which, turned], drawn),
            pages.comparison_section(found),
            Section("Rules without a model", (), (), [rules]),
            pages.graph_data_section(graph, self.config),
        ]
        return found, list(graph.notes), [*pages.comparison_warnings(graph), *warned], sections
