"""The interactive map: one page that holds its points, its program and nothing else."""

from .view import View, page, policy, script, style

__all__ = ["View", "page", "policy", "script", "style"]
__dir__ = __all__.copy  # completion lists public names only
