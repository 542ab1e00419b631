"""Many models at once: each as `fit` trains it alone, whatever the others do; stopped, failed, interrupted, resumed."""

from __future__ import annotations

import errno
import json
import math
import os
import shlex
import shutil
import time
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from scipy import sparse
from sklearn.base import clone

from curvae import PoincareVAE
from curvae.data import Arrays, from_arrays
from curvae.data.files import EXACT
from curvae.errors import CurvaeError
from curvae.models import Layout
from curvae.training import Scaling, build, engine, fit, fit_many, fitting, random_split, stacks
from curvae.training.engine import BatchEngine, losses
from curvae.training.fitted import METRICS, Fitted
from curvae.training.fitting import RowsTask, plan_rows, stacks as partition
from curvae.training.rows import RowPool
from curvae.training.stacks import existing_checkpoints, visible_folder
from curvae.training.storage import read_tensors, write_tensors
from processes import child, kill, wait
from running import SMALL as SMALL_COMMAND, curvae, refused, snapshot, untouched, write_table
from trainings import (
    CONFIG,
    DATA,
    MANY,
    SMALL,
    SMALL as WIDE,
    STOPPING,
    X,
    assert_all_same,
    assert_same,
    extreme,
    interrupted,
    killed_at_write,
    rows,
    seeds,
    small_memory,
    spoiling,
    state,
)


def weights(fitted):
    return torch.cat([t.flatten().double() for t in fitted.model.state_dict().values()])


def curve(fitted):
    """All figures of all epochs."""
    return np.array([[v for k, v in sorted(record.items()) if k != "seconds"] for record in fitted.history])


def assert_close(found, expected, tolerance=1e-9):
    """To rounding, which training enlarges."""
    assert found.config == expected.config and len(found.history) == len(expected.history)
    np.testing.assert_allclose(curve(found), curve(expected), rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(weights(found), weights(expected), rtol=tolerance, atol=tolerance)


def double(configs, data, **how):
    return fit_many(configs, data, dtype=torch.float64, **how)


# --- as alone -------------------------------------------------------------------------------------------------------


def test_forty_models_learn_as_each_alone():
    """Learning curves over 24 steps in float64, to 1e-4: seeds, numbers, data and splits of their own."""
    base = replace(SMALL, epochs=3, batch_size=4)
    configs = [
        replace(
            base,
            seed=seed,
            curvature=(0.2, 1.0, 1.7)[seed % 3],
            prior_scale=(0.7, 1.0, 1.3, 0.9)[seed % 4],
            learning_rate=(0.005, 0.002)[seed % 2],
            beta=(0.2, 0.4, 0.6, 0.8, 1.0)[seed % 5],
        )
        for seed in range(40)
    ]
    made = [rows(seed=seed) * 10.0**seed for seed in range(7)]
    data, splits = [made[seed % 7] for seed in range(40)], [random_split(40, 0.1, 0.1, seed % 11) for seed in range(40)]
    found = double(configs, data, splits=splits)
    for i in (19, 36):
        alone = fit(configs[i], data[i], split=splits[i], dtype=torch.float64)
        assert len(alone.history) * math.ceil(len(splits[i].train) / 4) == 24
        np.testing.assert_allclose(curve(found[i]), curve(alone), rtol=1e-4)
        torch.testing.assert_close(weights(found[i]), weights(alone), rtol=1e-4, atol=1e-6)
        assert np.array_equal(found[i].scaling.scale, alone.scaling.scale)
        assert found[i].config == alone.config and found[i].reason == alone.reason and found[i].split is splits[i]
    # They are forty trainings, of forty models.
    assert len({round(one.last["elbo"], 6) for one in found}) == len({id(one.model) for one in found}) == 40


@pytest.mark.parametrize(
    ("law", "more"),
    [
        ("riemannian", {"learn_curvature": True}),
        ("wrapped", {"learn_curvature": True}),
        ("riemannian", {"learn_prior_scale": True}),
        ("wrapped", {"validation": 0.0}),
    ],
    ids=str,
)
def test_learned_numbers_and_no_validation(law, more):
    configs = seeds(3, replace(SMALL, posterior=law, **more))
    for config, one in list(zip(configs, double(configs, rows()), strict=True))[1:]:
        alone = fit(config, rows(), dtype=torch.float64)
        assert_close(one, alone)
        assert ("validation_elbo" in one.last) == (config.validation > 0)
        if "validation" not in more:
            assert len({(record["c"], record["prior_scale"]) for record in one.history}) == 3


@pytest.mark.parametrize(("objective", "samples"), [("elbo", 4), ("iwae", 1), ("iwae", 4)])
def test_objectives_and_draws(objective, samples):
    configs = seeds(3, SMALL, objective=objective, samples=samples)
    for config, one in zip(configs, double(configs, rows()), strict=True):
        assert_close(one, fit(config, rows(), dtype=torch.float64))


def test_a_list_of_one_is_fit():
    assert_all_same(fit_many([SMALL], rows()), [fit(SMALL, rows())])


def test_the_others_do_not_matter():
    """Bit by bit among as many others, and to rounding among fewer: torch rounds the last few numbers of a tensor
    otherwise than the rest."""

    def configs(shift):
        return [
            replace(SMALL, seed=k % 5, curvature=0.3 + k, learning_rate=(0.02, 0.01)[i % 2], beta=0.5 + k % 3)
            for i, k in enumerate(i if i in (1, 4) else i + shift for i in range(7))
        ]

    x = [rows(seed=seed) for seed in range(7)]
    one, other = fit_many(configs(0), x), fit_many(configs(9), [x[i if i in (1, 4) else 5 - i] for i in range(7)])
    assert_all_same([one[1], one[4]], [other[1], other[4]])
    assert not any(torch.equal(weights(one[i]), weights(other[i])) for i in (0, 2, 3, 5, 6))
    whole = double(configs(0), x)
    for few in ([1], [0, 1], [6, 2, 4], [5, 4, 3, 2, 1, 0]):
        for i, found in zip(few, double([configs(0)[i] for i in few], [x[i] for i in few]), strict=True):
            assert_close(found, whole[i])


def test_order_and_noise_come_from_the_seed_alone():
    a, other, b = double([SMALL, replace(SMALL, seed=1), SMALL], rows())
    assert_close(a, b)
    assert not torch.allclose(weights(a), weights(other), atol=1e-3)
    for found, expected in zip(double([replace(SMALL, seed=1), SMALL], rows()), (other, a), strict=True):
        assert_close(found, expected)


def test_results_come_in_the_order_asked():
    changes = [
        {"curvature": 0.0},
        {"curvature": 0.7},
        {"dim": 3},
        {"curvature": 0.0, "seed": 5},
        {"hidden": (5,), "learning_rate": 0.005},
        {"learning_rate": 0.001, "curvature": 2.0},
        {"decoder": "mlp"},
        {"dim": 3, "seed": 9, "validation": 0.2},
        {"posterior": "riemannian"},
        {"learning_rate": 0.04},
    ]
    configs = [replace(SMALL, epochs=2, **change) for change in changes]
    told = []
    found = double(configs, rows(), progress=lambda done, total: told.append((done, total)))
    for config, one in zip(configs, found, strict=True):
        assert one.config == replace(config, likelihood="gaussian")
        assert_close(one, fit(config, rows(), dtype=torch.float64))
    assert told == [(i, 20) for i in range(1, 21)] + [(20, 20)]


def test_learning_rates_are_those_of_the_models():
    """The first step of Adam moves every weight by the rate."""
    rates = [0.01, 0.03, 0.001, 0.03, 0.02]
    plain = replace(SMALL, epochs=1, batch_size=64, weight_decay=0.0, noise_rate=1.0)
    configs = [replace(plain, seed=i, learning_rate=rate) for i, rate in enumerate(rates)]
    for config, one in zip(configs, double(configs, rows()), strict=True):
        before = build(replace(config, likelihood="gaussian"), 3).double()
        moved = [
            (a - b).detach().abs().flatten()
            for (name, a), b in zip(one.model.named_parameters(), before.parameters(), strict=True)
            if name != "decoder.2.bias"  # starts at the means of the columns
        ]
        moved = torch.cat(moved)
        touched = moved[moved > 0]  # a unit that is off has no gradient
        assert len(touched) > len(moved) / 2
        torch.testing.assert_close(touched, torch.full_like(touched, config.learning_rate), rtol=1e-2, atol=0)


# --- data -----------------------------------------------------------------------------------------------------------


def test_data_of_their_own_dense_and_sparse():
    dense = [rows(seed=seed) * (rows(seed=seed + 9) > 0) for seed in range(3)]
    thin = [sparse.csr_array(x) for x in dense]
    configs = seeds(3)
    expected = double(configs, dense)
    for data in (thin, [dense[0], thin[1], dense[2]]):
        for a, b in zip(double(configs, data), expected, strict=True):
            assert_close(a, b)
    for config, x, one in zip(configs, thin, expected, strict=True):
        assert_close(one, fit(config, x, dtype=torch.float64))


def test_data_of_other_sizes_and_kinds_make_other_stacks():
    bits = (rows(30, 4) > 0).astype(float)
    data = [rows(), bits, rows(50), bits, rows(40, 5)]
    configs = seeds(5)
    found = double(configs, data)
    assert [one.config.likelihood for one in found] == ["gaussian", "bernoulli", "gaussian", "bernoulli", "gaussian"]
    for config, x, one in zip(configs, data, found, strict=True):
        assert_close(one, fit(config, x, dtype=torch.float64))


def test_shared_data_are_scaled_for_every_split():
    """Test rows take no part: models of one data set have scalings of their own."""
    x, splits = rows(), [random_split(40, 0.1, 0.2, seed) for seed in range(3)]
    found = double(seeds(3), x, splits=splits)
    for one, split in zip(found, splits, strict=True):
        seen = np.concatenate([split.train, split.validation])
        np.testing.assert_allclose(one.scaling.shift, x[seen].mean(0))
        np.testing.assert_allclose(one.scaling.scale, x[seen].std(0))
    given = [Scaling(np.full(3, 0.1 * i), np.full(3, 1.0 + i)) for i in range(3)]
    for config, one, scaling in zip(seeds(3), double(seeds(3), x, scalings=given), given, strict=True):
        assert one.scaling is scaling
        assert_close(one, fit(config, x, scaling=scaling, dtype=torch.float64))


def test_datasets_bring_their_blocks():
    def chosen(seed, widths):
        random = np.random.default_rng(seed)
        x = np.concatenate([np.eye(width)[random.integers(width, size=40)] for width in widths], 1)
        return replace(from_arrays(x), blocks=widths)

    data = [chosen(0, (2, 3)), chosen(1, (3, 2)), chosen(2, (2, 3))]
    configs = seeds(3, SMALL, likelihood="categorical")
    found = double(configs, data)
    assert [one.model.likelihood.blocks for one in found] == [[2, 3], [3, 2], [2, 3]]
    for config, one, own in zip(configs, found, data, strict=True):
        assert_close(one, fit(config, own.x, blocks=own.blocks, dtype=torch.float64))
    for a, b in zip(double(configs, data[0]), double(configs, data[0].x, blocks=(2, 3)), strict=True):
        assert_close(a, b, 0)


def test_lists_that_do_not_fit():
    split = random_split(40, 0.1)
    with pytest.raises(CurvaeError, match="nothing to train"):
        fit_many([], rows())
    with pytest.raises(CurvaeError, match="data must hold one entry a configuration: 3, got 2"):
        fit_many(seeds(3), [rows(), rows()])
    with pytest.raises(CurvaeError, match="splits must hold one entry a configuration: 3, got 1"):
        fit_many(seeds(3), rows(), splits=[split])
    with pytest.raises(CurvaeError, match="scalings must hold one entry a configuration: 3, got 4"):
        fit_many(seeds(3), rows(), scalings=[Scaling.identity(3)] * 4)
    with pytest.raises(CurvaeError, match="early stopping needs validation rows"):
        fit_many([SMALL, replace(SMALL, patience=2)], rows(4))


def test_equal_data_are_held_once():
    x, y = rows(6), rows(5, seed=1)
    same, other = Scaling(np.ones(3), np.full(3, 2.0)), Scaling.identity(3)
    pool = RowPool.of(
        [(x, same), (y, other), (x, Scaling(np.ones(3), np.full(3, 2.0))), (x, other)], "cpu", torch.float64
    )
    assert [pool.rows[0] is part for part in pool.rows] == [True, False, True, False]
    assert pool.parts["x"].shape == (6 + 5 + 6, 3)
    index = torch.tensor([[0, 5], [4, 1], [2, 2], [3, 0]])
    expected = np.stack([(x[[0, 5]] - 1) / 2, y[[4, 1]], (x[[2, 2]] - 1) / 2, x[[3, 0]]])
    part = pool.part(index)
    np.testing.assert_allclose(next(part.batches(None, 2)).x, expected, rtol=1e-15)
    np.testing.assert_allclose(next(part.keep([3, 1]).batches(None, 2)).x, expected[[3, 1]], rtol=1e-15)
    single = RowPool(pool.rows[2:3])
    assert single.parts["x"] is pool.rows[0].parts["x"]
    np.testing.assert_allclose(next(single.part(index[[2]]).batches(None, 2)).x, expected[[2]], rtol=1e-15)


def test_one_matrix_for_all_is_copied_once():
    with mock.patch.object(RowPool, "of", side_effect=RowPool.of) as calls:
        fit_many(seeds(5), rows())
    ((sources, *_),) = (call.args for call in calls.call_args_list)
    assert len(sources) == 5 and len(RowPool.of(sources, "cpu", torch.float32).parts["x"]) == 40


# --- which are stacked ----------------------------------------------------------------------------------------------


def random_tasks(random, count):
    data, split = Arrays(np.zeros((40, 3))), random_split(40, 0.1)
    return [
        RowsTask(
            i,
            "",
            replace(
                SMALL,
                seed=int(random.integers(9)),
                curvature=float(random.choice([0.0, 0.5, 1.0])),
                dim=int(random.integers(2, 4)),
                learning_rate=float(random.choice([0.01, 0.02, 0.03])),
                beta=float(random.choice([1.0, 2.0])),
            ),
            data,
            split,
            Scaling.identity(3),
            Layout(3),
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("shares", [1, 2, 5, 16])
@pytest.mark.parametrize("count", [1, 3, 20, 41])
def test_stacks_are_a_partition(count, shares):
    tasks = random_tasks(np.random.default_rng(count), count)
    found = partition(tasks, shares)
    assert sorted(task.place for stack in found for task in stack) == list(range(count))
    for stack in found:
        assert len({(task.config.dim, task.config.curvature == 0) for task in stack}) == 1
        rates = [task.config.learning_rate for task in stack]
        assert rates == sorted(rates)
    kinds = len({(task.config.dim, task.config.curvature == 0) for task in tasks})
    assert kinds <= len(found) <= max(kinds, min(count, shares) + kinds / 2)
    if shares == 1:
        assert len(found) == kinds
    else:
        assert max(map(len, found)) <= max(1, math.ceil(1.5 * count / shares))


def test_what_may_differ_in_a_stack():
    (task,) = random_tasks(np.random.default_rng(0), 1)

    def pieces(*changes):
        return len(partition([replace(task, config=replace(SMALL, **change)) for change in ({}, *changes)]))

    together = ({"seed": 3}, {"curvature": 0.1}, {"prior_scale": 2.0}, {"learning_rate": 1.0}, {"beta": 0.0})
    assert pieces(*together) == 1
    apart = (
        {"curvature": 0.0},
        {"learn_curvature": True},
        {"learn_prior_scale": True},
        {"dim": 1},
        {"posterior": "riemannian"},
        {"diagonal": True},
        {"decoder": "mlp"},
        {"hidden": (9,)},
        {"likelihood": "bernoulli"},
        {"objective": "iwae"},
        {"samples": 2},
        {"epochs": 5},
        {"batch_size": 17},
        {"patience": 3},
        {"prior_scale": "auto"},
        {"adam_beta2": 0.9},
        {"cooldown": 0.5},
        {"epoch_steps": 1},
    )
    assert all(pieces(change) == 2 for change in apart) and pieces(*apart) == 1 + len(apart)
    others = (
        replace(task, split=random_split(40, 0.2)),
        replace(task, layout=replace(task.layout, blocks=(1, 2))),
        replace(task, layout=Layout(4)),
    )
    assert len(partition([task, *others])) == 4
    # A learned curvature is never 0, and the rest of a split does not matter.
    learned = [replace(task, config=replace(SMALL, learn_curvature=True, curvature=c)) for c in (0.1, 1.0)]
    assert len(partition(learned)) == 1
    assert len(partition([task, replace(task, split=replace(task.split, test=np.arange(3)))])) == 1


# --- early stopping -------------------------------------------------------------------------------------------------


def shrinking():
    """Notes the stacks that go on with fewer models."""
    return mock.patch.object(BatchEngine, "keep", autospec=True, side_effect=BatchEngine.keep)


def test_every_model_stops_where_it_would_alone():
    configs = seeds(8, STOPPING)
    with shrinking() as shrunk:
        found = double(configs, rows())
    sizes = [len(call.args[1]) for call in shrunk.call_args_list]
    assert sizes and sizes[0] <= 4 and sizes == sorted(sizes, reverse=True)  # once half of the stack is done
    lengths = [len(one.history) for one in found]
    assert len(set(lengths)) > 3 and max(lengths) < 30
    for config, one in zip(configs, found, strict=True):
        assert_close(one, fit(config, rows(), dtype=torch.float64))
        assert len(one.history) == one.last["epoch"] + 3
    for config, one in list(zip(configs, found, strict=True))[::3]:
        best = one.last["epoch"]
        assert_close(
            replace(one, history=one.history[:best], config=replace(one.config, patience=None, epochs=best)),
            fit(replace(config, patience=None, epochs=best), rows(), dtype=torch.float64),
        )


def test_models_that_stopped_cost_little():
    """The stack shrinks to those that still learn, before they are less than half of it."""
    sizes, plain = [], BatchEngine.epoch

    def count(self, *given):
        sizes.append(len(self))
        return plain(self, *given)

    with mock.patch.object(BatchEngine, "epoch", count):
        lengths = [len(one.history) for one in fit_many(seeds(8, STOPPING), rows())]
    going = [sum(length > epoch for length in lengths) for epoch in range(max(lengths))]
    assert len(sizes) == len(going) and all(g <= size < 2 * g for g, size in zip(going, sizes, strict=True))


def test_patience_that_is_never_lost_keeps_the_best_weights():
    configs = seeds(3, STOPPING, epochs=9, patience=50, learning_rate=0.1)
    found = double(configs, rows(30))
    assert {len(one.history) for one in found} == {9} and any(one.last["epoch"] < 9 for one in found)
    for config, one in zip(configs, found, strict=True):
        best = fit(replace(config, patience=None, epochs=one.last["epoch"]), rows(30), dtype=torch.float64)
        torch.testing.assert_close(weights(one), weights(best), rtol=1e-9, atol=1e-9)


# --- failures -------------------------------------------------------------------------------------------------------


def test_a_model_that_fails_is_named_and_the_others_go_on():
    """It has an extreme row; the others are, bit by bit, what they are when it has none."""
    configs = [replace(SMALL, seed=seed + 3, curvature=0.5, standardise=False, validation=0.0) for seed in range(4)]
    data, good = [rows(), rows(), extreme(), rows()], [0, 1, 3]
    said = []
    found = fit_many(configs, data, warn=said.append)
    (text,) = said
    assert text.startswith("model 3 of 4 (seed 5, c = 0.5) stopped and keeps the weights of its last good epoch: ")
    assert "the loss became inf at step 1 (epoch 1): parameter" in text and "extreme values" in text
    bad = found[2]
    assert bad.failure in text and "no checkpoint" in text and "\n" not in text
    # It never had a good epoch.
    assert bad.history == []
    fresh = build(bad.config, 3, mean=data[2][bad.split.train].mean(0))
    assert all(torch.equal(a, b) for a, b in zip(bad.model.parameters(), fresh.parameters(), strict=True))
    assert all(found[i].failure is None for i in good)
    assert_all_same([found[i] for i in good], [fit_many(configs, rows())[i] for i in good])
    # And to rounding those of a list without it.
    without = double([configs[i] for i in good], rows())
    for i, one in zip(good, without, strict=True):
        torch.testing.assert_close(weights(found[i]), weights(one), rtol=1e-4, atol=1e-5)
    with pytest.raises(CurvaeError, match="the loss became inf at step 1 .epoch 1."):
        fit(configs[2], data[2])


@pytest.mark.parametrize(
    ("how", "bad", "noticed", "validation"),
    [
        ("loss", 5, "the loss became nan at step 5", 0.1),
        ("gradient", 5, "the loss became nan at step 6", 0.1),
        # The last step of an epoch: there is no further loss to notice it.
        ("gradient", 6, "validation_elbo became nan at step 6", 0.1),
        ("gradient", 6, "a weight became infinite at step 6", 0.0),
    ],
)
def test_a_failure_in_the_middle_keeps_the_last_good_epoch(how, bad, noticed, validation):
    configs, said = seeds(4, SMALL, epochs=4, validation=validation), []
    expected = fit_many(configs, rows())
    with spoiling([1], bad, how):
        found = fit_many(configs, rows(), warn=said.append)
    assert_all_same([found[i] for i in (0, 2, 3)], [expected[i] for i in (0, 2, 3)])
    assert_same(state(found[1]), state(fit_many(seeds(4, SMALL, epochs=2, validation=validation), rows())[1]))
    (text,) = said
    assert "model 2 of 4 (seed 1, c = 1) stopped" in text and f"{noticed} (epoch 3): parameter " in text
    assert "is not finite" in text and found[1].failure in text


def test_all_models_may_fail():
    said = []
    with spoiling([0, 1, 2, 3], 4):
        found = fit_many(seeds(4), rows(), warn=said.append)
    assert len(said) == 4 and all("at step 4 (epoch 2)" in one.failure for one in found)
    assert [len(one.history) for one in found] == [1] * 4
    for a, b in zip(found, fit_many(seeds(4, SMALL, epochs=1), rows()), strict=True):
        assert_same(state(a), state(b))


def test_failures_one_after_the_other_shrink_the_stack():
    configs, x = seeds(5, SMALL, validation=0.0, epochs=6), rows()
    expected = double(configs, x)
    calls = iter(range(1, 1000))

    def spoilt(terms, *rest):
        loss = losses(terms, *rest)
        # Of five models, in epoch 1 the second, in epoch 2 the last, in epoch 4 the first; that makes half of them.
        bad = {2: 1, 4: 4, 7: 0}.get(next(calls))
        return loss if bad is None else torch.where(torch.arange(len(loss)) == bad, torch.inf, loss)

    said = []
    with mock.patch.object(engine, "losses", spoilt), shrinking() as shrunk:
        found = double(configs, x, warn=said.append)
    assert [len(one.history) for one in found] == [3, 0, 6, 6, 1]
    assert [len(call.args[1]) for call in shrunk.call_args_list] == [2]
    assert [text.split(" of ")[0] for text in said] == ["model 2", "model 5", "model 1"]
    assert_close(found[2], expected[2])
    assert_close(found[3], expected[3])
    shorter = double(seeds(5, configs[0], epochs=3), x)
    assert_same(state(found[0]), state(shorter[0]))


# --- memory ---------------------------------------------------------------------------------------------------------


def test_stacks_that_do_not_fit_are_halved():
    configs = [
        replace(SMALL, seed=seed, learning_rate=(0.02, 0.01, 0.03)[seed % 3], dim=2 + seed % 2) for seed in range(9)
    ]
    expected, said = double(configs, rows()), []
    with small_memory(2) as calls:
        found = double(configs, rows(), warn=said.append)
    for a, b in zip(found, expected, strict=True):
        assert_close(a, b)
    assert [len(call.args[1]) for call in calls.call_args_list] == [5, 3, 2, 1, 2, 4, 2, 2]
    assert said == [
        "5 models do not fit into the memory of cpu at once; trying 3 and 2",
        "3 models do not fit into the memory of cpu at once; trying 2 and 1",
        "4 models do not fit into the memory of cpu at once; trying 2 and 2",
    ]


def test_halves_have_checkpoints_of_their_own(tmp_path, often):
    configs = seeds(4)
    with small_memory(2):
        expected = fit_many(configs, rows(), folder=tmp_path)
    assert sorted(path.name for path in (tmp_path / "checkpoint").iterdir()) == [
        "state-0-2.safetensors",
        "state-2-2.safetensors",
    ]
    seen = []
    with small_memory(2):
        found = fit_many(configs, rows(), folder=tmp_path, resume=True, progress=lambda *told: seen.append(told))
    assert_all_same(found, expected)
    assert seen == [(12, 12)]


def test_a_model_that_does_not_fit_alone_is_an_error():
    with (
        small_memory(0),
        pytest.raises(CurvaeError, match="model 1 of 3 .seed 0, c = 1. does not fit .* lower `hidden`"),
    ):
        fit_many(seeds(3), rows())


# --- interrupted and resumed ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole():
    return fit_many(MANY, DATA)


def test_what_is_interrupted_below(whole):
    lengths = [len(one.history) for one in whole]
    assert whole[5].failure and not any(one.failure for i, one in enumerate(whole) if i != 5)
    assert len(set(lengths[:5])) >= 3 and max(lengths) <= 30 and lengths[9] == 5


@pytest.mark.parametrize("at", [1, 26, 60])
def test_an_interrupted_list_goes_on_as_if_nothing_had_happened(tmp_path, often, whole, at):
    """Also models that had stopped or failed before, and those in stacks that had ended."""
    interrupted(at, MANY, DATA, folder=tmp_path)
    assert_resumed(fit_many(MANY, DATA, folder=tmp_path, resume=True), whole)


def assert_resumed(found, whole):
    assert_all_same([replace(one, failure=None) for one in found], [replace(one, failure=None) for one in whole])
    assert [one.failure is None for one in found] == [one.failure is None for one in whole]


def test_interrupted_again_and_again(tmp_path, often, whole):
    for at in (2, 17, 5):
        interrupted(at, MANY, DATA, folder=tmp_path, resume=True)
    assert_resumed(fit_many(MANY, DATA, folder=tmp_path, resume=True), whole)


def test_checkpoints_do_not_change_the_training_and_the_end_is_one(tmp_path, often, whole):
    assert_resumed(fit_many(MANY, DATA, folder=tmp_path), whole)
    told = []
    again = fit_many(MANY, DATA, folder=tmp_path, resume=True, progress=lambda *figures: told.append(figures))
    assert_resumed(again, whole)
    assert len(told) == 1  # nothing is left to do


@pytest.mark.parametrize("patience", [None, 3])
def test_more_epochs_on_resume(tmp_path, patience):
    configs = seeds(3, STOPPING, epochs=14, patience=patience)
    fit_many([replace(config, epochs=6) for config in configs], rows(), folder=tmp_path)
    seen = []
    found = fit_many(configs, rows(), folder=tmp_path, resume=True, progress=lambda done, _: seen.append(done))
    expected = fit_many(configs, rows())
    assert_all_same(found, expected)
    assert len(seen) - 1 == sum(max(0, len(one.history) - 6) for one in expected)


@pytest.mark.parametrize("learned", ["learn_curvature", "learn_prior_scale"])
def test_learned_numbers_and_rates_of_their_own_are_resumed(tmp_path, often, learned):
    configs = [replace(SMALL, seed=i, learning_rate=0.03 - 0.01 * (i % 3), **{learned: True}) for i in range(5)]
    interrupted(8, configs, rows(), folder=tmp_path)
    assert_all_same(fit_many(configs, rows(), folder=tmp_path, resume=True), fit_many(configs, rows()))


def test_failed_models_stay_failed_on_resume(tmp_path, often):
    configs = seeds(4, SMALL, epochs=6)
    expected = fit_many(configs, rows())
    with spoiling([1], 3):
        interrupted(9, configs, rows(), folder=tmp_path)
    found = fit_many(configs, rows(), folder=tmp_path, resume=True)
    assert_all_same([found[i] for i in (0, 2, 3)], [expected[i] for i in (0, 2, 3)])
    assert "at step 3 (epoch 2)" in found[1].failure and len(found[1].history) == 1
    assert_same(state(found[1]), state(fit_many(seeds(4, SMALL, epochs=1), rows())[1]))


def test_other_settings_on_resume_are_refused(tmp_path):
    fit_many(seeds(3), rows(), folder=tmp_path)

    def refuses(pattern, *changed, x=None):
        with pytest.raises(CurvaeError, match=pattern) as caught:
            fit_many(changed, rows() if x is None else x, folder=tmp_path, resume=True)
        assert "\n" not in str(caught.value) and "does not fit this run" in str(caught.value)

    a, b, c = seeds(3)
    refuses("seed was 2, not 7", a, b, replace(c, seed=7))
    refuses("curvature was 1.0, not 2.0", a, replace(b, curvature=2.0), c)
    refuses("learning_rate was 0.02, not 0.03", a, b, replace(c, learning_rate=0.03))
    refuses("seed was 0, not 1", b, a, c)
    refuses("hidden was", *(replace(config, hidden=(9,)) for config in seeds(3)))
    refuses("does not fit", *seeds(3), x=rows(40, 4))


def test_a_rate_that_moves_a_model_in_its_stack_is_refused(tmp_path):
    fit_many(seeds(3), rows(), folder=tmp_path)
    a, b, c = seeds(3)
    with pytest.raises(CurvaeError, match="does not fit this run"):
        fit_many([replace(a, learning_rate=0.03), b, c], rows(), folder=tmp_path, resume=True)


def test_the_first_model_is_written_for_people_to_watch(tmp_path, often):
    for name, rates in (("same", (0.02, 0.02)), ("rising", (0.01, 0.02)), ("falling", (0.02, 0.01))):
        configs = [replace(SMALL, seed=i, learning_rate=rate) for i, rate in enumerate(rates)]
        found = fit_many(configs, rows(), folder=tmp_path / name)
        assert METRICS in [path.name for path in (tmp_path / name).iterdir()], name
        lines = (tmp_path / name / METRICS).read_text().splitlines()
        assert len(lines) == 3 and str(found[0].last["elbo"]) in lines[-1]


def test_kill_at_random_moments(tmp_path, often, whole):
    assert not wait(child(int))  # the first waits for the server
    began = time.monotonic()
    assert not wait(child(lambda: fit_many(MANY, DATA, folder=tmp_path / "trial")))
    typical = time.monotonic() - began
    random = np.random.default_rng(1)
    killed = trials = 0
    while killed < 2:  # beside others, a training may be over before its moment comes
        folder, trials = tmp_path / str(trials), trials + 1
        process = child(lambda folder=folder: fit_many(MANY, DATA, folder=folder))
        time.sleep(random.uniform(0.2 * typical, 0.8 * typical))
        kill(process)
        killed += wait(process)
        assert_resumed(fit_many(MANY, DATA, folder=folder, resume=True), whole)
        assert trials < 20


# --- the estimator --------------------------------------------------------------------------------------------------


def estimator(**more):
    settings = {"hidden": (8,), "posterior": "wrapped", "epochs": 3, "batch_size": 20, "learning_rate": 0.02}
    return PoincareVAE(**{**settings, "neighbours": "off", "random_state": 3, "device": "cpu", **more})


def by_hand(model, watched):
    """Seeds one after the other on the split of the first; the best, and what all of them reached."""
    x, config = rows(), model._config()
    split = random_split(40, config.validation, seed=3)
    found = [fit(replace(config, seed=3 + i), x, split=split) for i in range(model.n_init)]
    reached = [one.last[watched] for one in found]
    return found[int(np.argmax(reached))], reached


@pytest.mark.parametrize(
    ("more", "watched"),
    [({}, "validation_elbo"), ({"patience": 2, "epochs": 8}, "validation_elbo"), ({"validation": 0.0}, "elbo")],
)
def test_the_best_of_several_trainings_is_kept(more, watched):
    model = estimator(n_init=4, **more).fit(rows())
    best, reached = by_hand(model, watched)
    assert np.argmax(reached) != 0 and len(set(reached)) == 4
    assert model._fitted.config.seed == best.config.seed
    assert model._fitted.last[watched] == pytest.approx(max(reached), rel=1e-5)
    torch.testing.assert_close(weights(model._fitted), weights(best), rtol=1e-3, atol=1e-4)
    assert len(model.history_) == len(best.history)


def test_one_training_is_as_before():
    a, b = estimator().fit(rows()), estimator(n_init=1).fit(rows())
    expected = fit(a._config(), rows()).double()
    assert torch.equal(weights(a._fitted), weights(expected)) and np.array_equal(a.embedding_, b.embedding_)


def test_trainings_that_fail_are_not_chosen():
    with spoiling([0, 2, 3], 2):
        model = estimator(n_init=4).fit(rows())
    assert model._fitted.config.seed == 4
    with spoiling([0, 1, 2, 3], 2), pytest.raises(CurvaeError, match="at step 2"):
        estimator(n_init=4).fit(rows())


def test_numbers_of_trainings_that_are_none():
    for bad in (0, -1, 1.5, "2", None):
        with pytest.raises(CurvaeError, match="`n_init` must be a whole number of at least 1"):
            estimator(n_init=bad).fit(rows())
    assert len(estimator(n_init=np.int64(2)).fit(rows()).history_) == 3


def test_the_number_of_trainings_survives(tmp_path):
    model = estimator(n_init=3)
    assert model.get_params()["n_init"] == 3 and clone(model).n_init == 3 and PoincareVAE().n_init == 1
    model.fit(rows()).save(tmp_path / "run")
    loaded = PoincareVAE.load(tmp_path / "run")
    assert loaded.n_init == 3 and type(loaded.n_init) is int
    assert np.array_equal(loaded.transform(rows()), model.transform(rows()))


# --- lists that go on in the stacks and on the data they started with ------------------------------------------------


CHECKPOINT_SMALL = replace(WIDE, hidden=(6,))


def resumed(configs, data, folder, **how):
    """The models, and the epochs that were told of."""
    told = []
    return fit_many(configs, data, folder=folder, resume=True, progress=lambda *t: told.append(t), **how), told


def refuses(pattern, configs, data, folder, **how):
    with pytest.raises(CurvaeError, match=pattern) as caught:
        fit_many(configs, data, folder=folder, resume=True, **how)
    assert "\n" not in str(caught.value)


def files(folder):
    return sorted(path.name for path in (folder / "checkpoint").iterdir())


def in_pieces(shares):
    """Stacks as for so many processes, in this one."""
    return mock.patch.object(fitting, "stacks", lambda tasks, _=1, resumed=(): partition(tasks, shares, resumed))


# --- progress -------------------------------------------------------------------------------------------------------


def assert_never_back(told, total):
    done = [part for part, whole in told]
    assert {whole for _, whole in told} == {total}
    assert done == sorted(done) and done[-1] == total and done[0] > 0


def test_epochs_that_are_trained_again_count_once():
    """Memory that ends in the second epoch: the halves begin at the first."""
    plain, told = stacks._train, []

    def short(problem, tasks, listener, checkpoint):
        def tick(place, record):
            listener.record(place, record)
            if len(tasks) > 2 and record["epoch"] == 2:
                raise torch.OutOfMemoryError("CUDA out of memory")

        return plain(problem, tasks, replace(listener, record=tick), checkpoint)

    with mock.patch.object(stacks, "_train", short):
        fit_many(seeds(4, CHECKPOINT_SMALL), rows(), progress=lambda *t: told.append(t))
    assert_never_back(told, 12)
    assert len(told) == 1 + 5 + 12  # and yet every epoch was told of
    assert [done for done, _ in told[:5]] == [1, 2, 3, 4, 5]


def test_a_worker_that_begins_again_does_not_count_back(tmp_path):
    path = tmp_path / "epochs"
    counts = np.memmap(path, np.int64, "w+", shape=(3,))
    seen = []

    def work(tasks, listener):
        for epoch in tasks:
            listener.record(1, {"epoch": epoch})
            seen.append(int(counts[1]))
        return []

    for epochs in (range(1, 6), range(1, 8)):  # the first dies after five
        fitting._apart(work, epochs, str(path), owner=None)
    assert seen == [1, 2, 3, 4, 5, 5, 5, 5, 5, 5, 6, 7] and counts.tolist() == [0, 7, 0]


# --- the same data --------------------------------------------------------------------------------------------------


def test_other_data_of_the_same_shape_are_refused(tmp_path):
    configs, x = seeds(3, CHECKPOINT_SMALL), rows()
    splits, scalings = [random_split(40, 0.1, 0.1, seed) for seed in range(3)], [Scaling.standard(x)] * 3
    plain = {"splits": splits, "scalings": scalings}
    expected = fit_many(configs, x, folder=tmp_path, **plain)

    changed = x.copy()
    changed[17, 2] += 1e-9
    message = (
        r"does not fit this run .other data: not the {} that model {} of 3 .seed {}, c = 1. was begun with.; start"
    )
    refuses(message.format("rows", 1, 0), configs, changed, tmp_path, **plain)
    refuses(message.format("rows", 2, 1), configs, [x, changed, x], tmp_path, **plain)
    refuses(message.format("rows", 1, 0), configs, x[::-1], tmp_path, **plain)
    other = [*splits[:2], random_split(40, 0.1, 0.1, 9)]
    refuses(message.format("split", 3, 2), configs, x, tmp_path, splits=other, scalings=scalings)
    other = [scalings[0], Scaling(scalings[0].shift, scalings[0].scale * 1.01), scalings[0]]
    refuses(message.format("scaling", 2, 1), configs, x, tmp_path, splits=splits, scalings=other)

    # The same values are the same data, however they are held; and a mean may be rounded otherwise.
    rounded = [Scaling(s.shift * (1 + 1e-15) + 1e-16, s.scale * (1 - 1e-15)) for s in scalings]
    for data, how in ((x.copy(), plain), (sparse.csr_array(x), {**plain, "scalings": rounded})):
        found, told = resumed(configs, data, tmp_path, **how)
        assert_all_same(found, expected)
        assert told == [(9, 9)]


def test_one_model_on_other_data_is_refused(tmp_path):
    fit(CHECKPOINT_SMALL, rows(), folder=tmp_path)
    with pytest.raises(CurvaeError, match="other data: not the rows that model 1 of 1"):
        fit(CHECKPOINT_SMALL, rows(seed=1), folder=tmp_path, resume=True)


def test_other_blocks_are_other_data():
    """They have the same weights, and would go unnoticed."""
    x = np.eye(4)[np.random.default_rng(0).integers(4, size=40)]
    problem, tasks = plan_rows([replace(CHECKPOINT_SMALL, likelihood="categorical")], x)
    (task,), (other,) = (
        problem.fingerprinted([replace(tasks[0], layout=Layout(4, blocks))]) for blocks in ((1, 3), (2, 2))
    )
    assert task.data["rows"] != other.data["rows"] and task.data["split"] == other.data["split"]


def test_data_are_looked_at_once_and_only_for_a_folder(tmp_path):
    with mock.patch("curvae.training.fitting.hash_rows") as looks:
        fit_many(seeds(3, CHECKPOINT_SMALL), rows())
        assert not looks.called
        fit_many(seeds(3, CHECKPOINT_SMALL), rows(), folder=tmp_path)
        assert looks.call_count == 1


# --- the same stacks ------------------------------------------------------------------------------------------------


def test_a_longer_list_goes_on_with_what_there_is(tmp_path, often):
    configs = seeds(5, CHECKPOINT_SMALL)
    first = fit_many(configs[:3], rows(), folder=tmp_path)
    found, told = resumed(configs, rows(), tmp_path)
    assert_all_same(found[:3], first)
    assert [done for done, _ in told] == [1, 2, 3, 4, 5, 6, 15]  # two models of three epochs, and the end
    assert_all_same(found[3:], fit_many(configs[3:], rows()))
    assert files(tmp_path) == ["state-0-3.safetensors", "state-3-2.safetensors"]
    # Also in the middle of the first three.
    interrupted(4, configs[:3], rows(), folder=tmp_path / "half")
    assert_all_same(resumed(configs, rows(), tmp_path / "half")[0], found)


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 3)])
def test_another_number_of_processes_goes_on_with_the_same_stacks(tmp_path, often, before, after):
    configs = seeds(6, replace(CHECKPOINT_SMALL, patience=2))
    with in_pieces(before):
        whole = fit_many(configs, rows())
        interrupted(9, configs, rows(), folder=tmp_path)
    kept = files(tmp_path)
    with in_pieces(after):
        found, _ = resumed(configs, rows(), tmp_path)
    assert set(kept) <= set(files(tmp_path))
    if before == 1:
        assert_all_same(found, whole)
    # What had begun goes on bit by bit; the rest is in other stacks, and so the same to rounding.
    for name in kept:
        first, count = (int(part) for part in name.removesuffix(".safetensors").split("-")[1:])
        assert_all_same(found[first : first + count], whole[first : first + count])
    for a, b in zip(found, whole, strict=True):
        assert a.last["elbo"] == pytest.approx(b.last["elbo"], rel=1e-4)


def test_stacks_that_have_not_begun_are_those_they_would_have_been(tmp_path, often):
    _, tasks = plan_rows(seeds(6, CHECKPOINT_SMALL), rows())
    whole = partition(tasks, 4)
    assert [len(stack) for stack in whole] == [1, 2, 1, 2]  # the rest alone would make 1, 2 and 2
    for i, stack in enumerate(whole):
        found = partition(tasks, 4, [[task.place for task in stack]])
        assert found == [stack, *whole[:i], *whole[i + 1 :]]
    configs = seeds(4, CHECKPOINT_SMALL)
    with in_pieces(2):
        expected = fit_many(configs, rows())
        interrupted(1, configs, rows(), folder=tmp_path)
        assert files(tmp_path) == ["state-0-2.safetensors"]
        assert_all_same(resumed(configs, rows(), tmp_path)[0], expected)


def test_halves_go_on_as_halves(tmp_path, often):
    configs = seeds(4, CHECKPOINT_SMALL)
    with small_memory(2):
        expected = fit_many(configs, rows(), folder=tmp_path)
    found, told = resumed(configs, rows(), tmp_path)  # where there is room for all
    assert_all_same(found, expected)
    assert told == [(12, 12)]


def test_the_checkpoint_of_a_stack_that_is_halved_is_gone(tmp_path, often):
    """Memory may end after some epochs; no model is then in two files."""
    plain = stacks._train

    def short(problem, tasks, listener, checkpoint):
        found = plain(problem, tasks, listener, checkpoint)
        if len(tasks) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return found

    configs = seeds(4, CHECKPOINT_SMALL)
    with mock.patch.object(stacks, "_train", short):
        fit_many(configs, rows(), folder=tmp_path)
    assert files(tmp_path) == ["state-0-2.safetensors", "state-2-2.safetensors"]
    assert resumed(configs, rows(), tmp_path)[1] == [(12, 12)]


def test_a_shorter_list_is_refused(tmp_path):
    configs = seeds(3, CHECKPOINT_SMALL)
    fit_many(configs, rows(), folder=tmp_path)
    refuses("of a list of 3 models or more, not of 2; give that list", configs[:2], rows(), tmp_path)
    with pytest.raises(CurvaeError, match="of a list of 3 models or more, not of 1"):
        fit(configs[0], rows(), folder=tmp_path, resume=True)


def test_a_list_may_begin_with_a_model_alone(tmp_path):
    configs = seeds(3, CHECKPOINT_SMALL)
    first = fit(configs[0], rows(), folder=tmp_path)
    found, _ = resumed(configs, rows(), tmp_path)
    assert_all_same(found[:1], [first])
    assert files(tmp_path) == ["state-1-2.safetensors", "state.safetensors"]


def test_other_epochs_for_a_part_of_a_stack_are_refused(tmp_path):
    configs = seeds(3, CHECKPOINT_SMALL)
    fit_many(configs, rows(), folder=tmp_path)
    refuses("must be given the same epochs", [*configs[:2], replace(configs[2], epochs=9)], rows(), tmp_path)


def test_what_is_not_resumed_leaves_nothing_of_what_was_before(tmp_path):
    fit_many(seeds(4, CHECKPOINT_SMALL), rows(), folder=tmp_path)
    found = fit_many(seeds(2, CHECKPOINT_SMALL), rows(seed=1), folder=tmp_path)
    assert files(tmp_path) == ["state-0-2.safetensors"]
    assert_all_same(resumed(seeds(2, CHECKPOINT_SMALL), rows(seed=1), tmp_path)[0], found)
    # Before the first checkpoint there is none, not the one of another training.
    interrupted(1, seeds(2, CHECKPOINT_SMALL), rows(seed=2), folder=tmp_path)
    assert files(tmp_path) == []


def test_files_that_do_not_fit_together(tmp_path):
    fit_many(seeds(2, CHECKPOINT_SMALL), rows(), folder=tmp_path)
    path = tmp_path / "checkpoint" / "state-0-2.safetensors"
    tensors, metadata = read_tensors(path)
    copy = path.with_name("state-1-2.safetensors")
    copy.write_bytes(path.read_bytes())
    refuses("a model is in two files", seeds(2, CHECKPOINT_SMALL), rows(), tmp_path)
    for places in ("[]", "[-1]", '["0"]', "[0.5]", "7", "null"):
        write_tensors(copy, tensors, {"state": metadata["state"].replace('"places": [0, 1]', f'"places": {places}')})
        refuses("does not fit this run", seeds(2, CHECKPOINT_SMALL), rows(), tmp_path)
    copy.write_bytes(b"nothing")
    refuses("state-1-2.safetensors is damaged", seeds(2, CHECKPOINT_SMALL), rows(), tmp_path)


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CurvaeError, match="cannot write .*file/run"):
        existing_checkpoints(tmp_path / "file" / "run", False, 1)


def test_a_worker_elsewhere_keeps_no_checkpoints(tmp_path):
    said = []
    assert visible_folder(None, said.append) is None and visible_folder(tmp_path, said.append) == tmp_path and not said
    assert visible_folder(tmp_path / "elsewhere", said.append) is None
    assert len(said) == 1 and "keeps no checkpoints; choose a folder that all machines share" in said[0]


# --- the epoch of the weights ---------------------------------------------------------------------------------------


def test_a_model_that_failed_tells_of_its_last_good_epoch():
    """With patience too, where others tell of the best."""
    configs = seeds(
        3, replace(CHECKPOINT_SMALL, validation=0.3, patience=9, epochs=9, learning_rate=0.1, learn_curvature=True)
    )
    with spoiling([1], 17):  # of two steps an epoch
        found: list[Fitted] = fit_many(configs, rows(30))
    failed = found[1]
    best = max(failed.history, key=lambda record: record["validation_elbo"])
    assert failed.failure is not None and len(failed.history) == 8 and best["epoch"] < 8
    assert failed.last is failed.history[-1]
    for one in found:
        assert one.last["c"] == pytest.approx(float(one.model.space.curvatures()[0].detach()), rel=1e-6)


# --- a training that was killed at any moment, or stopped by a full disk, goes on exactly ----------------------------


@pytest.fixture
def _often(monkeypatch, tmp_path):
    monkeypatch.setattr(stacks, "_CHECKPOINT_EVERY", -1.0)
    monkeypatch.setattr(stacks, "_CHECKPOINT_SHARE", math.inf)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def whole_training():
    return state(fit(CONFIG, X))


@pytest.mark.usefixtures("_often")
def test_one_training_killed_at_random_moments(tmp_path, whole_training):
    assert not wait(child(int))  # the first waits for the server
    began = time.monotonic()
    assert not wait(child(lambda: fit(CONFIG, X, folder=tmp_path / "trial")))
    typical = time.monotonic() - began
    random = np.random.default_rng(1)
    killed = trials = 0
    while killed < 2:  # beside others, a training may be over before its moment comes
        folder, trials = tmp_path / str(trials), trials + 1
        process = child(lambda folder=folder: fit(CONFIG, X, folder=folder))
        time.sleep(random.uniform(min(0.02, typical / 2), typical))
        kill(process)
        killed += wait(process)
        assert_same(state(fit(CONFIG, X, folder=folder, resume=True)), whole_training)
        assert trials < 20


@pytest.mark.parametrize(("n", "after"), [(1, False), (2, False), (3, False), (16, False), (16, True)])
@pytest.mark.usefixtures("_often")
def test_kill_at_every_kind_of_write(tmp_path, whole_training, n, after):
    """Writes alternate between records and weights; a kill between the two leaves one epoch more in the records.

    A kill before a write leaves what one after the write before it does, and the new file beside its place.
    """
    assert killed_at_write(n, after, lambda: fit(CONFIG, X, folder=tmp_path))
    # And once more, in the resumed training.
    killed_at_write(2, after, lambda: fit(CONFIG, X, folder=tmp_path, resume=True))
    assert_same(state(fit(CONFIG, X, folder=tmp_path, resume=True)), whole_training)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [record["epoch"] for record in whole_training[1]]


@pytest.mark.parametrize("learned", ["learn_curvature", "learn_prior_scale"])
@pytest.mark.usefixtures("_often")
def test_learned_numbers_are_resumed(tmp_path, learned):
    config = replace(CONFIG, epochs=3, **{learned: True})
    assert killed_at_write(4, True, lambda: fit(config, X, folder=tmp_path))
    assert_same(state(fit(config, X, folder=tmp_path, resume=True)), state(fit(config, X)))


@pytest.mark.usefixtures("_often")
def test_checkpoints_do_not_change_a_training(tmp_path, whole_training):
    assert_same(state(fit(CONFIG, X, folder=tmp_path)), whole_training)


@pytest.mark.usefixtures("_often")
def test_resume_does_go_on_and_not_start_again(tmp_path):
    fit(replace(CONFIG, epochs=5), X, folder=tmp_path)
    seen = []
    fit(replace(CONFIG, epochs=8), X, folder=tmp_path, resume=True, progress=lambda r, _: seen.append(r["epoch"]))
    assert seen == [6, 7, 8]


@pytest.mark.usefixtures("_often")
def test_fewer_epochs_than_were_trained_are_refused(tmp_path):
    config = replace(CONFIG, patience=None)
    fit(config, X, folder=tmp_path)
    before = (tmp_path / STATE).read_bytes()
    with pytest.raises(CurvaeError, match="was trained for 8 epochs and 5 are asked for; ask for at least 8 epochs"):
        fit(replace(config, epochs=5), X, folder=tmp_path, resume=True)
    assert (tmp_path / STATE).read_bytes() == before
    assert len(fit(config, X, folder=tmp_path, resume=True).history) == 8
    more = fit(replace(config, epochs=9), X, folder=tmp_path, resume=True)
    assert_same(state(more), state(fit(replace(config, epochs=9), X)))


@pytest.mark.usefixtures("_often")
def test_left_over_parts_are_harmless(tmp_path, whole_training):
    fit(replace(CONFIG, epochs=3), X, folder=tmp_path)
    for name in ("metrics.jsonl.part", "checkpoint/state.safetensors.part"):
        (tmp_path / name).write_bytes(b"torn")
    assert_same(state(fit(CONFIG, X, folder=tmp_path, resume=True)), whole_training)
    assert not list(tmp_path.rglob("*.part"))


# --- full disks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 4, 5])
@pytest.mark.usefixtures("_often")
def test_a_full_disk_leaves_the_checkpoint_before(tmp_path, whole_training, n):
    plain, calls = os.fsync, 0

    def full(descriptor):
        nonlocal calls
        calls += 1
        if calls >= n:
            raise OSError(errno.ENOSPC, "No space left on device")
        plain(descriptor)

    kept = []
    with mock.patch("os.fsync", full), pytest.raises(CurvaeError, match="No space left .* earlier results") as caught:
        fit(CONFIG, X, folder=tmp_path, progress=lambda *_: kept.append((tmp_path / STATE).read_bytes()))
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.rglob("*.part"))
    assert len(kept) == (n - 1) // 2
    if kept:
        assert (tmp_path / STATE).read_bytes() == kept[-1]
    assert_same(state(fit(CONFIG, X, folder=tmp_path, resume=True)), whole_training)


STATE = "checkpoint/state.safetensors"


# --- damaged checkpoints --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_often")
def test_damaged_checkpoints_are_refused(tmp_path):
    fit(replace(CONFIG, epochs=3), X, folder=tmp_path)
    good = (tmp_path / STATE).read_bytes()

    def refuses(pattern, config=CONFIG):
        with pytest.raises(CurvaeError, match=pattern):
            fit(config, X, folder=tmp_path, resume=True)

    refuses("does not fit this run", replace(CONFIG, hidden=(9,)))
    (tmp_path / STATE).write_bytes(good[:-10])
    refuses("damaged")
    (tmp_path / STATE).write_bytes(b"\x80\x04cposix\nsystem\n")
    refuses("damaged")
    (tmp_path / STATE).write_bytes(good)
    refuses("learning_rate was 0.02, not 0.01", replace(CONFIG, learning_rate=0.01))
    tensors, metadata = read_tensors(tmp_path / STATE)
    for name in ("model.posterior.head.bias", "first.posterior.head.bias"):
        spoiled = {**tensors, name: torch.full_like(tensors[name], math.inf)}
        write_tensors(tmp_path / STATE, spoiled, metadata)
        refuses(f"state.safetensors is damaged .tensor '{name}' holds numbers that are not finite")
    for broken in ({}, {"state": "{}"}, {"state": metadata["state"].replace('"active": [0]', '"active": [7]')}):
        write_tensors(tmp_path / STATE, tensors, broken)
        refuses("does not fit this run")
    del tensors["history.elbo"]
    write_tensors(tmp_path / STATE, {n: t for n, t in tensors.items() if "first" not in n}, metadata)
    refuses("does not fit this run")


# --- the command line -----------------------------------------------------------------------------------------------

OPTIONS = (
    "--set",
    "posterior=wrapped",
    "--patience",
    "5",
    "--set",
    "learning_rate=0.02",
    "--seed",
    "4",
    *SMALL_COMMAND,
    "--epochs",
    "6",
)


def fit_command(*more):
    return ("fit", "t.csv", "--label", "kind", "-o", "run", *more)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The run that nothing interrupted."""
    home = tmp_path_factory.mktemp("finished")
    path = write_table(home / "t.csv", kind=list("xy") * 20)
    assert curvae("fit", path, "--label", "kind", "-o", home / "run", "-q", *OPTIONS).code == 0
    return home / "run"


@pytest.mark.parametrize("n", [2, 5, 12, 14, 17, 18])
@pytest.mark.usefixtures("_often")
def test_a_killed_run_is_resumed(table, finished, n):
    """The n-th write is of a checkpoint, of the embedding, a picture, the report, the model or its description."""
    assert killed_at_write(n, False, lambda: curvae(*fit_command("-q", *OPTIONS)))
    if "model_sha256" not in json.loads(Path("run/config.json").read_text()):
        typed = shlex.join(["curvae", *fit_command("-q", *OPTIONS), "--resume"])
        refused("embed", "run", "t.csv", says=[f"run is not finished; finish it with: {typed}\n"])
    if not Path("run/report.html").exists():
        again = shlex.join(["curvae", *fit_command(), "--resume"])
        refused(*fit_command(), says=[f"run holds an unfinished run; run this, or with --force:\n{again}\n"])
    for _ in range(1 + (n == 2)):  # the second time it is finished already, and so the same run after every kill
        found = curvae(*fit_command("--resume", "-q"))
        assert found.code == 0, found.err
        assert_same_runs(finished)


def assert_same_runs(finished):
    a, b = snapshot(finished), snapshot(Path("run"))
    assert a.keys() == b.keys()
    for name in ("model.safetensors", "embedding.csv", "map.png"):
        assert a[name] == b[name], name
    checkpoints = [load_file(Path(folder, STATE)) for folder in (finished, "run")]
    assert all(torch.equal(t, checkpoints[1][n]) for n, t in checkpoints[0].items() if n != "history.seconds")
    descriptions = [json.loads(content["config.json"]) for content in (a, b)]
    for description in descriptions:
        description["summary"].pop("seconds")
    assert descriptions[0] == descriptions[1]


@pytest.mark.usefixtures("_often")
def test_resume_goes_on_where_the_disk_was_full(table, finished):
    plain, calls = os.fsync, 0

    def full(descriptor):
        nonlocal calls
        calls += 1
        if calls >= 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        plain(descriptor)

    with mock.patch("os.fsync", full):
        refused(*fit_command("-q", *OPTIONS), says=["cannot write run/", "No space left on device", "untouched"])
    assert len(load_file(Path("run", STATE))) > 0
    assert curvae(*fit_command("--resume", "-q")).code == 0
    assert_same_runs(finished)


@pytest.fixture(scope="module")
def killed_run(tmp_path_factory):
    """A run that was killed after its second epoch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("killed"))
        patch.setattr(stacks, "_CHECKPOINT_EVERY", -1.0)
        patch.setattr(stacks, "_CHECKPOINT_SHARE", math.inf)
        write_table(Path("t.csv"), kind=list("xy") * 20)
        assert killed_at_write(6, False, lambda: curvae(*fit_command("-q", *OPTIONS)))
        return Path("run").resolve()


@pytest.fixture
def begun_run(table, killed_run):
    shutil.copytree(killed_run, "run")


@pytest.mark.usefixtures("_often")
def test_resume_after_the_data_changed_is_refused(begun_run):
    table = pd.read_csv("t.csv", **EXACT)
    words = fit_command("--resume")
    for changed in (
        table.assign(a=table["a"] + (table.index == 7) * 1e-9),
        table[::-1],
        table[:-1],
        table.rename(columns={"a": "z"}),
        table.assign(kind="x"),
        table.assign(more=table["a"] ** 2),
    ):
        changed.to_csv("t.csv", index=False)
        untouched(*words, says=["not the data that run was started with", "without --resume"])
    table.to_csv("moved.csv", index=False)  # the same under another name
    assert curvae("fit", "moved.csv", "-o", "run", "--resume", "-q").code == 0


@pytest.mark.usefixtures("_often")
def test_resume_with_other_settings_is_refused(begun_run):
    words = fit_command("--resume")
    untouched(*words, "--curvature", "2", "--hidden", "9", says=["--curvature 1, not 2.0", "--hidden 8, not 9"])
    untouched(*words, "--epochs", "7", says=["epochs 6, not 7"])
    untouched(*words, "--seed", "0", says=["seed 4, not 0"])
    untouched("fit", "t.csv", "-o", "run", "--resume", "--id", "kind", says=["no --id, not kind"])
    untouched("fit", "t.csv", "-o", "run", "--resume", "--label", "a", says=["label kind, not a"])
    untouched(*words, "--missing", "mean", says=["missing error, not mean"])
    # The same settings may be said again.
    assert curvae(*words, "-q", *OPTIONS, "--likelihood", "auto").code == 0


@pytest.mark.usefixtures("_often")
def test_a_description_of_fewer_epochs_than_were_trained_is_refused(finished, table):
    shutil.copytree(finished, "run")
    description = json.loads(Path("run/config.json").read_text())
    description["config"]["training"]["epochs"] = 3
    Path("run/config.json").write_text(json.dumps(description))
    untouched(*fit_command("--resume", "-q"), says=["trained for 6 epochs and 3 are asked for", "at least 6 epochs"])


@pytest.mark.usefixtures("_often")
def test_resume_of_what_cannot_be_resumed(table):
    model = PoincareVAE(epochs=1, hidden=(4,), random_state=0).fit(pd.read_csv("t.csv")[["a", "b", "c"]])
    model.save("saved")
    untouched("fit", "t.csv", "-o", "saved", "--resume", says=["saved cannot be resumed", "'source'"])
    description = json.loads(Path("saved/config.json").read_text())
    for source, data in ((5, {"fingerprint": "x"}), ({"label": 5}, {}), ("abc", 7)):
        Path("saved/config.json").write_text(json.dumps({**description, "source": source, "data": data}))
        untouched("fit", "t.csv", "-o", "saved", "--resume", says=["saved cannot be resumed"])


@pytest.mark.usefixtures("_often")
def test_the_command_is_that_of_the_start(begun_run):
    assert curvae(*fit_command("--resume", "-q")).code == 0
    command = json.loads(Path("run/config.json").read_text())["command"]
    assert command == "curvae " + " ".join(fit_command("-q", *OPTIONS))
    assert "--set posterior=wrapped" in Path("run/report.html").read_text(encoding="utf-8")
