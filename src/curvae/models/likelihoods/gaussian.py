"""Real numbers with normal noise."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..batch import Batch
from .base import Family, Likelihood

__all__ = ["GAUSSIAN", "UNIT_GAUSSIAN", "Gaussian"]

_HALF_LOG_2PI = math.log(2 * math.pi) / 2


class Gaussian(Likelihood):
    """Independent normals around the outputs; unit variance, or one learned standard deviation a feature.

    A learned one is `floor` + softplus of a parameter and starts at 1. Without a floor the density of a column that can
    be predicted exactly, a constant one say, has no bound; 0.01 of the standard deviation of a standardised column
    bounds what each column can add to the log-likelihood to 3.7 nats.
    """

    def __init__(self, features: int, learned: bool = True, floor: float = 0.01) -> None:
        super().__init__(features)
        self.learned, self.floor = learned, floor
        if learned:
            self.spread = nn.Parameter(torch.full((features,), math.log(math.expm1(1 - floor))))

    def scale(self) -> Tensor | None:
        """Return standard deviations of the features; None stands for 1."""
        return self.floor + F.softplus(self.spread) if self.learned else None

    def entries(self, outputs: Tensor, batch: Batch) -> Tensor:
        error, scale = batch.target - outputs, self.scale()
        if scale is None:
            return error.square() * -0.5 - _HALF_LOG_2PI
        error = error / scale
        return torch.addcmul(-_HALF_LOG_2PI - scale.log(), error, error, value=-0.5)

    def mean(self, outputs: Tensor, batch: Batch | None = None) -> Tensor:
        return outputs

    def draw(self, outputs: Tensor, batch: Batch | None, generator: torch.Generator | None) -> Tensor:
        noise = torch.empty_like(outputs).normal_(generator=generator)
        scale = self.scale()
        return outputs + (noise if scale is None else scale * noise)

    def start(self, mean: Tensor) -> Tensor:
        return mean

    def extra_repr(self) -> str:
        return f"{self.features}, {'learned standard deviation' if self.learned else 'unit variance'}"


GAUSSIAN = Family(
    "gaussian",
    "real numbers, with a learned standard deviation a column",
    lambda layout, _: Gaussian(layout.features),
    standardise=True,
)
UNIT_GAUSSIAN = Family(
    "unit_gaussian",
    "real numbers, with unit variance",
    lambda layout, _: Gaussian(layout.features, learned=False),
    standardise=True,
)
