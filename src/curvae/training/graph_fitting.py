"""Train models of graphs: one, a whole list at once, or several to compare curvatures."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse

from ..data import EdgeSplit, Graph, split_edges
from ..errors import CurvaeError
from ..models import FermiDirac, GraphVAE
from ..models.graph_vae import exact, pair_count
from .comparison import Comparison, ComparisonPlan, compare_splits, curved_values
from .config import GraphConfig
from .fitting import train_many, train_one
from .graph_evaluate import embed_graph, hidden_links
from .graph_problem import (
    DENSE,
    FittedGraph,
    GraphEngine,
    Observed,
    build_graph_model,
    feature_scaling,
    listed,
)
from .stacks import Judged, ModelInTraining, Problem, Task, require_one_each

__all__ = ["GraphComparison", "GraphProblem", "compare_graph", "fit_graph", "fit_graphs", "plan_graphs"]


# Nodes of a graph up to which models of products, each of which holds all pairs in memory, are trained together.
_TOGETHER = 256

# Validation edges whose AUC is followed during the training.
_WATCHED = 1 << 16

Build = Callable[[GraphConfig, int, int | None], GraphVAE]


@dataclass(frozen=True, eq=False)
class GraphTask(Task):
    """A model of a graph to be trained; `sizes` are nodes, edges that are trained on, and features, `sparse` those that
    no stack of models can share."""

    config: GraphConfig
    split: EdgeSplit | None
    sizes: tuple[Any, ...]
    sparse: bool = False

    @property
    def architecture(self) -> Any:
        """What the models of one stack have in common; a large graph is trained alone."""
        nodes = self.sizes[0]
        if self.config.pairs == "balanced":
            together = nodes <= DENSE
        else:
            together = nodes <= _TOGETHER if listed(self.config) else exact(nodes)
        return self.config.architecture, self.sizes, None if together and not self.sparse else self.place


def plan_graphs(
    configs: Sequence[GraphConfig],
    graphs: Graph | Sequence[Graph],
    splits: Sequence[EdgeSplit | None] | None = None,
    **problem: Any,
) -> tuple[GraphProblem, list[GraphTask]]:
    """A task for every configuration, and the problem that they belong to.

    Arguments:
        configs, graphs, splits: as of `curvae.training.fit_graphs`.
        problem: further arguments of `GraphProblem`.
    """
    each = [graphs] * len(configs) if isinstance(graphs, Graph) else list(graphs)
    require_one_each(configs, graphs=each, splits=splits)
    distinct = list({id(graph): graph for graph in each}.values())
    numbers = {id(graph): i for i, graph in enumerate(distinct)}
    tasks = []
    for i, (config, graph) in enumerate(zip(configs, each, strict=True)):
        split = None if splits is None else splits[i]
        edges = graph.n_edges if split is None else len(split.train)
        sizes = graph.n_nodes, edges, None if graph.features is None else graph.features.shape[1]
        if graph.directed != config.directed:
            kind = "a" if graph.directed else "no"
            raise CurvaeError(
                f"edges of the graph have {kind} direction; set directed={graph.directed} in the settings"
            )
        label, sparse = Task.label(i, len(configs), config), issparse(graph.features)
        tasks.append(GraphTask(i, label, config, numbers[id(graph)], split, sizes, sparse))
    return GraphProblem(distinct, **problem), tasks


@dataclass(frozen=True)
class GraphProblem(Problem[GraphTask, FittedGraph]):
    """Models of graphs; `sources` are the graphs."""

    build: Build = build_graph_model

    remedy = "lower hidden or samples"

    def fingerprints(self, task: GraphTask, known: dict[Any, str]) -> dict[str, str]:
        split = "" if task.split is None else hashlib.sha256(task.split.train.astype("<i8").tobytes()).hexdigest()
        return {"graph": self.sources[task.source].fingerprint, "split": split}

    def models(self, tasks: Sequence[GraphTask]) -> list[GraphVAE]:
        made = []
        for task in tasks:
            nodes, edges, features = task.sizes
            model = self.build(task.config, nodes, features)
            if task.config.pairs == "balanced" and isinstance(model.edges, FermiDirac):
                # Edges are as rare among the pairs of a fresh model as in the graph.
                model.edges.lower(math.log(max(1, pair_count(nodes, model.directed) - edges) / max(1, edges)))
            made.append(model.to(self.device, self.dtype))
        return made

    def engine(self, tasks: Sequence[GraphTask], models: Sequence[GraphVAE]) -> GraphEngine:
        shown, watched = [], []
        for task in tasks:
            graph, split = self.sources[task.source], task.split
            edges = None if split is None else split.train
            scaling = None if graph.features is None else feature_scaling(graph.features)
            shown.append(Observed.of(graph, edges, scaling, self.device, self.dtype))
            if split is not None and task.patience is not None:
                # Of very many pairs an even choice is looked at, which tells as much.
                parts = (
                    part[:: max(1, -(-len(part) // _WATCHED))] for part in (split.validation, split.validation_absent)
                )
                pairs = np.ascontiguousarray(np.concatenate(list(parts)).T)
                watched.append(torch.from_numpy(pairs).to(self.device))
        return GraphEngine(models, [task.config for task in tasks], shown, watched)

    def result(self, task: GraphTask, trained: ModelInTraining) -> FittedGraph:
        features = self.sources[task.source].features
        scaling = None if features is None else feature_scaling(features)
        return FittedGraph(task.config, trained.model, scaling, task.split, trained.history, trained.failure)

    def judge(self, tasks: Sequence[GraphTask], fitted: Sequence[FittedGraph]) -> list[Judged]:
        judged = []
        for task, one in zip(tasks, fitted, strict=True):
            assert task.split is not None  # a comparison hides edges
            embedding = embed_graph(one, self.sources[task.source])
            links = hidden_links(embedding, task.split)
            judged.append(Judged(links["validation"], links["test"], embedding, one.failure))
        return judged


def fit_graph(
    config: GraphConfig,
    graph: Graph,
    *,
    split: EdgeSplit | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    **training: Any,
) -> FittedGraph:
    """Train a model of a graph.

    Arguments:
        config: what to train.
        graph: with or without features of its nodes, which are centred and scaled.
        split: its edges for training; all of them without one.
        device, dtype: as of `curvae.training.fit`.
        training: folder, resume and progress, as there.

    Example:
        >>> from curvae.data import load_graph
        >>> graph = load_graph([(i, (i - 1) // 2) for i in range(1, 31)])
        >>> fitted = fit_graph(GraphConfig(epochs=3), graph)
        >>> [record["epoch"] for record in fitted.history]
        [1, 2, 3]
    """
    problem, tasks = plan_graphs([config], graph, [split], asked=device, dtype=dtype)
    return train_one(problem, tasks, **training)


def fit_graphs(
    configs: Sequence[GraphConfig],
    graphs: Graph | Sequence[Graph],
    *,
    splits: Sequence[EdgeSplit | None] | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    build: Build = build_graph_model,
    **training: Any,
) -> list[FittedGraph]:
    """Train many models of graphs at once, each as `fit_graph` would train it alone; see `curvae.training.fit_many`.

    Arguments:
        configs: what to train.
        graphs: one for all of them, or one for each.
        splits: of each.
        build: makes a fresh model from a configuration, the number of nodes and of features, if they have any.
        device, dtype: as of `curvae.training.fit_many`.
        training: folder, resume, jobs, progress and warn, as there.
    """
    problem, tasks = plan_graphs(configs, graphs, splits, asked=device, dtype=dtype, build=build)
    return train_many(problem, tasks, **training)


@dataclass(frozen=True)
class GraphComparison(Comparison):
    """The result of `compare_graph`: scores are `Links`, differences those in AUC."""

    unit = "points of AUC"
    factor = 100.0
    gain_name = "gain_auc"


def compare_graph(
    config: GraphConfig,
    graph: Graph,
    curvatures: Sequence[float] = (0.3, 1.0),
    repeats: int = 5,
    *,
    device: str = "auto",
    jobs: int | None = None,
    **training: Any,
) -> GraphComparison:
    """Train curvature 0 and each of `curvatures` on `repeats` splits of the edges, and judge on edges kept apart.

    A split of which a model failed is left out.

    Arguments:
        config: settings shared by all models; its seed is the first repeat's. Its curvature, in a product that of every
            hyperbolic factor, is replaced by the values compared.
        graph: whose edges are split 85/5/10.
        curvatures: values of c > 0 to choose from.
        repeats: splits and seeds, at least 3.
        device, jobs: as of `curvae.training.compare`.
        training: folder, resume, progress and warn, as there.
    """
    values = curved_values(curvatures, repeats, config)
    splits = [split_edges(graph, seed=config.seed + i) for i in range(repeats)]
    planned = ComparisonPlan.make(partial(plan_graphs, graphs=graph, asked=device), config, values, splits)
    return compare_splits(GraphComparison, planned, jobs=jobs, **training)
