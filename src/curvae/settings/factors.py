"""The factors of a latent space, as they are written: `h2`, `h2:1.2`, `h2:learn`, `h2,e3`, `s1`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import CurvaeError

__all__ = ["LETTERS", "NAME", "FactorSettings", "Letter", "parse_space"]


class Letter(NamedTuple):
    """A kind of factor as it is written.

    Arguments:
        meaning: in one word, for messages.
        curvature: c of a factor that is written without; None for a kind that has no curvature to choose.
        closed: whether it closes up: its prior is uniform and has no scale, and posteriors are Riemannian normals.
    """

    meaning: str
    curvature: float | None = None
    closed: bool = False


LETTERS = {"h": Letter("hyperbolic", 1.0), "e": Letter("flat"), "s": Letter("spherical", closed=True)}
"""every kind of factor; `curvae.nn.space.FACTORS` and `curvae.maps.charts.CHARTS` have a class for each"""

NAME = r"[a-z]\d+"
"""what names of factors look like: the letter and the place in the product, such as h1 or e2"""

_FACTOR = re.compile(r"([a-z])([0-9]{1,9})(?::(\S+))?")


def _grammar() -> str:
    letters = " or ".join(f"{letter} for {kind.meaning}" for letter, kind in LETTERS.items())
    return f"write {letters} with a dimension, such as h2, h2:1.2, h2:learn, s1 or h2,e3"


@dataclass(frozen=True)
class FactorSettings:
    """One factor of a latent space.

    Arguments:
        dim: its dimension.
        curvature: c ≥ 0, the factor having curvature −c, or where learning starts.
        learned: whether c is trained.
        kind: its letter; the curvature decides between h and e.
    """

    dim: int
    curvature: float = 1.0
    learned: bool = False
    kind: str = "h"

    def __post_init__(self) -> None:
        if self.has_short_form:
            object.__setattr__(self, "kind", "h" if self.curvature or self.learned else "e")

    @property
    def has_short_form(self) -> bool:
        """Whether dimension and curvature alone can say it."""
        return self.kind in ("h", "e")

    @property
    def closed(self) -> bool:
        """Whether it closes up."""
        return LETTERS[self.kind].closed

    @property
    def curved(self) -> bool:
        """Whether it has a curvature that can be chosen."""
        return LETTERS[self.kind].curvature is not None

    @property
    def prior_scale(self) -> float:
        """σ0 where none is given: 1/√(1 + c·(d − 2)).

        A flat normal has the typical radius σ0·√(d − 1). On a curved space volume pulls a Riemannian one out to
        σ0²·√c·(d − 1), which is √(c·σ0²·(d − 1)) times as far; posteriors cannot follow it and collapse. With this σ0
        that ratio stays below √2 in three or more dimensions, whatever c, and in two, where it does no harm, σ0 is 1.

        Example:
            >>> [round(FactorSettings(d, 1.4).prior_scale, 3) for d in (2, 5, 20)]
            [1.0, 0.439, 0.195]
        """
        return 1 / math.sqrt(1 + self.curvature * max(0, self.dim - 2))

    @property
    def text(self) -> str:
        """As it is written.

        Example:
            >>> FactorSettings(2, 1.2).text, FactorSettings(3, 0.0).text
            ('h2:1.2', 'e3')
        """
        if self.learned:
            return f"{self.kind}{self.dim}:learn"
        given = self.curved and self.curvature != LETTERS[self.kind].curvature
        return f"{self.kind}{self.dim}" + (f":{float(self.curvature)!r}" if given else "")


def parse_space(text: str) -> tuple[FactorSettings, ...]:
    """Return the factors that a text names.

    Example:
        >>> [factor.text for factor in parse_space("h2:0.5, e3")]
        ['h2:0.5', 'e3']
    """
    if not isinstance(text, str):
        raise CurvaeError(f"`space` must be a text; {_grammar()}; got {text!r}", parameter="space", value=text)
    return tuple(_factor(part.strip(), text) for part in text.split(","))


def _factor(text: str, space: str) -> FactorSettings:
    def wrong(why: str) -> CurvaeError:
        return CurvaeError(f"`space` {why}", parameter="space", value=space)

    found = _FACTOR.fullmatch(text)
    if found is None or int(found[2]) < 1:
        raise wrong(f"must be a product of factors: {_grammar()}; got {space!r}")
    kind, dim, given = found[1], int(found[2]), found[3]
    if kind not in LETTERS:
        raise wrong(f"{space!r} has a factor of the unknown kind {kind}; {_grammar()}")
    meaning, default, _ = LETTERS[kind]
    if default is None and given is not None:
        raise wrong(f"{space!r}: a {meaning} factor has no curvature; write {kind}{dim}")
    if given is None or given == "learn":
        return FactorSettings(dim, default or 0.0, given is not None, kind)
    try:
        curvature = float(given)
    except ValueError:
        curvature = math.nan
    if not (curvature >= 0 and math.isfinite(curvature)):
        raise wrong(
            f"{space!r}: what follows {kind}{dim}: must be c ≥ 0, the factor having curvature −c, or learn; got "
            f"{given!r}"
        )
    return FactorSettings(dim, curvature, kind=kind)
