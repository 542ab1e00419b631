"""Drawing on the Poincaré disc, and on the plane as its case c = 0. Points are ball coordinates, shape (…, 2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import Circle
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..distributions import HyperbolicNormal
from ..geometry import PoincareBall
from ..geometry import hyperboloid as h

__all__ = ["INK", "RIM", "density", "disc", "geodesics", "grid", "gyroplane", "project", "regular_tree"]

INK = "#1f2933"
RIM = "#9aa5b1"
_FLAT_REACH = 3.0  # half the width of the picture of a plane, in ball coordinates


def _points(x: Tensor | ArrayLike) -> Tensor:
    points = torch.as_tensor(np.asarray(x) if not isinstance(x, Tensor) else x).detach().double().cpu()
    if points.shape[-1] != 2:
        raise ValueError(f"only points of dimension 2 can be drawn, got shape {tuple(points.shape)}")
    return points


def disc(ax: Axes, ball: PoincareBall, face: str = "white") -> Axes:
    """Prepare axes: the rim of the disc, equal scales, no ticks; at c = 0 a window of the plane."""
    c = float(ball.c)
    radius = 1 / math.sqrt(c) if c else _FLAT_REACH
    if c:
        ax.add_patch(Circle((0, 0), radius, facecolor=face, edgecolor=RIM, linewidth=1.0, zorder=0))
    ax.set_xlim(-1.03 * radius, 1.03 * radius)
    ax.set_ylim(-1.03 * radius, 1.03 * radius)
    ax.set_aspect("equal")
    ax.axis("off")
    return ax


def geodesics(
    ax: Axes, ball: PoincareBall, start: Tensor | ArrayLike, end: Tensor | ArrayLike, steps: int = 48, **style: Any
) -> LineCollection:
    """Draw the geodesics between pairs of points: arcs of circles orthogonal to the rim, or lines through its centre.

    Arguments:
        ax: axes, prepared by `disc`.
        ball: the space.
        start, end: points of shape (N, 2) or (2,).
        steps: straight pieces a geodesic.
        style: as for matplotlib's LineCollection.
    """
    x, y = torch.broadcast_tensors(torch.atleast_2d(_points(start)), torch.atleast_2d(_points(end)))
    t = torch.linspace(0, 1, steps, dtype=torch.float64)[:, None]
    path = ball.geodesic(t, x, y).transpose(0, 1)
    lines = LineCollection(list(path.numpy()), **{"colors": INK, "linewidths": 1.0, "capstyle": "round", **style})
    ax.add_collection(lines)
    return lines


def gyroplane(
    ax: Axes, ball: PoincareBall, p: Tensor | ArrayLike, a: Tensor | ArrayLike, **style: Any
) -> LineCollection:
    """Draw the hyperplane through p normal to a, from rim to rim."""
    p, a = _points(p), _points(a)
    across = torch.stack([-a[..., 1], a[..., 0]], -1)
    across = across / across.norm(dim=-1, keepdim=True)
    c = float(ball.c)
    reach = 30 / math.sqrt(c) if c else 4 * _FLAT_REACH
    v = across * reach / ball.lambda_x(p).unsqueeze(-1)
    half = geodesics(ax, ball, p, ball.expmap(p, v), steps=200, **style)
    other = geodesics(ax, ball, p, ball.expmap(p, -v), steps=200, **style)
    half.set_segments(
        [np.concatenate([o[::-1], s]) for o, s in zip(other.get_segments(), half.get_segments(), strict=True)]
    )
    other.remove()
    return half


def project(ball: PoincareBall, z: Tensor, p: Tensor, a: Tensor) -> Tensor:
    """The point of the hyperplane through p normal to a that is nearest to z."""
    c = ball.c
    S, P = (ball.to_lorentz(x.double()) for x in (z, p))
    unit, _ = h.direction(a.double())
    normal, offset = h.plane(P, unit, c)
    y = h.dot(normal, S) - offset * h.time(S, c)
    foot = (S - y.unsqueeze(-1) * normal) / (1 + c * y * y).sqrt().unsqueeze(-1)
    return ball.from_lorentz(foot)


def grid(ball: PoincareBall, size: int = 400) -> tuple[NDArray[np.float64], NDArray[np.float64], Tensor, Tensor]:
    """A square lattice over the disc: its two axes, its points (size, size, 2), and which of them lie inside."""
    c = float(ball.c)
    radius = 1 / math.sqrt(c) if c else _FLAT_REACH
    axis = torch.linspace(-radius, radius, size, dtype=torch.float64)
    z = torch.stack(torch.meshgrid(axis, axis, indexing="xy"), -1)
    inside = c * z.square().sum(-1) < 0.9999
    return axis.numpy(), axis.numpy(), torch.where(inside.unsqueeze(-1), z, 0.0), inside


def density(ax: Axes, distribution: HyperbolicNormal, size: int = 400, **style: Any) -> Any:
    """Draw the density of a distribution on the disc, with respect to the Riemannian measure, as a heat map."""
    ball = distribution.manifold
    if not isinstance(ball, PoincareBall) or ball.dim != 2:
        raise ValueError(f"the distribution must live on a PoincareBall of dimension 2, got {ball}")
    xs, ys, z, inside = grid(ball, size)
    with torch.no_grad():
        value = torch.where(inside, distribution.log_prob(z).exp(), math.nan)
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
            turns = range(degree) if heading is None else range(1, degree)
            for k in turns:
                angle = (math.pi / 2 if heading is None else heading + math.pi) + 2 * math.pi * k / degree
                v = torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64) * length
                child = ball.expmap(x, v / ball.lambda_x(x))
                arrival = ball.transp(x, child, v)
                points.append(child)
                edges.append((parent, len(points) - 1))
                reached.append((len(points) - 1, math.atan2(float(arrival[1]), float(arrival[0]))))
        frontier = reached
    return torch.stack(points), edges
