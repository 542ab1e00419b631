"""The map of a graph: nodes at their places, edges as geodesics, the names of those in the middle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgba
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..geometry import PoincareBall
from .disc import INK, Points, frozen, geodesics, inside
from .maps import latent_map
from .style import Colouring, colour_bar, inches, plain, sequential, shaded

__all__ = ["EDGES_DRAWN", "edges_drawn", "graph_map"]

EDGES_DRAWN = 5000  # at most
_EDGE = "#6b7785"
_NAMED = 6
_COVERED = 4  # nodes that a name may lie on


def graph_map(
    ax: Axes,
    ball: PoincareBall,
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
    ball = frozen(ball)
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
        near = np.exp(-0.5 * ball.dist(start, end).numpy())
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
        _name(ax, z.numpy(), chosen, texts, widths[chosen] / 2, 7.0 * min(1.0, zoom), len(marked))
    return drawn


def edges_drawn(pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of many edges, so many as a picture can show, chosen at random."""
    if len(pairs) <= EDGES_DRAWN:
        return pairs
    return pairs[np.sort(np.random.default_rng(0).choice(len(pairs), EDGES_DRAWN, replace=False))]


def _name(
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
    figure = ax.get_figure(root=True)
    assert figure is not None
    ax.apply_aspect()  # else done only when the figure is drawn, and pixels are not where they will be
    point = figure.dpi / 72
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
