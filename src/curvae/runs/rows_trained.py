"""The model of rows put to use: what `curvae embed`, `impute`, `sample` and `evaluate` do with it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ..data import Dataset, Schema, load, memory, open_stream
from ..data.covariates import code_values
from ..data.messages import quoted
from ..data.missing import Missing, places
from ..data.schema import one_hot, source_columns
from ..data.streams import surveyed
from ..errors import CurvaeError
from ..models.likelihoods import choose_likelihood
from ..training import Fitted, impute
from ..training.config import require_count
from ..training.evaluate import Likelihoods, embed, likelihoods
from ..training.files import write_bytes
from ..training.portable import Part, portable
from ..training.splits import HeldOut, judged_rows
from ..training.stream_problem import held_out_rows
from . import pages
from .faithful import judge_rows
from .folders import embedding_path, embedding_table, output_file, write_table, write_tables
from .pieces import embedded_tables, sampled
from .progress import Reporter
from .run import EmbeddedData, Imputed, Sampled, ScoreFile, TrainedRun, missing_as_run
from .sources import Source, Step, streamed_blocks

__all__ = ["NEW_ROWS", "TrainedRows"]

NEW_ROWS = 100_000
"""new rows that a map shows at most"""

_SAMPLES = 5000  # importance samples a row
_TRAINING_ROWS = 2000  # at most, among which other rows are ranked


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
        """Show new rows on the map, unless they are too many or the folder, saved from Python, has no map."""
        if rows > NEW_ROWS or not embedding_path(self.folder).exists():
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
            ranked = {
                "scores": str(scores.path),
                "training_rows": len(among.log_prob),
                "rows_below_1_percent": int((table["training_percentile"] < 1).sum()),
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
