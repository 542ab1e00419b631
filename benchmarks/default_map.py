"""Is the default map better than the one without neighbourhoods, and what does it cost in likelihood?

python -m benchmarks.default_map measure TABLES --variants off default --jobs 16
python -m benchmarks.default_map trees      maps of all rows of the trees, with five seeds, beside t-SNE
python -m benchmarks.default_map results

TABLES is the folder that `python -m benchmarks.defaults export` wrote; further data sets are those that `python -m
benchmarks.maps export` wrote, and two trees. The variant `before` are the defaults of an earlier checkout, whose `src`
is on the path of Python: `PYTHONPATH=EARLIER/src python -m benchmarks.default_map measure TABLES --variants before`.

Each row is held out in one of five folds; every fold has a seed of its own, and a tenth of its other rows for
validation. Log-likelihoods are importance-weighted, in nats of the standardised columns; Qlocal and Qglobal are shares
of near and far neighbours that the map of all rows keeps, in large tables of 2,000 of them. Every cell is a file in
CELLS until `results` reads it; an interrupted run goes on.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch

from curvae.hierarchy import figures_of_maps
from curvae.maps.statistics import mean_interval
from curvae.training import Config, embed, fit_many
from curvae.training.comparison import Paired
from curvae.training.fitted import likelihoods_many
from curvae.training.rows import Split
from curvae.training.storage import read_json, versions, write_json

from . import defaults
from .maps import data as maps

__all__ = ["main", "table"]

RESULT = Path(__file__).parent.parent / "results" / "default_map.json"
CELLS = Path("runs/default_map")

FOLDS, VALIDATION, ROWS, SAMPLES = 5, 0.1, 2000, 100
WIDE = 256  # columns from which on a stack of models saves no time
VARIANTS: dict[str, dict[str, Any]] = {"before": {"neighbours": "off"}, "off": {"neighbours": "off"}, "default": {}}


def recursive_tree(nodes: int = 233, copies: int = 3, columns: int = 30, noise: float = 0.3) -> np.ndarray:
    """Nodes that each hang on a random earlier one, a normal step away, seen several times through noise."""
    random = np.random.default_rng(0)
    places = np.zeros((nodes, columns))
    for node in range(1, nodes):
        places[node] = places[random.integers(0, node)] + random.normal(size=columns)
    return np.repeat(places, copies, 0) + noise * random.normal(size=(nodes * copies, columns))


def ternary_tree(depth: int = 5, columns: int = 20, noise: float = 0.3) -> np.ndarray:
    """Make the leaves of a tree with three branches at every node, each a normal step away."""
    random = np.random.default_rng(0)
    places = np.zeros((1, columns))
    for _ in range(depth):
        places = np.repeat(places, 3, 0) + random.normal(size=(3 * len(places), columns))
    return places + noise * random.normal(size=places.shape)


TREES: dict[str, Callable[[], np.ndarray]] = {"random tree": recursive_tree, "ternary tree": ternary_tree}
SETS = ("krumsiek11", "toggleswitch", "pbmc68k_reduced", "branching", "mnist", "mammals")
NAMES = (*defaults.CHOICE, *defaults.VERDICT, *SETS, *TREES)


def load(name: str, tables: Path, sets: Path) -> tuple[np.ndarray, str]:
    """Return the rows of a table, and their likelihood."""
    if name in TREES:
        return TREES[name](), "gaussian"
    if name in SETS:
        found = maps.load(sets, name)
        return np.float64(found.x), found.likelihood
    return defaults.table(name, tables), "gaussian"


def fold_of(rows: int, fold: int) -> Split:
    """Rows of a fold for the test; of the others a tenth for validation."""
    order = np.random.default_rng(7).permutation(rows)
    test, others = order[fold::FOLDS], np.delete(order, np.s_[fold::FOLDS])
    held = round(VALIDATION * len(others))
    return Split(np.sort(others[held:]), np.sort(others[:held]), np.sort(test))


def path(cells: Path, name: str, variant: str, fold: int) -> Path:
    return cells / f"{name.replace('/', '-').replace(' ', '-')}.{variant}.{fold}.json"


def measure(name: str, variant: str, folds: Sequence[int], tables: Path, sets: Path, cells: Path) -> None:
    """Train and judge some folds of a table, to a file each."""
    torch.set_num_threads(1)
    x, likelihood = load(name, tables, sets)
    splits = [fold_of(len(x), fold) for fold in folds]
    configs = [Config(likelihood=likelihood, seed=fold, **VARIANTS[variant]) for fold in folds]
    fitted = fit_many(configs, x, splits=splits)
    judged = likelihoods_many(fitted, [x[split.test] for split in splits], SAMPLES)
    shown = np.sort(np.random.default_rng(0).permutation(len(x))[:ROWS])
    deviation = x.std(0)
    scaled = (x - x.mean(0)) / np.where(deviation > 0, deviation, 1.0) if likelihood == "gaussian" else x
    kept = figures_of_maps(scaled[shown], [embed(one, x[shown]) for one in fitted])
    for fold, one, found, figures in zip(folds, fitted, judged, kept, strict=True):
        facts = {
            "rows": len(x),
            "columns": x.shape[1],
            "hidden": list(one.config.layers),
            "log_likelihood": found.mean,
            "qlocal": figures.qlocal,
            "qglobal": figures.qglobal,
            "epochs": len(one.history),
            "best_epoch": one.last["epoch"],
            "failure": one.failure,
        }
        write_json(path(cells, name, variant, fold), facts)
    print(name, variant, *folds, flush=True)


def measure_all(options: argparse.Namespace) -> None:
    options.cells.mkdir(parents=True, exist_ok=True)
    tasks = []
    for name in options.only or NAMES:
        rows, columns = load(name, options.tables, options.data)[0].shape
        step = 1 if columns >= WIDE else FOLDS
        for variant in options.variants:
            missing = [fold for fold in range(FOLDS) if not path(options.cells, name, variant, fold).exists()]
            some = [missing[k : k + step] for k in range(0, len(missing), step)]
            cost = columns * min(rows, 2000) * (3 if variant == "default" else 1)
            tasks += [(cost, name, variant, folds) for folds in some]
    work = partial(measure, tables=options.tables, sets=options.data, cells=options.cells)
    tasks.sort(key=lambda task: -task[0])
    joblib.Parallel(n_jobs=options.jobs)(joblib.delayed(work)(*task) for _, *task in tasks)


def measure_trees(options: argparse.Namespace) -> None:
    """Neighbours kept by maps of all rows of the trees: of the default with five seeds, and of t-SNE."""
    from sklearn.manifold import TSNE

    options.cells.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, make in TREES.items():
        x = make()
        scaled = (x - x.mean(0)) / x.std(0)
        fitted = fit_many([Config(likelihood="gaussian", seed=seed) for seed in range(FOLDS)], x)
        placed = [TSNE(init="pca", random_state=0).fit_transform(scaled), *(embed(one, x) for one in fitted)]
        kept = figures_of_maps(scaled, placed)
        found[name] = {
            figure: {
                "t-SNE": getattr(kept[0], figure),
                "default": mean_interval([getattr(one, figure) for one in kept[1:]]),
            }
            for figure in ("qlocal", "qglobal")
        }
    write_json(options.cells / "trees.json", found)


# --- results --------------------------------------------------------------------------------------------------------


def gains(cells: Mapping[str, Sequence[Mapping[str, Any]]], after: str, before: str, figure: str) -> Paired:
    """Differences of a figure, fold by fold; the training rows of two folds overlap (Nadeau and Bengio, 2003)."""
    pairs = zip(cells[after], cells[before], strict=True)
    return Paired([a[figure] - b[figure] for a, b in pairs], ratio=1 / (FOLDS - 1))


def summary(cells: Path) -> dict[str, Any]:
    """Means of all tables, what the default gains over `off` and over `before`, and what `off` gains over `before`."""
    found = {
        name: {
            variant: [read_json(path(cells, name, variant, fold)) for fold in range(FOLDS)]
            for variant in VARIANTS
            if all(path(cells, name, variant, fold).exists() for fold in range(FOLDS))
        }
        for name in NAMES
    }
    found = {name: known for name, known in found.items() if len(known) == len(VARIANTS)}
    rows: list[dict[str, Any]] = []
    for name, known in found.items():
        first = known["default"][0]
        row: dict[str, Any] = {"table": name, "rows": first["rows"], "columns": first["columns"]}
        row |= {"hidden": first["hidden"], "choice": name not in (*defaults.VERDICT, "mnist", "mammals")}
        for figure in ("log_likelihood", "qlocal", "qglobal"):
            row[figure] = {variant: float(np.mean([one[figure] for one in known[variant]])) for variant in VARIANTS}
        for after, before in (("default", "off"), ("default", "before"), ("off", "before")):
            gain = gains(known, after, before, "log_likelihood")
            row[f"{after} - {before}"] = {"gain": gain.mean, "interval": gain.interval, "p": gain.p_value}
        rows.append(row)
    verdicts = {}
    for what in ("default - off", "default - before", "off - before"):
        for row, p in zip(rows, defaults.holm([row[what]["p"] for row in rows]), strict=True):
            row[what]["p_holm"] = p
        each = [row[what] for row in rows]
        verdicts[what] = {
            "mean_gain": float(np.mean([one["gain"] for one in each])),
            "mean_gain_per_column": float(np.mean([row[what]["gain"] / row["columns"] for row in rows])),
            "better_on": sum(one["gain"] > 0 for one in each),
            "worse_beyond_interval": [row["table"] for row in rows if row[what]["gain"] < -row[what]["interval"]],
            "worse_after_holm": [row["table"] for row in rows if row[what]["gain"] < 0 and row[what]["p_holm"] < 0.05],
        }
    means = {
        figure: {variant: float(np.mean([row[figure][variant] for row in rows])) for variant in VARIANTS}
        for figure in ("qlocal", "qglobal")
    }
    return {
        "command": "python -m benchmarks.default_map",
        "versions": versions(),
        "folds": FOLDS,
        "found": verdicts,
        "means": means,
        "trees": read_json(cells / "trees.json"),
        "tables": rows,
    }


def table(found: Mapping[str, Any]) -> str:
    """Write a row for every table: neighbours kept without and with neighbourhoods, and the cost in likelihood."""
    lines = [
        "| table | rows × columns | Qlocal, off | default | Qglobal, off | default | log-likelihood, default − off |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in sorted(found["tables"], key=lambda row: row["rows"]):
        gain = row["default - off"]
        kept = [f"{row[name][variant]:.3f}" for name in ("qlocal", "qglobal") for variant in ("off", "default")]
        cost = f"{gain['gain']:+.2f} ± {gain['interval']:.2f}".replace("-", "−")
        lines.append(f"| {row['table']} | {row['rows']:,} × {row['columns']:,} | {' | '.join(kept)} | {cost} |")
    means = [f"{found['means'][name][variant]:.3f}" for name in ("qlocal", "qglobal") for variant in ("off", "default")]
    trees = [
        f"of the {name} {qlocal['default'][0]:.3f} ± {qlocal['default'][1]:.3f} beside {qlocal['t-SNE']:.3f}"
        for name, qlocal in ((name, one["qlocal"]) for name, one in found["trees"].items())
    ]
    told = f"With five seeds, all rows in training or validation, Qlocal is, beside that of t-SNE: {', '.join(trees)}."
    return "\n".join([*lines, f"| mean |  | {' | '.join(means)} |  |", "", told])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    stages = parser.add_subparsers(required=True)
    stage = stages.add_parser("measure", help="train and judge what has no file yet")
    stage.add_argument("tables", type=Path, help="folder of the tables")
    stage.add_argument("--data", type=Path, default=Path("runs/maps/data"), help="folder of the data sets")
    stage.add_argument("--variants", nargs="+", choices=VARIANTS, default=["off", "default"], help="only these")
    stage.add_argument("--only", nargs="+", choices=NAMES, help="only these tables")
    stage.add_argument("--jobs", type=int, default=1, help="processes")
    stage.set_defaults(run=measure_all)
    trees = stages.add_parser("trees", help="maps of all rows of the trees, beside t-SNE")
    trees.set_defaults(run=measure_trees)
    end = stages.add_parser("results", help="write the result file")
    end.set_defaults(run=lambda options: write_json(RESULT, summary(options.cells), indent=1))
    for one in (stage, trees, end):
        one.add_argument("--cells", type=Path, default=CELLS, help="folder of the cells")
    options = parser.parse_args(arguments)
    options.run(options)


if __name__ == "__main__":
    main()
