"""The test for a hierarchy, on data of known structure."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import combinations, product
from math import comb

import networkx as nx
import numpy as np
import pytest
from scipy import stats
from scipy.cluster.hierarchy import cophenet, cut_tree, linkage
from scipy.spatial.distance import cdist, pdist, squareform

from curvae import CurvaeError
from curvae.data import branching_diffusion, flat, load_graph
from curvae.hierarchy import (
    Rows,
    diagnose,
    diagnose_distances,
    diagnose_graph,
    estimate_delta,
    exact_delta,
    examine_points,
)
from curvae.hierarchy.diagnosis import (
    Spectrum,
    _Points,
    compare_to_surrogates,
    cophenetic_correlation,
    dealt,
    examine_links,
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
    swap_ends,
    ultrametric_score,
)
from curvae.maps.statistics import gram_of_distances
from running import few_surrogates


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


def cloud(size, dim, seed=0):
    return np.random.default_rng(seed).normal(size=(size, dim))


def outcome(x, seed=0, **options):
    rows = Rows(x, **options)
    return examine_points(rows.table(np.arange(len(x))), np.random.default_rng(seed), rows.sample(np.arange(len(x))))


def test_a_branching_diffusion_is_like_a_tree():
    found = outcome(branching_diffusion(per_node=2).x[:254])
    assert found.outcome == "tree-like" and found.p_nesting <= 0.05 >= found.p_groups
    assert found.groups >= 20 and not found.curve and found.verdict == "found"


@pytest.mark.parametrize("number", [3, 10, 25])
def test_clusters_without_nesting_are_not(number):
    random = np.random.default_rng(number)
    x = 4 * random.normal(size=(number, 10))[random.integers(number, size=250)] + random.normal(size=(250, 10))
    found = outcome(x)
    assert found.outcome == "clustered" and found.p_groups <= 0.05 < found.p_nesting
    assert found.verdict == ("not found" if number == 25 else "too few groups to tell")


def test_three_groups_of_three_groups_are_too_few_to_tell():
    random = np.random.default_rng(0)
    centres = 3 * random.normal(size=(3, 1, 10)) + 1.5 * random.normal(size=(3, 3, 10))
    x = centres.reshape(9, 10)[random.integers(9, size=250)] + random.normal(size=(250, 10))
    found = diagnose(x)
    cophenetic = found.scores[-1]
    assert found.outcome == "clustered" and found.nesting.verdict == "too few groups to tell"
    assert cophenetic.name == "cophenetic correlation" and cophenetic.value > cophenetic.surrogate + 0.2
    assert found.sentence.startswith("Clustered, too few groups to tell whether they are nested (p = 0.0")
    figures = f"cophenetic correlation is {cophenetic.value:.2f}, that of surrogates {cophenetic.surrogate:.2f}; try"
    assert figures in found.sentence and "no groups of groups" not in found.sentence
    assert found.to_json()["nesting"] == found.nesting.verdict


def test_clouds_are_flat():
    random = np.random.default_rng(3)
    normal = random.normal(size=(200, 8))
    clouds = {
        "normal": normal / np.arange(1, 9),
        "wide": random.normal(size=(80, 300)),
        "heavy tails": normal / np.sqrt(random.chisquare(3, size=(200, 1)) / 3),
        "sphere": normal[:, :3] / np.linalg.norm(normal[:, :3], axis=1, keepdims=True),
        "grid": np.array(list(product(range(14), range(14))), dtype=float),
    }
    assert {name: outcome(x).outcome for name, x in clouds.items()} == dict.fromkeys(clouds, "flat")


def test_columns_may_be_sparse_or_span_decades():
    random = np.random.default_rng(0)
    counts = random.poisson(random.gamma(0.5, 0.3, 150), (170, 150)).astype(float)
    random = np.random.default_rng(1)
    factors = random.normal(size=(170, 2)) @ random.normal(size=(2, 15))
    decades = np.exp(1.2 * factors + 0.3 * random.normal(size=(170, 15)))
    for x in (counts, decades):
        rows = Rows((x - x.mean(0)) / (x.std(0) + 1e-12))
        d = rows.table(np.arange(170))
        # Their distances alone look like groups; their columns show why.
        assert examine_points(d, np.random.default_rng(0)).outcome != "flat"
        assert examine_points(d, np.random.default_rng(0), rows).outcome == "flat"


def test_a_curve_is_flat_and_said_to_be_one():
    random = np.random.default_rng(0)
    place = random.uniform(0, np.pi, 200)
    found = outcome(np.stack([np.cos(place), np.sin(place)], 1) + 0.02 * random.normal(size=(200, 2)))
    assert found.outcome == "flat" and found.curve
    # Groups along a line are groups.
    line = np.repeat([0.0, 10.0, 25.0], 60) + random.normal(size=180)
    found = outcome(line[:, None])
    assert found.outcome == "clustered" and found.curve


def test_too_few_or_equal_points():
    with pytest.raises(CurvaeError, match="15 points are too few"):
        diagnose(cloud(15, 2))
    with pytest.raises(CurvaeError, match="all points are the same"):
        diagnose(np.ones((20, 2)))


# --- graphs -----------------------------------------------------------------------------------------------------------


def test_swaps_keep_degrees_and_reach_all_graphs_alike():
    start = np.array([[0, 1], [0, 2], [0, 3], [1, 2], [3, 4]])
    degrees = np.bincount(start.ravel())
    pairs = list(combinations(range(5), 2))
    every = {
        frozenset(chosen)
        for chosen in combinations(pairs, 5)
        if (np.bincount(np.array(chosen).ravel(), minlength=5) == degrees).all()
    }
    random = np.random.default_rng(0)
    links, found = start, Counter()
    for _ in range(400):
        links = swap_ends(links, 5, random, sweeps=15)  # enough to forget the last
        found[frozenset(map(tuple, links.tolist()))] += 1
    assert set(found) == every and len(every) == 6
    assert stats.chisquare([found[graph] for graph in every]).pvalue > 1e-3
    star = np.array([[0, 1], [0, 2], [0, 3]])
    np.testing.assert_array_equal(swap_ends(star, 4, random), star)


def toothed(teeth):
    """A path with one more node at each of its nodes."""
    return nx.from_edgelist([*nx.path_graph(teeth).edges, *((k, teeth + k) for k in range(teeth))])


def test_graphs():
    random = np.random.default_rng(0)
    made = {
        "tree": nx.random_labeled_tree(70, seed=1),
        "random": nx.gnm_random_graph(60, 120, seed=1),
        "sparse": nx.gnm_random_graph(60, 66, seed=1),
        "groups": nx.relaxed_caveman_graph(8, 10, 0.1, seed=1),
        "star": nx.star_graph(40),
        "path": nx.path_graph(50),
        "stars": nx.disjoint_union_all([nx.star_graph(5), nx.path_graph(30), nx.star_graph(9)]),
        "comb": toothed(30),
        "twig": nx.from_edgelist([*nx.path_graph(30).edges, (15, 99)]),
        "ring": nx.from_edgelist([*nx.cycle_graph(30).edges, (15, 99)]),
        "lattice": nx.convert_node_labels_to_integers(nx.grid_2d_graph(8, 8)),
    }
    found = {name: examine_links(load_graph(graph), random)[0].outcome for name, graph in made.items()}
    assert found == {
        "tree": "tree-like",
        "random": "flat",
        "sparse": "flat",
        "groups": "clustered",
        "star": "flat",
        "path": "flat",
        "stars": "flat",
        "comb": "tree-like",
        "twig": "tree-like",
        "ring": "flat",
        "lattice": "flat",
    }
    groups = nx.connected_watts_strogatz_graph(40, 4, 0.2, seed=0)
    _, scores = examine_links(load_graph(groups), random)
    assert scores[2].value == pytest.approx(nx.transitivity(groups))
    assert scores[1].value == pytest.approx((groups.number_of_edges() - 39) / groups.number_of_edges())
    d = hops(groups)
    truth = all_deltas(d).mean() / d[np.triu_indices(40, 1)].mean()
    assert scores[0].value == pytest.approx(truth, rel=0.06)
    with pytest.raises(CurvaeError, match="too few"):
        diagnose_graph(load_graph([("a", "b"), ("b", "c")]))


# --- the answer -------------------------------------------------------------------------------------------------------


@cache
def diagnosed_tree():
    return diagnose(load_graph(nx.balanced_tree(2, 5)))


def test_diagnosis_of_a_tree_by_its_distances_and_as_a_graph():
    found = diagnose_distances(hops(nx.balanced_tree(2, 5)))
    assert found.outcome == "tree-like" and found.delta.exact and found.delta.largest == 0
    assert found.sentence.startswith("Tree-like (p = 0.0") and "spectrum" in found.sentence
    # Room for twice the groups on a circle of radius ρ: sinh ρ = K/π, with two units each.
    low, high = found.suggested
    assert np.sinh(high) == pytest.approx(2 * found.nesting.groups / np.pi, rel=0.1) and low == pytest.approx(
        high / 3, rel=0.2
    )
    graph = diagnosed_tree()
    assert graph.outcome == "tree-like" and graph.kind == "graph" and "degrees" in graph.sentence
    assert graph.delta.mean == 0 and graph.delta.diameter == 10
    assert graph.scores[0].value == 0 and len(graph.scores[0].surrogates) == 79


def test_sentences_about_graphs_without_circles():
    found = diagnose(load_graph(nx.star_graph(40)))
    assert found.sentence.startswith("Flat: the graph has no circle, but no part of it is more than a star or a path")
    assert found.suggested == (0.0,) and found.to_json()["forest"]
    twig = diagnose(load_graph(nx.from_edgelist([*nx.path_graph(30).edges, (15, 99)])))
    assert twig.sentence.startswith("Tree-like: the graph has no circle, so it is a tree or several; graphs of")
    assert f"(p = {twig.nesting.p_nesting:.2g}); try c·σ0² = " in twig.sentence and twig.nesting.p_nesting > 0.05
    tree = diagnosed_tree()
    assert tree.nesting.forest and "beyond what the degrees alone explain" in tree.sentence


def test_diagnosis_of_flat_rows_samples_and_repeats():
    data = flat(rows=600, dim=5)
    found = diagnose(data.x, seed=3)
    assert found.outcome == "flat" and found.suggested == (0.0,) and "c·σ0² = 0" in found.sentence
    assert found.notes == ("400 of 600 rows were drawn at random for the test and the scores.",)
    assert len(found.sample) == 400 and found.merges.shape == (399, 4)
    with few_surrogates():
        one, again, other = (diagnose(data.x, seed=seed) for seed in (3, 3, 4))
    assert again.to_json() == one.to_json()
    assert other.delta.mean != found.delta.mean
    figures = found.to_json()
    assert figures["p_value"] == max(figures["p_groups"], figures["p_nesting"])
    assert figures["delta"]["relative_mean"] == pytest.approx(2 * found.delta.mean / found.delta.diameter)
    four_point = found.scores[0]
    assert abs(four_point.value - four_point.surrogate) < 0.02


def test_components_and_weights_of_a_graph():
    pairs = [(i, (i - 1) // 2) for i in range(1, 40)] + [(100, 101)]
    found = diagnose_graph(load_graph(pairs))
    assert found.notes == ("δ is that of the largest component, 40 of 42 nodes.",)
    with pytest.raises(CurvaeError, match="largest component has 2 nodes"):
        diagnose_graph(load_graph([(2 * i, 2 * i + 1) for i in range(20)]))


# Groups within groups.


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
