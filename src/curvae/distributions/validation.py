"""Checks of the arguments and values of distributions, and their supports as constraints of torch.distributions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.distributions.constraints import Constraint

from ..geometry import Manifold
from ..geometry.checks import got, holds, real

__all__ = ["Inside", "InsideProduct", "Shape", "UnitSphere", "Validated", "check_noise", "check_positive", "parameter"]


Shape = torch.Size | list[int] | tuple[int, ...]


def parameter(name: str, value: Tensor | float, like: Tensor | None = None) -> Tensor:
    """A parameter as a tensor; a number takes dtype and device of `like`."""
    if isinstance(value, int | float):
        return (
            torch.tensor(float(value)) if like is None else torch.full((), value, dtype=like.dtype, device=like.device)
        )
    return real(name, value)


def check_positive(name: str, value: Tensor) -> None:
    if not holds(valid := (value > 0) & value.isfinite()):
        raise ValueError(f"{name} must be positive and finite{got(value, valid)}")


def check_noise(noise: Tensor, batch_shape: Sequence[int], dim: int) -> None:
    """Raise unless standard normal noise fits the draws of a distribution."""
    noise = real("noise", noise)
    try:
        fits = noise.shape[-1] == dim and torch.broadcast_shapes(noise.shape[:-1], batch_shape) is not None
    except (IndexError, RuntimeError):
        fits = False
    if not fits:
        expected = ", ".join(["…", *map(str, batch_shape), str(dim)])
        raise ValueError(f"noise must have shape ({expected}), got {tuple(noise.shape)}")


class Validated(Distribution):
    """A distribution whose checks work under vmap too, and say which value is wrong.

    By default arguments and values are checked, as everywhere in torch.distributions; draws only with
    `validate_args=True`, because it makes the host wait.
    """

    def __init__(self, batch_shape: torch.Size, event_shape: torch.Size, validate_args: bool | None) -> None:
        # torch's own check of the arguments fails under vmap: a subclass calls those above instead.
        super().__init__(batch_shape, event_shape, validate_args=False)
        self._strict = bool(validate_args)
        self._validate_args = bool(Distribution._validate_args) if validate_args is None else validate_args

    def _expanded(self, batch_shape: Shape, instance: Any) -> Self:
        """A copy with another batch shape, to which the caller expands the parameters."""
        torch.empty(self._batch_shape, device="meta").expand(batch_shape)  # raises unless it can be
        new = self.__new__(type(self)) if instance is None else instance
        new.__dict__.update(self.__dict__)
        new._batch_shape = torch.Size(batch_shape)
        return new

    def _checked(self, value: Any) -> Tensor:
        """`value` as a tensor, and within the support where arguments are validated."""
        value = real("value", value)
        if self._validate_args:
            self._validate_sample(value)
        return value

    def _validate_sample(self, value: Tensor) -> None:
        event_dim, expected = len(self.event_shape), self.batch_shape + self.event_shape
        if value.shape[value.dim() - event_dim :] != self.event_shape:
            raise ValueError(f"value must have shape (…, {self.event_shape[0]}), got {tuple(value.shape)}")
        try:
            torch.broadcast_shapes(value.shape, expected)
        except RuntimeError as error:
            raise ValueError(
                f"value of shape {tuple(value.shape)} does not broadcast against batch_shape + event_shape = "
                f"{tuple(expected)}"
            ) from error
        assert self.support is not None
        if not holds(valid := self.support.check(value)):
            raise ValueError(
                f"Expected value argument (Tensor of shape {tuple(value.shape)}) to be within the support "
                f"({self.support!r}) of the distribution {self!r}, but found invalid values{got(value, valid)}"
            )


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
        return (value.double().square().sum(-1).sqrt() - 1).abs() <= 16 * torch.finfo(value.dtype).eps * self.dim
