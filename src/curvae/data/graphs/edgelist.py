"""Edge lists: text files with two node names a line. Separator, comments, header and encoding are detected."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from ...errors import CurvaeError
from .. import memory
from ..column_values import is_text
from ..files import is_packed
from ..messages import Messages, count, quoted
from ..tables import require_column
from ..text import (
    BLANKS,
    COMMA_NUMBER,
    HEAD,
    NUMBER,
    SEPARATORS,
    TextFile,
    check_cells,
    check_widths,
    has_decimal_commas,
    scan,
    sniff,
    split,
)
from .coded import Coded, code_texts, number_nodes
from .plain_lists import LARGE, NotPlainError, PlainCells
from .raw_graph import RawGraph

__all__ = ["Ends", "end_columns", "looks_like_edges", "looks_like_header", "read_edge_list", "weight_column"]

Ends = tuple[str, str]
"""names of the columns with the first and the second node of an edge; without a header their numbers, from 1"""

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
_WEIGHTS = ("weight", "weights", "value", "score", "strength", "count", "w")

_WIDEST = 3  # columns of a list of edges: two nodes and a weight
_WANTED = "two names a line, one line an edge"
_ROWS, _REPEATED = 10_000, 0.1  # of a table that may list edges: rows to look at, share that may be repeated
_STARTS = " \t\n\r\x0b\x0c#%"  # of lines that may be blank or a comment
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
_QUOTE = re.compile(r'(?:^|[\s,;|])"')  # where a quoted name starts


def read_edge_list(path: Path, weighted: bool, header: bool | None = None, ends: Ends | None = None) -> RawGraph:
    """Read a list of edges.

    Arguments:
        path: a text file, which may be gzipped. A line has two names, separated by blanks, tabs, commas or semicolons,
            and possibly further columns; lines that start with # or % are comments.
        weighted: whether to read weights.
        header: whether the first line names the columns; None to detect it.
        ends: the columns that name nodes; None to find them.
    """
    messages = Messages()
    file = scan(path, _WANTED, messages)
    try:
        return _graph(path, _plain(file, ends), weighted, header, ends, Messages())
    except NotPlainError:
        return _graph(path, _Frame(_look(file)), weighted, header, ends, messages)


def _graph(
    path: Path,
    cells: _Frame | PlainCells,
    weighted: bool,
    header: bool | None,
    ends: Ends | None,
    messages: Messages,
) -> RawGraph:
    records, separator, width = cells.records, cells.separator, len(cells.records[0])
    doubtful: tuple[str, ...] = ()
    if header is None:
        header, doubtful = _detect_header(path, records, cells.coded(*_likely_ends(records[0], ends)), ends)
        _tell(header, records[0], doubtful, messages)
    columns = records[0] if header else None
    left, right = end_columns(path, columns, width, ends)
    skipped = int(header)
    coded = cells.coded(left, right).after(skipped)
    for side in (0, 1):
        if (empty := (coded.names == "")[coded.codes[side]]).any():
            line = cells.line(int(np.argmax(empty)) + skipped)
            raise CurvaeError(f"{path.name}: line {line} names only one node; give {_WANTED}")
    if not any(re.search(r"\w", record[right]) for record in records):  # an arrow, or another format
        raise CurvaeError(f"{path.name} has {records[0][right]!r} instead of a second name; remove it")
    weights: Any = None
    if weighted:
        weights = cells.weights(weight_column(path.name, columns, width, (left, right)), skipped)
        if weights.dtype != np.float64 and has_decimal_commas(weights, separator):
            messages.note("numbers were read with decimal commas.")
            weights = weights.str.replace(",", ".")
    elif width > 2:
        messages.note(f"left out: {count(width - 2, 'column')} beside the names; use weighted=True to read weights.")
    names, links = number_nodes(coded)
    named = () if columns is None else (columns[left], columns[right])
    raw = RawGraph(path.name, names, links, header=doubtful if header else (), ends=named, messages=messages)
    raw.set_weights(weights, weighted, lambda row: f"line {cells.line(row + skipped)}")
    return raw


class _Frame:
    """The cells of any list of edges, as texts."""

    def __init__(self, lines: _Lines) -> None:
        path, total = lines.file.path, lines.total
        self.separator, self.records = _sniff(lines)
        width = len(self.records[0])
        memory.require(64 * total * width, f"{path.name} ({total:,} lines)", fix="use fewer edges")
        self._frame, self.line = _parse(lines, self.separator, width), lines.number
        self._coded: dict[tuple[int, int], Coded] = {}
        check_cells(path, self._frame)

    def coded(self, left: int, right: int) -> Coded:
        if (left, right) not in self._coded:
            self._coded[left, right] = code_texts(self._frame[left], self._frame[right])
        return self._coded[left, right]

    def weights(self, column: int, start: int) -> Any:
        """Texts of a column, from a row on."""
        return self._frame[column].iloc[start:].str.strip()


def _plain(file: TextFile, ends: Ends | None) -> PlainCells:
    """The cells of a large file without quotes and comments after its first edge, which may be a header."""
    if file.path.stat().st_size < LARGE or file.encoding != "utf-8-sig":
        raise NotPlainError
    lines = _look(file, whole=False)
    separator, records = _sniff(lines)
    spaced = separator == BLANKS
    if (
        file.quotes > lines.head[0].count('"')
        or lines.skipped != list(range(len(lines.skipped)))
        or (spaced and any(line.split(" ") != record for line, record in zip(lines.head, records, strict=False)))
    ):
        raise NotPlainError
    about = f"{file.path.name} ({file.lines:,} lines)"
    memory.require(64 * file.lines * len(records[0]), about, fix="use fewer edges")
    likely = {0, 1, *_likely_ends(records[0], ends)}
    place = partial(_line, file)
    return PlainCells(file, " " if spaced else separator, records, len(lines.skipped), likely, place)


def _line(file: TextFile, row: int) -> int:
    return _look(file).number(row)


@dataclass(frozen=True)
class _Lines:
    """A text file line by line: how many there are, which are blank or comments, and the first of the others."""

    file: TextFile
    total: int
    skipped: list[int]
    head: list[str]

    def number(self, row: int) -> int:
        """Number in the file, from 1, of the line with this edge."""
        return int(np.delete(np.arange(1, self.total + 1), self.skipped)[row])

    def check(self, separator: str, width: int) -> CurvaeError:
        """Raise for the first line with an open quote or another number of fields; if none has, return an error."""
        check_widths(self.file, separator, width, prepare=self._prepare)
        return CurvaeError(f"{self.file.path.name} cannot be read as a list of edges; give {_WANTED}")

    def _prepare(self, stream: IO[str]) -> Iterator[str]:
        skipped = set(self.skipped)
        for number, line in enumerate(stream):
            if number not in skipped and line.count('"') % 2 and _QUOTE.search(line):
                raise CurvaeError(
                    f"{self.file.path.name}: line {number + 1} opens a quote and does not close it; close it, or "
                    "remove the line break from the name"
                )
            yield "" if number in skipped else line


def _look(file: TextFile, whole: bool = True) -> _Lines:
    """Read through a file once to find its comments and its first edges, or no further than these."""
    skipped: list[int] = []
    head: list[str] = []
    number = -1
    with file.open() as stream:
        for number, line in enumerate(stream):
            if line[0] in _STARTS and line.lstrip()[:1] in ("", "#", "%"):
                skipped.append(number)
            elif len(head) < HEAD:
                head.append(line.strip("\r\n"))
            elif not whole:
                break
    if not head:
        raise CurvaeError(f"{file.path.name} contains only comments; give {_WANTED}")
    if any(_CONTROL.search(line) for line in head):
        raise CurvaeError(f"{file.path.name} is not a text file; give {_WANTED}")
    return _Lines(file, number + 1, skipped, head)


def _sniff(lines: _Lines) -> tuple[str, list[list[str]]]:
    """Find the separator and the first records, all of one width of two or more."""
    separator, records = sniff(lines.head, (*_separators(lines.file.path), BLANKS))
    if separator == "," and _commas_are_decimal(spaced := split(lines.head, BLANKS)):
        separator, records = BLANKS, spaced
    widths = {len(record) for record in records}
    if widths <= {1}:
        raise CurvaeError(
            f"{lines.file.path.name} has one column; give {_WANTED}, separated by blanks, tabs, commas or semicolons"
        )
    if len(widths) > 1:
        raise lines.check(separator, len(records[0]))
    return separator, records


def _commas_are_decimal(records: Sequence[Sequence[str]]) -> bool:
    """Whether the only commas are in numbers after the two names."""
    body = records[1:] or records
    if len({len(record) for record in records}) > 1 or any("," in cell for record in body for cell in record[:2]):
        return False
    return all(re.fullmatch(f"{COMMA_NUMBER}|{NUMBER}", cell) for record in body for cell in record[2:])


def _parse(lines: _Lines, separator: str, width: int) -> pd.DataFrame:
    """Read all edges as texts, in numbered columns."""
    try:
        frame = pd.read_csv(
            lines.file.path,
            sep=separator,
            header=None,
            names=list(range(width)),
            index_col=False,
            skiprows=lines.skipped,
            encoding=lines.file.encoding,
            compression="gzip" if is_packed(lines.file.path) else None,
            dtype=str,
            na_filter=False,  # a node may be called NA
            skipinitialspace=True,
        )
    except pd.errors.ParserError as error:
        raise lines.check(separator, width) from error
    merged = len(frame) != lines.total - len(lines.skipped)
    # A line that is too short looks like one that ends in an empty field.
    if merged or bool((frame[width - 1] == "").any()):
        unreadable = lines.check(separator, width)
        if merged:
            raise unreadable
    return frame


def _ending(path: Path) -> str:
    """How the name of a file ends, before .gz."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def _separators(path: Path) -> tuple[str, ...]:
    """Separators, the likeliest first: in a .csv file bars and tabs rather belong to names."""
    return (";", ",", "\t", "|") if _ending(path) == ".csv" else SEPARATORS


def _detect_header(
    path: Path, records: Sequence[Sequence[str]], coded: Coded, ends: Ends | None
) -> tuple[bool, tuple[str, ...]]:
    """Whether the first line holds column names, which are then no names of nodes; and the two, if that is all there is
    to tell it by.

    In a .csv or .tsv file, which usually has a header, it is enough that no other line has its names, unless most
    others stand apart like that too. In other files such a line is an edge, to be warned of.
    """
    names, codes = coded.names, coded.codes
    first = str(names[codes[0, 0]]), str(names[codes[1, 0]])
    if ends == first and not _are_numbers(ends):
        return True, ()
    marked = np.zeros(len(names), dtype=bool)
    marked[codes[:, 0]] = True
    if marked[codes[:, 1:]].any():
        return False, ()
    if looks_like_header(records):
        return True, ()
    alone = (np.bincount(codes.ravel()) == 1)[codes].all(0)
    numbers = any(re.fullmatch(NUMBER, name) for name in first)
    if numbers or len(alone) < 3 or not alone[0] or alone[1:].mean() >= 0.5:
        return False, ()
    return _ending(path) in (".csv", ".tsv"), first


def _tell(header: bool, first: Sequence[str], doubtful: Sequence[str], messages: Messages) -> None:
    if header:
        doubt = ", for no other line names these; use header=False if it is an edge" if doubtful else ""
        messages.note(f"the first line was taken as a header: {quoted(first)}{doubt}.")
    elif doubtful:
        a, b = doubtful
        messages.warn(
            f"the first line joins {a!r} and {b!r}, which no other line names; use header=True if it is a header."
        )


# --- columns --------------------------------------------------------------------------------------------------------


def _named_ends(cells: Sequence[str]) -> tuple[int, int] | None:
    """Find two columns with usual names for the ends of an edge."""
    folded = [re.sub(r"[\W_]", "", cell.casefold()) for cell in cells]
    return next(((folded.index(a), folded.index(b)) for a, b in _ENDS if a in folded and b in folded), None)


def _are_numbers(ends: Ends) -> bool:
    return all(end.isdecimal() for end in ends)


def _likely_ends(first: Sequence[str], ends: Ends | None) -> tuple[int, int]:
    """Find the columns that name nodes before it is known whether the first record is a header."""
    if ends is not None:
        columns = [str(number + 1) for number in range(len(first))] if _are_numbers(ends) else list(first)
        if set(ends) <= set(columns):
            return columns.index(ends[0]), columns.index(ends[1])
    return _named_ends(first) or (0, 1)


def end_columns(
    source: str | Path, header: Sequence[str] | None, width: int, ends: Ends | None = None
) -> tuple[int, int]:
    """Find the two columns that name nodes: those asked for, else by their names, else the first two.

    A table of more than three columns, none of which have a usual name, is refused: it is likelier a table of rows.

    Example:
        >>> end_columns("g.csv", ["Id", "Source", "Target", "Weight"], 4), end_columns("g.csv", ["ann", "ben"], 2)
        ((1, 2), (0, 1))
        >>> end_columns("g.csv", ["who", "whom", "when", "where"], 4, ends=("who", "whom"))
        (0, 1)
    """
    path, columns = Path(source), list(header or (str(number + 1) for number in range(width)))
    if ends is not None:
        for role, name in zip(("source_column", "target_column"), ends, strict=True):
            require_column(path, role, name, columns)
        if ends[0] == ends[1]:
            raise CurvaeError(f"source_column=… and target_column=… both are {ends[0]!r}; name two columns")
        return columns.index(ends[0]), columns.index(ends[1])
    found = _named_ends(header) if header else None
    if found is None and width > _WIDEST:
        rows = f"curvae fit {shlex.quote(str(source))}" if isinstance(source, Path) else "PoincareVAE"
        first, second = (json.dumps(name, ensure_ascii=False) for name in columns[:2])
        raise CurvaeError(
            f"{path.name} has {width:,} columns, and a list of edges two or three; use {rows} for a table of rows, or "
            f"say which columns name the nodes of an edge: source_column={first} target_column={second}"
        )
    return found or (0, 1)


def weight_column(source: str, header: Sequence[str] | None, width: int, ends: tuple[int, int]) -> int:
    """Find the column of weights: by its name, else the only one that does not name nodes, without a header the third.

    Example:
        >>> weight_column("friends.csv", ["from", "to", "year", "weight"], 4, (0, 1))
        3
    """
    folded = [cell.strip().casefold() for cell in header or ()]
    named = [folded.index(name) for name in _WEIGHTS if name in folded]
    others = [column for column in range(width) if column not in ends]
    if not others:
        raise CurvaeError(f"{source} has no third column for weights; add it, or leave out weighted=True")
    if not (found := [column for column in named if column in others]) and header and len(others) > 1:
        raise CurvaeError(
            f"{source} has several columns beside the names, {quoted([header[column] for column in others])}, none of "
            "them called 'weight'; rename the one with the weights"
        )
    return (found or others)[0]


def looks_like_header(records: Sequence[Sequence[str]]) -> bool:
    """Whether the first of some records holds column names.

    It does if it has the usual names, or two names that differ only in a 1 and a 2 and start no other record, or a
    text where all other records have a number.

    Example:
        >>> looks_like_header([["protein1", "protein2"], ["p53", "mdm2"]])
        True
        >>> looks_like_header([["ann", "ben", "weight"], ["ben", "cem", "2"]])
        True
        >>> looks_like_header([["n1", "n2"], ["n2", "n3"]])
        False
    """
    first, rest = records[0], records[1:]
    if _named_ends(first) is not None:
        return True
    if (stem := _common_stem(first)) is not None:
        series = re.compile(rf"{re.escape(stem)}[\W_]*(?:\d+|\w)", re.IGNORECASE)
        return not any(series.fullmatch(cell) for record in rest for cell in record[:2])
    if not rest:
        return False
    numbers = [all(re.fullmatch(NUMBER, record[k]) for record in rest) for k in range(len(first))]
    texts = [cell != "" and re.fullmatch(NUMBER, cell) is None for cell in first]
    if numbers[0] and numbers[1]:
        return texts[0] and texts[1]
    return any(number and text for number, text in zip(numbers[2:], texts[2:], strict=True))


def _common_stem(header: Sequence[str]) -> str | None:
    """What the first two names have in common if they differ only in a 1 and a 2, or the like."""
    a = re.fullmatch(r"(.+?)[\W_]*[1ax]", header[0].casefold())
    b = re.fullmatch(r"(.+?)[\W_]*[2by]", header[1].casefold())
    return a[1] if a and b and a[1] == b[1] else None


def looks_like_edges(table: pd.DataFrame) -> bool:
    """Whether the rows of a table are likely the edges of a graph: two names, or numbers of nodes, and maybe a weight.

    Whole numbers may be measurements as well. They are numbers of nodes if the columns have usual names, no edge is
    given twice, none joins a node to itself, and most nodes of one column are in the other too.

    Example:
        >>> looks_like_edges(pd.DataFrame({"from": [1, 1, 2], "to": [2, 3, 4]}))
        True
        >>> looks_like_edges(pd.DataFrame({"from": [1.5, 1.0, 2.0], "to": [2.0, 3.0, 4.0]}))
        False
    """
    header, rows = [str(name) for name in table.columns], table.head(_ROWS)
    if len(header) == 1:  # numbers that blanks separate, the first two in the place of a header
        cells = [record.split() for record in (header[0], *rows.iloc[:, 0].astype(str))]
        return all(len(cell) in (2, 3) and cell[0].isdecimal() and cell[1].isdecimal() for cell in cells)
    if len(header) not in (2, 3) or any(is_text(rows.iloc[:, place]) for place in range(2, len(header))):
        return False
    left, right = rows.iloc[:, 0], rows.iloc[:, 1]
    if rows.iloc[:, :2].duplicated().mean() > _REPEATED:
        return False
    if not all(pd.api.types.is_integer_dtype(side.dtype) for side in (left, right)):
        return is_text(left) and is_text(right)
    if (_named_ends(header) is None and _common_stem(header) is None) or bool((left == right).any()):
        return False
    sides = set(left.tolist()), set(right.tolist())
    return len(sides[0] & sides[1]) >= min(map(len, sides)) / 2
