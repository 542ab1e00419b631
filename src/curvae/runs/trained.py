"""Use the model of a trained run: `curvae embed`, `impute`, `sample`, `evaluate` and `export`."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ..data import Dataset, Graph, Schema, load, memory as memory_of_machine
from ..data.dataset import Missing, column_statistics, one_hot, source_columns
from ..data.disk import in_memory
from ..data.files import count as counted, one_line, quoted
from ..data.graph_data import absent_pairs
from ..data.graph_reading import HEADER_ADVICE, is_table
from ..data.tables import code_values
from ..errors import CurvaeError
from ..hierarchy import graph_faithfulness
from ..maps.cells import write_map
from ..maps.charts import Frame
from ..maps.embedding import frames_from_json
from ..models.likelihoods import LIKELIHOODS, choose_likelihood
from ..settings import require_count
from ..training import Embedding, Fitted, FittedGraph, Split, impute
from ..training.fitted import Likelihoods, embed, likelihoods
from ..training.graph_problem import embed_graph, neighbourhood, score_links
from ..training.portable import export_part, onnx_bytes, portable, require_onnx, torch_bytes
from ..training.rows import judged_rows
from ..training.storage import (
    Loaded,
    embedding_path,
    embedding_table,
    load_fitted,
    replacing,
    table_ending,
    versions,
    write_bytes,
    write_json,
    write_tables,
)
from . import pages
from .run import (
    SILENT,
    GraphSource,
    Reporter,
    Source,
    Step,
    missing_as_run,
    output_file,
    output_files,
    stored_source,
    write_array,
)
from .training import embedding_tables, sample_split

__all__ = [
    "INTERFACE",
    "NEW_ROWS",
    "embed_run",
    "evaluate_run",
    "export_run",
    "impute_run",
    "open_for",
    "place_data",
    "read_rows",
    "sample_run",
    "shows_new_rows",
    "stored_frames",
]


# What has no meaning for a model, and how the error says so, by the kind of model.
_NO_NODES, _READ_WHOLE = "which has no nodes; leave out `{}=…`", "which is read as a whole; leave out `{}=…`"
_MEANINGLESS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    Fitted.kind: ("a model of a table", {"nodes": _NO_NODES, "features_file": _NO_NODES}),
    FittedGraph.kind: (
        "a model of a graph",
        {
            "memory": _READ_WHOLE,
            "cache": _READ_WHOLE,
            "layer": "which has no layers; leave out `{}=…`",
            "samples": "whose edges are found by distance; leave out `{}=…`",
            "refine": "whose edges are found by distance; leave out `{}=…`",
            "output": "which has no rows to score; leave out `{}=…`",
            "covariates": "which has no covariates; leave them out",
        },
    ),
}


def open_for(run: Path, device: torch.device | str = "cpu", only_tables: str = "", **given: Any) -> Loaded:
    """Load a model for a command; raise for what was given and has no meaning for its kind.

    A command for models of tables alone says in `only_tables` why those of graphs have no part in it.
    """
    loaded = load_fitted(run, None, device)
    model, reasons = _MEANINGLESS[loaded.fitted.kind]
    if only_tables and not isinstance(loaded.fitted, Fitted):
        raise CurvaeError(f"{run} holds {model}, {only_tables}; give a run of curvae fit")
    for name, value in given.items():
        if value and name in reasons:
            raise CurvaeError(f"{run} holds {model}, {reasons[name].format(name)}")
    return loaded


def stored_frames(description: Mapping[str, Any], embedding: Embedding) -> tuple[Frame, ...] | None:
    """Return the frames that `config.json` holds for the factors of a map; None for what an estimator saved."""
    if (stored := description.get("orientation")) is None:
        return None
    try:
        return frames_from_json(stored, embedding.placed)
    except (KeyError, TypeError, ValueError) as error:
        raise CurvaeError(f"config.json holds no orientation of the map ({one_line(error)}); train again") from error


# New data, read as those of the run were.


def read_rows(
    loaded: Loaded,
    path: str,
    missing: Missing | None,
    reporter: Reporter,
    decode: bool,
    memory: str | None = None,
    **where: Any,
) -> Dataset:
    """Read new rows as those of the run were read, with the same treatment of gaps unless `missing` is given; `where`
    are further arguments of `load`, as `cache` and `layer`.

    Raises for rows that do not fit the model, or lack covariates that it needs.
    """
    fitted, how = loaded.fitted, missing_as_run(missing, loaded.description)
    data, _ = load(
        path,
        schema=loaded.data,
        missing=how,
        memory=Source(path, memory=memory).bounded.memory,
        counter=reporter.counter,
        **where,
    )
    choose_likelihood(data.x, fitted.config.likelihood, replace(fitted.layout, names=data.names))
    fitted.require_covariates(data, loaded.data, Path(path).name, decode)
    reporter.tell(data.notes, data.warnings)
    return data


def _read_graph(loaded: Loaded, path: str, reporter: Reporter, **how: Any) -> Graph:
    """Read a graph; the nodes of an edge are in the columns that were given for the graph of the run."""
    stored = stored_source(loaded.description)
    how |= {name: stored.get(name) for name in ("source_column", "target_column")}
    graph = GraphSource(path, **how).load(known=loaded.data.names, directed=loaded.data.directed)
    # The names of the run decide whether the first line is a header.
    reporter.tell([note.replace(HEADER_ADVICE, "") for note in graph.notes], graph.warnings)
    return graph


def _feature_columns(run: Path, loaded: Loaded, features_file: str | None) -> dict[str, Any]:
    """Find the columns of a table that are features, and the categories of text columns, as in the graph of the run."""
    stored, names = stored_source(loaded.description), loaded.data.feature_names
    beside = stored.get("features_file")
    if beside is not None and features_file is None:
        raise CurvaeError(f"{run} was trained with the features of {beside}; give such a file with `features_file=…`")
    if features_file is not None and not names:
        raise CurvaeError(f"{run} was trained without features; leave out `features_file=…`")
    if features_file is not None and not is_table(features_file):
        return {}
    texts = {
        column: [name.removeprefix(f"{column}=") for name in names if name.startswith(f"{column}=")]
        for column in stored.get("categorical", ())
    }
    coded = {f"{column}={value}" for column, values in texts.items() for value in values}
    numbers = tuple(name for name in names if name not in coded)
    return {"features": numbers, "no_features": not numbers and features_file is None, "categorical": texts}


def _same_nodes(run: Path, path: str, own: Graph, graph: Graph) -> Graph:
    """Return the graph with its nodes in the order of the run's."""
    edges, order, unknown = _moved(own, graph)
    lacking = np.setdiff1d(own.names, graph.names)
    if len(lacking) or len(unknown):
        sides = [
            f"{name} {counted(len(side), 'node')} ({quoted(side)})"
            for name, side in (("lacks", lacking), ("adds", unknown))
            if len(side)
        ]
        raise CurvaeError(
            f"the model of {run} has no features and knows its own {own.n_nodes:,} nodes only; {Path(path).name} "
            f"{' and '.join(sides)}: name the same nodes (those without edges with `nodes=…`), or train with "
            "`features=…`"
        )
    return Graph(own.names, edges, None if graph.weights is None else graph.weights[order], directed=graph.directed)


def _moved(own: Graph, graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.intp], NDArray[np.str_]]:
    """Return edges between nodes of the run by their places there, which edges these are, and nodes that it lacks."""
    places = pd.Index(own.names).get_indexer(pd.Index(graph.names))
    ends = places[graph.edges].astype(np.int64)
    ends = ends if graph.directed else np.sort(ends, axis=1)
    known = np.flatnonzero(ends.min(axis=1) >= 0)
    order = known[np.lexsort((ends[known, 1], ends[known, 0]))]
    return ends[order], order, graph.names[places < 0]


# `curvae embed`.

NEW_ROWS = 100_000  # that a map shows at most


def shows_new_rows(folder: Path, rows: int) -> bool:
    """Say whether the map of a run can mark so many new rows: a folder that was saved from Python has no map."""
    return rows <= NEW_ROWS and embedding_path(folder).exists()


def place_data(
    run: Path,
    loaded: Loaded,
    path: str,
    missing: Missing | None,
    reporter: Reporter,
    *,
    nodes: str | None = None,
    features_file: str | None = None,
    memory: str | None = None,
    cache: str | None = None,
    layer: str | None = None,
) -> tuple[Iterable[pd.DataFrame], int]:
    """Place rows, or the nodes of a graph with other edges, on the map of a run.

    A model with features of nodes places any that have them. One without knows its nodes by their places in the graph,
    so the nodes must be the same. `nodes` is a table of nodes, and `features_file` has their features.

    Returns:
        Tables with the columns of `embedding.csv`, one below the other, and how many rows they have.
    """
    frames = stored_frames(loaded.description, loaded.embedding)
    if isinstance(loaded.fitted, Fitted):
        data = read_rows(loaded, path, missing, reporter, False, memory, cache=cache, layer=layer)
        return embedding_tables(loaded.fitted, data, frames, reporter), len(data)
    own: Graph = loaded.data
    graph = _read_graph(
        loaded,
        path,
        reporter,
        nodes=nodes,
        features_file=features_file,
        **_feature_columns(run, loaded, features_file),
        weighted=own.weights is not None,
        isolated=nodes is not None,
        missing=missing_as_run(missing, loaded.description),
    )
    if graph.feature_names != own.feature_names:
        raise CurvaeError(
            f"{Path(path).name} comes with {counted(len(graph.feature_names), 'feature')} a node, and the model of "
            f"{run} was trained on {len(own.feature_names):,}; give the same"
        )
    if own.features is None:
        graph = _same_nodes(run, path, own, graph)
    labels = None
    if own.labels is not None:
        places = pd.Index(own.names).get_indexer(pd.Index(graph.names))
        labels = np.where(places < 0, "", own.labels[places])
    return [
        embedding_table(embed_graph(loaded.fitted, graph), graph.names, labels, "new", "node", frames)
    ], graph.n_nodes


def embed_run(
    run: Path,
    path: str,
    output: Path | None = None,
    *,
    missing: Missing | None = None,
    force: bool = False,
    device: torch.device | str = "cpu",
    reporter: Reporter = SILENT,
    **reading: Any,
) -> tuple[Path, Step]:
    """Embed data with a trained run; return the file, whose columns are those of `embedding.csv`, and what to do next.

    It is a CSV file, or a Parquet file if that is asked for or there are a million rows; or a `.h5ad` file, a copy of
    that of the data to which the map is added.

    Arguments:
        run: its folder.
        path: the data.
        output: the file.
        missing: what to do with rows that lack values; as the run did by default.
        force: overwrite the file.
        device: where to compute.
        reporter: receives messages and progress.
        reading: of a graph `nodes`, a table of nodes, and `features_file`, with their features; of rows, those that
            would take more than so much `memory` stay on disk, where a copy of them is kept in the folder `cache`; of
            a cell file the `layer` with the counts.
    """
    loaded = open_for(run, device, **reading)
    of_rows = isinstance(loaded.fitted, Fitted)
    if of_rows and output is not None and output.suffix.lower() == ".h5ad":
        reading = {name: reading.get(name) for name in ("memory", "cache", "layer")}
        return _embed_cells(run, loaded, path, output_file(output, output, force), missing, reporter, **reading)
    tables, rows = place_data(run, loaded, path, missing, reporter, **reading)
    name = f"{Path(path).name.split('.')[0]}-embedding{table_ending(rows)}"
    target = output_file(output, Path(name), force, (".csv", ".parquet"))
    write_tables(target, tables)
    if of_rows and shows_new_rows(run, rows):
        return target, Step("view", (str(run),), {"rows": path, "missing": missing})
    return target, Step("evaluate", (str(run), path), {"missing": missing})


def _embed_cells(
    run: Path,
    loaded: Loaded,
    path: str,
    target: Path,
    missing: Missing | None,
    reporter: Reporter,
    **where: Any,
) -> tuple[Path, Step]:
    """Write a copy of a cell file with its map; see `embed_run`, and for `where` `read_rows`."""
    if not path.lower().endswith(".h5ad"):
        raise CurvaeError(
            f"{path} is no .h5ad file, to which a map can be added; choose another ending with `output=…`"
        )
    data = read_rows(loaded, path, missing, reporter, False, **where)
    fitted, advance, found = loaded.fitted.double(), reporter.counter("embedding", len(data)), []
    for piece in data.pieces():
        found.append(embed(fitted, piece).require_finite(piece.ids))
        advance(len(piece))
    space, sigma = (np.concatenate([getattr(one, name) for one in found]) for name in ("space", "sigma"))
    with replacing(target) as file, Path(path).open("rb") as source:
        shutil.copyfileobj(source, file)
        file.flush()
        write_map(Path(file.name), Embedding(space, sigma, found[0].factors))
    return target, Step("view", (str(run),), {"rows": path, "missing": missing})


# `curvae impute`.


def impute_run(
    run: Path,
    path: str,
    output: Path | None = None,
    *,
    samples: int = 1000,
    seed: int = 0,
    memory: str | None = None,
    cache: str | None = None,
    force: bool = False,
    device: torch.device | str = "cpu",
    reporter: Reporter = SILENT,
) -> tuple[Path, int, int, Step]:
    """Fill the gaps of data with what a trained run expects there, and write a CSV table, or for images an array.

    The table has the columns of the source that the run knows, those of ids, labels and groups first, exposure and
    covariates last. Of a categorical column, the most probable category is filled in. It takes `samples` importance
    samples a row; see `embed_run` for `memory` and `cache`.

    Returns:
        The file, the number of values that were filled in and of rows that lacked some, and what to do next.
    """
    loaded = open_for(run, device, "which fills no gaps")
    require_count("samples", samples, "importance_samples")
    fitted, schema = loaded.fitted, loaded.data
    images = schema.kind == "images"
    name = f"{Path(path).name.split('.')[0]}-imputed.{'npy' if images else 'csv'}"
    target = output_file(output, Path(name), force)
    data = read_rows(loaded, path, "model", reporter, True, memory, cache=cache)
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
    if stored := stored_source(loaded.description):
        source = replace(source.again(stored), missing="error", memory=None, id=data.id_name or None)
    plain = source.exposure is None  # all that a diagnosis takes
    return target, values, lacking, source.step("diagnose") if plain else Step("view", (str(run),))


def _filled_table(x: Any, data: Dataset, schema: Schema, likelihood: str) -> pd.DataFrame:
    """Write rows without gaps as a table of the source, with values that data have.

    These are in binary columns the more probable one, of counts the nearest integer, and whole numbers without a point.
    """
    x = x if isinstance(x, np.ndarray) else x.toarray()
    whole = LIKELIHOODS[likelihood].uses_size or [column.binary for column in schema.columns for _ in column.features]
    covariates = {} if data.context is None else source_columns(data.context, schema.covariates)
    for column in schema.covariates:
        if column.categories is None and covariates:  # without what rounding left when it was standardised
            values = covariates[column.name] * column.scale + column.fill
            covariates[column.name] = [float(f"{value:.12g}") for value in values]
    table = _table(np.where(whole, np.rint(x), x), schema, covariates)
    if schema.exposure is not None and data.exposure is not None:
        table[schema.exposure] = data.exposure
    for name in table.select_dtypes("number"):
        if bool(((table[name] % 1 == 0) & (table[name].abs() < 2**53)).all()):
            table[name] = table[name].astype(np.int64)
    roles = {data.id_name: data.ids, schema.label: data.labels, schema.group: data.groups}
    named = {name: texts for name, texts in roles.items() if name is not None and texts is not None}
    return pd.concat([pd.DataFrame(named), table], axis=1)


def _table(rows: NDArray[np.float64], schema: Schema, covariates: Mapping[str, Any]) -> pd.DataFrame:
    """Return features as columns of the source: categories by name, binary ones as 1 and 0, counts of exposure 1; and
    the covariates behind them."""
    exposure = {} if schema.exposure is None else {schema.exposure: 1.0}
    return pd.DataFrame({**source_columns(rows, schema.columns), **exposure, **covariates})


# `curvae sample`.

_LARGEST = 4000  # nodes of a graph that is drawn from the model: all pairs are asked


def sample_run(
    run: Path,
    count: int,
    output: Path | None = None,
    *,
    covariates: Mapping[str, str] | None = None,
    seed: int = 0,
    force: bool = False,
    device: torch.device | str = "cpu",
) -> tuple[list[Path], Step]:
    """Draw new rows, or graphs, from a trained run; return the files and what to do next.

    Rows are written to a CSV table, or for images to an array and a picture; of graphs the edges, nodes counted from 1.
    `covariates` has a value for each covariate of the model, which all rows share.
    """
    if count < 1:
        raise CurvaeError(f"the number of samples must be at least 1, got {count}")
    loaded = open_for(run, device, covariates=covariates)
    rows, schema, name = isinstance(loaded.fitted, Fitted), loaded.data, f"{run.resolve().name}-samples"
    context = code_values(schema.covariates, covariates) if rows else None
    images = rows and schema.kind == "images"
    paths = [output_file(output, Path(f"{name}.{'npy' if images else 'csv'}"), force)]
    if not rows:
        write_tables(paths[0], [_draw_graphs(run, loaded, count, seed)])
        return paths, Step("view", (str(run),))
    # Noise, outputs, draws and their text.
    memory_of_machine.require(64 * count * len(schema.names), f"a table of {count:,} samples", fix="lower `count=…`")
    drawn = loaded.fitted.sample(count, context, seed)
    if images:
        paths.append(output_file(None, paths[0].with_suffix(".png"), force))
        means = loaded.fitted.sample(min(count, 100), context, seed, mean=True)
        write_array(paths[0], drawn.reshape(-1, *schema.shape).astype(np.float32))
        write_bytes(paths[1], pages.samples_picture(means.reshape(-1, *schema.shape)).png)
    else:
        write_tables(paths[0], [_table(drawn, schema, covariates or {})])
    return paths, Step("embed", (str(run), str(paths[0])))


def _draw_graphs(run: Path, loaded: Loaded, count: int, seed: int) -> pd.DataFrame:
    """Draw the edges of new graphs."""
    model, own, known, popularity = loaded.fitted.model, loaded.data, loaded.embedding, None
    if own.n_nodes > _LARGEST:
        raise CurvaeError(
            f"the graph of {run} has {own.n_nodes:,} nodes, and graphs are drawn pair by pair, up to {_LARGEST:,}; "
            "train on a smaller graph to draw from it"
        )
    memory_of_machine.require(100.0 * count * own.n_edges, f"a table of {count:,} graphs", fix="lower `count=…`")
    generator = torch.Generator(model.device).manual_seed(seed)
    if known.popularity is not None and known.side is not None:  # those of the nodes of the graph
        popularity = torch.from_numpy(np.vstack([known.popularity.T, known.side])).to(model.device)
    edges = [(model.sample(own.n_nodes, generator, popularity) + 1).cpu().numpy() for _ in range(count)]
    return pd.concat(
        [pd.DataFrame({"sample": i, "a": a, "b": b}) for i, (a, b) in enumerate(edges, 1)], ignore_index=True
    )


# `curvae evaluate`.

_SAMPLES = 5000  # importance samples a row
_UNUSUAL = 5  # rows that are named, at most
_TRAINING_ROWS = 2000  # at most, among which other rows are ranked


def evaluate_run(
    run: Path,
    path: str,
    samples: int | None = None,
    *,
    refine: int = 0,
    seed: int = 0,
    missing: Missing | None = None,
    output: Path | None = None,
    training: str | None = None,
    memory: str | None = None,
    cache: str | None = None,
    layer: str | None = None,
    force: bool = False,
    device: torch.device | str = "cpu",
    reporter: Reporter = SILENT,
) -> tuple[dict[str, Any], Step]:
    """Measure how well a trained run describes data, for each part of the data that the run knows apart.

    Of rows the marginal log-likelihood, with so many importance samples, 5000 by default; of a graph, how well its
    edges are distinguished from other pairs.

    Arguments:
        refine: steps by which the posterior of every row is improved before samples are drawn from it.
        run, path, samples, seed, missing, device, reporter: as of the other commands.
        memory, cache, layer: see `embed_run`; by default as much memory as the run was given.
        output: file for the log-likelihood of every row and its rank among the rows of `training`.
        training: the data that the run was trained on; by default the file of that name beside the data or in the
            working directory.
        force: overwrite the output.

    Returns:
        The figures, and what to do next.
    """
    if output is not None:
        output_file(output, Path("scores.csv"), force, (".csv", ".parquet"))
    loaded = open_for(
        run, device, samples=samples is not None, refine=refine, output=output, memory=memory, cache=cache, layer=layer
    )
    about = {"run": run.resolve().name, "data": Path(path).name}
    if not isinstance(loaded.fitted, Fitted):
        return (
            {**about, "seed": seed, **_score_edges(run, loaded, path, seed, reporter)},
            Step("sample", (str(run),), {"count": 10}),
        )
    samples = _SAMPLES if samples is None else samples
    require_count("samples", samples, "importance_samples")
    data, split, own = _read_parts(loaded, path, missing, reporter, memory, cache=cache, layer=layer)
    shown, parts = sample_split(data, split, 0)
    if output is None:
        data, split = shown, parts
    names = np.where(own, split.names(len(data)), "new")

    def estimate(rows: Dataset, what: str) -> Likelihoods:
        found = likelihoods(
            loaded.fitted, rows, samples, seed, advance=reporter.counter(what, len(rows)), refine=refine
        )
        return found.require_finite(in_memory(rows.ids))

    # Rows to rank these among, unless they are among these.
    others = None if output is None or "train" in names else _training_rows(run, loaded, path, training, seed)
    found, ranked = estimate(data, "likelihood"), {}
    if output is not None:
        among = found.take(names == "train") if others is None else estimate(others, "training rows")
        ranked = _rank_rows(data, names, found, among, output)
    by_part = {name: found.take(names == name) for name in dict.fromkeys(names.tolist())}
    parts_found: dict[str, Any] = {
        name: {
            "rows": len(part.log_prob),
            "log_likelihood": part.mean,
            "interval": part.interval,
            "log_likelihood_original_units": part.original.mean,
            "median_effective_sample_size": float(np.median(part.ess)),
            "median_standard_error": float(np.median(part.error)),
            "rows_with_few_effective_samples": int((part.ess < 10).sum()),
        }
        for name, part in by_part.items()
    }
    faithful = pages.judge_rows(
        shown,
        embed(loaded.fitted, shown).require_finite(shown.ids),
        judged_rows(parts.names(len(shown))),
        seed=seed,
    )
    following = Step("view", (str(run),), {"rows": path, "missing": missing})
    if "new" not in parts_found or not shows_new_rows(run, parts_found["new"]["rows"]):
        # A value of each covariate: its first category, or its mean.
        values = [
            f"{one.name}={f'{one.fill:g}' if one.categories is None else one.categories[0]}"
            for one in loaded.data.covariates
        ]
        following = Step("sample", (str(run),), {"count": 100, "covariates": values})
    return {
        **about,
        "samples": samples,
        "refine": refine,
        "seed": seed,
        "parts": parts_found,
        "faithfulness": None if faithful is None else faithful.to_json(),
        **ranked,
    }, following


def _read_parts(
    loaded: Loaded,
    path: str,
    missing: Missing | None,
    reporter: Reporter,
    memory: str | None = None,
    **where: Any,
) -> tuple[Dataset, Split, bool]:
    """Read rows whose likelihood is wanted, with their split if they are the data of the run, and whether they are.

    The run's own data are reported by part: rows that were trained on say nothing about new ones.
    """
    memory = memory or stored_source(loaded.description).get("memory")
    data = read_rows(loaded, path, missing, reporter, True, memory, **where)
    own = data.fingerprint == loaded.description["data"].get("fingerprint")
    return data, loaded.fitted.split if own else Split(np.arange(len(data)), np.empty(0, np.int64)), own


def _training_rows(run: Path, loaded: Loaded, beside: str, given: str | None, seed: int) -> Dataset:
    """Read rows that the run was trained on: all, or of many a random choice.

    Arguments:
        run, loaded: the run.
        beside: data in whose folder the file of the run is looked for, if not in the working directory.
        given: the file, if it is known.
        seed: of the choice.
    """
    name = stored_source(loaded.description).get("name")
    file = given or name
    if file is None or loaded.description["data"].get("fingerprint") is None:
        raise CurvaeError(
            f"{run} does not know the data that it was trained on, so rows have no rank; leave out `output=…`"
        )
    if given is None and not Path(file).exists() and Path(beside).with_name(file).exists():
        file = str(Path(beside).with_name(file))
    try:
        data, split, own = _read_parts(loaded, file, None, Reporter())
    except CurvaeError as error:
        if given is not None:
            raise
        raise CurvaeError(
            f"ranks need the data that the run was trained on, {name}; give them with `training=…`"
        ) from error
    if not own:
        raise CurvaeError(f"{file} is not the data that {run} was trained on; give those with `training=…`")
    return data.take(np.sort(np.random.default_rng([seed, 19]).permutation(split.train)[:_TRAINING_ROWS])).load()


def _rank_rows(
    data: Dataset, names: NDArray[np.str_], found: Likelihoods, among: Likelihoods, output: Path
) -> dict[str, Any]:
    """Write the log-likelihood of every row with its rank, and return a summary."""
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
    write_tables(output, [table])
    unusual = table[table["training_percentile"] < 1].sort_values("log_likelihood")
    return {
        "scores": str(output),
        "training_rows": len(among.log_prob),
        "rows_below_1_percent": len(unusual),
        "most_unusual": [str(name) for name in unusual["id"][:_UNUSUAL]],
    }


def _score_edges(run: Path, loaded: Loaded, path: str, seed: int, reporter: Reporter) -> dict[str, Any]:
    """Measure how well the edges of a file between nodes of the run are distinguished from random other pairs.

    These pairs are edges neither in the file nor in the run's graph. Edges that the run was trained on are judged apart
    from new ones. Beside the model stand rules that know the edges of the run and need no model.
    """
    own, embedding = loaded.data, loaded.embedding
    graph = _read_graph(loaded, path, reporter)
    edges, _, unknown = _moved(own, graph)
    if not len(edges):
        raise CurvaeError(
            f"no edge of {Path(path).name} joins two nodes of {run}; it names {quoted(graph.names[:2])}, the run "
            f"{quoted(own.names[:2])}: use the same names"
        )
    if len(unknown):
        reporter.warn(
            f"{counted(len(unknown), 'node')} not in the run ({quoted(unknown)}); "
            f"{counted(graph.n_edges - len(edges), 'edge')} of {graph.n_edges:,} left out."
        )
    whole = Graph(own.names, np.unique(np.concatenate([own.edges, edges]), axis=0), directed=own.directed)
    known = np.isin(edges @ [own.n_nodes, 1], own.edges @ [own.n_nodes, 1])
    parts = {}
    for name, part in (("train", edges[known]), ("new", edges[~known])):
        if len(part):
            absent = absent_pairs(whole, len(part), np.random.default_rng(seed), fix="give fewer edges")
            found = score_links(embedding.nearness_of, whole, own.edges, part, absent, embedding.space.shape[1])
            parts[name] = {"edges": len(part), **found, "remark": pages.remark(found)}
    asked = Graph(own.names, edges, directed=own.directed)
    near, faithful = neighbourhood(embedding, asked, seed=seed), graph_faithfulness(asked, embedding, seed=seed)
    return {
        "parts": parts,
        "unknown_nodes": len(unknown),
        "neighbourhood_map": near.map,
        "neighbourhood_rank": near.rank,
        "neighbourhood_nodes": near.asked,
        "faithfulness": None if faithful is None else faithful.to_json(),
    }


# `curvae export`.

INTERFACE = "interface.json"


def export_run(
    run: Path,
    output: Path | None = None,
    *,
    onnx: bool = False,
    torch: bool = False,
    force: bool = False,
    reporter: Reporter = SILENT,
) -> list[Path]:
    """Write the encoder and the decoder of a trained run to a folder, as ONNX files or programs of `torch.export`.

    Both work in original units: columns are scaled, and missing values handled, inside the graphs. Names and order of
    the columns, and the categories that one-hot columns stand for, are in `interface.json` beside them.

    Arguments:
        run: its folder.
        output: folder to write to; by default `<run>-export` in the working directory.
        onnx: write `encoder.onnx` and `decoder.onnx`.
        torch: write `encoder.pt2` and `decoder.pt2`, for `torch.export.load`.
        force: overwrite files that are there.
        reporter: of the progress.
    """
    if not (onnx or torch):
        raise CurvaeError("choose what to write with `onnx=True`, `torch=True` or both")
    if onnx:
        require_onnx()
    loaded = open_for(run, only_tables="whose encoder reads the whole graph")
    fitted, schema = loaded.fitted, loaded.data
    gaps_known = fitted.layout.missing
    filled = not gaps_known and missing_as_run(None, loaded.description) == "mean"
    fills = one_hot(schema.fills[np.newaxis], schema.columns, run.name)[0] if filled else None
    # Categories are given as they are; numbers are standardised by the graphs.
    numbers = [
        (column.fill, column.scale) if column.categories is None else (0.0, 1.0)
        for column in schema.covariates
        for _ in column.features
    ]
    parts = portable(fitted, numbers, fills)
    names = [f"{part.name}{ending}" for ending, asked in ((".onnx", onnx), (".pt2", torch)) if asked for part in parts]
    paths = output_files(output, f"{run.resolve().name}-export", [*names, INTERFACE], force)
    advance = reporter.counter("exporting", len(parts))
    for part in parts:
        program = export_part(part)
        if torch:
            write_bytes(paths[-1].with_name(f"{part.name}.pt2"), torch_bytes(program))
        if onnx:
            write_bytes(paths[-1].with_name(f"{part.name}.onnx"), onnx_bytes(part, program))
        advance(1)
    interface = {
        "run": run.resolve().name,
        "versions": versions(),
        "numbers": "float64, (rows, width) or (rows,)",
        "graphs": {part.name: {"inputs": part.inputs, "outputs": part.outputs} for part in parts},
        "features": list(schema.names),
        "covariates": list(schema.context_names),
        "exposure": schema.exposure,
        "missing": "nan, known to the model" if gaps_known else "nan, filled in" if filled else "none may be missing",
        "likelihood": fitted.config.likelihood,
        "space": [one._asdict() for one in fitted.model.space.figures()],
        "schema": {
            name: value
            for name, value in schema.to_json().items()
            if name in ("kind", "shape", "columns", "covariates")
        },
    }
    write_json(paths[-1], interface)
    return paths
