"""Pictures and pages of runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from ..data import Dataset, Tree
from ..data.principal import mean_interval
from ..geometry import Lorentz, PoincareBall
from ..geometry.frames import Frame
from ..hierarchy import Diagnosis
from ..models import LIKELIHOODS
from ..nn.space import FactorFigures
from ..plotting import (
    Projection,
    beside_surrogates,
    curves,
    dendrogram,
    figure_bytes,
    latent_map,
    mosaic,
    project_from,
    project_to_disc,
    radius_histogram,
    reconstructions,
    sample_grid,
)
from ..report import Picture, Section, Table
from ..training.comparison import Comparison
from ..training.config import Config
from ..training.evaluate import Embedding, Likelihoods, active_dimensions
from ..training.fitted import Fitted, FittedModel
from ..viewer import View
from .factors import by_factor, curvature_text, each_factor, space_text

__all__ = [
    "LIVE",
    "capital",
    "comparison_section",
    "curvature_table",
    "data_section",
    "delta_section",
    "diagnosis_section",
    "likelihood_section",
    "map_picture",
    "map_section",
    "map_view",
    "movable_map",
    "node_places",
    "picture",
    "reconstruction_section",
    "training_of",
    "training_section",
]

LIVE = 20_000  # rows up to which a report holds a map that can be moved


def picture(figure: Figure, caption: str, alt: str, wide: bool = False) -> Picture:
    return Picture(figure_bytes(figure), caption, alt, wide)


def map_view(embedding: Embedding, projection: Projection, **more: Any) -> View:
    """The map to be moved; `more` as for `View`, with points of the disc in ball coordinates."""
    ball = PoincareBall(2, embedding.c)
    if (hierarchy := more.pop("hierarchy", None)) is not None:
        more["hierarchy"] = ball.to_lorentz(hierarchy[0]), hierarchy[1]
    # A standard deviation says nothing about the spread of a projection.
    sigma = embedding.sigma if embedding.dim <= 2 else None
    sizes = embedding.popularity
    if sizes is not None and sizes.ndim > 1:  # as a sender and as a receiver
        sizes = sizes.mean(1)
    return View(projection.space, Lorentz(2, embedding.c), sigma=sigma, sizes=sizes, **more)


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
    projection = project_to_disc(embedding.ball, embedding.c) if projection is None else projection
    ball = PoincareBall(2, embedding.c)
    hierarchy = None if tree is None else (node_places(tree, ball, projection.points), tree.edges)
    latent_map(figure.subplots(), ball, projection.points, labels, hierarchy=hierarchy, title=title)
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
    caption = f"{what}, {curvature_text(embedding.c)}."
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
        projection = project_from(frames[place], torch.from_numpy(part.space))
        shown: dict[str, Any] = {"label_name": data.label_name, "wide": len(data) <= LIVE, "columns": columns}
        drawn = [map_picture(part, data.labels, projection=projection, **shown)]
        if len(data.shape) == 2:
            figure = Figure(figsize=(5.2, 5.2))
            images = data.x.reshape(-1, *data.shape)  # images are never sparse
            mosaic(figure.subplots(), PoincareBall(2, part.c), projection.points, images, cmap="gray")
            drawn.append(picture(figure, "The images at their places.", "images at their embedding"))
        return drawn

    text = [
        "Each point is one row. Distances grow towards the rim: two points near it that look close can be far apart, "
        "and the path between them bends towards the centre.",
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
            ["as the model sees them", f"{found.mean:.2f}", f"± {found.interval:.2f}"],
            ["original", f"{found.original.mean:.2f}", f"± {found.original.interval:.2f}"],
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
        ["c·σ0², which alone the data determine", each_factor(fitted, lambda one, _: f"{one.identifiable:.4g}")],
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
        radius, scale = Figure(figsize=(4.2, 2.8), layout="constrained"), fitted.figures[place].prior_scale
        distribution = fitted.config.posterior
        radius_histogram(radius.subplots(), part.radius, part.c, scale, dim=part.dim, distribution=distribution)
        caption = "Distances of the posterior centres from the origin, and the prior's."
        return [picture(radius, caption, "histogram of radii")]

    def active(one: FactorFigures, place: int) -> str:
        return f"{active_dimensions(parts[place], one.prior_scale)} of {one.dim}"

    rows = [
        [f"reconstruction, nats a {unit}", f"{last['reconstruction']:.2f}"],
        [f"divergence from the prior (KL), nats a {unit}", f"{last['kl']:.2f}"],
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
        return "{:.2f} ± {:.2f}".format(*mean_interval(figures))

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
