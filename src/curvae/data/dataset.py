"""Rows, in memory or on disk, with figures of their columns, their schema and scaling, and the arrays a model takes.

Missing values are NaN and infinities.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from operator import eq, itemgetter
from typing import Any, Literal, Self, TypeAlias, TypeVar, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse
from torch import Tensor

from ..errors import CurvaeError, FixableError, check
from ..models.likelihoods.base import row_blocks
from . import memory
from .disk import DiskMatrix, Texts, count_empty, in_memory, repeated_texts
from .files import Messages, count, feature_names, listing, quoted

__all__ = [
    "Arrays",
    "Column",
    "ColumnStatistics",
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
    "column_statistics",
    "complete_rows",
    "fill",
    "from_arrays",
    "has_missing",
    "hash_rows",
    "masked_as_nan",
    "missing_by_column",
    "missing_choices",
    "missing_entries",
    "one_hot",
    "require_sums",
    "resolve_missing",
    "source_columns",
    "useless_columns",
]

Matrix: TypeAlias = Any
"""numbers, (rows, columns): an array of numpy, float32 or float64, a `scipy.sparse.csr_array`, or a `DiskMatrix`"""
Vector: TypeAlias = Any
"""numbers, one a row: an array of numpy, or a `DiskMatrix`"""

_CHUNK = 2**22  # cells hashed at a time


@dataclass(frozen=True, eq=False)
class Arrays:
    """The inputs of a model for some rows, in original units.

    Arguments:
        x: the values, (rows, features), dense, sparse or on disk; then all that has one entry per row may be on disk.
        context: covariates as numbers, (rows, covariates), or None.
        size: exposure of each row, such as the library size of a cell, (rows,), or None.
        weight: how much each row counts in a training, (rows,), or None where all count alike; only ratios matter.
        blocks: number of one-hot features that each column of the source became: 0 for a column of numbers, 1 for a
            binary column, otherwise its number of categories; () if all columns are numbers.
        shape: shape of one row: (height, width) for images, () for a plain row.
        missing: whether entries of x may be NaN, which the model then handles.
        total: whether the exposure of a row is the sum of its values.
        batch: where the context tells the batch of a row; see `curvae.models.Layout`.
        counts: whether the values are known to be counts, as those of cells are.

    Example:
        >>> Arrays(np.eye(3), size=np.arange(3.0)).take([2, 0]).size.tolist()
        [2.0, 0.0]
    """

    x: Any
    context: Any = None
    size: Vector | None = None
    blocks: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    missing: bool = False
    weight: NDArray[np.float64] | None = None
    total: bool = False
    batch: tuple[int, ...] = ()
    counts: bool = False

    @classmethod
    def of(cls, data: Arrays | Dataset | Matrix, blocks: tuple[int, ...] = ()) -> Arrays:
        """Make arrays from a matrix and its blocks, or take those of a data set."""
        if isinstance(data, Arrays):
            return data
        return data.arrays if isinstance(data, Dataset) else cls(data, blocks=blocks)

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

    @property
    def on_disk(self) -> bool:
        """Whether the rows lie on disk."""
        return isinstance(self.x, DiskMatrix)

    def take(self, index: Any) -> Arrays:
        """Select rows by an index, a mask or a slice."""
        return replace(self, **{name: array[index] for name, array in self.per_row.items()})

    def load(self) -> Arrays:
        """Read the rows into memory, if they lie on disk."""
        return replace(self, **{name: in_memory(array) for name, array in self.per_row.items()})


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows of numbers in their original units, with names, labels and covariates.

    Arguments:
        x: the values, (rows, features), float32 or float64; a `scipy.sparse.csr_array` stays sparse, and a matrix on
            disk stays there.
        names: names of the features, (features,).
        shape: shape of one row: (features,), or (height, width) for images.
        ids: unique name of each row, (rows,); row numbers if the data has none. Like labels, groups, exposure and
            context it lies on disk where the values do.
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
        schema: how the source became these rows, if they were read from one.
        total: whether the exposure of a row is the sum of its values, as of a cell by default.
        batch: where the context tells the batch of a row; see `curvae.models.Layout`.
        counts: whether the values are known to be counts, as those of cells are.
    """

    x: Matrix
    names: Sequence[str]
    shape: tuple[int, ...]
    ids: Texts
    labels: Texts | None = None
    label_name: str | None = None
    groups: Texts | None = None
    exposure: Vector | None = None
    blocks: tuple[int, ...] = ()
    context: Any = None
    context_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    missing: bool = False
    id_name: str | None = None
    schema: Schema | None = None
    total: bool = False
    batch: tuple[int, ...] = ()
    counts: bool = False

    def __post_init__(self) -> None:
        rows, features = self.x.shape
        check(
            len(self.names) == features == math.prod(self.shape),
            f"{count(features, 'feature')}, {count(len(self.names), 'name')} and shape {self.shape}",
        )
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
        return Arrays(
            self.x,
            self.context,
            self.exposure,
            blocks=self.blocks,
            shape=self.shape if len(self.shape) > 1 else (),
            missing=self.missing,
            total=self.total,
            batch=self.batch,
            counts=self.counts,
        )

    def take(self, index: Sequence[int] | Sequence[bool] | NDArray[Any]) -> Dataset:
        """Select rows by an index or a mask; an index also sets their order.

        Example:
            >>> from_arrays(np.eye(3)).take([2, 0]).ids.tolist()
            ['2', '0']
        """
        rows = np.asarray(index) if len(index) else np.zeros(0, dtype=np.intp)
        if rows.dtype == bool:
            check(
                rows.shape == (len(self),),
                f"a mask of shape {rows.shape} cannot choose among {count(len(self), 'row')}",
            )
            rows = np.flatnonzero(rows)
        return self._map(lambda values: values[rows])

    @property
    def on_disk(self) -> bool:
        """Whether the rows lie on disk."""
        return isinstance(self.x, DiskMatrix)

    def load(self) -> Dataset:
        """Read the rows into memory, if they lie on disk."""
        return self._map(in_memory) if self.on_disk else self

    def pieces(self) -> Iterator[Dataset]:
        """Yield the rows in memory: all at once, or some at a time if they lie on disk."""
        step = self.x.block_rows if isinstance(self.x, DiskMatrix) else max(1, len(self))
        for start in range(0, len(self), step):
            yield self._map(itemgetter(slice(start, start + step))).load()

    def _map(self, function: Callable[[Any], Any]) -> Dataset:
        """Apply a function to all that has one entry per row."""
        named = {name: getattr(self, name) for name in ("x", "ids", "labels", "groups", "exposure", "context")}
        return replace(self, **{name: function(values) for name, values in named.items() if values is not None})

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
            hash_rows(self.exposure, digest)
        if self.context is not None:
            _hash_texts(self.context_names, digest)
            hash_rows(self.context, digest)
        return digest.hexdigest()


def hash_rows(x: Any, digest: hashlib._Hash) -> None:
    """Add the values of a matrix or vector to a hash, in the same way for dense and sparse, float32 and float64."""
    step = max(1, _CHUNK // max(1, math.prod(x.shape[1:])))
    for start in range(0, x.shape[0], step):
        rows = in_memory(x[start : start + step])
        part = csr_array(rows if x.ndim > 1 else rows.reshape(-1, 1), copy=True)
        part.sum_duplicates()
        part.eliminate_zeros()
        values = part.data.astype("<f8")
        values[np.isnan(values)] = np.nan  # NaN has many bit patterns
        for numbers in (np.diff(part.indptr).astype("<i8"), part.indices.astype("<i8"), values):
            digest.update(numbers.tobytes())


def _hash_texts(texts: Sequence[str] | Texts | None, digest: hashlib._Hash) -> None:
    """Add texts to a hash as one line of JSON, in chunks to save memory."""
    if texts is None:
        digest.update(b"null\n")
        return
    digest.update(b"[")
    for start in range(0, len(texts), 2**16):
        part = json.dumps(list(in_memory(texts[start : start + 2**16])))[1:-1]
        digest.update(f"{', ' if start else ''}{part}".encode())
    digest.update(b"]\n")


def as_matrix(x: Any, what: str = "x") -> Matrix:
    """Convert numbers to a matrix of float64, or of float32 if they are no finer; sparse ones to a csr_array."""
    values = x if issparse(x) else np.asarray(x)
    check(values.dtype.kind in "biuf", f"{what} holds {values.dtype}, not real numbers; convert it to float")
    check(values.ndim == 2, f"{what} has shape {values.shape}; give (rows, features)")
    dtype = np.float32 if values.dtype in (np.float16, np.float32) else np.float64
    if not issparse(values):
        return np.ascontiguousarray(values, dtype=dtype)
    rows = csr_array(values, dtype=dtype)
    if not rows.has_canonical_format:
        rows = rows.copy()  # arrays may be those of x
        rows.sum_duplicates()
    return rows


def check_ids(ids: Texts, what: str = "ids", fix: str = "make ids unique or use another column") -> None:
    """Raise unless ids are unique and none is empty."""
    empty, twice = count_empty(ids), repeated_texts(ids)
    check(not empty, f"{what}: {count(empty, 'row')} without an id; give every row one")
    check(not len(twice), f"{what}: {quoted(twice)} given more than once; {fix}")


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
        resolve_missing(matrix, names, None, "error", Messages())
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

Kind: TypeAlias = Literal["table", "matrix", "images", "cells"]


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
        return (self.name,) if self.categories is None else tuple(f"{self.name}={one}" for one in self.categories)

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


_OPTIONAL = ("exposure", "batch_key", "only_batch", "layer")  # names that most schemas lack


@dataclass(frozen=True)
class Schema:
    """How a source becomes a matrix.

    Arguments:
        kind: table, matrix, images or cells.
        columns: the columns that become features, in order.
        shape: shape of one row of the matrix.
        label, id, group, exposure: names of the columns of a table, or of what describes cells, with these roles, or
            None.
        covariates: columns that the networks are given but do not model; none of them is a feature.
        batch_key: the covariate that is the batch, or None.
        only_batch: the batch of all cells, where there is one; `batch_key` is then no covariate.
        layer: layer of a cell file that holds the counts; None for its matrix.

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
    batch_key: str | None = None
    only_batch: str | None = None
    layer: str | None = None

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
    def batch(self) -> tuple[int, ...]:
        """Where the context tells the batch: the first column, and the number of batches; () if nowhere.

        Example:
            >>> Schema("cells", (), (), covariates=(Column("age"), Column("lane", ("1", "2"))), batch_key="lane").batch
            (1, 2)
        """
        if self.batch_key is None or self.only_batch is not None:
            return ()
        widths = [len(column.features) for column in self.covariates]
        place = [column.name for column in self.covariates].index(self.batch_key)
        return sum(widths[:place]), widths[place]

    @property
    def batches(self) -> Column | None:
        """The column with the batches, or None; where there is only one batch it is no covariate."""
        if self.only_batch is not None:
            return Column(str(self.batch_key), (self.only_batch,))
        return next((column for column in self.covariates if column.name == self.batch_key), None)

    @property
    def known_batches(self) -> tuple[str, ...]:
        """Names of the batches that the context tells apart."""
        column = self.batches if self.batch else None
        return () if column is None else column.categories or ()

    def with_batches(self, names: Sequence[str]) -> Schema:
        """Return the schema with further batches, after those that it has.

        Example:
            >>> schema = Schema("cells", (), (), batch_key="lane", only_batch="1")
            >>> schema.with_batches(["2"]).covariates[0].categories
            ('1', '2')
        """
        known = self.batches
        assert known is not None
        wider = replace(known, categories=(*(known.categories or ()), *names))
        others = [*self.covariates, *([] if known in self.covariates else [known])]
        covariates = tuple(wider if column == known else column for column in others)
        return replace(self, covariates=covariates, only_batch=None)

    @property
    def total(self) -> bool:
        """Whether the exposure of a row is the sum of its values."""
        return self.kind == "cells" and self.exposure is None

    @property
    def column_names(self) -> Sequence[str]:
        """Names of the columns."""
        return self.columns.names if isinstance(self.columns, NumberColumns) else [one.name for one in self.columns]

    @property
    def fills(self) -> NDArray[np.float64]:
        """Replacement for the missing values of each column, (columns,)."""
        if isinstance(self.columns, NumberColumns) and self.columns.fills is not None:
            return self.columns.fills
        return np.array([column.fill for column in self.columns])

    @property
    def categorical(self) -> bool:
        """Whether some column is categorical."""
        # There may be millions of columns of numbers.
        return not isinstance(self.columns, NumberColumns) and any(one.categories is not None for one in self.columns)

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
            **{name: value for name in _OPTIONAL if (value := getattr(self, name)) is not None},
            "columns": [column.to_json() for column in self.columns],
            **({"covariates": [column.to_json() for column in self.covariates]} if self.covariates else {}),
        }

    @classmethod
    def from_json(cls, d: Any) -> Schema:
        """Convert plain values back to a schema; raise where they are malformed."""
        _expect(isinstance(d, dict), "it is not an object")
        _expect(d.get("kind") in get_args(Kind), f"kind is {d.get('kind')!r}, not one of {', '.join(get_args(Kind))}")
        _expect(isinstance(d.get("columns"), list), "columns is not a list")
        _expect(
            isinstance(d.get("shape"), list) and all(type(n) is int for n in d["shape"]),
            "shape is not a list of integers",
        )
        roles = {role: d.get(role) for role in ("label", "id", "group", *_OPTIONAL)}
        for role, name in roles.items():
            _expect(isinstance(name, str | None), f"{role} is not a name")
        _expect(isinstance(d.get("covariates", []), list), "covariates is not a list")
        columns, covariates = (
            tuple(_column_from_json(entry, place) for place, entry in enumerate(entries, 1))
            for entries in (d["columns"], d.get("covariates", []))
        )
        schema = cls(d["kind"], columns, tuple(d["shape"]), **roles, covariates=covariates)
        _expect(
            schema.batch_key is None or (schema.batches is not None and schema.batches.categories is not None),
            "batch_key is not a covariate with categories",
        )
        _expect(
            math.prod(schema.shape) == len(schema.names) > 0,
            f"shape {schema.shape} does not fit {len(schema.names)} features",
        )
        return schema


def one_hot(x: Any, columns: Sequence[Column], source: str) -> Any:
    """Replace each column of category codes by one column per category.

    Arguments:
        x: numbers, (rows, columns), which may lie on disk; in a categorical column the position of the category, or
            NaN.
        columns: descriptions of the columns of x.
        source: name of the data in messages.

    Returns:
        Features, (rows, features); all categories of a missing value are NaN.
    """
    widths = [len(column.features) for column in columns]
    if isinstance(x, DiskMatrix):
        return x.apply(partial(one_hot, columns=columns, source=source), sum(widths))
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
    """Name the features that columns become: those of categories get a number where a name is taken."""
    taken = {column.name for column in columns if column.categories is None}
    names: list[str] = []
    for column in columns:
        for feature in column.features:
            name, number = feature, 1
            while column.categories is not None and name in taken:
                number += 1
                name = f"{feature} ({number})"
            taken.add(name)
            names.append(name)
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
    check(holds, f"the stored description of the data is malformed: {otherwise}; train again")


# Scaling of columns to mean 0 and variance 1.


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
        """Scale to mean 0 and variance 1 of the values that are there; a constant column becomes 0."""
        # Squares of numbers below 1e-140 lose digits, and those of numbers beyond 1e140 are infinite. Powers of two
        # bring such columns to values whose squares are numbers.
        known = column_statistics(x)
        largest = np.fmax(np.abs(known.low), np.abs(known.high))
        far = (largest > 0) & ~((largest > 1e-140) & (largest < 1 / 1e-140))
        if far.any():
            unit = np.where(far, np.ldexp(1.0, np.clip(np.frexp(largest)[1], -1000, 1000)), 1.0)
            scaled = csr_array(x.multiply(1 / unit)) if issparse(x) else cls(np.zeros_like(unit), unit).apply(x)
            found = cls.standard(scaled)
            scale = np.where(False if found.constant is None else found.constant, 1.0, found.scale * unit)
            return cls(found.shift * unit, scale, found.constant)
        constant = known.deviation <= 1e-10 * np.maximum(np.abs(known.mean), 1e-290)
        if not constant.any():
            return cls(known.mean, known.deviation)
        # Of a constant column, its value becomes 0: the mean may be off by a rounding.
        value = np.nan_to_num(known.low)
        return cls(np.where(constant, value, known.mean), np.where(constant, 1.0, known.deviation), constant)

    def only(self, features: NDArray[np.bool_]) -> Scaling:
        """Restrict the scaling to some features; the others are left as they are."""
        if features.all():
            return self
        return Scaling(
            np.where(features, self.shift, 0.0),
            np.where(features, self.scale, 1.0),
            None if self.constant is None else self.constant & features,
        )

    @property
    def log_jacobian(self) -> float:
        """What to add to a log-density of scaled rows to have that of the original ones."""
        return float(-np.log(self.scale).sum())

    def log_jacobians(self, x: Any) -> NDArray[np.float64]:
        """Return the same for each of these rows, of which only the values that are there count."""
        logs, found = np.log(self.scale), []
        for block in row_blocks(x):
            stored = np.isnan(block.data).astype(np.float64) if issparse(block) else None
            lacking = (
                np.isnan(block) if stored is None else csr_array((stored, block.indices, block.indptr), block.shape)
            )
            found.append(lacking @ logs - logs.sum())
        return np.concatenate(found)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that `from_tensors` makes a scaling of, by name."""
        return {f"scaling.{name}": values for name, values in vars(self).items() if values is not None}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Scaling:
        """Make the scaling whose arrays are among these tensors."""
        names = [f"scaling.{field.name}" for field in fields(cls)]
        return cls(*(tensors[name].numpy() for name in names if name in tensors))

    def apply(self, x: Any) -> Any:
        """Scale the columns of a dense matrix, in memory or on disk."""
        if isinstance(x, DiskMatrix):
            return x.apply(self.apply, x.width)
        if not self.shift.any() and (self.scale == 1).all():
            return np.asarray(x, np.result_type(x, np.float32))
        return (x - self.shift) / self.scale

    def invert(self, x: NDArray[Any]) -> NDArray[np.float64]:
        original = x * self.scale + self.shift
        return original if self.constant is None else np.where(self.constant, self.shift, original)


# Figures of columns in memory or on disk, and what is done about missing values.

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
    impossible = {"model": len(known.empty) > 0, "drop": known.complete < 2}
    return [choice for choice in allowed if not impossible.get(choice)]


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
        raise MissingValuesError(
            f"missing or infinite values, counted by column: {where}", missing_choices(known, choices)
        )
    if missing == "model":
        messages.note(f"missing values were left to the model: {where}.")
        return fill(x, np.nan), None
    if missing == "drop":
        kept = complete_rows(x)
        check(
            len(kept),
            f'every row has a missing value, counted by column: {where}; use `missing="mean"` or `missing="model"`',
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
