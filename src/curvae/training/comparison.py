"""Is a curved latent space better for these data? An answer with its uncertainty.

Each repeat has its own seed and its own split. On validation rows it chooses one curvature c > 0; on test rows, which
took no part in that, it compares the chosen model with the one of curvature 0. The verdict is a t-test on the
differences with the variance corrected for training sets that overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from ..data import Arrays
from ..data.missing import has_missing
from ..errors import CurvaeError
from ..models import Layout
from .build import require_buildable
from .config import Config
from .effects import Effects
from .evaluate import Embedding, Stability, embed, likelihoods_many, stability
from .fitting import RowsProblem, planned
from .pace import Estimate
from .paired import Outcome, Paired, by_split, curved_values
from .problems import Listener
from .splits import Split, random_split
from .stacks import train_stack
from .tasks import Data, Task, resolve, scaling_for
from .workers import processes, seen_by_workers, spread

__all__ = ["SAMPLES", "Comparison", "Repeat", "compare", "plan"]

SAMPLES = 500
"""importance samples a row, by default"""

_VALIDATION, _TEST = 0.1, 0.2


@dataclass(frozen=True)
class Repeat:
    """Mean log-likelihoods of one split, by curvature."""

    seed: int
    validation: dict[float, float]
    test: dict[float, float]
    pca: float | None
    """of probabilistic PCA of the same dimension on the test rows, for Gaussian likelihoods"""

    @property
    def chosen(self) -> float:
        """The c > 0 that is best on the validation rows."""
        return max((c for c in self.validation if c > 0), key=self.validation.__getitem__)

    @property
    def difference(self) -> float:
        """What the chosen curvature gains on test rows, in nats a row."""
        return self.test[self.chosen] - self.test[0.0]


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`."""

    repeats: list[Repeat]
    ratio: float
    """test rows over training rows, which corrects the variance"""
    stability: dict[float, Stability | None]
    embeddings: dict[float, Embedding]
    """of the first repeat, all rows"""
    config: Config
    reason: str

    @property
    def paired(self) -> Paired:
        """The differences on test rows, nats a row."""
        return Paired([r.difference for r in self.repeats], self.ratio)

    @property
    def gain(self) -> float:
        """Mean difference on test rows, nats a row; positive when curved is better."""
        return self.paired.mean

    @property
    def interval(self) -> float:
        """Half-width of the 95 % interval of `gain`."""
        return self.paired.interval

    @property
    def p_value(self) -> float:
        return self.paired.p_value

    @property
    def outcome(self) -> Outcome:
        return self.paired.outcome

    @property
    def verdict(self) -> str:
        """The answer in one sentence."""
        return self.paired.verdict("nats a row", self.best)

    @property
    def best(self) -> float:
        """The c > 0 with the best mean on validation rows."""
        curved = [c for c in self.repeats[0].validation if c > 0]
        return max(curved, key=lambda c: float(np.mean([r.validation[c] for r in self.repeats])))

    def to_json(self) -> dict[str, Any]:
        """Every figure, as JSON values."""
        return {
            "outcome": self.outcome,
            "verdict": self.verdict,
            "gain": self.gain,
            "interval": self.interval,
            "p_value": self.p_value,
            "best_curvature": self.best,
            "likelihood": self.config.likelihood,
            "likelihood_reason": self.reason,
            "repeats": [
                {
                    "seed": r.seed,
                    "chosen": r.chosen,
                    "difference": r.difference,
                    "validation": {str(c): v for c, v in r.validation.items()},
                    "test": {str(c): v for c, v in r.test.items()},
                    "pca": r.pca,
                }
                for r in self.repeats
            ],
            "stability": {str(c): None if s is None else asdict(s) for c, s in self.stability.items()},
        }


def compare(
    config: Config,
    x: Data,
    curvatures: Sequence[float] = (0.3, 1.0),
    repeats: int = 5,
    *,
    blocks: tuple[int, ...] = (),
    groups: NDArray[Any] | None = None,
    samples: int = SAMPLES,
    device: str = "auto",
    jobs: int | None = None,
    scheduler: str | None = None,
    folder: Path | None = None,
    resume: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    warn: Callable[[str], None] = lambda text: None,
    estimate: Callable[[Estimate], None] = lambda estimate: None,
) -> Comparison:
    """Train curvature 0 and each of `curvatures` on `repeats` splits of the data, and judge on rows kept apart.

    Every model is the one of the epoch that was best on validation rows, so that none is judged by its overfitting.
    Models of one architecture are trained together (`fit_many`). A split of which a model failed is left out.

    Arguments:
        config: settings shared by all models; its curvature is ignored, its seed is the first repeat's.
        x: rows in original units, as of `fit`.
        curvatures: values of c > 0 to choose from.
        repeats: splits and seeds, at least 3.
        blocks: of a plain matrix, as of `fit`.
        groups: rows of one group stay together in a split.
        samples: importance samples a row for the likelihoods.
        device: "auto" (CUDA where there is one), "cpu" or "cuda".
        jobs: processes; by default one a core, with one thread each, and a single one on CUDA.
        scheduler: address of a Dask cluster to train on instead.
        folder, resume: keep checkpoints, and go on from them; as of `fit_many`. What was trained is not trained again.
        progress: told the epochs done and to do, counted over all models.
        warn: told of models that failed.
        estimate: told how long the trainings will take, once, when a second of steps has shown it.
    """
    data = Arrays.of(x, blocks)
    values, splits = plan(config, data, curvatures, repeats, groups)
    # A training that goes on to the end still keeps the weights that were best on its validation rows.
    patience = config.patience or config.epochs_for(len(splits[0].train))
    config = replace(config, patience=patience, validation=_VALIDATION)
    cells = [(i, c) for i in range(repeats) for c in values]
    configs = [replace(config, curvature=c, seed=config.seed + i) for i, c in cells]
    folder = seen_by_workers(folder, jobs, scheduler)
    tasks, sources, known = planned(configs, data, (), [splits[i] for i, _ in cells], None, folder, resume)
    results = spread(
        tasks,
        partial(_judged, RowsProblem(sources, device), samples=samples, folder=folder, resume=resume),
        jobs=jobs or processes(device),
        scheduler=scheduler,
        begun=known,
        progress=progress,
        warn=warn,
        estimate=estimate,
    )
    kept = by_split(results, values, config.seed, warn)
    found = [
        Repeat(
            config.seed + i,
            {c: r.validation for c, r in mine.items()},
            {c: r.test for c, r in mine.items()},
            _pca(data, splits[i], tasks[0].config, tasks[0].layout),
        )
        for i, mine in kept.items()
    ]
    maps = {c: [mine[c].embedding for mine in kept.values()] for c in values}
    ratio = float(np.mean([len(s.test) / len(s.train) for s in splits]))
    return Comparison(
        found,
        ratio,
        {c: stability(m) for c, m in maps.items()},
        {c: m[0] for c, m in maps.items()},
        tasks[0].config,
        tasks[0].reason,
    )


def plan(
    config: Config,
    x: Data,
    curvatures: Sequence[float],
    repeats: int,
    groups: NDArray[Any] | None = None,
) -> tuple[list[float], list[Split]]:
    """Values of c, 0 first, and the split of each repeat; raises for what cannot be compared."""
    data = Arrays.of(x)
    values = curved_values(curvatures, repeats, config.learn_curvature)
    splits = [random_split(len(data), _VALIDATION, _TEST, config.seed + i, groups) for i in range(repeats)]
    if any(min(len(s.validation), len(s.test)) < 2 for s in splits):
        raise CurvaeError(f"{len(data)} rows are too few for a comparison; at least 20 rows (or groups) are needed")
    resolved, layout, _ = resolve(config, data, splits[0])
    for c in values:
        require_buildable(replace(resolved, curvature=c), layout)
    return values, splits


@dataclass(frozen=True)
class _Result:
    validation: float
    test: float
    embedding: Embedding
    failure: str | None


def _judged(
    problem: RowsProblem, tasks: Sequence[Task], listener: Listener, samples: int, folder: Path | None, resume: bool
) -> list[_Result]:
    """A stack, trained and judged where it was trained: only figures and maps travel."""
    fitted = train_stack(problem, tasks, listener, folder=folder, resume=resume)
    data = [problem.sources[task.source] for task in tasks]
    validation, test = (
        likelihoods_many(
            fitted, [x.take(getattr(task.split, part)) for x, task in zip(data, tasks, strict=True)], samples
        )
        for part in ("validation", "test")
    )
    return [
        _Result(v.mean, t.mean, embed(one, x), one.failure)
        for v, t, one, x in zip(validation, test, fitted, data, strict=True)
    ]


def _pca(data: Arrays, split: Split, config: Config, layout: Layout) -> float | None:
    """Held-out log-likelihood of probabilistic PCA, in the same units, after what is linear in the covariates."""
    x = data.x
    if not config.gaussian or not isinstance(x, np.ndarray) or config.dim >= min(x.shape[1], len(split.train)):
        return None
    if has_missing(x):
        return None
    scaled = scaling_for(config, layout, data, split).apply(x)
    if data.context is not None:
        scaled = Effects.of(scaled[split.train], data.context[split.train]).removed(scaled, data.context)
    return float(PCA(config.dim).fit(scaled[split.train]).score(scaled[split.test]))
