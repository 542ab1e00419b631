"""Training: of one model of a graph, or of a whole list of them at once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ...data import EdgeSplit, Graph, memory
from ...errors import CurvaeError
from ...models import FermiDirac, GeodesicEdges, GraphVAE, Posterior
from ...models.pairs import exact
from ...nn import GraphEncoder
from ..build import make_space, seeded
from ..checkpoints import begun
from ..device import choose_device
from ..fitted import Record
from ..pace import Clock, Estimate
from ..problems import Listener, Member, Warn
from ..rows import Scaling
from ..stacks import train_stack
from ..workers import seen_by_workers, spread
from .config import GraphConfig
from .engine import GraphEngine, Observed

__all__ = [
    "START",
    "FittedGraph",
    "GraphProblem",
    "build_graph_model",
    "fit_graph",
    "fit_graphs",
    "plan_graphs",
    "require_buildable_graph",
]

START = 0.4
"""σ of every node at first.

Small beside the distances over which the probability of an edge falls: with σ near 0.7, as softplus(0) would have it,
nodes that cannot be told apart yet are pressed together; with 0.2 the plane fails on some graphs. Found by trying
starts from 0.2 to 0.69 on validation edges; results/paper/table4.json has what these two give.
"""


@dataclass
class FittedGraph:
    """A trained model of a graph with what is needed to use it."""

    config: GraphConfig
    model: GraphVAE
    scaling: Scaling | None
    """of the features, where there are any"""
    split: EdgeSplit | None
    """which edges it was trained on; all of them without one"""
    history: list[Record]
    failure: str | None = None
    """why the training ended early; the weights are those of the last good epoch"""

    def double(self) -> FittedGraph:
        """The same with networks in float64."""
        return self if self.model.dtype == torch.float64 else replace(self, model=deepcopy(self.model).double())

    def seen(self, graph: Graph) -> Observed:
        """What the model was trained on."""
        kept = None if self.split is None else self.split.train
        return Observed.of(graph, kept, self.scaling, self.model.device, self.model.dtype)

    @property
    def last(self) -> Record:
        """Record of the last epoch."""
        return self.history[-1]


def require_buildable_graph(config: GraphConfig, nodes: int, features: int | None = None) -> None:
    """Raise for a model that cannot be built, without building it; arguments as of `build_graph_model`."""
    inputs = nodes if features is None else features
    memory.require(
        16 * inputs * config.hidden[0] + nodes * (64 * sum(config.hidden) + 8 * config.samples * config.dim),
        f"a model of {nodes:,} nodes with {inputs:,} inputs",
        fix="lower hidden or samples",
    )
    make_space(config)


def build_graph_model(config: GraphConfig, nodes: int, features: int | None = None) -> GraphVAE:
    """A model with weights drawn from the configuration's seed.

    Arguments:
        config: its settings.
        nodes: of the graph.
        features: of a node, if it has any.
    """
    require_buildable_graph(config, nodes, features)
    inputs = nodes if features is None else features
    with seeded(config.seed):
        return GraphVAE(
            GraphEncoder(inputs, config.hidden),
            Posterior(config.hidden[-1], make_space(config)).start(START),
            GeodesicEdges() if config.edges == "geodesic" else FermiDirac(),
            config.weight,
        )


Build = Callable[[GraphConfig, int, int | None], GraphVAE]


@dataclass(frozen=True, eq=False)
class GraphTask:
    """A model of a graph to be trained."""

    place: int
    name: str
    config: GraphConfig
    source: int
    """which of the graphs"""
    split: EdgeSplit | None
    sizes: tuple[Any, ...]
    """of the graph: nodes, edges that are trained on, features"""
    data: Mapping[str, str] = field(default_factory=dict)
    """fingerprints, by name, that a checkpoint keeps"""

    @property
    def architecture(self) -> Any:
        """What the models of one stack have in common; a large graph is trained alone."""
        return self.config.architecture, self.sizes, None if exact(self.sizes[0]) else self.place


def fit_graph(
    config: GraphConfig,
    graph: Graph,
    *,
    split: EdgeSplit | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    folder: Path | None = None,
    resume: bool = False,
    progress: Callable[[Record, int], None] = lambda record, epochs: None,
    estimate: Callable[[Estimate], None] = lambda estimate: None,
) -> FittedGraph:
    """Train a model of a graph.

    Arguments:
        config: what to train.
        graph: with or without features of its nodes, which are centred and scaled.
        split: its edges for training; all of them without one.
        device, dtype, folder, resume, progress, estimate: as of `curvae.training.fit`.

    Example:
        >>> from curvae.data import load_graph
        >>> graph = load_graph([(i, (i - 1) // 2) for i in range(1, 31)])
        >>> fitted = fit_graph(GraphConfig(epochs=3), graph)
        >>> [record["epoch"] for record in fitted.history]
        [1, 2, 3]
    """
    tasks, _ = plan_graphs([config], [graph], [split], folder, resume)
    listener = Listener(lambda place, record: progress(record, config.epochs), Clock([config.epochs], estimate).reached)
    (fitted,) = train_stack(GraphProblem([graph], device, dtype), tasks, listener, folder=folder, resume=resume)
    if fitted.failure is not None:
        raise CurvaeError(fitted.failure)
    return fitted


def fit_graphs(
    configs: Sequence[GraphConfig],
    graphs: Graph | Sequence[Graph],
    *,
    splits: Sequence[EdgeSplit | None] | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    folder: Path | None = None,
    resume: bool = False,
    jobs: int = 1,
    scheduler: str | None = None,
    build: Build = build_graph_model,
    progress: Callable[[int, int], None] = lambda done, total: None,
    warn: Warn = lambda text: None,
    estimate: Callable[[Estimate], None] = lambda estimate: None,
) -> list[FittedGraph]:
    """Train many models of graphs at once, each as `fit_graph` would train it alone; see `curvae.training.fit_many`.

    Arguments:
        configs: what to train.
        graphs: one for all of them, or one for each.
        splits: of each.
        build: makes a fresh model from a configuration, the number of nodes and of features, if they have any.
        device, dtype, folder, resume, jobs, scheduler, progress, warn, estimate: as of `curvae.training.fit_many`.
    """
    if not configs:
        raise CurvaeError("there is nothing to train: give one or more configurations")
    each = [graphs] * len(configs) if isinstance(graphs, Graph) else list(graphs)
    parts = [None] * len(configs) if splits is None else list(splits)
    for name, entries in (("graphs", each), ("splits", parts)):
        if len(entries) != len(configs):
            raise CurvaeError(f"{name} must hold one entry a configuration: {len(configs)}, got {len(entries)}")
    folder = seen_by_workers(folder, jobs, scheduler)
    tasks, known = plan_graphs(configs, each, parts, folder, resume)
    problem = GraphProblem(list({id(graph): graph for graph in each}.values()), device, dtype, build)
    return spread(
        tasks,
        partial(train_stack, problem, folder=folder, resume=resume),
        jobs=jobs,
        scheduler=scheduler,
        begun=known,
        progress=progress,
        warn=warn,
        estimate=estimate,
    )


def plan_graphs(
    configs: Sequence[GraphConfig],
    graphs: Sequence[Graph],
    splits: Sequence[EdgeSplit | None],
    folder: Path | None = None,
    resume: bool = False,
) -> tuple[list[GraphTask], list[list[int]]]:
    """A task for every configuration, with its graph and split, and which are in checkpoints of the folder."""
    numbers = {key: i for i, key in enumerate(dict.fromkeys(map(id, graphs)))}
    tasks = []
    for i, (config, graph, split) in enumerate(zip(configs, graphs, splits, strict=True)):
        name = f"model {i + 1} of {len(configs)} (seed {config.seed}, c = {config.curvature:g})"
        edges = graph.n_edges if split is None else len(split.train)
        features = None if graph.features is None else graph.features.shape[1]
        data = {} if folder is None else {"graph": graph.fingerprint, "split": _digest(split)}
        tasks.append(GraphTask(i, name, config, numbers[id(graph)], split, (graph.n_nodes, edges, features), data))
    return tasks, [] if folder is None else begun(folder, resume, len(tasks))


def _digest(split: EdgeSplit | None) -> str:
    return "" if split is None else hashlib.sha256(split.train.astype("<i8").tobytes()).hexdigest()


@dataclass(frozen=True)
class GraphProblem:
    """Models of graphs: what `train_stack` asks of them."""

    graphs: Sequence[Graph]
    """the distinct graphs of all tasks"""
    asked: torch.device | str = "cpu"
    """the device, or "auto"."""
    dtype: torch.dtype = torch.float32
    build: Build = build_graph_model

    remedy = "lower hidden or samples"

    @property
    def device(self) -> torch.device:
        return choose_device(str(self.asked))

    def models(self, tasks: Sequence[GraphTask]) -> list[GraphVAE]:
        return [
            self.build(task.config, nodes, features).to(self.device, self.dtype)
            for task in tasks
            for nodes, _, features in [task.sizes]
        ]

    def engine(self, tasks: Sequence[GraphTask], models: Sequence[GraphVAE]) -> GraphEngine:
        shown = [
            Observed.of(
                self.graphs[task.source],
                None if task.split is None else task.split.train,
                self._scaling(task),
                self.device,
                self.dtype,
            )
            for task in tasks
        ]
        return GraphEngine(models, [task.config for task in tasks], shown)

    def result(self, task: GraphTask, member: Member) -> FittedGraph:
        return FittedGraph(task.config, member.model, self._scaling(task), task.split, member.history, member.failure)

    def _scaling(self, task: GraphTask) -> Scaling | None:
        features = self.graphs[task.source].features
        return None if features is None else Scaling.standard(features)
