"""Which rows belong to no part of what a model was trained on?

The log-likelihood of a row depends on its size. So it is compared with that of rows that the model itself draws at the
same place: by how many standard deviations does it differ? These scores are those of unknown batches for all rows, so
that rows of the reference that were held out and rows of a query have the same. A query has a shift of its own, for its
batches are others; rows of nothing known are far below the rest.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data import Arrays, Dataset
from ..data.disk import in_memory
from ..models import Batch
from .fitted import Fitted

__all__ = ["fit_scores", "held_out_fit", "unknown_probability"]

Array = NDArray[np.float64]

_DRAWS, _ROWS = 5, 256  # of every row, and rows at once
_FEWEST, _HELD_OUT = 20, 500  # rows held out that tell how well known ones fit, at least and at most
_SHIFT, _WIDER = 3.0, 1.5  # standard deviations by which known rows of a query may lie lower, and how much wider
_APART = 2.0  # standard deviations of known rows in a scale of unknown ones, at least
_STEPS, _STARTS = 100, (0.25, 0.5, 0.75, 0.9)


@torch.no_grad()
def fit_scores(fitted: Fitted, data: Dataset, seed: int = 0) -> Array:
    """Return by how many standard deviations the evidence lower bound of each row exceeds that of rows like it.

    Arguments:
        fitted: a model of counts.
        data: the rows, whose batches are not looked at: others than those of the model do.
        seed: of the draws.
    """
    fitted = fitted.double()
    rows, model = fitted.rows(_of_any_batch(fitted, data)), deepcopy(fitted.model)
    likelihood: Any = model.likelihood
    likelihood.sizes = None  # those of a query need not be those of the reference
    generator = torch.Generator(model.device).manual_seed(seed)

    def bound(batch: Batch) -> tuple[Tensor, Tensor]:
        z, kl = model.draw(batch, model.noise(len(batch), 1, generator))
        return z, (model.reconstruction(z, batch) - kl)[0]

    found = []
    for index in torch.arange(len(rows)).split(_ROWS):
        batch = rows.batch(index)
        z, own = bound(batch)
        outputs = model.decode(z, batch.context)
        drawn = [likelihood.sample(outputs, batch, generator)[0] for _ in range(_DRAWS)]
        sizes = [x.sum(1).clamp_min(1.0) if fitted.layout.total else batch.size for x in drawn]
        others = [Batch(x, context=batch.context, size=size) for x, size in zip(drawn, sizes, strict=True)]
        found.append(torch.stack([own, *(bound(other)[1] for other in others)]))
    own, *expected = torch.cat(found, 1).cpu().numpy()
    mean, variance = np.mean(expected, 0), np.var(expected, 0, ddof=1)
    # A few draws tell a variance badly; it grows with the size of the row as the mean does.
    known = np.stack([np.ones_like(mean), np.log(np.abs(mean))], 1)
    slopes = np.linalg.lstsq(known, np.log(np.maximum(variance, 1e-12)), rcond=None)[0]
    smooth = np.exp(known @ slopes)
    return (own - mean) / np.sqrt(smooth * np.mean(variance) / np.mean(smooth))


def _of_any_batch(fitted: Fitted, data: Dataset) -> Arrays:
    """Return rows as a model sees those of a batch that it does not know: with equal shares of all that it knows."""
    arrays = data.arrays
    if arrays.context is None or not data.batch:
        return arrays
    first, count = data.batch
    context, batches = np.array(in_memory(arrays.context)), fitted.layout.batch[1] if fitted.layout.batch else 0
    shares = np.full((len(context), batches), 1 / max(1, batches))
    context = np.concatenate([context[:, :first], shares, context[:, first + count :]], 1)
    return replace(arrays, context=context if context.shape[1] else None, batch=fitted.layout.batch)


def held_out_fit(fitted: Fitted, data: Dataset) -> dict[str, float]:
    """Return mean and standard deviation of the scores of rows that were held out, or of others if there are few."""
    split, random = fitted.split, np.random.default_rng(0)
    rows = np.concatenate([split.validation, split.test])
    rows = rows if len(rows) >= _FEWEST else split.train
    scores = fit_scores(fitted, data.take(np.sort(random.permutation(rows)[:_HELD_OUT])).load())
    return {"mean": float(scores.mean()), "deviation": float(scores.std())}


def unknown_probability(scores: Array, mean: float, deviation: float) -> Array:
    """Return the probability of every row that nothing like it is known.

    Scores are a mixture: those of known rows are normal, as those held out but for a shift that all have in common, and
    those of others lie below by a gamma distributed distance. Its parameters are the likeliest ones.

    Arguments:
        scores: of all rows of a query.
        mean, deviation: of the scores of known rows, see `held_out_fit`.

    Example:
        >>> random = np.random.default_rng(0)
        >>> found = unknown_probability(np.concatenate([random.normal(size=80), random.normal(-20, 5, 20)]), 0.0, 1.0)
        >>> bool(found[:80].max() < 0.5 < found[80:].min())
        True
    """
    starts = np.quantile(scores, _STARTS)
    return max((_mixture(scores, start, mean, deviation) for start in starts), key=lambda found: found[0])[1]


def _mixture(scores: Array, place: float, mean: float, deviation: float) -> tuple[float, Array]:
    """Return the log-likelihood of a mixture that was fitted from a start on, and the probabilities of unknown rows."""
    share, width, scale = 0.1, deviation, 5 * deviation
    total, unknown = 0.0, np.zeros(len(scores))
    for _ in range(_STEPS):
        place = max(place, mean - _SHIFT * deviation)
        below = np.maximum(place - scores, 0.0)
        known = -(((scores - place) / width) ** 2) / 2 - math.log(math.sqrt(2 * math.pi) * width)
        apart = np.log(np.maximum(below, 1e-300)) - below / scale - 2 * math.log(scale)  # gamma distributed, of shape 2
        logs = np.stack([known + math.log(1 - share), apart + math.log(share)])
        top = np.logaddexp(*logs)
        total, unknown = float(top.sum()), np.exp(logs[1] - top)
        known = 1 - unknown
        share = float(np.clip(unknown.mean(), 1e-6, 1 - 1e-6))
        place = float(known @ scores / max(known.sum(), 1e-9))
        spread = math.sqrt(float(known @ (scores - place) ** 2) / max(known.sum(), 1e-9))
        width = min(max(spread, deviation), _WIDER * deviation)
        scale = max(float(unknown @ below) / (2 * max(unknown.sum(), 1e-9)), _APART * deviation)
    return total, unknown
