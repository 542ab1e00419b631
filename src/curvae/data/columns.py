"""From columns as a reader found them to rows, with advice for columns that have no role."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..errors import CurvaeError, FixableError
from ..models.likelihoods.base import find_binary, row_blocks
from .column_statistics import (
    Missing,
    column_statistics,
    complete_rows,
    has_missing,
    missing_by_column,
    missing_choices,
    require_sums,
    resolve_missing,
    useless_columns,
)
from .dataset import Arrays, Column, Dataset, Kind, Matrix, NumberColumns, Schema, Vector, check_ids, one_hot
from .disk import DiskMatrix, DiskTexts, Texts, in_memory
from .files import Messages, count, listing, quoted
from .text_tables import MISSING, NUMBER, categories_of, first_text, is_text, numbers_of, texts_of

__all__ = [
    "ColumnAdvice",
    "FrameTable",
    "RawData",
    "Table",
    "TextSummary",
    "first_rows",
]

_SHOWN = 10  # columns of one kind that a message lists
_LOOKED_AT = 10_000  # rows of a table on disk that tell whether a column holds identifiers
_IDENTIFIER = re.compile(r"(?:^|[\W_])(?:id|idx|index)$", re.IGNORECASE)
_LABEL = re.compile(r"(?:^|[\W_])(?:labels?|class|target|cluster)$", re.IGNORECASE)


class TextSummary(NamedTuple):
    """Figures of a column of texts.

    Arguments:
        distinct: different texts.
        gaps: rows without a text.
        numbers: rows whose text is a number, or one that is written in another way.
    """

    distinct: int
    gaps: int
    numbers: int


_NUMBER = re.compile(rf"{NUMBER}|[+-]?\d[\d.,_' ]*%?")


class Table(ABC):
    """A table with named columns, in memory or on disk.

    Attributes:
        path: its file, for messages.
        names: of the columns.
        rows: how many it has.
        head: its first rows.
    """

    path: Path
    names: Sequence[str]
    rows: int
    head: pd.DataFrame

    @abstractmethod
    def first_text(self, name: str) -> str | None:
        """Return the first cell of a column that is not a number, and its row; None if all are numbers or missing."""

    @abstractmethod
    def is_text(self, name: str) -> bool:
        """Return whether a column has a cell that is not a number, or is of a type for categories."""

    @abstractmethod
    def categories(self, name: str) -> tuple[str, ...]:
        """List the categories of a column: numbers in ascending order, then texts in alphabetical order."""

    @abstractmethod
    def distinct_texts(self, name: str) -> Iterable[tuple[str, int]]:
        """Yield texts of a column without blanks around them, and how often each occurs; some may be repeated."""

    @abstractmethod
    def numbers(self, columns: Sequence[Column], fix: str, messages: Messages) -> Matrix:
        """Convert columns to numbers, (rows, columns); see `numbers_of`."""

    @abstractmethod
    def texts(self, name: str, strip: bool = False) -> Texts:
        """Convert the cells of a column to texts; see `texts_of`."""

    def summarise(self, name: str) -> TextSummary:
        """Compute figures of a column of texts."""
        counts: Counter[str] = Counter()
        for text, times in self.distinct_texts(name):
            counts[text] += times
        present = {text: times for text, times in counts.items() if text not in MISSING}
        numbers = sum(times for text, times in present.items() if _NUMBER.fullmatch(text))
        return TextSummary(len(present), self.rows - sum(present.values()), numbers)


class FrameTable(Table):
    """A table in memory: a frame of pandas."""

    def __init__(self, path: Path, frame: pd.DataFrame) -> None:
        self.path, self.head = path, frame
        self.names, self.rows = list(frame.columns), len(frame)

    def first_text(self, name: str) -> str | None:
        return first_text(self.head[name])

    def is_text(self, name: str) -> bool:
        return is_text(self.head[name])

    def categories(self, name: str) -> tuple[str, ...]:
        return categories_of(self.head[name])

    def distinct_texts(self, name: str) -> Iterable[tuple[str, int]]:
        return Counter(texts_of(self.head[name], strip=True).tolist()).items()

    def numbers(self, columns: Sequence[Column], fix: str, messages: Messages) -> Matrix:
        frame = self.head[[column.name for column in columns]]
        return numbers_of(self.path, frame, tuple(columns), fix, messages)

    def texts(self, name: str, strip: bool = False) -> Texts:
        return texts_of(self.head[name], strip)


@dataclass
class ColumnAdvice:
    """Look at all columns of a table at once: leave out texts that are of no use, propose a role for the others.

    Arguments:
        table: the columns.
        has_id, has_label: whether a column has this role already.
        choices: values of `missing` to propose where values are missing; none where one was given.
    """

    table: Table
    has_id: bool = False
    has_label: bool = False
    choices: Sequence[Missing] = ()
    _proposals: list[tuple[str, str, tuple[tuple[str, str], ...]]] = field(default_factory=list)
    _left_out: dict[str, str] = field(default_factory=dict)
    _gaps: list[str] = field(default_factory=list)

    def sort_texts(self, offenders: Mapping[str, str], columns: Sequence[Column], x: Matrix) -> dict[str, str]:
        """Find columns of texts to leave out, and why; raise if others need a role or a correction.

        Arguments:
            offenders: columns that have no role, with the first cell of each that is not a number.
            columns: the other columns.
            x: their values, (rows, columns).
        """
        rows = self.table.rows
        known = {name: self.table.summarise(name) for name in offenders}
        wrong = [name for name, one in known.items() if 2 * one.numbers >= rows - one.gaps]
        texts = {name: one for name, one in known.items() if name not in wrong}
        unique = [name for name, one in texts.items() if one.distinct == rows]
        if unique and not self.has_id:
            name = next((name for name in unique if _IDENTIFIER.search(name)), unique[0])
            shown = f"{name!r} ({offenders[name]}, a different text in every row)"
            self._proposals.append(("Probably an id", shown, (("id", name),)))
            self.has_id = True
            del texts[name]
        for name, one in texts.items():
            self._add_text(name, one, offenders[name])
        for name in wrong:
            self._proposals.append(("Numbers, with cells to correct", f"{name!r} ({offenders[name]})", ()))
        if self._proposals:
            self._add_numbers(columns, x, bool(wrong))
            raise self._error()
        return self._left_out

    def _add_text(self, name: str, known: TextSummary, cell: str) -> None:
        rows, distinct = self.table.rows, known.distinct
        shown = f"{name!r} ({cell}, {distinct:,} different texts)"
        if distinct == 1:
            self._left_out[name] = "constant"
        elif _LABEL.search(name) and not self.has_label:
            self._proposals.append(("Probably a label", shown, (("label", name),)))
            self.has_label = True
        # Up to 10 different texts never are too many to be categories, and more than 100 always are.
        elif distinct == rows or distinct > min(100, max(10, rows // 2)):
            self._left_out[name] = f"{distinct:,} different texts in {count(rows, 'row')}"
        elif re.search(r"(?i)(?:^|[\W_])(?:batch|donor|lane|plate|site)$", name) and not known.gaps:
            self._proposals.append(("Probably a batch", shown, (("covariates", name), ("categorical", name))))
        else:
            self._proposals.append(("Probably categories", shown, (("categorical", name), ("label", name))))
            self._gaps.append(name)

    def _add_numbers(self, columns: Sequence[Column], x: Matrix, wrong: bool) -> None:
        """Look for ids, labels and missing values: numbers can be used as they are, so that alone they do no harm."""
        known, some = column_statistics(x), first_rows(x)
        self._left_out |= {columns[j].name: why for j, why in useless_columns(known).items()}
        for j, column in enumerate(columns):
            name, values = column.name, some[:, j]
            named = _IDENTIFIER.search(name) and not known.missing[j]
            if named and not self.has_id and _is_identifier(name, values, known.high[j] - known.low[j], known.rows):
                shown = f"{name!r} (a different integer in every row)"
                self._proposals.append(("Probably an id", shown, (("id", name),)))
                self.has_id = True
            elif not self.has_label and _LABEL.search(name) and bool((values == np.floor(values)).all()):
                shown = f"{name!r} ({len(np.unique(values)):,} different integers)"
                self._proposals.append(("Probably a label", shown, (("label", name),)))
                self.has_label = True
        fixes = [fix for *_, fix in self._proposals]
        taken = {value for fix in fixes for role, value in fix if role in ("id", "label")} | {*self._left_out}
        used = [column for column in columns if column.name not in taken]
        used += [Column(name, self.table.categories(name)) for name in self._gaps]
        if self.choices and used:
            known = column_statistics(self.table.numbers(used, "", Messages()))
            if where := missing_by_column(known, [column.name for column in used]):
                fix = tuple(("missing", str(choice)) for choice in missing_choices(known, self.choices))
                self._proposals.append(("Missing values", where, fix))
        if not (used or wrong):
            self._proposals = [(what, column, ()) for what, column, _ in self._proposals]
            self._proposals.append(("No column is left", "add one of numbers or categories", ()))

    def _error(self) -> CurvaeError:
        columns: dict[str, list[str]] = {}
        for what, column, _ in self._proposals:
            columns.setdefault(what, []).append(column)
        parts = [f"{what}: {listing(some, _SHOWN)}" for what, some in columns.items()]
        if self._left_out:
            parts.append(f"Left out: {_left_out_text(self._left_out)}")
        found = ". ".join([f"{self.table.path.name} has text in columns without a role", *parts])
        fixes = [fix for *_, fix in self._proposals if fix]
        if self.has_label:  # there is one label only
            fixes = [fix[:1] + tuple(way for way in fix[1:] if way[0] != "label") for fix in fixes]
        return FixableError(found, fixes) if fixes else CurvaeError(found)


def _left_out_text(reasons: Mapping[str, str]) -> str:
    """List columns that are left out, each with the reason."""
    return listing([f"{name!r} ({why})" for name, why in reasons.items()], _SHOWN)


def first_rows(x: Matrix) -> Any:
    """Return the rows of a matrix in memory, and the first rows of one on disk, to tell what its columns hold."""
    return x[:_LOOKED_AT].load() if isinstance(x, DiskMatrix) else x


def _is_identifier(name: str, values: NDArray[Any], span: float, rows: int) -> bool:
    """Return whether a column of numbers looks like an identifier: different integers, consecutive or so named.

    Arguments:
        name: of the column.
        values: all of them, or the first ones.
        span: difference of the largest and the smallest of all.
        rows: how many values there are in all.
    """
    values = values[np.isfinite(values)]
    if not values.size or not bool((values == np.floor(values)).all()):
        return False
    consecutive = span == rows - 1 and rows >= 5
    return bool(consecutive or _IDENTIFIER.search(name)) and np.unique(values).size == values.size


# From what a reader found to a data set: the steps that all kinds of data share.


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
    ids: Texts | None = None
    labels: Texts | None = None
    groups: Texts | None = None
    exposure: Vector | None = None
    label_name: str | None = None
    context: Any = None
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
        rows_given = self.x.shape[0]
        ids: Texts = DiskTexts.numbers(rows_given) if self.ids is None else self.ids
        ids = ids if isinstance(self.x, DiskMatrix) else in_memory(ids)
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
            self.judge(x)
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
            schema=schema,
        ), schema

    def arrays(self, schema: Schema, missing: Missing) -> Arrays:
        """The inputs of a model alone, without ids and labels."""
        _, features, kept = self._resolve(schema, missing)
        others = {"context": self.context, "size": self.exposure}
        if kept is not None:
            others = {name: None if values is None else values[kept] for name, values in others.items()}
        shape = schema.shape if len(schema.shape) > 1 else ()
        return Arrays(features, **others, blocks=schema.blocks, shape=shape, missing=missing == "model")

    def _resolve(self, schema: Schema, missing: Missing) -> tuple[Any, Any, NDArray[np.int64] | None]:
        """Deal with missing values; return the numbers, the features that they become, and the rows that were kept."""
        x, kept = resolve_missing(self.x, schema.column_names, schema.fills, missing, self.messages, self.choices)
        if missing == "model" and has_missing(self.x) and (empty := column_statistics(self.x).empty).size:
            names = empty if self.ids is None else in_memory(self.ids[empty])
            raise CurvaeError(f"{self.source} has rows without a single value: {quoted(names)}; remove them")
        return x, one_hot(x, schema.columns, self.source) if schema.categorical else x, kept

    def _require_rows(self, least: int, rows: int | None = None) -> None:
        rows = self.x.shape[0] if rows is None else rows
        if rows == 0:
            raise CurvaeError(f"{self.source} has no rows; give at least {least}")
        if rows < least:
            raise CurvaeError(f"{self.source} has only {count(rows, 'row')} to learn from; give at least {least}")

    def leave_out_constant(self) -> None:
        """Leave out the columns of a table that hold a single value or none, unless all do."""
        if self.kind != "table" or self.keeps_constant:
            return
        useless = useless_columns(column_statistics(self.x))
        kept = np.setdiff1d(np.arange(len(self.columns)), list(useless))
        self.left_out |= {self.columns[j].name: why for j, why in useless.items()}
        if useless:
            self.x, self.columns = self.x[:, kept], tuple(self.columns[j] for j in kept.tolist())
        if self.left_out:
            self.messages.note(f"left out: {_left_out_text(self.left_out)}.")

    def fit(self, missing: Missing) -> Schema:
        """Fit a schema to the data."""
        if not self.columns:
            raise CurvaeError(f"{self.source} has no column left to use as a feature; give at least one")
        known = column_statistics(self.x)
        if (empty := np.flatnonzero(known.present == 0)).size:
            names = quoted(self.columns[int(j)].name for j in empty)
            raise CurvaeError(f"{self.source} has columns without a single value: {names}; remove them")
        if isinstance(self.columns, NumberColumns):
            columns: Sequence[Column] = NumberColumns(self.columns.names, known.mean)
            return Schema(self.kind, columns, self.shape or (len(columns),), **self.roles, covariates=self.covariates)
        binary = np.zeros(len(self.columns), bool)
        if self.kind == "table":
            dropped = missing == "drop" and known.has_missing
            binary = find_binary(self.x[complete_rows(self.x)] if dropped else self.x)
        if missing == "mean":  # the mean is neither 0 nor 1
            binary &= known.missing == 0
        fills = np.where(binary, np.round(known.mean), known.mean)
        for j, counts in self._category_counts().items():
            fills[j] = np.argmax(counts)
        columns = tuple(
            replace(column, fill=float(fills[j]), binary=bool(binary[j] and column.categories is None))
            for j, column in enumerate(self.columns)
        )
        width = sum(len(column.features) for column in columns)
        return Schema(self.kind, columns, self.shape or (width,), **self.roles, covariates=self.covariates)

    def _category_counts(self) -> dict[int, NDArray[np.int64]]:
        """Count how often each category of a column occurs, by the number of the column."""
        sizes = {j: len(column.categories) for j, column in enumerate(self.columns) if column.categories is not None}
        counts = {j: np.zeros(size, np.int64) for j, size in sizes.items()}
        for block in row_blocks(self.x) if counts else ():
            for j, size in sizes.items():
                codes = block[:, j]
                counts[j] += np.bincount(codes[np.isfinite(codes)].astype(np.intp), minlength=size)
        return counts

    def judge(self, x: Any) -> None:
        """Warn about training data that looks wrong."""
        rows, width = x.shape
        if self.kind == "images":
            return
        if width > 5 * rows:
            self.messages.warn(
                f"{self.source} has many more columns ({width:,}) than rows ({rows:,}): is it transposed? "
                "Each row must be one thing to embed."
            )
        known = column_statistics(x)
        if (constant := np.flatnonzero(known.low == known.high)).size:
            names = quoted(self.columns[int(j)].name for j in constant)
            self.messages.note(
                f"column {names} is constant; it is kept."
                if constant.size == 1
                else f"{constant.size:,} columns are constant; they are kept: {names}."
            )
        if self.kind == "table":
            some = first_rows(x)
            for j in np.flatnonzero(known.low < known.high):
                column = self.columns[int(j)]
                if _is_identifier(column.name, some[:, j], known.high[j] - known.low[j], rows):
                    value = "category" if column.categories else "integer"
                    self.messages.warn(
                        f"column {column.name!r} looks like an identifier (a different {value} in every row) and is "
                        f"used as a feature; use id={json.dumps(column.name, ensure_ascii=False)} if it is one."
                    )
