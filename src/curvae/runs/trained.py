"""Use a trained run: `curvae view`, `explain`, `export`, `embed`, `impute`, `sample` and `evaluate`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ..data import Graph, Schema, load
from ..data.column_statistics import Missing
from ..data.files import Messages, count, quoted, require_file
from ..data.graph_data import steps_from
from ..data.loading import BUILT_IN
from ..data.tables import average_context, read_frame
from ..data.text_tables import UNNAMED, texts_of
from ..errors import CurvaeError
from ..hierarchy import explain
from ..hierarchy.drivers import expected_rows
from ..maps.charts import Projection
from ..maps.embedding import Embedding
from ..plotting.maps import edges_drawn
from ..training import Fitted, FittedGraph
from ..training.portable import export_part, onnx_bytes, require_onnx, torch_bytes
from ..training.storage import Loaded, read_description, versions, write_bytes, write_json
from ..viewer import View
from . import pages
from .drawing import deviations, open_thinned
from .folders import embedding_path, output_file, table_ending, write_table, write_tables
from .graph_run import draw_graphs, embed_nodes, score_edges
from .pages import Explained, space_text
from .rows_run import NEW_ROWS, draw_rows, embed_rows, impute_rows, portable_rows, score_rows
from .run import SILENT, Reporter, Step, stored_frames
from .training import open_run, run_of

__all__ = [
    "INTERFACE",
    "embed_run",
    "evaluate_run",
    "explain_run",
    "export_run",
    "impute_run",
    "sample_run",
    "view_run",
]

# What commands do with the models of each kind of data.
_EMBED = {Fitted.kind: embed_rows, FittedGraph.kind: embed_nodes}
_DRAW = {Fitted.kind: draw_rows, FittedGraph.kind: draw_graphs}
_SCORE = {Fitted.kind: score_rows, FittedGraph.kind: score_edges}
_NO_COLUMNS = "whose nodes have no columns to explain"


def _open_table(run: Path, reason: str, device: torch.device | str = "cpu") -> Loaded:
    """Load a model of a table; raise for that of a graph, for which the command has no meaning for a `reason`."""
    loaded = open_run(run, device)
    if not isinstance(loaded.fitted, Fitted):
        raise CurvaeError(f"{run} holds a model of a graph, {reason}; give a run of curvae fit")
    return loaded


# `curvae view`: the map of a run as a page or a picture.

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


def view_run(
    run: Path,
    output: Path | None = None,
    show: Sequence[str] = (),
    *,
    label: str | None = None,
    anonymous: bool = False,
    thumbnails: bool = False,
    data: str | None = None,
    names: int = 0,
    factor: str | None = None,
    explain: bool = False,
    find: Sequence[str] = (),
    rows: str | None = None,
    missing: Missing | None = None,
    force: bool = False,
    reporter: Reporter = SILENT,
) -> tuple[Path, View]:
    """Write the map of a run to a page or a picture, by the ending of the file.

    Arguments:
        run: its folder.
        output: the file; by default a page that has the name of the run.
        show: columns to include.
        label: column to colour by; by default the label of the run.
        anonymous: leave out ids and the order of the rows.
        thumbnails: include the images that the rows are.
        data: file that holds the columns or images.
        names: number of nodes to name in a picture of a graph, those with the most edges.
        factor: which factor of a product to show; the first hyperbolic one by default.
        explain: let two clicks show which columns change between two rows.
        find: ids of rows that are on the map whatever sample of the rows it shows.
        rows: file of new rows to mark on the map, with the columns of the data that the run was trained on.
        missing: what to do with new rows that lack values; as the run did by default.
        force: overwrite the file.
        reporter: receives messages.
    """
    new_name = rows and Path(rows).name.split(".")[0]
    name = "-".join(filter(None, (run.resolve().name, "map", factor, new_name)))
    target = output_file(output, Path(f"{name}.html"), force, _WRITERS)
    description = read_description(run)
    page = target.suffix.lower() == ".html"
    if find and anonymous:
        raise CurvaeError("anonymous=True leaves out ids; give find=… or anonymous=True, not both")
    for given, reason in (
        (explain, "explain=True is for pages, on which rows can be clicked; leave it out, or write an .html file"),
        (show, "show=… is for pages; a picture has the colours of one column, given with label=…"),
        (find, "find=… is for pages, which show ids; leave it out, or write an .html file"),
    ):
        if given and not page:
            raise CurvaeError(reason)
    for refused, reason in (
        (page, "names=… is for pictures, a page has names by itself; choose a picture with output=…, or leave it out"),
        (
            not run_of(description).has_edges,
            f"{run} is no run of curvae graph: no row has more edges; leave out names=…",
        ),
        (anonymous, "anonymous=True leaves out names; give names=… or anonymous=True, not both"),
    ):
        if names and refused:
            raise CurvaeError(reason)
    new: list[pd.DataFrame] = []
    if rows is not None:
        if run_of(description).has_edges:
            raise CurvaeError(f"{run} holds a model of a graph, whose map shows its nodes; leave out rows=…")
        tables, total, _ = embed_rows(run, open_run(run), rows, missing=missing, reporter=reporter)
        if total > NEW_ROWS:
            raise CurvaeError(f"{rows} has {total:,} rows, and a map marks at most {NEW_ROWS:,}; give fewer")
        new = list(tables)
    view = _view(
        run,
        description,
        reporter,
        show=show,
        label=label,
        anonymous=anonymous,
        thumbnails=thumbnails,
        data=data,
        factor=factor,
        explain=explain,
        find=find,
        rows=rows,
        new=new,
    )
    if page:
        reporter.say(f"inside the page: {'; '.join(view.inside)}")
    write_bytes(target, _WRITERS[target.suffix.lower()](view, names))
    return target, view


def _view(
    run: Path,
    description: Mapping[str, Any],
    reporter: Reporter,
    *,
    show: Sequence[str],
    label: str | None,
    anonymous: bool,
    thumbnails: bool,
    data: str | None,
    factor: str | None,
    explain: bool,
    find: Sequence[str],
    rows: str | None,
    new: Sequence[pd.DataFrame],
) -> View:
    """Collect what a page or a picture shows; `new` are tables of the new `rows`, and all else is as of `view_run`."""
    table, whole, total = open_thinned(run, description, LARGEST, find, new)
    own = len(table) - sum(map(len, new))  # rows of the run that are shown
    if total > own and (thumbnails or explain):
        option = "thumbnails" if thumbnails else "explain"
        raise CurvaeError(f"{run} has {total:,} rows, of which a map shows a sample; leave out {option}=True")
    embedding, projection = _project_factor(description, whole, factor)
    facts = description.get("data", {})
    schema = None if facts.get("schema") is None else Schema.from_json(facts["schema"])
    matched = _matched(data, rows, table, own, schema)
    columns = _columns(table, matched, str(facts.get("label") or "label"), label, show, anonymous, data)
    images = _images(run, data, rows, description, schema) if thumbnails else None
    edges = None if total > own else run_of(description).edges(run, own)
    size = count(total, "node" if run_of(description).has_edges else "row")
    if edges is not None:
        size += f", {count(edges.shape[1], 'edge')}"
    about = [f"{size}, {space_text(whole)}"]
    columns = columns or _steps(description, table["id"].to_numpy(np.str_), edges, anonymous)
    if edges is not None and edges.shape[1] > _MOST_EDGES:
        edges = edges_drawn(edges.T, _MOST_EDGES).T
        about.append(f"{_MOST_EDGES:,} of the edges are drawn, chosen at random")
    if new:
        about.append(f"Marked: {count(len(table) - own, 'new row')} of {Path(str(rows)).name}")
    if total > own:
        sample = f"a sample by density is shown: {own:,} of {total:,} rows"
        reporter.say(f"{sample}; to have a row in it for sure, give find=…")
        about.append(f"{pages.capital(sample)}, all of them where there are few and fewer where there are many")
    if find:
        about.append(f"Found among all rows: {', '.join(find)}")
    if len(whole.placed) > 1:
        name = embedding.placed[0].name
        about.append(f"This is the factor {name}, and distances are those along it")
        others = (f'factor="{factor.name}"' for factor in whole.placed if factor.name != name)
        reporter.say(f"the map shows the factor {name} of the product; for another give {' or '.join(others)}")
    if description.get("root") is not None and not anonymous:
        about.append(f"{description['root']} is at the centre")
    if embedding.dim > 2:
        about.append(pages.capital(projection.sentence))
    return pages.map_view(
        embedding,
        projection,
        columns=columns,
        ids=table["id"].to_numpy(),
        images=images,
        expected=_expected(run, whole, total) if explain else {},
        new=np.arange(len(table)) >= own if new else None,
        edges=edges,
        anonymous=anonymous,
        title=str(description.get("source", {}).get("name", run.resolve().name)),
        about=about,
    )


def _project_factor(
    description: Mapping[str, Any], embedding: Embedding, asked: str | None
) -> tuple[Embedding, Projection]:
    """The factor that is shown, as reports draw it: the one asked for, or the first that the viewer moves as a disc."""
    parts = {part.placed[0].name: part for part in embedding.parts}
    name = asked or next((name for name, part in parts.items() if part.chart.motion == "disc"), next(iter(parts)))
    if name not in parts:
        raise CurvaeError(f"the space of the run has no factor {name!r}; it has {quoted(parts)}")
    shown, frames = parts[name], stored_frames(description, embedding)
    frame = None if frames is None else frames[list(parts).index(name)]
    return shown, shown.chart.project(shown.points, frame)


# --- columns ----------------------------------------------------------------------------------------------------------


def _columns(
    table: pd.DataFrame,
    matched: Mapping[str, Any],
    name: str,
    label: str | None,
    show: Sequence[str],
    anonymous: bool,
    data: str | None,
) -> dict[str, Any]:
    """Those to colour by: the label, called `name`, first, then those asked for; `matched` are those of the data."""
    stored: dict[str, Any] = {column: table[column] for column in (*_OWN, *deviations(table)) if column in table}
    if (table["label"] != "").any():
        labels = table["label"].where(table["label"] != "", None)
        numbers = pd.to_numeric(labels, errors="coerce")
        stored[name] = stored["label"] = numbers if bool((numbers.notna() == labels.notna()).all()) else labels
    known = {**matched, **{column: values for column, values in stored.items() if column not in matched}}
    asked = [name for name in (label or (name if name in stored else None), *show) if name is not None]
    if "spread" in table and "spread" not in asked:
        asked.append("spread")
    for column in asked:
        if column not in known:
            where = "give the table it is in with data=…" if data is None else f"there are {quoted(known)}"
            raise CurvaeError(f"there is no column {column!r} to show; {where}")
        if anonymous and np.array_equal(texts_of(known[column], strip=True), table["id"].str.strip()):
            raise CurvaeError(f"column {column!r} holds the ids, which anonymous=True leaves out; show another")
    return {column: known[column] for column in asked}


def _steps(
    description: Mapping[str, Any], names: NDArray[np.str_], edges: NDArray[np.int64] | None, anonymous: bool
) -> dict[str, Any]:
    """Steps along edges from the most central node, by which nodes without labels are coloured, as in the report."""
    centre = description["summary"].get("graph_centre")
    if edges is None or centre not in names:
        return {}
    steps = steps_from(Graph(names, edges.T, directed=True), int(np.flatnonzero(names == centre)[0]))
    shown = "the most central node" if anonymous else centre
    return {f"steps from {shown}": np.where(np.isfinite(steps), steps, np.nan)}


def _matched(
    data: str | None, rows: str | None, table: pd.DataFrame, own: int, schema: Schema | None
) -> dict[str, Any]:
    """Columns of the table given as data, its rows in the order of the run's; of new rows, columns of their table."""
    if data is None or (schema is not None and schema.kind == "images"):
        return {}
    found = _table_columns(Path(data), table["id"][:own], schema)
    if rows is None:
        return found
    new, unknown = _table_columns(Path(rows), table["id"][own:], schema), [None] * (len(table) - own)
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


def _expected(run: Path, whole: Embedding, rows: int) -> dict[str, Any]:
    """What the model expects at every point, of the columns that differ most; `rows` is the number of the run's."""
    loaded = _open_table(run, _NO_COLUMNS)
    if rows > _MOST_EXPLAINED:
        raise CurvaeError(
            f"{run} has {rows:,} rows, and changes between rows are shown of up to {_MOST_EXPLAINED:,}; leave out "
            "explain=True"
        )
    found = expected_rows(loaded.fitted, whole, context=average_context(loaded.data.covariates))
    return {
        str(loaded.data.names[feature]): (found.mean[:, i], found.deviation[:, i], float(found.unit[i]))
        for i, feature in enumerate(found.features)
    }


def _images(
    run: Path, data: str | None, rows: str | None, description: Mapping[str, Any], schema: Schema | None
) -> NDArray[Any]:
    """The images that the run was trained on, and those of new rows."""
    name = str(description.get("source", {}).get("name"))
    if schema is None or schema.kind != "images":
        raise CurvaeError(f"{run} was not trained on images, so there are no thumbnails; leave out thumbnails=True")
    if data is None and name not in BUILT_IN:
        raise CurvaeError(
            f"the images are not in the run; give them with data=…, as in data={json.dumps(name, ensure_ascii=False)}"
        )
    missing = description["source"].get("missing", "error")
    own, _ = load(data or name, schema=schema, missing=missing)
    if own.fingerprint != description["data"]["fingerprint"]:
        raise CurvaeError(f"{data or name} holds not the images that the run was trained on; give those")
    images = [own.x] if rows is None else [own.x, load(rows, schema=schema, missing=missing)[0].x]
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
    loaded = _open_table(run, _NO_COLUMNS, device)
    embedding = loaded.embedding  # of data on disk, that of a sample
    table = pd.DataFrame({"id": np.arange(len(embedding)).astype(str), "label": ""})
    if embedding_path(run).exists():
        table, shown, _ = open_thinned(run, loaded.description, LARGEST, ())
        embedding = embedding if len(embedding) == len(shown) else shown
    ids, labels = table["id"].to_numpy(), table["label"].to_numpy()
    start = str(loaded.description["root"]) if start is None and loaded.description.get("root") is not None else start
    ends = sorted(set(labels) - {""}) if end is None else [end]
    if not ends:
        raise CurvaeError(f'the rows of {run} have no labels; say which one with end=…, such as end="{ids[-1]}"')
    first = None if start is None else _named_rows(run, ids, labels, start, "start")
    last = {name: _named_rows(run, ids, labels, name, "end") for name in ends}
    how: dict[str, Any] = {"columns": count, "context": average_context(loaded.data.covariates), "seed": seed}
    found = {name: explain(loaded.fitted, embedding, end, first, **how) for name, end in last.items()}
    names = loaded.data.names
    if target is not None:
        values = [
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
        write_table(target, pd.concat(values, ignore_index=True))
    return Explained("the mean of all rows" if start is None else start, found, names, target)


def _named_rows(run: Path, ids: NDArray[Any], labels: NDArray[Any], name: str, parameter: str) -> NDArray[np.intp]:
    """The row of this id, or else those of this label."""
    for names in (ids, labels):
        if (rows := np.flatnonzero(names == name)).size:
            return rows
    known = sorted(set(labels) - {""})
    near = get_close_matches(name, [*known, *map(str, ids)], 1)
    such = f"labels are such as {quoted(known[:3])}, " if known else ""
    hint = f"did you mean {near[0]!r}?" if near else f"{such}ids are such as {quoted(ids[:3])}"
    raise CurvaeError(f"{run} has no row and no label {name!r} for {parameter}=…; {hint}")


# `curvae export`: the networks of a run for programs that do not have Curvae.

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
        raise CurvaeError("choose what to write with onnx=True, torch=True or both")
    if onnx:
        require_onnx()
    loaded = _open_table(run, "whose encoder reads the whole graph")
    parts, interface = portable_rows(run, loaded)
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
    cache: str | None = None,
    reporter: Reporter = SILENT,
) -> tuple[Path, Step]:
    """Embed data with a trained run; returns the file, whose columns are those of `embedding.csv`, and what to do next.

    It is a CSV file, or a Parquet file if that is asked for or there are a million rows. `nodes` is a table of nodes
    and `features_file` has their features, where the run is one of a graph. Rows that would take more than so much
    `memory` stay on disk, where a copy of them is kept in the folder `cache`.
    """
    loaded = open_run(run, device)
    data = {"nodes": nodes, "features_file": features_file, "memory": memory, "cache": cache}
    embed = _EMBED[loaded.fitted.kind]
    tables, rows, following = embed(run, loaded, path, missing=missing, reporter=reporter, **data)
    name = f"{Path(path).name.split('.')[0]}-embedding{table_ending(rows)}"
    target = output_file(output, Path(name), force, (".csv", ".parquet"))
    write_tables(target, tables)
    return target, following


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
    """Fill the gaps of data with what a trained run expects there.

    It takes `samples` importance samples a row; see `embed_run` for `memory` and `cache`. Returns the file, the number
    of values that were filled in and of rows that lacked some, and what to do next.
    """
    loaded = _open_table(run, "which fills no gaps", device)
    how: dict[str, Any] = {"samples": samples, "seed": seed, "force": force, "reporter": reporter}
    how |= {"memory": memory, "cache": cache}
    return impute_rows(run, loaded, path, output, **how)


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
    """Draw new rows, or graphs, from a trained run; returns the files and what to do next.

    `covariates` has a value for each covariate of the model.
    """
    if count < 1:
        raise CurvaeError(f"the number of samples must be at least 1, got {count}")
    loaded = open_run(run, device)
    draw = _DRAW[loaded.fitted.kind]
    return draw(run, loaded, count, output, covariates=covariates, seed=seed, force=force)


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
    reporter: Reporter = SILENT,
) -> dict[str, Any]:
    """How well a trained run describes data, for each part of the data that the run knows apart.

    Of rows the marginal log-likelihood, with so many importance samples; of a graph, how well its edges are told from
    other pairs. `output` is a file for the log-likelihood of every row and its rank among the rows of `training`, the
    data that the run was trained on; by default the file of that name beside the data or in the working directory.
    """
    if output is not None:
        output_file(output, Path("scores.csv"), force, (".csv", ".parquet"))
    loaded = open_run(run, device)
    how: dict[str, Any] = {"seed": seed, "missing": missing, "output": output, "training": training}
    return _SCORE[loaded.fitted.kind](run, loaded, path, samples=samples, reporter=reporter, **how)
