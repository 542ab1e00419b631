"""Groups within groups."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from math import comb

import networkx as nx
import numpy as np
import pytest
from scipy import stats
from scipy.cluster.hierarchy import cophenet, cut_tree, linkage
from scipy.spatial.distance import cdist, pdist, squareform

from curvae import CurvaeError
from curvae.data import branching_diffusion
from curvae.hierarchy import Rows, estimate_delta, exact_delta
from curvae.hierarchy.nesting import (
    Spectrum,
    _Points,
    compare_to_surrogates,
    cophenetic_correlation,
    dealt,
    flipped,
    four_point_parts,
    four_point_score,
    four_sums,
    narrowest_gap,
    off_the_path,
    permuted,
    quadruples,
    rotated,
    some_quadruples,
    ultrametric_score,
)
from curvae.maps.statistics import gram_of_distances


def cloud(size, dim, seed=0):
    return np.random.default_rng(seed).normal(size=(size, dim))


# --- the test ---------------------------------------------------------------------------------------------------------


def test_groups_are_those_of_ward():
    d = squareform(pdist(cloud(50, 3)))
    points = _Points(d, np.random.default_rng(0))
    merges = linkage(squareform(d), "ward")
    for groups in (1, 2, 7, 30, 50):
        own = {frozenset(place.tolist()) for place in points.members(groups)}
        code = cut_tree(merges, groups)[:, 0]
        assert own == {frozenset(np.flatnonzero(code == k).tolist()) for k in range(groups)}
    x = cloud(50, 3)
    means = np.stack([x[place].mean(0) for place in points.members(6)])
    centred = means - x.mean(0)
    np.testing.assert_allclose(points.centres(6), centred @ centred.T, atol=1e-10)


# --- surrogates ------------------------------------------------------------------------------------------------------


def hops(graph):
    """Path lengths of a networkx graph."""
    return nx.floyd_warshall_numpy(graph)


def all_deltas(d):
    """δ of every quadruple, one by one."""
    found = []
    for w, x, y, z in combinations(range(len(d)), 4):
        sums = sorted((d[w, x] + d[y, z], d[w, y] + d[x, z], d[w, z] + d[x, y]))
        found.append((sums[2] - sums[1]) / 2)
    return np.array(found)


# --- δ ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_exact_delta_is_the_largest_of_all_quadruples(seed):
    random = np.random.default_rng(seed)
    spaces = [
        squareform(pdist(random.normal(size=(14, 3)))),
        hops(nx.connected_watts_strogatz_graph(14, 4, 0.3, seed=seed)),
        1 + squareform(random.random(14 * 13 // 2)) - np.eye(14),  # any distances between 1 and 2
    ]
    for d in spaces:
        assert exact_delta(d) == pytest.approx(all_deltas(d).max(), abs=1e-12)
        assert exact_delta(3 * d) == pytest.approx(3 * exact_delta(d))
        assert 2 * exact_delta(d) <= d.max() + 1e-12


def test_delta_of_known_spaces():
    for seed in range(3):
        tree = nx.random_labeled_tree(30, seed=seed)
        random = np.random.default_rng(seed)
        for a, b in tree.edges:
            tree.edges[a, b]["weight"] = random.exponential()
        assert exact_delta(hops(tree)) < 1e-12
    assert exact_delta(hops(nx.complete_graph(8))) == 0
    for n in range(3, 17):  # cycles: ⌊n/4⌋, less a half when n = 4k + 1
        assert exact_delta(hops(nx.cycle_graph(n))) == n // 4 - (n % 4 == 1) / 2, n
    for dim in range(1, 5):  # cubes: ⌊d/2⌋
        assert exact_delta(hops(nx.hypercube_graph(dim))) == dim // 2
    for rows, columns in ((2, 5), (3, 4), (4, 4)):  # grids: the shorter side
        assert exact_delta(hops(nx.grid_2d_graph(rows, columns))) == min(rows, columns) - 1
    # A far part of the hyperbolic plane of curvature −1: below log 2, the constant of the plane, and not far below.
    angle = np.random.default_rng(0).uniform(0, 2 * np.pi, 60)
    place = np.tanh(5.0) * np.stack([np.cos(angle), np.sin(angle)], 1)
    ratio = cdist(place, place, "sqeuclidean") / (1 - np.tanh(5.0) ** 2) ** 2
    assert 0.6 < exact_delta(np.arccosh(1 + 2 * ratio)) <= np.log(2) + 1e-9


def test_quadruples_are_equally_likely():
    chosen = quadruples(6, 6000, np.random.default_rng(0))
    found = Counter(tuple(sorted(row)) for row in chosen.tolist())
    assert len(found) == comb(6, 4) and all(len(set(row)) == 4 for row in found)
    assert stats.chisquare(list(found.values())).pvalue > 1e-3
    assert stats.chisquare(np.bincount(chosen[:, 0])).pvalue > 1e-3


@pytest.mark.parametrize("space", ["cloud", "graph"])
def test_intervals_of_sampled_delta_cover_the_truth(space):
    d = (
        squareform(pdist(cloud(24, 2)))
        if space == "cloud"
        else hops(nx.connected_watts_strogatz_graph(24, 4, 0.2, seed=1))
    )
    truth = np.sort(all_deltas(d))
    mean, quantile = truth.mean(), truth[int(np.ceil(0.95 * len(truth))) - 1]
    found = [estimate_delta(lambda i, j: d[i, j], 24, 400, seed, exact_up_to=0) for seed in range(300)]
    covered = np.array(
        [
            [
                f.interval[0] <= mean <= f.interval[1],
                f.quantile_interval[0] <= quantile <= f.quantile_interval[1],
                (truth > f.largest + 1e-12).mean() <= f.exceeding,
            ]
            for f in found
        ]
    ).mean(0)
    # 95 % less three deviations of 300 draws; that of the mean no wider than it need be.
    assert (covered > 0.95 - 3 * (0.95 * 0.05 / 300) ** 0.5).all(), covered
    assert covered[0] < 0.985
    assert all(f.largest <= truth[-1] + 1e-12 and not f.exact and f.diameter <= d.max() for f in found)


def test_estimated_delta():
    x = cloud(60, 3)
    d = squareform(pdist(x))
    found = estimate_delta(Rows(x).pairs, 60, 500)
    assert found.exact and found.exceeding == 0
    assert found.largest == pytest.approx(exact_delta(d)) and found.diameter == pytest.approx(d.max())
    assert found.relative(found.largest) == pytest.approx(2 * exact_delta(d) / d.max())
    again = estimate_delta(Rows(x).pairs, 60, 500, exact_up_to=0)
    assert again.mean == found.mean and again.largest <= found.largest and again.diameter <= d.max() + 1e-12
    assert estimate_delta(Rows(x).pairs, 60, 500, seed=1).mean != found.mean
    with pytest.raises(CurvaeError, match="four points"):
        estimate_delta(Rows(x).pairs, 3)
    with pytest.raises(CurvaeError, match="not finite"):
        estimate_delta(lambda i, j: np.full(len(i), np.inf), 10, 10)


# --- scores -----------------------------------------------------------------------------------------------------------


def unit_steps(depth=4):
    """Leaves of a tree whose steps are orthogonal, so that squared distances are path lengths."""
    tree = branching_diffusion(depth=depth, per_node=1)
    steps = np.zeros((len(tree.parent), len(tree.parent)))
    for node, parent in enumerate(tree.parent):
        steps[node] = steps[parent] if parent >= 0 else 0
        steps[node, node] = parent >= 0
    return steps, tree


def test_four_point_score_of_known_data():
    x, tree = unit_steps()
    np.testing.assert_allclose(cdist(x, x, "sqeuclidean"), tree.distances())
    every = some_quadruples(len(x), 10**6, np.random.default_rng(0))
    assert len(every) == comb(len(x), 4)
    assert four_point_score(x @ x.T, every) < 1e-12
    assert four_point_score(np.diag(np.arange(1.0, 9)), every[(every < 8).all(1)]) == 1  # a star has nothing to split
    # By hand from distances, for points anywhere.
    y = cloud(12, 3)
    square = cdist(y, y, "sqeuclidean")
    chosen = some_quadruples(12, 10**6, np.random.default_rng(0))
    sums = four_sums(lambda i, j: square[i, j], chosen)
    expected = (sums[2] - sums[1]).sum(), (sums[2] - sums[0]).sum()
    assert four_point_parts((y @ y.T)[None], chosen) == pytest.approx(expected)
    noise = cloud(200, 2000)
    assert four_point_score(noise @ noise.T, some_quadruples(200, 4000, np.random.default_rng(0))) == pytest.approx(
        0.5, abs=0.02
    )


def test_other_scores_of_known_data():
    x, tree = unit_steps()
    leaves = x[tree.depth == 4]
    ultra = cdist(leaves, leaves)
    every = some_quadruples(len(leaves), 10**6, np.random.default_rng(0))
    assert ultrametric_score(ultra, every) == pytest.approx(0, abs=1e-12)
    assert cophenetic_correlation(ultra) == pytest.approx(1)
    line = np.abs(np.subtract.outer(np.arange(9.0), np.arange(9.0)))
    assert ultrametric_score(line, np.array([[0, 2, 8, 1], [1, 4, 5, 0]])) == pytest.approx((2 + 1) / (6 + 3))
    assert off_the_path(line[np.ix_([3, 1, 8, 0], [3, 1, 8, 0])]) == 0
    star = hops(nx.star_graph(9))
    assert off_the_path(star) == pytest.approx(1 - 3 / 10)
    d = squareform(pdist(cloud(30, 4)))
    assert cophenetic_correlation(d) == pytest.approx(cophenet(linkage(squareform(d), "average"), squareform(d))[0])


def test_gap_between_groups():
    two = np.concatenate([cloud(40, 2), cloud(40, 2, 1) + [30, 0]])
    d = cdist(two, two)
    fourth = np.sort(d, axis=1)[:, 4]
    bridge = d[:40, 40:].min()  # the only gap is as wide as the nearest pair across
    assert narrowest_gap(d) == pytest.approx(np.median(fourth) / bridge)
    one = squareform(pdist(cloud(80, 2)))
    assert narrowest_gap(one) > 3 * narrowest_gap(d)
    outlier = cdist(*[np.concatenate([cloud(80, 2), [[300.0, 0.0]]])] * 2)
    assert narrowest_gap(outlier) == pytest.approx(narrowest_gap(one), rel=0.1)  # one point is no group


# --- surrogates -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [rotated, flipped, permuted])
def test_surrogates_keep_the_spectrum(kind):
    random = np.random.default_rng(0)
    euclidean = squareform(pdist(cloud(12, 4)))
    other = hops(nx.cycle_graph(9))  # its squares have eigenvalues below 0
    grams = [gram_of_distances(euclidean), gram_of_distances(other)]
    spectrum = Spectrum.of_grams(grams)
    for place, gram in enumerate(grams):
        size = len(gram)
        np.testing.assert_allclose(spectrum.grams()[place, :size, :size], gram, atol=1e-10)
        made = kind(spectrum, random)[place]
        assert not made[size:].any()
        made = made[:size, :size]
        assert np.abs(made - gram).max() > 0.1
        assert np.trace(made) == pytest.approx(np.trace(gram))
        if kind is rotated:
            np.testing.assert_allclose(np.linalg.eigvalsh(made), np.linalg.eigvalsh(gram), atol=1e-9)
            np.testing.assert_allclose(made.sum(0), 0, atol=1e-9)
        if kind is flipped:
            np.testing.assert_allclose(np.diag(made), np.diag(gram))
        if kind is permuted:
            np.testing.assert_allclose(made.sum(), 0, atol=1e-9)
    assert np.linalg.eigvalsh(grams[1]).min() < -0.1


def test_rotations_of_a_normal_cloud_have_its_law():
    random = np.random.default_rng(0)
    scale = np.array([3.0, 1.0, 0.3])
    own, made = [], []
    chosen = some_quadruples(15, 200, random)
    for seed in range(300):
        x = cloud(15, 3, seed) * scale
        x -= x.mean(0)
        own.append(four_point_score(x @ x.T, chosen))
        made.append(four_point_score(rotated(Spectrum.of_grams([x @ x.T]), random)[0], chosen))
    assert stats.ks_2samp(own, made).pvalue > 0.01


def test_p_values_of_surrogates():
    values = iter(np.linspace(0, 1, 79))
    assert compare_to_surrogates(0.0, [lambda: next(values)]) == 2 / 80
    assert compare_to_surrogates(-1.0, [lambda: 0.0, lambda: 0.0]) == 1 / 80
    assert compare_to_surrogates(-1.0, [lambda: 0.0, lambda: -2.0]) == 1.0  # the kind that looks most like it counts
    drawn = iter(np.tile([1.0, 0.0], 40))
    assert compare_to_surrogates(0.5, [lambda: next(drawn)]) == 6 / 12
    assert next(drawn) == 1.0  # no more were drawn than needed
    assert compare_to_surrogates(0.92, [lambda: 1.0], margin=0.1) == 1.0
    random = np.random.default_rng(0)
    p_values = np.array([compare_to_surrogates(random.random(), [random.random]) for _ in range(2000)])
    for level in (0.025, 0.05, 0.1, 0.5):
        assert (p_values <= level).mean() < level + 3 * (level * (1 - level) / 2000) ** 0.5
    assert (p_values <= 0.05).mean() > 0.03


def test_dealt_columns():
    random = np.random.default_rng(0)
    table = np.cumsum(random.random((43, 6)), 0)
    blocks = np.array([0, 0, 1, 2, 2, 2])
    made = dealt(table, blocks, random)
    np.testing.assert_array_equal(np.sort(made, axis=0), table)
    for name in range(3):
        together = {tuple(row) for row in table[:, blocks == name].tolist()}
        assert {tuple(row) for row in made[:, blocks == name].tolist()} == together
    assert {tuple(row) for row in made.tolist()} != {tuple(row) for row in table.tolist()}
    moved = np.abs(np.searchsorted(table[:, 0], made[:, 0]) - np.arange(43))
    assert moved.max() < 13  # among ten rows of about the same mean, and a rest
    wide = dealt(random.random((10, 1000)), np.arange(1000), random)
    assert wide.shape == (10, 1000)
