"""The factors of a latent space, as they are written: `h2`, `h2:1.2`, `h2:learn`, `h2,e3`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from ..errors import CurvaeError

__all__ = ["FactorSettings", "parse_space"]

_FACTOR = re.compile(r"([a-z])([0-9]{1,9})(?::(\S+))?")
_GRAMMAR = "write h for hyperbolic or e for flat with a dimension, such as h2, h2:1.2, h2:learn or h2,e3"


@dataclass(frozen=True)
class FactorSettings:
    """One factor of a latent space.

    Arguments:
        dim: its dimension.
        curvature: c ≥ 0, the factor having curvature −c, or where learning starts.
        learned: whether c is trained.
    """

    dim: int
    curvature: float = 1.0
    learned: bool = False

    @property
    def flat(self) -> bool:
        """Whether it is Euclidean."""
        return self.curvature == 0 and not self.learned

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
    def kind(self) -> str:
        """The letter of the factor."""
        return "e" if self.flat else "h"

    @property
    def text(self) -> str:
        """As it is written.

        Example:
            >>> FactorSettings(2, 1.2).text, FactorSettings(3, 0.0).text
            ('h2:1.2', 'e3')
        """
        given = "" if self.flat or (self.curvature == 1 and not self.learned) else f":{float(self.curvature)!r}"
        return f"{self.kind}{self.dim}{':learn' if self.learned else given}"


def parse_space(text: str) -> tuple[FactorSettings, ...]:
    """The factors that a text names.

    Example:
        >>> [factor.text for factor in parse_space("h2:0.5, e3")]
        ['h2:0.5', 'e3']
    """
    if not isinstance(text, str):
        raise CurvaeError(f"space must be a text; {_GRAMMAR}; got {text!r}")
    return tuple(_factor(part.strip(), text) for part in text.split(","))


def _factor(text: str, space: str) -> FactorSettings:
    found = _FACTOR.fullmatch(text)
    if found is None or int(found[2]) < 1:
        raise CurvaeError(f"space must be a product of factors: {_GRAMMAR}; got {space!r}")
    kind, dim, given = found[1], int(found[2]), found[3]
    if kind not in "he":
        raise CurvaeError(f"space {space!r} has a factor of the unknown kind {kind}; {_GRAMMAR}")
    if kind == "e":
        if given is not None:
            raise CurvaeError(f"space {space!r}: a flat factor has no curvature; write e{dim}")
        return FactorSettings(dim, 0.0)
    if given == "learn":
        return FactorSettings(dim, learned=True)
    try:
        curvature = 1.0 if given is None else float(given)
    except ValueError:
        curvature = math.nan
    if not (curvature >= 0 and math.isfinite(curvature)):
        raise CurvaeError(
            f"space {space!r}: what follows h{dim}: must be c ≥ 0, the factor having curvature −c, or learn; "
            f"got {given!r}"
        )
    return FactorSettings(dim, curvature)
