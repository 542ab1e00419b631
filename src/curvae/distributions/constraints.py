"""Supports of the distributions, as constraints of torch.distributions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions.constraints import Constraint

from ..geometry import Manifold

__all__ = ["Inside", "InsideProduct", "UnitSphere"]


class Inside(Constraint):
    """Points that lie in a manifold and within the reach of their dtype."""

    event_dim = 1

    def __init__(self, manifold: Manifold) -> None:
        self.manifold = manifold
        super().__init__()

    def __repr__(self) -> str:
        return f"Inside({self.manifold})"

    def check(self, value: Tensor) -> Tensor:
        return self.manifold.contains(value)


class InsideProduct(Constraint):
    """Points of a product of manifolds: the coordinates in each, one after the other."""

    event_dim = 1

    def __init__(self, manifolds: Sequence[Manifold]) -> None:
        self.manifolds = tuple(manifolds)
        super().__init__()

    def __repr__(self) -> str:
        return f"InsideProduct({', '.join(map(str, self.manifolds))})"

    def check(self, value: Tensor) -> Tensor:
        parts = value.split([manifold.dim for manifold in self.manifolds], -1)
        inside = [manifold.contains(part) for manifold, part in zip(self.manifolds, parts, strict=True)]
        return torch.stack(inside).all(0)


class UnitSphere(Constraint):
    """Unit vectors of ℝ^dim."""

    event_dim = 1

    def __init__(self, dim: int) -> None:
        self.dim = dim
        super().__init__()

    def __repr__(self) -> str:
        return f"UnitSphere({self.dim})"

    def check(self, value: Tensor) -> Tensor:
        if value.shape[-1] != self.dim:
            return torch.zeros(value.shape[:-1], dtype=torch.bool, device=value.device)
        tolerance = 16 * torch.finfo(value.dtype).eps * self.dim
        return (value.double().square().sum(-1).sqrt() - 1).abs() <= tolerance
