"""Neighbourhoods of the rows of a batch, for every model of a stack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Self

import numpy as np
import torch
from torch import Tensor

from ...models import Batch
from .rows import Neighbourhood

__all__ = ["Neighbourhoods"]

_MATES, _MARKS = 256, 64  # neighbours and landmarks that are placed together with a batch, at most
_TURN = 7919  # a prime, by which the first row of a batch decides on its companions
_CROWDED = 1024  # rows, up to which each batch holds enough neighbours by chance


class Neighbourhoods:
    """What batches of a stack are told about neighbours.

    Rows of a large table find few of their neighbours in a batch. There some of these are placed together with it, as
    its companions, and so are some landmarks where the lengths of paths are known to landmarks alone.

    Arguments:
        each: the distinct neighbourhoods, of equally many rows.
        which: of them every model has.
        device: of the batches.
        size: rows of a batch.
    """

    def __init__(self, each: Sequence[Neighbourhood], which: Sequence[int], device: torch.device, size: int) -> None:
        self._near, self._drawn, self._far, self._landmarks = (
            None
            if getattr(each[0], name) is None
            else torch.from_numpy(np.stack([getattr(one, name) for one in each])).to(device)
            for name in ("near", "drawn", "far", "landmarks")
        )
        self._mates = min(size, _MATES) if self._drawn is not None and self._drawn.shape[1] > _CROWDED else 0
        self._device = device
        self._choose(which)

    def _choose(self, which: Sequence[int]) -> None:
        self._which = list(which)
        self._own = torch.tensor(self._which, device=self._device).view(-1, 1, 1)

    def keep(self, places: Sequence[int]) -> Self:
        """For some of the models."""
        new = copy(self)
        new._choose([self._which[i] for i in places])
        return new

    def join(
        self, batch: Batch, positions: Tensor, rows: Callable[[Tensor], Batch], kept: Tensor | None = None
    ) -> Batch:
        """The batch with its companions, and what is known about their neighbours.

        Arguments:
            batch: of a stack, parts of shape (models, n, …).
            positions: of its rows among those that have neighbourhoods, (models, n).
            rows: from positions, (models, m), to a batch.
            kept: 1 for rows, 0 for what fills up the batch, (n,).
        """
        turn = positions[:, :1] * _TURN
        companions, marks = [], None
        if self._mates:
            companions.append(self._mates_of(positions, turn))
        if self._landmarks is not None:
            most = self._landmarks.shape[1]
            marks = (turn + torch.arange(min(_MARKS, most), device=turn.device)) % most
            companions.append(self._landmarks[self._own[..., 0], marks])
        every = torch.cat([positions, *companions], 1) if companions else positions
        ordered, column = every.sort(dim=1, stable=True) if companions or self._near is None else (None, None)
        left_out = positions.unsqueeze(-1) == every.unsqueeze(1)
        if ordered is not None and column is not None:  # without companions none comes a second time
            left_out |= _again(ordered, column).unsqueeze(1)
        if kept is not None:
            left_out |= _filling(kept, every.shape[1])
        parts: dict[str, Tensor | Batch] = {}
        if self._near is not None or self._drawn is not None:
            near = self._nearness(positions, every, ordered, column).masked_fill_(left_out, 0.0)
            near = near.div_(near.sum(-1, keepdim=True).clamp_(min=torch.finfo(near.dtype).tiny))
            parts["near"] = near.masked_fill_(left_out, -1.0)
        if self._far is not None:
            parts["far"] = self._distances(positions, every, marks).masked_fill_(left_out, -1.0)
        if companions:
            parts["companions"] = rows(every[:, positions.shape[1] :])
        return batch.joined(**parts)

    def _mates_of(self, positions: Tensor, turn: Tensor) -> Tensor:
        """Neighbours of the rows of a batch, of each in turn, (models, count)."""
        drawn: Tensor = self._drawn  # type: ignore[assignment]
        number = torch.arange(self._mates, device=positions.device)
        rows = positions[:, number % positions.shape[1]]
        return drawn[self._own[..., 0], rows, (turn + number) % drawn.shape[2]].to(positions.dtype)

    def _nearness(self, positions: Tensor, every: Tensor, ordered: Tensor | None, column: Tensor | None) -> Tensor:
        """Of rows of a batch to all that are placed, (models, n, placed): probabilities, up to a factor for each row;
        or how many of those drawn for the row are which."""
        if self._near is not None:
            return self._entries(self._near, positions, every)
        assert ordered is not None and column is not None  # `join` sorts wherever rows are drawn
        models, n = positions.shape
        drawn = self._drawn[self._own[..., 0], positions].flatten(1).to(positions.dtype)  # type: ignore[index]
        place = torch.searchsorted(ordered, drawn).clamp(max=ordered.shape[1] - 1)
        met = (ordered.gather(1, place) == drawn).float().view(models, n, -1)
        counts = torch.zeros(models, n, every.shape[1], device=positions.device)
        return counts.scatter_add(2, column.gather(1, place).view(models, n, -1), met)

    def _distances(self, positions: Tensor, every: Tensor, marks: Tensor | None) -> Tensor:
        """Of rows of a batch from all that are placed, (models, n, placed); −1 if unknown."""
        far: Tensor = self._far  # type: ignore[assignment]
        if marks is None:
            return self._entries(far, positions, every)
        known = far[self._own, positions.unsqueeze(-1), marks.unsqueeze(1)]
        unknown = known.new_full((*positions.shape, every.shape[1] - marks.shape[1]), -1.0)
        return torch.cat([unknown, known], -1)

    def _entries(self, matrix: Tensor, positions: Tensor, every: Tensor) -> Tensor:
        return matrix[self._own, positions.unsqueeze(-1), every.unsqueeze(1)]


def _again(ordered: Tensor, column: Tensor) -> Tensor:
    """Which of the rows that are placed come a second time, (models, placed)."""
    again = torch.cat([torch.zeros_like(ordered[:, :1], dtype=torch.bool), ordered[:, 1:] == ordered[:, :-1]], 1)
    return torch.zeros_like(again).scatter(1, column, again)


def _filling(kept: Tensor, placed: int) -> Tensor:
    """Which pairs are with what fills up a batch, (n, placed)."""
    filling = kept == 0
    return filling.unsqueeze(-1) | torch.cat([filling, filling.new_zeros(placed - len(kept))])
