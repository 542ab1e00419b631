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
from ...data.scaling import Scaling
from ...models import GraphBatch, GraphVAE, PairSampler, Terms
from ...models.pairs import AnyPairs, WeightedEdges, exact, joined_nodes, pair_count
from ...nn import Adjacency, AdjacencyMaker
from ..config import GraphConfig
from ..engine import Engine, EpochResult, Failure
from ..fitted import Record
from .build import listed
from .features import feature_tensor

__all__ = ["DENSE", "GraphEngine", "Observed"]

DENSE = 1024
"""nodes up to which a single graph is a matrix"""

_WATCH = 10  # steps from one look at the validation edges to the next


@dataclass(frozen=True, eq=False)
class Observed:
    """What a model sees of a graph: some of the edges, and the features of the nodes.

    Arguments:
        n_nodes: number of nodes.
        edges: (2, E), each once.
        weights: of these edges, or None.
        features: (n, ·), scaled, dense or sparse, or None.
        directed: whether edges lead from the first to the second node.
    """

    n_nodes: int
    edges: Tensor
    weights: Tensor | None = None
    features: Tensor | None = None
    directed: bool = False

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
        return cls(graph.n_nodes, edges, weights, features, graph.directed)

    def maker(self, dtype: torch.dtype, dense: bool | None = None) -> AdjacencyMaker:
        """Makes Â of these edges or some of them, dense for small graphs or where asked for."""
        weights = torch.ones_like(self.edges[0], dtype=dtype) if self.weights is None else self.weights.to(dtype)
        if dense is None:  # two products with half of the features each are the slower, the larger the matrix
            dense = self.n_nodes <= (DENSE // 4 if self.directed else DENSE)
        return AdjacencyMaker(self.edges, self.n_nodes, weights, dense, self.directed)

    def adjacency(self, dtype: torch.dtype) -> Adjacency:
        """Â of all these edges."""
        return self.maker(dtype)()

    @property
    def intensities(self) -> Tensor | None:
        """How often each edge counts: its weight beside the mean weight, which so has no unit."""
        return None if self.weights is None else self.weights / self.weights.mean()

    def sampler(self, balanced: bool) -> PairSampler:
        """Draws balanced pairs of nodes with edges, which count by their weights, or any pairs, whose edges all count
        alike."""
        weights = self.intensities if balanced else None
        return PairSampler(self.edges, self.n_nodes, balanced, self.directed, weights)

    def all_pairs(self, balanced: bool) -> AnyPairs:
        """All pairs of nodes in their place."""
        weights = self.intensities if balanced else None
        return self.edges if weights is None else WeightedEdges(self.edges, weights)


class GraphEngine(Engine[GraphVAE, GraphConfig]):
    """A stack of models with its optimiser and graphs; an epoch is one step over the whole graph.

    The noise of model k, the pairs that it is fitted to where these are not all, and the edges that are hidden from its
    encoder come from (its seed, epoch) alone.

    Arguments:
        models, configs: as of `Engine`.
        seen: what each of them sees, graphs of one size with equally many edges.
        watched: for each of them pairs to be told apart now and then, (2, P): edges, and after them as many others.
    """

    def __init__(
        self,
        models: Sequence[GraphVAE],
        configs: Sequence[GraphConfig],
        seen: Sequence[Observed],
        watched: Sequence[Tensor] = (),
    ) -> None:
        super().__init__(models, configs)
        self.seen, self.watched, self.nodes = list(seen), list(watched), seen[0].n_nodes
        several = len(models) > 1
        self._makers = [part.maker(self.stack.dtype, dense=several or None) for part in seen]
        self._adjacencies = [maker() for maker in self._makers]
        # Of a node without an edge, which hidden edges may have left alone, nothing is known.
        joined = self.config.pairs == "balanced"
        seen_all = _complete(seen) if joined else exact(self.nodes, listed(self.config))
        self._samplers = [] if seen_all else [part.sampler(joined) for part in seen]
        if several and self._samplers and self.config.pairs == "all":
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
            [self.watched[i] for i in places if self.watched],
        )

    def _shown(self, place: int, epoch: int) -> Adjacency:
        """Â of the edges that the encoder sees in a step: each counts for those that are hidden from it."""
        hide = self.config.hide
        if not hide or self.config.encoder == "free":
            return self._adjacencies[place]
        maker, device = self._makers[place], self.stack.device
        draws = torch.rand(
            maker.edges.shape[1], generator=self._generator(self.configs[place].seed, epoch, 2), device=device
        )
        return maker((draws >= hide).to(self.stack.dtype) / (1.0 - hide))

    def _pairs(self, place: int, epoch: int, generator: torch.Generator) -> AnyPairs:
        """The pairs that a step is fitted to."""
        if not self._samplers:
            return self.seen[place].all_pairs(self.config.pairs == "balanced")
        if self.config.pairs == "all":  # from one generator after the noise
            return self._samplers[place].step(generator)
        return self._samplers[place].balanced(self._generator(self.configs[place].seed, epoch, 1))

    def _terms(self, epoch: int) -> Terms:
        generators = self._generators(epoch)
        model, samples = self.stack.models[0], self.config.samples
        made = {one: model.noise(self.nodes, samples, one) for one in dict.fromkeys(generators)}
        graphs = [
            GraphBatch(self._shown(i, epoch), self._pairs(i, epoch, generator), self.seen[i].features)
            for i, generator in enumerate(generators)
        ]
        if len(self) > 1:
            noise = torch.stack([made[one] for one in generators])
            return Terms(*self.stack.terms(tree_map(lambda *parts: torch.stack(parts), *graphs), noise)[:2])
        return model.terms(graphs[0], made[generators[0]])

    def epoch(self, epoch: int) -> EpochResult:
        reconstruction, kl = self._terms(epoch)
        kl = kl.sum(-1)
        failures: dict[int, Failure] = {}
        self._learn((self.beta * kl - reconstruction).mean(-1) / self.nodes, 1, failures)
        means = torch.stack([reconstruction, kl]).detach().mean(-1).view(2, -1).T.cpu()
        return EpochResult(means / self.nodes, failures)

    def validate(self) -> Tensor | None:
        """AUC of the pairs that are watched, (models, 1), every tenth step and at the end."""
        if not self.watched or (self.step % _WATCH and self.step < self.total):
            return None
        features = [seen.features for seen in self.seen if seen.features is not None]
        each = zip(self._adjacencies, self.watched, *([features] if features else []), strict=True)
        with torch.no_grad():
            if len(self) == 1:
                scores = self.stack.models[0].scores(*next(each)).unsqueeze(0)
            else:
                given = tree_map(lambda *parts: torch.stack(parts), *each)
                scores = self.stack.pure("scores", self.stack.leaves, self.stack.buffers, *given)
        return torch.tensor([[_auc(own)] for own in scores.cpu().numpy()], dtype=torch.float64)

    def watched_figures(self, values: Sequence[float]) -> Record:
        return {"validation_auc": values[0]}


def _complete(seen: Sequence[Observed]) -> bool:
    """Whether a graph has no pair of nodes with edges that is not joined."""
    joined = (len(joined_nodes(part.edges, part.n_nodes)[0]) for part in seen)
    return any(part.edges.shape[1] == pair_count(n, part.directed) for part, n in zip(seen, joined, strict=True))


def _auc(scores: NDArray[np.float64]) -> float:
    """Area under the ROC curve of telling the first half from the second."""
    half = len(scores) // 2
    if not np.isfinite(scores).all():
        return float("nan")
    from scipy.stats import rankdata  # takes long to import

    return float((rankdata(scores)[:half].mean() - (half + 1) / 2) / half)
