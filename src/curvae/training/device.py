"""Where to compute, and with how many threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..errors import CurvaeError
from ..geometry.checks import has_float64

__all__ = ["choose_device", "few_threads"]


def choose_device(device: str) -> torch.device:
    """ "auto" is CUDA where there is one, else the CPU."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except RuntimeError:
        found = None
    if found is not None and not has_float64(found.type):
        raise CurvaeError(
            f"device {device} has no float64, which the geometry of curved spaces is computed in; use device cpu"
        )
    if found is None or found.type not in ("cpu", "cuda"):
        raise CurvaeError(f"device must be auto, cpu or cuda, got {device!r}")
    if found.type == "cuda" and not torch.cuda.is_available():
        raise CurvaeError("device cuda was asked for, but there is none; use device cpu")
    return found


@contextmanager
def few_threads(most: int | None) -> Iterator[None]:
    """At most so many threads of PyTorch for a while; None for as many as there are."""
    before = torch.get_num_threads()
    if most is None or before <= most:
        yield
        return
    torch.set_num_threads(most)
    try:
        yield
    finally:
        torch.set_num_threads(before)
