"""Counts of independent events."""

from __future__ import annotations

import torch
from torch import Tensor

from ..batch import Batch
from .base import Family
from .counts import Counts, refuse_other_than_counts, unknown_sizes

__all__ = ["POISSON", "Poisson"]


class Poisson(Counts):
    """Counts with the rate exp(output), multiplied by the `size` of the row where the batch has one (its exposure)."""

    def entries(self, outputs: Tensor, batch: Batch) -> Tensor:
        log_rate = self.log_rate(outputs, batch)
        return batch.target * log_rate - log_rate.exp() - torch.lgamma(batch.target + 1.0)

    def draw(self, outputs: Tensor, batch: Batch | None, generator: torch.Generator | None) -> Tensor:
        return torch.poisson(self.mean(outputs, batch), generator=generator)


POISSON = Family(
    "poisson",
    "counts",
    lambda layout, config: Poisson(layout.features, None, layout.total, unknown_sizes(layout, config)),
    refuse_other_than_counts,
    uses_size=True,
)
