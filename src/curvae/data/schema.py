"""How a source becomes a matrix: fitted to the training data, stored with a run, applied to new data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import eq
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import CurvaeError
from . import memory

__all__ = ["Column", "Kind", "NumberColumns", "PixelNames", "Schema", "one_hot", "source_columns"]

Kind: TypeAlias = Literal["table", "matrix", "images"]
_KINDS: tuple[Kind, ...] = ("table", "matrix", "images")


@dataclass(frozen=True)
class Column:
    """One column of the source.

    Arguments:
        name: name in the source.
        categories: categories in the order of their features; None for a column of numbers.
        fill: replacement for a missing value: the mean, the position of the most frequent category, or of a binary
            column the more frequent value.
        binary: whether the column has the values 0 and 1, both of them and no others.
        scale: standard deviation of a numeric covariate; 1 otherwise.
    """

    name: str
    categories: tuple[str, ...] | None = None
    fill: float = 0.0
    binary: bool = False
    scale: float = 1.0

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


Item = TypeVar("Item")


class _Made(Sequence[Item]):
    """A sequence that makes its items on access, since millions of stored objects would take gigabytes."""

    def _item(self, place: int) -> Item:
        raise NotImplementedError

    def __getitem__(self, place: Any) -> Any:
        places = range(len(self))[place]
        return tuple(map(self._item, places)) if isinstance(places, range) else self._item(places)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]


class PixelNames(_Made[str]):
    """Names of the pixels of an image, row by row.

    Example:
        >>> PixelNames(2, 3)[:4]
        ('r1c1', 'r1c2', 'r1c3', 'r2c1')
    """

    def __init__(self, height: int, width: int) -> None:
        self.height, self.width = height, width

    def __len__(self) -> int:
        return self.height * self.width

    def _item(self, place: int) -> str:
        row, column = divmod(place, self.width)
        return f"r{row + 1}c{column + 1}"


class NumberColumns(_Made[Column]):
    """Columns of numbers.

    Arguments:
        names: names of the columns.
        fills: replacement for the missing values of each column, (columns,); 0 by default.
    """

    def __init__(self, names: Sequence[str], fills: NDArray[np.float64] | None = None) -> None:
        self.names, self.fills = names, fills

    def __len__(self) -> int:
        return len(self.names)

    def _item(self, place: int) -> Column:
        return Column(self.names[place], fill=0.0 if self.fills is None else float(self.fills[place]))


@dataclass(frozen=True)
class Schema:
    """How a source becomes a matrix.

    Arguments:
        kind: table, matrix or images.
        columns: the columns that become features, in order.
        shape: shape of one row of the matrix.
        label, id, group, exposure: names of the columns of a table with these roles, or None.
        covariates: columns that the networks are given but do not model; none of them is a feature.

    Example:
        >>> schema = Schema("table", (Column("size", fill=1.5), Column("colour", ("blue", "red"))), (3,), label="type")
        >>> schema.names
        ('size', 'colour=blue', 'colour=red')
        >>> Schema.from_json(schema.to_json()) == schema
        True
    """

    kind: Kind
    columns: Sequence[Column]
    shape: tuple[int, ...]
    label: str | None = None
    id: str | None = None
    group: str | None = None
    exposure: str | None = None
    covariates: tuple[Column, ...] = ()

    @cached_property
    def names(self) -> Sequence[str]:
        """Unique names of the features: a category that would have the name of another feature gets a number.

        Example:
            >>> Schema("table", (Column("a=b"), Column("a", ("b", "c"))), (3,)).names
            ('a=b', 'a=b (2)', 'a=c')
        """
        return self.columns.names if isinstance(self.columns, NumberColumns) else _names(self.columns)

    @property
    def context_names(self) -> tuple[str, ...]:
        """Names of the columns that the covariates become."""
        return _names(self.covariates)

    @property
    def column_names(self) -> Sequence[str]:
        """Names of the columns."""
        columns = self.columns
        return columns.names if isinstance(columns, NumberColumns) else [column.name for column in columns]

    @property
    def fills(self) -> NDArray[np.float64]:
        """Replacement for the missing values of each column, (columns,)."""
        if isinstance(self.columns, NumberColumns) and self.columns.fills is not None:
            return self.columns.fills
        return np.array([column.fill for column in self.columns])

    @property
    def categorical(self) -> bool:
        """Whether some column is categorical."""
        numbers = isinstance(self.columns, NumberColumns)  # of which there may be millions
        return not numbers and any(column.categories is not None for column in self.columns)

    @property
    def blocks(self) -> tuple[int, ...]:
        """Number of categories of each column, 1 if it is binary, 0 for numbers; () if all are numbers.

        Example:
            >>> Schema("table", (Column("size"), Column("colour", ("blue", "red"))), (3,)).blocks
            (0, 2)
        """
        if isinstance(self.columns, NumberColumns):
            return ()
        blocks = tuple(int(c.binary) if c.categories is None else len(c.categories) for c in self.columns)
        return blocks if any(blocks) else ()

    def to_json(self) -> dict[str, Any]:
        """Convert to plain values for JSON."""
        return {
            "kind": self.kind,
            "shape": list(self.shape),
            "label": self.label,
            "id": self.id,
            "group": self.group,
            **({} if self.exposure is None else {"exposure": self.exposure}),
            "columns": [_column_to_json(column) for column in self.columns],
            **({"covariates": [_column_to_json(column) for column in self.covariates]} if self.covariates else {}),
        }

    @classmethod
    def from_json(cls, d: Any) -> Schema:
        """Inverse of `to_json`."""
        _expect(isinstance(d, dict), "it is not an object")
        _expect(d.get("kind") in _KINDS, f"kind is {d.get('kind')!r}, not one of {', '.join(_KINDS)}")
        _expect(isinstance(d.get("columns"), list), "columns is not a list")
        _expect(
            isinstance(d.get("shape"), list) and all(type(n) is int for n in d["shape"]),
            "shape is not a list of integers",
        )
        roles = {role: d.get(role) for role in ("label", "id", "group", "exposure")}
        _expect(
            all(isinstance(name, str | None) for name in roles.values()), "label, id, group or exposure is not a name"
        )
        _expect(isinstance(d.get("covariates", []), list), "covariates is not a list")
        columns, covariates = (
            tuple(_column_from_json(entry, place) for place, entry in enumerate(entries, 1))
            for entries in (d["columns"], d.get("covariates", []))
        )
        schema = cls(d["kind"], columns, tuple(d["shape"]), **roles, covariates=covariates)
        _expect(
            math.prod(schema.shape) == len(schema.names) > 0,
            f"shape {schema.shape} does not fit {len(schema.names)} features",
        )
        return schema


def one_hot(x: Any, columns: Sequence[Column], source: str) -> NDArray[np.float64]:
    """Replace each column of category codes by one column per category.

    Arguments:
        x: numbers, (rows, columns); in a categorical column the position of the category, or NaN.
        columns: descriptions of the columns of x.
        source: name of the data in messages.

    Returns:
        Features, (rows, features); all categories of a missing value are NaN.
    """
    widths = [len(column.features) for column in columns]
    memory.require(8 * len(x) * sum(widths), f"{source} with one column a category ({len(x):,} × {sum(widths):,})")
    features = np.zeros((len(x), sum(widths)))
    for j, (column, start) in enumerate(zip(columns, np.cumsum([0, *widths[:-1]]), strict=True)):
        if column.categories is None:
            features[:, start] = x[:, j]
        else:
            known = np.isfinite(x[:, j])
            features[known.nonzero()[0], start + x[known, j].astype(np.intp)] = 1.0
            features[~known, start : start + len(column.features)] = np.nan
    return features


def source_columns(x: NDArray[np.float64], columns: Sequence[Column]) -> dict[str, Any]:
    """Convert features back to the columns of the source, by name: of categories the most probable one, as text.

    Example:
        >>> source_columns(np.array([[1.5, 0.2, 0.8]]), [Column("size"), Column("colour", ("blue", "red"))])
        {'size': array([1.5]), 'colour': array(['red'], dtype='<U4')}
    """
    found: dict[str, Any] = {}
    start = 0
    for column in columns:
        block = x[:, start : start + len(column.features)]
        if column.categories is not None:
            found[column.name] = np.array(column.categories)[block.argmax(1)]
        else:
            whole = column.binary and bool(np.isin(block, (0, 1)).all())
            found[column.name] = block[:, 0].astype(np.int64) if whole else block[:, 0]
        start += len(column.features)
    return found


def _names(columns: Sequence[Column]) -> tuple[str, ...]:
    """Unique names of the features that columns become."""
    taken = {column.name for column in columns if column.categories is None}
    names: list[str] = []
    for column in columns:
        names += column.features if column.categories is None else _unlike(taken, column.features)
    return tuple(names)


def _unlike(taken: set[str], names: Iterable[str]) -> list[str]:
    """Append a number to names that are taken, and take them all."""
    found = []
    for name in names:
        spellings = itertools.chain([name], (f"{name} ({number})" for number in itertools.count(2)))
        found.append(next(spelling for spelling in spellings if spelling not in taken))
        taken.add(found[-1])
    return found


def _column_to_json(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "fill": column.fill,
        **({} if column.scale == 1 else {"scale": column.scale}),
        **({} if column.categories is None else {"categories": list(column.categories)}),
        **({"binary": True} if column.binary else {}),
    }


def _column_from_json(entry: Any, place: int) -> Column:
    _expect(isinstance(entry, dict) and isinstance(entry.get("name"), str), f"column {place} has no name")
    fill, scale, categories = entry.get("fill"), entry.get("scale", 1.0), entry.get("categories")
    _expect(type(fill) in (int, float), f"column {place} has no fill")
    _expect(type(scale) in (int, float) and 0 < scale < math.inf, f"scale of column {place} is not a positive number")
    if categories is not None:
        texts = isinstance(categories, list) and all(isinstance(c, str) for c in categories)
        _expect(texts and len(set(categories)) == len(categories) > 0, f"categories of column {place} are not names")
        _expect(fill in range(len(categories)), f"fill of column {place} is not the position of a category")
    binary = entry.get("binary", False)
    _expect(type(binary) is bool and not (binary and categories), f"column {place} cannot be binary")
    return Column(entry["name"], None if categories is None else tuple(categories), float(fill), binary, float(scale))


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise CurvaeError(f"the stored description of the data is malformed: {otherwise}; train again")
