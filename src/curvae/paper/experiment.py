"""How an experiment of the paper runs, and what its tables are made of.

An experiment is computed shard by shard. Each result is kept, so that an interrupted run resumes; when all are there,
they are merged and shown. A cell of a table gathers trainings, tests them against the paper's figures and against flat
models, and becomes text.

How shards are computed: trainings judged by marginal likelihood, searches for settings, baselines, classifiers.

The Gaussian process latent variable model (Lawrence, 2005) is a baseline for the map, as in the paper's appendix C.1.
Rows are values of independent Gaussian processes, one a column, at latent points X that are found by maximising the
marginal likelihood, with kernel k(x, x′) = s²·exp(−|x − x′|²/2ℓ²) + n²·δ. X starts at the principal components.

Classifiers on embeddings (section 4.2 and appendix C.2) are trained many at once. One has the architecture of the
decoder with as many outputs as there are classes; its first layer starts at the decoder's. Its input is the posterior's
centre.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import joblib
import numpy as np
import torch
from jinja2 import Template
from scipy.optimize import minimize
from scipy.special import stdtr, stdtrit
from threadpoolctl import threadpool_limits
from torch import Tensor, nn
from torch.distributions import MultivariateNormal
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional as F

from ..data import Tree, branching_diffusion
from ..data.files import count
from ..errors import CurvaeError
from ..hierarchy import Embedded
from ..hierarchy.trees import distortion
from ..maps.statistics import LEVEL, Array, mean_interval, rank_correlation
from ..models import GraphVAE
from ..models.graph_vae import AnyPairs
from ..models.likelihoods.base import Matrix
from ..nn import Curvature, decoder
from ..nn.layers import Curved
from ..nn.networks import DecoderKind
from ..report import Picture, Report, Section, Table, Tone
from ..runs.run import Reporter, today
from ..settings import ADDED
from ..training import Config, Embedding, Fitted, Rows, Scaling, Split, build, fit_many
from ..training.comparison import Paired
from ..training.fitted import Likelihoods, active_dimensions, few_threads, likelihoods_many, seeded
from ..training.storage import (
    json_text,
    locked,
    read_json,
    read_tensors,
    versions,
    write_bytes,
    write_json,
    write_tensors,
    write_text,
)

__all__ = [
    "MEASURES",
    "PICTURES",
    "PLAIN",
    "SIGNS",
    "Array",
    "Experiment",
    "ExperimentData",
    "Figures",
    "Key",
    "Page",
    "Plan",
    "Results",
    "Shard",
    "Store",
    "WeightedGraphVAE",
    "Workspace",
    "against_printed",
    "cell",
    "cell_text",
    "centres",
    "classifier",
    "compare",
    "comparison_texts",
    "confusions",
    "difference_text",
    "estimate",
    "figures",
    "gather",
    "gplvm",
    "interval_text",
    "lower_requirement",
    "maps",
    "mark",
    "markdown",
    "model_name",
    "negative_log_likelihood",
    "number",
    "p_text",
    "paired",
    "principal_components",
    "recovery",
    "requirement",
    "requirements_table",
    "search_shard",
    "seeds",
    "split_settings",
    "t_test",
    "table_lines",
    "train",
    "training_shard",
    "trend",
]

PICTURES = "figures"  # folder beside the results
Results = Mapping[str, Mapping[str, Any]]  # results of the shards of an experiment, by name


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
        gallery: captions of pictures that shards drew, by file name in the folder of figures.
    """

    verdict: str
    tone: Tone
    sections: Sequence[Section]
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


@dataclass(frozen=True)
class Store:
    """The folder of an experiment's results: `<out>/<name>/<shard>.json`, `<out>/<name>.json`, `.md` and `.html`."""

    out: Path
    experiment: Experiment
    plan: Plan

    @property
    def shards(self) -> list[Shard]:
        return list(self.experiment.shards(self.plan))

    def path(self, shard: Shard) -> Path:
        return self.out / self.experiment.name / f"{shard.name}.json"

    def merged(self, ending: str = "json") -> Path:
        return self.out / f"{self.experiment.name}.{ending}"

    def read(self, shard: Shard) -> tuple[Literal["done", "missing", "outdated"], dict[str, Any]]:
        """Return the state of a shard, and what is stored of it in its own file or in the merged one."""
        if self.path(shard).exists():
            stored = read_json(self.path(shard))
        else:
            stored = read_json(self.merged())["shards"].get(shard.name) if self.merged().exists() else None
        if stored is None:
            return "missing", {}
        # Settings that were added later are left out where their value means what was done before.
        before, now = (
            json.loads(
                json_text(settings, None),
                object_hook=lambda own: {n: value for n, value in own.items() if n not in ADDED or value != ADDED[n]},
            )
            for settings in (stored.get("settings"), shard.settings)
        )
        return "done" if before == now else "outdated", dict(stored)

    def states(self) -> dict[str, str]:
        """Return the state of every shard."""
        return {shard.name: self.read(shard)[0] for shard in self.shards}

    def run(self, workspace: Workspace, only: Sequence[str] = (), force: bool = False) -> dict[str, Any] | None:
        """Compute the shards that are missing, all or those that are named; merge and show when all are there.

        With `force`, shards that are done are computed again. The merged result is None while shards are missing.
        """
        name, shards, say = self.experiment.name, self.shards, workspace.reporter.say
        if unknown := [one for one in only if one not in [shard.name for shard in shards]]:
            raise CurvaeError(f"{name} has no shard {', '.join(unknown)}; curvae paper {name} --shards lists them")
        kept = [*(self.out / name).glob("*.json"), *self.out.glob(f"{name}.json")]
        if any(read_json(path).get("quick") != self.plan.quick for path in kept):
            # Each would overwrite the other.
            raise CurvaeError(
                f"{self.out} holds results of {'full' if self.plan.quick else 'quick'} runs; choose another folder "
                "with `out=…`"
            )
        for place, shard in enumerate(shards, 1):
            if only and shard.name not in only:
                continue
            if self.read(shard)[0] == "done" and not force:
                if only:
                    say(f"{shard.name} is done; `force=True` computes it again")
                continue
            say(f"{name}: shard {shard.name}, {place} of {len(shards)}")
            with locked(self.path(shard)):  # other processes may compute other shards
                self.compute(shard, replace(workspace, task=f"{name}/{shard.name}"))
        with locked(self.merged(), 60.0):  # seconds to wait for another process that merges the same shards
            return self.merge(workspace.reporter.started)

    def compute(self, shard: Shard, workspace: Workspace) -> None:
        """Compute a shard and write its result."""
        began, cuda = time.perf_counter(), workspace.device.type == "cuda"
        # Beside a CUDA device the CPU has only small tasks, which a thread for each of many cores slows down.
        threads = 4 if cuda else None
        with few_threads(threads), threadpool_limits(threads):
            found = shard.work(workspace)
        write_json(
            self.path(shard),
            {
                "experiment": self.experiment.name,
                "shard": shard.name,
                "quick": self.plan.quick,
                "device": (
                    f"one {torch.cuda.get_device_name(workspace.device)}"
                    if cuda
                    else count(joblib.cpu_count(), "CPU core")
                ),
                "seconds": round(time.perf_counter() - began, 1),
                "versions": versions(),
                "date": today(),
                "settings": shard.settings,
                **found,
            },
        )

    def merge(self, command: str = "") -> dict[str, Any] | None:
        """Write the summary with all shards, and the pages that `command` makes; None while shards are missing."""
        read = {shard.name: self.read(shard) for shard in self.shards}
        if any(state != "done" for state, _ in read.values()):
            return None
        known = {name: stored for name, (_, stored) in read.items()}
        result = {
            "experiment": self.experiment.name,
            "title": self.experiment.title,
            "quick": self.plan.quick,
            "seed": self.plan.seed,
            "device": " and ".join(dict.fromkeys(str(one["device"]) for one in known.values())),
            "seconds": round(sum(one["seconds"] for one in known.values()), 1),
            "versions": next(iter(known.values()))["versions"],
            "date": max(one["date"] for one in known.values()),
            **json.loads(json_text(self.experiment.summarise(known), None)),  # as it is read back from the file
            "shards": known,
        }
        write_json(self.merged(), result, 1)
        self.show(result, command)
        return result

    def show(self, result: Mapping[str, Any], command: str) -> None:
        """Write the pages of a merged result, and their pictures as files."""
        page, folder = self.experiment.page(result), self.out / PICTURES
        quick = "This was a quick run that only shows that everything works; its figures mean little."
        for k, picture in enumerate((picture for section in page.sections for picture in section.pictures), 1):
            write_bytes(folder / f"{self.experiment.name}-{k}.png", picture.png)
        write_text(self.merged("md"), markdown(page, result, [quick] if result["quick"] else []))
        drawn = [
            Picture((folder / name).read_bytes(), caption, caption, wide=True) for name, caption in page.gallery.items()
        ]
        report = Report(
            self.experiment.title,
            page.verdict,
            page.tone,
            [quick] if result["quick"] else [],
            [*page.sections, Section("Pictures", pictures=drawn)],
            command,
            result["versions"],
            result["seed"],
            result["date"],
        )
        write_text(self.merged("html"), report.html())


def markdown(page: Page, result: Mapping[str, Any], warnings: Sequence[str]) -> str:
    """Write the page of a merged result as Markdown; its pictures are files in the folder `PICTURES`."""
    source = resources.files(__package__).joinpath("page.md").read_text("utf-8")
    return Template(source, trim_blocks=True, keep_trailing_newline=True).render(
        page=page,
        result=result,
        warnings=warnings,
        folder=PICTURES,
        number=itertools.count(1).__next__,  # of a picture, as its file has it
        lines=table_lines,
    )


def table_lines(table: Table) -> list[str]:
    """Write a table as lines of Markdown."""
    rows = [table.header, ["---"] * len(table.header), *table.rows]
    return [f"| {' | '.join(cell.replace('|', '¦') for cell in row)} |" for row in rows]


# --- tests and cells of tables --------------------------------------------------------------------------------------
# Estimates and tests are JSON values: {"mean", "half", "n"}, with the half-width of the 95 % interval of the mean over
# n trainings, and {"difference", "half", "p", "df"}, with the two-sided p-value and its degrees of freedom.

Key = tuple[Any, ...]  # what distinguishes a cell: model, curvature, dimension
Figures = Mapping[str, Any]  # of a training, of a cell, of a test

SIGNS = {"better": "▲", "equal": "=", "worse": "▼"}
PLAIN: DecoderKind = "log_mlp"  # decoder of the N-VAE: at c = 0 it is an MLP


def estimate(values: Sequence[float]) -> dict[str, Any]:
    """Compute the mean and the half-width of its 95 % interval by Student's t; nan for a single value.

    Example:
        >>> found = estimate([1.0, 2.0, 3.0])
        >>> round(found["mean"], 3), round(found["half"], 3), found["n"]
        (2.0, 2.484, 3)
    """
    mean, half = mean_interval(values) if len(values) > 1 else (float(values[0]), math.nan)
    return {"mean": mean, "half": half, "n": len(values)}


def against_printed(values: Sequence[float], printed: Figures) -> dict[str, Any]:
    """Test ours minus the paper's, by Welch's test; the printed interval is taken as one by Student's t."""
    own = float(np.var(values, ddof=1)) / len(values)
    other = (printed["half"] / float(stdtrit(printed["n"] - 1, 1 - LEVEL / 2))) ** 2
    difference, error = float(np.mean(values)) - printed["mean"], math.sqrt(own + other)
    if error == 0:
        return {"difference": difference, "half": 0.0, "p": 1.0 if difference == 0 else 0.0, "df": math.inf}
    df = (own + other) ** 2 / (own**2 / (len(values) - 1) + other**2 / (printed["n"] - 1))
    half, p = float(stdtrit(df, 1 - LEVEL / 2)) * error, float(2 * stdtr(df, -abs(difference) / error))
    return {"difference": difference, "half": half, "p": p, "df": df}


def t_test(differences: Sequence[float], ratio: float = 0.0) -> dict[str, Any]:
    """Test the mean of differences between trainings that share seed and data; `ratio` as of `Paired`."""
    found = Paired(differences, ratio)
    return {"difference": found.mean, "half": found.interval, "p": found.p_value, "df": len(differences) - 1}


def paired(a: Mapping[Any, float], b: Mapping[Any, float], ratio: float = 0.0) -> dict[str, Any] | None:
    """Test a − b over the seeds that they share; None for fewer than two."""
    differences = [a[seed] - b[seed] for seed in a if seed in b]
    return t_test(differences, ratio) if len(differences) > 1 else None


def trend(columns: Sequence[Mapping[int, float]], x: Sequence[float]) -> dict[str, Any] | None:
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
    return t_test(np.array([[column[s] for column in columns] for s in shared]) @ weights / (weights @ weights))


def mark(test: Figures, lower_is_better: bool = True) -> Literal["better", "equal", "worse"]:
    """Put the difference into a word."""
    if not test["p"] < LEVEL:
        return "equal"
    return "better" if (test["difference"] < 0) == lower_is_better else "worse"


def gather(results: Results, columns: Sequence[str]) -> dict[Key, dict[int, Figures]]:
    """Collect trainings by seed and by cell: by what the columns "model", "c", "prior_scale", "dim", "decoder" say."""
    found: dict[Key, dict[int, Figures]] = {}
    for result in results.values():
        for record in result.get("trainings", ()):
            config = Config.from_json({**result["settings"]["config"], **record["config"]})
            flat = "N-VAE" if config.decoder == PLAIN else "P-VAE"
            curved = "Riemannian" if config.posterior == "riemannian" else "wrapped"
            labels = {
                "model": curved if config.curvature else flat,
                "c": config.curvature,
                "prior_scale": config.prior_scales[0],
                "dim": config.dim,
                "decoder": config.decoder,
            }
            found.setdefault(tuple(labels[name] for name in columns), {})[config.seed] = record
    return found


def figures(records: Mapping[int, Figures], name: str = "nll") -> dict[int, float]:
    """Take a figure by seed, without trainings that failed."""
    return {seed: r[name] for seed, r in records.items() if "failure" not in r and r[name] is not None}


def cell(
    records: Mapping[int, Figures],
    printed: Figures | None = None,
    flat: Mapping[int, Figures] | None = None,
    name: str = "nll",
    lower_is_better: bool = True,
    limit: Mapping[int, Figures] | None = None,
) -> dict[str, Any]:
    """Compute the figures of a cell and its comparisons.

    Arguments:
        records: trainings of the cell by seed.
        printed: the paper's estimate.
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
    tests = {
        "against_paper": None if printed is None or len(own) < 2 else against_printed(own, printed),
        "against_flat": paired(values, figures(flat or {}, name)),
        "against_limit": paired(values, figures(limit or {}, name)),
    }
    return {
        **result,
        "ours": estimate(own),
        **({"paper": printed} if printed is not None else {}),
        **{key: {**test, "mark": mark(test, lower_is_better)} for key, test in tests.items() if test},
    }


def compare(
    found: Mapping[Key, Mapping[int, Figures]],
    columns: Sequence[str],
    printed: Mapping[Key, Figures],
    more: Mapping[Key, Figures],
    name: str = "nll",
    lower_is_better: bool = True,
) -> list[dict[str, Any]]:
    """Make the cells of a table whose first two columns are model and curvature.

    Each is compared with the paper's figure and with the flat models that agree in all further columns.

    Arguments:
        found: trainings by cell, as of `gather`.
        columns: names of what distinguishes the cells.
        printed: the paper's estimates.
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


def lower_requirement(what: str, found: str, test: Figures, cells: int = 1, equals: str = "") -> dict[str, Any]:
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


def interval_text(value: Figures | None, digits: int = 2) -> str:
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
    return "–" if p is None else "< 0.0001" if p < 1e-4 else f"{equals}{p:.2g}"


def cell_text(found: Figures, digits: int = 2) -> tuple[str, str]:
    """Format paper and ours, the latter with its sign against the paper and its failures."""
    sign = f" {SIGNS[found['against_paper']['mark']]}" if "against_paper" in found else ""
    failed = f" ({found['failed']} failed)" if found.get("failed") else ""
    return interval_text(found.get("paper"), 1), interval_text(found.get("ours"), digits) + sign + failed


def difference_text(test: Figures | None, digits: int = 2) -> str:
    """Format "−1.05 ± 0.11"."""
    return "–" if test is None else f"{number(test['difference'], digits, sign=True)} ± {test['half']:.{digits}f}"


def comparison_texts(test: Figures | None, digits: int = 2) -> list[str]:
    """Format a difference and its p-value, for two columns."""
    return [difference_text(test, digits), p_text(test["p"] if test else None)]


def requirements_table(requirements: Sequence[Figures]) -> Table:
    """Show what had to be shown, and whether it was."""
    return Table(
        ["to be shown", "found", "holds"],
        [[str(r["what"]), str(r["found"]), "yes" if r["holds"] else "no"] for r in requirements],
    )


MEASURES = ("distortion", "distance_correlation", "depth_correlation")

_ROWS = 4096  # encoded at once
_DRAWS = 32  # a row, for the divergence from the prior
_JITTER = 1e-8  # added to the diagonal in units of the kernel's variance, so that rounding leaves the matrix positive


# --- trainings ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExperimentData:
    """Data of a training: rows with their split, their scaling, and the rows to judge by."""

    x: Matrix
    split: Split
    scaling: Scaling
    test: Matrix


Extra = Callable[[Sequence[Fitted], Sequence[ExperimentData], Workspace], Sequence[Mapping[str, Any]]]


def training_shard(
    name: str,
    configs: Sequence[Config],
    samples: int,
    dataset: Callable[[int], ExperimentData],
    data: Mapping[str, Any],
    *,
    tf32: bool = False,
    extra: Extra | None = None,
    cache: str | None = None,
) -> Shard:
    """Make the shard that trains models and judges them by the likelihood of their test rows.

    Arguments:
        name: of the shard.
        configs: of the trainings.
        samples: importance samples a row for the likelihoods.
        dataset: data for every seed; called once a seed.
        data: what distinguishes the data, for the settings of the shard.
        tf32: compute likelihoods on CUDA with TF32 products; a check against float32 is recorded.
        extra: more figures of every trained model, from the models and their data.
        cache: name under which the trained models are kept.
    """
    return Shard(
        name,
        {**split_settings(configs), "samples": samples, "data": dict(data), "tf32_likelihoods": tf32},
        partial(_train_and_judge, configs, samples, dataset, tf32, extra, cache),
    )


def _train_and_judge(
    configs: Sequence[Config],
    samples: int,
    dataset: Callable[[int], ExperimentData],
    tf32: bool,
    extra: Extra | None,
    cache: str | None,
    workspace: Workspace,
) -> dict[str, Any]:
    """Return the figures of every training; arguments are those of `training_shard`."""
    by_seed = {seed: dataset(seed) for seed in dict.fromkeys(config.seed for config in configs)}
    datasets = [by_seed[config.seed] for config in configs]
    fitted = train(configs, datasets, workspace, cache, again=True)
    tests = [one.test for one in datasets]
    advance = workspace.reporter.counter(f"{workspace.task} likelihoods", sum(test.shape[0] for test in tests))
    found = [
        one
        for k in range(0, len(fitted), 40)  # more at once take memory, not less time
        for one in likelihoods_many(fitted[k : k + 40], tests[k : k + 40], samples, advance=advance, tf32=tf32)
    ]
    result: dict[str, Any] = {}
    if tf32 and workspace.device.type == "cuda":
        exact, rough = (
            likelihoods_many(fitted[:1], [tests[0][:200]], samples, tf32=tf32)[0].mean for tf32 in (False, True)
        )
        result["tf32_gap"] = rough - exact
    # Seeds may share their data, which is then on the device once.
    rows = {id(one): Rows(one.test, one.scaling, workspace.device) for one in by_seed.values()}
    more = [{}] * len(fitted) if extra is None else extra(fitted, datasets, workspace)
    return {
        "trainings": [
            {"config": own, **_figures(one, rows[id(data)], likelihoods), **others}
            for own, one, data, likelihoods, others in zip(
                split_settings(configs)["trainings"], fitted, datasets, found, more, strict=True
            )
        ],
        **result,
    }


def _figures(fitted: Fitted, test: Rows, likelihoods: Likelihoods) -> dict[str, Any]:
    """Compute the likelihood of the test rows, where their posteriors lie, and their divergence from the prior.

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
    mean = torch.cat(means)
    _, _, c, scale = model.space.figures()[0]
    embedding = Embedding(torch.cat(centres).cpu().numpy(), np.empty(0), c)
    return {
        "nll": -likelihoods.mean,
        "nll_error": float(np.sqrt((likelihoods.error**2).sum()) / len(likelihoods.error)),
        "median_ess": float(np.median(likelihoods.ess)),
        "kl": float(mean.mean()),
        "kl_error": float(torch.cat(variances).sum().sqrt()) / len(mean),
        "kl_lowest_row": float(mean.min()),
        "active_dimensions": active_dimensions(embedding, scale),
        "mean_radius": float(embedding.radius.mean()),
        "training_elbo": fitted.last["elbo"],
        **(
            {name: fitted.last[name] for name in ("c", "prior_scale")}
            if fitted.config.learn_curvature or fitted.config.learn_prior_scale
            else {}
        ),
        **({} if fitted.failure is None else {"failure": fitted.failure}),
    }


def search_shard(
    name: str,
    tried: Sequence[Config],
    epochs: int,
    seed: int,
    numbers: tuple[int, int],
    samples: tuple[int, int],
    datasets: tuple[Callable[[int], ExperimentData], Callable[[int], ExperimentData]],
    data: Mapping[str, Any],
    *,
    tf32: bool = False,
    extra: Extra | None = None,
) -> Shard:
    """Make the shard that tries settings of a family of models, then trains and judges the best.

    Arguments:
        name: of the shard.
        tried: the settings.
        epochs: of the trainings that choose.
        seed: the first of those that are judged; those that choose lie far from them.
        numbers: how many seeds choose, and how many are judged.
        samples: importance samples for choosing and for judging.
        datasets: for every seed, data to choose by, with the rows that decide as test rows, and data to judge by.
        data, tf32: as of `training_shard`.
        extra: more figures of the trainings that are judged.
    """

    def search(workspace: Workspace) -> dict[str, Any]:
        short = [one for own in tried for one in seeds(replace(own, epochs=epochs), numbers[0], 1000 + seed)]
        choosing = replace(workspace, task=f"{workspace.task}, search")
        found = _train_and_judge(short, samples[0], datasets[0], tf32, None, None, choosing)["trainings"]
        # A training that failed is never chosen.
        judged = [np.inf if "failure" in record else record["nll"] for record in found]
        scores = np.reshape(judged, (len(tried), -1)).mean(1)
        best = tried[int(scores.argmin())]
        trainings = _train_and_judge(
            seeds(best, numbers[1], seed), samples[1], datasets[1], tf32, extra, None, workspace
        )["trainings"]
        for record in trainings:
            record["seed"] = record.pop("config")["seed"]
        return {
            "validation_nll": scores.tolist(),
            "chosen": best.flat(),
            "trainings": trainings,
        }

    return Shard(
        name,
        {
            "tried": [one.flat() for one in tried],
            "epochs_of_the_search": epochs,
            "seeds_of_the_search": numbers[0],
            "trainings": numbers[1],
            "first_seed": seed,
            "samples_of_the_search": samples[0],
            "samples": samples[1],
            "data": dict(data),
            "tf32_likelihoods": tf32,
        },
        search,
    )


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
        write_tensors(
            path,
            {f"{i}.{name}": t for i, one in enumerate(fitted) for name, t in one.model.state_dict().items()},
            {"configs": settings},
        )
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


def seeds(config: Config, count: int, first: int = 0) -> list[Config]:
    """Repeat a configuration with `count` seeds."""
    return [replace(config, seed=seed) for seed in range(first, first + count)]


# --- baselines of the map -------------------------------------------------------------------------------------------


def principal_components(y: Array, dim: int = 2) -> Array:
    """Project rows on the directions of the largest singular values, after centring."""
    u, s, _ = np.linalg.svd(y - y.mean(0), full_matrices=False)
    return u[:, :dim] * s[:dim]


def negative_log_likelihood(x: Array, log_scales: Array, y: Array) -> tuple[float, Array, Array]:
    """Compute −log p(Y | X) and its gradients.

    Arguments:
        x: latent points, (rows, dim).
        log_scales: logarithms of s, ℓ and n, shape (3,).
        y: data, (rows, columns), centred.

    Returns:
        The value, the gradient in x, the gradient in the logarithms.
    """
    points, logs = (torch.tensor(values, requires_grad=True) for values in (x, log_scales))
    s, length, noise = logs.exp()
    squares = (points.unsqueeze(1) - points).square().sum(-1)
    extra = (noise**2 + _JITTER * s**2) * torch.eye(len(x), dtype=torch.float64)
    kernel = s**2 * torch.exp(-squares / (2 * length**2)) + extra
    normal = MultivariateNormal(torch.zeros(len(x), dtype=torch.float64), kernel, validate_args=False)
    value = -normal.log_prob(torch.tensor(y.T)).sum()
    in_x, in_scales = torch.autograd.grad(value, (points, logs))
    return value.item(), in_x.numpy(), in_scales.numpy()


def gplvm(y: Array, dim: int = 2, iterations: int = 200) -> tuple[Array, float]:
    """Fit latent points by L-BFGS, from principal components of unit variance, s = ℓ = 1 and n² = 1/10.

    Returns:
        The points, (rows, dim), and the log-likelihood.

    Example:
        >>> y = np.random.default_rng(0).normal(size=(20, 4))
        >>> gplvm(y, iterations=5)[0].shape
        (20, 2)
    """
    y = y - y.mean(0)
    start = principal_components(y, dim)

    def objective(parameters: Array) -> tuple[float, Array]:
        value, in_x, in_scales = negative_log_likelihood(parameters[3:].reshape(-1, dim), parameters[:3], y)
        return value, np.concatenate([in_scales, in_x.ravel()])

    first = np.concatenate([[0.0, 0.0, 0.5 * np.log(0.1)], (start / start.std(0)).ravel()])
    found = minimize(objective, first, jac=True, method="L-BFGS-B", options={"maxiter": iterations})
    return found.x[3:].reshape(-1, dim), -float(found.fun)


def maps(seeds: Sequence[int], iterations: int, workspace: Workspace) -> dict[str, Any]:
    """Judge the maps of PCA and GPLVM for every data set; they are made on the CPU, a data set a core."""
    advance, found = workspace.reporter.counter(f"{workspace.task} maps", len(seeds)), []
    calls = (joblib.delayed(_judge_maps)(seed, iterations) for seed in seeds)
    for one in joblib.Parallel(n_jobs=min(len(seeds), joblib.cpu_count()), return_as="generator")(calls):
        found.append(one)
        advance()
    return {"maps": {name: [one[name] for one in found] for name in ("PCA", "GPLVM")}}


def _judge_maps(seed: int, iterations: int) -> dict[str, dict[str, float]]:
    tree = branching_diffusion(seed=seed)
    y = Scaling.standard(tree.x).apply(tree.x)  # as the models see them
    x, log_likelihood = gplvm(y, iterations=iterations)
    # A plane is the ball of curvature 0.
    pca, other = (recovery(tree, Embedded(own, 0.0)) for own in (principal_components(y), x - x.mean(0)))
    return {"PCA": {"seed": seed, **pca}, "GPLVM": {"seed": seed, **other, "log_likelihood": log_likelihood}}


def recovery(tree: Tree, points: Embedded) -> dict[str, float]:
    """Measure how well a map of a tree's observations shows the tree, in three figures of `curvae.hierarchy.Recovery`.

    Pairs are those of different nodes in the same turn: first observations with first ones, and so on. Every node has
    equally many observations.
    """
    nodes = len(tree.parent)
    turns = np.argsort(tree.node, kind="stable").reshape(nodes, -1).T
    a, b = np.triu_indices(nodes, 1)
    latent = points.pairs(turns[:, a].ravel(), turns[:, b].ravel())
    hops = np.tile(tree.distances()[a, b], len(turns)).astype(np.float64)
    depth = tree.depth[tree.node].astype(np.float64)
    return {
        "distortion": distortion(hops, latent)[0],
        "distance_correlation": rank_correlation(hops, latent),
        "depth_correlation": rank_correlation(depth, points.radius),
    }


# --- classifiers on embeddings --------------------------------------------------------------------------------------


def centres(fitted: Fitted, rows: Rows) -> Tensor:
    """Compute posterior centres S as the decoder takes them, (rows, d)."""
    model = fitted.model
    with torch.no_grad():
        return torch.cat(
            [
                model.space.saturate(model.encode(rows.batch(index)).loc, model.dtype)
                for index in torch.arange(len(rows), device=model.device).split(_ROWS)
            ]
        )


def classifier(fitted: Fitted, classes: int, seed: int) -> nn.Sequential:
    """Build a classifier whose first layer is that of the model's decoder."""
    with seeded(seed):
        made = decoder(fitted.config.decoder, fitted.model.space, fitted.config.layers[::-1], classes)
    c = float(fitted.model.space.curvatures()[0].detach())  # as trained; the space of an embedding does not change
    made[0].load_state_dict(fitted.model.decoder.get_submodule("0").state_dict())
    for layer in made:
        if isinstance(layer, Curved):
            layer.curvature = Curvature(c)
    return made


def confusions(
    fitted: Sequence[Fitted],
    train: tuple[Sequence[Tensor], Tensor],
    test: tuple[Sequence[Tensor], Tensor],
    classes: int,
    progress: Callable[[float, float], None] = lambda done, total: None,
    *,
    trainings: int,
    epochs: int,
    batch_size: int,
    learning_rate: float,
) -> Tensor:
    """Train classifiers and count how often each class is taken for each, (models, trainings, classes, classes).

    Rows are the truth. Classifiers are trained with Adam on the cross entropy.

    Arguments:
        fitted: models of one architecture, curvatures may differ.
        train, test: points of every model, and the labels that they share.
        classes: number of labels.
        progress: receives the steps done and the steps in all.
        trainings: classifiers of every model.
        epochs, batch_size, learning_rate: of a training.
    """
    owner = torch.arange(len(fitted)).repeat_interleave(trainings)
    seeds = [fitted[i].config.seed * trainings + k % trainings for k, i in enumerate(owner.tolist())]
    networks = [classifier(fitted[i], classes, seed) for i, seed in zip(owner.tolist(), seeds, strict=True)]
    points, labels = torch.stack(list(train[0])), train[1]
    device = points.device
    parameters, buffers = stack_module_state([network.to(device) for network in networks])
    scores = vmap(lambda parameters, buffers, x: functional_call(networks[0], (parameters, buffers), (x,)))
    optimiser = torch.optim.Adam(parameters.values(), lr=learning_rate, fused=True)
    owner = owner.to(device).unsqueeze(1)
    steps = -(-len(labels) // batch_size)
    for epoch in range(epochs):
        sources = [torch.Generator().manual_seed(1000003 * epoch + seed) for seed in seeds]
        order = torch.stack([torch.randperm(len(labels), generator=source) for source in sources]).to(device)
        for step, index in enumerate(order.split(batch_size, 1), 1):
            found = scores(parameters, buffers, points[owner, index])
            optimiser.zero_grad()
            F.cross_entropy(found.mT, labels[index], reduction="none").mean(1).sum().backward()
            optimiser.step()
            if step % 50 == 0 or step == steps:
                progress(epoch * steps + step, epochs * steps)
    points, labels = torch.stack(list(test[0])), test[1]
    counts = torch.zeros(len(owner), classes * classes, dtype=torch.int64, device=device)
    with torch.no_grad():
        for index in torch.arange(len(labels), device=device).split(1024):
            pair = labels[index] * classes + scores(parameters, buffers, points[owner, index]).argmax(-1)
            counts.scatter_add_(1, pair, torch.ones_like(pair))
    return counts.cpu().view(len(fitted), trainings, classes, classes)


# --- graphs ---------------------------------------------------------------------------------------------------------


class WeightedGraphVAE(GraphVAE):
    """The weighted loss of the first code of variational graph auto-encoders, which is not a bound on any likelihood.

    It gives edges the weight of all other pairs together, π = (n² − 2E)/(2E), multiplies the mean over all n² pairs by
    ν = n²/(2(n² − 2E)), and divides the divergence, a mean over nodes, by n once more. Times n² that is

        −2ν·Σ_{i<j} [A_ij·π·log p_ij + (1 − A_ij)·log(1 − p_ij)] + Σ_i KL_i,

    so 2ν ≈ 1 stands where the paper has 2, but every edge counts π times, hundreds of times in a sparse graph.

    Arguments:
        model: whose parts are taken.
        nodes, edges: how many the graph has.

    References:
        Kipf and Welling (2016), Variational graph auto-encoders; the loss is in the authors' code.
    """

    def __init__(self, model: GraphVAE, nodes: int, edges: int) -> None:
        rest = nodes * nodes - 2 * edges
        super().__init__(model.encoder, model.posterior, model.edges, weight=nodes * nodes / rest)
        self.edge_weight = rest / (2 * edges)

    def log_likelihood(self, S: Tensor, pairs: AnyPairs, popularity: Tensor | None = None) -> Tensor:
        """Sum over i < j with the weight of the edges; all pairs must be seen, and no node has a popularity."""
        if not isinstance(pairs, Tensor):
            raise ValueError("the weighted loss needs all pairs; give the edges")
        d: Any = self.space.pair_distances(S, pairs)
        present = self.edges.log_prob(d, torch.ones_like(d)).sum(-1)
        return super().log_likelihood(S, pairs) + (self.edge_weight - 1.0) * present
