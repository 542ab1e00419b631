"""Models of graphs: trained alone and together, interrupted, compared."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from unittest import mock

import networkx as nx
import numpy as np
import pytest
import torch
from scipy import stats

from curvae import CurvaeError
from curvae.data import Graph, load_graph, split_edges
from curvae.models import Pairs, PairSampler, graph_vae as pairs, graph_vae as pairs_module
from curvae.nn import GraphEncoder, normalised_adjacency
from curvae.paper.experiment import WeightedGraphVAE
from curvae.training import FittedGraph, graph_problem, graph_problem as fitting, neighbourhood, stacks
from curvae.training.fitted import GraphConfig
from curvae.training.graph_problem import (
    GraphEngine,
    TrainingGraph,
    build_graph_model,
    compare_graph,
    embed_graph,
    fit_graph,
    fit_graphs,
    judge_split,
    link_figures,
    plan_graphs,
)
from curvae.training.storage import load_fitted, save_fitted
from graph_trainings import assert_same_weights, fitted_after_interruption
from trainings import assert_same, state

SMALL = GraphConfig(epochs=6, hidden=(8,), patience=None)


# As in the paper.
PAPER = replace(SMALL, edges="geodesic", pairs="all", hide=0.0, weight=2.0, beta=1.0)


def graph(nodes: int = 40, extra: int = 25, features: int = 0, weighted: bool = False) -> Graph:
    """A tree with some more edges."""
    random = np.random.default_rng(0)
    made = nx.random_labeled_tree(nodes, seed=1)
    made.add_edges_from(random.integers(0, nodes, (extra, 2)).tolist())
    made.remove_edges_from(list(nx.selfloop_edges(made)))
    found = load_graph(made)
    if features:
        x = random.normal(3.0, 2.0, (nodes, features))
        found = replace(found, features=x, feature_names=tuple(f"f{i}" for i in range(features)))
    return replace(found, weights=random.uniform(0.5, 2.0, found.n_edges)) if weighted else found


def weights(fitted):
    return {name: t.clone() for name, t in fitted.model.state_dict().items()}


# --- together and alone ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", ["wrapped", "riemannian"])
@pytest.mark.parametrize(("features", "weighted"), [(0, False), (3, True)])
def test_a_stack_trains_each_model_as_if_alone(law, features, weighted):
    data = graph(features=features, weighted=weighted)
    configs = [
        replace(SMALL, posterior=law, seed=i, curvature=c, prior_scale=s, learning_rate=rate, beta=b)
        for i, (c, s, rate, b) in enumerate([(1.0, 1.0, 0.01, 1.0), (0.3, 1.5, 0.02, 1.0), (2.0, 0.8, 0.01, 0.5)])
    ]
    splits = [split_edges(data, seed=i) for i in range(3)]
    together = fit_graphs(configs, data, splits=splits, dtype=torch.float64)
    for config, split, one in zip(configs, splits, together, strict=True):
        alone = fit_graph(config, data, split=split, dtype=torch.float64)
        assert_same_weights(one, alone, rtol=1e-9)
        assert [r["epoch"] for r in one.history] == [1, 2, 3, 4, 5, 6]
        assert abs(one.last["elbo"] - alone.last["elbo"]) < 1e-9 * abs(alone.last["elbo"])


def test_an_unset_weight_of_the_divergence_is_that_of_the_dimension():
    data = graph()
    auto, given = (fit_graph(replace(SMALL, beta=beta), data) for beta in ("auto", 0.1 / SMALL.dim))
    assert_same_weights(auto, given, rtol=0.0)
    assert auto.config.beta == "auto"


def test_what_differs_in_more_than_numbers_is_trained_apart():
    data = graph()
    configs = [
        SMALL,
        replace(SMALL, curvature=0.0),
        replace(SMALL, edges="geodesic"),
        PAPER,
        replace(SMALL, popularity="off"),
        replace(SMALL, diagonal=True, samples=3),
        replace(SMALL, weight=2.0),
        replace(SMALL, learn_curvature=True, learn_prior_scale=True),
    ]
    found = fit_graphs(configs, data)
    for config, one in zip(configs, found, strict=True):
        assert one.config == config and one.failure is None
        assert_same_weights(one, fit_graph(config, data))
    learned = found[-1].last
    assert learned["c"] != 1.0 and learned["prior_scale"] != 1.0
    assert "edges.radius" in weights(found[0]) and "edges.radius" not in weights(found[2])
    assert "popularity.slope" in weights(found[0]) and "popularity.slope" not in weights(found[4])


def test_a_step_follows_the_gradient_of_the_elbo():
    data, config = graph(), replace(SMALL, epochs=1, learning_rate=1e-3, samples=2, pairs="all", hide=0.0, beta=1.0)
    engine = GraphEngine(
        [build_graph_model(config, 40).double()], [config], [TrainingGraph.from_graph(data, dtype=torch.float64)]
    )
    model = build_graph_model(config, 40).double()
    noise = model.noise(40, 2, engine._generator(0, 0))
    loss = -model.elbo(
        normalised_adjacency(torch.from_numpy(data.edges.T), 40).double(), engine.seen[0].edges, 2, 1.0, noise
    )
    passed = engine.epoch(0)
    assert abs(float(passed.means[0, 0] - passed.means[0, 1]) * 40 + loss.item()) < 1e-5 * abs(loss.item())
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    # The first step of Adam is the rate times the sign of the gradient.
    for before, after, gradient in zip(model.parameters(), engine.stack.models[0].parameters(), gradients, strict=True):
        clear = gradient.abs() > 1e-3 * gradient.abs().max()
        torch.testing.assert_close((before - after)[clear], (1e-3 * gradient.sign())[clear], rtol=1e-2, atol=1e-9)


def test_a_large_graph_is_trained_on_samples():
    data = graph(60)
    exact = fit_graph(PAPER, data)
    with mock.patch.object(pairs_module, "_EXACT", 50):
        sampled = fit_graph(PAPER, data)
        again, other = fit_graphs([PAPER, replace(PAPER, seed=1)], data)
    assert_same_weights(sampled, again)
    assert abs(sampled.history[0]["kl"] - exact.history[0]["kl"]) < 1e-9
    assert sampled.history[0]["reconstruction"] != exact.history[0]["reconstruction"]
    assert abs(sampled.history[0]["reconstruction"] / exact.history[0]["reconstruction"] - 1) < 0.3
    assert other.last["elbo"] != again.last["elbo"]


def test_weights_and_features_are_seen():
    plain, weighted, featured = graph(), graph(weighted=True), graph(features=3)
    models = [fit_graph(SMALL, one) for one in (plain, weighted, featured)]
    assert models[0].last["elbo"] != models[1].last["elbo"] != models[2].last["elbo"]
    layer = models[2].model.encoder.layers[0]
    assert layer.weight.shape == (3, 8)
    seen = models[2].seen(featured)
    torch.testing.assert_close(seen.features.mean(0), torch.zeros(3), atol=1e-6, rtol=0)
    torch.testing.assert_close(seen.features.std(0, correction=0), torch.ones(3))
    split = split_edges(weighted)
    part = TrainingGraph.from_graph(weighted, split)
    known = {tuple(edge): w for edge, w in zip(weighted.edges.tolist(), weighted.weights.tolist(), strict=True)}
    assert np.allclose(part.weights, [known[tuple(edge)] for edge in split.train.tolist()])


def test_sparse_matrices_give_the_same_gradient():
    edges, x = torch.from_numpy(graph().edges.T), torch.randn(40, 5, dtype=torch.float64)
    encoder = GraphEncoder(5, (7,)).double()
    found = []
    for dense in (True, False):
        adjacency = normalised_adjacency(edges, 40, torch.ones(edges.shape[1]).double(), dense)
        leaf = x.clone().requires_grad_()
        out = encoder(adjacency, leaf)
        found.append([out.detach(), *torch.autograd.grad((out**3).sum(), [leaf, *encoder.parameters()])])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


def test_one_model_that_fails_does_not_stop_the_others():
    data = graph()
    configs = [replace(SMALL, seed=i) for i in range(3)]
    expected, said = fit_graphs(configs, data), []
    plain = build_graph_model

    def build(config, nodes, features):
        model = plain(config, nodes, features)
        if config.seed == 1:
            with torch.no_grad():
                model.encoder.layers[0].weight[0, 0] = float("nan")
        return model

    found = fit_graphs(configs, data, build=build, warn=said.append)
    assert [one.failure is None for one in found] == [True, False, True]
    assert len(said) == 1 and "model 2 of 3" in said[0]
    for i in (0, 2):
        assert_same_weights(found[i], expected[i], rtol=1e-6)


# --- interruption ---------------------------------------------------------------------------------------------------


def test_resume_is_exact(tmp_path, monkeypatch):
    monkeypatch.setattr(stacks, "_CHECKPOINT_EVERY", 0.0)
    data, config = graph(), replace(SMALL, epochs=8)
    splits = [split_edges(data, seed=i) for i in range(2)]
    configs = [replace(config, seed=i) for i in range(2)]
    expected = fit_graphs(configs, data, splits=splits)
    found = fitted_after_interruption(configs, data, splits, tmp_path, after=7)
    for a, b in zip(found, expected, strict=True):
        assert_same_weights(a, b)
        assert [r["elbo"] for r in a.history] == [r["elbo"] for r in b.history]
    with pytest.raises(CurvaeError, match="other data: not the graph"):
        fit_graphs(configs, graph(extra=24), splits=splits, folder=tmp_path, resume=True)
    with pytest.raises(CurvaeError, match="other data: not the split"):
        fit_graphs(configs, data, splits=splits[::-1], folder=tmp_path, resume=True)


# --- settings and refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"edges": "euclidean"}, "`edges` must be one of geodesic, fermi_dirac"),
        ({"weight": 0.0}, "`weight` must be a positive number"),
        ({"epochs": None}, "`epochs` must be a whole number of at least 1, got None"),
        ({"epochs": 10**12}, "`epochs` must be at most 1,000,000"),
        ({"samples": 10**12}, "`samples` must be at most 100,000"),
        ({"hidden": ()}, r"such as 32"),
        ({"curvature": -1.0}, "c ≥ 0"),
        ({"diagonal": True, "posterior": "riemannian"}, "diagonal posterior needs"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(CurvaeError, match=message):
        GraphConfig(**settings)


def test_lists_of_unequal_length_are_refused():
    with pytest.raises(CurvaeError, match="splits must hold one entry a configuration: 2, got 1"):
        fit_graphs([SMALL, SMALL], graph(), splits=[None])
    with pytest.raises(CurvaeError, match="nothing to train"):
        fit_graphs([], graph())


# --- figures --------------------------------------------------------------------------------------------------------


def test_edges_of_a_tree_with_cliques_are_found_again():
    """Cliques that hang on a path: held-out edges within cliques can be told from other pairs."""
    made = nx.connected_caveman_graph(6, 6)
    data = load_graph(made)
    split = split_edges(data, seed=3)
    fitted = fit_graph(GraphConfig(epochs=60, learning_rate=0.03), data, split=split)
    links = link_figures(fitted, data)
    assert links["test"].auc > 0.85 and links["test"].ap > 0.85
    whole = fit_graph(replace(SMALL, epochs=2), data)
    with pytest.raises(CurvaeError, match="trained on all edges"):
        link_figures(whole, data)
    embedding = embed_graph(fitted, data)
    distances, parts = embedding.distances(), (split.test, split.test_absent)
    distances -= embedding.popularity[:, None] + embedding.popularity - np.outer(embedding.side, embedding.side)
    present, absent = (distances[pairs[:, 0], pairs[:, 1]] for pairs in parts)
    statistic = stats.mannwhitneyu(absent, present).statistic / (len(present) * len(absent))
    assert abs(statistic - links["test"].auc) < 1e-12


@pytest.mark.skipif("CURVAE_DATA" not in os.environ, reason="needs the graphs in CURVAE_DATA")
def test_the_sampled_elbo_is_that_of_all_pairs():
    data = load_graph("diseases")
    model = fit_graph(GraphConfig(dim=5, epochs=40), data).double().model
    edges = torch.from_numpy(data.edges.T.copy())
    adjacency = normalised_adjacency(edges, data.n_nodes).double()
    noise = model.noise(data.n_nodes, 1, torch.Generator().manual_seed(0))
    sampler, generator = PairSampler(edges, data.n_nodes), torch.Generator().manual_seed(1)
    with torch.no_grad():
        exact = float(model.elbo(adjacency, edges, noise=noise))
        found = np.array([float(model.elbo(adjacency, sampler.step(generator), noise=noise)) for _ in range(60)])
    error = found.std(ddof=1) / np.sqrt(len(found))
    assert abs(found.mean() / exact - 1) < 0.01
    assert abs(found.mean() - exact) < 4 * error and error < 0.005 * abs(exact)


def test_the_weighted_loss_against_every_pair():
    data = graph(12, 4)
    model = build_graph_model(PAPER, 12).double()
    weighted = WeightedGraphVAE(model, 12, data.n_edges)
    S = torch.randn(12, 2).double()
    edges = torch.from_numpy(data.edges.T.copy())
    linked = {tuple(edge) for edge in data.edges.tolist()}
    positive, norm = (144 - 2 * data.n_edges) / (2 * data.n_edges), 144 / (2 * (144 - 2 * data.n_edges))
    total = 0.0
    for i, j in itertools.combinations(range(12), 2):
        chord = float((S[i] - S[j]) @ (S[i] - S[j]) - (time(S[i]) - time(S[j])) ** 2)
        p = 1 - np.tanh(max(2 * np.arcsinh(np.sqrt(chord) / 2), 1e-3))
        total += positive * np.log(p) if (i, j) in linked else np.log1p(-p)
    assert abs(float(weighted.weight * weighted.log_likelihood(S, edges)) - 2 * norm * total) < 1e-9 * abs(total)
    with pytest.raises(ValueError, match="all pairs"):
        weighted.log_likelihood(S, Pairs(edges, torch.ones(1), torch.ones(1)))


def time(point: torch.Tensor) -> float:
    return float((1 + point @ point).sqrt())


# --- comparison -----------------------------------------------------------------------------------------------------


def test_comparison_on_the_same_splits():
    data = load_graph(nx.balanced_tree(3, 4))
    said: list[tuple[int, int]] = []
    found = compare_graph(
        replace(SMALL, epochs=5), data, (0.5, 1.0), 3, device="cpu", jobs=1, progress=lambda *at: said.append(at)
    )
    assert said[-1] == (45, 45) and [r.seed for r in found.repeats] == [0, 1, 2]
    for i, repeat in enumerate(found.repeats):
        split = split_edges(data, seed=i)
        for c in (0.0, 0.5, 1.0):
            one = fit_graph(replace(SMALL, epochs=5, seed=i, curvature=c), data, split=split)
            links = link_figures(one, data)
            # In float32 a model agrees with itself in a stack to rounding, which may swap two pairs.
            assert abs(links["test"].auc - repeat.test[c].auc) < 0.02
        best = max((0.5, 1.0), key=lambda c: repeat.validation[c].auc)
        assert found.chosen[i] == best
        assert found.paired.differences[i] == repeat.test[best].auc - repeat.test[0.0].auc
    assert found.ratio == pytest.approx(len(split.test) / len(split.train), rel=1e-12)
    assert found.to_json()["repeats"][1]["test"]["0.5"]["ap"] == found.repeats[1].test[0.5].ap
    assert "points of AUC" in found.verdict
    with pytest.raises(CurvaeError, match="at least 3 repeats"):
        compare_graph(SMALL, data, repeats=2)
    with pytest.raises(CurvaeError, match="fixed curvatures"):
        compare_graph(replace(SMALL, learn_curvature=True), data)


# --- directed and weighted graphs ------------------------------------------------------------------------------------


DIRECTED_SMALL = GraphConfig(epochs=5, hidden=(6,), learning_rate=0.03, directed=True)


def directed_graph(nodes: int = 30, weighted: bool = False, seed: int = 0) -> Graph:
    """Every node depends on some of those before it, on the first ones most."""
    random = np.random.default_rng(seed)
    links = {(k, int(k * random.random() ** 2)) for k in range(1, nodes) for _ in range(3)}
    made = nx.DiGraph(sorted(links))
    nx.set_edge_attributes(made, {edge: 1.0 + random.random() for edge in made.edges()}, "weight")
    return load_graph(made, directed=True, weighted=weighted)


@pytest.mark.parametrize("settings", [{}, {"pairs": "all", "encoder": "free"}])
def test_directed_graphs_in_a_stack_as_alone(settings):
    data = directed_graph(weighted=True)
    configs = [replace(DIRECTED_SMALL, seed=i, curvature=c, **settings) for i, c in enumerate((1.0, 0.3))]
    splits = [split_edges(data, seed=i) for i in range(2)]
    together = fit_graphs(configs, data, splits=splits, dtype=torch.float64)
    for config, split, one in zip(configs, splits, together, strict=True):
        alone = fit_graph(config, data, split=split, dtype=torch.float64)
        assert_same_weights(one, alone, rtol=1e-9)
        assert one.last["validation_auc"] == pytest.approx(alone.last["validation_auc"], abs=1e-12)


def test_resume_of_a_directed_graph_is_exact(tmp_path, monkeypatch):
    monkeypatch.setattr(stacks, "_CHECKPOINT_EVERY", 0.0)
    data = directed_graph(weighted=True)
    configs, splits = [replace(DIRECTED_SMALL, seed=i) for i in range(2)], [split_edges(data, seed=i) for i in range(2)]
    expected = fit_graphs(configs, data, splits=splits)
    found = fitted_after_interruption(configs, data, splits, tmp_path, after=3)
    for a, b in zip(found, expected, strict=True):
        assert_same_weights(a, b)


def test_saved_and_loaded(tmp_path):
    data = directed_graph()
    fitted = fit_graph(DIRECTED_SMALL, data, split=split_edges(data))
    embedding = embed_graph(fitted, data)
    assert embedding.popularity.shape == (30, 2)
    save_fitted(tmp_path, fitted, embedding, {}, data)
    loaded = load_fitted(tmp_path, FittedGraph)
    assert (
        loaded.fitted.config == DIRECTED_SMALL and loaded.data.directed and loaded.data.fingerprint == data.fingerprint
    )
    np.testing.assert_array_equal(loaded.embedding.popularity, embedding.popularity)
    i, j = data.edges.T
    b, s = embedding.popularity, embedding.side
    expected = b[i, 0] + b[j, 1] - s[i] * s[j] - embedding.distances()[i, j]
    np.testing.assert_allclose(loaded.embedding.nearness_of(data.edges), expected, atol=1e-9)
    near = neighbourhood(embedding, data)
    assert near.asked == len(np.unique(i))


def test_nodes_that_were_not_there_have_both_popularities():
    """With features a node is placed by its edges, and by which way they run."""
    data = directed_graph()
    features = np.random.default_rng(0).normal(size=(30, 2))
    fitted = fit_graph(replace(DIRECTED_SMALL, epochs=30), replace(data, features=features, feature_names=("x", "y")))
    names = np.append(data.names, "new")
    placed = []
    for arc in ([30, 0], [0, 30]):
        edges = np.concatenate([data.edges, [arc]])
        edges = edges[np.lexsort(edges.T[::-1])]
        more = Graph(names, edges, None, np.append(features, [[0.1, 0.2]], axis=0), ("x", "y"), directed=True)
        placed.append(embed_graph(fitted, more).popularity[30])
    (sends, _), (_, receives) = placed
    assert np.isfinite(placed).all() and sends > placed[1][0] and receives > placed[0][1]


def test_graph_and_settings_must_agree():
    data = directed_graph()
    with pytest.raises(CurvaeError, match="edges of the graph have a direction; set `directed=True`"):
        fit_graph(replace(DIRECTED_SMALL, directed=False), data)
    with pytest.raises(CurvaeError, match="edges of the graph have no direction; set `directed=False`"):
        fit_graph(DIRECTED_SMALL, load_graph([(0, 1), (1, 2)]))
    for settings in ({"popularity": "off"}, {"edges": "geodesic"}):
        with pytest.raises(CurvaeError, match='`directed=True` needs `popularity="learned"`'):
            GraphConfig(directed=True, **settings)


def test_directions_are_learned():
    """Of three groups the first depends on the second, and that on the third."""
    random = np.random.default_rng(0)
    links = {(15 * k + i, 15 * (k + 1) + int(j)) for k in (0, 1) for i in range(15) for j in random.integers(0, 15, 4)}
    data = load_graph(sorted(links), directed=True)
    split = split_edges(data, 0.05, 0.2)
    fitted = fit_graph(replace(DIRECTED_SMALL, epochs=60), data, split=split)
    found = judge_split(fitted, data, split)["test"]
    assert found["direction"] > 0.85
    nearness = embed_graph(fitted, data).nearness_of
    gains = nearness(split.test) - nearness(split.test[:, ::-1])
    assert found["direction"] == np.mean(gains > 0)
    assert set(found["baselines"]["degree product"]) == {"auc", "ap", "auc_matched", "ap_matched", "direction"}


# --- weights as intensities -----------------------------------------------------------------------------------------


def test_heavier_edges_end_up_nearer():
    """Where only the likelihood knows the weights: vectors are free, and all nodes have the same total weight."""
    heavy = np.array([[k, (k + 1) % 24] for k in range(24)])
    light = np.array([[k, (k + 9) % 24] for k in range(24)])
    edges = np.sort(np.concatenate([heavy, light]), axis=1)
    order = np.lexsort(edges.T[::-1])
    config = GraphConfig(epochs=60, encoder="free", hidden=(8,), learning_rate=0.06)
    ratios = []
    for weight in (1.0, 8.0):
        weights = np.repeat([weight, 1.0], 24)[order]
        data = Graph(np.arange(24).astype(str), edges[order], weights)
        distances = embed_graph(fit_graph(config, data), data).distances()
        ratios.append(distances[tuple(heavy.T)].mean() / distances[tuple(light.T)].mean())
    assert ratios[1] < 0.6 * ratios[0]


def test_units_of_weights_do_not_matter_to_the_likelihood():
    data = directed_graph(weighted=True)
    one, other = (TrainingGraph.from_graph(replace(data, weights=unit * data.weights)) for unit in (1.0, 1000.0))
    weights = one.all_pairs(balanced=True).weight
    torch.testing.assert_close(weights, other.all_pairs(balanced=True).weight)
    assert float(weights.mean()) == pytest.approx(1.0)
    drawn = one.sampler(balanced=True).balanced()
    torch.testing.assert_close(drawn.times[: data.n_edges], weights)
    assert (drawn.times[data.n_edges :] == 1).all()
    # The model of the paper is one of edges, whatever their weights.
    assert torch.equal(one.all_pairs(balanced=False), one.edges)
    assert (one.sampler(balanced=False).draw(5).weight[: data.n_edges] == 1).all()


# --- products of spaces ----------------------------------------------------------------------------------------------


GRAPH = GraphConfig(space="h2:0.7,e1,h1:learn", epochs=6, hidden=(8,))


@pytest.fixture(scope="module")
def product_graph():
    return load_graph(nx.random_labeled_tree(30, seed=1))


def assert_close(found, expected, tolerance):
    for (name, a), b in zip(found.model.state_dict().items(), expected.model.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, msg=name)


# --- graphs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("posterior", ["wrapped", "riemannian"])
def test_graphs_alone_and_together(product_graph, posterior):
    configs = [replace(GRAPH.with_curvature(c), seed=i, posterior=posterior) for i, c in enumerate((0.7, 2.0))]
    for config, found in zip(configs, fit_graphs(configs, product_graph, dtype=torch.float64), strict=True):
        assert found.failure is None and {"c_1", "c_2", "c_3"} <= set(found.history[0])
        assert_close(found, fit_graph(config, product_graph, dtype=torch.float64), 1e-8)
    place = embed_graph(found, product_graph)
    assert place.sigma.shape == (30, 3) and [f.unit for f in place.placed] == [1.0, 1.0, 1.0]


@pytest.mark.usefixtures("often")
def test_an_interrupted_graph_goes_on_exactly(tmp_path, product_graph):
    whole, calls = fit_graph(GRAPH, product_graph), 0

    def tick(done, total):
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_graph(GRAPH, product_graph, folder=tmp_path, progress=tick)
    assert_same(state(fit_graph(GRAPH, product_graph, folder=tmp_path, resume=True)), state(whole))


def test_products_see_a_sample_of_the_pairs_of_smaller_graphs(monkeypatch, product_graph):
    """All pairs of a product are listed, which takes memory for each of them."""
    assert pairs.exact(8192) and not pairs.exact(8193)
    assert pairs.exact(2048, listed=True) and not pairs.exact(2049, listed=True)
    monkeypatch.setattr(pairs, "_EXACT_LISTED", 29)
    seen, found = TrainingGraph.from_graph(product_graph), {}
    product = replace(GRAPH, pairs="all", popularity="off")
    for config in (product, product.with_space("h2")):
        model = fit_graph(replace(config, epochs=2), product_graph).model
        found[len(model.space)] = GraphEngine([model], [config], [seen])._samplers
    assert not found[1] and found[3]
    monkeypatch.setattr(fitting, "_TOGETHER", 29)  # models are trained one at a time
    both = fit_graphs([replace(product, seed=i) for i in range(2)], product_graph)
    assert all(one.failure is None for one in both)
    assert_same(state(both[1]), state(fit_graph(replace(product, seed=1), product_graph)))


# --- large graphs ----------------------------------------------------------------------------------------------------


def test_of_many_validation_edges_some_are_watched(monkeypatch):
    graph = load_graph(nx.barabasi_albert_graph(400, 5, seed=0))
    split = split_edges(graph, 0.2, 0.1)
    for most in (1 << 16, 50):
        monkeypatch.setattr(graph_problem, "_WATCHED", most)
        problem, tasks = plan_graphs([GraphConfig()], graph, [split], asked="cpu")
        watched = problem.engine(tasks, problem.models(tasks)).validation[0].T.numpy()
        half = len(watched) // 2
        assert half == min(len(split.validation), most) or 25 <= half <= 50
        present = {tuple(edge) for edge in graph.edges.tolist()}
        assert all(tuple(pair) in present for pair in watched[:half].tolist())
        assert not any(tuple(pair) in present for pair in watched[half:].tolist())
