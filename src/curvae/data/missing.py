"""Missing values: NaN and infinities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from ..errors import CurvaeError, FixableError
from .messages import Messages, count, listing

__all__ = [
    "Missing",
    "MissingValuesError",
    "column_means",
    "empty_columns",
    "empty_rows",
    "extremes",
    "fill",
    "has_missing",
    "masked_as_nan",
    "missing_by_column",
    "missing_choices",
    "missing_counts",
    "places",
    "require_sums",
    "resolve",
    "useless_columns",
]

Missing: TypeAlias = Literal["error", "drop", "mean", "model"]


class MissingValuesError(FixableError):
    """Values are missing and `missing` is "error".

    Arguments:
        found: in which columns.
        choices: other values of `missing` that can be used, the best first.
    """

    def __init__(self, found: str, choices: Sequence[Missing] = ("model", "mean", "drop")) -> None:
        filled = " or ".join(f'missing="{choice}"' for choice in ("drop", "mean") if choice in choices)
        trained = ', or train with missing="model"' if "model" in choices else ""
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


def has_missing(x: Any) -> bool:
    """Whether any value is missing."""
    values = x.data if issparse(x) else x
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum(dtype=np.float64)):
            return False  # the sum needs no array of booleans
    return not bool(np.isfinite(values).all())


def missing_counts(x: Any) -> NDArray[np.intp]:
    """Count the missing values of each column, (columns,); in a sparse matrix only stored values can be missing."""
    if issparse(x):
        return np.bincount(x.indices[~np.isfinite(x.data)], minlength=x.shape[1])
    return len(x) - np.isfinite(x).sum(0)


def missing_by_column(x: Any, names: Sequence[str]) -> str:
    """List the columns with missing values, each with their number, for messages."""
    return listing(f"{name!r} ({n:,})" for name, n in zip(names, missing_counts(x), strict=True) if n)


def column_means(x: Any) -> NDArray[np.float64]:
    """Mean of each column without its missing values, (columns,); 0 for an empty column."""
    if not (issparse(x) or has_missing(x)):
        return x.mean(axis=0, dtype=np.float64)
    present = np.maximum(x.shape[0] - missing_counts(x), 1)
    if issparse(x):
        return np.bincount(x.indices, np.where(np.isfinite(x.data), x.data, 0.0), minlength=x.shape[1]) / present
    return np.sum(x, axis=0, dtype=np.float64, where=np.isfinite(x)) / present


def extremes(x: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Smallest and largest value of each column without NaN, (columns,) each; NaN for an empty column.

    Example:
        >>> extremes(np.array([[1.0, np.nan], [3.0, 2.0]]))
        (array([1., 2.]), array([3., 2.]))
    """
    if issparse(x):
        return x.nanmin(axis=0).toarray().ravel(), x.nanmax(axis=0).toarray().ravel()
    low, high = x.min(axis=0), x.max(axis=0)
    if np.isnan(low).any():
        low, high = np.fmin.reduce(x, axis=0), np.fmax.reduce(x, axis=0)
    return low, high


def empty_columns(x: Any) -> NDArray[np.intp]:
    """Indices of the columns in which all values are missing."""
    return np.flatnonzero(missing_counts(x) == x.shape[0]) if has_missing(x) else np.zeros(0, dtype=np.intp)


def useless_columns(x: Any) -> dict[int, str]:
    """Indices of the columns of a table from which there is nothing to learn, with the reason; none if all are such.

    Example:
        >>> useless_columns(np.array([[7.0, np.nan, 1.0], [7.0, np.nan, 2.0]]))
        {0: 'constant', 1: 'no values'}
    """
    low, high = extremes(x)
    empty = set(empty_columns(x).tolist())
    found = {j: "no values" if j in empty else "constant" for j in {*np.flatnonzero(low == high).tolist(), *empty}}
    return dict(sorted(found.items())) if len(found) < x.shape[1] else {}


def empty_rows(x: Any) -> NDArray[np.intp]:
    """Indices of the rows in which all values are missing."""
    if not has_missing(x):
        return np.zeros(0, dtype=np.intp)
    return np.flatnonzero(np.bincount(places(x)[0], minlength=x.shape[0]) == x.shape[1])


def missing_choices(x: Any, allowed: Sequence[Missing] = ("model", "mean", "drop")) -> list[Missing]:
    """Those of the allowed ways to deal with the missing values of a matrix that succeed, the best first.

    Example:
        >>> missing_choices(np.array([[1.0, np.nan], [np.nan, np.nan]]))
        ['mean']
    """
    lacking = np.bincount(places(x)[0], minlength=x.shape[0])
    impossible = {"model"} if lacking.max(initial=0) == x.shape[1] else set()
    if (lacking == 0).sum() < 2:
        impossible.add("drop")
    return [choice for choice in allowed if choice not in impossible]


def require_sums(x: Any, columns: Sequence[Any], source: str) -> None:
    """Raise for columns with values so large that their sum is not finite; missing values are ignored."""
    values = x.data if issparse(x) else x
    largest = np.finfo(np.float64).max / (4 * max(1, x.shape[0]))  # the sum of all differences is still a number
    if not values.size or max(float(values.max()), -float(values.min())) <= largest:
        return
    low, high = extremes(fill(x, np.nan))
    if (wide := np.flatnonzero(np.fmax(-low, high) > largest)).size:
        large = listing(f"{columns[int(j)].name!r} ({max(-low[j], high[j]):.3g})" for j in wide)
        raise CurvaeError(f"{source} has values that are too large: {large}; divide these columns by a constant")


def resolve(
    x: Any,
    names: Sequence[str],
    fills: NDArray[np.float64] | None,
    missing: Missing,
    messages: Messages,
    choices: Sequence[Missing] = ("model", "mean", "drop"),
) -> tuple[Any, NDArray[np.bool_] | None]:
    """Deal with the missing values of a matrix.

    Arguments:
        x: dense or sparse, (rows, columns).
        names: names of the columns.
        fills: replacement for the missing values of each column with "mean", (columns,).
        missing: "error" raises, "drop" removes the rows, "mean" fills them in, and "model" leaves NaN to the model.
        messages: takes a note about what was done.
        choices: values of `missing` to propose in the error.

    Returns:
        The matrix, and a mask of the rows that were kept, or None if all were.
    """
    if not has_missing(x):
        return x, None
    where = missing_by_column(x, names)
    if missing == "error":
        found = f"missing or infinite values, counted by column: {where}"
        raise MissingValuesError(found, missing_choices(x, choices))
    rows, columns = places(x)
    if missing == "model":
        messages.note(f"missing values were left to the model: {where}.")
        return fill(x, np.nan), None
    if missing == "drop":
        keep = np.ones(x.shape[0], dtype=bool)
        keep[rows] = False
        if not keep.any():
            raise CurvaeError(
                f'every row has a missing value, counted by column: {where}; use missing="mean" or missing="model"'
            )
        messages.note(f"left out for missing values: {count(int((~keep).sum()), 'row')}, by column {where}.")
        return x[keep], keep
    assert fills is not None
    messages.note(f"missing values were replaced by the column's mean or most frequent category: {where}.")
    return fill(x, fills[columns]), None


def fill(x: Any, values: Any) -> Any:
    """Copy a matrix and replace its missing values by `values`, in the order of `places`."""
    x = x.copy()
    entries = x.data if issparse(x) else x
    entries[~np.isfinite(entries)] = values
    return x


def places(x: Any) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Row and column indices of the missing values, row by row."""
    if issparse(x):
        bad = np.flatnonzero(~np.isfinite(x.data))
        return np.searchsorted(x.indptr, bad, side="right") - 1, x.indices[bad]
    rows, columns = np.nonzero(~np.isfinite(x))
    return rows, columns
