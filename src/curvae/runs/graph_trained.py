"""The model of a graph put to use: what `curvae embed`, `sample` and `evaluate` do with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ..data import Graph, memory
from ..data.graphs.node_features import is_table
from ..data.graphs.splits import absent_pairs
from ..data.messages import count as counted
from ..data.messages import quoted
from ..data.missing import Missing
from ..errors import CurvaeError
from ..hierarchy import graph_faithfulness
from ..training.graphs.baselines import contest
from ..training.graphs.evaluate import embed_graph, neighbourhood
from .folders import embedding_table, output_file, write_table
from .link_figures import remark
from .progress import Reporter
from .run import EmbeddedData, Sampled, ScoreFile, TrainedRun, missing_as_run
from .sources import GraphSource, Step

__all__ = ["TrainedGraph"]

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
