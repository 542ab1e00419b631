"""Checks of arguments: what, which value, and what was expected."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions import Distribution

__all__ = ["Shape", "broadcast_shape", "check_positive", "check_support", "parameter", "resolve_validation"]


Shape = torch.Size | list[int] | tuple[int, ...]


def resolve_validation(validate_args: bool | None) -> tuple[bool, bool]:
    """Whether to check arguments, and whether also every draw.

    By default arguments are checked as everywhere in torch.distributions, but not inside torch.compile or a
    torch.func transform, where a check cannot look at values; draws are checked only when asked for, because
    it makes the host wait.
    """
    if validate_args is not None:
        return validate_args, validate_args
    traced = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    return bool(Distribution._validate_args) and not traced, False


def parameter(value: Tensor | float) -> Tensor:
    return value if isinstance(value, Tensor) else torch.tensor(float(value))


def broadcast_shape(*shapes: Sequence[int]) -> torch.Size:
    return torch.broadcast_shapes(*shapes)


def check_positive(name: str, value: Tensor) -> None:
    bad = ~(value > 0) | ~value.isfinite()
    if bad.any():
        raise ValueError(f"{name} must be positive and finite, got {value[bad].flatten()[0].item()}")


def check_support(name: str, value: Tensor, valid: Tensor, expected: str) -> None:
    if not bool(valid.all()):
        raise ValueError(f"{name} must be {expected}, got {value[~valid][0].tolist()}")
