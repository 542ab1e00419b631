"""From what a pass over files found to the schema of their rows, and the figures of the features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .. import memory
from ..column_values import in_order, is_text, numbers_of
from ..covariates import covariate_column
from ..messages import Messages, count, listing
from ..missing import Missing, MissingValuesError
from ..raw import RawData
from ..schema import Column, Schema
from .blocks import Blocks
from .parquet import ParquetBlocks
from .summary import Summary
from .survey import Survey, Tally

__all__ = ["Described", "described"]


@dataclass(frozen=True)
class Described:
    """Rows that are read in pieces: what their columns become, figures of the features, and what is to be said."""

    schema: Schema
    summary: Summary
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def described(blocks: Blocks, found: Survey, missing: Missing, bound: int) -> Described:
    """What follows from a survey.

    Arguments:
        blocks: the files.
        found: of them.
        missing: what to do about missing values.
        bound: bytes that rows may take at a time.
    """
    messages = Messages(list(found.notes), list(found.warnings))
    rows, names = found.numbers.rows, [name for name in blocks.names if name not in found.left_out]
    columns = [Column(name, _categories(found, name)) for name in names]
    examples, typical, gaps = _columns(found, columns)
    raw = RawData(
        blocks.path.name,
        blocks.kind,
        examples,
        tuple(columns),
        covariates=_covariates(blocks, found, messages),
        roles=_held(blocks),
        left_out=dict(found.left_out),
        messages=messages,
    )
    kept = raw.leave_out_constant()
    typical, gaps = typical[kept], gaps[kept]
    schema = raw.fit(missing, typical)
    if gaps.any():
        _resolve_gaps([names[j] for j in kept.tolist()], gaps, missing, messages)
    raw.judge(raw.x, rows)
    messages.note(f"{count(rows, 'row')} are read in pieces, in {memory.size_text(bound)} of memory.")
    return Described(schema, _of_features(found, schema, missing), tuple(messages.notes), tuple(messages.warnings))


def _held(blocks: Blocks) -> dict[str, str | None]:
    if not isinstance(blocks, ParquetBlocks):
        return {}
    return {role: getattr(blocks.roles, role) for role in ("label", "id", "group", "exposure")}


def _categories(found: Survey, name: str) -> tuple[str, ...] | None:
    tally = found.tallies.get(name)
    return None if tally is None else in_order(tally.texts)


def _columns(found: Survey, columns: Sequence[Column]) -> tuple[Any, NDArray[np.float64], NDArray[np.float64]]:
    """Of the columns of features: four rows that have what all rows have, (4, columns), with categories by position;
    what is typical of a column, the mean or the most frequent category; and how many values are missing."""
    summary = found.numbers
    examples, mean, gaps = summary.examples, summary.mean, summary.rows - summary.present
    examples[-1, (gaps > 0) & np.isnan(summary.broken)] = np.nan  # in place of what another row has
    if found.names is None:
        return examples, mean, gaps
    places = {name: place for place, name in enumerate(found.names)}
    each, typical, lacking = [], [], []
    for column in columns:
        if column.categories is None:
            place = places[column.name]
            each.append(examples[:, place])
            typical.append(mean[place])
            lacking.append(gaps[place])
        else:
            tally = found.tallies[column.name]
            last = len(column.categories) - 1
            each.append(np.array([0, last, 0, 0]) if last >= 0 else np.full(4, np.nan))
            typical.append(float(np.argmax(_counts(tally, column))) if last >= 0 else 0.0)
            lacking.append(tally.gaps)
    return np.stack(each, 1).astype(np.float64), np.array(typical, np.float64), np.array(lacking, np.float64)


def _counts(tally: Tally, column: Column) -> NDArray[np.float64]:
    """Rows of each category, (categories,)."""
    texts = tally.texts
    return np.array([texts[category] for category in column.categories or ()], np.float64)


def _of_features(found: Survey, schema: Schema, missing: Missing) -> Summary:
    """Figures of the features, as models see the rows."""
    numbers = found.numbers.filled() if missing == "mean" else found.numbers
    if found.names is None:
        return numbers
    figures = {name: values for name, values in vars(numbers).items() if isinstance(values, np.ndarray)}
    places = {name: place for place, name in enumerate(found.names)}
    parts: dict[str, list[Any]] = {name: [] for name in figures}
    for column in schema.columns:
        if column.categories is None:
            one = {name: values[[places[column.name]]] for name, values in figures.items()}
        else:
            one = _of_categories(found.tallies[column.name], column, numbers.rows, missing == "mean")
        for name, values in one.items():
            parts[name].append(values)
    joined: dict[str, Any] = {name: np.concatenate(values) for name, values in parts.items()}
    return replace(numbers, **joined)


def _of_categories(tally: Tally, column: Column, rows: int, filled: bool) -> dict[str, Any]:
    """Figures of the features of a column of categories, by name; missing values may be `filled` in."""
    counts = _counts(tally, column)
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
    if not isinstance(blocks, ParquetBlocks):
        return ()
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


def _counted(blocks: ParquetBlocks, tally: Tally, name: str) -> tuple[Column, Sequence[Any]]:
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
