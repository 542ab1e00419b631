"""The errors for what a user can fix."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any

__all__ = ["CurvaeError", "Fix", "FixableError", "require"]

Fix = Sequence[tuple[str, str]]
"""a parameter and its value that correct a mistake; alternatives follow, the best first"""

_LISTS = ("categorical", "covariates")  # parameters that take several columns
_EXTRAS = {"pooch": "data", "pyarrow": "parquet"}  # of this package, by what they install


class CurvaeError(ValueError):
    """A mistake in what was given: one line that says the cause and the fix.

    The message names parameters in backquotes, as `epochs`, `missing="drop"` or, of any value, `nodes=…`. The command
    line prints it with options in their place, such as --missing drop, and exits with code 2; everything else is a bug
    and shows a traceback.

    Example:
        >>> CurvaeError("`epochs` must be at most 9; lower `epochs=…` or `steps`").parameters
        ('epochs', 'steps')
    """

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters that the message is about, in its order."""
        return tuple(dict.fromkeys(re.findall(r"`(\w+)(?:=[^`]*)?`", str(self))))


class FixableError(CurvaeError):
    """A mistake that parameters correct, so that the command line can print a whole command that works.

    Arguments:
        found: what is wrong.
        fixes: what to give, one entry for each value; "" for a parameter that is turned on.
        advice: the same in words; by default the first alternative of each fix.

    Example:
        >>> fixes = [[("id", "name")], [("categorical", "a")], [("categorical", "b")]]
        >>> print(FixableError("there are texts", fixes))
        there are texts; use `id="name"`, `categorical=["a", "b"]`
    """

    def __init__(self, found: str, fixes: Sequence[Fix], advice: str = "") -> None:
        values: dict[str, list[str]] = {}
        for (name, value), *_ in fixes:
            values.setdefault(name, []).append(value)
        listed = ", ".join(
            f"`{name}={json.dumps(given if name in _LISTS else given[0], ensure_ascii=False)}`"
            for name, given in values.items()
        )
        super().__init__(f"{found}; {advice or f'use {listed}'}")
        self.found, self.fixes = found, fixes


def require(package: str, purpose: str, *submodules: str, otherwise: str = "") -> Any:
    """Import an optional package and some of its submodules; raise an error that says what to install without it.

    Arguments:
        package: its name.
        purpose: what it is needed for, such as "cells.parquet needs pyarrow to be read".
        submodules: names within the package, such as "parquet".
        otherwise: what can be done without the package, if anything.

    Returns:
        The package.
    """
    try:
        for name in submodules:
            import_module(f"{package}.{name}")
        return import_module(package)
    except ImportError as error:
        install = f"pip install {package} or 'curvae[{_EXTRAS[package]}]'"
        raise CurvaeError(f"{purpose}; {install}{otherwise and f', or {otherwise}'}") from error
