"""What likelihoods of counts share: rates in proportion to the size of a row, and what the encoder is shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..batch import Batch, Layout
from .base import Likelihood, Matrix, row_blocks, stored_values

__all__ = ["Counts", "refuse_other_than_counts"]

_FEWEST = 1e-6, 1e-8  # counts, or shares of all counts, at least where a decoder starts


class Counts(Likelihood):
    """Counts whose rates grow with the `size` of the row, where the batch has one.

    The encoder is shown log(1 + x·unit/size), since counts span decades. The unit is the median size of the training
    rows, so that a median row is shown as it was counted.

    Arguments:
        features: columns of the target.
        outputs: numbers that the decoder gives for a row, rates first; by default one for each feature.
        total: whether the size of a row is the sum of its counts. The rates are then size·softmax(outputs), otherwise
            size·exp(outputs).
    """

    unit: Tensor

    def __init__(self, features: int, outputs: int | None = None, total: bool = False) -> None:
        super().__init__(features, outputs)
        self.total = total
        self.register_buffer("unit", torch.ones(()))

    def prepare(self, x: Matrix, size: Any = None, context: Any = None) -> None:
        if size is not None:
            self.unit.fill_(float(np.median(np.concatenate(list(row_blocks(size))))))

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
    if bool((values != values.round()).any()):
        return 'needs counts, but not all values are whole numbers; use `likelihood="gaussian"`'
    return None
