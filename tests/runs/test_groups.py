"""`curvae lineage`: a fork of three groups in a table and in a cell file, its files and its report."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from cell_files import write_h5ad
from curvae.hierarchy import read_tree
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
