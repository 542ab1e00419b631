"""How often does `curvae diagnose` call data tree-like, clustered or flat? `python -m benchmarks.hierarchy [sets]`

A hundred data sets of every kind, columns brought to unit variance as the command does. Writes
`results/hierarchy_calibration.json` after every kind, and goes on where it was interrupted.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import joblib
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from curvae.data import Graph, branching_diffusion, flat
from curvae.data.dataset import Scaling
from curvae.hierarchy import Rows, examine_points
from curvae.hierarchy.diagnosis import SAMPLE, examine_links
from curvae.training.storage import versions

Array = NDArray[np.float64]
Random = np.random.Generator

ROWS = 400


def leaves(seed: int) -> Array:
    """One row for each of the 64 last nodes, as species of a phylogeny."""
    tree = branching_diffusion(per_node=1, seed=seed)
    return tree.x[tree.depth[tree.node] == tree.depth.max()]


def groups_of_groups(random: Random) -> Array:
    """Twenty clusters in four groups."""
    centres = 4 * random.normal(size=(4, 1, 10)) + 2 * random.normal(size=(4, 5, 10))
    return centres.reshape(20, 10)[random.integers(20, size=ROWS)] + 0.5 * random.normal(size=(ROWS, 10))


def clusters(random: Random, number: int, dim: int, apart: float) -> Array:
    centres = apart * random.normal(size=(number, dim))
    return centres[random.integers(number, size=ROWS)] + random.normal(size=(ROWS, dim))


def turned(random: Random, x: Array) -> Array:
    """In other axes, or unit variance would undo the spectrum."""
    return x @ np.linalg.qr(random.normal(size=(x.shape[1], x.shape[1])))[0]


def grid(random: Random) -> Array:
    side = np.arange(20.0)
    return np.stack(np.meshgrid(side, side), -1).reshape(-1, 2) + 0.1 * random.normal(size=(ROWS, 2))


def curve(random: Random) -> Array:
    """Draw a smooth curve in ten dimensions, seen through noise."""
    waves = np.cos(np.pi * np.arange(1, 5) * random.uniform(size=(ROWS, 1)))
    shape = random.normal(size=(4, 10)) / np.arange(1, 5)[:, None]
    return waves @ shape + 0.05 * random.normal(size=(ROWS, 10))


def counts(random: Random) -> Array:
    """Poisson counts of 200 columns, nine of ten 0, rows of unequal totals."""
    mean = random.gamma(0.5, 0.4, size=200)
    return random.poisson(np.exp(0.5 * random.normal(size=(ROWS, 1))) * mean).astype(np.float64)


def sphere(random: Random) -> Array:
    x = random.normal(size=(ROWS, 3))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def student(random: Random) -> Array:
    return random.normal(size=(ROWS, 10)) / np.sqrt(random.chisquare(3, size=(ROWS, 1)) / 3)


TABLES: dict[str, Callable[[int, Random], Array]] = {
    "branching diffusion, depth 6": lambda seed, random: branching_diffusion(seed=seed).x,
    "branching diffusion, leaves only": lambda seed, random: leaves(seed),
    "branching diffusion, 5 columns": lambda seed, random: branching_diffusion(dim=5, seed=seed).x,
    "20 clusters in 4 groups": lambda seed, random: groups_of_groups(random),
    "3 clusters": lambda seed, random: clusters(random, 3, 10, 4),
    "10 clusters": lambda seed, random: clusters(random, 10, 10, 4),
    "10 clusters, 2 columns": lambda seed, random: clusters(random, 10, 2, 6),
    "30 clusters": lambda seed, random: clusters(random, 30, 10, 4),
    "normal, 50 columns": lambda seed, random: flat(seed=seed).x,
    "normal, 2 columns": lambda seed, random: random.normal(size=(ROWS, 2)),
    "normal, unequal spectrum": lambda seed, random: turned(random, random.normal(size=(ROWS, 20)) / np.arange(1, 21)),
    "normal, 1,000 columns": lambda seed, random: random.normal(size=(200, 1000)),
    "Student t, 3 degrees": lambda seed, random: student(random),
    "sphere": lambda seed, random: sphere(random),
    "grid": lambda seed, random: grid(random),
    "noisy curve": lambda seed, random: curve(random),
    "sparse counts": lambda seed, random: counts(random),
}


def graph_of(pairs: NDArray[np.int64], nodes: int) -> Graph:
    return Graph(np.arange(nodes).astype(np.str_), np.unique(np.sort(pairs, axis=1), axis=0).astype(np.int64))


def recursive_tree(random: Random) -> Graph:
    """Every node is linked to one that was there before."""
    return graph_of(np.array([[random.integers(i), i] for i in range(1, 300)]), 300)


def random_graph(random: Random, links: int) -> Graph:
    chosen = random.choice(300 * 299 // 2, links, replace=False)
    return graph_of(np.stack(np.triu_indices(300, 1), 1)[chosen], 300)


def attached(random: Random) -> Graph:
    """Every node is linked to two that were there before, the more likely the more links they have."""
    ends = [0, 1, 1, 2, 0, 2]
    for node in range(3, 300):
        chosen: set[int] = set()
        while len(chosen) < 2:
            chosen.add(int(ends[random.integers(len(ends))]))
        ends += [end for other in chosen for end in (other, node)]
    return graph_of(np.array(ends).reshape(-1, 2), 300)


def communities(random: Random) -> Graph:
    """Eight blocks, within which nine of ten links lie."""
    block = np.arange(304) % 8
    i, j = np.triu_indices(304, 1)
    kept = random.random(len(i)) < np.where(block[i] == block[j], 0.2, 0.003)
    return graph_of(np.stack([i, j], 1)[kept], 304)


def lattice() -> Graph:
    place = np.arange(324).reshape(18, 18)
    across, down = (place[:, :-1], place[:, 1:]), (place[:-1], place[1:])
    return graph_of(np.concatenate([np.stack([a.ravel(), b.ravel()], 1) for a, b in (across, down)]), 324)


GRAPHS: dict[str, Callable[[Random], Graph]] = {
    "graph: random tree": recursive_tree,
    "graph: random, 4 links a node": lambda random: random_graph(random, 600),
    "graph: random, 2.2 links a node": lambda random: random_graph(random, 330),
    "graph: preferential attachment": attached,
    "graph: communities": communities,
    "graph: lattice": lambda random: lattice(),
}


def call(kind: str, seed: int) -> tuple[str, float]:
    """Return what a data set of the kind is called, and the CPU seconds that this took."""
    began = time.process_time()
    return _outcome(kind, seed), time.process_time() - began


def _outcome(kind: str, seed: int) -> str:
    random = np.random.default_rng([seed, 5])
    if kind in GRAPHS:
        return examine_links(GRAPHS[kind](random), random)[0].outcome
    x = TABLES[kind](seed, random)
    scaling = Scaling.standard(x)
    rows = Rows(x, "euclidean", scaling.shift, scaling.scale).sample(random.permutation(len(x))[:SAMPLE])
    return examine_points(rows.table(np.arange(len(rows))), random, rows).outcome


def measure(kind: str, sets: int) -> dict[str, object]:
    found = joblib.Parallel(n_jobs=-1)(joblib.delayed(call)(kind, seed) for seed in range(sets))
    calls = Counter(outcome for outcome, _ in found)
    low, high = stats.binomtest(calls["tree-like"], sets).proportion_ci(method="wilson")
    return {
        "sets": sets,
        **{outcome: calls[outcome] / sets for outcome in ("tree-like", "clustered", "flat")},
        "tree-like interval_95": [float(low), float(high)],
        "seconds_a_set": round(sum(seconds for _, seconds in found) / sets, 2),
    }


def main(sets: int, output: Path) -> None:
    stored = json.loads(output.read_text()) if output.exists() else {}
    kinds = stored.get("kinds", {}) if stored.get("versions") == versions() else {}
    for kind in (*TABLES, *GRAPHS):
        if kinds.get(kind, {}).get("sets") == sets:
            continue
        kinds[kind] = measure(kind, sets)
        print(kind, kinds[kind], flush=True)
        kinds = {name: kinds[name] for name in (*TABLES, *GRAPHS) if name in kinds}
        result = {"command": "python -m benchmarks.hierarchy", "versions": versions(), "level": 0.05, "kinds": kinds}
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(result, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 100,
        Path(sys.argv[2] if len(sys.argv) > 2 else "results/hierarchy_calibration.json"),
    )
