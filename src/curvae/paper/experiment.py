"""How an experiment of the paper runs, and what its tables are made of.

An experiment is computed shard by shard. Each result is kept, so that an interrupted run resumes; when all are there,
they are merged and shown. A cell of a table gathers trainings, tests them against the paper's figures and against flat
models, and becomes text.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import joblib
import numpy as np
import torch
from jinja2 import Template
from scipy import stats
from threadpoolctl import threadpool_limits

from ..data.files import count
from ..errors import CurvaeError
from ..maps.statistics import LEVEL, mean_interval
from ..nn.networks import DecoderKind
from ..report import Picture, Report, Section, Table, Tone
from ..runs.run import Reporter, today
from ..settings import ADDED
from ..training import Config
from ..training.comparison import Paired
from ..training.config import few_threads
from ..training.storage import json_text, locked, read_json, versions, write_bytes, write_json, write_text

__all__ = [
    "PICTURES",
    "PLAIN",
    "SIGNS",
    "Experiment",
    "Figures",
    "Key",
    "Page",
    "Plan",
    "Results",
    "Shard",
    "Store",
    "Workspace",
    "against_printed",
    "cell",
    "cell_text",
    "compare",
    "comparison_texts",
    "difference_text",
    "estimate",
    "figures",
    "gather",
    "interval_text",
    "lower_requirement",
    "mark",
    "markdown",
    "model_name",
    "number",
    "p_text",
    "paired",
    "requirement",
    "requirements_table",
    "t_test",
    "table_lines",
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
    other = (printed["half"] / float(stats.t.ppf(1 - LEVEL / 2, printed["n"] - 1))) ** 2
    difference, error = float(np.mean(values)) - printed["mean"], math.sqrt(own + other)
    if error == 0:
        return {"difference": difference, "half": 0.0, "p": 1.0 if difference == 0 else 0.0, "df": math.inf}
    df = (own + other) ** 2 / (own**2 / (len(values) - 1) + other**2 / (printed["n"] - 1))
    half, p = float(stats.t.ppf(1 - LEVEL / 2, df)) * error, float(2 * stats.t.sf(abs(difference) / error, df))
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
    marked = {key: {**test, "mark": mark(test, lower_is_better)} for key, test in tests.items() if test}
    return {**result, "ours": estimate(own), **({"paper": printed} if printed is not None else {}), **marked}


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
