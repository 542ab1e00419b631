"""Checks of what users pass in: one line that names the argument, what it is, and what was expected."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "check_batch",
    "check_curvature",
    "check_weights",
    "has_float64",
    "points",
    "real",
    "require_float64",
    "tensor",
    "traced",
]


def traced(*tensors: Tensor) -> bool:
    """Whether values cannot be looked at: inside torch.compile, a torch.func transform, make_fx or a captured graph."""
    if torch.compiler.is_compiling():
        return True
    return (
        torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
        or any(t.is_meta or (t.is_cuda and torch.cuda.is_current_stream_capturing()) for t in tensors)
    )


@cache
def has_float64(device_type: str) -> bool:
    """Whether a kind of device computes in float64; one that is not there is not judged."""
    if device_type in ("cpu", "cuda", "meta"):
        return True
    if device_type == "mps":
        return False
    try:
        torch.zeros((), device=device_type)
    except (RuntimeError, AssertionError, NotImplementedError):
        return True
    try:
        torch.zeros((), dtype=torch.float64, device=device_type).add_(1.0)
    except (RuntimeError, TypeError, NotImplementedError):
        return False
    return True


def require_float64(device_type: str) -> None:
    if not has_float64(device_type):
        raise TypeError(
            f"the device {device_type} has no float64, which the geometry of curved spaces is computed in; "
            "use the CPU or CUDA"
        )


def tensor(name: str, value: Any) -> Tensor:
    """A tensor, not a list or an array."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(value).__name__}; convert it with torch.as_tensor({name})")
    return value


def real(name: str, value: Any) -> Tensor:
    """A tensor of real numbers; integers become the default dtype."""
    value = tensor(name, value)
    if (device_type := value.device.type) not in ("cpu", "cuda"):
        require_float64(device_type)
    if value.dtype.is_floating_point:
        return value
    if value.dtype.is_complex or value.dtype == torch.bool:
        raise TypeError(f"{name} must hold real numbers, got a tensor of {value.dtype}")
    return value.to(torch.get_default_dtype())


def points(name: str, value: Any, dim: int, space: object) -> Tensor:
    """Points or tangent vectors of a space: real numbers of shape (…, dim)."""
    value = real(name, value)
    if value.dim() == 0 or value.shape[-1] != dim:
        raise ValueError(f"{name} must have shape (…, {dim}) for {space}, got {tuple(value.shape)}")
    return value


def check_curvature(c: Tensor | float) -> Tensor | float:
    """c as a number or a tensor; negative values and those that are not finite are refused."""
    if isinstance(c, Tensor):
        c = real("c", c)
        if traced(c):
            return c
        valid = (c >= 0) & c.isfinite()
        if valid.all():
            return c
        bad = c[~valid][0].item()
    else:
        try:
            c = float(c)
        except (TypeError, ValueError):
            raise TypeError(f"c must be a number or a tensor, got {type(c).__name__}") from None
        if c >= 0 and math.isfinite(c):
            return c
        bad = c
    raise ValueError(f"c must be a finite number ≥ 0: the curvature of the space is −c, got c = {bad}")


def check_batch(c: Tensor, names: Iterable[str], shapes: Sequence[torch.Size]) -> None:
    """Refuse a c that does not broadcast against the batch shape of the points, or would add a dimension to it."""
    shape = torch.broadcast_shapes(*shapes)
    try:
        torch.broadcast_shapes(shape, c.shape)
        fits = c.dim() <= len(shape)
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"c of shape {tuple(c.shape)} does not broadcast against the batch shape {tuple(shape)} of "
            f"{', '.join(names)}; reshape c (c.squeeze(-1), say), or give the points more dimensions (x.unsqueeze(-2))"
        )


def check_weights(w: Any, count: int) -> Tensor:
    """Weights of so many points, shape (…, count)."""
    w = real("w", w)
    if w.dim() == 0 or w.shape[-1] != count:
        raise ValueError(f"w must have shape (…, {count}), one weight a point, got {tuple(w.shape)}")
    if traced(w):
        return w
    valid = w.isfinite() & (w >= 0)
    if not valid.all():
        raise ValueError(f"w must hold finite weights ≥ 0, got {w[~valid][0].item()}")
    if not (w.sum(-1) > 0).all():
        raise ValueError("w must not sum to 0: at least one point needs a weight above 0")
    return w
