"""Text tables that are larger than memory: converted to Parquet once, in the user's cache, and read from there."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from ...errors import CurvaeError
from ..files import is_packed, places
from ..messages import Messages, one_line, quoted
from ..tables import Roles
from ..text import MISSING, has_decimal_commas, scan
from ..text_tables import UNNAMED, Head, read_head
from .blocks import Counter, block_rows
from .parquet import ParquetBlocks

__all__ = ["TextTable"]

_FOOTPRINT = 4  # bytes in memory for each of the file
_PACKED = 4  # bytes of text for each of a gzipped file
_READ = 1 << 24  # bytes of text that are parsed at once; the first of them decide on the types of columns


class TextTable:
    """A text table that is not read yet.

    Arguments:
        path: the file.
        memory: bytes that rows may take at a time.
        roles: the columns with ids and labels.
        columns: names of the features, if a model is to be given these.
    """

    whole = ""

    def __init__(self, path: Path, memory: int, roles: Roles, columns: tuple[str, ...] | None) -> None:
        self.path, self._memory, self._roles, self._columns = path, memory, roles, columns

    @property
    def footprint(self) -> int:
        """Bytes that all rows would take in memory, about."""
        return _FOOTPRINT * self.path.stat().st_size * (_PACKED if is_packed(self.path) else 1)

    def opened(self, counter: Counter) -> ParquetBlocks:
        """The blocks of the table, which is converted where the cache does not hold it."""
        stat, texts = self.path.stat(), self._roles.texts
        parts = [str(self.path.resolve()), stat.st_size, stat.st_mtime_ns, texts, self._memory]
        mark = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
        folder = places("tables")[-1]
        target = folder / f"{self.path.name.split('.')[0]}-{mark}.parquet"
        if not target.exists():
            part = target.with_suffix(f".{os.getpid()}.part")
            try:
                folder.mkdir(parents=True, exist_ok=True)
                self._convert(part, counter)
                part.replace(target)
            except OSError as error:
                why = error.strerror or one_line(error)
                raise CurvaeError(
                    f"{self.path.name} cannot be converted to Parquet in {folder}: {why}; make room there, or set "
                    "XDG_CACHE_HOME to another folder"
                ) from error
            finally:
                part.unlink(missing_ok=True)
        found = ParquetBlocks(target, self._roles, self._columns)
        found.path = self.path
        return found

    def _convert(self, target: Path, counter: Counter) -> None:
        arrow, parquet, text = _arrow(self.path)
        file, known = scan(self.path), {*self._roles.asked, *(self._columns or ())}
        head = read_head(file, known, Messages())
        if nameless := [place for place, name in enumerate(head.names, 1) if name.startswith(UNNAMED)]:
            raise CurvaeError(f"column {nameless[0]} of {self.path.name} has no name; give it one in the header")
        if len(head.separator) > 1:
            raise CurvaeError(f"{self.path.name} has columns apart by blanks; separate them by commas or tabs")
        how: dict[str, Any] = {
            "read_options": text.ReadOptions(
                block_size=_READ, column_names=head.names, skip_rows=int(head.headed), encoding=file.encoding
            ),
            "parse_options": text.ParseOptions(delimiter=head.separator, newlines_in_values=True),
        }
        fixed = {name: arrow.string() for name in head.names if name in self._roles.texts}
        convert = {"null_values": sorted(MISSING), "decimal_point": "," if _has_commas(head) else "."}
        rows, advance = block_rows(len(head.names), self._memory), counter("converting", file.lines)
        with _errors(self.path, arrow):
            options = text.ConvertOptions(column_types=fixed, **convert)
            with text.open_csv(self.path, convert_options=options, **how) as one:
                types = {field.name: _type(arrow, field.type) for field in one.schema}
            options = text.ConvertOptions(column_types=types, **convert)
            with (
                text.open_csv(self.path, convert_options=options, **how) as reader,
                parquet.ParquetWriter(target, arrow.schema(list(types.items()))) as writer,
            ):
                for batch in reader:
                    writer.write_batch(batch, row_group_size=rows)
                    advance(len(batch))


def _arrow(path: Path) -> tuple[Any, Any, Any]:
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet"), import_module("pyarrow.csv")
    except ImportError as error:
        raise CurvaeError(
            f"{path.name} needs pyarrow to be read in pieces; pip install pyarrow, or raise memory=…"
        ) from error


def _type(arrow: Any, found: Any) -> Any:
    """The type of a column of which the first rows are of a type: whole numbers may be followed by others."""
    numbers = arrow.types.is_integer(found) or arrow.types.is_null(found)
    if numbers or arrow.types.is_floating(found):
        return arrow.float64()
    return found if arrow.types.is_boolean(found) else arrow.string()


def _has_commas(head: Head) -> bool:
    rows = head.records[int(head.headed) :]
    columns = zip(*(row for row in rows if len(row) == len(head.names)), strict=True)
    return any(has_decimal_commas(pd.Series(cells, dtype=str), head.separator) for cells in columns)


@contextmanager
def _errors(path: Path, arrow: Any) -> Iterator[None]:
    try:
        yield
    except arrow.ArrowInvalid as error:
        raise CurvaeError(
            f"{path.name} cannot be converted to Parquet: {one_line(error)}; correct it: a column holds values of one "
            f"kind, missing ones are empty or {quoted(['NA'])}"
        ) from error
