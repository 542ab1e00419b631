"""What an interrupted run was, and that it goes on with the same data and settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from ..errors import CurvaeError
from ..training.config import Settings
from ..training.storage import CONFIG, read_description
from .folder import Given

__all__ = ["begun_run", "require_same_data"]

Source = TypeVar("Source", bound=Given)
Config = TypeVar("Config", bound=Settings)


def begun_run(
    kind: str, folder: Path | None, source: Source, configs: type[Config], settings: Mapping[str, Any]
) -> tuple[Path, Source, Config, dict[str, Any]]:
    """Folder, source, settings and description of a run to resume.

    Arguments:
        kind: of the run.
        folder: that was given.
        source: that was given, with its options, which must not differ from those of the run.
        configs: what its settings are.
        settings: that were given, likewise.
    """
    if folder is None:
        command = "curvae graph EDGES" if kind == "graph" else "curvae fit DATA"
        raise CurvaeError(f"--resume needs the run folder: {command} -o RUN --resume")
    description = read_description(folder, kind)
    try:
        config = configs.from_json(description["config"])
        again = source.again(description["source"])
        told = ("command", "likelihood_reason") if kind == "vae" else ("command",)
        known = [description["data"]["fingerprint"], *(description[name] for name in told)]
        if not all(isinstance(value, str) for value in known):
            raise TypeError("its data are not described")
    except (KeyError, TypeError, ValueError) as error:
        raise CurvaeError(
            f"{folder} cannot be resumed: its {CONFIG} is incomplete ({error}); start a new run"
        ) from error
    before = {**vars(config), **vars(again)}
    given = {**settings, **source.options}
    other = [
        f"{name} {before[name]}, not {value}"
        for name, value in given.items()
        if value != before[name] and not (name == "likelihood" and value == "auto")
    ]
    if other:
        raise CurvaeError(f"the run was started with {' and '.join(other)}; leave the option out, or start a new run")
    return folder, again, config, description


def require_same_data(folder: Path | None, source: Given, fingerprint: str, begun: Mapping[str, Any]) -> None:
    """Raise when a run that is resumed would go on with other data."""
    if folder is not None and fingerprint != begun["data"]["fingerprint"]:
        raise CurvaeError(
            f"{source.path} is not the data that {folder} was started with; "
            "give that data, or start a new run without --resume"
        )
