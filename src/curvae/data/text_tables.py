"""Tables in text files: separator, decimal mark and header are detected."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from itertools import islice
from pathlib import Path

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
    check_cells,
    check_widths,
    has_decimal_commas,
    scan,
    sniff,
    split,
)

__all__ = ["UNNAMED", "name_columns", "read_text"]

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
    with file.open() as stream:
        head = list(islice(filter(str.strip, stream), HEAD))
    separator, records = sniff(head, short_header=True)
    if not records:
        raise CurvaeError(f"{path.name} has no separate columns; separate them by commas, semicolons or tabs")
    names, headed = _header(path, records, known, messages)
    check_cells(path, pd.DataFrame([names], columns=names), "the header")
    blanks = _has_blanks(head, separator)
    if len(records) > 1 and len(records[1]) > len(names):  # pandas would silently drop the rest of the first row
        check_widths(file, separator, len(names), blanks)
    # A frame of 8 bytes a cell, and the matrix made of it.
    memory.require(16 * file.lines * len(names), f"{path.name} ({file.lines:,} lines × {len(names):,} columns)")
    letters = {name for name in names if name in texts or name.startswith(UNNAMED)} | set(names[:1] if first else ())
    absent = sorted(MISSING)

    def not_numeric(frame: pd.DataFrame) -> list[str]:
        return [name for name in names if name not in letters and not pd.api.types.is_numeric_dtype(frame[name])]

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
            blanks = True  # a quote further down may follow blanks
            frame = read(decimal, blanks)
        if blanks or not any(bool(frame[name].astype(str).str.startswith(" ").any()) for name in not_numeric(frame)):
            return frame
        stripped = read(decimal, True)
        for name in letters:
            stripped[name] = frame[name]
        return stripped

    try:
        frame = parse(".")
        if any(has_decimal_commas(frame[name].dropna().astype(str), separator) for name in not_numeric(frame)):
            frame = parse(",")
            messages.note("numbers were read with decimal commas.")
        check_cells(path, frame)
    except pd.errors.ParserError as error:
        check_widths(file, separator, len(names), blanks)
        raise CurvaeError(f"{path.name} cannot be read as a table: {one_line(error)}; correct the file") from error
    last = frame[names[-1]]
    # A row that is too short looks like one whose last cells are missing.
    if bool(last.isna().any()) or bool((last == "").any()):
        check_widths(file, separator, len(names), blanks)
    if is_embedding(names):
        for name in frame.select_dtypes(exclude="number"):
            frame[name] = frame[name].map(unguard, na_action="ignore")
    return frame


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
    counted = len(first) > 2 and first == [str(i) for i in range(len(first))]
    if numbers and counted:
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
