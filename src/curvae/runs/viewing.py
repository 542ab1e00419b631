"""The map of a run, read from its files: `curvae view` shows it, and `explain` says what changes across it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ..data import Graph, Schema, load
from ..data.dataset import Missing
from ..data.files import (
    EXACT,
    UNNAMED,
    Messages,
    count,
    one_line,
    opened_parquet,
    parquet_batches,
    quoted,
    require_file,
    texts_of,
    unguard,
)
from ..data.graph_data import steps_from
from ..data.loading import BUILT_IN
from ..data.tables import average_context, read_frame
from ..errors import CurvaeError
from ..hierarchy import NamedTree, explain, read_tree
from ..hierarchy.lineages import expected_rows
from ..maps.charts import Frame
from ..maps.embedding import Embedding, PlacedFactor, orient
from ..plotting.pictures import edges_drawn
from ..settings.factors import NAME
from ..training import FittedGraph
from ..training.storage import (
    MODEL,
    Loaded,
    coordinate_columns,
    embedding_path,
    fitted_class,
    load_fitted,
    read_description,
    read_embedding,
    read_tensors,
    unfinished_error,
    write_bytes,
    write_tables,
)
from ..viewer import View
from . import pages
from .run import SILENT, Reporter, output_file
from .trained import NEW_ROWS, open_for, place_data, stored_frames

__all__ = [
    "Shown",
    "explain_run",
    "open_map",
    "open_places",
    "open_thinned",
    "read_thinned",
    "table_pieces",
    "view_run",
]

# Some rows of the table of a map that has more than a page can hold: fewer where points are dense.

_ROWS = 1 << 17  # read at once
_RINGS = 200  # around the centre of the map
_CELLS = 1 << 22  # counted; cells beyond that share a count
_FAR = 30.0  # radius from which on cells are no smaller
_DRAWN = re.compile(rf"(?:{NAME}_)?map_\d+")


class RefusedRowsError(CurvaeError):
    """Rows were asked for that a map does not have."""


def read_thinned(path: Path, most: int, c: float, wanted: Collection[str] = ()) -> tuple[pd.DataFrame, int]:
    """Read the rows of `embedding.csv` or `.parquet` in their order, and count them: all, or where they are more than
    `most` a sample by density and those that are wanted.

    The map is cut into cells of equal area. A cell with few rows keeps all of them, and all others keep the same number
    on average, which is chosen so that the sample has `most` rows or hardly less.

    Arguments:
        path: the table.
        most: rows to return.
        c: minus the curvature of the first factor, by whose places the sample is drawn.
        wanted: ids of rows to be among them; raises for those that no row has.
    """
    table: pd.DataFrame | None = None
    if path.suffix == ".parquet":
        with opened_parquet(path) as file:
            rows = int(file.metadata.num_rows)
    else:
        table = read_embedding(path)
        rows = len(table)
    if rows > most:
        table = _sample_by_density(path, most, c, wanted)
    elif table is None:
        table = read_embedding(path)
    known = set(table["id"]) if wanted else set()
    if lacking := [name for name in wanted if name not in known]:
        raise RefusedRowsError(
            f"no row of the run has the id {quoted(lacking)}; check it with the embedding of the run"
        )
    return table, rows


def _sample_by_density(path: Path, most: int, c: float, wanted: Collection[str]) -> pd.DataFrame:
    """Sample at most so many rows, fewer where points are dense, with all that are wanted."""
    names = list(map(str, next(table_pieces(path)).columns))
    # The columns with places in the picture, or else the first two tangent coordinates.
    drawn = ([n for n in names if _DRAWN.fullmatch(n)] or [n for n in names if n.startswith("tangent_")])[:2]
    reach = max(float(_radius(piece, c).max()) for piece in table_pieces(path, drawn))
    counts = np.zeros(_CELLS, np.int64)
    for piece in table_pieces(path, drawn):
        counts += np.bincount(_cells(piece, c, reach), minlength=_CELLS)
    keep = np.minimum(1.0, _level(counts, 0.99 * most - len(wanted)) / np.maximum(counts, 1))
    parts = []
    for place, piece in enumerate(table_pieces(path)):
        chance = np.random.default_rng([17, place]).random(len(piece))
        kept = (chance < keep[_cells(piece[drawn], c, reach)]) | piece["id"].isin(list(wanted)).to_numpy()
        parts.append(piece[kept])
    table = pd.concat(parts, ignore_index=True)
    if len(table) > most:  # by chance
        others = np.flatnonzero(~table["id"].isin(list(wanted)).to_numpy())
        left_out = np.random.default_rng(17).choice(others, len(table) - most, replace=False)
        table = table.drop(left_out).reset_index(drop=True)
    return table


def table_pieces(path: Path, columns: list[str] | None = None) -> Iterator[pd.DataFrame]:
    """Yield some columns of the table of a map, by default all, a piece at a time; a text table in one."""
    if path.suffix != ".parquet":
        table = read_embedding(path)
        yield table if columns is None else table[columns]
        return
    with opened_parquet(path) as file:
        for batch in parquet_batches(file, _ROWS, columns):
            piece = batch.to_pandas()
            yield piece.astype({name: str for name in ("id", "label") if name in piece})


def _radius(places: pd.DataFrame, c: float) -> NDArray[np.float64]:
    """Compute the distance from the centre of the map, in units of the curvature."""
    length = np.linalg.norm(places.to_numpy(np.float64), axis=1)
    if not c or str(places.columns[0]).startswith("tangent_"):
        return length * (np.sqrt(c) or 1.0)
    return 2 * np.arctanh(np.minimum(np.sqrt(c) * length, 1 - 1e-15))


def _cells(places: pd.DataFrame, c: float, reach: float) -> NDArray[np.int64]:
    """Return the cell in which every row lies: rings around the centre, in sectors about as long as they are wide."""
    values = places.to_numpy(np.float64)
    radius = _radius(places, c)
    turn = np.arctan2(values[:, -1], values[:, 0]) / (2 * np.pi) % 1.0
    width = (reach or 1.0) / _RINGS
    ring = np.floor(radius / width)
    middle = np.minimum((ring + 0.5) * width, _FAR)
    around = 2 * np.pi * (np.sinh(middle) if c else middle)
    sector = np.floor(turn * np.ceil(around / width))
    # Mixed by a large odd number, of which the upper bits are spread evenly.
    mixed = (ring.astype(np.uint64) << np.uint64(44)) ^ sector.astype(np.uint64)
    return ((mixed * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(42)).astype(np.int64)


def _level(counts: NDArray[np.int64], total: float) -> float:
    """Return the number that cells keep so that Σ min(count, number) is the total.

    Example:
        >>> _level(np.array([1, 5, 10]), 9)
        4.0
    """
    ordered = np.sort(counts[counts > 0]).astype(np.float64)
    before = np.concatenate([[0.0], np.cumsum(ordered)[:-1]])
    levels = (total - before) / np.arange(len(ordered), 0, -1)  # if all cells from here on are cut
    fits = np.flatnonzero(levels <= ordered)
    return float(levels[fits[0]]) if len(fits) else float(ordered[-1])


_SIGMA = re.compile(rf"({NAME}_)?sigma")


def open_map(
    run: Path, description: Mapping[str, Any], read: Callable[[Path], pd.DataFrame] = read_embedding
) -> tuple[pd.DataFrame, Embedding]:
    """Open the table of the rows in `embedding.csv`, and where they lie.

    Arguments:
        run: folder.
        description: its `config.json`.
        read: reads rows of the table, all by default.
    """
    path = embedding_path(run)
    if description.get("kind") == "comparison":
        raise CurvaeError(f"{run} holds a comparison, which keeps no map; train one with curvae fit and give that")
    if not path.exists() or "summary" not in description:
        raise unfinished_error(run, description, fitted_class(description).kind)
    try:
        table = read(path)
        return table, _placed(table, description)
    except RefusedRowsError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise CurvaeError(f"{path} is not as curvae fit wrote it ({one_line(error)}); train again") from error


def open_places(
    run: Path, description: Mapping[str, Any], ids: Collection[str] | NDArray[np.int64]
) -> tuple[pd.DataFrame, Embedding]:
    """Open the rows with these ids, or with these numbers, without all others in memory."""
    numbers = isinstance(ids, np.ndarray) and ids.dtype.kind == "i"
    wanted = pd.Index(ids)

    def read(path: Path) -> pd.DataFrame:
        parts, start = [], 0
        for piece in table_pieces(path):
            own = pd.RangeIndex(start, start + len(piece)) if numbers else pd.Index(piece["id"])
            parts.append(piece[own.isin(wanted)])
            start += len(piece)
        if not any(map(len, parts)):
            raise RefusedRowsError(
                f"no row of the data is in {run}: rows are called {quoted(wanted[:3])}; name them as in the run"
            )
        return pd.concat(parts, ignore_index=True)

    return open_map(run, description, read)


def open_thinned(
    run: Path, description: Mapping[str, Any], most: int, wanted: Collection[str], new: Sequence[pd.DataFrame] = ()
) -> tuple[pd.DataFrame, Embedding, int]:
    """Open at most so many rows, those with the wanted ids among them, and count all.

    Tables of `new` rows are put below those of the run, and do not count.
    """
    rows = 0

    def read(path: Path) -> pd.DataFrame:
        nonlocal rows
        table, rows = read_thinned(path, most, float(np.atleast_1d(description["summary"]["c"])[0]), wanted)
        return pd.concat([table, *new], ignore_index=True) if new else table

    return *open_map(run, description, read), rows


def deviations(table: pd.DataFrame) -> list[str]:
    """Return the names of the columns with standard deviations: `sigma`, or of a product `h1_sigma`, `e2_sigma`."""
    return [name for name in map(str, table) if _SIGMA.fullmatch(name)]


def _placed(table: pd.DataFrame, description: Mapping[str, Any]) -> Embedding:
    """Place points by their tangent coordinates, which tell those far out apart, in the factors of the run."""
    sigma = deviations(table)
    if lacking := {"id", "label", "split", "radius"} - set(table) | (set() if sigma else {"sigma"}):
        raise ValueError(f"it lacks {', '.join(sorted(lacking))}")
    fitted, summary = fitted_class(description), description["summary"]
    curvatures, scales = np.atleast_1d(summary["c"]), np.atleast_1d(summary["prior_scale"])
    written = fitted.settings.from_json(description["config"]).factors
    factors = tuple(
        PlacedFactor(f"{one.kind}{place}", one.dim, float(c), float(scale) if fitted.units else 1.0)
        for place, (one, c, scale) in enumerate(zip(written, curvatures, scales, strict=True), 1)
    )
    tangent = table.filter(regex=r"^tangent_\d+$").to_numpy(np.float64)
    if tangent.shape[1] != sum(factor.dim for factor in factors) or not tangent.size or not np.isfinite(tangent).all():
        raise ValueError("it has no coordinates")
    sigmas = table[sigma].to_numpy(np.float64, copy=True)  # not that of the table, which cannot be written to
    embedding = Embedding.from_tangent(tangent, sigmas if len(factors) > 1 else sigmas[:, 0], factors)
    if (own := coordinate_columns(embedding)).keys() - set(table):
        raise ValueError("it has other factors than the run")
    if not all(np.allclose(table[name], values) for name, values in own.items()):
        raise ValueError("its coordinates contradict one another")
    popularity = table.filter(regex="^popularity(_out|_in)?$").to_numpy(np.float64)
    if not popularity.size:
        return embedding
    side = table["side"].to_numpy(np.float64) if "side" in table else None
    return replace(embedding, popularity=popularity.squeeze(1) if popularity.shape[1] == 1 else popularity, side=side)


# `curvae view`: the map of a run as a page or a picture.

LARGEST = 1_000_000  # points of a map at most; of more rows, it shows a sample

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
class Shown:
    """What a page or a picture shows of the map of a run.

    Arguments:
        show: columns to include.
        label: column to colour by; by default the label of the run.
        anonymous: leave out ids and the order of the rows.
        thumbnails: include the images that the rows are.
        data: file that holds the columns or images.
        names: number of nodes to name in a picture of a graph, those with the most edges.
        factor: which factor of a product to show; by default the first that is shown as a disc.
        explain: let two clicks show which columns change between two rows.
        find: ids of rows that are on the map whatever sample of the rows it shows.
        rows: file of new rows to mark on the map, with the columns of the data that the run was trained on.
        missing: what to do with new rows that lack values; as the run did by default.
        lineage: folder of `curvae lineage`, whose tree is drawn with its root at the centre.
    """

    show: Sequence[str] = ()
    label: str | None = None
    anonymous: bool = False
    thumbnails: bool = False
    data: str | None = None
    names: int = 0
    factor: str | None = None
    explain: bool = False
    find: Sequence[str] = ()
    rows: str | None = None
    missing: Missing | None = None
    lineage: Path | None = None

    def check(self, run: Path, graph: bool, page: bool) -> None:
        """Raise for what a map of a `graph` or of rows, on a `page` or in a picture, cannot show."""
        picture, names = not page, self.names > 0
        for refused, reason in (
            (
                self.find and self.anonymous,
                "`anonymous=True` leaves out ids; give `find=…` or `anonymous=True`, not both",
            ),
            (
                picture and self.explain,
                "`explain=True` is for pages, on which rows can be clicked; leave it out, or write an .html file",
            ),
            (
                picture and self.show,
                "`show=…` is for pages; a picture has the colours of one column, given with `label=…`",
            ),
            (picture and self.find, "`find=…` is for pages, which show ids; leave it out, or write an .html file"),
            (
                names and page,
                "`names=…` is for pictures, a page has names by itself; choose one with `output=…`, or leave it out",
            ),
            (names and not graph, f"{run} is no run of curvae graph: no row has more edges; leave out `names=…`"),
            (
                names and self.anonymous,
                "`anonymous=True` leaves out names; give `names=…` or `anonymous=True`, not both",
            ),
            (
                graph and self.rows is not None,
                f"{run} holds a model of a graph, whose map shows its nodes; leave out `rows=…`",
            ),
            (
                graph and self.lineage is not None,
                f"{run} holds a model of a graph, which has no lineages; leave out `lineage=…`",
            ),
        ):
            if refused:
                raise CurvaeError(reason)


def view_run(
    run: Path, output: Path | None = None, *, force: bool = False, reporter: Reporter = SILENT, **what: Any
) -> tuple[Path, View]:
    """Write the map of a run to a page or a picture, by the ending of the file.

    Arguments:
        run: its folder.
        output: the file; by default a page that has the name of the run.
        force: overwrite the file.
        reporter: receives messages.
        what: it shows; see `Shown`.
    """
    shown, new = Shown(**what), []
    tree = "lineage" if shown.lineage else None
    parts = run.resolve().name, "map", shown.factor, tree, shown.rows and Path(shown.rows).name.split(".")[0]
    target = output_file(output, Path(f"{'-'.join(filter(None, parts))}.html"), force, _WRITERS)
    description, page = read_description(run), target.suffix.lower() == ".html"
    shown.check(run, fitted_class(description) is FittedGraph, page)
    if shown.rows is not None:
        tables, total = place_data(run, load_fitted(run), shown.rows, shown.missing, reporter)
        if total > NEW_ROWS:
            raise CurvaeError(f"{shown.rows} has {total:,} rows, and a map marks at most {NEW_ROWS:,}; give fewer")
        new = list(tables)
    view = _view(run, description, shown, new, reporter)
    if page:
        reporter.say(f"inside the page: {'; '.join(view.inside)}")
    write_bytes(target, _WRITERS[target.suffix.lower()](view, shown.names))
    return target, view


def _view(
    run: Path, description: Mapping[str, Any], shown: Shown, new: Sequence[pd.DataFrame], reporter: Reporter
) -> View:
    """Collect what a page or a picture shows; `new` are tables of the new rows."""
    table, whole, total = open_thinned(run, description, LARGEST, shown.find, new)
    own = len(table) - sum(map(len, new))  # rows of the run that are shown
    graph = fitted_class(description) is FittedGraph
    if total > own and (shown.thumbnails or shown.explain):
        option = "thumbnails" if shown.thumbnails else "explain"
        raise CurvaeError(f"{run} has {total:,} rows, of which a map shows a sample; leave out `{option}=True`")
    facts = description.get("data", {})
    label = str(facts.get("label") or "label")
    schema = None if facts.get("schema") is None else Schema.from_json(facts["schema"])
    matched = _matched(shown, table, own, schema)
    frames, tree, root = stored_frames(description, whole), None, description.get("root")
    if shown.lineage is not None:
        tree, nodes, told = _read_lineage(run, shown, table["id"][:own], whole, label)
        frames, root = frames_from_root(whole, nodes), str(tree.names[0])
        matched = {**matched, **told}
        shown = replace(shown, show=(*shown.show, *list(told)[:2]))
    factors = [factor.name for factor in whole.placed]
    place = _shown_factor(whole, shown.factor)
    embedding = whole.parts[place]
    chart, frame = embedding.chart, None if frames is None else frames[place]
    projection, hierarchy = chart.project(embedding.points, frame), None
    if tree is not None and frame is not None:
        at = chart.page.to_lorentz(chart.place(frame, nodes.parts[place].points))
        hierarchy = at, list(zip(tree.parent[1:].tolist(), range(1, len(tree)), strict=True))
    columns = _columns(table, matched, label, shown)
    images = _images(run, shown, description, schema) if shown.thumbnails else None
    edges = _read_edges(run, own) if graph and total == own else None
    columns = columns or _steps(description, table["id"].to_numpy(np.str_), edges, shown.anonymous)
    name, root = factors[place], None if shown.anonymous else root
    sample = f"a sample by density is shown: {own:,} of {total:,} rows"
    if total > own:
        reporter.say(f"{sample}; to have a row in it for sure, give `find=…`")
    if len(factors) > 1:
        others = " or ".join(f'`factor="{other}"`' for other in factors if other != name)
        reporter.say(f"the map shows the factor {name} of the product; for another give {others}")
    joined = "" if edges is None else f", {count(edges.shape[1], 'edge')}"
    thinned = edges is not None and edges.shape[1] > _MOST_EDGES
    about = [
        f"{count(total, 'node' if graph else 'row')}{joined}, {pages.space_text(whole)}",
        f"{_MOST_EDGES:,} of the edges are drawn, chosen at random" if thinned else "",
        f"Marked: {count(len(table) - own, 'new row')} of {Path(str(shown.rows)).name}" if new else "",
        f"{pages.capital(sample)}, all of them where there are few and fewer where there are many"
        if total > own
        else "",
        f"Found among all rows: {', '.join(shown.find)}" if shown.find else "",
        f"This is the factor {name}, and distances are those along it" if len(factors) > 1 else "",
        f"{root} is at the centre" if root is not None else "",
        pages.capital(projection.sentence) if embedding.dim > 2 else "",
    ]
    return pages.map_view(
        embedding,
        projection,
        columns=columns,
        ids=table["id"].to_numpy(),
        images=images,
        expected=_expected(run, whole, total) if shown.explain else {},
        new=np.arange(len(table)) >= own if new else None,
        edges=None if edges is None else edges_drawn(edges.T, _MOST_EDGES).T,
        hierarchy=hierarchy,
        anonymous=shown.anonymous,
        title=str(description.get("source", {}).get("name", run.resolve().name)),
        about=[text for text in about if text],
    )


def _read_edges(run: Path, nodes: int) -> NDArray[np.int64]:
    """Read the edges of the graph that a run was trained on, (2, E)."""
    edges = read_tensors(run / MODEL)[0].get("edges")
    whole = edges is not None and edges.dim() == 2 and edges.shape[0] == 2 and edges.dtype == torch.int64
    if edges is None or not whole or (edges.numel() and not 0 <= int(edges.min()) <= int(edges.max()) < nodes):
        raise CurvaeError(f"{run / MODEL} holds no edges between the nodes of the run; train again")
    return edges.numpy()


def _shown_factor(embedding: Embedding, asked: str | None) -> int:
    """Return the place of the factor that is shown: the one asked for, or the first that is moved as a disc."""
    motions = {factor.name: factor.chart.motion for factor in embedding.placed}
    name = asked or next((name for name, motion in motions.items() if motion == "disc"), next(iter(motions)))
    if name not in motions:
        raise CurvaeError(f"the space of the run has no factor {name!r}; it has {quoted(motions)}")
    return list(motions).index(name)


def _read_lineage(
    run: Path, shown: Shown, ids: pd.Series[Any], whole: Embedding, label: str
) -> tuple[NamedTree, Embedding, dict[str, Any]]:
    """Read what `curvae lineage` wrote of a run, whose map begins with the rows with these ids.

    Returns:
        The tree, its nodes at the Fréchet means of the groups, and columns, pseudotime and branch first; one that is
        called as the label has another name.
    """
    assert shown.lineage is not None
    file, texts = shown.lineage / "lineage.csv", ("id", "group", "branch")
    require_file(file, "result of curvae lineage")
    table = pd.read_csv(file, dtype=dict.fromkeys(texts, str), keep_default_na=False, **EXACT)
    if lacking := {*texts, "pseudotime"} - set(table):
        raise CurvaeError(f"{file} lacks {quoted(sorted(lacking))}; give the folder that curvae lineage wrote")
    table = table.assign(**{name: table[name].map(unguard) for name in texts}).set_index("id")
    table = table.reindex([*ids, *[None] * (len(whole) - len(ids))])
    tree, places = read_tree(file.with_name("tree.nwk")), list[Any]()
    for name in tree.names.tolist():
        own = np.flatnonzero(table["group"] == name)
        own = own if own.size else np.flatnonzero(ids == name)
        if not own.size:
            raise CurvaeError(f"{run} has no rows of {name!r}, a node of the tree of {file}; give lineages of this run")
        places.append(whole.take(own).centre)
    if shown.anonymous:
        table["branch"] = table["branch"].replace(str(tree.names[0]), "root")
    names = dict.fromkeys(["pseudotime", "branch", *map(str, table)])
    columns = {f"{name} (lineage)" if name == label else name: table[name].to_numpy() for name in names}
    return tree, replace(whole.take(np.zeros(len(tree), np.intp)), space=np.concatenate(places)), columns


def frames_from_root(embedding: Embedding, nodes: Embedding) -> tuple[Frame, ...]:
    """Return the frames in which the first of the nodes of a tree is at the centre of the map of every factor."""
    rows = np.arange(len(embedding))
    return orient(embedding.joined(nodes), rows, np.zeros((len(rows), 2)), len(rows))


# --- columns ----------------------------------------------------------------------------------------------------------


def _columns(table: pd.DataFrame, matched: Mapping[str, Any], name: str, shown: Shown) -> dict[str, Any]:
    """Choose columns to colour by: the label, called `name`, first; `matched` are those of the data."""
    stored: dict[str, Any] = {column: table[column] for column in (*_OWN, *deviations(table)) if column in table}
    if (table["label"] != "").any():
        labels = table["label"].where(table["label"] != "", None)
        numbers = pd.to_numeric(labels, errors="coerce")
        stored[name] = stored["label"] = numbers if bool((numbers.notna() == labels.notna()).all()) else labels
    known = {**matched, **{column: values for column, values in stored.items() if column not in matched}}
    first = shown.label or (name if name in stored else None)
    last = "spread" if "spread" in table else None
    asked = dict.fromkeys(column for column in (first, *shown.show, last) if column is not None)
    for column in asked:
        if column not in known:
            where = "give the table it is in with `data=…`" if shown.data is None else f"there are {quoted(known)}"
            raise CurvaeError(f"there is no column {column!r} to show; {where}")
        if shown.anonymous and np.array_equal(texts_of(known[column], strip=True), table["id"].str.strip()):
            raise CurvaeError(f"column {column!r} holds the ids, which `anonymous=True` leaves out; show another")
    return {column: known[column] for column in asked}


def _steps(
    description: Mapping[str, Any], names: NDArray[np.str_], edges: NDArray[np.int64] | None, anonymous: bool
) -> dict[str, Any]:
    """Count steps from the most central node, by which nodes without labels are coloured, as in the report."""
    centre = description["summary"].get("graph_centre")
    if edges is None or centre not in names:
        return {}
    steps = steps_from(Graph(names, edges.T, directed=True), int(np.flatnonzero(names == centre)[0]))
    shown = "the most central node" if anonymous else centre
    return {f"steps from {shown}": np.where(np.isfinite(steps), steps, np.nan)}


def _matched(shown: Shown, table: pd.DataFrame, own: int, schema: Schema | None) -> dict[str, Any]:
    """Read columns of the table given as data, its rows in the order of the run's; of new rows, of their table."""
    if shown.data is None or (schema is not None and schema.kind == "images"):
        return {}
    found = table_columns(Path(shown.data), table["id"][:own], schema)
    if shown.rows is None:
        return found
    new, unknown = table_columns(Path(shown.rows), table["id"][own:], schema), [None] * (len(table) - own)
    return {name: pd.Series([*values, *new.get(name, unknown)]) for name, values in found.items()}


def table_columns(path: Path, ids: pd.Series[Any], schema: Schema | None) -> dict[str, Any]:
    """Read columns of a table, for the rows with these ids."""
    require_file(path, "table")
    named = {schema.id} if schema is not None and schema.id is not None else set()
    frame = read_frame(path, named, named, Messages())
    if schema is None:  # nodes of a graph, which any column may name
        named = set(frame.columns)
    columns = [name for name in frame.columns if name in named or str(name).startswith(UNNAMED)]
    # Names of nodes have no blanks around them.
    candidates = [texts_of(frame[name], strip) for strip in (False, True) for name in columns]
    for texts in (*candidates, np.arange(len(frame)).astype(np.str_)):
        rows = pd.Index(texts)
        if rows.is_unique and (places := rows.get_indexer(pd.Index(ids))).min() >= 0:
            return {str(name): frame[name].take(places).reset_index(drop=True) for name in frame.columns}
    by = "names of nodes" if schema is None else f"column {schema.id!r}" if schema.id else "the numbers of the rows"
    raise CurvaeError(
        f"{path.name} does not hold all rows of the run, matched by {by}; give the table that the run was trained on"
    )


def _expected(run: Path, whole: Embedding, rows: int) -> dict[str, Any]:
    """Compute what the model expects at every point, of the columns that differ most; the run has so many `rows`."""
    loaded = open_for(run, only_tables="whose nodes have no columns to explain")
    if rows > _MOST_EXPLAINED:
        raise CurvaeError(
            f"{run} has {rows:,} rows, and changes between rows are shown of up to {_MOST_EXPLAINED:,}; leave out "
            "`explain=True`"
        )
    found = expected_rows(loaded.fitted, whole, context=average_context(loaded.data.covariates))
    return {
        str(loaded.data.names[feature]): (found.mean[:, i], found.deviation[:, i], float(found.unit[i]))
        for i, feature in enumerate(found.features)
    }


def _images(run: Path, shown: Shown, description: Mapping[str, Any], schema: Schema | None) -> NDArray[Any]:
    """Read the images that the run was trained on, and those of new rows."""
    name = str(description.get("source", {}).get("name"))
    if schema is None or schema.kind != "images":
        raise CurvaeError(f"{run} was not trained on images, so there are no thumbnails; leave out `thumbnails=True`")
    if shown.data is None and name not in BUILT_IN:
        raise CurvaeError(
            "the images are not in the run; give them with `data=…`, as in "
            f"`data={json.dumps(name, ensure_ascii=False)}`"
        )
    files = [file for file in (shown.data or name, shown.rows) if file is not None]
    own, *new = (load(file, schema=schema, missing=description["source"].get("missing", "error"))[0] for file in files)
    if own.fingerprint != description["data"]["fingerprint"]:
        raise CurvaeError(f"{files[0]} holds not the images that the run was trained on; give those")
    return np.concatenate([own.x, *(one.x for one in new)]).reshape(-1, *schema.shape)


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
) -> tuple[dict[str, Any], list[str]]:
    """Find the columns that change along the geodesic between rows, or labels, of the map of a trained run.

    Arguments:
        run: its folder.
        start: id of a row, or a label; by default the row at the centre of the map, or the Fréchet mean of all rows.
        end: likewise; by default every label in turn.
        count: of columns.
        output: CSV file for the expected values on the way, with their intervals.
        seed: of the draws.
        force: overwrite the file.
        device: where to compute.

    Returns:
        Figures for programs, and lines for people.
    """
    if output is not None:
        output_file(output, Path("path.csv"), force)
    loaded = open_for(run, device, "whose nodes have no columns to explain")
    table, embedding = open_rows(run, loaded)
    ids, labels = table["id"].to_numpy(), table["label"].to_numpy()
    start = str(loaded.description["root"]) if start is None and loaded.description.get("root") is not None else start
    ends = sorted(set(labels) - {""}) if end is None else [end]
    if not ends:
        raise CurvaeError(f'the rows of {run} have no labels; say which one with `end=…`, such as `end="{ids[-1]}"`')
    first = None if start is None else find_rows(run, ids, labels, start, "start")
    last = {name: find_rows(run, ids, labels, name, "end") for name in ends}
    how: dict[str, Any] = {"columns": count, "context": average_context(loaded.data.covariates), "seed": seed}
    found = {name: explain(loaded.fitted, embedding, end, first, **how) for name, end in last.items()}
    names, origin = loaded.data.names, "the mean of all rows" if start is None else start
    lines = pages.driver_lines(origin, found, names)
    if output is not None:
        values = pd.concat({name: one.table(names) for name, one in found.items()}, names=["to"])
        write_tables(output, [values.reset_index("to").reset_index(drop=True)])
        lines.append(f"values: {output}")
    return {"from": origin, "to": {name: one.to_json(names) for name, one in found.items()}}, lines


def open_rows(run: Path, loaded: Loaded) -> tuple[pd.DataFrame, Embedding]:
    """Open the rows of a run, with ids and labels: all of them, or a sample of data on disk."""
    embedding = loaded.embedding
    table = pd.DataFrame({"id": np.arange(len(embedding)).astype(str), "label": ""})
    if embedding_path(run).exists():
        table, shown, _ = open_thinned(run, loaded.description, LARGEST, ())
        embedding = embedding if len(embedding) == len(shown) else shown
    return table, embedding


def find_rows(run: Path, ids: NDArray[Any], labels: NDArray[Any], name: str, parameter: str) -> NDArray[np.intp]:
    """Find the row of this id, or else those of this label."""
    for names in (ids, labels):
        if (rows := np.flatnonzero(names == name)).size:
            return rows
    known = sorted(set(labels) - {""})
    near = get_close_matches(name, [*known, *map(str, ids)], 1)
    such = f"labels are such as {quoted(known[:3])}, " if known else ""
    hint = f"did you mean {near[0]!r}?" if near else f"{such}ids are such as {quoted(ids[:3])}"
    raise CurvaeError(f"{run} has no row and no label {name!r} for `{parameter}=…`; {hint}")
