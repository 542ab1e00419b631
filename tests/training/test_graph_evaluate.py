"""How well edges are found again: scores, missing links and neighbourhoods."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu

from curvae import PoincareGraphVAE
from curvae.data import load_graph
from curvae.errors import CurvaeError
from curvae.training import graph_problem, missing_links
from curvae.training.fitted import GraphConfig
from curvae.training.graph_problem import link_scores, neighbourhood


def as_set(pairs: NDArray[np.int64]) -> set[tuple[int, int]]:
    return {(int(i), int(j)) for i, j in pairs}


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
    monkeypatch.setattr(graph_problem, "_PAIRS", 5 * graph.n_nodes)  # several blocks, the last of fewer nodes
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


# --- large graphs ----------------------------------------------------------------------------------------------------


def test_neighbourhoods_of_a_very_large_graph_are_asked_of_fewer_nodes(monkeypatch):
    graph = load_graph(nx.barabasi_albert_graph(300, 3, seed=0))
    monkeypatch.setattr(graph_problem, "_DISTANCES", 150 * 300)
    fitted = graph_problem.fit_graph(GraphConfig(epochs=1), graph)
    found = neighbourhood(graph_problem.embed_graph(fitted, graph), graph)
    assert (found.asked, found.sampled) == (150, True)
