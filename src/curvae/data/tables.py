"""Tables with named columns: numbers, categories, ids, labels, groups, exposure and covariates; and how columns become
rows, with advice for those that have no role.
"""

from __future__ import annotations

import difflib
import json
import re
import shlex
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..errors import CurvaeError, FixableError, check
from ..models.likelihoods.base import find_binary, row_blocks
from . import memory
from .dataset import (
    Arrays,
    Column,
    Dataset,
    Kind,
    Matrix,
    Missing,
    NumberColumns,
    Scaling,
    Schema,
    Vector,
    check_ids,
    column_statistics,
    complete_rows,
    has_missing,
    missing_by_column,
    missing_choices,
    one_hot,
    require_sums,
    resolve_missing,
    useless_columns,
)
from .disk import DiskMatrix, DiskTexts, Texts, count_empty, in_memory, repeated_texts, text_blocks
from .files import (
    MISSING,
    NUMBER,
    UNNAMED,
    Messages,
    NumberFacts,
    count,
    guard,
    listing,
    name_columns,
    numbers_from_texts,
    opened_parquet,
    quoted,
    read_text,
    texts_of,
)

__all__ = [
    "LABEL",
    "NOT_NUMBERS",
    "TABLES",
    "ColumnAdvice",
    "ColumnTexts",
    "FrameTable",
    "RawData",
    "Roles",
    "Table",
    "average_context",
    "batch_contexts",
    "check_roles",
    "choose_roles",
    "code_covariates",
    "code_values",
    "common_stem",
    "covariate_numbers",
    "decode_texts",
    "first_rows",
    "fit_covariates",
    "looks_like_edges",
    "named_ends",
    "named_frame",
    "read_exposure",
    "read_frame",
    "read_parquet",
    "read_roles",
    "require_column",
    "sort_columns",
    "table_reader",
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
        check(
            not known.many,
            f"column {name!r} of {self.path.name} has more than {known.most:,} different values; leave it out",
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
    """A table in memory: a frame of pandas, which may lack columns of the table that are not asked for."""

    def __init__(self, path: Path, frame: pd.DataFrame, names: Sequence[str] | None = None) -> None:
        self.path, self.head = path, frame
        self.names, self.rows = list(frame.columns if names is None else names), len(frame)
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
        x = np.empty((self.rows, len(names)))
        for j, name in enumerate(names):
            x[:, j] = self._encode(name)[1] if j in known else facts.convert(name, self.head[name])[0]
        return decode_texts(x, slice(None), known)


def decode_texts(
    x: NDArray[Any], columns: Sequence[int] | slice, known: Mapping[int, NDArray[np.float64]]
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
        return Arrays(
            features,
            context,
            size,
            blocks=schema.blocks,
            shape=schema.shape if len(schema.shape) > 1 else (),
            missing=missing == "model",
        )

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
        check(rows, f"{self.source} has no rows; give at least {least}")
        check(rows >= least, f"{self.source} has only {count(rows, 'row')} to learn from; give at least {least}")

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
        check(len(self.columns), f"{self.source} has no column left to use as a feature; give at least one")
        known = column_statistics(self.x)
        if (empty := np.flatnonzero(known.present == 0)).size:
            raise CurvaeError(
                f"{self.source} has columns without a single value: "
                f"{quoted(self.columns[int(j)].name for j in empty)}; remove them"
            )
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
        return Schema(
            self.kind,
            columns,
            self.shape or (sum(len(column.features) for column in columns),),
            **self.roles,
            covariates=self.covariates,
        )

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


# Covariates: columns that describe how a row was measured, such as its batch, coded as numbers for the networks.


def fit_covariates(
    table: Table, names: Iterable[str], categorical: Iterable[str], messages: Messages
) -> tuple[Column, ...]:
    """Decide which covariates are categories and which are numbers, and measure the numbers.

    Columns of texts are categories, and so are those named in `categorical`.

    Arguments:
        table: has the covariates.
        names: names of the covariates.
        categorical: columns whose values are categories even if they look like numbers.
        messages: takes notes about columns that may have been misread.
    """
    found, chosen = [], set(categorical)
    for name in dict.fromkeys(names):
        if name in chosen or table.is_text(name):
            column = Column(name, table.categories(name))
            constant = len(column.categories or ()) < 2
        else:
            numbers = covariate_numbers(table, (Column(name),))
            known = column_statistics(numbers)
            constant = bool(known.low[0] == known.high[0])
            column = Column(name, fill=float(known.mean[0]), scale=float(known.deviation[0]))
            distinct = np.unique(first_rows(numbers))
            if 2 < len(distinct) <= 10 and bool((distinct == np.floor(distinct)).all()):
                messages.note(
                    f"covariate {name!r} is taken as a number; if its values are names of batches, declare it "
                    "categorical."
                )
        check(not constant, f"covariate {name!r} has the same value in every row of {table.path.name}; leave it out")
        found.append(column)
    return tuple(found)


def covariate_numbers(table: Table, columns: Sequence[Column]) -> Matrix:
    """Convert covariates to numbers that are not scaled yet, (rows, covariates); see `Table.numbers`."""
    numbers = table.numbers(columns, "the model was trained on numbers there", Messages())
    if has_missing(numbers):
        where = missing_by_column(column_statistics(numbers), [column.name for column in columns])
        raise CurvaeError(
            f"covariates of {table.path.name} have missing or infinite values, counted by column: {where}; "
            "fill them in, or remove these rows"
        )
    return numbers


def code_covariates(table: Table, columns: Sequence[Column]) -> Any:
    """Code covariates as numbers, (rows, coded covariates): categories one-hot, numbers standardised.

    Arguments:
        table: has the covariates.
        columns: their descriptions, from `fit_covariates`.
    """
    numbers = covariate_numbers(table, columns)
    known = column_statistics(numbers)
    for column, low, high in zip(columns, known.low, known.high, strict=True):
        if column.categories is None:
            far = max((low, high), key=lambda value: abs(value - column.fill))
            # Beyond a million standard deviations the networks overflow; rows of a training are nearer.
            check(
                abs(far - column.fill) / column.scale <= 1e6,
                f"covariate {_described(column)} is {far:.4g} in {table.path.name}, too far from that; correct it",
            )
    scaled = [(column.fill, column.scale) if column.categories is None else (0.0, 1.0) for column in columns]
    shift, scale = np.array(scaled).reshape(-1, 2).T
    return one_hot(Scaling(shift, scale).apply(numbers), columns, table.path.name)


def code_values(columns: Sequence[Column], values: Mapping[str, Any] | None, rows: int = 1) -> NDArray[np.float64]:
    """Code covariates that were given by name, one value for all rows or one per row; see `code_covariates`.

    Example:
        >>> code_values([Column("batch", ("a", "b")), Column("age", fill=40.0, scale=10.0)], {"batch": "b", "age": 45})
        array([[0. , 1. , 0.5]])
    """
    given = {} if values is None else {str(name): value for name, value in values.items()}
    known = [column.name for column in columns]
    if unknown := [name for name in given if name not in known]:
        raise CurvaeError(
            f"the model has no covariate {quoted(unknown)}; "
            + (f"it has {quoted(known)}" if known else "it was trained without any, so leave them out")
        )
    if absent := [column for column in columns if column.name not in given]:
        raise CurvaeError(
            f"the model needs values of the covariates {listing(map(_described, absent))}; give them with "
            "`covariates=…`"
        )
    if not columns:
        return np.zeros((rows, 0))
    try:
        frame = pd.DataFrame({name: np.broadcast_to(np.asarray(given[name]), rows) for name in known})
    except ValueError:
        raise CurvaeError(f"give every covariate one value, or one for each of {rows:,} rows") from None
    return code_covariates(FrameTable(Path("what was given"), frame), columns)


def average_context(columns: Sequence[Column]) -> NDArray[np.float64]:
    """Code covariates of average circumstances: numbers at their mean, and all categories in equal shares.

    Example:
        >>> average_context([Column("batch", ("a", "b")), Column("age", fill=40.0, scale=10.0)])
        array([0.5, 0.5, 0. ])
    """
    shares = [[0.0] if one.categories is None else [1 / len(one.categories)] * len(one.categories) for one in columns]
    return np.array([share for column in shares for share in column])


def batch_contexts(schema: Schema) -> NDArray[np.float64]:
    """Code average circumstances in each batch, (batches, covariates); without batches those alone, (1, covariates)."""
    average = average_context(schema.covariates)
    if not schema.batch:
        return average[None]
    first, count = schema.batch
    each = np.tile(average, (count, 1))
    each[:, first : first + count] = np.eye(count)
    return each


def _described(column: Column) -> str:
    if column.categories is None:
        return f"{column.name!r} (a number, {column.fill:.4g} ± {column.scale:.4g} in training)"
    return f"{column.name!r} (one of {quoted(column.categories)})"


NOT_NUMBERS = "use `categorical=[{0}]`, `covariates=[{0}]`, `label={0}` or `id={0}`, or remove it"
"""what to do about a column of texts, {0}, that has no role"""


_COLUMNS = ("label", "id", "group", "exposure", "batch_key")  # roles of a single column


@dataclass(frozen=True)
class Roles:
    """Names of the columns of a table that the caller gives a role; the batch is a covariate with categories."""

    label: str | None = None
    id: str | None = None
    group: str | None = None
    categorical: tuple[str, ...] = ()
    exposure: str | None = None
    covariates: tuple[str, ...] = ()
    batch_key: str | None = None

    def __post_init__(self) -> None:
        if self.batch_key is not None:  # a covariate with categories
            for name in ("categorical", "covariates"):
                object.__setattr__(self, name, tuple(dict.fromkeys([*getattr(self, name), self.batch_key])))

    @classmethod
    def of(cls, schema: Schema) -> Roles:
        """Return the roles in the data that a model was trained on."""
        columns = [*(schema.columns if schema.categorical else ()), *schema.covariates]
        return cls(
            schema.label,
            schema.id,
            schema.group,
            tuple(column.name for column in columns if column.categories is not None),
            schema.exposure,
            tuple(column.name for column in schema.covariates),
            schema.batch_key,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Columns that name rows, labels or groups."""
        return tuple(name for name in (self.label, self.id, self.group) if name is not None)

    @property
    def asked(self) -> tuple[str, ...]:
        """All columns with a role."""
        exposure = () if self.exposure is None else (self.exposure,)
        return (*self.names, *self.categorical, *self.covariates, *exposure)


def table_reader(path: Path) -> Callable[[Path], pd.DataFrame] | None:
    """Return what reads a table with this ending, of those in `TABLES`; None for text."""
    return next((one for ending, one in TABLES.items() if one and path.name.lower().endswith(ending)), None)


def read_frame(
    path: Path, known: Collection[str], texts: Collection[str], messages: Messages, first: bool = False
) -> pd.DataFrame:
    """Read a table as a frame; see `read_text`, which also reads files with other endings, for the arguments."""
    reader = table_reader(path)
    frame = read_text(path, known, texts, messages, first) if reader is None else reader(path)
    check(len(frame), f"{path.name} has a header but no rows; add rows")
    return frame


def read_parquet(path: Path) -> pd.DataFrame:
    with opened_parquet(path) as file:
        rows, columns = file.metadata.num_rows, file.metadata.num_columns
        memory.require(16 * rows * columns, f"{path.name} ({rows:,} rows × {columns:,} columns)")
        return named_frame(path, file.read().to_pandas())


def named_frame(path: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """Take a frame of pandas as a table: an index that says anything is the first column, and names are texts."""
    if not frame.index.equals(pd.RangeIndex(len(frame))):
        frame = frame.reset_index(names=frame.index.name or f"{UNNAMED}0")
    return frame.set_axis(name_columns(path, [str(name) for name in frame.columns]), axis=1)


# How the names of tables end, and what reads such a file as a frame; None stands for a text table.
TABLES: dict[str, Callable[[Path], pd.DataFrame] | None] = {
    **dict.fromkeys((".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz")),
    ".parquet": read_parquet,
}


def sort_columns(
    table: Table, roles: Roles, schema: Schema | None, messages: Messages, missing: Missing = "error"
) -> RawData:
    """Sort the columns of a table by their roles.

    Arguments:
        table: in memory or on disk.
        roles, schema, missing: see `curvae.data.loading.read_table`.
        messages: takes notes.
    """
    present = table.names
    if schema is None and not roles.asked:
        _check_edges(table, messages)
    held, covariates = choose_roles(table, roles, schema, messages)
    given = [column.name for column in covariates]
    taken = {*given, roles.batch_key, *(name for name in held.values() if name is not None)}
    nameless = [name for name in present if name.startswith(UNNAMED) and name not in {*taken, *roles.categorical}]
    index = _index_column(table, nameless, held["id"] is not None, messages)
    features = [name for name in present if name not in {*taken, *nameless}]
    if schema is None:
        advice = ColumnAdvice(
            table,
            {role for role, name in (("id", held["id"] or index), ("label", held["label"])) if name is not None},
            choices=("model", "mean", "drop") if missing == "error" else (),
        )
        categorical = [name for name in roles.categorical if name not in given]
        cells = {name: table.first_text(name) for name in features if name not in categorical}
        offenders = {name: cell for name, cell in cells.items() if cell is not None}
        categories = {name: table.categories(name) for name in categorical}
        columns = tuple(Column(name, categories.get(name)) for name in features if name not in offenders)
        x = table.numbers(columns, NOT_NUMBERS, messages)
        left_out = advice.sort_texts(offenders, columns, x)
    else:
        columns, left_out = tuple(schema.columns), {}
        x = _match_columns(table, features, columns, messages)
    return RawData(
        source=table.path.name,
        kind="table",
        x=x,
        columns=columns,
        left_out=left_out,
        messages=messages,
        **read_roles(table, held, covariates, held["id"] or index, messages),
    )


def choose_roles(
    table: Table, roles: Roles, schema: Schema | None, messages: Messages
) -> tuple[dict[str, str | None], tuple[Column, ...]]:
    """Choose the columns with a role: those that were asked for, or those of the training data.

    Arguments:
        table, roles, schema, messages: see `sort_columns`.

    Returns:
        The name of the column of each role, and descriptions of the covariates.
    """
    path, present, trained = table.path, table.names, Roles() if schema is None else Roles.of(schema)
    check_roles(path, roles, present)
    # By default the roles are those of the training data, if the table has these columns.
    held: dict[str, str | None] = {
        role: getattr(roles, role) or (stored if (stored := getattr(trained, role)) in present else None)
        for role in _COLUMNS
    }
    if schema is not None:
        check(
            schema.exposure is None or held["exposure"] is not None,
            f"{path.name} has no column {schema.exposure!r}, the exposure that the model was trained with; add it",
        )
        if schema.id is not None and held["id"] is None:
            messages.note(f"there is no id column {schema.id!r}; rows are numbered.")
        return held, schema.covariates
    names = list(roles.covariates)
    if roles.batch_key is not None and len(categories := table.categories(roles.batch_key)) == 1:
        messages.note(f"batch {roles.batch_key!r} is {categories[0]!r} in every row; it is left out.")
        names.remove(roles.batch_key)
        held["batch_key"] = None
    return held, fit_covariates(table, names, roles.categorical, messages)


def read_roles(
    table: Table,
    held: Mapping[str, str | None],
    covariates: tuple[Column, ...],
    names: str | None,
    messages: Messages,
) -> dict[str, Any]:
    """Read the columns with a role, as arguments of `RawData`.

    Arguments:
        table: has the columns.
        held, covariates: from `choose_roles`.
        names: column that names the rows.
        messages: takes notes.
    """
    label, group, exposure, batch = (held[role] for role in ("label", "group", "exposure", "batch_key"))
    if absent := sorted({column.name for column in covariates} - set(table.names)):
        messages.note(f"covariates are absent: {quoted(absent)}.")
    known = bool(covariates) and not absent
    for column in covariates if known else ():
        if column.name == batch and (unseen := table.unseen_categories(column)):
            messages.warn(
                f"batch column {batch!r} holds batches that the model was not trained on: {quoted(unseen)}; rows are "
                "placed without their covariates."
            )
            known = False
    groups = None if group is None else table.texts(group, strip=True)
    if groups is not None and (empty := count_empty(groups)):
        raise CurvaeError(f"group column {group!r} is empty in {count(empty, 'row')}; give every row a group")
    labels = None if label is None else table.texts(label)
    if labels is not None and (empty := count_empty(labels)):
        messages.note(f"{count(empty, 'row')} without a label in column {label!r}; the label is left empty.")
    return {
        "ids": None if names is None else table.texts(names),
        "labels": labels,
        "groups": groups,
        "exposure": None if exposure is None else read_exposure(table, exposure, messages),
        "label_name": label,
        "context": code_covariates(table, covariates) if known else None,
        "covariates": covariates,
        "roles": dict(held),
    }


def check_roles(path: Path, roles: Roles, present: Sequence[str]) -> None:
    """Raise unless the table has all columns with a role and no column has two roles that exclude each other."""
    for role in _COLUMNS:
        require_column(path, role, getattr(roles, role), present)
    for name in roles.covariates:
        require_column(path, "covariates", name, present)
        check(
            name not in (roles.id, roles.exposure),
            f"column {name!r} cannot be a covariate and an id or exposure at once; choose one",
        )
    for name in roles.categorical:
        require_column(path, "categorical", name, present)
        check(
            name in roles.covariates or name not in (roles.label, roles.id, roles.group, roles.exposure),
            f"column {name!r} cannot be a feature and a label, id, group or exposure at once; choose one",
        )


def _check_edges(table: Table, messages: Messages) -> None:
    """Note that rows look like the edges of a graph; raise if they name nodes by texts, which are no features."""
    if not looks_like_edges(table.head):
        return
    first, graph = table.names[0], f"curvae graph {shlex.quote(str(table.path))}"
    if table.is_text(first):
        roles = NOT_NUMBERS.format(json.dumps(first, ensure_ascii=False))
        raise CurvaeError(
            f"the rows of {table.path.name} look like the edges of a graph; use {graph}, or `graph=True` with compare "
            f"and diagnose; for a table of rows {roles}"
        )
    messages.note(
        f"the rows look like the edges of a graph; if they are, use {graph}, or `graph=True` with compare and diagnose."
    )


def read_exposure(table: Table, name: str, messages: Messages) -> Any:
    """Read the exposure of every row, (rows,); raise where it is not a positive number."""
    values = table.numbers([Column(name)], "an exposure is a number; choose another column", messages)
    if wrong := sum(int((~(np.isfinite(block) & (block > 0))).sum()) for block in row_blocks(values)):
        raise CurvaeError(
            f"exposure column {name!r} of {table.path.name} is not a positive number in {count(wrong, 'row')}; "
            "correct it"
        )
    return values[:, 0]


def require_column(path: Path, role: str, name: str | None, present: Sequence[str]) -> None:
    """Raise unless a table has the column for a role."""
    if name is None or name in present:
        return
    folded = {column.casefold(): column for column in present}
    near = [folded[match] for match in difflib.get_close_matches(name.casefold(), folded)]
    hint = f"did you mean {quoted(near)}?" if near else f"its columns are {quoted(present)}"
    raise CurvaeError(f"{path.name} has no column {name!r} for `{role}=…`; {hint}")


def _index_column(table: Table, nameless: Sequence[str], has_ids: bool, messages: Messages) -> str | None:
    """Find the column without a name that holds ids, if there is one."""
    found: str | None = None
    for name in nameless:
        place, texts = table.names.index(name) + 1, table.texts(name, strip=True)
        numbers = (pd.to_numeric(pd.Series(block), errors="coerce") for block in text_blocks(texts))
        if all(bool(np.isin(block, list(MISSING)).all()) for block in text_blocks(texts)):
            messages.note(f"column {place} has neither name nor values; it is left out.")
        elif len(repeated_texts(texts)) or any(bool((block[np.isfinite(block)] % 1 != 0).any()) for block in numbers):
            raise CurvaeError(f"column {place} of {table.path.name} has no name; give it one in the header")
        elif has_ids or found is not None:
            messages.note(f"column {place} has no name and is left out, since the ids are in another column.")
        else:
            found = name
            messages.note(f"column {place} has no name and a different value in every row; it is used as id.")
    return found


def _match_columns(table: Table, features: Sequence[str], columns: Sequence[Column], messages: Messages) -> Matrix:
    """Convert the columns that a model was trained on to numbers; raise for those that are absent."""
    names = [column.name for column in columns]
    present, wanted = set(table.names), set(names)
    if absent := [name for name in names if name not in present]:
        raise CurvaeError(
            f"{table.path.name} has no columns {quoted(absent)}, which the model was trained on; add them"
        )
    if extra := [name for name in features if name not in wanted]:
        messages.note(f"columns that the model was not trained on are left out: {quoted(extra)}.")
    return table.numbers(columns, "the model was trained on numbers there", messages)
