"""Models of graphs with features: sparse ones as dense ones, stored, and of nodes that were never seen."""

from __future__ import annotations

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
from curvae.nn import GraphConv, normalised_adjacency
from curvae.training.config import GraphConfig
from curvae.training.graph_evaluate import embed_graph
from curvae.training.graph_fitting import fit_graph, fit_graphs
from curvae.training.graph_problem import FittedGraph, feature_scaling, feature_tensor
from curvae.training.storage import load_fitted, save_fitted
from running import config, curvae, refused


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


def test_sparse_products_are_dense_ones(data: Graph) -> None:
    assert isinstance(data.features, csr_array)
    scaling = feature_scaling(data.features)
    x = feature_tensor(data.features, scaling, "cpu", torch.float64)
    assert x.is_sparse
    np.testing.assert_allclose((x.to_dense() ** 2).sum(1).mean(), 1.0)
    np.testing.assert_allclose(x.to_dense(), data.features.toarray() / scaling.scale)
    layer = GraphConv(40, 5).double()
    adjacency = normalised_adjacency(torch.from_numpy(data.edges.T.copy()), data.n_nodes).double()
    outputs = [layer(adjacency, features) for features in (x, x.to_dense())]
    torch.testing.assert_close(*outputs)
    gradients = [torch.autograd.grad((out**2).sum(), layer.weight)[0] for out in outputs]
    torch.testing.assert_close(*gradients)


def test_training_with_sparse_features_is_that_with_dense_ones(data: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = GraphConfig(epochs=5, hidden=(8,))
    sparse = embed_graph(fit_graph(chosen, data, dtype=torch.float64), data)
    dense = replace(data, features=data.features.toarray())  # type: ignore[union-attr]
    monkeypatch.setattr("curvae.training.graph_fitting.feature_scaling", lambda _: feature_scaling(data.features))
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
    assert config()["source"]["features_file"] == "words.npz" and len(config()["data"]["features"]) == 40
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
    assert config()["data"]["features"] == ["age", "team=a", "team=b", "team=c", "team=d"]
    # New nodes of teams b and d alone.
    Path("new.csv").write_text("u,v\nv,w\n", encoding="utf-8")
    pd.DataFrame({"id": list("uvw"), "age": [1, 2, 3], "team": list("bdb")}).to_csv("m.csv", index=False)
    assert curvae("embed", "run", "new.csv", "--nodes", "m.csv", "-o", "e.csv").code == 0
    assert pd.read_csv("e.csv")["id"].tolist() == list("uvw")
    pd.DataFrame({"id": list("uvw"), "age": [1, 2, 3], "team": list("bze")}).to_csv("m.csv", index=False)
    refused("embed", "run", "new.csv", "--nodes", "m.csv", "-o", "f.csv", says=["'e', 'z'", "it knows 'a', 'b'"])
