"""Texts that a spreadsheet would run as formulas, guarded in CSV files by an apostrophe in front.

A text is guarded if it begins like a formula, or with apostrophes and then like a formula: one apostrophe more when it
is written, one less when it is read, so that every text comes back as it was. Numbers are left alone: −1 runs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["guard", "is_embedding", "unguard"]

_FORMULA = re.compile(r"'*(?:[\t\r\n]|\s*[=+\-@])")
_NUMBER = re.compile(r"'*\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*")


def _is_formula(text: str) -> bool:
    return _FORMULA.match(text) is not None and _NUMBER.fullmatch(text) is None


def guard(text: str) -> str:
    """A text as it is written to a CSV file.

    Example:
        >>> [guard(text) for text in ("=1+1", "'=1+1", "-1.5", "T cell")]
        ["'=1+1", "''=1+1", '-1.5', 'T cell']
    """
    return f"'{text}" if _is_formula(text) else text


def unguard(text: str) -> str:
    """Inverse of `guard`."""
    return text[1:] if text.startswith("'") and _is_formula(text) else text


def is_embedding(names: Sequence[str]) -> bool:
    """Whether columns are those of an `embedding.csv`, in which texts are guarded."""
    return [*names[:4], *names[-2:]] == ["id", "label", "split", "ball_1", "radius", "sigma"]
