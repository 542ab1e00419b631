"""Steps over whole graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_map

from ...data import Graph
from ...models import GraphBatch, GraphVAE, PairSampler, Terms
from ...models.pairs import exact
from ...nn import normalised_adjacency
from ..config import GraphConfig
from ..engine import Advance, Engine, EpochResult, Failure
from ..rows import Scaling
from .features import feature_tensor

__all__ = ["GraphEngine", "Observed"]

_DENSE = 1024  # nodes up to which a single graph is a matrix


@dataclass(frozen=True, eq=False)
class Observed:
    """What a model sees of a graph: some of the edges, and the features of the nodes.

    Arguments:
        n_nodes: number of nodes.
        edges: (2, E), each once.
        weights: of these edges, or None.
        features: (n, ·), scaled, dense or sparse, or None.
    """

    n_nodes: int
    edges: Tensor
    weights: Tensor | None = None
    features: Tensor | None = None

    @classmethod
    def of(
        cls,
        graph: Graph,
        kept: NDArray[np.int64] | None = None,
        scaling: Scaling | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> Self:
        """Of a graph, with all edges or the `kept` ones, (·, 2)."""
        kept = graph.edges if kept is None else kept
        edges, weights = torch.from_numpy(np.ascontiguousarray(kept.T)).to(device), None
        if graph.weights is not None:
            keys, own = (pairs[:, 0] * graph.n_nodes + pairs[:, 1] for pairs in (graph.edges, kept))
            weights = torch.from_numpy(graph.weights[np.searchsorted(keys, own)]).to(device, dtype)
        features = None
        if graph.features is not None and scaling is not None:
            features = feature_tensor(graph.features, scaling, device, dtype)
        return cls(graph.n_nodes, edges, weights, features)

    def adjacency(self, dtype: torch.dtype, dense: bool | None = None) -> Tensor:
        """Â, dense for small graphs or where asked for."""
        weights = torch.ones_like(self.edges[0], dtype=dtype) if self.weights is None else self.weights.to(dtype)
        dense = self.n_nodes <= _DENSE if dense is None else dense
        return normalised_adjacency(self.edges, self.n_nodes, weights, dense)

    def batch(self, dtype: torch.dtype, dense: bool | None = None) -> GraphBatch:
        """For a step in which every pair counts."""
        return GraphBatch(self.adjacency(dtype, dense), self.edges, self.features)


class GraphEngine(Engine[GraphVAE, GraphConfig]):
    """A stack of models with its optimiser and graphs; an epoch is one step over the whole graph.

    The noise of model k, and the pairs that it sees of a graph too large to see them all, come from (its seed, epoch)
    alone.

    Arguments:
        models, configs: as of `Engine`.
        seen: what each of them sees, graphs of one size with equally many edges.
    """

    def __init__(self, models: Sequence[GraphVAE], configs: Sequence[GraphConfig], seen: Sequence[Observed]) -> None:
        super().__init__(models, configs)
        self.seen = list(seen)
        self.nodes = seen[0].n_nodes
        several = len(models) > 1
        each = [part.batch(self.stack.dtype, dense=several or None) for part in seen]
        self._graph = tree_map(lambda *parts: torch.stack(parts), *each) if several else each[0]
        seen_all = exact(self.nodes, len(models[0].space))
        self._sampler = None if seen_all else PairSampler(seen[0].edges, self.nodes)
        if several and self._sampler is not None:
            raise ValueError("graphs of which not every pair is seen are trained one at a time")
        self.beta = self._weights(1)

    @property
    def total(self) -> int:
        return self.config.epochs

    def _subset(self, places: list[int]) -> Self:
        return type(self)(
            [self.stack.models[i] for i in places],
            [self.configs[i] for i in places],
            [self.seen[i] for i in places],
        )

    def _terms(self, epoch: int) -> Terms:
        generators = self._generators(epoch)
        model, samples = self.stack.models[0], self.config.samples
        made = {one: model.noise(self.nodes, samples, one) for one in dict.fromkeys(generators)}
        noise = [made[one] for one in generators]
        if len(self) > 1:
            return Terms(*self.stack.terms(self._graph, torch.stack(noise))[:2])
        graph = self._graph
        if self._sampler is not None:
            graph = GraphBatch(graph.adjacency, self._sampler.step(generators[0]), graph.features)
        return model.terms(graph, noise[0])

    def epoch(self, epoch: int, advance: Advance = lambda share: None) -> EpochResult:
        reconstruction, kl = self._terms(epoch)
        kl = kl.sum(-1)
        failures: dict[int, Failure] = {}
        self._learn((self.beta * kl - reconstruction).mean(-1) / self.nodes, 1, failures)
        means = torch.stack([reconstruction, kl]).detach().mean(-1).view(2, -1).T.cpu()
        return EpochResult(means / self.nodes, failures)
