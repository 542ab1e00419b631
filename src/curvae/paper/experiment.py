"""What an experiment of the paper is made of: shards, most of them trainings, cells of tables, and the page.

A shard trains a list of configurations as stacks and judges them by marginal likelihood, or first searches for settings
on rows that are kept from the training data. A cell gathers trainings, tests them against the paper's figures and
against flat models, and becomes text.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from scipy import stats

from ..maps.statistics import LEVEL, mean_interval
from ..models.likelihoods.base import Matrix
from ..nn.networks import DecoderKind
from ..report import Section, Table
from ..report.page import Tone
from ..runs.run import Reporter
from ..training import Config, Embedding, Fitted, Rows, Scaling, Split, build, fit_many
from ..training.comparison import Paired
from ..training.evaluate import Likelihoods, active_dimensions, likelihoods_many
from ..training.storage import read_tensors, write_tensors

__all__ = [
    "LEGEND",
    "LIMIT",
    "PICTURES",
    "PLAIN",
    "SIGNS",
    "Cell",
    "Estimate",
    "Experiment",
    "ExperimentData",
    "Key",
    "Mark",
    "Page",
    "Plan",
    "Record",
    "Results",
    "Search",
    "Shard",
    "Test",
    "Trainings",
    "Workspace",
    "against_printed",
    "beside",
    "cell",
    "cell_text",
    "compare",
    "comparison_texts",
    "configuration",
    "difference_text",
    "estimate",
    "figures",
    "gather",
    "interval_text",
    "kind",
    "kinds",
    "lower_requirement",
    "mark",
    "markdown",
    "model_name",
    "number",
    "p_text",
    "paired",
    "requirement",
    "requirements_table",
    "seeds",
    "split_settings",
    "table_lines",
    "train",
    "trend",
]

PICTURES = "figures"  # folder beside the results
Results = Mapping[str, Mapping[str, Any]]  # results of the shards of an experiment, by name

# Models whose likelihoods are computed at once: more would not be faster, and take more memory.
_AT_ONCE = 40
# Draws a row for the divergence from the prior.
_DRAWS = 32
_ROWS = 4096
# Rows on which TF32 products are checked against float32 ones.
_CHECKED = 200
_FAR = 1000  # between the seeds of a search and those that are judged


@dataclass(frozen=True)
class Plan:
    """How much of an experiment to do.

    Attributes:
        quick: the same code with fewer seeds, epochs, cells and samples; its figures mean little.
        seed: the first of the seeds.
    """

    quick: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Workspace:
    """Where a shard is computed, and where its messages go.

    Attributes:
        device: on which to compute.
        cache: folder for trained models that other experiments can use.
        jobs: processes for trainings on a CPU.
        reporter: receives messages and progress.
        task: name of the work in messages.
    """

    device: torch.device
    cache: Path
    jobs: int = 1
    reporter: Reporter = field(default_factory=Reporter)
    task: str = ""

    def progress(self, what: str) -> Callable[[float, float], None]:
        """Return a function that reports the work done and the work in all."""
        return lambda done, total: self.reporter.progress(f"{self.task} {what}", done, total, "")


@dataclass(frozen=True)
class Shard:
    """A piece of an experiment, small enough for a few minutes on one CUDA device.

    Attributes:
        name: unique within the experiment.
        settings: all that determines its figures, as JSON values; a stored result with others is out of date.
        work: computes its figures, as JSON values.
    """

    name: str
    settings: Mapping[str, Any]
    work: Callable[[Workspace], dict[str, Any]]


@dataclass(frozen=True)
class Page:
    """What a result says, for HTML and Markdown alike.

    Attributes:
        verdict: in a sentence.
        tone: of the verdict.
        sections: in order.
        brief: the result in a few rows.
        gallery: captions of pictures that shards drew, by file name in the folder of figures.
    """

    verdict: str
    tone: Tone
    sections: Sequence[Section]
    brief: Table | None = None
    gallery: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """A table or a set of figures of the paper.

    Attributes:
        name: on the command line.
        title: in words.
        shards: the pieces, for a plan.
        summarise: cells and tests from the figures of all shards, as JSON values.
        page: from that summary.
        minutes: about how long all shards take on one H200.
    """

    name: str
    title: str
    shards: Callable[[Plan], Sequence[Shard]]
    summarise: Callable[[Results], dict[str, Any]]
    page: Callable[[Mapping[str, Any]], Page]
    minutes: float


def markdown(title: str, page: Page, warnings: Sequence[str], note: str, files: Mapping[int, str]) -> str:
    """Write a page as Markdown; `files` holds the path of each picture, by the picture's `id`."""
    paragraphs = [f"# {title}", page.verdict, *(f"> {warning}" for warning in warnings)]
    for section in page.sections:
        paragraphs += [f"## {section.title}", *section.text]
        for picture in section.pictures:
            paragraphs += [f"![{picture.alt}]({files[id(picture)]})", picture.caption]
        for table in section.tables:
            paragraphs += ["\n".join(table_lines(table)), *([table.note] if table.note else [])]
    for name, caption in page.gallery.items():
        paragraphs += [f"![{caption}]({PICTURES}/{name})", caption]
    return "\n\n".join([*paragraphs, note]) + "\n"


def table_lines(table: Table) -> list[str]:
    """Write a table as lines of Markdown."""
    rows = [table.header, ["---"] * len(table.header), *table.rows]
    return [f"| {' | '.join(cell.replace('|', '¦') for cell in row)} |" for row in rows]


# --- trainings ------------------------------------------------------------------------------------------------------


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
        own = {"samples": self.samples, "data": dict(self.data), "tf32_likelihoods": self.tf32}
        return Shard(name, {**split_settings(self.configs), **own}, self.run)

    def run(self, workspace: Workspace) -> dict[str, Any]:
        """Train and judge; return the figures of every training."""
        by_seed = {seed: self.dataset(seed) for seed in dict.fromkeys(config.seed for config in self.configs)}
        datasets = [by_seed[config.seed] for config in self.configs]
        began = time.perf_counter()
        fitted = train(self.configs, datasets, workspace, self.cache, again=True)
        trained = time.perf_counter()
        found, gap = self._judge(fitted, [dataset.test for dataset in datasets], workspace)
        judged = time.perf_counter()
        own = split_settings(self.configs)["trainings"]
        # Seeds may share their data, which is then on the device once.
        tests = {id(one): Rows(one.test, one.scaling, workspace.device) for one in by_seed.values()}
        more = [{}] * len(fitted) if self.extra is None else self.extra(fitted, datasets, workspace)
        records = [
            {"config": settings, **_figures(one, tests[id(dataset)], likelihoods), **figures}
            for settings, one, dataset, likelihoods, figures in zip(own, fitted, datasets, found, more, strict=True)
        ]
        seconds = {
            "training": trained - began,
            "likelihoods": judged - trained,
            "other": time.perf_counter() - judged,
        }
        return {"trainings": records, "seconds_by_part": seconds, **({} if gap is None else {"tf32_gap": gap})}

    def _judge(
        self, fitted: Sequence[Fitted], tests: Sequence[Matrix], workspace: Workspace
    ) -> tuple[list[Likelihoods], float | None]:
        """Likelihoods of the test rows, and what TF32 products change in one of them, where they are used."""
        advance = workspace.reporter.counter(f"{workspace.task} likelihoods", sum(test.shape[0] for test in tests))
        found: list[Likelihoods] = []
        for start in range(0, len(fitted), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            found += likelihoods_many(fitted[part], tests[part], self.samples, advance=advance, tf32=self.tf32)
        if not (self.tf32 and workspace.device.type == "cuda"):
            return found, None
        few = tests[0][:_CHECKED]
        exact, rough = (likelihoods_many(fitted[:1], [few], self.samples, tf32=tf32)[0].mean for tf32 in (False, True))
        return found, rough - exact


def _figures(fitted: Fitted, test: Rows, likelihoods: Likelihoods) -> dict[str, Any]:
    """Likelihood of the test rows, where their posteriors lie, and the divergence of those from the prior.

    The divergence is the mean over rows of log q(z|x) − log p(z), with its Monte Carlo standard error, and the lowest
    mean of any row.
    """
    model = fitted.model
    generator = torch.Generator(model.device).manual_seed(0)
    means, variances, centres = [], [], []
    with torch.no_grad():
        for index in torch.arange(len(test), device=model.device).split(_ROWS):
            batch = test.batch(index)
            centres.append(model.encode(batch).loc)
            _, kl = model.draw(batch, model.noise(len(batch), _DRAWS, generator))
            means.append(kl.mean(0))
            variances.append(kl.var(0) / _DRAWS)
        mean, variance, space = torch.cat(means), torch.cat(variances), torch.cat(centres).cpu().numpy()
        _, _, c, scale = model.space.figures()[0]
    embedding = Embedding(space, np.empty(0), c)
    learned = fitted.config.learn_curvature or fitted.config.learn_prior_scale
    return {
        "nll": -likelihoods.mean,
        "nll_error": float(np.sqrt((likelihoods.error**2).sum()) / len(likelihoods.error)),
        "median_ess": float(np.median(likelihoods.ess)),
        "kl": float(mean.mean()),
        "kl_error": float(variance.sum().sqrt()) / len(mean),
        "kl_lowest_row": float(mean.min()),
        "active_dimensions": active_dimensions(embedding, scale),
        "mean_radius": float(embedding.radius.mean()),
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
        """Try all settings, then train the best; return the scores of all and the figures of the best."""
        began = time.perf_counter()
        short = [
            one
            for config in self.tried
            for one in seeds(replace(config, epochs=self.epochs), self.numbers[0], _FAR + self.first)
        ]
        found = Trainings(short, self.samples[0], self.trial, self.data, self.tf32).run(
            replace(workspace, task=f"{workspace.task}, search")
        )
        # A training that failed is never chosen.
        judged = [np.inf if "failure" in record else record["nll"] for record in found["trainings"]]
        scores = np.reshape(judged, (len(self.tried), -1)).mean(1)
        best = self.tried[int(scores.argmin())]
        middle = time.perf_counter()
        result = Trainings(
            seeds(best, self.numbers[1], self.first), self.samples[1], self.dataset, self.data, self.tf32, self.extra
        ).run(workspace)
        for record in result["trainings"]:
            record["seed"] = record.pop("config")["seed"]
        return {
            "validation_nll": [float(score) for score in scores],
            "chosen": best.flat(),
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
    """Train models; with `cache`, keep them under that name.

    Models that were kept with the same settings are loaded instead, unless `again`.
    """
    path = workspace.cache / f"{cache}.safetensors"
    settings = json.dumps([config.flat() for config in configs])
    if cache is not None and not again and path.exists():
        tensors, metadata = read_tensors(path)
        if metadata.get("configs") == settings:
            fitted = []
            for i, (config, dataset) in enumerate(zip(configs, datasets, strict=True)):
                model, prefix = build(config, dataset.x.shape[1]), f"{i}."  # with which names of its parameters begin
                model.load_state_dict({n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)})
                model.to(workspace.device).eval()
                fitted.append(Fitted(config, model, dataset.scaling, "as asked", dataset.split, []))
            return fitted
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
    if cache is not None:
        kept = {f"{i}.{name}": t for i, one in enumerate(fitted) for name, t in one.model.state_dict().items()}
        write_tensors(path, kept, {"configs": settings})
    return fitted


def split_settings(configs: Sequence[Config]) -> dict[str, Any]:
    """Split configurations into what they share, "config", and what each has for itself, "trainings".

    The seed always belongs to the latter.

    Example:
        >>> found = split_settings([Config(seed=0), Config(seed=1)])
        >>> found["trainings"], found["config"]["dim"]
        ([{'seed': 0}, {'seed': 1}], 2)
    """
    every = [config.flat() for config in configs]
    common = {k: v for k, v in every[0].items() if k != "seed" and all(other[k] == v for other in every)}
    return {"config": common, "trainings": [{k: v for k, v in one.items() if k not in common} for one in every]}


def configuration(common: Mapping[str, Any], own: Mapping[str, Any]) -> Config:
    """Join what `split_settings` took apart, for one training."""
    return Config.from_json({**common, **own})


def seeds(config: Config, count: int, first: int = 0) -> list[Config]:
    """Repeat a configuration with `count` seeds."""
    return [replace(config, seed=seed) for seed in range(first, first + count)]


# --- tests and cells of tables --------------------------------------------------------------------------------------

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


def beside(a: Mapping[Any, float], b: Mapping[Any, float], ratio: float = 0.0) -> Test | None:
    """Test a − b over the seeds that they share; None for fewer than two. `ratio` as of `Paired`."""
    shared = [seed for seed in a if seed in b]
    return paired([a[s] for s in shared], [b[s] for s in shared], ratio) if len(shared) > 1 else None


def trend(columns: Sequence[Mapping[int, float]], x: Sequence[float]) -> Test | None:
    """Test the slope over x, by the t-test on the slopes that each seed shows by itself: a linear contrast.

    None for fewer than two columns, or two seeds that all columns share.

    Arguments:
        columns: for each x, a figure by seed.
        x: where the columns are.
    """
    shared = sorted(set.intersection(*(set(column) for column in columns)))
    if len(shared) < 2 or len(columns) < 2:
        return None
    weights = np.asarray(x, dtype=np.float64) - np.mean(x)
    slopes = np.array([[column[s] for column in columns] for s in shared]) @ weights / (weights @ weights)
    return paired(slopes, np.zeros_like(slopes))


def mark(test: Test, lower_is_better: bool = True, level: float = LEVEL) -> Mark:
    """Put the difference into a word."""
    if not test.p < level:
        return "equal"
    return "better" if (test.difference < 0) == lower_is_better else "worse"


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


def lower_requirement(
    what: str, found: str, test: Mapping[str, Any], cells: int = 1, equals: str = ""
) -> dict[str, Any]:
    """Require a difference below 0, at 1 %; by Bonferroni's correction if the cell was chosen among `cells`."""
    p = min(1.0, test["p"] * cells)
    return requirement(what, f"{found}, p {p_text(p, equals)}", bool(test["difference"] < 0 and p < 0.01))


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
