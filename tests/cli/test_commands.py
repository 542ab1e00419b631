"""The command line under a user's mistakes: one line that says cause and mend, exit code 2, nothing touched."""

from __future__ import annotations

import errno
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest

from running import SMALL, curvae, refused, snapshot, write_table

COMMANDS = ("demo", "fit", "graph", "embed", "sample", "evaluate", "compare", "diagnose", "judge", "cite")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A trained run and its data, not to be written to."""
    home = tmp_path_factory.mktemp("kept")
    table = write_table(home / "cells.csv", kind=list("xy") * 20, name=[f"cell{i}" for i in range(40)])
    assert curvae("fit", table, "--label", "kind", "--id", "name", "-o", home / "run", "-q", *SMALL).code == 0
    return home


@pytest.fixture
def run(kept, tmp_path):
    """A copy of the run, beside a copy of its data."""
    shutil.copy(kept / "cells.csv", tmp_path)
    return shutil.copytree(kept / "run", tmp_path / "run").relative_to(tmp_path)


def untouched(*words, says=()):
    """A refusal that leaves the working folder as it was."""
    before = snapshot(Path())
    line = refused(*words, says=says)
    assert snapshot(Path()) == before
    return line


# --- data that cannot be used ---------------------------------------------------------------------------------------

NUMBERS = "a,b\n" + "".join(f"{i},{i * i % 7}.5\n" for i in range(9))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", ["empty", "give a table"]),
        ("a,b\n", ["no rows", "add rows"]),
        ("a,b\n1,2.5\n", ["1 row", "at least 2"]),
        (
            NUMBERS.replace("3,2.5", "3,red"),
            ["text in columns", "cells to correct: 'b' ('red' in row 4)"],
        ),
        (NUMBERS.replace("3,2.5", "3,").replace("5,4.5", "inf,nan"), ["'a' (1)", "'b' (2)", "--missing drop"]),
        (NUMBERS.replace("a,b", "a,a"), ["same name", "'a'", "rename"]),
        (NUMBERS.replace("3,2.5", "3,2.5,9"), ["line 5", "3 fields instead of 2"]),
        (b"\x00\x01\x02" * 30, ["not a text file", "save it as CSV"]),
    ],
    ids=["empty", "header", "one row", "text", "missing", "names twice", "ragged", "binary"],
)
def test_tables_that_cannot_be_read(content, says):
    Path("t.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    for command in ("fit", "compare"):
        untouched(command, "t.csv", *SMALL, says=["t.csv"] * ("'a' (1)" not in says) + says)


@pytest.mark.parametrize("command", ["fit", "diagnose"])
def test_the_command_that_is_printed_works(command):
    gaps = ["", *(f"{i % 7}.5" for i in range(39))]
    columns = {"cell name": [f"c{i}" for i in range(40)], 'it\'s a "type"': list("xyyz") * 10, "$flat": 7}
    columns |= {"batch": list("uv") * 20, "label": list("rs") * 20, "-gaps": gaps}
    write_table(Path("my cells.csv"), **columns)
    words = (command, "my cells.csv", *(SMALL if command == "fit" else ()))
    says = ["Left out: '$flat' (constant)", "Missing values: '-gaps' (1)", "an id: 'cell name' ('c0' in row 1"]
    line = refused(*words, says=says).splitlines()[1]
    assert shlex.split(line)[: len(words) + 3] == ["curvae", *words, "--id", "cell name"]
    assert curvae(*shlex.split(line)[1:]).code == 0


def test_values_that_are_too_large():
    Path("t.csv").write_text(NUMBERS.replace("3,2.5", "3,1e308").replace("4,2.5", "4,-1e308"))
    np.save("x.npy", pd.read_csv("t.csv").to_numpy())
    for name, column in (("t.csv", "b"), ("x.npy", "x2")):
        for command in ("fit", "compare", "diagnose"):
            untouched(command, name, says=[f"{name} has values that are too large: '{column}' (1e+308); divide"])


def test_columns_that_are_asked_for_but_wrong():
    write_table(Path("t.csv"), name=["twin"] * 2 + [f"n{i}" for i in range(38)])
    untouched("fit", "t.csv", "--id", "name", says=["column 'name'", "'twin'", "more than once", "make ids unique"])
    untouched("fit", "t.csv", "--id", "name", "--label", "knid", says=["no column 'knid' for --label", "'name'"])
    untouched("fit", "t.csv", "--label", "Name", says=["did you mean 'name'?"])
    untouched("fit", "t.csv", "--id", "name", "--group", "x", says=["no column 'x' for --group"])
    untouched("fit", "t.csv", "--categorical", "x", says=["no column 'x' for --categorical"])
    np.save("m.npy", np.zeros((9, 2)))
    said = "only a table or a cell file has columns such as 'kind'"
    untouched("fit", "m.npy", "--label", "kind", says=[said, "leave them out"])


def test_missing_values_are_mended_on_request():
    Path("t.csv").write_text(NUMBERS.replace("3,2.5", "3,").replace("5,4.5", "inf,4.5"))
    assert len(pd.read_csv(run_of("t.csv", "--missing", "drop") / "embedding.csv")) == 7
    folder = run_of("t.csv", "--missing", "mean")
    assert len(pd.read_csv(folder / "embedding.csv")) == 9
    (note,) = json.loads((folder / "config.json").read_text())["data"]["notes"]
    assert "mean" in note and "'a' (1), 'b' (1)" in note
    # New data are treated as those of the run were, unless they have a word of their own.
    untouched("embed", folder, "t.csv", "--missing", "error", says=["'a' (1)", "--missing drop"])
    for word, rows in ((), 9), (("--missing", "drop"), 7):
        assert curvae("embed", folder, "t.csv", *word, "-q", "-o", "new.csv", "--force").code == 0
        assert len(pd.read_csv("new.csv")) == rows


def run_of(*words):
    found = curvae("fit", *words, "--json", *SMALL)
    assert found.code == 0, found.err
    return Path(found.json["run"])


@pytest.mark.parametrize(
    "content",
    [
        NUMBERS.replace(",", ";").replace(".", ",").encode(),
        b"\xef\xbb\xbf" + NUMBERS.encode(),
        NUMBERS.replace("a,b", "é,b").encode("latin-1"),
        NUMBERS.replace(",", "\t").encode("utf-16"),
        NUMBERS.replace("\n", "\r\n").encode(),
    ],
    ids=["semicolons", "byte order mark", "latin-1", "utf-16", "crlf"],
)
def test_tables_of_every_dialect_are_the_same_numbers(content):
    Path("t.csv").write_bytes(content)
    Path("plain.csv").write_text(NUMBERS)
    columns = ["ball_1", "ball_2"]
    tables = [pd.read_csv(run_of(name) / "embedding.csv")[columns] for name in ("t.csv", "plain.csv")]
    pd.testing.assert_frame_equal(*tables)


def test_a_numeric_id_among_the_features_is_warned_of_once():
    write_table(Path("t.csv"), number=range(7, 47))
    found = curvae("fit", "t.csv", "-o", "run", *SMALL)
    assert found.code == 0
    (line,) = [line for line in found.err.splitlines() if line.startswith("warning: column")]
    assert "'number' looks like an identifier" in line and "--id number" in line
    assert curvae("fit", "t.csv", "--id", "number", "-o", "mended", *SMALL).err.count("identifier") == 0
    assert pd.read_csv("mended/embedding.csv")["id"].tolist() == list(range(7, 47))


def test_an_unnamed_index_is_used_as_id_and_said():
    write_table(Path("t.csv"))
    pd.read_csv("t.csv").set_index(pd.Index(range(7, 47))).to_csv("t.csv")
    assert curvae("fit", "t.csv", "-o", "run", *SMALL).code == 0
    assert pd.read_csv("run/embedding.csv")["id"].tolist() == list(range(7, 47))
    data = json.loads(Path("run/config.json").read_text())["data"]
    assert data["features"] == 3 and any("no name" in note for note in data["notes"])


def test_more_columns_than_rows_is_warned_of_once():
    np.save("wide.npy", np.random.default_rng(0).normal(size=(5, 40)))
    found = curvae("fit", "wide.npy", "-o", "run", *SMALL)
    assert found.code == 0 and found.err.count("transposed?") == 1
    assert any("transposed?" in text for text in json.loads(Path("run/config.json").read_text())["data"]["warnings"])


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("cels.csv", ["no file cels.csv", "did you mean 'cells.csv'"]),
        ("empty", ["no images", "another folder"]),
        ("t.xlsx", ["t.xlsx", ".csv"]),
        ("cells.csv/x.csv", ["no file"]),
        ("n" * 300, ["n" * 300, "too long"]),
    ],
)
def test_data_that_are_not_there(run, name, says):
    Path("t.xlsx").write_text("x")
    Path("empty").mkdir()
    untouched("fit", name, says=says)
    untouched("embed", run, name)


def test_data_and_models_that_do_not_fit_in_memory():
    write_table(Path("t.csv"))
    np.save("m.npy", np.zeros((50, 3)))
    with mock.patch("curvae.data.memory.available", return_value=500):
        for name in ("t.csv", "m.npy"):
            untouched("fit", name, says=[name, "GB of memory", "use fewer rows or columns"])
    with mock.patch("curvae.data.memory.available", return_value=5000):
        untouched("fit", "t.csv", "--hidden", "400", says=["layers of 3, 400, 2", "GB of memory", "lower --hidden"])


def test_likelihoods_that_do_not_fit_the_data(run):
    write_table(Path("t.csv"))
    for likelihood in ("bernoulli", "categorical"):
        untouched("fit", "t.csv", "--likelihood", likelihood, says=["[0, 1]", "from -", "use --likelihood gaussian"])
    Path("half.csv").write_text("a,b\n0.5,0.5\n0.2,0.3\n")
    untouched("fit", "half.csv", "--likelihood", "categorical", says=["one-hot", "--categorical"])
    Path("bits.csv").write_text("a,b\n0,1\n1,1\n1,0\n0,0\n")
    bits = run_of("bits.csv")
    write_table(Path("grey.csv"), columns="ab")
    untouched("embed", bits, "grey.csv", says=["bernoulli", "[0, 1]"])
    untouched("evaluate", bits, "grey.csv", says=["bernoulli", "[0, 1]"])


# --- new data for a run ---------------------------------------------------------------------------------------------


def test_new_data_must_have_the_columns_of_the_fit(run):
    cells = pd.read_csv("cells.csv")
    cells.drop(columns="b").to_csv("fewer.csv", index=False)
    for command in ("embed", "evaluate"):
        untouched(command, run, "fewer.csv", says=["has no columns 'b'", "add them"])
    np.save("wrong.npy", np.zeros((4, 3)))
    untouched("embed", run, "wrong.npy", says=["a matrix", "named columns"])


def test_columns_in_another_order_are_matched_by_name_and_labels_may_lack(run):
    cells = pd.read_csv("cells.csv")
    cells[["name", "c", "a", "b"]].assign(extra=1.0).to_csv("other.csv", index=False)
    assert curvae("embed", run, "other.csv", "-q").code == 0
    found, trained = pd.read_csv("other-embedding.csv"), pd.read_csv(run / "embedding.csv")
    pd.testing.assert_frame_equal(found.drop(columns=["label", "split"]), trained.drop(columns=["label", "split"]))
    assert found["label"].isna().all() and set(found["split"]) == {"new"}


def test_unseen_category():
    Path("t.csv").write_text("colour,a\n" + "red,1\nblue,2\n" * 5)
    run = run_of("t.csv", "--categorical", "colour")
    Path("new.csv").write_text("colour,a\ngreen,1\n")
    untouched("embed", run, "new.csv", says=["'colour'", "'green'", "'blue', 'red'"])


# --- options --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--curvature", "-1"], ["c ≥ 0", "curvature −c", "-1"]),
        (["--curvature", "nan"], ["c ≥ 0"]),
        (["--curvature", "learn", "--set", "learn_prior_scale=yes"], ["only c·σ0²", "drop one"]),
        (["-c", "0", "--set", "learn_curvature=yes"], ["start above 0"]),
        (["--hidden", "x"], ["200 or 400,200", "'x'"]),
        (["--hidden", "8,"], ["200 or 400,200"]),
        (["--hidden", "-8"], ["positive widths"]),
        (["--hidden", "9" * 12], ["GB of memory", "lower --hidden"]),
        (["-c", "100", "--prior-scale", "50"], ["c·σ0²", "lower the curvature"]),
        (["--set", "diagonal=yes"], ["wrapped"]),
        (["--dim", "0"], ["dim", "at least 1"]),
        (["--epochs", "0"], ["epochs", "at least 1"]),
        (["--epochs", "9" * 12], ["epochs must be at most 1,000,000", "goes over all data"]),
        (["--batch-size", "0"], ["--batch-size", "at least 1"]),
        (["--batch-size", "-64"], ["--batch-size", "at least 1"]),
        (["--batch-size", "9" * 12], ["--batch-size must be at most 100,000,000", "in memory at once"]),
        (["--batch-size", "9" * 30], ["--batch-size must be at most 100,000,000", "in memory at once"]),
        (["--repeats", "9" * 12], ["repeats must be at most 10,000", "a training of its own"]),
        (["--set", "validation=1"], ["validation", "below 1"]),
        (["--patience", "2", "--set", "validation=0"], ["validation rows", "drop --patience"]),
        (["--patience", "2", "--set", "validation=0.001"], ["validation rows", "of 40 rows"]),
        (["--set", "beta=-1"], ["beta"]),
        (["--set", "learning_rate=0"], ["--set learning_rate must be a positive"]),
        (["--repeats", "0"], ["repeats", "at least 1"]),
        (["--resume"], ["run is not a folder", "curvae fit"]),
        (["--device", "meta"], ["--device must be auto, cpu or cuda", "'meta'"]),
        (["--set", "posterior=student"], ["--set posterior", "'riemannian', 'wrapped'", "curvae fit --help"]),
        (["--missing", "no"], ["--missing", "'drop'"]),
        (["--epochs", "many"], ["--epochs", "integer"]),
        (["--seed", "-1"], ["--seed", "0"]),
        (["--nonsense"], ["--nonsense", "curvae fit --help"]),
        (["--missing"], ["'--missing' requires an argument", "curvae fit --help"]),
    ],
    ids=lambda value: " ".join(value) if value and value[0].startswith("-") else "",
)
def test_options_that_cannot_be(options, says):
    write_table(Path("t.csv"))
    untouched("fit", "t.csv", "-o", "run", *options, says=says)


def test_other_options_that_cannot_be(run):
    write_table(Path("t.csv"))
    untouched("fit", "t.csv", "--resume", says=["--resume needs the run folder; give it with -o"])
    untouched("compare", "t.csv", "--repeats", "2", says=["at least 3 repeats"])
    untouched("compare", "t.csv", "--repeats", "9" * 12, says=["repeats must be at most 10,000"])
    untouched("compare", "t.csv", "--curvatures", "1,x", says=["0.3,1", "or auto", "'1,x'"])
    untouched("compare", "t.csv", "--curvatures", "auto", "--repeats", "4", says=["at least 5 repeats, got 4"])
    untouched("compare", "t.csv", "--curvatures", "0,1", says=["c > 0"])
    untouched("compare", "t.csv", "--curvatures", "nan", says=["c > 0"])
    untouched("compare", "t.csv", "--curvatures", "1e9", says=["lower the curvature"])
    untouched("sample", run, "-n", "0", says=["at least 1"])
    untouched("sample", run, "-n", "9" * 15, says=["GB of memory", "lower -n"])
    untouched("sample", run, "--seed", "9" * 30, says=["--seed"])
    untouched("evaluate", run, "cells.csv", "--samples", "0", says=["at least 1"])
    untouched("evaluate", run, "cells.csv", "--samples", "9" * 12, says=["samples must be at most 1,000,000", "time"])
    untouched("embed", run, says=["DATA", "curvae embed --help"])
    untouched("nonsense", says=["nonsense", "curvae --help"])
    untouched("cite", "--latex", says=["--latex", "did you mean --bibtex?"])
    untouched("cite", "--xyz", says=["--xyz", "curvae cite --help"])


# --- scores of rows ---------------------------------------------------------------------------------------------------


def test_rows_are_ranked_among_the_training_rows(run):
    words = ("evaluate", run, "cells.csv", "--samples", "20")
    own = curvae(*words, "-o", "own.csv", "--json").json
    scores = pd.read_csv("own.csv")
    assert list(scores) == ["id", "split", "log_likelihood", "standard_error", "training_percentile"]
    assert own["scores"] == "own.csv" and own["training_rows"] == 36
    for name, part in own["parts"].items():
        mean = scores.loc[scores["split"] == name, "log_likelihood"].mean()
        assert mean == pytest.approx(part["log_likelihood"], rel=1e-9)
    trained = scores.loc[scores["split"] == "train", "log_likelihood"].to_numpy()
    lower = [100 * (trained < value).mean() for value in scores["log_likelihood"]]
    np.testing.assert_allclose(scores["training_percentile"], lower, atol=1e-4)
    assert (scores["standard_error"] > 0).all()
    # New rows: the training rows are read from the file that the run was trained on.
    table = pd.read_csv("cells.csv").head(3)
    table.assign(a=[0.0, 30.0, 0.0], b=0.0, c=0.0).to_csv("new.csv", index=False)
    found = curvae("evaluate", run, "new.csv", "--samples", "20", "-o", "new-scores.csv")
    said = "1 of 3 rows below the 1st percentile of 36 training rows, the most unusual first: 'cell1'\n"
    assert f"scores: new-scores.csv; {said}" in found.out
    assert (
        f"3 rows are too few to compare neighbours on the map with PCA.\nnext: curvae view {run} --rows new.csv\n"
        in (found.out)
    )
    # More samples are advised only where there are few.
    assert (
        "effective samples: the likelihood is rough, and probably too low; give --refine 50 or raise --samples\n"
        in found.out
    )
    with mock.patch("curvae.cli.commands._ENOUGH_SAMPLES", 20):
        found = curvae("evaluate", run, "new.csv", "--samples", "20")
    assert "effective samples: the likelihood is rough, and probably too low; give --refine 50\n" in found.out
    ranks = pd.read_csv("new-scores.csv").set_index("id")["training_percentile"]
    assert list(ranks.index) == ["cell0", "cell1", "cell2"] and ranks["cell1"] == 0 and ranks.drop("cell1").min() > 10


def test_ranks_need_the_training_rows(run):
    Path("elsewhere").mkdir()
    Path("cells.csv").rename("elsewhere/cells.csv")
    write_table(Path("new.csv"), 3, name=list("abc"))
    words = ("evaluate", run, "new.csv", "--samples", "5", "-o", "scores.csv")
    untouched(*words, says=["ranks need the data", "cells.csv", "--training"])
    untouched(*words, "--training", "new.csv", says=["new.csv is not the data that run was trained on", "--training"])
    untouched("evaluate", run, "new.csv", "--training", "new.csv", says=["--training has no meaning without -o"])
    assert curvae(*words, "--training", "elsewhere/cells.csv").code == 0
    untouched(*words, "--training", "elsewhere/cells.csv", says=["scores.csv exists", "--force"])
    shutil.copy("new.csv", "elsewhere/new.csv")  # beside the data of the run
    assert curvae("evaluate", run, "elsewhere/new.csv", *words[3:], "--force").code == 0
    untouched(*words[:4], "5", "-o", "scores.txt", says=["scores.txt should end in .csv, .parquet"])


# --- folders --------------------------------------------------------------------------------------------------------


def test_folders_that_are_no_run(run):
    Path("empty").mkdir()
    for command in (("embed", "{}", "cells.csv"), ("evaluate", "{}", "cells.csv"), ("sample", "{}")):
        for folder, says in (("nowhere", "not a folder"), ("empty", "no config.json"), ("cells.csv", "not a folder")):
            untouched(*(word.format(folder) for word in command), says=[folder, says, "curvae fit"])
    untouched("fit", "cells.csv", "-o", "empty", "--resume", says=["no config.json"])


def test_an_existing_folder_is_overwritten_only_with_force_and_only_if_it_is_a_run(run):
    words = ("fit", "cells.csv", "--label", "kind", "--id", "name", *SMALL)
    for command in (words, ("compare", *words[1:])):
        untouched(*command, "-o", run, says=["run exists", "--force"])
        untouched(*command, "-o", "cells.csv", says=["is a file"])
        Path("mine").mkdir(exist_ok=True)
        Path("mine/report.html").write_text("precious")
        untouched(*command, "-o", "mine", "--force", says=["something else", "choose another"])
        # What is wrong is said before the old run is gone.
        untouched(*command[:-6], "-o", run, "--force", "--dim", "0", says=["dim"])
        untouched(*command, "-o", run, "--force", "--prior-scale", "999", says=["lower the curvature"])
    untouched("compare", *words[1:], "-o", run, "--force", "--repeats", "2", says=["repeats"])
    untouched("demo", "-o", "mine", says=["something else"])
    untouched("demo", "-o", run, says=["something else"])
    # The run's own files go, a neighbour's stay.
    Path("run/notes.csv").write_text("mine")
    Path("run/model.safetensors.part").write_text("left over")
    Path("run/comparison.json").write_text("{}")
    assert curvae(*words, "-o", run, "--force", "-q", "--seed", "3").code == 0
    assert Path("run/notes.csv").read_text() == "mine"
    assert not Path("run/model.safetensors.part").exists() and not Path("run/comparison.json").exists()
    assert json.loads(Path("run/config.json").read_text())["seed"] == 3


def test_results_are_not_overwritten_without_force(run):
    Path("out.csv").write_text("mine")
    Path("cells-embedding.csv").write_text("mine")
    Path("run-samples.csv").write_text("mine")
    untouched("embed", run, "cells.csv", "-o", "out.csv", says=["out.csv exists", "--force"])
    untouched("embed", run, "cells.csv", says=["cells-embedding.csv exists"])
    untouched("sample", run, "-n", "2", says=["run-samples.csv exists"])
    assert curvae("embed", run, "cells.csv", "-o", "out.csv", "--force").code == 0
    assert curvae("sample", run, "-n", "2", "--force").code == 0
    assert len(pd.read_csv("out.csv")) == 40 and len(pd.read_csv("run-samples.csv")) == 2


def test_places_that_cannot_be_written_to(run):
    words = ("fit", "cells.csv", "--label", "kind", "--id", "name", "-q", *SMALL)
    untouched(*words, "-o", "cells.csv/run", says=["cannot make the folder", "choose another with -o"])
    untouched(*words, "-o", "n" * 300, says=["cannot make the folder", "too long"])
    untouched("embed", run, "cells.csv", "-o", "cells.csv/e.csv", says=["cannot write"])
    untouched("demo", "--quick", "-o", "cells.csv/demo", says=["cannot make the folder"])
    with mock.patch("pathlib.Path.mkdir", side_effect=OSError(errno.EROFS, "Read-only file system")):
        untouched(*words, "-o", "new", says=["cannot make the folder new: Read-only file system"])
    with mock.patch("shutil.rmtree", side_effect=OSError(errno.EROFS, "Read-only file system")):
        untouched(*words, "-o", run, "--force", says=["Read-only file system"])
    with mock.patch("pathlib.Path.replace", side_effect=OSError(errno.ENOSPC, "No space left on device")):
        untouched("embed", run, "cells.csv", "-q", says=["No space left on device", "earlier results are untouched"])
        untouched("sample", run, says=["No space left on device"])


# --- ends -----------------------------------------------------------------------------------------------------------


def test_interruption_says_how_to_go_on(run):
    with mock.patch("curvae.runs.trained.load_fitted", side_effect=KeyboardInterrupt):
        found = curvae("embed", run, "cells.csv")
    assert found.code == 130 and found.out == ""
    assert found.err == "curvae: interrupted\n"  # there is nothing to resume
    with mock.patch("curvae.runs.run.load", side_effect=KeyboardInterrupt):
        assert curvae("fit", "cells.csv", "-o", "new").err == "curvae: interrupted\n"
    words = "fit", "cells.csv", "--label", "kind", "--id", "name", *SMALL
    with mock.patch("curvae.runs.training.train_one", side_effect=KeyboardInterrupt):
        err = curvae(*words).err
    command = shlex.split(err.splitlines()[-1].partition("; continue with: ")[2])
    assert command[:-3] == ["curvae", *words] and command[-3::2] == ["-o", "--resume"]
    assert curvae(*command[1:]).code == 0


def test_a_bug_is_not_dressed_up_as_a_mistake(run):
    with (
        mock.patch("curvae.runs.trained.load_fitted", side_effect=ZeroDivisionError),
        pytest.raises(ZeroDivisionError),
    ):
        curvae("embed", run, "cells.csv")


def test_as_a_program():
    command = [
        sys.executable,
        "-m",
        "curvae",
        "fit",
        "t.csv",
        "--curvature",
        "-1",
    ]  # refused before anything is imported
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 2 and found.stdout == ""
    assert found.stderr.startswith("curvae: --curvature must be c ≥ 0") and found.stderr.count("\n") == 1


# --- help -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_help_ends_with_an_example(command):
    found = curvae(command, "--help")
    assert found.code == 0 and found.err == ""
    examples = found.out.rstrip().rpartition("Example: ")[2].splitlines()
    assert examples and all(line.strip().startswith(f"curvae {command}") for line in examples)
    assert curvae(command, "-h").out == found.out


def test_help_version_and_citation():
    import curvae as package

    found = curvae()
    assert found.code == 0 and all(command in found.out for command in COMMANDS)
    assert curvae("--help").out.split() == found.out.split()
    assert curvae("--version").out == f"{package.__version__}\n"
    assert "Mathieu" in curvae("cite").out
    assert curvae("cite", "--bibtex").out.lstrip().startswith("@")
