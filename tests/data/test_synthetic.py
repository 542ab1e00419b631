"""Synthetic trees and clouds."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import pdist, squareform

from curvae.data import branching_counts, branching_diffusion, flat
from curvae.errors import CurvaeError

# --- synthetic data ---------------------------------------------------------------------------------------------------


def test_branching_diffusion_has_the_shape_and_the_variances_of_the_paper() -> None:
    tree = branching_diffusion()
    assert tree.x.shape == (635, 50) and tree.nodes.shape == (127, 50)
    assert np.bincount(tree.depth).tolist() == [1, 2, 4, 8, 16, 32, 64] and np.bincount(tree.node).tolist() == [5] * 127
    assert tree.parent[0] == -1 and not tree.nodes[0].any()
    assert (tree.depth[1:] == tree.depth[tree.parent[1:]] + 1).all()
    steps = tree.nodes[1:] - tree.nodes[tree.parent[1:]]
    noise = tree.x - tree.nodes[tree.node]
    for values, variance in ((steps, 1.0), (noise, 0.2)):  # within 5 standard errors
        assert abs(values.mean()) < 5 * (variance / values.size) ** 0.5
        assert abs(values.var() / variance - 1) < 5 * (2 / values.size) ** 0.5


def test_branching_diffusion_options() -> None:
    tree = branching_diffusion(dim=3, depth=2, branching=3, per_node=2, scale=2.0, noise=0.0, seed=4)
    assert len(tree.nodes) == 13 and len(tree.x) == 26
    np.testing.assert_array_equal(tree.x, tree.nodes[tree.node])
    np.testing.assert_allclose(branching_diffusion(scale=2.0).x, 2 * branching_diffusion().x)
    assert not np.array_equal(branching_diffusion(seed=1).x, branching_diffusion(seed=2).x)
    np.testing.assert_array_equal(branching_diffusion(seed=1).x, branching_diffusion(seed=1).x)
    with pytest.raises(CurvaeError, match="dim=0"):
        branching_diffusion(dim=0)


def test_tree_distances() -> None:
    tree = branching_diffusion(dim=2, depth=3, branching=3)
    graph = sp.coo_array(
        (np.ones(len(tree.edges)), np.array(tree.edges, dtype=np.int32).T), shape=(len(tree.parent),) * 2
    )
    hops = sp.csgraph.shortest_path(graph, directed=False, unweighted=True)
    np.testing.assert_array_equal(tree.distances(), hops)


def test_branches_are_subtrees() -> None:
    tree = branching_diffusion()
    data = tree.dataset()
    assert data.labels is not None and data.label_name == "branch"
    names, counts = np.unique(data.labels, return_counts=True)
    assert dict(zip(names.tolist(), counts.tolist(), strict=True)) == {
        "root": 5,
        "branch 1": 5,
        "branch 2": 5,
        **{f"branch {i}/{j}": 31 * 5 for i in (1, 2) for j in (1, 2)},
    }
    branches = tree.branches()
    deep = np.flatnonzero(tree.depth > 2)
    assert (branches[deep] == branches[tree.parent[deep]]).all()
    assert data.ids[:6].tolist() == ["node0-1", "node0-2", "node0-3", "node0-4", "node0-5", "node1-1"]
    assert np.unique(data.ids).size == 635


def test_flat() -> None:
    data = flat()
    assert data.x.shape == (635, 50) and data.labels is None
    assert abs(data.x.mean()) < 0.03 and abs(data.x.var() - 1) < 0.05
    with pytest.raises(CurvaeError, match="at least 1"):
        flat(rows=0)


def test_counts_of_a_branching_process() -> None:
    data = branching_counts(genes=200, per_node=20, seed=1)
    x = data.x.toarray()
    assert x.shape == (31 * 20, 200) and (x == np.round(x)).all() and x.min() == 0
    np.testing.assert_array_equal(data.exposure, x.sum(1))
    assert 800 < np.median(data.exposure) < 1250 and data.total and data.batch == (0, 2)
    shares = x / x.sum(1, keepdims=True)
    batch, branch = data.context.argmax(1), data.labels
    # Batches shift genes, and cells of a branch are more alike than others of the same batch.
    assert np.abs(np.log(shares[batch == 0].mean(0) / shares[batch == 1].mean(0))).mean() > 0.15
    logs = np.log(shares + 1e-3)
    within, whole = logs[(branch == "branch 1/1") & (batch == 0)], logs[batch == 0]
    assert within.var(0).sum() < 0.9 * whole.var(0).sum()
    fewer = branching_counts(genes=200, per_node=20, dropout=0.4, seed=1).x
    assert (fewer.toarray() == 0).mean() > (x == 0).mean() + 0.1
    np.testing.assert_array_equal(x, branching_counts(genes=200, per_node=20, seed=1).x.toarray())
    # With many programs the shortest tree between the means of nodes is the true one.
    many = branching_counts(genes=200, depth=2, per_node=50, batches=1, total=5000, programs=100)
    shares = np.log1p(many.x.toarray() / many.exposure[:, None] * 5000)
    means = shares.reshape(7, 50, -1).mean(1)
    tree = minimum_spanning_tree(squareform(pdist(means))).tocoo()
    found = {tuple(sorted(edge)) for edge in zip(tree.row.tolist(), tree.col.tolist(), strict=True)}
    assert found == {(0, 1), (0, 2), (1, 3), (1, 4), (2, 5), (2, 6)}
    with pytest.raises(CurvaeError, match="dropout a share below 1, got .* dropout=1.5"):
        branching_counts(dropout=1.5)
