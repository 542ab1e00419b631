"""From what a reader found to a data set: the steps that all kinds of data share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CurvaeError
from ..settings.columns import find_binary
from .advice import is_identifier, left_out_text
from .dataset import Arrays, Dataset, Matrix, check_ids
from .messages import Messages, count, quoted
from .missing import (
    Missing,
    column_means,
    empty_columns,
    empty_rows,
    extremes,
    missing_counts,
    places,
    require_sums,
    resolve,
    useless_columns,
)
from .schema import Column, Kind, NumberColumns, Schema, one_hot

__all__ = ["RawData"]

_TRANSPOSED = 5  # columns per row above which a table looks transposed


@dataclass
class RawData:
    """Data as a reader found it: missing values are still missing, and categories are not one-hot yet.

    Arguments:
        source: name of the data in messages.
        kind: table, matrix or images.
        x: numbers, (rows, columns); a category is its position in the list of categories, or NaN.
        columns: descriptions of the columns of x; `finish` sets `fill`.
        shape: (height, width) of images, else None.
        ids, labels, groups, exposure: one per row, (rows,), or None.
        label_name: name of the label column.
        context: covariates as numbers, (rows, covariates), or None.
        covariates: descriptions of the covariates.
        roles: names of the columns with ids, labels, groups and exposure.
        left_out: columns of a table that are not used, with the reason.
        messages: notes and warnings so far.
        choices: values of `missing` to propose where values are missing.
        keeps_constant: whether columns that hold a single value stay.
    """

    source: str
    kind: Kind
    x: Matrix
    columns: Sequence[Column]
    shape: tuple[int, ...] | None = None
    ids: NDArray[np.str_] | None = None
    labels: NDArray[np.str_] | None = None
    groups: NDArray[np.str_] | None = None
    exposure: NDArray[np.float64] | None = None
    label_name: str | None = None
    context: NDArray[np.float64] | None = None
    covariates: tuple[Column, ...] = ()
    roles: dict[str, str | None] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    messages: Messages = field(default_factory=Messages)
    choices: tuple[Missing, ...] = ("model", "mean", "drop")
    keeps_constant: bool = False

    def finish(self, schema: Schema | None, missing: Missing) -> tuple[Dataset, Schema]:
        """Make the data set, and return it with the given schema or one fitted to the data."""
        self._require_rows(1 if schema else 2)
        given = schema
        if given is None:
            self.leave_out_constant()
        else:
            self.choices = tuple(choice for choice in self.choices if choice != "model")
        if self.kind == "matrix":  # numbers of tables are checked when they are read
            require_sums(self.x, self.columns, self.source)
        schema = given or self.fit(missing)
        x, kept = self._resolved(schema, missing)
        ids = np.arange(self.x.shape[0]).astype(np.str_) if self.ids is None else self.ids
        check_ids(ids, f"column {self.roles['id']!r}" if self.roles.get("id") else "ids")
        rows: dict[str, Any] = {
            "ids": ids,
            "labels": self.labels,
            "groups": self.groups,
            "exposure": self.exposure,
            "context": self.context,
        }
        if kept is not None:
            rows = {name: None if values is None else values[kept] for name, values in rows.items()}
        if given is None:
            self._require_rows(2, x.shape[0])
            self.judge(x, x.shape[0])
        return Dataset(
            x=self._features(x, schema),
            names=schema.names,
            shape=schema.shape,
            **rows,
            label_name=self.label_name if self.labels is not None else None,
            id_name=None if self.ids is None or self.kind != "table" else self.roles.get("id") or "",
            blocks=schema.blocks,
            context_names=() if self.context is None else schema.context_names,
            notes=tuple(self.messages.notes),
            warnings=tuple(self.messages.warnings),
            missing=missing == "model",
        ), schema

    def arrays(self, schema: Schema, missing: Missing) -> Arrays:
        """The inputs of a model alone, without ids and labels."""
        x, kept = self._resolved(schema, missing)
        others = {"context": self.context, "size": self.exposure}
        if kept is not None:
            others = {name: None if values is None else values[kept] for name, values in others.items()}
        shape = schema.shape if len(schema.shape) > 1 else ()
        x = self._features(x, schema)
        return Arrays(x, **others, blocks=schema.blocks, shape=shape, missing=missing == "model")

    def _resolved(self, schema: Schema, missing: Missing) -> tuple[Any, NDArray[np.bool_] | None]:
        """The numbers, with missing ones dealt with, and a mask of the rows that were kept, or None if all were."""
        x, kept = resolve(self.x, schema.column_names, schema.fills, missing, self.messages, self.choices)
        if missing == "model" and (empty := empty_rows(x)).size:
            names = empty if self.ids is None else self.ids[empty]
            raise CurvaeError(f"{self.source} has rows without a single value: {quoted(names)}; remove them")
        return x, kept

    def _features(self, x: Any, schema: Schema) -> Any:
        return one_hot(x, schema.columns, self.source) if schema.categorical else x

    def _require_rows(self, least: int, rows: int | None = None) -> None:
        rows = self.x.shape[0] if rows is None else rows
        if rows == 0:
            raise CurvaeError(f"{self.source} has no rows; give at least {least}")
        if rows < least:
            raise CurvaeError(f"{self.source} has only {count(rows, 'row')} to learn from; give at least {least}")

    def leave_out_constant(self) -> NDArray[np.intp]:
        """Leave out the columns of a table that hold a single value or none, unless all do; return those that stay."""
        if self.kind != "table" or self.keeps_constant:
            return np.arange(len(self.columns))
        useless = useless_columns(self.x)
        kept = np.setdiff1d(np.arange(len(self.columns)), list(useless))
        self.left_out |= {self.columns[j].name: why for j, why in useless.items()}
        if useless:
            self.x, self.columns = self.x[:, kept], tuple(self.columns[j] for j in kept.tolist())
        if self.left_out:
            self.messages.note(f"left out: {left_out_text(self.left_out)}.")
        return kept

    def fit(self, missing: Missing, typical: NDArray[np.float64] | None = None) -> Schema:
        """A schema for the data.

        Where x holds only some of the rows, `typical` are the means of the columns, and of those of categories the
        positions of the most frequent ones.
        """
        if not self.columns:
            raise CurvaeError(f"{self.source} has no column left to use as a feature; give at least one")
        if (empty := empty_columns(self.x)).size:
            names = quoted(self.columns[int(j)].name for j in empty)
            raise CurvaeError(f"{self.source} has columns without a single value: {names}; remove them")
        means = column_means(self.x) if typical is None else typical
        if isinstance(self.columns, NumberColumns):
            columns: Sequence[Column] = NumberColumns(self.columns.names, means)
            return Schema(self.kind, columns, self.shape or (len(columns),), **self.roles, covariates=self.covariates)
        binary = np.zeros(len(self.columns), bool)
        if self.kind == "table":
            binary = find_binary(self.x if missing != "drop" else np.delete(self.x, places(self.x)[0], 0))
        if missing == "mean":  # the mean is neither 0 nor 1
            binary &= missing_counts(self.x) == 0
        columns = tuple(
            replace(column, fill=float(round(means[j]) if binary[j] else means[j]), binary=bool(binary[j]))
            if column.categories is None
            else replace(column, fill=_most_frequent(self.x[:, j]) if typical is None else float(means[j]))
            for j, column in enumerate(self.columns)
        )
        width = sum(len(column.features) for column in columns)
        return Schema(self.kind, columns, self.shape or (width,), **self.roles, covariates=self.covariates)

    def judge(self, x: Any, rows: int) -> None:
        """Warn about training data that looks wrong; x may be fewer `rows` that have the extremes of all."""
        width = x.shape[1]
        if self.kind == "images":
            return
        if width > _TRANSPOSED * rows:
            self.messages.warn(
                f"{self.source} has many more columns ({width:,}) than rows ({rows:,}): is it transposed? "
                "Each row must be one thing to embed."
            )
        low, high = extremes(x)
        if (constant := np.flatnonzero(low == high)).size:
            names = quoted(self.columns[int(j)].name for j in constant)
            self.messages.note(
                f"column {names} is constant; it is kept."
                if constant.size == 1
                else f"{constant.size:,} columns are constant; they are kept: {names}."
            )
        if self.kind == "table":
            for j in np.flatnonzero(low < high):
                self._judge_identifier(self.columns[int(j)], x[:, j], rows)

    def _judge_identifier(self, column: Column, values: NDArray[np.float64], rows: int) -> None:
        if is_identifier(column.name, values, rows):
            how = "a different category in every row" if column.categories else "a different integer in every row"
            self.messages.warn(
                f"column {column.name!r} looks like an identifier ({how}) and is used as a feature; "
                f"use id={json.dumps(column.name, ensure_ascii=False)} if it is one."
            )


def _most_frequent(codes: Any) -> float:
    return float(np.argmax(np.bincount(codes[np.isfinite(codes)].astype(np.intp))))
