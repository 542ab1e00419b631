"""Which columns drive a map: a tree with known columns on its branches, and the geodesic in numpy."""

from __future__ import annotations

import numpy as np
import pytest

from curvae.data import Arrays
from curvae.errors import CurvaeError
from curvae.hierarchy import explain, lineages
from curvae.hierarchy.lineages import expected_rows
from curvae.training import Config, Embedding, embed, fit

ROWS = 120


@pytest.fixture(scope="module")
def tree():
    """Rows at a root and on two branches: the first moves column 0 by 6, the second column 1 by −60."""
    random = np.random.default_rng(0)
    branch = np.repeat([0, 1, 2], ROWS)
    x = random.normal(size=(3 * ROWS, 4)) * [0.5, 5.0, 1.0, 100.0] + [0.0, 0.0, 3.0, -40.0]
    x[:, 0] += 6.0 * (branch == 1)
    x[:, 1] -= 60.0 * (branch == 2)
    config = Config(
        hidden=(32,),
        steps=200,
        batch_size=64,
        weight_decay=0.0,
        noise_rate=1.0,
        patience=None,
        neighbours="off",
        likelihood="gaussian",
        posterior="wrapped",
        beta=0.3,
        learning_rate=0.05,
        seed=1,
    )
    fitted = fit(config, x)
    return fitted, embed(fitted, x), branch


def test_the_column_of_a_branch_is_found(tree):
    fitted, place, branch = tree
    root, first, second = (np.flatnonzero(branch == b) for b in range(3))
    found = explain(fitted, place, first, root)
    assert found.features[0] == 0 and found.clear[0]
    assert found.change[0] == pytest.approx(6.0, abs=1.5)
    assert 0.0 < found.change_low[0] <= found.change[0] <= found.change_high[0] < 9.0
    noise = np.isin(found.features, (2, 3))
    assert (found.travel[noise] < 0.5 * found.travel[0]).all()
    assert found.length == pytest.approx(np.median(place.distances()[np.ix_(root, first)]), rel=0.5)
    # From one branch to the other, both, in opposite directions; and backwards the signs are turned.
    found = explain(fitted, place, second, first)
    assert set(found.features[:2].tolist()) == {0, 1} and found.clear[:2].all()
    by = dict(zip(found.features.tolist(), found.change, strict=True))
    assert by[0] == pytest.approx(-6.0, abs=1.5) and by[1] == pytest.approx(-60.0, abs=15.0)
    back = explain(fitted, place, first, second)
    np.testing.assert_allclose(dict(zip(back.features.tolist(), back.change, strict=True))[1], -by[1], rtol=1e-6)


def test_single_rows_and_the_middle_of_the_map(tree, monkeypatch):
    fitted, place, branch = tree
    end = int(np.flatnonzero(branch == 2)[0])
    found = explain(fitted, place, end, columns=2, steps=5)
    assert found.features[0] == 1 and found.mean.shape == found.low.shape == (5, 2)
    np.testing.assert_allclose(found.mean[-1], fitted.reconstruct(place.space[[end]])[0, found.features], rtol=1e-5)
    # The start is not drawn.
    np.testing.assert_allclose(found.low[0], found.high[0], rtol=1e-6)
    assert (found.low[-1] < found.high[-1]).all()
    # Nor does it matter how many points are decoded at once: here, of 4 columns, 3.
    monkeypatch.setattr(lineages, "_DECODED", 12)
    again = explain(fitted, place, end, columns=2, steps=5)
    for part in ("mean", "low", "high", "change_low", "change_high"):
        np.testing.assert_allclose(getattr(again, part), getattr(found, part), rtol=1e-4, atol=1e-5)


def disc_geodesic(t, a, b):
    """By Möbius transformations of complex numbers: a to 0, along the ray, and back."""
    a, b = complex(*a), complex(*b)
    moved = (b - a) / (1 - np.conj(a) * b)
    along = np.tanh(t * np.arctanh(abs(moved))) * moved / abs(moved)
    found = (along + a) / (1 + np.conj(a) * along)
    return np.stack([found.real, found.imag], -1)


def test_the_path_is_the_geodesic_of_the_disc(tree):
    fitted, place, _ = tree
    found = explain(fitted, place, 200, 10, steps=7, draws=3)
    ball = disc_geodesic(np.linspace(0, 1, 7), place.ball[10], place.ball[200])
    space = 2 * ball / (1 - (ball**2).sum(-1, keepdims=True))
    np.testing.assert_allclose(found.mean, fitted.reconstruct(space)[:, found.features], rtol=1e-4, atol=1e-5)
    assert found.length == pytest.approx(place.distances()[10, 200], rel=1e-9)


def test_intervals_are_those_of_the_posterior(tree):
    """Where all posteriors are points, nothing is uncertain; wider ones have wider intervals."""
    fitted, place, _ = tree
    widths = []
    for sigma in (1e-9, 0.1, 0.4):
        found = explain(fitted, Embedding(place.space, np.full(len(place), sigma), place.factors), 200, 10)
        widths.append((found.change_high - found.change_low)[0])
    assert widths[0] < 1e-4 < widths[1] < widths[2]


@pytest.mark.parametrize("space", ["e2", "h2,e2"])
def test_every_space_and_covariates(space):
    random = np.random.default_rng(0)
    data = Arrays(random.poisson(3.0, (60, 5)).astype(float), context=np.eye(2)[random.integers(2, size=60)])
    fitted = fit(Config(hidden=(8,), epochs=1, space=space, likelihood="poisson"), data)
    place = embed(fitted, data)
    found = explain(fitted, place, [1, 2, 3], 0, context=np.array([0.5, 0.5]), draws=20)
    assert found.mean.shape == (21, 5) and np.isfinite(found.low).all() and (found.low <= found.high).all()
    centre = fitted.reconstruct(place.space[[0]], context=np.array([[0.5, 0.5]]))[0]
    np.testing.assert_allclose(found.mean[0], centre[found.features], rtol=1e-6)


def test_what_is_expected_at_every_row(tree):
    fitted, place, branch = tree
    found = expected_rows(fitted, place, columns=2, draws=100)
    assert set(found.features.tolist()) == {0, 1}
    np.testing.assert_allclose(found.mean, fitted.reconstruct(place.space)[:, found.features], rtol=1e-4, atol=1e-4)
    # Differences of two rows are those of the geodesic, and so, about, are their intervals.
    i, j = 5, int(np.flatnonzero(branch == 2)[3])
    along = explain(fitted, place, j, i, draws=2000)
    for k, feature in enumerate(found.features):
        here = along.features.tolist().index(feature)
        assert found.mean[j, k] - found.mean[i, k] == pytest.approx(along.change[here], rel=1e-3, abs=1e-3)
        width = 2 * 1.645 * np.hypot(found.deviation[i, k], found.deviation[j, k])
        assert width == pytest.approx(along.change_high[here] - along.change_low[here], rel=0.5)


@pytest.mark.parametrize(("rows", "says"), [([], "at least one"), ([0.5], "whole numbers"), ([999], "rows 0 to 359")])
def test_rows_that_are_not_there(tree, rows, says):
    with pytest.raises(CurvaeError, match=says):
        explain(tree[0], tree[1], rows)
