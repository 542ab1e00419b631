"""Runs on mixed tables with covariates and groups that are read in pieces, and the same model on rows in memory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from curvae.runs import Reporter, Source, folders
from curvae.runs import rows_run as pieces
from running import SMALL, config, curvae, refused
from streaming import MEMORY, mixed_table, write_parts

ROWS = 600
ROLES = ("--label", "kind", "--id", "cell", "--group", "patient", "--categorical", "colour", "--covariate", "batch")


def made(rows=ROWS, seed=0):
    return mixed_table(rows, seed).drop(columns=["time", "age"])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on a folder of files with gaps: where it is."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("trained")
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.chdir(folder)
        table = made()
        table.loc[5::40, "colour"] = None
        write_parts("parts", table)
        how = (*ROLES, "--missing", "model", "--set", "encode_covariates=yes", "--set", "validation=0.2")
        said = curvae("fit", "parts", *how, *SMALL, "--memory", MEMORY, "-o", "run")
        assert said.code == 0, said
        return folder


@pytest.fixture(autouse=True)
def _place(monkeypatch, tmp_path, trained):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for name in ("run", "parts"):
        shutil.copytree(trained / name, name)


def test_all_rows_are_on_the_map_and_groups_are_held_out():
    table, rows = folders.read_embedding(Path("run/embedding.csv")), made()
    assert table["id"].tolist() == rows["cell"].tolist() and table["label"].tolist() == rows["kind"].tolist()
    held = set(rows["patient"][table["split"] == "validation"])
    assert held and not held & set(rows["patient"][table["split"] == "train"])
    schema = config()["data"]["schema"]
    assert schema["columns"][1]["categories"] == ["blue", "green", "red", "violet"]
    assert schema["covariates"][0]["categories"] == ["x", "y", "z"]


def test_new_rows_lie_where_they_lie_in_memory():
    new = made(200, seed=7).drop(columns=["kind", "patient"])
    new.to_parquet("new.parquet", index=False)
    assert curvae("embed", "run", "new.parquet", "-o", "whole.csv").code == 0
    assert curvae("embed", "run", write_parts("new", new), "-o", "pieces.csv").code == 0
    whole, found = pd.read_csv("whole.csv"), pd.read_csv("pieces.csv")
    np.testing.assert_allclose(found["ball_1"], whole["ball_1"], atol=1e-12)
    assert found["id"].tolist() == whole["id"].tolist()


def test_gaps_are_filled_as_in_memory():
    gaps = made(150, seed=8)
    gaps.loc[3::7, "colour"] = None
    gaps.loc[5::9, "a"] = np.nan
    gaps.to_parquet("gaps.parquet", index=False)
    assert curvae("impute", "run", "gaps.parquet", "-o", "whole.csv").code == 0
    assert curvae("impute", "run", write_parts("gaps", gaps), "-o", "pieces.csv").code == 0
    whole, found = pd.read_csv("whole.csv"), pd.read_csv("pieces.csv")
    assert found.columns.tolist() == whole.columns.tolist() and not found.isna().any(axis=None)
    assert found["batch"].tolist() == gaps["batch"].tolist()
    known = gaps["colour"].notna()
    assert found["colour"][known].tolist() == gaps["colour"][known].tolist()


def test_the_rows_of_the_run_are_known_again():
    said = curvae("evaluate", "run", "parts", "--samples", "2", "--json")
    parts = json.loads(said.out)["parts"]
    assert set(parts) == {"train", "validation", "test"}, said
    table = folders.read_embedding(Path("run/embedding.csv"))
    for name in ("validation", "test"):
        assert parts[name]["rows"] == (table["split"] == name).sum()
    write_parts("parts", made(300, seed=9))  # of another table, nothing is known
    Path("parts/2.parquet").unlink()
    assert set(json.loads(curvae("evaluate", "run", "parts", "--samples", "2", "--json").out)["parts"]) == {"new"}


def test_what_the_model_does_not_know_is_refused():
    new = made(200, seed=7)
    new.loc[199, "colour"] = "mauve"
    refused(
        "embed", "run", write_parts("odd", new), "-q", "-o", "odd.csv", says=["not trained on: 'mauve'", "2.parquet"]
    )
    bare = write_parts("bare", new.drop(columns="batch"))
    refused("embed", "run", bare, "-q", "-o", "odd.csv", says=["needs the covariates", "'batch'; add them"])
    assert not Path("odd.csv").exists()


def test_a_sample_has_all_roles():
    table = made(2400)
    roles = {"label": "kind", "id": "cell", "group": "patient", "categorical": ("colour",), "covariates": ("batch",)}
    source = Source(str(write_parts("large", table, group=300)), **roles, memory=MEMORY)
    data, schema, *_ = pieces.loaded(source, 0, Reporter())
    assert 1000 <= len(data) < 2400 and "a sample is looked at" in data.notes[-1]
    rows = table.set_index("cell").loc[data.ids]
    assert data.groups.tolist() == rows["patient"].tolist() and data.labels.tolist() == rows["kind"].tolist()
    np.testing.assert_array_equal(data.context, pd.get_dummies(rows["batch"]))
    assert data.blocks == schema.blocks == (0, 4, 0, 1, 0)
