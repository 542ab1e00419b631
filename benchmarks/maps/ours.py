"""Maps by Curvae, each with its defaults in two dimensions, and Poincaré maps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import joblib
import numpy as np
import torch

from curvae.training import Config, embed, fit
from curvae.training.evaluate import likelihoods

from ..poincare_maps import poincare_map
from .cells import Cell, compute, whole_and_folds
from .data import Data, load

__all__ = ["METHODS", "draw_all"]

# c·σ0² = 1 in the curved ones
SETTINGS = {
    "likelihood": {"curvature": 1.0, "neighbours": "off"},
    "term": {"curvature": 1.0, "neighbours": "both"},
    "flat_term": {"curvature": 0.0, "neighbours": "both"},
}
METHODS = (*SETTINGS, "poincare_maps")
_MOST_ROWS = 1000  # of a Poincaré map, which takes time and memory with their square
_SAMPLES = 500  # of the likelihood of a row that was held out


def _ours(cell: Cell, data: Data) -> dict[str, np.ndarray]:
    """Space parts of all rows, and where some were held out their log-likelihood."""
    trained = cell.trained(data)
    x = np.float64(data.x)
    config = Config(likelihood=data.likelihood, prior_scale=1.0, seed=cell.seed, **SETTINGS[cell.method])
    start = time.process_time()
    fitted = fit(config, x[trained])
    placed = embed(fitted, x)
    found = {"seconds": np.array(time.process_time() - start), "y": placed.space, "c": np.array(placed.c)}
    if not trained.all():
        score = likelihoods(fitted, x[~trained], samples=_SAMPLES)
        found["log_likelihood"] = score.log_prob + score.log_jacobian
    return found


def _poincare_map(cell: Cell, data: Data) -> dict[str, np.ndarray]:
    return {"y": poincare_map(np.float64(data.x), cell.seed), "c": np.array(1.0)}


def _draw(cell: Cell, data: Path, maps: Path) -> None:
    torch.set_num_threads(1)
    compute(cell, load(data, cell.data), maps, _poincare_map if cell.method == "poincare_maps" else _ours)


def draw_all(data: Path, maps: Path, names: Sequence[str], methods: Sequence[str], seeds: int, jobs: int) -> None:
    """Draw what is not there yet, each in a process with one thread, large data sets first."""
    sizes = {name: load(data, name).x.shape for name in names}
    cells = [
        cell
        for name in sorted(names, key=lambda name: -np.prod(sizes[name]))
        for method in methods
        if method in SETTINGS or sizes[name][0] <= _MOST_ROWS
        for cell in whole_and_folds(method, name, range(seeds), method in SETTINGS)
        if not cell.path(maps).exists()
    ]
    joblib.Parallel(n_jobs=jobs)(joblib.delayed(_draw)(cell, data, maps) for cell in cells)
