"""A model of a graph beside rules that need none, judged on the same pairs of nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...data import EdgeSplit, Graph
from ...data.graphs.baselines import Edges, Rule, rules
from ...data.graphs.splits import matched_pairs
from .evaluate import Links, embed_graph, hidden_links, link_scores
from .fitted import FittedGraph

__all__ = ["contest", "judge_split", "link_baselines"]


def contest(score: Rule, graph: Graph, seen: Edges, edges: Edges, absent: Edges, dim: int) -> dict[str, Any]:
    """How well a model, and rules that need none, tell edges from other pairs.

    Arguments:
        score: of the model: a function from pairs, (pairs, 2), to scores, higher where it expects an edge.
        graph: of which no edge is among the other pairs.
        seen: edges that the model was trained on, (·, 2); all that the rules know.
        edges, absent: edges to find, and pairs without one, both (·, 2).
        dim: of the model, and number of singular vectors.

    Returns:
        "auc" and "ap" against `absent`, "auc_matched" and "ap_matched" against pairs with the degrees of the edges
        (None where there are none), of a directed graph "direction", and in "baselines" these of each rule;
        "matched_edges", how many edges have a pair with their degrees. The direction is the share of edges for which
        the score is higher than for one back, ties counting half, without edges that run both ways; None if all do.
    """
    degree = np.stack([np.bincount(ends, minlength=graph.n_nodes) for ends in seen.T])
    alike = matched_pairs(graph, edges, degree if graph.directed else degree.sum(0))
    keys = graph.edges @ [graph.n_nodes, 1]
    one_way = edges[~np.isin(edges @ [1, graph.n_nodes], keys)]

    def judged(rule: Rule) -> dict[str, float | None]:
        auc, ap = link_scores(rule(edges), rule(absent))
        matched = link_scores(*map(rule, alike)) if len(alike[0]) else (None, None)
        found = {"auc": auc, "ap": ap, "auc_matched": matched[0], "ap_matched": matched[1]}
        if not graph.directed:
            return found
        gain = np.sign(rule(one_way) - rule(one_way[:, ::-1]))
        return {**found, "direction": float((1 + gain.mean()) / 2) if len(gain) else None}

    others = {name: judged(rule) for name, rule in rules(seen, graph.n_nodes, dim, graph.directed).items()}
    return {**judged(score), "matched_edges": len(alike[0]), "baselines": others}


def judge_split(fitted: FittedGraph, graph: Graph, split: EdgeSplit) -> dict[str, Any]:
    """Of a model that was trained on a split: AUC and AP of "validation" edges, and of "test" edges `contest`."""
    embedding = embed_graph(fitted, graph)
    score = embedding.nearness_of
    return {
        "validation": vars(hidden_links(embedding, split)["validation"]),
        "test": contest(score, graph, split.train, split.test, split.test_absent, fitted.config.dim),
    }


def link_baselines(graph: Graph, split: EdgeSplit, dim: int = 2) -> dict[str, Links]:
    """How well rules that need no model find the test edges of a split, from its training edges.

    Arguments:
        graph: the graph.
        split: of its edges.
        dim: of the model that they are compared with: the number of singular vectors.

    Example:
        >>> from curvae.data import load_graph, split_edges
        >>> grid = load_graph([(10 * i + j, 10 * i + j + k) for i in range(9) for j in range(9) for k in (1, 10)])
        >>> {name: round(links.auc, 2) for name, links in link_baselines(grid, split_edges(grid), dim=8).items()}
        {'degree product': 0.28, 'common neighbours': 0.47, 'singular vectors': 0.69}
    """
    pairs = split.test, split.test_absent
    return {
        name: Links(*link_scores(*map(rule, pairs)))
        for name, rule in rules(split.train, graph.n_nodes, dim, graph.directed).items()
    }
