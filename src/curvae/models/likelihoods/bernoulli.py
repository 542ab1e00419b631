"""Values between 0 and 1 as probabilities."""

from __future__ import annotations

import torch
from scipy import sparse
from torch import Tensor
from torch.nn import functional as F

from ..batch import Batch, Layout
from .base import Family, Likelihood, Matrix, stored_values

__all__ = ["BERNOULLI", "Bernoulli", "outside_unit_interval"]


class Bernoulli(Likelihood):
    """x·log p + (1−x)·log(1−p) with logits as outputs, for targets in [0, 1]; grey levels count as probabilities."""

    def entries(self, outputs: Tensor, batch: Batch) -> Tensor:
        x = batch.target
        if outputs.is_cuda and not torch.is_grad_enabled():
            # Compiled, a logarithm costs a fraction of log1p; it loses no more than the sum does.
            return x * outputs - outputs.clamp_min(0.0) - torch.log(1.0 + torch.exp(-outputs.abs()))
        return -F.binary_cross_entropy_with_logits(outputs, x.expand_as(outputs), reduction="none")

    def mean(self, outputs: Tensor, batch: Batch | None = None) -> Tensor:
        return outputs.sigmoid()

    def draw(self, outputs: Tensor, batch: Batch | None, generator: torch.Generator | None) -> Tensor:
        return torch.bernoulli(outputs.sigmoid(), generator=generator)

    def start(self, mean: Tensor) -> Tensor:
        return mean.clamp(1e-3, 1 - 1e-3).logit()


def outside_unit_interval(x: Matrix, layout: Layout | None = None) -> str | None:
    """Why values do not lie in [0, 1]."""
    values = stored_values(x)
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    if sparse.issparse(x):  # which has zeros too
        low, high = min(low, 0.0), max(high, 0.0)
    if low >= 0 and high <= 1:
        return None
    return (
        f'needs values in [0, 1], but they go from {low:.4g} to {high:.4g}; scale them, or use `likelihood="gaussian"`'
    )


BERNOULLI = Family(
    "bernoulli",
    "values in [0, 1], taken as probabilities",
    lambda layout, _: Bernoulli(layout.features),
    outside_unit_interval,
)
