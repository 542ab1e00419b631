"""Columns of several kinds, each with a likelihood of its own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from ..batch import Batch, Layout
from .base import Family, Likelihood, Matrix, find_binary
from .bernoulli import Bernoulli
from .categorical import Categorical, wrong_sum
from .gaussian import Gaussian

__all__ = ["MIXED", "Mixed"]


class Mixed(Likelihood):
    """Independent likelihoods of some features each.

    The outputs are those of the parts, one part after the other, so that each takes a slice of them.

    Arguments:
        parts: which features, and their likelihood; every feature belongs to one part.

    Example:
        >>> mixed = Mixed([([0, 3], Gaussian(2)), ([1, 2, 4], Bernoulli(3))])
        >>> mixed.log_prob(torch.zeros(8, mixed.outputs), torch.zeros(8, 5)).shape
        torch.Size([8])
    """

    parts: Any  # a module list of likelihoods
    order: Tensor | None
    back: Tensor | None

    def __init__(self, parts: Sequence[tuple[Sequence[int], Likelihood]]) -> None:
        order = np.concatenate([np.asarray(places, np.int64) for places, _ in parts])
        super().__init__(order.size, sum(part.outputs for _, part in parts))
        if sorted(order.tolist()) != list(range(order.size)):
            raise ValueError("every feature must belong to exactly one part")
        if any(len(places) != part.features for places, part in parts):
            raise ValueError("a part must have as many features as its likelihood")
        self.parts = nn.ModuleList(part for _, part in parts)
        self.widths = [part.features for _, part in parts]
        self.places = order.tolist()
        grouped = bool((np.diff(order) > 0).all())
        # Not stored: they follow from the layout of the data.
        for name, index in (("order", order), ("back", np.argsort(order))):
            self.register_buffer(name, None if grouped else torch.from_numpy(index), persistent=False)

    @classmethod
    def of(cls, layout: Layout) -> Mixed:
        """Numbers Gaussian, binary columns Bernoulli, categories categorical."""
        starts = [0, *accumulate(layout.widths)]
        kinds: dict[int, list[int]] = {0: [], 1: [], 2: []}
        for column, block in enumerate(layout.blocks or (0,) * layout.features):
            kinds[min(block, 2)].append(column)
        # Blocks of one width side by side are normalised at once.
        kinds[2].sort(key=layout.widths.__getitem__)
        features = {kind: [j for c in kinds[kind] for j in range(starts[c], starts[c + 1])] for kind in kinds}
        made = (
            Gaussian(len(features[0])),
            Bernoulli(len(features[1])),
            Categorical(len(features[2]), [layout.widths[c] for c in kinds[2]]),
        )
        return cls([(features[kind], part) for kind, part in enumerate(made) if features[kind]])

    @staticmethod
    def blocks_of(x: Matrix, layout: Layout) -> tuple[int, ...]:
        """Return the blocks that are known, or find them: 1 for a column that holds 0 and 1 and nothing else, 0 for
        others."""
        return layout.blocks or tuple(find_binary(x).astype(int).tolist())

    @staticmethod
    def numeric(layout: Layout) -> NDArray[np.bool_]:
        """Tell which features are columns of numbers."""
        return np.repeat(np.array(layout.blocks or (0,) * layout.features) == 0, layout.widths)

    def _split(self, values: Tensor) -> tuple[Tensor, ...]:
        """Values of all features, by part."""
        values = values if self.order is None else values.index_select(-1, self.order)
        return values.split(self.widths, -1)

    def _merge(self, values: Sequence[Tensor]) -> Tensor:
        """Inverse of `_split`."""
        merged = torch.cat(list(values), -1)
        return merged if self.back is None else merged.index_select(-1, self.back)

    def _each(self, outputs: Tensor) -> list[tuple[Any, Tensor]]:
        """Return the parts with their outputs."""
        return list(zip(self.parts, outputs.split([part.outputs for part in self.parts], -1), strict=True))

    def _with_rows(self, outputs: Tensor, batch: Batch) -> list[tuple[Any, Tensor, Batch]]:
        """Return the parts with their outputs and batches: their own features, and all that is known about the rows."""
        targets, observed = self._split(batch.target), batch.observed
        masks: Sequence[Tensor | None] = [None] * len(targets) if observed is None else self._split(observed)
        return [
            (part, own, Batch(target, context=batch.context, size=batch.size, observed=mask))
            for (part, own), target, mask in zip(self._each(outputs), targets, masks, strict=True)
        ]

    def log_prob(self, outputs: Tensor, batch: Batch | Tensor) -> Tensor:
        found = [part.log_prob(own, rows) for part, own, rows in self._with_rows(outputs, Batch.of(batch))]
        return sum(found[1:], start=found[0])

    def entries(self, outputs: Tensor, batch: Batch) -> Tensor:
        return self._merge([part.entries(own, rows) for part, own, rows in self._with_rows(outputs, batch)])

    def mean(self, outputs: Tensor, batch: Batch | None = None) -> Tensor:
        return self._merge([part.mean(own, batch) for part, own in self._each(outputs)])

    def draw(self, outputs: Tensor, batch: Batch | None, generator: torch.Generator | None) -> Tensor:
        return self._merge([part.draw(own, batch, generator) for part, own in self._each(outputs)])

    def start(self, mean: Tensor) -> Tensor:
        return torch.cat([part.start(own) for part, own in zip(self.parts, self._split(mean), strict=True)], -1)

    def inputs(self, batch: Batch) -> Tensor:
        if all(type(part).inputs is Likelihood.inputs for part in self.parts):
            return batch.x
        return self._merge(
            [part.inputs(Batch(x, size=batch.size)) for part, x in zip(self.parts, self._split(batch.x), strict=True)]
        )

    def extra_repr(self) -> str:
        return ""


def _refusal(x: Matrix, layout: Layout) -> str | None:
    start = 0
    for block, width in zip(layout.blocks, layout.widths, strict=bool(layout.blocks)):
        values = x[:, start : start + width]
        if block == 1:
            values = values.data if sparse.issparse(values) else values[:, 0]
            if (wrong := values[~((values == 0) | (values == 1) | np.isnan(values))]).size:
                return (
                    f"needs 0 or 1 in {layout.called(start)}, a binary column, but there is a value of "
                    f"{float(wrong[0]):.4g}; correct it"
                )
        elif block > 1 and wrong_sum(values):
            return f"needs one-hot columns, but those from {layout.called(start)} on do not sum to 1 in every row"
        start += width
    return None


MIXED = Family(
    "mixed",
    "columns of several kinds: numbers gaussian, 0 and 1 bernoulli, categories categorical",
    lambda layout, _: Mixed.of(layout),
    _refusal,
    standardise=Mixed.numeric,
    columns=Mixed.blocks_of,
)
