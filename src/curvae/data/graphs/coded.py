"""Names of nodes as numbers: how the two columns of a list of edges become nodes and links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = ["INTEGER", "Coded", "code_numbers", "code_texts", "name_nodes", "number_nodes", "small", "whole_numbers"]

INTEGER = r"-?(?:0|[1-9]\d{0,17})"  # as it would be printed

_SPARSE = 4  # numbers of a range, for each that is given, up to which the range is marked instead of sorted


@dataclass(frozen=True, eq=False)
class Coded:
    """The names in two columns.

    Arguments:
        names: different names without blanks around them, in any order.
        codes: place among them of each name, (2, rows), int32 where it suffices.
    """

    names: NDArray[np.str_]
    codes: NDArray[np.integer]

    def after(self, rows: int) -> Coded:
        """Without the first rows."""
        return Coded(self.names, self.codes[:, rows:])


def code_texts(left: Any, right: Any) -> Coded:
    """Of two series of texts."""
    codes, found = pd.factorize(pd.concat([left, right], ignore_index=True))
    # Names that differ only in blanks around them are the same.
    same, names = pd.factorize(pd.Series(found, dtype=object).str.strip())
    return Coded(names.to_numpy(dtype=np.str_), small(same, len(names))[codes].reshape(2, -1))


def code_numbers(numbers: NDArray[np.integer]) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """Different numbers in ascending order, and the place among them of each, in the shape of these.

    Example:
        >>> code_numbers(np.array([[7, 3], [7, 9]]))
        (array([3, 7, 9]), array([[1, 0],
               [1, 2]], dtype=int32))
    """
    if not numbers.size:
        return numbers.reshape(-1), np.zeros(numbers.shape, np.int32)
    low, high = int(numbers.min()), int(numbers.max())
    if high - low >= _SPARSE * numbers.size + 1024:
        found, places = np.unique(numbers, return_inverse=True)
        return found, small(places.reshape(numbers.shape), len(found))
    marked = np.zeros(high - low + 1, dtype=bool)
    shifted = numbers - low if low else numbers
    marked[shifted] = True
    places = small(np.cumsum(marked) - 1, len(marked))[shifted]
    return np.flatnonzero(marked).astype(numbers.dtype) + numbers.dtype.type(low), places


def small(places: NDArray[np.integer], count: int) -> NDArray[np.integer]:
    """Places among so many things, in 32 bits where that suffices."""
    return places.astype(np.int32 if count < 2**31 else np.int64, copy=False)


def whole_numbers(texts: NDArray[np.str_]) -> NDArray[np.int64] | None:
    """The numbers that texts are, if all are integers as they are printed; otherwise None.

    Example:
        >>> whole_numbers(np.array(["7", "-3"])), whole_numbers(np.array(["7", "03"]))
        (array([ 7, -3]), None)
    """
    if not all(re.fullmatch(INTEGER, text) for text in texts[:1000].tolist()):
        return None
    try:
        numbers = texts.astype(np.int64)
    except (ValueError, OverflowError):
        return None
    printed = bool((numbers.astype(texts.dtype) == texts).all()) and bool((abs(numbers) < 10**18).all())
    return numbers if printed or all(re.fullmatch(INTEGER, text) for text in texts.tolist()) else None


def number_nodes(coded: Coded) -> tuple[NDArray[np.str_], NDArray[np.int64]]:
    """List the names of all nodes that occur, (nodes,), and the links between their positions, (links, 2).

    Nodes are ordered by number if all names are integers, else by first appearance.
    """
    names, codes = coded.names, coded.codes
    used = np.flatnonzero(np.bincount(codes.ravel(), minlength=len(names)))
    numbers = whole_numbers(names[used])
    order = used[np.argsort(numbers, kind="stable")] if numbers is not None else pd.unique(codes.T.ravel())
    place = np.empty(len(names), dtype=np.int64)
    place[order] = np.arange(len(order))
    links = np.empty((codes.shape[1], 2), dtype=np.int64)
    for side in (0, 1):
        links[:, side] = place[codes[side]]
    return names[order], links


def name_nodes(left: Any, right: Any) -> tuple[NDArray[np.str_], NDArray[np.int64]]:
    """`number_nodes` of two series with the names of the two nodes of each link.

    Example:
        >>> names, links = name_nodes(pd.Series(["b", "c "]), pd.Series(["c", "a"]))
        >>> names.tolist(), links.tolist()
        (['b', 'c', 'a'], [[0, 1], [1, 2]])
    """
    return number_nodes(code_texts(left, right))
