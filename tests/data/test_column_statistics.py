"""Figures of columns: those of all rows at once, however they are cut into blocks, dense, sparse and on disk."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import sparse

from curvae.data import load
from curvae.data.column_statistics import column_statistics, complete_rows
from curvae.data.dataset import Scaling
from curvae.errors import CurvaeError
from curvae.models.likelihoods import base, choose_likelihood
from disk_data import MEMORY


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
