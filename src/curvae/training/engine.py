"""Steps of many models at once, or of one: an epoch over their data, the objective, the optimiser."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Generic, Self, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.optim.adam import adam

from ..models import VAE, Batch, MapTerms, Stack, Terms
from ..models.stack import Stackable
from ..settings import epochs_per_pass
from .config import Config, Settings
from .fitted import Record
from .row_sources import Stacked

__all__ = [
    "WINDOW",
    "Adam",
    "BatchEngine",
    "Engine",
    "EpochResult",
    "Failure",
    "Fall",
    "Pace",
    "figures",
    "figures_by_name",
    "losses",
]


# From the terms of a batch to the loss of every model, and to the figures that records show.


def losses(
    terms: Terms | MapTerms,
    config: Config,
    beta: Tensor | float,
    weight: Tensor | None = None,
    pull: Tensor | None = None,
    kept: Tensor | None = None,
) -> Tensor:
    """The loss of every model, (models,): the mean over its rows, each multiplied by its weight.

    Arguments:
        terms: of a batch.
        config: says which objective.
        beta: weight of the divergence.
        weight: by which rows count, (rows,) or (models, rows), in the mean over all rows of the training 1.
        pull: weights of neighbourhoods, (models, 1 or 2).
        kept: 1 for rows, and 0 for what fills up a batch.
    """
    if pull is not None and isinstance(terms, MapTerms):
        missed = _mean(_missed(terms, pull), weight, kept)
        return losses(Terms(*terms[:2]), config, beta, weight, kept=kept) + missed
    reconstruction, kl = terms[0], terms[1]
    if config.objective == "iwae":
        rows = math.log(kl.shape[-2]) - torch.logsumexp(reconstruction - kl, -2)
    elif weight is None and kept is None:
        return (beta * kl - reconstruction).mean((-2, -1))
    else:
        rows = (beta * kl - reconstruction).mean(-2)
    return _mean(rows, weight, kept)


def _mean(rows: Tensor, weight: Tensor | None, kept: Tensor | None) -> Tensor:
    rows = rows if weight is None else rows * weight
    return rows.mean(-1) if kept is None else (rows * kept).sum(-1) / kept.sum(-1)


def _missed(terms: MapTerms, pull: Tensor) -> Tensor:
    """By how much every row misses its neighbourhood, in nats, (…, rows)."""
    return (pull.unsqueeze(-1) * terms.neighbours).sum(-2)


def figures_by_name(means: Sequence[float]) -> Record:
    """What an epoch gave, by name."""
    reconstruction, kl, *missed = means
    found = {"elbo": reconstruction - kl, "reconstruction": reconstruction, "kl": kl}
    return {**found, "neighbours": missed[0]} if missed else found


def figures(terms: Terms | MapTerms, pull: Tensor | None, kept: Tensor | float = 1.0) -> Tensor:
    """Sums over the rows of what records show, (2 or 3, models); rows count by `kept`."""
    found = [term.detach().mean(-2, dtype=torch.float64) for term in terms[:2]]
    if pull is not None and isinstance(terms, MapTerms):
        found.append(_missed(terms, pull).detach().double().view_as(found[0]))
    return (torch.stack(found) * kept).sum(-1).view(len(found), -1)


# Adam for the parameters of a stack, with one learning rate a model.

_BETA1, _EPS = 0.9, 1e-8  # decay of the mean of gradients, and what is added to a root of squares


@dataclass(frozen=True)
class Pace:
    """How some parameters learn: with a multiple of the learning rate, and by which multiple of that they shrink in a
    step."""

    factor: float = 1.0
    decay: float = 0.0


@dataclass
class _Group:
    """Neighbouring models of one rate: their part of parameters of one pace, with moments and counts of steps."""

    models: slice
    names: list[str]
    start: float
    rate: float | Tensor
    decay: float
    parameters: list[Tensor]
    first: list[Tensor]
    second: list[Tensor]
    counts: list[Tensor]


@dataclass(frozen=True)
class Fall:
    """When the learning rate of a model falls: in a straight line to 0 at step `end`, over so many steps."""

    end: float
    span: float


class Adam:
    """Parameters are cut where the rate changes, and nowhere when it does not.

    Models whose rates fall at different times take a whole step together, of which each keeps its share.

    The functional form of `torch.optim.AdamW`: the class imports the whole compiler, some seconds, when it is made.

    Arguments:
        tensors: the parameters of the stack by name, (models, …).
        leaves: the same memory, as the models hold it.
        rates: learning rate of every model.
        beta2: decay of the mean of squared gradients.
        paces: how some parameters learn, by name; the others as `Pace()` says.
        falls: when the rate of every model falls; with none of them, rates stay as they are.

    Attributes:
        moments: mean of gradients and of their squares, by name.
    """

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        leaves: Mapping[str, Tensor],
        rates: Sequence[float],
        beta2: float,
        paces: Mapping[str, Pace],
        falls: Sequence[Fall] = (),
    ) -> None:
        self._tensors, self._falls = tensors, list(falls)
        self.moments = {name: (torch.zeros_like(t), torch.zeros_like(t)) for name, t in tensors.items()}
        self.beta2, self._shapes = beta2, {name: t.shape for name, t in tensors.items()}
        device = next(iter(tensors.values())).device
        self._fused = device.type in ("cpu", "cuda")
        cuda = device.type == "cuda"
        # What a captured step reads lies where it lies.
        self._ends, self._spans = (
            torch.tensor([getattr(fall, name) for fall in falls], device=device) if cuda else None
            for name in ("end", "span")
        )
        self._shares = torch.ones(len(rates), device=device) if cuda and falls and len(rates) > 1 else None
        self._groups: list[_Group] = []
        alike: dict[Pace, list[str]] = {}
        for name in leaves:
            alike.setdefault(paces.get(name, Pace()), []).append(name)
        end = 0
        for rate, run in groupby(rates):
            part = slice(end, end + len(list(run)))
            end = part.stop
            whole = part == slice(0, len(rates))
            for pace, names in alike.items():
                own = [leaves[name] if whole else leaves[name].detach()[part] for name in names]
                first, second = (
                    [self.moments[name][side][part].view(p.shape) for name, p in zip(names, own, strict=True)]
                    for side in (0, 1)
                )
                counts = [torch.zeros((), dtype=torch.float32, device=p.device) for p in own]
                start = rate * pace.factor
                lies = torch.tensor(start, device=device) if falls and cuda else start
                self._groups.append(_Group(part, names, start, lies, pace.decay, own, first, second, counts))

    @property
    def rates(self) -> list[float]:
        """Of the next step, one for each run of models and parameters that share it."""
        return [float(group.rate) for group in self._groups]

    def load(self, moments: Mapping[str, tuple[Tensor, Tensor]], step: int) -> None:
        """Set the state, after `step` steps."""
        for name, pair in moments.items():
            for own, other in zip(self.moments[name], pair, strict=True):
                own.copy_(other)
        self.set_step(step)

    def set_step(self, step: int) -> None:
        """Count on from here."""
        for group in self._groups:
            for count in group.counts:
                count.fill_(float(step))

    def set_fall(self, model: int, fall: Fall) -> None:
        """Let the rate of a model fall from now on."""
        self._falls[model] = fall
        if self._ends is not None and self._spans is not None:
            self._ends[model], self._spans[model] = fall.end, fall.span

    def anneal(self) -> None:
        """Set the rates of the next step."""
        if not self._falls:
            return
        done = self._groups[0].counts[0]
        if self._ends is not None and self._spans is not None:
            shares = ((self._ends - done) / self._spans).clamp(0.0, 1.0)
            if self._shares is not None:
                self._shares.copy_(shares)
                return
            for group in self._groups:
                group.rate.copy_(shares[0] * group.start)  # type: ignore[union-attr]
            return
        each = [min(1.0, max(0.0, (fall.end - done.item()) / fall.span)) for fall in self._falls]
        alike = len(set(each)) == 1
        self._shares = None if alike else torch.tensor(each)
        for group in self._groups:
            group.rate = (each[0] if alike else 1.0) * group.start

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor]) -> None:
        """One step down the gradients, which have the shapes of the leaves or of the tensors."""
        shares = self._shares
        before = {} if shares is None else {name: t.clone() for name, t in self._tensors.items()}
        for group in self._groups:
            adam(
                group.parameters,
                [
                    self._like(gradients[name], parameter, name, group.models)
                    for name, parameter in zip(group.names, group.parameters, strict=True)
                ],
                group.first,
                group.second,
                [],
                group.counts,
                fused=self._fused,
                amsgrad=False,
                beta1=_BETA1,
                beta2=self.beta2,
                lr=group.rate,
                weight_decay=group.decay,
                decoupled_weight_decay=True,
                eps=_EPS,
                maximize=False,
            )
        for name, old in before.items():
            weight = shares.view(-1, *[1] * (old.dim() - 1)).to(old.dtype)  # type: ignore[union-attr]
            self._tensors[name].copy_(torch.lerp(old, self._tensors[name], weight))

    def _like(self, gradient: Tensor, parameter: Tensor, name: str, models: slice) -> Tensor:
        """The fused optimiser walks through memory: strides must be those of the parameter."""
        if (gradient.shape, gradient.stride()) == (parameter.shape, parameter.stride()):
            return gradient
        return gradient.reshape(-1).view(self._shapes[name])[models].view_as(parameter)


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
        models, configs: as of `Engine`; the configurations have their defaults resolved.
        train, validation: rows of every model.
    """

    def __init__(
        self, models: Sequence[VAE], configs: Sequence[Config], train: Stacked, validation: Stacked | None = None
    ) -> None:
        self.train = train
        self.validation = validation if validation is not None and len(validation) else None
        super().__init__(models, configs)
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
        return epochs_per_pass(self._pass, self.config.epoch_steps)[1]

    @property
    def total(self) -> int:
        count, steps = epochs_per_pass(self._pass, self.config.epoch_steps)
        passes, parts = divmod(self.config.epochs or 0, count)
        return passes * self._pass + parts * steps

    def _drawn(self, epoch: int) -> tuple[list[torch.Generator], list[torch.Generator], slice]:
        """Where the order and the noise of an epoch come from, and which rows of the order are its own."""
        generators, (count, steps) = self._generators(epoch), epochs_per_pass(self._pass, self.config.epoch_steps)
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
