"""The graph model: convolutions, edge models, likelihoods of all pairs and of samples, and their gradients."""

from __future__ import annotations

import math
from itertools import combinations, pairwise, permutations

import mpmath as mp
import numpy as np
import pytest
import torch
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional as F

from combining import every_pair
from curvae import Lorentz
from curvae.errors import CurvaeError
from curvae.geometry import pairs as geometry
from curvae.geometry.pairs import distances, sum_over_pairs
from curvae.models import FermiDirac, GeodesicEdges, GraphBatch, GraphVAE, Pairs, PairSampler, Posterior
from curvae.models import graph_vae as sampling
from curvae.nn import GraphConv, GraphEncoder, HyperbolicFactor, Space, normalised_adjacency, undirected
from oracles import ball_dist, lorentz_to_ball, mpf, random_directions, relative, vector

# torch.compile instantiates Function classes, which torch.autograd warns about.
pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")

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


# --- convolutions ---------------------------------------------------------------------------------------------------


def dense_adjacency(edges: np.ndarray, n: int, weights: np.ndarray) -> np.ndarray:
    a = np.eye(n)
    for (i, j), w in zip(edges.T, weights, strict=True):
        a[i, j] = a[j, i] = w
    root = np.diag(a.sum(1) ** -0.5)
    return root @ a @ root


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dense", [False, True])
def test_convolutions_equal_the_formula(dense, weighted):
    weights = torch.tensor([0.3, 2.0, 1.5, 0.0, 1.0], dtype=torch.float64) if weighted else None
    adjacency = normalised_adjacency(EDGES, NODES, weights, dense)
    plain = dense_adjacency(EDGES.numpy(), NODES, np.ones(5) if weights is None else weights.numpy())
    assert adjacency.is_sparse_csr != dense and adjacency.dtype == (torch.float64 if weighted else torch.float32)
    np.testing.assert_allclose(adjacency.to_dense(), plain, rtol=1e-6)
    x = torch.randn(NODES, 4, dtype=adjacency.dtype)
    for layer, features in ((GraphConv(NODES, 3), None), (GraphConv(4, 3), x)):
        layer = layer.to(adjacency.dtype)
        layer.bias.data.normal_()
        w, b = layer.weight.detach().numpy(), layer.bias.detach().numpy()
        expected = plain @ (np.eye(NODES) if features is None else x.numpy()) @ w + b
        np.testing.assert_allclose(layer(adjacency, features).detach(), expected, rtol=1e-4, atol=1e-6)
    slope = torch.autograd.grad(layer(adjacency, x).sum(), layer.weight)[0]
    np.testing.assert_allclose(slope, np.outer(x.numpy().T @ plain.sum(0), np.ones(3)), rtol=1e-4, atol=1e-6)
    assert GraphConv(4, 3, bias=False)(adjacency.float(), x.float()).shape == (NODES, 3)


def test_the_posterior_is_a_second_convolution():
    adjacency, network = normalised_adjacency(EDGES, NODES), model()
    a, (layer,), head = adjacency.numpy(), network.encoder.layers, network.posterior.head
    w, v, b = (t.detach().numpy() for t in (layer.weight, head.weight, head.bias))
    hidden = a @ (np.maximum(a @ w, 0) @ v.T) + b
    q = network.encode(adjacency)
    np.testing.assert_allclose(q.scale.detach(), np.logaddexp(0, hidden[:, 3:]), rtol=1e-5)
    np.testing.assert_allclose(q.manifold.logmap0(q.loc).detach(), 2 * hidden[:, :3], rtol=1e-4, atol=1e-6)


def test_convolutions_equal_torch_geometric():
    convolution = pytest.importorskip("torch_geometric.nn").GCNConv(4, 3)
    layer, x = GraphConv(4, 3), torch.randn(NODES, 4)
    with torch.no_grad():
        convolution.lin.weight.copy_(layer.weight.T)
        both = torch.cat([EDGES, EDGES.flip(0)], 1)
        torch.testing.assert_close(layer(normalised_adjacency(EDGES, NODES), x), convolution(x, both))


def test_undirected_edges():
    edges, weights = torch.tensor([[3, 1, 0, 2, 2, 1], [1, 3, 2, 0, 2, 0]]), torch.tensor([1.0, 3, 5, 5, 9, 7])
    simple, means = undirected(edges, 4, weights)
    assert simple.tolist() == [[0, 0, 1], [1, 2, 3]] and means.tolist() == [7, 5, 2]
    assert torch.equal(normalised_adjacency(edges, 4), normalised_adjacency(simple, 4))
    assert torch.equal(normalised_adjacency(torch.empty(2, 0, dtype=torch.long), 3), torch.eye(3))
    with pytest.raises(ValueError, match=r"shape \(2, E\).*got \(5, 2\)"):
        undirected(EDGES.T, NODES)
    with pytest.raises(ValueError, match="nodes 0 to 3, got 0 to 4"):
        undirected(EDGES, 4)
    with pytest.raises(ValueError, match="must not be negative"):
        normalised_adjacency(EDGES, NODES, -torch.ones(5))
    with pytest.raises(ValueError, match=r"hidden=\(32,\)"):
        GraphEncoder(NODES, ())


# --- edge models ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
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
    assert torch.autograd.gradgradcheck(f, (S, *values), atol=1e-4, rtol=1e-4, fast_mode=True)


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


def test_far_out_everything_stays_finite(edges):
    S = Lorentz(2, 1.0).expmap0(tensor([[100.0, 0.0], [-100.0, 0.0], [0.0, 150.0], [0.0, 0.0]])).requires_grad_()
    for dtype in (torch.float32, torch.float64):
        value = model(1.0, edges=edges, dim=2).to(dtype).log_likelihood(S, torch.tensor([[0, 1], [1, 2]]))
        assert value.isfinite() and torch.autograd.grad(value, S)[0].isfinite().all()


@pytest.mark.parametrize("count", [0, 3, 50])
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


def test_memory_of_all_pairs_is_bounded():
    sizes = geometry._blocks(50_000, 1, torch.device("cpu"))
    assert sizes[0][0] == 0 and sizes[-1][1] == 50_000
    assert all(a[1] == b[0] for a, b in pairwise(sizes))
    assert max(b - a for a, b in sizes) * 50_000 <= geometry._NUMBERS_CPU


# --- samples of pairs -----------------------------------------------------------------------------------------------


def test_places_of_pairs():
    every = torch.tensor([(i, j) for j in range(60) for i in range(j)]).T
    assert torch.equal(sampling._number(*every), torch.arange(60 * 59 // 2))
    assert torch.equal(sampling._pair(torch.arange(60 * 59 // 2)), every)
    j = torch.tensor([2, 10**5, 3 * 10**8, 2 * 10**9])
    ends = torch.cat([torch.stack([torch.zeros_like(j), j]), torch.stack([j - 1, j])], 1)
    assert torch.equal(sampling._pair(sampling._number(*ends)), ends)


@pytest.mark.parametrize("graph", [EDGES, EDGES.flip(0), torch.tensor([[0, 4], [1, 5]]), EDGES[:, :0]])
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
def test_samples_are_unbiased(present):
    """Mean of value and gradient over many samples, in standard errors of that mean."""
    network, count = model(0.7).double(), 600
    S = points(NODES, 3, 0.7).requires_grad_()
    generator = torch.Generator().manual_seed(3)
    rows = []
    sampler = PairSampler(EDGES, NODES)
    for _ in range(count):
        value = network.log_likelihood(S, sampler.draw(4, present, generator))
        rows.append(torch.cat([value.detach()[None], torch.autograd.grad(value, S)[0].flatten()]))
    rows = torch.stack(rows)
    value = network.log_likelihood(S, EDGES)
    exact = torch.cat([value.detach()[None], torch.autograd.grad(value, S)[0].flatten()])
    error = rows.std(0) / math.sqrt(count)
    assert 0 < error[0] < 0.03 * exact[0].abs()
    assert ((rows.mean(0) - exact).abs() < 4.5 * error + 1e-12).all()


def test_large_graphs_need_memory_for_the_sample_only():
    n = 300_000  # 45 billion pairs
    edges = torch.stack([torch.arange(1, n) // 2, torch.arange(1, n)])[:, :5000]
    pairs = PairSampler(edges, n).step(torch.Generator().manual_seed(0))
    assert isinstance(pairs, Pairs) and pairs.nodes.shape == (2, 55_000)
    assert abs(float(pairs.weight.sum()) / (n * (n - 1) // 2) - 1) < 1e-9
    S = points(n, 2, 1.0).requires_grad_()
    value = model(dim=2).log_likelihood(S, pairs)
    assert torch.autograd.grad(value, S)[0].isfinite().all()


def test_a_large_graph_with_a_sparse_matrix():
    n = 9000
    edges = torch.stack([torch.arange(1, n) // 2, torch.arange(1, n)])
    adjacency, network = normalised_adjacency(edges, n, dense=False), model(nodes=n)
    elbo = network.elbo(adjacency, PairSampler(edges, n).step(torch.Generator().manual_seed(0)))
    elbo.backward()
    assert all(p.grad.isfinite().all() and p.grad.any() for p in network.parameters())


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
def test_compiles_whole(sampled):
    network, adjacency, noise = model(0.7), normalised_adjacency(EDGES, NODES), torch.randn(1, NODES, 3)
    graph = GraphBatch(adjacency, PairSampler(EDGES, NODES).draw(7) if sampled else EDGES)

    def loss():
        reconstruction, kl = network.terms(graph, noise)
        return kl.sum() - reconstruction.sum()

    torch._dynamo.reset()
    results = []
    # That the graph is whole shows without the next stage, which is taken once.
    backend = "aot_eager_default_partitioner" if sampled else "eager"
    for f in (torch.compile(loss, fullgraph=True, backend=backend), loss):
        value = f()
        results.append([value, *torch.autograd.grad(value, list(network.parameters()))])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("law", "c"), [("wrapped", 0.0), ("riemannian", 1.0)])
def test_training_finds_the_edges(law, c):
    """A ring of cliques: after some steps joined nodes are nearer to each other than others."""
    size, count = 4, 5
    inside = [(i + size * k, j + size * k) for k in range(count) for i, j in combinations(range(size), 2)]
    graph = torch.tensor(inside + [(size * k, size * ((k + 1) % count) + 1) for k in range(count)]).T
    n = size * count
    network, adjacency = model(c, law, nodes=n, dim=2), normalised_adjacency(graph, n)
    optimiser = torch.optim.Adam(network.parameters(), 0.03)
    first = network.elbo(adjacency, graph, k=20).detach()
    for _ in range(150):
        optimiser.zero_grad()
        (-network.elbo(adjacency, graph)).backward()
        optimiser.step()
    assert network.elbo(adjacency, graph, k=20) > first + 100
    with torch.no_grad():
        joined = network.distances(adjacency, undirected(graph, n)[0])
        others = network.distances(adjacency, PairSampler(graph, n).draw(200).nodes[:, graph.shape[1] :])
    assert (joined[:, None] < others).double().mean() > 0.9


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
