"""Distances, principal axes, ranks and graphs of neighbours, against scikit-learn, scipy and brute force."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.spatial.distance import cdist, pdist, squareform
from scipy.stats import spearmanr
from sklearn.decomposition import PCA

from curvae import CurvaeError
from curvae.maps.statistics import (
    Rows,
    bridged,
    check_distances,
    gram_of_distances,
    graph_of_table,
    neighbour_graph,
    principal_axes,
    rank_correlation,
)
from curvae.training.neighbourhoods import bridge_between, nearest


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


@pytest.mark.parametrize("values", [[1.0, 2.0], [2.0, -1.0, 2.0, 5.0, -1.0, 0.0]])
def test_rank_correlation_against_scipy(values):
    many = np.random.default_rng(0).integers(50, size=(2, 400)).astype(float)
    for truth, latent in ((np.array(values), np.arange(float(len(values)))), many):
        assert rank_correlation(truth, latent) == pytest.approx(spearmanr(truth, latent).statistic, rel=1e-12)
    assert np.isnan(rank_correlation(np.ones(3), np.arange(3.0))) and rank_correlation(np.arange(3.0), np.ones(3)) == 0


# --- graphs of neighbours --------------------------------------------------------------------------------------------


CPU = torch.device("cpu")


X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)


def _graph(x=X, k=4):
    return neighbour_graph(*nearest(x, k, CPU))


def test_graph_is_symmetric_and_keeps_rows_that_are_equal():
    x = np.repeat(X[:5], 3, 0)
    graph = _graph(x, 2)
    assert abs(graph - graph.T).max() == 0
    assert (np.diff(graph.indptr) == 2).all()


def test_bridges_are_the_shortest():
    parts = [X[:20], X[20:40] + 30, X[40:] - 50]
    x = np.concatenate(parts).astype(np.float32)
    graph = bridged(_graph(x), bridge_between(x))
    added = graph - _graph(x)
    lengths = sorted(np.unique(added.data[added.data > 0]))
    expected = sorted([cdist(parts[0], parts[1]).min(), cdist(parts[0], parts[2]).min()])
    np.testing.assert_allclose(lengths, expected, rtol=1e-6)
    assert nx.is_connected(nx.from_scipy_sparse_array(graph))
    np.testing.assert_allclose(graph.toarray(), graph_of_table(cdist(x, x), 4).toarray(), rtol=1e-5)


@pytest.mark.parametrize("inside", [4, 40])
def test_bridges_of_large_tables_end_in_some_rows(monkeypatch, inside):
    """From 4 rows to some of the 56 others, from some of 40 rows to all of the 20 others."""
    for name, most in (("_REST", 30), ("_BRIDGED", 10)):
        monkeypatch.setattr(f"curvae.training.neighbourhoods.{name}", most)
    mask, every = np.arange(len(X)) < inside, cdist(X, X)
    first, second, length = bridge_between(X)(mask)
    assert mask[first] and not mask[second]
    assert length == pytest.approx(every[first, second], rel=1e-6)
    among = every[mask][:, second] if inside == 4 else every[first][~mask]
    assert length == pytest.approx(among.min(), rel=1e-6)
    assert (every[mask][:, ~mask] < length).mean() < 0.1


def cloud(size, dim, seed=0):
    return np.random.default_rng(seed).normal(size=(size, dim))


# --- distances of rows ------------------------------------------------------------------------------------------------


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
