"""Is it better to leave missing values to the model than to fill in means? `python -m benchmarks.missing`

From each table 20 % of the entries are removed at random, of training and of held-out rows, with another seed, split
and pattern each time. Two models of the same settings are trained: `model` on the gaps (`missing="model"`), `mean` on
rows whose gaps hold the mean of their column over all rows that are not held out (`missing="mean"`). On held-out rows:

- log-likelihood: log p(entries that are there), in original units, of both models on the same entries. For `mean`, too,
  the others are integrated out: its encoder sees means in their place, and they are not scored.
- imputation error: root mean squared difference between the removed entries and what stands in for them, in standard
  deviations of their columns. Both models impute with `curvae.training.impute`. Beside them: the mean of the column,
  and the KNNImputer and IterativeImputer of scikit-learn on standardised columns.

Differences are `model` minus `mean`, paired by seed, with 95 % intervals over seeds. Writes `results/missing.json`.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.experimental import enable_iterative_imputer  # noqa: F401 - makes the next import possible
from sklearn.impute import IterativeImputer, KNNImputer

from curvae.data import Arrays, branching_diffusion
from curvae.data.principal import mean_interval
from curvae.training import Config, Fitted, Scaling, Split, fit_many, impute, random_split
from curvae.training.evaluate import likelihoods
from curvae.training.storage import versions

TABLES = {
    "wine": lambda: load_wine().data,
    "breast cancer": lambda: load_breast_cancer().data,
    "diabetes": lambda: load_diabetes(scaled=False).data,
    "branching-diffusion": lambda: branching_diffusion().x,
}
CURVATURES = (0.0, 1.0)
SEEDS = range(8)
SHARE = 0.2
SETTINGS: dict[str, Any] = {"hidden": (64,), "learning_rate": 3e-3, "epochs": 150, "patience": 25, "neighbours": "off"}
SAMPLES = 500


@dataclass(frozen=True)
class Removed:
    """A table without some of its entries."""

    full: np.ndarray
    gone: np.ndarray
    split: Split

    @classmethod
    def of(cls, full: np.ndarray, seed: int) -> Removed:
        gone = np.random.default_rng(seed).random(full.shape) < SHARE
        return cls(full, gone, random_split(len(full), 0.15, 0.25, seed))

    @property
    def gaps(self) -> np.ndarray:
        return np.where(self.gone, np.nan, self.full)

    @property
    def scaling(self) -> Scaling:
        """From all rows that are not held out."""
        return Scaling.standard(self.gaps[np.setdiff1d(np.arange(len(self.full)), self.split.test)])

    @property
    def filled(self) -> np.ndarray:
        return np.where(self.gone, self.scaling.shift, self.full)

    def error(self, imputed: np.ndarray) -> float:
        """Of held-out rows, given imputed."""
        test = self.split.test
        difference = (imputed - self.full[test]) / self.scaling.scale
        return float(np.sqrt(np.mean(difference[self.gone[test]] ** 2)))

    def baselines(self) -> dict[str, float]:
        """Imputation errors of others."""
        rows, test = self.scaling.apply(self.gaps), self.split.test
        seen = np.setdiff1d(np.arange(len(rows)), test)
        found = {"column mean": self.error(self.filled[test])}
        for name, imputer in (("KNN", KNNImputer()), ("iterative", IterativeImputer(max_iter=4, random_state=0))):
            with warnings.catch_warnings(action="ignore"):  # it may stop before it has converged
                imputed = imputer.fit(rows[seen]).transform(rows[test])
            found[name] = self.error(self.scaling.invert(imputed))
        return found


def figures(fitted: Fitted, removed: Removed) -> dict[str, float]:
    rows = Arrays(removed.gaps[removed.split.test], missing=True)
    return {
        "log_likelihood": float(likelihoods(fitted, rows, SAMPLES).original.mean),
        "error": removed.error(impute(fitted, rows, SAMPLES)),
    }


def measured(name: str, curvature: float, tables: Sequence[Removed]) -> dict[str, Any]:
    """Both ways on one table, all seeds at once."""
    configs = [Config(**SETTINGS, curvature=curvature, seed=seed) for seed in SEEDS]
    splits = [table.split for table in tables]
    data = {
        "model": [Arrays(table.gaps, missing=True) for table in tables],
        "mean": [Arrays(table.filled) for table in tables],
    }
    seeds: dict[str, list[dict[str, float]]] = {}
    for way, arrays in data.items():
        trained = fit_many(configs, arrays, splits=splits)
        seeds[way] = [figures(one, table) for one, table in zip(trained, tables, strict=True)]
    gains = {
        key: mean_interval([a[key] - b[key] for a, b in zip(seeds["model"], seeds["mean"], strict=True)])
        for key in ("log_likelihood", "error")
    }
    return {"table": name, "curvature": curvature, "model_minus_mean": gains, **seeds}


def main(output: Path) -> None:
    began, runs, baselines = time.perf_counter(), [], {}
    for name, load in TABLES.items():
        tables = [Removed.of(np.asarray(load(), dtype=np.float64), seed) for seed in SEEDS]
        baselines[name] = [table.baselines() for table in tables]
        for curvature in CURVATURES:
            runs.append(measured(name, curvature, tables))
            print(name, curvature, runs[-1]["model_minus_mean"], f"{time.perf_counter() - began:.0f} s", flush=True)
    result = {
        "command": "OMP_NUM_THREADS=1 python -m benchmarks.missing",
        "versions": versions(),
        "settings": SETTINGS,
        "share": SHARE,
        "importance_samples": SAMPLES,
        "runs": runs,
        "baselines": baselines,
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(table(result))


def table(result: dict[str, Any]) -> str:
    """What leaving gaps to the model gains over means, and errors beside those of others."""

    def text(figures: Sequence[float], form: str) -> str:
        mean, half = figures
        return f"{mean:{form}} ± {half:{form.lstrip('+')}}".replace("-", "−")

    others = list(next(iter(result["baselines"].values()))[0])
    lines = [
        f"| data | c | log-likelihood gained, nats a row | error, model | error, mean | model − mean | "
        f"{' | '.join(others)} |",
        f"|{'---|' * (6 + len(others))}",
    ]
    for run in result["runs"]:
        gains = run["model_minus_mean"]
        errors = [np.mean([seed["error"] for seed in run[way]]) for way in ("model", "mean")]
        errors += [np.mean([seed[name] for seed in result["baselines"][run["table"]]]) for name in others]
        cells = [f"{error:.3f}" for error in errors]
        cells.insert(2, text(gains["error"], "+.3f"))
        gained = text(gains["log_likelihood"], "+.2f")
        lines.append(f"| {run['table']} | {run['curvature']:g} | {gained} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results/missing.json"))
