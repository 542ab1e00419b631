"""Other packages, where they install and run."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["broadcast_gyroplane", "geoopt_ball", "pythae_normals", "pythae_vae"]


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


def pythae_vae(law: str, columns: int, hidden: int, dim: int, likelihood: str) -> Any | None:
    """Pythae's VAE ("ordinary") or PoincareVAE with the networks of the same size, or None."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pythae.models import VAE, PoincareVAE, PoincareVAEConfig, VAEConfig
            from pythae.models.base.base_utils import ModelOutput
            from pythae.models.nn import BaseDecoder, BaseEncoder
    except ImportError:
        return None
    spread = "log_concentration" if law == "riemannian" else "log_covariance"

    class Encoder(BaseEncoder):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = torch.nn.Linear(columns, hidden)
            self.heads = torch.nn.ModuleList(
                [torch.nn.Linear(hidden, dim), torch.nn.Linear(hidden, 1 if law == "riemannian" else dim)]
            )
            # Its samplers refuse wide posteriors, with which an untrained network starts.
            torch.nn.init.constant_(self.heads[1].bias, -3.0)

        def forward(self, x: Tensor) -> Any:
            features = self.hidden(x).relu()
            return ModelOutput(**{"embedding": self.heads[0](features), spread: self.heads[1](features)})

    class Decoder(BaseDecoder):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(dim, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, columns), torch.nn.Sigmoid()
            )

        def forward(self, z: Tensor) -> Any:
            return ModelOutput(reconstruction=self.layers(z))

    settings = {
        "input_dim": (columns,),
        "latent_dim": dim,
        "reconstruction_loss": "bce" if likelihood == "bernoulli" else "mse",
    }
    if law == "ordinary":
        return VAE(VAEConfig(**settings), Encoder(), Decoder())
    name = f"{law}_normal"
    config = PoincareVAEConfig(**settings, prior_distribution=name, posterior_distribution=name)
    return PoincareVAE(config, Encoder(), Decoder())


def broadcast_gyroplane(c: float) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return the gyroplane layer in ball coordinates by the paper's formulas, every point against every plane."""
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
