"""The scikit-learn face: scikit-learn's own checks in full, and what they do not cover."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from curvae import PoincareVAE

# A row of weight 2 counts twice in the loss, but is one row in batches and splits, whose order is random.
RANDOM = "batches and splits of other rows are others"
UNEQUAL = dict.fromkeys(
    ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data"), RANDOM
)


@parametrize_with_checks(
    [PoincareVAE(epochs=2, hidden=(8,), advanced={"importance_samples": 20})],
    expected_failed_checks=lambda estimator: UNEQUAL,
)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)
