"""Guard texts in CSV files that a spreadsheet would run as formulas, by an apostrophe in front.

A text is guarded if it starts like a formula, possibly after apostrophes. Writing adds one apostrophe and reading
removes one, so that every text comes back unchanged. Numbers such as −1 are not formulas and stay as they are.
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
    """Write a text for a CSV file.

    Example:
        >>> [guard(text) for text in ("=1+1", "'=1+1", "-1.5", "T cell")]
        ["'=1+1", "''=1+1", '-1.5', 'T cell']
    """
    return f"'{text}" if _is_formula(text) else text


def unguard(text: str) -> str:
    """Inverse of `guard`."""
    return text[1:] if text.startswith("'") and _is_formula(text) else text


def is_embedding(names: Sequence[str]) -> bool:
    """Whether these are the columns of an `embedding.csv`, in which texts are guarded."""
    last = re.fullmatch(r"([he]\d+_)?(sigma|map_2)|spread", names[-1])
    return last is not None and {"tangent_1", "radius"} <= set(names) and list(names[:3]) == ["id", "label", "split"]
