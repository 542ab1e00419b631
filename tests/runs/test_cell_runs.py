"""Commands on cell files: from counts to a map, and back into the file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csc_array, csr_array, save_npz

from cell_files import CELLS, counts, describe, write_10x_folder, write_h5ad
from curvae.data.files import EXACT
from running import SMALL, curvae, refused, undrawn

FIT = ("fit", "cells.h5ad", "--label", "kind", "--batch-key", "plate", "--genes", "20", *SMALL)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder with cells and a run on them."""
    folder = tmp_path_factory.mktemp("cells")
    write_h5ad(folder / CELLS, csr_array(counts(90)), describe(90), layers={"double": csc_array(2 * counts(90))})
    with pytest.MonkeyPatch.context() as patch, undrawn():
        patch.chdir(folder)
        found = curvae(*FIT, "-o", "run")
    assert found.code == 0, found.err
    return folder, found


@pytest.fixture
def folder(run, tmp_path, monkeypatch):
    shutil.copytree(run[0], tmp_path / "own")
    monkeypatch.chdir(tmp_path / "own")
    return tmp_path / "own"


def places(path: str) -> np.ndarray:
    return pd.read_csv(path, **EXACT)[["ball_1", "ball_2"]].to_numpy()


def test_counts_get_the_likelihood_of_counts(run):
    folder, found = run
    assert "likelihood nb: all values are whole numbers, counts of genes in cells" in found.out + found.err
    stored = json.loads((folder / "run/config.json").read_text())
    assert stored["source"] | {"batch_key": "plate", "genes": 20, "layer": None} == stored["source"]
    assert stored["data"]["schema"]["kind"] == "cells" and stored["data"]["schema"]["batch_key"] == "plate"
    assert stored["layout"]["batch"] == [0, 3] and stored["layout"]["total"]
    assert "--batch-key plate --genes 20" in found.out.splitlines()[-1]


def test_every_command_takes_cells(folder):
    own = places("run/embedding.csv")
    for more in ((), ("--memory", "1MB"), ("--layer", "double")):
        assert curvae("embed", "run", "cells.h5ad", "-o", "e.csv", "--force", *more).code == 0
        if "--layer" not in more:
            np.testing.assert_allclose(places("e.csv"), own, atol=1e-6)
    assert "train, " in curvae("evaluate", "run", "cells.h5ad", "--samples", "5").out
    assert "new, 90 rows" in curvae("evaluate", "run", "cells.h5ad", "--samples", "5", "--layer", "double").out
    assert curvae("sample", "run", "-n", "6", "-o", "s.csv", "--covariate", "plate=p1").code == 0
    assert curvae("view", "run", "--rows", "cells.h5ad").code == 0
    for command in (("diagnose",), ("judge",)):
        arguments = ("cells.h5ad", *(("run",) if command == ("judge",) else ()), "--label", "kind", "--layer", "double")
        found = curvae(*command, *arguments)
        assert found.code == 0, found.err
    refused("fit", "cells.h5ad", "--layer", "none", says=["has no layer 'none' for --layer; its layers are 'double'"])
    refused("diagnose", "run", "--genes", "5", says=["--genes has no meaning with a run"])


def test_genes_that_differ_between_groups(folder):
    found = curvae("differential", "run", "cells.h5ad", "--batch-correction", "-o", "de", "--json")
    assert found.code == 0, found.err
    table = pd.read_csv("de/differential.csv", **EXACT)
    names = [f"type {i} vs Rest" for i in range(4)]
    assert [one["name"] for one in found.json["comparisons"]] == names == table["comparison"].unique().tolist()
    assert len(table) == 4 * 20 and found.json["comparisons"][1]["first"] == table["gene"][20:30].tolist()
    report = Path("de/report.html").read_text(encoding="utf-8")
    assert report.count("<img") >= 4 and "type 3 vs Rest" in report
    for more in ((), ("--memory", "1MB")):
        asked = ("--groupby", "plate", "--group1", "p1", "--group2", "p3", "-o", f"two{len(more)}", *more)
        assert curvae("differential", "run", "cells.h5ad", *asked).code == 0
    one, two = (pd.read_csv(f"two{number}/differential.csv", **EXACT) for number in (0, 2))
    pd.testing.assert_frame_equal(one, two)
    assert (one["group1"] == "p1").all() and (one["group2"] == "p3").all()
    for asked, says in (
        (("--groupby", "nothing"), "cells.h5ad has no column 'nothing'; name one that it has with --groupby"),
        (("--groupby", "plate", "--group1", "p7"), "--group1 is no group of 'plate': 'p7'; it has 'p1', 'p2', 'p3'"),
        (("--delta", "0"), "--delta must be greater than 0"),
        (("--group1", "type 1", "--group2", "type 1"), "are the same cells"),
        (("-o", "de"), "exists"),
    ):
        refused("differential", "run", "cells.h5ad", *asked, says=[says])


def test_the_same_in_pieces_and_from_a_folder_of_10x(folder):
    with undrawn():
        assert curvae(*FIT, "-o", "pieces", "--memory", "1MB").code == 0
    one, two = (json.loads((Path(name) / "config.json").read_text())["data"] for name in ("run", "pieces"))
    assert one["schema"] == two["schema"] and one["fingerprint"] == two["fingerprint"]
    names = [f"g{j}" for j in range(40)]
    write_10x_folder(Path("tenx"), counts(90)[:30], names, names, True, 3)
    assert curvae("embed", "run", "tenx", "-o", "t.csv").code == 0
    np.testing.assert_allclose(places("t.csv"), places("run/embedding.csv")[:30], atol=1e-6)


def test_a_map_is_written_back_into_a_copy(folder):
    before = Path("cells.h5ad").read_bytes()
    for more in ((), ("--memory", "1MB", "--force")):
        assert "embedding: out.h5ad" in curvae("embed", "run", "cells.h5ad", "-o", "out.h5ad", *more).out
        assert Path("cells.h5ad").read_bytes() == before
        with h5py.File("out.h5ad") as file:
            np.testing.assert_allclose(file["obsm/X_curvae_ball"], places("run/embedding.csv"), atol=1e-6)
            np.testing.assert_array_equal(file["X/data"], csr_array(counts(90)).data)
            assert file["obsp/curvae_distances"].attrs["shape"].tolist() == [90, 90]
    refused("embed", "run", "cells.h5ad", "-o", "out.h5ad", says=["out.h5ad exists"])
    assert curvae("embed", "run", "cells.h5ad", "-o", "cells.h5ad", "--force").code == 0  # onto itself
    with h5py.File("cells.h5ad") as file:
        assert "X_curvae" in file["obsm"]
    refused("embed", "run", "s.csv", "-o", "o.h5ad", says=["s.csv is no .h5ad file, to which a map can be added"])


def test_maps_of_graphs_are_not_written_into_cell_files(folder):
    Path("g.edges").write_text("a b\nb c\nc d\nd a\n", encoding="utf-8")
    assert curvae("graph", "g.edges", "--splits=0", "--epochs=1", "--set=hidden=4", "-o", "graph", "-q").code == 0
    refused("embed", "graph", "cells.h5ad", "-o", "o.h5ad", says=["cells.h5ad"])
    refused("embed", "graph", "g.edges", "-o", "o.h5ad", says=["o.h5ad", ".csv"])


def test_a_batch_that_the_model_does_not_know(folder):
    obs = describe(90)
    obs["plate"] = "other"
    write_h5ad(Path("new.h5ad"), csr_array(counts(90)), obs)
    found = curvae("embed", "run", "new.h5ad", "-o", "e.csv")
    assert "batch column 'plate' holds batches that the model was not trained on: 'other'" in found.err
    np.testing.assert_allclose(places("e.csv"), places("run/embedding.csv"), atol=1e-6)
    refused("evaluate", "run", "new.h5ad", says=["needs the covariates that the model was trained with: 'plate'"])


def test_a_matrix_of_whole_numbers_is_warned_of(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, said = counts(40, 6), "all values are whole numbers from 0 on; if they are counts, use --likelihood nb"
    np.save("x.npy", x)
    save_npz("x.npz", csr_array(x))
    np.save("halves.npy", x / 2)
    np.save("bits.npy", x > 0)
    pd.DataFrame(x, columns=list("abcdef")).to_csv("x.csv", index=False)
    with undrawn():
        for name in ("x.npy", "x.npz"):
            found = curvae("fit", name, *SMALL)
            assert said in found.err and "likelihood gaussian" in found.err + found.out
        for arguments in (("x.npy", "--likelihood", "poisson"), ("halves.npy",), ("bits.npy",), ("x.csv",)):
            found = curvae("fit", *arguments, *SMALL)
            assert found.code == 0 and "whole numbers" not in found.err
