"""How well an embedding recovers a tree that is known.

Rows are matched to nodes of the tree by id or by label. For rows i, j let t be their distance in the tree and d the
latent one. Distortion follows Sala et al. (2018): on average |α·d/t − 1| with the scale α that makes it smallest, since
the scale of a latent space means nothing; at worst max(d/t)/min(d/t). Both over pairs of rows at different nodes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..data.files import count, quoted
from ..data.graphs.graph_data import average_precision
from ..errors import CurvaeError
from ..maps.embedding import Embedding
from ..maps.statistics import rank_correlation
from .trees import Array, Index, NamedTree, joined

__all__ = ["Match", "Recovery", "dendrogram_purity", "distortion", "match_rows", "recover"]

_PAIRS = 200_000
_QUERIES = 500
_JOINED = 2000  # rows that are joined for the purity


@dataclass(frozen=True)
class Match:
    """Which node of a tree belongs to which row.

    Arguments:
        node: of each row, −1 where there is none.
        by: what names the nodes, "id" or "label".
        unused: named nodes that no row belongs to.
        notes: of the tree.
    """

    node: Index
    by: Literal["id", "label"]
    unused: int
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> Index:
        """Rows that have a node."""
        return np.flatnonzero(self.node >= 0)

    def to_json(self) -> dict[str, Any]:
        """Counts on both sides, and notes."""
        return {
            "by": self.by,
            "rows": len(self.rows),
            "unmatched_rows": len(self.node) - len(self.rows),
            "unmatched_names": self.unused,
            "notes": list(self.notes),
        }

    @property
    def sentence(self) -> str:
        return (
            f"{len(self.rows):,} of {count(len(self.node), 'row')} matched to nodes by {self.by}; without a match are "
            f"{count(len(self.node) - len(self.rows), 'row')} and {count(self.unused, 'named node')}."
        )


def match_rows(tree: NamedTree, ids: NDArray[np.str_], labels: NDArray[np.str_] | None = None) -> Match:
    """Match rows to nodes of the same name, by id or by label, whichever matches more rows.

    Example:
        >>> from curvae.hierarchy import parse_newick
        >>> match_rows(parse_newick("((a,b),c);"), np.array(["b", "x", "a"])).sentence
        '2 of 3 rows matched to nodes by id; without a match are 1 row and 1 named node.'
    """
    places = {str(name): node for node, name in enumerate(tree.names) if name}

    def match(names: NDArray[np.str_], by: Literal["id", "label"]) -> Match:
        # Readers of trees leave out blanks around names.
        found = (places.get(name, places.get(name.strip(), -1)) for name in map(str, names))
        node = np.fromiter(found, dtype=np.intp, count=len(names))
        return Match(node, by, len(places) - len(np.unique(node[node >= 0])), tree.notes)

    found = match(ids, "id")
    if labels is not None and len((by_label := match(labels, "label")).rows) > len(found.rows):
        found = by_label
    if not len(found.rows):
        known = "" if labels is None else f" and have the labels {quoted(list(dict.fromkeys(labels))[:3])}"
        raise CurvaeError(
            f"no row has the name of a node: rows are called {quoted(ids[:3])}{known}, nodes are called "
            f"{quoted(list(places)[:3])}; use the same names in both"
        )
    return found


@dataclass(frozen=True)
class Recovery:
    """Figures of a recovered hierarchy.

    Arguments:
        rows: matched to nodes.
        distortion: average |α·d/t − 1|, 0 at best.
        worst_distortion: largest ratio of d/t over the smallest, 1 at best.
        distance_correlation: rank correlation of latent distances with those in the tree.
        depth_correlation: rank correlation of radius with depth; NaN where all rows are equally deep.
        purity: mean over levels of the tree of the dendrogram purity of its branches at that level.
        purity_by_level: the purity for branches at depth 1, 2, …
        mean_average_precision: with which the rows nearest in the latent space are those nearest in the tree.
        pairs, queries, joined: pairs, rows and rows that the figures rest on.
    """

    rows: int
    distortion: float
    worst_distortion: float
    distance_correlation: float
    depth_correlation: float
    purity: float
    purity_by_level: tuple[float, ...]
    mean_average_precision: float
    pairs: int
    queries: int
    joined: int

    def to_json(self) -> dict[str, Any]:
        """Every figure, as JSON values."""
        return {**vars(self), "purity_by_level": list(self.purity_by_level)}


def recover(
    tree: NamedTree,
    node: Index,
    points: Embedding,
    seed: int = 0,
    progress: Callable[[str], None] = lambda step: None,
) -> Recovery:
    """Compare an embedding with a tree. Large ones are sampled: 200,000 pairs, 500 rows, 2,000 rows for the purity.

    Arguments:
        tree: the truth.
        node: of each point.
        points: embedded.
        seed: of the draws.
        progress: called with the name of each step as it starts.

    Example:
        >>> from curvae.hierarchy import Embedded, parse_newick
        >>> tree = parse_newick("(a,b)r;")
        >>> places = Embedded(np.array([[0.0, 0.0], [0.6, 0.0], [-0.6, 0.0]]), 1.0)
        >>> found = recover(tree, np.array([0, 1, 2]), places)
        >>> round(found.distortion, 12), round(found.worst_distortion, 12), found.mean_average_precision
        (0.0, 1.0, 1.0)
    """
    random = np.random.default_rng(seed)
    size = len(points)
    if len(np.unique(node)) < 3:
        raise CurvaeError("rows of at least three nodes are needed to compare an embedding with a tree; match more")
    progress("distances")
    first, second = _some_pairs(size, _PAIRS, random)
    truth, latent = tree.distances(node[first], node[second]), points.pairs(first, second)
    apart = truth > 0
    average, worst = distortion(truth[apart], latent[apart])
    progress("neighbours")
    queries = np.sort(random.permutation(size)[:_QUERIES])
    precision = [_precision(tree, node, points, int(query)) for query in queries]
    progress("purity")
    chosen = np.sort(random.permutation(size)[:_JOINED])
    merges, _ = joined(points.take(chosen))
    branches = (tree.ancestors(node[chosen], level) for level in range(1, int(tree.depth[node].max()) + 1))
    levels = [purity for branch in branches if not math.isnan(purity := dendrogram_purity(merges, branch))]
    return Recovery(
        rows=size,
        distortion=average,
        worst_distortion=worst,
        distance_correlation=rank_correlation(truth, latent),
        depth_correlation=rank_correlation(tree.height[node], points.radius),
        purity=float(np.mean(levels)) if levels else math.nan,
        purity_by_level=tuple(levels),
        mean_average_precision=float(np.mean(precision)),
        pairs=len(first),
        queries=len(queries),
        joined=len(chosen),
    )


def _some_pairs(size: int, most: int, random: np.random.Generator) -> tuple[Index, Index]:
    """All pairs, or so many at random."""
    if size * (size - 1) // 2 <= most:
        return np.triu_indices(size, 1)
    first = random.integers(size, size=most)
    return first, (first + random.integers(1, size, size=most)) % size


def _precision(tree: NamedTree, node: Index, points: Embedding, query: int) -> float:
    """Average precision of finding the rows that are nearest to one of them in the tree."""
    everywhere, here = np.arange(len(points)), np.full(len(points), query)
    truth = tree.distances(node[here], node)
    truth[query] = np.inf
    return average_precision(points.pairs(here, everywhere), query, np.flatnonzero(truth == truth.min()))


def distortion(truth: Array, latent: Array) -> tuple[float, float]:
    """Average and worst distortion of latent distances against true ones, which must not be 0.

    Example:
        >>> distortion(np.array([1.0, 2.0, 4.0]), np.array([3.0, 6.0, 6.0]))
        (0.16666666666666666, 2.0)
    """
    ratio = np.sort(latent / truth)
    # Σ|α·ratio − 1| = Σ ratio·|α − 1/ratio| is smallest at the median of 1/ratio weighted by the ratio.
    middle = ratio[::-1][np.searchsorted(np.cumsum(ratio[::-1]), ratio.sum() / 2)]
    average = float(np.abs(ratio / middle - 1).mean()) if middle > 0 else 1.0
    return average, float(ratio[-1] / ratio[0]) if ratio[0] > 0 else math.inf


def dendrogram_purity(merges: Array, classes: NDArray[Any]) -> float:
    """Mean share of a class in the smallest branch of a dendrogram that holds two of its points, over all such pairs.

    NaN where no class has two points.

    References:
        Heller and Ghahramani (2005), Bayesian hierarchical clustering.

    Arguments:
        merges: as scipy gives them.
        classes: of the leaves.

    Example:
        >>> dendrogram_purity(np.array([[0, 1, 1.0, 2], [2, 3, 1.0, 3]]), np.array(["a", "a", "b"]))
        1.0
    """
    held = [Counter([name]) for name in np.asarray(classes).tolist()]
    total = pairs = 0.0
    for left, right, _, size in merges:
        small, large = sorted((held[int(left)], held[int(right)]), key=len)
        for name, number in small.items():
            if met := number * large[name]:
                pairs += met
                total += met * (number + large[name]) / size
        large.update(small)
        held.append(large)
    return float(total / pairs) if pairs else math.nan
