"""Adam for the parameters of a stack, with one learning rate a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor
from torch.optim.adam import adam

__all__ = ["Adam", "Fall", "Pace"]

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
