"""Trainings gathered into the cells of a table, tested against the paper's figures and the ordinary VAE; as text."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np
from scipy import stats

from ..maps.statistics import LEVEL, mean_interval
from ..nn.networks import DecoderKind
from ..report import Table
from ..training import Config
from ..training.comparison import Paired
from .experiment import Results
from .trainings import configuration, seeds

__all__ = [
    "LEGEND",
    "LIMIT",
    "PLAIN",
    "SIGNS",
    "Estimate",
    "Mark",
    "Printed",
    "Test",
    "against_printed",
    "beside",
    "cell",
    "cell_text",
    "comparison_texts",
    "difference_text",
    "estimate",
    "figures",
    "gather",
    "interval_text",
    "kind",
    "kinds",
    "linear_contrast",
    "mark",
    "model_name",
    "number",
    "p_text",
    "paired",
    "references",
    "requirements_table",
    "trainings_of",
    "worst_divergence",
]

Mark = Literal["better", "equal", "worse"]


@dataclass(frozen=True)
class Estimate:
    """Mean and half-width of its 95 % interval over `n` trainings."""

    mean: float
    half: float
    n: int


class Printed(Estimate):
    """A figure of the paper."""

    @property
    def error(self) -> float:
        """The standard error behind the interval, if it was made with Student's t as ours are."""
        return self.half / float(stats.t.ppf(1 - LEVEL / 2, self.n - 1))


@dataclass(frozen=True)
class Test:
    """A difference, and how surprising it would be by chance.

    Attributes:
        difference: the estimate.
        half: half-width of its 95 % interval.
        p: two-sided p-value.
        df: degrees of freedom.
    """

    difference: float
    half: float
    p: float
    df: float


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and half-width of its 95 % interval by Student's t; the interval of a single value is unknown.

    Example:
        >>> found = estimate([1.0, 2.0, 3.0])
        >>> round(found.mean, 3), round(found.half, 3), found.n
        (2.0, 2.484, 3)
    """
    return Estimate(*(mean_interval(values) if len(values) > 1 else (float(values[0]), math.nan)), len(values))


def _test(difference: float, error: float, df: float) -> Test:
    if error == 0:
        return Test(difference, 0.0, 1.0 if difference == 0 else 0.0, df)
    half = float(stats.t.ppf(1 - LEVEL / 2, df)) * error
    return Test(difference, half, float(2 * stats.t.sf(abs(difference) / error, df)), df)


def against_printed(values: Sequence[float], printed: Printed) -> Test:
    """Ours minus the paper's, by Welch's test with the variance that the printed interval implies."""
    own, other = float(np.var(values, ddof=1)) / len(values), printed.error**2
    total = own + other
    df = total**2 / (own**2 / (len(values) - 1) + other**2 / (printed.n - 1)) if total else math.inf
    return _test(float(np.mean(values)) - printed.mean, math.sqrt(total), df)


def paired(a: Sequence[float], b: Sequence[float], ratio: float = 0.0) -> Test:
    """a − b, by the t-test on differences of trainings that share seed and data; `ratio` as of `Paired`."""
    return _one_sample(np.subtract(a, b), ratio)


def linear_contrast(columns: Sequence[Sequence[float]], x: Sequence[float]) -> Test:
    """The slope over x, by the t-test on the slopes that each seed shows by itself.

    Arguments:
        columns: for each x, a figure a seed, in the same order of seeds.
        x: at least two values.
    """
    weights = np.asarray(x, dtype=np.float64) - np.mean(x)
    return _one_sample(np.asarray(columns, dtype=np.float64).T @ weights / (weights @ weights))


def _one_sample(values: Any, ratio: float = 0.0) -> Test:
    found = Paired(values, ratio)
    return Test(found.mean, found.interval, found.p_value, len(values) - 1)


def mark(test: Test, lower_is_better: bool = True, level: float = LEVEL) -> Mark:
    """The difference in a word."""
    if not test.p < level:
        return "equal"
    return "better" if (test.difference < 0) == lower_is_better else "worse"


Key = TypeVar("Key", bound=Hashable)
Record = Mapping[str, Any]

SIGNS = {"better": "▲", "equal": "=", "worse": "▼"}
LEGEND = (
    "▲ better, = no significant difference, ▼ worse than the paper's figure (Welch's test at 5 %, the paper's variance "
    "from its printed interval)."
)
PLAIN: DecoderKind = "log_mlp"  # decoder of the N-VAE: at c = 0 it is an MLP
LIMIT = (
    "The P-VAE of c = 0 is not in the paper: it has the functions of the N-VAE, with the first layer of the decoder "
    "written as gyroplanes, and shows what of a gain is curvature."
)


def kind(config: Config) -> str:
    """The model in the paper's words."""
    if config.curvature == 0 and not config.learn_curvature:
        return "N-VAE" if config.decoder == PLAIN else "P-VAE"
    return "Riemannian" if config.posterior == "riemannian" else "wrapped"


def kinds(bases: Sequence[Config], curvatures: Sequence[float], count: int, first: int) -> dict[str, list[Config]]:
    """The N-VAE, the P-VAE of c = 0 and both normals by name: each base with all curvatures and so many seeds."""

    def grid(values: Sequence[float], **settings: Any) -> list[Config]:
        curved = (replace(base, curvature=c, **settings) for base in bases for c in values)
        return [config for one in curved for config in seeds(one, count, first)]

    return {
        "flat": grid((0.0,), posterior="wrapped", decoder=PLAIN),
        "limit": grid((0.0,), posterior="wrapped"),
        "wrapped": grid(curvatures, posterior="wrapped"),
        "riemannian": grid(curvatures, posterior="riemannian"),
    }


def model_name(model: str, c: float) -> str:
    """How a row is called.

    Example:
        >>> model_name("N-VAE", 0.0), model_name("wrapped", 0.1)
        ('N-VAE', 'wrapped, c = 0.1')
    """
    return model if model == "N-VAE" else f"{model}, c = {c:g}"


def references(found: Mapping[Any, Mapping[int, Record]], model: str, c: float, *rest: float) -> dict[str, Any]:
    """What `cell` shall compare a model with, among the cells (model, c, …) that agree in the rest: flat models."""
    return {
        "flat": None if model == "N-VAE" else found["N-VAE", 0.0, *rest],
        "limit": found["P-VAE", 0.0, *rest] if c else None,
    }


def trainings_of(results: Results) -> Iterator[tuple[Config, Record]]:
    """Every training with its whole configuration."""
    for result in results.values():
        for record in result.get("trainings", ()):
            yield configuration(result["settings"]["config"], record["config"]), record


def gather(results: Results, key: Callable[[Config], Key]) -> dict[Key, dict[int, Record]]:
    """Trainings by cell and seed."""
    found: dict[Key, dict[int, Record]] = {}
    for config, record in trainings_of(results):
        found.setdefault(key(config), {})[config.seed] = record
    return found


def figures(records: Mapping[int, Record], name: str = "nll") -> dict[int, float]:
    """A figure by seed, without trainings that failed."""
    return {seed: r[name] for seed, r in records.items() if "failure" not in r and r[name] is not None}


def cell(
    records: Mapping[int, Record],
    printed: Printed | None = None,
    flat: Mapping[int, Record] | None = None,
    name: str = "nll",
    lower_is_better: bool = True,
    limit: Mapping[int, Record] | None = None,
) -> dict[str, Any]:
    """The figures of a cell and its comparisons.

    Arguments:
        records: trainings of the cell by seed.
        printed: what the paper has there.
        flat: trainings of the ordinary VAE by seed, on the same data.
        name: of the figure.
        lower_is_better: the direction of the figure.
        limit: trainings of the P-VAE of c = 0 by seed, on the same data.
    """
    values = figures(records, name)
    result: dict[str, Any] = {
        "seeds": {str(seed): value for seed, value in values.items()},
        "failed": len(records) - len(values),
    }
    if not values:
        return result
    result["ours"] = asdict(estimate(list(values.values())))
    if printed is not None:
        result["paper"] = asdict(printed)
        if len(values) > 1:
            result["against_paper"] = _marked(against_printed(list(values.values()), printed), lower_is_better)
    for key, other in (("against_flat", flat), ("against_limit", limit)):
        if other is not None and (test := beside(values, figures(other, name))):
            result[key] = _marked(test, lower_is_better)
    return result


def beside(a: Mapping[Key, float], b: Mapping[Key, float], ratio: float = 0.0) -> Test | None:
    """The first minus the second, over the seeds that they share; None for fewer than two. `ratio` as of `Paired`."""
    shared = [seed for seed in a if seed in b]
    return paired([a[s] for s in shared], [b[s] for s in shared], ratio) if len(shared) > 1 else None


def _marked(test: Test, lower_is_better: bool) -> dict[str, Any]:
    return {**asdict(test), "mark": mark(test, lower_is_better)}


def number(value: float, digits: int = 2, sign: bool = False) -> str:
    """With a true minus sign."""
    return f"{value:{'+' if sign else ''}.{digits}f}".replace("-", "−")


def interval_text(value: Mapping[str, Any] | None, digits: int = 2) -> str:
    """ "57.02 ± 0.14" from mean and half-width, with a dash for what is not known."""
    if value is None or value.get("mean") is None:
        return "–"
    half = value.get("half")
    return number(value["mean"], digits) + ("" if half is None else f" ± {half:.{digits}f}")


def p_text(p: float | None) -> str:
    """A p-value as people write it.

    Example:
        >>> p_text(0.034), p_text(1e-9)
        ('0.034', '< 0.0001')
    """
    if p is None:
        return "–"
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"


def requirements_table(requirements: Sequence[Mapping[str, Any]]) -> Table:
    """What had to be shown, and whether it was."""
    rows = [[str(r["what"]), str(r["found"]), "yes" if r["holds"] else "no"] for r in requirements]
    return Table(["to be shown", "found", "holds"], rows)


def cell_text(found: Mapping[str, Any], digits: int = 2) -> tuple[str, str]:
    """Paper and ours, the latter with its sign against the paper and its failures."""
    text = interval_text(found.get("ours"), digits)
    if "against_paper" in found:
        text += f" {SIGNS[found['against_paper']['mark']]}"
    if found.get("failed"):
        text += f" ({found['failed']} failed)"
    return interval_text(found.get("paper"), 1), text


def difference_text(test: Mapping[str, Any] | None, digits: int = 2) -> str:
    """ "−1.05 ± 0.11"."""
    return "–" if test is None else f"{number(test['difference'], digits, sign=True)} ± {test['half']:.{digits}f}"


def comparison_texts(test: Mapping[str, Any] | None, digits: int = 2) -> list[str]:
    """A difference and its p-value, for two columns."""
    return [difference_text(test, digits), p_text(test["p"] if test else None)]


def worst_divergence(results: Results) -> dict[str, float]:
    """How far below 0 any model's mean divergence from the prior lies, in standard errors, and the lowest of a row."""
    records = [record for _, record in trainings_of(results)]
    return {
        "lowest_in_errors": float(min(r["kl"] / max(r["kl_error"], 1e-12) for r in records)),
        "lowest": float(min(r["kl"] for r in records)),
        "lowest_row": float(np.min([r["kl_lowest_row"] for r in records])),
    }
