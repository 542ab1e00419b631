"""Run folders: names and labels letter by letter, and very long tables."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from curvae import CurvaeError
from curvae.data import load
from curvae.data.files import guard, unguard
from curvae.hierarchy import parse_newick
from curvae.training import storage
from curvae.training.storage import read_embedding
from running import SMALL, curvae, write_table

FORMULAS = ["=1+1", '=HYPERLINK("a","b")', "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", " =1", "-", "-inf"]


LABELS = [
    *FORMULAS,
    *(f"'{text}" for text in FORMULAS),
    *(f"''{text}" for text in FORMULAS),
    *("-1", "+2.5", "-1e5", "'-1", "3", "plain", "'plain", "it's", "'", "''", ' "quoted"', '"', "a,b", "a\nb", "a\rb"),
    *("  both  ", "behind ", " before", "\u00a0hard", " ", "NA", "nan", "é"),
]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(texts, **more):
    """A table with these texts, each in quotes."""
    table = pd.DataFrame({"name": texts, "kind": texts, "a": np.arange(len(texts)) % 7, "b": np.arange(len(texts)) / 3})
    table.assign(**more).to_csv("t.csv", index=False, quoting=csv.QUOTE_NONNUMERIC)


@pytest.fixture
def run():
    write(LABELS)
    found = curvae("fit", "t.csv", "--id", "name", "--label", "kind", "-o", "run", "-q", *SMALL)
    assert found.code == 0, found.err


def cells(path):
    """Cells as a spreadsheet gets them."""
    with Path(path).open(newline="", encoding="utf-8") as stream:
        return list(csv.reader(stream))


def test_labels_and_ids_survive_a_run(run):
    data, _ = load("t.csv", id="name", label="kind")
    assert data.ids.tolist() == data.labels.tolist() == LABELS
    again = read_embedding(Path("run/embedding.csv"))
    assert again["id"].tolist() == again["label"].tolist() == LABELS
    loaded, _ = load("run/embedding.csv", id="id", label="label", categorical=["split"])
    assert loaded.ids.tolist() == loaded.labels.tolist() == LABELS
    assert curvae("embed", "run", "t.csv", "-o", "again.csv", "-q").code == 0
    assert read_embedding(Path("again.csv"))["id"].tolist() == LABELS


def test_commands_that_read_a_run_know_its_names(run):
    assert curvae("diagnose", "run", "--newick", "tree.nwk", "-q").code == 0
    leaves = parse_newick(Path("tree.nwk").read_bytes().decode()).names.tolist()
    assert set(leaves) >= {"=1+1", "-1", "  both  ", "'plain"}
    found = curvae("view", "run", "--data", "t.csv", "--show", "b", "-o", "map.html", "-q")
    assert found.code == 0, found.err


def test_no_cell_of_a_text_is_a_formula(run):
    header, *rows = cells("run/embedding.csv")
    assert header[:3] == ["id", "label", "split"] and len(rows) == len(LABELS)
    for row in rows:
        for cell in row[:3]:
            number = cell in ("-1", "+2.5", "-1e5")
            assert number or (cell.lstrip()[:1] not in ("=", "+", "-", "@") and cell[:1] not in ("\t", "\r")), cell
    assert any(cell.startswith("-") for row in rows for cell in row[3:])  # coordinates are numbers, as they were


def test_plain_tables_are_written_without_quotes():
    table = write_table(Path("t.csv"), kind=list("xy") * 20)
    assert curvae("fit", table, "--label", "kind", "-o", "run", "-q", *SMALL).code == 0
    assert '"' not in Path("run/embedding.csv").read_text()


def test_a_table_of_others_keeps_its_apostrophes():
    """Only what Curvae wrote is known to be guarded."""
    write(["'=1", "=1", "''-x"])
    assert load("t.csv", id="name", label="kind")[0].ids.tolist() == ["'=1", "=1", "''-x"]


def test_samples_of_categories_that_look_like_formulas():
    kinds = ["=1+1", "-x", "plain"] * 10
    pd.DataFrame({"=name": kinds, "other": kinds[::-1], "a": np.arange(30.0)}).to_csv("t.csv", index=False)
    options = ("--categorical", "=name", "--categorical", "other", "-o", "run", "-q", *SMALL)
    assert curvae("fit", "t.csv", *options).code == 0
    assert curvae("sample", "run", "-n", "50", "-o", "s.csv").code == 0
    header, *rows = cells("s.csv")
    assert header == ["'=name", "other", "a"]
    assert {cell for row in rows for cell in row[:2]} <= {"'=1+1", "'-x", "plain"}
    found = curvae("embed", "run", "s.csv", "-o", "e.csv", "-q")
    assert found.code == 0, found.err


@pytest.mark.parametrize("text", LABELS)
def test_guarding_is_undone(text):
    assert unguard(guard(text)) == text


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_page_guards_what_it_exports():
    """The program of the page writes the same cells."""
    program = resources.files("curvae.viewer").joinpath("map.js").read_text("utf-8")
    program += f"\nconsole.log(JSON.stringify({json.dumps(LABELS)}.map((text) => [csvCell(text), text])));"
    found = subprocess.run(["node", "-"], input=program, capture_output=True, text=True, encoding="utf-8", timeout=60)
    assert found.returncode == 0, found.stderr
    for cell, text in json.loads(found.stdout):
        assert next(csv.reader(io.StringIO(f"{cell},x", newline=""))) == [guard(text), "x"]


def test_blanks_after_every_separator_are_not_of_the_cells():
    Path("t.csv").write_text('name, kind, a\nx, T cell, 1\ny, " B", 2\nz, "c, d", 4\n')
    data, _ = load("t.csv", id="name", label="kind")
    assert data.names == ("a",) and data.labels.tolist() == ["T cell", " B", "c, d"]
    Path("t.csv").write_text('name,kind,a\nx,T, 1\ny, "c, d",2\nz,U ,4\n')
    assert load("t.csv", id="name", label="kind")[0].labels.tolist() == ["T", "c, d", "U "]
    Path("t.csv").write_text("name;kind;a\nx; T;1,5\ny;U ; NA\nz;  ; 4\nw;;-1\n")
    data, _ = load("t.csv", id="name", label="kind", missing="drop")
    assert data.labels.tolist() == [" T", "  ", ""] and data.x.tolist() == [[1.5], [4.0], [-1.0]]


def test_a_quote_after_a_blank_far_down():
    Path("t.csv").write_text("kind,a\n" + "T,1\n" * 50 + ' "c, d", 2\n')
    assert load("t.csv", label="kind")[0].labels.tolist() == ["T"] * 50 + ["c, d"]


def test_a_column_may_have_any_name():
    table = pd.DataFrame({"self": ["u", "v"] * 15, "cls": ["True", " False"] * 15, "a": np.arange(30.0)})
    table.to_csv("t.csv", index=False)
    assert curvae("fit", "t.csv", "--categorical", "self", "-o", "run", "-q", *SMALL).code == 0
    assert curvae("sample", "run", "-n", "5", "-o", "s.csv").code == 0
    assert cells("s.csv")[0] == ["self", "cls", "a"]


def test_columns_of_categories_and_groups_have_no_blanks_around_them():
    Path("t.csv").write_text("g,c,a\nx , u,1\nx,u,2\ny, v ,4\n")
    data, _ = load("t.csv", group="g", categorical=["c"])
    assert data.groups.tolist() == ["x", "x", "y"] and data.names == ("c=u", "c=v", "a")


def test_parquet_holds_texts_as_they_are():
    pytest.importorskip("pyarrow")
    pd.DataFrame({"name": LABELS, "a": np.arange(len(LABELS)) / 3}).to_parquet("t.parquet")
    assert load("t.parquet", id="name")[0].ids.tolist() == LABELS


def test_trees_match_rows_whose_names_have_blanks():
    write_table(Path("t.csv"), rows=4, name=["a ", " b", "c", "d"])
    assert curvae("fit", "t.csv", "--id", "name", "-o", "run", "-q", *SMALL, "--set", "validation=0").code == 0
    Path("t.nwk").write_text("((a,b)x,(c,d)y)r;")
    found = curvae("diagnose", "run", "--tree", "t.nwk")
    assert "4 of 4 rows matched" in found.out + found.err


# --- tables of very many rows ----------------------------------------------------------------------------------------


def test_a_long_table_is_a_parquet_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_table("t.csv", rows=30)
    curvae("fit", "t.csv", *SMALL, "-o", "plain")
    monkeypatch.setattr(storage, "PARQUET_ROWS", 30)
    answer = curvae("fit", "t.csv", *SMALL, "-o", "run")
    assert "run/embedding.parquet" in answer.out + answer.err
    assert not (tmp_path / "run/embedding.csv").exists()
    found, expected = pd.read_parquet("run/embedding.parquet"), pd.read_csv("plain/embedding.csv")
    assert list(found) == list(expected)
    np.testing.assert_allclose(found["tangent_1"], expected["tangent_1"], rtol=1e-12)
    curvae("view", "run", "-o", "map.html")
    pd.testing.assert_frame_equal(
        storage.read_embedding(storage.embedding_path(tmp_path / "run")),
        storage.read_embedding(storage.embedding_path(tmp_path / "plain")),
    )
    curvae("fit", "t.csv", *SMALL, "-o", "run", "--force")
    assert not list((tmp_path / "run").glob("embedding.csv*"))


def test_a_parquet_file_that_cannot_be_written_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(CurvaeError, match=r"t\.parquet needs pyarrow to be written; pip install .*or write a \.csv"):
        storage.write_tables(tmp_path / "t.parquet", [pd.DataFrame({"id": ["a"]})])
    assert not list(tmp_path.iterdir())
