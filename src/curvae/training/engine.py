"""Steps of many models at once, or of one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..models import VAE, Stack, Terms
from .config import Config
from .rows import Pool

__all__ = ["Engine", "Failure", "Passed", "losses"]


@dataclass(frozen=True)
class Failure:
    """A loss that was not a number."""

    step: int
    """from 1, within the epoch"""
    what: str
    where: str


@dataclass
class Passed:
    """What an epoch gave, by the place of a model in the stack."""

    means: Tensor
    """mean reconstruction and divergence of every model, (models, 2), float64 on the CPU"""
    failures: dict[int, Failure] = field(default_factory=dict)


def losses(terms: Terms, config: Config, beta: Tensor | float, weight: Tensor | None = None) -> Tensor:
    """The loss of every model, (models,); rows count by their `weight`, if given."""
    reconstruction, kl = terms
    if config.objective == "iwae":
        rows = math.log(kl.shape[-2]) - torch.logsumexp(reconstruction - kl, -2)
    elif weight is None:
        return (beta * kl - reconstruction).mean((-2, -1))
    else:
        rows = (beta * kl - reconstruction).mean(-2)
    return rows.mean(-1) if weight is None else (rows * weight).sum(-1) / weight.sum()


class Engine:
    """A stack of models with its optimiser and data: what one epoch and one validation are made of.

    Model k sees its own rows in its own order with its own noise, all from (its seed, epoch) alone.

    Arguments:
        models: of one architecture.
        configs: of these models; what is not a number of its own (seed, curvature, prior scale, learning rate, beta)
            they have in common.
        rows: data of every model.
        train, validation: which of them, (models, ·).
    """

    def __init__(
        self, models: Sequence[VAE], configs: Sequence[Config], rows: Pool, train: Tensor, validation: Tensor
    ) -> None:
        self.stack, self.configs, self.config = Stack(models), list(configs), configs[0]
        self.rows, self.train, self.validation = rows, train, validation
        beta = [config.beta for config in configs]
        self.beta: Tensor | float = beta[0]
        if len(set(beta)) > 1:
            self.beta = torch.tensor(beta, dtype=torch.float64, device=self.stack.device).view(-1, 1, 1)
        self.step = 0
        self._build_optimiser()
        self._watch: Tensor | None = None

    def _build_optimiser(self) -> None:
        """Adam with one rate a model: parameters are cut where the rate changes, and nowhere when it does not."""
        stack, cuda = self.stack, self.stack.device.type == "cuda"
        self.moments = {name: (torch.zeros_like(t), torch.zeros_like(t)) for name, t in stack.tensors.items()}
        self._cuts: list[tuple[str, slice, Tensor]] = []
        groups: list[dict[str, Any]] = []
        start = 0
        for rate, run in groupby(config.learning_rate for config in self.configs):
            part = slice(start, start + len(list(run)))
            start = part.stop
            whole = part == slice(0, len(stack))
            parameters = [
                (name, leaf if whole else leaf.detach()[part].requires_grad_()) for name, leaf in stack.leaves.items()
            ]
            groups.append({"params": [p for _, p in parameters], "lr": rate})
            self._cuts += [(name, part, p) for name, p in parameters]
        self.optimiser = torch.optim.Adam(groups, fused=stack.device.type in ("cpu", "cuda"), capturable=cuda)
        for name, part, parameter in self._cuts:
            first, second = (moment[part].view(parameter.shape) for moment in self.moments[name])
            count = torch.zeros((), dtype=torch.float32, device=parameter.device)
            self.optimiser.state[parameter] = {"step": count, "exp_avg": first, "exp_avg_sq": second}

    def __len__(self) -> int:
        return len(self.stack)

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return math.ceil(self.train.shape[1] / self.config.batch_size)

    def load(self, moments: dict[str, tuple[Tensor, Tensor]], step: int) -> None:
        """Set the optimiser's state, after `step` steps."""
        self.step = step
        for name, pair in moments.items():
            for own, other in zip(self.moments[name], pair, strict=True):
                own.copy_(other)
        for state in self.optimiser.state.values():
            state["step"].fill_(float(step))

    def keep(self, places: Sequence[int]) -> Engine:
        """An engine that goes on with some of the models."""
        index = list(places)
        new = type(self)(
            [self.stack.models[i] for i in index],
            [self.configs[i] for i in index],
            self.rows.keep(index),
            self.train[index],
            self.validation[index],
        )
        new.load({name: (a[index], b[index]) for name, (a, b) in self.moments.items()}, self.step)
        return new

    # --- randomness -------------------------------------------------------------------------------------------------

    def draws(self, epoch: int) -> tuple[Tensor, Tensor]:
        """Order of the rows, (models, rows), and noise for all of them, (models, k, rows, d)."""
        made: dict[int, tuple[Tensor, Tensor]] = {}
        count, device = self.train.shape[1], self.stack.device
        for config in self.configs:
            if config.seed not in made:
                generator = _generator(device, config.seed, epoch)
                order = torch.randperm(count, generator=generator, device=device)
                made[config.seed] = order, self._noise(count, generator)
        orders, noises = zip(*(made[config.seed] for config in self.configs), strict=True)
        return torch.stack(orders), torch.stack(noises)

    def watch(self) -> Tensor:
        """Noise for the validation rows, the same in every epoch."""
        if self._watch is None:
            device, count = self.stack.device, self.validation.shape[1]
            noises = [self._noise(count, _generator(device, config.seed, None)) for config in self.configs]
            self._watch = torch.stack(noises)
        return self._watch

    def _noise(self, rows: int, generator: torch.Generator) -> Tensor:
        return self.stack.models[0].noise(rows, self.config.samples, generator)

    # --- an epoch ---------------------------------------------------------------------------------------------------

    def epoch(self, epoch: int) -> Passed:
        """One pass over the training rows."""
        order, noise = self.draws(epoch)
        size, stack = self.config.batch_size, self.stack
        totals = torch.zeros(2, len(stack), dtype=torch.float64, device=stack.device)
        failures: dict[int, Failure] = {}
        leaves = list(stack.leaves.values())
        for model in stack.models:
            model.train()
        for step, batch in enumerate(order.split(size, 1), 1):
            rows = self.rows.batch(self.train.gather(1, batch))
            terms = self._step_terms(rows, noise[:, :, (step - 1) * size : step * size])
            loss = losses(terms, self.config, self.beta)
            found = torch.autograd.grad(loss.sum() if loss.dim() else loss, leaves)
            gradients = dict(zip(stack.leaves, found, strict=True))
            self.step += 1
            self._check(loss.reshape(-1).tolist(), step, gradients, failures)
            if len(failures) == len(stack):
                break
            self._descend(gradients)
            totals += torch.stack([term.detach().mean(-2).sum(-1) for term in terms]).view(2, -1)
        return Passed(totals.T.cpu() / self.train.shape[1], failures)

    def _descend(self, gradients: dict[str, Tensor]) -> None:
        for name, part, parameter in self._cuts:
            gradient = gradients[name]
            # The fused optimiser walks through memory: strides must be those of the parameter.
            if (gradient.shape, gradient.stride()) != (parameter.shape, parameter.stride()):
                gradient = gradient.reshape(-1).view(self.stack.tensors[name].shape)[part].view_as(parameter)
            parameter.grad = gradient
        self.optimiser.step()

    def _step_terms(self, rows: Tensor, noise: Tensor) -> Terms:
        """Of the stack; without its dimension for a model alone, which would cost it some percent of the time."""
        return self.stack.terms(rows, noise) if len(self) > 1 else self.stack.models[0].terms(rows[0], noise[0])

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

    def validate(self) -> Tensor | None:
        """Mean reconstruction and divergence of the validation rows, (models, 2), with the same noise every time."""
        if not self.validation.shape[1]:
            return None
        noise, size = self.watch(), max(self.config.batch_size, 512)
        totals = torch.zeros(2, len(self), dtype=torch.float64, device=self.stack.device)
        for model in self.stack.models:
            model.eval()
        with torch.no_grad():
            for i, index in enumerate(self.validation.split(size, 1)):
                terms = self.stack.terms(self.rows.batch(index), noise[:, :, i * size : (i + 1) * size])
                totals += torch.stack([term.mean(-2).sum(-1) for term in terms])
        return totals.T.cpu() / self.validation.shape[1]


def _generator(device: torch.device, seed: int, epoch: int | None) -> torch.Generator:
    """The source of randomness of an epoch; None stands for the validation."""
    entropy = np.random.SeedSequence([seed, 0 if epoch is None else epoch + 1]).generate_state(1, np.uint64)[0]
    return torch.Generator(device).manual_seed(int(entropy >> 1))
