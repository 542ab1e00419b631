"""What is said about data while it is read: notes, warnings, and names listed briefly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["Messages", "count", "listing", "one_line", "quoted"]


@dataclass
class Messages:
    """Sentences gathered while data is read: `notes` say what was done, `warnings` what looks wrong and its fix."""

    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)

    def warn(self, sentence: str) -> None:
        self.warnings.append(sentence)


def listing(items: Iterable[str], limit: int = 5) -> str:
    """Items in one line, the rest as a number.

    Example:
        >>> listing(["a", "b", "c"], limit=2)
        'a, b and 1 more'
    """
    items = list(items)
    rest = len(items) - limit
    return ", ".join(items[:limit]) + (f" and {rest} more" if rest > 0 else "")


def quoted(names: Iterable[str]) -> str:
    """Names in quotes, listed briefly and always on one line."""
    return listing([repr(str(name)) for name in names])


def one_line(error: BaseException) -> str:
    """The message of an error from elsewhere, to be told within a line."""
    return " ".join(str(error).split())


def count(number: int, thing: str) -> str:
    """A number with its noun.

    Example:
        >>> count(1, "row"), count(2, "row")
        ('1 row', '2 rows')
    """
    return f"{number:,} {thing}" + ("" if number == 1 else "s")
