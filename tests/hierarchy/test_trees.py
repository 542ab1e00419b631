"""Known trees: reading and writing them, and trees that are read off an embedding, against networkx."""

from __future__ import annotations

import gzip
from itertools import combinations, pairwise, product

import networkx as nx
import numpy as np
import pytest
import torch
from scipy.cluster.hierarchy import linkage
from scipy.optimize import minimize_scalar
from scipy.stats import spearmanr

from curvae import CurvaeError, PoincareBall
from curvae.data import load_graph
from curvae.hierarchy import (
    Embedded,
    NamedTree,
    match_rows,
    neighbourhood_map,
    parse_newick,
    read_tree,
    recover,
    tree_of_embedding,
    tree_of_pairs,
    trees,
)
from curvae.hierarchy.trees import dendrogram_purity, distortion, joined
from curvae.plotting import regular_tree


def random_tree(size, seed=0):
    """A tree of named nodes with edges of random lengths, in no order."""
    random = np.random.default_rng(seed)
    names = random.permutation([f"n{i}" for i in range(size)])
    parents = [""] + [names[random.integers(i)] for i in range(1, size)]
    order = random.permutation(size)
    return tree_of_pairs(names[order], np.array(parents)[order], random.exponential(size=size))


def as_networkx(tree):
    graph = nx.Graph()
    graph.add_node(0)
    graph.add_weighted_edges_from((int(p), c, tree.length[c]) for c, p in enumerate(tree.parent) if p >= 0)
    return graph


def edges(tree):
    """Pairs of names."""
    return {(str(tree.names[c]), str(tree.names[p])) for c, p in enumerate(tree.parent) if p >= 0}


# --- trees ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3, 40, 200])
def test_distances_ancestors_and_depth_against_networkx(size):
    tree = random_tree(size, seed=size)
    graph = as_networkx(tree)
    assert all(parent < child for child, parent in enumerate(tree.parent))
    expected = nx.floyd_warshall_numpy(graph, nodelist=range(size))
    i, j = np.array(list(product(range(size), repeat=2))).T
    np.testing.assert_allclose(tree.distances(i, j), expected[i, j], atol=1e-9)
    directed = nx.DiGraph([(int(p), c) for c, p in enumerate(tree.parent) if p >= 0])
    pairs = list(combinations(range(min(size, 25)), 2))
    found = dict(zip(pairs, tree.common_ancestors(*np.array(pairs).T).tolist(), strict=True))
    assert found == dict(nx.all_pairs_lowest_common_ancestor(directed, pairs))
    np.testing.assert_array_equal(tree.depth, [nx.shortest_path_length(graph, 0, k) for k in range(size)])
    np.testing.assert_allclose(tree.height, expected[0])
    for node in range(0, size, 7):
        way = nx.shortest_path(graph, 0, node)
        for level in range(len(way) + 2):
            assert tree.ancestors(np.array([node]), level)[0] == way[min(level, len(way) - 1)]


@pytest.mark.parametrize("seed", range(3))
def test_newick_goes_round(seed):
    tree = random_tree(60, seed)
    again = parse_newick(tree.newick())
    assert edges(again) == edges(tree)
    place = {name: k for k, name in enumerate(again.names.tolist())}
    order = np.array([place[name] for name in tree.names.tolist()])
    np.testing.assert_allclose(again.height[order], tree.height, rtol=1e-8)


def test_newick_in_all_its_forms():
    tree = parse_newick(" [a comment] ( 'two words':1e-1, 'it''s':2[&x=1] ,(c , d:3)0.95:4)root ;\n")
    names = tree.names.tolist()
    assert sorted(name for name in names if name) == ["c", "d", "it's", "root", "two words"]
    assert dict(zip(names, tree.height.tolist(), strict=True)) == {
        "root": 0,
        "two words": 0.1,
        "it's": 2,
        "": 4,
        "c": 5,
        "d": 7,
    }
    assert parse_newick(tree.newick()).names.tolist() == names
    assert parse_newick("a;").names.tolist() == ["a"]
    deep = "(" * 5000 + "x" + ")" * 5000 + ";"
    assert parse_newick(deep).depth.max() == 5000 and parse_newick(deep).newick().count("(") == 5000


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("((a,b);", "not closed"),
        ("(a,b)),c;", "too many"),
        ("(a,b),c;", "comma outside"),
        ("(a:x,b);", "colon without a length"),
        ("(a,b);(c,d);", "goes on after its end"),
        (";", "no nodes"),
        ("(a,a);", "several nodes called 'a'"),
        ("(a:-1,b);", "negative"),
    ],
)
def test_newick_that_is_none(text, says):
    with pytest.raises(CurvaeError, match=says):
        parse_newick(text)


def test_pairs_of_child_and_parent():
    tree = tree_of_pairs(["b", "c", "d"], ["a", "a", "b"])
    assert edges(tree) == {("b", "a"), ("c", "a"), ("d", "b")} and tree.names[0] == "a"
    assert edges(tree_of_pairs(["a", "b"], ["", "a"])) == {("b", "a")}
    forest = tree_of_pairs(["b", "d"], ["a", "c"], np.array([2.0, 3.0]))
    assert edges(forest) == {("a", ""), ("c", ""), ("b", "a"), ("d", "c")}
    assert forest.distances(*(np.flatnonzero(forest.names == n) for n in "bd")) == 2 + 1 + 1 + 3
    for children, parents, says in (
        ("ab", "ba", "circle of parents: 'a', 'b'"),
        ("aa", "bc", "'a' more than one parent"),
        (["", "b"], ["a", "a"], "line without a child"),
    ):
        with pytest.raises(CurvaeError, match=says):
            tree_of_pairs(list(children), list(parents))


def test_trees_from_files(tmp_path):
    expected = {("b", "a"), ("c", "a")}
    (tmp_path / "t.nwk").write_text("(b,c)a;\n")
    (tmp_path / "t.tsv").write_text("child\tparent\tlength\nb\ta\t2\nc\ta\t\na\t\t\n")
    with gzip.open(tmp_path / "t.csv.gz", "wt") as file:
        file.write("parent,child\na,b\na,c\n")
    found = {name: read_tree(tmp_path / name) for name in ("t.nwk", "t.tsv", "t.csv.gz")}
    assert all(edges(tree) == expected for tree in found.values())
    assert found["t.tsv"].height.tolist() == [0, 2, 1]
    (tmp_path / "numbers.csv").write_text("child,parent\n1,0\n2,0\n")
    assert read_tree(tmp_path / "numbers.csv").names.tolist() == ["0", "1", "2"]
    (tmp_path / "other.csv").write_text("name,above\nb,a\nc,a\n")
    (tmp_path / "empty.nwk").write_text("")
    (tmp_path / "empty.csv").write_text("child,parent,length\nb,a,\nc,a,\n")
    assert read_tree(tmp_path / "empty.csv").height.tolist() == [0, 1, 1]
    for name, cell in (("text", "x"), ("true", "TRUE"), ("negative", "-1"), ("endless", "inf")):
        (tmp_path / f"{name}.csv").write_text(f"child,parent,length\nb,a,2\n\nc,a,{cell}\n")
    (tmp_path / "truth.nex").write_text("#NEXUS\nbegin trees;\ntree a=(n1,n2);\nend;\n")
    for name, says in (
        ("text.csv", "text.csv: line 4 gives 'c' the length 'x'; write a number"),
        ("true.csv", "line 4 gives 'c' the length 'TRUE'"),
        ("negative.csv", "line 4 gives 'c' the length '-1"),
        ("endless.csv", "line 4 gives 'c' the length 'inf'"),
        ("truth.nex", "truth.nex has no column 'child', 'parent'; give a table .* Newick format, which begins"),
        ("other.csv", "no column 'child', 'parent'"),
        ("empty.nwk", "is empty"),
        ("no.nwk", "cannot be read"),
    ):
        with pytest.raises(CurvaeError, match=says):
            read_tree(tmp_path / name)


def embedded_tree(branching=3, levels=4, c=1.0):
    """The regular tree in the disc, as tree and points."""
    places, pairs = regular_tree(branching, levels)
    parent = np.full(len(places), -1)
    for a, b in pairs:
        parent[b] = a
    names = np.array([f"v{k}" for k in range(len(places))])
    tree = NamedTree.ordered(names, parent, np.ones(len(places)))
    order = np.array([int(name[1:]) for name in tree.names])
    return tree, Embedded(np.asarray(places, dtype=np.float64)[order] / c**0.5, c)


# --- a tree read off --------------------------------------------------------------------------------------------------


def branches(tree):
    """Sets of leaves below each inner node."""
    below = [{str(name)} if name else set() for name in tree.names]
    for node in range(len(tree) - 1, 0, -1):
        below[tree.parent[node]] |= below[node]
    return {frozenset(part) for part in below if len(part) > 1}


def test_a_tree_is_read_off_its_embedding():
    tree, points = embedded_tree(3, 5)
    leaves = np.flatnonzero(tree.depth == tree.depth.max())
    names = tree.names[leaves]
    found = tree_of_embedding(points.take(leaves), names)
    assert (found.length >= 0).all() and sorted(n for n in found.names if n) == sorted(names)
    expected = {
        frozenset(tree.names[leaves[tree.ancestors(leaves, level) == a]].tolist())
        for level in range(tree.depth.max())
        for a in np.unique(tree.ancestors(leaves, level))
    }
    assert expected <= branches(found)
    # Leaves lie as deep as their radius.
    place = {str(name): k for k, name in enumerate(found.names)}
    depth = found.height[[place[str(name)] for name in names]]
    np.testing.assert_allclose(depth, points.radius[leaves] - (points.radius[leaves] - depth).mean(), atol=0.2)
    assert parse_newick(found.newick()).names.tolist() == found.names.tolist()


def test_joints_lie_at_the_mean_depth_of_their_pairs():
    points = Embedded(PoincareBall(3, 0.5).random(9, scale=2.0, dtype=torch.float64).numpy(), 0.5)
    merges, depth = joined(points)
    i, j = np.array(list(product(range(9), repeat=2))).T
    product_at_origin = ((points.radius[i] + points.radius[j] - points.pairs(i, j)) / 2).reshape(9, 9)
    held = [{k} for k in range(9)]
    for (left, right, *_), own in zip(merges, depth, strict=True):
        a, b = held[int(left)], held[int(right)]
        assert own == pytest.approx(np.mean([product_at_origin[x, y] for x in a for y in b]))
        held.append(a | b)
    assert all(first >= second - 1e-12 for first, second in pairwise(depth))


def test_more_points_than_are_joined_hang_beside_the_nearest():
    points = Embedded(PoincareBall(2, 1.0).random(60, scale=2.0, dtype=torch.float64).numpy(), 1.0)
    names = np.array([f"p{k}" for k in range(60)])
    found = tree_of_embedding(points, names, most=20)
    assert sorted(name for name in found.names if name) == sorted(names)
    chosen = np.sort(np.random.default_rng(0).permutation(60)[:20])
    place = {str(name): k for k, name in enumerate(found.names)}
    for row in set(range(60)) - set(chosen.tolist()):
        gap = points.pairs(np.full(20, row), chosen)
        host = chosen[gap.argmin()]
        here, there = place[f"p{row}"], place[f"p{host}"]
        assert found.parent[here] == found.parent[there]
        assert found.distances(np.array([here]), np.array([there]))[0] == pytest.approx(gap.min())
    with pytest.raises(CurvaeError, match="at least two points"):
        tree_of_embedding(points.take(np.array([0])), names[:1])


# --- recovery of a known tree ----------------------------------------------------------------------------------------


# --- figures ----------------------------------------------------------------------------------------------------------


def test_distortion_against_a_search():
    random = np.random.default_rng(0)
    for _ in range(20):
        truth, latent = random.exponential(size=(2, 9)) + 0.1
        average, worst = distortion(truth, latent)
        search = minimize_scalar(
            lambda scale, r=latent / truth: np.abs(scale * r - 1).mean(),
            bounds=(0, 100),
            method="bounded",
            options={"xatol": 1e-10},
        )
        assert average == pytest.approx(search.fun, rel=1e-4) and average <= search.fun + 1e-12
        ratios = latent / truth
        assert worst == pytest.approx(max(a / b for a in ratios for b in ratios))
        assert distortion(truth, 7 * truth) == (pytest.approx(0, abs=1e-12), pytest.approx(1))
    assert distortion(np.ones(3), np.array([0.0, 1.0, 1.0]))[1] == np.inf


def test_purity_against_brute_force():
    random = np.random.default_rng(1)
    for size in (2, 6, 25):
        merges = linkage(random.normal(size=(size, 2)), "average")
        classes = random.integers(3, size=size)
        held = [{k} for k in range(size)]
        for left, right, *_ in merges:
            held.append(held[int(left)] | held[int(right)])
        found = []
        for i, j in combinations(range(size), 2):
            if classes[i] == classes[j]:
                branch = min((h for h in held if {i, j} <= h), key=len)
                found.append(np.mean([classes[k] == classes[i] for k in branch]))
        expected = np.mean(found) if found else np.nan
        assert dendrogram_purity(merges, classes) == pytest.approx(expected, nan_ok=True)
    assert dendrogram_purity(linkage(np.eye(4)), np.zeros(4)) == 1
    assert np.isnan(dendrogram_purity(linkage(np.eye(4)), np.arange(4)))


def test_a_faithful_embedding_recovers_the_tree():
    tree, points = embedded_tree()
    node = np.arange(len(tree))
    found = recover(tree, node, points)
    assert found.rows == len(tree) and found.pairs == len(tree) * (len(tree) - 1) // 2
    assert found.mean_average_precision == 1 and found.depth_correlation > 0.9 and found.distance_correlation > 0.9
    assert found.purity > 0.9 and found.distortion < 0.2 and found.worst_distortion < 5
    # The scale of the space says nothing.
    _, other = embedded_tree(c=0.25)
    again = recover(tree, node, other)
    assert again.distortion == pytest.approx(found.distortion) and again.purity == pytest.approx(found.purity)
    # Points dealt anew lose it.
    worse = recover(tree, np.random.default_rng(0).permutation(node), points)
    assert worse.mean_average_precision < 0.3 and worse.distance_correlation < 0.3 and worse.purity < 0.5


def test_figures_are_what_they_say():
    tree, points = embedded_tree(3, 3)
    size = len(tree)
    jitter = np.random.default_rng(0).normal(size=points.ball.shape)
    points = Embedded(points.ball * 0.7 + 0.01 * jitter, 1.0)  # without ties
    found = recover(tree, np.arange(size), points)
    i, j = np.triu_indices(size, 1)
    ball = torch.from_numpy(points.ball)
    latent = PoincareBall(2, 1.0).dist(ball[i], ball[j]).numpy()
    np.testing.assert_allclose(points.pairs(i, j), latent, rtol=1e-10)
    truth = tree.distances(i, j)
    assert found.distance_correlation == pytest.approx(spearmanr(truth, latent).statistic)
    assert (found.distortion, found.worst_distortion) == pytest.approx(distortion(truth, latent))
    assert found.depth_correlation == pytest.approx(spearmanr(tree.height, PoincareBall(2, 1.0).dist0(ball)).statistic)
    table = np.zeros((size, size))
    table[i, j] = table[j, i] = latent
    pairs = sorted((int(p), c) for c, p in enumerate(tree.parent) if p >= 0)
    graph = load_graph(nx.Graph(pairs))
    order = graph.names.astype(int)
    assert found.mean_average_precision == pytest.approx(neighbourhood_map(graph, table[np.ix_(order, order)]))


def test_rows_of_one_node_and_large_embeddings(monkeypatch):
    tree, points = embedded_tree(3, 3)
    node = np.repeat(np.arange(len(tree)), 3)
    jitter = np.random.default_rng(0).normal(size=(len(node), 2))
    many = Embedded(points.ball[node] + 1e-4 * jitter, 1.0)
    found = recover(tree, node, many)
    assert found.mean_average_precision == 1  # rows of the same node come first
    assert np.isfinite(found.worst_distortion)
    for name, value in (("_PAIRS", 400), ("_QUERIES", 10), ("_JOINED", 30)):
        monkeypatch.setattr(trees, name, value)
    less = recover(tree, node, many, seed=1)
    assert (less.pairs, less.queries, less.joined) == (400, 10, 30)
    assert less.distance_correlation == pytest.approx(found.distance_correlation, abs=0.1)
    assert less.to_json()["purity_by_level"] == list(less.purity_by_level)
    level = np.flatnonzero(tree.depth == 2)
    assert np.isnan(recover(tree, level, points.take(level)).depth_correlation)
    with pytest.raises(CurvaeError, match="at least three nodes"):
        recover(tree, np.zeros(5, dtype=int), points.take(np.arange(5)))


def test_matching_counts_both_sides():
    tree = parse_newick("((a,b)x,(c,d)y);")
    ids = np.array(["r1", "r2", "r3", "a"])
    labels = np.array(["b", "c", "", "zzz"])
    by_label = match_rows(tree, ids, labels)
    assert by_label.by == "label" and tree.names[by_label.node[:2]].tolist() == ["b", "c"]
    assert by_label.to_json() == {"by": "label", "rows": 2, "unmatched_rows": 2, "unmatched_names": 4, "notes": []}
    by_id = match_rows(tree, ids)
    assert by_id.by == "id" and by_id.rows.tolist() == [3] and by_id.unused == 5
    assert "3 rows and 5 named nodes" in by_id.sentence
    with pytest.raises(CurvaeError, match="no row has the name of a node: rows are called 'q'"):
        match_rows(tree, np.array(["q"]))


def test_embedded_points_in_flat_space():
    flat = Embedded(np.array([[0.0, 0.0], [1.5, 2.0]]), 0.0)
    assert flat.pairs(np.array([0]), np.array([1])) == pytest.approx([5.0])  # the ball at c = 0 has the metric 4|dz|²
    assert flat.radius == pytest.approx([0, 5])
    with pytest.raises(ValueError, match="not in PoincareBall"):
        Embedded(np.array([[1.0, 1.0], [0.0, 0.0]]), 1.0).pairs(np.array([0]), np.array([1]))
