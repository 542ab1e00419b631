"""One stack of models from first epoch to last: records, early stopping, failures, checkpoints."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..errors import CurvaeError
from ..models.tracing import matmul_precision
from ..settings import ADDED
from .checkpoints import Checkpoint, fitting
from .config import Settings
from .engine import Engine
from .files import read_tensors, require_finite_tensors, write_records, write_tensors
from .fitted import Record

__all__ = ["Member", "train"]

# A checkpoint is written this many seconds after the last, and later if that took more than a twentieth of the time.
_CHECKPOINT_EVERY = 2.0
_CHECKPOINT_SHARE = 0.05

Tensors = dict[str, Tensor]


@dataclass
class Member:
    """A model in training, and what became of it."""

    name: str
    config: Settings
    model: Any
    """a `VAE` or `GraphVAE`"""
    patience: int | None = None
    """epochs without progress on validation data after which the training ends"""
    data: Mapping[str, str] = field(default_factory=dict)
    """fingerprints of what it is trained on, by name"""
    history: list[Record] = field(default_factory=list)
    best: float = -math.inf
    best_epoch: int = 0
    failure: str | None = None
    finished: bool = False

    def gives_up(self, epoch: int) -> bool:
        """Whether early stopping ends the training."""
        return self.patience is not None and epoch - self.best_epoch >= self.patience

    def take(self, weights: Tensors) -> None:
        """Weights of its own, no longer those of the stack."""
        self.finished = True
        for name, parameter in self.model.named_parameters():
            parameter.data, parameter.grad = weights[name].detach().clone(), None


def train(
    members: Sequence[Member],
    engine: Callable[[Sequence[Member]], Engine[Any, Any]],
    checkpoint: Checkpoint | None = None,
    progress: Callable[[Member, Record], None] = lambda member, record: None,
    warn: Callable[[str], None] = lambda text: None,
) -> None:
    """Train the models of a stack until each is done; their weights and histories are in the members.

    Arguments:
        members: of one architecture, fresh.
        engine: makes the engine of some of them.
        checkpoint: where to keep the state, and whether to go on from there.
        progress: called for every model after every epoch.
        warn: told of models that failed.
    """
    training = _Training(members, engine, checkpoint, progress, warn)
    while training.going():
        training.epoch()
    training.close()


class _Training:
    def __init__(
        self,
        members: Sequence[Member],
        make: Callable[[Sequence[Member]], Engine[Any, Any]],
        checkpoint: Checkpoint | None,
        progress: Callable[[Member, Record], None],
        warn: Callable[[str], None],
    ) -> None:
        self.members, self.checkpoint, self.progress, self.warn = list(members), checkpoint, progress, warn
        self.passed, self.step = 0, 0
        self.active = self.members
        self.best: Tensors = {}
        self.saved, self.pause = time.monotonic(), _CHECKPOINT_EVERY
        state: Tensors = {}
        if checkpoint is not None and checkpoint.resume and checkpoint.path.exists():
            state = self._load(checkpoint)
        if not self.active:
            return
        self.engine = make(self.active)
        if checkpoint is not None and state:
            with fitting(checkpoint.folder):
                moments = {name: (state[f"first.{name}"], state[f"second.{name}"]) for name in self.engine.moments}
                self.engine.load(moments, self.step)
        self._begin()

    def _begin(self) -> None:
        tensors = self.engine.stack.tensors
        if self.active[0].patience is not None and not self.best:
            self.best = {name: t.clone() for name, t in tensors.items()}
        self.last = {name: t.clone() for name, t in tensors.items()}
        self.learned = self.active[0].config.learn_curvature or self.active[0].config.learn_prior_scale
        self._read_geometry()

    def _read_geometry(self) -> None:
        stack = self.engine.stack
        self.curvatures = stack.each(lambda model: model.prior.curvature()).tolist()
        self.prior_scales = stack.each(lambda model: model.prior.scale()).tolist()

    def going(self) -> bool:
        """Whether there is anything left to train."""
        return bool(self.active) and self.passed < (self.active[0].config.epochs or 0)

    def close(self) -> None:
        """Save, then give the models that trained to the end their weights: the last, or with patience the best."""
        if not all(member.failure for member in self.members):
            self.save()
        for i, member in enumerate(self.active):
            if not member.finished:
                member.take({name: t[i] for name, t in (self.best or self.engine.stack.tensors).items()})

    def epoch(self) -> None:
        """One epoch of all models that are not done."""
        engine, began = self.engine, time.perf_counter()
        with matmul_precision(engine.config.tf32) if engine.stack.device.type == "cuda" else nullcontext():
            passed = engine.epoch(self.passed)
            watched = engine.validate() if len(passed.failures) < len(engine) else None
        if self.learned:
            self._read_geometry()
        finite = engine.finite()
        first = self.step
        self.passed, self.step = self.passed + 1, engine.step
        seconds = round((time.perf_counter() - began) / len(engine), 4)
        good: list[Member] = []
        for i, member in enumerate(self.active):
            if member.finished:
                continue
            record = self._record(i, passed.means[i].tolist(), None if watched is None else watched[i].tolist())
            wrong = [name for name, value in record.items() if not math.isfinite(value)]
            if i in passed.failures:
                failure = passed.failures[i]
                self._fail(i, first + failure.step, failure.what, failure.where)
            elif wrong or not finite[i]:
                # The step after a finite loss may still lead nowhere; such weights must not become a checkpoint.
                what = f"{wrong[0]} became {record[wrong[0]]}" if wrong else "a weight became infinite"
                self._fail(i, self.step, what, engine.where(i))
            else:
                member.history.append({**record, "seconds": seconds})
                self._judge(i, record)
                good.append(member)
        self._keep()
        if self.active:
            for name, t in self.engine.stack.tensors.items():
                self.last[name].copy_(t)
        if good and time.monotonic() - self.saved > self.pause:
            self.save()
        for member in good:
            self.progress(member, member.history[-1])

    def _record(self, place: int, means: Sequence[float], watched: Sequence[float] | None) -> Record:
        reconstruction, kl = means
        record = {
            "epoch": self.passed,
            "elbo": reconstruction - kl,
            "reconstruction": reconstruction,
            "kl": kl,
            "c": self.curvatures[place],
            "prior_scale": self.prior_scales[place],
        }
        if watched is None:
            return record
        reconstruction, kl = watched
        return record | {
            "validation_elbo": reconstruction - kl,
            "validation_reconstruction": reconstruction,
            "validation_kl": kl,
        }

    def _judge(self, place: int, record: Record) -> None:
        """Early stopping, and the end."""
        member, tensors = self.active[place], self.engine.stack.tensors
        if self.best and record["validation_elbo"] > member.best:
            member.best, member.best_epoch = record["validation_elbo"], self.passed
            for name, t in tensors.items():
                self.best[name][place] = t[place]
        if member.gives_up(self.passed):
            member.take({name: t[place] for name, t in self.best.items()})

    def _fail(self, place: int, step: int, what: str, where: str) -> None:
        member, checkpoint = self.active[place], self.checkpoint
        kept = (
            f"the last good checkpoint is {checkpoint.shown} of the run"
            if checkpoint is not None and checkpoint.path.exists()
            else "there is no checkpoint yet"
        )
        member.failure = (
            f"{what} at step {step} (epoch {self.passed}): {where}; {kept}; "
            "lower the learning rate or look for extreme values in the data"
        )
        member.take({name: t[place] for name, t in self.last.items()})
        if len(self.members) > 1:
            self.warn(f"{member.name} stopped and keeps the weights of its last good epoch: {member.failure}")

    def _keep(self) -> None:
        """Drop models that are done, once they are half of the stack: what they compute is wasted."""
        going = [i for i, member in enumerate(self.active) if not member.finished]
        if not going:
            self.active = []
        elif 2 * len(going) <= len(self.active):
            self.engine = self.engine.keep(going)
            self.active = [self.active[i] for i in going]
            self.best = {name: t[going] for name, t in self.best.items()}
            self._begin()

    # --- files ------------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write the checkpoint: all that is needed to go on as if nothing had happened."""
        if self.checkpoint is None:
            return
        began = time.monotonic()
        tensors: Tensors = {}
        for name, _ in self.members[0].model.named_parameters():
            tensors[f"model.{name}"] = torch.stack([m.model.get_parameter(name).detach() for m in self.members])
        if self.active:
            tensors |= {f"best.{name}": t for name, t in self.best.items()}
            for name, (first, second) in self.engine.moments.items():
                tensors |= {f"first.{name}": first, f"second.{name}": second}
        for key in {key: None for member in self.members for record in member.history for key in record}:
            rows = [[record.get(key, math.nan) for record in member.history] for member in self.members]
            longest = max(map(len, rows))
            padded = [row + [math.nan] * (longest - len(row)) for row in rows]
            tensors[f"history.{key}"] = torch.tensor(padded, dtype=torch.float64)
        counters = {
            "places": list(self.checkpoint.places),
            "configs": [member.config.flat() for member in self.members],
            "data": [dict(member.data) for member in self.members],
            "passed": self.passed,
            "step": self.step,
            "active": [self.members.index(member) for member in self.active],
            "members": [
                {
                    "epochs": len(member.history),
                    "best": repr(member.best),
                    "best_epoch": member.best_epoch,
                    "failure": member.failure,
                    "finished": member.finished,
                }
                for member in self.members
            ],
        }
        watched = self.checkpoint.watched
        if watched is not None and self.members[watched].history:
            write_records(self.checkpoint.metrics, self.members[watched].history)
        write_tensors(self.checkpoint.path, tensors, {"state": json.dumps(counters)})
        self.saved = time.monotonic()
        self.pause = max(_CHECKPOINT_EVERY, (self.saved - began) / _CHECKPOINT_SHARE)

    def _require_same(self, configs: Sequence[dict[str, Any]], data: Sequence[dict[str, str]]) -> None:
        """A run may be given more epochs; all else must be as it was."""
        for member, known, marks in zip(self.members, configs, data, strict=True):
            own, known = member.config.flat(), {**ADDED, **known}
            other = [name for name in own if name != "epochs" and own[name] != known.get(name)]
            if other:
                raise ValueError(f"{other[0]} was {known.get(other[0])}, not {own[other[0]]}")
            other = [name for name in member.data if member.data[name] != marks.get(name)]
            if other:
                raise ValueError(f"other data: not the {other[0]} that {member.name} was begun with")
        if len({member.config.epochs for member in self.members}) > 1:
            raise ValueError("models that were trained together must be given the same epochs")

    def _load(self, checkpoint: Checkpoint) -> Tensors:
        # Histories of unequal length are filled up with NaN, and the moments of a model that failed may be anything.
        moments = ("first.", "second.")
        tensors, metadata = read_tensors(checkpoint.path, gaps=("history.", *moments))
        with fitting(checkpoint.folder):
            counters = json.loads(metadata["state"])
            good = [k for k, i in enumerate(counters["active"]) if counters["members"][i]["failure"] is None]
            own = {name: t[good] for name, t in tensors.items() if name.startswith(moments)}
        require_finite_tensors(checkpoint.path, own)
        with fitting(checkpoint.folder):
            self._require_same(counters["configs"], counters["data"])
            keys = {name.removeprefix("history."): t for name, t in tensors.items() if name.startswith("history.")}
            for i, (member, known) in enumerate(zip(self.members, counters["members"], strict=True)):
                with torch.no_grad():
                    for name, parameter in member.model.named_parameters():
                        parameter.copy_(tensors[f"model.{name}"][i])
                epochs = int(known["epochs"])
                member.history = [_plain({k: t[i, e].item() for k, t in keys.items()}) for e in range(epochs)]
                member.best, member.best_epoch = float(known["best"]), int(known["best_epoch"])
                member.failure, member.finished = known["failure"], bool(known["finished"])
            self.passed, self.step = int(counters["passed"]), int(counters["step"])
            self.active = [self.members[i] for i in counters["active"]]
            device = self.members[0].model.device
            best = [name for name in tensors if name.startswith("best.")]
            self.best = {name.removeprefix("best."): tensors[name].to(device) for name in best}
        if self.passed > (asked := self.members[0].config.epochs or 0):
            raise CurvaeError(
                f"{checkpoint.path} was trained for {self.passed} epochs and {asked} are asked for; ask for at least "
                f"{self.passed} epochs, or start again in another folder"
            )
        return tensors


def _plain(record: dict[str, float]) -> Record:
    """A record as it was: the number of the epoch is whole."""
    return {key: int(value) if key == "epoch" else value for key, value in record.items()}
