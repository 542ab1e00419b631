"""`curvae fit` and `curvae graph`: train, embed, report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ..training.config import require_count
from ..training.evaluate import Embedding
from ..training.files import write_bytes, write_json
from ..training.fitted import FittedModel
from ..training.storage import CONFIG, description_of, save_fitted
from ..training.workers import processes
from .folders import command_line, new_folder, write_report
from .kinds import RUNS
from .reporter import Reporter
from .resume import Resumed, given, resume_run
from .run import Place, Run
from .sources import DataSource
from .tables import write_table

__all__ = ["TrainRequest", "TrainResult", "train_run"]


@dataclass(frozen=True)
class TrainRequest:
    """What `curvae fit` or `curvae graph` was asked to do."""

    source: DataSource
    settings: Mapping[str, Any] = field(default_factory=dict)
    """of `Config` or `GraphConfig`, those that were given"""
    output: Path | None = None
    repeats: int | None = None
    """of rows, trainings with other seeds, 1 by default; of a graph, how often to hide edges, 5 by default"""
    resume: bool = False
    force: bool = False
    device: torch.device | str = "cpu"
    jobs: int | None = None


@dataclass(frozen=True)
class TrainResult:
    """A run folder that was written."""

    folder: Path
    fitted: FittedModel
    embedding: Embedding
    summary: dict[str, Any]
    following: str
    """the next command to type, and why"""


def train_run(request: TrainRequest, reporter: Reporter = Reporter()) -> TrainResult:  # noqa: B008 - frozen
    """Train a model on rows or on a graph and write its run folder."""
    with ExitStack() as held:
        run, folder, description = _begin(request, held)
        return _train(request, run, folder, description, reporter)


def _begin(request: TrainRequest, held: ExitStack) -> tuple[Run, Path, dict[str, Any]]:
    """The run, ready to be trained, its folder, and what `config.json` says."""
    kind, source = RUNS[request.source.kind], request.source
    settings, count = dict(request.settings), request.repeats
    if count is not None and count != kind.fewest:
        require_count(kind.count, count)
    known: Resumed | None = None
    if request.resume:
        asked = {kind.count: count}
        known = held.enter_context(
            resume_run(kind.usage, kind.fitted.kind, request.output, source, kind.fitted.settings, settings, **asked)
        )
        source, settings, count = known.source, given(known.config), known.more[kind.count]
        kind.check_resumed(known.folder, source, known.description["source"])
    run = kind(source, kind.fitted.settings(**settings))
    if known is not None:
        known.require_same(run.data.fingerprint)
    before = {} if known is None else known.description
    count = run.prepare(count, before)  # raises before anything is written
    description = {
        **description_of(run.config, kind.fitted.kind),
        "command": before.get("command", command_line()),
        "source": source.to_json(),
        kind.count: count,
        **run.description(),
    }
    if known is not None:
        return run, known.folder, description
    folder = held.enter_context(new_folder(request.output, source.name, request.force))
    write_json(folder / CONFIG, description)
    return run, folder, description


def _train(
    request: TrainRequest, run: Run, folder: Path, description: dict[str, Any], reporter: Reporter
) -> TrainResult:
    for text in run.data.notes:
        reporter.say(text)
    for text in (*run.data.warnings, *run.remarks):
        reporter.warn(text)
    reporter.say(run.plan_text)
    reporter.say(f"run folder {folder}")
    place = Place(folder, request.resume, request.device, request.jobs or processes(request.device))
    began = time.perf_counter()
    run.train(place, reporter, epoch_progress(reporter))
    found = run.outcome(place, run.source.named(description["source"]), time.perf_counter() - began, reporter)
    warnings = [*run.warnings, *found.warnings]
    summary = {**found.summary, "warnings": warnings}
    write_table(folder / "embedding.csv", found.table)
    for name, picture in found.pictures.items():
        write_bytes(folder / f"{name}.png", picture.png)
    write_report(folder, found.title, found.verdict, warnings, found.sections, description)
    extra = {key: description[key] for key in ("command", "source", run.count, "data")}
    save_fitted(folder, found.fitted, found.embedding, {**extra, "summary": summary}, run.data)
    for text in found.said:
        reporter.say(text)
    for text in found.warnings:
        reporter.warn(text)
    return TrainResult(folder, found.fitted, found.embedding, summary, found.following)


def epoch_progress(reporter: Reporter) -> Callable[[dict[str, Any], int], None]:
    """Tells the progress of one training, with the figures of its latest epoch."""

    def progress(record: dict[str, Any], epochs: int) -> None:
        figures = f"ELBO {record['elbo']:.2f}  rec {record['reconstruction']:.2f}  KL {record['kl']:.2f}"
        reporter.progress("training", record["epoch"], epochs, f"{figures}  c {record['c']:.3g}")

    return progress
