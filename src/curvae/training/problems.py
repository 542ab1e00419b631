"""What a stack is made of, be it trained on rows or on graphs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from .config import Settings
from .engine import Engine
from .fitted import Record

__all__ = ["Listener", "Member", "Planned", "Problem", "Warn"]

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
    def data(self) -> Mapping[str, str]:
        """Fingerprints of what it is trained on, by name, that a checkpoint keeps."""

    @property
    def architecture(self) -> Any:
        """What the models of one stack have in common."""


@dataclass(eq=False)
class Member:
    """A model in training, and what became of it."""

    task: Planned
    model: Any
    """a `VAE` or `GraphVAE`"""
    history: list[Record] = field(default_factory=list)
    best: float = -math.inf
    best_epoch: int = 0
    failure: str | None = None
    finished: bool = False

    @property
    def patience(self) -> int | None:
        """Epochs without progress on validation data after which the training ends."""
        return getattr(self.task.config, "patience", None)

    def gives_up(self, epoch: int) -> bool:
        """Whether early stopping ends the training."""
        return self.patience is not None and epoch - self.best_epoch >= self.patience

    def take(self, weights: Mapping[str, Tensor]) -> None:
        """Weights of its own, no longer those of the stack."""
        self.finished = True
        for name, parameter in self.model.named_parameters():
            parameter.data, parameter.grad = weights[name].detach().clone(), None


Task = TypeVar("Task", bound=Planned, contravariant=True)
Result = TypeVar("Result", covariant=True)


class Problem(Protocol[Task, Result]):
    """What trainings on rows and on graphs differ in; it travels to the process that does the work."""

    @property
    def device(self) -> torch.device:
        """Where to train."""

    @property
    def remedy(self) -> str:
        """What to do about a model that is too large for the device."""

    def models(self, tasks: Sequence[Task]) -> Sequence[Any]:
        """A fresh model for each task, on the device."""

    def engine(self, tasks: Sequence[Task], models: Sequence[Any]) -> Engine[Any, Any]:
        """What trains the models of these tasks together, with their data."""

    def result(self, task: Task, member: Member) -> Result:
        """A trained model with what is needed to use it."""


@dataclass(frozen=True)
class Listener:
    """Who is told how a training goes."""

    record: Callable[[int, Record], None] = lambda place, record: None
    """after every epoch of a model: its place in the list, and the figures"""
    reached: Callable[[Sequence[int], float], None] = lambda places, epochs: None
    """now and then: models that have been trained for so many epochs, the last of which may not be whole"""
    warn: Warn = lambda text: None
