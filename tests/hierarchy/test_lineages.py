"""Lineages: trees whose nodes are known, and the nearest point of a tree by trying many."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from curvae.errors import CurvaeError
from curvae.hierarchy import find_lineage, parse_newick
from curvae.hierarchy.lineages import nearest_on_tree, pool_lineages
from curvae.maps.embedding import Embedding, PlacedFactor

SPACES = {
    "h2": (PlacedFactor("h1", 2, 1.0),),
    "h5": (PlacedFactor("h1", 5, 0.4),),
    "e2": (PlacedFactor("e1", 2, 0.0),),
    "h2,e3": (PlacedFactor("h1", 2, 1.3, 0.7), PlacedFactor("e2", 3, 0.0, 2.0)),
}
# Edges of a star of three arms with two nodes each, and of a binary tree of depth 2; the root is 0.
STAR = (-1, 0, 1, 0, 3, 0, 5)
BINARY = (-1, 0, 0, 1, 1, 2, 2)


def at(points, factors):
    return Embedding(points, np.ones((len(points), len(factors)) if len(factors) > 1 else len(points)), factors)


def apart(x, y, factors):
    """Distances by the inner product on the hyperboloid, one by one."""
    squares, first = 0.0, 0
    for factor in factors:
        a, b = (z[..., first : first + factor.dim] for z in (x, y))
        first += factor.dim
        if factor.c == 0:
            square = ((a - b) ** 2).sum(-1)
        else:
            time = np.sqrt((1 + factor.c * (a**2).sum(-1)) * (1 + factor.c * (b**2).sum(-1)))
            square = np.arccosh(np.maximum(time - factor.c * (a * b).sum(-1), 1.0)) ** 2 / factor.c
        squares = squares + square / (factor.unit**2 if len(factors) > 1 else 1.0)
    return np.sqrt(squares)


def between(t, x, y, factors):
    """The point at time t between two: in the plane of both on the hyperboloid, or on a line."""
    parts, first = [], 0
    for factor in factors:
        a, b = (z[first : first + factor.dim] for z in (x, y))
        first += factor.dim
        length = np.sqrt(factor.c) * apart(a, b, (factor._replace(unit=1.0),))
        shares = (1 - t, t) if length == 0 else (np.sinh((1 - t) * length), np.sinh(t * length)) / np.sinh(length)
        parts.append(shares[0] * a + shares[1] * b)
    return np.concatenate(parts)


def grown(parent, factors, step=2.0, seed=0):
    """Nodes each a step from their parent, in directions that lead away from the root and from each other."""
    random = np.random.default_rng(seed)
    nodes, turn = [np.zeros(sum(factor.dim for factor in factors))], {0: (0.0, 2 * np.pi)}
    for node, above in enumerate(parent[1:], 1):
        siblings = [one for one, other in enumerate(parent) if other == above]
        low, high = turn[above]
        width = (high - low) / len(siblings)
        low += width * siblings.index(node)
        turn[node] = low, low + width
        angle, way = low + width / 2, np.zeros(len(nodes[0]))
        way[:2] = np.cos(angle), np.sin(angle)
        way[2:] = random.normal(0, 0.1, len(way) - 2)
        pieces, first = [], 0
        for factor in factors:
            space = factor.chart.space
            here, there = (torch.tensor(z[first : first + factor.dim]) for z in (nodes[above], way))
            pieces.append(space.expmap(here, step * there).numpy())
            first += factor.dim
        nodes.append(np.concatenate(pieces))
    return np.array(nodes)


def cloud(nodes, factors, rows=12, scale=0.15, seed=0):
    """Rows around nodes, and the names of their groups."""
    random = np.random.default_rng(seed)
    centres = np.repeat(nodes, rows, 0)
    pieces, first = [], 0
    for factor in factors:
        here = torch.tensor(centres[:, first : first + factor.dim])
        pieces.append(factor.chart.space.expmap(here, torch.tensor(random.normal(0, scale, here.shape))).numpy())
        first += factor.dim
    return np.concatenate(pieces, 1), np.repeat([f"n{i}" for i in range(len(nodes))], rows)


def scattered(place, draws=19, scale=0.1, seed=1):
    noise = np.random.default_rng(seed).normal(0, scale, (draws, *place.shape))
    return place + noise


@pytest.mark.parametrize("parent", [STAR, BINARY], ids=["star", "binary"])
@pytest.mark.parametrize("space", SPACES)
def test_a_tree_that_is_known_is_found(space, parent):
    factors = SPACES[space]
    nodes = grown(parent, factors)
    place, groups = cloud(nodes, factors)
    found = find_lineage(at(place, factors), groups, "n0", draws=scattered(place))
    above = {
        str(name): str(found.tree.names[node]) for name, node in zip(found.tree.names, found.tree.parent, strict=True)
    }
    assert found.root == "n0" and not found.chosen
    assert all(above[f"n{i}"] == f"n{one}" for i, one in enumerate(parent) if i)
    assert (found.support == 1).all()
    leaves = {f"n{i}" for i in range(len(parent)) if i not in parent}
    assert set(found.leaves) == leaves and leaves <= set(found.branches)
    # Rows around a node are as far along as it is, and the lengths of edges are those between means.
    for i, name in enumerate(found.tree.names):
        near = apart(found.nodes.space[i], nodes[int(name[1:])], factors)
        assert near < 0.15
        if i:
            length = apart(found.nodes.space[i], found.nodes.space[found.tree.parent[i]], factors)
            assert found.tree.length[i] == pytest.approx(length, rel=1e-9)
        rows = groups == name
        assert abs(found.pseudotime[rows].mean() - found.tree.height[i]) < 0.25
    assert (found.low <= found.pseudotime).all() and (found.pseudotime <= found.high).all()
    np.testing.assert_allclose(found.probability.sum(1), 1.0)
    ends = np.array(found.branches)[found.branch]
    for name in leaves:
        assert (ends[groups == name] == name).all()
    # A chain of nodes that does not fork is one branch.
    assert set(found.branches) == ({"n0", "n2", "n4", "n6"} if parent is STAR else {f"n{i}" for i in range(7)})


@pytest.mark.parametrize("space", SPACES)
def test_nearest_points_are_those_of_a_search(space):
    factors = SPACES[space]
    random = np.random.default_rng(3)
    nodes = grown(BINARY, factors, step=1.5)
    points = random.normal(0, 1.5, (40, nodes.shape[1]))
    parent = np.array(BINARY)
    found = nearest_on_tree(at(points, factors), at(nodes, factors), parent)
    tried = np.array(
        [
            [
                apart(points, between(t, nodes[parent[node]], nodes[node], factors), factors)
                for t in np.linspace(0, 1, 401)
            ]
            for node in range(1, len(nodes))
        ]
    )  # (edges, times, points)
    best = tried.min((0, 1))
    assert (found.distance <= best + 1e-9).all()
    np.testing.assert_allclose(found.distance, best, atol=2e-3)
    for i, point in enumerate(points):
        node = found.node[i]
        own = between(found.time[i], nodes[parent[node]], nodes[node], factors)
        assert apart(point, own, factors) == pytest.approx(found.distance[i], abs=1e-7)
        # No nearer point a little further along the edge.
        for t in (found.time[i] - 1e-3, found.time[i] + 1e-3):
            if 0 <= t <= 1:
                other = between(t, nodes[parent[node]], nodes[node], factors)
                assert apart(point, other, factors) >= found.distance[i] - 1e-9


def test_many_points_are_searched_in_blocks(monkeypatch):
    factors = SPACES["h2"]
    nodes = at(grown(STAR, factors), factors)
    points = at(np.random.default_rng(0).normal(0, 2.0, (50, 2)), factors)
    whole = nearest_on_tree(points, nodes, np.array(STAR))
    monkeypatch.setattr("curvae.hierarchy.lineages._BLOCK", 500)
    for one, other in zip(whole, nearest_on_tree(points, nodes, np.array(STAR)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)


def test_points_behind_a_fork_belong_to_the_edge_above():
    """In the plane, with a corner of 90° on the far side of the fork (2, 0)."""
    factors = SPACES["e2"]
    nodes = at(np.array([[0.0, 0.0], [2.0, 0.0], [3.0, 2.0], [3.0, -2.0]]), factors)
    found = nearest_on_tree(
        at(np.array([[2.5, 0.0], [1.0, 1.0], [-1.0, 0.0], [9.0, 3.0]]), factors), nodes, np.array([-1, 0, 1, 1])
    )
    assert found.node.tolist()[1:] == [1, 1, 2] and found.time.tolist()[2:] == [0.0, 1.0]
    assert found.node[0] in (2, 3) and found.time[1] == pytest.approx(0.5, abs=1e-6)
    back = at(np.array([[0.0, 0.0], [2.0, 0.0], [1.5, 2.0], [1.5, -2.0]]), factors)
    found = nearest_on_tree(at(np.array([[5.0, 0.0]]), factors), back, np.array([-1, 0, 1, 1]))
    assert found.node.tolist() == [1] and found.time.tolist() == [1.0]


@pytest.mark.parametrize("space", SPACES)
def test_the_tree_is_the_shortest_of_all(space):
    """Of five means, among all 125 trees, which are those of the sequences of Prüfer."""
    factors = SPACES[space]
    random = np.random.default_rng(5)
    means = random.normal(0, 1.5, (5, sum(factor.dim for factor in factors)))
    place = np.repeat(means, 5, 0)
    groups = np.repeat(list("abcde"), 5)
    found = find_lineage(at(place, factors), groups, "c", draws=np.repeat(place[None], 19, 0))
    lengths = apart(means[:, None], means, factors)
    totals = []
    for code in itertools.product(range(5), repeat=3):
        degree, edges = np.bincount(code, minlength=5) + 1, []
        for node in code:
            leaf = int(np.flatnonzero(degree == 1)[0])
            edges.append((leaf, node))
            degree[[leaf, node]] -= 1
        edges.append(tuple(np.flatnonzero(degree == 1)))
        totals.append(sum(lengths[edge] for edge in edges))
    assert found.tree.length.sum() == pytest.approx(min(totals), rel=1e-9)


def test_a_row_can_be_the_root():
    factors = SPACES["h2"]
    nodes = grown(STAR, factors)
    place, groups = cloud(nodes, factors)
    far = int(np.flatnonzero(groups == "n4")[3])
    names = [f"cell{i}" for i in range(len(place))]
    found = find_lineage(at(place, factors), groups, far, draws=scattered(place), names=names)
    assert found.root == f"cell{far}" and found.pseudotime[far] == 0.0 and found.branch[far] == 0
    assert found.tree.names[found.path("n2")].tolist() == [f"cell{far}", "n4", "n3", "n0", "n1", "n2"]
    assert found.pseudotime[groups == "n2"].mean() > found.pseudotime[groups == "n3"].mean() > 1.0
    with pytest.raises(CurvaeError, match=r"no way leads to 'n9'; the tree has 'n\d"):
        found.path("n9")


def test_without_a_root_it_is_the_group_of_the_lowest_radius():
    factors = SPACES["h2"]
    place, groups = cloud(grown(STAR, factors), factors)
    found = find_lineage(at(place, factors), groups, draws=scattered(place))
    assert found.root == "n0" and found.chosen


def test_rows_without_a_group_lie_along_the_tree():
    factors = SPACES["e2"]
    place, groups = cloud(grown(STAR, factors), factors)
    some = np.where(groups == "n1", "", groups)
    found = find_lineage(at(place, factors), some, "n0", draws=scattered(place))
    assert "n1" not in found.tree.names and abs(found.pseudotime[groups == "n1"].mean() - 2.0) < 0.2


def test_intervals_are_those_of_the_posterior():
    """Along a straight line the pseudotime is normal with the deviation of the posterior: a further draw falls into
    the interval with probability 0.9, and no more often with few draws."""
    factors = SPACES["e2"]
    random = np.random.default_rng(7)
    along = random.uniform(1.0, 9.0, 1500)
    place = np.stack([along, np.zeros(1500)], 1)
    place[:10] = [0.0, 0.0]
    place[10:20] = [10.0, 0.0]
    groups = np.array(["a"] * 10 + ["b"] * 10 + [""] * 1480)
    sigma = random.uniform(0.02, 0.2, (1500, 1))
    draws = place + sigma * random.normal(size=(25, 1500, 2))
    found = find_lineage(at(place, factors), groups, "a", draws=draws)
    inner = slice(20, None)
    np.testing.assert_allclose(found.pseudotime[inner], along[inner], atol=1e-5)
    further = along + sigma[:, 0] * random.normal(size=1500)
    inside = ((found.low <= further) & (further <= found.high))[inner].mean()
    assert 0.88 < inside < 0.93
    assert np.corrcoef(found.high - found.low, sigma[:, 0])[0, 1] > 0.9


def test_support_falls_where_groups_are_not_told_apart():
    """Of three groups around one place no order is sure; the way from them to a fourth is."""
    factors = SPACES["e2"]
    random = np.random.default_rng(8)
    place = random.normal(0, 1.0, (80, 2))
    place[60:] += [20.0, 0.0]
    groups = np.repeat(["a", "b", "c", "d"], 20)
    found = find_lineage(at(place, factors), groups, "d", draws=np.repeat(place[None], 30, 0))
    assert found.support[0] == 1.0 and found.support[1:].min() < 0.9
    assert ((found.support >= 0) & (found.support <= 1)).all()
    assert found.drawn.shape == (30, 4, 2) and found.drawn.std(0).max() < 0.5


def test_newick_has_the_support_of_every_edge():
    factors = SPACES["h2"]
    place, groups = cloud(grown(STAR, factors), factors)
    found = find_lineage(at(place, factors), groups, "n0", draws=scattered(place))
    text = found.newick()
    assert text.count("[1]") == 6 and text.endswith("n0;")
    read = parse_newick(text)
    again = dict(zip(read.names.tolist(), read.height, strict=True))
    for name, height in zip(found.tree.names.tolist(), found.tree.height, strict=True):
        assert again[name] == pytest.approx(height, rel=1e-8)
    stored = found.to_json()
    assert stored["root"] == "n0" and len(stored["edges"]) == 6 and stored["edges"][0]["parent"] == "n0"


def test_lineages_of_two_trainings_are_pooled():
    """By hand: two trees of groups without spread, of which the second is three times as large and has c at the root;
    and a row e that is on the way to z in the first, and on that to c in the second."""
    first = np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [2.0, -2.0], [1.0, 0.0]]).repeat([5, 5, 5, 5, 1], 0)
    second = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 12.0], [6.0, -6.0], [0.0, 6.0]]).repeat([5, 5, 5, 5, 1], 0)
    groups, found = np.array([*"azcd", ""]).repeat([5, 5, 5, 5, 1]), []
    shifts = np.linspace(-0.4, 0.4, 20)
    for place, way in ((first, [1.0, 0.0]), (second, [0.0, 5.0])):
        draws = np.repeat(place[None], 20, 0)
        draws[:, -1] += shifts[:, None] * way
        found.append(find_lineage(at(place, SPACES["e2"]), groups, "a", draws=draws))
    assert pool_lineages(found[:1]) is found[0]
    pooled = pool_lineages(found)
    scale = (5 * (2 * 6 + 2 * 4 * 12) + 1 * 6) / (5 * (6 * 6 + 2 * 12 * 12) + 6 * 6)
    times = (np.array([0, 2, 4, 4]).repeat(5) + scale * np.array([0, 6, 12, 12]).repeat(5)) / 2
    np.testing.assert_allclose(pooled.pseudotime, [*times, (1 + scale * 6) / 2], atol=1e-5)
    low, high = np.quantile([*(1 + shifts), *(scale * (6 + 5 * shifts))], [0.05, 0.95], method="weibull")
    assert (pooled.low[-1], pooled.high[-1]) == pytest.approx((low, high), abs=1e-5)
    assert (pooled.low <= pooled.pseudotime).all() and (pooled.pseudotime <= pooled.high).all()
    # Of the first tree only the edge from z to c is lacking in the second, whose nodes have another order.
    names = pooled.tree.names.tolist()
    assert names != found[1].tree.names.tolist()
    assert pooled.newick().replace("[0.5]", "[1]") == found[0].newick()
    assert dict(zip(names, pooled.support.tolist(), strict=True)) == {"a": 1.0, "z": 1.0, "c": 0.5, "d": 1.0}
    on = dict(zip(pooled.branches, pooled.probability[-1].tolist(), strict=True))
    assert on == {"a": 0.0, "z": 0.5, "c": 0.5, "d": 0.0}
    # Rows at d: the second tree has no fork at z, and d is a node of that branch.
    assert pooled.branches[pooled.branch[19]] == "d" and pooled.probability[19].max() == 1.0
    # The same twice is the same.
    twice = pool_lineages([found[1], found[1]])
    assert (twice.support == found[1].support).all() and (twice.probability == found[1].probability).all()
    np.testing.assert_allclose(twice.pseudotime, found[1].pseudotime, rtol=1e-12)


@pytest.mark.parametrize(
    ("groups", "more", "message"),
    [
        (["a"] * 20, {}, "`groups` must name at least two groups of rows to join, got 'a'"),
        (["a"] * 16 + ["b"] * 4, {}, "`groups` has fewer than 5 rows in 'b'; join or leave out such groups"),
        (["a"] * 10 + ["b"] * 10, {"root": "x"}, "`root` is no group, 'x'; groups are 'a', 'b'"),
        (["a"] * 10 + ["b"] * 10, {"few": 5}, "`draws` must be at least 19 for a 90 % interval, got 5"),
    ],
)
def test_what_is_wrong_is_said(groups, more, message):
    place = np.random.default_rng(0).normal(size=(20, 2))
    draws = scattered(place, more.pop("few", 19))
    with pytest.raises(CurvaeError, match=f"^{message}"):
        find_lineage(at(place, SPACES["h2"]), groups, draws=draws, **more)
