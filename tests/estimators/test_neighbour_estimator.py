"""Estimators whose map is held to the neighbourhoods of the data."""

import numpy as np
import pytest

from curvae import PoincareVAE

X = np.random.default_rng(0).normal(size=(40, 4))
FAST = {"epochs": 2, "hidden": (8,), "random_state": 0, "device": "cpu"}


FAR = pytest.approx(3.0 * 1.2**1.5)


@pytest.mark.parametrize(("asked", "weights"), [(True, (1.2, FAR)), ("near", (1.2,)), ("far", (FAR,)), (False, ())])
def test_settings_reach_the_training(asked, weights):
    model = PoincareVAE(neighbours=asked, **FAST).fit(X)
    assert ("neighbours" in model.history_[-1]) == bool(weights)
    assert model._fitted.config.neighbour_weights == weights
    assert model.transform(X).shape == (40, 2)


def test_weight_and_number_of_neighbours():
    first, second, third = (
        PoincareVAE(neighbours="near", **FAST, advanced=more).fit(X)
        for more in ({}, {"neighbours_weight": 5.0}, {"n_neighbours": 3})
    )
    assert second._fitted.config.neighbour_weights == (5.0,)
    assert first.history_[0]["neighbours"] != third.history_[0]["neighbours"]
