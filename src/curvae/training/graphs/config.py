"""The settings of a model of a graph."""

from __future__ import annotations

from dataclasses import dataclass

from ...settings import EdgeKind, GraphSettings
from ..config import documented

__all__ = ["EdgeKind", "GraphConfig"]


@dataclass(frozen=True)
class GraphConfig(GraphSettings):
    """Everything that determines a trained `GraphVAE`, besides the graph. The defaults are those of the paper's third
    experiment, which has five dimensions; two can be drawn.

    `learn_curvature` and `learn_prior_scale` may both be set, as the probability of an edge fixes the scale of the
    space. The likelihood counts every pair of nodes twice, as in the paper, whose product goes over ordered pairs; what
    `weight` is to the divergence decides how much of the graph the nodes may tell. Edges are "geodesic",
    p = 1 − tanh d as in the paper, or "fermi_dirac" with learned radius and temperature.

    Example:
        >>> GraphConfig.from_json(GraphConfig(dim=5).to_json()) == GraphConfig(dim=5)
        True
    """


documented(GraphConfig)
