"""How long trainings will take, by clocks that tests move."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from curvae.runs import Reporter
from curvae.runs.progress import Forecast, likelihood_seconds
from curvae.training import Config, pace
from curvae.training.pace import Clock, Estimate


@pytest.fixture
def now(monkeypatch):
    """A clock, in seconds."""
    clock = [100.0]
    monkeypatch.setattr(pace, "time", mock.Mock(monotonic=lambda: clock[0]))
    return clock


def heard(clock, now, *reports):
    """What reports at (seconds, places, epochs) lead to."""
    told = []
    clock = Clock(clock, told.append)
    for seconds, places, epochs in reports:
        now[0] = 100.0 + seconds
        clock.reached(places, epochs)
    return told


def test_the_first_report_is_the_start(now):
    # Nine tenths of an epoch in two seconds.
    (told,) = heard([10], now, (5.0, [0], 0.1), (7.0, [0], 1.0))
    assert told == Estimate(pytest.approx(9 * 2 / 0.9), pytest.approx(2 / 0.9))


def test_it_is_told_once_and_not_before_a_second(now):
    reports = [(0.1 * i, [0], 0.2 * i) for i in range(1, 40)]
    (told,) = heard([20], now, *reports)
    assert told.epoch == pytest.approx(0.5) and told.left == pytest.approx(0.5 * (20 - 2.2), rel=0.03)
    assert heard([20], now, *reports[:10]) == []


def test_a_step_of_many_seconds_is_enough(now):
    (told,) = heard([2], now, (30.0, [0], 0.25), (60.0, [0], 0.5))
    assert told.epoch == pytest.approx(120.0) and told.left == pytest.approx(180.0)


def test_models_of_a_stack_share_the_time(now):
    (told,) = heard([10] * 4, now, (0.0, [0, 1, 2, 3], 0.5), (2.0, [0, 1, 2, 3], 1.0))
    assert told == Estimate(pytest.approx(36.0), pytest.approx(1.0))


def test_stacks_that_have_not_begun_are_counted_and_epochs_that_are_done_are_not(now):
    """The first two models go on from epoch 6 of 10; of the others nothing is known yet."""
    (told,) = heard([10] * 4, now, (0.0, [0, 1], 6.1), (1.5, [0, 1], 7.6))
    assert told.epoch == pytest.approx(0.5) and told.left == pytest.approx(0.5 * (2 * 2.4 + 20))


def test_counts_of_processes(now):
    """Whole epochs, read now and then; a process that goes on from epoch 5 comes later."""
    reports = [(0.0, [0], [1]), (0.4, [0, 2], np.array([3, 6])), (1.2, np.array([0, 2]), np.array([5, 8]))]
    (told,) = heard([10, 10, 10], now, *reports)
    assert told.epoch == pytest.approx(1.2 / 6) and told.left == pytest.approx(1.2 / 6 * (5 + 10 + 2))


def test_a_half_that_begins_again_does_not_count_back(now):
    (told,) = heard([10], now, (0.0, [0], 2.0), (0.5, [0], 1.0), (2.0, [0], 3.0))
    assert told.epoch == pytest.approx(2.0)


# --- what is said ---------------------------------------------------------------------------------------------------


def test_a_forecast_is_said_once_and_not_for_a_moment():
    said = []
    forecast = Forecast(Reporter(say=said.append), "training and evaluation")
    forecast(200.0)
    forecast(500.0)
    Forecast(Reporter(say=said.append), "training")(1.9)
    assert said == ["about 3 min of training and evaluation"]


# Measured on one core: columns, hidden, likelihood, batch size, draws a step, models; milliseconds of a step, and
# microseconds of a draw of `marginal_likelihood`.
MEASURED = [
    (10, 32, "gaussian", 128, 1, 1, 5.81, 0.975),
    (50, 200, "gaussian", 64, 1, 1, 7.87, 4.57),
    (50, 200, "gaussian", 64, 1, 20, 40.2, 4.62),
    (50, 200, "gaussian", 64, 10, 1, 10.5, 5.20),
    (64, 200, "gaussian", 128, 1, 1, 9.09, 4.79),
    (784, 200, "gaussian", 128, 1, 1, 17.8, 19.4),
    (784, 600, "bernoulli", 128, 1, 1, 38.5, 59.0),
    (784, 600, "bernoulli", 128, 1, 8, 283.0, 65.7),
    (2000, 200, "gaussian", 128, 1, 1, 34.3, 39.8),
]


@pytest.mark.parametrize(("columns", "hidden", "likelihood", "batch", "samples", "models", "step", "draw"), MEASURED)
def test_the_time_of_likelihoods_follows_from_that_of_a_step(
    columns, hidden, likelihood, batch, samples, models, step, draw
):
    """Within a factor of 1.7 of what was measured."""
    config = Config(hidden=(hidden,), likelihood=likelihood, batch_size=batch, samples=samples)
    epoch = 10 * 1e-3 * step / models
    found = likelihood_seconds(epoch, config, columns, 10 * batch, 30, 500, models)
    assert 1 / 1.7 < found / (30 * 500 * 1e-6 * draw) < 1.7


def test_the_time_of_likelihoods_on_cuda():
    """40 models of MNIST's shape, 0.787 ms a step and 33.2 million draws a second."""
    config = Config(hidden=(600,), likelihood="bernoulli", batch_size=128)
    found = likelihood_seconds(10 * 0.787e-3 / 40, config, 784, 1280, 10_000, 5000, 40, "cuda")
    assert found == pytest.approx(10_000 * 5000 / 33.2e6, rel=0.5)
