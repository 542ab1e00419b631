"""Batches that others make: whatever gives every row once an epoch, in an order of (epoch, seed) alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...errors import CurvaeError
from ..dataset import Arrays, as_matrix, feature_names
from ..missing import Missing, MissingValuesError, has_missing, missing_by_column
from .summary import Summary, summarised

__all__ = ["BatchSource", "Batches", "open_batches"]


class BatchSource(Protocol):
    """What a loader of others must offer to be trained on.

    Example:
        A `torch.utils.data.DataLoader`:

        >>> import torch
        >>> from torch.utils.data import DataLoader, TensorDataset
        >>> class Loader:
        ...     def __init__(self, x):
        ...         self.rows = TensorDataset(torch.as_tensor(x))
        ...     def batches(self, epoch, seed, rank, world):
        ...         order = torch.Generator().manual_seed(1_000_003 * seed + epoch)
        ...         return DataLoader(self.rows, 32, shuffle=True, generator=order)
        ...     def state_dict(self):
        ...         return {"rows": len(self.rows)}
        >>> found = open_batches(Loader(np.arange(200.0).reshape(100, 2)))
        >>> len(found), found.known.mean.tolist()
        (100, [99.0, 100.0])
    """

    def batches(self, epoch: int, seed: int, rank: int, world: int) -> Iterable[Any]:
        """Every row once, in batches of any sizes: matrices (rows, features) in original units, or lists or tuples that
        begin with one.

        Arguments:
            epoch: number of the pass over the rows, from 0.
            seed: of the training. It decides on the order, together with the epoch and nothing else.
            rank, world: which of how many processes asks: all of them together see every row once. Training is in one
                process, 0 of 1.
        """

    def state_dict(self) -> Mapping[str, Any]:
        """What tells these rows and their orders from others, as JSON values. A training is only resumed with the
        same."""


@dataclass(frozen=True, eq=False)
class Batches:
    """A `BatchSource` whose rows were counted; `open_batches` makes it.

    Arguments:
        source: of the batches.
        known: figures of the columns.
        held_out: rows for validation, which are not among those of the source.
        missing: whether values may be missing: "error", or "model".
    """

    source: BatchSource
    known: Summary
    held_out: Arrays | None = None
    missing: Missing = "error"

    def __len__(self) -> int:
        return self.known.rows

    @property
    def features(self) -> int:
        return len(self.known.mean)

    @property
    def examples(self) -> Arrays:
        """Four rows that have what all rows have; see `Summary`."""
        return Arrays(self.known.examples, missing=self.missing == "model")

    @property
    def identity(self) -> str:
        """SHA-256 of the rows, and what the source says of itself."""
        parts = [self.known.digest, dict(self.source.state_dict())]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def held(self, rows: NDArray[np.int64]) -> Arrays:
        """Rows that are held out, whose numbers go on after those of the source."""
        assert self.held_out is not None
        return self.held_out.take(rows - len(self))

    def epoch(self, epoch: int, seed: int) -> Iterator[Arrays]:
        """The batches of an epoch, checked."""
        rows = 0
        for x in map(matrix_of, self.source.batches(epoch, seed, 0, 1)):
            rows += len(x)
            if x.shape[1] != self.features:
                raise CurvaeError(
                    f"a batch of epoch {epoch + 1} has {x.shape[1]} columns, not {self.features}; give the same"
                )
            if rows > len(self):
                break
            _require_present(x, self.missing)
            yield Arrays(x, missing=self.missing == "model")
        if rows != len(self):
            fewer = "only" if rows < len(self) else "at least"
            raise CurvaeError(
                f"the batches of epoch {epoch + 1} hold {fewer} {rows:,} rows, and there were {len(self):,} when they "
                "were counted; give every row once an epoch"
            )


def open_batches(
    source: BatchSource,
    *,
    held_out: Any = None,
    missing: Missing = "error",
    advance: Callable[[int], None] = lambda rows: None,
) -> Batches:
    """Take batches that others make, to be trained on: all are read once, for the figures of their columns.

    Arguments:
        source: of the batches.
        held_out: rows for validation in memory, (rows, features); without them there is no early stopping.
        missing: "error" refuses missing values, "model" leaves them to the model.
        advance: told how many more rows were read.
    """
    if missing not in ("error", "model"):
        raise CurvaeError(f'missing is {missing!r}; of batches it is "error" or "model"')

    def checked() -> Iterator[NDArray[Any]]:
        for x in map(matrix_of, source.batches(0, 0, 0, 1)):
            _require_present(x, missing)
            yield x

    known = summarised(checked(), "the source of batches", advance)
    held = None if held_out is None else Arrays(matrix_of(held_out), missing=missing == "model")
    if held is not None and held.features != len(known.mean):
        raise CurvaeError(f"held_out has {held.features} columns, and batches have {len(known.mean)}; give the same")
    return Batches(source, known, held, missing)


def matrix_of(batch: Any) -> NDArray[Any]:
    """The rows of a batch, (rows, features)."""
    first = batch[0] if isinstance(batch, list | tuple) else batch
    found: Any = as_matrix(np.asarray(first), "a batch")
    return found


def _require_present(x: NDArray[Any], missing: Missing) -> None:
    if missing == "error" and has_missing(x):
        where = missing_by_column(x, feature_names(x.shape[1]))
        found = f"missing or infinite values in a batch, counted by column: {where}"
        raise MissingValuesError(found, ("model", "mean"))
