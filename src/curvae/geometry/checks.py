"""Checks of what users pass in: one line that names the argument, what it is, and what was expected.

A check looks at values, which torch.compile and other tracers do not have: there it passes. vmap and the other
transforms of torch.func have them, one level further down, and are checked like plain tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "batch_shape_of",
    "broadcast_shapes",
    "check_batch",
    "check_curvature",
    "check_dim",
    "check_weights",
    "got",
    "has_float64",
    "holds",
    "offender",
    "points",
    "real",
    "require_float64",
    "tensor",
]


def holds(valid: Tensor) -> bool:
    """Return whether every entry of the outcome of a check is true, as far as its values can be seen."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0:
        return True
    if valid.is_meta or (valid.is_cuda and torch.cuda.is_current_stream_capturing()):
        return True
    return bool(_plain(valid).all())


def _plain(value: Tensor) -> Tensor:
    """Return the tensor under the transforms of torch.func, with the dimensions that vmap maps over in front."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(value):
        dim = functorch.maybe_get_bdim(value)
        value = functorch.get_unwrapped(value)
        value = value if dim < 0 else value.movedim(dim, 0)
    return value


def offender(value: Tensor, valid: Tensor) -> Tensor | None:
    """Return the first number or point of `value` whose entry in `valid` is false; None if vmap maps over one of
    them only."""
    value, valid = _plain(value.detach()), _plain(valid)
    return value[~valid][0] if value.shape[: valid.dim()] == valid.shape else None


def got(value: Tensor, valid: Tensor) -> str:
    """Return the end of a message about `offender`."""
    first = offender(value, valid)
    return "" if first is None else f", got {first.tolist()}"


@cache
def has_float64(device_type: str) -> bool:
    """Return whether a kind of device computes in float64; one that is not there is not judged."""
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
    """Require a tensor, not a list or an array."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(value).__name__}; convert it with torch.as_tensor({name})")
    return value


def real(name: str, value: Any) -> Tensor:
    """Require a tensor of real numbers; integers become the default dtype."""
    value = tensor(name, value)
    if (device_type := value.device.type) not in ("cpu", "cuda"):
        require_float64(device_type)
    if value.dtype.is_floating_point:
        return value
    if value.dtype.is_complex or value.dtype == torch.bool:
        raise TypeError(f"{name} must hold real numbers, got a tensor of {value.dtype}")
    return value.to(torch.get_default_dtype())


def points(name: str, value: Any, dim: int, space: object) -> Tensor:
    """Return points or tangent vectors of a space: real numbers of shape (…, dim)."""
    value = real(name, value)
    if value.dim() == 0 or value.shape[-1] != dim:
        raise ValueError(f"{name} must have shape (…, {dim}) for {space}, got {tuple(value.shape)}")
    return value


def check_dim(dim: Any) -> int:
    """Return the dimension of a space; anything but a whole number from 1 is refused."""
    if not isinstance(dim, int) or dim < 1:
        raise ValueError(f"dim must be a positive integer, got {dim!r}")
    return dim


def check_curvature(c: Tensor | float, sphere: bool = False) -> Tensor | float:
    """Return c as a number or a tensor; values that are not finite are refused, and those of the wrong sign: a sphere
    has c < 0, every other space c ≥ 0."""
    if isinstance(c, Tensor):
        c = real("c", c)
        valid = (c < 0 if sphere else c >= 0) & c.isfinite()
        if holds(valid):
            return c
        first = offender(c, valid)
        bad = "" if first is None else f", got c = {first.item()}"
    else:
        try:
            c = c.__float__()  # float() would read text too
        except (AttributeError, TypeError, ValueError):
            raise TypeError(f"c must be a number or a tensor, got {type(c).__name__}") from None
        if (c < 0 if sphere else c >= 0) and math.isfinite(c):
            return c
        bad = f", got c = {c}"
    expected = (
        "< 0: the curvature of the sphere is −c, 1 for c = -1" if sphere else "≥ 0: the curvature of the space is −c"
    )
    raise ValueError(f"c must be a finite number {expected}{bad}")


def broadcast_shapes(*shapes: Sequence[int]) -> torch.Size:
    """Broadcast shapes as torch does, whose first use of its own function imports a system of computer algebra, some
    tenths of a second; that is left to compilers, whose shapes may be symbols, and to shapes that do not fit.
    """
    if not torch.compiler.is_compiling():
        try:
            return torch.Size(np.broadcast_shapes(*map(tuple, shapes)))
        except ValueError:
            pass
    return torch.broadcast_shapes(*shapes)


def batch_shape_of(**parameters: tuple[Tensor, int]) -> torch.Size:
    """Broadcast the batch shapes of parameters, each given with its number of event dimensions."""
    try:
        return broadcast_shapes(*(value.shape[: value.dim() - event] for value, event in parameters.values()))
    except RuntimeError:
        shapes = " and ".join(f"{name} of shape {tuple(value.shape)}" for name, (value, _) in parameters.items())
        raise ValueError(f"{' and '.join(parameters)} must have batch shapes that broadcast, got {shapes}") from None


def check_batch(c: Tensor, names: Iterable[str], shapes: Sequence[torch.Size]) -> torch.Size:
    """Return the batch shape of points and c: that of c for a single point. Otherwise a c that does not broadcast
    against that of the points, or would add a dimension to it, is refused."""
    shape = broadcast_shapes(*shapes)
    try:
        both = broadcast_shapes(shape, c.shape)
        fits = c.dim() <= len(shape) or not shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"c of shape {tuple(c.shape)} does not broadcast against the batch shape {tuple(shape)} of "
            f"{', '.join(names)}; reshape c (c.squeeze(-1), say), or give the points more dimensions (x.unsqueeze(-2))"
        )
    return both


def check_weights(w: Any, count: int) -> Tensor:
    """Return weights of so many points, shape (…, count)."""
    w = real("w", w)
    if w.dim() == 0 or w.shape[-1] != count:
        raise ValueError(f"w must have shape (…, {count}), one weight a point, got {tuple(w.shape)}")
    if not holds(valid := w.isfinite() & (w >= 0)):
        raise ValueError(f"w must hold finite weights ≥ 0{got(w, valid)}")
    if not holds(w.sum(-1) > 0):
        raise ValueError("w must not sum to 0: at least one point needs a weight above 0")
    return w
