"""`curvae explain` and its section of a report, on a table in which the answer is known."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from running import curvae, refused, untouched


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
        "steps=300",
        "--set",
        "learning_rate=0.03",
    )
    roles = ("--label", "branch", "--id", "name")
    assert curvae("fit", home / "t.csv", *roles, *model, "-o", home / "run", "-q").code == 0
    return home


@pytest.fixture(autouse=True)
def _here(kept, tmp_path, monkeypatch):
    shutil.copytree(kept / "run", tmp_path / "run")
    monkeypatch.chdir(tmp_path)


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


def test_a_map_knows_what_it_shows_of_two_rows():
    found = curvae("view", "run", "--explain", "-o", "map.html", "--json")
    assert found.code == 0, found.err
    inside = [line for line in found.json["inside"] if line.startswith("what the model expects of")]
    assert sorted(line.rpartition(" ")[2] for line in inside) == ["down", "noise", "up"]
    curvae("view", "run", "-o", "plain.html", "-q")
    assert "what the model expects" not in Path("plain.html").read_text(encoding="utf-8")


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
