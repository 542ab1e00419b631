"""What a run says while it works, and how long it will take."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from ..training import Config
from .sources import Step

__all__ = ["Forecast", "Reporter", "duration", "likelihood_seconds"]

_SHORT = 2.0  # seconds that are not worth a word

# What work costs, in multiplications of a matrix product, by measurements: of the products of 8 to 900 thousand
# multiplications a row in models of 10 to 2000 columns, on a CPU, and of the shape of MNIST on an H200.
_STEP = {"cpu": 8e7, "cuda": 3e9}  # launching the operations of a step, whatever its size
_DRAW = 8e3  # a draw with its divergence
_ACTIVATION = 200.0  # a hidden value, or an output with its log-likelihood
_BACKWARD = 3.0  # a step over a forward pass


@dataclass(frozen=True)
class Reporter:
    """Receives the messages and the progress of a run; by default it is silent.

    Arguments:
        say, warn: take a message.
        progress: takes the name of a task, the work done, the work in all, and the latest figures.
        command: puts a step into the words of whoever started the run.
        started: what started the run, in the same words.
        resumable: told that the run can be resumed, and the options that are needed for that besides those it has.
    """

    say: Callable[[str], None] = lambda text: None
    warn: Callable[[str], None] = lambda text: None
    progress: Callable[[str, float, float, str], None] = lambda task, done, total, text: None
    command: Callable[[Step], str] = lambda step: " ".join([step.action, *step.arguments])
    started: str = ""
    resumable: Callable[[Mapping[str, Any]], None] = lambda options: None

    def counter(self, task: str, total: int) -> Callable[..., None]:
        """A function to be told how much more was done, 1 by default."""
        done = 0

        def advance(more: int = 1) -> None:
            nonlocal done
            done += more
            self.progress(task, done, total, "")

        return advance

    def tell(self, said: Iterable[str], warned: Iterable[str]) -> None:
        """Several messages and warnings."""
        for text in said:
            self.say(text)
        for text in warned:
            self.warn(text)


class Forecast:
    """Says, once, how long a run will take, unless that is a moment.

    Arguments:
        reporter: that says it.
        what: takes the time.
    """

    def __init__(self, reporter: Reporter, what: str) -> None:
        self._reporter, self._what, self._said = reporter, what, False

    def __call__(self, seconds: float) -> None:
        if not self._said and seconds >= _SHORT:
            self._reporter.say(f"{duration(seconds)} of {self._what}")
        self._said = True


def likelihood_seconds(
    epoch: float,
    config: Config,
    features: int,
    train: int,
    rows: int,
    samples: int,
    models: int = 1,
    device: torch.device | str = "cpu",
) -> float:
    """Time of the likelihoods of rows, from that of the training.

    Arguments:
        epoch: seconds for one epoch of the model.
        config: of the model.
        features: of a row.
        train: training rows.
        rows: whose likelihood is measured.
        samples: importance samples of each.
        models: that were trained together.
        device: of the training.
    """
    size, steps = min(config.batch_size, train), math.ceil(train / config.batch_size)
    decoding = _DRAW + _network((config.dim, *config.layers[::-1], features))
    encoding = _network((features, *config.layers, config.dim))
    launching = _STEP[torch.device(device).type] / models
    step = launching + _BACKWARD * size * (encoding + config.samples * decoding)
    return epoch / steps * rows * samples * decoding / step


def _network(sizes: Sequence[int]) -> float:
    """Cost of a row in dense layers of these sizes."""
    return sum(a * b for a, b in pairwise(sizes)) + _ACTIVATION * sum(sizes[1:])


def duration(seconds: float) -> str:
    """A time for people.

    Example:
        >>> duration(0.2), duration(3000), duration(8000)
        ('about 1 s', 'about 50 min', 'about 2.2 h')
    """
    if seconds < 90:
        return f"about {max(seconds, 1):.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"
