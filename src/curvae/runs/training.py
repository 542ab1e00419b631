"""Start or resume a run folder, plan what is done with rows or a graph, train and write what was found: `curvae fit`,
`graph`, `compare` and `demo`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import torch

from ..data import Arrays, Dataset, EdgeSplit, Graph, branching_diffusion, flat, split_edges
from ..data.dataset import column_statistics
from ..data.disk import in_memory
from ..data.files import count, decimal
from ..data.graph_data import closeness, steps_from, steps_to_some
from ..data.tables import average_context
from ..errors import CurvaeError
from ..hierarchy import Faithfulness, diagnose_rows, graph_faithfulness
from ..maps.charts import Frame
from ..maps.embedding import align_maps, frames_to_json, seen_radius
from ..maps.faithfulness import label_accuracy
from ..models.likelihoods import choose_likelihood
from ..models.likelihoods.base import holds_counts
from ..models.likelihoods.counts import Counts
from ..report import Section
from ..settings import Settings, choose_neighbours, described, require_count
from ..settings.configs import DEFAULT_STEPS
from ..training import Config, Embedding, Fitted, GraphConfig, Split, random_split
from ..training.comparison import (
    FEWEST_COMPARED,
    SAMPLES,
    Comparison,
    Curvatures,
    Outcome,
    compare,
    compare_planned,
    cost_text,
    curved_values,
    faithfulness_criterion,
    plan_comparison,
    recovery_criterion,
    require_recoverable,
)
from ..training.fitted import FittedModel, embed, health, likelihoods, require_buildable, stability
from ..training.fitting import default_jobs, left_out_start, plan_rows, train_many, train_one
from ..training.graph_problem import (
    FittedGraph,
    compare_graph,
    embed_graph,
    fit_graph,
    fit_graphs,
    graph_facts,
    judge_split,
    missing_links,
    neighbourhood,
    require_buildable_graph,
)
from ..training.processes import process_count, require_shareable
from ..training.queries import held_out_fit
from ..training.rows import HELD_OUT, judged_rows, layout_of
from ..training.storage import (
    CONFIG,
    description_of,
    embedding_table,
    locked,
    read_description,
    save_fitted,
    write_json,
    write_tables,
)
from . import pages
from .run import (
    SILENT,
    DataSource,
    GraphSource,
    Reporter,
    Result,
    Source,
    Step,
    comparable,
    curvature_chosen,
    given,
    known_tree,
    new_folder,
    orientation_of,
    require_root,
    view_step,
    write_map,
    write_report,
)

__all__ = [
    "GraphComparisonPlan",
    "GraphTrainingPlan",
    "RowsComparisonPlan",
    "RowsTrainingPlan",
    "choose_test_share",
    "compare_run",
    "demonstrate",
    "embedding_tables",
    "report_samples",
    "sample_split",
    "start_run",
    "train_run",
]

# Plans: what is trained or compared, on rows or on a graph, and judged.

# Samples of data on disk, and their maps.

_NUMBERS_SHOWN, _FEW_SHOWN = 1 << 22, 1000  # numbers in the rows of a part of the data, but for so many rows


def sample_split(data: Dataset, split: Split, seed: int, root: str | None = None) -> tuple[Dataset, Split]:
    """Take some rows of every part of data on disk; return them with the parts that they belong to.

    These are at most 10,000, and of long rows fewer, but 1,000. The row with the name `root` is always among them.
    """
    if not data.on_disk:
        return data, split
    rows = split.sample(min(HELD_OUT, max(_FEW_SHOWN, int(_NUMBERS_SHOWN / data.x.row_length))), seed)
    if root is not None:
        rows = np.union1d(rows, np.flatnonzero(in_memory(data.ids) == root))
    some = data.take(rows).load()
    if len(rows) < len(data):
        note = f"pictures and figures are of a sample: {len(rows):,} of {count(len(data), 'row')}, chosen at random."
        some = replace(some, notes=(*some.notes, note))
    return some, split.within(rows)


def embedding_tables(
    fitted: Fitted,
    data: Dataset,
    frames: Sequence[Frame] | None,
    reporter: Reporter,
    split: Split | None = None,
) -> Iterator[pd.DataFrame]:
    """Place rows on the map, some at a time if they lie on disk, and yield the tables of `embedding.csv`.

    Arguments:
        fitted: the model.
        data: the rows.
        frames: from which the factors of the map are drawn.
        reporter: shows the progress.
        split: what rows were for; all are new by default.
    """
    fitted, advance = fitted.double(), reporter.counter("embedding", len(data))
    start = 0
    for piece in data.pieces():
        names = "new" if split is None else split.names(len(piece), start)
        yield embedding_table(embed(fitted, piece), piece.ids, piece.labels, names, frames=frames)
        start += len(piece)
        advance(len(piece))


# Training.

# Rows of a table from which on some are held out that choose nothing, the share of these, and the largest share of
# validation rows beside which they are.
_TESTED, _TEST, _MOST_VALIDATION = 200, 0.1, 0.5
_ENOUGH = 20  # rows below which a warning is given
# Importance samples of a report, in all and of a row: the mean over many rows needs fewer of each. And rows at least.
_DRAWS, _FEWEST, _SCORED = 100_000, 100, 3


def report_samples(rows: int) -> int:
    """Return the importance samples for each of so many rows whose mean likelihood a report tells."""
    return min(SAMPLES, max(_FEWEST, _DRAWS // max(1, rows)))


def choose_test_share(config: Config, rows: int, before: Mapping[str, Any]) -> float:
    """Choose the share of rows that are held out to be reported, where validation rows choose the epoch.

    Arguments:
        config: settings.
        rows: all of them.
        before: description of the run that is resumed, or nothing.
    """
    if before:
        return float(before["data"].get("test", 0.0))
    chosen = config.patience is not None and config.validation <= _MOST_VALIDATION
    return min(_TEST, config.validation) if chosen and rows >= _TESTED else 0.0


def _warnings(data: Dataset, asked: str, likelihood: str) -> list[str]:
    """Warn of data from which little can be learned, and of a matrix of counts that was not taken as such."""
    found = []
    if len(data) < _ENOUGH:
        found.append(f"only {len(data)} rows to learn from: the map may show little but chance; add rows")
    matrix = data.schema is not None and data.schema.kind == "matrix"
    if asked == "auto" and likelihood == "gaussian" and matrix and holds_counts(data.x):
        found.append('all values are whole numbers from 0 on; if they are counts, use `likelihood="nb"`')
    return found


class RowsTrainingPlan:
    """A training on rows to be done, judged by the log-likelihood of those that are held out.

    Arguments:
        source, data: the rows that were read, and how.
        config: settings.
        typed: settings that were typed.
        before: description of the run that is resumed, or nothing.
        repeats: trainings; 1 by default.
        processes: that share a training.
        root: name of the row at the centre of the map, if it was given.

    Attributes:
        config: with "auto" choices made.
        facts: what `config.json` says about the training and the data.
        text: what is going to be trained, in words.
        remarks: warnings about the settings and these data.
    """

    def __init__(
        self,
        source: Source,
        data: Any,
        config: Config,
        typed: dict[str, Any],
        before: Mapping[str, Any],
        repeats: int | None,
        processes: int,
        root: str | None,
    ) -> None:
        """Split the rows and make "auto" choices; raise for what cannot be trained."""
        repeats = 1 if repeats is None else repeats
        require_count("repeats", repeats)
        known = column_statistics(data.x)
        if not (known.low < known.high).any():
            raise CurvaeError(
                f"nothing varies in {source.path}: every column is constant, so there is nothing to learn"
            )
        split_rows = partial(random_split, len(data), config.validation, most=HELD_OUT)
        test = choose_test_share(config, len(data), before)
        split = split_rows(test, config.seed, data.groups)
        if not len(split.validation):
            test, split = 0.0, split_rows(0.0, config.seed, data.groups)
        root = require_root(root, before, in_memory(data.ids))
        sample, parts = sample_split(data, split, config.seed, root)
        # Why the map cannot be held to the neighbourhoods of the data, if it cannot.
        hindrance = "several processes share every batch, and it compares all rows of one" if processes > 1 else ""
        problem, tasks = plan_rows(
            [replace(config, seed=config.seed + i) for i in range(repeats)],
            data,
            splits=[split] * repeats,
            hindrance=hindrance,
        )
        first = tasks[0]
        sample = replace(sample, notes=(*sample.notes, *left_out_start(first.config, first.source, split)))
        chosen = choose_neighbours(config, first.layout, len(split.train), hindrance)
        neighbours_reason = before.get("data", {}).get("neighbours_reason", chosen[1])
        reason = before.get("likelihood_reason", first.reason)
        require_buildable(first.config, first.layout)
        self.remarks = _warnings(data, config.likelihood, first.config.likelihood)
        if config.validation and not len(split.validation):
            self.remarks.append(
                f"no rows are held out: a share of {config.validation:g} is less than one row or group; "
                "raise `validation=…`"
            )
        self.facts: dict[str, Any] = {
            "likelihood_reason": reason,
            "repeats": repeats,
            "data": {
                "fingerprint": data.fingerprint,
                "rows": len(data),
                "features": int(data.x.shape[1]),
                "test": test,
                "neighbours_reason": neighbours_reason,
                "shape": list(data.shape),
                "blocks": list(data.blocks),
                "notes": list(sample.notes),
                "warnings": list(data.warnings),
                "label": data.label_name,
                "schema": data.schema.to_json(),
            },
            "root": root,
        }
        self.text = (
            f"{len(data):,} rows, {count(data.n_columns, 'column')}; likelihood {first.config.likelihood}: {reason}; "
            f"neighbours {first.config.neighbours}: {neighbours_reason}"
        )
        self.source, self.data, self.config, self.typed = source, data, first.config, typed
        self._sample: Any = sample  # the rows that figures and pictures show, all unless they lie on disk
        self._parts, self._root, self._hindrance = parts, root, hindrance
        self._problem, self._tasks, self._processes = problem, tasks, processes

    def train(
        self,
        folder: Path,
        reporter: Reporter,
        progress: Callable[[dict[str, Any], int], None],
        *,
        resume: bool,
        jobs: int,
        device: torch.device | str,
    ) -> Result:
        """Train all models, and judge the first and the maps of all that did not fail.

        Arguments:
            folder: of the run.
            reporter: receives messages and progress.
            progress: called with every record of a single model and the number of epochs in all.
            resume, jobs, device: as of `train_run`.
        """
        problem, repeats = replace(self._problem, asked=device), len(self._tasks)
        where: dict[str, Any] = {"folder": folder, "resume": resume}
        began = time.perf_counter()
        trained = (
            [train_one(problem, self._tasks, **where, processes=self._processes, progress=progress)]
            if repeats == 1
            else train_many(
                problem,
                self._tasks,
                **where,
                jobs=min(jobs, repeats),
                progress=lambda done, total: reporter.progress("training", done, total, f"{repeats} models"),
                warn=reporter.warn,
            )
        )
        if trained[0].failure is not None:
            raise CurvaeError(trained[0].failure)
        fitted = replace(trained[0], reason=self.facts["likelihood_reason"])
        maps = [embed(one, self._sample) for one in trained if one.failure is None]
        seconds = time.perf_counter() - began
        data, split, config, embedding = self._sample, self._parts, self.config, maps[0]
        source, last = self.source.shown, fitted.last
        # The likelihood is that of test rows, else of validation rows, else of those that were trained on.
        held_out = ((getattr(split, name), name) for name in ("test", "validation"))
        scored, part = next((one for one in held_out if len(one[0]) >= _SCORED), (split.train, "train"))
        kind = "training" if part == "train" else part
        asked = f"{kind} rows" + (", which chose the epoch," if part == "validation" and fitted.keeps_best else "")
        reporter.say(f"measuring the likelihood of {kind} rows")
        found = likelihoods(
            fitted,
            data.arrays.take(scored),
            report_samples(len(scored)),
            advance=reporter.counter("likelihood", len(scored)),
        )
        names = split.names(len(data))
        faithful = pages.judge_rows(data, embedding, judged_rows(names), seed=config.seed)
        beside = pages.describe_covariates(data, embedding, config.seed)
        stable, aligned = stability(maps), align_maps(maps) if len(maps) > 1 else None
        frames_of, turned = orientation_of(data.x, data.ids, self._root)
        frames = frames_of(embedding)
        spread, variation = {} if aligned is None else {"spread": aligned.spread}, pages.map_variation(aligned)
        tables: Iterable[pd.DataFrame] = (
            embedding_tables(fitted, self.data, frames, reporter, fitted.split)
            if self.data.on_disk
            else [embedding_table(embedding, data.ids, data.labels, names, frames=frames).assign(**spread)]
        )
        summary = {
            "log_likelihood": found.mean,
            "log_likelihood_interval": found.interval,
            "log_likelihood_original_units": found.original.mean,
            "log_likelihood_rows": part,
            "reconstruction": last["reconstruction"],
            "kl": last["kl"],
            **fitted.factor_figures,
            **(
                {"fit_scores": held_out_fit(fitted, self.data)}
                if isinstance(fitted.model.likelihood, Counts) and data.counts
                else {}
            ),
            "seconds": round(seconds, 2),
            "stability": None if stable is None else vars(stable),
            "spread": variation,
            "faithfulness": None if faithful is None else faithful.to_json(),
        }
        view = view_step(folder)
        figures = (
            f"{len(self.data):,} rows on {pages.place_text(embedding)}: log-likelihood of {asked} {found.text} nats a "
            f"row, divergence from the prior {decimal(last['kl'])} nats."
        )
        stability_section = pages.stability_section(
            data,
            stable,
            aligned,
            variation,
            frames,
            reporter.command(source.step(source.action, **self.typed, repeats=5)),
        )
        sections = [
            pages.rows_map_section(data, embedding, frames, turned, spread, reporter.command(view)),
            pages.faithful_section(faithful, beside),
            pages.likelihood_section(
                None if part == "train" else found,
                figures,
                f"{len(scored):,} {asked.rstrip(',')}",
                reporter.command(source.step("compare", **comparable(self.typed))),
            ),
            stability_section,
            pages.training_section(fitted, embedding, self.facts["data"]["neighbours_reason"]),
            pages.drivers_section(fitted, data, embedding, average_context(data.schema.covariates)),
            pages.reconstruction_section(fitted, data, embedding, scored, found.log_prob, kind),
            pages.data_section(data, [pages.scaling_note(config)]),
        ]
        answer = "There are too few rows to judge the map." if faithful is None else faithful.verdict
        advice = self._advise(source, faithful, *view.arguments)
        return Result(
            fitted,
            embedding,
            frames,
            tables,
            summary,
            f"{answer} {pages.capital(advice.why)}{'' if advice.why.endswith('?') else ':'}",
            sections,
            health(fitted, embedding),
            [answer, *beside, *([] if stable is None else stability_section.text), figures],
            self._advise(self.source, faithful, str(folder)),
            good=faithful is None or not faithful.behind,
            advice=reporter.command(advice._replace(why="")),
        )

    def _advise(self, source: DataSource, faithful: Faithfulness | None, folder: str) -> Step:
        """Choose what to do next: improve the map where PCA keeps more, compare curvatures, or look at the map."""
        config, typed = self.config, self.typed
        if faithful is not None and faithful.behind:
            usual = {name: value for name, value in typed.items() if name not in ("epochs", "steps")}
            epochs = (typed.get("epochs") or 0) * -(-len(self._tasks[0].split.train) // config.batch_size)
            if usual != typed and typed.get("steps", epochs) < DEFAULT_STEPS:
                return source.step(source.action, "the default length of training may keep more neighbours", **usual)
            possible, _ = choose_neighbours(
                replace(config, neighbours="auto"), layout_of(Arrays.of(self.data)), len(self.data), self._hindrance
            )
            if possible != "off" and config.neighbours in ("auto", "off"):
                why = "holds the map to the neighbourhoods of the data"
                return source.step(source.action, why, **typed | {"neighbours": "both"})
            if config.space is None and config.dim == 2 and config.neighbours != "off":
                return source.step(source.action, "a third dimension may keep more neighbours", **typed | {"dim": 3})
        if len(self.data) < FEWEST_COMPARED or curvature_chosen(self.config, self.typed):
            return Step("view", (folder,), why="the interactive map")
        return source.step("compare", "is curvature worth it for these data?", **comparable(typed))


# Comparison of curvatures.


class RowsComparisonPlan:
    """A comparison of curvatures on rows to be done.

    Arguments:
        source, data, config, typed, before: as of `RowsTrainingPlan`. Of a comparison that is resumed, "auto" choices
            are made as they were made then.
        curvatures, repeats: what is compared.
        tree: known tree of the data; how well it is recovered is compared, too.

    Attributes:
        config, typed, facts, text, remarks: as of `RowsTrainingPlan`.
    """

    def __init__(
        self,
        source: Source,
        data: Any,
        config: Config,
        typed: dict[str, Any],
        before: Mapping[str, Any],
        curvatures: Curvatures,
        repeats: int,
        tree: Path | None,
    ) -> None:
        """Split the rows; raise for what cannot be compared."""
        likelihood, _ = choose_likelihood(data.x, config.likelihood, layout_of(Arrays.of(data)))
        self.remarks = _warnings(data, config.likelihood, likelihood)
        if before and config.likelihood == "auto":
            chosen = before["data"].get("likelihood", likelihood)
            config = replace(config, likelihood="auto" if chosen == likelihood else chosen)
        planned = plan_comparison(config, data.arrays, curvatures, repeats, data.groups)
        problem: Any = planned.problem
        rows = problem.shown
        parts = planned.splits if rows is None else [split.within(rows) for split in planned.splits]
        self._tree: Any = None  # known distances between nodes, and the node of each of the rows that are shown
        if tree is not None:
            known, match = known_tree(tree, source.path, in_memory(data.ids), in_memory(data.labels))
            require_recoverable(match.node, planned.splits)
            self._tree = known.distances, match.node if rows is None else match.node[rows]
        self.facts = {
            "curvatures": curvatures,
            "repeats": repeats,
            "data": {
                "fingerprint": data.fingerprint,
                "rows": len(data),
                "features": int(data.x.shape[1]),
                "likelihood": likelihood,
            },
        }
        self.text = (
            f"{len(data):,} rows, {count(data.n_columns, 'column')}; {cost_text(curvatures, planned.values, repeats)}"
        )
        self.data, self.config, self.typed = data, config, typed
        self._planned, self._splits = planned, {config.seed + i: split for i, split in enumerate(parts)}
        self._sample: Any = data if rows is None else data.take(rows).load()

    def compare(self, **where: Any) -> tuple[Comparison, list[str], list[str], list[Section]]:
        """Train and compare, with device, jobs, folder and so on as of `curvae.training.compare`.

        Returns:
            The comparison, what to say about it, what to warn of, and the sections of the report.
        """
        found, sample = compare_planned(self._planned, **where), self._sample
        criteria = [faithfulness_criterion(pages.filled_rows(sample), found, self._splits)]
        if self._tree is not None:
            distances, node = self._tree
            criteria.append(recovery_criterion(distances, node, found, self._splits))
        structure = ""  # what the test for a hierarchy calls the data, unless they are too few for it or have gaps
        with suppress(CurvaeError):
            if not self.data.missing:
                structure = diagnose_rows(pages.scaled_table(sample)[0], self.config.seed).outcome
        found = replace(found, criteria=tuple(criteria), structure=structure)
        frames_of, turned = orientation_of(sample.x, sample.ids)
        maps = [found.embeddings[c] for c in (0.0, found.best)]
        sections = [
            Section("The maps", [turned], [one for z in maps for one in pages.row_pictures(sample, z, frames_of(z))]),
            pages.comparison_section(found),
            pages.criterion_section(found),
            pages.data_section(self.data, [pages.scaling_note(found.config)]),
        ]
        return found, [f"likelihood {found.config.likelihood}: {found.reason}"], _beaten(found), sections


def _beaten(found: Comparison) -> list[str]:
    """Warn of a linear model that describes the test rows better, or scores higher, and say what still stands."""
    warnings: list[str] = []
    for one in (found, *found.criteria):
        linear = [repeat.pca for repeat in one.repeats if repeat.pca is not None]
        best = max(float(np.mean([repeat.test[c] for repeat in one.repeats])) for c in one.repeats[0].test)
        if not linear or np.mean(linear) <= best:
            continue
        pca, name = float(np.mean(linear)), getattr(one, "name", "likelihood")
        better = (
            f"describes the test rows better ({decimal(pca)} against {decimal(best)} nats a row)"
            if one is found
            else f"scores higher in {name} ({pca:.3f} against {best:.3f})"
        )
        stands = "" if one is found or warnings else "; the one by likelihood stands"
        warnings.append(f"PCA of the same dimension {better}, so the comparison by {name} says little{stands}")
    return warnings


# Trainings and comparisons on graphs.

_SPLITS = 5  # by default
_FAITHFUL = 0.3  # mean average precision of neighbourhoods below which a map is warned of


class GraphTrainingPlan:
    """A training on a graph to be done, judged by how well edges that were hidden are found again.

    Arguments:
        source, data: the graph that was read, and how.
        config: settings.
        typed: settings that were typed.
        before: description of the run that is resumed, or nothing.
        splits: how often edges are hidden; 5 by default, and none of a tree or forest.
        links: how many of the likeliest missing edges to write to a file.
        root: name of the node at the centre of the map, if it was given.

    Attributes:
        config, typed, facts, text, remarks: as of `RowsTrainingPlan`.
    """

    def __init__(
        self,
        source: GraphSource,
        data: Graph,
        config: GraphConfig,
        typed: dict[str, Any],
        before: Mapping[str, Any],
        splits: int | None,
        links: int | None,
        root: str | None,
    ) -> None:
        """Split the edges; raise for what cannot be trained."""
        if splits:
            require_count("splits", splits)
        features = None if data.features is None else len(data.feature_names)
        if splits is None and data.is_forest and features is None:  # features may tell which nodes an edge joined
            config, splits = replace(config, encoder="free"), 0
        splits = _SPLITS if splits is None else splits
        require_buildable_graph(config, data.n_nodes, features)
        self._links, self._root = links, require_root(root, before, data.names, "node")
        self._splits: list[EdgeSplit] = []
        self.remarks: list[str] = []
        try:
            self._splits = [split_edges(data, seed=config.seed + i) for i in range(splits)]
        except CurvaeError as error:
            self.remarks.append(f"no edges are hidden to be predicted: {error}")
        self.text = f"{data.n_nodes:,} nodes, {data.n_edges:,} edges"
        self.text += f", {count(features, 'feature')}" if features else ""
        if self._splits:
            self.text += f"; {len(self._splits)} splits of 85, 5 and 10 % of the edges"
        elif data.is_forest and config.encoder == "free":
            self.text += f". {pages.drawn_sentence(data)} Use `splits=5` to hide edges all the same."
        self.facts = {"splits": splits, "data": graph_facts(data), "root": self._root}
        self.source, self.data, self.config, self.typed = source, data, config, typed

    def train(
        self,
        folder: Path,
        reporter: Reporter,
        progress: Callable[[dict[str, Any], int], None],
        *,
        resume: bool,
        jobs: int,
        device: torch.device | str,
    ) -> Result:
        """Train a model of all edges, whose map is written at once, and for each split one that predicts hidden edges.

        Arguments:
            folder: of the run.
            reporter: receives messages and progress.
            progress: called with every record of the first model and the number of epochs in all.
            resume, jobs, device: as of `train_run`.
        """
        graph, config, source, splits = self.data, self.config, self.source, self._splits
        where: dict[str, Any] = {"device": device, "resume": resume}
        began = time.perf_counter()
        fitted = fit_graph(config, graph, folder=folder, **where, progress=progress)
        embedding, last = embed_graph(fitted, graph), fitted.last
        frames_of, turned = orientation_of(steps_to_some(graph), graph.names, self._root, "node")
        frames = frames_of(embedding)
        centre = _centre(graph, embedding, frames, config.seed)
        table = embedding_table(embedding, graph.names, graph.labels, "train", "node", frames)
        map_section = pages.graph_map_section(
            graph, embedding, frames, centre, turned, reporter.command(view_step(folder))
        )
        predicting: list[FittedGraph] = []
        if splits:
            write_map(folder, [table], graph.n_nodes, map_section.named_pictures)
            reporter.say(f"the map is in {folder}; models that predict hidden edges follow")
            predicting = fit_graphs(
                [replace(config, seed=config.seed + i) for i in range(len(splits))],
                graph,
                splits=splits,
                folder=folder / "splits",
                **where,
                jobs=min(jobs, len(splits)),
                progress=lambda done, total: reporter.progress("link prediction", done, total, f"{len(splits)} models"),
                warn=reporter.warn,
            )
        seconds = time.perf_counter() - began
        found = pages.LinkFigures(
            [
                {"seed": one.config.seed, **judge_split(one, graph, one.split), **pages.disconnected(graph, one.split)}
                for one in predicting
                if one.failure is None and one.split is not None
            ]
        )
        near = neighbourhood(embedding, graph, seed=config.seed)
        faithful = graph_faithfulness(graph, embedding, seed=config.seed)
        accuracy = None if graph.labels is None else label_accuracy(embedding, graph.labels, seed=config.seed)
        warnings = health(fitted, embedding)
        if near.map < _FAITHFUL:
            remedy = (
                "a larger dimension, more epochs or a larger weight"
                if config.pairs == "all"
                else "a larger dimension or more epochs"
                if config.encoder == "free"
                else 'a larger dimension, more epochs or a vector for each node, `encoder="free"`'
            )
            warnings.append(
                f"the map shows few of the edges (mean average precision of neighbourhoods {near.map:.2f}); "
                f"try {remedy}"
            )
        warnings += [] if faithful is None else faithful.warnings
        factors = fitted.factor_figures
        summary = {
            **found.to_json(),
            "neighbourhood_map": near.map,
            "neighbourhood_rank": near.rank,
            "neighbourhood_nodes": near.asked,
            "faithfulness": None if faithful is None else faithful.to_json(),
            "label_accuracy": accuracy,
            "centre": str(graph.names[centre.nearest[0]]),
            "centre_radius": float(seen_radius(embedding, frames)[centre.nearest[0]]),
            "graph_centre": str(graph.names[centre.closest]),
            "reconstruction": last["reconstruction"],
            "kl": last["kl"],
            "c": factors["c"],
            "prior_scale": factors["prior_scale"],
            "seconds": round(seconds, 2),
        }
        files = {}
        if self._links is not None:
            pairs, probability = missing_links(
                fitted,
                graph,
                self._links,
                embedding=embedding,
                progress=reporter.counter("missing edges", graph.n_nodes),
            )
            first, second = graph.names[pairs].T
            files[pages.LINKS] = pd.DataFrame({"source": first, "target": second, "probability": probability})
        # Where hidden edges are to be found, only the encoder can place the nodes that lost theirs.
        known = comparable(given(replace(config, encoder="convolutions")))
        settings = {name: value for name, value in known.items() if name in self.typed}
        sections = [
            map_section,
            pages.faithful_section(faithful, things="nodes"),
            pages.links_section(
                graph, found, near, reporter.command(source.shown.step("compare", **settings)), config.popular
            ),
            pages.graph_training_section(fitted, embedding),
            *(pages.missing_section(table, graph.directed) for table in files.values()),
            pages.graph_data_section(graph, config),
        ]
        verdict = pages.verdict(found, near, faithful, accuracy)
        following = Step("evaluate", (str(folder), source.path), why="which of the edges does it find?")
        if self.remarks or (graph.is_forest and config.encoder == "free"):
            following = Step("view", (str(folder),), why="the interactive map")
        elif not curvature_chosen(config, self.typed):
            following = source.step("compare", "is curvature worth it for this graph?", **settings)
        return Result(
            fitted,
            embedding,
            frames,
            [table],
            summary,
            verdict,
            sections,
            warnings,
            [verdict, pages.details(graph, embedding, found, near), centre.sentence(graph)],
            following,
            good=not found.splits or found.standing > 0,
            files=files,
        )


def _centre(graph: Graph, embedding: Embedding, frames: Sequence[Frame], seed: int) -> pages.Centre:
    """Find the middle of a map and of the graph."""
    closest = int(np.argmax(closeness(graph, seed)))
    nearest = np.argsort(seen_radius(embedding, frames), kind="stable")[:6]
    return pages.Centre(nearest, closest, steps_from(graph, closest))


class GraphComparisonPlan:
    """A comparison of curvatures on a graph to be done.

    Arguments:
        source, data, config, typed, before, curvatures, repeats: as of `RowsComparisonPlan`.
        tree: must be None.

    Attributes:
        config, typed, facts, text, remarks: as of `RowsTrainingPlan`.
    """

    def __init__(
        self,
        source: GraphSource,
        data: Graph,
        config: GraphConfig,
        typed: dict[str, Any],
        before: Mapping[str, Any],
        curvatures: Curvatures,
        repeats: int,
        tree: Path | None,
    ) -> None:
        """Raise for what cannot be compared."""
        if tree is not None:
            raise CurvaeError("a comparison on a graph takes no tree; leave out `tree=…`")
        split_edges(data, seed=config.seed)
        self.facts = {
            "curvatures": curvatures,
            "repeats": repeats,
            "data": {"fingerprint": data.fingerprint, "nodes": data.n_nodes, "edges": data.n_edges},
        }
        self.text = (
            f"{data.n_nodes:,} nodes, {data.n_edges:,} edges; "
            f"{cost_text(curvatures, curved_values(curvatures, repeats, config), repeats)}"
        )
        self.data, self.config, self.typed, self.remarks = data, config, typed, list[str]()
        self._curvatures, self._repeats = curvatures, repeats

    def compare(self, **where: Any) -> tuple[Comparison, list[str], list[str], list[Section]]:
        """Train and compare, as `RowsComparisonPlan.compare` does."""
        graph, drawn = self.data, []
        found = compare_graph(self.config, graph, self._curvatures, self._repeats, **where)
        frames_of, turned = orientation_of(steps_to_some(graph), graph.names, None, "node")
        for embedding in (found.embeddings[c] for c in (0.0, found.best)):
            frames = frames_of(embedding)
            drawn += pages.graph_pictures(graph, embedding, frames, _centre(graph, embedding, frames, self.config.seed))
        rules, warned = pages.beside_comparison(graph, found)
        sections = [
            Section(
                "The maps",
                ["From the models of the first split, which have seen 85 % of the edges; all edges are drawn.", turned],
                drawn,
            ),
            pages.comparison_section(found),
            Section("Rules without a model", (), (), [rules]),
            pages.graph_data_section(graph, self.config),
        ]
        return found, list(graph.notes), [*pages.comparison_warnings(graph), *warned], sections


# Start a run in a fresh folder, or resume one: then what is asked for must be what it was started with.

# What a description says besides settings and source, and how it is checked and converted.
_CONVERT: dict[str, Callable[[Any], Any]] = {
    "repeats": int,
    "splits": int,
    "curvatures": lambda values: values if values == "auto" else [float(c) for c in values],
}


@contextmanager
def start_run(
    source: Source | GraphSource,
    settings: Mapping[str, Any],
    output: Path | None,
    kind: str,
    asked: Mapping[str, Any],
    plan: Callable[..., Any],
    reporter: Reporter,
    *,
    resume: bool,
    force: bool,
) -> Iterator[tuple[Any, Path, Source | GraphSource, dict[str, Any]]]:
    """Start or resume a run: read its data, and lock its folder within the context.

    Arguments:
        source, settings, output, resume, force: see `train_run`.
        kind: of the run.
        asked: what else was asked for, by its name in `config.json`; None where it was left out.
        plan: makes a plan of source, data, settings, those that were typed, the description of the run that is resumed
            and what else is asked for; it raises for what cannot be done, before anything is written.
        reporter: knows the command that starts the run; of one that is resumed, the first is kept.

    Yields:
        The plan, the folder, the source as it was typed at the start, and the description of the run, as `config.json`
        has it.
    """
    typed = [*source.options, *settings]
    configs: Any = FittedModel.kinds[source.kind].settings
    folder, asked, before = output, dict(asked), {}
    with ExitStack() as held:
        if resume:
            if folder is None:
                raise CurvaeError("`resume=True` needs the run folder; give it with `output=…`")
            held.enter_context(locked(folder) if folder.is_dir() else nullcontext())
            before = read_description(folder, kind)
            source, config, asked = _require_same_request(folder, before, source, configs, settings, asked)
            typed = before.get("asked", typed)
            settings = given(config)
        config = configs(**settings)
        read: Source | GraphSource = source
        if isinstance(source, GraphSource):
            data: Any = source.load(directed=config.directed)
        else:
            # A run that is resumed has the memory that it had: it decides on the order of rows on disk.
            source = source if before else source.bounded
            data = source.load(reporter.counter)
            read = source if data.on_disk else replace(source, memory=None)
        if before and data.fingerprint != before["data"]["fingerprint"]:
            raise CurvaeError(
                f"{source.path} is not the data that {folder} was started with; "
                "give that data, or start a new run without `resume=True`"
            )
        named = {name: value for name, value in settings.items() if name in typed}
        made = plan(read, data, config, named, before, **asked)
        description = {
            **description_of(made.config, kind),
            "command": before.get("command", reporter.started),
            "asked": typed,
            "source": read.to_json(),
            **made.facts,
        }
        if folder is None or not before:
            name = source.name if kind == source.kind else f"{source.name}-{kind}"
            folder = held.enter_context(new_folder(output, name, force))
            write_json(folder / CONFIG, description)
        reporter.resumable({"output": folder if output is None else None, "resume": None if before else True})
        if isinstance(source, Source) and "memory" not in typed:  # it was chosen for this machine
            source = replace(source, memory=None)
        yield made, folder, source, description


def _require_same_request(
    folder: Path,
    description: Mapping[str, Any],
    source: Source | GraphSource,
    configs: type[Settings],
    settings: Mapping[str, Any],
    asked: Mapping[str, Any],
) -> tuple[Source | GraphSource, Settings, dict[str, Any]]:
    """Return source, settings and what else was asked for at the start; raise if something else is asked for now."""
    try:
        config = configs.from_json(description["config"])
        first = source.again(description["source"])
        texts = description["data"]["fingerprint"], description["command"], description.get("likelihood_reason", "")
        if not all(isinstance(value, str) for value in texts):
            raise TypeError("its data are not described")
        others = {name: _CONVERT[name](description[name]) for name in asked}
    except (KeyError, TypeError, ValueError) as error:
        raise CurvaeError(
            f"{folder} cannot be resumed: its {CONFIG} is incomplete ({error}); start a new run"
        ) from error
    known, space = described(configs), ",".join(factor.text for factor in config.factors)
    before = {**vars(config), **vars(first), **others, "space": space}
    now = {**settings, **source.options, **{name: value for name, value in asked.items() if value is not None}}
    if now.get("curvature") == "learn":
        now |= {"curvature": known["curvature"].default, "learn_curvature": True}
    if now.get("space") is not None:  # which can be written in several ways
        now["space"] = ",".join(factor.text for factor in configs(space=now["space"]).factors)
    other = []
    for name, value in now.items():
        same = (known[name].parse_word(value) if name in known else value) == before[name]
        if not same and (name, value) != ("likelihood", "auto"):
            started = f"no `{name}=…`" if before[name] is None else f"`{name}={json.dumps(before[name])}`"
            other.append(f"{started}, not {', '.join(map(str, value)) if isinstance(value, tuple | list) else value}")
    if other:
        raise CurvaeError(f"the run was started with {' and '.join(other)}; leave the option out, or start a new run")
    for name, advice in first.files.items():
        if description["source"].get(name) is not None and getattr(first, name) is None:
            raise CurvaeError(f'{folder} was started with {advice} with `{name}="{description["source"][name]}"`')
    return first, config, others


def train_run(
    source: Source | GraphSource,
    settings: Mapping[str, Any] = MappingProxyType({}),
    output: Path | None = None,
    *,
    repeats: int | None = None,
    root: str | None = None,
    links: int | None = None,
    resume: bool = False,
    force: bool = False,
    device: torch.device | str = "cpu",
    jobs: int | None = None,
    processes: int | None = None,
    reporter: Reporter = SILENT,
) -> tuple[Path, dict[str, Any], list[Path], Step]:
    """Train a model on rows or on a graph and write its run folder.

    Arguments:
        source: the data.
        settings: of `Config` or `GraphConfig`, those that were given.
        output: the folder; by default the next one in `runs/`.
        repeats: of rows, trainings with other seeds (1); of a graph, how often edges are hidden (5).
        root: name of the row or node that the map has at its centre; the Fréchet mean by default.
        links: of a graph, how many of the likeliest missing edges to write to a file.
        resume, force: go on with the run in the folder, or overwrite it.
        device, jobs: where to train, and in how many processes at most.
        processes: that train a model of rows together; by default one, or those that `torchrun` has started.
        reporter: receives messages and progress.

    Returns:
        The run folder, its figures, files that were asked for besides the usual ones, and what to do next.
    """
    count, together = source.count_name, process_count(processes)
    if together > 1:
        if (repeats or 1) > 1:
            raise CurvaeError(
                "`repeats=…` and `processes=…` cannot be combined: several processes train one model; drop one"
            )
        require_shareable(together, Config(**settings), device)

    plan: Any = (
        partial(GraphTrainingPlan, links=links, root=root)
        if isinstance(source, GraphSource)
        else partial(RowsTrainingPlan, processes=together, root=root)
    )
    with start_run(
        source, settings, output, source.kind, {count: repeats}, plan, reporter, resume=resume, force=force
    ) as (made, folder, _, description):
        warnings = [*made.data.warnings, *made.remarks]
        reporter.tell(description["data"]["notes"], warnings)
        reporter.tell([made.text, f"run folder {folder}"], ())
        found = made.train(
            folder,
            reporter,
            epoch_progress(reporter, resume),
            resume=resume,
            jobs=jobs or default_jobs(device),
            device=device,
        )
        warnings += found.warnings
        summary = {**found.summary, "warnings": warnings}
        write_map(
            folder,
            found.tables,
            description["data"]["nodes" if source.kind == "graph" else "rows"],
            {name: one for section in found.sections for name, one in section.named_pictures.items()},
        )
        for name, table in found.files.items():
            write_tables(folder / name, [table])
        write_report(
            folder / "report.html",
            f"Map of {'the graph ' if source.kind == 'graph' else ''}{made.source.shown.path}",
            found.verdict,
            "good" if found.good and not warnings else "neutral",
            warnings,
            found.sections,
            description["seed"],
            description["command"],
            found.advice,
            reporter.words,
        )
        extra = {
            **{key: description[key] for key in ("command", "asked", "source", count, "root", "data")},
            "orientation": frames_to_json(found.frames),
            "summary": summary,
        }
        save_fitted(folder, found.fitted, found.embedding, extra, made.data)
        reporter.tell(found.said, found.warnings)
        return folder, summary, [folder / name for name in found.files], found.following


def epoch_progress(reporter: Reporter, resumed: bool) -> Callable[[dict[str, Any], int], None]:
    """Tell the progress of one training, with the figures of its latest epoch, and where a resumed one continues."""

    def progress(record: dict[str, Any], epochs: int) -> None:
        nonlocal resumed
        if resumed:
            reporter.say(f"continued at epoch {record['epoch']} of {epochs}")
            resumed = False
        elbo, reconstruction, kl = (decimal(record[name]) for name in ("elbo", "reconstruction", "kl"))
        shown = ", ".join(f"{c:.3g}" for name, c in record.items() if name == "c" or name.startswith("c_"))
        reporter.progress("training", record["epoch"], epochs, f"ELBO {elbo}  rec {reconstruction}  KL {kl}  c {shown}")

    return progress


# `curvae compare`: is a curved latent space better for these data?

TONES: dict[Outcome, Any] = {"hyperbolic": "good", "none": "neutral", "euclidean": "bad"}
_DEFAULT: dict[str, Any] = {"curvatures": [0.3, 1.0], "repeats": 5}


def compare_run(
    source: Source | GraphSource,
    settings: Mapping[str, Any] = MappingProxyType({}),
    curvatures: Curvatures | None = None,
    repeats: int | None = None,
    output: Path | None = None,
    *,
    resume: bool = False,
    force: bool = False,
    jobs: int | None = None,
    device: str = "auto",
    tree: Path | None = None,
    reporter: Reporter = SILENT,
) -> tuple[Path, Comparison, Step]:
    """Compare curvatures and write `comparison.json` and `report.html`.

    Arguments:
        source, settings, output, resume, force, jobs, device, reporter: see `train_run`.
        curvatures: values of c > 0, or "auto"; 0.3 and 1, or those that the comparison was started with.
        repeats: seeds and splits; 5, or as many as it was started with.
        tree: a known tree of the data, to compare by how well it is recovered too.

    Returns:
        The folder, the comparison, and the training with the curvature that was found best.
    """

    comparison: Any = GraphComparisonPlan if isinstance(source, GraphSource) else RowsComparisonPlan

    def plan(*given: Any, **asked: Any) -> Any:
        chosen = {name: value for name, value in asked.items() if value is not None}
        return comparison(*given, **_DEFAULT | chosen, tree=tree)

    asked = {"curvatures": curvatures, "repeats": repeats}
    with start_run(source, settings, output, "comparison", asked, plan, reporter, resume=resume, force=force) as (
        made,
        folder,
        source,
        description,
    ):
        reporter.tell((), [*made.data.warnings, *made.remarks])
        reporter.say(made.text)
        found, said, warned, sections = made.compare(
            device=device,
            jobs=jobs,
            folder=folder,
            resume=resume,
            progress=lambda done, total: reporter.progress("training", done, total, ""),
            warn=reporter.warn,
        )
        reporter.tell(said, warned)
        write_json(folder / "comparison.json", found.to_json())
        write_report(
            folder / "report.html",
            f"Is a curved space better for {description['source']['name']}?",
            found.verdict,
            TONES[found.outcome],
            [*made.data.warnings, *warned],
            sections,
            made.config.seed,
            description["command"],
            words=reporter.words,
        )
        reporter.say(found.verdict)
    best = float(found.choice or max((one.choice for one in found.criteria if found.outcome == "none"), default=0))
    chosen = {**made.typed, "curvature": best}
    if "space" in made.typed:
        config = type(found.config)(**made.typed).with_curvature(best)
        chosen = given(config) | ({} if config.space else {"curvature": best})
    return folder, found, source.step(source.action, **chosen)


# `curvae demo`: the whole story on built-in data, offline, in a few minutes.

# The paper's synthetic experiment in small: unit variance, σ0 = 1.7, its largest curvature, a few of its epochs.
_DEMO_CURVATURE = 1.2
_DEMO_CONFIG = Config(
    likelihood="unit_gaussian",
    prior_scale=1.7,
    epochs=120,
    learning_rate=1e-3,
    adam_beta2=0.999,
    cooldown=0.0,
    hidden=(200,),
    objective="elbo",
    samples=1,
    patience=None,
)
_DEMO_REPEATS = 5
_DEMO_FILE = "demo.json"


def demonstrate(
    output: Path,
    seed: int = 0,
    quick: bool = False,
    reporter: Reporter = SILENT,
) -> tuple[Path, dict[str, Comparison]]:
    """Compare the ordinary and the Poincaré VAE on a tree and on flat data; returns the report and the figures.

    `quick` only tries whether everything works: its figures mean little.
    """
    with new_folder(output, "demo", force=True, mark=_DEMO_FILE):
        config = replace(_DEMO_CONFIG, seed=seed, epochs=3 if quick else _DEMO_CONFIG.epochs)
        repeats = 3 if quick else _DEMO_REPEATS
        notes = (
            [
                "Three epochs only try whether everything works, and these figures mean little; curvae demo trains in "
                "full."
            ]
            if quick
            else []
        )
        tree = branching_diffusion(seed=seed)
        data = {
            "a branching diffusion": (
                tree.dataset(),
                "127 nodes of a binary tree of depth 6, each seen five times through noise in 50 dimensions. Lines are "
                "the true hierarchy, which the models do not see; colours are its branches.",
            ),
            "flat data": (
                flat(seed=seed),
                "635 rows of independent normal numbers in 50 dimensions: there is nothing to find, and the tool says "
                "so.",
            ),
        }
        found: dict[str, Comparison] = {}
        sections: list[Section] = []
        reporter.say(
            f"{2 * len(data) * repeats} trainings: curvature 0 and c = {_DEMO_CURVATURE:g}, {repeats} seeds, on a tree "
            "and on flat data"
        )
        for name, (rows, about) in data.items():
            found[name] = result = compare(
                config,
                rows.x,
                (_DEMO_CURVATURE,),
                repeats,
                samples=200,
                progress=lambda done, total, task=f"training on {name}": reporter.progress(task, done, total, ""),  # type: ignore[misc]
                warn=reporter.warn,
            )
            pictures = []
            frames_of, _ = orientation_of(rows.x, rows.ids)
            for c, title in ((0.0, "ordinary VAE"), (_DEMO_CURVATURE, "Poincaré VAE")):
                place = result.embeddings[c]
                projection = place.chart.project(place.points, frames_of(place)[0])
                hierarchy = (
                    None
                    if rows.labels is None
                    else (pages.node_places(tree, place.chart.page, projection.points), tree.edges)
                )
                pictures.append(
                    pages.map_picture(place, rows.labels, title, hierarchy, projection, label_name=rows.label_name)
                )
            sections.append(
                Section(f"On {name}", [about, result.verdict], pictures, pages.comparison_section(result).tables)
            )
            reporter.say(f"On {name}: {result.verdict}")
        reporter.tell(notes, ())
        tree_result, flat_result = found.values()
        good = tree_result.outcome == "hyperbolic" and flat_result.outcome != "hyperbolic"
        page = output / "report.html"
        write_json(output / _DEMO_FILE, {name: result.to_json() for name, result in found.items()})
        write_report(
            page,
            "Curvae: a hierarchy found, and none invented",
            f"On a tree: {tree_result.verdict} On flat data: {flat_result.verdict}",
            "good" if good else "neutral",
            notes,
            sections,
            seed,
            reporter.started,
            words=reporter.words,
        )
        return page, found
