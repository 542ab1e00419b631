"""What rows on disk cost, in time and memory: `python -m benchmarks.scale` writes results/scale.json.

Time is processor time of all threads, the one that reads among them, so that other work on the machine counts little.
Peak memory is that of a process of its own, which opens a file, and copies a table, trains for one pass at batches of
1,024 rows, places all rows on the map and measures the likelihood of 10,000. Files are written to a temporary folder,
and removed. On CUDA, rows a second by the clock.

`python -m benchmarks.scale parquet --sizes 1000000 5000000 20000000` takes about 40 minutes of a core and 9 GB of disk.
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
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

import curvae
from curvae.data import load
from curvae.runs import Reporter
from curvae.runs.training import embedding_tables
from curvae.training import Config, fit
from curvae.training.engine import BatchEngine
from curvae.training.fitted import likelihoods
from curvae.training.fitting import SAMPLES, plan_rows
from curvae.training.storage import write_tables

from .memory import peak_mb

__all__ = ["RESULT", "measure", "table"]

RESULT = Path(__file__).parent.parent / "results" / "scale.json"
COLUMNS, PIECE = 50, 100_000
JUDGED = 10_000  # rows whose likelihood is measured
BOUNDS = {"npy": 1.05, "parquet": 1.15}
GROUPS = ("epochs", "npy", "parquet", "cuda")


def write(folder: Path, rows: int, kind: str) -> Path:
    """Write a file of so many rows around a plane, float32, made a piece at a time."""
    path, random = folder / f"rows.{kind}", np.random.default_rng(0)
    plane = random.normal(size=(2, COLUMNS))

    def pieces() -> Any:
        for start in range(0, rows, PIECE):
            count = min(PIECE, rows - start)
            yield start, (random.normal(size=(count, 2)) @ plane + random.normal(size=(count, COLUMNS))).astype("f4")

    if kind == "npy":
        for start, x in pieces():
            whole = np.lib.format.open_memmap(path, "w+" if not start else "r+", np.float32, (rows, COLUMNS))
            whole[start : start + len(x)] = x
        return path
    pa, pq = import_module("pyarrow"), import_module("pyarrow.parquet")
    writer: Any = None
    for _, x in pieces():
        made = pa.table({f"g{i}": x[:, i] for i in range(COLUMNS)})
        writer = writer or pq.ParquetWriter(path, made.schema)
        writer.write_table(made)
    writer.close()
    return path


def epochs(folder: Path, batch: int, rows: int, repeats: int) -> dict[str, Any]:
    """Processor seconds of an epoch in memory, from an array and from Parquet, in turn; and their ratios.

    Data on disk may take half of the memory that their rows would take. The seconds in which the Parquet file is copied
    are counted for themselves.
    """
    config = Config(epochs=repeats + 1, batch_size=batch, validation=0.0, patience=None, neighbours="off")
    engines: dict[str, BatchEngine] = {}
    for kind in ("npy", "parquet"):
        path = write(folder, rows, kind)
        began = time.process_time()
        data, _ = load(path, memory=f"{rows * COLUMNS * 4 // 1000}kB")
        copied = time.process_time() - began  # the last one is that of a table
        assert data.on_disk
        problem, tasks = plan_rows([config], data)
        engines[kind] = problem.engine(tasks, problem.models(tasks))
    plain, own = plan_rows([config], np.load(folder / "rows.npy"))
    engines["memory"] = plain.engine(own, plain.models(own))
    times: dict[str, list[float]] = {name: [] for name in engines}
    for number in range(repeats + 1):
        for name, engine in engines.items():
            began = time.process_time()
            assert not engine.epoch(number).failures
            times[name].append(time.process_time() - began)
    found = {name: statistics.median(values[1:]) for name, values in times.items()}  # the first warms up
    ratios = {f"{name}_ratio": statistics.median(_ratios(times, name)) for name in ("npy", "parquet")}
    return {"batch": batch, "rows": rows, "repeats": repeats, **found, **ratios, "copy": copied, "bounds": BOUNDS}


def _ratios(times: dict[str, list[float]], name: str) -> list[float]:
    return [ours / other for ours, other in zip(times[name][1:], times["memory"][1:], strict=True)]


def peak(folder: Path, rows: int, kind: str, memory: str) -> dict[str, Any]:
    """Peak memory and processor time of a process that trains for a pass, places all rows and judges some."""
    path = write(folder, rows, kind)
    words = [sys.executable, "-m", "benchmarks.scale", "--one", str(path), "--memory", memory]
    found = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    size = path.stat().st_size
    path.unlink()
    return {"rows": rows, "kind": kind, "memory": memory, "file_mb": size / 1e6, **found}


def one(path: Path, memory: str) -> dict[str, Any]:
    """Measure reading, training, placing and judging, in that process."""
    before = peak_mb()
    began = time.process_time()
    data, _ = load(path, memory=memory)
    read = time.process_time()
    config = Config(epochs=1, batch_size=1024, patience=None, neighbours="off")
    fitted = fit(config, data)
    trained = time.process_time()
    table = path.with_name("embedding.parquet")
    write_tables(table, embedding_tables(fitted, data, None, Reporter()))
    table.unlink()
    placed, training_peak = time.process_time(), peak_mb()
    some = data.take(np.sort(np.random.default_rng(0).choice(len(data), JUDGED, replace=False))).load()
    likelihood = likelihoods(fitted, some, SAMPLES)
    seconds = {
        "reading_s": read - began,
        "training_s": trained - read,
        "embedding_s": placed - trained,
        "likelihood_s": time.process_time() - placed,
    }
    judged = {"judged_rows": len(some), "log_likelihood": likelihood.mean}
    peaks = {"before_mb": before, "training_mb": training_peak, "peak_mb": peak_mb()}
    return {**peaks, "batch": config.batch_size, **judged, **seconds}


def throughput(folder: Path, device: str, rows: int, batch: int, passes: int) -> list[dict[str, Any]]:
    """Rows a second of training on a device, from an array on disk and from rows that lie on the device.

    The first pass, which captures, is left out. The array repeats one piece, to be written quickly.
    """
    path, piece = folder / "rows.npy", np.load(write(folder, PIECE, "npy"))
    whole = np.lib.format.open_memmap(path, "w+", np.float32, (rows, COLUMNS))
    for start in range(0, rows, PIECE):
        whole[start : start + PIECE] = piece[: rows - start]
    del whole
    config = Config(epochs=passes + 1, batch_size=batch, hidden=(200,), validation=0.0, patience=None, neighbours="off")
    found = []
    for name in ("resident", "npy"):
        data = load(path, memory="2GB")[0] if name == "npy" else np.load(path, mmap_mode="r")
        problem, tasks = plan_rows([config], data, asked=device)
        engine = problem.engine(tasks, problem.models(tasks))
        seconds = []
        for number in range(passes + 1):
            began = time.perf_counter()
            assert not engine.epoch(number).failures
            seconds.append(time.perf_counter() - began)
        rate = engine.steps * batch / statistics.median(seconds[1:])
        found.append({"rows": rows, "batch": batch, "kind": name, "device": device, "rows_a_second": rate})
        print(found[-1], flush=True)
    return found


def measure(group: str, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Measure the figures of a group: "epochs", "cuda", or of files of a kind, "npy" or "parquet"."""
    torch.set_num_threads(1 if group != "cuda" else 4)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        if group == "cuda":
            return throughput(folder, "cuda", 20_000_000, 8192, 3)
        if group == "epochs":
            return [epochs(folder, batch, rows, 5) for batch, rows in ((64, 32_000), (1024, 200_000))]
        return [peak(folder, rows, group, "400MB") for rows in sizes]


def table(result: dict[str, Any]) -> str:
    """Time of an epoch beside that in memory, and peak memory."""
    lines = [
        "| rows | batch | in memory (s) | `.npy` | Parquet, copied | copying it (s) |",
        "|---|---|---|---|---|---|",
    ]
    for row in result.get("epochs", ()):
        ratios = f"×{row['npy_ratio']:.2f} | ×{row['parquet_ratio']:.2f} | {row['copy']:.2f}"
        lines.append(f"| {row['rows']:,} | {row['batch']:,} | {row['memory']:.2f} | {ratios} |")
    files = [*result.get("npy", ()), *result.get("parquet", ())]
    return "\n".join([*lines, *_peaks(files), *_rates(result)])


def _rates(result: dict[str, Any]) -> list[str]:
    """Rows a second on a GPU."""
    if "cuda" not in result:
        return []
    lines = ["", f"| on one {result['card']} | rows | batch | rows a second |", "|---|---|---|---|"]
    kinds = {"resident": "rows on the device", "npy": "`.npy`, on disk"}
    return lines + [
        f"| {kinds[row['kind']]} | {row['rows']:,} | {row['batch']:,} | {row['rows_a_second']:,.0f} |"
        for row in result["cuda"]
    ]


def _peaks(files: Sequence[dict[str, Any]]) -> list[str]:
    """Peak memory of a process, by file."""
    if not files:
        return []
    lines = [
        "",
        "| file | rows | size (MB) | libraries alone | with a pass and the map | with the likelihood | minutes "
        "| of them copying |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in files:
        sizes = (f"{row[name]:,.0f}" for name in ("file_mb", "before_mb", "training_mb", "peak_mb"))
        minutes = sum(value for name, value in row.items() if name.endswith("_s")) / 60
        figures = f"{' | '.join(sizes)} | {minutes:.1f} | {row['reading_s'] / 60:.1f}"
        lines.append(f"| {row['kind']} | {row['rows']:,} | {figures} |")
    return lines


def _machine(group: str) -> dict[str, Any]:
    """Where figures were measured: those of CUDA elsewhere than the others."""
    versions = {"curvae": curvae.__version__, "torch": torch.__version__, "python": platform.python_version()}
    if group == "cuda":
        return {"card": torch.cuda.get_device_name(), "card_versions": versions}
    return {"machine": platform.machine(), "columns": COLUMNS, "versions": versions}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="*", help=f"of {', '.join(GROUPS)}; all by default, those of CUDA where it is")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000_000, 5_000_000], help="rows of the files")
    parser.add_argument("--out", type=Path, default=RESULT, help="where to write; results/scale.json by default")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--memory", default="400MB", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one is not None:
        torch.set_num_threads(1)
        os.environ["XDG_CACHE_HOME"] = str(asked.one.parent)
        print(json.dumps(one(asked.one, asked.memory)))
        return
    for group in asked.groups or GROUPS[: None if torch.cuda.is_available() else -1]:
        found = measure(group, asked.sizes)
        print(group, found)
        known = json.loads(asked.out.read_text()) if asked.out.exists() else {}
        asked.out.write_text(json.dumps({**known, **_machine(group), group: found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
