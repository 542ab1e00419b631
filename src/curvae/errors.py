"""The errors for what a user can fix."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from copyreg import __newobj__  # type: ignore[attr-defined] # documented for pickle, unknown to type checkers
from importlib import import_module
from typing import Any

__all__ = ["CurvaeError", "Fix", "FixableError", "check", "require"]

Fix = Sequence[tuple[str, str]]
"""a parameter and its value that correct a mistake; alternatives follow, the best first"""

_LISTS = ("categorical", "covariates")  # parameters that take several columns
_EXTRAS = {
    "anndata": "cells",
    "h5py": "cells",
    "pooch": "data",
    "pyarrow": "parquet",
}  # of this package, by what they install


class CurvaeError(ValueError):
    """A mistake in what was given: one line that says the cause and the fix.

    The message names parameters in backquotes, as `epochs`, `missing="drop"` or, of any value, `nodes=…`. The command
    line prints it with options in their place, such as --missing drop, and exits with code 2; everything else is a bug
    and shows a traceback.

    Arguments:
        message: the line.
        parameter: name of the parameter that the mistake is in; by default the first one that the message names.
        value: what was given for it, if that is known.

    Example:
        >>> error = CurvaeError("`epochs` must be at most 9; lower `epochs=…` or `steps`", value=12)
        >>> error.parameter, error.value, error.parameters
        ('epochs', 12, ('epochs', 'steps'))
        >>> CurvaeError("there are missing values; fill them in", parameter="missing").parameter
        'missing'
    """

    def __init__(self, message: str, *, parameter: str | None = None, value: Any = None) -> None:
        super().__init__(message)
        self.parameter = parameter or next(iter(self.parameters), None)
        self.value = value

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters that the message is about, in its order."""
        return tuple(dict.fromkeys(re.findall(r"`(\w+)(?:=[^`]*)?`", str(self))))

    def __reduce__(self) -> tuple[Any, ...]:
        # Subclasses have other arguments than the message, which is all that Python would call them with.
        return __newobj__, (type(self), *self.args), vars(self)


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
        super().__init__(f"{found}; {advice or f'use {listed}'}", parameter=fixes[0][0][0])
        self.found, self.fixes = found, fixes


def check(holds: object, message: str) -> None:
    """Raise a `CurvaeError` unless something holds.

    Example:
        >>> check(2 > 3, "2 is at most 3; give a larger number")
        Traceback (most recent call last):
        curvae.errors.CurvaeError: 2 is at most 3; give a larger number
    """
    if not holds:
        raise CurvaeError(message)


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
