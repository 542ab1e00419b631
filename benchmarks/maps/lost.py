"""What rows lose that a map was not made of: how often their label is told, each row held out once by every seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch

from curvae.training import embed
from curvae.training.comparison import Paired

from .cells import Cell
from .data import FOLDS, load, save
from .ours import WIDE, fit_cells
from .score import told

__all__ = ["lost", "measure", "summary"]

FOLDER = "lost"
SETS = ("pbmc68k_reduced", "digits", "mnist")
METHOD = "term"


def lost(told: np.ndarray, trained: np.ndarray) -> np.ndarray:
    """How much less often the label of every row is told where it was held out than where it was trained with.

    Arguments:
        told: whether it is, in each of some maps, (maps, rows).
        trained: whether the map was made of it, likewise; of every row one was not.
    """
    return (told & trained).sum(0) / trained.sum(0) - (told & ~trained).sum(0)


def _path(cell: Cell, maps: Path) -> Path:
    return maps / FOLDER / f"{cell.data}-{cell.seed}.npz"


def measure(data: Path, maps: Path, names: Sequence[str], seeds: int, jobs: int, device: str) -> None:
    """Whether labels are told, to a file for every seed and fold that has none yet."""
    tasks = []
    for name in (name for name in SETS if name in names):
        step = 1 if load(data, name).x.shape[1] >= WIDE else FOLDS
        cells = [Cell(METHOD, name, number, number % FOLDS) for number in range(seeds * FOLDS)]
        missing = [cell for cell in cells if not _path(cell, maps).exists()]
        tasks += [missing[k : k + step] for k in range(0, len(missing), step)]
    joblib.Parallel(n_jobs=jobs)(joblib.delayed(_measure)(task, data, maps, device) for task in tasks)


def _measure(cells: Sequence[Cell], data: Path, maps: Path, device: str) -> None:
    torch.set_num_threads(1)
    known = load(data, cells[0].data)
    for cell, one in zip(cells, fit_cells(cells, known, device), strict=True):
        trained = cell.trained(known)
        save(_path(cell, maps), told=told(embed(one, np.float64(known.x)), known.labels, trained), trained=trained)
        print(f"{cell.data}, seed {cell.seed // FOLDS}, fold {cell.fold}", flush=True)


def summary(maps: Path) -> dict[str, Any]:
    """For every data set the mean of what rows lose and half of its 95 % interval, which has two parts: over rows, of
    their means over seeds, and over seeds, of their means over rows. A seed counts if all of its folds are there."""
    each = {name: _by_seed(maps, name) for name in SETS}
    return {name: _one(np.array(some)) for name, some in each.items() if len(some) > 1}


def _by_seed(maps: Path, name: str) -> list[np.ndarray]:
    """Measure what every row loses, for each seed."""
    paths = {int(path.stem.rpartition("-")[2]): path for path in (maps / FOLDER).glob(f"{name}-*.npz")}
    found = []
    for first in range(0, max(paths, default=-1) + 1, FOLDS):
        numbers = range(first, first + FOLDS)
        if paths.keys() >= set(numbers):
            stored = [np.load(paths[number]) for number in numbers]
            found.append(lost(*(np.array([one[part] for one in stored]) for part in ("told", "trained"))))
    return found


def _one(each: np.ndarray) -> dict[str, Any]:
    """From what every row loses with every seed, (seeds, rows)."""
    rows, seeds = Paired(each.mean(0).tolist()).interval, Paired(each.mean(1).tolist()).interval
    return {
        "mean": float(each.mean()),
        "interval": float(np.hypot(rows, seeds)),
        "over_rows": rows,
        "over_seeds": seeds,
        "by_seed": each.mean(1).tolist(),
    }
