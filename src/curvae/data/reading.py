"""Reading text tables: encoding, separator, decimal mark and header are found out, not asked for."""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from ..errors import CurvaeError
from . import memory
from .dataset import feature_names
from .files import BROKEN_GZIP, is_packed, open_file
from .remarks import Remarks, count, one_line, quoted
from .spreadsheets import guard, is_embedding, unguard

__all__ = [
    "EXACT",
    "MISSING",
    "NUMBER",
    "UNNAMED",
    "TextFile",
    "check_cells",
    "long_cells",
    "name_columns",
    "read_text",
    "scan",
]

MISSING = frozenset({"", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-nan", "NULL", "null", "None", "<NA>"})
NUMBER = r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[iI]nf(?:inity)?)"
UNNAMED = "Unnamed: "  # and its place: what pandas calls a column without a name

_COMMA_NUMBER = r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?"
_COMMA_THOUSANDS = r"[+-]?\d{1,3},\d{3}"
_SEPARATORS = "\t;|,"  # the comma last: it may be a decimal mark or part of a text
_HEAD = 20  # lines from which the separator is told
_LONGEST = 2**17  # characters of a cell; a longer one is mostly a quote left open, with all that follows
# Until pandas 3.1 the default was exact only to the last digit but one.
EXACT: dict[str, Any] = (
    {} if tuple(map(int, pd.__version__.split(".")[:2])) >= (3, 1) else {"float_precision": "round_trip"}
)


@dataclass(frozen=True)
class TextFile:
    """A file of text, with its encoding and the number of its lines, or one more."""

    path: Path
    encoding: str
    lines: int

    def open(self, newline: str | None = "") -> IO[str]:
        return open_file(self.path, "rt", encoding=self.encoding, newline=newline)


def read_text(
    path: Path, known: Collection[str], texts: Collection[str], remarks: Remarks, first: bool = False
) -> pd.DataFrame:
    """A text table as a frame of numbers, booleans and texts.

    Arguments:
        path: of the file, which may be gzipped.
        known: columns that are asked for; a first line that holds one of them is a header.
        texts: columns to be read letter by letter.
        remarks: told what was found out.
        first: whether the first column is read letter by letter, whatever its name.
    """
    file = scan(path)
    if file.encoding == "latin-1":
        remarks.note("the file is not UTF-8 and was read as Latin-1.")
    with file.open() as stream:
        head = list(islice(filter(str.strip, stream), _HEAD))
    separator, records = _sniff(head)
    if not records:
        raise CurvaeError(f"{path.name} has no columns to be told apart; separate them by commas, semicolons or tabs")
    names, headed = _header(path, records, known, remarks)
    check_cells(path, pd.DataFrame([names], columns=names), "the header")
    blanks = _has_blanks(head, separator)
    if len(records) > 1 and len(records[1]) > len(names):  # of the first row alone pandas would drop the rest
        _check_widths(file, separator, blanks, len(names))
    # A frame of 8 bytes a cell, and the matrix made of it.
    memory.require(16 * file.lines * len(names), f"{path.name} ({file.lines:,} lines × {len(names):,} columns)")
    letters = {name for name in names if name in texts or name.startswith(UNNAMED)} | set(names[:1] if first else ())
    absent = sorted(MISSING)

    def read(decimal: str, blanks: bool) -> pd.DataFrame:
        return pd.read_csv(
            path,
            sep=separator,
            header=0 if headed else None,
            names=names,
            index_col=False,
            encoding=file.encoding,
            compression="gzip" if is_packed(path) else None,
            decimal=decimal,
            dtype=dict.fromkeys(letters, str),
            keep_default_na=False,  # a label may be called NA
            na_values={name: absent for name in names if name not in letters},
            low_memory=False,
            skipinitialspace=blanks,
            **EXACT,
        )

    def parse(decimal: str) -> pd.DataFrame:
        nonlocal blanks
        try:
            frame = read(decimal, blanks)
        except pd.errors.ParserError:
            if blanks:
                raise
            blanks = True  # further down they may stand before a quote
            frame = read(decimal, blanks)
        numbers = [name for name in names if name not in letters and not pd.api.types.is_numeric_dtype(frame[name])]
        if blanks or not any(bool(frame[name].astype(str).str.startswith(" ").any()) for name in numbers):
            return frame
        stripped = read(decimal, True)
        for name in letters:
            stripped[name] = frame[name]
        return stripped

    try:
        frame = parse(".")
        if separator != "," and _has_decimal_commas(frame, letters, separator):
            frame = parse(",")
            remarks.note("numbers were read with decimal commas.")
        check_cells(path, frame)
    except pd.errors.ParserError as error:
        _check_widths(file, separator, blanks, len(names))
        raise CurvaeError(f"{path.name} cannot be read as a table: {one_line(error)}; correct the file") from error
    last = frame[names[-1]]
    # A row that is too short looks like one whose last cells are missing.
    if bool(last.isna().any()) or bool((last == "").any()):
        _check_widths(file, separator, blanks, len(names))
    if is_embedding(names):
        for name in frame.select_dtypes(exclude="number"):
            frame[name] = frame[name].map(unguard, na_action="ignore")
    return frame


def scan(path: Path, wanted: str = "a table with a header and rows") -> TextFile:
    """Encoding and size, by one pass over the file that holds little of it in memory.

    Arguments:
        path: of the file, which may be gzipped.
        wanted: what to give in place of an empty file.
    """
    decoder: codecs.IncrementalDecoder
    encoding, chunk = "", b""
    newlines = returns = 0
    blank = True
    try:
        with open_file(path) as stream:
            while chunk or not encoding:
                chunk = stream.read(2**20)
                if not encoding:
                    utf16 = chunk.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
                    encoding = "utf-16" if utf16 else "utf-8-sig"
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
    except BROKEN_GZIP as error:
        raise CurvaeError(f"{path.name} is not a whole gzip file ({one_line(error)}); pack it again") from error
    if blank:
        raise CurvaeError(f"{path.name} is empty; give {wanted}")
    return TextFile(path, encoding, max(newlines, returns) + 1)


@contextmanager
def long_cells() -> Iterator[None]:
    """Let the csv module read cells of any length, for `check_cells` to say where one is too long."""
    limit = csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def check_cells(path: Path, frame: pd.DataFrame, row: str | None = None) -> None:
    """Raise for a cell that no one means to have; `row` is what to call its row."""
    for place, (name, dtype) in enumerate(frame.dtypes.items()):
        lengths = None if pd.api.types.is_numeric_dtype(dtype) else frame[name].astype(str).str.len().to_numpy()
        if lengths is not None and lengths.size and lengths.max() > _LONGEST:
            where = f"row {int(np.argmax(lengths > _LONGEST)) + 1}" if row is None else row
            column = repr(name) if isinstance(name, str) and len(name) < _LONGEST else place + 1
            raise CurvaeError(
                f"{path.name}: {where} has a cell of {lengths.max():,} characters in column {column}, and at most "
                f"{_LONGEST:,} are read; shorten it, or close a quote that is left open"
            )


def _records(lines: list[str], separator: str, skipinitialspace: bool = True) -> list[list[str]]:
    try:
        with long_cells():
            records = list(csv.reader(lines, delimiter=separator, skipinitialspace=skipinitialspace))
    except csv.Error:
        return []
    # The last of many lines may break off within quotes.
    return records[:-1] if len(lines) == _HEAD and len(records) > 2 else records


def _sniff(lines: list[str]) -> tuple[str, list[list[str]]]:
    """The separator with which all lines have one width, and the first records."""
    candidates = {separator: _records(lines, separator) for separator in _SEPARATORS}
    for separator, records in candidates.items():
        widths = [len(record) for record in records]
        # R writes no name for the column of row names.
        if len(widths) > 1 and widths[1] > 1 and len(set(widths[1:])) == 1 and widths[1] - widths[0] in (0, 1):
            return separator, records
    return max(candidates.items(), key=lambda item: len(item[1][0]) if item[1] else 0)


def _has_blanks(lines: list[str], separator: str) -> bool:
    """Whether blanks after separators belong to them: they follow each, or a quote follows them."""
    cells = [cell for record in _records(lines, separator, False) for cell in record[1:]]
    return bool(cells) and (all(cell.startswith(" ") for cell in cells) or any(re.match(' +"', cell) for cell in cells))


def _header(path: Path, records: list[list[str]], known: Collection[str], remarks: Remarks) -> tuple[list[str], bool]:
    """Names of the columns, and whether the first line holds them."""
    spellings = {guard(name): name for name in known}
    first = [cell if cell in known else spellings.get(cell, cell) for cell in map(str.strip, records[0])]
    second = records[1] if len(records) > 1 else first
    numbers = all(re.fullmatch(f"{NUMBER}|{_COMMA_NUMBER}", cell) for cell in first)
    counted = len(first) > 2 and first == [str(i) for i in range(len(first))]
    if numbers and counted:
        remarks.note("the first line counts from 0 and was taken as column names.")
    elif numbers and not set(first) & set(known):
        remarks.warn(
            "the first line holds only numbers and was taken as data, with columns named x1, x2, …; "
            "add a header if that is wrong."
        )
        return list(feature_names(len(first))), False
    if len(second) == len(first) + 1 and second[-1].strip():
        first = ["", *first]
    return name_columns(path, first), True


def name_columns(path: Path, cells: list[str]) -> list[str]:
    """Unique names from the cells of a header."""
    names = [" ".join(cell.splitlines()).strip() or f"{UNNAMED}{place}" for place, cell in enumerate(cells)]
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise CurvaeError(f"{path.name} has columns of the same name: {quoted(twice)}; rename them")
    return names


def _has_decimal_commas(frame: pd.DataFrame, letters: Collection[str], separator: str) -> bool:
    """Whether some column of texts is really one of numbers with decimal commas, not with commas at thousands."""
    for name, dtype in frame.dtypes.items():
        if name in letters or pd.api.types.is_numeric_dtype(dtype):
            continue
        cells = frame[name].dropna().astype(str).str.strip()
        commas = cells[cells.str.contains(",")]
        if len(commas) and bool(cells.str.fullmatch(f"{_COMMA_NUMBER}|{NUMBER}").all()):
            return separator == ";" or not bool(commas.str.fullmatch(_COMMA_THOUSANDS).all())
    return False


def _check_widths(file: TextFile, separator: str, blanks: bool, width: int) -> None:
    """Raise for the first line that has not as many fields as the table has columns."""
    with file.open() as stream, long_cells():
        reader = csv.reader(stream, delimiter=separator, skipinitialspace=blanks)
        try:
            records = (record for record in reader if "".join(record).strip() or len(record) > 1)  # no blank lines
            next(records)  # the header was looked at before
            for record in records:
                if len(record) != width:
                    raise CurvaeError(
                        f"{file.path.name}: line {reader.line_num} has {count(len(record), 'field')} where the table "
                        f"has {count(width, 'column')}; correct it, or put quotes around texts that hold {separator!r}"
                    )
        except csv.Error as error:
            raise CurvaeError(f"{file.path.name}: line {reader.line_num}: {error}; correct the line") from error
