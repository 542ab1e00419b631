"""`curvae explain` and `curvae export`: what drives a map, and a run for other programs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch

from curvae.training.storage import load_fitted
from running import SMALL, curvae, refused, untouched


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A root and two branches; column `up` rises on the one, `down` falls on the other."""
    home = tmp_path_factory.mktemp("kept")
    random = np.random.default_rng(0)
    branch = np.repeat(["root", "left", "right"], 100)
    table = pd.DataFrame(random.normal(size=(300, 3)) * [0.5, 5.0, 1.0], columns=["up", "down", "noise"])
    table["up"] += 6.0 * (branch == "left")
    table["down"] -= 60.0 * (branch == "right")
    table.assign(branch=branch, name=[f"cell{i}" for i in range(300)]).to_csv(home / "t.csv", index=False)
    model = (
        "--hidden",
        "64",
        "--set",
        "posterior=wrapped",
        "--set",
        "beta=0.3",
        "--set",
        "steps=200",
        "--set",
        "learning_rate=0.05",
        "--neighbours",
        "off",
    )
    roles = ("--label", "branch", "--id", "name")
    assert curvae("fit", home / "t.csv", *roles, *model, "-o", home / "run", "-q").code == 0
    return home


@pytest.fixture
def _run(kept, tmp_path, monkeypatch):
    shutil.copytree(kept / "run", tmp_path / "run")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_run")
def test_a_pair_of_rows():
    found = curvae("explain", "run", "--from", "cell5", "--to", "cell205", "-o", "path.csv", "--json")
    assert found.code == 0, found.err
    assert found.json["from"] == "cell5"
    (first, *others) = found.json["to"]["cell205"]["columns"]
    assert first["column"] == "down" and first["change"] == pytest.approx(-60, abs=25)
    assert first["interval"][0] <= first["change"] <= first["interval"][1]
    assert {one["column"] for one in others} == {"up", "noise"}
    table = pd.read_csv("path.csv")
    assert set(table["column"]) == {"up", "down", "noise"} and (table["low"] <= table["high"]).all()
    down = table[table["column"] == "down"]
    assert down["mean"].iloc[-1] - down["mean"].iloc[0] == pytest.approx(first["change"])
    untouched("explain", "run", "--to", "cell205", "-o", "path.csv", says=["path.csv exists"])


@pytest.mark.usefixtures("_run")
def test_labels_and_the_report():
    lines = {line.split(":")[0]: line for line in curvae("explain", "run").out.splitlines()}
    assert lines["left"].startswith("left: up +") and lines["right"].startswith("right: down −")
    found = curvae("explain", "run", "--from", "left", "--to", "right", "-n", "2")
    assert found.out.startswith("from left to right, distance ") and found.out.count("\n  ") == 2
    report = Path("run/report.html").read_text(encoding="utf-8")
    section = report[report.index("What sets the labels apart") :]
    assert section.index(">left<") < section.index(">right<")
    left, right = (section.partition(f">{name}<")[2].partition("</tr>")[0] for name in ("left", "right"))
    assert left.index("up +") < left.index("down ") and right.index("down −") < right.index("up ")


@pytest.mark.usefixtures("_run")
def test_a_map_knows_what_it_shows_of_two_rows():
    found = curvae("view", "run", "--explain", "-o", "map.html", "--json")
    assert found.code == 0, found.err
    inside = [line for line in found.json["inside"] if line.startswith("what the model expects of")]
    assert sorted(line.rpartition(" ")[2] for line in inside) == ["down", "noise", "up"]
    curvae("view", "run", "-o", "plain.html", "-q")
    assert "what the model expects" not in Path("plain.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("_run")
def test_names_that_are_not_there():
    refused(
        "explain", "run", "--to", "cell2005", says=["no row and no label 'cell2005' for --to", "did you mean 'cell2"]
    )
    refused("explain", "run", "--from", "rigth", "--to", "left", says=["for --from", "did you mean 'right'?"])
    refused(
        "explain",
        "run",
        "--to",
        "§",
        says=["labels are such as 'left', 'right', ", "ids are such as 'cell0', 'cell1', 'cell2'"],
    )


# --- a run for other programs ----------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run():
    """A table with gaps, which are filled in, a column of categories and two covariates."""
    random = np.random.default_rng(0)
    table = pd.DataFrame(random.normal(size=(60, 3)) * [1, 5, 100] + [0, 50, 0], columns=["a", "b", "c"])
    table["colour"], table["batch"] = random.choice(["red", "blue"], 60), random.choice(["x", "y"], 60)
    table["age"] = random.uniform(20, 80, 60)
    table.loc[[3, 7], "b"] = np.nan
    table.to_csv("cells.csv", index=False)
    words = ("--categorical", "colour", "--covariate", "batch", "--covariate", "age", "--set", "encode_covariates=yes")
    assert curvae("fit", "cells.csv", *words, "--missing", "mean", "-o", "run", "-q", *SMALL).code == 0
    return table


@pytest.mark.filterwarnings("ignore:`isinstance\\(treespec:FutureWarning")  # of torch itself, while it loads
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.compiled
def test_programs_take_the_columns_that_the_interface_names(run):
    found = curvae("export", "run", "--torch", "-o", "out", "--json")
    assert found.code == 0, found.err
    assert [Path(path).name for path in found.json["files"]] == ["encoder.pt2", "decoder.pt2", "interface.json"]
    interface = json.loads(Path("out/interface.json").read_text(encoding="utf-8"))
    assert interface["features"] == ["a", "b", "c", "colour=blue", "colour=red"]
    assert interface["covariates"] == ["batch=x", "batch=y", "age"] and interface["exposure"] is None
    assert interface["missing"] == "nan, filled in"
    assert interface["graphs"]["encoder"] == {"inputs": {"x": 5, "context": 3}, "outputs": ["space", "ball"]}
    # Whoever has only the interface makes the inputs of it, in the units of the table.
    coded = pd.get_dummies(run, columns=["colour", "batch"], prefix_sep="=", dtype=float)
    x, context = (
        torch.from_numpy(coded[interface[names]].to_numpy(np.float64)) for names in ("features", "covariates")
    )
    encoder, decoder = (torch.export.load(f"out/{name}.pt2").module() for name in ("encoder", "decoder"))
    with torch.no_grad():
        space, ball = encoder(x=x, context=context)
        mean = decoder(space=space, context=context)
    own = pd.read_csv("run/embedding.csv")[["ball_1", "ball_2"]].to_numpy()
    np.testing.assert_allclose(ball.numpy(), own, rtol=1e-5, atol=1e-6)
    age = run["age"]
    told = coded[interface["covariates"]].assign(age=(age - age.mean()) / age.std(ddof=0)).to_numpy(np.float64)
    expected = load_fitted(Path("run")).fitted.reconstruct(space.numpy(), context=told)
    np.testing.assert_allclose(mean.numpy(), expected, rtol=1e-5, atol=1e-5)


def test_what_cannot_be_exported_is_refused(run):
    untouched("export", "run", says=["choose what to write with --onnx, --torch or both"])
    Path("taken").write_text("")
    untouched("export", "run", "--torch", "-o", "taken", says=["taken is a file", "-o"])
    Path("out").mkdir()
    Path("out/decoder.pt2").write_text("")
    untouched("export", "run", "--torch", "-o", "out", says=["out/decoder.pt2 exists", "--force"])
    with mock.patch("curvae.training.portable.find_spec", return_value=None):
        untouched("export", "run", "--onnx", says=["pip install onnx"])


def test_a_graph_is_refused():
    Path("edges.csv").write_text("a,b\n" + "".join(f"n{i},n{(i * 7 + 1) % 12}\n" for i in range(12)))
    assert (
        curvae("graph", "edges.csv", "-o", "run", "-q", "--epochs", "1", "--splits", "0", "--set", "hidden=4").code == 0
    )
    refused("export", "run", "--torch", says=["a model of a graph", "give a run of curvae fit"])
