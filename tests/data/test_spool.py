"""Tables that stay on disk: what is found in them is what is found in memory, and one line for what is broken."""

from __future__ import annotations

import gc
import gzip
import os
import shutil
import signal
import sys
from collections import namedtuple
from pathlib import Path
from traceback import clear_frames
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curvae.data import load, memory, spool
from curvae.data.dataset import MissingValuesError
from curvae.errors import CurvaeError
from disk_data import mixed_table, numbered, write_parquet, write_parts
from processes import child, wait

ROLES = {
    "label": "kind",
    "id": "cell",
    "group": "patient",
    "categorical": ["colour", "grade"],
    "exposure": "time",
    "covariates": ["batch", "age"],
}
NAMED = {"label": "kind", "id": "cell"}
MEMORY = "1kB"


@pytest.fixture(autouse=True)
def _place(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(spool, "_CELLS", 1000)  # tables have several pieces
    monkeypatch.setattr(memory, "_LEAST", 1)
    monkeypatch.chdir(tmp_path)


def stored(path, **how):
    data, schema = load(path, memory=MEMORY, **how)
    assert data.on_disk
    return data, schema


def assert_alike(found, expected):
    """Data on disk and in memory are the same, to the last bit."""
    assert found.fingerprint == expected.fingerprint
    loaded = found.load()
    np.testing.assert_array_equal(loaded.x, expected.x)
    for name in ("ids", "labels", "groups", "exposure", "context"):
        one, other = getattr(loaded, name), getattr(expected, name)
        assert (None if one is None else one.tolist()) == (None if other is None else other.tolist()), name
    for name in ("names", "context_names", "blocks", "label_name", "id_name", "missing", "shape"):
        assert getattr(found, name) == getattr(expected, name), name


def both(table, **how):
    """The rows in memory, and on disk as a folder of files with several row groups."""
    table.to_parquet("whole.parquet", index=False)
    (data, schema), (found, other) = load("whole.parquet", **how), stored(write_parts("parts", table), **how)
    assert_alike(found, data)
    assert other.to_json() == schema.to_json()
    return found, data


# --- tables with all roles --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["error", "mean", "model", "drop"])
def test_schema_and_rows_are_those_of_rows_in_memory(missing):
    table = mixed_table(300)
    if missing != "error":
        table.loc[5::40, "colour"] = None
        table.loc[7::50, "a"] = np.nan
        table.loc[100:190, "flag"] = np.nan  # more than a piece
    found, data = both(table, missing=missing, **ROLES)
    assert any("rows are read from disk, in 1kB of memory" in note for note in found.notes)
    kept = [note for note in found.notes if "read from disk" not in note]
    assert kept == list(data.notes) and found.warnings == data.warnings
    rows = [5, 299, 3, 3] if missing != "drop" else [5, 90, 3, 3]
    np.testing.assert_array_equal(found.take(rows).load().x, data.take(rows).x)
    pieces = list(found.pieces())
    assert len(pieces) > 1 and not any(piece.on_disk for piece in pieces)
    np.testing.assert_array_equal(np.concatenate([piece.ids for piece in pieces]), data.ids)


def test_a_folder_needs_no_bound():
    table = mixed_table(300)
    found, _ = load(write_parts("parts", table), **ROLES)
    assert found.on_disk and len(found) == 300


def test_data_that_fit_are_in_memory():
    mixed_table(300).to_parquet("x.parquet", index=False)
    assert not load("x.parquet", memory="1GB", **ROLES)[0].on_disk


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
def test_text_tables(name, how):
    table = mixed_table(400)
    table["grade"] = table["grade"].map("{:02d}".format)  # a text, not a number
    table.loc[[3, 200], "cell"] = ["007", "NA"]
    table.loc[300, "kind"] = "é, \n“a”" if "encoding" not in how else "é"
    table["whole"] = [*range(250), 0.5, *range(149)]  # in the first pieces
    table["truth"] = np.arange(400) % 3 == 0
    table.to_csv(name, index=False, **how)
    expected = load(name, **ROLES)[0]
    found, _ = stored(name, **ROLES)
    assert_alike(found, expected)
    assert [note for note in found.notes if "from disk" not in note] == list(expected.notes)


def test_numbers_as_categories_are_written_alike_in_all_pieces():
    table = pd.DataFrame({"dose": [1.0, 2.0] * 400 + [1.5, 2.0] * 400, "year": [2001, 2002] * 800})
    found, _ = both(table, categorical=["dose", "year"])
    assert found.schema.columns[0].categories == ("1.0", "1.5", "2.0")
    table.to_csv("x.csv", index=False)
    assert_alike(stored("x.csv", categorical=["dose", "year"])[0], load("x.csv", categorical=["dose", "year"])[0])


def test_numbers_that_name_rows_are_written_alike_in_all_pieces():
    table = pd.DataFrame({"a": np.arange(900.0) ** 1.5, "n": np.arange(900.0), "part": np.repeat([1.0, 2.0, 2.5], 300)})
    found, _ = both(table, id="n", label="part")
    assert found.ids.load()[[0, 899]].tolist() == ["0", "899"] and found.labels.load()[0] == "1.0"


@pytest.mark.parametrize("written", [str, lambda x: f" {x:.1f}"])
def test_columns_and_covariates_that_are_numbers_written_as_texts(written):
    table = mixed_table(300)
    table["age"], table["a"] = table["age"].round().map(written), table["a"].map(written)
    both(table, **ROLES)
    table.to_csv("x.csv", index=False)
    assert_alike(stored("x.csv", **ROLES)[0], load("x.csv", **ROLES)[0])


def test_one_column_with_two_roles():
    both(
        mixed_table(300).drop(columns=["time"]),
        label="batch",
        covariates=["batch"],
        group="patient",
        id="cell",
        categorical=["colour", "kind"],
    )


def test_the_index_of_a_frame_is_its_first_column():
    table = pd.DataFrame(numbered(300, 4), columns=list("abcd"), index=[f"r{i}" for i in range(300)])
    table.to_parquet("x.parquet")
    assert_alike(stored("x.parquet")[0], load("x.parquet")[0])
    table.rename_axis("cell").to_parquet("y.parquet")
    assert_alike(stored("y.parquet", id="cell")[0], load("y.parquet", id="cell")[0])


def test_categories_of_pandas():
    table = mixed_table(300).astype({"batch": "category"})
    table["site"] = pd.Categorical(np.arange(300) % 3)
    both(table, **{**ROLES, "covariates": ["batch", "site"]})


def test_a_column_without_values_in_one_file():
    table = mixed_table(300)
    table.loc[:99, ["colour", "a"]] = None
    both(table, missing="model", **ROLES)


def test_numbers_that_need_all_digits():
    table = pd.DataFrame({"a": np.arange(900.0), "b": [*range(899), 0.1]})  # the last one is not exact in float32
    both(table)
    assert spool._Description().single


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinite_values_are_missing(value):
    table = mixed_table(300)
    table.loc[250, "a"] = value
    both(table, missing="mean", **ROLES)
    with pytest.raises(MissingValuesError, match=r"'a' \(1\)"):
        load("parts", **ROLES)


# --- new data for a model ---------------------------------------------------------------------------------------------


def test_only_the_columns_of_a_model_are_read():
    write_parquet(Path("x.parquet"), numbered(900, 6))
    schema = load("x.parquet", **NAMED)[1]
    table = pq.read_table("x.parquet")
    pq.write_table(table.append_column("note", pa.array(["?"] * 900)).drop_columns(["kind"]), "y.parquet")
    with mock.patch.object(
        pq.ParquetFile, "iter_batches", autospec=True, side_effect=pq.ParquetFile.iter_batches
    ) as read:
        found = load("y.parquet", schema=schema, memory=MEMORY)[0]
    assert read.call_args.kwargs["columns"] == [*(f"g{i}" for i in range(6)), "cell"]
    expected = load("y.parquet", schema=schema)[0]
    np.testing.assert_array_equal(found.load().x, expected.x)
    assert found.load().ids.tolist() == expected.ids.tolist() and found.labels is None


def test_a_category_that_a_model_does_not_know():
    table = mixed_table(300)
    schema = load(write_parts("first", table), **ROLES)[1]
    table.loc[299, "colour"] = "mauve"
    with pytest.raises(CurvaeError, match=r"column 'colour' of parts holds categories .* not trained on: 'mauve'"):
        load(write_parts("parts", table), schema=schema)


def test_columns_that_a_model_needs():
    write_parquet(Path("x.parquet"), numbered(900, 6))
    schema = load("x.parquet", **NAMED)[1]
    write_parquet(Path("y.parquet"), numbered(900, 6), drop=["g1"])
    with pytest.raises(CurvaeError, match=r"y.parquet has no columns 'g1', which the model was trained on; add them"):
        load("y.parquet", schema=schema, memory=MEMORY)


# --- copies -----------------------------------------------------------------------------------------------------------


def copies():
    return [path for path in Path("cache").rglob("values") if path.exists()]


def test_a_copy_is_removed_with_the_data_unless_it_is_kept():
    table = mixed_table(300)
    folder = write_parts("parts", table)
    data, _ = stored(folder, **ROLES)
    assert len(copies()) == 1
    part = data.take([1, 2])
    del data
    assert len(part.load()) == 2 and len(copies()) == 1  # still in use
    del part
    assert not list(Path("cache").rglob("*.*"))
    kept = load(folder, cache="kept", **ROLES)[0].load()
    with mock.patch.object(spool._Writer, "write", side_effect=AssertionError):
        again = load(folder, cache="kept", **ROLES)[0]
    assert_alike(again, kept)
    del again
    assert [path.name for path in Path("kept").glob("*/values")] == ["values"]


def test_a_kept_copy_is_made_again_when_a_file_or_a_role_changes():
    table = mixed_table(300)
    folder = write_parts("parts", table)
    first = load(folder, cache="kept", **ROLES)[0]
    table.loc[[3, 9], "colour"] = table.loc[[9, 3], "colour"].to_numpy()
    write_parts("parts", table)
    os.utime(folder / "0.parquet", ns=(1, 1))
    assert load(folder, cache="kept", **ROLES)[0].fingerprint != first.fingerprint
    fewer, more = {**ROLES, "categorical": ["colour"]}, {**ROLES, "categorical": ["colour", "grade", "flag"]}
    table.to_parquet("whole.parquet", index=False)
    for roles, copied in ((fewer, 2), (more, 3), (ROLES, 3)):
        assert_alike(load(folder, cache="kept", **roles)[0], load("whole.parquet", **roles)[0])
        assert len(list(Path("kept").glob("*/values"))) == copied
    assert not list(Path("kept").glob("*.part"))


def test_the_copy_of_a_killed_process_is_removed_by_the_next_one():
    folder = write_parts("parts", mixed_table(300))
    cache = os.environ["XDG_CACHE_HOME"]

    def work():
        os.environ["XDG_CACHE_HOME"] = cache
        data, _ = load("parts", **ROLES)
        assert data.on_disk
        os.kill(os.getpid(), signal.SIGKILL)

    assert wait(child(work))
    assert len(copies()) == 1
    first, second = (load(folder, **ROLES)[0] for _ in range(2))
    assert len(copies()) == 2 and len(first) == len(second)


def test_progress_and_size_are_told():
    mixed_table(900).to_csv("x.csv", index=False)
    told = []
    stored("x.csv", counter=lambda task, rows: told.append((task, rows)) or told.append, **ROLES)
    (task, rows), *more = told
    assert task.startswith("copying ") and task.endswith("kB to disk") and rows == 902
    assert sum(more[-900 // 90 :]) <= 900


def test_a_disk_without_room(monkeypatch):
    mixed_table(300).to_parquet("x.parquet", index=False)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, 1000))
    refused(
        write_parts("parts", mixed_table(300)),
        r"^parts needs .*kB of disk for a copy of its rows, and 1kB are free in .*; make room there, or give another "
        "folder with `cache=…`",
    )
    assert not copies()


def test_a_folder_that_cannot_be_written():
    Path("file").write_text("")
    refused(write_parts("parts", mixed_table(300)), "rows cannot be copied to file: ", cache="file")


def test_two_threads_make_one_copy():
    from concurrent.futures import ThreadPoolExecutor

    folder = write_parts("parts", mixed_table(600))
    made = spool._Description.to_json
    with mock.patch.object(spool._Description, "to_json", autospec=True, side_effect=made) as ended:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: load(folder, cache="kept", **ROLES)[0].fingerprint, range(4)))
        assert len(set(found)) == 1 and ended.call_count == 1


def test_well_packed_text_is_not_read_into_memory():
    text = "a,b\n" + "1,2\n3,4\n" * 50_000
    Path("x.csv.gz").write_bytes(gzip.compress(text.encode()))
    assert Path("x.csv.gz").stat().st_size < 1000
    assert len(stored("x.csv.gz")[0]) == 100_000


# --- what is wrong ----------------------------------------------------------------------------------------------------


def refused(path, says, **how):
    with pytest.raises(CurvaeError, match=says) as error:
        load(path, **{"memory": MEMORY, **ROLES, **how})
    assert "\n" not in str(error.value)
    clear_frames(error.tb)  # they hold the data
    del error
    if copies():  # what still holds them does so in a circle
        gc.collect()
    assert not copies()


def column_refused(table, says, **how):
    refused(write_parts("parts", table), says, **how)


def test_texts_name_their_row_and_their_file():
    table = mixed_table(300).assign(note="1")
    table.loc[280, "note"] = "see above"
    column_refused(table, r"Numbers, with cells to correct: 'note' \('see above' in row 81 of 2.parquet\)")
    table.to_csv("x.csv", index=False)
    refused("x.csv", r"Numbers, with cells to correct: 'note' \('see above' in row 281\)")


def test_texts_that_nobody_asked_for():
    advice = r"categories: 'kind' \('minus' in row 1 of 0.parquet, 2 different texts\); use `categorical=\[\"kind\"\]`"
    column_refused(mixed_table(300).assign(kind=["minus", "plus"] * 150), advice.replace("`", "`?"), label=None)
    column_refused(mixed_table(300), "no column 'sort' for `label=…`", label="sort")


def test_texts_of_many_kinds_are_left_out(monkeypatch):
    monkeypatch.setattr(spool, "_MOST", 150)
    table = mixed_table(600).assign(note=[f"text {i % 400}" for i in range(600)])
    found, _ = stored(write_parts("parts", table), **ROLES)
    assert any("left out: 'note' (" in note for note in found.notes)


def test_names_that_nobody_asked_for(monkeypatch):
    monkeypatch.setattr(spool, "_MOST", 150)
    column_refused(mixed_table(600), r"Probably an id: 'cell' \('c0' in row 1 of 0.parquet", id=None)


def test_too_many_categories(monkeypatch):
    monkeypatch.setattr(spool, "_MOST", 3)  # of which colours are more
    column_refused(mixed_table(300), "column 'colour' of parts has more than 3 different values; leave it out")


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("colour", None, r"missing or infinite values, counted by column: 'colour' \(1\)"),
        ("batch", None, r"covariates of parts have missing or infinite values, counted by column: 'batch' \(1\)"),
        ("age", np.nan, r"covariates of parts have missing .* 'age' \(1\)"),
        ("time", 0.0, "exposure column 'time' of parts is not a positive number in 1 row"),
        ("patient", None, "group column 'patient' is empty in 1 row; give every row a group"),
        ("cell", "c3", "column 'cell': 'c3' given more than once"),
        ("cell", None, "column 'cell': 1 row without an id"),
    ],
)
def test_cells_of_columns_with_a_role(column, value, says):
    table = mixed_table(150)
    table.loc[120, column] = value
    column_refused(table, says)


def test_roles_that_cannot_be():
    table = mixed_table(300)
    column_refused(table, "no column 'bacth' for `covariates=…`; did you mean 'batch'", covariates=["bacth"])
    column_refused(table, "column 'cell' cannot be a covariate and an id", covariates=["cell"])
    column_refused(table.assign(batch="x"), "covariate 'batch' has the same value in every row of parts; leave it out")


def test_a_column_that_a_file_lacks():
    folder = write_parts("parts", mixed_table(300))
    mixed_table(300).drop(columns="b").to_parquet(folder / "1.parquet", index=False)
    refused(folder, "1.parquet has no column 'b', which 0.parquet has; add it, or remove the file")


@pytest.mark.parametrize(
    ("breaks", "says"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), "1.parquet cannot be read as Parquet: .*; write it"),
        (lambda path: path.write_bytes(b"no"), "1.parquet cannot be read as Parquet"),
    ],
)
def test_files_that_are_damaged(breaks, says):
    folder = write_parts("parts", mixed_table(300))
    breaks(folder / "1.parquet")
    refused(folder, says)


def test_an_empty_row_group():
    table = pa.table({"a": [1.0, 2.0, 4.0], "b": [0.5, 0.25, 3.0]})
    Path("parts").mkdir()
    with pq.ParquetWriter("parts/x.parquet", table.schema) as writer:
        for piece in (table[:2], table[:0], table[2:]):
            writer.write_table(piece)
    assert load("parts")[0].load().x.tolist() == [[1, 0.5], [2, 0.25], [4, 3]]


def test_without_pyarrow(monkeypatch):
    write_parquet(Path("x.parquet"), numbered(30, 3))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(CurvaeError, match=r"needs pyarrow to be read; pip install pyarrow"):
        load("x.parquet", memory=MEMORY)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n1,2\n3,4,5\n", "x.csv: line 3 has 3 fields instead of 2"),
        ("a,b\n1,2\n3\n", "x.csv: line 3 has 1 field instead of 2"),
        ("a,b\n", "x.csv has a header but no rows; add rows"),
        (",b\n1,2\n1,4\n", "column 1 of x.csv has no name; give it one"),
        ("a,b\n1,2\n3,x\n", r"x.csv has text in columns without a role\. .* to correct: 'b' \('x' in row 2\)"),
    ],
)
def test_text_tables_that_are_broken(text, says):
    Path("x.csv").write_text(text)
    refused("x.csv", says, memory=1, **dict.fromkeys(ROLES, ()) | dict.fromkeys(("label", "id", "group", "exposure")))


def test_a_parquet_file_is_copied_a_row_group_at_a_time(monkeypatch):
    """Three times the row groups take no more memory of Arrow."""
    monkeypatch.setattr(spool, "_CELLS", 100_000)
    peaks = []
    for groups in (4, 12):
        held = []
        x = np.random.default_rng(0).normal(size=(groups * 10_000, 20)).astype(np.float32)
        pq.write_table(pa.table({f"g{i}": x[:, i] for i in range(20)}), "rows.parquet", row_group_size=10_000)
        before = pa.total_allocated_bytes()

        def counter(task, rows, held=held, before=before):
            return lambda more: held.append(pa.total_allocated_bytes() - before)

        assert load("rows.parquet", memory="100kB", counter=counter)[0].on_disk
        peaks.append(max(held))
    assert peaks[1] < 1.5 * peaks[0]
