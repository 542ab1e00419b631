"""HTML that is escaped unless it was made here."""

from __future__ import annotations

import html

__all__ = ["Html", "escaped", "tag", "writable"]

_VOID = ("img", "link", "meta")  # elements without an end


class Html(str):
    """Text that is HTML already, and safe."""

    __slots__ = ()


def writable(text: str) -> str:
    """Text that can be written as UTF-8; of a file name that is no UTF-8, surrogates become escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def escaped(text: str) -> str:
    """Text as HTML, for elements and for attributes in quotes."""
    return html.escape(writable(text))


def tag(name: str, /, *children: str, **attributes: str | None) -> Html:
    """An element; whatever is not `Html` is escaped.

    Arguments:
        name: of the element.
        children: what it holds, in order.
        attributes: those that are None are left out; `class_` stands for class and `http_equiv` for http-equiv.

    Example:
        >>> tag("p", "a < b", tag("em", "!"), class_="note")
        '<p class="note">a &lt; b<em>!</em></p>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{given}>")
    inside = "".join(child if isinstance(child, Html) else escaped(child) for child in children)
    return Html(f"<{name}{given}>{inside}</{name}>")
