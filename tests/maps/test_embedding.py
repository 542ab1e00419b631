"""Pictures that another seed leaves alike, and the spread of rows over maps, against known isometries and numpy."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.optimize import minimize

from curvae import Lorentz
from curvae.geometry import hyperboloid as h
from curvae.maps.embedding import (
    PlacedFactor,
    align_maps,
    frames_from_json,
    frames_to_json,
    orient,
    principal_scores,
    sampled_rows,
    seen_radius,
)
from curvae.training import Embedding

PRODUCT = (PlacedFactor("h1", 2, 0.7, 2.0), PlacedFactor("e2", 3, 0.0, 0.5), PlacedFactor("h3", 1, 1.5, 1.0))


def cloud(factors=PRODUCT, rows=50, seed=0):
    """A map, skewed in every direction."""
    random = np.random.default_rng(seed)
    v = random.normal(size=(rows, sum(factor.dim for factor in factors)))
    sigma = np.ones((rows, len(factors))) if len(factors) > 1 else np.ones(rows)
    return Embedding.from_tangent(v + 0.3 * v**2, sigma, factors)


def moved(embedding, far=1.0, seed=1):
    """Another place for every factor, turned and mirrored."""
    random = torch.Generator().manual_seed(seed)
    spaces = []
    for part in embedding.parts:
        turn = torch.linalg.qr(torch.randn(part.dim, part.dim, dtype=torch.float64, generator=random))[0]
        away = torch.randn(part.dim, dtype=torch.float64, generator=random)
        to = h.expmap0(far * away / away.norm(), part.c)
        spaces.append(h.translate(to, torch.from_numpy(part.space) @ turn, part.c))
    return replace(embedding, space=torch.cat(spaces, 1).numpy())


def test_principal_scores_are_those_of_numpy():
    x = np.random.default_rng(0).normal(size=(40, 5)) @ np.diag([5.0, 1, 3, 2, 1]) + 7
    x[:, 1] += x[:, 0]
    scaled = (x - x.mean(0)) / x.std(0)
    left, size, _ = np.linalg.svd(scaled, full_matrices=False)
    expected = left[:, :2] * size[:2]
    found = principal_scores(x)
    signs = np.sign((found * expected).sum(0))
    np.testing.assert_allclose(found, signs * expected, atol=1e-9)
    np.testing.assert_allclose(principal_scores(sparse.csr_array(x)), found, atol=1e-8)
    np.testing.assert_array_equal(principal_scores(x), found)
    # A constant column says nothing, whatever its value, and a gap is the mean.
    np.testing.assert_allclose(principal_scores(np.column_stack([x, np.full(40, 9.0)])), found, atol=1e-9)
    gap, filled = x.copy(), x.copy()
    gap[3, 2] = np.nan
    filled[3, 2] = np.delete(x[:, 2], 3).mean()
    np.testing.assert_allclose(np.abs(np.corrcoef(principal_scores(gap).T, principal_scores(filled).T)[0, 2]), 1, 1e-3)


def test_principal_scores_of_few_columns():
    x = np.arange(6.0)[:, None]
    for data in (x, sparse.csr_array(x)):
        found = principal_scores(data)
        assert found.shape == (6, 2) and not found[:, 1].any()
        assert abs(np.corrcoef(found[:, 0], x[:, 0])[0, 1]) == pytest.approx(1)


def test_rows_by_which_maps_are_turned():
    np.testing.assert_array_equal(sampled_rows(7), np.arange(7))
    some = sampled_rows(20_000)
    assert len(some) == len(set(some)) == 5000 and (some == sampled_rows(20_000)).all()


def test_pictures_of_a_product_do_not_depend_on_isometries():
    place, rows = cloud(), np.arange(5, 45)
    scores = np.random.default_rng(3).normal(size=(40, 2))
    other = moved(place)
    for root in (None, 2):
        one, two = (orient(embedding, rows, scores, root) for embedding in (place, other))
        for k, factor in enumerate(PRODUCT):
            a, b = (
                frames[k].apply(torch.from_numpy(embedding.parts[k].space))
                for frames, embedding in ((one, place), (two, other))
            )
            assert a.shape == (50, 2) and Lorentz(2, factor.c).dist(a, b).max() < 1e-8
        np.testing.assert_allclose(seen_radius(place, one), seen_radius(other, two), atol=1e-8)
    np.testing.assert_allclose(seen_radius(place, one), place.distances()[:, 2], atol=1e-8)


def test_frames_are_stored_to_the_last_bit():
    place = cloud()
    frames = orient(place, np.arange(50), np.random.default_rng(0).normal(size=(50, 2)))
    stored = json.loads(json.dumps(frames_to_json(frames)))
    for one, again in zip(frames, frames_from_json(stored, PRODUCT), strict=True):
        assert torch.equal(one.centre, again.centre) and torch.equal(one.axes, again.axes) and one.c == again.c
    for wrong in (stored[:2], stored[::-1]):
        with pytest.raises(ValueError, match=r"dimensions|zip"):
            frames_from_json(wrong, PRODUCT)


@pytest.mark.parametrize(
    ("factors", "far"), [(PRODUCT, 1.0), (PRODUCT, 20.0), (PRODUCT[:1], 20.0), (PRODUCT[1:2], 1.0)]
)
def test_isometric_maps_have_no_spread(factors, far):
    place = cloud(factors)
    found = align_maps([place, moved(place, far), moved(place, 0.5, 2)])
    assert found is not None and found.copies.shape == (3, 50, place.dim)
    assert found.spread.max() < (1e-8 if far < 20 else 1e-4)
    for copy in found.copies:
        assert np.abs(copy - place.space).max() < 1e-3
    # The maps may lie anywhere: the first too.
    again = align_maps([moved(place, far), place])
    assert again is not None and again.spread.max() < (1e-8 if far < 20 else 1e-4)


@pytest.mark.parametrize("c", [0.0, 0.8])
def test_spread_is_measured_from_the_mean_of_the_places(c):
    place = cloud((PlacedFactor("h1", 2, c),))
    random = np.random.default_rng(5)
    copies = [place]
    for seed in range(3):
        shift = torch.from_numpy(0.2 * random.normal(size=(50, 2)))
        near = h.expmap(torch.from_numpy(place.space), shift, c).numpy()
        copies.append(moved(replace(place, space=near), seed=seed))
    found = align_maps(copies)
    assert found is not None
    space = Lorentz(2, c)
    for row in (0, 17):
        places = torch.from_numpy(found.copies[:, row].copy())

        def cost(x, places=places):
            return float(space.dist(torch.from_numpy(x), places).square().mean())

        best = minimize(cost, found.copies[0, row], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-12})
        assert found.spread[row] == pytest.approx(np.sqrt(best.fun), rel=1e-4)
    # About the noise that was added, twice a square of 0.2, in three copies of four.
    assert 0.15 < np.sqrt(np.mean(found.spread**2)) < 0.3


def test_the_spread_of_a_product_is_in_its_units():
    place = cloud()
    shifted = place.space.copy()
    shifted[:, 2:5] += 0.1 * np.random.default_rng(0).normal(size=(50, 3))  # in the flat factor
    found = align_maps([place, replace(place, space=shifted)])
    assert found is not None
    gaps = np.linalg.norm(found.parts[1][0] - found.parts[1][1], axis=1)
    np.testing.assert_allclose(found.spread, gaps / 2 / 0.5, atol=1e-6)


def test_maps_of_other_curvatures_are_left_out():
    place = cloud((PlacedFactor("h1", 2, 1.0),))
    other = replace(place, factors=(PlacedFactor("h1", 2, 1.1),))
    assert align_maps([place, other]) is None
    found = align_maps([place, other, moved(place)])
    assert found is not None and len(found.copies) == 2
