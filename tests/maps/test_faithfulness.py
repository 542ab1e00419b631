"""How faithful is a map: every figure against its definition, computed slowly or by another library."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import networkx
import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.spatial.distance import cdist, pdist
from scipy.stats import spearmanr
from sklearn.datasets import make_blobs
from sklearn.decomposition import PCA
from sklearn.manifold import trustworthiness
from sklearn.neighbors import KNeighborsClassifier

from curvae import Lorentz, PoincareBall
from curvae.data import Graph
from curvae.errors import CurvaeError
from curvae.geometry.pairs import distance_table
from curvae.hierarchy import (
    Faithfulness,
    Figures,
    GraphFaithfulness,
    GraphFigures,
    Rows,
    faithfulness,
    graph_faithfulness,
)
from curvae.maps.embedding import PlacedFactor
from curvae.maps.faithfulness import Agreement, compare_kept, label_accuracy, neighbour_ranks, places_of
from curvae.maps.statistics import euclidean, graph_of_table
from curvae.training import Embedding


def blobs(rows: int = 60, columns: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    x, y = make_blobs(rows, columns, centers=4, cluster_std=2.0, random_state=seed)
    return x, np.array(["a", "b", "c", "d"])[y]


def by_definition(data: np.ndarray, placed: np.ndarray) -> tuple[float, float]:
    """Qlocal and Qglobal from the co-ranking matrix, entry by entry, for rows among themselves."""
    n = len(data)
    matrix = np.zeros((n - 1, n - 1))
    for i in range(n):
        others = [j for j in range(n) if j != i]
        for j in others:
            rank = [sum(table[i, k] < table[i, j] for k in others) for table in (data, placed)]
            matrix[rank[0], rank[1]] += 1
    shares = np.array([matrix[:k, :k].sum() / (k * n) for k in range(1, n)])
    best = int(np.argmax(shares - np.arange(1, n) / (n - 1))) + 1
    return shares[:best].mean(), shares[best:].mean()


def paths(distances: np.ndarray, k: int = 20) -> np.ndarray:
    """Path lengths in the graph of nearest neighbours, whose components Kruskal's algorithm joins."""
    n = len(distances)
    graph = networkx.Graph()
    graph.add_nodes_from(range(n))
    for i in range(n):
        for j in [j for j in np.argsort(distances[i]) if j != i][:k]:
            graph.add_edge(i, int(j), weight=distances[i, j])
    bridges = sorted((distances[i, j], i, j) for i in range(n) for j in range(i))
    for length, i, j in bridges:
        if not networkx.has_path(graph, i, j):
            graph.add_edge(i, j, weight=length)
    found = dict(networkx.all_pairs_dijkstra_path_length(graph))
    return np.array([[found[i][j] for j in range(n)] for i in range(n)])


def test_co_ranking() -> None:
    x, _ = blobs(30)
    z = PCA(2).fit_transform(x) + np.random.default_rng(0).normal(size=(30, 2))
    found = faithfulness(x, z).map
    np.testing.assert_allclose([found.qlocal, found.qglobal], by_definition(cdist(x, x), cdist(z, z)), rtol=1e-12)
    lengths = by_definition(paths(cdist(x, x)), cdist(z, z))
    np.testing.assert_allclose([found.qlocal_paths, found.qglobal_paths], lengths, rtol=1e-12)


@pytest.mark.parametrize("k", [2, 4])
def test_neighbour_graph_in_pieces(k: int) -> None:
    x = np.concatenate([np.random.default_rng(i).normal(size=(7 + i, 2)) + 40 * np.eye(5)[i, :2] * i for i in range(4)])
    d = cdist(x, x)
    graph = networkx.from_scipy_sparse_array(graph_of_table(d, k))
    assert networkx.is_connected(graph)
    found = dict(networkx.all_pairs_dijkstra_path_length(graph))
    lengths = np.array([[found[i][j] for j in range(len(x))] for i in range(len(x))])
    np.testing.assert_allclose(lengths, paths(d, k), rtol=1e-12)


def test_rows_in_one_place_are_linked() -> None:
    graph = graph_of_table(np.zeros((6, 6)), 2)
    assert networkx.is_connected(networkx.from_scipy_sparse_array(graph))


def test_trustworthiness_and_continuity() -> None:
    x, _ = blobs(80)
    z = x[:, :2] ** 3
    found = faithfulness(x, z).map
    np.testing.assert_allclose(found.trustworthiness, trustworthiness(x, z, n_neighbors=15), rtol=1e-12)
    np.testing.assert_allclose(found.continuity, trustworthiness(z, x, n_neighbors=15), rtol=1e-12)
    np.testing.assert_allclose(found.rank_correlation, spearmanr(pdist(x), pdist(z)).statistic, rtol=1e-12)


def test_pca_is_the_criterion() -> None:
    x, labels = blobs(70)
    held = np.arange(0, 70, 7)
    train = np.setdiff1d(np.arange(70), held)
    found = faithfulness(x, x[:, :2], labels=labels, held_out=held)
    linear = faithfulness(x, PCA(2).fit(x[train]).transform(x), labels=labels, held_out=held)
    assert found.pca == linear.map == linear.pca
    assert found.pca_held_out == linear.held_out
    assert faithfulness(x, x[:, :2]).pca != found.pca


def test_labels_of_held_out_rows() -> None:
    x, labels = blobs(90)
    held = np.arange(90) % 9 == 0
    z = x[:, :2]
    found = faithfulness(x, z, labels=labels, held_out=held).held_out
    assert found is not None and found.rows == 10
    told = KNeighborsClassifier(5, metric="precomputed").fit(cdist(z[~held], z[~held]), labels[~held])
    predicted = told.predict(cdist(z[held], z[~held]))
    near = labels[~held][np.argsort(cdist(z[held], z[~held]), axis=1)[:, :5]]
    clear = np.array([sorted(np.unique(row, return_counts=True)[1])[::-1][:2] != [2, 2] for row in near])
    assert clear.all()  # elsewhere sklearn chooses by the alphabet
    assert found.accuracy == (predicted == labels[held]).mean()


def test_held_out_rows_are_looked_up_among_the_others() -> None:
    x, _ = blobs(60)
    z = x[:, :3] + np.random.default_rng(1).normal(size=(60, 3))
    held = np.arange(5)
    found = faithfulness(x, z, held_out=held).held_out
    assert found is not None
    data, placed = cdist(x[:5], x[5:]), cdist(z[:5], z[5:])
    ranks = [np.argsort(np.argsort(table, axis=1), axis=1) + 1 for table in (data, placed)]
    shares = np.array([((ranks[0] <= k) & (ranks[1] <= k)).sum(1).mean() / k for k in range(1, 56)])
    best = int(np.argmax(shares - np.arange(1, 56) / 55)) + 1
    np.testing.assert_allclose([found.qlocal, found.qglobal], [shares[:best].mean(), shares[best:].mean()])
    np.testing.assert_allclose(found.rank_correlation, spearmanr(data.ravel(), placed.ravel()).statistic)
    lost = sum(max(0, ranks[1][i, j] - 15) for i in range(5) for j in range(55) if ranks[0][i, j] <= 15)
    np.testing.assert_allclose(found.continuity, 1 - 2 * lost / (5 * 15 * (2 * 56 - 3 * 15 - 1)))


def test_cross_validation() -> None:
    x, labels = blobs(200)
    found = faithfulness(x, x, labels=labels).map.accuracy
    assert found is not None and abs(found - 0.9) < 0.1
    shuffled = np.random.default_rng(0).permutation(labels)
    chance = faithfulness(x, x, labels=shuffled).map.accuracy
    assert chance is not None and abs(chance - 0.25) < 0.1


def test_rows_without_a_label_take_no_part() -> None:
    x, labels = blobs(100)
    some = np.where(np.arange(100) < 50, labels, "")
    found = faithfulness(x, x, labels=some, held_out=np.arange(50, 100))
    assert found.held_out is not None and found.held_out.accuracy is None
    assert found.map.accuracy is not None
    assert faithfulness(x, x, labels=np.full(100, "a")).map.accuracy is None


def test_rows_without_a_label_do_not_vote() -> None:
    x, labels = blobs(120)
    held, silent = np.arange(120) % 10 == 0, np.arange(120) % 3 == 1
    given = np.where(silent, "", labels)
    found = faithfulness(x, x, labels=given, held_out=held).held_out
    voters, asked = ~held & ~silent, held & ~silent
    told = KNeighborsClassifier(5).fit(x[voters], labels[voters]).predict(x[asked])
    assert found is not None and found.accuracy == (told == labels[asked]).mean() > 0.8


def rotated(x: np.ndarray) -> np.ndarray:
    return x @ np.linalg.qr(np.random.default_rng(3).normal(size=(x.shape[1],) * 2))[0]


def close(a: object, b: object) -> None:
    for name in ("qlocal", "qglobal", "qlocal_paths", "qglobal_paths", "trustworthiness", "rank_correlation"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-9)


def test_the_data_itself_is_a_perfect_map() -> None:
    x, _ = blobs(60, 40)  # so many columns that distances come from inner products
    found = faithfulness(x, 5 * rotated(x) + 3)
    assert found.map.qlocal == found.map.qglobal == found.map.trustworthiness == found.map.continuity == 1
    np.testing.assert_allclose(found.map.rank_correlation, 1)
    assert not found.behind


def test_groups_are_judged_by_themselves() -> None:
    """Figures are those of each group alone, by their sizes; groups of fewer than ten rows are not judged."""
    x, draw = blobs()[0], np.random.default_rng(1)
    places, group = x[:, :2] + draw.normal(size=(60, 2)), np.repeat(["a", "b", "c"], [32, 24, 4])
    moved = x + 100.0 * (group == "b")[:, None]
    found = faithfulness(moved, places, groups=group)
    each = [faithfulness(x[group == name], places[group == name]) for name in "ab"]
    assert (found.map.rows, found.map.intervals) == (56, {})
    for name in ("qlocal", "qglobal", "qlocal_paths", "trustworthiness", "rank_correlation"):
        for which in ("map", "pca"):
            a, b = (getattr(getattr(one, which), name) for one in each)
            assert getattr(getattr(found, which), name) == pytest.approx((32 * a + 24 * b) / 56, abs=1e-12)


def test_isometries_of_the_map_change_nothing() -> None:
    x, _ = blobs(50)
    z = 0.3 * x[:, :2] / np.abs(x[:, :2]).max()
    flat = faithfulness(x, z)
    close(flat.map, faithfulness(x, 0.1 * rotated(z) - 7).map)
    ball = PoincareBall(2)
    away = ball.mobius_add(torch.tensor([0.3, -0.5], dtype=torch.float64), torch.from_numpy(z)).numpy()
    curved = faithfulness(x, z, distance="poincare")
    close(curved.map, faithfulness(x, away, distance="poincare").map)
    assert curved.map != flat.map


def test_charts_of_one_space_agree() -> None:
    x, labels = blobs(50)
    z = 0.9 * x[:, :2] / np.linalg.norm(x[:, :2], axis=1).max()
    space = PoincareBall(2).to_lorentz(torch.from_numpy(z)).numpy()
    time = np.sqrt(1 + (space**2).sum(1, keepdims=True))

    def measured(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        gap = ((a[:, None] - b) ** 2).sum(2)
        return np.arccosh(1 + 2 * gap / np.outer(1 - (a**2).sum(1), 1 - (b**2).sum(1)))

    maps = [
        faithfulness(x, z, distance="poincare", labels=labels),
        faithfulness(x, z, distance=measured, labels=labels),
        faithfulness(x, space, distance="lorentz", labels=labels),
        faithfulness(x, np.concatenate([time, space], 1), distance="lorentz", labels=labels),
        faithfulness(x, Embedding(space, np.ones(50), 1.0), labels=labels),
    ]
    for other in maps[1:]:
        close(maps[0].map, other.map)
        assert maps[0].map.accuracy == other.map.accuracy


def test_products_have_their_own_distances() -> None:
    x, _ = blobs(40)
    factors = (PlacedFactor("h1", 2, 1.0, 2.0), PlacedFactor("e2", 1, 0.0, 0.5))
    embedding = Embedding(x[:, :3], np.ones((40, 2)), factors)
    table = embedding.distances()
    places = places_of(embedding)
    np.testing.assert_array_equal(places.table(np.arange(3), np.arange(40)), table[:3])
    curved = Lorentz(2, 1.0).dist(torch.from_numpy(x[:3, None, :2]), torch.from_numpy(x[:, :2])).numpy()
    expected = np.sqrt((curved / 2) ** 2 + (np.abs(x[:3, None, 2] - x[:, 2]) / 0.5) ** 2)
    np.testing.assert_allclose(table[:3], expected, rtol=1e-12)


@pytest.mark.parametrize("c", [0.0, 1e-3, 1.0, 5.0])
@pytest.mark.parametrize("length", [1e-6, 1.0, 30.0])
def test_distance_table(c: float, length: float) -> None:
    manifold = Lorentz(3, c)
    points = manifold.expmap0(length * torch.from_numpy(np.random.default_rng(0).normal(size=(40, 3))))
    found = distance_table(points, points[:7], torch.tensor(c, dtype=torch.float64))
    torch.testing.assert_close(found, manifold.dist(points.unsqueeze(1), points[:7]), rtol=1e-12, atol=0)


def test_a_random_map_keeps_what_chance_keeps() -> None:
    rng = np.random.default_rng(0)
    size = 400
    agreement = Agreement(size - 1, 15)
    x, z = rng.normal(size=(size, 8)), rng.normal(size=(size, 2))
    ranks = [neighbour_ranks(cdist(a, a), np.arange(size)) for a in (x, z)]
    agreement.add(*ranks)
    shares = agreement.shares
    chance = np.arange(1, size) / (size - 1)
    assert np.abs(shares - chance)[10:].max() < 0.02
    assert abs(agreement.trust[0] - 0.5) < 0.05
    found = faithfulness(x, z)
    assert found.behind == ("near", "far")
    assert found.verdict.startswith("The map keeps fewer near neighbours than PCA in 2 dimensions (")
    assert " and fewer far ones (" in found.verdict


def _kept(near: Sequence[float], far: Sequence[float]) -> Figures:
    """Figures of a map that keeps these shares in groups of equal size."""
    each = np.stack([near, far], 1)
    return Figures(*each.mean(0), 0.5, 0.5, 0.5, 0.5, 0.5, None, 50, kept_by_group=each)


def test_a_difference_within_its_interval_is_none() -> None:
    linear = _kept([0.53] * 5, [0.8] * 5)
    noisy = _kept([0.41, 0.61, 0.45, 0.57, 0.51], [0.805] * 5)
    assert compare_kept(noisy, linear) == {"near": 0, "far": 0}  # 51 % against 53 %, and a difference of half a point
    found = Faithfulness(noisy, linear, None, None, 2, 50)
    assert found.behind == ()
    assert found.verdict == (
        "The map keeps as many near neighbours as PCA in 2 dimensions (51 % against 53 %, a difference within its "
        "interval of ± 10) and as many far ones (80 % against 80 %)."
    )
    sure = _kept([0.511, 0.509, 0.510, 0.512, 0.508], [0.83, 0.82, 0.84, 0.83, 0.83])
    assert compare_kept(sure, linear) == {"near": -1, "far": 1}


def test_groups_of_rows_make_up_all_rows() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 5))
    ranks = [neighbour_ranks(cdist(a, a), np.arange(50)) for a in (x, x[:, :2])]
    agreement = Agreement(49, 15)
    for part in (slice(0, 17), slice(17, 50)):
        agreement.add(*(one[part] for one in ranks))
    np.testing.assert_allclose(agreement.kept_by_group.mean(0), agreement.kept, rtol=1e-12)
    alone = Agreement(49, 15)
    alone.add(*(one[3::10] for one in ranks))
    shares = alone.shares
    expected = shares[: agreement.k_max].mean(), shares[agreement.k_max :].mean()
    np.testing.assert_allclose(agreement.kept_by_group[3], expected, rtol=1e-12)


def test_a_map_of_one_point_keeps_what_chance_keeps() -> None:
    x = np.sort(np.random.default_rng(0).normal(size=(300, 1)), axis=0)  # in the order of the rows
    found = faithfulness(x, np.zeros((300, 2))).map
    assert abs(found.trustworthiness - 0.5) < 0.06
    assert found.rank_correlation == 0
    assert found.score < 0.6


def test_inner_products_give_distances() -> None:
    x = np.random.default_rng(0).normal(size=(30, 50))
    x[7] = x[3]
    found = euclidean(x, x)
    np.testing.assert_allclose(found, cdist(x, x), rtol=1e-9, atol=1e-12)
    assert found[3, 7] == 0 and not np.diag(found).any()


def test_more_rows_are_sampled() -> None:
    x, labels = blobs(400)
    whole = faithfulness(x, x[:, :2], labels=labels, held_out=np.arange(80))
    some = faithfulness(x, x[:, :2], labels=labels, held_out=np.arange(80), rows=399)
    assert whole.subset is None and not whole.map.intervals
    assert some.subset == 159 and some.rows == 400 and some.map.rows == 5 * 159
    assert some.held_out is not None and 0 < some.held_out.rows < 5 * 80
    for name in ("qlocal", "qglobal", "rank_correlation", "accuracy"):
        assert abs(getattr(whole.map, name) - getattr(some.map, name)) < 0.06
        assert 0 < some.map.intervals[name] < 0.1
    assert some == faithfulness(x, x[:, :2], labels=labels, held_out=np.arange(80), rows=399)


def test_sparse_and_scaled_rows() -> None:
    x, _ = blobs(40)
    x[x < 0] = 0
    plain = faithfulness((x - 1) / 2, x[:, :2])
    close(plain.map, faithfulness(Rows(sparse.csr_array(x), shift=1.0, scale=2.0), x[:, :2]).map)
    close(faithfulness(x, x[:, :2]).map, faithfulness(sparse.csr_array(x), x[:, :2]).map)


def test_json_holds_plain_values() -> None:
    x, labels = blobs(40)
    found = faithfulness(x, x[:, :2], labels=labels).to_json()
    assert found["held_out"] is None and found["dim"] == 2
    assert {type(value) for value in found["map"].values()} == {float, int, dict}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"places": np.zeros((39, 2))}, "40 rows and the map 39"),
        ({"places": np.zeros(40)}, "give \\(rows, dimensions\\)"),
        ({"places": np.full((40, 2), np.nan)}, "row 1 of the map has no finite"),
        ({"places": np.ones((40, 2)), "distance": "poincare"}, "row 1 of the map is outside the unit ball"),
        ({"distance": "cosine"}, "use one of euclidean, poincare, lorentz"),
        ({"distance": lambda a, b: a}, "distance must give a finite number"),
        ({"labels": ["a"]}, "labels have shape"),
        ({"x": np.full((40, 2), np.nan)}, "fill them in"),
        ({"x": np.zeros((9, 2)), "places": np.zeros((9, 2))}, "at least 10"),
    ],
)
def test_refusals(change: dict[str, object], message: str) -> None:
    given = {"x": np.random.default_rng(0).normal(size=(40, 3)), "places": np.zeros((40, 2)), **change}
    with pytest.raises(CurvaeError, match=message):
        faithfulness(given.pop("x"), given.pop("places"), **given)  # type: ignore[arg-type]


def test_label_accuracy_of_a_map():
    random = np.random.default_rng(0)
    places, labels = random.normal(size=(60, 2)), np.repeat(["a", "b", ""], 20)
    places[:20] += 9.0
    labels[0] = "b"  # among those of a
    assert label_accuracy(places, labels) == pytest.approx(39 / 40)
    assert 0.2 < label_accuracy(places, random.permutation(labels)) < 0.8
    assert label_accuracy(places, labels, rows=7) >= 6 / 7
    # A row does not tell its own label: next to each are two of the other.
    assert label_accuracy(np.arange(20.0)[:, None], np.tile(["a", "b"], 10)) < 0.5
    assert label_accuracy(places, np.where(labels == "a", "a", "")) is None and label_accuracy([[0.0]], ["a"]) is None


# --- maps of graphs, against counts by brute force -------------------------------------------------------------------


def random_graph(nodes=30, seed=0):
    """A tree with a few edges more, and beside it two nodes of their own."""
    draw = np.random.default_rng(seed)
    tree = [(int(draw.integers(i)), i) for i in range(1, nodes)]
    more = [tuple(sorted(draw.choice(nodes, 2, replace=False))) for _ in range(6)]
    edges = np.unique(np.array([*tree, *more, (nodes, nodes + 1)]), axis=0)
    return Graph(np.arange(nodes + 2).astype(str), edges)


def all_steps(graph):
    steps = np.full((graph.n_nodes,) * 2, np.inf)
    np.fill_diagonal(steps, 0)
    for a, b in graph.edges:
        steps[a, b] = steps[b, a] = 1
    for k in range(graph.n_nodes):
        steps = np.minimum(steps, steps[:, k, None] + steps[k])
    return steps


def brute_force(steps, apart):
    """Qlocal and Qglobal: for every node and K the most of the K nearest on the map that K nearest by steps can be."""
    n = len(steps)
    shares = np.zeros(n - 1)
    for i in range(n):
        others = np.delete(np.arange(n), i)
        on_map = others[np.argsort(apart[i, others], kind="stable")]
        lengths = np.sort(steps[i, others])
        for k in range(1, n):
            near, last = set(on_map[:k]), lengths[k - 1]
            below = {j for j in others if steps[i, j] < last}
            ties = {j for j in others if steps[i, j] == last}
            shares[k - 1] += (len(near & below) + min(k - len(below), len(near & ties))) / (k * n)
    best = int(np.argmax(shares - np.arange(1, n) / (n - 1))) + 1
    return shares[:best].mean(), shares[best:].mean() if best < n - 1 else 1.0


@pytest.mark.parametrize("seed", [0, 1])
def test_against_brute_force(seed):
    graph = random_graph(seed=seed)
    places = np.random.default_rng(seed).normal(size=(32, 2))
    steps = all_steps(graph)[:30, :30]
    apart = np.linalg.norm(places[:30, None] - places[:30], axis=2)
    found = graph_faithfulness(graph, places)
    assert found.nodes == found.map.nodes == 30
    np.testing.assert_allclose((found.map.qlocal, found.map.qglobal), brute_force(steps, apart), rtol=1e-12)
    upper = np.triu_indices(30, 1)
    np.testing.assert_allclose(found.map.rank_correlation, spearmanr(steps[upper], apart[upper]).statistic, rtol=1e-9)


def test_a_perfect_map_keeps_everything():
    star = Graph(np.arange(12).astype(str), np.array([(0, i) for i in range(1, 12)]))
    angle = np.linspace(0, 2 * np.pi, 11, endpoint=False)
    places = np.concatenate([[[0.0, 0.0]], np.stack([np.cos(angle), np.sin(angle)], 1)])
    steps = all_steps(star)

    def along_rays(a, b):
        numbers = [np.linalg.norm(places - part[:, None], axis=2).argmin(1) for part in (a, b)]
        return steps[np.ix_(*numbers)]

    found = graph_faithfulness(star, places, distance=along_rays)
    assert (found.map.qlocal, found.map.qglobal, found.map.rank_correlation) == (1.0, 1.0, 1.0)


def test_an_embedding_is_measured_by_its_own_distances():
    graph = random_graph()
    space = np.random.default_rng(0).normal(size=(32, 2))
    curved = graph_faithfulness(graph, Embedding(space, np.ones(32), 1.0))
    assert curved.map == graph_faithfulness(graph, space, distance="lorentz").map
    assert curved.map != graph_faithfulness(graph, space).map


def test_the_spectral_map_is_the_same_however_it_is_computed(monkeypatch):
    draw = np.random.default_rng(0)
    ring = [(i, (i + 1) % 60) for i in range(60)]
    edges = np.unique(np.sort([*ring, *(draw.choice(60, 2, replace=False) for _ in range(40))], axis=1), axis=0)
    graph = Graph(np.arange(60).astype(str), edges)
    places = draw.normal(size=(60, 3))
    dense = graph_faithfulness(graph, places).spectral
    degree = np.bincount(edges.ravel())
    walk = np.zeros((60, 60))
    walk[edges[:, 0], edges[:, 1]] = walk[edges[:, 1], edges[:, 0]] = 1.0
    vectors = np.linalg.eigh(walk / np.sqrt(np.outer(degree, degree)))[1][:, -4:-1] / np.sqrt(degree)[:, None]
    assert graph_faithfulness(graph, vectors).map == dense
    monkeypatch.setattr(sys.modules[graph_faithfulness.__module__], "_DENSE", 0)
    sparse = graph_faithfulness(graph, places).spectral
    np.testing.assert_allclose((sparse.qlocal, sparse.qglobal), (dense.qlocal, dense.qglobal), atol=0.01)


def test_walks_that_mix_slowly():
    path = Graph(np.arange(900).astype(str), np.stack([np.arange(899), np.arange(1, 900)], 1))
    found = graph_faithfulness(path, np.cos(np.pi * np.arange(900.0) / 899)[:, None])  # the second vector of a walk
    assert found.map.qlocal > 0.99
    for name in ("qlocal", "qglobal", "rank_correlation"):
        np.testing.assert_allclose(getattr(found.spectral, name), getattr(found.map, name), atol=2e-3)


def test_large_graphs_are_sampled_with_intervals():
    graph = random_graph(nodes=400)
    places = np.random.default_rng(3).normal(size=(402, 2))
    whole, some = graph_faithfulness(graph, places), graph_faithfulness(graph, places, nodes=300)
    assert (some.map.nodes, some.nodes, whole.map.nodes, whole.map.intervals) == (250, 400, 400, {})
    for name in ("qlocal", "qglobal", "rank_correlation"):
        half = some.map.intervals[name]
        assert 0 < half < 0.1
        assert abs(getattr(whole.map, name) - getattr(some.map, name)) < 3 * half + 0.02


def test_what_cannot_be_judged():
    graph = random_graph()
    with pytest.raises(CurvaeError, match="32 nodes and the map 5; give a place for every node"):
        graph_faithfulness(graph, np.zeros((5, 2)))
    small = Graph(np.arange(9).astype(str), np.stack([np.arange(8), np.arange(1, 9)], 1))
    assert graph_faithfulness(small, np.zeros((9, 2))) is None


@pytest.mark.parametrize(
    ("near", "far", "said", "warned"),
    [
        (0.6, 0.9, "more near nodes than a spectral embedding in 2 dimensions (60 % against 50 %) and more far", None),
        (0.4, 0.9, "fewer near nodes than", "fewer near nodes than a spectral embedding"),
        (0.4, 0.6, "and fewer far ones (60 % against 70 %).", "fewer near and far nodes than a spectral embedding"),
        (0.505, 0.7, "as many near nodes as", None),
    ],
)
def test_verdicts(near, far, said, warned):
    ours, other = (
        GraphFigures(*kept, 0.5, 20, kept_by_group=np.tile(kept, (5, 1))) for kept in ((near, far), (0.5, 0.7))
    )
    found = GraphFaithfulness(ours, other, 2, 20)
    assert said in found.verdict
    assert [text.endswith(warned) for text in found.warnings] == ([] if warned is None else [True])
    assert found.to_json()["verdict"] == found.verdict
