"""Start a run in a fresh folder, or resume one: then what is asked for must be what it was started with."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import CurvaeError
from ..settings import described
from ..training.config import Settings
from ..training.files import write_json
from ..training.locks import locked
from ..training.storage import CONFIG, description_of, read_description
from .folders import new_folder
from .kinds import RUNS, comparison_run, training_run
from .progress import Reporter
from .run import Run, given
from .sources import DataSource, Source

__all__ = ["Started", "start_run"]

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
