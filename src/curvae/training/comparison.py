"""Is a curved latent space better for these data? An answer with its uncertainty.

Each repeat has its own seed and its own split of the rows, or of the edges of a graph. On validation data it chooses
one curvature c > 0; on test data, which took no part in that, it compares the chosen model with the one of curvature 0.
The verdict is a t-test on the differences with the variance corrected for training sets that overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..data import Arrays
from ..data.missing import has_missing
from ..errors import CurvaeError
from ..models import Layout
from .build import require_buildable
from .config import Config
from .effects import Effects
from .evaluate import Embedding, Stability, stability
from .fitting import train_many
from .paired import Outcome, Paired, by_split, curved_values
from .problems import Judged, Listener, Problem, Task, Warn
from .rows import Data
from .rows_problem import SAMPLES, plan_rows, resolve, scaling_for
from .splits import Split, random_split
from .stacks import train_stack
from .workers import default_jobs
from .yardsticks import Repeat, Yardstick, best_curvature

__all__ = ["FEWEST_COMPARED", "SAMPLES", "Comparison", "Repeat", "compare", "compare_splits", "plan"]

_VALIDATION, _TEST = 0.1, 0.2
FEWEST_COMPARED = 20
"""rows, or groups of rows, that a comparison needs"""

Kind = TypeVar("Kind", bound="Comparison")
TaskT = TypeVar("TaskT", bound=Task)


@dataclass(frozen=True)
class Comparison:
    """The result of `compare` or `compare_graph`.

    Arguments:
        repeats: scores of every split.
        ratio: test data over training data, which corrects the variance.
        stability: how alike the maps of the repeats are, by curvature.
        maps: of every repeat, all data, by curvature.
        config: settings.
        reason: why this likelihood; empty for graphs, which have none.
        yardsticks: what curvature gains by other measures.
        structure: of the data as a diagnosis calls it: "tree-like", "clustered" or "flat"; empty where it is not known.

    Attributes:
        unit, factor: of differences, and how many make one of the scores.
        gain_name: of the mean difference, in JSON.
    """

    unit: ClassVar[str] = "nats a row"
    factor: ClassVar[float] = 1.0
    gain_name: ClassVar[str] = "gain"

    repeats: list[Repeat]
    ratio: float
    stability: dict[float, Stability | None]
    maps: dict[float, list[Embedding]]
    config: Any
    reason: str = ""
    yardsticks: tuple[Yardstick, ...] = ()
    structure: str = ""

    @property
    def embeddings(self) -> dict[float, Embedding]:
        """Of the first repeat, by curvature."""
        return {c: maps[0] for c, maps in self.maps.items()}

    @property
    def paired(self) -> Paired:
        """The differences on test data."""
        return Paired([r.difference for r in self.repeats], self.ratio)

    @property
    def gain(self) -> float:
        """Mean difference on test data; positive when curved is better."""
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
        """The answer: what the likelihood says, what other yardsticks say, and which to follow where they disagree."""
        flat = self._space(0.0)
        first = self.paired.verdict(self.unit, self._space(self.best), flat, self.factor)
        return " ".join([first, *(one.sentence for one in self.yardsticks), *self._advice()])

    def _space(self, c: float) -> str:
        """What to use for this curvature."""
        if self.config.space is not None:
            return f"the space {self.config.with_curvature(c).space}"
        return f"c = {c:g}" if c else "curvature 0"

    def _advice(self) -> list[str]:
        """What to choose for which purpose, where the yardsticks disagree or no yardstick shows the tree."""
        chosen = {"to model, fill in or draw data": self.choice} | {one.purpose: one.choice for one in self.yardsticks}
        tree = self.structure == "tree-like"
        if len(set(chosen.values())) > 1:
            why = "The data are tree-like, but not all yardsticks gain by curvature" if tree else "Yardsticks disagree"
            return [f"{why}: {'; '.join(f'{purpose} use {self._space(c)}' for purpose, c in chosen.items())}."]
        if tree and self.yardsticks and self.choice == 0:
            return ["The data are tree-like, but no yardstick detects a gain by curvature in this dimension."]
        return []

    @property
    def choice(self) -> float:
        """The curvature to use by the likelihood: the best one if it is better than 0."""
        return self.best if self.outcome == "hyperbolic" else 0.0

    @property
    def best(self) -> float:
        """The c > 0 with the best mean on validation data."""
        return best_curvature(self.repeats)

    def to_json(self) -> dict[str, Any]:
        """Every figure, as JSON values; those of a likelihood where there is one."""
        likelihood = {"likelihood": self.config.likelihood, "likelihood_reason": self.reason} if self.reason else {}
        return {
            "outcome": self.outcome,
            "verdict": self.verdict,
            self.gain_name: self.gain,
            "interval": self.interval,
            "p_value": self.p_value,
            "best_curvature": self.best,
            **likelihood,
            **({"structure": self.structure} if self.structure else {}),
            **({"yardsticks": {one.name: one.to_json() for one in self.yardsticks}} if self.yardsticks else {}),
            "repeats": [
                {
                    "seed": r.seed,
                    "chosen": r.chosen,
                    "difference": r.difference,
                    "validation": {str(c): _plain(score) for c, score in r.validation.items()},
                    "test": {str(c): _plain(score) for c, score in r.test.items()},
                    **({"pca": r.pca} if self.reason else {}),
                }
                for r in self.repeats
            ],
            "stability": {str(c): None if s is None else asdict(s) for c, s in self.stability.items()},
        }


def _plain(score: Any) -> Any:
    return asdict(score) if is_dataclass(score) and not isinstance(score, type) else score


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
    folder: Path | None = None,
    resume: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    warn: Callable[[str], None] = lambda text: None,
) -> Comparison:
    """Train curvature 0 and each of `curvatures` on `repeats` splits of the data, and judge on rows kept apart.

    Every model is the one of the epoch that was best on validation rows, so that none is judged by its overfitting.
    Models of one architecture are trained together (`fit_many`). A split of which a model failed is left out.

    Arguments:
        config: settings shared by all models; its seed is the first repeat's. Its curvature, in a product that of every
            hyperbolic factor, is replaced by the values compared. Neighbourhoods of the data count only if asked for:
            the verdict is one of likelihood.
        x: rows in original units, as of `fit`.
        curvatures: values of c > 0 to choose from.
        repeats: splits and seeds, at least 3.
        blocks: of a plain matrix, as of `fit`.
        groups: rows of one group stay together in a split.
        samples: importance samples a row for the likelihoods.
        device: "auto" (CUDA where there is one), "cpu" or "cuda".
        jobs: processes; by default one a core, with one thread each, and a single one on CUDA, or the workers that
            `joblib.parallel_config` around the call names.
        folder, resume: keep checkpoints, and go on from them; as of `fit_many`. What was trained is not trained again.
        progress: called with the epochs done and to do, counted over all models.
        warn: called with one line for every model that failed.
    """
    data = Arrays.of(x, blocks)
    if config.neighbours == "auto":
        config = replace(config, neighbours="off")
    values, splits = plan(config, data, curvatures, repeats, groups)
    # A training that goes on to the end still keeps the weights that were best on its validation rows.
    patience = config.patience or config.lasting(len(splits[0].train), 1).epochs
    config = replace(config, patience=patience, validation=_VALIDATION)
    plan_tasks = partial(plan_rows, data=data, asked=device, samples=samples)
    found, task = compare_splits(
        Comparison,
        plan_tasks,
        config,
        values,
        splits,
        folder=folder,
        resume=resume,
        jobs=jobs,
        progress=progress,
        warn=warn,
    )
    judged = [
        replace(one, pca=_pca(data, splits[one.seed - config.seed], task.config, task.layout)) for one in found.repeats
    ]
    return replace(found, repeats=judged, config=replace(task.config, space=config.space), reason=task.reason)


def compare_splits(
    kind: type[Kind],
    plan_tasks: Callable[..., tuple[Problem[Any, Any], Sequence[Any]]],
    config: Any,
    values: Sequence[float],
    splits: Sequence[Any],
    *,
    jobs: int | None = None,
    warn: Warn = lambda text: None,
    **training: Any,
) -> tuple[Kind, Any]:
    """Compare curvatures on splits of data of any kind; returns the comparison, and the first of the tasks.

    Arguments:
        kind: of comparison.
        plan_tasks: makes a problem and its tasks of configurations and `splits`.
        config: settings shared by all models; its seed is the first repeat's.
        values: of c, 0 among them.
        splits: of the data, one a repeat.
        jobs: as of `compare`.
        warn, training: as of `train_many`.
    """
    cells = [(i, c) for i in range(len(splits)) for c in values]
    configs = [replace(config.with_curvature(c), seed=config.seed + i) for i, c in cells]
    problem, tasks = plan_tasks(configs, splits=[splits[i] for i, _ in cells])
    jobs = jobs or default_jobs(problem.asked)
    results = train_many(problem, tasks, jobs=jobs, warn=warn, work=_judged, **training)
    kept = by_split(results, values, config.seed, warn)
    repeats = [
        Repeat(config.seed + i, {c: r.validation for c, r in mine.items()}, {c: r.test for c, r in mine.items()})
        for i, mine in kept.items()
    ]
    maps = {c: [mine[c].embedding for mine in kept.values()] for c in values}
    ratio = fmean(len(split.test) / len(split.train) for split in splits)
    return kind(repeats, ratio, {c: stability(m) for c, m in maps.items()}, maps, config), tasks[0]


def _judged(
    problem: Problem[TaskT, Any], tasks: Sequence[TaskT], listener: Listener, folder: Path | None, resume: bool
) -> list[Judged]:
    """A stack, trained and judged where it was trained: only figures and maps travel."""
    return problem.judge(tasks, train_stack(problem, tasks, listener, folder=folder, resume=resume))


def plan(
    config: Config,
    x: Data,
    curvatures: Sequence[float],
    repeats: int,
    groups: NDArray[Any] | None = None,
) -> tuple[list[float], list[Split]]:
    """Values of c, 0 first, and the split of each repeat; raises for what cannot be compared."""
    data = Arrays.of(x)
    values = curved_values(curvatures, repeats, config)
    splits = [random_split(len(data), _VALIDATION, _TEST, config.seed + i, groups) for i in range(repeats)]
    if any(min(len(s.validation), len(s.test)) < 2 for s in splits):
        raise CurvaeError(
            f"{len(data)} rows are too few for a comparison; at least {FEWEST_COMPARED} rows (or groups) are needed"
        )
    resolved, layout, _ = resolve(config, data, splits[0])
    for c in values:
        require_buildable(resolved.with_curvature(c), layout)
    return values, splits


def _pca(data: Arrays, split: Split, config: Config, layout: Layout) -> float | None:
    """Held-out log-likelihood of probabilistic PCA, in the same units, after what is linear in the covariates."""
    x = data.x
    if not config.gaussian or not isinstance(x, np.ndarray) or config.dim >= min(x.shape[1], len(split.train)):
        return None
    if has_missing(x):
        return None
    from sklearn.decomposition import PCA  # takes long to import

    scaled = scaling_for(config, layout, data, split).apply(x)
    if data.context is not None:
        scaled = Effects.of(scaled[split.train], data.context[split.train]).removed(scaled, data.context)
    return float(PCA(config.dim).fit(scaled[split.train]).score(scaled[split.test]))
