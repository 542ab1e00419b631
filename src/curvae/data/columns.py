"""From columns as a reader found them to rows, with advice for columns that have no role."""

from __future__ import annotations

import json
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

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
from .files import Messages, count, guard, listing, quoted
from .text_tables import MISSING, NUMBER, NumberFacts, numbers_from_texts, texts_of

__all__ = [
    "LABEL",
    "ColumnAdvice",
    "ColumnTexts",
    "FrameTable",
    "RawData",
    "Table",
    "common_stem",
    "decode_texts",
    "first_rows",
    "looks_like_edges",
    "named_ends",
]

_SHOWN = 10  # columns of one kind that a message lists
_LOOKED_AT = 10_000  # rows of a table on disk that tell whether a column holds identifiers
_IDENTIFIER = re.compile(r"(?:^|[\W_])(?:id|idx|index)$", re.IGNORECASE)
LABEL = re.compile(r"(?:^|[\W_])(?:labels?|class|target|cluster)$", re.IGNORECASE)


@dataclass
class ColumnTexts:
    """The different texts of a column, by which its cells are distinguished: numbers too, where they are categories.

    Arguments:
        positions: position of each text; numbers stand for themselves, for how they are written depends on the others.
        times: how often each of them occurs.
        floats: whether numbers with a decimal point are among the cells.
        categorical: whether the column is of a type for categories.
        first: the first cell that is not a number, with its row; None if all are numbers or missing.
        most: different texts that are distinguished; the others are treated as missing.
        many: whether there are more.
    """

    positions: dict[Any, int] = field(default_factory=dict)
    times: list[int] = field(default_factory=list)
    floats: bool = False
    categorical: bool = False
    first: str | None = None
    most: int = sys.maxsize
    many: bool = False

    def encode(self, values: Any, row: int = 0, file: str = "") -> NDArray[np.float64]:
        """Convert cells to positions of their texts; the first of them is in this row of a file."""
        self.categorical |= isinstance(values.dtype, pd.CategoricalDtype)
        codes, distinct = pd.factorize(pd.Series(texts_of(values)) if values.dtype == object else values)
        known: Any = pd.Series(distinct)
        if pd.api.types.is_numeric_dtype(known.dtype) and not pd.api.types.is_bool_dtype(known.dtype):
            texts = known.tolist()
            self.floats |= pd.api.types.is_float_dtype(known.dtype)
        else:
            texts = texts_of(known, strip=True).tolist()
            if self.first is None and (cell := numbers_from_texts(known)[1]) is not None:
                number = row + int(np.argmax(codes == cell[1])) + 1
                self.first = f"{cell[0][:40]!r} in row {number:,}" + (f" of {file}" if file else "")
        positions = np.full(len(texts) + 1, np.nan)  # the last one stands for missing values
        times = np.bincount(codes[codes >= 0], minlength=len(texts)).tolist()
        for i, text in enumerate(texts):
            if text not in MISSING and (not self.many or text in self.positions):
                place = self.positions.setdefault(text, len(self.times))
                self.times += [0] * (place == len(self.times))
                self.times[place] += times[i]
                positions[i] = place
        self.many |= len(self.times) > self.most
        return positions[codes]

    @property
    def written(self) -> list[str]:
        """The different texts, as a person would write them."""
        whole = all(text % 1 == 0 for text in self.positions if not isinstance(text, str))
        return [text if isinstance(text, str) else str(int(text) if whole else float(text)) for text in self.positions]


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
    def is_numeric(self, name: str) -> bool:
        """Return whether a column is stored as numbers or truth values."""

    @abstractmethod
    def column_texts(self, name: str) -> ColumnTexts:
        """Return the different texts of a column."""

    @abstractmethod
    def texts(self, name: str, strip: bool = False) -> Texts:
        """Convert the cells of a column to texts; see `texts_of`."""

    @abstractmethod
    def _decode(self, names: Sequence[str], known: Mapping[int, NDArray[np.float64]], facts: NumberFacts) -> Matrix:
        """Join columns to a matrix of numbers.

        Arguments:
            names: of the columns.
            known: what the texts of a column stand for, by the place of the column; others hold numbers.
            facts: takes what to say about these.
        """

    def first_text(self, name: str) -> str | None:
        """Return the first cell of a column that is not a number, and its row; None if all are numbers or missing."""
        known = None if self.is_numeric(name) else self.column_texts(name)
        if known is None or known.first is not None:
            return None if known is None else known.first
        cell = numbers_from_texts(pd.Series(known.written, dtype=object))[1]  # where some are truth values
        return None if cell is None else repr(cell[0])

    def is_text(self, name: str) -> bool:
        """Return whether a column has a cell that is not a number, or is of a type for categories.

        Example:
            >>> table = FrameTable(Path("t.csv"), pd.DataFrame({"a": ["1", "2", "NA"], "b": ["1", "2", "b"]}))
            >>> table.is_text("a"), table.is_text("b")
            (False, True)
        """
        return not self.is_numeric(name) and (self.first_text(name) is not None or self.column_texts(name).categorical)

    def categories(self, name: str) -> tuple[str, ...]:
        """List the categories of a column: numbers in ascending order, then texts in alphabetical order.

        Example:
            >>> FrameTable(Path("t.csv"), pd.DataFrame({"a": ["b", "10", "9", "a", "NA"]})).categories("a")
            ('9', '10', 'a', 'b')
        """
        known = self.column_texts(name)
        if known.many:
            raise CurvaeError(
                f"column {name!r} of {self.path.name} has more than {known.most:,} different values; leave it out"
            )
        return tuple(
            sorted(set(known.written), key=lambda text: (float(text) if re.fullmatch(NUMBER, text) else np.inf, text))
        )

    def summarise(self, name: str) -> tuple[int, int, int]:
        """Count the different texts of a column, the rows without one, and those whose text is a number.

        Numbers may be written in another way.
        """
        known = self.column_texts(name)
        texts, present = known.written, sum(known.times)
        numbers = sum(times for text, times in zip(texts, known.times, strict=True) if _NUMBER.fullmatch(text))
        if known.many:  # if none of those that were counted occurs twice, they are likely to name rows
            return self.rows if present == len(texts) else len(texts), 0, numbers
        return len(set(texts)), self.rows - present, numbers

    def cells_to_correct(self, name: str) -> list[str]:
        """List the texts that are no numbers in a column of which at least half are numbers; [] for other columns.

        Example:
            >>> FrameTable(Path("t.csv"), pd.DataFrame({"a": ["1", "2", "n.d.", "4"]})).cells_to_correct("a")
            ['n.d.']
        """
        _, gaps, numbers = self.summarise(name)
        if 2 * numbers < self.rows - gaps:
            return []
        return [text for text in self.column_texts(name).written if not re.fullmatch(NUMBER, text.strip())]

    def numbers(self, columns: Sequence[Column], fix: str, messages: Messages) -> Matrix:
        """Convert columns to numbers, (rows, columns).

        A category becomes its position in the list of categories, a missing value NaN.

        Arguments:
            columns: descriptions of the columns.
            fix: what to do about a column of texts, for the error; {0} stands for its name.
            messages: takes notes about what was converted.
        """
        known: dict[int, NDArray[np.float64]] = {}
        texts: dict[str, str] = {}
        facts = NumberFacts()
        for j, column in enumerate(columns):
            if column.categories is not None:
                known[j] = self._category_positions(column)
            elif (cell := self.first_text(column.name)) is not None:
                texts[column.name] = cell
            elif not self.is_numeric(column.name):
                written = self.column_texts(column.name).written
                known[j] = facts.convert(column.name, pd.Series(written, dtype=object))[0]
        if texts:
            listed = listing(f"{name!r} ({cell})" for name, cell in texts.items())
            one = json.dumps(next(iter(texts)), ensure_ascii=False)
            raise CurvaeError(f"{self.path.name} has text in column {listed}; {fix.format(one)}")
        names = [column.name for column in columns]
        x = self._decode(names, known, facts)
        facts.report(messages, names)
        require_sums(x, columns, self.path.name)
        return x

    def unseen_categories(self, column: Column) -> list[str]:
        """List the texts of a column that are not among its categories."""
        return sorted({*self.column_texts(column.name).written}.difference(self._known_categories(column)))

    def _known_categories(self, column: Column) -> dict[str, float]:
        """Return the positions of the categories of a column, by how they may be written."""
        assert column.categories is not None
        places = {category: float(place) for place, category in enumerate(column.categories)}
        # In a table of samples, texts that look like formulas are guarded.
        known = {guard(category): place for category, place in places.items()} | places
        if self.column_texts(column.name).floats:  # whole numbers have a point where others have digits
            known = {category.removesuffix(".0"): place for category, place in places.items()} | known
        return known

    def _category_positions(self, column: Column) -> NDArray[np.float64]:
        """Find the texts of a column in its list of categories."""
        known, texts = self._known_categories(column), self.column_texts(column.name).written
        if unseen := sorted({*texts}.difference(known)):
            raise CurvaeError(
                f"column {column.name!r} of {self.path.name} holds categories that the model was not trained on: "
                f"{quoted(unseen)}; it knows {quoted(column.categories or ())}"
            )
        return np.array([known[text] for text in texts], np.float64)


class FrameTable(Table):
    """A table in memory: a frame of pandas."""

    def __init__(self, path: Path, frame: pd.DataFrame) -> None:
        self.path, self.head = path, frame
        self.names, self.rows = list(frame.columns), len(frame)
        self._encoded: dict[str, tuple[ColumnTexts, NDArray[np.float64]]] = {}

    def is_numeric(self, name: str) -> bool:
        return pd.api.types.is_numeric_dtype(self.head[name].dtype)

    def column_texts(self, name: str) -> ColumnTexts:
        return self._encode(name)[0]

    def texts(self, name: str, strip: bool = False) -> Texts:
        return texts_of(self.head[name], strip)

    def _encode(self, name: str) -> tuple[ColumnTexts, NDArray[np.float64]]:
        """Return the texts of a column, and the position of each cell among them."""
        if name not in self._encoded:
            known = ColumnTexts()
            self._encoded[name] = known, known.encode(self.head[name])
        return self._encoded[name]

    def _decode(self, names: Sequence[str], known: Mapping[int, NDArray[np.float64]], facts: NumberFacts) -> Matrix:
        converted = {
            names[j]: decode_texts(self._encode(names[j])[1][:, None], [0], {0: numbers})[:, 0]
            for j, numbers in known.items()
        }
        for name in names:
            if name not in converted:
                facts.convert(name, self.head[name])
        frame = pd.DataFrame({name: converted.get(name, self.head[name]) for name in names}, self.head.index)
        return np.ascontiguousarray(frame.to_numpy(dtype=np.float64, na_value=np.nan))


def decode_texts(
    x: NDArray[Any], columns: Sequence[int], known: Mapping[int, NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Choose columns of a matrix, and convert positions of texts to what they stand for, by the place of the column."""
    values = x[:, columns].astype(np.float64)
    for j, numbers in known.items():
        present = np.isfinite(values[:, j])
        values[present, j] = numbers[values[present, j].astype(np.intp)]
    return values


# Whether columns name the nodes of edges.

_ENDS = (
    ("source", "target"),
    ("from", "to"),
    ("src", "dst"),
    ("source", "destination"),
    ("fromnodeid", "tonodeid"),
    ("node1", "node2"),
    ("id1", "id2"),
    ("start", "end"),
    ("head", "tail"),
    ("tail", "head"),
    ("parent", "child"),
    ("child", "parent"),
    ("subject", "object"),
    ("u", "v"),
    ("i", "j"),
)
_REPEATED = 0.1  # share of edges that may be given twice


def named_ends(names: Sequence[str]) -> tuple[int, int] | None:
    """Find two columns with usual names for the ends of an edge."""
    folded = [re.sub(r"[\W_]", "", name.casefold()) for name in names]
    return next(((folded.index(a), folded.index(b)) for a, b in _ENDS if a in folded and b in folded), None)


def common_stem(names: Sequence[str]) -> str | None:
    """Return what the first two names have in common if they differ only in a 1 and a 2, or the like."""
    a = re.fullmatch(r"(.+?)[\W_]*[1ax]", names[0].casefold())
    b = re.fullmatch(r"(.+?)[\W_]*[2by]", names[1].casefold())
    return a[1] if a and b and a[1] == b[1] else None


def looks_like_edges(frame: pd.DataFrame) -> bool:
    """Return whether the rows of a table are likely the edges of a graph: two names, or numbers of nodes, and maybe a
    weight.

    Whole numbers may be measurements as well. They are numbers of nodes if the columns have usual names, no edge is
    given twice, none joins a node to itself, and most nodes of one column are in the other too.

    Example:
        >>> looks_like_edges(pd.DataFrame({"from": [1, 1, 2], "to": [2, 3, 4]}))
        True
        >>> looks_like_edges(pd.DataFrame({"from": [1.5, 1.0, 2.0], "to": [2.0, 3.0, 4.0]}))
        False
    """
    table = FrameTable(Path(), frame.head(_LOOKED_AT))
    names, rows = table.names, table.head
    if len(names) == 1:  # numbers that blanks separate, the first two in the place of a header
        cells = [record.split() for record in (names[0], *rows.iloc[:, 0].astype(str))]
        return all(len(cell) in (2, 3) and cell[0].isdecimal() and cell[1].isdecimal() for cell in cells)
    if (
        len(names) not in (2, 3)
        or any(map(table.is_text, names[2:]))
        or rows.iloc[:, :2].duplicated().mean() > _REPEATED
    ):
        return False
    left, right = rows.iloc[:, 0], rows.iloc[:, 1]
    if not all(pd.api.types.is_integer_dtype(side.dtype) for side in (left, right)):
        return table.is_text(names[0]) and table.is_text(names[1])
    if (named_ends(names) is None and common_stem(names) is None) or bool((left == right).any()):
        return False
    sides = set(left.tolist()), set(right.tolist())
    return len(sides[0] & sides[1]) >= min(map(len, sides)) / 2


@dataclass
class ColumnAdvice:
    """Look at all columns of a table at once: leave out texts that are of no use, propose a role for the others.

    Arguments:
        table: the columns.
        taken: roles that columns have already, of "id" and "label"; a proposal takes its role too.
        choices: values of `missing` to propose where values are missing; none where one was given.
    """

    table: Table
    taken: set[str] = field(default_factory=set)
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
        wrong = {name: cells for name in offenders if (cells := self.table.cells_to_correct(name))}
        known = {name: self.table.summarise(name) for name in offenders if name not in wrong}
        unique = [name for name, (distinct, *_) in known.items() if distinct == self.table.rows]
        if unique and "id" not in self.taken:
            name = next((name for name in unique if _IDENTIFIER.search(name)), unique[0])
            self._propose("id", name, f"{name!r} ({offenders[name]}, a different text in every row)")
            del known[name]
        for name, (distinct, gaps, _) in known.items():
            self._add_text(name, distinct, gaps, offenders[name])
        for name, cells in wrong.items():
            more = f", and {quoted(cells[1:])}" if cells[1:] else ""
            self._proposals.append(("Numbers, with cells to correct", f"{name!r} ({offenders[name]}{more})", ()))
        if self._proposals:
            self._add_numbers(columns, x, bool(wrong))
            raise self._error()
        return self._left_out

    def _propose(self, role: str, name: str, shown: str) -> None:
        """Propose that a column is the id or the label."""
        self._proposals.append(("Probably an id" if role == "id" else "Probably a label", shown, ((role, name),)))
        self.taken.add(role)

    def _add_text(self, name: str, distinct: int, gaps: int, cell: str) -> None:
        rows = self.table.rows
        shown = f"{name!r} ({cell}, {distinct:,} different texts)"
        if distinct == 1:
            self._left_out[name] = "constant"
        elif LABEL.search(name) and "label" not in self.taken:
            self._propose("label", name, shown)
        # Up to 10 different texts never are too many to be categories, and more than 100 always are.
        elif distinct == rows or distinct > min(100, max(10, rows // 2)):
            self._left_out[name] = f"{distinct:,} different texts in {count(rows, 'row')}"
        elif re.search(r"(?i)(?:^|[\W_])(?:batch|donor|lane|plate|site)$", name) and not gaps:
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
            named = "id" not in self.taken and _IDENTIFIER.search(name) and not known.missing[j]
            if named and _is_identifier(name, values, known.high[j] - known.low[j], known.rows):
                self._propose("id", name, f"{name!r} (a different integer in every row)")
            elif "label" not in self.taken and LABEL.search(name) and bool((values == np.floor(values)).all()):
                self._propose("label", name, f"{name!r} ({len(np.unique(values)):,} different integers)")
        taken = {value for *_, fix in self._proposals for role, value in fix if role in ("id", "label")}
        used = [column for column in columns if column.name not in taken | {*self._left_out}]
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
        if "label" in self.taken:  # there is one label only
            fixes = [fix[:1] + tuple(way for way in fix[1:] if way[0] != "label") for fix in fixes]
        return FixableError(found, fixes) if fixes else CurvaeError(found)


def _left_out_text(reasons: Mapping[str, str]) -> str:
    """List columns that are left out, each with the reason."""
    return listing([f"{name!r} ({why})" for name, why in reasons.items()], _SHOWN)


def first_rows(x: Matrix) -> Any:
    """Return the rows of a matrix in memory, and the first rows of one on disk, to tell what its columns hold."""
    return x[:_LOOKED_AT].load() if isinstance(x, DiskMatrix) else x


def _require_totals(x: Matrix, names: Texts, source: str) -> NDArray[np.float64]:
    """Return the total count of every cell, (rows,); raise where it is 0."""
    totals = np.concatenate([np.asarray(block.sum(1), np.float64).ravel() for block in row_blocks(x)])
    if (empty := np.flatnonzero(totals == 0)).size:
        raise CurvaeError(
            f"{source} has {count(len(empty), 'cell')} without a count of the genes in use: "
            f"{quoted(in_memory(names[empty]))}; use more `genes`, or leave such cells out, as with "
            "scanpy.pp.filter_cells(adata, min_counts=1)"
        )
    return totals


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
    return np.unique(values).size == values.size and bool((span == rows - 1 and rows >= 5) or _IDENTIFIER.search(name))


# From what a reader found to a data set: the steps that all kinds of data share.


@dataclass
class RawData:
    """Data as a reader found it: missing values are still missing, and categories are not one-hot yet.

    Arguments:
        source: name of the data in messages.
        kind: table, matrix, images or cells.
        x: numbers, (rows, columns); a category is its position in the list of categories, or NaN.
        columns: descriptions of the columns of x; `finish` sets `fill`.
        shape: (height, width) of images, else None.
        ids, labels, groups, exposure: one per row, (rows,), or None.
        label_name: name of the label column.
        context: covariates as numbers, (rows, covariates), or None.
        covariates: descriptions of the covariates.
        roles: names of the columns with ids, labels, groups, exposure and batches.
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
        ids: Texts = DiskTexts.numbers(self.x.shape[0]) if self.ids is None else self.ids
        ids = ids if isinstance(self.x, DiskMatrix) else in_memory(ids)
        check_ids(ids, f"column {self.roles['id']!r}" if self.roles.get("id") else "ids")
        rows = {"ids": ids} | {name: getattr(self, name) for name in ("labels", "groups", "exposure", "context")}
        rows = {name: None if values is None else values[kept] for name, values in rows.items()}
        if schema.kind == "cells":
            totals = _require_totals(features, rows["ids"], self.source)
            rows["exposure"] = totals if schema.total else rows["exposure"]
        if given is None:
            self._require_rows(2, x.shape[0])
            self.judge(x)
        return Dataset(
            x=features,
            names=schema.names,
            shape=schema.shape,
            **rows,
            label_name=self.label_name if self.labels is not None else None,
            id_name=None if self.ids is None or self.kind not in ("table", "cells") else self.roles.get("id") or "",
            blocks=schema.blocks,
            context_names=() if self.context is None else schema.context_names,
            notes=tuple(self.messages.notes),
            warnings=tuple(self.messages.warnings),
            missing=missing == "model",
            schema=schema,
            total=schema.total,
            batch=schema.batch,
            counts=schema.kind == "cells",
        ), schema

    def arrays(self, schema: Schema, missing: Missing) -> Arrays:
        """Return the inputs of a model alone, without ids and labels."""
        _, features, kept = self._resolve(schema, missing)
        context, size = (None if values is None else values[kept] for values in (self.context, self.exposure))
        shape = schema.shape if len(schema.shape) > 1 else ()
        return Arrays(features, context, size, blocks=schema.blocks, shape=shape, missing=missing == "model")

    def _resolve(self, schema: Schema, missing: Missing) -> tuple[Any, Any, Any]:
        """Deal with missing values; return the numbers, the features that they become, and the rows that were kept."""
        x, kept = resolve_missing(self.x, schema.column_names, schema.fills, missing, self.messages, self.choices)
        if missing == "model" and has_missing(self.x) and (empty := column_statistics(self.x).empty).size:
            names = empty if self.ids is None else in_memory(self.ids[empty])
            raise CurvaeError(f"{self.source} has rows without a single value: {quoted(names)}; remove them")
        features = one_hot(x, schema.columns, self.source) if schema.categorical else x
        return x, features, slice(None) if kept is None else kept

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
            binary = find_binary(self.x[complete_rows(self.x)] if missing == "drop" and known.has_missing else self.x)
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
        known = ((j, column.categories) for j, column in enumerate(self.columns) if column.categories is not None)
        counts = {j: np.zeros(len(categories), np.int64) for j, categories in known}
        for block in row_blocks(self.x) if counts else ():
            for j, found in counts.items():
                codes = block[:, j]
                found += np.bincount(codes[np.isfinite(codes)].astype(np.intp), minlength=len(found))
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
                    self.messages.warn(
                        f"column {column.name!r} looks like an identifier (a different "
                        f"{'category' if column.categories else 'integer'} in every row) and is used as a "
                        f"feature; use `id={json.dumps(column.name, ensure_ascii=False)}` if it is one."
                    )
