"""What a trained model says about its graph: embedding, probabilities of edges, comparison with baselines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from ..data import EdgeSplit, Graph
from ..data.graph_data import Edges, Rule, matched_pairs, neighbourhood_ranks, rules
from ..errors import CurvaeError
from ..maps.embedding import Embedding, placed

if TYPE_CHECKING:
    from .graph_problem import FittedGraph

__all__ = [
    "Links",
    "Neighbourhood",
    "embed_graph",
    "hidden_links",
    "judge_split",
    "link_baselines",
    "link_figures",
    "link_probability",
    "link_scores",
    "missing_links",
    "neighbourhood",
    "score_links",
]

_PAIRS = 1 << 21  # of nodes, looked at at once
_DISTANCES, _FEWEST = 5 * 10**8, 100  # of all nodes from those that are asked, and how many these are at least


@dataclass(frozen=True)
class Links:
    """How well joined pairs of nodes are distinguished from as many others, by distance and popularity.

    Arguments:
        auc: area under the ROC curve.
        ap: average precision.
    """

    auc: float
    ap: float

    def __float__(self) -> float:
        """Return the figure by which models are compared: AUC."""
        return self.auc


def link_scores(scores_present: ArrayLike, scores_absent: ArrayLike) -> tuple[float, float]:
    """Area under the ROC curve, and average precision, of telling edges from pairs without one.

    Arguments:
        scores_present: one an edge, higher where an edge is expected.
        scores_absent: one a pair without an edge.

    Example:
        >>> link_scores([3.0, 2.0], [1.0, 0.0])
        (1.0, 1.0)
    """
    present, absent = (np.asarray(s, dtype=np.float64).reshape(-1) for s in (scores_present, scores_absent))
    scores = np.concatenate([present, absent])
    if not len(present) or not len(absent):
        raise CurvaeError("scores of edges and of pairs without an edge are needed; give at least one of each")
    if not np.isfinite(scores).all():
        raise CurvaeError("scores are not finite; the model has diverged: lower the learning rate")
    from sklearn.metrics import average_precision_score, roc_auc_score  # takes long to import

    truth = np.repeat([1, 0], [len(present), len(absent)])
    return float(roc_auc_score(truth, scores)), float(average_precision_score(truth, scores))


def embed_graph(fitted: FittedGraph, graph: Graph) -> Embedding:
    """Posterior centres of the nodes, computed in float64, and their popularity and side where the model has them."""
    fitted = fitted.double()
    seen, model = fitted.seen(graph), fitted.model
    with torch.no_grad():
        adjacency = seen.maker(torch.float64)()
        encoded = model.encoder(adjacency, seen.features)
        found = placed(model.space, [model.posterior(encoded)], units=False)
        if model.popularity is None:
            return found
        *popular, side = model.popularity(encoded, adjacency).cpu().numpy()
        return replace(found, popularity=np.stack(popular, 1) if model.directed else popular[0], side=side)


@dataclass(frozen=True)
class Neighbourhood:
    """How well the nodes next to a node on the map, popular ones first, are its neighbours in the graph.

    Arguments:
        map: mean average precision; see `neighbourhood_map`.
        asked: how many nodes it is the mean of: all that have an edge, or a random sample of them.
        sampled: whether it is of a sample.
        rank: mean rank of a neighbour among the nodes that are none; 1 is best.
    """

    map: float
    asked: int
    sampled: bool
    rank: float


def neighbourhood(embedding: Embedding, graph: Graph, limit: int = 5000, seed: int = 0) -> Neighbourhood:
    """Mean average precision and mean rank of neighbourhoods, of all nodes with an edge or `limit` drawn from them; of
    a graph of more than 100,000 nodes fewer, down to 100."""
    nodes = np.flatnonzero(np.bincount((graph.edges[:, 0] if graph.directed else graph.edges).ravel()))
    limit = min(limit, max(_FEWEST, _DISTANCES // graph.n_nodes))
    sampled = len(nodes) > limit
    if sampled:
        nodes = np.sort(np.random.default_rng(seed).choice(nodes, limit, replace=False))
    own = 0.0 if embedding.popularity is None else embedding.popularity.reshape(len(embedding), -1)[:, -1]
    side = np.zeros(len(embedding)) if embedding.side is None else embedding.side

    def rows(start: int, stop: int) -> NDArray[np.float64]:
        asked = nodes[start:stop]
        return embedding.take(asked).distances(embedding) - own + side[asked, None] * side

    precision, rank = neighbourhood_ranks(graph, rows, nodes)
    return Neighbourhood(precision, len(nodes), sampled, rank)


def missing_links(
    fitted: FittedGraph,
    graph: Graph,
    count: int,
    *,
    embedding: Embedding | None = None,
    progress: Callable[[int], None] = lambda nodes: None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Find the pairs of nodes without an edge that most likely have one, the likeliest first, and their probabilities.

    All pairs are looked at, some of them at a time: memory does not grow with the number of pairs.

    Arguments:
        fitted: a model of the graph.
        graph: the graph.
        count: how many pairs to find, or all that have no edge if these are fewer.
        embedding: where the model places the nodes, if that is known.
        progress: called with how many more nodes are done.

    Returns:
        Places of the two nodes in `graph.names`, (count, 2), i < j or, of a directed graph, from the first to the
        second; and the probability of an edge between the centres of both, (count,).
    """
    if count < 1:
        raise CurvaeError(f"count must be at least 1, got {count}")
    embedding = embed_graph(fitted, graph) if embedding is None else embedding
    nodes, links = np.arange(graph.n_nodes), graph.links()
    best, near = np.empty((0, 2), np.int64), np.empty(0)
    for first in np.split(nodes, nodes[:: max(1, _PAIRS // graph.n_nodes)][1:]):
        absent = nodes != first[:, None] if graph.directed else nodes > first[:, None]
        absent[links[first].nonzero()] = False
        pairs = np.argwhere(absent) + [first[0], 0]
        best, near = np.concatenate([best, pairs]), np.concatenate([near, embedding.nearness_of(pairs)])
        if len(near) > count:
            kept = np.argpartition(-near, count)[:count]
            best, near = best[kept], near[kept]
        progress(len(first))
    best = best[np.lexsort((best[:, 1], best[:, 0], -near))]
    return best, link_probability(fitted, embedding, best)


def link_probability(fitted: FittedGraph, embedding: Embedding, pairs: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the probability of an edge between the centres of pairs of nodes, (pairs, 2)."""
    with torch.no_grad():
        gaps = torch.from_numpy(-embedding.nearness_of(pairs)).to(fitted.model.device)
        return fitted.model.edges.probability(gaps).cpu().numpy()


def link_figures(fitted: FittedGraph, graph: Graph) -> dict[str, Links]:
    """For the edges held out by the split of the model, "validation" and "test", if there are any."""
    split = fitted.split
    if split is None:
        raise CurvaeError("the model was trained on all edges: none are left to be predicted; train with a split")
    return hidden_links(embed_graph(fitted, graph), split)


def hidden_links(embedding: Embedding, split: EdgeSplit) -> dict[str, Links]:
    """Compute `link_figures` from where the nodes lie."""
    parts = {
        "validation": (split.validation, split.validation_absent),
        "test": (split.test, split.test_absent),
    }
    return {
        name: Links(*link_scores(*map(embedding.nearness_of, both))) for name, both in parts.items() if len(both[0])
    }


# A model of a graph beside rules that need none, judged on the same pairs of nodes.


def score_links(score: Rule, graph: Graph, seen: Edges, edges: Edges, absent: Edges, dim: int) -> dict[str, Any]:
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
    """Of a model that was trained on a split: AUC and AP of "validation" edges, and of "test" edges `score_links`."""
    embedding = embed_graph(fitted, graph)
    return {
        "validation": vars(hidden_links(embedding, split)["validation"]),
        "test": score_links(
            embedding.nearness_of, graph, split.train, split.test, split.test_absent, fitted.config.dim
        ),
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
