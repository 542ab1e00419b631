"""Training in several processes: `python -m benchmarks.processes` adds its figures to results/scale.json.

`speed`: rows a second of two processes with one thread each, beside those of one process with one thread, each with 512
rows of the shape of MNIST a process and step; the trainings take turns. It needs two idle cores.

`kills`: a training is started in two processes, one of which is killed at a random moment; then it is resumed. Its
model must be that of a training that nothing interrupted, bit for bit.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

import curvae
from benchmarks.scale import RESULT
from curvae.data import load
from curvae.errors import CurvaeError
from curvae.training import Config, fit, stacks

__all__ = ["kills", "speed", "table"]

ROWS, COLUMNS, HIDDEN, EACH, BOUND = 10_240, 784, 600, 512, 1.6
GROUPS, MODEL = ("speed", "kills"), "model.safetensors"


def speed(repeats: int = 5) -> dict[str, Any]:
    """Rows a second, the median over the epochs of all trainings but their first ones, and the ratio.

    Also the processor time of a step of one process, which other work on the machine changes little, and the load of
    the machine before.
    """
    x = (np.random.default_rng(0).random((ROWS, COLUMNS)) < 0.2).astype(np.float32)
    load = os.getloadavg()[0]
    rates: dict[int, list[float]] = {1: [], 2: []}
    works: dict[int, list[float]] = {1: [], 2: []}
    parameters = 0
    for _ in range(repeats):
        for count, found in rates.items():
            ends: list[float] = []
            torch.set_num_threads(count)  # which the processes share
            config = Config(
                hidden=(HIDDEN,),
                likelihood="bernoulli",
                batch_size=EACH * count,
                epochs=3,
                validation=0.0,
                patience=None,
                neighbours="off",
            )
            fitted = fit(config, x, processes=count, progress=lambda record, n, to=ends: to.append(time.process_time()))
            parameters = sum(p.numel() for p in fitted.model.parameters())
            found += [ROWS / record["seconds"] for record in fitted.history[1:]]
            works[count] += [(end - begin) * EACH * count / ROWS for begin, end in pairwise(ends)]
    one, two = (statistics.median(rates[count]) for count in (1, 2))
    work = {f"{name}_step_cpu_s": statistics.median(works[count]) for name, count in (("one", 1), ("two", 2))}
    shape = {"rows": ROWS, "columns": COLUMNS, "hidden": HIDDEN, "rows_each": EACH, "parameters": parameters}
    figures = {"one_rows_s": one, "two_rows_s": two, "ratio": two / one, "bound": BOUND}
    return {**shape, "repeats": repeats, "cores": os.cpu_count(), "load": load, **figures, **work}


def kills(moments: int = 20) -> dict[str, Any]:
    """Kill one of two processes of a training at random moments, and resume."""
    chosen = random.Random(0)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        x = np.random.default_rng(0).normal(size=(6_000, 50)).astype(np.float32)
        np.save(folder / "x.npy", x + x[:, :1])
        began = time.monotonic()
        _ended(_started(folder / "whole"))
        typical = time.monotonic() - began
        whole, equal, interrupted, lines = (folder / "whole" / MODEL).read_bytes(), 0, 0, 0
        for moment in range(moments):
            own = folder / str(moment)
            training = _started(own)
            time.sleep(chosen.uniform(0.1, 1.0) * typical)
            if training.poll() is None:
                os.kill(chosen.choice(_processes(training.pid)), signal.SIGKILL)
            code, said = _ended(training, check=False)
            interrupted += code != 0
            lines += code > 0 and said.count("\n") == 1 and said.startswith("process ")
            _ended(_started(own, "--resume"))
            equal += (own / MODEL).read_bytes() == whole
            print(moment, code, said.strip(), equal, flush=True)
    return {"moments": moments, "processes": 2, "interrupted": interrupted, "said": lines, "equal": equal}


def one(folder: Path, resume: bool) -> None:
    """Train on an array on disk, in 40 parts of passes over it: the process that is killed."""
    data, _ = load(folder.parent / "x.npy", memory="4MB")
    config = Config(epochs=40, epoch_steps=5, batch_size=512, hidden=(32,), posterior="wrapped", neighbours="off")
    try:
        fitted = fit(config, data, folder=folder, resume=resume, processes=2)
    except CurvaeError as error:
        raise SystemExit(str(error)) from error
    save_file(fitted.model.state_dict(), folder / MODEL)


def _started(folder: Path, *more: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "benchmarks.processes", "--one", str(folder), *more]
    own = {**os.environ, "XDG_CACHE_HOME": str(folder.parent)}
    return subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True, env=own)


def _processes(leader: int) -> list[int]:
    """Return the process of a run and those that train with it: children of the server that it forks them from."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[3]) == leader:  # the session
            found[int(path.parent.name)] = int(words[1])
    servers = [pid for pid, parent in found.items() if parent == leader]
    return [leader, *(pid for pid, parent in found.items() if parent in servers)]


def _ended(run: subprocess.Popen[str], check: bool = True) -> tuple[int, str]:
    _, said = run.communicate(timeout=600)
    if check and run.returncode:
        raise SystemExit(said)
    return run.returncode, said


def table(result: dict[str, Any]) -> str:
    """Show what a second process brings, and what becomes of killed ones; times by the clock are of idle machines."""
    lines = []
    if (found := result.get("processes_speed")) is not None:
        one, two = found["one_step_cpu_s"], found["two_step_cpu_s"]
        lines += [
            "| processes | rows a step | processor time of a step of each (ms) | rows a second of that | ratio |",
            "|---|---|---|---|---|",
            f"| 1 | {EACH:,} | {1e3 * one:.1f} | {EACH / one:,.0f} | |",
            f"| 2 | {2 * EACH:,} | {1e3 * two:.1f} | {2 * EACH / two:,.0f} | ×{2 * one / two:.2f} |",
        ]
        if found["load"] < 0.5:
            clock = f"{found['one_rows_s']:,.0f} and {found['two_rows_s']:,.0f} rows a second, ×{found['ratio']:.2f}"
            lines += ["", f"By the clock, on {found['cores']} idle cores: {clock}."]
    if (found := result.get("processes_kills")) is not None:
        lines += [
            "",
            f"Of {found['moments']} trainings in {found['processes']} processes, one of which was killed at a random "
            f"moment, {found['interrupted']} were interrupted; {found['equal']} ended, resumed where necessary, with "
            "the model of one that nothing interrupted, bit for bit.",
        ]
    return "\n".join(lines) or "To be computed: `python -m benchmarks.processes`."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", help=f"of {', '.join(GROUPS)}; all by default")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--resume", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one is not None:
        stacks._CHECKPOINT_EVERY, stacks._CHECKPOINT_SHARE = -1.0, math.inf  # one after every epoch
        one(asked.one, asked.resume)
        return
    for group in asked.groups or GROUPS:
        found = speed() if group == "speed" else kills()
        print(group, found)
        versions = {"curvae": curvae.__version__, "torch": torch.__version__, "python": platform.python_version()}
        known = json.loads(RESULT.read_text()) if RESULT.exists() else {}
        RESULT.write_text(json.dumps({**known, f"processes_{group}": {**found, "versions": versions}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
