"""Likelihoods: what the outputs of a decoder say about a row of data."""

from __future__ import annotations

from importlib import import_module

from ... import settings
from ...errors import CurvaeError
from ..layout import Layout
from .base import Family, Likelihood, Matrix, stored_values
from .bernoulli import Bernoulli
from .categorical import Categorical
from .gaussian import Gaussian
from .poisson import Poisson

__all__ = [
    "LIKELIHOODS",
    "Bernoulli",
    "Categorical",
    "Family",
    "Gaussian",
    "Likelihood",
    "Poisson",
    "choose_likelihood",
]


def _family(place: str) -> Family:
    module, _, name = place.partition(":")
    return getattr(import_module(f".{module}", __name__), name)


LIKELIHOODS: dict[str, Family] = {name: _family(place) for name, place in settings.LIKELIHOODS.items()}
"""every likelihood that can be asked for by name"""


def choose_likelihood(x: Matrix, asked: str = "auto", layout: Layout | None = None) -> tuple[str, str]:
    """The name of the likelihood for the data, and the reason; raises when the data do not fit the one asked for."""
    if asked == "auto":
        values = stored_values(x)
        if values.size == 0 or bool(((values == 0) | (values == 1)).all()):
            return "bernoulli", "all values are 0 or 1"
        return "gaussian", "not all values are 0 or 1; a standard deviation is learned for every column"
    if reason := LIKELIHOODS[asked].refusal(x, layout or Layout(x.shape[1])):
        raise CurvaeError(f"likelihood {asked} {reason}")
    return asked, "as asked"
