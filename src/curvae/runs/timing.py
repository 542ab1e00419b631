"""How long a training will take."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from ..data import Arrays, Dataset, Graph
from ..errors import CurvaeError
from ..training import Config, Fitted, fit_many
from ..training.evaluate import likelihoods
from ..training.graphs import GraphConfig, fit_graph

__all__ = ["duration", "graph_seconds", "training_seconds"]

_STEPS = 5  # of a model that is thrown away
_OUTPUTS = 1 << 22  # numbers that its decoder computes for a few likelihoods


def training_seconds(
    config: Config,
    data: Dataset,
    train: NDArray[np.int64],
    device: torch.device | str = "cpu",
    models: int = 1,
    jobs: int = 1,
    scored: int = 0,
    samples: int = 500,
) -> float:
    """Time of so many trainings on the rows `train`, from a few steps, and of the likelihoods after them.

    Each of the `jobs` measures the likelihood of `scored` rows, with so many importance samples.
    NaN where these fail, for the training will say why, and on CUDA, where the first steps tell nothing.
    """
    if torch.device(device).type == "cuda":
        return math.nan
    short = replace(config, epochs=1, patience=None, validation=0.0)
    stack = [replace(short, seed=i) for i in range(math.ceil(models / jobs))]
    few = data.arrays.take(train[: _STEPS * config.batch_size])
    try:
        fit_many(stack, few.take(slice(config.batch_size)))  # the first step is slower
        began = time.perf_counter()
        fitted = fit_many(stack, few)[0]
        seconds = time.perf_counter() - began
    except CurvaeError:
        return math.nan
    steps = [math.ceil(rows / config.batch_size) for rows in (len(train), len(few))]
    return seconds * steps[0] / steps[1] * config.epochs_for(len(train)) + _likelihood_seconds(
        fitted, few, scored, samples
    )


def _likelihood_seconds(fitted: Fitted, few: Arrays, rows: int, samples: int) -> float:
    """Time of the likelihoods of so many rows, from a few of them."""
    if not rows:
        return 0.0
    few = few.take(slice(max(1, _OUTPUTS // (samples * few.features))))
    likelihoods(fitted, few.take(slice(1)), samples)  # the first call is slower
    began = time.perf_counter()
    likelihoods(fitted, few, samples)
    return (time.perf_counter() - began) / len(few) * rows


def graph_seconds(config: GraphConfig, graph: Graph, device: torch.device | str = "cpu", models: int = 1) -> float:
    """Time of so many trainings on a graph, one after the other, from a few steps; NaN as above."""
    if torch.device(device).type == "cuda":
        return math.nan
    try:
        few = fit_graph(replace(config, epochs=3), graph)
    except CurvaeError:
        return math.nan
    return min(record["seconds"] for record in few.history) * config.epochs * models


def duration(seconds: float) -> str:
    """A time for people; nothing where it is not known.

    Example:
        >>> duration(0.2), duration(3000), duration(8000), duration(math.nan)
        ('about 1 s', 'about 50 min', 'about 2.2 h', '')
    """
    if math.isnan(seconds):
        return ""
    if seconds < 90:
        return f"about {max(seconds, 1):.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"
