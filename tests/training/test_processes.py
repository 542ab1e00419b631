"""One model trained by several processes: the losses of one, killed processes, and resume."""

from __future__ import annotations

import math
import os
import shutil
import socket
import time
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from scipy import sparse

from curvae.data import Arrays, load
from curvae.errors import CurvaeError
from curvae.training import Config, Scaling, fit, stacks
from curvae.training.rows import SHARDS, BatchShard, DiskRows, RowPool, Rows, random_split
from disk_data import COLUMNS, MEMORY, numbered, write_parquet
from processes import child, start_server
from running import SMALL, config, curvae, refused, write_table
from trainings import assert_same, state

ROWS = 779
X = numbered(ROWS)
# Four epochs of a pass each, in batches of which the last has a single row: most processes have none of it.
CONFIG = Config(
    hidden=(8,),
    posterior="wrapped",
    epochs=4,
    batch_size=100,
    cooldown=0.0,
    learning_rate=0.01,
    patience=4,
    seed=3,
    neighbours="off",
)
TRAIN = np.setdiff1d(np.arange(ROWS), np.arange(1, ROWS, 10)[:76])


@pytest.fixture(autouse=True)
def _place(monkeypatch, tmp_path, often):
    start_server()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)


def opened():
    return load("x.npy", memory=MEMORY)[0]


# --- shares of a batch ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 8, 64])
def test_every_place_belongs_to_one_process(size):
    shares = [BatchShard(rank, size) for rank in range(size)]
    owners = np.array([share.owns(np.arange(300)) for share in shares])
    assert (owners.sum(0) == 1).all()
    np.testing.assert_array_equal(owners.argmax(0), np.arange(300) % 64 // (64 // size))
    for share, own in zip(shares, owners, strict=True):
        np.testing.assert_array_equal(share.positions(0, 300), np.flatnonzero(own))
        np.testing.assert_array_equal(share.count_before(np.arange(301)), [own[:place].sum() for place in range(301)])
        # Every batch of a multiple of 64 rows has equally many of each, wherever it begins.
        assert len(share.positions(37, 37 + 3 * SHARDS)) == 3 * SHARDS // size


def on_disk(share):
    return DiskRows(Rows(opened().arrays, Scaling.identity(COLUMNS)), torch.from_numpy(TRAIN), share=share)


def gathered(x):
    pool = RowPool([Rows(x, Scaling.identity(COLUMNS))])
    return lambda share: pool.part(torch.arange(5, ROWS).unsqueeze(0), share=share)


SOURCES = {
    "on disk": on_disk,
    "dense": gathered(X),
    "sparse": gathered(sparse.csr_array(X)),
}


@pytest.mark.parametrize(("size", "own"), [(2, slice(None)), (4, slice(200, 500)), (64, slice(600, 703))])
@pytest.mark.parametrize("kind", SOURCES)
def test_all_processes_together_have_the_batches_of_one(kind, size, own):
    def batches(share):
        return list(SOURCES[kind](share).batches([torch.Generator().manual_seed(1)], 100, own))

    whole = batches(BatchShard())
    assert all(batch.index is None for batch in whole)
    shares = [batches(BatchShard(rank, size)) for rank in range(size)]
    for batch, *parts in zip(whole, *shares, strict=True):
        found = torch.full_like(batch.x, math.nan)
        for part in parts:
            assert part.x.shape[1] == part.index.shape[1]
            found[0, part.index[0]] = part.x[0]
        assert torch.equal(found, batch.x)
        assert sum(part.x.shape[1] for part in parts) == batch.x.shape[1]


def test_rows_in_memory_and_on_disk_are_of_both_kinds():
    assert SOURCES["dense"](BatchShard(0, 2)).resident and not SOURCES["sparse"](BatchShard(0, 2)).resident


def test_a_process_reads_the_blocks_of_its_own_shards(monkeypatch):
    plain, read = Rows.read, []
    monkeypatch.setattr(Rows, "read", lambda self, index: read.append(index) or plain(self, index))
    counts = []
    for share in (BatchShard(), BatchShard(1, 4)):
        read.clear()
        assert sum(batch.x.shape[1] for batch in on_disk(share).batches([torch.Generator().manual_seed(1)], 100))
        counts.append(sum(len(index) > 0 for index in read))
    assert counts[1] < 0.6 * counts[0]


# --- the same training ------------------------------------------------------------------------------------------------


def assert_close(found, expected):
    """The same but for rounding, of numbers in double precision."""
    weights, history = state(found)
    for record, other in zip(history, state(expected)[1], strict=True):
        assert record == pytest.approx(other, rel=1e-7)
    for name, t in state(expected)[0].items():
        torch.testing.assert_close(weights[name], t, rtol=1e-5, atol=1e-7)


def weighted():
    return Arrays(X, weight=np.linspace(0.2, 1.8, ROWS))


@pytest.mark.parametrize(
    ("count", "data", "more"),
    [
        (2, opened, {}),
        (2, opened, {"epoch_steps": 3, "epochs": 6, "cooldown": 0.3}),
        (2, weighted, {"learn_curvature": True, "samples": 2, "objective": "iwae"}),
        (4, lambda: sparse.csr_array(X), {"patience": 1, "epochs": 12, "learning_rate": 0.1}),
    ],
    ids=["on disk", "parts of a pass", "in memory", "sparse"],
)
def test_losses_are_those_of_one_process(count, data, more):
    asked = replace(CONFIG, **more)
    assert random_split(ROWS, asked.validation).counts[0] % asked.batch_size == 1
    records = []
    found = fit(asked, data(), dtype=torch.float64, processes=count, progress=lambda record, n: records.append(record))
    expected = fit(asked, data(), dtype=torch.float64)
    assert_close(found, expected)
    assert records == found.history and found.config == expected.config
    if "patience" in more:
        assert len(found.history) < asked.epochs  # stopped early


def test_a_loss_that_is_not_a_number_ends_all():
    x = np.where(np.arange(ROWS)[:, None] // 5 == 1, 1e38, X)
    asked = replace(CONFIG, standardise=False, likelihood="gaussian")
    says = []
    for count in (1, 2):
        with pytest.raises(CurvaeError) as error:
            fit(asked, x, processes=count)
        says.append(str(error.value).partition(":")[0])
    assert says[0] == says[1] and "loss became" in says[0]
    assert not active_children()


def test_the_command_line(table):
    write_table("t.csv", rows=200)
    code = [
        curvae("fit", "t.csv", "-q", *SMALL, *more, "--batch-size", "64", "-o", f"run{n}", "--processes", n)
        for n, more in ((1, ("--neighbours", "off")), (2, ()))
    ]
    assert [one.code for one in code] == [0, 0] and code[1].err == ""
    one, two = config("run1"), config("run2")
    assert one["summary"]["log_likelihood"] == pytest.approx(two["summary"]["log_likelihood"], rel=1e-4)
    assert one["config"] == two["config"]
    assert [run["data"]["neighbours_reason"].partition(",")[0] for run in (one, two)] == [
        "as asked",
        "several processes share every batch",
    ]


# --- killed processes -------------------------------------------------------------------------------------------------


def test_a_killed_process_ends_all_and_resume_goes_on(tmp_path):
    """With as many processes bit for bit, with another number but for rounding."""
    whole = fit(CONFIG, opened(), processes=2, dtype=torch.float64)

    def kill(record, epochs):
        if record["epoch"] == 3:
            (worker,) = active_children()
            worker.kill()

    with pytest.raises(CurvaeError, match="process 2 of 2 was ended by SIGKILL; go on with `resume=True`"):
        fit(CONFIG, opened(), folder=tmp_path / "killed", processes=2, dtype=torch.float64, progress=kill)
    assert not active_children()
    found = {}
    for count in (1, 2, 4):
        folder = shutil.copytree(tmp_path / "killed", tmp_path / str(count))
        found[count] = fit(CONFIG, opened(), folder=folder, resume=True, processes=count, dtype=torch.float64)
        assert_close(found[count], whole)
    assert_same(state(found[2]), state(whole))


def launch(folder, work=lambda rank, fit: fit()):
    """Two processes as `torchrun` starts them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])

    def do(rank):
        os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port, LOCAL_RANK="0")
        work(rank, lambda: fit(CONFIG, X, folder=folder, processes=2))

    return [child(lambda rank=rank: do(rank)) for rank in range(2)]


def test_killed_at_random_moments(tmp_path):
    whole = state(fit(CONFIG, X, processes=2))
    began = time.monotonic()
    for process in launch(tmp_path / "trial", lambda rank, train: torch.save(state(train()), f"{rank}.pt")):
        process.join(60)
        assert process.exitcode == 0
    for rank in range(2):
        assert_same(torch.load(f"{rank}.pt"), whole)
    typical = time.monotonic() - began
    random = np.random.default_rng(1)
    for trial, rank in enumerate((0, 1)):
        folder = tmp_path / str(trial)
        processes = launch(folder)
        time.sleep(random.uniform(0.3, 1.0) * typical)
        processes[rank].kill()
        processes[1 - rank].join(3)
        # Before they have found each other, `torchrun` has to end the other one.
        processes[1 - rank].terminate()
        for process in processes:
            process.join(60)
        assert_same(state(fit(CONFIG, X, folder=folder, resume=True, processes=2)), whole)


def test_the_first_process_says_what_is_wrong_in_another(tmp_path):
    def work(rank, train):
        if rank:
            RowPool.part = mock.Mock(side_effect=CurvaeError("its disk is gone"))
        try:
            train()
        except CurvaeError as error:
            Path(f"said{rank}").write_text(str(error))

    for process in launch(None, work):
        process.join(60)
    assert Path("said0").read_text() == Path("said1").read_text() == "its disk is gone"


def test_checkpoints_are_written_by_the_first_process(tmp_path):
    fit(CONFIG, X, folder=tmp_path / "run", processes=2)
    names = sorted(path.name for path in (tmp_path / "run").rglob("*"))
    fit(CONFIG, X, folder=tmp_path / "alone")
    assert names == sorted(path.name for path in (tmp_path / "alone").rglob("*"))
    assert stacks._CHECKPOINT_EVERY < 0


# --- what is refused --------------------------------------------------------------------------------------------------


def test_what_several_processes_cannot_do():
    with pytest.raises(CurvaeError, match="`processes` must be one of 1, 2, 4, 8, 16, 32 and 64, got 3"):
        fit(CONFIG, X, processes=3)
    with pytest.raises(CurvaeError, match='`neighbours="both"` needs all rows of a batch in one process'):
        fit(replace(CONFIG, neighbours="both"), X, processes=2)
    with pytest.raises(CurvaeError, match="use `batch_size=64` or more"):
        fit(replace(CONFIG, batch_size=32), X, processes=2)


def test_what_commands_refuse(table, monkeypatch):
    refused("fit", "t.csv", *SMALL, "--processes", "2", "--repeats", "2", says=["--repeats and --processes cannot"])
    refused("fit", "t.csv", *SMALL, "--processes", "5", says=["--processes must be one of 1, 2, 4,"])
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    refused("fit", "t.csv", *SMALL, "--processes", "4", says=["torchrun started 2 processes, not 4"])
    refused("diagnose", "t.csv", says=["curvae diagnose works in one process; start it without torchrun"])
    monkeypatch.setenv("RANK", "1")
    found = curvae("diagnose", "t.csv")
    assert (found.code, found.out, found.err) == (2, "", "")


def test_a_parquet_file_in_two_processes(tmp_path):
    write_parquet(tmp_path / "x.parquet", X, group=100)
    data, _ = load(tmp_path / "x.parquet", label="kind", id="cell", memory=MEMORY)
    asked = replace(CONFIG, epochs=2, patience=None)
    assert data.on_disk
    assert_close(fit(asked, data, processes=2, dtype=torch.float64), fit(asked, data, dtype=torch.float64))
