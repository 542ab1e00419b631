"""Runs on graphs: what `curvae graph`, `compare --graph` and `diagnose --graph` do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ..data import EdgeSplit, Graph, memory, split_edges
from ..data.dataset import Missing
from ..data.files import count as counted
from ..data.files import quoted
from ..data.graphs.graph_data import absent_pairs, closeness, steps_from, steps_to_some
from ..data.graphs.raw_graph import is_table
from ..errors import CurvaeError
from ..geometry.frames import Frame
from ..hierarchy import Metric, diagnose_graph, graph_faithfulness
from ..maps.embedding import Embedding
from ..maps.faithfulness import label_accuracy
from ..maps.orientation import principal_scores, seen_radius
from ..report import Picture, Section
from ..training.comparison import curved_values
from ..training.config import GraphConfig, require_count
from ..training.evaluate import map_health
from ..training.graph_evaluate import contest, embed_graph, judge_split, missing_links, neighbourhood
from ..training.graph_fitting import GraphComparison, compare_graph, fit_graph, fit_graphs
from ..training.graph_problem import FittedGraph, graph_facts, require_buildable_graph
from ..training.storage import MODEL, read_tensors
from . import graph_pages as pages
from .folders import embedding_table, output_file, write_map, write_table
from .graph_pages import LinkFigures, beside_comparison, remark
from .pages import graph_section, map_files
from .run import (
    DataSource,
    DiagnosedData,
    EmbeddedData,
    GraphSource,
    Outcome,
    Place,
    Reporter,
    Run,
    Sampled,
    ScoreFile,
    Step,
    TrainedRun,
    comparable,
    geometry,
    given,
    missing_as_run,
)

__all__ = ["GraphRun", "TrainedGraph"]


# The model of a graph put to use: what `curvae embed`, `sample` and `evaluate` do with it.

_LARGEST = 4000  # nodes of a graph that is drawn from the model: all pairs are asked


class TrainedGraph(TrainedRun):
    """The model of a graph."""

    def embed(
        self,
        path: str,
        nodes: str | None,
        features_file: str | None,
        missing: Missing | None,
        reporter: Reporter,
        memory: str | None = None,
    ) -> EmbeddedData:
        """Place the nodes of a graph with other edges.

        A model with features places any nodes that have them. One without knows its nodes by their places in the graph,
        so the nodes must be the same.
        """
        if memory is not None:
            raise CurvaeError(f"{self.folder} holds a model of a graph, which is read as a whole; leave out memory=…")
        fitted, own = self.loaded.fitted, self.loaded.data
        source = GraphSource(
            path,
            nodes,
            features_file=features_file,
            **self._feature_columns(features_file),
            weighted=own.weights is not None,
            isolated=nodes is not None,
            missing=missing_as_run(missing, self.loaded.description),
            **self._end_columns,
        )
        graph = _read(source, own, reporter)
        if graph.feature_names != own.feature_names:
            raise CurvaeError(
                f"{Path(path).name} comes with {counted(len(graph.feature_names), 'feature')} a node, and the model of "
                f"{self.folder} was trained on {len(own.feature_names):,}; give the same"
            )
        if own.features is None:
            graph = _same_nodes(self.folder, path, own, graph)
        labels = None
        if own.labels is not None:
            places = _places(own, graph)
            labels = np.where(places < 0, "", own.labels[places])
        table = embedding_table(embed_graph(fitted, graph), graph.names, labels, "new", "node", self.frames)
        following = Step("evaluate", (str(self.folder), path), {"missing": missing})
        return EmbeddedData([table], len(table), following)

    @property
    def _end_columns(self) -> dict[str, Any]:
        """Which columns name the nodes of an edge, where that was given for the graph of the run."""
        stored = self.loaded.description.get("source") or {}
        return {name: stored.get(name) for name in ("source_column", "target_column")}

    def _feature_columns(self, features_file: str | None) -> dict[str, Any]:
        """Which columns of a table are features, and which categories text columns have, as in the graph of the run."""
        stored, names = self.loaded.description.get("source") or {}, self.loaded.data.feature_names
        beside = stored.get("features_file")
        if beside is not None and features_file is None:
            raise CurvaeError(
                f"{self.folder} was trained with the features of {beside}; give such a file with features_file=…"
            )
        if features_file is not None and not names:
            raise CurvaeError(f"{self.folder} was trained without features; leave out features_file=…")
        if features_file is not None and not is_table(features_file):
            return {}
        texts = {
            column: [name.removeprefix(f"{column}=") for name in names if name.startswith(f"{column}=")]
            for column in stored.get("categorical", ())
        }
        coded = {f"{column}={value}" for column, values in texts.items() for value in values}
        numbers = tuple(name for name in names if name not in coded)
        return {"features": numbers, "no_features": not numbers and features_file is None, "categorical": texts}

    def sample(
        self, count: int, output: Path | None, covariates: Mapping[str, str] | None, seed: int, force: bool
    ) -> Sampled:
        """Edges of new graphs, nodes counted from 1, in a CSV table."""
        if covariates:
            raise CurvaeError(f"{self.folder} holds a model of a graph, which has no covariates; leave them out")
        target = output_file(output, Path(f"{self.folder.resolve().name}-samples.csv"), force)
        model, own = self.loaded.fitted.model, self.loaded.data
        if own.n_nodes > _LARGEST:
            raise CurvaeError(
                f"the graph of {self.folder} has {own.n_nodes:,} nodes, and graphs are drawn pair by pair, up to "
                f"{_LARGEST:,}; train on a smaller graph to draw from it"
            )
        memory.require(100.0 * count * own.n_edges, f"a table of {count:,} graphs", fix="lower count=…")
        generator = torch.Generator(model.device).manual_seed(seed)
        known, popularity = self.loaded.embedding, None  # those of the nodes of the graph
        if known.popularity is not None and known.side is not None:
            popularity = torch.from_numpy(np.vstack([known.popularity.T, known.side])).to(model.device)
        tables = []
        for i in range(count):
            a, b = (model.sample(own.n_nodes, generator, popularity) + 1).cpu().numpy()
            tables.append(pd.DataFrame({"sample": i + 1, "a": a, "b": b}))
        write_table(target, pd.concat(tables, ignore_index=True))
        return Sampled([target], Step("view", (str(self.folder),)))

    def impute(self, *args: Any, **more: Any) -> NoReturn:
        raise CurvaeError(f"{self.folder} holds a model of a graph, which fills no gaps; give a run of curvae fit")

    def explained(self) -> NoReturn:
        raise CurvaeError(
            f"{self.folder} holds a model of a graph, whose nodes have no columns to explain; give a run of curvae fit"
        )

    def portable(self) -> NoReturn:
        raise CurvaeError(
            f"{self.folder} holds a model of a graph, whose encoder reads the whole graph; give a run of curvae fit"
        )

    def evaluate(
        self,
        path: str,
        samples: int | None,
        missing: Missing | None,
        seed: int,
        reporter: Reporter,
        scores: ScoreFile | None = None,
    ) -> dict[str, Any]:
        """How well the edges of a file between nodes of the run are told from random pairs that are not edges.

        These pairs are edges neither in the file nor in the run's graph. Edges that the run was trained on are judged
        apart from new ones. Beside the model stand rules that know the edges of the run and need no model.
        """
        run, own, embedding = self.folder, self.loaded.data, self.loaded.embedding
        if samples is not None:
            raise CurvaeError(f"{run} holds a model of a graph, whose edges are found by distance; leave out samples=…")
        if scores is not None:
            raise CurvaeError(f"{run} holds a model of a graph, which has no rows to score; leave out output=…")
        graph = _read(GraphSource(path, **self._end_columns), own, reporter)
        places = _places(own, graph)
        edges, _ = _moved(graph, places)
        unknown = graph.names[places < 0]
        if not len(edges):
            raise CurvaeError(
                f"no edge of {Path(path).name} joins two nodes of {run}; it names {quoted(graph.names[:2])}, the run "
                f"{quoted(own.names[:2])}: use the same names"
            )
        if len(unknown):
            left = graph.n_edges - len(edges)
            reporter.warn(
                f"{counted(len(unknown), 'node')} not in the run ({quoted(unknown)}); {counted(left, 'edge')} of "
                f"{graph.n_edges:,} left out."
            )
        together = np.unique(np.concatenate([own.edges, edges]), axis=0)
        whole = Graph(own.names, together, directed=own.directed)
        score = embedding.nearness_of
        known = np.isin(_keys(edges, own), _keys(own.edges, own))
        parts = {}
        for name, part in (("train", edges[known]), ("new", edges[~known])):
            if len(part):
                random = np.random.default_rng(seed)
                absent = absent_pairs(whole, len(part), random, fix="give fewer edges")
                found = contest(score, whole, own.edges, part, absent, embedding.space.shape[1])
                parts[name] = {"edges": len(part), **found, "remark": remark(found)}
        asked = Graph(own.names, edges, directed=own.directed)
        near, faithful = neighbourhood(embedding, asked, seed=seed), graph_faithfulness(asked, embedding, seed=seed)
        return {
            "run": run.resolve().name,
            "data": Path(path).name,
            "seed": seed,
            "parts": parts,
            "unknown_nodes": len(unknown),
            "neighbourhood_map": near.map,
            "neighbourhood_rank": near.rank,
            "neighbourhood_nodes": near.asked,
            "faithfulness": None if faithful is None else faithful.to_json(),
        }


def _read(source: GraphSource, own: Graph, reporter: Reporter) -> Graph:
    graph = source.load(known=own.names, directed=own.directed)
    reporter.tell(graph.notes, graph.warnings)
    return graph


def _places(own: Graph, graph: Graph) -> NDArray[np.intp]:
    """Where the nodes of a graph are among those of the run, −1 where they are not."""
    return pd.Index(own.names).get_indexer(pd.Index(graph.names))


def _same_nodes(run: Path, path: str, own: Graph, graph: Graph) -> Graph:
    """The graph with its nodes in the order of the run's."""
    places = _places(own, graph)
    lacking, unknown = np.setdiff1d(own.names, graph.names), graph.names[places < 0]
    if len(lacking) or len(unknown):
        sides = [
            f"{name} {counted(len(side), 'node')} ({quoted(side)})"
            for name, side in (("lacks", lacking), ("adds", unknown))
            if len(side)
        ]
        raise CurvaeError(
            f"the model of {run} has no features and knows its own {own.n_nodes:,} nodes only; {Path(path).name} "
            f"{' and '.join(sides)}: name the same nodes (those without edges with nodes=…), or train with features=…"
        )
    edges, order = _moved(graph, places)
    weights = None if graph.weights is None else graph.weights[order]
    return Graph(own.names, edges, weights, directed=graph.directed)


def _moved(graph: Graph, places: NDArray[np.intp]) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """Edges between nodes that have a place, in terms of these, and which edges they are."""
    ends = places[graph.edges].astype(np.int64)
    ends = ends if graph.directed else np.sort(ends, axis=1)
    known = np.flatnonzero(ends.min(axis=1) >= 0)
    order = known[np.lexsort((ends[known, 1], ends[known, 0]))]
    return ends[order], order


def _keys(edges: NDArray[np.int64], graph: Graph) -> NDArray[np.int64]:
    return edges[:, 0] * graph.n_nodes + edges[:, 1]


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
        if self.remarks or self._drawn:
            following = Step("view", (str(place.folder),), why="the interactive map")
        elif not self.curvature_chosen:
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
