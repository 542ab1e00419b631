"""One description of a run, spoken by the loop, the run folder, the estimator and the command line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self, get_args, get_type_hints

from ..errors import CurvaeError
from ..models import LIKELIHOODS
from ..models.latent import Law
from ..nn.networks import DecoderKind, NetworkKind

__all__ = ["Config", "Settings", "require_count"]

# An unset number of epochs is chosen to make about this many steps.
_STEPS = 8000
_FEWEST, _MOST = 20, 1000

# The largest numbers that are tried, and why: what is larger would never end, or exhaust the memory.
_TRAINING = (10_000, "each is a training of its own")
_LIMITS: dict[str, tuple[int, str]] = {
    "epochs": (1_000_000, "every epoch goes over all data and leaves a record"),
    "batch_size": (100_000_000, "all rows of a step are in memory at once"),
    "samples": (100_000, "all draws of a step are in memory at once"),
    "importance_samples": (1_000_000, "the time grows with them, and the error falls only with their square root"),
    "repeats": _TRAINING,
    "splits": _TRAINING,
    "n_splits": _TRAINING,
    "n_init": _TRAINING,
}


@dataclass(frozen=True)
class Settings:
    """What the settings of all kinds of models have in common.

    Attributes:
        dim: dimension of the latent space.
        curvature: c ≥ 0; the space has curvature −c and c = 0 is the ordinary VAE.
        learn_curvature: train c, starting from `curvature`.
        posterior: law of posterior and prior, "riemannian" or "wrapped".
        diagonal: one posterior deviation an axis (wrapped only).
        prior_scale: deviation σ0 of the prior.
        learn_prior_scale: train σ0, starting from `prior_scale`.
        hidden: widths of the hidden layers of the encoder.
        samples: draws a step.
        beta: weight of the divergence in the ELBO.
        epochs: passes over the data.
        learning_rate: of Adam.
        tf32: on CUDA, float32 matrix products of the training with TF32 inputs, which is several times faster;
            likelihoods are never computed so.
        seed: of initial weights, order and noise.
    """

    dim: int = 2
    curvature: float = 1.0
    learn_curvature: bool = False
    posterior: Law = "riemannian"
    diagonal: bool = False
    prior_scale: float = 1.0
    learn_prior_scale: bool = False
    hidden: tuple[int, ...] = (200,)
    samples: int = 1
    beta: float = 1.0
    epochs: int | None = None
    learning_rate: float = 1e-3
    tf32: bool = True
    seed: int = 0

    # Which settings are whole numbers of at least 1, those that may also be None, and which are positive numbers.
    _counts: ClassVar[tuple[str, ...]] = ("dim", "samples")
    _optional: ClassVar[tuple[str, ...]] = ("epochs",)
    _positive: ClassVar[tuple[str, ...]] = ("prior_scale", "learning_rate")

    def __post_init__(self) -> None:
        if isinstance(self.hidden, list):
            object.__setattr__(self, "hidden", tuple(self.hidden))
        for name, hint in get_type_hints(type(self)).items():
            value = getattr(self, name)
            choices = get_args(hint)
            if choices and all(isinstance(choice, str) for choice in choices) and value not in choices:
                raise CurvaeError(f"{name} must be one of {', '.join(choices)}; got {value!r}")
            if hint is bool and not isinstance(value, bool):
                raise CurvaeError(f"{name} must be true or false, got {value!r}")
        for name in (*self._counts, *self._optional):
            value = getattr(self, name)
            if value is not None or name not in self._optional:
                require_count(name, value)
        if not isinstance(self.hidden, tuple) or not self.hidden or not all(map(_count, self.hidden)):
            example = next(field.default for field in fields(self) if field.name == "hidden")
            raise CurvaeError(f"hidden must hold one or more positive widths, such as {example}; got {self.hidden!r}")
        if not (_number(self.curvature) and self.curvature >= 0):
            raise CurvaeError(f"curvature must be c ≥ 0, the space having curvature −c; got {self.curvature!r}")
        for name in self._positive:
            if not (_number(getattr(self, name)) and getattr(self, name) > 0):
                raise CurvaeError(f"{name} must be a positive number, got {getattr(self, name)!r}")
        if not (_number(self.beta) and self.beta >= 0):
            raise CurvaeError(f"beta must be a number ≥ 0, got {self.beta!r}")
        if not isinstance(self.seed, int) or isinstance(self.seed, bool) or not 0 <= self.seed < 2**32:
            raise CurvaeError(f"seed must be a whole number from 0 to 2³²−1, got {self.seed!r}")
        if self.learn_curvature and self.curvature == 0:
            raise CurvaeError("a learned curvature must start above 0: set curvature to 1, say")
        if self.diagonal and self.posterior != "wrapped":
            raise CurvaeError('a diagonal posterior needs posterior="wrapped": the Riemannian normal has one deviation')

    @property
    def architecture(self) -> Self:
        """What the models of one stack have in common: these settings without the numbers that may differ."""
        flat = not self.learn_curvature and self.curvature == 0
        return replace(self, seed=0, curvature=0.0 if flat else 1.0, prior_scale=1.0, learning_rate=1.0, beta=1.0)

    def to_json(self) -> dict[str, Any]:
        """As a dictionary of JSON values."""
        return {**asdict(self), "hidden": list(self.hidden)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """From `to_json`; names that are missing take their default, unknown ones are refused."""
        unknown = set(values) - {field.name for field in fields(cls)}
        if unknown:
            raise CurvaeError(f"unknown settings: {', '.join(sorted(unknown))}")
        return cls(**values)


@dataclass(frozen=True)
class Config(Settings):
    """Everything that determines a trained model, besides the data. The defaults are the paper's synthetic experiment.

    Attributes:
        learn_curvature, learn_prior_scale: not together.
        decoder: "gyroplane", "gyroplane_scalar", "log_mlp", "mlp" or "mobius".
        network: "mlp", dense layers, or "conv" for images, convolutions around dense layers.
        hidden: widths of the hidden (of "conv", the dense) layers of the encoder, and of the decoder in reverse.
        likelihood: a name in `curvae.models.LIKELIHOODS`: "bernoulli" for values in [0, 1], "gaussian" with a learned
            standard deviation a column, "unit_gaussian", "categorical" for one-hot columns, "poisson" for counts; or
            "auto": Bernoulli if all values are 0 or 1, otherwise Gaussian.
        standardise: centre columns and scale them to unit variance (Gaussian likelihoods only).
        objective: "elbo" or "iwae".
        samples: draws a row and step.
        epochs: passes over the data; None makes about 8,000 steps, in at least 20 and at most 1,000 passes.
        batch_size: rows a step.
        validation: share of the rows held out to watch the training, from 0 to below 1.
        patience: stop when the validation ELBO has not improved for so many epochs, and keep the best weights; None
            trains to the end.
        dim, curvature, posterior, diagonal, prior_scale, beta, learning_rate, tf32, seed: see `Settings`.

    Example:
        >>> Config.from_json(Config(curvature=0.5).to_json()) == Config(curvature=0.5)
        True
    """

    decoder: DecoderKind = "gyroplane"
    network: NetworkKind = "mlp"
    likelihood: str = "auto"
    standardise: bool = True
    objective: Literal["elbo", "iwae"] = "elbo"
    batch_size: int = 64
    validation: float = 0.1
    patience: int | None = None

    _counts: ClassVar[tuple[str, ...]] = (*Settings._counts, "batch_size")
    _optional: ClassVar[tuple[str, ...]] = (*Settings._optional, "patience")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.likelihood not in (names := ("auto", *LIKELIHOODS)):
            raise CurvaeError(f"likelihood must be one of {', '.join(names)}; got {self.likelihood!r}")
        if not (_number(self.validation) and 0 <= self.validation < 1):
            raise CurvaeError(f"validation must be a share of the rows, from 0 to below 1; got {self.validation!r}")
        if self.learn_curvature and self.learn_prior_scale:
            raise CurvaeError(
                "learn_curvature and learn_prior_scale cannot be combined: only c·σ0² can be told from data; drop one"
            )
        if self.patience is not None and self.validation == 0:
            raise CurvaeError("early stopping needs validation rows: set validation to 0.1, say, or drop patience")

    @property
    def gaussian(self) -> bool:
        """Whether the likelihood is a normal one."""
        return self.likelihood in ("gaussian", "unit_gaussian")

    @property
    def scales(self) -> bool:
        """Whether columns are standardised; of an "auto" likelihood that is not known."""
        return self.standardise and self.likelihood != "auto" and LIKELIHOODS[self.likelihood].standardise

    def epochs_for(self, rows: int) -> int:
        """Number of epochs for so many training rows."""
        if self.epochs is not None:
            return self.epochs
        steps = math.ceil(rows / self.batch_size)
        return min(_MOST, max(_FEWEST, math.ceil(_STEPS / steps)))


def require_count(name: str, value: Any, limit: str | None = None) -> None:
    """Raise unless a value is a whole number of at least 1, and not absurdly large.

    Arguments:
        name: what the value is called.
        value: what was given.
        limit: whose limit holds; by default that of the name, if there is one.

    Example:
        >>> require_count("epochs", 10**12)
        Traceback (most recent call last):
        curvae.errors.CurvaeError: epochs must be at most 1,000,000, got 1,000,000,000,000: every epoch goes over all data and leaves a record
    """  # noqa: E501 - an error is one line
    if not _count(value):
        raise CurvaeError(f"{name} must be a whole number of at least 1, got {value!r}")
    most, reason = _LIMITS.get(limit or name, (value, ""))
    if value > most:
        raise CurvaeError(f"{name} must be at most {most:,}, got {value:,}: {reason}")


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
