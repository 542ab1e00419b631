"""Many models at once: each as `fit` trains it alone, whatever the others do; stopped, failed, interrupted, resumed."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone

from curvae import PoincareVAE
from curvae.data import from_arrays
from curvae.errors import CurvaeError
from curvae.models import Layout
from curvae.training import Scaling, build, engine, fit, fit_many, random_split
from curvae.training.engine import BatchEngine, losses
from curvae.training.fitted import METRICS
from curvae.training.row_sources import Pool
from curvae.training.rows_problem import RowsTask
from curvae.training.workers import stacks as partition
from processes import child, kill, wait
from trainings import (
    DATA,
    MANY,
    SMALL,
    STOPPING,
    assert_all_same,
    assert_same,
    extreme,
    interrupted,
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
    """Learning curves over 48 steps in float64, to 1e-4: seeds, numbers, data and splits of their own."""
    base = replace(SMALL, epochs=6, batch_size=4)
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
        assert len(alone.history) * math.ceil(len(splits[i].train) / 4) == 48
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
    configs = [replace(SMALL, **change) for change in changes]
    told = []
    found = double(configs, rows(), progress=lambda done, total: told.append((done, total)))
    for config, one in zip(configs, found, strict=True):
        assert one.config == replace(config, likelihood="gaussian")
        assert_close(one, fit(config, rows(), dtype=torch.float64))
    assert told == [(i, 30) for i in range(1, 31)] + [(30, 30)]


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
    pool = Pool.of([(x, same), (y, other), (x, Scaling(np.ones(3), np.full(3, 2.0))), (x, other)], "cpu", torch.float64)
    assert [pool.rows[0] is part for part in pool.rows] == [True, False, True, False]
    assert pool.parts["x"].shape == (6 + 5 + 6, 3)
    index = torch.tensor([[0, 5], [4, 1], [2, 2], [3, 0]])
    expected = np.stack([(x[[0, 5]] - 1) / 2, y[[4, 1]], (x[[2, 2]] - 1) / 2, x[[3, 0]]])
    part = pool.part(index)
    np.testing.assert_allclose(next(part.batches(None, 2)).x, expected, rtol=1e-15)
    np.testing.assert_allclose(next(part.keep([3, 1]).batches(None, 2)).x, expected[[3, 1]], rtol=1e-15)
    single = Pool(pool.rows[2:3])
    assert single.parts["x"] is pool.rows[0].parts["x"]
    np.testing.assert_allclose(next(single.part(index[[2]]).batches(None, 2)).x, expected[[2]], rtol=1e-15)


def test_one_matrix_for_all_is_copied_once():
    with mock.patch.object(Pool, "of", side_effect=Pool.of) as calls:
        fit_many(seeds(5), rows())
    ((sources, *_),) = (call.args for call in calls.call_args_list)
    assert len(sources) == 5 and len(Pool.of(sources, "cpu", torch.float32).parts["x"]) == 40


# --- which are stacked ----------------------------------------------------------------------------------------------


def random_tasks(random, count):
    split = random_split(40, 0.1)
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
            0,
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
        best = one.last["epoch"]
        assert len(one.history) == best + 3
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
    with small_memory(0), pytest.raises(CurvaeError, match="model 1 of 3 .seed 0, c = 1. does not fit .* lower hidden"):
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
    configs = seeds(5, STOPPING, epochs=20, patience=patience)
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
    killed = 0
    for trial in range(2):
        folder = tmp_path / str(trial)
        process = child(lambda folder=folder: fit_many(MANY, DATA, folder=folder))
        time.sleep(random.uniform(0.2 * typical, 0.8 * typical))
        kill(process)
        killed += wait(process)
        assert_resumed(fit_many(MANY, DATA, folder=folder, resume=True), whole)
    assert killed >= 1


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
        with pytest.raises(CurvaeError, match="n_init must be a whole number of at least 1"):
            estimator(n_init=bad).fit(rows())
    assert len(estimator(n_init=np.int64(2)).fit(rows()).history_) == 3


def test_the_number_of_trainings_survives(tmp_path):
    model = estimator(n_init=3)
    assert model.get_params()["n_init"] == 3 and clone(model).n_init == 3 and PoincareVAE().n_init == 1
    model.fit(rows()).save(tmp_path / "run")
    loaded = PoincareVAE.load(tmp_path / "run")
    assert loaded.n_init == 3 and type(loaded.n_init) is int
    assert np.array_equal(loaded.transform(rows()), model.transform(rows()))
