"""Counts of independent events."""

from __future__ import annotations

import torch
from torch import Tensor

from ..batch import Batch, Layout
from .base import Family, Likelihood, Matrix, stored_values

__all__ = ["POISSON", "Poisson"]


class Poisson(Likelihood):
    """Counts with the rate exp(output), multiplied by the `size` of the row where the batch has one (its exposure).

    The encoder is shown log(1 + x/size): counts span decades.
    """

    def _rate(self, outputs: Tensor, batch: Batch | None) -> tuple[Tensor, Tensor]:
        """log λ and λ."""
        size = None if batch is None else batch.size
        log_rate = outputs if size is None else outputs + size.log().unsqueeze(-1)
        return log_rate, log_rate.exp()

    def entries(self, outputs: Tensor, batch: Batch) -> Tensor:
        log_rate, rate = self._rate(outputs, batch)
        return batch.target * log_rate - rate - torch.lgamma(batch.target + 1.0)

    def mean(self, outputs: Tensor, batch: Batch | None = None) -> Tensor:
        return self._rate(outputs, batch)[1]

    def draw(self, outputs: Tensor, batch: Batch | None, generator: torch.Generator | None) -> Tensor:
        return torch.poisson(self._rate(outputs, batch)[1], generator=generator)

    def start(self, mean: Tensor) -> Tensor:
        return mean.clamp_min(1e-6).log()

    def inputs(self, batch: Batch) -> Tensor:
        x = batch.x if batch.size is None else batch.x / batch.size.view(-1, *[1] * (batch.x.dim() - 1))
        return x.log1p()


def _refusal(x: Matrix, layout: Layout) -> str | None:
    values = stored_values(x)
    if values.size and float(values.min()) < 0:
        return f'needs counts, but there is a value of {float(values.min()):.4g}; use `likelihood="gaussian"`'
    if bool((values != values.round()).any()):
        return 'needs counts, but not all values are whole numbers; use `likelihood="gaussian"`'
    return None


POISSON = Family("poisson", "counts", lambda layout, _: Poisson(layout.features), _refusal, uses_size=True)
