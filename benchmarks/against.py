"""Is this checkout slower than another? Short runs of both, in turns.

python -m benchmarks.against FOLDER OUT.json      against the checkout in a folder
python -m benchmarks.against REVISION OUT.json    against a revision of this repository

A round is a process with this checkout, one with the other, and one with this again. For every figure the table has
the median over rounds of new / old, with the smallest and largest round (of five, they hold the median with a
probability of 94 %), and the same of the two runs of this checkout: a difference that is not larger is noise. The file
is written after every round. Both libraries are measured by the code of this folder; groups that do not run on the
other library are measured by the code of its own folder. Figures that the other does not have are left out.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
BOUND = 1.05
THREADS = (1, 2)
Figures = dict[str, float]


# --- in a process of its own, which may have the benchmarks of another checkout ---------------------------------------


def _compare(tasks: Mapping[str, Callable[[], object]], seconds: float, least: int = 5) -> Figures:
    from benchmarks.timing import compare

    return compare(tasks, seconds, least)


def _memory(seconds: float) -> Figures:
    """Megabytes; the first of all groups, for it is the most that the process has held."""
    from benchmarks.stacks import engine, resident

    engine(100, "riemannian").epoch(0)
    return {"100 models (MB)": resident()}


def _first_use(seconds: float) -> Figures:
    from benchmarks.ground import first_use

    return {row.what.partition(" / ")[0]: row.ours_ms for row in first_use(1)}


def _draws(seconds: float) -> Figures:
    import torch

    from benchmarks.ground import draw_tasks

    found = {}
    for dim in (2, 10):
        tasks = draw_tasks(dim, 0.1 * torch.randn(32, dim), 0.1 + 0.5 * torch.rand(32, 1))
        del tasks["rejection"]  # the paper's, which nothing else uses
        found |= {f"{name}, d = {dim}": ms for name, ms in _compare(tasks, seconds, 3).items()}
    return found


def _gyroplane(seconds: float) -> Figures:
    import torch

    from benchmarks.ground import gyroplane_tasks

    found = {}
    for dim in (2, 10):
        tasks = gyroplane_tasks(dim, torch.randn(128, dim, requires_grad=True), torch.ones(128, 600))
        found |= {f"{name}, d = {dim}": ms for name, ms in _compare(tasks, seconds).items()}
    return found


def _steps(seconds: float) -> Figures:
    import torch

    from benchmarks.steps import SHAPES, tasks

    found = {}
    for shape, (rows, columns, *_) in SHAPES.items():
        for dim in (2, 10):
            ms = _compare(tasks(shape, dim, torch.rand(rows, columns)), seconds)
            found |= {f"{name}, {shape}, d = {dim}": value for name, value in ms.items()}
    return found


def _stacks(seconds: float) -> Figures:
    from benchmarks.stacks import engine

    found = {}
    for posterior in ("wrapped", "riemannian"):
        engines = {f"{count} {posterior}": engine(count, posterior) for count in (1, 40)}
        found |= _compare({name: lambda e=e: e.epoch(0) for name, e in engines.items()}, seconds, 2)
    return found


def _samples(seconds: float) -> Figures:
    from benchmarks.ground import sample_tasks

    return _compare(sample_tasks(4), seconds, 3)


def _fits(seconds: float) -> Figures:
    """From the call of a function to the trained model."""
    import torch

    from benchmarks.graphs import tree_with_shortcuts
    from curvae.data import split_edges
    from curvae.training import Config, GraphConfig, fit, fit_graph

    x, graph = torch.randn(640, 50).double().numpy(), tree_with_shortcuts(500, 2_000)
    rows, edges, split = Config(epochs=2, hidden=(200,), neighbours="off"), GraphConfig(epochs=8), split_edges(graph)
    tasks = {"rows": lambda: fit(rows, x), "graph": lambda: fit_graph(edges, graph, split=split)}
    return _compare(tasks, seconds, 2)


GROUPS: dict[str, Callable[[float], Figures]] = {
    "memory": _memory,
    "first use": _first_use,
    "draws": _draws,
    "gyroplane": _gyroplane,
    "steps": _steps,
    "stacks": _stacks,
    "samples": _samples,
    "fits": _fits,
}
ONCE = ("memory", "first use")  # with one thread
# What is bare torch, in a group, and so should not change.
BARE = {"draws": "normals", "gyroplane": "linear", "steps": "ordinary", "samples": "product"}


def measure(src: Path, names: Sequence[str], seconds: float) -> None:
    """Print the figures of the library in a folder as JSON, with the reason for each group that does not run."""
    import torch

    import curvae

    if not Path(curvae.__file__).resolve().is_relative_to(src):
        sys.exit(f"curvae was imported from {curvae.__file__}, not from {src}")
    found: Figures = {}
    failures: dict[str, str] = {}
    for name in GROUPS:
        for threads in (THREADS[:1] if name in ONCE else THREADS) if name in names else ():
            torch.set_num_threads(threads)
            torch.manual_seed(0)
            try:
                figures = GROUPS[name](seconds)
            except Exception as error:  # an older library may lack anything
                failures[name] = f"{type(error).__name__}: {error}"
                break
            found |= {f"{name}: {what}, {threads} thread{'s' * (threads > 1)}": v for what, v in figures.items()}
    print(json.dumps({"figures": found, "failures": failures}))


# --- in the process that was asked for --------------------------------------------------------------------------------


def run(folder: Path, benchmarks: Path, names: Sequence[str], seconds: float) -> tuple[Figures, dict[str, str]]:
    """Figures of the library in a folder, and failures, by the benchmarks of one."""
    src = folder / "src"
    environment = {k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    # Memory that is given back to the system and asked for again costs page faults, more or fewer by the chance of
    # where things lie, which differs between programs. So the allocators keep it.
    environment |= {"MIMALLOC_PURGE_DELAY": "-1", "MALLOC_TRIM_THRESHOLD_": str(2**32), "MALLOC_TOP_PAD_": str(2**26)}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (src, benchmarks)))
    command = [sys.executable, "-P", __file__, "--measure", str(src), str(seconds), *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{folder} could not be measured:\n{done.stderr}")
    answer = json.loads(done.stdout.splitlines()[-1])
    return answer["figures"], answer["failures"]


class Other:
    """The other checkout. Which groups its own benchmarks must measure is seen the first time."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.folder, self.names = folder, list(names)
        self.own: dict[str, str] = {}
        self.missing: dict[str, str] = {}

    def figures(self, seconds: float) -> Figures:
        found, failures = run(self.folder, HERE, self.names, seconds)
        self.own |= failures
        self.names = [name for name in self.names if name not in failures]
        left = [name for name in self.own if name not in self.missing]
        if left and (self.folder / "benchmarks").is_dir():
            more, failures = run(self.folder, self.folder, left, seconds)
            found |= more
        self.missing |= failures
        return found


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def _over_bare(name: str, figures: Figures) -> float | None:
    """Over the same in bare torch, measured in the same process; None where there is none."""
    group, _, what = name.partition(": ")
    first, *rest = what.split(", ")
    bare = ", ".join([f"{group}: {BARE.get(group)}", *rest])
    return figures[name] / figures[bare] if bare in figures and BARE.get(group) != first else None


def summary(rounds: Sequence[Mapping[str, Figures]]) -> dict[str, dict[str, Any]]:
    """For every figure that all runs have: new / old, and new / new."""
    found: dict[str, dict[str, Any]] = {}
    for name in rounds[0]["new"]:
        if not all(name in figures for one in rounds for figures in one.values()):
            continue
        new = [math.sqrt(one["new"][name] * one["again"][name]) for one in rounds]
        old = [one["old"][name] for one in rounds]
        found[name] = {
            "old": statistics.median(old),
            "new": statistics.median(new),
            "new_over_old": spread([a / b for a, b in zip(new, old, strict=True)]),
            "new_over_new": spread([one["again"][name] / one["new"][name] for one in rounds]),
        }
        over = [{run: _over_bare(name, figures) for run, figures in one.items()} for one in rounds]
        if None not in over[0].values():
            found[name]["ratio_new_over_old"] = spread(
                [math.sqrt(one["new"] * one["again"]) / one["old"] for one in over]
            )
    return found


def _bare(name: str) -> bool:
    group, _, what = name.partition(": ")
    return what.split(", ")[0] == BARE.get(group)


def verdict(name: str, figure: Mapping[str, Any]) -> str:
    if _bare(name):
        return "bare torch"
    if figure["new_over_old"]["median"] <= BOUND:
        return "[green]holds"
    noisy = figure["new_over_old"]["least"] <= BOUND or figure["new_over_new"]["most"] > BOUND
    return "[yellow]slower, or noise" if noisy else "[red]slower"


def outcome(figures: Mapping[str, Mapping[str, Any]]) -> str:
    ours = [figure["new_over_old"]["median"] for name, figure in figures.items() if not _bare(name)]
    slower, mean = sum(ratio > BOUND for ratio in ours), statistics.geometric_mean(ours)
    return (
        f"{slower} of {len(ours)} figures are more than {BOUND - 1:.0%} worse; geometric mean of new / old {mean:.3f}"
    )


def show(result: Mapping[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    def interval(part: Mapping[str, float] | None) -> str:
        if part is None:
            return ""
        return f"{part['median']:.3f} \\[{part['least']:.2f}, {part['most']:.2f}]"

    title = f"{len(result['rounds'])} rounds; median \\[least, most]; milliseconds but for memory"
    table = Table(title=title, title_justify="left")
    for column in ("what", "old", "new", "new / old", "the same, over bare torch", "noise: new / new", ""):
        table.add_column(column, justify="left" if column in ("what", "") else "right")
    for name, figure in result["figures"].items():
        table.add_row(
            name,
            f"{figure['old']:.3g}",
            f"{figure['new']:.3g}",
            interval(figure["new_over_old"]),
            interval(figure.get("ratio_new_over_old")),
            interval(figure["new_over_new"]),
            verdict(name, figure),
        )
    console = Console(width=190)
    console.print(table)
    console.print(outcome(result["figures"]))
    for name, why in result["own_benchmarks"].items():
        how = "not measured" if name in result["not_measured"] else "measured by the other checkout's own code"
        console.print(f"{name}: {how} ({why})", markup=False)


def write(path: Path, result: Mapping[str, Any]) -> None:
    """All or nothing: a run that is stopped leaves the rounds that it finished."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def unpacked(revision: str, folder: Path) -> Path:
    """Unpack the library and the benchmarks of a revision into a folder."""
    command = ["git", "-C", str(HERE), "archive", revision, "src", "benchmarks"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"{revision} is no folder and no revision: {done.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against", description="Slower than another checkout?")
    parser.add_argument("other", help="folder of the other checkout, or a revision")
    parser.add_argument("out", type=Path, help="file to write")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--only", nargs="+", choices=GROUPS, default=list(GROUPS), metavar="NAME", help=", ".join(GROUPS)
    )
    parser.add_argument("--seconds", type=float, default=0.1, help="to time a task in a run")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        folder = Path(options.other).resolve()
        if not (folder / "src" / "curvae").is_dir():
            temporary = stack.enter_context(tempfile.TemporaryDirectory())
            folder = unpacked(options.other, Path(temporary).resolve())
        other = Other(folder, options.only)
        result: dict[str, Any] = {
            "other": options.other,
            "machine": f"{os.cpu_count()} cores, {platform.machine()}",
            "python": platform.python_version(),
            "seconds": options.seconds,
            "rounds": [],
        }
        began = time.perf_counter()
        for i in range(options.rounds):
            new, failures = run(HERE, HERE, options.only, options.seconds)
            if failures:
                sys.exit(f"this checkout could not be measured: {failures}")
            old = other.figures(options.seconds)
            again, _ = run(HERE, HERE, options.only, options.seconds)
            result["rounds"].append({"new": new, "old": old, "again": again})
            result |= {"own_benchmarks": other.own, "not_measured": other.missing}
            result["figures"] = summary(result["rounds"])
            write(options.out, result)
            seconds = time.perf_counter() - began
            print(f"round {i + 1} of {options.rounds}, {seconds:.0f} s: {outcome(result['figures'])}", flush=True)
    show(result)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(Path(sys.argv[2]).resolve(), sys.argv[4:], float(sys.argv[3]))
    else:
        main(sys.argv[1:])
