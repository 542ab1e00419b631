"""Where the repository and the stored fixtures are."""

from __future__ import annotations

from pathlib import Path

__all__ = ["DATA", "ROOT"]

DATA = Path(__file__).parent / "data"
ROOT = DATA.parent.parent
