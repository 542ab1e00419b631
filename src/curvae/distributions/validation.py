"""Checks of arguments and values: which one, what it is, and what was expected.

A check looks at values, which torch.compile and other tracers do not have: there it passes. vmap and the other
transforms of torch.func have them, one level further down, and are checked like plain tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch.distributions import Distribution

__all__ = ["Shape", "Validated", "as_float_tensor", "check_noise", "check_positive", "got", "holds", "offender"]


Shape = torch.Size | list[int] | tuple[int, ...]


def as_float_tensor(name: str, value: Any, like: Tensor | None = None) -> Tensor:
    """`value` as a tensor of floating point; integers and Python numbers take the dtype of `like`, or the default."""
    dtype, device = (None, None) if like is None else (like.dtype, like.device)
    if not isinstance(value, Tensor):
        try:
            number = isinstance(value, int | float)
            value = torch.as_tensor(value, dtype=dtype if number else None, device=device)
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(f"{name} must be a tensor or an array of numbers, got {type(value).__name__}") from error
    if value.is_complex():
        raise TypeError(f"{name} must be real, got {value.dtype}")
    return value if value.is_floating_point() else value.to(dtype or torch.get_default_dtype())


def _plain(value: Tensor) -> Tensor:
    """The tensor under the transforms of torch.func, with the dimensions that vmap maps over in front."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(value):
        dim = functorch.maybe_get_bdim(value)
        value = functorch.get_unwrapped(value)
        value = value if dim < 0 else value.movedim(dim, 0)
    return value


def holds(valid: Tensor) -> bool:
    """Whether every entry of the outcome of a check is true, as far as it can be seen."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0:
        return True
    return bool(_plain(valid).all())


def offender(value: Tensor, valid: Tensor) -> Tensor | None:
    """The first number or point of `value` whose entry in `valid` is false; None if vmap maps over one of them only."""
    value, valid = _plain(value.detach()), _plain(valid)
    return value[~valid][0] if value.shape[: valid.dim()] == valid.shape else None


def got(value: Tensor, valid: Tensor) -> str:
    """The end of a message about `offender`."""
    first = offender(value, valid)
    return "" if first is None else f", got {first.tolist()}"


def check_positive(name: str, value: Tensor) -> None:
    valid = (value > 0) & value.isfinite()
    if not holds(valid):
        raise ValueError(f"{name} must be positive and finite{got(value, valid)}")


def check_noise(noise: Tensor, batch_shape: Sequence[int], dim: int) -> None:
    """Raise unless standard normal noise fits the draws of a distribution."""
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
        value = as_float_tensor("value", value)
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
        valid = self.support.check(value)
        if not holds(valid):
            raise ValueError(
                f"Expected value argument (Tensor of shape {tuple(value.shape)}) to be within the support "
                f"({self.support!r}) of the distribution {self!r}, but found invalid values{got(value, valid)}"
            )
