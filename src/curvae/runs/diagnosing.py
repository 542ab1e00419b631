"""`curvae diagnose` and `judge`: is there a hierarchy in data, and how faithful is a map of any program?"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..data import Dataset, Graph, load
from ..data.dataset import MissingValuesError
from ..data.disk import DiskMatrix
from ..data.files import Messages, count, decimal, is_embedding, listing, quoted, require_file, suggest_path
from ..data.spool import ROW_BYTES
from ..data.tables import LABEL, TABLES, read_frame
from ..errors import CurvaeError, FixableError
from ..hierarchy import (
    Diagnosis,
    Faithfulness,
    Metric,
    diagnose_distances,
    diagnose_graph,
    diagnose_rows,
    recover,
    tree_of_embedding,
)
from ..maps.charts import letter_of
from ..maps.embedding import Embedding, PlacedFactor
from ..maps.faithfulness import FEWEST
from ..report import Section
from ..training.rows import judged_rows
from ..training.storage import CONFIG, locked, read_description, write_text
from . import pages
from .run import SILENT, GraphSource, Reporter, Source, Step, known_tree, output_file, stored_source, write_report
from .viewing import open_map, open_places

__all__ = ["diagnose_data", "diagnose_run", "figures", "is_run", "judge_map"]

_STEPS = 3
_REPORT = Path("report.html")  # whose ending reports have


# Rows in memory, of data on disk a sample.

_LEAST = 1000  # rows of a sample, where there are so many, however little memory there is


class Sample(NamedTuple):
    """Rows in memory.

    Arguments:
        data: all rows, or a sample.
        chosen: numbers of the rows of a sample in ascending order; None if they are all.
        rows: how many there are in all.
    """

    data: Dataset
    chosen: NDArray[np.int64] | None
    rows: int


def load_sample(source: Source, seed: int, reporter: Reporter) -> Sample:
    """Load rows for what needs them in memory: of data on disk as many as fit, chosen at random."""
    data = source.bounded.load(reporter.counter)
    most = len(data)
    if isinstance(data.x, DiskMatrix):
        most = min(most, max(_LEAST, data.x.memory // (ROW_BYTES + 16 * data.x.shape[1])))
    if most == len(data):
        return Sample(data.load(), None, len(data))
    chosen = np.sort(np.random.default_rng([seed, 13]).choice(len(data), most, replace=False, shuffle=False))
    note = f"a sample is looked at: {most:,} of {len(data):,} rows, chosen at random with seed {seed}."
    reporter.say(note)
    some = data.take(chosen).load()
    return Sample(replace(some, notes=(*some.notes, note)), chosen, len(data))


# `curvae diagnose`: is there a hierarchy in data?


def _diagnose_rows(
    source: Source, metric: Metric, distances: bool, seed: int, reporter: Reporter
) -> tuple[Diagnosis, Dataset, Section]:
    """Test rows for a hierarchy, as a model would see them, or a matrix of distances.

    Returns:
        What was found, the data, and what was done to them.
    """
    try:
        data = source.load() if distances else load_sample(source, seed, reporter).data
    except MissingValuesError as error:
        if distances:
            raise CurvaeError(f"{error.found}; fill these distances in, or leave the points out") from error
        raise
    if data.missing:
        raise FixableError(
            "the test needs all values, so gaps cannot be left to a model", [[("missing", "mean"), ("missing", "drop")]]
        )
    reporter.tell((), data.warnings)
    if distances:
        found = diagnose_distances(data.x, seed, _step_counter(reporter))
        return found, data, Section("What was done to the data", [*data.notes, *found.notes])
    rows, note = pages.scaled_table(data, metric)
    found = diagnose_rows(rows, seed, _step_counter(reporter))
    return found, data, pages.data_section(data, [note, *found.notes])


def _diagnose_edges(source: GraphSource, seed: int, reporter: Reporter) -> tuple[Diagnosis, Graph, Section]:
    """Test a graph for a hierarchy as `_diagnose_rows` tests rows; it has distances of its own."""
    graph = source.load()
    reporter.tell((), graph.warnings)
    found = diagnose_graph(graph, seed, _step_counter(reporter))
    size = f"{count(graph.n_nodes, 'node')}, {count(graph.n_edges, 'edge')}."
    return found, graph, Section("What was done to the data", [size, *graph.notes, *found.notes])


def diagnose_data(
    source: Source | GraphSource,
    metric: Metric = "euclidean",
    distances: bool = False,
    *,
    output: Path | None = None,
    force: bool = False,
    seed: int = 0,
    reporter: Reporter = SILENT,
) -> tuple[Diagnosis, Step]:
    """Test data for a hierarchy, and write a report where one is asked for; returns what was found and to do next.

    Arguments:
        source: the data.
        metric: distance between rows.
        distances: whether the data are a matrix of distances.
        output: report to write, if any.
        force: overwrite it.
        seed: of what is drawn at random.
        reporter: receives messages and progress.
    """
    with ExitStack() as held:
        if output is not None:
            output_file(output, _REPORT, force)
            place = next((parent for parent in output.absolute().parents if parent.exists()), Path("/"))
            if output.is_dir() or not place.is_dir() or not os.access(place, os.W_OK):
                raise CurvaeError(
                    f"cannot write {output}: {place.name or place} is no folder to write to; "
                    "choose another with `output=…`"
                )
            held.enter_context(locked(output))
            output_file(output, _REPORT, force)  # another process may have written it since
        found, data, prepared = (
            _diagnose_rows(source, metric, distances, seed, reporter)
            if isinstance(source, Source)
            else _diagnose_edges(source, seed, reporter)
        )
        reporter.progress("diagnosis", _STEPS, _STEPS, "")
        reporter.tell(found.notes, ())
        if output is not None:
            write_report(
                output,
                f"Is there a hierarchy in {source.to_json()['name']}?",
                found.sentence,
                "good" if found.outcome == "tree-like" else "neutral",
                data.warnings,
                [pages.diagnosis_section(found, data.labels), pages.delta_section(found), prepared],
                seed,
                reporter.started,
                words=reporter.words,
            )
    if distances:
        return found, source.step("diagnose", distances=True, output=output or _REPORT, seed=seed + 1)
    if found.outcome == "flat":
        return found, source.step(source.action, curvature=0.0)
    return found, source.step("compare", curvatures=",".join(f"{value:g}" for value in found.suggested))


def _step_counter(reporter: Reporter) -> Callable[[str], None]:
    """Return what takes the name of the next step of a diagnosis, for the progress bar."""
    done = itertools.count()
    return lambda name: reporter.progress("diagnosis", next(done), _STEPS, name)


def is_run(path: str) -> bool:
    """Say whether this is a run folder."""
    return (Path(path) / CONFIG).is_file()


def diagnose_run(
    run: Path, tree: Path | None, newick: Path | None, seed: int, force: bool, reporter: Reporter
) -> tuple[dict[str, Any], list[str], Step]:
    """Compare the map of a run with a known tree, write the tree of the map to a file, or both.

    Arguments:
        run: folder.
        tree: file with the known tree, or the name of the built-in one.
        newick: file to write.
        seed: of what is drawn at random.
        force: whether `newick` may be overwritten.
        reporter: for messages and progress.

    Returns:
        figures for programs, lines for people, and what to do next.
    """
    if tree is None and newick is None:
        raise CurvaeError(f"{run} is a run; compare it with a tree, `tree=…`, or write its tree to a file, `newick=…`")
    result: dict[str, Any] = {}
    lines = []
    table, points = open_map(run, read_description(run))
    ids, labels = (table[name].to_numpy(np.str_) for name in ("id", "label"))
    if tree is not None:
        known, match = known_tree(tree, str(run), ids, labels if (labels != "").any() else None)
        reporter.tell(match.notes, ())
        found = recover(known, match.node[match.rows], points.take(match.rows), seed, _step_counter(reporter))
        reporter.progress("diagnosis", _STEPS, _STEPS, "")
        result = {"match": match.to_json(), **found.to_json()}
        lines = [
            match.sentence,
            f"  distances: rank correlation {decimal(found.distance_correlation, 3)} with the tree, "
            f"{found.pairs:,} pairs",
            f"  distortion: {found.distortion:.3f} on average, {found.worst_distortion:.3g} at worst",
            f"  depth: rank correlation {decimal(found.depth_correlation, 3)} with the radius",
            f"  dendrogram purity {found.purity:.3f}, mean over {count(len(found.purity_by_level), 'level')}, "
            f"{found.joined:,} rows",
            f"  mean average precision {found.mean_average_precision:.3f} of nearest rows, "
            f"{found.queries:,} rows asked",
        ]
    if newick is not None:
        output_file(newick, newick, force, option="newick")
        drawn = tree_of_embedding(points, ids, seed)
        write_text(newick, drawn.newick() + "\n")
        result |= {"newick": str(newick), "leaves": len(ids), "nodes": len(drawn)}
        lines.append(f"newick: {newick}")
    following = Step("diagnose", (str(run),), {"newick": "tree.nwk"}) if newick is None else Step("view", (str(run),))
    return result, lines, following


def figures(found: Diagnosis) -> list[str]:
    """Write lines for people: scores and δ."""
    delta = found.delta
    mean, low, high = map(delta.relative, (delta.mean, *delta.interval))
    seen = "" if delta.exact else f" of {delta.count:,} seen"
    return [
        *(f"  {s.name} {s.value:.3f}, surrogates {s.surrogate:.3f} ({s.meaning})" for s in found.scores),
        f"  relative δ of four points: mean {mean:.4f} ({low:.4f} to {high:.4f})",
        f"  largest {delta.relative(delta.largest):.3f}{seen}",
    ]


# `curvae judge`: how faithful is a map of data, made by whatever program?

_EXACT = 5000  # rows up to which figures are exact
_FLAT = 1e-9  # by how much less than 1 the ratio of ball to metric radius must be in a curved space


class _Map(NamedTuple):
    """A map as it was read: places, names of the rows if it has any, which were held out, and what was done."""

    places: Any
    ids: NDArray[np.str_] | None
    held_out: NDArray[np.bool_] | None
    note: str


def judge_map(
    source: Source,
    embedding: Path,
    distance: Any = None,
    *,
    output: Path | None = None,
    force: bool = False,
    seed: int = 0,
    reporter: Reporter = SILENT,
) -> tuple[Faithfulness, Step]:
    """Measure how faithful a map is, and write a report where one is asked for; returns what was found and to do next.

    Arguments:
        source: the data.
        embedding: a table with a row for each of theirs, a matrix, or a run folder.
        distance: "euclidean" (the default), "poincare" or "lorentz"; a map of Curvae has its own.
        output: report to write, if any.
        force: overwrite it.
        seed: of what is drawn at random.
        reporter: receives messages.
    """
    if output is not None:
        output_file(output, _REPORT, force)
    run = embedding if embedding.is_dir() else embedding.parent
    # Look at the map of a run, or make one to compare with.
    following = Step("view", (str(run),)) if (run / CONFIG).is_file() else source.step(source.action)
    if (embedding / CONFIG).is_file():
        stored = stored_source(read_description(embedding))
        # Read as the run did, where nothing else is asked for.
        if stored.get("name") == Path(source.path).name and not source.options:
            source = replace(source.again(stored), memory=source.memory, cache=source.cache)
    own = load_sample(source, seed, reporter)
    found = _read_map(embedding, source, own)
    if distance is not None and isinstance(found.places, Embedding):
        raise CurvaeError(f"{embedding} is a map of Curvae and has its own distances; leave out `distance=…`")
    data, places, held, note = _matched(own, found, embedding)
    points = places.tangent if isinstance(places, Embedding) else np.asarray(places)
    if (points == points[:1]).all():
        raise CurvaeError(
            f"all rows lie in one point of {embedding.name}, so there are no neighbours to judge; check the map"
        )
    how = {} if distance is None else {"distance": distance}
    judged = pages.judge_rows(data, places, held, seed=seed, rows=_EXACT, **how)
    if judged is None:
        raise CurvaeError(f"{len(data)} rows are too few to judge a map; at least {FEWEST} are needed")
    notes, schema = [found.note, note], data.schema
    if schema is not None and schema.kind == "table" and data.labels is None:  # a column of labels would count as data
        first, last = schema.columns[0].name, schema.columns[-1].name
        notes.insert(
            0, f"All {data.n_columns:,} columns, {first!r} to {last!r}, are data; leave out labels with `label=…`."
        )
    reporter.tell(notes, data.warnings)
    if output is not None:
        write_report(
            output,
            f"How faithful is {embedding.name} to {Path(source.path).name}?",
            judged.verdict,
            "neutral" if judged.behind else "good",
            data.warnings,
            [pages.faithful_section(judged), pages.data_section(data, notes)],
            seed,
            reporter.started,
            words=reporter.words,
        )
    return judged, following


def _read_map(path: Path, source: Source, own: Sample) -> _Map:
    """Read the map of a run, a matrix of coordinates, or a table with such columns."""
    run = path if path.is_dir() else path.parent
    if path.is_dir() or (path.name in ("embedding.csv", "embedding.parquet") and (run / CONFIG).is_file()):
        return _of_run(run, own)
    # Columns of the data that are no coordinates, where a map repeats them.
    roles = {"label", *(name for name in (source.id, source.label, source.group) if name is not None)}
    try:
        require_file(path)
        if any(path.name.lower().endswith(ending) for ending in TABLES):
            frame = read_frame(path, {"id"}, {"id", *roles}, Messages())
            named = is_embedding(list(map(str, frame.columns)))
            return _of_curvae(path, frame) if named else _of_table(path, frame, source.id, roles)
        data, schema = load(path)
    except FixableError as error:  # whose parameters are of the data, not of the map
        raise CurvaeError(f"{path.name}: {error.found}; correct it") from error
    except OSError as error:
        raise CurvaeError(
            f"{path} cannot be read: {error.strerror or error}; {suggest_path(path, 'check the file')}"
        ) from error
    if schema.kind == "images":
        raise CurvaeError(
            f"{path.name} holds {len(data):,} arrays of shape {schema.shape}, not a map; give one of shape "
            "(rows, coordinates)"
        )
    return _Map(data.x if isinstance(data.x, np.ndarray) else data.x.toarray(), None, None, "Coordinates: all.")


def _of_run(run: Path, own: Sample) -> _Map:
    description = read_description(run)
    note = "The map of a run, with its own distances."
    if own.chosen is None:
        table, embedding = open_map(run, description)
    else:
        named = own.data.schema is not None and own.data.schema.id is not None
        table, embedding = open_places(run, description, own.data.ids if named else own.chosen)
        if not named and len(table) == len(own.data):
            table["id"], note = own.data.ids, f"{note} Rows were matched in their order."
    return _Map(embedding, table["id"].to_numpy(np.str_), judged_rows(table["split"].to_numpy(np.str_)), note)


def _of_curvae(path: Path, frame: pd.DataFrame) -> _Map:
    """Read an `embedding.csv` outside its run: its one curvature follows from ball coordinates and radii."""
    ball = frame.filter(regex=r"^ball_\d+$").to_numpy(np.float64)
    if not ball.size:
        raise CurvaeError(
            f"{path.name} is a map in a product of spaces, whose curvatures only its run knows; give the run folder"
        )
    c = _curvature(np.linalg.norm(ball, axis=1), frame["radius"].to_numpy(np.float64))
    factor = PlacedFactor(f"{letter_of(c)}1", ball.shape[1], c)
    tangent = frame.filter(regex=r"^tangent_\d+$").to_numpy(np.float64)
    return _Map(
        Embedding.from_tangent(tangent, np.ones(len(ball)), (factor,)),
        frame["id"].to_numpy(np.str_),
        judged_rows(frame["split"].to_numpy(np.str_)),
        f"A map of Curvae with c = {c:.4g}.",
    )


def _curvature(ball: NDArray[np.float64], radius: NDArray[np.float64]) -> float:
    """Compute c from the norms of points in the ball and their distances from the origin: √c·|z| = tanh(√c·r/2)."""
    far = int(np.argmax(radius))
    ratio = 2 * ball[far] / radius[far] if radius[far] > 0 else 1.0
    if ratio >= 1 - _FLAT:
        return 0.0
    from scipy.optimize import brentq  # takes long to import

    return float(2 * brentq(lambda u: np.tanh(u) / u - ratio, 1e-9, 1 / ratio + 1) / radius[far]) ** 2


def _of_table(path: Path, frame: pd.DataFrame, id_name: str | None, roles: set[str]) -> _Map:
    """Take all columns of numbers but ids, those that have another role in the data, and numbers of labels."""
    names = list(map(str, frame.columns))
    named = next((name for name in (id_name, "id") if name in names), None)
    if named is None and names[0].startswith("Unnamed: ") and id_name is not None:
        named = names[0]
    numbers = {name for name in names if pd.api.types.is_numeric_dtype(frame[name])}
    numbers -= {name for name in numbers if LABEL.search(name) and bool((frame[name] % 1 == 0).all())}
    used = [name for name in names if name in numbers - {named, *roles}]
    if not used:
        raise CurvaeError(f"{path.name} has no columns of numbers for coordinates; its columns are {quoted(names)}")
    return _Map(
        frame[used].to_numpy(np.float64),
        None if named is None else frame[named].astype(str).to_numpy(np.str_),
        None,
        f"Coordinates: {listing(used)}.",
    )


def _matched(own: Sample, found: _Map, path: Path) -> tuple[Dataset, Any, NDArray[np.bool_] | None, str]:
    """Match rows of the data with their places, by id, or in their order where either has none."""
    data, chosen = own.data, np.arange(own.rows) if own.chosen is None else own.chosen
    known = {} if found.ids is None else {name: row for row, name in enumerate(found.ids.tolist())}
    if found.ids is not None and len(known) < len(found.ids):
        raise CurvaeError(f"{path.name} has ids that are given more than once; make them unique")
    rows = np.array([known.get(name, -1) for name in data.ids.tolist()], dtype=np.intp)
    if found.ids is None or (np.array_equal(data.ids, chosen.astype(np.str_)) and (rows < 0).any()):
        if len(found.places) != own.rows:
            raise CurvaeError(
                f"the data have {count(own.rows, 'row')} and {path.name} has {len(found.places):,}; give `id=…` with a "
                "column of both that names the rows"
            )
        rows, note = chosen, "Rows were matched in their order."
    else:
        kept = np.flatnonzero(rows >= 0)
        if not len(kept):
            raise CurvaeError(
                f"no row of the data is in {path.name}: rows are called {quoted(data.ids[:3])} and there "
                f"{quoted(list(known)[:3])}; use the same ids in both"
            )
        how = "row number" if data.id_name is None else "id"
        left = f"; {count(len(data) - len(kept), 'row')} without a place left out" if len(kept) < len(data) else ""
        data, rows, note = data.take(kept), rows[kept], f"{count(len(kept), 'row')} matched by {how}{left}."
    places = found.places.take(rows) if isinstance(found.places, Embedding) else found.places[rows]
    return data, places, None if found.held_out is None else found.held_out[rows], note
