"""Estimators on rows that are read in pieces, which are trained on but not held."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..data import Arrays, Batches, Schema, Stream
from ..data.dataset import feature_names
from ..data.schema import NumberColumns
from ..errors import CurvaeError
from ..training.evaluate import Embedding, embed
from ..training.fitted import Fitted
from ..training.fitting import fit
from ..training.splits import HeldOut, Split
from ..training.stream_problem import sample_rows
from .columns import restore_dtypes

__all__ = ["IN_PIECES", "fit_stream", "refuse_stream"]

IN_PIECES = (Stream, Batches)


def refuse_stream(rows: Any) -> None:
    """Raise for rows that are read in pieces where a matrix is needed."""
    if isinstance(rows, IN_PIECES):
        raise CurvaeError("rows that are read in pieces are only trained on; give a matrix, such as the x of a piece")


def fit_stream(estimator: Any, rows: Stream | Batches, sample_weight: Any, device: Any) -> tuple[Fitted, Embedding]:
    """Train an estimator on a stream, and place a sample of it: the rows held out and at most 10,000 others, or of
    batches those held out, or else the first of them.

    Sets `n_features_in_`, `feature_names_in_`, `covariates_` and `notes_`.
    """
    needed = {
        "sample_weight": sample_weight is not None,
        "n_init": estimator.n_init != 1,
        "image_shape": estimator.image_shape is not None,
        'network="conv"': estimator.network == "conv",
    }
    if refused := [name for name, given in needed.items() if given]:
        raise CurvaeError(f"{', '.join(refused)} needs all rows in memory; leave it out, or give a matrix")
    if (estimator.missing == "model") != (rows.missing == "model"):
        raise CurvaeError(
            f"missing is {estimator.missing!r} of the estimator and {rows.missing!r} of the rows; give both the same"
        )
    schema = _schema(estimator, rows)
    config = estimator._config()
    fitted = fit(config, rows, device=device).double()
    for name in ("feature_names_in_", "sample_indices_"):
        vars(estimator).pop(name, None)
    estimator._schema, estimator._dtypes = schema, restore_dtypes(schema, {})
    estimator.covariates_, estimator.n_features_in_ = schema.covariates, len(schema.columns)
    estimator.notes_ = estimator._data_warnings = ()
    if schema.kind == "table":
        estimator.feature_names_in_ = np.array(schema.column_names, dtype=object)
    sample, split = _sample(rows, fitted.split, config.seed)
    return replace(fitted, split=split), embed(fitted, sample).require_finite()


def _schema(estimator: Any, rows: Stream | Batches) -> Schema:
    """The schema of the rows; raises where it does not suit the estimator."""
    if isinstance(rows, Stream):
        schema = rows.schema
    else:
        schema = Schema("matrix", NumberColumns(feature_names(rows.features)), (rows.features,))
    names, asked = [column.name for column in schema.covariates], list(estimator.covariates or ())
    if names != asked:
        raise CurvaeError(f"covariates is {asked} of the estimator and {names} of the rows; give both the same")
    if schema.exposure is not None:
        raise CurvaeError("an estimator knows no exposure=…; open the rows without, or train with curvae.training.fit")
    return schema


def _sample(rows: Stream | Batches, split: Split, seed: int) -> tuple[Arrays, Split]:
    """Some rows, and which of them were trained on."""
    if isinstance(rows, Stream):
        chosen, own = sample_rows(rows, HeldOut(len(rows), split.validation, split.test), seed)
        return rows.held(chosen), own
    if rows.held_out is None:
        first = next(rows.epoch(0, seed))
        return first, Split(np.arange(len(first)), np.empty(0, np.int64))
    return rows.held_out, Split(np.empty(0, np.int64), np.arange(len(rows.held_out)))
