"""Options of the command line, generated from the settings; and messages of the library in the words of the options."""

from __future__ import annotations

import inspect
import json
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from typing import Annotated, Any, Literal, get_origin

import typer

from .errors import CurvaeError
from .settings import Setting, Settings, described

__all__ = ["flag", "in_flags", "option", "takes_settings"]


def flag(name: str) -> str:
    """The option of a parameter.

    Example:
        >>> flag("batch_size")
        '--batch-size'
    """
    return f"--{name.replace('_', '-')}"


def option(*kinds: type[Settings], name: str, panel: bool = True) -> Any:
    """The option of a setting; of several kinds of models, with the default of each."""
    known = [described(kind)[name] for kind in kinds if name in described(kind)]
    first = known[0]
    names = [flag(name), *first.flags]
    if first.type is bool and first.default:
        names[0] += f"/--no-{names[0][2:]}"
    part = next(kind.part_of(name) for kind in kinds if name in described(kind))
    return typer.Option(
        *names,
        help=_help(known),
        show_default=False,
        rich_help_panel=part.capitalize() if panel else None,
        metavar=_metavar(first),
        **_bounds(first),
    )


def _help(known: Iterable[Setting]) -> str:
    """What all kinds of models say, or the first and then that of a graph."""
    first, *others = dict.fromkeys(one.text for one in known)
    return first + "".join(f" Of a graph: {other[0].lower()}{other[1:]}" for other in others)


def _annotation(kinds: Iterable[type[Settings]], name: str) -> Any:
    """Unset unless given."""
    known = next(described(kind)[name] for kind in kinds if name in described(kind))
    typed: Any = str if get_origin(known.type) is tuple else known.type
    if known.choices:
        typed = Literal[tuple(known.choices)]
    return Annotated[typed | None, option(*kinds, name=name)]


def _metavar(known: Setting) -> str | None:
    if known.choices:
        return "NAME"
    if known.bounds is not None:
        return "<int>"
    return "WIDTHS" if get_origin(known.type) is tuple else None


def _bounds(known: Setting) -> dict[str, Any]:
    return {} if known.bounds is None else {"min": known.bounds[0], "max": known.bounds[1]}


def takes_settings(*kinds: type[Settings], without: Collection[str] = ()) -> Callable[[Callable[..., None]], Any]:
    """Give a command the options of all settings; it is called with those that were given as `settings`.

    Arguments:
        kinds: whose settings; the options of several are joined.
        without: names of settings that the command chooses itself.
    """
    parts = dict.fromkeys((kind.part_of(name), name) for kind in kinds for name in described(kind))
    order = list(dict.fromkeys(part for kind in kinds for part in kind.parts))
    names = [name for _, name in sorted(parts, key=lambda entry: order.index(entry[0])) if name not in without]
    names = list(dict.fromkeys(names))

    def extend(command: Callable[..., None]) -> Any:
        signature = inspect.signature(command, eval_str=True)
        options = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotation(kinds, name))
            for name in names
        ]
        own = [one.replace(kind=one.KEYWORD_ONLY) for one in signature.parameters.values() if one.name != "settings"]

        @wraps(command)
        def call(**values: Any) -> None:
            given = {name: values.pop(name) for name in names}
            command(**values, settings={name: _value(name, v) for name, v in given.items() if v is not None})

        call.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
        return call

    def _value(name: str, value: Any) -> Any:
        (known, *_) = (described(kind)[name] for kind in kinds if name in described(kind))
        return _widths(name, value) if get_origin(known.type) is tuple else value

    return extend


def _widths(name: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(width) for width in text.split(","))
    except ValueError:
        raise CurvaeError(f"{flag(name)} takes widths such as 200 or 400,200; got {text!r}") from None


# --- messages -------------------------------------------------------------------------------------------------------

_ASSIGNED = re.compile(
    r"""(?<![\w"'.-])([a-z][a-z0-9_]*)=("(?:[^"\\]|\\.)*"|\[[^\]]*\]|True|False|…|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)"""
)


def in_flags(message: str, options: Mapping[str, tuple[str, str | None]]) -> str:
    """A message of the library with parameters as they are typed on the command line.

    Arguments:
        message: that names parameters as in `missing="drop"`, `weighted=True` or, of any value, `nodes=…`; or begins
            with what one of them must be.
        options: the flag of each parameter, and the one that turns it off, if there is one.

    Example:
        >>> known = {"missing": ("--missing", None), "weighted": ("--weighted", None), "nodes": ("--nodes", None)}
        >>> in_flags('use missing="drop", weighted=True or nodes=…', known)
        'use --missing drop, --weighted or --nodes'
        >>> in_flags("nodes must be a table", known)
        '--nodes must be a table'
    """

    def typed(found: re.Match[str]) -> str:
        name, value = found.groups()
        if name not in options:
            return found[0]
        on, off = options[name]
        if value in ("True", "…"):
            return on
        if value == "False":
            return off or f"no {on}"
        try:
            values = json.loads(value)
        except ValueError:
            return found[0]
        entries = values if isinstance(values, list) else [values]
        return " ".join(f"{on} {shlex.quote(str(entry))}" for entry in entries)

    first, must, rest = message.partition(" must ")
    return _ASSIGNED.sub(typed, f"{options[first][0]}{must}{rest}" if first in options else message)
