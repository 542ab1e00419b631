"""How long does `curvae fit` take, from the start of the process to the report, beside umap-learn's `fit_transform`?

    python -m benchmarks.fit_times --umap PYTHON

PYTHON is an interpreter that has umap-learn; its compilation is left out by a first run. Data sets are those that
`python -m benchmarks.maps export` wrote. Writes results/fit_times.json; run it on idle cores.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from curvae.training.storage import versions, write_json

from .maps.data import Data, load

__all__ = ["SETS", "main"]

# Data sets with what holds for them on two cores: seconds from start to end, and CPU seconds over UMAP's, at most.
SETS: dict[str, dict[str, float]] = {
    "krumsiek11": {"wall": 20.0},
    "pbmc68k_reduced": {"wall": 30.0},
    "digits": {},
    "mnist": {"ratio": 3.0},
}
_EQUAL = ("--hidden", "200,200,200,200", "--set", "dropout=0.03", "--patience", "never")
SETTINGS = {
    "likelihood": ("--neighbours", "off"),
    "term": ("--neighbours", "both"),
    "likelihood, equal": ("--neighbours", "off", *_EQUAL),
    "term, equal": ("--neighbours", "both", *_EQUAL),
}
"""what is timed: the model without and with neighbourhoods, with its defaults, and with equal networks and steps"""

MOST = 2.0  # CPU seconds with neighbourhoods over those without, at most, with equal networks and steps

# A run of a few epochs compiles all that the measured one needs.
_UMAP = """
import json, sys, time
import numpy as np
from importlib.metadata import version
from umap import UMAP
x = np.load(sys.argv[1])
UMAP(random_state=0, n_jobs=1, n_epochs=11).fit_transform(x)
wall, cpu = time.perf_counter(), time.process_time()
UMAP(random_state=0, n_jobs=1).fit_transform(x)
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
print(json.dumps({"wall": wall, "cpu": cpu, "version": version("umap-learn")}))
"""


def _write(folder: Path, name: str, data: Data) -> tuple[list[str], Path]:
    """Write the files of a data set: arguments of `curvae fit`, and a matrix."""
    matrix = folder / f"{name}.npy"
    np.save(matrix, data.x)
    if not len(data.labels) or data.likelihood == "bernoulli":
        return [str(matrix)], matrix
    table = folder / f"{name}.csv"
    columns = pd.DataFrame(data.x, columns=[f"x{i}" for i in range(data.x.shape[1])])
    columns.assign(label=data.labels).to_csv(table, index=False)
    return [str(table), "--label", "label"], matrix


def _environment(threads: int) -> dict[str, str]:
    names = "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"
    return os.environ | dict.fromkeys(names, str(threads))


def _ours(data: Sequence[str], options: Sequence[str], folder: Path, threads: int) -> dict[str, float]:
    """Seconds of a `curvae fit` as a user runs it, from the start of the process to its end."""
    command = [sys.executable, "-m", "curvae", "fit", *data, *options, "-o", str(folder / "run"), "--force", "-q"]
    wall, before = time.perf_counter(), os.times()
    subprocess.run([*command, "--device", "cpu"], env=_environment(threads), check=True)
    after = os.times()
    cpu = after.children_user - before.children_user + after.children_system - before.children_system
    return {"wall": time.perf_counter() - wall, "cpu": cpu}


def _umap(python: str, matrix: Path, threads: int) -> dict[str, Any]:
    command = [python, "-W", "ignore", "-c", _UMAP, str(matrix)]
    found = subprocess.run(command, env=_environment(threads), check=True, capture_output=True, text=True)
    measured: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    return measured


def _row(name: str, setting: str, threads: int, ours: list[dict[str, float]], other: list[dict[str, Any]]) -> Any:
    """Medians, their ratio, and whether what should hold does."""
    figures: dict[str, Any] = {"data": name, "settings": setting, "threads": threads}
    for who, runs in (("ours", ours), ("umap", other)):
        for what in ("wall", "cpu"):
            figures[f"{who}_{what}"] = round(statistics.median(run[what] for run in runs), 2)
    figures["ratio"] = round(figures["ours_cpu"] / figures["umap_cpu"], 2)
    if threads > 1 and (bounds := SETS[name]) and setting in ("likelihood", "term"):
        reached = {"wall": figures["ours_wall"], "ratio": figures["ratio"]}
        figures |= {"bounds": bounds, "holds": all(reached[what] <= most for what, most in bounds.items())}
    return figures


def _measure(options: argparse.Namespace) -> tuple[list[Any], str]:
    rows, version = [], ""
    with tempfile.TemporaryDirectory(prefix="curvae-") as made:
        folder = Path(made)
        for name in options.sets:
            given, matrix = _write(folder, name, load(options.data, name))
            for threads in options.threads:
                runs: dict[str, list[Any]] = {who: [] for who in ("umap", *SETTINGS)}
                # They take turns, so that a slow moment of the machine hits all alike.
                for _ in range(options.repeats):
                    runs["umap"].append(_umap(options.umap, matrix, threads))
                    for setting, flags in SETTINGS.items():
                        runs[setting].append(_ours(given, flags, folder, threads))
                version = runs["umap"][0]["version"]
                rows += [_row(name, setting, threads, runs[setting], runs["umap"]) for setting in SETTINGS]
                plain, term = (row["ours_cpu"] for row in rows[-2:])
                rows[-1] |= {"over_likelihood": round(term / plain, 2), "holds": term <= MOST * plain}
    return rows, version


def _show(rows: Sequence[Any]) -> None:
    table = Table(title="seconds of a fit", title_justify="left")
    columns = (
        "data",
        "settings",
        "threads",
        "ours_wall",
        "ours_cpu",
        "umap_wall",
        "umap_cpu",
        "ratio",
        "over_likelihood",
        "holds",
    )
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*(str(row.get(column, "")) for column in columns))
    Console(width=120).print(table)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fit_times", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--umap", required=True, metavar="PYTHON", help="interpreter that has umap-learn")
    parser.add_argument("--data", type=Path, default=Path("runs/maps/data"), help="folder of the data sets")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), help="only these data sets")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2], help="numbers of threads")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each, of which the median counts")
    parser.add_argument("--output", type=Path, default=Path("results/fit_times.json"), help="file to write")
    options = parser.parse_args(arguments)
    rows, version = _measure(options)
    _show(rows)
    found = {
        "command": "python -m benchmarks.fit_times",
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "versions": versions() | {"umap-learn": version},
        "repeats": options.repeats,
        "rows": rows,
    }
    write_json(options.output, found)


if __name__ == "__main__":
    main()
