"""Edge models: how likely two nodes at some distance are joined."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["EdgeModel", "FermiDirac", "GeodesicEdges"]


class EdgeModel(nn.Module, ABC):
    """p(A_ij = 1 | z_i, z_j), a function of the distance d(z_i, z_j)."""

    @abstractmethod
    def numbers(self) -> tuple[Tensor, ...]:
        """The learned numbers that p depends on, without dimensions."""

    @abstractmethod
    def absence(self, d: Tensor, *numbers: Tensor) -> tuple[Tensor, ...]:
        """log(1 − p) and its derivatives in d and in each of the numbers, all elementwise.

        The first is differentiable by autograd as well.
        """

    @abstractmethod
    def logits(self, d: Tensor) -> Tensor:
        """log p − log(1 − p)."""

    def log_prob(self, d: Tensor, present: Tensor) -> Tensor:
        """log p where an edge is present (1), log(1 − p) where it is not (0)."""
        return F.logsigmoid((2.0 * present - 1.0) * self.logits(d))

    def probability(self, d: Tensor) -> Tensor:
        """p."""
        return self.logits(d).sigmoid()


class GeodesicEdges(EdgeModel):
    r"""p = 1 − tanh d, the edge model of the paper's third experiment.

    With x = e^{2d} − 1, which is accurate for near pairs and large for far ones,

        log(1 − tanh d) = log 2 − 2d − log1p(e^{−2d}),    log tanh d = −log1p(2/x),    ∂ log tanh d/∂d = y(2+y)/(1+y),

    y = 2/x. Two nodes that coincide and are not joined would make the likelihood 0 and its gradient infinite, so d
    stands for max(d, floor): such a pair costs −log tanh(floor), 6.9 nats at 0.001, and exerts no force below it.

    Arguments:
        floor: the smallest distance that is told from 0.

    Example:
        >>> GeodesicEdges().probability(torch.tensor([0.0, 0.5, 40.0]))
        tensor([9.9900e-01, 5.3788e-01, 3.6097e-35])
    """

    def __init__(self, floor: float = 1e-3) -> None:
        super().__init__()
        if not 0 < floor < math.inf:
            raise ValueError(f"floor must be a positive number, got {floor}")
        self.floor = floor

    def numbers(self) -> tuple[Tensor, ...]:
        return ()

    def absence(self, d: Tensor, *numbers: Tensor) -> tuple[Tensor, ...]:
        farthest = 0.49 * math.log(torch.finfo(d.dtype).max)  # where e^{2d} would overflow
        y = 2.0 / (2.0 * d.clamp(self.floor, farthest)).expm1()
        return -y.log1p(), torch.where(d < self.floor, 0.0, y * (2.0 + y) / (1.0 + y))

    def logits(self, d: Tensor) -> Tensor:
        twice = 2.0 * d.clamp_min(self.floor)
        return math.log(2) - twice - (-(-twice).expm1()).log()

    def extra_repr(self) -> str:
        return f"floor={self.floor:g}"


class FermiDirac(EdgeModel):
    """p = 1/(1 + exp((d − r)/t)), with learned radius r and temperature t; with d² in place of d if `squared`.

    Arguments:
        radius: where p = ½ at first; any number.
        temperature: how softly p falls, at first; it is learned as exp of a free parameter.
        squared: whether to use d².

    References:
        Krioukov et al. (2010), Hyperbolic geometry of complex networks.

    Example:
        >>> FermiDirac(radius=2.0, temperature=0.5).probability(torch.tensor([0.0, 2.0, 4.0])).detach()
        tensor([0.9820, 0.5000, 0.0180])
    """

    def __init__(self, radius: float = 2.0, temperature: float = 1.0, squared: bool = False) -> None:
        super().__init__()
        if not 0 < temperature < math.inf:
            raise ValueError(f"temperature must be a positive number, got {temperature}")
        self.radius = nn.Parameter(torch.tensor(float(radius)))
        self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)))
        self.squared = squared

    def numbers(self) -> tuple[Tensor, ...]:
        return self.radius, self.log_temperature.exp()

    def absence(self, d: Tensor, *numbers: Tensor) -> tuple[Tensor, ...]:
        radius, temperature = numbers
        logit = (radius - (d * d if self.squared else d)) / temperature
        push = logit.sigmoid() / temperature
        return -F.softplus(logit), push * (2.0 * d) if self.squared else push, -push, push * logit

    def logits(self, d: Tensor) -> Tensor:
        radius, temperature = self.numbers()
        return (radius - (d * d if self.squared else d)) / temperature

    def extra_repr(self) -> str:
        radius, temperature = (float(t.detach()) for t in self.numbers())
        return f"radius={radius:.4g}, temperature={temperature:.4g}, squared={self.squared}"
