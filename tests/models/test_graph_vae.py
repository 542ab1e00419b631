"""The graph model: convolutions, edge models, likelihoods of all pairs and of samples, and their gradients."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations, pairwise, permutations

import mpmath as mp
import numpy as np
import pytest
import torch
from torch.func import functional_call, grad, grad_and_value, stack_module_state, vmap
from torch.nn import functional as F

from combining import every_pair
from curvae import Lorentz
from curvae.errors import CurvaeError
from curvae.geometry import pairs as geometry
from curvae.geometry.pairs import distances, sum_over_pairs
from curvae.models import (
    FermiDirac,
    GeodesicEdges,
    GraphBatch,
    GraphVAE,
    Pairs,
    PairSampler,
    Posterior,
    Stack,
    WeightedEdges,
    graph_vae as sampling,
)
from curvae.models.graph_vae import joined_nodes
from curvae.nn import (
    AdjacencyMaker,
    FreeVectors,
    GraphEncoder,
    HyperbolicFactor,
    Popularity,
    Space,
    normalised_adjacency,
    undirected,
)
from oracles import ball_dist, lorentz_to_ball, mpf, random_directions, relative, vector
from products import PRODUCTS

CURVATURES = pytest.mark.parametrize("c", [0.0, 1e-6, 0.3, 1.0, 4.0])


LAWS = pytest.mark.parametrize("law", ["wrapped", "riemannian"])


FLOOR = 1e-3


# A square with a tail and a node of its own.
EDGES = torch.tensor([[0, 1, 2, 0, 3], [1, 2, 3, 3, 4]])


NODES = 6


def tensor(value, **options) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64, **options)


def points(count: int, dim: int, c: float, scale: float = 0.7) -> torch.Tensor:
    return Lorentz(dim, c).expmap0(scale * torch.randn(count, dim, dtype=torch.float64))


@pytest.fixture(params=["geodesic", "fermi", "fermi-squared"])
def edges(request):
    if request.param == "geodesic":
        return GeodesicEdges(FLOOR)
    return FermiDirac(1.3, 0.4, squared=request.param == "fermi-squared")


def model(c=1.0, law="wrapped", edges=None, nodes=NODES, learn=False, diagonal=False, weight=2.0, features=None, dim=3):
    posterior = Posterior(8, Space([HyperbolicFactor(dim, c, learn, law, diagonal)]))
    return GraphVAE(GraphEncoder(features or nodes, (8,)), posterior, edges or GeodesicEdges(FLOOR), weight)


def log_odds(d, edges):
    """log p and log(1 − p) from their definitions, in the precision of mpmath."""
    if isinstance(edges, GeodesicEdges):
        d = max(d, mp.mpf(edges.floor))
        return mp.log(1 - mp.tanh(d)), mp.log(mp.tanh(d))
    radius, temperature = (mpf(t.detach()) for t in edges.numbers())
    p = 1 / (1 + mp.exp(((d**2 if edges.squared else d) - radius) / temperature))
    return mp.log(p), mp.log(1 - p)


def brute_force(S: torch.Tensor, graph: torch.Tensor, c: float, edges) -> mp.mpf:
    """Π_{i≠j} p(A_ij | z_i, z_j) by the paper's distance in the ball."""
    joined = {frozenset(e) for e in graph.T.tolist()}
    balls = [lorentz_to_ball(vector(row), mpf(c)) for row in S]
    total = mp.mpf(0)
    for i, j in permutations(range(len(S)), 2):
        log_p, log_q = log_odds(ball_dist(balls[i], balls[j], mpf(c)), edges)
        total += log_p if frozenset((i, j)) in joined else log_q
    return total


# --- edge models ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_edge_models_equal_their_definitions(edges, dtype):
    """From coincident nodes to a distance of 400, and derivatives in distance and parameters."""
    single = dtype == torch.float32
    d = torch.tensor([0.0, 0.9e-3, 1.1e-3, 0.02, 0.5, 1.3, 3.0, 10.0, 40.0, 400.0], dtype=dtype).requires_grad_()
    numbers = [t.detach().to(dtype).requires_grad_() for t in edges.numbers()]
    value, *slopes = edges.absence(d, *numbers)
    logits = edges.logits(d)
    present, missing = (edges.log_prob(d, torch.full_like(d, float(a))) for a in (1, 0))
    bound = 2e-6 if single else 1e-13
    with mp.workdps(400):
        for i, x in enumerate(d.detach()):
            log_p, log_q = log_odds(mpf(x), edges)
            # Relative precision, so that far pairs count too; p = 1 to some digits is log p = 0.
            far = 1e-30 if single else 1e-36
            for found, truth, smallest in ((value, log_q, far), (missing, log_q, far), (present, log_p, 1e-3)):
                # An exponential has the relative error of its argument's absolute one.
                size = float(1 + abs(log_p - log_q))
                assert relative(found[i].detach(), truth, smallest) < (1.5e-7 * size if single else 1e-11)
            assert relative(logits[i].detach(), log_p - log_q) < bound
            assert relative(edges.probability(d)[i].detach(), mp.exp(log_p)) < bound
    plain = torch.autograd.grad(value.sum(), [d, *numbers])
    for found, expected in zip(slopes, plain, strict=True):
        total = found if expected.dim() else found.sum()
        torch.testing.assert_close(total.detach(), expected, rtol=1e-4 if single else 1e-10, atol=1e-30)
    for found in torch.autograd.grad((present + missing).sum(), [d]):
        assert found.isfinite().all()


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_the_floor_bounds_what_coincident_nodes_cost():
    edges = GeodesicEdges(0.01)
    value, slope = edges.absence(tensor([0.0, 0.005, 0.01]))
    torch.testing.assert_close(value, tensor([math.log(math.tanh(0.01))] * 3))
    assert slope.tolist()[:2] == [0, 0] and abs(float(slope[2]) - 2 / math.sinh(0.02)) < 1e-9
    # A probability all the same.
    both = [edges.log_prob(tensor([0.0, 0.02]), tensor([float(a)] * 2)).exp() for a in (0, 1)]
    torch.testing.assert_close(both[0] + both[1], tensor([1.0, 1.0]))


# --- distances and their sums ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("c", "radius", "apart"),
    every_pair([0.0, 1e-6, 0.3, 1.0, 4.0], [0.0, 1e-9, 1.0, 6.0, 20.0], [1e-6, 0.01, 1.0, 40.0]),
)
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_distances_and_gradients_equal_arbitrary_precision(c, radius, apart):
    """Also the gradients, in metric units: those in S are small along the radius of a far point."""
    reach = radius / math.sqrt(max(c, 1e-3))
    u = torch.stack([reach * random_directions(1, 3, 1)[0], torch.zeros(3, dtype=torch.float64)])
    space = Lorentz(3, c)
    S = space.expmap0(u)
    u[1] = space.logmap0(space.expmap(S[0], apart * random_directions(1, 3, 2)[0]))
    u.requires_grad_()
    S, k = space.expmap0(u), tensor(c)
    listed = distances(S, torch.tensor([[0], [1]]), k)[0]
    summed = sum_over_pairs(S, k, lambda d: (d, torch.ones_like(d)))
    # What rounding the points does to the distance: a far point moves by ε·|S| across its radius.
    size = float(S.detach().abs().max())
    error = 1e-15 * (1 + size + reach) + 1e-13 * apart

    def distance(*flat):
        ends = []
        for v in (flat[:3], flat[3:]):
            length = mp.sqrt(mp.fdot(v, v))
            s = mp.sqrt(mpf(c)) * length
            ends.append([x * (mp.sinh(s) / s if s else 1) for x in v])
        return ball_dist(*(lorentz_to_ball(end, mpf(c)) for end in ends), mpf(c))

    with mp.workdps(80):
        flat = [mpf(x) for x in u.detach().flatten()]
        assert abs(mpf(listed.detach()) - distance(*flat)) < error
        truth = [mp.diff(distance, flat, tuple(int(i == j) for j in range(6)), h=mp.mpf(10) ** -30) for i in range(6)]
    truth = tensor([float(t) for t in truth]).view(2, 3)
    torch.testing.assert_close(summed, listed, rtol=1e-14, atol=error)
    if size * 1e-16 > 1e-4 * apart:
        return  # rounded points have another direction to each other
    for value in (listed, summed):
        (slope,) = torch.autograd.grad(value, u, retain_graph=True)
        # Turning a far point by an angle moves it by the angle times its length in S.
        bound = 1e-12 + 20 * error / apart
        assert (slope - truth).abs().max() < (truth.abs().max() + 1) * bound
        unit = F.normalize(u.detach(), dim=-1)
        assert ((slope - truth) * unit).sum(-1).abs().max() < 10 * bound


@CURVATURES
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_likelihood_equals_brute_force(edges, c):
    """50 digits, over ordered pairs, for all pairs and for listed ones, in double and single precision."""
    network, S = model(c, edges=edges).double(), points(NODES, 3, c)
    c = float(network.space.curvatures()[0].double())
    every = torch.tensor(list(combinations(range(NODES), 2))).T
    joined = {tuple(sorted(e)) for e in EDGES.T.tolist()}
    present = tensor([float(tuple(pair) in joined) for pair in every.T.tolist()])
    with mp.workdps(50):
        truth = brute_force(S, EDGES, c, edges)
        for dtype, bound in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
            network = network.to(dtype)
            network.space.factors[0].curvature.fixed.fill_(c)
            for pairs in (EDGES, EDGES.flip(0), Pairs(every, present.to(dtype), torch.ones(15))):
                assert relative(2 * network.log_likelihood(S, pairs).detach(), truth) < bound
        moved = EDGES.clone()
        moved[1, 4] = 5
        assert relative(2 * network.log_likelihood(S, moved).detach(), truth) > 1e-3


@LAWS
@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("c", [0.0, 0.8])
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_terms(law, diagonal, c):
    """Reconstruction and divergence of the very draws that the posterior makes from the noise."""
    if diagonal and law == "riemannian":
        return
    network = model(c, law, diagonal=diagonal).double()
    adjacency, noise = normalised_adjacency(EDGES, NODES).double(), torch.randn(2, NODES, 3, dtype=torch.float64)
    reconstruction, kl = network.terms(GraphBatch(adjacency, EDGES), noise)
    q = network.encode(adjacency)
    z, log_q = q.transform_and_log_prob(noise)
    torch.testing.assert_close(kl, log_q - network.prior().log_prob(z), rtol=1e-9, atol=1e-9)
    c = float(network.space.curvatures()[0])
    for found, S in zip(reconstruction, z, strict=True):
        assert relative(found.detach(), brute_force(S.detach(), EDGES, c, network.edges)) < 1e-11
    assert reconstruction.shape == (2,) and kl.shape == (2, NODES)
    elbo = network.elbo(adjacency, EDGES, beta=0.5, noise=noise)
    torch.testing.assert_close(elbo, (reconstruction - 0.5 * kl.sum(-1)).mean())
    once = model(c, law, diagonal=diagonal, weight=1.0).double()
    once.load_state_dict(network.state_dict())
    torch.testing.assert_close(once(GraphBatch(adjacency, EDGES), noise).reconstruction, reconstruction / 2)


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_curvature_zero_is_the_euclidean_model(diagonal):
    """Written in bare torch, with the same weights and noise: terms and gradients; and the limit from above."""
    small, flat = (model(c, diagonal=diagonal).double() for c in (1e-12, 0.0))
    state = {k: v for k, v in flat.state_dict().items() if not k.endswith("fixed")}
    small.load_state_dict(state, strict=False)
    adjacency, noise = normalised_adjacency(EDGES, NODES).double(), torch.randn(2, NODES, 3, dtype=torch.float64)
    layer = flat.encoder.layers[0]
    head = flat.posterior.head(adjacency @ (adjacency @ layer.weight + layer.bias).relu())
    mu, sigma = 2 * head[:, :3], F.softplus(head[:, 3:]) + 1e-8
    z = mu + sigma * noise
    d = (z.unsqueeze(-2) - z.unsqueeze(-3)).square().sum(-1)[(slice(None), *torch.triu_indices(NODES, NODES, 1))].sqrt()
    adjoined = torch.zeros(NODES, NODES, dtype=torch.bool).index_put(tuple(EDGES), torch.tensor(True))
    joined = (adjoined | adjoined.T)[tuple(torch.triu_indices(NODES, NODES, 1))]
    p = 1 - d.tanh()
    reconstruction = 2 * torch.where(joined, p, 1 - p).log().sum(-1)
    normal = torch.distributions.Normal
    kl = (normal(mu, sigma).log_prob(z) - normal(tensor(0.0), 1.0).log_prob(z)).sum(-1)
    plain = [reconstruction, kl, *torch.autograd.grad(reconstruction.sum() - kl.sum(), list(flat.parameters()))]
    for network, bound in ((flat, 1e-7), (small, 1e-6)):
        terms = network.terms(GraphBatch(adjacency, EDGES), noise)
        slopes = torch.autograd.grad(terms.reconstruction.sum() - terms.kl.sum(), list(network.parameters()))
        for a, b in zip([*terms, *slopes], plain, strict=True):
            torch.testing.assert_close(a, b, rtol=bound, atol=bound)


# --- gradients ------------------------------------------------------------------------------------------------------


def likelihood(network, pairs, names):
    """As a function of points and of some of the model's numbers."""

    def f(S, *values):
        return functional_call(Likelihood(network), dict(zip(names, values, strict=True)), (S, pairs))

    return f


class Likelihood(torch.nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, S, pairs):
        return self.network.log_likelihood(S, pairs)


@pytest.mark.parametrize(
    ("edges", "sampled", "curvature"),
    every_pair(
        ["geodesic", "fermi", "fermi-squared"],
        [False, True],
        [(0.0, False), (1e-3, False), (1e-3, True), (0.7, True)],  # learned or not
    ),
    indirect=["edges"],
)
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_gradients_equal_differences(edges, sampled, curvature):
    c, learn = curvature
    network = model(c, edges=edges, learn=learn).double()
    S = points(NODES, 3, c).requires_grad_()
    pairs = PairSampler(EDGES, NODES).draw(8) if sampled else EDGES
    names = [f"network.edges.{name}" for name, _ in edges.named_parameters()]
    if learn:
        names.append("network.posterior.space.factors.0.curvature.log_c")
    values = [dict(Likelihood(network).named_parameters())[name].detach().double().requires_grad_() for name in names]
    f = likelihood(network, pairs, names)
    assert torch.autograd.gradcheck(f, (S, *values), eps=1e-6, atol=1e-6, rtol=1e-6)
    if not sampled or c == 0.7:  # all pairs with every curvature and every model of edges, listed ones with some
        assert torch.autograd.gradgradcheck(f, (S, *values), atol=1e-4, rtol=1e-4, fast_mode=True)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_gradient_in_a_fixed_curvature():
    """Without the hint that it is wanted, down to c = 0, where it is one-sided."""
    S = points(40, 3, 1.0)
    every = torch.triu_indices(40, 40, 1)
    edges = GeodesicEdges()
    for c in (0.0, 1e-5, 0.5, 3.0):
        k = tensor(c, requires_grad=True)

        def total(k, dtype=torch.float64, learned=False):
            return sum_over_pairs(S, k, edges.absence, dtype=dtype, learned=learned)

        found = [torch.autograd.grad(total(k, learned=learned), k)[0] for learned in (False, True)]
        found.append(torch.autograd.grad(edges.absence(distances(S, every, k))[0].sum(), k)[0])
        width = 1e-6 * (1 + c)
        with torch.no_grad():
            difference = (4 * total(k + width) - 3 * total(k) - total(k + 2 * width)) / (2 * width)
        for slope in found:
            torch.testing.assert_close(slope, difference, rtol=1e-6, atol=1e-6)
        (rough,) = torch.autograd.grad(total(k, torch.float32, True), k)
        torch.testing.assert_close(rough, difference, rtol=1e-4, atol=1e-4)


@LAWS
@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_gradient_of_the_elbo_equals_differences(law, learn):
    """In all parameters at once, along a random direction."""
    network = model(0.8, law, FermiDirac(1.0, 0.5), learn=learn, features=4).double()
    adjacency, noise = normalised_adjacency(EDGES, NODES).double(), torch.randn(2, NODES, 3, dtype=torch.float64)
    x = torch.randn(NODES, 4, dtype=torch.float64)
    parameters = list(network.parameters())
    slopes = torch.autograd.grad(network.elbo(adjacency, EDGES, noise=noise, features=x), parameters)
    assert all(slope.isfinite().all() and slope.any() for slope in slopes)
    directions = [torch.randn_like(p) for p in parameters]
    along = sum((g * v).sum() for g, v in zip(slopes, directions, strict=True))
    values = []
    with torch.no_grad():
        for step in (1e-5, -2e-5):
            for p, v in zip(parameters, directions, strict=True):
                p += step * v
            values.append(network.elbo(adjacency, EDGES, noise=noise, features=x))
    difference = (values[0] - values[1]) / 2e-5
    assert abs(along - difference) < 1e-6 * (1 + abs(difference))


@pytest.mark.parametrize(
    ("edges", "c", "dtype"),
    every_pair(["geodesic", "fermi", "fermi-squared"], [0.0, 1e-6, 0.3, 1.0, 4.0], [torch.float32, torch.float64]),
    indirect=["edges"],
)
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_coincident_and_far_nodes(edges, c, dtype):
    """Nodes at one point, at the origin and off it, and two that are 40 apart: finite values and gradients."""
    network = model(c, edges=edges, dim=2).to(dtype)
    u = tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 2.0], [1.0, 2.0], [-12.0, 16.0], [12.0, -16.0]]).requires_grad_()
    space = Lorentz(2, float(network.space.curvatures()[0]))
    assert abs(float(space.dist(*space.expmap0(u[4:])).detach()) - 40) < 1e-10
    # Joined and not: the two far ones, the two at the origin, the two off it.
    for graph in (EDGES, torch.tensor([[4], [5]]), torch.tensor([[0, 2], [1, 3]])):
        S = space.expmap0(u)
        value = network.log_likelihood(S, graph)
        with mp.workdps(60):
            truth = brute_force(S.detach(), graph, float(space.c), edges)
        assert relative(2 * value.detach(), truth) < (1e-5 if dtype == torch.float32 else 1e-11)
        slope = torch.autograd.grad(value, u, retain_graph=True)[0]
        assert value.isfinite() and slope.isfinite().all() and slope.any()
        every = PairSampler(graph, NODES).draw(200)
        assert torch.autograd.grad(network.log_likelihood(S, every), u)[0].isfinite().all()
    # The last graph treats the two of a point alike, so the same forces act on both: none between them.
    for i in (0, 2):
        torch.testing.assert_close(slope[i], slope[i + 1], rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_far_out_everything_stays_finite(edges):
    S = Lorentz(2, 1.0).expmap0(tensor([[100.0, 0.0], [-100.0, 0.0], [0.0, 150.0], [0.0, 0.0]])).requires_grad_()
    for dtype in (torch.float32, torch.float64):
        value = model(1.0, edges=edges, dim=2).to(dtype).log_likelihood(S, torch.tensor([[0, 1], [1, 2]]))
        assert value.isfinite() and torch.autograd.grad(value, S)[0].isfinite().all()


@pytest.mark.parametrize("count", [0, 3, 50])
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_distances_of_few_and_of_many_pairs(count):
    """Of few pairs only their points are looked at; repeated points, and a pair of a point with itself."""
    random = torch.Generator().manual_seed(count)
    S = torch.randn(2, 40, 3, generator=random, dtype=torch.float64).requires_grad_()
    c = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
    pairs = torch.randint(40, (2, 2, count), generator=random)
    pairs[..., :1] = 7
    weight = torch.randn(2, count, generator=random, dtype=torch.float64)
    found = distances(S, pairs, c)
    slopes = torch.autograd.grad((weight * found).sum(), (S, c))
    for k in range(2):
        own = S[k].detach().requires_grad_(), c[k].detach().requires_grad_()
        i, j = pairs[k]
        x, y, root = own[0][i], own[0][j], own[1].sqrt()
        times = [(1 + own[1] * (point * point).sum(-1)).sqrt() for point in (x, y)]
        # 4·sinh²(√c·d/2), from the chord between the points of the hyperboloid
        square = own[1] * ((x - y) ** 2).sum(-1) - (times[0] - times[1]) ** 2
        expected = torch.where(i == j, 0.0, 2 / root * (torch.where(i == j, 1.0, square) / 4).sqrt().asinh())
        torch.testing.assert_close(found[k], expected)
        alone = distances(S[k], pairs[k], c[k])
        torch.testing.assert_close(alone, found[k])
        wanted = torch.autograd.grad((weight[k] * expected).sum(), own)
        single = torch.autograd.grad((weight[k] * alone).sum(), (S, c))
        for slope, one, value in zip(slopes, single, wanted, strict=True):
            torch.testing.assert_close(slope[k], value)
            torch.testing.assert_close(one[k], value)


@pytest.mark.parametrize("rows", [1, 7, 160])
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_blocks_of_the_matrix_of_pairs(rows, monkeypatch):
    """Any division gives the sum over listed pairs; leading dimensions with a curvature each are sums of their own."""
    monkeypatch.setattr(geometry, "_ROWS", rows)
    n = 40 if rows < 160 else 330
    c = tensor([[0.0], [0.4], [2.0]])
    S = torch.stack([points(2 * n, 3, float(k)).view(2, n, 3) for k in c[:, 0]]).requires_grad_()
    edges, numbers = FermiDirac(1.2, 0.3).double(), (tensor([[0.5, 1.0]]), tensor([[0.2], [0.5], [1.0]]))
    weights = torch.randn(3, 2, dtype=torch.float64)
    every = torch.triu_indices(n, n, 1)
    leaves = [S, c.requires_grad_(), *(t.requires_grad_() for t in numbers)]
    total = sum_over_pairs(S, c, edges.absence, *numbers, learned=True)
    listed = edges.absence(distances(S, every, c), *(t.unsqueeze(-1) for t in numbers))[0].sum(-1)
    assert total.shape == (3, 2)
    torch.testing.assert_close(total, listed, rtol=1e-12, atol=1e-12)
    found, expected = (torch.autograd.grad((weights * t).sum(), leaves) for t in (total, listed))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
    for i, j in ((0, 1), (2, 0)):
        alone = sum_over_pairs(S[i, j], c[i, 0], edges.absence, numbers[0][0, j], numbers[1][i, 0])
        torch.testing.assert_close(total[i, j], alone, rtol=1e-12, atol=1e-12)
    with torch.no_grad():
        torch.testing.assert_close(sum_over_pairs(S, c, edges.absence, *numbers), total, rtol=0, atol=0)
    single = sum_over_pairs(S, c, edges.absence, *numbers, dtype=torch.float32)
    torch.testing.assert_close(single, total, rtol=1e-6, atol=0)
    slope = torch.autograd.grad((weights * single).sum(), S)[0]
    torch.testing.assert_close(slope, found[0], rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_memory_of_all_pairs_is_bounded():
    sizes = geometry._blocks(50_000, 1, torch.device("cpu"))
    assert sizes[0][0] == 0 and sizes[-1][1] == 50_000
    assert all(a[1] == b[0] for a, b in pairwise(sizes))
    assert max(b - a for a, b in sizes) * 50_000 <= geometry._NUMBERS_CPU


# --- samples of pairs -----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_places_of_pairs():
    every = torch.tensor([(i, j) for j in range(60) for i in range(j)]).T
    assert torch.equal(sampling.pair_places(every, 60), torch.arange(60 * 59 // 2))
    assert torch.equal(sampling._pairs_at(torch.arange(60 * 59 // 2), 60, False), every)
    j = torch.tensor([2, 10**5, 3 * 10**8, 2 * 10**9])
    ends = torch.cat([torch.stack([torch.zeros_like(j), j]), torch.stack([j - 1, j])], 1)
    assert torch.equal(sampling._pairs_at(sampling.pair_places(ends, 2 * 10**9 + 1), 2 * 10**9 + 1, False), ends)


@pytest.mark.parametrize("graph", [EDGES, EDGES.flip(0), torch.tensor([[0, 4], [1, 5]]), EDGES[:, :0]])
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_non_edges_are_drawn_evenly(graph):
    count, rest = 30_000, 15 - graph.shape[1]
    pairs = PairSampler(graph, NODES).draw(count, generator=torch.Generator().manual_seed(2))
    joined = {frozenset(e) for e in graph.T.tolist()}
    i, j = pairs.nodes[:, pairs.present == 0]
    assert ((i >= 0) & (i < j) & (j < NODES)).all()
    drawn, counts = torch.unique(j * NODES + i, return_counts=True)
    assert len(drawn) == rest and not any(frozenset((k % NODES, k // NODES)) in joined for k in drawn.tolist())
    deviation = math.sqrt(count / rest * (1 - 1 / rest))
    assert (counts - count / rest).abs().max() < 4 * deviation
    assert torch.equal(pairs.nodes[:, pairs.present == 1], graph)
    again = PairSampler(graph, NODES).draw(count, generator=torch.Generator().manual_seed(2))
    assert torch.equal(pairs.nodes, again.nodes)


@pytest.mark.parametrize("present", [None, 3])
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_samples_are_unbiased(present):
    """Mean of value and gradient over many samples, in standard errors of that mean."""
    network, count = model(0.7).double(), 600
    S = points(NODES, 3, 0.7).requires_grad_()
    generator = torch.Generator().manual_seed(3)
    sampler = PairSampler(EDGES, NODES)
    samples = [sampler.draw(4, present, generator) for _ in range(count)]
    each = Pairs(*(torch.stack(parts) for parts in zip(*samples, strict=True)))
    slopes, values = vmap(grad_and_value(network.log_likelihood), in_dims=(None, 0))(S, each)
    rows = torch.cat([values[:, None], slopes.flatten(1)], 1).detach()
    value = network.log_likelihood(S, EDGES)
    exact = torch.cat([value.detach()[None], torch.autograd.grad(value, S)[0].flatten()])
    error = rows.std(0) / math.sqrt(count)
    assert 0 < error[0] < 0.03 * exact[0].abs()
    assert ((rows.mean(0) - exact).abs() < 4.5 * error + 1e-12).all()


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_large_graphs_need_memory_for_the_sample_only():
    n = 300_000  # 45 billion pairs
    edges = torch.stack([torch.arange(1, n) // 2, torch.arange(1, n)])[:, :5000]
    pairs = PairSampler(edges, n).step(torch.Generator().manual_seed(0))
    assert isinstance(pairs, Pairs) and pairs.nodes.shape == (2, 55_000)
    assert abs(float(pairs.weight.sum()) / (n * (n - 1) // 2) - 1) < 1e-9
    S = points(n, 2, 1.0).requires_grad_()
    value = model(dim=2).log_likelihood(S, pairs)
    assert torch.autograd.grad(value, S)[0].isfinite().all()


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_a_large_graph_with_a_sparse_matrix():
    n = 9000
    edges = torch.stack([torch.arange(1, n) // 2, torch.arange(1, n)])
    adjacency, network = normalised_adjacency(edges, n, dense=False), model(nodes=n)
    elbo = network.elbo(adjacency, PairSampler(edges, n).step(torch.Generator().manual_seed(0)))
    elbo.backward()
    assert all(p.grad.isfinite().all() and p.grad.any() for p in network.parameters())


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_refusals_of_samples():
    with pytest.raises(ValueError, match="between 1 and 5, got 6"):
        PairSampler(EDGES, NODES).draw(3, present=6)
    with pytest.raises(ValueError, match="between 1 and 5, got 0"):
        PairSampler(EDGES, NODES).draw(3, present=0)
    with pytest.raises(ValueError, match="at least 1, got 0"):
        PairSampler(EDGES, NODES).draw(0)
    with pytest.raises(CurvaeError, match="every pair of nodes is joined"):
        PairSampler(torch.triu_indices(4, 4, 1), 4)


# --- the model ------------------------------------------------------------------------------------------------------


@LAWS
@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_many_models_at_once(law, learn, sampled):
    """Stacked parameters, each model with its own curvature and graph: values and gradients equal those alone."""
    networks = [model(c, law, FermiDirac(1.0, 0.5), learn=learn) for c in (0.4, 1.3)]
    graphs = [EDGES, torch.tensor([[0, 1, 5, 4, 2], [5, 2, 4, 1, 3]])]
    adjacency = torch.stack([normalised_adjacency(graph, NODES) for graph in graphs])
    samples = [PairSampler(graph, NODES).draw(7) for graph in graphs]
    pairs = Pairs(*map(torch.stack, zip(*samples, strict=True))) if sampled else torch.stack(graphs)
    graph, noise = GraphBatch(adjacency, pairs), torch.randn(2, 3, NODES, 3)
    parameters, buffers = stack_module_state(networks)

    def terms(parameters, buffers, *data):
        return functional_call(networks[0], (parameters, buffers), data, tie_weights=False)

    def loss(*arguments):
        reconstruction, kl = terms(*arguments)
        return (kl.sum(-1) - reconstruction).mean()

    together = vmap(terms)(parameters, buffers, graph, noise)
    assert together.reconstruction.shape == (2, 3) and together.kl.shape == (2, 3, NODES)
    leaves = list(parameters.values())
    outer = torch.autograd.grad((together.kl.sum(-1) - together.reconstruction).mean(1).sum(), leaves)
    inner = vmap(grad(loss))(parameters, buffers, graph, noise)
    for i, network in enumerate(networks):
        one = samples[i] if sampled else graphs[i]
        alone = network.terms(GraphBatch(adjacency[i], one), noise[i])
        for a, b in zip(together, alone, strict=True):
            torch.testing.assert_close(a[i], b, rtol=1e-5, atol=1e-5)
        slopes = torch.autograd.grad((alone.kl.sum(-1) - alone.reconstruction).mean(), list(network.parameters()))
        for (name, a), b, expected in zip(inner.items(), outer, slopes, strict=True):
            torch.testing.assert_close(a[i], expected, rtol=1e-3, atol=1e-4, msg=name)
            torch.testing.assert_close(b[i], expected, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_vmap_over_one_argument():
    S, c, edges = points(20, 3, 1.0), tensor([0.0, 0.5, 2.0]), GeodesicEdges()
    pairs = torch.stack([torch.randint(20, (2, 9)) for _ in range(3)])
    for f, arguments in (
        (lambda c: sum_over_pairs(S, c, edges.absence), (c,)),
        (lambda c: distances(S, pairs[0], c), (c,)),
        (lambda pairs: distances(S, pairs, c[1]), (pairs,)),
        (lambda S: sum_over_pairs(S, c[1], edges.absence), (torch.stack([S, 2 * S]),)),
    ):
        alone = torch.stack([f(*each) for each in zip(*arguments, strict=True)])
        torch.testing.assert_close(vmap(f)(*arguments), alone, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_compiles_whole(sampled):
    network, adjacency, noise = model(0.7), normalised_adjacency(EDGES, NODES), torch.randn(1, NODES, 3)
    graph = GraphBatch(adjacency, PairSampler(EDGES, NODES).draw(7) if sampled else EDGES)

    S = points(NODES, 3, 0.7).float().requires_grad_()
    leaves = [S] if sampled else list(network.parameters())

    def loss():
        if sampled:  # the rest of the model is the same
            return network.log_likelihood(S, graph.pairs)
        reconstruction, kl = network.terms(graph, noise)
        return kl.sum() - reconstruction.sum()

    torch._dynamo.reset()
    results = []
    # That the graph is whole shows without the next stage, which test_transforms takes.
    for f in (torch.compile(loss, fullgraph=True, backend="eager"), loss):
        value = f()
        results.append([value, *torch.autograd.grad(value, leaves)])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("law", "c"), [("wrapped", 0.0), ("riemannian", 1.0)])
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_training_finds_the_edges(law, c):
    """A ring of cliques: after some steps joined nodes are nearer to each other than others."""
    size, count = 4, 5
    inside = [(i + size * k, j + size * k) for k in range(count) for i, j in combinations(range(size), 2)]
    graph = torch.tensor(inside + [(size * k, size * ((k + 1) % count) + 1) for k in range(count)]).T
    n = size * count
    network, adjacency = model(c, law, nodes=n, dim=2), normalised_adjacency(graph, n)
    optimiser = torch.optim.Adam(network.parameters(), 0.05)
    first = network.elbo(adjacency, graph, k=20).detach()
    for _ in range(90):
        optimiser.zero_grad()
        (-network.elbo(adjacency, graph)).backward()
        optimiser.step()
    assert network.elbo(adjacency, graph, k=20) > first + 100
    with torch.no_grad():
        joined = network.distances(adjacency, undirected(graph, n)[0])
        others = network.distances(adjacency, PairSampler(graph, n).draw(200).nodes[:, graph.shape[1] :])
    assert (joined[:, None] < others).double().mean() > 0.9


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_refusals():
    with pytest.raises(ValueError, match="positive number, got 0"):
        model(weight=0.0)
    with pytest.raises(ValueError, match="at least 1, got 0"):
        model().noise(6, 0)
    for bad in (0.0, -1.0, math.inf):
        with pytest.raises(ValueError, match="floor must be a positive number"):
            GeodesicEdges(bad)
        with pytest.raises(ValueError, match="temperature must be a positive number"):
            FermiDirac(1.0, bad)
    assert "c=1" in repr(model()) and "floor=0.001" in repr(model())
    assert "radius=2, temperature=1, squared=False" in repr(FermiDirac()) and "6, 8" in repr(model().encoder)


# --- popularity and side of nodes, and balanced pairs ----------------------------------------------------------------


POPULAR_NODES = 7  # two of them without an edge


DEGREES = np.array([2, 2, 2, 3, 1, 0, 0])


def popular_model(popular: bool = True, space: str = "e2") -> GraphVAE:
    torch.manual_seed(0)
    popularity = Popularity(8) if popular else None
    made = GraphVAE(
        GraphEncoder(POPULAR_NODES, (8,)), Posterior(8, Space(space)), FermiDirac(0.7, 0.4), popularity=popularity
    )
    if popularity is not None:
        torch.nn.init.normal_(popularity.weight)
    return made.double()


def popular_log_odds(S: np.ndarray, b: np.ndarray) -> dict[tuple[int, int], float]:
    """(r + b_i + b_j − s_i·s_j − d)/t of every pair, of points of the plane; b_i and s_i are the rows of b."""
    pairs, (b, s) = combinations(range(len(S)), 2), b
    return {(i, j): (0.7 + b[i] + b[j] - s[i] * s[j] - np.linalg.norm(S[i] - S[j])) / 0.4 for i, j in pairs}


def log_likelihood(odds: dict[tuple[int, int], float], shift: float = 0.0) -> dict[tuple[int, int], float]:
    joined = {tuple(edge) for edge in EDGES.T.tolist()}
    return {pair: -np.logaddexp(0, -x - shift if pair in joined else x + shift) for pair, x in odds.items()}


@pytest.fixture
def places() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.normal(size=(POPULAR_NODES, 2)), random.normal(size=(2, POPULAR_NODES))


def test_all_pairs_against_the_formula(places):
    S, b = places
    expected = sum(log_likelihood(popular_log_odds(S, b)).values())
    found = popular_model().log_likelihood(torch.from_numpy(S), EDGES, torch.from_numpy(b))
    np.testing.assert_allclose(found.detach(), expected, rtol=1e-6)
    plain = popular_model(popular=False).log_likelihood(torch.from_numpy(S), EDGES)
    np.testing.assert_allclose(plain.detach(), sum(log_likelihood(popular_log_odds(S, 0 * b)).values()), rtol=1e-6)


def test_popularity_is_read_off_the_degrees():
    head = Popularity(3).double()
    h, weights = (
        torch.randn(POPULAR_NODES, 3, dtype=torch.float64),
        torch.tensor([0.5, 1.0, 2.0, 1.0, 3.0], dtype=torch.float64),
    )
    torch.nn.init.normal_(head.weight)
    degrees = np.zeros(POPULAR_NODES)
    for (i, j), w in zip(EDGES.T.tolist(), weights.tolist(), strict=True):
        degrees[[i, j]] += w
    expected = head.weight.detach().numpy() @ h.numpy().T
    expected[0] += 0.5 * np.log1p(degrees)
    for dense in (True, False):
        adjacency = normalised_adjacency(EDGES, POPULAR_NODES, weights, dense)
        np.testing.assert_allclose(head(h, adjacency).detach(), expected, rtol=1e-12)


def test_scores_rank_pairs_as_probabilities_do():
    made, adjacency = popular_model(), normalised_adjacency(EDGES, POPULAR_NODES).double()
    pairs = torch.triu_indices(POPULAR_NODES, POPULAR_NODES, 1)
    with torch.no_grad():
        encoded = made.encoder(adjacency, None)
        S, b = made.posterior(encoded).loc.numpy(), made.popularity(encoded, adjacency).numpy()
        found = made.scores(adjacency, pairs).numpy()
    odds = popular_log_odds(S, b)
    np.testing.assert_allclose(0.7 + found, [0.4 * odds[pair] for pair in map(tuple, pairs.T.tolist())], rtol=1e-6)


def test_edge_models_that_end_at_0_are_refused():
    for edges in (GeodesicEdges(), FermiDirac(squared=True)):
        with pytest.raises(ValueError, match="popularity needs an edge model"):
            GraphVAE(GraphEncoder(3), Posterior(32, Space("h2")), edges, popularity=Popularity(32))


# --- balanced pairs -------------------------------------------------------------------------------------------------


def test_balanced_pairs_lie_between_nodes_with_edges():
    sampler = PairSampler(EDGES, POPULAR_NODES, joined=True)
    pairs = sampler.balanced()
    assert pairs.nodes.shape == (2, 10) and pairs.present.tolist() == [1] * 5 + [0] * 5
    assert sampler.shift == 0.0 and pairs.shift.shape == (10,)
    assert PairSampler(EDGES, POPULAR_NODES).shift == pytest.approx(np.log(16 / 5))
    drawn = torch.cat([sampler.balanced().nodes for _ in range(50)], 1)
    assert set(drawn.unique().tolist()) == {0, 1, 2, 3, 4}
    joined = {tuple(edge) for edge in EDGES.T.tolist()}
    missing = {tuple(pair) for k in range(50) for pair in drawn[:, 10 * k + 5 : 10 * k + 10].T.sort(1).values.tolist()}
    assert missing == set(combinations(range(5), 2)) - joined


def test_balanced_pairs_have_the_value_of_all_pairs_and_a_gradient_of_their_own(places):
    """The value is unbiased for the likelihood of all pairs; the gradient is that of these pairs among themselves."""
    S, b = places
    sampler, made = PairSampler(EDGES, POPULAR_NODES), popular_model()
    generator = torch.Generator().manual_seed(0)
    each = log_likelihood(popular_log_odds(S, b))
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
        odds = popular_log_odds(S, b)
        drawn = zip(pairs.nodes.T.tolist(), shifts, strict=True)
        return POPULAR_NODES * np.mean([log_likelihood(odds, shift)[tuple(sorted(pair))] for pair, shift in drawn])

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
    repeats = 800
    draws = [sampler.balanced(generator) for _ in range(repeats)]
    nodes, joined, shifts, weights = (
        torch.cat([getattr(pairs, part) for pairs in draws], -1) for part in ("nodes", "present", "shift", "weight")
    )
    nodes = nodes if directed else nodes.sort(0).values
    places = list(zip(*nodes.tolist(), joined.tolist(), strict=True))
    drawn = Counter(places)
    known = dict(zip(places, zip(shifts.tolist(), weights.tolist(), strict=True), strict=True))
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
    made, S = popular_model(popular=False), torch.zeros(POPULAR_NODES, 2, dtype=torch.float64)
    ring = torch.stack([torch.arange(POPULAR_NODES), torch.arange(1, POPULAR_NODES + 1) % POPULAR_NODES])
    sampler, generator = PairSampler(ring, POPULAR_NODES), torch.Generator().manual_seed(0)
    radius, absent = made.edges.radius, POPULAR_NODES * (POPULAR_NODES - 3) / 2
    with torch.no_grad():
        radius.copy_(0.4 * np.log(POPULAR_NODES / absent))
    pairs = sampler.balanced(generator)
    np.testing.assert_allclose(pairs.shift, np.log(absent / POPULAR_NODES), rtol=1e-12)
    assert abs(float(torch.autograd.grad(made.log_likelihood(S, pairs), radius)[0])) < 1e-6
    made.edges.lower(2.0)
    assert float(radius.detach()) == pytest.approx(0.4 * (np.log(POPULAR_NODES / absent) - 2.0))


# --- parts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dense", [True, False])
def test_a_matrix_of_some_of_the_edges(dense):
    maker = AdjacencyMaker(EDGES, POPULAR_NODES, torch.tensor([1.0, 2.0, 1.0, 3.0, 1.0]), dense)
    shown = torch.tensor([2.0, 0.0, 2.0, 2.0, 0.0])
    expected = np.eye(POPULAR_NODES)
    for (i, j), w in zip(maker.edges.T.tolist(), (maker._weights * shown).tolist(), strict=True):
        expected[i, j] = expected[j, i] = w
    root = np.diag(expected.sum(1) ** -0.5)
    np.testing.assert_allclose(maker(shown).to_dense(), root @ expected @ root, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(maker(shown).sum(), (root @ expected @ root).sum(), rtol=1e-6)


def test_popular_nodes_get_more_edges_in_a_sample():
    made = popular_model(space="h2")
    popularity = torch.tensor([[4.0, *[-1.0] * 39], [0.0] * 40], dtype=torch.float64)
    edges = made.sample(40, torch.Generator().manual_seed(0), popularity)
    degrees = torch.bincount(edges.flatten(), minlength=40)
    assert degrees[0] > 20 and degrees[1:].double().mean() < 5


def test_nodes_of_one_side_are_not_joined_in_a_sample():
    side = torch.tensor([4.0, -4.0], dtype=torch.float64).repeat(20)
    popularity = torch.stack([torch.full_like(side, -5.0), side])
    tails, heads = popular_model(space="h2").sample(40, torch.Generator().manual_seed(0), popularity)
    assert len(tails) > 100 and bool(((tails + heads) % 2 == 1).all())


def test_free_vectors_do_not_depend_on_the_edges():
    free = FreeVectors(POPULAR_NODES, 4)
    some, none = (normalised_adjacency(edges, POPULAR_NODES) for edges in (EDGES, EDGES[:, :0]))
    assert torch.equal(free(some), free(none)) and free(some).shape == (POPULAR_NODES, 4)
    made = GraphVAE(free, Posterior(4, Space("h2")), FermiDirac(), popularity=Popularity(4))
    sampler = PairSampler(EDGES, POPULAR_NODES, joined=True)
    graph = GraphBatch(some, sampler.balanced())
    terms = made.terms(graph, made.noise(POPULAR_NODES))
    assert terms.kl.shape == (1, POPULAR_NODES) and terms.reconstruction.shape == (1,)


# --- directed edges and weights of edges -----------------------------------------------------------------------------


ARCS = torch.tensor([[0, 1, 2, 0, 3, 1], [1, 2, 3, 3, 4, 0]])  # 0 and 1 both ways


WEIGHTS = torch.tensor([0.5, 1.0, 2.0, 1.0, 3.0, 1.5], dtype=torch.float64)


ORDERED = list(permutations(range(NODES), 2))


JOINED = {tuple(arc) for arc in ARCS.T.tolist()}


def directed_model(directed: bool = True, space: str = "e2") -> GraphVAE:
    torch.manual_seed(0)
    popularity = Popularity(8, directed)
    made = GraphVAE(GraphEncoder(NODES, (8,)), Posterior(8, Space(space)), FermiDirac(0.7, 0.4), popularity=popularity)
    torch.nn.init.normal_(popularity.weight)
    return made.double()


def matrix(weights=None) -> np.ndarray:
    a = np.zeros((NODES, NODES))
    a[tuple(ARCS.numpy())] = 1.0 if weights is None else weights
    return a


def directed_log_likelihood(S, b, weights=None, shift=0.0) -> dict[tuple[int, int], float]:
    """w·log p of every arc and log(1 − p) of every other ordered pair."""
    given = dict(zip(map(tuple, ARCS.T.tolist()), np.ones(6) if weights is None else weights, strict=True))
    found = {}
    for i, j in ORDERED:
        x = (0.7 + b[0, i] + b[1, j] - b[2, i] * b[2, j] - np.linalg.norm(S[i] - S[j])) / 0.4 + shift
        found[i, j] = -given[i, j] * np.logaddexp(0, -x) if (i, j) in given else -np.logaddexp(0, x)
    return found


@pytest.fixture
def directed_places() -> tuple[np.ndarray, np.ndarray]:
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
def test_all_ordered_pairs_against_the_formula(directed_places, weights):
    S, b = directed_places
    point, own = torch.from_numpy(S).requires_grad_(), torch.from_numpy(b).requires_grad_()
    found = directed_model().log_likelihood(point, ARCS if weights is None else WeightedEdges(ARCS, weights), own)
    np.testing.assert_allclose(found.detach(), sum(directed_log_likelihood(S, b, weights).values()), rtol=1e-6)
    expected = slopes_by_differences(lambda S, b: sum(directed_log_likelihood(S, b, weights).values()), S, b)
    for slope, numeric in zip(torch.autograd.grad(found, [point, own]), expected, strict=True):
        np.testing.assert_allclose(slope, numeric, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_balanced_pairs_are_unbiased_and_have_a_gradient_of_their_own(directed_places, weights):
    S, b = directed_places
    sampler, made = PairSampler(ARCS, NODES, directed=True, weights=weights), directed_model()
    generator = torch.Generator().manual_seed(0)
    values = []
    for _ in range(300):
        pairs = sampler.balanced(generator)
        values.append(float(made.log_likelihood(torch.from_numpy(S), pairs, torch.from_numpy(b)).detach()))
    expected = sum(directed_log_likelihood(S, b, weights).values())
    assert abs(np.mean(values) - expected) < 4 * np.std(values) / np.sqrt(len(values))

    def among_themselves(S, b) -> float:
        drawn = zip(pairs.nodes.T.tolist(), pairs.shift.tolist(), strict=True)
        return NODES * np.mean([directed_log_likelihood(S, b, weights, shift)[tuple(pair)] for pair, shift in drawn])

    point, own = torch.from_numpy(S).requires_grad_(), torch.from_numpy(b).requires_grad_()
    slopes = torch.autograd.grad(made.log_likelihood(point, pairs, own), [point, own])
    for slope, numeric in zip(slopes, slopes_by_differences(among_themselves, S, b), strict=True):
        np.testing.assert_allclose(slope, numeric, rtol=1e-5, atol=1e-6)


def test_weights_of_undirected_edges_and_the_odds_that_they_lead_to():
    """With all nodes in one place the best radius has as odds the total weight over the number of other pairs."""
    made, S = directed_model(directed=False), torch.zeros(NODES, 2, dtype=torch.float64)
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
    made = directed_model()
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
        made = directed_model(space="h2")
        batch = GraphBatch(AdjacencyMaker(ARCS, NODES, WEIGHTS, dense, directed=True)(), ARCS)
        terms = made.terms(batch, noise)
        slopes.append(torch.autograd.grad(terms.reconstruction.sum() - terms.kl.sum(), list(made.parameters())))
    for one, other in zip(*slopes, strict=True):
        assert float(one.abs().max()) > 0
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_scores_and_draws_have_a_direction():
    made = directed_model(space="h2")
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


# --- products of spaces ----------------------------------------------------------------------------------------------


F64 = torch.float64


SPACES = pytest.mark.parametrize("space", PRODUCTS)


DISTRIBUTIONS = pytest.mark.parametrize("distribution", ["wrapped", "riemannian"])


def slope_along(model, value, direction, step=1e-5):
    """The difference quotient of value() along a direction of the parameters."""
    figures = []
    with torch.no_grad():
        for shift in (step, -2 * step, step):
            for parameter, by in zip(model.parameters(), direction, strict=True):
                parameter += shift * by
            figures.append(float(value()))
    return (figures[0] - figures[1]) / (2 * step)


def assert_slopes(model, value, rtol=1e-5, step=1e-5):
    """Gradients against difference quotients: along random directions, and in every learned curvature alone."""
    parameters = dict(model.named_parameters())
    gradients = torch.autograd.grad(value(), list(parameters.values()))
    ways = [[torch.randn_like(p) for p in parameters.values()] for _ in range(3)]
    curvatures = [name for name in parameters if name.endswith("log_c")]
    ways += [[torch.full_like(p, float(name == own)) for name, p in parameters.items()] for own in curvatures]
    for way in ways:
        expected = sum(float((g * by).sum()) for g, by in zip(gradients, way, strict=True))
        assert slope_along(model, value, way, step) == pytest.approx(expected, rel=rtol, abs=rtol)


# --- graphs ---------------------------------------------------------------------------------------------------------

PRODUCT_EDGES, PRODUCT_NODES = torch.tensor([[0, 1, 2, 0, 3], [1, 2, 3, 3, 4]]), 6


def graph_model(space, edges=None, seed=0, distribution="wrapped", **options):
    torch.manual_seed(seed)
    space = Space(space, distribution=distribution, **options)
    return GraphVAE(GraphEncoder(PRODUCT_NODES, (8,)), Posterior(8, space), edges or GeodesicEdges()).double()


def adjacency():
    return normalised_adjacency(PRODUCT_EDGES, PRODUCT_NODES).double()


def product_brute_force(S, space, edges):
    """Σ_{i<j} log p(A_ij | d) with d² the sum of the squares of the factors' distances."""
    joined, total = {frozenset(pair) for pair in PRODUCT_EDGES.T.tolist()}, mp.mpf(0)
    places = [
        ([lorentz_to_ball(vector(row), mpf(figures.c)) for row in part], mpf(figures.c))
        for part, figures in zip(space.split(S), space.figures(), strict=True)
    ]
    for i, j in combinations(range(len(S)), 2):
        d = mp.sqrt(sum(ball_dist(ball[i], ball[j], c) ** 2 for ball, c in places))
        if isinstance(edges, GeodesicEdges):
            p = 1 - mp.tanh(d)
        else:
            radius, temperature = (mpf(t.detach()) for t in edges.numbers())
            p = 1 / (1 + mp.exp((d - radius) / temperature))
        total += mp.log(p if frozenset((i, j)) in joined else 1 - p)
    return total


@SPACES
@pytest.mark.parametrize("edges", [GeodesicEdges(), FermiDirac(1.3, 0.4)], ids=["geodesic", "fermi"])
def test_a_graph_by_brute_force(space, edges):
    model = graph_model(space, edges)
    S = 0.8 * torch.randn(PRODUCT_NODES, model.space.width, dtype=F64)
    with torch.no_grad():
        found = model.log_likelihood(S, PRODUCT_EDGES)
        assert relative(found, product_brute_force(S, model.space, edges)) < 1e-10
        every = torch.triu_indices(PRODUCT_NODES, PRODUCT_NODES, 1)
        joined = {tuple(pair) for pair in PRODUCT_EDGES.T.tolist()}
        present = torch.tensor([float(tuple(pair) in joined) for pair in every.T.tolist()])
        listed = model.log_likelihood(S, Pairs(every, present, torch.ones(len(present), dtype=F64)))
    assert float(listed) == pytest.approx(float(found), rel=1e-9)


@SPACES
@DISTRIBUTIONS
def test_gradients_of_a_graph(space, distribution):
    model = graph_model(space, FermiDirac(1.3, 0.4), distribution=distribution)
    noise = torch.randn(2, PRODUCT_NODES, model.dim, dtype=F64)
    assert_slopes(model, lambda: model.elbo(adjacency(), PRODUCT_EDGES, noise=noise))


def test_nodes_at_one_place_have_a_gradient():
    model = graph_model("h2,e1")
    S = torch.zeros(PRODUCT_NODES, 3, dtype=F64, requires_grad=True)
    (slope,) = torch.autograd.grad(model.log_likelihood(S, PRODUCT_EDGES), S)
    assert bool(slope.isfinite().all())


@SPACES
def test_a_stack_of_graphs(space):
    models = [graph_model(space, FermiDirac(), seed=seed) for seed in range(3)]
    noise = torch.randn(3, 2, PRODUCT_NODES, models[0].dim, dtype=F64)
    alone = [model.terms(GraphBatch(adjacency(), PRODUCT_EDGES), own) for model, own in zip(models, noise, strict=True)]
    slopes = [
        torch.autograd.grad((terms.reconstruction.sum() - terms.kl.sum()), list(model.parameters()))
        for model, terms in zip(models, alone, strict=True)
    ]
    stack = Stack(models)
    terms = stack.terms(GraphBatch(adjacency().expand(3, -1, -1), PRODUCT_EDGES.expand(3, -1, -1)), noise)
    found = torch.autograd.grad(terms.reconstruction.sum() - terms.kl.sum(), list(stack.leaves.values()))
    for i in range(3):
        torch.testing.assert_close([t[i] for t in terms], list(alone[i]), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close([t[i] for t in found], list(slopes[i]), rtol=1e-8, atol=1e-9)


def test_distances_and_samples_of_a_graph():
    model = graph_model("h2,e1")
    edges = model.sample(20)
    assert edges.shape[0] == 2 and bool((edges[0] < edges[1]).all())
    q = model.encode(adjacency())
    pairs = torch.tensor([[0, 3], [1, 5]])
    each = [factor.manifold.dist(factor.loc[pairs[0]], factor.loc[pairs[1]]) for factor in q.factors]
    expected = (each[0] ** 2 + each[1] ** 2).sqrt()
    torch.testing.assert_close(model.distances(adjacency(), pairs), expected, rtol=1e-9, atol=1e-9)


# --- large graphs ----------------------------------------------------------------------------------------------------


def test_joined_nodes_against_unique():
    edges = torch.tensor([[1, 5, 7, 1], [5, 2, 1, 9]])
    among, places = edges.unique(return_inverse=True)
    found = joined_nodes(edges, 12)
    assert torch.equal(found[0], among)
    assert torch.equal(found[1], places)


@pytest.mark.parametrize("count", [10, 7, 160])
def test_few_edges_are_drawn_uniformly(monkeypatch, count):
    monkeypatch.setattr(torch, "randperm", None)  # an order of all is not made
    edges = torch.stack([torch.arange(330), torch.arange(1, 331)])
    sampler, random = PairSampler(edges, 331), torch.Generator().manual_seed(0)
    draws = [sampler.draw(1, count, random) for _ in range(1000)]
    drawn = draws[-1]
    first, second = torch.cat([one.nodes[:, :count] for one in draws], 1)
    counts = np.bincount(first, minlength=330)
    assert torch.equal(second, first + 1)
    assert float(drawn.weight[:count].sum()) == pytest.approx(330)
    # Each is drawn with the chance count/330, at most once but for those at the ends of two parts.
    expected, chance = 1000 * count / 330, count / 330
    chi2 = ((counts - expected) ** 2 / (expected * (1 - chance))).sum()
    assert abs(chi2 - 330) < 5 * np.sqrt(2 * 330)


def test_more_edges_are_drawn_without_repeats():
    edges = torch.stack([torch.arange(100), torch.arange(1, 101)])
    drawn = PairSampler(edges, 101).draw(1, 60, torch.Generator().manual_seed(0))
    assert len(drawn.nodes[0, :-1].unique()) == 60
