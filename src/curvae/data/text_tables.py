"""Tables in text files: separator, decimal mark and header are detected."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from ..errors import CurvaeError
from . import memory
from .dataset import feature_names
from .files import is_packed
from .messages import Messages, one_line, quoted
from .spreadsheets import guard, is_embedding, unguard
from .text import (
    COMMA_NUMBER,
    EXACT,
    HEAD,
    MISSING,
    NUMBER,
    TextFile,
    check_cells,
    check_widths,
    has_decimal_commas,
    scan,
    sniff,
    split,
)

__all__ = ["UNNAMED", "Head", "name_columns", "read_head", "read_text"]

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
    blanks = _has_blanks(head, separator)
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


def _has_blanks(lines: list[str], separator: str) -> bool:
    """Whether blanks after separators belong to them: they follow each, or a quote follows them."""
    cells = [cell for record in split(lines, separator, blanks=False) for cell in record[1:]]
    return bool(cells) and (all(cell.startswith(" ") for cell in cells) or any(re.match(' +"', cell) for cell in cells))


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
