"""From a configuration to a fresh model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray

from ..data import memory
from ..models import LIKELIHOODS, VAE, Layout, Posterior, Prior
from ..nn import NETWORKS, Curvature
from .config import Config

__all__ = ["build", "require_buildable", "seeded"]

# Fresh weights come from torch's one generator, which threads share.
_LOCK = Lock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw fresh weights from a seed, and leave torch's generator as it was."""
    with _LOCK, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def require_buildable(config: Config, layout: Layout) -> None:
    """Raise for a model that these data cannot have, or that is too large to be built, without building it."""
    if config.likelihood == "auto":
        raise ValueError('choose the likelihood before building: "auto" needs the data')
    sizes = (NETWORKS[config.network].width(_shape(layout)), *config.hidden, config.dim)
    # Weights of encoder and decoder, their gradients and two moments.
    memory.require(
        4 * 4 * 2 * sum(a * b for a, b in pairwise(sizes)),
        f"a model with layers of {', '.join(f'{size:,}' for size in sizes)}",
        mend="lower hidden or the dimension",
    )


def _shape(layout: Layout) -> tuple[int, ...]:
    return layout.shape or (layout.features,)


def build(
    config: Config, layout: Layout | int, blocks: tuple[int, ...] = (), mean: NDArray[np.float64] | None = None
) -> VAE:
    """A model with weights drawn from the configuration's seed.

    Arguments:
        config: with a likelihood other than "auto".
        layout: of the data; or the number of their columns, with the blocks of one-hot columns.
        blocks: for each column the number of its categories; see `Layout`.
        mean: column means of the (scaled) data; the decoder's last bias starts there, in units of its outputs.
    """
    if not isinstance(layout, Layout):
        layout = Layout(layout, tuple(blocks))
    require_buildable(config, layout)
    network, shape = NETWORKS[config.network], _shape(layout)
    with seeded(config.seed):
        curvature = Curvature(config.curvature, config.learn_curvature)
        likelihood = LIKELIHOODS[config.likelihood].make(layout)
        encoder, decoder = network.make(
            shape, layout.features, config.hidden, config.decoder, config.dim, likelihood.outputs, curvature
        )
        model = VAE(
            encoder,
            decoder,
            Posterior(config.hidden[-1], config.dim, curvature, config.posterior, config.diagonal),
            Prior(config.dim, curvature, config.posterior, config.prior_scale, config.learn_prior_scale),
            likelihood,
        )
    if mean is not None:
        decoder.start(likelihood.start(torch.from_numpy(mean)))
    return model
