"""Which values a setting takes, and what is said of others."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import CurvaeError

__all__ = ["NOT_NEGATIVE", "POSITIVE", "Rule", "count", "number", "require_count", "whole"]

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

    def require(self, name: str, value: Any) -> None:
        """Raise unless the value is right."""
        if not self.holds(value):
            raise CurvaeError(f"{name} must {self.text} {value!r}")


def whole(value: Any) -> bool:
    """Whether it is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def number(value: Any) -> bool:
    """Whether it is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def count(value: Any) -> bool:
    """Whether it is a whole number of at least 1."""
    return whole(value) and value >= 1


POSITIVE = Rule(lambda value: number(value) and value > 0, "be a positive number, got")
NOT_NEGATIVE = Rule(lambda value: number(value) and value >= 0, "be a number ≥ 0, got")


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
    if not count(value):
        raise CurvaeError(f"{name} must be a whole number of at least 1, got {value!r}")
    most, reason = _LIMITS.get(limit or name, (value, ""))
    if value > most:
        raise CurvaeError(f"{name} must be at most {most:,}, got {value:,}: {reason}")
