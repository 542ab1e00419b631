"""Manifolds of constant curvature −c as plain objects with pure methods on tensors.

Convention, stated here once: **c ≥ 0 always means sectional curvature −c**, and c = 0 is Euclidean space. `c` is a
number or a tensor, possibly with a gradient, that broadcasts against the batch shape (…) of the points; nothing
branches on its value. Results come in the dtype of the inputs; the arithmetic inside is float64, because distances
between far points and the last digits before the rim of the ball need it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from . import hyperboloid as h
from .functions import arsinh, logsinhc

__all__ = ["Euclidean", "Lorentz", "Manifold", "PoincareBall"]


class Manifold(ABC):
    """A space of curvature −c in some coordinates. Every operation goes to the hyperboloid, is done there, and back.

    Points have shape (…, d). A tangent vector u at x has Riemannian length `lambda_x(x)`·|u|.
    """

    def __init__(self, dim: int, c: Tensor | float = 1.0) -> None:
        if not isinstance(dim, int) or dim < 1:
            raise ValueError(f"dim must be a positive integer, got {dim!r}")
        if not isinstance(c, Tensor):
            c = float(c)
            if not (c >= 0 and math.isfinite(c)):
                raise ValueError(f"c must be a finite number ≥ 0: the curvature of the space is −c, got c = {c}")
        self.dim = dim
        self.c = c
        # Widened once, so that gradients through its many uses are summed in float64.
        self._c: Tensor | float = c.double() if isinstance(c, Tensor) else c

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dim}, c={self.c})"

    # --- the chart: what a subclass defines -------------------------------------------------------------------------

    @abstractmethod
    def _read(self, x: Tensor) -> Tensor:
        """Space part S of the point x, float64 in and out."""

    @abstractmethod
    def _write(self, S: Tensor, dtype: torch.dtype) -> Tensor:
        """Coordinates in `dtype` of the point with space part S."""

    @abstractmethod
    def _factor(self, x: Tensor) -> Tensor:
        """λ_x, the length of a unit coordinate vector, of shape (…, 1) and float64."""

    @abstractmethod
    def _displacement(self, x: Tensor, y: Tensor) -> Tensor:
        """Space part of y seen from x (`hyperboloid.displacement`), float64 in and out."""

    @abstractmethod
    def _holds(self, S: Tensor, dtype: torch.dtype) -> Tensor:
        """Whether `dtype` can hold the point with space part S, so that `_write` does not saturate."""

    @abstractmethod
    def _inside(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Whether the finite float64 coordinates x are those of a point of the space, held in `dtype`."""

    @abstractmethod
    def _complaint(self, x: Tensor) -> str:
        """Why the point x (one row, float64) is not inside."""

    # --- helpers ----------------------------------------------------------------------------------------------------

    def to_lorentz(self, x: Tensor) -> Tensor:
        """Space part of the point on the hyperboloid."""
        return h.saturate(self._read(x.double()), self._c, x.dtype)

    def from_lorentz(self, S: Tensor) -> Tensor:
        """Coordinates of the point with space part S."""
        return self._write(S.double(), S.dtype)

    # --- points -----------------------------------------------------------------------------------------------------

    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        """Geodesic distance, shape (…)."""
        return h.dist0(self._displacement(x.double(), y.double()), self._c).to(torch.promote_types(x.dtype, y.dtype))

    def dist0(self, x: Tensor) -> Tensor:
        """Distance from the origin, shape (…)."""
        return h.dist0(self._read(x.double()), self._c).to(x.dtype)

    def expmap(self, x: Tensor, u: Tensor) -> Tensor:
        """The point reached from x by following the geodesic of initial velocity u for unit time."""
        dtype = torch.promote_types(x.dtype, u.dtype)
        x = x.double()
        return self._write(h.expmap(self._read(x), self._factor(x) * u.double(), self._c), dtype)

    def logmap(self, x: Tensor, y: Tensor) -> Tensor:
        """The tangent vector at x whose exponential is y."""
        v = h.logmap0(self._displacement(x.double(), y.double()), self._c)
        return (v / self._factor(x.double())).to(torch.promote_types(x.dtype, y.dtype))

    def expmap0(self, u: Tensor) -> Tensor:
        """`expmap` at the origin."""
        v = self._factor0 * u.double()
        return self._write(h.expmap0(v, self._c), u.dtype)

    def logmap0(self, y: Tensor) -> Tensor:
        """`logmap` at the origin."""
        return (h.logmap0(self._read(y.double()), self._c) / self._factor0).to(y.dtype)

    def geodesic(self, t: Tensor | float, x: Tensor, y: Tensor) -> Tensor:
        """The point at time t on the geodesic with x at t = 0 and y at t = 1; t broadcasts against the batch shape."""
        dtype = torch.promote_types(x.dtype, y.dtype)
        x, y = x.double(), y.double()
        v = h.logmap0(self._displacement(x, y), self._c)
        t = torch.as_tensor(t, dtype=v.dtype, device=v.device)
        return self._write(h.expmap(self._read(x), t.unsqueeze(-1) * v, self._c), dtype)

    def frechet_mean(self, x: Tensor, w: Tensor | None = None) -> Tensor:
        """The point that minimises the weighted sum of squared distances to x of shape (…, N, d); w has shape (…, N).

        Newton's method on the manifold with a line search, a fixed number of steps without gradient and one with it: at
        the minimum the derivative of a Newton step is that of the minimiser, so first derivatives are exact.
        """
        S = self._read(x.double())
        w = S.new_ones(S.shape[:-1]) if w is None else w.double()
        w = w / w.sum(-1, keepdim=True)
        c = self._c.unsqueeze(-1) if isinstance(self._c, Tensor) else self._c
        with torch.no_grad():
            # The weighted sum of the points on the hyperboloid, scaled back to it.
            mean = (w.unsqueeze(-1) * S).sum(-2)
            xi = (w * h.time(S, c)).sum(-1)
            mean = mean / (xi**2 - self._c * h.dot(mean, mean)).sqrt().unsqueeze(-1)
            lengths = 0.5 ** torch.arange(8, dtype=S.dtype, device=S.device).unsqueeze(-1)
            for _ in range(12):
                step = self._newton_step(mean, S, w, c)
                trials = h.expmap(mean.unsqueeze(-2), lengths * step.unsqueeze(-2), c)
                k = c.unsqueeze(-1) if isinstance(c, Tensor) else c
                cost = (w.unsqueeze(-2) * _log_square(trials.unsqueeze(-2), S.unsqueeze(-3), k)[1]).sum(-1)
                best = cost.argmin(-1, keepdim=True).unsqueeze(-1)
                mean = torch.take_along_dim(trials, best, -2).squeeze(-2)
        return self._write(h.expmap(mean, self._newton_step(mean, S, w, c), self._c), x.dtype)

    def _newton_step(self, mean: Tensor, S: Tensor, w: Tensor, c: Tensor | float) -> Tensor:
        v, square = _log_square(mean.unsqueeze(-2), S, c)
        y = c * square
        # The Hessian of d²/2 is 1 along v and √y·coth√y = 1 + 2y·(log sinhc)′(y) across.
        bend = 2 * logsinhc(y, 1)
        eye = torch.eye(self.dim, dtype=S.dtype, device=S.device)
        hessian = (w * (1 + y * bend)).sum(-1)[..., None, None] * eye
        hessian = hessian - ((w * c * bend).unsqueeze(-1) * v).transpose(-1, -2) @ v
        return torch.linalg.solve(hessian, (w.unsqueeze(-1) * v).sum(-2).unsqueeze(-1)).squeeze(-1)

    def dist2plane(self, x: Tensor, p: Tensor, a: Tensor, signed: bool = True) -> Tensor:
        """Distance of x from the hyperplane through p with normal a (a tangent vector at p), positive on the side of a.

        The hyperplane, or gyroplane, is exp_p of the vectors orthogonal to a.
        """
        S, P, dtype = self._pair(x, p)
        unit, _ = h.direction(a.double())
        normal, offset = h.plane(P, unit, self._c)
        y = h.dot(normal, S) - offset * h.time(S, self._c)
        distance = arsinh(y, self._c).to(dtype)
        return distance if signed else distance.abs()

    def random(self, *shape: int, scale: float = 1.0, **options: Any) -> Tensor:
        """Points exp_0(v), v normal with deviation `scale` in every metric direction; `options` as for torch.randn."""
        v = torch.randn(*shape, self.dim, **options)
        return self._write(h.expmap0(scale * v.double(), self._c), v.dtype)

    # --- tangent vectors --------------------------------------------------------------------------------------------

    def transp(self, x: Tensor, y: Tensor, u: Tensor) -> Tensor:
        """Parallel transport of the tangent vector u along the geodesic from x to y."""
        S, T, dtype = self._pair(x, y)
        v = h.gyrate(S, T, self._factor(x.double()) * u.double(), self._c)
        return (v / self._factor(y.double())).to(torch.promote_types(dtype, u.dtype))

    def transp0(self, y: Tensor, u: Tensor) -> Tensor:
        """Parallel transport of u from the origin to y."""
        v = self._factor0 * u.double() / self._factor(y.double())
        return v.to(torch.promote_types(y.dtype, u.dtype))

    def lambda_x(self, x: Tensor) -> Tensor:
        """Length of a unit coordinate vector at x, shape (…): the conformal factor of the chart."""
        return self._factor(x.double()).squeeze(-1).to(x.dtype)

    def inner(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """Riemannian inner product of the tangent vectors u and v at x, shape (…)."""
        return self.lambda_x(x) ** 2 * h.dot(u, v)

    def norm(self, x: Tensor, u: Tensor) -> Tensor:
        """Riemannian length of the tangent vector u at x, shape (…)."""
        return self.lambda_x(x) * h.norm(u)

    @abstractmethod
    def egrad2rgrad(self, x: Tensor, grad: Tensor) -> Tensor:
        """The Riemannian gradient at x, as a tangent vector, of a function whose partial derivatives are `grad`."""

    # --- membership -------------------------------------------------------------------------------------------------

    def contains(self, x: Tensor) -> Tensor:
        """Whether each point lies in the space and within the reach of its dtype, shape (…)."""
        if x.shape[-1] != self.dim:
            return torch.zeros(x.shape[:-1], dtype=torch.bool, device=x.device)
        return x.isfinite().all(-1) & self._inside(x.double(), x.dtype)

    def check(self, x: Tensor) -> None:
        """Raise ValueError, with the first offending point, unless every point is inside."""
        if x.dim() == 0 or x.shape[-1] != self.dim:
            raise ValueError(f"points of {self} have {self.dim} coordinates, got a tensor of shape {tuple(x.shape)}")
        outside = ~self.contains(x)
        if outside.any():
            index = tuple(outside.nonzero()[0].tolist())
            point = x.detach()[index].double()
            where = f" at index {index}" if index else ""
            raise ValueError(f"the point {point.tolist()}{where} is not in {self}: {self._complaint(point)}")

    # ----------------------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def _factor0(self) -> float:
        """λ_0."""

    def _pair(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, torch.dtype]:
        return self._read(x.double()), self._read(y.double()), torch.promote_types(x.dtype, y.dtype)


def _log_square(S: Tensor, T: Tensor, c: Tensor | float) -> tuple[Tensor, Tensor]:
    """log_S(T) and its square, the squared distance."""
    v = h.logmap0(h.displacement(S, T, h.ball_difference(S, T, c), c), c)
    return v, h.dot(v, v)


class Lorentz(Manifold):
    """Hyperbolic space as the hyperboloid, each point given by its space part S ∈ ℝ^d.

    Tangent vectors are metric: coordinates in the orthonormal frame transported from the origin, so λ_x = 1 and
    `transp0` is the identity. Float32 holds points to √c·radius 80, float64 to 172; a result beyond saturates there.

    Example:
        >>> space = Lorentz(2, c=0.5)
        >>> x = space.expmap0(torch.tensor([3.0, 4.0]))
        >>> round(float(space.dist0(x)), 4)
        5.0
    """

    def _read(self, x: Tensor) -> Tensor:
        return x

    def _write(self, S: Tensor, dtype: torch.dtype) -> Tensor:
        return h.saturate(S, self._c, dtype)

    def _factor(self, x: Tensor) -> Tensor:
        return x.new_ones(())

    @property
    def _factor0(self) -> float:
        return 1.0

    def _displacement(self, x: Tensor, y: Tensor) -> Tensor:
        return h.displacement(x, y, h.ball_difference(x, y, self._c), self._c)

    def _holds(self, S: Tensor, dtype: torch.dtype) -> Tensor:
        return S.abs().amax(-1) <= h.limit(dtype, self.dim, self._c)

    def _inside(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        return self._holds(x, dtype)

    def _complaint(self, x: Tensor) -> str:
        return "it is not finite, or farther out than the dtype can hold"

    def lambda_x(self, x: Tensor) -> Tensor:
        return x.new_ones(x.shape[:-1])

    def time(self, S: Tensor) -> Tensor:
        """ξ = √(1 + c|S|²), shape (…)."""
        return h.time(S.double(), self._c).to(S.dtype)

    def egrad2rgrad(self, x: Tensor, grad: Tensor) -> Tensor:
        S, g = x.double(), grad.double()
        along = self._c * h.dot(S, g) / (1 + h.time(S, self._c))
        return (g + S * along.unsqueeze(-1)).to(grad.dtype)


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


def _edge(dtype: torch.dtype) -> float:
    """The largest √c·|z| that stays under 1 when the coordinates are rounded."""
    return 1 - 2 * torch.finfo(dtype).eps


class PoincareBall(Manifold):
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

    def _read(self, x: Tensor) -> Tensor:
        return h.from_ball(x, self._c)

    def _write(self, S: Tensor, dtype: torch.dtype) -> Tensor:
        z = h.ball(S, self._c)
        reach = (self._c * h.dot(z, z)).detach().sqrt()
        return (z * (_edge(dtype) / reach.clamp_min(0.5)).clamp(max=1.0).unsqueeze(-1)).to(dtype)

    def _displacement(self, x: Tensor, y: Tensor) -> Tensor:
        return h.displacement(self._read(x), self._read(y), y - x, self._c)

    def _holds(self, S: Tensor, dtype: torch.dtype) -> Tensor:
        z = h.ball(S, self._c)
        return self._c * h.dot(z, z) <= _edge(dtype) ** 2

    def _factor(self, x: Tensor) -> Tensor:
        return (2 / (1 - self._c * h.dot(x, x))).unsqueeze(-1)

    @property
    def _factor0(self) -> float:
        return 2.0

    def _inside(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        return self._c * h.dot(x, x) < 1

    def _complaint(self, x: Tensor) -> str:
        return "the ball is c·|z|² < 1" if x.isfinite().all() else "it is not finite"

    def egrad2rgrad(self, x: Tensor, grad: Tensor) -> Tensor:
        return (grad.double() / self._factor(x.double()) ** 2).to(grad.dtype)

    def mobius_add(self, x: Tensor, y: Tensor) -> Tensor:
        """x ⊕ y: y carried along by the translation that takes 0 to x."""
        S, T, dtype = self._pair(x, y)
        return self._write(h.translate(S, T, self._c), dtype)

    def mobius_scalar_mul(self, r: Tensor | float, x: Tensor) -> Tensor:
        """r ⊗ x = exp_0(r·log_0 x); r broadcasts against the batch shape."""
        r = torch.as_tensor(r, dtype=x.dtype, device=x.device)
        return self.expmap0(r.unsqueeze(-1) * self.logmap0(x))

    def mobius_matvec(self, m: Tensor, x: Tensor) -> Tensor:
        """M ⊗ x = exp_0(M·log_0 x); m has shape (…, k, d) and the result lies in the ball of dimension k."""
        v = (m @ self.logmap0(x).unsqueeze(-1)).squeeze(-1)
        return PoincareBall(v.shape[-1], self.c).expmap0(v)
