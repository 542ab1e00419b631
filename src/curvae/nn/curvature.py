"""Curvature as a module, shared by every layer and distribution of a model."""

from __future__ import annotations

import math
from typing import Any, Self

import torch
from torch import Tensor, nn

from ..geometry import Lorentz
from ..geometry.checks import require_float64
from .saving import fixed_or_learned

__all__ = ["Curvature"]

_FROM_ZERO = "a learned curvature must start above 0: from c = 0 it would stay there"


class Curvature(nn.Module):
    """c ≥ 0, the space having curvature −c; fixed, or learned as exp of a free parameter.

    Encoder, prior and decoder share one instance and ask it for the manifold at every forward pass.

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
    fixed: Tensor

    def __init__(self, init: float = 1.0, learnable: bool = False) -> None:
        super().__init__()
        init = float(init)
        if not (init >= 0 and math.isfinite(init)):
            raise ValueError(f"c must be a finite number ≥ 0: the curvature of the space is −c, got c = {init}")
        if learnable and init == 0:
            raise ValueError(_FROM_ZERO)
        self.learnable = learnable
        if learnable:
            self.log_c = nn.Parameter(torch.tensor(math.log(init)))
        else:
            self.register_buffer("fixed", torch.tensor(init))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        fixed_or_learned(state_dict, prefix, "log_c", self.learnable)
        super()._load_from_state_dict(state_dict, prefix, *args)
        if self.learnable and state_dict.get(f"{prefix}log_c") == -math.inf:
            args[-1].append(_FROM_ZERO)  # the messages of errors

    def _apply(self, *args: Any, **kwargs: Any) -> Self:
        """`to`, `cuda` and the like, which every model passes on to its curvature."""
        moved = super()._apply(*args, **kwargs)
        require_float64(self().device.type)
        return moved

    def forward(self) -> Tensor:
        """c, a tensor without dimensions."""
        return self.log_c.exp() if self.learnable else self.fixed

    def lorentz(self, dim: int) -> Lorentz:
        """The hyperboloid of this curvature."""
        return Lorentz._unchecked(dim, self())

    def extra_repr(self) -> str:
        c = float(self().detach())
        return f"c={c:.4g} (curvature −{c:.4g})" + (", learnable" if self.learnable else "")
