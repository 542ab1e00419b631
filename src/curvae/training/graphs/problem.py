"""Models of graphs: what trains and judges them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...data import EdgeSplit, Graph
from ...models import GraphVAE
from ...models.pairs import exact
from ..problems import Judged, ModelInTraining, Problem, Task, require_one_each
from ..rows import Scaling
from .build import build_graph_model
from .config import GraphConfig
from .engine import GraphEngine, Observed
from .evaluate import embed_graph, hidden_links
from .fitted import FittedGraph

__all__ = ["Build", "GraphProblem", "GraphTask", "plan_graphs"]

# Nodes of a graph up to which models of products, each of which holds all pairs in memory, are trained together.
_TOGETHER = 256

Build = Callable[[GraphConfig, int, int | None], GraphVAE]


@dataclass(frozen=True, eq=False)
class GraphTask(Task):
    """A model of a graph to be trained."""

    config: GraphConfig
    split: EdgeSplit | None
    sizes: tuple[Any, ...]
    """of the graph: nodes, edges that are trained on, features"""

    @property
    def architecture(self) -> Any:
        """What the models of one stack have in common; models of a large graph are trained one at a time."""
        nodes = self.sizes[0]
        together = exact(nodes) if len(self.config.factors) == 1 else nodes <= _TOGETHER
        return self.config.architecture, self.sizes, None if together else self.place


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
        tasks.append(GraphTask(i, Task.label(i, len(configs), config), config, numbers[id(graph)], split, sizes))
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
        return [
            self.build(task.config, nodes, features).to(self.device, self.dtype)
            for task in tasks
            for nodes, _, features in [task.sizes]
        ]

    def engine(self, tasks: Sequence[GraphTask], models: Sequence[GraphVAE]) -> GraphEngine:
        shown = [
            Observed.of(
                self.sources[task.source],
                None if task.split is None else task.split.train,
                self._scaling(task),
                self.device,
                self.dtype,
            )
            for task in tasks
        ]
        return GraphEngine(models, [task.config for task in tasks], shown)

    def result(self, task: GraphTask, trained: ModelInTraining) -> FittedGraph:
        return FittedGraph(
            task.config, trained.model, self._scaling(task), task.split, trained.history, trained.failure
        )

    def _scaling(self, task: GraphTask) -> Scaling | None:
        features = self.sources[task.source].features
        return None if features is None else Scaling.standard(features)

    def judge(self, tasks: Sequence[GraphTask], fitted: Sequence[FittedGraph]) -> list[Judged]:
        judged = []
        for task, one in zip(tasks, fitted, strict=True):
            assert task.split is not None  # a comparison hides edges
            embedding = embed_graph(one, self.sources[task.source])
            links = hidden_links(embedding, task.split)
            judged.append(Judged(links["validation"], links["test"], embedding, one.failure))
        return judged
