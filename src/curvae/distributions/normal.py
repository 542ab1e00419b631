"""Wrapped and Riemannian normal distributions, products of them, and what it takes to add another: one core, a radius
each.

A draw is noise → w → v → point: standard normal noise is bent into w (which sets the distribution of the radius),
stretched into the frame vector v (by the scale), and carried from the centre by the exponential map. Its log-density
needs only w and v, never a distance computed back from the point, and is with respect to the Riemannian measure.

The distance between a draw of the Riemannian normal and its centre has a distribution of its own, and so has its
direction.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.distributions import constraints

from ..geometry import Manifold, PoincareBall, Sphere, hyperboloid as h
from ..geometry.checks import (
    batch_shape_of,
    broadcast_shapes,
    check_batch,
    check_curvature,
    check_dim,
    got,
    holds,
    offender,
    points,
    real,
)
from ..geometry.functions import logsinhc
from . import radial
from .table import stretch
from .validation import (
    Inside,
    InsideProduct,
    Shape,
    UnitSphere,
    Validated,
    check_manifold,
    check_noise,
    check_scale,
    parameter,
)

__all__ = [
    "HyperbolicNormal",
    "HyperbolicRadius",
    "ProductNormal",
    "Radius",
    "RiemannianNormal",
    "SphericalRadius",
    "SphericalUniform",
    "WrappedNormal",
    "nodes_first",
]


class HyperbolicNormal(Validated):
    """A distribution around `loc` whose density depends on a point through its distance, or its whitened distance.

    A subclass gives two methods: `bend`, which turns noise into draws, and `log_density`. It can then be sampled, and
    serve as posterior and prior of a model. With `radius_nodes` it also has an entropy and divergences.

    Arguments:
        loc: centre μ, shape (…, d), in the manifold's coordinates.
        scale: standard deviation σ: a number, or a tensor with as many dimensions as `loc` whose last is 1.
        manifold: where the distribution lives.
    """

    has_rsample = True
    # Present only for a full covariance.
    scale_tril: Tensor | None = None
    # Whether there may be one standard deviation an axis.
    allows_diagonal = False
    # Whether it is Gaussian in the vector from `loc` where the space is flat, or a line.
    gaussian_if_flat = False
    # Whether the mean radius grows as (d−1)·√c·scale², and not as the scale.
    _grows_as_square = False
    # Whether `loc` is known to be the origin, which saves work.
    _centred = False

    def __init__(
        self,
        loc: Tensor,
        scale: Tensor | float | None = None,
        manifold: Manifold | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        manifold = check_manifold(manifold)
        loc = points("loc", loc, manifold.width, manifold)
        self.loc, self.manifold = loc, manifold
        # An instance is given one of the two ways to say a covariance, and knows its manifold.
        if self.scale_tril is not None:
            deviations, given, event_dims = self.scale_tril, "scale_tril", 2
        else:
            widths = (1, manifold.dim) if self.allows_diagonal else (1,)
            deviations = self.scale = _isotropic_or_diagonal(scale, loc, widths)
            given, event_dims = "scale", 1
        self.__dict__["arg_constraints"] = {"loc": self.support, given: type(self).arg_constraints[given]}
        # Widened once, so that gradients through their many uses are summed in float64.
        self._loc, self._deviations = loc.double(), deviations.double()
        batch_shape = batch_shape_of(loc=(loc, 1), **{given: (deviations, event_dims)})
        if isinstance(manifold.c, Tensor) and manifold.c.dim():
            batch_shape = check_batch(manifold.c, ("loc", "scale"), [batch_shape])
        dtype = torch.promote_types(loc.dtype, deviations.dtype)
        super().__init__(batch_shape, loc.shape[-1:], validate_args, dtype, loc.device)
        if self._validate_args:
            self._check_arguments()

    def _check_arguments(self) -> None:
        if not holds(valid := self.manifold.contains(self.loc)):
            point, explain = offender(self.loc, valid), self.manifold._coordinates.explain_outside
            reason = "" if point is None else f", got {point.tolist()}: {explain(point)}"
            raise ValueError(f"loc must lie in {self.manifold}{reason}")
        c = self.c.unsqueeze(-1) if isinstance(self.c, Tensor) else self.c
        growth = self.manifold.dim - 1 if self._grows_as_square and not isinstance(self.manifold, Sphere) else 0
        if self.scale_tril is None:
            check_scale("scale", self.scale, c, growth)
        elif not holds(constraints.lower_cholesky.check(self.scale_tril)):
            raise ValueError("scale_tril must be lower triangular with a positive diagonal")
        else:
            check_scale("the largest entry of each row of scale_tril", self.scale_tril.abs().amax(-1), c, growth)

    @classmethod
    def centred(cls, scale: Tensor | float, manifold: Manifold) -> Self:
        """Return the distribution around the origin, such as a prior: `scale` is a number or a tensor of the batch
        shape."""
        scale = torch.as_tensor(scale)
        new = cls(manifold._coordinates.origin(scale), scale.unsqueeze(-1), manifold, validate_args=False)
        new._centred = manifold.width == manifold.dim  # otherwise frame vectors have more numbers than those at 0
        return new

    # --- what a subclass gives -------------------------------------------------------------------------------------

    @abstractmethod
    def bend(self, noise: Tensor, exact: bool) -> Tensor:
        """Turn standard normal noise into w = v/σ, a draw in units of the scale; both have shape (…, d), in float64.

        `exact` asks for double precision; otherwise single precision is enough.
        """

    @abstractmethod
    def log_density(self, ww: Tensor, vv: Tensor) -> Tensor:
        """Return the log-density where |w|² is `ww` and |v|² is `vv`, all of shape (…) and float64.

        It is with respect to the Riemannian measure, and normalised: ∫ exp(log-density)·(sinh(√c·r)/√c)^(d−1) dr over
        the radius r = |v|, times the area of the unit sphere in ℝ^d, is 1. `log_det` is the part of it that the scale
        contributes in flat space, d·log σ.
        """

    def radius_nodes(self) -> tuple[Tensor, Tensor]:
        """Return nodes t = r/σ along a last axis, behind those of the batch, and weights with which Σ weight·f(t) is
        the mean of f(t)."""
        raise NotImplementedError(f"{type(self).__name__} has no radius_nodes, from which mean values are computed")

    def raw_entropy(self) -> Tensor:
        """Return the entropy in float64, not expanded to the batch shape."""
        t, weights = (nodes_first(part, len(self.batch_shape)) for part in self.radius_nodes())
        return -(weights * self.log_density(t * t, (self._deviations[..., 0] * t) ** 2)).sum(0)

    # --- what a subclass may use -----------------------------------------------------------------------------------

    @property
    def c(self) -> Tensor | float:
        """Minus the curvature of the manifold, in float64."""
        return self.manifold._c

    @property
    def isotropic(self) -> bool:
        """Whether the standard deviation is the same along every axis."""
        return self.manifold.dim == 1 or (self.scale_tril is None and self.scale.shape[-1] == 1)

    def log_det(self) -> Tensor:
        """Return the logarithm of the determinant of the scale, d·log σ if it is isotropic; float64."""
        if self.scale_tril is not None:
            return self._deviations.diagonal(0, -2, -1).log().sum(-1)
        log_scale = self._deviations.log()
        return log_scale.sum(-1) if log_scale.shape[-1] == self.manifold.dim else self.manifold.dim * log_scale[..., 0]

    # --- torch.distributions ----------------------------------------------------------------------------------------

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "loc": constraints.dependent(is_discrete=False, event_dim=1),
        "scale": constraints.independent(constraints.positive, 1),
    }

    @constraints.dependent_property(is_discrete=False, event_dim=1)
    def support(self) -> constraints.Constraint:
        return Inside(self.manifold)

    @property
    def mean(self) -> Tensor:
        """The Fréchet mean, which is `loc`."""
        return self.loc.expand(self._extended_shape())

    mode = mean

    def entropy(self) -> Tensor:
        """Differential entropy with respect to the Riemannian measure."""
        return self.raw_entropy().expand(self.batch_shape).to(self.dtype)

    def expand(self, batch_shape: Shape, _instance: Any = None) -> Self:
        new = super().expand(batch_shape, _instance)
        new.loc = self.loc.expand(new._extended_shape())
        if self.scale_tril is None:
            new.scale = self.scale.expand(*new._batch_shape, -1)
        else:
            new.scale_tril = self.scale_tril.expand(*new._batch_shape, -1, -1)
        return new

    def _draw(self, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        check_noise(noise, self.batch_shape, self.noise_dim)
        coordinates = self.manifold._coordinates
        w = self.bend(coordinates.frame_noise(self._loc, noise.double()), exact=noise.dtype == torch.float64)
        # v = L·w for the Cholesky factor L of the covariance
        v = self._deviations * w if self.scale_tril is None else (self._deviations @ w.unsqueeze(-1)).squeeze(-1)
        z = coordinates.exp0(v) if self._centred else coordinates.shoot(self._loc, v, framed=True)
        if self._strict and not holds(held := coordinates.holds(z, self.dtype)):
            remedies = ["Lorentz coordinates"] if isinstance(self.manifold, PoincareBall) else []
            remedies += ["float64"] if self.dtype != torch.float64 else []
            raise ValueError(
                f"a draw lies farther out than {self.dtype} can hold in {self.manifold}; use "
                f"{' or '.join([*remedies, 'a smaller scale'])}: its distance from loc must be smaller"
                f"{got(h.norm(v).expand(held.shape), held)}"
            )
        return coordinates.round(z, self.dtype), w, v

    def transform(self, noise: Tensor) -> Tensor:
        """Return the draw made from standard normal `noise` of shape (…, d): a pure function.

        Float64 noise gives a draw exact to double precision; float32 noise one exact to single precision, faster.
        """
        return self._draw(noise)[0]

    def transform_and_log_prob(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Compute `transform` together with the log-density of the draw."""
        z, w, v = self._draw(noise)
        return z, self.log_density(h.dot(w, w), h.dot(v, v)).to(self.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-density with respect to the Riemannian measure."""
        value = self._checked(value).double()
        coordinates = self.manifold._coordinates
        v = coordinates.log0(value) if self._centred else coordinates.vector(self._loc, value)
        if self.scale_tril is None:
            w = v / self._deviations
        else:
            w = torch.linalg.solve_triangular(self._deviations, v.unsqueeze(-1), upper=False).squeeze(-1)
        return self.log_density(h.dot(w, w), h.dot(v, v)).to(self.dtype)


def nodes_first(nodes: Tensor, rank: int) -> Tensor:
    """Return nodes of an integral along the first axis instead of the last, and `rank` axes of the batch behind it."""
    nodes = nodes.movedim(-1, 0)
    return nodes.reshape(nodes.shape[0], *(rank + 1 - nodes.dim()) * (1,), *nodes.shape[1:])


def _isotropic_or_diagonal(scale: Tensor | float | None, loc: Tensor, widths: tuple[int, ...]) -> Tensor:
    """`scale` as a tensor with an event dimension."""
    scale = parameter("scale", scale, like=loc)
    if scale.dim() == 0:
        return scale.unsqueeze(-1)
    if scale.dim() != loc.dim() or scale.shape[-1] not in widths:
        sizes = " or ".join(str(w) for w in dict.fromkeys(widths))
        raise ValueError(
            f"scale must be a number, or a tensor with as many dimensions as loc, {loc.dim()}, the last of size "
            f"{sizes}; got scale of shape {tuple(scale.shape)} and loc of shape {tuple(loc.shape)}"
        )
    return scale


class WrappedNormal(HyperbolicNormal):
    r"""The normal distribution on the tangent space at `loc`, pushed to the manifold by the exponential map.

    With v = λ_μ log_μ(z) in the frame transported from the origin and r = |v| = d(μ, z), its density with respect to
    the Riemannian measure is N(v | 0, Σ)·(√c·r/sinh(√c·r))^(d−1).

    Arguments:
        loc: centre μ, shape (…, d), in the manifold's coordinates.
        scale: standard deviation of v: a number (isotropic), or a tensor with as many dimensions as `loc` whose last is
            1 (isotropic) or d (diagonal).
        manifold: where the distribution lives.
        scale_tril: instead of `scale`, a Cholesky factor of Σ, shape (…, d, d).

    References:
        Mathieu et al. (2019), section 3.1; Nagano et al. (2019).

    Example:
        >>> from curvae import PoincareBall
        >>> q = WrappedNormal(torch.zeros(2), 0.5, PoincareBall(2, c=1.0))
        >>> z, log_q = q.rsample_and_log_prob((1000,))
        >>> bool(q.support.check(z).all())
        True
    """

    allows_diagonal = gaussian_if_flat = True
    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        **HyperbolicNormal.arg_constraints,
        "scale_tril": constraints.lower_cholesky,
    }

    def __init__(
        self,
        loc: Tensor,
        scale: Tensor | float | None = None,
        manifold: Manifold | None = None,
        *,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        manifold = check_manifold(manifold)
        if isinstance(manifold, Sphere):
            raise ValueError(
                "WrappedNormal is not offered on a sphere: a normal vector may wrap around it, and in two or more "
                "dimensions the density is infinite opposite to loc; use RiemannianNormal"
            )
        if (scale is None) == (scale_tril is None):
            raise TypeError(
                f"WrappedNormal needs either scale or scale_tril, got {'neither' if scale is None else 'both'}"
            )
        if scale_tril is not None:
            scale_tril = real("scale_tril", scale_tril)
            if scale_tril.dim() < 2 or scale_tril.shape[-2:] != (manifold.dim, manifold.dim):
                raise ValueError(
                    f"scale_tril must have shape (…, {manifold.dim}, {manifold.dim}), got {tuple(scale_tril.shape)}"
                )
            self.scale_tril = scale_tril
        super().__init__(loc, scale, manifold, validate_args=validate_args)

    def bend(self, noise: Tensor, exact: bool) -> Tensor:
        return noise

    def log_density(self, ww: Tensor, vv: Tensor) -> Tensor:
        d = self.manifold.dim
        return -ww / 2 - self.log_det() - (d / 2 * math.log(2 * math.pi) + (d - 1) * logsinhc(self.c * vv))

    def radius_nodes(self) -> tuple[Tensor, Tensor]:
        return radial.bulk(self._deviations.new_zeros(()), radial.Kernel(self.manifold.dim))

    def raw_entropy(self) -> Tensor:
        """Add the entropy of the Gaussian and the mean logarithm of the change of volume, for any covariance."""
        d = self.manifold.dim
        if self.scale_tril is not None:
            variances = torch.linalg.svdvals(self._deviations) ** 2
        else:
            variances = (self._deviations**2).expand(*self.scale.shape[:-1], d)
        return d / 2 * math.log(2 * math.pi * math.e) + self.log_det() + (d - 1) * _mean_logsinhc(variances, self.c)


def _mean_logsinhc(variances: Tensor, c: Tensor | float) -> Tensor:
    """E[log(sinh(√c|v|)/(√c|v|))] for a centred normal v with the given principal variances.

    From sinh x/x = Π_k (1 + x²/π²k²) and log(1 + a) = ∫ (1 − e^{−au}) e^{−u} du/u the mean is the single integral
    ∫ θ(u)·(1 − Π_i (1 + 2cu·σ_i²)^{−1/2}) du/u, θ(u) = Σ_k e^{−π²k²u}. In log u its integrand is analytic in a strip
    and decays both ways, so the trapezoidal rule is exact to rounding.
    """
    step = 0.25
    u = torch.arange(-100.0, 2.5, step, dtype=torch.float64, device=variances.device).exp()
    k = torch.arange(1.0, 7.0, dtype=torch.float64, device=u.device).unsqueeze(-1)
    # Jacobi's identity where the direct sum would need many terms.
    direct = torch.exp(-((math.pi * k) ** 2) * u).sum(0)
    dual = (1 / (math.pi * u).sqrt() * (1 + 2 * torch.exp(-(k**2) / u).sum(0)) - 1) / 2
    theta = torch.where(u > 0.3, direct, dual)
    c = c.unsqueeze(-1).unsqueeze(-1) if isinstance(c, Tensor) else c
    log_product = torch.log1p(2 * c * u.unsqueeze(-1) * variances.unsqueeze(-2)).sum(-1)
    return step * (theta * -torch.expm1(-log_product / 2)).sum(-1)


class RiemannianNormal(HyperbolicNormal):
    r"""The maximum-entropy normal: density ∝ exp(−d(μ, z)²/2σ²) with respect to the Riemannian measure.

    Draws follow it exactly and need no rejection: see `curvae.distributions.table`. On a `Sphere` it becomes uniform as
    σ grows.

    Arguments:
        loc: centre μ, shape (…, width), in the manifold's coordinates.
        scale: dispersion σ: a number, or a tensor with as many dimensions as `loc` whose last is 1.
        manifold: where the distribution lives.

    References:
        Pennec (2006); Said et al. (2014); Mathieu et al. (2019), section 3.1.

    Example:
        >>> from curvae import Lorentz
        >>> p = RiemannianNormal(torch.zeros(3), 1.0, Lorentz(3, c=1.0))
        >>> round(float(p.log_prob(torch.zeros(3))), 4)
        -3.9183
    """

    gaussian_if_flat = _grows_as_square = True

    @property
    def _kernel(self) -> radial.Kernel:
        kind = radial.SphericalKernel if isinstance(self.manifold, Sphere) else radial.Kernel
        return kind(self.manifold.dim)

    @property
    def _q(self) -> Tensor:
        return self.c * self._deviations[..., 0] ** 2

    def bend(self, noise: Tensor, exact: bool) -> Tensor:
        return noise * stretch(h.dot(noise, noise), self._q, self._kernel, exact).unsqueeze(-1)

    def log_density(self, ww: Tensor, vv: Tensor) -> Tensor:
        d = self.manifold.dim
        return -ww / 2 - self.log_det() - (radial.log_normaliser(self._q, self._kernel) + radial.log_area(d))

    def radius_nodes(self) -> tuple[Tensor, Tensor]:
        return radial.bulk(self._q, self._kernel)


class ProductNormal(Validated):
    """Independent normals on the factors of a product of spaces; a point is the factors' coordinates in one row.

    Arguments:
        factors: a normal for each factor, of one batch shape.

    Example:
        >>> from curvae import Euclidean, Lorentz
        >>> from curvae.distributions import WrappedNormal
        >>> q = ProductNormal([WrappedNormal(torch.zeros(2), 0.5, Lorentz(2)), WrappedNormal(torch.zeros(3), 1.0, Euclidean(3))])
        >>> q.rsample((7,)).shape, q.log_prob(torch.zeros(5)).shape
        (torch.Size([7, 5]), torch.Size([]))
    """  # noqa: E501 - an example is one line

    has_rsample = True
    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}

    def __init__(self, factors: Sequence[Validated]) -> None:
        if not isinstance(factors, Sequence) or not all(isinstance(factor, Validated) for factor in factors):
            kinds = [type(one).__name__ for one in factors] if isinstance(factors, Sequence) else type(factors).__name__
            raise TypeError(f"factors must be a list of normal distributions, got {kinds}")
        if len({factor.batch_shape for factor in factors}) != 1:
            shapes = ", ".join(str(tuple(factor.batch_shape)) for factor in factors)
            raise ValueError(f"factors must have one batch shape, got {shapes or 'no factor'}")
        self.factors: tuple[Any, ...] = tuple(factors)
        self._widths = [factor.event_shape[0] for factor in factors]
        self._noise_widths = [factor.noise_dim for factor in factors]
        first = factors[0]
        super().__init__(first.batch_shape, torch.Size([sum(self._widths)]), False, first.dtype, first.device)

    @constraints.dependent_property(is_discrete=False, event_dim=1)
    def support(self) -> constraints.Constraint:
        return InsideProduct([factor.support for factor in self.factors], self._widths)

    @property
    def loc(self) -> Tensor:
        """The centres of the factors."""
        return torch.cat([factor.mean for factor in self.factors], -1)

    mean = mode = loc

    @property
    def noise_dim(self) -> int:
        return sum(self._noise_widths)

    def entropy(self) -> Tensor:
        return torch.stack([factor.entropy() for factor in self.factors]).sum(0)

    def expand(self, batch_shape: Shape, _instance: Any = None) -> ProductNormal:
        new = super().expand(batch_shape, _instance)
        new.factors = tuple(factor.expand(batch_shape) for factor in self.factors)
        return new

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-density with respect to the product of the Riemannian measures."""
        value = real("value", value)
        if value.shape[-1:] != self.event_shape:
            raise ValueError(f"value must have shape (…, {self.event_shape[0]}), got {tuple(value.shape)}")
        parts = zip(self.factors, value.split(self._widths, -1), strict=True)
        return torch.stack([factor.log_prob(part) for factor, part in parts]).sum(0)

    def noise(self, sample_shape: Shape = torch.Size()) -> Tensor:
        """Return standard normal noise for draws of the given shape."""
        return torch.cat([factor.noise(sample_shape) for factor in self.factors], -1)

    def transform(self, noise: Tensor) -> Tensor:
        """Return the draw made from standard normal `noise` of shape (…, d): a pure function."""
        check_noise(noise, self.batch_shape, self.noise_dim)
        parts = zip(self.factors, noise.split(self._noise_widths, -1), strict=True)
        return torch.cat([factor.transform(part) for factor, part in parts], -1)

    def transform_and_log_prob(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Compute `transform` together with the log-density of the draw."""
        check_noise(noise, self.batch_shape, self.noise_dim)
        parts = zip(self.factors, noise.split(self._noise_widths, -1), strict=True)
        draws, densities = zip(*(factor.transform_and_log_prob(part) for factor, part in parts), strict=True)
        return torch.cat(draws, -1), torch.stack(densities).sum(0)


class Radius(Validated):
    """Distribution of r = d(μ, z) for a Riemannian normal z; a subclass names the space.

    Arguments:
        dim: the dimension d of the space.
        scale: the dispersion σ > 0.
        c: minus the curvature; broadcasts against `scale`.
    """

    has_rsample = True
    _kernel_type: ClassVar[type[radial.Kernel]]

    def __init__(self, dim: int, scale: Tensor | float, c: Tensor | float, validate_args: bool | None = None) -> None:
        self.dim, self._kernel = check_dim(dim), self._kernel_type(dim)
        self.scale = parameter("scale", scale)
        self.c = parameter("c", c, like=self.scale).to(self.scale)
        # Widened once, so that gradients through their many uses are summed in float64.
        self._sigma, self._wide_c = self.scale.double(), self.c.double()
        batch_shape = batch_shape_of(scale=(self.scale, 0), c=(self.c, 0))
        super().__init__(batch_shape, torch.Size(), validate_args, self.scale.dtype, self.scale.device)
        if self._validate_args:
            check_curvature(self.c, self._kernel.spherical)
            check_scale("scale", self.scale, self.c, 0 if self._kernel.spherical else dim - 1)

    def expand(self, batch_shape: Shape, _instance: Any = None) -> Self:
        new = super().expand(batch_shape, _instance)
        new.scale, new.c = self.scale.expand(new._batch_shape), self.c.expand(new._batch_shape)
        return new

    @property
    def _q(self) -> Tensor:
        return self._wide_c * self._sigma**2

    @property
    def _largest(self) -> Tensor:
        """The largest radius, or ∞, without gradient."""
        return torch.full_like(self.c, math.inf)

    @property
    def noise_dim(self) -> int:
        return self.dim

    def transform(self, noise: Tensor) -> Tensor:
        """Return the radius of the draw made from standard normal `noise` of shape (…, dim)."""
        check_noise(noise, self.batch_shape, self.dim)
        square = noise.double().square().sum(-1)
        kappa = stretch(square, self._q, self._kernel, exact=self.scale.dtype == torch.float64)
        return (self._sigma * kappa * square.sqrt()).to(self.scale.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        q, outside = self._q, (value < 0) | (value > self._largest) | (value == math.inf)
        t = torch.where(outside, 1.0, value).double() / self._sigma
        log_density = self._kernel.log(t, q) - radial.log_normaliser(q, self._kernel) - self._sigma.log()
        return torch.where(outside, -math.inf, log_density).to(self.scale.dtype)

    def cdf(self, value: Tensor) -> Tensor:
        """Return the probability of a radius below `value`."""
        value = self._checked(value)
        t = self._kernel.hold(value.double() / self._sigma, self._q)
        return torch.where(value <= 0, 0.0, radial.log_cdfs(t, self._q, self._kernel)[0].exp()).to(self.scale.dtype)

    def icdf(self, value: Tensor) -> Tensor:
        """Return the quantile of probability `value`."""
        value = real("value", value)
        if self._validate_args and not holds(valid := (value >= 0) & (value <= 1)):
            raise ValueError(f"value must be a probability, between 0 and 1{got(value, valid)}")
        p = value.double()
        inner = p.clamp(1e-300, 1 - 2**-53)
        t = radial.quantile(inner.log(), torch.log1p(-inner), self._q, self._kernel)
        return torch.where(p <= 0, 0.0, torch.where(p >= 1, self._largest, self._sigma * t)).to(self.scale.dtype)

    @property
    def mean(self) -> Tensor:
        return (self._sigma * radial.mean_power(self._q, self._kernel, 1)).expand(self.batch_shape).to(self.scale.dtype)

    @property
    def variance(self) -> Tensor:
        t, weights = radial.bulk(self._q, self._kernel)
        centre = (weights * t).sum(-1, keepdim=True)
        return (self._sigma**2 * (weights * (t - centre) ** 2).sum(-1)).expand(self.batch_shape).to(self.scale.dtype)

    def entropy(self) -> Tensor:
        q = self._q
        t, weights = radial.bulk(q, self._kernel)
        mean_kernel = (weights * self._kernel.log(t, q.unsqueeze(-1))).sum(-1)
        return (
            (radial.log_normaliser(q, self._kernel) - mean_kernel + self._sigma.log())
            .expand(self.batch_shape)
            .to(self.scale.dtype)
        )


class HyperbolicRadius(Radius):
    r"""Distribution of r = d(μ, z) for a Riemannian normal z on the space of dimension `dim` and curvature −c.

    ρ(r) ∝ exp(−r²/2σ²)·(sinh(√c·r)/√c)^(d−1), r ≥ 0: the χ distribution at c = 0, half-normal at d = 1.

    Arguments:
        dim: the dimension d of the space.
        scale: the dispersion σ > 0.
        c: minus the curvature, ≥ 0; broadcasts against `scale`.

    References:
        Mathieu et al. (2019), appendix "Maximum entropy hyperbolic normal distribution".

    Example:
        >>> radius = HyperbolicRadius(2, scale=1.0, c=1.0)
        >>> round(float(radius.mean), 4)
        1.4648
        >>> round(float(radius.cdf(radius.icdf(torch.tensor(0.25)))), 4)
        0.25
    """

    arg_constraints: ClassVar = {"scale": constraints.positive, "c": constraints.nonnegative}
    support = constraints.nonnegative
    _kernel_type = radial.Kernel

    def __init__(
        self, dim: int, scale: Tensor | float, c: Tensor | float = 1.0, validate_args: bool | None = None
    ) -> None:
        super().__init__(dim, scale, c, validate_args)


class SphericalRadius(Radius):
    r"""Distribution of r = d(μ, z) for a Riemannian normal z on the sphere of dimension `dim` and curvature −c > 0.

    ρ(r) ∝ exp(−r²/2σ²)·(sin(√−c·r)/√−c)^(d−1), 0 ≤ r ≤ π/√−c: a truncated normal on the circle, d = 1, and the radius
    of a uniform point as σ grows.

    Arguments:
        dim: the dimension d of the sphere.
        scale: the dispersion σ > 0.
        c: minus the curvature, < 0; broadcasts against `scale`.

    Example:
        >>> radius = SphericalRadius(2, scale=1.0)
        >>> round(float(radius.mean), 4)
        1.0508
        >>> round(float(radius.cdf(radius.icdf(torch.tensor(0.25)))), 4)
        0.25
    """

    arg_constraints: ClassVar = {"scale": constraints.positive, "c": constraints.less_than(0.0)}
    _kernel_type = radial.SphericalKernel

    def __init__(
        self, dim: int, scale: Tensor | float, c: Tensor | float = -1.0, validate_args: bool | None = None
    ) -> None:
        super().__init__(dim, scale, c, validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        return constraints.interval(0.0, self._largest)

    @property
    def _largest(self) -> Tensor:
        return math.pi / (-self.c.detach()).sqrt()

    def transform(self, noise: Tensor) -> Tensor:
        return torch.minimum(super().transform(noise), self._largest)


class SphericalUniform(Validated):
    r"""Uniform distribution of a direction: unit vectors of ℝ^dim, density 1/area of the unit sphere.

    Arguments:
        dim: the dimension of the space around the sphere.
        dtype, device: of the draws.

    Example:
        >>> SphericalUniform(3).log_prob(torch.tensor([0.0, 0.0, 1.0]))
        tensor(-2.5310)
    """

    has_rsample = True
    arg_constraints: ClassVar = {}

    def __init__(
        self,
        dim: int,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        validate_args: bool | None = None,
        *,
        batch_shape: torch.Size = torch.Size(),
    ) -> None:
        self.dim = check_dim(dim)
        super().__init__(batch_shape, torch.Size([dim]), validate_args, dtype, device)

    @constraints.dependent_property(is_discrete=False, event_dim=1)
    def support(self) -> constraints.Constraint:
        return UnitSphere(self.dim)

    def transform(self, noise: Tensor) -> Tensor:
        """Return the direction of standard normal `noise` of shape (…, dim)."""
        check_noise(noise, self.batch_shape, self.dim)
        return noise / noise.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(noise.dtype).tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        return value.new_full(broadcast_shapes(value.shape[:-1], self.batch_shape), -radial.log_area(self.dim))

    @property
    def mean(self) -> Tensor:
        return torch.zeros(self._extended_shape(), dtype=self.dtype, device=self.device)

    @property
    def variance(self) -> Tensor:
        """Of each coordinate: 1/dim."""
        return torch.full(self._extended_shape(), 1 / self.dim, dtype=self.dtype, device=self.device)

    def entropy(self) -> Tensor:
        return torch.full(self.batch_shape, radial.log_area(self.dim), dtype=self.dtype, device=self.device)
