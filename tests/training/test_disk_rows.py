"""Training on rows on disk: every row once, the order of (seed, epoch), and the training of rows in memory."""

from __future__ import annotations

import math
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, save_npz

from curvae import hierarchy
from curvae.data import Arrays, load
from curvae.errors import CurvaeError
from curvae.training import (
    Config,
    Scaling,
    build,
    compare,
    embed,
    fit,
    fit_many,
    random_split,
)
from curvae.training.comparison import faithfulness_criterion
from curvae.training.engine import BatchEngine
from curvae.training.fitted import likelihoods
from curvae.training.fitting import plan_rows
from curvae.training.rows import SHARDS, BatchShard, DiskRows, RowPool, Rows, StackedRows, shard_order
from disk_data import COLUMNS, MEMORY, mixed_table, numbered, write_parts
from trainings import CapturedEngine, assert_same, killed_at_write, state

ROWS = 2000
X = numbered(ROWS)
CONFIG = Config(
    hidden=(8,),
    posterior="wrapped",
    epochs=6,
    batch_size=100,
    epoch_steps=5,
    cooldown=0.0,
    patience=None,
    seed=3,
    neighbours="off",
)


@pytest.fixture(autouse=True)
def _place(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)


def opened(**how):
    data, _ = load("x.npy", **{"memory": MEMORY, **how})
    assert data.on_disk
    return data


def source(held=(), scaling=None, **settings):
    rows = Rows(opened().arrays, scaling or Scaling.identity(COLUMNS))
    return DiskRows(rows, torch.from_numpy(np.setdiff1d(np.arange(ROWS), held)), **settings)


def generator(seed):
    return torch.Generator().manual_seed(seed)


def numbers(batches):
    """Numbers of the rows of each batch, which their first column holds."""
    return [batch.x[0, :, 0].long().tolist() for batch in batches]


def order_of(batches):
    """Numbers of the rows of all batches."""
    return [number for batch in numbers(batches) for number in batch]


# --- order ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 1000])
def test_every_stretch_of_the_order_has_a_row_of_every_shard(rows):
    order = shard_order(rows, np.random.default_rng(0))
    assert sorted(order.tolist()) == list(range(rows))
    bounds = np.cumsum([len(part) for part in np.array_split(np.arange(rows), SHARDS)])
    shard = np.searchsorted(bounds, order, side="right")
    np.testing.assert_array_equal(shard, np.arange(rows) % SHARDS)


@pytest.mark.parametrize("share", [BatchShard(), BatchShard(1, 4)])
def test_several_threads_read_the_rows_of_one(share):
    alone, several = (source((0, 700), share=share, threads=threads) for threads in (1, 4))
    for seed in (1, 2):
        found, known = (list(rows.batches([generator(seed)], 100)) for rows in (several, alone))
        assert numbers(found) == numbers(known)
        torch.testing.assert_close([batch.x for batch in found], [batch.x for batch in known], rtol=0, atol=0)


@pytest.mark.parametrize("held", [(), (0, 1, 2, 999, 1500, 1999)])
def test_every_row_once_an_epoch_in_the_order_of_its_generator(held):
    rows = source(held)
    found = numbers(rows.batches([generator(1)], 128))
    assert [len(batch) for batch in found] == [128] * (len(rows) // 128) + [len(rows) % 128]
    order = [number for batch in found for number in batch]
    assert sorted(order) == sorted(set(range(ROWS)) - set(held))
    assert order == order_of(rows.batches([generator(1)], 100))
    assert order == order_of(source(held).batches([generator(1)], 128))
    assert order != order_of(rows.batches([generator(2)], 128))
    assert order_of(rows.batches(None, 128)) == sorted(order)


def test_rows_are_well_mixed():
    """Of a sorted table, batches of an epoch have rows of the whole of a round, and rounds of the whole table."""
    found = numbers(source().batches([generator(5)], 128))
    assert len({tuple(batch) for batch in found}) == len(found)
    deviations = [np.std(batch) for batch in found]
    assert min(deviations) > 0.4 * ROWS / math.sqrt(12)
    assert len(source()._plan(7).rounds) >= 3


@pytest.mark.parametrize("own", [slice(0, 300), slice(700, 900), slice(1024, 2000), slice(1990, 2000)])
def test_a_part_of_an_epoch_is_a_part_of_its_order(own):
    whole = order_of(source().batches([generator(1)], 128))
    found = numbers(source().batches([generator(1)], 128, own))
    assert [number for batch in found for number in batch] == whole[own]
    assert {len(batch) for batch in found[:-1]} <= {128}


def test_the_order_is_taken_before_the_noise():
    given, expected = generator(1), generator(1)
    batches = source().batches([given], 128)
    torch.randint(1 << 62, (), generator=expected)
    assert torch.equal(given.get_state(), expected.get_state())
    next(batches)
    assert torch.equal(given.get_state(), expected.get_state())


def test_rounds_are_read_once_a_pass_however_it_is_cut():
    rows, read = source(), []
    plain = rows._read
    rows._read = lambda plan, place: read.append(place) or plain(plan, place)
    for start in range(0, ROWS, 250):
        list(rows.batches([generator(1)], 50, slice(start, start + 250)))
    assert read == list(range(len(rows._plan(0).rounds)))


def test_a_round_takes_a_share_of_the_memory():
    plan = source()._plan(1)
    assert max(np.diff(plan.starts)) * COLUMNS * 4 <= 10**6 / 4 < 1.2 * max(np.diff(plan.starts)) * COLUMNS * 4


# --- the same training ------------------------------------------------------------------------------------------------


class Ordered(StackedRows):
    """Rows in memory in a given order, whatever the generator; as much is taken from it as by rows on disk."""

    def order(self, generators):
        torch.randint(1 << 62, (), generator=generators[0])
        return super().order(None)


def test_losses_are_those_of_the_engine_in_memory_with_the_same_batches():
    scaling = Scaling.standard(X)
    split = random_split(ROWS, 0.02)
    (task,) = plan_rows([replace(CONFIG, likelihood="gaussian", epoch_steps=None)], X, splits=[split])[1]
    engines = []
    for kind in ("disk", "memory"):
        if kind == "disk":
            rows = DiskRows(Rows(opened().arrays, scaling), torch.from_numpy(split.train))
        else:
            key = BatchEngine._generator(engines[0], task.config.seed, 0)
            order = order_of(source(split.validation).batches([key], 100))
            rows = Ordered(RowPool([Rows(X, scaling)]), [0], torch.tensor([order]))
        model = build(task.config, task.layout)
        engines.append(BatchEngine([model], [task.config], rows))
    found = [one.epoch(0).means for one in engines]
    assert torch.equal(*found)
    weights = [dict(one.stack.models[0].named_parameters()) for one in engines]
    assert all(torch.equal(p, weights[1][name]) for name, p in weights[0].items())


def test_test_rows_train_nothing():
    split = random_split(ROWS, 0.1, 0.1)
    changed = X.copy()
    changed[split.test] = changed[split.test][::-1]  # the same rows in another order, so that means are the same
    np.save("changed.npy", changed)
    found = [state(fit(CONFIG, load(name, memory=MEMORY)[0], split=split))[0] for name in ("x.npy", "changed.npy")]
    for name, t in found[0].items():
        torch.testing.assert_close(t, found[1][name], rtol=1e-5, atol=1e-6)


@pytest.fixture
def _memory_order(monkeypatch):
    """Rows on disk in the order that rows in memory have."""

    class MemoryOrder(DiskRows):
        def batches(self, generators, size, own=slice(None)):
            rows = StackedRows(RowPool([self.rows]), [0], self.index.unsqueeze(0), self._neighbours)
            return rows.batches(generators, size, own)

    monkeypatch.setattr("curvae.training.rows.DiskRows", MemoryOrder)


def counts(rows):
    table = mixed_table(rows)
    random = np.random.default_rng(1)
    drawn = {f"n{i}": random.poisson(table["time"] * (1 + (table["batch"] == "x") * i)) for i in range(5)}
    return table.assign(**drawn)[[*drawn, "time", "batch"]]


def gappy(rows):
    table = mixed_table(rows).drop(columns=["patient", "time"])
    return table.assign(b=table["b"].where(table.index % 9 > 0))


MIXED = {"label": "kind", "id": "cell", "categorical": ["colour", "grade"], "covariates": ["batch", "age"]}
CASES = {
    "mixed": (lambda rows: mixed_table(rows).drop(columns=["patient", "time"]), MIXED, {}),
    "encoded": (
        lambda rows: mixed_table(rows).drop(columns=["patient", "time"]),
        MIXED,
        {"encode_covariates": True},
    ),
    "categorical": (lambda rows: mixed_table(rows)[["colour", "grade"]], {"categorical": ["colour", "grade"]}, {}),
    "poisson": (counts, {"exposure": "time", "covariates": ["batch"]}, {"likelihood": "poisson"}),
    "missing": (gappy, MIXED | {"missing": "model"}, {}),
    "neighbours": (lambda rows: mixed_table(rows)[["a", "b", "age"]], {}, {"neighbours": "both"}),
    "components": (lambda rows: mixed_table(rows)[["a", "b", "age"]], {}, {"init": "pca"}),
    "groups": (lambda rows: mixed_table(rows).drop(columns="time"), MIXED | {"group": "patient"}, {}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("_memory_order")
def test_training_map_and_likelihood_are_those_of_rows_in_memory(case):
    make, roles, settings = CASES[case]
    table = make(240)
    config = replace(CONFIG, epochs=3, epoch_steps=None, validation=0.05, **settings)
    table.to_parquet("whole.parquet", index=False)
    (data, _), (stored, _) = load("whole.parquet", **roles), load(write_parts("parts", table), memory=MEMORY, **roles)
    assert stored.on_disk and not data.on_disk
    (one, task), (other, expected) = (plan_rows([config], rows) for rows in (stored, data))
    assert task[0].config == expected[0].config and task[0].layout == expected[0].layout
    np.testing.assert_array_equal(task[0].split.train, expected[0].split.train)
    np.testing.assert_array_equal(task[0].scaling.shift, expected[0].scaling.shift)
    np.testing.assert_array_equal(task[0].scaling.scale, expected[0].scaling.scale)
    for tensor, known in zip(one.models(task)[0].parameters(), other.models(expected)[0].parameters(), strict=True):
        assert torch.equal(tensor, known)
    found, whole = fit(config, stored), fit(config, data)
    assert_same(state(found), state(whole))
    np.testing.assert_array_equal(embed(found, stored).space, embed(whole, data).space)
    few = likelihoods(found, stored.take([3, 1, 239]), 50).log_prob
    np.testing.assert_array_equal(few, likelihoods(whole, data.take([3, 1, 239]), 50).log_prob)


@pytest.mark.usefixtures("_memory_order")
def test_a_comparison_is_that_of_rows_in_memory():
    table = mixed_table(200)[["a", "b", "age", "batch"]]
    config = replace(CONFIG, epochs=2, epoch_steps=None)
    table.to_parquet("whole.parquet", index=False)
    roles = {"covariates": ["batch"]}
    data, stored = load("whole.parquet", **roles)[0], load(write_parts("parts", table), memory=MEMORY, **roles)[0]
    found, expected = (compare(config, rows, [1.0], 3, device="cpu", samples=50, jobs=1) for rows in (stored, data))
    assert found.verdict.split(",")[0] == expected.verdict.split(",")[0]
    for one, other in zip(found.repeats, expected.repeats, strict=True):
        assert one.validation == pytest.approx(other.validation, rel=1e-6)
        assert one.test == pytest.approx(other.test, rel=1e-6)
    splits = {config.seed + i: random_split(200, 0.1, 0.2, config.seed + i) for i in range(3)}
    criteria = [faithfulness_criterion(hierarchy.Rows(np.asarray(data.x)), one, splits) for one in (found, expected)]
    assert criteria[0].repeats[0].test == pytest.approx(criteria[1].repeats[0].test, rel=1e-6)


def test_models_on_disk_are_trained_one_after_the_other():
    configs = [replace(CONFIG, seed=seed, epochs=2) for seed in (3, 4)]
    found = fit_many(configs, opened(), jobs=1)
    for config, one in zip(configs, found, strict=True):
        assert_same(state(one), state(fit(config, opened())))


def test_sparse_rows_learn_as_dense_ones():
    random = np.random.default_rng(0)
    x = random.poisson(3, (8000, COLUMNS)) * (random.random((8000, COLUMNS)) < 0.1)
    x[7] = 0
    save_npz("x.npz", csr_array(x.astype(np.float32)), compressed=False)
    np.save("x.npy", x.astype(np.float32))
    config = replace(CONFIG, epochs=1, epoch_steps=None, batch_size=500)
    sparse, dense = (load(name, memory=MEMORY)[0] for name in ("x.npz", "x.npy"))
    assert sparse.on_disk and sparse.x.sparse and sparse.x.block_rows == dense.x.block_rows
    one, other = fit(config, sparse), fit(config, dense)
    assert one.history[-1]["elbo"] == pytest.approx(other.history[-1]["elbo"], rel=1e-6)


@pytest.mark.usefixtures("_memory_order")
def test_weights_of_rows():
    weight = np.linspace(0.1, 2, ROWS)
    found, expected = (state(fit(CONFIG, Arrays(x, weight=weight))) for x in (opened().x, X))
    assert_same(found, expected)


@pytest.mark.usefixtures("quick_tracing")
def test_steps_that_could_be_captured_are_the_plain_ones():
    split = random_split(ROWS, 0.02)
    (task,) = plan_rows([replace(CONFIG, likelihood="gaussian")], X, splits=[split])[1]
    found = []
    for kind in (BatchEngine, CapturedEngine):
        rows = DiskRows(Rows(opened().arrays, Scaling.standard(X)), torch.from_numpy(split.train))
        one = kind([build(task.config, task.layout)], [task.config], rows)
        found.append(torch.stack([one.epoch(number).means for number in range(3)]))
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)


# --- resume -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The state after a training on all rows that nothing interrupts."""
    np.save(folder := tmp_path_factory.mktemp("whole") / "x.npy", X)
    return state(fit(CONFIG, load(folder, memory=MEMORY)[0]))


@pytest.mark.parametrize("n", [2, 5])
def test_a_killed_training_goes_on_bit_for_bit(whole, tmp_path, often, n):
    """Epochs are parts of a pass, so it goes on in the middle of one."""
    assert killed_at_write(2 * n, True, lambda: fit(CONFIG, opened(), folder=tmp_path / "run"))
    assert_same(state(fit(CONFIG, opened(), folder=tmp_path / "run", resume=True)), whole)


@pytest.mark.parametrize(
    ("breaks", "says"),
    [
        (lambda path: np.save(path, X[:-1]), "x.npy was changed while it was being read; restore it and resume"),
        (Path.unlink, "x.npy cannot be read: No such file or directory; restore it and resume"),
    ],
)
def test_a_file_that_breaks_in_the_middle_of_an_epoch(whole, tmp_path, often, breaks, says):
    """The training ends with one line, and goes on bit for bit where it was when the file is restored."""
    content, stat = Path("x.npy").read_bytes(), Path("x.npy").stat()

    def progress(record, epochs):
        if record["epoch"] == 2:
            breaks(Path("x.npy"))

    with pytest.raises(CurvaeError, match=says) as error:
        fit(CONFIG, opened(), folder=tmp_path / "run", progress=progress)
    assert "\n" not in str(error.value)
    Path("x.npy").write_bytes(content)
    os.utime("x.npy", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert_same(state(fit(CONFIG, opened(), folder=tmp_path / "run", resume=True)), whole)


def test_a_table_that_was_copied_may_change_and_be_read_again(tmp_path, often):
    """The training goes on with the copy; resumed, it needs the data of its start."""
    folder = write_parts("parts", mixed_table(600).drop(columns=["time", "patient"]))
    data, config = lambda: load(folder, memory=MEMORY, **MIXED)[0], replace(CONFIG, epochs=5, epoch_steps=3)
    expected = state(fit(config, data()))
    content = (folder / "1.parquet").read_bytes()

    def damage(record, total):
        if record["epoch"] == 3:
            (folder / "1.parquet").write_bytes(content[:-200])

    assert_same(state(fit(config, data(), progress=damage)), expected)
    (folder / "1.parquet").write_bytes(content)
    assert killed_at_write(5, True, lambda: fit(config, data(), folder=tmp_path / "run"))
    assert_same(state(fit(config, data(), folder=tmp_path / "run", resume=True)), expected)
    shutil.copy(folder / "1.parquet", folder / "9.parquet")
    with pytest.raises(CurvaeError, match=r"given more than once"):
        data()


def test_other_memory_is_another_order(tmp_path):
    fit(replace(CONFIG, epochs=1), opened(), folder=tmp_path / "run")
    with pytest.raises(CurvaeError, match="other data"):
        fit(CONFIG, opened(memory=1_100_000), folder=tmp_path / "run", resume=True)
