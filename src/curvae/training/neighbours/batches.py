"""Neighbourhoods of the rows of a batch, for every model of a stack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Self

import numpy as np
import torch
from torch import Generator, Tensor

from ...models import Batch
from .orders import draw_groups, grouped_order
from .rows import Neighbourhood

__all__ = ["Neighbourhoods"]

_MARKS = 64  # landmarks that are placed together with a batch
_TURN = 7919  # a prime, by which the first row of a batch decides on its landmarks
_GROUP = 32  # rows that lie together
_CROWDED = 16  # batches in an epoch, up to which each holds enough neighbours whatever the order


class Neighbourhoods:
    """What batches of a stack are told about neighbours.

    Arguments:
        each: the distinct neighbourhoods, of equally many rows.
        which: of them every model has.
        device: of the batches.
    """

    def __init__(self, each: Sequence[Neighbourhood], which: Sequence[int], device: torch.device) -> None:
        self._near, self._far, self._landmarks = (
            None
            if getattr(each[0], name) is None
            else torch.from_numpy(np.stack([getattr(one, name) for one in each])).to(device)
            for name in ("near", "far", "landmarks")
        )
        self._points = [torch.from_numpy(one.points).to(device) for one in each]
        self._rows = slice(0, len(each[0].points))
        self._choose(which)

    def _choose(self, which: Sequence[int]) -> None:
        self._which = list(which)
        self._own = torch.tensor(self._which, device=self._points[0].device).view(-1, 1, 1)

    def keep(self, places: Sequence[int]) -> Self:
        """For some of the models."""
        new = copy(self)
        new._choose([self._which[i] for i in places])
        return new

    def among(self, rows: slice) -> Self:
        """For batches that are made of some of the rows."""
        new = copy(self)
        new._rows = rows
        return new

    # --- the order of an epoch --------------------------------------------------------------------------------------

    def orders(self, generators: Sequence[Generator], size: int) -> Tensor | None:
        """An order for every model, (models, rows), in which neighbours share batches of `size` rows; None where they
        do so in any order. What is random is taken once from every generator."""
        points = [one[self._rows] for one in self._points]
        rows, width = points[0].shape
        if rows <= _CROWDED * size:
            return None
        draws = {one: draw_groups(rows, min(_GROUP, size), width, one) for one in dict.fromkeys(generators)}
        made: dict[tuple[Generator, int], Tensor] = {}
        for key in zip(generators, self._which, strict=True):
            if key not in made:
                made[key] = grouped_order(points[key[1]], draws[key[0]])
        return torch.stack([made[key] for key in zip(generators, self._which, strict=True)])

    # --- a batch ----------------------------------------------------------------------------------------------------

    def join(
        self, batch: Batch, positions: Tensor, rows: Callable[[Tensor], Batch], kept: Tensor | None = None
    ) -> Batch:
        """The batch with what is known about its neighbours.

        Arguments:
            batch: of a stack, parts of shape (models, n, …).
            positions: of its rows among those that batches are made of, (models, n).
            rows: from numbers of rows of the data, (models, n), to a batch.
            kept: 1 for rows, 0 for what fills up the batch, (n,).
        """
        parts: dict[str, Tensor | Batch] = {}
        positions = positions + self._rows.start
        away = None if kept is None else kept == 0
        if self._near is not None:
            near = self._entries(self._near, positions) if self._near.is_floating_point() else self._hits(positions)
            near.diagonal(dim1=1, dim2=2).zero_()
            if away is not None:
                near = near.masked_fill(away.unsqueeze(-1) | away, 0.0)
            near = near / near.sum(-1, keepdim=True).clamp(min=torch.finfo(near.dtype).tiny)
            parts["near"] = _left_out(near, away, square=True)
        if self._far is not None and self._landmarks is None:
            parts["far"] = _left_out(self._entries(self._far, positions), away, square=True)
        elif self._far is not None and self._landmarks is not None:
            chosen = self._chosen(positions)
            parts["far"] = _left_out(self._far[self._own, positions.unsqueeze(-1), chosen.unsqueeze(1)], away)
            parts["landmarks"] = rows(self._landmarks[self._own[..., 0], chosen])
        return batch.joined(**parts)

    def _entries(self, matrix: Tensor, positions: Tensor) -> Tensor:
        """Entries between rows of a batch, (models, n, n)."""
        return matrix[self._own, positions.unsqueeze(-1), positions.unsqueeze(1)]

    def _hits(self, positions: Tensor) -> Tensor:
        """How many of the rows drawn for each row of a batch are which of the batch, (models, n, n)."""
        models, n = positions.shape
        drawn = self._near[self._own[..., 0], positions].flatten(1).to(positions.dtype)  # type: ignore[index]
        ordered, column = positions.sort(dim=1, stable=True)  # of rows that come several times, the first
        place = torch.searchsorted(ordered, drawn).clamp(max=n - 1)
        found = (ordered.gather(1, place) == drawn).float().view(models, n, -1)
        return torch.zeros(models, n, n, device=positions.device).scatter_add(
            2, column.gather(1, place).view(models, n, -1), found
        )

    def _chosen(self, positions: Tensor) -> Tensor:
        """Which landmarks go with a batch, (models, count)."""
        most = self._landmarks.shape[1]  # type: ignore[union-attr]
        turn = torch.arange(min(_MARKS, most), device=positions.device)
        return (positions[:, :1] * _TURN + turn) % most


def _left_out(matrix: Tensor, away: Tensor | None, square: bool = False) -> Tensor:
    """−1 for rows and columns that fill up a batch and, in a square matrix, on its diagonal."""
    if square:
        own = torch.eye(matrix.shape[-1], dtype=torch.bool, device=matrix.device)
        away = own if away is None else own | away | away.unsqueeze(-1)
    elif away is not None:
        away = away.unsqueeze(-1)
    return matrix if away is None else matrix.masked_fill(away, -1.0)
