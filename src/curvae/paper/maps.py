"""Pictures of trained models: maps of the branching diffusion and of the digits, on the disc and on the plane."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from torch import Tensor, nn

from ..data import Tree
from ..errors import CurvaeError
from ..geometry import PoincareBall
from ..nn import Gyroplane
from ..plotting import fit_window, geodesics, gyroplane_heat, latent_map, mosaic, sample_grid
from ..plotting.disc import INK, RIM
from ..runs.pages import node_places
from ..training import Fitted
from .figures import panels
from .gplvm import Array

__all__ = ["Map", "digit_maps", "distance_maps", "hyperplanes", "tree_maps"]

DRAWS = 8  # posterior samples a row
HYPERPLANES = 60  # drawn of a decoder
_SIZE = 3.1  # inches a panel


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
    figure, [axes] = panels(1, len(maps) + len(others), _SIZE)
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
    figure, [axes] = panels(1, len(maps), 1.25 * _SIZE)
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
    figure, axes = panels(len(maps), 3, 1.15 * _SIZE)
    for row, one in zip(axes, maps, strict=True):
        latent_map(row[0], one.ball, one.points, labels, title=one.name)
        mosaic(row[1], one.ball, one.points, images.reshape(-1, 28, 28), size=0.04)
        sample_grid(row[2], samples(one).reshape(-1, 28, 28))
    for ax, title in zip(axes[0][1:], ("test images at their posterior means", "samples of the model"), strict=True):
        ax.set_title(title, fontsize=9, color=INK)
    return figure
