"""The sections of reports: what is drawn and said of data, maps, trainings and comparisons."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from torch import Tensor

from ..data import Dataset, EdgeSplit, Graph, Tree, split_edges
from ..data.dataset import Scaling, column_statistics, fill, has_missing, source_columns
from ..data.files import count, decimal
from ..data.graph_data import BASELINES
from ..geometry import PoincareBall
from ..hierarchy import (
    Diagnosis,
    Drivers,
    Faithfulness,
    Figures,
    GraphFaithfulness,
    GraphFigures,
    Metric,
    Rows,
    explain,
    faithfulness,
)
from ..maps.charts import Frame, Projection
from ..maps.embedding import AlignedMaps
from ..maps.faithfulness import FEWEST, label_accuracy
from ..maps.statistics import mean_interval
from ..models import LIKELIHOODS, FermiDirac
from ..models.graph_vae import exact
from ..models.likelihoods import choose_likelihood
from ..nn.space import FactorFigures
from ..plotting import (
    beside_surrogates,
    curvature_profile,
    curves,
    dendrogram,
    figure_bytes,
    geodesics,
    graph_map,
    latent_map,
    mosaic,
    radius_histogram,
    reconstructions,
    sample_grid,
)
from ..plotting.pictures import EDGES_DRAWN, RIM, colouring, edges_drawn
from ..report import Picture, Section, Table
from ..training import Comparison, Config, Embedding, Fitted, FittedGraph, GraphConfig
from ..training.comparison import Criterion, Paired
from ..training.fitted import FittedModel, Likelihoods, Stability, active_dimensions
from ..training.graph_problem import GraphComparison, Neighbourhood, link_baselines, listed
from ..training.neighbourhoods import group_rows
from ..viewer import View

__all__ = [
    "LINKS",
    "LIVE",
    "Centre",
    "LinkFigures",
    "against_rules",
    "beside_comparison",
    "by_factor",
    "capital",
    "comparison_section",
    "comparison_warnings",
    "criterion_section",
    "data_section",
    "delta_section",
    "describe_covariates",
    "details",
    "diagnosis_section",
    "disconnected",
    "drawn_sentence",
    "driver_lines",
    "drivers_section",
    "faithful_lines",
    "faithful_section",
    "filled_rows",
    "graph_data_section",
    "graph_map_section",
    "graph_pictures",
    "graph_training_section",
    "judge_rows",
    "likelihood_section",
    "links_section",
    "map_picture",
    "map_variation",
    "map_view",
    "missing_section",
    "node_places",
    "place_text",
    "ranking_sentence",
    "reconstruction_section",
    "remark",
    "row_pictures",
    "rows_map_section",
    "samples_picture",
    "scaled_rows",
    "scaled_table",
    "scaling_note",
    "space_text",
    "stability_section",
    "training_section",
    "verdict",
]


# What reports say and show of the factors of a latent space: of the one, or of each in a product.


def space_text(embedding: Embedding) -> str:
    """Describe curvatures: "c = 1 (curvature −1)", or of a product "h1: c = 1 (curvature −1), e2: flat"."""
    if len(embedding.placed) == 1:
        return embedding.chart.text()
    return ", ".join(f"{factor.name}: {factor.chart.text(alone=False)}" for factor in embedding.placed)


def place_text(embedding: Embedding) -> str:
    """Say where rows are, for a sentence: "a map of 2 dimensions, c = 1 (curvature −1)"."""
    if len(embedding.placed) == 1:
        return f"a map of {count(embedding.dim, 'dimension')}, {space_text(embedding)}"
    return "a product of " + " and ".join(
        f"{one.name} ({count(one.dim, 'dimension')}, {one.chart.summary})" for one in embedding.placed
    )


def by_factor(embedding: Embedding, draw: Callable[[Embedding, int], Sequence[Picture]]) -> list[Picture]:
    """Collect pictures of every factor, which `draw` makes of the embedding in the factor and its place in the product.

    In a product their captions begin with the factor, and its name is added to theirs: "map-h1", "map-e2".
    """
    if len(embedding.placed) == 1:
        return list(draw(embedding, 0))
    return [
        replace(
            one,
            caption=f"Factor {factor.name}. {one.caption}",
            alt=f"{one.alt}, {factor.name}",
            name=one.name and f"{one.name}-{factor.name}",
        )
        for place, (part, factor) in enumerate(zip(embedding.parts, embedding.placed, strict=True))
        for one in draw(part, place)
    ]


def each_factor(fitted: FittedModel, text: Callable[[FactorFigures, int], str]) -> str:
    """Write a text about the one factor, or about every factor of a product after its name."""
    texts = {one.name: text(one, place) for place, one in enumerate(fitted.figures)}
    return ", ".join(f"{name}: {said}" if len(texts) > 1 else said for name, said in texts.items())


def drawing(
    size: tuple[float, float],
    draw: Callable[[Any], Any],
    caption: str,
    alt: str,
    columns: int = 1,
    *,
    tight: bool = True,
    **more: Any,
) -> Picture:
    """Make a picture of a figure of this size that `draw` fills, given its axes; `more` as of `Picture`."""
    figure = Figure(figsize=size, layout="constrained" if tight else None)
    draw(figure.subplots(1, columns))
    return Picture(figure_bytes(figure), caption, alt, **more)


# Maps.

LIVE = 20_000  # rows up to which a report holds an interactive map


def map_view(embedding: Embedding, projection: Projection, **more: Any) -> View:
    """Make the interactive map; `more` as for `View`, with points in coordinates of the page."""
    reach = embedding.popularity
    return View(
        projection.space,
        projection.manifold,
        # A standard deviation says nothing about the spread of a projection.
        sigma=embedding.sigma if embedding.dim <= 2 else None,
        # Of a directed graph, a node is popular as a sender and as a receiver.
        sizes=None if reach is None else reach.reshape(len(reach), -1).mean(1),
        chart=embedding.chart,
        **more,
    )


def node_places(tree: Tree, ball: PoincareBall, points: Tensor) -> Tensor:
    """Return where nodes lie: at the Fréchet mean of their observations, of which all have equally many."""
    order = np.argsort(tree.node, kind="stable").reshape(len(tree.parent), -1)
    return ball.frechet_mean(points[torch.from_numpy(order)])


def map_picture(
    embedding: Embedding,
    labels: Any,
    title: str | None = None,
    hierarchy: tuple[Tensor, Sequence[tuple[int, int]]] | None = None,
    projection: Projection | None = None,
    label_name: str | None = None,
    wide: bool = False,
    columns: Mapping[str, Any] | None = None,
) -> Picture:
    """Draw the map, projected where it has more than two dimensions, with a hierarchy where there is one: places of
    nodes on the page, and edges.

    Up to 20,000 rows it is interactive where scripts run; it knows labels and other `columns` to colour by, but no ids
    nor the order of the rows.
    """
    projection, chart = projection or embedding.chart.project(embedding.points), embedding.chart
    colours = replace(colouring(labels, len(projection.points)), title=label_name or "")
    known = {} if labels is None else {label_name or "label": labels}
    return _interactive_map(
        (5.2, 4.6),
        lambda axes: latent_map(axes, chart, projection.points, colours, hierarchy=hierarchy, title=title),
        embedding,
        projection,
        "Posterior centres",
        "map of the rows",
        {
            "columns": {**known, **(columns or {})},
            "hierarchy": None if hierarchy is None else (chart.page.to_lorentz(hierarchy[0]), hierarchy[1]),
            "title": title or "",
        },
        wide=wide,
    )


def graph_pictures(graph: Graph, embedding: Embedding, frames: Sequence[Frame], centre: Centre) -> list[Picture]:
    """Draw the map of every factor with its edges, as it is seen from its frame."""
    colours, name = None, f"steps from {graph.names[centre.closest]}"
    values: Any = np.where(np.isfinite(centre.steps), centre.steps, np.nan)
    if graph.labels is not None:
        colours = replace(colouring(graph.labels, graph.n_nodes), title=graph.label_name or "")
        name, values = graph.label_name or "label", graph.labels
    how: dict[str, Any] = {
        "steps": (centre.steps, name) if colours is None else None,
        "names": graph.names,
        "central": list(dict.fromkeys([int(centre.nearest[0]), centre.closest, *map(int, centre.nearest)])),
    }

    def draw(part: Embedding, place: int) -> list[Picture]:
        chart, projection = part.chart, part.chart.project(part.points, frames[place])
        return [
            _interactive_map(
                (6.2, 5.2),
                lambda axes: graph_map(axes, chart, projection.points, graph.edges, colours, **how),
                part,
                projection,
                "Posterior centres of the nodes",
                "map of the graph",
                {"columns": {name: values}, "edges": edges_drawn(graph.edges).T, "title": ""},
                f" Of {graph.n_edges:,} edges {EDGES_DRAWN:,} are drawn, chosen at random."
                if graph.n_edges > EDGES_DRAWN
                else "",
                wide=graph.n_nodes <= LIVE,
            )
        ]

    return by_factor(embedding, draw)


def _interactive_map(
    size: tuple[float, float],
    draw: Callable[[Any], Any],
    embedding: Embedding,
    projection: Projection,
    what: str,
    alt: str,
    view: Mapping[str, Any],
    more: str = "",
    *,
    wide: bool,
) -> Picture:
    """Draw a map, which is interactive too if it has few enough points.

    Arguments:
        size, draw, alt: as of `drawing`.
        embedding, projection: where points lie, and where they are drawn.
        what: is drawn, to begin the caption.
        view: as of `map_view`.
        more: ends the caption.
        wide: it takes a row of its own.
    """
    projected = f" {capital(projection.sentence)}." if embedding.chart.width > 2 else ""
    return drawing(
        size,
        draw,
        f"{what}, {embedding.chart.text()}.{projected}{more}",
        alt,
        tight=False,
        wide=wide,
        live=map_view(embedding, projection, anonymous=True, **view) if len(projection.points) <= LIVE else None,
        name="map",
    )


def capital(sentence: str) -> str:
    """Return the sentence with a capital letter at its beginning."""
    return f"{sentence[0].upper()}{sentence[1:]}"


def row_pictures(
    data: Dataset, embedding: Embedding, frames: Sequence[Frame], columns: Mapping[str, Any] | None = None
) -> list[Picture]:
    """Draw the map of every factor as it is seen from its frame.

    With `columns` to colour by, the map of few rows takes a row of its own, and images stand at their places beside it.
    """

    def draw(part: Embedding, place: int) -> list[Picture]:
        projection = part.chart.project(part.points, frames[place])
        drawn = [
            map_picture(
                part,
                data.labels,
                projection=projection,
                label_name=data.label_name,
                wide=columns is not None and len(data) <= LIVE,
                columns=columns,
            )
        ]
        if columns is not None and len(data.shape) == 2:
            images, chart, places = data.x.reshape(-1, *data.shape), part.chart, projection.points  # never sparse
            drawn.append(
                drawing(
                    (5.2, 5.2),
                    lambda ax: mosaic(ax, chart, places, images, cmap="gray"),
                    "The images at their places.",
                    "images at their embedding",
                    tight=False,
                )
            )
        return drawn

    return by_factor(embedding, draw)


def rows_map_section(
    data: Dataset,
    embedding: Embedding,
    frames: Sequence[Frame],
    orientation: str,
    columns: Mapping[str, Any],
    view_command: str,
) -> Section:
    """Show the map of every factor as it is seen from its frame; `orientation` says how that was chosen."""
    rim = (
        " Distances grow towards the rim: two points near it that look close can be far apart, and the path between "
        "them bends towards the centre."
    )
    product = (
        "The space is a product, with a map for each factor. Distances in it are in units of each factor's prior scale "
        "σ_i, d² = Σ (d_i/σ_i)², since a decoder may stretch every factor freely."
    )
    return Section(
        "The map",
        [
            f"Each point is one row.{rim if any(math.isfinite(one.chart.rim) for one in embedding.placed) else ''}",
            product if len(embedding.placed) > 1 else "",
            orientation,
            f"The map by itself, with ids, search and selection: {view_command}",
        ],
        row_pictures(data, embedding, frames, columns),
    )


def graph_map_section(
    graph: Graph, embedding: Embedding, frames: Sequence[Frame], centre: Centre, orientation: str, view_command: str
) -> Section:
    """Show the map of every factor as it is seen from its frame; `orientation` says how that was chosen."""
    colours = (
        f"Colours are the column {graph.label_name!r}."
        if graph.labels is not None
        else f"Colours are steps along edges from node {graph.names[centre.closest]}, grey where no path leads."
    )
    bent = (
        ": it bends towards the centre, and distances grow towards the rim"
        if any(math.isfinite(factor.chart.rim) for factor in embedding.placed)
        else ""
    )
    marked = (
        "It has a ring; the square marks the node that is second nearest."
        if centre.nearest[0] == centre.closest
        else "The first has a ring, the second a square."
    )
    product = (
        "The space is a product, with a map for each factor. Distances in it join those along the factors, "
        "d² = Σ d_i²; the probability of an edge fixes their scale."
    )
    return Section(
        "The map",
        [
            "From the model that was trained on all edges. Each point is a node, larger where it has more neighbours "
            "(on a map that can be moved, where it is more popular); each line is an edge, drawn as the shortest path "
            f"of the space{bent}. The model expects an edge where nodes are near; long edges, which it did not expect, "
            f"are fainter. {colours}",
            product if len(embedding.placed) > 1 else "",
            orientation,
            f"{capital(centre.sentence(graph))}. {marked}",
            f"The map by itself, with names, search and selection: {view_command}",
        ],
        graph_pictures(graph, embedding, frames, centre),
    )


def likelihood_section(found: Likelihoods | None, figures: str, rows: str, compare_command: str) -> Section:
    """Tabulate the likelihood of held-out rows; `figures` is a sentence about it, and `rows` says which they are."""
    if found is None:
        return Section(
            "Held-out likelihood",
            [figures, "No rows were held out. To compare with curvature 0 and PCA on held-out rows:"],
            command=compare_command,
        )
    return Section(
        "Held-out likelihood",
        [figures, "To compare with the likelihood of curvature 0 and of PCA:"],
        (),
        [
            Table(
                ["units", "log-likelihood, nats a row", "95 % interval"],
                [
                    ["as the model sees them", decimal(found.mean), f"± {found.interval:.2f}"],
                    ["original", decimal(found.original.mean), f"± {found.original.interval:.2f}"],
                ],
                f"{rows}; importance sampling with {found.samples} draws a row, median effective sample size "
                f"{np.median(found.ess):.0f}, median standard error {np.median(found.error):.2g} nats.",
            )
        ],
        command=compare_command,
    )


def training_section(fitted: Fitted, embedding: Embedding, neighbours_reason: str) -> Section:
    """Show how the training went; `neighbours_reason` says why the map is held to neighbourhoods or not."""
    config = fitted.config
    facts = [
        [
            "c·σ0², the part of c and σ0 that the data determine",
            each_factor(fitted, lambda one, _: f"{one.identifiable:.4g}"),
        ],
        ["likelihood", f"{config.likelihood} ({fitted.reason})"],
        ["neighbours", f"{config.neighbours} ({neighbours_reason})"],
    ]
    if config.neighbours != "off":
        kinds = [kind for kind in ("near", "far") if config.neighbours in (kind, "both")]
        weights = (
            f"{weight:.4g} for {kind} rows" for weight, kind in zip(config.neighbour_weights, kinds, strict=True)
        )
        facts += [
            ["neighbourhoods", f"{config.n_neighbours} nearest rows; weight {' and '.join(weights)}"],
            ["what the map misses of them, nats a row", f"{fitted.last['neighbours']:.2f}"],
        ]
    return _training_section(
        fitted, embedding, "row", facts, "Lines are the training rows, dashes the validation rows."
    )


def graph_training_section(fitted: FittedGraph, embedding: Embedding) -> Section:
    """Show how the training of the model of all edges went."""
    config, edges = fitted.config, fitted.model.edges
    probability = "geodesic, p = 1 − tanh d"
    if isinstance(edges, FermiDirac):
        with torch.no_grad():
            radius, temperature = (float(t) for t in edges.numbers())
        probability = f"Fermi–Dirac, radius {radius:.3g}, temperature {temperature:.3g}"
    facts = [["edge model", probability], ["weight of the likelihood", f"{config.weight:g}"]]
    if (reach := embedding.popularity) is not None:
        kinds = ("popularity",) if reach.ndim == 1 else ("popularity as a sender", "popularity as a receiver")
        columns = np.quantile(reach.reshape(len(embedding), -1), [0.0, 0.5, 1.0], axis=0).T
        facts += [
            [f"{kind}: smallest, median, largest", ", ".join(map(decimal, values))]
            for kind, values in zip(kinds, columns, strict=True)
        ]
    if embedding.side is not None:
        facts.append(["side: smallest, largest", ", ".join(map(decimal, (embedding.side.min(), embedding.side.max())))])
    return _training_section(fitted, embedding, "node", facts, "Of the model that was trained on all edges.")


def _training_section(
    fitted: FittedModel, embedding: Embedding, unit: str, facts: Sequence[Sequence[str]], caption: str
) -> Section:
    """Show how a training of any kind went; figures are by `unit`, and `facts` are further rows of the table."""
    last, parts, config = fitted.last, embedding.parts, fitted.config

    def draw_radii(part: Embedding, place: int) -> list[Picture]:
        scale = fitted.figures[place].prior_scale if part.chart.radial else None
        how = {"dim": part.dim, "distribution": config.posterior}
        return [
            drawing(
                (4.2, 2.8),
                lambda axes: radius_histogram(axes, part.radius, part.c, scale, **how),
                f"Distances of the posterior centres from the origin{'' if scale is None else ', and of the prior'}.",
                "histogram of radii",
            )
        ]

    rows = [
        [f"reconstruction, nats a {unit}", decimal(last["reconstruction"])],
        [f"divergence from the prior (KL), nats a {unit}", decimal(last["kl"])],
        [
            "active dimensions",
            each_factor(fitted, lambda one, place: f"{active_dimensions(parts[place], one.prior_scale)} of {one.dim}"),
        ],
        ["curvature", space_text(embedding)],
        ["prior scale σ0", each_factor(fitted, lambda one, _: f"{one.prior_scale:.4g}")],
        *facts,
        [
            "epoch of the weights",
            f"{last['epoch']} of {len(fitted.history)}, the "
            f"{'best on validation rows' if fitted.keeps_best else 'last'}",
        ],
    ]
    drawn = drawing(
        (8, 2.8), lambda axes: curves(axes, fitted.history), caption, "learning curves", 2, wide=True, name="curves"
    )
    return Section("Training", (), [drawn, *by_factor(embedding, draw_radii)], [Table(["quantity", "value"], rows)])


def reconstruction_section(
    fitted: Fitted, data: Dataset, embedding: Embedding, index: NDArray[Any], scores: NDArray[Any], kind: str
) -> Section:
    """Draw the worst, the median and the best by their scores of the rows `index`; `kind` says what these are."""
    order = index[np.argsort(scores)]
    chosen = np.array([order[0], order[len(order) // 2], order[-1]])
    some = data.take(chosen)
    titles = [f"{name}: {row}"[:40] for name, row in zip(("worst", "median", "best"), some.ids, strict=True)]
    originals = some.x if isinstance(some.x, np.ndarray) else some.x.toarray()
    made = fitted.reconstruct(embedding.space[chosen], context=some.context, size=some.exposure)
    caption = f"The {kind} rows with the lowest, median and highest likelihood."
    if fitted.config.scales and len(data.shape) != 2:
        # Columns of other units could not share an axis.
        originals, made = (fitted.scaling.apply(values) for values in (originals, made))
        what = "Every feature" if LIKELIHOODS[fitted.config.likelihood].standardise is True else "Every number"
        caption += f" {what} is shown from its mean, in units of its standard deviation."
    return Section(
        "Reconstructions",
        (),
        [
            drawing(
                (8, 2.4),
                lambda axes: reconstructions(axes, originals, made, data.shape, titles),
                caption,
                "reconstructions",
                3,
                wide=True,
            )
        ],
    )


def samples_picture(images: NDArray[Any]) -> Picture:
    """Draw images side by side."""
    return drawing(
        (4, 4),
        lambda axes: sample_grid(axes, images, cmap="gray"),
        "Expected images at random points of the latent space.",
        "samples",
        tight=False,
    )


def data_section(data: Dataset, notes: Sequence[str] = ()) -> Section:
    """Say what was done to rows."""
    kind = "images of {}×{} pixels".format(*data.shape) if len(data.shape) == 2 else f"{data.n_columns} columns"
    covariates = f"Covariates, given to the decoder: {', '.join(data.context_names)}." if data.context_names else ""
    return Section("What was done to the data", [f"{len(data):,} rows, {kind}.", covariates, *data.notes, *notes])


def scaling_note(config: Config) -> str:
    """Say how columns were scaled for a model with these settings."""
    if not config.scales:
        return "Values were used as they are."
    what = "Columns" if LIKELIHOODS[config.likelihood].standardise is True else "Columns of numbers"
    return f"{what} were centred and scaled to unit variance."


def comparison_section(found: Comparison) -> Section:
    """Tabulate scores by curvature, the chosen one highlighted: of a graph AUC and AP, of rows log-likelihoods and how
    alike the maps are."""
    if isinstance(found, GraphComparison):
        title, of = "Edges kept apart, by curvature", " of the edges"
        header = [f"{part}, {measure} %" for part in ("validation", "test") for measure in ("AUC", "AP")]
        rows = list(_score_rows(found, 1, lambda links: (100 * links.auc, 100 * links.ap)).values())
        note = "c is chosen by the AUC of validation edges, the verdict comes from test edges."
    else:
        title, of = "Held-out likelihood by curvature", ""
        header = ["validation, nats a row", "test, nats a row", "distance agreement", "neighbours in common"]
        alike = {
            c: [f"{one.correlation:.2f}", f"{one.overlap:.0%}"] for c, one in found.stability.items() if one is not None
        }
        rows = [[*row, *alike.get(c, ["", ""])] for c, row in _score_rows(found, 2).items()]
        note = (
            "c is chosen on validation rows, the verdict comes from test rows. Agreement and neighbours in common are "
            "between seeds."
        )
    repeats = f"{len(found.repeats)} repeats, each with its own seed and split{of}; ± is a 95 % interval over repeats."
    if (space := found.config.space) is not None:
        note += (
            f" c is that of the hyperbolic factors of {space}, which are flat with 0: what the flat product has too is "
            "no gain of curvature."
        )
    best = list(found.repeats[0].test).index(found.best) if found.outcome == "hyperbolic" else 0
    return Section(title, (), _profile(found), [Table(["c", *header], rows, f"{repeats} {note}", best)])


def _profile(found: Comparison) -> list[Picture]:
    """Draw the gain of each c·σ0² and the set of the best, if there is one."""
    if (known := found.curvature) is None:
        return []
    profile = [(one.value, found.factor * one.gain, found.factor * one.interval) for one in known.profile]
    return [
        drawing(
            (6, 2.6),
            lambda axes: curvature_profile(axes, profile, known.low, known.high, f"gain, {found.unit}"),
            f"What each c·σ0² gains over 0 on test {found.held_out}, with 95 % intervals over repeats. Shaded is the "
            "set of those that no value compared is significantly better than.",
            "gain by curvature, and the set of the best",
            wide=True,
        )
    ]


def _score_rows(
    found: Comparison | Criterion, digits: int, read: Callable[[Any], Sequence[float]] = lambda score: (score,)
) -> dict[Any, list[str]]:
    """Write the rows of a table of scores by curvature, and under None that of PCA, if it was measured.

    Each has the scores on validation data and on test data, which are the numbers that `read` finds in a score, as
    means over repeats with 95 % intervals.
    """

    def text(figures: Sequence[float]) -> str:
        return " ± ".join(decimal(value, digits) for value in mean_interval(figures))

    rows: dict[Any, list[str]] = {}
    for c in found.repeats[0].test:
        parts = ([read(getattr(repeat, name)[c]) for repeat in found.repeats] for name in ("validation", "test"))
        cells = [text(figures) for scores in parts for figures in zip(*scores, strict=True)]
        rows[c] = ["0 (flat)" if c == 0 else f"{c:g}", *cells]
    if linear := [repeat.pca for repeat in found.repeats if repeat.pca is not None]:
        rows[None] = ["PCA", "", text(linear)]
    return rows


def criterion_section(found: Comparison) -> Section:
    """Tabulate what curvature gains by other measures than the likelihood."""
    tables = [
        Table(
            ["c", f"{one.name}, validation", f"{one.name}, test"],
            list(_score_rows(one, 3).values()),
            f"{one.name.capitalize()}: {one.meaning}. c is chosen by it on validation rows, the test is on test rows; "
            "± is a 95 % interval over repeats.",
            list(one.repeats[0].test).index(one.choice),
        )
        for one in found.criteria
    ]
    return Section(
        "Other criteria",
        [
            *(one.sentence for one in found.criteria),
            f"The test for a hierarchy calls the data {found.structure}." if found.structure else "",
        ],
        (),
        tables,
    )


def diagnosis_section(found: Diagnosis, labels: Any) -> Section:
    """Show scores beside their surrogates, and the dendrogram of the points that were tested."""
    scores, graph = found.scores, found.kind == "graph"
    surrogates = [s.name for s in scores], [s.value for s in scores], [s.surrogates for s in scores]
    known = None if labels is None else labels[found.sample]
    return Section(
        "The test",
        (),
        [
            drawing(
                (8, 0.9 + 0.45 * len(scores)),
                lambda axes: beside_surrogates(axes, *surrogates),
                f"Scores, beside those of surrogates with the same {'degrees' if graph else 'covariance spectrum'}.",
                "scores and surrogates",
                wide=True,
            ),
            drawing(
                (8, 3),
                lambda axes: dendrogram(axes, found.merges, known, "path length" if graph else "distance"),
                "Average linkage. Any points have a dendrogram; the test says what it is worth.",
                "dendrogram",
                wide=True,
            ),
        ],
        [
            Table(
                ["score", "data", "surrogates", "meaning"],
                [[s.name, f"{s.value:.3f}", f"{s.surrogate:.3f}", s.meaning] for s in scores],
                f"p = {found.nesting.p_groups:.2g} for groups, {found.nesting.p_nesting:.2g} for groups of groups: "
                f"{found.nesting.verdict}.",
            )
        ],
    )


def delta_section(found: Diagnosis) -> Section:
    """Tabulate Gromov's δ with its intervals."""
    delta = found.delta
    rows = [
        [name, f"{value:.3g}", f"{delta.relative(value):.3f}", text]
        for name, value, text in (
            ("mean", delta.mean, "{:.3g} to {:.3g}".format(*delta.interval)),
            ("95 % quantile", delta.quantile, "{:.3g} to {:.3g}".format(*delta.quantile_interval)),
            ("largest", delta.largest, "exact")
            if delta.exact
            else ("largest seen", delta.largest, f"≤ {delta.exceeding:.1g} of quadruples are above"),
        )
    ]
    return Section(
        "Gromov's δ",
        ["Half the difference of the two largest sums of opposite distances of four points; 0 in a tree."],
        (),
        [
            Table(
                ["δ of four points", "value", "relative", "95 % interval"],
                rows,
                f"{delta.count:,} quadruples; diameter {delta.diameter:.4g}; relative is 2δ/diameter.",
            )
        ],
    )


# How faithful the map of a run is: measured for reports, and put into words.

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
    """Scale the columns of rows as distances between them need it; return them and a sentence that says so.

    Values of 0 to 1 are left as they are, and so are directions, which do not depend on the lengths of rows.
    """
    if not rows.measures_lengths or choose_likelihood(rows.x, "auto")[0] == "bernoulli":
        return rows, "Values were used as they are."
    scaling = Scaling.standard(rows.x)
    return (
        replace(rows, shift=scaling.shift, scale=scaling.scale),
        "Columns were centred and scaled to unit variance.",
    )


def scaled_table(data: Dataset, metric: Metric = "euclidean") -> tuple[Rows, str]:
    """Scale rows as the test for a hierarchy takes them; return them and how they were scaled."""
    columns = data.schema.columns if data.schema is not None and data.schema.kind == "table" else ()
    return scaled_rows(Rows(data.x, metric, blocks=tuple(len(column.features) for column in columns)))


def filled_rows(data: Dataset) -> Rows:
    """Return rows with scaled columns, and gaps filled with the means of their columns; of counts, logarithms."""
    x = fill(data.x, column_statistics(data.x).mean) if has_missing(data.x) else data.x
    if data.exposure is not None:
        scale = np.median(data.exposure) / np.asarray(data.exposure)
        if issparse(x):
            x = csr_array(x, dtype=np.float64, copy=True)
            np.log1p(x.data * np.repeat(scale, np.diff(x.indptr)), out=x.data)  # products of matrices take more memory
        else:
            x = np.log1p(x * scale[:, None])
    return scaled_rows(Rows(x))[0]


def judge_rows(
    data: Dataset, places: Any, held_out: Any = None, *, seed: int = 0, rows: int = _EXACT, **how: Any
) -> Faithfulness | None:
    """Measure how faithful a map of rows is; None for fewer than 10. Gaps count as the means of their columns.

    Rows with very many columns are sampled sooner, so that they need no more memory.

    Arguments:
        data: the rows.
        places: as of `curvae.maps.faithfulness`, and so are the others.
    """
    if len(data) < FEWEST:
        return None
    return faithfulness(
        filled_rows(data),
        places,
        labels=data.labels,
        held_out=held_out,
        groups=None if data.context is None else group_rows(data.context, FEWEST),
        seed=seed,
        rows=min(rows, max(_FEW, _VALUES // int(data.x.shape[1]))),
        **how,
    )


def describe_covariates(data: Dataset, places: Any, seed: int) -> list[str]:
    """Say which neighbours are counted where rows have covariates, and whether the map shows categorical ones."""
    if data.context is None or data.schema is None:
        return []
    said = []
    if any(column.categories is not None for column in data.schema.covariates):
        said.append("Neighbours are counted among rows of the same categories of covariates.")
    if any(column.categories is None for column in data.schema.covariates):
        said.append("Neighbours are counted in the data with the effects of numeric covariates still in them.")
    for column in data.schema.covariates:
        values = source_columns(data.context, data.schema.covariates)[column.name]
        if column.categories is None or (accuracy := label_accuracy(places, values, seed=seed)) is None:
            continue
        share = np.unique(values, return_counts=True)[1].max() / len(values)
        said.append(
            f"The 5-NN accuracy of the covariate {column.name!r} on the map is {100 * accuracy:.0f} %; without a trace "
            f"of it, that would be about {100 * share:.0f} %, the share of its largest category."
        )
    return said


def _cell(figures: Figures | GraphFigures, name: str) -> str:
    value, half = getattr(figures, name), figures.intervals.get(name)
    if value is None:
        return ""
    return decimal(value, 3) if half is None else f"{decimal(value, 3)} ± {half:.3f}"


def faithful_section(
    found: Faithfulness | GraphFaithfulness | None, more: Sequence[str] = (), things: str = "rows"
) -> Section:
    """Tabulate figures of a map of rows beside those of PCA, or of a graph beside those of a spectral embedding.

    Arguments:
        found: the figures; None if there are too few points.
        more: sentences about them.
        things: what there are too few of, to be judged.
    """
    title = "How faithful is the map?"
    if found is None:
        few = f"There are fewer than {FEWEST} rows" if things == "rows" else f"No component has {FEWEST} {things}"
        return Section(title, [f"{few}, too few to judge a map."])
    columns: dict[str, Any] = {"map": found.map}
    if isinstance(found, GraphFaithfulness):
        columns["spectral embedding"] = found.spectral
        note = (
            f"1 is best everywhere. Near are nodes that are few steps apart along edges, among the {found.nodes:,} of "
            "the largest component, and on the map those by its own distances, without popularity; nodes equally many "
            "steps away may come in any order. The spectral embedding (Laplacian eigenmaps) has "
            f"{found.dim} dimensions too."
        )
        if found.map.intervals:
            note += f" Of {found.map.nodes} random nodes, with 95 % intervals over five groups of these."
    else:
        columns |= {"PCA": found.pca, "held-out rows": found.held_out, "held-out rows, PCA": found.pca_held_out}
        fitted = "all rows" if found.held_out is None else "the rows that are not held out"
        note = (
            "1 is best everywhere. Neighbours in the data are those by Euclidean distances of the scaled columns, or "
            "by path lengths in the graph of the 20 nearest neighbours, whose pieces are joined by their shortest "
            "bridges; on the map, those by its own distances. "
            f"PCA has {found.dim} dimensions too and is fitted to {fitted}. "
            "Trustworthiness and continuity are of 15 neighbours; the 5-NN accuracy is that of five folds."
        )
        if found.held_out is not None:
            note += " Held-out rows took part in no step of training; their neighbours are looked up among the others."
        if found.subset is not None:
            note += (
                f" Means over five random subsets of {found.subset:,} rows with 95 % intervals; among so few, near "
                "neighbours are farther apart than among all."
            )
    shown = {name: one for name, one in columns.items() if one is not None}
    rows = [
        [label, *(_cell(one, name) for one in shown.values())]
        for name, label in _NAMES.items()
        if getattr(found.map, name, None) is not None
    ]
    return Section(title, [found.verdict, *more], (), [Table(["figure", *shown], rows, note)])


def faithful_lines(found: Faithfulness) -> list[str]:
    """Write lines for people: the verdict, and every figure of the map beside that of PCA."""
    held = found.held_out
    return [
        found.verdict,
        *(
            f"  {text} {_cell(found.map, name)}, PCA {_cell(found.pca, name)}"
            + ("" if held is None else f"; held-out rows {_cell(held, name)}")
            for name, text in _NAMES.items()
            if getattr(found.map, name) is not None
        ),
        f"  PCA is fitted to {'all rows' if held is None else 'the rows that are not held out'}",
    ]


# Where several trainings place the same rows.

_PAIRS = 2000  # by which the distance between rows is measured
_FOLLOWED = 60  # rows whose places are drawn


def map_variation(found: AlignedMaps | None) -> dict[str, float] | None:
    """Measure the spread of places: its median and 95 % quantile, and the median distance between rows to compare."""
    if found is None:
        return None
    random, rows = np.random.default_rng(0), len(found.spread)
    first = random.integers(0, rows, _PAIRS)
    second = (first + random.integers(1, max(2, rows), _PAIRS)) % rows
    return {
        "maps": len(found.copies),
        "median": float(np.median(found.spread)),
        "quantile_95": float(np.quantile(found.spread, 0.95)),
        "row_distance": float(np.median(found.first.pairs(first, second))),
    }


def stability_section(
    data: Dataset,
    found: Stability | None,
    aligned: AlignedMaps | None,
    figures: Mapping[str, float] | None,
    frames: Sequence[Frame],
    again: str,
) -> Section:
    """Say how alike the maps of several trainings are, and draw it.

    Every factor is drawn twice: with the places of some rows in all maps, and coloured by the spread.

    Arguments:
        data: the rows.
        found: how alike the maps are; None of a single training.
        aligned, figures: the maps brought onto the first, and the `map_variation` of that.
        frames: from which the factors are drawn.
        again: the command that trains several.
    """
    if found is None:
        return Section(
            "Stability",
            ["There was one training. To see how much of the map depends on the random seed:"],
            command=again,
        )
    text = [
        f"Over {count(found.pairs, 'pair')} of trainings with different seeds the rank correlation of latent distances "
        f"is {found.correlation:.2f}, and {found.overlap:.0%} of the {found.neighbours} nearest neighbours agree."
    ]
    if aligned is None or figures is None:
        return Section(
            "Stability",
            [
                *text,
                "The maps have other curvatures, so no isometry brings them together, and no spread is measured.",
            ],
        )
    text.append(
        f"Brought onto the first by the best isometries, {figures['maps']} maps place half of the rows within "
        f"{figures['median']:.2f} of their mean place (root mean square over maps), and 95 % of them within "
        f"{figures['quantile_95']:.2f}; two rows are {figures['row_distance']:.2f} apart in the median."
    )
    followed = np.sort(np.random.default_rng(0).permutation(len(data))[:_FOLLOWED])
    some = f"{len(followed)} rows, chosen at random" if len(followed) < len(data) else "all rows"
    caption = (
        f"Left: {some}, on this map, and faintly where the maps of the other seeds have them. Right: all rows, "
        "coloured by the spread of their places, the column spread of embedding.csv."
    )

    def draw(part: Embedding, place: int) -> list[Picture]:
        chart, frame = part.chart, frames[place]
        places = chart.place(frame, torch.from_numpy(aligned.parts[place][:, followed]))
        labels: Any = None if data.labels is None else data.labels[followed]
        start, end = (one.reshape(-1, 2) for one in (places[:1].expand_as(places[1:]), places[1:]))

        def draw_both(axes: Any) -> None:
            latent_map(
                axes[0],
                chart,
                places[0],
                labels,
                samples=places[1:].transpose(0, 1),
                title="places of a row in all maps",
            )
            geodesics(axes[0], chart, start, end, colors=RIM, linewidths=0.5, alpha=0.6, zorder=1.5)
            latent_map(axes[1], chart, chart.place(frame, part.points), aligned.spread, title="spread")

        return [drawing((10.4, 4.6), draw_both, caption, "places of rows in all maps, and their spread", 2, wide=True)]

    return Section("Stability", text, by_factor(aligned.first, draw))


# What reports and `curvae explain` say of the columns that change on the way across a map.

_DRIVERS = "What sets the labels apart"
_MOST_LABELS = 30  # for a table in a report
_SHOWN = 3  # columns of a label there


def _change(one: Drivers, i: int) -> str:
    """Write a change with its interval: "+3.2 (+2.8 to +3.5)"."""
    return f"{one.change[i]:+.3g} ({one.change_low[i]:+.3g} to {one.change_high[i]:+.3g})".replace("-", "−")


def driver_lines(start: str, found: Mapping[str, Drivers], names: Sequence[str]) -> list[str]:
    """Write lines for people: the columns that change from `start` to one place, a line each, or those of each label.

    Arguments:
        start: where the ways begin.
        found: what changes on them, by their ends.
        names: of the columns.
    """
    if len(found) > 1:
        return [
            f"{name}: {', '.join(f'{names[j]} {_change(one, i)}' for i, j in enumerate(one.features[:_SHOWN]))}"
            for name, one in found.items()
        ]
    ((name, one),) = found.items()
    return [
        f"from {start} to {name}, distance {one.length:.3g}; change with its 90 % interval:",
        *(
            f"  {names[feature]}: "
            + f"{one.mean[0, i]:.3g} → {one.mean[-1, i]:.3g}".replace("-", "−")
            + f", {_change(one, i)}{'' if one.clear[i] else ', unclear'}"
            for i, feature in enumerate(one.features)
        ),
    ]


def drivers_section(fitted: Fitted, data: Dataset, embedding: Embedding, context: NDArray[np.float64]) -> Section:
    """Tabulate the columns that set the labels apart; the section is empty if there are no labels, or for images."""
    labels = sorted(set([] if data.labels is None else data.labels.tolist()) - {""})
    if data.labels is None or len(data.shape) > 1 or not 2 <= len(labels) <= _MOST_LABELS:
        return Section(_DRIVERS)
    rows = []
    for label in labels:
        places = np.flatnonzero(data.labels == label)
        one = explain(fitted, embedding, places, columns=_SHOWN, steps=2, context=context)
        shown = [f"{data.names[j]} {_change(one, i)}" for i, j in enumerate(one.features)]
        rows.append([label, f"{len(places):,}", *shown, *[""] * (_SHOWN - len(shown))])
    return Section(
        _DRIVERS,
        [
            "What the decoder expects at the Fréchet mean of each label, less what it expects at that of all rows: the "
            "columns that differ most beside their standard deviation. Intervals hold 90 % of the draws of rows of the "
            "label from their posteriors."
        ],
        tables=[Table([data.label_name or "label", "rows", *(f"column {i}" for i in range(1, _SHOWN + 1))], rows)],
    )


# How well hidden edges were found again, by models and by rules that need none.

_TEST_OVER_TRAIN = 10 / 85  # by which the variance over splits is corrected
_TRY = {
    "degree product": "most edges go to few nodes; try a larger dimension or features of the nodes",
    "common neighbours": "try a larger dimension or more epochs",
    "singular vectors": "try a larger dimension, more epochs or features of the nodes",
}


@dataclass(frozen=True)
class LinkFigures:
    """For each split the seed, `validation` with `auc` and `ap`, `test` with what `score_links` tells, and what
    `disconnected` finds."""

    splits: Sequence[dict[str, Any]]

    def figures(self, name: str, rule: str | None = None) -> list[float]:
        """Of every split that has it; of the model, or of a rule."""
        found = (row["test"] if rule is None else row["test"]["baselines"][rule] for row in self.splits)
        return [each[name] for each in found if each[name] is not None]

    def text(self, name: str, rule: str | None = None) -> str:
        """Write a figure in percent, with its interval where there are several splits."""
        values = self.figures(name, rule=rule)
        if len(values) < 2:
            return f"{100 * values[0]:.1f} %" if values else "–"
        mean, half = mean_interval(values)
        return f"{100 * mean:.1f} ± {100 * half:.1f} %"

    @property
    def best_rule(self) -> str:
        """With the highest AUC."""
        return max(BASELINES, key=lambda rule: float(np.mean(self.figures("auc", rule=rule))))

    @property
    def standing(self) -> int:
        """Whether the AUC of the models is higher (1) or lower (−1) than that of the best rule, on several splits
        significantly, or neither (0)."""
        gains = np.subtract(self.figures("auc"), self.figures("auc", rule=self.best_rule)).tolist()
        if len(gains) < 2:
            return int(np.sign(gains[0]))
        return {"hyperbolic": 1, "none": 0, "euclidean": -1}[Paired(gains, _TEST_OVER_TRAIN).outcome]

    def to_json(self) -> dict[str, Any]:
        """Return every figure with its mean over splits, as JSON values."""
        names = [name for name in _FIGURES if name in self.splits[0]["test"]] if self.splits else ["auc", "ap"]
        found: dict[str, Any] = {"splits": list(self.splits), **self._means(names)}
        if self.splits:
            found["baselines"] = {rule: self._means(names, rule) for rule in BASELINES}
            found |= {"best_baseline": self.best_rule, "beats_baselines": self.standing > 0}
        return found

    def _means(self, names: Sequence[str], rule: str | None = None) -> dict[str, float | None]:
        found: dict[str, float | None] = {}
        for name in names:
            values = self.figures(name, rule=rule)
            found[name] = float(np.mean(values)) if values else None
            found[f"{name}_interval"] = mean_interval(values)[1] if len(values) > 1 else None
        return found


def ranking_sentence(links: LinkFigures) -> str:
    """Say in plain words how well the models find hidden edges, beside the best rule."""
    rule = links.best_rule
    own, other = (100 * np.mean(links.figures("auc", rule=name)) for name in (None, rule))
    better = {1: "the model is better", 0: "no clear difference", -1: "the rule is better"}[links.standing]
    return (
        f"The model ranks a hidden edge above a pair of nodes without an edge in {own:.0f} % of cases; the best rule "
        f"without a model, {rule}, in {other:.0f} % ({better})."
    )


def against_rules(links: LinkFigures) -> str:
    """Say in one sentence whether the models are worth their training."""
    rule = links.best_rule
    both = f"AUC {links.text('auc')} of the model against {links.text('auc', rule)}"
    return (
        f"Better than rules without a model, of which {rule} is the best: {both}."
        if links.standing > 0
        else f"No better than a rule without a model, {rule}, at finding hidden edges: {both}; {_TRY[rule]}."
    )


def remark(found: dict[str, Any]) -> str | None:
    """Say that a model is no better than the best rule, from what `score_links` tells; else return None."""
    links = LinkFigures([{"test": found}])
    return None if links.standing > 0 else f"no better than {links.best_rule}, without a model; {_TRY[links.best_rule]}"


_FIGURES = {
    "auc": "AUC",
    "ap": "average precision",
    "auc_matched": "AUC, equal degrees",
    "ap_matched": "average precision, equal degrees",
    "direction": "direction",
}


def beside_comparison(graph: Graph, found: GraphComparison) -> tuple[Table, list[str]]:
    """Tabulate the rules on the splits of a comparison, and warn if no curvature is better than the best of them."""
    best = max(found.repeats[0].test, key=lambda c: float(np.mean([one.test[c].auc for one in found.repeats])))
    splits = []
    for one in found.repeats:
        rules = link_baselines(graph, split_edges(graph, seed=one.seed), found.config.dim)
        baselines = {rule: vars(figures) for rule, figures in rules.items()}
        splits.append({"test": {**vars(one.test[best]), "baselines": baselines}})
    links = LinkFigures(splits)
    rule = links.best_rule
    table = Table(
        ["rule without a model", "test, AUC", "test, AP"],
        [[name, links.text("auc", name), links.text("ap", name)] for name in BASELINES],
        "On the same test edges and other pairs.",
    )
    if np.mean(links.figures("auc")) > np.mean(links.figures("auc", rule=rule)):
        return table, []
    both = f"AUC {links.text('auc')} at best against {links.text('auc', rule)}"
    return table, [
        f"no space is better than a rule without a model, {rule}, at finding hidden edges: {both}; {_TRY[rule]}"
    ]


LINKS = "links.csv"  # file of a run with the likeliest missing edges

_LISTED = 10  # of them in a report


@dataclass(frozen=True)
class Centre:
    """The middle of the map and of the graph.

    Arguments:
        nearest: nodes by their distance from the centre of the map, the nearest first.
        closest: the node of the highest closeness in the graph.
        steps: from there, infinite where there is no path.
    """

    nearest: NDArray[np.intp]
    closest: int
    steps: NDArray[np.float64]

    def sentence(self, graph: Graph) -> str:
        first, name = self.nearest[0], graph.names[self.closest]
        middle = f"nearest to the centre of the map is node {graph.names[first]}"
        if first == self.closest:
            return f"{middle}, which is also the most central of the graph (closeness)"
        far = self.steps[first]
        away = f"{far:.0f} step{'' if far == 1 else 's'} from it" if math.isfinite(far) else "in another component"
        return f"{middle}; the most central of the graph (closeness) is {name}, {away}"


def disconnected(graph: Graph, split: EdgeSplit) -> dict[str, float]:
    """Measure what was lost with the hidden edges: the share of test edges that join parts which training edges leave
    `apart`, and the shares of test edges and of the pairs beside them with an end that is left `alone`, without any."""
    parts = Graph(graph.names, split.train, directed=graph.directed).components
    alone = np.bincount(split.train.ravel(), minlength=graph.n_nodes) == 0
    return {
        "apart": float((parts[split.test[:, 0]] != parts[split.test[:, 1]]).mean()),
        "alone": float(alone[split.test].any(1).mean()),
        "alone_absent": float(alone[split.test_absent].any(1).mean()),
    }


_PRECISION = (
    "The nodes nearest to a node on the map are its neighbours in the graph with mean average precision {:.3f} (1 is "
    "best)."
)


def verdict(links: LinkFigures, near: Neighbourhood, faithful: GraphFaithfulness | None, accuracy: float | None) -> str:
    """Say what was found, in two or three plain sentences."""
    found = [
        ranking_sentence(links) if links.splits else _PRECISION.format(near.map),
        "" if faithful is None else faithful.verdict,
        "" if accuracy is None else f"The 5-NN accuracy of the labels on the map is {accuracy:.0%}.",
    ]
    return " ".join(filter(None, found))


def details(graph: Graph, embedding: Embedding, links: LinkFigures, near: Neighbourhood) -> str:
    """Write the figures behind the verdict, and what to try if a rule finds hidden edges as well."""
    size = f"{graph.n_nodes:,} nodes and {graph.n_edges:,} edges on {place_text(embedding)}."
    if not links.splits:
        return size
    found = [
        size,
        _PRECISION.format(near.map),
        f"Hidden edges: AUC {links.text('auc')}, average precision {links.text('ap')}; against pairs whose nodes "
        f"have as many edges, where popularity alone gives 50 %, AUC {links.text('auc_matched')}.",
        f"The direction is right for {links.text('direction')} of the hidden edges." if graph.directed else "",
        "" if links.standing > 0 else f"To find more of them: {_TRY[links.best_rule]}.",
    ]
    return " ".join(filter(None, found))


def links_section(
    graph: Graph, links: LinkFigures, near: Neighbourhood, compare: str, popular: bool = False
) -> Section:
    """Tabulate every figure beside the model that it comes from."""
    asked = f"a random sample of {near.asked:,} nodes" if near.sampled else f"all {near.asked:,} nodes with an edge"
    own = f"the model of the map, trained on all edges; {asked}"
    rows = [
        ["neighbourhoods on the map, mean average precision", f"{near.map:.3f}", own],
        ["neighbourhoods on the map, mean rank", f"{near.rank:.1f}", own],
    ]
    text = [
        "Mean average precision of neighbourhoods asks whether the nodes nearest to a node on the map are its "
        "neighbours in the graph: 1 when they always come first. Mean rank is 1 plus the number of nodes that are "
        "not neighbours but nearer than a neighbour, averaged over neighbours: 1 is best. Both say how well the map "
        "shows the graph, and predict nothing.",
        "Near means by distance less popularity: a popular node is near more nodes than its place tells."
        if popular
        else "",
    ]
    tables: list[Table] = []
    if links.splits:
        others = f"{count(len(links.splits), 'other model')}, each trained on 85 % of the edges"
        figures = {
            "hidden edges, AUC": "auc",
            "hidden edges, average precision": "ap",
            **({"direction of hidden edges, share that is right": "direction"} if graph.directed else {}),
        }
        rows = [[label, links.text(name), others] for label, name in figures.items()] + rows
        text = [
            against_rules(links),
            "AUC and average precision ask whether 10 % of the edges, hidden from the training, lie nearer than as "
            "many pairs that are not joined: 50 % is chance.",
            "Rules without a model are judged on the same pairs: the product of the degrees of two nodes, the number "
            "of their common neighbours, and their entry in the best approximation of the adjacency matrix by singular "
            "vectors. A model that does not beat them has not earned its training. Pairs of equal degrees have nodes "
            "with as many training edges as those of the hidden edges: being popular then tells nothing, and the "
            "degree product is at 50 %.",
            *text,
            *_describe_hidden_edges(graph, links),
        ]
        tables = _link_tables(links)
    elif graph.is_forest:
        text.append(drawn_sentence(graph))
    note = "± is a 95 % interval over splits (Student's t)." if len(links.splits) > 1 else ""
    return Section(
        "How well edges are found",
        [*text, "Whether another curvature, or none, is better, on edges kept apart:"],
        (),
        [Table(["figure", "value", "model"], rows, note), *tables],
        command=compare,
    )


def missing_section(missing: pd.DataFrame, directed: bool) -> Section:
    """Tabulate the first of the likeliest missing edges."""
    shown = missing.head(_LISTED)
    way = " from the source to the target" if directed else ""
    text = (
        f"{LINKS} lists the {count(len(missing), 'pair')} of nodes without an edge that the model of the map finds "
        f"likeliest to have one{way}. It was trained on all edges, with these pairs as examples of nodes without one."
    )
    table = Table(
        list(missing.columns),
        [[a, b, f"{p:.3f}"] for a, b, p in shown.itertuples(index=False)],
        f"The first {len(shown)}." if len(shown) < len(missing) else "",
    )
    return Section("Likely missing edges", [text], (), [table])


def _link_tables(links: LinkFigures) -> list[Table]:
    """Tabulate the models and rules on the same hidden edges, and then the models of every split."""
    names = {name: label for name, label in _FIGURES.items() if name in links.splits[0]["test"]}
    found = {"the models": None, **{rule: rule for rule in BASELINES}}
    rules = [[label, *(links.text(name, rule) for name in names)] for label, rule in found.items()]
    measured = [(part, name) for part in ("validation", "test") for name in ("AUC", "AP")]
    rows = [
        [
            f"{row['seed']}",
            *(f"{100 * row[part][name.lower()]:.1f}" for part, name in measured),
            f"{row['apart']:.0%}",
            f"{row['alone']:.0%}",
        ]
        for row in links.splits
    ]
    return [
        Table(
            ["hidden edges found by", *names.values()],
            rules,
            "Rules know the training edges of the models; there are as many singular vectors as dimensions.",
        ),
        Table(
            ["seed of the split", *(f"{part} {name}, %" for part, name in measured), "ends apart", "an end alone"],
            rows,
            "Validation edges, 5 %, were hidden too and decided at most when a training ended; hidden edges above "
            "are test edges.",
        ),
    ]


def _describe_hidden_edges(graph: Graph, links: LinkFigures) -> list[str]:
    """Say what is asked of the direction of edges, what hiding edges did to the graph, and so what AUC can tell."""
    shares = {
        name: f"{np.mean([row[name] for row in links.splits]):.0%}" for name in ("apart", "alone", "alone_absent")
    }
    share = f"{shares['apart']} of the hidden edges join parts of the graph that the other edges leave apart"
    return [
        "The direction is right where the model finds the hidden edge likelier than one back; edges that run both "
        "ways are left out. Rules are in their directed form: the number of edges from the first node times that of "
        "edges to the second, the number of paths of two edges, and singular vectors of the matrix of directed edges."
        if graph.directed
        else "",
        f"The graph is {_tree(graph)}: whatever edge is taken out, its ends fall into two parts, and the training "
        f"edges do not say where these lie relative to each other. So {share}, and an AUC far from 100 % is a property "
        "of the task, not of the map; against pairs of equal degrees expect about 50 % of any method without features."
        if graph.is_forest
        else f"{share}. The training edges do not say where these parts lie relative to each other.",
        f"{shares['alone']} of the hidden edges, and {shares['alone_absent']} of the pairs beside them, have "
        "an end that no training edge touches. The more these shares differ, the more AUC depends on where such nodes "
        "are put, in the middle or at the rim.",
    ]


def _tree(graph: Graph) -> str:
    """Name a graph without a circle."""
    return "a tree" if graph.components.max() == 0 else "a forest"


def comparison_warnings(graph: Graph) -> list[str]:
    """Warn of what a comparison by hidden edges cannot tell of a tree or forest."""
    if not graph.is_forest or graph.features is not None:
        return []
    return [
        f"the graph is {_tree(graph)}: no model can know where a hidden edge was, so that a comparison by hidden edges "
        "says little; draw it in each space with curvae graph and compare mean average precisions"
    ]


def drawn_sentence(graph: Graph) -> str:
    """Say why no edge of a tree or forest is hidden by default."""
    return (
        f"The graph is {_tree(graph)} and is drawn as it is, no edge hidden: without one of its edges it falls apart, "
        "and nothing tells where the edge was."
    )


def graph_data_section(graph: Graph, config: GraphConfig) -> Section:
    """Say what was done to a graph for a model with these settings."""
    balanced, features = config.pairs == "balanced", graph.features
    how = "divided by one number, for they are sparse" if issparse(features) else "centred and scaled to unit variance"
    weights = (
        "Weights are intensities: an edge of twice the mean weight counts as two edges."
        if balanced
        else "Whether there is an edge is what is modelled, whatever its weight.",
        "Weights also say how much a node hears of each neighbour.",
    )
    pairs = ""
    if balanced:
        pairs = (
            "Each step was fitted to the edges and as many random pairs that are not joined, between nodes that have "
            "an edge; of a node without one nothing is known."
        )
    elif not exact(graph.n_nodes, listed(config)):
        pairs = "The graph is too large to look at all pairs of nodes: each step looked at a weighted sample."
    return Section(
        "What was done to the data",
        [
            f"{graph.n_nodes:,} nodes, {graph.n_edges:,} edges.",
            *(capital(note) for note in graph.notes),
            *(() if graph.weights is None else weights),
            "" if features is None else f"{count(len(graph.feature_names), 'feature')} were {how}.",
            pairs,
        ],
    )
