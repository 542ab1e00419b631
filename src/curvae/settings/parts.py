"""The parts of a configuration: names, defaults, help and checks of all settings."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self

from ..errors import CurvaeError
from .checks import NOT_NEGATIVE, POSITIVE, Rule, number, whole
from .factors import FactorSettings, parse_space
from .names import LIKELIHOODS, DecoderKind, DistributionKind, EdgeKind, NeighbourKind, NetworkKind, ObjectiveKind
from .setting import Part, again, described, setting

__all__ = [
    "DrawSettings",
    "EdgeSettings",
    "GraphLayerSettings",
    "GraphSpaceSettings",
    "GraphStepSettings",
    "LayerSettings",
    "LikelihoodSettings",
    "NeighbourSettings",
    "NetworkSettings",
    "ObjectiveSettings",
    "SpaceSettings",
    "StepSettings",
    "TrainingSettings",
]

# An unset number of epochs is chosen to make about this many steps.
_STEPS = 8000
_FEWEST, _MOST = 20, 1000

_CURVATURE = Rule(NOT_NEGATIVE.holds, "be c ≥ 0, the space having curvature −c; got")
_SHARE = Rule(lambda value: number(value) and 0 <= value < 1, "be a share of the rows, from 0 to below 1; got")
_SEED = Rule(lambda value: whole(value) and 0 <= value < 2**32, "be a whole number from 0 to 2³²−1, got")


@dataclass(frozen=True)
class SpaceSettings(Part):
    """The latent space, and the distributions on it."""

    space: str | None = setting(
        None,
        "Factors of the latent space, such as h2, h2:1.2, h2:learn or h2,e3.",
        shown="h of the dimension and curvature given",
    )
    dim: int = setting(2, "Dimension of the latent space.", flags=("-d",))
    curvature: float = setting(
        1.0, "c ≥ 0: the space has curvature −c; 0 is the ordinary VAE.", flags=("-c",), rule=_CURVATURE, compared=False
    )
    learn_curvature: bool = setting(False, "Train c, from the value given.", compared=False)
    posterior: DistributionKind = setting("riemannian", "Distribution of posterior and prior.")
    diagonal: bool = setting(False, "One posterior standard deviation per axis (wrapped only).")
    prior_scale: float = setting(1.0, "Standard deviation σ0 of the prior.", rule=POSITIVE)
    learn_prior_scale: bool = setting(False, "Train σ0, from the value given.", compared=False)

    def __post_init__(self) -> None:
        if self.space is not None:
            self._take(parse_space(self.space))
        super().__post_init__()

    def _take(self, factors: tuple[FactorSettings, ...]) -> None:
        """Settle what `space` says: of one factor in the short form, of a product as text and total dimension."""
        known = described(type(self))
        short = FactorSettings(sum(factor.dim for factor in factors))
        values: dict[str, Any] = {"dim": short.dim, "space": ",".join(factor.text for factor in factors)}
        if len(factors) == 1:
            (short,) = factors
            values |= {"space": None, "curvature": short.curvature, "learn_curvature": short.learned}
        own = {"dim": short.dim, "curvature": short.curvature, "learn_curvature": short.learned}
        for name, value in own.items():
            if getattr(self, name) not in (value, known[name].default):
                raise CurvaeError(
                    f'{name}={getattr(self, name)} contradicts space="{self.space}", which says it all; give one of '
                    "them"
                )
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def factors(self) -> tuple[FactorSettings, ...]:
        """The factors of the latent space."""
        if self.space is not None:
            return parse_space(self.space)
        return (FactorSettings(self.dim, self.curvature, self.learn_curvature),)

    def with_curvature(self, c: float) -> Self:
        """The same with another curvature, of every factor that is not flat."""
        if self.space is None:
            return replace(self, curvature=c)
        changed = (factor if factor.flat else replace(factor, curvature=c) for factor in self.factors)
        return self.with_space(",".join(factor.text for factor in changed))

    def with_space(self, text: str) -> Self:
        """The same in another latent space.

        Example:
            >>> SpaceSettings(space="h2,e3").with_space("h4:0.5").curvature
            0.5
        """
        known = described(type(self))
        short = {name: known[name].default for name in ("dim", "curvature", "learn_curvature")}
        return replace(self, space=text, **short)

    def check(self) -> None:
        super().check()
        if self.learn_curvature and self.curvature == 0:
            raise CurvaeError("a learned curvature must start above 0: set curvature to 1, say")
        if self.diagonal and self.posterior != "wrapped":
            raise CurvaeError(
                'a diagonal posterior needs posterior="wrapped": the Riemannian normal has one standard deviation'
            )


@dataclass(frozen=True)
class LayerSettings(Part):
    """The layers of any network."""

    hidden: tuple[int, ...] = setting(
        (200,), "Widths of the hidden layers of the encoder, and of the decoder in reverse, such as 200 or 400,200."
    )


@dataclass(frozen=True)
class NetworkSettings(LayerSettings):
    """The networks of a model of rows."""

    network: NetworkKind = setting("mlp", "Encoder and decoder: mlp, or conv for images.")
    decoder: DecoderKind = setting("gyroplane", "First layer of the decoder.")
    encode_covariates: bool = setting(False, "Tell the encoder the covariates too, not the decoder alone.")


@dataclass(frozen=True)
class LikelihoodSettings(Part):
    """How rows were measured."""

    likelihood: str = setting(
        "auto",
        "Distribution of a row given its point.",
        choices=("auto", *LIKELIHOODS),
        shown="auto: by the kinds of the columns",
    )
    standardise: bool = setting(True, "Centre and scale columns, where the likelihood is one of real numbers.")


@dataclass(frozen=True)
class DrawSettings(Part):
    """What is maximised, for any model."""

    samples: int = setting(1, "Draws of each row per step.")
    beta: float = setting(1.0, "Weight of the divergence in the ELBO.", rule=NOT_NEGATIVE)


@dataclass(frozen=True)
class ObjectiveSettings(DrawSettings):
    """What is maximised, for a model of rows."""

    objective: ObjectiveKind = setting("elbo", "What is maximised; iwae needs several samples to differ from elbo.")


@dataclass(frozen=True)
class NeighbourSettings(Part):
    """Whether the map is held to the neighbourhoods of the data."""

    neighbours: NeighbourKind = setting(
        "off", "Keep in the map who is near whom in the data (near), how far apart rows are (far), or both."
    )
    neighbours_weight: float | None = setting(
        None, "How much that counts, in nats a row.", rule=POSITIVE, shown="the root of the number of columns"
    )
    n_neighbours: int = setting(15, "Neighbours of a row in the data.")

    def __post_init__(self) -> None:
        if isinstance(self.neighbours, bool):
            object.__setattr__(self, "neighbours", "both" if self.neighbours else "off")
        super().__post_init__()


@dataclass(frozen=True)
class StepSettings(Part):
    """The training of any model."""

    epochs: int | None = setting(None, "Passes over the data.", shown="about 8,000 steps")
    learning_rate: float = setting(1e-3, "Learning rate of Adam.", flags=("--lr",), rule=POSITIVE)
    tf32: bool = setting(True, "On CUDA, train with TF32 matrix products, several times faster.")
    seed: int = setting(0, "Seed of everything random.", rule=_SEED)


@dataclass(frozen=True)
class TrainingSettings(StepSettings):
    """The training of a model of rows."""

    batch_size: int = setting(64, "Rows per step.")
    validation: float = setting(0.1, "Share of the rows held out to watch the training.", rule=_SHARE, compared=False)
    patience: int | None = setting(
        None, "Stop after so many epochs without progress on them, and keep the best weights.", shown="never"
    )

    def check(self) -> None:
        super().check()
        if self.patience is not None and self.validation == 0:
            raise CurvaeError("early stopping needs validation rows: set validation to 0.1, say, or drop patience")

    def epochs_for(self, rows: int) -> int:
        """Number of epochs for so many training rows: those that are set, or about 8,000 steps in 20 to 1,000."""
        if self.epochs is not None:
            return self.epochs
        return min(_MOST, max(_FEWEST, math.ceil(_STEPS / math.ceil(rows / self.batch_size))))


# --- graphs ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GraphSpaceSettings(SpaceSettings):
    """The latent space of a graph."""

    posterior: DistributionKind = again(SpaceSettings, "posterior", "wrapped")


@dataclass(frozen=True)
class GraphLayerSettings(LayerSettings):
    """The graph convolutions."""

    hidden: tuple[int, ...] = again(
        LayerSettings, "hidden", (32,), help="Widths of the graph convolutions, such as 32 or 64,32."
    )


@dataclass(frozen=True)
class EdgeSettings(Part):
    """How edges come about."""

    edges: EdgeKind = setting("geodesic", "How the probability of an edge falls with distance.")
    weight: float = setting(2.0, "How often the likelihood counts every pair of nodes.", rule=POSITIVE)


@dataclass(frozen=True)
class GraphStepSettings(StepSettings):
    """The training of a model of a graph."""

    epochs: int = again(StepSettings, "epochs", 800, help="Steps over the whole graph.")
    learning_rate: float = again(StepSettings, "learning_rate", 1e-2)
