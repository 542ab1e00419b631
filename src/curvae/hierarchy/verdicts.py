"""What a map keeps of near and far neighbours beside another map, in words."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Kept", "kept_less", "kept_sentence"]

_LESS = 0.02  # by which a map may keep less than another without being called worse


class Kept(Protocol):
    """Shares of near and far neighbours that a map keeps."""

    @property
    def qlocal(self) -> float: ...
    @property
    def qglobal(self) -> float: ...


def kept_less(ours: Kept, other: Kept) -> tuple[str, ...]:
    """Which of "near" and "far" neighbours a map keeps less of than another."""
    pairs = {"near": (ours.qlocal, other.qlocal), "far": (ours.qglobal, other.qglobal)}
    return tuple(name for name, (own, its) in pairs.items() if own < its - _LESS)


def kept_sentence(ours: Kept, other: Kept, name: str, kind: str, things: str = "neighbours") -> str:
    """Both maps in one sentence.

    Arguments:
        ours, other: what they keep.
        name, kind: of the other map.
        things: that are near or far.
    """
    kept = (
        f"The map keeps {ours.qlocal:.0%} of near and {ours.qglobal:.0%} of far {things}, "
        f"{name} in as many dimensions {other.qlocal:.0%} and {other.qglobal:.0%}"
    )
    match kept_less(ours, other):
        case ():
            return f"{kept}: it shows no less than {kind} does."
        case (less,):
            more = "far" if less == "near" else "near"
            return f"{kept}: trust it for {more} neighbours, {name} for {less} ones."
        case _:
            return f"{kept}: it is less faithful than {kind}."
