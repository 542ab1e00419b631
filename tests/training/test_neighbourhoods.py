"""Graphs of neighbours, affinities and paths against numpy, scipy and networkx; trainings with them."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.optimize import brentq
from scipy.spatial.distance import cdist
from scipy.stats import entropy

from curvae.data import Arrays
from curvae.data.dataset import Scaling
from curvae.errors import CurvaeError
from curvae.maps.statistics import bridged, neighbour_graph
from curvae.models import Batch, Layout
from curvae.settings import choose_neighbours, resolve_defaults
from curvae.training import Config, build, fit, fit_many
from curvae.training.engine import BatchEngine
from curvae.training.fitting import plan_rows
from curvae.training.neighbourhoods import (
    Neighbourhood,
    Neighbourhoods,
    _by_blocks,
    affinities,
    bridge_between,
    draws,
    landmark_paths,
    nearest,
    neighbourhood,
)
from curvae.training.rows import Rows, layout_of
from trainings import CapturedEngine

CPU = torch.device("cpu")


X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)


def _graph(x=X, k=4):
    return neighbour_graph(*nearest(x, k, CPU))


# --- the graph ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("find", [lambda: nearest(X, 5, CPU), lambda: _by_blocks(torch.from_numpy(X), 5)])
def test_nearest_rows(find):
    index, distances = find()
    every = cdist(X, X)
    np.fill_diagonal(every, np.inf)
    expected = np.sort(every, 1)[:, :5]
    np.testing.assert_allclose(np.sort(distances, 1), expected, rtol=1e-4)
    np.testing.assert_allclose(np.take_along_axis(every, index, 1), distances, rtol=1e-4)


def test_a_library_that_looks_at_fewer_pairs(monkeypatch):
    """It counts a row among its own neighbours, where it finds it."""

    class Found:
        def __init__(self, x, n_neighbors, random_state):
            every = cdist(x, x)
            every[7, 7] = np.inf  # not found
            index = np.argsort(every, 1)[:, :n_neighbors].astype(np.int32)
            self.neighbor_graph = index, np.take_along_axis(every, index, 1).astype(np.float32)

    monkeypatch.setitem(sys.modules, "pynndescent", SimpleNamespace(NNDescent=Found))
    expected = nearest(X, 5, CPU)
    monkeypatch.setattr("curvae.training.neighbourhoods._EXACT", 10)
    found = nearest(X, 5, CPU)
    assert (np.sort(found[0], 1) == np.sort(expected[0], 1)).all()
    np.testing.assert_allclose(np.sort(found[1], 1), np.sort(expected[1], 1), rtol=1e-4)


# --- near and far ---------------------------------------------------------------------------------------------------


def test_affinities_have_the_perplexity():
    """Against a search for every row by scipy, over all other rows."""
    every = cdist(X, X) ** 2
    np.fill_diagonal(every, np.inf)

    def chances(i, beta):
        weights = np.exp(-beta * (every[i] - every[i].min()))
        return weights / weights.sum()

    rows = [
        chances(i, brentq(lambda beta, i=i: np.exp(entropy(chances(i, beta))) - 7, 1e-6, 1e3)) for i in range(len(X))
    ]
    found = affinities(*nearest(X, len(X) - 1, CPU), 7).toarray()
    np.testing.assert_allclose(found, (np.stack(rows) + np.stack(rows).T) / 2, rtol=1e-3, atol=1e-9)


def test_affinities_of_rows_that_are_equal():
    found = affinities(*nearest(np.repeat(X[:5], 4, 0), 3, CPU), 2).toarray()
    np.testing.assert_allclose(found, np.kron(np.eye(5), (np.ones((4, 4)) - np.eye(4)) / 3), atol=1e-12)


def test_draws_have_the_chances():
    count = 40_000
    chances = affinities(*nearest(X[:12], 4, CPU), 3)
    found = np.stack([np.bincount(own, minlength=12) for own in draws(chances, count)]) / count
    expected = chances.toarray() / chances.sum(1)[:, None]
    np.testing.assert_allclose(found, expected, atol=5 * np.sqrt(0.25 / count))
    assert (found[expected == 0] == 0).all()


def test_paths_to_landmarks():
    graph = bridged(_graph(), bridge_between(X))
    marks, paths = landmark_paths(graph, 7)
    every = np.array(nx.floyd_warshall_numpy(nx.from_scipy_sparse_array(graph)))
    assert len(set(marks)) == 7
    np.testing.assert_allclose(paths / paths.max(), every[:, marks] / every[:, marks].max(), rtol=1e-5)
    marks, paths = landmark_paths(graph, 60)
    assert marks.tolist() == list(range(60))
    np.testing.assert_allclose(paths, every / every.mean(), rtol=1e-5)


@pytest.mark.parametrize("landmarks", [False, True])
def test_rows_have_their_neighbours_and_paths_among_those_of_the_same_categories(monkeypatch, landmarks):
    """Two groups of rows far apart, a small one that joins the larger, and a number that moves all rows."""
    if landmarks:
        monkeypatch.setattr("curvae.training.neighbourhoods._ALL_PAIRS", 16)
        monkeypatch.setattr("curvae.training.neighbourhoods._LANDMARKS", 9)
    random, batch = np.random.default_rng(0), np.repeat([0, 1, 2], [31, 25, 4])
    number, shift = random.normal(size=60), np.array([[0.0, 0, 0], [40, 0, 0], [0, -60, 0]])
    x = X.astype(np.float64)
    context = np.column_stack([np.eye(3)[batch], number])
    # What is left of random rows has no slope on the covariates: that of least squares is then exactly the one added.
    x -= context @ np.linalg.lstsq(context, x, rcond=None)[0]
    arrays = Arrays(x + shift[batch] + np.outer(number, [5.0, 0, 2]), context)
    model = build(SMALL, layout_of(arrays))
    rows = Rows(arrays, Scaling.identity(3))
    found = neighbourhood(rows, np.arange(60), model, "both", 4)
    group = np.where(batch == 1, 1, 0)
    np.testing.assert_array_equal(found.group == found.group[0], group == 0)
    assert (group[found.drawn] == group[:, None]).all()
    for own in (np.flatnonzero(group == 0), np.flatnonzero(group == 1)):
        order = cdist(x[own], x[own]).argsort(1, kind="stable")[:, 1:13]
        assert {(i, j) for i, row in zip(own, found.drawn[own], strict=True) for j in row} <= {
            pair for i, row in enumerate(own[order]) for j in row for pair in ((own[i], j), (j, own[i]))
        }
        every = np.array(
            nx.floyd_warshall_numpy(nx.from_scipy_sparse_array(bridged(_graph(x[own]), bridge_between(x[own]))))
        )
        marks = np.arange(60) if found.landmarks is None else found.landmarks
        mine = np.isin(marks, own)
        known, expected = found.far[np.ix_(own, mine)], every[:, np.searchsorted(own, marks[mine])]
        np.testing.assert_allclose(known / known.mean(), expected / expected.mean(), rtol=1e-4)
        assert (found.far[np.ix_(own, ~mine)] == -1).all()
    assert found.far.shape[1] == (9 if landmarks else 60)
    if landmarks:
        return
    np.testing.assert_array_equal(found.near[group == 0][:, group == 1], 0.0)
    made = Neighbourhoods([found], [0], CPU, 8)
    positions = torch.tensor([[0, 40, 3, 57]])
    joined = made.join(Batch(torch.zeros(1, 4, 3)), positions, lambda others: Batch(others.unsqueeze(-1).float()))
    assert (
        (joined.near[0] == -1).numpy() == (group[[0, 40, 3, 57], None] != group[[0, 40, 3, 57]]) | np.eye(4, dtype=bool)
    ).all()
    assert ((joined.far[0] == -1) == (joined.near[0] == -1)).all()


# --- batches --------------------------------------------------------------------------------------------------------


def test_rows_of_all_batches_start_at_their_angles():
    random = np.random.default_rng(0)
    turn, batch = random.uniform(0, 2 * np.pi, 120), random.integers(0, 2, 120)
    units = np.stack([np.cos(turn), np.sin(turn)], 1)
    arrays = Arrays(3 * units @ random.normal(size=(2, 4)) + 5.0 * batch[:, None], np.eye(2)[batch])
    model = build(replace(SMALL, space="s1"), layout_of(arrays))
    start = neighbourhood(Rows(arrays, Scaling.identity(4)), np.arange(120), model, "off", 15).start
    np.testing.assert_allclose(np.linalg.norm(start, axis=1), 1, rtol=1e-6)
    turned = start.T @ units / 120  # the angles themselves, up to a turn and a reflection
    assert abs(np.linalg.det(turned)) > 0.8 * 0.25


@pytest.mark.parametrize("landmarks", [None, [5, 50, 7, 8]])
@pytest.mark.parametrize("accompanied", [False, True])
@pytest.mark.parametrize("size", [8, 5])
def test_batches_are_told_their_own_neighbours(monkeypatch, landmarks, accompanied, size):
    """Of 60 rows, with all pairs known, or draws and landmarks; with or without companions, as many as a batch has
    rows, or the most."""
    monkeypatch.setattr("curvae.training.neighbourhoods._COMPANIONS", 5 if size == 8 else 99)
    monkeypatch.setattr("curvae.training.neighbourhoods._CROWDED", 59 if accompanied else 60)
    chances, draw = affinities(*nearest(X, 12, CPU), 4), np.random.default_rng(0)
    every, drawn = chances.toarray().astype(np.float32), draws(chances, 9)
    far = draw.random((60, 4 if landmarks else 60)).astype(np.float32)
    if landmarks:
        each = [Neighbourhood(None, drawn, far, np.array(landmarks))] * 2
        every = np.stack([np.bincount(own, minlength=60) for own in drawn])
    else:
        each = [Neighbourhood(every, drawn, far, None)] * 2
    made = Neighbourhoods(each, [1, 1, 0, 1], CPU, size).keep([1, 2, 3])
    positions = torch.from_numpy(np.stack([draw.permutation(60)[:8] for _ in range(3)]))
    positions[:, 7] = positions[:, 6]  # fills up the batch
    kept = torch.tensor([1.0] * 7 + [0.0])

    asked = [torch.empty(3, 0, dtype=torch.long)]

    def rows(others):
        asked.append(others)
        return Batch(others.unsqueeze(-1).float())

    batch = made.join(Batch(torch.zeros(3, 8, 2)), positions, rows, kept)
    others = asked[-1].numpy()
    assert others.shape[1] == (5 if accompanied else 0) + len(landmarks or ())
    assert (batch.companions is None) == (others.size == 0)
    for model in range(3):
        own = positions[model, :7].numpy()
        placed = np.concatenate([positions[model].numpy(), others[model]])
        if accompanied:
            assert all(mate in drawn[row] for mate, row in zip(others[model][:5], own, strict=False))
        counts = placed != own[:, None]
        counts[:, 7] = False
        for j in range(8, len(placed)):
            counts[:, j] &= placed[j] not in placed[:j]
        expected = np.where(counts, every[np.ix_(own, placed)], 0.0)
        expected /= np.maximum(expected.sum(1, keepdims=True), 1e-30)
        np.testing.assert_allclose(batch.near[model, :7], np.where(counts, expected, -1), atol=1e-6)
        assert (batch.near[model, 7] == -1).all()
        if landmarks:
            known = far[np.ix_(own, [landmarks.index(mark) for mark in placed[-4:]])]
            assert (batch.far[model, :, :-4] == -1).all()
            np.testing.assert_array_equal(batch.far[model, :7, -4:], np.where(counts[:, -4:], known, -1))
        else:
            np.testing.assert_array_equal(batch.far[model, :7], np.where(counts, far[np.ix_(own, placed)], -1))
        assert (batch.far[model, 7] == -1).all()


# --- trainings ------------------------------------------------------------------------------------------------------

SMALL = Config(likelihood="gaussian", hidden=(8,), dropout=0.3, jitter=0.8, epochs=3, batch_size=16, neighbours="both")


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({}, np.asarray),
        ({"neighbours": "near"}, sparse.csr_array),
        ({"neighbours": "far", "curvature": 0.0}, np.asarray),
        ({"space": "h2,e1"}, sparse.csr_array),
    ],
)
def test_trainings_in_a_stack_as_alone(settings, kind):
    x = kind(np.abs(X).astype(np.float64))
    configs = [replace(SMALL, seed=seed, **settings) for seed in range(2)]
    stacked = fit_many(configs, x)
    for config, found in zip(configs, stacked, strict=True):
        alone = fit(config, x)
        for name, value in alone.model.named_parameters():
            torch.testing.assert_close(found.model.get_parameter(name), value, rtol=1e-4, atol=1e-6)
        for record, other in zip(alone.history, found.history, strict=True):
            assert record["neighbours"] == pytest.approx(other["neighbours"], rel=1e-4)


@pytest.fixture
def few(monkeypatch):
    """All that is done with many rows, with few."""
    monkeypatch.setattr("curvae.training.neighbourhoods._ALL_PAIRS", 16)
    monkeypatch.setattr("curvae.training.neighbourhoods._LANDMARKS", 9)
    monkeypatch.setattr("curvae.training.neighbourhoods._BATCH_LANDMARKS", 5)
    monkeypatch.setattr("curvae.training.neighbourhoods._CROWDED", 1)
    monkeypatch.setattr("curvae.training.neighbourhoods._COMPANIONS", 7)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_many_rows_in_a_stack_as_alone(few, kind):
    x = kind(np.abs(X).astype(np.float64))
    configs = [replace(SMALL, seed=seed) for seed in range(2)]
    for config, found in zip(configs, fit_many(configs, x), strict=True):
        alone = fit(config, x)
        for name, value in alone.model.named_parameters():
            torch.testing.assert_close(found.model.get_parameter(name), value, rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("quick_tracing")
@pytest.mark.parametrize(("many", "kind"), [(False, np.asarray), (True, sparse.csr_array)])
def test_captured_steps_are_the_plain_ones(request, many, kind):
    """Also where the last batch is filled up, for rows at hand and for rows that are fed."""
    if many:
        request.getfixturevalue("few")
    x = kind(np.abs(X).astype(np.float64))
    problem, tasks = plan_rows([replace(SMALL, seed=seed) for seed in range(2)], x, dtype=torch.float64)
    found = []
    for engine in (BatchEngine, CapturedEngine):
        models = problem.models(tasks)
        made = problem.engine(tasks, models)
        own = engine(models, made.configs, made.train, made.validation)
        found.append([(own.epoch(epoch).means, own.validate()) for epoch in range(2)])
    torch.testing.assert_close(*found, rtol=1e-7, atol=1e-7)


def test_resumed_as_if_never_interrupted(tmp_path, few):
    x, config = X.astype(np.float64), replace(SMALL, patience=5, epochs=4, cooldown=0.0)
    whole = fit(config, x)
    fit(replace(config, epochs=2), x, folder=tmp_path)
    resumed = fit(config, x, folder=tmp_path, resume=True)
    for name, value in whole.model.named_parameters():
        assert torch.equal(resumed.model.get_parameter(name), value)
    assert [r["neighbours"] for r in resumed.history] == [r["neighbours"] for r in whole.history]


def test_the_term_is_learned():
    x = X.astype(np.float64)
    plain = replace(SMALL, init="random", dropout=0.0, jitter=0.0)
    found = fit(replace(plain, epochs=12, neighbours_weight=100.0, learning_rate=5e-2), x)
    assert found.config.neighbours_weight == 100.0
    assert found.history[-1]["neighbours"] < 0.7 * found.history[0]["neighbours"]


# --- by default -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "layout", "rows", "why"),
    [
        ({}, {}, 40, ""),
        ({"space": "h2,e1"}, {}, 40, ""),
        ({"dim": 3}, {}, 100_000, ""),
        ({"dim": 1}, {}, 40, "dimension is 1"),
        ({"dim": 4}, {}, 40, "dimension is 4"),
        ({"space": "h2,e3"}, {}, 40, "dimension is 5"),
        ({"network": "conv"}, {}, 40, "convolutional"),
        ({}, {"size": True, "covariates": 2}, 40, ""),
        ({}, {}, 100_001, "more than 100,000 rows"),
        ({}, {}, 2, "fewer than 3 rows"),
    ],
)
def test_neighbours_count_where_maps_are_looked_at(settings, layout, rows, why):
    config = Config(**settings)
    found, reason = choose_neighbours(config, Layout(5, **layout), rows)
    assert (found == "off") == bool(why) and why in reason and found in ("off", "both")
    resolved = resolve_defaults(replace(config, batch_size=8), (rows, 0), Layout(5, **layout))
    assert resolved.neighbours == found and resolved.init == ("random" if why else "pca")
    assert (resolved.neighbours_weight is None) == bool(why)
    for kind in ("off", "far"):
        assert choose_neighbours(replace(config, neighbours=kind), Layout(5, **layout), rows) == (kind, "as asked")


def test_weights_count_and_rows_without_weight_are_no_neighbours():
    x = np.random.default_rng(0).normal(size=(40, 3))
    config = Config(hidden=(4,), epochs=1)
    for weight, kind in ((np.linspace(1, 2, 40), "both"), (np.arange(40.0), "off")):
        assert fit(config, Arrays(x, weight=weight)).config.neighbours == kind


def test_few_rows_rows_that_are_alike_and_single_columns():
    random = np.random.default_rng(0)
    config = Config(hidden=(4,), epochs=2, validation=0.0)
    for x in (random.normal(size=(2, 3)), random.normal(size=(3, 3)), np.ones((30, 2)), random.normal(size=(30, 1))):
        found = fit(config, x)
        assert found.config.neighbours == ("off" if len(x) < 3 else "both")
        assert np.isfinite([record["elbo"] for record in found.history]).all()


def test_values_that_are_too_large_to_compare():
    x = np.where(np.arange(40)[:, None] == 3, 1e38, np.random.default_rng(0).normal(size=(40, 60)))
    config = Config(hidden=(4,), epochs=1, standardise=False, likelihood="gaussian", init="random")
    with pytest.raises(CurvaeError, match='too large to tell which rows are near each other.*neighbours="off"'):
        fit(config, x)


def test_true_and_false():
    assert Config(neighbours=True).neighbours == "both"
    assert Config(neighbours=False) == Config(neighbours="off")


def test_early_stopping_goes_by_both():
    found = fit(replace(SMALL, epochs=6, patience=6), X.astype(np.float64))
    best = max(found.history, key=lambda record: record["validation_elbo"] - record["neighbours"])
    assert found.last is best
