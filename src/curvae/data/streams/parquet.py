"""Parquet files and folders of them: a row group is a block, of which only the columns needed are decoded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import astuple, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...errors import CurvaeError
from ..messages import Messages, quoted
from ..raw import RawData
from ..schema import Schema
from ..tables import Roles, check_roles, opened_parquet, sorted_columns
from .blocks import Blocks

__all__ = ["ParquetBlocks"]

_CELLS = 1 << 18  # decoded at once
_BUFFER = 1 << 16  # bytes of a column that are read at once
_VALUE, _TEXT, _ROW = 16, 100, 400  # bytes in memory of a value, of a text, and of a row besides these
_INDEX = re.compile(r"__index_level_\d+__")  # of pandas, where it has no name
_EMPTY = "null"  # the type of a column without a single value


class ParquetBlocks(Blocks):
    """A Parquet file, or all those of a folder in the order of their names.

    Arguments:
        path: the file or folder.
        roles: columns with a role; all others are features.
        columns: names of the features, if a model is to be given these, and then ids, labels, groups and covariates may
            be absent; by default all that have no other role.

    Attributes:
        kinds: what the columns hold: "numbers", or the name of another type.
    """

    kind = "table"

    def __init__(self, path: Path, roles: Roles, columns: tuple[str, ...] | None = None) -> None:
        files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        if not files:
            raise CurvaeError(f"{path} contains no .parquet files; give another folder")
        super().__init__(path, files)
        self.kinds: dict[str, str] = {}
        self._places: list[tuple[Path, int, int]] = []
        self._footer: tuple[Path | None, Any] = None, None  # of the file that was read last: a long one takes a while
        sizes = []
        for file in files:
            with opened_parquet(file) as opened:
                own = {field.name: _kind(field.type) for field in opened.schema_arrow}
                if not self.kinds:
                    roles = self.roles = _roles(file, roles, list(own), columns is not None)
                    self.names = self._features(file, own, columns)
                    self.kinds = {name: own[name] for name in (*self.names, *roles.asked)}
                self._require_alike(file, own)
                counts = [opened.metadata.row_group(i).num_rows for i in range(opened.metadata.num_row_groups)]
            firsts = np.cumsum([0, *counts]).tolist()
            self._places += [(file, i, firsts[i]) for i, count in enumerate(counts) if count]
            sizes += [count for count in counts if count]
        self.sizes = np.array(sizes, np.int64)

    def _features(self, file: Path, present: dict[str, str], columns: tuple[str, ...] | None) -> tuple[str, ...]:
        if columns is None:
            roles = self.roles
            taken = {roles.label, roles.id, roles.group, roles.exposure, *roles.covariates}
            return tuple(name for name in present if name not in taken and not _INDEX.fullmatch(name))
        if absent := [name for name in columns if name not in present]:
            raise CurvaeError(f"{file.name} has no columns {quoted(absent)}, which the model was trained on; add them")
        return columns

    def _require_alike(self, file: Path, own: dict[str, str]) -> None:
        """Raise unless a file has the columns of the first, with values of the same kind."""
        first = self.files[0]
        for name, kind in self.kinds.items():
            if name not in own:
                raise CurvaeError(
                    f"{file.name} has no column {name!r}, which {first.name} has; add it, or remove the file"
                )
            if kind == _EMPTY:
                self.kinds[name] = own[name]
            elif own[name] not in (kind, _EMPTY):
                raise CurvaeError(
                    f"column {name!r} holds {own[name]} in {file.name} and {kind} in {first.name}; write both alike"
                )

    @property
    def _told(self) -> Any:
        return astuple(self.roles)

    @property
    def footprint(self) -> int:
        texts = len(self.roles.categorical)
        return len(self) * (_VALUE * (len(self.names) + len(self.roles.covariates)) + _TEXT * texts + _ROW)

    def columns(self, named: bool = True) -> list[str]:
        """Columns that are features or have a role; without those that only name rows, if these are not wanted."""
        roles = self.roles
        names = (roles.label, roles.id, roles.group) if named else ()
        wanted = (*self.names, *roles.covariates, roles.exposure, *names)
        return [name for name in dict.fromkeys(wanted) if name is not None]

    def frames(self, block: int, columns: Sequence[str], width: int = 0) -> Iterator[tuple[Path, pd.DataFrame, int]]:
        """Some columns of a block, a piece at a time: with its file, and how many rows of this come before.

        The pieces are so small that as many rows of `width` values take little memory.
        """
        file, group, first = self._places[block]
        known, footer = self._footer
        metadata = footer if known == file else None
        with self.unchanged(file), opened_parquet(file, buffer_size=_BUFFER, metadata=metadata) as opened:
            self._footer = file, opened.metadata
            rows = max(1, _CELLS // max(len(columns), width))
            for batch in opened.iter_batches(rows, row_groups=[group], columns=list(columns), use_threads=False):
                yield file, batch.to_pandas(ignore_metadata=True), first
                first += len(batch)

    def read(self, block: int, schema: Schema | None = None, named: bool = False) -> Iterator[RawData]:
        assert schema is not None
        width = len(schema.names) + len(schema.context_names)
        for file, frame, first in self.frames(block, self.columns(named), width):
            yield sorted_columns(file, frame, Roles(), schema, Messages(), first)


def _roles(file: Path, roles: Roles, present: Sequence[str], known: bool) -> Roles:
    """The roles whose columns are there; raises for others, unless they are `known` from other data."""
    if known:
        held = {role: name if (name := getattr(roles, role)) in present else None for role in ("label", "id", "group")}
        categorical = tuple(name for name in roles.categorical if name in present)
        covariates = roles.covariates if set(roles.covariates) <= set(present) else ()
        if roles.exposure is not None and roles.exposure not in present:
            raise CurvaeError(
                f"{file.name} has no column {roles.exposure!r}, the exposure that the model was trained with; add it"
            )
        return replace(roles, **held, categorical=categorical, covariates=covariates)
    check_roles(file, roles, present)
    return roles


def _kind(type_: Any) -> str:
    """What values of a type of Arrow are: numbers, or their type as it is written."""
    types: Any = import_module("pyarrow").types
    if types.is_dictionary(type_) and _kind(type_.value_type) == "string":
        return "string"
    if types.is_string(type_) or types.is_large_string(type_):
        return "string"
    numbers = types.is_integer, types.is_floating, types.is_boolean, types.is_decimal
    return "numbers" if any(test(type_) for test in numbers) else str(type_)
