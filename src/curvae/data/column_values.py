"""Convert the cells of table columns to numbers, categories and texts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..errors import CurvaeError
from .messages import Messages, listing, quoted
from .missing import require_sums
from .schema import Column
from .spreadsheets import guard
from .text import MISSING, NUMBER

__all__ = ["categories_of", "first_text", "in_order", "is_text", "numbers_of", "texts_of"]

_EXACT_INTEGERS = 2.0**53


def categories_of(values: Any) -> tuple[str, ...]:
    """List the categories of a column: numbers in ascending order, then texts in alphabetical order.

    Example:
        >>> categories_of(pd.Series(["b", "10", "9", "a", "NA"]))
        ('9', '10', 'a', 'b')
    """
    return in_order(texts_of(values, strip=True).tolist())


def in_order(texts: Iterable[str]) -> tuple[str, ...]:
    """The categories among these texts: numbers in ascending order, then texts in alphabetical order."""
    return tuple(sorted(set(texts) - MISSING, key=_natural))


def _natural(text: str) -> tuple[float, str]:
    try:
        return float(text), text
    except ValueError:
        return float("inf"), text


def numbers_of(
    path: Path, frame: pd.DataFrame, columns: tuple[Column, ...], fix: str, messages: Messages, first: int = 0
) -> NDArray[np.float64]:
    """Convert the columns of a table to numbers, (rows, columns).

    A category becomes its position in the list of categories, a missing value NaN.

    Arguments:
        path: the table, for messages.
        frame: the columns to convert.
        columns: their descriptions, in the same order.
        fix: what to do about a column of texts, for the error; {0} stands for its name.
        messages: takes notes about what was converted.
        first: rows of the table before those of the frame, for messages.
    """
    converted: dict[str, Any] = {}
    booleans: list[str] = []
    texts: dict[str, str] = {}
    large: list[str] = []
    for column, dtype in zip(columns, frame.dtypes, strict=True):
        name, truths = column.name, pd.api.types.is_bool_dtype(dtype)
        values: Any = frame[name]
        if column.categories is not None:
            converted[name] = _codes(path, values, column)
            continue
        if not pd.api.types.is_numeric_dtype(dtype):
            values, offender, truths = _from_texts(values, first)
            if offender is not None:
                texts[name] = offender
                continue
            converted[name] = values
        if truths:
            booleans.append(name)
        elif not pd.api.types.is_float_dtype(dtype) and bool((np.abs(values) >= _EXACT_INTEGERS).any()):
            large.append(name)
    if texts:
        one = json.dumps(next(iter(texts)), ensure_ascii=False)
        listed = listing(f"{name!r} ({offender})" for name, offender in texts.items())
        raise CurvaeError(f"{path.name} has text in column {listed}; {fix.format(one)}")
    _report(booleans, large, messages)
    if converted:
        frame = frame.copy(deep=False)
        for name, values in converted.items():
            frame[name] = values
    x = np.ascontiguousarray(frame.to_numpy(dtype=np.float64, na_value=np.nan))
    require_sums(x, columns, path.name)
    return x


def _report(booleans: Sequence[str], large: Sequence[str], messages: Messages) -> None:
    if booleans:
        messages.note(f"true and false became 1 and 0: {quoted(booleans)}.")
    if large:
        messages.warn(
            f"integers of 2^53 and more lose digits as numbers: {quoted(large)}; use id=… if they identify rows."
        )


def _codes(path: Path, values: Any, column: Column) -> NDArray[np.float64]:
    assert column.categories is not None
    codes, distinct = pd.factorize(values)
    texts = texts_of(pd.Series(distinct), strip=True).tolist()
    places = {category: float(place) for place, category in enumerate(column.categories)}
    # In a table of samples, texts that look like formulas are guarded.
    known = {guard(category): place for category, place in places.items()} | places
    if pd.api.types.is_float_dtype(values.dtype):  # whole numbers have a point where others beside them have digits
        known = {category.removesuffix(".0"): place for category, place in places.items()} | known
    if unseen := sorted({text for text in texts if text not in known} - MISSING):
        raise CurvaeError(
            f"column {column.name!r} of {path.name} holds categories that the model was not trained on: "
            f"{quoted(unseen)}; it knows {quoted(column.categories)}"
        )
    return np.array([*(known.get(text, np.nan) for text in texts), np.nan])[codes]  # -1 is a missing one


def is_text(values: Any) -> bool:
    """Whether a column has a cell that is not a number; a categorical column of pandas always counts as text.

    Example:
        >>> is_text(pd.Series(["1", "2", "NA"])), is_text(pd.Series(["1", "2", "b"]))
        (False, True)
    """
    return isinstance(values.dtype, pd.CategoricalDtype) or first_text(values) is not None


def first_text(values: Any) -> str | None:
    """The first cell of a column that is not a number, and its row; None if all are numbers or missing."""
    return None if pd.api.types.is_numeric_dtype(values.dtype) else _from_texts(values)[1]


def _from_texts(values: Any, first: int = 0) -> tuple[NDArray[np.float64], str | None, bool]:
    """Convert texts to numbers; also return the first cell that is not a number, and whether all are true or false."""
    texts = pd.Series(texts_of(values, strip=True), dtype=object)
    absent = texts.isin(list(MISSING)).to_numpy()
    lowered = texts.str.lower()
    if not absent.all() and bool((lowered.isin(["true", "false"]) | absent).all()):
        return np.where(absent, np.nan, lowered == "true"), None, True
    if (wrong := ~(texts.str.fullmatch(NUMBER).to_numpy(bool) | absent)).any():
        row = int(np.argmax(wrong))
        return np.empty(0), f"{texts[row][:40]!r} in row {first + row + 1}", False
    return np.where(absent, "nan", texts.to_numpy(np.str_)).astype(np.float64), None, False


def texts_of(values: Any, strip: bool = False) -> NDArray[np.str_]:
    """Convert cells to text as a person would type them: whole numbers without a point, "" for a missing value.

    Arguments:
        values: a pandas series.
        strip: whether to remove blanks around each text.
    """
    absent = values.isna().to_numpy()
    whole = pd.api.types.is_float_dtype(values.dtype) and bool((values.dropna() % 1 == 0).all())
    texts = ["" if gone else str(int(v) if whole else v) for gone, v in zip(absent, values.astype(object), strict=True)]
    return np.array([text.strip() for text in texts] if strip else texts, dtype=np.str_)
