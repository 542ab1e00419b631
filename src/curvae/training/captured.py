"""A step on a batch as a CUDA graph, replayed without waiting for the host.

Where the rows lie on the device, the graph gathers its batch from them. Where they do not, batches are prefetched. On a
CPU the same step is called directly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from torch import Generator, Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from ..models import VAE, Batch, Stack
from ..models.stack import trace
from .rows import EVERY, ModelRows, StackedRows

__all__ = ["CapturedStep", "capture", "padded", "prefetch", "transfer"]

# Milliseconds that compiling saves a step, about: of any stack, and of every model in it; and what it costs.
_SAVED, _SAVED_EACH, _COMPILING = 2.0, 0.03, 15e3
_STAGED = 3  # batches that are on their way to a device, at most

Thing = TypeVar("Thing")


def prefetch(things: Iterator[Thing]) -> Iterator[Thing]:
    """Yield the same things, each made by a thread while the one before it is in use.

    Example:
        >>> list(prefetch(iter("abc")))
        ['a', 'b', 'c']
    """
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, things, None)
        while (thing := coming.result()) is not None:
            coming = thread.submit(next, things, None)
            yield thing


def transfer(batches: Iterator[Batch], device: torch.device) -> Iterator[Batch]:
    """Copy batches of one shape from pinned memory to a CUDA device, beside what is computed there.

    Each is valid until the next is asked for: it lies in one of a few buffers, which copies fill in turn in a stream of
    their own. What the current stream does with it waits until it has arrived.
    """
    stream, arrived = torch.cuda.Stream(device), torch.cuda.Event()
    buffers: list[tuple[Batch, torch.cuda.Event]] = []
    for number, batch in enumerate(batches):
        if number < _STAGED:
            buffers.append((batch.map(lambda part: torch.empty_like(part, device=device)), torch.cuda.Event()))
            stream.wait_stream(torch.cuda.current_stream(device))
        buffer, free = buffers[number % _STAGED]
        free.synchronize()  # so that the host is never more than a few batches ahead
        with torch.cuda.stream(stream):
            for to, part in zip(tree_leaves(buffer), tree_leaves(batch), strict=True):
                to.copy_(part, non_blocking=True)
            arrived.record()
        torch.cuda.current_stream(device).wait_event(arrived)
        yield buffer
        free.record()


def padded(batch: Batch | Tensor, size: int) -> Any:
    """Fill up a batch of a stack, or positions of its rows, (models, rows, …), to `size` rows with its last."""
    count = (batch if isinstance(batch, Tensor) else batch.x).shape[1]
    missing = size - count
    if not missing:
        return batch
    filled = tree_map(lambda part: torch.cat([part, part[:, -1:].expand(-1, missing, *part.shape[2:])], 1), batch)
    if isinstance(batch, Tensor):
        return filled
    others: dict[str, Tensor | Batch] = {}  # what fills up a batch is nobody's neighbour, and companions are whole
    for name in ("near", "far"):
        if (part := getattr(batch, name)) is not None:
            rows, companions = part.tensor_split([count], -1)
            wider = torch.cat([F.pad(rows, (0, missing), value=-1.0), companions], -1)
            others[name] = F.pad(wider, (0, 0, 0, missing), value=-1.0)
    if batch.companions is not None:
        others["companions"] = batch.companions
    return filled.joined(**others)


def capture(function: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """Call a function twice to warm up, capture it as a CUDA graph, and return what replays it.

    On another device, nothing is called, and the function itself is returned.
    """
    if device.type != "cuda":
        return function
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(2):
            function()
    torch.cuda.current_stream(device).wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph.replay


class CapturedStep:
    """A step on batches of a source, captured: it reads tensors that stay where they are.

    Arguments:
        compute: from rows, noise, `kept`, parameters and buffers to tensors. `kept` is 1 for each row of a batch, and 0
            for what fills up the last. Operations are traced for batches of one size.
        stack: the models, whose parameters and buffers are given to it.
        source: rows of every model.
        noise: for a whole batch, (models, k, rows, d); to be overwritten.
        update: from the tensors to what the step returns, by default these. With one, gradients are taken of the
            parameters.
        state: tensors that `update` changes, besides what it returns.
        steps: how many there will be; where these are many, operations are compiled.

    Attributes:
        replay: repeats the step with the batch of the last call.
    """

    def __init__(
        self,
        compute: Callable[..., Any],
        stack: Stack[VAE],
        source: ModelRows,
        noise: Tensor,
        update: Callable[..., Any] | None = None,
        state: Sequence[Tensor] = (),
        steps: int = 0,
    ) -> None:
        device, size = noise.device, noise.shape[2]
        self._source, self._noise, self._count = source, noise, size
        self._rows = source if isinstance(source, StackedRows) and source.resident and source.device == device else None
        example = next(source.batches(None, size)) if self._rows is None else self._rows.order(None)[:, :size]
        self._inputs = tree_map(lambda part: part.to(device, copy=True), example)
        self._kept = torch.ones(size, dtype=torch.float64, device=device)
        parameters, buffers = list(stack.tensors.values()), list(stack.buffers.values())
        parts, spec = tree_flatten(self._read())

        def flat(
            parameters: list[Tensor], buffers: list[Tensor], parts: list[Tensor], noise: Tensor, kept: Tensor
        ) -> Any:
            """Compute with plain lists of tensors, which compilers take."""
            named = dict(zip(stack.tensors, parameters, strict=True)), dict(zip(stack.buffers, buffers, strict=True))
            return compute(tree_unflatten(parts, spec), noise, kept, *named)

        leaves = parameters if update is None else [t.detach().requires_grad_() for t in parameters]
        compiled = device.type == "cuda" and steps * (_SAVED + _SAVED_EACH * len(stack)) > _COMPILING
        with torch.set_grad_enabled(update is not None):
            graph = trace(flat, leaves, buffers, parts, noise, self._kept, compiled=compiled)

        def step() -> None:
            found = graph(parameters, buffers, tree_leaves(self._read()), self._noise, self._kept)
            self._returned = found if update is None else update(*found)

        before = [t.clone() for t in state]
        with torch.no_grad():
            self.replay = capture(step, device)
            for t, value in zip(state, before, strict=True):
                t.copy_(value)

    def _read(self) -> Batch:
        return self._inputs if self._rows is None else self._rows.gather(self._inputs, self._kept)

    def batches(self, generators: Sequence[Generator] | None, own: slice = EVERY) -> Iterator[Any]:
        """Every batch of an epoch, as the step takes it; see `ModelRows.batches` for the arguments."""
        device, size = self._noise.device, self._noise.shape[2]
        if self._rows is not None:
            return iter(self._rows.order(generators)[:, own].split(size, 1))
        made = (padded(batch, size) for batch in self._source.batches(generators, size, own))
        if device.type != "cuda":
            return prefetch(made)
        return transfer(prefetch(batch.map(Tensor.pin_memory) for batch in made), device)

    @torch.no_grad()
    def __call__(self, batch: Batch | Tensor, noise: Tensor) -> Any:
        """Take the step with one of the `batches`; what it returns is overwritten by the next."""
        count, size = noise.shape[2], len(self._kept)
        self._noise[:, :, :count].copy_(noise)
        for to, part in zip(tree_leaves(self._inputs), tree_leaves(padded(batch, size)), strict=True):
            to.copy_(part, non_blocking=True)
        if count != self._count:
            self._count = count
            self._kept.copy_(torch.arange(size) < count)
        self.replay()
        return self._returned
