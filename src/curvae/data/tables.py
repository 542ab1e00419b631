"""Tables with named columns: numbers, categories, ids, labels, groups, exposure and covariates."""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..errors import CurvaeError, require
from . import memory
from .columns import ColumnAdvice, RawData
from .dataset import Column, Missing, Schema, has_missing, missing_by_column, one_hot
from .files import Messages, count, listing, one_line, quoted
from .text_tables import (
    MISSING,
    UNNAMED,
    categories_of,
    first_text,
    is_text,
    name_columns,
    numbers_of,
    read_text,
    texts_of,
)

__all__ = [
    "NOT_NUMBERS",
    "TABLES",
    "Roles",
    "average_context",
    "check_roles",
    "code_covariates",
    "code_values",
    "covariate_column",
    "covariate_numbers",
    "exposure_of",
    "fit_covariates",
    "named_frame",
    "opened_parquet",
    "read_frame",
    "read_table",
    "refuse_gaps",
    "require_column",
    "sort_features",
    "sorted_columns",
]


# Covariates: columns that describe how a row was measured, such as its batch, coded as numbers for the networks.

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


NOT_NUMBERS = "use categorical=[{0}], covariates=[{0}], label={0} or id={0}, or remove it"
"""what to do about a column of texts, {0}, that has no role"""


@dataclass(frozen=True)
class Roles:
    """Names of the columns of a table that the caller gives a role."""

    label: str | None = None
    id: str | None = None
    group: str | None = None
    categorical: tuple[str, ...] = ()
    exposure: str | None = None
    covariates: tuple[str, ...] = ()

    @classmethod
    def of(cls, schema: Schema) -> Roles:
        """Those of the data that a model was trained on."""
        columns = [*(schema.columns if schema.categorical else ()), *schema.covariates]
        return cls(
            schema.label,
            schema.id,
            schema.group,
            tuple(column.name for column in columns if column.categories is not None),
            schema.exposure,
            tuple(column.name for column in schema.covariates),
        )

    @property
    def texts(self) -> tuple[str, ...]:
        """Columns that stay text."""
        return tuple(name for name in (self.label, self.id, self.group, *self.categorical) if name is not None)

    @property
    def asked(self) -> tuple[str, ...]:
        return (*self.texts, *self.covariates, *(() if self.exposure is None else (self.exposure,)))


def read_table(path: Path, roles: Roles, schema: Schema | None, missing: Missing) -> RawData:
    """Read a table and sort its columns by their roles.

    Arguments:
        path: a file whose name ends in one of `TABLES`.
        roles: columns that the caller gives a role.
        schema: schema of the data that a model was trained on, or None to fit one.
        missing: what is going to be done about missing values.
    """
    messages = Messages()
    known, texts = set(roles.asked), set(roles.texts)
    if schema is not None:
        if schema.kind == "images":
            raise CurvaeError(f"{path.name} is a table and the model was trained on images; give images")
        trained = Roles.of(schema)
        known |= {*schema.column_names, *trained.asked}
        texts |= set(trained.texts)
    return sorted_columns(path, read_frame(path, known, texts, messages), roles, schema, messages, missing=missing)


def read_frame(
    path: Path, known: Collection[str], texts: Collection[str], messages: Messages, first: bool = False
) -> pd.DataFrame:
    """Read a table as a frame; see `read_text`, which also reads files with other endings, for the arguments."""
    reader = next((one for ending, one in TABLES.items() if one and path.name.lower().endswith(ending)), None)
    frame = read_text(path, known, texts, messages, first) if reader is None else reader(path)
    if not len(frame):
        raise CurvaeError(f"{path.name} has a header but no rows; add rows")
    return frame


@contextmanager
def opened_parquet(path: Path, **how: Any) -> Iterator[Any]:
    """A `pyarrow.parquet.ParquetFile`, which takes further arguments, but whose errors are ours."""
    arrow = require("pyarrow", f"{path.name} needs pyarrow to be read", "parquet")
    try:
        with arrow.parquet.ParquetFile(path, **how) as file:
            yield file
    except (arrow.ArrowException, OSError) as error:
        raise CurvaeError(f"{path.name} cannot be read as Parquet: {one_line(error)}; write it again") from error


def _read_parquet(path: Path) -> pd.DataFrame:
    with opened_parquet(path) as file:
        rows, columns = file.metadata.num_rows, file.metadata.num_columns
        memory.require(16 * rows * columns, f"{path.name} ({rows:,} rows × {columns:,} columns)")
        frame: pd.DataFrame = file.read().to_pandas()
    return named_frame(path, frame)


def named_frame(path: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """A frame of pandas as a table: its index, if it says anything, is the first column, and all names are texts."""
    if not frame.index.equals(pd.RangeIndex(len(frame))):
        frame = frame.reset_index(names=frame.index.name or f"{UNNAMED}0")
    return frame.set_axis(name_columns(path, [str(name) for name in frame.columns]), axis=1)


# How the names of tables end, and what reads such a file as a frame; None stands for a text table.
TABLES: dict[str, Callable[[Path], pd.DataFrame] | None] = {
    **dict.fromkeys((".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz")),
    ".parquet": _read_parquet,
}


def sorted_columns(
    path: Path,
    frame: pd.DataFrame,
    roles: Roles,
    schema: Schema | None,
    messages: Messages,
    first: int = 0,
    missing: Missing = "error",
) -> RawData:
    """The rows of a table, with its columns sorted by their roles.

    Arguments:
        path: the table, for messages.
        frame: its rows, or some of them.
        roles, schema, missing: as of `read_table`.
        messages: takes notes.
        first: rows of the table before those of the frame, for messages.
    """
    present = list(frame.columns)
    check_roles(path, roles, present)
    if schema is None and not roles.asked:
        _check_edges(path, frame, messages)
    # By default the roles are those of the training data, if the table has these columns.
    held = {
        role: asked or (stored if stored in present else None)
        for role, asked, stored in (
            ("label", roles.label, schema and schema.label),
            ("id", roles.id, schema and schema.id),
            ("group", roles.group, schema and schema.group),
            ("exposure", roles.exposure, schema and schema.exposure),
        )
    }
    if schema is not None and schema.exposure is not None and held["exposure"] is None:
        raise CurvaeError(
            f"{path.name} has no column {schema.exposure!r}, the exposure that the model was trained with; add it"
        )
    if schema is not None and schema.id is not None and held["id"] is None:
        messages.note(f"there is no id column {schema.id!r}; rows are numbered.")
    covariates = (
        fit_covariates(path, frame, roles.covariates, roles.categorical, messages)
        if schema is None
        else schema.covariates
    )
    told = {column.name for column in covariates}
    if absent := sorted(told - set(present)):
        messages.note(f"covariates are absent: {quoted(absent)}.")
    taken = {*told, *(name for name in held.values() if name is not None)}
    nameless = [name for name in present if name.startswith(UNNAMED) and name not in {*taken, *roles.categorical}]
    index = _index_column(path, frame, nameless, held["id"] is not None, messages)
    features = [name for name in present if name not in {*taken, *nameless}]
    if schema is None:
        categorical = [name for name in roles.categorical if name not in told]
        advice = ColumnAdvice(
            path.name,
            has_id=held["id"] is not None or index is not None,
            has_label=held["label"] is not None,
            choices=("model", "mean", "drop") if missing == "error" else (),
        )
        columns, x, left_out = sort_features(path, frame[features], categorical, advice, messages)
    else:
        columns, left_out = tuple(schema.columns), {}
        x = _apply(path, frame, features, columns, messages, first)
    label, names, group = held["label"], held["id"] or index, held["group"]
    groups = None if group is None else texts_of(frame[group], strip=True)
    if groups is not None and (empty := int((groups == "").sum())):
        raise CurvaeError(f"group column {group!r} is empty in {count(empty, 'row')}; give every row a group")
    labels = None if label is None else texts_of(frame[label])
    if labels is not None and (empty := int((labels == "").sum())):
        messages.note(f"{count(empty, 'row')} without a label in column {label!r}; the label is left empty.")
    return RawData(
        source=path.name,
        kind="table",
        x=x,
        columns=columns,
        ids=None if names is None else texts_of(frame[names]),
        labels=labels,
        groups=groups,
        exposure=None if held["exposure"] is None else exposure_of(path, frame, held["exposure"], messages),
        label_name=label,
        context=code_covariates(path, frame, covariates) if told and not absent else None,
        covariates=covariates,
        roles=held,
        left_out=left_out,
        messages=messages,
    )


def check_roles(path: Path, roles: Roles, present: Sequence[str]) -> None:
    """Raise unless the table has all columns with a role and no column has two roles that exclude each other."""
    for role in ("label", "id", "group", "exposure"):
        require_column(path, role, getattr(roles, role), present)
    for name in roles.covariates:
        require_column(path, "covariates", name, present)
        if name in (roles.id, roles.exposure):
            raise CurvaeError(f"column {name!r} cannot be a covariate and an id or exposure at once; choose one")
    for name in roles.categorical:
        require_column(path, "categorical", name, present)
        if name not in roles.covariates and name in (roles.label, roles.id, roles.group, roles.exposure):
            raise CurvaeError(
                f"column {name!r} cannot be a feature and a label, id, group or exposure at once; choose one"
            )


def _check_edges(path: Path, frame: pd.DataFrame, messages: Messages) -> None:
    """Note that rows look like the edges of a graph; raise if they name nodes by texts, which are no features."""
    from .graphs.edgelist import looks_like_edges  # which imports this module

    if not looks_like_edges(frame):
        return
    first, graph = frame.columns[0], f"curvae graph {shlex.quote(str(path))}"
    if is_text(frame[first]):
        roles = NOT_NUMBERS.format(json.dumps(first, ensure_ascii=False))
        raise CurvaeError(
            f"the rows of {path.name} look like the edges of a graph; use {graph}, or graph=True with compare and "
            f"diagnose; for a table of rows {roles}"
        )
    messages.note(
        f"the rows look like the edges of a graph; if they are, use {graph}, or graph=True with compare and diagnose."
    )


def exposure_of(path: Path, frame: pd.DataFrame, name: str, messages: Messages) -> NDArray[np.float64]:
    """The exposure of every row, (rows,); raises where it is not a positive number."""
    fix = "an exposure is a number; choose another column"
    values: NDArray[np.float64] = numbers_of(path, frame[[name]], (Column(name),), fix, messages)[:, 0]
    if wrong := int((~(np.isfinite(values) & (values > 0))).sum()):
        raise CurvaeError(
            f"exposure column {name!r} of {path.name} is not a positive number in {count(wrong, 'row')}; correct it"
        )
    return values


def require_column(path: Path, role: str, name: str | None, present: Sequence[str]) -> None:
    """Raise unless a table has the column for a role."""
    if name is None or name in present:
        return
    folded = {column.casefold(): column for column in present}
    near = [folded[match] for match in difflib.get_close_matches(name.casefold(), folded)]
    hint = f"did you mean {quoted(near)}?" if near else f"its columns are {quoted(present)}"
    raise CurvaeError(f"{path.name} has no column {name!r} for {role}=…; {hint}")


def _index_column(
    path: Path, frame: pd.DataFrame, nameless: Sequence[str], has_ids: bool, messages: Messages
) -> str | None:
    """Find the column without a name that holds ids, if there is one."""
    found: str | None = None
    for name in nameless:
        place = list(frame.columns).index(name) + 1
        values = texts_of(frame[name], strip=True)
        numbers = pd.to_numeric(pd.Series(values), errors="coerce").to_numpy(np.float64)
        fractions = np.isfinite(numbers) & (numbers != np.floor(numbers))
        if bool(np.isin(values, list(MISSING)).all()):
            messages.note(f"column {place} has neither name nor values; it is left out.")
        elif np.unique(values).size < values.size or fractions.any():
            raise CurvaeError(f"column {place} of {path.name} has no name; give it one in the header")
        elif has_ids or found is not None:
            messages.note(f"column {place} has no name and is left out, since the ids are in another column.")
        else:
            found = name
            messages.note(f"column {place} has no name and a different value in every row; it is used as id.")
    return found


def sort_features(
    path: Path, frame: pd.DataFrame, categorical: Collection[str], advice: ColumnAdvice, messages: Messages
) -> tuple[tuple[Column, ...], NDArray[np.float64], dict[str, str]]:
    """The features that can be used, their numbers, and columns of texts that are left out with the reason.

    Raises if a column of texts needs a role, with advice about all columns.
    """
    found = {name: first_text(frame[name]) for name in frame.columns if name not in categorical}
    offenders = {name: cell for name, cell in found.items() if cell is not None}
    names = [name for name in frame.columns if name not in offenders]
    categories = {name: categories_of(frame[name]) for name in categorical}
    columns = tuple(Column(str(name), categories.get(name)) for name in names)
    x = numbers_of(path, frame[names], columns, NOT_NUMBERS, messages)
    return columns, x, advice.sort_texts(frame, offenders, x, names)


def _apply(
    path: Path,
    frame: pd.DataFrame,
    features: Sequence[str],
    columns: tuple[Column, ...],
    messages: Messages,
    first: int,
) -> NDArray[np.float64]:
    names = [column.name for column in columns]
    present, wanted = set(frame.columns), set(names)
    if absent := [name for name in names if name not in present]:
        raise CurvaeError(f"{path.name} has no columns {quoted(absent)}, which the model was trained on; add them")
    if extra := [name for name in features if name not in wanted]:
        messages.note(f"columns that the model was not trained on are left out: {quoted(extra)}.")
    return numbers_of(path, frame[names], columns, "the model was trained on numbers there", messages, first)
