"""Principal axes and ranks, against scikit-learn and scipy."""

import numpy as np
import pytest
from scipy.stats import rankdata
from sklearn.decomposition import PCA

from curvae.maps.statistics import average_ranks, principal_axes


@pytest.mark.parametrize(
    ("rows", "columns", "count"),
    [(50, 6, 2), (6, 50, 3), (5, 5, 5), (40, 3, 9), (3, 1, 2), (300, 120, 2), (120, 300, 2)],
)
def test_axes_against_scikit_learn(rows, columns, count):
    draw = np.random.default_rng(rows + columns)
    x = draw.normal(size=(rows, columns)) * draw.uniform(0.5, 3, columns) + 5
    most = min(count, rows, columns)
    expected = PCA(most, svd_solver="full").fit(x)
    found = principal_axes(x, count)
    varying = min(most, rows - 1)  # what is left after the mean is taken off
    assert found.axes.shape == (columns, most)
    np.testing.assert_allclose(found.axes[:, :varying], expected.components_[:varying].T, atol=1e-7)
    new = draw.normal(size=(4, columns))
    np.testing.assert_allclose(found.place(new)[:, :varying], expected.transform(new)[:, :varying], atol=1e-6)


@pytest.mark.parametrize("shape", [(80, 60), (60, 80)])
def test_large_tables(shape, monkeypatch):
    x = np.random.default_rng(0).normal(size=shape) * np.linspace(1, 3, shape[1])
    expected = principal_axes(x, 3)
    monkeypatch.setattr("curvae.maps.statistics._DENSE", 10)
    np.testing.assert_allclose(principal_axes(x, 3).axes, expected.axes, atol=1e-7)


@pytest.mark.parametrize("most", [1000, 2])
def test_rows_that_do_not_vary(most, monkeypatch):
    monkeypatch.setattr("curvae.maps.statistics._DENSE", most)
    found = principal_axes(np.ones((40, 30)), 2)
    assert np.isfinite(found.axes).all() and not found.place(np.ones((3, 30))).any()
    assert not principal_axes(np.ones((200, 150)), 2).place(np.ones((3, 150))).any()


@pytest.mark.parametrize("values", [[3.0], [1.0, 1.0, 1.0], [2.0, -1.0, 2.0, 5.0, -1.0, 0.0]])
def test_ranks_against_scipy(values):
    np.testing.assert_array_equal(average_ranks(np.array(values)), rankdata(values))
    many = np.random.default_rng(0).integers(50, size=400).astype(float)
    np.testing.assert_array_equal(average_ranks(many), rankdata(many))
