"""Tables of every shape that people have, good and bad."""

from __future__ import annotations

import csv
import gzip
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from curvae.data import Schema, load, load_graph, memory
from curvae.data.tables import TABLES
from curvae.errors import CurvaeError, FixableError
from reading import refusal, write

PLAIN = "a,b\n1,2.5\n3,4\n-5,6e-3\n"
CELLS = "name,type,size,colour\nc1,T,1.5,red\nc2,B,2.5,blue\nc3,T,4.0,red\n"


# --- forms that are understood ----------------------------------------------------------------------------------------

FORMS = {
    "comma": PLAIN,
    "semicolon": "a;b\n1;2.5\n3;4\n-5;6e-3\n",
    "decimal comma": "a;b\n1;2,5\n3;4\n-5;6e-3\n",
    "decimal comma, tab": "a\tb\n1\t2,5\n3\t4\n-5\t0,006\n",
    "tab": "a\tb\n1\t2.5\n3\t4\n-5\t6e-3\n",
    "bar": "a|b\n1|2.5\n3|4\n-5|6e-3\n",
    "BOM": "\ufeff" + PLAIN,
    "UTF-16": PLAIN.encode("utf-16"),
    "CRLF": PLAIN.replace("\n", "\r\n"),
    "old Mac": PLAIN.replace("\n", "\r"),
    "no newline at the end": PLAIN.rstrip(),
    "blank lines": "\n\n" + PLAIN.replace("\n", "\n\n") + "  \n",
    "spaces in the header": PLAIN.replace("a,b", '  a ,"  b  "'),
    "spaces around cells": "a, b\n 1 ,2.5\n3, 4 \n-5 , 6e-3\n",
    "quotes": '"a","b"\n"1","2.5"\n"3","4"\n"-5","6e-3"\n',
    "separator at the end of lines": "a,b,\n1,2.5,\n3,4,\n-5,6e-3,\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_give_the_same_data(tmp_path: Path, form: str) -> None:
    data, schema = load(write(tmp_path, FORMS[form]))
    assert data.names == ("a", "b") and data.shape == (2,) and data.blocks == ()
    assert data.ids.tolist() == ["0", "1", "2"] and data.labels is None and data.groups is None
    np.testing.assert_array_equal(data.x, [[1, 2.5], [3, 4], [-5, 0.006]])
    assert data.x.dtype == np.float64 and data.x.flags.c_contiguous
    assert data.warnings == ()
    assert data.fingerprint == load(write(tmp_path, PLAIN))[0].fingerprint
    assert Schema.from_json(schema.to_json()) == schema


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.txt", "t.CSV"])
def test_endings_and_gzip(tmp_path: Path, name: str) -> None:
    plain = load(write(tmp_path, PLAIN, name))[0]
    packed = load(write(tmp_path, gzip.compress(PLAIN.encode()), f"{name}.gz"))[0]
    assert plain.fingerprint == packed.fingerprint


def test_numbers_are_read_exactly(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((500, 3)) * 10.0 ** np.arange(-150, 350, 1)[:, None].clip(-150, 150)
    path = tmp_path / "t.csv"
    pd.DataFrame(x, columns=["a", "b", "c"]).to_csv(path, index=False)
    np.testing.assert_array_equal(load(path)[0].x, x)


def test_latin_1_is_read_with_a_note(tmp_path: Path) -> None:
    data = load(write(tmp_path, "größe,art\n1,ä\n2,ö\n".encode("latin-1")), label="art")[0]
    assert data.names == ("größe",) and data.labels is not None and data.labels.tolist() == ["ä", "ö"]
    assert any("Latin-1" in note for note in data.notes)


def test_decimal_commas_are_noted_and_thousands_are_not_taken_for_them(tmp_path: Path) -> None:
    assert any("decimal commas" in note for note in load(write(tmp_path, FORMS["decimal comma"]))[0].notes)
    assert "'b' ('1,234' in row 1, and '5,678')" in refusal(write(tmp_path, "a\tb\n1\t1,234\n2\t5,678\n"))


def test_roles(tmp_path: Path) -> None:
    path = write(tmp_path, "barcode,type,donor,g1,g2\n007,T,d1,1,0\n008,NA,d1,2,5\n009,,d2,3,1\n")
    data, schema = load(path, label="type", id="barcode", group="donor")
    assert data.names == ("g1", "g2") and data.label_name == "type"
    assert data.ids.tolist() == ["007", "008", "009"]
    assert data.labels is not None and data.labels.tolist() == ["T", "NA", ""]
    assert data.groups is not None and data.groups.tolist() == ["d1", "d1", "d2"]
    assert (schema.label, schema.id, schema.group) == ("type", "barcode", "donor")
    assert any("1 row without a label" in note for note in data.notes)
    assert "'donor' is empty in 1 row" in refusal(write(tmp_path, "donor,g\nd1,1\n,2\n"), group="donor")


def test_categorical_columns_become_one_feature_a_category(tmp_path: Path) -> None:
    data, schema = load(write(tmp_path, CELLS), id="name", label="type", categorical=["colour"])
    assert data.names == ("size", "colour=blue", "colour=red") and data.blocks == (0, 2)
    np.testing.assert_array_equal(data.x, [[1.5, 0, 1], [2.5, 1, 0], [4, 0, 1]])
    all_categorical, _ = load(write(tmp_path, "a,b\n10,x\n9,y\n9,z\n"), categorical=["a", "b"])
    assert all_categorical.names == ("a=9", "a=10", "b=x", "b=y", "b=z") and all_categorical.blocks == (2, 3)
    assert Schema.from_json(schema.to_json()) == schema


@pytest.mark.parametrize(
    ("content", "categorical", "names"),
    [
        ("a,a=b\nb=c,c\nx,y\n", ["a", "a=b"], ("a=b=c", "a=x", "a=b=c (2)", "a=b=y")),
        ("a,a=b\nb,1\nx,2\n", ["a"], ("a=b (2)", "a=x", "a=b")),
        ("a=b,a\n1,b\n2,x\n", ["a"], ("a=b", "a=b (2)", "a=x")),
        ("a,a=b,a=b (2)\nb,1,3\nx,2,5\n", ["a"], ("a=b (3)", "a=x", "a=b", "a=b (2)")),
        ("a,b\nx,y\nx (2),z\n", ["a", "b"], ("a=x", "a=x (2)", "b=y", "b=z")),
    ],
)
def test_no_two_features_have_one_name(
    tmp_path: Path, content: str, categorical: list[str], names: tuple[str, ...]
) -> None:
    data, schema = load(write(tmp_path, content), categorical=categorical)
    assert data.names == names and len(set(data.names)) == data.x.shape[1]
    again, _ = load(tmp_path / "t.csv", schema=Schema.from_json(schema.to_json()))
    assert again.names == names and again.fingerprint == data.fingerprint


def test_booleans_become_numbers(tmp_path: Path) -> None:
    data = load(write(tmp_path, "a,b,c\nTrue,true,1\nFalse,,2\nTrue,false,2\n"), missing="mean")[0]
    np.testing.assert_array_equal(data.x, [[1, 1, 1], [0, 0.5, 2], [1, 0, 2]])
    assert any("'a', 'b'" in note and "1 and 0" in note for note in data.notes)


def test_quoted_fields_may_hold_separators_quotes_and_newlines(tmp_path: Path) -> None:
    data = load(write(tmp_path, 'what,x\n"a, ""b""\nc",1\n"d;e",2\n'), label="what")[0]
    assert data.labels is not None and data.labels.tolist() == ['a, "b"\nc', "d;e"]


@pytest.mark.parametrize("header", ["", "Unnamed: 0"])
@pytest.mark.parametrize("values", [("0", "1", "2"), ("r1", "r2", "r3"), ("17", "4", "9")])
def test_an_index_without_a_name_is_the_id(tmp_path: Path, header: str, values: tuple[str, ...]) -> None:
    rows = "".join(f"{value},{n},{n * n}\n" for n, value in enumerate(values))
    data = load(write(tmp_path, f"{header},a,b\n{rows}"))[0]
    assert data.names == ("a", "b") and data.ids.tolist() == list(values)
    assert any("used as id" in note for note in data.notes)


def test_row_names_as_r_writes_them(tmp_path: Path) -> None:
    data = load(write(tmp_path, '"a"\t"b"\n"r1"\t1\t2\n"r2"\t3\t5\n', "t.txt"))[0]
    assert data.names == ("a", "b") and data.ids.tolist() == ["r1", "r2"]


def test_pandas_name_of_an_index_can_be_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path, ",a\nu,1\nv,5\nu,6\n")
    assert load(path, categorical=["Unnamed: 0"])[0].names == ("Unnamed: 0=u", "Unnamed: 0=v", "a")
    labels = load(path, label="Unnamed: 0")[0].labels
    assert labels is not None and labels.tolist() == ["u", "v", "u"]


def test_a_name_of_two_lines_becomes_one(tmp_path: Path) -> None:
    assert '`id="a b"`' in refusal(write(tmp_path, '"a\nb",c\nx,1\ny,2\n'))


def test_an_index_beside_an_id_is_left_out(tmp_path: Path) -> None:
    data = load(write(tmp_path, ",key,a\n0,x,1\n1,y,5\n"), id="key")[0]
    assert data.names == ("a",) and data.ids.tolist() == ["x", "y"]
    assert any("no name and is left out" in note for note in data.notes)


def test_a_nameless_column_of_measurements_is_refused(tmp_path: Path) -> None:
    assert "column 1 of t.csv has no name" in refusal(write(tmp_path, ",a\n0.5,1\n0.7,2\n"))
    assert "column 2 of t.csv has no name" in refusal(write(tmp_path, "a,\n0.5,1\n0.7,1\n"))


def test_a_missing_header_is_noticed(tmp_path: Path) -> None:
    data = load(write(tmp_path, "1.5;2,5\n3;4\n5;6\n".replace(".", ",")))[0]
    assert data.names == ("x1", "x2") and len(data) == 3 and data.x[0].tolist() == [1.5, 2.5]
    assert any("taken as data" in warning for warning in data.warnings)
    labelled = load(write(tmp_path, "2001,2002,2003\n1,2,x\n3,4,y\n"), label="2003")[0]
    assert labelled.names == ("2001", "2002") and len(labelled) == 2
    counted = load(write(tmp_path, "0,1,2\n1,2,7\n3,4,8\n"))[0]
    assert counted.names == ("0", "1", "2") and any("counts from 0" in note for note in counted.notes)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "options", "parts"),
    [
        ("", {}, ["t.csv is empty"]),
        (" \n\n", {}, ["t.csv is empty"]),
        ("a,b\n", {}, ["header but no rows"]),
        ("a,b\n1,2\n", {}, ["only 1 row", "at least 2"]),
        (
            CELLS,
            {"id": "name"},
            [
                "categories: 'type' ('T' in row 1, 2 different texts), 'colour'",
                'use `categorical=["type", "colour"]`',
            ],
        ),
        (
            "a,b\n1,\n2,5\n2,5\ninf,6\n",
            {},
            ["'a' (1), 'b' (1)", 'use `missing="drop"` or `missing="mean"`, or train with'],
        ),
        ("a,b\n1,\n2,5\ninf,6\n", {}, ["'a' (1), 'b' (1)", 'use `missing="mean"`, or train with `missing="model"`']),
        ("a,b\n1,2\n,\n3,5\n", {}, ['; use `missing="drop"` or `missing="mean"`']),
        ("a,b\nNA,\n,\n", {"missing": "mean"}, ["without a single value: 'a', 'b'"]),
        ("a,b\nNA,2\n1,\n", {"missing": "drop"}, ["every row has a missing value", 'missing="mean"']),
        ("a,b\nNA,2\n1,3\n4,\n", {"missing": "drop"}, ["only 1 row"]),
        ("a,b,a\n1,2,3\n4,5,6\n", {}, ["same name: 'a'"]),
        ("a,b, a\n1,2,3\n4,5,6\n", {}, ["same name: 'a'"]),
        ("k,a\nx,1\nx,2\n", {"id": "k"}, ["column 'k'", "'x'", "more than once"]),
        ("k,a\nx,1\n,2\n", {"id": "k"}, ["1 row without an id"]),
        (
            "Species,a\nx,1\ny,2\n",
            {"label": "species"},
            ["no column 'species' for `label=…`", "did you mean 'Species'?"],
        ),
        ("a,b\n1,2\n3,4\n", {"label": "zzz"}, ["no column 'zzz'", "its columns are 'a', 'b'"]),
        ("a,b\n1,2\n3,4\n", {"categorical": ["c"]}, ["no column 'c' for `categorical=…`"]),
        ("a,b\n1,2\n3,4\n", {"categorical": ["a"], "label": "a"}, ["'a' cannot be a feature and a label"]),
        ("a\nx\ny\n", {"label": "a"}, ["no column left to use as a feature"]),
        ("a,b\n1,2\n3,4,5\n6,7\n", {}, ["line 3 has 3 fields", "instead of 2"]),
        ("a,b\n1,2\n3\n6,7\n", {}, ["line 3 has 1 field "]),
        ("a,b\n1,2\n3\n6,7\n", {"missing": "mean"}, ["line 3 has 1 field "]),
        ("a,b\n1,2,\n3,4\n6,7\n", {}, ["line 2 has 3 fields"]),
        ('a,b\n1,2\n3,"4\n6,7\n', {}, ["cannot be read as a table"]),
        (b"a,b\n1,2\0\n", {}, ["not a text file"]),
        ("a,b\n".encode("utf-16")[:-1], {}, ["not a text file"]),
        ("a b\n1 2\n3 4\n", {}, ["'a b' ('1 2' in row 1, and '3 4')"]),
        ("a,b\n1,1_2\n3,1_3\n", {}, ["cells to correct: 'b' ('1_2' in row 1, and '1_3')"]),
        ("a\nx\ny\n", {}, ["Probably an id: 'a'", "No column is left: add one"]),
    ],
)
def test_refused(tmp_path: Path, content: str | bytes, options: dict[str, Any], parts: list[str]) -> None:
    message = refusal(write(tmp_path, content), **options)
    assert all(part in message for part in parts), message


@pytest.mark.parametrize(
    ("content", "where"),
    [
        ("k,a\nx,1\n{},2\n", "row 2 has a cell of 140,000 characters in column 'k'"),
        ("k,a\n" + "x,1\n" * 40 + "{},2\n", "row 41 has a cell of 140,000 characters in column 'k'"),
        ("k,a\nx,1\ny,{}\n", "row 2 has a cell of 140,000 characters in column 'a'"),
        ("k,a\nx,1\ny\n{},2\n", "row 3 has a cell of 140,000 characters in column 'k'"),
        ("{},a\nx,1\ny,2\n", "the header has a cell of 140,000 characters in column 1"),
    ],
)
@pytest.mark.parametrize("filling", ["x", "x;"])
def test_a_cell_longer_than_the_csv_module_reads_is_named(
    tmp_path: Path, content: str, where: str, filling: str
) -> None:
    limit = csv.field_size_limit()
    options = {} if content.startswith("{") else {"label": "k"}
    message = refusal(write(tmp_path, content.format(filling * (140_000 // len(filling)))), **options)
    assert where in message and len(message) < 200
    assert csv.field_size_limit() == limit


def test_a_long_cell_of_an_edge_list_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "a b\nb c\n" + "x" * 140_000 + " d\n", "g.edges")
    with pytest.raises(CurvaeError, match="g.edges: row 3 has a cell of 140,000 characters in column 1"):
        load_graph(path)


def test_broken_gzip_is_refused(tmp_path: Path) -> None:
    assert "not a complete gzip file" in refusal(write(tmp_path, PLAIN, "t.csv.gz"))
    packed = gzip.compress(PLAIN.encode() * 1000)
    assert "not a complete gzip file" in refusal(write(tmp_path, packed[: len(packed) // 2], "t.csv.gz"))


def test_option_values(tmp_path: Path) -> None:
    path = write(tmp_path, PLAIN)
    assert "'zero'" in refusal(path, missing="zero")
    assert "list of columns" in refusal(path, categorical="a")


def test_a_table_too_large_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "a,b\n" + "1,2\n" * 1000)
    monkeypatch.setattr(pd, "read_csv", lambda *_, **__: pytest.fail("read"))
    monkeypatch.setattr(memory, "available", lambda: 10_000)
    assert "needs about" in refusal(path) and "fewer rows" in refusal(path)


def test_one_column_a_category_may_be_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "a,b\n" + "".join(f"v{n},{n}\n" for n in range(1000)))
    monkeypatch.setattr(memory, "available", lambda: 1_000_000)
    assert "one column a category" in refusal(path, categorical=["a"])


# --- what is noted and warned of --------------------------------------------------------------------------------------


def test_missing_values_are_filled_on_request(tmp_path: Path) -> None:
    path = write(tmp_path, "a,b,c\n1,5,x\n-inf,7,x\n3,NA,y\n5,6,\n")
    filled, schema = load(path, categorical=["c"], missing="mean")
    np.testing.assert_array_equal(filled.x, [[1, 5, 1, 0], [3, 7, 1, 0], [3, 6, 0, 1], [5, 6, 1, 0]])
    assert [column.fill for column in schema.columns] == [3.0, 6.0, 0.0]
    assert any("'a' (1), 'b' (1), 'c' (1)" in note for note in filled.notes)


def test_dropped_rows_take_their_labels_along(tmp_path: Path) -> None:
    path = write(tmp_path, "k,l,g,a\nx,p,1,1\ny,q,1,\nz,r,2,4\n")
    data = load(path, id="k", label="l", group="g", missing="drop")[0]
    assert data.labels is not None and data.groups is not None
    assert (data.ids.tolist(), data.labels.tolist(), data.groups.tolist()) == (["x", "z"], ["p", "r"], ["1", "2"])
    assert any("1 row" in note and "'a' (1)" in note for note in data.notes)


def test_columns_that_say_nothing_are_left_out(tmp_path: Path) -> None:
    data, schema = load(write(tmp_path, "a,b,c,d,e\n1,7,,x,0\n2,,,x,0\n2,7,NA,,0\n"))
    assert data.x.tolist() == [[1], [2], [2]] and schema.column_names == ["a"] and schema.blocks == ()
    assert data.notes == ("left out: 'd' (constant), 'b' (constant), 'c' (no values), 'e' (constant).",)
    assert load(tmp_path / "t.csv", schema=schema)[0].x.tolist() == data.x.tolist()
    notes = [f"{n}\tsee {n}\t{n % 2}" for n in range(40)]
    data = load(write(tmp_path, "\n".join(["k\tnote\ta", *notes])), id="k")[0]
    assert data.names == ("a",) and data.notes == ("left out: 'note' (40 different texts in 40 rows).",)


def test_all_columns_are_looked_at_at_once(tmp_path: Path) -> None:
    rows = [
        f"c{n},{'TB'[n % 2]},p{n % 3},{'' if n == 3 else n / 7},{n % 4},b{n % 2},7,{'' if n == 5 else 'uv'[n % 2]}"
        for n in range(20)
    ]
    table = write(tmp_path, "\n".join(["cell,my type,plate,x,class,batch,flat,kind", *rows]))
    with pytest.raises(FixableError) as caught:
        load(table)
    assert caught.value.fixes == [
        (("id", "cell"),),
        (("categorical", "my type"),),
        (("covariates", "plate"), ("categorical", "plate")),
        (("covariates", "batch"), ("categorical", "batch")),
        (("categorical", "kind"),),
        (("label", "class"),),
        (("missing", "model"), ("missing", "mean"), ("missing", "drop")),
    ]
    assert ". Missing values: 'x' (1), 'kind' (1). Left out: 'flat' (constant); use " in str(caught.value)
    columns = {"categorical": ["my type", "kind"], "covariates": ["plate", "batch"]}
    advice = 'use `id="cell"`, `categorical=["my type", "kind"]`, `covariates=["plate", "batch"]`, `label="class"`'
    assert advice in str(caught.value) and caught.value.parameters[:2] == ("id", "categorical")
    data, schema = load(table, id="cell", **columns, label="class", missing="model")
    assert schema.column_names == ["my type", "x", "kind"] and data.label_name == "class"


@pytest.mark.parametrize(
    ("column", "values", "warned"),
    [
        ("nr", range(5), True),
        ("nr", (4, 2, 3, 6, 5), True),
        ("nr", (1, 2, 3, 4, 4), False),
        ("nr", (1, 2, 3, 4, 9), False),
        ("cell_id", (1, 2, 3, 4, 9), True),
        ("Index", (1, 2, 3, 4, 9), True),
        ("grid", (1, 2, 3, 4, 9), False),
        ("id", (1.5, 2, 3, 4, 9), False),
    ],
)
def test_a_number_that_looks_like_an_id_is_warned_of(tmp_path: Path, column: str, values: Any, warned: bool) -> None:
    rows = "".join(f"{value},{n % 2}\n" for n, value in enumerate(values))
    warnings = load(write(tmp_path, f"{column},a\n{rows}"))[0].warnings
    assert any(f'id="{column}"' in warning for warning in warnings) == warned


def test_many_more_columns_than_rows_are_warned_of(tmp_path: Path) -> None:
    wide = np.random.default_rng(0).standard_normal((4, 30))
    path = tmp_path / "t.csv"
    pd.DataFrame(wide).add_prefix("g").to_csv(path, index=False)
    assert any("transposed?" in warning for warning in load(path)[0].warnings)
    pd.DataFrame(wide.T).add_prefix("g").to_csv(path, index=False)
    assert load(path)[0].warnings == ()


@pytest.mark.parametrize("value", ["9007199254740993", "123456789012345678901234567890"])
def test_integers_beyond_the_exact_ones_are_warned_of(tmp_path: Path, value: str) -> None:
    path = write(tmp_path, f"a,k\n1,{value}\n2,5\n")
    data = load(path)[0]
    assert data.x[0, 1] == float(value) and any("2^53" in warning and "'k'" in warning for warning in data.warnings)
    named = load(path, id="k")[0]
    assert named.ids.tolist() == [value, "5"] and named.warnings == ()


# --- new data for a trained run ---------------------------------------------------------------------------------------


@pytest.fixture
def schema(tmp_path: Path) -> Schema:
    fitted = load(write(tmp_path, CELLS, "fit.csv"), id="name", label="type", categorical=["colour"])[1]
    return Schema.from_json(fitted.to_json())


def test_columns_are_matched_by_name(tmp_path: Path, schema: Schema) -> None:
    data, same = load(write(tmp_path, "colour,new,name,size\nred,zzz,c9,7\n"), schema=schema)
    assert same is schema and data.names == ("size", "colour=blue", "colour=red")
    np.testing.assert_array_equal(data.x, [[7, 0, 1]])
    assert data.ids.tolist() == ["c9"] and data.labels is None and data.label_name is None
    assert data.notes == ("columns that the model was not trained on are left out: 'new'.",)


def test_labels_of_new_data_are_used_where_they_are(tmp_path: Path, schema: Schema) -> None:
    data = load(write(tmp_path, "type,colour,size\nT,red,1\n"), schema=schema)[0]
    assert data.labels is not None and data.labels.tolist() == ["T"] and data.ids.tolist() == ["0"]
    other = load(write(tmp_path, "kind,colour,size\nK,red,1\n"), schema=schema, label="kind")[0]
    assert other.labels is not None and other.labels.tolist() == ["K"]


def test_missing_values_of_new_data_take_the_means_of_the_fit(tmp_path: Path, schema: Schema) -> None:
    path = write(tmp_path, "size,colour\n,red\n100,\n,\n")
    filled = load(path, schema=schema, missing="mean")[0]
    mean = (1.5 + 2.5 + 4.0) / 3
    np.testing.assert_allclose(filled.x, [[mean, 0, 1], [100, 0, 1], [mean, 0, 1]], rtol=1e-15)
    assert "'size' (2), 'colour' (2)" in refusal(path, schema=schema)


def test_constant_and_wide_new_data_is_not_judged(tmp_path: Path, schema: Schema) -> None:
    data = load(write(tmp_path, "size,colour\n5,red\n5,red\n"), schema=schema)[0]
    assert data.warnings == () and not any("constant" in note for note in data.notes)


@pytest.mark.parametrize(
    ("content", "options", "parts"),
    [
        ("size\n1\n2\n", {}, ["has no columns 'colour'"]),
        ("size,colour\n1,green\n2,red\n", {}, ["'colour'", "'green'", "it knows 'blue', 'red'"]),
        ("size,colour\nbig,red\n2,red\n", {}, ["'size' ('big' in row 1)", "trained on numbers"]),
        ("size,colour\n1,red\n", {"label": "nope"}, ["no column 'nope'"]),
        ("size,colour\n1,red\n", {"categorical": ["size"]}, ["leave out `categorical=…`"]),
        ("name,size,colour\nc,1,red\nc,2,red\n", {}, ["column 'name'", "'c'", "more than once"]),
    ],
)
def test_new_data_refused(
    tmp_path: Path, schema: Schema, content: str, options: dict[str, Any], parts: list[str]
) -> None:
    message = refusal(write(tmp_path, content), schema=schema, **options)
    assert all(part in message for part in parts), message


# --- Parquet ----------------------------------------------------------------------------------------------------------


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(
        {
            "key": [7, 8, 9],
            "type": pd.Categorical(["T", "B", "T"]),
            "n": np.array([1, 2, 3], dtype=np.int32),
            "x": np.array([0.5, 1.5, 2.5], dtype=np.float32),
            "flag": [True, False, True],
            "colour": [1.0, 2.0, 1.0],
        }
    )
    path = tmp_path / "t.parquet"
    frame.to_parquet(path)
    data, schema = load(path, id="key", label="type", categorical=["colour"])
    assert data.names == ("n", "x", "flag", "colour=1", "colour=2") and data.ids.tolist() == ["7", "8", "9"]
    np.testing.assert_array_equal(data.x, [[1, 0.5, 1, 1, 0], [2, 1.5, 0, 0, 1], [3, 2.5, 1, 1, 0]])
    frame.to_csv(tmp_path / "t.csv", index=False)
    text = pd.read_csv(tmp_path / "t.csv", dtype=str).replace({"colour": {"1.0": "1", "2.0": "2"}})
    text.to_csv(tmp_path / "t.csv", index=False)
    assert load(tmp_path / "t.csv", schema=schema)[0].fingerprint == data.fingerprint
    frame.set_index("key").rename_axis(None)[["x"]].rename(columns={"x": " x "}).to_parquet(path)
    indexed = load(path)[0]
    assert indexed.ids.tolist() == ["7", "8", "9"] and indexed.names == ("x",)
    frame.assign(n=pd.array([1, None, 3], dtype="Int64"))[["n", "x"]].to_parquet(path)
    assert "'n' (1)" in refusal(path)
    frame.assign(when=pd.Timestamp("2020-01-01"))[["when", "x"]].to_parquet(path)
    assert load(path)[0].notes == ("left out: 'when' (constant).",)
    frame.assign(when=pd.date_range("2020-01-01", periods=3))[["when", "x"]].to_parquet(path)
    assert refusal(path).endswith('use `id="when"`')
    monkeypatch.setattr(memory, "available", lambda: 10)
    assert "3 rows × 2 columns" in refusal(path)
    assert "cannot be read as Parquet" in refusal(write(tmp_path, PLAIN, "bad.parquet"))


def test_parquet_without_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert "pip install pyarrow or 'curvae[parquet]'" in refusal(write(tmp_path, PLAIN, "t.parquet"))


def test_a_format_of_tables_is_registered_in_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLES, ".rows", lambda path: pd.DataFrame({"a": [1, 2], "kind": ["x", "y"]}))
    data, _ = load(write(tmp_path, b"\0anything", "t.ROWS"), label="kind", memory="1MB")
    assert data.x.tolist() == [[1.0], [2.0]] and data.labels is not None and data.labels.tolist() == ["x", "y"]
    assert ".rows" in refusal(tmp_path / "nothing.csv")
    graph = load_graph([("1", "2")], nodes=tmp_path / "t.ROWS", label="kind")
    assert graph.labels is not None and graph.labels.tolist() == ["x", "y"]


def test_the_working_directory_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}).to_parquet(folder / "0.parquet")
    monkeypatch.chdir(folder)
    assert refusal(".").startswith("parts has text in columns")


@pytest.mark.parametrize(
    ("columns", "own"),
    [
        ("ball_1,tangent_1,radius,sigma", True),
        ("h1_ball_1,e2_1,tangent_1,tangent_2,radius,h1_sigma,e2_sigma", True),
        ("ball_1,tangent_1,radius,other", False),
        ("ball_1,radius,sigma", False),
    ],
)
def test_texts_of_maps_are_read_as_they_were(tmp_path, columns, own):
    """Also of products: an apostrophe that guards a formula goes."""
    path, count = tmp_path / "embedding.csv", columns.count(",") + 1
    rows = [f"{name},a,train,{','.join(value * count)}" for name, value in (("'=1+1", "1"), ("b", "2"))]
    path.write_text("\n".join([f"id,label,split,{columns}", *rows]))
    data, _ = load(path, id="id", label="label", categorical=("split",))
    assert data.ids[0] == ("=1+1" if own else "'=1+1")


EDGES = {
    "texts": "who,whom\nann,ben\nben,cem\ncem,dan\n",
    "texts and a weight": "who,whom,weight\nann,ben,2\nben,cem,1\ncem,dan,0.5\n",
    "blanks": "1 2\n1 3\n2 3\n",
    "numbers": "from,to\n1,2\n1,3\n2,3\n",
    "numbers and a weight": "node1,node2,weight\n1,2,0.5\n1,3,2\n2,3,1\n",
    "no header": "1,2\n1,3\n2,3\n",
}
NO_EDGES = {
    "real numbers": "from,to\n1.5,2\n1,3\n2,3\n",
    "measurements": "age,weight\n41,70\n70,41\n12,41\n",
    "counts": "gene1,gene2\n0,1\n1,0\n2,2\n1,2\n",
    "other ranges": "x1,x2\n1,100\n2,101\n3,104\n",
    "categories": "sex,class\n" + "f,first\nm,second\nm,first\n" * 3,
    "four columns": "from,to,x,y\n1,2,0,0\n1,3,0,1\n2,3,1,1\n",
    "a label": "from,to,label\n1,2,a\n1,3,b\n2,3,b\n",
}


@pytest.mark.parametrize("case", [*EDGES, *NO_EDGES])
def test_edges_of_a_graph_are_no_rows(tmp_path: Path, case: str) -> None:
    path = write(tmp_path, (EDGES | NO_EDGES)[case], "my {1}.csv")
    try:
        said = " ".join(load(path)[0].notes)
    except CurvaeError as error:
        said = str(error)
        assert "categorical=[" in said or case == "a label"
    assert (f"use curvae graph '{path}'" in said) == (case in EDGES)


def test_columns_with_a_role_are_no_edges(tmp_path: Path) -> None:
    assert load(write(tmp_path, EDGES["numbers"]), label="to")[0].notes == ()
