"""Tables with named columns: numbers, categories, ids, labels, groups, exposure and covariates."""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..errors import CurvaeError
from ..models.likelihoods.base import row_blocks
from . import memory
from .column_statistics import Missing, column_statistics, has_missing, missing_by_column
from .columns import ColumnAdvice, FrameTable, RawData, Table, first_rows, looks_like_edges
from .dataset import Column, Matrix, Scaling, Schema, one_hot
from .disk import count_empty, repeated_texts, text_blocks
from .files import Messages, count, listing, opened_parquet, quoted
from .spool import Storage, store_table
from .text_tables import MISSING, UNNAMED, name_columns, read_text

__all__ = [
    "NOT_NUMBERS",
    "TABLES",
    "Roles",
    "average_context",
    "batch_contexts",
    "check_roles",
    "choose_roles",
    "code_covariates",
    "code_values",
    "covariate_numbers",
    "fit_covariates",
    "named_frame",
    "read_exposure",
    "read_frame",
    "read_roles",
    "read_table",
    "require_column",
    "sort_columns",
]


# Covariates: columns that describe how a row was measured, such as its batch, coded as numbers for the networks.


def fit_covariates(
    table: Table, names: Iterable[str], categorical: Iterable[str], messages: Messages
) -> tuple[Column, ...]:
    """Decide which covariates are categories and which are numbers, and measure the numbers.

    Columns of texts are categories, and so are those named in `categorical`.

    Arguments:
        table: has the covariates.
        names: names of the covariates.
        categorical: columns whose values are categories even if they look like numbers.
        messages: takes notes about columns that may have been misread.
    """
    found, chosen = [], set(categorical)
    for name in dict.fromkeys(names):
        if name in chosen or table.is_text(name):
            column = Column(name, table.categories(name))
            constant = len(column.categories or ()) < 2
        else:
            numbers = covariate_numbers(table, (Column(name),))
            known = column_statistics(numbers)
            constant = bool(known.low[0] == known.high[0])
            column = Column(name, fill=float(known.mean[0]), scale=float(known.deviation[0]))
            distinct = np.unique(first_rows(numbers))
            if 2 < len(distinct) <= 10 and bool((distinct == np.floor(distinct)).all()):
                messages.note(
                    f"covariate {name!r} is taken as a number; if its values are names of batches, declare it "
                    "categorical."
                )
        if constant:
            raise CurvaeError(f"covariate {name!r} has the same value in every row of {table.path.name}; leave it out")
        found.append(column)
    return tuple(found)


def covariate_numbers(table: Table, columns: Sequence[Column]) -> Matrix:
    """Convert covariates to numbers that are not scaled yet, (rows, covariates); see `Table.numbers`."""
    numbers = table.numbers(columns, "the model was trained on numbers there", Messages())
    if has_missing(numbers):
        where = missing_by_column(column_statistics(numbers), [column.name for column in columns])
        raise CurvaeError(
            f"covariates of {table.path.name} have missing or infinite values, counted by column: {where}; "
            "fill them in, or remove these rows"
        )
    return numbers


def code_covariates(table: Table, columns: Sequence[Column]) -> Any:
    """Code covariates as numbers, (rows, coded covariates): categories one-hot, numbers standardised.

    Arguments:
        table: has the covariates.
        columns: their descriptions, from `fit_covariates`.
    """
    numbers = covariate_numbers(table, columns)
    known = column_statistics(numbers)
    for column, low, high in zip(columns, known.low, known.high, strict=True):
        if column.categories is None:
            far = max((low, high), key=lambda value: abs(value - column.fill))
            # Beyond a million standard deviations the networks overflow; rows of a training are nearer.
            if abs(far - column.fill) / column.scale > 1e6:
                raise CurvaeError(
                    f"covariate {_described(column)} is {far:.4g} in {table.path.name}, too far from that; correct it"
                )
    scaled = [(column.fill, column.scale) if column.categories is None else (0.0, 1.0) for column in columns]
    shift, scale = np.array(scaled).reshape(-1, 2).T
    return one_hot(Scaling(shift, scale).apply(numbers), columns, table.path.name)


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
            f"the model needs values of the covariates {listing(map(_described, absent))}; give them with "
            "`covariates=…`"
        )
    if not columns:
        return np.zeros((rows, 0))
    try:
        frame = pd.DataFrame({name: np.broadcast_to(np.asarray(given[name]), rows) for name in known})
    except ValueError:
        raise CurvaeError(f"give every covariate one value, or one for each of {rows:,} rows") from None
    return code_covariates(FrameTable(Path("what was given"), frame), columns)


def average_context(columns: Sequence[Column]) -> NDArray[np.float64]:
    """Code covariates of average circumstances: numbers at their mean, and all categories in equal shares.

    Example:
        >>> average_context([Column("batch", ("a", "b")), Column("age", fill=40.0, scale=10.0)])
        array([0.5, 0.5, 0. ])
    """
    shares = [[0.0] if one.categories is None else [1 / len(one.categories)] * len(one.categories) for one in columns]
    return np.array([share for column in shares for share in column])


def batch_contexts(schema: Schema) -> NDArray[np.float64]:
    """Code average circumstances in each batch, (batches, covariates); without batches those alone, (1, covariates)."""
    average = average_context(schema.covariates)
    if not schema.batch:
        return average[None]
    first, count = schema.batch
    each = np.tile(average, (count, 1))
    each[:, first : first + count] = np.eye(count)
    return each


def _described(column: Column) -> str:
    if column.categories is None:
        return f"{column.name!r} (a number, {column.fill:.4g} ± {column.scale:.4g} in training)"
    return f"{column.name!r} (one of {quoted(column.categories)})"


NOT_NUMBERS = "use `categorical=[{0}]`, `covariates=[{0}]`, `label={0}` or `id={0}`, or remove it"
"""what to do about a column of texts, {0}, that has no role"""


_COLUMNS = ("label", "id", "group", "exposure", "batch_key")  # roles of a single column


@dataclass(frozen=True)
class Roles:
    """Names of the columns of a table that the caller gives a role; the batch is a covariate with categories."""

    label: str | None = None
    id: str | None = None
    group: str | None = None
    categorical: tuple[str, ...] = ()
    exposure: str | None = None
    covariates: tuple[str, ...] = ()
    batch_key: str | None = None

    def __post_init__(self) -> None:
        if self.batch_key is not None:  # a covariate with categories
            for name in ("categorical", "covariates"):
                object.__setattr__(self, name, tuple(dict.fromkeys([*getattr(self, name), self.batch_key])))

    @classmethod
    def of(cls, schema: Schema) -> Roles:
        """Return the roles in the data that a model was trained on."""
        columns = [*(schema.columns if schema.categorical else ()), *schema.covariates]
        return cls(
            schema.label,
            schema.id,
            schema.group,
            tuple(column.name for column in columns if column.categories is not None),
            schema.exposure,
            tuple(column.name for column in schema.covariates),
            schema.batch_key,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Columns that name rows, labels or groups."""
        return tuple(name for name in (self.label, self.id, self.group) if name is not None)

    @property
    def asked(self) -> tuple[str, ...]:
        """All columns with a role."""
        exposure = () if self.exposure is None else (self.exposure,)
        return (*self.names, *self.categorical, *self.covariates, *exposure)


def read_table(
    path: Path, roles: Roles, schema: Schema | None, missing: Missing, storage: Storage | None = None
) -> RawData:
    """Read a table and sort its columns by their roles.

    Arguments:
        path: a file whose name ends in one of `TABLES`, or a folder of Parquet files.
        roles: columns that the caller gives a role.
        schema: schema of the data that a model was trained on, or None to fit one.
        missing: what is going to be done about missing values.
        storage: how large a table may be to be held in memory; others stay on disk.
    """
    messages, trained = Messages(), Roles()
    if schema is not None:
        if schema.kind == "images":
            raise CurvaeError(f"{path.name} is a table and the model was trained on images; give images")
        trained = Roles.of(schema)
    known = {*roles.asked, *trained.asked, *(() if schema is None else schema.column_names)}
    names, categories = {*roles.names, *trained.names}, {*roles.categorical, *trained.categorical}
    table: Table | None = None
    if storage is not None and _reader(path) in (None, _read_parquet):
        covariates, wanted = {*roles.covariates, *trained.covariates}, None if schema is None else known
        table = store_table(path, known, names, categories, covariates, wanted, storage, messages)
    if table is None:
        table = FrameTable(path, read_frame(path, known, names | categories, messages))
    return sort_columns(table, roles, schema, messages, missing)


def _reader(path: Path) -> Callable[[Path], pd.DataFrame] | None:
    return next((one for ending, one in TABLES.items() if one and path.name.lower().endswith(ending)), None)


def read_frame(
    path: Path, known: Collection[str], texts: Collection[str], messages: Messages, first: bool = False
) -> pd.DataFrame:
    """Read a table as a frame; see `read_text`, which also reads files with other endings, for the arguments."""
    reader = _reader(path)
    frame = read_text(path, known, texts, messages, first) if reader is None else reader(path)
    if not len(frame):
        raise CurvaeError(f"{path.name} has a header but no rows; add rows")
    return frame


def _read_parquet(path: Path) -> pd.DataFrame:
    with opened_parquet(path) as file:
        rows, columns = file.metadata.num_rows, file.metadata.num_columns
        memory.require(16 * rows * columns, f"{path.name} ({rows:,} rows × {columns:,} columns)")
        frame: pd.DataFrame = file.read().to_pandas()
    return named_frame(path, frame)


def named_frame(path: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """Take a frame of pandas as a table: an index that says anything is the first column, and names are texts."""
    if not frame.index.equals(pd.RangeIndex(len(frame))):
        frame = frame.reset_index(names=frame.index.name or f"{UNNAMED}0")
    return frame.set_axis(name_columns(path, [str(name) for name in frame.columns]), axis=1)


# How the names of tables end, and what reads such a file as a frame; None stands for a text table.
TABLES: dict[str, Callable[[Path], pd.DataFrame] | None] = {
    **dict.fromkeys((".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz")),
    ".parquet": _read_parquet,
}


def sort_columns(
    table: Table, roles: Roles, schema: Schema | None, messages: Messages, missing: Missing = "error"
) -> RawData:
    """Sort the columns of a table by their roles.

    Arguments:
        table: in memory or on disk.
        roles, schema, missing: see `read_table`.
        messages: takes notes.
    """
    present = table.names
    if schema is None and not roles.asked:
        _check_edges(table, messages)
    held, covariates = choose_roles(table, roles, schema, messages)
    given = [column.name for column in covariates]
    taken = {*given, roles.batch_key, *(name for name in held.values() if name is not None)}
    nameless = [name for name in present if name.startswith(UNNAMED) and name not in {*taken, *roles.categorical}]
    index = _index_column(table, nameless, held["id"] is not None, messages)
    features = [name for name in present if name not in {*taken, *nameless}]
    if schema is None:
        advice = ColumnAdvice(
            table,
            {role for role, name in (("id", held["id"] or index), ("label", held["label"])) if name is not None},
            choices=("model", "mean", "drop") if missing == "error" else (),
        )
        categorical = [name for name in roles.categorical if name not in given]
        cells = {name: table.first_text(name) for name in features if name not in categorical}
        offenders = {name: cell for name, cell in cells.items() if cell is not None}
        categories = {name: table.categories(name) for name in categorical}
        columns = tuple(Column(name, categories.get(name)) for name in features if name not in offenders)
        x = table.numbers(columns, NOT_NUMBERS, messages)
        left_out = advice.sort_texts(offenders, columns, x)
    else:
        columns, left_out = tuple(schema.columns), {}
        x = _match_columns(table, features, columns, messages)
    return RawData(
        source=table.path.name,
        kind="table",
        x=x,
        columns=columns,
        left_out=left_out,
        messages=messages,
        **read_roles(table, held, covariates, held["id"] or index, messages),
    )


def choose_roles(
    table: Table, roles: Roles, schema: Schema | None, messages: Messages
) -> tuple[dict[str, str | None], tuple[Column, ...]]:
    """Choose the columns with a role: those that were asked for, or those of the training data.

    Arguments:
        table, roles, schema, messages: see `sort_columns`.

    Returns:
        The name of the column of each role, and descriptions of the covariates.
    """
    path, present, trained = table.path, table.names, Roles() if schema is None else Roles.of(schema)
    check_roles(path, roles, present)
    # By default the roles are those of the training data, if the table has these columns.
    held: dict[str, str | None] = {
        role: getattr(roles, role) or (stored if (stored := getattr(trained, role)) in present else None)
        for role in _COLUMNS
    }
    if schema is not None and schema.exposure is not None and held["exposure"] is None:
        raise CurvaeError(
            f"{path.name} has no column {schema.exposure!r}, the exposure that the model was trained with; add it"
        )
    if schema is not None and schema.id is not None and held["id"] is None:
        messages.note(f"there is no id column {schema.id!r}; rows are numbered.")
    if schema is not None:
        return held, schema.covariates
    names = list(roles.covariates)
    if roles.batch_key is not None and len(categories := table.categories(roles.batch_key)) == 1:
        messages.note(f"batch {roles.batch_key!r} is {categories[0]!r} in every row; it is left out.")
        names.remove(roles.batch_key)
        held["batch_key"] = None
    return held, fit_covariates(table, names, roles.categorical, messages)


def read_roles(
    table: Table,
    held: Mapping[str, str | None],
    covariates: tuple[Column, ...],
    names: str | None,
    messages: Messages,
) -> dict[str, Any]:
    """Read the columns with a role, as arguments of `RawData`.

    Arguments:
        table: has the columns.
        held, covariates: from `choose_roles`.
        names: column that names the rows.
        messages: takes notes.
    """
    label, group, exposure, batch = (held[role] for role in ("label", "group", "exposure", "batch_key"))
    if absent := sorted({column.name for column in covariates} - set(table.names)):
        messages.note(f"covariates are absent: {quoted(absent)}.")
    known = bool(covariates) and not absent
    for column in covariates if known else ():
        if column.name == batch and (unseen := table.unseen_categories(column)):
            messages.warn(
                f"batch column {batch!r} holds batches that the model was not trained on: {quoted(unseen)}; rows are "
                "placed without their covariates."
            )
            known = False
    groups = None if group is None else table.texts(group, strip=True)
    if groups is not None and (empty := count_empty(groups)):
        raise CurvaeError(f"group column {group!r} is empty in {count(empty, 'row')}; give every row a group")
    labels = None if label is None else table.texts(label)
    if labels is not None and (empty := count_empty(labels)):
        messages.note(f"{count(empty, 'row')} without a label in column {label!r}; the label is left empty.")
    return {
        "ids": None if names is None else table.texts(names),
        "labels": labels,
        "groups": groups,
        "exposure": None if exposure is None else read_exposure(table, exposure, messages),
        "label_name": label,
        "context": code_covariates(table, covariates) if known else None,
        "covariates": covariates,
        "roles": dict(held),
    }


def check_roles(path: Path, roles: Roles, present: Sequence[str]) -> None:
    """Raise unless the table has all columns with a role and no column has two roles that exclude each other."""
    for role in _COLUMNS:
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


def _check_edges(table: Table, messages: Messages) -> None:
    """Note that rows look like the edges of a graph; raise if they name nodes by texts, which are no features."""
    if not looks_like_edges(table.head):
        return
    first, graph = table.names[0], f"curvae graph {shlex.quote(str(table.path))}"
    if table.is_text(first):
        roles = NOT_NUMBERS.format(json.dumps(first, ensure_ascii=False))
        raise CurvaeError(
            f"the rows of {table.path.name} look like the edges of a graph; use {graph}, or `graph=True` with compare "
            f"and diagnose; for a table of rows {roles}"
        )
    messages.note(
        f"the rows look like the edges of a graph; if they are, use {graph}, or `graph=True` with compare and diagnose."
    )


def read_exposure(table: Table, name: str, messages: Messages) -> Any:
    """Read the exposure of every row, (rows,); raise where it is not a positive number."""
    values = table.numbers([Column(name)], "an exposure is a number; choose another column", messages)
    if wrong := sum(int((~(np.isfinite(block) & (block > 0))).sum()) for block in row_blocks(values)):
        raise CurvaeError(
            f"exposure column {name!r} of {table.path.name} is not a positive number in {count(wrong, 'row')}; "
            "correct it"
        )
    return values[:, 0]


def require_column(path: Path, role: str, name: str | None, present: Sequence[str]) -> None:
    """Raise unless a table has the column for a role."""
    if name is None or name in present:
        return
    folded = {column.casefold(): column for column in present}
    near = [folded[match] for match in difflib.get_close_matches(name.casefold(), folded)]
    hint = f"did you mean {quoted(near)}?" if near else f"its columns are {quoted(present)}"
    raise CurvaeError(f"{path.name} has no column {name!r} for `{role}=…`; {hint}")


def _index_column(table: Table, nameless: Sequence[str], has_ids: bool, messages: Messages) -> str | None:
    """Find the column without a name that holds ids, if there is one."""
    found: str | None = None
    for name in nameless:
        place, texts = table.names.index(name) + 1, table.texts(name, strip=True)
        numbers = (pd.to_numeric(pd.Series(block), errors="coerce") for block in text_blocks(texts))
        if all(bool(np.isin(block, list(MISSING)).all()) for block in text_blocks(texts)):
            messages.note(f"column {place} has neither name nor values; it is left out.")
        elif len(repeated_texts(texts)) or any(bool((block[np.isfinite(block)] % 1 != 0).any()) for block in numbers):
            raise CurvaeError(f"column {place} of {table.path.name} has no name; give it one in the header")
        elif has_ids or found is not None:
            messages.note(f"column {place} has no name and is left out, since the ids are in another column.")
        else:
            found = name
            messages.note(f"column {place} has no name and a different value in every row; it is used as id.")
    return found


def _match_columns(table: Table, features: Sequence[str], columns: Sequence[Column], messages: Messages) -> Matrix:
    """Convert the columns that a model was trained on to numbers; raise for those that are absent."""
    names = [column.name for column in columns]
    present, wanted = set(table.names), set(names)
    if absent := [name for name in names if name not in present]:
        raise CurvaeError(
            f"{table.path.name} has no columns {quoted(absent)}, which the model was trained on; add them"
        )
    if extra := [name for name in features if name not in wanted]:
        messages.note(f"columns that the model was not trained on are left out: {quoted(extra)}.")
    return table.numbers(columns, "the model was trained on numbers there", messages)
