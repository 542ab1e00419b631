"""What `curvae compare` asks of rows, and of a graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..data import Arrays, split_edges
from ..models.likelihoods import choose_likelihood
from ..report import Section, Table
from ..training import Config
from ..training.comparison import SAMPLES, Comparison, compare, plan
from ..training.config import Settings
from ..training.device import choose_device
from ..training.graphs import GraphComparison, GraphConfig, compare_graph
from ..training.migrations import automatic_before_3
from ..training.paired import curved_values, mean_interval
from ..training.rows import layout_of
from . import graph_pages, pages
from .folder import Given, GraphSource, Source
from .graphing import centre_of
from .timing import likelihood_seconds

__all__ = ["QUESTIONS", "GraphQuestion", "Question", "RowsQuestion"]


class Question(ABC):
    """Data, and the settings that are compared on them.

    Attributes:
        fingerprint: of the data.
        facts: what `config.json` says of them.
        size: in words.
        warnings: about them.
    """

    fingerprint: str
    facts: dict[str, Any]
    size: str
    warnings: Sequence[str]

    def go_on(self, facts: Mapping[str, Any]) -> None:  # noqa: B027 - there is nothing to decide for most
        """Decide what is left to the data as it was decided at the start, which these facts tell."""

    @abstractmethod
    def trainings(self, curvatures: Sequence[float], repeats: int) -> int:
        """How many there will be; raises for what cannot be compared."""

    @abstractmethod
    def judging(self, epoch: float, trainings: int, jobs: int, device: str) -> float:
        """Seconds that it takes to judge so many of them, about; `epoch` is what an epoch of one takes."""

    @abstractmethod
    def answer(self, curvatures: Sequence[float], repeats: int, **where: Any) -> Any:
        """The comparison."""

    @abstractmethod
    def remarks(self, found: Any) -> tuple[list[str], list[str]]:
        """What to say and what to warn of."""

    @abstractmethod
    def sections(self, found: Any) -> list[Section]:
        """Of the report."""


class RowsQuestion(Question):
    """Log-likelihood of rows kept apart."""

    def __init__(self, source: Source, config: Config) -> None:
        self.config = config
        self.data, _ = source.load()
        columns = int(self.data.x.shape[1])
        self.fingerprint, self.warnings = self.data.fingerprint, self.data.warnings
        layout = layout_of(Arrays.of(self.data))
        self.likelihood, _ = choose_likelihood(self.data.x, config.likelihood, layout)
        self.facts = {
            "fingerprint": self.fingerprint,
            "rows": len(self.data),
            "features": columns,
            "likelihood": self.likelihood,
        }
        self.size = f"{len(self.data)} rows, {columns} columns"

    def go_on(self, facts: Mapping[str, Any]) -> None:
        before = facts.get("likelihood") or automatic_before_3(self.data.x)
        if self.config.likelihood == "auto" and before != self.likelihood:
            self.config = replace(self.config, likelihood=before)

    def trainings(self, curvatures: Sequence[float], repeats: int) -> int:
        data = self.data
        self.values, self.splits = plan(self.config, data, curvatures, repeats, data.groups)
        return len(self.values) * len(self.splits)

    def judging(self, epoch: float, trainings: int, jobs: int, device: str) -> float:
        split, features = self.splits[0], int(self.data.x.shape[1])
        sizes = features, len(split.train), len(split.validation) + len(split.test), SAMPLES, -(-trainings // jobs)
        return trainings * likelihood_seconds(epoch, self.config, *sizes, choose_device(device))

    def answer(self, curvatures: Sequence[float], repeats: int, **where: Any) -> Comparison:
        data = self.data
        return compare(self.config, data, curvatures, repeats, groups=data.groups, **where)

    def remarks(self, found: Comparison) -> tuple[list[str], list[str]]:
        return [f"likelihood {found.config.likelihood}: {found.reason}"], _beaten(found)

    def sections(self, found: Comparison) -> list[Section]:
        data = self.data
        drawn = [
            pages.map_picture(found.embeddings[c], data.labels, label_name=data.label_name) for c in (0.0, found.best)
        ]
        return [
            Section("The maps", (), drawn),
            pages.comparison_section(found),
            pages.data_section(data, [pages.scaling_note(found.config)]),
        ]


def _beaten(found: Comparison) -> list[str]:
    """A warning when a linear model describes the test rows better."""
    linear = [repeat.pca for repeat in found.repeats if repeat.pca is not None]
    best = max(float(np.mean([repeat.test[c] for repeat in found.repeats])) for c in found.repeats[0].test)
    if not linear or np.mean(linear) <= best:
        return []
    return [
        f"PCA of the same dimension describes the test rows better ({np.mean(linear):.2f} against {best:.2f} nats a "
        "row): train longer, or widen hidden, before asking about curvature"
    ]


class GraphQuestion(Question):
    """How well edges kept apart are found."""

    def __init__(self, source: GraphSource, config: GraphConfig) -> None:
        self.config, self.graph = config, source.load()
        self.fingerprint, self.warnings = self.graph.fingerprint, self.graph.warnings
        self.facts = {"fingerprint": self.fingerprint, "nodes": self.graph.n_nodes, "edges": self.graph.n_edges}
        self.size = f"{self.graph.n_nodes:,} nodes, {self.graph.n_edges:,} edges"

    def trainings(self, curvatures: Sequence[float], repeats: int) -> int:
        split_edges(self.graph, seed=self.config.seed)
        return repeats * len(curved_values(curvatures, repeats, self.config.learn_curvature))

    def judging(self, epoch: float, trainings: int, jobs: int, device: str) -> float:
        return 0.0

    def answer(self, curvatures: Sequence[float], repeats: int, **where: Any) -> GraphComparison:
        return compare_graph(self.config, self.graph, curvatures, repeats, **where)

    def remarks(self, found: GraphComparison) -> tuple[list[str], list[str]]:
        return list(self.graph.notes), []

    def sections(self, found: GraphComparison) -> list[Section]:
        graph, seed = self.graph, self.config.seed
        drawn = [
            graph_pages.map_picture(graph, found.embeddings[c], centre_of(graph, found.embeddings[c], seed))
            for c in (0.0, found.best)
        ]
        said = ["From the models of the first split, which have seen 85 % of the edges; all edges are drawn."]
        return [Section("The maps", said, drawn), _links(found), graph_pages.data_section(graph)]


def _links(found: GraphComparison) -> Section:
    """AUC and AP by curvature."""

    def interval(part: str, measure: str, c: float) -> str:
        figures = [100 * getattr(getattr(r, part)[c], measure) for r in found.repeats]
        return "{:.1f} ± {:.1f}".format(*mean_interval(figures))

    values = list(found.repeats[0].test)
    cells = [(part, measure) for part in ("validation", "test") for measure in ("auc", "ap")]
    rows = [
        ["0 (flat)" if c == 0 else f"{c:g}", *(interval(part, measure, c) for part, measure in cells)] for c in values
    ]
    table = Table(
        ["c", *(f"{part}, {measure.upper()} %" for part, measure in cells)],
        rows,
        f"{len(found.repeats)} repeats, each with its own seed and split of the edges; ± is a 95 % interval over "
        "repeats. c is chosen by the AUC of validation edges, the verdict comes from test edges.",
        values.index(found.best) if found.outcome == "hyperbolic" else 0,
    )
    return Section("Edges kept apart, by curvature", (), (), [table])


QUESTIONS: dict[type[Given], tuple[type[Settings], Callable[[Any, Any], Question]]] = {
    Source: (Config, RowsQuestion),
    GraphSource: (GraphConfig, GraphQuestion),
}
"""the kind of settings for data, and what makes a question of both"""
