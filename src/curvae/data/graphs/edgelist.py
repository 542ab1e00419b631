"""Edge lists: text files with two names a line. Separator, comments, header and encoding are found out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...errors import CurvaeError
from .. import memory
from ..files import is_packed
from ..reading import NUMBER, check_cells, scan
from ..remarks import Remarks, count, quoted
from .ends import INTEGER, end_columns, looks_like_header, name_nodes, weight_column
from .lines import COMMA_NUMBER, WANTED, Lines, check_widths, look, sniff, unreadable
from .links import GraphDraft

__all__ = ["read_edge_list"]


def read_edge_list(path: Path, weighted: bool) -> GraphDraft:
    """Read a list of edges.

    Arguments:
        path: of a text file, which may be gzipped: two names a line, apart by blanks, tabs, commas or semicolons, and
            then perhaps a weight; lines that start with # or % are comments.
        weighted: whether weights are asked for.
    """
    remarks = Remarks()
    file = scan(path, WANTED)
    if file.encoding == "latin-1":
        remarks.note("the file is not UTF-8 and was read as Latin-1.")
    lines = look(file)
    separator, records = sniff(lines)
    width = len(records[0])
    memory.require(64 * lines.total * width, f"{path.name} ({lines.total:,} lines)", mend="use fewer edges")
    frame = _parse(lines, separator, width)
    check_cells(path, frame)
    header = _header(records, frame)
    if header is not None:
        remarks.note(f"the first line was taken as a header: {quoted(header)}.")
        frame = frame.iloc[1:]
    left, right = end_columns(header)
    skipped = 0 if header is None else 1
    for column in (left, right):
        if (empty := (frame[column].str.strip() == "").to_numpy()).any():
            line = lines.number(int(np.argmax(empty)) + skipped)
            raise CurvaeError(f"{path.name}: line {line} names one node only; give {WANTED}")
    if not any(re.search(r"\w", record[right]) for record in records):  # an arrow, or another format
        raise CurvaeError(f"{path.name} has {records[0][right]!r} where a second name should stand; remove it")
    weights = None
    if weighted:
        column = weight_column(path.name, header, width)
        weights = _weights(lines, frame[column], skipped, separator, remarks)
    elif width > 2:
        remarks.note(f"left out: {count(width - 2, 'column')} beside the names; use weighted=True to read weights.")
    names, links = name_nodes(frame[left], frame[right])
    if header is None:
        _judge_first(names, links, remarks)
    draft = GraphDraft(path.name, names, links, weights, remarks=remarks)
    draft.check_weights(lambda row: f"line {lines.number(row + skipped)}")
    return draft


def _parse(lines: Lines, separator: str, width: int) -> pd.DataFrame:
    """All lines as texts, columns numbered."""
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
        check_widths(lines, separator, width)
        raise unreadable(lines) from error
    # A line that is too short looks like one that ends in an empty field.
    swallowed = len(frame) != lines.total - len(lines.skipped)
    if swallowed or bool((frame[width - 1] == "").any()):
        check_widths(lines, separator, width)
    if swallowed:
        raise unreadable(lines)
    return frame


def _header(records: Sequence[Sequence[str]], frame: pd.DataFrame) -> list[str] | None:
    """The first line, if it holds names of columns: then no node is called so."""
    if not looks_like_header(records):
        return None
    header = list(records[0])
    ends = end_columns(header)
    again = frame.iloc[1:, list(ends)].isin([header[column] for column in ends])
    return None if bool(again.to_numpy().any()) else header


def _weights(lines: Lines, cells: Any, skipped: int, separator: str, remarks: Remarks) -> NDArray[np.float64]:
    texts = cells.str.strip()
    wrong = ~texts.str.fullmatch(NUMBER).to_numpy(bool)
    if wrong.any() and separator != ",":
        texts = texts.where(~texts.str.fullmatch(COMMA_NUMBER), texts.str.replace(",", "."))
        if (texts != cells.str.strip()).any():
            remarks.note("numbers were read with decimal commas.")
        wrong = ~texts.str.fullmatch(NUMBER).to_numpy(bool)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise CurvaeError(
            f"{lines.name}: line {lines.number(row + skipped)} has weight {cells.iloc[row]!r}; "
            "give positive numbers, or leave out weighted=True"
        )
    return texts.to_numpy(dtype=np.str_).astype(np.float64)


def _judge_first(names: NDArray[np.str_], links: NDArray[np.int64], remarks: Remarks) -> None:
    first = links[0]
    if len(links) > 2 and not np.isin(links[1:], first).any() and not re.fullmatch(INTEGER, names[first[0]]):
        a, b = names[first]
        remarks.warn(
            f"the first line joins {str(a)!r} and {str(b)!r}, which no other line names; "
            "put # before it if it is a header."
        )
