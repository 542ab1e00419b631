"""What a trained model says about its graph: embedding, and how well it tells edges from other pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ...data import Graph
from ...errors import CurvaeError
from ...geometry.pairs import distances
from ..evaluate import Embedding
from ..links import link_scores
from .fitting import FittedGraph

__all__ = ["Links", "embed_graph", "link_figures", "pair_distances"]


@dataclass(frozen=True)
class Links:
    """How well pairs of nodes that are joined are told from as many that are not, by distance."""

    auc: float
    """area under the ROC curve"""
    ap: float
    """average precision"""


def embed_graph(fitted: FittedGraph, graph: Graph) -> Embedding:
    """Posterior centres of the nodes, computed in float64."""
    fitted = fitted.double()
    seen = fitted.seen(graph)
    with torch.no_grad():
        q = fitted.model.encode(seen.adjacency(torch.float64), seen.features)
        c = float(fitted.model.prior.curvature())
    return Embedding(q.loc.cpu().numpy(), q.scale.log().mean(-1).exp().cpu().numpy(), c)


def pair_distances(embedding: Embedding, pairs: NDArray[np.int64]) -> NDArray[np.float64]:
    """Distances of pairs of nodes, (·, 2)."""
    c = torch.tensor(embedding.c, dtype=torch.float64)
    return distances(torch.from_numpy(embedding.space), torch.from_numpy(np.ascontiguousarray(pairs.T)), c).numpy()


def link_figures(fitted: FittedGraph, graph: Graph) -> dict[str, Links]:
    """For the edges held out by the split of the model, "validation" and "test", if there are any."""
    split = fitted.split
    if split is None:
        raise CurvaeError("the model was trained on all edges: none are left to be predicted; train with a split")
    embedding = embed_graph(fitted, graph)
    parts = {
        "validation": (split.validation, split.validation_absent),
        "test": (split.test, split.test_absent),
    }
    return {
        name: Links(*link_scores(*(-pair_distances(embedding, pairs) for pairs in both)))
        for name, both in parts.items()
        if len(both[0])
    }
