"""What popularity, directions and weights add to a step of the training on a graph, as ratios in one run.

python -m benchmarks.graph_steps     writes results/graph_steps.json
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import torch

from curvae.data import Graph
from curvae.training.fitted import GraphConfig
from curvae.training.graph_problem import plan_graphs
from curvae.training.storage import versions

from .timing import Row, compare, show

BOUND = 1.1
SIZES = ((1_000, 4_000), (4_500, 16_000))  # a matrix, and a sparse one
RESULT = Path("results/graph_steps.json")


def hubs(nodes: int, edges: int, weighted: bool, directed: bool) -> Graph:
    """Make a graph in which few nodes have most of the edges."""
    random = np.random.default_rng(0)
    ends = (nodes * random.random((4 * edges, 2)) ** [1, 3]).astype(np.int64)
    ends = np.sort(ends[ends[:, 0] != ends[:, 1]], axis=1)
    found = np.sort(random.permutation(np.unique(ends @ [nodes, 1]))[:edges])
    weights = random.gamma(1.0, size=edges) + 0.1 if weighted else None
    return Graph(np.arange(nodes).astype(str), np.stack(np.divmod(found, nodes), axis=1), weights, directed=directed)


def step(config: GraphConfig, graph: Graph) -> Callable[[], object]:
    problem, tasks = plan_graphs([config], graph, asked="cpu")
    engine, epochs = problem.engine(tasks, problem.models(tasks)), count()
    return lambda: engine.epoch(next(epochs))


def measure(nodes: int, edges: int) -> list[Row]:
    """Popularity, and popularity with directions, against none; directions and weights against popularity alone."""
    base = GraphConfig(dim=5)
    steps = {
        "no popularity": step(replace(base, popularity="off"), hubs(nodes, edges, False, False)),
        "popularity": step(base, hubs(nodes, edges, False, False)),
        "directed edges": step(replace(base, directed=True), hubs(nodes, edges, False, True)),
        "weighted edges": step(base, hubs(nodes, edges, True, False)),
    }
    found = compare(steps, seconds=8.0, least=30, clock=time.process_time)
    against = [
        ("popularity", "no popularity"),
        ("directed edges", "no popularity"),
        ("directed edges", "popularity"),
        ("weighted edges", "popularity"),
    ]
    size = f"{nodes:,} nodes, {edges:,} edges"
    return [
        Row(f"{name} over {other}, {size}", 1, found[name], found[other], found[name] / found[other], BOUND)
        for name, other in against
    ]


def main() -> None:
    torch.set_num_threads(1)
    rows = [row for size in SIZES for row in measure(*size)]
    show("Step of the training on a graph, CPU time", rows)
    RESULT.write_text(json.dumps({"rows": [row.to_json() for row in rows], "versions": versions()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
