"""Maps by Curvae, each with its defaults in two dimensions, and Poincaré maps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import joblib
import numpy as np
import torch

from curvae.training import Config, Fitted, embed, fit_many
from curvae.training.fitted import likelihoods

from ..poincare_maps import poincare_map
from .cells import Cell, compute, whole_and_folds
from .data import Data, load, save

__all__ = ["METHODS", "WIDE", "draw_all", "fit_cells"]

# c·σ0² = 1 in the curved ones
SETTINGS = {
    "likelihood": {"curvature": 1.0, "neighbours": "off"},
    "term": {"curvature": 1.0, "neighbours": "both"},
    "flat_term": {"curvature": 0.0, "neighbours": "both"},
}
METHODS = (*SETTINGS, "poincare_maps")
_MOST_ROWS = 1000  # of a Poincaré map, which takes time and memory with their square
WIDE = 256  # columns from which on products of matrices take most of the time, and stacks save none
_SAMPLES = 500  # of the likelihood of a row that was held out


def draw_all(
    data: Path,
    maps: Path,
    names: Sequence[str],
    methods: Sequence[str],
    seeds: int,
    jobs: int,
    stack: int,
    folds: bool,
    device: str,
) -> None:
    """Draw what is not there yet, large data sets first, in each process one map or a stack of one kind.

    Only maps that are drawn alone say how long they took.
    """
    sizes = {name: load(data, name).x.shape for name in names}
    cells = [
        cell
        for name in sorted(names, key=lambda name: -np.prod(sizes[name]))
        for method in methods
        if method in SETTINGS or sizes[name][0] <= _MOST_ROWS
        for cell in whole_and_folds(method, name, range(seeds), folds and method in SETTINGS)
        if not cell.path(maps).exists()
    ]
    tasks = []
    for (name, method, _), group in groupby(cells, lambda cell: (cell.data, cell.method, cell.fold is None)):
        alike = list(group)
        step = stack if method in SETTINGS and sizes[name][1] < WIDE else 1
        tasks += [alike[k : k + step] for k in range(0, len(alike), step)]
    joblib.Parallel(n_jobs=jobs)(joblib.delayed(_draw)(task, data, maps, device) for task in tasks)


def _draw(cells: Sequence[Cell], data: Path, maps: Path, device: str) -> None:
    torch.set_num_threads(1)
    known = load(data, cells[0].data)
    if cells[0].method == "poincare_maps":
        compute(cells[0], known, maps, _poincare_map)
        return
    start = time.process_time()
    fitted = fit_cells(cells, known, device)
    seconds = (time.process_time() - start) / len(cells)
    for cell, one in zip(cells, fitted, strict=True):
        start = time.process_time()
        found = _placed(one, known)
        if len(cells) == 1:
            found["seconds"] = np.array(seconds + time.process_time() - start)
        save(cell.path(maps), **found, **_likelihood(one, cell, known))
        print(
            f"{cell.method} {cell.data} {cell.path(maps).stem}: {seconds:.1f} s, {len(one.history)} epochs", flush=True
        )


def fit_cells(cells: Sequence[Cell], data: Data, device: str) -> list[Fitted]:
    """Return the models of some maps, trained at once."""
    configs = [
        Config(likelihood=data.likelihood, prior_scale=1.0, seed=cell.seed, **SETTINGS[cell.method]) for cell in cells
    ]
    fitted = fit_many(configs, [np.float64(data.x[cell.trained(data)]) for cell in cells], device=device)
    for one in fitted:
        if one.failure is not None:
            raise RuntimeError(one.failure)
    return fitted


def _placed(fitted: Fitted, data: Data) -> dict[str, np.ndarray]:
    """Space parts of all rows."""
    placed = embed(fitted, np.float64(data.x))
    return {"y": placed.space, "c": np.array(placed.c)}


def _likelihood(fitted: Fitted, cell: Cell, data: Data) -> dict[str, np.ndarray]:
    """Of the rows that were held out, if some were."""
    trained = cell.trained(data)
    if trained.all():
        return {}
    found = likelihoods(fitted, np.float64(data.x[~trained]), samples=_SAMPLES)
    return {"log_likelihood": found.log_prob + found.log_jacobian}


def _poincare_map(cell: Cell, data: Data) -> dict[str, np.ndarray]:
    return {"y": poincare_map(np.float64(data.x), cell.seed), "c": np.array(1.0)}
