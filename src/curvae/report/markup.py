"""HTML that is escaped unless it was made here."""

from __future__ import annotations

import html

__all__ = ["Html", "tag"]

_VOID = ("img", "link", "meta")  # elements without an end


class Html(str):
    """Text that is HTML already, and safe."""

    __slots__ = ()


def _escape(text: str) -> str:
    # A file name that is no UTF-8 reaches Python as surrogates, which cannot be written to a file.
    return html.escape(text.encode("utf-8", "backslashreplace").decode("utf-8"))


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
        f' {key.rstrip("_").replace("_", "-")}="{_escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{given}>")
    inside = "".join(child if isinstance(child, Html) else _escape(child) for child in children)
    return Html(f"<{name}{given}>{inside}</{name}>")
