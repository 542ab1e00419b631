"""The benchmark of maps: its Poincaré maps, and what it makes of figures."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.spatial.distance import cdist

from curvae import Lorentz
from curvae.hierarchy import faithfulness, figures_of_maps
from curvae.training import Embedding
from paths import ROOT

sys.path.insert(0, str(ROOT))

from benchmarks import poincare_maps
from benchmarks.maps import data, lost, results, score
from benchmarks.maps.cells import Cell, compute, whole_and_folds


def brute_force_accessibilities(x, neighbours):
    """(I + L)⁻¹ by loops; the graph must be connected."""
    apart = cdist(x, x)
    near = np.argsort(apart, axis=1)[:, 1 : neighbours + 1]
    scale = np.median([apart[i, near[i, -1]] for i in range(len(x))])
    weights = np.zeros_like(apart)
    for i, row in enumerate(near):
        for j in row:
            weights[i, j] = weights[j, i] = np.exp(-(apart[i, j] ** 2) / (2 * scale**2))
    return np.linalg.inv(np.eye(len(x)) + np.diag(weights.sum(1)) - weights)


def test_accessibilities_are_those_of_the_neighbour_graph():
    x = np.random.default_rng(0).normal(size=(40, 3))
    found = poincare_maps.accessibilities(x, neighbours=6)
    np.testing.assert_allclose(found, brute_force_accessibilities(x, 6), rtol=1e-10)
    np.testing.assert_allclose(found.sum(1), 1.0)


def test_parts_of_the_graph_are_joined():
    x = np.concatenate([np.zeros((1, 2)), [[0.1, 0.0]], [[5.0, 0.0]], [[5.2, 0.0]]])
    assert (poincare_maps.accessibilities(x, neighbours=1) > 0).all()


def test_distances_are_those_of_the_hyperboloid():
    points = 3.0 * torch.randn(30, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = poincare_maps._distances(points[:10], points[10:])
    torch.testing.assert_close(found, Lorentz(2).dist(points[:10, None], points[10:]), rtol=1e-8, atol=1e-8)


def test_a_poincare_map_keeps_groups_apart_and_depends_on_the_seed_alone():
    random = np.random.default_rng(0)
    x = np.concatenate([random.normal(size=(20, 4)), 8.0 + random.normal(size=(20, 4))])
    first, again, other = (poincare_maps.poincare_map(x, seed, epochs=30) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    apart = Lorentz(2).dist(*(torch.from_numpy(first)[part] for part in (np.s_[:, None], np.s_[None]))).numpy()
    assert apart[:20, :20].mean() < apart[:20, 20:].mean() / 2


def test_every_data_set_is_in_one_half():
    assert sorted((*data.CHOICE, *data.VERDICT)) == sorted(data.SETS)


def test_maps_are_drawn_once_and_whole(tmp_path):
    rows = data.Data(np.zeros((10, 2)), np.array(()), "gaussian", np.arange(10) % data.FOLDS)
    calls = []

    def draw(cell, known):
        calls.append(cell.trained(known).sum())
        return {"y": known.x}

    cells = list(whole_and_folds("pca", "wine", range(2), True))
    for cell in [*cells, *cells]:
        compute(cell, rows, tmp_path, draw)
    assert calls == [10, 10, 8, 8, 8, 8, 8]
    assert all(np.load(cell.path(tmp_path))["seconds"] >= 0 for cell in cells)
    assert not list(tmp_path.rglob("*.part"))


def made_up(**figures):
    return {name: [value, value] for name, value in figures.items()}


@pytest.fixture
def sets():
    methods = {
        "term": made_up(qlocal=0.6, qglobal=0.8, accuracy=0.9, qlocal_paths=0.8, qglobal_paths=0.9),
        "umap": made_up(qlocal=0.5, qglobal=0.9, accuracy=0.8),
        "tsne": made_up(qlocal=0.7, qglobal=0.6, accuracy=0.85),
    }
    better = {**methods, "phate": made_up(qlocal=0.61, qglobal=0.81, accuracy=0.91)}
    return {"wine": {"maps": methods}, "digits": {"maps": better}, "krumsiek11": {"maps": better}}


def test_methods_that_are_better_in_everything_are_named(sets, tmp_path):
    assert results._verdict(sets, tmp_path, {})["better_in_all"] == {"digits": ["phate"], "wine": []}


def test_differences_are_to_the_better_of_two(sets, tmp_path):
    found = results._verdict(sets, tmp_path, {})["median_difference"]
    assert found["qlocal"]["median"] == pytest.approx(-0.1)
    assert found["qglobal"]["median"] == pytest.approx(-0.1)
    assert found["accuracy"]["each"] == pytest.approx({"digits": 0.05, "wine": 0.05})


def test_paths_of_maps():
    assert Cell("umap", "wine", 3).path(ROOT).relative_to(ROOT).as_posix() == "umap/wine/seed3.npz"
    assert Cell("umap", "wine", 3, 3).path(ROOT).relative_to(ROOT).as_posix() == "umap/wine/fold3.npz"


def test_maps_judged_together_have_the_figures_of_each():
    random = np.random.default_rng(0)
    x, labels = random.normal(size=(80, 5)), np.repeat(["a", "b"], 40)
    maps = [x[:, :2], Embedding(random.normal(size=(80, 2)), np.ones(80), 1.0)]
    held_out = np.arange(80) % 4 == 0
    each = [faithfulness(x, one, labels=labels, held_out=held_out) for one in maps]
    assert list(figures_of_maps(x, maps, labels)) == [one.map for one in each]
    assert list(figures_of_maps(x, maps, labels, held_out)) == [one.held_out for one in each]


def test_labels_are_told_by_the_nearest_training_rows():
    random = np.random.default_rng(0)
    y, labels = random.normal(size=(60, 2)), random.choice(["a", "b"], 60)
    trained = np.arange(60) % 3 > 0
    found = score.told(Embedding(y, np.ones(60), 0.0), labels, trained)
    for row in np.flatnonzero(~trained):
        near = np.argsort(((y[trained] - y[row]) ** 2).sum(1))[:5]
        told = max("ab", key=list(labels[trained][near]).count)
        assert found[row] == (told == labels[row])
    assert 0 < found[trained].mean() < 1
    apart = np.where(labels == "a", 0.0, 9.0)[:, None] + 0.1 * y
    assert score.told(Embedding(apart, np.ones(60), 0.0), labels, trained).all()


def test_rows_that_are_held_out_are_compared_with_themselves(tmp_path):
    """Whether a row is told when it is in training, and how much harder a fold is, makes no difference."""
    random = np.random.default_rng(0)
    known = data.Data(np.zeros((40, 2)), np.zeros(40), "gaussian", np.arange(40) % data.FOLDS)
    easy, kept = random.random(40) < 0.7, random.random(40) < 0.8
    cells = [Cell("term", "wine", fold, fold) for fold in range(data.FOLDS)]
    for cell in cells:
        told = easy & (cell.trained(known) | kept)
        path = cell.path(tmp_path).with_suffix(".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"told": "".join(map(str, told.astype(int)))}), encoding="utf-8")
    found = results._lost(cells, tmp_path, known)["accuracy_lost"]
    lost = easy & ~kept
    half = stats.t.ppf(0.975, 39) * np.std(lost, ddof=1) / np.sqrt(40)
    assert (found["mean"], found["rows"]) == pytest.approx((lost.mean(), half))
    each = []
    for fold in range(data.FOLDS):
        out = known.fold == fold
        each.append(easy[~out].mean() - (easy & kept)[out].mean())
    half = stats.t.ppf(0.975, 4) * np.std(each, ddof=1) * np.sqrt(1 / 5 + 1 / 4)
    assert found["folds"] == pytest.approx(half)
    assert results._lost(cells[:-1], tmp_path, known) == {}


def test_what_rows_lose_varies_with_rows_and_seeds(tmp_path):
    random = np.random.default_rng(0)
    fold, told = np.arange(30) % data.FOLDS, random.random((3 * data.FOLDS, 30)) < 0.6
    for number, right in enumerate(told):
        trained = fold != number % data.FOLDS
        data.save(lost._path(Cell("term", "digits", number), tmp_path), told=right, trained=trained)
    each = np.empty((3, 30))
    for seed in range(3):
        for row in range(30):
            with_it = [told[seed * data.FOLDS + k, row] for k in range(data.FOLDS) if k != fold[row]]
            each[seed, row] = np.mean(with_it) - told[seed * data.FOLDS + fold[row], row]
    halves = {
        name: stats.t.ppf(0.975, len(part) - 1) * np.std(part, ddof=1) / np.sqrt(len(part))
        for name, part in (("over_rows", each.mean(0)), ("over_seeds", each.mean(1)))
    }
    part = Cell("term", "digits", 3 * data.FOLDS + 1)  # of a seed that was interrupted
    data.save(lost._path(part, tmp_path), told=told[0], trained=fold != 1)
    found = lost.summary(tmp_path)
    assert list(found) == ["digits"]
    assert found["digits"].pop("by_seed") == pytest.approx(each.mean(1).tolist())
    assert found["digits"] == pytest.approx({"mean": each.mean(), "interval": np.hypot(*halves.values()), **halves})
    assert not score.drawn(tmp_path, list(data.SETS))  # none of these files is a map
