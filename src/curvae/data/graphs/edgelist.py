"""Edges from text files, Parquet, matrices, and objects of other libraries."""

from __future__ import annotations

import json
import re
import shlex
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, triu

from ...errors import CurvaeError
from .. import memory
from ..dataset import feature_names
from ..files import BROKEN_GZIP, Messages, count, is_packed, one_line, open_file, quoted
from ..matrices import read_sparse
from ..tables import opened_parquet, require_column
from ..text_tables import (
    BLANKS,
    COMMA_NUMBER,
    HEAD,
    LONGEST,
    NUMBER,
    SEPARATORS,
    TextFile,
    check_cells,
    check_widths,
    has_decimal_commas,
    is_text,
    scan,
    sniff,
    split,
    texts_of,
)
from .raw_graph import RawGraph

__all__ = [
    "INTEGER",
    "LARGE",
    "Coded",
    "Ends",
    "NotPlainError",
    "PlainCells",
    "code_columns",
    "code_numbers",
    "code_texts",
    "end_columns",
    "from_frame",
    "from_geometric",
    "from_matrix",
    "from_networkx",
    "from_pairs",
    "is_geometric",
    "is_networkx",
    "looks_like_edges",
    "looks_like_header",
    "number_nodes",
    "read_adjacency",
    "read_edge_list",
    "read_graphml",
    "read_parquet_edges",
    "small",
    "weight_column",
    "whole_numbers",
]


# Names of nodes as numbers: how the two columns of a list of edges become nodes and links.

INTEGER = r"-?(?:0|[1-9]\d{0,17})"  # as it would be printed

_SPARSE = 4  # numbers of a range, for each that is given, up to which the range is marked instead of sorted


@dataclass(frozen=True, eq=False)
class Coded:
    """The names in two columns.

    Arguments:
        names: different names without blanks around them, in any order.
        codes: place among them of each name, (2, rows), int32 where it suffices.
    """

    names: NDArray[np.str_]
    codes: NDArray[np.integer]


def code_columns(left: Any, right: Any) -> Coded:
    """Code the names of nodes in two columns of a frame: whole numbers, texts, or anything else as it is printed.

    Example:
        >>> coded = code_columns(pd.Series(["b", "c "]), pd.Series(["c", None]))
        >>> coded.names.tolist(), coded.codes.tolist()
        (['b', 'c', ''], [[0, 1], [1, 2]])
    """
    types = left.dtype, right.dtype
    if all(isinstance(dtype, np.dtype) for dtype in types) and np.result_type(*types).kind in "iu":
        numbers, codes = code_numbers(np.stack([left.to_numpy(), right.to_numpy()]))
        return Coded(numbers.astype(np.str_), codes)
    texts = [
        side.fillna("") if pd.api.types.is_string_dtype(side) else pd.Series(texts_of(side, strip=True))
        for side in (left, right)
    ]
    return code_texts(*texts)


def code_texts(left: Any, right: Any) -> Coded:
    """Code the names of nodes in two series of texts."""
    codes, found = pd.factorize(pd.concat([left, right], ignore_index=True))
    # Names that differ only in blanks around them are the same.
    same, names = pd.factorize(pd.Series(found, dtype=object).str.strip())
    return Coded(names.to_numpy(dtype=np.str_), small(same, len(names))[codes].reshape(2, -1))


def code_numbers(numbers: NDArray[np.integer]) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """Different numbers in ascending order, and the place among them of each, in the shape of these.

    Example:
        >>> code_numbers(np.array([[7, 3], [7, 9]]))
        (array([3, 7, 9]), array([[1, 0],
               [1, 2]], dtype=int32))
    """
    if not numbers.size:
        return numbers.reshape(-1), np.zeros(numbers.shape, np.int32)
    low, high = int(numbers.min()), int(numbers.max())
    if high - low >= _SPARSE * numbers.size + 1024:
        found, places = np.unique(numbers, return_inverse=True)
        return found, small(places.reshape(numbers.shape), len(found))
    marked = np.zeros(high - low + 1, dtype=bool)
    shifted = numbers - low if low else numbers
    marked[shifted] = True
    places = small(np.cumsum(marked) - 1, len(marked))[shifted]
    return np.flatnonzero(marked).astype(numbers.dtype) + numbers.dtype.type(low), places


def small(places: NDArray[np.integer], count: int) -> NDArray[np.integer]:
    """Places among so many things, in 32 bits where that suffices."""
    return places.astype(np.int32 if count < 2**31 else np.int64, copy=False)


def whole_numbers(texts: NDArray[np.str_]) -> NDArray[np.int64] | None:
    """The numbers that texts are, if all are integers as they are printed; otherwise None.

    Example:
        >>> whole_numbers(np.array(["7", "-3"])), whole_numbers(np.array(["7", "03"]))
        (array([ 7, -3]), None)
    """
    if not all(re.fullmatch(INTEGER, text) for text in texts[:1000].tolist()):
        return None
    try:
        numbers = texts.astype(np.int64)
    except (ValueError, OverflowError):
        return None
    printed = bool((numbers.astype(texts.dtype) == texts).all()) and bool((abs(numbers) < 10**18).all())
    return numbers if printed or all(re.fullmatch(INTEGER, text) for text in texts.tolist()) else None


def number_nodes(
    source: str, coded: Coded, where: Callable[[int], str] | None = None, fix: str = "give two"
) -> tuple[NDArray[np.str_], NDArray[np.int64]]:
    """List the names of all nodes that occur, (nodes,), and the links between their positions, (links, 2).

    Nodes are ordered by number if all names are integers, else by first appearance. Raises for an empty name.

    Arguments:
        source: name of the graph in messages.
        coded: the names of the two nodes of each link.
        where: says where the link with a given number is found; by default its row.
        fix: what to do about an empty name.

    Example:
        >>> names, links = number_nodes("links.csv", code_texts(pd.Series(["b", "c "]), pd.Series(["c", "a"])))
        >>> names.tolist(), links.tolist()
        (['b', 'c', 'a'], [[0, 1], [1, 2]])
    """
    names, codes = coded.names, coded.codes
    if (empty := (names == "")[codes].any(0)).any():
        link = int(np.argmax(empty))
        found = f"row {link + 1}" if where is None else where(link)
        raise CurvaeError(f"{source}: {found} names only one node; {fix}")
    used = np.flatnonzero(np.bincount(codes.ravel(), minlength=len(names)))
    numbers = whole_numbers(names[used])
    order = used[np.argsort(numbers, kind="stable")] if numbers is not None else pd.unique(codes.T.ravel())
    place = np.empty(len(names), dtype=np.int64)
    place[order] = np.arange(len(order))
    links = np.empty((codes.shape[1], 2), dtype=np.int64)
    for side in (0, 1):
        links[:, side] = place[codes[side]]
    return names[order], links


# Large lists of edges in plain text, read in pieces by Arrow.

LARGE = 1 << 22
"""bytes of a file from which on it is tried"""

_PIECE = 1 << 24  # bytes of text that are parsed at once


class NotPlainError(Exception):
    """A file has quotes, comments among its edges or something else that only the general reader understands."""


class PlainCells:
    """The cells of a list of edges in which a line is an edge, and the separator always ends a cell.

    Arguments:
        file: the file.
        separator: one character.
        records: its first edges, split.
        skipped: lines before these.
        ends: columns that may name nodes.
    """

    def __init__(
        self,
        file: TextFile,
        separator: str,
        records: Sequence[Sequence[str]],
        skipped: int,
        ends: Collection[int],
    ) -> None:
        from pyarrow import chunked_array

        self.separator, self.records = separator, records
        self._file, self._skipped, self._ends = file, skipped, sorted(ends)
        numbers = self._numbers(self._ends, _integers)
        if numbers is not None:
            found, self._codes = code_numbers(np.stack(numbers))
            self._names = found.astype(np.str_)
            return
        texts = chunked_array([part for parts in zip(*self._pieces(self._ends), strict=True) for part in parts])
        chunks = texts.dictionary_encode().chunks
        same, names = pd.factorize(pd.Series(chunks[0].dictionary.to_pylist(), dtype=object).str.strip())
        codes = np.concatenate([chunk.indices.to_numpy() for chunk in chunks])
        self._names = names.to_numpy(dtype=np.str_)
        self._codes = small(same, len(names))[codes].reshape(len(self._ends), -1)
        odd = pd.Series(self._names, dtype=object).str.contains(r"^[#%]|^-0$|\s" if separator == " " else "^[#%]|^-0$")
        if odd.any() or self._names.dtype.itemsize > 4 * LONGEST:
            raise NotPlainError

    def line(self, row: int) -> int:
        """Number in the file, from 1, of the line with this edge."""
        return _look(self._file).number(row)

    def coded(self, left: int, right: int) -> Coded:
        """The names in two columns, with those of the first line, which may be a header."""
        first = np.array([self.records[0][place] for place in (left, right)], dtype=np.str_)
        known = pd.Index(self._names).get_indexer(pd.Index(first))
        added = np.unique(first[known < 0])
        known = np.where(known < 0, len(self._names) + np.searchsorted(added, first), known)
        rows = self._codes[[self._ends.index(place) for place in (left, right)]]
        return Coded(np.concatenate([self._names, added]), np.column_stack([known.astype(rows.dtype), rows]))

    def weights(self, column: int, start: int) -> NDArray[np.float64]:
        """Positive numbers in a column, from a row on."""
        from pyarrow import array, string

        first = _floats(array([] if start else [self.records[0][column]], string()))
        rest = self._numbers([column], _floats)
        if first is None or rest is None:
            raise NotPlainError
        found = np.append(first, rest[0])
        if not bool((np.isfinite(found) & (found > 0)).all()):  # the general reader says where
            raise NotPlainError
        return found

    def _numbers(
        self, columns: Sequence[int], convert: Callable[[Any], NDArray[Any] | None]
    ) -> list[NDArray[Any]] | None:
        """Columns as numbers, in the lines after the first; None if a cell is none."""
        found: list[list[NDArray[Any]]] = [[] for _ in columns]
        for piece in self._pieces(columns):
            for parts, texts in zip(found, piece, strict=True):
                if (part := convert(texts)) is None:
                    return None
                parts.append(part)
        if not found[0]:
            raise NotPlainError
        return [np.concatenate(parts) for parts in found]

    def _pieces(self, columns: Sequence[int]) -> Iterator[list[Any]]:
        """Texts of some columns in the lines after the first, a piece at a time."""
        from pyarrow import ArrowInvalid, string
        from pyarrow import csv as text

        names = [str(place) for place in range(len(self.records[0]))]
        wanted = [names[place] for place in columns]
        how = {
            "read_options": text.ReadOptions(block_size=_PIECE, column_names=names, skip_rows=self._skipped + 1),
            "parse_options": text.ParseOptions(delimiter=self.separator, quote_char=False),
            "convert_options": text.ConvertOptions(
                column_types=dict.fromkeys(wanted, string()), include_columns=wanted, null_values=[]
            ),
        }
        try:
            with open_file(self._file.path) as stream, text.open_csv(stream, **how) as reader:
                for batch in reader:
                    yield batch.columns
        except ArrowInvalid:
            raise NotPlainError from None


def _integers(texts: Any) -> NDArray[np.int64] | None:
    """The numbers that all texts of an array are, as they would be printed."""
    from pyarrow import ArrowInvalid, compute, int64

    try:
        numbers: NDArray[np.int64] = compute.cast(texts, int64()).to_numpy()
    except ArrowInvalid:
        return None
    size = abs(numbers)
    largest = int(size.max(initial=0))
    hexadecimal = any(compute.any(compute.match_substring(texts, letter)).as_py() for letter in "xX")
    # No decimal text is shorter than what is printed, so that all are equal if the sums of their lengths are.
    digits = len(size) + sum(int((size >= 10**k).sum()) for k in range(1, len(str(largest))))
    printed = digits + int((numbers < 0).sum()) == compute.sum(compute.binary_length(texts)).as_py()
    return numbers if printed and largest < 10**18 and not hexadecimal else None


def _floats(texts: Any) -> NDArray[np.float64] | None:
    from pyarrow import ArrowInvalid, compute, float64

    try:
        return compute.cast(compute.utf8_trim_whitespace(texts), float64()).to_numpy()
    except ArrowInvalid:
        return None


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
_LEFT_OUT = "left out: {} beside the names; use weighted=True to read weights."
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

    def where(row: int) -> str:
        return f"line {cells.line(row + skipped)}"

    coded = cells.coded(left, right)
    coded = Coded(coded.names, coded.codes[:, skipped:])
    names, links = number_nodes(path.name, coded, where, f"give {_WANTED}")
    if not any(re.search(r"\w", record[right]) for record in records):  # an arrow, or another format
        raise CurvaeError(f"{path.name} has {records[0][right]!r} instead of a second name; remove it")
    weights: Any = None
    if weighted:
        weights = cells.weights(weight_column(path.name, columns, width, (left, right)), skipped)
        if weights.dtype != np.float64 and has_decimal_commas(weights, separator):
            messages.note("numbers were read with decimal commas.")
            weights = weights.str.replace(",", ".")
    elif width > 2:
        messages.note(_LEFT_OUT.format(count(width - 2, "column")))
    named = () if columns is None else (columns[left], columns[right])
    raw = RawGraph(path.name, names, links, header=doubtful if header else (), ends=named, messages=messages)
    raw.set_weights(weights, weighted, where)
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
    if file.path.stat().st_size < LARGE or file.encoding != "utf-8-sig" or find_spec("pyarrow") is None:
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
    return PlainCells(file, " " if spaced else separator, records, len(lines.skipped), likely)


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
    # In a .csv file bars and tabs rather belong to names.
    likely = (";", ",", "\t", "|") if lines.file.path.name.lower().endswith((".csv", ".csv.gz")) else SEPARATORS
    separator, records = sniff(lines.head, (*likely, BLANKS))
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
    if ends == first and not all(end.isdecimal() for end in ends):
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
    return path.name.lower().removesuffix(".gz").endswith((".csv", ".tsv")), first


def _tell(header: bool, first: Sequence[str], doubtful: Sequence[str], messages: Messages) -> None:
    if header:
        doubt = ", which no other line names; use header=False if it is an edge" if doubtful else ""
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


def _likely_ends(first: Sequence[str], ends: Ends | None) -> tuple[int, int]:
    """Find the columns that name nodes before it is known whether the first record is a header."""
    if ends is not None:
        numbered = all(end.isdecimal() for end in ends)
        columns = [str(number + 1) for number in range(len(first))] if numbered else list(first)
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
    if width < 2:
        raise CurvaeError(f"{path.name} has one column or none; give two that name nodes")
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


# Graphs from objects: of networkx and torch-geometric, sparse matrices of scipy, frames and pairs of edges.
#
# GraphML files (Brandes et al., 2002, GraphML progress report) are read through networkx.

_FORMS = "a file, a networkx graph, a scipy sparse matrix, torch-geometric data, a frame of edges or pairs of nodes"


def is_networkx(source: object) -> bool:
    """Whether an object is a graph of networkx, without importing it."""
    networkx = sys.modules.get("networkx")
    return networkx is not None and isinstance(source, networkx.Graph)


def is_geometric(source: object) -> bool:
    """Whether an object looks like a `Data` of torch-geometric."""
    return getattr(source, "edge_index", None) is not None


def from_networkx(graph: Any, weighted: bool, source: str = "the networkx graph") -> RawGraph:
    """Take a graph of networkx, of any class.

    Nodes are named as they print, and their data become attributes. The weight of an edge is its attribute "weight".
    """
    names = np.array([str(node) for node in graph], dtype=np.str_)
    if np.unique(names).size < names.size:
        raise CurvaeError(f"{source} has different nodes that print alike; relabel them")
    place = {node: i for i, node in enumerate(graph)}
    links = np.array([(place[a], place[b]) for a, b in graph.edges()], dtype=np.int64).reshape(-1, 2)
    raw = RawGraph(source, names, links, directed=graph.is_directed())
    raw.attributes = pd.DataFrame([data for _, data in graph.nodes(data=True)], index=range(len(names)))
    raw.attributes.columns = pd.Index([str(name) for name in raw.attributes.columns])
    found = [weight for *_, weight in graph.edges(data="weight")]
    raw.set_weights(found if weighted or any(weight is not None for weight in found) else None, weighted)
    return raw


def from_geometric(data: Any, weighted: bool) -> RawGraph:
    """Take a graph from a `Data` of torch-geometric: features from x, labels from y; nodes are named by their numbers.

    Weights are those of edge_weight, or of edge_attr if it has one number per edge.
    """
    source = "the torch-geometric graph"
    nodes = int(data.num_nodes)
    links = _array(data.edge_index).T.astype(np.int64)
    if links.size and (links.min() < 0 or links.max() >= nodes):
        raise CurvaeError(f"{source} has {nodes:,} nodes and an edge to node {links.max():,}; set num_nodes")
    raw = RawGraph(source, np.arange(nodes).astype(np.str_), links)
    weights = next((w for w in (data.edge_weight, data.edge_attr) if w is not None and w.numel() == len(links)), None)
    if weighted and weights is None:
        raise CurvaeError(f"{source} has no edge_weight; set it, or leave out weighted=True")
    raw.set_weights(None if weights is None else _array(weights).reshape(-1), weighted)
    if data.x is not None:
        raw.features = _array(data.x).reshape(nodes, -1).astype(np.float64)
        raw.feature_names = feature_names(raw.features.shape[1])
    if data.y is not None and data.y.numel() == nodes:
        raw.labels, raw.label_name = texts_of(pd.Series(_array(data.y).reshape(-1))), "y"
    elif data.y is not None:
        raw.messages.note("y was left out because it does not have one label per node.")
    return raw


def _array(values: Any) -> NDArray[Any]:
    return np.asarray(values.detach().cpu())


def from_matrix(source: str, matrix: Any, weighted: bool, first: int = 0) -> RawGraph:
    """Take a graph from a sparse adjacency matrix: an edge for each value that is not 0.

    Arguments:
        source: name of the matrix in messages.
        matrix: a matrix of scipy.sparse in any format, (nodes, nodes).
        weighted: whether its values are weights.
        first: number of the first node.
    """
    rows, columns = matrix.shape
    if rows != columns:
        raise CurvaeError(
            f"{source} is {rows:,} × {columns:,}; give a square matrix, with one row and one column per node"
        )
    if matrix.dtype.kind not in "biuf":
        raise CurvaeError(f"{source} holds {matrix.dtype}, not real numbers; convert it to float")
    memory.require(100 * rows, f"{source} ({rows:,} nodes)", fix="give a smaller graph")
    matrix = csr_array(matrix, dtype=np.float64, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if not np.isfinite(matrix.data).all():
        raise CurvaeError(f"{source} holds missing or infinite values; replace them")
    known = matrix if weighted else matrix.astype(bool)
    symmetric = (known != known.T).nnz == 0
    entries = coo_array(triu(matrix) if symmetric else matrix)
    links = np.stack([axis.astype(np.int64) for axis in entries.coords], axis=1)
    raw = RawGraph(source, np.arange(first, rows + first).astype(np.str_), links, directed=not symmetric)
    raw.set_weights(entries.data if weighted or (entries.data != 1).any() else None, weighted)
    return raw


def read_adjacency(path: Path, weighted: bool) -> RawGraph:
    """Read an adjacency matrix: a .npz file of scipy, or a Matrix Market file, which counts nodes from 1."""
    return from_matrix(path.name, read_sparse(path), weighted, first=0 if path.suffix.lower() == ".npz" else 1)


def from_frame(
    frame: pd.DataFrame, weighted: bool, source: str = "the frame of edges", ends: Ends | None = None
) -> RawGraph:
    """Take a graph from a frame with one edge per row; columns are found as in a text file with a header."""
    header = [str(name) for name in frame.columns]
    a, b = end_columns(source, header, len(header), ends)
    coded = code_columns(frame.iloc[:, a], frame.iloc[:, b])
    raw = RawGraph(source, *number_nodes(source, coded), ends=(header[a], header[b]))
    if weighted or len(header) == 3:
        weights = frame.iloc[:, weight_column(source, header, len(header), (a, b))]
        raw.set_weights(weights, weighted, lambda row: f"row {row + 1}")
    elif len(header) > 3:
        raw.messages.note(_LEFT_OUT.format(count(len(header) - 2, "column")))
    return raw


def from_pairs(source: Any, weighted: bool) -> RawGraph:
    """Take a graph from anything that numpy converts to an array of whole numbers or texts, (edges, 2)."""
    what = f"the graph of type {type(source).__name__}"
    try:
        pairs = np.asarray(source)
    except Exception as error:  # other libraries may raise anything
        raise CurvaeError(f"{what} cannot be read; give {_FORMS}") from error
    square = pairs.ndim == 2 and pairs.shape[0] == pairs.shape[1] > 2
    for wrong, why in (
        (pairs.ndim and not pairs.size, "no edges; give at least one"),
        (square, f"shape {pairs.shape}; convert an adjacency matrix to a scipy.sparse.csr_array"),
        (pairs.ndim != 2 or pairs.shape[1] != 2, f"shape {pairs.shape}; give {_FORMS}"),
        (weighted, "no weights; give a frame with a column 'weight', or leave out weighted=True"),
    ):
        if wrong:
            raise CurvaeError(f"{what} has {why}")
    if pairs.dtype.kind == "f" and bool((pairs % 1 == 0).all()):
        pairs = pairs.astype(np.int64)
    if pairs.dtype.kind in "iu":
        numbers, places = code_numbers(pairs)
        return RawGraph(what, numbers.astype(np.str_), places.astype(np.int64))
    if pairs.dtype.kind not in "UO":
        raise CurvaeError(f"{what} holds {pairs.dtype}; give whole numbers or texts")
    return RawGraph(what, *number_nodes(what, code_columns(*(pd.Series(column) for column in pairs.T))))


_CHUNK = 2**20
_MEMORY = 30  # bytes for the elements and the graph, per byte of the file
_SPACE = "{http://graphml.graphdrawing.org/xmlns}"
_NEEDED = {"node": ("id",), "edge": ("source", "target"), "data": ("key",), "key": ("id",)}


def read_graphml(path: Path, weighted: bool) -> RawGraph:
    """Read a GraphML file, which may be gzipped.

    Nodes are named by their ids, and their data become attributes. Edge data called "weight" are the weights.
    """
    from networkx import NetworkXError
    from networkx.readwrite.graphml import GraphMLReader

    try:
        root = _parse_xml(path)
        _normalise(path.name, root)
        reader = GraphMLReader(force_multigraph=True)
        keys, defaults = reader.find_graphml_keys(root)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ports of nodes say nothing about the graph
            graph = reader.make_graph(root.find(f"{_SPACE}graph"), keys, defaults)
    except CurvaeError:
        raise
    except BROKEN_GZIP as error:
        raise CurvaeError(f"{path.name} is not a complete gzip file ({one_line(error)}); pack it again") from error
    except (ElementTree.ParseError, NetworkXError, LookupError, ValueError) as error:  # some of unknown encodings
        raise CurvaeError(f"{path.name} cannot be read as GraphML: {one_line(error)}; save it again") from error
    for items, kind in ((graph.nodes, "node"), (graph.edges, "edge")):
        given = {key["name"]: defaults.get(name) for name, key in keys.items() if key["for"] in (kind, "all", None)}
        for *_, data in items(data=True):
            data.update({**given, **data})
    return from_networkx(graph, weighted, path.name)


class _Builder(ElementTree.TreeBuilder):
    """Builds the tree of a file without a document type, which could define entities that grow without end."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source

    def doctype(self, *_: object) -> None:
        raise CurvaeError(f"{self.source} has a document type, which is not read; remove <!DOCTYPE …>")


def _parse_xml(path: Path) -> ElementTree.Element:
    """Read the elements of a file, if they fit in memory."""
    chunks, size = [], 0
    with open_file(path) as stream:
        while chunk := stream.read(_CHUNK):
            size += len(chunk)
            memory.require(_MEMORY * size, f"{path.name} (at least {size:,} bytes)", fix="use fewer edges")
            chunks.append(chunk)
    parser = ElementTree.XMLParser(target=_Builder(path.name))
    for chunk in chunks:
        parser.feed(chunk)
    return parser.close()


def _normalise(source: str, root: ElementTree.Element) -> None:
    """Check a document and bring it to the form that networkx reads."""
    space, bracket, tag = root.tag.rpartition("}")
    space += bracket
    if tag != "graphml":
        raise CurvaeError(f"{source} has <{tag}> instead of <graphml>; save it as GraphML")
    for element in root.iter():
        element.tag = element.tag if "}" in (tag := element.tag.removeprefix(space)) else _SPACE + tag
    found = {tag: list(root.iter(_SPACE + tag)) for tag in (*_NEEDED, "graph", "hyperedge")}
    if len(found["graph"]) != 1:
        raise CurvaeError(f"{source} has {len(found['graph'])} graphs; give one graph a file")
    if found["hyperedge"]:
        raise CurvaeError(f"{source} has a hyperedge; give edges between two nodes")
    _check_elements(source, found)
    _normalise_data(root, found["data"], found["key"])
    for number, edge in enumerate(found["edge"]):
        edge.set("id", str(number))  # networkx merges edges with the same id
        if edge.attrib.pop("directed", "") == "true":
            found["graph"][0].set("edgedefault", "directed")


def _normalise_data(
    root: ElementTree.Element, values: list[ElementTree.Element], keys: list[ElementTree.Element]
) -> None:
    """Turn all data into texts and declare their keys, so that networkx converts nothing and refuses nothing."""
    for default in root.iter(f"{_SPACE}default"):
        default.text = (default.text or "").strip()
    for data in values:
        text = "".join([data.text or "", *(child.tail or "" for child in data)]).strip()
        data.text = text or None
        if text:
            data[:] = []  # of drawing programs
    undeclared = {data.attrib["key"] for data in values} - {key.attrib["id"] for key in keys}
    added = [ElementTree.SubElement(root, f"{_SPACE}key", {"id": name, "for": "none"}) for name in undeclared]
    for key in (*keys, *added):  # values that are not of their type are checked where they are used
        key.attrib |= {"attr.name": key.get("attr.name", key.attrib["id"]), "attr.type": "string"}


def _check_elements(source: str, found: Mapping[str, list[ElementTree.Element]]) -> None:
    """Raise unless all elements have the names that they need, nodes are unique and edges join nodes of the file."""
    for tag, names in _NEEDED.items():
        for number, element in enumerate(found[tag], 1):
            for name in names:
                if name not in element.attrib:
                    raise CurvaeError(f"{source}: <{tag}> number {number} has no {name!r}; save the file again")
                element.set(name, element.attrib[name].strip())
    times = Counter(node.attrib["id"] for node in found["node"])
    if twice := [name for name, number in times.items() if number > 1]:
        raise CurvaeError(f"{source} has several nodes {quoted(twice)}; make ids unique")
    ends = (edge.attrib[name] for edge in found["edge"] for name in _NEEDED["edge"])
    if unknown := list(dict.fromkeys(end for end in ends if end not in times)):
        raise CurvaeError(f"{source} has edges to nodes that it does not list: {quoted(unknown)}; add them")


# Lists of edges in Parquet files, of which only the columns needed are read.


def read_parquet_edges(path: Path, weighted: bool, ends: Ends | None = None) -> RawGraph:
    """Read a list of edges, one a row; columns are found by their names as in a text file with a header."""
    with opened_parquet(path) as file:
        header = [str(name) for name in file.schema_arrow.names if not name.startswith("__index_level")]
        left, right = end_columns(path, header, len(header), ends)
        ends = header[left], header[right]
        weights = [header[weight_column(path.name, header, len(header), (left, right))]] if weighted else []
        wanted = [*ends, *weights]
        rows = file.metadata.num_rows
        memory.require(64 * rows * len(wanted), f"{path.name} ({rows:,} edges)", fix="use fewer edges")
        frame = file.read(wanted).select(wanted).to_pandas(ignore_metadata=True)
    raw = from_frame(frame, weighted, path.name, ends)
    if not weighted and len(header) > 2:
        raw.messages.note(_LEFT_OUT.format(count(len(header) - 2, "column")))
    return raw
