"""How faithful the map of a run is: measured for reports, and put into words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..data import Dataset
from ..data.missing import column_means, fill, has_missing
from ..data.missing import places as gaps
from ..data.principal import mean_interval
from ..data.scaling import Scaling
from ..hierarchy import Faithfulness, Figures, GraphFaithfulness, GraphFigures, Rows, faithfulness
from ..hierarchy.faithfulness import FEWEST
from ..models.likelihoods import choose_likelihood
from ..report import Section, Table
from ..training.comparison import Comparison
from ..training.yardsticks import Yardstick

__all__ = [
    "faithful_lines",
    "faithful_section",
    "filled_rows",
    "graph_section",
    "judge_rows",
    "scaled_rows",
    "yardstick_section",
]

_EXACT = 2000  # rows up to which reports are exact: a few seconds
_VALUES, _FEW = 1 << 25, 500  # values to hold at once, but for so many rows

_NAMES = {
    "qlocal": "near neighbours kept (Qlocal)",
    "qglobal": "far neighbours kept (Qglobal)",
    "qlocal_paths": "near neighbours by path lengths",
    "qglobal_paths": "far neighbours by path lengths",
    "trustworthiness": "trustworthiness",
    "continuity": "continuity",
    "rank_correlation": "rank correlation of distances",
    "accuracy": "5-NN accuracy of labels",
}


def scaled_rows(rows: Rows) -> tuple[Rows, str]:
    """Rows with their columns scaled as distances between them need it, and a sentence that says so.

    Values of 0 to 1 are left as they are, and so are directions, which do not depend on the lengths of rows.
    """
    if not rows.measures_lengths or choose_likelihood(rows.x, "auto")[0] == "bernoulli":
        return rows, "Values were used as they are."
    scaling = Scaling.standard(rows.x)
    scaled = replace(rows, shift=scaling.shift, scale=scaling.scale)
    return scaled, "Columns were centred and scaled to unit variance."


def filled_rows(data: Dataset) -> Rows:
    """Rows with scaled columns; gaps are filled with the means of their columns."""
    x = fill(data.x, column_means(data.x)[gaps(data.x)[1]]) if has_missing(data.x) else data.x
    return scaled_rows(Rows(x))[0]


def judge_rows(
    data: Dataset, places: Any, held_out: Any = None, *, seed: int = 0, rows: int = _EXACT, **how: Any
) -> Faithfulness | None:
    """How faithful a map of rows is; None for fewer than 10. Gaps count as the means of their columns.

    Rows with very many columns are sampled sooner, so that they need no more memory.

    Arguments:
        data: the rows.
        places: as of `curvae.hierarchy.faithfulness`, and so are the others.
    """
    if len(data) < FEWEST:
        return None
    scaled = filled_rows(data)
    rows = min(rows, max(_FEW, _VALUES // int(data.x.shape[1])))
    return faithfulness(scaled, places, labels=data.labels, held_out=held_out, seed=seed, rows=rows, **how)


def _columns(found: Faithfulness) -> dict[str, Figures]:
    named = {
        "map": found.map,
        "PCA": found.pca,
        "held-out rows": found.held_out,
        "held-out rows, PCA": found.pca_held_out,
    }
    return {name: figures for name, figures in named.items() if figures is not None}


def _cell(figures: Figures | GraphFigures, name: str) -> str:
    value, half = getattr(figures, name), figures.intervals.get(name)
    if value is None:
        return ""
    return f"{value:.3f}" if half is None else f"{value:.3f} ± {half:.3f}"


def faithful_section(found: Faithfulness | None) -> Section:
    """Figures of a map beside those of PCA."""
    title = "How faithful is the map?"
    if found is None:
        return Section(title, [f"There are fewer than {FEWEST} rows, too few to judge a map."])
    columns = _columns(found)
    rows = [[text, *(_cell(one, name) for one in columns.values())] for name, text in _NAMES.items()]
    if found.map.accuracy is None:
        rows.pop()
    note = (
        "1 is best everywhere. Neighbours in the data are those by Euclidean distances of the scaled columns, or by "
        "path lengths in the graph of the 20 nearest neighbours, whose pieces are joined by their shortest bridges; on "
        f"the map, those by its own distances. PCA has {found.dim} dimensions too. Trustworthiness and continuity are "
        "of 15 neighbours; the 5-NN accuracy is that of five folds."
    )
    if found.held_out is not None:
        note += " Held-out rows took part in no step of training; their neighbours are looked up among the others."
    if found.subset is not None:
        note += (
            f" Means over five random subsets of {found.subset:,} rows with 95 % intervals; among so few, near "
            "neighbours are farther apart than among all."
        )
    return Section(title, [found.verdict], (), [Table(["figure", *columns], rows, note)])


def graph_section(found: GraphFaithfulness | None) -> Section:
    """Figures of the map of a graph beside those of a spectral embedding."""
    title = "How faithful is the map?"
    if found is None:
        return Section(title, [f"No component has {FEWEST} nodes, too few to judge a map."])
    columns = {"map": found.map, "spectral embedding": found.spectral}
    rows = [
        [text, *(_cell(one, name) for one in columns.values())]
        for name, text in _NAMES.items()
        if name in ("qlocal", "qglobal", "rank_correlation")
    ]
    note = (
        f"1 is best everywhere. Near are nodes that are few steps apart along edges, among the {found.nodes:,} of the "
        "largest component, and on the map those by its own distances, without popularity; nodes equally many steps "
        f"away may come in any order. The spectral embedding (Laplacian eigenmaps) has {found.dim} dimensions too."
    )
    if found.map.intervals:
        note += f" Of {found.map.nodes} random nodes, with 95 % intervals over five groups of these."
    return Section(title, [found.verdict], (), [Table(["figure", *columns], rows, note)])


def faithful_lines(found: Faithfulness) -> list[str]:
    """Lines for people: the verdict, and every figure of the map beside that of PCA."""
    lines = [found.verdict]
    for name, text in _NAMES.items():
        if getattr(found.map, name) is not None:
            held = "" if found.held_out is None else f"; held-out rows {_cell(found.held_out, name)}"
            lines.append(f"  {text} {_cell(found.map, name)}, PCA {_cell(found.pca, name)}{held}")
    return lines


def yardstick_section(found: Comparison) -> Section:
    """What curvature gains by other measures than the likelihood."""
    text = [one.sentence for one in found.yardsticks]
    if found.structure:
        text.append(f"The test for a hierarchy calls the data {found.structure}.")
    return Section("Other yardsticks", text, (), [_yardstick_table(one) for one in found.yardsticks])


def _yardstick_table(one: Yardstick) -> Table:
    """Scores by curvature, and those of PCA."""

    def interval(scores: Sequence[float]) -> str:
        return "{:.3f} ± {:.3f}".format(*mean_interval(scores))

    values = list(one.repeats[0].test)
    rows = [
        [
            "0 (flat)" if c == 0 else f"{c:g}",
            *(interval([getattr(repeat, part)[c] for repeat in one.repeats]) for part in ("validation", "test")),
        ]
        for c in values
    ]
    if linear := [repeat.pca for repeat in one.repeats if repeat.pca is not None]:
        rows.append(["PCA", "", interval(linear)])
    note = (
        f"{one.name.capitalize()}: {one.meaning}. c is chosen by it on validation rows, the test is on test rows; ± is "
        "a 95 % interval over repeats."
    )
    return Table(["c", f"{one.name}, validation", f"{one.name}, test"], rows, note, values.index(one.choice))
