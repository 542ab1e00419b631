"""One of several categories, as one-hot columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from ..batch import Batch, Layout
from .base import Family, Likelihood, Matrix
from .bernoulli import outside_unit_interval

__all__ = ["CATEGORICAL", "Categorical", "wrong_sum"]


class Categorical(Likelihood):
    """One category out of each block of columns, one-hot (or shares that sum to one); outputs are logits."""

    def __init__(self, features: int, blocks: Sequence[int] = ()) -> None:
        super().__init__(features)
        self.blocks = list(blocks) or [features]
        if sum(self.blocks) != features:
            raise ValueError(f"blocks of {self.blocks} columns do not add up to {features} features")
        # Neighbours of one width are normalised at once: how many, and their width.
        self._runs = [(len(list(run)), width) for width, run in groupby(self.blocks)]

    @classmethod
    def of(cls, layout: Layout) -> Categorical:
        """Make the likelihood of data with this layout, whose features are those of one column unless some column has
        categories of its own."""
        return cls(layout.features, layout.widths if max(layout.blocks, default=0) > 1 else ())

    @staticmethod
    def blocks_of(x: Matrix, layout: Layout) -> tuple[int, ...]:
        """Return the blocks of the data; none where no column has categories of its own, for then all features are
        those of one column."""
        return layout.blocks if max(layout.blocks, default=0) > 1 else ()

    def _log_softmax(self, outputs: Tensor) -> Tensor:
        parts = outputs.split([count * width for count, width in self._runs], -1)
        return torch.cat(
            [part.unflatten(-1, run).log_softmax(-1).flatten(-2) for part, run in zip(parts, self._runs, strict=True)],
            -1,
        )

    def entries(self, outputs: Tensor, batch: Batch) -> Tensor:
        return batch.target * self._log_softmax(outputs)

    def mean(self, outputs: Tensor, batch: Batch | None = None) -> Tensor:
        return self._log_softmax(outputs).exp()

    def draw(self, outputs: Tensor, batch: Batch | None, generator: torch.Generator | None) -> Tensor:
        parts = []
        for part in self.mean(outputs).split(self.blocks, -1):
            drawn = torch.multinomial(part.reshape(-1, part.shape[-1]), 1, generator=generator)
            parts.append(torch.zeros_like(part).scatter_(-1, drawn.view(*part.shape[:-1], 1), 1.0))
        return torch.cat(parts, -1)

    def start(self, mean: Tensor) -> Tensor:
        return mean.clamp_min(1e-3).log()

    def extra_repr(self) -> str:
        return f"{self.features}, blocks={self.blocks}"


def wrong_sum(x: Matrix) -> bool:
    """Return whether the columns of a block do not sum to 1 in some row; a row that is missing as a whole, NaN, may."""
    sums = np.asarray(x.sum(1)).ravel()
    lacking = np.isnan(sums)
    if not np.allclose(sums[~lacking], 1.0, atol=1e-4):
        return True
    if not lacking.any():
        return False
    missing = np.isnan(x.toarray() if sparse.issparse(x) else x)
    return bool((missing.any(1) & ~missing.all(1)).any())


def _refusal(x: Matrix, layout: Layout) -> str | None:
    if reason := outside_unit_interval(x):
        return reason
    ends = np.cumsum(Categorical.of(layout).blocks)
    if not any(wrong_sum(x[:, start:end]) for start, end in pairwise((0, *ends))):
        return None
    return (
        "needs one-hot columns (each block of columns sums to 1 in every row, or is missing as a whole); name the text "
        "columns with `categorical=…`, or use another likelihood"
    )


CATEGORICAL = Family(
    "categorical",
    "one-hot columns, one category a block",
    lambda layout, _: Categorical.of(layout),
    _refusal,
    columns=Categorical.blocks_of,
)
