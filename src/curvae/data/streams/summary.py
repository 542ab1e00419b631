"""What is known of the columns of a stream after one pass over it.

Means and sums of squares of blocks are merged in float64 (Chan, Golub, LeVeque, 1979, Updating formulae and a pairwise
algorithm for computing sample variances): equal to those of all rows at once but for rounding, in any order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from ...errors import CurvaeError
from ..messages import quoted
from ..missing import has_missing

__all__ = ["Summary", "summarised"]

Array = NDArray[np.float64]

_FEW = 64


@dataclass(frozen=True)
class Summary:
    """Figures of the columns of some rows.

    Arguments:
        rows: how many.
        present: values of each column that are there, (columns,).
        origin: some number near these, (columns,), so that the digits of their differences are not lost.
        offset: mean of these less the origin, (columns,).
        squares: sum of their squared differences from the mean, (columns,).
        low, high: the extremes, (columns,); NaN for a column without values.
        other: some value that is neither 0 nor 1, (columns,); NaN where there is none.
        broken: some value that is no whole number, (columns,); NaN where there is none.
        digest: SHA-256 of the values.
    """

    rows: int
    present: Array
    origin: Array
    offset: Array
    squares: Array
    low: Array
    high: Array
    other: Array
    broken: Array
    digest: str = ""

    @classmethod
    def of(cls, x: NDArray[Any], origin: Array | None = None) -> Summary:
        """Of a matrix, (rows, columns), in which values may be missing; those to be merged need the same origin.

        A sparse one is not spread out.

        Example:
            >>> found = Summary.of(np.array([[1.0, 2.0], [3.0, np.nan]]))
            >>> found.mean.tolist(), found.squares.tolist(), found.present.tolist()
            ([2.0, 2.0], [2.0, 0.0], [2.0, 1.0])
        """
        if issparse(x):
            return cls._of_sparse(x, origin)
        there = np.isfinite(x) if has_missing(x) else None
        where: dict[str, Any] = {} if there is None else {"where": there}
        present = np.full(x.shape[1], len(x), np.float64) if there is None else there.sum(0).astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            if origin is None:
                origin = x.sum(0, dtype=np.float64, **where) / np.maximum(present, 1)
            apart = x - origin
            offset = apart.sum(0, **where) / np.maximum(present, 1)
            apart -= offset
            squares = np.square(apart, out=apart).sum(0, **where)
        low = x.min(0, initial=np.inf, **where).astype(np.float64)
        high = x.max(0, initial=-np.inf, **where).astype(np.float64)
        low, high = (np.where(present > 0, values, np.nan) for values in (low, high))
        other, broken = _one_of(x, _is_other), _one_of(x, _is_broken)
        return cls(len(x), present, origin, offset, squares, low, high, other, broken)

    @classmethod
    def _of_sparse(cls, x: Any, origin: Array | None) -> Summary:
        """Of a CSR matrix without duplicates, of which only what is stored may be missing: all else is 0."""
        rows, width = x.shape
        there = np.isfinite(x.data)
        values, columns = x.data[there].astype(np.float64), x.indices[there]
        present = rows - np.bincount(x.indices[~there], minlength=width).astype(np.float64)
        zeros = rows - np.bincount(x.indices, minlength=width)
        with np.errstate(over="ignore", invalid="ignore"):
            if origin is None:
                origin = np.zeros(width)  # which is near most values
            apart = values - origin[columns]
            offset = (np.bincount(columns, apart, width) - zeros * origin) / np.maximum(present, 1)
            squares = np.bincount(columns, (apart - offset[columns]) ** 2, width) + zeros * (origin + offset) ** 2
        low, high = np.where(zeros > 0, 0.0, np.inf), np.where(zeros > 0, 0.0, -np.inf)
        np.minimum.at(low, columns, values)
        np.maximum.at(high, columns, values)
        low, high = (np.where(present > 0, extreme, np.nan) for extreme in (low, high))
        other, broken = (np.full(width, np.nan) for _ in range(2))
        for found, holds in ((other, _is_other), (broken, _is_broken)):
            which = holds(values)
            found[columns[which]] = values[which]
        return cls(rows, present, origin, offset, squares, low, high, other, broken)

    def merge(self, more: Summary) -> Summary:
        """Of the rows of both."""
        present = self.present + more.present
        share = more.present / np.maximum(present, 1)
        with np.errstate(over="ignore", invalid="ignore"):
            apart = more.offset - self.offset
            offset = self.offset + apart * share
            squares = self.squares + more.squares + apart**2 * self.present * share
        return Summary(
            self.rows + more.rows,
            present,
            self.origin,
            offset,
            squares,
            np.fmin(self.low, more.low),
            np.fmax(self.high, more.high),
            np.where(np.isnan(self.other), more.other, self.other),
            np.where(np.isnan(self.broken), more.broken, self.broken),
        )

    @property
    def mean(self) -> Array:
        """Means of the columns, (columns,)."""
        return self.origin + self.offset

    @property
    def deviation(self) -> Array:
        """Standard deviations of the columns, (columns,)."""
        return np.sqrt(self.squares / np.maximum(self.present, 1))

    @property
    def examples(self) -> Array:
        """Four rows that have what all rows have: extremes, and values other than 0 and 1 and whole numbers."""
        values = np.stack([self.low, self.high, self.other, self.broken])
        return np.where(np.isnan(values), self.low, values)

    def filled(self) -> Summary:
        """Of the same rows with the mean of its column for every missing value."""
        gaps, mean = self.present < self.rows, self.mean
        other, broken = (
            np.where(gaps & np.isnan(known) & holds(mean), mean, known)
            for known, holds in ((self.other, _is_other), (self.broken, _is_broken))
        )
        return replace(self, present=np.full_like(self.present, self.rows), other=other, broken=broken)

    def mean_without(self, x: NDArray[Any]) -> Array:
        """Means of the columns without some of the rows, (columns,)."""
        left = Summary.of(x, self.origin)
        present = np.maximum(self.present - left.present, 1)
        return self.mean + (self.offset - left.offset) * (left.present / present)


def _arrays(x: Any) -> tuple[NDArray[Any], ...]:
    """What a matrix is stored in."""
    return (x.indptr, x.indices, x.data) if issparse(x) else (x,)


def _is_other(x: NDArray[Any]) -> NDArray[np.bool_]:
    return (x != 0) & (x != 1) & np.isfinite(x)


def _is_broken(x: NDArray[Any]) -> NDArray[np.bool_]:
    return (x != np.rint(x)) & np.isfinite(x)


def _one_of(x: NDArray[Any], holds: Callable[[NDArray[Any]], NDArray[np.bool_]]) -> Array:
    """One of the values of each column for which it holds; NaN where it holds for none."""
    found = np.full(x.shape[1], np.nan)
    for rows in (x[:_FEW], x[_FEW:]):  # most columns have one among the first
        lacking = np.flatnonzero(np.isnan(found))
        if not (len(lacking) and len(rows)):
            break
        values = rows[:, lacking]
        which = holds(values)
        place, columns = which.argmax(0), np.arange(len(lacking))
        found[lacking] = np.where(which[place, columns], values[place, columns], np.nan)
    return found


def summarised(
    pieces: Iterable[NDArray[Any]], source: str, advance: Callable[[int], None], names: Sequence[str]
) -> Summary:
    """Summarise rows that come in pieces.

    Arguments:
        pieces: matrices of the same columns.
        source: what they come from, for messages.
        advance: called with the number of rows of each piece.
        names: of the columns.
    """
    found: Summary | None = None
    digest = hashlib.sha256()
    for x in pieces:
        for part in _arrays(x):
            digest.update(part.data)
        own = Summary.of(x, None if found is None else found.origin)
        found = own if found is None else found.merge(own)
        advance(own.rows)
    if found is None or found.rows < 2:
        raise CurvaeError(f"{source} has fewer than 2 rows to learn from; give more")
    if (wide := np.flatnonzero(~np.isfinite(found.squares))).size:
        large = quoted(names[int(j)] for j in wide)
        raise CurvaeError(f"the squares of {large} are too large for a number; divide these columns by a constant")
    return replace(found, digest=digest.hexdigest())
