"""`curvae diagnose`: is there a hierarchy in data, and how well did a run recover a known one?"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data import Graph, branching_diffusion, load_graph
from ..data.messages import count
from ..data.missing import MissingValuesError
from ..errors import CurvaeError
from ..hierarchy import (
    Diagnosis,
    Embedded,
    Match,
    Metric,
    NamedTree,
    Recovery,
    Rows,
    diagnose_distances,
    diagnose_graph,
    diagnose_rows,
    match_rows,
    read_tree,
    recover,
    tree_of_embedding,
)
from ..models.likelihoods import choose_likelihood
from ..report import Report, Section
from ..training.files import write_text
from ..training.locks import locked
from ..training.rows import Scaling
from ..training.storage import CONFIG, read_description, versions
from . import pages
from .folder import Source, Voice, command_line, output_file, read_embedding, today

__all__ = ["DiagnoseRequest", "diagnose_data", "export_tree", "figures", "is_run", "recover_run", "recovered"]

_STEPS = 3
_BUILT_IN = "branching-diffusion"  # whose tree is known


@dataclass(frozen=True)
class DiagnoseRequest:
    """What `curvae diagnose` was asked to do with data."""

    source: Source
    metric: Metric = "euclidean"
    distances: bool = False
    graph: bool = False
    output: Path | None = None
    force: bool = False
    seed: int = 0

    def following(self, found: Diagnosis) -> str:
        """The next command to type."""
        if self.distances:
            report = "report.html" if self.output is None else str(self.output)
            return f"{self.source.command('diagnose')} --distances -o {shlex.quote(report)} --seed {self.seed + 1}"
        if found.outcome == "flat":
            return self.source.command("graph" if self.graph else "fit", settings={"curvature": 0.0})
        values = ",".join(f"{value:g}" for value in found.suggested)
        return self.source.command(
            "compare", settings={**({"graph": True} if self.graph else {}), "curvatures": values}
        )


def diagnose_data(request: DiagnoseRequest, voice: Voice = Voice()) -> Diagnosis:  # noqa: B008 - frozen
    """Diagnose data, and write a report where one is asked for."""
    if request.output is None:
        return _diagnose(request, voice)
    _check_place(output_file(request.output, Path("report.html"), request.force))
    with locked(request.output):
        output_file(request.output, Path("report.html"), request.force)  # another process may have written it since
        return _diagnose(request, voice)


def _diagnose(request: DiagnoseRequest, voice: Voice) -> Diagnosis:
    found, labels, section, warnings = _graph(request, voice) if request.graph else _table(request, voice)
    voice.progress("diagnosis", _STEPS, _STEPS, "")
    for text in found.notes:
        voice.say(text)
    if request.output is not None:
        report = Report(
            f"Is there a hierarchy in {request.source.to_json()['name']}?",
            found.sentence,
            "good" if found.outcome == "tree-like" else "neutral",
            warnings,
            [pages.diagnosis_section(found, labels), pages.delta_section(found), section],
            command_line(),
            versions(),
            request.seed,
            today(),
        )
        write_text(request.output, report.html())
    return found


def _check_place(path: Path) -> None:
    """Raise before the work where a file cannot be written after it."""
    place = next((parent for parent in path.absolute().parents if parent.exists()), Path("/"))
    if path.is_dir() or not place.is_dir() or not os.access(place, os.W_OK):
        raise CurvaeError(
            f"cannot write {path}: {place.name or place} is no folder to write to; choose another with -o"
        )


Parts = tuple[Diagnosis, NDArray[np.str_] | None, Section, tuple[str, ...]]


def _table(request: DiagnoseRequest, voice: Voice) -> Parts:
    """Rows as a model would see them, or distances."""
    try:
        data, schema = request.source.load()
    except MissingValuesError as error:
        if request.distances:
            raise CurvaeError(f"{error.found}; fill these distances in, or leave the points out") from error
        raise
    if data.missing:
        raise CurvaeError(
            'missing="model" leaves gaps, between which no distance is known; use missing="drop" or missing="mean"'
        )
    for text in data.warnings:
        voice.warn(text)
    progress = _steps(voice)
    if request.distances:
        found = diagnose_distances(data.x, request.seed, progress)
        return found, data.labels, Section("What was done to the data", [*data.notes, *found.notes]), data.warnings
    blocks = tuple(len(column.features) for column in schema.columns) if schema.kind == "table" else ()
    rows, note = Rows(data.x, request.metric, blocks=blocks), "Values were used as they are."
    # Lengths of rows depend on the units of columns; their directions are asked for as they are.
    if rows.measures_lengths and choose_likelihood(data.x, "auto")[0] != "bernoulli":
        scaling = Scaling.standard(data.x)
        rows = replace(rows, shift=scaling.shift, scale=scaling.scale)
        note = "Columns were centred and scaled to unit variance."
    found = diagnose_rows(rows, request.seed, progress)
    return found, data.labels, pages.data_section(data, [note, *found.notes]), data.warnings


def _graph(request: DiagnoseRequest, voice: Voice) -> Parts:
    graph: Graph = load_graph(request.source.path)
    for text in graph.warnings:
        voice.warn(text)
    found = diagnose_graph(graph, request.seed, _steps(voice))
    size = f"{count(graph.n_nodes, 'node')}, {count(graph.n_edges, 'edge')}."
    section = Section("What was done to the data", [size, *graph.notes, *found.notes])
    return found, graph.labels, section, graph.warnings


def _steps(voice: Voice) -> Callable[[str], None]:
    """A bar that tells what is being done."""
    done = -1

    def step(name: str) -> None:
        nonlocal done
        done += 1
        voice.progress("diagnosis", done, _STEPS, name)

    return step


def is_run(path: str) -> bool:
    """Whether this is a run folder."""
    return (Path(path) / CONFIG).is_file()


@dataclass(frozen=True)
class _Map:
    """The embedding of a run as its files tell it."""

    points: Embedded
    ids: NDArray[np.str_]
    labels: NDArray[np.str_] | None


def _open(run: Path) -> _Map:
    description = read_description(run)
    path = run / "embedding.csv"
    try:
        c = float(description["summary"]["c"])
        frame = read_embedding(path)
        columns = [name for name in frame if str(name).startswith("ball_")]
        ball = frame[columns].to_numpy(np.float64)
        texts = {name: frame[name].to_numpy(np.str_) for name in ("id", "label")}
        if not columns or not np.isfinite(ball).all() or (c * (ball**2).sum(1) >= 1).any():
            raise ValueError("its points do not lie in the ball")
    except (OSError, KeyError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise CurvaeError(
            f"{run} has no embedding to look at ({reason}); give a folder that curvae fit wrote"
        ) from error
    labels = texts["label"] if (texts["label"] != "").any() else None
    return _Map(Embedded(ball, c), texts["id"], labels)


def recover_run(
    run: Path,
    tree: Path,
    *,
    seed: int = 0,
    voice: Voice = Voice(),  # noqa: B008 - frozen
) -> tuple[Match, Recovery]:
    """Compare the embedding of a run with a known tree, from a file or that of the built-in branching diffusion."""
    embedded = _open(run)
    if str(tree) == _BUILT_IN and not tree.exists():
        known, match = _built_in(run, embedded.ids)
    else:
        known = read_tree(tree)
        match = match_rows(known, embedded.ids, embedded.labels)
    for text in match.notes:
        voice.say(text)
    found = recover(known, match.node[match.rows], embedded.points.take(match.rows), seed, _steps(voice))
    voice.progress("diagnosis", _STEPS, _STEPS, "")
    return match, found


def _built_in(run: Path, ids: NDArray[np.str_]) -> tuple[NamedTree, Match]:
    """The tree of the branching diffusion, and which rows are observations of which node."""
    tree = branching_diffusion()
    nodes = dict(zip(tree.dataset().ids.tolist(), tree.node.tolist(), strict=True))
    node = np.array([nodes.get(name, -1) for name in ids.tolist()], dtype=np.intp)
    if (node < 0).all():
        raise CurvaeError(f"{run} has no rows of {_BUILT_IN}; give the tree of its data as a file")
    names = np.array([f"node{k}" for k in range(len(tree.parent))], dtype=np.str_)
    known = NamedTree(names, tree.parent, np.ones(len(names)))
    return known, Match(node, "id", len(names) - len(np.unique(node[node >= 0])))


def export_tree(run: Path, output: Path, *, seed: int = 0, force: bool = False) -> dict[str, Any]:
    """Write the tree read off the embedding of a run as Newick."""
    embedded = _open(run)
    output_file(output, output, force, option="newick")
    tree = tree_of_embedding(embedded.points, embedded.ids, seed)
    write_text(output, tree.newick() + "\n")
    return {"newick": str(output), "leaves": len(embedded.ids), "nodes": len(tree)}


def figures(found: Diagnosis) -> list[str]:
    """Lines for people: scores and δ."""
    lines = [f"  {s.name} {s.value:.3f}, surrogates {s.surrogate:.3f} ({s.meaning})" for s in found.scores]
    delta = found.delta
    low, high = map(delta.relative, delta.interval)
    lines.append(f"  relative δ of four points: mean {delta.relative(delta.mean):.4f} ({low:.4f} to {high:.4f})")
    largest = f"  largest {delta.relative(delta.largest):.3f}"
    return [*lines, largest if delta.exact else f"{largest} of {delta.count:,} seen"]


def recovered(match: Match, found: Recovery) -> list[str]:
    """Lines for people: how well a tree was recovered."""
    return [
        match.sentence,
        f"  distances: rank correlation {found.distance_correlation:.3f} with the tree, {found.pairs:,} pairs",
        f"  distortion: {found.distortion:.3f} on average, {found.worst_distortion:.3g} at worst",
        f"  depth: rank correlation {found.depth_correlation:.3f} with the radius",
        f"  dendrogram purity {found.purity:.3f}, mean over {count(len(found.purity_by_level), 'level')}, "
        f"{found.joined:,} rows",
        f"  mean average precision {found.mean_average_precision:.3f} of nearest rows, {found.queries:,} rows asked",
    ]
