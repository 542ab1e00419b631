"""Trainings on graphs that are interrupted, and compared."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from curvae.data import EdgeSplit, Graph
from curvae.training import FittedGraph, GraphConfig, fit_graphs

__all__ = ["assert_same_weights", "fitted_after_interruption"]


def assert_same_weights(a: FittedGraph, b: FittedGraph, rtol: float = 0.0) -> None:
    for (name, x), y in zip(a.model.state_dict().items(), b.model.state_dict().values(), strict=True):
        torch.testing.assert_close(x, y, rtol=rtol, atol=rtol, msg=lambda m, name=name: f"{name}: {m}")


def fitted_after_interruption(
    configs: Sequence[GraphConfig], data: Graph, splits: Sequence[EdgeSplit], folder: Path, after: int
) -> list[FittedGraph]:
    """Models whose training was interrupted when progress had been told so many times, and then resumed."""
    seen = itertools.count()

    def interrupt(done: float, total: float) -> None:
        if next(seen) == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_graphs(configs, data, splits=splits, folder=folder, progress=interrupt)
    return fit_graphs(configs, data, splits=splits, folder=folder, resume=True)
