"""Figures of every map, from the maps and the data alone; each in a file beside the map."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier

from curvae.hierarchy import figures_of_maps
from curvae.training import Embedding

from .cells import Cell
from .data import load

__all__ = ["drawn", "place", "score_all", "scored", "told"]

_TOGETHER = 12  # maps of one data set that are judged at once: the neighbours in the data are found once


def drawn(maps: Path, names: Sequence[str]) -> list[Cell]:
    """All maps that there are, those of one data set and fold one after the other."""
    cells = []
    for path in sorted(maps.glob("*/*/*.npz")):
        method, name, kind, number = path.parts[-3], path.parts[-2], path.stem[:4], int(path.stem[4:])
        if name in names:
            cells.append(Cell(method, name, number, number if kind == "fold" else None))
    return sorted(cells, key=lambda cell: (names.index(cell.data), _fold(cell), cell.method, cell.seed))


def _fold(cell: Cell) -> int:
    return -1 if cell.fold is None else cell.fold


def place(cell: Cell, maps: Path) -> Embedding:
    """Where the map has all rows."""
    with np.load(cell.path(maps)) as stored:
        c = float(stored["c"]) if "c" in stored else 0.0
        return Embedding(np.float64(stored["y"]), np.ones(len(stored["y"])), c)


def scored(cell: Cell, maps: Path) -> dict[str, Any] | None:
    """Return the figures of a map, if they are there."""
    path = cell.path(maps).with_suffix(".json")
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def score_all(data: Path, maps: Path, names: Sequence[str], jobs: int) -> None:
    """Score the maps that have not been scored yet."""
    missing = [cell for cell in drawn(maps, names) if scored(cell, maps) is None]
    groups = [list(group) for _, group in groupby(missing, key=lambda cell: (cell.data, cell.fold))]
    tasks = [group[k : k + _TOGETHER] for group in groups for k in range(0, len(group), _TOGETHER)]
    tasks.sort(key=lambda task: -load(data, task[0].data).x.size)
    joblib.Parallel(n_jobs=jobs)(joblib.delayed(_score)(task, data, maps) for task in tasks)


def _score(cells: Sequence[Cell], data: Path, maps: Path) -> None:
    """Score maps of one data set and fold."""
    known = load(data, cells[0].data)
    labels = known.labels if len(known.labels) else None
    trained = cells[0].trained(known)
    places = [place(cell, maps) for cell in cells]
    held_out = None if trained.all() else ~trained
    each = figures_of_maps(known.x, places, labels=labels, held_out=held_out)
    for cell, figures, placed in zip(cells, each, places, strict=True):
        with np.load(cell.path(maps)) as stored:
            found = figures.to_json()
            if "log_likelihood" in stored:
                found["log_likelihood"] = float(stored["log_likelihood"].mean())
        if held_out is not None and labels is not None:
            right = told(placed, labels, trained)
            found["accuracy_of_trained"] = float(right[trained].mean())
            found["told"] = "".join(map(str, right.astype(int)))
        path = cell.path(maps).with_suffix(".json")
        path.with_suffix(".new").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        path.with_suffix(".new").replace(path)
    print(f"{cells[0].data}, {cells[0].path(maps).stem}: {len(cells)} maps scored", flush=True)


def told(placed: Embedding, labels: np.ndarray, trained: np.ndarray) -> np.ndarray:
    """Whether the 5 nearest training rows on the map tell the label of a row; those of training rows in five folds."""
    teller = KNeighborsClassifier(5, metric="precomputed")
    distances, own = placed.distances()[:, trained], labels[trained]
    among, found = distances[trained], np.empty_like(labels)
    found[trained] = cross_val_predict(teller, among, own, cv=KFold(5, shuffle=True, random_state=0))
    found[~trained] = teller.fit(among, own).predict(distances[~trained])
    return found == labels
