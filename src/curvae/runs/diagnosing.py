"""`curvae diagnose`: is there a hierarchy in data, and how well did a run recover a known one?"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.messages import count
from ..errors import CurvaeError
from ..hierarchy import (
    Diagnosis,
    Match,
    Metric,
    Recovery,
    recover,
    tree_of_embedding,
)
from ..training.embedding import Embedding
from ..training.files import write_text
from ..training.locks import locked
from ..training.storage import CONFIG, read_description
from . import pages
from .folders import output_file, write_report
from .kinds import RUNS
from .maps import open_map
from .progress import Reporter
from .sources import DataSource, Step
from .trees import known_tree

__all__ = ["DiagnoseRequest", "diagnose_data", "diagnose_run", "figures", "is_run"]

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
        f"  distances: rank correlation {found.distance_correlation:.3f} with the tree, {found.pairs:,} pairs",
        f"  distortion: {found.distortion:.3f} on average, {found.worst_distortion:.3g} at worst",
        f"  depth: rank correlation {found.depth_correlation:.3f} with the radius",
        f"  dendrogram purity {found.purity:.3f}, mean over {count(len(found.purity_by_level), 'level')}, "
        f"{found.joined:,} rows",
        f"  mean average precision {found.mean_average_precision:.3f} of nearest rows, {found.queries:,} rows asked",
    ]
