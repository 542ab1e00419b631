"""Text tables that are converted to Parquet to be read in pieces: the same rows, and one line for what is broken."""

from __future__ import annotations

import gzip
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest

from curvae.data import load, open_stream
from curvae.data.streams import blocks as text
from curvae.errors import CurvaeError
from streaming import MEMORY, numbered, write_parquet

ROWS = 900


@pytest.fixture(autouse=True)
def _place(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def table():
    made = write_parquet(Path("x.parquet"), numbered(ROWS, 6))
    made["g0"] = made["g0"].astype(int)
    made.loc[[3, 500], "cell"] = ["007", "NA"]
    return made


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("x.csv", {}),
        ("x.tsv", {"sep": "\t"}),
        ("x.csv.gz", {}),
        ("x.txt", {"sep": ";", "decimal": ","}),
        ("x.csv", {"encoding": "latin-1"}),
    ],
)
def test_rows_are_those_that_are_read_as_a_whole(name, how):
    made = table()
    made.loc[0, "kind"] = "é, \n“a”" if "encoding" not in how else "é"
    made.to_csv(name, index=False, **how)
    stream = open_stream(name, label="kind", id="cell", memory=MEMORY)
    found, (expected, schema) = stream.take(np.arange(ROWS)), load(name, label="kind", id="cell")
    assert len(stream.blocks.sizes) > 3
    np.testing.assert_array_equal(found.x, expected.x)
    assert found.ids.tolist() == expected.ids.tolist() and found.labels.tolist() == expected.labels.tolist()
    assert stream.schema.names == schema.names


def test_a_table_is_converted_once_until_it_changes():
    table().to_csv("x.csv", index=False)
    how = {"label": "kind", "id": "cell", "memory": MEMORY}
    first = open_stream("x.csv", **how)
    with mock.patch.object(text.TextTable, "_convert", side_effect=AssertionError):
        assert open_stream("x.csv", **how).fingerprint == first.fingerprint
    table()[::-1].to_csv("x.csv", index=False)
    assert open_stream("x.csv", **how).fingerprint != first.fingerprint
    assert not list(Path("cache").rglob("*.part"))


def test_progress_is_told():
    table().to_csv("x.csv", index=False)
    told = []
    found = text.TextTable(Path("x.csv"), 10**6, text.Roles("kind", "cell"), None).opened(
        lambda task, rows: told.append((task, rows)) or told.append
    )
    assert told[0] == ("converting", ROWS + 2) and sum(told[1:]) == len(found) == ROWS


def refused(says, **how):
    with pytest.raises(CurvaeError, match=says) as error:
        open_stream("x.csv", memory=MEMORY, **how)
    assert "\n" not in str(error.value)
    assert not list(Path("cache").rglob("*.part"))


def test_whole_numbers_that_are_followed_by_others(monkeypatch):
    monkeypatch.setattr(text, "_READ", 1 << 10)
    pd.DataFrame({"a": [*range(500), 0.5], "b": 1.0}).to_csv("x.csv", index=False)
    stream = open_stream("x.csv", memory=MEMORY)
    assert stream.take(np.array([500])).x.tolist() == [[0.5]]
    assert "left out: 'b' (constant)." in stream.notes and stream.known.high.tolist() == [499.0]


def test_a_column_whose_type_changes_later(monkeypatch):
    monkeypatch.setattr(text, "_READ", 1 << 10)
    pd.DataFrame({"a": [*range(500), "many"], "b": 1.0}).to_csv("x.csv", index=False)
    refused(r"x.csv cannot be converted to Parquet: .*column #0.*'many'; correct it: a column holds values of one kind")


def test_lines_of_other_lengths():
    Path("x.csv").write_text("a,b\n1,2\n3,4,5\n" * 3)
    refused("x.csv cannot be converted to Parquet: .*Expected 2 columns, got 3")


def test_columns_without_a_name_and_texts():
    Path("x.csv").write_text(",b\n1,2\n3,4\n")
    refused("column 1 of x.csv has no name; give it one")
    Path("x.csv").write_text("a,b\n1,2\n3,x\n")
    refused(r"x.csv has text in columns without a role\. .* cells to correct: 'b' \('x' in row 2\)")
    Path("x.csv").write_bytes(gzip.compress(b"a,b\n1,2\n"))
    refused("is not a text file")
