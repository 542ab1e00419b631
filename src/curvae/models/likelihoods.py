"""Likelihoods: what the decoder's outputs say about a row of data."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Bernoulli", "Categorical", "Gaussian", "Likelihood"]

_HALF_LOG_2PI = math.log(2 * math.pi) / 2


class Likelihood(nn.Module, ABC):
    """p(x | outputs) for rows x of `features` values; the decoder gives one output a feature.

    A further family (counts, say) is a subclass with these four methods.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.features = features

    @abstractmethod
    def log_prob(self, outputs: Tensor, x: Tensor) -> Tensor:
        """Log-density of rows x, shape (…, features), summed over features; `outputs` may have more leading axes."""

    @abstractmethod
    def mean(self, outputs: Tensor) -> Tensor:
        """E[x]."""

    @abstractmethod
    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """A draw of x."""

    @abstractmethod
    def start(self, mean: Tensor) -> Tensor:
        """Outputs under which a row with the given column means is expected: where to start the last bias."""

    def extra_repr(self) -> str:
        return str(self.features)


class Bernoulli(Likelihood):
    """Σ x·log p + (1−x)·log(1−p) with logits as outputs, for targets in [0, 1]; grey levels count as probabilities."""

    def log_prob(self, outputs: Tensor, x: Tensor) -> Tensor:
        if outputs.is_cuda and not torch.is_grad_enabled():
            # Compiled, a logarithm costs a fraction of log1p; it loses no more than the sum does.
            rest = torch.log(1.0 + torch.exp(-outputs.abs()))
            return (x * outputs - outputs.clamp_min(0.0) - rest).sum(-1)
        return -F.binary_cross_entropy_with_logits(outputs, x.expand_as(outputs), reduction="none").sum(-1)

    def mean(self, outputs: Tensor) -> Tensor:
        return outputs.sigmoid()

    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return torch.bernoulli(outputs.sigmoid(), generator=generator)

    def start(self, mean: Tensor) -> Tensor:
        return mean.clamp(1e-3, 1 - 1e-3).logit()


class Gaussian(Likelihood):
    """Independent normals around the outputs; unit variance, or one learned deviation a feature.

    A learned deviation is `floor` + softplus of a parameter and starts at 1. Without a floor the density of a column
    that can be predicted exactly, a constant one say, has no bound; 0.01 of a standardised column's deviation bounds
    what each column can add to the log-likelihood to 3.7 nats.
    """

    def __init__(self, features: int, learned: bool = True, floor: float = 0.01) -> None:
        super().__init__(features)
        self.learned, self.floor = learned, floor
        if learned:
            self.spread = nn.Parameter(torch.full((features,), math.log(math.expm1(1 - floor))))

    def scale(self) -> Tensor | None:
        """Deviations of the features; None stands for 1."""
        return self.floor + F.softplus(self.spread) if self.learned else None

    def log_prob(self, outputs: Tensor, x: Tensor) -> Tensor:
        error, scale = x - outputs, self.scale()
        constant = self.features * _HALF_LOG_2PI
        if scale is None:
            return error.square().sum(-1) * -0.5 - constant
        return (error / scale).square().sum(-1) * -0.5 - (scale.log().sum() + constant)

    def mean(self, outputs: Tensor) -> Tensor:
        return outputs

    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        noise = torch.empty_like(outputs).normal_(generator=generator)
        scale = self.scale()
        return outputs + (noise if scale is None else scale * noise)

    def start(self, mean: Tensor) -> Tensor:
        return mean

    def extra_repr(self) -> str:
        return f"{self.features}, {'learned deviation' if self.learned else 'unit variance'}"


class Categorical(Likelihood):
    """One category out of each block of columns, one-hot (or shares that sum to one); outputs are logits."""

    def __init__(self, features: int, blocks: Sequence[int] = ()) -> None:
        super().__init__(features)
        self.blocks = list(blocks) or [features]
        if sum(self.blocks) != features:
            raise ValueError(f"blocks of {self.blocks} columns do not add up to {features} features")

    def _log_softmax(self, outputs: Tensor) -> Tensor:
        return torch.cat([part.log_softmax(-1) for part in outputs.split(self.blocks, -1)], -1)

    def log_prob(self, outputs: Tensor, x: Tensor) -> Tensor:
        return (x * self._log_softmax(outputs)).sum(-1)

    def mean(self, outputs: Tensor) -> Tensor:
        return self._log_softmax(outputs).exp()

    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        parts = []
        for part in self.mean(outputs).split(self.blocks, -1):
            drawn = torch.multinomial(part.reshape(-1, part.shape[-1]), 1, generator=generator)
            one_hot = torch.zeros_like(part.reshape(-1, part.shape[-1])).scatter_(-1, drawn, 1.0)
            parts.append(one_hot.view(part.shape))
        return torch.cat(parts, -1)

    def start(self, mean: Tensor) -> Tensor:
        return mean.clamp_min(1e-3).log()

    def extra_repr(self) -> str:
        return f"{self.features}, blocks={self.blocks}"
