"""Configurations: all parts together, as one flat object that is nested in files."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, ClassVar, Literal, Self

from ..errors import CurvaeError
from .parts import (
    DrawSettings,
    EdgeSettings,
    GraphDrawSettings,
    GraphLayerSettings,
    GraphSpaceSettings,
    GraphStepSettings,
    LayerSettings,
    LikelihoodSettings,
    NeighbourSettings,
    NetworkSettings,
    ObjectiveSettings,
    SpaceSettings,
    StepSettings,
    TrainingSettings,
)
from .setting import Part, described

__all__ = ["ADDED", "GraphSettings", "RowSettings", "Settings", "flattened"]


ADDED: Mapping[str, Any] = {}
"""settings introduced after the first release, with the value that reproduces runs that were written before them"""


# Hidden layers by default from so many training rows on.
_MANY, _MANY_ROWS = 1000, (200, 200)
# An encoder that keeps neighbourhoods has more to learn. From so many training rows on: hidden layers, dropout, and the
# weight decay beside it over that of others.
_SOME, _DEEP, _DROPOUT, _DECAY_BESIDE = 400, (200, 200, 200, 200), 0.03, 0.3
# And from so many training rows on: dropout, and jitter if it is held to near neighbours. In smaller tables jitter
# costs it some of these.
_LARGE, _MORE_DROPOUT, _JITTER = 2000, 0.05, 0.5

# β of a model of a graph with balanced pairs: divided by the dimension, and the least.
_BETA_BY_DIMENSION, _LEAST_BETA = 0.1, 0.01


@dataclass(frozen=True)
class Settings(StepSettings, DrawSettings, LayerSettings, SpaceSettings):
    """What the settings of all kinds of models have in common."""

    parts: ClassVar[Mapping[str, type[Part]]]

    @classmethod
    def part_of(cls, name: str) -> str:
        """The part that a setting belongs to."""
        return next(part for part, kind in cls.parts.items() if name in described(kind))

    @property
    def architecture(self) -> Self:
        """What the models of one stack have in common: these settings without the numbers that may differ."""
        scale: float | Literal["auto"] = "auto" if self.prior_scale == "auto" else 1.0  # which has units of its own
        common = dataclasses.replace(self, seed=0, prior_scale=scale, learning_rate=1.0, beta=1.0)
        return common if all(factor.flat for factor in self.factors) else common.with_curvature(1.0)

    @property
    def divergence_weight(self) -> float:
        """β."""
        return float(self.beta)

    @property
    def encoder_decay(self) -> float:
        """By which multiple of the learning rate the weights of the encoder shrink in a step."""
        return 0.0

    @property
    def noise_pace(self) -> float:
        """The learning rate of the noise of columns, over that of all else."""
        return 1.0

    def flat(self) -> dict[str, Any]:
        """As one dictionary of JSON values, by name."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}

    def to_json(self) -> dict[str, dict[str, Any]]:
        """As JSON values, by part and name."""
        values = self.flat()
        return {part: {name: values[name] for name in described(kind)} for part, kind in self.parts.items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """From `to_json`, or `flat`; names that are missing take their default, unknown ones are refused."""
        given = flattened(values, cls.parts)
        known = described(cls)
        if unknown := sorted(set(given) - set(known)):
            near = [match for name in unknown for match in get_close_matches(name.rpartition(".")[2], known, 1)]
            meant = f"; did you mean {', '.join(near)}?" if near else ""
            raise CurvaeError(f"unknown settings: {', '.join(unknown)}{meant}")
        return cls(**given)


def flattened(values: Mapping[str, Any], parts: Mapping[str, type[Part]]) -> dict[str, Any]:
    """Settings by name, of a dictionary by part or by name; what is in the wrong part is called `part.name`."""
    if not isinstance(values, Mapping):
        raise CurvaeError(f"settings must be given by name, got {values!r}")
    found: dict[str, Any] = {}
    for key, value in values.items():
        if key in parts and isinstance(value, Mapping):
            found |= {name if name in described(parts[key]) else f"{key}.{name}": v for name, v in value.items()}
        else:
            found[key] = value
    return found


@dataclass(frozen=True)
class RowSettings(
    TrainingSettings, NeighbourSettings, ObjectiveSettings, LikelihoodSettings, NetworkSettings, Settings
):
    """Everything that determines a trained model of rows, besides the data."""

    parts: ClassVar[Mapping[str, type[Part]]] = {
        "space": SpaceSettings,
        "networks": NetworkSettings,
        "likelihood": LikelihoodSettings,
        "objective": ObjectiveSettings,
        "map": NeighbourSettings,
        "training": TrainingSettings,
    }

    def check(self) -> None:
        super().check()
        if self.learn_prior_scale and any(factor.learned for factor in self.factors):
            raise CurvaeError(
                "learn_curvature and learn_prior_scale cannot be combined: only c·σ0² is identifiable; drop one"
            )
        if self.init == "pca" and self.network != "mlp":
            raise CurvaeError(f'init="pca" needs network="mlp", not {self.network}; use init="random"')

    @property
    def architecture(self) -> Self:
        return dataclasses.replace(super().architecture, neighbours_weight=None)

    @property
    def uses_neighbours(self) -> bool:
        """Whether the map is held to the neighbourhoods of the data; no, while that is not decided."""
        return self.neighbours not in ("auto", "off")

    @property
    def keeps_neighbours(self) -> bool:
        """Whether an MLP is held to the neighbourhoods of the data: by default it starts with PCA."""
        return self.uses_neighbours and self.network == "mlp"

    def _deep(self, rows: int) -> bool:
        """Whether a deeper encoder with dropout is the default."""
        return self.keeps_neighbours and rows >= _SOME

    def layered(self, rows: int) -> Self:
        """The same with the hidden layers, dropout and jitter that suit so many training rows, unless given."""
        hidden, dropout, jitter = self.layers, self.dropout, self.jitter
        deep, large = self._deep(rows), rows >= _LARGE
        if self.hidden is None and (deep or rows >= _MANY):
            hidden = _DEEP if deep else _MANY_ROWS
        if dropout == "auto":
            dropout = (_MORE_DROPOUT if large else _DROPOUT) if deep else 0.0
        if jitter == "auto":
            jitter = _JITTER if deep and large and self.neighbours != "far" else 0.0
        return dataclasses.replace(self, hidden=hidden, dropout=dropout, jitter=jitter)

    def lasting(self, rows: int, watched: int) -> Self:
        found = super().lasting(rows, watched)
        if self.weight_decay != "auto" or not self._deep(rows):
            return found
        return dataclasses.replace(found, weight_decay=_DECAY_BESIDE * found.encoder_decay)

    @property
    def dropped(self) -> float:
        """The share of the units of the encoder that are left out in a step; 0 while nothing is known of the rows."""
        return 0.0 if self.dropout == "auto" else self.dropout

    @property
    def moved(self) -> float:
        """The share of the way to a neighbour by which rows are moved, at most; 0 while nothing is known of them."""
        return 0.0 if self.jitter == "auto" else self.jitter

    @property
    def encoder_decay(self) -> float:
        if self.weight_decay == "auto":
            raise ValueError('choose the weight decay before training: "auto" needs the number of rows')
        return self.weight_decay

    @property
    def noise_pace(self) -> float:
        return self.noise_rate

    @property
    def gaussian(self) -> bool:
        """Whether the likelihood is a normal one."""
        return self.likelihood in ("gaussian", "unit_gaussian")


@dataclass(frozen=True)
class GraphSettings(
    GraphStepSettings, GraphDrawSettings, EdgeSettings, GraphLayerSettings, GraphSpaceSettings, Settings
):
    """Everything that determines a trained model of a graph, besides the graph."""

    parts: ClassVar[Mapping[str, type[Part]]] = {
        "space": GraphSpaceSettings,
        "networks": GraphLayerSettings,
        "edges": EdgeSettings,
        "objective": GraphDrawSettings,
        "training": GraphStepSettings,
    }

    @property
    def divergence_weight(self) -> float:
        """β: the one that is set, or what suits the dimension.

        The divergence of a node grows with the dimension: what holds back positions in two dimensions makes them all
        the same in many. Free vectors fit edges that are all seen, where nothing is to be held back.
        """
        if self.beta != "auto":
            return self.beta
        held_back = self.pairs == "balanced" and self.encoder == "convolutions"
        return max(_LEAST_BETA, _BETA_BY_DIMENSION / self.dim) if held_back else _LEAST_BETA
