"""Sets of curvatures: against scipy and a grid, their coverage on simulated profiles, and what they say."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from curvae.errors import CurvaeError
from curvae.training import Config, CurvatureSet
from curvae.training.comparison import Comparison, Repeat, curved_values
from curvae.training.config import GraphConfig
from curvae.training.curvature_set import identifiable, place_curvatures
from curvae.training.evaluate import Links
from curvae.training.graph_problem import GraphComparison
from curvae.training.paired import Paired

VALUES = (0.0, 0.3, 1.0, 2.0, 4.0)
X = np.arcsinh(VALUES)
TOP = X[-1]
RATIO = 2 / 7


def parabolas(best, square=1.0, level=0.0):
    """Scores of a repeat for each of `best`, where it has its maximum."""
    best, square = np.broadcast_arrays(np.asarray(best, float), square)
    return level - square[:, None] * (X - best[:, None]) ** 2


# --- the set --------------------------------------------------------------------------------------------------------


def test_by_hand():
    """Parabolas of one width: at x is more than at y > x if the mean of both exceeds that of the maxima, b.

    So y is left out if (x + y)/2 > b + h, with the half-width h of the t-interval of b; and x if it is below b − h.
    """
    best = np.array([0.9, 1.3, 1.0, 0.8, 1.2, 1.1])
    found = CurvatureSet.of(VALUES, parabolas(best, level=np.arange(6)[:, None]), RATIO)
    error = best.std(ddof=1) * np.sqrt(1 / 6 + RATIO)
    half = stats.t(5).ppf(1 - 0.05 / 4) * error
    assert X[1] < best.mean() - half < X[2] < X[3] < best.mean() + half < TOP
    ends = [max(X[1], 2 * (best.mean() - half) - X[2]), best.mean(), min(TOP, 2 * (best.mean() + half) - X[3])]
    assert np.arcsinh([found.low, found.estimate, found.high]) == pytest.approx(ends, abs=0.003)
    assert found.verdict == "curved" and found.level == 0.95
    for point, value, gain in zip(found.profile, VALUES, (parabolas(best) - parabolas(best)[:, :1]).T, strict=True):
        assert point.value == value and point.gain == pytest.approx(gain.mean())
        expected = stats.t(5).ppf(0.975) * gain.std(ddof=1) * np.sqrt(1 / 6 + RATIO)
        assert point.interval == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_significantly_worse_is_left_out(seed):
    """Noisy scores in any order, against separate fits and tests of scipy."""
    random = np.random.default_rng(seed)
    repeats, order = int(random.integers(5, 10)), random.permutation(5)
    scores = parabolas(random.uniform(-0.5, 2.5) + np.zeros(repeats)) + 0.4 * random.normal(size=(repeats, 5))
    found = CurvatureSet.of([VALUES[i] for i in order], scores[:, order])
    fits = [np.poly1d(np.polyfit(X, each, 3)) for each in scores]
    kept = []
    for x in np.linspace(0, TOP, 41):
        better = [[fit(other) - fit(x) for fit in fits] for other in X if abs(other - x) > 1e-9]
        p = min(stats.ttest_1samp(each, 0, alternative="greater").pvalue for each in better)
        if p > 0.05 / 4:
            kept.append(x)
    step = TOP / 40
    assert kept[0] - step <= np.arcsinh(found.low) <= kept[0] + 0.003
    assert (found.high is None) == (kept[-1] == TOP)
    if found.high is not None:
        assert kept[-1] - 0.003 <= np.arcsinh(found.high) <= kept[-1] + step
    assert found.verdict == ("curved" if kept[0] else "undetermined" if found.high is None else "flat")
    mean = np.mean([fit(np.linspace(0, TOP, 2001)) for fit in fits], 0)
    assert np.arcsinh(found.estimate) == pytest.approx(np.linspace(0, TOP, 2001)[mean.argmax()], abs=0.004)


@pytest.mark.parametrize(
    ("best", "low", "estimate", "high", "verdict"),
    [
        (np.array([-1.0, -1.1, -1.2, -0.9, -0.8]), 0.0, 0.0, 0.0, "flat"),
        (np.array([5.0, 5.1, 5.2, 4.9, 4.8]), 4.0, 4.0, None, "curved"),
        (np.array([0.5, 0.9, -0.6, 0.3, -0.5]), 0.0, np.sinh(0.12), 2.0, "flat"),
        (np.array([3.0, 0.5, -0.5, 2.5, 0.7]), 0.0, np.sinh(1.24), None, "undetermined"),
    ],
)
def test_ends_at_the_ends(best, low, estimate, high, verdict):
    found = CurvatureSet.of(VALUES, parabolas(best))
    assert (found.low, found.estimate) == (low, pytest.approx(estimate, abs=0.01)) and found.verdict == verdict
    assert found.high is None if high is None else found.high == pytest.approx(high, rel=0.2)


def test_equal_scores_say_nothing():
    found = CurvatureSet.of(VALUES, np.full((5, 5), 0.7))
    assert (found.estimate, found.low, found.high, found.verdict) == (0.0, 0.0, None, "undetermined")


@pytest.mark.parametrize(
    ("expected", "truth", "repeats"),
    [
        (np.zeros(5), 0.0, 5),
        (-0.04 * np.square(VALUES), 0.0, 8),
        (-0.3 * (X - np.arcsinh(0.5)) ** 2, 0.5, 5),
        (-0.3 * (X - np.arcsinh(2)) ** 2, 2.0, 8),
    ],
    ids=["no curvature matters", "flat", "0.5", "2"],
)
def test_coverage_on_simulated_profiles(expected, truth, repeats):
    """Repeats with luck of their own, and some that all share, as overlapping training sets have it."""
    random = np.random.default_rng(repeats)
    draws, covered, curved = 300, 0, 0
    for _ in range(draws):
        own, shared = 0.15 * random.normal(size=(repeats, 5)), 0.15 * np.sqrt(RATIO) * random.normal(size=5)
        found = CurvatureSet.of(VALUES, expected + own + shared, RATIO)
        covered += found.low <= truth and (found.high is None or truth <= found.high)
        curved += found.verdict == "curved"
    assert stats.binomtest(covered, draws, 0.95, "less").pvalue > 0.001
    if truth == 0:
        assert stats.binomtest(curved, draws, 0.05, "greater").pvalue > 0.001
    if truth == 2:
        assert curved > 0.8 * draws


@pytest.mark.parametrize(
    ("values", "repeats", "got"),
    [(VALUES[:4], 5, "4 values and 5"), (VALUES, 4, "5 values and 4"), ((*VALUES[1:], 9.0), 5, "0 among them")],
)
def test_too_few(values, repeats, got):
    with pytest.raises(CurvaeError, match=got):
        CurvatureSet.of(values, np.zeros((repeats, len(values))))


def test_identifiable():
    curvatures = (0.0, 0.3, 2.0)
    assert identifiable(Config(prior_scale=1.5), curvatures) == pytest.approx([0.0, 0.675, 4.5])
    assert identifiable(Config(dim=5), curvatures) == pytest.approx([0.0, 0.3 / 1.9, 2 / 7])
    assert identifiable(Config(space="h2,e3,h2"), curvatures) == [0.0, 0.3, 2.0]
    assert identifiable(GraphConfig(curvature=0.0), curvatures) == [0.0, 0.3, 2.0]
    assert identifiable(Config(space="h2,h3"), curvatures) is None
    assert identifiable(Config(learn_prior_scale=True), curvatures) is None


@pytest.mark.parametrize(
    ("config", "widest"),
    [
        (Config(), 4.0),
        (Config(prior_scale=1.7), 4 / 1.7**2),
        (Config(dim=10), 4.0),
        (Config(space="h3,e2"), 4.0),
        (GraphConfig(dim=5, curvature=0.0), 4.0),
    ],
)
def test_chosen_curvatures_are_evenly_spread(config, widest):
    values = curved_values("auto", 5, config)
    x = np.arcsinh(identifiable(config, values))
    assert len(values) == 5 and values[0] == 0 and values[-1] == pytest.approx(widest, rel=0.005)
    assert np.diff(x) == pytest.approx(np.full(4, x[-1] / 4), rel=0.02)


@pytest.mark.parametrize(
    ("config", "repeats", "says"),
    [
        (Config(), 4, "at least 5 repeats, got 4"),
        (Config(learn_prior_scale=True), 5, "drop `learn_prior_scale`"),
        (Config(space="h2,h3"), 5, "set `prior_scale`"),
        (Config(learn_curvature=True), 5, "fixed curvatures"),
        (Config(space="e2,e3"), 5, "no curvature to compare"),
    ],
)
def test_curvatures_that_cannot_be_chosen(config, repeats, says):
    with pytest.raises(CurvaeError, match=says):
        curved_values("auto", repeats, config)
    assert place_curvatures(Config(space="h2,h3", prior_scale=2.0), 5)[-1] == 1.0


# --- sentences ------------------------------------------------------------------------------------------------------

CURVED = Paired([0.12, 0.14, 0.13, 0.1, 0.16])
NONE = Paired([0.1, -0.1, 0.2, -0.2, -0.1])


@pytest.mark.parametrize(
    ("best", "gain", "says"),
    [
        (
            [0.9, 1.1, 1.0, 0.8, 1.2],
            CURVED,
            "Curvature: c·σ0² = 1.2, 95 % set 0.67 to 2: curved; 0.13 ± 0.03 nats a row better than flat.",
        ),
        (
            [5.0, 5.1, 5.2, 4.9, 4.8],
            NONE,
            "Curvature: c·σ0² = 4, 95 % set 4 to more than 4: curved; 0.02 ± 0.20 nats a row worse than flat.",
        ),
        ([-1.0, -1.1, -1.2, -0.9, -0.8], NONE, "Curvature: c·σ0² = 0, 95 % set 0 to 0: flat; use curvature 0."),
        ([-1.0, -1.1, -1.2, -0.9, -0.8], CURVED, "Curvature: c·σ0² = 0, 95 % set 0 to 0."),
        (
            [3.0, 0.5, -0.5, 2.5, 0.7],
            NONE,
            "Curvature: not determined. Every c·σ0² from 0 to more than 4 predicts held-out rows as well as the best: "
            "use curvature 0.",
        ),
        (
            [3.0, 0.5, -0.5, 2.5, 0.7],
            CURVED,
            "Curvature: not determined, the 95 % set of c·σ0² is 0 to more than 4.",
        ),
    ],
)
def test_the_sentence(best, gain, says):
    found = CurvatureSet.of(VALUES, parabolas(best))
    assert found.sentence(gain, "nats a row", 1.0, "rows", "curvature 0") == says


def compared(kind, config, scores, score=float):
    tests = [dict(zip(VALUES, map(score, each), strict=True)) for each in scores]
    return kind([Repeat(i, one, one) for i, one in enumerate(tests)], RATIO, {}, {}, config)


def links(auc):
    return Links(float(auc), 0.5)


SCORES = parabolas([0.9, 1.1, 1.0, 0.8, 1.2])


def test_a_comparison_has_a_set():
    found = compared(Comparison, Config(prior_scale=2.0), SCORES)
    expected = CurvatureSet.of([4 * c for c in VALUES], SCORES, RATIO)
    assert found.curvature == expected and expected.verdict == "curved"
    written = json.loads(json.dumps(found.to_json()))["curvature"]
    assert written["low"] == expected.low and written["high"] == expected.high and written["verdict"] == "curved"
    assert written["profile"][1] == vars(expected.profile[1]) and written["level"] == 0.95
    assert expected.sentence(found.paired, "nats a row", 1.0, "rows", "curvature 0") in found.verdict


def test_a_comparison_of_a_graph_has_a_set():
    found = compared(GraphComparison, GraphConfig(), 0.8 + 0.01 * SCORES, links)
    assert found.curvature.low == pytest.approx(CurvatureSet.of(VALUES, SCORES, RATIO).low)
    assert "curved; " in found.verdict and "points of AUC better than flat" in found.verdict
    flat = compared(GraphComparison, GraphConfig(), np.full((5, 5), 0.9), links)
    assert "predicts held-out edges as well as the best: use curvature 0." in flat.verdict


def test_a_comparison_without_a_set():
    found = compared(Comparison, Config(), SCORES)
    few = [Repeat(0, {0.0: 1.0, 0.5: 2.0}, {0.0: 1.0, 0.5: 2.0})] * 6
    for other in (
        replace(found, repeats=found.repeats[:4]),
        replace(found, repeats=few),
        replace(found, config=Config(learn_prior_scale=True)),
        compared(Comparison, Config(), np.where(SCORES.min() == SCORES, -np.inf, SCORES)),
    ):
        assert other.curvature is None and other.to_json()["curvature"] is None and "Curvature:" not in other.verdict
