"""One description of a run, shared by the loop, the run folder, the estimators and the command line; its device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import CurvaeError
from ..geometry.checks import has_float64
from ..models import LIKELIHOODS, Layout
from ..settings import GraphSettings, RowSettings, Settings, described, require_count

__all__ = ["Config", "GraphConfig", "Settings", "choose_device", "few_threads", "require_count"]


@dataclass(frozen=True)
class Config(RowSettings):
    """Everything that determines a trained model, besides the data.

    Settings are given by name, all at once; files hold them by part: space, networks, likelihood, objective, map and
    training.

    Example:
        >>> config = Config(objective="iwae", samples=5)
        >>> config.to_json()["objective"]
        {'samples': 5, 'beta': 1.0, 'objective': 'iwae'}
        >>> Config.from_json(config.to_json()) == config
        True
    """

    @property
    def scales(self) -> bool:
        """Whether columns are standardised, some or all; of an "auto" likelihood that is not known."""
        return self.standardise and self.likelihood != "auto" and bool(LIKELIHOODS[self.likelihood].standardise)

    @property
    def neighbour_weights(self) -> tuple[float, ...]:
        """Weights of the divergence between near rows and of the stress of far ones, of those that are asked for."""
        if not self.uses_neighbours or self.neighbours_weight is None:
            return ()
        # The stress grows faster with the columns.
        weights = {"near": self.neighbours_weight, "far": 3.0 * self.neighbours_weight**1.5}
        return tuple(weight for kind, weight in weights.items() if self.neighbours in (kind, "both"))

    def scaled(self, layout: Layout) -> NDArray[np.bool_]:
        """Tell which features of the data are standardised."""
        return LIKELIHOODS[self.likelihood].standardised(layout) & self.scales


@dataclass(frozen=True)
class GraphConfig(GraphSettings):
    """Everything that determines a trained `GraphVAE`, besides the graph.

    Edges are "fermi_dirac" with learned radius and temperature, and nodes have a popularity; or "geodesic",
    p = 1 − tanh d as in the paper's third experiment. A step is fitted to the edges and as many pairs without one,
    `pairs="balanced"`, or to the likelihood of all pairs, which the paper counts twice (`pairs="all", weight=2`). Half
    of the edges are hidden from the encoder in each step, for it to predict. The probability of an edge fixes the
    scale of the space, so `learn_curvature` and `learn_prior_scale` may both be set.

    Example:
        >>> GraphConfig.from_json(GraphConfig(dim=5).to_json()) == GraphConfig(dim=5)
        True
    """


# The docstrings list the settings, with help and default.
for one in (Config, GraphConfig):
    lines = "\n".join(f"        {name}: {known.text}" for name, known in described(one).items())
    one.__doc__ = f"{(one.__doc__ or '').rstrip()}\n\n    Attributes:\n{lines}\n    "


# Where to compute, and with how many threads.


def choose_device(device: str) -> torch.device:
    """ "auto" is CUDA where there is one, else the CPU."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found = None
    with suppress(RuntimeError):
        found = torch.device(device)
    if found is not None and not has_float64(found.type):
        raise CurvaeError(
            f'device {device} has no float64, which the geometry of curved spaces is computed in; use `device="cpu"`'
        )
    if found is None or found.type not in ("cpu", "cuda"):
        raise CurvaeError(f"`device` must be auto, cpu or cuda, got {device!r}")
    if found.type == "cuda" and not torch.cuda.is_available():
        raise CurvaeError('device cuda was asked for, but there is none; use `device="cpu"`')
    return found


@contextmanager
def few_threads(most: int | None) -> Iterator[None]:
    """Use at most so many threads of PyTorch for a while; None for as many as there are."""
    before = torch.get_num_threads()
    fewer = before if most is None else min(most, before)
    try:
        if fewer < before:
            torch.set_num_threads(fewer)
        yield
    finally:
        if fewer < before:
            torch.set_num_threads(before)
