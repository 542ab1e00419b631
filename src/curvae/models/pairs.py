"""Which pairs of nodes a graph's likelihood is computed from: all of them, or a weighted sample."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import CurvaeError

__all__ = ["AnyPairs", "BalancedPairs", "PairSampler", "Pairs", "exact"]

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
        weight: how many pairs each stands for, shape (P,).
    """

    nodes: Tensor
    present: Tensor
    weight: Tensor


class BalancedPairs(NamedTuple):
    """Edges and as many pairs that are not joined, each of which counts once for what is learned.

    Among them edges are likelier than among all pairs: their odds are e^shift times as large. A model that predicts
    edges among these pairs, with log-odds raised by `shift`, learns the same probabilities as from all pairs, from
    terms that are alike in size, and so with much less noise.

    Attributes:
        nodes, present, weight: as of `Pairs`.
        shift: log of how many pairs a non-edge stands for over how many an edge stands for, shape ().

    References:
        Prentice and Pyke (1979), Logistic disease incidence models and case-control studies.
    """

    nodes: Tensor
    present: Tensor
    weight: Tensor
    shift: Tensor


AnyPairs = Tensor | Pairs | BalancedPairs
"""edges, for all pairs; or some pairs"""


def _number(i: Tensor, j: Tensor) -> Tensor:
    """The place of the pair i < j among all pairs in order of (j, i)."""
    return j * (j - 1) // 2 + i


def _pair(number: Tensor) -> Tensor:
    """The pairs at these places, shape (2, …)."""
    j = ((1.0 + (1.0 + 8.0 * number.double()).sqrt()) / 2.0).long()
    # Rounding can only raise the root: that of a square is exact.
    j = j - (j * (j - 1) // 2 > number).long()
    return torch.stack([number - j * (j - 1) // 2, j])


class PairSampler:
    """Edges and uniformly drawn non-edges, weighted so that the sum over them is unbiased for the sum over all pairs.

    A non-edge is drawn by its place among the non-edges: between two edges that follow each other in the list of all
    pairs, places of pairs and of non-edges differ by the number of edges before, so a search among the edges finds it,
    without a second try. Memory grows with edges and draws, not with pairs.

    Arguments:
        edges: the edges, shape (2, E), each listed once, in either direction.
        n_nodes: number of nodes.
        joined: leave out nodes without an edge, so that the sum is over all pairs of the other nodes.

    Example:
        >>> edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
        >>> pairs = PairSampler(edges, 100).draw(absent=50)
        >>> pairs.nodes.shape, float(pairs.weight.sum())  # 4950 pairs
        (torch.Size([2, 53]), 4950.0)
    """

    def __init__(self, edges: Tensor, n_nodes: int, joined: bool = False) -> None:
        self._among: Tensor | None = None
        if joined:
            self._among, edges = edges.unique(return_inverse=True)
            n_nodes = len(self._among)
        self.edges, self.n_nodes = edges, n_nodes
        self.rest = n_nodes * (n_nodes - 1) // 2 - edges.shape[1]
        if self.rest < 1:
            raise CurvaeError('every pair of nodes is joined: there is no non-edge to draw; set pairs="all"')
        places = _number(*edges.aminmax(dim=0)).sort().values
        self._before = places - torch.arange(edges.shape[1], device=edges.device)  # non-edges before each edge

    def draw(self, absent: int, present: int | None = None, generator: torch.Generator | None = None) -> Pairs:
        """Pairs for one estimate.

        Arguments:
            absent: how many non-edges to draw, with replacement.
            present: how many edges to draw, without replacement; all of them if not given.
            generator: source of the draws, on the device of the edges.
        """
        edges, count = self.edges, self.edges.shape[1]
        present = count if present is None else present
        if not 0 <= present <= count or (present == 0) != (count == 0):
            raise ValueError(f"present, the number of edges to draw, must lie between 1 and {count}, got {present}")
        if absent < 1:
            raise ValueError(f"absent, the number of non-edges to draw, must be at least 1, got {absent}")
        draws = torch.randint(self.rest, (absent,), generator=generator, device=edges.device)
        missing = _pair(draws + torch.searchsorted(self._before, draws, right=True))
        if present < count:
            edges = edges[:, torch.randperm(count, generator=generator, device=edges.device)[:present]]
        sizes = torch.tensor([present, absent], device=edges.device)
        weight = torch.tensor([count / max(present, 1), self.rest / absent], dtype=torch.float64, device=edges.device)
        nodes = torch.cat([edges, missing], 1)
        return Pairs(
            nodes if self._among is None else self._among[nodes],
            torch.tensor([1.0, 0.0], device=edges.device).repeat_interleave(sizes),
            weight.repeat_interleave(sizes),
        )

    def step(self, generator: torch.Generator | None = None) -> Pairs:
        """For a training step: at most 65,536 edges, and ten non-edges for each."""
        present = min(self.edges.shape[1], _PRESENT)
        return self.draw(max(1, _NEGATIVES * present), present, generator)

    @property
    def shift(self) -> float:
        """By how much log-odds of an edge among balanced pairs exceed those among all pairs."""
        return math.log(self.rest / max(1, self.edges.shape[1]))

    def balanced(self, generator: torch.Generator | None = None) -> BalancedPairs:
        """The same with as many non-edges as edges."""
        present = min(self.edges.shape[1], _PRESENT)
        drawn = self.draw(max(1, present), present, generator)
        return BalancedPairs(*drawn, torch.tensor(self.shift, dtype=torch.float64, device=drawn.nodes.device))


def exact(n_nodes: int, listed: bool = False) -> bool:
    """Whether all pairs of a graph of this size are to be seen at every step, or a sample: up to 8192 nodes, or 2048
    where pairs must be `listed`, as for a product of several factors."""
    return n_nodes <= (_EXACT_LISTED if listed else _EXACT)
