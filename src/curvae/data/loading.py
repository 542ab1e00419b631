"""Load data from a file, a folder or by the name of a built-in data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from ..errors import CurvaeError, check
from . import memory as machine
from .cells import CELLS, is_cell_folder, read_cells
from .dataset import Dataset, Missing, NumberColumns, Schema
from .disk import CsrFile, DenseFile, DiskMatrix, csr_size
from .files import Messages, feature_names, not_found, require_file
from .graph_reading import BUILT_IN_GRAPHS, GRAPH_FILES
from .matrices import raw_matrix, read_folder, read_mnist, read_npy, read_sparse_matrix
from .spool import ROW_BYTES, Counter, Storage, store_matrix, store_table
from .synthetic import branching_diffusion, flat
from .tables import TABLES, FrameTable, RawData, Roles, Table, read_frame, read_parquet, sort_columns, table_reader

__all__ = ["BUILT_IN", "MATRICES", "load"]

# How the names of files of matrices and arrays end, and what reads them.
MATRICES: dict[str, Callable[[Path], RawData]] = {
    ".npy": read_npy,
    ".npz": read_sparse_matrix,
    ".mtx": read_sparse_matrix,
    ".mtx.gz": read_sparse_matrix,
}


BUILT_IN: dict[str, Callable[[], Dataset | RawData]] = {
    "branching-diffusion": lambda: branching_diffusion().dataset(),
    "flat": flat,
    "mnist": lambda: read_mnist("all"),
}


# What the schema of a model says.
_FIXED = {
    "categorical": "which columns are categorical",
    "covariates": "which columns are covariates",
    "batch_key": "which column is the batch",
    "genes": "which genes are used",
}


def load(
    source: str | Path,
    *,
    schema: Schema | None = None,
    label: str | None = None,
    id: str | None = None,  # noqa: A002 - the word that users know, as in --id
    group: str | None = None,
    categorical: Sequence[str] = (),
    exposure: str | None = None,
    covariates: Sequence[str] = (),
    batch_key: str | None = None,
    layer: str | None = None,
    genes: int | None = None,
    missing: Missing = "error",
    memory: str | int | None = None,
    cache: str | Path | None = None,
    counter: Counter = lambda task, rows: lambda more: None,
) -> tuple[Dataset, Schema]:
    """Load a table, a matrix, images, counts of cells or a built-in data set.

    Without a schema, one is fitted to the data. With the schema of a trained run, new data gets the same features:
    columns and genes are matched by name, categories and means are those of the training data, labels and covariates
    may be absent.

    Arguments:
        source: a file or folder, or the name of a built-in data set: branching-diffusion, flat, mnist. A file
            or folder of that name takes precedence.
        schema: schema of the data that a model was trained on.
        label: column of a table, or of what a cell file says about cells, with a label for each row.
        id: column with a unique name for each row.
        group: column; rows of one group stay together in splits.
        categorical: columns of a table that become one feature per category.
        exposure: column with the exposure of each row, for counts; of cells their total by default.
        covariates: columns that describe how a row was measured, such as its batch. They are not features
            but inputs of the networks. Texts are categories, and so are numbers that are also named in `categorical`;
            other numbers are standardised.
        batch_key: the covariate that is the batch; its values are categories.
        layer: layer of a `.h5ad` file that holds the counts; its matrix X by default.
        genes: how many genes of a cell file to use, those that vary most; by default those that the file marks as
            highly variable, or else 2,000 where there are 4,000 or more.
        missing: what to do about missing and infinite values. "error" raises, "drop" removes their rows, and "mean"
            fills in the mean of the column (of a categorical column its most frequent category). "model" leaves NaN:
            the model then scores only the other values, and its encoder is given which are missing.
        memory: bytes that rows may take in memory, as a number or a text such as "2GB". The rows of larger tables,
            `.npy` arrays and CSR matrices in `.npz` files stay on disk, and are read when they are needed. By default
            all data are held in memory, but for folders of Parquet files, which may take a quarter of that of the
            machine.
        cache: folder for copies. Text tables, Parquet files and compressed matrices that stay on disk are copied once
            into a file of numbers, which stays in this folder and is used again while their files are the same. By
            default it lies in the user's cache, and is removed when nothing uses it any more.
        counter: called with the name of a task and its number of rows; returns what is called with how many more of
            them are done.

    Returns:
        The data, and the schema that new data must meet.

    Example:
        >>> data, schema = load("branching-diffusion")
        >>> data.x.shape, data.label_name, schema.kind
        ((635, 50), 'branch', 'matrix')
    """
    check(missing in get_args(Missing), f"missing is {missing!r}; use one of {', '.join(get_args(Missing))}")
    for name, columns in (("categorical", categorical), ("covariates", covariates)):
        check(not isinstance(columns, str), f"{name} is the text {columns!r}; give a list of columns")
    given = {"categorical": categorical, "covariates": covariates, "batch_key": batch_key, "genes": genes}
    if fixed := [name for name, value in given.items() if schema is not None and value]:
        raise CurvaeError(f"{_FIXED[fixed[0]]} was set when the model was trained; leave out `{fixed[0]}=…`")
    roles = Roles(label, id, group, tuple(categorical), exposure, tuple(covariates), batch_key)
    try:
        bound = machine.bound(memory) if memory is not None or Path(source).is_dir() else None
        storage = None if bound is None else Storage(bound, None if cache is None else Path(cache), counter)
        raw = _read(source, roles, schema, missing, storage, {"layer": layer, "genes": genes})
    except OSError as error:
        raise CurvaeError(
            f"{source} cannot be read: {error.strerror or error}; check the file and its permissions"
        ) from error
    if schema is not None and raw.kind != "table":  # columns of a table were matched by name
        names = {"table": "a table with named columns", "matrix": "a matrix", "images": "images", "cells": "cells"}
        check(
            raw.kind == schema.kind,
            f"{raw.source} is {names[raw.kind]} and the model was trained on {names[schema.kind]}; give the same",
        )
        if (shape := raw.shape or (raw.x.shape[1],)) != schema.shape:
            raise CurvaeError(
                f"{raw.source} has {'images' if raw.kind == 'images' else 'rows'} of {' × '.join(map(str, shape))} "
                f"values and the model was trained on {' × '.join(map(str, schema.shape))}; give the same"
            )
    return raw.finish(schema, missing)


def _read(
    source: str | Path,
    roles: Roles,
    schema: Schema | None,
    missing: Missing,
    storage: Storage | None,
    how: Mapping[str, Any],
) -> RawData:
    path = Path(source) if Path(source).name else Path(source).resolve()  # "." has no name
    exists = path.exists() or path.is_symlink()
    if exists and not path.is_dir():
        require_file(path)
    endings = (*TABLES, *MATRICES, *CELLS)
    graphs = tuple(ending for ending in (".edges", *GRAPH_FILES) if ending not in endings)
    is_graph = path.name.lower().removesuffix(".gz").endswith(graphs) if exists else str(source) in BUILT_IN_GRAPHS
    check(
        not is_graph,
        f"{source} is a graph; use load_graph or curvae graph, or `graph=True` with curvae compare and diagnose",
    )
    if not exists and str(source) not in BUILT_IN:
        raise not_found(path, BUILT_IN, f"built in are {', '.join(BUILT_IN)}; files may end in {', '.join(endings)}")
    if is_cell_folder(path) or (exists and path.name.lower().endswith(tuple(CELLS)) and not path.is_dir()):
        return read_cells(path, roles, schema, storage, **how)
    if given := [name for name, value in how.items() if value is not None]:
        raise CurvaeError(f"`{given[0]}` is about a cell file, and {source} is none; leave it out")
    if any(path.glob("*.parquet")) if path.is_dir() else exists and path.name.lower().endswith(tuple(TABLES)):
        return read_table(path, roles, schema, missing, storage)
    if roles.asked:
        raise CurvaeError(
            f"only a table or a cell file has columns such as {roles.asked[0]!r}, and {source} is neither; leave them "
            "out"
        )
    if not exists:
        data = BUILT_IN[str(source)]()
        if isinstance(data, RawData):
            return data
        raw = raw_matrix(str(source), data.x)
        raw.ids, raw.labels, raw.label_name = data.ids, data.labels, data.label_name
        return raw
    return read_folder(path) if path.is_dir() else _read_matrix(path, storage)


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
        check(schema.kind != "images", f"{path.name} is a table and the model was trained on images; give images")
        trained = Roles.of(schema)
    known = {*roles.asked, *trained.asked, *(() if schema is None else schema.column_names)}
    names, categories = {*roles.names, *trained.names}, {*roles.categorical, *trained.categorical}
    table: Table | None = None
    if storage is not None and table_reader(path) in (None, read_parquet):
        covariates, wanted = {*roles.covariates, *trained.covariates}, None if schema is None else known
        table = store_table(path, known, names, categories, covariates, wanted, storage, messages)
    if table is None:
        table = FrameTable(path, read_frame(path, known, names | categories, messages))
    return sort_columns(table, roles, schema, messages, missing)


def _read_matrix(path: Path, storage: Storage | None) -> RawData:
    """Read a matrix from a file; open it, if it takes more memory than it may and can be read in parts."""
    file: DenseFile | CsrFile | None = None
    name, limit = path.name.lower(), 0 if storage is None else storage.memory
    if storage is not None and name.endswith(".npy"):
        file = DenseFile.open_npy(path)
        file = None if file is None or file.rows * (2 * file.row_bytes + ROW_BYTES) <= limit else file
    elif storage is not None and name.endswith(".npz") and csr_size(path) > limit:
        file = store_matrix(path, storage)
    if file is not None:
        return RawData(
            path.name,
            "matrix",
            DiskMatrix.of(file, file.columns, limit),
            NumberColumns(feature_names(file.columns)),
            messages=Messages([f"{file.rows:,} rows are read from disk, in {machine.size_text(limit)} of memory."]),
        )
    readers = [reader for suffix, reader in MATRICES.items() if name.endswith(suffix)]
    check(readers, f"{path.name} has an unknown file extension; use one of {', '.join((*TABLES, *MATRICES, *CELLS))}")
    return readers[0](path)
