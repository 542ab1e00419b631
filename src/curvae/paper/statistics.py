"""Tests between our trainings, and between them and what the paper prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import stats

from ..training.paired import LEVEL, Paired, mean_interval

__all__ = ["Estimate", "Mark", "Printed", "Test", "against_printed", "estimate", "linear_contrast", "mark", "paired"]

Mark = Literal["better", "equal", "worse"]


@dataclass(frozen=True)
class Estimate:
    """Mean and half-width of its 95 % interval over `n` trainings."""

    mean: float
    half: float
    n: int


class Printed(Estimate):
    """A figure of the paper."""

    @property
    def error(self) -> float:
        """The standard error behind the interval, if it was made with Student's t as ours are."""
        return self.half / float(stats.t.ppf(1 - LEVEL / 2, self.n - 1))


@dataclass(frozen=True)
class Test:
    """A difference, and how surprising it would be by chance.

    Attributes:
        difference: the estimate.
        half: half-width of its 95 % interval.
        p: two-sided p-value.
        df: degrees of freedom.
    """

    difference: float
    half: float
    p: float
    df: float


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and half-width of its 95 % interval by Student's t; the interval of a single value is unknown.

    Example:
        >>> found = estimate([1.0, 2.0, 3.0])
        >>> round(found.mean, 3), round(found.half, 3), found.n
        (2.0, 2.484, 3)
    """
    return Estimate(*(mean_interval(values) if len(values) > 1 else (float(values[0]), math.nan)), len(values))


def _test(difference: float, error: float, df: float) -> Test:
    if error == 0:
        return Test(difference, 0.0, 1.0 if difference == 0 else 0.0, df)
    half = float(stats.t.ppf(1 - LEVEL / 2, df)) * error
    return Test(difference, half, float(2 * stats.t.sf(abs(difference) / error, df)), df)


def against_printed(values: Sequence[float], printed: Printed) -> Test:
    """Ours minus the paper's, by Welch's test with the variance that the printed interval implies."""
    own, other = float(np.var(values, ddof=1)) / len(values), printed.error**2
    total = own + other
    df = total**2 / (own**2 / (len(values) - 1) + other**2 / (printed.n - 1)) if total else math.inf
    return _test(float(np.mean(values)) - printed.mean, math.sqrt(total), df)


def paired(a: Sequence[float], b: Sequence[float], ratio: float = 0.0) -> Test:
    """a − b, by the t-test on differences of trainings that share seed and data; `ratio` as of `Paired`."""
    return _one_sample(np.subtract(a, b), ratio)


def linear_contrast(columns: Sequence[Sequence[float]], x: Sequence[float]) -> Test:
    """The slope over x, by the t-test on the slopes that each seed shows by itself.

    Arguments:
        columns: for each x, a figure a seed, in the same order of seeds.
        x: at least two values.
    """
    weights = np.asarray(x, dtype=np.float64) - np.mean(x)
    return _one_sample(np.asarray(columns, dtype=np.float64).T @ weights / (weights @ weights))


def _one_sample(values: Any, ratio: float = 0.0) -> Test:
    found = Paired(values, ratio)
    return Test(found.mean, found.interval, found.p_value, len(values) - 1)


def mark(test: Test, lower_is_better: bool = True, level: float = LEVEL) -> Mark:
    """The difference in a word."""
    if not test.p < level:
        return "equal"
    return "better" if (test.difference < 0) == lower_is_better else "worse"
