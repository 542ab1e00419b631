"""Maps of a latent space on the Poincaré disc, and on the plane as its case c = 0; of graphs, with edges as geodesics.

Points are ball coordinates, (…, 2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_rgba
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Patch, PathPatch, Polygon, Rectangle
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..distributions import HyperbolicNormal
from ..errors import CurvaeError
from ..geometry import PoincareBall
from ..geometry import hyperboloid as h
from ..maps.charts import Chart, Points, as_number, ball_chart, tensor
from .style import INK, RIM, SEQUENTIAL, Colouring, colour_bar, colouring, inches, plain, sequential, shaded

__all__ = [
    "EDGES_DRAWN",
    "Page",
    "density",
    "disc",
    "edges_drawn",
    "fit_window",
    "geodesics",
    "graph_map",
    "grid",
    "gyroplane",
    "gyroplane_heat",
    "half_width",
    "inside",
    "latent_map",
    "on_page",
    "project",
    "regular_tree",
    "rim",
]

Page = PoincareBall | Chart  # where a picture is drawn: a ball of dimension 2, or the chart of a factor
_FLAT_REACH = 3.0  # half the width of the picture of a plane, in ball coordinates


def _points(x: Points) -> Tensor:
    points = tensor(x)
    if points.shape[-1:] != (2,):
        raise CurvaeError(
            f"only points of dimension 2 can be drawn, got shape {tuple(points.shape)}; see project_to_disc"
        )
    return points


def inside(ball: Page, x: Points, shape: tuple[int | None, ...] = (None, 2)) -> Tensor:
    """Return `x` as float64 points of the disc; raise unless they have the shape (None: any number) and lie inside."""
    points = _points(x)
    if len(points.shape) != len(shape) or any(n not in (None, m) for n, m in zip(shape, points.shape, strict=True)):
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise CurvaeError(f"points to draw must have shape ({wanted}), got {tuple(points.shape)}")
    if not points.numel():
        raise CurvaeError(f"there are no points to draw: the shape is {tuple(points.shape)}; give at least one")
    if len(outside := (~on_page(ball).page.contains(points)).nonzero()):
        first = tuple(outside[0].tolist())
        raise CurvaeError(
            f"{len(outside)} of {points.numel() // 2} points do not lie in the disc c·|z|² < 1 with c = {ball.c:g}, "
            f"first at index {first}: {points[first].tolist()}; give finite ball coordinates (ball.from_lorentz)"
        )
    return points


def on_page(ball: Page) -> Chart:
    """Return the chart on whose page to draw, at the present value of a curvature that may be learned."""
    if isinstance(ball, Chart):
        return ball
    if ball.dim != 2:
        raise CurvaeError(f"only a ball of dimension 2 can be drawn, got {ball}; see project_to_disc")
    return ball_chart(2, as_number(ball.c))


def fit_window(*points: Points) -> float:
    """Return the `reach` of a window around the origin that holds all the points, with a small margin."""
    return 1.05 * max((float(_points(x).abs().max()) for x in points), default=0.0) or _FLAT_REACH


def half_width(ball: Page, reach: float | None = None) -> float:
    """Return half the width of the picture: to the rim, or to `reach` where there is none, as at c = 0.

    A disc much larger than the points would show them as one dot, so `reach` also cuts the window of small curvatures.
    """
    extent = on_page(ball).extent
    if math.isinf(extent):
        return reach or _FLAT_REACH
    return min(extent, max(reach, _FLAT_REACH) if reach else math.inf)


def rim(ball: Page, reach: float | None = None, **style: Any) -> Patch | None:
    """Return the rim as a patch, or None where all of it lies outside the window: to fill or to clip to a disc of very
    many pixels takes matplotlib minutes."""
    outline, middles, edge = on_page(ball).outline, on_page(ball).middles, 1.03 * half_width(ball, reach)
    if len(middles) > 1:
        return PathPatch(Path.make_compound_path(*(Path.circle((x, 0), outline) for x in middles)), **style)
    return Circle((0, 0), outline, **style) if math.sqrt(2) * edge > outline else None


def disc(ax: Axes, ball: Page, face: str = "white", reach: float | None = None) -> Axes:
    """Prepare axes: the rim of the disc, equal scales, no ticks; at c = 0 a window of the plane.

    Arguments:
        ax: axes to prepare.
        ball: the space, or the chart of a factor.
        face: colour of the disc.
        reach: half the width of the window at c = 0, in ball coordinates; see `fit_window`.
    """
    edge = 1.03 * half_width(ball, reach)
    style: dict[str, Any] = {"facecolor": face, "edgecolor": RIM, "zorder": 0}
    if circle := rim(ball, reach, linewidth=1.0, **style):
        ax.add_patch(circle)
    if edge < on_page(ball).outline:
        # The window cuts through the space: a frame of which the axes clip the outer half, fainter than the rim.
        ax.add_patch(Rectangle((-edge, -edge), 2 * edge, 2 * edge, linewidth=0.8, **style))
    top = edge - max(on_page(ball).middles)
    ax.set(xlim=(-edge, edge), ylim=(-top, top), aspect="equal")
    ax.axis("off")
    return ax


def geodesics(ax: Axes, ball: Page, start: Points, end: Points, steps: int = 48, **style: Any) -> LineCollection:
    """Draw the geodesics between pairs of points: arcs of circles orthogonal to the rim, or lines through its centre.

    Arguments:
        ax: axes, prepared by `disc`.
        ball: the space, or the chart of a factor.
        start, end: points of shape (N, 2) or (2,).
        steps: straight pieces a geodesic.
        style: as for matplotlib's LineCollection.
    """
    x, y = torch.broadcast_tensors(torch.atleast_2d(_points(start)), torch.atleast_2d(_points(end)))
    t = torch.linspace(0, 1, steps, dtype=torch.float64)[:, None]
    path = on_page(ball).page.geodesic(t, x, y).transpose(0, 1)
    lines = LineCollection(list(path.numpy()), **{"colors": INK, "linewidths": 1.0, "capstyle": "round", **style})
    ax.add_collection(lines)
    return lines


def gyroplane(ax: Axes, ball: PoincareBall, p: Points, a: Points, **style: Any) -> LineCollection:
    """Draw the hyperplane through p normal to a, from rim to rim."""
    ball, p, a = on_page(ball).page, _points(p), _points(a)
    if not bool(a.any(-1).all()):
        raise CurvaeError(
            f"{int((~a.any(-1)).sum())} hyperplanes have the normal 0, which points nowhere; leave them out"
        )
    across = torch.nn.functional.normalize(torch.stack([-a[..., 1], a[..., 0]], -1), dim=-1, eps=0.0)
    c = float(ball.c)
    # In the plane, past the farthest corner of the window.
    window = max(_FLAT_REACH, *np.abs([*ax.get_xlim(), *ax.get_ylim()]).tolist())
    reach = 30 / math.sqrt(c) if c else 4 * (window + float(p.norm(dim=-1).max()))
    v = across * reach / ball.lambda_x(p).unsqueeze(-1)
    half, other = (geodesics(ax, ball, p, ball.expmap(p, way), steps=200, **style) for way in (v, -v))
    half.set_segments(
        [np.concatenate([o[::-1], s]) for o, s in zip(other.get_segments(), half.get_segments(), strict=True)]
    )
    other.remove()
    return half


def project(ball: PoincareBall, z: Tensor, p: Tensor, a: Tensor) -> Tensor:
    """Return the point of the hyperplane through p normal to a that is nearest to z."""
    c = ball.c
    S, P = (ball.to_lorentz(x.double()) for x in (z, p))
    normal, offset = h.plane(P, h.direction(a.double())[0], c)
    y = h.dot(normal, S) - offset * h.time(S, c)
    return ball.from_lorentz((S - y.unsqueeze(-1) * normal) / (1 + c * y * y).sqrt().unsqueeze(-1))


def grid(
    ball: PoincareBall, size: int = 400, reach: float | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64], Tensor, Tensor]:
    """Make a square lattice over the disc: its two axes, its points (size, size, 2), and which of them lie inside."""
    width = half_width(ball, reach)
    axis = torch.linspace(-width, width, size, dtype=torch.float64)
    z = torch.stack(torch.meshgrid(axis, axis, indexing="xy"), -1)
    within = on_page(ball).c * z.square().sum(-1) < 0.9999
    return axis.numpy(), axis.numpy(), torch.where(within.unsqueeze(-1), z, 0.0), within


def density(ax: Axes, distribution: HyperbolicNormal, size: int = 400, **style: Any) -> Any:
    """Draw the density of a distribution on the disc, with respect to the Riemannian measure, as a heat map."""
    ball = distribution.manifold
    if not isinstance(ball, PoincareBall) or ball.dim != 2:
        raise ValueError(f"the distribution must live on a PoincareBall of dimension 2, got {ball}")
    xs, ys, z, within = grid(ball, size)
    with torch.no_grad():
        value = torch.where(within, distribution.log_prob(z).exp(), math.nan)
    return ax.pcolormesh(
        xs, ys, value.numpy(), **{"cmap": "viridis", "shading": "gouraud", "rasterized": True, "zorder": 0.5, **style}
    )


def regular_tree(degree: int = 3, depth: int = 5, length: float | None = None) -> tuple[Tensor, list[tuple[int, int]]]:
    """Embed a regular tree in the disc of curvature −1 with edges of equal length and equal angles.

    Arguments:
        degree: neighbours of every inner node.
        depth: edges from the root to a leaf.
        length: of an edge; by default the shortest at which no two branches ever meet,
            cosh(length/2) = 1/sin(π/degree).

    Returns:
        Points of shape (nodes, 2), root first, and the edges as (parent, child).
    """
    if degree < 3 or depth < 1:
        raise ValueError(f"a regular tree needs degree ≥ 3 and depth ≥ 1, got {degree} and {depth}")
    ball = PoincareBall(2, 1.0)
    length = 2 * math.acosh(1 / math.sin(math.pi / degree)) if length is None else length
    points = [torch.zeros(2, dtype=torch.float64)]
    edges: list[tuple[int, int]] = []
    # Each node with the frame direction in which it was reached.
    frontier = [(0, -math.pi / 2)]
    for _ in range(depth):
        reached = []
        for parent, heading in frontier:
            x = points[parent]
            for k in range(int(parent > 0), degree):  # the first direction of any but the root is the way back
                angle = heading + math.pi + 2 * math.pi * k / degree
                v = torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64) * length
                child = ball.expmap(x, v / ball.lambda_x(x))
                arrival = ball.transp(x, child, v)
                points.append(child)
                edges.append((parent, len(points) - 1))
                reached.append((len(points) - 1, math.atan2(float(arrival[1]), float(arrival[0]))))
        frontier = reached
    return torch.stack(points), edges


# Maps of embedded points and of graphs.


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

    if (curve := on_page(ball).around(z)) is not None:
        ax.add_patch(Polygon(curve.numpy(), facecolor=RIM, alpha=0.35, linewidth=0, zorder=-1))

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
    drawn = _dots(ax, z[old], colours.colours[old], areas, opacity if old.all() else 0.5 * opacity, 2.0)
    if fresh.any():
        dots = _dots(ax, z[fresh], colours.colours[fresh], max(2 * area, 26.0 * zoom**2), 1.0, 2.4)
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
        shades = np.tile(to_rgba("#6b7785"), (len(pairs), 1))
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
    marked = [int(node) for node in central][:6]
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
        if not choices or (rank and min(choices)[0] > 4):  # so many nodes may lie under a name
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
