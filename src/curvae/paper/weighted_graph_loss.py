"""The weighted loss of the first code of variational graph auto-encoders, which is not a bound on any likelihood.

It gives edges the weight of all other pairs together, π = (n² − 2E)/(2E), multiplies the mean over all n² pairs by
ν = n²/(2(n² − 2E)), and divides the divergence, a mean over nodes, by n once more. Times n² that is

    −2ν·Σ_{i<j} [A_ij·π·log p_ij + (1 − A_ij)·log(1 − p_ij)] + Σ_i KL_i,

so 2ν ≈ 1 stands where the paper has 2, but every edge counts π times, hundreds of times in a sparse graph.

References:
    Kipf and Welling (2016), Variational graph auto-encoders; the loss is in the authors' code.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..models import GraphVAE, Pairs

__all__ = ["WeightedGraphVAE"]


class WeightedGraphVAE(GraphVAE):
    """A `GraphVAE` with that loss.

    Arguments:
        model: whose parts are taken.
        nodes, edges: how many the graph has.
    """

    def __init__(self, model: GraphVAE, nodes: int, edges: int) -> None:
        rest = nodes * nodes - 2 * edges
        super().__init__(model.encoder, model.posterior, model.edges, weight=nodes * nodes / rest)
        self.edge_weight = rest / (2 * edges)

    def log_likelihood(self, S: Tensor, pairs: Tensor | Pairs) -> Tensor:
        """Σ_{i<j} with the weight of the edges; all pairs must be seen."""
        if isinstance(pairs, Pairs):
            raise ValueError("the weighted loss needs all pairs; give the edges")
        d: Any = self._distances(S, pairs)
        present = self.edges.log_prob(d, torch.ones_like(d)).sum(-1)
        return super().log_likelihood(S, pairs) + (self.edge_weight - 1.0) * present
