"""Batches that others make, as those of a training."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Generator, Tensor

from ..data import Batches
from ..data.scaling import Scaling
from ..models import Batch, Layout
from .feeding import ahead
from .rows import Rows, assemble
from .sources import EVERY, EpochGenerator

__all__ = ["LoadedRows"]

Parts = dict[str, Tensor]


class LoadedRows:
    """The rows of batches that others make, as a `RowSource`: scaled, in batches of the size of the training.

    A thread asks for the next batch while one is in use. Where a training goes on in the middle of an epoch, the rows
    before are read again and left out.

    Arguments:
        source: of the batches.
        scaling: of the columns.
        layout: of a row, as the model takes it.
        dtype: of batches.

    Attributes:
        device: where batches are.
    """

    device = torch.device("cpu")

    def __init__(self, source: Batches, scaling: Scaling, layout: Layout, dtype: torch.dtype = torch.float32) -> None:
        self.layout, self._source, self._scaling, self._dtype = layout, source, scaling, dtype
        self._open: tuple[tuple[int, int], _Rest] | None = None

    def __len__(self) -> int:
        return len(self._source)

    def batches(self, generator: Generator | None, size: int, own: slice = EVERY) -> Iterator[Batch]:
        origin = generator.origin if isinstance(generator, EpochGenerator) else (0, 0)
        start, stop, _ = own.indices(len(self))
        return self._batches(origin, size, start, stop)

    def _batches(self, origin: tuple[int, int], size: int, start: int, stop: int) -> Iterator[Batch]:
        known = self._open
        if known is None or known[0] != origin or known[1].passed != start:
            rest = _Rest(ahead(self._scaled(origin)))
            rest.skip(start)
        else:
            rest = known[1]
        self._open = origin, rest
        for first in range(start, stop, size):
            yield assemble(rest.take(min(size, stop - first)), self.layout.missing)
        if stop == len(self):
            rest.end()

    def _scaled(self, origin: tuple[int, int]) -> Iterator[Parts]:
        seed, epoch = origin
        for arrays in self._source.epoch(epoch, seed):
            yield Rows(arrays, self._scaling, dtype=self._dtype).parts


class _Rest:
    """What is left of the rows of an epoch, to be taken some at a time.

    Attributes:
        passed: rows that were taken.
    """

    def __init__(self, pieces: Iterator[Parts]) -> None:
        self._pieces, self._held, self.passed = pieces, list[Parts](), 0

    def take(self, rows: int) -> Parts:
        """The next rows; so many must be left."""
        held = sum(len(part["x"]) for part in self._held)
        while held < rows:
            self._held.append(next(self._pieces))
            held += len(self._held[-1]["x"])
        joined = {name: torch.cat([part[name] for part in self._held]) for name in self._held[0]}
        self._held = [{name: part[rows:] for name, part in joined.items()}]
        self.passed += rows
        return {name: part[:rows] for name, part in joined.items()}

    def end(self) -> None:
        """See that no rows are left: the source raises for more than there should be."""
        next(self._pieces, None)

    def skip(self, rows: int) -> None:
        """Leave out the next rows."""
        while self.passed < rows:
            self.take(min(rows - self.passed, 1 << 16))
