"""The program and the style of a page with maps, from the files beside this one."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources

__all__ = ["policy", "script", "style", "text"]

_PARTS = ("geometry.js", "store.js", "shaders.js", "drawing.js", "map.js", "panel.js", "start.js")


def text(name: str) -> str:
    """What a file holds."""
    return resources.files(__package__).joinpath(name).read_text("utf-8")


@cache
def script() -> str:
    """The program that brings the maps of a page to life: all parts in one scope of their own."""
    return "\n".join(['(() => {\n"use strict";\n', *map(text, _PARTS), "})();\n"])


@cache
def style(name: str = "map") -> str:
    """The style of a map inside any page, or with "page" of the page around one map."""
    return text(f"{name}.css")


def policy(text: str) -> str:
    """What a content-security policy calls an inline script or style with that text, so that it allows no other.

    Example:
        >>> policy("alert(1)")
        "'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='"
    """
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"
