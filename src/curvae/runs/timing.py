"""How long a training will take."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import CurvaeError
from ..training import Config, fit
from ..training.rows import Matrix

__all__ = ["duration", "training_seconds"]

_STEPS = 5  # of a model that is thrown away


def training_seconds(
    config: Config,
    x: Matrix,
    train: NDArray[np.int64],
    blocks: tuple[int, ...] = (),
    device: torch.device | str = "cpu",
) -> float:
    """Time of a training on the rows `train`, from a few steps; NaN where these fail: the training will say why."""
    short = replace(config, epochs=1, patience=None, validation=0.0)
    few = x[train[: _STEPS * config.batch_size]]
    try:
        fit(short, few[: config.batch_size], blocks=blocks, device=device)  # the first step is slower
        began = time.perf_counter()
        fit(short, few, blocks=blocks, device=device)
    except CurvaeError:
        return math.nan
    seconds = time.perf_counter() - began
    steps = [math.ceil(rows / config.batch_size) for rows in (len(train), few.shape[0])]
    return seconds * steps[0] / steps[1] * config.epochs_for(len(train))


def duration(seconds: float) -> str:
    """A time for people.

    Example:
        >>> duration(0.2), duration(3000), duration(8000)
        ('about 1 s', 'about 50 min', 'about 2.2 h')
    """
    if math.isnan(seconds):
        return "an unknown time"
    if seconds < 90:
        return f"about {max(seconds, 1):.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"
