"""Runs on graphs: what `curvae graph`, `compare --graph` and `diagnose --graph` do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ..data import EdgeSplit, split_edges
from ..data.graphs.centrality import closeness, steps_from, steps_to_some
from ..data.messages import count as counted
from ..errors import CurvaeError
from ..geometry.frames import Frame
from ..hierarchy import Metric, diagnose_graph, graph_faithfulness
from ..hierarchy.faithfulness import label_accuracy
from ..report import Picture, Section
from ..training.config import require_count
from ..training.evaluate import Embedding, map_health
from ..training.files import read_tensors
from ..training.graphs import FittedGraph, GraphComparison, GraphConfig, compare_graph, fit_graph, fit_graphs
from ..training.graphs.baselines import judge_split
from ..training.graphs.build import require_buildable_graph
from ..training.graphs.evaluate import embed_graph, missing_links, neighbourhood
from ..training.graphs.fitted import graph_facts
from ..training.orientation import principal_scores, seen_radius
from ..training.paired import curved_values
from ..training.storage import MODEL
from . import graph_pages as pages
from .factors import map_files
from .faithful import graph_section
from .folders import embedding_table, write_map
from .graph_trained import TrainedGraph
from .link_figures import LinkFigures, beside_comparison
from .progress import Reporter
from .run import DiagnosedData, Outcome, Place, Run, comparable, geometry, given
from .sources import DataSource, GraphSource, Step

__all__ = ["GraphRun"]

_SPLITS = 5  # by default
_FAITHFUL = 0.3  # mean average precision of neighbourhoods below which a map is warned of


@dataclass(frozen=True)
class MappedGraph:
    """The map of a graph, from the model of all edges: where nodes lie, how they are seen, as a table and pictures."""

    embedding: Embedding
    frames: tuple[Frame, ...]
    centre: pages.Centre
    table: pd.DataFrame
    section: Section

    @property
    def pictures(self) -> dict[str, Picture]:
        return map_files(self.embedding, self.section)


class GraphRun(Run):
    """A graph, judged by how well edges that were hidden are found again."""

    count = "splits"
    fitted = FittedGraph
    trained = TrainedGraph
    has_edges = True
    thing = "node"
    axes = "the steps between nodes"

    def __init__(self, source: GraphSource, config: GraphConfig) -> None:
        super().__init__(source, config)
        self.data = source.load(directed=config.directed)
        self.data_size = f"{self.data.n_nodes:,} nodes, {self.data.n_edges:,} edges"

    @property
    def names(self) -> NDArray[np.str_]:
        return self.data.names

    def scores(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        return principal_scores(steps_to_some(self.data)[chosen])

    # --- training -----------------------------------------------------------------------------------------------------

    def prepare(self, count: int | None, before: Mapping[str, Any], processes: int) -> dict[str, Any]:
        if count:
            require_count("splits", count)
        graph = self.data
        features = None if graph.features is None else len(graph.feature_names)
        if count is None and graph.is_forest and features is None:  # features may tell which nodes an edge joined
            self.config, count = replace(self.config, encoder="free"), 0
        count = _SPLITS if count is None else count
        require_buildable_graph(self.config, graph.n_nodes, features)
        self.splits: list[EdgeSplit] = []
        try:
            self.splits = [split_edges(graph, seed=self.config.seed + i) for i in range(count)]
        except CurvaeError as error:
            self.remarks.append(f"no edges are hidden to be predicted: {error}")
        self.plan_text = self.data_size + (f", {counted(features, 'feature')}" if features else "")
        if self.splits:
            self.plan_text += f"; {len(self.splits)} splits of 85, 5 and 10 % of the edges"
        elif self._drawn:
            self.plan_text += f". {pages.drawn_sentence(graph)} Use splits=5 to hide edges all the same."
        return {"splits": count, "data": graph_facts(graph)}

    @property
    def _drawn(self) -> bool:
        """Whether the graph is a tree or forest that is drawn as it is."""
        return self.data.is_forest and self.config.encoder == "free"

    def train(self, place: Place, reporter: Reporter, progress: Callable[[dict[str, Any], int], None]) -> None:
        """One model of all edges, whose map is written at once, and for each split one that predicts hidden edges."""
        config, graph, splits = self.config, self.data, self.splits
        jobs = min(place.jobs, max(1, len(splits)))
        where: dict[str, Any] = {"device": place.device, "resume": place.resume}
        self.model = fit_graph(
            config,
            graph,
            folder=place.folder,
            **where,
            progress=progress,
        )
        self.map = self._mapped(reporter.command(place.view_step))
        self.predicting = []
        if splits:
            write_map(place.folder, [self.map.table], len(self.map.table), self.map.pictures)
            reporter.say(f"the map is in {place.folder}; models that predict hidden edges follow")
            self.predicting = fit_graphs(
                [replace(config, seed=config.seed + i) for i in range(len(splits))],
                graph,
                splits=splits,
                folder=place.folder / "splits",
                **where,
                jobs=jobs,
                progress=lambda done, total: reporter.progress("link prediction", done, total, f"{len(splits)} models"),
                warn=reporter.warn,
            )

    def _mapped(self, view_command: str) -> MappedGraph:
        graph, embedding = self.data, embed_graph(self.model, self.data)
        frames = self.orient(embedding)
        centre = self._centre(embedding, frames)
        table = embedding_table(embedding, graph.names, graph.labels, "train", "node", frames)
        section = pages.map_section(graph, embedding, frames, centre, self.orientation_sentence, view_command)
        return MappedGraph(embedding, frames, centre, table, section)

    def _links(self) -> LinkFigures:
        """Figures of every split whose training ended well."""
        rows = []
        for one in self.predicting:
            if one.failure is None and one.split is not None:
                judged = judge_split(one, self.data, one.split)
                rows.append({"seed": one.config.seed, **judged, **pages.severed(self.data, one.split)})
        return LinkFigures(rows)

    def outcome(self, place: Place, named: DataSource, seconds: float, reporter: Reporter) -> Outcome:
        graph, fitted, config, last = self.data, self.model, self.config, self.model.last
        embedding, frames, centre = self.map.embedding, self.map.frames, self.map.centre
        links, near = self._links(), neighbourhood(embedding, graph, seed=config.seed)
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
            **{name: value for name, value in geometry(fitted).items() if name != "identifiable"},
            "seconds": round(seconds, 2),
        }
        missing = None if place.links is None else self._missing(place.links, reporter)
        # Where hidden edges are to be found, only the encoder can place the nodes that lost theirs.
        known = comparable(given(replace(config, encoder="convolutions")))
        settings = {name: value for name, value in known.items() if name in self.settings}
        sections = [
            self.map.section,
            graph_section(faithful),
            pages.links_section(graph, links, near, reporter.command(named.compare_step(**settings)), config.popular),
            pages.training_section(fitted, embedding),
            pages.missing_section(missing, graph.directed),
            pages.data_section(graph, config),
        ]
        verdict = pages.verdict(links, near, faithful, accuracy)
        if self.remarks:
            following = Step("view", (str(place.folder),), why="the interactive map")
        elif not self._drawn and not all(factor.flat for factor in config.factors):
            following = self.source.compare_step("is curvature worth it for this graph?", **settings)
        else:
            asked = str(place.folder), self.source.path
            following = Step("evaluate", asked, why="which of the edges does it find?")
        pictures = {**self.map.pictures, "curves": sections[3].pictures[0]}
        report = f"Map of the graph {named.path}", verdict, warnings, sections, pictures
        said = [verdict, pages.details(graph, embedding, links, near), centre.sentence(graph)]
        good = not links.splits or links.beats_rules
        table, files = self.map.table, {} if missing is None else {pages.LINKS: missing}
        return Outcome(
            fitted, embedding, frames, [table], len(table), summary, *report, said, following, good, files=files
        )

    def _missing(self, count: int, reporter: Reporter) -> pd.DataFrame:
        """The likeliest missing edges."""
        names, advance = self.data.names, reporter.counter("missing edges", self.data.n_nodes)
        pairs, probability = missing_links(self.model, self.data, count, embedding=self.map.embedding, progress=advance)
        source, target = names[pairs].T
        return pd.DataFrame({"source": source, "target": target, "probability": probability})

    def _centre(self, embedding: Embedding, frames: Sequence[Frame]) -> pages.Centre:
        """The middle of the map and of the graph."""
        closest = int(np.argmax(closeness(self.data, self.config.seed)))
        nearest = np.argsort(seen_radius(embedding, frames), kind="stable")[:6]
        return pages.Centre(nearest, closest, steps_from(self.data, closest))

    # --- comparison ---------------------------------------------------------------------------------------------------

    def plan_comparison(
        self, curvatures: Sequence[float], repeats: int, before: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        graph, config = self.data, self.config
        split_edges(graph, seed=config.seed)
        self.trainings = repeats * len(curved_values(curvatures, repeats, config))
        return {"fingerprint": graph.fingerprint, "nodes": graph.n_nodes, "edges": graph.n_edges}

    def compare(self, curvatures: Sequence[float], repeats: int, **where: Any) -> GraphComparison:
        return compare_graph(self.config, self.data, curvatures, repeats, **where)

    def comparison_report(self, found: GraphComparison) -> tuple[list[str], list[str], list[Section]]:
        drawn = []
        for embedding in (found.embeddings[c] for c in (0.0, found.best)):
            frames = self.orient(embedding)
            drawn += pages.map_pictures(self.data, embedding, frames, self._centre(embedding, frames))
        said = [
            "From the models of the first split, which have seen 85 % of the edges; all edges are drawn.",
            self.orientation_sentence,
        ]
        rules, warned = beside_comparison(self.data, found)
        parts = [
            Section("The maps", said, drawn),
            pages.comparison_section(found),
            Section("Rules without a model", (), (), [rules]),
            pages.data_section(self.data, self.config),
        ]
        return list(self.data.notes), [*pages.comparison_warnings(self.data), *warned], parts

    # --- diagnosis and maps -------------------------------------------------------------------------------------------

    @classmethod
    def diagnose(
        cls,
        source: GraphSource,
        metric: Metric,
        distances: bool,
        seed: int,
        reporter: Reporter,
        step: Callable[[str], None],
    ) -> DiagnosedData:
        graph = source.load()
        reporter.tell((), graph.warnings)
        found = diagnose_graph(graph, seed, step)
        size = f"{counted(graph.n_nodes, 'node')}, {counted(graph.n_edges, 'edge')}."
        section = Section("What was done to the data", [size, *graph.notes, *found.notes])
        return DiagnosedData(found, graph.labels, section, graph.warnings)

    @classmethod
    def edges(cls, folder: Path, nodes: int) -> NDArray[np.int64]:
        edges = read_tensors(folder / MODEL)[0].get("edges")
        whole = edges is not None and edges.dim() == 2 and edges.shape[0] == 2 and edges.dtype == torch.int64
        if edges is None or not whole or (edges.numel() and not 0 <= int(edges.min()) <= int(edges.max()) < nodes):
            raise CurvaeError(f"{folder / MODEL} holds no edges between the nodes of the run; train again")
        return edges.numpy()
