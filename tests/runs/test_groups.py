"""`curvae lineage`: a fork of three groups in a table and in a cell file, its files and its report."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array

from cell_files import write_h5ad
from curvae import PoincareBall
from curvae.data.files import EXACT
from curvae.hierarchy import read_tree
from curvae.runs import view_run
from running import curvae, refused, undrawn, untouched

MODEL = (
    "--hidden",
    "32",
    "--epochs",
    "30",
    "--batch-size",
    "24",
    "--set",
    "learning_rate=0.05",
    "--set",
    "beta=0.2",
    "--neighbours",
    "off",
    "-q",
)
ROWS = 40


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A folder with a table and a cell file on a fork, and a run on each."""
    folder = tmp_path_factory.mktemp("fork")
    random = np.random.default_rng(0)
    kind = np.repeat(["stem", "left", "right"], ROWS)
    x = random.normal(0, 0.4, (3 * ROWS, 4))
    x[kind == "left", 0] += 4
    x[kind == "right", 1] -= 4
    table = pd.DataFrame(
        {"name": [f"r{i}" for i in range(len(x))], "kind": kind, **{f"x{j}": x[:, j] for j in range(4)}}
    )
    table["half"] = np.where(np.arange(len(x)) % 2, "odd", "even")
    table.drop(columns="half").to_csv(folder / "t.csv", index=False)
    table[["name", "half"]].to_csv(folder / "more.csv", index=False)
    rates = np.exp(2.5 + 0.4 * x[:, [0, 1, 2, 3, 0, 1]])
    obs = pd.DataFrame(
        {"kind": kind, "plate": np.where(random.random(len(x)) < 0.5, "p", "q"), "half": table["half"].to_numpy()},
        index=[f"c{i}" for i in range(len(x))],
    )
    write_h5ad(folder / "c.h5ad", csr_array(random.poisson(rates).astype(np.float32)), obs)
    with pytest.MonkeyPatch.context() as patch, undrawn():
        patch.chdir(folder)
        for found in (
            curvae("fit", "t.csv", "--label", "kind", "--id", "name", *MODEL, "-o", "run"),
            # Which groups there are does not depend on how well this one is trained.
            curvae("fit", "c.h5ad", "--label", "kind", "--batch-key", "plate", *MODEL, "--epochs", "2", "-o", "cells"),
        ):
            assert found.code == 0, found.err
    return folder


@pytest.fixture
def folder(kept, tmp_path, monkeypatch):
    shutil.copytree(kept, tmp_path / "own")
    monkeypatch.chdir(tmp_path / "own")
    return tmp_path / "own"


@pytest.mark.usefixtures("folder")
def test_files_and_report():
    found = curvae("lineage", "run", "--root", "stem", "--gene", "x0", "--gene", "x1", "-o", "out", "--json")
    assert found.code == 0, found.err
    assert found.json["root"] == "stem" and {edge["parent"] for edge in found.json["edges"]} == {"stem"}
    table = pd.read_csv("out/lineage.csv")
    assert table["id"].tolist()[:2] == ["r0", "r1"] and (table["low"] <= table["high"]).all()
    for end in ("left", "right"):
        own = table[table["group"] == end]
        assert (own["branch"] == end).mean() > 0.9 and own[f"p {end}"].mean() > 0.6
        assert own["pseudotime"].mean() > table[table["group"] == "stem"]["pseudotime"].mean() + 0.5
    assert sorted(read_tree(Path("out/tree.nwk")).names) == ["left", "right", "stem"]
    genes = pd.read_csv("out/genes.csv")
    assert genes.columns.tolist() == ["end", "column", "pseudotime", "mean", "low", "high"]
    ways = genes.groupby(["end", "column"])["mean"].agg(lambda values: values.iloc[-1] - values.iloc[0])
    assert ways["left", "x0"] > 1.5 and ways["right", "x1"] < -1.5 and abs(ways["left", "x1"]) < 1.5
    report = Path("out/report.html").read_text(encoding="utf-8")
    assert "From stem, 2 lineages" in report and report.count("<img") >= 4 and "with another seed" in report
    untouched("lineage", "run", "-o", "out", says=["exists", "--force"])


@pytest.mark.usefixtures("folder")
def test_roots_and_groups_from_elsewhere():
    with undrawn():
        found = curvae("lineage", "run", "--root", "r3", "-n", "2", "--json")
        assert found.code == 0 and found.json["root"] == "r3" and Path("run-lineage/report.html").exists()
        assert all(len(one["columns"]) == 2 for one in found.json["genes"].values())
        found = curvae("lineage", "run", "--groups", "half", "--data", "more.csv", "-o", "two")
        assert found.code == 0 and "the group of the lowest radius" in found.out
        assert "Intervals of pseudotime are those of the posteriors." in found.out
        found = curvae(
            "lineage", "cells", "--groups", "half", "--data", "c.h5ad", "--root", "odd", "-o", "three", "--json"
        )
        assert found.code == 0 and found.json["branches"] == ["odd", "even"], found.err
        assert "calibrated on cells whose counts were split in two" in Path("three/report.html").read_text("utf-8")


@pytest.mark.usefixtures("folder")
def test_further_trainings_of_a_run():
    with undrawn():
        for number in ("1", "2"):
            words = ("--root", "stem", "--data", "c.h5ad", "-n", "2", "--repeats", number, "-o", number)
            found = curvae("lineage", "cells", *words)
            assert found.code == 0, found.err
    assert "means of 2 trainings, and their intervals hold draws of all" in found.out
    assert "These trees are of 2 trainings." in Path("2/report.html").read_text("utf-8")
    one, two = (pd.read_csv(f"{number}/lineage.csv") for number in "12")
    assert list(one) == list(two) and (one["pseudotime"] != two["pseudotime"]).any()
    assert ((two["low"] <= two["pseudotime"]) & (two["pseudotime"] <= two["high"])).all()
    assert read_tree(Path("1/tree.nwk")).height.tolist() == read_tree(Path("2/tree.nwk")).height.tolist()
    refused("lineage", "run", "--repeats", "0", says=["--repeats must be a whole number of at least 1, got 0"])
    refused("lineage", "run", "--repeats", "2", says=["what run was trained on; give that with --data"])
    pd.read_csv("t.csv").assign(x0=0.0).to_csv("other.csv", index=False)
    refused("lineage", "run", "--repeats", "2", "--data", "other.csv", says=["--repeats trains again, on what run"])


@pytest.mark.usefixtures("folder")
def test_what_is_wrong_is_one_line():
    refused(
        "lineage", "run", "--root", "stemm", says=["no row and no label 'stemm' for --root", "did you mean 'stem'?"]
    )
    refused("lineage", "run", "--groups", "half", says=["does not hold the column 'half'", "--data"])
    refused(
        "lineage", "run", "--groups", "harf", "--data", "more.csv", says=["no column 'harf' for --groups", "'half'"]
    )
    refused("lineage", "run", "--gene", "x9", says=["--gene has columns that run does not know: 'x9'"])
    refused("lineage", "run", "--draws", "5", says=["--draws must be at least 19 for a 90 % interval, got 5"])
    Path("file").write_text("", encoding="utf-8")
    refused("lineage", "run", "-o", "file", says=["file is a file; give a folder with -o"])


@pytest.mark.usefixtures("folder")
def test_a_tree_on_the_interactive_map():
    with undrawn():
        found = curvae("lineage", "run", "--root", "stem", "-n", "2", "-o", "out")
    assert found.out.splitlines()[-1].startswith("next: curvae view run --lineage out")
    assert curvae("view", "run", "--lineage", "out").code == 0 and Path("run-map-lineage.html").exists()
    _, view = view_run(Path("run"), Path("map.html"), lineage=Path("out"))
    table, run = (pd.read_csv(name, **EXACT) for name in ("out/lineage.csv", "run/embedding.csv"))
    assert list(view.columns) == ["kind", "pseudotime", "branch"] and "stem is at the centre" in view.about
    np.testing.assert_array_equal(view.columns["pseudotime"], table["pseudotime"])
    np.testing.assert_array_equal(view.columns["branch"], table["branch"])
    # The nodes are the means of the groups, the root is at the centre, and an isometry moved the rows.
    ball, names = PoincareBall(2, view.c), read_tree(Path("out/tree.nwk")).names.tolist()
    nodes, edges = ball.from_lorentz(view.hierarchy[0]), [(names[a], names[b]) for a, b in view.hierarchy[1]]
    rows = ball.from_lorentz(torch.as_tensor(view.points))
    assert sorted(edges) == [("stem", "left"), ("stem", "right")] and nodes[0].abs().max() < 1e-9
    for name, node in zip(names, nodes, strict=True):
        mean = ball.frechet_mean(rows[torch.from_numpy((table["group"] == name).to_numpy())])
        torch.testing.assert_close(node, mean, rtol=1e-6, atol=1e-6)
    own = torch.from_numpy(run[["ball_1", "ball_2"]].to_numpy())
    torch.testing.assert_close(ball.dist(rows[1:], rows[:-1]), ball.dist(own[1:], own[:-1]), rtol=1e-6, atol=1e-9)
    # New rows have no pseudotime, and a picture takes its colours from it.
    _, view = view_run(Path("run"), Path("new.html"), lineage=Path("out"), rows="t.csv", show=("high",))
    assert list(view.columns) == ["kind", "high", "pseudotime", "branch"]
    assert np.isnan(view.columns["pseudotime"][-3 * ROWS :]).all() and len(view.columns["branch"]) == 6 * ROWS
    assert curvae("view", "run", "--lineage", "out", "--label", "pseudotime", "-o", "map.png").code == 0


@pytest.mark.usefixtures("folder")
def test_lineages_from_a_row_of_a_product_and_of_other_runs():
    words = ("--id", "name", *MODEL, "--epochs", "2", "--space", "h2,e1", "-o", "two")
    with undrawn():
        assert curvae("fit", "t.csv", "--label", "kind", *words).code == 0
        asked = ("--groups", "half", "--data", "more.csv", "--root", "r3", "-n", "2", "-o", "out")
        assert curvae("lineage", "two", *asked).code == 0
    for factor, width in (("h1", 2), ("e2", 2)):
        _, view = view_run(Path("two"), Path(f"{factor}.html"), lineage=Path("out"), factor=factor)
        nodes = view.hierarchy[0]
        assert nodes.shape == (3, width) and nodes[0].abs().max() < 1e-9 and len(view.hierarchy[1]) == 2
        assert "r3 is at the centre" in view.about and set(view.columns["branch"]) <= {"r3", "odd", "even"}
    # The id of the root, which is a name of a branch, is left out with all others.
    _, view = view_run(Path("two"), Path("hidden.html"), lineage=Path("out"), anonymous=True)
    assert set(view.columns["branch"]) <= {"root", "odd", "even"} and not any("r3" in text for text in view.about)
    refused("view", "cells", "--lineage", "out", says=["cells has no rows of", "give lineages of this run"])
    refused("view", "run", "--lineage", "none", says=["there is no result of curvae lineage none/lineage.csv"])
    Path("none").mkdir()
    Path("none/lineage.csv").write_text("id,group\nr1,odd\n", encoding="utf-8")
    refused("view", "run", "--lineage", "none", says=["none/lineage.csv lacks 'branch', 'pseudotime'"])
    Path("g.edges").write_text("a b\nb c\nc d\nd a\n", encoding="utf-8")
    assert curvae("graph", "g.edges", "--splits=0", "--epochs=1", "--set=hidden=4", "-o", "graph", "-q").code == 0
    refused("view", "graph", "--lineage", "out", says=["which has no lineages; leave out --lineage"])
