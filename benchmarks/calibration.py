"""How often does `compare` see a hierarchy where there is none?

python -m benchmarks.calibration [--kinds KIND …] [--runs 100] [--out FILE]

Flat Gaussian rows of two kinds: independent columns, and a linear model with two factors, for which the ordinary VAE is
the right one. Graphs of three kinds: random edges, random edges with hubs, and points of the plane joined to those near
them. Each kind is added to `results/compare_calibration.json`.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import joblib
import networkx as nx
import numpy as np
import torch
from scipy import stats

from curvae.data import Graph, load_graph
from curvae.training import Config, compare
from curvae.training.fitted import GraphConfig
from curvae.training.graph_problem import compare_graph
from curvae.training.storage import read_json, versions, write_json

ROWS, COLUMNS = 150, 10
NODES, EDGES = 200, 600
CURVATURES = (0.3, 1.0)
REPEATS, SAMPLES = 5, 100
RESULT = Path("results/compare_calibration.json")


def flat_rows(factors: int, seed: int) -> np.ndarray:
    """Noise, on top of a linear model with some factors."""
    rng = np.random.default_rng([seed, 11])
    noise = rng.normal(size=(ROWS, COLUMNS))
    return rng.normal(size=(ROWS, factors)) @ rng.normal(size=(factors, COLUMNS)) + 0.5 * noise if factors else noise


FIRST, SECOND = np.triu_indices(NODES, 1)  # all pairs of nodes


def _joined(chosen: np.ndarray) -> Graph:
    """Make the graph of some of the pairs."""
    return load_graph(nx.Graph(zip(FIRST[chosen].tolist(), SECOND[chosen].tolist(), strict=True)))


def random_graph(hubs: bool, seed: int) -> Graph:
    """Edges drawn by the weights of their ends, which are equal, or fall as those of a power law."""
    rng = np.random.default_rng([seed, 12])
    weights = (1.0 + np.arange(NODES)) ** -0.6 if hubs else np.ones(NODES)
    chances = weights[FIRST] * weights[SECOND]
    return _joined(rng.choice(len(FIRST), EDGES, replace=False, p=chances / chances.sum()))


def plane_graph(seed: int) -> Graph:
    """Points of a square, of which the closest pairs are joined."""
    points = np.random.default_rng([seed, 13]).random((NODES, 2))
    return _joined(np.argsort(((points[FIRST] - points[SECOND]) ** 2).sum(1))[:EDGES])


def _of_rows(x: np.ndarray, seed: int) -> Any:
    return compare(Config(seed=seed), x, CURVATURES, REPEATS, samples=SAMPLES, jobs=1)


def _of_graph(graph: Graph, seed: int) -> Any:
    return compare_graph(GraphConfig(seed=seed), graph, CURVATURES, REPEATS, jobs=1)


KINDS: dict[str, tuple[str, Callable[[int], Any], Callable[[Any, int], Any]]] = {
    "noise": (f"{ROWS} rows, {COLUMNS} columns", lambda seed: flat_rows(0, seed), _of_rows),
    "two factors": (f"{ROWS} rows, {COLUMNS} columns", lambda seed: flat_rows(2, seed), _of_rows),
    "random graph": (f"{NODES} nodes, {EDGES} edges", lambda seed: random_graph(False, seed), _of_graph),
    "random graph with hubs": (f"{NODES} nodes, {EDGES} edges", lambda seed: random_graph(True, seed), _of_graph),
    "graph in the plane": (f"{NODES} nodes, {EDGES} edges", plane_graph, _of_graph),
}
"""what the data are, how they are made of a seed, and how curvatures are compared on them"""


def one(kind: str, seed: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    _, make, judge = KINDS[kind]
    found = judge(make(seed), 1000 * seed)
    return {"seed": seed, "outcome": found.outcome, "gain": found.gain, "p_value": found.p_value}


def table(result: dict[str, Any]) -> str:
    """Show what `curvae compare` answered on data without a hierarchy."""
    lines = ["| data | size | curvature 0 is better | no difference | curvature is better |", "|---|---|---|---|---|"]
    for kind in KINDS:
        found = result[kind]
        low, high = (f"{100 * end:.0f}" for end in found["interval_95"])
        counts = [found["outcomes"].get(outcome, 0) for outcome in ("euclidean", "none", "hyperbolic")]
        shares = [f"{count / found['runs']:.0%}".replace("%", " %") for count in counts]
        lines.append(f"| {kind} | {found['data']} | {shares[0]} | {shares[1]} | {shares[2]} ({low} to {high} %) |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--out", type=Path, default=RESULT)
    asked = parser.parse_args(arguments)
    result: dict[str, Any] = read_json(asked.out) if asked.out.exists() else {}
    result |= {"command": "python -m benchmarks.calibration", "curvatures": CURVATURES, "repeats": REPEATS}
    for kind in asked.kinds:
        found = joblib.Parallel(n_jobs=-1)(joblib.delayed(one)(kind, seed) for seed in range(asked.runs))
        counts = Counter(str(r["outcome"]) for r in found)
        low, high = stats.binomtest(counts["hyperbolic"], asked.runs).proportion_ci(method="wilson")
        result[kind] = {
            "data": KINDS[kind][0],
            "runs": asked.runs,
            "outcomes": dict(counts),
            "share_hyperbolic": counts["hyperbolic"] / asked.runs,
            "interval_95": [low, high],
            "figures": found,
            "config": (GraphConfig() if "graph" in kind else Config()).flat(),
            "versions": versions(),
        }
        print(kind, dict(counts), flush=True)
        write_json(asked.out, result)


if __name__ == "__main__":
    main()
