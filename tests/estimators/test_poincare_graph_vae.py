"""Graphs in scikit-learn, and compared on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.base import clone

from curvae import CurvaeError, Lorentz, PoincareBall, PoincareGraphVAE
from curvae.data import load_graph, split_edges
from curvae.data.graph_data import BASELINES
from curvae.training import link_baselines
from curvae.training.fitted import GraphConfig
from curvae.training.graph_problem import embed_graph, fit_graph
from running import curvae, refused

TREE = [(f"n{(i - 1) // 2}", f"n{i}") for i in range(1, 41)]


@pytest.fixture(scope="module")
def model():
    return PoincareGraphVAE(epochs=30, hidden=8, random_state=0, device="cpu").fit(TREE)


def test_the_embedding_is_that_of_the_training(model):
    graph = load_graph(TREE)
    fitted = fit_graph(GraphConfig(epochs=30, hidden=(8,)), graph)
    np.testing.assert_array_equal(model.embedding_, embed_graph(fitted, graph).ball)
    assert model.nodes_.tolist() == graph.names.tolist() and len(model.history_) == 30
    assert model.curvature_ == 1.0 and model.prior_scale_ == 1.0
    for output in ("tangent", "lorentz"):
        other = PoincareGraphVAE(epochs=30, hidden=8, random_state=0, device="cpu", output=output).fit_transform(graph)
        assert other.shape == (41, 2) and not np.allclose(other, model.embedding_)


def test_the_forms_of_a_graph_agree(model):
    matrix = nx.to_scipy_sparse_array(nx.Graph(TREE), nodelist=model.nodes_.tolist())
    for given in (nx.Graph(TREE), load_graph(TREE), csr_array(matrix)):
        again = clone(model).fit(given)
        np.testing.assert_allclose(again.embedding_, model.embedding_, atol=1e-9)


def test_distances_neighbours_and_probabilities(model):
    ball, z = PoincareBall(2, 1.0), model.embedding_
    import torch

    points = torch.from_numpy(z)
    expected = ball.dist(points[:, None], points).numpy()
    np.testing.assert_allclose(model.distances(), expected, atol=1e-7)
    np.testing.assert_allclose(model.distances(["n3", "n0"]), model.distances()[[3, 0]])
    far, places = model.kneighbors(["n3"], k=4)
    order = np.argsort(np.where(np.arange(41) == 3, np.inf, expected[3]), kind="stable")[:4]
    assert places[0].tolist() == order.tolist()
    np.testing.assert_allclose(far[0], expected[3][order], atol=1e-7)
    assert 3 not in model.kneighbors(k=40)[1][3]
    assert (model.kneighbors("n3", k=4)[1] == places).all()
    by_name, by_place = model.link_probability([("n3", "n7"), ("n0", "n40")]), model.link_probability([(3, 7), (0, 40)])
    np.testing.assert_array_equal(by_name, by_place)
    edges, own, side = model._fitted.model.edges, model._embedding.popularity, model._embedding.side
    radius, temperature = (float(t.detach()) for t in edges.numbers())
    gaps = np.array([expected[i, j] - own[i] - own[j] + side[i] * side[j] for i, j in ((3, 7), (0, 40))])
    np.testing.assert_allclose(by_name, 1 / (1 + np.exp((gaps - radius) / temperature)), rtol=1e-5)


def test_missing_links_have_names(model):
    found = model.missing_links(count=5)
    assert list(found.columns) == ["source", "target", "probability"] and len(found) == 5
    pairs = found[["source", "target"]].to_numpy()
    np.testing.assert_allclose(model.link_probability(pairs), found["probability"])
    joined = {frozenset(edge) for edge in TREE}
    assert not any(frozenset(pair) in joined for pair in pairs.tolist())
    absent = [(a, b) for i, a in enumerate(model.nodes_) for b in model.nodes_[:i] if frozenset((a, b)) not in joined]
    assert found["probability"].iloc[0] == pytest.approx(model.link_probability(absent).max())
    assert len(model.missing_links()) == 20


def test_integers_are_positions_even_where_nodes_have_integer_names():
    model = PoincareGraphVAE(epochs=2, random_state=0, device="cpu").fit([(3, 1), (1, 2), (2, 9)])
    places = {name: place for place, name in enumerate(model.nodes_.tolist())}
    np.testing.assert_array_equal(model.distances(["3"]), model.distances([places["3"]]))
    assert model.nodes_[model.kneighbors(["9"], k=3)[1]].shape == (1, 3)


def test_the_note_on_weights_is_for_the_estimator():
    frame = pd.DataFrame({"source": ["a", "b", "c"], "target": ["b", "c", "a"], "weight": [1.0, 2.0, 3.0]})
    model = PoincareGraphVAE(epochs=2, random_state=0, device="cpu").fit(frame)
    assert "weights were left out; fit `load_graph(X, weighted=True)` to read them." in model.graph_.notes
    assert model.fit(load_graph(frame, weighted=True)).graph_.weights is not None


def test_saved_and_loaded(model, tmp_path):
    model.save(tmp_path / "run")
    again = PoincareGraphVAE.load(tmp_path / "run")
    np.testing.assert_array_equal(again.embedding_, model.embedding_)
    np.testing.assert_allclose(again.link_probability([("n1", "n2")]), model.link_probability([("n1", "n2")]))
    assert again.get_params()["epochs"] == 30 and again.graph_.fingerprint == model.graph_.fingerprint
    with pytest.raises(CurvaeError, match="not an empty folder"):
        model.save(tmp_path / "run")
    found = curvae("evaluate", tmp_path / "run", _edges(tmp_path / "t.csv"))
    assert found.code == 0 and "AUC" in found.out


def test_link_prediction_by_split(model):
    found = clone(model).set_params(epochs=3).link_prediction(TREE, n_splits=3)
    assert found["auc"].shape == found["ap"].shape == (3,)
    assert ((found["auc"] >= 0) & (found["auc"] <= 1)).all()
    graph = load_graph(TREE)
    splits = [split_edges(graph, seed=model.random_state + i) for i in range(3)]
    for rule in BASELINES:
        expected = [link_baselines(graph, split, dim=2)[rule].auc for split in splits]
        np.testing.assert_allclose(found[rule], expected)
    assert set(found) == {"auc", "ap", "auc_matched", *BASELINES}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.link_probability([("n1", "m2")]), "no node 'm2'"),
        (lambda m: m.link_probability([(1, 41)]), "between 0 and 40"),
        (lambda m: m.link_probability(["n1", "n2"]), r"shape \(·, 2\)"),
        (lambda m: m.kneighbors(k=99), "`k` must lie between"),
        (lambda m: m.kneighbors(k=len(m.nodes_)), "`k` must lie between 1 and"),
        (lambda m: m.missing_links(0), "`count` must be a whole number of at least 1"),
        (
            lambda m: clone(m).set_params(output="disc").fit(TREE),
            "`output` must be one of auto, ball, tangent, lorentz",
        ),
        (lambda m: clone(m).set_params(advanced={"weight": -1.0}).fit(TREE), "`weight` must be a positive number"),
        (lambda m: m.link_prediction(TREE, n_splits=0), "`n_splits` must be a whole number of at least 1"),
    ],
)
def test_refusals(model, call, message):
    with pytest.raises(CurvaeError, match=message):
        call(model)


def test_nodes_without_a_finite_place_are_named(model, monkeypatch):
    def nowhere(fitted, graph):
        found = embed_graph(fitted, graph)
        found.space[[0, 40]] = np.inf
        return found

    monkeypatch.setattr("curvae.estimators.poincare_graph_vae.embed_graph", nowhere)
    with pytest.raises(CurvaeError, match="the embedding is not finite for 2 nodes: 'n0', 'n40'"):
        clone(model).fit(TREE)


# --- curvae compare --graph -----------------------------------------------------------------------------------------


def _edges(path):
    path.write_text("".join(f"{a},{b}\n" for a, b in TREE), encoding="utf-8")
    return path


def test_comparison_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _edges(Path("t.csv"))
    words = ("t.csv", "--graph", "--hidden", 4, "--epochs", 3, "--repeats", 3, "--jobs", 1, "--device", "cpu")
    found = curvae("compare", *words, "-o", "c")
    assert found.code == 0, found.err
    stored = json.loads(Path("c/comparison.json").read_text())
    assert stored["outcome"] in ("none", "euclidean", "hyperbolic") and len(stored["repeats"]) == 3
    assert set(stored["repeats"][0]["test"]) == {"0.0", "0.3", "1.0"}
    page = Path("c/report.html").read_text(encoding="utf-8")
    assert "Edges kept apart, by curvature" in page and "points of AUC" in page
    graph = load_graph("t.csv")
    splits = [split_edges(graph, seed=one["seed"]) for one in stored["repeats"]]
    for rule in BASELINES:
        mean = np.mean([link_baselines(graph, split, dim=2)[rule].auc for split in splits])
        assert f"{rule}</th>" in page and f"{100 * mean:.1f} ± " in page
    assert "next: curvae graph t.csv --set hidden=4 --epochs 3 --curvature" in found.out
    before = Path("c/comparison.json").read_bytes()
    again = curvae("compare", "t.csv", "--graph", "-o", "c", "--resume", "--device", "cpu", "--jobs", 1)
    assert again.code == 0 and Path("c/comparison.json").read_bytes() == before
    assert "edges" in json.loads(Path("c/config.json").read_text())["data"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--graph", "--set", "decoder=mlp"), "--set decoder has no meaning with --graph"),
        (("--graph", "--id", "a"), "--id has no meaning with --graph"),
        (("--set", "weight=3"), "--set weight has no meaning without --graph"),
        (("--weighted",), "--weighted has no meaning without --graph"),
        (("--graph", "--repeats", 2), "at least 3 repeats"),
    ],
)
def test_options_that_do_not_go_together(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _edges(Path("t.csv"))
    assert message in refused("compare", "t.csv", *words)


# --- latent spaces that are given by their factors -------------------------------------------------------------------


@pytest.fixture(scope="module")
def graph():
    return PoincareGraphVAE(space="h2,e1", epochs=20, hidden=(8,), random_state=0, device="cpu").fit(TREE)


# --- graphs ---------------------------------------------------------------------------------------------------------


def test_a_graph_in_a_product(graph):
    assert graph.embedding_.shape == (41, 3) and graph.curvature_.tolist() == [1.0, 0.0]
    z = torch.from_numpy(graph.embedding_)
    S = Lorentz(2).expmap0(z[:, :2])
    expected = (Lorentz(2).dist(S.unsqueeze(1), S).square() + (z[:, None, 2] - z[:, 2]).square()).sqrt().numpy()
    np.testing.assert_allclose(graph.distances(), expected, atol=1e-7)
    radius, temperature = (float(number.detach()) for number in graph._fitted.model.edges.numbers())
    reach = radius + graph._embedding.popularity[[3, 7]].sum() - graph._embedding.side[[3, 7]].prod()
    probability = 1 / (1 + np.exp((expected[3, 7] - reach) / temperature))
    np.testing.assert_allclose(graph.link_probability([(3, 7)]), probability, rtol=1e-5)
    assert graph.kneighbors(["n3"], k=4)[1].shape == (1, 4)
    ball = clone(graph).set_params(output="ball").fit(TREE)
    torch.testing.assert_close(PoincareBall(2).to_lorentz(torch.from_numpy(ball.embedding_[:, :2])), S)
    found = clone(graph).set_params(epochs=3).link_prediction(TREE, n_splits=2)
    assert found["auc"].shape == (2,)


def test_a_saved_graph(tmp_path, graph):
    graph.save(tmp_path / "run")
    again = PoincareGraphVAE.load(tmp_path / "run")
    np.testing.assert_array_equal(again.embedding_, graph.embedding_)
    np.testing.assert_array_equal(again.distances(), graph.distances())
    assert again.space == "h2,e1" and again.nodes_.tolist() == graph.nodes_.tolist()
