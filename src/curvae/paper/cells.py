"""Cells of a table: trainings gathered, tested against the paper's figures and against flat models, and as text."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from typing import Any, Literal

import numpy as np
from scipy import stats

from ..maps.statistics import LEVEL, mean_interval
from ..nn.networks import DecoderKind
from ..report import Table
from ..training import Config
from ..training.comparison import Paired
from .experiment import Results, configuration, seeds

__all__ = [
    "LEGEND",
    "LIMIT",
    "PLAIN",
    "SIGNS",
    "Cell",
    "Estimate",
    "Key",
    "Mark",
    "Record",
    "Test",
    "against_printed",
    "beside",
    "cell",
    "cell_text",
    "compare",
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
    "requirement",
    "requirements_table",
    "trend",
]

Mark = Literal["better", "equal", "worse"]
Key = tuple[Any, ...]  # what distinguishes a cell: model, curvature, dimension
Record = Mapping[str, Any]  # figures of a training
Cell = Mapping[str, Any]

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


# --- tests ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """Mean and half-width of its 95 % interval over `n` trainings, ours or the paper's."""

    mean: float
    half: float
    n: int


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
    """Compute the mean and the half-width of its 95 % interval by Student's t; nan for a single value.

    Example:
        >>> found = estimate([1.0, 2.0, 3.0])
        >>> round(found.mean, 3), round(found.half, 3), found.n
        (2.0, 2.484, 3)
    """
    return Estimate(*(mean_interval(values) if len(values) > 1 else (float(values[0]), math.nan)), len(values))


def against_printed(values: Sequence[float], printed: Estimate) -> Test:
    """Test ours minus the paper's, by Welch's test; the printed interval is taken as one by Student's t."""
    own = float(np.var(values, ddof=1)) / len(values)
    other = (printed.half / float(stats.t.ppf(1 - LEVEL / 2, printed.n - 1))) ** 2
    difference, error = float(np.mean(values)) - printed.mean, math.sqrt(own + other)
    if error == 0:
        return Test(difference, 0.0, 1.0 if difference == 0 else 0.0, math.inf)
    df = (own + other) ** 2 / (own**2 / (len(values) - 1) + other**2 / (printed.n - 1))
    half = float(stats.t.ppf(1 - LEVEL / 2, df)) * error
    return Test(difference, half, float(2 * stats.t.sf(abs(difference) / error, df)), df)


def paired(a: Sequence[float], b: Sequence[float], ratio: float = 0.0) -> Test:
    """Test a − b, by the t-test on differences of trainings that share seed and data; `ratio` as of `Paired`."""
    found = Paired(np.subtract(a, b), ratio)  # type: ignore[arg-type]
    return Test(found.mean, found.interval, found.p_value, len(a) - 1)


def linear_contrast(columns: Sequence[Sequence[float]], x: Sequence[float]) -> Test:
    """Test the slope over x, by the t-test on the slopes that each seed shows by itself.

    Arguments:
        columns: for each x, a figure a seed, in the same order of seeds.
        x: at least two values.
    """
    weights = np.asarray(x, dtype=np.float64) - np.mean(x)
    slopes = np.asarray(columns, dtype=np.float64).T @ weights / (weights @ weights)
    return paired(slopes, np.zeros_like(slopes))


def beside(a: Mapping[Any, float], b: Mapping[Any, float], ratio: float = 0.0) -> Test | None:
    """Test a − b over the seeds that they share; None for fewer than two. `ratio` as of `Paired`."""
    shared = [seed for seed in a if seed in b]
    return paired([a[s] for s in shared], [b[s] for s in shared], ratio) if len(shared) > 1 else None


def trend(columns: Sequence[Mapping[int, float]], x: Sequence[float]) -> Test | None:
    """Test the slope over x, over the seeds that all columns share; None for fewer than two seeds or columns."""
    shared = sorted(set.intersection(*(set(column) for column in columns)))
    enough = len(shared) > 1 and len(columns) > 1
    return linear_contrast([[column[s] for s in shared] for column in columns], x) if enough else None


def mark(test: Test, lower_is_better: bool = True, level: float = LEVEL) -> Mark:
    """Put the difference into a word."""
    if not test.p < level:
        return "equal"
    return "better" if (test.difference < 0) == lower_is_better else "worse"


# --- cells ----------------------------------------------------------------------------------------------------------


def kind(config: Config) -> str:
    """Name the model in the paper's words."""
    if config.curvature == 0 and not config.learn_curvature:
        return "N-VAE" if config.decoder == PLAIN else "P-VAE"
    return "Riemannian" if config.posterior == "riemannian" else "wrapped"


def kinds(bases: Sequence[Config], curvatures: Sequence[float], count: int, first: int) -> dict[str, list[Config]]:
    """List the N-VAE, the P-VAE of c = 0 and both normals by name: each base with all curvatures and `count` seeds."""

    def grid(values: Sequence[float], **settings: Any) -> list[Config]:
        curved = (replace(base, curvature=c, **settings) for base in bases for c in values)
        return [config for one in curved for config in seeds(one, count, first)]

    return {
        "flat": grid((0.0,), posterior="wrapped", decoder=PLAIN),
        "limit": grid((0.0,), posterior="wrapped"),
        "wrapped": grid(curvatures, posterior="wrapped"),
        "riemannian": grid(curvatures, posterior="riemannian"),
    }


# What can distinguish cells, from the configuration of a training.
_COLUMNS: dict[str, Callable[[Config], Any]] = {
    "model": kind,
    "c": attrgetter("curvature"),
    "prior_scale": lambda config: config.prior_scales[0],
    "dim": attrgetter("dim"),
    "decoder": attrgetter("decoder"),
}


def gather(results: Results, columns: Sequence[str]) -> dict[Key, dict[int, Record]]:
    """Collect trainings by cell and seed."""
    found: dict[Key, dict[int, Record]] = {}
    for result in results.values():
        for record in result.get("trainings", ()):
            config = configuration(result["settings"]["config"], record["config"])
            found.setdefault(tuple(_COLUMNS[name](config) for name in columns), {})[config.seed] = record
    return found


def figures(records: Mapping[int, Record], name: str = "nll") -> dict[int, float]:
    """Take a figure by seed, without trainings that failed."""
    return {seed: r[name] for seed, r in records.items() if "failure" not in r and r[name] is not None}


def cell(
    records: Mapping[int, Record],
    printed: Estimate | None = None,
    flat: Mapping[int, Record] | None = None,
    name: str = "nll",
    lower_is_better: bool = True,
    limit: Mapping[int, Record] | None = None,
) -> dict[str, Any]:
    """Compute the figures of a cell and its comparisons.

    Arguments:
        records: trainings of the cell by seed.
        printed: the paper's figure.
        flat: trainings of the ordinary VAE by seed, on the same data.
        name: of the figure.
        lower_is_better: the direction of the figure.
        limit: trainings of the P-VAE of c = 0 by seed, on the same data.
    """
    values = figures(records, name)
    own = list(values.values())
    result: dict[str, Any] = {
        "seeds": {str(seed): value for seed, value in values.items()},
        "failed": len(records) - len(values),
    }
    if not values:
        return result
    result["ours"] = asdict(estimate(own))
    if printed is not None:
        result["paper"] = asdict(printed)
    tests = {
        "against_paper": None if printed is None or len(own) < 2 else against_printed(own, printed),
        "against_flat": beside(values, figures(flat or {}, name)),
        "against_limit": beside(values, figures(limit or {}, name)),
    }
    marked = {key: {**asdict(test), "mark": mark(test, lower_is_better)} for key, test in tests.items() if test}
    return result | marked


def compare(
    found: Mapping[Key, Mapping[int, Record]],
    columns: Sequence[str],
    printed: Mapping[Key, Estimate],
    more: Mapping[Key, Mapping[str, Any]],
    name: str = "nll",
    lower_is_better: bool = True,
) -> list[dict[str, Any]]:
    """Make the cells of a table whose first two columns are model and curvature.

    Each is compared with the paper's figure and with the flat models that agree in all further columns.

    Arguments:
        found: trainings by cell, as of `gather`.
        columns: names of what distinguishes the cells.
        printed: the paper's figures.
        more: further figures of each cell.
        name, lower_is_better: as of `cell`.
    """
    cells = []
    for key, records in found.items():
        model, c, *rest = key
        flat = None if model == "N-VAE" else found["N-VAE", 0.0, *rest]
        limit = found["P-VAE", 0.0, *rest] if c else None
        tested = cell(records, printed.get(key), flat, name, lower_is_better, limit)
        cells.append({**dict(zip(columns, key, strict=True)), **more.get(key, {}), **tested})
    return cells


def requirement(what: str, found: str, holds: bool) -> dict[str, Any]:
    """Describe what had to be shown, what was found, and whether it holds."""
    return {"what": what, "found": found, "holds": holds}


# --- text -----------------------------------------------------------------------------------------------------------


def model_name(model: str, c: float) -> str:
    """Name a row.

    Example:
        >>> model_name("N-VAE", 0.0), model_name("wrapped", 0.1)
        ('N-VAE', 'wrapped, c = 0.1')
    """
    return model if model == "N-VAE" else f"{model}, c = {c:g}"


def number(value: float, digits: int = 2, sign: bool = False) -> str:
    """Format with a true minus sign."""
    return f"{value:{'+' if sign else ''}.{digits}f}".replace("-", "−")


def interval_text(value: Mapping[str, Any] | None, digits: int = 2) -> str:
    """Format "57.02 ± 0.14" from mean and half-width, with a dash for what is not known."""
    if value is None or value.get("mean") is None:
        return "–"
    half = value.get("half")
    return number(value["mean"], digits) + ("" if half is None else f" ± {half:.{digits}f}")


def p_text(p: float | None, equals: str = "") -> str:
    """Format a p-value, with a sign before those that are given exactly.

    Example:
        >>> p_text(0.034), p_text(1e-9)
        ('0.034', '< 0.0001')
    """
    if p is None:
        return "–"
    return "< 0.0001" if p < 1e-4 else f"{equals}{p:.2g}"


def cell_text(found: Cell, digits: int = 2) -> tuple[str, str]:
    """Format paper and ours, the latter with its sign against the paper and its failures."""
    text = interval_text(found.get("ours"), digits)
    if "against_paper" in found:
        text += f" {SIGNS[found['against_paper']['mark']]}"
    if found.get("failed"):
        text += f" ({found['failed']} failed)"
    return interval_text(found.get("paper"), 1), text


def difference_text(test: Mapping[str, Any] | None, digits: int = 2) -> str:
    """Format "−1.05 ± 0.11"."""
    return "–" if test is None else f"{number(test['difference'], digits, sign=True)} ± {test['half']:.{digits}f}"


def comparison_texts(test: Mapping[str, Any] | None, digits: int = 2) -> list[str]:
    """Format a difference and its p-value, for two columns."""
    return [difference_text(test, digits), p_text(test["p"] if test else None)]


def requirements_table(requirements: Sequence[Mapping[str, Any]]) -> Table:
    """Show what had to be shown, and whether it was."""
    return Table(
        ["to be shown", "found", "holds"],
        [[str(r["what"]), str(r["found"]), "yes" if r["holds"] else "no"] for r in requirements],
    )
