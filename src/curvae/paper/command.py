"""`curvae paper` behind the command line: which experiments, in which folder, and what to say about them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..console import Answer
from ..errors import CurvaeError
from ..runs import Reporter, Step
from ..training.device import choose_device
from ..training.workers import processes
from . import ablation, gallery, table1, table2, table3, table4, tuned
from .experiment import Experiment, Plan, Workspace
from .running import CACHE, Store, run_experiment

__all__ = ["EXPERIMENTS", "paper_list", "paper_run"]

_MODULES = (table1, table2, table3, table4, ablation, gallery, tuned)

EXPERIMENTS: dict[str, Experiment] = {module.EXPERIMENT.name: module.EXPERIMENT for module in _MODULES}


def _folder(out: Path | None, quick: bool) -> Path:
    return out or Path("runs/paper-quick" if quick else "results/paper")


def paper_list(out: Path | None, quick: bool, seed: int) -> Answer:
    """Every experiment with how much of it is done."""
    entries: list[dict[str, Any]] = []
    for experiment in EXPERIMENTS.values():
        states = Store(_folder(out, quick), experiment, Plan(quick, seed)).states()
        done = f"{list(states.values()).count('done')}/{len(states)} shards done"
        text = f"{experiment.name:<9} {done}  {experiment.title} (about {experiment.minutes:g} min on one H200)"
        entries.append({"name": experiment.name, "title": experiment.title, "shards": states, "text": text})
    return Answer(entries, [entry["text"] for entry in entries], Step("paper", ("table1",), {"quick": True}))


def paper_run(
    what: str,
    out: Path | None,
    quick: bool,
    seed: int,
    *,
    shards: bool,
    only: Sequence[str],
    force: bool,
    device: str,
    reporter: Reporter,
) -> Answer:
    """Run an experiment, or all of them."""
    plan = Plan(quick, seed)
    folder = _folder(out, quick)
    if what != "all" and what not in EXPERIMENTS:
        raise CurvaeError(f"there is no experiment {what!r}; choose one of {', '.join(EXPERIMENTS)}, or all")
    chosen = list(EXPERIMENTS.values()) if what == "all" else [EXPERIMENTS[what]]
    if only and what == "all":
        raise CurvaeError("only=… needs one experiment: curvae paper table1 --only flat, say")
    if shards:
        return _states(chosen, folder, plan)
    workspace = Workspace(choose_device(device), folder / CACHE, processes(device))
    results: dict[str, Any] = {}
    lines: list[str] = []
    following = Step("paper", ("list",))
    for experiment in chosen:
        store, result = run_experiment(experiment, plan, folder, workspace, only, force, reporter)
        if result is None:
            missing = [name for name, state in store.states().items() if state != "done"]
            results[experiment.name] = {"missing": missing}
            lines.append(f"{experiment.name}: {len(missing)} shards are missing: {', '.join(missing)}")
            following = Step("paper", (experiment.name,), {"quick": plan.quick or None, "out": out})
            continue
        page = experiment.page(result)
        results[experiment.name] = {"verdict": page.verdict, "result": str(store.merged())}
        lines.append(f"{experiment.name}: {page.verdict}")
        lines += [f"page: {store.merged('html')}", f"table: {store.merged('md')}"]
    return Answer(results, lines, following)


def _states(chosen: Sequence[Experiment], folder: Path, plan: Plan) -> Answer:
    states = {experiment.name: Store(folder, experiment, plan).states() for experiment in chosen}
    lines = [f"{name} {shard}: {state}" for name, shards in states.items() for shard, state in shards.items()]
    undone = [(name, shard) for name, shards in states.items() for shard, state in shards.items() if state != "done"]
    name, only = undone[0] if undone else (next(iter(states)), None)
    return Answer(states, lines, Step("paper", (name,), {"only": only}))
