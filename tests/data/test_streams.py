"""Files that are read in pieces: the same rows, exact figures of their columns, and one line for what is broken."""

from __future__ import annotations

import math
import os
import sys
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curvae.data import open_stream
from curvae.data.dataset import MissingValuesError
from curvae.data.streams import blocks
from curvae.data.streams import stream as survey
from curvae.data.streams.stream import Summary
from curvae.errors import CurvaeError
from curvae.models.likelihoods import choose_likelihood
from streaming import MEMORY, numbered, write_parquet


@pytest.fixture(autouse=True)
def _cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def saved(path, x):
    np.save(path, x)
    return path


# --- figures of the columns -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0.0, 1e7])
@pytest.mark.parametrize("gaps", [False, True])
def test_merged_figures_are_those_of_all_rows(offset, gaps):
    random = np.random.default_rng(0)
    x = random.normal(size=(1000, 4)) * [1, 1e-3, 1e3, 1] + offset
    x[:, 3] = 5.0
    if gaps:
        x[random.random(x.shape) < 0.2] = np.nan
    pieces = np.split(x, [1, 7, 400, 401, 900])
    found = Summary.of(pieces[0])
    for piece in pieces[1:]:
        found = found.merge(Summary.of(piece, found.origin))
    for j, column in enumerate(x.T):
        values = column[~np.isnan(column)].tolist()
        mean = math.fsum(values) / len(values)
        square = math.fsum((value - mean) ** 2 for value in values)
        assert found.present[j] == len(values)
        assert found.mean[j] == pytest.approx(mean, abs=4e-16 * max(map(abs, values)))
        assert found.deviation[j] == pytest.approx(math.sqrt(square / len(values)), rel=1e-11, abs=1e-12)
        assert (found.low[j], found.high[j]) == (min(values), max(values))


def test_the_mean_without_some_rows():
    x = np.random.default_rng(1).normal(size=(60, 3)) + 4
    np.testing.assert_allclose(Summary.of(x).mean_without(x[::7]), np.delete(x, np.s_[::7], 0).mean(0), rtol=1e-14)


@pytest.mark.parametrize(
    ("last", "likelihood"), [(1.0, "bernoulli"), (2.0, "gaussian"), (0.5, "gaussian"), (-1.0, "gaussian")]
)
def test_one_value_of_the_last_row_counts(tmp_path, last, likelihood):
    x = (np.random.default_rng(2).random((2000, 8)) < 0.5).astype(np.float64)
    x[-1, 3] = last
    stream = open_stream(saved(tmp_path / "x.npy", x), memory=MEMORY)
    assert len(stream.blocks.sizes) > 5
    assert choose_likelihood(stream.examples.x) == choose_likelihood(x)
    assert choose_likelihood(stream.examples.x)[0] == likelihood
    counts = last in (1.0, 2.0)
    for values in (x, stream.examples.x):
        if counts:
            assert choose_likelihood(values, "poisson")[0] == "poisson"
        else:
            with pytest.raises(CurvaeError, match="needs counts"):
                choose_likelihood(values, "poisson")


def test_figures_are_remembered_until_the_file_changes(tmp_path):
    path = saved(tmp_path / "x.npy", numbered(500))
    first = open_stream(path)
    with mock.patch.object(survey, "summarised", side_effect=AssertionError):
        again = open_stream(path, memory=MEMORY)
    assert again.fingerprint == first.fingerprint
    np.testing.assert_array_equal(again.known.squares, first.known.squares)
    x = numbered(500)
    x[[3, 4]] = x[[4, 3]]  # figures of the columns stay what they are
    os.utime(saved(path, x), ns=(1, 1))
    assert open_stream(path).fingerprint != first.fingerprint


def test_values_whose_squares_are_infinite(tmp_path):
    x = numbered(50).astype(np.float64)
    x[3, 2] = 1e200
    with pytest.raises(CurvaeError, match="'x3' are too large"):
        open_stream(saved(tmp_path / "x.npy", x))


# --- rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [np.ascontiguousarray, np.asfortranarray, lambda x: x.astype(np.int16)])
def test_an_array_is_read_as_it_is(tmp_path, made):
    x = made(numbered(3000))
    stream = open_stream(saved(tmp_path / "x.npy", x), memory=MEMORY)
    pieces = [piece.x for block in range(len(stream.blocks.sizes)) for piece in stream.arrays(block)]
    assert len(pieces) > 10
    np.testing.assert_array_equal(np.concatenate(pieces), x)
    rows = np.array([0, 1, 700, 1500, 2999])
    taken = stream.take(rows)
    np.testing.assert_array_equal(taken.x, x[rows])
    assert taken.ids.tolist() == list(map(str, rows))
    np.testing.assert_allclose(stream.known.mean, x.mean(0, dtype=np.float64), rtol=1e-12)


def test_a_folder_of_parquet_files(tmp_path):
    x = numbered(2000, 6)
    for i, part in enumerate(np.split(x, [700, 1500])):
        write_parquet(tmp_path / f"part-{i}.parquet", part, start=[0, 700, 1500][i])
    stream = open_stream(tmp_path, label="kind", id="cell", memory=MEMORY)
    assert stream.blocks.sizes.tolist() == [300, 300, 100, 300, 300, 200, 300, 200]
    taken = stream.take(np.arange(2000))
    np.testing.assert_array_equal(taken.x, x)
    assert taken.ids.tolist() == [f"c{i}" for i in range(2000)]
    assert taken.labels.tolist() == ["a" if i % 3 else "b" for i in range(2000)]
    assert list(stream.schema.names) == [f"g{i}" for i in range(6)]


def test_only_the_columns_of_a_model_are_decoded(tmp_path):
    write_parquet(tmp_path / "x.parquet", numbered(400, 6))
    schema = open_stream(tmp_path / "x.parquet", label="kind", id="cell").schema
    with mock.patch.object(
        pq.ParquetFile, "iter_batches", autospec=True, side_effect=pq.ParquetFile.iter_batches
    ) as read:
        stream = open_stream(tmp_path / "x.parquet", schema=schema)
        list(stream.arrays(0))
    assert read.call_args.kwargs["columns"] == [f"g{i}" for i in range(6)]
    assert stream.take(np.array([5])).ids.tolist() == ["c5"]


def test_an_empty_row_group_is_no_block(tmp_path):
    table = pa.table({"a": [1.0, 2.0, 4.0], "b": [0.5, 0.25, 3.0]})
    with pq.ParquetWriter(tmp_path / "x.parquet", table.schema) as writer:
        for piece in (table[:2], table[:0], table[2:]):
            writer.write_table(piece)
    stream = open_stream(tmp_path / "x.parquet")
    assert stream.blocks.sizes.tolist() == [2, 1]
    np.testing.assert_array_equal(stream.take(np.arange(3)).x[:, 0], [1, 2, 4])


@pytest.mark.parametrize("missing", ["mean", "model"])
def test_missing_values(tmp_path, missing):
    x = numbered(500, 4).astype(np.float64)
    x[[3, 77], 1] = np.nan
    path = saved(tmp_path / "x.npy", x)
    with pytest.raises(MissingValuesError, match=r"'x2' \(2\)"):
        open_stream(path)
    stream = open_stream(path, missing=missing, memory=MEMORY)
    expected = np.nanmean(x[:, 1]) if missing == "mean" else np.nan
    np.testing.assert_allclose(stream.take(np.array([3, 4])).x[:, 1], [expected, x[4, 1]], rtol=1e-12)
    assert any("'x2' (2)" in note for note in stream.notes)


# --- what is broken ---------------------------------------------------------------------------------------------------


def refused(path, says, **how):
    with pytest.raises(CurvaeError, match=says) as error:
        open_stream(path, **how)
    assert "\n" not in str(error.value)


def test_a_column_that_changes_type_between_files(tmp_path):
    pd.DataFrame({"a": [1.0, 2.0], "b": [1, 2]}).to_parquet(tmp_path / "1.parquet")
    pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}).to_parquet(tmp_path / "2.parquet")  # whole numbers are numbers
    refused(tmp_path, r"column 'b' holds .*string in 2.parquet and numbers in 1.parquet; write both alike")


def test_a_column_that_a_file_lacks(tmp_path):
    write_parquet(tmp_path / "1.parquet", numbered(10, 3))
    write_parquet(tmp_path / "2.parquet", numbered(10, 3), drop=["g1"])
    refused(tmp_path, "2.parquet has no column 'g1', which 1.parquet has", label="kind", id="cell")


def test_texts_that_nobody_asked_for(tmp_path):
    write_parquet(tmp_path / "1.parquet", numbered(10, 3))
    refused(
        tmp_path, r"categories: 'kind' \('b' in row 1, 2 different texts\); use categorical=\[\"kind\"\]", id="cell"
    )
    refused(tmp_path, r"no column 'sort' for label=…", label="sort")


@pytest.mark.parametrize("name", ["x.npy", "x.parquet"])
def test_a_file_that_was_cut_off(tmp_path, name):
    if name.endswith("npy"):
        saved(tmp_path / name, numbered(300))
    else:
        write_parquet(tmp_path / name, numbered(300))
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[:-100])
    refused(tmp_path / name, "cannot be read as")


def test_a_file_that_changes_while_it_is_read(tmp_path):
    path = saved(tmp_path / "x.npy", numbered(3000))
    stream = open_stream(path, memory=MEMORY)
    list(stream.arrays(0))
    saved(path, numbered(2999))
    with pytest.raises(CurvaeError, match=r"x.npy was changed while it was being read; restore it"):
        list(stream.arrays(1))
    path.unlink()
    with pytest.raises(CurvaeError, match=r"x.npy cannot be read: No such file"):
        list(stream.arrays(1))


@pytest.mark.parametrize("rows", [3, 100])  # which cannot be read, and which can
def test_a_file_that_changes_after_it_was_looked_at(tmp_path, monkeypatch, rows):
    path = tmp_path / "x.npy"
    np.save(path, np.ones((200, 4)))
    stream, plain = open_stream(path, memory=MEMORY), blocks.map_npy

    def late(file):
        np.save(path, np.zeros((rows, 4)))
        os.truncate(path, path.stat().st_size - (8 if rows == 3 else 0))
        return plain(file)

    monkeypatch.setattr(blocks, "map_npy", late)
    with pytest.raises(CurvaeError, match=r"^x.npy was changed while it was being read; restore it and resume"):
        list(stream.arrays(0))


def test_without_pyarrow(tmp_path, monkeypatch):
    write_parquet(tmp_path / "x.parquet", numbered(30, 3))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refused(tmp_path / "x.parquet", r"needs pyarrow to be read; pip install pyarrow")


@pytest.mark.parametrize("memory", ["much", "-1GB", "10kB", 0])
def test_sizes_that_are_none(tmp_path, memory):
    refused(saved(tmp_path / "x.npy", numbered(30)), r'give a size of at least 1MB, such as "2GB"', memory=memory)


def test_other_files_and_too_few_rows(tmp_path):
    (tmp_path / "x.mtx").write_text("a\n1\n")
    refused(tmp_path / "x.mtx", r"cannot be read in pieces; give a table, a .npy array")
    refused(saved(tmp_path / "x.npy", numbered(1)), "fewer than 2 rows")
    refused(saved(tmp_path / "y.npy", numbered(9)), 'missing="drop" needs all rows in memory', missing="drop")
    schema = open_stream(tmp_path / "y.npy").schema
    refused(saved(tmp_path / "z.npy", numbered(9)[:, :5]), "of 5 columns and the model was trained on", schema=schema)
