"""The tables and figures of Mathieu et al. (2019), and what `curvae paper` does with them."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ..errors import CurvaeError
from ..runs import Reporter, Step
from ..training.fitted import choose_device
from ..training.fitting import default_jobs
from .experiment import Plan, Store, Workspace
from .figures import GALLERY
from .paper_tables import ABLATION, SEARCHED, TABLE1, TABLE2, TABLE3, TABLE4

__all__ = ["EXPERIMENTS", "reproduce"]

EXPERIMENTS = {one.name: one for one in (TABLE1, TABLE2, TABLE3, TABLE4, ABLATION, GALLERY, SEARCHED)}

Found = tuple[Any, list[str], Step]  # a result as JSON values, lines that describe it, and what to do next


def reproduce(
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
) -> Found:
    """Run an experiment, or "all" of them, "list" them, or list their shards.

    Arguments:
        what: name of an experiment, or "all", or "list".
        out: folder of the results; by default one for full runs and one for quick ones.
        quick, seed: as of `Plan`.
        shards: only list the shards and their state.
        only: names of the shards to compute, if not all.
        force: compute finished shards again.
        device: on which to compute.
        reporter: receives messages and progress.
    """
    if what not in {*EXPERIMENTS, "all", "list"}:
        near = get_close_matches(what, [*EXPERIMENTS, "all", "list"], 1)
        hint = f"did you mean {near[0]}? Else choose" if near else "choose"
        raise CurvaeError(f"there is no experiment {what!r}; {hint} one of {', '.join(EXPERIMENTS)}, or all")
    if only and what == "all":
        raise CurvaeError("`only=…` needs one experiment: curvae paper table1 --only flat, say")
    folder = out or Path("runs/paper-quick" if quick else "results/paper")
    stores = {
        name: Store(folder, EXPERIMENTS[name], Plan(quick, seed))
        for name in ([what] if what in EXPERIMENTS else EXPERIMENTS)
    }
    if what == "list":
        return _list_experiments(stores)
    if shards:
        return _list_shards(stores)
    workspace = Workspace(choose_device(device), folder / "cache", default_jobs(device), reporter)
    results: dict[str, Any] = {}
    lines: list[str] = []
    following = Step("paper", ("list",))
    for name, store in stores.items():
        if result := store.run(workspace, only, force):
            verdict = store.experiment.page(result).verdict
            results[name] = {"verdict": verdict, "result": str(store.merged())}
            lines += [f"{name}: {verdict}", f"page: {store.merged('html')}", f"table: {store.merged('md')}"]
        else:
            missing = [shard for shard, state in store.states().items() if state != "done"]
            results[name] = {"missing": missing}
            lines.append(f"{name}: {len(missing)} shards are missing: {', '.join(missing)}")
            following = Step("paper", (name,), {"quick": quick or None, "out": out})
    return results, lines, following


def _list_experiments(stores: dict[str, Store]) -> Found:
    """List every experiment with how much of it is done."""
    entries: list[dict[str, Any]] = []
    for name, store in stores.items():
        states, title = store.states(), store.experiment.title
        text = (
            f"{name:<9} {list(states.values()).count('done')}/{len(states)} shards done  {title} (about "
            f"{store.experiment.minutes:g} min on one H200)"
        )
        entries.append({"name": name, "title": title, "shards": states, "text": text})
    return entries, [entry["text"] for entry in entries], Step("paper", ("table1",), {"quick": True})


def _list_shards(stores: dict[str, Store]) -> Found:
    """List every shard with its state; what to do next is the first that is not done."""
    found = {name: store.states() for name, store in stores.items()}
    every = [(name, shard, state) for name, states in found.items() for shard, state in states.items()]
    undone = [Step("paper", (name,), {"only": shard}) for name, shard, state in every if state != "done"]
    lines = [f"{name} {shard}: {state}" for name, shard, state in every]
    return found, lines, undone[0] if undone else Step("paper", (next(iter(stores)),))
