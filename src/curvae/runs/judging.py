"""`curvae judge`: how faithful is a map of data, made by whatever program?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..data import Dataset, load
from ..data.files import meant, require_file
from ..data.messages import Messages, count, listing, quoted
from ..data.spreadsheets import is_embedding
from ..data.tables import TABLES, read_frame
from ..errors import CurvaeError, FixableError
from ..hierarchy import Faithfulness
from ..hierarchy.faithfulness import FEWEST
from ..training.embedding import Embedding, PlacedFactor
from ..training.splits import judged_rows
from ..training.storage import CONFIG, read_description
from .faithful import faithful_section, judge_rows
from .folders import output_file, write_report
from .maps import open_map, open_places
from .pages import data_section
from .pieces import InMemory, loaded
from .progress import Reporter
from .sources import Source, Step

__all__ = ["JudgeRequest", "judge_map"]

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
        if self.embedding.is_dir():
            return Step("view", (str(self.embedding),))
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
    reporter.tell([found.note, note], data.warnings)
    if request.output is not None:
        title = f"How faithful is {request.embedding.name} to {Path(request.source.path).name}?"
        sections = [faithful_section(judged), data_section(data, [found.note, note])]
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
    factor = PlacedFactor("h1" if c else "e1", ball.shape[1], c)
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
    left = f"; {count(len(data) - len(kept), 'row')} without a place left out" if len(kept) < len(data) else ""
    return data.take(kept), taken, held, f"{count(len(kept), 'row')} matched by id{left}."


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
