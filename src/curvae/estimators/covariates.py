"""Columns of X that are covariates, apart from those that are features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from ..data.messages import quoted
from ..errors import CurvaeError

__all__ = ["take_apart"]


def take_apart(
    X: Any, covariates: Sequence[Any] | None, features: int | None = None
) -> tuple[Any, pd.DataFrame | None]:
    """The features of X, and the covariates as a frame, or None where X lacks them.

    Arguments:
        X: a data frame, whose covariates are given by name; or any matrix, whose are given by place.
        covariates: which columns; none by default.
        features: columns that are no covariates, where that is known: then covariates may be absent.
    """
    if covariates is None or len(covariates) == 0:
        return X, None
    if isinstance(covariates, str):
        raise CurvaeError(f"covariates is the text {covariates!r}; give a list of columns")
    if hasattr(X, "iloc"):
        lacking = [name for name in covariates if name not in X.columns]
        if lacking and features is None:
            raise CurvaeError(f"X has no column {quoted(lacking)} for a covariate; its columns are {quoted(X.columns)}")
        rest = X.drop(columns=[name for name in covariates if name not in lacking])
        return rest, None if lacking else X[list(covariates)].rename(columns=str)
    if any(isinstance(place, str) for place in covariates):
        raise CurvaeError("covariates are names, but the columns of X have none; give their places, or a data frame")
    matrix: Any = sparse.csr_array(X) if sparse.issparse(X) else np.asarray(X)
    if matrix.ndim != 2 or matrix.shape[1] == features:
        return X, None
    width = matrix.shape[1]
    if outside := [place for place in covariates if not -width <= place < width]:
        raise CurvaeError(f"X has no column {outside[0]}; it has {width}, and the first is 0")
    places = [int(place) % width for place in covariates]
    told = matrix[:, places]
    told = told.toarray() if sparse.issparse(told) else told
    frame = pd.DataFrame({str(name): told[:, j] for j, name in enumerate(covariates)}).infer_objects()
    return matrix[:, [j for j in range(width) if j not in set(places)]], frame
