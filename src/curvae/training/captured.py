"""The engine on CUDA: a step is one captured graph, replayed without waiting for the host.

Where the rows lie on the device, the graph gathers its batch from them. Where they do not, it reads static tensors,
into which the next batch is copied beside the computation (`feeding`). On a CPU the same steps are called one by one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar

import torch
from torch import Generator, Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from ..models import VAE, Batch, MapTerms, Terms
from ..models.stack import trace
from .config import Config
from .engine import BatchEngine, EpochResult, Failure, figures, losses
from .row_sources import EVERY, Crew, Gathered, Stacked

__all__ = ["Captured", "Feed", "SharedEngine", "ahead"]


# Batches that are made ready beside the computation.

Thing = TypeVar("Thing")


def ahead(things: Iterator[Thing]) -> Iterator[Thing]:
    """The same things, each made by a thread while the one before it is in use.

    Example:
        >>> list(ahead(iter("abc")))
        ['a', 'b', 'c']
    """
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, things, None)
        while (thing := coming.result()) is not None:
            coming = thread.submit(next, things, None)
            yield thing


class Feed:
    """Static tensors on a device that hold one batch after the other.

    A thread makes the next batch on the host. On CUDA it lies there in pinned memory, and is copied to the device in a
    stream of its own into one of two places, while the device computes with the batch before.

    Arguments:
        like: a batch of a stack, on the host, (models, rows, …).
        size: rows of a batch; a smaller one is filled up with its last row.
        device: of the tensors.

    Attributes:
        rows: the batch.
        kept: 1 for each of its rows, and 0 for what fills it up, (size,).
    """

    def __init__(self, like: Batch, size: int, device: torch.device) -> None:
        self._size, self._cuda = size, device.type == "cuda"
        self.rows = _filled(like, size).map(lambda part: part.to(device, copy=True))
        self.kept = torch.ones(size, dtype=torch.float64, device=device)
        self._count = size
        if self._cuda:
            self._staging = [self.rows.map(torch.clone) for _ in range(2)]
            self._free = [torch.cuda.Event() for _ in range(2)]
            self._arrived = torch.cuda.Event()
            self._stream = torch.cuda.Stream(device)
            self._stream.wait_stream(torch.cuda.current_stream(device))

    def run(self, batches: Iterator[Batch]) -> Iterator[None]:
        """Hold each of the batches in turn, from one `next` to the other."""
        ready = ahead((_length(batch), self._ready(batch)) for batch in batches)
        return self._held(ready)

    def _held(self, ready: Iterator[tuple[int, Batch]]) -> Iterator[None]:
        for number, (count, batch) in enumerate(ready):
            if self._cuda:
                batch = self._arriving(batch, number % 2)
            _copy(self.rows, batch)
            if self._cuda:
                self._free[number % 2].record()
            if count != self._count:
                self._count = count
                self.kept.copy_(torch.arange(self._size) < count)
            yield

    def _ready(self, batch: Batch) -> Batch:
        batch = _filled(batch, self._size)
        return batch.map(Tensor.pin_memory) if self._cuda else batch

    def _arriving(self, batch: Batch, place: int) -> Batch:
        """The batch on the device; what is done with it there waits until it has arrived."""
        staging = self._staging[place]
        self._free[place].synchronize()  # so that the host is never more than two batches ahead
        with torch.cuda.stream(self._stream):
            _copy(staging, batch)
            self._arrived.record()
        torch.cuda.current_stream().wait_event(self._arrived)
        return staging


def _length(batch: Batch) -> int:
    """Rows of every model of a stack."""
    return batch.x.shape[1]


def _filled(batch: Batch, size: int) -> Batch:
    missing = size - _length(batch)
    if not missing:
        return batch
    filled = batch.map(lambda part: torch.cat([part, part[:, -1:].expand(-1, missing, *part.shape[2:])], 1))
    others: dict[str, Tensor | Batch] = {}  # what fills up a batch is nobody's neighbour, and companions are whole
    for name in ("near", "far"):
        if (part := getattr(batch, name)) is not None:
            rows, companions = part.tensor_split([_length(batch)], -1)
            wider = torch.cat([F.pad(rows, (0, missing), value=-1.0), companions], -1)
            others[name] = F.pad(wider, (0, 0, 0, missing), value=-1.0)
    if batch.companions is not None:
        others["companions"] = batch.companions
    return filled.joined(**others)


def _copy(to: Batch, batch: Batch) -> None:
    for place, part in zip(tree_leaves(to), tree_leaves(batch), strict=True):
        place.copy_(part, non_blocking=True)


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


# The engine of one of several processes that train a model together.


class SharedEngine(BatchEngine):
    """A model that several processes train: each has its share of every batch, and all take the same steps.

    The loss of a process is the sum over its rows divided by the number of rows of the whole batch. Gradients and loss
    lie in one flat tensor, whose sum over the processes is that of a single one with the same batch. Each makes the
    noise of the whole batch, a few numbers a row, and takes that of its own rows.

    Arguments:
        models, configs: a single one.
        train, validation: its share of the rows; `index` of a batch has their places in the batch of all processes.
        crew: the processes.
    """

    def __init__(
        self,
        models: Sequence[VAE],
        configs: Sequence[Config],
        train: Stacked,
        validation: Stacked | None,
        crew: Crew,
    ) -> None:
        super().__init__(models, configs, train, validation)
        self.crew = crew
        sizes = [leaf.numel() for leaf in self.stack.leaves.values()]
        first = next(iter(self.stack.leaves.values()))
        self._flat = torch.zeros(sum(sizes) + 1, dtype=first.dtype, device=first.device)
        parts = self._flat[:-1].split(sizes)
        self._gradients = {
            name: part.view_as(leaf) for (name, leaf), part in zip(self.stack.leaves.items(), parts, strict=True)
        }

    def _subset(self, places: list[int]) -> Self:
        raise NotImplementedError("several processes train one model")

    @property
    def threads(self) -> int | None:
        return self._threads(self.config.batch_size // self.crew.share.size)

    def _own(self, rows: Batch, noise: Tensor) -> tuple[Batch, Tensor]:
        """The rows on the device, with their part of the noise of the batch."""
        device = self.stack.device
        rows = rows.map(lambda part: part.to(device))
        assert rows.index is not None
        return rows, noise.index_select(2, rows.index[0])

    def _step(self, rows: Batch, noise: Tensor, step: int, failures: dict[int, Failure]) -> Tensor:
        count, found = noise.shape[2], self._no_figures()
        rows, noise = self._own(rows, noise)
        if own := noise.shape[2]:
            loss, found = self._loss(rows, noise)
            loss = loss * (own / count)
            gradients = torch.autograd.grad(loss, list(self.stack.leaves.values()))
            torch._foreach_copy_(list(self._gradients.values()), list(gradients))
            self._flat[-1] = loss.detach()
        else:
            self._flat.zero_()
        self.crew.sum(self._flat)
        self._follow([float(self._flat[-1])], self._gradients, step, failures)
        return found

    def _judged(self, rows: Batch, noise: Tensor) -> Tensor:
        rows, noise = self._own(rows, noise)
        return super()._judged(rows, noise) if noise.shape[2] else self._no_figures()[:2]

    def _total(self, figures: Tensor) -> Tensor:
        return self.crew.sum(figures)
