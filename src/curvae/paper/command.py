"""`curvae paper`: compute shards one by one and keep them, so that an interrupted run resumes; then merge and show."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import joblib
import torch
from threadpoolctl import threadpool_limits

from ..cli.console import Answer
from ..cli.options import command_line
from ..data.files import count
from ..errors import CurvaeError
from ..report import Picture, Report, Section
from ..runs import Reporter, Step
from ..runs.folders import today
from ..settings import ADDED
from ..training.config import choose_device, few_threads
from ..training.fitting import default_jobs
from ..training.storage import json_text, locked, read_json, versions, write_bytes, write_json, write_text
from .experiment import PICTURES, Experiment, Plan, Shard, Workspace, markdown
from .figures import GALLERY
from .tables import ABLATION, SEARCHED, TABLE1, TABLE2, TABLE3, TABLE4

__all__ = ["EXPERIMENTS", "State", "Store", "paper_list", "paper_run", "run_experiment"]

State = Literal["done", "missing", "outdated"]

_QUICK = "This was a quick run that only shows that everything works; its figures mean little."


@dataclass(frozen=True)
class Store:
    """The folder of an experiment's results: `<out>/<name>/<shard>.json`, `<out>/<name>.json`, `.md` and `.html`."""

    out: Path
    experiment: Experiment
    plan: Plan

    @property
    def shards(self) -> list[Shard]:
        return list(self.experiment.shards(self.plan))

    def path(self, shard: Shard) -> Path:
        return self.out / self.experiment.name / f"{shard.name}.json"

    def merged(self, ending: str = "json") -> Path:
        return self.out / f"{self.experiment.name}.{ending}"

    def read(self, shard: Shard) -> tuple[State, dict[str, Any]]:
        """Return the state of a shard, and what is stored of it in its own file or in the merged one."""
        if self.path(shard).exists():
            stored = read_json(self.path(shard))
        else:
            stored = read_json(self.merged())["shards"].get(shard.name) if self.merged().exists() else None
        if stored is None:
            return "missing", {}
        same = _without_later(stored.get("settings")) == _without_later(json.loads(json_text(shard.settings, None)))
        return "done" if same else "outdated", dict(stored)

    def states(self) -> dict[str, State]:
        """Return the state of every shard."""
        return {shard.name: self.read(shard)[0] for shard in self.shards}

    def compute(self, shard: Shard, workspace: Workspace) -> None:
        """Compute a shard and write its result."""
        began = time.perf_counter()
        cuda, cores = workspace.device.type == "cuda", count(joblib.cpu_count(), "CPU core")
        threads = _THREADS if cuda else None
        with few_threads(threads), threadpool_limits(threads):
            figures = shard.work(workspace)
        write_json(
            self.path(shard),
            {
                "experiment": self.experiment.name,
                "shard": shard.name,
                "quick": self.plan.quick,
                "device": f"one {torch.cuda.get_device_name(workspace.device)}" if cuda else cores,
                "seconds": round(time.perf_counter() - began, 1),
                "versions": versions(),
                "date": today(),
                "settings": shard.settings,
                **figures,
            },
        )

    def merge(self) -> dict[str, Any] | None:
        """Write all shards and their summary as JSON, Markdown and HTML; None while shards are missing."""
        read = {shard.name: self.read(shard) for shard in self.shards}
        if any(state != "done" for state, _ in read.values()):
            return None
        known = {name: stored for name, (_, stored) in read.items()}
        result = {
            "experiment": self.experiment.name,
            "title": self.experiment.title,
            "quick": self.plan.quick,
            "seed": self.plan.seed,
            "device": " and ".join(dict.fromkeys(str(one["device"]) for one in known.values())),
            "seconds": round(sum(one["seconds"] for one in known.values()), 1),
            "versions": next(iter(known.values()))["versions"],
            "date": max(one["date"] for one in known.values()),
            **json.loads(json_text(self.experiment.summarise(known), None)),  # as it is read back from the file
            "shards": known,
        }
        write_json(self.merged(), result, 1)
        self.show(result)
        return result

    def show(self, result: Mapping[str, Any]) -> None:
        """Write the pages of a merged result, and their pictures as files."""
        page = self.experiment.page(result)
        warnings = [_QUICK] if result["quick"] else []
        pictures = [picture for section in page.sections for picture in section.pictures]
        files = {id(picture): f"{PICTURES}/{self.experiment.name}-{k}.png" for k, picture in enumerate(pictures, 1)}
        for picture in pictures:
            write_bytes(self.out / files[id(picture)], picture.png)
        named = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
        note = f"{result['seconds'] / 60:.1f} minutes on {result['device']}; {named}."
        write_text(self.merged("md"), markdown(self.experiment.title, page, warnings, note, files))
        drawn = [
            Picture((self.out / PICTURES / name).read_bytes(), caption, caption, wide=True)
            for name, caption in page.gallery.items()
        ]
        report = Report(
            self.experiment.title,
            page.verdict,
            page.tone,
            warnings,
            [*page.sections, Section("Pictures", pictures=drawn)],
            command_line(),
            result["versions"],
            result["seed"],
            result["date"],
        )
        write_text(self.merged("html"), report.html())


# Beside a CUDA device the CPU has only small tasks, which a thread for every core of a large machine slows down.
_THREADS = 4


def _without_later(settings: Any) -> Any:
    """Leave out settings that were added later, where their value means what was done before."""
    if isinstance(settings, dict):
        kept = {name: value for name, value in settings.items() if name not in ADDED or value != ADDED[name]}
        return {name: _without_later(value) for name, value in kept.items()}
    return [_without_later(entry) for entry in settings] if isinstance(settings, list) else settings


def run_experiment(
    experiment: Experiment,
    plan: Plan,
    out: Path,
    workspace: Workspace,
    only: Sequence[str] = (),
    force: bool = False,
    reporter: Reporter = Reporter(),  # noqa: B008 - frozen
) -> tuple[Store, dict[str, Any] | None]:
    """Compute the shards that are missing, all or those that are named; merge and show when all are there.

    With `force`, shards that are done are computed again.
    """
    store = Store(out, experiment, plan)
    shards = store.shards
    if unknown := [name for name in only if name not in [shard.name for shard in shards]]:
        raise CurvaeError(
            f"{experiment.name} has no shard {', '.join(unknown)}; curvae paper {experiment.name} --shards lists them"
        )
    kept = [*(out / experiment.name).glob("*.json"), *out.glob(f"{experiment.name}.json")]
    if any(read_json(path).get("quick") != plan.quick for path in kept):
        # Each would overwrite the other.
        raise CurvaeError(
            f"{out} holds results of {'full' if plan.quick else 'quick'} runs; choose another folder with out=…"
        )
    for number, shard in enumerate(shards, 1):
        if only and shard.name not in only:
            continue
        if store.read(shard)[0] == "done" and not force:
            if only:
                reporter.say(f"{shard.name} is done; force=True computes it again")
            continue
        reporter.say(f"{experiment.name}: shard {shard.name}, {number} of {len(shards)}")
        with locked(store.path(shard)):  # other processes may compute other shards
            store.compute(shard, replace(workspace, reporter=reporter, task=f"{experiment.name}/{shard.name}"))
    with locked(store.merged(), 60.0):  # seconds to wait for another process that merges the same shards
        return store, store.merge()


EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment for experiment in (TABLE1, TABLE2, TABLE3, TABLE4, ABLATION, GALLERY, SEARCHED)
}


# Where results go by default, for full and for quick runs.
_FOLDERS = Path("results/paper"), Path("runs/paper-quick")


def paper_list(out: Path | None, quick: bool, seed: int) -> Answer:
    """List every experiment with how much of it is done."""
    entries: list[dict[str, Any]] = []
    for experiment in EXPERIMENTS.values():
        states = Store(out or _FOLDERS[quick], experiment, Plan(quick, seed)).states()
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
    plan, folder = Plan(quick, seed), out or _FOLDERS[quick]
    if what != "all" and what not in EXPERIMENTS:
        near = get_close_matches(what, [*EXPERIMENTS, "all", "list"], 1)
        hint = f"did you mean {near[0]}? Else choose" if near else "choose"
        raise CurvaeError(f"there is no experiment {what!r}; {hint} one of {', '.join(EXPERIMENTS)}, or all")
    chosen = list(EXPERIMENTS.values()) if what == "all" else [EXPERIMENTS[what]]
    if only and what == "all":
        raise CurvaeError("only=… needs one experiment: curvae paper table1 --only flat, say")
    if shards:
        return _list_shards(chosen, folder, plan)
    workspace = Workspace(choose_device(device), folder / "cache", default_jobs(device))
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
        lines += [
            f"{experiment.name}: {page.verdict}",
            f"page: {store.merged('html')}",
            f"table: {store.merged('md')}",
        ]
    return Answer(results, lines, following)


def _list_shards(chosen: Sequence[Experiment], folder: Path, plan: Plan) -> Answer:
    """List every shard with its state."""
    states = {experiment.name: Store(folder, experiment, plan).states() for experiment in chosen}
    lines = [f"{name} {shard}: {state}" for name, shards in states.items() for shard, state in shards.items()]
    undone = [(name, shard) for name, shards in states.items() for shard, state in shards.items() if state != "done"]
    name, only = undone[0] if undone else (next(iter(states)), None)
    return Answer(states, lines, Step("paper", (name,), {"only": only}))
