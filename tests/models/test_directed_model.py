"""Directed edges and weights of edges: against sums over pairs, written out with numpy."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
import torch

from curvae.models import FermiDirac, GraphBatch, GraphVAE, PairSampler, Posterior, WeightedEdges
from curvae.nn import AdjacencyMaker, GraphEncoder, Popularity, Space

ARCS = torch.tensor([[0, 1, 2, 0, 3, 1], [1, 2, 3, 3, 4, 0]])  # 0 and 1 both ways
WEIGHTS = torch.tensor([0.5, 1.0, 2.0, 1.0, 3.0, 1.5], dtype=torch.float64)
NODES = 6  # one of them without an edge
ORDERED = list(permutations(range(NODES), 2))
JOINED = {tuple(arc) for arc in ARCS.T.tolist()}


def model(directed: bool = True, space: str = "e2") -> GraphVAE:
    torch.manual_seed(0)
    popularity = Popularity(8, directed)
    made = GraphVAE(GraphEncoder(NODES, (8,)), Posterior(8, Space(space)), FermiDirac(0.7, 0.4), popularity=popularity)
    torch.nn.init.normal_(popularity.weight)
    return made.double()


def matrix(weights=None) -> np.ndarray:
    a = np.zeros((NODES, NODES))
    a[tuple(ARCS.numpy())] = 1.0 if weights is None else weights
    return a


def log_likelihood(S, b, weights=None, shift=0.0) -> dict[tuple[int, int], float]:
    """w·log p of every arc and log(1 − p) of every other ordered pair."""
    given = dict(zip(map(tuple, ARCS.T.tolist()), np.ones(6) if weights is None else weights, strict=True))
    found = {}
    for i, j in ORDERED:
        x = (0.7 + b[0, i] + b[1, j] - b[2, i] * b[2, j] - np.linalg.norm(S[i] - S[j])) / 0.4 + shift
        found[i, j] = -given[i, j] * np.logaddexp(0, -x) if (i, j) in given else -np.logaddexp(0, x)
    return found


@pytest.fixture
def places() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.normal(size=(NODES, 2)), random.normal(size=(3, NODES))


def slopes_by_differences(function, *values: np.ndarray, step: float = 1e-6) -> list[np.ndarray]:
    found = [np.zeros_like(value) for value in values]
    for k, value in enumerate(values):
        for place in np.ndindex(value.shape):
            sides = []
            for sign in (1, -1):
                moved = [one.copy() for one in values]
                moved[k][place] += sign * step
                sides.append(function(*moved))
            found[k][place] = (sides[0] - sides[1]) / (2 * step)
    return found


# --- likelihood -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_all_ordered_pairs_against_the_formula(places, weights):
    S, b = places
    point, own = torch.from_numpy(S).requires_grad_(), torch.from_numpy(b).requires_grad_()
    found = model().log_likelihood(point, ARCS if weights is None else WeightedEdges(ARCS, weights), own)
    np.testing.assert_allclose(found.detach(), sum(log_likelihood(S, b, weights).values()), rtol=1e-6)
    expected = slopes_by_differences(lambda S, b: sum(log_likelihood(S, b, weights).values()), S, b)
    for slope, numeric in zip(torch.autograd.grad(found, [point, own]), expected, strict=True):
        np.testing.assert_allclose(slope, numeric, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_balanced_pairs_are_unbiased_and_have_a_gradient_of_their_own(places, weights):
    S, b = places
    sampler, made = PairSampler(ARCS, NODES, directed=True, weights=weights), model()
    generator = torch.Generator().manual_seed(0)
    values = []
    for _ in range(300):
        pairs = sampler.balanced(generator)
        values.append(float(made.log_likelihood(torch.from_numpy(S), pairs, torch.from_numpy(b)).detach()))
    expected = sum(log_likelihood(S, b, weights).values())
    assert abs(np.mean(values) - expected) < 4 * np.std(values) / np.sqrt(len(values))

    def among_themselves(S, b) -> float:
        drawn = zip(pairs.nodes.T.tolist(), pairs.shift.tolist(), strict=True)
        return NODES * np.mean([log_likelihood(S, b, weights, shift)[tuple(pair)] for pair, shift in drawn])

    point, own = torch.from_numpy(S).requires_grad_(), torch.from_numpy(b).requires_grad_()
    slopes = torch.autograd.grad(made.log_likelihood(point, pairs, own), [point, own])
    for slope, numeric in zip(slopes, slopes_by_differences(among_themselves, S, b), strict=True):
        np.testing.assert_allclose(slope, numeric, rtol=1e-5, atol=1e-6)


def test_weights_of_undirected_edges_and_the_odds_that_they_lead_to():
    """With all nodes in one place the best radius has as odds the total weight over the number of other pairs."""
    made, S = model(directed=False), torch.zeros(NODES, 2, dtype=torch.float64)
    edges, weights = ARCS[:, :5], WEIGHTS[:5]
    with torch.no_grad():
        made.edges.radius.copy_(0.4 * np.log(7.5 / 10))
    every = made.log_likelihood(S, WeightedEdges(edges, weights))
    expected = 7.5 * np.log(7.5 / 17.5) + 10 * np.log(10 / 17.5)
    np.testing.assert_allclose(every.detach(), expected, rtol=1e-6)
    assert abs(float(torch.autograd.grad(every, made.edges.radius)[0])) < 1e-5
    sampled = made.log_likelihood(S, PairSampler(edges, NODES, weights=weights).draw(4))
    np.testing.assert_allclose(sampled.detach(), expected, rtol=1e-6)  # all non-edges are alike here


# --- pairs ----------------------------------------------------------------------------------------------------------


def test_every_ordered_pair_without_an_arc_is_drawn():
    sampler = PairSampler(ARCS, NODES, directed=True, weights=WEIGHTS)
    drawn = sampler.draw(24_000, generator=torch.Generator().manual_seed(0))
    counts = Counter(map(tuple, drawn.nodes[:, 6:].T.tolist()))
    assert set(counts) == set(ORDERED) - JOINED and len(counts) == 24
    assert max(abs(count - 1000) for count in counts.values()) < 5 * np.sqrt(1000)
    np.testing.assert_allclose(drawn.weight[:6], WEIGHTS)
    assert float(drawn.weight[6:].sum()) == pytest.approx(24)
    joined = PairSampler(ARCS, NODES, joined=True, directed=True)
    assert joined.rest == 20 - 6 and int(joined.balanced().nodes.max()) < 5


def test_some_of_the_arcs_are_drawn_with_their_weights():
    pairs = PairSampler(ARCS, NODES, directed=True, weights=WEIGHTS).draw(2, 3, torch.Generator().manual_seed(1))
    known = dict(zip(map(tuple, ARCS.T.tolist()), WEIGHTS.tolist(), strict=True))
    expected = [2 * known[tuple(arc)] for arc in pairs.nodes[:, :3].T.tolist()]
    np.testing.assert_allclose(pairs.weight[:3], expected)


# --- encoder and popularity -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dense", [True, False])
def test_what_the_encoder_and_the_popularity_make_of_directions(dense):
    made = model()
    adjacency = AdjacencyMaker(ARCS, NODES, WEIGHTS, dense, directed=True)()
    a = matrix(WEIGHTS) + np.eye(NODES)
    sent, received = a.sum(1), a.sum(0)
    out = a / np.sqrt(np.outer(sent, received))
    np.testing.assert_allclose(adjacency.out.to_dense(), out, rtol=1e-12)
    np.testing.assert_allclose(adjacency.into.to_dense(), out.T, rtol=1e-12)

    first = made.encoder.layers[0]
    with torch.no_grad():
        weight = first.weight.numpy()
        hidden = np.concatenate([out @ weight[:, :4], out.T @ weight[:, 4:]], 1) + first.bias.numpy()
        hidden = np.maximum(hidden, 0)
        # Of what was heard either way, a half goes on either way.
        h = np.concatenate([out @ hidden[:, [0, 1, 4, 5]], out.T @ hidden[:, [2, 3, 6, 7]]], 1)
        found = made.encoder(adjacency)
        np.testing.assert_allclose(found, h, atol=1e-12)
        torch.nn.init.normal_(made.popularity.slope)
        weight, slope = made.popularity.weight.numpy(), made.popularity.slope.numpy()
        expected = weight @ h.T
        expected[:2] += slope @ np.log([sent, received])
        np.testing.assert_allclose(made.popularity(found, adjacency), expected, atol=1e-12)


def test_sparse_matrices_give_the_same_gradient():
    noise, slopes = torch.randn(1, NODES, 2), []
    for dense in (True, False):
        made = model(space="h2")
        batch = GraphBatch(AdjacencyMaker(ARCS, NODES, WEIGHTS, dense, directed=True)(), ARCS)
        terms = made.terms(batch, noise)
        slopes.append(torch.autograd.grad(terms.reconstruction.sum() - terms.kl.sum(), list(made.parameters())))
    for one, other in zip(*slopes, strict=True):
        assert float(one.abs().max()) > 0
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_scores_and_draws_have_a_direction():
    made = model(space="h2")
    adjacency = AdjacencyMaker(ARCS, NODES, WEIGHTS, directed=True)()
    pairs = torch.tensor([[0, 1, 4], [1, 0, 5]])
    with torch.no_grad():
        h = made.encoder(adjacency)
        b = made.popularity(h, adjacency)
        expected = b[0, pairs[0]] + b[1, pairs[1]] - b[2, pairs].prod(0) - made.distances(adjacency, pairs)
        torch.testing.assert_close(made.scores(adjacency, pairs), expected)
    popularity = torch.tensor([[-1.0], [-1.0], [0.0]], dtype=torch.float64).repeat(1, 40)
    popularity[1, 7] = 4.0
    tails, heads = made.sample(40, torch.Generator().manual_seed(0), popularity)
    assert (heads == 7).sum() > 20 and (tails == 7).sum() < 5
    assert bool((tails > heads).any()) and bool((tails != heads).all())
