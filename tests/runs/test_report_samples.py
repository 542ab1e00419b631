"""How many importance samples the likelihood in the report of a run rests on, and what fewer of them cost."""

import numpy as np
import pytest
import torch

from curvae.models import marginal_likelihood
from curvae.runs.rows_run import _samples
from curvae.training import Config, fit


@pytest.mark.parametrize(("rows", "expected"), [(1, 500), (200, 500), (500, 200), (1000, 100), (1_000_000, 100)])
def test_samples_of_a_row(rows, expected):
    assert _samples(rows) == expected


def test_fewer_samples_change_a_mean_over_rows_by_less_than_its_interval():
    x = np.random.default_rng(0).normal(size=(500, 6)) @ np.random.default_rng(1).normal(size=(6, 6))
    model = fit(Config(epochs=5, hidden=(16,), likelihood="gaussian"), x).model
    rows = torch.from_numpy(x).float()
    many, few = (
        marginal_likelihood(model, rows, count, torch.Generator().manual_seed(count)).log_prob for count in (500, 200)
    )
    interval = 1.96 * float(few.std()) / len(rows) ** 0.5
    assert abs(float(many.mean() - few.mean())) < interval / 5
