"""Columns of all roles in tables that are read in pieces: what is found of them is what is found in memory."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pandas as pd
import pytest

from curvae.data import Arrays, load, open_stream
from curvae.data.streams import stream as survey
from curvae.data.streams.stream import Moments
from curvae.errors import CurvaeError
from streaming import MEMORY, mixed_table, write_parts

ROLES = {
    "label": "kind",
    "id": "cell",
    "group": "patient",
    "categorical": ["colour", "grade"],
    "exposure": "time",
    "covariates": ["batch", "age"],
}


@pytest.fixture(autouse=True)
def _place(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def both(table, missing="error", **roles):
    """The rows in memory, and as a folder of files with several row groups."""
    table.to_parquet("whole.parquet", index=False)
    return load("whole.parquet", missing=missing, **roles), open_stream(
        write_parts("parts", table), missing=missing, memory=MEMORY, **roles
    )


def assert_alike(found, expected):
    np.testing.assert_allclose(found.x, expected.x, rtol=1e-13)
    for name in ("ids", "labels", "groups", "exposure"):
        one, other = getattr(found, name), getattr(expected, name)
        assert (None if one is None else one.tolist()) == (None if other is None else other.tolist()), name
    if expected.context is not None:
        np.testing.assert_allclose(found.context, expected.context, atol=1e-12)
    assert found.names == expected.names and found.context_names == expected.context_names
    assert found.blocks == expected.blocks


def assert_schema(found, expected):
    """Equal but for the last digits of means."""
    found, expected = found.to_json(), expected.to_json()
    for kind in ("columns", "covariates"):
        for one, other in zip(found.pop(kind, []), expected.pop(kind, []), strict=True):
            for figure in ("fill", "scale"):
                assert one.pop(figure, 1) == pytest.approx(other.pop(figure, 1), rel=1e-12)
            assert one == other
    assert found == expected


@pytest.mark.parametrize("missing", ["error", "mean", "model"])
def test_schema_rows_and_figures_are_those_of_rows_in_memory(missing):
    table = mixed_table(600)
    if missing != "error":
        table.loc[5::40, "colour"] = None
        table.loc[7::50, "a"] = np.nan
        table.loc[200:290, "flag"] = np.nan  # more than a row group
    (data, schema), stream = both(table, missing, **ROLES)
    assert len(stream.blocks.sizes) > 6
    assert_schema(stream.schema, schema)
    assert_alike(stream.take(np.arange(600)), data)
    x, known = np.asarray(data.x), stream.known
    np.testing.assert_allclose(known.mean, np.nanmean(x, 0), rtol=1e-12)
    np.testing.assert_allclose(known.deviation, np.nanstd(x, 0), rtol=1e-9)
    np.testing.assert_array_equal(known.low, np.nanmin(x, 0))
    np.testing.assert_array_equal(known.high, np.nanmax(x, 0))
    assert stream.mean_exposure == pytest.approx(data.exposure.mean(), rel=1e-12)
    assert stream.groups == pd.Series(data.groups).value_counts().to_dict()


@pytest.mark.parametrize("missing", ["error", "model"])
def test_covariances_with_covariates(missing):
    table = mixed_table(600)
    if missing == "model":
        table.loc[7::50, "a"] = np.nan
        table.loc[5::40, "colour"] = None
    (data, _), stream = both(table, missing, **ROLES)
    x, context = np.asarray(data.x, np.float64), data.context
    x = np.where(np.isnan(x), np.nanmean(x, 0), x)
    apart = context - context.mean(0)
    moments = stream.moments
    np.testing.assert_allclose(moments.centre, context.mean(0), atol=1e-12)
    np.testing.assert_allclose(moments.spread, apart.T @ apart, atol=1e-9)
    np.testing.assert_allclose(moments.covariance, apart.T @ (x - x.mean(0)), rtol=1e-9, atol=1e-9 * np.abs(x).max())


def test_covariances_of_some_of_the_rows():
    """Around any origin, and without rows that were among them."""
    random = np.random.default_rng(0)
    context, x = random.normal(size=(90, 3)), random.normal(5, 1, size=(90, 2))
    x[4::9, 1] = np.nan
    parts = [Arrays(x[rows], context=context[rows]) for rows in (slice(0, 40), slice(40, 90), slice(70, 90))]
    one, two, out = (Moments.of(part, np.array([1.0, -2.0])) for part in parts)
    found, x, context = one.plus(two).plus(out, -1.0), x[:70], context[:70]
    x = np.where(np.isnan(x), np.nanmean(x, 0), x)
    apart = context - context.mean(0)
    np.testing.assert_allclose(found.covariance, apart.T @ (x - x.mean(0)), atol=1e-11)
    np.testing.assert_allclose(found.spread, apart.T @ apart, atol=1e-11)


def test_a_pass_is_remembered_with_the_roles():
    table = mixed_table(200)
    folder = write_parts("parts", table)
    first = open_stream(folder, memory=MEMORY, **ROLES)
    with mock.patch.object(survey, "summarised", side_effect=AssertionError):
        again = open_stream(folder, memory=MEMORY, **ROLES)
    assert again.fingerprint == first.fingerprint and again.groups == first.groups
    np.testing.assert_array_equal(again.moments.products, first.moments.products)
    other = open_stream(folder, memory=MEMORY, **{**ROLES, "categorical": ["colour"]})
    assert "grade" in other.schema.names and other.fingerprint != first.fingerprint
    table.loc[[3, 9], "colour"] = table.loc[[9, 3], "colour"].to_numpy()  # how often each occurs stays what it is
    changed = open_stream(write_parts("changed", table), memory=MEMORY, **ROLES)
    assert changed.fingerprint != first.fingerprint


def test_numbers_as_categories_are_written_alike_in_all_pieces():
    table = pd.DataFrame({"dose": [1.0, 2.0] * 50 + [1.5, 2.0] * 50, "year": [2001, 2002] * 100})
    (data, schema), stream = both(table, categorical=["dose", "year"])
    assert schema.columns[0].categories == stream.schema.columns[0].categories == ("1.0", "1.5", "2.0")
    assert_alike(stream.take(np.arange(200)), data)


def test_a_column_without_values_in_one_file():
    table = mixed_table(300)
    table.loc[:99, ["colour", "a"]] = None
    folder = write_parts("parts", table)
    stream = open_stream(folder, memory=MEMORY, missing="model", **ROLES)
    x = stream.take(np.array([0, 150])).x
    assert np.isnan(x).sum(1).tolist() == [1 + sum("colour" in name for name in stream.schema.names), 0]


def test_covariates_that_are_numbers_written_as_texts():
    table = mixed_table(200)
    table["age"] = table["age"].round().astype(int).astype(str)
    (data, schema), stream = both(table, **ROLES)
    assert_schema(stream.schema, schema)
    assert_alike(stream.take(np.arange(200)), data)


@pytest.mark.parametrize("name", ["table.csv", "table.tsv.gz"])
def test_text_tables(name):
    table = mixed_table(300)
    table["grade"] = table["grade"].map("{:02d}".format)  # a text, not a number
    table.to_csv(name, index=False, sep="\t" if "tsv" in name else ",")
    (data, schema), stream = load(name, **ROLES), open_stream(name, memory=MEMORY, **ROLES)
    assert_schema(stream.schema, schema)
    assert_alike(stream.take(np.arange(300)), data)


# --- what is wrong ----------------------------------------------------------------------------------------------------


def refused(table, says, opened=open_stream, **how):
    with pytest.raises(CurvaeError, match=says) as error:
        opened(write_parts("parts", table), memory=MEMORY, **ROLES | how)
    assert "\n" not in str(error.value)


def test_a_category_that_a_model_does_not_know():
    table = mixed_table(300)
    schema = open_stream(write_parts("first", table), memory=MEMORY, **ROLES).schema
    table.loc[299, "colour"] = "mauve"
    stream = open_stream(write_parts("parts", table), schema=schema, memory=MEMORY)
    with pytest.raises(CurvaeError, match=r"column 'colour' of 2.parquet holds categories .* not trained on: 'mauve'"):
        stream.take(np.arange(300))


def test_texts_name_their_row():
    table = mixed_table(300)
    table["note"] = "1"
    table.loc[280, "note"] = "see above"
    refused(table, r"2.parquet has text in column 'note' \('see above' in row 81\); use categorical=")


def test_a_column_whose_kind_changes():
    table = mixed_table(300)
    folder = write_parts("parts", table)
    table[200:].assign(colour=1.0).to_parquet(folder / "2.parquet", index=False)
    with pytest.raises(CurvaeError, match=r"'colour' holds numbers in 2.parquet and string in 0.parquet; write both"):
        open_stream(folder, memory=MEMORY, **ROLES)


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("colour", None, r"missing or infinite values, counted by column: 'colour' \(1\)"),
        ("batch", None, r"covariates of parts have missing or infinite values, counted by column: 'batch' \(1\)"),
        ("age", np.nan, r"covariates of 1.parquet have missing .* 'age' \(1\)"),
        ("time", 0.0, "exposure column 'time' of 1.parquet is not a positive number in 1 row"),
        ("patient", None, "group column 'patient' is empty in 1 row; give every row a group"),
    ],
)
def test_missing_values_of_columns_with_a_role(column, value, says):
    table = mixed_table(300)
    table.loc[150, column] = value
    refused(table, says)


def test_roles_that_cannot_be():
    table = mixed_table(300)
    refused(table, "no column 'bacth' for covariates=…; did you mean 'batch'", covariates=["bacth"])
    refused(table, "column 'cell' cannot be a covariate and an id", covariates=["cell"])
    refused(table.assign(batch="x"), "covariate 'batch' has the same value in every row of parts; leave it out")


def test_too_many_categories(monkeypatch):
    monkeypatch.setattr(survey, "MOST", 3)  # of which grades are more
    refused(mixed_table(300), "column 'grade' of parts has more than 3 different values; leave it out")
