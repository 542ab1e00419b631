"""The engine on CUDA: a step is one captured graph, replayed without waiting for the host.

Where the rows lie on the device, the graph gathers its batch from them. Where they do not, it reads static tensors,
into which the next batch is copied beside the computation (`feeding`). On a CPU the same steps are called one by one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Generator, Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from ..models import Batch, MapTerms, Terms
from ..models.tracing import trace
from .engine import BatchEngine, EpochResult, Failure, figures, losses
from .feeding import Feed
from .sources import EVERY, Gathered, Stacked

__all__ = ["Captured"]

# Milliseconds that compiling saves a step, about: of any stack, and of every model in it; and what it costs.
_SAVED, _SAVED_EACH, _COMPILING = 2.0, 0.03, 15e3


class _Pieces(ABC):
    """Pieces of `size` rows of every model, as a captured step reads them: from tensors that stay where they are.

    Arguments:
        source: the rows.
        size: of a piece.
        noise: for a window of rows, (models, k, rows, d), to be overwritten; a whole number of pieces.
    """

    def __init__(self, source: Stacked, size: int, noise: Tensor) -> None:
        self.source, self.size, self.noise = source, size, noise
        self.counter = torch.zeros((), dtype=torch.int64, device=noise.device)
        self._range = torch.arange(size, device=noise.device)

    @abstractmethod
    def read(self) -> tuple[Batch, Tensor, Tensor]:
        """A piece with its noise, and for each of its rows 1, or 0 where the last piece is filled up; captured."""

    @abstractmethod
    def visit(self, generators: Sequence[Generator] | None, own: slice) -> Iterator[None]:
        """Make ready the pieces of an epoch, its `own` rows of the order that is taken from the generators at once."""

    def load(self, start: int, noise: Tensor) -> None:
        """Begin a window, of the rows from `start` on."""
        self.noise[:, :, : noise.shape[2]].copy_(noise)
        self.counter.zero_()


class _Resident(_Pieces):
    """Rows on the device of the models."""

    def __init__(self, source: Gathered, size: int, noise: Tensor) -> None:
        super().__init__(source, size, noise)
        self._rows, self._order = source, source.order(None)
        self._index = self._order[:, :1].repeat(1, noise.shape[2])
        self._last = torch.full((), noise.shape[2] - 1, device=noise.device)

    def read(self) -> tuple[Batch, Tensor, Tensor]:
        index = self.counter * self.size + self._range
        inside, kept = torch.minimum(index, self._last), (index <= self._last).double()
        rows = self._rows.gather(self._index.index_select(1, inside), kept)
        return rows, self.noise.index_select(2, inside), kept

    def visit(self, generators: Sequence[Generator] | None, own: slice) -> Iterator[None]:
        self._order = self._rows.order(generators)[:, own]
        return iter([None] * -(-self._order.shape[1] // self.size))

    def load(self, start: int, noise: Tensor) -> None:
        super().load(start, noise)
        count = noise.shape[2]
        self._index[:, :count].copy_(self._order[:, start : start + count])
        self._last.fill_(count - 1)


class _Fed(_Pieces):
    """Rows that are elsewhere, or have to be made."""

    def __init__(self, source: Stacked, size: int, noise: Tensor) -> None:
        super().__init__(source, size, noise)
        self._feed = Feed(next(source.batches(None, size)), size, noise.device)

    def read(self) -> tuple[Batch, Tensor, Tensor]:
        index = self.counter * self.size + self._range
        return self._feed.rows, self.noise.index_select(2, index), self._feed.kept

    def visit(self, generators: Sequence[Generator] | None, own: slice) -> Iterator[None]:
        return self._feed.run(self.source.batches(generators, self.size, own))


class _Pass:
    """One visit of all rows, a step for each piece.

    Arguments:
        pieces: of the rows.
        function: from (rows, noise, kept) to what `update` takes, together with the number of the piece.
        update: what comes of it.
    """

    def __init__(self, pieces: _Pieces, function: Callable[..., Any], update: Callable[[Any, Tensor], None]) -> None:
        self.pieces, self.function, self.update = pieces, function, update
        self.replay: Callable[[], None] = self.step

    def step(self) -> None:
        self.update(self.function(*self.pieces.read()), self.pieces.counter)
        self.pieces.counter += 1

    def capture(self) -> None:
        """Warm up, which moves whatever the step moves, and capture; nothing where there is no CUDA."""
        if self.pieces.noise.device.type != "cuda":
            return
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self.pieces.counter.zero_()  # a window may hold a single piece
                self.step()
        torch.cuda.current_stream().wait_stream(stream)
        self.pieces.counter.zero_()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        self.replay = graph.replay

    def run(
        self, generators: Sequence[Generator] | None, windows: Iterator[Tensor], own: slice = EVERY
    ) -> Iterator[tuple[int, bool]]:
        """After every piece its number in the epoch, and whether a window of noise ends with it."""
        pieces, row, end = self.pieces, 0, 0
        ready = pieces.visit(generators, own)
        for noise in windows:
            pieces.load(row, noise)
            row += noise.shape[2]
            begin, end = end, -(-row // pieces.size)
            for number in range(begin + 1, end + 1):
                next(ready)
                self.replay()
                yield number, number == end


class Captured(BatchEngine):
    """Batch, forward, backward and optimiser of all models in one CUDA graph."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        stack, device = self.stack, self.stack.device
        self._names = list(stack.tensors)
        self._values = [stack.tensors[name] for name in self._names]
        self._totals = self._no_figures()
        self._failed = torch.zeros(len(stack), dtype=torch.int64, device=device)
        self._training: _Pass | None = None
        self._validating: _Pass | None = None

    @property
    def _worth_compiling(self) -> bool:
        left = self.total - self.step
        return self.stack.device.type == "cuda" and left * (_SAVED + _SAVED_EACH * len(self)) > _COMPILING

    def _terms(self, tensors: list[Tensor], buffers: list[Tensor], rows: Batch, noise: Tensor) -> Terms | MapTerms:
        named = dict(zip(self._names, tensors, strict=True))
        return self.stack.pure("terms", named, dict(zip(self.stack.buffers, buffers, strict=True)), rows, noise)

    def _gradients(self, tensors: list[Tensor], buffers: list[Tensor], rows: Batch, noise: Tensor, kept: Tensor) -> Any:
        """`kept` is 1 for rows and 0 for what fills up the last piece."""
        terms = self._terms(tensors, buffers, rows, noise)
        loss = losses(terms, self.config, self.beta, rows.weight, self.pull, kept)
        return torch.autograd.grad(loss.sum(), tensors), loss.detach(), figures(terms, self.pull, _counting(rows, kept))

    def _figures(self, tensors: list[Tensor], buffers: list[Tensor], rows: Batch, noise: Tensor, kept: Tensor) -> Any:
        return figures(self._terms(tensors, buffers, rows, noise), self.pull, _counting(rows, kept))

    def _pieces(self, source: Stacked, size: int) -> _Pieces:
        stack, size = self.stack, min(size, len(source))
        window = -(-self.window(len(source), size) // size) * size
        noise = torch.zeros(len(stack), self.config.samples, window, stack.models[0].dim, device=stack.device)
        if isinstance(source, Gathered) and source.device == stack.device:
            return _Resident(source, size, noise)
        return _Fed(source, size, noise)

    def _traced(self, function: Callable[..., Any], pieces: _Pieces, gradient: bool) -> Callable[..., Any]:
        """The function as a graph of its own, for pieces of one size; compiled where steps are many."""
        compiled = gradient and self._worth_compiling
        values = [t.detach().requires_grad_() for t in self._values] if gradient else self._values
        rows, noise, kept = pieces.read()
        parts, spec = tree_flatten(rows)
        buffers = list(self.stack.buffers.values())

        def plain(
            tensors: list[Tensor], buffers: list[Tensor], parts: list[Tensor], noise: Tensor, kept: Tensor
        ) -> Any:
            """A function of plain lists of tensors, which compilers take."""
            return function(tensors, buffers, tree_unflatten(parts, spec), noise, kept)

        with torch.set_grad_enabled(gradient):
            graph = trace(plain, values, buffers, parts, noise, kept, compiled=compiled)
        return lambda rows, noise, kept: graph(self._values, buffers, tree_leaves(rows), noise, kept)

    def _learned(self, found: Any, counter: Tensor) -> None:
        gradients, loss, sums = found
        self._descend(dict(zip(self._names, gradients, strict=True)))
        first = (self._failed == 0) & ~loss.isfinite()
        self._failed += first * (counter + 1)
        self._totals += sums

    def _seen(self, found: Tensor, counter: Tensor) -> None:
        self._totals[: len(found)] += found

    def _capture_training(self) -> _Pass:
        self._set_training(True)
        pieces = self._pieces(self.train, self.config.batch_size)
        made = _Pass(pieces, self._traced(self._gradients, pieces, gradient=True), self._learned)
        state = [*self._values, *(moment for pair in self.moments.values() for moment in pair)]
        before = [t.clone() for t in state]
        with torch.no_grad():
            made.capture()
            for t, value in zip(state, before, strict=True):
                t.copy_(value)
            self.optimiser.set_step(self.step)
        return made

    def _capture_validation(self, source: Stacked) -> _Pass:
        self._set_training(False)
        pieces = self._pieces(source, self.watched_size)
        made = _Pass(pieces, self._traced(self._figures, pieces, gradient=False), self._seen)
        with torch.no_grad():
            made.capture()
        return made

    def epoch(self, epoch: int) -> EpochResult:
        if self._training is None:
            self._training = self._capture_training()
        self._totals.zero_()
        self._failed.zero_()
        failures: dict[int, Failure] = {}
        pieces, before = self._training.pieces, 0
        orders, generators, own = self._drawn(epoch)
        count = own.stop - own.start
        with torch.no_grad():
            for step, ends in self._training.run(orders, self.windows(generators, count, pieces.size), own):
                if ends:
                    failures |= {
                        i: Failure(before + failed, "the loss was not a number", self.where(i))
                        for i, failed in enumerate(self._failed.tolist())
                        if failed and i not in failures
                    }
                    before = step
        self.step += -(-count // pieces.size)
        return EpochResult(self._totals.T.cpu() / count, failures)

    def validate(self) -> Tensor | None:
        if self.validation is None:
            return None
        if self._validating is None:
            self._validating = self._capture_validation(self.validation)
        self._totals.zero_()
        windows = self.watched(len(self.validation), self._validating.pieces.size)
        with torch.no_grad():
            for _ in self._validating.run(None, windows):
                pass
        return self._totals[:2].T.cpu() / len(self.validation)


def _counting(rows: Batch, kept: Tensor) -> Tensor:
    """By how much each row counts; what fills up a batch, not at all."""
    return kept if rows.weight is None else kept * rows.weight
