"""Checkpoints in a folder: where a stack keeps its state, which models lie together, and whether they fit a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import CurvaeError
from .files import make_folder, read_metadata, remove_files
from .fitted import METRICS

__all__ = ["Checkpoint", "begun", "fitting", "seen"]

_FOLDER = "checkpoint"


@dataclass(frozen=True)
class Checkpoint:
    """Where a stack keeps its state.

    Arguments:
        folder: of the run; records of the first model of the list are written there, for people to watch.
        resume: go on from the state, if there is one.
        places: of the models of the stack in the list that was asked for.
    """

    folder: Path
    resume: bool
    places: Sequence[int]

    @property
    def path(self) -> Path:
        """A file of its own, for no model is in two stacks."""
        alone = list(self.places) == [0]
        name = "state" if alone else f"state-{min(self.places)}-{len(self.places)}"
        return self.folder / _FOLDER / f"{name}.safetensors"

    @property
    def shown(self) -> str:
        return f"{_FOLDER}/{self.path.name}"

    @property
    def metrics(self) -> Path:
        return self.folder / METRICS

    @property
    def watched(self) -> int | None:
        """Which of the models has its records written."""
        return self.places.index(0) if 0 in self.places else None


@contextmanager
def fitting(folder: Path) -> Iterator[None]:
    """Whatever is wrong with the checkpoints of a folder becomes one line."""
    try:
        yield
    except (KeyError, TypeError, ValueError, RuntimeError, IndexError) as error:
        message = str(error).splitlines()[0]
        raise CurvaeError(
            f"the checkpoint in {folder / _FOLDER} does not fit this run ({message}); "
            "start again in another folder, or without resume=True"
        ) from error


def seen(folder: Path | None, warn: Callable[[str], None]) -> Path | None:
    """The folder, unless this is a worker on a machine from where it cannot be seen."""
    if folder is None or folder.is_dir():
        return folder
    warn(f"a worker cannot see {folder} and keeps no checkpoints; choose a folder that all machines share")
    return None


def begun(folder: Path, resume: bool, count: int) -> list[list[int]]:
    """Places of the models in each checkpoint of a folder, out of a list of so many.

    These go on as the stacks they were, so that neither a longer list nor another number of processes changes them.
    Without `resume` there are none: what an earlier training left is removed.
    """
    make_folder(folder)
    paths = sorted((folder / _FOLDER).glob("state*.safetensors"))
    if not resume:
        remove_files(paths)
        return []
    found: list[list[int]] = []
    for path in paths:
        metadata = read_metadata(path)
        with fitting(folder):
            places = json.loads(metadata["state"])["places"]
            if not places or any(type(place) is not int or place < 0 for place in places):
                raise ValueError(f"{path.name} does not say which models it holds")
            found.append(places)
    every = [place for places in found for place in places]
    with fitting(folder):
        if len(set(every)) < len(every):
            raise ValueError("a model is in two files")
    if every and max(every) >= count:
        raise CurvaeError(
            f"the checkpoints in {folder} are of a list of {max(every) + 1} models or more, not of {count}; give that "
            "list, which may go on after its end, or start again in another folder"
        )
    return sorted(found, key=min)
