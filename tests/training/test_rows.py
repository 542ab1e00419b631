"""Splits, batches and noise: sources of rows agree, noise is bounded, and captured steps are the plain ones."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from scipy import sparse, stats

from curvae.errors import CurvaeError
from curvae.models import Batch, Layout, Stack
from curvae.settings import resolve_defaults
from curvae.training import Config, Rows, Scaling, build, engine, fit, fit_many, random_split
from curvae.training.engine import BatchEngine, CapturedStep, prefetch
from curvae.training.rows import RowPool
from trainings import CapturedEngine

pytestmark = pytest.mark.usefixtures("quick_tracing")

COLUMNS = 5
# Five steps an epoch, the last of three rows.
SMALL = Config(
    hidden=(6,),
    posterior="wrapped",
    likelihood="gaussian",
    epochs=4,
    batch_size=8,
    learning_rate=0.02,
    cooldown=0.0,
    patience=None,
    prior_scale=1.0,
)


def numbers(rows=35, seed=0):
    x = np.random.default_rng(seed).normal(size=(rows, COLUMNS))
    x[x < -0.3] = 0.0
    return x


def generators(*seeds):
    made = {seed: torch.Generator().manual_seed(seed) for seed in seeds}
    return [made[seed] for seed in seeds]


def pool(x, count, kind=np.asarray):
    """The same rows for so many models, half of them scaled otherwise."""
    scalings = [Scaling(np.full(COLUMNS, 0.5 * (i % 2)), np.full(COLUMNS, 2.0)) for i in range(count)]
    data = kind(x)
    return RowPool.of([(data, scaling) for scaling in scalings], "cpu", torch.float64)


def index(count, rows):
    return torch.stack([torch.arange(i, rows + i) for i in range(count)])


# --- splits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("groups", [None, 17])
def test_a_split_is_disjoint_complete_and_sized(seed, groups):
    n = 203
    labels = None if groups is None else np.array([f"g{i % groups}" for i in range(n)])
    split = random_split(n, 0.1, 0.25, seed, labels)
    parts = (split.train, split.validation, split.test)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(n))
    assert all(np.array_equal(part, np.sort(part)) for part in parts)
    if labels is None:
        assert [len(part) for part in parts] == [203 - 71, 20, 51]
    else:
        largest = np.unique(labels, return_counts=True)[1].max()
        assert all(
            abs(len(p) - share * n) <= largest / 2 + 1 for p, share in zip(parts, (0.65, 0.1, 0.25), strict=True)
        )
        names = split.names(n)
        assert all(len(set(names[labels == group])) == 1 for group in set(labels))
    other = random_split(n, 0.1, 0.25, seed + 1, labels)
    assert not np.array_equal(split.train, other.train)
    assert np.array_equal(split.train, random_split(n, 0.1, 0.25, seed, labels).train)
    assert sorted(set(split.names(n))) == ["test", "train", "validation"]


def test_each_row_is_held_out_about_equally_often():
    held = np.zeros(20)
    for seed in range(600):
        held[random_split(20, 0.25, seed=seed).validation] += 1
    assert stats.chisquare(held).pvalue > 1e-4 and held.sum() == 5 * 600


def test_splits_at_the_edge():
    assert len(random_split(7, 0.0).validation) == 0
    assert len(random_split(4, 0.1).train) == 4
    with pytest.raises(CurvaeError, match="no rows are left"):
        random_split(6, 0.95)
    with pytest.raises(CurvaeError, match="1 groups"):
        random_split(6, 0.99999999, groups=np.zeros(6))


@pytest.mark.parametrize("groups", [None, 17])
def test_at_most_so_many_rows_are_held_out(groups):
    labels = None if groups is None else np.array([f"g{i % groups}" for i in range(2030)])
    found = random_split(2030, 0.2, 0.1, 0, labels, most=100)
    room = 0 if groups is None else 60  # half of a group
    assert abs(len(found.validation) - 100) <= room and abs(len(found.test) - 100) <= room
    plain, bounded = (random_split(2030, 0.2, 0.1, 0, labels, most) for most in (None, 1000))
    assert np.array_equal(plain.test, bounded.test) and np.array_equal(plain.train, bounded.train)


def test_parts_of_some_rows():
    split = random_split(500, 0.2, 0.1)
    names = split.names(500)
    for start, stop in ((0, 500), (3, 4), (120, 377)):
        np.testing.assert_array_equal(split.names(stop - start, start), names[start:stop])
    rows = split.sample(60, seed=1)
    assert np.array_equal(rows, np.unique(rows)) and len(rows) == 60 + 60 + 50
    some = split.within(rows)
    np.testing.assert_array_equal(some.names(len(rows)), names[rows])
    np.testing.assert_array_equal(split.sample(60, seed=1), rows)
    assert not np.array_equal(split.sample(60, seed=2), rows)


# --- sources --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("seeds", [(3, 4, 5), (3, 4, 3)])
def test_batches_hold_every_row_once_in_the_order_of_the_generator(kind, seeds):
    x, places = numbers(35), index(3, 30)
    found = list(pool(x, 3, kind).part(places).batches(generators(*seeds), 8))
    assert [batch.x.shape for batch in found] == [(3, 8, COLUMNS)] * 3 + [(3, 6, COLUMNS)]
    rows = torch.cat([batch.x for batch in found], 1).numpy()
    for i, seed in enumerate(seeds):
        order = places[i][torch.randperm(30, generator=torch.Generator().manual_seed(seed))]
        np.testing.assert_allclose(rows[i], (x[order] - 0.5 * (i % 2)) / 2, rtol=1e-15)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_the_order_is_taken_before_the_noise(kind):
    """However far the batches are read, and however many models share a seed."""
    given, expected = generators(1, 2, 1), torch.Generator().manual_seed(1)
    batches = pool(numbers(), 3, kind).part(index(3, 30)).batches(given, 8)
    torch.randperm(30, generator=expected)
    torch.testing.assert_close(given[0].get_state(), expected.get_state())
    noise = torch.randn(3, generator=given[0])
    rows = torch.cat([batch.x for batch in batches], 1)
    torch.testing.assert_close(noise, torch.randn(3, generator=expected))
    torch.testing.assert_close(rows[0], rows[2] - rows[2] + rows[0])
    np.testing.assert_allclose(rows[2].mean(0), numbers()[2:32].mean(0) / 2, rtol=1e-12)


def test_some_of_the_models():
    for kind in (np.asarray, sparse.csr_array):
        part = pool(numbers(), 4, kind).part(index(4, 30))
        few, whole = part.keep([3, 1]), next(part.batches(None, 30)).x
        torch.testing.assert_close(next(few.batches(None, 30)).x, whole[[3, 1]])
        assert len(few) == 30


def test_a_part_tells_what_its_rows_are_made_of():
    pool = RowPool([Rows(sparse.csr_array(numbers()), Scaling.identity(COLUMNS))])
    part = pool.part(torch.arange(4).unsqueeze(0))
    assert (len(part), part.resident, part.device.type) == (4, False, "cpu")
    (batch,) = part.batches(None, 4)
    np.testing.assert_array_equal(batch.x[0], numbers()[:4].astype(np.float32))


# --- noise ----------------------------------------------------------------------------------------------------------


def made(kind, configs, x, validation=7, form=np.asarray):
    """An engine in float64 on rows that differ from model to model."""
    rows = len(x) - validation - len(configs) + 1
    data = pool(x, len(configs), form)
    places = index(len(configs), rows + validation)
    models = [build(config, COLUMNS).double() for config in configs]
    configs = [resolve_defaults(replace(one, neighbours="off"), (rows, validation), Layout(COLUMNS)) for one in configs]
    return kind(models, configs, data.part(places[:, :rows]), data.part(places[:, rows:]))


def test_noise_of_an_epoch_that_fits_is_made_at_once():
    own = made(BatchEngine, [SMALL, replace(SMALL, seed=1)], numbers(40))
    (window,) = own.windows(generators(1, 2), 32, 8)
    expected = [torch.randn(1, 32, 2, generator=one) for one in generators(1, 2)]
    torch.testing.assert_close(window, torch.stack(expected), rtol=0, atol=0)


@pytest.mark.parametrize(("most", "sizes"), [(1, [8, 8, 8, 8, 3]), (100, [16, 16, 3]), (200, [32, 3]), (240, [35])])
def test_noise_is_bounded(most, sizes):
    """Whole batches, three draws of two numbers a row; as many for a model in a stack as for one alone."""
    configs = [replace(SMALL, samples=3, seed=i) for i in range(4)]
    with mock.patch.object(engine, "WINDOW", most):
        windows = [
            list(made(BatchEngine, configs[:count], numbers(60)).windows(generators(*range(count)), 35, 8))
            for count in (1, 4)
        ]
    assert [[window.shape[2] for window in found] for found in windows] == [sizes, sizes]
    for alone, stacked in zip(*windows, strict=True):
        torch.testing.assert_close(stacked[0], alone[0], rtol=0, atol=0)
    whole = torch.cat(windows[1], 2)
    assert len(whole.unique()) == whole.numel()  # it goes on from window to window


def test_validation_noise_is_the_same_in_every_epoch():
    for most in (30, 1 << 20):
        with mock.patch.object(engine, "WINDOW", most), mock.patch.object(engine, "_VALIDATION_ROWS", 8):
            own = made(BatchEngine, [SMALL], numbers(60), validation=20)
            first, second = own.validate(), own.validate()
            assert len(list(own.windows(own._generators(None), 20, 8))) == (3 if most == 30 else 1)
        torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_a_model_in_a_stack_is_that_alone_with_several_windows(tmp_path):
    configs, x = [replace(SMALL, seed=seed) for seed in range(3)], numbers(40)
    with mock.patch.object(engine, "WINDOW", 40):
        stacked = fit_many(configs, x, dtype=torch.float64)
        alone = fit(configs[1], x, dtype=torch.float64)
        fit(replace(configs[1], epochs=2), x, dtype=torch.float64, folder=tmp_path)
        resumed = fit(configs[1], x, dtype=torch.float64, folder=tmp_path, resume=True)
    for other in (stacked[1], resumed):
        assert [record["elbo"] for record in other.history] == pytest.approx(
            [record["elbo"] for record in alone.history], rel=1e-10
        )
    assert alone.history[0]["elbo"] != fit(configs[1], x, dtype=torch.float64).history[0]["elbo"]


# --- captured steps, called on a CPU --------------------------------------------------------------------------------


def assert_same_training(configs, x, form, epochs=3, kinds=(BatchEngine, CapturedEngine)):
    found = []
    for kind in kinds:
        own = made(kind, configs, x, form=form)
        figures = [(own.epoch(epoch).means, own.validate()) for epoch in range(epochs)]
        found.append((own.step, figures, own.stack.tensors))
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("count", "window", "form"),  # one model and several, fed and at hand, in one window and in several
    [
        (1, 1, np.asarray),
        (1, 40, sparse.csr_array),
        (3, 1, sparse.csr_array),
        (3, 1 << 20, np.asarray),
    ],
)
def test_steps_to_be_captured_are_the_plain_ones(form, window, count):
    """Gathered from rows in memory, or fed by a thread; the last batch is smaller than the others."""
    configs = [replace(SMALL, seed=seed, beta=1.0 + seed) for seed in range(count)]
    with mock.patch.object(engine, "WINDOW", window), mock.patch.object(engine, "_VALIDATION_ROWS", 3):
        assert_same_training(configs, numbers(44), form, epochs=2)


@pytest.mark.parametrize(
    ("more", "form"),
    [
        ({"objective": "iwae", "samples": 3}, np.asarray),
        ({"batch_size": 64}, sparse.csr_array),
        ({"likelihood": "bernoulli"}, sparse.csr_array),
        ({"likelihood": "zinb", "samples": 2}, sparse.csr_array),
    ],
)
def test_other_steps_to_be_captured(more, form):
    configs = [replace(SMALL, seed=seed, **more) for seed in (0, 1)]
    assert_same_training(configs, (numbers(44) > 0).astype(float), form, epochs=2)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_warming_up_before_a_capture_changes_nothing(form):
    """As on CUDA, where a step is called some times before it is captured."""

    def warmed(function, device):
        for _ in range(3):
            function()
        return function

    configs = [replace(SMALL, seed=seed, cooldown=0.5) for seed in range(2)]
    with mock.patch.object(engine, "capture", warmed):
        assert_same_training(configs, numbers(44), form, epochs=2)


def test_steps_that_fail_are_numbered_through_the_windows():
    x = numbers(44)
    x[20] = np.inf
    configs = [replace(SMALL, seed=seed) for seed in range(3)]
    steps = []
    for kind in (BatchEngine, CapturedEngine):
        with mock.patch.object(engine, "WINDOW", 40), np.errstate(all="ignore"):
            passed = made(kind, configs, x).epoch(0)
        steps.append({i: failure.step for i, failure in passed.failures.items()})
    assert steps[0] == steps[1] and len(steps[0]) == 3 and max(steps[0].values()) > 2


def test_a_stack_that_is_fed_can_shrink():
    configs = [replace(SMALL, seed=seed) for seed in range(3)]
    found = []
    for kind in (BatchEngine, CapturedEngine):
        own = made(kind, configs, numbers(44), form=sparse.csr_array)
        own.epoch(0)
        own = own.keep([2, 0])
        found.append((own.epoch(1).means, own.validate()))
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)


# --- feeding --------------------------------------------------------------------------------------------------------


def test_the_next_thing_is_made_while_one_is_in_use():
    asked = []

    def things():
        for i in range(4):
            asked.append(i)
            yield i

    found = prefetch(things())
    assert next(found) == 0
    assert next(found) == 1 and 1 in asked and 3 not in asked
    assert list(found) == [2, 3]


def test_what_is_wrong_with_a_source_is_raised():
    def broken():
        yield Batch(torch.zeros(1, 2, 3))
        raise OSError("the disk is gone")

    held = prefetch(broken())
    next(held)
    with pytest.raises(OSError, match="the disk is gone"):
        next(held)


def test_a_smaller_batch_is_filled_up_with_its_last_row():
    """Rows as a captured step reads them, and which of them count."""
    whole = torch.arange(12.0).view(1, 4, 3)
    source = mock.Mock(batches=lambda *_: iter([Batch(whole), Batch(whole[:, 1:3]), Batch(whole)]))
    stack = Stack([build(SMALL, 3)])
    step = CapturedStep(lambda rows, noise, kept, *_: (rows.x, kept), stack, source, torch.zeros(1, 1, 4, 2))
    found = []
    for batch, count in zip(step.batches(None), (4, 2, 4), strict=True):
        x, kept = step(batch, torch.zeros(1, 1, count, 2))
        found.append((x[0, :, 0].tolist(), kept.tolist()))
    assert found == [
        ([0.0, 3.0, 6.0, 9.0], [1.0] * 4),
        ([3.0, 6.0, 6.0, 6.0], [1.0, 1.0, 0.0, 0.0]),
        ([0.0, 3.0, 6.0, 9.0], [1.0] * 4),
    ]
