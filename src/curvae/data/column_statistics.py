"""Figures of columns in memory or on disk, and what is done about missing values: NaN and infinities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from ..errors import CurvaeError, FixableError
from ..models.likelihoods.base import row_blocks
from .disk import DiskMatrix
from .files import Messages, count, listing

__all__ = [
    "ColumnStatistics",
    "Missing",
    "MissingValuesError",
    "column_statistics",
    "complete_rows",
    "fill",
    "has_missing",
    "masked_as_nan",
    "missing_by_column",
    "missing_choices",
    "missing_entries",
    "require_sums",
    "resolve_missing",
    "useless_columns",
]

Missing: TypeAlias = Literal["error", "drop", "mean", "model"]
Array: TypeAlias = NDArray[np.float64]


class MissingValuesError(FixableError):
    """Values are missing and `missing` is "error".

    Arguments:
        found: in which columns.
        choices: other values of `missing` that can be used, the best first.
    """

    def __init__(self, found: str, choices: Sequence[Missing] = ("model", "mean", "drop")) -> None:
        filled = " or ".join(f'`missing="{choice}"`' for choice in ("drop", "mean") if choice in choices)
        trained = ', or train with `missing="model"`' if "model" in choices else ""
        super().__init__(found, [[("missing", choice) for choice in choices]], f"use {filled}{trained}")


def masked_as_nan(x: Any) -> Any:
    """Replace the masked entries of a numpy masked array by NaN; return anything else as it is.

    Example:
        >>> masked_as_nan(np.ma.masked_equal([1, 2], 2))
        array([ 1., nan])
    """
    if not isinstance(x, np.ma.MaskedArray):
        return x
    return np.ma.filled(x.astype(x.dtype if x.dtype.kind in "fO" else np.float64), np.nan)


# Means and sums of squares of blocks are merged in float64 (Chan, Golub, LeVeque, 1979, Updating formulae and a
# pairwise algorithm for computing sample variances): equal to those of all rows at once but for rounding.


@dataclass(frozen=True)
class ColumnStatistics:
    """Figures of the columns of a matrix; missing values do not count.

    Arguments:
        rows: how many.
        present: values of each column that are there, (columns,).
        origin: some number near them, (columns,), so that digits of their differences are not lost.
        offset: their mean less the origin, (columns,).
        squares: sum of their squared differences from the mean, (columns,).
        low, high: the smallest and the largest, (columns,); NaN for a column without values.
        complete: rows without missing values.
        empty: numbers of the rows without a single value.

    Example:
        >>> found = column_statistics(np.array([[1.0, 2.0], [3.0, np.nan]]))
        >>> found.mean.tolist(), found.deviation.tolist(), found.missing.tolist(), found.complete
        ([2.0, 2.0], [1.0, 0.0], [0, 1], 1)
    """

    rows: int
    present: Array
    origin: Array
    offset: Array
    squares: Array
    low: Array
    high: Array
    complete: int
    empty: NDArray[np.int64]

    @property
    def mean(self) -> Array:
        """Means, (columns,); 0 for a column without values."""
        return self.origin + self.offset

    @property
    def deviation(self) -> Array:
        """Standard deviations, (columns,)."""
        return np.sqrt(self.squares / np.maximum(self.present, 1))

    @property
    def has_missing(self) -> bool:
        """Whether any value is missing."""
        return self.complete < self.rows

    @property
    def missing(self) -> NDArray[np.int64]:
        """Missing values of each column, (columns,)."""
        return (self.rows - self.present).astype(np.int64)

    def merge(self, more: ColumnStatistics) -> Self:
        """Return the figures of these rows followed by more, which have the same origin."""
        present = self.present + more.present
        with np.errstate(over="ignore", invalid="ignore"):
            share = more.present / np.maximum(present, 1)
            apart = more.offset - self.offset
            offset = self.offset + apart * share
            squares = self.squares + more.squares + apart**2 * self.present * share
        return type(self)(
            self.rows + more.rows,
            present,
            self.origin,
            offset,
            squares,
            np.fmin(self.low, more.low),
            np.fmax(self.high, more.high),
            self.complete + more.complete,
            np.concatenate([self.empty, self.rows + more.empty]),
        )


def column_statistics(x: Any) -> ColumnStatistics:
    """Compute figures of the columns of a matrix in one pass over its rows; of one on disk they are kept."""
    known = x.known if isinstance(x, DiskMatrix) else {}
    if "statistics" not in known:
        merged: ColumnStatistics | None = None
        for block in row_blocks(x):
            of_block = _sparse_statistics if issparse(block) else _dense_statistics
            own = of_block(block, None if merged is None else merged.origin)
            merged = own if merged is None else merged.merge(own)
        known["statistics"] = _dense_statistics(np.empty((0, x.shape[1])), None) if merged is None else merged
    return known["statistics"]


def _dense_statistics(x: NDArray[Any], origin: Array | None) -> ColumnStatistics:
    x = np.ascontiguousarray(x)  # sums depend on the order of the values
    rows, columns = x.shape
    there = np.isfinite(x) if has_missing(x) else None
    where: dict[str, Any] = {} if there is None else {"where": there}
    present = np.full(columns, float(rows)) if there is None else there.sum(0, dtype=np.float64)
    lacking = np.zeros(rows, np.int64) if there is None else columns - there.sum(1)
    count = np.maximum(present, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        origin = x.sum(0, dtype=np.float64, **where) / count if origin is None else origin
        apart = x - origin
        offset = apart.sum(0, **where) / count
        apart -= offset
        squares = np.square(apart, out=apart).sum(0, **where)
    low = x.min(0, initial=np.inf, **where).astype(np.float64)
    high = x.max(0, initial=-np.inf, **where).astype(np.float64)
    low, high = (np.where(present > 0, values, np.nan) for values in (low, high))
    complete, empty = int((lacking == 0).sum()), np.flatnonzero((lacking == columns) & (lacking > 0))
    return ColumnStatistics(rows, present, origin, offset, squares, low, high, complete, empty)


def _sparse_statistics(x: Any, origin: Array | None) -> ColumnStatistics:
    """Compute figures of a CSR matrix, of which only stored values can be missing: all others are 0."""
    if not x.has_canonical_format:
        x = x.copy()
        x.sum_duplicates()
    rows, columns = x.shape
    there = np.isfinite(x.data)
    values, places = x.data[there].astype(np.float64), x.indices[there]
    present = rows - np.bincount(x.indices[~there], minlength=columns).astype(np.float64)
    zeros = rows - np.bincount(x.indices, minlength=columns)
    with np.errstate(over="ignore", invalid="ignore"):
        offset = np.bincount(places, values, columns) / np.maximum(present, 1)
        squares = np.bincount(places, (values - offset[places]) ** 2, columns) + zeros * offset**2
    low, high = np.where(zeros > 0, 0.0, np.inf), np.where(zeros > 0, 0.0, -np.inf)
    np.minimum.at(low, places, values)
    np.maximum.at(high, places, values)
    low, high = (np.where(present > 0, extreme, np.nan) for extreme in (low, high))
    lacking = np.bincount(np.searchsorted(x.indptr, np.flatnonzero(~there), side="right") - 1, minlength=rows)
    complete, empty = int((lacking == 0).sum()), np.flatnonzero((lacking == columns) & (lacking > 0))
    # 0 is near most values.
    return ColumnStatistics(rows, present, np.zeros(columns), offset, squares, low, high, complete, empty)


def has_missing(x: Any) -> bool:
    """Return whether any value of a matrix is missing."""
    if isinstance(x, DiskMatrix):
        return column_statistics(x).has_missing
    values = x.data if issparse(x) else x
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum(dtype=np.float64)):
            return False  # the sum needs no array of booleans
    return not bool(np.isfinite(values).all())


def missing_by_column(known: ColumnStatistics, names: Sequence[str]) -> str:
    """List the columns with missing values, each with their number, for messages."""
    return listing(f"{name!r} ({n:,})" for name, n in zip(names, known.missing.tolist(), strict=True) if n)


def useless_columns(known: ColumnStatistics) -> dict[int, str]:
    """Find the columns of a table from which there is nothing to learn, with the reason; none if all are such.

    Example:
        >>> useless_columns(column_statistics(np.array([[7.0, np.nan, 1.0], [7.0, np.nan, 2.0]])))
        {0: 'constant', 1: 'no values'}
    """
    useless = {
        j: "constant" if known.present[j] else "no values"
        for j in np.flatnonzero((known.low == known.high) | (known.present == 0)).tolist()
    }
    return useless if len(useless) < len(known.present) else {}


def missing_choices(known: ColumnStatistics, allowed: Sequence[Missing] = ("model", "mean", "drop")) -> list[Missing]:
    """List those of the allowed ways to deal with missing values that succeed, the best first.

    Example:
        >>> missing_choices(column_statistics(np.array([[1.0, np.nan], [np.nan, np.nan]])))
        ['mean']
    """
    impossible = {"model"} if len(known.empty) else set()
    if known.complete < 2:
        impossible.add("drop")
    return [choice for choice in allowed if choice not in impossible]


def require_sums(x: Any, columns: Sequence[Any], source: str) -> None:
    """Raise for columns with values so large that their sum is not finite; missing values are ignored."""
    largest = np.finfo(np.float64).max / (4 * max(1, x.shape[0]))  # the sum of all differences is still a number
    values = None if isinstance(x, DiskMatrix) else x.data if issparse(x) else x
    if values is not None and (not values.size or max(float(values.max()), -float(values.min())) <= largest):
        return  # without a look at each column
    known = column_statistics(x)
    if (wide := np.flatnonzero(np.fmax(-known.low, known.high) > largest)).size:
        large = listing(f"{columns[int(j)].name!r} ({max(-known.low[j], known.high[j]):.3g})" for j in wide)
        raise CurvaeError(f"{source} has values that are too large: {large}; divide these columns by a constant")


def resolve_missing(
    x: Any,
    names: Sequence[str],
    fills: Array | None,
    missing: Missing,
    messages: Messages,
    choices: Sequence[Missing] = ("model", "mean", "drop"),
) -> tuple[Any, NDArray[np.int64] | None]:
    """Deal with the missing values of a matrix.

    Arguments:
        x: dense, sparse or on disk, (rows, columns).
        names: names of the columns.
        fills: replacement for the missing values of each column with "mean", (columns,).
        missing: "error" raises, "drop" removes the rows, "mean" fills them in, and "model" leaves NaN to the model.
        messages: takes a note about what was done.
        choices: values of `missing` to propose in the error.

    Returns:
        The matrix, and the numbers of the rows that were kept, or None if all were.
    """
    if not has_missing(x):
        return x, None
    known = column_statistics(x)
    where = missing_by_column(known, names)
    if missing == "error":
        found = f"missing or infinite values, counted by column: {where}"
        raise MissingValuesError(found, missing_choices(known, choices))
    if missing == "model":
        messages.note(f"missing values were left to the model: {where}.")
        return fill(x, np.nan), None
    if missing == "drop":
        kept = complete_rows(x)
        if not len(kept):
            raise CurvaeError(
                f'every row has a missing value, counted by column: {where}; use `missing="mean"` or `missing="model"`'
            )
        messages.note(f"left out for missing values: {count(x.shape[0] - len(kept), 'row')}, by column {where}.")
        return x[kept], kept
    assert fills is not None
    messages.note(f"missing values were replaced by the column's mean or most frequent category: {where}.")
    return fill(x, fills), None


def complete_rows(x: Any) -> NDArray[np.int64]:
    """Find the rows without missing values."""
    gaps = [np.bincount(missing_entries(block)[0], minlength=block.shape[0]) for block in row_blocks(x)]
    return np.flatnonzero(np.concatenate(gaps) == 0)


def missing_entries(x: Any) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Find the missing values of a matrix in memory: their rows and columns, row by row."""
    if issparse(x):
        bad = np.flatnonzero(~np.isfinite(x.data))
        return np.searchsorted(x.indptr, bad, side="right") - 1, x.indices[bad]
    rows, columns = np.nonzero(~np.isfinite(x))
    return rows, columns


def fill(x: Any, values: Array | float) -> Any:
    """Copy a matrix and replace its missing values by one value, or by that of their column, (columns,)."""
    if isinstance(x, DiskMatrix):
        return x.apply(partial(fill, values=values), x.width)
    x = x.copy()
    entries = x.data if issparse(x) else x
    entries[~np.isfinite(entries)] = np.broadcast_to(values, x.shape[1:])[missing_entries(x)[1]]
    return x
