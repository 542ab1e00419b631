"""What is computed: one map a method, data set and seed, each in a file of its own, so that it goes on where it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .data import FOLDS, Data, save

__all__ = ["SEEDS", "Cell", "compute", "whole_and_folds"]

SEEDS = 5


@dataclass(frozen=True)
class Cell:
    """A map: of all rows with this seed, or of all but those of one fold, in which these are placed afterwards."""

    method: str
    data: str
    seed: int
    fold: int | None = None

    def path(self, folder: Path) -> Path:
        part = f"seed{self.seed}" if self.fold is None else f"fold{self.fold}"
        return folder / self.method / self.data / f"{part}.npz"

    def trained(self, data: Data) -> np.ndarray:
        """Which rows the map is made of."""
        return np.ones(len(data.x), dtype=bool) if self.fold is None else data.fold != self.fold


def whole_and_folds(method: str, name: str, seeds: Sequence[int], places_others: bool) -> Iterator[Cell]:
    """Yield the maps of a data set by a method: one a seed, and one a fold if the method can place other rows."""
    for seed in seeds:
        yield Cell(method, name, seed)
    if places_others:
        for fold in range(FOLDS):
            yield Cell(method, name, fold, fold)


def compute(cell: Cell, data: Data, folder: Path, draw: Callable[[Cell, Data], dict[str, np.ndarray]]) -> None:
    """Draw a map and store it with the CPU seconds that it took, of all threads; nothing if it is there."""
    path = cell.path(folder)
    if path.exists():
        return
    start = time.process_time()
    found = draw(cell, data)
    seconds = time.process_time() - start
    save(path, seconds=np.array(seconds), **found)
    print(f"{cell.method} {cell.data} {path.stem}: {seconds:.1f} s", flush=True)
