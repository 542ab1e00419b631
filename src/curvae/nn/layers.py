"""Layers of networks that begin or end in a curved space, and its numbers as modules: the curvature, and the standard
deviation of its prior; fixed, or learned. Points are space parts S of `curvae.Lorentz`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from ..geometry import Lorentz, checks, hyperboloid as h

__all__ = [
    "Curvature",
    "Curved",
    "ExpMap0",
    "FactorSum",
    "Gyroplane",
    "Layers",
    "LogMap0",
    "MobiusLinear",
    "PriorScale",
]


class _Number(nn.Module):
    """A number that is fixed, or learned as the exponential of a free parameter."""

    fixed: Tensor
    _log: ClassVar[str]  # the name of the free parameter

    def __init__(self, init: float, learnable: bool) -> None:
        super().__init__()
        self.learnable = learnable
        if learnable:
            self.register_parameter(self._log, nn.Parameter(torch.tensor(math.log(init))))
        else:
            self.register_buffer("fixed", torch.tensor(init))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Let a fixed value start a learned one, and a learned value be fixed."""
        own, other = (f"{prefix}{name}" for name in ((self._log, "fixed") if self.learnable else ("fixed", self._log)))
        if own not in state_dict and other in state_dict:
            value = state_dict.pop(other)
            state_dict[own] = value.log() if self.learnable else value.exp()
        super()._load_from_state_dict(state_dict, prefix, *args)

    def forward(self) -> Tensor:
        """Return the number, a tensor without dimensions."""
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

    _log = "log_c"

    def __init__(self, init: float = 1.0, learnable: bool = False) -> None:
        init = float(checks.check_curvature(init))
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
        checks.require_float64(self().device.type)
        return moved

    def lorentz(self, dim: int) -> Lorentz:
        """Return the hyperboloid of this curvature."""
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

    _log = "log_scale"

    def __init__(self, init: float = 1.0, learnable: bool = False) -> None:
        if not (init > 0 and math.isfinite(init)):
            raise ValueError(f"the prior's scale must be a positive number, got {init}")
        super().__init__(float(init), learnable)

    def extra_repr(self) -> str:
        return f"{float(self().detach()):.4g}" + (", learned" if self.learnable else "")


Curvatures = Tensor | Sequence[Tensor] | None


class Curved(nn.Module):
    """A layer that needs the curvature of a space: one of its own, or that which a call hands to it.

    Inside a model the `Space` owns the curvatures, and `Layers` hand them on.
    """

    def __init__(self, curvature: Curvature | None = None) -> None:
        super().__init__()
        self.curvature = curvature

    def _c(self, c: Curvatures) -> Tensor:
        """Return the curvature to work with."""
        if self.curvature is not None:
            return self.curvature()
        if c is None:
            raise ValueError(
                f"{type(self).__name__} has no curvature: call it with c, put it in curvae.nn.Layers of a model, "
                "or make it with a Curvature"
            )
        if isinstance(c, Tensor):
            return c
        if len(c) > 1:
            raise ValueError(
                f"{type(self).__name__} has one curvature, and the space {len(c)}: begin with a layer for each factor, "
                "as curvae.nn.decoder makes it"
            )
        return c[0]


class Layers(nn.Sequential):
    """Layers one after the other, as `nn.Sequential`, that hand the curvatures of a space to those that need them.

    Example:
        >>> layers = Layers(Gyroplane(2, 16), nn.ReLU(), nn.Linear(16, 5))
        >>> layers(torch.zeros(8, 2), torch.tensor(1.0)).shape
        torch.Size([8, 5])
    """

    def forward(self, x: Tensor, c: Curvatures = None) -> Tensor:
        for layer in self:
            x = layer(x, c) if isinstance(layer, Curved | Layers) else layer(x)
        return x


class FactorSum(Curved):
    """The first layer of a decoder of a product: the sum of a layer for each factor.

    Arguments:
        widths: coordinates of each factor.
        layers: of each factor, with equally many outputs.
        out_features: number of outputs.
        flat: which of the factors are taken to be flat.
    """

    def __init__(
        self, widths: Sequence[int], layers: Sequence[nn.Module], out_features: int, flat: Sequence[bool]
    ) -> None:
        super().__init__()
        self.widths, self.out_features, self.flat = list(widths), out_features, tuple(flat)
        self.factors = nn.ModuleList(layers)

    def forward(self, S: Tensor, c: Curvatures = None) -> Tensor:
        S = checks.points("S", S, sum(self.widths), "this layer")
        if c is None or isinstance(c, Tensor):
            raise ValueError(f"c must hold the curvatures of {len(self.factors)} factors")
        parts: Any = zip(self.factors, S.split(self.widths, -1), c, strict=True)
        first, *others = (layer(part, own) for layer, part, own in parts)
        return sum(others, first)


class ExpMap0(Curved):
    """exp_0: metric tangent vectors at the origin to points S.

    Example:
        >>> ExpMap0(Curvature(1.0))(torch.tensor([1.0, 0.0]))
        tensor([1.1752, 0.0000])
    """

    def forward(self, v: Tensor, c: Curvatures = None) -> Tensor:
        v = checks.tensor("v", v)  # of a space of any dimension
        return Lorentz._unchecked(v.shape[-1] if v.dim() else 1, self._c(c)).expmap0(v)


class LogMap0(Curved):
    """log_0: points S to metric tangent vectors at the origin; the inverse of `ExpMap0`."""

    def forward(self, S: Tensor, c: Curvatures = None) -> Tensor:
        S = checks.tensor("S", S)  # of a space of any dimension
        return Lorentz._unchecked(S.shape[-1] if S.dim() else 1, self._c(c)).logmap0(S)


class Ball(Curved):
    """Points S to ball coordinates."""

    def forward(self, S: Tensor, c: Curvatures = None) -> Tensor:
        return h.ball(S.double(), self._c(c).double()).to(S.dtype)


class Gyroplane(Curved):
    r"""Signed, scaled distances of a point to hyperplanes: the curved counterpart of `nn.Linear` (section 3.2).

    Unit k has an orientation a′_k and an offset point p_k = exp_0(p′_k), both free vectors in ball coordinates; a_k is
    a′_k transported from 0 to p_k. Its output is sign(⟨a, log_p z⟩)·‖a‖_p·d(z, H_{a,p}), that is

        f = 2|a′|·asinh(√c·y)/√c,    y = ⟨n, S⟩ − β·ξ,

    with n and β made from a′ and p′ alone, so a layer is one matrix product and an asinh. At c = 0 it is affine in S.

    Arguments:
        in_features: dimension d of the space.
        out_features: number of hyperplanes.
        curvature: of the space, if no call hands it to the layer.
        offset: "point", a free p′ as in the paper, or "scalar", p′ along a′, one number a unit.
        flat: whether c is known to be 0, where the layer is one affine map.

    Example:
        >>> layer = Gyroplane(2, 200, Curvature(1.0))
        >>> layer(torch.zeros(64, 2)).shape
        torch.Size([64, 200])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        curvature: Curvature | None = None,
        offset: Literal["point", "scalar"] = "point",
        flat: bool = False,
    ) -> None:
        super().__init__(curvature)
        self.flat = flat
        if offset not in ("point", "scalar"):
            raise ValueError(f'offset must be "point" or "scalar", got {offset!r}')
        self.in_features, self.out_features, self.offset_kind = in_features, out_features, offset
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.offset = nn.Parameter(torch.empty(out_features, in_features if offset == "point" else 1))
        # At c = 0, weights and biases of the affine map are as large as those of a fresh `nn.Linear`.
        bound = 1 / math.sqrt(in_features)
        nn.init.uniform_(self.weight, -bound / 2, bound / 2)
        nn.init.uniform_(self.offset, -bound * math.sqrt(0.75), bound * math.sqrt(0.75))

    @property
    def points(self) -> Tensor:
        """p′ of every hyperplane, (out_features, in_features)."""
        offset: Tensor = self.offset
        return offset if self.offset_kind == "point" else offset * h.direction(self.weight)[0]

    def forward(self, S: Tensor, c: Curvatures = None) -> Tensor:
        S = checks.points("S", S, self.in_features, "this layer")
        if self.flat:
            return nn.functional.linear(S, 2.0 * self.weight, -4.0 * h.dot(self.weight, self.points))
        return h.gyroplanes(S, self.weight, self.points, self._c(c))

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, offset={self.offset_kind!r}"


class MobiusLinear(Curved):
    """exp_0(W·log_0 x) ⊕ exp_0(b): the linear layer of hyperbolic neural networks, from points to points.

    Arguments:
        in_features, out_features: dimensions of the two spaces.
        curvature: of both, if no call hands it to the layer.
        bias: whether to translate by exp_0(b).

    References:
        Ganea et al. (2018).
    """

    def __init__(
        self, in_features: int, out_features: int, curvature: Curvature | None = None, bias: bool = True
    ) -> None:
        super().__init__(curvature)
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None
        bound = 1 / math.sqrt(in_features)
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, S: Tensor, c: Curvatures = None) -> Tensor:
        S = checks.points("S", S, self.weight.shape[1], "this layer")
        c, dtype = self._c(c).double(), torch.promote_types(S.dtype, self.weight.dtype)
        v = h.logmap0(S.double(), c).to(dtype)
        moved = h.expmap0(nn.functional.linear(v, self.weight).double(), c)
        if self.bias is not None:
            moved = h.translate(moved, h.expmap0(self.bias.double(), c), c)
        return h.saturate(moved, c, dtype)

    def extra_repr(self) -> str:
        rows, columns = self.weight.shape
        return f"{columns}, {rows}, bias={self.bias is not None}"
