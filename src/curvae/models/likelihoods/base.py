"""What all likelihoods have in common, and how they are chosen by name."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from ...settings import RowSettings
from ..batch import Batch, Layout

__all__ = [
    "Family",
    "Likelihood",
    "Matrix",
    "aligned_blocks",
    "find_binary",
    "holds_counts",
    "row_blocks",
    "stored_values",
]

Matrix = Any  # a numpy array (rows, features), a scipy CSR matrix, or a matrix on disk that `load` reads


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
        """Return expected values, shape (…, rows, features); without a batch nothing is known about the rows."""

    def sample(self, outputs: Tensor, batch: Batch | None = None, generator: torch.Generator | None = None) -> Tensor:
        """Return a draw, shape (…, rows, features); without a batch nothing is known about the rows."""
        return self.draw(outputs, batch, generator)

    @abstractmethod
    def draw(self, outputs: Tensor, batch: Batch | None, generator: torch.Generator | None) -> Tensor:
        """Draw what `sample` returns."""

    @abstractmethod
    def start(self, mean: Tensor) -> Tensor:
        """Return outputs for data with these column means, where the last bias of the decoder starts: (outputs,)."""

    def prepare(self, x: Matrix, size: Any = None, context: Any = None) -> None:
        """Start parameters of its own, and choose units, from training rows in original units.

        Arguments:
            x: the rows, dense, sparse or on disk; NaN is missing.
            size: their exposures, (rows,), or None.
            context: their covariates, (rows, covariates), or None.
        """

    def inputs(self, batch: Batch) -> Tensor:
        """Return what the encoder is shown of a batch: x, or a function of it where the values span decades."""
        return batch.x

    def extra_repr(self) -> str:
        return str(self.features)


@dataclass(frozen=True)
class Family:
    """A likelihood by name.

    Arguments:
        name: as users write it.
        summary: which data it is for, in one line.
        make: the likelihood of data with such a layout, in a model with such settings.
        refusal: why it does not fit rows of the data, given as a matrix in memory and the layout, and what to do; None
            where it does. Of large data it is called for some rows after others.
        standardise: whether features are centred and scaled before they are seen; or a function of the layout that
            says which.
        columns: which blocks of the data (see `Layout`) the likelihood tells apart; None where it treats all features
            alike.
        uses_size: whether it knows what the exposure of a row is for.
    """

    name: str
    summary: str
    make: Callable[[Layout, RowSettings], Likelihood]
    refusal: Callable[[Matrix, Layout], str | None] = lambda x, layout: None
    standardise: bool | Callable[[Layout], NDArray[np.bool_]] = False
    columns: Callable[[Matrix, Layout], tuple[int, ...]] | None = None
    uses_size: bool = False

    def standardised(self, layout: Layout) -> NDArray[np.bool_]:
        """Tell which features are centred and scaled."""
        asked = self.standardise
        return np.full(layout.features, asked) if isinstance(asked, bool) else asked(layout)

    def layout(self, x: Matrix, layout: Layout) -> Layout:
        """Return the layout of data as the likelihood takes them."""
        return layout if self.columns is None else replace(layout, blocks=self.columns(x, layout))


_CELLS = 1 << 20  # numbers of a block of rows


def row_blocks(x: Matrix) -> Iterator[Matrix]:
    """Iterate over the rows of a matrix, in memory or on disk, as matrices in memory of about a million numbers each.

    Example:
        >>> [block.shape for block in row_blocks(np.zeros((3, 1 << 19)))]
        [(2, 524288), (1, 524288)]
    """
    return (block for (block,) in aligned_blocks(x))


def aligned_blocks(*matrices: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the same rows of several matrices or vectors, in memory or on disk, about a million numbers at a time."""
    step = max(1, int(_CELLS / max(1.0, *map(_row_length, matrices))))
    for start in range(0, matrices[0].shape[0], step):
        blocks = (x[start : start + step] for x in matrices)
        yield tuple(one if isinstance(one, np.ndarray) or sparse.issparse(one) else one.load() for one in blocks)


def _row_length(x: Any) -> float:
    """How many numbers a row has on average, without the zeros of a sparse matrix."""
    if sparse.issparse(x):
        return x.nnz / max(1, x.shape[0])
    return math.prod(x.shape[1:]) if isinstance(x, np.ndarray) else x.row_length


def stored_values(x: Matrix) -> Any:
    """Return the values of a matrix in memory that are not missing, of a sparse one those that are not 0."""
    values = x.data if sparse.issparse(x) else x
    with np.errstate(invalid="ignore", over="ignore"):
        return values[~np.isnan(values)] if np.isnan(values.sum()) else values


def holds_counts(x: Matrix) -> bool:
    """Return whether all values of a matrix that are not missing are whole numbers from 0 on.

    Example:
        >>> holds_counts(np.array([[0.0, 3.0]])), holds_counts(np.array([[0.5, 3.0]])), holds_counts(np.array([[-1.0]]))
        (True, False, False)
    """
    return all(bool(((values >= 0) & (values % 1 == 0)).all()) for values in map(stored_values, row_blocks(x)))


# The kind of a column, as the package `data` and the mixed likelihood must both see it.


def find_binary(x: Matrix) -> NDArray[np.bool_]:
    """Find the columns that hold 0 and 1, both of them and nothing else; NaN is ignored.

    Arguments:
        x: numbers, (rows, columns), dense, sparse or on disk.

    Returns:
        One boolean a column.

    Example:
        >>> find_binary(np.array([[0, 0, 1.0], [1, 2, 1], [np.nan, 1, 1]])).tolist()
        [True, False, False]
    """
    zeros, ones, others = (np.zeros(x.shape[1], bool) for _ in range(3))
    for block in row_blocks(x):
        if sparse.issparse(block):
            places, values = block.indices, block.data
            zeros |= np.bincount(places[values != 0], minlength=x.shape[1]) < block.shape[0]
            ones[places[values == 1]] = True
            others[places[(values != 0) & (values != 1) & ~np.isnan(values)]] = True
        else:
            zeros |= (block == 0).any(0)
            ones |= (block == 1).any(0)
            others |= ((block != 0) & (block != 1) & ~np.isnan(block)).any(0)
    return zeros & ones & ~others
