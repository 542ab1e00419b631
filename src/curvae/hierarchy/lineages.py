"""Lineages: a tree of the groups of a map, how far along it every row lies, and how sure that is.

Nodes are the Fréchet means of groups, joined by the shortest tree of geodesics, whose edges point away from the root.
The pseudotime of a row is the length of the way from the root to the point of the tree that is nearest to the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

from ..data.files import quoted
from ..errors import CurvaeError
from ..maps.embedding import Embedding, by_factor, geodesic_points, point_distances
from ..maps.statistics import Array, Index
from .trees import NamedTree

__all__ = ["Lineage", "TreePlaces", "find_lineage", "nearest_on_tree", "require_groups"]

_LEVEL = 0.9  # probability of intervals
_FEWEST = 5  # rows of a group
_FEWEST_DRAWS = 19  # of which the two outermost are a 90 % interval
_MARKS = 16  # pieces of an edge between which the nearest is looked for
_ROUNDS, _NARROWING = 4, 8  # of the search between marks, and by how much it narrows in each
_ROUNDING = 1e-6  # share of an edge, or of the tree, that counts as none
_BLOCK = 1 << 22  # distances that are computed at a time


class TreePlaces(NamedTuple):
    """The points of a tree that are nearest to some points.

    Arguments:
        node: at the lower end of the edge on which each lies, (points,).
        time: where on the edge, from 0 at its upper end to 1 at the node.
        distance: from the tree.
    """

    node: Index
    time: Array
    distance: Array


@dataclass(frozen=True, eq=False)
class Lineage:
    """A tree of groups, and where rows lie along it.

    A branch is a part of the tree from the root or a fork to the next fork or leaf, whose group it is called by. Rows
    nearest to the root itself are of the branch of that name.

    Arguments:
        tree: of the groups; lengths of edges are geodesic distances.
        nodes: where they lie.
        support: share of the drawn trees that have the edge above a node, (nodes,); 1 for the root.
        drawn: places of the nodes in every drawn tree, (draws, nodes, width).
        branches: names of the branches, the root first.
        branch: place in `branches` of each row.
        pseudotime: of each row.
        low, high: its 90 % interval between draws of the posterior of the row.
        probability: share of these draws on each branch, (rows, branches).
        chosen: whether the root was chosen here, as the group of the lowest radius.
    """

    tree: NamedTree
    nodes: Embedding
    support: Array
    drawn: Array
    branches: tuple[str, ...]
    branch: Index
    pseudotime: Array
    low: Array
    high: Array
    probability: Array
    chosen: bool

    @property
    def root(self) -> str:
        """Name of the root."""
        return str(self.tree.names[0])

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """Names of the groups in which the tree ends."""
        return tuple(self.tree.names[np.setdiff1d(np.arange(1, len(self.tree)), self.tree.parent)].tolist())

    def path(self, end: str) -> Index:
        """Return the nodes from the root to a group, both included."""
        names = self.tree.names.tolist()
        if end not in names[1:]:
            raise CurvaeError(f"no way leads to {end!r}; the tree has {quoted(names[1:])} beside its root")
        nodes = [names.index(end)]
        while nodes[-1]:
            nodes.append(int(self.tree.parent[nodes[-1]]))
        return np.array(nodes[::-1])

    def newick(self) -> str:
        """Return the tree in Newick format, with the support of each edge in brackets behind its length."""
        return self.tree.newick([f"[{share:.3g}]" for share in self.support])

    @property
    def edges(self) -> pd.DataFrame:
        """The edges: group, parent, length and support."""
        above = self.tree.names[self.tree.parent]
        columns = {"group": self.tree.names, "parent": above, "length": self.tree.length, "support": self.support}
        return pd.DataFrame({name: values[1:] for name, values in columns.items()})

    def to_json(self) -> dict[str, Any]:
        """Return the tree as JSON values."""
        return {
            "root": self.root,
            "chosen": self.chosen,
            "newick": self.newick(),
            "branches": list(self.branches),
            "edges": self.edges.to_dict("records"),
        }


def require_groups(labels: NDArray[np.str_], draws: int) -> None:
    """Raise if groups of rows, "" for none, are too few or too small for a tree, or draws too few for its intervals."""
    known, counts = np.unique(labels[labels != ""], return_counts=True)
    if len(known) < 2:
        raise CurvaeError(f"`groups` must name at least two groups of rows to join, got {quoted(known)}")
    if (small := known[counts < _FEWEST]).size:
        raise CurvaeError(f"`groups` has fewer than {_FEWEST} rows in {quoted(small)}; join or leave out such groups")
    if draws < _FEWEST_DRAWS:
        raise CurvaeError(f"`draws` must be at least {_FEWEST_DRAWS} for a 90 % interval, got {draws}")


def find_lineage(
    embedding: Embedding,
    groups: ArrayLike,
    root: str | int | None = None,
    *,
    draws: Sequence[Array] | Array,
    names: Sequence[str] | None = None,
    seed: int = 0,
) -> Lineage:
    """Join groups of rows to a tree, and find where every row lies along it.

    In a drawn tree the rows of every group are drawn with replacement, and each is at a draw of its posterior: the
    support of an edge tells how far it depends on which rows were measured, and on where these lie; not on the
    training. The intervals of rows are along the one tree.

    Arguments:
        embedding: the map.
        groups: name of the group of each row, "" for none.
        root: name of a group, or the place of a row, which becomes a node of its own; by default the group whose mean
            has the lowest radius.
        draws: of the posteriors of all rows, (draws, rows, width).
        names: of the rows, for the root; their places by default.
        seed: of the rows of drawn trees.

    Example:
        >>> random = np.random.default_rng(0)
        >>> centres = np.repeat([[0.0, 0.0], [1.0, 0.0], [2.0, 2.0], [2.0, -2.0]], 20, 0)
        >>> place = Embedding(centres + random.normal(0, 0.1, (80, 2)), np.full(80, 0.1), 1.0)
        >>> draws = place.space + random.normal(0, 0.1, (25, 80, 2))
        >>> found = find_lineage(place, np.repeat(["a", "b", "c", "d"], 20), draws=draws)
        >>> found.root, found.branches, found.support.tolist()
        ('a', ('a', 'b', 'c', 'd'), [1.0, 1.0, 1.0, 1.0])
    """
    labels = np.asarray(groups, dtype=np.str_)
    require_groups(labels, len(draws))
    known = np.unique(labels[labels != ""])
    members = [np.flatnonzero(labels == name) for name in known]
    if isinstance(root, str) and root not in known:
        raise CurvaeError(f"`root` is no group, {root!r}; groups are {quoted(known)}")
    if root is not None and not isinstance(root, str):
        members.append(np.array([root]))
        root = str(root if names is None else names[root])
        known = np.append(known, root)
    nodes = _at(embedding, np.stack([_mean(embedding, embedding.space[own]) for own in members]))
    first = nodes.radius.argmin() if root is None else np.flatnonzero(known == root)[-1]
    _, above = breadth_first_order(_shortest_tree(nodes), int(first), directed=False)
    lengths = np.where(above < 0, 0.0, nodes.pairs(np.arange(len(known)), np.maximum(above, 0)))
    tree = NamedTree.ordered(known, np.where(above < 0, -1, above).astype(np.intp), lengths)
    order = np.array([known.tolist().index(name) for name in tree.names])
    nodes, members = nodes.take(order), [members[place] for place in order]

    random = np.random.default_rng(seed)
    resampled = [np.stack([points[random.choice(own, len(own))] for points in draws]) for own in members]
    drawn = np.stack([_mean(embedding, points) for points in resampled], 1)
    joined = [_shortest_tree(_at(embedding, points)) for points in drawn]
    support = np.mean([one[np.arange(len(tree)), tree.parent] > 0 for one in joined], 0)
    support[0] = 1.0

    ends = np.arange(len(tree))  # the node in which the branch of the edge above each node ends
    children = np.bincount(tree.parent[1:], minlength=len(tree))
    for node in range(len(tree) - 1, 0, -1):
        if children[tree.parent[node]] == 1 and tree.parent[node]:
            ends[tree.parent[node]] = ends[node]
    branches, codes = np.unique(ends, return_inverse=True)

    def along(points: Embedding) -> tuple[Array, Index]:
        found = nearest_on_tree(points, nodes, tree.parent)
        reached = tree.height[tree.parent[found.node]] + found.time * tree.length[found.node]
        return reached, np.where(reached > _ROUNDING * tree.height.max(), codes[found.node], 0)

    pseudotime, branch = along(embedding)
    times, places = (each.reshape(len(draws), -1) for each in along(_at(embedding, np.concatenate(draws))))
    # The quantiles between which a further draw would fall with the probability of the interval.
    low, high = np.quantile(times, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2], axis=0, method="weibull")
    shares = np.mean(places[..., None] == np.arange(len(branches)), 0)
    return Lineage(
        tree=tree,
        nodes=nodes,
        support=support,
        drawn=drawn,
        branches=tuple(tree.names[branches].tolist()),
        branch=branch,
        pseudotime=pseudotime,
        low=np.minimum(low, pseudotime),
        high=np.maximum(high, pseudotime),
        probability=shares,
        chosen=root is None,
    )


def nearest_on_tree(points: Embedding, nodes: Embedding, parent: Index) -> TreePlaces:
    """Find the nearest points of a tree, whose edges are geodesics.

    Distances along an edge are convex: between the marks beside the nearest mark lies the nearest point of all. Where
    several edges have it, as at a fork, the one whose node comes first is taken, so that a fork is the end of the edge
    above.

    Arguments:
        points: of a space.
        nodes: of the tree, in the same space.
        parent: of each node, −1 for the first; every parent comes before its children.
    """
    start, end = nodes.space[parent[1:]], nodes.space[1:]
    lengths = point_distances(nodes.placed, start, end)
    marks = geodesic_points(nodes.placed, np.linspace(0, 1, _MARKS + 1)[:, None], start, end)
    marked = _at(nodes, marks.reshape(-1, marks.shape[-1]))
    blocks = np.array_split(np.arange(len(points)), max(1, len(points) * len(marked) // _BLOCK))
    found = [_nearest(points.take(block), marked, start, end, lengths) for block in blocks]
    return TreePlaces(*map(np.concatenate, zip(*found, strict=True)))


def _nearest(points: Embedding, marked: Embedding, start: Array, end: Array, lengths: Array) -> TreePlaces:
    table = points.distances(marked).reshape(len(points), _MARKS + 1, len(lengths))
    lowest = table.min(1)
    # No point of an edge is nearer than this by the triangle inequality: most edges need no search.
    row, edge = np.nonzero(lowest - lengths / (2 * _MARKS) <= lowest.min(1, keepdims=True) * (1 + _ROUNDING))
    time, width = table.argmin(1)[row, edge] / _MARKS, 1 / _MARKS

    def square(t: Array) -> Array:
        onto = geodesic_points(points.placed, t, start[edge], end[edge])
        return point_distances(points.placed, points.space[row], onto) ** 2

    for _ in range(_ROUNDS):  # the lowest point of a parabola, ever closer to it
        before, here, behind = square(time - width), square(time), square(time + width)
        bend = np.maximum(before + behind - 2 * here, np.finfo(np.float64).tiny)
        time = np.clip(time + width * np.clip((before - behind) / (2 * bend), -1, 1), 0, 1)
        width /= _NARROWING
    time = np.where(time < _ROUNDING, 0.0, np.where(time > 1 - _ROUNDING, 1.0, time))
    away = np.sqrt(square(time))
    nearest = np.full(len(points), np.inf)
    np.minimum.at(nearest, row, away)
    ties = np.flatnonzero(away <= nearest[row] + _ROUNDING * lengths[edge])
    chosen = ties[np.unique(row[ties], return_index=True)[1]]
    return TreePlaces(edge[chosen] + 1, time[chosen], away[chosen])


def _at(embedding: Embedding, points: Array) -> Embedding:
    """Return an embedding with other points."""
    factors = len(embedding.placed)
    return Embedding(points, np.zeros((len(points), factors) if factors > 1 else len(points)), embedding.factors)


def _mean(embedding: Embedding, points: Array) -> Array:
    """Compute the Fréchet mean of points (…, rows, width) in the space of an embedding."""
    parts = zip(embedding.placed, by_factor(points, embedding.placed), strict=True)
    return np.concatenate([factor.chart.space.frechet_mean(torch.from_numpy(x)).numpy() for factor, x in parts], -1)


def _shortest_tree(nodes: Embedding) -> Any:
    """Return the minimum spanning tree of nodes as a symmetric table of the lengths of its edges, 0 for none."""
    table = np.maximum(nodes.distances(), np.finfo(np.float64).tiny)
    tree = minimum_spanning_tree(table).toarray()
    return np.maximum(tree, tree.T)
