"""A large graph: time of a training, memory, and whether edges that were held out are found.

python -m benchmarks.graphs [cpu | cuda] [EPOCHS]     adds to results/bench_graph.json
python -m benchmarks.graphs cuda 800 FILE             writes there
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from curvae.data import Graph, split_edges
from curvae.training.fitted import GraphConfig
from curvae.training.graph_problem import fit_graph, link_figures
from curvae.training.storage import versions

from .stacks import resident

NODES, EDGES = 100_000, 1_000_000
RESULT = Path("results/bench_graph.json")


def tree_with_shortcuts(nodes: int = NODES, edges: int = EDGES, seed: int = 0) -> Graph:
    """Make a binary tree with edges between nodes that are near in leaf order: half to ancestors, half to cousins."""
    random = np.random.default_rng(seed)
    # Nodes are numbered by level, so neighbours in number are cousins.
    a = random.integers(1, nodes, 4 * edges)
    up = a >> random.integers(1, 4, len(a))
    beside = np.clip(a + random.integers(-20, 21, len(a)), 0, nodes - 1)
    b = np.where(random.random(len(a)) < 0.5, up, beside)
    keys = np.unique((np.minimum(a, b) * nodes + np.maximum(a, b))[a != b])
    parents = np.arange(1, nodes) // 2 * nodes + np.arange(1, nodes)
    parents = parents[parents // nodes != parents % nodes]
    others = random.permutation(np.setdiff1d(keys, parents))[: edges - len(parents)]
    chosen = np.sort(np.concatenate([parents, others]))
    return Graph(np.arange(nodes).astype(str), np.stack([chosen // nodes, chosen % nodes], 1))


def measure(device: str, epochs: int) -> dict[str, Any]:
    """Train once on 85 % of the edges."""
    graph = tree_with_shortcuts()
    split = split_edges(graph)
    config = GraphConfig(epochs=epochs)
    began = time.perf_counter()
    curve: list[list[float]] = []

    def progress(record: dict[str, Any], total: int) -> None:
        if record["epoch"] % max(1, total // 20) == 0:
            curve.append([record["epoch"], time.perf_counter() - began, record["elbo"], record["kl"]])
            print(*(f"{value:.4g}" for value in curve[-1]), f"{resident():.0f} MB", flush=True)

    fitted = fit_graph(config, graph, split=split, device=device, progress=progress)
    seconds = time.perf_counter() - began
    links = link_figures(fitted, graph)["test"]
    return {
        "nodes": graph.n_nodes,
        "edges": graph.n_edges,
        "epochs": epochs,
        "seconds": seconds,
        "seconds_a_step": (curve[-1][1] - curve[0][1]) / (curve[-1][0] - curve[0][0]),
        "resident_mb": resident(),
        "cuda_mb": torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else None,
        "test_auc": links.auc,
        "test_ap": links.ap,
        "curve": curve,
        "machine": f"one {torch.cuda.get_device_name()}" if device == "cuda" else f"{os.cpu_count()} CPU cores",
        "config": config.flat(),
        "versions": versions(),
    }


def main(device: str = "cpu", epochs: str = "100", path: str = str(RESULT)) -> None:
    file = Path(path)
    found = json.loads(file.read_text()) if file.exists() else {}
    found[device] = measure(device, int(epochs))
    file.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
