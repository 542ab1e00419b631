"""How often does the set of `compare` hold the c·σ0² that is best, and what does it call data that are flat?

python -m benchmarks.curvature_calibration [--cells CELL …] [--tables 60] [--jobs 1] [--folder FOLDER] [--out FILE]

Tables are drawn from models: points of the prior of a c·σ0², seen through random gyroplanes, and noise. On each,
curvatures are compared as `curvae compare` does it, and learned. What is best on average over the tables of a cell,
which differ in their decoders, is what the sets of its tables should hold. Beside the set are two ways that give
narrower ones, as a warning: to take test rows for repeats, and to learn c in every repeat.

Every table is a file in the folder; those that are there are not computed again. `results/curvature_calibration.json`
sums up all that are there. All 60 of each cell take about 9,000 s of one core.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch
from scipy import stats

from curvae import Lorentz, RiemannianNormal
from curvae.data import Arrays
from curvae.training import Config, CurvatureSet, fit_many
from curvae.training.comparison import plan_comparison
from curvae.training.fitted import likelihoods_many
from curvae.training.storage import read_json, versions, write_json

CELLS = {
    f"{rows} rows, c·σ0² = {truth:g}": (rows, truth)
    for rows, truth in ((400, 0.0), (400, 0.5), (400, 2.0), (2000, 0.0), (2000, 2.0))
}
COLUMNS, PLANES, NOISE = 10, 50, 0.5
BENT = 0.5  # slope of the bend of distances at 0
VALUES = (0.0, 0.548, 1.25, 2.3, 4.0)
REPEATS, SAMPLES = 8, 100
CONFIG = Config(likelihood="gaussian", hidden=(32,), epochs=40, batch_size=32, learning_rate=4e-3)
ASKED = json.loads(json.dumps({"config": CONFIG.flat(), "values": VALUES, "repeats": REPEATS, "samples": SAMPLES}))
METHODS = {"set": "the set", "rows": "errors over rows", "learned": "learned c"}

FOLDER = Path("runs/curvature_calibration")
RESULT = Path("results/curvature_calibration.json")


def draw_table(rows: int, truth: float, seed: int) -> np.ndarray:
    """Rows at points of the prior: columns mix bent distances from random gyroplanes, and have noise of their own."""
    generator = torch.Generator().manual_seed(seed)
    space = Lorentz(2, truth)
    prior = RiemannianNormal(torch.zeros(2, dtype=torch.float64), 1.0, space)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    points, places = (prior.transform(normal(count, prior.noise_dim)) for count in (rows, PLANES))
    distances = space.dist2plane(points[:, None], places, normal(PLANES, 2), signed=True)
    seen = (BENT * distances).tanh() @ normal(PLANES, COLUMNS)
    return ((seen - seen.mean(0)) / seen.std(0) + NOISE * normal(rows, COLUMNS)).numpy()


def measure(name: str, seed: int, folder: Path) -> None:
    """Compare and learn curvatures on one table, unless its file is there."""
    rows, truth = CELLS[name]
    path = folder / f"{rows}-{truth:g}-{seed}.json"
    if path.exists() and read_json(path)["asked"] == ASKED:
        return
    torch.set_num_threads(1)
    x = draw_table(rows, truth, seed)
    planned = plan_comparison(replace(CONFIG, seed=1000 * seed), Arrays.of(x), VALUES[1:], REPEATS)
    ratio = len(planned.splits[0].test) / len(planned.splits[0].train)
    configs, splits = [task.config for task in planned.tasks], [task.split for task in planned.tasks]
    learning = [replace(one.with_curvature(1.0), learn_curvature=True) for one in configs[:: len(VALUES)]]
    fitted = fit_many([*configs, *learning], x, splits=[*splits, *planned.splits], jobs=1)
    compared = fitted[: len(configs)]
    found = likelihoods_many(compared, [x[split.test] for split in splits], SAMPLES)
    rows_scores = np.array([one.log_prob + one.log_jacobian for one in found]).reshape(REPEATS, len(VALUES), -1)
    figures = {
        "ratio": ratio,
        "scores": rows_scores.mean(-1).tolist(),
        "rows": rows_scores.transpose(0, 2, 1).reshape(-1, len(VALUES)).round(4).tolist(),
        "learned": [one.figures[0].identifiable for one in fitted[len(configs) :]],
    }
    write_json(path, {"cell": name, "seed": seed, "asked": ASKED, "versions": versions(), **figures})


def sets(table: Mapping[str, Any]) -> dict[str, tuple[str, float, float]]:
    """Return verdict and ends of the set, and of what looks like one."""
    found = {
        "set": CurvatureSet.of(VALUES, table["scores"], table["ratio"]),
        "rows": CurvatureSet.of(VALUES, table["rows"]),
    }
    x = np.arcsinh(table["learned"])
    half = stats.t(REPEATS - 1).ppf(0.975) * x.std(ddof=1) / math.sqrt(REPEATS)
    low, high = (math.sinh(max(0.0, x.mean() + sign * half)) for sign in (-1, 1))
    ends = {name: (one.verdict, one.low, math.inf if one.high is None else one.high) for name, one in found.items()}
    return {**ends, "learned": ("curved" if low > 0 else "flat", low, high)}


def best_on_average(scores: np.ndarray) -> float:
    """Return where the parabola in asinh(c·σ0²) through the best mean score and its neighbours has its maximum."""
    means, best = scores.mean(0), int(scores.mean(0).argmax())
    if best in (0, len(VALUES) - 1):
        return VALUES[best]
    beside = slice(best - 1, best + 2)
    square, linear, _ = np.polyfit(np.arcsinh(VALUES[beside]), means[beside], 2)
    return float(np.sinh(-linear / (2 * square)))


def share(count: int, of: int) -> dict[str, Any]:
    """Return a share with its 95 % interval of Wilson."""
    low, high = stats.binomtest(count, of).proportion_ci(method="wilson")
    return {"count": count, "share": count / of, "interval_95": [low, high]}


def sum_up(tables: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return how often the sets of tables hold what is best on average, what they say and how wide they are."""
    best, count = best_on_average(np.concatenate([one["scores"] for one in tables])), len(tables)
    found: dict[str, Any] = {"tables": count, "best_on_average": best}
    found["learned_median"] = statistics.median(value for one in tables for value in one["learned"])
    known = [sets(one) for one in tables]
    for method in METHODS:
        verdicts, lows, highs = zip(*(one[method] for one in known), strict=True)
        held = sum(low <= best <= high for low, high in zip(lows, highs, strict=True))
        high = statistics.median(highs)
        found[method] = {
            "coverage": share(held, count),
            "verdicts": {name: share(verdicts.count(name), count) for name in ("curved", "flat", "undetermined")},
            "median_low": statistics.median(lows),
            "median_high": high if math.isfinite(high) else None,
        }
    return found


def table(result: dict[str, Any]) -> str:
    """Show how often sets held what is best on average, and what they called the data."""
    lines = [
        "| tables | best on average | by | holds it | curved | flat | not determined | median set |",
        "|---|---|---|---|---|---|---|---|",
    ]

    def text(found: dict[str, Any]) -> str:
        low, high = (f"{100 * end:.0f}" for end in found["interval_95"])
        return f"{100 * found['share']:.0f} % ({low} to {high})"

    for name, cell in result["cells"].items():
        head = [f"{cell['tables']} of {name}", f"{cell['best_on_average']:.2g}"]
        for method, words in METHODS.items():
            found = cell[method]
            high = f"more than {VALUES[-1]:g}" if found["median_high"] is None else f"{found['median_high']:.2g}"
            cells = [text(found["coverage"]), *(text(one) for one in found["verdicts"].values())]
            cells.append(f"{found['median_low']:.2g} to {high}")
            lines.append(f"| {' | '.join([*head, words, *cells])} |")
            head = ["", ""]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS))
    parser.add_argument("--tables", type=int, default=60, help="of every cell; 0 only sums up")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--out", type=Path, default=RESULT)
    asked = parser.parse_args(arguments)
    asked.folder.mkdir(parents=True, exist_ok=True)
    work = [(name, seed) for seed in range(asked.tables) for name in asked.cells]
    done = joblib.Parallel(n_jobs=asked.jobs, return_as="generator_unordered")(
        joblib.delayed(measure)(name, seed, asked.folder) for name, seed in work
    )
    for count, _ in enumerate(done, 1):
        print(f"{count} of {len(work)} tables", flush=True)
    tables = [one for one in map(read_json, sorted(asked.folder.glob("*.json"))) if one["asked"] == ASKED]
    cells = {name: [one for one in tables if one["cell"] == name] for name in CELLS}
    result = {
        "command": "python -m benchmarks.curvature_calibration",
        **ASKED,
        "versions": versions(),
        "cells": {name: sum_up(found) for name, found in cells.items() if found},
    }
    write_json(asked.out, result)
    print(table(result))


if __name__ == "__main__":
    main()
