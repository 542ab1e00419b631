"""`curvae compare`: is a curved latent space better for these data?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ..training.comparison import Comparison
from ..training.files import write_json
from ..training.paired import Outcome
from .folders import write_report
from .progress import Reporter
from .run import Run, given
from .sources import DataSource, Step
from .start import Started, start_run

__all__ = ["CompareRequest", "CompareResult", "compare_run"]

TONES: dict[Outcome, Any] = {"hyperbolic": "good", "none": "neutral", "euclidean": "bad"}
_DEFAULT: dict[str, Any] = {"curvatures": [0.3, 1.0], "repeats": 5}


@dataclass(frozen=True)
class CompareRequest:
    """What `curvae compare` was asked to do."""

    source: DataSource
    settings: Mapping[str, Any] = field(default_factory=dict)
    curvatures: Sequence[float] | None = None
    """values of c > 0; 0.3 and 1, or those that the comparison was begun with"""
    repeats: int | None = None
    """seeds and splits; 5, or as many as it was begun with"""
    output: Path | None = None
    resume: bool = False
    force: bool = False
    jobs: int | None = None
    device: str = "auto"
    tree: Path | None = None
    """a known tree of the data, to compare by how well it is recovered too"""


@dataclass(frozen=True)
class CompareResult:
    """A comparison that was written."""

    folder: Path
    source: DataSource
    settings: dict[str, Any]
    """those that were given, when it was begun"""
    comparison: Comparison

    @property
    def following(self) -> Step:
        """What to do next: train with the curvature that was found best."""
        found = self.comparison
        best = float(
            found.choice or (max((one.choice for one in found.yardsticks), default=0) if found.outcome == "none" else 0)
        )
        if "space" not in self.settings:
            return self.source.train_step(**self.settings | {"curvature": best})
        config = type(self.comparison.config)(**self.settings).with_curvature(best)
        return self.source.train_step(**given(config) | ({} if config.space else {"curvature": best}))


def compare_run(request: CompareRequest, reporter: Reporter = Reporter()) -> CompareResult:  # noqa: B008 - frozen
    """Compare curvatures and write `comparison.json` and `report.html`."""
    asked = {"curvatures": request.curvatures, "repeats": request.repeats}
    plan = partial(_plan, request.tree)
    with ExitStack() as held:
        return _compare(request, start_run(request, reporter, "comparison", asked, plan, held), reporter)


def _plan(tree: Path | None, run: Run, asked: dict[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    chosen = {**_DEFAULT, **{name: value for name, value in asked.items() if value is not None}}
    planned = {**chosen, "data": run.plan_comparison(**chosen, before=before.get("data"))}
    if tree is not None:
        run.match_tree(tree)
    return planned


def _compare(request: CompareRequest, started: Started, reporter: Reporter) -> CompareResult:
    run, folder, source, settings, description = started
    reporter.tell((), [*run.data.warnings, *run.remarks])
    reporter.say(f"{run.data_size}; {run.trainings} trainings")
    found = run.compare(
        description["curvatures"],
        description["repeats"],
        device=request.device,
        jobs=request.jobs,
        folder=folder,
        resume=request.resume,
        progress=lambda done, total: reporter.progress("training", done, total, ""),
        warn=reporter.warn,
    )
    said, warned, sections = run.comparison_report(found)
    reporter.tell(said, warned)
    write_json(folder / "comparison.json", found.to_json())
    title = f"Is a curved space better for {description['source']['name']}?"
    report = folder / "report.html", title, found.verdict, TONES[found.outcome], [*run.data.warnings, *warned], sections
    write_report(*report, run.config.seed, description["command"])
    reporter.say(found.verdict)
    return CompareResult(folder, source, settings, found)
