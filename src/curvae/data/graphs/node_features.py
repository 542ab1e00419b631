"""Features of nodes: columns of a table, or a matrix in a file of its own, which stays sparse if it is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from ...errors import CurvaeError
from .. import memory
from ..column_values import categories_of, is_text, numbers_of
from ..dataset import as_matrix
from ..files import require_file
from ..matrices import read_npy, read_sparse
from ..messages import Messages, count, quoted
from ..missing import column_means, has_missing, missing_by_column, missing_counts, resolve
from ..schema import Column
from ..tables import TABLES
from ..text_tables import UNNAMED

__all__ = [
    "Categories",
    "Filling",
    "Matrix",
    "is_table",
    "matrix_rows",
    "number_columns",
    "read_matrix",
    "table_features",
]

Filling: TypeAlias = Literal["error", "mean"]
Matrix: TypeAlias = NDArray[np.float64] | csr_array
Categories: TypeAlias = Sequence[str] | Mapping[str, Sequence[str]]

_DENSE = 0.25  # share of values that are not 0 from which a sparse matrix is not worth being one


# --- columns of a table ---------------------------------------------------------------------------------------------


def number_columns(frame: pd.DataFrame, left_out: Sequence[str]) -> list[str]:
    """Columns of numbers, true and false, with a value at least, that are not to be left out."""
    named = [str(name) for name in frame.columns if name not in left_out and not str(name).startswith(UNNAMED)]
    return [name for name in named if not is_text(frame[name]) and bool(frame[name].notna().any())]


def table_features(
    source: Path,
    frame: pd.DataFrame,
    rows: NDArray[np.intp],
    numbers: Sequence[str],
    categorical: Categories,
    missing: Filling,
    messages: Messages,
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Features of nodes from columns of a table, (nodes, features), and their names.

    A text column becomes a feature for each of its categories, called column=category: 1 where a node has it, else 0.

    Arguments:
        source: the table, for messages.
        frame: its columns.
        rows: row of each node, −1 if it has none, (nodes,).
        numbers: names of columns of numbers.
        categorical: names of text columns, with the categories of each where they are known.
        missing: "error" raises for missing values, "mean" fills in the mean of the feature.
        messages: takes notes.
    """
    known = categorical if isinstance(categorical, Mapping) else {}
    texts = {name: tuple(known[name]) if known else categories_of(frame[name]) for name in categorical}
    columns = (*(Column(name) for name in numbers), *(Column(name, values) for name, values in texts.items()))
    names = [*numbers, *(f"{name}={value}" for name, values in texts.items() for value in values)]
    memory.require(16 * len(rows) * len(names), f"{count(len(names), 'feature')} of {count(len(rows), 'node')}")
    fix = "choose columns of numbers for features=…, or use categorical=[{0}]"
    found = numbers_of(source, frame[[column.name for column in columns]], columns, fix, messages)[rows]
    found[rows < 0] = np.nan
    parts = [found[:, : len(numbers)]]
    for place, values in enumerate(texts.values(), len(numbers)):
        codes = found[:, [place]]
        parts.append(np.where(np.isfinite(codes), codes == np.arange(len(values)), np.nan))
    return _fill(source.name, np.concatenate(parts, axis=1), names, missing, messages), tuple(names)


def _fill(
    source: str, x: NDArray[np.float64], names: Sequence[str], missing: Filling, messages: Messages
) -> NDArray[np.float64]:
    counts, where = missing_counts(x), missing_by_column(x, names)
    if counts.any() and missing == "error":
        raise CurvaeError(f'{source} has missing values of nodes, counted by column: {where}; use missing="mean"')
    if (counts == len(x)).any():
        raise CurvaeError(f"{source} has columns without a single value: {where}; leave them out of features=…")
    return resolve(x, names, column_means(x), missing, messages)[0]


# --- matrices -------------------------------------------------------------------------------------------------------


def is_table(source: Any) -> bool:
    """Whether features are columns of a table: a frame, or a file whose name ends like one."""
    named = isinstance(source, str | Path) and str(source).lower().endswith(tuple(TABLES))
    return named or isinstance(source, pd.DataFrame)


def read_matrix(source: Any, messages: Messages) -> tuple[str, Matrix]:
    """Read a matrix of features, (rows, features); also return what to call it.

    Arguments:
        source: a file (.npz of scipy.sparse.save_npz, .npy, .mtx), an array, or a sparse matrix.
        messages: takes a note if a sparse matrix is made dense because few of its values are 0.
    """
    name, found = "features_file", source
    if isinstance(source, str | Path):
        path = Path(source)
        try:
            require_file(path)
        except FileNotFoundError:
            raise CurvaeError(f"there is no file of features {path}; check the name") from None
        name, ending = path.name, path.name.lower().removesuffix(".gz")
        if not ending.endswith((".npz", ".npy", ".mtx")):
            raise CurvaeError(f"{name} is no matrix of features; give a .npz, .npy, .csv or .parquet file")
        found = read_npy(path).x if ending.endswith(".npy") else read_sparse(path)
    matrix: Any = as_matrix(found, name)
    if has_missing(matrix):
        raise CurvaeError(f"{name} has missing or infinite values; replace them")
    if not issparse(matrix):
        return name, np.ascontiguousarray(matrix, dtype=np.float64)
    matrix = csr_array(matrix, dtype=np.float64, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if matrix.nnz > _DENSE * matrix.shape[0] * matrix.shape[1]:
        messages.note(f"{name} has few zeros and is treated as a dense matrix.")
        return name, matrix.toarray()
    return name, matrix


def matrix_rows(source: str, height: int, names: NDArray[np.str_], listed: NDArray[np.str_] | None) -> NDArray[np.intp]:
    """The row of a matrix of features for each node, (nodes,).

    Rows are in the order of a table of nodes. Without one, nodes must be called by numbers, and row i, counted from 0,
    is that of node i; or of node i + 1, if there is a node of the number of rows.

    Arguments:
        source: name of the matrix in messages.
        height: number of its rows.
        names: names of the nodes.
        listed: names in the table of nodes, if there is one.
    """
    if listed is not None:
        if len(listed) != height:
            raise CurvaeError(
                f"{source} has {count(height, 'row')} and the table of nodes {len(listed):,}; give equally many"
            )
        rows = pd.Index(listed).get_indexer(pd.Index(names))
        if (rows < 0).any():
            raise CurvaeError(
                f"the table of nodes has no row for {quoted(names[rows < 0])}, so {source} has none; add them"
            )
        return rows
    if not all(re.fullmatch(r"\d{1,18}", name) for name in names.tolist()):
        raise CurvaeError(
            f"{source} does not say which row belongs to node {str(names[0])!r}; call nodes by the numbers of their "
            "rows, from 0, or give a table with nodes=… in the order of the rows"
        )
    rows = names.astype(np.int64)
    if rows.min() >= 1 and rows.max() == height:
        rows = rows - 1
    if rows.max() >= height:
        raise CurvaeError(f"{source} has {count(height, 'row')}, none for node {rows.max()}; give one row per node")
    return rows.astype(np.intp)
