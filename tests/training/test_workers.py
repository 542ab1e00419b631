"""Stacks spread over processes and over a Dask cluster give what one process gives, also when a worker dies."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cache
from multiprocessing import get_all_start_methods
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import joblib
import numpy as np
import pytest
import torch
from joblib.externals.loky.backend import context as loky

from curvae.data.dataset import MissingValuesError
from curvae.errors import CurvaeError
from curvae.runs import Source, compare_run
from curvae.training import Config, build, engine, fit_many, fitting
from curvae.training.comparison import compare
from curvae.training.engine import losses
from curvae.training.fitting import plan_rows, train_many
from processes import child, kill, start_server, wait
from running import curvae, write_table
from trainings import SMALL, X

dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")


def weights(fitted):
    return torch.cat([t.flatten() for t in fitted.model.state_dict().values()])


def figures(fitted):
    return [{name: v for name, v in record.items() if name != "seconds"} for record in fitted.history]


def assert_all_same(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert a.config == b.config and a.failure == b.failure and figures(a) == figures(b)
        assert torch.equal(weights(a), weights(b))


def assert_same_comparison(a, b):
    assert a.to_json() == b.to_json()
    for c, embedding in a.embeddings.items():
        assert np.array_equal(embedding.space, b.embeddings[c].space)


def assert_grows_to_the_end(told):
    done, totals = zip(*told, strict=True)
    assert len(set(totals)) == 1 and done[-1] == totals[0]
    assert list(done) == sorted(done)


@pytest.fixture
def watched(monkeypatch):
    """Look often at what the processes have done."""
    monkeypatch.setattr(fitting, "_LOOK_EVERY", 0.01)
    return []


# --- processes ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def _forked_workers():
    """Fork the processes of joblib from the server that has imported everything, instead of starting interpreters.

    Those of `test_processes_end_with_the_one_that_started_them` start as they do for users.
    """
    if "forkserver" not in get_all_start_methods():
        yield
        return
    start_server("distributed")
    loky.set_start_method("forkserver", force=True)
    yield
    loky.set_start_method(None, force=True)


# Two architectures, so that the stacks are the same for one process and for two.
CONFIGS = [replace(SMALL, seed=seed, curvature=(0.0, 0.5, 0.0, 2.0)[seed]) for seed in range(4)]


@cache
def trained():
    """By one process."""
    return fit_many(CONFIGS, X)


@cache
def compared():
    """By one process."""
    return compare(SMALL, X, (0.3, 1.0), 3, samples=20, jobs=1)


def test_two_processes_train_as_one(tmp_path, monkeypatch, watched):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    expected = trained()
    assert_all_same(fit_many(CONFIGS, X, jobs=2), expected)
    longer = [replace(config, epochs=30) for config in CONFIGS]
    found = fit_many(longer, X, jobs=2, progress=lambda *told: watched.append(told))
    assert [figures(one)[:3] for one in found] == [figures(one) for one in expected]
    assert_grows_to_the_end(watched)
    assert {total for _, total in watched} == {120} and any(0 < done < 120 for done, _ in watched)
    assert not list(tmp_path.glob("curvae-*"))  # where they count


def test_pieces_of_a_stack_train_as_the_whole():
    """To rounding: the stacks have other sizes."""
    configs = [replace(SMALL, seed=seed, learning_rate=(0.02, 0.01)[seed % 2]) for seed in range(5)]
    found, expected = (fit_many(configs, X, jobs=jobs, dtype=torch.float64) for jobs in (2, 1))
    for a, b in zip(found, expected, strict=True):
        assert a.config == b.config
        torch.testing.assert_close(weights(a), weights(b), rtol=1e-9, atol=1e-9)


def test_a_comparison_in_two_processes_is_that_of_one(watched):
    found = compare(SMALL, X, (0.3, 1.0), 3, samples=20, jobs=2, progress=lambda *told: watched.append(told))
    assert_same_comparison(found, compared())
    assert_grows_to_the_end(watched)
    assert watched[-1] == (27, 27)


def extreme():
    x = X.copy()
    x[3] = 1e38
    return x


def test_warnings_come_back_from_the_processes():
    configs = [replace(config, standardise=False, validation=0.0) for config in CONFIGS]
    data = [X, extreme(), X, X]
    said = {1: [], 2: []}
    found, expected = (fit_many(configs, data, jobs=jobs, warn=said[jobs].append) for jobs in (2, 1))
    assert_all_same(found, expected)
    assert said[2] == said[1] and len(said[2]) == 1 and "model 2 of 4 (seed 1, c = 0.5) stopped" in said[2][0]
    assert found[1].failure is not None


def test_checkpoints_of_processes_are_those_of_one(tmp_path):
    short = [replace(config, epochs=2) for config in CONFIGS]
    fit_many(short, X, folder=tmp_path, jobs=2)
    told = []
    found = fit_many(CONFIGS, X, folder=tmp_path, resume=True, progress=lambda *figures: told.append(figures))
    assert len(told) == 5  # one epoch of each, and the end
    assert_all_same(found, trained())


def test_processes_find_the_folder_after_a_change_of_directory(tmp_path, monkeypatch):
    """Processes are kept for the next call, and stay in the directory where they were started."""
    for name in ("first", "second"):
        (tmp_path / name / "run").mkdir(parents=True)
        monkeypatch.chdir(tmp_path / name)
        warnings = []
        fit_many([SMALL, replace(SMALL, hidden=(9,))], X, folder=Path("run"), jobs=2, warn=warnings.append)
        assert not warnings and list((tmp_path / name / "run" / "checkpoint").iterdir())


def endless():
    configs = [Config(hidden=(4,), epochs=1_000_000, seed=seed) for seed in range(2)]
    fit_many(configs, X, jobs=2, progress=lambda done, total: done and Path("begun").touch())


def test_processes_end_with_the_one_that_started_them(tmp_path, monkeypatch):
    psutil = pytest.importorskip("psutil")
    monkeypatch.chdir(tmp_path)
    owner = child(endless)
    while not Path("begun").exists():  # until they train
        assert owner.is_alive()
        time.sleep(0.05)
    trained = [p for p in psutil.Process(owner.pid).children() if "LokyProcess" in " ".join(p.cmdline())]
    kill(owner)
    assert wait(owner)
    _, alive = psutil.wait_procs(trained, timeout=60)
    for process in alive:
        process.kill()
    assert len(trained) == 2 and not alive


@pytest.mark.parametrize(("starter", "ends"), [(7, True), (8, False)])
def test_a_process_whose_owner_ended_before_it_began(starter, ends, monkeypatch):
    def end(code):
        raise SystemExit(code)

    monkeypatch.setattr(fitting, "parent_process", lambda: SimpleNamespace(pid=starter))
    monkeypatch.setattr(os, "getppid", lambda: 1)
    monkeypatch.setattr(os, "kill", mock.Mock(side_effect=ProcessLookupError))
    monkeypatch.setattr(os, "_exit", end)

    def work(stack, listener):
        listener.record(0, {"epoch": 1})
        return []

    with pytest.raises(SystemExit) if ends else nullcontext():
        assert fitting._apart(work, [], "absent", 7) == ([], [])


def test_by_default_there_is_a_process_for_every_core(monkeypatch):
    monkeypatch.setattr("joblib.cpu_count", lambda: 7)
    assert fitting.default_jobs("cpu") == 7


@pytest.mark.parametrize("words", [("t.csv",), ("t.csv", "--space", "h2,e1"), ("g.csv", "--graph")], ids=" ".join)
def test_commands_in_two_processes_say_what_one_says(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_table(Path("t.csv"))
    Path("g.csv").write_text("".join(f"{i},{(i + step) % 12}\n" for i in range(12) for step in (1, 2)))
    sizes = ("--hidden", 8, "--epochs", 2, "--repeats", 3, "--curvatures", 0.5, "--device", "cpu", "-q")
    for jobs in (1, 2):
        monkeypatch.setattr("joblib.cpu_count", lambda jobs=jobs: jobs)
        found = curvae("compare", *words, *sizes, "-o", f"run-{jobs}")
        assert found.code == 0, found.err
    one, two = (json.loads(Path(f"run-{jobs}", "comparison.json").read_text()) for jobs in (1, 2))
    assert one == two


def here(problem, tasks, listener, folder, resume):
    return [os.getpid()] * len(tasks)


def trainers(**where):
    """Return for each model the process that would train it."""
    return train_many(*plan_rows(CONFIGS, X), work=here, **where)


def test_where_models_are_trained_is_as_joblib_is_configured():
    assert set(trainers()) == {os.getpid()}
    with joblib.parallel_config("loky", n_jobs=2):
        assert os.getpid() not in trainers()
    with joblib.parallel_config("threading"):  # as within the workers of a search
        assert set(trainers()) == {os.getpid()} and fitting.default_jobs("cpu") == joblib.cpu_count()


def test_errors_come_back_from_the_processes(tmp_path):
    """Last of those with processes, for joblib then ends them, and starts others when it needs some."""
    fit_many(CONFIGS, X, folder=tmp_path)
    changed = [replace(config, seed=config.seed + 5) for config in CONFIGS]
    for jobs in (1, 2):
        with pytest.raises(CurvaeError, match=r"does not fit this run .seed was \d, not \d.; start again") as caught:
            fit_many(changed, X, folder=tmp_path, resume=True, jobs=jobs)
        assert type(caught.value) is CurvaeError and "\n" not in str(caught.value)


def refuse():
    raise MissingValuesError("column 'a' has gaps")


def test_errors_come_back_with_their_parameter_and_fixes():
    with pytest.raises(MissingValuesError) as caught:
        joblib.Parallel(n_jobs=2)(joblib.delayed(refuse)() for _ in range(2))
    assert caught.value.parameter == "missing" and caught.value.found == "column 'a' has gaps"
    assert caught.value.fixes == [[("missing", "model"), ("missing", "mean"), ("missing", "drop")]]


def test_fresh_weights_are_safe_in_threads():
    configs = [replace(SMALL, likelihood="gaussian", seed=seed) for seed in range(30)]
    expected = [build(config, 3).state_dict() for config in configs]
    torch.manual_seed(5)
    after = torch.rand(1)
    torch.manual_seed(5)
    gate = threading.Barrier(2)

    def every(order):
        gate.wait()
        return {config.seed: build(config, 3).state_dict() for config in configs[::order]}

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(every, (1, -1)))
    finally:
        sys.setswitchinterval(interval)
    for one in found:
        for seed, state in enumerate(expected):
            assert all(torch.equal(t, one[seed][name]) for name, t in state.items())
    assert torch.equal(torch.rand(1), after)


# --- trainings that fail --------------------------------------------------------------------------------------------


def spoiling(*places):
    """In the first stack, that of curvature 0, some models fail at the fourth step."""
    calls = 0

    def spoilt(terms, *rest):
        nonlocal calls
        calls += 1
        loss = losses(terms, *rest)
        bad = torch.tensor([calls == 4 and i in places for i in range(len(loss))])
        return torch.where(bad, torch.nan, loss)

    return mock.patch.object(engine, "losses", spoilt)


def test_a_split_of_which_a_model_failed_is_left_out():
    config, said = replace(SMALL, seed=7), []
    whole = compare(config, X, (0.5,), 4, samples=20, jobs=1)
    with spoiling(2):
        found = compare(config, X, (0.5,), 4, samples=20, jobs=1, warn=said.append)
    assert [repeat.seed for repeat in found.repeats] == [7, 8, 10]
    assert found.repeats == [whole.repeats[i] for i in (0, 1, 3)]
    assert found.stability[0.5].pairs == 3 and found.ratio == whole.ratio
    assert len(said) == 2 and said[1] == "the split of seed 9 is left out: a model of it failed"
    assert said[0].startswith("model 5 of 8 (seed 9, c = 0) stopped") and "at step 4 (epoch 2)" in said[0]


def test_the_first_split_may_be_left_out_too():
    with spoiling(0):
        found = compare(SMALL, X, (0.5,), 4, samples=20, jobs=1)
    assert [repeat.seed for repeat in found.repeats] == [1, 2, 3] and np.isfinite(found.gain)
    assert set(found.embeddings) == {0.0, 0.5}


def test_too_few_splits_are_an_error():
    for repeats, places in ((3, (1,)), (4, (0, 3))):
        with spoiling(*places), pytest.raises(CurvaeError, match="too many trainings failed .* at step 4") as caught:
            compare(SMALL, X, (0.5,), repeats, samples=20, jobs=1)
        assert "\n" not in str(caught.value)


# --- a Dask cluster -------------------------------------------------------------------------------------------------

# What Dask and its web server have to say of themselves.
quiet = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::UserWarning:distributed"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    # Workers are forked from a server that has imported everything already.
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        start_server("distributed")
        with distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            local_directory=str(tmp_path_factory.mktemp("dask")),
            silence_logs=logging.CRITICAL + 1,
        ) as cluster:
            yield cluster


@contextmanager
def on(cluster):
    """Calls that run on the workers of a cluster."""
    with distributed.Client(cluster), joblib.parallel_config("dask"):
        yield


@quiet
def test_a_comparison_on_a_cluster_is_that_of_one_process(cluster, watched):
    with on(cluster):
        found = compare(SMALL, X, (0.3, 1.0), 3, samples=20, progress=lambda *told: watched.append(told))
    assert_same_comparison(found, compared())
    assert_grows_to_the_end(watched)


@quiet
def test_models_of_a_cluster_are_those_of_one_process(cluster):
    configs = [replace(config, standardise=False, validation=0.0) for config in CONFIGS]
    data, said = [X, extreme(), X, X], []
    with on(cluster):
        found = fit_many(configs, data, warn=said.append)
    assert_all_same(found, fit_many(configs, data))
    assert len(said) == 1 and "model 2 of 4 (seed 1, c = 0.5) stopped" in said[0]
    with on(cluster), pytest.raises(CurvaeError, match="a model with layers of 3, 1,000,000"):
        fit_many([replace(SMALL, hidden=(10**6, 10**6))], X)


@quiet
def test_a_written_comparison_on_a_cluster(cluster, tmp_path):
    table, written = Source(str(write_table(tmp_path / "t.csv"))), []
    settings = {"hidden": (8,), "epochs": 2, "posterior": "wrapped"}
    for name, where, jobs in (("local", nullcontext(), 1), ("dask", on(cluster), None)):
        with where:
            folder, *_ = compare_run(table, settings, [0.5], 3, tmp_path / name, jobs=jobs, device="cpu")
            written.append(json.loads((folder / "comparison.json").read_text()))
    assert written[0] == written[1]


@quiet
def test_workers_of_a_cluster_train_unless_one_job_is_asked_for(cluster):
    with on(cluster):
        assert set(trainers(jobs=1)) == {os.getpid()}
        assert set(trainers()) == {nanny.pid for nanny in cluster.workers.values()}


@quiet
def test_a_worker_that_is_killed_does_not_matter(cluster, watched):
    config = replace(SMALL, epochs=25)
    expected = compare(config, X, (0.5,), 3, samples=20, jobs=1)
    killed = []

    def kill(done, total):
        """One that is at work."""
        watched.append((done, total))
        busy = [n for n in cluster.workers.values() if working(n)]
        if not killed and done > 6 and busy:
            killed.append(busy[0].pid)
            os.kill(busy[0].pid, signal.SIGKILL)

    def working(nanny):
        known = cluster.scheduler.workers.get(nanny.worker_address)
        return known is not None and bool(known.processing)

    with on(cluster):
        found = compare(config, X, (0.5,), 3, samples=20, progress=kill)
    assert len(killed) == 1
    assert killed[0] not in [nanny.pid for nanny in cluster.workers.values()]
    assert_same_comparison(found, expected)
    assert_grows_to_the_end(watched)
    assert watched[-1] == (150, 150)
