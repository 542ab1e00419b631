"""Runs on rows: what `curvae fit`, `compare` and `diagnose` do with a table, a matrix or images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..data import Arrays, Dataset, Schema, load, memory
from ..data.column_statistics import Missing, MissingValuesError, column_statistics
from ..data.dataset import one_hot, source_columns
from ..data.disk import DiskMatrix, in_memory
from ..data.files import count as counted
from ..data.files import decimal
from ..data.spool import ROW_BYTES
from ..data.tables import average_context, code_values
from ..errors import CurvaeError, FixableError
from ..geometry.frames import Frame
from ..hierarchy import Diagnosis, Faithfulness, Metric, Rows, diagnose_distances, diagnose_rows
from ..maps.embedding import align_maps, principal_scores, sampled_rows
from ..models.likelihoods import choose_likelihood
from ..report import Picture, Section
from ..settings import choose_neighbours
from ..settings.configs import DEFAULT_STEPS
from ..training import Config, Embedding, Fitted, Split, impute, random_split
from ..training.build import require_buildable
from ..training.comparison import (
    FEWEST_COMPARED,
    SAMPLES,
    Comparison,
    Repeat,
    compare_planned,
    faithfulness_criterion,
    plan_comparison,
    recovery_criterion,
    require_recoverable,
)
from ..training.config import require_count
from ..training.evaluate import Likelihoods, embed, health, likelihoods, stability
from ..training.fitting import train_many, train_one
from ..training.portable import Part, portable
from ..training.rows import HELD_OUT, judged_rows, layout_of
from ..training.rows_problem import RowsProblem, RowsTask, plan_rows
from ..training.storage import Loaded, write_bytes
from . import pages
from .folders import embedding_path, embedding_table, output_file, write_array, write_table, write_tables
from .pages import describe_covariates, filled_rows, judge_rows, place_text, scaled_rows
from .run import (
    SILENT,
    DataSource,
    Outcome,
    Place,
    Reporter,
    Run,
    Source,
    Step,
    comparable,
    geometry,
    known_tree,
    missing_as_run,
    stored_frames,
)

__all__ = [
    "NEW_ROWS",
    "RowsRun",
    "Sample",
    "choose_test_share",
    "diagnose_table",
    "draw_rows",
    "embed_rows",
    "embedding_tables",
    "impute_rows",
    "load_sample",
    "portable_rows",
    "report_samples",
    "sample_split",
    "score_rows",
    "shows_new_rows",
]


# Samples of data on disk, for figures and pictures and for what needs rows in memory.

_LEAST = 1000  # rows of a sample, where there are so many, however little memory there is


class Sample(NamedTuple):
    """Rows in memory.

    Arguments:
        data: all rows, or a sample.
        schema: of all rows.
        chosen: numbers of the rows of a sample in ascending order; None if they are all.
        rows: how many there are in all.
    """

    data: Dataset
    schema: Schema
    chosen: NDArray[np.int64] | None
    rows: int


def load_sample(source: Source, seed: int, reporter: Reporter) -> Sample:
    """Load rows for what needs them in memory: of data on disk as many as fit, chosen at random."""
    data, schema = source.bounded.load(reporter.counter)
    if not isinstance(data.x, DiskMatrix):
        return Sample(data, schema, None, len(data))
    row = ROW_BYTES + 16 * data.x.shape[1]
    count = min(len(data), max(_LEAST, data.x.memory // row))
    chosen = np.random.default_rng([seed, 13]).choice(len(data), count, replace=False, shuffle=False)
    chosen = np.sort(chosen).astype(np.int64)
    if count == len(data):
        return Sample(data.load(), schema, None, len(data))
    note = f"a sample is looked at: {count:,} of {len(data):,} rows, chosen at random with seed {seed}."
    reporter.say(note)
    some = data.take(chosen).load()
    return Sample(replace(some, notes=(*some.notes, note)), schema, chosen, len(data))


def sample_split(data: Dataset, split: Split, seed: int) -> tuple[Dataset, Split]:
    """Take at most 10,000 rows of every part of data on disk; return them with the parts that they belong to."""
    if not data.on_disk:
        return data, split
    rows = split.sample(HELD_OUT, seed)
    some = data.take(rows).load()
    if len(rows) < len(data):
        note = f"pictures and figures are of a sample: {len(rows):,} of {counted(len(data), 'row')}, chosen at random."
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
        reporter: told how far it is.
        split: what rows were for; all are new by default.
    """
    fitted, advance = fitted.double(), reporter.counter("embedding", len(data))
    start = 0
    for piece in data.pieces():
        names = "new" if split is None else split.names(len(piece), start)
        yield embedding_table(embed(fitted, piece), piece.ids, piece.labels, names, frames=frames)
        start += len(piece)
        advance(len(piece))


# The model of rows put to use: what `curvae embed`, `impute`, `sample` and `evaluate` do with it.

NEW_ROWS = 100_000
"""new rows that a map shows at most"""

_SAMPLES = 5000  # importance samples a row
_UNUSUAL = 5  # rows that are named, at most
_TRAINING_ROWS = 2000  # at most, among which other rows are ranked


def shows_new_rows(folder: Path, rows: int) -> bool:
    """Whether the map of a run can mark so many new rows: a folder that was saved from Python has no map."""
    return rows <= NEW_ROWS and embedding_path(folder).exists()


def _read(
    loaded: Loaded,
    path: str,
    missing: Missing | None,
    reporter: Reporter,
    decode: bool,
    memory: str | None = None,
    cache: str | None = None,
) -> Dataset:
    """Read new data as those of the run were read, with the same treatment of gaps unless `missing` is given.

    Raises for rows that do not fit the model, or lack covariates that it needs.
    """
    fitted, how = loaded.fitted, missing_as_run(missing, loaded.description)
    bound = Source(path, memory=memory).bounded.memory
    data, _ = load(path, schema=loaded.data, missing=how, memory=bound, cache=cache, counter=reporter.counter)
    choose_likelihood(data.x, fitted.config.likelihood, replace(fitted.layout, names=data.names))
    fitted.require_covariates(data, loaded.data, Path(path).name, decode)
    reporter.tell(data.notes, data.warnings)
    return data


def embed_rows(
    run: Path,
    loaded: Loaded,
    path: str,
    *,
    missing: Missing | None,
    reporter: Reporter,
    nodes: str | None = None,
    features_file: str | None = None,
    memory: str | None = None,
    cache: str | None = None,
) -> tuple[Iterable[pd.DataFrame], int, Step]:
    """Embed the rows of a file.

    Returns:
        Tables with the columns of `embedding.csv`, one below the other, the number of rows, and what to do next.
    """
    for name, value in (("nodes", nodes), ("features_file", features_file)):
        if value is not None:
            raise CurvaeError(f"{run} holds a model of a table, which has no nodes; leave out {name}=…")
    data = _read(loaded, path, missing, reporter, False, memory, cache)
    frames = stored_frames(loaded.description, loaded.embedding)
    tables = embedding_tables(loaded.fitted, data, frames, reporter)
    if shows_new_rows(run, len(data)):
        return tables, len(data), Step("view", (str(run),), {"rows": path, "missing": missing})
    return tables, len(data), Step("evaluate", (str(run), path), {"missing": missing})


def impute_rows(
    run: Path,
    loaded: Loaded,
    path: str,
    output: Path | None,
    *,
    samples: int,
    seed: int,
    force: bool,
    reporter: Reporter,
    memory: str | None,
    cache: str | None = None,
) -> tuple[Path, int, int, Step]:
    """Fill the gaps of data and write a CSV table, or for images an array.

    The table has the columns of the source that the run knows, those of ids, labels and groups first, exposure and
    covariates last. Of a categorical column, the most probable category is filled in.

    Returns:
        The file, the number of values that were filled in and of rows that lacked some, and what to do next.
    """
    require_count("samples", samples, "importance_samples")
    fitted, schema = loaded.fitted, loaded.data
    images = schema.kind == "images"
    name = f"{Path(path).name.split('.')[0]}-imputed.{'npy' if images else 'csv'}"
    target = output_file(output, Path(name), force)
    data = _read(loaded, path, "model", reporter, True, memory, cache)
    known = column_statistics(data.x)
    # A category is one gap, however many features it has.
    firsts = np.cumsum([0, *(len(column.features) for column in schema.columns)])[:-1]
    values, lacking = int(known.missing[firsts].sum()), known.rows - known.complete
    advance = reporter.counter("imputing", lacking)
    filled = ((piece, impute(fitted, piece, samples, seed, advance)) for piece in data.pieces())
    if images:
        ((_, x),) = filled
        write_array(target, x.reshape(-1, *schema.shape))
    else:
        write_tables(target, (_filled_table(x, piece, schema, fitted.config.likelihood) for piece, x in filled))
    source = Source(str(target))
    if isinstance(stored := loaded.description.get("source"), dict):
        source = replace(source.again(stored), missing="error", memory=None, id=data.id_name or None)
    plain = source.exposure is None  # all that a diagnosis takes
    return target, values, lacking, source.step("diagnose") if plain else Step("view", (str(run),))


def _filled_table(x: Any, data: Dataset, schema: Schema, likelihood: str) -> pd.DataFrame:
    """Rows without gaps as a table of the source, with values that data have.

    These are in binary columns the more probable one, of counts the nearest integer, and whole numbers without a point.
    """
    x = x if isinstance(x, np.ndarray) else x.toarray()
    counts = [len(column.features) for column in schema.columns]
    whole = likelihood == "poisson" or np.repeat([column.binary for column in schema.columns], counts)
    table = _table(np.where(whole, np.rint(x), x), schema)
    if schema.exposure is not None and data.exposure is not None:
        table[schema.exposure] = data.exposure
    if data.context is not None:
        coded = source_columns(data.context, schema.covariates)
        for column in schema.covariates:
            values = coded[column.name]
            if column.categories is None:  # without what rounding left when it was standardised
                values = [float(f"{value * column.scale + column.fill:.12g}") for value in values]
            table[column.name] = values
    for name in table.select_dtypes("number"):
        if bool(((table[name] % 1 == 0) & (table[name].abs() < 2**53)).all()):
            table[name] = table[name].astype(np.int64)
    roles = {data.id_name: data.ids, schema.label: data.labels, schema.group: data.groups}
    named = {name: texts for name, texts in roles.items() if name is not None and texts is not None}
    return pd.concat([pd.DataFrame(named), table], axis=1)


def _table(rows: NDArray[np.float64], schema: Schema) -> pd.DataFrame:
    """Features as columns of the source: categories by name, binary ones as 1 and 0, counts for an exposure of 1."""
    columns = source_columns(rows, schema.columns)
    if schema.exposure is not None:
        columns[schema.exposure] = 1.0
    return pd.DataFrame(columns)


def draw_rows(
    run: Path,
    loaded: Loaded,
    count: int,
    output: Path | None,
    *,
    covariates: Mapping[str, str] | None,
    seed: int,
    force: bool,
) -> tuple[list[Path], Step]:
    """Write new rows to a CSV table, or for images to an array and a picture; return the files and what to do next.

    A model with covariates needs a value of each, which all rows share.
    """
    fitted, schema, name = loaded.fitted, loaded.data, run.resolve().name
    context = code_values(schema.covariates, covariates)
    # Noise, outputs, draws and their text.
    memory.require(64 * count * len(schema.names), f"a table of {count:,} samples", fix="lower count=…")
    rows = fitted.sample(count, context, seed)
    paths = [output_file(output, Path(f"{name}-samples.{'npy' if schema.kind == 'images' else 'csv'}"), force)]
    if schema.kind != "images":
        write_table(paths[0], _table(rows, schema).assign(**(covariates or {})))
    else:
        paths.append(output_file(None, paths[0].with_suffix(".png"), force))
        means = fitted.sample(min(count, 100), context, seed, mean=True)
        write_array(paths[0], rows.reshape(-1, *schema.shape).astype(np.float32))
        write_bytes(paths[1], pages.samples_picture(means.reshape(-1, *schema.shape)).png)
    return paths, Step("embed", (str(run), str(paths[0])))


def portable_rows(run: Path, loaded: Loaded) -> tuple[Sequence[Part], dict[str, Any]]:
    """Return the parts of the model to export, and how the data of the run become their inputs, as JSON values."""
    fitted, schema = loaded.fitted, loaded.data
    gaps_known = fitted.layout.missing
    filled = not gaps_known and missing_as_run(None, loaded.description) == "mean"
    fills = one_hot(schema.fills[np.newaxis], schema.columns, run.name)[0] if filled else None
    # Categories are told as they are; numbers are standardised by the graphs.
    numbers = [
        (column.fill, column.scale) if column.categories is None else (0.0, 1.0)
        for column in schema.covariates
        for _ in column.features
    ]
    described = schema.to_json()
    return portable(fitted, numbers, fills), {
        "features": list(schema.names),
        "covariates": list(schema.context_names),
        "exposure": schema.exposure,
        "missing": "nan, known to the model" if gaps_known else "nan, filled in" if filled else "none may be missing",
        "likelihood": fitted.config.likelihood,
        "space": [one._asdict() for one in fitted.model.space.figures()],
        "schema": {name: described[name] for name in ("kind", "shape", "columns", "covariates") if name in described},
    }


class _Rows(NamedTuple):
    """Rows whose likelihood is wanted, and which part of the data of a run each belongs to.

    The run's own data are reported by part: rows that were trained on say nothing about new ones.
    """

    data: Dataset
    split: Split
    own: bool

    @property
    def sample(self) -> _Rows:
        """Some of the rows, in memory, if they lie on disk."""
        data, split = sample_split(self.data, self.split, 0)
        return self._replace(data=data, split=split)

    @property
    def names(self) -> NDArray[np.str_]:
        """What each row was for."""
        return self.split.names(len(self.data)) if self.own else np.full(len(self.data), "new")


def _read_by_part(loaded: Loaded, path: str, missing: Missing | None, reporter: Reporter) -> _Rows:
    stored = loaded.description.get("source")
    memory = stored.get("memory") if isinstance(stored, dict) else None
    data = _read(loaded, path, missing, reporter, True, memory)
    own = data.fingerprint == loaded.description["data"].get("fingerprint")
    return _Rows(data, loaded.fitted.split if own else Split(np.arange(len(data)), np.empty(0, np.int64)), own)


def _training_rows(run: Path, loaded: Loaded, beside: str, given: str | None, seed: int) -> Dataset:
    """Rows that the run was trained on: all, or of many a random choice.

    Arguments:
        run, loaded: the run.
        beside: data in whose folder the file of the run is looked for, if not in the working directory.
        given: the file, if it is known.
        seed: of the choice.
    """
    source = loaded.description.get("source")
    name = source.get("name") if isinstance(source, dict) else None
    file = given or name
    if file is None or loaded.description["data"].get("fingerprint") is None:
        raise CurvaeError(
            f"{run} does not know the data that it was trained on, so rows have no rank; leave out output=…"
        )
    if given is None and not Path(file).exists() and Path(beside).with_name(file).exists():
        file = str(Path(beside).with_name(file))
    try:
        trained = _read_by_part(loaded, file, None, Reporter())
    except CurvaeError as error:
        if given is not None:
            raise
        raise CurvaeError(
            f"ranks need the data that the run was trained on, {name}; give them with training=…"
        ) from error
    if not trained.own:
        raise CurvaeError(f"{file} is not the data that {run} was trained on; give those with training=…")
    chosen = np.random.default_rng([seed, 19]).permutation(trained.split.train)[:_TRAINING_ROWS]
    return trained.data.take(np.sort(chosen)).load()


def score_rows(
    run: Path,
    loaded: Loaded,
    path: str,
    *,
    samples: int | None,
    seed: int,
    missing: Missing | None,
    output: Path | None,
    training: str | None,
    reporter: Reporter,
) -> dict[str, Any]:
    """Estimate marginal log-likelihoods, with 5000 importance samples a row by default, and judge the map.

    The log-likelihood of every row, and its rank among rows that the run was trained on, is written to the file
    `output`, if one is given.
    """
    samples = _SAMPLES if samples is None else samples
    require_count("samples", samples, "importance_samples")
    fitted = loaded.fitted
    rows = _read_by_part(loaded, path, missing, reporter)
    shown = rows.sample
    data, names = (shown if output is None else rows).data, (shown if output is None else rows).names
    others = None  # rows to rank these among, unless they are among these
    if output is not None and "train" not in names:
        others = _training_rows(run, loaded, path, training, seed)

    def estimated(rows: Dataset, what: str) -> Likelihoods:
        advance = reporter.counter(what, len(rows))
        return likelihoods(fitted, rows, samples, seed, advance=advance).require_finite(in_memory(rows.ids))

    found = estimated(data, "likelihood")
    ranked = {}
    if output is not None:
        among = found.take(names == "train") if others is None else estimated(others, "training rows")
        lower = np.searchsorted(np.sort(among.log_prob), found.log_prob)
        table = pd.DataFrame(
            {
                "id": in_memory(data.ids),
                "split": names,
                "log_likelihood": found.log_prob,
                "standard_error": found.error,
                "training_percentile": np.round(100 * lower / len(among.log_prob), 4),
            }
        )
        write_table(output, table)
        unusual = table[table["training_percentile"] < 1].sort_values("log_likelihood")
        ranked = {
            "scores": str(output),
            "training_rows": len(among.log_prob),
            "rows_below_1_percent": len(unusual),
            "most_unusual": [str(name) for name in unusual["id"][:_UNUSUAL]],
        }
    parts = {}
    for name in dict.fromkeys(names.tolist()):
        part = found.take(names == name)
        parts[name] = {
            "rows": len(part.log_prob),
            "log_likelihood": part.mean,
            "interval": part.interval,
            "log_likelihood_original_units": part.original.mean,
            "median_effective_sample_size": float(np.median(part.ess)),
            "median_standard_error": float(np.median(part.error)),
            "rows_with_few_effective_samples": int((part.ess < 10).sum()),
        }
    embedding = embed(fitted, shown.data).require_finite(shown.data.ids)
    faithful = judge_rows(shown.data, embedding, judged_rows(shown.names), seed=seed)
    return {
        "run": run.resolve().name,
        "data": Path(path).name,
        "samples": samples,
        "seed": seed,
        "parts": parts,
        "faithfulness": None if faithful is None else faithful.to_json(),
        **ranked,
    }


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

    Arguments:
        source, config: see `Run`.
        reporter: told how far the data are read.

    Attributes:
        hindrance: why the map cannot be held to the neighbourhoods of the data, if it cannot.
        sample, sample_split: the rows that figures and pictures show, all unless they lie on disk, and their parts.
    """

    hindrance = ""
    count = "repeats"
    fitted = Fitted
    sample: Dataset
    sample_split: Split

    def __init__(self, source: Source, config: Config, reporter: Reporter = SILENT) -> None:
        self.data, self.schema = source.load(reporter.counter)
        super().__init__(source if self.data.on_disk else replace(source, memory=None), config)
        self.rows = len(self.data)
        self.data_size = f"{self.rows} rows, {counted(self.data.n_columns, 'column')}"
        if self.rows < _ENOUGH:
            self.remarks = [f"only {self.rows} rows to learn from: the map may show little but chance; add rows"]

    @property
    def notes(self) -> Sequence[str]:
        return self.sample.notes

    @property
    def names(self) -> NDArray[np.str_]:
        return in_memory(self.data.ids)

    @cached_property
    def reference(self) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        chosen = sampled_rows(len(self.sample))
        return chosen, principal_scores(self.sample.x[chosen])

    # --- training -----------------------------------------------------------------------------------------------------

    def prepare(self, count: int | None, before: Mapping[str, Any], processes: int) -> dict[str, Any]:
        data, config = self.data, self.config
        self.repeats = 1 if count is None else count
        require_count("repeats", self.repeats)
        known = column_statistics(data.x)
        if not (known.low < known.high).any():
            raise CurvaeError(
                f"nothing varies in {self.source.path}: every column is constant, so there is nothing to learn"
            )
        self.problem, self.tasks = self.plan_training(before, processes)
        self.config, layout = self.tasks[0].config, self.tasks[0].layout
        neighbours_reason = choose_neighbours(config, layout, len(self.split.train), self.hindrance)[1]
        require_buildable(self.config, layout)
        self.reason = before.get("likelihood_reason", self.tasks[0].reason)
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
            "notes": list(self.notes),
            "warnings": list(data.warnings),
            "label": data.label_name,
            "schema": self.schema.to_json(),
        }
        return {"likelihood_reason": self.reason, "repeats": self.repeats, "data": facts}

    def plan_training(self, before: Mapping[str, Any], processes: int) -> tuple[RowsProblem, Sequence[RowsTask]]:
        """Split the rows and resolve the settings."""
        data, config = self.data, self.config
        split = partial(random_split, len(data), config.validation, most=HELD_OUT)
        self.test = choose_test_share(config, len(data), before)
        self.split = split(self.test, config.seed, data.groups)
        if not len(self.split.validation):
            self.test, self.split = 0.0, split(0.0, config.seed, data.groups)
        self.sample, self.sample_split = sample_split(data, self.split, config.seed)
        if processes > 1:
            self.hindrance = "several processes share every batch, and it compares all rows of one"
        seeds = [replace(config, seed=config.seed + i) for i in range(self.repeats)]
        return plan_rows(seeds, data, splits=[self.split] * self.repeats, hindrance=self.hindrance)

    def train(
        self, place: Place, reporter: Reporter, progress: Callable[[dict[str, Any], int], None]
    ) -> tuple[Fitted, list[Embedding]]:
        """Train all models; return the first and the maps of all that did not fail."""
        problem, repeats = replace(self.problem, asked=place.device), self.repeats
        where: dict[str, Any] = {"folder": place.folder, "resume": place.resume}
        if repeats == 1:
            found = [train_one(problem, self.tasks, **where, processes=place.processes, progress=progress)]
        else:
            found = train_many(
                problem,
                self.tasks,
                **where,
                jobs=min(place.jobs, repeats),
                progress=lambda done, total: reporter.progress("training", done, total, f"{repeats} models"),
                warn=reporter.warn,
            )
        if found[0].failure is not None:
            raise CurvaeError(found[0].failure)
        maps = [embed(one, self.sample) for one in found if one.failure is None]
        return replace(found[0], reason=self.reason, split=self.split), maps

    def outcome(
        self,
        trained: tuple[Fitted, list[Embedding]],
        place: Place,
        named: DataSource,
        seconds: float,
        reporter: Reporter,
    ) -> Outcome:
        data, split, config, (fitted, maps) = self.sample, self.sample_split, self.config, trained
        embedding = maps[0]
        last, held_out = fitted.last, ((getattr(split, name), name) for name in ("test", "validation"))
        # The likelihood is that of test rows, else of validation rows, else of those that were trained on.
        scored, part = next((one for one in held_out if len(one[0]) >= _SCORED), (split.train, "train"))
        apart, kind = part != "train", "training" if part == "train" else part
        told = f"{kind} rows" + (", which chose the epoch," if part == "validation" and fitted.keeps_best else "")
        reporter.say(f"measuring the likelihood of {kind} rows")
        advance = reporter.counter("likelihood", len(scored))
        found = likelihoods(fitted, data.arrays.take(scored), report_samples(len(scored)), advance=advance)
        parts = split.names(len(data))
        faithful = judge_rows(data, embedding, judged_rows(parts), seed=config.seed)
        beside = describe_covariates(data, self.schema, embedding, config.seed)
        warnings = health(fitted, embedding)
        stable = stability(maps)
        frames, aligned = self.orient(embedding), None if stable is None else align_maps(maps)
        spread, variation = {} if aligned is None else {"spread": aligned.spread}, pages.map_variation(aligned)
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
            "spread": variation,
            "faithfulness": None if faithful is None else faithful.to_json(),
        }
        tables: Iterable[pd.DataFrame] = [
            embedding_table(embedding, data.ids, data.labels, parts, frames=frames).assign(**spread)
        ]
        if self.data.on_disk:
            tables = embedding_tables(fitted, self.data, frames, reporter, self.split)
        again = named.train_step(**self.settings, repeats=5)
        compare = named.compare_step(**comparable(self.settings))
        held = f"{len(scored):,} {told.rstrip(',')}"
        figures = (
            f"{self.rows} rows on {place_text(embedding)}: "
            f"log-likelihood of {told} {found.text} nats a row, divergence from the prior {decimal(last['kl'])} nats."
        )
        sections = {
            "map": pages.map_section(
                data, embedding, frames, self.orientation_sentence, spread, reporter.command(place.view_step)
            ),
            "faithfulness": pages.faithful_section(faithful, beside),
            "likelihood": pages.likelihood_section(found if apart else None, figures, held, reporter.command(compare)),
            "stability": pages.stability_section(data, stable, aligned, variation, frames, reporter.command(again)),
            "training": pages.training_section(fitted, embedding, self.neighbours_reason),
            "drivers": pages.drivers_section(fitted, data, embedding, average_context(self.schema.covariates)),
            "reconstructions": pages.reconstruction_section(fitted, data, embedding, scored, found.log_prob, kind),
            "data": pages.data_section(data, [pages.scaling_note(config)]),
        }
        answer = "There are too few rows to judge the map." if faithful is None else faithful.verdict
        advice = self._advise(named, faithful, *place.view_step.arguments)
        verdict = f"{answer} {pages.capital(advice.why)}{'' if advice.why.endswith('?') else ':'}"
        pictures = sections["map"].named_pictures | sections["training"].named_pictures
        report = f"Map of {named.path}", verdict, warnings, list(sections.values()), pictures
        said = [answer, *beside, *([] if stable is None else sections["stability"].text), figures]
        good = faithful is None or not faithful.behind
        following = self._advise(self.source, faithful, str(place.folder))
        step = reporter.command(advice._replace(why=""))
        return Outcome(fitted, embedding, frames, tables, self.rows, summary, *report, said, following, good, step)

    def _advise(self, source: DataSource, faithful: Faithfulness | None, folder: str) -> Step:
        """What to do next: make the map better where PCA keeps more, compare curvatures, or look at the map."""
        if faithful is not None and faithful.behind:
            typed = {name: value for name, value in self.settings.items() if name not in ("epochs", "steps")}
            asked = (self.settings.get("epochs") or 0) * -(-len(self.split.train) // self.config.batch_size)
            if typed != self.settings and self.settings.get("steps", asked) < DEFAULT_STEPS:
                return source.train_step("the default length of training may keep more neighbours", **typed)
            usual, layout = replace(self.config, neighbours="auto"), layout_of(Arrays.of(self.data))
            possible = choose_neighbours(usual, layout, len(self.data), self.hindrance)[0] != "off"
            if possible and self.config.neighbours in ("auto", "off"):
                more = self.settings | {"neighbours": "both"}
                return source.train_step("holds the map to the neighbourhoods of the data", **more)
            if self.config.space is None and self.config.dim == 2 and self.config.neighbours != "off":
                return source.train_step("a third dimension may keep more neighbours", **self.settings | {"dim": 3})
        if self.rows < FEWEST_COMPARED or self.curvature_chosen:
            return Step("view", (folder,), why="the interactive map")
        return source.compare_step("is curvature worth it for these data?", **comparable(self.settings))

    # --- comparison ---------------------------------------------------------------------------------------------------

    def plan_comparison(
        self, curvatures: Sequence[float], repeats: int, before: Mapping[str, Any] | None, tree: Path | None
    ) -> dict[str, Any]:
        data, config = self.data, self.config
        likelihood, _ = choose_likelihood(data.x, config.likelihood, layout_of(Arrays.of(data)))
        if before is not None and config.likelihood == "auto":
            chosen = before.get("likelihood", likelihood)
            self.config = replace(config, likelihood="auto" if chosen == likelihood else chosen)
        self.plan = plan_comparison(self.config, data.arrays, curvatures, repeats, data.groups)
        self.trainings, self.tree = len(self.plan.tasks), None
        if tree is not None:
            self.tree = known_tree(tree, self.source.path, in_memory(data.ids), in_memory(data.labels))
            require_recoverable(self.tree[1].node, self.plan.splits)
        sizes = {"rows": len(data), "features": int(data.x.shape[1])}
        return {"fingerprint": data.fingerprint, **sizes, "likelihood": likelihood}

    def compare(self, curvatures: Sequence[float], repeats: int, **where: Any) -> Comparison:
        problem: Any = self.plan.problem
        found, rows = compare_planned(self.plan, **where), problem.shown
        self.sample = self.data if rows is None else self.data.take(rows).load()
        splits = {
            self.config.seed + i: split if rows is None else split.within(rows)
            for i, split in enumerate(self.plan.splits)
        }
        criteria = [faithfulness_criterion(filled_rows(self.sample), found, splits)]
        if self.tree is not None:
            known, match = self.tree
            node = match.node if rows is None else match.node[rows]
            criteria.append(recovery_criterion(known.distances, node, found, splits))
        structure = ""  # what the test for a hierarchy calls the data, unless they are too few for it or have gaps
        with suppress(CurvaeError):
            if not self.data.missing:
                structure = diagnose_rows(scaled_table(self.sample, self.schema)[0], self.config.seed).outcome
        return replace(found, criteria=tuple(criteria), structure=structure)

    def comparison_report(self, found: Comparison) -> tuple[list[str], list[str], list[Section]]:
        data = self.data
        drawn = [picture for c in (0.0, found.best) for picture in self._map_pictures(found.embeddings[c])]
        sections = [
            Section("The maps", [self.orientation_sentence], drawn),
            pages.comparison_section(found),
            pages.criterion_section(found),
            pages.data_section(data, [pages.scaling_note(found.config)]),
        ]
        return [f"likelihood {found.config.likelihood}: {found.reason}"], _beaten(found), sections

    def _map_pictures(self, embedding: Embedding) -> list[Picture]:
        """The map of every factor."""
        return pages.row_pictures(self.sample, embedding, self.orient(embedding))


def diagnose_table(
    source: Source, metric: Metric, distances: bool, seed: int, reporter: Reporter, step: Callable[[str], None]
) -> tuple[Diagnosis, NDArray[np.str_] | None, Section, tuple[str, ...]]:
    """Test rows for a hierarchy, as a model would see them, or a matrix of distances; `step` is told what is done.

    Returns:
        What was found, the labels of the rows, what was done to the data, and warnings about them.
    """
    try:
        data, schema = source.load() if distances else load_sample(source, seed, reporter)[:2]
    except MissingValuesError as error:
        if distances:
            raise CurvaeError(f"{error.found}; fill these distances in, or leave the points out") from error
        raise
    if data.missing:
        fixes = [("missing", "mean"), ("missing", "drop")]
        raise FixableError("the test needs all values, so gaps cannot be left to a model", [fixes])
    reporter.tell((), data.warnings)
    if distances:
        found = diagnose_distances(data.x, seed, step)
        return found, data.labels, Section("What was done to the data", [*data.notes, *found.notes]), data.warnings
    rows, note = scaled_table(data, schema, metric)
    found = diagnose_rows(rows, seed, step)
    return found, data.labels, pages.data_section(data, [note, *found.notes]), data.warnings


def scaled_table(data: Dataset, schema: Schema, metric: Metric = "euclidean") -> tuple[Rows, str]:
    """Scale rows as the test for a hierarchy takes them; return them and how they were scaled."""
    blocks = tuple(len(column.features) for column in schema.columns) if schema.kind == "table" else ()
    return scaled_rows(Rows(data.x, metric, blocks=blocks))


def _beaten(found: Comparison) -> list[str]:
    """Warn of a linear model that describes the test rows better, or scores higher, and say what still stands."""
    warnings = []
    best, linear = _beside_pca(found.repeats)
    if linear is not None and linear > best:
        warnings.append(
            f"PCA of the same dimension describes the test rows better ({decimal(linear)} against {decimal(best)} nats "
            "a row), so the comparison by likelihood says little"
        )
    for one in found.criteria:
        best, linear = _beside_pca(one.repeats)
        if linear is not None and linear > best:
            stands = "" if warnings else "; the one by likelihood stands"
            warnings.append(
                f"PCA of the same dimension scores higher in {one.name} ({linear:.3f} against {best:.3f}), so the "
                f"comparison by {one.name} says little{stands}"
            )
    return warnings


def _beside_pca(repeats: Sequence[Repeat]) -> tuple[float, float | None]:
    """The best mean test score of all curvatures, and that of PCA, if it was measured."""
    linear = [repeat.pca for repeat in repeats if repeat.pca is not None]
    best = max(float(np.mean([repeat.test[c] for repeat in repeats])) for c in repeats[0].test)
    return best, float(np.mean(linear)) if linear else None
