"""The variational graph auto-encoder, the probability of an edge, and pairs of nodes to train on."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..distributions import HyperbolicNormal, ProductNormal
from ..errors import CurvaeError
from ..geometry import checks
from ..nn import Adjacency, Arcs, Popularity
from .batch import Parts
from .vae import Latent, Posterior, Terms, check_noise

__all__ = [
    "AnyPairs",
    "BalancedPairs",
    "EdgeModel",
    "FermiDirac",
    "GeodesicEdges",
    "GraphBatch",
    "GraphVAE",
    "PairSampler",
    "Pairs",
    "WeightedEdges",
    "every_pair",
    "exact",
    "pair_count",
    "pair_places",
]


# Which pairs of nodes a graph's likelihood is computed from: all of them, or a weighted sample.

# Largest graph of which every pair counts at every step: 34 million pairs, some seconds of one core.
_EXACT = 8192
# The same where pairs are all held in memory, about 300 bytes a pair and factor: in a product, or with popularity.
_EXACT_LISTED = 2048

# Edges of a larger graph drawn for a step, at most, and non-edges drawn for each.
_PRESENT = 1 << 16
_NEGATIVES = 10


class Pairs(NamedTuple):
    """Pairs of nodes whose weighted log-likelihoods stand for those of all pairs.

    Attributes:
        nodes: the two nodes of every pair, shape (2, P).
        present: 1 for an edge, 0 for a pair that is not joined, shape (P,).
        weight: how many pairs each stands for, times the weight of an edge, shape (P,).
    """

    nodes: Tensor
    present: Tensor
    weight: Tensor


class WeightedEdges(NamedTuple):
    """All pairs of nodes, of which those with an edge have weights.

    Attributes:
        nodes: the two nodes of every edge, shape (2, E).
        weight: how often each edge counts, shape (E,).
    """

    nodes: Tensor
    weight: Tensor


class BalancedPairs(NamedTuple):
    """Edges and as many pairs that are not joined, each of which counts once for what is learned.

    Among them edges are likelier than among all pairs: their odds are e^shift times as large. A model that predicts
    edges among these pairs, with log-odds raised by `shift`, learns the same probabilities as from all pairs, from
    terms that are alike in size, and so with much less noise.

    Attributes:
        nodes, present, weight: as of `Pairs`.
        shift: log of how many pairs each stands for as a non-edge over how many as an edge, shape (P,).
        times: how often each counts for what is learned, shape (P,): the weight of an edge, otherwise 1.

    References:
        Prentice and Pyke (1979), Logistic disease incidence models and case-control studies.
    """

    nodes: Tensor
    present: Tensor
    weight: Tensor
    shift: Tensor
    times: Tensor


AnyPairs = Tensor | WeightedEdges | Pairs | BalancedPairs
"""edges, for all pairs; or some pairs"""


def pair_count(n_nodes: int, directed: bool = False) -> int:
    """Count the pairs of so many nodes; if directed, ordered ones."""
    return n_nodes * (n_nodes - 1) // (1 if directed else 2)


def every_pair(n_nodes: int, directed: bool = False, device: torch.device | None = None) -> Tensor:
    """List all pairs i < j, shape (2, P); if directed, those i > j after them."""
    pairs = torch.triu_indices(n_nodes, n_nodes, 1, device=device)
    return torch.cat([pairs, pairs.flip(0)], 1) if directed else pairs


def pair_places(nodes: Tensor, n_nodes: int, directed: bool = False) -> Tensor:
    """Return the places of pairs, (2, …), among all pairs i < j in order of (j, i); if directed, among all ordered
    pairs i ≠ j in order of (i, j)."""
    if directed:
        i, j = nodes
        return i * (n_nodes - 1) + j - (j > i).long()
    i, j = nodes.aminmax(dim=0)
    return j * (j - 1) // 2 + i


def _pairs_at(number: Tensor, n_nodes: int, directed: bool) -> Tensor:
    """Return the pairs at these places, shape (2, …): the inverse of `pair_places`."""
    if directed:
        i = number // (n_nodes - 1)
        j = number - i * (n_nodes - 1)
        return torch.stack([i, j + (j >= i).long()])
    j = ((1.0 + (1.0 + 8.0 * number.double()).sqrt()) / 2.0).long()
    # Rounding can only raise the root: that of a square is exact.
    j = j - (j * (j - 1) // 2 > number).long()
    return torch.stack([number - j * (j - 1) // 2, j])


def joined_nodes(edges: Tensor, n_nodes: int) -> tuple[Tensor, Tensor]:
    """Return the nodes that have an edge, ascending, and the edges in terms of their places.

    Example:
        >>> joined_nodes(torch.tensor([[1, 5], [5, 2]]), 9)
        (tensor([1, 2, 5]), tensor([[0, 2],
                [2, 1]]))
    """
    marked = torch.zeros(n_nodes, dtype=torch.bool, device=edges.device)
    marked[edges.reshape(-1)] = True
    return marked.nonzero().squeeze(1), (marked.cumsum(0) - 1)[edges]


class PairSampler:
    """Edges and uniformly drawn non-edges, weighted so that the sum over them is unbiased for the sum over all pairs.

    A non-edge is drawn by its place among the non-edges: between two edges that follow each other in the list of all
    pairs, places of pairs and of non-edges differ by the number of edges before, so a search among the edges finds it,
    without a second try. Memory grows with edges and draws, not with pairs.

    Arguments:
        edges: the edges, shape (2, E), each listed once, in either direction.
        n_nodes: number of nodes.
        joined: leave out nodes without an edge, so that the sum is over all pairs of the other nodes.
        directed: whether edges lead from the first to the second node, and pairs are ordered.
        weights: how often each edge counts, shape (E,); once if not given.

    Example:
        >>> edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
        >>> pairs = PairSampler(edges, 100).draw(absent=50)
        >>> pairs.nodes.shape, float(pairs.weight.sum())  # 4950 pairs
        (torch.Size([2, 53]), 4950.0)
    """

    def __init__(
        self,
        edges: Tensor,
        n_nodes: int,
        joined: bool = False,
        directed: bool = False,
        weights: Tensor | None = None,
    ) -> None:
        self._among: Tensor | None = None  # the places among all nodes of those that may be drawn
        if joined:
            self._among, edges = joined_nodes(edges, n_nodes)
            n_nodes = len(self._among)
        self.edges, self.n_nodes, self.directed, self._weights = edges, n_nodes, directed, weights
        self.rest = pair_count(n_nodes, directed) - edges.shape[1]
        if self.rest < 1:
            raise CurvaeError('every pair of nodes is joined: there is no non-edge to draw; set `pairs="all"`')
        self._places = pair_places(edges, n_nodes, directed).sort().values
        self._before = self._places - torch.arange(edges.shape[1], device=edges.device)  # non-edges before each edge

    def draw(self, absent: int, present: int | None = None, generator: torch.Generator | None = None) -> Pairs:
        """Return pairs for one estimate.

        Arguments:
            absent: how many non-edges to draw, with replacement.
            present: how many edges to draw; all of them if not given. They are different; at most half of all are one
                of each of so many equal parts of the list, of which two may share an edge at their ends.
            generator: source of the draws, on the device of the edges.
        """
        drawn = self._draw(absent, present, generator)[0]
        return drawn if self._among is None else drawn._replace(nodes=self._among[drawn.nodes])

    def _draw(self, absent: int, present: int | None, generator: torch.Generator | None) -> tuple[Pairs, Tensor]:
        """Pairs in terms of the nodes that may be drawn, and how often each counts by the weights of the edges."""
        edges, count, weights = self.edges, self.edges.shape[1], self._weights
        present = count if present is None else present
        if not 0 <= present <= count or (present == 0) != (count == 0):
            raise ValueError(f"present, the number of edges to draw, must lie between 1 and {count}, got {present}")
        if absent < 1:
            raise ValueError(f"absent, the number of non-edges to draw, must be at least 1, got {absent}")
        draws = torch.randint(self.rest, (absent,), generator=generator, device=edges.device)
        number = draws + torch.searchsorted(self._before, draws, right=True)
        missing = _pairs_at(number, self.n_nodes, self.directed)
        if present < count:
            if 2 * present <= count:  # an order of all edges would take long
                place = torch.rand(present, generator=generator, dtype=torch.float64, device=edges.device)
                place.add_(torch.arange(present, device=edges.device)).mul_(count / present)
                chosen = place.long().clamp_(max=count - 1)
            else:
                chosen = torch.randperm(count, generator=generator, device=edges.device)[:present]
            edges, weights = edges[:, chosen], None if weights is None else weights[chosen]
        joined = torch.zeros(present + absent, device=edges.device)
        joined[:present] = 1.0
        weight = torch.full_like(joined, self.rest / absent, dtype=torch.float64)
        weight[:present] = count / max(present, 1)
        counts = torch.ones_like(joined) if weights is None else torch.cat([weights, weights.new_ones(absent)])
        return Pairs(torch.cat([edges, missing], 1), joined, weight * counts), counts

    def step(self, generator: torch.Generator | None = None) -> Pairs:
        """For a training step: at most 65,536 edges, and ten non-edges for each."""
        present = min(self.edges.shape[1], _PRESENT)
        return self.draw(max(1, _NEGATIVES * present), present, generator)

    @property
    def shift(self) -> float:
        """By how much log-odds of an edge among as many edges as uniformly drawn non-edges exceed those among all
        pairs."""
        return math.log(self.rest / max(1, self.edges.shape[1]))

    def balanced(self, generator: torch.Generator | None = None) -> BalancedPairs:
        """Return the same with as many non-edges as edges, half of them between nodes that are drawn by their degrees.

        Uniform pairs tell nodes with many edges from nodes with few, and hardly anything else. Among pairs of the
        degrees that edges have, what is left to learn is which nodes are near.
        """
        present = min(self.edges.shape[1], _PRESENT)
        drawn, counts = self._draw(max(1, present), present, generator)
        absent = drawn.nodes.shape[1] - present
        likely = absent // 2
        uniform = drawn.nodes[:, drawn.nodes.shape[1] - likely :]
        nodes = torch.cat([drawn.nodes[:, : drawn.nodes.shape[1] - likely], self._by_degree(uniform, generator)], 1)
        # How often a pair is drawn, on average, if it is not joined.
        tails, heads, refused = self._degrees
        chance = tails[nodes[0]] * heads[nodes[1]] * (1.0 if self.directed else 2.0)
        rate = (absent - likely * (1.0 - refused)) / self.rest + likely * chance
        weight = torch.where(drawn.present > 0, drawn.weight, 1.0 / rate)
        shift = (max(1, present) / max(1, self.edges.shape[1]) / rate).log()
        nodes = nodes if self._among is None else self._among[nodes]
        return BalancedPairs(nodes, drawn.present, weight, shift, counts)

    def _by_degree(self, uniform: Tensor, generator: torch.Generator | None) -> Tensor:
        """Pairs whose nodes are drawn by their degrees; in place of an edge, or of twice the same node, the pair that
        was drawn uniformly."""
        edges = self.edges
        ends = (edges[0], edges[1]) if self.directed else (edges.reshape(-1),) * 2
        nodes = torch.stack(
            [
                end[torch.randint(max(1, len(end)), uniform.shape[1:], generator=generator, device=end.device)]
                for end in ends
            ]
        )
        number = pair_places(nodes, self.n_nodes, self.directed)
        places = torch.searchsorted(self._places, number).clamp_max(edges.shape[1] - 1)
        refused = (nodes[0] == nodes[1]) | (self._places[places] == number)
        return torch.where(refused, uniform, nodes)

    @cached_property
    def _degrees(self) -> tuple[Tensor, Tensor, float]:
        """Degrees of the nodes as shares of all, out and in or both together, and how likely two nodes that are drawn
        by them are joined, or the same."""
        edges = self.edges
        ends = (edges[0], edges[1]) if self.directed else (edges.reshape(-1),)
        shares = [torch.bincount(end, minlength=self.n_nodes).double() / max(1, end.numel()) for end in ends]
        tails, heads = shares[0], shares[-1]
        joined = tails[edges[0]] * heads[edges[1]] * (1.0 if self.directed else 2.0)
        return tails, heads, float(joined.sum() + (tails * heads).sum())


def exact(n_nodes: int, listed: bool = False) -> bool:
    """Return whether all pairs of a graph of this size are to be seen at every step, or a sample: up to 8192 nodes, or
    2048 where pairs must be `listed`, as for a product of several factors.
    """
    return n_nodes <= (_EXACT_LISTED if listed else _EXACT)


class EdgeModel(nn.Module, ABC):
    """p(A_ij = 1 | z_i, z_j), a function of the distance d(z_i, z_j)."""

    signed = False
    """whether p goes on to rise below d = 0, where the distance less the popularity of two nodes may lie"""

    @abstractmethod
    def numbers(self) -> tuple[Tensor, ...]:
        """Return the learned numbers that p depends on, without dimensions."""

    @abstractmethod
    def absence(self, d: Tensor, *numbers: Tensor) -> tuple[Tensor, ...]:
        """Compute log(1 − p) and its derivatives in d and in each of the numbers, all elementwise.

        The first is differentiable by autograd as well.
        """

    @abstractmethod
    def logits(self, d: Tensor) -> Tensor:
        """Compute log p − log(1 − p)."""

    def log_prob(self, d: Tensor, present: Tensor) -> Tensor:
        """Compute log p where an edge is present (1), log(1 − p) where it is not (0)."""
        return F.logsigmoid((2.0 * present - 1.0) * self.logits(d))

    def probability(self, d: Tensor) -> Tensor:
        """Compute p."""
        return self.logits(d).sigmoid()


class GeodesicEdges(EdgeModel):
    r"""p = 1 − tanh d, the edge model of the paper's third experiment.

    With x = e^{2d} − 1, which is accurate for near pairs and large for far ones,

        log(1 − tanh d) = log 2 − 2d − log1p(e^{−2d}),    log tanh d = −log1p(2/x),    ∂ log tanh d/∂d = y(2+y)/(1+y),

    y = 2/x. Two nodes that coincide and are not joined would make the likelihood 0 and its gradient infinite, so d
    stands for max(d, floor): such a pair costs −log tanh(floor), 6.9 nats at 0.001, and exerts no force below it.

    Arguments:
        floor: the smallest distance that differs from 0.

    Example:
        >>> GeodesicEdges().probability(torch.tensor([0.0, 0.5, 40.0]))
        tensor([9.9900e-01, 5.3788e-01, 3.6097e-35])
    """

    def __init__(self, floor: float = 1e-3) -> None:
        super().__init__()
        if not 0 < floor < math.inf:
            raise ValueError(f"floor must be a positive number, got {floor}")
        self.floor = floor

    def numbers(self) -> tuple[Tensor, ...]:
        return ()

    def absence(self, d: Tensor, *numbers: Tensor) -> tuple[Tensor, ...]:
        farthest = 0.49 * math.log(torch.finfo(d.dtype).max)  # where e^{2d} would overflow
        y = 2.0 / (2.0 * d.clamp(self.floor, farthest)).expm1()
        return -y.log1p(), torch.where(d < self.floor, 0.0, y * (2.0 + y) / (1.0 + y))

    def logits(self, d: Tensor) -> Tensor:
        twice = 2.0 * d.clamp_min(self.floor)
        return math.log(2) - twice - (-(-twice).expm1()).log()

    def extra_repr(self) -> str:
        return f"floor={self.floor:g}"


class FermiDirac(EdgeModel):
    """p = 1/(1 + exp((d − r)/t)), with learned radius r and temperature t; with d² in place of d if `squared`.

    Arguments:
        radius: where p = ½ at first; any number.
        temperature: how softly p falls, at first; it is learned as exp of a free parameter.
        squared: whether to use d².

    References:
        Krioukov et al. (2010), Hyperbolic geometry of complex networks.

    Example:
        >>> FermiDirac(radius=2.0, temperature=0.5).probability(torch.tensor([0.0, 2.0, 4.0])).detach()
        tensor([0.9820, 0.5000, 0.0180])
    """

    def __init__(self, radius: float = 2.0, temperature: float = 1.0, squared: bool = False) -> None:
        super().__init__()
        if not 0 < temperature < math.inf:
            raise ValueError(f"temperature must be a positive number, got {temperature}")
        self.radius = nn.Parameter(torch.tensor(float(radius)))
        self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)))
        self.squared, self.signed = squared, not squared

    def numbers(self) -> tuple[Tensor, ...]:
        return self.radius, self.log_temperature.exp()

    def lower(self, shift: float) -> None:
        """Begin with log-odds that are less by `shift` at every distance."""
        with torch.no_grad():
            self.radius.sub_(shift * self.log_temperature.exp())

    def absence(self, d: Tensor, *numbers: Tensor) -> tuple[Tensor, ...]:
        radius, temperature = numbers
        logit = (radius - (d * d if self.squared else d)) / temperature
        push = logit.sigmoid() / temperature
        return -F.softplus(logit), push * (2.0 * d) if self.squared else push, -push, push * logit

    def logits(self, d: Tensor) -> Tensor:
        radius, temperature = self.numbers()
        return (radius - (d * d if self.squared else d)) / temperature

    def extra_repr(self) -> str:
        radius, temperature = (float(t.detach()) for t in self.numbers())
        return f"radius={radius:.4g}, temperature={temperature:.4g}, squared={self.squared}"


_AT_ONCE = 1 << 20  # pairs of which distances are held


class GraphBatch(Parts):
    """What a step sees of a graph: an immutable pytree, as `Batch` is for rows. In a stack of models every part has the
    models as its first dimension.

    Arguments:
        adjacency: the normalised matrix Â of the edges that the encoder may see, `curvae.nn.normalised_adjacency`; of a
            directed graph its `Arcs`.
        pairs: the edges, shape (2, E), each once: then all n(n − 1)/2 pairs count, in memory that grows like n. Or
            `WeightedEdges`; or `Pairs` with weights, for an estimate in time that grows with their number, or
            `BalancedPairs`.
        features: of the nodes, shape (n, in_features), if the encoder takes any.

    Example:
        >>> GraphBatch(torch.eye(3), torch.tensor([[0], [1]])).parts
        ('adjacency', 'pairs')
    """

    __slots__ = ()
    _NAMES = ("adjacency", "pairs", "features")

    def __init__(self, adjacency: Adjacency, pairs: AnyPairs, features: Tensor | None = None) -> None:
        super().__init__(adjacency, pairs, features)


class GraphVAE(Latent):
    r"""A variational auto-encoder of one graph in a space of curvature −c, every node having a latent point:

        q(Z | A) = Π_i q(z_i | A),    p(A | Z) = Π_{i≠j} p(A_ij | z_i, z_j),    p(Z) = Π_i p(z_i).

    The product over ordered pairs counts every pair twice, as in the paper; the diagonal is constant and left out. So

        log p(A | Z) = weight·Σ_{i<j} log p(A_ij | d(z_i, z_j)),    weight = 2.

    The weight matters: what it is to the divergences Σ_i KL decides how much of the graph the nodes may tell. With
    curvature 0 this is the Euclidean model, in the same code. As p(A_ij | d) fixes the scale of the space, c and σ0 are
    two parameters here, not one.

    Nodes may have a popularity b_i, which is how far they reach: p(A_ij) then depends on d(z_i, z_j) − b_i − b_j, and a
    node with many edges need not lie near all its neighbours, which lie far from each other.

    With it comes a side s_i: the distance counts for s_i·s_j more, so that nodes of one side, which a bipartite graph
    has two of, may lie near each other and near their common neighbours, and yet not be joined.

    In a directed graph they have two, b_i as a sender and b'_j as a receiver: p(A_ij) of an edge from i to j depends on
    d(z_i, z_j) − b_i − b'_j, and the product is over ordered pairs, each of which counts `weight` times. Which way an
    edge between two nodes runs is then decided by their levels b − b': its log-odds are the difference of these over t.

    An edge of weight w counts as w edges: Σ w_ij·log p over the edges, Σ log(1 − p) over the other pairs. Among pairs
    that look alike to the model, the odds p/(1 − p) become the total weight over the number of pairs without an edge:
    the intensity of edges.

    Arguments:
        encoder: from (adjacency, features or None) to rows of features for the posterior, one a node.
        posterior: from those to the distribution of every node on the latent space, which holds the prior.
        edges: from distances to probabilities of edges.
        weight: how often every pair counts: 2 as in the paper, 1 for the likelihood of an undirected graph.
        popularity: from the features of the encoder and the adjacency matrix to b and s; 0 for all nodes without one.
            If it is directed, so are the edges.

    References:
        Mathieu et al. (2019), section 5.3; Kipf and Welling (2016), Variational graph auto-encoders.

    Example:
        >>> from curvae.models import GeodesicEdges, GraphVAE
        >>> from curvae.nn import GraphEncoder, Space, normalised_adjacency
        >>> edges = torch.tensor([[0, 0, 1, 1, 2, 2], [1, 2, 3, 4, 5, 6]])
        >>> adjacency, space = normalised_adjacency(edges, 7), Space("h2", distribution="wrapped")
        >>> model = GraphVAE(GraphEncoder(7), Posterior(32, space), GeodesicEdges())
        >>> loss = -model.elbo(adjacency, edges)
        >>> loss.backward()
        >>> model.distances(adjacency, torch.tensor([[0, 3], [1, 6]])).shape
        torch.Size([2])
    """

    def __init__(
        self,
        encoder: nn.Module,
        posterior: Posterior,
        edges: EdgeModel,
        weight: float = 2.0,
        popularity: Popularity | None = None,
    ) -> None:
        super().__init__()
        if not weight > 0:
            raise ValueError(f"weight, how often every pair counts, must be a positive number, got {weight}")
        if popularity is not None and not edges.signed:
            raise ValueError("popularity needs an edge model that takes negative distances, such as FermiDirac()")
        self.encoder, self.edges, self.weight, self.popularity = encoder, edges, weight, popularity
        self._set_posterior(posterior)

    @property
    def directed(self) -> bool:
        """Whether edges have a direction."""
        return self.popularity is not None and self.popularity.directed

    def encode(self, adjacency: Adjacency, features: Tensor | None = None) -> HyperbolicNormal | ProductNormal:
        """Compute q(z_i | A) of every node, on `Lorentz`."""
        return self.posterior(self._encoded(adjacency, features))

    def _encoded(self, adjacency: Adjacency, features: Tensor | None) -> Tensor:
        adjacency = adjacency if isinstance(adjacency, Arcs) else checks.real("adjacency", adjacency)
        return self.encoder(adjacency, None if features is None else checks.real("features", features))

    def terms(self, graph: GraphBatch, noise: Tensor) -> Terms:
        """Compute weight·Σ_{i<j} log p(A_ij | z_i, z_j), shape (k,), and log q(z_i | A) − log p(z_i), shape (k, n), for
        draws made from standard normal `noise` of shape (k, n, d): a pure function.
        """
        encoded = self._encoded(graph.adjacency, graph.features)
        noise = check_noise(noise, graph.adjacency.shape[-1], self.noise_dim)
        z, kl = self.posterior.draw(encoded, noise, dtype=torch.float64)
        own = () if self.popularity is None else (self.popularity(encoded, graph.adjacency),)
        return Terms(self.weight * self.log_likelihood(z, graph.pairs, *own), kl)

    def forward(self, graph: GraphBatch, noise: Tensor) -> Terms:
        return self.terms(graph, noise)

    def log_likelihood(self, S: Tensor, pairs: AnyPairs, popularity: Tensor | None = None) -> Tensor:
        """Compute Σ_{i<j} log p(A_ij | z_i, z_j), shape (…), of nodes at the points S of shape (…, n, d), float64, and
        with popularity and side of shape (2, n), or (3, n) for the sum over ordered pairs, as of
        `curvae.nn.Popularity`. Of `BalancedPairs` it is an unbiased estimate too, but with the gradient of n times the
        mean log-likelihood of these pairs among themselves.
        """
        S = checks.points("S", S, self.space.width, "this model").double()
        if isinstance(pairs, Pairs | BalancedPairs):
            logits = self.edges.logits(self._gaps(S, pairs.nodes, popularity).to(self.dtype))
            sign = 2.0 * pairs.present - 1.0
            every = (pairs.weight * F.logsigmoid(sign * logits)).sum(-1, dtype=torch.float64)
            if isinstance(pairs, Pairs):
                return every
            raised = F.logsigmoid(sign * (logits + pairs.shift.to(self.dtype)))
            learned = S.shape[-2] * (pairs.times * raised).mean(-1, dtype=torch.float64)
            return learned + (every - learned).detach()
        # As if there were no edge, and what the edges change in that.
        joined, counts = pairs if isinstance(pairs, WeightedEdges) else (pairs, None)
        absence, numbers = self.edges.absence, self.edges.numbers()
        if len(self.space) == 1 and popularity is None:
            empty = next(iter(self.space)).sum_over_pairs(S, absence, *numbers, dtype=self.dtype)
        else:
            every = every_pair(S.shape[-2], self.directed, S.device)
            gaps = self._gaps(S, every, popularity).to(self.dtype)
            empty = absence(gaps, *numbers)[0].sum(-1, dtype=torch.float64)
        logits = self.edges.logits(self._gaps(S, checks.tensor("pairs", joined), popularity))
        found = empty + logits.sum(-1)
        return found if counts is None else found + ((counts - 1.0) * F.logsigmoid(logits)).sum(-1)

    def _gaps(self, S: Tensor, pairs: Tensor, popularity: Tensor | None) -> Tensor:
        """Distances of listed pairs of the points S, less the popularity of both nodes, plus the product of sides."""
        d = self.space.pair_distances(S, pairs)
        if popularity is None:
            return d
        first, second = (popularity.index_select(1, nodes) for nodes in pairs)
        return d - (first[0] + second[-2] - first[-1] * second[-1])

    def elbo(
        self,
        adjacency: Adjacency,
        pairs: AnyPairs,
        k: int = 1,
        beta: float = 1.0,
        noise: Tensor | None = None,
        features: Tensor | None = None,
    ) -> Tensor:
        """Compute E[log p(A | Z)] − β·Σ_i KL_i estimated from k draws: one number for the graph."""
        if noise is None:
            matrix = adjacency.out if isinstance(adjacency, Arcs) else checks.real("adjacency", adjacency)
            noise = self.noise(matrix.shape[-1], k)
        reconstruction, kl = self.terms(GraphBatch(adjacency, pairs, features), noise)
        return (reconstruction - beta * kl.sum(-1)).mean()

    def distances(self, adjacency: Adjacency, pairs: Tensor, features: Tensor | None = None) -> Tensor:
        """Distances between the posterior means of listed pairs, shape (P,): the smaller, the likelier an edge."""
        pairs = checks.tensor("pairs", pairs)
        return self.space.pair_distances(self.encode(adjacency, features).loc, pairs)

    def scores(self, adjacency: Adjacency, pairs: Tensor, features: Tensor | None = None) -> Tensor:
        """Compute b_i + b_j − s_i·s_j − d(z_i, z_j) of listed pairs, between posterior means: the larger, the likelier
        an edge.
        """
        encoded = self._encoded(adjacency, features)
        own = None if self.popularity is None else self.popularity(encoded, adjacency)
        return -self._gaps(self.posterior(encoded).loc, checks.tensor("pairs", pairs), own)

    def sample(self, nodes: int, generator: torch.Generator | None = None, popularity: Tensor | None = None) -> Tensor:
        """Return a new graph: points from the prior, edges between them, shape (2, E), each once as i < j; of a
        directed graph from i to j. `popularity` is that of the new nodes with their sides, shape (2, nodes) or (3,
        nodes)."""
        with torch.no_grad():
            S = self.prior().transform(self.noise(nodes, 1, generator)[0])
            found = []
            for pairs in every_pair(nodes, self.directed, S.device).split(_AT_ONCE, 1):
                chance = torch.rand(pairs.shape[1], generator=generator, device=S.device, dtype=torch.float64)
                found.append(pairs[:, chance < self.edges.probability(self._gaps(S, pairs, popularity))])
            return torch.cat(found, 1) if found else S.new_empty(2, 0, dtype=torch.int64)
