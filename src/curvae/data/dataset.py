"""Rows in memory with their schema, missing values and scaling, and the arrays that a model takes."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from operator import eq
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse import csr_array, issparse
from torch import Tensor

from ..errors import CurvaeError, FixableError
from . import memory
from .files import Messages, count, listing, quoted

__all__ = [
    "Arrays",
    "Column",
    "Dataset",
    "Kind",
    "Matrix",
    "Missing",
    "MissingValuesError",
    "NumberColumns",
    "PixelNames",
    "Scaling",
    "Schema",
    "as_matrix",
    "check_ids",
    "column_means",
    "empty_columns",
    "empty_rows",
    "extremes",
    "feature_names",
    "fill",
    "from_arrays",
    "has_missing",
    "hash_rows",
    "masked_as_nan",
    "missing_by_column",
    "missing_choices",
    "missing_counts",
    "one_hot",
    "places",
    "require_sums",
    "resolve",
    "source_columns",
    "useless_columns",
]


# Missing values: NaN and infinities.

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


Matrix: TypeAlias = NDArray[np.float32] | NDArray[np.float64] | csr_array

_CHUNK = 2**22  # cells hashed at a time
_TEXTS = 2**16  # texts hashed at a time


@dataclass(frozen=True, eq=False)
class Arrays:
    """The inputs of a model for some rows, in original units.

    Arguments:
        x: the values, (rows, features), dense or sparse.
        context: covariates as numbers, (rows, covariates), or None.
        size: exposure of each row, such as the library size of a cell, (rows,), or None.
        weight: how much each row counts in a training, (rows,), or None where all count alike; only ratios matter.
        blocks: number of one-hot features that each column of the source became: 0 for a column of numbers, 1 for a
            binary column, otherwise its number of categories; () if all columns are numbers.
        shape: shape of one row: (height, width) for images, () for a plain row.
        missing: whether entries of x may be NaN, which the model then handles.

    Example:
        >>> Arrays(np.eye(3), size=np.arange(3.0)).take([2, 0]).size.tolist()
        [2.0, 0.0]
    """

    x: Any
    context: NDArray[np.float64] | None = None
    size: NDArray[np.float64] | None = None
    blocks: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    missing: bool = False
    weight: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, data: Arrays | Dataset | Matrix, blocks: tuple[int, ...] = ()) -> Arrays:
        """Make arrays from a matrix and its blocks, or take those of a data set."""
        if isinstance(data, Arrays):
            return data
        known = getattr(data, "arrays", None)
        return known if isinstance(known, Arrays) else cls(data, blocks=blocks)

    def __len__(self) -> int:
        return int(self.x.shape[0])

    @property
    def features(self) -> int:
        return int(self.x.shape[1])

    @property
    def per_row(self) -> dict[str, Any]:
        """The arrays with one entry per row that are not None, by name."""
        named = {"x": self.x, "context": self.context, "size": self.size, "weight": self.weight}
        return {name: array for name, array in named.items() if array is not None}

    def take(self, index: Any) -> Arrays:
        """Select rows by an index, a mask or a slice."""
        return replace(self, **{name: array[index] for name, array in self.per_row.items()})


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows of numbers in their original units, with names, labels and covariates.

    Arguments:
        x: the values, (rows, features), float32 or float64; a `scipy.sparse.csr_array` stays sparse.
        names: names of the features, (features,).
        shape: shape of one row: (features,), or (height, width) for images.
        ids: unique name of each row, (rows,); row numbers if the data has none.
        labels: label of each row, (rows,), or None.
        label_name: name of the label column.
        id_name: name of the column of a table that ids are from, "" if it has none; None if rows are numbered.
        groups: group of each row, (rows,), or None; rows of one group stay together in splits.
        exposure: time, area or volume in which each row was counted, (rows,), or None.
        blocks: number of one-hot features of each column, or (); see `curvae.data.Arrays`.
        context: covariates as numbers, (rows, covariates), or None; see `curvae.data.Arrays`.
        context_names: names of the columns of `context`.
        notes: what was done to the data, one sentence each.
        warnings: what looks wrong and how to fix it, one sentence each.
        missing: whether x may contain NaN, which the model then handles.
    """

    x: Matrix
    names: Sequence[str]
    shape: tuple[int, ...]
    ids: NDArray[np.str_]
    labels: NDArray[np.str_] | None = None
    label_name: str | None = None
    groups: NDArray[np.str_] | None = None
    exposure: NDArray[np.float64] | None = None
    blocks: tuple[int, ...] = ()
    context: NDArray[np.float64] | None = None
    context_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    missing: bool = False
    id_name: str | None = None

    def __post_init__(self) -> None:
        rows, features = self.x.shape
        if len(self.names) != features or math.prod(self.shape) != features:
            raise CurvaeError(f"{count(features, 'feature')}, {count(len(self.names), 'name')} and shape {self.shape}")
        for what in ("ids", "labels", "groups", "exposure"):
            if (values := getattr(self, what)) is not None and values.shape != (rows,):
                raise CurvaeError(f"{count(rows, 'row')} but {what} of shape {values.shape}; give one per row")
        if self.context is not None and self.context.shape != (rows, len(self.context_names)):
            raise CurvaeError(
                f"{count(rows, 'row')} and {count(len(self.context_names), 'name')} of covariates, but a context of "
                f"shape {self.context.shape}"
            )

    def __len__(self) -> int:
        return int(self.x.shape[0])

    @property
    def n_columns(self) -> int:
        """Number of columns; one of categories counts once, however many features it became."""
        return len(self.blocks) or int(self.x.shape[1])

    @cached_property
    def arrays(self) -> Arrays:
        """The inputs of a model for these rows."""
        shape = self.shape if len(self.shape) > 1 else ()
        return Arrays(self.x, self.context, self.exposure, blocks=self.blocks, shape=shape, missing=self.missing)

    def take(self, index: Sequence[int] | Sequence[bool] | NDArray[Any]) -> Dataset:
        """Select rows by an index or a mask; an index also sets their order.

        Example:
            >>> from_arrays(np.eye(3)).take([2, 0]).ids.tolist()
            ['2', '0']
        """
        rows = np.asarray(index) if len(index) else np.zeros(0, dtype=np.intp)
        if rows.dtype == bool:
            if rows.shape != (len(self),):
                raise CurvaeError(f"a mask of shape {rows.shape} cannot choose among {count(len(self), 'row')}")
            rows = np.flatnonzero(rows)
        return replace(
            self,
            x=self.x[rows],
            ids=self.ids[rows],
            labels=None if self.labels is None else self.labels[rows],
            groups=None if self.groups is None else self.groups[rows],
            exposure=None if self.exposure is None else self.exposure[rows],
            context=None if self.context is None else self.context[rows],
        )

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of values, names, shape, ids, labels and groups, and of exposure and covariates if present.

        It depends only on the values, not on their storage as float32 or float64, dense or sparse.
        """
        digest = hashlib.sha256()
        for sizes in (self.x.shape, self.shape):
            digest.update(json.dumps(sizes).encode() + b"\n")
        for texts in (self.names, self.ids, self.labels, self.groups):
            _hash_texts(texts, digest)
        hash_rows(self.x, digest)
        if self.exposure is not None:
            digest.update(b"exposure\n")
            hash_rows(self.exposure.reshape(-1, 1), digest)
        if self.context is not None:
            _hash_texts(self.context_names, digest)
            hash_rows(self.context, digest)
        return digest.hexdigest()


def hash_rows(x: Any, digest: hashlib._Hash) -> None:
    """Add the values of a matrix to a hash, in the same way for dense and sparse, float32 and float64."""
    step = max(1, _CHUNK // max(1, x.shape[1]))
    for start in range(0, x.shape[0], step):
        for array, dtype in zip(_nonzero(x[start : start + step]), ("<i8", "<i8", "<f8"), strict=True):
            values = array.astype(dtype)
            if dtype == "<f8" and (absent := np.isnan(values)).any():
                values[absent] = np.nan  # NaN has many bit patterns
            digest.update(values.tobytes())


def _nonzero(x: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Number of nonzero values in each row, their columns, and the values, row by row."""
    if not issparse(x):
        rows, columns = np.nonzero(x)
        return np.bincount(rows, minlength=len(x)), columns, x[rows, columns]
    x = x.copy()
    x.sum_duplicates()
    x.eliminate_zeros()
    return np.diff(x.indptr), x.indices, x.data


def _hash_texts(texts: Sequence[str] | NDArray[np.str_] | None, digest: hashlib._Hash) -> None:
    """Add texts to a hash as one line of JSON, in chunks to save memory."""
    if texts is None:
        digest.update(b"null\n")
        return
    digest.update(b"[")
    for start in range(0, len(texts), _TEXTS):
        part = json.dumps(list(texts[start : start + _TEXTS]))[1:-1]
        digest.update(f"{', ' if start else ''}{part}".encode())
    digest.update(b"]\n")


def as_matrix(x: Any, what: str = "x") -> Matrix:
    """Convert numbers to a matrix of float64, or of float32 if they are no finer; sparse ones to a csr_array."""
    values = x if issparse(x) else np.asarray(x)
    if values.dtype.kind not in "biuf":
        raise CurvaeError(f"{what} holds {values.dtype}, not real numbers; convert it to float")
    if values.ndim != 2:
        raise CurvaeError(f"{what} has shape {values.shape}; give (rows, features)")
    dtype = np.float32 if values.dtype in (np.float16, np.float32) else np.float64
    if not issparse(values):
        return np.ascontiguousarray(values, dtype=dtype)
    rows = csr_array(values, dtype=dtype)
    rows.sum_duplicates()
    return rows


def feature_names(width: int) -> tuple[str, ...]:
    """Names for features that have none: x1, x2, …"""
    return tuple(f"x{i}" for i in range(1, width + 1))


def check_ids(ids: NDArray[np.str_], what: str = "ids", fix: str = "make ids unique or use another column") -> None:
    """Raise unless ids are unique and none is empty."""
    unique, counts = np.unique(ids, return_counts=True)
    if (empty := int((ids == "").sum())) > 0:
        raise CurvaeError(f"{what}: {count(empty, 'row')} without an id; give every row one")
    if (twice := unique[counts > 1]).size:
        raise CurvaeError(f"{what}: {quoted(twice)} given more than once; {fix}")


def from_arrays(
    x: ArrayLike | csr_array,
    names: Sequence[str] | None = None,
    labels: ArrayLike | None = None,
    ids: ArrayLike | None = None,
    shape: tuple[int, ...] | None = None,
) -> Dataset:
    """Make a data set from a numpy array or any scipy sparse matrix.

    Arguments:
        x: finite values, (rows, features), or (rows, height, width) for images; masked ones are missing.
        names: names of the features; x1, x2, … by default.
        labels: label of each row, (rows,).
        ids: unique name of each row, (rows,); row numbers by default.
        shape: shape of one row; by default that of x without its first dimension.

    Example:
        >>> data = from_arrays([[0.0, 1.0], [2.0, 3.0]], labels=["a", "b"])
        >>> len(data), data.names, data.x.dtype
        (2, ('x1', 'x2'), dtype('float64'))
    """
    values: Any = x if issparse(x) else np.asarray(masked_as_nan(x))
    if values.ndim > 2:
        shape = values.shape[1:] if shape is None else shape
        values = values.reshape(len(values), -1)
    matrix = as_matrix(values)
    rows, width = matrix.shape
    names = feature_names(width) if names is None else tuple(str(name) for name in names)
    if len(names) == width:  # otherwise Dataset says so
        resolve(matrix, names, None, "error", Messages())
    data = Dataset(
        x=matrix,
        names=names,
        shape=(width,) if shape is None else tuple(shape),
        ids=np.arange(rows).astype(np.str_) if ids is None else np.asarray(ids).astype(np.str_),
        labels=None if labels is None else np.asarray(labels).astype(np.str_),
        label_name=None if labels is None else "label",
    )
    check_ids(data.ids)
    return data


# How a source becomes a matrix: fitted to the training data, stored with a run, applied to new data.

Kind: TypeAlias = Literal["table", "matrix", "images"]
_KINDS: tuple[Kind, ...] = ("table", "matrix", "images")


@dataclass(frozen=True)
class Column:
    """One column of the source.

    Arguments:
        name: name in the source.
        categories: categories in the order of their features; None for a column of numbers.
        fill: replacement for a missing value: the mean, the position of the most frequent category, or of a binary
            column the more frequent value.
        binary: whether the column has the values 0 and 1, both of them and no others.
        scale: standard deviation of a numeric covariate; 1 otherwise.
    """

    name: str
    categories: tuple[str, ...] | None = None
    fill: float = 0.0
    binary: bool = False
    scale: float = 1.0

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that the column becomes.

        Example:
            >>> Column("colour", ("blue", "red")).features
            ('colour=blue', 'colour=red')
        """
        if self.categories is None:
            return (self.name,)
        return tuple(f"{self.name}={category}" for category in self.categories)

    def to_json(self) -> dict[str, Any]:
        """Convert to plain values for JSON."""
        return {
            "name": self.name,
            "fill": self.fill,
            **({} if self.scale == 1 else {"scale": self.scale}),
            **({} if self.categories is None else {"categories": list(self.categories)}),
            **({"binary": True} if self.binary else {}),
        }


Item = TypeVar("Item")


class _Made(Sequence[Item]):
    """A sequence that makes its items on access, since millions of stored objects would take gigabytes."""

    def make(self, index: int) -> Item:
        """Make one item."""
        raise NotImplementedError

    def __getitem__(self, index: Any) -> Any:
        chosen = range(len(self))[index]
        return tuple(map(self.make, chosen)) if isinstance(chosen, range) else self.make(chosen)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]


class PixelNames(_Made[str]):
    """Names of the pixels of an image, row by row.

    Example:
        >>> PixelNames(2, 3)[:4]
        ('r1c1', 'r1c2', 'r1c3', 'r2c1')
    """

    def __init__(self, height: int, width: int) -> None:
        self.height, self.width = height, width

    def __len__(self) -> int:
        return self.height * self.width

    def make(self, index: int) -> str:
        row, column = divmod(index, self.width)
        return f"r{row + 1}c{column + 1}"


class NumberColumns(_Made[Column]):
    """Columns of numbers.

    Arguments:
        names: names of the columns.
        fills: replacement for the missing values of each column, (columns,); 0 by default.
    """

    def __init__(self, names: Sequence[str], fills: NDArray[np.float64] | None = None) -> None:
        self.names, self.fills = names, fills

    def __len__(self) -> int:
        return len(self.names)

    def make(self, index: int) -> Column:
        return Column(self.names[index], fill=0.0 if self.fills is None else float(self.fills[index]))


@dataclass(frozen=True)
class Schema:
    """How a source becomes a matrix.

    Arguments:
        kind: table, matrix or images.
        columns: the columns that become features, in order.
        shape: shape of one row of the matrix.
        label, id, group, exposure: names of the columns of a table with these roles, or None.
        covariates: columns that the networks are given but do not model; none of them is a feature.

    Example:
        >>> schema = Schema("table", (Column("size", fill=1.5), Column("colour", ("blue", "red"))), (3,), label="type")
        >>> schema.names
        ('size', 'colour=blue', 'colour=red')
        >>> Schema.from_json(schema.to_json()) == schema
        True
    """

    kind: Kind
    columns: Sequence[Column]
    shape: tuple[int, ...]
    label: str | None = None
    id: str | None = None
    group: str | None = None
    exposure: str | None = None
    covariates: tuple[Column, ...] = ()

    @cached_property
    def names(self) -> Sequence[str]:
        """Unique names of the features: a category that would have the name of another feature gets a number.

        Example:
            >>> Schema("table", (Column("a=b"), Column("a", ("b", "c"))), (3,)).names
            ('a=b', 'a=b (2)', 'a=c')
        """
        return self.columns.names if isinstance(self.columns, NumberColumns) else _names(self.columns)

    @property
    def context_names(self) -> tuple[str, ...]:
        """Names of the columns that the covariates become."""
        return _names(self.covariates)

    @property
    def column_names(self) -> Sequence[str]:
        """Names of the columns."""
        columns = self.columns
        return columns.names if isinstance(columns, NumberColumns) else [column.name for column in columns]

    @property
    def fills(self) -> NDArray[np.float64]:
        """Replacement for the missing values of each column, (columns,)."""
        if isinstance(self.columns, NumberColumns) and self.columns.fills is not None:
            return self.columns.fills
        return np.array([column.fill for column in self.columns])

    @property
    def categorical(self) -> bool:
        """Whether some column is categorical."""
        numbers = isinstance(self.columns, NumberColumns)  # of which there may be millions
        return not numbers and any(column.categories is not None for column in self.columns)

    @property
    def blocks(self) -> tuple[int, ...]:
        """Number of categories of each column, 1 if it is binary, 0 for numbers; () if all are numbers.

        Example:
            >>> Schema("table", (Column("size"), Column("colour", ("blue", "red"))), (3,)).blocks
            (0, 2)
        """
        if isinstance(self.columns, NumberColumns):
            return ()
        blocks = tuple(int(c.binary) if c.categories is None else len(c.categories) for c in self.columns)
        return blocks if any(blocks) else ()

    def to_json(self) -> dict[str, Any]:
        """Convert to plain values for JSON."""
        return {
            "kind": self.kind,
            "shape": list(self.shape),
            "label": self.label,
            "id": self.id,
            "group": self.group,
            **({} if self.exposure is None else {"exposure": self.exposure}),
            "columns": [column.to_json() for column in self.columns],
            **({"covariates": [column.to_json() for column in self.covariates]} if self.covariates else {}),
        }

    @classmethod
    def from_json(cls, d: Any) -> Schema:
        """Inverse of `to_json`."""
        _expect(isinstance(d, dict), "it is not an object")
        _expect(d.get("kind") in _KINDS, f"kind is {d.get('kind')!r}, not one of {', '.join(_KINDS)}")
        _expect(isinstance(d.get("columns"), list), "columns is not a list")
        _expect(
            isinstance(d.get("shape"), list) and all(type(n) is int for n in d["shape"]),
            "shape is not a list of integers",
        )
        roles = {role: d.get(role) for role in ("label", "id", "group", "exposure")}
        _expect(
            all(isinstance(name, str | None) for name in roles.values()), "label, id, group or exposure is not a name"
        )
        _expect(isinstance(d.get("covariates", []), list), "covariates is not a list")
        columns, covariates = (
            tuple(_column_from_json(entry, place) for place, entry in enumerate(entries, 1))
            for entries in (d["columns"], d.get("covariates", []))
        )
        schema = cls(d["kind"], columns, tuple(d["shape"]), **roles, covariates=covariates)
        _expect(
            math.prod(schema.shape) == len(schema.names) > 0,
            f"shape {schema.shape} does not fit {len(schema.names)} features",
        )
        return schema


def one_hot(x: Any, columns: Sequence[Column], source: str) -> NDArray[np.float64]:
    """Replace each column of category codes by one column per category.

    Arguments:
        x: numbers, (rows, columns); in a categorical column the position of the category, or NaN.
        columns: descriptions of the columns of x.
        source: name of the data in messages.

    Returns:
        Features, (rows, features); all categories of a missing value are NaN.
    """
    widths = [len(column.features) for column in columns]
    memory.require(8 * len(x) * sum(widths), f"{source} with one column a category ({len(x):,} × {sum(widths):,})")
    features = np.zeros((len(x), sum(widths)))
    for j, (column, start) in enumerate(zip(columns, np.cumsum([0, *widths[:-1]]), strict=True)):
        if column.categories is None:
            features[:, start] = x[:, j]
        else:
            known = np.isfinite(x[:, j])
            features[known.nonzero()[0], start + x[known, j].astype(np.intp)] = 1.0
            features[~known, start : start + len(column.features)] = np.nan
    return features


def source_columns(x: NDArray[np.float64], columns: Sequence[Column]) -> dict[str, Any]:
    """Convert features back to the columns of the source, by name: of categories the most probable one, as text.

    Example:
        >>> source_columns(np.array([[1.5, 0.2, 0.8]]), [Column("size"), Column("colour", ("blue", "red"))])
        {'size': array([1.5]), 'colour': array(['red'], dtype='<U4')}
    """
    found: dict[str, Any] = {}
    start = 0
    for column in columns:
        block = x[:, start : start + len(column.features)]
        if column.categories is not None:
            found[column.name] = np.array(column.categories)[block.argmax(1)]
        else:
            whole = column.binary and bool(np.isin(block, (0, 1)).all())
            found[column.name] = block[:, 0].astype(np.int64) if whole else block[:, 0]
        start += len(column.features)
    return found


def _names(columns: Sequence[Column]) -> tuple[str, ...]:
    """Unique names of the features that columns become: those of categories get a number where they are taken."""
    taken = {column.name for column in columns if column.categories is None}
    names: list[str] = []
    for column in columns:
        if column.categories is None:
            names.append(column.name)
            continue
        for name in column.features:
            spellings = itertools.chain([name], (f"{name} ({number})" for number in itertools.count(2)))
            names.append(next(spelling for spelling in spellings if spelling not in taken))
            taken.add(names[-1])
    return tuple(names)


def _column_from_json(entry: Any, place: int) -> Column:
    _expect(isinstance(entry, dict) and isinstance(entry.get("name"), str), f"column {place} has no name")
    fill, scale, categories = entry.get("fill"), entry.get("scale", 1.0), entry.get("categories")
    _expect(type(fill) in (int, float), f"column {place} has no fill")
    _expect(type(scale) in (int, float) and 0 < scale < math.inf, f"scale of column {place} is not a positive number")
    if categories is not None:
        texts = isinstance(categories, list) and all(isinstance(c, str) for c in categories)
        _expect(texts and len(set(categories)) == len(categories) > 0, f"categories of column {place} are not names")
        _expect(fill in range(len(categories)), f"fill of column {place} is not the position of a category")
    binary = entry.get("binary", False)
    _expect(type(binary) is bool and not (binary and categories), f"column {place} cannot be binary")
    return Column(entry["name"], None if categories is None else tuple(categories), float(fill), binary, float(scale))


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise CurvaeError(f"the stored description of the data is malformed: {otherwise}; train again")


# Scaling of columns to mean 0 and variance 1.

_SMALL = 1e-140  # squares of smaller numbers lose digits, and those of numbers beyond 1/_SMALL are infinite


@dataclass(frozen=True)
class Scaling:
    """x ↦ (x − shift)/scale, column by column."""

    shift: NDArray[np.float64]
    scale: NDArray[np.float64]
    constant: NDArray[np.bool_] | None = None
    """columns of which only one value is known, to which `invert` leads back whatever a model says; None: there are
    none"""

    @classmethod
    def identity(cls, features: int) -> Scaling:
        return cls(np.zeros(features), np.ones(features))

    @classmethod
    def standard(cls, x: Any) -> Scaling:
        """To mean 0 and variance 1 of the values that are there; a constant column becomes 0."""
        if (unit := _units(x)) is not None:
            found = cls.standard(sparse.csr_array(x.multiply(1 / unit)) if sparse.issparse(x) else x / unit)
            scale = np.where(False if found.constant is None else found.constant, 1.0, found.scale * unit)
            return cls(found.shift * unit, scale, found.constant)
        mean, deviation = _moments(sparse.csr_array(x) if sparse.issparse(x) else x)

        def values() -> NDArray[Any]:
            first = x[[0]].toarray()[0] if sparse.issparse(x) else x[0]
            return np.nan_to_num(extremes(x)[0]) if np.isnan(first).any() else first

        return cls.from_moments(mean, deviation, values)

    @classmethod
    def from_moments(
        cls, mean: NDArray[np.float64], deviation: NDArray[np.float64], values: Callable[[], NDArray[Any]]
    ) -> Scaling:
        """To mean 0 and variance 1; of a constant column, one of the `values` becomes 0: its mean may be off by a
        rounding."""
        constant = deviation <= 1e-10 * np.maximum(np.abs(mean), 1e-290)
        if not constant.any():
            return cls(mean, deviation)
        return cls(np.where(constant, values(), mean), np.where(constant, 1.0, deviation), constant)

    def only(self, features: NDArray[np.bool_]) -> Scaling:
        """This scaling of some features; the others are left as they are."""
        if features.all():
            return self
        constant = None if self.constant is None else self.constant & features
        return Scaling(np.where(features, self.shift, 0.0), np.where(features, self.scale, 1.0), constant)

    @property
    def log_jacobian(self) -> float:
        """What to add to a log-density of scaled rows to have that of the original ones."""
        return float(-np.log(self.scale).sum())

    def log_jacobians(self, x: Any) -> NDArray[np.float64]:
        """The same for each of these rows, of which only the values that are there count."""
        logs = np.log(self.scale)
        if sparse.issparse(x):
            lacking = sparse.csr_array((np.isnan(x.data).astype(np.float64), x.indices, x.indptr), x.shape)
        else:
            lacking = np.isnan(x)
        return lacking @ logs - logs.sum()

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """What `from_tensors` makes a scaling of, by name."""
        return {f"scaling.{name}": values for name, values in vars(self).items() if values is not None}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Scaling:
        """The scaling whose arrays are among these tensors."""
        names = [f"scaling.{field.name}" for field in fields(cls)]
        return cls(*(tensors[name].numpy() for name in names if name in tensors))

    def apply(self, x: NDArray[Any]) -> NDArray[np.float64]:
        return (x - self.shift) / self.scale

    def invert(self, x: NDArray[Any]) -> NDArray[np.float64]:
        original = x * self.scale + self.shift
        return original if self.constant is None else np.where(self.constant, self.shift, original)


def _units(x: Any) -> NDArray[np.float64] | None:
    """Powers of two that bring columns to values whose squares are numbers; None where all are."""
    largest = np.abs(np.asarray(extremes(x), np.float64)).max(0)
    far = (largest > 0) & ~((largest > _SMALL) & (largest < 1 / _SMALL))
    return np.where(far, np.ldexp(1.0, np.clip(np.frexp(largest)[1], -1000, 1000)), 1.0) if far.any() else None


def _moments(x: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of the values of each column that are present; 0 where there are none."""
    if not issparse(x) and not has_missing(x):
        return x.mean(0, dtype=np.float64), x.std(0, dtype=np.float64)
    if issparse(x) and not x.has_canonical_format:
        x = x.copy()
        x.sum_duplicates()
    rows, features = x.shape
    mean = column_means(x)
    if issparse(x):  # in two passes: E[x²] − E[x]² would cancel
        zeros = rows - np.bincount(x.indices, minlength=features)
        squares = (x.data - mean[x.indices]) ** 2
        total = np.bincount(x.indices, np.where(np.isnan(squares), 0.0, squares), features) + zeros * mean**2
    else:
        total = np.sum((x - mean) ** 2, axis=0, where=np.isfinite(x))
    return mean, np.sqrt(total / np.maximum(rows - missing_counts(x), 1))
