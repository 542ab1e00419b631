"""Shards of trainings: a list of configurations, trained as stacks and judged by marginal likelihood.

Also a small search for settings, chosen on rows that are kept from the training data, then trained in full and judged.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..maps.embedding import Embedding
from ..models.likelihoods.base import Matrix
from ..training import Config, Fitted, Scaling, Split, build, fit_many
from ..training.evaluate import Likelihoods, active_dimensions, likelihoods_many
from ..training.rows import Rows
from ..training.storage import read_tensors, write_tensors
from .experiment import Shard, Workspace

__all__ = ["ExperimentData", "Search", "Trainings", "configuration", "seeds", "spread_settings", "train"]

# Models whose likelihoods are computed at once: more would not be faster, and take more memory.
_AT_ONCE = 40
# Draws a row for the divergence from the prior.
_DRAWS = 32
_ROWS = 4096
# Rows on which TF32 products are checked against float32 ones.
_CHECKED = 200
_FAR = 1000  # between the seeds of a search and those that are judged


@dataclass(frozen=True)
class ExperimentData:
    """Data of a training: rows with their split, their scaling, and the rows to judge by."""

    x: Matrix
    split: Split
    scaling: Scaling
    test: Matrix


Extra = Callable[[Sequence[Fitted], Sequence[ExperimentData], Workspace], Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class Trainings:
    """What a shard trains.

    Attributes:
        configs: of the trainings.
        samples: importance samples a row for the likelihoods.
        dataset: data for every seed; called once a seed.
        data: what distinguishes the data, for the settings of the shard.
        tf32: compute likelihoods on CUDA with TF32 products; a check against float32 is recorded.
        extra: more figures of every trained model, from the models and their data.
        cache: name under which the trained models are kept.
    """

    configs: Sequence[Config]
    samples: int
    dataset: Callable[[int], ExperimentData]
    data: Mapping[str, Any]
    tf32: bool = False
    extra: Extra | None = None
    cache: str | None = None

    def shard(self, name: str) -> Shard:
        settings = {
            **spread_settings(self.configs),
            "samples": self.samples,
            "data": dict(self.data),
            "tf32_likelihoods": self.tf32,
        }
        return Shard(name, settings, self.run)

    def run(self, workspace: Workspace) -> dict[str, Any]:
        """Figures of every training."""
        datasets = self.datasets()
        began = time.perf_counter()
        fitted = train(self.configs, datasets, workspace, self.cache, again=True)
        trained = time.perf_counter()
        found, gap = self._judge(fitted, datasets, workspace)
        judged = time.perf_counter()
        own = spread_settings(self.configs)["trainings"]
        tests = {id(m): Rows(m.test, m.scaling, workspace.device) for m in datasets}
        more = [{}] * len(fitted) if self.extra is None else self.extra(fitted, datasets, workspace)
        records = [
            {"config": settings, **self._figures(one, tests[id(dataset)], likelihoods), **figures}
            for settings, one, dataset, likelihoods, figures in zip(own, fitted, datasets, found, more, strict=True)
        ]
        seconds = {
            "training": trained - began,
            "likelihoods": judged - trained,
            "other": time.perf_counter() - judged,
        }
        return {"trainings": records, "seconds_by_part": seconds, **({} if gap is None else {"tf32_gap": gap})}

    def datasets(self) -> list[ExperimentData]:
        """Data of every training; those of one seed share it."""
        made = {seed: self.dataset(seed) for seed in dict.fromkeys(config.seed for config in self.configs)}
        return [made[config.seed] for config in self.configs]

    def _judge(
        self, fitted: Sequence[Fitted], datasets: Sequence[ExperimentData], workspace: Workspace
    ) -> tuple[list[Likelihoods], float | None]:
        tests = [dataset.test for dataset in datasets]
        total, done, tell = sum(test.shape[0] for test in tests), 0, workspace.progress("likelihoods")

        def advance(rows: int) -> None:
            nonlocal done
            done += rows
            tell(done, total)

        found: list[Likelihoods] = []
        for start in range(0, len(fitted), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            found += likelihoods_many(fitted[part], tests[part], self.samples, advance=advance, tf32=self.tf32)
        if not (self.tf32 and workspace.device.type == "cuda"):
            return found, None
        few = tests[0][:_CHECKED]
        exact, rough = (likelihoods_many(fitted[:1], [few], self.samples, tf32=tf32)[0].mean for tf32 in (False, True))
        return found, rough - exact

    def _figures(self, fitted: Fitted, test: Rows, likelihoods: Likelihoods) -> dict[str, Any]:
        learned = fitted.config.learn_curvature or fitted.config.learn_prior_scale
        return {
            "nll": -likelihoods.mean,
            "nll_error": float(np.sqrt((likelihoods.error**2).sum()) / len(likelihoods.error)),
            "median_ess": float(np.median(likelihoods.ess)),
            **_posterior(fitted, test),
            "training_elbo": fitted.last["elbo"],
            **({name: fitted.last[name] for name in ("c", "prior_scale")} if learned else {}),
            **({} if fitted.failure is None else {"failure": fitted.failure}),
        }


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


def train(
    configs: Sequence[Config],
    datasets: Sequence[ExperimentData],
    workspace: Workspace,
    cache: str | None = None,
    again: bool = False,
) -> list[Fitted]:
    """Train models; with `cache`, keep them under that name, and unless `again` take those that are there."""
    path = None if cache is None else workspace.cache / f"{cache}.safetensors"
    known = None if again or path is None or not path.exists() else _load(configs, datasets, workspace, path)
    if known is not None:
        return known
    fitted = fit_many(
        configs,
        [dataset.x for dataset in datasets],
        splits=[dataset.split for dataset in datasets],
        scalings=[dataset.scaling for dataset in datasets],
        device=workspace.device,
        jobs=workspace.jobs,
        progress=workspace.progress("training"),
        warn=workspace.reporter.warn,
    )
    if path is not None:
        tensors = {f"{i}.{name}": t for i, one in enumerate(fitted) for name, t in one.model.state_dict().items()}
        write_tensors(path, tensors, {"configs": _text([one.config for one in fitted])})
    return fitted


def _load(
    configs: Sequence[Config],
    datasets: Sequence[ExperimentData],
    workspace: Workspace,
    path: Path,
) -> list[Fitted] | None:
    """Models as they were kept, unless they were trained with other settings."""
    tensors, metadata = read_tensors(path)
    if metadata.get("configs") != _text(configs):
        return None
    fitted = []
    for i, (config, dataset) in enumerate(zip(configs, datasets, strict=True)):
        model, prefix = build(config, dataset.x.shape[1]), f"{i}."
        model.load_state_dict({n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)})
        model.to(workspace.device).eval()
        fitted.append(Fitted(config, model, dataset.scaling, "as asked", dataset.split, []))
    return fitted


def _text(configs: Sequence[Config]) -> str:
    return json.dumps([config.flat() for config in configs])


def _posterior(fitted: Fitted, rows: Rows) -> dict[str, Any]:
    """Where the posteriors of rows lie, and their divergence from the prior.

    The divergence is the mean over rows of log q(z|x) − log p(z), with its Monte Carlo standard error, and the lowest
    mean of any row.
    """
    model = fitted.model
    generator = torch.Generator(model.device).manual_seed(0)
    means, variances, centres = [], [], []
    with torch.no_grad():
        for index in torch.arange(len(rows), device=model.device).split(_ROWS):
            batch = rows.batch(index)
            centres.append(model.encode(batch).loc)
            _, kl = model.draw(batch, model.noise(len(batch), _DRAWS, generator))
            means.append(kl.mean(0))
            variances.append(kl.var(0) / _DRAWS)
        mean, variance, space = torch.cat(means), torch.cat(variances), torch.cat(centres).cpu().numpy()
        _, _, c, scale = model.space.figures()[0]
    embedding = Embedding(space, np.empty(0), c)
    return {
        "kl": float(mean.mean()),
        "kl_error": float(variance.sum().sqrt()) / len(mean),
        "kl_lowest_row": float(mean.min()),
        "active_dimensions": active_dimensions(embedding, scale),
        "mean_radius": float(embedding.radius.mean()),
    }


def spread_settings(configs: Sequence[Config]) -> dict[str, Any]:
    """What all configurations have in common, "config", and what is each one's own, "trainings", as the seed always is.

    Example:
        >>> found = spread_settings([Config(seed=0), Config(seed=1)])
        >>> found["trainings"], found["config"]["dim"]
        ([{'seed': 0}, {'seed': 1}], 2)
    """
    every = [config.flat() for config in configs]
    common = {k: v for k, v in every[0].items() if k != "seed" and all(other[k] == v for other in every)}
    return {"config": common, "trainings": [{k: v for k, v in one.items() if k not in common} for one in every]}


def configuration(common: Mapping[str, Any], own: Mapping[str, Any]) -> Config:
    """One of the configurations that `spread_settings` took apart."""
    return Config.from_json({**common, **own})


def seeds(config: Config, count: int, first: int = 0) -> list[Config]:
    """The configuration with so many seeds."""
    return [replace(config, seed=seed) for seed in range(first, first + count)]
