"""The marginal likelihood by importance sampling, in constant memory for any number of samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .vae import VAE

__all__ = ["Marginal", "marginal_likelihood"]

# Numbers that one chunk of decoder outputs may hold, and draws a row in it.
_CHUNK = 1 << 22
_DRAWS = 512


@dataclass(frozen=True)
class Marginal:
    """Estimates of log p(x), one a row (float64)."""

    log_prob: Tensor
    ess: Tensor
    """effective sample size, between 1 and the number of samples"""
    error: Tensor
    """standard error of `log_prob`, by the delta method"""


def marginal_likelihood(
    model: VAE,
    x: Tensor,
    samples: int = 5000,
    generator: torch.Generator | None = None,
    shared: bool = False,
    advance: Callable[[int], None] = lambda rows: None,
) -> Marginal:
    """log p(x) of every row from the importance-weighted bound with the given number of samples.

    Arguments:
        model: the model.
        x: rows.
        samples: draws a row. The estimate is a lower bound in expectation and tight as the samples grow.
        generator: source of the noise.
        shared: use one set of base draws for all rows, so that the figure of a row depends on nothing but the row.
        advance: told the number of rows finished, for a progress bar.

    Example:
        >>> from curvae.models import Gaussian, Posterior, Prior
        >>> from curvae.nn import Curvature, decoder, mlp
        >>> c = Curvature(1.0)
        >>> model = VAE(mlp(5, 8), decoder("gyroplane", 2, (8,), 5, c), Posterior(8, 2, c), Prior(2, c), Gaussian(5))
        >>> marginal_likelihood(model, torch.zeros(3, 5), samples=1000).log_prob.shape
        torch.Size([3])
    """
    if samples < 1:
        raise ValueError(f"samples must be at least 1, got {samples}")
    features = model.likelihood.features
    # Normals drawn in pieces of another size are other normals, so the size must not depend on the number of rows.
    chunk = max(1, min(samples, _DRAWS, _CHUNK // features))
    rows = max(1, _CHUNK // (features * chunk))
    if shared and generator is None:
        generator = torch.Generator(x.device).manual_seed(int(torch.randint(1 << 62, ())))
    state = None if generator is None else generator.get_state()
    pieces = []
    with torch.no_grad():
        for part in x.split(rows):
            if shared and generator is not None and state is not None:
                generator.set_state(state)
            log_sum = torch.full((len(part),), -math.inf, dtype=torch.float64, device=x.device)
            log_square = log_sum
            for start in range(0, samples, chunk):
                k = min(chunk, samples - start)
                reconstruction, kl = model.terms(part, model.noise(1 if shared else len(part), k, generator))
                weights = reconstruction.double() - kl.double()
                log_sum = torch.logaddexp(log_sum, torch.logsumexp(weights, 0))
                log_square = torch.logaddexp(log_square, torch.logsumexp(2.0 * weights, 0))
            pieces.append((log_sum, log_square))
            advance(len(part))
    log_sum, log_square = (torch.cat(parts) for parts in zip(*pieces, strict=True))
    ess = (2.0 * log_sum - log_square).exp()
    error = (1.0 / ess - 1.0 / samples).clamp_min(0.0).sqrt()
    return Marginal(log_sum - math.log(samples), ess, error)
