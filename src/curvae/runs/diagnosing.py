"""`curvae diagnose` and `judge`: is there a hierarchy in data, and how faithful is a map of any program?"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..data import Dataset, load
from ..data.files import Messages, count, decimal, is_embedding, listing, meant, quoted, require_file
from ..data.tables import TABLES, read_frame
from ..errors import CurvaeError, FixableError
from ..hierarchy import (
    Diagnosis,
    Faithfulness,
    Match,
    Metric,
    Recovery,
    recover,
    tree_of_embedding,
)
from ..maps.charts import letter_of
from ..maps.embedding import Embedding, PlacedFactor
from ..maps.faithfulness import FEWEST
from ..training.rows import judged_rows
from ..training.storage import CONFIG, locked, read_description, write_text
from . import pages
from .drawing import open_map, open_places
from .folders import output_file, write_report
from .pages import data_section, faithful_section, judge_rows
from .rows_run import InMemory, loaded
from .run import DataSource, Reporter, Source, Step, known_tree
from .training import RUNS

__all__ = ["DiagnoseRequest", "JudgeRequest", "diagnose_data", "diagnose_run", "figures", "is_run", "judge_map"]

_STEPS = 3


@dataclass(frozen=True)
class DiagnoseRequest:
    """What `curvae diagnose` was asked to do with data."""

    source: DataSource
    metric: Metric = "euclidean"
    distances: bool = False
    output: Path | None = None
    force: bool = False
    seed: int = 0

    def following(self, found: Diagnosis) -> Step:
        """What to do next."""
        if self.distances:
            report = self.output or Path("report.html")
            return self.source.step("diagnose", distances=True, output=report, seed=self.seed + 1)
        if found.outcome == "flat":
            return self.source.train_step(curvature=0.0)
        return self.source.compare_step(curvatures=",".join(f"{value:g}" for value in found.suggested))


def diagnose_data(request: DiagnoseRequest, reporter: Reporter = Reporter()) -> Diagnosis:  # noqa: B008 - frozen
    """Diagnose data, and write a report where one is asked for."""
    if request.output is None:
        return _diagnose(request, reporter)
    _check_place(output_file(request.output, Path("report.html"), request.force))
    with locked(request.output):
        output_file(request.output, Path("report.html"), request.force)  # another process may have written it since
        return _diagnose(request, reporter)


def _diagnose(request: DiagnoseRequest, reporter: Reporter) -> Diagnosis:
    run = RUNS[request.source.kind]
    how = request.metric, request.distances, request.seed
    data = run.diagnose(request.source, *how, reporter, _steps(reporter))
    found = data.found
    reporter.progress("diagnosis", _STEPS, _STEPS, "")
    reporter.tell(found.notes, ())
    if request.output is not None:
        title = f"Is there a hierarchy in {request.source.to_json()['name']}?"
        sections = [pages.diagnosis_section(found, data.labels), pages.delta_section(found), data.section]
        write_report(
            request.output,
            title,
            found.sentence,
            "good" if found.outcome == "tree-like" else "neutral",
            data.warnings,
            sections,
            request.seed,
            reporter.started,
        )
    return found


def _check_place(path: Path) -> None:
    """Raise before the work where a file cannot be written after it."""
    place = next((parent for parent in path.absolute().parents if parent.exists()), Path("/"))
    if path.is_dir() or not place.is_dir() or not os.access(place, os.W_OK):
        raise CurvaeError(
            f"cannot write {path}: {place.name or place} is no folder to write to; choose another with output=…"
        )


def _steps(reporter: Reporter) -> Callable[[str], None]:
    """A bar that tells what is being done."""
    done = itertools.count()
    return lambda name: reporter.progress("diagnosis", next(done), _STEPS, name)


def is_run(path: str) -> bool:
    """Whether this is a run folder."""
    return (Path(path) / CONFIG).is_file()


def _open(run: Path) -> tuple[Embedding, NDArray[np.str_], NDArray[np.str_] | None]:
    """The embedding of a run as its files tell it, with the ids of the rows and their labels, if they have any."""
    table, embedding = open_map(run, read_description(run))
    ids, labels = (table[name].to_numpy(np.str_) for name in ("id", "label"))
    return embedding, ids, labels if (labels != "").any() else None


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
        raise CurvaeError(f"{run} is a run; compare it with a tree, tree=…, or write its tree to a file, newick=…")
    result: dict[str, Any] = {}
    lines = []
    if tree is not None:
        match, found = _recover(run, tree, seed, reporter)
        result, lines = {"match": match.to_json(), **found.to_json()}, _recovered(match, found)
    if newick is not None:
        result |= _export(run, newick, seed, force)
        lines.append(f"newick: {newick}")
    following = Step("diagnose", (str(run),), {"newick": "tree.nwk"}) if newick is None else Step("view", (str(run),))
    return result, lines, following


def _recover(run: Path, tree: Path, seed: int, reporter: Reporter) -> tuple[Match, Recovery]:
    """Compare the embedding of a run with a known tree, from a file or that of the built-in branching diffusion."""
    points, ids, labels = _open(run)
    known, match = known_tree(tree, str(run), ids, labels)
    reporter.tell(match.notes, ())
    found = recover(known, match.node[match.rows], points.take(match.rows), seed, _steps(reporter))
    reporter.progress("diagnosis", _STEPS, _STEPS, "")
    return match, found


def _export(run: Path, output: Path, seed: int, force: bool) -> dict[str, Any]:
    """Write the tree read off the embedding of a run as Newick."""
    points, ids, _ = _open(run)
    output_file(output, output, force, option="newick")
    tree = tree_of_embedding(points, ids, seed)
    write_text(output, tree.newick() + "\n")
    return {"newick": str(output), "leaves": len(ids), "nodes": len(tree)}


def figures(found: Diagnosis) -> list[str]:
    """Lines for people: scores and δ."""
    lines = [f"  {s.name} {s.value:.3f}, surrogates {s.surrogate:.3f} ({s.meaning})" for s in found.scores]
    delta = found.delta
    low, high = map(delta.relative, delta.interval)
    lines.append(f"  relative δ of four points: mean {delta.relative(delta.mean):.4f} ({low:.4f} to {high:.4f})")
    largest = f"  largest {delta.relative(delta.largest):.3f}"
    return [*lines, largest if delta.exact else f"{largest} of {delta.count:,} seen"]


def _recovered(match: Match, found: Recovery) -> list[str]:
    """Lines for people: how well a tree was recovered."""
    return [
        match.sentence,
        f"  distances: rank correlation {decimal(found.distance_correlation, 3)} with the tree, {found.pairs:,} pairs",
        f"  distortion: {found.distortion:.3f} on average, {found.worst_distortion:.3g} at worst",
        f"  depth: rank correlation {decimal(found.depth_correlation, 3)} with the radius",
        f"  dendrogram purity {found.purity:.3f}, mean over {count(len(found.purity_by_level), 'level')}, "
        f"{found.joined:,} rows",
        f"  mean average precision {found.mean_average_precision:.3f} of nearest rows, {found.queries:,} rows asked",
    ]


# `curvae judge`: how faithful is a map of data, made by whatever program?

_EXACT = 5000  # rows up to which figures are exact
_FLAT = 1e-9  # by how much less than 1 the ratio of ball to metric radius must be in a curved space


@dataclass(frozen=True)
class JudgeRequest:
    """What `curvae judge` was asked to do.

    Arguments:
        source: the data.
        embedding: a table with a row for each of theirs, a matrix, or a run folder.
        distance: "euclidean" (the default), "poincare" or "lorentz"; a map of Curvae has its own.
        output: report to write, if any.
        force: overwrite it.
        seed: of what is drawn at random.
    """

    source: Source
    embedding: Path
    distance: Any = None
    output: Path | None = None
    force: bool = False
    seed: int = 0

    @property
    def following(self) -> Step:
        """What to do next: look at the map of a run, or make one to compare with."""
        run = self.embedding if self.embedding.is_dir() else self.embedding.parent
        if (run / CONFIG).is_file():
            return Step("view", (str(run),))
        return self.source.train_step()


class _Map(NamedTuple):
    """A map as it was read: places, names of the rows if it has any, which were held out, and what was done."""

    places: Any
    ids: NDArray[np.str_] | None
    held_out: NDArray[np.bool_] | None
    note: str


def judge_map(request: JudgeRequest, reporter: Reporter = Reporter()) -> Faithfulness:  # noqa: B008 - frozen
    """Measure how faithful a map is, and write a report where one is asked for."""
    if request.output is not None:
        output_file(request.output, Path("report.html"), request.force)
    request = _with_roles(request)
    own = loaded(request.source, request.seed, reporter)
    found = _read(request, own)
    data, places, held, note = _matched(own, found, request.embedding)
    _require_apart(places, request.embedding)
    distance = {} if request.distance is None else {"distance": request.distance}
    judged = judge_rows(data, places, held, seed=request.seed, rows=_EXACT, **distance)
    if judged is None:
        raise CurvaeError(f"{len(data)} rows are too few to judge a map; at least {FEWEST} are needed")
    notes = [found.note, note]
    if own.schema.kind == "table" and data.labels is None:  # numbers of a column of labels would count as data
        first, last = own.schema.columns[0].name, own.schema.columns[-1].name
        notes.insert(
            0, f"All {data.n_columns:,} columns, {first!r} to {last!r}, are data; leave out labels with label=…."
        )
    reporter.tell(notes, data.warnings)
    if request.output is not None:
        title = f"How faithful is {request.embedding.name} to {Path(request.source.path).name}?"
        sections = [faithful_section(judged), data_section(data, notes)]
        write_report(
            request.output,
            title,
            judged.verdict,
            "neutral" if judged.behind else "good",
            data.warnings,
            sections,
            request.seed,
            reporter.started,
        )
    return judged


def _with_roles(request: JudgeRequest) -> JudgeRequest:
    """Read the file that a run was trained on as the run did, where nothing else is asked for."""
    if not (request.embedding / CONFIG).is_file():
        return request
    stored, source = read_description(request.embedding).get("source"), request.source
    if not isinstance(stored, dict) or stored.get("name") != Path(source.path).name or source.options:
        return request
    return replace(request, source=replace(source.again(stored), memory=source.memory))


def _read(request: JudgeRequest, own: InMemory) -> _Map:
    path = request.embedding
    run = path if path.is_dir() else path.parent
    if path.is_dir() or (path.name in ("embedding.csv", "embedding.parquet") and (run / CONFIG).is_file()):
        _refuse_distance(request)
        return _of_run(run, own)
    try:
        return _of_file(request)
    except OSError as error:
        hint = meant(path, "check the file")
        raise CurvaeError(f"{path} cannot be read: {error.strerror or error}; {hint}") from error


def _of_file(request: JudgeRequest) -> _Map:
    path = request.embedding
    require_file(path)
    if not any(path.name.lower().endswith(ending) for ending in TABLES):
        try:
            data, schema = load(path)
        except FixableError as error:  # whose parameters are of the data, not of the map
            raise CurvaeError(f"{path.name}: {error.found}; correct it") from error
        if schema.kind == "images":
            raise CurvaeError(
                f"{path.name} holds {len(data):,} arrays of shape {schema.shape}, not a map; give one of shape "
                "(rows, coordinates)"
            )
        matrix = data.x
        return _Map(matrix if isinstance(matrix, np.ndarray) else matrix.toarray(), None, None, "Coordinates: all.")
    frame = read_frame(path, {"id"}, {"id", "label", *_roles(request.source)}, Messages())
    if is_embedding(list(map(str, frame.columns))):
        _refuse_distance(request)
        return _of_curvae(path, frame)
    return _of_table(path, frame, request.source)


def _refuse_distance(request: JudgeRequest) -> None:
    if request.distance is not None:
        raise CurvaeError(f"{request.embedding} is a map of Curvae and has its own distances; leave out distance=…")


def _of_run(run: Path, own: InMemory) -> _Map:
    description = read_description(run)
    note = "The map of a run, with its own distances."
    if own.chosen is None:
        table, embedding = open_map(run, description)
    else:
        named = own.schema.id is not None
        table, embedding = open_places(run, description, own.data.ids if named else own.chosen)
        if not named and len(table) == len(own.data):
            table["id"], note = own.data.ids, f"{note} Rows were matched in their order."
    ids, split = table["id"].to_numpy(np.str_), table["split"].to_numpy(np.str_)
    return _Map(embedding, ids, judged_rows(split), note)


def _of_curvae(path: Path, frame: pd.DataFrame) -> _Map:
    """An `embedding.csv` outside its run: its one curvature follows from ball coordinates and radii."""
    ball = frame.filter(regex=r"^ball_\d+$").to_numpy(np.float64)
    if not ball.size:
        raise CurvaeError(
            f"{path.name} is a map in a product of spaces, whose curvatures only its run knows; give the run folder"
        )
    c = _curvature(np.linalg.norm(ball, axis=1), frame["radius"].to_numpy(np.float64))
    factor = PlacedFactor(f"{letter_of(c)}1", ball.shape[1], c)
    tangent = frame.filter(regex=r"^tangent_\d+$").to_numpy(np.float64)
    embedding = Embedding.from_tangent(tangent, np.ones(len(ball)), (factor,))
    held = judged_rows(frame["split"].to_numpy(np.str_))
    return _Map(embedding, frame["id"].to_numpy(np.str_), held, f"A map of Curvae with c = {c:.4g}.")


def _curvature(ball: NDArray[np.float64], radius: NDArray[np.float64]) -> float:
    """c, from the norms of points in the ball and their distances from the origin: √c·|z| = tanh(√c·r/2)."""
    far = int(np.argmax(radius))
    ratio = 2 * ball[far] / radius[far] if radius[far] > 0 else 1.0
    if ratio >= 1 - _FLAT:
        return 0.0
    from scipy.optimize import brentq  # takes long to import

    return float(2 * brentq(lambda u: np.tanh(u) / u - ratio, 1e-9, 1 / ratio + 1) / radius[far]) ** 2


def _of_table(path: Path, frame: pd.DataFrame, source: Source) -> _Map:
    """All columns of numbers but ids and labels."""
    names = list(map(str, frame.columns))
    named = next((name for name in (source.id, "id") if name in names), None)
    if named is None and names[0].startswith("Unnamed: ") and source.id is not None:
        named = names[0]
    numbers = {name for name in names if pd.api.types.is_numeric_dtype(frame[name])}
    used = [name for name in names if name in numbers - {named, "label", *_roles(source)}]
    if not used:
        raise CurvaeError(f"{path.name} has no columns of numbers for coordinates; its columns are {quoted(names)}")
    ids = None if named is None else frame[named].astype(str).to_numpy(np.str_)
    return _Map(frame[used].to_numpy(np.float64), ids, None, f"Coordinates: {listing(used)}.")


def _roles(source: Source) -> set[str]:
    """Columns of the data that are no coordinates, where a map repeats them."""
    return {name for name in (source.id, source.label, source.group) if name is not None}


def _matched(own: InMemory, found: _Map, path: Path) -> tuple[Dataset, Any, NDArray[np.bool_] | None, str]:
    """Rows of the data and their places, by id, or in their order where either has none."""
    data, chosen = own.data, np.arange(own.rows) if own.chosen is None else own.chosen
    numbered = chosen.astype(np.str_)
    known = {} if found.ids is None else {name: row for row, name in enumerate(found.ids.tolist())}
    if found.ids is not None and len(known) < len(found.ids):
        raise CurvaeError(f"{path.name} has ids that are given more than once; make them unique")
    rows = np.array([known.get(name, -1) for name in data.ids.tolist()], dtype=np.intp)
    if found.ids is None or (np.array_equal(data.ids, numbered) and (rows < 0).any()):
        if len(found.places) != own.rows:
            raise CurvaeError(
                f"the data have {count(own.rows, 'row')} and {path.name} has {len(found.places):,}; give id=… with a "
                "column of both that names the rows"
            )
        places, held = _taken(found, chosen)
        return data, places, held, "Rows were matched in their order."
    kept = np.flatnonzero(rows >= 0)
    if not len(kept):
        raise CurvaeError(
            f"no row of the data is in {path.name}: rows are called {quoted(data.ids[:3])} and there "
            f"{quoted(list(known)[:3])}; use the same ids in both"
        )
    taken, held = _taken(found, rows[kept])
    how = "row number" if data.id_name is None else "id"
    left = f"; {count(len(data) - len(kept), 'row')} without a place left out" if len(kept) < len(data) else ""
    return data.take(kept), taken, held, f"{count(len(kept), 'row')} matched by {how}{left}."


def _require_apart(places: Any, path: Path) -> None:
    """Raise where all rows lie in one point of a map: none of its neighbours is nearer than another."""
    points = places.tangent if isinstance(places, Embedding) else np.asarray(places)
    if (points == points[:1]).all():
        raise CurvaeError(
            f"all rows lie in one point of {path.name}, so there are no neighbours to judge; check the map"
        )


def _taken(found: _Map, rows: NDArray[np.intp]) -> tuple[Any, NDArray[np.bool_] | None]:
    """The places of some rows of a map, and which were held out."""
    places = found.places.take(rows) if isinstance(found.places, Embedding) else found.places[rows]
    return places, None if found.held_out is None else found.held_out[rows]
