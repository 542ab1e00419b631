"""The interactive map: one page that holds its points, its program and nothing else."""

from .assets import policy, script, style
from .view import View, page

__all__ = ["View", "page", "policy", "script", "style"]
__dir__ = __all__.copy  # completion lists public names only
