"""The test for a hierarchy, on data of known structure."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import combinations, product

import networkx as nx
import numpy as np
import pytest
from scipy import stats

from curvae import CurvaeError
from curvae.data import branching_diffusion, flat, load_graph
from curvae.hierarchy import (
    Rows,
    diagnose,
    diagnose_distances,
    diagnose_graph,
    examine_points,
)
from curvae.hierarchy.diagnosis import examine_links, swap_ends
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
    found = outcome(branching_diffusion(per_node=3).x[:381])
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
        "tree": nx.random_labeled_tree(100, seed=1),
        "random": nx.gnm_random_graph(100, 200, seed=1),
        "sparse": nx.gnm_random_graph(100, 110, seed=1),
        "groups": nx.relaxed_caveman_graph(8, 10, 0.1, seed=1),
        "star": nx.star_graph(60),
        "path": nx.path_graph(100),
        "stars": nx.disjoint_union_all([nx.star_graph(5), nx.path_graph(30), nx.star_graph(9)]),
        "comb": toothed(30),
        "twig": nx.from_edgelist([*nx.path_graph(30).edges, (15, 99)]),
        "ring": nx.from_edgelist([*nx.cycle_graph(30).edges, (15, 99)]),
        "lattice": nx.convert_node_labels_to_integers(nx.grid_2d_graph(12, 12)),
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
    return diagnose(load_graph(nx.balanced_tree(2, 6)))


def test_diagnosis_of_a_tree_by_its_distances_and_as_a_graph():
    found = diagnose_distances(hops(nx.balanced_tree(2, 6)))
    assert found.outcome == "tree-like" and found.delta.exact and found.delta.largest == 0
    assert found.sentence.startswith("Tree-like (p = 0.0") and "spectrum" in found.sentence
    # Room for twice the groups on a circle of radius ρ: sinh ρ = K/π, with two units each.
    low, high = found.suggested
    assert np.sinh(high) == pytest.approx(2 * found.nesting.groups / np.pi, rel=0.1) and low == pytest.approx(
        high / 3, rel=0.2
    )
    graph = diagnosed_tree()
    assert graph.outcome == "tree-like" and graph.kind == "graph" and "degrees" in graph.sentence
    assert graph.delta.mean == 0 and graph.delta.diameter == 12
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
    again = diagnose(data.x, seed=3)
    assert again.to_json() == found.to_json()
    with few_surrogates():
        assert diagnose(data.x, seed=4).delta.mean != found.delta.mean
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
