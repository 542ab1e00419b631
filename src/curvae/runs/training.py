"""Start or resume a run folder, train and write what was found: `curvae fit`, `graph` and `compare`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..data.files import decimal
from ..errors import CurvaeError
from ..maps.embedding import Embedding
from ..maps.orientation import frames_to_json
from ..settings import described
from ..training.comparison import Comparison, Outcome
from ..training.config import Config, Settings
from ..training.fitted import FittedModel
from ..training.processes import process_count, require_shareable
from ..training.storage import (
    CONFIG,
    description_of,
    kind_of,
    load_fitted,
    locked,
    read_description,
    save_fitted,
    write_json,
)
from ..training.workers import default_jobs
from .folders import embedding_path, new_folder, write_map, write_report, write_table
from .graph_run import GraphRun
from .rows_run import RowsRun, SampledRun, StreamRun
from .run import DataSource, Place, Reporter, Run, Source, Step, TrainedRun, given, streamed_blocks

__all__ = [
    "RUNS",
    "CompareRequest",
    "CompareResult",
    "Started",
    "TrainRequest",
    "TrainResult",
    "compare_run",
    "comparison_run",
    "open_run",
    "run_of",
    "start_run",
    "train_run",
    "training_run",
]


# The kinds of data that runs are made of.

RUNS: Mapping[str, type[Run]] = {run.fitted.kind: run for run in (RowsRun, GraphRun)}
"""what runs of a kind do, by its name in `config.json`"""


def training_run(
    source: DataSource, config: Settings, repeats: int | None, reporter: Reporter, before: Mapping[str, Any]
) -> Run:
    """The run that trains on some data; it reads rows in pieces where they are larger than the memory they may take.

    `before` describes the run that is resumed, if one is.
    """
    if isinstance(source, Source) and isinstance(config, Config):
        needed = {
            "repeats": repeats not in (None, 1),
            "neighbours": config.uses_neighbours,
            "init": config.init == "pca",
        }
        if (blocks := streamed_blocks(source, reporter.counter, others=needed)) is not None:
            return StreamRun(source, config, blocks, reporter, before)
    return RUNS[source.kind](source, config)


def comparison_run(source: DataSource, config: Settings, reporter: Reporter) -> Run:
    """The run that compares models on some data, or on a sample of rows that are larger than memory."""
    if isinstance(source, Source) and isinstance(config, Config):
        return SampledRun(source, config, reporter)
    return RUNS[source.kind](source, config)


def run_of(description: Mapping[str, Any]) -> type[Run]:
    """What runs of the kind do that `config.json` names; those without a name are on rows."""
    return RUNS.get(str(description.get("kind")), RowsRun)


def open_run(folder: Path, device: torch.device | str = "cpu") -> TrainedRun:
    """The trained model in a run folder, of whatever kind."""
    run = RUNS[kind_of(folder)]
    return run.trained(folder, load_fitted(folder, run.fitted, device))


# Start a run in a fresh folder, or resume one: then what is asked for must be what it was started with.

# What a description says besides settings and source, and how it is checked and converted.
_CONVERT: dict[str, Callable[[Any], Any]] = {
    "repeats": int,
    "splits": int,
    "curvatures": lambda values: [float(c) for c in values],
}


class Started(NamedTuple):
    """A run whose data are read and whose folder is locked.

    Arguments:
        run: with its data.
        folder: of the run.
        source: the data, with the options that were typed at the start.
        settings: those that were typed at the start.
        description: of the run, as `config.json` has it.
    """

    run: Run
    folder: Path
    source: DataSource
    settings: dict[str, Any]
    description: dict[str, Any]


def start_run(
    request: Any,
    reporter: Reporter,
    kind: str,
    asked: Mapping[str, Any],
    prepare: Callable[[Run, dict[str, Any], Mapping[str, Any]], dict[str, Any]],
    held: ExitStack,
) -> Started:
    """Start or resume a run; its folder stays locked until `held` ends.

    Arguments:
        request: has `source`, `settings`, `output`, `resume` and `force`.
        reporter: knows the command that starts the run; of one that is resumed, the first is kept.
        kind: of the run.
        asked: what else was asked for, by its name in `config.json`; None where it was left out.
        prepare: called with the run, what is asked for, and the description of the run that is resumed, if any. It
            returns what else `config.json` says, and raises for what cannot be done, before anything is written.
        held: keeps the lock.
    """
    source, settings, asked = request.source, dict(request.settings), dict(asked)
    typed = [*source.options, *settings]
    runs = RUNS[source.kind]
    configs, folder, before = runs.fitted.settings, request.output, {}
    if request.resume:
        if folder is None:
            raise CurvaeError("resume=True needs the run folder; give it with output=…")
        held.enter_context(locked(folder) if folder.is_dir() else nullcontext())
        before = read_description(folder, kind)
        source, config, asked = _require_same_request(folder, before, source, configs, settings, asked)
        typed = before.get("asked", typed)
        settings = given(config)
        source.check_resumed(folder, before["source"])
    config = configs(**settings)
    settings = {name: value for name, value in settings.items() if name in typed}
    if before and source.to_json().get("memory") is None:  # it had all rows in memory
        run = runs(source, config)
    elif kind == source.kind:
        run = training_run(source, config, asked.get("repeats"), reporter, before)
    else:
        run = comparison_run(source, config, reporter)
    if before and run.fingerprint != before["data"]["fingerprint"]:
        raise CurvaeError(
            f"{source.path} is not the data that {folder} was started with; "
            "give that data, or start a new run without resume=True"
        )
    run.settings = settings
    more = prepare(run, asked, before)
    begun = {"command": before.get("command", reporter.started), "asked": typed}
    description = {**description_of(run.config, kind), **begun, "source": run.source.to_json(), **more}
    if not before:
        name = source.name if kind == source.kind else f"{source.name}-{kind}"
        folder = held.enter_context(new_folder(request.output, name, request.force))
        write_json(folder / CONFIG, description)
    reporter.resumable({"output": folder if request.output is None else None, "resume": None if before else True})
    if isinstance(source, Source) and "memory" not in typed:  # it was chosen for this machine
        source = replace(source, memory=None)
    return Started(run, folder, source, settings, description)


def _require_same_request(
    folder: Path,
    description: Mapping[str, Any],
    source: DataSource,
    configs: type[Settings],
    settings: Mapping[str, Any],
    asked: Mapping[str, Any],
) -> tuple[DataSource, Settings, dict[str, Any]]:
    """Source, settings and what else was asked for at the start; raises if something else is asked for now."""
    try:
        config = configs.from_json(description["config"])
        known = source.again(description["source"])
        texts = description["data"]["fingerprint"], description["command"], description.get("likelihood_reason", "")
        if not all(isinstance(value, str) for value in texts):
            raise TypeError("its data are not described")
        others = {name: _CONVERT[name](description[name]) for name in asked}
    except (KeyError, TypeError, ValueError) as error:
        raise CurvaeError(
            f"{folder} cannot be resumed: its {CONFIG} is incomplete ({error}); start a new run"
        ) from error
    before = {**vars(config), **vars(known), **others, "space": _space(config)}
    now = {**settings, **source.options, **{name: value for name, value in asked.items() if value is not None}}
    if now.get("curvature") == "learn":
        now |= {"curvature": described(configs)["curvature"].default, "learn_curvature": True}
    if now.get("space") is not None:  # which can be written in several ways
        now["space"] = _space(configs(space=now["space"]))
    other = [
        f"{_shown(name, before[name])}, not {', '.join(map(str, value)) if isinstance(value, tuple | list) else value}"
        for name, value in now.items()
        if _meant(configs, name, value) != before[name] and not (name == "likelihood" and value == "auto")
    ]
    if other:
        raise CurvaeError(f"the run was started with {' and '.join(other)}; leave the option out, or start a new run")
    return known, config, others


def _meant(configs: type[Settings], name: str, value: Any) -> Any:
    return described(configs)[name].meant(value) if name in described(configs) else value


def _shown(name: str, value: Any) -> str:
    """A parameter and its value, as messages name them."""
    return f"no {name}=…" if value is None else f"{name}={json.dumps(value)}"


def _space(config: Settings) -> str:
    """The factors of the latent space, written in the one way."""
    return ",".join(factor.text for factor in config.factors)


@dataclass(frozen=True)
class TrainRequest:
    """What `curvae fit` or `curvae graph` was asked to do.

    Arguments:
        source: the data.
        settings: of `Config` or `GraphConfig`, those that were given.
        output: the folder; by default the next one in `runs/`.
        root: name of the row or node that the map has at its centre; the Fréchet mean by default.
        repeats: of rows, trainings with other seeds (1); of a graph, how often edges are hidden (5).
        links: of a graph, how many of the likeliest missing edges to write to a file.
        resume, force: go on with the run in the folder, or overwrite it.
        device, jobs: where to train, and in how many processes at most.
        processes: that train a model of rows together; by default one, or those that `torchrun` has started.
    """

    source: DataSource
    settings: Mapping[str, Any] = field(default_factory=dict)
    output: Path | None = None
    repeats: int | None = None
    root: str | None = None
    links: int | None = None
    resume: bool = False
    force: bool = False
    device: torch.device | str = "cpu"
    jobs: int | None = None
    processes: int | None = None


@dataclass(frozen=True)
class TrainResult:
    """A run folder that was written, what to do next, and files that were asked for besides the usual ones."""

    folder: Path
    fitted: FittedModel
    embedding: Embedding
    summary: dict[str, Any]
    following: Step
    files: Sequence[Path] = ()

    @property
    def table(self) -> Path:
        """The file with the rows of the map."""
        return embedding_path(self.folder)


def train_run(request: TrainRequest, reporter: Reporter = Reporter()) -> TrainResult:  # noqa: B008 - frozen
    """Train a model on rows or on a graph and write its run folder."""
    count, kind = RUNS[request.source.kind].count, request.source.kind
    processes = _processes(request)
    request = replace(request, processes=processes)
    with ExitStack() as held:
        started = start_run(
            request,
            reporter,
            kind,
            {count: request.repeats},
            lambda run, asked, before: {
                **run.prepare(asked[count], before, processes),
                **_rooted(run, request.root, before),
            },
            held,
        )
        return _train(request, started, reporter)


def _processes(request: TrainRequest) -> int:
    """How many train the model together; raises where they cannot."""
    processes = process_count(request.processes)
    if processes == 1:
        return processes
    if (request.repeats or 1) > 1:
        raise CurvaeError("repeats=… and processes=… cannot be combined: several processes train one model; drop one")
    require_shareable(processes, Config(**request.settings), request.device)
    return processes


def _rooted(run: Run, root: str | None, before: Mapping[str, Any]) -> dict[str, Any]:
    """Choose the centre of the map, which only the picture depends on: a run may be resumed with another one."""
    run.choose_root(before.get("root") if root is None else root)
    return {"root": run.root}


def _train(request: TrainRequest, started: Started, reporter: Reporter) -> TrainResult:
    run, folder, *_, description = started
    reporter.tell(run.data.notes, run.warnings)
    reporter.tell([run.plan_text, f"run folder {folder}"], ())
    jobs = request.jobs or default_jobs(request.device)
    place = Place(folder, request.resume, request.device, jobs, request.processes or 1, request.links)
    began = time.perf_counter()
    run.train(place, reporter, epoch_progress(reporter, request.resume))
    found = run.outcome(place, run.source.named(description["source"]), time.perf_counter() - began, reporter)
    warnings = [*run.warnings, *found.warnings]
    summary = {**found.summary, "warnings": warnings}
    write_map(folder, found.tables, found.rows, found.pictures)
    for name, table in found.files.items():
        write_table(folder / name, table)
    write_report(
        folder / "report.html",
        found.title,
        found.verdict,
        "good" if found.good and not warnings else "neutral",
        warnings,
        found.sections,
        description["seed"],
        description["command"],
        found.advice,
    )
    extra = {key: description[key] for key in ("command", "asked", "source", run.count, "root", "data")}
    extra |= {"orientation": frames_to_json(found.frames), "summary": summary}
    save_fitted(folder, found.fitted, found.embedding, extra, run.data)
    reporter.tell(found.said, found.warnings)
    files = [folder / name for name in found.files]
    return TrainResult(folder, found.fitted, found.embedding, summary, found.following, files)


def epoch_progress(reporter: Reporter, resumed: bool) -> Callable[[dict[str, Any], int], None]:
    """Tells the progress of one training, with the figures of its latest epoch, and where a resumed one continues."""

    def progress(record: dict[str, Any], epochs: int) -> None:
        nonlocal resumed
        if resumed:
            reporter.say(f"continued at epoch {record['epoch']} of {epochs}")
            resumed = False
        elbo, reconstruction, kl = (decimal(record[name]) for name in ("elbo", "reconstruction", "kl"))
        curvatures = [value for name, value in record.items() if name == "c" or name.startswith("c_")]
        shown = ", ".join(f"{c:.3g}" for c in curvatures)
        reporter.progress("training", record["epoch"], epochs, f"ELBO {elbo}  rec {reconstruction}  KL {kl}  c {shown}")

    return progress


# `curvae compare`: is a curved latent space better for these data?

TONES: dict[Outcome, Any] = {"hyperbolic": "good", "none": "neutral", "euclidean": "bad"}
_DEFAULT: dict[str, Any] = {"curvatures": [0.3, 1.0], "repeats": 5}


@dataclass(frozen=True)
class CompareRequest:
    """What `curvae compare` was asked to do."""

    source: DataSource
    settings: Mapping[str, Any] = field(default_factory=dict)
    curvatures: Sequence[float] | None = None
    """values of c > 0; 0.3 and 1, or those that the comparison was begun with"""
    repeats: int | None = None
    """seeds and splits; 5, or as many as it was begun with"""
    output: Path | None = None
    resume: bool = False
    force: bool = False
    jobs: int | None = None
    device: str = "auto"
    tree: Path | None = None
    """a known tree of the data, to compare by how well it is recovered too"""


@dataclass(frozen=True)
class CompareResult:
    """A comparison that was written."""

    folder: Path
    source: DataSource
    settings: dict[str, Any]
    """those that were given, when it was begun"""
    comparison: Comparison

    @property
    def following(self) -> Step:
        """What to do next: train with the curvature that was found best."""
        found = self.comparison
        best = float(
            found.choice or (max((one.choice for one in found.criteria), default=0) if found.outcome == "none" else 0)
        )
        if "space" not in self.settings:
            return self.source.train_step(**self.settings | {"curvature": best})
        config = type(self.comparison.config)(**self.settings).with_curvature(best)
        return self.source.train_step(**given(config) | ({} if config.space else {"curvature": best}))


def compare_run(request: CompareRequest, reporter: Reporter = Reporter()) -> CompareResult:  # noqa: B008 - frozen
    """Compare curvatures and write `comparison.json` and `report.html`."""
    asked = {"curvatures": request.curvatures, "repeats": request.repeats}
    plan = partial(_plan, request.tree)
    with ExitStack() as held:
        return _compare(request, start_run(request, reporter, "comparison", asked, plan, held), reporter)


def _plan(tree: Path | None, run: Run, asked: dict[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    chosen = {**_DEFAULT, **{name: value for name, value in asked.items() if value is not None}}
    planned = {**chosen, "data": run.plan_comparison(**chosen, before=before.get("data"))}
    if tree is not None:
        run.match_tree(tree)
    return planned


def _compare(request: CompareRequest, started: Started, reporter: Reporter) -> CompareResult:
    run, folder, source, settings, description = started
    reporter.tell((), [*run.data.warnings, *run.remarks])
    reporter.say(f"{run.data_size}; {run.trainings} trainings")
    found = run.compare(
        description["curvatures"],
        description["repeats"],
        device=request.device,
        jobs=request.jobs,
        folder=folder,
        resume=request.resume,
        progress=lambda done, total: reporter.progress("training", done, total, ""),
        warn=reporter.warn,
    )
    said, warned, sections = run.comparison_report(found)
    reporter.tell(said, warned)
    write_json(folder / "comparison.json", found.to_json())
    title = f"Is a curved space better for {description['source']['name']}?"
    report = folder / "report.html", title, found.verdict, TONES[found.outcome], [*run.data.warnings, *warned], sections
    write_report(*report, run.config.seed, description["command"])
    reporter.say(found.verdict)
    return CompareResult(folder, source, settings, found)
