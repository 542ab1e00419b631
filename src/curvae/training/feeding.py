"""Batches that are made ready beside the computation."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from ..models import Batch

__all__ = ["Feed", "ahead"]

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
