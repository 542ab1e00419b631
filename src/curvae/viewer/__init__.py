"""The interactive map: one page that holds its points, its program and nothing else."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .view import View, page, policy, script, style

__all__ = ["View", "page", "policy", "script", "style"]
__dir__ = __all__.copy  # completion lists public names only

# Imported when first used: a report without a map need not wait for what draws one.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in __all__:
            return getattr(import_module(f"{__name__}.view"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
