"""Docstrings as they are written here, for Sphinx: code between single backticks, and names found wherever they are
defined."""

from __future__ import annotations

import inspect
import re
from functools import cache

from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sphinx.addnodes import pending_xref
from sphinx.util.inspect import stringify_signature
from sphinx.util.typing import stringify_annotation

import curvae

PACKAGES = ("data", "distributions", "geometry", "hierarchy", "models", "nn", "plotting", "training", "viewer")

# Classes of others are found by the names of their documentation, not by the modules that define them.
_ELSEWHERE = {
    "Tensor": "torch.Tensor",
    "Transform": "torch.distributions.transforms.Transform",
    "matplotlib.axes._axes.Axes": "matplotlib.axes.Axes",
    "numpy.random._generator.Generator": "numpy.random.Generator",
    "scipy.sparse._csr.csr_array": "scipy.sparse.csr_array",
    "torch._C.Generator": "torch.Generator",
    "torch.nn.modules.linear.Linear": "torch.nn.Linear",
    "torch.nn.modules.container.Sequential": "torch.nn.Sequential",
    "torch.nn.modules.module.Module": "torch.nn.Module",
}
_NDARRAY = re.compile(r"~?numpy\.ndarray\[tuple\[~?typing\.Any, \.\.\.\], ~?numpy\.dtype\[([^\[\]]*)\]\]")
_UNLINKED = ("Missing", "Output", "Record", "Width")  # short names of types
_ARRAY_LIKE = stringify_annotation(ArrayLike, "smart")
_COLON = "\ue000"


@cache
def homes() -> dict[str, str]:
    """Where the reference has a name: from where it is defined, and from the top of the package."""
    found = {}
    for package in PACKAGES:
        module = getattr(curvae, package)
        for name in module.__all__:
            home, item = f"curvae.{package}.{name}", getattr(module, name)
            if inspect.isclass(item) or inspect.isfunction(item):
                found.setdefault(f"{item.__module__}.{item.__qualname__}", home)
            if name in curvae.__all__:
                found[f"curvae.{name}"] = home
    for name in ("PoincareVAE", "PoincareGraphVAE", "CurvaeError"):
        found[f"{getattr(curvae, name).__module__}.{name}"] = f"curvae.{name}"
    return found


def escape(app, what, name, item, options, lines):
    """Bars and underscores outside of code are themselves, not markup; nor is what precedes a colon a type."""
    code = False
    if what in ("attribute", "data", "property"):
        lines[:] = [line.replace(":", _COLON) for line in lines]
    for k, line in enumerate(lines):
        parts = re.split(r"(``.*?``|`[^`]*`|:math:`.*?`)", line)
        code = line.lstrip().startswith(">>>") or (code and bool(line.strip()))
        if not code:
            parts[::2] = [re.sub(r"(?<=\w)_(?!\w)|\|", r"\\\g<0>", part) for part in parts[::2]]
            lines[k] = "".join(parts)


def restore(app, what, name, item, options, lines):
    """The colons, which napoleon must not see."""
    lines[:] = [line.replace(_COLON, ":") for line in lines]


def shorten(app, what, name, item, options, signature, returned):
    """Arrays by the short name of their type, and defaults that are made for each object as an ellipsis.

    Estimators have the parameters of `__init__`, and not of `__new__`, which passes them on.
    """
    if what == "class" and issubclass(item, BaseEstimator):
        signature = stringify_signature(
            inspect.signature(item), show_return_annotation=False, unqualified_typehints=True
        )

    def short(text):
        text = text.replace("<factory>", "...").replace(_ARRAY_LIKE, "~numpy.typing.ArrayLike")
        return _NDARRAY.sub(r"~numpy.typing.NDArray[\1]", text)

    return tuple(text and short(text) for text in (signature, returned))


def skip(app, what, name, item, skipped, options):
    """What others define or describe, and fields of a named tuple that nothing is said about."""
    home = getattr(getattr(item, "fget", item), "__module__", None) or "curvae"
    field = (inspect.getdoc(item) or "").startswith("Alias for field number")
    inherited = name == "forward" and not item.__doc__
    return True if field or inherited or home.split(".")[0] != "curvae" else None


def find(app, env, node: pending_xref, content):
    """A name that is documented elsewhere than it is defined. Other code of docstrings, and types that are not public,
    are shown without a link."""
    target = _ELSEWHERE.get(node.get("reftarget"), node.get("reftarget", ""))
    node["reftarget"] = target
    parts = target.split(".")
    for k in range(len(parts), 0, -1):
        if home := homes().get(".".join(parts[:k])):
            name = ".".join([home, *parts[k:]])
            return env.domains["py"].resolve_xref(env, node["refdoc"], app.builder, "obj", name, node, content)
    unlinked = parts[0] == "curvae" or target in _UNLINKED or target.endswith("Kind")
    return content if unlinked or node.get("reftype") == "obj" else None


def setup(app):
    app.connect("autodoc-process-docstring", escape, priority=400)
    app.connect("autodoc-process-docstring", restore, priority=600)
    app.connect("autodoc-process-signature", shorten)
    app.connect("autodoc-skip-member", skip)
    app.connect("missing-reference", find, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
