"""What the columns of a table that have no role seem to hold, and the parameters with which the table can be used."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..errors import CurvaeError, FixableError
from .column_values import texts_of
from .messages import count, listing
from .missing import Missing, missing_by_column, missing_choices, useless_columns
from .text import MISSING, NUMBER

__all__ = ["ColumnAdvice", "is_identifier", "left_out_text"]

_SHOWN = 10  # columns of one kind that a message lists
_FEW, _MOST = 10, 100  # different texts that always, and that never, are too many to be categories
_MEANT = r"[+-]?\d[\d.,_' ]*%?"  # a number that is written in another way
_COUNTED = 5  # rows from which on consecutive integers look like an identifier
_IDENTIFIER = re.compile(r"(?:^|[\W_])(?:id|idx|index)$", re.IGNORECASE)
_LABEL = re.compile(r"(?:^|[\W_])(?:labels?|class|target|cluster)$", re.IGNORECASE)
_BATCH = re.compile(r"(?:^|[\W_])(?:batch|donor|lane|plate|site)$", re.IGNORECASE)


@dataclass
class ColumnAdvice:
    """Look at all columns of a table at once: leave out texts that are of no use, propose a role for the others.

    Arguments:
        source: name of the table in messages.
        has_id, has_label: whether a column has this role already.
        choices: values of `missing` to propose where values are missing; none where one was given.
    """

    source: str
    has_id: bool = False
    has_label: bool = False
    choices: Sequence[Missing] = ()
    _found: dict[str, list[str]] = field(default_factory=dict)
    _fixes: list[tuple[tuple[str, str], ...]] = field(default_factory=list)
    _left_out: dict[str, str] = field(default_factory=dict)
    _gaps: dict[str, NDArray[np.bool_]] = field(default_factory=dict)

    def sort_texts(
        self, frame: pd.DataFrame, offenders: Mapping[str, str], x: NDArray[np.float64], names: Sequence[str]
    ) -> dict[str, str]:
        """Find columns of texts to leave out, and why; raise if others need a role or a correction.

        Arguments:
            frame: the table.
            offenders: columns that have no role, with the first cell of each that is not a number.
            x: the other columns as numbers, (rows, columns).
            names: of the columns of x.
        """
        cells = {name: texts_of(frame[name], strip=True) for name in offenders}
        absent = {name: np.isin(texts, list(MISSING)) for name, texts in cells.items()}
        wrong = [name for name, texts in cells.items() if _holds_numbers(texts[~absent[name]])]
        distinct = {name: len(np.unique(texts[~absent[name]])) for name, texts in cells.items() if name not in wrong}
        unique = [name for name, number in distinct.items() if number == len(frame)]
        if unique and not self.has_id:
            name = next((name for name in unique if _IDENTIFIER.search(name)), unique[0])
            self._propose("an id", f"{name!r} ({offenders[name]}, a different text in every row)", ("id", name))
            self.has_id = True
            del distinct[name]
        for name, number in distinct.items():
            self._add_text(name, number, absent[name], offenders[name])
        if wrong:
            self._found["numbers, but for cells to correct"] = [f"{name!r} ({offenders[name]})" for name in wrong]
        if self._found:
            self._add_numbers(x, names, bool(wrong))
            raise self._error()
        return self._left_out

    def _add_text(self, name: str, distinct: int, absent: NDArray[np.bool_], cell: str) -> None:
        shown, rows = f"{name!r} ({cell}, {distinct:,} different texts)", len(absent)
        if distinct == 1:
            self._left_out[name] = "constant"
        elif _LABEL.search(name) and not self.has_label:
            self._propose("a label", shown, ("label", name))
            self.has_label = True
        elif distinct == rows or distinct > min(_MOST, max(_FEW, rows // 2)):
            self._left_out[name] = f"{distinct:,} different texts in {count(rows, 'row')}"
        elif _BATCH.search(name) and not absent.any():
            self._propose("a batch", shown, ("covariates", name), ("categorical", name))
        else:
            self._propose("categories", shown, ("categorical", name), ("label", name))
            self._gaps[name] = absent

    def _add_numbers(self, x: NDArray[np.float64], names: Sequence[str], wrong: bool) -> None:
        """Look for ids, labels and missing values: numbers can be used as they are, so that alone they do no harm."""
        useless = useless_columns(x)
        self._left_out |= {names[j]: why for j, why in useless.items()}
        for name, values in zip(names, x.T, strict=True):
            named = _IDENTIFIER.search(name) and bool(np.isfinite(values).all())
            if named and not self.has_id and is_identifier(name, values, len(values)):
                self._propose("an id", f"{name!r} (a different integer in every row)", ("id", name))
                self.has_id = True
            elif not self.has_label and _LABEL.search(name) and bool((values == np.floor(values)).all()):
                self._propose("a label", f"{name!r} ({len(np.unique(values)):,} different integers)", ("label", name))
                self.has_label = True
        taken = {value for fix in self._fixes for role, value in fix if role in ("id", "label")} | {*self._left_out}
        used = [j for j, name in enumerate(names) if name not in taken]
        x = np.column_stack([x[:, used], *(np.where(gaps, np.nan, 0.0) for gaps in self._gaps.values())])
        names = [*(names[j] for j in used), *self._gaps]
        if self.choices and (where := missing_by_column(x, names)):
            choices = missing_choices(x, self.choices)
            self._propose("missing values", where, *(("missing", choice) for choice in choices))
        if not (names or wrong):
            self._fixes = []
            self._found["features"] = ["no column is left, so add one of numbers or categories"]

    def _propose(self, what: str, column: str, *fix: tuple[str, str]) -> None:
        self._found.setdefault(what, []).append(column)
        self._fixes.append(fix)

    def _error(self) -> CurvaeError:
        parts = [f"{what}: {listing(columns, _SHOWN)}" for what, columns in self._found.items()]
        if self._left_out:
            parts.append(f"left out: {left_out_text(self._left_out)}")
        found = f"{self.source} has text in columns without a role; {'; '.join(parts)}"
        if self.has_label:  # there is one label only
            self._fixes = [fix[:1] + tuple(way for way in fix[1:] if way[0] != "label") for fix in self._fixes]
        return FixableError(found, self._fixes) if self._fixes else CurvaeError(found)


def left_out_text(reasons: Mapping[str, str]) -> str:
    """List columns that are left out, each with the reason."""
    return listing([f"{name!r} ({why})" for name, why in reasons.items()], _SHOWN)


def is_identifier(name: str, values: NDArray[Any], rows: int) -> bool:
    """Whether a column of numbers looks like an identifier: different integers that are consecutive or so named.

    Arguments:
        name: of the column.
        values: all of them, or some of them with the extremes.
        rows: of the table.
    """
    values = values[np.isfinite(values)]
    if not values.size or not bool((values == np.floor(values)).all()):
        return False
    consecutive = values.max() - values.min() == rows - 1 and rows >= _COUNTED
    return bool(consecutive or _IDENTIFIER.search(name)) and np.unique(values).size == values.size


def _holds_numbers(texts: NDArray[np.str_]) -> bool:
    """Whether half of the texts or more are numbers, or meant to be."""
    return bool(2 * pd.Series(texts, dtype=str).str.fullmatch(f"{NUMBER}|{_MEANT}").sum() >= len(texts))
