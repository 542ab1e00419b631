"""Checkpoints in a folder: where a stack keeps its state, which models lie together, and whether they fit a run."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import CurvaeError
from ..settings import ADDED
from .adam import Fall
from .files import (
    make_folder,
    read_metadata,
    read_tensors,
    remove_files,
    require_finite_tensors,
    write_records,
    write_tensors,
)
from .fitted import METRICS, Record
from .problems import ModelInTraining

__all__ = ["Checkpoint", "State", "begun", "fitting", "seen"]

Tensors = dict[str, Tensor]

_FOLDER = "checkpoint"


@dataclass
class State:
    """How far a stack is, besides what its models hold.

    Arguments:
        active: models that the engine trains, though some may be done.
        passed: epochs so far.
        step: steps so far.
        best: weights of the epoch that was best on validation data, with early stopping.
        moments: of the optimiser.
    """

    active: list[ModelInTraining]
    passed: int = 0
    step: int = 0
    best: Tensors = field(default_factory=dict)
    moments: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)


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

    def write(self, members: Sequence[ModelInTraining], state: State) -> None:
        """All that is needed to go on as if nothing had happened."""
        tensors: Tensors = {}
        for name, _ in members[0].model.named_parameters():
            tensors[f"model.{name}"] = torch.stack([m.model.get_parameter(name).detach() for m in members])
        if state.active:
            tensors |= {f"best.{name}": t for name, t in state.best.items()}
            for name, (first, second) in state.moments.items():
                tensors |= {f"first.{name}": first, f"second.{name}": second}
        for key in {key: None for member in members for record in member.history for key in record}:
            rows = [[record.get(key, math.nan) for record in member.history] for member in members]
            longest = max(map(len, rows))
            padded = [row + [math.nan] * (longest - len(row)) for row in rows]
            tensors[f"history.{key}"] = torch.tensor(padded, dtype=torch.float64)
        counters = {
            "places": list(self.places),
            "configs": [member.task.config.flat() for member in members],
            "data": [dict(member.task.data) for member in members],
            "passed": state.passed,
            "step": state.step,
            "active": [members.index(member) for member in state.active],
            "members": [
                {
                    "epochs": len(member.history),
                    "best": repr(member.best),
                    "best_epoch": member.best_epoch,
                    "fall": member.fall and [member.fall.end, member.fall.span],
                    "failure": member.failure,
                    "finished": member.finished,
                }
                for member in members
            ],
        }
        if self.watched is not None and members[self.watched].history:
            write_records(self.metrics, members[self.watched].history)
        write_tensors(self.path, tensors, {"state": json.dumps(counters)})

    def read(self, members: Sequence[ModelInTraining]) -> State:
        """The state, where there is one to go on from; what was reached is written into the fresh members."""
        if not self.resume or not self.path.exists():
            return State(list(members))
        # Histories of unequal length are filled up with NaN, and the moments of a model that failed may be anything.
        kinds = ("first.", "second.")
        tensors, metadata = read_tensors(self.path, gaps=("history.", *kinds))
        with fitting(self.folder):
            counters = json.loads(metadata["state"])
            good = [k for k, i in enumerate(counters["active"]) if counters["members"][i]["failure"] is None]
            own = {name: t[good] for name, t in tensors.items() if name.startswith(kinds)}
        require_finite_tensors(self.path, own)
        with fitting(self.folder):
            _require_same(members, counters["configs"], counters["data"])
            keys = {name.removeprefix("history."): t for name, t in tensors.items() if name.startswith("history.")}
            for i, (member, known) in enumerate(zip(members, counters["members"], strict=True)):
                with torch.no_grad():
                    for name, parameter in member.model.named_parameters():
                        parameter.copy_(tensors[f"model.{name}"][i])
                epochs = int(known["epochs"])
                member.history = [_plain({k: t[i, e].item() for k, t in keys.items()}) for e in range(epochs)]
                member.best, member.best_epoch = float(known["best"]), int(known["best_epoch"])
                member.fall = Fall(*known["fall"]) if known.get("fall") else None
                member.failure, member.finished = known["failure"], bool(known["finished"])
            device, names = members[0].model.device, [name for name, _ in members[0].model.named_parameters()]
            state = State([members[i] for i in counters["active"]], int(counters["passed"]), int(counters["step"]))
            state.best = {name: tensors[f"best.{name}"].to(device) for name in names if f"best.{name}" in tensors}
            if state.active:
                state.moments = {name: (tensors[f"first.{name}"], tensors[f"second.{name}"]) for name in names}
        if state.passed > (asked := members[0].task.config.epochs or 0):
            raise CurvaeError(
                f"{self.path} was trained for {state.passed} epochs and {asked} are asked for; ask for at least "
                f"{state.passed} epochs, or start again in another folder"
            )
        return state


def _require_same(
    members: Sequence[ModelInTraining], configs: Sequence[dict[str, Any]], data: Sequence[dict[str, str]]
) -> None:
    """A run may be given more epochs; all else must be as it was."""
    for member, known, marks in zip(members, configs, data, strict=True):
        task, own = member.task, member.task.config.flat()
        known = {**ADDED, **known}
        other = [name for name in own if name not in ("epochs", "steps") and own[name] != known.get(name)]
        if other:
            raise ValueError(f"{other[0]} was {known.get(other[0])}, not {own[other[0]]}")
        other = [name for name in task.data if task.data[name] != marks.get(name)]
        if other:
            raise ValueError(f"other data: not the {other[0]} that {task.name} was begun with")
    if len({member.task.config.epochs for member in members}) > 1:
        raise ValueError("models that were trained together must be given the same epochs")


def _plain(record: dict[str, float]) -> Record:
    """A record as it was: the number of the epoch is whole, and what is NaN was not part of it."""
    return {key: int(value) if key == "epoch" else value for key, value in record.items() if not math.isnan(value)}


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
