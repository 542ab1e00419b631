"""Tables in text files: separator, decimal mark and header are detected, columns converted."""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..errors import CurvaeError
from . import memory
from .dataset import Column, feature_names, require_sums
from .files import (
    BROKEN_GZIP,
    Messages,
    count,
    guard,
    is_embedding,
    is_packed,
    listing,
    one_line,
    open_file,
    quoted,
    unguard,
)

__all__ = [
    "BLANKS",
    "COMMA_NUMBER",
    "EXACT",
    "HEAD",
    "LONGEST",
    "MISSING",
    "NUMBER",
    "SEPARATORS",
    "UNNAMED",
    "Head",
    "TextFile",
    "categories_of",
    "check_cells",
    "check_widths",
    "first_text",
    "has_decimal_commas",
    "in_order",
    "is_text",
    "name_columns",
    "numbers_of",
    "read_head",
    "read_text",
    "scan",
    "sniff",
    "split",
    "texts_of",
]


# Text files: their encoding, and how lines are split into fields. Tables and edge lists are both read through this.

MISSING = frozenset({"", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-nan", "NULL", "null", "None", "<NA>"})
NUMBER = r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[iI]nf(?:inity)?)"
COMMA_NUMBER = r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?"
SEPARATORS = ("\t", ";", "|", ",")  # the comma last: it may be a decimal mark or part of a text
BLANKS = r"\s+"  # the separator of fields that stand apart by blanks and tabs
HEAD = 50  # lines from which separator and header are detected
# Until pandas 3.1 the default was exact only to the last digit but one.
EXACT: dict[str, Any] = (
    {} if tuple(map(int, pd.__version__.split(".")[:2])) >= (3, 1) else {"float_precision": "round_trip"}
)

_COMMA_THOUSANDS = r"[+-]?\d{1,3},\d{3}"
LONGEST = 2**17  # characters of a cell; a longer one is usually an open quote and everything after it


@dataclass(frozen=True)
class TextFile:
    """A text file with its encoding, and how many lines (or one less) and quotes it has."""

    path: Path
    encoding: str
    lines: int
    quotes: int = 0

    def open(self, newline: str | None = "") -> IO[str]:
        return open_file(self.path, "rt", encoding=self.encoding, newline=newline)


def scan(path: Path, wanted: str = "a table with a header and rows", messages: Messages | None = None) -> TextFile:
    """Detect the encoding and count the lines, without holding the file in memory.

    Arguments:
        path: the file, which may be gzipped.
        wanted: what to give instead of an empty file, for the error.
        messages: takes a note if the encoding was guessed.
    """
    decoder: codecs.IncrementalDecoder
    encoding, chunk = "", b""
    newlines = returns = 0
    blank, quotes = True, 0
    try:
        with open_file(path) as stream:
            while chunk or not encoding:
                chunk = stream.read(2**20)
                if not encoding:
                    encoding = "utf-16" if chunk.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
                    decoder = codecs.getincrementaldecoder(encoding)()
                binary = b"\0" in chunk and encoding != "utf-16"
                if encoding != "latin-1":
                    try:
                        decoder.decode(chunk, final=not chunk)
                    except UnicodeDecodeError:
                        binary = binary or encoding == "utf-16"
                        encoding = "latin-1"
                if binary:
                    raise CurvaeError(f"{path.name} is not a text file; save it as CSV, or rename it after its format")
                newlines += chunk.count(b"\n")
                returns += chunk.count(b"\r")
                blank = blank and not chunk.strip()
                quotes += chunk.count(b'"')
    except BROKEN_GZIP as error:
        raise CurvaeError(f"{path.name} is not a complete gzip file ({one_line(error)}); pack it again") from error
    if blank:
        raise CurvaeError(f"{path.name} is empty; give {wanted}")
    if messages is not None and encoding == "latin-1":
        messages.note("the file is not UTF-8 and was read as Latin-1.")
    return TextFile(path, encoding, max(newlines, returns) + 1, quotes)


@contextmanager
def _long_cells() -> Iterator[None]:
    """Let the csv module read cells of any length, so that `check_cells` can say where one is too long."""
    limit = csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _reader(lines: Iterable[str], separator: str, blanks: bool) -> Any:
    """A csv reader; `blanks` says whether blanks after a separator belong to it."""
    if separator == BLANKS:
        lines, separator = (re.sub(r"[ \t]+", " ", line.strip()) for line in lines), " "
    return csv.reader(lines, delimiter=separator, skipinitialspace=blanks)


def split(lines: Sequence[str], separator: str, blanks: bool = True) -> list[list[str]]:
    """Split the first lines of a file into fields; the result is empty if that is impossible.

    Arguments:
        lines: at most `HEAD`.
        separator: one character, or `BLANKS`.
        blanks: whether to remove blanks around fields.
    """
    try:
        with _long_cells():
            records = list(_reader(lines, separator, blanks))
    except csv.Error:
        return []
    # The last of many lines may break off within quotes.
    records = records[:-1] if len(lines) == HEAD and len(records) > 2 else records
    return [[cell.strip() for cell in record] for record in records] if blanks else records


def sniff(
    lines: Sequence[str], separators: Sequence[str] = SEPARATORS, short_header: bool = False
) -> tuple[str, list[list[str]]]:
    """Find the separator that splits all lines into equally many fields, and those fields.

    Without such a separator the result is the one that splits most lines.

    Arguments:
        lines: the first of a file, at most `HEAD`.
        separators: candidates, the preferred first.
        short_header: whether the first line may have one field less: R writes no name for the column of row names.

    Example:
        >>> sniff(["a;b", "1;2,5"])
        (';', [['a', 'b'], ['1', '2,5']])
    """

    def fit(records: Sequence[Sequence[str]]) -> tuple[int, ...]:
        widths = [len(record) for record in records] or [0]
        equal = len({*widths[1:]}) < 2 and widths[-1] - widths[0] in (0, int(short_header))
        return (1,) if equal and widths[-1] > 1 else (0, sum(width > 1 for width in widths), widths[0])

    candidates = ((separator, split(lines, separator)) for separator in separators)
    return max(candidates, key=lambda candidate: fit(candidate[1]))


def has_decimal_commas(cells: Any, separator: str) -> bool:
    """Whether a series of texts holds numbers with decimal commas, and not with commas at thousands."""
    cells = cells[~cells.isin(MISSING)].str.strip()
    commas = cells[cells.str.contains(",")]
    if separator == "," or not len(commas) or not bool(cells.str.fullmatch(f"{COMMA_NUMBER}|{NUMBER}").all()):
        return False
    return separator == ";" or not bool(commas.str.fullmatch(_COMMA_THOUSANDS).all())


def check_widths(
    file: TextFile,
    separator: str,
    width: int,
    blanks: bool = True,
    prepare: Callable[[IO[str]], Iterable[str]] = iter,
) -> None:
    """Raise for the first line below the header that does not have `width` fields; blank lines are skipped.

    Arguments:
        file: to read once more.
        separator: one character, or `BLANKS`.
        width: number of fields that a line must have.
        blanks: whether blanks after a separator belong to it.
        prepare: turns the lines of the file into the lines to check, as many.
    """
    name, seen = file.path.name, False
    with file.open() as stream, _long_cells():
        reader = _reader(prepare(stream), separator, blanks)
        try:
            for record in reader:
                if len(record) < 2 and not "".join(record).strip():
                    continue
                if seen and len(record) != width:
                    mark = "blanks" if separator == BLANKS else repr(separator)
                    raise CurvaeError(
                        f"{name}: line {reader.line_num} has {count(len(record), 'field')} instead of {width}; "
                        f"correct it, or put quotes around texts that contain {mark}"
                    )
                seen = True
        except csv.Error as error:
            raise CurvaeError(f"{name}: line {reader.line_num}: {error}; correct the line") from error


def check_cells(path: Path, frame: pd.DataFrame, row: str | None = None) -> None:
    """Raise for a cell that is too long to be meant; `row` is what to call its row."""
    for place, (name, dtype) in enumerate(frame.dtypes.items()):
        lengths = None if pd.api.types.is_numeric_dtype(dtype) else frame[name].astype(str).str.len().to_numpy()
        if lengths is not None and lengths.size and lengths.max() > LONGEST:
            where = f"row {int(np.argmax(lengths > LONGEST)) + 1}" if row is None else row
            column = repr(name) if isinstance(name, str) and len(name) < LONGEST else place + 1
            raise CurvaeError(
                f"{path.name}: {where} has a cell of {lengths.max():,} characters in column {column}, and at most "
                f"{LONGEST:,} are read; shorten it, or close an open quote"
            )


UNNAMED = "Unnamed: "  # and its place: what pandas calls a column without a name


def read_text(
    path: Path, known: Collection[str], texts: Collection[str], messages: Messages, first: bool = False
) -> pd.DataFrame:
    """Read a text table as a frame of numbers, booleans and texts.

    Arguments:
        path: the file, which may be gzipped.
        known: column names that the caller asks for; a first line that contains one of them is a header.
        texts: columns that stay text, character by character.
        messages: takes notes about what was detected.
        first: whether the first column stays text, whatever its name.
    """
    file = scan(path, messages=messages)
    head, separator, records, names, headed = read_head(file, known, messages)
    cells = [cell for record in split(head, separator, blanks=False) for cell in record[1:]]
    # Blanks after separators belong to these if they follow each, or if a quote follows them.
    spaced = bool(cells) and all(cell.startswith(" ") for cell in cells)
    blanks = spaced or any(re.match(' +"', cell) for cell in cells)
    if len(records) > 1 and len(records[1]) > len(names):  # pandas would silently drop the rest of the first row
        check_widths(file, separator, len(names), blanks)
    # A frame of 8 bytes a cell, and the matrix made of it.
    memory.require(16 * file.lines * len(names), f"{path.name} ({file.lines:,} lines × {len(names):,} columns)")
    letters = {name for name in names if name in texts or name.startswith(UNNAMED)} | set(names[:1] if first else ())
    table = _Table(file, separator, names, headed, letters, blanks)
    try:
        frame = table.parse(".")
        if any(has_decimal_commas(frame[name].dropna().astype(str), separator) for name in table.not_numeric(frame)):
            frame = table.parse(",")
            messages.note("numbers were read with decimal commas.")
        check_cells(path, frame)
    except pd.errors.ParserError as error:
        check_widths(file, separator, len(names), table.blanks)
        raise CurvaeError(f"{path.name} cannot be read as a table: {one_line(error)}; correct the file") from error
    last = frame[names[-1]]
    # A row that is too short looks like one whose last cells are missing.
    if bool((last.isna() | (last == "")).any()):
        check_widths(file, separator, len(names), table.blanks)
    if is_embedding(names):
        for name in frame.select_dtypes(exclude="number"):
            frame[name] = frame[name].map(unguard, na_action="ignore")
    return frame


class Head(NamedTuple):
    """The first lines of a text table, and what they tell.

    Arguments:
        lines: as they are.
        separator: between fields.
        records: the lines in fields.
        names: of the columns.
        headed: whether the first line holds these names.
    """

    lines: list[str]
    separator: str
    records: list[list[str]]
    names: list[str]
    headed: bool


def read_head(file: TextFile, known: Collection[str], messages: Messages) -> Head:
    """Find separator and header of a text table; `known` and `messages` as of `read_text`."""
    path = file.path
    with file.open() as stream:
        lines = list(islice(filter(str.strip, stream), HEAD))
    separator, records = sniff(lines, short_header=True)
    if not records:
        raise CurvaeError(f"{path.name} has no separate columns; separate them by commas, semicolons or tabs")
    names, headed = _header(path, records, known, messages)
    check_cells(path, pd.DataFrame([names], columns=names), "the header")
    return Head(lines, separator, records, names, headed)


@dataclass
class _Table:
    """How the lines of a file are read; `parse` sets `blanks` if it must.

    Arguments:
        file: the file.
        separator: between fields.
        names: names of the columns.
        headed: whether the first line is a header.
        letters: columns that stay text.
        blanks: whether blanks after a separator belong to it.
    """

    file: TextFile
    separator: str
    names: list[str]
    headed: bool
    letters: set[str]
    blanks: bool

    def not_numeric(self, frame: pd.DataFrame) -> list[str]:
        """Columns that were read as text although they may be numbers."""
        texts = [name for name in self.names if name not in self.letters]
        return [name for name in texts if not pd.api.types.is_numeric_dtype(frame[name])]

    def parse(self, decimal: str) -> pd.DataFrame:
        """Read the file with this decimal mark."""
        try:
            frame = self._read(decimal, self.blanks)
        except pd.errors.ParserError:
            if self.blanks:
                raise
            self.blanks = True  # a quote further down may follow blanks
            frame = self._read(decimal, True)
        texts = (frame[name].astype(str) for name in self.not_numeric(frame))
        if self.blanks or not any(bool(cells.str.startswith(" ").any()) for cells in texts):
            return frame
        stripped = self._read(decimal, True)
        for name in self.letters:
            stripped[name] = frame[name]
        return stripped

    def _read(self, decimal: str, blanks: bool) -> pd.DataFrame:
        absent = sorted(MISSING)
        return pd.read_csv(
            self.file.path,
            sep=self.separator,
            header=0 if self.headed else None,
            names=self.names,
            index_col=False,
            encoding=self.file.encoding,
            compression="gzip" if is_packed(self.file.path) else None,
            decimal=decimal,
            dtype=dict.fromkeys(self.letters, str),
            keep_default_na=False,  # a label may be called NA
            na_values={name: absent for name in self.names if name not in self.letters},
            low_memory=False,
            skipinitialspace=blanks,
            **EXACT,
        )


def _header(path: Path, records: list[list[str]], known: Collection[str], messages: Messages) -> tuple[list[str], bool]:
    """Find the column names, and whether the first line is a header."""
    spellings = {guard(name): name for name in known}
    first = [cell if cell in known else spellings.get(cell, cell) for cell in records[0]]
    second = records[1] if len(records) > 1 else first
    numbers = all(re.fullmatch(f"{NUMBER}|{COMMA_NUMBER}", cell) for cell in first)
    if len(first) > 2 and first == [str(i) for i in range(len(first))]:
        messages.note("the first line counts from 0 and was taken as column names.")
    elif numbers and not set(first) & set(known):
        messages.warn(
            "the first line holds only numbers and was taken as data, with columns named x1, x2, …; "
            "add a header if that is wrong."
        )
        return list(feature_names(len(first))), False
    if len(second) == len(first) + 1 and second[-1]:
        first = ["", *first]
    return name_columns(path, first), True


def name_columns(path: Path, cells: list[str]) -> list[str]:
    """Make column names from the cells of a header; raise if two are equal."""
    names = [" ".join(cell.splitlines()).strip() or f"{UNNAMED}{place}" for place, cell in enumerate(cells)]
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise CurvaeError(f"{path.name} has columns of the same name: {quoted(twice)}; rename them")
    return names


# Convert the cells of table columns to numbers, categories and texts.

_EXACT_INTEGERS = 2.0**53


def categories_of(values: Any) -> tuple[str, ...]:
    """List the categories of a column: numbers in ascending order, then texts in alphabetical order.

    Example:
        >>> categories_of(pd.Series(["b", "10", "9", "a", "NA"]))
        ('9', '10', 'a', 'b')
    """
    return in_order(texts_of(values, strip=True).tolist())


def in_order(texts: Iterable[str]) -> tuple[str, ...]:
    """The categories among these texts: numbers in ascending order, then texts in alphabetical order."""
    return tuple(sorted(set(texts) - MISSING, key=_natural))


def _natural(text: str) -> tuple[float, str]:
    try:
        return float(text), text
    except ValueError:
        return float("inf"), text


def numbers_of(
    path: Path, frame: pd.DataFrame, columns: tuple[Column, ...], fix: str, messages: Messages, first: int = 0
) -> NDArray[np.float64]:
    """Convert the columns of a table to numbers, (rows, columns).

    A category becomes its position in the list of categories, a missing value NaN.

    Arguments:
        path: the table, for messages.
        frame: the columns to convert.
        columns: their descriptions, in the same order.
        fix: what to do about a column of texts, for the error; {0} stands for its name.
        messages: takes notes about what was converted.
        first: rows of the table before those of the frame, for messages.
    """
    converted: dict[str, Any] = {}
    booleans: list[str] = []
    texts: dict[str, str] = {}
    large: list[str] = []
    for column, dtype in zip(columns, frame.dtypes, strict=True):
        name, truths = column.name, pd.api.types.is_bool_dtype(dtype)
        values: Any = frame[name]
        if column.categories is not None:
            converted[name] = _codes(path, values, column)
            continue
        if not pd.api.types.is_numeric_dtype(dtype):
            values, offender, truths = _from_texts(values, first)
            if offender is not None:
                texts[name] = offender
                continue
            converted[name] = values
        if truths:
            booleans.append(name)
        elif not pd.api.types.is_float_dtype(dtype) and bool((np.abs(values) >= _EXACT_INTEGERS).any()):
            large.append(name)
    if texts:
        one = json.dumps(next(iter(texts)), ensure_ascii=False)
        listed = listing(f"{name!r} ({offender})" for name, offender in texts.items())
        raise CurvaeError(f"{path.name} has text in column {listed}; {fix.format(one)}")
    _report(booleans, large, messages)
    if converted:
        frame = frame.copy(deep=False)
        for name, values in converted.items():
            frame[name] = values
    x = np.ascontiguousarray(frame.to_numpy(dtype=np.float64, na_value=np.nan))
    require_sums(x, columns, path.name)
    return x


def _report(booleans: Sequence[str], large: Sequence[str], messages: Messages) -> None:
    if booleans:
        messages.note(f"true and false became 1 and 0: {quoted(booleans)}.")
    if large:
        messages.warn(
            f"integers of 2^53 and more lose digits as numbers: {quoted(large)}; use id=… if they identify rows."
        )


def _codes(path: Path, values: Any, column: Column) -> NDArray[np.float64]:
    assert column.categories is not None
    codes, distinct = pd.factorize(values)
    texts = texts_of(pd.Series(distinct), strip=True).tolist()
    places = {category: float(place) for place, category in enumerate(column.categories)}
    # In a table of samples, texts that look like formulas are guarded.
    known = {guard(category): place for category, place in places.items()} | places
    if pd.api.types.is_float_dtype(values.dtype):  # whole numbers have a point where others beside them have digits
        known = {category.removesuffix(".0"): place for category, place in places.items()} | known
    if unseen := sorted({text for text in texts if text not in known} - MISSING):
        raise CurvaeError(
            f"column {column.name!r} of {path.name} holds categories that the model was not trained on: "
            f"{quoted(unseen)}; it knows {quoted(column.categories)}"
        )
    return np.array([*(known.get(text, np.nan) for text in texts), np.nan])[codes]  # -1 is a missing one


def is_text(values: Any) -> bool:
    """Whether a column has a cell that is not a number; a categorical column of pandas always counts as text.

    Example:
        >>> is_text(pd.Series(["1", "2", "NA"])), is_text(pd.Series(["1", "2", "b"]))
        (False, True)
    """
    return isinstance(values.dtype, pd.CategoricalDtype) or first_text(values) is not None


def first_text(values: Any) -> str | None:
    """The first cell of a column that is not a number, and its row; None if all are numbers or missing."""
    return None if pd.api.types.is_numeric_dtype(values.dtype) else _from_texts(values)[1]


def _from_texts(values: Any, first: int = 0) -> tuple[NDArray[np.float64], str | None, bool]:
    """Convert texts to numbers; also return the first cell that is not a number, and whether all are true or false."""
    texts = pd.Series(texts_of(values, strip=True), dtype=object)
    absent = texts.isin(list(MISSING)).to_numpy()
    lowered = texts.str.lower()
    if not absent.all() and bool((lowered.isin(["true", "false"]) | absent).all()):
        return np.where(absent, np.nan, lowered == "true"), None, True
    if (wrong := ~(texts.str.fullmatch(NUMBER).to_numpy(bool) | absent)).any():
        row = int(np.argmax(wrong))
        return np.empty(0), f"{texts[row][:40]!r} in row {first + row + 1}", False
    return np.where(absent, "nan", texts.to_numpy(np.str_)).astype(np.float64), None, False


def texts_of(values: Any, strip: bool = False) -> NDArray[np.str_]:
    """Convert cells to text as a person would type them: whole numbers without a point, "" for a missing value.

    Arguments:
        values: a pandas series.
        strip: whether to remove blanks around each text.
    """
    absent = values.isna().to_numpy()
    whole = pd.api.types.is_float_dtype(values.dtype) and bool((values.dropna() % 1 == 0).all())
    texts = ["" if gone else str(int(v) if whole else v) for gone, v in zip(absent, values.astype(object), strict=True)]
    return np.array([text.strip() for text in texts] if strip else texts, dtype=np.str_)
