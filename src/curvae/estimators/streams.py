"""Estimators on rows that are read in pieces, which are trained on but not held."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..data import Stream
from ..errors import CurvaeError
from ..training.evaluate import Embedding, embed
from ..training.fitted import Fitted
from ..training.fitting import fit
from ..training.splits import HeldOut
from ..training.stream_problem import sample_rows
from .columns import restore_dtypes

__all__ = ["fit_stream", "refuse_stream"]


def refuse_stream(rows: Any) -> None:
    """Raise for rows that are read in pieces where a matrix is needed."""
    if isinstance(rows, Stream):
        raise CurvaeError("rows that are read in pieces are only trained on; give a matrix, such as the x of a piece")


def fit_stream(estimator: Any, rows: Stream, sample_weight: Any, device: Any) -> tuple[Fitted, Embedding]:
    """Train an estimator on a stream, and place a sample of it: the rows held out and at most 10,000 others.

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
    schema = rows.schema
    names, asked = [column.name for column in schema.covariates], list(estimator.covariates or ())
    if names != asked:
        raise CurvaeError(f"covariates is {asked} of the estimator and {names} of the rows; give both the same")
    if schema.exposure is not None:
        raise CurvaeError("an estimator knows no exposure=…; open the rows without, or train with curvae.training.fit")
    config = estimator._config()
    fitted = fit(config, rows, device=device).double()
    for name in ("feature_names_in_", "sample_indices_"):
        vars(estimator).pop(name, None)
    estimator._schema, estimator._dtypes = schema, restore_dtypes(schema, {})
    estimator.covariates_, estimator.n_features_in_ = schema.covariates, len(schema.columns)
    estimator.notes_ = estimator._data_warnings = ()
    if schema.kind == "table":
        estimator.feature_names_in_ = np.array(schema.column_names, dtype=object)
    held_out = HeldOut(len(rows), fitted.split.validation, fitted.split.test)
    chosen, split = sample_rows(rows, held_out, config.seed)
    return replace(fitted, split=split), embed(fitted, rows.held(chosen)).require_finite()
