"""The settings of a model of a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from ...models.latent import Law
from ..config import Settings

__all__ = ["EdgeKind", "GraphConfig"]

EdgeKind = Literal["geodesic", "fermi_dirac"]


@dataclass(frozen=True)
class GraphConfig(Settings):
    """Everything that determines a trained `GraphVAE`, besides the graph. The defaults are those of the paper's third
    experiment, which has five dimensions; two can be drawn.

    Attributes:
        edges: "geodesic", p = 1 − tanh d as in the paper, or "fermi_dirac" with learned radius and temperature.
        weight: how often the likelihood counts every pair of nodes: 2 as in the paper, whose product goes over ordered
            pairs. What it is to the divergence decides how much of the graph the nodes may tell.
        epochs: steps, each over the whole graph.
        samples: draws of all nodes a step.
        learn_curvature, learn_prior_scale: may both be set, as the probability of an edge fixes the scale of the space.
        dim, curvature, posterior, diagonal, prior_scale, hidden, beta, learning_rate, tf32, seed: see `Settings`.

    Example:
        >>> GraphConfig.from_json(GraphConfig(dim=5).to_json()) == GraphConfig(dim=5)
        True
    """

    posterior: Law = "wrapped"
    hidden: tuple[int, ...] = (32,)
    epochs: int = 800
    learning_rate: float = 1e-2
    edges: EdgeKind = "geodesic"
    weight: float = 2.0

    _counts: ClassVar[tuple[str, ...]] = (*Settings._counts, "epochs")
    _optional: ClassVar[tuple[str, ...]] = ()
    _positive: ClassVar[tuple[str, ...]] = (*Settings._positive, "weight")
