"""Drawing on the Poincaré disc, on the plane as its case c = 0, and the projection of more dimensions. Points are ball
coordinates, (…, 2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import Circle, Rectangle
from numpy.typing import NDArray
from torch import Tensor

from ..distributions import HyperbolicNormal
from ..errors import CurvaeError
from ..geometry import PoincareBall
from ..geometry import hyperboloid as h
from ..maps.charts import Chart, Points, Projection, as_number, ball_chart, project_from, project_to_disc, tensor

__all__ = [
    "INK",
    "RIM",
    "Page",
    "Points",
    "Projection",
    "as_number",
    "density",
    "disc",
    "fit_window",
    "geodesics",
    "grid",
    "gyroplane",
    "half_width",
    "inside",
    "on_page",
    "project",
    "project_from",
    "project_to_disc",
    "regular_tree",
    "rim",
    "tensor",
]

INK = "#1f2933"
RIM = "#9aa5b1"
Page = PoincareBall | Chart
"""where a picture is drawn: a ball of dimension 2, or the chart of a factor"""
_FLAT_REACH = 3.0  # half the width of the picture of a plane, in ball coordinates


def _points(x: Points) -> Tensor:
    points = tensor(x)
    if points.shape[-1:] != (2,):
        raise CurvaeError(
            f"only points of dimension 2 can be drawn, got shape {tuple(points.shape)}; see project_to_disc"
        )
    return points


def inside(ball: Page, x: Points, shape: tuple[int | None, ...] = (None, 2)) -> Tensor:
    """`x` as float64 points of the disc; an error unless they have the shape (None: any number) and lie inside."""
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
    """The chart on whose page to draw, at the present value of a curvature that may be learned."""
    if isinstance(ball, Chart):
        return ball
    if ball.dim != 2:
        raise CurvaeError(f"only a ball of dimension 2 can be drawn, got {ball}; see project_to_disc")
    return ball_chart(2, as_number(ball.c))


def fit_window(*points: Points) -> float:
    """The `reach` of a window around the origin that holds all the points, with a small margin."""
    return 1.05 * max((float(_points(x).abs().max()) for x in points), default=0.0) or _FLAT_REACH


def half_width(ball: Page, reach: float | None = None) -> float:
    """Half the width of the picture: to the rim, or to `reach` where there is none, as at c = 0.

    A disc much larger than the points would show them as one dot, so `reach` also cuts the window of small curvatures.
    """
    outline = on_page(ball).outline
    if math.isinf(outline):
        return reach or _FLAT_REACH
    return min(outline, max(reach, _FLAT_REACH) if reach else math.inf)


def rim(ball: Page, reach: float | None = None, **style: Any) -> Circle | None:
    """The rim as a patch, or None where all of it lies outside the window: to fill or to clip to a disc of very many
    pixels takes matplotlib minutes."""
    outline, edge = on_page(ball).outline, 1.03 * half_width(ball, reach)
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
    ax.set(xlim=(-edge, edge), ylim=(-edge, edge), aspect="equal")
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
    """The point of the hyperplane through p normal to a that is nearest to z."""
    c = ball.c
    S, P = (ball.to_lorentz(x.double()) for x in (z, p))
    normal, offset = h.plane(P, h.direction(a.double())[0], c)
    y = h.dot(normal, S) - offset * h.time(S, c)
    return ball.from_lorentz((S - y.unsqueeze(-1) * normal) / (1 + c * y * y).sqrt().unsqueeze(-1))


def grid(
    ball: PoincareBall, size: int = 400, reach: float | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64], Tensor, Tensor]:
    """A square lattice over the disc: its two axes, its points (size, size, 2), and which of them lie inside."""
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
    """A regular tree embedded in the disc of curvature −1 with edges of equal length and equal angles.

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
    frontier: Sequence[tuple[int, float | None]] = [(0, None)]
    for _ in range(depth):
        reached = []
        for parent, heading in frontier:
            x = points[parent]
            for k in range(degree) if heading is None else range(1, degree):
                angle = (math.pi / 2 if heading is None else heading + math.pi) + 2 * math.pi * k / degree
                v = torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64) * length
                child = ball.expmap(x, v / ball.lambda_x(x))
                arrival = ball.transp(x, child, v)
                points.append(child)
                edges.append((parent, len(points) - 1))
                reached.append((len(points) - 1, math.atan2(float(arrival[1]), float(arrival[0]))))
        frontier = reached
    return torch.stack(points), edges
