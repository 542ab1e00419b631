"""What models of rows and of graphs differ in; everything else about training is written once for both."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from ..errors import CurvaeError
from ..maps.embedding import Embedding
from .config import Settings, choose_device
from .engine import Engine, Fall
from .fitted import FittedModel, Record
from .row_sources import SINGLE, ProcessGroup

__all__ = ["FittedT", "Judged", "Listener", "ModelInTraining", "Problem", "Task", "TaskT", "Warn", "require_one_each"]

Warn = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Task(ABC):
    """A model to be trained: everything but the data, which many tasks may share.

    Arguments:
        place: in the list of models to train.
        name: for messages.
        config: settings.
        source: which of the data of the problem.
        split: of these data.
        data: fingerprints by name, which a checkpoint keeps; see `Problem.fingerprints`.
    """

    place: int
    name: str
    config: Any
    source: int
    split: Any
    data: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    @property
    @abstractmethod
    def architecture(self) -> Any:
        """What the models of one stack have in common."""

    @property
    def patience(self) -> int | None:
        """Epochs without progress on validation data after which the training ends, if there are any."""
        return self.config.patience if self.split is not None and len(self.split.validation) else None

    @classmethod
    def label(cls, place: int, count: int, config: Settings) -> str:
        """How messages call the model at this place of a list."""
        space = f"c = {config.curvature:g}" if config.space is None else f"space {config.space}"
        return f"model {place + 1} of {count} (seed {config.seed}, {space})"


@dataclass(eq=False)
class ModelInTraining:
    """A model of a stack, a `VAE` or `GraphVAE`, with its records and how its training ended.

    With early stopping, `best` is the validation ELBO of the best epoch, and `fall` when the learning rate falls if it
    does so before its time.
    """

    task: Task
    model: Any
    history: list[Record] = field(default_factory=list)
    best: float = -math.inf
    best_epoch: int = 0
    fall: Fall | None = None
    failure: str | None = None
    finished: bool = False

    def take(self, weights: Mapping[str, Tensor]) -> None:
        """Finish with a copy of these weights, which no longer follow those of the stack."""
        self.finished = True
        for name, parameter in self.model.named_parameters():
            parameter.data, parameter.grad = weights[name].detach().clone(), None


@dataclass(frozen=True)
class Judged:
    """A model of a comparison, judged on data that were held out.

    Arguments:
        validation, test: scores, or figures that `float` turns into scores; higher is better.
        embedding: of all data.
        failure: why the training ended early.
    """

    validation: Any
    test: Any
    embedding: Embedding
    failure: str | None


TaskT = TypeVar("TaskT", bound=Task)
FittedT = TypeVar("FittedT", bound=FittedModel)


@dataclass(frozen=True)
class Problem(ABC, Generic[TaskT, FittedT]):
    """Data to train on, and what depends on their kind. It travels to the process that does the work.

    Arguments:
        sources: the distinct data of all tasks.
        asked: the device, or "auto".
        dtype: of the networks.
        group: processes that train a model together.

    Attributes:
        remedy: what to do about a model that is too large for the device.
    """

    sources: Sequence[Any]
    asked: torch.device | str = "cpu"
    dtype: torch.dtype = torch.float32
    group: ProcessGroup = field(default=SINGLE, kw_only=True)

    remedy: ClassVar[str]

    @property
    def device(self) -> torch.device:
        """Where to train."""
        return choose_device(str(self.asked))

    @abstractmethod
    def fingerprints(self, task: TaskT, known: dict[Any, str]) -> dict[str, str]:
        """Digests of the data of a task, by name; `known` keeps those that many tasks share."""

    def fingerprinted(self, tasks: Sequence[TaskT]) -> list[TaskT]:
        """The same tasks with what a checkpoint stores about their data, to refuse others when it is resumed."""
        known: dict[Any, str] = {}
        return [replace(task, data=self.fingerprints(task, known)) for task in tasks]

    @abstractmethod
    def models(self, tasks: Sequence[TaskT]) -> Sequence[Any]:
        """A fresh model for each task, on the device."""

    @abstractmethod
    def engine(self, tasks: Sequence[TaskT], models: Sequence[Any]) -> Engine[Any, Any]:
        """What trains the models of these tasks together, with their data."""

    @abstractmethod
    def result(self, task: TaskT, trained: ModelInTraining) -> FittedT:
        """A trained model with what is needed to use it."""

    @abstractmethod
    def judge(self, tasks: Sequence[TaskT], fitted: Sequence[FittedT]) -> list[Judged]:
        """Embed the data of trained models, and score them on data that were held out."""


def require_one_each(configs: Sequence[Any], **given: Sequence[Any] | None) -> None:
    """Raise unless there is a configuration, and everything given by name has one entry for each."""
    if not configs:
        raise CurvaeError("there is nothing to train: give one or more configurations")
    for name, entries in given.items():
        if entries is not None and len(entries) != len(configs):
            raise CurvaeError(f"{name} must hold one entry a configuration: {len(configs)}, got {len(entries)}")


@dataclass(frozen=True)
class Listener:
    """Callbacks of a training.

    Arguments:
        record: called after every epoch of a model with its place in the list and the figures.
        warn: called with what looks wrong.
    """

    record: Callable[[int, Record], None] = lambda place, record: None
    warn: Warn = lambda text: None
