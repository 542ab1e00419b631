"""Combinations of settings, fewer than all."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

__all__ = ["every_pair"]


def every_pair(*axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Combinations of one value of each axis in which any two values of two axes meet.

    Mistakes that need three settings at once are rare, and of three axes and more all combinations are many.
    """
    every = list(product(*(range(len(axis)) for axis in axes)))
    meeting = {one: {((i, one[i]), (j, one[j])) for i, j in combinations(range(len(axes)), 2)} for one in every}
    left, chosen = set().union(*meeting.values()), []
    while left:
        best = max(every, key=lambda one: len(meeting[one] & left))
        left -= meeting[best]
        chosen.append(best)
    return [tuple(axis[k] for axis, k in zip(axes, one, strict=True)) for one in chosen]
