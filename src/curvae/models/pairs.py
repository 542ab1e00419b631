"""Which pairs of nodes a graph's likelihood is computed from: all of them, or a weighted sample."""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import CurvaeError

__all__ = ["AnyPairs", "BalancedPairs", "PairSampler", "Pairs", "WeightedEdges", "exact", "pair_count"]

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
    """How many pairs so many nodes have; if directed, ordered ones."""
    return n_nodes * (n_nodes - 1) // (1 if directed else 2)


def _number(i: Tensor, j: Tensor) -> Tensor:
    """The place of the pair i < j among all pairs in order of (j, i)."""
    return j * (j - 1) // 2 + i


def _ordered_number(i: Tensor, j: Tensor, n_nodes: int) -> Tensor:
    """The place of the pair i ≠ j among all ordered pairs in order of (i, j)."""
    return i * (n_nodes - 1) + j - (j > i).long()


def _ordered_pair(number: Tensor, n_nodes: int) -> Tensor:
    """The ordered pairs at these places, shape (2, …)."""
    i = number // (n_nodes - 1)
    j = number - i * (n_nodes - 1)
    return torch.stack([i, j + (j >= i).long()])


def _pair(number: Tensor) -> Tensor:
    """The pairs at these places, shape (2, …)."""
    j = ((1.0 + (1.0 + 8.0 * number.double()).sqrt()) / 2.0).long()
    # Rounding can only raise the root: that of a square is exact.
    j = j - (j * (j - 1) // 2 > number).long()
    return torch.stack([number - j * (j - 1) // 2, j])


def joined_nodes(edges: Tensor, n_nodes: int) -> tuple[Tensor, Tensor]:
    """The nodes that have an edge, ascending, and the edges in terms of their places.

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
        self._among: Tensor | None = None
        if joined:
            self._among, edges = joined_nodes(edges, n_nodes)
            n_nodes = len(self._among)
        self.edges, self.n_nodes, self.directed, self._weights = edges, n_nodes, directed, weights
        self.rest = pair_count(n_nodes, directed) - edges.shape[1]
        if self.rest < 1:
            raise CurvaeError('every pair of nodes is joined: there is no non-edge to draw; set pairs="all"')
        number = self._number(edges)
        self._places = number.sort().values
        self._before = self._places - torch.arange(edges.shape[1], device=edges.device)  # non-edges before each edge

    def _number(self, nodes: Tensor) -> Tensor:
        """The places of pairs among all pairs."""
        if self.directed:
            return _ordered_number(nodes[0], nodes[1], self.n_nodes)
        return _number(*nodes.aminmax(dim=0))

    def draw(self, absent: int, present: int | None = None, generator: torch.Generator | None = None) -> Pairs:
        """Pairs for one estimate.

        Arguments:
            absent: how many non-edges to draw, with replacement.
            present: how many edges to draw; all of them if not given. They are different; at most half of all are one
                of each of so many equal parts of the list, of which two may share an edge at their ends.
            generator: source of the draws, on the device of the edges.
        """
        drawn = self._draw(absent, present, generator)[0]
        return drawn._replace(nodes=self._named(drawn.nodes))

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
        missing = _ordered_pair(number, self.n_nodes) if self.directed else _pair(number)
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
        counts = torch.ones_like(joined)
        if weights is not None:
            counts = torch.cat([weights, weights.new_ones(absent)])
        return Pairs(torch.cat([edges, missing], 1), joined, weight * counts), counts

    def _named(self, nodes: Tensor) -> Tensor:
        """The nodes of pairs by their places among all nodes."""
        return nodes if self._among is None else self._among[nodes]

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
        """The same with as many non-edges as edges, half of them between nodes that are drawn by their degrees.

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
        rate = (absent - likely * (1.0 - self._refused)) / self.rest + likely * self._chance(nodes)
        weight = torch.where(drawn.present > 0, drawn.weight, 1.0 / rate)
        shift = (max(1, present) / max(1, self.edges.shape[1]) / rate).log()
        return BalancedPairs(self._named(nodes), drawn.present, weight, shift, counts)

    def _by_degree(self, uniform: Tensor, generator: torch.Generator | None) -> Tensor:
        """Pairs whose nodes are drawn by their degrees; in place of an edge, or of twice the same node, the pair that
        was drawn uniformly."""
        edges = self.edges
        ends = (edges[0], edges[1]) if self.directed else (edges.reshape(-1),) * 2
        size = uniform.shape[1:]
        drawn = [end[torch.randint(max(1, len(end)), size, generator=generator, device=end.device)] for end in ends]
        nodes = torch.stack(drawn)
        number = self._number(nodes)
        places = torch.searchsorted(self._places, number).clamp_max(edges.shape[1] - 1)
        refused = (nodes[0] == nodes[1]) | (self._places[places] == number)
        return torch.where(refused, uniform, nodes)

    def _chance(self, nodes: Tensor) -> Tensor:
        """How likely each pair is one whose nodes were drawn by their degrees."""
        tails, heads = self._degrees
        return tails[nodes[0]] * heads[nodes[1]] * (1.0 if self.directed else 2.0)

    @cached_property
    def _degrees(self) -> tuple[Tensor, Tensor]:
        """Of each node, as shares of all: out and in, or both together."""
        ends = (self.edges[0], self.edges[1]) if self.directed else (self.edges.reshape(-1),)
        shares = [torch.bincount(end, minlength=self.n_nodes).double() / max(1, end.numel()) for end in ends]
        return shares[0], shares[-1]

    @cached_property
    def _refused(self) -> float:
        """How likely nodes drawn by their degrees are joined, or the same."""
        tails, heads = self._degrees
        return float(self._chance(self.edges).sum() + (tails * heads).sum())


def exact(n_nodes: int, listed: bool = False) -> bool:
    """Whether all pairs of a graph of this size are to be seen at every step, or a sample: up to 8192 nodes, or 2048
    where pairs must be `listed`, as for a product of several factors."""
    return n_nodes <= (_EXACT_LISTED if listed else _EXACT)
