"""`curvae map`: cells of new batches on the map of a run."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csc_array, csr_array

from cell_files import CELLS, counts as counts_of, describe, write_h5ad
from curvae.data.files import EXACT
from curvae.runs import pages
from running import SMALL, curvae, refused, undrawn, write_table

pytest.importorskip("anndata")
# anndata 0.12 asks pandas 3 for options that are going to be removed.
pytestmark = pytest.mark.filterwarnings("ignore:The '.*' option is deprecated")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a run on labelled cells, and cells of another batch."""
    folder = tmp_path_factory.mktemp("cells")
    write_h5ad(folder / CELLS, counts_of(60), describe(60))
    write_h5ad(folder / "new.h5ad", counts_of(30, seed=1), describe(30).assign(plate="p9").drop(columns="kind"))
    with pytest.MonkeyPatch.context() as patch, undrawn():
        patch.chdir(folder)
        found = curvae("fit", "cells.h5ad", "--label", "kind", "--batch-key", "plate", *SMALL, "-o", "run")
    assert found.code == 0, found.err
    return folder


@pytest.fixture(autouse=True)
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)


def table(path: str) -> pd.DataFrame:
    return pd.read_csv(path, keep_default_na=False, **EXACT)


def test_cells_are_mapped_and_labelled():
    said = curvae("map", "run", "new.h5ad", "-o", "mapped", "--epochs", "2")
    assert said.code == 0, said.err
    assert "30 cells on the map of run" in said.out and "of them are like no part of run" in said.out
    assert said.out.splitlines()[-1].endswith("curvae view mapped")
    labels, known = table("mapped/labels.csv"), table("mapped/reference.csv")
    assert labels["id"].tolist() == [f"cell{i}" for i in range(30)]
    assert set(labels["curvae_label"]) <= {f"type {i}" for i in range(4)}
    assert labels["curvae_label_probability"].between(0, 1).all() and labels["curvae_unknown"].between(0, 1).all()
    columns = ["id", "label", "ball_1", "ball_2"]
    pd.testing.assert_frame_equal(known[columns], table("run/embedding.csv")[columns])
    schema = json.loads(Path("mapped/config.json").read_text())["data"]["schema"]
    assert schema["covariates"][0]["categories"] == ["p1", "p2", "p3", "p9"]
    assert curvae("view", "mapped", "-o", "map.html").code == 0
    # The new run is the reference of the next, and its cells are placed as before.
    assert curvae("embed", "mapped", "cells.h5ad", "-o", "again.csv").code == 0
    np.testing.assert_allclose(table("again.csv")["ball_1"], table("run/embedding.csv")["ball_1"], atol=1e-6)
    assert "train, 27 rows" in curvae("evaluate", "mapped", "new.h5ad", "--samples", "5").out
    refused("map", "run", "new.h5ad", "-o", "mapped", says=["mapped exists", "--force"])
    said = curvae("map", "run", "new.h5ad", "-o", "mapped", "--epochs", "1", "-k", "3", "--force", "--json")
    assert said.json["cells"] == 30 and sum(said.json["counts"].values()) == 30 and "unknown" in said.json
    assert said.json["report"] == "mapped/report.html"


def text_of(page: Path) -> str:
    """The words of a page, without its scripts and pictures."""
    content = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", content).split()))


def test_a_report_says_what_was_transferred():
    maps = []

    def drawn(embedding, values, *given, **more):
        maps.append((len(embedding), values, given[-1]))
        return plain(embedding, values, *given, **more)

    plain = pages.map_picture
    with mock.patch.object(pages, "map_picture", drawn):
        assert curvae("map", "run", "new.h5ad", "-o", "told", "--epochs", "2").code == 0
    labels, page = table("told/labels.csv"), text_of(Path("told/report.html"))
    own = labels["curvae_label"]
    unknown = labels["curvae_unknown"] > 0.5
    for name, part in [("all", labels), *labels.groupby("curvae_label")]:
        mean = part["curvae_label_probability"].mean()
        assert f" {name} {len(part)} {mean:.2f} {int(unknown[part.index].sum())} " in page
    assert own.nunique() > 1 and f"{int(unknown.sum())} of them are like no part of run" in page
    assert "the 60 of the reference are grey" in page and "curvae view told" in page
    # The reference has no colour, and the query the labels that it got.
    (rows, first, name), (_, second, other) = maps
    assert (rows, name, other) == (90, "transferred kind", "unknown")
    assert list(first[:30]) == own.tolist() and pd.isna(first[30:]).all()
    np.testing.assert_allclose(second[:30].astype(float), labels["curvae_unknown"])
    # Missing genes are said, and a reference without labels has nothing to transfer.
    write_h5ad(
        Path("fewer.h5ad"), counts_of(30)[:, 4:], describe(30).assign(plate="p9"), [f"g{j}" for j in range(4, 40)]
    )
    with undrawn():
        assert curvae("fit", "cells.h5ad", "--batch-key", "plate", *SMALL, "-o", "bare").code == 0
    said = curvae("map", "bare", "fewer.h5ad", "-o", "bare-mapped", "--epochs", "1", "--json").json
    page = text_of(Path("bare-mapped/report.html"))
    assert "lacks 4 genes" in page and "mean probability" not in page and "labels" not in said
    assert not Path("bare-mapped/labels.csv").exists() and "lacks 4 genes" in said["warnings"][0]


def test_a_query_on_disk_is_mapped_as_one_in_memory():
    """Whatever the format, and with counts in a layer; the order of a training from disk is another."""
    write_h5ad(
        Path("layers.h5ad"),
        csc_array(counts_of(30, seed=1)),
        describe(30).assign(plate="p9"),
        layers={"more": csr_array(2 * counts_of(30, seed=1))},
    )
    whole = mock.patch("anndata.read_h5ad", side_effect=AssertionError("the file is read whole"))
    with whole, mock.patch("curvae.data.memory._LEAST", 1):
        for more in (("--memory", "9kB", "--cache", "copies"), ("--layer", "more")):
            said = curvae("map", "run", "layers.h5ad", "-o", "disk", "--epochs", "1", "--force", *more)
            assert said.code == 0, said.err
            assert ("read from disk" in said.err) == (more[0] == "--memory")
            places = table("disk/embedding.csv")
            if more[0] == "--memory":
                assert curvae("embed", "run", "new.h5ad", "-o", "e.csv", "--force").code == 0
                np.testing.assert_allclose(places["ball_1"], table("e.csv")["ball_1"], atol=1e-6)
                assert places["id"].tolist() == table("disk/labels.csv")["id"].tolist()
    refused("map", "run", "new.h5ad", "-o", "m", "--memory", "much", says=["memory is 'much'"])


def test_what_cannot_be_mapped_is_refused_in_one_line():
    refused("map", "run", "cells.h5ad", "-o", "m", says=["knows all batches of the query in 'plate'"])
    write_h5ad(Path("few.h5ad"), counts_of(30, 20), describe(30).assign(plate="p9"))
    refused("map", "run", "few.h5ad", "-o", "m", says=["lacks 50 % of the 40 genes"])
    write_table(Path("cells.csv"))
    refused("map", "run", "cells.csv", "-o", "m", says=["cells.csv is no .h5ad file"])
    refused("map", "run", "none.h5ad", "-o", "m", says=["none.h5ad"])
    with undrawn():
        assert curvae("fit", "cells.csv", *SMALL, "-o", "table").code == 0
    refused("map", "table", "new.h5ad", "-o", "m", says=["table was not trained on cells"])
    assert not Path("m").exists()
    refused("evaluate", "run", "new.h5ad", says=["needs the covariates", "make a model with curvae map"])


def test_missing_genes_are_said():
    write_h5ad(
        Path("some.h5ad"), counts_of(30)[:, 4:], describe(30).assign(plate="p9"), [f"g{j}" for j in range(4, 40)]
    )
    said = curvae("map", "run", "some.h5ad", "-o", "fewer", "--epochs", "1")
    assert said.code == 0 and "lacks 4 genes of those that the model was trained on (10 %)" in said.err
