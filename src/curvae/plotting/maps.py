"""Maps of a latent space on the disc, and on the plane as its case c = 0."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.image import AxesImage
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..geometry import PoincareBall
from .disc import INK, RIM, Points, disc, fit_window, frozen, geodesics, grid, gyroplane, inside, rim, tensor
from .style import SEQUENTIAL, Colouring, colour_bar, colouring, inches

__all__ = ["gyroplane_heat", "latent_map"]


def latent_map(
    ax: Axes,
    ball: PoincareBall,
    points: Points,
    labels: ArrayLike | Tensor | Colouring | None = None,
    *,
    sizes: ArrayLike | None = None,
    samples: Points | None = None,
    hierarchy: tuple[Points, Sequence[tuple[int, int]]] | None = None,
    gyroplanes: tuple[Points, Points] | None = None,
    title: str | None = None,
) -> PathCollection:
    """Draw embedded points, coloured by label; size and opacity follow from how many there are.

    Arguments:
        ax: axes; they are prepared here, at c = 0 with a window that holds everything drawn.
        ball: the space.
        points: ball coordinates, shape (N, 2).
        labels: N categories or numbers. Text, booleans and whole numbers of at most 20 different values are
            categories with a legend, other numbers get a colour bar. Or a `Colouring` made before.
        sizes: relative areas of the points, N numbers; all 1 by default.
        samples: draws from the posterior of each point, shape (N, K, 2), as faint dots.
        hierarchy: nodes of shape (M, 2) and edges as pairs of their indices, drawn as geodesics under the points.
        gyroplanes: points p and normals a of hyperplanes, each of shape (H, 2), drawn as thin lines; those of a
            `curvae.nn.Gyroplane` are ball.expmap0(layer.offset) and layer.weight.
        title: above the map.

    Returns:
        The points as drawn, in an order that hides no label behind another.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from curvae.plotting import regular_tree
        >>> nodes, edges = regular_tree(3, 3)
        >>> drawn = latent_map(Figure().subplots(), PoincareBall(2), nodes, hierarchy=(nodes, edges))
        >>> len(drawn.get_offsets())
        22
    """
    ball = frozen(ball)
    z = inside(ball, points)
    draws = None if samples is None else inside(ball, samples, (len(z), None, 2))
    nodes = None if hierarchy is None else inside(ball, hierarchy[0])
    colours = labels if isinstance(labels, Colouring) else colouring(labels, len(z))
    disc(ax, ball, reach=fit_window(*(x for x in (z, draws, nodes) if x is not None)))

    zoom = inches(ax) / 4  # sizes are chosen for a panel 4 inches wide
    if gyroplanes is not None:
        gyroplane(ax, ball, *gyroplanes, colors=RIM, linewidths=0.5, alpha=0.5, zorder=0.6)
    if hierarchy is not None and nodes is not None:
        edges = np.asarray(hierarchy[1], dtype=np.int64).reshape(-1, 2)
        geodesics(ax, ball, nodes[edges[:, 0]], nodes[edges[:, 1]], colors=RIM, linewidths=0.9 * zoom, zorder=0.8)
        ax.scatter(
            nodes[:, 0], nodes[:, 1], s=7 * zoom**2, color="white", edgecolors=INK, linewidths=0.5 * zoom, zorder=0.9
        )
    if draws is not None:
        k = draws.shape[1]
        size, opacity = _marker(len(z) * k)
        _dots(ax, draws.reshape(-1, 2), colours.colours.repeat(k, 0), 0.6 * size * zoom**2, 0.4 * opacity, 1.8)
    size, opacity = _marker(len(z))
    # One area for all keeps files of vector graphics small.
    area = size * zoom**2
    drawn = _dots(ax, z, colours.colours, area if sizes is None else area * np.asarray(sizes, float), opacity, 2.0)
    if size > 12:
        drawn.set(edgecolor="white", linewidth=0.4 * zoom)
    colours.explain(ax)
    if title:
        ax.set_title(title, fontsize=9, color=INK)
    return drawn


def _marker(count: int) -> tuple[float, float]:
    """Area and opacity of a dot among `count`: the area covered grows with the square root of their number."""
    return 26 * min(1.0, (100 / count) ** 0.5), 0.9 * min(1.0, (300 / count) ** 0.15)


def _dots(
    ax: Axes,
    z: Tensor,
    colours: NDArray[np.float64],
    size: float | NDArray[np.float64],
    opacity: float,
    zorder: float,
) -> PathCollection:
    order = np.random.default_rng(0).permutation(len(z))
    x, y = z[order].T.numpy()
    return ax.scatter(
        x,
        y,
        s=size if isinstance(size, float) else size[order],
        c=colours[order],
        alpha=opacity,
        linewidths=0,
        rasterized=len(z) > 1000,
        zorder=zorder,
    )


def gyroplane_heat(
    ax: Axes, ball: PoincareBall, p: Points, a: Points, *, reach: float | None = None, size: int = 400
) -> AxesImage:
    """Draw a hyperplane, and the log of the distance of every point of the disc to it as a heat map.

    Arguments:
        ax: axes; they are prepared here.
        ball: the space.
        p, a: a point of the hyperplane and its normal there, shape (2,).
        reach: half the width of the window at c = 0; see `fit_window`.
        size: pixels a side.

    Returns:
        The heat map.

    Example:
        >>> from matplotlib.figure import Figure
        >>> heat = gyroplane_heat(Figure().subplots(), PoincareBall(2, 0.5), [0.3, 0.1], [1.0, 2.0])
        >>> heat.get_array().shape
        (400, 400)
    """
    ball = frozen(ball)
    place, normal = inside(ball, p, (2,)), tensor(a)
    disc(ax, ball, reach=reach)
    xs, ys, z, within = grid(ball, size, reach)
    # On the line itself the log has no bound; the nearest pixels set the lower end of the colours.
    distance = ball.dist2plane(z, place, normal, signed=False).clamp_min(1e-9)
    value = torch.where(within, distance, torch.nan).log().numpy()
    low, high = np.nanquantile(value, (0.02, 1.0))
    heat = ax.imshow(
        value,
        origin="lower",
        extent=(xs[0], xs[-1], ys[0], ys[-1]),
        cmap=SEQUENTIAL,
        vmin=low,
        vmax=high,
        interpolation="bilinear",
        zorder=0.5,
    )
    if circle := rim(ball, reach, transform=ax.transData):
        heat.set_clip_path(circle)
    gyroplane(ax, ball, place, normal, colors="white", linewidths=1.2, zorder=1.0)
    colour_bar(ax, heat, "log distance")
    return heat
