"""`curvae compare`: is a curved latent space better for these data?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

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
from .timing import duration, training_seconds

__all__ = ["CompareRequest", "compare_run"]

TONES: dict[Outcome, Any] = {"hyperbolic": "good", "none": "neutral", "euclidean": "bad"}


@dataclass(frozen=True)
class CompareRequest:
    """What `curvae compare` was asked to do."""

    source: Source
    settings: Mapping[str, Any] = field(default_factory=dict)
    curvatures: Sequence[float] = (0.3, 1.0)
    repeats: int = 5
    output: Path | None = None
    force: bool = False
    jobs: int | None = None
    device: str = "auto"
    scheduler: str | None = None


def compare_run(request: CompareRequest, voice: Voice = Voice()) -> tuple[Path, Comparison]:  # noqa: B008 - frozen
    """Compare curvatures and write `comparison.json` and `report.html`."""
    config = Config(**request.settings)
    data, _ = request.source.load()
    values, splits = plan(config, data.x, request.curvatures, request.repeats, data.blocks, data.groups)
    folder = new_folder(request.output, f"{request.source.name}-comparison", request.force)
    for text in data.warnings:
        voice.warn(text)
    trainings = len(values) * len(splits)
    about = ""
    if request.scheduler is None:
        device, jobs = choose_device(request.device), request.jobs or processes(request.device)
        hardest = replace(config, curvature=values[-1])
        about = duration(
            training_seconds(hardest, data.x, splits[0].train, data.blocks, device, models=trainings, jobs=jobs)
        )
    voice.say(f"{len(data)} rows, {data.x.shape[1]} columns; {trainings} trainings" + (f", {about}" if about else ""))
    found = compare(
        config,
        data.x,
        request.curvatures,
        request.repeats,
        blocks=data.blocks,
        groups=data.groups,
        device=request.device,
        jobs=request.jobs,
        scheduler=request.scheduler,
        progress=lambda done, total: voice.progress("training", done, total, ""),
        warn=voice.warn,
    )
    voice.say(f"likelihood {found.config.likelihood}: {found.reason}")
    name = request.source.to_json()["name"]
    warnings = [*data.warnings, *_beaten(found)]
    for text in _beaten(found):
        voice.warn(text)
    shown = [0.0, found.best]
    maps = Section("The maps", (), [pages.map_picture(found.embeddings[c], data.labels) for c in shown])
    sections = [maps, pages.comparison_section(found), pages.data_section(data, [pages.scaling_note(found.config)])]
    report = Report(
        f"Is a curved space better for {name}?",
        found.verdict,
        TONES[found.outcome],
        warnings,
        sections,
        command_line(),
        versions(),
        config.seed,
        today(),
    )
    write_json(folder / "comparison.json", found.to_json())
    write_bytes(folder / "report.html", report.html().encode())
    write_json(
        folder / CONFIG,
        {
            **description_of(found.config, "comparison"),
            "command": command_line(),
            "source": request.source.to_json(),
            "data": {"fingerprint": data.fingerprint, "rows": len(data), "features": int(data.x.shape[1])},
        },
    )
    voice.say(found.verdict)
    return folder, found


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
