"""Steps of many models at once, or of one: an epoch over their data, the objective, the optimiser."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Generic, Self, TypeVar

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional as F
from torch.optim.adam import adam
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from ..models import VAE, Batch, MapTerms, Stack, Terms
from ..models.stack import Model, Tensors, trace
from ..settings import epochs_per_pass
from .fitted import Config, Record, Settings
from .rows import EVERY, SINGLE, ModelRows, ProcessGroup, StackedRows

__all__ = [
    "WINDOW",
    "Adam",
    "BatchEngine",
    "CapturedStep",
    "Engine",
    "EpochResult",
    "Failure",
    "Fall",
    "GroupOptions",
    "capture",
    "figures",
    "figures_by_name",
    "losses",
    "padded",
    "prefetch",
    "transfer",
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
    """Compute the loss of every model, (models,): the mean over its rows, each multiplied by its weight.

    Arguments:
        terms: of a batch.
        config: says which objective.
        beta: weight of the divergence.
        weight: by which rows count, (rows,) or (models, rows), in the mean over all rows of the training 1.
        pull: weights of neighbourhoods, (models, 1 or 2).
        kept: 1 for rows, and 0 for what fills up a batch.
    """

    def mean(rows: Tensor) -> Tensor:
        rows = rows if weight is None else rows * weight
        return rows.mean(-1) if kept is None else (rows * kept).sum(-1) / kept.sum(-1)

    missed = None
    if pull is not None and isinstance(terms, MapTerms):
        missed = mean(_missed(terms, pull))
    reconstruction, kl = terms[0], terms[1]
    if config.objective == "iwae":
        loss = mean(math.log(kl.shape[-2]) - torch.logsumexp(reconstruction - kl, -2))
    elif weight is None and kept is None:
        loss = (beta * kl - reconstruction).mean((-2, -1))
    else:
        loss = mean((beta * kl - reconstruction).mean(-2))
    return loss if missed is None else loss + missed


def _missed(terms: MapTerms, pull: Tensor) -> Tensor:
    """By how much every row misses its neighbourhood, in nats, (…, rows)."""
    return (pull.unsqueeze(-1) * terms.neighbours).sum(-2)


def figures_by_name(means: Sequence[float]) -> Record:
    """Name the mean figures of an epoch."""
    reconstruction, kl, *missed = means
    found = {"elbo": reconstruction - kl, "reconstruction": reconstruction, "kl": kl}
    return {**found, "neighbours": missed[0]} if missed else found


def figures(
    terms: Terms | MapTerms, pull: Tensor | None, weight: Tensor | None = None, kept: Tensor | None = None
) -> Tensor:
    """Sum over the rows what records show, (2 or 3, models); arguments as of `losses`."""
    found = [term.detach().mean(-2, dtype=torch.float64) for term in terms[:2]]
    if pull is not None and isinstance(terms, MapTerms):
        found.append(_missed(terms, pull).detach().double().view_as(found[0]))
    sums = torch.stack(found)
    for factor in (kept, weight):
        sums = sums if factor is None else sums * factor
    return sums.sum(-1).view(len(found), -1)


# Adam for the parameters of a stack, with one learning rate a model.

_HOLD, _HELD = 30.0, 0.4  # nats a row opposite to its start is pulled by, half, and for which share of the steps
_BETA1, _EPS = 0.9, 1e-8  # decay of the mean of gradients, and what is added to a root of squares
_LEAST, _SWEPT = 1e-36, 32  # moments below are 0 from then on, looked at every so many steps: _LEAST·_BETA1³² is normal


@dataclass(frozen=True)
class GroupOptions:
    """How a group of parameters learns.

    Arguments:
        factor: by which the learning rate is multiplied.
        decay: by which multiple of that rate they shrink in a step.
    """

    factor: float = 1.0
    decay: float = 0.0


@dataclass
class _Group:
    """Neighbouring models of one rate: their part of parameters with equal options, moments and counts of steps."""

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
        options: how some parameters learn, by name; the others as `GroupOptions()` says.
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
        options: Mapping[str, GroupOptions],
        falls: Sequence[Fall] = (),
    ) -> None:
        self._tensors, self._falls = tensors, list(falls)
        self.moments = {name: (torch.zeros_like(t), torch.zeros_like(t)) for name, t in tensors.items()}
        self.beta2, self._shapes = beta2, {name: t.shape for name, t in tensors.items()}
        device = next(iter(tensors.values())).device
        cuda = device.type == "cuda"
        # What a captured step reads lies where it lies.
        self._ends, self._spans = (
            torch.tensor([getattr(fall, name) for fall in falls], device=device) if cuda else None
            for name in ("end", "span")
        )
        self._shares: Tensor | None = None
        self._kept: dict[str, tuple[Tensor, Tensor]] = {}
        self._groups: list[_Group] = []
        alike: dict[GroupOptions, list[str]] = {}
        for name in leaves:
            alike.setdefault(options.get(name, GroupOptions()), []).append(name)
        end = 0
        for rate, run in groupby(rates):
            part = slice(end, end + len(list(run)))
            end = part.stop
            whole = part == slice(0, len(rates))
            for choice, names in alike.items():
                own = [leaves[name] if whole else leaves[name].detach()[part] for name in names]
                first, second = (
                    [self.moments[name][side][part].view(p.shape) for name, p in zip(names, own, strict=True)]
                    for side in (0, 1)
                )
                counts = [torch.zeros((), dtype=torch.float32, device=p.device) for p in own]
                start = rate * choice.factor
                lies = torch.tensor(start, device=device) if falls and cuda else start
                self._groups.append(_Group(part, names, start, lies, choice.decay, own, first, second, counts))

    @property
    def state(self) -> list[Tensor]:
        """All tensors that a step changes besides the parameters."""
        moments = [moment for pair in self.moments.values() for moment in pair]
        return moments + [count for group in self._groups for count in group.counts]

    def load(self, moments: Mapping[str, tuple[Tensor, Tensor]], step: int) -> None:
        """Set the state, after `step` steps."""
        for name, pair in moments.items():
            for own, other in zip(self.moments[name], pair, strict=True):
                own.copy_(other)
        for group in self._groups:
            for count in group.counts:
                count.fill_(float(step))

    def keep(self, places: Mapping[str, Tensor]) -> None:
        """Let numbers of some parameters stay as they are from now on; masks tell which, by the name of the parameter.

        A mask is broadcast to the parameter of a model.
        """
        self._kept = {name: (mask, self._tensors[name].clone()) for name, mask in places.items()}

    @property
    def falls_together(self) -> bool:
        """Whether the rates of all models fall at the same time; a captured step holds while this is the same."""
        return len(set(self._falls)) < 2

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
            self._shares = None if self.falls_together else shares
            share = shares[0] if self._shares is None else torch.ones_like(shares[0])
            for group in self._groups:
                group.rate.copy_(share * group.start)  # type: ignore[union-attr]
            return
        each = [min(1.0, max(0.0, (fall.end - done.item()) / fall.span)) for fall in self._falls]
        alike = len(set(each)) == 1
        self._shares = None if alike else torch.tensor(each)
        for group in self._groups:
            group.rate = (each[0] if alike else 1.0) * group.start

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor]) -> None:
        """One step down the gradients, which have the shapes of the leaves or of the tensors."""
        shares, done = self._shares, self._groups[0].counts[0]
        if not done.is_cuda and done.item() % _SWEPT == 0:
            # Where gradients are 0, means fade to subnormal numbers, with which processors are many times slower.
            for moment in (moment for pair in self.moments.values() for moment in pair):
                moment.copy_(F.hardshrink(moment, _LEAST))
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
                fused=True,
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
        for name, (mask, old) in self._kept.items():
            self._tensors[name].copy_(torch.where(mask, old, self._tensors[name]))

    def _like(self, gradient: Tensor, parameter: Tensor, name: str, models: slice) -> Tensor:
        """Return a gradient with the strides of its parameter: the fused optimiser walks through memory."""
        if (gradient.shape, gradient.stride()) == (parameter.shape, parameter.stride()):
            return gradient
        return gradient.reshape(-1).view(self._shapes[name])[models].view_as(parameter)


Kind = TypeVar("Kind", bound=Settings)

WINDOW = 1 << 21
"""numbers of noise that are made at once for a model, unless a batch takes more"""

_VALIDATION_ROWS = 512  # validation rows at once, at least
_SHARED = 1 << 26  # multiplications of rows by weights in a step from which on threads share them


@dataclass(frozen=True)
class Failure:
    """A loss that was not a number, in a step of the epoch, which are counted from 1."""

    step: int
    what: str
    where: str


@dataclass
class EpochResult:
    """What an epoch gave, by the place of a model in the stack.

    Arguments:
        means: figures of every model, (models, 2 or 3), float64 on the CPU: reconstruction, divergence and, where the
            map is held to neighbourhoods, by how much it misses them, in nats.
        failures: of models.
    """

    means: Tensor
    failures: dict[int, Failure]


class Engine(ABC, Generic[Model, Kind]):
    """A stack of models with its optimiser: what all kinds of models have in common. Their data are a matter of the
    descendants.

    Arguments:
        models: of one architecture.
        configs: of these models; what is not a number of its own (seed, curvature, prior scale, learning rate, beta)
            they have in common.
        total: steps of the whole training.
        options: how some parameters learn, by name.

    Attributes:
        threads: how many threads pay, at most; None for as many as there are.
    """

    threads: int | None = None

    def __init__(
        self, models: Sequence[Model], configs: Sequence[Kind], total: int, options: Mapping[str, GroupOptions]
    ) -> None:
        self.stack, self.configs, self.config = Stack(models), list(configs), configs[0]
        self.step, self.total = 0, total
        stack, cooldown = self.stack, self.config.cooldown
        rates = [config.learning_rate for config in configs]
        falls = [Fall(total, cooldown * total)] * len(configs) if cooldown else []
        self.optimiser = Adam(stack.tensors, stack.leaves, rates, self.config.adam_beta2, options, falls)

    def early_fall(self, best_epoch: int) -> Fall | None:
        """Say how the learning rate falls from here on, if it has not begun to: as if the best epoch had been the last
        before it fell."""
        cooldown, per_epoch = self.config.cooldown, self.total / max(1, self.config.epochs or 1)
        if self.step >= (1.0 - cooldown) * self.total:
            return None
        epochs = max(1, math.ceil(best_epoch * cooldown / (1.0 - cooldown)))
        span = min(epochs * per_epoch, self.total - self.step)
        return Fall(self.step + span, span)

    def __len__(self) -> int:
        return len(self.stack)

    def load(self, moments: dict[str, tuple[Tensor, Tensor]], step: int) -> None:
        """Set the optimiser's state, after `step` steps."""
        self.step = step
        self.optimiser.load(moments, step)

    @abstractmethod
    def subset(self, places: list[int]) -> Self:
        """Make a fresh engine of some of the models, with their data."""

    def keep(self, places: Sequence[int]) -> Self:
        """Make an engine that continues with some of the models."""
        index = list(places)
        new = self.subset(index)
        new.load({name: (a[index], b[index]) for name, (a, b) in self.optimiser.moments.items()}, self.step)
        return new

    @abstractmethod
    def epoch(self, epoch: int) -> EpochResult:
        """One pass over the training data, or a part of one."""

    @abstractmethod
    def validate(self) -> list[Record]:
        """Compute what records show of data held out, a record a model; none if it is not the time to look at them."""

    def _weights(self, dims: int) -> Tensor | float:
        """β of every model, to be multiplied with figures that have so many dimensions after the models'."""
        beta = [config.divergence_weight for config in self.configs]
        if len(set(beta)) == 1:
            return beta[0]
        return torch.tensor(beta, dtype=torch.float64, device=self.stack.device).view(-1, *[1] * dims)

    def descend(self, gradients: Sequence[Tensor]) -> None:
        """Take a step down the gradients of all models, which are in the order of the parameters of the stack."""
        self.optimiser.anneal()
        self.optimiser.step(dict(zip(self.stack.leaves, gradients, strict=True)))

    def check(self, losses: Tensor, before: int, failures: dict[int, Failure]) -> None:
        """Note the models of which a loss was not finite, and which of their parameters is not.

        Arguments:
            losses: of some steps, (steps, models).
            before: steps of the epoch before these.
            failures: by the place of a model; those that it holds are left as they are.
        """
        for step, values in enumerate(losses.tolist(), before + 1):
            for i, value in enumerate(values):
                if not math.isfinite(value) and i not in failures:
                    failures[i] = Failure(step, f"the loss became {value}", self.where(i))

    def where(self, place: int) -> str:
        """Say which parameter of a model is not finite."""
        for name, t in self.stack.tensors.items():
            if not bool(t.reshape(len(self), -1)[place].isfinite().all()):
                return f"parameter {name} is not finite"
        return "all parameters are finite"

    def finite(self) -> list[bool]:
        """Return whether all parameters of each model are finite."""
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


class BatchEngine(Engine[VAE, Config]):
    """A stack of models with its optimiser and rows: what one epoch and one validation are made of.

    Model k sees its own rows in its own order with its own noise, all from (its seed, epoch) alone; where epochs are
    parts of a pass, the order from (its seed, pass). Noise is made some batches at a time, as many for a model in a
    stack as for one alone.

    Several processes may train one model: each has its share of every batch, and all take the same steps. The loss of a
    process is the sum over its rows divided by the number of rows of the whole batch; it and its gradients are summed
    over the processes. Each makes the noise of the whole batch, a few numbers a row, and takes that of its own rows.

    Arguments:
        models, configs: as of `Engine`; the configurations have their defaults resolved.
        train, validation: rows of every model.
        group: processes that train a single model; `index` of a batch then has the places of its rows in the batch of
            all processes.
        captured: whether steps are captured as CUDA graphs, which pays for many steps.

    Attributes:
        steps: of an epoch; the last of a pass may have fewer.
    """

    def __init__(
        self,
        models: Sequence[VAE],
        configs: Sequence[Config],
        train: ModelRows,
        validation: ModelRows | None = None,
        *,
        group: ProcessGroup = SINGLE,
        captured: bool = False,
    ) -> None:
        self.train, self.group, self.captured = train, group, captured
        self.validation = validation if validation is not None and len(validation) else None
        config, pass_steps = configs[0], math.ceil(len(train) / configs[0].batch_size)
        self._parts, self.steps = epochs_per_pass(pass_steps, config.epoch_steps)
        passes, parts = divmod(config.epochs or 0, self._parts)
        named = dict(models[0].named_parameters())
        weights = [name for name, p in named.items() if name.startswith("encoder.") and p.dim() > 1]
        noise = [name for name in named if name.startswith("likelihood.") and name.endswith("spread")]
        options = dict.fromkeys(weights, GroupOptions(decay=config.encoder_decay))
        options |= dict.fromkeys(noise, GroupOptions(config.noise_rate))
        super().__init__(models, configs, passes * pass_steps + parts * self.steps, options)
        # Where a step has little to multiply, threads spend more time waiting for each other.
        rows = min(config.batch_size, len(train)) // group.share.size
        size = sum(leaf.numel() for leaf in self.stack.leaves.values())
        self.threads = 1 if rows * config.samples * size < _SHARED else None
        self.beta = self._weights(2)
        self._started = train.started
        pulls = [(*config.neighbour_weights, *([_HOLD] if self._started else [])) for config in configs]
        self.pull = torch.tensor(pulls, dtype=torch.float64, device=self.stack.device) if pulls[0] else None
        self._captured: dict[tuple[bool, bool], CapturedStep] = {}

    def _drawn(self, epoch: int) -> tuple[list[torch.Generator], list[torch.Generator], slice]:
        """Where the order and the noise of an epoch come from, and which rows of the order are its own."""
        generators = self._generators(epoch)
        if self._parts == 1:
            return generators, generators, slice(0, len(self.train))  # the order is taken first, then the noise
        passed, part = divmod(epoch, self._parts)
        size = self.steps * self.config.batch_size
        return self._generators(passed, 1), generators, slice(part * size, min((part + 1) * size, len(self.train)))

    def subset(self, places: list[int]) -> Self:
        return type(self)(
            [self.stack.models[i] for i in places],
            [self.configs[i] for i in places],
            self.train.keep(places),
            None if self.validation is None else self.validation.keep(places),
            group=self.group,
            captured=self.captured,
        )

    # --- noise ------------------------------------------------------------------------------------------------------

    def windows(self, generators: Sequence[torch.Generator], rows: int, size: int) -> Iterator[Tensor]:
        """Make noise for so many rows of each model in batches of `size`, a window (models, k, rows, d) at a time.

        A window has all rows, or as many whole batches as `WINDOW` allows.
        """
        model, samples = self.stack.models[0], self.config.samples
        most = min(rows, size * max(1, WINDOW // (samples * size * model.noise_dim)))
        for start in range(0, rows, most):
            count = min(most, rows - start)
            made = {one: model.noise(count, samples, one) for one in dict.fromkeys(generators)}
            yield torch.stack([made[one] for one in generators])

    # --- a step -----------------------------------------------------------------------------------------------------

    def terms(
        self, rows: Batch, noise: Tensor, parameters: Tensors | None = None, buffers: Tensors | None = None
    ) -> Terms | MapTerms:
        """Compute the terms of a batch, (models, rows, …), with noise, (models, k, rows, d).

        With `parameters` and `buffers` in place of those of the stack, they are a pure function of these.
        """
        if parameters is not None:
            return self.stack.pure("terms", parameters, buffers or {}, rows, noise)
        if len(self) > 1:
            return self.stack.terms(rows, noise)
        # The dimension of the stack would cost a model alone some percent of the time.
        return self.stack.models[0].terms(rows.map(lambda part: part[0]), noise[0])

    def differentiate(
        self,
        rows: Batch,
        noise: Tensor,
        kept: Tensor | None = None,
        parameters: Tensors | None = None,
        buffers: Tensors | None = None,
        fraction: float | None = None,
    ) -> tuple[Sequence[Tensor], Tensor, Tensor]:
        """Compute the gradients of the losses of a batch, the losses, and the sums of the figures.

        Arguments:
            rows, noise, parameters, buffers: see `terms`.
            kept: 1 for rows, and 0 for what fills up a batch.
            fraction: of the whole batch, which these rows are.
        """
        terms = self.terms(rows, noise, parameters, buffers)
        loss = losses(terms, self.config, self.beta, rows.weight, self.pull, kept)
        loss = loss if fraction is None else loss * fraction
        leaves = self.stack.leaves
        leaves = leaves if parameters is None else {name: parameters[name] for name in leaves}
        gradients = torch.autograd.grad(loss.sum() if loss.dim() else loss, list(leaves.values()))
        return gradients, loss.detach(), figures(terms, self.pull, rows.weight, kept)

    def differentiate_share(self, rows: Batch, noise: Tensor) -> tuple[Sequence[Tensor], Tensor, Tensor]:
        """Compute the same from the rows of this process, with gradients and losses summed over all processes."""
        leaves, count = list(self.stack.leaves.values()), noise.shape[2]
        rows, noise = self._own_rows(rows, noise)
        if own := noise.shape[2]:
            gradients, loss, sums = self.differentiate(rows, noise, fraction=own / count)
        else:
            gradients, loss, sums = [torch.zeros_like(leaf) for leaf in leaves], leaves[0].new_zeros(1), self._zeros()
        flat = torch.cat([*(part.reshape(-1) for part in gradients), loss.reshape(1).to(leaves[0].dtype)])
        *parts, loss = self.group.sum(flat).split([*(leaf.numel() for leaf in leaves), 1])
        return [part.view_as(leaf) for part, leaf in zip(parts, leaves, strict=True)], loss, sums

    def _own_rows(self, rows: Batch, noise: Tensor) -> tuple[Batch, Tensor]:
        """Return the rows of this process on the device, with their part of the noise of the batch."""
        device = self.stack.device
        rows = rows.map(lambda part: part.to(device))
        assert rows.index is not None
        return rows, noise.index_select(2, rows.index[0])

    def _zeros(self) -> Tensor:
        rows = 2 if self.pull is None else 3
        return torch.zeros(rows, len(self), dtype=torch.float64, device=self.stack.device)

    def learn(self, gradients: Sequence[Tensor], loss: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
        """Take a step down the gradients; returns the losses and the sums of the figures."""
        self.descend(gradients)
        return loss, sums

    def evaluate(
        self,
        rows: Batch,
        noise: Tensor,
        kept: Tensor | None = None,
        parameters: Tensors | None = None,
        buffers: Tensors | None = None,
    ) -> Tensor:
        """Compute the sums of the figures of validation rows; see `differentiate` for the arguments."""
        if not self.group.share.whole:
            rows, noise = self._own_rows(rows, noise)
            if not noise.shape[2]:
                return self._zeros()[:2]
        return figures(self.terms(rows, noise, parameters, buffers), self.pull, rows.weight, kept)

    # --- an epoch ---------------------------------------------------------------------------------------------------

    def epoch(self, epoch: int) -> EpochResult:
        orders, generators, own = self._drawn(epoch)
        count, size = own.stop - own.start, self.config.batch_size
        every = 1 if self.stack.device.type == "cpu" else math.ceil(count / size)  # to look at a loss is to wait for it
        lost = torch.zeros(every, len(self), dtype=torch.float64, device=self.stack.device)
        totals = self._zeros()
        if self._started and self.pull is not None:  # in place, where captured steps read it
            self.pull[:, -1].fill_(_HOLD if self.step < _HELD * self.total else 0.0)
        failures: dict[int, Failure] = {}
        found = self._steps(True, self.train, size, orders, self.windows(generators, count, size), own)
        for number, (loss, sums) in enumerate(found):
            self.step += 1
            totals += sums
            lost[number % every] = loss
            if (number + 1) % every == 0:
                self.check(lost, number + 1 - every, failures)
            if len(failures) == len(self):
                break
        return EpochResult(self.group.sum(totals).T.cpu() / count, failures)

    def validate(self) -> list[Record]:
        """Compute the mean figures of the validation rows, with the same noise every time."""
        if self.validation is None:
            return []
        count, size = len(self.validation), max(self.config.batch_size, _VALIDATION_ROWS)
        totals = self._zeros()[:2]
        noise = self.windows(self._generators(None), count, size)
        with torch.no_grad():
            for sums in self._steps(False, self.validation, size, None, noise):
                totals += sums
        means = (self.group.sum(totals).T.cpu() / count).tolist()
        return [{f"validation_{name}": value for name, value in figures_by_name(own).items()} for own in means]

    def _steps(
        self,
        training: bool,
        source: ModelRows,
        size: int,
        orders: Sequence[torch.Generator] | None,
        windows: Iterator[Tensor],
        own: slice = EVERY,
    ) -> Iterator[Any]:
        """Take a step with every batch of a source, of training or of validation; yields what each returns.

        The order of the rows is taken from its generators at once, before any noise.
        """
        for model in self.stack.models:
            model.train(training)
        step: Callable[..., Any]
        if self.captured:
            key = training, self.optimiser.falls_together
            if key not in self._captured:
                self._captured.pop((training, not key[1]), None)  # so that only one of them takes memory
                self._captured[key] = self._capture(training, source, size)
            step = self._captured[key]
            batches = step.batches(orders, own)
        else:
            compute = self.differentiate if self.group.share.whole else self.differentiate_share
            step = (lambda rows, noise: self.learn(*compute(rows, noise))) if training else self.evaluate
            batches = source.batches(orders, size, own)
        noises = (noise for window in windows for noise in window.split(size, 2))
        return (step(batch, noise) for batch, noise in zip(batches, noises, strict=True))

    def _capture(self, training: bool, source: ModelRows, size: int) -> CapturedStep:
        stack, size = self.stack, min(size, len(source))
        noise = torch.zeros(len(stack), self.config.samples, size, stack.models[0].noise_dim, device=stack.device)
        if not training:
            return CapturedStep(self.evaluate, stack, source, noise)
        state = [*stack.tensors.values(), *self.optimiser.state]
        return CapturedStep(
            self.differentiate, stack, source, noise, self.learn, state=state, steps=self.total - self.step
        )


# A step on a batch as a CUDA graph, replayed without waiting for the host. Where the rows lie on the device, the graph
# gathers its batch from them. Where they do not, batches are prefetched. On a CPU the same step is called directly.

# Milliseconds that compiling saves a step, about: of any stack, and of every model in it; and what it costs.
_SAVED, _SAVED_EACH, _COMPILING = 2.0, 0.03, 15e3
_STAGED = 3  # batches that are on their way to a device, at most

Thing = TypeVar("Thing")


def prefetch(things: Iterator[Thing]) -> Iterator[Thing]:
    """Yield the same things, each made by a thread while the one before it is in use.

    Example:
        >>> list(prefetch(iter("abc")))
        ['a', 'b', 'c']
    """
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, things, None)
        while (thing := coming.result()) is not None:
            coming = thread.submit(next, things, None)
            yield thing


def transfer(batches: Iterator[Batch], device: torch.device) -> Iterator[Batch]:
    """Copy batches of one shape from pinned memory to a CUDA device, beside what is computed there.

    Each is valid until the next is asked for: it lies in one of a few buffers, which copies fill in turn in a stream of
    their own. What the current stream does with it waits until it has arrived.
    """
    stream, arrived = torch.cuda.Stream(device), torch.cuda.Event()
    buffers: list[tuple[Batch, torch.cuda.Event]] = []
    for number, batch in enumerate(batches):
        if number < _STAGED:
            buffers.append((batch.map(lambda part: torch.empty_like(part, device=device)), torch.cuda.Event()))
            stream.wait_stream(torch.cuda.current_stream(device))
        buffer, free = buffers[number % _STAGED]
        free.synchronize()  # so that the host is never more than a few batches ahead
        with torch.cuda.stream(stream):
            for to, part in zip(tree_leaves(buffer), tree_leaves(batch), strict=True):
                to.copy_(part, non_blocking=True)
            arrived.record()
        torch.cuda.current_stream(device).wait_event(arrived)
        yield buffer
        free.record()


def padded(batch: Batch | Tensor, size: int) -> Any:
    """Fill up a batch of a stack, or positions of its rows, (models, rows, …), to `size` rows with its last."""
    count = (batch if isinstance(batch, Tensor) else batch.x).shape[1]
    missing = size - count
    if not missing:
        return batch
    filled = tree_map(lambda part: torch.cat([part, part[:, -1:].expand(-1, missing, *part.shape[2:])], 1), batch)
    if isinstance(batch, Tensor):
        return filled
    others: dict[str, Tensor | Batch] = {}  # what fills up a batch is nobody's neighbour, and companions are whole
    for name in ("near", "far"):
        if (part := getattr(batch, name)) is not None:
            rows, companions = part.tensor_split([count], -1)
            wider = torch.cat([F.pad(rows, (0, missing), value=-1.0), companions], -1)
            others[name] = F.pad(wider, (0, 0, 0, missing), value=-1.0)
    if batch.companions is not None:
        others["companions"] = batch.companions
    return filled.joined(**others)


def capture(function: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """Call a function twice to warm up, capture it as a CUDA graph, and return what replays it.

    On another device, nothing is called, and the function itself is returned.
    """
    if device.type != "cuda":
        return function
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(2):
            function()
    torch.cuda.current_stream(device).wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph.replay


class CapturedStep:
    """A step on batches of a source, captured: it reads tensors that stay where they are.

    Arguments:
        compute: from rows, noise, `kept`, parameters and buffers to tensors. `kept` is 1 for each row of a batch, and 0
            for what fills up the last. Operations are traced for batches of one size.
        stack: the models, whose parameters and buffers are given to it.
        source: rows of every model.
        noise: for a whole batch, (models, k, rows, d); to be overwritten.
        update: from the tensors to what the step returns, by default these. With one, gradients are taken of the
            parameters.
        state: tensors that `update` changes, besides what it returns.
        steps: how many there will be; where these are many, operations are compiled.

    Attributes:
        replay: repeats the step with the batch of the last call.
    """

    def __init__(
        self,
        compute: Callable[..., Any],
        stack: Stack[VAE],
        source: ModelRows,
        noise: Tensor,
        update: Callable[..., Any] | None = None,
        state: Sequence[Tensor] = (),
        steps: int = 0,
    ) -> None:
        device, size = noise.device, noise.shape[2]
        self._source, self._noise, self._count = source, noise, size
        self._rows = source if isinstance(source, StackedRows) and source.resident and source.device == device else None
        example = next(source.batches(None, size)) if self._rows is None else self._rows.order(None)[:, :size]
        self._inputs = tree_map(lambda part: part.to(device, copy=True), example)
        self._kept = torch.ones(size, dtype=torch.float64, device=device)
        parameters, buffers = list(stack.tensors.values()), list(stack.buffers.values())
        parts, spec = tree_flatten(self._read())

        def flat(
            parameters: list[Tensor], buffers: list[Tensor], parts: list[Tensor], noise: Tensor, kept: Tensor
        ) -> Any:
            """Compute with plain lists of tensors, which compilers take."""
            named = dict(zip(stack.tensors, parameters, strict=True)), dict(zip(stack.buffers, buffers, strict=True))
            return compute(tree_unflatten(parts, spec), noise, kept, *named)

        leaves = parameters if update is None else [t.detach().requires_grad_() for t in parameters]
        compiled = device.type == "cuda" and steps * (_SAVED + _SAVED_EACH * len(stack)) > _COMPILING
        with torch.set_grad_enabled(update is not None):
            graph = trace(flat, leaves, buffers, parts, noise, self._kept, compiled=compiled)

        def step() -> None:
            found = graph(parameters, buffers, tree_leaves(self._read()), self._noise, self._kept)
            self._returned = found if update is None else update(*found)

        before = [t.clone() for t in state]
        with torch.no_grad():
            self.replay = capture(step, device)
            for t, value in zip(state, before, strict=True):
                t.copy_(value)

    def _read(self) -> Batch:
        return self._inputs if self._rows is None else self._rows.gather(self._inputs, self._kept)

    def batches(self, generators: Sequence[Generator] | None, own: slice = EVERY) -> Iterator[Any]:
        """Every batch of an epoch, as the step takes it; see `ModelRows.batches` for the arguments."""
        device, size = self._noise.device, self._noise.shape[2]
        if self._rows is not None:
            return iter(self._rows.order(generators)[:, own].split(size, 1))
        made = (padded(batch, size) for batch in self._source.batches(generators, size, own))
        if device.type != "cuda":
            return prefetch(made)
        return transfer(prefetch(batch.map(Tensor.pin_memory) for batch in made), device)

    @torch.no_grad()
    def __call__(self, batch: Batch | Tensor, noise: Tensor) -> Any:
        """Take the step with one of the `batches`; what it returns is overwritten by the next."""
        count, size = noise.shape[2], len(self._kept)
        self._noise[:, :, :count].copy_(noise)
        for to, part in zip(tree_leaves(self._inputs), tree_leaves(padded(batch, size)), strict=True):
            to.copy_(part, non_blocking=True)
        if count != self._count:
            self._count = count
            self._kept.copy_(torch.arange(size) < count)
        self.replay()
        return self._returned
