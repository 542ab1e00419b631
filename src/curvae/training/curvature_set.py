"""Which curvatures predict held-out data best? A confidence set for c·σ0², from scores on the same splits.

Data determine c·σ0² alone, and flexible decoders absorb much of it: what can be asked for is the c·σ0² at which models
like these predict held-out data best. In each repeat a quadratic in x = asinh(c·σ0²), which is linear in c·σ0² near 0
and logarithmic far out, is fitted to the test scores. The best x is where the slope of the expected quadratic is 0, and
0 if scores fall from there on. So the set ends where the mean slope over the repeats, a linear function of x, becomes
significant by the t-test of `Paired`: Fieller's theorem. Repeats differ also by the luck of their trainings, which is
larger than the error over test rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from ..data.files import decimal
from ..errors import CurvaeError
from ..maps.statistics import LEVEL
from ..settings import Settings
from .paired import Paired

__all__ = ["FEWEST_REPEATS", "FEWEST_VALUES", "CurvatureSet", "ProfilePoint", "identifiable", "spread_curvatures"]

Verdict = Literal["curved", "flat", "undetermined"]

FEWEST_VALUES = 5
"""values of c, 0 among them, that a set needs"""
FEWEST_REPEATS = 5


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
        estimate: maximum of the mean quadratic, within the values compared; None where it has none.
        low, high: ends of the set. `high` is None where it goes on beyond the largest value compared.
        level: of confidence.
        verdict: "curved" if 0 is not in the set. "flat" if it is, and some larger value is not: large curvatures do
            worse, and no gain over 0 is detected; a small one may still be best. "undetermined" if all values compared
            are in the set.
        profile: of every value compared, in ascending order.

    References:
        Fieller (1954), Some problems in interval estimation. Nadeau and Bengio (2003), Inference for the generalization
        error.

    Example:
        >>> best = [0.8, 0.9, 1.0, 1.1, 1.2]  # of five repeats
        >>> values = [0.0, 0.5, 1.0, 2.0, 4.0]
        >>> scores = [[-((math.asinh(value) - one) ** 2) for value in values] for one in best]
        >>> found = CurvatureSet.of(values, scores)
        >>> found.verdict, round(found.low, 2), round(found.estimate, 2), round(found.high, 2)
        ('curved', 0.89, 1.18, 1.5)
    """

    estimate: float | None
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
        from scipy.optimize import brentq  # takes long to import

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
        _, linear, square = np.polynomial.polynomial.polyfit(np.arcsinh(c), gains.T, 2)
        if square.mean() >= 0:
            return cls(None, 0.0, None, 1 - LEVEL, "undetermined", profile)
        top = math.asinh(c[-1])

        def crossing(sign: int) -> float:
            """Find the x from 0 to `top` at which a bound of the slope falls below 0."""

            def bound(x: float) -> float:
                slope = Paired(linear + 2 * x * square, ratio)
                return slope.mean + sign * slope.interval

            if bound(0.0) <= 0:
                return 0.0
            return top if bound(top) >= 0 else float(brentq(bound, 0.0, top))

        low, high = crossing(-1), crossing(1)
        best = min(max(-linear.mean() / (2 * square.mean()), 0.0), top)
        verdict: Verdict = "curved" if low > 0 else "flat" if high < top else "undetermined"
        return cls(
            math.sinh(best), math.sinh(low), math.sinh(high) if high < top else None, 1 - LEVEL, verdict, profile
        )

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


def short(value: float | None) -> str:
    """Write c·σ0² for people, with two digits; nothing where there is none."""
    return "" if value is None else f"{round(value, 4):.2g}"


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


def spread_curvatures(config: Settings, repeats: int) -> list[float]:
    """Choose four c > 0 for a set: with 0, asinh(c·σ0²) is evenly spaced up to c·σ0² = 4, or to c = 4 with σ0 "auto".

    Example:
        >>> from curvae.training import Config
        >>> spread_curvatures(Config(), 5), spread_curvatures(Config(prior_scale=2.0), 5)
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
