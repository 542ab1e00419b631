"""`curvae compare`: is a curved latent space better for these data?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..report import Report
from ..training.comparison import Comparison
from ..training.files import write_json, write_text
from ..training.paired import Outcome
from ..training.storage import CONFIG, description_of, versions
from ..training.workers import processes
from .folders import command_line, new_folder, today
from .kinds import RUNS
from .reporter import Reporter
from .resume import Resumed, given, resume_run
from .sources import DataSource
from .timing import Forecast

__all__ = ["CompareRequest", "CompareResult", "compare_run"]

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
    scheduler: str | None = None


@dataclass(frozen=True)
class CompareResult:
    """A comparison that was written."""

    folder: Path
    source: DataSource
    settings: dict[str, Any]
    """those that were given, when it was begun"""
    comparison: Comparison

    @property
    def following(self) -> str:
        """The next command to type: train with the curvature that was found best."""
        best = self.comparison.best if self.comparison.outcome == "hyperbolic" else 0
        return self.source.fit_command({**self.settings, "curvature": float(best)})


def compare_run(request: CompareRequest, reporter: Reporter = Reporter()) -> CompareResult:  # noqa: B008 - frozen
    """Compare curvatures and write `comparison.json` and `report.html`."""
    with ExitStack() as held:
        return _compare_run(request, reporter, held)


def _compare_run(request: CompareRequest, reporter: Reporter, held: ExitStack) -> CompareResult:
    source, settings = request.source, dict(request.settings)
    kind = RUNS[source.kind]
    configs = kind.fitted.settings
    asked: dict[str, Any] = {"curvatures": request.curvatures, "repeats": request.repeats}
    known: Resumed | None = None
    if request.resume:
        known = held.enter_context(
            resume_run("compare DATA", "comparison", request.output, source, configs, settings, **asked)
        )
        source, settings, asked = known.source, given(known.config), known.more
    asked = {**_DEFAULT, **{name: value for name, value in asked.items() if value is not None}}
    run = kind(source, configs(**settings))
    facts, config = run.comparison_facts(), run.config
    if known is not None:
        known.require_same(run.data.fingerprint)
        run.restore_choices(known.description["data"])
    trainings = run.plan_comparison(**asked)
    if known is None:
        folder = held.enter_context(new_folder(request.output, f"{source.name}-comparison", request.force))
        command = command_line()
        description = {**description_of(config, "comparison"), "command": command, "source": source.to_json()}
        write_json(folder / CONFIG, {**description, **asked, "data": facts})
    else:
        folder, command = known.folder, known.description["command"]
    for text in run.data.warnings:
        reporter.warn(text)
    reporter.say(f"{run.data_size}; {trainings} trainings")
    forecast = Forecast(reporter, "training and evaluation")
    jobs = request.jobs or processes(request.device)
    found = run.compare(
        **asked,
        device=request.device,
        jobs=request.jobs,
        scheduler=request.scheduler,
        folder=folder,
        resume=request.resume,
        progress=lambda done, total: reporter.progress("training", done, total, ""),
        warn=reporter.warn,
        estimate=lambda made: forecast(made.left + run.judging_seconds(made.epoch, trainings, jobs, request.device)),
    )
    said, warned = run.comparison_remarks(found)
    for text in said:
        reporter.say(text)
    for text in warned:
        reporter.warn(text)
    report = Report(
        f"Is a curved space better for {source.to_json()['name']}?",
        found.verdict,
        TONES[found.outcome],
        [*run.data.warnings, *warned],
        run.comparison_sections(found),
        command,
        versions(),
        config.seed,
        today(),
    )
    write_json(folder / "comparison.json", found.to_json())
    write_text(folder / "report.html", report.html())
    reporter.say(found.verdict)
    return CompareResult(folder, source, settings, found)
