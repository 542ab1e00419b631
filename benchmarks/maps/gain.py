"""What the neighbourhood term costs in likelihood, or gains: every row held out once, five times."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch

from curvae.training.evaluate import likelihoods_many
from curvae.training.paired import Paired, mean_interval

from .cells import Cell
from .data import FOLDS, load
from .ours import fit_cells

__all__ = ["NAME", "measure", "summary"]

NAME = "gain.json"
DATA = "krumsiek11"
COMPARED = ("likelihood", "term")
_SAMPLES = 500  # of the likelihood of a row


def measure(data: Path, maps: Path, seeds: int, jobs: int, device: str) -> None:
    """Mean log-likelihoods of held-out rows for each method, (seeds, folds), to a file; nothing if it is there."""
    if (maps / NAME).exists():
        return
    tasks = list(product(COMPARED, range(seeds)))
    each = joblib.Parallel(n_jobs=jobs)(joblib.delayed(_folds)(data, *task, device) for task in tasks)
    found: dict[str, list[list[float]]] = {method: [] for method in COMPARED}
    for (method, _), values in zip(tasks, each, strict=True):
        found[method].append(values)
    maps.mkdir(parents=True, exist_ok=True)
    (maps / NAME).write_text(json.dumps(found) + "\n", encoding="utf-8")


def _folds(data: Path, method: str, seed: int, device: str) -> list[float]:
    torch.set_num_threads(1)
    known = load(data, DATA)
    cells = [Cell(method, DATA, seed * FOLDS + fold, fold) for fold in range(FOLDS)]
    held_out = [np.float64(known.x[~cell.trained(known)]) for cell in cells]
    found = likelihoods_many(fit_cells(cells, known, device), held_out, samples=_SAMPLES)
    return [float((one.log_prob + one.log_jacobian).mean()) for one in found]


def summary(maps: Path) -> dict[str, Any] | None:
    """Nats a row that the term gains, each with half of its 95 % interval: over seeds, of the mean over folds, and over
    all pairs of a seed and a fold, of which the training rows of two folds overlap (Nadeau and Bengio, 2003)."""
    if not (maps / NAME).exists():
        return None
    known = json.loads((maps / NAME).read_text(encoding="utf-8"))
    gains = np.array(known["term"]) - np.array(known["likelihood"])
    return {
        "data": DATA,
        "gained": gains.tolist(),
        "over_seeds": mean_interval(gains.mean(1).tolist()),
        "over_pairs": _corrected(gains.ravel().tolist()),
    }


def _corrected(gains: Sequence[float]) -> tuple[float, float]:
    paired = Paired(list(gains), ratio=1 / (FOLDS - 1))
    return paired.mean, paired.interval
