"""The paired test against scipy."""

from __future__ import annotations

import numpy as np
from scipy import stats

from curvae.training.paired import Paired


def test_paired_differences_against_scipy():
    a, b = np.random.default_rng(0).normal(size=(2, 12))
    found = Paired((a - b + 0.8).tolist())
    expected = stats.ttest_rel(a + 0.8, b)
    assert abs(found.p_value - expected.pvalue) < 1e-12
    interval = expected.confidence_interval(0.95)
    assert abs(found.interval - (interval.high - interval.low) / 2) < 1e-12
    corrected = Paired(found.differences, ratio=0.25)
    assert abs(corrected.error / found.error - np.sqrt(1 + 12 * 0.25)) < 1e-12
    assert Paired([0.0, 0.0]).p_value == 1.0 and Paired([1.0, 1.0]).outcome == "hyperbolic"
