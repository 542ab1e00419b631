"""Training of models of graphs: of one, of a whole list at once, or to compare curvatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ...data import EdgeSplit, Graph, split_edges
from ..comparison import Comparison, Repeat, compare_splits
from ..fitted import Record
from ..fitting import train_many, train_one
from ..pace import Estimate
from ..paired import curved_values
from ..problems import Warn
from .build import build_graph_model
from .config import GraphConfig
from .fitted import FittedGraph
from .problem import Build, plan_graphs

__all__ = ["GraphComparison", "compare_graph", "fit_graph", "fit_graphs"]


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
    problem, tasks = plan_graphs([config], graph, [split], asked=device, dtype=dtype)
    return train_one(problem, tasks, folder, resume, progress, estimate)


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
    problem, tasks = plan_graphs(configs, graphs, splits, asked=device, dtype=dtype, build=build)
    where: dict[str, Any] = {"folder": folder, "resume": resume, "jobs": jobs, "scheduler": scheduler}
    return train_many(problem, tasks, **where, progress=progress, warn=warn, estimate=estimate)


@dataclass(frozen=True)
class GraphComparison(Comparison):
    """The result of `compare_graph`: scores are `Links`, differences those in AUC."""

    unit = "points of AUC"
    factor = 100.0
    gain_name = "gain_auc"

    def _facts(self) -> dict[str, Any]:
        return {}

    def _beside(self, repeat: Repeat) -> dict[str, Any]:
        return {}


def compare_graph(
    config: GraphConfig,
    graph: Graph,
    curvatures: Sequence[float] = (0.3, 1.0),
    repeats: int = 5,
    *,
    device: str = "auto",
    jobs: int | None = None,
    scheduler: str | None = None,
    folder: Path | None = None,
    resume: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    warn: Warn = lambda text: None,
    estimate: Callable[[Estimate], None] = lambda estimate: None,
) -> GraphComparison:
    """Train curvature 0 and each of `curvatures` on `repeats` splits of the edges, and judge on edges kept apart.

    A split of which a model failed is left out.

    Arguments:
        config: settings shared by all models; its seed is the first repeat's. Its curvature, in a product that of every
            hyperbolic factor, is replaced by the values compared.
        graph: whose edges are split 85/5/10.
        curvatures: values of c > 0 to choose from.
        repeats: splits and seeds, at least 3.
        device, jobs, scheduler, folder, resume, progress, warn, estimate: as of `curvae.training.compare`.
    """
    values = curved_values(curvatures, repeats, config)
    splits = [split_edges(graph, seed=config.seed + i) for i in range(repeats)]
    plan = partial(plan_graphs, graphs=graph, asked=device)
    where: dict[str, Any] = {"folder": folder, "resume": resume, "jobs": jobs, "scheduler": scheduler}
    told: dict[str, Any] = {"progress": progress, "warn": warn, "estimate": estimate}
    return compare_splits(GraphComparison, plan, config, values, splits, **where, **told)[0]
