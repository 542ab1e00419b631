"""Counts of which some are lost: a zero is either one of the negative binomial, or a dropout.

Notation: l the logit of a dropout, n the log-probability of the negative binomial. Then

    log p(0) = log(σ(l) + σ(−l)·eⁿ) = max(l, n) − max(l, 0) + L(l − n) − L(l) with L(a) = log(1 + exp(−|a|)),

where no large numbers cancel, and log p(x) = n − max(l, 0) − L(l) for other counts.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...geometry.primitive import Primitive
from ..batch import Batch
from .base import Family
from .counts import refuse_other_than_counts
from .negative_binomial import NegativeBinomial

__all__ = ["ZINB", "ZeroInflated"]

_START = -2.0  # logit of a dropout


class _Entries(Primitive):
    """log p(x) of every entry from n, l and x."""

    @staticmethod
    def forward(entries: Tensor, logits: Tensor, x: Tensor) -> Tensor:
        zero = x.sign().neg_().add_(1.0)  # booleans take several times as long
        head = entries.lerp(torch.maximum(logits, entries), zero).sub_(logits.relu())
        lost = (logits - entries).abs_().neg_().exp_().mul_(zero)
        rest = logits.abs().neg_().exp_()
        return head.add_(lost.sub_(rest).div_(rest.add_(1.0)).log1p_())  # both logarithms in one

    @staticmethod
    def gradients(inputs: Any, kept: Any, needed: Any, grad: Tensor) -> Any:  # type: ignore[override]
        entries, logits, x = inputs
        counted = torch.maximum((entries - logits).sigmoid_(), x.sign())  # probability that it is no dropout
        return counted * grad, counted.add_(logits.sigmoid()).neg_().add_(1.0).mul_(grad)


class ZeroInflated(NegativeBinomial):
    """A negative binomial of which every count is replaced by 0 with a probability, whose logit the decoder gives.

    Arguments:
        features, total, dispersion, batch, sizes: as of `NegativeBinomial`.
    """

    def __init__(
        self,
        features: int,
        total: bool = False,
        dispersion: str = "gene",
        batch: tuple[int, ...] = (),
        sizes: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(features, total, dispersion, batch, sizes, further=1)

    def entries(self, outputs: Tensor, batch: Batch) -> Tensor:
        others, logits = outputs.split([self.outputs - self.features, self.features], -1)
        return _Entries.call(super().entries(others, batch), logits, batch.target)

    def count_parameters(self, outputs: Tensor, batch: Batch | None = None) -> dict[str, Tensor]:
        """Return "mean" and "dispersions" of the counts before any is lost, and the probability of that, "dropout"."""
        return {**super().count_parameters(outputs, batch), "dropout": outputs[..., -self.features :].sigmoid()}

    def mean(self, outputs: Tensor, batch: Batch | None = None) -> Tensor:
        return super().mean(outputs, batch) * (-outputs[..., -self.features :]).sigmoid()

    def draw(self, outputs: Tensor, batch: Batch | None, generator: torch.Generator | None) -> Tensor:
        lost = outputs[..., -self.features :].sigmoid()
        drawn = super().draw(outputs, batch, generator)
        return drawn.masked_fill(torch.empty_like(lost).uniform_(generator=generator) < lost, 0.0)

    def start(self, mean: Tensor) -> Tensor:
        start = super().start(mean)
        start[-self.features :] = _START
        start[: self.features] += F.softplus(start[-self.features :])  # so that the mean is right all the same
        return start


ZINB = Family("zinb", "counts of which some are lost", ZeroInflated.of, refuse_other_than_counts, uses_size=True)
