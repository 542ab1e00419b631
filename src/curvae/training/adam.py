"""Adam for the parameters of a stack, with one learning rate a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor
from torch.optim.adam import adam

__all__ = ["Adam", "Pace"]

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


class Adam:
    """Parameters are cut where the rate changes, and nowhere when it does not.

    The functional form of `torch.optim.AdamW`: the class imports the whole compiler, some seconds, when it is made.

    Arguments:
        tensors: the parameters of the stack by name, (models, …).
        leaves: the same memory, as the models hold it.
        rates: learning rate of every model.
        beta2: decay of the mean of squared gradients.
        falling: whether `cool` will be called.
        paces: how some parameters learn, by name; the others as `Pace()` says.

    Attributes:
        moments: mean of gradients and of their squares, by name.
    """

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        leaves: Mapping[str, Tensor],
        rates: Sequence[float],
        beta2: float,
        falling: bool,
        paces: Mapping[str, Pace],
    ) -> None:
        self.moments = {name: (torch.zeros_like(t), torch.zeros_like(t)) for name, t in tensors.items()}
        self.beta2, self._shapes = beta2, {name: t.shape for name, t in tensors.items()}
        device = next(iter(tensors.values())).device
        self._fused = device.type in ("cpu", "cuda")
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
                # A captured step reads the rate from where it lies.
                lies = torch.tensor(start, device=device) if falling and device.type == "cuda" else start
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

    def cool(self, total: int, span: float) -> None:
        """Set the rates of the next step: over the last `span` of all steps they fall in a straight line to 0."""
        done = self._groups[0].counts[0]
        for group in self._groups:
            if isinstance(group.rate, Tensor):
                group.rate.copy_(((total - done) / span).clamp(max=1.0) * group.start)
            else:
                group.rate = min(1.0, (total - done.item()) / span) * group.start

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor]) -> None:
        """One step down the gradients, which have the shapes of the leaves or of the tensors."""
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

    def _like(self, gradient: Tensor, parameter: Tensor, name: str, models: slice) -> Tensor:
        """The fused optimiser walks through memory: strides must be those of the parameter."""
        if (gradient.shape, gradient.stride()) == (parameter.shape, parameter.stride()):
            return gradient
        return gradient.reshape(-1).view(self._shapes[name])[models].view_as(parameter)
