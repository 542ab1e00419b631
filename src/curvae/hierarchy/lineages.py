"""Lineages: a tree of the groups of a map, how far along it every row lies, and how sure that is.

Nodes are the Fréchet means of groups, joined by the shortest tree of geodesics, whose edges point away from the root.
The pseudotime of a row is the length of the way from the root to the point of the tree that is nearest to the row.

Which columns change on the way from one place of a map to another is found for trees and for any two places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree
from scipy.special import ndtri

from ..data.dataset import Arrays, Scaling
from ..data.files import quoted
from ..errors import CurvaeError
from ..maps.embedding import Embedding, by_factor, geodesic_points, point_distances
from ..maps.statistics import Array, Index
from ..models import VAE, Batch, Layout
from ..models.likelihoods.counts import Counts
from ..settings import require_count
from .trees import NamedTree

__all__ = [
    "Drivers",
    "Expected",
    "Lineage",
    "TreePlaces",
    "calibrate",
    "draw_places",
    "expected_rows",
    "explain",
    "explain_along",
    "find_lineage",
    "join_groups",
    "nearest_on_tree",
    "pool_lineages",
    "repeat_lineage",
    "require_groups",
    "split_counts",
    "times_along",
]

_LEVEL = 0.9  # probability of intervals
_FEWEST = 5  # rows of a group
_FEWEST_DRAWS = 19  # of which the two outermost are a 90 % interval
_SPLIT, _FEWEST_SPLIT = 1000, 50  # cells whose counts are split, at most and at least
_PARTS, _SPLIT_DRAWS, _REPEATS = 5, 10, 2  # of these by size, draws of each half, and rounds of the calibration
_LARGEST = 5.0  # factor of the calibration, and one over the smallest
_SHRUNK = 0.1  # added to the spread of log sizes, so that factors do not depend on sizes that are all alike
_MARKS = 16  # pieces of an edge between which the nearest is looked for
_ROUNDS, _NARROWING = 4, 8  # of the search between marks, and by how much it narrows in each
_ROUNDING = 1e-6  # share of an edge, or of the tree, that counts as none
_BLOCK = 1 << 22  # distances that are computed at a time


class TrainedVAE(Protocol):
    """A trained model of rows, such as `curvae.training.Fitted`."""

    model: VAE
    layout: Layout
    scaling: Scaling
    failure: str | None

    def reconstruct(self, space: Array, *, context: Array | None = None) -> Array:
        """Return the expected rows at points, in original units."""


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
        drawn: places of the nodes in every drawn tree, (draws, nodes, width); of several trainings, in the first.
        joined: which nodes every drawn tree joins, (draws, nodes, nodes).
        branches: names of the branches, the root first.
        branch: place in `branches` of each row.
        pseudotime: of each row.
        low, high: its 90 % interval between the draws of the row.
        times: pseudotimes of the draws, (draws, rows).
        reached: the node at the lower end of the edge of each draw, 0 at the root, (draws, rows).
        probability: share of the draws on each branch, (rows, branches).
        chosen: whether the root was chosen here, as the group of the lowest radius.
        calibrated: whether intervals are calibrated on cells whose counts were split in two.
    """

    tree: NamedTree
    nodes: Embedding
    support: Array
    drawn: Array
    joined: NDArray[np.bool_]
    branches: tuple[str, ...]
    branch: Index
    pseudotime: Array
    low: Array
    high: Array
    times: Array
    reached: Index
    probability: Array
    chosen: bool
    calibrated: bool = False

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
        draws: of the posteriors of all rows, (draws, rows, width); of cells, with the scale of `calibrate`.
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
    tree, nodes, members = join_groups(embedding, labels, root, names)
    random = np.random.default_rng(seed)
    resampled = [np.stack([points[random.choice(own, len(own))] for points in draws]) for own in members]
    drawn = np.stack([_mean(embedding, points) for points in resampled], 1)
    joined = np.stack([_shortest_tree(_at(embedding, points)) > 0 for points in drawn])
    pseudotime, place = times_along(embedding.space, nodes, tree)
    times, reached = times_along(np.concatenate(draws), nodes, tree)
    shape = len(draws), len(embedding)
    branch_of, figures = _summarize(tree, pseudotime, times.reshape(shape), reached.reshape(shape), joined)
    return Lineage(tree=tree, nodes=nodes, drawn=drawn, branch=branch_of[place], chosen=root is None, **figures)


def _summarize(
    tree: NamedTree, pseudotime: Array, times: Array, reached: Index, joined: NDArray[np.bool_]
) -> tuple[Index, dict[str, Any]]:
    """Return the branch of every node, and what draws along a tree and drawn trees tell, as fields of `Lineage`."""
    support = joined[:, np.arange(len(tree)), tree.parent].mean(0)
    support[0] = 1.0
    ends = np.arange(len(tree))  # the node in which the branch of the edge above each node ends
    children = np.bincount(tree.parent[1:], minlength=len(tree))
    for node in range(len(tree) - 1, 0, -1):
        if children[tree.parent[node]] == 1 and tree.parent[node]:
            ends[tree.parent[node]] = ends[node]
    branches, branch_of = np.unique(ends, return_inverse=True)
    # The quantiles between which a further draw would fall with the probability of the interval.
    low, high = np.quantile(times, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2], axis=0, method="weibull")
    return branch_of, {
        "support": support,
        "joined": joined,
        "branches": tuple(tree.names[branches].tolist()),
        "pseudotime": pseudotime,
        "low": np.minimum(low, pseudotime),
        "high": np.maximum(high, pseudotime),
        "times": times,
        "reached": reached,
        "probability": np.mean(branch_of[reached][..., None] == np.arange(len(branches)), 0),
    }


def pool_lineages(found: Sequence[Lineage]) -> Lineage:
    """Join lineages of the same rows, groups and root from several trainings; return a single one unchanged.

    The tree is that of the first, and pseudotimes are scaled to its own by least squares. Then the pseudotime of a row
    is the mean over trainings, and intervals, supports and probabilities are those of all draws and drawn trees
    together. A draw along the tree of another training is on the branch of the first tree that has the node it reached.
    The branch of a row is the most probable one.
    """
    first = found[0]
    if len(found) == 1:
        return first
    scales = [float(one.pseudotime @ first.pseudotime / (one.pseudotime @ one.pseudotime)) for one in found]
    pairs = list(zip(scales, found, strict=True))
    # Of each training the places of the nodes of the first tree.
    nodes = [pd.Index(one.tree.names).get_indexer(pd.Index(first.tree.names)) for one in found]
    _, figures = _summarize(
        first.tree,
        np.mean([scale * one.pseudotime for scale, one in pairs], 0),
        np.concatenate([scale * one.times for scale, one in pairs]),
        np.concatenate([np.argsort(order)[one.reached] for order, one in zip(nodes, found, strict=True)]),
        np.concatenate([one.joined[:, order][:, :, order] for order, one in zip(nodes, found, strict=True)]),
    )
    return replace(first, branch=figures["probability"].argmax(1), **figures)


def repeat_lineage(
    fitted: TrainedVAE,
    embed: Callable[[Any, Any], Embedding],
    embedding: Embedding,
    groups: ArrayLike,
    root: str | int | None = None,
    *,
    cells: Arrays | None,
    draws: int,
    names: Sequence[str],
    seed: int,
    repeats: int = 1,
    train: Callable[[int], TrainedVAE],
) -> Lineage:
    """Find a lineage from a model and further ones of the same rows; calibrate the intervals of each where that can be.

    Arguments:
        fitted: the first model, whose tree it is.
        embed: what places rows on the map of a model.
        embedding, groups, root, names: as of `find_lineage`; the first model chooses the root for all.
        cells: the rows of the map; without them nothing is calibrated, and there are no further models.
        draws: of the posterior of each row, in every model.
        seed: of draws; the next one for the next model.
        repeats: models in all.
        train: what trains one of the further models, given its number from 1 on.
    """
    require_count("repeats", repeats)
    found: list[Lineage] = []
    for i in range(repeats):
        if i:
            fitted = train(i)
            if fitted.failure is not None:
                raise CurvaeError(f"training {i + 1} of {repeats} ended early: {fitted.failure}", parameter="repeats")
            embedding = embed(fitted, cells)
        random, how = np.random.default_rng(seed + i), (embedding, groups, root, seed + i)
        factor = None if cells is None else calibrate(fitted, partial(embed, fitted), cells, *how)
        scale = 1.0 if factor is None or cells is None else factor(cells)
        places = [draw_places(fitted, embedding, random, scale) for _ in range(draws)]
        one = find_lineage(embedding, groups, root, draws=places, names=names, seed=seed + i)
        found.append(replace(one, calibrated=factor is not None))
        root = one.root if root is None else root  # a cell stays the one it is
    return pool_lineages(found)


def join_groups(
    embedding: Embedding, groups: ArrayLike, root: str | int | None = None, names: Sequence[str] | None = None
) -> tuple[NamedTree, Embedding, list[Index]]:
    """Join groups of rows to a tree; return it, its nodes, and the rows of each; arguments as of `find_lineage`."""
    labels = np.asarray(groups, dtype=np.str_)
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
    return tree, nodes.take(order), [members[place] for place in order]


def times_along(points: Array, nodes: Embedding, tree: NamedTree) -> tuple[Array, Index]:
    """Return how far along a tree points lie, and the node at the lower end of the edge of each, 0 at the root."""
    found = nearest_on_tree(_at(nodes, points), nodes, tree.parent)
    reached = tree.height[tree.parent[found.node]] + found.time * tree.length[found.node]
    return reached, np.where(reached > _ROUNDING * tree.height.max(), found.node, 0)


def calibrate(
    fitted: TrainedVAE,
    embed: Callable[[Arrays], Embedding],
    cells: Arrays,
    embedding: Embedding,
    groups: ArrayLike,
    root: str | int | None = None,
    seed: int = 0,
) -> Callable[[Arrays], Array] | None:
    """Find by what factors to scale standard deviations of the posteriors of cells, so that intervals of pseudotime
    hold; None without counts, or of too few cells.

    The counts of some cells are split in two. With these factors the pseudotimes of the two halves of a cell differ, in
    90 % of cells, by no more than draws of both imply. The logarithm of a factor is linear in that of the cell's size.

    Arguments:
        fitted: a model of counts.
        embed: what places cells on its map.
        cells: all of them.
        embedding, groups, root: as of `find_lineage`.
        seed: of the cells that are split, of their halves and of draws.
    """
    if not isinstance(fitted.model.likelihood, Counts) or cells.size is None or len(cells) < _FEWEST_SPLIT:
        return None
    tree, nodes, _ = join_groups(embedding, groups, root)
    random = np.random.default_rng([seed, 1])
    halves = split_counts(cells.take(np.sort(random.permutation(len(cells))[:_SPLIT])).load(), random)
    placed = [embed(half) for half in halves]
    apart = np.abs(np.subtract(*[times_along(half.space, nodes, tree)[0] for half in placed]))
    sizes = np.log(np.mean([np.asarray(half.size) for half in halves], 0))
    parts = np.array_split(np.argsort(sizes, kind="stable"), _PARTS)
    middles = np.array([sizes[part].mean() for part in parts])
    centre, level, slope = middles.mean(), 0.0, 0.0

    def factor(rows: Arrays) -> Array:
        return np.clip(np.exp(level + slope * (np.log(np.asarray(rows.size)) - centre)), 1 / _LARGEST, _LARGEST)

    for _ in range(_REPEATS):  # as pseudotimes are not linear in places
        draws = [
            draw_places(fitted, place, random, factor(half))
            for half, place in zip(halves, placed, strict=True)
            for _ in range(_SPLIT_DRAWS)
        ]
        times = times_along(np.concatenate(draws), nodes, tree)[0].reshape(2, _SPLIT_DRAWS, -1)
        deviation = np.sqrt(np.maximum(times.var(1, ddof=1).sum(0), np.finfo(np.float64).tiny))
        reached = [np.quantile((apart / deviation)[part], _LEVEL) / ndtri((1 + _LEVEL) / 2) for part in parts]
        missed = np.log(np.clip(reached, 1 / _LARGEST, _LARGEST))
        level += missed.mean()
        slope += (middles - centre) @ missed / (((middles - centre) ** 2).sum() + _SHRUNK)
    return factor


def split_counts(cells: Arrays, random: np.random.Generator) -> list[Arrays]:
    """Split the counts of cells in two, each molecule to one half at random; sizes of halves are their shares."""
    counts = csr_array(cells.x)
    first = counts.copy()
    first.data = random.binomial(counts.data.astype(np.int64), 0.5).astype(counts.dtype)
    unit = np.asarray(cells.size) / np.maximum(counts.sum(1), 1)
    halves = first, csr_array(counts - first)
    return [replace(cells, x=half, size=unit * np.maximum(half.sum(1), 1)) for half in halves]


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
    tree = minimum_spanning_tree(np.maximum(nodes.distances(), np.finfo(np.float64).tiny)).toarray()
    return np.maximum(tree, tree.T)


# Columns that change on a way.

_UNIT_ROWS = 500  # of the map, from which the unit of a column is measured
_DECODED = 2**22  # expected values held at once


@dataclass(frozen=True)
class Drivers:
    """What the decoder expects along a geodesic, in the columns that change most, in original units.

    Arguments:
        features: places of these columns among all, the one that changes most first, (k,).
        unit: standard deviation of each in the whole data, as the model has them, (k,).
        t: places on the geodesic, from 0 at the start to 1 at the end, (steps,).
        mean: expected values there, (steps, k).
        low, high: interval of the expected values between draws of the posteriors, (steps, k).
        change: by how much each expected value grows from start to end, (k,).
        change_low, change_high: its interval, (k,).
        length: of the geodesic.
    """

    features: NDArray[np.intp]
    unit: Array
    t: Array
    mean: Array
    low: Array
    high: Array
    change: Array
    change_low: Array
    change_high: Array
    length: float

    @property
    def travel(self) -> Array:
        """How far each expected value moves on the way, from its smallest to its largest, in units of its column."""
        return np.ptp(self.mean, axis=0) / self.unit

    @property
    def clear(self) -> NDArray[np.bool_]:
        """For which columns the interval of the change leaves 0 out."""
        return (self.change_low > 0) | (self.change_high < 0)

    def to_json(self, names: Sequence[str]) -> dict[str, Any]:
        """Return JSON values, given the names of all features."""
        columns = [
            {
                "column": str(names[feature]),
                "from": self.mean[0, i],
                "to": self.mean[-1, i],
                "change": self.change[i],
                "interval": [self.change_low[i], self.change_high[i]],
                "travel": travel,
                "clear": bool(clear),
                "path": self.mean[:, i].tolist(),
                "path_interval": [self.low[:, i].tolist(), self.high[:, i].tolist()],
            }
            for i, (feature, travel, clear) in enumerate(zip(self.features, self.travel, self.clear, strict=True))
        ]
        return {"length": self.length, "t": self.t.tolist(), "columns": columns}

    def table(self, names: Sequence[str], column: str = "column", t: str = "t") -> pd.DataFrame:
        """Return expected values with their intervals, a line for each column and place, given the names of all
        features; arguments beside these name columns of the table.
        """
        shown = np.array(names)[self.features]
        values = {name: getattr(self, name).ravel("F") for name in ("mean", "low", "high")}
        return pd.DataFrame({column: shown.repeat(len(self.t)), t: np.tile(self.t, len(shown)), **values})


def explain(
    fitted: TrainedVAE,
    embedding: Embedding,
    end: ArrayLike,
    start: ArrayLike | None = None,
    *,
    columns: int = 20,
    draws: int = 200,
    level: float = 0.9,
    steps: int = 21,
    context: Array | None = None,
    seed: int = 0,
) -> Drivers:
    """Find the columns that change along the geodesic between two rows, or groups of rows, of a map.

    The decoder is asked for the expected row at every step of the geodesic. For the intervals, both ends are drawn many
    times: a row of the group, and a point of its posterior. So they tell how far the answer depends on where exactly
    the rows lie and, of a group, on which of its rows is meant; not how well the model was trained.

    Arguments:
        fitted: a model of rows.
        embedding: its map, of any rows.
        end: places of rows in the map; of several, the geodesic ends at their Fréchet mean.
        start: where it starts, likewise; by default at the Fréchet mean of all rows, which is not drawn.
        columns: how many to return, those that change most beside the standard deviation of the column.
        draws: of the posteriors, for the intervals.
        level: probability of the intervals.
        steps: on the geodesic, with both ends.
        context: covariates, (covariates,), if the model uses some; by default 0.
        seed: of the draws.

    Example:
        >>> from curvae.data import branching_diffusion
        >>> from curvae.training import Config, embed, fit
        >>> x = branching_diffusion().x
        >>> fitted = fit(Config(hidden=(16,), epochs=1), x)
        >>> found = explain(fitted, embed(fitted, x), end=[600], start=[0], columns=3)
        >>> found.features.shape, found.mean.shape
        ((3,), (21, 3))
    """
    random = np.random.default_rng(seed)
    groups = [None if rows is None else _take(embedding, rows) for rows in (start, end)]
    centres = [embedding.centre if group is None else group.centre for group in groups]  # (1, d) each
    contexts, unit = _units(fitted, embedding, context, random)
    ends = [
        np.repeat(centre, draws, 0)
        if group is None
        else draw_places(fitted, group.take(random.integers(len(group), size=draws)), random)
        for group, centre in zip(groups, centres, strict=True)
    ]
    ways = np.stack([np.concatenate(centres), *np.stack(ends, 1)])
    t = np.linspace(0.0, 1.0, steps)
    points = geodesic_points(embedding.placed, t, ways[:, :1], ways[:, 1:])
    length = float(point_distances(embedding.placed, *centres)[0])
    return _along(fitted, points, t, contexts, unit, length, columns=columns, level=level)


def explain_along(
    fitted: TrainedVAE,
    embedding: Embedding,
    lineage: Lineage,
    end: str,
    *,
    columns: int = 20,
    features: NDArray[np.intp] | None = None,
    level: float = 0.9,
    steps: int = 41,
    context: Array | None = None,
    seed: int = 0,
) -> Drivers:
    """Find the columns that change along a tree of groups, from its root to one of them.

    The decoder is asked for the expected row along the way; `t` of the result is the pseudotime. Intervals are those
    between the same ways in the drawn trees: they tell how far the expected row of the way depends on which rows were
    measured and where they lie, and not how much rows differ.

    Arguments:
        fitted: a model of rows.
        embedding: its map, of any rows.
        lineage: the tree.
        end: name of the group at the end.
        columns: how many to return, those that change most beside the standard deviation of the column.
        features: places of the columns to return instead.
        level, steps: as of `explain`.
        context: covariates, (covariates,), or several, over which expected rows are averaged, (·, covariates).
        seed: of the draws that tell standard deviations.
    """
    contexts, unit = _units(fitted, embedding, context, np.random.default_rng(seed))
    nodes = lineage.path(end)
    reached = lineage.tree.height[nodes]
    t = np.linspace(0.0, reached[-1], steps)
    edge = np.searchsorted(reached[1:-1], t, side="right")
    ways = np.concatenate([lineage.nodes.space[None], lineage.drawn])[:, nodes]
    times = (t - reached[edge]) / np.maximum(np.diff(reached)[edge], np.finfo(np.float64).tiny)
    points = geodesic_points(embedding.placed, times, ways[:, edge], ways[:, edge + 1])
    return _along(fitted, points, t, contexts, unit, float(reached[-1]), features, columns=columns, level=level)


def _along(
    fitted: TrainedVAE,
    points: Array,
    t: Array,
    contexts: Array,
    unit: Array,
    length: float,
    features: NDArray[np.intp] | None = None,
    *,
    columns: int,
    level: float,
) -> Drivers:
    """Find the columns that change along a way, the first of points (ways, steps, width); the others are draws of it,
    for the intervals."""
    mean = _expected(fitted, points[0], contexts)
    if features is None:
        features = np.argsort(-np.ptp(mean, axis=0) / unit, kind="stable")[: max(1, columns)]
    # Of all draws at once, (draws, steps, k).
    values = _expected(fitted, np.concatenate(points[1:]), contexts, features).reshape(len(points) - 1, len(t), -1)
    tails = (1 - level) / 2, (1 + level) / 2
    low, high = np.quantile(values, tails, axis=0)
    change_low, change_high = np.quantile(values[:, -1] - values[:, 0], tails, axis=0)
    chosen = mean[:, features]
    change = chosen[-1] - chosen[0]
    return Drivers(features, unit[features], t, chosen, low, high, change, change_low, change_high, length)


class Expected(NamedTuple):
    """What the decoder expects at every row of a map, in the columns that differ most between rows.

    Arguments:
        features: places of these columns among all, (k,).
        mean: expected values, in original units, (rows, k).
        deviation: their standard deviations over draws of the posteriors, (rows, k).
        unit: standard deviation of each column, (k,).
    """

    features: NDArray[np.intp]
    mean: Array
    deviation: Array
    unit: Array


def expected_rows(
    fitted: TrainedVAE,
    embedding: Embedding,
    *,
    columns: int = 12,
    draws: int = 10,
    context: Array | None = None,
    seed: int = 0,
) -> Expected:
    """Return what the decoder expects at every row, and so how any two rows differ; arguments as of `explain`."""
    random = np.random.default_rng(seed)
    covariates, unit = _units(fitted, embedding, context, random)
    some = random.permutation(len(embedding))[:_UNIT_ROWS]
    deviation = _expected(fitted, embedding.space[some], covariates).std(0) / unit
    features = np.argsort(-deviation, kind="stable")[:columns]
    mean = _expected(fitted, embedding.space, covariates, features)
    moments = np.zeros((2, *mean.shape))
    for _ in range(draws):
        off = _expected(fitted, draw_places(fitted, embedding, random), covariates, features) - mean
        moments += [off, off**2]
    first, second = moments / draws
    return Expected(features, mean, np.sqrt(np.maximum(second - first**2, 0.0) * draws / (draws - 1)), unit[features])


def _take(embedding: Embedding, rows: ArrayLike) -> Embedding:
    """Take rows of a map by their places; raise where there are none."""
    places = np.atleast_1d(np.asarray(rows))
    if not (places.size and np.issubdtype(places.dtype, np.integer)):
        raise CurvaeError(f"rows must be given by their places, whole numbers, at least one; got {rows!r}")
    if places.min() < 0 or places.max() >= len(embedding):
        raise CurvaeError(f"the map has rows 0 to {len(embedding) - 1}, got {int(places.max())}")
    return embedding.take(places)


def draw_places(fitted: TrainedVAE, rows: Embedding, random: np.random.Generator, scale: Array | float = 1.0) -> Array:
    """Draw a point of the posterior of every row, (rows, d), whose standard deviation is multiplied by the scale."""
    points = []
    for part, factor in zip(rows.parts, fitted.model.space, strict=True):
        sigma = torch.from_numpy((part.sigma * scale).reshape(-1, 1))
        q = factor.around(part.points, sigma, part.c)
        points.append(q.transform(torch.from_numpy(random.normal(size=(len(part), q.noise_dim)))))
    return torch.cat(points, -1).numpy()


def _expected(fitted: TrainedVAE, points: Array, contexts: Array, features: Any = slice(None)) -> Array:
    """Compute expected values of features at points, in original units, averaged over covariates (contexts, ·)."""
    parts = np.array_split(points, -(-len(points) * fitted.layout.features // _DECODED))
    return np.concatenate(
        [
            sum(fitted.reconstruct(part, context=np.tile(one, (len(part), 1)))[:, features] for one in contexts)
            / len(contexts)
            for part in parts
        ]
    )


def _units(
    fitted: TrainedVAE, embedding: Embedding, context: Array | None, random: np.random.Generator
) -> tuple[Array, Array]:
    """Return covariates, (contexts, ·), and with them the standard deviation of every column over rows that the model
    makes at points of the map."""
    contexts = np.zeros((1, fitted.layout.covariates)) if context is None else np.atleast_2d(context)
    places = random.permutation(len(embedding))[:_UNIT_ROWS]
    model = fitted.model
    covariates = torch.from_numpy(contexts[np.arange(len(places)) % len(contexts)]).to(model.device, model.dtype)
    points = torch.from_numpy(embedding.space[places]).to(model.device)
    generator = torch.Generator(model.device).manual_seed(int(random.integers(2**31)))
    with torch.no_grad():
        made = model.likelihood.sample(model.decode(points, covariates), Batch(points, context=covariates), generator)
    deviation = fitted.scaling.invert(made.cpu().double().numpy()).std(0)
    return contexts, np.where(deviation > 0, deviation, np.inf)
