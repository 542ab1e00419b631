"""Files: found and opened, fetched, and read as tables of text; what is said about them.

The separator, decimal marks, header and missing values of a table of text are found out from it.
"""

from __future__ import annotations

import codecs
import csv
import difflib
import errno
import gzip
import os
import re
import stat
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..errors import CurvaeError, check, require
from ..settings.factors import NAME
from . import memory

__all__ = [
    "BLANKS",
    "BROKEN_GZIP",
    "COMMA_NUMBER",
    "EXACT",
    "HEAD",
    "LONGEST",
    "MISSING",
    "NUMBER",
    "SEPARATORS",
    "UNNAMED",
    "Messages",
    "NumberFacts",
    "ReadAgainError",
    "TextFile",
    "TextTable",
    "check_cells",
    "check_widths",
    "count",
    "decimal",
    "feature_names",
    "fetch",
    "guard",
    "has_decimal_commas",
    "is_embedding",
    "listing",
    "name_columns",
    "not_found",
    "numbers_from_texts",
    "one_line",
    "open_file",
    "opened_parquet",
    "parquet_batches",
    "places",
    "quoted",
    "read_text",
    "reading",
    "refuse_dangling",
    "require_file",
    "scan",
    "sniff",
    "split",
    "suggest_path",
    "texts_of",
    "unguard",
]

# Notes and warnings about data while it is read, and helpers to write them.


@dataclass
class Messages:
    """Sentences about data: `notes` say what was done, `warnings` what looks wrong and how to fix it."""

    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)

    def warn(self, sentence: str) -> None:
        self.warnings.append(sentence)


def listing(items: Iterable[str], limit: int = 5) -> str:
    """List the first items in one line and count the rest.

    Example:
        >>> listing(["a", "b", "c"], limit=2)
        'a, b and 1 more'
    """
    items = list(items)
    rest = len(items) - limit
    return ", ".join(items[:limit]) + (f" and {rest} more" if rest > 0 else "")


def quoted(names: Iterable[str]) -> str:
    """List the first names in quotes, always on one line, and count the rest."""
    return listing([repr(str(name)) for name in names])


def decimal(number: float, places: int = 2) -> str:
    """Write a number for people: with a minus sign, which is longer than a hyphen, and zero without a sign.

    Example:
        >>> decimal(-6.5), decimal(-0.001), decimal(0.25, 1)
        ('−6.50', '0.00', '0.2')
    """
    text = f"{number:.{places}f}"
    return text.replace("-", "−") if float(text) else text.removeprefix("-")


def one_line(error: BaseException) -> str:
    """Return the message of an exception without line breaks."""
    return " ".join(str(error).split())


def count(number: int, thing: str) -> str:
    """Write a number with its noun in singular or plural.

    Example:
        >>> count(1, "row"), count(2, "row")
        ('1 row', '2 rows')
    """
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


BROKEN_GZIP = (gzip.BadGzipFile, EOFError, zlib.error)  # what reading a broken gzip file raises


# What a path may lead to instead of a file; reading some of these never ends.
_OTHERS = {
    stat.S_IFDIR: "a folder; give a file",
    stat.S_IFIFO: "a pipe; save what comes through it as a file and give that",
    stat.S_IFSOCK: "a socket; give a file",
    stat.S_IFCHR: "a device; give a file",
    stat.S_IFBLK: "a device; give a file",
}


def refuse_dangling(path: Path) -> None:
    """Raise for a symbolic link that leads nowhere: to something that does not exist, or back to itself."""
    if not path.is_symlink() or path.exists():
        return
    try:
        path.stat()
    except OSError as error:
        what = "a loop of symbolic links" if error.errno == errno.ELOOP else f"a dangling link to {path.readlink()}"
        raise CurvaeError(f"{path} is {what}; fix the link, or give another path") from error


def require_file(path: Path, what: str = "") -> None:
    """Raise unless a path leads to a regular file.

    Where nothing is, the error says that there is no `what`. Without that a path that does not exist raises
    `FileNotFoundError`, so that the caller can say what is expected there.
    """
    refuse_dangling(path)
    check(not what or path.exists(), f"there is no {what} {path}; check the name")
    if (other := _OTHERS.get(stat.S_IFMT(path.stat().st_mode))) is not None:
        raise CurvaeError(f"{path} is {other}")


def not_found(path: Path, known: Iterable[str], others: str) -> CurvaeError:
    """Make the error about a file that does not exist, with names like its own: of files beside it, and known ones.

    `others` says what else can be given; it begins with a small letter.
    """
    return CurvaeError(f"there is no file {path}; {suggest_path(path, others, known)}")


def suggest_path(path: Path, others: str, known: Iterable[str] = ()) -> str:
    """Say what to do about a path that leads nowhere: names like its own, if there are some, and then the `others`."""
    try:
        beside = [file.name for file in path.parent.iterdir()]
    except OSError:
        beside = []
    near = difflib.get_close_matches(path.name, [*beside, *known])
    return f"did you mean {quoted(near)}? {others[0].upper()}{others[1:]}" if near else others


@contextmanager
def open_file(path: Path, mode: str = "rb", **options: Any) -> Iterator[IO[Any]]:
    """Open a file for reading; decompress it if its name ends in .gz, and raise if it was packed incompletely."""
    require_file(path)
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opener(path, mode, **options) as stream:
            yield stream
    except BROKEN_GZIP as error:
        raise CurvaeError(
            f"{path.name} cannot be read: not a complete gzip file ({one_line(error)}); pack it again"
        ) from error


@contextmanager
def reading(name: str, what: str, *errors: type[Exception], fix: str = "save it again") -> Iterator[None]:
    """Turn the errors of whatever reads a file into ours.

    Arguments:
        name: name of the file in messages.
        what: what it should be.
        errors: those that a broken file can raise.
        fix: what to do about the file.
    """
    try:
        yield
    except CurvaeError:
        raise
    except errors as error:
        raise CurvaeError(f"{name} cannot be read as {what}: {one_line(error)}; {fix}") from error


@contextmanager
def opened_parquet(path: Path, **how: Any) -> Iterator[Any]:
    """Open a `pyarrow.parquet.ParquetFile`, which takes further arguments, and turn its errors into ours."""
    arrow = require("pyarrow", f"{path.name} needs pyarrow to be read", "parquet")
    errors = reading(path.name, "Parquet", arrow.ArrowException, OSError, fix="write it again")
    try:
        with errors, arrow.parquet.ParquetFile(path, **how) as file:
            yield file
    finally:
        arrow.default_memory_pool().release_unused()  # what Arrow would keep for the next file


def parquet_batches(file: Any, rows: int, columns: list[str] | None = None) -> Iterator[Any]:
    """Read batches of so many rows from an opened Parquet file, one row group after the other.

    Asked for all row groups at once, Arrow would keep in memory what it read of each.
    """
    for group in range(file.num_row_groups):
        yield from file.iter_batches(rows, row_groups=[group], columns=columns, use_threads=False)


def places(name: str) -> list[Path]:
    """List the folders in which to look for a data set: under CURVAE_DATA, then in the user's cache."""
    data, cache = os.environ.get("CURVAE_DATA"), os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return [*([Path(data, name)] if data else []), Path(cache, "curvae", name)]


def fetch(name: str, address: str, checksums: Mapping[str, str], what: str | None = None) -> Path:
    """Download the files of a data set into the user's cache, where `places` finds them.

    Arguments:
        name: name of the folder.
        address: URL to which the names of the files are appended.
        checksums: SHA-256 of each file, by name.
        what: name of the data set in messages; by default that of the folder.
    """
    what = what or name
    folder = places(name)[-1]
    pooch = require(
        "pooch", f"{what} is neither in CURVAE_DATA nor in {folder.parent} and needs pooch to be downloaded"
    )
    try:
        for file, checksum in checksums.items():
            pooch.retrieve(address + file, known_hash=f"sha256:{checksum}", fname=file, path=folder)
    except (OSError, ValueError) as error:
        raise CurvaeError(
            f"{what} could not be downloaded from {address} ({one_line(error)}); put {listing(checksums)} into a "
            f"folder {name!r} and set CURVAE_DATA to the folder that holds it"
        ) from error
    return folder


# Guard texts in CSV files that a spreadsheet would run as formulas, by an apostrophe in front.
#
# A text is guarded if it starts like a formula, possibly after apostrophes. Writing adds one apostrophe and reading
# removes one, so that every text comes back unchanged. Numbers such as −1 are not formulas and stay as they are.

_FORMULA = re.compile(
    r"(?!'*\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*\Z)"  # not a number
    r"'*(?:[\t\r\n]|\s*[=+\-@])"
)


def guard(text: str) -> str:
    """Write a text for a CSV file.

    Example:
        >>> [guard(text) for text in ("=1+1", "'=1+1", "-1.5", "T cell")]
        ["'=1+1", "''=1+1", '-1.5', 'T cell']
    """
    return f"'{text}" if _FORMULA.match(text) else text


def unguard(text: str) -> str:
    """Read a text that `guard` wrote."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def is_embedding(names: Sequence[str]) -> bool:
    """Return whether these are the columns of an `embedding.csv`, in which texts are guarded."""
    last = re.fullmatch(rf"({NAME}_)?(sigma|map_2)|spread", names[-1])
    return last is not None and {"tangent_1", "radius"} <= set(names) and list(names[:3]) == ["id", "label", "split"]


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

LONGEST = 2**17  # characters of a cell; a longer one is usually an open quote and everything after it


@dataclass(frozen=True)
class TextFile:
    """A text file with its encoding, and how many lines (or one less) and quotes it has."""

    path: Path
    encoding: str
    lines: int
    quotes: int = 0

    def open(self, newline: str | None = "") -> AbstractContextManager[IO[str]]:
        return open_file(self.path, "rt", encoding=self.encoding, newline=newline)


def scan(path: Path, wanted: str = "a table with a header and rows", messages: Messages | None = None) -> TextFile:
    """Detect the encoding and count the lines, without holding the file in memory.

    Arguments:
        path: the file, which may be gzipped.
        wanted: what to give instead of an empty file, for the error.
        messages: takes a note if the encoding was guessed.
    """
    with open_file(path) as stream:
        marked = stream.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    for encoding in ["utf-16"] if marked else ["utf-8-sig", "latin-1"]:
        marks = dict.fromkeys('\n\r"', 0)
        blank = text = True
        with suppress(UnicodeDecodeError), open_file(path, "rt", encoding=encoding, newline="") as stream:
            while text and (chunk := stream.read(2**20)):
                text = "\0" not in chunk
                marks = {mark: times + chunk.count(mark) for mark, times in marks.items()}
                blank = blank and not chunk.strip()
            break
    else:
        text = False
    check(text, f"{path.name} is not a text file; save it as CSV, or rename it after its format")
    check(not blank, f"{path.name} is empty; give {wanted}")
    if messages is not None and encoding == "latin-1":
        messages.note("the file is not UTF-8 and was read as Latin-1.")
    return TextFile(path, encoding, max(marks["\n"], marks["\r"]) + 1, marks['"'])


@contextmanager
def _long_cells() -> Iterator[None]:
    """Let the csv module read cells of any length, so that `check_cells` can say where one is too long."""
    limit = csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _reader(lines: Iterable[str], separator: str, blanks: bool) -> Any:
    """Make a csv reader; `blanks` says whether blanks after a separator belong to it."""
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
    """Return whether a series of texts holds numbers with decimal commas, and not with commas at thousands."""
    cells = cells[~cells.isin(MISSING)].str.strip()
    commas = cells[cells.str.contains(",")]
    if separator == "," or not len(commas) or not bool(cells.str.fullmatch(f"{COMMA_NUMBER}|{NUMBER}").all()):
        return False
    return separator == ";" or not bool(commas.str.fullmatch(r"[+-]?\d{1,3},\d{3}").all())


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


class ReadAgainError(Exception):
    """What was assumed about a table is wrong, which is known now: read it again from its start."""


class TextTable:
    """A text table: what its first lines tell, and its rows, all at once or some at a time.

    Arguments:
        path: the file, which may be gzipped.
        known: column names that the caller asks for; a first line that contains one of them is a header.
        texts: columns that stay text, character by character.
        messages: takes notes about what was detected.
        first: whether the first column stays text, whatever its name.

    Attributes:
        names: of the columns.
        texts: columns that stay text, those without a name among them.
        rows: how many it has, or some more: the lines of the file.
        parts: its files.
    """

    def __init__(
        self, path: Path, known: Collection[str], texts: Collection[str], messages: Messages, first: bool = False
    ) -> None:
        self.path, self.parts, self._messages = path, [path], messages
        self._file = scan(path, messages=messages)
        self.rows = self._file.lines
        with self._file.open() as stream:
            head = list(islice(filter(str.strip, stream), HEAD))
        self._separator, records = sniff(head, short_header=True)
        check(records, f"{path.name} has no separate columns; separate them by commas, semicolons or tabs")
        self.names, self._headed = _header(path, records, known, messages)
        check_cells(path, pd.DataFrame([self.names], columns=self.names), "the header")
        cells = [cell for record in split(head, self._separator, blanks=False) for cell in record[1:]]
        # Blanks after separators belong to these if they follow each, or if a quote follows them.
        spaced = bool(cells) and all(cell.startswith(" ") for cell in cells)
        self._blanks = spaced or any(re.match(' +"', cell) for cell in cells)
        self._decimal, self._texts_keep_blanks = ".", False
        if len(records) > 1 and len(records[1]) > len(self.names):  # pandas would silently drop the rest of the row
            self._check_widths()
        self.texts = {name for name in self.names if name in texts or name.startswith(UNNAMED)}
        self.texts |= set(self.names[:1] if first else ())

    def pieces(self, cells: int = sys.maxsize) -> Iterator[tuple[str, int, pd.DataFrame]]:
        """Yield the table in pieces of so many cells, or as one piece.

        Before each stand the name of its file, which is "" where there is only one, and the number of its first row.

        Raises `ReadAgainError` where a piece shows that numbers have decimal commas, or that blanks belong to
        separators.
        """
        short, first = False, 0
        try:
            for frame in self._parse(min(self.rows, max(1, cells // len(self.names)))):
                self._require_format(frame)
                check_cells(self.path, frame)
                last = frame[self.names[-1]]
                short = short or bool((last.isna() | (last == "")).any())
                if is_embedding(self.names):
                    for name in frame.select_dtypes(exclude="number"):
                        frame[name] = frame[name].map(unguard, na_action="ignore")
                yield "", first, frame
                first += len(frame)
        except pd.errors.ParserError as error:
            if not self._blanks:
                self._blanks = True  # a quote further down may follow blanks
                raise ReadAgainError from error
            self._check_widths()
            raise CurvaeError(
                f"{self.path.name} cannot be read as a table: {one_line(error)}; correct the file"
            ) from error
        if short:  # a row that is too short looks like one whose last cells are missing
            self._check_widths()

    def _parse(self, rows: int) -> Iterator[pd.DataFrame]:
        read: Any = partial(
            pd.read_csv,
            self.path,
            sep=self._separator,
            decimal=self._decimal,
            header=0 if self._headed else None,
            names=self.names,
            index_col=False,
            encoding=self._file.encoding,
            dtype=dict.fromkeys(self.texts, str),
            keep_default_na=False,  # a label may be called NA
            na_values={name: sorted(MISSING) for name in self.names if name not in self.texts},
            low_memory=False,
            chunksize=rows,
            **EXACT,
        )
        with ExitStack() as opened:
            frames = opened.enter_context(read(skipinitialspace=self._blanks))
            if not (self._texts_keep_blanks and self.texts):
                yield from frames
                return
            texts = opened.enter_context(read(usecols=sorted(self.texts)))
            for frame, kept in zip(frames, texts, strict=True):
                frame[list(self.texts)] = kept[list(self.texts)]
                yield frame

    def _require_format(self, frame: pd.DataFrame) -> None:
        """Raise `ReadAgainError` if the cells of a piece show that it was read with the wrong format."""
        others: list[Any] = [
            cells.dropna().astype(str)
            for name, cells in frame.items()
            if name not in self.texts and not pd.api.types.is_numeric_dtype(cells.dtype)
        ]
        if not self._blanks and any(bool(cells.str.startswith(" ").any()) for cells in others):
            self._blanks = self._texts_keep_blanks = True
            raise ReadAgainError
        if self._decimal == "." and any(has_decimal_commas(cells, self._separator) for cells in others):
            self._decimal = ","
            self._messages.note("numbers were read with decimal commas.")
            raise ReadAgainError

    def _check_widths(self) -> None:
        check_widths(self._file, self._separator, len(self.names), self._blanks)


def read_text(
    path: Path, known: Collection[str], texts: Collection[str], messages: Messages, first: bool = False
) -> pd.DataFrame:
    """Read a text table as a frame of numbers, booleans and texts; see `TextTable` for the arguments."""
    table = TextTable(path, known, texts, messages, first)
    # A frame of 8 bytes a cell, and the matrix made of it.
    memory.require(
        16 * table.rows * len(table.names), f"{path.name} ({table.rows:,} lines × {len(table.names):,} columns)"
    )
    while True:
        with suppress(ReadAgainError):
            frames = [frame for *_, frame in table.pieces()]
            return frames[0] if frames else pd.DataFrame(columns=table.names)


def _header(path: Path, records: list[list[str]], known: Collection[str], messages: Messages) -> tuple[list[str], bool]:
    """Find the column names, and whether the first line is a header."""
    spellings = {guard(name): name for name in known}
    first = [cell if cell in known else spellings.get(cell, cell) for cell in records[0]]
    second = records[1] if len(records) > 1 else first
    if len(first) > 2 and first == [str(i) for i in range(len(first))]:
        messages.note("the first line counts from 0 and was taken as column names.")
    elif not set(first) & set(known) and all(re.fullmatch(f"{NUMBER}|{COMMA_NUMBER}", cell) for cell in first):
        messages.warn(
            "the first line holds only numbers and was taken as data, with columns named x1, x2, …; "
            "add a header if that is wrong."
        )
        return list(feature_names(len(first))), False
    if len(second) == len(first) + 1 and second[-1]:
        first = ["", *first]
    return name_columns(path, first), True


def feature_names(width: int) -> tuple[str, ...]:
    """Name features that have no names: x1, x2, …"""
    return tuple(f"x{i}" for i in range(1, width + 1))


def name_columns(path: Path, cells: list[str]) -> list[str]:
    """Make column names from the cells of a header; raise if two are equal."""
    names = [" ".join(cell.splitlines()).strip() or f"{UNNAMED}{place}" for place, cell in enumerate(cells)]
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise CurvaeError(f"{path.name} has columns of the same name: {quoted(twice)}; rename them")
    return names


# Convert the cells of table columns to numbers, categories and texts.


@dataclass
class NumberFacts:
    """What to say about columns that were converted to numbers.

    Attributes:
        booleans: columns that hold true and false.
        large: columns of integers that lose digits as numbers.
    """

    booleans: list[str] = field(default_factory=list)
    large: list[str] = field(default_factory=list)

    def convert(self, name: str, values: Any) -> tuple[NDArray[np.float64], tuple[str, int] | None, bool]:
        """Convert a column to numbers.

        Returns:
            The numbers; the first cell that is not a number, with its row; and whether all cells are true or false.
        """
        if pd.api.types.is_numeric_dtype(values.dtype):
            numbers, offender = values.to_numpy(dtype=np.float64, na_value=np.nan), None
            truths = pd.api.types.is_bool_dtype(values.dtype)
        else:
            numbers, offender, truths = numbers_from_texts(values)
        whole = not truths and not pd.api.types.is_float_dtype(values.dtype)
        if whole and name not in self.large and bool((np.abs(numbers) >= 2.0**53).any()):
            self.large.append(name)
        if truths and name not in self.booleans:
            self.booleans.append(name)
        return numbers, offender, truths

    def report(self, messages: Messages, names: Sequence[str]) -> None:
        """Say what was converted of some columns."""
        if booleans := [name for name in names if name in self.booleans]:
            messages.note(f"true and false became 1 and 0: {quoted(booleans)}.")
        if large := [name for name in names if name in self.large]:
            messages.warn(
                f"integers of 2^53 and more lose digits as numbers: {quoted(large)}; use `id=…` if they identify rows."
            )


def numbers_from_texts(values: Any) -> tuple[NDArray[np.float64], tuple[str, int] | None, bool]:
    """Convert texts to numbers.

    Returns:
        The numbers; the first cell that is not a number, with its row, which is counted from 0; and whether all cells
        are true or false.
    """
    texts = pd.Series(texts_of(values, strip=True), dtype=object)
    absent = texts.isin(list(MISSING)).to_numpy()
    lowered = texts.str.lower()
    if not absent.all() and bool((lowered.isin(["true", "false"]) | absent).all()):
        return np.where(absent, np.nan, lowered == "true"), None, True
    if (wrong := ~(texts.str.fullmatch(NUMBER).to_numpy(bool) | absent)).any():
        row = int(np.argmax(wrong))
        return np.empty(0), (texts[row], row), False
    return np.where(absent, "nan", texts.to_numpy(np.str_)).astype(np.float64), None, False


def texts_of(values: Any, strip: bool = False) -> NDArray[np.str_]:
    """Convert cells to text as a person would type them: whole numbers without a point, "" for a missing value.

    Arguments:
        values: a pandas series, or what one is made of.
        strip: whether to remove blanks around each text.
    """
    values = pd.Series(values)
    absent = values.isna().to_numpy()
    whole = pd.api.types.is_float_dtype(values.dtype) and bool((values.dropna() % 1 == 0).all())
    texts = ["" if gone else str(int(v) if whole else v) for gone, v in zip(absent, values.astype(object), strict=True)]
    return np.array([text.strip() for text in texts] if strip else texts, dtype=np.str_)
