"""What likelihoods of counts share: rates in proportion to the size of a row, and what the encoder is shown."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import CurvaeError
from ...settings import RowSettings
from ..batch import Batch, Layout
from .base import Family, Likelihood, Matrix, row_blocks, stored_values

__all__ = ["POISSON", "Counts", "Poisson", "refuse_other_than_counts", "unknown_sizes"]


_FEWEST = 1e-6, 1e-8  # counts, or shares of all counts, at least where a decoder starts
_STEPS, _FIRST = 2, 0.1  # of Newton's method for the logarithm of a size, and the width of its first differences
_LEAST = 1e-4  # variance of log sizes, weight of rows of other batches, and a second difference
_NODES, _WEIGHTS = np.polynomial.hermite.hermgauss(3)


class Counts(Likelihood):
    """Counts whose rates grow with the `size` of the row, where the batch has one.

    The encoder is shown log(1 + x·unit/size), since counts span decades. The unit is the median size of the training
    rows, so that a median row is shown as it was counted.

    Arguments:
        features: columns of the target.
        outputs: numbers that the decoder gives for a row, rates first; by default one for each feature.
        total: whether the size of a row is the sum of its counts. The rates are then size·softmax(outputs), otherwise
            size·exp(outputs).
        sizes: where the context tells the batch of a row, the first column and the number of batches, if sizes are
            unknown: log-normal in each batch with the moments of its totals, and integrated out. () for one batch; None
            if sizes are as given.
    """

    unit: Tensor
    log_sizes: Tensor

    def __init__(
        self, features: int, outputs: int | None = None, total: bool = False, sizes: tuple[int, ...] | None = None
    ) -> None:
        super().__init__(features, outputs)
        self.total, self.sizes = total, sizes
        self.register_buffer("unit", torch.ones(()))
        if sizes is not None:
            self.register_buffer("log_sizes", torch.ones(*sizes[1:], 2))  # means and standard deviations

    def prepare(self, x: Matrix, size: Any = None, context: Any = None) -> None:
        if size is None:
            return
        self.unit.fill_(float(np.median(np.concatenate(list(row_blocks(size))))))
        if self.sizes is not None:
            self.log_sizes.copy_(self.size_moments(size, context))

    def size_moments(self, size: Any, context: Any) -> Tensor:
        """Return mean and standard deviation of the logarithms of sizes in each batch, in the shape of `log_sizes`."""
        logs = np.log(np.concatenate(list(row_blocks(size))))
        share = np.ones((len(logs), 1))
        if self.sizes:
            first, count = self.sizes
            share = np.concatenate([block[:, first : first + count] for block in row_blocks(context)]) + _LEAST
        mean, square = (share.T @ logs**power / share.sum(0) for power in (1, 2))
        found = np.stack([mean, np.sqrt((square - mean**2).clip(_LEAST))], 1)
        return torch.from_numpy(found).view_as(self.log_sizes)

    def log_prob(self, outputs: Tensor, batch: Batch | Tensor) -> Tensor:
        batch = Batch.of(batch)
        if self.sizes is None or batch.size is None:
            return super().log_prob(outputs, batch)
        place, scale = self._find_sizes(outputs, batch)
        nodes = [
            self._log_joint(outputs, batch, place + math.sqrt(2) * node * scale) + node**2 + math.log(weight)
            for node, weight in zip(_NODES, _WEIGHTS, strict=True)
        ]
        return torch.stack(nodes).logsumexp(0) + (math.sqrt(2) * scale).log()

    def settle_sizes(self, outputs: Tensor, batch: Batch) -> Batch:
        """Return the batch with the likeliest size of every row, where sizes are unknown."""
        if self.sizes is None or batch.size is None:
            return batch
        return batch.joined(size=self._find_sizes(outputs, batch)[0].exp())

    def _log_joint(self, outputs: Tensor, batch: Batch, log_size: Tensor) -> Tensor:
        """Compute the log-density of the target and the logarithm of the size together."""
        moments = batch.context[:, self.sizes[0] : sum(self.sizes)] @ self.log_sizes if self.sizes else self.log_sizes
        mean, scale = moments.unbind(-1)
        prior = ((log_size - mean) / scale).square() / -2 - (math.sqrt(2 * math.pi) * scale).log()
        return super().log_prob(outputs, batch.joined(size=log_size.exp())) + prior

    @torch.no_grad()
    def _find_sizes(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the likeliest logarithm of each size, and the standard deviation of those that are likely."""
        place = batch.size.log().expand(outputs.shape[:-1])
        scale = torch.full_like(place, _FIRST)
        for _ in range(_STEPS):
            low, middle, high = (self._log_joint(outputs, batch, place + step * scale) for step in (-1, 0, 1))
            bend = (2 * middle - low - high).clamp_min(_LEAST)
            place, scale = (
                place + ((high - low) / (2 * bend) * scale).clamp(-1, 1),
                (scale * bend.rsqrt()).clamp_max(1.0),
            )
        return place, scale

    def log_rate(self, outputs: Tensor, batch: Batch | None) -> Tensor:
        """Return log μ for outputs of shape (…, rows, features).

        Of a row of unknown size it is that of the size 1, or of the unit where sizes are totals.
        """
        size = None if batch is None else batch.size
        outputs = outputs.log_softmax(-1) if self.total else outputs
        if size is None:
            return outputs + self.unit.log() if self.total else outputs
        return outputs + size.log().unsqueeze(-1)

    def count_parameters(self, outputs: Tensor, batch: Batch | None = None) -> dict[str, Tensor]:
        """Return the parameters of p(target | outputs) by name, each (…, rows, features): of all counts "mean"."""
        return {"mean": self.log_rate(outputs, batch).exp()}

    def mean(self, outputs: Tensor, batch: Batch | None = None) -> Tensor:
        return self.log_rate(outputs, batch).exp()

    def start(self, mean: Tensor) -> Tensor:
        return mean.clamp_min(_FEWEST[self.total]).log()

    def inputs(self, batch: Batch) -> Tensor:
        if batch.size is None:
            return batch.x.log1p()
        return (batch.x / batch.size.view(-1, *[1] * (batch.x.dim() - 1)) * self.unit).log1p()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        state_dict.setdefault(f"{prefix}unit", torch.ones(()))  # of weights from before there was a unit
        super()._load_from_state_dict(state_dict, prefix, *args)


def refuse_other_than_counts(x: Matrix, layout: Layout) -> str | None:
    """Say why values are no counts, and what to do; None where they are."""
    values = stored_values(x)
    if values.size and float(values.min()) < 0:
        return f'needs counts, but there is a value of {float(values.min()):.4g}; use `likelihood="gaussian"`'
    whole = bool((values == values.round()).all())
    return None if whole else 'needs counts, but not all values are whole numbers; use `likelihood="gaussian"`'


def unknown_sizes(layout: Layout, config: RowSettings) -> tuple[int, ...] | None:
    """Return `sizes` of `Counts` for data with a layout; raise where sizes cannot be learned."""
    if config.learn_sizes and not layout.total:
        raise CurvaeError("`learn_sizes` needs rows whose sizes are the totals of their counts, as of cells; drop it")
    return layout.batch if config.learn_sizes else None


# Counts of independent events.


class Poisson(Counts):
    """Counts with the rate exp(output), multiplied by the `size` of the row where the batch has one (its exposure)."""

    def entries(self, outputs: Tensor, batch: Batch) -> Tensor:
        log_rate = self.log_rate(outputs, batch)
        return batch.target * log_rate - log_rate.exp() - torch.lgamma(batch.target + 1.0)

    def draw(self, outputs: Tensor, batch: Batch | None, generator: torch.Generator | None) -> Tensor:
        return torch.poisson(self.mean(outputs, batch), generator=generator)


POISSON = Family(
    "poisson",
    "counts",
    lambda layout, config: Poisson(layout.features, None, layout.total, unknown_sizes(layout, config)),
    refuse_other_than_counts,
    uses_size=True,
)
