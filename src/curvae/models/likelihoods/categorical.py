"""One of several categories, as one-hot columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from ..batch import Batch
from ..layout import Layout
from .base import Family, Likelihood, Matrix
from .bernoulli import outside_unit_interval

__all__ = ["CATEGORICAL", "Categorical"]


class Categorical(Likelihood):
    """One category out of each block of columns, one-hot (or shares that sum to one); outputs are logits."""

    def __init__(self, features: int, blocks: Sequence[int] = ()) -> None:
        super().__init__(features)
        self.blocks = list(blocks) or [features]
        if sum(self.blocks) != features:
            raise ValueError(f"blocks of {self.blocks} columns do not add up to {features} features")

    def _log_softmax(self, outputs: Tensor) -> Tensor:
        return torch.cat([part.log_softmax(-1) for part in outputs.split(self.blocks, -1)], -1)

    def entries(self, outputs: Tensor, batch: Batch) -> Tensor:
        return batch.target * self._log_softmax(outputs)

    def mean(self, outputs: Tensor, batch: Batch | None = None) -> Tensor:
        return self._log_softmax(outputs).exp()

    def draw(self, outputs: Tensor, batch: Batch | None, generator: torch.Generator | None) -> Tensor:
        parts = []
        for part in self.mean(outputs).split(self.blocks, -1):
            drawn = torch.multinomial(part.reshape(-1, part.shape[-1]), 1, generator=generator)
            one_hot = torch.zeros_like(part.reshape(-1, part.shape[-1])).scatter_(-1, drawn, 1.0)
            parts.append(one_hot.view(part.shape))
        return torch.cat(parts, -1)

    def start(self, mean: Tensor) -> Tensor:
        return mean.clamp_min(1e-3).log()

    def extra_repr(self) -> str:
        return f"{self.features}, blocks={self.blocks}"


def _widths(layout: Layout) -> tuple[int, ...]:
    return layout.widths if layout.blocks else (layout.features,)


def _refusal(x: Matrix, layout: Layout) -> str | None:
    if reason := outside_unit_interval(x):
        return reason
    ends = np.cumsum(_widths(layout))
    starts = (0, *ends[:-1])
    blocks = [x[:, start:end] for start, end in zip(starts, ends, strict=True)]
    sums = np.stack([np.asarray(block.sum(1)).ravel() for block in blocks], 1)
    lacking = np.isnan(sums)
    if np.allclose(sums[~lacking], 1.0, atol=1e-4) and not (lacking.any() and any(map(_partly_missing, blocks))):
        return None
    return (
        "needs one-hot columns (each block of columns sums to 1 in every row, or is missing as a whole); name the text "
        "columns with --categorical, or use another likelihood"
    )


def _partly_missing(block: Matrix) -> bool:
    """Whether some row lacks some values of a block but not all."""
    lacking = np.isnan(block.toarray() if sparse.issparse(block) else block)
    return bool((lacking.any(1) & ~lacking.all(1)).any())


CATEGORICAL = Family(
    "categorical",
    "one-hot columns, one category a block",
    lambda layout: Categorical(layout.features, _widths(layout)),
    _refusal,
)
