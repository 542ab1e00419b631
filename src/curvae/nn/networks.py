"""Encoders and decoders: plain networks with one layer that knows the curved space."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import get_args

from torch import Tensor, nn

from ..geometry import hyperboloid as h
from ..settings import DecoderKind
from .curvature import Curvature
from .layers import Gyroplane, LogMap0, MobiusLinear
from .saving import name_once

__all__ = ["DecoderKind", "decoder", "mlp"]


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
