"""How long `curvae graph` takes for graphs with hubs, and whether long training finds fewer hidden edges.

python -m benchmarks.graph_speed medium     4,500 nodes, 16,000 edges: a map and two splits
python -m benchmarks.graph_speed large      the same of 100,000 nodes and 1,000,000 edges
python -m benchmarks.graph_speed curve      AUC of validation edges in the training, of a small graph without geometry
python -m benchmarks.graph_speed long       the same of the large graph

Each adds to results/graph_speed.json.

The commands run by themselves, with as many threads as there are cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from curvae.data import Graph, load_graph, split_edges
from curvae.training.graphs import GraphConfig, fit_graph, link_figures
from curvae.training.storage import versions

from .graph_steps import hubs

RESULT = Path("results/graph_speed.json")
SIZES = {"medium": (4_500, 16_000, 60.0, None), "large": (100_000, 1_000_000, 600.0, 4096.0)}
"""nodes, edges, and the seconds and megabytes that are allowed"""


def measure(nodes: int, edges: int, seconds: float, megabytes: float | None) -> dict[str, Any]:
    """Wall and CPU seconds and peak memory of `curvae graph` with two splits."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "edges.csv")
        np.savetxt(table, hubs(nodes, edges, False, False).edges, "%d", ",")
        words = ["graph", str(table), "--splits", "2", "-o", str(Path(folder, "run")), "-q"]
        plain = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        began = time.perf_counter()
        process = subprocess.Popen([sys.executable, "-m", "curvae", *words], env=plain)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        if status:
            raise SystemExit(f"curvae graph failed with status {status}")
        summary = json.loads(Path(folder, "run", "config.json").read_text())["summary"]
    peak = used.ru_maxrss / 1024
    return {
        "nodes": nodes,
        "edges": edges,
        "seconds": wall,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "peak_mb": peak,
        "allowed": {"seconds": seconds, "mb": megabytes},
        "holds": wall <= seconds and (megabytes is None or peak <= megabytes),
        "auc": [split["test"]["auc"] for split in summary["splits"]],
        "cores": os.cpu_count(),
        "versions": versions(),
    }


CURVES: dict[str, Callable[[], Graph]] = {
    "curve": lambda: load_graph(nx.barabasi_albert_graph(10_000, 5, seed=0)),
    "long": lambda: hubs(*SIZES["large"][:2], False, False),
}
"""graphs in which degrees are all there is to know"""


def curve(graph: Graph) -> dict[str, Any]:
    """AUC of validation edges, to the last step: what is learned besides degrees is chance."""
    config = GraphConfig()
    fitted = fit_graph(GraphConfig(patience=config.epochs), graph, split=split_edges(graph))
    looks = [[r["epoch"], r["validation_auc"]] for r in fitted.history if "validation_auc" in r]
    return {
        "nodes": graph.n_nodes,
        "edges": graph.n_edges,
        "curve": looks,
        "best": max(auc for _, auc in looks),
        "last": looks[-1][1],
        "kept_step": fitted.last["epoch"],
        "test_auc": link_figures(fitted, graph)["test"].auc,
        "versions": versions(),
    }


def main(what: str, path: str = str(RESULT)) -> None:
    file = Path(path)
    found = json.loads(file.read_text()) if file.exists() else {}
    found[what] = curve(CURVES[what]()) if what in CURVES else measure(*SIZES[what])
    file.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps({name: value for name, value in found[what].items() if name != "curve"}))


if __name__ == "__main__":
    main(*sys.argv[1:])
