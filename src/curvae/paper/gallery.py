"""The paper's figures: of the geometry, of maps of the branching diffusion, and of maps of the digits.

Maps show trained models, on the disc and on the plane.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from PIL import Image
from torch import Tensor, nn

from ..data import Tree, branching_diffusion
from ..errors import CurvaeError
from ..geometry import PoincareBall
from ..nn import Gyroplane
from ..plotting import figure_bytes, fit_window, geodesics, gyroplane_heat, latent_map, mosaic, sample_grid
from ..plotting.disc import INK, RIM
from ..runs.pages import node_places
from ..training import Config, Fitted
from ..training.storage import write_bytes
from . import figures, table1, table2
from .baselines import GPLVM, Array, principal_components, scaled
from .experiment import Experiment, Page, Plan, Results, Shard, Workspace
from .table_cells import PLAIN
from .trainings import spread_settings, train

__all__ = ["EXPERIMENT", "hyperplanes"]

DRAWS = 8  # posterior samples a row
HYPERPLANES = 60  # drawn of a decoder
_SIZE = 3.1  # inches a panel

# Of the maps in appendix D; the comparison with other methods and the heat map have c = 1.
CURVATURES = (1.2, 0.3, 0.1)
TREE = replace(table1.SETTINGS, prior_scale=1.7, posterior="riemannian")
DIGITS_CURVATURE = 1.4
SAMPLES = 100

CAPTIONS = {
    "tree": "A regular tree in the Poincaré disc; all edges have the same length.",
    "geodesics": "Geodesics, and exponential maps of tangent vectors.",
    "densities": "Riemannian and wrapped normal for several means, c = 10, at the same σ.",
    "anisotropic": "The wrapped normal with diagonal covariance, c = 1; σ are standard deviations.",
    "projection": "Orthogonal projection on a hyperplane, in the disc and in the plane.",
    "acceptance": "Acceptance rates of the appendix's radius samplers, c = 1.",
    "maps-models": "The branching diffusion: P-VAE, N-VAE, PCA and GPLVM. Dots are posterior samples, lines the true "
    "hierarchy, colours its branches; the models see neither.",
    "maps-curvatures": "The branching diffusion for decreasing curvature, with posterior samples.",
    "maps-gyroplanes": f"The same maps with the {HYPERPLANES} steepest hyperplanes of the decoder.",
    "maps-distance": "The log distance to the hyperplane that divides the rows most evenly, in the ball and the plane.",
    "maps-digits": "MNIST, in the ball and in the plane: posterior means, test images at their places, and samples of "
    "the model.",
}
# Pictures of continuous colour, which a palette would cut into bands.
SHADED = ("densities", "anisotropic", "maps-distance")


class Map:
    """A trained model's posteriors of rows, in ball coordinates.

    Arguments:
        fitted: the model, two-dimensional.
        x: rows, in original units.
        draws: posterior samples a row.
    """

    def __init__(self, fitted: Fitted, x: Any, draws: int = 0) -> None:
        self.fitted = fitted.double()
        model = self.fitted.model
        self.c = float(model.space.curvatures()[0].detach())
        self.ball = PoincareBall(2, self.c)
        with torch.no_grad():
            posterior = model.encode(self.fitted.rows(x).batch(torch.arange(len(x))))
            self.points = self.ball.from_lorentz(posterior.loc.cpu())
            noise = torch.randn(draws, len(x), 2, generator=torch.Generator().manual_seed(0))
            drawn = posterior.transform(noise.to(model.device)).cpu() if draws else None
        self.samples = None if drawn is None else self.ball.from_lorentz(drawn).transpose(0, 1)

    @property
    def name(self) -> str:
        return f"P-VAE, c = {self.c:g}" if self.c else "N-VAE"


def hyperplanes(fitted: Fitted) -> tuple[Tensor, Tensor]:
    """Points and normals of the decoder's first layer, in ball coordinates.

    On the plane, where ball coordinates are half the metric ones, unit k is zero on ⟨w, 2z⟩ + b = 0.
    """
    layer = next(fitted.model.decoder.children())
    if not isinstance(layer, Gyroplane | nn.Linear):
        raise CurvaeError(f"hyperplanes are drawn of gyroplane layers, not of {type(layer).__name__}")
    weight = layer.weight.detach().double().cpu()
    if isinstance(layer, Gyroplane):
        ball = PoincareBall(2, float(fitted.model.space.curvatures()[0].detach()))
        return ball.expmap0(layer.points.detach().double().cpu()), weight
    bias = layer.bias.detach().double().cpu().unsqueeze(1)
    return -bias * weight / (2 * weight.square().sum(1, keepdim=True)), weight


def tree_maps(
    maps: Sequence[Map], tree: Tree, others: Mapping[str, Array] | None = None, gyroplanes: bool = False
) -> Figure:
    """Maps side by side with posterior samples and the true hierarchy, then plain embeddings of other methods.

    Arguments:
        maps: of trained models.
        tree: the truth, whose observations they show.
        others: embeddings by name, (rows, 2).
        gyroplanes: draw the hyperplanes of the decoders instead of posterior samples.
    """
    others = others or {}
    figure, [axes] = figures.panels(1, len(maps) + len(others), _SIZE)
    labels = tree.branches()[tree.node]
    for ax, one in zip(axes, maps, strict=False):
        latent_map(
            ax,
            one.ball,
            one.points,
            labels,
            samples=None if gyroplanes else one.samples,
            hierarchy=(node_places(tree, one.ball, one.points), tree.edges),
            gyroplanes=_steepest(*hyperplanes(one.fitted)) if gyroplanes else None,
            title=one.name,
        )
        _unlabelled(ax)
        _whole(ax, one.ball)
    plane = PoincareBall(2, 0.0)
    for ax, (name, x) in zip(axes[len(maps) :], others.items(), strict=True):
        points = torch.from_numpy(x)
        latent_map(ax, plane, points, labels, hierarchy=(node_places(tree, plane, points), tree.edges), title=name)
        _unlabelled(ax)
    return figure


def _steepest(p: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """The hyperplanes with the longest normals, as many as can be told apart."""
    chosen = a.norm(dim=1).argsort(descending=True)[:HYPERPLANES]
    return p[chosen], a[chosen]


def _whole(ax: Axes, ball: PoincareBall) -> None:
    """Show all of the disc, however little of it the points fill."""
    if float(ball.c):
        for patch in list(ax.patches):
            patch.remove()
        radius = float(ball.c) ** -0.5
        ax.add_patch(Circle((0, 0), radius, facecolor="white", edgecolor=RIM, linewidth=1.0, zorder=0))
        ax.set(xlim=(-1.03 * radius, 1.03 * radius), ylim=(-1.03 * radius, 1.03 * radius))


def _unlabelled(ax: Axes) -> None:
    """Branches are told apart by place and colour; their names say nothing."""
    if (legend := ax.get_legend()) is not None:
        legend.remove()


def distance_maps(maps: Sequence[Map], tree: Tree) -> Figure:
    """The log of the distance to the hyperplane that divides the rows most evenly, with the tree."""
    figure, [axes] = figures.panels(1, len(maps), 1.25 * _SIZE)
    for ax, one in zip(axes, maps, strict=True):
        p, a = hyperplanes(one.fitted)
        sides = one.ball.dist2plane(one.points.unsqueeze(1), p, a) > 0
        chosen = int((sides.double().mean(0) - 0.5).abs().argmin())
        gyroplane_heat(ax, one.ball, p[chosen], a[chosen], reach=fit_window(one.points))
        nodes, edges = node_places(tree, one.ball, one.points), np.array(tree.edges)
        geodesics(ax, one.ball, nodes[edges[:, 0]], nodes[edges[:, 1]], colors=INK, linewidths=0.6, zorder=1.5)
        ax.scatter(nodes[:, 0], nodes[:, 1], s=9, color="white", edgecolors=INK, linewidths=0.5, zorder=2)
        ax.set_title(one.name, fontsize=9, color=INK)
    return figure


def digit_maps(maps: Sequence[Map], images: Array, labels: Any, samples: Callable[[Map], Tensor]) -> Figure:
    """For every model a row: posterior means, images at their places, and new images from the model."""
    figure, axes = figures.panels(len(maps), 3, 1.15 * _SIZE)
    for row, one in zip(axes, maps, strict=True):
        latent_map(row[0], one.ball, one.points, labels, title=one.name)
        mosaic(row[1], one.ball, one.points, images.reshape(-1, 28, 28), size=0.04)
        sample_grid(row[2], samples(one).reshape(-1, 28, 28))
    for ax, title in zip(axes[0][1:], ("test images at their posterior means", "samples of the model"), strict=True):
        ax.set_title(title, fontsize=9, color=INK)
    return figure


def shards(plan: Plan) -> list[Shard]:
    """Geometry, branching diffusion, digits."""
    curved = [replace(TREE, curvature=c, seed=plan.seed) for c in (*CURVATURES, 1.0)]
    tree = [*curved, replace(TREE, curvature=0.0, decoder=PLAIN, seed=plan.seed)]
    if plan.quick:
        tree = [replace(config, epochs=60) for config in tree]
    iterations = 20 if plan.quick else table1.GPLVM_ITERATIONS
    base, _, rows, test = table2.sizes(plan)
    digits = [
        replace(base, dim=2, curvature=DIGITS_CURVATURE, posterior="riemannian", seed=plan.seed),
        replace(base, dim=2, curvature=0.0, posterior="wrapped", decoder=PLAIN, seed=plan.seed),
    ]
    maps = ["maps-models", "maps-curvatures", "maps-gyroplanes", "maps-distance"]
    return [
        Shard(
            "geometry",
            {"files": list(figures.FIGURES)},
            lambda workspace: _save(workspace, {name: draw() for name, draw in figures.FIGURES.items()}),
        ),
        Shard(
            "tree",
            {"files": maps, **spread_settings(tree), "gplvm_iterations": iterations},
            partial(_tree, tree, iterations),
        ),
        Shard("digits", {"files": ["maps-digits"], **spread_settings(digits)}, partial(_digits, digits, rows, test)),
    ]


def _save(workspace: Workspace, drawn: Mapping[str, Figure]) -> dict[str, Any]:
    for name, figure in drawn.items():
        png = figure_bytes(figure)
        write_bytes(workspace.figures / f"{name}.png", png if name in SHADED else _small(png))
    return {"files": list(drawn)}


def _small(png: bytes) -> bytes:
    """The same picture with a palette of 256 colours, a third of the size."""
    stream = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        image.convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE).save(stream, "PNG", optimize=True)
    return stream.getvalue()


def _tree(configs: Sequence[Config], iterations: int, workspace: Workspace) -> dict[str, Any]:
    dataset, tree = table1.dataset(configs[0].seed), branching_diffusion(seed=configs[0].seed)
    fitted = train(configs, [dataset] * len(configs), workspace, "tree-maps")
    *decreasing, unit, flat = (Map(one, dataset.x, DRAWS) for one in fitted)
    y = scaled(tree)
    others = {"PCA": principal_components(y), "GPLVM": GPLVM.fit(y, iterations=iterations).x}
    drawn = {
        "maps-models": tree_maps([unit, flat], tree, others),
        "maps-curvatures": tree_maps([*decreasing, flat], tree),
        "maps-gyroplanes": tree_maps([*decreasing, flat], tree, gyroplanes=True),
        "maps-distance": distance_maps([unit, flat], tree),
    }
    return _save(workspace, drawn)


def _digits(configs: Sequence[Config], rows: int | None, test: int | None, workspace: Workspace) -> dict[str, Any]:
    dataset = table2.dataset(0, rows, test)
    fitted = train(configs, [dataset] * len(configs), workspace, "digit-maps")
    _, labels = table2.digits("test", test)

    def samples(one: Map) -> torch.Tensor:
        model = one.fitted.model
        return model.sample(SAMPLES, torch.Generator(model.device).manual_seed(0), mean=True).cpu()

    maps = [Map(one, dataset.test) for one in fitted]
    return _save(workspace, {"maps-digits": digit_maps(maps, dataset.test, labels, samples)})


def summarise(results: Results) -> dict[str, Any]:
    """Which pictures there are."""
    return {"files": [name for result in results.values() for name in result["files"]]}


def page(result: Mapping[str, Any]) -> Page:
    """All pictures with their captions."""
    gallery = {f"{name}.png": CAPTIONS[name] for name in result["files"]}
    return Page(f"{len(gallery)} figures.", "neutral", [], gallery=gallery)


EXPERIMENT = Experiment("figures", "The paper's figures", shards, summarise, page, minutes=1)
