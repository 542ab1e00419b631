"""Commands that train: `--resume`, one writer at a time, and rows and graphs behind one protocol."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
from itertools import pairwise
from pathlib import Path
from unittest import mock

import pandas as pd
import pytest

import curvae as package_of_curvae
from curvae.cli.options import shell_command
from curvae.data import Graph, Schema
from curvae.errors import CurvaeError
from curvae.runs import GraphSource, Source
from curvae.training import Config, Fitted, FittedGraph, GraphConfig, stacks
from curvae.training.comparison import compare
from curvae.training.engine import BatchEngine
from curvae.training.fitted import FittedModel
from curvae.training.storage import load_fitted
from paths import DATA
from processes import writer
from running import SMALL, curvae, refused, snapshot, untouched, write_table
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


# --- one writer at a time --------------------------------------------------------------------------------------------


@pytest.fixture
def _files(tmp_path, monkeypatch):
    pytest.importorskip("fcntl")
    monkeypatch.chdir(tmp_path)
    write_table(Path("t.csv"))
    Path("edges.csv").write_text("a,b\nb,c\nc,d\nd,a\na,c\nd,e\ne,f\nf,a\n")


FIT = ("fit", "t.csv", "-o", "run", "-q", *SMALL, "--neighbours", "off")


GRAPH = ("graph", "edges.csv", "-o", "run", "-q", "--set", "hidden=8", "--epochs", "2", "--splits", "0")


COMPARE = (
    "compare",
    "t.csv",
    "-o",
    "run",
    "-q",
    "--repeats",
    "3",
    "--curvatures",
    "1",
    "--jobs",
    "1",
    *SMALL[:2],
    "--epochs",
    "1",
)


@pytest.mark.parametrize("words", [FIT, GRAPH, COMPARE], ids=lambda words: words[0])
@pytest.mark.usefixtures("_files")
def test_a_folder_that_is_being_written_is_refused(words):
    Path("run").mkdir()
    busy = ["run is being written by another process", "wait"]
    with writer("run"):
        refused(*words, says=busy)
        refused(*words, "--force", says=busy)
    assert snapshot(Path("run")) == {}
    # The other process was killed: its lock file is still there, and in nobody's way.
    assert Path("run/.lock").exists()
    assert curvae(*words).code == 0
    assert not Path("run/.lock").exists()
    before = snapshot(Path("run"))
    with writer("run"):
        for more in ((), ("--force",), ("--resume",)):
            refused(*words, *more, says=busy)
    assert snapshot(Path("run")) == before
    assert curvae(*words, "--resume").code == 0
    assert curvae(*words, "--force").code == 0


@pytest.mark.usefixtures("_files")
def test_readers_are_not_refused():
    assert curvae(*FIT).code == 0
    with writer("run"):
        for words in (
            ("embed", "run", "t.csv"),
            ("view", "run"),
            ("sample", "run"),
            ("evaluate", "run", "t.csv", "--samples", "5"),
        ):
            assert curvae(*words).code == 0, words


@pytest.mark.usefixtures("_files")
def test_the_folder_is_locked_to_the_end_of_a_run(monkeypatch):
    held = []

    fcntl = pytest.importorskip("fcntl")

    def look(name):
        with Path("run/.lock").open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held.append(name)

    from curvae.runs import training

    for module, name in ((training, "train_one"), (training, "write_report"), (training, "save_fitted")):
        plain = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *args, plain=plain, name=name, **more: (look(name), plain(*args, **more))[1]
        )
    for more in ((), ("--force",), ("--resume",)):
        assert curvae(*FIT, *more).code == 0
    assert held == ["train_one", "write_report", "save_fitted"] * 3


@pytest.mark.usefixtures("_files")
def test_a_demonstration_and_a_report_have_one_writer():
    with writer("page.html"):
        refused("diagnose", "t.csv", "-o", "page.html", says=["page.html is being written by another process"])
        assert curvae("diagnose", "t.csv", "-o", "other.html", "-q").code == 0
    assert curvae("diagnose", "t.csv", "-o", "page.html", "-q").code == 0
    Path("demo").mkdir()
    with writer("demo"):
        refused("demo", "--quick", says=["demo is being written by another process"])


@pytest.mark.usefixtures("_files")
def test_a_shard_has_one_writer():
    words = ("paper", "figures", "--quick", "--out", "out")
    shards = curvae(*words, "--shards", "--json").json["figures"]
    with writer(f"out/figures/{next(iter(shards))}.json"):
        refused(*words, "-q", says=["is being written by another process"])


@pytest.mark.usefixtures("_files")
def test_the_next_free_number_is_no_one_elses(monkeypatch):
    """Two processes that look at the same time find the same number free; one of them makes the folder."""
    plain = Path.mkdir

    def mkdir(self, *args, **more):
        if self == Path("runs/t-1"):
            monkeypatch.setattr(Path, "mkdir", plain)
            plain(self)
        plain(self, *args, **more)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    found = curvae("fit", "t.csv", *SMALL, "--json")
    assert found.code == 0 and found.json["run"] == "runs/t-2"
    assert list(Path("runs/t-1").iterdir()) == []


@pytest.mark.usefixtures("_files")
def test_a_folder_without_a_lock_can_still_be_refused(tmp_path):
    Path("run").mkdir()
    Path("run/.lock").mkdir()
    refused(*FIT, says=["cannot write run", "Is a directory"])


# --- rows and graphs behind one protocol -----------------------------------------------------------------------------


def test_a_run_folder_opens_as_what_it_holds():
    rows, graph = load_fitted(DATA / "run-format-3-categorical"), load_fitted(DATA / "run-format-3-graph")
    assert isinstance(rows.fitted.config, Config) and isinstance(rows.data, Schema)
    assert isinstance(graph.fitted, FittedGraph) and isinstance(graph.data, Graph)
    assert type(rows.fitted) is Fitted
    with pytest.raises(CurvaeError, match="holds a comparison, not a model"):
        load_fitted(DATA / "run-format-3-comparison")


def test_sources_name_the_kind_of_their_runs():
    for source, config in ((Source("t.csv"), Config), (GraphSource("e.csv"), GraphConfig)):
        kind = FittedModel.kinds[source.kind]
        assert kind.settings is config and kind.kind == source.kind
    assert shell_command(Source("t.csv").step("fit", curvature=0.0)) == "curvae fit t.csv --curvature 0"
    assert shell_command(GraphSource("e.csv").step("graph")) == "curvae graph e.csv"
    compared = shell_command(GraphSource("e.csv", label="team").step("compare"))
    assert compared.split("--")[0] == "curvae compare e.csv " and {"--graph", "--label"} < set(compared.split())


def test_nothing_else_asks_for_the_kind():
    """Commands, reports and storage are written once: what depends on the kind is in its own modules."""
    asks = re.compile(r"isinstance\([^)]*(GraphSource|FittedGraph)|type\(source\)|kind_of\(|[!=]= \"graph\"")
    package = Path(package_of_curvae.__file__).parent
    known = {"runs/training.py", "training/storage.py", "runs/pages.py"}  # pages: of a diagnosis
    paths = [path for room in ("runs", "training", "estimators") for path in (package / room).rglob("*.py")]
    found = {str(path.relative_to(package)) for path in paths if asks.search(path.read_text())}
    assert found <= known
