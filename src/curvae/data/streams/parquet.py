"""Parquet files and folders of them: a row group is a block, of which only the columns needed are decoded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import CurvaeError
from ..column_values import numbers_of, texts_of
from ..messages import Messages, quoted
from ..raw import RawData
from ..schema import Column
from ..tables import Roles, opened_parquet, require_column
from .blocks import Blocks

__all__ = ["ParquetBlocks"]

_CELLS = 1 << 18  # decoded at once
_BUFFER = 1 << 16  # bytes of a column that are read at once
_VALUE, _ROW = 16, 400  # bytes in memory of a value, and of a row besides its values
_INDEX = re.compile(r"__index_level_\d+__")  # of pandas, where it has no name


class ParquetBlocks(Blocks):
    """A Parquet file, or all those of a folder in the order of their names.

    Arguments:
        path: the file or folder.
        roles: the columns with ids and labels; all others are features.
        columns: names of the features, if a model is to be given these, and then ids and labels may be absent; by
            default all that have no role.
    """

    kind = "table"

    def __init__(self, path: Path, roles: Roles, columns: tuple[str, ...] | None = None) -> None:
        files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        if not files:
            raise CurvaeError(f"{path} contains no .parquet files; give another folder")
        super().__init__(path, files)
        kinds: dict[str, str] = {}
        self._places: list[tuple[Path, int]] = []
        self._footer: tuple[Path | None, Any] = None, None  # of the file that was read last: a long one takes a while
        sizes = []
        for file in files:
            with opened_parquet(file) as opened:
                own = {field.name: _kind(field.type) for field in opened.schema_arrow}
                if not kinds:
                    roles = self.roles = _roles(file, own, roles, columns is not None)
                    self.names = self._features(file, own, columns)
                    kinds = {name: own[name] for name in (*self.names, *roles.texts)}
                _require_alike(file, files[0], own, kinds)
                counts = [opened.metadata.row_group(i).num_rows for i in range(opened.metadata.num_row_groups)]
            self._places += [(file, i) for i, count in enumerate(counts) if count]
            sizes += [count for count in counts if count]
        self.sizes = np.array(sizes, np.int64)

    def _features(self, file: Path, present: dict[str, str], columns: tuple[str, ...] | None) -> tuple[str, ...]:
        if columns is None:
            return tuple(name for name in present if name not in self.roles.texts and not _INDEX.fullmatch(name))
        if absent := [name for name in columns if name not in present]:
            raise CurvaeError(f"{file.name} has no columns {quoted(absent)}, which the model was trained on; add them")
        return columns

    @property
    def footprint(self) -> int:
        return len(self) * (_VALUE * len(self.names) + _ROW)

    def read(self, block: int, named: bool = False) -> Iterator[RawData]:
        file, group = self._places[block]
        self.require_unchanged(file)
        label, name = (self.roles.label, self.roles.id) if named else (None, None)
        wanted = [*self.names, *(role for role in (label, name) if role is not None)]
        columns = tuple(Column(feature) for feature in self.names)
        fix = "use label={0} or id={0}, or remove it"
        known, footer = self._footer
        with opened_parquet(file, buffer_size=_BUFFER, metadata=footer if known == file else None) as opened:
            self._footer = file, opened.metadata
            rows = max(1, _CELLS // len(wanted))
            for batch in opened.iter_batches(rows, row_groups=[group], columns=wanted, use_threads=False):
                frame = batch.to_pandas(ignore_metadata=True)
                yield RawData(
                    source=file.name,
                    kind=self.kind,
                    x=numbers_of(file, frame[list(self.names)], columns, fix, Messages()),
                    columns=columns,
                    ids=None if name is None else texts_of(frame[name]),
                    labels=None if label is None else texts_of(frame[label]),
                    label_name=self.roles.label,
                    roles={"label": self.roles.label, "id": self.roles.id},
                )


def _roles(file: Path, present: dict[str, str], roles: Roles, known: bool) -> Roles:
    """The roles whose columns are there; raises for others, unless they are `known` from other data."""
    found = {}
    for role in ("label", "id"):
        found[role] = name = getattr(roles, role)
        if known and name not in present:
            found[role] = None
        require_column(file, role, found[role], list(present))
    return Roles(found["label"], found["id"])


def _kind(type_: Any) -> str:
    """What values of a type of Arrow are: numbers, or their type as it is written."""
    types: Any = import_module("pyarrow").types
    numbers = types.is_integer, types.is_floating, types.is_boolean, types.is_decimal
    return "numbers" if any(test(type_) for test in numbers) else str(type_)


def _require_alike(file: Path, first: Path, own: dict[str, str], kinds: dict[str, str]) -> None:
    """Raise unless a file has the columns of the first, with values of the same kind."""
    for name, kind in kinds.items():
        if name not in own:
            raise CurvaeError(f"{file.name} has no column {name!r}, which {first.name} has; add it, or remove the file")
        if own[name] != kind:
            raise CurvaeError(
                f"column {name!r} holds {own[name]} in {file.name} and {kind} in {first.name}; write both alike"
            )
