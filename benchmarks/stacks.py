"""Many models at once on a CPU: a model-step in a stack beside that of a model alone, of bare torch and of Pythae."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import torch

from curvae.data.dataset import Scaling
from curvae.models import Layout
from curvae.settings import resolve_defaults
from curvae.training import Config, build
from curvae.training.engine import BatchEngine
from curvae.training.rows import RowPool, Rows

from .peers import pythae_vae
from .steps import SHAPES, OrdinaryVAE, runs, step
from .timing import Row, compare

__all__ = ["engine", "learned", "memory", "products", "resident", "stacks"]

ROWS, COLUMNS, HIDDEN, LIKELIHOOD = SHAPES["synthetic"][:4]
STEPS = 8  # of an epoch
_EPOCHS = 100_000  # of the training that the steps are the first of: more than are timed
COUNTS = (1, 10, 40, 100)
OVER_PEER, OVER_ALONE = 25.0, 3.0  # what a stack of 100 Riemannian models on two cores should reach
OVER_FIXED = 1.3  # the most that learning a curvature may cost
OVER_SINGLE = 1.5  # the most that a product of three factors may cost over one factor of the same dimension


def engine(count: int, posterior: str, shape: str = "synthetic", steps: int = STEPS, **settings: Any) -> BatchEngine:
    """Make a stack on random rows of an experiment's shape."""
    rows, columns, hidden, likelihood = SHAPES[shape][:4]
    common = {"posterior": posterior, "hidden": (hidden,), "likelihood": likelihood, "batch_size": rows}
    configs = [Config(seed=i, epochs=_EPOCHS, **common, **settings) for i in range(count)]
    values = torch.rand(steps * rows, columns) if likelihood == "bernoulli" else torch.randn(steps * rows, columns)
    data = Rows(values.numpy(), Scaling.identity(columns))
    index = torch.arange(steps * rows).expand(count, -1)
    resolved = [resolve_defaults(replace(c, neighbours="off"), (steps * rows, 0), Layout(columns)) for c in configs]
    return BatchEngine([build(c, columns) for c in configs], resolved, RowPool([data] * count).part(index))


def learned(threads: int) -> list[Row]:
    """Compare steps that learn the curvature, or the prior's scale, with one where both are fixed, on MNIST's shape."""
    kinds: dict[str, dict[str, Any]] = {
        "fixed": {},
        "curvature": {"learn_curvature": True},
        "prior scale": {"learn_prior_scale": True},
    }
    rows = []
    for count in (1, 20):
        for posterior in ("wrapped", "riemannian"):
            made = {kind: engine(count, posterior, "MNIST", 1, **settings) for kind, settings in kinds.items()}
            ms = compare({kind: lambda e=e: e.epoch(0) for kind, e in made.items()}, seconds=4.0)
            for kind in ("curvature", "prior scale"):
                what = f"learned {kind} step / fixed, {posterior}, {count} model{'s' * (count > 1)}"
                rows.append(Row(what, threads, ms[kind], ms["fixed"], ms[kind] / ms["fixed"], OVER_FIXED))
    return rows


def products(threads: int) -> list[Row]:
    """Compare a step in a product of three factors with one in a single factor of their dimension, on MNIST's shape."""
    rows, spaces = [], ("h10", "h2,h2,e6", "h2,h2,h6")
    for count in (1, 20):
        for posterior in ("wrapped", "riemannian"):
            made = {space: engine(count, posterior, "MNIST", 1, space=space) for space in spaces}
            ms = compare({space: lambda e=e: e.epoch(0) for space, e in made.items()}, seconds=4.0)
            for space in spaces[1:]:
                what = f"step in {space} / in h10, {posterior}, {count} model{'s' * (count > 1)}"
                rows.append(Row(what, threads, ms[space], ms["h10"], ms[space] / ms["h10"], OVER_SINGLE))
    return rows


def in_a_process(count: int, posterior: str, seconds: float = 6.0) -> float:
    """Median milliseconds of a step of a stack, with one thread."""
    torch.set_num_threads(1)
    made, times = engine(count, posterior), []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        made.epoch(len(times))
        times.append(1e3 * (time.perf_counter() - start) / STEPS)
    return statistics.median(times)


def stacks(threads: int) -> list[Row]:
    rows = []
    for posterior in ("wrapped", "riemannian"):
        x = torch.randn(ROWS, COLUMNS)
        plain = OrdinaryVAE(COLUMNS, HIDDEN, 2, LIKELIHOOD)
        tasks = {"ordinary": step(plain, lambda m=plain, x=x: m.loss(x))}
        peer = pythae_vae(posterior, COLUMNS, HIDDEN, 2, LIKELIHOOD)
        task = None if peer is None else step(peer, lambda m=peer, x=x: m({"data": x}).loss, 0.0)
        if task is not None and runs(task):
            tasks["Pythae"] = task
        for count in COUNTS:
            made = engine(count, posterior)
            tasks[str(count)] = lambda made=made: made.epoch(0)
        ms = compare(tasks, seconds=5.0)
        each = {f"{count} {posterior} models": ms[str(count)] / STEPS / count for count in COUNTS}
        alone = each[f"1 {posterior} models"]
        if threads > 1:
            # The way fit_many(jobs=…) uses cores: a stack a process.
            parts = joblib.Parallel(n_jobs=threads)(
                joblib.delayed(in_a_process)(100 // threads, posterior) for _ in range(threads)
            )
            each[f"100 {posterior} models in {threads} processes"] = max(parts) / 100
        for name, own in each.items():
            bound = name.startswith("100 riemannian") and "processes" in name
            for other, other_ms, least in (
                ("Pythae's", ms.get("Pythae"), OVER_PEER),
                ("a model-step alone", alone, OVER_ALONE),
                ("a bare ordinary step", ms["ordinary"], None),
            ):
                if other_ms is None or (other_ms == own and "alone" in other):
                    continue
                what = f"{other} / model-step of {name}"
                rows.append(Row(what, threads, own, other_ms, other_ms / own, least if bound else None, at_most=False))
    return rows


def memory(threads: int) -> list[Row]:
    """Resident megabytes of a process with a stack of 100 models over one with a single model."""
    code = "from benchmarks.stacks import engine, resident; engine({}, 'riemannian').epoch(0); print(resident())"
    most = {n: float(subprocess.check_output([sys.executable, "-c", code.format(n)], text=True)) for n in (1, 100)}
    return [Row("memory of 100 models / of one (MB)", threads, most[100], most[1], most[100] / most[1])]


def resident() -> float:
    """Return the most that this program has held; the system's figure counts the process that started it too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
