"""Hiding edges, and how well they are found again."""

from __future__ import annotations

from dataclasses import fields, replace

import networkx as nx
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from scipy.stats import chisquare, mannwhitneyu
from sklearn.metrics import average_precision_score

from curvae import PoincareGraphVAE
from curvae.data import EdgeSplit, Graph, load_graph, split_edges
from curvae.data.graphs import graph_data as ranking
from curvae.data.graphs.graph_data import neighbourhood_map, neighbourhood_ranks
from curvae.errors import CurvaeError
from curvae.training import graph_evaluate as evaluate
from curvae.training import missing_links
from curvae.training.graph_evaluate import link_scores


def random_graph(nodes: int, edges: int, seed: int = 0) -> Graph:
    return load_graph(nx.gnm_random_graph(nodes, edges, seed=seed))


def as_set(pairs: NDArray[np.int64]) -> set[tuple[int, int]]:
    return {(int(i), int(j)) for i, j in pairs}


# --- split ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "edges"), [(344, 343), (60, 400), (1025, 1043), (12, 40)])
@pytest.mark.parametrize("seed", [0, 1])
def test_split(nodes: int, edges: int, seed: int) -> None:
    graph = random_graph(nodes, edges)
    split = split_edges(graph, seed=seed)
    held, tested = edges // 20, edges // 10
    sizes = [len(getattr(split, field.name)) for field in fields(EdgeSplit)]
    assert sizes == [edges - held - tested, held, tested, held, tested]
    for field in fields(EdgeSplit):
        pairs = getattr(split, field.name)
        assert pairs.dtype == np.int64 and pairs.shape[1] == 2
        assert (pairs[:, 0] < pairs[:, 1]).all() and pairs.min() >= 0 and pairs.max() < nodes
        assert len(as_set(pairs)) == len(pairs)
    present = [as_set(part) for part in (split.train, split.validation, split.test)]
    absent = [as_set(part) for part in (split.validation_absent, split.test_absent)]
    assert set.union(*present) == as_set(graph.edges) and sum(map(len, present)) == edges
    assert not set.union(*absent) & set.union(*present) and not absent[0] & absent[1]
    replace(graph, edges=split.train)  # sorted as a graph wants them


def test_split_depends_on_the_seed_alone() -> None:
    graph = random_graph(100, 200)
    first, again, other = (split_edges(graph, seed=seed) for seed in (5, 5, 6))
    for field in fields(EdgeSplit):
        np.testing.assert_array_equal(getattr(first, field.name), getattr(again, field.name))
        assert not np.array_equal(getattr(first, field.name), getattr(other, field.name))


def test_every_edge_and_every_pair_without_one_is_drawn_alike() -> None:
    graph = random_graph(9, 20)  # 16 pairs without an edge
    names = ("validation", "test", "validation_absent", "test_absent")
    counts = {name: np.zeros((9, 9)) for name in names}
    for seed in range(2000):
        split = split_edges(graph, 0.1, 0.2, seed)
        for name in names:
            np.add.at(counts[name], tuple(getattr(split, name).T), 1)
    linked = np.triu(graph.adjacency().toarray(), 1) > 0
    for name, count in counts.items():
        possible = np.triu(~linked, 1) if "absent" in name else linked
        assert (count[~possible] == 0).all()
        assert chisquare(count[possible]).pvalue > 1e-4


def test_split_takes_all_pairs_where_it_must() -> None:
    nodes = 8
    whole = nx.complete_graph(nodes)
    whole.remove_edges_from([(0, 7), (2, 3), (6, 7)])
    graph = load_graph(whole)
    split = split_edges(graph, 1 / 25, 2 / 25)
    assert as_set(split.validation_absent) | as_set(split.test_absent) == {(0, 7), (2, 3), (6, 7)}
    with pytest.raises(CurvaeError, match="too dense: 3 pairs of nodes without an edge where 4 are needed"):
        split_edges(graph, 2 / 25, 2 / 25)


def test_shares() -> None:
    graph = random_graph(50, 100)
    assert len(split_edges(graph, 0.29, 0.57).validation) == 29
    none = split_edges(graph, 0, 0)
    assert none.test.shape == none.validation_absent.shape == (0, 2) and none.train.shape == (100, 2)
    for validation, test in ((0.5, 0.5), (-0.1, 0.1), (0.1, float("nan")), (0, 1)):
        with pytest.raises(CurvaeError, match="shares of"):
            split_edges(graph, validation, test)
    with pytest.raises(
        CurvaeError, match="a share of 0.05 of 19 edges rounds down to no edge for validation; .* 20 edges"
    ):
        split_edges(random_graph(20, 19))
    with pytest.raises(CurvaeError, match="a share of 0.01 of 20 edges rounds down to no edge for test"):
        split_edges(random_graph(20, 20), test=0.01)
    assert len(split_edges(random_graph(20, 20)).validation) == 1


def test_split_of_many_nodes() -> None:
    pairs = np.random.default_rng(0).integers(0, 100_000, (200_000, 2))
    graph = load_graph(pairs)
    split = split_edges(graph)
    keys = [
        part[:, 0] * graph.n_nodes + part[:, 1] for part in (graph.edges, split.validation_absent, split.test_absent)
    ]
    assert np.unique(np.concatenate(keys)).size == sum(map(len, keys))
    assert abs(split.test_absent.mean() / graph.n_nodes - 0.5) < 0.01


# --- scores -----------------------------------------------------------------------------------------------------------


def test_link_scores_against_other_formulas() -> None:
    random = np.random.default_rng(0)
    present, absent = random.normal(1, 1, 60).round(1), random.normal(0, 1, 80).round(1)  # with ties
    auc, precision = link_scores(present, absent)
    assert auc == pytest.approx(mannwhitneyu(present, absent).statistic / (60 * 80))
    steps = [(absent >= score).sum() for score in present]
    hits = [(present >= score).sum() for score in present]
    assert precision == pytest.approx(np.mean([h / (h + s) for h, s in zip(hits, steps, strict=True)]))
    assert link_scores(absent, present)[0] == pytest.approx(1 - auc)
    assert link_scores(np.ones(5), np.ones(5)) == (0.5, 0.5)


def test_link_scores_refuse() -> None:
    with pytest.raises(CurvaeError, match="at least one of each"):
        link_scores([], [1.0])
    with pytest.raises(CurvaeError, match="not finite"):
        link_scores([1.0, np.nan], [1.0])


def oracle(graph: Graph, distances: NDArray[np.float64]) -> float:
    adjacency = graph.adjacency().toarray() > 0
    others = ~np.eye(graph.n_nodes, dtype=bool)
    scores = [
        average_precision_score(adjacency[i][others[i]], -distances[i][others[i]])
        for i in range(graph.n_nodes)
        if adjacency[i].any()
    ]
    return float(np.mean(scores))


@pytest.mark.parametrize("block", [1, 130, 1 << 22])
@pytest.mark.parametrize("digits", [0, 1, 12], ids=lambda digits: f"{digits} digits")
def test_neighbourhood_map_against_scikit_learn(monkeypatch: pytest.MonkeyPatch, block: int, digits: int) -> None:
    monkeypatch.setattr(ranking, "_BLOCK", block)
    graph = random_graph(40, 60, seed=2)
    assert (np.bincount(graph.edges.ravel(), minlength=40) == 0).any()
    points = np.random.default_rng(0).normal(size=(40, 3)).round(digits)  # fewer digits, more ties
    distances = cdist(points, points)
    expected = oracle(graph, distances)
    assert neighbourhood_map(graph, distances) == pytest.approx(expected, abs=1e-12)
    asked: list[tuple[int, int]] = []

    def rows(start: int, stop: int) -> NDArray[np.float64]:
        asked.append((start, stop))
        return cdist(points[start:stop], points)

    assert neighbourhood_map(graph, rows) == pytest.approx(expected, abs=1e-12)
    step = max(1, block // 40)
    assert asked == [(i, min(i + step, 40)) for i in range(0, 40, step)]


@pytest.mark.parametrize("digits", [0, 12], ids=lambda digits: f"{digits} digits")
def test_mean_ranks_against_brute_force(digits: int) -> None:
    graph = random_graph(40, 60, seed=2)
    points = np.random.default_rng(0).normal(size=(40, 3)).round(digits)
    distances, adjacency = cdist(points, points), graph.adjacency().toarray() > 0
    ranks = []
    for i, j in zip(*np.nonzero(adjacency), strict=True):
        nearer = [k for k in range(40) if k != i and not adjacency[i, k] and distances[i, k] < distances[i, j]]
        ranks.append(1 + len(nearer))
    precision, rank = neighbourhood_ranks(graph, distances)
    assert rank == pytest.approx(np.mean(ranks)) and precision == neighbourhood_map(graph, distances)


def test_neighbourhood_map_of_plain_cases() -> None:
    path = load_graph(nx.path_graph(6))
    places = np.arange(6.0)
    assert neighbourhood_map(path, abs(places[:, None] - places)) == 1
    assert neighbourhood_map(path, 9 - abs(places[:, None] - places)) < 0.5
    star = load_graph(nx.star_graph(4))
    assert neighbourhood_map(star, np.zeros((5, 5))) == pytest.approx((1 + 4 * 0.25) / 5)  # all is one tie
    far = np.full((5, 5), 1.0)
    np.fill_diagonal(far, 7.0)  # a node's distance to itself does not matter
    assert neighbourhood_map(star, far) == pytest.approx((1 + 4 * 0.25) / 5)


def test_neighbourhood_map_refuses() -> None:
    graph = load_graph(nx.path_graph(3))
    with pytest.raises(CurvaeError, match=r"shape \(3, 2\)"):
        neighbourhood_map(graph, np.zeros((3, 2)))
    with pytest.raises(CurvaeError, match="not numbers"):
        neighbourhood_map(graph, np.full((3, 3), np.nan))
    with pytest.raises(CurvaeError, match="without edges"):
        neighbourhood_map(replace(graph, edges=graph.edges[:0]), np.zeros((3, 3)))


@pytest.mark.parametrize("directed", [False, True])
def test_missing_links_against_all_pairs(directed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    pairs = [(f"n{a}", f"n{b}") for a, b in random.integers(0, 24, (70, 2)).tolist() if a != b]
    graph = load_graph(pairs, directed=directed)
    model = PoincareGraphVAE(directed=directed, epochs=3, hidden=(4,), random_state=0).fit(graph)
    fitted = model._fitted
    every = [(i, j) for i in range(graph.n_nodes) for j in range(graph.n_nodes) if (i != j if directed else i < j)]
    absent = np.array(sorted(set(every) - as_set(graph.edges)))
    expected = model.link_probability(absent)
    monkeypatch.setattr(evaluate, "_PAIRS", 5 * graph.n_nodes)  # several blocks, the last of fewer nodes
    seen: list[int] = []
    found, probability = missing_links(fitted, graph, 7, progress=seen.append)
    assert sum(seen) == graph.n_nodes and max(seen) == 5 and seen[-1] < 5
    order = np.argsort(-expected, kind="stable")
    np.testing.assert_allclose(probability, expected[order[:7]], rtol=1e-6)
    assert as_set(found) == as_set(absent[order[:7]])
    everything, probability = missing_links(fitted, graph, 10**6)
    assert len(everything) == len(absent) and as_set(everything) == as_set(absent)
    assert (np.diff(probability) <= 0).all()
    with pytest.raises(CurvaeError, match="at least 1"):
        missing_links(fitted, graph, 0)
