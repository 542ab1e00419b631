"""Run the benchmarks, print their tables, and write results/bench_cpu.json."""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path

import torch

import curvae

from . import ground, stacks, steps
from .timing import show, with_threads

GROUPS = {
    "draws": ground.draws,
    "first use": ground.first_use,
    "gyroplane": ground.gyroplane,
    "steps": steps.steps,
    "counts": steps.counts,
    "learned": stacks.learned,
    "products": stacks.products,
    "stacks": stacks.stacks,
    "samples": ground.samples,
    "memory": stacks.memory,
}


def main(names: list[str]) -> None:
    unknown = set(names) - set(GROUPS)
    if unknown:
        sys.exit(f"unknown group {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    path = Path("results/bench_cpu.json")
    groups = json.loads(path.read_text())["groups"] if path.exists() else {}
    for name, measure in GROUPS.items():
        if names and name not in names:
            continue
        torch.manual_seed(0)
        rows = [row for threads in sorted({1, min(2, os.cpu_count() or 1)}) for row in with_threads(threads, measure)]
        show(name, rows)
        groups[name] = [row.to_json() for row in rows]
        versions = {"curvae": curvae.__version__, "torch": torch.__version__, "python": platform.python_version()}
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            json.dumps({"machine": platform.machine(), "versions": versions, "groups": groups}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
