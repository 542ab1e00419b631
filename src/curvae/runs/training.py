"""`curvae fit`: train, embed, report."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..data import Dataset, Schema
from ..data.missing import extremes
from ..errors import CurvaeError
from ..settings import GraphSettings, RowSettings, described
from ..training import Config, Fitted, Split, fit, fit_many, random_split
from ..training.build import require_buildable
from ..training.config import require_count
from ..training.evaluate import Embedding, embed, health, likelihoods, stability
from ..training.files import write_bytes, write_json
from ..training.pace import Estimate
from ..training.storage import CONFIG, description_of, save_fitted
from ..training.tasks import resolve
from ..training.workers import processes
from . import pages
from .folder import (
    Source,
    Voice,
    command_line,
    embedding_table,
    new_folder,
    without_folder,
    write_report,
    write_table,
)
from .resuming import given, resume_run
from .timing import Forecast, likelihood_seconds

__all__ = ["FitRequest", "fit_run"]

_SAMPLES = 500  # importance samples a row for the report


@dataclass(frozen=True)
class FitRequest:
    """What `curvae fit` was asked to do."""

    source: Source
    settings: Mapping[str, Any] = field(default_factory=dict)
    """of `Config`, those that were given"""
    output: Path | None = None
    repeats: int | None = None
    """trainings; one, or as many as the run was begun with"""
    resume: bool = False
    force: bool = False
    device: torch.device | str = "cpu"


@dataclass(frozen=True)
class FitResult:
    """What came of it."""

    folder: Path
    source: Source
    settings: dict[str, Any]
    """those that were given, when it was begun"""
    fitted: Fitted
    embedding: Embedding
    summary: dict[str, Any]
    warnings: list[str]


def fit_run(request: FitRequest, voice: Voice = Voice()) -> FitResult:  # noqa: B008 - frozen
    """Train a model and write its run folder."""
    with ExitStack() as held:
        return _fit_run(request, voice, held)


def _fit_run(request: FitRequest, voice: Voice, held: ExitStack) -> FitResult:
    source, settings, repeats = request.source, dict(request.settings), request.repeats
    if repeats is not None:
        require_count("repeats", repeats)
    known = None
    if request.resume:
        known = held.enter_context(
            resume_run("fit DATA", "vae", request.output, source, Config, settings, repeats=repeats)
        )
        source, settings, repeats = known.source, given(known.config), known.more["repeats"]
    repeats = repeats or 1
    config = Config(**settings)
    data, schema = source.load()
    if known is not None:
        known.require_same(data.fingerprint)
    if not _varies(data.x):
        raise CurvaeError(f"nothing varies in {source.path}: every column is constant, so there is nothing to learn")
    split = random_split(len(data), config.validation, seed=config.seed, groups=data.groups)
    config, layout, reason = resolve(config, data, split)
    require_buildable(config, layout)  # before anything is written
    before = {} if known is None else known.description
    reason = before.get("likelihood_reason", reason)
    command = before.get("command", command_line())
    description = _describe(command, source, repeats, data, schema, config, reason)
    if known is None:
        folder = held.enter_context(new_folder(request.output, source.name, request.force))
        write_json(folder / CONFIG, description)
    else:
        folder = known.folder
    for text in data.notes:
        voice.say(text)
    for text in data.warnings:
        voice.warn(text)
    if config.validation and not len(split.validation):
        voice.warn(
            f"no rows are held out: a share of {config.validation:g} is less than one row or group; raise validation=…"
        )
    voice.say(f"{len(data)} rows, {data.x.shape[1]} columns; likelihood {config.likelihood}: {reason}")
    jobs = min(processes(request.device), repeats)
    voice.say(f"run folder {folder}")
    forecast = Forecast(voice, "training and evaluation")

    def estimate(made: Estimate) -> None:
        sizes = layout.features, len(split.train), len(_scored(split)[0]), _SAMPLES, -(-repeats // jobs)
        forecast(made.left + likelihood_seconds(jobs * made.epoch, config, *sizes, request.device))

    began = time.perf_counter()
    where: dict[str, Any] = {
        "device": request.device,
        "folder": folder,
        "resume": request.resume,
        "estimate": estimate,
    }
    if repeats == 1:
        found = [fit(config, data, split=split, **where, progress=figures(voice))]
    else:
        found = fit_many(
            [replace(config, seed=config.seed + i) for i in range(repeats)],
            data,
            splits=[split] * repeats,
            **where,
            jobs=jobs,
            progress=lambda done, total: voice.progress("training", done, total, f"{repeats} models"),
            warn=voice.warn,
        )
    if found[0].failure is not None:
        raise CurvaeError(found[0].failure)
    fitted = replace(found[0], reason=reason)
    maps = [embed(one, data) for one in found if one.failure is None]
    return _finish(folder, fitted, data, description, maps, voice, time.perf_counter() - began, source, settings)


def figures(voice: Voice) -> Callable[[dict[str, Any], int], None]:
    """The progress of one training, with its figures."""

    def progress(record: dict[str, Any], epochs: int) -> None:
        figures = f"ELBO {record['elbo']:.2f}  rec {record['reconstruction']:.2f}  KL {record['kl']:.2f}"
        voice.progress("training", record["epoch"], epochs, f"{figures}  c {record['c']:.3g}")

    return progress


def comparable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those that `curvae compare` takes: it chooses the curvature and the split itself."""
    known = described(GraphSettings) | described(RowSettings)
    return {name: value for name, value in settings.items() if known[name].compared}


def _scored(split: Split) -> tuple[NDArray[np.int64], str]:
    """Rows whose likelihood the report tells, and what they are."""
    return (split.validation, "held-out") if len(split.validation) >= 3 else (split.train, "training")


def _varies(x: Any) -> bool:
    low, high = extremes(x)
    return bool((low < high).any())


def _describe(
    command: str, source: Source, repeats: int, data: Dataset, schema: Schema, config: Config, reason: str
) -> dict[str, Any]:
    return {
        **description_of(config, "vae"),
        "likelihood_reason": reason,
        "command": command,
        "source": source.to_json(),
        "repeats": repeats,
        "data": {
            "fingerprint": data.fingerprint,
            "rows": len(data),
            "features": int(data.x.shape[1]),
            "shape": list(data.shape),
            "blocks": list(data.blocks),
            "notes": list(data.notes),
            "warnings": list(data.warnings),
            "label": data.label_name,
            "schema": schema.to_json(),
        },
    }


def _finish(
    folder: Path,
    fitted: Fitted,
    data: Dataset,
    description: dict[str, Any],
    maps: list[Embedding],
    voice: Voice,
    seconds: float,
    source: Source,
    settings: dict[str, Any],
) -> FitResult:
    config, embedding, held = fitted.config, maps[0], fitted.split.validation
    scored, kind = _scored(fitted.split)
    apart = kind == "held-out"
    voice.say(f"measuring the likelihood of {kind} rows")
    found = likelihoods(fitted, data.arrays.take(scored), _SAMPLES, advance=voice.counter("likelihood", len(scored)))
    unhealthy = health(fitted, embedding)
    warnings = [*data.warnings, *unhealthy]
    stable = stability(maps)
    last = fitted.last
    summary = {
        "log_likelihood": found.mean,
        "log_likelihood_interval": found.interval,
        "log_likelihood_original_units": found.original.mean,
        "log_likelihood_rows": "validation" if apart else "train",
        "reconstruction": last["reconstruction"],
        "kl": last["kl"],
        "c": last["c"],
        "prior_scale": last["prior_scale"],
        "identifiable": last["c"] * last["prior_scale"] ** 2,
        "seconds": round(seconds, 2),
        "stability": None if stable is None else vars(stable),
        "warnings": warnings,
    }
    write_table(
        folder / "embedding.csv", embedding_table(embedding, data.ids, data.labels, fitted.split.names(len(data)))
    )
    named = replace(source, path=description["source"]["name"])
    compare = named.command("compare", settings=comparable(given(config)))
    again = f"{named.command('fit', settings=given(config))} --repeats 5"
    sections = [
        pages.map_section(data, embedding, shlex.join(["curvae", "view", without_folder(str(folder))])),
        pages.likelihood_section(found if apart else None, f"{len(held)} validation rows", compare),
        pages.stability_section(stable, again),
        pages.training_section(fitted, embedding),
        pages.reconstruction_section(fitted, data, embedding, scored, found.log_prob, kind),
        pages.data_section(data, [pages.scaling_note(config)]),
    ]
    for name, section in (("map", sections[0]), ("curves", sections[3])):
        write_bytes(folder / f"{name}.png", section.pictures[0].png)
    verdict = (
        f"{len(data)} rows on a map of {config.dim} dimensions, {pages.curvature_text(embedding.c)}: "
        f"log-likelihood of {kind} rows {found.text} nats a row, divergence from the prior {last['kl']:.2f} nats."
    )
    write_report(folder, f"Map of {description['source']['name']}", verdict, warnings, sections, description)
    extra = {key: description[key] for key in ("command", "source", "repeats", "data")}
    save_fitted(folder, fitted, embedding, {**extra, "summary": summary})
    if stable is not None:
        voice.say(sections[2].text[0])
    voice.say(verdict)
    for text in unhealthy:
        voice.warn(text)
    return FitResult(folder, source, settings, fitted, embedding, summary, warnings)
