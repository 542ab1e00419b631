"""Maps of a latent space on the disc, and on the plane as its case c = 0; of graphs, with edges as geodesics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgba
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..geometry import PoincareBall
from .disc import (
    INK,
    RIM,
    Page,
    Points,
    disc,
    fit_window,
    geodesics,
    grid,
    gyroplane,
    inside,
    on_page,
    rim,
    tensor,
)
from .style import SEQUENTIAL, Colouring, colour_bar, colouring, inches, plain, sequential, shaded

__all__ = ["EDGES_DRAWN", "edges_drawn", "graph_map", "gyroplane_heat", "latent_map"]


_FAINT = 0.5  # opacity of the other points beside new rows
_NEW = 26.0  # least area of a new row


def latent_map(
    ax: Axes,
    ball: Page,
    points: Points,
    labels: ArrayLike | Tensor | Colouring | None = None,
    *,
    sizes: ArrayLike | None = None,
    new: ArrayLike | None = None,
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
        new: which points are new rows, N booleans. They are larger than the others, outlined and on top, and the others
            are faint.
        samples: draws from the posterior of each point, shape (N, K, 2), as faint dots.
        hierarchy: nodes of shape (M, 2) and edges as pairs of their indices, drawn as geodesics under the points.
        gyroplanes: points p and normals a of hyperplanes, each of shape (H, 2), drawn as thin lines; those of a
            `curvae.nn.Gyroplane` are ball.expmap0(layer.offset) and layer.weight.
        title: above the map.

    Returns:
        The points as drawn, in an order that hides no label behind another; without new rows.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from curvae.plotting import regular_tree
        >>> nodes, edges = regular_tree(3, 3)
        >>> drawn = latent_map(Figure().subplots(), PoincareBall(2), nodes, hierarchy=(nodes, edges))
        >>> len(drawn.get_offsets())
        22
    """
    z = inside(ball, points)
    draws = None if samples is None else inside(ball, samples, (len(z), None, 2))
    nodes = None if hierarchy is None else inside(ball, hierarchy[0])
    colours = labels if isinstance(labels, Colouring) else colouring(labels, len(z))
    disc(ax, ball, reach=fit_window(*(x for x in (z, draws, nodes) if x is not None)))

    zoom = inches(ax) / 4  # sizes are chosen for a panel 4 inches wide
    if gyroplanes is not None:
        gyroplane(ax, on_page(ball).page, *gyroplanes, colors=RIM, linewidths=0.5, alpha=0.5, zorder=0.6)
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
    fresh = np.zeros(len(z), bool) if new is None else np.asarray(new, bool)
    old, marks = ~fresh, {}
    areas = area if sizes is None else area * np.asarray(sizes, float)[old]
    drawn = _dots(ax, z[old], colours.colours[old], areas, opacity if old.all() else _FAINT * opacity, 2.0)
    if fresh.any():
        dots = _dots(ax, z[fresh], colours.colours[fresh], max(2 * area, _NEW * zoom**2), 1.0, 2.4)
        dots.set(edgecolor=INK, linewidth=0.9 * zoom)
        marks["new rows"] = Line2D([], [], marker="o", linestyle="", markersize=5, mfc="none", mec=INK, mew=0.9)
    if size > 12:
        drawn.set(edgecolor="white", linewidth=0.4 * zoom)
    colours.explain(ax, marks)
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
    ball = on_page(ball).page
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


EDGES_DRAWN = 5000  # at most
_EDGE = "#6b7785"
_NAMED = 6
_COVERED = 4  # nodes that a name may lie on


def graph_map(
    ax: Axes,
    ball: Page,
    points: Points,
    edges: ArrayLike,
    labels: ArrayLike | Tensor | Colouring | None = None,
    *,
    steps: tuple[ArrayLike, str] | None = None,
    names: Sequence[str] | NDArray[np.str_] | None = None,
    central: Sequence[int] | NDArray[np.int64] = (),
    hubs: int = 0,
    hierarchy: tuple[Points, Sequence[tuple[int, int]]] | None = None,
    title: str | None = None,
) -> PathCollection:
    """Draw a graph on the disc: nodes coloured by label, edges as thin geodesics, at most 5,000 of them.

    Arguments:
        ax: axes; they are prepared here.
        ball: the space.
        points: of the nodes, ball coordinates, shape (N, 2).
        edges: pairs of places of nodes, shape (E, 2). Of more than 5,000, so many are chosen at random.
        labels: as of `latent_map`.
        steps: whole numbers to colour nodes by in place of labels, not finite where there is none, and what they are.
        names: of the nodes.
        central: places of nodes to be named, the most important first; it is marked with a ring and the second with a
            square. A name that would cover another, or for which there is no room, is left out.
        hubs: how many nodes to name besides, those with the most edges.
        hierarchy: as of `latent_map`.
        title: above the map.

    Returns:
        The nodes as drawn; see `latent_map`.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from curvae.plotting import regular_tree
        >>> nodes, edges = regular_tree(3, 3)
        >>> drawn = graph_map(Figure().subplots(), PoincareBall(2), nodes, edges, names=[""] * 22, central=[0])
        >>> len(drawn.get_offsets())
        22
    """
    z = inside(ball, points)
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    # A node with many neighbours is larger, though not in proportion.
    degree = np.bincount(pairs.ravel(), minlength=len(z)) if len(pairs) else np.ones(len(z))
    sizes = (np.maximum(degree, 1) / max(1.0, np.median(degree))) ** 0.5
    if steps is not None:
        numbers = np.asarray(steps[0], dtype=np.float64)
        scale = sequential(0, numbers[np.isfinite(numbers)].max(initial=1.0))
        labels = Colouring(shaded(numbers, scale))
    drawn = latent_map(ax, ball, z, labels, sizes=sizes, hierarchy=hierarchy, title=title)
    if steps is not None:
        colour_bar(ax, scale, steps[1]).ax.yaxis.set_major_locator(MaxNLocator(8, integer=True))
    pairs = edges_drawn(pairs)
    zoom = inches(ax) / 4
    if len(pairs):
        start, end = z[pairs[:, 0]], z[pairs[:, 1]]
        # Lines that lie on each other add up, so many of them are drawn fainter; and so are long ones, which cross the
        # others and are no part of what the map shows well.
        share = min(1.0, (300 / len(pairs)) ** 0.4)
        near = np.exp(-0.5 * on_page(ball).page.dist(start, end).numpy())
        shades = np.tile(to_rgba(_EDGE), (len(pairs), 1))
        shades[:, 3] = (0.3 + 0.4 * share) * (0.4 + 0.6 * near)
        geodesics(
            ax,
            ball,
            start,
            end,
            steps=32,
            colors=shades,
            linewidths=(0.35 + 0.35 * share) * zoom,
            rasterized=len(pairs) > 1000,
            zorder=0.8,
        )
    marked = [int(node) for node in central][:_NAMED]
    unit = float(np.sum(drawn.get_sizes())) / sizes.sum()
    widths = 3.0 * zoom + (unit * sizes) ** 0.5  # of nodes with a ring, in points
    for node, marker in zip(marked, "os", strict=False):
        x, y = z[node].tolist()
        ax.plot([x], [y], marker, ms=widths[node], mfc="none", mec=INK, mew=0.9 * zoom, zorder=2.6)
    if names is not None:
        # With the same number of edges, the first in the order of the nodes.
        chosen = list(dict.fromkeys([*marked, *np.argsort(-degree, kind="stable")[:hubs].tolist()]))
        texts = [plain(str(names[node]), 24) for node in chosen]
        _write_names(ax, z.numpy(), chosen, texts, widths[chosen] / 2, 7.0 * min(1.0, zoom), len(marked))
    return drawn


def edges_drawn(pairs: NDArray[np.int64], most: int = EDGES_DRAWN) -> NDArray[np.int64]:
    """Of many edges, so many as a picture can show, chosen at random."""
    if len(pairs) <= most:
        return pairs
    return pairs[np.sort(np.random.default_rng(0).choice(len(pairs), most, replace=False))]


def _write_names(
    ax: Axes,
    z: NDArray[np.float64],
    chosen: Sequence[int],
    names: Sequence[str],
    radii: NDArray[np.float64],
    size: float,
    marked: int,
) -> None:
    """Write names beside nodes, each where it covers fewest nodes; one that would cover another name is left out.

    Arguments:
        ax: axes.
        z: all nodes.
        chosen, names, radii: the nodes to be named, the most important first, and how far out each is drawn, in points.
        size: of the letters, in points.
        marked: how many of the chosen are central; the first of these is in bold.
    """
    ax.apply_aspect()  # else done only when the figure is drawn, and pixels are not where they will be
    point = ax.figure.dpi / 72
    places = ax.transData.transform(z)
    # No name lies on one of the two marks.
    taken = [
        Bbox([places[node] - radius * point, places[node] + radius * point])
        for node, radius in zip(chosen[: min(2, marked)], radii, strict=False)
    ]
    for rank, (node, name, radius) in enumerate(zip(chosen, names, radii, strict=True)):
        height, width = 1.25 * size * point, 0.58 * size * point * max(len(name), 1)
        choices: list[tuple[int, int, float, float, Bbox]] = []
        for gap in (0.1, 0.8):
            for angle in np.arange(16) * np.pi / 8:
                away = (radius + gap * size) * point
                x = float(places[node, 0] + np.cos(angle) * (away + width / 2))
                y = float(places[node, 1] + np.sin(angle) * (away + height / 2))
                box = Bbox.from_extents(x - width / 2, y - height / 2, x + width / 2, y + height / 2)
                within = np.less_equal([*ax.bbox.min, *box.max], [*box.min, *ax.bbox.max]).all()
                if within and not any(box.overlaps(other) for other in taken):
                    covered = int(((places > box.min) & (places < box.max)).all(1).sum())
                    choices.append((covered, len(choices), x, y, box))
        if not choices or (rank and min(choices)[0] > _COVERED):
            continue
        _, _, x, y, box = min(choices)
        taken.append(box)
        x, y = ax.transData.inverted().transform((x, y))
        ax.text(
            x,
            y,
            name,
            fontsize=size,
            color=INK,
            weight="bold" if rank == 0 < marked else "normal",
            ha="center",
            va="center",
            zorder=3.0,
            path_effects=[patheffects.withStroke(linewidth=1.8, foreground="white", alpha=0.85)],
        )
