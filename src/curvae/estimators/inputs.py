"""Columns of X: numbers, categories and covariates, read as the command line reads those of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.utils.validation import validate_data

from ..data import Column, Dataset, Schema
from ..data.column_statistics import masked_as_nan
from ..data.columns import FrameTable, RawData
from ..data.dataset import NumberColumns, feature_names, source_columns
from ..data.files import Messages, quoted
from ..data.tables import code_covariates, fit_covariates, read_exposure, require_column
from ..data.text_tables import name_columns, texts_of
from ..errors import CurvaeError

__all__ = ["read_dataset", "read_rows", "restore_columns", "restore_dtypes"]

_SOURCE = Path("X")  # the name of the rows in messages
_NOT_NUMBERS = "use `categorical=[{0}]` or `covariates=[{0}]`, or leave it out"


def read_rows(estimator: Any, X: Any, schema: Schema | None) -> RawData:
    """Read the rows of X: a data frame as a table, anything else as a matrix unless it has categories.

    Without a schema, sets `n_features_in_`, `feature_names_in_` and `_dtypes`, the types of the columns of categories
    and booleans by name.

    Arguments:
        estimator: its parameters say what the columns are.
        X: a data frame of pandas, polars or pyarrow, an array, which may be masked, or a sparse matrix.
        schema: schema of the rows that the estimator was fitted to, or None to fit one.
    """
    if isinstance(X, str | Path):
        raise CurvaeError(f"X is the name of a file, {str(X)!r}; give what `curvae.data.load` reads from it")
    if isinstance(X, pd.Series):
        raise CurvaeError("X is a single row or column; give a data frame, of one row `row.to_frame().T`")
    X = X.to_pandas() if hasattr(X, "to_pandas") else masked_as_nan(X)
    exposure, messages = None, Messages()
    if schema is not None and estimator._from_table and isinstance(X, pd.DataFrame):
        labels = {str(label): label for label in X.columns}
        if schema.exposure in labels:
            exposure = read_exposure(FrameTable(_SOURCE, X), labels[schema.exposure], messages)
        known = [*schema.column_names, *(column.name for column in schema.covariates)]
        X = X[[labels[name] for name in known if name in labels]]
    features, context = _take_apart(X, estimator.covariates, None if schema is None else len(schema.columns))
    listed = _listed(X, estimator.categorical) if schema is None else []
    sparse_columns = any(isinstance(dtype, pd.SparseDtype) for dtype in getattr(features, "dtypes", ()))
    frame_given = isinstance(features, pd.DataFrame) and not sparse_columns
    table = frame_given or bool(listed) or (schema is not None and schema.categorical)
    columns: Sequence[Column]
    if table:
        frame = _as_frame(features, context, estimator.covariates)
        x, columns = _read_table(estimator, frame, listed, schema, messages)
    else:
        x, columns = _read_matrix(estimator, features, schema)
    covariates = () if schema is None else schema.covariates
    measured = None if context is None else FrameTable(_SOURCE, context)
    if schema is None and measured is not None:
        covariates = fit_covariates(measured, measured.names, [str(label) for label in listed], messages)
    image = estimator.network == "conv" or estimator.image_shape is not None
    return RawData(
        "X",
        "images" if image else "table" if table else "matrix",
        x,
        columns,
        context=None if measured is None else code_covariates(measured, covariates),
        covariates=covariates,
        exposure=exposure,
        messages=messages,
        keeps_constant=True,
    )


def read_dataset(estimator: Any, data: Dataset, schema: Schema | None) -> Dataset:
    """Check the rows of a data set, which was read with the settings that it has.

    Without a schema, sets `n_features_in_`, `feature_names_in_` and `_dtypes`.

    Arguments:
        estimator: its parameters must say the same about the columns.
        data: the rows.
        schema: schema of the rows that the estimator was fitted to, or None to take that of the data.
    """
    if schema is not None:
        if data.x.shape[1] != len(schema.names):
            raise CurvaeError(f"X has {data.x.shape[1]:,} features, and the model was fitted to {len(schema.names):,}")
        return data
    if (estimator.missing == "model") != data.missing:
        given = '`missing="model"`' if data.missing else 'another value than `missing="model"`'
        raise CurvaeError(f"X was read with {given}, and the estimator has {estimator.missing!r}; give both the same")
    schema = data.schema or Schema("matrix", NumberColumns(data.names), data.shape)
    names, asked = [column.name for column in schema.covariates], list(estimator.covariates or ())
    if names != asked:
        raise CurvaeError(f"`covariates` is {asked} of the estimator and {names} of X; give both the same")
    if schema.exposure is not None:
        raise CurvaeError("an estimator knows no `exposure=…`; read X without, or train with curvae.training.fit")
    vars(estimator).pop("feature_names_in_", None)
    estimator.n_features_in_, estimator._dtypes = len(schema.columns), restore_dtypes(schema, {})
    if schema.kind == "table":
        estimator.feature_names_in_ = np.array(schema.column_names, dtype=object)
    return replace(data, schema=schema)


def _as_frame(features: Any, context: pd.DataFrame | None, covariates: Sequence[Any] | None) -> pd.DataFrame:
    """Convert a matrix with categories to a frame, whose columns are called by their positions in X."""
    if isinstance(features, pd.DataFrame):
        return features.infer_objects()
    matrix: Any = features.toarray() if sparse.issparse(features) else np.asarray(features)
    frame = pd.DataFrame(matrix).infer_objects()
    if context is None:
        return frame
    width = frame.shape[1] + context.shape[1]
    taken = {range(width)[place] for place in covariates or ()}
    return frame.set_axis([place for place in range(width) if place not in taken], axis=1)


def _listed(X: Any, categorical: Any) -> list[Any]:
    """List the labels of the columns that are categories by request, given by name or position."""
    if categorical is None or isinstance(categorical, str):
        return []
    if not isinstance(categorical, Iterable):
        raise CurvaeError(f'`categorical` must be "auto", None or a list of columns, got {categorical!r}')
    labels = X.columns.tolist() if isinstance(X, pd.DataFrame) else range(np.shape(X)[1])
    names = [str(label) for label in labels]
    found = []
    for entry in categorical:
        if isinstance(entry, int | np.integer) and entry not in labels and -len(names) <= entry < len(names):
            found.append(labels[entry])
        else:
            require_column(_SOURCE, "categorical", str(entry), names)
            found.append(labels[names.index(str(entry))])
    return found


def _read_table(
    estimator: Any, frame: pd.DataFrame, listed: Sequence[Any], schema: Schema | None, messages: Messages
) -> tuple[Any, tuple[Column, ...]]:
    """Read the features of a data frame as numbers; a category is its position in the list of categories."""
    names = name_columns(_SOURCE, [str(label) for label in frame.columns])
    validate_data(estimator, frame, reset=schema is None, skip_check_array=True)
    if not len(frame):
        raise CurvaeError("X has no rows; give at least one")
    chosen = [label in listed for label in frame.columns]
    single = bool((frame.dtypes == np.float32).all())
    if schema is None:
        table = FrameTable(_SOURCE, frame.set_axis(names, axis=1))
        columns = tuple(
            _column(table, name, asked, estimator.categorical) for name, asked in zip(names, chosen, strict=True)
        )
        estimator._dtypes = {
            column.name: dtype
            for column, dtype in zip(columns, frame.dtypes, strict=True)
            if column.categories is not None or pd.api.types.is_bool_dtype(dtype)
        }
    else:
        columns = tuple(schema.columns)
        table = FrameTable(_SOURCE, frame.set_axis(list(schema.column_names), axis=1))
    x = table.numbers(columns, _NOT_NUMBERS if schema is None else "give numbers, as in `fit`", messages)
    return x.astype(np.float32) if single else x, columns


def _column(table: FrameTable, name: str, asked: bool, categorical: Any) -> Column:
    """Describe a column: it has categories if that was asked for or, with "auto", if it holds text."""
    dtype = table.head[name].dtype
    if dtype.kind in "mM":
        raise CurvaeError(f"column {name!r} holds dates or times; convert it to numbers, or leave it out")
    if not (asked or (isinstance(categorical, str) and table.is_text(name))):
        return Column(name)
    if not asked and not isinstance(dtype, pd.CategoricalDtype) and (wrong := table.cells_to_correct(name)):
        raise CurvaeError(
            f"column {name!r} has numbers, and cells that are none: {quoted(wrong)}; correct these (a gap is NaN), or "
            "list it in `categorical=[…]` if it is a feature of categories"
        )
    categories = table.categories(name)
    if not asked and not isinstance(dtype, pd.CategoricalDtype) and len(categories) == table.rows > 2:
        raise CurvaeError(
            f"column {name!r} has a different text in every row, as names do; leave it out, or list it in "
            "`categorical=[…]` if it is a feature"
        )
    return Column(name, categories)


def _read_matrix(estimator: Any, X: Any, schema: Schema | None) -> tuple[Any, Sequence[Column]]:
    """Check a matrix of numbers, whose missing values are dealt with later."""
    try:
        x = validate_data(
            estimator,
            X,
            reset=schema is None,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_all_finite=False,
            ensure_min_samples=2 if schema is None else 1,
        )
    except ValueError as error:
        if not str(error).startswith("could not convert string to float"):
            raise
        text = str(error).partition(": ")[2]
        raise CurvaeError(
            f"X is an array with text in it, {text}; give a data frame, or list the columns of text in "
            "`categorical=[…]`"
        ) from None
    if schema is not None:
        return x, schema.columns
    estimator._dtypes = {}
    names = getattr(estimator, "feature_names_in_", None)
    return x, NumberColumns(feature_names(x.shape[1]) if names is None else names.tolist())


def restore_dtypes(schema: Schema, stored: Mapping[str, str]) -> dict[str, Any]:
    """Find the types of the columns of categories and booleans by their stored names; by default, categories are text.

    Of pandas categories only the texts are stored, not their order.
    """
    found: dict[str, Any] = {}
    for column in schema.columns if schema.categorical or stored else ():
        name = stored.get(column.name, None if column.categories is None else "str")
        if name == "category":
            found[column.name] = pd.CategoricalDtype(list(column.categories or ()))
        elif name is not None:
            try:
                found[column.name] = pd.api.types.pandas_dtype(name)
            except TypeError:
                raise CurvaeError(f"column {column.name!r} is stored with the type {name!r}; train again") from None
    return found


def restore_columns(
    x: Any, columns: Sequence[Column], dtypes: Mapping[str, Any], labels: Any, index: Any = None
) -> pd.DataFrame:
    """Convert features back to the columns of the source: the most probable category, or truth value, in their types.

    Arguments:
        x: values or expected values of the features, (rows, features).
        columns: descriptions of the columns.
        dtypes: types of the columns of categories and booleans by name.
        labels, index: of the frame.
    """
    found = source_columns(x, columns)
    for name, dtype in dtypes.items():
        values: Any = pd.Series(found[name])
        if isinstance(dtype, pd.CategoricalDtype):
            texts = pd.Index(texts_of(pd.Series(dtype.categories), strip=True))
            values = pd.Categorical.from_codes(texts.get_indexer(values), dtype=dtype)
        elif pd.api.types.is_bool_dtype(dtype):
            values = values >= 0.5 if pd.api.types.is_numeric_dtype(values) else values == "True"
        found[name] = values.astype(dtype)
    return pd.DataFrame(found).set_axis(labels, axis=1).set_axis(range(len(x)) if index is None else index)


def _take_apart(
    X: Any, covariates: Sequence[Any] | None, features: int | None = None
) -> tuple[Any, pd.DataFrame | None]:
    """Separate the features of X from the covariates, a frame, or None where X lacks them.

    Arguments:
        X: a data frame, whose covariates are given by name; or any matrix, whose are given by place.
        covariates: which columns; none by default.
        features: columns that are no covariates, where that is known: then covariates may be absent.
    """
    if covariates is None or len(covariates) == 0:
        return X, None
    if isinstance(covariates, str):
        raise CurvaeError(f"`covariates` is the text {covariates!r}; give a list of columns")
    if hasattr(X, "iloc"):
        lacking = [name for name in covariates if name not in X.columns]
        if lacking and features is None:
            raise CurvaeError(f"X has no column {quoted(lacking)} for a covariate; its columns are {quoted(X.columns)}")
        rest = X.drop(columns=[name for name in covariates if name not in lacking])
        return rest, None if lacking else X[list(covariates)].rename(columns=str)
    if any(isinstance(place, str) for place in covariates):
        raise CurvaeError("`covariates` are names, but the columns of X have none; give their places, or a data frame")
    matrix: Any = sparse.csr_array(X) if sparse.issparse(X) else np.asarray(X)
    if matrix.ndim != 2 or matrix.shape[1] == features:
        return X, None
    width = matrix.shape[1]
    if outside := [place for place in covariates if not -width <= place < width]:
        raise CurvaeError(f"X has no column {outside[0]}; it has {width}, and the first is 0")
    places = [int(place) % width for place in covariates]
    context = matrix[:, places]
    context = context.toarray() if sparse.issparse(context) else context
    frame = pd.DataFrame({str(name): context[:, j] for j, name in enumerate(covariates)}).infer_objects()
    return matrix[:, [j for j in range(width) if j not in set(places)]], frame
