"""From tasks to trained models: one stack, or halves of it where memory is short, with its checkpoint."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from ..errors import CurvaeError
from .checkpoints import Checkpoint
from .config import Settings
from .device import choose_device
from .engine import Engine
from .files import remove_files
from .fitted import Record
from .stacks import Member, train

__all__ = ["Planned", "Tick", "Warn", "train_tasks"]

Tick = Callable[[int, Record], None]
"""told of an epoch: the place of the model in the list, and the record"""
Warn = Callable[[str], None]


class Planned(Protocol):
    """A model to be trained."""

    @property
    def place(self) -> int:
        """In the list that was asked for."""

    @property
    def name(self) -> str: ...

    @property
    def config(self) -> Settings: ...

    @property
    def architecture(self) -> Any:
        """What the models of one stack have in common."""


Task = TypeVar("Task", bound=Planned)
Prepare = Callable[[Sequence[Task]], tuple[list[Member], Callable[[list[Any], list[int]], Engine[Any, Any]]]]
"""fresh members for tasks, and what makes an engine of models, given with the places of their tasks in that list"""


def train_tasks(
    tasks: Sequence[Task],
    prepare: Prepare[Task],
    *,
    device: torch.device | str = "cpu",
    folder: Path | None = None,
    resume: bool = False,
    progress: Tick = lambda place, record: None,
    warn: Warn = lambda text: None,
    mend: str = "lower hidden or batch_size",
) -> list[Member]:
    """Train one stack. Where it does not fit into the memory of the device, one half after the other."""
    choose_device(str(device))  # refuses a device that cannot train, before any work
    try:
        return _train(tasks, prepare, folder, resume, progress, warn)
    except torch.OutOfMemoryError as error:
        if len(tasks) == 1:
            raise CurvaeError(
                f"{tasks[0].name} does not fit into the memory of {device}; {mend}, or use the CPU"
            ) from error
    _release()
    if folder is not None:  # each half has a checkpoint of its own
        remove_files([Checkpoint(folder, resume, [task.place for task in tasks]).path])
    half = len(tasks) // 2
    warn(f"{len(tasks)} models do not fit into the memory of {device} at once; trying {len(tasks) - half} and {half}")
    settings: dict[str, Any] = {"device": device, "folder": folder, "resume": resume, "mend": mend}
    return [
        member
        for part in (tasks[: len(tasks) - half], tasks[len(tasks) - half :])
        for member in train_tasks(part, prepare, **settings, progress=progress, warn=warn)
    ]


def _train(
    tasks: Sequence[Task], prepare: Prepare[Task], folder: Path | None, resume: bool, progress: Tick, warn: Warn
) -> list[Member]:
    members, make = prepare(tasks)
    places = {id(member): i for i, member in enumerate(members)}

    def engine(active: Sequence[Member]) -> Engine[Any, Any]:
        # A model that is done but still among the others when they are resumed must not be trained any more.
        models = [deepcopy(member.model) if member.finished else member.model for member in active]
        return make(models, [places[id(member)] for member in active])

    train(
        members,
        engine,
        None if folder is None else Checkpoint(folder, resume, [task.place for task in tasks]),
        lambda member, record: progress(tasks[places[id(member)]].place, record),
        warn,
    )
    _release()
    for member in members:
        member.model.eval()
    return members


def _release() -> None:
    """Give back the memory of captured graphs, which are held in circles."""
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()
