"""What a map keeps of near and far neighbours beside another map, in words."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..data.principal import mean_interval

__all__ = ["Kept", "compare_kept", "describe_kept"]

_LEAST = 0.01  # a difference in kept neighbours that is worth a word
_LARGE = 0.02  # one from which on a sentence says why it is none
_WORDS = {1: ("more", "than"), 0: ("as many", "as"), -1: ("fewer", "than")}


class Kept(Protocol):
    """Shares of near and far neighbours that a map keeps, of all rows and of groups of rows, (groups, 2)."""

    @property
    def qlocal(self) -> float: ...
    @property
    def qglobal(self) -> float: ...
    @property
    def kept_by_group(self) -> NDArray[np.float64]: ...


def compare_kept(ours: Kept, other: Kept) -> dict[str, int]:
    """Say for "near" and "far" neighbours whether a map keeps more (1), as many (0) or fewer (−1) than another.

    They are as many if the 95 % interval of the difference, paired over groups of rows, holds 0, or if the difference
    is less than a point in a hundred.
    """
    differences = ours.qlocal - other.qlocal, ours.qglobal - other.qglobal
    found = zip(("near", "far"), differences, _margins(ours, other), strict=True)
    return {name: int(np.sign(by)) if abs(by) > max(margin, _LEAST) else 0 for name, by, margin in found}


def _margins(ours: Kept, other: Kept) -> list[float]:
    """Half-widths of the 95 % intervals of the differences in near and far neighbours."""
    return [mean_interval(each)[1] for each in (ours.kept_by_group - other.kept_by_group).T.tolist()]


def describe_kept(ours: Kept, other: Kept, name: str, dim: int, things: str = "neighbours") -> str:
    """Compare two maps in one sentence.

    Arguments:
        ours, other: what they keep.
        name: of the other map.
        dim: of both maps.
        things: that are near or far.
    """
    compared = compare_kept(ours, other)
    (near, than), (far, _) = _WORDS[compared["near"]], _WORDS[compared["far"]]
    dimensions = "1 dimension" if dim == 1 else f"{dim} dimensions"
    shares = []
    for own, its, margin in zip(
        (ours.qlocal, ours.qglobal), (other.qlocal, other.qglobal), _margins(ours, other), strict=True
    ):
        unclear = _LARGE <= abs(own - its) <= margin
        more = f", a difference within its interval of ± {100 * margin:.0f}" if unclear else ""
        shares.append(f"({100 * own:.0f} % against {100 * its:.0f} %{more})")
    return (
        f"The map keeps {near} near {things} {than} {name} in {dimensions} {shares[0]} and {far} far ones {shares[1]}."
    )
