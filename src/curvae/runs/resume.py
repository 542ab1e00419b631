"""Resuming runs: read what a run was started with, and check that nothing else is asked for now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import CurvaeError
from ..training.config import Settings
from ..training.locks import locked
from ..training.storage import CONFIG, read_description
from .sources import DataSource

__all__ = ["Resumed", "given", "resume_run"]

# What a description says besides settings and source, and how it is checked and converted.
_CONVERT: dict[str, Callable[[Any], Any]] = {
    "repeats": int,
    "splits": int,
    "curvatures": lambda values: [float(c) for c in values],
}


@dataclass(frozen=True)
class Resumed:
    """A run to continue, as its `config.json` describes it."""

    folder: Path
    source: DataSource
    """read as it was at the start"""
    config: Settings
    more: dict[str, Any]
    """what else was asked for at the start"""
    description: dict[str, Any]

    def require_same(self, fingerprint: str) -> None:
        """Raise unless the data are those of the start."""
        if fingerprint != self.description["data"]["fingerprint"]:
            raise CurvaeError(
                f"{self.source.path} is not the data that {self.folder} was started with; "
                "give that data, or start a new run without resume=True"
            )


@contextmanager
def resume_run(
    command: str,
    kind: str,
    folder: Path | None,
    source: DataSource,
    configs: type[Settings],
    settings: Mapping[str, Any],
    **more: Any,
) -> Iterator[Resumed]:
    """Open the run in a folder, and lock it within the context.

    What is asked for now must be what the run was started with, or be left out.

    Arguments:
        command: how the command that makes such runs is called.
        kind: of the run.
        folder: of the run, if one was given.
        source: the data, with the reading options that were given.
        configs: class of its settings.
        settings: those that were given.
        more: what else was asked for, by its name in `config.json`; None where it was left out.
    """
    if folder is None:
        raise CurvaeError(f"resume=True needs the run folder: curvae {command} -o RUN --resume")
    with locked(folder) if folder.is_dir() else nullcontext():
        yield _read(folder, kind, source, configs, settings, more)


def _read(
    folder: Path,
    kind: str,
    source: DataSource,
    configs: type[Settings],
    settings: Mapping[str, Any],
    more: Mapping[str, Any],
) -> Resumed:
    description = read_description(folder, kind)
    try:
        config = configs.from_json(description["config"])
        known = source.again(description["source"])
        texts = description["data"]["fingerprint"], description["command"], description.get("likelihood_reason", "")
        if not all(isinstance(value, str) for value in texts):
            raise TypeError("its data are not described")
        others = {name: _CONVERT[name](description[name]) for name in more}
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
    return Resumed(folder, known, config, others, description)


def given(config: Settings) -> dict[str, Any]:
    """Settings that differ from the default."""
    default = type(config)()
    return {name: value for name, value in vars(config).items() if value != getattr(default, name)}
