"""Check that data fits in memory before any of it is allocated."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import CurvaeError

__all__ = ["available", "require"]

_MEMINFO = Path("/proc/meminfo")
_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")
_FIX = "use fewer rows or columns, or a sparse matrix (.npz, .mtx)"


def available() -> int | None:
    """Bytes of free memory, or None if the system does not tell."""
    try:
        lines = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        try:
            free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (AttributeError, OSError, ValueError):
            return None
    try:
        return min(free, int(_CONTAINER_LIMIT.read_text()))
    except (OSError, ValueError):
        return free


def require(size: float, what: str, limit: int | None = None, fix: str = _FIX) -> None:
    """Raise if something needs more memory than is free.

    Arguments:
        size: bytes needed.
        what: what needs it, for the error.
        limit: bytes that are free; by default the system is asked.
        fix: what to do about it, for the error.

    Example:
        >>> require(4e12, "cells.npy (1,000,000 × 500,000)", limit=16 * 10**9)
        Traceback (most recent call last):
        curvae.errors.CurvaeError: cells.npy (1,000,000 × 500,000) needs about 4,000 GB of memory and 16 GB are free; use fewer rows or columns, or a sparse matrix (.npz, .mtx)
    """  # noqa: E501 - an error is one line
    limit = available() if limit is None else limit
    if limit is not None and size > limit:
        raise CurvaeError(
            f"{what} needs about {_gigabytes(size)} GB of memory and {_gigabytes(limit)} GB are free; {fix}"
        )


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:,.0f}" if size >= 1e10 else f"{size / 1e9:.2g}"
