"""How well hidden edges of directed graphs are found, and which way they run: by the model and by rules without one.

python -m benchmarks.directed [NAME=FILE …]     writes results/directed.json

The advisers of computer scientists, two random graphs of networkx, and lists of directed edges in files: `mammals.csv`
of `benchmarks.wordnet`, dependencies of packages and the like. Three splits each, 85/5/10 % of the edges.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from curvae.data import Graph, load_graph, split_edges
from curvae.data.graphs.baselines import BASELINES
from curvae.training.graphs import GraphConfig, fit_graph
from curvae.training.graphs.baselines import judge_split
from curvae.training.storage import versions

SPLITS, DIM = 3, 5
FIGURES = ("auc", "ap", "auc_matched", "direction")
RESULT = Path("results/directed.json")

GRAPHS: dict[str, Callable[[], Graph]] = {
    "csphd": partial(load_graph, "csphd", directed=True),
    "gn": lambda: load_graph(nx.gn_graph(1000, seed=0), directed=True),
    "scale_free": lambda: load_graph(nx.DiGraph(nx.scale_free_graph(1500, seed=1)), directed=True),
}


def measure(graph: Graph) -> dict[str, Any]:
    """Figures of the model and the rules, one a split, and the CPU seconds of a training."""
    rows, seconds = [], []
    for seed in range(SPLITS):
        split, began = split_edges(graph, seed=seed), time.process_time()
        fitted = fit_graph(GraphConfig(dim=DIM, directed=True, seed=seed), graph, split=split)
        seconds.append(time.process_time() - began)
        rows.append(judge_split(fitted, graph, split)["test"])
    methods = {"model": rows, **{rule: [row["baselines"][rule] for row in rows] for rule in BASELINES}}
    figures = {method: {name: [row[name] for row in own] for name in FIGURES} for method, own in methods.items()}
    return {"nodes": graph.n_nodes, "edges": graph.n_edges, "cpu_seconds": float(np.mean(seconds)), "figures": figures}


def main(*files: str) -> None:
    given = dict(file.split("=", 1) for file in files)
    graphs = {**GRAPHS, **{name: partial(load_graph, path, directed=True) for name, path in given.items()}}
    found = {}
    for name, load in graphs.items():
        found[name] = measure(load())
        for method, figures in found[name]["figures"].items():
            means = (f"{figure} {100 * np.mean(values):.1f}" for figure, values in figures.items())
            print(name, method, *means, flush=True)
    RESULT.write_text(json.dumps({"graphs": found, "dim": DIM, "versions": versions()}, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
