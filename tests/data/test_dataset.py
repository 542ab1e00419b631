"""Data sets and schemas."""

from __future__ import annotations

import gzip
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from scipy import sparse

from curvae.data import Column, Dataset, Schema, from_arrays, load
from curvae.data.dataset import Scaling, column_statistics, complete_rows
from curvae.errors import CurvaeError
from curvae.models.likelihoods import base, choose_likelihood
from disk_data import MEMORY
from reading import refusal, write

RANDOM = np.random.default_rng(0)


DENSE = RANDOM.standard_normal((6, 4)) * (RANDOM.random((6, 4)) < 0.5)


# --- Dataset ----------------------------------------------------------------------------------------------------------


def test_from_arrays() -> None:
    data = from_arrays(DENSE.astype(np.float32), names="abcd", labels=[0, 0, 1, 1, 2, 2], ids=list("uvwxyz"))
    assert data.x.dtype == np.float32 and data.names == ("a", "b", "c", "d") and data.shape == (4,)
    assert data.labels is not None and data.labels.tolist() == ["0", "0", "1", "1", "2", "2"]
    assert data.ids.tolist() == list("uvwxyz") and len(data) == 6
    assert from_arrays(np.arange(6).reshape(2, 3)).x.dtype == np.float64
    assert from_arrays(DENSE.astype(np.float16)).x.dtype == np.float32
    assert from_arrays(DENSE.astype(">f8")).x.dtype.isnative
    assert from_arrays(np.zeros((5, 2, 3))).shape == (2, 3)


@pytest.mark.parametrize("make", [sp.csr_array, sp.csr_matrix, sp.csc_array, sp.coo_array])
def test_sparse_stays_sparse(make: Any) -> None:
    data = from_arrays(make(DENSE))
    assert isinstance(data.x, sp.csr_array) and data.x.dtype == np.float64
    assert isinstance(data.take([1, 2]).x, sp.csr_array)
    np.testing.assert_array_equal(data.take([5, 0]).x.toarray(), DENSE[[5, 0]])
    assert data.fingerprint == from_arrays(DENSE).fingerprint
    assert from_arrays(make(DENSE.astype(np.float32))).x.dtype == np.float32


@pytest.mark.parametrize(
    ("x", "options", "part"),
    [
        ([["a"], ["b"]], {}, "not real numbers"),
        ([1.0, 2.0], {}, "shape (2,)"),
        ([[1j], [2j]], {}, "not real numbers"),
        ([[1.0, np.nan], [np.inf, np.nan]], {}, "'x1' (1), 'x2' (2)"),
        (sp.csr_array([[0, np.nan], [1.0, 0]]), {}, "'x2' (1)"),
        (DENSE, {"names": ["a"]}, "1 name"),
        (DENSE, {"shape": (3, 3)}, "shape (3, 3)"),
        (DENSE, {"ids": list("uvwxyu")}, "'u' given more than once"),
        (DENSE, {"labels": [1, 2]}, "labels of shape (2,)"),
    ],
)
def test_from_arrays_refuses(x: Any, options: dict[str, Any], part: str) -> None:
    with pytest.raises(CurvaeError, match=re.escape(part)):
        from_arrays(x, **options)


def test_take() -> None:
    data = from_arrays(DENSE, labels=list("abcabc"))
    mask = np.array([True, False, True, False, False, False])
    for part in (data.take(mask), data.take([0, 2]), data.take(mask.tolist())):
        assert part.ids.tolist() == ["0", "2"] and part.labels is not None and part.labels.tolist() == ["a", "c"]
        np.testing.assert_array_equal(part.x, DENSE[[0, 2]])
    assert len(data.take([])) == 0
    grouped = replace(data, groups=data.labels).take([3, 1])
    assert grouped.groups is not None and grouped.groups.tolist() == ["a", "b"]
    with pytest.raises(CurvaeError, match="mask of shape"):
        data.take([True, False])


def test_fingerprint_sees_every_part_and_only_values() -> None:
    x = DENSE.astype(np.float32)
    base = from_arrays(x, labels=list("abcabc"))
    assert base.fingerprint == from_arrays(x.astype(np.float64), labels=list("abcabc")).fingerprint
    assert re.fullmatch(r"[0-9a-f]{64}", base.fingerprint)
    stored_zero = sp.csr_array(x)
    stored_zero.data[0] = 0.0
    changed = x.copy()
    changed.ravel()[np.flatnonzero(x)[0]] = -0.0
    assert from_arrays(stored_zero).fingerprint == from_arrays(changed).fingerprint
    others = [
        from_arrays(changed, labels=list("abcabc")),
        from_arrays(x, labels=list("abcabd")),
        from_arrays(x),
        from_arrays(x, labels=list("abcabc"), ids=list("uvwxyz")),
        from_arrays(x, labels=list("abcabc"), names=list("abcd")),
        from_arrays(x, labels=list("abcabc"), shape=(2, 2)),
        from_arrays(x[::-1], labels=list("abcabc")),
        from_arrays(x[:, ::-1], labels=list("abcabc")),
        Dataset(x, base.names, base.shape, base.ids, base.labels, groups=base.labels),
    ]
    assert len({base.fingerprint, *(other.fingerprint for other in others)}) == len(others) + 1


def test_fingerprint_of_many_rows_does_not_depend_on_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("curvae.data.dataset._CHUNK", 8)  # two rows at a time
    assert from_arrays(DENSE).fingerprint == from_arrays(sp.csr_array(DENSE)).fingerprint


# --- Schema -----------------------------------------------------------------------------------------------------------

SCHEMA = Schema("table", (Column("a", None, 1.5), Column("b", ("u", "v"), 1.0)), (3,), label="l", id="i")


def test_schema_survives_json() -> None:
    assert Schema.from_json(json.loads(json.dumps(SCHEMA.to_json()))) == SCHEMA


@pytest.mark.parametrize(
    "broken",
    [
        None,
        [],
        {},
        {"kind": "graph"},
        {"columns": 3},
        {"columns": []},
        {"columns": [{"name": "a"}]},
        {"columns": [{"name": 3, "fill": 0.0}]},
        {"columns": [{"name": "a", "fill": "x"}]},
        {"columns": [{"name": "a", "fill": 2, "categories": ["u", "v"]}], "shape": [2]},
        {"columns": [{"name": "a", "fill": 0, "categories": ["u", "u"]}], "shape": [2]},
        {"shape": [4]},
        {"shape": ["x"]},
        {"shape": 3},
        {"label": 3},
    ],
)
def test_a_malformed_schema_is_refused(broken: Any) -> None:
    stored = {**SCHEMA.to_json(), **broken} if isinstance(broken, dict) and broken else broken
    with pytest.raises(CurvaeError, match="malformed"):
        Schema.from_json(stored)


# --- matrices ---------------------------------------------------------------------------------------------------------


def save(path: Path, x: Any) -> Path:
    if path.name.endswith(".npy"):
        np.save(path, x)
    elif path.name.endswith(".npz"):
        sp.save_npz(path, x)
    else:
        with gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb") as stream:
            scipy.io.mmwrite(stream, x)
    return path


def test_new_data_must_have_the_same_kind_and_width(tmp_path: Path) -> None:
    schema = load(save(tmp_path / "m.npy", DENSE))[1]
    assert "rows of 3 values and the model was trained on 4" in refusal(
        save(tmp_path / "n.npy", DENSE[:, :3]), schema=schema
    )
    assert "is images" in refusal(save(tmp_path / "n.npy", np.zeros((3, 2, 2))), schema=schema)
    assert "has no columns 'x1', 'x2'" in refusal(write(tmp_path, "a,b\n1,2\n"), schema=schema)
    np.testing.assert_array_equal(load(write(tmp_path, "1,2,3,5\n"), schema=schema)[0].x, [[1, 2, 3, 5]])
    table = load(write(tmp_path, "a,b\n1,2\n3,4\n"))[1]
    assert "trained on a table with named columns" in refusal(tmp_path / "m.npy", schema=table)


def test_a_sparse_matrix_with_repeated_entries_stays_as_it_is():
    x = sp.csr_array((np.array([1.0, 2.0, 3.0]), np.array([1, 1, 0]), np.array([0, 2, 3])), shape=(2, 2))
    data = from_arrays(x)
    assert data.x.toarray().tolist() == [[0, 3], [3, 0]] and data.x.nnz == 2
    assert x.data.tolist() == [1, 2, 3] and x.indices.tolist() == [1, 1, 0] and x.indptr.tolist() == [0, 2, 3]


# Figures of columns: those of all rows at once, however they are cut into blocks, dense, sparse and on disk.


@pytest.fixture
def _small_blocks(monkeypatch):
    monkeypatch.setattr(base, "_CELLS", 2000)


def on_disk(x, name="x.npy"):
    np.save(name, x)
    data, _ = load(name, memory=MEMORY, missing="model")
    assert data.on_disk
    return data.x


def table(offset, gaps):
    random = np.random.default_rng(0)
    x = random.normal(size=(2000, 80)) * 10.0 ** random.integers(-3, 4, 80) + offset
    x[:, 3] = 5.0
    if gaps:
        x[random.random(x.shape) < 0.2] = np.nan
    return x


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("offset", [0.0, 1e7])
@pytest.mark.parametrize("gaps", [False, True])
def test_figures_of_blocks_are_those_of_all_rows(offset, gaps, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x = table(offset, gaps)
    found, stored = column_statistics(x), column_statistics(on_disk(x))
    for name, values in vars(found).items():
        np.testing.assert_array_equal(getattr(stored, name), values, err_msg=name)
    for j, column in enumerate(x.T):
        values = column[~np.isnan(column)].tolist()
        mean = math.fsum(values) / len(values)
        square = math.fsum((value - mean) ** 2 for value in values)
        assert found.present[j] == len(values) and found.missing[j] == len(x) - len(values)
        assert found.mean[j] == pytest.approx(mean, abs=1e-15 * max(map(abs, values)))
        assert found.deviation[j] == pytest.approx(math.sqrt(square / len(values)), rel=1e-11, abs=1e-12)
        assert (found.low[j], found.high[j]) == (min(values), max(values))
    complete = np.flatnonzero(~np.isnan(x).any(1))
    assert found.complete == len(complete) and complete_rows(x).tolist() == complete.tolist()


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("gaps", [False, True])
def test_figures_of_a_sparse_matrix_are_those_of_the_dense_one(gaps):
    random = np.random.default_rng(1)
    dense = random.poisson(3, (100, 40)) * (random.random((100, 40)) < 0.1) + 0.0
    dense[dense > 4] *= -0.25
    dense[:, 7] = 2.0
    if gaps:
        dense[dense == 3] = np.nan
        dense[5] = np.nan
    found, expected = column_statistics(sparse.csr_array(dense)), column_statistics(dense)
    for name in ("rows", "present", "mean", "squares", "low", "high", "complete", "empty"):
        values = getattr(expected, name)
        np.testing.assert_allclose(getattr(found, name), values, rtol=1e-12, atol=1e-13, err_msg=name)
    assert expected.empty.tolist() == ([5] if gaps else [])
    duplicated = sparse.csr_array((np.array([1.0, 2.0]), np.array([0, 0]), np.array([0, 2])), (1, 2))
    assert column_statistics(duplicated).mean.tolist() == [3.0, 0.0]


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize(
    ("last", "likelihood"), [(1.0, "bernoulli"), (2.0, "gaussian"), (0.5, "gaussian"), (-1.0, "gaussian")]
)
@pytest.mark.parametrize("stored", [False, True])
def test_one_value_of_the_last_row_counts(tmp_path, monkeypatch, last, likelihood, stored):
    monkeypatch.chdir(tmp_path)
    x = (np.random.default_rng(2).random((2000, 80)) < 0.5).astype(np.float64)
    x[-1, 3] = last
    x = on_disk(x) if stored else x
    assert choose_likelihood(x)[0] == likelihood
    assert base.find_binary(x)[[2, 3]].tolist() == [True, last == 1.0]
    if last in (1.0, 2.0):
        assert choose_likelihood(x, "poisson")[0] == "poisson"
    else:
        with pytest.raises(CurvaeError, match="needs counts"):
            choose_likelihood(x, "poisson")


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("size", [1.0, 1e200, 1e-200])
def test_scaling_of_blocks(tmp_path, monkeypatch, size):
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(3).normal(size=(2000, 80))
    x[:, 1] *= size
    x[:, 2] = 7.0
    unit = np.where(np.arange(80) == 1, size, 1.0)
    found = Scaling.standard(on_disk(x))
    np.testing.assert_allclose(found.shift / unit, (x / unit).mean(0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.delete(found.scale, 2), np.delete((x / unit).std(0) * unit, 2), rtol=1e-12)
    assert found.shift[2] == 7.0 and found.constant.tolist() == [j == 2 for j in range(80)]
