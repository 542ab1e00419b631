"""Are convolutions worth their time on images? Held-out likelihood of MNIST after equal times of training.

python -m benchmarks.images                       writes results/images.json; an interrupted run goes on
python -m benchmarks.images --seconds 20 --out F  shorter, into another file
python -m benchmarks.images --quick --out F       a minute on a CPU, to see that it works

A dense network with two layers of 600, and "conv" with two of 400 beside its convolutions. For each, a stack of models
without curvature and with c = 1, five seeds each, trains for the same time, not counting compilation; every model keeps
the weights of the epoch with the best validation ELBO. Likelihoods of the test images are importance-weighted bounds in
float32.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from curvae.data import mnist
from curvae.data.principal import mean_interval
from curvae.models import VAE, Layout, Stack, marginal_likelihood
from curvae.models.tracing import matmul_precision
from curvae.training import Config, Scaling, build, captured, random_split
from curvae.training.captured import Captured
from curvae.training.engine import BatchEngine
from curvae.training.problems import Listener, ModelInTraining
from curvae.training.rows import Rows
from curvae.training.rows_problem import RowsTask
from curvae.training.sources import Pool
from curvae.training.stacks import train_stack
from curvae.training.storage import versions

__all__ = ["main", "table"]

RESULT = Path(__file__).parent.parent / "results" / "images.json"
NETWORKS: dict[str, dict[str, Any]] = {
    "mlp 600, 600": {"hidden": (600, 600)},
    "conv": {"network": "conv", "hidden": (400, 400)},
}
CURVATURES = (0.0, 1.0)
LAYOUT = Layout(784, shape=(28, 28))


@dataclass(frozen=True)
class Plan:
    """How much to compute."""

    dims: tuple[int, ...] = (2, 10)
    seeds: int = 5
    rows: int = 60_000
    test: int = 5_000
    samples: int = 500
    seconds: float = 60.0
    """of the training of a stack"""
    batch_size: int = 128


QUICK = Plan(dims=(2,), seeds=2, rows=480, test=10, samples=20, seconds=4.0)


class Images:
    """MNIST on a device, and engines of models on it."""

    def __init__(self, plan: Plan, device: torch.device) -> None:
        self.plan, self.device = plan, device
        x = np.asarray(mnist("train").x[: plan.rows], dtype=np.float32)
        self.split = random_split(len(x), 1 / 12, seed=0)
        self.mean = x[self.split.train].mean(0, dtype=np.float64)
        self.rows = Rows(x, Scaling.identity(x.shape[1]), device)
        self.test = torch.tensor(mnist("test").x[: plan.test], dtype=torch.float32, device=device)

    def configs(self, dim: int, settings: dict[str, Any], seeds: int) -> list[Config]:
        common = {"likelihood": "bernoulli", "batch_size": self.plan.batch_size, "epochs": 10**6, "dim": dim}
        return [Config(**common, **settings, curvature=c, seed=i) for c in CURVATURES for i in range(seeds)]

    def engine(self, configs: Sequence[Config]) -> BatchEngine:
        models = [build(config, LAYOUT, mean=self.mean).to(self.device) for config in configs]
        parts = (self.split.train, self.split.validation)
        train, validation = (torch.from_numpy(part).to(self.device).expand(len(models), -1) for part in parts)
        kind = Captured if self.device.type == "cuda" else BatchEngine
        pool = Pool([self.rows] * len(models))
        return kind(models, configs, pool.part(train), pool.part(validation))

    def precision(self) -> AbstractContextManager[None]:
        return matmul_precision(True) if self.device.type == "cuda" else nullcontext()

    def seconds(self, task: Callable[[], object]) -> float:
        """Of a task, the device being idle before and after."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        task()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began


@dataclass(frozen=True)
class Ready:
    """A stack that is trained by an engine that is warm."""

    warm: BatchEngine
    device: torch.device
    remedy = "lower the number of seeds"

    def models(self, tasks: Sequence[RowsTask]) -> Sequence[VAE]:
        return self.warm.stack.models

    def engine(self, tasks: Sequence[RowsTask], models: Sequence[VAE]) -> BatchEngine:
        return self.warm

    def result(self, task: RowsTask, member: ModelInTraining) -> ModelInTraining:
        return member


def warmed(images: Images, configs: Sequence[Config]) -> tuple[BatchEngine, float, float]:
    """A fresh engine whose graphs are compiled, with the seconds of an epoch and of a validation."""
    engine = images.engine(configs)
    before = {name: t.clone() for name, t in engine.stack.tensors.items()}
    with images.precision(), mock.patch.object(captured, "_COMPILING", 0.0):
        engine.epoch(0)
        engine.validate()
        epoch = images.seconds(lambda: engine.epoch(1))
        validation = images.seconds(engine.validate)
    for name, t in engine.stack.tensors.items():
        t.copy_(before[name])
    engine.load({name: (torch.zeros_like(a), torch.zeros_like(b)) for name, (a, b) in engine.moments.items()}, 0)
    return engine, epoch, validation


def cell(images: Images, dim: int, settings: dict[str, Any]) -> dict[str, Any]:
    """A stack of one network: trained for the time of the plan, and judged on the test images."""
    plan = images.plan
    configs = images.configs(dim, settings, plan.seeds)
    began = time.perf_counter()
    engine, epoch, validation = warmed(images, configs)
    starting = time.perf_counter() - began
    epochs = max(1, round(plan.seconds / (epoch + validation)))
    scaling = Scaling.identity(LAYOUT.features)
    tasks = [
        RowsTask(i, f"model {i}", replace(config, epochs=epochs, patience=epochs), 0, images.split, scaling, LAYOUT)
        for i, config in enumerate(configs)
    ]
    members: list[ModelInTraining] = []
    training = images.seconds(lambda: members.extend(train_stack(Ready(engine, images.device), tasks, Listener())))
    if failed := [member.failure for member in members if member.failure is not None]:
        raise RuntimeError(failed[0])
    stack, found = Stack([member.model for member in members]), []

    def judge() -> None:
        x, generator = images.test.expand(len(stack), -1, -1), torch.Generator(images.device).manual_seed(0)
        found.append(marginal_likelihood(stack, x, plan.samples, generator).log_prob.mean(1))

    judging = images.seconds(judge)
    figures: list[float] = torch.cat(found).tolist()
    return {
        "dim": dim,
        "epochs": epochs,
        "steps": epochs * engine.steps,
        "ms_a_step": 1e3 * epoch / engine.steps,
        "seconds": {"starting": starting, "training": training, "judging": judging},
        "parameters": sum(p.numel() for p in members[0].model.parameters()),
        "best_epochs": [member.best_epoch for member in members],
        "log_likelihood": {f"{c:g}": figures[i * plan.seeds : (i + 1) * plan.seeds] for i, c in enumerate(CURVATURES)},
    }


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return f"one {torch.cuda.get_device_name().removeprefix('NVIDIA ')}"
    return f"a CPU ({platform.machine()}, {torch.get_num_threads()} threads)"


def measure(plan: Plan, device: torch.device, path: Path) -> dict[str, Any]:
    """All cells; those that the file already has, with this plan, are kept."""
    head = {
        "command": f"python -m benchmarks.images --seconds {plan.seconds:g} --seeds {plan.seeds}",
        "device": device_name(device),
        "versions": versions(),
        "plan": json.loads(json.dumps(vars(plan))),
        "networks": json.loads(json.dumps(NETWORKS)),
        "seeds": list(range(plan.seeds)),
    }
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    same = all(known.get(name) == head[name] for name in ("device", "plan", "networks", "versions"))
    result: dict[str, Any] = {**head, "cells": {}, **(known if same else {})}
    images = Images(plan, device)

    for name, dim in product(NETWORKS, plan.dims):
        if (key := f"{name}, d = {dim}") in result["cells"]:
            continue
        result["cells"][key] = cell(images, dim, NETWORKS[name])
        print(f"{key}: {json.dumps(result['cells'][key])}", flush=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        part.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        part.replace(path)
    return result


def compared(result: dict[str, Any], dim: int, c: str) -> tuple[dict[str, Any], dict[str, Any], float, float]:
    """The cells of the dense network and of "conv", the gain and its 95 % interval."""
    dense, conv = (result["cells"][f"{name}, d = {dim}"] for name in NETWORKS)
    pairs = zip(conv["log_likelihood"][c], dense["log_likelihood"][c], strict=True)
    return dense, conv, *mean_interval([a - b for a, b in pairs])


def table(result: dict[str, Any]) -> str:
    """Likelihoods after equal times, and what a step costs."""
    lines = ["| test images, nats | MLP (600, 600) | conv | conv − MLP | epochs of the two |", "|---|---|---|---|---|"]
    plan = result["plan"]
    for dim in plan["dims"]:
        for c in (f"{c:g}" for c in CURVATURES):
            dense, conv, gain, half = compared(result, dim, c)
            cells = [
                _interval(dense["log_likelihood"][c]),
                _interval(conv["log_likelihood"][c]),
                f"{gain:+.2f} ± {half:.2f}",
                f"{dense['epochs']}, {conv['epochs']}",
            ]
            lines.append(f"| d = {dim}, c = {c} | {' | '.join(cells)} |".replace("-", "−"))
    dim, models = plan["dims"][0], plan["seeds"] * len(CURVATURES)
    steps = {name: result["cells"][f"{name}, d = {dim}"]["ms_a_step"] for name in NETWORKS}
    lines += [
        "",
        f"Mean ± 95 % interval over {plan['seeds']} seeds, {plan['samples']:,} importance samples, on "
        f"{result['device']}: {plan['seconds']:g} s of training for a stack of {models} models, half of them flat. "
        f"A step of such a stack with d = {dim} takes "
        f"{', '.join(f'{ms:.2f} ms ({name})' for name, ms in steps.items())}.",
    ]
    return "\n".join(lines)


def _interval(figures: Sequence[float]) -> str:
    mean, half = mean_interval(figures)
    return f"{mean:.2f} ± {half:.2f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.images", description="Dense or convolutional?")
    parser.add_argument("--out", type=Path, default=RESULT, help="file to write, and to go on with")
    parser.add_argument("--quick", action="store_true", help="a minute on a CPU, to see that it works")
    parser.add_argument("--seconds", type=float, help="of training a stack")
    parser.add_argument("--seeds", type=int, help="of each network and curvature, trained in one stack")
    options = parser.parse_args(arguments)
    plan = QUICK if options.quick else Plan()
    asked = {name: getattr(options, name) for name in ("seconds", "seeds")}
    plan = replace(plan, **{name: value for name, value in asked.items() if value is not None})
    device = torch.device("cuda" if torch.cuda.is_available() and not options.quick else "cpu")
    print(table(measure(plan, device, options.out)))


if __name__ == "__main__":
    main()
