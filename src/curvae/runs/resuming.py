"""Runs that go on: what they were begun with, and that it is asked for again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..data import Dataset
from ..errors import CurvaeError
from ..training import Config
from ..training.storage import CONFIG, read_description
from .folder import Source

__all__ = ["Begun", "begun", "given"]

# What a description says besides settings and source, made what it should be.
_SOUND: dict[str, Callable[[Any], Any]] = {"repeats": int, "curvatures": lambda values: [float(c) for c in values]}


@dataclass(frozen=True)
class Begun:
    """A run to go on with, as its `config.json` describes it."""

    folder: Path
    source: Source
    config: Config
    more: dict[str, Any]
    """what else was asked for at the start"""
    description: dict[str, Any]

    def require_same(self, data: Dataset) -> None:
        """Raise unless the data are those of the start."""
        if data.fingerprint != self.description["data"]["fingerprint"]:
            raise CurvaeError(
                f"{self.source.path} is not the data that {self.folder} was started with; "
                "give that data, or start a new run without --resume"
            )


def begun(
    command: str, kind: str, folder: Path | None, source: Source, settings: Mapping[str, Any], **more: Any
) -> Begun:
    """The run in a folder; what is asked for must be what it was begun with, or be left out.

    Arguments:
        command: that makes such runs.
        kind: of the run.
        folder: that was given, if any.
        source: data, and how to read them where that was given.
        settings: of `Config`, those that were given.
        more: what else was asked for, by its name in `config.json`; None where it was not.
    """
    if folder is None:
        raise CurvaeError(f"--resume needs the run folder: curvae {command} DATA -o RUN --resume")
    description = read_description(folder, kind)
    try:
        config = Config.from_json(description["config"])
        stored = {name: description["source"][name] for name in vars(source) if name != "path"}
        known = replace(source, **{**stored, "categorical": tuple(stored["categorical"])})
        texts = description["data"]["fingerprint"], description["command"], description.get("likelihood_reason", "")
        if not all(isinstance(value, str) for value in texts):
            raise TypeError("its data are not described")
        others = {name: _SOUND[name](description[name]) for name in more}
    except (KeyError, TypeError, ValueError) as error:
        raise CurvaeError(
            f"{folder} cannot be resumed: its {CONFIG} is incomplete ({error}); start a new run"
        ) from error
    before = {**vars(config), **vars(known), **others}
    asked = {**settings, **source.options, **{name: value for name, value in more.items() if value is not None}}
    other = [
        f"{name} {before[name]}, not {value}"
        for name, value in asked.items()
        if value != before[name] and not (name == "likelihood" and value == "auto")
    ]
    if other:
        raise CurvaeError(f"the run was started with {' and '.join(other)}; leave the option out, or start a new run")
    return Begun(folder, known, config, others, description)


def given(config: Config) -> dict[str, Any]:
    """Settings that differ from the default."""
    default = Config()
    return {name: value for name, value in vars(config).items() if value != getattr(default, name)}
