"""Check that data fits in memory before any of it is allocated."""

from __future__ import annotations

import ctypes
import os
import re
from contextlib import suppress
from pathlib import Path

from ..errors import CurvaeError, check

__all__ = ["available", "bound", "require", "return_freed", "size_text"]

_LEAST = 10**6
_RETURNED, _SPARE = 1 << 23, 1 << 25  # bytes of arrays that are returned when freed, and of free ones that are kept
_UNKNOWN = 8 * 10**9  # of a machine that does not tell


def available() -> int | None:
    """Return the bytes of free memory, or None if the system does not tell."""
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return _installed()
    return min(free, _container() or free)


def bound(asked: str | int | None) -> int:
    """Return the bytes that data may take: as asked for, by default a quarter of the memory of the machine.

    Example:
        >>> bound("1.5 GB"), bound("800mb"), bound(10**9)
        (1500000000, 800000000, 1000000000)
    """
    if asked is None:
        return (_installed() or _UNKNOWN) // 4
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)b?\s*", str(asked), re.IGNORECASE)
    size = 0 if found is None else int(float(found[1]) * 1000 ** " kmgt".index(found[2].lower() or " "))
    check(size >= _LEAST, f'memory is {asked!r}; give a size of at least {size_text(_LEAST)}, such as "2GB"')
    return size


def size_text(size: float) -> str:
    """Write a size as `bound` takes it.

    Example:
        >>> size_text(5.9e9), size_text(64_000_000)
        ('5.9GB', '64MB')
    """
    unit = min(3, (len(str(int(size))) - 1) // 3)
    return f"{size / 1000**unit:.3g}{('', 'k', 'M', 'G')[unit]}B"


def _installed() -> int | None:
    """Return the bytes of memory of the machine, or of the container."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
    return min(total, _container() or total)


def _container() -> int | None:
    """Return the bytes that the container may take, or None if there is no limit."""
    try:
        return int(Path("/sys/fs/cgroup/memory.max").read_text())
    except (OSError, ValueError):
        return None


def require(
    size: float,
    what: str,
    limit: int | None = None,
    fix: str = "use fewer rows or columns, or a sparse matrix (.npz, .mtx)",
) -> None:
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
        needed, free = (f"{n / 1e9:,.0f}" if n >= 1e10 else f"{n / 1e9:.2g}" for n in (size, limit))
        raise CurvaeError(f"{what} needs about {needed} GB of memory and {free} GB are free; {fix}")


def return_freed() -> None:
    """Return freed memory to the system, and from now on large arrays when they are freed, where the C library would
    keep both (glibc).

    Without that, what lies between them makes a process several times as large as its arrays.
    """
    with suppress(OSError, AttributeError, TypeError):
        library = ctypes.CDLL(None)
        for parameter, size in ((-3, _RETURNED), (-1, _SPARE)):  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
            library.mallopt(parameter, size)
        library.malloc_trim(0)
