"""How faithful is the map of a graph: are nodes near on it that are few steps apart, more than on a spectral map?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from ..data import Graph
from ..data.graphs.centrality import steps_between
from ..data.graphs.graph_data import link_matrix
from ..data.principal import mean_interval, rank_correlation
from ..errors import CurvaeError
from .coranking import Agreement, Array, Index, neighbour_ranks
from .distances import largest_component
from .faithfulness import FEWEST, some_pairs
from .map_distances import MapDistance, Places, places_of
from .verdicts import compare_kept, describe_kept

__all__ = ["GraphFaithfulness", "GraphFigures", "graph_faithfulness"]

_GROUPS, _EACH = 5, 50  # nodes of a large graph whose neighbours are looked up
_BLOCK = 1 << 20  # distances held at once
_DENSE = 400  # nodes up to which all eigenvectors are computed
_SOLVED, _LINKS = 100_000, 8  # nodes up to which equations of any graph are solved, and links a node of larger ones
_NUMBERS = ("qlocal", "qglobal", "rank_correlation")


@dataclass(frozen=True)
class GraphFigures:
    """What a map keeps of a graph; 1 is all, for every figure.

    Arguments:
        qlocal, qglobal: shares of near and far nodes kept, by steps along edges.
        rank_correlation: Spearman's, of steps and distances on the map.
        nodes: whose neighbours were looked up.
        kept_by_group: `qlocal` and `qglobal` of groups of nodes, (groups, 2), by which maps are compared.
        intervals: half-widths of 95 % intervals, where figures are means over groups of nodes.
    """

    qlocal: float
    qglobal: float
    rank_correlation: float
    nodes: int
    kept_by_group: Array = field(repr=False, compare=False)
    intervals: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Every figure, as JSON values."""
        return {name: getattr(self, name) for name in (*_NUMBERS, "nodes")} | {"intervals": dict(self.intervals)}


@dataclass(frozen=True)
class GraphFaithfulness:
    """The result of `graph_faithfulness`.

    Arguments:
        map, spectral: figures of the map, and of a spectral embedding of the same dimension.
        dim: of the map.
        nodes: of the largest component, among which neighbours are looked up.
    """

    map: GraphFigures
    spectral: GraphFigures
    dim: int
    nodes: int

    @property
    def behind(self) -> tuple[str, ...]:
        """Which of "near" and "far" nodes the map keeps fewer of than a spectral embedding."""
        return tuple(name for name, sign in compare_kept(self.map, self.spectral).items() if sign < 0)

    @property
    def verdict(self) -> str:
        """The answer in one sentence."""
        return describe_kept(self.map, self.spectral, "a spectral embedding", self.dim, "nodes")

    @property
    def warnings(self) -> list[str]:
        """A map that keeps fewer nodes than a spectral embedding, with the remedy."""
        if not self.behind:
            return []
        fix = "more latent dimensions or a longer training may keep more"
        return [f"the map keeps fewer {' and '.join(self.behind)} nodes than a spectral embedding; {fix}"]

    def to_json(self) -> dict[str, Any]:
        """Every figure, as JSON values."""
        parts = {"map": self.map.to_json(), "spectral": self.spectral.to_json()}
        return {"verdict": self.verdict, **parts, "dim": self.dim, "nodes": self.nodes}


def graph_faithfulness(
    graph: Graph, places: Any, *, distance: MapDistance = "euclidean", seed: int = 0, nodes: int = 2000
) -> GraphFaithfulness | None:
    """How much a map keeps of the steps between nodes, compared with a spectral embedding of the same dimension.

    Qlocal and Qglobal are those of `faithfulness`, with steps along edges as distances in the data. Many nodes are
    equally many steps away; these may come in any order on the map. Nodes outside of the largest component, to which no
    path leads, are left out.

    Arguments:
        graph: the graph; weights and directions of edges do not count.
        places: coordinates on the map, (nodes, d), or an `Embedding`, whose own distances are used, without popularity.
        distance: of coordinates, as of `faithfulness`.
        seed: of the choice of nodes.
        nodes: up to so many, figures are exact. Of more, the neighbours of 250 random ones are looked up among all, and
            figures have intervals over five groups of these.

    Returns:
        None where the largest component has fewer than 10 nodes, or no spectral embedding is found of a large graph.

    Example:
        >>> path = Graph(np.arange(12).astype(str), np.stack([np.arange(11), np.arange(1, 12)], 1))
        >>> found = graph_faithfulness(path, np.arange(12.0)[:, None])
        >>> found.map.qlocal, round(found.map.rank_correlation, 6)
        (1.0, 1.0)
    """
    shown = places_of(places, distance)
    if len(shown) != graph.n_nodes:
        raise CurvaeError(
            f"the graph has {graph.n_nodes:,} nodes and the map {len(shown):,}; give a place for every node"
        )
    inside = largest_component(graph)
    if len(inside) < FEWEST:
        return None
    links = csr_array(link_matrix(graph.edges, graph.n_nodes)[inside][:, inside])
    random = np.random.default_rng(seed)
    count = len(inside)
    groups = [np.arange(count)]
    if count > nodes:
        groups = np.split(random.permutation(count)[: _GROUPS * _EACH], _GROUPS)
    spectral = _spectral(links, shown.dim)
    if spectral is None:
        return None
    maps = [(shown, inside), (places_of(spectral), np.arange(count))]
    judged = [_figures(links, maps, group, random) for group in groups]
    found = [_mean([one[place] for one in judged]) for place in range(2)]
    return GraphFaithfulness(found[0], found[1], shown.dim, count)


def _spectral(links: csr_array, dim: int) -> Array | None:
    """Laplacian eigenmaps of a connected graph, (nodes, dim): vectors of the random walk, less the constant one.
    None if they are not found, and the graph is too large to solve equations.

    References:
        Belkin and Niyogi (2003), Laplacian eigenmaps for dimensionality reduction and data representation.
    """
    count = links.shape[0]
    root = 1 / np.sqrt(links.sum(1))
    walk = csr_array(diags_array(root) @ links @ diags_array(root))
    dim = min(dim, count - 1)
    if count <= max(_DENSE, 2 * dim + 2):
        vectors = np.linalg.eigh(walk.toarray())[1]
    else:
        tol = 0.0 if count <= _SOLVED else 1e-4
        how = {"k": dim + 1, "tol": tol, "v0": np.random.default_rng(0).standard_normal(count)}
        try:
            values, vectors = eigsh(walk, which="LA", maxiter=300, **how)
        except ArpackNoConvergence:
            # Walks that mix slowly are those on trees and grids, whose equations are quickly solved.
            if count > _SOLVED and walk.nnz > _LINKS * count:
                return None
            values, vectors = eigsh(walk, sigma=1.001, **how)
        vectors = vectors[:, np.argsort(values)]
    return vectors[:, -2 : -2 - dim : -1] * root[:, None]


def _figures(
    links: csr_array, maps: Sequence[tuple[Places, Index]], asked: Index, random: np.random.Generator
) -> list[GraphFigures]:
    """Of some nodes, whose neighbours are looked up among all of the component."""
    count = links.shape[0]
    counts = [Agreement(count - 1, min(15, (count - 1) // 2)) for _ in maps]
    pairs: list[list[NDArray[np.float64]]] = [[] for _ in range(len(maps) + 1)]
    for rows in np.array_split(asked, -(-len(asked) * count // _BLOCK)):
        steps = steps_between(links, rows)
        some = some_pairs(steps.shape, rows, len(asked), random)
        pairs[0].append(steps[some])
        for (places, number), tally, drawn in zip(maps, counts, pairs[1:], strict=True):
            apart = places.table(number[rows], number)
            placed = neighbour_ranks(apart, rows)
            # Of nodes that are equally many steps away, those come first that do on the map.
            tally.add(neighbour_ranks(steps * count + placed, rows), placed)
            drawn.append(apart[some])
    true, *shown = (np.concatenate(part) for part in pairs)
    return [
        GraphFigures(tally.curve.local, tally.curve.far, rank_correlation(true, drawn), len(asked), tally.kept_by_group)
        for tally, drawn in zip(counts, shown, strict=True)
    ]


def _mean(each: Sequence[GraphFigures]) -> GraphFigures:
    """Averaged over groups, with intervals."""
    if len(each) == 1:
        return each[0]
    found = {name: mean_interval([getattr(one, name) for one in each]) for name in _NUMBERS}
    means, halves = ({name: pair[side] for name, pair in found.items()} for side in (0, 1))
    groups = np.array([[one.qlocal, one.qglobal] for one in each])
    return GraphFigures(**means, nodes=sum(one.nodes for one in each), kept_by_group=groups, intervals=halves)
