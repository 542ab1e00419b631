"""Drawing on the Poincaré disc, on the plane as its case c = 0, and the projection of more dimensions. Points are ball
coordinates, (…, 2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import Circle, Rectangle
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..distributions import HyperbolicNormal
from ..errors import CurvaeError
from ..geometry import Lorentz, PoincareBall
from ..geometry import hyperboloid as h
from ..geometry.frames import Frame, seen_from

__all__ = [
    "INK",
    "RIM",
    "Points",
    "Projection",
    "as_number",
    "density",
    "disc",
    "fit_window",
    "frozen",
    "geodesics",
    "grid",
    "gyroplane",
    "half_width",
    "inside",
    "project",
    "project_from",
    "project_to_disc",
    "regular_tree",
    "rim",
    "tensor",
]

Points = Tensor | ArrayLike

INK = "#1f2933"
RIM = "#9aa5b1"
_FLAT_REACH = 3.0  # half the width of the picture of a plane, in ball coordinates


def tensor(x: Points) -> Tensor:
    """`x` as float64 on the CPU, without gradient."""
    return torch.as_tensor(x if isinstance(x, Tensor) else np.asarray(x)).detach().double().cpu()


def as_number(c: Tensor | float) -> float:
    """The present value of a curvature, which may be learned."""
    return float(c.detach()) if isinstance(c, Tensor) else float(c)


def _points(x: Points) -> Tensor:
    points = tensor(x)
    if points.shape[-1:] != (2,):
        raise CurvaeError(
            f"only points of dimension 2 can be drawn, got shape {tuple(points.shape)}; see project_to_disc"
        )
    return points


def inside(ball: PoincareBall, x: Points, shape: tuple[int | None, ...] = (None, 2)) -> Tensor:
    """`x` as float64 points of the disc; an error unless they have the shape (None: any number) and lie inside."""
    points = _points(x)
    if len(points.shape) != len(shape) or any(n not in (None, m) for n, m in zip(shape, points.shape, strict=True)):
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise CurvaeError(f"points to draw must have shape ({wanted}), got {tuple(points.shape)}")
    if not points.numel():
        raise CurvaeError(f"there are no points to draw: the shape is {tuple(points.shape)}; give at least one")
    if len(outside := (~ball.contains(points)).nonzero()):
        first = tuple(outside[0].tolist())
        raise CurvaeError(
            f"{len(outside)} of {points.numel() // 2} points do not lie in the disc c·|z|² < 1 with c = {ball.c:g}, "
            f"first at index {first}: {points[first].tolist()}; give finite ball coordinates (ball.from_lorentz)"
        )
    return points


def frozen(ball: PoincareBall) -> PoincareBall:
    """The disc at the present value of a curvature that may be learned."""
    if ball.dim != 2:
        raise CurvaeError(f"only a ball of dimension 2 can be drawn, got {ball}; see project_to_disc")
    return PoincareBall(2, as_number(ball.c))


def fit_window(*points: Points) -> float:
    """The `reach` of a window around the origin that holds all the points, with a small margin."""
    return 1.05 * max((float(_points(x).abs().max()) for x in points), default=0.0) or _FLAT_REACH


def half_width(ball: PoincareBall, reach: float | None = None) -> float:
    """Half the width of the picture: to the rim, or at c = 0 to `reach`.

    A disc much larger than the points would show them as one dot, so `reach` also cuts the window of small curvatures.
    """
    c = float(frozen(ball).c)
    if not c:
        return reach or _FLAT_REACH
    return min(1 / math.sqrt(c), max(reach, _FLAT_REACH) if reach else math.inf)


def rim(ball: PoincareBall, reach: float | None = None, **style: Any) -> Circle | None:
    """The rim as a patch, or None where all of it lies outside the window: to fill or to clip to a disc of very many
    pixels takes matplotlib minutes."""
    c, edge = float(frozen(ball).c), 1.03 * half_width(ball, reach)
    return Circle((0, 0), 1 / math.sqrt(c), **style) if 2 * c * edge * edge > 1 else None


def disc(ax: Axes, ball: PoincareBall, face: str = "white", reach: float | None = None) -> Axes:
    """Prepare axes: the rim of the disc, equal scales, no ticks; at c = 0 a window of the plane.

    Arguments:
        ax: axes to prepare.
        ball: the space.
        face: colour of the disc.
        reach: half the width of the window at c = 0, in ball coordinates; see `fit_window`.
    """
    c, edge = float(frozen(ball).c), 1.03 * half_width(ball, reach)
    style: dict[str, Any] = {"facecolor": face, "edgecolor": RIM, "zorder": 0}
    if circle := rim(ball, reach, linewidth=1.0, **style):
        ax.add_patch(circle)
    if c * edge * edge < 1:
        # The window cuts through the space: a frame of which the axes clip the outer half, fainter than the rim.
        ax.add_patch(Rectangle((-edge, -edge), 2 * edge, 2 * edge, linewidth=0.8, **style))
    ax.set(xlim=(-edge, edge), ylim=(-edge, edge), aspect="equal")
    ax.axis("off")
    return ax


def geodesics(
    ax: Axes, ball: PoincareBall, start: Points, end: Points, steps: int = 48, **style: Any
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
    path = frozen(ball).geodesic(t, x, y).transpose(0, 1)
    lines = LineCollection(list(path.numpy()), **{"colors": INK, "linewidths": 1.0, "capstyle": "round", **style})
    ax.add_collection(lines)
    return lines


def gyroplane(ax: Axes, ball: PoincareBall, p: Points, a: Points, **style: Any) -> LineCollection:
    """Draw the hyperplane through p normal to a, from rim to rim."""
    ball, p, a = frozen(ball), _points(p), _points(a)
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
    within = float(frozen(ball).c) * z.square().sum(-1) < 0.9999
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


# The one projection of a latent space of many dimensions to the disc, with what it loses.

_PAIRS = 2000
_ALL_PAIRS = 300  # up to so many points all pairs are compared
_MEAN_OF = 5000  # the Fréchet mean of more points costs memory and moves nothing that can be seen


@dataclass(frozen=True)
class Projection:
    """Points brought to the disc.

    Arguments:
        points: what was projected, shape (N, 2), ball coordinates.
        kept: Spearman's rank correlation between the distances before and after.
        sentence: what was done and what it kept, for the reader of the picture.
        c: minus the curvature.
        centre: the point that was moved to 0, shape (d,).
        axes: the two directions kept, as columns, shape (d, 2).
        space: the points as space parts on the hyperboloid, which tell those near the rim apart, shape (N, 2).
    """

    points: Tensor
    kept: float
    sentence: str
    c: float
    centre: Tensor
    axes: Tensor
    space: Tensor

    def apply(self, points: Points) -> Tensor:
        """Further points, of shape (…, d), projected the same way."""
        z = _checked(points, self.c)
        d = len(self.centre)
        if z.shape[-1] != d:
            raise CurvaeError(f"the projection was made for {d} dimensions, got points of shape {tuple(z.shape)}")
        if d <= 2 and not self.centre.any():
            return z @ self.axes  # to the last digit
        frame = Frame(h.from_ball(self.centre, self.c), self.axes, self.c)
        return PoincareBall(2, self.c).from_lorentz(frame.apply(h.from_ball(z, self.c)))


def project_to_disc(points: Points, c: Tensor | float) -> Projection:
    """Bring ball points of any dimension to the disc of the same curvature.

    Two dimensions stay untouched and one becomes the horizontal axis. With more, the Fréchet mean is moved to 0, the
    points go to the tangent space there by log_0, are turned to their two principal directions, and return by exp_0.

    Arguments:
        points: ball coordinates, shape (N, d).
        c: minus the curvature.

    Example:
        >>> ball = PoincareBall(5, 1.0)
        >>> x = ball.random(200, generator=torch.Generator().manual_seed(0))
        >>> projection = project_to_disc(x, 1.0)
        >>> projection.points.shape, round(projection.kept, 2)
        (torch.Size([200, 2]), 0.65)
    """
    c = as_number(c)
    z = _checked(points, c)
    if z.dim() != 2 or not z.numel():
        raise CurvaeError(f"points to project must have shape (N, d) with N and d at least 1, got {tuple(z.shape)}")
    n, d = z.shape
    if d <= 2:
        axes = torch.eye(d, 2, dtype=z.dtype)
        sentence = (
            "the two latent dimensions as they are" if d == 2 else "the one latent dimension, on the horizontal axis"
        )
        return Projection(z @ axes, 1.0, sentence, c, z.new_zeros(d), axes, h.from_ball(z @ axes, c))
    some = z if n <= _MEAN_OF else z[np.random.default_rng(0).choice(n, _MEAN_OF, replace=False)]
    centre = PoincareBall(d, c).frechet_mean(some)
    frame = Frame(h.from_ball(centre, c), torch.eye(d, dtype=z.dtype), c)
    v = frame.coordinates(h.from_ball(z, c))
    axes = torch.linalg.eigh(v.T @ v / n)[1][:, [-1, -2]]
    # The sign of an eigenvector is arbitrary; its largest entry is made positive.
    axes = axes * torch.take_along_dim(axes, axes.abs().argmax(0, keepdim=True), 0).sign()
    return project_from(replace(frame, axes=axes), h.from_ball(z, c))


def project_from(frame: Frame, S: Tensor) -> Projection:
    """Points as they are seen from a frame of two axes.

    Arguments:
        frame: the point in the middle of the disc and what is drawn to the right and upwards; one that `picture_frame`
            chose, say.
        S: space parts of points on the hyperboloid, (N, d).
    """
    space = frame.apply(S)
    kept, sentence = _describe_loss(S, space, frame) if len(frame.centre) > 2 else (1.0, "all latent dimensions")
    points = PoincareBall(2, frame.c).from_lorentz(space)
    return Projection(points, kept, sentence, frame.c, h.ball(frame.centre, frame.c), frame.axes, space)


def _describe_loss(S: Tensor, space: Tensor, frame: Frame) -> tuple[float, str]:
    """Return the rank correlation of distances between points and their projection, and what was lost in words."""
    before, after = (float(h.dist0(x, frame.c).square().sum()) for x in (seen_from(frame.centre, S, frame.c), space))
    share = after / before if before > 0 else 1.0
    kept = _rank_correlation(S, space, frame.c)
    sentence = (
        f"projected from {S.shape[1]} dimensions: {100 * share:.0f} % of the variance at the origin kept, "
        f"rank correlation of distances {kept:.2f}"
    )
    return kept, sentence


def _checked(points: Points, c: float) -> Tensor:
    z = tensor(points)
    if z.dim() and z.numel() and not bool(PoincareBall(z.shape[-1], c).contains(z).all()):
        raise CurvaeError(
            f"some points are not finite or lie outside the ball c·|z|² < 1 with c = {c:g}; give ball coordinates"
        )
    return z


def _rank_correlation(before: Tensor, after: Tensor, c: float) -> float:
    n = len(before)
    if n <= _ALL_PAIRS:
        i, j = np.triu_indices(n, 1)
    else:  # pairs of two different points at random
        i = np.random.default_rng(0).integers(0, n, _PAIRS)
        j = (i + np.random.default_rng(1).integers(1, n, _PAIRS)) % n
    x, y = (Lorentz(S.shape[-1], c).dist(S[i], S[j]).numpy() for S in (before, after))
    if not len(x) or np.ptp(x) == 0 or np.ptp(y) == 0:
        # Ranks that are all equal have no correlation: either nothing was lost or everything.
        return float(np.allclose(x, y))
    from scipy.stats import spearmanr  # takes long to import

    return float(spearmanr(x, y).statistic)
