"""Small experiments of the paper: settings, rows, and the configurations of shards."""

from __future__ import annotations

import numpy as np

from curvae.training import Config

__all__ = ["TINY", "X", "configs_of"]

TINY = Config(
    hidden=(6,),
    epochs=2,
    batch_size=16,
    validation=0.0,
    patience=None,
    prior_scale=1.0,
    likelihood="unit_gaussian",
    posterior="wrapped",
    dropout=0.0,
    jitter=0.0,
    weight_decay=0.0,
    neighbours="off",
    init="random",
)
X = (
    np.random.default_rng(0).normal(size=(40, 1)) * [1.0, 2.0, -3.0]
    + 0.3 * np.random.default_rng(1).normal(size=(40, 3))
    + 5
)


def configs_of(shards):
    """Configurations of the trainings of shards, from their settings alone."""
    return [
        Config.from_json({**s.settings["config"], **own})
        for s in shards
        if "config" in s.settings
        for own in s.settings["trainings"]
    ]
