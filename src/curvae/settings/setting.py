"""One setting: its default, its help and its checks; the words that settings take."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ..errors import CurvaeError

__all__ = [
    "LIKELIHOODS",
    "NOT_NEGATIVE",
    "OVERDISPERSED",
    "POSITIVE",
    "DecoderKind",
    "DispersionKind",
    "DistributionKind",
    "EdgeKind",
    "EncoderKind",
    "InitKind",
    "NeighbourKind",
    "NetworkKind",
    "ObjectiveKind",
    "PairKind",
    "PopularityKind",
    "Rule",
    "Setting",
    "again",
    "count",
    "described",
    "number",
    "require_choice",
    "require_count",
    "setting",
    "whole",
]


# Which values a setting takes, and what is said of others.

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
class Rule:
    """Which values are right.

    Arguments:
        holds: whether it is, for a value.
        text: what it "must" do, as in "be a positive number, got"; the value follows.
    """

    holds: Callable[[Any], bool]
    text: str


def whole(value: Any) -> bool:
    """Return whether it is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def number(value: Any) -> bool:
    """Return whether it is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def count(value: Any) -> bool:
    """Return whether it is a whole number of at least 1."""
    return whole(value) and value >= 1


POSITIVE = Rule(lambda value: number(value) and value > 0, "be a positive number, got")
NOT_NEGATIVE = Rule(lambda value: number(value) and value >= 0, "be a number ≥ 0, got")


def require_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise unless a value is one of the words that are allowed, and suggest the one that may have been meant.

    Example:
        >>> require_choice("missing", "modle", ["error", "model"])
        Traceback (most recent call last):
        curvae.errors.CurvaeError: `missing` must be one of error, model; got 'modle', did you mean 'model'?
    """
    if not isinstance(value, str) or value not in choices:
        near = get_close_matches(str(value), choices, 1)
        hint = f", did you mean {near[0]!r}?" if near else ""
        raise CurvaeError(
            f"`{name}` must be one of {', '.join(choices)}; got {value!r}{hint}", parameter=name, value=value
        )


def require_count(name: str, value: Any, limit: str | None = None) -> None:
    """Raise unless a value is a whole number of at least 1, and not absurdly large.

    Arguments:
        name: what the value is called.
        value: what was given.
        limit: whose limit holds; by default that of the name, if there is one.

    Example:
        >>> require_count("epochs", 10**12)
        Traceback (most recent call last):
        curvae.errors.CurvaeError: `epochs` must be at most 1,000,000, got 1,000,000,000,000: every epoch goes over all data and leaves a record
    """  # noqa: E501 - an error is one line
    if not count(value):
        raise CurvaeError(f"`{name}` must be a whole number of at least 1, got {value!r}", parameter=name, value=value)
    most, reason = _LIMITS.get(limit or name, (value, ""))
    if value > most:
        raise CurvaeError(f"`{name}` must be at most {most:,}, got {value:,}: {reason}", parameter=name, value=value)


@dataclass(frozen=True)
class Setting:
    """What is known about a setting besides its value.

    Arguments:
        part: of a file, which holds it.
        help: one sentence, without the default.
        default: the default value.
        shown: the default in words, where the value does not speak for itself.
        flags: short names on the command line, such as "-d".
        rule: which values it takes, beyond what its type says.
        choices: names that it takes, where its type does not list them.
        words: words that it takes beside values of its type, with what they stand for: themselves, or None.
        compared: whether a comparison leaves it to the user; otherwise it chooses the value itself.
        type: of the value; None is not part of it.
        optional: whether it may be None.
        name: of the setting.
    """

    part: str
    help: str
    default: Any
    shown: str | None = None
    flags: Sequence[str] = ()
    rule: Rule | None = None
    choices: Sequence[str] = ()
    words: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    compared: bool = True
    type: Any = None
    optional: bool = False
    name: str = ""

    @property
    def default_text(self) -> str:
        """The default as help shows it; empty for what is off by default."""
        if self.shown is not None:
            return self.shown
        if isinstance(self.default, bool):
            return "yes" if self.default else ""
        if isinstance(self.default, tuple):
            return ",".join(map(str, self.default))
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)

    @property
    def text(self) -> str:
        """Help with choices and default."""
        said = self.help.removesuffix(".")
        if not all(choice in said for choice in self.choices):
            said += f": {', '.join(self.choices[:-1])} or {self.choices[-1]}"
        return f"{said} ({self.default_text})." if self.default_text else f"{said}."

    def parse_word(self, value: Any) -> Any:
        """Return the value that a word stands for, and any other value as it is."""
        return self.words.get(value, value) if isinstance(value, str) else value

    def written(self, value: Any) -> Any:
        """Return the word that stands for a value, and any other value as it is."""
        return next((word for word, own in self.words.items() if own == value), value)

    def require(self, value: Any) -> None:
        """Raise unless the setting takes the value."""
        if (value is None and self.optional) or (isinstance(value, str) and value in self.words):
            return
        must = ""
        if self.words and isinstance(value, str):
            must = f"be a number or {' or '.join(self.words)}; got"
        elif self.type is bool and not isinstance(value, bool):
            must = "be true or false, got"
        elif get_origin(self.type) is tuple and not (isinstance(value, tuple) and value and all(map(count, value))):
            must = f"hold one or more positive widths, such as {self.default_text if self.default else '200'}; got"
        elif self.rule is not None and not self.rule.holds(value):
            must = self.rule.text
        if must:
            raise CurvaeError(f"`{self.name}` must {must} {value!r}", parameter=self.name, value=value)
        if self.choices:
            require_choice(self.name, value, self.choices)
        if self.type is int and self.rule is None:
            require_count(self.name, value)


def setting(part: str, default: Any, help: str, **more: Any) -> Any:  # noqa: A002 - the name of the thing
    """Return a field of a dataclass of settings; for the arguments see `Setting`.

    A whole number is at least 1 and not absurdly large, unless a `rule` says otherwise.
    """
    return dataclasses.field(default=default, metadata={"setting": Setting(part, help, default, **more)})


def again(kind: type[Any], name: str, default: Any, **more: Any) -> Any:
    """Return a setting of another class with another default, and what else is different."""
    (known,) = (field.metadata["setting"] for field in dataclasses.fields(kind) if field.name == name)
    changed = dataclasses.replace(known, default=default, **{"shown": None, **more})
    return dataclasses.field(default=default, metadata={"setting": changed})


_described: dict[type[Any], dict[str, Setting]] = {}


def described(kind: type[Any]) -> dict[str, Setting]:
    """Return the settings of a class of them by name, in order.

    Example:
        >>> from curvae.settings import RowSettings
        >>> described(RowSettings)["dim"].text
        'Dimension of the latent space (2).'
    """
    if kind in _described:
        return _described[kind]
    hints = get_type_hints(kind)
    found: dict[str, Setting] = {}
    for field in dataclasses.fields(kind):
        hint, known = hints[field.name], field.metadata["setting"]
        options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        kinds = [option for option in options if option is not NoneType]
        (own,) = [option for option in kinds if get_origin(option) is not Literal] or kinds
        found[field.name] = dataclasses.replace(
            known,
            name=field.name,
            type=own,
            optional=NoneType in options,
            choices=get_args(own) if get_origin(own) is Literal else known.choices,
        )
    _described[kind] = found
    return found


# Names that settings choose from.

DistributionKind = Literal["riemannian", "wrapped"]
NetworkKind = Literal["mlp", "conv"]
DecoderKind = Literal["gyroplane", "gyroplane_scalar", "log_mlp", "mlp", "mobius"]
ObjectiveKind = Literal["elbo", "iwae"]
EdgeKind = Literal["geodesic", "fermi_dirac"]
PopularityKind = Literal["auto", "off", "learned"]
EncoderKind = Literal["convolutions", "free"]
PairKind = Literal["all", "balanced"]
NeighbourKind = Literal["auto", "off", "near", "far", "both"]
InitKind = Literal["auto", "random", "pca"]
DispersionKind = Literal["gene", "gene-batch", "gene-cell"]

LIKELIHOODS: dict[str, str] = {
    "bernoulli": "bernoulli:BERNOULLI",
    "gaussian": "gaussian:GAUSSIAN",
    "unit_gaussian": "gaussian:UNIT_GAUSSIAN",
    "categorical": "categorical:CATEGORICAL",
    "poisson": "counts:POISSON",
    "nb": "negative_binomial:NB",
    "zinb": "negative_binomial:ZINB",
    "mixed": "mixed:MIXED",
}
"""every likelihood by name, with the module of `curvae.models.likelihoods` and the `Family` in it"""

OVERDISPERSED = ("nb", "zinb")
"""those of them with dispersions"""
