"""`curvae demo`: the whole story on built-in data, offline, in a few minutes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..data import branching_diffusion, flat
from ..report import Section
from ..training import Config
from ..training.comparison import Comparison, compare
from ..training.storage import write_json
from . import pages
from .run import SILENT, Reporter, new_folder, orientation_of, write_report

__all__ = ["demonstrate"]

# The paper's synthetic experiment in small: unit variance, σ0 = 1.7, its largest curvature, a few of its epochs.
_CURVATURE = 1.2
_CONFIG = Config(
    likelihood="unit_gaussian",
    prior_scale=1.7,
    epochs=120,
    learning_rate=1e-3,
    adam_beta2=0.999,
    cooldown=0.0,
    hidden=(200,),
    objective="elbo",
    samples=1,
    patience=None,
)
_REPEATS = 5
_TREE, _FLAT = "a branching diffusion", "flat data"
_ABOUT = {
    _TREE: "127 nodes of a binary tree of depth 6, each seen five times through noise in 50 dimensions. Lines are the "
    "true hierarchy, which the models do not see; colours are its branches.",
    _FLAT: "635 rows of independent normal numbers in 50 dimensions: there is nothing to find, and the tool says so.",
}
_FIGURES = "demo.json"
_QUICK = "Three epochs only try whether everything works, and these figures mean little; curvae demo trains in full."


def demonstrate(
    output: Path,
    seed: int = 0,
    quick: bool = False,
    reporter: Reporter = SILENT,
) -> tuple[Path, dict[str, Comparison]]:
    """Compare the ordinary and the Poincaré VAE on a tree and on flat data; returns the report and the figures.

    `quick` only tries whether everything works: its figures mean little.
    """
    with new_folder(output, "demo", force=True, mark=_FIGURES):
        config = replace(_CONFIG, seed=seed, epochs=3 if quick else _CONFIG.epochs)
        repeats = 3 if quick else _REPEATS
        notes = [_QUICK] if quick else []
        tree = branching_diffusion(seed=seed)
        data = {_TREE: tree.dataset(), _FLAT: flat(seed=seed)}
        found: dict[str, Comparison] = {}
        sections: list[Section] = []
        total = 2 * len(data) * repeats
        reporter.say(
            f"{total} trainings: curvature 0 and c = {_CURVATURE:g}, {repeats} seeds, on a tree and on flat data"
        )
        for name, rows in data.items():
            result = compare(
                config,
                rows.x,
                (_CURVATURE,),
                repeats,
                samples=200,
                progress=lambda done, total, task=f"training on {name}": reporter.progress(task, done, total, ""),  # type: ignore[misc]
                warn=reporter.warn,
            )
            found[name] = result
            known = tree if rows.labels is not None else None
            pictures = []
            frames_of, _ = orientation_of(rows.x, rows.ids)
            for c, title in ((0.0, "ordinary VAE"), (_CURVATURE, "Poincaré VAE")):
                place = result.embeddings[c]
                projection = place.chart.project(place.points, frames_of(place)[0])
                nodes = None if known is None else pages.node_places(known, place.chart.page, projection.points)
                hierarchy = None if known is None or nodes is None else (nodes, known.edges)
                pictures.append(
                    pages.map_picture(place, rows.labels, title, hierarchy, projection, label_name=rows.label_name)
                )
            sections.append(
                Section(f"On {name}", [_ABOUT[name], result.verdict], pictures, pages.comparison_section(result).tables)
            )
            reporter.say(f"On {name}: {result.verdict}")
        reporter.tell(notes, ())
        tree_result, flat_result = found.values()
        good = tree_result.outcome == "hyperbolic" and flat_result.outcome != "hyperbolic"
        page = output / "report.html"
        write_json(output / _FIGURES, {name: result.to_json() for name, result in found.items()})
        write_report(
            page,
            "Curvae: a hierarchy found, and none invented",
            f"On a tree: {tree_result.verdict} On flat data: {flat_result.verdict}",
            "good" if good else "neutral",
            notes,
            sections,
            seed,
            reporter.started,
            words=reporter.words,
        )
        return page, found
