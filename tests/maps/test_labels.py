"""Labels by neighbours on the map, and how much posteriors overlap."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from curvae.errors import CurvaeError
from curvae.maps.embedding import Embedding, PlacedFactor
from curvae.maps.labels import log_overlap, transfer_labels


def test_overlaps_are_integrals():
    places, sigma = np.array([0.3, -1.1, 2.0]), np.array([0.2, 0.7, 1.5])
    pairs = np.array([[0, 1], [1, 2], [2, 0], [1, 1]])

    def integral(p, q):
        return quad(lambda x: np.sqrt(p.pdf(x) * q.pdf(x)), -12, 12)[0]

    posteriors = [norm(*one) for one in zip(places, sigma, strict=True)]
    expected = [integral(posteriors[i], posteriors[j]) for i, j in pairs]
    line = Embedding(places[:, None], sigma, 0.0)
    np.testing.assert_allclose(np.exp(log_overlap(line, pairs)), expected, rtol=1e-7)
    # In a product it is the product of those in the factors, whose distances are in their own units here.
    factors = (PlacedFactor("e1", 1, 0.0, 3.0), PlacedFactor("e2", 1, 0.0, 0.5))
    plane = Embedding(np.stack([places, -2 * places], 1), np.stack([sigma, 2 * sigma], 1), factors)
    np.testing.assert_allclose(log_overlap(plane, pairs), 2 * np.log(expected), rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("c", [0.0, 1.3])
def test_labels_by_hand(c):
    random = np.random.default_rng(0)
    made = Embedding(random.normal(size=(30, 2)), random.uniform(0.2, 1.0, 30), c)
    reference, query, labels = made.take(np.arange(22)), made.take(np.arange(22, 30)), random.choice(list("abc"), 22)
    names, probability = transfer_labels(query, reference, labels, 5)
    far = query.distances(reference)
    for row in range(8):
        near = np.argsort(far[row])[:5]
        squares = query.sigma[row] ** 2 + reference.sigma[near] ** 2
        weight = 2 * query.sigma[row] * reference.sigma[near] / squares * np.exp(-(far[row, near] ** 2) / (4 * squares))
        shares = {name: weight[labels[near] == name].sum() / weight.sum() for name in "abc"}
        assert names[row] == max(shares, key=shares.get)
        assert probability[row] == pytest.approx(shares[names[row]], rel=1e-9)


def test_far_cells_have_labels_too():
    line = Embedding(np.array([[0.0], [1.0], [500.0]]), np.full(3, 0.01), 0.0)
    names, probability = transfer_labels(line.take([2]), line.take([0, 1]), np.array(["a", "b"]), 2)
    assert names == ["b"] and probability == [1.0]
    with pytest.raises(CurvaeError, match="`k` must lie between 1 and 2, the cells of the reference; got 3"):
        transfer_labels(line.take([2]), line.take([0, 1]), np.array(["a", "b"]), 3)
