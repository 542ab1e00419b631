"""Large lists of edges in plain text, read in pieces by Arrow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..files import open_file
from ..text import LONGEST, TextFile
from .coded import Coded, code_numbers, small

__all__ = ["LARGE", "NotPlainError", "PlainCells", "coded_arrays"]

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
        line: from the number of an edge to that of its line.
    """

    def __init__(
        self,
        file: TextFile,
        separator: str,
        records: Sequence[Sequence[str]],
        skipped: int,
        ends: Collection[int],
        line: Callable[[int], int],
    ) -> None:
        self.separator, self.records, self.line = separator, records, line
        self._file, self._skipped, self._ends = file, skipped, sorted(ends)
        numbers = self._numbers(self._ends, _integers)
        if numbers is not None:
            found, self._codes = code_numbers(np.stack(numbers))
            self._names = found.astype(np.str_)
            return
        arrow = import_module("pyarrow")
        columns = [arrow.chunked_array(parts) for parts in zip(*self._pieces(self._ends), strict=True)]
        self._names, self._codes = coded_arrays(columns)
        odd = pd.Series(self._names, dtype=object).str.contains(r"^[#%]|^-0$|\s" if separator == " " else "^[#%]|^-0$")
        if odd.any() or self._names.dtype.itemsize > 4 * LONGEST:
            raise NotPlainError

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
        found = self._numbers([column], _floats)
        if found is None:
            raise NotPlainError
        rest = found[0]
        if not start:
            first = _floats(import_module("pyarrow").array([self.records[0][column]]))
            if first is None:
                raise NotPlainError
            rest = np.append(first, rest)
        if not bool((np.isfinite(rest) & (rest > 0)).all()):  # the general reader says where
            raise NotPlainError
        return rest

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
        try:
            arrow, text = import_module("pyarrow"), import_module("pyarrow.csv")
        except ImportError:
            raise NotPlainError from None
        names = [str(place) for place in range(len(self.records[0]))]
        wanted = [names[place] for place in columns]
        how = {
            "read_options": text.ReadOptions(block_size=_PIECE, column_names=names, skip_rows=self._skipped + 1),
            "parse_options": text.ParseOptions(delimiter=self.separator, quote_char=False),
            "convert_options": text.ConvertOptions(
                column_types=dict.fromkeys(wanted, arrow.string()), include_columns=wanted, null_values=[]
            ),
        }
        try:
            with open_file(self._file.path) as stream, text.open_csv(stream, **how) as reader:
                for batch in reader:
                    yield batch.columns
        except arrow.ArrowInvalid:
            raise NotPlainError from None


def coded_arrays(columns: Sequence[Any]) -> tuple[NDArray[np.str_], NDArray[np.integer]]:
    """Different names without blanks around them in chunked arrays of texts, and which are where, (columns, rows)."""
    arrow = import_module("pyarrow")
    chunks = arrow.chunked_array([chunk for column in columns for chunk in column.chunks]).dictionary_encode().chunks
    same, names = pd.factorize(pd.Series(chunks[0].dictionary.to_pylist(), dtype=object).str.strip())
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in chunks])
    return names.to_numpy(dtype=np.str_), small(same, len(names))[codes].reshape(len(columns), -1)


def _integers(texts: Any) -> NDArray[np.int64] | None:
    """The numbers that all texts of an array are, as they would be printed."""
    arrow, compute = import_module("pyarrow"), import_module("pyarrow.compute")
    try:
        numbers: NDArray[np.int64] = compute.cast(texts, arrow.int64()).to_numpy()
    except arrow.ArrowInvalid:
        return None
    size = abs(numbers)
    largest = int(size.max(initial=0))
    hexadecimal = any(compute.any(compute.match_substring(texts, letter)).as_py() for letter in "xX")
    # No decimal text is shorter than what is printed, so that all are equal if the sums of their lengths are.
    digits = len(size) + sum(int((size >= 10**k).sum()) for k in range(1, len(str(largest))))
    printed = digits + int((numbers < 0).sum()) == compute.sum(compute.binary_length(texts)).as_py()
    return numbers if printed and largest < 10**18 and not hexadecimal else None


def _floats(texts: Any) -> NDArray[np.float64] | None:
    arrow, compute = import_module("pyarrow"), import_module("pyarrow.compute")
    try:
        return compute.cast(compute.utf8_trim_whitespace(texts), arrow.float64()).to_numpy()
    except arrow.ArrowInvalid:
        return None
