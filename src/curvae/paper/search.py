"""A small search for settings, chosen on rows that are kept from the training data, then trained in full and judged."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..training import Config
from .experiment import Shard, Workspace
from .trainings import ExperimentData, Extra, Trainings, seeds

__all__ = ["Search"]


_FAR = 1000  # between the seeds of the search and those that are judged


@dataclass(frozen=True)
class Search:
    """A family of models: settings to choose from, and how they are chosen and judged.

    Attributes:
        tried: the settings.
        epochs: of the trainings that choose.
        numbers: how many seeds choose, and how many are judged.
        first: the first of the seeds that are judged; those that choose lie far from them.
        trial: data of the trainings that choose, with the rows to choose by as its test rows.
        dataset: data of the trainings that are judged.
        samples: importance samples for choosing and for judging.
        data: what distinguishes the data.
        tf32: as of `Trainings`.
        extra: more figures of the trainings that are judged.
    """

    tried: Sequence[Config]
    epochs: int
    numbers: tuple[int, int]
    first: int
    trial: Callable[[int], ExperimentData]
    dataset: Callable[[int], ExperimentData]
    samples: tuple[int, int]
    data: Mapping[str, Any]
    tf32: bool = False
    extra: Extra | None = None

    def shard(self, name: str) -> Shard:
        settings = {
            "tried": [one.flat() for one in self.tried],
            "epochs_of_the_search": self.epochs,
            "seeds_of_the_search": self.numbers[0],
            "trainings": self.numbers[1],
            "first_seed": self.first,
            "samples_of_the_search": self.samples[0],
            "samples": self.samples[1],
            "data": dict(self.data),
            "tf32_likelihoods": self.tf32,
        }
        return Shard(name, settings, self.run)

    def run(self, workspace: Workspace) -> dict[str, Any]:
        """What was chosen, with the scores of all that was tried, and the figures of the chosen."""
        began = time.perf_counter()
        short = [
            one
            for config in self.tried
            for one in seeds(replace(config, epochs=self.epochs), self.numbers[0], _FAR + self.first)
        ]
        choosing = Trainings(short, self.samples[0], self.trial, self.data, self.tf32)
        found = choosing.run(replace(workspace, task=f"{workspace.task}, search"))
        # A training that failed is never chosen.
        judged = [np.inf if "failure" in record else record["nll"] for record in found["trainings"]]
        scores = np.reshape(judged, (len(self.tried), -1)).mean(1)
        best = int(scores.argmin())
        middle = time.perf_counter()
        chosen = seeds(self.tried[best], self.numbers[1], self.first)
        result = Trainings(chosen, self.samples[1], self.dataset, self.data, self.tf32, self.extra).run(workspace)
        for record in result["trainings"]:
            record["seed"] = record.pop("config")["seed"]
        return {
            "validation_nll": [float(score) for score in scores],
            "chosen": self.tried[best].flat(),
            "trainings": result["trainings"],
            "seconds_of_the_search": middle - began,
            "seconds_of_the_trainings": time.perf_counter() - middle,
        }
