"""What all likelihoods have in common, and how they are chosen by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from ..batch import Batch, Layout

__all__ = ["Family", "Likelihood", "Matrix", "find_binary", "stored_values"]

Matrix = Any  # a numpy array (rows, features) or a scipy CSR matrix


class Likelihood(nn.Module, ABC):
    """p(target | outputs) for rows of `features` values, given the outputs of a decoder.

    A further likelihood is a subclass with the abstract methods, and a `Family` that gives it a name.

    Arguments:
        features: columns of the target.
        outputs: numbers that the decoder gives for a row; by default one for each feature.
    """

    def __init__(self, features: int, outputs: int | None = None) -> None:
        super().__init__()
        self.features, self.outputs = features, features if outputs is None else outputs

    def log_prob(self, outputs: Tensor, batch: Batch | Tensor) -> Tensor:
        """Log-density of the target of every row, shape (…, rows), summed over the entries that are observed.

        `outputs` has shape (…, rows, outputs). Entries that are not observed may hold any value of the support.
        """
        batch = Batch.of(batch)
        entries, observed = self.entries(outputs, batch), batch.observed
        return entries.sum(-1) if observed is None else (entries * observed).sum(-1)

    @abstractmethod
    def entries(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Log-density of every entry of the target, shape (…, rows, features)."""

    @abstractmethod
    def mean(self, outputs: Tensor, batch: Batch | None = None) -> Tensor:
        """Expected values, shape (…, rows, features); without a batch nothing is known about the rows."""

    def sample(self, outputs: Tensor, batch: Batch | None = None, generator: torch.Generator | None = None) -> Tensor:
        """A draw, shape (…, rows, features); without a batch nothing is known about the rows."""
        return self.draw(outputs, batch, generator)

    @abstractmethod
    def draw(self, outputs: Tensor, batch: Batch | None, generator: torch.Generator | None) -> Tensor:
        """What `sample` returns."""

    @abstractmethod
    def start(self, mean: Tensor) -> Tensor:
        """Outputs for data with these column means: where the last bias of the decoder starts, shape (outputs,)."""

    def inputs(self, batch: Batch) -> Tensor:
        """What the encoder is shown of a batch: x, or a function of it where the values span decades."""
        return batch.x

    def extra_repr(self) -> str:
        return str(self.features)


@dataclass(frozen=True)
class Family:
    """A likelihood by name.

    Arguments:
        name: as users write it.
        summary: which data it is for, in one line.
        make: the likelihood of data with such a layout.
        refusal: why it does not fit the data, given as matrix and layout, and what to do; None where it does.
        standardise: whether features are centred and scaled before they are seen; or a function of the layout that
            says which.
        columns: which blocks of the data (see `Layout`) the likelihood tells apart; None where it treats all features
            alike.
        uses_size: whether it knows what the exposure of a row is for.
    """

    name: str
    summary: str
    make: Callable[[Layout], Likelihood]
    refusal: Callable[[Matrix, Layout], str | None] = lambda x, layout: None
    standardise: bool | Callable[[Layout], NDArray[np.bool_]] = False
    columns: Callable[[Matrix, Layout], tuple[int, ...]] | None = None
    uses_size: bool = False

    def standardised(self, layout: Layout) -> NDArray[np.bool_]:
        """Which features are centred and scaled."""
        if isinstance(self.standardise, bool):
            return np.full(layout.features, self.standardise)
        return self.standardise(layout)

    def layout(self, x: Matrix, layout: Layout) -> Layout:
        """The layout of data as the likelihood takes them."""
        return layout if self.columns is None else replace(layout, blocks=self.columns(x, layout))


def stored_values(x: Matrix) -> Any:
    """The values of a matrix that are not missing, of a sparse one those that are not 0."""
    values = x.data if sparse.issparse(x) else x
    with np.errstate(invalid="ignore", over="ignore"):
        return values[~np.isnan(values)] if np.isnan(values.sum()) else values


# The kind of a column, as the data room and the mixed likelihood must both see it.


def find_binary(x: Any) -> NDArray[np.bool_]:
    """Find the columns that hold 0 and 1, both of them and nothing else; NaN is ignored.

    Arguments:
        x: numbers, (rows, columns), dense or sparse.

    Returns:
        One boolean a column.

    Example:
        >>> find_binary(np.array([[0, 0, 1.0], [1, 2, 1], [np.nan, 1, 1]])).tolist()
        [True, False, False]
    """
    if not sparse.issparse(x):
        found = (np.fmin.reduce(x, 0, initial=1) == 0) & (np.fmax.reduce(x, 0, initial=0) == 1)
        values = x[:, found]
        found[found] = ((values == 0) | (values == 1) | np.isnan(values)).all(0)
        return found
    x = sparse.csr_array(x)
    stored = x.data[x.data != 0], x.indices[x.data != 0]
    ones, others = (np.bincount(stored[1][where], minlength=x.shape[1]) for where in (stored[0] == 1, stored[0] != 1))
    return (ones > 0) & (ones < x.shape[0]) & (others == 0)
