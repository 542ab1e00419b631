"""Runs on rows: what `curvae fit`, `compare` and `diagnose` do with a table, a matrix or images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..data import Arrays, Dataset, Schema
from ..data.covariates import average_context
from ..data.messages import count as counted
from ..data.missing import MissingValuesError, extremes
from ..errors import CurvaeError
from ..hierarchy import (
    Faithfulness,
    Match,
    Metric,
    NamedTree,
    Rows,
    diagnose_distances,
    diagnose_rows,
    faithfulness_yardstick,
    recovery_yardstick,
)
from ..hierarchy.yardsticks import require_recoverable
from ..models.likelihoods import choose_likelihood
from ..plotting import project_from
from ..report import Picture, Section
from ..settings.parts import DEFAULT_STEPS
from ..training import Config, Embedding, Fitted, fit, fit_many, random_split
from ..training.build import require_buildable
from ..training.comparison import FEWEST_COMPARED, SAMPLES, Comparison, compare, plan
from ..training.config import require_count
from ..training.evaluate import embed, health, likelihoods, stability
from ..training.orientation import align_maps, principal_scores
from ..training.rows import layout_of
from ..training.rows_problem import choose_neighbours, resolve
from ..training.splits import judged_rows
from ..training.yardsticks import Repeat
from . import pages
from .drivers import driver_sections
from .factors import by_factor, map_files, place_text
from .faithful import faithful_section, filled_rows, judge_rows, scaled_rows, yardstick_section
from .folders import embedding_table
from .pieces import loaded
from .progress import Reporter
from .rows_trained import TrainedRows
from .run import DiagnosedData, Outcome, Place, Run, comparable, geometry
from .sources import DataSource, Source, Step
from .spread import spread_figures, spread_pictures, spread_text, stability_section
from .trees import known_tree

__all__ = ["RowsRun", "choose_test_share"]

# Rows of a table from which on some are held out that choose nothing, the share of these, and the largest share of
# validation rows beside which they are.
_TESTED, _TEST, _MOST_VALIDATION = 200, 0.1, 0.5
_ENOUGH = 20  # rows below which a warning is given
# Importance samples of a report, in all and of a row: the mean over many rows needs fewer of each. And rows at least.
_DRAWS, _FEWEST, _SCORED = 100_000, 100, 3


def _samples(rows: int) -> int:
    """Importance samples with which the likelihood of each of so many rows is measured."""
    return min(SAMPLES, max(_FEWEST, _DRAWS // max(1, rows)))


def choose_test_share(config: Config, rows: int, before: Mapping[str, Any]) -> float:
    """Share of the rows that are held out to be reported, where validation rows choose the epoch.

    Arguments:
        config: settings.
        rows: all of them.
        before: description of the run that is resumed, or nothing.
    """
    if before:
        return float(before["data"].get("test", 0.0))
    chosen = config.patience is not None and config.validation <= _MOST_VALIDATION
    return min(_TEST, config.validation) if chosen and rows >= _TESTED else 0.0


class RowsRun(Run):
    """Rows, judged by the log-likelihood of those that were held out.

    Attributes:
        hindrance: why the map cannot be held to the neighbourhoods of the data, if it cannot.
    """

    hindrance = ""
    count = "repeats"
    fitted = Fitted
    trained = TrainedRows

    def __init__(self, source: Source, config: Config) -> None:
        super().__init__(source, config)
        self.tree: tuple[NamedTree, Match] | None = None
        self.data, self.schema = self._load(source)
        self.data_size = f"{self.rows} rows, {counted(self.data.n_columns, 'column')}"
        if self.rows < _ENOUGH:
            self.remarks = [f"only {self.rows} rows to learn from: the map may show little but chance; add rows"]

    def _load(self, source: Source) -> tuple[Dataset, Schema]:
        return source.load()

    @property
    def rows(self) -> int:
        """Rows that are trained on or held out."""
        return len(self.data)

    @property
    def names(self) -> NDArray[np.str_]:
        return self.data.ids

    def scores(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        return principal_scores(self.data.x[chosen])

    # --- training -----------------------------------------------------------------------------------------------------

    def prepare(self, count: int | None, before: Mapping[str, Any], processes: int) -> dict[str, Any]:
        data, config = self.data, self.config
        self.repeats = 1 if count is None else count
        require_count("repeats", self.repeats)
        low, high = self._extremes()
        if not (low < high).any():
            raise CurvaeError(
                f"nothing varies in {self.source.path}: every column is constant, so there is nothing to learn"
            )
        reason = self._plan(before, processes)
        neighbours_reason = choose_neighbours(config, self.layout, self._train_rows, self.hindrance)[1]
        require_buildable(self.config, self.layout)
        self.reason = before.get("likelihood_reason", reason)
        self.neighbours_reason = before.get("data", {}).get("neighbours_reason", neighbours_reason)
        self.plan_text = (
            f"{self.data_size}; likelihood {self.config.likelihood}: {self.reason}; "
            f"neighbours {self.config.neighbours}: {self.neighbours_reason}"
        )
        if config.validation and not len(self.split.validation):
            self.remarks.append(
                f"no rows are held out: a share of {config.validation:g} is less than one row or group; "
                "raise validation=…"
            )
        facts = {
            "fingerprint": self.fingerprint,
            "rows": self.rows,
            "features": int(data.x.shape[1]),
            "test": self.test,
            "neighbours_reason": self.neighbours_reason,
            "shape": list(data.shape),
            "blocks": list(data.blocks),
            "notes": list(data.notes),
            "warnings": list(data.warnings),
            "label": data.label_name,
            "schema": self.schema.to_json(),
        }
        return {"likelihood_reason": self.reason, "repeats": self.repeats, "data": facts}

    def _extremes(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return extremes(self.data.x)

    def _plan(self, before: Mapping[str, Any], processes: int) -> str:
        """Split the rows and make "auto" choices; returns why this likelihood."""
        data, config = self.data, self.config
        split, self.test = (
            partial(random_split, len(data), config.validation),
            choose_test_share(config, len(data), before),
        )
        self.split = split(self.test, config.seed, data.groups)
        if not len(self.split.validation):
            self.test, self.split = 0.0, split(0.0, config.seed, data.groups)
        if processes > 1:
            self.hindrance = "several processes share every batch, and it compares all rows of one"
        self.config, self.layout, reason = resolve(config, data, self.split, self.hindrance)
        return reason

    @property
    def _train_rows(self) -> int:
        return len(self.split.train)

    def _fit(self, **where: Any) -> Fitted:
        """Train a single model."""
        return fit(self.config, self.data, split=self.split, **where)

    def _scored(self) -> tuple[NDArray[np.int64], str]:
        """Rows whose likelihood the report tells, and what they are: "test", "validation" or "train"."""
        held = ((part, name) for name in ("test", "validation") if len(part := getattr(self.split, name)) >= _SCORED)
        return next(held, (self.split.train, "train"))

    def train(self, place: Place, reporter: Reporter, progress: Callable[[dict[str, Any], int], None]) -> None:
        config, split, repeats, jobs = self.config, self.split, self.repeats, min(place.jobs, self.repeats)
        where: dict[str, Any] = {"device": place.device, "folder": place.folder, "resume": place.resume}
        if repeats == 1:
            found = [self._fit(**where, processes=place.processes, progress=progress)]
        else:
            found = fit_many(
                [replace(config, seed=config.seed + i) for i in range(repeats)],
                self.data,
                splits=[split] * repeats,
                **where,
                jobs=jobs,
                progress=lambda done, total: reporter.progress("training", done, total, f"{repeats} models"),
                warn=reporter.warn,
            )
        if found[0].failure is not None:
            raise CurvaeError(found[0].failure)
        self.model = replace(found[0], reason=self.reason, split=split)
        self.maps = [embed(one, self.data) for one in found if one.failure is None]

    def outcome(self, place: Place, named: DataSource, seconds: float, reporter: Reporter) -> Outcome:
        data, fitted, embedding, config = self.data, self.model, self.maps[0], self.config
        (scored, part), last = self._scored(), fitted.last
        apart, kind = part != "train", "training" if part == "train" else part
        told = f"{kind} rows" + (", which chose the epoch," if part == "validation" and fitted.keeps_best else "")
        reporter.say(f"measuring the likelihood of {kind} rows")
        advance = reporter.counter("likelihood", len(scored))
        found = likelihoods(fitted, data.arrays.take(scored), _samples(len(scored)), advance=advance)
        parts = self.split.names(len(data))
        faithful = judge_rows(data, embedding, judged_rows(parts), seed=config.seed)
        warnings = health(fitted, embedding)
        stable = stability(self.maps)
        frames, aligned = self.orient(embedding), None if stable is None else align_maps(self.maps)
        spread = {} if aligned is None else {"spread": aligned.spread}
        spread_found = spread_figures(aligned)
        summary = {
            "log_likelihood": found.mean,
            "log_likelihood_interval": found.interval,
            "log_likelihood_original_units": found.original.mean,
            "log_likelihood_rows": part,
            "reconstruction": last["reconstruction"],
            "kl": last["kl"],
            **geometry(fitted),
            "seconds": round(seconds, 2),
            "stability": None if stable is None else vars(stable),
            "spread": spread_found,
            "faithfulness": None if faithful is None else faithful.to_json(),
        }
        table = embedding_table(embedding, data.ids, data.labels, parts, frames=frames).assign(**spread)
        again = named.train_step(**self.settings, repeats=5)
        compare = named.compare_step(**comparable(self.settings))
        held = f"{len(scored):,} {told.rstrip(',')}"
        figures = (
            f"{self.rows} rows on {place_text(embedding)}: "
            f"log-likelihood of {told} {found.text} nats a row, divergence from the prior {last['kl']:.2f} nats."
        )
        sections = [
            pages.map_section(
                data, embedding, frames, self.orientation_sentence, spread, reporter.command(place.view_step)
            ),
            faithful_section(faithful),
            pages.likelihood_section(found if apart else None, figures, held, reporter.command(compare)),
            stability_section(
                stable,
                reporter.command(again),
                spread_text(spread_found),
                pictures=() if aligned is None else spread_pictures(data, aligned, frames),
            ),
            pages.training_section(fitted, embedding, self.neighbours_reason),
            *driver_sections(fitted, data, embedding, average_context(self.schema.covariates)),
            pages.reconstruction_section(fitted, data, embedding, scored, found.log_prob, kind),
            pages.data_section(data, [pages.scaling_note(config)]),
        ]
        answer = "There are too few rows to judge the map." if faithful is None else faithful.verdict
        advice = self._advise(named, faithful, *place.view_step.arguments)
        verdict = f"{answer} {pages.capital(advice.why)}{'' if advice.why.endswith('?') else ':'}"
        pictures = {**map_files(embedding, sections[0]), "curves": sections[4].pictures[0]}
        report = f"Map of {named.path}", verdict, warnings, sections, pictures
        said = [answer, *([] if stable is None else sections[3].text), figures]
        good = faithful is None or not faithful.behind
        following = self._advise(self.source, faithful, str(place.folder))
        step = reporter.command(advice._replace(why=""))
        return Outcome(fitted, embedding, frames, [table], len(table), summary, *report, said, following, good, step)

    def _advise(self, source: DataSource, faithful: Faithfulness | None, folder: str) -> Step:
        """What to do next with these data: make the map better where PCA keeps more, or compare curvatures."""
        if faithful is not None and faithful.behind:
            typed = {name: value for name, value in self.settings.items() if name not in ("epochs", "steps")}
            if typed != self.settings and self._steps_asked < DEFAULT_STEPS:
                return source.train_step("the default length of training may keep more neighbours", **typed)
            if self._leaves_neighbours_out(self.config):
                more = self.settings | {"neighbours": "both"}
                return source.train_step("holds the map to the neighbourhoods of the data", **more)
            if self.config.space is None and self.config.dim == 2 and self.config.neighbours != "off":
                return source.train_step("a third dimension may keep more neighbours", **self.settings | {"dim": 3})
        if self.rows < FEWEST_COMPARED:
            return Step("view", (folder,), why="the interactive map")
        return source.compare_step("is curvature worth it for these data?", **comparable(self.settings))

    @property
    def _steps_asked(self) -> int:
        """Steps of the training, where their number or that of the epochs was asked for."""
        a_pass = -(-self._train_rows // self.config.batch_size)
        return int(self.settings["steps"] if "steps" in self.settings else self.settings["epochs"] * a_pass)

    def _leaves_neighbours_out(self, config: Config) -> bool:
        """Whether the map is not held to the neighbourhoods of the data, and could be."""
        usual, layout = replace(config, neighbours="auto"), layout_of(Arrays.of(self.data))
        held = choose_neighbours(usual, layout, len(self.data), self.hindrance)[0] != "off"
        return held and config.neighbours in ("auto", "off")

    # --- comparison ---------------------------------------------------------------------------------------------------

    def plan_comparison(
        self, curvatures: Sequence[float], repeats: int, before: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        data, config = self.data, self.config
        likelihood, _ = choose_likelihood(data.x, config.likelihood, layout_of(Arrays.of(data)))
        if before is not None and config.likelihood == "auto":
            chosen = before.get("likelihood", likelihood)
            self.config = replace(config, likelihood="auto" if chosen == likelihood else chosen)
        values, self.splits = plan(self.config, data, curvatures, repeats, data.groups)
        self.trainings = len(values) * len(self.splits)
        sizes = {"rows": len(data), "features": int(data.x.shape[1])}
        return {"fingerprint": data.fingerprint, **sizes, "likelihood": likelihood}

    def match_tree(self, tree: Path) -> None:
        self.tree = known_tree(tree, self.source.path, self.data.ids, self.data.labels)
        require_recoverable(self.tree[1].node, self.splits)

    def compare(self, curvatures: Sequence[float], repeats: int, **where: Any) -> Comparison:
        found = compare(self.config, self.data, curvatures, repeats, groups=self.data.groups, **where)
        splits = {self.config.seed + i: split for i, split in enumerate(self.splits)}
        yardsticks = [faithfulness_yardstick(filled_rows(self.data), found, splits)]
        if self.tree is not None:
            known, match = self.tree
            yardsticks.append(recovery_yardstick(known.distances, match.node, found, splits))
        return replace(found, yardsticks=tuple(yardsticks), structure=self._structure())

    def _structure(self) -> str:
        """What the test for a hierarchy calls the data; empty where they are too few for it or have gaps."""
        if self.data.missing:
            return ""
        with suppress(CurvaeError):
            return diagnose_rows(_tested(self.data, self.schema)[0], self.config.seed).outcome
        return ""

    def comparison_report(self, found: Comparison) -> tuple[list[str], list[str], list[Section]]:
        data = self.data
        drawn = [picture for c in (0.0, found.best) for picture in self._map_pictures(found.embeddings[c])]
        sections = [
            Section("The maps", [self.orientation_sentence], drawn),
            pages.comparison_section(found),
            yardstick_section(found),
            pages.data_section(data, [pages.scaling_note(found.config)]),
        ]
        remedy = 'set neighbours="both"' if self._leaves_neighbours_out(found.config) else "train longer"
        return [f"likelihood {found.config.likelihood}: {found.reason}"], _beaten(found, remedy), sections

    def _map_pictures(self, embedding: Embedding) -> list[Picture]:
        """The map of every factor."""
        data, frames = self.data, self.orient(embedding)

        def draw(part: Embedding, place: int) -> list[Picture]:
            projection = project_from(frames[place], torch.from_numpy(part.space))
            return [pages.map_picture(part, data.labels, projection=projection, label_name=data.label_name)]

        return by_factor(embedding, draw)

    # --- diagnosis ----------------------------------------------------------------------------------------------------

    @classmethod
    def diagnose(
        cls, source: Source, metric: Metric, distances: bool, seed: int, reporter: Reporter, step: Callable[[str], None]
    ) -> DiagnosedData:
        """Test rows, as a model would see them, or a matrix of distances."""
        try:
            data, schema = source.load() if distances else loaded(source, seed, reporter)[:2]
        except MissingValuesError as error:
            if distances:
                raise CurvaeError(f"{error.found}; fill these distances in, or leave the points out") from error
            raise
        if data.missing:
            raise CurvaeError(
                'missing="model" leaves gaps, between which no distance is known; use missing="drop" or missing="mean"'
            )
        reporter.tell((), data.warnings)
        if distances:
            found = diagnose_distances(data.x, seed, step)
            section = Section("What was done to the data", [*data.notes, *found.notes])
            return DiagnosedData(found, data.labels, section, data.warnings)
        rows, note = _tested(data, schema, metric)
        found = diagnose_rows(rows, seed, step)
        return DiagnosedData(found, data.labels, pages.data_section(data, [note, *found.notes]), data.warnings)


def _tested(data: Dataset, schema: Schema, metric: Metric = "euclidean") -> tuple[Rows, str]:
    """Rows as the test for a hierarchy takes them, and how they were scaled."""
    blocks = tuple(len(column.features) for column in schema.columns) if schema.kind == "table" else ()
    return scaled_rows(Rows(data.x, metric, blocks=blocks))


def _beaten(found: Comparison, remedy: str) -> list[str]:
    """Warn of a linear model that describes the test rows better, or, with a remedy, keeps more of their neighbours."""
    warnings = []
    best, linear = _beside_pca(found.repeats)
    if linear is not None and linear > best:
        warnings.append(
            f"PCA of the same dimension describes the test rows better ({linear:.2f} against {best:.2f} nats a row): "
            "train longer, or widen hidden, before asking about curvature"
        )
    for one in found.yardsticks:
        best, linear = _beside_pca(one.repeats)
        if linear is not None and linear > best:
            warnings.append(
                f"PCA of the same dimension has more {one.name} ({linear:.3f} against {best:.3f}): {remedy} before "
                "asking about curvature"
            )
    return warnings


def _beside_pca(repeats: Sequence[Repeat]) -> tuple[float, float | None]:
    """The best mean test score of all curvatures, and that of PCA, if it was measured."""
    linear = [repeat.pca for repeat in repeats if repeat.pca is not None]
    best = max(float(np.mean([repeat.test[c] for repeat in repeats])) for c in repeats[0].test)
    return best, float(np.mean(linear)) if linear else None
