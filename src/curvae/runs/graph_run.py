"""Runs on graphs: what `curvae graph`, `compare --graph` and `diagnose --graph` do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ..data import EdgeSplit, Graph, memory, split_edges
from ..data.column_statistics import Missing
from ..data.files import count as counted
from ..data.files import quoted
from ..data.graph_data import absent_pairs, closeness, steps_from, steps_to_some
from ..data.graph_merging import is_table
from ..data.graph_reading import HEADER_ADVICE
from ..errors import CurvaeError
from ..geometry.frames import Frame
from ..hierarchy import Diagnosis, Metric, diagnose_graph, graph_faithfulness
from ..maps.embedding import Embedding, principal_scores, sampled_rows, seen_radius
from ..maps.faithfulness import label_accuracy
from ..report import Picture, Section
from ..training.comparison import curved_values
from ..training.config import GraphConfig, require_count
from ..training.evaluate import map_health
from ..training.graph_evaluate import embed_graph, judge_split, missing_links, neighbourhood, score_links
from ..training.graph_problem import (
    FittedGraph,
    GraphComparison,
    compare_graph,
    fit_graph,
    fit_graphs,
    graph_facts,
    require_buildable_graph,
)
from ..training.storage import MODEL, Loaded, read_tensors
from . import pages
from .folders import embedding_table, output_file, write_map, write_table
from .pages import LinkFigures, beside_comparison, remark
from .run import (
    SILENT,
    DataSource,
    GraphSource,
    Outcome,
    Place,
    Reporter,
    Run,
    Step,
    comparable,
    geometry,
    given,
    missing_as_run,
    stored_frames,
)

__all__ = ["GraphRun", "diagnose_edges", "draw_graphs", "embed_nodes", "score_edges"]


# The model of a graph put to use: what `curvae embed`, `sample` and `evaluate` do with it.

_LARGEST = 4000  # nodes of a graph that is drawn from the model: all pairs are asked


def embed_nodes(
    run: Path,
    loaded: Loaded,
    path: str,
    *,
    missing: Missing | None,
    reporter: Reporter,
    nodes: str | None = None,
    features_file: str | None = None,
    memory: str | None = None,
    cache: str | None = None,
) -> tuple[Iterable[pd.DataFrame], int, Step]:
    """Embed the nodes of a graph with other edges; return their table, the number of nodes, and what to do next.

    A model with features places any nodes that have them. One without knows its nodes by their places in the graph, so
    the nodes must be the same. `nodes` is a table of nodes, and `features_file` has their features.
    """
    for name, value in (("memory", memory), ("cache", cache)):
        if value is not None:
            raise CurvaeError(f"{run} holds a model of a graph, which is read as a whole; leave out {name}=…")
    own: Graph = loaded.data
    graph = _read(
        loaded,
        path,
        reporter,
        nodes=nodes,
        features_file=features_file,
        **_feature_columns(run, loaded, features_file),
        weighted=own.weights is not None,
        isolated=nodes is not None,
        missing=missing_as_run(missing, loaded.description),
    )
    if graph.feature_names != own.feature_names:
        raise CurvaeError(
            f"{Path(path).name} comes with {counted(len(graph.feature_names), 'feature')} a node, and the model of "
            f"{run} was trained on {len(own.feature_names):,}; give the same"
        )
    if own.features is None:
        graph = _same_nodes(run, path, own, graph)
    labels = None
    if own.labels is not None:
        places = pd.Index(own.names).get_indexer(pd.Index(graph.names))
        labels = np.where(places < 0, "", own.labels[places])
    frames = stored_frames(loaded.description, loaded.embedding)
    table = embedding_table(embed_graph(loaded.fitted, graph), graph.names, labels, "new", "node", frames)
    return [table], len(table), Step("evaluate", (str(run), path), {"missing": missing})


def _read(loaded: Loaded, path: str, reporter: Reporter, **how: Any) -> Graph:
    """Read a graph; the nodes of an edge are in the columns that were given for the graph of the run."""
    stored = loaded.description.get("source") or {}
    how |= {name: stored.get(name) for name in ("source_column", "target_column")}
    graph = GraphSource(path, **how).load(known=loaded.data.names, directed=loaded.data.directed)
    # The names of the run decide whether the first line is a header.
    reporter.tell([note.replace(HEADER_ADVICE, "") for note in graph.notes], graph.warnings)
    return graph


def _feature_columns(run: Path, loaded: Loaded, features_file: str | None) -> dict[str, Any]:
    """Which columns of a table are features, and which categories text columns have, as in the graph of the run."""
    stored, names = loaded.description.get("source") or {}, loaded.data.feature_names
    beside = stored.get("features_file")
    if beside is not None and features_file is None:
        raise CurvaeError(f"{run} was trained with the features of {beside}; give such a file with features_file=…")
    if features_file is not None and not names:
        raise CurvaeError(f"{run} was trained without features; leave out features_file=…")
    if features_file is not None and not is_table(features_file):
        return {}
    texts = {
        column: [name.removeprefix(f"{column}=") for name in names if name.startswith(f"{column}=")]
        for column in stored.get("categorical", ())
    }
    coded = {f"{column}={value}" for column, values in texts.items() for value in values}
    numbers = tuple(name for name in names if name not in coded)
    return {"features": numbers, "no_features": not numbers and features_file is None, "categorical": texts}


def _same_nodes(run: Path, path: str, own: Graph, graph: Graph) -> Graph:
    """The graph with its nodes in the order of the run's."""
    edges, order, unknown = _moved(own, graph)
    lacking = np.setdiff1d(own.names, graph.names)
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
    weights = None if graph.weights is None else graph.weights[order]
    return Graph(own.names, edges, weights, directed=graph.directed)


def _moved(own: Graph, graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.intp], NDArray[np.str_]]:
    """Edges between nodes of the run by their places there, which edges these are, and nodes that the run lacks."""
    places = pd.Index(own.names).get_indexer(pd.Index(graph.names))
    ends = places[graph.edges].astype(np.int64)
    ends = ends if graph.directed else np.sort(ends, axis=1)
    known = np.flatnonzero(ends.min(axis=1) >= 0)
    order = known[np.lexsort((ends[known, 1], ends[known, 0]))]
    return ends[order], order, graph.names[places < 0]


def draw_graphs(
    run: Path,
    loaded: Loaded,
    count: int,
    output: Path | None,
    *,
    covariates: Mapping[str, str] | None,
    seed: int,
    force: bool,
) -> tuple[list[Path], Step]:
    """Write edges of new graphs, nodes counted from 1, to a CSV table; return the file and what to do next."""
    if covariates:
        raise CurvaeError(f"{run} holds a model of a graph, which has no covariates; leave them out")
    target = output_file(output, Path(f"{run.resolve().name}-samples.csv"), force)
    model, own = loaded.fitted.model, loaded.data
    if own.n_nodes > _LARGEST:
        raise CurvaeError(
            f"the graph of {run} has {own.n_nodes:,} nodes, and graphs are drawn pair by pair, up to {_LARGEST:,}; "
            "train on a smaller graph to draw from it"
        )
    memory.require(100.0 * count * own.n_edges, f"a table of {count:,} graphs", fix="lower count=…")
    generator = torch.Generator(model.device).manual_seed(seed)
    known, popularity = loaded.embedding, None  # those of the nodes of the graph
    if known.popularity is not None and known.side is not None:
        popularity = torch.from_numpy(np.vstack([known.popularity.T, known.side])).to(model.device)
    tables = []
    for i in range(count):
        a, b = (model.sample(own.n_nodes, generator, popularity) + 1).cpu().numpy()
        tables.append(pd.DataFrame({"sample": i + 1, "a": a, "b": b}))
    write_table(target, pd.concat(tables, ignore_index=True))
    return [target], Step("view", (str(run),))


def score_edges(
    run: Path,
    loaded: Loaded,
    path: str,
    *,
    samples: int | None,
    seed: int,
    missing: Missing | None,
    output: Path | None,
    training: str | None,
    reporter: Reporter,
) -> dict[str, Any]:
    """Measure how well the edges of a file between nodes of the run are told from random pairs that are not edges.

    These pairs are edges neither in the file nor in the run's graph. Edges that the run was trained on are judged apart
    from new ones. Beside the model stand rules that know the edges of the run and need no model.
    """
    own, embedding = loaded.data, loaded.embedding
    if samples is not None:
        raise CurvaeError(f"{run} holds a model of a graph, whose edges are found by distance; leave out samples=…")
    if output is not None:
        raise CurvaeError(f"{run} holds a model of a graph, which has no rows to score; leave out output=…")
    graph = _read(loaded, path, reporter)
    edges, _, unknown = _moved(own, graph)
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
    known = np.isin(edges @ [own.n_nodes, 1], own.edges @ [own.n_nodes, 1])
    parts = {}
    for name, part in (("train", edges[known]), ("new", edges[~known])):
        if len(part):
            random = np.random.default_rng(seed)
            absent = absent_pairs(whole, len(part), random, fix="give fewer edges")
            found = score_links(embedding.nearness_of, whole, own.edges, part, absent, embedding.space.shape[1])
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
        return self.section.named_pictures


class GraphRun(Run):
    """A graph, judged by how well edges that were hidden are found again."""

    count = "splits"
    fitted = FittedGraph
    has_edges = True
    thing = "node"
    axes = "the steps between nodes"

    def __init__(self, source: GraphSource, config: GraphConfig, reporter: Reporter = SILENT) -> None:
        super().__init__(source, config)
        self.data = source.load(directed=config.directed)
        self.data_size = f"{self.data.n_nodes:,} nodes, {self.data.n_edges:,} edges"

    @property
    def names(self) -> NDArray[np.str_]:
        return self.data.names

    @cached_property
    def reference(self) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        chosen = sampled_rows(self.data.n_nodes)
        return chosen, principal_scores(steps_to_some(self.data)[chosen])

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
        elif self.draws_forest:
            self.plan_text += f". {pages.drawn_sentence(graph)} Use splits=5 to hide edges all the same."
        return {"splits": count, "data": graph_facts(graph)}

    @property
    def draws_forest(self) -> bool:
        """Whether the graph is a tree or forest that is drawn as it is."""
        return self.data.is_forest and self.config.encoder == "free"

    def train(
        self, place: Place, reporter: Reporter, progress: Callable[[dict[str, Any], int], None]
    ) -> tuple[FittedGraph, MappedGraph, list[FittedGraph]]:
        """Train a model of all edges, whose map is written at once, and for each split one that predicts hidden edges.

        Returns the model, its map, and the models that predict.
        """
        config, graph, splits = self.config, self.data, self.splits
        where: dict[str, Any] = {"device": place.device, "resume": place.resume}
        fitted = fit_graph(config, graph, folder=place.folder, **where, progress=progress)
        drawn = self._mapped(fitted, reporter.command(place.view_step))
        predicting = []
        if splits:
            write_map(place.folder, [drawn.table], len(drawn.table), drawn.pictures)
            reporter.say(f"the map is in {place.folder}; models that predict hidden edges follow")
            predicting = fit_graphs(
                [replace(config, seed=config.seed + i) for i in range(len(splits))],
                graph,
                splits=splits,
                folder=place.folder / "splits",
                **where,
                jobs=min(place.jobs, len(splits)),
                progress=lambda done, total: reporter.progress("link prediction", done, total, f"{len(splits)} models"),
                warn=reporter.warn,
            )
        return fitted, drawn, predicting

    def _mapped(self, fitted: FittedGraph, view_command: str) -> MappedGraph:
        graph, embedding = self.data, embed_graph(fitted, self.data)
        frames = self.orient(embedding)
        centre = self._centre(embedding, frames)
        table = embedding_table(embedding, graph.names, graph.labels, "train", "node", frames)
        section = pages.graph_map_section(graph, embedding, frames, centre, self.orientation_sentence, view_command)
        return MappedGraph(embedding, frames, centre, table, section)

    def _links(self, predicting: Sequence[FittedGraph]) -> LinkFigures:
        """Figures of every split whose training ended well."""
        rows = []
        for one in predicting:
            if one.failure is None and one.split is not None:
                judged = judge_split(one, self.data, one.split)
                rows.append({"seed": one.config.seed, **judged, **pages.disconnected(self.data, one.split)})
        return LinkFigures(rows)

    def outcome(
        self,
        trained: tuple[FittedGraph, MappedGraph, list[FittedGraph]],
        place: Place,
        named: DataSource,
        seconds: float,
        reporter: Reporter,
    ) -> Outcome:
        graph, config, (fitted, drawn, predicting) = self.data, self.config, trained
        embedding, frames, centre, last = drawn.embedding, drawn.frames, drawn.centre, fitted.last
        links, near = self._links(predicting), neighbourhood(embedding, graph, seed=config.seed)
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
        missing = None if place.links is None else self._missing(fitted, embedding, place.links, reporter)
        # Where hidden edges are to be found, only the encoder can place the nodes that lost theirs.
        known = comparable(given(replace(config, encoder="convolutions")))
        settings = {name: value for name, value in known.items() if name in self.settings}
        compare = reporter.command(named.compare_step(**settings))
        sections = {
            "map": drawn.section,
            "faithfulness": pages.graph_faithful_section(faithful),
            "links": pages.links_section(graph, links, near, compare, config.popular),
            "training": pages.graph_training_section(fitted, embedding),
            "missing": pages.missing_section(missing, graph.directed),
            "data": pages.graph_data_section(graph, config),
        }
        verdict = pages.verdict(links, near, faithful, accuracy)
        if self.remarks or self.draws_forest:
            following = Step("view", (str(place.folder),), why="the interactive map")
        elif not self.curvature_chosen:
            following = self.source.compare_step("is curvature worth it for this graph?", **settings)
        else:
            asked = str(place.folder), self.source.path
            following = Step("evaluate", asked, why="which of the edges does it find?")
        pictures = drawn.pictures | sections["training"].named_pictures
        report = f"Map of the graph {named.path}", verdict, warnings, list(sections.values()), pictures
        said = [verdict, pages.details(graph, embedding, links, near), centre.sentence(graph)]
        good = not links.splits or links.beats_rules
        table, files = drawn.table, {} if missing is None else {pages.LINKS: missing}
        return Outcome(
            fitted, embedding, frames, [table], len(table), summary, *report, said, following, good, files=files
        )

    def _missing(self, fitted: FittedGraph, embedding: Embedding, count: int, reporter: Reporter) -> pd.DataFrame:
        """The likeliest missing edges."""
        names, advance = self.data.names, reporter.counter("missing edges", self.data.n_nodes)
        pairs, probability = missing_links(fitted, self.data, count, embedding=embedding, progress=advance)
        source, target = names[pairs].T
        return pd.DataFrame({"source": source, "target": target, "probability": probability})

    def _centre(self, embedding: Embedding, frames: Sequence[Frame]) -> pages.Centre:
        """The middle of the map and of the graph."""
        closest = int(np.argmax(closeness(self.data, self.config.seed)))
        nearest = np.argsort(seen_radius(embedding, frames), kind="stable")[:6]
        return pages.Centre(nearest, closest, steps_from(self.data, closest))

    # --- comparison ---------------------------------------------------------------------------------------------------

    def plan_comparison(
        self, curvatures: Sequence[float], repeats: int, before: Mapping[str, Any] | None, tree: Path | None
    ) -> dict[str, Any]:
        graph, config = self.data, self.config
        if tree is not None:
            raise CurvaeError("a comparison on a graph takes no tree; leave out tree=…")
        split_edges(graph, seed=config.seed)
        self.trainings = repeats * len(curved_values(curvatures, repeats, config))
        return {"fingerprint": graph.fingerprint, "nodes": graph.n_nodes, "edges": graph.n_edges}

    def compare(self, curvatures: Sequence[float], repeats: int, **where: Any) -> GraphComparison:
        return compare_graph(self.config, self.data, curvatures, repeats, **where)

    def comparison_report(self, found: GraphComparison) -> tuple[list[str], list[str], list[Section]]:
        drawn = []
        for embedding in (found.embeddings[c] for c in (0.0, found.best)):
            frames = self.orient(embedding)
            drawn += pages.graph_pictures(self.data, embedding, frames, self._centre(embedding, frames))
        said = [
            "From the models of the first split, which have seen 85 % of the edges; all edges are drawn.",
            self.orientation_sentence,
        ]
        rules, warned = beside_comparison(self.data, found)
        parts = [
            Section("The maps", said, drawn),
            pages.graph_comparison_section(found),
            Section("Rules without a model", (), (), [rules]),
            pages.graph_data_section(self.data, self.config),
        ]
        return list(self.data.notes), [*pages.comparison_warnings(self.data), *warned], parts

    # --- maps ---------------------------------------------------------------------------------------------------------

    @classmethod
    def edges(cls, folder: Path, nodes: int) -> NDArray[np.int64]:
        edges = read_tensors(folder / MODEL)[0].get("edges")
        whole = edges is not None and edges.dim() == 2 and edges.shape[0] == 2 and edges.dtype == torch.int64
        if edges is None or not whole or (edges.numel() and not 0 <= int(edges.min()) <= int(edges.max()) < nodes):
            raise CurvaeError(f"{folder / MODEL} holds no edges between the nodes of the run; train again")
        return edges.numpy()


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
