"""Encoders and decoders: plain networks with one layer that knows the curved space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal, get_args

from torch import Tensor, nn

from ..errors import CurvaeError
from ..geometry import hyperboloid as h
from .curvature import Curvature
from .layers import Gyroplane, LogMap0, MobiusLinear
from .saving import name_once

__all__ = ["Conditioned", "DecoderKind", "decoder", "mlp"]

DecoderKind = Literal["gyroplane", "gyroplane_scalar", "log_mlp", "mlp", "mobius"]


def mlp(*sizes: int) -> nn.Sequential:
    """Linear layers of the given sizes with ReLU after each; rows of any shape are flattened first.

    Example:
        >>> [type(layer).__name__ for layer in mlp(784, 600)]
        ['Flatten', 'Linear', 'ReLU']
    """
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers)


class Conditioned(nn.Module):
    """A network that is told a context: some of its layers give their output plus a linear function of the context.

    After a first layer that is affine, that is the same as one input more for every number of the context. The linear
    functions start at 0, so that fresh weights are those of the network without a context.

    Arguments:
        layers: the network.
        context: numbers that it is told.
        widths: the layers, by place, to whose output a function of the context is added, with the width of the output;
            by default the layers of a `decoder` that an activation follows, and the last.

    Example:
        >>> import torch
        >>> network = Conditioned(mlp(784, 600), 3, {1: 600})
        >>> network(torch.zeros(8, 784), torch.eye(3)[[0, 1, 1, 0, 2, 0, 1, 2]]).shape
        torch.Size([8, 600])
    """

    def __init__(self, layers: nn.Sequential, context: int, widths: Mapping[int, int] | None = None) -> None:
        super().__init__()
        self.context = context
        self.shifts = nn.ModuleDict()
        for place, width in (_widths(layers) if widths is None else widths).items():
            shift = nn.utils.skip_init(nn.Linear, context, width, bias=False)
            nn.init.zeros_(shift.weight)
            self.shifts[str(place)] = shift
        self.layers = layers
        name_once(self)

    @property
    def last(self) -> nn.Linear | None:
        """The function of the context that is added to what the network gives, if there is one."""
        found = dict(self.shifts.items()).get(str(len(self.layers) - 1))
        return found if isinstance(found, nn.Linear) else None

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Outputs for x of shape (n, …), given the context of shape (rows, context): n is a multiple of the rows, and
        x holds all of them before it holds the first again."""
        if context is None:
            raise CurvaeError(f"this model needs the covariates of the rows, a context of {self.context} numbers each")
        if context.shape[-1] != self.context:
            raise CurvaeError(f"the context must hold {self.context} numbers a row, got {context.shape[-1]}")
        for place, layer in enumerate(self.layers):
            x = layer(x)
            if str(place) in self.shifts:
                shift = self.shifts[str(place)](context)
                x = (x.reshape(-1, *shift.shape) + shift).reshape(x.shape)
        return x


def _widths(layers: nn.Sequential) -> dict[int, int]:
    """The layers that an activation follows, and the last, by place, with the width of their output."""
    found, width = {}, 0
    for place, layer in enumerate(layers):
        width = len(layer.weight) if isinstance(layer, nn.Linear | Gyroplane | MobiusLinear) else width
        if place + 1 == len(layers) or isinstance(layers[place + 1], nn.ReLU):
            found[place] = width
    return found


class _Ball(nn.Module):
    """Points S to ball coordinates."""

    def __init__(self, curvature: Curvature) -> None:
        super().__init__()
        self.curvature = curvature

    def forward(self, S: Tensor) -> Tensor:
        return h.ball(S.double(), self.curvature().double()).to(S.dtype)


def decoder(
    kind: DecoderKind, dim: int, hidden: Sequence[int], out_features: int, curvature: Curvature
) -> nn.Sequential:
    """A network from points S of the space to the parameters of a likelihood (section 3.2 and the decoder ablation).

    Arguments:
        kind: the first layer: "gyroplane", distances to hyperplanes; "gyroplane_scalar", the same hyperplanes with
            their offsets as one number each in place of a point; "log_mlp", an affine map of log_0; "mlp", an
            affine map of ball coordinates; "mobius", a Möbius layer followed by log_0. At curvature 0, "log_mlp" is the
            ordinary MLP, and a gyroplane is an affine map too, in the parameters of curved ones.
        dim: dimension of the space.
        hidden: widths of the hidden layers, at least one.
        out_features: number of outputs.
        curvature: shared curvature.

    Example:
        >>> decoder("gyroplane", 2, (200,), 50, Curvature(1.0))
        Sequential(
          (0): Gyroplane(
            2, 200, offset='point'
            (curvature): Curvature(c=1 (curvature −1))
          )
          (1): ReLU()
          (2): Linear(in_features=200, out_features=50, bias=True)
        )
    """
    if kind not in get_args(DecoderKind):
        raise ValueError(f"decoder must be one of {', '.join(get_args(DecoderKind))}; got {kind!r}")
    if not hidden:
        raise ValueError("a decoder needs at least one hidden layer, for example hidden=(200,)")
    width = hidden[0]
    flat = not curvature.learnable and float(curvature()) == 0
    first: list[nn.Module]
    if kind in ("gyroplane", "gyroplane_scalar"):
        first = [Gyroplane(dim, width, curvature, "point" if kind == "gyroplane" else "scalar")]
    elif kind == "mlp":
        first = [_Ball(curvature), nn.Linear(dim, width)]
    elif kind == "mobius":
        first = [MobiusLinear(dim, width, curvature), LogMap0(curvature)]
    else:
        first = [*([] if flat else [LogMap0(curvature)]), nn.Linear(dim, width)]
    rest = list(mlp(*hidden))[1:]
    return name_once(nn.Sequential(*first, nn.ReLU(), *rest, nn.Linear(hidden[-1], out_features)))
