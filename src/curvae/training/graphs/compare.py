"""Is a curved latent space better for this graph? An answer with its uncertainty.

Each repeat hides other edges. On validation edges it chooses one curvature c > 0; on test edges, which took no part in
that, it compares the chosen model with the one of curvature 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...data import Graph, split_edges
from ..evaluate import Embedding, Stability, stability
from ..pace import Estimate
from ..paired import Outcome, Paired, by_split, curved_values
from ..problems import Listener, Warn
from ..stacks import train_stack
from ..workers import processes, seen_by_workers, spread
from .config import GraphConfig
from .evaluate import Links, embed_graph, hidden_links
from .fitting import GraphProblem, GraphTask, plan_graphs

__all__ = ["GraphComparison", "GraphRepeat", "compare_graph"]


@dataclass(frozen=True)
class GraphRepeat:
    """Figures of one split, by curvature."""

    seed: int
    validation: dict[float, Links]
    test: dict[float, Links]

    @property
    def chosen(self) -> float:
        """The c > 0 that is best on the validation edges."""
        return max((c for c in self.validation if c > 0), key=lambda c: self.validation[c].auc)

    @property
    def difference(self) -> float:
        """What the chosen curvature gains in AUC on test edges."""
        return self.test[self.chosen].auc - self.test[0.0].auc


@dataclass(frozen=True)
class GraphComparison:
    """The result of `compare_graph`."""

    repeats: list[GraphRepeat]
    ratio: float
    """test edges over training edges, which corrects the variance"""
    stability: dict[float, Stability | None]
    embeddings: dict[float, Embedding]
    """of the first repeat"""
    config: GraphConfig

    @property
    def paired(self) -> Paired:
        """The differences in AUC on test edges."""
        return Paired([r.difference for r in self.repeats], self.ratio)

    @property
    def outcome(self) -> Outcome:
        return self.paired.outcome

    @property
    def verdict(self) -> str:
        """The answer in one sentence."""
        return self.paired.verdict("points of AUC", self.best, 100.0)

    @property
    def best(self) -> float:
        """The c > 0 with the best mean on validation edges."""
        curved = [c for c in self.repeats[0].validation if c > 0]
        return max(curved, key=lambda c: float(np.mean([r.validation[c].auc for r in self.repeats])))

    def to_json(self) -> dict[str, Any]:
        """Every figure, as JSON values."""
        paired = self.paired
        return {
            "outcome": self.outcome,
            "verdict": self.verdict,
            "gain_auc": paired.mean,
            "interval": paired.interval,
            "p_value": paired.p_value,
            "best_curvature": self.best,
            "repeats": [
                {
                    "seed": r.seed,
                    "chosen": r.chosen,
                    "difference": r.difference,
                    "validation": {str(c): asdict(links) for c, links in r.validation.items()},
                    "test": {str(c): asdict(links) for c, links in r.test.items()},
                }
                for r in self.repeats
            ],
            "stability": {str(c): None if s is None else asdict(s) for c, s in self.stability.items()},
        }


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
        config: settings shared by all models; its curvature is ignored, its seed is the first repeat's.
        graph: whose edges are split 85/5/10.
        curvatures: values of c > 0 to choose from.
        repeats: splits and seeds, at least 3.
        device, jobs, scheduler, folder, resume, progress, warn, estimate: as of `curvae.training.compare`.
    """
    values = curved_values(curvatures, repeats, config.learn_curvature)
    splits = [split_edges(graph, seed=config.seed + i) for i in range(repeats)]
    cells = [(i, c) for i in range(repeats) for c in values]
    folder = seen_by_workers(folder, jobs, scheduler)
    tasks, known = plan_graphs(
        [replace(config, curvature=c, seed=config.seed + i) for i, c in cells],
        [graph] * len(cells),
        [splits[i] for i, _ in cells],
        folder,
        resume,
    )
    results = spread(
        tasks,
        partial(_judged, GraphProblem([graph], device), folder=folder, resume=resume),
        jobs=jobs or processes(device),
        scheduler=scheduler,
        begun=known,
        progress=progress,
        warn=warn,
        estimate=estimate,
    )
    kept = by_split(results, values, config.seed, warn)
    found = [
        GraphRepeat(config.seed + i, *({c: r.links[part] for c, r in mine.items()} for part in ("validation", "test")))
        for i, mine in kept.items()
    ]
    maps = {c: [mine[c].embedding for mine in kept.values()] for c in values}
    return GraphComparison(
        found,
        len(splits[0].test) / len(splits[0].train),
        {c: stability(m) for c, m in maps.items()},
        {c: m[0] for c, m in maps.items()},
        config,
    )


@dataclass(frozen=True)
class _Result:
    links: dict[str, Links]
    embedding: Embedding
    failure: str | None


def _judged(
    problem: GraphProblem, tasks: Sequence[GraphTask], listener: Listener, folder: Path | None, resume: bool
) -> list[_Result]:
    """A stack, trained and judged where it was trained: only figures and maps travel."""
    fitted = train_stack(problem, tasks, listener, folder=folder, resume=resume)
    results = []
    for task, one in zip(tasks, fitted, strict=True):
        assert task.split is not None  # a comparison hides edges
        embedding = embed_graph(one, problem.graphs[task.source])
        results.append(_Result(hidden_links(embedding, task.split), embedding, one.failure))
    return results
