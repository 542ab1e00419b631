"""Pictures and pages of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from ..data import Dataset, Tree
from ..data.messages import count
from ..geometry import Lorentz, PoincareBall
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
    project_to_disc,
    radius_histogram,
    reconstructions,
    sample_grid,
)
from ..report import Picture, Section, Table
from ..training.comparison import Comparison
from ..training.config import Config
from ..training.evaluate import Embedding, Likelihoods, Stability, active_dimensions, reconstruct
from ..training.fitted import Fitted, FittedModel
from ..training.paired import mean_interval
from ..viewer import View

__all__ = [
    "LIVE",
    "by_factor",
    "compared_text",
    "comparison_section",
    "curvature_text",
    "data_section",
    "delta_section",
    "diagnosis_section",
    "likelihood_section",
    "map_files",
    "map_picture",
    "map_section",
    "map_view",
    "node_places",
    "picture",
    "place_text",
    "reconstruction_section",
    "space_text",
    "stability_section",
    "training_of",
    "training_section",
]

LIVE = 20_000  # rows up to which a report holds a map that can be moved


def curvature_text(c: float) -> str:
    """ "c = 1 (curvature −1)"."""
    return f"c = {c:.4g} (curvature −{c:.4g})" if c else "c = 0 (flat)"


def space_text(embedding: Embedding) -> str:
    """Curvatures: "c = 1 (curvature −1)", or of a product "h1: c = 1 (curvature −1), e2: flat"."""
    factors = embedding.placed
    if len(factors) == 1:
        return curvature_text(factors[0].c)
    return ", ".join(f"{factor.name}: {curvature_text(factor.c) if factor.c else 'flat'}" for factor in factors)


def place_text(embedding: Embedding) -> str:
    """Where rows are, for a sentence: "a map of 2 dimensions, c = 1 (curvature −1)"."""
    if len(embedding.placed) == 1:
        return f"a map of {count(embedding.dim, 'dimension')}, {space_text(embedding)}"
    factors = (
        f"{one.name} ({count(one.dim, 'dimension')}, {f'c = {one.c:.4g}' if one.c else 'flat'})"
        for one in embedding.placed
    )
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


def picture(figure: Figure, caption: str, alt: str, wide: bool = False) -> Picture:
    return Picture(figure_bytes(figure), caption, alt, wide)


def map_view(embedding: Embedding, projection: Projection, **more: Any) -> View:
    """The map to be moved; `more` as for `View`, with points of the disc in ball coordinates."""
    ball = PoincareBall(2, embedding.c)
    # Space parts tell points far out apart that in ball coordinates round to the rim.
    space = embedding.space if embedding.dim == 2 else ball.to_lorentz(projection.points)
    if (hierarchy := more.pop("hierarchy", None)) is not None:
        more["hierarchy"] = ball.to_lorentz(hierarchy[0]), hierarchy[1]
    # A deviation says nothing about the spread of a projection.
    return View(space, Lorentz(2, embedding.c), sigma=embedding.sigma if embedding.dim <= 2 else None, **more)


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
) -> Picture:
    """The map, projected where it has more than two dimensions, with the true hierarchy where it is known.

    Of up to 20,000 rows it can be moved where scripts run; it knows labels, but no ids nor the order of the rows.
    """
    figure = Figure(figsize=(5.2, 4.6))
    projection = project_to_disc(embedding.ball, embedding.c) if projection is None else projection
    ball = PoincareBall(2, embedding.c)
    hierarchy = None if tree is None else (node_places(tree, ball, projection.points), tree.edges)
    latent_map(figure.subplots(), ball, projection.points, labels, hierarchy=hierarchy, title=title)
    caption = f"Posterior centres, {curvature_text(embedding.c)}."
    if embedding.dim > 2:
        caption += f" {projection.sentence[0].upper()}{projection.sentence[1:]}."
    live = None
    if len(projection.points) <= LIVE:
        columns = {} if labels is None else {label_name or "label": labels}
        live = map_view(embedding, projection, columns=columns, hierarchy=hierarchy, anonymous=True, title=title or "")
    return replace(picture(figure, caption, "map of the rows on the disc", wide), live=live)


def map_section(data: Dataset, embedding: Embedding, view_command: str) -> Section:
    def draw(part: Embedding, place: int) -> list[Picture]:
        projection = project_to_disc(part.ball, part.c)
        wide = len(data) <= LIVE
        drawn = [map_picture(part, data.labels, projection=projection, label_name=data.label_name, wide=wide)]
        if len(data.shape) == 2:
            figure = Figure(figsize=(5.2, 5.2))
            images = data.x.reshape(-1, *data.shape)  # images are never sparse
            mosaic(figure.subplots(), PoincareBall(2, part.c), projection.points, images, cmap="gray")
            drawn.append(picture(figure, "The images at their places.", "images at their embedding"))
        return drawn

    text = [
        "Each point is one row. Distances grow towards the rim: two points near it that look close can be far apart, "
        "and the path between them bends towards the centre.",
        f"The map by itself, with ids, search and selection: {view_command}",
    ]
    if len(embedding.placed) > 1:
        text.insert(
            1,
            "The space is a product, with a map for each factor. Distances in it are in units of each factor's prior "
            "scale σ_i, d² = Σ (d_i/σ_i)², since a decoder may stretch every factor freely.",
        )
    return Section("The map", text, by_factor(embedding, draw))


def likelihood_section(found: Likelihoods | None, rows: str, compare_command: str) -> Section:
    if found is None:
        text = ["No rows were held out. To compare with curvature 0 and PCA on held-out rows:"]
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
        ["Curvature 0 and PCA were not run. To compare with them:"],
        (),
        [table],
        command=compare_command,
    )


def stability_section(found: Stability | None, command: str) -> Section:
    if found is None:
        text = ["One training. To see what of the map is the data's and what is chance:"]
        return Section("Stability", text, command=command)
    return Section(
        "Stability",
        [
            f"Over {found.pairs} pairs of trainings with different seeds the rank correlation of latent distances is "
            f"{found.correlation:.2f}, and {found.overlap:.0%} of the {found.neighbours} nearest neighbours agree."
        ],
    )


def training_section(fitted: Fitted, embedding: Embedding) -> Section:
    facts = [
        ["c·σ0², all that the data can tell of the two", _each(fitted, lambda one, _: f"{one.identifiable:.4g}")],
        ["likelihood", f"{fitted.config.likelihood} ({fitted.reason})"],
    ]
    return training_of(fitted, embedding, "row", facts, "Lines are the training rows, dashes the validation rows.")


def training_of(
    fitted: FittedModel, embedding: Embedding, unit: str, facts: Sequence[Sequence[str]], caption: str
) -> Section:
    """How a training of any kind went; figures are by `unit`, and `facts` are rows of the table besides."""
    figure = Figure(figsize=(8, 2.8), layout="constrained")
    curves(figure.subplots(1, 2), fitted.history)
    last, parts = fitted.last, embedding.parts

    def radii(part: Embedding, place: int) -> list[Picture]:
        radius, scale = Figure(figsize=(4.2, 2.8), layout="constrained"), fitted.figures[place].prior_scale
        radius_histogram(radius.subplots(), part.radius, part.c, scale, dim=part.dim, law=fitted.config.posterior)
        caption = "Distances of the posterior centres from the origin, and the prior's."
        return [picture(radius, caption, "histogram of radii")]

    def active(one: FactorFigures, place: int) -> str:
        return f"{active_dimensions(parts[place], one.prior_scale)} of {one.dim}"

    rows = [
        [f"reconstruction, nats a {unit}", f"{last['reconstruction']:.2f}"],
        [f"divergence from the prior (KL), nats a {unit}", f"{last['kl']:.2f}"],
        ["active dimensions", _each(fitted, active)],
        ["curvature", space_text(embedding)],
        ["prior scale σ0", _each(fitted, lambda one, _: f"{one.prior_scale:.4g}")],
        *facts,
        ["epoch", f"{last['epoch']} of {len(fitted.history)}"],
    ]
    pictures = [
        picture(figure, caption, "learning curves", wide=True),
        *by_factor(embedding, radii),
    ]
    return Section("Training", (), pictures, [Table(["quantity", "value"], rows)])


def _each(fitted: FittedModel, text: Callable[[FactorFigures, int], str]) -> str:
    """A text about the one factor, or about every factor of a product after its name."""
    texts = {one.name: text(one, place) for place, one in enumerate(fitted.figures)}
    return (
        ", ".join(f"{name}: {said}" for name, said in texts.items()) if len(texts) > 1 else next(iter(texts.values()))
    )


def reconstruction_section(
    fitted: Fitted, data: Dataset, embedding: Embedding, index: NDArray[Any], scores: NDArray[Any], kind: str
) -> Section:
    """The worst, the median and the best by their scores of the rows `index`, which are "held-out" or "training"."""
    order = index[np.argsort(scores)]
    chosen = np.array([order[0], order[len(order) // 2], order[-1]])
    figure = Figure(figsize=(8, 2.4), layout="constrained")
    titles = [f"{name}: {data.ids[i]}"[:40] for name, i in zip(("worst", "median", "best"), chosen, strict=True)]
    rows = data.x[chosen]
    originals = rows if isinstance(rows, np.ndarray) else rows.toarray()
    size = None if data.exposure is None else data.exposure[chosen]
    context = None if data.context is None else data.context[chosen]
    made = reconstruct(fitted, embedding.space[chosen], context=context, size=size)
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
    kind = "images of {}×{} pixels".format(*data.shape) if len(data.shape) == 2 else f"{data.x.shape[1]} columns"
    told = [f"Covariates, of which the model is told: {', '.join(data.context_names)}."] if data.context_names else []
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
    values = list(found.repeats[0].test)
    seeds = len(found.repeats)

    def interval(figures: Sequence[float]) -> str:
        return "{:.2f} ± {:.2f}".format(*mean_interval(figures))

    rows = []
    for c in values:
        stable = found.stability[c]
        rows.append(
            [
                "0 (flat)" if c == 0 else f"{c:g}",
                interval([r.validation[c] for r in found.repeats]),
                interval([r.test[c] for r in found.repeats]),
                "" if stable is None else f"{stable.correlation:.2f}",
                "" if stable is None else f"{stable.overlap:.0%}",
            ]
        )
    best = values.index(found.best) if found.outcome == "hyperbolic" else 0
    if found.repeats[0].pca is not None:
        rows.append(["PCA", "", interval([r.pca for r in found.repeats if r.pca is not None]), "", ""])
    table = Table(
        ["c", "validation, nats a row", "test, nats a row", "distance agreement", "neighbours in common"],
        rows,
        f"{seeds} repeats, each with its own seed and split; ± is a 95 % interval over repeats. c is chosen on "
        "validation rows, the verdict comes from test rows. Agreement and neighbours in common are between seeds.",
        best,
    )
    return Section(title, compared_text(found), (), [table])


def compared_text(found: Comparison) -> list[str]:
    """What is compared, where the space is a product."""
    if found.config.space is None:
        return []
    return [
        f"The space is the product {found.config.space}: c is that of its hyperbolic factors, 0 is the product with "
        "these factors flat. What the flat product has too is no gain of curvature."
    ]


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
        f"p = {found.nesting.p_groups:.2g} for groups, {found.nesting.p_nesting:.2g} for nesting.",
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
