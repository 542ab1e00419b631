"""How a source becomes a matrix: fitted once, stored with a run, applied again to new data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

from ..errors import CurvaeError

__all__ = ["Column", "Kind", "Schema"]

Kind: TypeAlias = Literal["table", "matrix", "images"]
_KINDS: tuple[Kind, ...] = ("table", "matrix", "images")


@dataclass(frozen=True)
class Column:
    """One column of the source.

    Arguments:
        name: as in the source.
        categories: of a categorical column, in the order of its features; None for numbers.
        fill: stands for a missing value: the mean, or the place of the most frequent category.
    """

    name: str
    categories: tuple[str, ...] | None = None
    fill: float = 0.0

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that the column becomes.

        Example:
            >>> Column("colour", ("blue", "red")).features
            ('colour=blue', 'colour=red')
        """
        if self.categories is None:
            return (self.name,)
        return tuple(f"{self.name}={category}" for category in self.categories)


@dataclass(frozen=True)
class Schema:
    """How a source becomes a matrix.

    Arguments:
        kind: of the source.
        columns: those that become features, in order.
        shape: of one row of the matrix.
        label, id, group: columns of a table with these roles.

    Example:
        >>> schema = Schema("table", (Column("size", fill=1.5), Column("colour", ("blue", "red"))), (3,), label="type")
        >>> schema.names
        ('size', 'colour=blue', 'colour=red')
        >>> Schema.from_json(schema.to_json()) == schema
        True
    """

    kind: Kind
    columns: tuple[Column, ...]
    shape: tuple[int, ...]
    label: str | None = None
    id: str | None = None
    group: str | None = None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(name for column in self.columns for name in column.features)

    @property
    def blocks(self) -> tuple[int, ...]:
        """Widths of the one-hot blocks when all columns are categorical, else ()."""
        if any(column.categories is None for column in self.columns):
            return ()
        return tuple(len(column.features) for column in self.columns)

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        columns: list[dict[str, Any]] = []
        for column in self.columns:
            entry: dict[str, Any] = {"name": column.name, "fill": column.fill}
            if column.categories is not None:
                entry["categories"] = list(column.categories)
            columns.append(entry)
        roles = {"label": self.label, "id": self.id, "group": self.group}
        return {"kind": self.kind, "shape": list(self.shape), **roles, "columns": columns}

    @classmethod
    def from_json(cls, d: Any) -> Schema:
        """Inverse of `to_json`."""
        _expect(isinstance(d, dict), "it is no object")
        _expect(d.get("kind") in _KINDS, f"kind is {d.get('kind')!r}, not one of {', '.join(_KINDS)}")
        _expect(isinstance(d.get("columns"), list), "columns is no list")
        _expect(isinstance(d.get("shape"), list) and all(type(n) is int for n in d["shape"]), "shape holds no sizes")
        roles = {role: d.get(role) for role in ("label", "id", "group")}
        _expect(all(isinstance(name, str | None) for name in roles.values()), "label, id or group is no name")
        columns = tuple(_column_from_json(entry, place) for place, entry in enumerate(d["columns"], 1))
        schema = cls(d["kind"], columns, tuple(d["shape"]), **roles)
        _expect(
            math.prod(schema.shape) == len(schema.names) > 0,
            f"shape {schema.shape} does not fit {len(schema.names)} features",
        )
        return schema


def _column_from_json(entry: Any, place: int) -> Column:
    _expect(isinstance(entry, dict) and isinstance(entry.get("name"), str), f"column {place} has no name")
    fill, categories = entry.get("fill"), entry.get("categories")
    _expect(type(fill) in (int, float), f"column {place} has no fill")
    if categories is not None:
        texts = isinstance(categories, list) and all(isinstance(c, str) for c in categories)
        _expect(texts and len(set(categories)) == len(categories) > 0, f"categories of column {place} are not names")
        _expect(fill in range(len(categories)), f"fill of column {place} is no place of a category")
    return Column(entry["name"], None if categories is None else tuple(categories), float(fill))


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise CurvaeError(f"the stored description of the data is malformed: {otherwise}; train again")
