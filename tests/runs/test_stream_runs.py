"""Runs on data that are read in pieces: `curvae fit`, `embed` and `evaluate` within a bound of memory."""

from __future__ import annotations

import json
import math
import shlex
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array, save_npz

from curvae.data import memory
from curvae.runs import Reporter, Source, folders
from curvae.runs import rows_run as pieces
from curvae.runs import training as kinds
from curvae.runs.rows_run import RowsRun
from curvae.training import Config, embed, random_split, stacks
from curvae.training import streamed as stream_problem
from curvae.training.storage import load_fitted
from running import SMALL, config, curvae, refused, untouched
from streaming import COLUMNS, MEMORY, numbered, write_parquet

ROWS = 1200
X = numbered(ROWS)
STREAMED = (*SMALL, "--batch-size", "64", "--memory", MEMORY)
ROLES = ("--label", "kind", "--id", "cell")


def settle(monkeypatch, folder):
    """Go to a folder with an array, and hold few rows out."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    (folder / "here").mkdir()
    monkeypatch.chdir(folder / "here")
    monkeypatch.setattr(stream_problem, "HELD_OUT", 30)
    np.save("x.npy", X)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Runs on the array and on a folder of Parquet files: where they are, and what was said."""
    with pytest.MonkeyPatch.context() as patch:
        settle(patch, tmp_path_factory.mktemp("trained"))
        Path("parts").mkdir()
        for i in range(2):
            write_parquet(Path("parts", f"{i}.parquet"), X[600 * i : 600 * (i + 1)], group=250, start=600 * i)
        said = {
            "x.npy": curvae("fit", "x.npy", *STREAMED, "-o", "of_x.npy"),
            "parts": curvae("fit", "parts", *ROLES, *STREAMED, "-o", "of_parts"),
        }
        return Path.cwd(), said


@pytest.fixture(autouse=True)
def _place(monkeypatch, tmp_path):
    settle(monkeypatch, tmp_path)


@pytest.fixture
def array_run(trained):
    """A copy of the run on the array in `run`, and what was said when it was trained."""
    folder, said = trained
    shutil.copytree(folder / "of_x.npy", "run")
    return said["x.npy"]


@pytest.fixture
def parquet_run(trained):
    """A copy of the run on Parquet files in `run`, with the files, and what was said when it was trained."""
    folder, said = trained
    shutil.copytree(folder / "of_parts", "run")
    shutil.copytree(folder / "parts", "parts")
    return said["parts"]


def table(path):
    return folders.read_embedding(Path(path))


def test_an_array_that_is_larger_than_the_memory_it_may_take(array_run):
    assert array_run.code == 0, array_run.err
    assert "1,200 rows are read in pieces, in 1MB of memory." in array_run.err
    assert "next: curvae evaluate of_x.npy x.npy" in array_run.out
    written, found = table("run/embedding.csv"), load_fitted(Path("run"))
    assert written["id"].tolist() == list(map(str, range(ROWS)))
    assert (written["split"] == "validation").sum() == (written["split"] == "test").sum() == 15
    assert "neighbours off: the rows are read in pieces, and it needs all of them" in array_run.err
    expected = embed(found.fitted, X)
    np.testing.assert_allclose(written[["tangent_1", "tangent_2"]], expected.tangent, rtol=1e-9)
    # Figures and pictures are of a sample, and say so: the 30 rows held out, and 30 others less those among them.
    data = config()["data"]
    assert data["rows"] == ROWS and config()["source"]["memory"] == MEMORY
    count = len(found.embedding)
    assert 31 <= count <= 60 and f"of a sample: {count} of 1,200 rows" in " ".join(data["notes"])
    assert f"of a sample: {count} of 1,200 rows" in Path("run/report.html").read_text()
    assert found.fitted.split.counts == (count - 30, 15) and len(found.fitted.split.test) == 15


def test_data_that_fit_are_held_in_memory_as_ever():
    np.save("few.npy", X[:100])
    for bound in ((), ("--memory", "1GB")):
        curvae("fit", "few.npy", *SMALL, *bound, "-o", f"run{len(bound)}")
    plain, asked = (table(f"run{n}/embedding.csv") for n in (0, 2))
    pd.testing.assert_frame_equal(plain, asked)
    assert (plain["split"] == "validation").sum() == len(random_split(100, 0.1).validation)
    assert not any("in pieces" in note for note in config("run2")["data"]["notes"])


def test_a_folder_of_parquet_files(parquet_run):
    assert parquet_run.code == 0, parquet_run.err
    written = table("run/embedding.csv")
    assert written["id"].tolist() == [f"c{i}" for i in range(ROWS)]
    assert written["label"].tolist() == ["a" if i % 3 else "b" for i in range(ROWS)]


def test_changes_between_rows_are_not_known_of_all(array_run):
    refused(
        "view", "run", "--explain", "-o", "map.html", says=["keeps a sample of 60 of 1,200 rows", "leave out --explain"]
    )


def test_a_map_is_judged_on_a_sample(parquet_run):
    whole = pd.concat([pd.read_parquet(f"parts/{i}.parquet") for i in range(2)])
    whole.to_parquet("whole.parquet", index=False)
    told = [curvae("judge", data, "run", *ROLES, "--json") for data in ("whole.parquet", "parts")]
    expected, found = (json.loads(answer.out) for answer in told)
    assert found == expected, told
    table("run/embedding.csv")[["ball_1", "ball_2"]].to_csv("plain.csv", index=False)  # rows in their order
    for place in ("run", "plain.csv"):
        answer = curvae("judge", "parts", place, *ROLES, "--memory", MEMORY)
        assert answer.code == 0 and "a sample is looked at: 1,000 of 1,200 rows" in answer.err, answer
    assert "matched in their order" in answer.err
    answer = curvae("judge", "x.npy", "run", "--memory", MEMORY)
    assert answer.code == 0 and "matched in their order" in answer.err, answer
    write_parquet(Path("far.parquet"), X, start=5000)
    refused(
        "judge", "far.parquet", "run", *ROLES, "--memory", MEMORY, "-q", says=["no row of the data is in run: rows"]
    )
    np.save("other.npy", X[:1100])
    refused("judge", "parts", "other.npy", *ROLES, "-q", says=["the data have 1,200 rows and other.npy has 1,100"])


def test_a_text_table_is_converted():
    write_parquet(Path("x.parquet"), X[:500], group=64).to_csv("x.csv", index=False)
    answer = curvae("fit", "x.csv", *ROLES, *STREAMED, "-o", "run")
    assert answer.code == 0 and "500 rows are read in pieces" in answer.err, answer.err
    found = table("run/embedding.csv")
    assert found["id"].tolist() == [f"c{i}" for i in range(500)]
    assert curvae("embed", "run", "x.csv", "--memory", MEMORY, "-o", "again.csv").code == 0
    np.testing.assert_allclose(table("again.csv")["radius"], found["radius"], rtol=1e-9)
    assert type(kinds.training_run(Source("x.csv", label="kind", id="cell"), Config(), 1, Reporter(), {})) is RowsRun


def test_a_compressed_matrix_is_read_as_a_whole_unless_a_bound_is_asked_for():
    save_npz("x.npz", csr_array(X))
    says = ["x.npz is compressed; write it with scipy.sparse.save_npz(…, compressed=False), or raise --memory"]
    untouched("fit", "x.npz", *STREAMED, says=says)
    save_npz("x.npz", csr_array(X), compressed=False)
    assert curvae("fit", "x.npz", *STREAMED, "-o", "run").code == 0
    assert len(table("run/embedding.csv")) == ROWS


@pytest.mark.usefixtures("parquet_run")
def test_new_rows_are_embedded_in_pieces(monkeypatch):
    write_parquet(Path("new.parquet"), numbered(700, seed=1), group=64, start=900)
    assert curvae("embed", "run", "new.parquet", "-o", "plain.csv").code == 0
    assert curvae("embed", "run", "new.parquet", "--memory", MEMORY, "-o", "pieces.csv").code == 0
    pd.testing.assert_frame_equal(table("pieces.csv"), table("plain.csv"), rtol=1e-12)
    assert table("pieces.csv")["split"].unique().tolist() == ["new"]
    write_parquet(Path("bare.parquet"), numbered(700, seed=1), group=64, drop=["cell", "kind"])
    assert curvae("embed", "run", "bare.parquet", "--memory", MEMORY, "-o", "bare.csv").code == 0
    assert table("bare.csv")["id"].tolist() == list(map(str, range(700)))
    np.testing.assert_array_equal(table("bare.csv")["radius"], table("pieces.csv")["radius"])
    monkeypatch.setattr(folders, "PARQUET_ROWS", 700)
    monkeypatch.setattr("curvae.runs.rows_run.NEW_ROWS", 10)
    embedded = curvae("embed", "run", "new.parquet", "--memory", MEMORY).out
    assert "new-embedding.parquet" in embedded and "next: curvae evaluate run new.parquet" in embedded
    monkeypatch.setattr("curvae.runs.trained.NEW_ROWS", 10)
    refused("view", "run", "--rows", "new.parquet", says=["a map marks at most 10; give fewer"])
    pd.testing.assert_frame_equal(table("new-embedding.parquet"), table("plain.csv"), rtol=1e-12)


@pytest.mark.usefixtures("parquet_run")
def test_a_table_without_the_columns_of_the_model():
    write_parquet(Path("new.parquet"), numbered(700), drop=["g7"])
    untouched(
        "embed", "run", "new.parquet", "--memory", MEMORY, says=["no columns 'g7', which the model was trained on"]
    )


@pytest.mark.usefixtures("array_run")
def test_own_rows_are_evaluated_by_part():
    found = curvae("evaluate", "run", "x.npy", "--samples", "5", "--json").json["parts"]
    assert found["validation"]["rows"] == found["test"]["rows"] == 15
    np.save("y.npy", numbered(ROWS, seed=1))
    says = ["x.npy is read in pieces", "leave out -o"]
    refused("evaluate", "run", "x.npy", "--samples", "5", "--quiet", "-o", "scores.csv", says=says)
    found = curvae("evaluate", "run", "y.npy", "--samples", "5", "--json").json["parts"]
    assert {name: part["rows"] for name, part in found.items()} == {"new": 30}


def test_gaps_are_filled_in_pieces(trained):
    x = numbered(ROWS)
    x[np.random.default_rng(5).random(x.shape) < 0.01] = np.nan
    x[:, 0] = np.arange(ROWS)
    write_parquet(Path("x.parquet"), x, group=200)
    curvae("fit", "x.parquet", *ROLES, "--missing", "model", *STREAMED, "-o", "run")
    few = ("--samples", "20")
    plain = curvae("impute", "run", "x.parquet", *few, "-o", "plain.csv")
    found = curvae("impute", "run", "x.parquet", *few, "--memory", MEMORY, "-o", "pieces.csv")
    assert found.code == plain.code == 0, (found.err, plain.err)
    figures = f"{np.isnan(x).sum():,} values in {np.isnan(x).any(1).sum():,} rows"
    assert figures in found.out and figures in plain.out
    written = pd.read_csv("pieces.csv")
    assert not written.isna().any().any() and written["cell"].tolist() == [f"c{i}" for i in range(ROWS)]
    pd.testing.assert_frame_equal(written, pd.read_csv("plain.csv"), rtol=1e-10)
    shutil.copytree(trained[0] / "of_x.npy", "other")
    untouched("impute", "other", "x.npy", "--memory", MEMORY, says=["was not trained with --missing model"])


SAMPLE = "a sample is looked at: 735 of 1,200 rows, chosen at random with seed 0."


def test_a_sample_is_diagnosed(monkeypatch):
    monkeypatch.setattr(pieces, "_LEAST", 10)
    write_parquet(Path("x.parquet"), X)
    answer = curvae("diagnose", "x.npy", "--memory", MEMORY, "-o", "sample.html")
    assert answer.code == 0 and SAMPLE in answer.err, answer.err
    assert SAMPLE in Path("sample.html").read_text()
    assert f"--memory {MEMORY}" in answer.out  # what is done next takes the same sample
    # As if the sample were all there is.
    rows, _, bound, *_ = pieces.loaded(Source("x.npy", memory=MEMORY), 0, Reporter())
    assert bound == MEMORY and len(rows) == 735
    np.testing.assert_array_equal(rows.x, X[rows.ids.astype(int)])
    np.save("sample.npy", rows.x)
    lines = [line for line in answer.out.splitlines() if line.startswith("  ")]
    whole = curvae("diagnose", "sample.npy").out
    assert lines and all(line in whole for line in lines)
    assert len(pieces.loaded(Source("x.npy", memory="1GB"), 0, Reporter())[0]) == ROWS
    refused("diagnose", "x.npy", "--distances", "--memory", MEMORY, says=["--memory has no meaning with --distances"])


def test_every_row_is_as_likely_in_a_sample(monkeypatch):
    monkeypatch.setattr(pieces, "_LEAST", 10)
    source = Source("x.npy", memory=MEMORY)
    samples = [pieces.loaded(source, seed, Reporter())[0].ids.astype(int) for seed in range(40)]
    times = np.bincount(np.concatenate(samples), minlength=ROWS)
    assert times.sum() == 40 * 735 and times.max() <= 40
    expected = 40 * 735 / 1200 * (1 - 735 / 1200)  # the variance of a binomial number
    assert times.var() == pytest.approx(expected, rel=0.2)


def test_a_sample_is_compared(monkeypatch):
    monkeypatch.setattr(pieces, "_LEAST", 10)
    few = ["--epochs=1", "--hidden=4", "--set=posterior=wrapped", "--repeats=3", "--curvatures=1", "--jobs=1"]
    answer = curvae("compare", "x.npy", "--memory", MEMORY, *few, "-o", "run")
    assert answer.code == 0 and SAMPLE in answer.err, answer.err
    assert config()["data"]["rows"] == 735 and config()["source"]["memory"] == MEMORY
    assert SAMPLE in Path("run/report.html").read_text()
    assert curvae("compare", "x.npy", "-o", "run", "--resume").code == 0


def test_a_run_that_was_interrupted_is_resumed(trained, monkeypatch):
    monkeypatch.setattr(stacks, "_CHECKPOINT_EVERY", -1.0)
    monkeypatch.setattr(stacks, "_CHECKPOINT_SHARE", math.inf)
    plain, epochs = stacks._Training.epoch, []

    def epoch(self):
        if epochs:
            raise KeyboardInterrupt
        epochs.append(1)
        plain(self)

    monkeypatch.setattr(stacks._Training, "epoch", epoch)
    assert curvae("fit", "x.npy", *STREAMED, "-o", "run").code
    monkeypatch.setattr(stacks._Training, "epoch", plain)
    refused("fit", "x.npy", "-o", "run", "--resume", "--memory", "2MB", says=["was started with"])
    assert curvae("fit", "x.npy", "-o", "run", "--resume").code == 0
    pd.testing.assert_frame_equal(
        table("run/embedding.csv"), table(trained[0] / "of_x.npy" / "embedding.csv"), check_exact=True
    )
    np.save("x.npy", X[::-1].copy())
    refused("fit", "x.npy", "-q", "-o", "run", "--resume", says=["is not the data that run was started with"])


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (("--repeats", "2"), "--repeats needs all rows in memory"),
        (("--neighbours", "both"), "--neighbours needs all rows in memory"),
        (("--missing", "drop", "--repeats", "2"), "--missing, --repeats needs all rows in memory"),
        (("--root", "9999"), "no row '9999'"),
        (("--memory", "lots"), "give a size of at least 1MB"),
    ],
)
def test_what_needs_all_rows_is_refused(asked, says):
    untouched("fit", "x.npy", "-q", *STREAMED, *asked, says=[says])


def test_gaps_are_dealt_with_as_streams_can():
    x = X.copy()
    x[5, 1] = np.nan
    np.save("gaps.npy", x)
    (command,) = refused("fit", "gaps.npy", "-q", *STREAMED, says=["or with --missing mean:"]).splitlines()[1:]
    assert "drop" not in command and curvae(*shlex.split(command)[1:]).code == 0


def test_what_needs_all_rows_is_held_in_memory_unless_a_bound_is_asked_for(monkeypatch):
    monkeypatch.setattr(memory, "_UNKNOWN", 4 * 10**6)
    monkeypatch.setattr(memory, "_installed", lambda: None)
    config = Config()
    assert kinds.training_run(Source("x.npy"), config, None, Reporter(), {}).source.memory == "1MB"
    assert kinds.training_run(Source("x.npy"), config, 2, Reporter(), {}).source.memory is None
    assert type(kinds.training_run(Source("x.npy"), Config(neighbours="near"), 1, Reporter(), {})) is RowsRun


def test_constant_data_are_refused():
    np.save("flat.npy", np.ones((ROWS, COLUMNS)))
    untouched("fit", "flat.npy", "-q", *STREAMED, says=["nothing varies"])


def test_a_graph_has_no_pieces():
    Path("g.edges").write_text("a b\nb c\nc d\nd a\na c\n")
    curvae("graph", "g.edges", "--splits", "0", "--epochs", "2", "--set", "hidden=4", "-o", "run")
    refused("embed", "run", "g.edges", "--memory", "1GB", says=["is read as a whole; leave out --memory"])
