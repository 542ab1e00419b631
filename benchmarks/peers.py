"""Other packages, where they install and run."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["broadcast_gyroplane", "geoopt_ball", "pythae_normals"]


def geoopt_ball(c: float) -> Any | None:
    """geoopt's Poincaré ball, or None."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import geoopt
    except ImportError:
        return None
    return geoopt.PoincareBall(c)


def pythae_normals() -> tuple[Any, Any, Any] | None:
    """Pythae's (PoincareBall, WrappedNormal, RiemannianNormal), or None."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pythae.models.pvae import pvae_utils
    except ImportError:
        return None
    return pvae_utils.PoincareBall, pvae_utils.WrappedNormal, pvae_utils.RiemannianNormal


def broadcast_gyroplane(c: float) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The gyroplane value in ball coordinates by the paper's formulas, every point against every plane."""
    root = c**0.5

    def layer(z: Tensor, a: Tensor, p: Tensor) -> Tensor:
        length = p.norm(dim=-1, keepdim=True).clamp_min(1e-15)
        offset = torch.tanh(root * length) * p / (root * length)
        transported = a * (1 - c * offset.square().sum(-1, keepdim=True))
        x, y = -offset, z.unsqueeze(-2)
        xy, xx, yy = (x * y).sum(-1, keepdim=True), x.square().sum(-1, keepdim=True), y.square().sum(-1, keepdim=True)
        w = ((1 + 2 * c * xy + c * yy) * x + (1 - c * xx) * y) / (1 + 2 * c * xy + c * c * xx * yy)
        size = transported.norm(dim=-1)
        inner = (w * transported).sum(-1)
        distance = torch.asinh(2 * root * inner / ((1 - c * w.square().sum(-1)) * size)) / root
        return 2 / (1 - c * offset.square().sum(-1)) * size * distance

    return layer
