"""Configurations of models of rows and of graphs: all settings, flat in code and nested by part in files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal, Self, TypeVar

from ..errors import CurvaeError, check
from .factors import FactorSettings, parse_space
from .setting import (
    LIKELIHOODS,
    NOT_NEGATIVE,
    OVERDISPERSED,
    POSITIVE,
    DecoderKind,
    DispersionKind,
    DistributionKind,
    EdgeKind,
    EncoderKind,
    InitKind,
    NeighbourKind,
    NetworkKind,
    ObjectiveKind,
    PairKind,
    PopularityKind,
    Rule,
    again,
    described,
    number,
    setting,
    whole,
)

__all__ = [
    "ADDED",
    "COMPONENTS",
    "DEFAULT_STEPS",
    "GraphSettings",
    "RowSettings",
    "Settings",
    "choose_neighbours",
    "epochs_per_pass",
    "resolve_defaults",
]


DEFAULT_STEPS = 1500
"""of a training of a small table"""

ADDED: Mapping[str, Any] = {"dispersion": "gene", "learn_sizes": False}
"""settings introduced after the first release, with the value that reproduces runs that were written before them"""

_PARTS = ("space", "networks", "edges", "likelihood", "objective", "map", "training")  # of files, in their order
_SHARE = Rule(lambda value: number(value) and 0 <= value < 1, "be a share of the rows, from 0 to below 1; got")
_SHARE_OF_1 = Rule(lambda value: number(value) and 0 <= value < 1, "be a number from 0 to below 1; got")


@dataclass(frozen=True)
class Settings:
    """What the settings of all kinds of models have in common; each field is made by `setting`."""

    space: str | None = setting(
        "space",
        None,
        "Factors of the latent space, such as h2, h2:1.2, h2:learn, s1 or h2,e3.",
        shown="one factor h of the given dimension and curvature",
    )
    dim: int = setting("space", 2, "Dimension of the latent space.", flags=("-d",))
    curvature: float = setting(
        "space",
        1.0,
        "c ≥ 0: the space has curvature −c; 0 is the ordinary VAE; learn trains c.",
        flags=("-c",),
        rule=Rule(NOT_NEGATIVE.holds, "be c ≥ 0, the space having curvature −c; got"),
        words={"learn": "learn"},
        compared=False,
    )
    learn_curvature: bool = setting("space", False, "Train c, from the value given.", compared=False)
    posterior: DistributionKind = setting("space", "riemannian", "Distribution of posterior and prior.")
    diagonal: bool = setting("space", False, "One posterior standard deviation per axis (wrapped only).")
    prior_scale: float | Literal["auto"] = setting(
        "space",
        "auto",
        "Standard deviation σ0 of the prior.",
        rule=POSITIVE,
        words={"auto": "auto"},
        shown="auto: by c and d",
    )
    learn_prior_scale: bool = setting("space", False, "Train σ0, from the value given.", compared=False)
    hidden: tuple[int, ...] | None = setting(
        "networks",
        None,
        "Widths of the hidden layers of the encoder, and of the decoder in reverse, such as 200 or 400,200.",
        shown="200; 200,200 from 1,000 training rows on; with neighbours 200,200,200,200 from 400 rows on",
    )
    samples: int = setting("objective", 1, "Draws of each row per step.")
    beta: float | Literal["auto"] = setting(
        "objective", 1.0, "Weight of the divergence in the ELBO.", rule=NOT_NEGATIVE
    )
    epochs: int | None = setting("training", None, "Passes over the data.", shown="set by the number of steps")
    learning_rate: float = setting("training", 2.8e-3, "Learning rate of Adam.", flags=("--lr",), rule=POSITIVE)
    adam_beta2: float = setting("training", 0.99, "Decay β2 of Adam's mean of squared gradients.", rule=_SHARE_OF_1)
    cooldown: float = setting(
        "training",
        0.5,
        "Share of the steps, at the end, over which the learning rate falls to 0.",
        rule=Rule(lambda value: number(value) and 0 <= value <= 1, "be a share of the steps, from 0 to 1; got"),
    )
    tf32: bool = setting("training", True, "On CUDA, train with TF32 matrix products, several times faster.")
    seed: int = setting(
        "training",
        0,
        "Random seed.",
        rule=Rule(lambda value: whole(value) and 0 <= value < 2**32, "be a whole number from 0 to 2³²−1, got"),
    )

    def __post_init__(self) -> None:
        if isinstance(self.curvature, str) and self.curvature == "learn":
            object.__setattr__(self, "curvature", described(type(self))["curvature"].default)
            object.__setattr__(self, "learn_curvature", True)
        if self.space is not None:
            self._take(parse_space(self.space))
        for name, known in described(type(self)).items():
            given = getattr(self, name)
            value = tuple(given) if isinstance(given, list) else known.parse_word(given)
            if value is not given:
                object.__setattr__(self, name, value)
            known.require(value)
        for conflict, holds in self.conflicts().items():
            check(not holds, conflict)

    def _take(self, factors: tuple[FactorSettings, ...]) -> None:
        """Settle what `space` says: of one factor in the short form if it has one, else as text and total dimension."""
        single = len(factors) == 1 and factors[0].has_short_form
        short = factors[0] if single else FactorSettings(sum(factor.dim for factor in factors))
        own: dict[str, Any] = {"dim": short.dim, "curvature": short.curvature, "learn_curvature": short.learned}
        for name, value in own.items():
            if getattr(self, name) not in (value, described(type(self))[name].default):
                raise CurvaeError(
                    f'`{name}={getattr(self, name)}` contradicts `space="{self.space}"`, which says it all; give one '
                    "of them"
                )
        own["space"] = None if single else ",".join(factor.text for factor in factors)
        for name, value in own.items():
            object.__setattr__(self, name, value)

    def conflicts(self) -> dict[str, bool]:
        """Return what is said of values that do not go together, each with whether they are there."""
        spheres = [factor.text for factor in self.factors if factor.closed]
        return {
            "a learned curvature must start above 0: set `curvature` to 1, say": (
                self.learn_curvature and self.curvature == 0
            ),
            'a diagonal posterior needs `posterior="wrapped"`: the Riemannian normal has one standard deviation': (
                self.diagonal and self.posterior != "wrapped"
            ),
            f'`posterior="wrapped"` is not offered on the sphere {"".join(spheres[:1])}, where a normal vector may '
            'wrap around; use `posterior="riemannian"`': bool(spheres) and self.posterior == "wrapped",
            f"the prior on a sphere is uniform and has no scale: drop `prior_scale` with `space` {self.space!r}": (
                len(spheres) == len(self.factors) and (self.prior_scale != "auto" or self.learn_prior_scale)
            ),
        }

    @property
    def factors(self) -> tuple[FactorSettings, ...]:
        """The factors of the latent space."""
        if self.space is not None:
            return parse_space(self.space)
        return (FactorSettings(self.dim, self.curvature, self.learn_curvature),)

    @property
    def prior_scales(self) -> tuple[float, ...]:
        """σ0 of every factor: the one that is set, or what suits the factor."""
        scale = self.prior_scale
        return tuple(factor.prior_scale if scale == "auto" else scale for factor in self.factors)

    def with_curvature(self, c: float) -> Self:
        """Return the same with another curvature, of every factor that has one."""
        if self.space is None:
            return replace(self, curvature=c)
        return self.with_space(
            ",".join((replace(factor, curvature=c) if factor.curved else factor).text for factor in self.factors)
        )

    def with_space(self, text: str) -> Self:
        """Return the same in another latent space.

        Example:
            >>> RowSettings(space="h2,e3").with_space("h4:0.5").curvature
            0.5
        """
        short = {name: described(type(self))[name].default for name in ("dim", "curvature", "learn_curvature")}
        return replace(self, space=text, **short)

    @property
    def layers(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return self.hidden or (200,)

    @property
    def architecture(self) -> Self:
        """What the models of one stack have in common: these settings without the numbers that may differ."""
        scale: float | Literal["auto"] = "auto" if self.prior_scale == "auto" else 1.0  # which has units of its own
        common = replace(self, seed=0, prior_scale=scale, learning_rate=1.0, beta=1.0)
        return common.with_curvature(1.0) if any(factor.curved for factor in self.factors) else common

    @property
    def divergence_weight(self) -> float:
        """β."""
        return float(self.beta)

    def given(self) -> dict[str, Any]:
        """Return the settings that differ from their defaults; of a product, `space` says it all of the space."""
        default, implied = vars(type(self)()), () if self.space is None else ("dim", "curvature", "learn_curvature")
        found = {n: value for n, value in vars(self).items() if value != default[n] and n not in implied}
        if found.get("learn_curvature") and "curvature" not in found:
            del found["learn_curvature"]
            found["curvature"] = "learn"
        return found

    def flat(self) -> dict[str, Any]:
        """Return one dictionary of JSON values, by name."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}

    @classmethod
    def parts(cls) -> dict[str, list[str]]:
        """Return the names of the settings by the part of a file that holds them."""
        names = {part: [one.name for one in described(cls).values() if one.part == part] for part in _PARTS}
        return {part: held for part, held in names.items() if held}

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Return JSON values, by part and name."""
        values = self.flat()
        return {part: {name: values[name] for name in names} for part, names in self.parts().items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read what `to_json` or `flat` gave; names that are missing take their default, unknown ones are refused."""
        check(isinstance(values, Mapping), f"settings must be given by name, got {values!r}")
        known, parts = described(cls), cls.parts()
        given: dict[str, Any] = {}
        for key, value in values.items():
            if key in parts and isinstance(value, Mapping):
                given |= {name if name in parts[key] else f"{key}.{name}": own for name, own in value.items()}
            else:
                given[key] = value
        if unknown := sorted(set(given) - set(known)):
            near = [match for name in unknown for match in get_close_matches(name.rpartition(".")[2], known, 1)]
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            raise CurvaeError(f"unknown settings: {', '.join(unknown)}{hint}")
        return cls(**given)


@dataclass(frozen=True)
class RowSettings(Settings):
    """Everything that determines a trained model of rows, besides the data."""

    network: NetworkKind = setting("networks", "mlp", "Encoder and decoder: mlp, or conv for images.")
    decoder: DecoderKind = setting("networks", "gyroplane", "First layer of the decoder.")
    encode_covariates: bool = setting(
        "networks", False, "Give the covariates to the encoder too, not only to the decoder."
    )
    dropout: float | Literal["auto"] = setting(
        "networks",
        "auto",
        "Dropout rate of the encoder's dense layers.",
        words={"auto": "auto"},
        rule=_SHARE_OF_1,
        shown="auto: 0.1 for cells; of other rows with neighbours 0.03 from 400 training rows on and 0.05 from 2,000 "
        "on, else 0",
    )
    likelihood: str = setting(
        "likelihood",
        "auto",
        "Distribution of a row given its point.",
        choices=("auto", *LIKELIHOODS),
        shown="auto: chosen by the types of the columns",
    )
    dispersion: DispersionKind = setting(
        "likelihood",
        "gene",
        "Dispersions of counts, for nb and zinb: one per column (gene), per column and batch (gene-batch), or from the "
        "decoder (gene-cell).",
    )
    learn_sizes: bool = setting(
        "likelihood",
        False,
        "Treat the sizes of cells as unknown, log-normal in each batch, instead of taking the totals of their counts.",
    )
    standardise: bool = setting("likelihood", True, "Centre and scale columns, for likelihoods of real numbers.")
    beta: float = again(Settings, "beta", 1.0)
    objective: ObjectiveKind = setting(
        "objective", "elbo", "Objective to maximise; iwae differs from elbo only with several samples."
    )
    neighbours: NeighbourKind = setting(
        "map",
        "auto",
        "Preserve near neighbours on the map (near), large distances (far), or both.",
        shown="auto: both for an MLP in two or three dimensions, else off",
    )
    neighbours_weight: float | None = setting(
        "map",
        None,
        "Weight of the neighbours in the objective, in nats per row.",
        rule=POSITIVE,
        shown="0.3 per column, for up to 50 columns, or 0.05 with an exposure",
    )
    n_neighbours: int = setting("map", 15, "Number of nearest neighbours of a row in the data.")
    jitter: float | Literal["auto"] = setting(
        "map",
        "auto",
        "Show the encoder rows of large tables moved towards a neighbour or away from it, by up to this share of the "
        "way, so that it places new rows better.",
        words={"auto": "auto"},
        rule=_SHARE_OF_1,
        shown="auto: 0.5 with near neighbours from 2,000 training rows on, else 0",
    )
    init: InitKind = setting(
        "map",
        "auto",
        "Start at random, or with the first principal components of the rows as their places (pca): maps of different "
        "seeds are then more alike.",
        shown="auto: pca with neighbours and an MLP, else random",
    )
    steps: int | Literal["auto"] | None = setting(
        "training",
        "auto",
        "Number of training steps, where the epochs are not given.",
        words={"auto": "auto"},
        shown="auto: 1,500, or 5 passes of up to 10,000",
    )
    epoch_steps: int | None = setting(
        "training",
        None,
        "Largest number of steps in an epoch.",
        shown="a whole pass, or 100 where epochs are not given",
    )
    batch_size: int = setting("training", 128, "Rows per step.")
    weight_decay: float | Literal["auto"] = setting(
        "training",
        "auto",
        "Weight decay of the encoder: a step shrinks its weights by so many times the learning rate.",
        words={"auto": "auto"},
        rule=NOT_NEGATIVE,
        shown="auto: 1, or 0.3 with neighbours from 400 training rows on; less in tables of more than 40 batches",
    )
    noise_rate: float = setting(
        "training",
        1.5,
        "Learning rate of the noise of columns, the standard deviations of a normal likelihood, over that of all else.",
        rule=POSITIVE,
    )
    validation: float = setting(
        "training", 0.1, "Share of the rows held out to watch the training.", rule=_SHARE, compared=False
    )
    patience: int | Literal["auto"] | None = setting(
        "training",
        "auto",
        "After so many epochs without progress on validation rows, go back to the best weights, let the learning rate "
        "fall and stop; or never, and keep the last weights.",
        words={"auto": "auto", "never": None},
        shown="auto: 400 steps, at least 5 passes",
    )

    def __post_init__(self) -> None:
        if isinstance(self.neighbours, bool):
            object.__setattr__(self, "neighbours", "both" if self.neighbours else "off")
        super().__post_init__()

    def conflicts(self) -> dict[str, bool]:
        return super().conflicts() | {
            "early stopping needs validation rows: set `validation` to 0.1, say, or drop `patience`": (
                whole(self.patience) and self.validation == 0
            ),
            '`curvature="learn"` and `learn_prior_scale` cannot be combined: only c·σ0² is identifiable; drop one': (
                self.learn_prior_scale and any(factor.learned for factor in self.factors)
            ),
            f'`init="pca"` needs `network="mlp"`, not {self.network}; use `init="random"`': (
                self.init == "pca" and self.network != "mlp"
            ),
            f'`decoder="{self.decoder}"` takes log_0, which tears a sphere opposite to its origin; use '
            '`decoder="gyroplane"`': self.decoder in ("log_mlp", "mobius") and self.starts_unfolded,
            f'`dispersion="{self.dispersion}"` needs `likelihood="nb"` or "zinb", not {self.likelihood}; drop it': (
                self.dispersion != "gene" and self.likelihood not in ("auto", *OVERDISPERSED)
            ),
        }

    @property
    def architecture(self) -> Self:
        return replace(super().architecture, neighbours_weight=None)

    @property
    def starts_unfolded(self) -> bool:
        """Whether rows start at places on spheres, to which their centres are held at first."""
        return any(factor.closed for factor in self.factors)

    @property
    def uses_neighbours(self) -> bool:
        """Whether the map is held to the neighbourhoods of the data; no, while that is not decided."""
        return self.neighbours not in ("auto", "off")

    @property
    def keeps_neighbours(self) -> bool:
        """Whether an MLP is held to the neighbourhoods of the data: by default it starts with PCA."""
        return self.uses_neighbours and self.network == "mlp"

    @property
    def encoder_decay(self) -> float:
        """By which multiple of the learning rate the weights of the encoder shrink in a step."""
        if self.weight_decay == "auto":
            raise ValueError('choose the weight decay before training: "auto" needs the number of rows')
        return self.weight_decay

    @property
    def gaussian(self) -> bool:
        """Whether the likelihood is a normal one."""
        return self.likelihood in ("gaussian", "unit_gaussian")


@dataclass(frozen=True)
class GraphSettings(Settings):
    """Everything that determines a trained model of a graph, besides the graph."""

    posterior: DistributionKind = again(Settings, "posterior", "wrapped")
    # The probability of an edge fixes the scale of the space.
    prior_scale: float | Literal["auto"] = again(Settings, "prior_scale", 1.0)
    hidden: tuple[int, ...] = again(
        Settings, "hidden", (32,), help="Widths of the graph convolutions, such as 32 or 64,32."
    )
    encoder: EncoderKind = setting(
        "networks",
        "convolutions",
        "Encoder of the nodes: graph convolutions, or a free vector per node, which fits the edges most closely.",
    )
    edges: EdgeKind = setting("edges", "fermi_dirac", "How the probability of an edge falls with distance.")
    popularity: PopularityKind = setting(
        "edges",
        "auto",
        "Learn a popularity per node, so that nodes with many edges need not lie near all their neighbours.",
        shown="auto: learned with fermi_dirac edges",
    )
    directed: bool = setting(
        "edges", False, "Keep directions: an edge leads from the first node to the second, as in package,dependency."
    )
    pairs: PairKind = setting(
        "edges",
        "balanced",
        "Pairs of nodes to fit: all, or the edges and an equal number of random non-edges (balanced).",
    )
    hide: float = setting(
        "edges",
        0.5,
        "Share of the edges that each step hides from the encoder.",
        rule=Rule(_SHARE.holds, "be a share of the edges, from 0 to below 1; got"),
    )
    weight: float = setting("edges", 1.0, "Weight of the likelihood of a pair of nodes.", rule=POSITIVE)
    beta: float | Literal["auto"] = again(
        Settings,
        "beta",
        "auto",
        help="Weight of the divergence: per node relative to a pair with balanced pairs, otherwise as in the ELBO.",
        words={"auto": "auto"},
        shown="auto: 0.1 divided by the dimension, at least 0.01; 0.01 for all pairs or free vectors",
    )
    epochs: int = again(Settings, "epochs", 400, help="Steps over the whole graph.")
    learning_rate: float = again(Settings, "learning_rate", 1e-2)
    adam_beta2: float = again(Settings, "adam_beta2", 0.999)
    cooldown: float = again(Settings, "cooldown", 0.0)
    patience: int | None = setting(
        "training",
        200,
        "Stop after so many steps without progress on validation edges, where edges are hidden, and keep the best "
        "weights; or never, and keep the last.",
        words={"never": None},
    )

    @property
    def popular(self) -> bool:
        """Whether nodes have a popularity."""
        return self.popularity == "learned" or (self.popularity == "auto" and self.edges == "fermi_dirac")

    def conflicts(self) -> dict[str, bool]:
        return {
            f"graphs have no map on spheres; use h or e in `space`, not {self.space!r}": (
                any(factor.closed for factor in self.factors)
            ),
            **super().conflicts(),
            f'`popularity="learned"` needs `edges="fermi_dirac"`, not {self.edges}; change one of them': (
                self.popular and self.edges != "fermi_dirac"
            ),
            '`directed=True` needs `popularity="learned"`, which distinguishes the two directions of an edge': (
                self.directed and not self.popular
            ),
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
        return max(0.01, 0.1 / self.dim) if held_back else 0.01


# --- defaults of rows -------------------------------------------------------------------------------------------------

Rows = TypeVar("Rows", bound=RowSettings)

_FEWEST_ROWS, _MOST_ROWS = 3, 100_000  # training rows whose neighbourhoods are kept by default
COMPONENTS = 50
"""principal components at most by which rows are near each other"""

_MOST_EPOCHS = 1000  # unless epochs are asked for
_LEAST_PATIENCE = 5  # epochs without progress


def epochs_per_pass(steps: int, max_steps: int | None) -> tuple[int, int]:
    """Divide a pass into epochs of at most so many steps; returns their number, and the steps of each but the last.

    Example:
        >>> epochs_per_pass(28, None), epochs_per_pass(1000, 400)
        ((1, 28), (3, 334))
    """
    count = 1 if max_steps is None else math.ceil(steps / max_steps)
    return count, math.ceil(steps / count)


def choose_neighbours(config: RowSettings, columns: Any, rows: int, hindrance: str = "") -> tuple[NeighbourKind, str]:
    """Choose whether the map is held to the neighbourhoods of the data, and say why.

    Arguments:
        config: settings.
        columns: of the data, as a `curvae.models.Layout`.
        rows: number of training rows.
        hindrance: why it cannot be.

    Example:
        >>> from curvae.models import Layout
        >>> choose_neighbours(RowSettings(), Layout(4), 100)
        ('both', 'the default in 2 dimensions')
        >>> choose_neighbours(RowSettings(dim=5), Layout(4), 100)
        ('off', 'the dimension is 5, not that of a map, 2 or 3')
        >>> choose_neighbours(RowSettings(neighbours="near"), Layout(4), 100)
        ('near', 'as asked')
    """
    if config.neighbours != "auto":
        return config.neighbours, "as asked"
    reasons = {
        hindrance: bool(hindrance),
        f"the dimension is {config.dim}, not that of a map, 2 or 3": config.dim not in (2, 3),
        "the network is convolutional": config.network != "mlp",
        f"neighbours among more than {_MOST_ROWS:,} rows take long to find": rows > _MOST_ROWS,
        f"fewer than {_FEWEST_ROWS} rows have no neighbourhoods": rows < _FEWEST_ROWS,
    }
    found = next((reason for reason, holds in reasons.items() if holds), None)
    return ("both", f"the default in {config.dim} dimensions") if found is None else ("off", found)


def resolve_defaults(config: Rows, rows: tuple[int, int], columns: Any, hindrance: str = "") -> Rows:
    """Replace every default that depends on the data by a value; settings that were given stay as they are.

    The likelihood, which depends on the values themselves, is chosen before.

    Arguments:
        config: settings.
        rows: numbers of training and validation rows.
        columns: of the data, as a `curvae.models.Layout`.
        hindrance: why the map cannot be held to the neighbourhoods of the data.

    Example:
        >>> from curvae.models import Layout
        >>> found = resolve_defaults(RowSettings(), (640, 64), Layout(4))
        >>> found.epochs, found.patience, found.neighbours, found.hidden, found.weight_decay
        (300, 80, 'both', (200, 200, 200, 200), 0.3)
    """
    train, _ = rows
    config = replace(config, neighbours=choose_neighbours(config, columns, train, hindrance)[0])
    # An encoder that keeps neighbourhoods has more to learn from many rows; in small tables jitter costs some.
    deep, large = config.keeps_neighbours and train >= 400, train >= 2000
    # With more than 40 steps a pass the decay is less, such that weights shrink as much in a pass.
    decay = min(1.0, 40 / math.ceil(train / config.batch_size))
    values: dict[str, Any] = {
        "hidden": (200, 200, 200, 200) if deep else (200, 200) if train >= 1000 else config.layers,
        "dropout": 0.1 if columns.total else (0.05 if large else 0.03) if deep else 0.0,
        "jitter": 0.5 if deep and large and config.neighbours != "far" else 0.0,
        "weight_decay": 0.3 * decay if deep else decay,
        "init": "pca" if config.keeps_neighbours else "random",
        # In nats a row, for every column by which rows are near each other; those of counts are noisier.
        "neighbours_weight": (0.05 if columns.size else 0.3) * min(columns.features, COMPONENTS)
        if config.uses_neighbours
        else None,
    }
    values = {name: value for name, value in values.items() if getattr(config, name) in ("auto", None)}
    found = replace(config, **values, **_schedule(config, *rows))
    check(
        found.encoder_decay * found.learning_rate < 1,
        f"with `weight_decay={found.encoder_decay:g}` and `learning_rate={found.learning_rate:g}` the weights of the "
        "encoder would vanish or change their sign in a step; lower one, such that their product is below 1",
    )
    return found


def _schedule(config: RowSettings, train: int, validation: int) -> dict[str, Any]:
    """Choose the epochs, their steps and the patience for so many rows.

    An epoch is a pass; of a number of steps in large tables a part of one. Without validation rows there is no early
    stopping.
    """
    check(
        validation or not isinstance(config.patience, int),
        f"early stopping needs validation rows, and a share of {config.validation:g} of {train} rows holds none; "
        "hold out a larger share, or drop `patience`",
    )
    a_pass, steps, most = math.ceil(train / config.batch_size), config.steps, config.epoch_steps
    if config.epochs is not None:
        epochs = config.epochs
    elif steps is None:
        epochs = min(_MOST_EPOCHS, max(20, math.ceil(8000 / a_pass)))  # about 8,000 steps, in at least 20 passes
    else:
        # Large tables get 5 passes, but no more than 10,000 steps.
        steps = min(max(DEFAULT_STEPS, 5 * a_pass), 10_000) if steps == "auto" else steps
        most = 100 if most is None else most
        epochs = min(_MOST_EPOCHS, math.ceil(steps / epochs_per_pass(a_pass, most)[1]))
    most = None if most is None or most >= a_pass else most
    patience = config.patience
    if patience == "auto":
        # 400 steps and 5 passes without progress.
        waited = max(_LEAST_PATIENCE, math.ceil(max(400, 5 * a_pass) / epochs_per_pass(a_pass, most)[1]))
        patience = min(waited, max(_LEAST_PATIENCE, epochs)) if validation else None
    return {"epochs": epochs, "epoch_steps": most, "patience": patience}
