"""Opening files that may be packed."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import IO, Any

__all__ = ["BROKEN_GZIP", "is_packed", "open_file"]

BROKEN_GZIP = (gzip.BadGzipFile, EOFError, zlib.error)  # what reading a broken packed file raises


def is_packed(path: Path) -> bool:
    """Whether a file is gzipped, by its name."""
    return path.suffix.lower() == ".gz"


def open_file(path: Path, mode: str = "rb", **options: Any) -> IO[Any]:
    """Open a file for reading, unpacked on the way if its name ends in .gz."""
    opener: Any = gzip.open if is_packed(path) else open
    return opener(path, mode, **options)
