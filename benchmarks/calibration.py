"""How often does `compare` see a hierarchy where there is none? `python -m benchmarks.calibration [runs]`

Flat Gaussian data of two kinds: independent columns, and a linear model with two factors, for which the ordinary VAE is
the right one. Writes `results/compare_calibration.json`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import joblib
import numpy as np
import torch
from scipy import stats

from curvae.training import Config, compare
from curvae.training.storage import versions

ROWS, COLUMNS = 150, 10
CONFIG = Config()
CURVATURES = (0.3, 1.0)
REPEATS, SAMPLES = 5, 100


def flat_rows(kind: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng([seed, 11])
    noise = rng.normal(size=(ROWS, COLUMNS))
    return noise if kind == "noise" else rng.normal(size=(ROWS, 2)) @ rng.normal(size=(2, COLUMNS)) + 0.5 * noise


def one(kind: str, seed: int) -> dict[str, object]:
    torch.set_num_threads(1)
    config = Config.from_json({**CONFIG.flat(), "seed": 1000 * seed})
    found = compare(config, flat_rows(kind, seed), CURVATURES, REPEATS, samples=SAMPLES, jobs=1)
    return {"seed": seed, "outcome": found.outcome, "gain": found.gain, "p_value": found.p_value}


def main(runs: int, output: Path) -> None:
    result: dict[str, object] = {
        "command": "python -m benchmarks.calibration",
        "versions": versions(),
        "data": f"{ROWS} rows, {COLUMNS} columns",
        "config": CONFIG.flat(),
        "curvatures": CURVATURES,
        "repeats": REPEATS,
    }
    for kind in ("noise", "two factors"):
        found = joblib.Parallel(n_jobs=-1)(joblib.delayed(one)(kind, seed) for seed in range(runs))
        counts = Counter(str(r["outcome"]) for r in found)
        low, high = stats.binomtest(counts["hyperbolic"], runs).proportion_ci(method="wilson")
        share = {"share_hyperbolic": counts["hyperbolic"] / runs, "interval_95": [low, high]}
        result[kind] = {"runs": runs, "outcomes": dict(counts), **share, "figures": found}
        print(kind, dict(counts), flush=True)
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 100,
        Path(sys.argv[2] if len(sys.argv) > 2 else "results/compare_calibration.json"),
    )
