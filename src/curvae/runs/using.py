"""`curvae embed`, `impute`, `sample` and `evaluate`: a trained run put to use."""

from __future__ import annotations

import io
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ..data import Column, Dataset, Schema, load, memory
from ..data.covariates import code_values
from ..data.messages import quoted
from ..data.missing import Missing, places
from ..errors import CurvaeError
from ..models.likelihoods import choose_likelihood
from ..training import Fitted, impute
from ..training.config import require_count
from ..training.evaluate import embed, likelihoods
from ..training.files import write_bytes
from ..training.storage import kind_of, load_fitted
from . import graph_using, pages
from .folder import Source, Voice, embedding_table, missing_as_run, output_file, write_table

__all__ = ["Imputed", "embed_run", "evaluate_run", "impute_run", "sample_run"]

_SAMPLES = 5000  # importance samples a row


def _open(
    run: Path, path: str, missing: Missing | None, device: torch.device | str, voice: Voice, decode: bool
) -> tuple[Fitted, Dataset, dict[str, Any]]:
    """A run and new data, read as the run's own data were; so are rows that lack values, unless `missing` is given.

    Covariates must be there for whoever is told them: the encoder, and the decoder if it is going to `decode`.
    """
    fitted, _, description = load_fitted(run, device=device)
    schema = Schema.from_json(description["data"]["schema"])
    data, _ = load(path, schema=schema, missing=missing_as_run(missing, description))
    choose_likelihood(data.x, fitted.config.likelihood, replace(fitted.layout, names=data.names))
    if schema.covariates and data.context is None and (decode or fitted.config.encode_covariates):
        names = quoted(column.name for column in schema.covariates)
        raise CurvaeError(f"{Path(path).name} needs the covariates that the model was trained with: {names}; add them")
    for text in data.notes:
        voice.say(text)
    for text in data.warnings:
        voice.warn(text)
    return fitted, data, description


def embed_run(
    run: Path,
    path: str,
    output: Path | None = None,
    *,
    missing: Missing | None = None,
    force: bool = False,
    device: torch.device | str = "cpu",
    nodes: str | None = None,
    voice: Voice = Voice(),  # noqa: B008 - frozen
) -> Path:
    """Embed data with a trained run; returns the CSV file, whose columns are those of `embedding.csv`.

    `nodes` is a table of nodes, where the run is one of a graph.
    """
    if kind_of(run) == "graph":
        table = graph_using.embedded(run, path, nodes, missing, device, voice)
    elif nodes is not None:
        raise CurvaeError(f"{run} holds a model of a table, which has no nodes; leave out nodes=…")
    else:
        fitted, data, _ = _open(run, path, missing, device, voice, decode=False)
        table = embedding_table(embed(fitted, data), data.ids, data.labels, "new")
    target = output_file(output, Path(f"{Path(path).name.split('.')[0]}-embedding.csv"), force)
    write_table(target, table)
    return target


@dataclass(frozen=True)
class Imputed:
    """What `curvae impute` wrote, and how much was missing."""

    path: Path
    values: int
    rows: int
    following: str
    """a command to go on with"""


def impute_run(
    run: Path,
    path: str,
    output: Path | None = None,
    *,
    samples: int = 1000,
    seed: int = 0,
    force: bool = False,
    device: torch.device | str = "cpu",
    voice: Voice = Voice(),  # noqa: B008 - frozen
) -> Imputed:
    """Fill the gaps of data with what a trained run expects there; writes a CSV table, or for images an array.

    The table has the columns of the source that the run knows, those of ids, labels and groups first, exposure and
    covariates last. Of a categorical column, the most probable category is filled in.
    """
    if kind_of(run) == "graph":
        raise CurvaeError(f"{run} holds a model of a graph, which fills no gaps; give a run of curvae fit")
    require_count("samples", samples, "importance_samples")
    fitted, data, description = _open(run, path, "model", device, voice, decode=True)
    schema = Schema.from_json(description["data"]["schema"])
    images = schema.kind == "images"
    name = f"{Path(path).name.split('.')[0]}-imputed.{'npy' if images else 'csv'}"
    target = output_file(output, Path(name), force)
    rows, columns = places(data.x)
    lacking = len(np.unique(rows))
    filled = impute(fitted, data, samples, seed, voice.counter("imputing", lacking))
    if images:
        write_bytes(target, _npy(filled.reshape(-1, *schema.shape)))
    else:
        dense = filled if isinstance(filled, np.ndarray) else filled.toarray()
        table = (
            _table(_likely(dense, schema, fitted.config.likelihood), schema)
            .assign(**_beside(data, schema))
            .apply(_typed)
        )
        write_table(target, pd.concat([_roles(data, schema), table], axis=1))
    source = Source(str(target))
    if isinstance(stored := description.get("source"), dict):
        source = replace(source.again(stored), missing="error")
    # A category is one gap, however many features it has.
    column_of = np.repeat(np.arange(len(schema.columns)), [len(column.features) for column in schema.columns])
    gaps = len(set(zip(rows.tolist(), column_of[columns].tolist(), strict=True)))
    plain = source.exposure is None and not source.covariates  # all that a diagnosis takes
    following = source.command("diagnose") if plain else shlex.join(["curvae", "view", str(run)])
    return Imputed(target, gaps, lacking, following)


def _likely(x: NDArray[np.float64], schema: Schema, likelihood: str) -> NDArray[np.float64]:
    """Expected values as values that data have: of yes and no the more probable, of counts the nearest whole number."""
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
    known = {schema.id: data.ids, schema.label: data.labels, schema.group: data.groups}
    return pd.DataFrame({name: texts for name, texts in known.items() if name is not None and texts is not None})


def _beside(data: Dataset, schema: Schema) -> dict[str, Any]:
    """Exposure and covariates by the names of their columns."""
    found: dict[str, Any] = {}
    if schema.exposure is not None and data.exposure is not None:
        found[schema.exposure] = data.exposure
    if data.context is not None:
        for column in schema.covariates:
            values = _columns(data.context, schema.covariates)[column.name]
            if column.categories is None:  # without what rounding left when it was standardised
                values = [float(f"{value * column.scale + column.fill:.12g}") for value in values]
            found[column.name] = values
    return found


def sample_run(
    run: Path,
    count: int,
    output: Path | None = None,
    *,
    covariates: Mapping[str, str] | None = None,
    seed: int = 0,
    force: bool = False,
    device: torch.device | str = "cpu",
) -> list[Path]:
    """Draw new rows; returns the files: a CSV table, or for images an array and a picture.

    A model with covariates needs a value of each, which all rows share. From a model of a graph, new graphs: a CSV
    table of edges.
    """
    if count < 1:
        raise CurvaeError(f"the number of samples must be at least 1, got {count}")
    if kind_of(run) == "graph":
        if covariates:
            raise CurvaeError(f"{run} holds a model of a graph, which has no covariates; leave them out")
        target = output_file(output, Path(f"{run.resolve().name}-samples.csv"), force)
        write_table(target, graph_using.drawn(run, count, seed, device))
        return [target]
    fitted, _, description = load_fitted(run, device=device)
    schema = Schema.from_json(description["data"]["schema"])
    context = torch.from_numpy(code_values(schema.covariates, covariates)).to(fitted.model.device, fitted.model.dtype)
    # Noise, outputs, draws and their text.
    memory.require(64 * count * len(schema.names), f"a table of {count:,} samples", fix="draw fewer with -n")
    generator = torch.Generator(fitted.model.device).manual_seed(seed)
    rows = fitted.scaling.invert(fitted.model.sample(count, generator, context=context).cpu().double().numpy())
    if schema.kind != "images":
        target = output_file(output, Path(f"{run.resolve().name}-samples.csv"), force)
        write_table(target, _table(rows, schema).assign(**(covariates or {})))
        return [target]
    target = output_file(output, Path(f"{run.resolve().name}-samples.npy"), force)
    picture = output_file(None, target.with_suffix(".png"), force)
    generator.manual_seed(seed)
    made = fitted.model.sample(min(count, 100), generator, mean=True, context=context)
    means = fitted.scaling.invert(made.cpu().double().numpy())
    write_bytes(target, _npy(rows.reshape(-1, *schema.shape).astype(np.float32)))
    write_bytes(picture, pages.samples_picture(means.reshape(-1, *schema.shape)).png)
    return [target, picture]


def _table(rows: NDArray[np.float64], schema: Schema) -> pd.DataFrame:
    """Features as columns of the source: categories by name, yes and no as 1 and 0, counts for an exposure of 1."""
    columns = _columns(rows, schema.columns)
    if schema.exposure is not None:
        columns[schema.exposure] = 1.0
    return pd.DataFrame(columns)


def _columns(rows: NDArray[np.float64], columns: Sequence[Column]) -> dict[str, Any]:
    """Columns of the source by name, from the numbers that they became."""
    found: dict[str, Any] = {}
    start = 0
    for column in columns:
        block = rows[:, start : start + len(column.features)]
        if column.categories is not None:
            found[column.name] = np.array(column.categories)[block.argmax(1)]
        else:
            whole = column.binary and bool(np.isin(block, (0, 1)).all())
            found[column.name] = block[:, 0].astype(np.int64) if whole else block[:, 0]
        start += len(column.features)
    return found


def _npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


def evaluate_run(
    run: Path,
    path: str,
    samples: int | None = None,
    *,
    seed: int = 0,
    missing: Missing | None = None,
    device: torch.device | str = "cpu",
    voice: Voice = Voice(),  # noqa: B008 - frozen
) -> dict[str, Any]:
    """Marginal log-likelihood of data under a trained run, for each part of the data that the run knows apart.

    `samples` are importance samples a row, 5000 by default. Of a graph: how well its edges are told from other pairs.
    """
    if kind_of(run) == "graph":
        if samples is not None:
            raise CurvaeError(f"{run} holds a model of a graph, whose edges are found by distance; leave out samples=…")
        return graph_using.judged(run, path, seed, voice)
    samples = _SAMPLES if samples is None else samples
    require_count("samples", samples, "importance_samples")
    fitted, data, description = _open(run, path, missing, device, voice, decode=True)
    # The run's own data are reported by part: rows that were trained on say nothing about new ones.
    same = data.fingerprint == description["data"].get("fingerprint")
    names = fitted.split.names(len(data)) if same else np.full(len(data), "new")
    found = likelihoods(fitted, data, samples, seed, advance=voice.counter("likelihood", len(data)))
    found.require_finite(data.ids)
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
    return {"run": run.resolve().name, "data": Path(path).name, "samples": samples, "seed": seed, "parts": parts}
