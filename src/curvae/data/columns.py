"""From columns as a reader found them to rows, with advice for columns that have no role."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..errors import CurvaeError, FixableError
from ..models.likelihoods.base import find_binary
from .dataset import (
    Arrays,
    Column,
    Dataset,
    Kind,
    Matrix,
    Missing,
    NumberColumns,
    Schema,
    check_ids,
    column_means,
    empty_columns,
    empty_rows,
    extremes,
    missing_by_column,
    missing_choices,
    missing_counts,
    one_hot,
    places,
    require_sums,
    resolve,
    useless_columns,
)
from .files import Messages, count, listing, quoted
from .text_tables import MISSING, NUMBER, texts_of

__all__ = ["ColumnAdvice", "RawData", "is_identifier", "left_out_text"]

_SHOWN = 10  # columns of one kind that a message lists
_FEW, _MOST = 10, 100  # different texts that always, and that never, are too many to be categories
_MEANT = r"[+-]?\d[\d.,_' ]*%?"  # a number that is written in another way
_COUNTED = 5  # rows from which on consecutive integers look like an identifier
_IDENTIFIER = re.compile(r"(?:^|[\W_])(?:id|idx|index)$", re.IGNORECASE)
_LABEL = re.compile(r"(?:^|[\W_])(?:labels?|class|target|cluster)$", re.IGNORECASE)
_BATCH = re.compile(r"(?:^|[\W_])(?:batch|donor|lane|plate|site)$", re.IGNORECASE)


@dataclass
class ColumnAdvice:
    """Look at all columns of a table at once: leave out texts that are of no use, propose a role for the others.

    Arguments:
        source: name of the table in messages.
        has_id, has_label: whether a column has this role already.
        choices: values of `missing` to propose where values are missing; none where one was given.
    """

    source: str
    has_id: bool = False
    has_label: bool = False
    choices: Sequence[Missing] = ()
    _found: dict[str, list[str]] = field(default_factory=dict)
    _fixes: list[tuple[tuple[str, str], ...]] = field(default_factory=list)
    _left_out: dict[str, str] = field(default_factory=dict)
    _gaps: dict[str, NDArray[np.bool_]] = field(default_factory=dict)

    def sort_texts(
        self, frame: pd.DataFrame, offenders: Mapping[str, str], x: NDArray[np.float64], names: Sequence[str]
    ) -> dict[str, str]:
        """Find columns of texts to leave out, and why; raise if others need a role or a correction.

        Arguments:
            frame: the table.
            offenders: columns that have no role, with the first cell of each that is not a number.
            x: the other columns as numbers, (rows, columns).
            names: of the columns of x.
        """
        cells = {name: texts_of(frame[name], strip=True) for name in offenders}
        absent = {name: np.isin(texts, list(MISSING)) for name, texts in cells.items()}
        wrong = []  # columns in which half of the texts or more are numbers, or meant to be
        for name, texts in cells.items():
            known = pd.Series(texts[~absent[name]], dtype=str)
            if 2 * known.str.fullmatch(f"{NUMBER}|{_MEANT}").sum() >= len(known):
                wrong.append(name)
        distinct = {name: len(np.unique(texts[~absent[name]])) for name, texts in cells.items() if name not in wrong}
        unique = [name for name, number in distinct.items() if number == len(frame)]
        if unique and not self.has_id:
            name = next((name for name in unique if _IDENTIFIER.search(name)), unique[0])
            self._propose(
                "Probably an id", f"{name!r} ({offenders[name]}, a different text in every row)", ("id", name)
            )
            self.has_id = True
            del distinct[name]
        for name, number in distinct.items():
            self._add_text(name, number, absent[name], offenders[name])
        if wrong:
            self._found["Numbers, with cells to correct"] = [f"{name!r} ({offenders[name]})" for name in wrong]
        if self._found:
            self._add_numbers(x, names, bool(wrong))
            raise self._error()
        return self._left_out

    def _add_text(self, name: str, distinct: int, absent: NDArray[np.bool_], cell: str) -> None:
        shown, rows = f"{name!r} ({cell}, {distinct:,} different texts)", len(absent)
        if distinct == 1:
            self._left_out[name] = "constant"
        elif _LABEL.search(name) and not self.has_label:
            self._propose("Probably a label", shown, ("label", name))
            self.has_label = True
        elif distinct == rows or distinct > min(_MOST, max(_FEW, rows // 2)):
            self._left_out[name] = f"{distinct:,} different texts in {count(rows, 'row')}"
        elif _BATCH.search(name) and not absent.any():
            self._propose("Probably a batch", shown, ("covariates", name), ("categorical", name))
        else:
            self._propose("Probably categories", shown, ("categorical", name), ("label", name))
            self._gaps[name] = absent

    def _add_numbers(self, x: NDArray[np.float64], names: Sequence[str], wrong: bool) -> None:
        """Look for ids, labels and missing values: numbers can be used as they are, so that alone they do no harm."""
        useless = useless_columns(x)
        self._left_out |= {names[j]: why for j, why in useless.items()}
        for name, values in zip(names, x.T, strict=True):
            named = _IDENTIFIER.search(name) and bool(np.isfinite(values).all())
            if named and not self.has_id and is_identifier(name, values, len(values)):
                self._propose("Probably an id", f"{name!r} (a different integer in every row)", ("id", name))
                self.has_id = True
            elif not self.has_label and _LABEL.search(name) and bool((values == np.floor(values)).all()):
                self._propose(
                    "Probably a label", f"{name!r} ({len(np.unique(values)):,} different integers)", ("label", name)
                )
                self.has_label = True
        taken = {value for fix in self._fixes for role, value in fix if role in ("id", "label")} | {*self._left_out}
        used = [j for j, name in enumerate(names) if name not in taken]
        x = np.column_stack([x[:, used], *(np.where(gaps, np.nan, 0.0) for gaps in self._gaps.values())])
        names = [*(names[j] for j in used), *self._gaps]
        if self.choices and (where := missing_by_column(x, names)):
            choices = missing_choices(x, self.choices)
            self._propose("Missing values", where, *(("missing", choice) for choice in choices))
        if not (names or wrong):
            self._fixes = []
            self._found["No column is left"] = ["add one of numbers or categories"]

    def _propose(self, what: str, column: str, *fix: tuple[str, str]) -> None:
        self._found.setdefault(what, []).append(column)
        self._fixes.append(fix)

    def _error(self) -> CurvaeError:
        parts = [f"{what}: {listing(columns, _SHOWN)}" for what, columns in self._found.items()]
        if self._left_out:
            parts.append(f"Left out: {left_out_text(self._left_out)}")
        found = ". ".join([f"{self.source} has text in columns without a role", *parts])
        if self.has_label:  # there is one label only
            self._fixes = [fix[:1] + tuple(way for way in fix[1:] if way[0] != "label") for fix in self._fixes]
        return FixableError(found, self._fixes) if self._fixes else CurvaeError(found)


def left_out_text(reasons: Mapping[str, str]) -> str:
    """List columns that are left out, each with the reason."""
    return listing([f"{name!r} ({why})" for name, why in reasons.items()], _SHOWN)


def is_identifier(name: str, values: NDArray[Any], rows: int) -> bool:
    """Whether a column of numbers looks like an identifier: different integers that are consecutive or so named.

    Arguments:
        name: of the column.
        values: all of them, or some of them with the extremes.
        rows: of the table.
    """
    values = values[np.isfinite(values)]
    if not values.size or not bool((values == np.floor(values)).all()):
        return False
    consecutive = values.max() - values.min() == rows - 1 and rows >= _COUNTED
    return bool(consecutive or _IDENTIFIER.search(name)) and np.unique(values).size == values.size


# From what a reader found to a data set: the steps that all kinds of data share.

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
        x, features, kept = self._resolve(schema, missing)
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
            x=features,
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
        _, features, kept = self._resolve(schema, missing)
        others = {"context": self.context, "size": self.exposure}
        if kept is not None:
            others = {name: None if values is None else values[kept] for name, values in others.items()}
        shape = schema.shape if len(schema.shape) > 1 else ()
        return Arrays(features, **others, blocks=schema.blocks, shape=shape, missing=missing == "model")

    def _resolve(self, schema: Schema, missing: Missing) -> tuple[Any, Any, NDArray[np.bool_] | None]:
        """Deal with missing values; return the numbers, the features that they become, and a mask of the rows that
        were kept, or None if all were."""
        x, kept = resolve(self.x, schema.column_names, schema.fills, missing, self.messages, self.choices)
        if missing == "model" and (empty := empty_rows(x)).size:
            names = empty if self.ids is None else self.ids[empty]
            raise CurvaeError(f"{self.source} has rows without a single value: {quoted(names)}; remove them")
        return x, one_hot(x, schema.columns, self.source) if schema.categorical else x, kept

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
        fills = np.where(binary, np.round(means), means)
        for j, column in enumerate(self.columns):
            if column.categories is not None and typical is None:
                codes = self.x[:, j]
                fills[j] = np.argmax(np.bincount(codes[np.isfinite(codes)].astype(np.intp)))
        columns = tuple(
            replace(column, fill=float(fills[j]), binary=bool(binary[j] and column.categories is None))
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
                column = self.columns[int(j)]
                if is_identifier(column.name, x[:, j], rows):
                    value = "category" if column.categories else "integer"
                    self.messages.warn(
                        f"column {column.name!r} looks like an identifier (a different {value} in every row) and is "
                        f"used as a feature; use id={json.dumps(column.name, ensure_ascii=False)} if it is one."
                    )
