"""Covariates: columns that describe how a row was measured, such as its batch, coded as numbers for the networks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..errors import CurvaeError
from .column_values import categories_of, is_text, numbers_of
from .messages import Messages, listing, quoted
from .missing import has_missing, missing_by_column
from .schema import Column, one_hot

__all__ = [
    "average_context",
    "code_covariates",
    "code_values",
    "covariate_column",
    "covariate_numbers",
    "fit_covariates",
    "refuse_gaps",
]

_FEW = 10  # up to this many different whole numbers may be names of batches
_FARTHEST = 1e6  # standard deviations from the mean beyond which the networks overflow; rows of a training are nearer


def fit_covariates(
    path: Path, frame: pd.DataFrame, names: Iterable[str], categorical: Iterable[str], messages: Messages
) -> tuple[Column, ...]:
    """Decide which covariates are categories and which are numbers, and measure the numbers.

    Columns of texts are categories, and so are those named in `categorical`.

    Arguments:
        path: the table, for messages.
        frame: the table with the covariates.
        names: names of the covariates.
        categorical: columns whose values are categories even if they look like numbers.
        messages: takes notes about columns that may have been misread.
    """
    chosen = set(categorical)
    return tuple(_column(path, frame[name], str(name), name in chosen, messages) for name in dict.fromkeys(names))


def _column(path: Path, values: Any, name: str, categorical: bool, messages: Messages) -> Column:
    if categorical or is_text(values):
        column = Column(name, categories_of(values))
        return covariate_column(path, column, column.categories or (), messages)
    column = Column(name)
    numbers = covariate_numbers(path, values.to_frame(name), (column,))
    column = Column(name, fill=float(numbers.mean()), scale=float(numbers.std()))
    return covariate_column(path, column, np.unique(numbers).tolist(), messages)


def covariate_column(path: Path, column: Column, distinct: Sequence[Any], messages: Messages) -> Column:
    """The description of a covariate that has these values, or among many some of them; raises for a constant one."""
    if len(distinct) < 2:
        raise CurvaeError(f"covariate {column.name!r} has the same value in every row of {path.name}; leave it out")
    if column.categories is None and 2 < len(distinct) <= _FEW and all(value == np.floor(value) for value in distinct):
        messages.note(
            f"covariate {column.name!r} is taken as a number; if its values are names of batches, declare it "
            "categorical."
        )
    return column


def covariate_numbers(
    path: Path, frame: pd.DataFrame, columns: tuple[Column, ...], first: int = 0
) -> NDArray[np.float64]:
    """Covariates as numbers that are not scaled yet, (rows, covariates); see `numbers_of`."""
    numbers = numbers_of(path, frame, columns, "the model was trained on numbers there", Messages(), first)
    if has_missing(numbers):
        refuse_gaps(path, missing_by_column(numbers, [column.name for column in columns]))
    return numbers


def refuse_gaps(path: Path, where: str) -> NoReturn:
    """Raise for missing covariates, counted by column."""
    raise CurvaeError(
        f"covariates of {path.name} have missing or infinite values, counted by column: {where}; "
        "fill them in, or remove these rows"
    )


def code_covariates(path: Path, frame: pd.DataFrame, columns: Sequence[Column]) -> NDArray[np.float64]:
    """Code covariates as numbers, (rows, coded covariates): categories one-hot, numbers standardised.

    Arguments:
        path: the table, for messages.
        frame: the table with the covariates.
        columns: their descriptions, from `fit_covariates`.
    """
    columns = tuple(columns)
    numbers = covariate_numbers(path, frame[[column.name for column in columns]], columns).copy()  # it may be a view
    for j, column in enumerate(columns):
        if column.categories is None:
            scaled = (numbers[:, j] - column.fill) / column.scale
            if (far := np.flatnonzero(np.abs(scaled) > _FARTHEST)).size:
                raise CurvaeError(
                    f"covariate {_described(column)} is {numbers[far[0], j]:.4g} in {path.name}, too far from that; "
                    "correct it"
                )
            numbers[:, j] = scaled
    return one_hot(numbers, columns, path.name)


def code_values(columns: Sequence[Column], values: Mapping[str, Any] | None, rows: int = 1) -> NDArray[np.float64]:
    """Code covariates that were given by name, one value for all rows or one per row; see `code_covariates`.

    Example:
        >>> code_values([Column("batch", ("a", "b")), Column("age", fill=40.0, scale=10.0)], {"batch": "b", "age": 45})
        array([[0. , 1. , 0.5]])
    """
    given = {} if values is None else {str(name): value for name, value in values.items()}
    known = [column.name for column in columns]
    if unknown := [name for name in given if name not in known]:
        raise CurvaeError(
            f"the model has no covariate {quoted(unknown)}; "
            + (f"it has {quoted(known)}" if known else "it was trained without any, so leave them out")
        )
    if absent := [column for column in columns if column.name not in given]:
        raise CurvaeError(
            f"the model needs values of the covariates {listing(map(_described, absent))}; give them with covariates=…"
        )
    if not columns:
        return np.zeros((rows, 0))
    try:
        frame = pd.DataFrame({name: np.broadcast_to(np.asarray(given[name]), rows) for name in known})
    except ValueError:
        raise CurvaeError(f"give every covariate one value, or one for each of {rows:,} rows") from None
    return code_covariates(Path("what was given"), frame, columns)


def average_context(columns: Sequence[Column]) -> NDArray[np.float64]:
    """Coded covariates of average circumstances: numbers at their mean, and all categories in equal shares.

    Example:
        >>> average_context([Column("batch", ("a", "b")), Column("age", fill=40.0, scale=10.0)])
        array([0.5, 0.5, 0. ])
    """
    shares = [[0.0] if one.categories is None else [1 / len(one.categories)] * len(one.categories) for one in columns]
    return np.array([share for column in shares for share in column])


def _described(column: Column) -> str:
    if column.categories is None:
        return f"{column.name!r} (a number, {column.fill:.4g} ± {column.scale:.4g} in training)"
    return f"{column.name!r} (one of {quoted(column.categories)})"
