"""Numbers of a space as modules: its curvature, and the standard deviation of its prior; fixed, or learned."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from ..geometry import Lorentz
from ..geometry.checks import require_float64

__all__ = ["Curvature", "PriorScale"]


class _Number(nn.Module):
    """A number that is fixed, or learned as the exponential of a free parameter."""

    fixed: Tensor
    _log: ClassVar[str]
    """the name of the free parameter"""

    def __init__(self, init: float, learnable: bool) -> None:
        super().__init__()
        self.learnable = learnable
        if learnable:
            self.register_parameter(self._log, nn.Parameter(torch.tensor(math.log(init))))
        else:
            self.register_buffer("fixed", torch.tensor(init))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """A fixed value starts a learned one, and a learned value can be fixed."""
        own, other = (f"{prefix}{name}" for name in ((self._log, "fixed") if self.learnable else ("fixed", self._log)))
        if own not in state_dict and other in state_dict:
            value = state_dict.pop(other)
            state_dict[own] = value.log() if self.learnable else value.exp()
        super()._load_from_state_dict(state_dict, prefix, *args)

    def forward(self) -> Tensor:
        """The number, a tensor without dimensions."""
        return getattr(self, self._log).exp() if self.learnable else self.fixed


_FROM_ZERO = "a learned curvature must start above 0: from c = 0 it would stay there"


class Curvature(_Number):
    """c ≥ 0, the space having curvature −c; fixed, or learned as exp of a free parameter.

    A `Space` owns the curvatures of its factors. A layer that is used outside a model may own one too.

    Arguments:
        init: the value of c, or where learning starts.
        learnable: whether c is a parameter.

    Example:
        >>> curvature = Curvature(0.7)
        >>> curvature
        Curvature(c=0.7 (curvature −0.7))
        >>> curvature.lorentz(2)
        Lorentz(2, c=0.699999988079071)
    """

    log_c: nn.Parameter
    _log = "log_c"

    def __init__(self, init: float = 1.0, learnable: bool = False) -> None:
        init = float(init)
        if not (init >= 0 and math.isfinite(init)):
            raise ValueError(f"c must be a finite number ≥ 0: the curvature of the space is −c, got c = {init}")
        if learnable and init == 0:
            raise ValueError(_FROM_ZERO)
        super().__init__(init, learnable)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        if self.learnable and state_dict.get(f"{prefix}log_c") == -math.inf:
            args[-1].append(_FROM_ZERO)  # the messages of errors

    def _apply(self, *args: Any, **kwargs: Any) -> Self:
        """`to`, `cuda` and the like, which every model passes on to its curvatures."""
        moved = super()._apply(*args, **kwargs)
        require_float64(self().device.type)
        return moved

    def lorentz(self, dim: int) -> Lorentz:
        """The hyperboloid of this curvature."""
        return Lorentz._unchecked(dim, self())

    def extra_repr(self) -> str:
        c = float(self().detach())
        return f"c={c:.4g} (curvature −{c:.4g})" + (", learnable" if self.learnable else "")


class PriorScale(_Number):
    """The standard deviation σ0 > 0 of a prior.

    Arguments:
        init: its value, or where learning starts.
        learnable: whether it is a parameter.
    """

    log_scale: nn.Parameter
    _log = "log_scale"

    def __init__(self, init: float = 1.0, learnable: bool = False) -> None:
        if not (init > 0 and math.isfinite(init)):
            raise ValueError(f"the prior's scale must be a positive number, got {init}")
        super().__init__(float(init), learnable)

    def extra_repr(self) -> str:
        return f"{float(self().detach()):.4g}" + (", learned" if self.learnable else "")
