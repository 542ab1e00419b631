"""Estimators on rows that are read in pieces, which are trained on but not held."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..data import Arrays, Batches, Column, Stream
from ..errors import CurvaeError
from ..training.evaluate import Embedding, embed
from ..training.fitted import Fitted
from ..training.fitting import fit
from ..training.splits import HeldOut, Split
from ..training.stream_problem import sample_rows

__all__ = ["IN_PIECES", "fit_stream", "refuse_stream"]

IN_PIECES = (Stream, Batches)


def refuse_stream(rows: Any) -> None:
    """Raise for rows that are read in pieces where a matrix is needed."""
    if isinstance(rows, IN_PIECES):
        raise CurvaeError("rows that are read in pieces are only trained on; give a matrix, such as the x of a piece")


def fit_stream(estimator: Any, rows: Stream | Batches, sample_weight: Any, device: Any) -> tuple[Fitted, Embedding]:
    """Train an estimator on a stream, and place a sample of it: the rows held out and at most 10,000 others, or of
    batches those held out, or else the first of them.

    Sets `n_features_in_`, `feature_names_in_` and `covariates_`.
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
    covariates = _covariates(estimator, rows)
    config = estimator._config()
    fitted = fit(config, rows, device=device).double()
    estimator.covariates_, estimator.n_features_in_ = covariates, rows.features
    if isinstance(rows, Stream) and rows.schema.kind == "table":
        estimator.feature_names_in_ = np.array(rows.schema.names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    sample, split = _sample(rows, fitted.split, config.seed)
    return replace(fitted, split=split), embed(fitted, sample).require_finite()


def _covariates(estimator: Any, rows: Stream | Batches) -> tuple[Column, ...]:
    """Those of the rows, which must be those of the estimator; raises for roles that an estimator does not know."""
    schema = rows.schema if isinstance(rows, Stream) else None
    found = () if schema is None else schema.covariates
    names, asked = [column.name for column in found], list(estimator.covariates or ())
    if names != asked:
        raise CurvaeError(f"covariates is {asked} of the estimator and {names} of the rows; give both the same")
    if schema is not None and (schema.categorical or schema.exposure is not None):
        role = "categorical" if schema.categorical else "exposure"
        raise CurvaeError(f"an estimator knows no {role}=…; open the rows without, or train with curvae.training.fit")
    return found


def _sample(rows: Stream | Batches, split: Split, seed: int) -> tuple[Arrays, Split]:
    """Some rows, and which of them were trained on."""
    if isinstance(rows, Stream):
        chosen, own = sample_rows(rows, HeldOut(len(rows), split.validation, split.test), seed)
        return rows.held(chosen), own
    if rows.held_out is None:
        first = next(rows.epoch(0, seed))
        return first, Split(np.arange(len(first)), np.empty(0, np.int64))
    return rows.held_out, Split(np.empty(0, np.int64), np.arange(len(rows.held_out)))
