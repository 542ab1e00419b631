"""Text files: their encoding, and how lines are split into fields. Tables and edge lists are both read through this."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from ..errors import CurvaeError
from .files import BROKEN_GZIP, open_file
from .messages import Messages, count, one_line

__all__ = [
    "BLANKS",
    "COMMA_NUMBER",
    "EXACT",
    "HEAD",
    "LONGEST",
    "MISSING",
    "NUMBER",
    "SEPARATORS",
    "TextFile",
    "check_cells",
    "check_widths",
    "has_decimal_commas",
    "scan",
    "sniff",
    "split",
]

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
