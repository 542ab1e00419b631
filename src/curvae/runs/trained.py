"""Use a trained run: `curvae view`, `explain`, `export`, `embed`, `impute`, `sample` and `evaluate`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ..data import Graph, Schema, load
from ..data.dataset import Missing
from ..data.files import Messages, count, quoted, require_file
from ..data.graphs.graph_data import steps_from
from ..data.loading import BUILT_IN
from ..data.tables import average_context, read_frame
from ..data.text_tables import UNNAMED, texts_of
from ..errors import CurvaeError
from ..hierarchy import Drivers, explain
from ..hierarchy.drivers import expected_rows
from ..maps.charts import Projection
from ..maps.embedding import Embedding
from ..plotting.maps import edges_drawn
from ..training.portable import export_part, onnx_bytes, require_onnx, torch_bytes
from ..training.storage import Loaded, read_description, versions, write_bytes, write_json
from ..viewer import View
from . import pages
from .drawing import deviations, open_thinned
from .folders import embedding_path, output_file, read_embedding, table_ending, write_table, write_tables
from .pages import Explained, space_text
from .rows_run import NEW_ROWS
from .run import Imputed, Reporter, Sampled, ScoreFile, Step, stored_frames
from .training import open_run, run_of

__all__ = [
    "INTERFACE",
    "ViewRequest",
    "embed_run",
    "evaluate_run",
    "explain_run",
    "export_run",
    "impute_run",
    "sample_run",
    "view_run",
]

LARGEST = 1_000_000
"""points of a map at most; of more rows, it shows a sample"""

# Columns of embedding.csv that may be shown, besides standard deviations.
_OWN = ("split", "radius", "spread", "popularity", "popularity_out", "popularity_in", "side")
_MOST_EDGES = 1_000_000
_MOST_EXPLAINED = 100_000
_WRITERS: dict[str, Callable[[View, int], bytes]] = {
    ".html": lambda view, names: view.html().encode(errors="backslashreplace"),
    ".svg": lambda view, names: view.picture("svg", hubs=names),
    ".png": lambda view, names: view.picture("png", hubs=names),
    ".pdf": lambda view, names: view.picture("pdf", hubs=names),
}


@dataclass(frozen=True)
class ViewRequest:
    """What `curvae view` was asked to do."""

    run: Path
    output: Path | None = None
    show: tuple[str, ...] = ()
    label: str | None = None
    anonymous: bool = False
    thumbnails: bool = False
    data: str | None = None
    names: int = 0
    factor: str | None = None
    """which factor of a product to show; the first hyperbolic one by default"""
    explain: bool = False
    """whether two clicks show which columns change between two rows"""
    find: tuple[str, ...] = ()
    """ids of rows that are on the map whatever sample of the rows it shows"""
    rows: str | None = None
    """new rows to mark on the map, with the columns of the data that the run was trained on"""
    missing: Missing | None = None
    """what to do with new rows that lack values; as the run did by default"""
    force: bool = False


def view_run(request: ViewRequest, reporter: Reporter = Reporter()) -> tuple[Path, View]:  # noqa: B008 - frozen
    """Write the map of a run to a page or a picture, by the ending of the file."""
    run = request.run
    new = request.rows and Path(request.rows).name.split(".")[0]
    name = "-".join(filter(None, (run.resolve().name, "map", request.factor, new)))
    target = output_file(request.output, Path(f"{name}.html"), request.force, _WRITERS)
    description = read_description(run)
    if request.find and request.anonymous:
        raise CurvaeError("anonymous=True leaves out ids; give find=… or anonymous=True, not both")
    if target.suffix.lower() != ".html":
        _check_picture(request)
    if request.names:
        _check_names(request, description, target)
    view = _view(request, description, reporter)
    if target.suffix.lower() == ".html":
        reporter.say(f"inside the page: {'; '.join(view.inside)}")
    write_bytes(target, _WRITERS[target.suffix.lower()](view, request.names))
    return target, view


def _check_picture(request: ViewRequest) -> None:
    """Raise for what only a page can show."""
    if request.explain:
        raise CurvaeError(
            "explain=True is for pages, on which rows can be clicked; leave it out, or write an .html file"
        )
    if request.show:
        raise CurvaeError("show=… is for pages; a picture has the colours of one column, given with label=…")
    if request.find:
        raise CurvaeError("find=… is for pages, which show ids; leave it out, or write an .html file")


def _check_names(request: ViewRequest, description: Mapping[str, Any], target: Path) -> None:
    if target.suffix.lower() == ".html":
        raise CurvaeError(
            "names=… is for pictures, a page has names by itself; choose a picture with output=…, or leave it out"
        )
    if not run_of(description).has_edges:
        raise CurvaeError(f"{request.run} is no run of curvae graph: no row has more edges; leave out names=…")
    if request.anonymous:
        raise CurvaeError("anonymous=True leaves out names; give names=… or anonymous=True, not both")


def _view(request: ViewRequest, description: Mapping[str, Any], reporter: Reporter) -> View:
    new = [] if request.rows is None else _new_rows(request, description, reporter)
    table, whole, rows = open_thinned(request.run, description, LARGEST, request.find, new)
    own = len(table) - sum(map(len, new))  # rows of the run that are shown
    if rows > own and (request.thumbnails or request.explain):
        option = "thumbnails" if request.thumbnails else "explain"
        raise CurvaeError(f"{request.run} has {rows:,} rows, of which a map shows a sample; leave out {option}=True")
    embedding = _factor(whole, request.factor)
    stored = description.get("data", {}).get("schema")
    schema = None if stored is None else Schema.from_json(stored)
    columns = _columns(request, table, own, schema, str(description.get("data", {}).get("label") or "label"))
    images = _images(request, description, schema) if request.thumbnails else None
    projection = _projection(description, whole, embedding)
    edges = None if rows > own else run_of(description).edges(request.run, own)
    size = count(rows, "node" if run_of(description).has_edges else "row")
    if edges is not None:
        size += f", {count(edges.shape[1], 'edge')}"
    about = [f"{size}, {space_text(whole)}"]
    columns = columns or _steps(request, description, table["id"].to_numpy(np.str_), edges)
    if edges is not None and edges.shape[1] > _MOST_EDGES:
        edges = edges_drawn(edges.T, _MOST_EDGES).T
        about.append(f"{_MOST_EDGES:,} of the edges are drawn, chosen at random")
    if new:
        about.append(f"Marked: {count(len(table) - own, 'new row')} of {Path(str(request.rows)).name}")
    if rows > own:
        sample = f"a sample by density is shown: {own:,} of {rows:,} rows"
        reporter.say(f"{sample}; to have a row in it for sure, give find=…")
        about.append(f"{pages.capital(sample)}, all of them where there are few and fewer where there are many")
    if request.find:
        about.append(f"Found among all rows: {', '.join(request.find)}")
    if len(whole.placed) > 1:
        name = embedding.placed[0].name
        about.append(f"This is the factor {name}, and distances are those along it")
        others = (f'factor="{factor.name}"' for factor in whole.placed if factor.name != name)
        reporter.say(f"the map shows the factor {name} of the product; for another give {' or '.join(others)}")
    if description.get("root") is not None and not request.anonymous:
        about.append(f"{description['root']} is at the centre")
    if embedding.dim > 2:
        about.append(pages.capital(projection.sentence))
    return pages.map_view(
        embedding,
        projection,
        columns=columns,
        ids=table["id"].to_numpy(),
        images=images,
        expected=_expected(request, whole, rows) if request.explain else {},
        new=np.arange(len(table)) >= own if new else None,
        edges=edges,
        anonymous=request.anonymous,
        title=str(description.get("source", {}).get("name", request.run.resolve().name)),
        about=about,
    )


def _new_rows(request: ViewRequest, description: Mapping[str, Any], reporter: Reporter) -> list[pd.DataFrame]:
    """Where the model places new rows: tables with the columns of `embedding.csv`."""
    if run_of(description).has_edges:
        raise CurvaeError(f"{request.run} holds a model of a graph, whose map shows its nodes; leave out rows=…")
    found = open_run(request.run).embed(str(request.rows), None, None, request.missing, reporter)
    if found.rows > NEW_ROWS:
        raise CurvaeError(f"{request.rows} has {found.rows:,} rows, and a map marks at most {NEW_ROWS:,}; give fewer")
    return list(found.tables)


def _projection(description: Mapping[str, Any], whole: Embedding, shown: Embedding) -> Projection:
    """The factor as reports draw it."""
    frames = stored_frames(description, whole)
    if frames is None:
        return shown.chart.project(shown.points)
    return shown.chart.project(shown.points, frames[whole.placed.index(shown.placed[0])])


def _factor(embedding: Embedding, asked: str | None) -> Embedding:
    """The factor that is shown: the one asked for, or the first that the viewer moves as a disc, or the first."""
    parts = {part.placed[0].name: part for part in embedding.parts}
    name = asked or next((name for name, part in parts.items() if part.chart.motion == "disc"), next(iter(parts)))
    if name not in parts:
        raise CurvaeError(f"the space of the run has no factor {name!r}; it has {quoted(parts)}")
    return parts[name]


# --- columns ----------------------------------------------------------------------------------------------------------


def _columns(request: ViewRequest, table: pd.DataFrame, own: int, schema: Schema | None, name: str) -> dict[str, Any]:
    """Those to colour by: the label, called `name`, first, then those asked for; the first `own` rows are the run's."""
    stored: dict[str, Any] = {column: table[column] for column in (*_OWN, *deviations(table)) if column in table}
    if (table["label"] != "").any():
        stored[name] = stored["label"] = _numbers(table["label"])
    matched = _matched(request, table, own, schema)
    known = matched | {column: values for column, values in stored.items() if column not in matched}
    asked = [name for name in (request.label or (name if name in stored else None), *request.show) if name is not None]
    if "spread" in table and "spread" not in asked:
        asked.append("spread")
    for column in asked:
        if column not in known:
            where = "give the table it is in with data=…" if request.data is None else f"there are {quoted(known)}"
            raise CurvaeError(f"there is no column {column!r} to show; {where}")
        if request.anonymous and np.array_equal(texts_of(known[column], strip=True), table["id"].str.strip()):
            raise CurvaeError(f"column {column!r} holds the ids, which anonymous=True leaves out; show another")
    return {column: known[column] for column in asked}


def _steps(
    request: ViewRequest, description: Mapping[str, Any], names: NDArray[np.str_], edges: NDArray[np.int64] | None
) -> dict[str, Any]:
    """Steps along edges from the most central node, by which nodes without labels are coloured, as in the report."""
    centre = description["summary"].get("graph_centre")
    if edges is None or centre not in names:
        return {}
    steps = steps_from(Graph(names, edges.T, directed=True), int(np.flatnonzero(names == centre)[0]))
    shown = "the most central node" if request.anonymous else centre
    return {f"steps from {shown}": np.where(np.isfinite(steps), steps, np.nan)}


def _numbers(texts: pd.Series[Any]) -> pd.Series[Any]:
    """Labels as numbers where all are; empty ones are none."""
    labels = texts.where(texts != "", None)
    numbers = pd.to_numeric(labels, errors="coerce")
    return numbers if bool((numbers.notna() == labels.notna()).all()) else labels


def _matched(request: ViewRequest, table: pd.DataFrame, own: int, schema: Schema | None) -> dict[str, Any]:
    """Columns of the table given as data, its rows in the order of the run's; of new rows, columns of their table."""
    if request.data is None or (schema is not None and schema.kind == "images"):
        return {}
    found = _table_columns(Path(request.data), table["id"][:own], schema)
    if request.rows is None:
        return found
    new, unknown = _table_columns(Path(request.rows), table["id"][own:], schema), [None] * (len(table) - own)
    return {name: pd.Series([*values, *new.get(name, unknown)]) for name, values in found.items()}


def _table_columns(path: Path, ids: pd.Series[Any], schema: Schema | None) -> dict[str, Any]:
    """Columns of a table, for the rows with these ids."""
    try:
        require_file(path)
    except FileNotFoundError:
        raise CurvaeError(f"there is no table {path}; check the name") from None
    named = {schema.id} if schema is not None and schema.id is not None else set()
    frame = read_frame(path, named, named, Messages())
    wanted = pd.Index(ids)
    if schema is None:  # nodes of a graph, which any column may name
        named = set(frame.columns)
    columns = [name for name in frame.columns if name in named or str(name).startswith(UNNAMED)]
    # Names of nodes have no blanks around them.
    candidates = [texts_of(frame[name], strip) for strip in (False, True) for name in columns]
    for texts in (*candidates, np.arange(len(frame)).astype(np.str_)):
        rows = pd.Index(texts)
        if rows.is_unique and (places := rows.get_indexer(wanted)).min() >= 0:
            return {str(name): frame[name].take(places).reset_index(drop=True) for name in frame.columns}
    by = f"column {schema.id!r}" if schema is not None and schema.id is not None else "the numbers of the rows"
    by = "names of nodes" if schema is None else by
    raise CurvaeError(
        f"{path.name} does not hold all rows of the run, matched by {by}; give the table that the run was trained on"
    )


def _expected(request: ViewRequest, whole: Embedding, rows: int) -> dict[str, Any]:
    """What the model expects at every point, of the columns that differ most; `rows` is the number of the run's."""
    loaded = open_run(request.run).explained()
    if len(loaded.embedding) < rows:
        raise CurvaeError(
            f"{request.run} is of data that were read in pieces, and keeps a sample of {len(loaded.embedding):,} of "
            f"{rows:,} rows with its model; leave out explain=True"
        )
    if len(loaded.embedding) > _MOST_EXPLAINED:
        raise CurvaeError(
            f"{request.run} has {len(loaded.embedding):,} rows, and changes between rows are shown of up to "
            f"{_MOST_EXPLAINED:,}; leave out explain=True"
        )
    found = expected_rows(loaded.fitted, whole, context=average_context(loaded.data.covariates))
    return {
        str(loaded.data.names[feature]): (found.mean[:, i], found.deviation[:, i], float(found.unit[i]))
        for i, feature in enumerate(found.features)
    }


def _images(request: ViewRequest, description: Mapping[str, Any], schema: Schema | None) -> NDArray[Any]:
    name = str(description.get("source", {}).get("name"))
    if schema is None or schema.kind != "images":
        raise CurvaeError(
            f"{request.run} was not trained on images, so there are no thumbnails; leave out thumbnails=True"
        )
    if request.data is None and name not in BUILT_IN:
        raise CurvaeError(
            f"the images are not in the run; give them with data=…, as in data={json.dumps(name, ensure_ascii=False)}"
        )
    missing = description["source"].get("missing", "error")
    data, _ = load(request.data or name, schema=schema, missing=missing)
    if data.fingerprint != description["data"]["fingerprint"]:
        raise CurvaeError(f"{request.data or name} holds not the images that the run was trained on; give those")
    images = [data.x] if request.rows is None else [data.x, load(request.rows, schema=schema, missing=missing)[0].x]
    return np.concatenate(images).reshape(-1, *schema.shape)


# `curvae explain`: the columns that change between rows, or labels, of the map of a run.


def explain_run(
    run: Path,
    start: str | None = None,
    end: str | None = None,
    *,
    count: int = 10,
    output: Path | None = None,
    seed: int = 0,
    force: bool = False,
    device: torch.device | str = "cpu",
) -> Explained:
    """Which columns change along the geodesic between rows, or labels, of the map of a trained run?

    Arguments:
        run: its folder.
        start: id of a row, or a label; by default the row at the centre of the map, or the Fréchet mean of all rows.
        end: likewise; by default every label in turn.
        count: of columns.
        output: CSV file for the expected values on the way, with their intervals.
        seed: of the draws.
        force: overwrite the file.
        device: where to compute.
    """
    target = None if output is None else output_file(output, Path("path.csv"), force)
    loaded = open_run(run, device).explained()
    known = _Known(run, loaded)
    start = str(loaded.description["root"]) if start is None and loaded.description.get("root") is not None else start
    ends = known.labels if end is None else [end]
    if not ends:
        raise CurvaeError(f"the rows of {run} have no labels; say which one with end=…, such as {known.example}")
    rows = None if start is None else known.rows(start, "start")
    places = {name: known.rows(name, "end") for name in ends}
    how: dict[str, Any] = {"columns": count, "context": average_context(loaded.data.covariates), "seed": seed}
    found = {name: explain(loaded.fitted, loaded.embedding, place, rows, **how) for name, place in places.items()}
    names = loaded.data.names
    if target is not None:
        write_table(target, _table(found, names))
    return Explained("the mean of all rows" if start is None else start, found, names, target)


class _Known:
    """Names of the rows of a run, and their labels."""

    def __init__(self, run: Path, loaded: Loaded) -> None:
        self._run, rows = run, len(loaded.embedding)
        path = embedding_path(run)
        table = (
            read_embedding(path) if path.exists() else pd.DataFrame({"id": np.arange(rows).astype(str), "label": ""})
        )
        self._ids, self._labels = table["id"].to_numpy(), table["label"].to_numpy()
        if len(self._ids) != rows:
            raise CurvaeError(f"{path} has {len(self._ids)} rows, and the model was trained on {rows}; train again")

    @property
    def labels(self) -> list[str]:
        return sorted(set(self._labels) - {""})

    @property
    def example(self) -> str:
        """A row, for messages."""
        return f'end="{self._ids[-1]}"'

    def rows(self, name: str, parameter: str) -> NDArray[np.intp]:
        """The row of this id, or else those of this label."""
        for names in (self._ids, self._labels):
            if (places := np.flatnonzero(names == name)).size:
                return places
        near = get_close_matches(name, [*self.labels, *map(str, self._ids)], 1)
        labels = f"labels are such as {quoted(self.labels[:3])}, " if self.labels else ""
        hint = f"did you mean {near[0]!r}?" if near else f"{labels}ids are such as {quoted(self._ids[:3])}"
        raise CurvaeError(f"{self._run} has no row and no label {name!r} for {parameter}=…; {hint}")


def _table(found: dict[str, Drivers], names: Sequence[str]) -> pd.DataFrame:
    """One row for each column and step."""
    parts = [
        pd.DataFrame(
            {
                "to": name,
                "column": str(names[feature]),
                "t": one.t,
                "mean": one.mean[:, i],
                "low": one.low[:, i],
                "high": one.high[:, i],
            }
        )
        for name, one in found.items()
        for i, feature in enumerate(one.features)
    ]
    return pd.concat(parts, ignore_index=True)


# `curvae export`: the networks of a run for programs that do not have Curvae.

INTERFACE = "interface.json"
_SILENT = Reporter()


def export_run(
    run: Path,
    output: Path | None = None,
    *,
    onnx: bool = False,
    torch: bool = False,
    force: bool = False,
    reporter: Reporter = _SILENT,
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
        raise CurvaeError("choose what to write with onnx=True, torch=True or both")
    if onnx:
        require_onnx()
    parts, interface = open_run(run).portable()
    folder = Path(f"{run.resolve().name}-export") if output is None else output
    if folder.exists() and not folder.is_dir():
        raise CurvaeError(f"{folder} is a file; give a folder with output=…")
    names = [f"{part.name}{ending}" for ending, asked in ((".onnx", onnx), (".pt2", torch)) if asked for part in parts]
    paths = [output_file(folder / name, Path(name), force) for name in (*names, INTERFACE)]
    advance = reporter.counter("exporting", len(parts))
    for part in parts:
        program = export_part(part)
        if torch:
            write_bytes(folder / f"{part.name}.pt2", torch_bytes(program))
        if onnx:
            write_bytes(folder / f"{part.name}.onnx", onnx_bytes(part, program))
        advance(1)
    graphs = {part.name: {"inputs": part.inputs, "outputs": part.outputs} for part in parts}
    about = {"run": run.resolve().name, "versions": versions(), "numbers": "float64, (rows, width) or (rows,)"}
    write_json(paths[-1], {**about, "graphs": graphs, **interface})
    return paths


# `curvae embed`, `impute`, `sample` and `evaluate`: a trained run put to use.


def embed_run(
    run: Path,
    path: str,
    output: Path | None = None,
    *,
    missing: Missing | None = None,
    force: bool = False,
    device: torch.device | str = "cpu",
    nodes: str | None = None,
    features_file: str | None = None,
    memory: str | None = None,
    reporter: Reporter = _SILENT,
) -> tuple[Path, Step]:
    """Embed data with a trained run; returns the file, whose columns are those of `embedding.csv`, and what to do next.

    It is a CSV file, or a Parquet file if that is asked for or there are a million rows. `nodes` is a table of nodes
    and `features_file` has their features, where the run is one of a graph. Rows that would take more than so much
    `memory` are read in pieces.
    """
    found = open_run(run, device).embed(path, nodes, features_file, missing, reporter, memory)
    name = f"{Path(path).name.split('.')[0]}-embedding{table_ending(found.rows)}"
    target = output_file(output, Path(name), force, (".csv", ".parquet"))
    write_tables(target, found.tables)
    return target, found.following


def impute_run(
    run: Path,
    path: str,
    output: Path | None = None,
    *,
    samples: int = 1000,
    seed: int = 0,
    memory: str | None = None,
    force: bool = False,
    device: torch.device | str = "cpu",
    reporter: Reporter = _SILENT,
) -> Imputed:
    """Fill the gaps of data with what a trained run expects there, from so many importance samples a row; rows that
    take more than so much memory a piece at a time."""
    return open_run(run, device).impute(path, output, samples, seed, force, reporter, memory)


def sample_run(
    run: Path,
    count: int,
    output: Path | None = None,
    *,
    covariates: Mapping[str, str] | None = None,
    seed: int = 0,
    force: bool = False,
    device: torch.device | str = "cpu",
) -> Sampled:
    """Draw new rows, or graphs, from a trained run; `covariates` has a value for each that the model is told."""
    if count < 1:
        raise CurvaeError(f"the number of samples must be at least 1, got {count}")
    return open_run(run, device).sample(count, output, covariates, seed, force)


def evaluate_run(
    run: Path,
    path: str,
    samples: int | None = None,
    *,
    seed: int = 0,
    missing: Missing | None = None,
    output: Path | None = None,
    training: str | None = None,
    force: bool = False,
    device: torch.device | str = "cpu",
    reporter: Reporter = _SILENT,
) -> dict[str, Any]:
    """How well a trained run describes data, for each part of the data that the run knows apart.

    Of rows the marginal log-likelihood, with so many importance samples; of a graph, how well its edges are told from
    other pairs. `output` is a file for the log-likelihood of every row and its rank among the rows of `training`, the
    data that the run was trained on; by default the file of that name beside the data or in the working directory.
    """
    scores = None
    if output is not None:
        scores = ScoreFile(output_file(output, Path("scores.csv"), force, (".csv", ".parquet")), training)
    return open_run(run, device).evaluate(path, samples, missing, seed, reporter, scores)
