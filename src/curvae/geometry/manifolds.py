"""Manifolds of constant curvature −c as plain objects with pure methods on tensors.

Convention, stated here once: **c ≥ 0 always means sectional curvature −c**, and c = 0 is Euclidean space; only
`curvae.geometry.Sphere` takes c < 0, by the same convention. `c` is a
number or a tensor, possibly with a gradient, that broadcasts against the batch shape (…) of the points; nothing
branches on its value. It may not have more dimensions than that batch shape, where there is one: curvatures of shape
(N, 1) against points of shape (N, d) would silently pair all with all. Results come in the dtype of the inputs (float32
for half precision under autocast); the arithmetic inside is float64, because distances between far points and the last
digits before the rim of the ball need it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from . import checks, hyperboloid as h
from .functions import arsinh, cosh_sinhc, logsinhc

__all__ = ["Euclidean", "Lorentz", "Manifold", "PoincareBall"]

_STEPS = 12  # of Newton's method for means, which more than suffice
_SMALL = 1e-8  # after a step of this share of the scatter of the points their mean is exact to rounding


def converged(step: Tensor, cost: Tensor) -> bool:
    """Whether another step would change no more than rounding does; where steps become a graph it is not asked."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    return bool((h.dot(step, step) <= _SMALL**2 * cost.amin(-1)).all())


def first_outside(x: Tensor, inside: Tensor) -> tuple[Tensor, str]:
    """Return the first row of x that is not inside, and where it is, for a message."""
    index = tuple((~inside).nonzero()[0].tolist())
    return x.detach().expand(*inside.shape, -1)[index].double(), f" at index {index}" if index else ""


class Coordinates(ABC):
    """How the points of a space of curvature −c are written as numbers: formulas for float64, without checks.

    `Manifold` checks and widens its arguments, and rounds what these formulas give. A frame vector is a tangent vector
    in orthonormal coordinates: of the frame that parallel transport brings from the origin, or those of the space
    around a sphere. Other tangent vectors are in coordinates.
    """

    lambda0: ClassVar[float]  # λ_0, the length of a unit coordinate vector at the origin
    outside: ClassVar[str]  # why a finite point may not be inside
    log_volume: Callable[..., Tensor] = staticmethod(logsinhc)  # log(sinh(√c·r)/(√c·r)), a function of c·r²

    def __init__(self, dim: int, c: Tensor | float) -> None:
        self.dim, self.c = dim, c

    def factor(self, x: Tensor) -> Tensor:
        """Return λ_x, the length of a unit coordinate vector at x, of shape (…, 1): 1, as of metric vectors."""
        return x.new_ones((*x.shape[:-1], 1))

    @abstractmethod
    def exp0(self, v: Tensor) -> Tensor:
        """Return exp of the metric vector v, (…, d), at the origin."""

    @abstractmethod
    def log0(self, x: Tensor) -> Tensor:
        """Invert `exp0`."""

    @abstractmethod
    def dist0(self, x: Tensor) -> Tensor:
        """Return the distance from the origin."""

    @abstractmethod
    def vector(self, x: Tensor, y: Tensor) -> Tensor:
        """Return log_x(y) as a frame vector."""

    @abstractmethod
    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the distance of two points."""

    @abstractmethod
    def height(self, x: Tensor, p: Tensor, a: Tensor) -> Tensor:
        """Return the signed distance of x from the hyperplane through p with normal a."""

    @abstractmethod
    def between(self, t: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the point at time t on the geodesic from x to y."""

    @abstractmethod
    def shoot(self, x: Tensor, u: Tensor, framed: bool = False) -> Tensor:
        """Return exp_x(u), wherever it lies, for a tangent vector u, which is a frame vector if `framed`."""

    @abstractmethod
    def transport(self, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
        """Transport the frame vector v at x along the geodesic from x to y."""

    def transport0(self, x: Tensor, v: Tensor) -> Tensor:
        """Transport the metric vector v, (…, d), from the origin to x, as a frame vector."""
        return v

    @abstractmethod
    def start_mean(self, x: Tensor, w: Tensor) -> Tensor:
        """Return a point near the Fréchet mean of points (…, N, width) with weights (…, N)."""

    @abstractmethod
    def round(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Convert the point x to `dtype`, saturated to what it can hold."""

    @abstractmethod
    def holds(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Return whether `dtype` can hold the point x, so that `round` does not saturate."""

    def inside(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Return whether finite coordinates x, given in `dtype`, are those of a point of the space."""
        return self.holds(x, dtype)

    def explain_outside(self, x: Tensor) -> str:
        """Say why the point x (one row) is not inside."""
        return self.outside if x.isfinite().all() else "it is not finite"

    def origin(self, like: Tensor) -> Tensor:
        """Return the origin for a batch of the shape of `like`."""
        return like.new_zeros(*like.shape, self.dim)

    def frame_noise(self, x: Tensor, noise: Tensor) -> Tensor:
        """Return standard normal noise as a frame vector at x."""
        return noise

    def widen(self, dims: int) -> Self:
        """Return the same coordinates for points with so many further dimensions behind those of c."""
        return type(self)(self.dim, self.c[(...,) + (None,) * dims] if isinstance(self.c, Tensor) else self.c)

    def mean(self, x: Tensor, w: Tensor) -> Tensor:
        """Return the Fréchet mean of points (…, N, width) with weights (…, N) that sum to 1.

        A step of Newton's method follows what `start_mean` found without gradient: at the minimum the derivative of a
        step is that of the minimiser.
        """
        with torch.no_grad():
            start = self.start_mean(x, w)
        return self.shoot(start, self.widen(1).newton_step(start, x, w), framed=True)

    def across(self, x: Tensor) -> Tensor:
        """Return the matrix that projects on the frame vectors at x."""
        return torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)

    def newton_step(self, mean: Tensor, x: Tensor, w: Tensor) -> Tensor:
        """Return the frame vector at `mean` by which Newton's method moves it."""
        v = self.vector(mean.unsqueeze(-2), x)
        y = self.c * h.dot(v, v)
        # The Hessian of d²/2 is 1 along v and √y·coth√y = 1 + 2y·(log sinhc)′(y) across.
        bend = 2 * self.log_volume(y, 1)
        across = self.across(mean)
        hessian = (w * (1 + y * bend)).sum(-1)[..., None, None] * across
        hessian = hessian - ((w * self.c * bend).unsqueeze(-1) * v).transpose(-1, -2) @ v
        hessian = hessian + torch.eye(x.shape[-1], dtype=x.dtype, device=x.device) - across
        return torch.linalg.solve(hessian, (w.unsqueeze(-1) * v).sum(-2).unsqueeze(-1)).squeeze(-1)


class SpaceParts(Coordinates):
    """Points of a space of curvature −c ≤ 0 as d numbers: their space parts S on the hyperboloid. Tangent vectors are
    frame vectors.

    A subclass that writes points otherwise gives the first of these methods anew, from which the others follow.
    """

    lambda0, outside = 1.0, "it is farther out than the dtype can hold"

    def space_part(self, x: Tensor) -> Tensor:
        """Return the space part S of the point x."""
        return x

    def point(self, S: Tensor) -> Tensor:
        """Return the point with space part S."""
        return S

    def chord(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return D² and c·D² of the chord between two points (`hyperboloid.chord`)."""
        return h.chord(x, y, self.c)

    def displacement(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the space part of y seen from x (`hyperboloid.displacement`)."""
        return h.displacement(x, y, self.c)

    def combine(self, x: Tensor, y: Tensor, first: Tensor, second: Tensor, lack: Tensor) -> Tensor:
        """Return the point on the geodesic that these shares (`hyperboloid.geodesic_shares`) of x and y make up."""
        return x * first.unsqueeze(-1) + y * second.unsqueeze(-1)

    def shoot(self, x: Tensor, u: Tensor, framed: bool = False) -> Tensor:
        return h.expmap(x, u, self.c)

    def transport(self, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
        return h.gyrate(x, y, v, self.c)

    def round(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        return h.saturate(x, self.c, dtype)

    def holds(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        return x.abs().amax(-1) <= h.limit(dtype, self.dim, self.c)

    def exp0(self, v: Tensor) -> Tensor:
        return self.point(h.expmap0(v, self.c))

    def log0(self, x: Tensor) -> Tensor:
        return h.logmap0(self.space_part(x), self.c)

    def dist0(self, x: Tensor) -> Tensor:
        return h.dist0(self.space_part(x), self.c)

    def vector(self, x: Tensor, y: Tensor) -> Tensor:
        return h.logmap0(self.displacement(x, y), self.c)

    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        return h.chord_length(self.chord(x, y)[0], self.c)

    def height(self, x: Tensor, p: Tensor, a: Tensor) -> Tensor:
        return arsinh(h.dot(self.displacement(p, x), h.direction(a)[0]), self.c)

    def between(self, t: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self.combine(x, y, *h.geodesic_shares(t, self.chord(x, y)[1]))

    def write(self, S: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the point with space part S in `dtype`."""
        return self.round(self.point(S), dtype)

    def start_mean(self, x: Tensor, w: Tensor) -> Tensor:
        """Take the steps of Newton's method with a line search. Under torch.compile and torch.func their number is
        fixed."""
        each, trial = self.widen(1), self.widen(2)  # of every point, and of every trial and point
        # The mean of tangent vectors, near that of points far from the origin and close together, or the sum of the
        # points scaled back to the hyperboloid, near that of points far apart.
        S, share = each.space_part(x), w.unsqueeze(-1)
        straight, total = (share * h.logmap0(S, each.c)).sum(-2), (share * S).sum(-2)
        size = ((w * h.time(S, each.c)).sum(-1) ** 2 - self.c * h.dot(total, total)).clamp_min(1.0).sqrt()
        trials = each.write(torch.stack([h.expmap0(straight, self.c), total / size.unsqueeze(-1)], -2), x.dtype)
        lengths = 0.5 ** torch.arange(8, dtype=x.dtype, device=x.device).unsqueeze(-1)
        for _ in range(_STEPS):
            v = trial.vector(trials.unsqueeze(-2), x.unsqueeze(-3))
            cost = (w.unsqueeze(-2) * h.dot(v, v)).sum(-1)
            mean = torch.take_along_dim(trials, cost.argmin(-1, keepdim=True).unsqueeze(-1), -2).squeeze(-2)
            step = each.newton_step(mean, x, w)
            if converged(step, cost):
                return self.round(self.shoot(mean, step, framed=True), x.dtype)
            trials = each.round(each.shoot(mean.unsqueeze(-2), lengths * step.unsqueeze(-2), framed=True), x.dtype)
        return mean


class BallPoints(SpaceParts):
    """Points of the Poincaré ball, z = S/(1 + ξ).

    Differences of ball points are exact where those of space parts are not, so what concerns two points does not go
    through the hyperboloid.
    """

    lambda0, outside = 2.0, "the ball is c·|z|² < 1"

    def room(self, x: Tensor) -> Tensor:
        """Return 1 − c|x|²."""
        return 1.0 - self.c * h.dot(x, x)

    def space_part(self, x: Tensor) -> Tensor:
        return h.from_ball(x, self.c)

    def point(self, S: Tensor) -> Tensor:
        return h.ball(S, self.c)

    def factor(self, x: Tensor) -> Tensor:
        return (2.0 / self.room(x)).unsqueeze(-1)

    def chord(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        square = 4.0 * h.dot(y - x, y - x) / (self.room(x) * self.room(y))
        return square, self.c * square

    def displacement(self, x: Tensor, y: Tensor) -> Tensor:
        delta = y - x
        pull = self.c * h.dot(delta, delta) / self.room(x)
        return 2.0 * (delta - x * pull.unsqueeze(-1)) / self.room(y).unsqueeze(-1)

    def shoot(self, x: Tensor, u: Tensor, framed: bool = False) -> Tensor:
        own = self.room(x)
        if framed:
            u = u * (0.5 * own).unsqueeze(-1)
        cosh, ratio = cosh_sinhc(4.0 * self.c * h.dot(u, u) / own**2)
        step = u * (2.0 * ratio / (1.0 + cosh)).unsqueeze(-1)
        return self.add(x, step / own.unsqueeze(-1), step, own, 2.0 / (1.0 + cosh))

    def add(self, x: Tensor, y: Tensor, step: Tensor, own: Tensor, room: Tensor) -> Tensor:
        """Return x ⊕ y, given step = (1 − c|x|²)·y, own = 1 − c|x|² and room = 1 − c|y|²."""
        xx, yy, xy = (self.c * h.dot(a, b) for a, b in ((x, x), (y, y), (x, y)))
        # 1 + 2c⟨x, y⟩ + c²|x|²|y|², as a sum of non-negative terms where it may be small.
        apart = own * room + self.c * h.dot(x + y, x + y)
        below = torch.where(xy < -0.25, apart, 1.0 + 2.0 * xy + xx * yy).unsqueeze(-1)
        return x + (step + x * (self.c * h.dot(y, step)).unsqueeze(-1)) / below

    def combine(self, x: Tensor, y: Tensor, first: Tensor, second: Tensor, lack: Tensor) -> Tensor:
        first, second = first / self.room(x), second / self.room(y)
        way = (y - x) * second.unsqueeze(-1) - x * lack.unsqueeze(-1)
        return x + way / (first + second + lack).unsqueeze(-1)

    def transport(self, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
        # The rotor 1 − c⟨x, y⟩ + c·x∧y, see `hyperboloid.gyrate`.
        delta, room, other = y - x, self.room(x), self.room(y)
        square = self.c * h.dot(delta, delta)
        c = self.c.unsqueeze(-1) if isinstance(self.c, Tensor) else self.c
        return h.rotate(v, c * x, delta, 0.5 * (room + other + square), room * other + square)

    @staticmethod
    def edge(dtype: torch.dtype) -> float:
        """Return the largest √c·|z| that stays under 1 when the coordinates are rounded."""
        return 1 - 2 * torch.finfo(dtype).eps

    def round(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        reach = (self.c * h.dot(x, x)).detach().sqrt()
        return (x * (self.edge(dtype) / reach.clamp_min(0.5)).clamp(max=1.0).unsqueeze(-1)).to(dtype)

    def holds(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        return self.c * h.dot(x, x) <= self.edge(dtype) ** 2

    def inside(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        return self.c * h.dot(x, x) < 1


class Manifold(ABC):
    """A space of curvature −c in some coordinates, which a subclass names.

    Points have shape (…, width), and so do tangent vectors; at the origin these have d numbers. A tangent vector u at x
    has Riemannian length `lambda_x(x)`·|u|.
    """

    _coordinate_type: ClassVar[type[Coordinates]]
    _check_curvature = staticmethod(checks.check_curvature)

    def __init__(self, dim: int, c: Tensor | float = 1.0) -> None:
        self._set(checks.check_dim(dim), self._check_curvature(c))

    def _set(self, dim: int, c: Tensor | float) -> None:
        self.dim = dim
        self.c = c
        # Widened once, so that gradients through its many uses are summed in float64.
        self._c: Tensor | float = c.double() if isinstance(c, Tensor) else c
        self._coordinates = self._coordinate_type(dim, self._c)

    @classmethod
    def _unchecked(cls, dim: int, c: Tensor | float) -> Self:
        """Make the manifold with a c that is known to be valid: looking at the values of a tensor makes a GPU wait."""
        new = cls.__new__(cls)
        new._set(dim, c)
        return new

    @property
    def width(self) -> int:
        """Number of coordinates of a point."""
        return self.dim

    def __repr__(self) -> str:
        value = f"c of shape {tuple(c.shape)}" if isinstance(c := self.c, Tensor) and c.dim() else f"c={c}"
        return f"{type(self).__name__}({self.dim}, {value})"

    # --- arguments --------------------------------------------------------------------------------------------------

    def _points(self, event_dims: int = 1, at_origin: str = "", **named: Any) -> tuple[torch.dtype, list[Tensor]]:
        """Return the dtype of the result, then the named arguments as float64 points or vectors of shape (…, width).

        Every public method begins here. `event_dims` is how many of the last dimensions c does not have; `at_origin`
        the name of a tangent vector there.
        """
        given = [
            checks.points(name, value, self.dim if name == at_origin else self.width, self)
            for name, value in named.items()
        ]
        dtype = given[0].dtype
        for x in given[1:]:
            dtype = torch.promote_types(dtype, x.dtype)
        if dtype.itemsize < 4 and torch._C._is_any_autocast_enabled():
            dtype = torch.float32
        if len(given) > 1 and not torch.compiler.is_compiling():
            checks.batch_shape_of(**{name: (x, event_dims) for name, x in zip(named, given, strict=True)})
        if isinstance(self.c, Tensor) and self.c.dim():
            checks.check_batch(self.c, named, [x.shape[:-event_dims] for x in given])
        return dtype, [x.double() for x in given]

    # --- points -----------------------------------------------------------------------------------------------------

    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        """Geodesic distance, shape (…)."""
        dtype, (x, y) = self._points(x=x, y=y)
        return self._coordinates.dist(x, y).to(dtype)

    def dist0(self, x: Tensor) -> Tensor:
        """Distance from the origin, shape (…)."""
        dtype, (x,) = self._points(x=x)
        return self._coordinates.dist0(x).to(dtype)

    def expmap(self, x: Tensor, u: Tensor) -> Tensor:
        """Return the point reached from x by following the geodesic of initial velocity u for unit time."""
        dtype, (x, u) = self._points(x=x, u=u)
        return self._coordinates.round(self._coordinates.shoot(x, u), dtype)

    def logmap(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the tangent vector at x whose exponential is y."""
        dtype, (x, y) = self._points(x=x, y=y)
        return (self._coordinates.vector(x, y) / self._coordinates.factor(x)).to(dtype)

    def expmap0(self, u: Tensor) -> Tensor:
        """Compute `expmap` at the origin, of vectors (…, d)."""
        dtype, (u,) = self._points(at_origin="u", u=u)
        return self._coordinates.round(self._coordinates.exp0(self._coordinates.lambda0 * u), dtype)

    def logmap0(self, y: Tensor) -> Tensor:
        """Compute `logmap` at the origin, (…, d)."""
        dtype, (y,) = self._points(y=y)
        return (self._coordinates.log0(y) / self._coordinates.lambda0).to(dtype)

    def geodesic(self, t: Tensor | float, x: Tensor, y: Tensor) -> Tensor:
        """Return the point at time t on the geodesic with x at t = 0 and y at t = 1; t broadcasts against the batch
        shape."""
        dtype, (x, y) = self._points(x=x, y=y)
        t = torch.as_tensor(t, dtype=x.dtype, device=x.device)
        return self._coordinates.round(self._coordinates.between(t, x, y), dtype)

    def frechet_mean(self, x: Tensor, w: Tensor | None = None) -> Tensor:
        """Return the point that minimises the weighted sum of squared distances to x of shape (…, N, width); w has
        shape (…, N).

        First derivatives are exact.
        """
        dtype, (x,) = self._points(event_dims=2, x=x)
        if x.dim() < 2 or x.shape[-2] == 0:
            raise ValueError(f"x must have shape (…, N, {self.width}) with N ≥ 1 points, got {tuple(x.shape)}")
        w = x.new_ones(x.shape[:-1]) if w is None else checks.check_weights(w, x.shape[-2]).double()
        return self._coordinates.round(self._coordinates.mean(x, w / w.sum(-1, keepdim=True)), dtype)

    def dist2plane(self, x: Tensor, p: Tensor, a: Tensor, signed: bool = True) -> Tensor:
        """Return the distance of x from the hyperplane through p with normal a (a tangent vector at p), positive on
        the side of a.

        The hyperplane, or gyroplane, is exp_p of the vectors orthogonal to a.
        """
        dtype, (x, p, a) = self._points(x=x, p=p, a=a)
        distance = self._coordinates.height(x, p, a).to(dtype)
        return distance if signed else distance.abs()

    def random(self, *shape: int, scale: float = 1.0, **options: Any) -> Tensor:
        """Return points exp_0(v), v normal with standard deviation `scale` along every axis; `options` as for
        torch.randn.
        """
        dtype, (v,) = self._points(at_origin="shape", shape=torch.randn(*shape, self.dim, **options))
        return self._coordinates.round(self._coordinates.exp0(scale * v), dtype)

    # --- tangent vectors --------------------------------------------------------------------------------------------

    def transp(self, x: Tensor, y: Tensor, u: Tensor) -> Tensor:
        """Parallel transport of the tangent vector u along the geodesic from x to y."""
        dtype, (x, y, u) = self._points(x=x, y=y, u=u)
        return (self._coordinates.transport(x, y, self._coordinates.factor(x) * u) / self._coordinates.factor(y)).to(
            dtype
        )

    def transp0(self, y: Tensor, u: Tensor) -> Tensor:
        """Parallel transport of u, (…, d), from the origin to y."""
        dtype, (y, u) = self._points(at_origin="u", y=y, u=u)
        return (self._coordinates.transport0(y, self._coordinates.lambda0 * u) / self._coordinates.factor(y)).to(dtype)

    def lambda_x(self, x: Tensor) -> Tensor:
        """Return the length of a unit coordinate vector at x, shape (…): the conformal factor of the chart."""
        dtype, (x,) = self._points(x=x)
        return self._coordinates.factor(x).squeeze(-1).to(dtype)

    def inner(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """Return the Riemannian inner product of the tangent vectors u and v at x, shape (…)."""
        dtype, (x, u, v) = self._points(x=x, u=u, v=v)
        return (self._coordinates.factor(x).squeeze(-1) ** 2 * h.dot(u, v)).to(dtype)

    def norm(self, x: Tensor, u: Tensor) -> Tensor:
        """Riemannian length of the tangent vector u at x, shape (…)."""
        dtype, (x, u) = self._points(x=x, u=u)
        return (self._coordinates.factor(x).squeeze(-1) * h.norm(u)).to(dtype)

    @abstractmethod
    def egrad2rgrad(self, x: Tensor, grad: Tensor) -> Tensor:
        """Return the Riemannian gradient at x, a tangent vector, of a function whose partial derivatives are `grad`."""

    # --- membership -------------------------------------------------------------------------------------------------

    def contains(self, x: Tensor) -> Tensor:
        """Return whether each point lies in the space and within the reach of its dtype, shape (…)."""
        x = checks.real("x", x)
        if x.dim() == 0 or x.shape[-1] != self.width:
            return torch.zeros(x.shape[:-1], dtype=torch.bool, device=x.device)
        return x.isfinite().all(-1) & self._coordinates.inside(x.double(), x.dtype)

    def check(self, x: Tensor) -> None:
        """Raise ValueError, with the first offending point, unless every point is inside."""
        x = checks.points("x", x, self.width, self)
        if not checks.holds(inside := self.contains(x)):
            point, where = first_outside(x, inside)
            reason = self._coordinates.explain_outside(point)
            raise ValueError(f"the point {point.tolist()}{where} is not in {self}: {reason}")


class HyperbolicManifold(Manifold):
    """A space of curvature −c ≤ 0: points and tangent vectors have d numbers."""

    _coordinates: SpaceParts

    def to_lorentz(self, x: Tensor) -> Tensor:
        """Space part of the point on the hyperboloid."""
        dtype, (x,) = self._points(x=x)
        return h.saturate(self._coordinates.space_part(x), self._c, dtype)

    def from_lorentz(self, S: Tensor) -> Tensor:
        """Return coordinates of the point with space part S."""
        dtype, (S,) = self._points(S=S)
        return self._coordinates.write(S, dtype)


class Lorentz(HyperbolicManifold):
    """Hyperbolic space as the hyperboloid, each point given by its space part S ∈ ℝ^d.

    Tangent vectors are metric: coordinates in the orthonormal frame transported from the origin, so λ_x = 1 and
    `transp0` is the identity. Float32 holds points to √c·radius 80, float64 to 172; a result beyond saturates there.

    Example:
        >>> space = Lorentz(2, c=0.5)
        >>> x = space.expmap0(torch.tensor([3.0, 4.0]))
        >>> round(float(space.dist0(x)), 4)
        5.0
    """

    _coordinate_type = SpaceParts

    def time(self, S: Tensor) -> Tensor:
        """Compute ξ = √(1 + c|S|²), shape (…)."""
        dtype, (S,) = self._points(S=S)
        return h.time(S, self._c).to(dtype)

    def egrad2rgrad(self, x: Tensor, grad: Tensor) -> Tensor:
        dtype, (S, g) = self._points(x=x, grad=grad)
        along = self._c * h.dot(S, g) / (1 + h.time(S, self._c))
        return (g + S * along.unsqueeze(-1)).to(dtype)


class Euclidean(Lorentz):
    """ℝ^d: the case c = 0 of `Lorentz`.

    Example:
        >>> Euclidean(2).dist(torch.tensor([0.0, 0.0]), torch.tensor([3.0, 4.0]))
        tensor(5.)
    """

    def __init__(self, dim: int) -> None:
        super().__init__(dim, 0.0)

    def __repr__(self) -> str:
        return f"Euclidean({self.dim})"


class PoincareBall(HyperbolicManifold):
    """The Poincaré ball of curvature −c: points z with c|z|² < 1 and the metric λ_z²|dz|², λ_z = 2/(1 − c|z|²).

    Points and tangent vectors are ball coordinates. At c = 0 the metric is 4|dz|²: distances and densities agree with
    `Euclidean`, coordinates are half of its. Float32 holds points to √c·radius 15, float64 to 36; a result beyond
    saturates just inside the rim.

    Example:
        >>> ball = PoincareBall(2, c=1.0)
        >>> x, y = torch.tensor([0.5, 0.0]), torch.tensor([0.0, 0.5])
        >>> round(float(ball.dist(x, y)), 4)
        1.6807
    """

    _coordinate_type = BallPoints
    _coordinates: BallPoints

    def egrad2rgrad(self, x: Tensor, grad: Tensor) -> Tensor:
        dtype, (x, grad) = self._points(x=x, grad=grad)
        return (grad / self._coordinates.factor(x) ** 2).to(dtype)

    def mobius_add(self, x: Tensor, y: Tensor) -> Tensor:
        """Compute x ⊕ y: y carried along by the translation that takes 0 to x."""
        dtype, (x, y) = self._points(x=x, y=y)
        ball, own = self._coordinates, self._coordinates.room(x)
        return ball.round(ball.add(x, y, y * own.unsqueeze(-1), own, ball.room(y)), dtype)

    def mobius_scalar_mul(self, r: Tensor | float, x: Tensor) -> Tensor:
        """Compute r ⊗ x = exp_0(r·log_0 x); r broadcasts against the batch shape."""
        dtype, (x,) = self._points(x=x)
        r = torch.as_tensor(r, dtype=x.dtype, device=x.device)
        v = r.unsqueeze(-1) * h.logmap0(self._coordinates.space_part(x), self._c)
        return self._coordinates.write(h.expmap0(v, self._c), dtype)

    def mobius_matvec(self, m: Tensor, x: Tensor) -> Tensor:
        """Compute M ⊗ x = exp_0(M·log_0 x); m has shape (…, k, d) and the result lies in the ball of dimension k."""
        dtype, (x,) = self._points(x=x)
        m = checks.points("m", m, self.dim, self)
        if m.dim() < 2:
            raise ValueError(f"m must have shape (…, k, {self.dim}), got {tuple(m.shape)}")
        dtype = torch.promote_types(dtype, m.dtype)
        v = (m.double() @ h.logmap0(self._coordinates.space_part(x), self._c).unsqueeze(-1)).squeeze(-1)
        return self._coordinates.write(h.expmap0(v, self._c), dtype)
