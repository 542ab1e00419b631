"""Train one stack of models from the first epoch to the last: what it is trained on, checkpoints, and the loop.

Keeps records and checkpoints, stops early, drops models that fail, and halves the stack where memory is short.
"""

from __future__ import annotations

import gc
import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from ..errors import CurvaeError
from ..models.stack import Tensors, blas_products, matmul_precision
from ..settings import ADDED
from .engine import Engine, Fall, figures_by_name
from .fitted import (
    METRICS,
    Embedding,
    FittedModel,
    Record,
    Settings,
    choose_device,
    few_threads,
    held_out_score,
    tolerance,
)
from .rows import SINGLE, ProcessGroup
from .storage import (
    make_folder,
    read_metadata,
    read_tensors,
    remove_files,
    require_finite_tensors,
    write_records,
    write_tensors,
)

__all__ = [
    "Checkpoint",
    "FittedT",
    "Judged",
    "Listener",
    "ModelInTraining",
    "Problem",
    "State",
    "Task",
    "TaskT",
    "Warn",
    "checkpoint_errors",
    "existing_checkpoints",
    "require_one_each",
    "train_stack",
    "visible_folder",
]


# What models of rows and of graphs differ in; everything else about training is written once for both.

Warn = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Task(ABC):
    """A model to be trained.

    Arguments:
        place: in the list of models to train.
        name: for messages.
        config: settings.
        source: the data, which many tasks may share.
        split: of these data.
        data: fingerprints by name, which a checkpoint keeps; see `Problem.fingerprinted`.
    """

    place: int
    name: str
    config: Any
    source: Any
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
        """Say how messages call the model at this place of a list."""
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
    """What depends on the kind of data. It travels to the process that does the work.

    Arguments:
        asked: the device, or "auto".
        dtype: of the networks.
        group: processes that train a model together.

    Attributes:
        remedy: what to do about a model that is too large for the device.
    """

    asked: torch.device | str = "cpu"
    dtype: torch.dtype = torch.float32
    group: ProcessGroup = field(default=SINGLE, kw_only=True)

    remedy: ClassVar[str]

    @property
    def device(self) -> torch.device:
        """Where to train."""
        return choose_device(str(self.asked))

    @abstractmethod
    def fingerprinted(self, tasks: Sequence[TaskT]) -> list[TaskT]:
        """Return the same tasks with what a checkpoint stores about their data, to refuse others when it is resumed."""

    @abstractmethod
    def models(self, tasks: Sequence[TaskT]) -> Sequence[Any]:
        """Build a fresh model for each task, on the device."""

    @abstractmethod
    def engine(self, tasks: Sequence[TaskT], models: Sequence[Any]) -> Engine[Any, Any]:
        """Build what trains the models of these tasks together, with their data."""

    @abstractmethod
    def result(self, task: TaskT, trained: ModelInTraining) -> FittedT:
        """Return a trained model with what is needed to use it."""

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


# Checkpoints in a folder: where a stack keeps its state, which models lie together, and whether they fit a run.

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
        part = "" if list(self.places) == [0] else f"-{min(self.places)}-{len(self.places)}"
        return self.folder / _FOLDER / f"state{part}.safetensors"

    def write(self, members: Sequence[ModelInTraining], state: State) -> None:
        """All that is needed to go on as if nothing had happened."""
        tensors: Tensors = {
            f"model.{name}": torch.stack([m.model.get_parameter(name).detach() for m in members])
            for name, _ in members[0].model.named_parameters()
        }
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
        if 0 in self.places and (history := members[self.places.index(0)].history):
            write_records(self.folder / METRICS, history)
        write_tensors(self.path, tensors, {"state": json.dumps(counters)})

    def read(self, members: Sequence[ModelInTraining]) -> State:
        """Read the state, where there is one to go on from; what was reached is written into the fresh members."""
        if not self.resume or not self.path.exists():
            return State(list(members))
        # Histories of unequal length are filled up with NaN, and the moments of a model that failed may be anything.
        kinds = ("first.", "second.")
        tensors, metadata = read_tensors(self.path, gaps=("history.", *kinds))
        with checkpoint_errors(self.folder):
            counters = json.loads(metadata["state"])
            good = [k for k, i in enumerate(counters["active"]) if counters["members"][i]["failure"] is None]
            own = {name: t[good] for name, t in tensors.items() if name.startswith(kinds)}
        require_finite_tensors(self.path, own)
        with checkpoint_errors(self.folder):
            _require_same(members, counters["configs"], counters["data"])
            keys = {name.removeprefix("history."): t for name, t in tensors.items() if name.startswith("history.")}
            for i, (member, known) in enumerate(zip(members, counters["members"], strict=True)):
                for name, parameter in member.model.named_parameters():
                    parameter.data.copy_(tensors[f"model.{name}"][i])
                records = ({k: t[i, e].item() for k, t in keys.items()} for e in range(int(known["epochs"])))
                # As they were: the number of the epoch is whole, and what is NaN was not part of a record.
                member.history = [
                    {k: int(v) if k == "epoch" else v for k, v in record.items() if not math.isnan(v)}
                    for record in records
                ]
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
    """Raise unless all is as it was, but for more epochs."""
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


@contextmanager
def checkpoint_errors(folder: Path) -> Iterator[None]:
    """Whatever is wrong with the checkpoints of a folder becomes one line."""
    try:
        yield
    except (KeyError, TypeError, ValueError, RuntimeError, IndexError) as error:
        raise CurvaeError(
            f"the checkpoint in {folder / _FOLDER} does not fit this run ({str(error).splitlines()[0]}); "
            "start again in another folder, or without `resume=True`"
        ) from error


def visible_folder(folder: Path | None, warn: Callable[[str], None]) -> Path | None:
    """Return the folder, unless this is a worker on a machine from where it cannot be seen."""
    if folder is None or folder.is_dir():
        return folder
    warn(f"a worker cannot see {folder} and keeps no checkpoints; choose a folder that all machines share")
    return None


def existing_checkpoints(folder: Path, resume: bool, count: int) -> list[list[int]]:
    """Return places of the models in each checkpoint of a folder, out of a list of so many.

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
        with checkpoint_errors(folder):
            places = json.loads(metadata["state"])["places"]
            if not places or any(type(place) is not int or place < 0 for place in places):
                raise ValueError(f"{path.name} does not say which models it holds")
            found.append(places)
    every = [place for places in found for place in places]
    with checkpoint_errors(folder):
        if len(set(every)) < len(every):
            raise ValueError("a model is in two files")
    if every and max(every) >= count:
        raise CurvaeError(
            f"the checkpoints in {folder} are of a list of {max(every) + 1} models or more, not of {count}; give that "
            "list, which may go on after its end, or start again in another folder"
        )
    return sorted(found, key=min)


# A checkpoint is written this many seconds after the last, and later if that took more than a twentieth of the time.
_CHECKPOINT_EVERY = 2.0
_CHECKPOINT_SHARE = 0.05


def train_stack(
    problem: Problem[TaskT, FittedT],
    tasks: Sequence[TaskT],
    listener: Listener,
    *,
    folder: Path | None = None,
    resume: bool = False,
) -> list[FittedT]:
    """Train models of one architecture until each is done; those that do not fit into memory one half after the other.

    Arguments:
        problem: what they are trained on.
        tasks: the models.
        listener: called with the progress.
        folder: where to keep the state.
        resume: go on from there, if there is one.
    """
    device = problem.device  # refuses one that cannot train, before any work
    folder = visible_folder(folder, listener.warn)
    checkpoint = None if folder is None else Checkpoint(folder, resume, [task.place for task in tasks])
    try:
        members = _train(problem, tasks, listener, checkpoint)
        return [problem.result(task, member) for task, member in zip(tasks, members, strict=True)]
    except torch.OutOfMemoryError as error:
        if len(tasks) == 1:
            raise CurvaeError(
                f"{tasks[0].name} does not fit into the memory of {device}; {problem.remedy}, or use the CPU"
            ) from error
    _release(device)
    if checkpoint is not None:  # each half has a checkpoint of its own
        remove_files([checkpoint.path])
    half = len(tasks) - len(tasks) // 2
    listener.warn(
        f"{len(tasks)} models do not fit into the memory of {device} at once; trying {half} and {len(tasks) - half}"
    )
    return [
        one
        for part in (tasks[:half], tasks[half:])
        for one in train_stack(problem, part, listener, folder=folder, resume=resume)
    ]


def _train(
    problem: Problem[TaskT, Any], tasks: Sequence[TaskT], listener: Listener, checkpoint: Checkpoint | None
) -> list[ModelInTraining]:
    training = _Training(problem, tasks, listener, checkpoint)
    while training.state.active and training.state.passed < (tasks[0].config.epochs or 0):
        training.epoch()
    training.close()
    _release(problem.device)
    return training.members


def _release(device: torch.device) -> None:
    """Give back the memory of captured graphs, which are held in circles."""
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()


class _Training:
    def __init__(
        self,
        problem: Problem[TaskT, Any],
        tasks: Sequence[TaskT],
        listener: Listener,
        checkpoint: Checkpoint | None,
    ) -> None:
        self.members = [ModelInTraining(task, model) for task, model in zip(tasks, problem.models(tasks), strict=True)]
        self.listener, self.checkpoint = listener, checkpoint if problem.group.share.rank == 0 else None
        self.saved, self.pause = time.monotonic(), _CHECKPOINT_EVERY
        self.state = State(self.members) if checkpoint is None else checkpoint.read(self.members)
        if not self.state.active:
            return
        # A model that is done but still among the others when they are resumed must not be trained any more.
        models = [deepcopy(member.model) if member.finished else member.model for member in self.state.active]
        self.engine = problem.engine([tasks[self.members.index(member)] for member in self.state.active], models)
        if checkpoint is not None and self.state.moments:
            with checkpoint_errors(checkpoint.folder):
                self.engine.load(self.state.moments, self.state.step)
        self._begin()

    def _begin(self) -> None:
        tensors, config = self.engine.stack.tensors, self.engine.config
        self.state.moments = self.engine.optimiser.moments
        if self.state.active[0].task.patience is not None and not self.state.best:
            self.state.best = {name: t.clone() for name, t in tensors.items()}
        for place, member in enumerate(self.state.active):
            if member.fall is not None:
                self.engine.optimiser.set_fall(place, member.fall)
        self.last = {name: t.clone() for name, t in tensors.items()}
        self.learned = config.learn_prior_scale or self.engine.stack.models[0].space.learned
        self._read_geometry()

    def _read_geometry(self) -> None:
        stack = self.engine.stack
        values = stack.each(lambda model: torch.stack(list(model.space.numbers().values())))
        self.geometry = [dict(zip(stack.models[0].space.numbers(), own, strict=True)) for own in values.tolist()]

    def close(self) -> None:
        """Save, then give the models that trained to the end their weights: the last, or with patience the best."""
        if not all(member.failure for member in self.members):
            self.save()
        for i, member in enumerate(self.state.active):
            if not member.finished:
                member.take({name: t[i] for name, t in (self.state.best or self.engine.stack.tensors).items()})
        for member in self.members:
            member.model.eval()

    def epoch(self) -> None:
        """One epoch of all models that are not done."""
        engine, state, began = self.engine, self.state, time.perf_counter()
        precision = matmul_precision(engine.config.tf32) if engine.stack.device.type == "cuda" else nullcontext()
        alone = blas_products(engine.stack.models[0]) if len(engine) == 1 else nullcontext()
        with precision, few_threads(engine.threads), alone:
            passed = engine.epoch(state.passed)
            validated = engine.validate() if len(passed.failures) < len(engine) else []
        if self.learned:
            self._read_geometry()
        finite = engine.finite()
        first = state.step
        state.passed, state.step = state.passed + 1, engine.step
        seconds = round((time.perf_counter() - began) / len(engine), 4)
        good: list[ModelInTraining] = []
        for i, member in enumerate(state.active):
            if member.finished:
                continue
            record = {
                "epoch": state.passed,
                **figures_by_name(passed.means[i].tolist()),
                **self.geometry[i],
                **(validated[i] if validated else {}),
            }
            wrong = [name for name, value in record.items() if not math.isfinite(value)]
            if i in passed.failures:
                failure = passed.failures[i]
                self._fail(i, first + failure.step, failure.what, failure.where)
            elif wrong or not finite[i]:
                # The step after a finite loss may still lead nowhere; such weights must not become a checkpoint.
                what = f"{wrong[0]} became {record[wrong[0]]}" if wrong else "a weight became infinite"
                self._fail(i, state.step, what, engine.where(i))
            else:
                member.history.append({**record, "seconds": seconds})
                self._judge(i, record)
                good.append(member)
        self._keep()
        if state.active:
            for name, t in self.engine.stack.tensors.items():
                self.last[name].copy_(t)
        if good and time.monotonic() - self.saved > self.pause:
            self.save()
        for member in good:
            self.listener.record(member.task.place, member.history[-1])

    def _judge(self, place: int, record: Record) -> None:
        """Keep the best weights. After so long without progress, go back to them and let the learning rate fall; where
        it does not fall, that is the end."""
        member, tensors = self.state.active[place], self.engine.stack.tensors
        if self.state.best and (score := held_out_score(record)) > member.best - tolerance(member.task.split):
            member.best, member.best_epoch = max(score, member.best), self.state.passed
            for name, t in tensors.items():
                self.state.best[name][place] = t[place]
        if member.fall is not None:
            done = self.state.step >= member.fall.end
        else:
            patience = member.task.patience
            done = patience is not None and self.state.passed - member.best_epoch >= patience
            if done and self.engine.config.cooldown:
                done, member.fall = False, self.engine.early_fall(member.best_epoch)
                if member.fall is not None:
                    self.engine.optimiser.set_fall(place, member.fall)
                    for name, t in tensors.items():
                        t[place] = self.state.best[name][place]
        if done:
            member.take({name: t[place] for name, t in self.state.best.items()})

    def _fail(self, place: int, step: int, what: str, where: str) -> None:
        member, checkpoint = self.state.active[place], self.checkpoint
        kept = (
            f"the last good checkpoint is {_FOLDER}/{checkpoint.path.name} of the run"
            if checkpoint is not None and checkpoint.path.exists()
            else "there is no checkpoint yet"
        )
        member.failure = (
            f"{what} at step {step} (epoch {self.state.passed}): {where}; {kept}; "
            "lower the learning rate or look for extreme values in the data"
        )
        member.take({name: t[place] for name, t in self.last.items()})
        if len(self.members) > 1:
            self.listener.warn(
                f"{member.task.name} stopped and keeps the weights of its last good epoch: {member.failure}"
            )

    def _keep(self) -> None:
        """Drop models that are done, once they are half of the stack: what they compute is wasted."""
        going = [i for i, member in enumerate(self.state.active) if not member.finished]
        if not going:
            self.state.active = []
        elif 2 * len(going) <= len(self.state.active):
            self.engine = self.engine.keep(going)
            self.state.active = [self.state.active[i] for i in going]
            self.state.best = {name: t[going] for name, t in self.state.best.items()}
            self._begin()

    def save(self) -> None:
        """Write the checkpoint, if one is kept."""
        if self.checkpoint is None:
            return
        began = time.monotonic()
        self.checkpoint.write(self.members, self.state)
        self.saved = time.monotonic()
        self.pause = max(_CHECKPOINT_EVERY, (self.saved - began) / _CHECKPOINT_SHARE)
