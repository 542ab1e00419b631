"""Training on rows that are read in pieces: every row once, the order of (seed, epoch), and exact resume."""

from __future__ import annotations

import math
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from curvae.data import open_stream
from curvae.errors import CurvaeError
from curvae.models import Layout
from curvae.settings import resolve_defaults
from curvae.training import Config, Scaling, build, fit, random_split, stacks
from curvae.training.captured import Captured
from curvae.training.engine import BatchEngine
from curvae.training.row_sources import Part, Share, Zipped
from curvae.training.rows import HeldOut, Rows, hold_out
from curvae.training.streamed import SHARDS, StreamedRows, held_out_rows, sample_rows, shard_order
from streaming import COLUMNS, MEMORY, numbered, write_parquet
from trainings import assert_same, killed_at_write, state

ROWS = 2000
X = numbered(ROWS)
CONFIG = Config(
    hidden=(8,), posterior="wrapped", epochs=6, batch_size=100, epoch_steps=5, cooldown=0.0, patience=None, seed=3
)
TABLE = {"label": "kind", "id": "cell", "memory": MEMORY}


@pytest.fixture(autouse=True)
def _place(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(stacks, "_CHECKPOINT_EVERY", -1.0)
    monkeypatch.setattr(stacks, "_CHECKPOINT_SHARE", math.inf)
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)


def opened():
    return open_stream("x.npy", memory=MEMORY)


def source(held=(), scaling=None, **settings):
    scaling = scaling or Scaling.identity(COLUMNS)
    return StreamedRows(opened(), scaling, HeldOut(ROWS, np.array(held, np.int64)), Layout(COLUMNS), **settings)


def generator(seed):
    return torch.Generator().manual_seed(seed)


def numbers(batches):
    """Numbers of the rows of each batch, which their first column holds."""
    return [batch.x[:, 0].long().tolist() for batch in batches]


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


@pytest.mark.parametrize("share", [Share(), Share(1, 4)])
def test_several_threads_read_the_rows_of_one(share):
    alone, several = (source((0, 700), share=share, threads=threads) for threads in (1, 4))
    assert several._readers._max_workers > 1
    for seed in (1, 2):
        found, known = (list(rows.batches(generator(seed), 100)) for rows in (several, alone))
        assert numbers(found) == numbers(known)
        torch.testing.assert_close([batch.x for batch in found], [batch.x for batch in known], rtol=0, atol=0)


@pytest.mark.parametrize("held", [(), (0, 1, 2, 999, 1500, 1999)])
def test_every_row_once_an_epoch_in_the_order_of_its_generator(held):
    rows = source(held)
    found = numbers(rows.batches(generator(1), 128))
    assert [len(batch) for batch in found] == [128] * (len(rows) // 128) + [len(rows) % 128]
    order = [number for batch in found for number in batch]
    assert sorted(order) == sorted(set(range(ROWS)) - set(held))
    assert order == order_of(rows.batches(generator(1), 100))
    assert order == order_of(source(held).batches(generator(1), 128))
    assert order != order_of(rows.batches(generator(2), 128))
    assert order_of(rows.batches(None, 128)) == sorted(order)


def test_rows_are_well_mixed():
    """Of a sorted table, batches of an epoch have rows of the whole of a round, and rounds of the whole table."""
    found = numbers(source().batches(generator(5), 128))
    assert len({tuple(batch) for batch in found}) == len(found)
    spreads = [np.std(batch) for batch in found]
    assert min(spreads) > 0.4 * ROWS / math.sqrt(12)
    assert len(source()._plan(7).rounds) >= 3


@pytest.mark.parametrize("own", [slice(0, 300), slice(700, 900), slice(1024, 2000), slice(1990, 2000)])
def test_a_part_of_an_epoch_is_a_part_of_its_order(own):
    whole = order_of(source().batches(generator(1), 128))
    found = numbers(source().batches(generator(1), 128, own))
    assert [number for batch in found for number in batch] == whole[own]
    assert {len(batch) for batch in found[:-1]} <= {128}


def test_the_order_is_taken_before_the_noise():
    given, expected = generator(1), generator(1)
    batches = source().batches(given, 128)
    torch.randint(1 << 62, (), generator=expected)
    assert torch.equal(given.get_state(), expected.get_state())
    next(batches)
    assert torch.equal(given.get_state(), expected.get_state())


def test_rounds_are_read_once_a_pass_however_it_is_cut():
    rows, read = source(), []
    plain = rows._read
    rows._read = lambda plan, place: read.append(place) or plain(plan, place)
    for start in range(0, ROWS, 250):
        list(rows.batches(generator(1), 50, slice(start, start + 250)))
    assert read == list(range(len(rows._plan(0).rounds)))


def test_held_out_rows_are_few_and_take_no_memory():
    found = hold_out(10**12, 0.1, 1000, seed=4)
    assert len(np.unique(found.validation)) == 1000 and found.counts == (10**12 - 1000, 1000)
    assert found.validation.mean() == pytest.approx(5e11, rel=0.1)
    assert hold_out(50, 0.1, 1000).counts == (45, 5)
    assert found.names(found.validation[:2] + [0, 1]).tolist() == ["validation", "train"]


# --- the same training ------------------------------------------------------------------------------------------------


class Ordered(Part):
    """Rows in memory in a given order, whatever the generator; as much is taken from it as by a stream."""

    def batches(self, generator, size, own=slice(None)):
        torch.randint(1 << 62, (), generator=generator)
        return map(self.rows.batch, self.index[own].split(size))


def test_losses_are_those_of_the_engine_in_memory_with_the_same_batches():
    scaling = Scaling.standard(X)
    held, layout = np.arange(5, ROWS, 40), Layout(COLUMNS)
    config = replace(CONFIG, likelihood="gaussian", epoch_steps=None, neighbours="off")
    config = resolve_defaults(config, HeldOut(ROWS, held).counts, layout)
    engines = []
    for kind in ("stream", "memory"):
        if kind == "stream":
            rows = StreamedRows(opened(), scaling, HeldOut(ROWS, held), layout)
        else:
            key = BatchEngine._generator(engines[0], config.seed, 0)
            order = order_of(source(held).batches(key, 100))
            rows = Ordered(Rows(X, scaling), torch.tensor(order))
        model = build(config, layout)
        engines.append(BatchEngine([model], [config], Zipped([rows])))
    found = [one.epoch(0).means for one in engines]
    assert torch.equal(*found)
    weights = [dict(one.stack.models[0].named_parameters()) for one in engines]
    assert all(torch.equal(p, weights[1][name]) for name, p in weights[0].items())


def test_test_rows_stand_beside_validation_rows_and_train_nothing():
    stream, config = opened(), replace(CONFIG, validation=0.1)
    held = held_out_rows(config, stream, test=0.1)
    assert abs(len(held.validation) - len(held.test)) <= 1 < len(held.test)
    assert held.counts == (ROWS - len(held.all), len(held.validation))
    assert not np.isin(held.test, held.validation).any()
    names = held.names(np.arange(ROWS))
    for name, rows in (("train", held.counts[0]), ("validation", len(held.validation)), ("test", len(held.test))):
        assert (names == name).sum() == rows
    # The same rows in another order, so that means are the same.
    changed = X.copy()
    changed[held.test] = changed[held.test][::-1]
    np.save("changed.npy", changed)
    streams = stream, open_stream("changed.npy", memory=MEMORY)
    one, other = (state(fit(config, rows, split=held))[0] for rows in streams)
    for name, t in one.items():
        torch.testing.assert_close(t, other[name], rtol=1e-5, atol=1e-6)
    rows, split = sample_rows(stream, held, 0)
    assert set(rows[split.test]) == set(held.test) and set(rows[split.validation]) == set(held.validation)


def test_scaling_start_and_figures_are_those_of_rows_in_memory(monkeypatch):
    """With the same split, and one epoch of a single step, whose order does not matter but for rounding."""
    config = replace(CONFIG, batch_size=ROWS, epochs=1, epoch_steps=None, learning_rate=1e-9, neighbours="off")
    stream = opened()
    held = held_out_rows(config, stream)
    split = replace(
        random_split(ROWS, 0.1), train=np.delete(np.arange(ROWS), held.validation), validation=held.validation
    )
    found, expected = fit(config, stream, split=held), fit(config, X, split=split)
    np.testing.assert_allclose(found.scaling.shift, expected.scaling.shift, rtol=1e-9)
    np.testing.assert_allclose(found.scaling.scale, expected.scaling.scale, rtol=1e-9)
    assert found.config == expected.config and found.reason == expected.reason
    # The noise of a row is another one, but all is the same for validation rows, whose order is that of the data.
    assert found.history[-1]["validation_elbo"] == pytest.approx(expected.history[-1]["validation_elbo"], rel=1e-5)


def test_missing_values_are_left_to_the_model():
    x = X.copy()
    x[::7, 3] = np.nan
    np.save("x.npy", x)
    stream = open_stream("x.npy", missing="model", memory=MEMORY)
    batch = next(
        StreamedRows(
            stream, Scaling.identity(COLUMNS), HeldOut(ROWS, np.empty(0, np.int64)), Layout(COLUMNS, missing=True)
        ).batches(None, 20)
    )
    np.testing.assert_array_equal(batch.observed.numpy(), ~np.isnan(x[:20]))
    assert math.isfinite(fit(replace(CONFIG, epochs=1), stream).history[-1]["elbo"])


@pytest.mark.usefixtures("quick_tracing")
def test_steps_that_could_be_captured_are_the_plain_ones():
    held = HeldOut(ROWS, np.arange(5, ROWS, 40))
    config = replace(CONFIG, likelihood="gaussian", neighbours="off")
    config = resolve_defaults(config, held.counts, Layout(COLUMNS))
    found = []
    for kind in (BatchEngine, Captured):
        rows = StreamedRows(opened(), Scaling.standard(X), held, Layout(COLUMNS))
        one = kind([build(config, Layout(COLUMNS))], [config], Zipped([rows]))
        found.append(torch.stack([one.epoch(number).means for number in range(5)]))
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)


# --- resume -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The state after a training on all rows that nothing interrupts."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        np.save(folder / "x.npy", X)
        return state(fit(CONFIG, open_stream(folder / "x.npy", memory=MEMORY)))


@pytest.mark.parametrize("n", [2, 5])
def test_a_killed_training_goes_on_bit_for_bit(whole, tmp_path, n):
    """Epochs are parts of a pass, so it goes on in the middle of one."""
    assert killed_at_write(2 * n, True, lambda: fit(CONFIG, opened(), folder=tmp_path / "run"))
    assert_same(state(fit(CONFIG, opened(), folder=tmp_path / "run", resume=True)), whole)


def test_a_file_that_changes_in_the_middle_of_an_epoch(whole, tmp_path):
    stat = Path("x.npy").stat()

    def change(record, epochs):
        if record["epoch"] == 2:
            np.save("x.npy", X[:-1])

    with pytest.raises(CurvaeError, match=r"x.npy was changed while it was being read; restore it and resume") as error:
        fit(CONFIG, opened(), folder=tmp_path / "run", progress=change)
    assert "\n" not in str(error.value)
    np.save("x.npy", X)
    os.utime("x.npy", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert_same(state(fit(CONFIG, opened(), folder=tmp_path / "run", resume=True)), whole)


def damaged(path):
    """Other bytes in a file of the same size and time, as on a failing disk."""
    stat, whole = path.stat(), path.read_bytes()
    path.write_bytes(whole[:200] + bytes(len(whole) - 5200) + whole[-5000:])
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """A folder of files, and the state after a training on it."""
    folder = tmp_path_factory.mktemp("parts")
    for i in range(3):
        write_parquet(folder / f"{i}.parquet", X[600 * i : 600 * (i + 1)])
    return folder, state(fit(CONFIG, open_stream(folder, **TABLE)))


@pytest.mark.parametrize(
    ("breaks", "says"),
    [
        (damaged, "1.parquet cannot be read as Parquet: .*; write it again"),
        (Path.unlink, "1.parquet cannot be read: No such file or directory; restore it and resume"),
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "1.parquet was changed while it was being read"),
        (lambda path: write_parquet(path, X[:300].astype(str)), "1.parquet was changed while it was being read"),
    ],
)
def test_a_file_of_a_folder_that_breaks_in_the_middle_of_an_epoch(parts, tmp_path, breaks, says):
    """The training ends with one line, and goes on bit for bit where it was when the file is restored."""
    whole = parts[1]
    folder = shutil.copytree(parts[0], tmp_path / "parts")
    path = folder / "1.parquet"
    kept, stat = path.read_bytes(), path.stat()

    def progress(record, epochs):
        if record["epoch"] == 1:
            breaks(path)

    with pytest.raises(CurvaeError, match=says) as error:
        fit(CONFIG, open_stream(folder, **TABLE), folder=tmp_path / "run", progress=progress)
    assert "\n" not in str(error.value)
    path.write_bytes(kept)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert_same(state(fit(CONFIG, open_stream(folder, **TABLE), folder=tmp_path / "run", resume=True)), whole)


def test_a_folder_that_grows(tmp_path):
    """The training goes on with the files of its start; it cannot be resumed with more."""
    folder = tmp_path / "parts"
    folder.mkdir()
    for i in range(2):
        write_parquet(folder / f"{i}.parquet", X[300 * i : 300 * (i + 1)])
    config = replace(CONFIG, epochs=3)
    whole = state(fit(config, open_stream(folder, **TABLE)))

    def grow(record, epochs):
        write_parquet(folder / "2.parquet", X[600:900])

    found = fit(config, open_stream(folder, **TABLE), folder=tmp_path / "run", progress=grow)
    assert_same(state(found), whole)
    with pytest.raises(CurvaeError, match=r"does not fit this run \(other data: not the rows") as error:
        fit(replace(config, epochs=4), open_stream(folder, **TABLE), folder=tmp_path / "run", resume=True)
    assert "\n" not in str(error.value)


def test_other_memory_is_another_order(tmp_path):
    fit(replace(CONFIG, epochs=1), opened(), folder=tmp_path / "run")
    with pytest.raises(CurvaeError, match="other data"):
        fit(CONFIG, open_stream("x.npy", memory="2MB"), folder=tmp_path / "run", resume=True)


# --- what is refused --------------------------------------------------------------------------------------------------


def test_what_needs_all_rows_is_refused():
    with pytest.raises(CurvaeError, match=r'neighbours="both" needs all rows in memory'):
        fit(replace(CONFIG, neighbours="both"), opened())
    with pytest.raises(CurvaeError, match="give a HeldOut"):
        fit(CONFIG, opened(), split=random_split(ROWS, 0.1))
    with pytest.raises(CurvaeError, match="need a Split"):
        fit(CONFIG, X, split=hold_out(ROWS, 0.1, 10))


def test_a_row_group_that_does_not_fit_is_refused(tmp_path):
    write_parquet(tmp_path / "x.parquet", X, group=ROWS)
    stream = open_stream(tmp_path / "x.parquet", label="kind", id="cell", memory=MEMORY)
    with pytest.raises(CurvaeError, match=r"x.parquet has 1,805 rows, which need 2.31MB; raise memory=…, or write"):
        fit(CONFIG, stream)
