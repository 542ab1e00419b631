"""The posterior of a model as a module, from features to a distribution on the latent space."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..distributions import HyperbolicNormal, ProductNormal
from ..geometry import checks
from ..nn import Curvature, Space
from ..nn.layers import FactorSum
from ..nn.networks import name_once
from ..settings import DistributionKind

__all__ = ["DistributionKind", "Latent", "Posterior", "check_noise"]


def check_noise(noise: Tensor, rows: int, dim: int, shared: bool = False) -> Tensor:
    """Refuse noise that is not of shape (k, rows, d) or, if it may be `shared` by the rows, (k, 1, d)."""
    noise = checks.real("noise", noise)
    if noise.dim() != 3 or noise.shape[-1] != dim or not (noise.shape[1] == rows or (shared and noise.shape[1] == 1)):
        raise ValueError(f"noise must have shape (k, {rows}, {dim}) for k draws, got {tuple(noise.shape)}")
    return noise


class Posterior(nn.Module):
    """The encoder's last layer: features h to a normal around μ = exp_0(h_μ) with standard deviation σ = softplus(h_σ).

    As in the paper (section 3.2) h_μ is a vector in ball coordinates, so μ lies at the distance 2|h_μ| from the origin.
    In a product every factor has its own.

    Arguments:
        in_features: width of the features.
        space: the latent space.

    Example:
        >>> from curvae.nn import Space
        >>> Posterior(64, Space("h2"))(torch.zeros(8, 64)).batch_shape
        torch.Size([8])
    """

    def __init__(self, in_features: int, space: Space) -> None:
        super().__init__()
        self.space = space
        self.head = nn.Linear(in_features, space.outputs)

    def start(self, scale: float) -> Posterior:
        """Begin as the last convolution of a graph does, with Glorot weights, and with σ near `scale`."""
        nn.init.xavier_uniform_(self.head.weight)
        with torch.no_grad():
            self.head.bias.zero_()
            for factor, bias in zip(self.space, self.space.split_outputs(self.head.bias), strict=True):
                bias[factor.dim :] = math.log(math.expm1(scale))
        return self

    def forward(self, features: Tensor) -> HyperbolicNormal | ProductNormal:
        """The posterior of every row, on `Lorentz`, in float64."""
        return self.space.posterior(self.head(features))

    def draw(
        self, features: Tensor, noise: Tensor, room: float = 1.0, dtype: torch.dtype | None = None
    ) -> tuple[Tensor, Tensor]:
        """A draw z made from `noise` of shape (k, rows, d), in `dtype` or else the parameters', and
        log q(z | x) − log p(z)."""
        return self.space.draw(self.head(features), noise, dtype or self.head.weight.dtype, room)


class Latent(nn.Module):
    """What models of rows and of graphs have in common: a posterior on a latent space."""

    posterior: Posterior

    def _set_posterior(self, posterior: Posterior) -> None:
        """Take the posterior; raise if a layer has another curvature than the space, or was made for another space."""
        self.posterior = posterior
        name_once(self)
        own = {id(factor.curvature) for factor in self.space}
        if any(id(part) not in own for part in self.modules() if isinstance(part, Curvature)):
            raise ValueError(
                "layers that own a Curvature must share that of the latent space: make it once, pass it on"
            )
        factors = [factor.width for factor in self.space], self.space.flat
        if any((part.widths, part.flat) != factors for part in self.modules() if isinstance(part, FactorSum)):
            raise ValueError("decoder and posterior must be made with the same space")

    @property
    def space(self) -> Space:
        """The latent space, with its curvatures and prior."""
        return self.posterior.space

    @property
    def dim(self) -> int:
        """Dimension of the latent space."""
        return self.space.dim

    @property
    def dtype(self) -> torch.dtype:
        """Of the networks; the latent space is always float64."""
        return self.posterior.head.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.posterior.head.weight.device

    def prior(self) -> HyperbolicNormal | ProductNormal:
        """p(z), on `Lorentz`."""
        return self.space.prior()

    def noise(self, rows: int, k: int = 1, generator: torch.Generator | None = None) -> Tensor:
        """Standard normal noise for k draws of each row, or node: shape (k, rows, d)."""
        if k < 1:
            raise ValueError(f"k, the number of draws, must be at least 1, got {k}")
        device = generator.device if generator is not None else self.device
        return torch.randn(k, rows, self.dim, generator=generator, device=device, dtype=torch.float32)
