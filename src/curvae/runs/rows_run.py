"""Runs on rows: what `curvae fit`, `compare` and `diagnose` do with a table, a matrix or images."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ..data import Arrays, Dataset, Schema, Stream, load, memory, open_stream
from ..data.dataset import Missing, MissingValuesError, extremes, one_hot, places, source_columns
from ..data.files import count, decimal, quoted
from ..data.files import count as counted
from ..data.streams import Blocks, surveyed
from ..data.tables import average_context, code_values
from ..errors import CurvaeError, FixableError
from ..geometry.frames import Frame
from ..hierarchy import Faithfulness, Match, Metric, NamedTree, Rows, diagnose_distances, diagnose_rows
from ..maps.orientation import align_maps, principal_scores
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
from ..training.rows import HeldOut, judged_rows, layout_of
from ..training.rows_problem import RowsProblem, RowsTask, plan_rows
from ..training.storage import write_bytes
from ..training.streamed import IN_PIECES, held_out_rows, plan_stream, sample_rows
from . import pages
from .folders import embedding_path, embedding_table, output_file, write_table, write_tables
from .pages import (
    by_factor,
    criterion_section,
    describe_covariates,
    driver_sections,
    faithful_section,
    filled_rows,
    judge_rows,
    map_files,
    place_text,
    scaled_rows,
    spread_figures,
    spread_pictures,
    spread_text,
    stability_section,
)
from .run import (
    DataSource,
    DiagnosedData,
    EmbeddedData,
    Imputed,
    Outcome,
    Place,
    Reporter,
    Run,
    Sampled,
    ScoreFile,
    Source,
    Step,
    TrainedRun,
    comparable,
    geometry,
    known_tree,
    missing_as_run,
    streamed_blocks,
)

__all__ = [
    "NEW_ROWS",
    "InMemory",
    "RowsRun",
    "SampledRun",
    "StreamRun",
    "TrainedRows",
    "choose_test_share",
    "embedded_tables",
    "loaded",
    "opened",
    "sampled",
    "shows_new_rows",
]


# Streams in runs: samples for figures and pictures and for what needs rows in memory, and the table of a map a piece
# at a time.

_VALUE = 16  # bytes in memory of a value
_LEAST = 1000  # rows of a sample, where there are so many, however little memory there is


def sampled(stream: Stream, held_out: HeldOut, seed: int) -> tuple[Dataset, Split]:
    """The rows that are held out and at most 10,000 others, chosen at random; and which of these are which."""
    rows, split = sample_rows(stream, held_out, seed)
    data = stream.take(rows)
    if len(rows) < len(stream):
        note = f"pictures and figures are of a sample: {len(rows):,} of {count(len(stream), 'row')}, chosen at random."
        data = replace(data, notes=(*data.notes, note))
    return data, split


def opened(source: Source, blocks: Blocks, bound: int | str, reporter: Reporter) -> Stream:
    """The rows of a source to be read in pieces, with the roles of its columns, within so much memory."""
    passes = 2 if source.covariates else 1
    advance = reporter.counter("reading", passes * len(blocks))
    return open_stream(blocks, memory=bound, missing=source.missing, advance=advance)


class InMemory(NamedTuple):
    """Rows for what needs them in memory.

    Arguments:
        data: all rows, or a sample.
        schema: of all rows.
        memory: how much was taken for a sample; None of all rows.
        chosen: numbers of the rows of a sample in ascending order; None of all rows.
        rows: how many there are in all.
    """

    data: Dataset
    schema: Schema
    memory: str | None
    chosen: NDArray[np.int64] | None
    rows: int


def loaded(source: Source, seed: int, reporter: Reporter) -> InMemory:
    """The rows for what needs them in memory: of data that are larger than they may be as many as fit, chosen at random
    from the seed.
    """
    if (blocks := streamed_blocks(source, reporter.counter)) is None:
        data, schema = source.load()
        return InMemory(data, schema, None, None, len(data))
    bound = memory.bound(source.memory)
    stream = opened(source, blocks, bound, reporter)
    row = blocks.footprint // len(stream) + _VALUE * (stream.features - len(blocks.names))
    count = min(len(stream), max(_LEAST, bound // row))
    # What takes memory for every row of the stream takes less than the rows that are chosen.
    chosen = np.random.default_rng([seed, 13]).choice(len(stream), count, replace=False, shuffle=False)
    chosen = np.sort(chosen).astype(np.int64)
    data = stream.take(chosen)
    if count < len(stream):
        note = f"a sample is looked at: {count:,} of {len(stream):,} rows, chosen at random with seed {seed}."
        reporter.say(note)
        data = replace(data, notes=(*data.notes, note))
    return InMemory(data, stream.schema, memory.size_text(bound), chosen, len(stream))


def embedded_tables(
    fitted: Fitted,
    stream: Stream,
    frames: Sequence[Frame] | None,
    reporter: Reporter,
    held_out: HeldOut | None = None,
    checked: Callable[[Dataset], Dataset] = lambda data: data,
) -> Iterator[pd.DataFrame]:
    """The rows of `embedding.csv` of a stream, in input order, a piece at a time.

    Arguments:
        fitted: the model.
        stream: the rows.
        frames: from which the factors of the map are drawn.
        reporter: told how far it is.
        held_out: validation and test rows, if the model was trained on the others; all rows are new by default.
        checked: returns the rows of a piece, or raises where they do not fit the model.
    """
    fitted, advance = fitted.double(), reporter.counter("embedding", len(stream))
    start = 0
    for block in range(len(stream.blocks.sizes)):
        for data in stream.datasets(block):
            rows = np.arange(start, start + len(data))
            split = "new" if held_out is None else held_out.names(rows)
            yield embedding_table(embed(fitted, checked(data)), data.ids, data.labels, split, frames=frames)
            start += len(data)
            advance(len(data))


# The model of rows put to use: what `curvae embed`, `impute`, `sample` and `evaluate` do with it.

NEW_ROWS = 100_000
"""new rows that a map shows at most"""

_SAMPLES = 5000  # importance samples a row
_UNUSUAL = 5  # rows that are named, at most
_TRAINING_ROWS = 2000  # at most, among which other rows are ranked


def shows_new_rows(folder: Path, rows: int) -> bool:
    """Whether the map of a run can mark so many new rows: a folder that was saved from Python has no map."""
    return rows <= NEW_ROWS and embedding_path(folder).exists()


class TrainedRows(TrainedRun):
    """The model of a table, a matrix or images."""

    def _read(self, path: str, missing: Missing | None, reporter: Reporter, decode: bool) -> Dataset:
        """New data, read as the run's own data were; so are rows that lack values, unless `missing` is given.

        Covariates must be there for whoever is told them: the encoder, and the decoder if it is going to `decode`.
        """
        how = missing_as_run(missing, self.loaded.description)
        data = self._checked(path, load(path, schema=self.loaded.data, missing=how)[0], decode)
        reporter.tell(data.notes, data.warnings)
        return data

    def _checked(self, path: str, data: Dataset, decode: bool) -> Dataset:
        """Rows that fit the model; raises for others."""
        fitted, schema = self.loaded.fitted, self.loaded.data
        choose_likelihood(data.x, fitted.config.likelihood, replace(fitted.layout, names=data.names))
        if schema.covariates and data.context is None and (decode or fitted.config.encode_covariates):
            names = quoted(column.name for column in schema.covariates)
            raise CurvaeError(
                f"{Path(path).name} needs the covariates that the model was trained with: {names}; add them"
            )
        return data

    def embed(
        self,
        path: str,
        nodes: str | None,
        features_file: str | None,
        missing: Missing | None,
        reporter: Reporter,
        memory: str | None = None,
    ) -> EmbeddedData:
        for name, value in (("nodes", nodes), ("features_file", features_file)):
            if value is not None:
                raise CurvaeError(f"{self.folder} holds a model of a table, which has no nodes; leave out {name}=…")
        fitted, schema = self.loaded.fitted, self.loaded.data
        if (blocks := streamed_blocks(Source(path, memory=memory), reporter.counter, schema)) is not None:
            how = missing_as_run(missing, self.loaded.description)
            stream = open_stream(blocks, schema=schema, memory=memory, missing=how)
            checked = partial(self._checked, path, decode=False)
            tables = embedded_tables(fitted, stream, self.frames, reporter, checked=checked)
            return EmbeddedData(tables, len(stream), self._view_step(path, missing, len(stream)))
        data = self._read(path, missing, reporter, decode=False)
        table = embedding_table(embed(fitted, data), data.ids, data.labels, "new", frames=self.frames)
        return EmbeddedData([table], len(table), self._view_step(path, missing, len(table)))

    def _view_step(self, path: str, missing: Missing | None, rows: int) -> Step:
        """Show new rows on the map where it can, or evaluate them."""
        if not shows_new_rows(self.folder, rows):
            return Step("evaluate", (str(self.folder), path), {"missing": missing})
        return Step("view", (str(self.folder),), {"rows": path, "missing": missing})

    def impute(
        self,
        path: str,
        output: Path | None,
        samples: int,
        seed: int,
        force: bool,
        reporter: Reporter,
        memory: str | None = None,
    ) -> Imputed:
        """Write a CSV table, or for images an array.

        The table has the columns of the source that the run knows, those of ids, labels and groups first, exposure and
        covariates last. Of a categorical column, the most probable category is filled in.
        """
        require_count("samples", samples, "importance_samples")
        fitted, schema = self.loaded.fitted, self.loaded.data
        images = schema.kind == "images"
        name = f"{Path(path).name.split('.')[0]}-imputed.{'npy' if images else 'csv'}"
        target = output_file(output, Path(name), force)
        # A category is one gap, however many features it has.
        column_of = np.repeat(np.arange(len(schema.columns)), [len(column.features) for column in schema.columns])
        gaps = lacking = 0
        id_name: str | None = None

        def filled(data: Dataset, advance: Callable[[int], None]) -> Any:
            nonlocal gaps, lacking, id_name
            id_name = data.id_name
            rows, columns = places(data.x)
            gaps += len(set(zip(rows.tolist(), column_of[columns].tolist(), strict=True)))
            lacking += len(np.unique(rows))
            return impute(fitted, data, samples, seed, advance)

        def tables() -> Iterator[pd.DataFrame]:
            for data, advance in self._gapped(path, memory, reporter):
                x = filled(data, advance)
                yield _filled_table(x if isinstance(x, np.ndarray) else x.toarray(), data, schema, fitted)

        if images:
            ((data, advance),) = self._gapped(path, memory, reporter)
            write_bytes(target, _npy(filled(data, advance).reshape(-1, *schema.shape)))
        else:
            write_tables(target, tables())
        source = Source(str(target))
        if isinstance(stored := self.loaded.description.get("source"), dict):
            source = replace(source.again(stored), missing="error", memory=None, id=id_name or None)
        plain = source.exposure is None  # all that a diagnosis takes
        following = source.step("diagnose") if plain else Step("view", (str(self.folder),))
        return Imputed(target, gaps, lacking, following)

    def _gapped(
        self, path: str, memory: str | None, reporter: Reporter
    ) -> Iterator[tuple[Dataset, Callable[[int], None]]]:
        """Rows with gaps, all or a piece at a time, and what is told how many more of those that have some are done."""
        schema = self.loaded.data
        if (blocks := streamed_blocks(Source(path, memory=memory), reporter.counter, schema)) is None:
            data = self._read(path, "model", reporter, decode=True)
            yield data, reporter.counter("imputing", len(np.unique(places(data.x)[0])))
            return
        missing = missing_as_run("model", self.loaded.description)
        stream = open_stream(blocks, schema=schema, memory=memory, missing=missing)
        done = reporter.counter("imputing", len(stream))
        for block in range(len(stream.blocks.sizes)):
            for data in stream.datasets(block):
                yield self._checked(path, data, decode=True), lambda rows: None
                done(len(data))

    def sample(
        self, count: int, output: Path | None, covariates: Mapping[str, str] | None, seed: int, force: bool
    ) -> Sampled:
        """New rows: a CSV table, or for images an array and a picture.

        A model with covariates needs a value of each, which all rows share.
        """
        fitted, schema, name = self.loaded.fitted, self.loaded.data, self.folder.resolve().name
        model = fitted.model
        context = torch.from_numpy(code_values(schema.covariates, covariates)).to(model.device, model.dtype)
        # Noise, outputs, draws and their text.
        memory.require(64 * count * len(schema.names), f"a table of {count:,} samples", fix="lower count=…")
        generator = torch.Generator(model.device).manual_seed(seed)
        rows = fitted.scaling.invert(model.sample(count, generator, context=context).cpu().double().numpy())
        if schema.kind != "images":
            target = output_file(output, Path(f"{name}-samples.csv"), force)
            write_table(target, _table(rows, schema).assign(**(covariates or {})))
            return self._sampled(target)
        target = output_file(output, Path(f"{name}-samples.npy"), force)
        picture = output_file(None, target.with_suffix(".png"), force)
        generator.manual_seed(seed)
        made = model.sample(min(count, 100), generator, mean=True, context=context)
        means = fitted.scaling.invert(made.cpu().double().numpy())
        write_bytes(target, _npy(rows.reshape(-1, *schema.shape).astype(np.float32)))
        write_bytes(picture, pages.samples_picture(means.reshape(-1, *schema.shape)).png)
        return self._sampled(target, picture)

    def _sampled(self, *paths: Path) -> Sampled:
        return Sampled(list(paths), Step("embed", (str(self.folder), str(paths[0]))))

    def portable(self) -> tuple[Sequence[Part], dict[str, Any]]:
        fitted, schema = self.loaded.fitted, self.loaded.data
        told = fitted.layout.missing
        filled = not told and missing_as_run(None, self.loaded.description) == "mean"
        fills = one_hot(schema.fills[np.newaxis], schema.columns, self.folder.name)[0] if filled else None
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
            "missing": "nan, known to the model" if told else "nan, filled in" if filled else "none may be missing",
            "likelihood": fitted.config.likelihood,
            "space": [one._asdict() for one in fitted.model.space.figures()],
            "schema": {
                name: described[name] for name in ("kind", "shape", "columns", "covariates") if name in described
            },
        }

    def _judged(
        self, path: str, missing: Missing | None, reporter: Reporter, every: bool = False
    ) -> tuple[Dataset, NDArray[np.str_]]:
        """Rows whose likelihood is wanted, and which part of the data each belongs to: of data that are read in pieces,
        a sample, or an error if `every` row is needed.

        The run's own data are reported by part: rows that were trained on say nothing about new ones.
        """
        fitted, known = self.loaded.fitted, self.loaded.description
        own = known["data"].get("fingerprint")
        stored = known.get("source")
        bound = stored.get("memory") if isinstance(stored, dict) else None
        if (blocks := streamed_blocks(Source(path, memory=bound), reporter.counter, self.loaded.data)) is None:
            data = self._read(path, missing, reporter, decode=True)
            same = data.fingerprint == own
            return data, fitted.split.names(len(data)) if same else np.full(len(data), "new")
        if every:
            raise CurvaeError(
                f"{Path(path).name} is read in pieces, of which a sample is evaluated; leave out output=…, or give a "
                "smaller file"
            )
        advance = reporter.counter("reading", len(blocks))
        how: dict[str, Any] = {"memory": bound, "missing": missing_as_run(missing, known)}
        stream = open_stream(blocks, **how, schema=self.loaded.data)
        found = surveyed(blocks, advance)
        same = stream.fingerprint_of(found.digest) == own
        if (group := stream.schema.group) is not None and group in found.tallies:
            stream = replace(stream, groups=found.tallies[group].texts)
        test = float(self.loaded.description["data"].get("test", 0.0))
        held = held_out_rows(fitted.config, stream, test) if same else HeldOut(len(stream), np.empty(0, np.int64))
        data, split = sampled(stream, held, fitted.config.seed)
        data = self._checked(path, data, decode=True)
        reporter.tell(data.notes, data.warnings)
        return data, split.names(len(data)) if same else np.full(len(data), "new")

    def _training_rows(self, beside: str, given: str | None, seed: int) -> Dataset:
        """Rows that the run was trained on: all, or of many a random choice.

        Arguments:
            beside: data in whose folder the file of the run is looked for, if not in the working directory.
            given: the file, if it is known.
            seed: of the choice.
        """
        description = self.loaded.description
        source = description.get("source")
        name = source.get("name") if isinstance(source, dict) else None
        file = given or name
        if file is None or description["data"].get("fingerprint") is None:
            raise CurvaeError(
                f"{self.folder} does not know the data that it was trained on, so rows have no rank; leave out output=…"
            )
        if given is None and not Path(file).exists() and Path(beside).with_name(file).exists():
            file = str(Path(beside).with_name(file))
        try:
            data, names = self._judged(file, None, Reporter())
        except CurvaeError as error:
            if given is not None:
                raise
            raise CurvaeError(
                f"ranks need the data that the run was trained on, {name}; give them with training=…"
            ) from error
        trained = np.flatnonzero(names == "train")
        if not len(trained):
            raise CurvaeError(f"{file} is not the data that {self.folder} was trained on; give those with training=…")
        chosen = np.random.default_rng([seed, 19]).permutation(trained)[:_TRAINING_ROWS]
        return data.take(np.sort(chosen))

    def evaluate(
        self,
        path: str,
        samples: int | None,
        missing: Missing | None,
        seed: int,
        reporter: Reporter,
        scores: ScoreFile | None = None,
    ) -> dict[str, Any]:
        """Marginal log-likelihoods by importance sampling, with 5000 samples a row by default, and faithfulness."""
        samples = _SAMPLES if samples is None else samples
        require_count("samples", samples, "importance_samples")
        fitted = self.loaded.fitted
        data, names = self._judged(path, missing, reporter, every=scores is not None)
        training = None  # rows to rank others among, unless they are among these
        if scores is not None and "train" not in names:
            training = self._training_rows(path, scores.training, seed)

        def estimated(rows: Dataset, what: str) -> Likelihoods:
            advance = reporter.counter(what, len(rows))
            return likelihoods(fitted, rows, samples, seed, advance=advance).require_finite(rows.ids)

        found = estimated(data, "likelihood")
        ranked = {}
        if scores is not None:
            among = found.take(names == "train") if training is None else estimated(training, "training rows")
            table = _score_table(data, names, found, among)
            write_table(scores.path, table)
            unusual = table[table["training_percentile"] < 1].sort_values("log_likelihood")
            ranked = {
                "scores": str(scores.path),
                "training_rows": len(among.log_prob),
                "rows_below_1_percent": len(unusual),
                "most_unusual": [str(name) for name in unusual["id"][:_UNUSUAL]],
            }
        parts = {}
        for name in dict.fromkeys(names.tolist()):
            chosen = names == name
            part = found.take(chosen)
            parts[name] = {
                "rows": int(chosen.sum()),
                "log_likelihood": part.mean,
                "interval": part.interval,
                "log_likelihood_original_units": part.original.mean,
                "median_effective_sample_size": float(np.median(part.ess)),
                "median_standard_error": float(np.median(part.error)),
                "rows_with_few_effective_samples": int((part.ess < 10).sum()),
            }
        faithful = judge_rows(data, embed(fitted, data).require_finite(data.ids), judged_rows(names), seed=seed)
        return {
            "run": self.folder.resolve().name,
            "data": Path(path).name,
            "samples": samples,
            "seed": seed,
            "parts": parts,
            "faithfulness": None if faithful is None else faithful.to_json(),
            **ranked,
        }


def _score_table(data: Dataset, split: NDArray[np.str_], found: Likelihoods, among: Likelihoods) -> pd.DataFrame:
    """Log-likelihoods of rows, with the percentage of training rows whose log-likelihood is lower."""
    lower = np.searchsorted(np.sort(among.log_prob), found.log_prob)
    return pd.DataFrame(
        {
            "id": data.ids,
            "split": split,
            "log_likelihood": found.log_prob,
            "standard_error": found.error,
            "training_percentile": np.round(100 * lower / len(among.log_prob), 4),
        }
    )


def _filled_table(x: NDArray[np.float64], data: Dataset, schema: Schema, fitted: Fitted) -> pd.DataFrame:
    """Rows without gaps as a table of the source."""
    features = _table(_likely(x, schema, fitted.config.likelihood), schema).assign(**_beside(data, schema))
    return pd.concat([_roles(data, schema), features.apply(_typed)], axis=1)


def _likely(x: NDArray[np.float64], schema: Schema, likelihood: str) -> NDArray[np.float64]:
    """Expected values as values that data have: in binary columns the more probable, of counts the nearest integer."""
    if likelihood == "poisson":
        return np.rint(x)
    binary = np.repeat(
        [column.binary for column in schema.columns], [len(column.features) for column in schema.columns]
    )
    return np.where(binary, np.rint(x), x)


def _typed(column: pd.Series[Any]) -> pd.Series[Any]:
    """Whole numbers without a point."""
    numbers = pd.api.types.is_numeric_dtype(column) and bool(((column % 1 == 0) & (column.abs() < 2**53)).all())
    return column.astype(np.int64) if numbers else column


def _roles(data: Dataset, schema: Schema) -> pd.DataFrame:
    """Ids, labels and groups by the names of their columns."""
    known = {data.id_name: data.ids, schema.label: data.labels, schema.group: data.groups}
    return pd.DataFrame({name: texts for name, texts in known.items() if name is not None and texts is not None})


def _beside(data: Dataset, schema: Schema) -> dict[str, Any]:
    """Exposure and covariates by the names of their columns."""
    found: dict[str, Any] = {}
    if schema.exposure is not None and data.exposure is not None:
        found[schema.exposure] = data.exposure
    if data.context is not None:
        for column in schema.covariates:
            values = source_columns(data.context, schema.covariates)[column.name]
            if column.categories is None:  # without what rounding left when it was standardised
                values = [float(f"{value * column.scale + column.fill:.12g}") for value in values]
            found[column.name] = values
    return found


def _table(rows: NDArray[np.float64], schema: Schema) -> pd.DataFrame:
    """Features as columns of the source: categories by name, binary ones as 1 and 0, counts for an exposure of 1."""
    columns = source_columns(rows, schema.columns)
    if schema.exposure is not None:
        columns[schema.exposure] = 1.0
    return pd.DataFrame(columns)


def _npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


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
        self.problem, self.tasks = self._plan(before, processes)
        self.config, self.layout = self.tasks[0].config, self.tasks[0].layout
        neighbours_reason = choose_neighbours(config, self.layout, self._train_rows, self.hindrance)[1]
        require_buildable(self.config, self.layout)
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
            "notes": list(data.notes),
            "warnings": list(data.warnings),
            "label": data.label_name,
            "schema": self.schema.to_json(),
        }
        return {"likelihood_reason": self.reason, "repeats": self.repeats, "data": facts}

    def _extremes(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return extremes(self.data.x)

    def _plan(self, before: Mapping[str, Any], processes: int) -> tuple[RowsProblem, Sequence[RowsTask]]:
        """Split the rows and resolve the settings."""
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
        seeds = [replace(config, seed=config.seed + i) for i in range(self.repeats)]
        return plan_rows(seeds, data, splits=[self.split] * self.repeats, hindrance=self.hindrance)

    @property
    def _train_rows(self) -> int:
        return len(self.split.train)

    def _scored(self) -> tuple[NDArray[np.int64], str]:
        """Rows whose likelihood the report tells, and what they are: "test", "validation" or "train"."""
        held = ((part, name) for name in ("test", "validation") if len(part := getattr(self.split, name)) >= _SCORED)
        return next(held, (self.split.train, "train"))

    def train(self, place: Place, reporter: Reporter, progress: Callable[[dict[str, Any], int], None]) -> None:
        split, repeats, jobs = self.split, self.repeats, min(place.jobs, self.repeats)
        problem = replace(self.problem, asked=place.device)
        where: dict[str, Any] = {"folder": place.folder, "resume": place.resume}
        if repeats == 1:
            found = [train_one(problem, self.tasks, **where, processes=place.processes, progress=progress)]
        else:
            found = train_many(
                problem,
                self.tasks,
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
        beside = describe_covariates(data, self.schema, embedding, config.seed)
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
            f"log-likelihood of {told} {found.text} nats a row, divergence from the prior {decimal(last['kl'])} nats."
        )
        sections = [
            pages.map_section(
                data, embedding, frames, self.orientation_sentence, spread, reporter.command(place.view_step)
            ),
            faithful_section(faithful, beside),
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
        said = [answer, *beside, *([] if stable is None else sections[3].text), figures]
        good = faithful is None or not faithful.behind
        following = self._advise(self.source, faithful, str(place.folder))
        step = reporter.command(advice._replace(why=""))
        return Outcome(fitted, embedding, frames, [table], len(table), summary, *report, said, following, good, step)

    def _advise(self, source: DataSource, faithful: Faithfulness | None, folder: str) -> Step:
        """What to do next: make the map better where PCA keeps more, compare curvatures, or look at the map."""
        if faithful is not None and faithful.behind:
            typed = {name: value for name, value in self.settings.items() if name not in ("epochs", "steps")}
            if typed != self.settings and self._steps_asked < DEFAULT_STEPS:
                return source.train_step("the default length of training may keep more neighbours", **typed)
            if self._leaves_neighbours_out:
                more = self.settings | {"neighbours": "both"}
                return source.train_step("holds the map to the neighbourhoods of the data", **more)
            if self.config.space is None and self.config.dim == 2 and self.config.neighbours != "off":
                return source.train_step("a third dimension may keep more neighbours", **self.settings | {"dim": 3})
        if self.rows < FEWEST_COMPARED or self.curvature_chosen:
            return Step("view", (folder,), why="the interactive map")
        return source.compare_step("is curvature worth it for these data?", **comparable(self.settings))

    @property
    def _steps_asked(self) -> int:
        """Steps of the training, where their number or that of the epochs was asked for."""
        a_pass = -(-self._train_rows // self.config.batch_size)
        return int(self.settings["steps"] if "steps" in self.settings else self.settings["epochs"] * a_pass)

    @property
    def _leaves_neighbours_out(self) -> bool:
        """Whether the map is not held to the neighbourhoods of the data, and could be."""
        usual, layout = replace(self.config, neighbours="auto"), layout_of(Arrays.of(self.data))
        held = choose_neighbours(usual, layout, len(self.data), self.hindrance)[0] != "off"
        return held and self.config.neighbours in ("auto", "off")

    # --- comparison ---------------------------------------------------------------------------------------------------

    def plan_comparison(
        self, curvatures: Sequence[float], repeats: int, before: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        data, config = self.data, self.config
        likelihood, _ = choose_likelihood(data.x, config.likelihood, layout_of(Arrays.of(data)))
        if before is not None and config.likelihood == "auto":
            chosen = before.get("likelihood", likelihood)
            self.config = replace(config, likelihood="auto" if chosen == likelihood else chosen)
        self.plan = plan_comparison(self.config, data.arrays, curvatures, repeats, data.groups)
        self.splits, self.trainings = self.plan.splits, len(self.plan.tasks)
        sizes = {"rows": len(data), "features": int(data.x.shape[1])}
        return {"fingerprint": data.fingerprint, **sizes, "likelihood": likelihood}

    def match_tree(self, tree: Path) -> None:
        self.tree = known_tree(tree, self.source.path, self.data.ids, self.data.labels)
        require_recoverable(self.tree[1].node, self.splits)

    def compare(self, curvatures: Sequence[float], repeats: int, **where: Any) -> Comparison:
        found = compare_planned(self.plan, **where)
        splits = {self.config.seed + i: split for i, split in enumerate(self.splits)}
        criteria = [faithfulness_criterion(filled_rows(self.data), found, splits)]
        if self.tree is not None:
            known, match = self.tree
            criteria.append(recovery_criterion(known.distances, match.node, found, splits))
        return replace(found, criteria=tuple(criteria), structure=self._structure())

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
            criterion_section(found),
            pages.data_section(data, [pages.scaling_note(found.config)]),
        ]
        return [f"likelihood {found.config.likelihood}: {found.reason}"], _beaten(found), sections

    def _map_pictures(self, embedding: Embedding) -> list[Picture]:
        """The map of every factor."""
        data, frames = self.data, self.orient(embedding)

        def draw(part: Embedding, place: int) -> list[Picture]:
            projection = part.chart.project(part.points, frames[place])
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
            fixes = [("missing", "mean"), ("missing", "drop")]
            raise FixableError("the test needs all values, so gaps cannot be left to a model", [fixes])
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


# Runs on rows that are read in pieces: what `curvae fit` does with data that do not fit in memory.


class SampledRun(RowsRun):
    """Rows for a comparison: all, or a sample of those that are larger than memory.

    Arguments:
        source, config: as of `RowsRun`.
        reporter: told how far the data were read, and of a sample.
    """

    def __init__(self, source: Source, config: Config, reporter: Reporter) -> None:
        self._reporter = reporter
        super().__init__(source, config)

    def _load(self, source: Source) -> tuple[Dataset, Schema]:
        found = loaded(source, self.config.seed, self._reporter)
        self.source = source if found.memory is None else replace(source, memory=found.memory)
        return found.data, found.schema


class StreamRun(RowsRun):
    """Rows that are read in pieces. Training and the table of the map see all of them; the report is about a sample,
    which is `data`.

    Arguments:
        source, config: as of `RowsRun`.
        blocks: of the source.
        reporter: told how far the data were read.
        before: description of the run that is resumed, or nothing.
    """

    hindrance = IN_PIECES

    def __init__(
        self, source: Source, config: Config, blocks: Blocks, reporter: Reporter, before: Mapping[str, Any]
    ) -> None:
        self._before = before
        # The memory decides on the order of the rows, so it is part of a run that may be resumed elsewhere.
        bound = source.memory or memory.size_text(memory.bound(None))
        self.stream = opened(source, blocks, bound, reporter)
        super().__init__(replace(source, memory=bound), config)

    def _load(self, source: Source) -> tuple[Dataset, Schema]:
        self.test = choose_test_share(self.config, len(self.stream), self._before)
        self.held_out = held_out_rows(self.config, self.stream, self.test)
        data, self.split = sampled(self.stream, self.held_out, self.config.seed)
        return data, self.stream.schema

    @property
    def rows(self) -> int:
        return len(self.stream)

    @property
    def fingerprint(self) -> str:
        return self.stream.fingerprint

    def _extremes(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return self.stream.known.low, self.stream.known.high

    def _plan(self, before: Mapping[str, Any], processes: int) -> tuple[RowsProblem, Sequence[RowsTask]]:
        return plan_stream([self.config], self.stream, self.held_out)

    @property
    def _train_rows(self) -> int:
        return self.held_out.counts[0]

    def outcome(self, place: Place, named: DataSource, seconds: float, reporter: Reporter) -> Outcome:
        found = super().outcome(place, named, seconds, reporter)
        tables = embedded_tables(self.model, self.stream, found.frames, reporter, self.held_out)
        following = Step("evaluate", (str(place.folder), self.source.path))
        return replace(found, tables=tables, rows=self.rows, following=following)
