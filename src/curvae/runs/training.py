"""`curvae fit` and `curvae graph`: train, embed, report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from ..errors import CurvaeError
from ..training.config import Config
from ..training.evaluate import Embedding
from ..training.fitted import FittedModel
from ..training.orientation import frames_to_json
from ..training.processes import process_count, require_shareable
from ..training.storage import save_fitted
from ..training.workers import default_jobs
from .folders import embedding_path, write_map, write_report, write_table
from .kinds import RUNS
from .progress import Reporter
from .run import Place, Run
from .sources import DataSource, Step
from .start import Started, start_run

__all__ = ["TrainRequest", "TrainResult", "train_run"]


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
    run.train(place, reporter, epoch_progress(reporter))
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


def epoch_progress(reporter: Reporter) -> Callable[[dict[str, Any], int], None]:
    """Tells the progress of one training, with the figures of its latest epoch."""

    def progress(record: dict[str, Any], epochs: int) -> None:
        figures = f"ELBO {record['elbo']:.2f}  rec {record['reconstruction']:.2f}  KL {record['kl']:.2f}"
        curvatures = [value for name, value in record.items() if name == "c" or name.startswith("c_")]
        shown = ", ".join(f"{c:.3g}" for c in curvatures)
        reporter.progress("training", record["epoch"], epochs, f"{figures}  c {shown}")

    return progress
