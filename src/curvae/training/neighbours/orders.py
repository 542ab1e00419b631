"""Orders of rows in which neighbours follow each other."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Generator, Tensor

__all__ = ["GroupDraw", "draw_groups", "grouped_order"]


class GroupDraw(NamedTuple):
    """What is random about an order."""

    directions: Tensor
    """in which groups are cut, (levels, coordinates)"""
    shuffle: Tensor
    """the order of the groups, (2^levels,)"""


def draw_groups(rows: int, size: int, coordinates: int, generator: Generator) -> GroupDraw:
    """A draw for groups of `size` rows or a few less."""
    levels = max(0, (max(1, rows // size) - 1).bit_length())
    device = generator.device
    directions = torch.randn(levels, coordinates, generator=generator, device=device)
    return GroupDraw(directions, torch.randperm(1 << levels, generator=generator, device=device))


def grouped_order(points: Tensor, draw: GroupDraw) -> Tensor:
    """The rows of `points`, (rows, coordinates), in groups that lie together, each row once.

    All rows are cut in two halves by a direction, each of the halves by the next one, and so on.

    Example:
        >>> points = torch.tensor([[3.0], [0.0], [2.0], [1.0]])
        >>> grouped_order(points, GroupDraw(torch.ones(1, 1), torch.tensor([1, 0]))).tolist()
        [2, 0, 1, 3]
    """
    rows, groups = len(points), len(draw.shuffle)
    directions, shuffle = (part.to(points.device) for part in draw)
    # Rows beyond the last fill up the groups to one size.
    order = torch.arange(-(-rows // groups) * groups, device=points.device).unsqueeze(0)
    for direction in directions:
        along = points @ direction.to(points.dtype)
        along = along[order.clamp(max=rows - 1)]
        cut = order.gather(1, along.argsort(dim=1, stable=True))
        order = cut.view(2 * len(cut), -1)
    order = order[shuffle].reshape(-1)
    return order[order < rows]
