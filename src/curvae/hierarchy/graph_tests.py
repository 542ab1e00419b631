"""Is a graph like a tree, beyond what the degrees of its nodes explain?

The surrogates are graphs with the same degrees, made by swapping ends of links. A graph is called tree-like when it has
fewer links that close a circle than its surrogates, or when the mean δ of its paths, in units of their mean length, is
smaller; in both cases by a quarter at least. It is called clustered when more neighbours of a node are linked to each
other than in its surrogates. These are three tests, so each p-value counts three times.

A graph without a circle is a tree, or several, whatever its surrogates are: it is called tree-like where something
branches, and flat where its parts are stars and paths.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from ..data import Graph
from ..data.graphs.graph_data import link_matrix
from ..errors import CurvaeError
from .delta import four_sums, quadruples
from .distances import path_lengths
from .nesting import FEWEST, LEVEL, Nesting, Outcome
from .surrogates import Score, compare_to_surrogates

__all__ = ["check_graph", "examine_links", "swap_ends"]

Edges = NDArray[np.int64]
Measure = Callable[[csr_array], float]

_SWEEPS = 10
_SOURCES = 80
_QUADRUPLES = 3000
_MARGIN = 0.25  # paths on a grid or between near points are a little more like a tree than random ones


def swap_ends(edges: Edges, nodes: int, random: np.random.Generator, sweeps: int = _SWEEPS) -> Edges:
    """A random graph with the same degrees, without loops and double links.

    In every sweep all links are paired at random and each pair {a, b}, {c, d} proposes {a, d}, {c, b}. A pair is left
    alone when it would make a loop, or when any of its old or new links is an old or new link of another pair too.
    That rule reads the same backwards, so all graphs with these degrees are equally likely in the long run.

    Arguments:
        edges: pairs i < j of nodes, each once.
        nodes: their number.
        random: source of the swaps.
        sweeps: how often every link gets the chance.

    Example:
        >>> ring = np.array([[0, 1], [1, 2], [2, 3], [3, 4], [0, 4]])
        >>> np.bincount(swap_ends(ring, 5, np.random.default_rng(0)).ravel()).tolist()
        [2, 2, 2, 2, 2]
    """
    links, half = edges.copy(), len(edges) // 2
    for _ in range(sweeps):
        order = random.permutation(len(links))
        first, second = links[order[:half]], links[order[half : 2 * half]]
        turned = np.where(random.random((half, 1)) < 0.5, second, second[:, ::-1])
        new = np.sort(np.stack([np.stack([first[:, 0], turned[:, 1]], 1), np.stack([turned[:, 0], first[:, 1]], 1)]))
        loops = (new[..., 0] == new[..., 1]).any(0)
        alone = links[order[2 * half :]]  # of an odd number one link is without a pair
        every = np.concatenate([first, second, *new, alone])
        keys = every[:, 0] * nodes + every[:, 1]
        values, counts = np.unique(keys, return_counts=True)
        shared = (counts[np.searchsorted(values, keys[: 4 * half])] > 1).reshape(4, half).any(0)
        swapped = np.flatnonzero(~(loops | shared))
        links[order[swapped]], links[order[half + swapped]] = new[0][swapped], new[1][swapped]
    return links[np.lexsort(links.T[::-1])]


def _delta(adjacency: csr_array, random: np.random.Generator) -> float:
    """Mean δ of paths over their mean length, among some nodes of the largest component."""
    _, component = connected_components(adjacency, directed=False)
    inside = np.flatnonzero(component == np.bincount(component).argmax())
    if len(inside) < 4:
        return 0.0
    place = random.permutation(inside)[:_SOURCES]
    d = path_lengths(adjacency, place)
    sums = four_sums(lambda i, j: d[i, j], quadruples(len(place), _QUADRUPLES, random))
    return float((sums[2] - sums[1]).mean() / 2 / d[np.triu_indices(len(d), 1)].mean())


def _circles(adjacency: csr_array) -> float:
    links, nodes = adjacency.nnz / 2, adjacency.shape[0]
    parts, _ = connected_components(adjacency, directed=False)
    return float(links - nodes + parts) / links if links else 0.0


def _branches(forest: csr_array) -> bool:
    """Whether some part of a graph without circles is neither a star nor a path."""
    parts, component = connected_components(forest, directed=False)
    degree, widest = np.diff(forest.indptr), np.zeros(parts, dtype=np.intp)
    np.maximum.at(widest, component, degree)
    return bool(((widest > 2) & (np.bincount(component, degree > 1) > 1)).any())


def _transitivity(adjacency: csr_array) -> float:
    degree = np.diff(adjacency.indptr).astype(np.float64)
    pairs = float((degree * (degree - 1)).sum())
    return float((adjacency @ adjacency).multiply(adjacency).sum()) / pairs if pairs else 0.0


def check_graph(graph: Graph) -> None:
    """Raise where there is nothing to test."""
    if graph.directed:
        raise CurvaeError(
            "a graph is tested for a hierarchy by paths in either direction; load it without directed=True"
        )
    if graph.n_nodes < FEWEST:
        raise CurvaeError(f"{graph.n_nodes} nodes are too few to test for a hierarchy; give at least {FEWEST}")
    if not graph.n_edges:
        raise CurvaeError("a graph without edges has no hierarchy; give one with edges")


def examine_links(graph: Graph, random: np.random.Generator) -> tuple[Nesting, list[Score]]:
    """Test a graph against graphs with the same degrees.

    Arguments:
        graph: its weights do not count.
        random: source of the surrogates.

    Example:
        >>> tree = Graph(np.arange(63).astype(str), np.array([[(i - 1) // 2, i] for i in range(1, 63)]))
        >>> examine_links(tree, np.random.default_rng(0))[0].outcome
        'tree-like'
    """
    check_graph(graph)
    links = graph.edges

    def surrogate() -> csr_array:
        nonlocal links
        links = swap_ends(links, graph.n_nodes, random)
        return link_matrix(links, graph.n_nodes)

    own = link_matrix(graph.edges, graph.n_nodes)
    p_values, scores = [], []
    for name, measure, sign, margin, meaning in (
        ("mean δ over mean path", partial(_delta, random=random), 1, _MARGIN, "0 in a tree"),
        ("links that close a circle", _circles, 1, _MARGIN, "share of all links; 0 in a tree"),
        ("transitivity", _transitivity, -1, 0.0, "share of pairs of neighbours that are linked; high in groups"),
    ):
        drawn: list[float] = []

        def draw(measure: Measure = measure, sign: int = sign, drawn: list[float] = drawn) -> float:
            drawn.append(measure(surrogate()))
            return sign * drawn[-1]

        value = measure(own)
        p_values.append(min(1.0, 3 * compare_to_surrogates(sign * value, [draw], margin)))
        scores.append(Score(name, value, tuple(drawn), meaning))
    p_tree = min(p_values[:2])
    outcome: Outcome = "tree-like" if p_tree <= LEVEL else "clustered" if p_values[2] <= LEVEL else "flat"
    forest = _circles(own) == 0
    if forest:
        outcome = "tree-like" if _branches(own) else "flat"
    return Nesting(outcome, min(p_values), p_tree, False, graph.n_nodes // 2, forest), scores
