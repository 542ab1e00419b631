"""Posterior and prior over the curved space, as modules."""

from __future__ import annotations

import math
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..distributions import HyperbolicNormal, RiemannianNormal, WrappedNormal
from ..distributions.step import draw_and_divergence
from ..errors import CurvaeError
from ..geometry import checks
from ..geometry import hyperboloid as h
from ..geometry.functions import REACH
from ..nn import Curvature
from ..nn.saving import fixed_or_learned
from ..settings import Law

__all__ = ["Law", "Posterior", "Prior", "check_noise"]

# Added to the posterior's deviation, so that its logarithm is finite wherever a network wanders; not a clamp: the
# gradient lives on.
_SMALLEST = 1e-8


def _law(name: Law) -> type[WrappedNormal] | type[RiemannianNormal]:
    if name not in get_args(Law):
        raise ValueError(f"law must be one of {', '.join(get_args(Law))}; got {name!r}")
    return WrappedNormal if name == "wrapped" else RiemannianNormal


def check_noise(noise: Tensor, rows: int, dim: int, shared: bool = False) -> Tensor:
    """Refuse noise that is not of shape (k, rows, d) or, if it may be `shared` by the rows, (k, 1, d)."""
    noise = checks.real("noise", noise)
    if noise.dim() != 3 or noise.shape[-1] != dim or not (noise.shape[1] == rows or (shared and noise.shape[1] == 1)):
        raise ValueError(f"noise must have shape (k, {rows}, {dim}) for k draws, got {tuple(noise.shape)}")
    return noise


class Posterior(nn.Module):
    """The encoder's last layer: features h to a normal around μ = exp_0(h_μ) with deviation σ = softplus(h_σ).

    As in the paper (section 3.2) h_μ is a vector in ball coordinates, so μ lies at the distance 2|h_μ| from the origin.

    Arguments:
        in_features: width of the features.
        dim: dimension of the space.
        curvature: shared curvature.
        law: "riemannian" or "wrapped".
        diagonal: one deviation an axis, for the wrapped normal; otherwise one for all.
    """

    def __init__(
        self, in_features: int, dim: int, curvature: Curvature, law: Law = "riemannian", diagonal: bool = False
    ) -> None:
        super().__init__()
        if diagonal and law != "wrapped":
            raise ValueError('a diagonal posterior needs law="wrapped": the Riemannian normal has a single deviation')
        self.dim, self.curvature, self.law, self.diagonal = dim, curvature, _law(law), diagonal
        self.head = nn.Linear(in_features, dim + (dim if diagonal else 1))

    def start(self, deviation: float) -> Posterior:
        """Begin as the last convolution of a graph does, with Glorot weights, and with σ near `deviation`."""
        nn.init.xavier_uniform_(self.head.weight)
        with torch.no_grad():
            self.head.bias.zero_()
            self.head.bias[self.dim :] = math.log(math.expm1(deviation))
        return self

    def _tangent(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """log_0 μ and σ, float64."""
        u, spread = self.head(features).double().split([self.dim, self.dim if self.diagonal else 1], -1)
        return 2.0 * u, F.softplus(spread) + _SMALLEST

    def forward(self, features: Tensor) -> HyperbolicNormal:
        """The posterior of every row, on `Lorentz`, in float64."""
        u, scale = self._tangent(features)
        manifold = self.curvature.lorentz(self.dim)
        return self.law(h.expmap0(u, manifold._c), scale, manifold, validate_args=False)

    def draw(
        self, features: Tensor, noise: Tensor, prior: Prior, room: float = 1.0, dtype: torch.dtype | None = None
    ) -> tuple[Tensor, Tensor]:
        """A draw z made from `noise` of shape (k, rows, d), in `dtype` or else the parameters', and
        log q(z | x) − log p(z)."""
        c, dtype = self.curvature().double(), dtype or self.head.weight.dtype
        if prior.law is self.law:
            u, scale = self._tangent(features)
            return draw_and_divergence(u, scale, noise, c, prior.scale().double(), self.law, dtype, room)
        z, log_q = self(features).transform_and_log_prob(noise)
        return h.saturate(z, c, dtype, room), log_q - prior().log_prob(z)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, law={self.law.__name__}, diagonal={self.diagonal}"


class Prior(nn.Module):
    """A normal around the origin, with a fixed or learned deviation.

    Where a decoder can follow, as in a `VAE`, only c·σ0² can be told from data: scaling the latent space by k with
    c → c/k² and σ → kσ changes nothing.

    Arguments:
        dim: dimension of the space.
        curvature: shared curvature.
        law: "riemannian" or "wrapped".
        scale: the deviation σ0, or where learning starts.
        learn_scale: whether it is a parameter.
    """

    fixed: Tensor
    log_scale: nn.Parameter

    def __init__(
        self, dim: int, curvature: Curvature, law: Law = "riemannian", scale: float = 1.0, learn_scale: bool = False
    ) -> None:
        super().__init__()
        if not (scale > 0 and math.isfinite(scale)):
            raise ValueError(f"the prior's scale must be a positive number, got {scale}")
        self.dim, self.curvature, self.law, self.learn_scale = dim, curvature, _law(law), learn_scale
        # Farther out coordinates saturate, and a divergence computed from them would come out far below 0.
        root = math.sqrt(float(curvature().detach())) * scale
        farthest = root * (9.0 + ((dim - 1) * root if law == "riemannian" else math.sqrt(dim)))
        if farthest > REACH:
            raise CurvaeError(
                f"a {law} prior with c·σ0² = {root * root:.4g} in {dim} dimensions reaches out to "
                f"√c·radius {farthest:.0f}, and distances can be computed up to {REACH:.0f}; "
                "lower the curvature or the prior's scale"
            )
        if learn_scale:
            self.log_scale = nn.Parameter(torch.tensor(math.log(scale)))
        else:
            self.register_buffer("fixed", torch.tensor(float(scale)))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        fixed_or_learned(state_dict, prefix, "log_scale", self.learn_scale)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def scale(self) -> Tensor:
        """σ0."""
        return self.log_scale.exp() if self.learn_scale else self.fixed

    def identifiable(self) -> Tensor:
        """c·σ0², the one number that says how curved the latent space is."""
        return self.curvature() * self.scale() ** 2

    def forward(self) -> HyperbolicNormal:
        """The prior, on `Lorentz`, in float64."""
        return self.law.centred(self.scale().double(), self.curvature.lorentz(self.dim))

    def extra_repr(self) -> str:
        learned = ", learned" if self.learn_scale else ""
        return f"dim={self.dim}, law={self.law.__name__}, scale={float(self.scale().detach()):.4g}{learned}"
