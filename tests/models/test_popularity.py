"""Popularity and side of nodes, and balanced pairs: against sums over all pairs, written out with numpy."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import torch

from curvae.models import FermiDirac, GeodesicEdges, GraphBatch, GraphVAE, PairSampler, Posterior
from curvae.nn import AdjacencyMaker, FreeVectors, GraphEncoder, Popularity, Space, normalised_adjacency

EDGES = torch.tensor([[0, 1, 2, 0, 3], [1, 2, 3, 3, 4]])
NODES = 7  # two of them without an edge
DEGREES = np.array([2, 2, 2, 3, 1, 0, 0])


def model(popular: bool = True, space: str = "e2") -> GraphVAE:
    torch.manual_seed(0)
    popularity = Popularity(8) if popular else None
    made = GraphVAE(GraphEncoder(NODES, (8,)), Posterior(8, Space(space)), FermiDirac(0.7, 0.4), popularity=popularity)
    if popularity is not None:
        torch.nn.init.normal_(popularity.weight)
    return made.double()


def log_odds(S: np.ndarray, b: np.ndarray) -> dict[tuple[int, int], float]:
    """(r + b_i + b_j − s_i·s_j − d)/t of every pair, of points of the plane; b_i and s_i are the rows of b."""
    pairs, (b, s) = combinations(range(len(S)), 2), b
    return {(i, j): (0.7 + b[i] + b[j] - s[i] * s[j] - np.linalg.norm(S[i] - S[j])) / 0.4 for i, j in pairs}


def log_likelihood(odds: dict[tuple[int, int], float], shift: float = 0.0) -> dict[tuple[int, int], float]:
    joined = {tuple(edge) for edge in EDGES.T.tolist()}
    return {pair: -np.logaddexp(0, -x - shift if pair in joined else x + shift) for pair, x in odds.items()}


@pytest.fixture
def places() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.normal(size=(NODES, 2)), random.normal(size=(2, NODES))


def test_all_pairs_against_the_formula(places):
    S, b = places
    expected = sum(log_likelihood(log_odds(S, b)).values())
    found = model().log_likelihood(torch.from_numpy(S), EDGES, torch.from_numpy(b))
    np.testing.assert_allclose(found.detach(), expected, rtol=1e-6)
    plain = model(popular=False).log_likelihood(torch.from_numpy(S), EDGES)
    np.testing.assert_allclose(plain.detach(), sum(log_likelihood(log_odds(S, 0 * b)).values()), rtol=1e-6)


def test_popularity_is_read_off_the_degrees():
    head = Popularity(3).double()
    h, weights = (
        torch.randn(NODES, 3, dtype=torch.float64),
        torch.tensor([0.5, 1.0, 2.0, 1.0, 3.0], dtype=torch.float64),
    )
    torch.nn.init.normal_(head.weight)
    degrees = np.zeros(NODES)
    for (i, j), w in zip(EDGES.T.tolist(), weights.tolist(), strict=True):
        degrees[[i, j]] += w
    expected = head.weight.detach().numpy() @ h.numpy().T
    expected[0] += 0.5 * np.log1p(degrees)
    for dense in (True, False):
        adjacency = normalised_adjacency(EDGES, NODES, weights, dense)
        np.testing.assert_allclose(head(h, adjacency).detach(), expected, rtol=1e-12)


def test_scores_rank_pairs_as_probabilities_do():
    made, adjacency = model(), normalised_adjacency(EDGES, NODES).double()
    pairs = torch.triu_indices(NODES, NODES, 1)
    with torch.no_grad():
        encoded = made.encoder(adjacency, None)
        S, b = made.posterior(encoded).loc.numpy(), made.popularity(encoded, adjacency).numpy()
        found = made.scores(adjacency, pairs).numpy()
    odds = log_odds(S, b)
    np.testing.assert_allclose(0.7 + found, [0.4 * odds[pair] for pair in map(tuple, pairs.T.tolist())], rtol=1e-6)


def test_edge_models_that_end_at_0_are_refused():
    for edges in (GeodesicEdges(), FermiDirac(squared=True)):
        with pytest.raises(ValueError, match="popularity needs an edge model"):
            GraphVAE(GraphEncoder(3), Posterior(32, Space("h2")), edges, popularity=Popularity(32))


# --- balanced pairs -------------------------------------------------------------------------------------------------


def test_balanced_pairs_lie_between_nodes_with_edges():
    sampler = PairSampler(EDGES, NODES, joined=True)
    pairs = sampler.balanced()
    assert pairs.nodes.shape == (2, 10) and pairs.present.tolist() == [1] * 5 + [0] * 5
    assert sampler.shift == 0.0 and pairs.shift.shape == (10,)
    assert PairSampler(EDGES, NODES).shift == pytest.approx(np.log(16 / 5))
    drawn = torch.cat([sampler.balanced().nodes for _ in range(50)], 1)
    assert set(drawn.unique().tolist()) == {0, 1, 2, 3, 4}
    joined = {tuple(edge) for edge in EDGES.T.tolist()}
    missing = {tuple(pair) for k in range(50) for pair in drawn[:, 10 * k + 5 : 10 * k + 10].T.sort(1).values.tolist()}
    assert missing == set(combinations(range(5), 2)) - joined


def test_balanced_pairs_have_the_value_of_all_pairs_and_a_gradient_of_their_own(places):
    """The value is unbiased for the likelihood of all pairs; the gradient is that of these pairs among themselves."""
    S, b = places
    sampler, made = PairSampler(EDGES, NODES), model()
    generator = torch.Generator().manual_seed(0)
    each = log_likelihood(log_odds(S, b))
    values = []
    for _ in range(400):
        pairs = sampler.balanced(generator)
        values.append(float(made.log_likelihood(torch.from_numpy(S), pairs, torch.from_numpy(b)).detach()))
    expected = sum(each.values())
    assert abs(np.mean(values) - expected) < 4 * np.std(values) / np.sqrt(len(values))

    step, shifts = 1e-6, pairs.shift.numpy()
    point, own = torch.from_numpy(S).requires_grad_(), torch.from_numpy(b).requires_grad_()
    slopes = torch.autograd.grad(made.log_likelihood(point, pairs, own), [point, own])

    def among_themselves(S: np.ndarray, b: np.ndarray) -> float:
        odds = log_odds(S, b)
        drawn = zip(pairs.nodes.T.tolist(), shifts, strict=True)
        return NODES * np.mean([log_likelihood(odds, shift)[tuple(sorted(pair))] for pair, shift in drawn])

    for k, (values, slope) in enumerate(zip((S, b), slopes, strict=True)):
        numeric = np.zeros_like(values)
        for place in np.ndindex(values.shape):
            sides = []
            for sign in (1, -1):
                moved = [S.copy(), b.copy()]
                moved[k][place] += sign * step
                sides.append(among_themselves(*moved))
            numeric[place] = (sides[0] - sides[1]) / (2 * step)
        np.testing.assert_allclose(slope, numeric, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("present", [None, 3])
def test_shifts_and_weights_are_those_of_how_often_pairs_are_drawn(directed, present, monkeypatch):
    """A hub with four neighbours of six: pairs of their degrees are often joined, or twice the same node."""
    edges = torch.tensor([[0, 0, 0, 0, 1, 4], [1, 2, 3, 4, 2, 5]])
    if present:
        monkeypatch.setattr("curvae.models.graph_vae._PRESENT", present)
    sampler, generator = PairSampler(edges, 7, directed=directed), torch.Generator().manual_seed(0)
    drawn, known = Counter(), {}
    for _ in range(repeats := 1500):
        pairs = sampler.balanced(generator)
        nodes = pairs.nodes if directed else pairs.nodes.sort(0).values
        places = list(zip(*nodes.tolist(), pairs.present.tolist(), strict=True))
        drawn.update(places)
        known.update(zip(places, zip(pairs.shift.tolist(), pairs.weight.tolist(), strict=True), strict=True))
    count = 42 if directed else 21
    assert len(drawn) == count and sum(edge for *_, edge in drawn) == 6
    rate = (present or 6) / 6
    for (*_, edge), (shift, weight) in known.items():
        assert weight == pytest.approx(1 / rate if edge else np.exp(shift) / rate)
    for place, times in drawn.items():
        expected = repeats * (rate if place[-1] else rate / np.exp(known[place][0]))
        assert abs(times - expected) <= 5 * np.sqrt(expected)


def test_balanced_pairs_lead_to_the_same_odds_as_all_pairs():
    """With all nodes in one place and equal degrees the best radius has the odds of the edges among all pairs."""
    made, S = model(popular=False), torch.zeros(NODES, 2, dtype=torch.float64)
    ring = torch.stack([torch.arange(NODES), torch.arange(1, NODES + 1) % NODES])
    sampler, generator = PairSampler(ring, NODES), torch.Generator().manual_seed(0)
    radius, absent = made.edges.radius, NODES * (NODES - 3) / 2
    with torch.no_grad():
        radius.copy_(0.4 * np.log(NODES / absent))
    pairs = sampler.balanced(generator)
    np.testing.assert_allclose(pairs.shift, np.log(absent / NODES), rtol=1e-12)
    assert abs(float(torch.autograd.grad(made.log_likelihood(S, pairs), radius)[0])) < 1e-6
    made.edges.lower(2.0)
    assert float(radius.detach()) == pytest.approx(0.4 * (np.log(NODES / absent) - 2.0))


# --- parts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dense", [True, False])
def test_a_matrix_of_some_of_the_edges(dense):
    maker = AdjacencyMaker(EDGES, NODES, torch.tensor([1.0, 2.0, 1.0, 3.0, 1.0]), dense)
    shown = torch.tensor([2.0, 0.0, 2.0, 2.0, 0.0])
    expected = np.eye(NODES)
    for (i, j), w in zip(maker.edges.T.tolist(), (maker._weights * shown).tolist(), strict=True):
        expected[i, j] = expected[j, i] = w
    root = np.diag(expected.sum(1) ** -0.5)
    np.testing.assert_allclose(maker(shown).to_dense(), root @ expected @ root, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(maker(shown).sum(), (root @ expected @ root).sum(), rtol=1e-6)


def test_popular_nodes_get_more_edges_in_a_sample():
    made = model(space="h2")
    popularity = torch.tensor([[4.0, *[-1.0] * 39], [0.0] * 40], dtype=torch.float64)
    edges = made.sample(40, torch.Generator().manual_seed(0), popularity)
    degrees = torch.bincount(edges.flatten(), minlength=40)
    assert degrees[0] > 20 and degrees[1:].double().mean() < 5


def test_nodes_of_one_side_are_not_joined_in_a_sample():
    side = torch.tensor([4.0, -4.0], dtype=torch.float64).repeat(20)
    popularity = torch.stack([torch.full_like(side, -5.0), side])
    tails, heads = model(space="h2").sample(40, torch.Generator().manual_seed(0), popularity)
    assert len(tails) > 100 and bool(((tails + heads) % 2 == 1).all())


def test_free_vectors_do_not_depend_on_the_edges():
    free = FreeVectors(NODES, 4)
    some, none = (normalised_adjacency(edges, NODES) for edges in (EDGES, EDGES[:, :0]))
    assert torch.equal(free(some), free(none)) and free(some).shape == (NODES, 4)
    made = GraphVAE(free, Posterior(4, Space("h2")), FermiDirac(), popularity=Popularity(4))
    sampler = PairSampler(EDGES, NODES, joined=True)
    graph = GraphBatch(some, sampler.balanced())
    terms = made.terms(graph, made.noise(NODES))
    assert terms.kl.shape == (1, NODES) and terms.reconstruction.shape == (1,)
