"""Which curvatures predict held-out data best? A confidence set for c·σ0², from scores on the same splits.

Data determine c·σ0² alone, and flexible decoders absorb much of it: what can be asked for is the c·σ0² at which models
like these predict held-out data best. In each repeat a cubic in x = asinh(c·σ0²), which is linear in c·σ0² near 0 and
logarithmic far out, is fitted to the test scores; scores fall so fast at large c·σ0² that a quadratic would be wrong
near 0. A value is left out if one of those compared is significantly better, by one-sided t-tests over the repeats with
the variance of `Paired`, and Bonferroni's correction. None is better than the best, so that the set holds that with the
probability stated or more, if cubics fit. Repeats differ also by the luck of their trainings, which is larger than the
error over test rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from ..data.files import decimal
from ..errors import CurvaeError
from ..maps.statistics import LEVEL
from ..settings import Settings
from .paired import Paired

__all__ = ["FEWEST_REPEATS", "FEWEST_VALUES", "CurvatureSet", "ProfilePoint", "identifiable", "place_curvatures"]

Verdict = Literal["curved", "flat", "undetermined"]

FEWEST_VALUES = 5
"""values of c, 0 among them, that a set needs"""
FEWEST_REPEATS = 5
_POINTS = 1001  # at which fits are compared


@dataclass(frozen=True)
class ProfilePoint:
    """What models with one c·σ0² gain over flat ones on test data.

    Arguments:
        value: c·σ0².
        gain: mean over the repeats.
        interval: half-width of its 95 % interval.
    """

    value: float
    gain: float
    interval: float


@dataclass(frozen=True)
class CurvatureSet:
    """The c·σ0² at which models of one kind predict held-out data best, with a confidence set.

    Arguments:
        estimate: maximum of the mean cubic, within the values compared.
        low, high: ends of the set. `high` is None where it holds the largest value compared, and may go on.
        level: of confidence.
        verdict: "curved" if 0 is not in the set. "flat" if it is, and the largest value compared is not: large
            curvatures do worse, and no gain over 0 is detected; a small one may still be best. "undetermined" if both
            are.
        profile: of every value compared, in ascending order.

    Example:
        >>> best = [0.8, 0.9, 1.0, 1.1, 1.2]  # of five repeats
        >>> values = [0.0, 0.5, 1.0, 2.0, 4.0]
        >>> scores = [[-((math.asinh(value) - one) ** 2) for value in values] for one in best]
        >>> found = CurvatureSet.of(values, scores)
        >>> found.verdict, round(found.low, 2), round(found.estimate, 2), round(found.high, 2)
        ('curved', 0.67, 1.17, 2.0)
    """

    estimate: float
    low: float
    high: float | None
    level: float
    verdict: Verdict
    profile: list[ProfilePoint]

    @classmethod
    def of(cls, values: Sequence[float], scores: ArrayLike, ratio: float = 0.0) -> Self:
        """Find the set.

        Arguments:
            values: of c·σ0², five or more, 0 among them.
            scores: on test data, higher is better, shape (repeats, values), five repeats or more.
            ratio: test data over training data, as of `Paired`.
        """
        order = np.argsort(values)
        c, figures = np.asarray(values, float)[order], np.asarray(scores, float)[:, order]
        if len(set(values)) < FEWEST_VALUES or c[0] != 0 or len(figures) < FEWEST_REPEATS:
            raise CurvaeError(
                f"a set of curvatures needs {FEWEST_VALUES} values of c or more, 0 among them, and {FEWEST_REPEATS} "
                f"repeats or more; got {len(set(values))} values and {len(figures)} repeats"
            )
        gains = figures - figures[:, :1]
        profile = [
            ProfilePoint(float(value), one.mean, one.interval)
            for value, one in zip(c, (Paired(gain, ratio) for gain in gains.T), strict=True)
        ]
        points = np.union1d(c, np.sinh(np.linspace(0.0, np.arcsinh(c[-1]), _POINTS)[:-1]))
        cubics = np.polynomial.polynomial.polyfit(np.arcsinh(c), gains.T, 3)
        fitted = np.polynomial.polynomial.polyval(np.arcsinh(points), cubics)
        better = fitted[:, np.searchsorted(points, c), None] - fitted[:, None]
        quantile = stdtrit(len(gains) - 1, 1 - LEVEL / (len(c) - 1)) * math.sqrt(1 / len(gains) + ratio)
        beaten = (better.mean(0) > quantile * better.std(0, ddof=1)).any(0)
        low, high = (float(points[~beaten][end]) for end in (0, -1))
        verdict: Verdict = "curved" if low > 0 else "flat" if high < c[-1] else "undetermined"
        estimate = float(points[fitted.mean(0).argmax()])
        return cls(estimate, low, high if high < c[-1] else None, 1 - LEVEL, verdict, profile)

    def sentence(self, gain: Paired, unit: str, factor: float, data: str, flat: str) -> str:
        """Say what is known, and no more.

        Arguments:
            gain: of curved models over flat ones.
            unit, factor: as of `Paired.verdict`.
            data: what is held out, such as "rows".
            flat: the space without curvature.
        """
        gained, level = gain.outcome == "hyperbolic", f"{100 * self.level:g} % set"
        most = f"more than {short(self.profile[-1].value)}"
        if self.verdict == "undetermined":
            if gained:
                return f"Curvature: not determined, the {level} of c·σ0² is 0 to {most}."
            return (
                f"Curvature: not determined. Every c·σ0² from 0 to {most} predicts held-out {data} as well as the "
                f"best: use {flat}."
            )
        answer = "" if gained else f": flat; use {flat}"
        if self.verdict == "curved":
            margin = f"{decimal(abs(factor * gain.mean))} ± {decimal(factor * gain.interval)} {unit}"
            answer = f": curved; {margin} {'worse' if gain.mean < 0 else 'better'} than flat"
        high = most if self.high is None else short(self.high)
        return f"Curvature: c·σ0² = {short(self.estimate)}, {level} {short(self.low)} to {high}{answer}."


def short(value: float) -> str:
    """Write c·σ0² for people, with two digits."""
    return f"{round(value, 4):.2g}"


def identifiable(config: Settings, curvatures: Iterable[float]) -> list[float] | None:
    """Return c·σ0² for each c; None where σ0 is learned or hyperbolic factors differ in it.

    Example:
        >>> from curvae.training import Config
        >>> identifiable(Config(prior_scale=2.0), [0.0, 0.5]), identifiable(Config(space="h2,h3"), [0.0, 0.5])
        ([0.0, 2.0], None)
    """
    found: list[float] = []
    for curved in map(config.with_curvature, curvatures):
        factors = zip(curved.factors, curved.prior_scales, strict=True)
        values = {factor.curvature * scale**2 for factor, scale in factors if factor.curvature} or {0.0}
        if config.learn_prior_scale or len(values) > 1:
            return None
        found += values
    return found


_WIDEST = 4.0  # c·σ0² up to which curvatures are spread, or c where σ0 depends on it


def place_curvatures(config: Settings, repeats: int) -> list[float]:
    """Choose four c > 0 for a set: with 0, asinh(c·σ0²) is evenly spaced up to c·σ0² = 4, or to c = 4 with σ0 "auto".

    Example:
        >>> from curvae.training import Config
        >>> place_curvatures(Config(), 5), place_curvatures(Config(prior_scale=2.0), 5)
        ([0.548, 1.25, 2.3, 4.0], [0.137, 0.312, 0.575, 1.0])
    """
    if repeats < FEWEST_REPEATS:
        raise CurvaeError(
            f'`curvatures="auto"` finds a confidence set, which needs at least {FEWEST_REPEATS} repeats, got {repeats}'
        )
    known = identifiable(config, [1.0])
    if known is None:
        raise CurvaeError(
            'with `curvatures="auto"` c·σ0² must be one number: drop `learn_prior_scale`, and set `prior_scale` if '
            "hyperbolic factors differ in dimension"
        )
    scale, bend = config.prior_scale, 0.0
    if scale == "auto":  # c·σ0² = c/(1 + bend·c)
        scale, bend = 1.0, 1 / known[0] - 1
    top = math.asinh(_WIDEST / (1 + bend * _WIDEST))
    values = np.sinh(top * np.arange(1, FEWEST_VALUES) / (FEWEST_VALUES - 1))
    return [float(f"{c:.3g}") for c in values / (1 - bend * values) / scale**2]
