"""Is one kind of model better than another? Differences on the same splits, and a test on their mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import stdtr, stdtrit

from ..maps.statistics import LEVEL

__all__ = ["Outcome", "Paired"]

Outcome = Literal["hyperbolic", "none", "euclidean"]


@dataclass(frozen=True)
class Paired:
    """What curved models gain over flat ones, one figure a split; positive is better.

    Arguments:
        differences: curved minus flat, at least two.
        ratio: test data over training data. Training sets of different splits overlap, so differences are not
            independent, and the variance of their mean is raised by this share; 0 leaves it as if they were.

    References:
        Nadeau and Bengio (2003), Inference for the generalization error.

    Example:
        >>> gain = Paired([1.0, 1.2, 0.8, 1.1], ratio=0.1)
        >>> gain.outcome, round(gain.mean, 3)
        ('hyperbolic', 1.025)
    """

    differences: Sequence[float]
    ratio: float = 0.0

    @property
    def mean(self) -> float:
        return float(np.mean(self.differences))

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return float(np.std(self.differences, ddof=1) * math.sqrt(1 / len(self.differences) + self.ratio))

    @property
    def interval(self) -> float:
        """Half-width of the 95 % interval of the mean."""
        return float(stdtrit(len(self.differences) - 1, 1 - LEVEL / 2) * self.error)

    @property
    def p_value(self) -> float:
        """Of the two-sided t-test."""
        if self.error == 0:
            return 1.0 if self.mean == 0 else 0.0
        return float(2 * stdtr(len(self.differences) - 1, -abs(self.mean) / self.error))

    @property
    def outcome(self) -> Outcome:
        if self.p_value >= LEVEL:
            return "none"
        return "hyperbolic" if self.mean > 0 else "euclidean"

    def verdict(self, unit: str, curved: str, flat: str = "curvature 0", factor: float = 1.0) -> str:
        """Give the answer in one sentence, in units of which there are `factor` to those of the differences.

        `curved` and `flat` are the spaces between which it decides.
        """
        margin = f"{factor * self.interval:.2f} {unit} (p = {self.p_value:.2g})"
        gain = factor * self.mean
        if self.outcome == "none":
            return f"No detectable difference: use {flat}. Curved minus flat is {gain:+.2f} ± {margin}."
        name = "Hyperbolic" if self.outcome == "hyperbolic" else "Euclidean"
        space = curved if self.outcome == "hyperbolic" else flat
        return f"{name} better by {abs(gain):.2f} ± {margin}: use {space}."
