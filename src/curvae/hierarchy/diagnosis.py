"""Is there a hierarchy in a table, in distances, in a graph? The answer in one sentence, with its figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, shortest_path
from scipy.spatial.distance import squareform

from ..data import Graph
from ..data.files import count
from ..data.graph_data import Edges, link_matrix
from ..errors import CurvaeError
from ..maps.faithfulness import largest_component
from ..maps.statistics import (
    LEVEL,
    ROUNDING,
    Array,
    Index,
    Metric,
    Rows,
    check_distances,
    check_squares,
    gram_of_distances,
)
from .nesting import (
    FEWEST,
    Delta,
    Nesting,
    Outcome,
    PairDistances,
    Score,
    Spectrum,
    check_points,
    compare_to_surrogates,
    cophenetic_correlation,
    distances_of_gram,
    estimate_delta,
    examine_points,
    four_point_score,
    four_sums,
    quadruples,
    rotated,
    some_quadruples,
    ultrametric_score,
)

__all__ = [
    "SAMPLE",
    "Diagnosis",
    "diagnose",
    "diagnose_distances",
    "diagnose_graph",
    "diagnose_rows",
    "examine_links",
    "swap_ends",
]


# Is a graph like a tree, beyond what the degrees of its nodes explain?
#
# The surrogates are graphs with the same degrees, made by swapping ends of links. A graph is called tree-like when it
# has fewer links that close a circle than its surrogates, or when the mean δ of its paths, in units of their mean
# length, is smaller; in both cases by a quarter at least. It is called clustered when more neighbours of a node are
# linked to each other than in its surrogates. These are three tests, so each p-value counts three times.
#
# A graph without a circle is a tree, or several, whatever its surrogates are: it is called tree-like where something
# branches, and flat where its parts are stars and paths.

_MARGIN = 0.25  # paths on a grid or between near points are a little more like a tree than random ones


def swap_ends(edges: Edges, nodes: int, random: np.random.Generator, sweeps: int = 10) -> Edges:
    """Draw a random graph with the same degrees, without loops and double links.

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


def path_lengths(adjacency: csr_array, place: Index) -> Array:
    """Return links on the shortest way between all of these nodes, of a symmetric matrix of links; weights do not
    count.
    """
    return shortest_path(adjacency, directed=False, unweighted=True, indices=place)[:, place]


def _delta(adjacency: csr_array, random: np.random.Generator) -> float:
    """Mean δ of paths over their mean length, among some nodes of the largest component."""
    _, component = connected_components(adjacency, directed=False)
    inside = np.flatnonzero(component == np.bincount(component).argmax())
    if len(inside) < 4:
        return 0.0
    place = random.permutation(inside)[:80]
    d = path_lengths(adjacency, place)
    sums = four_sums(lambda i, j: d[i, j], quadruples(len(place), 3000, random))
    return float((sums[2] - sums[1]).mean() / 2 / d[np.triu_indices(len(d), 1)].mean())


def _circles(adjacency: csr_array) -> float:
    links, nodes = adjacency.nnz / 2, adjacency.shape[0]
    parts, _ = connected_components(adjacency, directed=False)
    return float(links - nodes + parts) / links if links else 0.0


def _transitivity(adjacency: csr_array) -> float:
    degree = np.diff(adjacency.indptr).astype(np.float64)
    pairs = float((degree * (degree - 1)).sum())
    return float((adjacency @ adjacency).multiply(adjacency).sum()) / pairs if pairs else 0.0


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

        def draw(
            measure: Callable[[csr_array], float] = measure, sign: int = sign, drawn: list[float] = drawn
        ) -> float:
            drawn.append(measure(surrogate()))
            return sign * drawn[-1]

        value = measure(own)
        p_values.append(min(1.0, 3 * compare_to_surrogates(sign * value, [draw], margin)))
        scores.append(Score(name, value, tuple(drawn), meaning))
    p_tree = min(p_values[:2])
    outcome: Outcome = "tree-like" if p_tree <= LEVEL else "clustered" if p_values[2] <= LEVEL else "flat"
    forest = _circles(own) == 0
    if forest:  # it branches where some part is neither a star nor a path
        _, component = connected_components(own, directed=False)
        degree = np.diff(own.indptr)
        branches = np.bincount(component, degree > 1)[component[degree > 2]] > 1
        outcome = "tree-like" if branches.any() else "flat"
    return Nesting(outcome, min(p_values), p_tree, False, graph.n_nodes // 2, forest), scores


SAMPLE = 400  # points that are tested
_MOST = 50_000  # quadruples that are drawn for δ
_DRAWN = 39  # surrogates beside a score

# Things, what surrogates keep, what was found.
_WORDS = {
    "table": ("rows", "beyond what the covariance alone explains", "form groups within groups"),
    "distances": ("points", "beyond what the spectrum alone explains", "form groups within groups"),
    "graph": ("nodes", "beyond what the degrees alone explain", "hang together as in a tree"),
}


@dataclass(frozen=True)
class Diagnosis:
    """What was found.

    Arguments:
        kind: "table", "distances" or "graph".
        size: number of points.
        nesting: outcome and p-values of the test.
        delta: Gromov's δ.
        scores: each beside its surrogates.
        sample: places of the points that were tested.
        merges: average linkage of these points, as scipy gives it.
        notes: what was left out, one sentence each.
    """

    kind: Literal["table", "distances", "graph"]
    size: int
    nesting: Nesting
    delta: Delta
    scores: tuple[Score, ...]
    sample: Index
    merges: Array
    notes: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        return self.nesting.outcome

    @property
    def p_value(self) -> float:
        """Of there being no hierarchy: neither groups, nor groups within groups."""
        return max(self.nesting.p_groups, self.nesting.p_nesting)

    @property
    def suggested(self) -> tuple[float, ...]:
        """Values of c·σ0² to try in two latent dimensions.

        The prior lies around the radius ρ = c·σ0², in units of the curvature, on a circle of length 2π·sinh ρ. With two
        units of it for each of K groups, sinh ρ = K/π. That value, and a third of it.
        """
        if self.outcome == "flat":
            return (0.0,)
        room = math.asinh(2 * max(4, self.nesting.groups) / math.pi)
        return float(f"{room / 3:.1g}"), float(f"{room:.2g}")

    @property
    def sentence(self) -> str:
        """The answer."""
        p_groups, p_nesting = f"{self.nesting.p_groups:.2g}", f"{self.nesting.p_nesting:.2g}"
        things, beyond, found = _WORDS[self.kind]
        advice = f"try c·σ0² = {' and '.join(f'{value:g}' for value in self.suggested)}"
        if self.kind != "distances":
            advice += " with curvae compare"
        if self.nesting.forest and self.outcome == "flat":
            return (
                "Flat: the graph has no circle, but no part of it is more than a star or a path, so nothing branches; "
                "use c·σ0² = 0, the ordinary VAE."
            )
        if self.nesting.forest and self.nesting.p_nesting > LEVEL:
            return (
                "Tree-like: the graph has no circle, so it is a tree or several; graphs of the same degrees are "
                f"much the same (p = {p_nesting}); {advice}."
            )
        if self.outcome == "tree-like":
            return f"Tree-like (p = {self.p_value:.2g}): {things} {found}, {beyond}; {advice}."
        if self.nesting.verdict == "too few groups to tell":
            cophenetic = self.scores[-1]
            return (
                f"Clustered, too few groups to tell whether they are nested (p = {p_groups} for groups): {things} form "
                f"groups, {beyond}; their {cophenetic.name} is {cophenetic.value:.2f}, that of surrogates "
                f"{cophenetic.surrogate:.2f}; {advice}."
            )
        if self.outcome == "clustered":
            return (
                f"Clustered, nesting not found (p = {p_groups} for groups, {p_nesting} for nesting): {things} form "
                f"groups, {beyond}, and no groups of groups were found; {advice}."
            )
        why = f"the {things} follow a curve and nothing branches off" if self.nesting.curve else f"nothing {beyond}"
        return f"Flat (p = {p_groups}): {why}; use c·σ0² = 0, the ordinary VAE."

    def to_json(self) -> dict[str, Any]:
        """Every figure, as JSON values."""
        return {
            "outcome": self.outcome,
            "nesting": self.nesting.verdict,
            "sentence": self.sentence,
            "p_value": self.p_value,
            "p_groups": self.nesting.p_groups,
            "p_nesting": self.nesting.p_nesting,
            "curve": self.nesting.curve,
            "forest": self.nesting.forest,
            "suggested_c_sigma0_squared": list(self.suggested),
            "kind": self.kind,
            "size": self.size,
            "tested": len(self.sample),
            "scores": {score.name: {"value": score.value, "surrogates": score.surrogate} for score in self.scores},
            "delta": {
                **{name: list(x) if isinstance(x, tuple) else x for name, x in vars(self.delta).items()},
                "relative_mean": self.delta.relative(self.delta.mean),
                "relative_largest": self.delta.relative(self.delta.largest),
            },
            "notes": list(self.notes),
        }


def diagnose(data: Any, metric: Metric = "euclidean", seed: int = 0) -> Diagnosis:
    """Diagnose a table of rows, dense or sparse, or a `curvae.data.Graph`; distances go to `diagnose_distances`.

    Columns should be in comparable units: `curvae diagnose` brings them to unit variance first, as training does.

    Example:
        >>> diagnose(np.random.default_rng(0).normal(size=(80, 5))).outcome
        'flat'
    """
    return diagnose_graph(data, seed) if isinstance(data, Graph) else diagnose_rows(Rows(data, metric), seed)


def diagnose_rows(rows: Rows, seed: int = 0, progress: Callable[[str], None] = lambda step: None) -> Diagnosis:
    """Diagnose a table: the test on 400 rows drawn at random, δ on quadruples of all rows.

    Arguments:
        rows: with their metric.
        seed: of all draws.
        progress: called with the name of each step as it starts.
    """
    if np.ndim(rows.scale) == 0:
        check_squares(max(abs(float(rows.x.min())), abs(float(rows.x.max()))), "the values")
    random = np.random.default_rng(seed)
    sample = np.sort(random.permutation(len(rows))[:SAMPLE])
    most = int(4e7 / max(1, rows.x.shape[1]))  # δ and the diameter look at so many values
    drawn = rows.sample(sample)
    table = drawn.table()
    pairs = rows.pairs if len(rows) > SAMPLE else lambda i, j: table[i, j]
    return _diagnose("table", "row", table, sample, pairs, len(rows), most, random, progress, drawn)


def diagnose_distances(distances: Any, seed: int = 0, progress: Callable[[str], None] = lambda step: None) -> Diagnosis:
    """Diagnose points given by their distances.

    Arguments:
        distances: of all pairs, symmetric with zeros on the diagonal.
        seed: of all draws.
        progress: called with the name of each step as it starts.

    Example:
        >>> place = np.random.default_rng(0).normal(size=(80, 3))
        >>> diagnose_distances(np.linalg.norm(place[:, None] - place, axis=-1)).outcome
        'flat'
    """
    d = check_distances(distances)
    random = np.random.default_rng(seed)
    sample = np.sort(random.permutation(len(d))[:SAMPLE])
    table = d[np.ix_(sample, sample)]
    found = _diagnose("distances", "point", table, sample, lambda i, j: d[i, j], len(d), _MOST, random, progress)
    i, j, k, _ = quadruples(len(d), _MOST, np.random.default_rng(seed)).T
    low, middle, high = np.sort(np.stack([d[i, j], d[i, k], d[j, k]]), axis=0)
    if broken := int((high - low - middle > ROUNDING * float(d.max())).sum()):
        note = (
            f"{100 * broken / _MOST:.3g} % of {_MOST:,} triples drawn violate the triangle inequality: these are "
            "dissimilarities, and the relative δ may exceed 1."
        )
        found = replace(found, notes=(*found.notes, note))
    return found


def _diagnose(
    kind: Literal["table", "distances"],
    thing: str,
    table: Array,
    sample: Index,
    pairs: PairDistances,
    size: int,
    most: int,
    random: np.random.Generator,
    progress: Callable[[str], None],
    rows: Rows | None = None,
) -> Diagnosis:
    check_points(table)  # before the first step is reported
    progress("test")
    nesting = examine_points(table, random, rows)
    progress("scores")
    scores = tuple(_scores(table, random))
    progress("δ")
    delta = estimate_delta(pairs, size, min(max(most, 2000), _MOST), int(random.integers(2**32)), swept=max(most, 1000))
    merges = linkage(squareform(table, checks=False), "average")
    drawn = f"{len(sample):,} of {count(size, thing)} were drawn at random for the test and the scores."
    return Diagnosis(kind, size, nesting, delta, scores, sample, merges, (drawn,) if size > len(sample) else ())


def _scores(table: Array, random: np.random.Generator) -> Iterator[Score]:
    chosen = some_quadruples(len(table), 10_000, random)
    spectrum = Spectrum.of_grams([gram_of_distances(table)])

    def scores(gram: Array, distances: Array) -> tuple[float, float, float]:
        return (
            four_point_score(gram, chosen),
            ultrametric_score(distances, chosen),
            cophenetic_correlation(distances),
        )

    made = [scores(spectrum.grams()[0], table)]
    for _ in range(_DRAWN):
        gram = rotated(spectrum, random)[0]
        made.append(scores(gram, distances_of_gram(gram)))
    meanings = {
        "four-point score": "0 in a tree, 0.5 in noise",
        "ultrametric score": "0 in a dendrogram, about 0.5 in noise",
        "cophenetic correlation": "1 in a dendrogram",
    }
    for (value, *drawn), (name, meaning) in zip(zip(*made, strict=True), meanings.items(), strict=True):
        yield Score(name, value, tuple(drawn), meaning)


def diagnose_graph(graph: Graph, seed: int = 0, progress: Callable[[str], None] = lambda step: None) -> Diagnosis:
    """Diagnose a graph: the test against graphs with the same degrees, δ of paths in the largest component.

    Arguments:
        graph: its weights do not count.
        seed: of all draws.
        progress: called with the name of each step as it starts.
    """
    random = np.random.default_rng(seed)
    if graph.directed:
        raise CurvaeError(
            "a graph is tested for a hierarchy by paths in either direction; load it without `directed=True`"
        )
    if graph.n_nodes < FEWEST:
        raise CurvaeError(f"{graph.n_nodes} nodes are too few to test for a hierarchy; give at least {FEWEST}")
    if not graph.n_edges:
        raise CurvaeError("a graph without edges has no hierarchy; give one with edges")
    inside, notes = largest_component(graph), []
    if len(inside) < 4:
        raise CurvaeError(f"the largest component has {count(len(inside), 'node')}, and δ needs four; give more edges")
    if len(inside) < graph.n_nodes:
        notes.append(f"δ is that of the largest component, {len(inside):,} of {count(graph.n_nodes, 'node')}.")
    progress("test")
    nesting, scores = examine_links(graph, random)
    nodes = np.sort(random.permutation(inside)[:1000])
    if len(nodes) < len(inside):
        notes.append(f"δ is that of {len(nodes):,} nodes drawn at random from {len(inside):,}.")
    progress("δ")
    paths = path_lengths(graph.adjacency(), nodes)
    delta = estimate_delta(lambda i, j: paths[i, j], len(nodes), _MOST, int(random.integers(2**32)))
    chosen = np.sort(random.permutation(len(nodes))[:SAMPLE])
    merges = linkage(squareform(paths[np.ix_(chosen, chosen)], checks=False), "average")
    return Diagnosis("graph", graph.n_nodes, nesting, delta, tuple(scores), nodes[chosen], merges, tuple(notes))
