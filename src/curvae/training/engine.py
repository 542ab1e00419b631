"""Steps of many models at once, or of one: an epoch over their data, the loss, the optimiser."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..models import VAE, Batch, MapTerms, Stack, Terms
from ..models.stack import Stackable
from ..settings import rounds
from .adam import Adam, Fall, Pace
from .config import Config, Settings
from .fitted import Record
from .objectives import figures, figures_by_name, losses
from .sources import Stacked

__all__ = [
    "WINDOW",
    "BatchEngine",
    "Engine",
    "EpochResult",
    "Failure",
    "figures",
    "figures_by_name",
    "losses",
]

Model = TypeVar("Model", bound=Stackable)
Kind = TypeVar("Kind", bound=Settings)

WINDOW = 1 << 21
"""numbers of noise that are made at once for a model, unless a batch takes more"""

_WATCHED = 512  # validation rows at once, at least
_SHARED = 1 << 26  # multiplications of rows by weights in a step from which on threads share them


@dataclass(frozen=True)
class Failure:
    """A loss that was not a number."""

    step: int
    """from 1, within the epoch"""
    what: str
    where: str


@dataclass
class EpochResult:
    """What an epoch gave, by the place of a model in the stack."""

    means: Tensor
    """mean figures of every model, (models, 2 or 3), float64 on the CPU: reconstruction, divergence and, where the map
    is held to neighbourhoods, by how much it misses them, in nats"""
    failures: dict[int, Failure] = field(default_factory=dict)


class Engine(ABC, Generic[Model, Kind]):
    """A stack of models with its optimiser: what all kinds of models have in common. Their data are a matter of the
    descendants.

    Arguments:
        models: of one architecture.
        configs: of these models; what is not a number of its own (seed, curvature, prior scale, learning rate, beta)
            they have in common.
    """

    def __init__(self, models: Sequence[Model], configs: Sequence[Kind]) -> None:
        self.stack, self.configs, self.config = Stack(models), list(configs), configs[0]
        self.step = 0
        rates, config = [config.learning_rate for config in configs], self.config
        stack = self.stack
        falls = [Fall(self.total, config.cooldown * self.total)] * len(configs) if config.cooldown else []
        paces = dict.fromkeys(stack.encoder_weights, Pace(decay=config.encoder_decay))
        paces |= dict.fromkeys(stack.noise_parameters, Pace(config.noise_pace))
        self.optimiser = Adam(stack.tensors, stack.leaves, rates, config.adam_beta2, paces, falls)

    @property
    @abstractmethod
    def total(self) -> int:
        """Steps of the whole training."""

    def early_fall(self, best_epoch: int) -> Fall | None:
        """How the learning rate falls from here on, if it has not begun to: as if the best epoch had been the last
        before it fell."""
        cooldown, per_epoch = self.config.cooldown, self.total / max(1, self.config.epochs or 1)
        if self.step >= (1.0 - cooldown) * self.total:
            return None
        epochs = max(1, math.ceil(best_epoch * cooldown / (1.0 - cooldown)))
        span = min(epochs * per_epoch, self.total - self.step)
        return Fall(self.step + span, span)

    @property
    def threads(self) -> int | None:
        """How many threads pay, at most; None for as many as there are."""
        return None

    def __len__(self) -> int:
        return len(self.stack)

    @property
    def moments(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Of the optimiser, by the name of a parameter."""
        return self.optimiser.moments

    def load(self, moments: dict[str, tuple[Tensor, Tensor]], step: int) -> None:
        """Set the optimiser's state, after `step` steps."""
        self.step = step
        self.optimiser.load(moments, step)

    @abstractmethod
    def _subset(self, places: list[int]) -> Self:
        """A fresh engine of some of the models, with their data."""

    def keep(self, places: Sequence[int]) -> Self:
        """An engine that goes on with some of the models."""
        index = list(places)
        new = self._subset(index)
        new.load({name: (a[index], b[index]) for name, (a, b) in self.moments.items()}, self.step)
        return new

    @abstractmethod
    def epoch(self, epoch: int) -> EpochResult:
        """One pass over the training data, or a part of one."""

    def validate(self) -> Tensor | None:
        """Mean figures of data held out, as of `EpochResult`, if there are any."""
        return None

    def watched_figures(self, values: Sequence[float]) -> Record:
        """What `validate` found for a model, as its record shows it."""
        return {f"validation_{name}": value for name, value in figures_by_name(values).items()}

    def _weights(self, dims: int) -> Tensor | float:
        """β of every model, to be multiplied with figures that have so many dimensions after the models'."""
        beta = [config.divergence_weight for config in self.configs]
        if len(set(beta)) == 1:
            return beta[0]
        return torch.tensor(beta, dtype=torch.float64, device=self.stack.device).view(-1, *[1] * dims)

    def _learn(self, loss: Tensor, step: int, failures: dict[int, Failure]) -> None:
        """One step down the losses of all models, unless each is lost."""
        stack = self.stack
        found = torch.autograd.grad(loss.sum() if loss.dim() else loss, list(stack.leaves.values()))
        self._follow(loss.reshape(-1).tolist(), dict(zip(stack.leaves, found, strict=True)), step, failures)

    def _follow(self, loss: list[float], gradients: dict[str, Tensor], step: int, failures: dict[int, Failure]) -> None:
        """One step down these gradients, unless each of the losses is lost."""
        self.step += 1
        self._check(loss, step, gradients, failures)
        if len(failures) < len(self.stack):
            self._descend(gradients)

    def _descend(self, gradients: dict[str, Tensor]) -> None:
        self.optimiser.anneal()
        self.optimiser.step(gradients)

    def _check(self, loss: list[float], step: int, gradients: dict[str, Tensor], failures: dict[int, Failure]) -> None:
        """Note the models whose loss is not a number, and why."""
        for i, value in enumerate(loss):
            if math.isfinite(value) or i in failures:
                continue
            failures[i] = Failure(step, f"the loss became {value}", self.where(i, gradients))

    def where(self, place: int, gradients: Mapping[str, Tensor] | None = None) -> str:
        """Which parameter of a model is not finite, or has a gradient that is not."""
        for tensors in (self.stack.tensors, gradients or {}):
            for name, t in tensors.items():
                if not bool(t.reshape(len(self), -1)[place].isfinite().all()):
                    return f"parameter {name} is not finite"
        return "all parameters are finite"

    def finite(self) -> list[bool]:
        """Whether all parameters of each model are finite."""
        every = [t.reshape(len(self), -1).isfinite().all(1) for t in self.stack.tensors.values()]
        return torch.stack(every).all(0).tolist()

    def _generators(self, epoch: int | None, *kind: int) -> list[torch.Generator]:
        """Where the randomness of each model comes from in an epoch, or with None in the validation; equal seeds share
        it. That of another `kind` is independent of it.
        """
        made = {seed: self._generator(seed, epoch, *kind) for seed in {config.seed for config in self.configs}}
        return [made[config.seed] for config in self.configs]

    def _generator(self, seed: int, epoch: int | None, *kind: int) -> torch.Generator:
        key = [seed, 0 if epoch is None else epoch + 1, *kind]
        entropy = np.random.SeedSequence(key).generate_state(1, np.uint64)[0]
        return torch.Generator(self.stack.device).manual_seed(int(entropy >> 1))


def _counting(rows: Batch) -> Tensor | float:
    """By how much each row counts."""
    return 1.0 if rows.weight is None else rows.weight


class BatchEngine(Engine[VAE, Config]):
    """A stack of models with its optimiser and rows: what one epoch and one validation are made of.

    Model k sees its own rows in its own order with its own noise, all from (its seed, epoch) alone; where epochs are
    parts of a pass, the order from (its seed, pass). Noise is made some batches at a time, as many for a model in a
    stack as for one alone.

    Arguments:
        models, configs: as of `Engine`.
        train, validation: rows of every model.
    """

    def __init__(
        self, models: Sequence[VAE], configs: Sequence[Config], train: Stacked, validation: Stacked | None = None
    ) -> None:
        self.train = train
        self.validation = validation if validation is not None and len(validation) else None
        watched = 0 if self.validation is None else len(self.validation)
        # Those of a problem are settled, and stay as they are.
        super().__init__(models, [config.lasting(len(train), watched) for config in configs])
        self.beta = self._weights(2)
        pulls = [config.neighbour_weights for config in configs]
        self.pull = torch.tensor(pulls, dtype=torch.float64, device=self.stack.device) if pulls[0] else None
        self._watch: list[Tensor] = []

    @property
    def _pass(self) -> int:
        """Steps of a pass over the data."""
        return math.ceil(len(self.train) / self.config.batch_size)

    @property
    def steps(self) -> int:
        """Steps of an epoch; the last of a pass may have fewer."""
        return rounds(self._pass, self.config.epoch_steps)[1]

    @property
    def total(self) -> int:
        count, steps = rounds(self._pass, self.config.epoch_steps)
        passes, parts = divmod(self.config.epochs or 0, count)
        return passes * self._pass + parts * steps

    def _drawn(self, epoch: int) -> tuple[list[torch.Generator], list[torch.Generator], slice]:
        """Where the order and the noise of an epoch come from, and which rows of the order are its own."""
        generators, (count, steps) = self._generators(epoch), rounds(self._pass, self.config.epoch_steps)
        if count == 1:
            return generators, generators, slice(0, len(self.train))  # the order is taken first, then the noise
        passed, part = divmod(epoch, count)
        size = steps * self.config.batch_size
        return self._generators(passed, 1), generators, slice(part * size, min((part + 1) * size, len(self.train)))

    @property
    def threads(self) -> int | None:
        """One, if a step has little to multiply: threads then spend more time waiting for each other."""
        return self._threads(min(self.config.batch_size, len(self.train)))

    def _threads(self, rows: int) -> int | None:
        """The same for steps of so many rows."""
        weights = sum(leaf.numel() for leaf in self.stack.leaves.values())
        return 1 if rows * self.config.samples * weights < _SHARED else None

    @property
    def watched_size(self) -> int:
        """Validation rows at once."""
        return max(self.config.batch_size, _WATCHED)

    def _subset(self, places: list[int]) -> Self:
        return type(self)(
            [self.stack.models[i] for i in places],
            [self.configs[i] for i in places],
            self.train.keep(places),
            None if self.validation is None else self.validation.keep(places),
        )

    # --- noise ------------------------------------------------------------------------------------------------------

    def window(self, rows: int, size: int) -> int:
        """Rows whose noise is made at once: all, or as many whole batches as the window holds."""
        batch = self.config.samples * size * self.stack.models[0].dim
        return min(rows, size * max(1, WINDOW // batch))

    def windows(self, generators: Sequence[torch.Generator], rows: int, size: int) -> Iterator[Tensor]:
        """Noise for so many rows of each model in batches of `size`, a window (models, k, rows, d) at a time."""
        model, samples, most = self.stack.models[0], self.config.samples, self.window(rows, size)
        for start in range(0, rows, most):
            count = min(most, rows - start)
            made = {one: model.noise(count, samples, one) for one in dict.fromkeys(generators)}
            yield torch.stack([made[one] for one in generators])

    def watched(self, rows: int, size: int) -> Iterator[Tensor]:
        """The same for validation rows, equal in every epoch; a single window is kept."""
        if self.window(rows, size) < rows:
            return self.windows(self._generators(None), rows, size)
        self._watch = self._watch or list(self.windows(self._generators(None), rows, size))
        return iter(self._watch)

    # --- an epoch ---------------------------------------------------------------------------------------------------

    def epoch(self, epoch: int) -> EpochResult:
        size, stack = self.config.batch_size, self.stack
        orders, generators, own = self._drawn(epoch)
        count = own.stop - own.start
        batches = self.train.batches(orders, size, own)  # takes the order from the generators, before the noise
        noises = (noise for window in self.windows(generators, count, size) for noise in window.split(size, 2))
        totals = self._no_figures()
        failures: dict[int, Failure] = {}
        self._set_training(True)
        for step, (rows, noise) in enumerate(zip(batches, noises, strict=True), 1):
            found = self._step(rows, noise, step, failures)
            if len(failures) == len(stack):
                break
            totals += found
        return EpochResult(self._total(totals).T.cpu() / count, failures)

    def _set_training(self, training: bool) -> None:
        """Whether what the models compute next is for training, with dropout, or not."""
        for model in self.stack.models:
            model.train(training)

    def _step(self, rows: Batch, noise: Tensor, step: int, failures: dict[int, Failure]) -> Tensor:
        """Learn from a batch; returns the sums of its figures."""
        loss, found = self._loss(rows, noise)
        self._learn(loss, step, failures)
        return found

    def _loss(self, rows: Batch, noise: Tensor) -> tuple[Tensor, Tensor]:
        terms = self._step_terms(rows, noise)
        loss = losses(terms, self.config, self.beta, rows.weight, self.pull)
        return loss, figures(terms, self.pull, _counting(rows))

    def _total(self, figures: Tensor) -> Tensor:
        """Figures of all rows, from those of the rows that were seen here."""
        return figures

    def _no_figures(self) -> Tensor:
        rows = 2 if self.pull is None else 3
        return torch.zeros(rows, len(self), dtype=torch.float64, device=self.stack.device)

    def _step_terms(self, rows: Batch, noise: Tensor) -> Terms | MapTerms:
        """Of the stack; without its dimension for a model alone, which would cost it some percent of the time."""
        if len(self) > 1:
            return self.stack.terms(rows, noise)
        return self.stack.models[0].terms(rows.map(lambda part: part[0]), noise[0])

    def validate(self) -> Tensor | None:
        """Mean figures of the validation rows, (models, 2), with the same noise every time."""
        if self.validation is None:
            return None
        count, size = len(self.validation), self.watched_size
        noises = (noise for window in self.watched(count, size) for noise in window.split(size, 2))
        totals = self._no_figures()[:2]
        self._set_training(False)
        with torch.no_grad():
            for rows, noise in zip(self.validation.batches(None, size), noises, strict=True):
                totals += self._judged(rows, noise)
        return self._total(totals).T.cpu() / count

    def _judged(self, rows: Batch, noise: Tensor) -> Tensor:
        """Sums of the figures of validation rows."""
        return figures(self._step_terms(rows, noise), self.pull, _counting(rows))
