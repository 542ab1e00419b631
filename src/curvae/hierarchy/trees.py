"""Trees with names: read from Newick or tables, written as Newick, joined from the distances on a map; and how well a
map recovers a tree that is known.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.cluster.hierarchy import linkage
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from ..data.files import Messages, TextFile, count, quoted, read_text, scan
from ..data.graph_data import average_precision
from ..errors import CurvaeError
from ..maps.charts import ball_chart
from ..maps.embedding import Embedding
from ..maps.statistics import Array, Index, rank_correlation

__all__ = [
    "Embedded",
    "Match",
    "NamedTree",
    "Recovery",
    "dendrogram_purity",
    "distortion",
    "joined",
    "match_rows",
    "parse_newick",
    "read_tree",
    "recover",
    "tree_of_embedding",
    "tree_of_pairs",
]

# A quoted name, a comment, a mark, or anything up to one of these.
_TOKEN = re.compile(r"'(?:[^']|'')*'|\[[^\]]*\]|[(),:;]|[^\s'\[(),:;]+(?:[ \t]+[^\s'\[(),:;]+)*")
_PLAIN = re.compile(r"[^\s'\[\](),:;]+")
_COLUMNS = ("child", "parent")


@dataclass(frozen=True, eq=False)
class NamedTree:
    """A rooted tree.

    Arguments:
        names: of the nodes; "" for one without a name, others unique.
        parent: of each node, −1 for the root, which is the first; every parent comes before its children.
        length: of the edge to the parent.
        notes: what was done to make it a tree, one sentence each.

    Example:
        >>> tree = parse_newick("((a,b)ab,c)root;")
        >>> tree.names.tolist(), tree.distances(np.array([2]), np.array([4])).tolist()
        (['root', 'ab', 'c', 'a', 'b'], [3.0])
    """

    names: NDArray[np.str_]
    parent: Index
    length: Array
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        unique, counts = np.unique(self.names[self.names != ""], return_counts=True)
        if (twice := unique[counts > 1]).size:
            raise CurvaeError(f"the tree has several nodes called {quoted(twice)}; make names unique")
        if not np.isfinite(self.length).all() or (self.length < 0).any():
            raise CurvaeError("the tree has an edge whose length is negative or no number; correct it")

    @classmethod
    def ordered(
        cls,
        names: NDArray[np.str_],
        parent: Index,
        length: Array,
        source: str = "the tree",
        notes: tuple[str, ...] = (),
    ) -> NamedTree:
        """Make a tree of nodes in any order, of which one has no parent."""
        size = len(names)
        every = np.arange(size)
        below = csr_array((np.ones(size), (np.where(parent < 0, size, parent), every)), (size + 1, size + 1))
        order = breadth_first_order(below, size, return_predecessors=False)[1:]
        if len(lost := np.setdiff1d(every, order)):
            raise CurvaeError(f"{source} has a circle of parents: {quoted(names[lost])}; a tree has a root")
        return cls(names[order], np.append(np.argsort(order), -1)[parent[order]], length[order], notes)

    def __len__(self) -> int:
        return len(self.parent)

    @cached_property
    def depth(self) -> Index:
        """Edges from the root."""
        return self._from_root(np.ones(len(self), dtype=np.intp))

    @cached_property
    def height(self) -> Array:
        """Length of the way from the root."""
        return self._from_root(self.length)

    def _from_root(self, steps: NDArray[Any]) -> NDArray[Any]:
        """Sum a number of each edge over the way from the root."""
        found = np.zeros_like(steps)
        for node in range(1, len(self)):
            found[node] = found[self.parent[node]] + steps[node]
        return found

    @cached_property
    def _jumps(self) -> list[Index]:
        """Ancestors 1, 2, 4, … edges up; the root is its own."""
        found = [np.maximum(self.parent, 0)]
        while 2 ** len(found) <= int(self.depth.max(initial=0)):
            found.append(found[-1][found[-1]])
        return found

    def ancestors(self, nodes: Index, depth: Index | int) -> Index:
        """Of each node the ancestor at this depth, or itself where it is not below."""
        rise, found = np.maximum(self.depth[nodes] - depth, 0), nodes.copy()
        for bit, jump in enumerate(self._jumps):
            found = np.where(rise >> bit & 1, jump[found], found)
        return found

    def common_ancestors(self, first: Index, second: Index) -> Index:
        """Lowest common ancestors of pairs."""
        depth = np.minimum(self.depth[first], self.depth[second])
        a, b = self.ancestors(first, depth), self.ancestors(second, depth)
        for jump in reversed(self._jumps):
            apart = jump[a] != jump[b]
            a, b = np.where(apart, jump[a], a), np.where(apart, jump[b], b)
        return np.where(a == b, a, np.maximum(self.parent[a], 0))

    def distances(self, first: Index, second: Index) -> Array:
        """Return lengths of the ways between pairs."""
        return self.height[first] + self.height[second] - 2 * self.height[self.common_ancestors(first, second)]

    def newick(self, comments: Sequence[str] | None = None) -> str:
        """Return the tree in Newick format, one line, with a comment behind the length of every edge.

        Example:
            >>> parse_newick("('it''s me':1,b:0.5)r;").newick()
            "('it''s me':1,b:0.5)r;"
        """
        below: list[list[str]] = [[] for _ in self.parent]
        for node in reversed(range(len(self))):
            children = ",".join(reversed(below.pop()))
            name = str(self.names[node])
            text = name if not name or _PLAIN.fullmatch(name) else "'" + name.replace("'", "''") + "'"
            text = f"({children}){text}" if children else text
            if node:
                comment = "" if comments is None else comments[node]
                below[self.parent[node]].append(f"{text}:{self.length[node]:.10g}{comment}")
        return f"{text};"


def read_tree(path: Path) -> NamedTree:
    """Read a tree from a file: Newick, or a table with the columns child and parent, and maybe length.

    A Newick file begins with a bracket. The parent of the root is an empty cell, or the root has no line of its own.
    Edges without a length count 1. Files may be gzipped.
    """
    try:
        file = scan(path, "a tree")
        with file.open(None) as stream:
            start = stream.read(4096).lstrip()
            if start.startswith(("(", "[")):
                return parse_newick(start + stream.read(), path.name)
        # Of a file of another kind, its first line tells enough.
        lacking = [name for name in _COLUMNS if name not in start.partition("\n")[0]]
        frame = pd.DataFrame() if lacking else read_text(path, _COLUMNS, _COLUMNS, Messages())
    except OSError as error:
        raise CurvaeError(
            f"{path} cannot be read: {error.strerror or error}; check the file and its permissions"
        ) from error
    if lacking := lacking or [name for name in _COLUMNS if name not in frame]:
        raise CurvaeError(
            f"{path.name} has no column {quoted(lacking)}; give a table with the columns child and parent, or a tree "
            "in Newick format, which begins with a bracket"
        )
    child, parent = (frame[name].fillna("").str.strip().to_numpy(np.str_) for name in _COLUMNS)
    return tree_of_pairs(child, parent, _lengths(file, frame) if "length" in frame else None, path.name)


def _lengths(file: TextFile, frame: pd.DataFrame) -> Array:
    """Lengths of the edges, 1 where there is none."""
    given = frame["length"]
    numbers = pd.to_numeric(given.astype(str), errors="coerce").to_numpy(np.float64)
    if (wrong := np.flatnonzero(given.notna() & ~((numbers >= 0) & np.isfinite(numbers)))).size:
        with file.open() as stream:
            lines = [number for number, line in enumerate(stream, 1) if line.strip()]
        row = int(wrong[0])
        raise CurvaeError(
            f"{file.path.name}: line {lines[row + 1]} gives {str(frame['child'][row])!r} the length "
            f"{str(given[row])!r}; write a number from 0, or nothing"
        )
    return np.where(given.isna(), 1.0, numbers)


def tree_of_pairs(
    children: ArrayLike, parents: ArrayLike, lengths: Array | None = None, source: str = "the table"
) -> NamedTree:
    """Make a tree from pairs of a child and its parent; several roots get one above them.

    Example:
        >>> tree_of_pairs(["b", "c", "d"], ["a", "a", "b"]).newick()
        '((d:1)b:1,c:1)a;'
    """
    child, parent = (np.asarray(names, dtype=np.str_) for names in (children, parents))
    if (child == "").any():
        raise CurvaeError(f"{source} has a line without a child; name it")
    unique, counts = np.unique(child, return_counts=True)
    if (twice := unique[counts > 1]).size:
        raise CurvaeError(f"{source} gives {quoted(twice)} more than one parent; a tree has one for each")
    names, codes = np.unique(np.concatenate([child, parent[parent != ""]]), return_inverse=True)
    above, length = np.full(len(names), -1, dtype=np.intp), np.ones(len(names))
    above[codes[: len(child)][parent != ""]] = codes[len(child) :]
    if lengths is not None:
        length[codes[: len(child)]] = lengths
    notes: tuple[str, ...] = ()
    if (roots := int((above < 0).sum())) > 1:
        notes = (f"{source} has {roots:,} roots ({quoted(names[above < 0])}); they were joined under one.",)
        names, length = np.append(names, ""), np.append(length, 0.0)
        above = np.append(np.where(above < 0, len(above), above), -1)
    return NamedTree.ordered(names, above, length, source, notes)


def parse_newick(text: str, source: str = "the text") -> NamedTree:
    """Parse a tree in Newick format. Inner names that are numbers are taken for support values and left out.

    Example:
        >>> parse_newick("((a:1,b:2)95:3,c:4);").height.tolist()
        [0.0, 3.0, 4.0, 4.0, 5.0]
    """
    names, lengths, parent = [""], [1.0], [-1]
    node = 0
    words = [word for word in _TOKEN.findall(text) if not word.startswith("[")]
    ends = words.index(";") + 1 if ";" in words else len(words)
    stream = iter(words[:ends])
    for word in stream:
        if word in (",", ")"):
            node = parent[node]
            if node < 0:
                raise _no_newick(source, "a comma outside of brackets" if word == "," else "a bracket too many")
        if word in ("(", ","):
            parent.append(node)
            names.append("")
            lengths.append(1.0)
            node = len(names) - 1
        elif word == ":":
            try:
                lengths[node] = float(next(stream, ""))
            except ValueError:
                raise _no_newick(source, "a colon without a length") from None
        elif word not in (")", ";") and (
            node == len(names) - 1 or not re.fullmatch(r"\d+(\.\d+)?(/\d+(\.\d+)?)*", word)
        ):  # the last is a leaf
            names[node] = word[1:-1].replace("''", "'") if word.startswith("'") else word
    for wrong, what in (
        (ends < len(words), "it goes on after its end; give one tree"),
        (node != 0, "a bracket is not closed"),
        (names == [""], "it has no nodes"),
    ):
        if wrong:
            raise _no_newick(source, what)
    return NamedTree.ordered(np.array(names, dtype=np.str_), np.array(parent, dtype=np.intp), np.array(lengths), source)


def _no_newick(source: str, what: str) -> CurvaeError:
    return CurvaeError(f"{source} is not a tree in Newick format: {what}; correct it")


# A tree read off an embedding, and the distances of embedded points.
#
# Two geodesics from the origin keep together and then part; the Gromov product (x|y)_0 = (r_x + r_y − d(x, y))/2 is, up
# to a constant of the space, how far they keep together: the depth of the lowest common ancestor. Points are joined by
# average linkage of these depths, deepest first, and a joint lies at the mean depth of the pairs that it joins.

_BLOCK = 1 << 20  # pairs measured at once


class Embedded(Embedding):
    """Points of a latent space, for which a tree may be known.

    Arguments:
        ball: coordinates in the Poincaré ball, (points, d), float64.
        c: minus the curvature.

    Example:
        >>> points = Embedded(np.array([[0.5, 0.0], [0.0, 0.5]]), 1.0)
        >>> points.pairs(np.array([0]), np.array([1])).round(4).tolist()
        [1.6807]
    """

    def __init__(self, ball: Array, c: float) -> None:
        super().__init__(ball_chart(ball.shape[1], c).points(torch.tensor(ball)).numpy(), np.zeros(len(ball)), c)


def joined(points: Embedding) -> tuple[Array, Array]:
    """Join points by the depth of their lowest common ancestors: return merges as of scipy, and their depths."""
    size = len(points)
    product = np.empty(size * (size - 1) // 2)
    start = 0
    for rows in np.array_split(np.arange(size - 1), max(1, len(product) // _BLOCK)):
        first = np.repeat(rows, size - 1 - rows)
        second = np.concatenate([np.arange(row + 1, size) for row in rows])
        stop = start + len(first)
        product[start:stop] = (points.radius[first] + points.radius[second] - points.pairs(first, second)) / 2
        start = stop
    top = float(product.max())
    merges = linkage(top - product, "average")
    return merges, top - merges[:, 2]


def tree_of_embedding(points: Embedding, names: NDArray[np.str_], seed: int = 0, most: int = 10_000) -> NamedTree:
    """Make a tree whose leaves are the points; edges have lengths in units of the space.

    With more than `most` points a tree is made of so many drawn at random, and every other point hangs beside the
    nearest of them.

    Arguments:
        points: embedded.
        names: of the points.
        seed: of the draw.
        most: points that are joined.

    Example:
        >>> places = Embedded(np.array([[0.9, 0.1], [0.9, -0.1], [-0.5, 0.0]]), 1.0)
        >>> tree = tree_of_embedding(places, np.array(["a", "b", "c"]))
        >>> tree.names.tolist(), tree.parent.tolist()
        (['', 'c', '', 'a', 'b'], [-1, 0, 0, 2, 2])
    """
    if len(points) < 2:
        raise CurvaeError("a tree needs at least two points; give more rows")
    chosen = np.sort(np.random.default_rng(seed).permutation(len(points))[:most])
    merges, depth = joined(points.take(chosen))
    size = len(chosen)
    parent = np.full(2 * size - 1, -1, dtype=np.intp)
    parent[merges[:, :2].astype(np.intp)] = np.arange(size, 2 * size - 1)[:, None]
    below = np.concatenate([points.radius[chosen], depth])
    # A mean over pairs may lie a little deeper than one of its points.
    length = np.where(parent < 0, 0.0, np.maximum(below - below[parent], 0.0))
    labels = np.concatenate([names[chosen], np.full(size - 1, "")])
    rest = np.setdiff1d(np.arange(len(points)), chosen)
    if not len(rest):
        return NamedTree.ordered(labels, parent, length)
    # The rest hang beside the nearest of the chosen, whose leaf makes room for a joint above both.
    found = []
    for part in np.array_split(rest, -(-len(rest) * size // _BLOCK)):
        table = points.pairs(np.repeat(part, size), np.tile(chosen, len(part))).reshape(len(part), size)
        found.append((table.argmin(1), table.min(1)))
    nearest, gap = map(np.concatenate, zip(*found, strict=True))
    hosts, code = np.unique(nearest, return_inverse=True)
    joints = len(parent) + np.arange(len(hosts))
    # The joint takes the place of the leaf, which hangs from it at no distance.
    parent = np.concatenate([parent, parent[hosts], joints[code]])
    length = np.concatenate([length, length[hosts], gap])
    parent[hosts] = joints
    length[hosts] = 0.0
    return NamedTree.ordered(np.concatenate([labels, np.full(len(hosts), ""), names[rest]]), parent, length)


# How well an embedding recovers a tree that is known.
#
# Rows are matched to nodes of the tree by id or by label. For rows i, j let t be their distance in the tree and d the
# latent one. Distortion follows Sala et al. (2018): on average |α·d/t − 1| with the scale α that makes it smallest,
# since the scale of a latent space means nothing; at worst max(d/t)/min(d/t). Both over pairs of rows at different
# nodes.

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
        """Return counts on both sides, and notes."""
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
    if size * (size - 1) // 2 <= _PAIRS:
        first, second = np.triu_indices(size, 1)
    else:
        first = random.integers(size, size=_PAIRS)
        second = (first + random.integers(1, size, size=_PAIRS)) % size
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
