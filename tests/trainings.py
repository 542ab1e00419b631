"""Trainings to interrupt, spoil and compare bit by bit."""

from __future__ import annotations

import math
import os
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

from curvae.training import Config, engine, fit_many, stacks
from curvae.training.engine import BatchEngine, losses
from processes import child, wait

__all__ = [
    "CONFIG",
    "DATA",
    "MANY",
    "SMALL",
    "STOPPING",
    "CapturedEngine",
    "X",
    "assert_all_same",
    "assert_same",
    "extreme",
    "interrupted",
    "killed_at_write",
    "rows",
    "seeds",
    "small_memory",
    "spoiling",
    "state",
]

CapturedEngine = partial(BatchEngine, captured=True)
"""an engine whose steps are captured, or called on a CPU as they would be captured"""

# Early stopping and several steps an epoch have a state of their own.
CONFIG = Config(
    hidden=(8,),
    posterior="wrapped",
    epochs=8,
    batch_size=16,
    learning_rate=0.02,
    cooldown=0.0,
    patience=6,
    seed=4,
    neighbours="off",
)
X = np.random.default_rng(0).normal(size=(40, 3))
# Two steps an epoch.
SMALL = Config(
    hidden=(8,),
    posterior="wrapped",
    epochs=3,
    batch_size=20,
    learning_rate=0.02,
    cooldown=0.0,
    dropout=0.0,
    jitter=0.0,
    weight_decay=0.5,
    patience=None,
    prior_scale=1.0,
    neighbours="off",
    init="random",
)
STOPPING = replace(SMALL, epochs=30, batch_size=32, validation=0.3, patience=3)


def rows(n=40, columns=3, seed=0):
    """Points around a line, so that there is something to learn."""
    random = np.random.default_rng(seed)
    return random.normal(size=(n, 1)) * np.arange(1, columns + 1) + 0.3 * random.normal(size=(n, columns))


def extreme():
    x = rows()
    x[3] = 1e38
    return x


def seeds(count, config=SMALL, **more):
    return [replace(config, seed=seed, **more) for seed in range(count)]


# Models that stop early after 4 to 12 epochs, one that fails, and two stacks more.
MANY = [
    *seeds(5, STOPPING),
    replace(STOPPING, seed=5, standardise=False),
    replace(STOPPING, seed=0, curvature=0.0, learning_rate=0.1),
    replace(STOPPING, seed=1, curvature=0.0),
    replace(STOPPING, seed=6, curvature=0.4, learning_rate=0.005),
    replace(STOPPING, seed=7, dim=3, epochs=5),
]
DATA = [rows()] * 5 + [extreme()] + [rows()] * 4


def state(fitted):
    figures = [{name: v for name, v in record.items() if name != "seconds"} for record in fitted.history]
    return {name: t.clone() for name, t in fitted.model.state_dict().items()}, figures


def assert_same(found, expected):
    assert found[1] == expected[1]
    assert found[0].keys() == expected[0].keys()
    assert all(torch.equal(found[0][name], t) for name, t in expected[0].items())


def assert_all_same(found, expected):
    """Bit by bit."""
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.config == b.config and a.failure == b.failure
        assert_same(state(a), state(b))


def spoiling(places, step, how="loss"):
    """`losses`, those of some models spoilt at a step, from 1."""
    calls = 0

    def spoilt(terms, *rest):
        nonlocal calls
        calls += 1
        loss = list(losses(terms, *rest).reshape(-1))  # a model alone has no dimension of its own
        for i in places if calls == step else []:
            # The root of 0 is a number, its gradient is none.
            loss[i] = loss[i] * math.nan if how == "loss" else loss[i] + (terms.kl[i].sum() * 0).sqrt()
        return torch.stack(loss)

    return mock.patch.object(engine, "losses", spoilt)


def small_memory(most):
    """A device with room for so many models."""
    plain = stacks._train

    def run(problem, tasks, *rest):
        if len(tasks) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain(problem, tasks, *rest)

    return mock.patch.object(stacks, "_train", side_effect=run)


def interrupted(at, configs, data, **how):
    """Train until so many epochs have been told of."""
    calls = 0

    def tick(done, total):
        nonlocal calls
        calls += 1
        if calls == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_many(configs, data, progress=tick, **how)


def killed_at_write(n, after, work):
    """Kill the process that does the work at its n-th write, before or after the file is in its place."""

    def deadly():
        plain, calls = Path.replace, 0

        def move(self, target):
            nonlocal calls
            calls += 1
            if calls == n and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            moved = plain(self, target)
            if calls == n:
                os.kill(os.getpid(), signal.SIGKILL)
            return moved

        Path.replace = move
        work()

    return wait(child(deadly))
