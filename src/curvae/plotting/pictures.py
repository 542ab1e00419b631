"""Pictures: what all share, the palette, colours from labels, quiet axes, colour bars, and figures as bytes; maps of a
latent space on the Poincaré disc, and on the plane as its case c = 0; of graphs, with edges as geodesics; learning
curves, radii, reconstructions and mosaics of a model; scores of hierarchies and curvatures.

Points are ball coordinates, (…, 2).
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import pandas as pd
import torch
from matplotlib import patheffects, pyplot as plt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colorbar import Colorbar
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgba, to_rgba_array
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Patch, PathPatch, Polygon, Rectangle
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox
from numpy.typing import ArrayLike, NDArray
from scipy.cluster.hierarchy import dendrogram as layout
from torch import Tensor

from ..distributions import HyperbolicNormal, HyperbolicRadius
from ..errors import CurvaeError
from ..geometry import PoincareBall, hyperboloid as h
from ..maps.charts import Chart, Points, as_number, ball_chart, tensor

__all__ = [
    "DARK_GREY",
    "DARK_PALETTE",
    "DARK_SEQUENTIAL",
    "EDGES_DRAWN",
    "GREY",
    "INK",
    "PALETTE",
    "RIM",
    "SEQUENTIAL",
    "Colouring",
    "Levels",
    "Page",
    "bands",
    "beside_surrogates",
    "colour_bar",
    "colouring",
    "confusion",
    "curvature_profile",
    "curves",
    "decoded_mosaic",
    "dendrogram",
    "density",
    "disc",
    "edges_drawn",
    "figure_bytes",
    "fit_window",
    "geodesics",
    "graph_map",
    "grid",
    "gyroplane",
    "gyroplane_heat",
    "half_width",
    "inches",
    "inside",
    "latent_map",
    "legend",
    "levels",
    "mosaic",
    "on_page",
    "plain",
    "project",
    "quiet",
    "radius_histogram",
    "reconstructions",
    "regular_tree",
    "rim",
    "sample_grid",
    "sequential",
    "shaded",
    "show_tiles",
    "thin",
    "thumbnails",
    "volcano",
]

# Each colour is the farthest from those before it, from white and from grey, in the least favourable of normal,
# protanopic and deuteranopic vision; so the first n are a good palette for every n.
PALETTE = (
    *("#2b6cb0", "#e08214", "#1a9879", "#a3182f", "#8fc3ea", "#5b2a86", "#e6cf3c", "#ac77fa", "#976b15", "#47c682"),
    *("#680835", "#235d5b", "#d57cb5", "#b3318d", "#e84e5f", "#283757", "#4242bf", "#8fe8b4", "#795fe2", "#305301"),
)
GREY = "#c4cad1"
INK = "#1f2933"
RIM = "#9aa5b1"
# The same hues for a dark ground, lifted and spread so that no two come nearer than in the palette above.
DARK_PALETTE = (
    *("#5e73ca", "#fe961e", "#0aa299", "#e36d48", "#b2e4fc", "#b2a6ff", "#dfde3b", "#9085fe", "#976106", "#5dcd87"),
    *("#ca1e5f", "#8ac5c3", "#ea6dab", "#b546a7", "#db667a", "#7795d4", "#5d52da", "#8ae8b9", "#5469ff", "#c9d97e"),
)
DARK_GREY = "#5f6b78"
# Viridis without its last yellow, which is too faint on white.
SEQUENTIAL = LinearSegmentedColormap.from_list("curvae", mpl.colormaps["viridis"](np.linspace(0.0, 0.93, 256)))
# On dark ground its first violets are too faint instead.
DARK_SEQUENTIAL = LinearSegmentedColormap.from_list("curvae", mpl.colormaps["viridis"](np.linspace(0.25, 1.0, 256)))


@dataclass(frozen=True)
class Colouring:
    """A colour for each point, and how to read it: names with their colours, or a scale of numbers, and a title."""

    colours: NDArray[np.float64]
    names: Sequence[tuple[str, str]] = ()
    scale: ScalarMappable | None = None
    title: str = ""

    def explain(self, ax: Axes, marks: Mapping[str, Line2D] = MappingProxyType({})) -> None:
        """Add the legend or the colour bar beside the axes; `marks` are more entries of the legend, by name."""
        if self.scale is not None:
            colour_bar(ax, self.scale, plain(self.title))
        dots = [Line2D([], [], marker="o", linestyle="", markersize=4, color=colour) for _, colour in self.names]
        if dots or marks:
            legend(
                ax,
                [*dots, *marks.values()],
                [*(name for name, _ in self.names), *marks],
                plain(self.title) if dots else "",
            )


@dataclass(frozen=True)
class Levels:
    """Categories of points.

    Arguments:
        codes: the place in `texts` of each point's category, −1 where it has none.
        texts: names of the categories.
        shown: codes of those that have a colour of their own, in the order of the palette and the legend.
    """

    codes: NDArray[np.intp]
    texts: Sequence[str]
    shown: Sequence[int]


def levels(labels: ArrayLike | Tensor, count: int) -> Levels | NDArray[np.float64]:
    """Read labels of `count` points as categories, or as numbers of a scale, NaN where there is none.

    Labels are categories when they are text, booleans, or whole numbers with at most 20 different values. With more
    than 20 categories the most frequent have colours.
    """
    values = pd.Series(np.asarray(labels.detach().cpu()) if isinstance(labels, Tensor) else labels).infer_objects()
    if len(values) != count:
        raise CurvaeError(f"{len(values)} labels for {count} points; give one label a point")
    if pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values):
        numbers = np.asarray(values.to_numpy(np.float64, na_value=np.nan), np.float64)
        known = np.isfinite(numbers)
        values = values.where(known)
        different = np.unique(numbers[known])
        if len(different) > len(PALETTE) or (different % 1 != 0).any():
            return np.where(known, numbers, np.nan)
    codes, unique = pd.factorize(values)
    texts = [f"{level:g}" if isinstance(level, float) else str(level) for level in unique]
    frequency = np.bincount(codes[codes >= 0], minlength=len(texts))
    # Numbers inside text are sorted by value: "class 9" before "class 10".
    rank = [
        ([(word, int(digits or 0)) for word, digits in re.findall(r"([^0-9]*)([0-9]*)", text)], text) for text in texts
    ]
    shown = sorted(range(len(texts)), key=lambda k: (-frequency[k], rank[k]))
    shown = shown if len(texts) <= len(PALETTE) else shown[: len(PALETTE) - 1]
    return Levels(codes, texts, sorted(shown, key=rank.__getitem__))


def colouring(labels: ArrayLike | Tensor | None, count: int) -> Colouring:
    """Choose colours for `count` points from their labels.

    Categories (see `levels`) have colours of the palette, the rarest of many share the grey of "other"; numbers get a
    sequential scale. Points without a label (None, NaN) are grey.
    """
    if labels is None:
        return Colouring(np.repeat(to_rgba_array(PALETTE[0]), count, 0))
    found = levels(labels, count)
    if not isinstance(found, Levels):
        scale = sequential(np.nanmin(found), np.nanmax(found))
        return Colouring(shaded(found, scale), scale=scale)
    table = np.repeat(to_rgba_array(GREY), len(found.texts) + 1, 0)  # the last row serves the code −1
    table[list(found.shown)] = to_rgba_array(PALETTE[: len(found.shown)])
    names = [(plain(found.texts[k]), colour) for k, colour in zip(found.shown, PALETTE, strict=False)]
    if len(found.shown) < len(found.texts):
        names.append((f"other ({len(found.texts) - len(found.shown)})", GREY))
    if (found.codes < 0).any():
        names.append(("no label", GREY))
    return Colouring(table[found.codes], names)


def sequential(low: float, high: float) -> ScalarMappable:
    """Return a sequential scale of colours between two numbers."""
    return ScalarMappable(Normalize(low, high), SEQUENTIAL)


def shaded(numbers: NDArray[np.float64], scale: ScalarMappable) -> NDArray[np.float64]:
    """Return colours of numbers, (N, 4): those of the scale, grey for what is not finite."""
    return np.where(np.isfinite(numbers)[:, None], scale.to_rgba(numbers), to_rgba_array(GREY))


def plain(text: str, length: int = 18) -> str:
    """Make somebody else's text fit for a picture: not too long, and never read as mathematics."""
    text = text if len(text) <= length else text[: length - 1] + "…"
    return text.replace("$", r"\$")


def legend(ax: Axes, handles: Sequence[Any], names: Sequence[str], title: str = "") -> None:
    """Draw a legend to the right of the axes; in two columns when it is longer than they are high."""
    drawn = ax.legend(
        handles,
        names,
        title=title or None,
        title_fontsize=7,
        alignment="left",
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        ncols=1 if 0.15 * len(names) <= inches(ax) else 2,
        frameon=False,
        fontsize=7,
        labelcolor=INK,
        handletextpad=0.1,
        columnspacing=0.6,
        borderaxespad=0.0,
    )
    drawn.get_title().set_color(INK)


def colour_bar(ax: Axes, scale: ScalarMappable, label: str = "") -> Colorbar:
    """Draw a slim colour bar to the right of the axes."""
    bar = ax.figure.colorbar(scale, ax=ax, shrink=0.7, aspect=28, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7, color=RIM, labelcolor=INK, length=2)
    bar.set_label(label, fontsize=7, color=INK)
    return bar


def quiet(ax: Axes, xlabel: str = "", ylabel: str = "", title: str | None = None) -> Axes:
    """Draw axes of a chart with little ink: two thin spines, small text."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(RIM)
    ax.tick_params(labelsize=7, color=RIM, labelcolor=INK, length=2)
    ax.set_xlabel(xlabel, fontsize=8, color=INK)
    ax.set_ylabel(ylabel, fontsize=8, color=INK)
    if title:
        ax.set_title(title, fontsize=9, color=INK)
    return ax


def inches(ax: Axes) -> float:
    """Return the smaller side of the axes, from which sizes of text and dots follow."""
    return float(min(ax.get_window_extent().size)) / ax.figure.dpi


def figure_bytes(
    figure: Figure,
    format: Literal["png", "svg", "pdf"] = "png",  # noqa: A002 - matplotlib's word
    dpi: int = 144,
) -> bytes:
    """Return the figure as the bytes of a small file, the same for the same figure, and closed.

    Example:
        >>> figure_bytes(Figure(figsize=(1, 1)))[1:4]
        b'PNG'
    """
    stream = io.BytesIO()
    options: dict[str, dict[str, Any]] = {
        "png": {"metadata": {"Software": None}},
        "svg": {"metadata": {"Date": None, "Creator": None}},
        "pdf": {"metadata": {"CreationDate": None, "Creator": None, "Producer": None}},
    }
    # Ids inside an SVG file are random without a salt; letters of a PDF file stay letters.
    with mpl.rc_context({"svg.hashsalt": "curvae", "pdf.fonttype": 42}), warnings.catch_warnings():
        # A letter that the font lacks, in a label say, is drawn as a box.
        warnings.filterwarnings("ignore", "Glyph")
        figure.savefig(stream, format=format, dpi=dpi, bbox_inches="tight", pad_inches=0.04, **options[format])
    plt.close(figure)
    return stream.getvalue()


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
    lines = LineCollection(
        list(on_page(ball).page.geodesic(t, x, y).transpose(0, 1).numpy()),
        **{"colors": INK, "linewidths": 1.0, "capstyle": "round", **style},
    )
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
    drawn = _dots(
        ax,
        z[old],
        colours.colours[old],
        area if sizes is None else area * np.asarray(sizes, float)[old],
        opacity if old.all() else 0.5 * opacity,
        2.0,
    )
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
        _write_names(
            ax,
            z.numpy(),
            chosen,
            [plain(str(names[node]), 24) for node in chosen],
            widths[chosen] / 2,
            7.0 * min(1.0, zoom),
            len(marked),
        )
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


# Pictures made of small images: at their embedding, decoded over the disc, or as a plain grid.


def thumbnails(images: Points, side: int = 48) -> Tensor:
    """Return images (N, H, W) as float64, reduced so that no side is longer than `side`."""
    pixels = tensor(images)
    if pixels.dim() != 3 or not pixels.numel():
        raise CurvaeError(f"images must have shape (N, H, W) with at least one pixel, got {tuple(pixels.shape)}")
    shrink = min(1.0, side / max(pixels.shape[1:]))
    height, width = (max(1, round(shrink * n)) for n in pixels.shape[1:])
    return pixels if shrink == 1 else torch.nn.functional.adaptive_avg_pool2d(pixels, (height, width))


def show_tiles(
    ax: Axes,
    images: Tensor,
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    shape: tuple[int, int],
    gap: int = 0,
    outer_gap: bool = True,
    **style: Any,
) -> AxesImage:
    """Show one canvas of shape[0] × shape[1] cells with image k in cell (rows[k], columns[k]), above and left of a gap.

    The last gaps are left out without `outer_gap`. It is clear where there is no image. Grey levels are shown as they
    are: 0 is black. Values outside [0, 1] set the range themselves.
    """
    height, width = images.shape[1:]
    cells = np.full((shape[0], height + gap, shape[1], width + gap), np.nan)
    cells[rows, :height, columns, :width] = images.numpy()
    canvas = cells.reshape(shape[0] * (height + gap), -1)
    low, high = min(0.0, float(np.nanmin(canvas))), max(1.0, float(np.nanmax(canvas)))
    style = {"cmap": "gray", "vmin": low, "vmax": high, "interpolation": "antialiased", **style}
    return ax.imshow(canvas if outer_gap else canvas[:-gap, :-gap], **style)


def _square(images: Tensor) -> Tensor:
    """Images padded to squares with their darkest value, so that cells keep their proportions."""
    height, width = images.shape[1:]
    side = max(height, width)
    top, left = (side - height) // 2, (side - width) // 2
    return torch.nn.functional.pad(
        images,
        (left, side - width - left, top, side - height - top),
        value=float(images.nan_to_num(torch.inf).min()),
    )


def _lay(
    ax: Axes,
    ball: Page,
    images: Tensor,
    cells: NDArray[np.int64],
    n: int,
    reach: float | None,
    style: dict[str, Any],
    gap: int = 0,
) -> AxesImage:
    """Images in cells (column, row) of an n × n lattice over the disc, cut at the rim."""
    width = half_width(ball, reach)
    disc(ax, ball, reach=reach)
    style = {"origin": "lower", "extent": (-width, width, -width, width), "zorder": 1.0, **style}
    drawn = show_tiles(ax, _square(images).flip(1), cells[:, 1], cells[:, 0], (n, n), gap, **style)
    if circle := rim(ball, reach, transform=ax.transData):
        drawn.set_clip_path(circle)
    return drawn


def thin(points: Tensor, width: float, n: int, limit: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each occupied cell of an n × n lattice over [−width, width]², the point nearest to its centre.

    Of more than `limit` cells those with the most points stay.

    Returns:
        Indices of the points, and their cells as (column, row).
    """
    place = (points.numpy() + width) * n / (2 * width)
    cell = np.clip(np.floor(place), 0, n - 1).astype(np.int64)
    order = np.lexsort((((place - cell - 0.5) ** 2).sum(1), cell[:, 0], cell[:, 1]))
    _, first, count = np.unique(cell[order] @ [1, n], return_index=True, return_counts=True)
    chosen = order[first[np.argsort(-count, kind="stable")[:limit]]]
    return chosen, cell[chosen]


def mosaic(
    ax: Axes, ball: Page, points: Points, images: Points, *, size: float = 0.04, limit: int = 1000, **style: Any
) -> AxesImage:
    """Draw images at their embedding, thinned so that none covers another.

    The picture is cut into square cells; each shows the image nearest to its centre, moved there.

    Arguments:
        ax: axes; they are prepared here.
        ball: the space.
        points: ball coordinates, shape (N, 2).
        images: grey levels, shape (N, H, W).
        size: side of an image as a share of the width of the picture.
        limit: draw at most so many images, those of the fullest cells.
        style: as for matplotlib's imshow; cmap="gray_r" draws black on white.

    Example:
        >>> from matplotlib.figure import Figure
        >>> x = PoincareBall(2).random(300)
        >>> drawn = mosaic(Figure().subplots(), PoincareBall(2), x, torch.rand(300, 8, 8), size=0.1)
        >>> drawn.get_array().shape
        (90, 90)
    """
    z, pixels = inside(ball, points), thumbnails(images)
    if len(pixels) != len(z):
        raise CurvaeError(f"{len(pixels)} images for {len(z)} points; give one image a point")
    if not (0 < size <= 1 and limit >= 1):
        raise CurvaeError(f"size must lie in (0, 1] and limit be at least 1, got {size} and {limit}")
    n, reach = round(1 / size), fit_window(z)
    chosen, cells = thin(z, half_width(ball, reach), n, limit)
    return _lay(ax, ball, pixels[chosen], cells, n, reach, style, gap=1)


def decoded_mosaic(
    ax: Axes,
    ball: PoincareBall,
    decode: Callable[[Tensor], Points],
    shape: tuple[int, int],
    n: int = 20,
    *,
    reach: float | None = None,
    **style: Any,
) -> AxesImage:
    """Draw the images that a decoder makes at a square lattice of points of the disc.

    Arguments:
        ax: axes; they are prepared here.
        ball: the space.
        decode: from points (M, 2), ball coordinates of the default dtype, to grey levels (M, H·W).
        shape: (H, W).
        n: images a side.
        reach: half the width of the window at c = 0; see `fit_window`.
        style: as for matplotlib's imshow.
    """
    ball = on_page(ball).page
    cells = np.indices((n, n)).reshape(2, -1).T[:, ::-1]  # column and row
    z = torch.as_tensor((2 * cells + 1 - n) * (half_width(ball, reach) / n))
    # A decoder cannot be asked beyond the rim, and close to it sees what it never met in training.
    near = float(ball.c) * z.square().sum(1) < 0.99
    with torch.no_grad():
        images = decode(z[near].to(torch.get_default_dtype()))
    return _lay(ax, ball, thumbnails(tensor(images).reshape(-1, *shape)), cells[near.numpy()], n, reach, style)


def sample_grid(ax: Axes, images: Points, columns: int | None = None, **style: Any) -> AxesImage:
    """Draw images of shape (N, H, W) side by side, row after row.

    Arguments:
        ax: axes.
        images: grey levels.
        columns: images a row; by default as many as there are rows.
        style: as for matplotlib's imshow.
    """
    pixels = thumbnails(images, 128)
    columns = columns or math.ceil(math.sqrt(len(pixels)))
    row, column = np.divmod(np.arange(len(pixels)), columns)
    ax.axis("off")
    return show_tiles(ax, pixels, row, column, (int(row[-1]) + 1, columns), gap=1, outer_gap=False, **style)


def confusion(ax: Axes, matrix: Points, names: Sequence[object]) -> AxesImage:
    """Draw a confusion matrix, rows the truth and columns the prediction, coloured by the share of each row.

    Arguments:
        ax: axes.
        matrix: counts (whole numbers) or shares, shape (K, K); written in the cells of at most 20 classes.
        names: of the K classes.
    """
    table, k = np.asarray(matrix), len(names)
    if table.shape != (k, k) or not k:
        raise CurvaeError(f"a confusion matrix of {k} names must have shape ({k}, {k}), got {table.shape}")
    total = table.sum(1, keepdims=True)
    share = np.divide(table, total, out=np.zeros(table.shape), where=total > 0)
    drawn = ax.imshow(share, cmap="Blues", vmin=0, vmax=1.15)
    cell = 72 * inches(ax) / k  # in points
    if k <= 20:
        whole = np.issubdtype(table.dtype, np.integer)
        texts = [[f"{x}" if whole else f"{x:.2f}".removeprefix("0") for x in row] for row in table]
        size = min(8.0, 1.3 * cell / max(len(text) for row in texts for text in row))
        for i, j in np.ndindex(k, k):
            if texts[i][j] not in ("0", ".00"):
                ax.text(
                    j,
                    i,
                    texts[i][j],
                    ha="center",
                    va="center",
                    fontsize=size,
                    color="white" if share[i, j] > 0.6 else INK,
                )
    labels = [plain(str(name), 14) for name in names] if k <= 40 else []
    ax.set_xticks(range(len(labels)), labels, rotation=90 if k > 3 and max(map(len, labels), default=0) > 2 else 0)
    ax.set_yticks(range(len(labels)), labels)
    quiet(ax, "predicted", "true")
    ax.tick_params(length=0, labelsize=min(7.0, 0.8 * cell))
    ax.spines[:].set_visible(False)
    return drawn


def curves(axes: Sequence[Axes], history: Sequence[Mapping[str, float]]) -> tuple[Axes, Axes]:
    """Draw learning curves: the ELBO on the first axes, its two parts on the second (KL left, reconstruction right).

    Lines are the training rows, dashes the validation rows. The first epochs do not set the scale.

    Arguments:
        axes: two of them.
        history: a record an epoch with "epoch" and any of "elbo", "reconstruction", "kl", "c" (of a product
            "c_1", "c_2", …), "validation_elbo",
            "validation_reconstruction", "validation_kl".

    Example:
        >>> from matplotlib.figure import Figure
        >>> records = [{"epoch": k, "elbo": -100 / (k + 1), "kl": 1.0} for k in range(20)]
        >>> left, right = curves(Figure().subplots(1, 2), records)
        >>> bool(left.get_ylim()[0] > -50)
        True
    """
    if not history:
        raise CurvaeError("there are no learning curves to draw: the history is empty; train for at least one epoch")
    (first, second), records = axes, pd.DataFrame(list(history))
    _series(first, records, "elbo", INK)
    quiet(first, "epoch", "ELBO (nats)")
    if records.columns.str.startswith("validation_").any():
        for style, name in (("-", "training"), ("--", "validation")):
            first.plot([], [], style, color=INK, linewidth=1.1, label=name)
        first.legend(frameon=False, fontsize=7, labelcolor=INK, loc="best")
    right = second.twinx()
    for ax, key, colour, label in (
        (second, "kl", PALETTE[0], "KL (nats)"),
        (right, "reconstruction", PALETTE[1], "reconstruction (nats)"),
    ):
        _series(ax, records, key, colour)
        quiet(ax, "epoch", label)
        ax.yaxis.label.set_color(colour)
        ax.tick_params(axis="y", labelcolor=colour)
    right.spines[:].set_visible(False)
    each = {name: c[np.isfinite(c)] for name, c in records.filter(regex="^c(_|$)").astype(np.float64).items()}
    learned = (f"learned {name}: {c.iloc[0]:.3g} → {c.iloc[-1]:.3g}" for name, c in each.items() if c.nunique() > 1)
    first.set_title(", ".join(learned), fontsize=8, color=INK)
    return first, second


def bands(
    ax: Axes, x: NDArray[np.float64], lines: Mapping[str, tuple[NDArray[np.float64], ...]], xlabel: str = "pseudotime"
) -> Axes:
    """Draw lines with their intervals.

    Arguments:
        ax: axes.
        x: places on the horizontal axis.
        lines: values with their lower and upper ends, by name.
        xlabel: name of the axis.

    Example:
        >>> from matplotlib.figure import Figure
        >>> x = np.linspace(0, 1, 5)
        >>> len(bands(Figure().subplots(), x, {"a": (x, x - 1, x + 1), "b": (-x, -x, -x)}).lines)
        2
    """
    for place, (name, (mean, low, high)) in enumerate(lines.items()):
        colour = PALETTE[place % len(PALETTE)]
        ax.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
        ax.plot(x, mean, color=colour, linewidth=1.1, label=name)
    ax.legend(frameon=False, fontsize=7, labelcolor=INK, loc="best")
    return quiet(ax, xlabel, "expected value")


def volcano(ax: Axes, table: pd.DataFrame, marked: NDArray[np.bool_], named: int = 10) -> Axes:
    """Draw by how much genes differ, and by how many standard deviations.

    Arguments:
        ax: axes.
        table: a line for each gene, with its name as the index, `lfc_mean` and `lfc_std`.
        marked: which genes are coloured.
        named: how many of these have their names, from the first on.

    Example:
        >>> from matplotlib.figure import Figure
        >>> table = pd.DataFrame({"lfc_mean": [2.0, 0.1], "lfc_std": [0.1, 0.1]}, index=["a", "b"])
        >>> [text.get_text() for text in volcano(Figure().subplots(), table, np.array([True, False])).texts]
        ['a']
    """
    x, y = table["lfc_mean"].to_numpy(), (table["lfc_mean"].abs() / table["lfc_std"].clip(1e-9)).to_numpy()
    for chosen, colour in ((~marked, GREY), (marked, PALETTE[0])):
        ax.scatter(x[chosen], y[chosen], s=5, color=colour, linewidths=0)
    for gene in np.flatnonzero(marked)[:named]:
        ax.annotate(plain(str(table.index[gene])), (x[gene], y[gene]), fontsize=6, color=INK)
    return quiet(ax, "log2 fold change", "standard deviations from 0")


def _series(ax: Axes, records: pd.DataFrame, key: str, colour: str) -> None:
    """Draw a quantity over epochs, for training and validation rows, with limits that the later epochs set."""
    drawn = []
    for name, style in ((key, "-"), (f"validation_{key}", "--")):
        pairs = records.reindex(columns=["epoch", name]).to_numpy(np.float64)
        x, value = pairs[np.isfinite(pairs).all(1)].T
        if len(value):
            ax.plot(x, value, style, color=colour, linewidth=1.1, marker="o" if len(value) == 1 else "", markersize=4)
            drawn.append(np.stack([x, value]))
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    if drawn:
        x, value = np.concatenate(drawn, 1)
        if np.ptp(x) == 0:
            ax.set_xlim(x[0] - 1, x[0] + 1)
        value = value[x >= x.min() + 0.2 * np.ptp(x)]
        low, high = value.min(), value.max()
        margin = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
        ax.set_ylim(low - margin, high + margin)


def radius_histogram(
    ax: Axes,
    radii: Points,
    c: Tensor | float,
    prior_scale: float | None = None,
    *,
    dim: int = 2,
    distribution: Literal["riemannian", "wrapped"] = "riemannian",
) -> Axes:
    """Draw how far from the origin the embedded points lie, beside the distribution of the prior.

    Arguments:
        ax: axes.
        radii: geodesic distances from the origin, as `ball.dist0` gives them.
        c: minus the curvature.
        prior_scale: scale of the prior; without it the prior is not drawn.
        dim: dimension of the latent space, for the prior.
        distribution: family of the prior.
    """
    r, c = tensor(radii).flatten().numpy(), as_number(c)
    if not len(r) or not np.isfinite(r).all() or (r < 0).any():
        raise CurvaeError(
            f"radii must be at least one finite number ≥ 0, got {len(r)} of which "
            f"{int((~np.isfinite(r)).sum() + (r < 0).sum())} are not; compute them with ball.dist0"
        )
    top = float(r.max()) * 1.02 or 1.0
    ax.hist(r, np.linspace(0, top, min(60, 10 + math.isqrt(len(r))) + 1), density=True, color=GREY)  # type: ignore[arg-type]
    if prior_scale is not None:
        # A wrapped normal at the origin has the radius of the flat normal that it wraps.
        prior = HyperbolicRadius(
            dim, torch.tensor(float(prior_scale)).double(), c if distribution == "riemannian" else 0.0
        )
        x = torch.linspace(0, max(top, float(prior.icdf(torch.tensor(0.995).double()))), 400, dtype=torch.float64)
        ax.plot(x, prior.log_prob(x).exp(), color=PALETTE[0], linewidth=1.2, label="prior")
        ax.legend(frameon=False, fontsize=7, labelcolor=INK)
    ax.set_xlim(left=0)
    ax.set_yticks([])
    quiet(ax, f"{'hyperbolic ' if c else ''}distance from the origin")
    ax.spines["left"].set_visible(False)
    return ax


def reconstructions(
    axes: Iterable[Axes], originals: Points, reconstructed: Points, shape: Sequence[int], titles: Sequence[str]
) -> list[Axes]:
    """Draw each row beside its reconstruction, one row an axes: as images, or feature by feature.

    Arguments:
        axes: one for each row.
        originals, reconstructed: shape (R, D).
        shape: (H, W) of an image; of any other length, the first 100 features are drawn as bars, and their
            reconstruction as dots.
        titles: R of them, for example "worst", "median", "best".
    """
    rows, made = (tensor(x).flatten(1).numpy() for x in (originals, reconstructed))
    panels = list(axes)
    if not len(panels) == len(rows) == len(titles) or rows.shape != made.shape:
        raise CurvaeError(
            f"rows, reconstructions, axes and titles must be as many, got shapes {rows.shape} and {made.shape}, "
            f"{len(panels)} axes and {len(titles)} titles"
        )
    for ax, row, other, title in zip(panels, rows, made, titles, strict=True):
        ax.set_title(title, fontsize=8, color=INK)
        if len(shape) == 2:
            sample_grid(ax, np.stack([row, other]).reshape(2, *shape), columns=2)
            ax.text(
                0.5,
                -0.03,
                "original · reconstruction",
                fontsize=6,
                color=INK,
                transform=ax.transAxes,
                ha="center",
                va="top",
            )
        else:
            ax.stairs(row[:100], np.arange(len(row[:100]) + 1) - 0.5, fill=True, color=GREY, label="original")
            ax.plot(other[:100], ".", color=PALETTE[0], markersize=3, label="reconstruction")
            quiet(ax, "feature")
    if len(shape) != 2 and panels:
        panels[0].legend(frameon=False, fontsize=6, labelcolor=INK)
    return panels


def dendrogram(
    ax: Axes, merges: NDArray[np.float64], labels: ArrayLike | None = None, ylabel: str = "distance"
) -> Axes:
    """Draw a dendrogram, its leaves coloured by label.

    Arguments:
        ax: axes.
        merges: as `scipy.cluster.hierarchy.linkage` gives them.
        labels: one a leaf.
        ylabel: what the heights are.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = dendrogram(Figure().subplots(), np.array([[0, 1, 1.0, 2], [2, 3, 2.0, 3]]), ["a", "a", "b"])
        >>> [float(end) for end in ax.get_xlim()]
        [0.0, 30.0]
    """
    drawn = layout(merges, no_plot=True)
    corners = np.stack([drawn["icoord"], drawn["dcoord"]], -1)  # (merges, 4, 2)
    ax.add_collection(LineCollection(list(corners), colors=INK, linewidths=0.6))
    leaves, top = len(merges) + 1, float(merges[:, 2].max()) or 1.0
    if labels is not None:
        colours = colouring(labels, leaves)
        ax.imshow(
            colours.colours[drawn["leaves"]][None],
            extent=(0, 10 * leaves, -0.07 * top, -0.02 * top),
            aspect="auto",
            interpolation="nearest",
        )
        colours.explain(ax)
    ax.set(xlim=(0, 10 * leaves), ylim=(-0.08 * top, 1.03 * top), xticks=[])
    quiet(ax, f"{leaves:,} points", ylabel)
    ax.spines["bottom"].set_visible(False)
    return ax


def beside_surrogates(
    ax: Axes, names: Sequence[str], values: Sequence[float], surrogates: Sequence[Sequence[float]]
) -> Axes:
    """Draw scores between 0 and 1, one a line, over those of surrogates.

    Arguments:
        ax: axes.
        names: of the scores, from top to bottom.
        values: of the data.
        surrogates: of data without a hierarchy, some for each score.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = beside_surrogates(Figure().subplots(), ["four-point score"], [0.2], [[0.4, 0.5, 0.6]])
        >>> [text.get_text() for text in ax.get_yticklabels()]
        ['four-point score']
    """
    random = np.random.default_rng(0)
    for line, (value, drawn) in enumerate(zip(values, surrogates, strict=True)):
        height = -line + 0.18 * random.uniform(-1, 1, len(drawn))
        ax.plot(drawn, height, "o", color=GREY, markersize=3, label="surrogates" if line == 0 else None)
        ax.plot([value], [-line], "D", color=PALETTE[0], markersize=6, label="the data" if line == 0 else None)
    ax.set(xlim=(-0.03, 1.03), ylim=(0.6 - len(names), 0.6))
    ax.set_yticks([-line for line in range(len(names))], list(names))
    quiet(ax)
    ax.tick_params(axis="y", labelsize=8, length=0)
    ax.spines["left"].set_visible(False)
    ax.legend(frameon=False, fontsize=7, labelcolor=INK, ncols=2, loc="lower right", bbox_to_anchor=(1.0, 1.0))
    return ax


def curvature_profile(
    ax: Axes, profile: Sequence[tuple[float, float, float]], low: float, high: float | None, ylabel: str
) -> Axes:
    """Draw what each c·σ0² gains over 0, with its interval, over the set of those that may be best.

    Arguments:
        ax: axes.
        profile: c·σ0² in ascending order, what it gains, and the half-width of the interval of that.
        low, high: ends of the set; `high` is None for one that goes on.
        ylabel: what is gained.

    Example:
        >>> from matplotlib.figure import Figure
        >>> profile = [(0, 0, 0), (1, 0.3, 0.1), (4, 0.1, 0.2)]
        >>> ax = curvature_profile(Figure().subplots(), profile, 0.4, None, "gain, nats a row")
        >>> ax.get_xscale(), [text.get_text() for text in ax.get_xticklabels()]
        ('asinh', ['0', '1', '4'])
    """
    values, gains, intervals = zip(*profile, strict=True)
    ax.set_xscale("asinh")
    right = 1.15 * values[-1]
    ax.axvspan(low, right if high is None else high, color=PALETTE[0], alpha=0.15, label="95 % set")
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.errorbar(values, gains, intervals, fmt="o-", color=INK, markersize=4, linewidth=1, capsize=3)
    ax.set(xlim=(-0.05 * right, right))
    ax.set_xticks(values, [f"{value:.3g}" for value in values])
    ax.minorticks_off()
    quiet(ax, "c·σ0²", ylabel).legend(frameon=False, fontsize=7, labelcolor=INK)
    return ax
