"""Charts: for each kind of factor, how its points are measured, written in tables, drawn and described.

Points are space parts S of the hyperboloid, float64. An isometry of the space of curvature −c is a translation of some
point to the origin and then a rotation or reflection about it; a `Frame`, from which a chart is seen, is that point and
the axes that become those of the coordinates.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..errors import CurvaeError
from ..geometry import Lorentz, PoincareBall, Sphere, hyperboloid as h
from ..geometry.pairs import distance_table, distances as pair_distances
from .statistics import Array, rank_correlation

__all__ = [
    "CHARTS",
    "BallChart",
    "Chart",
    "Frame",
    "Hemispheres",
    "Isometry",
    "PlaneChart",
    "Points",
    "Projection",
    "Ring",
    "SphereChart",
    "SpherePage",
    "align",
    "as_number",
    "ball_chart",
    "letter_of",
    "numbered_columns",
    "picture_frame",
    "project_from",
    "project_to_disc",
    "tensor",
]

_UNDECIDED = 1e-9  # correlation below which data say nothing about a direction


@dataclass(frozen=True, eq=False)
class Frame:
    """A centre and orthonormal axes there.

    Seen from a frame with d axes, points keep their distances. With fewer, they are projected in the tangent space at
    the centre.

    Arguments:
        centre: the point that is moved to the origin, (d,).
        axes: vectors at the centre, as columns, which become the axes of the coordinates, (d, k). With k > d, rows
            are orthonormal, and the space lies within that of k dimensions.
        c: minus the curvature.

    Example:
        >>> frame = Frame(torch.tensor([1.0, 0.0]).double(), torch.eye(2).double(), 1.0)
        >>> frame.apply(torch.tensor([[1.0, 0.0]]).double())
        tensor([[0., 0.]], dtype=torch.float64)
    """

    centre: Tensor
    axes: Tensor
    c: float

    def coordinates(self, S: Tensor) -> Tensor:
        """Compute log at the centre of points (…, d), along the axes, (…, k)."""
        return h.logmap0(h.displacement(self.centre, S, self.c), self.c) @ self.axes

    def apply(self, S: Tensor) -> Tensor:
        """Return points (…, d) as they are seen from the frame, (…, k)."""
        if self.axes.shape[1] < self.axes.shape[0]:
            return h.expmap0(self.coordinates(S), self.c)
        return h.displacement(self.centre, S, self.c) @ self.axes


def picture_frame(S: Tensor, c: float, scores: Tensor, centre: Tensor | None = None) -> Frame:
    """Choose the frame of two axes from which points are drawn, so that maps of the same data look alike.

    Of more than two dimensions, the two principal directions in the tangent space at the centre are shown. There the
    map is turned, or mirrored, so that its points lie nearest to the scores (Kabsch). The principal axes of the map
    itself would decide less: a prior makes maps round, and another seed gives them other axes.

    Arguments:
        S: points, (N, d).
        c: minus the curvature.
        scores: what is known of the points besides, (N, 2): the first grows to the right, the second upwards. Where
            they leave an axis open, it is that of the largest variance, and points to where the third moment is
            positive.
        centre: the point in the middle, (d,); the Fréchet mean by default.
    """
    centre = Lorentz(S.shape[1], c).frechet_mean(S) if centre is None else centre
    vectors = h.logmap0(h.displacement(centre, S, c), c)
    plane = torch.eye(S.shape[1], dtype=S.dtype)
    if S.shape[1] > 2:
        plane = torch.linalg.eigh(vectors.T @ vectors)[1].flip(1)[:, :2]  # the two directions of the largest variance
    axes = plane @ _turn(vectors @ plane, scores)
    return Frame(centre, torch.nn.functional.pad(axes, (0, 2 - axes.shape[1])), c)


def _turn(vectors: Tensor, scores: Tensor) -> Tensor:
    """Return the rotation or reflection that brings vectors, (N, k), nearest to the first k scores."""
    vectors, scores = (x - x.mean(0) for x in (vectors, scores[:, : vectors.shape[1]]))
    own, strength, other = torch.linalg.svd(vectors.T @ scores)
    open_ = strength <= _UNDECIDED * vectors.norm() * scores.norm()
    if bool(open_[0]):
        own, other = torch.linalg.eigh(vectors.T @ vectors)[1].flip(1), torch.eye(len(own), dtype=own.dtype)
    skewed = (vectors @ own).pow(3).sum(0) < 0
    return torch.where(open_ & skewed, -own, own) @ other


class Isometry(NamedTuple):
    """An isometry in three steps, none of which loses the digits of points far from the origin.

    It moves the point `start` to the origin, shows what lies there from a frame of d axes, and moves the origin to the
    point `place`.
    """

    start: Tensor
    frame: Frame
    place: Tensor

    def apply(self, S: Tensor) -> Tensor:
        """Return points (…, d), moved."""
        c = self.frame.c
        return h.translate(self.place, self.frame.apply(h.displacement(self.start, S, c)), c)


def align(S: Tensor, T: Tensor, c: float) -> Isometry:
    """Find the isometry that brings the points S, (N, d), nearest to the points T in the mean of squared distances.

    It begins with the best rotation or reflection in the tangent spaces at the means (Kabsch) and is refined by L-BFGS,
    since lengths across a tangent space are shorter than those of the space. The minimum that is found is a local one.
    """
    from scipy.optimize import minimize  # takes long to import, and PyTorch's L-BFGS far longer

    d = S.shape[1]
    start, place = (Lorentz(d, c).frechet_mean(points) for points in (S, T))
    own, target = h.displacement(start, S, c), h.displacement(place, T, c)
    left, _, right = torch.linalg.svd(h.logmap0(own, c).T @ h.logmap0(target, c))
    turn = left @ right  # the nearest orthogonal matrix

    def frame(numbers: Tensor) -> Frame:
        skew = numbers[d:].view(d, d).triu(1)
        return Frame(h.expmap0(numbers[:d], c), turn @ torch.matrix_exp(skew - skew.T), c)

    def cost(numbers: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        leaf = torch.from_numpy(numbers).requires_grad_()
        apart = h.logmap0(h.displacement(frame(leaf).apply(own), target, c), c)
        value = h.dot(apart, apart).mean()
        return value.item(), torch.autograd.grad(value, leaf)[0].numpy()

    still = np.zeros(d + d * d)
    found = minimize(cost, still, jac=True, method="L-BFGS-B", options={"maxiter": 60, "ftol": 0.0, "gtol": 1e-10})
    best = found.x if found.fun < cost(still)[0] else still  # also where it is not a number
    return Isometry(start, frame(torch.from_numpy(best)), place)


class SpherePage(ABC):
    """A page (…, 2) on which a sphere lies, with the distances and geodesics of the sphere: a circle as a ring, and a
    sphere as two hemispheres side by side.

    The azimuthal projection of Lambert takes the hemisphere around a point to a disc, and keeps areas: what lies at the
    angle θ from the middle is drawn at √2·sin(θ/2) from it, in units of the radius of the disc.
    """

    dim: ClassVar[int]

    @abstractmethod
    def lift(self, z: Tensor) -> Tensor:
        """Return unit vectors of places on the page."""

    @abstractmethod
    def lay(self, x: Tensor) -> Tensor:
        """Return places on the page of vectors, by their directions."""

    def contains(self, z: Tensor) -> Tensor:
        """Return whether places belong to the sphere."""
        return ((self.lay(self.lift(z)) - z).abs() < 1e-6).all(-1)

    def dist(self, z: Tensor, w: Tensor) -> Tensor:
        """Return distances on the sphere."""
        return Sphere(self.dim).dist(self.lift(z), self.lift(w))

    def geodesic(self, t: Tensor, z: Tensor, w: Tensor) -> Tensor:
        """Return places at times t of the geodesics from z to w."""
        return self.lay(Sphere(self.dim).geodesic(t, self.lift(z), self.lift(w)))

    def frechet_mean(self, z: Tensor) -> Tensor:
        """Return the Fréchet means on the sphere of places (…, N, 2)."""
        return self.lay(Sphere(self.dim).frechet_mean(self.lift(z)))

    def to_lorentz(self, z: Tensor) -> Tensor:
        """Return what `Projection.space` has of places."""
        return 2.0 * z


class Ring(SpherePage):
    """The circle as it is, with room outside of it."""

    dim = 1
    extent: ClassVar[float] = 1.4

    def lift(self, z: Tensor) -> Tensor:
        return torch.nn.functional.normalize(z, dim=-1)

    def lay(self, x: Tensor) -> Tensor:
        return self.lift(x)

    def density(self, z: Tensor) -> Tensor:
        """Return a closed curve outside of the ring, the farther from it the more points are near."""
        angles = torch.linspace(-math.pi, math.pi, 361, dtype=z.dtype)
        turn = torch.stack([angles.cos(), angles.sin()], -1)
        # A von Mises kernel, whose width falls with the number of points as that of normal kernels does.
        sharp = 4.0 * len(z) ** 0.4
        height = torch.stack([(sharp * (self.lift(z) @ way - 1.0)).exp().sum() for way in turn])
        return turn * (1.06 + (self.extent - 1.06) * height / height.max()).unsqueeze(-1)


class Hemispheres(SpherePage):
    """Two discs of radius 1 side by side, as maps of the world.

    On the left is the hemisphere around the third axis, on the right the other, seen from its own side: what meets
    between the discs is near on the sphere.
    """

    dim = 2
    middles: ClassVar[tuple[float, float]] = (-1.04, 1.04)

    def lift(self, z: Tensor) -> Tensor:
        side = torch.where(z[..., :1] < 0.0, 1.0, -1.0).to(z.dtype)
        x, y = (z[..., :1] + self.middles[1] * side) * side, z[..., 1:]
        height = 1.0 - (x * x + y * y).clamp_max(1.0)
        # sin θ = √2·sin(θ/2)·√(1 + cos θ)
        return torch.cat([torch.cat([x, y], -1) * (1.0 + height).sqrt(), side * height], -1)

    def lay(self, x: Tensor) -> Tensor:
        x = torch.nn.functional.normalize(x, dim=-1)
        height = x[..., 2:]
        side = torch.where(height >= 0.0, 1.0, -1.0).to(x.dtype)
        at = x[..., :2] / (1.0 + height.abs()).sqrt()
        return torch.cat([side * at[..., :1] - self.middles[1] * side, at[..., 1:]], -1)

    def geodesic(self, t: Tensor, z: Tensor, w: Tensor) -> Tensor:
        """Return places at times t, the first dimension; NaN where a geodesic has just left one disc for the other."""
        found = super().geodesic(t, z, w)
        left = found[..., :1] < 0.0
        return torch.cat([found[:1], torch.where(left[1:] != left[:-1], math.nan, found[1:])])


Points = Tensor | ArrayLike

Motion = Literal["disc", "plane", "globe", "still"]


def tensor(x: Points) -> Tensor:
    """Return `x` as float64 on the CPU, without gradient."""
    return torch.as_tensor(x if isinstance(x, Tensor) else np.asarray(x)).detach().double().cpu()


def as_number(c: Tensor | float) -> float:
    """Return the present value of a curvature, which may be learned."""
    return float(c.detach()) if isinstance(c, Tensor) else float(c)


@dataclass(frozen=True)
class Projection:
    """Points brought to a page of two coordinates: the disc, or the plane.

    Arguments:
        points: what was projected, shape (N, 2), coordinates of the page.
        kept: Spearman's rank correlation between the distances before and after.
        sentence: what was done and what it kept, for the reader of the picture.
        c: minus the curvature of the page.
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

    @property
    def manifold(self) -> Lorentz:
        """The hyperboloid on which the space parts lie."""
        return Lorentz(2, self.c)

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


class Chart:
    """How the points of one kind of factor are measured, written in tables, drawn and described.

    Points are float64 tensors (…, width), as models have them. What is drawn has two coordinates of a page; by default
    points are drawn as they lie in ℝ^width, around 0, and turned. `CHARTS` has the class of every letter.

    Arguments:
        dim: dimension of the factor.
        c: minus its curvature.

    Attributes:
        motion: how the viewer moves the page: "disc", isometries of the Poincaré disc; "plane", translations; "globe",
            turns of a sphere; "still", not at all.
        radial: whether `curvae.distributions.HyperbolicRadius` is the distance of its prior from the origin.
        has_ball: whether estimators may call its coordinates those of a ball.
        width: number of coordinates of a point.
        axes: number of axes of a frame.
        space: with `logmap0`, `expmap0`, `dist0`, `dist`, `geodesic` and `frechet_mean`, as a `Manifold` has them.
        page: the same of what is drawn, for points (…, 2) of the page: `contains`, `dist` and `geodesic`.
        rim: radius on the page at which points are infinitely far away; ∞ if there is no such rim.
        outline: radius of the circle that is drawn around the page; ∞ for none.
        middles: where on the horizontal axis the middle of such a circle lies; one by default, around 0.
        summary: what it is, in a word or two.
    """

    motion: Motion = "still"
    radial: ClassVar[bool] = False
    has_ball: ClassVar[bool] = True
    axes: int = 2
    middles: tuple[float, ...] = (0.0,)
    space: Any
    page: Any
    summary: str

    def __init__(self, dim: int, c: float) -> None:
        self.dim = self.width = dim
        self.c, self.rim, self.outline = c, math.inf, math.inf

    @property
    def extent(self) -> float:
        """Half the width of the page; ∞ if it has no end."""
        return self.outline + max(self.middles)

    def around(self, points: Tensor) -> Tensor | None:
        """Return a closed curve (·, 2) that shows on the page how dense points (N, 2) of the page are, if there is a
        place for it.
        """
        return None

    def polar(self, space: Tensor) -> tuple[Tensor, Tensor]:
        """Return the distance from the middle of the page, and the angle, of what `Projection.space` has."""
        return Lorentz(2, self.c).dist0(space), torch.atan2(space[:, 1], space[:, 0])

    def distance_table(self, x: Tensor, y: Tensor) -> Tensor:
        """Return distances of points (n, width) to points (m, width)."""
        return self.space.dist(x[:, None], y)

    def pair_distances(self, points: Tensor, pairs: Tensor) -> Tensor:
        """Return distances of listed pairs, (2, ·), of points."""
        return self.space.dist(*points[pairs])

    def align(self, points: Tensor, onto: Tensor, rows: Tensor) -> Tensor:
        """Return points moved by the isometry that brings the listed rows nearest to those of `onto`; by default not
        moved.
        """
        return points

    def mean_squares(self, copies: Tensor) -> Tensor:
        """Mean squared distance of points (copies, rows, width) from the Fréchet mean of each row."""
        return self.space.dist(copies, self.space.frechet_mean(copies.transpose(0, 1))).square().mean(0)

    def coordinates(self, points: Tensor) -> Tensor:
        """Return coordinates for people."""
        return points

    def points(self, coordinates: Tensor) -> Tensor:
        """Invert `coordinates`; raise ValueError where there is no such point."""
        return coordinates

    def columns(self, points: Tensor, name: str = "") -> dict[str, Array]:
        """Return coordinates by the names of their columns in tables; `name` is that of the factor in a product."""
        return numbered_columns(name or "point", self.coordinates(points))

    def frame(self, points: Tensor, scores: Tensor, centre: Tensor | None = None) -> Frame:
        """Return the frame in which points are drawn; see `picture_frame`. By default 0 is in the middle, not the
        centre."""
        return picture_frame(points, 0.0, scores, points.new_zeros(self.width))

    def place(self, frame: Frame, points: Tensor) -> Tensor:
        """Return coordinates on the page of points that are drawn in a frame."""
        return frame.apply(points)

    def project(self, points: Tensor, frame: Frame | None = None) -> Projection:
        """Return points as they are drawn in a frame, and what that loses; without a frame as they are."""
        frame = frame or Frame(points.new_zeros(self.width), torch.eye(self.width, 2, dtype=points.dtype), 0.0)
        z = self.place(frame, points)
        return Projection(z, 1.0, "all latent dimensions", 0.0, frame.centre, frame.axes, 2.0 * z)

    def text(self, alone: bool = True) -> str:
        """Say what it is, for a sentence or a table: the only factor, or one in a product."""
        return self.summary


def numbered_columns(name: str, values: Points) -> dict[str, Array]:
    """Return columns of numbers by name and place, counted from 1."""
    return {f"{name}_{i + 1}": column for i, column in enumerate(np.asarray(values).T)}


class BallChart(Chart):
    """Hyperbolic space: points are space parts on the hyperboloid, tables and pictures have ball coordinates."""

    motion: Motion = "disc"
    radial = True

    def __init__(self, dim: int, c: float) -> None:
        super().__init__(dim, c)
        self.space, self._ball, self.page = Lorentz(dim, c), PoincareBall(dim, c), PoincareBall(2, c)
        self.rim = self.outline = 1 / math.sqrt(c) if c else math.inf
        self.summary = f"c = {c:.4g}" if c else "flat"

    def distance_table(self, x: Tensor, y: Tensor) -> Tensor:
        return distance_table(x, y, torch.tensor(self.c, dtype=torch.float64))

    def pair_distances(self, points: Tensor, pairs: Tensor) -> Tensor:
        return pair_distances(points, pairs, torch.tensor(self.c, dtype=torch.float64))

    def align(self, points: Tensor, onto: Tensor, rows: Tensor) -> Tensor:
        return align(points[rows], onto[rows], self.c).apply(points)

    def mean_squares(self, copies: Tensor) -> Tensor:
        # Seen from one of them, which keeps more digits than far from the origin; so many rows at once.
        parts = copies.split(1 << 12, 1)
        return torch.cat([Chart.mean_squares(self, h.displacement(part[0], part, self.c)) for part in parts])

    def coordinates(self, points: Tensor) -> Tensor:
        return self._ball.from_lorentz(points)

    def points(self, coordinates: Tensor) -> Tensor:
        self._ball.check(coordinates)
        return self._ball.to_lorentz(coordinates)

    def columns(self, points: Tensor, name: str = "") -> dict[str, Array]:
        return numbered_columns(f"{name}_ball" if name else "ball", self.coordinates(points))

    def frame(self, points: Tensor, scores: Tensor, centre: Tensor | None = None) -> Frame:
        return picture_frame(points, self.c, scores, centre)

    def place(self, frame: Frame, points: Tensor) -> Tensor:
        return self.page.from_lorentz(frame.apply(points))

    def project(self, points: Tensor, frame: Frame | None = None) -> Projection:
        return project_to_disc(self.coordinates(points), self.c) if frame is None else project_from(frame, points)

    def text(self, alone: bool = True) -> str:
        return f"{self.summary} (curvature −{self.c:.4g})"


class PlaneChart(BallChart):
    """Flat space, as the case c = 0: coordinates of a single factor are those of the ball, in a product metric ones."""

    motion: Motion = "plane"

    def columns(self, points: Tensor, name: str = "") -> dict[str, Array]:
        return numbered_columns(name, self.space.logmap0(points)) if name else super().columns(points)

    def text(self, alone: bool = True) -> str:
        return "c = 0 (flat)" if alone else self.summary


class SphereChart(Chart):
    """The unit sphere: points and tables have unit vectors, and a circle the angle too.

    A circle is drawn as a ring, a sphere as two hemispheres or, where it can be turned, as a globe; of more than two
    dimensions, as much as three axes show.
    """

    has_ball = False

    def __init__(self, dim: int, c: float = 0.0) -> None:
        super().__init__(dim, c)
        self.space, self.width, self.outline = Sphere(dim), dim + 1, 1.0
        self.summary = "a circle" if dim == 1 else f"a sphere of {dim} dimensions"
        self.page: Ring | Hemispheres = Ring()
        if dim > 1:
            self.page, self.axes, self.middles, self.motion = Hemispheres(), 3, Hemispheres.middles, "globe"

    @property
    def extent(self) -> float:
        return super().extent if self.dim > 1 else Ring.extent

    def around(self, points: Tensor) -> Tensor | None:
        return None if isinstance(self.page, Hemispheres) else self.page.density(points)

    def polar(self, space: Tensor) -> tuple[Tensor, Tensor]:
        if self.dim == 1:
            return super().polar(space)
        x, y, z = self.page.lift(space / 2).unbind(-1)
        return torch.atan2(torch.hypot(x, y), z), torch.atan2(y, x)

    def points(self, coordinates: Tensor) -> Tensor:
        self.space.check(coordinates)
        return coordinates

    def frame(self, points: Tensor, scores: Tensor, centre: Tensor | None = None) -> Frame:
        """Return the frame in which points are drawn.

        In the middle of the near hemisphere is the centre, by default the first principal axis, so that the points lie
        as far from the rim as they can. Around it they are turned as in `picture_frame`.
        """
        if self.dim == 1:
            return super().frame(points, scores, centre)
        if centre is None:
            centre = torch.linalg.eigh(points.T @ points)[1][:, -1]
            centre = torch.where(points.mean(0) @ centre < 0, -centre, centre)
        across = torch.linalg.svd(centre[None])[2][1:].T  # an orthonormal basis of what is orthogonal to it
        page = picture_frame(points @ across, 0.0, scores, points.new_zeros(self.dim))
        return Frame(centre, torch.cat([across @ page.axes, centre[:, None]], 1), 0.0)

    def place(self, frame: Frame, points: Tensor) -> Tensor:
        return super().place(frame, points) if self.dim == 1 else self.page.lay(points @ frame.axes)

    def project(self, points: Tensor, frame: Frame | None = None) -> Projection:
        if self.dim == 1:
            return super().project(points, frame)
        frame = frame or self.frame(points, points.new_zeros(len(points), 2))
        found = super().project(points, frame)
        if self.dim == 2:
            return replace(found, sentence="two hemispheres, areas in proportion: the far one is on the right")
        pairs = np.random.default_rng(0).integers(0, len(points), (2, 2000))
        kept = rank_correlation(
            self.pair_distances(points, torch.from_numpy(pairs)).numpy(), self.page.dist(*found.points[pairs]).numpy()
        )
        return replace(
            found,
            kept=kept,
            sentence=f"projected on three of {self.width} axes: rank correlation of distances {kept:.2f}",
        )

    def columns(self, points: Tensor, name: str = "") -> dict[str, Array]:
        before = f"{name}_" if name else ""
        found = numbered_columns(f"{before}unit", points)
        if self.dim == 1:
            found[f"{before}angle"] = torch.atan2(points[:, 1], points[:, 0]).numpy()
        return found


CHARTS: dict[str, type[Chart]] = {
    "h": BallChart,
    "e": PlaneChart,
    "s": SphereChart,
}  # by the letter of the kind of factor


def letter_of(c: float) -> str:
    """Return the letter of a space of curvature −c."""
    return "h" if c else "e"


def ball_chart(dim: int, c: float) -> Chart:
    """Return the chart of a space of curvature −c."""
    return CHARTS[letter_of(c)](dim, c)


# The one projection of hyperbolic and flat spaces of many dimensions to the disc, with what it loses.


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
        return Projection(
            z @ axes,
            1.0,
            "the two latent dimensions as they are" if d == 2 else "the one latent dimension, on the horizontal axis",
            c,
            z.new_zeros(d),
            axes,
            h.from_ball(z @ axes, c),
        )
    # The Fréchet mean of more points costs memory and moves nothing that can be seen.
    some = z if n <= 5000 else z[np.random.default_rng(0).choice(n, 5000, replace=False)]
    frame = Frame(h.from_ball(PoincareBall(d, c).frechet_mean(some), c), torch.eye(d, dtype=z.dtype), c)
    v = frame.coordinates(h.from_ball(z, c))
    axes = torch.linalg.eigh(v.T @ v / n)[1][:, [-1, -2]]
    # The sign of an eigenvector is arbitrary; its largest entry is made positive.
    axes = axes * torch.take_along_dim(axes, axes.abs().argmax(0, keepdim=True), 0).sign()
    return project_from(replace(frame, axes=axes), h.from_ball(z, c))


def project_from(frame: Frame, S: Tensor) -> Projection:
    """Return points as they are seen from a frame of two axes.

    Arguments:
        frame: the point in the middle of the disc and what is drawn to the right and upwards; one that `picture_frame`
            chose, say.
        S: space parts of points on the hyperboloid, (N, d).
    """
    space = frame.apply(S)
    points = PoincareBall(2, frame.c).from_lorentz(space)
    loss = _describe_loss(S, space, frame) if len(frame.centre) > 2 else (1.0, "all latent dimensions")
    return Projection(points, *loss, frame.c, h.ball(frame.centre, frame.c), frame.axes, space)


def _describe_loss(S: Tensor, space: Tensor, frame: Frame) -> tuple[float, str]:
    """Return the rank correlation of distances between points and their projection, and what was lost in words."""
    before, after = (
        float(h.dist0(x, frame.c).square().sum()) for x in (h.displacement(frame.centre, S, frame.c), space)
    )
    share = after / before if before > 0 else 1.0
    n = len(S)
    if n <= 300:
        i, j = np.triu_indices(n, 1)
    else:  # pairs of two different points at random
        i = np.random.default_rng(0).integers(0, n, 2000)
        j = (i + np.random.default_rng(1).integers(1, n, 2000)) % n
    x, y = (Lorentz(points.shape[-1], frame.c).dist(points[i], points[j]).numpy() for points in (S, space))
    # Ranks that are all equal have no correlation: either nothing was lost or everything.
    equal = not len(x) or np.ptp(x) == 0 or np.ptp(y) == 0
    kept = float(np.allclose(x, y)) if equal else rank_correlation(x, y)
    return kept, (
        f"projected from {S.shape[1]} dimensions: {100 * share:.0f} % of the variance at the origin kept, "
        f"rank correlation of distances {kept:.2f}"
    )


def _checked(points: Points, c: float) -> Tensor:
    z = tensor(points)
    if z.dim() and z.numel() and not bool(PoincareBall(z.shape[-1], c).contains(z).all()):
        raise CurvaeError(
            f"some points are not finite or lie outside the ball c·|z|² < 1 with c = {c:g}; give ball coordinates"
        )
    return z
