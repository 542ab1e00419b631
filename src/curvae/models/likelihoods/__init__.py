"""Likelihoods: what the outputs of a decoder say about a row of data."""

from __future__ import annotations

from pkgutil import resolve_name

import numpy as np

from ... import settings
from ...errors import CurvaeError
from ..batch import Layout
from .base import Family, Likelihood, Matrix, row_blocks, stored_values
from .bernoulli import Bernoulli
from .categorical import Categorical
from .counts import Poisson
from .gaussian import Gaussian
from .mixed import Mixed
from .negative_binomial import NegativeBinomial, ZeroInflated

__all__ = [
    "LIKELIHOODS",
    "Bernoulli",
    "Categorical",
    "Family",
    "Gaussian",
    "Likelihood",
    "Mixed",
    "NegativeBinomial",
    "Poisson",
    "ZeroInflated",
    "choose_likelihood",
]


# Every likelihood that can be asked for by name.
LIKELIHOODS: dict[str, Family] = {
    name: resolve_name(f"{__name__}.{place}") for name, place in settings.LIKELIHOODS.items()
}


def choose_likelihood(x: Matrix, asked: str = "auto", layout: Layout | None = None) -> tuple[str, str]:
    """Choose the likelihood for the data by name, and say why; raise when the data do not fit the one asked for."""
    layout = layout or Layout(x.shape[1])
    if sum(layout.widths) != x.shape[1]:
        raise CurvaeError(
            f"blocks {layout.blocks} stand for {sum(layout.widths)} columns, not {x.shape[1]}; correct them"
        )
    name, why = _automatic(x, layout) if asked == "auto" else (asked, "as asked")
    if asked != "auto" or any(layout.blocks):
        for block in row_blocks(x):
            if reason := LIKELIHOODS[name].refusal(block, layout):
                raise CurvaeError(f"likelihood {name} {reason}")
    return name, why


def _automatic(x: Matrix, layout: Layout) -> tuple[str, str]:
    """Choose by the kinds of the columns where they are known, otherwise by the values; return the reason, too."""
    blocks = layout.blocks
    if layout.counts:
        return "nb", "all values are whole numbers, counts of genes in cells"
    if blocks and min(blocks) > 1:
        return "categorical", "all columns hold categories"
    if max(blocks, default=0) < 2 and all(np.isin(stored_values(block), (0, 1)).all() for block in row_blocks(x)):
        return "bernoulli", "all values are 0 or 1"
    if not any(blocks):
        return "gaussian", "not all values are 0 or 1; a standard deviation is learned for every column"
    kinds = {"numeric": blocks.count(0), "binary": blocks.count(1), "categorical": sum(n > 1 for n in blocks)}
    listed = ", ".join(f"{n} {kind}" for kind, n in kinds.items() if n)
    return "mixed", f"columns of several kinds ({listed}), each with its own likelihood"
