"""From a configuration to a fresh model, with effects of covariates and a start at principal components."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..data import memory
from ..data.column_statistics import column_statistics, fill, has_missing
from ..errors import CurvaeError
from ..maps.statistics import Principal
from ..models import LIKELIHOODS, VAE, Layout, Likelihood, Posterior
from ..models.likelihoods.base import aligned_blocks, row_blocks
from ..nn import NETWORKS, Conditioned, Space, decoder
from ..nn.networks import drop_units
from .config import Config, Settings

__all__ = ["Effects", "build", "make_space", "require_buildable", "seeded"]


# How columns depend on covariates, by least squares.


@dataclass(frozen=True)
class Effects:
    """x ≈ mean + (context − centre)·slopes.

    Arguments:
        centre: mean of the context, (covariates,).
        slopes: of the columns, (covariates, features).
        variance: how much of the variance of each column the covariates make, (features,).

    Example:
        >>> batch = np.eye(2)[[0, 0, 1, 1]]
        >>> found = Effects.of(np.array([[1.0], [3.0], [5.0], [7.0]]), batch)
        >>> found.slopes.round(6).tolist(), found.removed(np.array([[5.0]]), batch[2:3]).round(6).tolist()
        ([[-2.0], [2.0]], [[3.0]])
    """

    centre: NDArray[np.float64]
    slopes: NDArray[Any]
    variance: NDArray[Any]

    @classmethod
    def of(cls, x: Any, context: Any) -> Effects:
        """Find the effects on the columns of a matrix, dense, sparse or on disk, in which missing values count as the
        mean of their column."""
        rows, known = x.shape[0], column_statistics(x)
        centre = sum(block.sum(0) for block in row_blocks(context)) / rows
        scatter, products = np.zeros((len(centre), len(centre))), np.zeros((len(centre), x.shape[1]))
        for given, block in aligned_blocks(context, x):
            apart = given - centre
            scatter += apart.T @ apart
            products += apart.T @ (fill(block, known.mean) if has_missing(block) else block)
        # All categories of a column add up to 1, so one eigenvalue is always 0 but for rounding.
        slopes = np.linalg.pinv(scatter, 1e-12, hermitian=True) @ products
        return cls(centre, slopes, ((scatter @ slopes) * slopes).sum(0) / rows)

    @property
    def directions(self) -> NDArray[np.float64]:
        """Orthonormal directions in which covariates move rows, (directions, features)."""
        _, sizes, directions = np.linalg.svd(self.slopes, full_matrices=False)
        return directions[sizes > 1e-6 * sizes.max()]

    def scaled(self, scale: NDArray[np.float64]) -> Effects:
        """Return the effects on columns that are divided by a scale."""
        return Effects(self.centre, self.slopes / scale, self.variance / scale**2)

    def removed(self, x: NDArray[Any], context: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return rows as they would be with the mean context."""
        return x - (context - self.centre) @ self.slopes


_RANDOM = 0.3  # of the places that fresh weights give, where maps start at principal components

# Fresh weights come from torch's one generator, which threads share.
_LOCK = Lock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw fresh weights from a seed, and leave torch's generator as it was."""
    with _LOCK, torch.random.fork_rng(devices=[]):
        # torch.manual_seed would also change the generators of all other devices, which are not put back.
        torch.default_generator.manual_seed(seed)
        yield


def make_space(config: Settings) -> Space:
    """Make the latent space of a model; raise where its prior reaches too far out."""
    return Space(
        config.factors,
        distribution=config.posterior,
        diagonal=config.diagonal,
        prior_scale=config.prior_scales,
        learn_prior_scale=config.learn_prior_scale,
        units=config.prior_scale == "auto" and config.dim > 2,  # up to two dimensions it is 1 for any curvature
    )


def require_buildable(config: Config, layout: Layout) -> None:
    """Raise for a model that these data cannot have, or that is too large to be built, without building it."""
    if config.likelihood == "auto":
        raise ValueError('choose the likelihood before building: "auto" needs the data')
    if config.encode_covariates and not layout.covariates and not layout.counts:
        raise CurvaeError("there are no covariates to give to the encoder; name some, or drop `encode_covariates`")
    width = NETWORKS[config.network].width(layout.shape or (layout.features,), layout.inputs)
    sizes = (width, *config.layers, config.dim)
    # Weights of encoder and decoder, their gradients and two moments.
    memory.require(
        4 * 4 * 2 * sum(a * b for a, b in pairwise(sizes)),
        f"a model with layers of {', '.join(f'{size:,}' for size in sizes)}",
        fix="lower `hidden` or the dimension",
    )
    make_space(config)


def build(
    config: Config,
    features: int | Layout,
    blocks: tuple[int, ...] = (),
    mean: NDArray[np.float64] | None = None,
    effects: Effects | None = None,
    seen: Effects | None = None,
    axes: Principal | None = None,
    likelihood: Likelihood | None = None,
) -> VAE:
    """Build a model with weights drawn from the configuration's seed.

    Arguments:
        config: with a likelihood other than "auto".
        features: columns of the data; or the whole layout of the data.
        blocks: for each column the number of its categories; see `Layout`.
        mean: column means of the (scaled) data; the decoder's last bias starts there, in units of its outputs.
        effects: of the covariates on the (scaled) data; the decoder starts with them. A decoder that had to find
            them first would let the latent space tell the batches apart, and unlearn that slowly if at all.
        seen: effects of the covariates on what the encoder is shown, by default the same; an MLP as encoder starts
            without a look at them.
        axes: coordinates of what the encoder is shown, with standard deviations of at most 1; an MLP as encoder starts
            with them as places of the rows.
        likelihood: one that is prepared for the data, of which the model gets a copy; by default a fresh one.
    """
    layout = features if isinstance(features, Layout) else Layout(features, tuple(blocks))
    require_buildable(config, layout)
    # Of defaults that are not resolved, where nothing is known of the rows, none.
    dropout, jitter = (0.0 if share == "auto" else share for share in (config.dropout, config.jitter))
    with seeded(config.seed):
        space = make_space(config)
        likelihood = deepcopy(likelihood) or LIKELIHOODS[config.likelihood].make(layout, config)
        dense = partial(decoder, config.decoder, space, config.layers[::-1])
        shape, context = layout.shape or (layout.features,), layout.covariates
        make = NETWORKS[config.network].make
        encoding, decoding = make(shape, layout.inputs, config.layers, likelihood.outputs, dense)
        drop_units(encoding, dropout)
        # The first dense layer is given the covariates.
        first = next((i for i, layer in enumerate(encoding) if isinstance(layer, nn.Linear)), 0)
        model = VAE(
            Conditioned(encoding, context, {first: config.layers[0]})
            if config.encode_covariates and context
            else encoding,
            Conditioned(decoding, context) if context else decoding,
            Posterior(config.layers[-1], space),
            likelihood,
            layout.missing,
            jitter=jitter,
        )
    with torch.no_grad():
        if mean is not None:
            _start(model, torch.from_numpy(mean), effects, seen)
        if axes is not None:
            _place(model, axes)
    return model


def _start(model: VAE, mean: Tensor, effects: Effects | None, seen: Effects | None) -> None:
    """Let the last layer of the decoder start at the means, and at those of every covariate that it is given."""
    start, network = model.likelihood.start, model.decoder
    layers: Any = network.layers if isinstance(network, Conditioned) else network
    bias = start(mean)
    if isinstance(network, Conditioned) and network.last is not None and effects is not None:
        slopes = torch.stack([start(mean + slope) for slope in torch.from_numpy(effects.slopes)]) - bias
        network.last.weight.copy_(slopes.T)
        bias = bias - torch.from_numpy(effects.centre) @ slopes
        # An MLP starts without a look at the directions in which covariates move rows.
        moved = torch.from_numpy((seen or effects).directions)
        encoder = model.encoder.layers if isinstance(model.encoder, Conditioned) else model.encoder
        first = encoder[1] if isinstance(encoder, nn.Sequential) and len(encoder) > 1 else None
        if isinstance(first, nn.Linear) and first.in_features >= moved.shape[1]:
            moved, weight = moved.to(first.weight.dtype), first.weight[:, : moved.shape[1]]
            weight -= weight @ moved.T @ moved
    layers.start(bias)


def _place(model: VAE, axes: Principal) -> None:
    """Let an MLP start with some coordinates of a row as its place, in units of the prior, and with a part of where
    fresh weights would have it.

    Two units of every layer hold a coordinate p, as max(p, 0) and max(−p, 0).
    """
    encoder: Any = model.encoder.layers if isinstance(model.encoder, Conditioned) else model.encoder
    first, *others = (layer for layer in encoder if isinstance(layer, nn.Linear))
    count = min(axes.axes.shape[1], *(layer.out_features // 2 for layer in (first, *others)))
    pairs = torch.from_numpy(np.stack([axes.axes, -axes.axes], -1)[:, :count]).flatten(1).T
    first.weight[: 2 * count] = 0.0
    first.weight[: 2 * count, : pairs.shape[1]] = pairs.to(first.weight.dtype)
    first.bias[: 2 * count] = -(pairs @ torch.from_numpy(axes.mean)).to(first.bias.dtype)
    for layer in others:
        layer.weight[: 2 * count] = 0.0
        layer.weight[: 2 * count, : 2 * count] = torch.block_diag(*[torch.tensor([[1.0, -1.0], [-1.0, 1.0]])] * count)
        layer.bias[: 2 * count] = 0.0
    head, space = model.posterior.head, model.posterior.space
    place = 0
    for factor, weight, bias in zip(
        space, space.split_outputs(head.weight.mT), space.split_outputs(head.bias), strict=True
    ):
        weight[:, : factor.located] *= _RANDOM
        bias[: factor.located] = 0.0
        length = float(factor.scale()) / 2 if factor.unit is None else 0.5
        for axis in range(min(factor.located, count - place)):
            weight[2 * place, axis] += length
            weight[2 * place + 1, axis] -= length
            place += 1
