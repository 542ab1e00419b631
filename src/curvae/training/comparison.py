"""Is a curved latent space better for these data? An answer with its uncertainty.

Each repeat has its own seed and its own split of the rows, or of the edges of a graph. On validation data it chooses
one curvature c > 0; on test data, which took no part in that, it compares the chosen model with the one of curvature 0.
The verdict is a t-test on the differences with the variance corrected for training sets that overlap.

Which curvatures predict held-out data best is told by a confidence set. Data determine c·σ0² alone, and flexible
decoders absorb much of it: what can be asked for is the c·σ0² at which models like these predict held-out data best. In
each repeat a cubic in x = asinh(c·σ0²), which is linear in c·σ0² near 0 and logarithmic far out, is fitted to the test
scores; scores fall so fast at large c·σ0² that a quadratic would be wrong near 0. A value is left out if one of those
compared is significantly better, by one-sided t-tests over the repeats with the variance of `Paired`, and Bonferroni's
correction. None is better than the best, so that the set holds that with the probability stated or more, if cubics fit.
Repeats differ also by the luck of their trainings, which is larger than the error over test rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Literal, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr, stdtrit

from ..data.dataset import Arrays, has_missing
from ..data.files import decimal
from ..errors import CurvaeError
from ..maps.faithfulness import Agreement, Places, Ranks, neighbour_ranks, places_of
from ..maps.statistics import LEVEL, Array, Index, Rows, euclidean, rank_correlation
from ..models import Layout
from .fitted import Config, Effects, Embedding, Settings, Stability, require_buildable, require_count, stability
from .fitting import SAMPLES, default_jobs, plan_rows, scaling_for, train_many
from .rows import HELD_OUT, Data, Split, random_split
from .stacks import Judged, Listener, Problem, TaskT, Warn, train_stack

__all__ = [
    "FEWEST_COMPARED",
    "FEWEST_REPEATS",
    "FEWEST_VALUES",
    "SAMPLES",
    "Comparison",
    "ComparisonPlan",
    "Criterion",
    "CurvatureSet",
    "Curvatures",
    "Outcome",
    "Paired",
    "ProfilePoint",
    "Repeat",
    "best_curvature",
    "compare",
    "compare_planned",
    "compare_splits",
    "cost_text",
    "curved_values",
    "faithfulness_criterion",
    "identifiable",
    "judge_stack",
    "place_curvatures",
    "plan_comparison",
    "recovery_criterion",
    "require_recoverable",
]


Outcome = Literal["hyperbolic", "none", "euclidean"]


@dataclass(frozen=True)
class Paired:
    """What curved models gain over flat ones, one figure a split; positive is better.

    Arguments:
        differences: curved minus flat, at least two.
        ratio: test data over training data. Training sets of different splits overlap, so differences are not
            independent, and the variance of their mean is raised by this share; 0 leaves it as if they were.

    References:
        Nadeau and Bengio (2003), Inference for the generalization error.

    Example:
        >>> gain = Paired([1.0, 1.2, 0.8, 1.1], ratio=0.1)
        >>> gain.outcome, round(gain.mean, 3)
        ('hyperbolic', 1.025)
    """

    differences: Sequence[float]
    ratio: float = 0.0

    @property
    def mean(self) -> float:
        return float(np.mean(self.differences))

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return float(np.std(self.differences, ddof=1) * math.sqrt(1 / len(self.differences) + self.ratio))

    @property
    def interval(self) -> float:
        """Half-width of the 95 % interval of the mean."""
        return float(stdtrit(len(self.differences) - 1, 1 - LEVEL / 2) * self.error)

    @property
    def p_value(self) -> float:
        """Of the two-sided t-test."""
        if self.error == 0:
            return 1.0 if self.mean == 0 else 0.0
        return float(2 * stdtr(len(self.differences) - 1, -abs(self.mean) / self.error))

    @property
    def outcome(self) -> Outcome:
        if self.p_value >= LEVEL:
            return "none"
        return "hyperbolic" if self.mean > 0 else "euclidean"

    def verdict(self, unit: str, curved: str, flat: str = "curvature 0", factor: float = 1.0) -> str:
        """Give the answer in one sentence, in units of which there are `factor` to those of the differences.

        `curved` and `flat` are the spaces between which it decides.
        """
        margin = f"{factor * self.interval:.2f} {unit} (p = {self.p_value:.2g})"
        gain = factor * self.mean
        if self.outcome == "none":
            return f"No detectable difference: use {flat}. Curved minus flat is {gain:+.2f} ± {margin}."
        return f"{self.outcome.capitalize()} better by {abs(gain):.2f} ± {margin}: use {curved if gain > 0 else flat}."


Verdict = Literal["curved", "flat", "undetermined"]

FEWEST_VALUES = 5
"""values of c, 0 among them, that a set needs"""
FEWEST_REPEATS = 5
_POINTS = 1001  # at which fits are compared


@dataclass(frozen=True)
class ProfilePoint:
    """What models with one c·σ0² gain over flat ones on test data.

    Arguments:
        value: c·σ0².
        gain: mean over the repeats.
        interval: half-width of its 95 % interval.
    """

    value: float
    gain: float
    interval: float


@dataclass(frozen=True)
class CurvatureSet:
    """The c·σ0² at which models of one kind predict held-out data best, with a confidence set.

    Arguments:
        estimate: maximum of the mean cubic, within the values compared.
        low, high: ends of the set. `high` is None where it holds the largest value compared, and may go on.
        level: of confidence.
        verdict: "curved" if 0 is not in the set. "flat" if it is, and the largest value compared is not: large
            curvatures do worse, and no gain over 0 is detected; a small one may still be best. "undetermined" if both
            are.
        profile: of every value compared, in ascending order.

    Example:
        >>> best = [0.8, 0.9, 1.0, 1.1, 1.2]  # of five repeats
        >>> values = [0.0, 0.5, 1.0, 2.0, 4.0]
        >>> scores = [[-((math.asinh(value) - one) ** 2) for value in values] for one in best]
        >>> found = CurvatureSet.of(values, scores)
        >>> found.verdict, round(found.low, 2), round(found.estimate, 2), round(found.high, 2)
        ('curved', 0.67, 1.17, 2.0)
    """

    estimate: float
    low: float
    high: float | None
    level: float
    verdict: Verdict
    profile: list[ProfilePoint]

    @classmethod
    def of(cls, values: Sequence[float], scores: ArrayLike, ratio: float = 0.0) -> Self:
        """Find the set.

        Arguments:
            values: of c·σ0², five or more, 0 among them.
            scores: on test data, higher is better, shape (repeats, values), five repeats or more.
            ratio: test data over training data, as of `Paired`.
        """
        order = np.argsort(values)
        c, figures = np.asarray(values, float)[order], np.asarray(scores, float)[:, order]
        if len(set(values)) < FEWEST_VALUES or c[0] != 0 or len(figures) < FEWEST_REPEATS:
            raise CurvaeError(
                f"a set of curvatures needs {FEWEST_VALUES} values of c or more, 0 among them, and {FEWEST_REPEATS} "
                f"repeats or more; got {len(set(values))} values and {len(figures)} repeats"
            )
        gains = figures - figures[:, :1]
        profile = [
            ProfilePoint(float(value), one.mean, one.interval)
            for value, one in zip(c, (Paired(gain, ratio) for gain in gains.T), strict=True)
        ]
        points = np.union1d(c, np.sinh(np.linspace(0.0, np.arcsinh(c[-1]), _POINTS)[:-1]))
        cubics = np.polynomial.polynomial.polyfit(np.arcsinh(c), gains.T, 3)
        fitted = np.polynomial.polynomial.polyval(np.arcsinh(points), cubics)
        better = fitted[:, np.searchsorted(points, c), None] - fitted[:, None]
        quantile = stdtrit(len(gains) - 1, 1 - LEVEL / (len(c) - 1)) * math.sqrt(1 / len(gains) + ratio)
        beaten = (better.mean(0) > quantile * better.std(0, ddof=1)).any(0)
        low, high = (float(points[~beaten][end]) for end in (0, -1))
        return cls(
            float(points[fitted.mean(0).argmax()]),
            low,
            high if high < c[-1] else None,
            1 - LEVEL,
            "curved" if low > 0 else "flat" if high < c[-1] else "undetermined",
            profile,
        )

    def sentence(self, gain: Paired, unit: str, factor: float, data: str, flat: str) -> str:
        """Say what is known, and no more.

        Arguments:
            gain: of curved models over flat ones.
            unit, factor: as of `Paired.verdict`.
            data: what is held out, such as "rows".
            flat: the space without curvature.
        """
        gained, level = gain.outcome == "hyperbolic", f"{100 * self.level:g} % set"
        most = f"more than {short(self.profile[-1].value)}"
        if self.verdict == "undetermined":
            if gained:
                return f"Curvature: not determined, the {level} of c·σ0² is 0 to {most}."
            return (
                f"Curvature: not determined. Every c·σ0² from 0 to {most} predicts held-out {data} as well as the "
                f"best: use {flat}."
            )
        answer = "" if gained else f": flat; use {flat}"
        if self.verdict == "curved":
            answer = (
                f": curved; {decimal(abs(factor * gain.mean))} ± {decimal(factor * gain.interval)} {unit} "
                f"{'worse' if gain.mean < 0 else 'better'} than flat"
            )
        high = most if self.high is None else short(self.high)
        return f"Curvature: c·σ0² = {short(self.estimate)}, {level} {short(self.low)} to {high}{answer}."


def short(value: float) -> str:
    """Write c·σ0² for people, with two digits."""
    return f"{round(value, 4):.2g}"


def identifiable(config: Settings, curvatures: Iterable[float]) -> list[float] | None:
    """Return c·σ0² for each c; None where σ0 is learned or hyperbolic factors differ in it.

    Example:
        >>> from curvae.training import Config
        >>> identifiable(Config(prior_scale=2.0), [0.0, 0.5]), identifiable(Config(space="h2,h3"), [0.0, 0.5])
        ([0.0, 2.0], None)
    """
    found: list[float] = []
    for curved in map(config.with_curvature, curvatures):
        values = {
            factor.curvature * scale**2
            for factor, scale in zip(curved.factors, curved.prior_scales, strict=True)
            if factor.curvature
        } or {0.0}
        if config.learn_prior_scale or len(values) > 1:
            return None
        found += values
    return found


_WIDEST = 4.0  # c·σ0² up to which curvatures are spread, or c where σ0 depends on it


def place_curvatures(config: Settings, repeats: int) -> list[float]:
    """Choose four c > 0 for a set: with 0, asinh(c·σ0²) is evenly spaced up to c·σ0² = 4, or to c = 4 with σ0 "auto".

    Example:
        >>> from curvae.training import Config
        >>> place_curvatures(Config(), 5), place_curvatures(Config(prior_scale=2.0), 5)
        ([0.548, 1.25, 2.3, 4.0], [0.137, 0.312, 0.575, 1.0])
    """
    if repeats < FEWEST_REPEATS:
        raise CurvaeError(
            f'`curvatures="auto"` finds a confidence set, which needs at least {FEWEST_REPEATS} repeats, got {repeats}'
        )
    known = identifiable(config, [1.0])
    if known is None:
        raise CurvaeError(
            'with `curvatures="auto"` c·σ0² must be one number: drop `learn_prior_scale`, and set `prior_scale` if '
            "hyperbolic factors differ in dimension"
        )
    scale, bend = config.prior_scale, 0.0
    if scale == "auto":  # c·σ0² = c/(1 + bend·c)
        scale, bend = 1.0, 1 / known[0] - 1
    top = math.asinh(_WIDEST / (1 + bend * _WIDEST))
    values = np.sinh(top * np.arange(1, FEWEST_VALUES) / (FEWEST_VALUES - 1))
    return [float(f"{c:.3g}") for c in values / (1 - bend * values) / scale**2]


_FEWEST = 3  # repeats

Curvatures = Sequence[float] | Literal["auto"]


def curved_values(curvatures: Curvatures, repeats: int, config: Settings) -> list[float]:
    """Return values of c to compare, 0 first; raise for what cannot be compared."""
    require_count("repeats", repeats)
    for wrong, message in (
        (
            repeats < _FEWEST,
            f"a comparison needs at least {_FEWEST} repeats to tell a difference from chance, got {repeats}",
        ),
        (
            any(factor.learned for factor in config.factors),
            'a comparison chooses among fixed curvatures; drop `curvature="learn"`, or write h2 for h2:learn in a '
            "space",
        ),
        (
            config.space is not None and not any(factor.curved for factor in config.factors),
            f"the space {config.space} has no curvature to compare; write h2, say",
        ),
    ):
        if wrong:
            raise CurvaeError(message)
    if curvatures == "auto":
        curvatures = place_curvatures(config, repeats)
    if not curvatures or not all(c > 0 for c in curvatures):
        raise CurvaeError(f"give one or more curvatures c > 0 to compare with c = 0, got {list(curvatures)}")
    return [0.0, *dict.fromkeys(float(c) for c in curvatures)]


def cost_text(curvatures: Curvatures, values: Sequence[float], repeats: int) -> str:
    """Say how many models are trained, and of "auto" which ones."""
    which = f": c = {', '.join(f'{c:g}' for c in values)} in each of {repeats} repeats" if curvatures == "auto" else ""
    return f"{repeats * len(values)} trainings{which}"


# Criteria of a comparison besides the likelihood, each with its own test, and what to choose for which purpose.


@dataclass(frozen=True)
class Repeat:
    """Scores of one split, by curvature: mean log-likelihoods of rows, or `Links` of a graph.

    For Gaussian likelihoods, `pca` is that of probabilistic PCA of the same dimension on the test rows; for
    faithfulness, that of PCA.
    """

    seed: int
    validation: dict[float, Any]
    test: dict[float, Any]
    pca: float | None = None


def best_curvature(repeats: Sequence[Repeat]) -> float:
    """Return the c > 0 with the best mean on validation data."""
    return max(
        (c for c in repeats[0].validation if c > 0),
        key=lambda c: fmean(float(one.validation[c]) for one in repeats),
    )


@dataclass(frozen=True)
class Gain:
    """What curvature gains by a measure.

    Arguments:
        repeats: scores of every split, higher is better.
        ratio: test data over training data, which corrects the variance as in `Paired`.
    """

    gain_name: ClassVar[str] = "gain"

    repeats: list[Repeat]
    ratio: float

    @property
    def chosen(self) -> list[float]:
        """The c > 0 of every split: the best on its validation data."""
        return [best_curvature([one]) for one in self.repeats]

    @property
    def paired(self) -> Paired:
        """What the chosen curvatures gain over c = 0 on test data."""
        return Paired(
            [float(one.test[c]) - float(one.test[0.0]) for one, c in zip(self.repeats, self.chosen, strict=True)],
            self.ratio,
        )

    @property
    def outcome(self) -> Outcome:
        return self.paired.outcome

    @property
    def best(self) -> float:
        """The c > 0 with the best mean on validation data."""
        return best_curvature(self.repeats)

    @property
    def choice(self) -> float:
        """The curvature to use by this measure: the best one if it is better than 0."""
        return self.best if self.outcome == "hyperbolic" else 0.0

    def to_json(self) -> dict[str, Any]:
        """Every figure, as JSON values."""
        found = self.paired

        def plain(scores: Mapping[float, Any]) -> dict[str, Any]:
            return {str(c): score if isinstance(score, float) else asdict(score) for c, score in scores.items()}

        return {
            "outcome": self.outcome,
            self.gain_name: found.mean,
            "interval": found.interval,
            "p_value": found.p_value,
            "best_curvature": self.best,
            "repeats": [
                {
                    "seed": one.seed,
                    "chosen": c,
                    "difference": difference,
                    "validation": plain(one.validation),
                    "test": plain(one.test),
                    "pca": one.pca,
                }
                for one, c, difference in zip(self.repeats, self.chosen, found.differences, strict=True)
            ],
        }


@dataclass(frozen=True)
class Criterion(Gain):
    """What curvature gains by another measure than the likelihood, on the same splits.

    Arguments:
        name: of the measure, such as "faithfulness".
        meaning: what it measures, in a few words.
        purpose: whoever wants this should choose by it: "for a map that keeps neighbours".
        repeats, ratio: as of `Gain`. The c of a split is the best one on the validation data of the others: trainings
            are lucky with their maps, and chosen by its own a split would choose its luck.
    """

    name: str
    meaning: str
    purpose: str

    @property
    def chosen(self) -> list[float]:
        """The c > 0 of every split: the best in the mean over the validation data of the others."""
        return [best_curvature(self.repeats[:i] + self.repeats[i + 1 :]) for i in range(len(self.repeats))]

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        found = self.paired
        ends = {"hyperbolic": "curved is better", "euclidean": "flat is better", "none": "no detectable difference"}
        margin = f"{'+' * (found.mean > 0)}{decimal(found.mean, 3)} ± {found.interval:.3f} (p = {found.p_value:.2g})"
        return f"By {self.name}, {self.meaning}, curved minus flat is {margin}: {ends[self.outcome]}."


_VALIDATION, _TEST = 0.1, 0.2
_SHOWN = 2000  # rows of every part of a split that maps show where rows lie on disk
FEWEST_COMPARED = 20
"""rows, or groups of rows, that a comparison needs"""

Kind = TypeVar("Kind", bound="Comparison")


@dataclass(frozen=True)
class Comparison(Gain):
    """The result of `compare` or `compare_graph`.

    Arguments:
        repeats, ratio: as of `Gain`.
        stability: how alike the maps of the repeats are, by curvature.
        maps: of every repeat, all data, by curvature.
        config: settings.
        reason: why this likelihood; empty for graphs, which have none.
        criteria: what curvature gains by other measures.
        structure: of the data as a diagnosis calls it: "tree-like", "clustered" or "flat"; empty where it is not known.

    Attributes:
        unit, factor: of differences, and how many make one of the scores.
        held_out: what they are measured on.
        gain_name: of the mean difference, in JSON.
    """

    unit: ClassVar[str] = "nats a row"
    factor: ClassVar[float] = 1.0
    held_out: ClassVar[str] = "rows"

    stability: dict[float, Stability | None]
    maps: dict[float, list[Embedding]]
    config: Any
    reason: str = ""
    criteria: tuple[Criterion, ...] = ()
    structure: str = ""

    @property
    def embeddings(self) -> dict[float, Embedding]:
        """Of the first repeat, by curvature."""
        return {c: maps[0] for c, maps in self.maps.items()}

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

    @cached_property
    def curvature(self) -> CurvatureSet | None:
        """Which c·σ0² are best on test data.

        None if fewer than five curvatures or repeats were compared, if a score is not finite, or if c·σ0² is not one
        number: where σ0 is learned, or hyperbolic factors differ in it.
        """
        compared = list(self.repeats[0].test)
        values = identifiable(self.config, compared)
        scores = [[float(one.test[c]) for c in compared] for one in self.repeats]
        few = len(compared) < FEWEST_VALUES or len(scores) < FEWEST_REPEATS
        if values is None or few or not np.isfinite(scores).all():
            return None
        return CurvatureSet.of(values, scores, self.ratio)

    @property
    def verdict(self) -> str:
        """The answer: what likelihood and other criteria say, which c·σ0² are best, and what to follow in conflicts."""
        flat, found = self._space(0.0), self.curvature
        first = [self.paired.verdict(self.unit, self._space(self.best), flat, self.factor)]
        if found is not None:
            first.append(found.sentence(self.paired, self.unit, self.factor, self.held_out, flat))
        return " ".join([*first, *(one.sentence for one in self.criteria), *self._advice()])

    def _space(self, c: float) -> str:
        """Say what to use for this curvature."""
        if self.config.space is not None:
            return f"the space {self.config.with_curvature(c).space}"
        return f"c = {c:g}" if c else "curvature 0"

    def _advice(self) -> list[str]:
        """Say what to choose for which purpose, where the criteria disagree or no criterion shows the tree."""
        chosen = {"to model, fill in or draw data": self.choice} | {one.purpose: one.choice for one in self.criteria}
        tree = self.structure == "tree-like"
        if len(set(chosen.values())) > 1:
            why = "The data are tree-like, but not all criteria gain by curvature" if tree else "Criteria disagree"
            return [f"{why}: {'; '.join(f'{purpose} use {self._space(c)}' for purpose, c in chosen.items())}."]
        if tree and self.criteria and self.choice == 0:
            return ["The data are tree-like, but no criterion detects a gain by curvature in this dimension."]
        return []

    def to_json(self) -> dict[str, Any]:
        """Every figure, as JSON values; those of a likelihood where there is one."""
        return {
            "outcome": self.outcome,
            "verdict": self.verdict,
            "curvature": None if self.curvature is None else asdict(self.curvature),
            **super().to_json(),
            **({"likelihood": self.config.likelihood, "likelihood_reason": self.reason} if self.reason else {}),
            **({"structure": self.structure} if self.structure else {}),
            **({"criteria": {one.name: one.to_json() for one in self.criteria}} if self.criteria else {}),
            "stability": {str(c): None if s is None else asdict(s) for c, s in self.stability.items()},
        }


def compare(
    config: Config,
    x: Data,
    curvatures: Curvatures = (0.3, 1.0),
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
        curvatures: values of c > 0 to choose from; "auto" takes four, from which the confidence set
            `Comparison.curvature` is found. It costs five trainings a repeat, and takes five repeats or more.
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
    return compare_planned(
        plan_comparison(config, Arrays.of(x, blocks), curvatures, repeats, groups, samples),
        device,
        folder=folder,
        resume=resume,
        jobs=jobs,
        progress=progress,
        warn=warn,
    )


@dataclass(frozen=True)
class ComparisonPlan:
    """What `compare` trains.

    Arguments:
        config: settings shared by all models; its seed is the first repeat's.
        values: of c, 0 among them.
        splits: of the data, one a repeat.
        problem, tasks: a task for every value of every split in turn.
    """

    config: Any
    values: Sequence[float]
    splits: Sequence[Any]
    problem: Problem[Any, Any]
    tasks: Sequence[Any]

    @classmethod
    def make(
        cls,
        plan_tasks: Callable[..., tuple[Problem[Any, Any], Sequence[Any]]],
        config: Any,
        values: Sequence[float],
        splits: Sequence[Any],
    ) -> Self:
        """Plan with `plan_tasks`, which makes a problem and its tasks of configurations and `splits`."""
        cells = [(i, c) for i in range(len(splits)) for c in values]
        configs = [replace(config.with_curvature(c), seed=config.seed + i) for i, c in cells]
        return cls(config, values, splits, *plan_tasks(configs, splits=[splits[i] for i, _ in cells]))


def plan_comparison(
    config: Config,
    data: Arrays,
    curvatures: Curvatures,
    repeats: int,
    groups: NDArray[Any] | None = None,
    samples: int = SAMPLES,
) -> ComparisonPlan:
    """Split the rows and resolve the settings of every model; raises for what cannot be compared."""
    values = curved_values(curvatures, repeats, config)
    splits = [random_split(len(data), _VALIDATION, _TEST, config.seed + i, groups, HELD_OUT) for i in range(repeats)]
    if any(min(len(s.validation), len(s.test)) < 2 for s in splits):
        raise CurvaeError(
            f"{len(data)} rows are too few for a comparison; at least {FEWEST_COMPARED} rows (or groups) are needed"
        )
    config = replace(
        config,
        neighbours="off" if config.neighbours == "auto" else config.neighbours,
        validation=_VALIDATION,
    )
    # Of rows on disk, the maps show some of every part of every split.
    shown = [split.sample(_SHOWN, split_seed) for split_seed, split in enumerate(splits)] if data.on_disk else []
    plan_tasks = partial(
        plan_rows, data=data, samples=samples, shown=np.unique(np.concatenate(shown)) if shown else None
    )
    planned = ComparisonPlan.make(plan_tasks, config, values, splits)
    for task in planned.tasks[: len(values)]:
        require_buildable(task.config, task.layout)
    # A training that goes on to the end still keeps the weights that were best on its validation rows.
    return replace(
        planned,
        tasks=[
            replace(task, config=replace(task.config, patience=task.config.patience or task.config.epochs))
            for task in planned.tasks
        ],
    )


def compare_planned(planned: ComparisonPlan, device: str = "auto", **training: Any) -> Comparison:
    """Train and judge the models of a plan; further arguments as of `compare`."""
    problem, task = replace(planned.problem, asked=device), planned.tasks[0]
    found = compare_splits(Comparison, replace(planned, problem=problem), **training)
    return replace(
        found,
        repeats=[
            replace(
                one,
                pca=_pca(task.source, planned.splits[one.seed - planned.config.seed], task.config, task.layout),
            )
            for one in found.repeats
        ],
        config=replace(task.config, space=planned.config.space),
        reason=task.reason,
    )


def compare_splits(
    kind: type[Kind],
    planned: ComparisonPlan,
    *,
    jobs: int | None = None,
    warn: Warn = lambda text: None,
    **training: Any,
) -> Kind:
    """Compare curvatures on splits of data of any kind.

    Arguments:
        kind: of comparison.
        planned: what to train.
        jobs: see `compare`.
        warn, training: see `train_many`.
    """
    config, values, splits = planned.config, planned.values, planned.splits
    jobs = jobs or default_jobs(planned.problem.asked)
    results = train_many(planned.problem, planned.tasks, jobs=jobs, warn=warn, work=judge_stack, **training)
    kept: dict[int, dict[float, Judged]] = {}
    for i, start in enumerate(range(0, len(results), len(values))):
        mine = dict(zip(values, results[start : start + len(values)], strict=True))
        if any(result.failure is not None for result in mine.values()):
            warn(f"the split of seed {config.seed + i} is left out: a model of it failed")
        else:
            kept[i] = mine
    if len(kept) < _FEWEST:
        failure = next(result.failure for result in results if result.failure is not None)
        raise CurvaeError(f"too many trainings failed for a comparison; the first: {failure}")
    repeats = [
        Repeat(config.seed + i, {c: r.validation for c, r in mine.items()}, {c: r.test for c, r in mine.items()})
        for i, mine in kept.items()
    ]
    maps = {c: [mine[c].embedding for mine in kept.values()] for c in values}
    return kind(
        repeats,
        fmean(len(split.test) / len(split.train) for split in splits),
        {c: stability(embeddings) for c, embeddings in maps.items()},
        maps,
        config,
    )


def judge_stack(
    problem: Problem[TaskT, Any], tasks: Sequence[TaskT], listener: Listener, folder: Path | None, resume: bool
) -> list[Judged]:
    """Train a stack and judge it where it was trained, so that only figures and maps travel."""
    return problem.judge(tasks, train_stack(problem, tasks, listener, folder=folder, resume=resume))


def _pca(data: Arrays, split: Split, config: Config, layout: Layout) -> float | None:
    """Held-out log-likelihood of probabilistic PCA, in the same units, after what is linear in the covariates."""
    x = data.x
    usable = config.gaussian and isinstance(x, np.ndarray) and config.dim < min(x.shape[1], len(split.train))
    if not usable or has_missing(x):
        return None
    from sklearn.decomposition import PCA  # takes long to import

    scaled = scaling_for(config, layout, data, split).apply(x)
    if data.context is not None:
        scaled = Effects.of(scaled[split.train], data.context[split.train]).removed(scaled, data.context)
    return float(PCA(config.dim).fit(scaled[split.train]).score(scaled[split.test]))


# Does curvature make maps more faithful, or recover a known tree better? Criteria of a comparison of models.
#
# Rows that a model has not seen are placed by its encoder, and judged by where they lie among its training rows.


def faithfulness_criterion(data: Rows, found: Comparison, splits: Mapping[int, Split]) -> Criterion:
    """Return whether curved models place held-out rows more faithfully: (Qlocal + Qglobal)/2 by Euclidean distances.

    Arguments:
        data: the rows that were compared on, with columns scaled as they are to count.
        found: the comparison by likelihood, with its maps.
        splits: of every repeat, by seed.
    """

    def score(maps: Sequence[Places], asked: Index, among: Index) -> list[float]:
        rows = data.scaled(np.concatenate([asked, among]))
        rows -= rows.mean(0)
        truth = neighbour_ranks(euclidean(rows[: len(asked)], rows[len(asked) :]))
        return [_kept(truth, places.table(asked, among)) for places in maps]

    def linear(asked: Index, among: Index, dim: int) -> float | None:
        train = data.scaled(among)
        if dim > min(train.shape) or not np.ptp(train, axis=0).any():
            return None
        from sklearn.decomposition import PCA  # takes long to import

        fitted, places = PCA(dim, random_state=0).fit(train), np.zeros((len(data), dim))
        places[among], places[asked] = fitted.transform(train), fitted.transform(data.scaled(asked))
        return score([places_of(places)], asked, among)[0]

    return _criterion(
        "faithfulness",
        "the share of neighbours that held-out rows keep on the map",
        "for a map that keeps neighbours",
        score,
        found,
        splits,
        np.arange(len(data)),
        linear,
    )


def _kept(truth: Ranks, distances: Array) -> float:
    found = Agreement(distances.shape[1], 1)
    found.add(truth, neighbour_ranks(distances))
    return float(found.kept.mean())


def recovery_criterion(
    distances: Callable[[Index, Index], Array], node: Index, found: Comparison, splits: Mapping[int, Split]
) -> Criterion:
    """Judge how well models recover a tree, by the rank correlation of its distances with those of held-out rows.

    Arguments:
        distances: between nodes of the tree, given two arrays of their numbers; `NamedTree.distances`.
        node: number of the node of each row, −1 where it has none.
        found, splits: see `faithfulness_criterion`.
    """

    def score(maps: Sequence[Places], asked: Index, among: Index) -> list[float]:
        truth = distances(np.repeat(node[asked], len(among)), np.tile(node[among], len(asked)))
        return [rank_correlation(truth, places.table(asked, among).ravel()) for places in maps]

    require_recoverable(node, splits.values())
    return _criterion(
        "recovery",
        "the rank correlation of held-out rows' distances with those in the tree",
        "to read off the tree",
        score,
        found,
        splits,
        np.flatnonzero(node >= 0),
    )


def require_recoverable(node: Index, splits: Iterable[Split]) -> None:
    """Raise an error if too few rows have a node of a tree to compare models by how well they recover it."""
    known = np.flatnonzero(node >= 0)
    if len(np.unique(node[known])) < _FEWEST:
        raise CurvaeError("rows of at least three nodes are needed to compare maps with a tree; match more")
    for split in splits:
        _usable_rows("recovery", split, known)


def _usable_rows(name: str, split: Split, usable: Index) -> list[Index]:
    """Return the usable training, validation and test rows; raise if there are none to judge by."""
    parts = [np.intersect1d(part, usable) for part in split.parts]
    if len(parts[0]) < 2 or not all(map(len, parts)):
        raise CurvaeError(f"a split has no held-out rows to judge by {name}; use more rows")
    return parts


def _criterion(
    name: str,
    meaning: str,
    purpose: str,
    score: Callable[[Sequence[Places], Index, Index], list[float]],
    found: Comparison,
    splits: Mapping[int, Split],
    usable: Index,
    linear: Callable[[Index, Index, int], float | None] = lambda asked, among, dim: None,
) -> Criterion:
    """Score the maps of every repeat on its validation and its test rows, as far as they are `usable`.

    `score` turns the maps of one split, rows to be placed and rows among which they are into a score each.
    """
    repeats = []
    for i, one in enumerate(found.repeats):
        maps = [places_of(each[i]) for each in found.maps.values()]
        random = np.random.default_rng(one.seed)
        # At most 500 rows are placed, each among at most 2,000.
        limits = zip(_usable_rows(name, splits[one.seed], usable), (2000, 500, 500), strict=True)
        among, *asked = (random.permutation(part)[:most] for part, most in limits)
        validation, test = (dict(zip(found.maps, score(maps, part, among), strict=True)) for part in asked)
        repeats.append(Repeat(one.seed, validation, test, linear(asked[1], among, maps[0].dim)))
    return Criterion(repeats, found.ratio, name, meaning, purpose)
