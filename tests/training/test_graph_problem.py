"""Models of graphs with popularity: early stopping, hidden edges, free vectors; that they go on and are kept."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array, save_npz
from sklearn.metrics import roc_auc_score

from curvae.data import Graph, load_graph, split_edges
from curvae.errors import CurvaeError
from curvae.training import stacks
from curvae.training.fitted import GraphConfig, kept_record
from curvae.training.graph_problem import (
    FittedGraph,
    GraphEngine,
    TrainingGraph,
    build_graph_model,
    embed_graph,
    feature_scaling,
    fit_graph,
    fit_graphs,
    link_figures,
    neighbourhood,
)
from curvae.training.storage import load_fitted, save_fitted
from running import config as run_config, curvae, refused

SMALL = GraphConfig(epochs=40, hidden=(8,), learning_rate=0.03)


def graph(nodes: int = 60, edges: int = 3) -> Graph:
    """A graph with hubs."""
    return load_graph(nx.barabasi_albert_graph(nodes, edges, seed=0))


def weights(fitted: FittedGraph) -> dict[str, torch.Tensor]:
    return {name: t.clone() for name, t in fitted.model.state_dict().items()}


def assert_same(a: FittedGraph, b: FittedGraph, rtol: float = 0.0) -> None:
    for (name, x), y in zip(weights(a).items(), weights(b).values(), strict=True):
        torch.testing.assert_close(x, y, rtol=rtol, atol=rtol, msg=lambda m, name=name: f"{name}: {m}")


# --- early stopping -------------------------------------------------------------------------------------------------


def test_the_weights_are_those_of_the_last_step_that_validation_edges_do_not_tell_from_the_best():
    data = graph()
    split = split_edges(data, 0.4, 0.1)
    fitted = fit_graph(replace(SMALL, patience=20, epochs=200), data, split=split)
    looks = {r["epoch"]: r["validation_auc"] for r in fitted.history if "validation_auc" in r}
    assert list(looks) == [*range(10, len(fitted.history) + 1, 10)]
    # What one edge more or less can change does not count.
    best = max(step for step, auc in looks.items() if auc > max(looks.values()) - 1 / len(split.validation))
    assert len(fitted.history) == best + 20 < 200 and fitted.last["epoch"] == best and fitted.keeps_best
    embedding = embed_graph(fitted, data)
    pairs = np.concatenate([split.validation, split.validation_absent])
    truth = np.repeat([1, 0], len(split.validation))
    near = embedding.popularity[pairs].sum(1) - embedding.side[pairs].prod(1) - embedding.distances()[tuple(pairs.T)]
    assert roc_auc_score(truth, near) == pytest.approx(looks[best], abs=1e-3)
    assert link_figures(fitted, data)["validation"].auc == pytest.approx(roc_auc_score(truth, near))


@pytest.mark.parametrize(("tolerance", "kept"), [(0.0, 2), (0.03, 5), (0.11, 6)])
def test_which_record_is_kept(tolerance, kept):
    history = [{"epoch": i, "validation_auc": auc} for i, auc in enumerate([0.5, 0.88, 0.9, 0.85, 0.9, 0.89, 0.8])]
    assert kept_record(history, tolerance)["epoch"] == kept


def test_without_hidden_edges_all_steps_are_made():
    for patience in (5, None):
        fitted = fit_graph(replace(SMALL, epochs=12, patience=patience), graph())
        assert len(fitted.history) == 12 and not fitted.keeps_best and fitted.last["epoch"] == 12
        assert fitted.config.patience == patience


def test_the_last_step_is_looked_at():
    data = graph()
    fitted = fit_graph(replace(SMALL, epochs=13), data, split=split_edges(data))
    assert [r["epoch"] for r in fitted.history if "validation_auc" in r] == [10, 13]


@pytest.mark.parametrize("features", [False, True])
def test_a_stack_stops_each_model_where_it_stops_alone(features):
    data = graph()
    if features:
        x = np.random.default_rng(0).normal(size=(60, 3))
        data = replace(data, features=x, feature_names=("a", "b", "c"))
    configs = [replace(SMALL, seed=i, patience=10, curvature=c) for i, c in enumerate((1.0, 0.3, 1.0))]
    splits = [split_edges(data, 0.1, 0.1, seed=i) for i in range(3)]
    together = fit_graphs(configs, data, splits=splits, dtype=torch.float64)
    for config, split, one in zip(configs, splits, together, strict=True):
        alone = fit_graph(config, data, split=split, dtype=torch.float64)
        assert_same(one, alone, rtol=1e-8)
        assert [sorted(r) for r in one.history] == [sorted(r) for r in alone.history]
    assert len({len(one.history) for one in together}) > 1 or len(together[0].history) == 40


def test_resume_is_exact(tmp_path, monkeypatch):
    monkeypatch.setattr(stacks, "_CHECKPOINT_EVERY", 0.0)
    monkeypatch.setattr(stacks, "_CHECKPOINT_SHARE", 1e9)
    data = graph()
    split, seen = split_edges(data, 0.1, 0.1), itertools.count()
    expected = fit_graph(SMALL, data, split=split)

    def interrupt(record, total):
        if next(seen) == 24:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_graph(SMALL, data, split=split, folder=tmp_path, progress=interrupt)
    found = fit_graph(SMALL, data, split=split, folder=tmp_path, resume=True)
    assert_same(found, expected)
    plain = [{name: value for name, value in record.items() if name != "seconds"} for record in found.history]
    assert plain == [{name: v for name, v in record.items() if name != "seconds"} for record in expected.history]


# --- what a step sees -----------------------------------------------------------------------------------------------


def test_edges_are_hidden_from_the_encoder_and_the_others_stand_for_them():
    data = graph(400, 4)
    config = replace(SMALL, hide=0.25)
    engine = GraphEngine([build_graph_model(config, 400)], [config], [TrainingGraph.from_graph(data)])
    whole, shown = engine._adjacencies[0], [engine._shown(0, epoch) for epoch in (0, 1)]
    assert torch.equal(shown[0], engine._shown(0, 0)) and not torch.equal(*shown)
    kept = [int((one.triu(1) > 0).sum()) / data.n_edges for one in shown]
    assert all(abs(share - 0.75) < 0.05 for share in kept)
    degrees = [1 / one.diagonal() - 1 for one in (whole, *shown)]
    assert abs(float(degrees[1].mean() / degrees[0].mean()) - 1) < 0.05
    free = replace(config, encoder="free")
    engine = GraphEngine([build_graph_model(free, 400)], [free], [TrainingGraph.from_graph(data)])
    assert engine._shown(0, 0) is engine._adjacencies[0]


def test_nodes_that_hidden_edges_leave_alone_are_not_pushed_away():
    """Of a node without an edge nothing is known: it may not matter how many of them there are."""
    data = graph()
    more = Graph(np.arange(90).astype(str), data.edges)
    config = replace(SMALL, encoder="free", epochs=1)
    engine = GraphEngine([build_graph_model(config, 90)], [config], [TrainingGraph.from_graph(more)])
    pairs = torch.cat([engine._pairs(0, epoch, torch.Generator()).nodes for epoch in range(20)], 1)
    assert int(pairs.max()) < 60


def test_a_graph_without_a_pair_that_is_not_joined():
    fitted = fit_graph(replace(SMALL, epochs=3), load_graph(nx.complete_graph(5)))
    assert (
        fitted.failure is None
        and neighbourhood(embed_graph(fitted, load_graph(nx.complete_graph(5))), load_graph(nx.complete_graph(5))).map
        == 1.0
    )


def test_popularity_finds_the_edges_of_hubs():
    data = load_graph(nx.barabasi_albert_graph(150, 2, seed=1))
    split = split_edges(data, 0.05, 0.2)
    found = {
        kind: link_figures(
            fit_graph(replace(SMALL, epochs=40, learning_rate=0.06, popularity=kind), data, split=split), data
        )["test"].auc
        for kind in ("learned", "off")
    }
    assert found["learned"] > 0.65 and found["learned"] > found["off"] + 0.05


# --- free vectors, files --------------------------------------------------------------------------------------------


def test_free_vectors_show_a_tree():
    tree = load_graph(nx.balanced_tree(2, 5))
    config = GraphConfig(encoder="free", epochs=130, learning_rate=0.07)
    near = neighbourhood(embed_graph(fit_graph(config, tree), tree), tree)
    assert near.map > 0.7 and near.rank < 4.0 and near.asked == 63
    featured = replace(tree, features=np.ones((63, 1)), feature_names=("a",))
    with pytest.raises(CurvaeError, match='`encoder="free"` cannot read features'):
        fit_graph(config, featured)


@pytest.mark.parametrize("encoder", ["convolutions", "free"])
def test_saved_and_loaded(tmp_path, encoder):
    data, config = graph(), replace(SMALL, epochs=10, hidden=(12, 8), encoder=encoder)
    fitted = fit_graph(config, data, split=split_edges(data))
    embedding = embed_graph(fitted, data)
    save_fitted(tmp_path, fitted, embedding, {}, data)
    loaded = load_fitted(tmp_path, FittedGraph)
    assert loaded.fitted.config == config
    np.testing.assert_array_equal(loaded.embedding.popularity, embedding.popularity)
    np.testing.assert_allclose(embed_graph(loaded.fitted, data).popularity, embedding.popularity, rtol=1e-12)
    pairs = data.edges[:5]
    expected = embedding.popularity[pairs].sum(1) - embedding.side[pairs].prod(1)
    expected -= embedding.distances()[tuple(pairs.T)]
    np.testing.assert_allclose(loaded.embedding.nearness_of(pairs), expected, atol=1e-9)
    np.testing.assert_array_equal(embedding.take([3, 1]).popularity, embedding.popularity[[3, 1]])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"edges": "geodesic", "popularity": "learned"}, '`popularity="learned"` needs `edges="fermi_dirac"`'),
        ({"hide": 1.0}, "`hide` must be a share of the edges"),
        ({"pairs": "some"}, "`pairs` must be one of all, balanced"),
        ({"encoder": "none"}, "`encoder` must be one of convolutions, free"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(CurvaeError, match=message):
        GraphConfig(**settings)
    assert GraphConfig().popular and not GraphConfig(edges="geodesic").popular


# --- features: sparse ones as dense ones, stored, and of nodes that were never seen ----------------------------------


def groups(seed: int = 0, size: int = 20, number: int = 4) -> tuple[nx.Graph, csr_array]:
    """Groups that are dense inside, and words that nodes of a group share."""
    random = np.random.default_rng(seed)
    graph = nx.planted_partition_graph(number, size, 0.4, 0.01, seed=seed)
    chance = np.where(np.arange(40) // 10 == (np.arange(number * size) // size)[:, None], 0.4, 0.03)
    return graph, csr_array((random.random(chance.shape) < chance).astype(float))


@pytest.fixture(scope="module")
def data() -> Graph:
    graph, words = groups()
    return load_graph(graph, features_file=words)


def test_training_with_sparse_features_is_that_with_dense_ones(data: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = GraphConfig(epochs=5, hidden=(8,))
    sparse = embed_graph(fit_graph(chosen, data, dtype=torch.float64), data)
    dense = replace(data, features=data.features.toarray())  # type: ignore[union-attr]
    monkeypatch.setattr("curvae.training.graph_problem.feature_scaling", lambda _: feature_scaling(data.features))
    np.testing.assert_allclose(
        sparse.space, embed_graph(fit_graph(chosen, dense, dtype=torch.float64), dense).space, atol=1e-9
    )


def test_many_with_sparse_features_are_each_alone(data: Graph) -> None:
    configs = [GraphConfig(epochs=3, hidden=(4,), seed=seed) for seed in (0, 1)]
    splits = [split_edges(data, seed=seed) for seed in (0, 1)]
    for one, chosen, split in zip(fit_graphs(configs, data, splits=splits), configs, splits, strict=True):
        alone = fit_graph(chosen, data, split=split)
        np.testing.assert_allclose(embed_graph(one, data).space, embed_graph(alone, data).space, atol=1e-6)


def test_sparse_features_are_stored(data: Graph, tmp_path: Path) -> None:
    fitted = fit_graph(GraphConfig(epochs=2, hidden=(4,)), data)
    embedding = embed_graph(fitted, data)
    save_fitted(tmp_path / "run", fitted, embedding, {}, data)
    loaded = load_fitted(tmp_path / "run", FittedGraph)
    assert isinstance(loaded.data.features, csr_array) and loaded.data.fingerprint == data.fingerprint
    np.testing.assert_array_equal(embed_graph(loaded.fitted, loaded.data).space, embedding.space)


# --- nodes never seen -------------------------------------------------------------------------------------------------


def test_nodes_never_seen_are_placed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    graph, words = groups(seed=1)
    new = np.random.default_rng(0).random(80) < 0.15
    old = graph.subgraph(np.flatnonzero(~new).tolist())
    for name, one in (("old", old), ("all", graph)):
        Path(f"{name}.csv").write_text("".join(f"{a},{b}\n" for a, b in one.edges()), encoding="utf-8")
    save_npz("words.npz", words)
    training = ("--epochs", "60", "--splits", "0", "-q", "-o", "run", "--features-file", "words.npz")
    assert curvae("graph", "old.csv", *training).code == 0
    assert run_config()["source"]["features_file"] == "words.npz" and len(run_config()["data"]["features"]) == 40
    found = curvae("embed", "run", "all.csv", "--features-file", "words.npz", "-o", "e.csv")
    assert found.code == 0, found.err
    table = pd.read_csv("e.csv", dtype={"id": str})
    whole = load_graph("all.csv")
    places = table.set_index("id").loc[whole.names, ["ball_1", "ball_2"]].to_numpy()
    unseen = new[whole.names.astype(int)]
    assert 5 < unseen.sum() < 25
    # Distances in the ball, by their formula.
    norms = 1 - (places**2).sum(1)
    gaps = ((places[:, None] - places) ** 2).sum(-1)
    distances = np.arccosh(1 + 2 * gaps / np.outer(norms, norms))
    joined = np.zeros(distances.shape, dtype=bool)
    joined[tuple(whole.edges.T)] = True
    i, j = np.triu_indices(whole.n_nodes, 1)
    some = unseen[i] | unseen[j]
    assert roc_auc_score(joined[i, j][some], -distances[i, j][some]) > 0.8
    assert "give such a file with --features-file" in refused("embed", "run", "all.csv")
    save_npz("fewer.npz", words[:, :39])
    refused("embed", "run", "all.csv", "--features-file", "fewer.npz", says=["39 features", "trained on 40"])


def test_categories_of_new_nodes_are_those_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ring = [(f"n{i}", f"n{(i + 1) % 20}") for i in range(20)]
    Path("g.csv").write_text("".join(f"{a},{b}\n" for a, b in ring), encoding="utf-8")
    table = pd.DataFrame({"id": [f"n{i}" for i in range(20)], "team": list("abcd") * 5, "age": range(20)})
    table.to_csv("n.csv", index=False)
    small = ("--epochs", "2", "--set", "hidden=4", "--splits", "0", "-q")
    assert curvae("graph", "g.csv", "--nodes", "n.csv", "--categorical", "team", "-o", "run", *small).code == 0
    assert run_config()["data"]["features"] == ["age", "team=a", "team=b", "team=c", "team=d"]
    # New nodes of teams b and d alone.
    Path("new.csv").write_text("u,v\nv,w\n", encoding="utf-8")
    pd.DataFrame({"id": list("uvw"), "age": [1, 2, 3], "team": list("bdb")}).to_csv("m.csv", index=False)
    assert curvae("embed", "run", "new.csv", "--nodes", "m.csv", "-o", "e.csv").code == 0
    assert pd.read_csv("e.csv")["id"].tolist() == list("uvw")
    pd.DataFrame({"id": list("uvw"), "age": [1, 2, 3], "team": list("bze")}).to_csv("m.csv", index=False)
    refused("embed", "run", "new.csv", "--nodes", "m.csv", "-o", "f.csv", says=["'e', 'z'", "it knows 'a', 'b'"])
