"""Rows on disk as a data set that is never in memory as a whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import issparse, vstack

from ...errors import CurvaeError
from .. import memory as machine
from ..columns import ColumnAdvice, RawData
from ..dataset import Arrays, Column, Dataset, Missing, MissingValuesError, Schema, has_missing
from ..files import Messages, count, listing, places, quoted
from ..matrices import map_npy
from ..tables import (
    NOT_NUMBERS,
    TABLES,
    Roles,
    covariate_column,
    covariate_numbers,
    exposure_of,
    refuse_gaps,
    sort_features,
)
from ..text_tables import MISSING, in_order, is_text, numbers_of, texts_of
from .blocks import Blocks, CsrBlocks, NpyBlocks, ParquetBlocks, TextTable, is_csr

__all__ = [
    "MOST",
    "Moments",
    "Stream",
    "Summary",
    "Survey",
    "Tally",
    "find_blocks",
    "open_stream",
    "remembered",
    "summarised",
    "surveyed",
]


# What is known of the columns of a stream after one pass over it.
#
# Means and sums of squares of blocks are merged in float64 (Chan, Golub, LeVeque, 1979, Updating formulae and a
# pairwise algorithm for computing sample variances): equal to those of all rows at once but for rounding, in any order.

Array = NDArray[np.float64]

_FEW = 64


@dataclass(frozen=True)
class Summary:
    """Figures of the columns of some rows.

    Arguments:
        rows: how many.
        present: values of each column that are there, (columns,).
        origin: some number near these, (columns,), so that the digits of their differences are not lost.
        offset: mean of these less the origin, (columns,).
        squares: sum of their squared differences from the mean, (columns,).
        low, high: the extremes, (columns,); NaN for a column without values.
        other: some value that is neither 0 nor 1, (columns,); NaN where there is none.
        broken: some value that is no whole number, (columns,); NaN where there is none.
        digest: SHA-256 of the values.
    """

    rows: int
    present: Array
    origin: Array
    offset: Array
    squares: Array
    low: Array
    high: Array
    other: Array
    broken: Array
    digest: str = ""

    @classmethod
    def of(cls, x: NDArray[Any], origin: Array | None = None) -> Summary:
        """Of a matrix, (rows, columns), in which values may be missing; those to be merged need the same origin.

        A sparse one is not spread out.

        Example:
            >>> found = Summary.of(np.array([[1.0, 2.0], [3.0, np.nan]]))
            >>> found.mean.tolist(), found.squares.tolist(), found.present.tolist()
            ([2.0, 2.0], [2.0, 0.0], [2.0, 1.0])
        """
        if issparse(x):
            return cls._of_sparse(x, origin)
        there = np.isfinite(x) if has_missing(x) else None
        where: dict[str, Any] = {} if there is None else {"where": there}
        present = np.full(x.shape[1], len(x), np.float64) if there is None else there.sum(0).astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            if origin is None:
                origin = x.sum(0, dtype=np.float64, **where) / np.maximum(present, 1)
            apart = x - origin
            offset = apart.sum(0, **where) / np.maximum(present, 1)
            apart -= offset
            squares = np.square(apart, out=apart).sum(0, **where)
        low = x.min(0, initial=np.inf, **where).astype(np.float64)
        high = x.max(0, initial=-np.inf, **where).astype(np.float64)
        low, high = (np.where(present > 0, values, np.nan) for values in (low, high))
        other, broken = _one_of(x, _is_other), _one_of(x, _is_broken)
        return cls(len(x), present, origin, offset, squares, low, high, other, broken)

    @classmethod
    def _of_sparse(cls, x: Any, origin: Array | None) -> Summary:
        """Of a CSR matrix without duplicates, of which only what is stored may be missing: all else is 0."""
        rows, width = x.shape
        there = np.isfinite(x.data)
        values, columns = x.data[there].astype(np.float64), x.indices[there]
        present = rows - np.bincount(x.indices[~there], minlength=width).astype(np.float64)
        zeros = rows - np.bincount(x.indices, minlength=width)
        with np.errstate(over="ignore", invalid="ignore"):
            if origin is None:
                origin = np.zeros(width)  # which is near most values
            apart = values - origin[columns]
            offset = (np.bincount(columns, apart, width) - zeros * origin) / np.maximum(present, 1)
            squares = np.bincount(columns, (apart - offset[columns]) ** 2, width) + zeros * (origin + offset) ** 2
        low, high = np.where(zeros > 0, 0.0, np.inf), np.where(zeros > 0, 0.0, -np.inf)
        np.minimum.at(low, columns, values)
        np.maximum.at(high, columns, values)
        low, high = (np.where(present > 0, extreme, np.nan) for extreme in (low, high))
        other, broken = (np.full(width, np.nan) for _ in range(2))
        for found, holds in ((other, _is_other), (broken, _is_broken)):
            which = holds(values)
            found[columns[which]] = values[which]
        return cls(rows, present, origin, offset, squares, low, high, other, broken)

    def merge(self, more: Summary) -> Summary:
        """Of the rows of both."""
        present = self.present + more.present
        share = more.present / np.maximum(present, 1)
        with np.errstate(over="ignore", invalid="ignore"):
            apart = more.offset - self.offset
            offset = self.offset + apart * share
            squares = self.squares + more.squares + apart**2 * self.present * share
        return Summary(
            self.rows + more.rows,
            present,
            self.origin,
            offset,
            squares,
            np.fmin(self.low, more.low),
            np.fmax(self.high, more.high),
            np.where(np.isnan(self.other), more.other, self.other),
            np.where(np.isnan(self.broken), more.broken, self.broken),
        )

    @property
    def mean(self) -> Array:
        """Means of the columns, (columns,)."""
        return self.origin + self.offset

    @property
    def deviation(self) -> Array:
        """Standard deviations of the columns, (columns,)."""
        return np.sqrt(self.squares / np.maximum(self.present, 1))

    @property
    def examples(self) -> Array:
        """Four rows that have what all rows have: extremes, and values other than 0 and 1 and whole numbers."""
        values = np.stack([self.low, self.high, self.other, self.broken])
        return np.where(np.isnan(values), self.low, values)

    def filled(self) -> Summary:
        """Of the same rows with the mean of its column for every missing value."""
        gaps, mean = self.present < self.rows, self.mean
        other, broken = (
            np.where(gaps & np.isnan(known) & holds(mean), mean, known)
            for known, holds in ((self.other, _is_other), (self.broken, _is_broken))
        )
        return replace(self, present=np.full_like(self.present, self.rows), other=other, broken=broken)

    def mean_without(self, x: NDArray[Any]) -> Array:
        """Means of the columns without some of the rows, (columns,)."""
        left = Summary.of(x, self.origin)
        present = np.maximum(self.present - left.present, 1)
        return self.mean + (self.offset - left.offset) * (left.present / present)


def _is_other(x: NDArray[Any]) -> NDArray[np.bool_]:
    return (x != 0) & (x != 1) & np.isfinite(x)


def _is_broken(x: NDArray[Any]) -> NDArray[np.bool_]:
    return (x != np.rint(x)) & np.isfinite(x)


def _one_of(x: NDArray[Any], holds: Callable[[NDArray[Any]], NDArray[np.bool_]]) -> Array:
    """One of the values of each column for which it holds; NaN where it holds for none."""
    found = np.full(x.shape[1], np.nan)
    for rows in (x[:_FEW], x[_FEW:]):  # most columns have one among the first
        lacking = np.flatnonzero(np.isnan(found))
        if not (len(lacking) and len(rows)):
            break
        values = rows[:, lacking]
        which = holds(values)
        place, columns = which.argmax(0), np.arange(len(lacking))
        found[lacking] = np.where(which[place, columns], values[place, columns], np.nan)
    return found


def summarised(pieces: Iterable[Any], source: str, advance: Callable[[int], None], names: Sequence[str]) -> Summary:
    """Summarise rows that come in pieces.

    Arguments:
        pieces: matrices of the same columns.
        source: what they come from, for messages.
        advance: called with the number of rows of each piece.
        names: of the columns.
    """
    found: Summary | None = None
    digest = hashlib.sha256()
    for x in pieces:
        for part in (x.indptr, x.indices, x.data) if issparse(x) else (x,):
            digest.update(part.data)
        own = Summary.of(x, None if found is None else found.origin)
        found = own if found is None else found.merge(own)
        advance(own.rows)
    if found is None or found.rows < 2:
        raise CurvaeError(f"{source} has fewer than 2 rows to learn from; give more")
    if (wide := np.flatnonzero(~np.isfinite(found.squares))).size:
        large = quoted(names[int(j)] for j in wide)
        raise CurvaeError(f"the squares of {large} are too large for a number; divide these columns by a constant")
    return replace(found, digest=digest.hexdigest())


# What one pass over the files finds: figures of the columns of numbers, and which values other columns have.

MOST = 100_000
"""different values of a column of categories, at most"""

_GROUPS = 1_000_000  # the same of groups
_LOOK = 100  # different values of a covariate of numbers that are looked at


@dataclass
class Tally:
    """How often each value of a column occurs, in the order in which they appear: texts, or numbers where these are
    categories, for how a number is written depends on the others."""

    counts: dict[Any, int] = field(default_factory=dict)
    gaps: int = 0
    """rows without a value"""

    def __post_init__(self) -> None:
        self._places = {key: place for place, key in enumerate(self.counts)}

    def add(self, values: Any, digest: hashlib._Hash) -> None:
        """Count a series of pandas, and add the places of its values to a hash."""
        codes, distinct = pd.factorize(values)
        keys = _keys(pd.Series(distinct))
        times = np.bincount(codes + 1, minlength=len(keys) + 1)
        self.gaps += int(times[0])
        at = np.full(len(keys) + 1, -1, np.int64)
        for place, (key, number) in enumerate(zip(keys, times[1:].tolist(), strict=True)):
            if key is None:
                self.gaps += number
            elif number:
                at[place] = self._places.setdefault(key, len(self._places))
                self.counts[key] = self.counts.get(key, 0) + number
        digest.update(at[codes].tobytes())

    @property
    def texts(self) -> dict[str, int]:
        """How often each occurs, as a person would write it."""
        numbers = [key for key in self.counts if not isinstance(key, str)]
        whole = all(key % 1 == 0 for key in numbers)
        found: dict[str, int] = {}
        for key, number in self.counts.items():
            text = key if isinstance(key, str) else str(int(key) if whole else float(key))
            found[text] = found.get(text, 0) + number
        return found

    def counts_of(self, categories: Iterable[str]) -> NDArray[np.float64]:
        """Rows of each of these categories, (categories,)."""
        texts = self.texts
        return np.array([texts[category] for category in categories], np.float64)


def _keys(distinct: Any) -> list[Any]:
    """Values as a tally has them; None for those that are missing."""
    kind = pd.api.types
    if kind.is_numeric_dtype(distinct.dtype) and not kind.is_bool_dtype(distinct.dtype):
        return distinct.tolist()
    return [None if text in MISSING else text for text in texts_of(distinct, strip=True).tolist()]


@dataclass(frozen=True)
class Survey:
    """What is known of the columns of files.

    Arguments:
        numbers: figures of the columns of numbers.
        names: of these columns: features, covariates and the exposure; None of a matrix.
        tallies: of columns of categories, covariates that are texts, and groups, by name.
        few: different values of covariates that are numbers, where there are few.
        notes, warnings: about what was converted.
        left_out: columns of texts that are not used, with the reason.
    """

    numbers: Summary
    names: tuple[str, ...] | None = None
    tallies: Mapping[str, Tally] = field(default_factory=dict)
    few: Mapping[str, list[float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        return self.numbers.digest

    def to_arrays(self) -> dict[str, Any]:
        """What `from_arrays` makes a survey of."""
        tallies = {name: [list(tally.counts.items()), tally.gaps] for name, tally in self.tallies.items()}
        others = [self.names, tallies, self.few, self.notes, self.warnings, self.left_out]
        return {**vars(self.numbers), "others": json.dumps(others)}

    @classmethod
    def from_arrays(cls, values: dict[str, Any]) -> Survey:
        names, tallies, few, notes, warnings, left_out = json.loads(str(values.pop("others")))
        numbers = Summary(**values | {"rows": int(values["rows"]), "digest": str(values["digest"])})
        known = {name: Tally(dict(counts), gaps) for name, (counts, gaps) in tallies.items()}
        names = None if names is None else tuple(names)
        return cls(numbers, names, known, few, tuple(notes), tuple(warnings), left_out)


def surveyed(blocks: Blocks, advance: Callable[[int], None] = lambda rows: None, missing: Missing = "error") -> Survey:
    """Read all blocks once, or take what is remembered of them.

    Arguments:
        blocks: the files.
        advance: told how many more rows were read.
        missing: what is going to be done about missing values, for advice about columns that need a role.
    """

    def make() -> Survey:
        if isinstance(blocks, ParquetBlocks):
            return _Pass(blocks, missing).made(advance)
        pieces = (raw.x for block in range(len(blocks.sizes)) for raw in blocks.read(block))
        return Survey(summarised(pieces, blocks.path.name, advance, blocks.names))

    return remembered("summaries", blocks.mark, Survey.from_arrays, make, Survey.to_arrays)


def remembered(folder: str, mark: str, read: Callable[[dict[str, Any]], Any], make: Any, store: Any) -> Any:
    """Something from the user's cache, or made and kept there.

    Arguments:
        folder: of the cache.
        mark: of what it was made from.
        read: makes it of arrays by name.
        make: makes it where the cache has none.
        store: makes arrays by name of it.
    """
    path = places(folder)[-1] / f"{mark}.npz"
    with suppress(OSError, ValueError, KeyError, TypeError):
        with np.load(path, allow_pickle=False) as stored:
            values = {name: stored[name] for name in stored.files}
        return read(values)
    found = make()
    with suppress(OSError):  # where nothing can be kept, it is read again
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part.npz")
        np.savez(part, **store(found))
        part.replace(path)
    return found


class _Pass:
    """A pass over a table."""

    def __init__(self, blocks: ParquetBlocks, missing: Missing) -> None:
        self._blocks, roles = blocks, blocks.roles
        told = {name: blocks.kinds[name] != "numbers" or name in roles.categorical for name in roles.covariates}
        self._covariates = [name for name, texts in told.items() if not texts]
        counted = {*roles.categorical, *(name for name, texts in told.items() if texts)}
        counted |= set() if roles.group is None else {roles.group}
        self._tallies = {name: Tally() for name in sorted(counted)}
        self._features = [name for name in blocks.names if name not in roles.categorical]
        self._few: dict[str, set[float]] = {name: set() for name in self._covariates}
        self._digest, self._messages = hashlib.sha256(), Messages()
        self._left_out = self._sort_texts(missing)
        self._features = [name for name in self._features if name not in self._left_out]

    def _sort_texts(self, missing: Missing) -> dict[str, str]:
        """Columns of texts to leave out, by the first rows; raises if others need a role."""
        blocks, roles = self._blocks, self._blocks.roles
        if all(blocks.kinds[name] == "numbers" for name in self._features):
            return {}
        path, frame, _ = next(blocks.frames(0, blocks.names))
        choices: tuple[Missing, ...] = ("model", "mean") if missing == "error" else ()
        advice = ColumnAdvice(blocks.path.name, roles.id is not None, roles.label is not None, choices)
        return sort_features(path, frame, roles.categorical, advice, Messages())[-1]

    def made(self, advance: Callable[[int], None]) -> Survey:
        exposure = self._blocks.roles.exposure
        names = (*self._features, *self._covariates, *([] if exposure is None else [exposure]))
        numbers = summarised(self._pieces(), self._blocks.path.name, advance, names)
        self._require_told()
        if self._tallies:
            counts = [[name, list(tally.counts)] for name, tally in self._tallies.items()]
            self._digest.update(json.dumps([numbers.digest, counts]).encode())
            numbers = replace(numbers, digest=self._digest.hexdigest())
        few = {name: sorted(values) for name, values in self._few.items()}
        notes, warnings = (tuple(dict.fromkeys(said)) for said in (self._messages.notes, self._messages.warnings))
        return Survey(numbers, names, self._tallies, few, notes, warnings, self._left_out)

    def _pieces(self) -> Iterator[NDArray[np.float64]]:
        for block in range(len(self._blocks.sizes)):
            for path, frame, first in self._blocks.frames(block, self._blocks.columns()):
                for name, tally in self._tallies.items():
                    tally.add(frame[name], self._digest)
                    most = _GROUPS if name == self._blocks.roles.group else MOST
                    if len(tally.counts) > most:
                        raise CurvaeError(
                            f"column {name!r} of {self._blocks.path.name} has more than {most:,} different values; "
                            "leave it out"
                        )
                yield self._numbers(path, frame, first)

    def _numbers(self, path: Path, frame: pd.DataFrame, first: int) -> NDArray[np.float64]:
        """The columns of numbers of some rows."""
        columns = tuple(Column(name) for name in self._features)
        parts = [numbers_of(path, frame[self._features], columns, NOT_NUMBERS, self._messages, first)]
        if self._covariates:
            columns = tuple(Column(name) for name in self._covariates)
            parts.append(covariate_numbers(path, frame[self._covariates], columns, first))
            for name, values in zip(self._covariates, parts[-1].T, strict=True):
                if len(self._few[name]) < _LOOK:
                    self._few[name].update(np.unique(values)[:_LOOK].tolist())
        if (exposure := self._blocks.roles.exposure) is not None:
            parts.append(exposure_of(path, frame, exposure, self._messages)[:, np.newaxis])
        return parts[0] if len(parts) == 1 else np.hstack(parts)

    def _require_told(self) -> None:
        """Raise where a covariate or a group is missing."""
        roles, path = self._blocks.roles, self._blocks.path
        gaps = {name: tally.gaps for name, tally in self._tallies.items() if tally.gaps}
        if where := [f"{name!r} ({gaps[name]:,})" for name in roles.covariates if name in gaps]:
            refuse_gaps(path, listing(where))
        if roles.group in gaps:
            raise CurvaeError(
                f"group column {roles.group!r} is empty in {count(gaps[roles.group], 'row')}; give every row a group"
            )


# From what a pass over files found to the schema of their rows, and the figures of the features.


def _describe(blocks: Blocks, found: Survey, missing: Missing, bound: int) -> Stream:
    """Make a stream, but for its moments, from what a survey found.

    Arguments:
        blocks: the files.
        found: of them.
        missing: what to do about missing values.
        bound: bytes that rows may take at a time.
    """
    messages = Messages(list(found.notes), list(found.warnings))
    rows, names = found.numbers.rows, [name for name in blocks.names if name not in found.left_out]
    categories = {name: in_order(found.tallies[name].texts) for name in names if name in found.tallies}
    columns = [Column(name, categories.get(name)) for name in names]
    examples, typical, gaps = _columns(found, columns)
    roles = {role: getattr(blocks.roles, role) for role in ("label", "id", "group", "exposure")}
    raw = RawData(
        blocks.path.name,
        blocks.kind,
        examples,
        tuple(columns),
        covariates=_covariates(blocks, found, messages),
        roles=roles,
        left_out=dict(found.left_out),
        messages=messages,
    )
    kept = raw.leave_out_constant()
    typical, gaps = typical[kept], gaps[kept]
    schema = raw.fit(missing, typical)
    if gaps.any():
        _resolve_gaps([names[j] for j in kept.tolist()], gaps, missing, messages)
    raw.judge(raw.x, rows)
    messages.note(f"{count(rows, 'row')} are read in pieces, in {machine.size_text(bound)} of memory.")
    return Stream(
        blocks,
        schema,
        bound,
        missing,
        _of_features(found, schema, missing),
        tuple(messages.notes),
        tuple(messages.warnings),
        None if schema.exposure is None else float(found.numbers.mean[-1]),
        None if schema.group is None else found.tallies[schema.group].texts,
    )


def _columns(found: Survey, columns: Sequence[Column]) -> tuple[Any, NDArray[np.float64], NDArray[np.float64]]:
    """Of the columns of features: four rows that have what all rows have, (4, columns), with categories by position;
    what is typical of a column, the mean or the most frequent category; and how many values are missing."""
    summary = found.numbers
    examples, mean, gaps = summary.examples, summary.mean, summary.rows - summary.present
    examples[-1, (gaps > 0) & np.isnan(summary.broken)] = np.nan  # in place of what another row has
    if found.names is None:
        return examples, mean, gaps
    places = {name: place for place, name in enumerate(found.names)}
    figures: list[tuple[Any, Any, Any]] = []
    for column in columns:
        if column.categories is None:
            place = places[column.name]
            figures.append((examples[:, place], mean[place], gaps[place]))
            continue
        tally = found.tallies[column.name]
        if column.categories:
            extremes = np.array([0, len(column.categories) - 1, 0, 0])
            figures.append((extremes, np.argmax(tally.counts_of(column.categories)), tally.gaps))
        else:
            figures.append((np.full(4, np.nan), 0, tally.gaps))
    each, typical, lacking = zip(*figures, strict=True)
    return np.stack(each, 1).astype(np.float64), np.array(typical, np.float64), np.array(lacking, np.float64)


def _of_features(found: Survey, schema: Schema, missing: Missing) -> Summary:
    """Figures of the features, as models see the rows."""
    numbers = found.numbers.filled() if missing == "mean" else found.numbers
    if found.names is None:
        return numbers
    figures = {name: values for name, values in vars(numbers).items() if isinstance(values, np.ndarray)}
    places = {name: place for place, name in enumerate(found.names)}
    parts = [
        {name: values[[places[column.name]]] for name, values in figures.items()}
        if column.categories is None
        else _of_categories(found.tallies[column.name], column, numbers.rows, missing == "mean")
        for column in schema.columns
    ]
    joined: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) for name in figures}
    return replace(numbers, **joined)


def _of_categories(tally: Tally, column: Column, rows: int, filled: bool) -> dict[str, Any]:
    """Figures of the features of a column of categories, by name; missing values may be `filled` in."""
    counts = tally.counts_of(column.categories or ())
    if filled:
        counts[int(column.fill)] += rows - counts.sum()
    present = counts.sum()
    share = counts / present
    nothing = np.full(len(counts), np.nan)
    return {
        "present": np.full(len(counts), present),
        "origin": np.zeros(len(counts)),
        "offset": share,
        "squares": present * share * (1 - share),
        "low": np.where(counts < present, 0.0, 1.0),
        "high": np.ones(len(counts)),
        "other": nothing,
        "broken": nothing,
    }


def _covariates(blocks: Blocks, found: Survey, messages: Messages) -> tuple[Column, ...]:
    places = {name: place for place, name in enumerate(found.names or ())}
    made = []
    for name in dict.fromkeys(blocks.roles.covariates):
        distinct: Sequence[Any] = found.few.get(name, [])
        if (tally := found.tallies.get(name)) is not None:
            column, distinct = _counted(blocks, tally, name)
        else:
            place = places[name]
            mean, deviation = float(found.numbers.mean[place]), float(found.numbers.deviation[place])
            column = Column(name, fill=mean, scale=deviation)
        made.append(covariate_column(blocks.path, column, distinct, messages))
    return tuple(made)


def _counted(blocks: Blocks, tally: Tally, name: str) -> tuple[Column, Sequence[Any]]:
    """A covariate whose values were counted: categories, or numbers that are written as texts."""
    texts = tally.texts
    values: Any = pd.Series(list(texts), dtype=object)
    if name in blocks.roles.categorical or is_text(values):
        column = Column(name, in_order(texts))
        return column, column.categories or ()
    numbers = numbers_of(blocks.path, values.to_frame(name), (Column(name),), "", Messages())[:, 0]
    weights = np.array(list(texts.values()), np.float64)
    mean = float(np.average(numbers, weights=weights))
    scale = float(np.sqrt(np.average((numbers - mean) ** 2, weights=weights)))
    return Column(name, fill=mean, scale=scale), np.unique(numbers).tolist()


def _resolve_gaps(names: Sequence[str], gaps: NDArray[np.float64], missing: Missing, messages: Messages) -> None:
    """Refuse missing values, or say what becomes of them; `gaps` counts those of each column."""
    where = listing(f"{name!r} ({int(n):,})" for name, n in zip(names, gaps, strict=True) if n)
    if missing == "error":
        raise MissingValuesError(f"missing or infinite values, counted by column: {where}", ("model", "mean"))
    did = "left to the model" if missing == "model" else "replaced by the column's mean or most frequent category"
    messages.note(f"missing values were {did}: {where}.")


# How columns and covariates vary together, from sums over rows that come in pieces.


@dataclass(frozen=True)
class Moments:
    """Sums over rows of their features x and covariates c, of which the covariance of both follows.

    All are of differences from fixed origins, so that digits are not lost where the mean is large. A missing feature
    counts as the mean of its column: it adds nothing to the covariance.

    Arguments:
        rows: how many.
        told: Σ c, (covariates,).
        squares: Σ c·cᵀ, (covariates, covariates).
        present: rows in which each feature is there, (features,).
        sums: Σ x over these, (features,).
        products: Σ c·xᵀ over these, (covariates, features).
        beside: Σ c over these, (covariates, features).
        origin: of the features, (features,).

    Example:
        >>> batch = np.eye(2)[[0, 0, 1, 1]]
        >>> found = Moments.of(Arrays(np.array([[1.0], [3.0], [5.0], [7.0]]), context=batch), np.zeros(1))
        >>> found.centre.tolist(), found.covariance.tolist()
        ([0.5, 0.5], [[-4.0], [4.0]])
    """

    rows: Any
    told: Array
    squares: Array
    present: Array
    sums: Array
    products: Array
    beside: Array
    origin: Array

    @classmethod
    def of(cls, arrays: Arrays, origin: Array) -> Moments:
        """Of some rows, whose covariates are coded: those are near 0."""
        c: Any = arrays.context
        x = arrays.x - origin
        told = c.sum(0)
        if has_missing(x):
            there = np.isfinite(x)
            x = np.where(there, x, 0.0)
            present, beside = there.sum(0).astype(np.float64), c.T @ there.astype(np.float64)
        else:
            present = np.full(x.shape[1], float(len(x)))
            beside = np.broadcast_to(told[:, np.newaxis], (len(told), x.shape[1]))
        return cls(len(x), told, c.T @ c, present, x.sum(0), c.T @ x, beside, origin)

    def plus(self, more: Moments, sign: float = 1.0) -> Moments:
        """Of the rows of both; or with sign −1 of these without others that are among them."""
        names = [field.name for field in fields(self) if field.name != "origin"]
        parts = {name: getattr(self, name) + sign * getattr(more, name) for name in names}
        return Moments(**parts, origin=self.origin)

    @property
    def centre(self) -> Array:
        """Mean of the covariates, (covariates,)."""
        return self.told / self.rows

    @property
    def spread(self) -> Array:
        """Σ (c − mean)·(c − mean)ᵀ, (covariates, covariates)."""
        return self.squares - np.outer(self.told, self.told) / self.rows

    @property
    def covariance(self) -> Array:
        """Σ (c − mean)·(x − mean)ᵀ, (covariates, features)."""
        return self.products - self.beside * (self.sums / np.maximum(self.present, 1))


_TEXTS = tuple(ending for ending, reader in TABLES.items() if reader is None)


@dataclass(frozen=True, eq=False)
class Stream:
    """Rows that are read a block at a time, in original units.

    Arguments:
        blocks: the files.
        schema: what their columns become.
        memory: bytes that rows may take at a time.
        missing: what to do about missing values.
        summary: figures of the features; None where a model was trained on others and needs none of these.
        notes, warnings: as of `Dataset`.
        mean_exposure: of all rows, where there are exposures.
        groups: rows of each group, where there are groups.
        moments: how features and covariates vary together, where there are covariates.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/x.npy", np.arange(12.0).reshape(6, 2))
        ...     stream = open_stream(f"{folder}/x.npy", memory="1GB")
        ...     len(stream), stream.summary.mean.tolist(), stream.take(np.array([1, 4])).ids.tolist()
        (6, [5.0, 6.0], ['1', '4'])
    """

    blocks: Blocks
    schema: Schema
    memory: int
    missing: Missing = "error"
    summary: Summary | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    mean_exposure: float | None = None
    groups: Mapping[str, int] | None = None
    moments: Moments | None = None

    def __len__(self) -> int:
        return len(self.blocks)

    @property
    def features(self) -> int:
        return len(self.schema.names)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Number of the first row of each block, and of all rows, (blocks + 1,)."""
        return np.concatenate([[0], np.cumsum(self.blocks.sizes)])

    @property
    def known(self) -> Summary:
        """Figures of the columns; raises where there are none."""
        if self.summary is None:
            raise CurvaeError("the stream was opened with the schema of a model; open it without one to train on it")
        return self.summary

    @property
    def examples(self) -> Arrays:
        """Four rows that have what all rows have, from which a likelihood can be chosen; see `Summary`."""
        schema, x = self.schema, self.known.examples
        start = 0
        for column in schema.columns if schema.categorical else ():
            if column.categories is not None:
                x[:, start : start + len(column.features)] = 0.0
                x[:, start] = 1.0
            start += len(column.features)
        return Arrays(
            x,
            np.zeros((len(x), len(schema.context_names))) if schema.covariates else None,
            None if self.mean_exposure is None else np.full(len(x), self.mean_exposure),
            blocks=schema.blocks,
            shape=schema.shape if len(schema.shape) > 1 else (),
            missing=self.missing == "model",
        )

    @property
    def fingerprint(self) -> str:
        """SHA-256 of values and names."""
        return self.fingerprint_of(self.known.digest)

    def fingerprint_of(self, digest: str) -> str:
        """What `fingerprint` is if values have this digest."""
        return hashlib.sha256(json.dumps([digest, self.schema.to_json()]).encode()).hexdigest()

    @property
    def identity(self) -> str:
        """Of the rows and of their order in a training, on which the memory decides."""
        return f"{self.fingerprint} {self.memory}"

    def arrays(self, block: int) -> Iterator[Arrays]:
        """The inputs of a model for the rows of a block, in one piece or in several."""
        for raw in self._read(block, False):
            yield raw.arrays(self.schema, self.missing)

    def datasets(self, block: int) -> Iterator[Dataset]:
        """The rows of a block with their ids and labels, in one piece or in several."""
        start = int(self.starts[block])
        for raw in self._read(block, True):
            rows = raw.x.shape[0]
            named = raw.ids is not None
            raw.ids = raw.ids if named else np.arange(start, start + rows).astype(np.str_)
            start += rows
            found = raw.finish(self.schema, self.missing)[0]
            id_name = found.id_name if named else None
            yield replace(found, notes=self.notes, warnings=self.warnings, id_name=id_name)

    def _read(self, block: int, named: bool) -> Iterator[RawData]:
        rows = 0
        for raw in self.blocks.read(block, self.schema, named):
            rows += raw.x.shape[0]
            raw.choices = ("model", "mean")
            yield raw
        if rows != self.blocks.sizes[block]:
            raise CurvaeError(f"{self.blocks.path.name} has lost rows since it was opened; restore it and resume")

    def held(self, rows: NDArray[np.int64]) -> Arrays:
        """Rows that are held out, by their numbers in ascending order."""
        return self.take(rows).arrays

    def take(self, rows: NDArray[np.int64]) -> Dataset:
        """Some rows, by their numbers in ascending order."""
        found: list[Dataset] = []
        for block, (start, stop) in enumerate(zip(self.starts, self.starts[1:], strict=False)):
            own = rows[np.searchsorted(rows, start) : np.searchsorted(rows, stop)]
            if not len(own):
                continue
            for piece in self.datasets(block):
                end = start + len(piece)
                inside = own[np.searchsorted(own, start) : np.searchsorted(own, end)]
                if len(inside):
                    found.append(piece.take(inside - start))
                start = end
        return _joined(found)

    def rows_of(self, groups: Collection[str]) -> NDArray[np.int64]:
        """The rows of some groups, by their numbers in ascending order."""
        blocks, name = self.blocks, self.schema.group
        assert isinstance(blocks, ParquetBlocks) and name is not None
        wanted, found = list(groups), [np.empty(0, np.int64)]
        for block, start in enumerate(self.starts[:-1].tolist()):
            for _, frame, _ in blocks.frames(block, [name]):
                own = np.isin(texts_of(frame[name], strip=True), wanted)
                found.append(start + np.flatnonzero(own))
                start += len(frame)
        return np.concatenate(found)


def _joined(parts: Sequence[Dataset]) -> Dataset:
    """Rows of the same columns, one part after the other."""
    each: dict[str, Any] = {}
    for name in ("ids", "labels", "groups", "exposure", "context"):
        values = [getattr(part, name) for part in parts]
        each[name] = None if values[0] is None else np.concatenate(values)
    rows: Any = [part.x for part in parts]
    x: Any = vstack(rows, "csr") if issparse(rows[0]) else np.concatenate(rows)
    return replace(parts[0], x=x, **each)


def find_blocks(
    source: str | Path, memory: int, roles: Roles | None = None, schema: Schema | None = None
) -> Blocks | TextTable | None:
    """The blocks of a file or folder that can be read in pieces; None for any other. Call `opened` before their use.

    Arguments:
        source: a .npy array of rows × features, a CSR matrix in a .npz file, a text table, a .parquet file, or a
            folder of these.
        memory: bytes that rows may take at a time.
        roles: columns that the caller gives a role.
        schema: of the data that a model was trained on; then the roles are those of these.
    """
    path, columns = Path(source), None
    roles = roles or Roles()
    if schema is not None and schema.kind == "table":
        roles, columns = Roles.of(schema), tuple(schema.column_names)
    try:
        folder, ending = path.is_dir(), path.suffix.lower() if path.is_file() else ""
    except OSError:  # whoever reads all of it says why it cannot be read
        return None
    if ending == ".parquet" or (folder and any(path.glob("*.parquet"))):
        return ParquetBlocks(path, roles, columns)
    if path.name.lower().endswith(_TEXTS) and path.is_file():
        return TextTable(path, memory, roles, columns)
    if roles.asked:  # only tables have names of columns
        return None
    if ending == ".npy" and map_npy(path).ndim == 2:
        return NpyBlocks(path, memory)
    return CsrBlocks(path, memory) if ending == ".npz" and is_csr(path) else None


def open_stream(
    source: str | Path | Blocks,
    *,
    schema: Schema | None = None,
    memory: str | int | None = None,
    label: str | None = None,
    id: str | None = None,  # noqa: A002 - the word that users know, as in --id
    group: str | None = None,
    categorical: Sequence[str] = (),
    exposure: str | None = None,
    covariates: Sequence[str] = (),
    missing: Missing = "error",
    advance: Callable[[int], None] = lambda rows: None,
) -> Stream:
    """Open data that are read in pieces: a .npy array, a CSR matrix in a .npz file that is not compressed, a text
    table, which is converted to Parquet in the user's cache, a Parquet file, or a folder of Parquet files.

    All rows are read once, for means, standard deviations and extremes of the columns and for their categories; and
    with covariates once more, for what these explain. This is remembered, in the user's cache, until a file changes.

    Arguments:
        source: the file or folder, or its blocks.
        schema: schema of the data that a model was trained on; then nothing is read yet.
        memory: bytes that rows may take at a time, as a number or a text such as "2GB"; by default a quarter of the
            memory of the machine.
        label, id, group, categorical, exposure, covariates: as of `curvae.data.load`; those of blocks are their own.
        missing: as of `curvae.data.load`, but for "drop".
        advance: told how many more rows were read.
    """
    if missing == "drop":
        raise CurvaeError('missing="drop" needs all rows in memory; use missing="mean" or missing="model"')
    bound = machine.bound(memory)
    roles = Roles(label, id, group, tuple(categorical), exposure, tuple(covariates))
    blocks = source if isinstance(source, Blocks) else _blocks(source, bound, schema, roles)
    if schema is not None:
        if blocks.kind != schema.kind or len(blocks.names) != len(schema.columns):
            raise CurvaeError(
                f"{blocks.path.name} is a {blocks.kind} of {len(blocks.names)} columns and the model was trained on a "
                f"{schema.kind} of {len(schema.columns)}; give the same"
            )
        return Stream(blocks, schema, bound, missing)
    stream = _describe(blocks, surveyed(blocks, advance, missing), missing, bound)
    return replace(stream, moments=_moments(stream, advance)) if stream.schema.covariates else stream


def _moments(stream: Stream, advance: Callable[[int], None]) -> Moments:
    """How features and covariates vary together, from another pass over all rows or as it is remembered."""

    def made() -> Moments:
        origin, found = stream.known.mean, None
        for block in range(len(stream.blocks.sizes)):
            for arrays in stream.arrays(block):
                own = Moments.of(arrays, origin)
                found = own if found is None else found.plus(own)
                advance(len(arrays))
        assert found is not None
        return found

    parts = [stream.blocks.mark, stream.fingerprint, stream.missing]
    mark = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    return remembered("moments", mark, lambda values: Moments(**values), made, vars)


def _blocks(source: str | Path, memory: int, schema: Schema | None, roles: Roles) -> Blocks:
    if (found := find_blocks(source, memory, roles, schema)) is None:
        raise CurvaeError(
            f"{source} cannot be read in pieces; give a table, a .npy array of rows × features or a CSR matrix (.npz)"
        )
    if found.whole:
        raise CurvaeError(f"{found.whole}, or load it as a whole")
    return found.opened(lambda task, rows: lambda more: None)
