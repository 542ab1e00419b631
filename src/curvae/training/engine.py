"""Steps of many models at once, or of one."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Generic, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..models import Stack
from ..models.stack import Stackable
from .config import Settings

__all__ = ["Engine", "Failure", "Passed"]

Model = TypeVar("Model", bound=Stackable)
Config = TypeVar("Config", bound=Settings)


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


class Engine(ABC, Generic[Model, Config]):
    """A stack of models with its optimiser: what all kinds of models have in common. Their data are a matter of the
    descendants.

    Arguments:
        models: of one architecture.
        configs: of these models; what is not a number of its own (seed, curvature, prior scale, learning rate, beta)
            they have in common.
    """

    def __init__(self, models: Sequence[Model], configs: Sequence[Config]) -> None:
        self.stack, self.configs, self.config = Stack(models), list(configs), configs[0]
        self.step = 0
        self._build_optimiser()

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

    def load(self, moments: dict[str, tuple[Tensor, Tensor]], step: int) -> None:
        """Set the optimiser's state, after `step` steps."""
        self.step = step
        for name, pair in moments.items():
            for own, other in zip(self.moments[name], pair, strict=True):
                own.copy_(other)
        for state in self.optimiser.state.values():
            state["step"].fill_(float(step))

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
    def epoch(self, epoch: int) -> Passed:
        """One pass over the training data."""

    def validate(self) -> Tensor | None:
        """Mean reconstruction and divergence of data held out, (models, 2), if there are any."""
        return None

    def _weights(self, dims: int) -> Tensor | float:
        """β of every model, to be multiplied with figures that have so many dimensions after the models'."""
        beta = [config.beta for config in self.configs]
        if len(set(beta)) == 1:
            return beta[0]
        return torch.tensor(beta, dtype=torch.float64, device=self.stack.device).view(-1, *[1] * dims)

    def _learn(self, loss: Tensor, step: int, failures: dict[int, Failure]) -> None:
        """One step down the losses of all models, unless each is lost."""
        stack = self.stack
        found = torch.autograd.grad(loss.sum() if loss.dim() else loss, list(stack.leaves.values()))
        gradients = dict(zip(stack.leaves, found, strict=True))
        self.step += 1
        self._check(loss.reshape(-1).tolist(), step, gradients, failures)
        if len(failures) < len(stack):
            self._descend(gradients)

    def _descend(self, gradients: dict[str, Tensor]) -> None:
        for name, part, parameter in self._cuts:
            gradient = gradients[name]
            # The fused optimiser walks through memory: strides must be those of the parameter.
            if (gradient.shape, gradient.stride()) != (parameter.shape, parameter.stride()):
                gradient = gradient.reshape(-1).view(self.stack.tensors[name].shape)[part].view_as(parameter)
            parameter.grad = gradient
        self.optimiser.step()

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

    def _generator(self, seed: int, epoch: int | None) -> torch.Generator:
        """The source of randomness of an epoch; None stands for the validation."""
        entropy = np.random.SeedSequence([seed, 0 if epoch is None else epoch + 1]).generate_state(1, np.uint64)[0]
        return torch.Generator(self.stack.device).manual_seed(int(entropy >> 1))
