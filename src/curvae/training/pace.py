"""How long trainings will take, from their first steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Clock", "Estimate"]

_LEAST = 1.0  # seconds of steps that an estimate comes from


@dataclass(frozen=True)
class Estimate:
    """How long trainings will take, in seconds.

    Arguments:
        left: until the last has ended, if none stops early.
        epoch: for one epoch of one model; several processes share the work.
    """

    left: float
    epoch: float


class Clock:
    """Tells once how long trainings will take, when a second of steps has shown it.

    Arguments:
        epochs: of each model.
        tell: told the estimate; never, where the trainings are too short for one.
    """

    def __init__(self, epochs: Sequence[int], tell: Callable[[Estimate], None]) -> None:
        self._epochs, self._tell = np.array(epochs, np.float64), tell
        self._first, self._last = np.zeros(len(epochs)), np.zeros(len(epochs))
        self._began: float | None = None
        self._told = False

    def reached(self, places: Sequence[int] | NDArray[np.int64], epochs: Any) -> None:
        """Models, by their places in the list, have been trained for so many epochs, whole or not.

        What is first heard of a model counts as its start: its first step is slower than others, and a training that is
        resumed has epochs behind it.
        """
        if self._told:
            return
        now, where = time.monotonic(), np.asarray(places, np.int64)
        began = self._began = now if self._began is None else self._began
        self._first[where] = np.where(self._last[where] > 0, self._first[where], epochs)
        self._last[where] = np.maximum(self._last[where], epochs)
        done = (self._last - self._first).sum()
        if now - began >= _LEAST and done > 0:
            self._told = True
            epoch = float((now - began) / done)
            self._tell(Estimate(float((self._epochs - self._last).sum()) * epoch, epoch))
