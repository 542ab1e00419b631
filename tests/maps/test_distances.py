"""Matrices of distances: metrics against scipy, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist, pdist, squareform

from curvae import CurvaeError
from curvae.hierarchy import (
    Rows,
)
from curvae.maps.distances import check_distances, gram_of_distances


def cloud(size, dim, seed=0):
    return np.random.default_rng(seed).normal(size=(size, dim))


# --- distances --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "correlation", "manhattan"])
def test_metrics_against_scipy(metric):
    x = cloud(20, 6) + 0.3
    name = {"manhattan": "cityblock"}.get(metric, metric)
    expected = cdist(x, x, name)
    if metric in ("cosine", "correlation"):
        expected = np.sqrt(np.maximum(2 * expected, 0))  # chords of the unit sphere
    rows, place = Rows(x, metric), np.arange(20)
    np.testing.assert_allclose(rows.table(place), expected, atol=1e-7)
    i, j = np.triu_indices(20, 1)
    np.testing.assert_allclose(rows.pairs(i, j), expected[i, j], atol=1e-7)
    np.testing.assert_allclose(Rows(sparse.csr_array(x), metric).pairs(i, j), expected[i, j], atol=1e-7)
    scaled = Rows(2 * x + 1, metric, np.ones(6), np.full(6, 2.0))
    np.testing.assert_allclose(scaled.pairs(i, j), expected[i, j], atol=1e-7)
    np.testing.assert_allclose(scaled.sample(place).table(place), expected, atol=1e-7)
    np.testing.assert_allclose(rows.gram(x), gram_of_distances(expected), atol=1e-6)


def test_rows_refuse():
    with pytest.raises(CurvaeError, match="metric is 'l7'; use one of euclidean"):
        Rows(np.eye(3), "l7")
    with pytest.raises(CurvaeError, match="row 2 has no direction, which cosine needs"):
        Rows(np.array([[1.0, 2.0], [0.0, 0.0]]), "cosine").table(np.arange(2))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d[:4], "4 × 5"),
        (lambda d: d + np.eye(5), "diagonal"),
        (lambda d: -d, "negative"),
        (lambda d: d + np.triu(np.ones((5, 5)), 1), "not symmetric"),
        (lambda d: d + np.nan, "missing or infinite"),
    ],
)
def test_distances_are_checked(change, says):
    d = squareform(pdist(cloud(5, 2)))
    np.testing.assert_array_equal(check_distances(sparse.csr_array(d)), d)
    with pytest.raises(CurvaeError, match=says):
        check_distances(change(d))
