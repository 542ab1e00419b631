"""Stacks of models on a CUDA device: time of a step, likelihoods, memory, and what bounds them.

python -m benchmarks.cuda FILE             writes there, or adds to what is there
python -m benchmarks.cuda FILE NAME ...    parts alone; "hundred" is a step of 100 models, of all kinds
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from scipy import sparse

from curvae.data import mnist
from curvae.data.dataset import Scaling
from curvae.models import Layout, Stack, marginal_likelihood
from curvae.models.stack import matmul_precision
from curvae.settings import resolve_defaults
from curvae.training import Config, build, fit_many
from curvae.training.engine import BatchEngine
from curvae.training.rows import RowPool, Rows
from curvae.training.storage import versions

from .steps import LAWS, OrdinaryVAE, step

ROWS, COLUMNS, HIDDEN, BATCH = 60_000, 784, 600, 128
KINDS = dict(zip(("euclidean", "wrapped", "riemannian", "sphere"), [*LAWS.values(), {}], strict=True))
# Bounds for a step of 100 models in milliseconds, and over the Euclidean one.
BOUNDS = {"wrapped": (1.85, 1.06), "riemannian": (1.85, 1.06), "sphere": (float("inf"), 1.15)}


def seconds(task: Callable[[], object], repeats: int = 3) -> float:
    """Return the shortest of a few measurements, the device being idle before and after each."""
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        task()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)


def card() -> dict[str, float]:
    """Measure what the device reaches: batched TF32 and float32 products of the sizes used here, and copies."""
    a, b = torch.randn(100, 1024, 768, device="cuda"), torch.randn(100, 768, 1024, device="cuda")
    work = 2 * 100 * 1024 * 768 * 1024
    found = {}
    for name, tf32 in (("tf32_tflops", True), ("float32_tflops", False)):
        with matmul_precision(tf32):
            for _ in range(3):
                torch.bmm(a, b)
            found[name] = 10 * work / seconds(lambda: [torch.bmm(a, b) for _ in range(10)]) / 1e12
    block = torch.empty(1 << 30, device="cuda")
    other = torch.empty_like(block)
    other.copy_(block)
    found["copy_gb_s"] = 10 * 8 * block.numel() / seconds(lambda: [other.copy_(block) for _ in range(10)]) / 1e9
    return found


def resolved(configs: Sequence[Config], rows: int) -> list[Config]:
    """Resolve the defaults of configurations for so many rows, without neighbours."""
    return [resolve_defaults(replace(one, neighbours="off"), (rows, 0), Layout(COLUMNS)) for one in configs]


def engine(kind: str, count: int, dim: int, data: Rows) -> BatchEngine:
    spaces = {"space": f"s{dim}"} if kind == "sphere" else KINDS[kind]
    settings: dict[str, Any] = {**spaces, "likelihood": "bernoulli", "hidden": (HIDDEN,), "dim": dim}
    configs = [Config(**settings, batch_size=BATCH, epochs=80, seed=i) for i in range(count)]
    models = [build(config, COLUMNS).to("cuda") for config in configs]
    index = torch.arange(ROWS, device="cuda").expand(count, -1)
    configs = resolved(configs, ROWS)
    return BatchEngine(models, configs, RowPool([data] * count).part(index), captured=True)


def replays(made: BatchEngine) -> None:
    """Replay the steps of an epoch, without its draws: all with the batch of the last."""
    for _ in range(made.steps):
        made._captured[True, True].replay()


def cost(dim: int) -> tuple[float, float]:
    """Operations in matrix products and bytes moved, of a model and step.

    Bytes: weights read in both passes, gradients written, and the optimiser's reading of four and writing of three.
    """
    wide, narrow = COLUMNS * HIDDEN, HIDDEN * (dim + 1)
    products = 2 * BATCH * (2 * wide + 3 * wide + 6 * narrow)  # no gradient of the data is needed
    return products, 4 * (2 * wide + 2 * narrow) * (2 + 1 + 7)


def steps(dims: tuple[int, ...], counts: tuple[int, ...]) -> list[dict[str, Any]]:
    data = Rows(np.random.default_rng(0).random((ROWS, COLUMNS), dtype=np.float32), Scaling.identity(COLUMNS), "cuda")
    rows = []
    for dim in dims:
        products, moved = cost(dim)
        for count in counts:
            euclidean = 0.0
            for kind in KINDS:
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
                made = engine(kind, count, dim, data)
                began = time.perf_counter()
                with matmul_precision(True), mock.patch("curvae.training.engine._COMPILING", 0.0):
                    made.epoch(0)
                first = time.perf_counter() - began
                ms = 1e3 * seconds(partial(replays, made)) / made.steps
                whole = 1e3 * seconds(partial(made.epoch, 1)) / made.steps
                euclidean = ms if kind == "euclidean" else euclidean
                row = {
                    "kind": kind,
                    "dim": dim,
                    "models": count,
                    "ms": ms,
                    "ms_with_draws": whole,
                    "over_euclidean": ms / euclidean,
                    "model_steps_a_second": 1e3 * count / ms,
                    "tflops": count * products / ms / 1e9,
                    "gb_s": count * moved / ms / 1e6,
                    "memory_gb": torch.cuda.max_memory_allocated() / 1e9,
                    "first_epoch_s": first,
                }
                if count == 100 and kind in BOUNDS:
                    most, ratio = BOUNDS[kind]
                    row["holds"] = ms <= most and ms / euclidean <= ratio
                rows.append(row)
                print(json.dumps(row), flush=True)
    return rows


def fed(counts: tuple[int, ...] = (1, 10)) -> list[dict[str, Any]]:
    """Sparse rows that stay on the host: captured steps that are fed beside the computation, and plain ones."""
    x = np.random.default_rng(0).random((ROWS // 4, COLUMNS), dtype=np.float32)
    x[x < 0.8] = 0.0
    found = []
    for count in counts:
        settings = {"likelihood": "gaussian", "hidden": (HIDDEN,), "batch_size": BATCH, "epochs": 4}
        configs = resolved([Config(**settings, seed=i) for i in range(count)], len(x))
        row: dict[str, Any] = {"models": count}
        for name, captures, device in (("fed_ms", True, "cpu"), ("plain_ms", False, "cuda")):
            data = Rows(sparse.csr_array(x), Scaling.identity(COLUMNS), device)
            index = torch.arange(len(x)).expand(count, -1)
            models = [build(config, COLUMNS).to("cuda") for config in configs]
            made = BatchEngine(models, configs, RowPool([data] * count).part(index), captured=captures)
            made.epoch(0)
            row[name] = 1e3 * seconds(partial(made.epoch, 1), 2) / made.steps
        found.append(row)
        print(json.dumps(row), flush=True)
    return found


def ordinary() -> dict[str, float]:
    """One ordinary VAE in bare torch, launched operation by operation as everyone does."""
    model = OrdinaryVAE(COLUMNS, HIDDEN, 2, "bernoulli").cuda()
    x = torch.rand(BATCH, COLUMNS, device="cuda")
    with matmul_precision(True):
        task = step(model, lambda: model.loss(x))
        for _ in range(20):
            task()
        return {"models": 1, "ms": 10 * seconds(lambda: [task() for _ in range(100)])}


def likelihood(count: int = 40, epochs: int = 10, samples: int = 5000) -> dict[str, Any]:
    """IWAE of trained models on all test images of MNIST, and against float64 on a few."""
    train, test = mnist("train"), mnist("test")
    settings = {"posterior": "riemannian", "likelihood": "bernoulli", "hidden": (HIDDEN,), "batch_size": BATCH}
    configs = [Config(**settings, curvature=0.7, learning_rate=5e-4, epochs=epochs, seed=i) for i in range(count)]
    began = time.perf_counter()
    fitted = fit_many(configs, train.x, device="cuda")
    training = time.perf_counter() - began
    stack = Stack([one.model for one in fitted])
    x = torch.tensor(test.x, dtype=torch.float32, device="cuda").expand(count, -1, -1)
    found: dict[str, Any] = {"models": count, "samples": samples, "images": x.shape[1], "dim": 2}
    found |= {"epochs": epochs, "training_s": training}
    few = x[:4, :50]
    for name, tf32 in (("float32", False), ("tf32", True)):
        torch.cuda.reset_peak_memory_stats()
        took = []
        for rows in (x, x):  # the second time without compiling
            torch.cuda.synchronize()
            began = time.perf_counter()
            estimate = marginal_likelihood(stack, rows, samples, torch.Generator("cuda").manual_seed(0), tf32=tf32)
            torch.cuda.synchronize()
            took.append(time.perf_counter() - began)
        found[name] = {
            "seconds_first": took[0],
            "seconds": took[1],
            "samples_a_second": count * x.shape[1] * samples / took[1],
            "memory_gb": torch.cuda.max_memory_allocated() / 1e9,
            "log_likelihood": estimate.log_prob.mean().item(),
        }
        print(name, found[name], flush=True)
    exact = Stack([one.double().model for one in fitted[:4]])
    float64 = marginal_likelihood(exact, few.double(), samples, torch.Generator("cuda").manual_seed(0)).log_prob
    for name, tf32 in (("float32", False), ("tf32", True)):
        part = Stack([one.model for one in fitted[:4]])
        own = marginal_likelihood(part, few, samples, torch.Generator("cuda").manual_seed(0), tf32=tf32).log_prob
        gap = own - float64
        found[name] |= {
            "mean_gap_to_float64": gap.mean().item(),
            "largest_gap_to_float64": gap.abs().max().item(),
            "gap_of_the_means": gap.mean(1).abs().max().item(),
        }
        print(name, found[name], flush=True)
    return found


def main(path: Path, names: list[str]) -> None:
    parts: dict[str, Callable[[], Any]] = {
        "measured": card,
        "ordinary": ordinary,
        "fed": fed,
        "steps": lambda: steps((2,), (1, 10, 40, 100)) + steps((10,), (100,)),
        "likelihood": likelihood,
    }
    result: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for name in names or list(parts):
        measured = steps((2, 10), (100,)) if name == "hundred" else parts[name]()
        result |= {"card": torch.cuda.get_device_name(), "versions": versions(), name: measured}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
