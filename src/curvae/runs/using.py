"""`curvae embed`, `sample` and `evaluate`: a trained run put to use."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ..data import Dataset, Schema, load, memory
from ..data.missing import Missing
from ..errors import CurvaeError
from ..models.likelihoods import choose_likelihood
from ..training import Fitted
from ..training.config import require_count
from ..training.evaluate import Likelihoods, embed, likelihoods
from ..training.files import write_bytes
from ..training.storage import kind_of, load_fitted
from . import graph_using, pages
from .folder import Voice, embedding_table, missing_as_run, output_file, write_table

__all__ = ["embed_run", "evaluate_run", "sample_run"]

_SAMPLES = 5000  # importance samples a row


def _open(
    run: Path, path: str, missing: Missing | None, device: torch.device | str, voice: Voice
) -> tuple[Fitted, Dataset, dict[str, Any]]:
    """A run and new data, read as the run's own data were; so are rows that lack values, unless `missing` is given."""
    fitted, _, description = load_fitted(run, device=device)
    schema = Schema.from_json(description["data"]["schema"])
    data, _ = load(path, schema=schema, missing=missing_as_run(missing, description))
    choose_likelihood(data.x, fitted.config.likelihood, replace(fitted.layout, names=data.names))
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
        raise CurvaeError(f"{run} holds a model of a table, which has no nodes; leave --nodes out")
    else:
        fitted, data, _ = _open(run, path, missing, device, voice)
        table = embedding_table(embed(fitted, data), data.ids, data.labels, "new")
    target = output_file(output, Path(f"{Path(path).name.split('.')[0]}-embedding.csv"), force)
    write_table(target, table)
    return target


def sample_run(
    run: Path,
    count: int,
    output: Path | None = None,
    *,
    seed: int = 0,
    force: bool = False,
    device: torch.device | str = "cpu",
) -> list[Path]:
    """Draw new rows; returns the files: a CSV table, or for images an array and a picture.

    From a model of a graph, new graphs: a CSV table of edges.
    """
    if count < 1:
        raise CurvaeError(f"the number of samples must be at least 1, got {count}")
    if kind_of(run) == "graph":
        target = output_file(output, Path(f"{run.resolve().name}-samples.csv"), force)
        write_table(target, graph_using.drawn(run, count, seed, device))
        return [target]
    fitted, _, description = load_fitted(run, device=device)
    schema = Schema.from_json(description["data"]["schema"])
    # Noise, outputs, draws and their text.
    memory.require(64 * count * len(schema.names), f"a table of {count:,} samples", mend="draw fewer with -n")
    generator = torch.Generator(fitted.model.device).manual_seed(seed)
    rows = fitted.scaling.invert(fitted.model.sample(count, generator).cpu().double().numpy())
    if schema.kind != "images":
        target = output_file(output, Path(f"{run.resolve().name}-samples.csv"), force)
        write_table(target, _table(rows, schema))
        return [target]
    target = output_file(output, Path(f"{run.resolve().name}-samples.npy"), force)
    picture = output_file(None, target.with_suffix(".png"), force)
    generator.manual_seed(seed)
    means = fitted.scaling.invert(fitted.model.sample(min(count, 100), generator, mean=True).cpu().double().numpy())
    write_bytes(target, _npy(rows.reshape(-1, *schema.shape).astype(np.float32)))
    write_bytes(picture, pages.samples_picture(means.reshape(-1, *schema.shape)).png)
    return [target, picture]


def _table(rows: NDArray[np.float64], schema: Schema) -> pd.DataFrame:
    """Features as columns of the source: categories by name, yes and no as 1 and 0, counts for an exposure of 1."""
    columns: dict[str, Any] = {}
    start = 0
    for column in schema.columns:
        block = rows[:, start : start + len(column.features)]
        if column.categories is not None:
            columns[column.name] = np.array(column.categories)[block.argmax(1)]
        else:
            whole = column.binary and bool(np.isin(block, (0, 1)).all())
            columns[column.name] = block[:, 0].astype(np.int64) if whole else block[:, 0]
        start += len(column.features)
    if schema.exposure is not None:
        columns[schema.exposure] = 1.0
    return pd.DataFrame(columns)


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
            raise CurvaeError(f"{run} holds a model of a graph, whose edges are found by distance; leave --samples out")
        return graph_using.judged(run, path, seed, voice)
    samples = _SAMPLES if samples is None else samples
    require_count("samples", samples, "importance_samples")
    fitted, data, description = _open(run, path, missing, device, voice)
    # The run's own data are reported by part: rows that were trained on say nothing about new ones.
    same = data.fingerprint == description["data"].get("fingerprint")
    names = fitted.split.names(len(data)) if same else np.full(len(data), "new")
    found = likelihoods(fitted, data, samples, seed, advance=voice.counter("likelihood", len(data)))
    found.require_finite(data.ids)
    parts = {}
    for name in dict.fromkeys(names.tolist()):
        chosen = names == name
        part = Likelihoods(found.log_prob[chosen], found.ess[chosen], found.error[chosen], samples, found.log_jacobian)
        parts[name] = {
            "rows": int(chosen.sum()),
            "log_likelihood": part.mean,
            "interval": part.interval,
            "log_likelihood_original_units": part.mean + part.log_jacobian,
            "median_effective_sample_size": float(np.median(part.ess)),
            "median_standard_error": float(np.median(part.error)),
            "rows_with_few_effective_samples": int((part.ess < 10).sum()),
        }
    return {"run": run.resolve().name, "data": Path(path).name, "samples": samples, "seed": seed, "parts": parts}
