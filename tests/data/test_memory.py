"""Data that do not fit in memory are refused before they are read."""

from __future__ import annotations

import pytest

from curvae.data import memory
from curvae.errors import CurvaeError


def test_memory() -> None:
    free = memory.available()
    assert free is not None and free > 10**7
    memory.require(10**6, "this")
    memory.require(10**12, "this", limit=10**12)
    with pytest.raises(CurvaeError, match="this needs about 0.01 GB of memory and 0.001 GB are free"):
        memory.require(10**7, "this", limit=10**6)
