"""Pictures and pages of runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from ..data import Dataset, Schema, Tree
from ..data.dataset import Scaling, column_means, fill, has_missing, source_columns
from ..data.dataset import places as gaps
from ..data.files import count, decimal
from ..geometry import PoincareBall
from ..geometry.frames import Frame
from ..hierarchy import (
    Diagnosis,
    Drivers,
    Faithfulness,
    Figures,
    GraphFaithfulness,
    GraphFigures,
    Rows,
    explain,
    faithfulness,
)
from ..maps.charts import Projection
from ..maps.embedding import Embedding
from ..maps.faithfulness import FEWEST, label_accuracy
from ..maps.orientation import AlignedMaps
from ..maps.statistics import mean_interval
from ..models import LIKELIHOODS
from ..models.likelihoods import choose_likelihood
from ..nn.space import FactorFigures
from ..plotting import (
    beside_surrogates,
    curves,
    dendrogram,
    figure_bytes,
    geodesics,
    latent_map,
    mosaic,
    radius_histogram,
    reconstructions,
    sample_grid,
)
from ..plotting.disc import RIM
from ..plotting.style import colouring
from ..report import Picture, Section, Table
from ..training.comparison import Comparison, Criterion
from ..training.config import Config
from ..training.evaluate import Likelihoods, Stability, active_dimensions
from ..training.fitted import Fitted, FittedModel
from ..viewer import View

__all__ = [
    "LIVE",
    "Explained",
    "by_factor",
    "capital",
    "comparison_section",
    "criterion_section",
    "curvature_table",
    "data_section",
    "delta_section",
    "describe_covariates",
    "diagnosis_section",
    "driver_lines",
    "driver_sections",
    "each_factor",
    "faithful_lines",
    "faithful_section",
    "filled_rows",
    "graph_section",
    "judge_rows",
    "likelihood_section",
    "map_files",
    "map_picture",
    "map_section",
    "map_view",
    "movable_map",
    "node_places",
    "picture",
    "place_text",
    "reconstruction_section",
    "scaled_rows",
    "space_text",
    "spread_figures",
    "spread_pictures",
    "spread_text",
    "stability_section",
    "training_of",
    "training_section",
]


# What reports say and show of the factors of a latent space: of the one, or of each in a product.


def space_text(embedding: Embedding) -> str:
    """Curvatures: "c = 1 (curvature −1)", or of a product "h1: c = 1 (curvature −1), e2: flat"."""
    if len(embedding.placed) == 1:
        return embedding.chart.text()
    return ", ".join(f"{factor.name}: {factor.chart.text(alone=False)}" for factor in embedding.placed)


def place_text(embedding: Embedding) -> str:
    """Where rows are, for a sentence: "a map of 2 dimensions, c = 1 (curvature −1)"."""
    if len(embedding.placed) == 1:
        return f"a map of {count(embedding.dim, 'dimension')}, {space_text(embedding)}"
    factors = (f"{one.name} ({count(one.dim, 'dimension')}, {one.chart.summary})" for one in embedding.placed)
    return f"a product of {' and '.join(factors)}"


def by_factor(embedding: Embedding, draw: Callable[[Embedding, int], Sequence[Picture]]) -> list[Picture]:
    """Pictures of every factor, which `draw` makes of the embedding in the factor and its place in the product.

    In a product their captions begin with the factor.
    """
    drawn = [(part, draw(part, place)) for place, part in enumerate(embedding.parts)]
    if len(drawn) == 1:
        return list(drawn[0][1])
    return [
        replace(one, caption=f"Factor {part.placed[0].name}. {one.caption}", alt=f"{one.alt}, {part.placed[0].name}")
        for part, pictures in drawn
        for one in pictures
    ]


def map_files(embedding: Embedding, section: Section) -> dict[str, Picture]:
    """The maps of a section by the names of their files: "map", or of a product "map-h1", "map-e2"."""
    maps = section.pictures[:: len(section.pictures) // len(embedding.placed)]
    names = [f"map-{factor.name}" for factor in embedding.placed] if len(maps) > 1 else ["map"]
    return dict(zip(names, maps, strict=True))


def each_factor(fitted: FittedModel, text: Callable[[FactorFigures, int], str]) -> str:
    """A text about the one factor, or about every factor of a product after its name."""
    texts = {one.name: text(one, place) for place, one in enumerate(fitted.figures)}
    return ", ".join(f"{name}: {said}" if len(texts) > 1 else said for name, said in texts.items())


LIVE = 20_000  # rows up to which a report holds a map that can be moved


def picture(figure: Figure, caption: str, alt: str, wide: bool = False) -> Picture:
    return Picture(figure_bytes(figure), caption, alt, wide)


def map_view(embedding: Embedding, projection: Projection, **more: Any) -> View:
    """The map to be moved; `more` as for `View`, with points in coordinates of the page."""
    if (hierarchy := more.pop("hierarchy", None)) is not None:
        more["hierarchy"] = embedding.chart.page.to_lorentz(hierarchy[0]), hierarchy[1]
    # A standard deviation says nothing about the spread of a projection.
    sigma = embedding.sigma if embedding.dim <= 2 else None
    sizes = embedding.popularity
    if sizes is not None and sizes.ndim > 1:  # as a sender and as a receiver
        sizes = sizes.mean(1)
    return View(projection.space, projection.manifold, sigma=sigma, sizes=sizes, chart=embedding.chart, **more)


def node_places(tree: Tree, ball: PoincareBall, points: Tensor) -> Tensor:
    """Where nodes lie: at the Fréchet mean of their observations, of which all have equally many."""
    order = np.argsort(tree.node, kind="stable").reshape(len(tree.parent), -1)
    return ball.frechet_mean(points[torch.from_numpy(order)])


def map_picture(
    embedding: Embedding,
    labels: Any,
    title: str | None = None,
    tree: Tree | None = None,
    projection: Projection | None = None,
    label_name: str | None = None,
    wide: bool = False,
    columns: Mapping[str, Any] | None = None,
) -> Picture:
    """The map, projected where it has more than two dimensions, with the true hierarchy where it is known.

    Of up to 20,000 rows it can be moved where scripts run; it knows labels and other `columns` to colour by, but no ids
    nor the order of the rows.
    """
    figure = Figure(figsize=(5.2, 4.6))
    projection, chart = projection or embedding.chart.project(embedding.points), embedding.chart
    hierarchy = None if tree is None else (node_places(tree, chart.page, projection.points), tree.edges)
    colours = replace(colouring(labels, len(projection.points)), title=label_name or "")
    latent_map(figure.subplots(), chart, projection.points, colours, hierarchy=hierarchy, title=title)
    known = {} if labels is None else {label_name or "label": labels}
    view: dict[str, Any] = {"columns": {**known, **(columns or {})}, "hierarchy": hierarchy, "title": title or ""}
    return movable_map(figure, embedding, projection, "rows", "Posterior centres", wide=wide, **view)


def movable_map(
    figure: Figure,
    embedding: Embedding,
    projection: Projection,
    things: str,
    what: str,
    more: str = "",
    *,
    wide: bool,
    **view: Any,
) -> Picture:
    """A drawn map, with the same as a map that can be moved if it has few enough points.

    Arguments:
        figure: the drawing.
        embedding, projection: where points lie, and where they are drawn.
        things: that points are.
        what: is drawn, to begin the caption.
        more: ends the caption.
        wide: it takes a row of its own.
        view: as of `map_view`.
    """
    caption = f"{what}, {embedding.chart.text()}."
    if embedding.dim > 2:
        caption += f" {capital(projection.sentence)}."
    live = map_view(embedding, projection, anonymous=True, **view) if len(projection.points) <= LIVE else None
    return replace(picture(figure, caption + more, f"map of the {things} on the disc", wide), live=live)


def capital(sentence: str) -> str:
    """With a capital letter at its beginning."""
    return f"{sentence[0].upper()}{sentence[1:]}"


def map_section(
    data: Dataset,
    embedding: Embedding,
    frames: Sequence[Frame],
    orientation: str,
    columns: Mapping[str, Any],
    view_command: str,
) -> Section:
    """The map of every factor as it is seen from its frame; `orientation` says how that was chosen."""

    def draw(part: Embedding, place: int) -> list[Picture]:
        projection = part.chart.project(part.points, frames[place])
        shown: dict[str, Any] = {"label_name": data.label_name, "wide": len(data) <= LIVE, "columns": columns}
        drawn = [map_picture(part, data.labels, projection=projection, **shown)]
        if len(data.shape) == 2:
            figure = Figure(figsize=(5.2, 5.2))
            images = data.x.reshape(-1, *data.shape)  # images are never sparse
            mosaic(figure.subplots(), part.chart, projection.points, images, cmap="gray")
            drawn.append(picture(figure, "The images at their places.", "images at their embedding"))
        return drawn

    curved = any(factor.c for factor in embedding.placed)
    rim = (
        " Distances grow towards the rim: two points near it that look close can be far apart, and the path between "
        "them bends towards the centre."
    )
    text = [
        f"Each point is one row.{rim if curved else ''}",
        orientation,
        f"The map by itself, with ids, search and selection: {view_command}",
    ]
    if len(embedding.placed) > 1:
        text.insert(
            1,
            "The space is a product, with a map for each factor. Distances in it are in units of each factor's prior "
            "scale σ_i, d² = Σ (d_i/σ_i)², since a decoder may stretch every factor freely.",
        )
    return Section("The map", text, by_factor(embedding, draw))


def likelihood_section(found: Likelihoods | None, figures: str, rows: str, compare_command: str) -> Section:
    """The likelihood of held-out rows, if there are any; `figures` is a sentence about it, and `rows` says which."""
    if found is None:
        text = [figures, "No rows were held out. To compare with curvature 0 and PCA on held-out rows:"]
        return Section("Held-out likelihood", text, command=compare_command)
    table = Table(
        ["units", "log-likelihood, nats a row", "95 % interval"],
        [
            ["as the model sees them", decimal(found.mean), f"± {found.interval:.2f}"],
            ["original", decimal(found.original.mean), f"± {found.original.interval:.2f}"],
        ],
        f"{rows}; importance sampling with {found.samples} draws a row, median effective sample size "
        f"{np.median(found.ess):.0f}, median standard error {np.median(found.error):.2g} nats.",
    )
    return Section(
        "Held-out likelihood",
        [figures, "To compare with the likelihood of curvature 0 and of PCA:"],
        (),
        [table],
        command=compare_command,
    )


def training_section(fitted: Fitted, embedding: Embedding, neighbours_reason: str) -> Section:
    """How the training went; `neighbours_reason` says why the map is held to neighbourhoods of the data, or not."""
    facts = [
        [
            "c·σ0², the part of c and σ0 that the data determine",
            each_factor(fitted, lambda one, _: f"{one.identifiable:.4g}"),
        ],
        ["likelihood", f"{fitted.config.likelihood} ({fitted.reason})"],
        *_neighbour_facts(fitted, neighbours_reason),
    ]
    return training_of(fitted, embedding, "row", facts, "Lines are the training rows, dashes the validation rows.")


def _neighbour_facts(fitted: Fitted, reason: str) -> list[list[str]]:
    """How the map was held to the neighbourhoods of the data, if it was, and why."""
    config = fitted.config
    asked = ["neighbours", f"{config.neighbours} ({reason})"]
    if config.neighbours == "off":
        return [asked]
    kinds = [kind for kind in ("near", "far") if config.neighbours in (kind, "both")]
    weights = (f"{weight:.4g} for {kind} rows" for weight, kind in zip(config.neighbour_weights, kinds, strict=True))
    return [
        asked,
        ["neighbourhoods", f"{config.n_neighbours} nearest rows; weight {' and '.join(weights)}"],
        ["what the map misses of them, nats a row", f"{fitted.last['neighbours']:.2f}"],
    ]


def training_of(
    fitted: FittedModel, embedding: Embedding, unit: str, facts: Sequence[Sequence[str]], caption: str
) -> Section:
    """How a training of any kind went; figures are by `unit`, and `facts` are rows of the table besides."""
    figure = Figure(figsize=(8, 2.8), layout="constrained")
    curves(figure.subplots(1, 2), fitted.history)
    last, parts = fitted.last, embedding.parts
    kept = "best on validation rows" if fitted.keeps_best else "last"

    def radii(part: Embedding, place: int) -> list[Picture]:
        radius, distribution = Figure(figsize=(4.2, 2.8), layout="constrained"), fitted.config.posterior
        scale = fitted.figures[place].prior_scale if part.chart.radial else None
        radius_histogram(radius.subplots(), part.radius, part.c, scale, dim=part.dim, distribution=distribution)
        caption = "Distances of the posterior centres from the origin, and the prior's."
        return [picture(radius, caption, "histogram of radii")]

    def active(one: FactorFigures, place: int) -> str:
        return f"{active_dimensions(parts[place], one.prior_scale)} of {one.dim}"

    rows = [
        [f"reconstruction, nats a {unit}", decimal(last["reconstruction"])],
        [f"divergence from the prior (KL), nats a {unit}", decimal(last["kl"])],
        ["active dimensions", each_factor(fitted, active)],
        ["curvature", space_text(embedding)],
        ["prior scale σ0", each_factor(fitted, lambda one, _: f"{one.prior_scale:.4g}")],
        *facts,
        [
            "epoch of the weights",
            f"{last['epoch']} of {len(fitted.history)}, the {kept}",
        ],
    ]
    pictures = [
        picture(figure, caption, "learning curves", wide=True),
        *by_factor(embedding, radii),
    ]
    return Section("Training", (), pictures, [Table(["quantity", "value"], rows)])


def reconstruction_section(
    fitted: Fitted, data: Dataset, embedding: Embedding, index: NDArray[Any], scores: NDArray[Any], kind: str
) -> Section:
    """The worst, the median and the best by their scores of the rows `index`; `kind` says what these are."""
    order = index[np.argsort(scores)]
    chosen = np.array([order[0], order[len(order) // 2], order[-1]])
    figure = Figure(figsize=(8, 2.4), layout="constrained")
    titles = [f"{name}: {data.ids[i]}"[:40] for name, i in zip(("worst", "median", "best"), chosen, strict=True)]
    rows = data.x[chosen]
    originals = rows if isinstance(rows, np.ndarray) else rows.toarray()
    size = None if data.exposure is None else data.exposure[chosen]
    context = None if data.context is None else data.context[chosen]
    made = fitted.reconstruct(embedding.space[chosen], context=context, size=size)
    caption = f"The {kind} rows with the lowest, median and highest likelihood."
    if fitted.config.scales and len(data.shape) != 2:
        # Columns of other units could not share an axis.
        originals, made = (fitted.scaling.apply(values) for values in (originals, made))
        what = "Every feature" if _scales_all(fitted.config) else "Every number"
        caption += f" {what} is shown from its mean, in units of its standard deviation."
    reconstructions(figure.subplots(1, 3), originals, made, data.shape, titles)
    return Section("Reconstructions", (), [picture(figure, caption, "reconstructions", wide=True)])


def samples_picture(images: NDArray[Any]) -> Picture:
    figure = Figure(figsize=(4, 4))
    sample_grid(figure.subplots(), images, cmap="gray")
    return picture(figure, "Expected images at random points of the latent space.", "samples")


def data_section(data: Dataset, notes: Sequence[str] = ()) -> Section:
    kind = "images of {}×{} pixels".format(*data.shape) if len(data.shape) == 2 else f"{data.n_columns} columns"
    told = [f"Covariates, given to the decoder: {', '.join(data.context_names)}."] if data.context_names else []
    return Section("What was done to the data", [f"{len(data)} rows, {kind}.", *told, *data.notes, *notes])


def _scales_all(config: Config) -> bool:
    """Whether all columns are standardised, if any are."""
    return LIKELIHOODS[config.likelihood].standardise is True


def scaling_note(config: Config) -> str:
    if not config.scales:
        return "Values were used as they are."
    what = "Columns" if _scales_all(config) else "Columns of numbers"
    return f"{what} were centred and scaled to unit variance."


def comparison_section(found: Comparison, title: str = "Held-out likelihood by curvature") -> Section:
    """Log-likelihoods by curvature, and how alike the maps are."""

    def interval(figures: Sequence[float]) -> str:
        return " ± ".join(map(decimal, mean_interval(figures)))

    def cells(c: float) -> list[str]:
        stable = found.stability[c]
        scores = [interval([getattr(r, part)[c] for r in found.repeats]) for part in ("validation", "test")]
        return [*scores, *(["", ""] if stable is None else [f"{stable.correlation:.2f}", f"{stable.overlap:.0%}"])]

    linear = [r.pca for r in found.repeats if r.pca is not None]
    note = (
        "c is chosen on validation rows, the verdict comes from test rows. Agreement and neighbours in common are "
        "between seeds."
    )
    header = ["validation, nats a row", "test, nats a row", "distance agreement", "neighbours in common"]
    table = curvature_table(found, header, cells, "", note, [["PCA", "", interval(linear), "", ""]] if linear else [])
    return Section(title, (), (), [table])


def curvature_table(
    found: Comparison,
    header: Sequence[str],
    cells: Callable[[float], list[str]],
    of: str,
    note: str,
    more: Sequence[Sequence[str]] = (),
) -> Table:
    """A row for every curvature of a comparison, with its `cells`, and `more` rows; `of` says what was split."""
    values = list(found.repeats[0].test)
    rows = [["0 (flat)" if c == 0 else f"{c:g}", *cells(c)] for c in values]
    repeats = f"{len(found.repeats)} repeats, each with its own seed and split{of}; ± is a 95 % interval over repeats."
    best = values.index(found.best) if found.outcome == "hyperbolic" else 0
    if (space := found.config.space) is not None:
        note += (
            f" c is that of the hyperbolic factors of {space}, which are flat with 0: what the flat product has too is "
            "no gain of curvature."
        )
    return Table(["c", *header], [*rows, *more], f"{repeats} {note}", best)


def diagnosis_section(found: Diagnosis, labels: Any) -> Section:
    """Scores beside their surrogates, and the dendrogram of the points that were tested."""
    scores = found.scores
    beside = Figure(figsize=(8, 0.9 + 0.45 * len(scores)), layout="constrained")
    beside_surrogates(
        beside.subplots(), [s.name for s in scores], [s.value for s in scores], [s.surrogates for s in scores]
    )
    tree = Figure(figsize=(8, 3), layout="constrained")
    known = None if labels is None else labels[found.sample]
    dendrogram(tree.subplots(), found.merges, known, "path length" if found.kind == "graph" else "distance")
    kept = "degrees" if found.kind == "graph" else "covariance spectrum"
    pictures = [
        picture(
            beside, f"Scores, beside those of surrogates with the same {kept}.", "scores and surrogates", wide=True
        ),
        picture(
            tree, "Average linkage. Any points have a dendrogram; the test says what it is worth.", "dendrogram", True
        ),
    ]
    table = Table(
        ["score", "data", "surrogates", "meaning"],
        [[s.name, f"{s.value:.3f}", f"{s.surrogate:.3f}", s.meaning] for s in scores],
        f"p = {found.nesting.p_groups:.2g} for groups, {found.nesting.p_nesting:.2g} for groups of groups: "
        f"{found.nesting.verdict}.",
    )
    return Section("The test", (), pictures, [table])


def delta_section(found: Diagnosis) -> Section:
    """Gromov's δ with its intervals."""
    delta = found.delta
    largest = "largest" if delta.exact else "largest seen"
    rows = [
        [name, f"{value:.3g}", f"{delta.relative(value):.3f}", text]
        for name, value, text in (
            ("mean", delta.mean, "{:.3g} to {:.3g}".format(*delta.interval)),
            ("95 % quantile", delta.quantile, "{:.3g} to {:.3g}".format(*delta.quantile_interval)),
            (largest, delta.largest, "exact" if delta.exact else f"≤ {delta.exceeding:.1g} of quadruples are above"),
        )
    ]
    note = f"{delta.count:,} quadruples; diameter {delta.diameter:.4g}; relative is 2δ/diameter."
    text = "Half the difference of the two largest sums of opposite distances of four points; 0 in a tree."
    return Section(
        "Gromov's δ", [text], (), [Table(["δ of four points", "value", "relative", "95 % interval"], rows, note)]
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
        places: as of `curvae.maps.faithfulness`, and so are the others.
    """
    if len(data) < FEWEST:
        return None
    scaled = filled_rows(data)
    rows = min(rows, max(_FEW, _VALUES // int(data.x.shape[1])))
    return faithfulness(scaled, places, labels=data.labels, held_out=held_out, seed=seed, rows=rows, **how)


def describe_covariates(data: Dataset, schema: Schema, places: Any, seed: int) -> list[str]:
    """Say that neighbours are counted with the effects of covariates, and whether the map shows categorical ones."""
    if data.context is None:
        return []
    said = ["Neighbours are counted in the data with the effects of the covariates still in them."]
    for column in schema.covariates:
        values = source_columns(data.context, schema.covariates)[column.name]
        if column.categories is None or (accuracy := label_accuracy(places, values, seed=seed)) is None:
            continue
        share = np.unique(values, return_counts=True)[1].max() / len(values)
        said.append(
            f"The 5-NN accuracy of the covariate {column.name!r} on the map is {100 * accuracy:.0f} %; without a trace "
            f"of it, that would be about {100 * share:.0f} %, the share of its largest category."
        )
    return said


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
    return decimal(value, 3) if half is None else f"{decimal(value, 3)} ± {half:.3f}"


def faithful_section(found: Faithfulness | None, more: Sequence[str] = ()) -> Section:
    """Figures of a map beside those of PCA, and `more` sentences about them."""
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
        f"the map, those by its own distances. PCA has {found.dim} dimensions too and is fitted to "
        f"{_fitted_rows(found)}. Trustworthiness and continuity are of 15 neighbours; the 5-NN accuracy is "
        "that of five folds."
    )
    if found.held_out is not None:
        note += " Held-out rows took part in no step of training; their neighbours are looked up among the others."
    if found.subset is not None:
        note += (
            f" Means over five random subsets of {found.subset:,} rows with 95 % intervals; among so few, near "
            "neighbours are farther apart than among all."
        )
    return Section(title, [found.verdict, *more], (), [Table(["figure", *columns], rows, note)])


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
    return [*lines, f"  PCA is fitted to {_fitted_rows(found)}"]


def _fitted_rows(found: Faithfulness) -> str:
    return "all rows" if found.held_out is None else "the rows that are not held out"


def criterion_section(found: Comparison) -> Section:
    """What curvature gains by other measures than the likelihood."""
    text = [one.sentence for one in found.criteria]
    if found.structure:
        text.append(f"The test for a hierarchy calls the data {found.structure}.")
    return Section("Other criteria", text, (), [_criterion_table(one) for one in found.criteria])


def _criterion_table(one: Criterion) -> Table:
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


# Where several trainings place the same rows: the figures, the sentence and the pictures of a report.

_PAIRS = 2000  # by which the distance between rows is measured
_FOLLOWED = 60  # rows whose places are drawn
_UNLIKE = "The maps have other curvatures, so no isometry brings them together, and no spread is measured."


def stability_section(found: Stability | None, again: str, *more: str, pictures: Sequence[Picture] = ()) -> Section:
    """How alike the maps of several trainings are, with further sentences; `again` is the command that trains some."""
    if found is None:
        text = ["There was one training. To see how much of the map depends on the random seed:"]
        return Section("Stability", text, command=again)
    alike = (
        f"Over {found.pairs} pairs of trainings with different seeds the rank correlation of latent distances is "
        f"{found.correlation:.2f}, and {found.overlap:.0%} of the {found.neighbours} nearest neighbours agree."
    )
    return Section("Stability", [alike, *more], pictures)


def spread_figures(found: AlignedMaps | None) -> dict[str, float] | None:
    """Median and 95 % quantile of the spread, and the median distance between rows to compare them with."""
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


def spread_text(figures: dict[str, float] | None) -> str:
    if figures is None:
        return _UNLIKE
    return (
        f"Brought onto the first by the best isometries, {figures['maps']} maps place half of the rows within "
        f"{figures['median']:.2f} of their mean place (root mean square over maps), and 95 % of them within "
        f"{figures['quantile_95']:.2f}; two rows are {figures['row_distance']:.2f} apart in the median."
    )


def spread_pictures(data: Dataset, found: AlignedMaps, frames: Sequence[Frame]) -> list[Picture]:
    """Every factor twice: with the places of some rows in all maps, and coloured by the spread."""
    followed = np.sort(np.random.default_rng(0).permutation(len(data))[:_FOLLOWED])
    copies = found.parts

    def draw(part: Embedding, place: int) -> list[Picture]:
        chart, frame = part.chart, frames[place]
        points = chart.place(frame, part.points)
        figure = Figure(figsize=(10.4, 4.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        places = chart.place(frame, torch.from_numpy(copies[place][:, followed]))
        labels: Any = None if data.labels is None else data.labels[followed]
        title = "places of a row in all maps"
        latent_map(left, chart, places[0], labels, samples=places[1:].transpose(0, 1), title=title)
        start, end = (one.reshape(-1, 2) for one in (places[:1].expand_as(places[1:]), places[1:]))
        geodesics(left, chart, start, end, colors=RIM, linewidths=0.5, alpha=0.6, zorder=1.5)
        latent_map(right, chart, points, colouring(found.spread, len(data)), title="spread")
        some = f"{len(followed)} rows, chosen at random" if len(followed) < len(data) else "all rows"
        caption = (
            f"Left: {some}, on this map, and faintly where the maps of the other seeds have them. Right: all rows, "
            "coloured by the spread of their places, the column spread of embedding.csv."
        )
        return [picture(figure, caption, "places of rows in all maps, and their spread", wide=True)]

    return by_factor(found.first, draw)


# What reports and `curvae explain` say of the columns that change on the way across a map.

_MOST_LABELS = 30  # for a table in a report
_SHOWN = 3  # columns of a label there


class Explained(NamedTuple):
    """What changes on the way to one place, or to each label."""

    start: str
    found: dict[str, Drivers]
    names: Sequence[str]
    path: Path | None

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {"from": self.start, "to": {name: one.to_json(self.names) for name, one in self.found.items()}}


def _number(value: float) -> str:
    return f"{value:+.3g}".replace("-", "−")


def _change(one: Drivers, i: int) -> str:
    """ "+3.2 (+2.8 to +3.5)"."""
    return f"{_number(one.change[i])} ({_number(one.change_low[i])} to {_number(one.change_high[i])})"


def driver_lines(explained: Explained) -> list[str]:
    """For people: the columns of one way, a line each, or those of each label in a line."""
    names = explained.names
    if len(explained.found) > 1:
        return [
            f"{name}: {', '.join(f'{names[j]} {_change(one, i)}' for i, j in enumerate(one.features[:_SHOWN]))}"
            for name, one in explained.found.items()
        ]
    ((name, one),) = explained.found.items()
    lines = [f"from {explained.start} to {name}, distance {one.length:.3g}; change with its 90 % interval:"]
    for i, feature in enumerate(one.features):
        doubt = "" if one.clear[i] else ", unclear"
        way = f"{one.mean[0, i]:.3g} → {one.mean[-1, i]:.3g}".replace("-", "−")
        lines.append(f"  {names[feature]}: {way}, {_change(one, i)}{doubt}")
    return lines


def driver_sections(fitted: Fitted, data: Dataset, embedding: Embedding, context: NDArray[np.float64]) -> list[Section]:
    """The section of a report on the columns that set the labels apart; none where there are no labels or pixels."""
    labels = sorted(set([] if data.labels is None else data.labels.tolist()) - {""})
    if data.labels is None or len(data.shape) > 1 or not 2 <= len(labels) <= _MOST_LABELS:
        return []
    rows = []
    for label in labels:
        places = np.flatnonzero(data.labels == label)
        one = explain(fitted, embedding, places, columns=_SHOWN, steps=2, context=context)
        shown = [f"{data.names[j]} {_change(one, i)}" for i, j in enumerate(one.features)]
        rows.append([label, f"{len(places):,}", *shown, *[""] * (_SHOWN - len(shown))])
    header = [data.label_name or "label", "rows", *(f"column {i}" for i in range(1, _SHOWN + 1))]
    text = (
        "What the decoder expects at the Fréchet mean of each label, less what it expects at that of all rows: the "
        "columns that differ most beside their standard deviation. Intervals hold 90 % of the draws of rows of the "
        "label from their posteriors."
    )
    return [Section("What sets the labels apart", [text], tables=[Table(header, rows)])]
