"""A trained model with what is needed to use it."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..data import Arrays, Dataset
from ..errors import CurvaeError
from ..models import VAE, Layout
from .config import Config
from .rows import Matrix, Rows, Scaling
from .splits import Split

__all__ = ["METRICS", "Fitted", "Record"]

Record = dict[str, Any]

METRICS = "metrics.jsonl"


@dataclass
class Fitted:
    """A trained model with what is needed to use it."""

    config: Config
    model: VAE
    scaling: Scaling
    reason: str
    """why this likelihood"""
    split: Split
    history: list[Record]
    failure: str | None = None
    """why the training ended early; the weights are those of the last good epoch"""
    layout: Layout = field(default_factory=lambda: Layout(0))
    """of the data that it was trained on"""

    def arrays(self, data: Arrays | Dataset | Matrix) -> Arrays:
        """New data, with all that the model must be told about them; raises where that is absent.

        NaN are missing values if the model was trained with such.
        """
        arrays = Arrays.of(data)
        if self.layout.size and arrays.size is None:
            raise CurvaeError("the model was trained with an exposure for each row; give it: Arrays(x, size=exposure)")
        return replace(arrays, missing=True) if self.layout.missing else arrays

    def rows(self, x: Arrays | Dataset | Matrix) -> Rows:
        """New data as the model sees it."""
        return Rows(self.arrays(x), self.scaling, self.model.device, self.model.dtype)

    def double(self) -> Fitted:
        """The same with networks in float64, whose figures for a row do not depend on the rows around it."""
        return self if self.model.dtype == torch.float64 else replace(self, model=deepcopy(self.model).double())

    @property
    def last(self) -> Record:
        """Record of the epoch whose weights the model has: the last good one, or with early stopping the best.

        A model that failed has the weights of its last good epoch in any case.
        """
        if self.config.patience is None or self.failure is not None:
            return self.history[-1]
        return max(self.history, key=lambda record: record["validation_elbo"])
