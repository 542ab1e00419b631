"""One writer at a time: what another process is writing is refused, and a process that died does not count."""

from __future__ import annotations

from pathlib import Path

import pytest

from processes import writer
from running import SMALL, curvae, refused, snapshot, write_table

fcntl = pytest.importorskip("fcntl")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_table(Path("t.csv"))
    Path("edges.csv").write_text("a,b\nb,c\nc,d\nd,a\na,c\nd,e\ne,f\nf,a\n")


FIT = ("fit", "t.csv", "-o", "run", "-q", *SMALL)
GRAPH = ("graph", "edges.csv", "-o", "run", "-q", "--set", "hidden=8", "--epochs", "2", "--splits", "0")
COMPARE = ("compare", "t.csv", "-o", "run", "-q", "--repeats", "3", "--curvatures", "1", "--jobs", "1", *SMALL)


@pytest.mark.parametrize("words", [FIT, GRAPH, COMPARE], ids=lambda words: words[0])
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


def test_the_folder_is_locked_to_the_end_of_a_run(monkeypatch):
    held = []

    def look(name):
        with Path("run/.lock").open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held.append(name)

    from curvae.runs import rows_run, training

    for module, name in ((rows_run, "train_one"), (training, "write_report"), (training, "save_fitted")):
        plain = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *args, plain=plain, name=name, **more: (look(name), plain(*args, **more))[1]
        )
    for more in ((), ("--force",), ("--resume",)):
        assert curvae(*FIT, *more).code == 0
    assert held == ["train_one", "write_report", "save_fitted"] * 3


def test_a_demonstration_and_a_report_have_one_writer():
    with writer("page.html"):
        refused("diagnose", "t.csv", "-o", "page.html", says=["page.html is being written by another process"])
        assert curvae("diagnose", "t.csv", "-o", "other.html", "-q").code == 0
    assert curvae("diagnose", "t.csv", "-o", "page.html", "-q").code == 0
    Path("demo").mkdir()
    with writer("demo"):
        refused("demo", "--quick", says=["demo is being written by another process"])


def test_a_shard_has_one_writer():
    words = ("paper", "figures", "--quick", "--out", "out")
    shards = curvae(*words, "--shards", "--json").json["figures"]
    with writer(f"out/figures/{next(iter(shards))}.json"):
        refused(*words, "-q", says=["is being written by another process"])


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


def test_a_folder_without_a_lock_can_still_be_refused(tmp_path):
    Path("run").mkdir()
    Path("run/.lock").mkdir()
    refused(*FIT, says=["cannot write run", "Is a directory"])
