"""`curvae compare`: is a curved latent space better for these data?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..data import Dataset
from ..report import Report, Section
from ..training import Config
from ..training.compare import Comparison, compare, plan
from ..training.device import choose_device
from ..training.files import write_bytes, write_json
from ..training.paired import Outcome
from ..training.storage import CONFIG, description_of, versions
from ..training.workers import processes
from . import pages
from .folder import Source, Voice, command_line, new_folder, today
from .resuming import begun, given
from .timing import duration, training_seconds

__all__ = ["CompareRequest", "CompareResult", "compare_run"]

TONES: dict[Outcome, Any] = {"hyperbolic": "good", "none": "neutral", "euclidean": "bad"}
_DEFAULT: dict[str, Any] = {"curvatures": [0.3, 1.0], "repeats": 5}


@dataclass(frozen=True)
class CompareRequest:
    """What `curvae compare` was asked to do."""

    source: Source
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
    source: Source
    settings: dict[str, Any]
    """those that were given, when it was begun"""
    comparison: Comparison


def compare_run(request: CompareRequest, voice: Voice = Voice()) -> CompareResult:  # noqa: B008 - frozen
    """Compare curvatures and write `comparison.json` and `report.html`."""
    source, settings = request.source, dict(request.settings)
    asked: dict[str, Any] = {"curvatures": request.curvatures, "repeats": request.repeats}
    known = (
        begun("compare DATA", "comparison", request.output, source, Config, settings, **asked)
        if request.resume
        else None
    )
    if known is not None:
        source, settings, asked = known.source, given(known.config), known.more
    asked = {**_DEFAULT, **{name: value for name, value in asked.items() if value is not None}}
    config = Config(**settings)
    data, _ = source.load()
    if known is not None:
        known.require_same(data.fingerprint)
    values, splits = plan(config, data.x, **asked, blocks=data.blocks, groups=data.groups)
    if known is None:
        folder, command = new_folder(request.output, f"{source.name}-comparison", request.force), command_line()
        write_json(folder / CONFIG, _describe(command, source, asked, data, config))
    else:
        folder, command = known.folder, known.description["command"]
    for text in data.warnings:
        voice.warn(text)
    trainings = len(values) * len(splits)
    about = ""
    if request.scheduler is None and known is None:  # how much is left of one that has begun is not known
        device, jobs = choose_device(request.device), request.jobs or processes(request.device)
        hardest = replace(config, curvature=values[-1])
        about = duration(
            training_seconds(hardest, data.x, splits[0].train, data.blocks, device, models=trainings, jobs=jobs)
        )
    voice.say(f"{len(data)} rows, {data.x.shape[1]} columns; {trainings} trainings" + (f", {about}" if about else ""))
    found = compare(
        config,
        data.x,
        **asked,
        blocks=data.blocks,
        groups=data.groups,
        device=request.device,
        jobs=request.jobs,
        scheduler=request.scheduler,
        folder=folder,
        resume=request.resume,
        progress=lambda done, total: voice.progress("training", done, total, ""),
        warn=voice.warn,
    )
    voice.say(f"likelihood {found.config.likelihood}: {found.reason}")
    name = source.to_json()["name"]
    warnings = [*data.warnings, *_beaten(found)]
    for text in _beaten(found):
        voice.warn(text)
    shown = [0.0, found.best]
    maps = Section(
        "The maps", (), [pages.map_picture(found.embeddings[c], data.labels, label_name=data.label_name) for c in shown]
    )
    sections = [maps, pages.comparison_section(found), pages.data_section(data, [pages.scaling_note(found.config)])]
    report = Report(
        f"Is a curved space better for {name}?",
        found.verdict,
        TONES[found.outcome],
        warnings,
        sections,
        command,
        versions(),
        config.seed,
        today(),
    )
    write_json(folder / "comparison.json", found.to_json())
    write_bytes(folder / "report.html", report.html().encode())
    voice.say(found.verdict)
    return CompareResult(folder, source, settings, found)


def _describe(command: str, source: Source, asked: Mapping[str, Any], data: Dataset, config: Config) -> dict[str, Any]:
    return {
        **description_of(config, "comparison"),
        "command": command,
        "source": source.to_json(),
        **asked,
        "data": {"fingerprint": data.fingerprint, "rows": len(data), "features": int(data.x.shape[1])},
    }


def _beaten(found: Comparison) -> list[str]:
    """A warning when a linear model describes the test rows better."""
    linear = [repeat.pca for repeat in found.repeats if repeat.pca is not None]
    best = max(float(np.mean([repeat.test[c] for repeat in found.repeats])) for c in found.repeats[0].test)
    if not linear or np.mean(linear) <= best:
        return []
    return [
        f"PCA of the same dimension describes the test rows better ({np.mean(linear):.2f} against {best:.2f} nats a "
        "row): train longer, or widen hidden, before asking about curvature"
    ]
