"""The scikit-learn face: scikit-learn's own checks in full, and what they do not cover."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from curvae import PoincareVAE


@parametrize_with_checks([PoincareVAE(epochs=2, hidden=(8,), importance_samples=20)])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)
