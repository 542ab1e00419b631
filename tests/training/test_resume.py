"""Interrupted trainings go on as if nothing had happened: killed at any moment, or stopped by a full disk."""

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

from curvae import PoincareVAE
from curvae.errors import CurvaeError
from curvae.training import fit, stacks
from curvae.training.storage import read_tensors, write_tensors
from processes import child, kill, wait
from running import SMALL, curvae, refused, snapshot, untouched, write_table
from trainings import CONFIG, X, assert_same, killed_at_write, state


@pytest.fixture(autouse=True)
def _often(monkeypatch, tmp_path):
    monkeypatch.setattr(stacks, "_CHECKPOINT_EVERY", -1.0)
    monkeypatch.setattr(stacks, "_CHECKPOINT_SHARE", math.inf)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def whole():
    return state(fit(CONFIG, X))


def test_kill_at_random_moments(tmp_path, whole):
    assert not wait(child(int))  # the first waits for the server
    began = time.monotonic()
    assert not wait(child(lambda: fit(CONFIG, X, folder=tmp_path / "trial")))
    typical = time.monotonic() - began
    random = np.random.default_rng(1)
    interrupted = 0
    for trial in range(5):
        folder = tmp_path / str(trial)
        process = child(lambda folder=folder: fit(CONFIG, X, folder=folder))
        time.sleep(random.uniform(min(0.02, typical / 2), typical))
        kill(process)
        interrupted += wait(process)
        assert_same(state(fit(CONFIG, X, folder=folder, resume=True)), whole)
    assert interrupted >= 2


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 16])
def test_kill_at_every_kind_of_write(tmp_path, whole, n, after):
    """Writes alternate between records and weights; a kill between the two leaves one epoch more in the records."""
    assert killed_at_write(n, after, lambda: fit(CONFIG, X, folder=tmp_path))
    # And once more, in the resumed training.
    killed_at_write(2, after, lambda: fit(CONFIG, X, folder=tmp_path, resume=True))
    assert_same(state(fit(CONFIG, X, folder=tmp_path, resume=True)), whole)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [record["epoch"] for record in whole[1]]


@pytest.mark.parametrize("learned", ["learn_curvature", "learn_prior_scale"])
def test_learned_numbers_are_resumed(tmp_path, learned):
    config = replace(CONFIG, epochs=3, **{learned: True})
    assert killed_at_write(4, True, lambda: fit(config, X, folder=tmp_path))
    assert_same(state(fit(config, X, folder=tmp_path, resume=True)), state(fit(config, X)))


def test_checkpoints_do_not_change_a_training(tmp_path, whole):
    assert_same(state(fit(CONFIG, X, folder=tmp_path)), whole)


def test_resume_does_go_on_and_not_start_again(tmp_path):
    fit(replace(CONFIG, epochs=5), X, folder=tmp_path)
    seen = []
    fit(replace(CONFIG, epochs=8), X, folder=tmp_path, resume=True, progress=lambda r, _: seen.append(r["epoch"]))
    assert seen == [6, 7, 8]


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


def test_left_over_parts_are_harmless(tmp_path, whole):
    fit(replace(CONFIG, epochs=3), X, folder=tmp_path)
    for name in ("metrics.jsonl.part", "checkpoint/state.safetensors.part"):
        (tmp_path / name).write_bytes(b"torn")
    assert_same(state(fit(CONFIG, X, folder=tmp_path, resume=True)), whole)
    assert not list(tmp_path.rglob("*.part"))


# --- full disks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 4, 5])
def test_a_full_disk_leaves_the_checkpoint_before(tmp_path, whole, n):
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
    assert_same(state(fit(CONFIG, X, folder=tmp_path, resume=True)), whole)


STATE = "checkpoint/state.safetensors"


# --- damaged checkpoints --------------------------------------------------------------------------------------------


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
    *SMALL,
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
def test_a_killed_run_is_resumed(table, finished, n):
    """The n-th write is of a checkpoint, of the embedding, a picture, the report, the model or its description."""
    assert killed_at_write(n, False, lambda: curvae(*fit_command("-q", *OPTIONS)))
    if "model_sha256" not in json.loads(Path("run/config.json").read_text()):
        typed = shlex.join(["curvae", *fit_command("-q", *OPTIONS), "--resume"])
        refused("embed", "run", "t.csv", says=[f"run is not finished; finish it with: {typed}\n"])
    if not Path("run/report.html").exists():
        again = shlex.join(["curvae", *fit_command(), "--resume"])
        refused(*fit_command(), says=[f"run holds an unfinished run; run this, or with --force:\n{again}\n"])
    for _ in range(2):  # the second time it is finished already
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


@pytest.fixture
def begun(table):
    """A run that was killed after its second epoch."""
    assert killed_at_write(6, False, lambda: curvae(*fit_command("-q", *OPTIONS)))


def test_resume_after_the_data_changed_is_refused(begun):
    table = pd.read_csv("t.csv")
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


def test_resume_with_other_settings_is_refused(begun):
    words = fit_command("--resume")
    untouched(*words, "--curvature", "2", "--hidden", "9", says=["--curvature 1.0, not 2.0", "--hidden 8, not 9"])
    untouched(*words, "--epochs", "7", says=["epochs 6, not 7"])
    untouched(*words, "--seed", "0", says=["seed 4, not 0"])
    untouched("fit", "t.csv", "-o", "run", "--resume", "--id", "kind", says=["no --id, not kind"])
    untouched("fit", "t.csv", "-o", "run", "--resume", "--label", "a", says=["label kind, not a"])
    untouched(*words, "--missing", "mean", says=["missing error, not mean"])
    # The same settings may be said again.
    assert curvae(*words, "-q", *OPTIONS, "--likelihood", "auto").code == 0


def test_a_description_of_fewer_epochs_than_were_trained_is_refused(finished, table):
    shutil.copytree(finished, "run")
    description = json.loads(Path("run/config.json").read_text())
    description["config"]["training"]["epochs"] = 3
    Path("run/config.json").write_text(json.dumps(description))
    untouched(*fit_command("--resume", "-q"), says=["trained for 6 epochs and 3 are asked for", "at least 6 epochs"])


def test_resume_of_what_cannot_be_resumed(table):
    model = PoincareVAE(epochs=1, hidden=(4,), random_state=0).fit(pd.read_csv("t.csv")[["a", "b", "c"]])
    model.save("saved")
    untouched("fit", "t.csv", "-o", "saved", "--resume", says=["saved cannot be resumed", "'source'"])
    description = json.loads(Path("saved/config.json").read_text())
    for source, data in ((5, {"fingerprint": "x"}), ({"label": 5}, {}), ("abc", 7)):
        Path("saved/config.json").write_text(json.dumps({**description, "source": source, "data": data}))
        untouched("fit", "t.csv", "-o", "saved", "--resume", says=["saved cannot be resumed"])


def test_the_command_is_that_of_the_start(begun):
    assert curvae(*fit_command("--resume", "-q")).code == 0
    command = json.loads(Path("run/config.json").read_text())["command"]
    assert command == "curvae " + " ".join(fit_command("-q", *OPTIONS))
    assert "--set posterior=wrapped" in Path("run/report.html").read_text(encoding="utf-8")
