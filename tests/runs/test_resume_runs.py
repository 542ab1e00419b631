"""`--resume` of comparisons and of several trainings: they end as if nothing had happened, or say why they cannot."""

from __future__ import annotations

import json
import math
import shlex
import shutil
from itertools import pairwise
from pathlib import Path
from unittest import mock

import pandas as pd
import pytest

from curvae.errors import CurvaeError
from curvae.training import Config, stacks
from curvae.training.comparison import compare
from curvae.training.engine import BatchEngine
from running import curvae, snapshot, untouched, write_table
from trainings import killed_at_write, rows

SETTINGS = (
    "--hidden",
    "6",
    "--batch-size",
    "16",
    "--set",
    "posterior=wrapped",
    "--set",
    "learning_rate=0.02",
    "--seed",
    "3",
)
WORDS = ("--label", "kind", "--jobs", "1", "--repeats", "4", "--curvatures", "0.5", *SETTINGS, "--epochs", "3")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch, often):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The comparison that nothing interrupted."""
    home = tmp_path_factory.mktemp("finished")
    table = write_table(home / "t.csv", kind=list("xy") * 20)
    assert curvae("compare", table, "-o", home / "run", "-q", *WORDS).code == 0
    return home / "run"


def comparison(*more):
    return ("compare", "t.csv", "-o", "run", *more)


def epochs_trained():
    """Counts the epochs of stacks."""
    return mock.patch.object(BatchEngine, "epoch", autospec=True, side_effect=BatchEngine.epoch)


def same(run, other):
    """The same figures, description and kinds of files."""
    names = ("comparison.json", "config.json")
    return all((run / name).read_bytes() == (other / name).read_bytes() for name in names) and (
        set(snapshot(run)) == set(snapshot(other))
    )


# Each stack writes a checkpoint an epoch and one at its end; the one of the first model its records before each.
@pytest.mark.parametrize("n", [2, 8, 14])
def test_a_killed_comparison_is_resumed(table, finished, n):
    assert killed_at_write(n, True, lambda: curvae(*comparison("-q", *WORDS)))
    with epochs_trained() as trained:
        found = curvae(*comparison("--resume", "--jobs", "1"))
    assert found.code == 0, found.err
    assert trained.call_count == {2: 6, 8: 3, 14: 0}[n]  # of two stacks of three epochs
    assert same(Path("run"), finished)
    # The next command and the report are those of the start.
    (line,) = [line for line in found.out.splitlines() if line.startswith("next: ")]
    words = shlex.split(line)[1:]
    assert words[:5] == ["curvae", "fit", "t.csv", "--label", "kind"]
    for name, value in zip(SETTINGS[::2], SETTINGS[1::2], strict=True):
        assert (name, value) in pairwise(words)
    assert "--repeats 4" in Path("run/report.html").read_text(encoding="utf-8")


def test_what_is_finished_is_not_trained_again(table, finished):
    shutil.copytree(finished, "run")
    with epochs_trained() as trained:
        found = curvae(*comparison("--resume", "--json"))
    assert found.code == 0 and not trained.called
    assert found.json == {"folder": "run", **json.loads((finished / "comparison.json").read_text())}


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A comparison that was killed before its sixth write."""
    home = tmp_path_factory.mktemp("killed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.setattr(stacks, "_CHECKPOINT_EVERY", -1.0)
        patch.setattr(stacks, "_CHECKPOINT_SHARE", math.inf)
        write_table(Path("t.csv"), kind=list("xy") * 20)
        assert killed_at_write(6, False, lambda: curvae(*comparison("-q", *WORDS)))
    return home / "run"


@pytest.fixture
def begun(table, killed):
    shutil.copytree(killed, "run")


def test_a_comparison_on_other_data_is_refused(begun):
    table = pd.read_csv("t.csv")
    for changed in (table.assign(a=table["a"] + (table.index == 7) * 1e-9), table[::-1], table.assign(kind="x")):
        changed.to_csv("t.csv", index=False)
        untouched(*comparison("--resume"), says=["not the data that run was started with", "without --resume"])


def test_a_comparison_with_other_settings_is_refused(begun):
    words = comparison("--resume")
    untouched(
        *words, "--prior-scale", "2", "--hidden", "9", says=["--prior-scale auto, not 2.0 and --hidden 6, not 9;"]
    )
    untouched(*words, "--epochs", "7", says=["epochs 3, not 7"])
    untouched(*words, "--repeats", "5", says=["repeats 4, not 5"])
    untouched(*words, "--curvatures", "0.5,1", says=["--curvatures 0.5, not 0.5, 1.0;"])
    untouched(*words, "--label", "a", says=["label kind, not a"])
    # The same may be said again.
    assert curvae(*words, "-q", *WORDS).code == 0


def test_comparisons_that_cannot_be_resumed(begun):
    untouched("compare", "t.csv", "--resume", says=["--resume needs the run folder; give it with -o"])
    untouched("compare", "t.csv", "-o", "nowhere", "--resume", says=["not a folder", "curvae compare wrote"])
    untouched("fit", "t.csv", "-o", "run", "--resume", says=["run holds a comparison, not a model"])
    Path("empty").mkdir()
    untouched("compare", "t.csv", "-o", "empty", "--resume", says=["no config.json", "curvae compare wrote"])
    description = json.loads(Path("run/config.json").read_text())
    for name, value in (("curvatures", "x"), ("curvatures", 5), ("repeats", "x"), ("repeats", None), ("source", 3)):
        Path("run/config.json").write_text(json.dumps({**description, name: value}))
        untouched(*comparison("--resume"), says=["run cannot be resumed", "start a new run"])
    Path("run/config.json").write_text(json.dumps({**description, "kind": "vae"}))
    untouched(*comparison("--resume"), says=["run holds a model of a table, not a comparison"])


def test_an_unfinished_comparison_is_overwritten_with_force(begun, finished):
    untouched(*comparison(*WORDS), says=["run holds an unfinished run; run this, or with --force:", " --resume\n"])
    assert curvae(*comparison("-q", "--force", *WORDS)).code == 0
    assert Path("run/comparison.json").read_bytes() == (finished / "comparison.json").read_bytes()


def test_a_comparison_from_python_is_resumed(tmp_path):
    config, x = Config(hidden=(6,), posterior="wrapped", epochs=2, batch_size=20), rows(60)
    how = {"samples": 10, "jobs": 1}
    expected = compare(config, x, (0.5,), 3, **how)

    def stop(done, total):
        if done == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(config, x, (0.5,), 3, **how, folder=tmp_path / "run", progress=stop)
    told = []
    found = compare(
        config, x, (0.5,), 3, **how, folder=tmp_path / "run", resume=True, progress=lambda *t: told.append(t)
    )
    assert found.to_json() == expected.to_json() and len(told) < 13
    moved = x.copy()
    moved[0] += 1
    with pytest.raises(CurvaeError, match="other data: not the rows that model 1 of 6"):
        compare(config, moved, (0.5,), 3, **how, folder=tmp_path / "run", resume=True)
    assert not list(tmp_path.glob("checkpoint"))


# --- several trainings of one run -----------------------------------------------------------------------------------


def test_the_number_of_trainings_is_remembered(table):
    words = ("fit", "t.csv", "--label", "kind", "-q", "--repeats", "3", *SETTINGS, "--epochs", "3")
    assert curvae(*words, "-o", "whole").code == 0
    assert killed_at_write(4, True, lambda: curvae(*words, "-o", "run"))
    untouched("fit", "t.csv", "-o", "run", "--resume", "--repeats", "2", says=["repeats 3, not 2"])
    assert curvae("fit", "t.csv", "-o", "run", "--resume", "-q").code == 0
    whole, run = (json.loads(Path(name, "config.json").read_text()) for name in ("whole", "run"))
    assert run["summary"]["stability"] == whole["summary"]["stability"] is not None
    assert run["repeats"] == whole["repeats"] == 3
    assert Path("run/embedding.csv").read_bytes() == Path("whole/embedding.csv").read_bytes()


def test_the_next_command_of_a_resumed_run_has_its_settings(table):
    words = ("fit", "t.csv", "--label", "kind", "-o", "run")
    assert killed_at_write(4, True, lambda: curvae(*words, "-q", *SETTINGS, "--epochs", "3", "--curvature", "0.5"))
    found = curvae("fit", "t.csv", "-o", "run", "--resume")
    (line,) = [line for line in found.out.splitlines() if line.startswith("next: curvae ")]
    following = shlex.split(line, comments=True)[2:]
    # It was a short training: the same for longer, with what was typed and nothing else.
    assert following[:4] == ["fit", "t.csv", "--label", "kind"] and "--epochs" not in following
    assert sorted(following[4:]) == sorted((*SETTINGS, "--curvature", "0.5"))
    assert curvae(*following, "--epochs", "1", "-o", "again").code == 0
