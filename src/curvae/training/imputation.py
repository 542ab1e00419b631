"""Expected values of missing entries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data import Arrays
from ..data.missing import fill, places
from ..models import VAE, Batch
from .config import require_count
from .evaluate import require_finite
from .fitted import Fitted
from .rows import Data

__all__ = ["impute"]

_ROWS = 256  # at once
_NUMBERS = 1 << 22  # decoder outputs at once


def impute(
    fitted: Fitted,
    x: Data,
    samples: int = 1000,
    seed: int = 0,
    advance: Callable[[int], None] = lambda rows: None,
) -> Any:
    """The matrix with the expected value of every missing entry, given the entries of its row that are there.

    E[missing | observed] = Σ_k w_k E[x | z_k] / Σ_k w_k over draws z_k from the posterior of the row, with importance
    weights w = p(observed | z)·p(z)/q(z | observed): it tends to the exact expectation under the model as the samples
    grow, however rough the encoder is. One-hot columns get probabilities. All is computed in float64, from one set of
    draws for all rows, so that the figures of a row depend on nothing but the row.

    Arguments:
        fitted: a result of `fit`, best of data with `missing=True`: the encoder of another sees 0, in the units of the
            model, in place of what is missing.
        x: rows in original units, as of `fit`, in which NaN is missing.
        samples: draws a row.
        seed: of the draws.
        advance: called with how many more rows are finished.

    Returns:
        A matrix like that of x; entries that were there are unchanged.

    Example:
        >>> from curvae.training import Config, fit
        >>> x = np.random.default_rng(0).normal(size=(40, 1)) * [1.0, 2.0, -1.0]
        >>> x[0, 1] = np.nan
        >>> fitted = fit(Config(epochs=2, hidden=(8,)), Arrays(x, missing=True))
        >>> filled = impute(fitted, x)
        >>> bool(np.isfinite(filled).all()), bool((filled[1:] == x[1:]).all())
        (True, True)
    """
    require_count("samples", samples, "importance_samples")
    arrays, fitted = replace(Arrays.of(x), missing=True), fitted.double()
    rows, columns = places(arrays.x)
    lacking = np.unique(rows)
    values = np.empty(len(rows))
    for start in range(0, len(lacking), _ROWS):
        some = lacking[start : start + _ROWS]
        own = slice(*np.searchsorted(rows, (some[0], some[-1] + 1)))
        expected = _expected(fitted, arrays.take(some), samples, seed)
        values[own] = expected[np.searchsorted(some, rows[own]), columns[own]]
        advance(len(some))
    if not np.isfinite(values).all():
        finite = np.ones(len(arrays))
        finite[rows[~np.isfinite(values)]] = np.nan
        require_finite("expected value", [finite], getattr(x, "ids", None))
    return fill(arrays.x, values)


def _expected(fitted: Fitted, arrays: Arrays, samples: int, seed: int) -> NDArray[np.float64]:
    """Expected values of all entries of some rows, in original units."""
    model = fitted.model
    batch = fitted.rows(arrays).batch(torch.arange(len(arrays), device=model.device))
    noise = model.noise(1, samples, torch.Generator(model.device).manual_seed(seed))
    with torch.no_grad():
        means = _weighted(model, batch, noise, max(1, _NUMBERS // (len(batch) * model.likelihood.outputs)))
    return fitted.scaling.invert(means.cpu().numpy())


def _weighted(model: VAE, batch: Batch, noise: Tensor, draws: int) -> Tensor:
    """Means of E[x | z] by the weights of the draws, so many draws at a time."""
    total: Any = 0.0
    top = torch.full((len(batch),), -torch.inf, dtype=torch.float64, device=batch.device)
    weight = torch.zeros_like(top)
    for part in noise.split(draws):
        expected, logs = model.expected(batch, part)
        higher = torch.maximum(top, logs.amax(0))
        before, now = (top - higher).exp(), (logs - higher).exp()
        total = total * before.unsqueeze(-1) + (now.unsqueeze(-1) * expected).sum(0)
        weight, top = weight * before + now.sum(0), higher
    return total / weight.unsqueeze(-1)
