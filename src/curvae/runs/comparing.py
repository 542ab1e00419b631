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
from ..training.graphs import GraphComparison
from ..training.paired import Outcome
from ..training.storage import CONFIG, description_of, versions
from ..training.workers import processes
from .folder import GraphSource, Source, Voice, command_line, new_folder, today
from .questions import QUESTIONS
from .resuming import given, resume_run
from .timing import Forecast

__all__ = ["CompareRequest", "CompareResult", "compare_run"]

TONES: dict[Outcome, Any] = {"hyperbolic": "good", "none": "neutral", "euclidean": "bad"}
_DEFAULT: dict[str, Any] = {"curvatures": [0.3, 1.0], "repeats": 5}


@dataclass(frozen=True)
class CompareRequest:
    """What `curvae compare` was asked to do."""

    source: Source | GraphSource
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
    """What came of it."""

    folder: Path
    source: Source | GraphSource
    settings: dict[str, Any]
    """those that were given, when it was begun"""
    comparison: Comparison | GraphComparison


def compare_run(request: CompareRequest, voice: Voice = Voice()) -> CompareResult:  # noqa: B008 - frozen
    """Compare curvatures and write `comparison.json` and `report.html`."""
    with ExitStack() as held:
        return _compare_run(request, voice, held)


def _compare_run(request: CompareRequest, voice: Voice, held: ExitStack) -> CompareResult:
    source, settings = request.source, dict(request.settings)
    configs, ask = QUESTIONS[type(source)]
    asked: dict[str, Any] = {"curvatures": request.curvatures, "repeats": request.repeats}
    known = None
    if request.resume:
        known = held.enter_context(
            resume_run("compare DATA", "comparison", request.output, source, configs, settings, **asked)
        )
        source, settings, asked = known.source, given(known.config), known.more
    asked = {**_DEFAULT, **{name: value for name, value in asked.items() if value is not None}}
    config = configs(**settings)
    asking = ask(source, config)
    if known is not None:
        known.require_same(asking.fingerprint)
        asking.go_on(known.description["data"])
    trainings = asking.trainings(**asked)
    if known is None:
        folder = held.enter_context(new_folder(request.output, f"{source.name}-comparison", request.force))
        command = command_line()
        description = {**description_of(config, "comparison"), "command": command, "source": source.to_json()}
        write_json(folder / CONFIG, {**description, **asked, "data": asking.facts})
    else:
        folder, command = known.folder, known.description["command"]
    for text in asking.warnings:
        voice.warn(text)
    voice.say(f"{asking.size}; {trainings} trainings")
    forecast = Forecast(voice, "training and evaluation")
    jobs = request.jobs or processes(request.device)
    found = asking.answer(
        **asked,
        device=request.device,
        jobs=request.jobs,
        scheduler=request.scheduler,
        folder=folder,
        resume=request.resume,
        progress=lambda done, total: voice.progress("training", done, total, ""),
        warn=voice.warn,
        estimate=lambda made: forecast(made.left + asking.judging(made.epoch, trainings, jobs, request.device)),
    )
    said, warned = asking.remarks(found)
    for text in said:
        voice.say(text)
    for text in warned:
        voice.warn(text)
    report = Report(
        f"Is a curved space better for {source.to_json()['name']}?",
        found.verdict,
        TONES[found.outcome],
        [*asking.warnings, *warned],
        asking.sections(found),
        command,
        versions(),
        config.seed,
        today(),
    )
    write_json(folder / "comparison.json", found.to_json())
    write_text(folder / "report.html", report.html())
    voice.say(found.verdict)
    return CompareResult(folder, source, settings, found)
