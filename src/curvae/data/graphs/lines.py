"""The lines of an edge list: which of them hold edges, and how their fields are told apart."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import CurvaeError
from ..reading import NUMBER, TextFile, long_cells
from ..remarks import count

__all__ = ["COMMA_NUMBER", "WANTED", "Lines", "check_widths", "look", "sniff", "unreadable"]

WANTED = "two names a line, one line an edge"
COMMA_NUMBER = r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?"

_BLANKS = r"\s+"  # the separator of fields that lie apart by blanks and tabs
_SEPARATORS = ("\t", ";", "|", ",", _BLANKS)
_HEAD = 50  # lines from which separator and header are told
_STARTS = " \t\n\r\x0b\x0c#%"  # of lines that may hold no edge
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
_QUOTE = re.compile(r'(?:^|[\s,;|])"')  # where a quoted name starts


@dataclass(frozen=True)
class Lines:
    """A text file line by line: how many there are, which hold no edge, and the first that do."""

    file: TextFile
    total: int
    skipped: list[int]
    head: list[str]

    @property
    def name(self) -> str:
        return self.file.path.name

    def number(self, row: int) -> int:
        """Number in the file, from 1, of a line that holds an edge."""
        return int(np.delete(np.arange(1, self.total + 1), self.skipped)[row])


def look(file: TextFile) -> Lines:
    """Go through a file once."""
    skipped: list[int] = []
    head: list[str] = []
    number = -1
    with file.open(newline=None) as stream:
        for number, line in enumerate(stream):
            if line[0] in _STARTS and line.lstrip()[:1] in ("", "#", "%"):
                skipped.append(number)
            elif len(head) < _HEAD:
                head.append(line.strip("\r\n"))
    if not head:
        raise CurvaeError(f"{file.path.name} holds nothing but comments; give {WANTED}")
    if any(_CONTROL.search(line) for line in head):
        raise CurvaeError(f"{file.path.name} is not a text file; give {WANTED}")
    return Lines(file, number + 1, skipped, head)


def _fields(line: str, separator: str) -> list[str]:
    if separator == _BLANKS:
        line, separator = re.sub(r"[ \t]+", " ", line.strip()), " "
    try:
        with long_cells():
            return [cell.strip() for cell in next(csv.reader([line], delimiter=separator, skipinitialspace=True))]
    except csv.Error:
        return [line]


def sniff(lines: Lines) -> tuple[str, list[list[str]]]:
    """The separator with which all lines have one width of two or more, and the first records."""
    found = {separator: [_fields(line, separator) for line in lines.head] for separator in _SEPARATORS}
    fit = {s: records for s, records in found.items() if len(records[0]) > 1 and len({*map(len, records)}) == 1}
    if "," in fit and _BLANKS in fit and _has_decimal_commas(fit[_BLANKS]):
        del fit[","]
    for separator, records in fit.items():
        return separator, records
    separator, records = max(found.items(), key=lambda item: sum(len(record) > 1 for record in item[1]))
    if all(len(record) == 1 for record in records):
        raise CurvaeError(f"{lines.name} has one column; give {WANTED}, apart by blanks, tabs, commas or semicolons")
    check_widths(lines, separator, len(records[0]))
    raise unreadable(lines)


def _has_decimal_commas(records: Sequence[Sequence[str]]) -> bool:
    """Whether commas stand only in numbers behind the names."""
    body = records[1:] or records
    if any("," in cell for record in body for cell in record[:2]):
        return False
    return all(re.fullmatch(f"{COMMA_NUMBER}|{NUMBER}", cell) for record in body for cell in record[2:])


def check_widths(lines: Lines, separator: str, width: int) -> None:
    """Raise for the first line that leaves a quote open or has not as many fields as the first."""
    skipped = set(lines.skipped)
    with lines.file.open(newline=None) as stream:
        for number, line in enumerate(stream):
            if number in skipped:
                continue
            if line.count('"') % 2 and _QUOTE.search(line):
                raise CurvaeError(f"{lines.name}: line {number + 1} opens a quote and does not close it; correct it")
            if (fields := len(_fields(line.strip("\r\n"), separator))) != width:
                raise CurvaeError(
                    f"{lines.name}: line {number + 1} has {count(fields, 'field')} where the first has {width}; "
                    f"give {WANTED}, with quotes around names that hold blanks or separators"
                )


def unreadable(lines: Lines) -> CurvaeError:
    """What to say of a file when no line of it can be blamed."""
    return CurvaeError(f"{lines.name} cannot be read as a list of edges; give {WANTED}")
