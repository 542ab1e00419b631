"""The rows to embed, with their names, labels and notes about how they were read; the arrays that a model takes."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse

from ..errors import CurvaeError
from .messages import Messages, count, quoted
from .missing import masked_as_nan, resolve

__all__ = ["Arrays", "Dataset", "Matrix", "as_matrix", "check_ids", "feature_names", "from_arrays", "hash_rows"]

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
        for texts in (self.names, *map(_listed, (self.ids, self.labels, self.groups))):
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


def _hash_texts(texts: Sequence[str] | None, digest: hashlib._Hash) -> None:
    """Add texts to a hash as one line of JSON, in chunks to save memory."""
    if texts is None:
        digest.update(b"null\n")
        return
    digest.update(b"[")
    for start in range(0, len(texts), _TEXTS):
        part = json.dumps(texts[start : start + _TEXTS])[1:-1]
        digest.update(f"{', ' if start else ''}{part}".encode())
    digest.update(b"]\n")


def _listed(texts: NDArray[np.str_] | None) -> list[str] | None:
    return None if texts is None else texts.tolist()


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
