"""Notes and warnings about data while it is read, and helpers to write them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["Messages", "count", "listing", "one_line", "quoted"]


@dataclass
class Messages:
    """Sentences about data: `notes` say what was done, `warnings` what looks wrong and how to fix it."""

    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)

    def warn(self, sentence: str) -> None:
        self.warnings.append(sentence)


def listing(items: Iterable[str], limit: int = 5) -> str:
    """List the first items in one line and count the rest.

    Example:
        >>> listing(["a", "b", "c"], limit=2)
        'a, b and 1 more'
    """
    items = list(items)
    rest = len(items) - limit
    return ", ".join(items[:limit]) + (f" and {rest} more" if rest > 0 else "")


def quoted(names: Iterable[str]) -> str:
    """List the first names in quotes, always on one line, and count the rest."""
    return listing([repr(str(name)) for name in names])


def one_line(error: BaseException) -> str:
    """The message of an exception without line breaks."""
    return " ".join(str(error).split())


def count(number: int, thing: str) -> str:
    """Write a number with its noun in singular or plural.

    Example:
        >>> count(1, "row"), count(2, "row")
        ('1 row', '2 rows')
    """
    return f"{number:,} {thing}" + ("" if number == 1 else "s")
